"""Shards: a caption set as tar files in the WebDataset format, for collections too large for one disk.

A folder of shards contains `train-000000.tar`, `train-000001.tar`, ..., the same for dev and test, and the index
`shards.json`. The index is written last, so a folder with an index is complete. In a shard each image has two members with
the same name: `NAME.jpg` (the unchanged file; a scene is drawn as a PNG) and `NAME.json`, {"key": ..., "captions": [...]},
where "key" is the image id. The index contains what training needs in advance: the number of captions of each length, and
the count of each word.

This module writes them; `satlib.data.sharded` reads them.
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

from satlib.data.datasets import SPLITS, CaptionSet, Example
from satlib.data.text import tokenise
from satlib.errors import SatlibError
from satlib.files.atomic import replacing, write_json
from satlib.files.progress import progress_bar

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
    """Write a caption set as shards and return their index.

    Args:
        data: the set.
        folder: the folder of the shards.
        splits: the splits to write; splits without images are skipped.
        images_per_shard: the largest number of images in a shard.
        train_images: write only this many training images, from the first; 0 means all.
        progress: show a progress bar.
        language: the recipe's data.language, which determines how words are counted.

    Raises:
        SatlibError: the folder already has shards, the splits have no images, an image cannot be read, or the disk is full.
    """
    if (folder / INDEX).exists():
        raise SatlibError(f"{folder / INDEX} already exists; choose another folder")
    index: dict[str, Any] = {"format": FORMAT, "data": data.name, "splits": {}, "lengths": {}, "words": {}}
    index["language"] = language
    for split in splits:
        examples = data.split(split)
        if split == "train":
            examples = examples[: train_images or None]
            captions = [tokenise(caption, language) for example in examples for caption in example.references]
            index["lengths"] = {str(n): count for n, count in sorted(Counter(map(len, captions)).items())}
            index["words"] = dict(Counter(word for words in captions for word in words).most_common())
            # Shuffle once here: a stream shuffles only within its buffer, and a folder may be sorted by content.
            examples = [examples[i] for i in np.random.default_rng(0).permutation(len(examples))]
        chunks = [examples[start : start + images_per_shard] for start in range(0, len(examples), images_per_shard)]
        names: set[str] = set()
        with progress_bar(total=len(examples), unit="img", desc=f"{data.name} {split}", show=progress) as bar:
            for number, chunk in enumerate(chunks):
                shard = _write_shard(data, chunk, folder / f"{split}-{number:06d}.tar", names, bar)
                index["splits"].setdefault(split, []).append(shard)
    if not index["splits"]:
        raise SatlibError(f"{data.name} has no images in {' or '.join(splits)}; choose another split")
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
                    # Members have no time and no owner, so the same set gives the same bytes.
                    member = tarfile.TarInfo(f"{name}.{suffix}")
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
    """An image's name in its shard, its file extension, and its content."""
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
    # No dot in the name: WebDataset treats everything after the first dot as the extension.
    return re.sub(r"[^\w-]+", "_", stem), kind, content
