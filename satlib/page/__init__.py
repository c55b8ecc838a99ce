"""A captioner outside Python: ONNX graphs, and the web page on which they run (`static` holds its HTML, CSS and JavaScript).

May import `satlib.training` and what is below it.
"""
