"""Phrase grounding in figures: means by kind and by size of the boxes, as JSON and as a table for a terminal."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from satlib.evaluation.phrase_grounding import MASS, PEAK, Grounding, Measured

SIZES = ("below 10 %", "10 to 40 %", "above 40 %")  # the area of the boxes, as a share of what the encoder sees


def size_of(area: float) -> str:
    """The class of an area from 0 to 1; 10 % and 40 % belong to the middle one."""
    return SIZES[(area >= 0.1) + (area > 0.4)]


def summary(measured: Sequence[Measured]) -> dict[str, Any]:
    """The number of phrases and the means of the measures in percent: of all, by kind, and by the area of the boxes.

    A word that names things of two kinds counts in both. Kinds are ordered by their number of phrases.
    """

    def means(group: Sequence[Measured]) -> dict[str, float]:
        names = group[0].measures if group else ()
        return {
            "phrases": len(group),
            **{name: 100 * math.fsum(each.measures[name] for each in group) / len(group) for name in names},
        }

    by_kind: dict[str, list[Measured]] = defaultdict(list)
    by_size: dict[str, list[Measured]] = {name: [] for name in SIZES}
    for each in measured:
        for kind in each.named.kinds:
            by_kind[kind].append(each)
        by_size[size_of(each.measures["mass even"])].append(each)
    kinds = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind))
    return {
        "all": means(measured),
        "by kind": {kind: means(by_kind[kind]) for kind in kinds},
        "by size": {name: means(group) for name, group in by_size.items() if group},
    }


def report(grounding: Grounding) -> dict[str, Any]:
    """What `satlib ground --entities` writes under "entities", and what `render` prints."""
    return {
        "true": summary(grounding.true),
        "generated": summary(grounding.generated),
        **grounding.maps,
        "counts": grounding.counts,
    }


def render(report: Mapping[str, Any]) -> str:
    """Lay out a `report` as a table for a terminal."""
    lines = [
        f"{'percent':16} {'phrases':>8}  {'mass':>6} {'even':>6} {'mean':>6} {'best':>6}  {'peak':>6} {'centre':>6} {'mean':>6} {'best':>6}"
    ]

    def line(name: str, figures: Mapping[str, float]) -> str:
        mass, peak = (
            " ".join(f"{figures[each]:6.1f}" if each in figures else f"{'-':>6}" for each in names)
            for names in (MASS, PEAK)
        )
        return f"{name:16} {figures['phrases']:8,d}  {mass}  {peak}"

    for captions in ("true", "generated"):
        part = report[captions]
        lines += ["", line(f"{captions} captions", part["all"])]
        for group in ("by kind", "by size"):
            lines += [f" {group}", *(line("  " + name, figures) for name, figures in part[group].items())]
    counts = report["counts"]
    lines += [
        "",
        "mass: the share of the word's map inside the boxes of what it names; peak: words whose map has its peak in a box, with no",
        "tolerance. even: the same mass of an even map; centre: the centre of the picture; mean: the mean of the caption's maps,",
        "which ignores the word; best: the best single cell of the grid.",
        f"true captions: the maps' entropy is {report['entropy share']:.1f} % of that of an even map; their movement from word to word is "
        f"{report['movement']:.2f}.",
        f"{counts['references']:,} reference captions of {counts['images']:,} photographs; {counts['references not found']:,} more are worded "
        "differently in Flickr30k Entities, and are left out.",
    ]
    if counts["images without annotations"]:
        lines.append(
            f"Flickr30k Entities has no annotations of {counts['images without annotations']:,} photographs, which are left out."
        )
    return "\n".join(lines)
