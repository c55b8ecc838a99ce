"""What a reader moves and looks at: the word scrubber, steered attention, drawings of search
trees.
"""
