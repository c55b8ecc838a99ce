"""Shards: a caption set as tar files in WebDataset's form, for collections that no single disk holds.

A folder of shards has `train-000000.tar`, `train-000001.tar`, ..., the same of dev and test, and `shards.json`, the index,
which is written last: a folder with an index is whole. In a shard each image is two members of one name, `NAME.jpg` (the
file as it was; a scene is drawn to a PNG) and `NAME.json`, {"key": ..., "captions": [...]}. The index says what training has
to know before it reads: how many captions there are of each length, and how often each word occurs.

This module writes them; `satlib.datasets.sharded` reads them.
"""

import io
import json
import os
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pooch
from tqdm import tqdm

from satlib.datasets import SPLITS, CaptionSet, Example
from satlib.errors import SatlibError
from satlib.files import replacing, write_json
from satlib.text import tokenise

INDEX = "shards.json"
FORMAT = "satlib shards 1"


def write(
    data: CaptionSet,
    folder: Path,
    splits: Sequence[str] = SPLITS,
    images_per_shard: int = 1000,
    train_images: int = 0,
    progress: bool = True,
    language: str = "",
) -> dict[str, Any]:
    """Write a caption set as shards; give their index.

    Args:
        data: the set.
        folder: where they go.
        splits: which of them; one without images is passed over.
        images_per_shard: at most.
        train_images: how many of training, from the first; 0: all.
        progress: show a bar.
        language: what the recipe's data.language will be: it decides what is counted as a word.

    Raises:
        SatlibError: there are shards already, no image is in those splits, an image cannot be read, or the disk is full.
    """
    if (folder / INDEX).exists():
        raise SatlibError(f"{folder / INDEX} is there already; name another folder")
    index: dict[str, Any] = {"format": FORMAT, "data": data.name, "splits": {}, "lengths": {}, "words": {}}
    index["language"] = language
    for split in splits:
        examples = data.split(split)
        if split == "train":
            examples = examples[: train_images or None]
            captions = [tokenise(caption, language) for example in examples for caption in example.references]
            index["lengths"] = {str(n): count for n, count in sorted(Counter(map(len, captions)).items())}
            index["words"] = dict(Counter(word for words in captions for word in words).most_common())
            # Mixed once here: a stream mixes only what is near, and a folder may be sorted by what it shows.
            examples = [examples[i] for i in np.random.default_rng(0).permutation(len(examples))]
        chunks = [examples[start : start + images_per_shard] for start in range(0, len(examples), images_per_shard)]
        names: set[str] = set()
        with tqdm(total=len(examples), unit="img", desc=f"{data.name} {split}", disable=not progress) as bar:
            for number, chunk in enumerate(chunks):
                shard = _write_shard(data, chunk, folder / f"{split}-{number:06d}.tar", names, bar)
                index["splits"].setdefault(split, []).append(shard)
    if not index["splits"]:
        raise SatlibError(f"{data.name} has no image in {' or '.join(splits)}; choose another split")
    write_json(folder / INDEX, index)
    return index


def _write_shard(
    data: CaptionSet, examples: Sequence[Example], path: Path, names: set[str], bar: tqdm
) -> dict[str, Any]:
    with replacing(path) as partial:
        with tarfile.open(partial, "w") as tar:
            for example in examples:
                name, kind, content = _member(data, example)
                while name in names:
                    name += "_"
                names.add(name)
                about = {"key": example.image_id, "captions": example.references}
                for suffix, part in ((kind, content), ("json", json.dumps(about, ensure_ascii=False).encode())):
                    member = tarfile.TarInfo(f"{name}.{suffix}")  # of no time and nobody: the same set, the same bytes
                    member.size, member.mode = len(part), 0o644
                    tar.addfile(member, io.BytesIO(part))
                bar.update()
        digest, size = pooch.file_hash(str(partial)), partial.stat().st_size
    captions = sum(len(example.references) for example in examples)
    return {
        "file": path.name,
        "images": len(examples),
        "captions": captions,
        "bytes": size,
        "sha256": digest,
    }


def _member(data: CaptionSet, example: Example) -> tuple[str, str, bytes]:
    """An image's name in its shard, the kind of its file, and the file."""
    if example.path is None:
        drawn = io.BytesIO()
        data.photo(example).save(drawn, format="PNG")
        stem, kind, content = example.image_id, "png", drawn.getvalue()
    else:
        try:
            content = example.path.read_bytes()
        except OSError as error:
            raise SatlibError(
                f"cannot read {example.path}: {error.strerror}; see: satlib data check {data.name}"
            ) from error
        stem, kind = os.path.splitext(example.image_id)[0], example.path.suffix.lstrip(".").lower() or "image"
    return re.sub(r"[^\w-]+", "_", stem), kind, content  # WebDataset takes all after the first dot for the kind
