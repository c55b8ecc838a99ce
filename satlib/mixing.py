"""Beyond the paper: weights between those of two models (Wortsman et al., 2022).

Where one model was begun from the other, or both from a third, there are good models all along the line between their weights,

    theta = (1 - s) theta_A + s theta_B,    s the share of B,

and no step of training is needed to have them; s is chosen on dev. Two uses:

- what a training went on from and what it ended with: rewards that make captions precise may make them short, and a
  model between has something of both;
- two trainings that differ in their seeds: each has errors of its own, and halfway between them less is left of either's.
"""

import copy

from satlib.captioner import Captioner
from satlib.errors import SatlibError


def mix(a: Captioner, b: Captioner, share: float) -> Captioner:
    """A captioner with (1 - share) of a's weights and share of b's; its recipe, and so its decoding, is b's.

    Raises:
        SatlibError: the share is not within 0 and 1, or the two have other words, encoders or sizes.
    """
    if not 0 <= share <= 1:
        raise SatlibError(f"the share of the second model's weights is {share:g}; give a number from 0 to 1")
    mixed = copy.deepcopy(b)
    theirs, ours = a.state_dict(), mixed.state_dict()
    if (
        a.vocabulary != b.vocabulary
        or (a.encoder.name, a.recipe.encoder) != (b.encoder.name, b.recipe.encoder)
        or {name: value.shape for name, value in theirs.items()} != {name: value.shape for name, value in ours.items()}
    ):
        raise SatlibError(
            f"{a.recipe.name} and {b.recipe.name} have other words, encoders or sizes; mix a model with one that it was "
            "begun from, or that was begun from the same (satlib train --start)"
        )
    for name, value in ours.items():
        if value.is_floating_point():  # a BatchNorm also counts its batches
            value.copy_(theirs[name].lerp(value, share))
    other = "another " if a.recipe.name == b.recipe.name else ""
    mixed.origins = (*b.origins, f"mixed with {1 - share:g} of {other}{a.recipe.name}")
    return mixed
