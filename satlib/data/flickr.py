"""Flickr8k and Flickr30k as their authors distribute them (Hodosh et al., 2013; Young et al., 2014)."""

import re
from pathlib import Path

from satlib.data import karpathy
from satlib.data.caption_set import SPLITS, CaptionSet, assemble, clean, require_files
from satlib.errors import SatlibError
from satlib.files.reading import read_lines

LAYOUT_8K = "flickr8k/Flicker8k_Dataset/*.jpg, flickr8k/Flickr8k_text/Flickr8k.token.txt and Flickr_8k.{train,dev,test}Images.txt beside it"
LAYOUT_30K = "flickr30k/flickr30k-images/*.jpg, flickr30k/dataset_flickr30k.json and perhaps results_20130124.token"
_LINE = re.compile(r"(?P<image>[^#\t]+)#\d+\t(?P<caption>.*)")


def load_8k(folder: Path, require_images: bool = True) -> CaptionSet:
    """Flickr8k in its official layout and splits: 6,000 / 1,000 / 1,000 images with 5 captions each.

    The caption file also lists 91 photographs that are in no split, and a file that does not exist
    ("2258277193_586949ec62.jpg.1", five lines). These are ignored, which is common practice.
    """
    texts, photos = folder / "Flickr8k_text", folder / "Flicker8k_Dataset"
    lists = {split: texts / f"Flickr_8k.{split}Images.txt" for split in SPLITS}
    needed = [texts / "Flickr8k.token.txt", *lists.values()]
    require_files([*needed, photos] if require_images else needed, f"{LAYOUT_8K}; or run: satlib data fetch flickr8k")
    listed = [(line.strip(), split) for split, path in lists.items() for _, line in read_lines(path)]
    splits = dict(listed)
    if len(splits) < len(listed):
        raise SatlibError(f"{texts}: an image is listed twice in Flickr_8k.*Images.txt; download the files again")
    captions = _captions(texts / "Flickr8k.token.txt")
    return assemble("flickr8k", captions, splits, photos.joinpath, require_images, photos, str(folder))


def load_30k(folder: Path, require_images: bool = True) -> CaptionSet:
    """Flickr30k in Karpathy's splits (1,014 dev and 1,000 test images), as it was published without splits.

    The captions are those of results_20130124.token, or of Karpathy's file if that is missing.
    """
    json, token = folder / "dataset_flickr30k.json", folder / "results_20130124.token"
    photos = folder / "flickr30k_images"  # Kaggle's name
    photos = photos if photos.is_dir() else folder / "flickr30k-images"
    require_files(
        [json, photos] if require_images else [json],
        f"{LAYOUT_30K} (the splits are in Karpathy's caption_datasets.zip; request the photographs through the form on Flickr30k's web page)",
    )
    splits, captions = karpathy.read(json)
    captions = _captions(token) if token.is_file() else captions
    return assemble("flickr30k", captions, splits, photos.joinpath, require_images, photos, str(folder))


def _captions(path: Path) -> dict[str, list[str]]:
    """Image -> captions, from a file with one caption per line: IMAGE.jpg#NUMBER<tab>CAPTION."""
    captions: dict[str, list[str]] = {}
    for number, line in read_lines(path):
        match = _LINE.fullmatch(line)
        if match is None:
            raise SatlibError(f"{path}, line {number}: expected IMAGE.jpg#NUMBER<tab>CAPTION, found {line[:60]!r}")
        captions.setdefault(match["image"], []).extend(clean([match["caption"]]))
    return captions
