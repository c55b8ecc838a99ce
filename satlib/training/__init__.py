"""From a recipe to a trained model: the loop, its checkpoints, several processes, and tuning.

May import `satlib.beyond` and what is below it.
"""
