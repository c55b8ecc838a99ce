"""How many captions with such a score are true: counted where somebody judged them.

A caption's score, the geometric mean of its words' probabilities, ranks captions, but is not the
probability that one is true. satlib/results/how-sure.json has, for each model that comes with
satlib, how many of the dev captions in a band of scores were true; benchmarks/how_sure.py counts
them, for photographs from the verdicts of two readers who did not see the scores.
"""

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from satlib.model.captioner import Captioner
from satlib.model.encoders import hash_of

COUNTS = Path(__file__).parent.parent / "results" / "how-sure.json"


class Band(NamedTuple):
    """The judged captions with scores from `least` up to the next band's."""

    least: float
    true: int
    judged: int

    def in_words(self, of: str = "") -> str:
        """In words: "about 1 of 4 such captions of drawn scenes are true".

        of: the images of which captions were judged, where others are to be expected.
        """
        # Finer fractions would say more than some dozens of captions can.
        share = Fraction(self.true, self.judged).limit_denominator(6)
        if share in (0, 1):
            return f"{'nearly all' if share else 'hardly any'} such captions{of} are true"
        return f"about {share.numerator} of {share.denominator} such captions{of} are true"


def bands_of(captioner: Captioner) -> list[Band]:
    """The bands of a captioner, the lowest scores first; none if nobody judged its captions."""
    counts = json.loads(COUNTS.read_text(encoding="utf-8"))
    # By its weights: what is trained further is another model, whatever its name.
    known = counts.get(hash_of(captioner)[:8])
    return [Band(*band) for band in known["bands"]] if known else []


def band_of(bands: Sequence[Band], score: float) -> Band | None:
    """The band that a caption's score lies in; None without any."""
    below = [band for band in bands if band.least <= score]
    return below[-1] if below else None
