"""What every other room uses to touch the disk and the terminal: atomic writes, strict reading of JSON and weights, progress bars.

Imports nothing of satlib but `satlib.errors`.
"""
