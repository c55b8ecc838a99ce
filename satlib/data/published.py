"""Data sets as they are published.

Flickr8k by its authors (Hodosh et al., 2013), and the files of Karpathy and Fei-Fei (2015):
dataset_flickr30k.json, dataset_coco.json and dataset_flickr8k.json hold captions and the splits of
most published results. COCO's release of 2017 has the same photographs as that of 2014, divided
differently and named by their numbers alone. Either will do. COCO's own files of captions, and
others of their form, are read as well.
"""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import Struct

from satlib.data.caption_set import (
    SPLIT_NAMES,
    SPLITS,
    CaptionSet,
    Example,
    assemble,
    clean,
    split_name,
)
from satlib.data.folder import Row, examples_of, located
from satlib.errors import SatlibError
from satlib.files import Name, read_json, read_lines

# Captions of an image, at most, as is common practice: some of COCO's have seven.
MAX_REFERENCES = 5
ADVICE = "copy it again, or write image,caption into captions.csv"


# --- Flickr8k ---------------------------------------------------------------------------------


def load_flickr8k(folder: Path) -> CaptionSet:
    """Flickr8k in its official layout and splits: 6,000 / 1,000 / 1,000 images, 5 captions each.

    Captions of 91 photographs in no split, and of one without a file, are ignored, as is common.
    """
    # The folder's name really is spelt like this.
    photos = folder / "Flicker8k_Dataset"
    texts = folder / "Flickr8k_text"
    captions = _flickr8k_captions(texts / "Flickr8k.token.txt")

    examples = []
    for split in SPLITS:
        for _, line in read_lines(texts / f"Flickr_8k.{split}Images.txt"):
            image = line.strip()
            references = tuple(captions[image][:MAX_REFERENCES])
            examples.append(Example(image, split, references, photos / image))
    return assemble("flickr8k", examples, photos)


def _flickr8k_captions(table: Path) -> defaultdict[str, list[str]]:
    """The captions of each image, from lines IMAGE.jpg#NUMBER<tab>CAPTION."""
    captions: defaultdict[str, list[str]] = defaultdict(list)
    for number, line in read_lines(table):
        name, tab, caption = line.partition("\t")
        if not tab:
            raise SatlibError(
                f"{table}, line {number}: expected IMAGE.jpg#NUMBER<tab>CAPTION, "
                f"found {line[:60]!r}"
            )
        image = name.partition("#")[0]
        captions[image] += clean([caption])
    return captions


# --- Karpathy's files -------------------------------------------------------------------------


class _Sentence(Struct):
    raw: str = ""
    tokens: list[str] = []

    @property
    def text(self) -> str:
        """The sentence as it was written, or its words."""
        return self.raw or " ".join(self.tokens)


class _Image(Struct):
    filename: Name
    split: str
    sentences: list[_Sentence]
    filepath: str = ""  # of COCO, "train2014" or "val2014"

    @property
    def name(self) -> str:
        """The file's path in the folder of the photographs."""
        return f"{self.filepath}/{self.filename}" if self.filepath else self.filename


class _File(Struct):
    images: list[_Image]


def load_karpathy(path: Path) -> CaptionSet:
    """The caption set of one of Karpathy's JSON files, or of one like them, with its images beside.

    RSICD, UCM-Captions and Sydney-Captions (Lu et al., 2017) have the same form. Image ids are file
    names. COCO's begin with their folder: "train2014/COCO_train2014_000000000009.jpg".
    """
    listed = read_json(path, _File, "one of Karpathy's dataset files", ADVICE).images
    paths = located([image.name for image in listed], path.parent)

    examples = []
    for image in listed:
        split = split_name(image.split, f"{path}, {image.name}")
        captions = tuple(clean(sentence.text for sentence in image.sentences))
        examples.append(Example(image.name, split, captions[:MAX_REFERENCES], paths[image.name]))
    name = path.stem.removeprefix("dataset_")
    if name == "dataset":  # as RSICD's authors call all of theirs
        name = path.resolve().parent.name
    return assemble(name, examples, path.parent)


# --- COCO's own files -------------------------------------------------------------------------


class _Listed(Struct):
    id: int | str
    file_name: Name


class _Annotation(Struct):
    image_id: int | str
    caption: str | None = None  # boxes and outlines of objects have none


class _Coco(Struct):
    images: list[_Listed]
    annotations: list[_Annotation]


def load_coco(files: Sequence[Path]) -> CaptionSet:
    """The caption set of COCO's own files (Chen et al., 2015), captions_train2017.json and others.

    They lie beside the photographs' folders, or in a folder `annotations` there. The name of a file
    says its split; `val` is dev. An image id is the path below the common folder:
    "val2017/000000000139.jpg".

    Raises:
        SatlibError: a file has no captions, or they cannot be told to belong to one image each.
    """
    home = files[0].parent
    if home.resolve().name == "annotations":
        home = home.resolve().parent

    rows: list[Row] = []
    paths: dict[str, Path] = {}
    numbers: dict[str, str] = {}
    for file in files:
        part = file.stem.removeprefix("captions_")  # "train2017"
        # In "val_mine", too, val is the split.
        words = re.findall("[a-z]+", part)
        split = next((word for word in words if word in SPLIT_NAMES), None)

        ids, captions = _read_coco(file)
        for name, path in located(list(captions), home, part).items():
            image_id = os.path.relpath(path, home).replace(os.sep, "/")
            paths[image_id] = path
            numbers[image_id] = ids[name]
            # Photographs without captions are left out, as where a table does not name them.
            if captions[name]:
                rows.append(Row(f"{file}, {name}", image_id, captions[name], split))
    examples = [
        replace(example, number=numbers[example.image_id]) for example in examples_of(rows, paths)
    ]
    return assemble(home.resolve().name, examples, home)


def _read_coco(file: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The id and the captions of each photograph that a file of COCO's form lists, by its name."""
    content = read_json(file, _Coco, "one of COCO's files of captions", ADVICE)

    names: dict[int | str, str] = {}
    captions: dict[str, list[str]] = {}
    for image in content.images:
        # Two jobs of annotation that were joined may have counted from 1 each.
        if image.id in names or image.file_name in captions:
            raise SatlibError(
                f"{file}: the id {image.id} or the name {image.file_name} is there twice; give each "
                "image one id, of its own"
            )
        names[image.id] = image.file_name
        captions[image.file_name] = []

    strays = [each.image_id for each in content.annotations if each.image_id not in names]
    if strays:
        raise SatlibError(
            f"{file} has captions of images that it does not list ({len(strays):,}, one of the id "
            f"{strays[0]!r}); list these images, or delete the captions"
        )
    for annotation in content.annotations:
        if annotation.caption is None:
            raise SatlibError(
                f"{file} has annotations without a caption, such as boxes; COCO's captions are in "
                "captions_train2017.json and captions_val2017.json"
            )
        captions[names[annotation.image_id]].append(annotation.caption)
    ids = {name: str(number) for number, name in names.items()}
    return ids, captions
