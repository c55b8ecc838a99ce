"""The captioner for photographs, trained on Flickr8k and COCO: for non-commercial research and education only (README.md)."""
