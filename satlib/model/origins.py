"""What a model's weights come from, as its file and its evaluations state it: one text for each model that contributed.

The texts are "distilled from NAME", "begun from NAME", "weights averaged with SHARE of NAME", and, where the two models are of
the same recipe, "weights averaged with SHARE of another NAME".
"""

DISTILLED, BEGUN, AVERAGED = "distilled from ", "begun from ", "weights averaged with "
