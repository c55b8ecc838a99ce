"""What single notebooks compute beside satlib: a translation task, a deconvnet, the marginal likelihood, every path of a small case."""
