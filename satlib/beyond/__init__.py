"""What the paper does not have: rewards, and boxes that supervise attention.

May import `satlib.evaluation` and what is below it; the training loop takes what is here as a list
of terms.
"""
