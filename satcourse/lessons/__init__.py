"""What single notebooks compute beside satlib: a translation task, a deconvnet, the marginal likelihood, bounds and estimators on a small case."""
