"""What single notebooks compute beside satlib: a translation task, the marginal likelihood, every
path of a small case.
"""
