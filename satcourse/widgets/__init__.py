"""What a reader moves and looks at: the explorer, the word scrubber, steered attention, drawings of search trees."""
