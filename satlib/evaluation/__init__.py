"""What a trained model is worth: its captions and their scores, its maps beside what people marked, the table of results.

May import `satlib.model` and what is below it.
"""
