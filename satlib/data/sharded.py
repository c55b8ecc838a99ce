"""A caption set in shards, read as a stream (`satlib.data.shards` describes and writes shards).

Shards are read from a folder, from a URL (https://HOST/FOLDER), or from a command in which {} stands for the file name
("pipe:ssh HOST cat FOLDER/{}"). The library webdataset opens them and groups their members.
"""

import contextlib
import os
import shlex
import tarfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image
from torch import Tensor

from satlib.data import images
from satlib.data.datasets import CaptionSet, Example
from satlib.data.reading import clean
from satlib.data.shards import FORMAT, INDEX
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.files.schemas import ShardIndex, ShardMember
from satlib.files.untrusted import decoded, matches

_AGAIN = "copy it again, or write the shards again"


class StreamedImage(str):
    """The id of an image read from a shard, with the image attached: code that passes on the id also passes on the image.

    Nothing else refers to the image, so its memory is freed with the last batch that contains the id.
    """

    __slots__ = ("__weakref__", "_content", "_pixels", "_where")

    def __new__(cls, image_id: str, content: bytes, where: str) -> "StreamedImage":
        """`content` is the image file's content; `where` names the image in error messages."""
        image = super().__new__(cls, image_id)
        image._content, image._where, image._pixels = content, where, None
        return image

    def photo(self) -> Image.Image:
        """The image in RGB.

        Raises:
            SatlibError: the image cannot be read.
        """
        return images.decode(self._content, self._where)

    def pixels(self, view: str) -> Tensor:
        """The encoder's input, (3, 224, 224), uint8: decoded on the first call and cached.

        Raises:
            SatlibError: the image cannot be read, or the view is unknown.
        """
        cached = self._pixels
        if cached is None or cached[0] != view:
            cached = self._pixels = (view, images.to_tensor(images.square(self.photo(), view)))
        return cached[1]


