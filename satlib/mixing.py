"""Beyond the paper: weights between those of two models (Wortsman et al., 2022).

What a training that went on from another model has gained in one respect, it may have paid for in another: rewards make
captions precise, and shorter. Where one model was begun from the other, the line between their weights,

    theta = (1 - s) theta_A + s theta_B,    s the share of B,

has models of either kind's strengths, and no step of training is needed to have them; s is chosen on dev.
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
            f"{a.recipe.name} and {b.recipe.name} have other words, encoders or sizes; mix a model with the one that it was "
            "begun from (satlib train --start)"
        )
    for name, value in ours.items():
        if value.is_floating_point():  # a BatchNorm also counts its batches
            value.copy_(theirs[name].lerp(value, share))
    mixed.origins = (*b.origins, f"mixed with {1 - share:g} of {a.recipe.name}")
    return mixed
