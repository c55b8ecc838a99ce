"""Flickr8k as its authors distribute it (Hodosh et al., 2013)."""

import re
from collections import defaultdict
from pathlib import Path

from satlib.data.caption_set import MAX_REFERENCES, SPLITS, CaptionSet, Example, assemble, clean
from satlib.errors import SatlibError
from satlib.files.reading import read_lines

_LINE = re.compile(r"(?P<image>[^#\t]+)#\d+\t(?P<caption>.*)")


def load(folder: Path, require_images: bool = True) -> CaptionSet:
    """Flickr8k in its official layout and splits: 6,000 / 1,000 / 1,000 images with 5 captions each.

    The caption file also lists 91 photographs that are in no split, and a file that does not exist
    ("2258277193_586949ec62.jpg.1", five lines). These are ignored, which is common practice.
    """
    photos, texts = folder / "Flicker8k_Dataset", folder / "Flickr8k_text"
    token, lists = texts / "Flickr8k.token.txt", {split: texts / f"Flickr_8k.{split}Images.txt" for split in SPLITS}
    captions: dict[str, list[str]] = defaultdict(list)
    for number, line in read_lines(token):
        match = _LINE.fullmatch(line)
        if match is None:
            raise SatlibError(f"{token}, line {number}: expected IMAGE.jpg#NUMBER<tab>CAPTION, found {line[:60]!r}")
        captions[match["image"]] += clean([match["caption"]])
    listed = [(line.strip(), split) for split, file in lists.items() for _, line in read_lines(file)]
    examples = (Example(name, split, tuple(captions[name][:MAX_REFERENCES]), photos / name) for name, split in listed)
    return assemble("flickr8k", examples, photos, require_images)
