"""A caption set in shards, to be read as a stream (`satlib.datasets.shards` says what shards are and writes them).

They are read from a folder, from an address (https://HOST/FOLDER), or out of a command with {} for a file's name
("pipe:ssh HOST cat FOLDER/{}"), as the library webdataset opens and groups them.
"""

import contextlib
import json
import os
import re
import shlex
import tarfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image
from torch import Tensor

from satlib import images
from satlib.datasets import CaptionSet, Example
from satlib.datasets.reading import clean
from satlib.datasets.shards import FORMAT, INDEX
from satlib.errors import SatlibError
from satlib.text import Vocabulary

_FIELDS = {"format", "data", "splits", "lengths", "words"}
_SHARD = re.compile(r"[\w-]+\.tar")
_AGAIN = "copy it again, or write the shards again"


class Picture(str):
    """The id of an image read from a shard, with the image attached: passing the id on passes on both.

    Nobody else holds the image: with the last batch that names it, it is gone.
    """

    __slots__ = ("__weakref__", "_content", "_pixels", "_where")

    def __new__(cls, image_id: str, content: bytes, where: str) -> "Picture":
        """An image by its file's content; `where` is what errors call it."""
        picture = super().__new__(cls, image_id)
        picture._content, picture._where, picture._pixels = content, where, None
        return picture

    def photo(self) -> Image.Image:
        """The image in RGB.

        Raises:
            SatlibError: it cannot be read.
        """
        return images.decode(self._content, self._where)

    def pixels(self, view: str) -> Tensor:
        """The image as an encoder takes it, (3, 224, 224) of uint8: decoded when it is first asked for, then kept.

        Raises:
            SatlibError: it cannot be read, or no view is called that.
        """
        kept = self._pixels
        if kept is None or kept[0] != view:
            kept = self._pixels = (view, images.to_tensor(images.square(self.photo(), view)))
        return kept[1]


class Shards(CaptionSet):
    """A caption set in shards. Its training split is only ever read as a stream; dev and test are held once they were asked for.

    Attributes:
        place: where they lie.
        index: what `shards.json` says.
    """

    def __init__(self, place: str) -> None:
        """Read the index; no shard.

        Raises:
            SatlibError: there is no index, or it is another file; of a folder also: a shard is missing or cut short.
        """
        vars(self).update(
            place=place, index=_read_index(place), draw=lambda example: example.image_id.photo(), _held={}
        )
        vars(self)["name"] = self.index["data"]
        if _is_folder(place):
            for shard in (shard for shards in self.index["splits"].values() for shard in shards):
                path = Path(_locate(place, shard["file"]))
                if not path.is_file() or path.stat().st_size != shard["bytes"]:
                    wrong = "is cut short, or another file" if path.is_file() else "is missing"
                    raise SatlibError(f"{path} {wrong}: {INDEX} says {shard['bytes']:,} bytes; {_AGAIN}")

    def __repr__(self) -> str:
        return f"Shards({self.place!r})"  # the dataclass's own would read dev and test

    def __len__(self) -> int:
        """The number of images, all splits together."""
        return sum(shard["images"] for shards in self.index["splits"].values() for shard in shards)

    @property
    def language(self) -> str:
        """What their words were counted for; "" in an index from before there was a choice."""
        return self.index.get("language", "")

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """Those of dev and test."""
        return self.split("dev") + self.split("test")

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of dev or test, each image id a `Picture`; empty where there are none.

        Raises:
            SatlibError: "train" is asked for, which is a stream, or a shard cannot be read.
        """
        if name == "train":
            raise SatlibError(
                f"the training images in {self.place} are a stream: train on them, evaluate on dev or test"
            )
        if name not in self._held:
            shards = range(len(self.index["splits"].get(name, ())))
            found = (
                Example(image_id, name, captions) for shard in shards for image_id, captions in self.read(shard, name)
            )
            self._held[name] = tuple(found)
        return self._held[name]

    def vocabulary(self, size: int, min_count: int, language: str = "") -> Vocabulary:
        """Of the training captions, by the counts of the index.

        Raises:
            SatlibError: no training images are in these shards, or their words were counted for another language.
        """
        if "train" not in self.index["splits"]:
            raise SatlibError(f"{self.place} has shards of {', '.join(self.index['splits'])} alone; write train too")
        if self.language != language:
            raise SatlibError(
                f"the words in {self.place} were counted for data.language = {self.language!r}, not {language!r}; "
                f"set data.language to that, or write the shards again with the language that you want (--language)"
            )
        return Vocabulary.from_counts(self.index["words"], size, min_count, language)

    def read(self, shard: int, split: str = "train") -> Iterator[tuple[Picture, tuple[str, ...]]]:
        """The images of a shard with their captions, one after another; nothing is decoded.

        Raises:
            SatlibError: the shard is missing, cut short or damaged, the captions of an image are broken, or the library
                webdataset is not installed.
        """
        expected = self.index["splits"][split][shard]
        where, found = _locate(self.place, expected["file"]), 0
        for sample in _samples(where):
            yield _pair(sample, where)
            found += 1
        if found != expected["images"]:  # cut where a member ends, a tar file looks whole
            raise SatlibError(f"{where} ends after {found} of {expected['images']} images; {_AGAIN}")


def _samples(where: str) -> Iterator[dict[str, Any]]:
    """The samples of a shard as WebDataset groups its members: {"__key__": ..., "jpg": bytes, "json": bytes}."""
    with _open(where) as stream:
        from webdataset.tariterators import group_by_keys, tar_file_expander

        samples = group_by_keys(tar_file_expander([{"url": where, "stream": stream}]))
        while True:
            try:
                sample = next(samples, None)
            except (OSError, tarfile.TarError, EOFError, ValueError) as error:
                raise SatlibError(f"the shard {where} is cut short or damaged ({_reason(error)}); {_AGAIN}") from error
            if sample is None:
                return
            yield sample


def _pair(sample: dict[str, Any], where: str) -> tuple[Picture, tuple[str, ...]]:
    name = f"{sample['__key__']} in {where}"
    kinds = [kind for kind in sample if not kind.startswith("__") and kind != "json"]
    try:
        about = json.loads(sample["json"])
        image_id, captions = about["key"], about["captions"]
        if not isinstance(image_id, str) or not isinstance(captions, list) or not captions or len(kinds) != 1:
            raise ValueError("key, captions and one image are expected")
    except (KeyError, TypeError, ValueError) as error:
        raise SatlibError(f"the captions of {name} are broken ({_reason(error)}); {_AGAIN}") from error
    return Picture(image_id, sample[kinds[0]], name), tuple(clean(caption, name) for caption in captions)


def _reason(error: Exception) -> str:
    # WebDataset adds what it was reading to an error's arguments.
    said = getattr(error, "strerror", None) or (error.args[0] if error.args else error)
    return " ".join(str(said).split()) or type(error).__name__


def lie_at(place: str) -> bool:
    """Whether a data set's name means shards: an address, a command, or a folder of tar files and nothing else to load."""
    folder = Path(place).expanduser()
    return (
        not _is_folder(place)
        or (folder / INDEX).is_file()
        or (any(folder.glob("*.tar")) and not any(folder.glob("captions.*")))
    )


