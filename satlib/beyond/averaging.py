"""Beyond the paper: averaging the weights of two models (Wortsman et al., 2022).

If one model was started from the other, or both from a third, then models on the line between their weights,

    theta = (1 - s) theta_A + s theta_B,    s the share of B,

often caption well too, and they need no training; s is chosen on dev. Two uses:

- a model and the one that its training started from: training on rewards makes captions more precise but may make them
  shorter, and an average of the two trades one for the other;
- two runs that differ in their seed: averaging cancels some of their errors.
"""

import copy

from satlib.errors import SatlibError
from satlib.model.captioner import Captioner


def average_weights(a: Captioner, b: Captioner, share: float) -> Captioner:
    """A captioner with (1 - share) of a's weights and share of b's; its recipe, and with it its decoding, is b's.

    Counters that are not weights (the batches that a BatchNorm has seen) are b's.

    Raises:
        SatlibError: the share is not between 0 and 1, or the models differ in vocabulary, encoder or sizes.
    """
    if not 0 <= share <= 1:
        raise SatlibError(f"the share of the second model's weights is {share:g}; give a number from 0 to 1")
    averaged = copy.deepcopy(b)
    weights_a, weights = a.state_dict(), averaged.state_dict()
    if (
        a.vocabulary != b.vocabulary
        or (a.encoder.name, a.recipe.encoder) != (b.encoder.name, b.recipe.encoder)
        or {name: value.shape for name, value in weights_a.items()}
        != {name: value.shape for name, value in weights.items()}
    ):
        raise SatlibError(
            f"{a.recipe.name} and {b.recipe.name} differ in vocabulary, encoder or sizes; average a model with one that it was "
            "started from, or that was started from the same model (satlib train --start)"
        )
    for name, value in weights.items():
        if value.is_floating_point():
            value.copy_(weights_a[name].lerp(value, share))
    return averaged
