"""From a recipe to a trained model: the loop, its checkpoints, several processes.

May import `satlib.beyond` and what is below it.
"""
