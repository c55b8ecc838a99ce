"""A captioner outside Python: ONNX graphs, and the web page on which they run.

`static` holds the page's HTML, CSS and JavaScript. May import `satlib.training` and what is below
it.
"""
