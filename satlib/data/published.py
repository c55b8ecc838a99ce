"""Data sets as they are published: Flickr8k by its authors (Hodosh et al., 2013), and the files of Karpathy and Fei-Fei (2015).

Karpathy's dataset_flickr30k.json, dataset_coco.json and dataset_flickr8k.json hold captions and the splits of most published
results. COCO's release of 2017 has the same photographs, divided differently and named by their numbers alone. Either will do.
"""

from collections import defaultdict
from pathlib import Path

from msgspec import Struct

from satlib.data.caption_set import SPLITS, CaptionSet, Example, assemble, clean, split_name
from satlib.errors import SatlibError
from satlib.files import Name, read_json, read_lines

MAX_REFERENCES = 5  # of an image, as is common practice; some of COCO's have seven


def load_flickr8k(folder: Path, require_images: bool = True) -> CaptionSet:
    """Flickr8k in its official layout and splits: 6,000 / 1,000 / 1,000 images with 5 captions each.

    Captions of 91 photographs in no split, and of one without a file, are ignored, as is common.
    """
    photos, texts = folder / "Flicker8k_Dataset", folder / "Flickr8k_text"
    token, lists = (
        texts / "Flickr8k.token.txt",
        {split: texts / f"Flickr_8k.{split}Images.txt" for split in SPLITS},
    )
    captions: dict[str, list[str]] = defaultdict(list)
    for number, line in read_lines(token):
        image, tab, caption = line.partition("\t")
        if not tab:
            raise SatlibError(
                f"{token}, line {number}: expected IMAGE.jpg#NUMBER<tab>CAPTION, found {line[:60]!r}"
            )
        captions[image.partition("#")[0]] += clean([caption])
    listed = [
        (line.strip(), split) for split, file in lists.items() for _, line in read_lines(file)
    ]
    examples = (
        Example(name, split, tuple(captions[name][:MAX_REFERENCES]), photos / name)
        for name, split in listed
    )
    return assemble("flickr8k", examples, photos, require_images)


# Folders of the photographs, relative to the JSON file's.
FOLDERS = ("", "images", "Flicker8k_Dataset", "flickr30k-images", "flickr30k_images")


class _Sentence(Struct):
    raw: str


class _Image(Struct):
    filename: Name
    split: str
    sentences: list[_Sentence]
    filepath: str = ""  # of COCO, "train2014" or "val2014"

    @property
    def name(self) -> str:
        return f"{self.filepath}/{self.filename}" if self.filepath else self.filename


class _File(Struct):
    images: list[_Image]


def load_karpathy(path: Path, require_images: bool = True) -> CaptionSet:
    """The caption set of one of Karpathy's JSON files, with its images beside it.

    Image ids are file names; COCO's begin with their folder: "train2014/COCO_train2014_000000000009.jpg".
    """
    listed = read_json(path, _File, "one of Karpathy's dataset files", "download it again").images
    first = listed[0].name if listed else ""
    photos = next(
        (path.parent / folder for folder in FOLDERS if (path.parent / folder / first).is_file()),
        path.parent,
    )
    renamed = (
        {}
        if (photos / first).is_file()
        else {file.name: file for file in photos.glob("*2017/*.jpg")}
    )
    examples = []
    for image in listed:
        captions = clean(sentence.raw for sentence in image.sentences)[:MAX_REFERENCES]
        file = renamed.get(image.filename.rpartition("_")[2], photos / image.name)
        examples.append(
            Example(
                image.name, split_name(image.split, f"{path}, {image.name}"), tuple(captions), file
            )
        )
    return assemble(path.stem.removeprefix("dataset_"), examples, photos, require_images)
