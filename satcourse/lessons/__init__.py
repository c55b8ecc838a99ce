"""What single notebooks compute beside satlib: a translation task, a deconvnet, the marginal likelihood, estimators on a small case."""
