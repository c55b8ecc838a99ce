"""Flickr8k and Flickr30k as their authors distribute them (Hodosh et al., 2013; Young et al., 2014)."""

import re
from pathlib import Path

from satlib.data import karpathy
from satlib.data.caption_set import CaptionSet, assemble, clean, require_files
from satlib.errors import SatlibError
from satlib.files.reading import read_lines

LAYOUT_8K = "flickr8k/Flicker8k_Dataset/*.jpg, flickr8k/Flickr8k_text/Flickr8k.token.txt and Flickr_8k.{train,dev,test}Images.txt beside it"
LAYOUT_30K = "flickr30k/flickr30k-images/*.jpg, flickr30k/results_20130124.token or results.csv, flickr30k/dataset_flickr30k.json"
TOKEN = re.compile(r"(?P<image>[^#\t]+)#\d+\t(?P<caption>.*)")
# Kaggle's file uses "| " as its separator; one row lacks the second bar, hence the "?".
KAGGLE = re.compile(r"(?P<image>[^|]+\.jpg)\|\s*\d+\s*\|?\s*(?P<caption>.*)")


def load_8k(folder: Path, require_images: bool = True) -> CaptionSet:
    """Flickr8k in its official layout and splits: 6,000 / 1,000 / 1,000 images with 5 captions each.

    The caption file also lists 91 photographs that are in no split, and a file that does not exist
    ("2258277193_586949ec62.jpg.1", five lines). These are ignored, which is common practice.

    Raises:
        SatlibError: see `satlib.data.datasets.load`.
    """
    texts, photos = folder / "Flickr8k_text", folder / "Flicker8k_Dataset"
    lists = {split: texts / f"Flickr_8k.{split}Images.txt" for split in ("train", "dev", "test")}
    needed = [texts / "Flickr8k.token.txt", *lists.values()]
    require_files([*needed, photos] if require_images else needed, f"{LAYOUT_8K}; or run: satlib data fetch flickr8k")
    splits: dict[str, str] = {}
    for split, path in lists.items():
        for number, line in read_lines(path):
            image_id = line.strip()
            if image_id in splits:
                raise SatlibError(
                    f"{path}, line {number}: {image_id} is listed twice (first in {splits[image_id]}); delete one of the lines"
                )
            splits[image_id] = split
    captions = read_captions(texts / "Flickr8k.token.txt", TOKEN, "IMAGE.jpg#NUMBER<tab>CAPTION")
    return assemble(
        "flickr8k", captions, splits, lambda image_id: photos / image_id, require_images, photos, str(folder)
    )


def load_30k(folder: Path, require_images: bool = True) -> CaptionSet:
    """Flickr30k: captions from results_20130124.token or Kaggle's results.csv, splits from Karpathy's dataset_flickr30k.json.

    Flickr30k was published without splits; most papers use Karpathy's, with 1,014 dev and 1,000 test images. His file also
    contains the captions, so it is enough if the caption file is missing.

    Raises:
        SatlibError: see `satlib.data.datasets.load`.
    """
    json = folder / "dataset_flickr30k.json"
    photos = next(
        (path for path in (folder / "flickr30k-images", folder / "flickr30k_images") if path.is_dir()),
        folder / "flickr30k-images",
    )
    require_files(
        [json, photos] if require_images else [json],
        f"{LAYOUT_30K} (the splits are in Karpathy's caption_datasets.zip; request the photographs through the form on Flickr30k's web page)",
    )
    token, csv = folder / "results_20130124.token", folder / "results.csv"
    splits, captions = karpathy.read(json)
    if token.is_file():
        captions = read_captions(token, TOKEN, "IMAGE.jpg#NUMBER<tab>CAPTION")
    elif csv.is_file():
        captions = read_captions(csv, KAGGLE, "IMAGE.jpg| NUMBER| CAPTION", header=True)
    return assemble(
        "flickr30k", captions, splits, lambda image_id: photos / image_id, require_images, photos, str(folder)
    )


def read_captions(path: Path, pattern: re.Pattern[str], form: str, header: bool = False) -> dict[str, list[str]]:
    """Image -> captions, from a file with one caption per line.

    Raises:
        SatlibError: a line does not have the expected form, or its caption is empty.
    """
    captions: dict[str, list[str]] = {}
    for number, line in read_lines(path)[header:]:
        where = f"{path}, line {number}"
        match = pattern.fullmatch(line)
        if match is None:
            raise SatlibError(
                f"{where}: expected {form}, found {line[:60]!r}; correct the line or download the file again"
            )
        captions.setdefault(match["image"], []).append(clean(match["caption"], where))
    return captions
