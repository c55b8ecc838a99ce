"""Data sets as they are published.

Flickr8k by its authors (Hodosh et al., 2013), and the files of Karpathy and Fei-Fei (2015):
dataset_flickr30k.json, dataset_coco.json and dataset_flickr8k.json hold captions and the splits of
most published results. COCO's release of 2017 has the same photographs as that of 2014, divided
differently and named by their numbers alone. Either will do.
"""

from collections import defaultdict
from pathlib import Path

from msgspec import Struct

from satlib.data.caption_set import SPLITS, CaptionSet, Example, assemble, clean, split_name
from satlib.errors import SatlibError
from satlib.files import Name, read_json, read_lines

# Captions of an image, at most, as is common practice: some of COCO's have seven.
MAX_REFERENCES = 5


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

# Where the photographs may lie, relative to the JSON file's folder: mirrors name it differently.
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
        """The file's path in the folder of the photographs."""
        return f"{self.filepath}/{self.filename}" if self.filepath else self.filename


class _File(Struct):
    images: list[_Image]


def load_karpathy(path: Path) -> CaptionSet:
    """The caption set of one of Karpathy's JSON files, with its images beside it.

    Image ids are file names. COCO's begin with their folder:
    "train2014/COCO_train2014_000000000009.jpg".
    """
    listed = read_json(path, _File, "one of Karpathy's dataset files", "download it again").images
    first = listed[0].name if listed else ""
    photos = _folder_of(first, path.parent)

    # If the names of 2014 are not there, those of 2017 may be: "000000000009.jpg" in either folder.
    files_2017: dict[str, Path] = {}
    if not (photos / first).is_file():
        files_2017 = {file.name: file for file in photos.glob("*2017/*.jpg")}

    examples = []
    for image in listed:
        split = split_name(image.split, f"{path}, {image.name}")
        captions = clean(sentence.raw for sentence in image.sentences)
        name_2017 = image.filename.rpartition("_")[2]
        file = files_2017.get(name_2017, photos / image.name)
        examples.append(Example(image.name, split, tuple(captions[:MAX_REFERENCES]), file))
    return assemble(path.stem.removeprefix("dataset_"), examples, photos)


def _folder_of(image: str, parent: Path) -> Path:
    """The first of `FOLDERS` that an image is in; the parent folder if none has it."""
    for folder in FOLDERS:
        if (parent / folder / image).is_file():
            return parent / folder
    return parent