class Shards(CaptionSet):
    """A caption set in shards. The training split is only read as a stream; dev and test are kept in memory after the first use.

    Attributes:
        place: the folder, URL or command that the shards are read from.
        index: the content of `shards.json`.
    """

    def __init__(self, place: str) -> None:
        """Read the index, but no shard.

        Raises:
            SatlibError: the index is missing or malformed, or, in a folder, a shard is missing or truncated.
        """
        vars(self).update(
            place=place, index=_read_index(place), draw=lambda example: example.image_id.photo(), _splits={}
        )
        vars(self)["name"] = self.index["data"]
        if _is_folder(place):
            for shard in (shard for shards in self.index["splits"].values() for shard in shards):
                path = Path(_locate(place, shard["file"]))
                if not path.is_file() or path.stat().st_size != shard["bytes"]:
                    problem = "has the wrong size" if path.is_file() else "is missing"
                    raise SatlibError(f"{path} {problem}: {INDEX} expects {shard['bytes']:,} bytes; {_AGAIN}")

    def __repr__(self) -> str:
        return f"Shards({self.place!r})"  # the dataclass's __repr__ would read dev and test

    def __len__(self) -> int:
        """The number of images in all splits."""
        return sum(shard["images"] for shards in self.index["splits"].values() for shard in shards)

    @property
    def language(self) -> str:
        """The data.language that the words were counted with; "" in an older index without this field."""
        return self.index.get("language", "")

    @cached_property
    def examples(self) -> tuple[Example, ...]:
        """The examples of dev and test."""
        return self.split("dev") + self.split("test")

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of dev or test, whose image ids are `StreamedImage` objects; empty if there are none.

        Raises:
            SatlibError: the split is "train", which is a stream, or a shard cannot be read.
        """
        if name == "train":
            raise SatlibError(
                f"the training images in {self.place} can only be read as a stream, for training; evaluate on dev or test"
            )
        if name not in self._splits:
            shards = range(len(self.index["splits"].get(name, ())))
            examples = (
                Example(image_id, name, captions) for shard in shards for image_id, captions in self.read(shard, name)
            )
            self._splits[name] = tuple(examples)
        return self._splits[name]

    def vocabulary(self, size: int, min_count: int, language: str = "") -> Vocabulary:
        """The vocabulary of the training captions, from the word counts in the index.

        Raises:
            SatlibError: the shards have no training split, or their words were counted for another language.
        """
        if "train" not in self.index["splits"]:
            raise SatlibError(
                f"{self.place} has only shards of {', '.join(self.index['splits'])}; write shards of train too"
            )
        if self.language != language:
            raise SatlibError(
                f"the words in {self.place} were counted for data.language = {self.language!r}, not {language!r}; "
                f"set data.language to {self.language!r}, or write the shards again with --language"
            )
        return Vocabulary.from_counts(self.index["words"], size, min_count, language)

    def read(self, shard: int, split: str = "train") -> Iterator[tuple[StreamedImage, tuple[str, ...]]]:
        """Yield the images of a shard with their captions; no image is decoded.

        Raises:
            SatlibError: the shard is missing, truncated or damaged, the captions of an image are malformed, or the library
                webdataset is not installed.
        """
        expected = self.index["splits"][split][shard]
        where, count = _locate(self.place, expected["file"]), 0
        for sample in _samples(where):
            yield _pair(sample, where)
            count += 1
        if count != expected["images"]:  # a tar file truncated between two members looks complete
            raise SatlibError(f"{where} ends after {count} of {expected['images']} images; {_AGAIN}")


def _samples(where: str) -> Iterator[dict[str, Any]]:
    """Yield the samples of a shard, grouped by WebDataset: {"__key__": ..., "jpg": bytes, "json": bytes}."""
    with _open(where) as stream:
        from webdataset.tariterators import group_by_keys, tar_file_expander

        samples = group_by_keys(tar_file_expander([{"url": where, "stream": stream}]))
        while True:
            try:
                sample = next(samples, None)
            except (OSError, tarfile.TarError, EOFError, ValueError) as error:
                raise SatlibError(f"the shard {where} is truncated or damaged ({_reason(error)}); {_AGAIN}") from error
            if sample is None:
                return
            yield sample


def _pair(sample: dict[str, Any], where: str) -> tuple[StreamedImage, tuple[str, ...]]:
    name = f"{sample['__key__']} in {where}"
    kinds = [kind for kind in sample if not kind.startswith("__") and kind != "json"]
    if len(kinds) != 1 or "json" not in sample:
        raise SatlibError(f"{name} is not one image with a JSON file of its captions; {_AGAIN}")
    what = f"the captions of {name} are malformed"
    about = decoded(sample["json"], what, _AGAIN)
    matches(about, ShardMember, what, _AGAIN)
    captions = tuple(clean(caption, name) for caption in about["captions"])
    return StreamedImage(about["key"], sample[kinds[0]], name), captions


def _reason(error: Exception) -> str:
    # WebDataset appends the name of the file to an error's arguments.
    message = getattr(error, "strerror", None) or (error.args[0] if error.args else error)
    return " ".join(str(message).split()) or type(error).__name__


def is_location(place: str) -> bool:
    """Whether a data set's name refers to shards: a URL, a command, or a folder with an index or with tar files but no captions."""
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
            "reading shards needs the library webdataset; install it with: pip install -e '.[stream]'"
        ) from error
    try:
        stream = webdataset.gopen(Path(where).absolute().as_uri() if _is_folder(where) else where)
    except (OSError, ValueError) as error:
        raise SatlibError(f"cannot open {where} ({_reason(error)}); check the URL, or {_AGAIN}") from error
    try:
        yield stream
    finally:
        with contextlib.suppress(OSError):  # a command stopped early raises an error
            stream.close()


def _read_index(place: str) -> dict[str, Any]:
    where = _locate(place, INDEX)
    if place.startswith("pipe:") and not os.environ.get("SATLIB_PIPE"):
        # The command may come from somebody else's recipe or model.
        raise SatlibError(f"{place!r} is a command; if you trust it, set the environment variable SATLIB_PIPE=1")
    if _is_folder(place) and not Path(where).is_file():
        raise SatlibError(
            f"{place} has no {INDEX}, the index of its shards; write shards and index with: satlib shards DATA {place}"
        )
    try:
        with _open(where) as stream:
            content = stream.read()
            stream.close()  # raises an error if the content is incomplete
    except OSError as error:
        raise SatlibError(f"cannot read {where} ({error.strerror or 'no data received'}); check the URL") from error
    index = decoded(content, where, _AGAIN)
    what = f"{where} is not a shard index that this version of satlib can read"
    matches(index, ShardIndex, what, "write the shards again")
    if index["format"] != FORMAT:
        raise SatlibError(f"{what} (its format is {index['format']!r}); write the shards again")
    return index
