"""What a model's weights come from, as its file and its evaluations state it: one text for each model that contributed.

The texts are "distilled from NAME", "begun from NAME", "weights averaged with SHARE of NAME", and, where the two models are of
the same recipe, "weights averaged with SHARE of another NAME".
"""

from collections.abc import Iterable

DISTILLED, BEGUN, AVERAGED = "distilled from ", "begun from ", "weights averaged with "
_EARLIER = {"taught by ": DISTILLED, "mixed with ": AVERAGED}


def current(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts of a file in today's words, whatever version of satlib wrote it."""
    return tuple(_current(text) for text in texts)


def _current(text: str) -> str:
    for earlier, words in _EARLIER.items():
        if text.startswith(earlier):
            return words + text.removeprefix(earlier)
    return text
