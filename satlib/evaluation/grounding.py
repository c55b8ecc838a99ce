"""Are attention maps on what words name? The maps of any model, compared with boxes in photographs (section 5.4).

A map alpha (h, w) is upsampled bilinearly to 224 x 224 pixels of the part of the photograph that the model sees, and compared with
the boxes of what its word names:

    mass      the share of the map in the boxes ("attention correctness": Liu, Mao, Sha and Yuille, 2017);
    peak      whether the map's largest pixel, the first of equal ones, is in a box (the pointing game of Zhang et al., 2016).

Upsampling is separable: with U_h (H, h) and U_w (W, w), the interpolation of an axis, a map A becomes U_h A U_w^T.

Boxes come from Flickr30k Entities, where people drew them for phrases, or from COCO's `instances_*.json`. With Entities, the last
word of each phrase of a reference caption is measured, usually its noun; in a generated caption, a word that ends some phrase of
the photograph's captions. With COCO, it is each word that names a category.

Attention is informative if it beats two baselines: chance (an even map; the centre of the picture), and the mean of the caption's
maps, which ignores the word. The best single cell is the most that the grid allows.
"""

import math
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors
import torch
from msgspec import Struct
from safetensors.torch import save
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from satlib.data.caption_set import CaptionSet, Example
from satlib.data.coco import Boxes
from satlib.data.entities import Entities
from satlib.data.features import Reader, read_ahead
from satlib.data.images import SIZE, WHOLE, Box, seen_part
from satlib.data.text import END, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import statistics
from satlib.evaluation.maps import cell_peaks, interpolation, peaks
from satlib.files.atomic import replacing
from satlib.files.progress import progress_bar
from satlib.files.reading import Name, decode
from satlib.files.weights import contents
from satlib.model.attention import entropy, movement
from satlib.model.captioner import Caption, Captioner

MASS = ("mass", "mass even", "mass mean map", "mass best cell")
PEAK = ("peak", "peak centre", "peak mean map", "peak best cell")
GAINS = (("mass", "mass even"), ("mass", "mass mean map"), ("peak", "peak centre"), ("peak", "peak mean map"))
SIZES = ("below 10 %", "10 to 40 %", "above 40 %")  # the area of the boxes, as a share of what the model sees
CENTRE = SIZE // 2 * SIZE + SIZE // 2  # the pixel at the centre of the square, as an index of the flattened pixels
BATCH = 16  # images: five captions of each are in memory, with the probability of every word
Places = Entities | Boxes
_ROUNDING = 1e-9  # pixels
_EVEN = 1e-6  # a map that varies less than this has no peak


@dataclass(frozen=True)
class Entry:
    """A caption of a photograph, with the attention maps of some model.

    Attributes:
        image: the photograph's file name.
        words: of the caption, without the end mark.
        alphas: (C, h, w): a map for each word, of any grid; one more, if there is one, belongs to the end mark.
        reference: whether the words are a reference caption, which the model was given (teacher forcing), not its own.
        seen: the part of the photograph that the maps cover, as fractions of its sides; beyond 0 to 1 where it was padded.
    """

    image: str
    words: tuple[str, ...]
    alphas: Tensor
    reference: bool = False
    seen: Box = WHOLE


