"""What the notebooks need beyond the captioner itself: a translation task, a deconvnet, the marginal likelihood, an explorer, a word scrubber."""
