"""What captions invent in photographs: CHAIR (Rohrbach et al., 2018, arXiv:1809.02156) with captions in place of COCO's masks.

An object counts as invented if no reference of the photograph mentions one of its kind: "invented objects" is CHAIR_i, "captions
that invent" CHAIR_s. People do not mention all that they see, so the figures are too high, for every model. Only the words of
`KINDS` count; those of one kind are equal: "man" for a woman is no invention here.
"""

from collections.abc import Mapping, Sequence
from importlib import resources

from satlib.data.text import tokenise

# Common objects of everyday photographs, one kind a line; a plural with -s or -es need not be listed.
KINDS = (
    resources.files("satlib.evaluation")
    .joinpath("kinds.txt")
    .read_text(encoding="utf-8")
    .splitlines()
)
_KIND = {
    form: line.split()[0]
    for line in KINDS
    for word in line.split()
    for form in (word, f"{word}s", f"{word}es")
}


def objects(text: str) -> set[str]:
    """The kinds of objects that a caption mentions, each by its first word in `KINDS`."""
    return {_KIND[word] for word in tokenise(text) if word in _KIND}


def measure(
    captions: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> dict[str, list[float]]:
    """The columns of an evaluation: in each caption, the objects, the invented ones, and whether there are any."""
    columns: dict[str, list[float]] = {
        "objects": [],
        "invented objects": [],
        "captions that invent": [],
    }
    for image, caption in captions.items():
        mentioned = objects(caption)
        invented = mentioned - set().union(*map(objects, references[image]))
        for column, number in zip(
            columns.values(), (len(mentioned), len(invented), bool(invented)), strict=True
        ):
            column.append(float(number))
    return columns
