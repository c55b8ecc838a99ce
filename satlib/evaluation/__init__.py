"""What a trained model is worth: its captions and their scores, its maps, the table of results.

May import `satlib.model` and what is below it.
"""
