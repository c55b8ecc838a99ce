"""Captioners for photographs, trained on Flickr8k: for non-commercial research and education only (README.md)."""
