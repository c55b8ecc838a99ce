"""A page of photographs with the boxes of a phrase and the map of its word: the best, the middle and the worst by the measure.

The page is one HTML file with its pictures inside. Photographs are lit by the maps that were measured, upsampled bilinearly.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from satlib.data import images
from satlib.data.datasets import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.evaluation import pointing
from satlib.evaluation.phrase_grounding import Grounding, Measured
from satlib.evaluation.phrase_report import render

EACH = 8  # phrases in each of the three groups
_DARKEST = 0.2  # the brightness of a pixel without attention
_STYLE = """
:root { color-scheme: light dark; --ground: #fff; --text: #1a1a1a; --quiet: #595959; --line: #d5d5d5 }
@media (prefers-color-scheme: dark) { :root { --ground: #16181b; --text: #ececec; --quiet: #a8a8a8; --line: #3a3d42 } }
body { background: var(--ground); color: var(--text); font: 16px/1.5 system-ui, sans-serif; max-width: 75rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.5rem } h3 { font-size: 1rem; margin: 1.5rem 0 .5rem }
p, pre { color: var(--quiet) } pre { overflow-x: auto; font-size: .8rem; line-height: 1.35 }
.row { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)); gap: 1.25rem; align-items: start }
figure { margin: 0; border: 1px solid var(--line); border-radius: 6px; padding: .6rem }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .4rem }
.picture { position: relative } img, svg { display: block; width: 100%; height: 100%; border-radius: 3px }
svg { position: absolute; inset: 0 } rect { fill: none; vector-effect: non-scaling-stroke }
.edge { stroke: #000; stroke-width: 4px } .box { stroke: #ffd21f; stroke-width: 2px }
.peak { position: absolute; width: 12px; height: 12px; margin: -8px 0 0 -8px; border: 2px solid #fff; border-radius: 50%;
  outline: 2px solid #000 }
figcaption { font-size: .85rem; margin-top: .5rem } mark { background: #ffd21f; color: #000; padding: 0 .2em; border-radius: 3px }
figcaption span { color: var(--quiet); display: block }
"""


def ratio(measured: Measured) -> float:
    """The measure that orders the page: mass as a multiple of the mass of an even map."""
    return measured.measures["mass"] / measured.measures["mass even"]


def choose(measured: Sequence[Measured], each: int = EACH) -> dict[str, list[Measured]]:
    """The best, the middle and the worst by `ratio`: {"Best": [...], "Middle": [...], "Worst": [...]}.

    No photograph occurs twice, since its five captions often say the same: it is shown where it is met first, as the groups are
    filled in turn from the top, from the median outwards, and from the bottom of the ranking.
    """
    ranked = sorted(measured, key=lambda one: (-ratio(one), one.image_id, one.caption.text, one.named.index))
    middle = (len(ranked) - 1) / 2
    orders = {
        "Best": ranked,
        "Middle": [ranked[rank] for rank in sorted(range(len(ranked)), key=lambda rank: (abs(rank - middle), rank))],
        "Worst": ranked[::-1],
    }
    used: set[str] = set()
    chosen: dict[str, list[Measured]] = {}
    for name, order in orders.items():
        chosen[name] = []
        for one in order:
            if len(chosen[name]) < each and one.image_id not in used:
                used.add(one.image_id)
                chosen[name].append(one)
    return {name: sorted(group, key=ratio, reverse=True) for name, group in chosen.items()}


def page(
    title: str, grounding: Grounding, report: Mapping[str, Any], data: CaptionSet, entities: Entities, view: str
) -> str:
    """The page as HTML.

    Args:
        title: the heading, such as the recipe and the split.
        grounding: what was measured.
        report: its figures (`phrase_report.report`).
        data: has the photographs.
        entities: has the photographs' original sizes, to undo the squeezing.
        view: the encoder's view of a photograph (`images.square`).
    """
    examples = {example.image_id: example for example in data.examples}
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        "<p>Left: the boxes of what the marked word names. Right: the photograph lit by the word's attention map, scaled to "
        "its maximum; the ring marks the peak. Phrases are ordered by the share of the map inside the boxes, as a multiple of "
        "that of an even map. Shown are the top, the middle and the bottom of the ranking, each photograph once.</p>",
    ]
    for heading, measured in (("True captions", grounding.true), ("Generated captions", grounding.generated)):
        parts.append(f"<h2>{heading}</h2>")
        for name, group in choose(measured).items():
            figures = "\n".join(_figure(one, examples[one.image_id], data, entities, view) for one in group)
            parts.append(f'<h3>{name}</h3>\n<div class="row">\n{figures}\n</div>')
    parts += [
        "<h2>All phrases</h2>",
        f"<pre>{html.escape(render(report))}</pre>",
        "<p>Boxes: Flickr30k Entities (Plummer et al., 2015), for non-commercial research. Measure: attention correctness (Liu et "
        "al., 2017).</p>",
    ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _figure(one: Measured, example: Example, data: CaptionSet, entities: Entities, view: str) -> str:
    """A phrase: its photograph with the boxes, the same lit by the map, the caption and the measures."""
    photo = images.square(data.photo(example), view)
    alpha = one.caption.alphas[one.named.index]
    weights = pointing.upsample(alpha).numpy()
    strength = _DARKEST + (1 - _DARKEST) * weights / weights.max()
    dimmed = Image.fromarray(np.rint(np.asarray(photo) * strength[..., None]).astype(np.uint8))
    row, column = divmod(int(pointing.peaks(alpha)), images.SIZE)
    width, height = entities.size(one.image_id) if view == "whole" else (1, 1)
    boxes = "".join(
        f'<rect class="{name}" x="{100 * left:.2f}" y="{100 * top:.2f}" width="{100 * (right - left):.2f}" '
        f'height="{100 * (bottom - top):.2f}"/>'
        for name in ("edge", "box")
        for left, top, right, bottom in one.named.boxes
    )
    drawn = f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{boxes}</svg>'
    peak = ""
    if "peak" in one.measures:
        x, y = (100 * (pixel + 0.5) / images.SIZE for pixel in (column, row))
        peak = f'<div class="peak" style="left:{x:.1f}%;top:{y:.1f}%"></div>'
    word = one.caption.words[one.named.index]
    pictures = "".join(
        f'<div class="picture" style="aspect-ratio:{width}/{height}"><img src="{_embedded(picture)}" alt="{alt}">{over}</div>'
        for picture, alt, over in (
            (photo, f"the photograph, with the boxes of {html.escape(word)}", drawn),
            (dimmed, f"where the map of {html.escape(word)} is large", drawn + peak),
        )
    )
    words = " ".join(
        f"<mark>{html.escape(word)}</mark>" if index == one.named.index else html.escape(word)
        for index, word in enumerate(one.caption.words)
    )
    mass, even = (100 * one.measures[name] for name in ("mass", "mass even"))
    return (
        f'<figure><div class="pair">{pictures}</div><figcaption>{words}<span>{", ".join(one.named.kinds)}: {mass:.0f} % inside, '
        f"{ratio(one):.2f} times the {even:.0f} % of an even map</span><span>{html.escape(one.image_id)}</span></figcaption></figure>"
    )


def _embedded(photo: Image.Image) -> str:
    """A photograph as a data address, in JPEG."""
    content = io.BytesIO()
    photo.save(content, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()