@dataclass(frozen=True)
class Mention:
    """A word of a caption and the boxes of what it names.

    Attributes:
        index: of the word in the caption.
        kinds: of what it names, such as people or animals; usually one.
        boxes: as fractions of what the model sees.
    """

    index: int
    kinds: tuple[str, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Judgement:
    """The measures of a word's map and of the baselines, 0 to 1, by name: `MASS` and, unless all maps are even, `PEAK`."""

    entry: Entry
    mention: Mention
    values: Mapping[str, float]


# --- The words that are measured, and their boxes -----------------------------------------------------------------------


def mentions(places: Places, entry: Entry) -> list[Mention] | None:
    """The words of a caption that name something with boxes; None if Entities does not have this reference caption."""
    if isinstance(places, Boxes):
        found = places.named(entry.image, [_plain(word) for word in entry.words], entry.seen)
        return [Mention(index, (kind,), boxes) for index, kind, boxes in found]
    return _of_reference(places, entry) if entry.reference else _of_generated(places, entry)


def _of_reference(entities: Entities, entry: Entry) -> list[Mention] | None:
    """The last word of each phrase of a reference that has boxes."""
    sentence = entities.sentence(entry.image, entry.words, entry.seen)
    if sentence is None:
        return None
    return [Mention(phrase.end - 1, phrase.kinds, phrase.boxes) for phrase in sentence.phrases if phrase.boxes]


def _of_generated(entities: Entities, entry: Entry) -> list[Mention]:
    """The words that end a phrase that people wrote about the photograph, with the boxes of all phrases with that last word."""
    boxes: dict[str, dict[Box, None]] = defaultdict(dict)  # as ordered sets
    kinds: dict[str, dict[str, None]] = defaultdict(dict)
    for sentence in entities.sentences(entry.image, entry.seen):
        for phrase in sentence.phrases:
            if phrase.boxes:
                head = sentence.words[phrase.end - 1]
                boxes[head] |= dict.fromkeys(phrase.boxes)
                kinds[head] |= dict.fromkeys(phrase.kinds)
    words = [_plain(word) for word in entry.words]
    return [Mention(i, tuple(kinds[word]), tuple(boxes[word])) for i, word in enumerate(words) if word in boxes]


def _plain(word: str) -> str:
    """A word in lower case without punctuation, as satlib's own are."""
    return " ".join(tokenise(word))


def covered(places: Places, images: Iterable[str]) -> list[str]:
    """Those photographs that have annotations, in order.

    Raises:
        SatlibError: none has.
    """
    images = list(images)
    found = [image for image in images if image in places]
    if not found:
        raise SatlibError(
            f"{places.path} has none of these {len(images):,} images ({images[0]}, for example); are these the boxes of this data set?"
        )
    return found


# --- Measures of one word -----------------------------------------------------------------------------------------------


def inside_boxes(boxes: Sequence[Box], pixels: int = SIZE) -> Tensor:
    """The pixels of the square that boxes cover wholly or in part, so that every box has some: bool (pixels, pixels)."""

    def cells(begin: float, end: float) -> slice:  # an edge between two pixels may be off by a rounding error
        return slice(math.floor(begin * pixels + _ROUNDING), math.ceil(end * pixels - _ROUNDING))

    inside = torch.zeros(pixels, pixels, dtype=torch.bool)
    for left, top, right, bottom in boxes:
        inside[cells(top, bottom), cells(left, right)] = True
    return inside


def measure(entry: Entry, named: Sequence[Mention], peaked: bool = True) -> list[Judgement]:
    """Measure words of a caption; each map is divided by its sum first.

    Args:
        entry: the caption.
        named: the words.
        peaked: whether the maps have a peak; False leaves out `PEAK`.
    """
    if not named:
        return []
    maps = _distributions(entry)[: len(entry.words)]
    mean = maps.mean(0)
    peak = peaks(torch.stack([mean, *(maps[mention.index] for mention in named)])) if peaked else None
    judgements = []
    for number, mention in enumerate(named, 1):
        inside, cover, total = _region(mention.boxes, *mean.shape)
        values = {
            "mass": _mass(maps[mention.index], cover, total),
            "mass even": float(inside.double().mean()),
            "mass mean map": _mass(mean, cover, total),
            "mass best cell": float(cover.max()),  # of any map, as every map is a mean of cells
        }
        if peak is not None:
            values |= {
                "peak": float(inside[peak[number]]),
                "peak centre": float(inside[CENTRE]),
                "peak mean map": float(inside[peak[0]]),
                "peak best cell": float(inside[cell_peaks(*mean.shape)].any()),
            }
        judgements.append(Judgement(entry, mention, values))
    return judgements


def _distributions(entry: Entry) -> Tensor:
    """The maps in double precision, each with the sum 1."""
    maps = entry.alphas.double()
    return maps / maps.sum((1, 2), keepdim=True)


@lru_cache(maxsize=128)  # an image's captions share most boxes
def _region(boxes: tuple[Box, ...], height: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes, rasterised once for all maps of a grid (h, w) that are compared with them.

    Returns:
        Their pixels, bool (SIZE * SIZE,); the share of each cell's own upsampled map inside, (h, w); its sum over all pixels, (h, w).
    """
    inside, rows, columns = inside_boxes(boxes), interpolation(height), interpolation(width)
    total = torch.outer(rows.sum(0), columns.sum(0))
    return inside.flatten(), rows.T @ inside.double() @ columns / total, total


def _mass(alpha: Tensor, cover: Tensor, total: Tensor) -> float:
    """The share of a map (h, w) that is inside the boxes of a `_region`, 0 to 1."""
    weights = alpha * total  # what each cell adds to the upsampled map
    return float((weights * cover).sum() / weights.sum())


# --- All captions of a file or a split ----------------------------------------------------------------------------------


def judge(entries: Sequence[Entry], places: Places) -> tuple[dict[str, Any], list[Judgement]]:
    """Measure captions.

    Args:
        entries: the captions.
        places: the boxes; images that they do not cover are left out.

    Returns:
        What `satlib ground` writes: "true" and "generated" (`summary`), for reference captions and for the model's own; of the
        maps of the true captions (where there are none, of the generated ones), end marks included, "entropy share", their
        entropy in percent of ln L, and "movement"; and "counts". And the judgement of each word: of the true captions, if there are any.

    Raises:
        SatlibError: no image has boxes, no reference caption is found, no word names something with boxes, or the boxes are damaged.
    """
    images = dict.fromkeys(entry.image for entry in entries)
    known = set(covered(places, images))
    peaked = any(_uneven(entry.alphas) for entry in entries)
    parts: dict[bool, list[Judgement]] = {True: [], False: []}
    found: dict[bool, list[Entry]] = {True: [], False: []}
    for entry in entries:
        if entry.image in known and (named := mentions(places, entry)) is not None:
            found[entry.reference].append(entry)
            parts[entry.reference] += measure(entry, named, peaked)
    references = [entry for entry in entries if entry.reference and entry.image in known]
    if references and not found[True]:
        raise SatlibError(
            f"{places.path} has none of these {len(references):,} reference captions ({' '.join(references[0].words)!r} of "
            f"{references[0].image}, for example); are these the annotations of this data set?"
        )
    first = bool(parts[True])
    if not parts[first]:
        raise SatlibError(
            f"no word of these captions names something with boxes in {places.path}; are these the right boxes?"
        )
    report = {
        "true": summary(parts[True]),
        "generated": summary(parts[False]),
        **_sharpness(found[first]),
        "counts": {
            "images": len(known),
            "images without annotations": len(images) - len(known),
            "references": len(found[True]),
            "references not found": len(references) - len(found[True]),
        },
    }
    return report, parts[first]


def _uneven(alphas: Tensor) -> bool:
    return bool((alphas.amax((1, 2)) > (1 + _EVEN) * alphas.amin((1, 2))).any())


def _sharpness(entries: Sequence[Entry]) -> dict[str, float]:
    """The maps' entropy in percent of that of an even map, and their movement from word to word: means over captions."""
    shares, movements = [], []
    for entry in entries:
        maps = _distributions(entry).flatten(1)
        shares.append(100 * entropy(maps).mean().item() / math.log(maps.shape[1]))
        if len(maps) > 1:
            movements.append(movement(maps.unsqueeze(0)).mean().item())
    return {"entropy share": sum(shares) / len(shares), "movement": sum(movements) / max(len(movements), 1)}


def summary(judgements: Sequence[Judgement]) -> dict[str, Any]:
    """The number of phrases and the means of the measures in percent: of all, by kind, and by the area of the boxes.

    Each group also has "intervals", the 95 % interval of each mean, and "gains", the mean difference of `GAINS` with its interval
    (bootstrap over images); a group of a single image has neither. A word that names things of two kinds counts in both. Kinds are
    ordered by their number of phrases. 10 % and 40 % of the area belong to the middle size.
    """
    at = {image: number for number, image in enumerate(dict.fromkeys(each.entry.image for each in judgements))}
    by_kind: dict[str, list[Judgement]] = defaultdict(list)
    by_size: dict[str, list[Judgement]] = {name: [] for name in SIZES}
    for each in judgements:
        for kind in each.mention.kinds:
            by_kind[kind].append(each)
        area = each.values["mass even"]
        by_size[SIZES[(area >= 0.1) + (area > 0.4)]].append(each)
    kinds = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind))
    return {
        "all": _means(judgements, at),
        "by kind": {kind: _means(by_kind[kind], at) for kind in kinds},
        "by size": {name: _means(group, at) for name, group in by_size.items() if group},
    }