def _is_folder(place: str) -> bool:
    return not (place.startswith("pipe:") or "://" in place)


def _locate(place: str, file: str) -> str:
    if place.startswith("pipe:"):
        return place.replace("{}", shlex.quote(file))
    return str(Path(place).expanduser() / file) if _is_folder(place) else f"{place.rstrip('/')}/{file}"


@contextlib.contextmanager
def _open(where: str) -> Iterator[BinaryIO]:
    try:
        import webdataset
    except ImportError as error:
        raise SatlibError(
            "shards are read by the library webdataset, which is missing; get it with: pip install -e '.[stream]'"
        ) from error
    try:
        stream = webdataset.gopen(Path(where).absolute().as_uri() if _is_folder(where) else where)
    except (OSError, ValueError) as error:
        raise SatlibError(f"cannot open {where} ({_reason(error)}); check the address, or {_AGAIN}") from error
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):  # a command that was left before its end says so
            stream.close()


def _read_index(place: str) -> dict[str, Any]:
    where = _locate(place, INDEX)
    if place.startswith("pipe:") and not os.environ.get("SATLIB_PIPE"):
        # The name may come from a recipe or a model of somebody else's.
        raise SatlibError(f"{place!r} is a command; if it is yours, allow it with the variable SATLIB_PIPE=1")
    if _is_folder(place) and not Path(where).is_file():
        raise SatlibError(
            f"{place} has no {INDEX}, the index of its shards; make both with: satlib shards DATA {place}"
        )
    try:
        with _open(where) as stream:
            content = stream.read()
            stream.close()  # says whether all of it came
        index = json.loads(content)
    except OSError as error:
        raise SatlibError(f"cannot read {where} ({error.strerror or 'nothing came'}); check the address") from error
    except ValueError as error:  # not UTF-8, or not JSON
        raise SatlibError(f"{where} is not complete JSON ({error}); {_AGAIN}") from error
    try:
        shards = [shard for split in index["splits"].values() for shard in split]
        fits = index["format"] == FORMAT and index.keys() >= _FIELDS
        fits = fits and all(_SHARD.fullmatch(shard["file"]) and shard["images"] > 0 for shard in shards)
    except (AttributeError, KeyError, TypeError):
        fits = False
    if not fits:
        raise SatlibError(f"{where} is not an index of shards that this satlib knows; write the shards again")
    return index
