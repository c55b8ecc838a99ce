"""From a recipe to a trained model: the loop, its checkpoints, several processes, and the search for better options.

May import `satlib.beyond` and what is below it.
"""