def _means(group: Sequence[Judgement], at: Mapping[str, int]) -> dict[str, Any]:
    """The means of a group of words, with intervals; `at` numbers all images."""
    names = list(group[0].values) if group else []
    means: dict[str, Any] = {name: 100 * math.fsum(each.values[name] for each in group) / len(group) for name in names}
    rows = [at[each.entry.image] for each in group]
    if len(set(rows)) > 1:
        sums = np.zeros((len(at), len(names) + 1))
        np.add.at(sums, rows, [[*each.values.values(), 1] for each in group])
        drawn = statistics.resamples(len(at)) @ sums
        drawn = drawn[drawn[:, -1] > 0]  # a rare kind is not in every sample
        of = dict(zip(names, (100 * drawn[:, :-1] / drawn[:, -1:]).T, strict=True))
        gains = [(ours, theirs) for ours, theirs in GAINS if {ours, theirs} <= of.keys()]
        means["intervals"] = {name: list(statistics.interval(values)) for name, values in of.items()}
        means["gains"] = {
            f"{ours} - {theirs}": [means[ours] - means[theirs], *statistics.interval(of[ours] - of[theirs])]
            for ours, theirs in gains
        }
    return {"phrases": len(group), **means}


def render(report: Mapping[str, Any]) -> str:
    """Lay out a report of `judge` as a table for a terminal."""
    half = " " * 6
    heads = (
        f"{'mass':>6} {half} {'even':>5} {'mean':>5} {'best':>5}",
        f"{'peak':>6} {half} {'centre':>6} {'mean':>5} {'best':>5}",
    )
    lines = [f"{'percent':18} {'phrases':>7}  {'  '.join(heads)}"]

    def line(name: str, figures: Mapping[str, Any]) -> str:
        blocks = []
        for names, widths in ((MASS, (6, 5, 5, 5)), (PEAK, (6, 6, 5, 5))):
            cells = [f"{figures[each]:.1f}" if each in figures else "-" for each in names]
            low, high = figures.get("intervals", {}).get(names[0], (math.nan, math.nan))
            margin = f"± {(high - low) / 2:.1f}" if high > low else ""
            first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
            blocks.append(" ".join([first, margin.ljust(len(half)), *others]))
        return f"{name:18} {figures['phrases']:7,d}  {'  '.join(blocks)}"

    there = [captions for captions in ("true", "generated") if report[captions]["all"]["phrases"]]
    for captions in there:
        part = report[captions]
        lines += ["", line(f"{captions} captions", part["all"])]
        for group in ("by kind", "by size"):
            lines += [f" {group}", *(line("  " + name, figures) for name, figures in part[group].items())]
    lines += [
        "",
        "mass: the share of the word's map inside the boxes of what it names; peak: words whose map has its peak in a box, with no",
        "tolerance; ±: half the width of the 95 % interval. even: the same mass of an even map; centre: the centre of the picture;",
        "mean: the mean of the caption's maps, which ignores the word; best: the best single cell of the grid.",
    ]
    for captions in there:
        for name, (gain, low, high) in report[captions]["all"].get("gains", {}).items():
            lines.append(f"{captions} captions: {name}: {gain:+.1f} ({low:+.1f} to {high:+.1f})")
    counts = report["counts"]
    lines.append(
        f"{there[0]} captions: the maps' entropy is {report['entropy share']:.1f} % of that of an even map; their movement from word to "
        f"word is {report['movement']:.2f}."
    )
    if counts["references"]:
        lines.append(
            f"{counts['references']:,} reference captions of {counts['images']:,} photographs; {counts['references not found']:,} more "
            "are worded differently in the annotations, and are left out."
        )
    if missing := counts["images without annotations"]:
        lines.append(f"{missing:,} photographs have no annotations, and are left out.")
    return "\n".join(lines)


