"""`satlib data check NAME`: a caption set in numbers, and its images that cannot be trusted.

Those are missing, damaged, nearly black, or in two splits.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tabulate import tabulate
from torch import Tensor
from torch.nn import functional

from satlib.data import features
from satlib.data.batches import read_batches
from satlib.data.caption_set import SPLITS, CaptionSet, Example
from satlib.data.datasets import data_root, load
from satlib.data.features import FeatureStore
from satlib.data.images import files_in
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files import progress_bar, read_ahead, say
from satlib.recipe import DataConfig, DecodingConfig

MAX_LENGTH = DataConfig().max_length  # words; longer captions are not trained on
CAPTIONS = DataConfig().captions  # of a training image; further ones are not trained on
LONGEST_SAID = DecodingConfig().max_length  # words; generated captions end there
BLACK = 32  # of 255; an image whose values all lie below shows next to nothing

# The cosine of two images' mean annotation vectors, above which they count as near copies. By
# EfficientNet-Lite0, a photograph and itself cut by a few pixels have .88 to .96, two of 2,500
# photographs of Flickr8k at most .89.
NEAR = 0.9


class _Look(NamedTuple):
    """What opening an image showed."""

    problem: str  # empty if there is none
    pixels: str  # the hash of its pixels; empty if it cannot be read


def check(name: str, root: Path | None = None) -> bool:
    """Print what a caption set has, and whether satlib can train on it.

    It can if each image is readable and in one split, both train and dev have some, and most
    captions are short enough.
    """
    data = load(name, root, require_images=False)
    looks = _looks(data)
    problems = [look.problem for look in looks if look.problem] + _in_two_splits(data, looks)
    readable_images = sum(bool(look.pixels) for look in looks)

    by_split = {split: data.split(split) for split in SPLITS}
    vocabulary = data.vocabulary(10_000, 1) if by_split["train"] else ()
    rows = [
        _statistics(examples, split, vocabulary) for split, examples in by_split.items() if examples
    ]
    print(f"{data.name}: {data.home or 'images without files of their own'}\n")
    print(tabulate(rows, headers="keys"))
    print(f"\nvocabulary of the training captions: K = {len(vocabulary):,}")
    print(
        f"images: {readable_images:,} read, {len(data) - readable_images:,} missing or unreadable; "
        f"{_uncaptioned(data):,} more without captions"
    )

    for problem in problems:
        print(f"  {problem}")
    lacking = [split for split in ("train", "dev") if not by_split[split]]
    if lacking:
        print(
            f"no images in {' and '.join(lacking)}: satlib train needs some in both train and dev"
        )
    else:
        _print_near_copies(data, data_root() if root is None else root)

    lengths = [len(tokenise(caption)) for e in data.examples for caption in e.references]
    too_long = sum(length > MAX_LENGTH for length in lengths)
    if too_long:
        print(
            f"{too_long:,} of {len(lengths):,} captions have more than {MAX_LENGTH} words, "
            f"data.max_length, and are not used: "
            f"set it to {max(lengths)}, and raise decoding.max_length, too: generated captions end "
            f"after {LONGEST_SAID} words"
        )

    surplus = sum(len(example.references[CAPTIONS:]) for example in by_split["train"])
    if surplus:
        print(
            f"{surplus:,} training captions are beyond the first {CAPTIONS} of their images, "
            "data.captions, and are not used: set it higher"
        )
    return not problems and not lacking and 2 * too_long <= len(lengths)


def readable(data: CaptionSet) -> CaptionSet:
    """The set without the images that are missing or damaged; says which they are."""
    kept = []
    for example, look in zip(data.examples, _looks(data), strict=True):
        if look.pixels:
            kept.append(example)
        else:
            # A mistake in the data, so that it is printed with --quiet, too.
            print(f"left out: {look.problem}", file=sys.stderr)
    say(f"{data.name}: {len(data) - len(kept):,} of {len(data):,} images left out")
    return replace(data, examples=tuple(kept))


def _looks(data: CaptionSet) -> list[_Look]:
    """What opening each image shows, in the order of the examples."""

    def look(example: Example) -> _Look:
        try:
            photo = data.photo(example)
        except SatlibError as error:
            return _Look(str(error), "")

        problem = ""
        brightest = int(np.asarray(photo).max())
        if brightest < BLACK:
            problem = f"{example.image_id} is nearly black: its values end at {brightest} of 255"
        return _Look(problem, sha256(photo.tobytes()).hexdigest())

    # Decoding is what takes the time, and Pillow lets other threads run meanwhile.
    threads = min(8, os.cpu_count() or 1)
    looks = read_ahead(look, data.examples, threads)
    return list(progress_bar(looks, total=len(data), unit="img", desc=data.name))


def _in_two_splits(data: CaptionSet, looks: Sequence[_Look]) -> list[str]:
    """A message for each photograph that is also, under the same or another name, in another split.

    Such a photograph makes a score on dev or test look better than it is.
    """
    messages = []
    first: dict[str, Example] = {}  # the hash of the pixels -> the first image with them
    for example, look in zip(data.examples, looks, strict=True):
        # Two images that cannot be read are not the same photograph.
        other = first.setdefault(look.pixels or example.image_id, example)
        # Images without a file are drawn, or named by the hash of their content: never copies.
        if other.split != example.split and example.path:
            messages.append(
                f"{other.image_id} ({other.split}), {example.image_id} ({example.split}): "
                "the same photograph"
            )
    return messages


def _print_near_copies(data: CaptionSet, root: Path) -> None:
    """For each feature store of the set, how much of dev is nearly in train, as frames of a video are.

    Such images make dev scores look better, too.
    """
    pattern = features.folder(root, data, "*")
    for folder in sorted(pattern.parent.glob(pattern.name)):
        try:
            store = FeatureStore(folder)
        except SatlibError as error:  # it is damaged, or of an earlier version
            print(f"  {error}")
            continue
        # "own-old-lite0-whole" is a store of the set own-old, not of own.
        if folder != features.folder(root, data, store.manifest.encoder):
            continue
        train = _directions(store, data.split("train"))
        dev = _directions(store, data.split("dev"))
        if len(train) and len(dev):
            nearest = torch.cat([(some @ train.T).amax(1) for some in dev.split(100)])
            near = int((nearest > NEAR).sum())
            print(
                f"by {folder.name}: {near:,} of {len(dev):,} dev images have a near copy in train"
                f"{'; put frames of one video into one split' if near else ''}"
            )


def _directions(store: FeatureStore, examples: Sequence[Example]) -> Tensor:
    """The means of images' annotation vectors, divided by their length, of those in a store: (N, D)."""
    known = [example for example in examples if example.image_id in store.manifest.images]
    means = [a.mean(1) for _, a in read_batches(store, known, 64, "near copies")]
    return functional.normalize(torch.cat(means)) if means else torch.empty(0)


def _uncaptioned(data: CaptionSet) -> int:
    """How many image files lie in the folders of the set's images without belonging to it."""
    paths = {example.path for example in data.examples if example.path}
    found: set[Path] = set()
    for folder in {path.parent for path in paths}:
        found.update(files_in(folder))
    return len(found - paths)


def _statistics(
    examples: Sequence[Example], split: str, vocabulary: Vocabulary | tuple[()]
) -> dict[str, Any]:
    """A row of the table."""
    references = [len(example.references) for example in examples]
    captions = [tokenise(caption) for example in examples for caption in example.references]
    lengths = [len(words) for words in captions]
    # Of words, not of distinct words: how much of what people wrote can the model say?
    known = [word in vocabulary for word in chain.from_iterable(captions)]
    return {
        "split": split,
        "images": len(examples),
        "captions": len(captions),
        "per image": f"{min(references)}-{max(references)}",
        f"over {MAX_LENGTH} words": sum(length > MAX_LENGTH for length in lengths),
        "words (mean)": f"{min(lengths)}-{max(lengths)} ({sum(lengths) / len(lengths):.1f})",
        "known words": f"{sum(known) / len(known):.2%}",
    }
