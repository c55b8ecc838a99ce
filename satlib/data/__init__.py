"""Captions and images, wherever they come from, until they are batches of tensors.

Data sets (drawn scenes, Flickr8k and Flickr30k, COCO, Karpathy's files, your own folder), the words
of captions and the squares of photographs, and the store of annotation vectors. May import
`satlib.recipe` and `satlib.files`.
"""