def extremes(judgements: Sequence[Judgement], number: int = 6) -> dict[str, list[Judgement]]:
    """Words for a picture: "best", "middle" and "worst" by the mass above that of an even map, at most one of each image."""
    ranked = sorted(judgements, key=lambda each: each.values["mass even"] - each.values["mass"])
    from_middle = sorted(range(len(ranked)), key=lambda rank: abs(rank - len(ranked) // 2))
    orders = {"best": ranked, "middle": [ranked[rank] for rank in from_middle], "worst": ranked[::-1]}
    number = min(number, max(1, len({each.entry.image for each in judgements}) // 3))
    rows: dict[str, list[Judgement]] = {}
    shown: set[str] = set()
    for name, order in orders.items():
        rows[name] = []
        for each in order:
            if len(rows[name]) < number and each.entry.image not in shown:
                rows[name].append(each)
                shown.add(each.entry.image)
    return {name: row for name, row in rows.items() if row}


# --- Files of maps ------------------------------------------------------------------------------------------------------


class _Described(Struct, forbid_unknown_fields=True):
    """A caption in a file of maps; see `Entry`."""

    image: Name
    words: list[str]
    reference: bool = False
    seen: Box = WHOLE


_ADVICE = "docs/maps.md describes the file; write it again"


def read(path: Path) -> list[Entry]:
    """The captions and maps of a file, .npz or .safetensors (docs/maps.md).

    Raises:
        SatlibError: the file is missing, damaged or of another form, or a map has another shape, is negative, not finite or 0.
    """
    text, maps = _npz(path) if path.suffix == ".npz" else _safetensors(path)
    if text is None:
        raise SatlibError(f"{path} has no 'captions'; {_ADVICE}")
    captions = decode(text, list[_Described], f"the entry 'captions' of {path}", "a list of captions", _ADVICE)
    entries = []
    for number, caption in enumerate(captions):
        if (alphas := maps.pop(f"maps.{number}", None)) is None:
            raise SatlibError(f"{path} has no 'maps.{number}', for {caption.image}; {_ADVICE}")
        where = f"{path}: 'maps.{number}', for {caption.image},"
        entries.append(
            Entry(
                caption.image,
                tuple(caption.words),
                _checked(alphas, len(caption.words), where),
                caption.reference,
                caption.seen,
            )
        )
        left, top, right, bottom = caption.seen
        if not (left < right and top < bottom):
            raise SatlibError(
                f"{path}: 'seen' of {caption.image} is empty: {list(caption.seen)}; give left, top, right, bottom"
            )
    if not entries or maps:
        problem = f"an entry {min(maps)!r} that belongs to no caption" if maps else "no captions"
        raise SatlibError(f"{path} has {problem}; {_ADVICE}")
    return entries


def _npz(path: Path) -> tuple[str | None, dict[str, Tensor]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
            text = arrays.pop("captions", None)
            return None if text is None else str(text), {name: torch.from_numpy(each) for name, each in arrays.items()}
    except FileNotFoundError as error:
        raise SatlibError(f"{path} does not exist") from error
    except (
        OSError,
        ValueError,
        TypeError,
        AttributeError,
        EOFError,
        KeyError,
        MemoryError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        # numpy takes anything that is no archive for a pickle, and says how to load it unsafely
        reason = " ".join(str(error).split()) if zipfile.is_zipfile(path) else "it is no zip archive"
        raise SatlibError(f"{path} is not a whole .npz file of numbers ({reason}); {_ADVICE}") from error


def _safetensors(path: Path) -> tuple[str | None, dict[str, Tensor]]:
    try:
        metadata, maps = contents(path)
        return metadata.get("captions"), maps
    except FileNotFoundError as error:
        raise SatlibError(f"{path} does not exist") from error
    except (safetensors.SafetensorError, OSError) as error:
        raise SatlibError(
            f"{path} is neither a whole safetensors file nor .npz ({' '.join(str(error).split())}); {_ADVICE}"
        ) from error


def _checked(alphas: Tensor, words: int, where: str) -> Tensor:
    if alphas.dim() != 3 or len(alphas) not in (words, words + 1) or not len(alphas) or alphas[0].numel() < 2:
        raise SatlibError(
            f"{where} has the shape {tuple(alphas.shape)}; {words} words need ({words}, h, w), or one map more for the end mark, of two "
            "cells or more"
        )
    if alphas.dtype in (torch.bool, torch.complex64, torch.complex128):
        raise SatlibError(f"{where} is of {alphas.dtype}, not of real numbers; {_ADVICE}")
    alphas = alphas if alphas.dtype == torch.float64 else alphas.float()
    for word, alpha in enumerate(alphas):
        problem = (
            "a value that is not finite"
            if not alpha.isfinite().all()
            else "a negative value"
            if (alpha < 0).any()
            else ""
        )
        if problem or not alpha.any():
            raise SatlibError(f"{where} has {problem or 'nothing but zeros'} in the map of word {word + 1}; {_ADVICE}")
    return alphas


def require_suffix(path: Path) -> None:
    """Require the name of a file of maps.

    Raises:
        SatlibError: it ends neither with .npz nor with .safetensors.
    """
    if path.suffix not in (".npz", ".safetensors"):
        raise SatlibError(f"a file of maps ends with .npz or .safetensors, unlike {path}")


def write(path: Path, entries: Sequence[Entry]) -> None:
    """Write a file that `read` reads.

    Raises:
        SatlibError: the name ends neither with .npz nor with .safetensors, or the file cannot be written.
    """
    require_suffix(path)
    # Copies, because no two tensors of a safetensors file may share memory.
    maps = {f"maps.{number}": entry.alphas.contiguous().clone() for number, entry in enumerate(entries)}
    described = [_Described(each.image, list(each.words), each.reference, each.seen) for each in entries]
    text = msgspec.json.encode(described).decode()
    with replacing(path) as partial, open(partial, "wb") as file:
        if path.suffix == ".npz":
            arrays: dict[str, Any] = {name: each.numpy() for name, each in maps.items()}
            np.savez(file, captions=text, **arrays)
        else:
            file.write(save(maps, {"captions": text}))


# --- The maps of a satlib captioner -------------------------------------------------------------------------------------


@torch.inference_mode()
def forced(captioner: Captioner, batch: Tensor, references: Sequence[Sequence[str]]) -> list[list[Caption]]:
    """The maps of true captions, by teacher forcing; words outside the vocabulary are unknown words, as in training.

    Args:
        captioner: hard attention passes on what the recipe's `decoding.look` says.
        batch: B images (B, 3, 224, 224) or their annotation vectors (B, L, D).
        references: the raw captions of each image.

    Returns:
        A caption for each reference, with its own words, the map of the end mark last, and log p(y|a).
    """
    captioner.eval()
    a = captioner.annotations(batch.to(captioner.device))
    vocabulary = captioner.vocabulary
    rows = [(image, reference) for image, its in enumerate(references) for reference in its]
    ids = [[*vocabulary.encode(reference), END] for _, reference in rows]
    captions: list[list[Caption]] = [[] for _ in references]
    if not rows:
        return captions
    padded = pad_sequence([torch.tensor(each) for each in ids], True, END).to(captioner.device)
    output = captioner.decoder(a[torch.tensor([image for image, _ in rows], device=a.device)], padded)
    scores = output.logits.log_softmax(2).gather(2, padded.unsqueeze(2)).squeeze(2).cpu()
    alphas, betas = output.alphas.float().cpu(), output.betas.float().cpu()
    for row, (image, reference) in enumerate(rows):
        length = len(ids[row])  # what follows is padding, which no earlier word depends on
        captions[image].append(
            Caption(
                tokenise(reference),
                float(scores[row, :length].sum()),
                alphas[row, :length].view(length, *captioner.encoder.grid),
                betas[row, :length],
            )
        )
    return captions


def entries(
    captioner: Captioner,
    data: CaptionSet,
    reader: Reader,
    examples: Sequence[Example],
    generated: Mapping[str, Caption],
    progress: bool = True,
) -> list[Entry]:
    """The true and the generated captions of photographs; of two equal references one.

    Args:
        captioner: a trained captioner.
        data: the caption set.
        reader: reads the encoder's inputs or annotation vectors by image id.
        examples: the photographs.
        generated: image id to generated caption.
        progress: show a progress bar.
    """
    view = captioner.view
    # a file is opened for the view "crop" alone, which depends on its size
    seen = {each.image_id: WHOLE if view == "whole" else seen_part(data.photo(each).size, view) for each in examples}
    found = []
    batches = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    inputs = read_ahead(lambda batch: reader.read([example.image_id for example in batch]), batches)
    with progress_bar(total=len(examples), unit="img", desc="true captions", show=progress) as bar:
        for batch, images in zip(batches, inputs, strict=True):
            captions = forced(captioner, images, [list(dict.fromkeys(example.references)) for example in batch])
            found += [
                Entry(example.image_id, tuple(caption.words), caption.alphas, True, seen[example.image_id])
                for example, of_image in zip(batch, captions, strict=True)
                for caption in of_image
            ]
            bar.update(len(batch))
    return found + [
        Entry(image_id, tuple(caption.words), caption.alphas.cpu(), False, seen[image_id])
        for image_id, caption in generated.items()
    ]
