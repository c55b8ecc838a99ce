"""Shards: a caption set as tar files in the WebDataset format, for collections too large for one disk.

A folder of shards contains `train-000000.tar`, `train-000001.tar`, ..., the same for dev and test, and the index
`shards.json`. The index is written last, so a folder with an index is complete. In a shard each image has two members with
the same name: `NAME.jpg` (the unchanged file; a scene is drawn as a PNG) and `NAME.json`, {"key": ..., "captions": [...]},
where "key" is the image id. The index contains what training needs in advance: the number of captions of each length, and
the count of each word.

Shards are read from a folder or from a URL (https://HOST/FOLDER), by the library webdataset.
"""

import contextlib
import hashlib
import io
import tarfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Annotated, Any

import msgspec
import numpy as np
import requests
from msgspec import Meta
from PIL import Image
from requests.adapters import HTTPAdapter
from urllib3.exceptions import HTTPError

from satlib.data import images
from satlib.data.batches import Batch, Pair, training_pairs
from satlib.data.caption_set import SPLITS, CaptionSet, Example, clean
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.files.atomic import replacing, write_text
from satlib.files.progress import progress_bar
from satlib.files.reading import Count, Name, Size, decode

INDEX = "shards.json"
FORMAT = "satlib shards 1"
_AGAIN = "copy it again, or write the shards again"


class Shard(msgspec.Struct):
    """A shard: its file name, which must not lead out of the folder, and its content."""

    file: Annotated[str, Meta(pattern=r"^[\w-]+\.tar$")]
    images: Size
    captions: Count
    bytes: Count
    sha256: str


class Index(msgspec.Struct):
    """The content of `shards.json`; `lengths` and `words` are counts of the training captions."""

    format: str
    data: Name
    language: str = ""
    splits: dict[str, list[Shard]] = {}
    lengths: dict[Annotated[int, Meta(ge=0)], Count] = {}
    words: dict[str, Count] = {}


class _Captions(msgspec.Struct):
    """NAME.json of an image in a shard."""

    key: Name
    captions: Annotated[tuple[str, ...], Meta(min_length=1)]


def write(
    data: CaptionSet,
    folder: Path,
    splits: Sequence[str] = SPLITS,
    images_per_shard: int = 1000,
    progress: bool = True,
    language: str = "",
) -> Index:
    """Write a caption set as shards and return their index.

    Args:
        data: the set.
        folder: the folder of the shards.
        splits: the splits to write; splits without images are skipped.
        images_per_shard: the largest number of images in a shard.
        progress: show a progress bar.
        language: the recipe's data.language, which determines how words are counted.

    Raises:
        SatlibError: the folder already has shards, the splits have no images, an image cannot be read, the disk is full, or the
            library webdataset is not installed.
    """
    if (folder / INDEX).exists():
        raise SatlibError(f"{folder / INDEX} already exists; choose another folder")
    index = Index(FORMAT, data.name, language)
    for split in splits:
        examples = data.split(split)
        if split == "train":
            captions = [tokenise(caption, language) for example in examples for caption in example.references]
            index.lengths = dict(sorted(Counter(map(len, captions)).items()))
            index.words = dict(Counter(word for words in captions for word in words).most_common())
            # Shuffle once here: a stream shuffles only within its buffer, and a folder may be sorted by content.
            examples = tuple(examples[i] for i in np.random.default_rng(0).permutation(len(examples)))
        for start in progress_bar(
            range(0, len(examples), images_per_shard), unit="shard", desc=f"{data.name} {split}", show=progress
        ):
            path = folder / f"{split}-{start // images_per_shard:06d}.tar"
            shard = _write_shard(data, examples[start : start + images_per_shard], path, start)
            index.splits.setdefault(split, []).append(shard)
    if not index.splits:
        raise SatlibError(f"{data.name} has no images in {' or '.join(splits)}; choose another split")
    write_text(folder / INDEX, msgspec.json.format(msgspec.json.encode(index), indent=1).decode() + "\n")
    return index


def _write_shard(data: CaptionSet, examples: Sequence[Example], path: Path, start: int) -> Shard:
    with replacing(path) as partial:
        # Members have no time, so the same set gives the same bytes.
        with open(partial, "wb") as file, _webdataset().TarWriter(file, encoder=False, mtime=0) as tar:
            for number, example in enumerate(examples, start):
                kind, content = _content(data, example)
                about = msgspec.json.encode(_Captions(example.image_id, example.references))
                tar.write({"__key__": f"{number:06d}", kind: content, "json": about})
        whole = partial.read_bytes()
    captions = sum(len(example.references) for example in examples)
    return Shard(path.name, len(examples), captions, len(whole), hashlib.sha256(whole).hexdigest())


def _content(data: CaptionSet, example: Example) -> tuple[str, bytes]:
    """An image's file extension, and its content."""
    if example.path is None:
        drawn = io.BytesIO()
        data.photo(example).save(drawn, format="PNG")
        return "png", drawn.getvalue()
    try:
        return example.path.suffix.lstrip(".").lower() or "image", example.path.read_bytes()
    except OSError as error:
        raise SatlibError(
            f"cannot read {example.path}: {error.strerror}; see: satlib data check {data.name}"
        ) from error


class StreamedImage(str):
    """The id of an image read from a shard, with the content of its file: code that passes on the id also passes on the image.

    Nothing else refers to the image, so its memory is freed with the last batch that contains the id.
    """

    __slots__ = ("__weakref__", "content", "where")
    content: bytes
    where: str

    def __new__(cls, image_id: str, content: bytes, where: str) -> "StreamedImage":
        """`content` is the image file's content; `where` names the image in messages."""
        image = super().__new__(cls, image_id)
        image.content, image.where = content, where
        return image


class Shards(CaptionSet):
    """A caption set in shards. The training split is only read as a stream; dev and test are kept in memory after the first use.

    Attributes:
        place: the folder or URL that the shards are read from.
        index: the content of `shards.json`.
        language: the data.language that the words were counted with.
    """

    streamed = True

    def __init__(self, place: str, index: Index) -> None:
        super().__init__(index.data, ())
        self.place, self.index = place, index
        self.language = index.language  # type: ignore[misc]
        self._held: dict[str, tuple[Example, ...]] = {}

    def __len__(self) -> int:
        """The number of images in all splits."""
        return sum(shard.images for shards in self.index.splits.values() for shard in shards)

    @property
    def where(self) -> str:
        """The place of the shards."""
        return self.place

    def split(self, name: str) -> tuple[Example, ...]:
        """The examples of dev or test, whose image ids are `StreamedImage` objects; empty if there are none.

        Raises:
            SatlibError: the split is "train", which is a stream, or a shard cannot be read.
        """
        if name == "train":
            raise SatlibError(
                f"the training images in {self.place} are a stream, which is read whole and only for training: set "
                "data.train_images = 0, evaluate on dev or test, or train on a data set in files"
            )
        if name not in self._held:
            self._held[name] = tuple(self.stream(name, self.index.splits.get(name, ())))
        return self._held[name]

    def vocabulary(self, size: int, min_count: int, language: str = "") -> Vocabulary:
        """The vocabulary of the training captions, from the word counts in the index.

        Raises:
            SatlibError: the shards have no training split, or their words were counted for another language.
        """
        if "train" not in self.index.splits:
            raise SatlibError(
                f"{self.place} has only shards of {', '.join(self.index.splits)}; write shards of train too"
            )
        if self.language != language:
            raise SatlibError(
                f"the words in {self.place} were counted for data.language = {self.language!r}, not {language!r}; "
                f"set data.language to {self.language!r}, or write the shards again with --language"
            )
        return Vocabulary.from_counts(self.index.words, size, min_count, language)

    def read_all(self) -> Iterator[Example]:
        """Yield the examples of all splits, each shard read once."""
        for split, shards in self.index.splits.items():
            yield from self.stream(split, shards)

    def photo(self, example: Example) -> Image.Image:
        """The image of an example in RGB; errors as for `images.decode`."""
        return self.image(example.image_id)

    def image(self, image_id: str) -> Image.Image:
        """The image that a `StreamedImage` carries; errors as for `images.decode`."""
        assert isinstance(image_id, StreamedImage)
        return images.decode(image_id.content, image_id.where)

    def stream(self, split: str, shards: Iterable[Shard]) -> Iterator[Example]:
        """Yield the images of some shards with their captions; no image is decoded.

        Raises:
            SatlibError: a shard is missing, truncated or damaged, the captions of an image are malformed, or the library
                webdataset is not installed.
        """
        for shard in shards:
            where, count = _locate(self.place, shard.file), 0
            for sample in _samples(where):
                yield _example(sample, where, split)
                count += 1
            if count != shard.images:  # a tar file truncated between two members looks complete
                raise SatlibError(f"{where} ends after {count} of {shard.images} images; {_AGAIN}")


def _samples(where: str) -> Iterator[dict[str, Any]]:
    """Yield the members of a tar file, grouped by their names."""
    try:
        with _open(where) as file:
            tar = _webdataset().tariterators
            yield from tar.group_by_keys(tar.tar_file_expander([{"url": where, "stream": file}]))
    except (OSError, HTTPError, tarfile.TarError, EOFError, ValueError) as error:
        raise SatlibError(f"cannot read the shard {where} ({_reason(error)}); {_AGAIN}") from error


def _example(sample: dict[str, Any], where: str, split: str) -> Example:
    name = f"{sample['__key__']} in {where}"
    kinds = [kind for kind in sample if not kind.startswith("__") and kind != "json"]
    if len(kinds) != 1 or "json" not in sample:
        raise SatlibError(f"{name} is not one image with a JSON file of its captions; {_AGAIN}")
    about = decode(sample["json"], _Captions, f"the JSON file of {name}", "an image id with captions", _AGAIN)
    captions = tuple(clean(caption, name) for caption in about.captions)
    return Example(StreamedImage(about.key, sample[kinds[0]], name), split, captions)


class StreamedBatches:
    """Divides the captions of the training shards into batches in which all captions have the same length (section 4.3).

    Every caption occurs exactly once per epoch, except those with more than `max_length` words or without a known word. The
    order depends only on (seed, epoch): shards are permuted, and captions are drawn from a buffer (webdataset's shuffle). When the
    stream ends, the remaining captions of each length follow in smaller batches.

    Memory does not grow with the collection. At any time it holds at most `buffer` captions, and less than one batch for each
    caption length, each caption with its image. With several processes, each one reads the whole stream but decodes only the
    images of its own rows.
    """

    def __init__(
        self,
        shards: Shards,
        vocabulary: Vocabulary,
        max_length: int,
        batch_size: int = 64,
        seed: int = 0,
        buffer: int = 4000,
    ) -> None:
        """Use the training split of `shards`.

        Raises:
            SatlibError: it has no caption of 1 to `max_length` words.
        """
        self.shards, self.vocabulary, self.max_length = shards, vocabulary, max_length
        self.batch_size, self.seed, self.buffer = batch_size, seed, buffer
        counts = [count for length, count in shards.index.lengths.items() if 0 < length <= max_length]
        self._batches = sum(-(-count // batch_size) for count in counts)
        if not self._batches:
            raise SatlibError(
                f"{shards.place} has no training caption of 1 to {max_length} words; write shards of the train split"
            )

    def __len__(self) -> int:
        """The number of batches in an epoch, or a few more, because captions without a known word are left out."""
        return self._batches

    @property
    def hash(self) -> str:
        """SHA-256 of the vocabulary and the shards, which identifies the data in a checkpoint."""
        shards = [shard.sha256 for shard in self.shards.index.splits["train"]]
        return hashlib.sha256(repr([self.vocabulary.words, shards]).encode()).hexdigest()

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of one epoch while reading the stream. Their `image_ids` are not yet decoded.

        Raises:
            SatlibError: a shard cannot be read.
        """
        rng = Random(f"{self.seed} {epoch}")
        shards = list(self.shards.index.splits["train"])
        rng.shuffle(shards)
        stream = training_pairs(self.shards.stream("train", shards), self.vocabulary, self.max_length)
        waiting: dict[int, list[Pair]] = defaultdict(list)
        for pair in _webdataset().filters.shuffle(self.buffer, initial=self.buffer, rng=rng)(stream):
            length = len(pair.caption)
            waiting[length].append(pair)
            if len(waiting[length]) == self.batch_size:
                yield Batch.of(waiting.pop(length))
        lengths = sorted(waiting)
        rng.shuffle(lengths)
        for length in lengths:
            yield Batch.of(waiting.pop(length))


def is_location(place: str) -> bool:
    """Whether a data set's name refers to shards: a URL, or a folder with an index or with tar files but no captions."""
    folder = Path(place).expanduser()
    return (
        _is_url(place)
        or (folder / INDEX).is_file()
        or (any(folder.glob("*.tar")) and not any(folder.glob("captions.*")))
    )


def load(place: str) -> Shards:
    """The shards in a place, of which only the index is read.

    Raises:
        SatlibError: the index is missing or malformed, or, in a folder, a shard is missing or truncated.
    """
    where = _locate(place, INDEX)
    _webdataset()
    if not _is_url(place) and not Path(where).is_file():
        raise SatlibError(
            f"{place} has no {INDEX}, the index of its shards; write shards and index with: satlib data shards DATA {place}"
        )
    try:
        with _open(where) as file:
            content = file.read()
    except (OSError, HTTPError) as error:
        raise SatlibError(f"cannot read {where} ({_reason(error)}); check the place") from error
    what = "a shard index that this version of satlib can read"
    index = decode(content, Index, where, what, "write the shards again")
    if index.format != FORMAT:
        raise SatlibError(f"{where} is not {what} (its format is {index.format!r}); write the shards again")
    for shard in (shard for shards in index.splits.values() if not _is_url(place) for shard in shards):
        path = Path(_locate(place, shard.file))
        if not path.is_file() or path.stat().st_size != shard.bytes:
            problem = "has the wrong size" if path.is_file() else "is missing"
            raise SatlibError(f"{path} {problem}: {INDEX} expects {shard.bytes:,} bytes; {_AGAIN}")
    return Shards(place, index)


def _webdataset() -> ModuleType:
    try:
        import webdataset
    except ImportError as error:
        raise SatlibError(
            "shards need the library webdataset; install it with: pip install 'satlib[stream]'"
        ) from error
    return webdataset


def _is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def _locate(place: str, file: str) -> str:
    return f"{place.rstrip('/')}/{file}" if _is_url(place) else str(Path(place).expanduser() / file)


@contextlib.contextmanager
def _open(where: str) -> Iterator[Any]:
    """A file or URL as a binary stream. Not with webdataset, which fetches a URL with the program curl."""
    if _is_url(where):
        with requests.Session() as session:
            session.mount("http", HTTPAdapter(max_retries=5))
            response = session.get(where, stream=True, timeout=(15, 60))
            response.raise_for_status()
            yield response.raw
    else:
        with open(where, "rb") as file:
            yield file


def _reason(error: Exception) -> str:
    if isinstance(error, requests.RequestException):
        return f"HTTP {error.response.status_code}" if error.response is not None else "no connection"
    message = getattr(error, "strerror", None) or (error.args[0] if error.args else error)
    return " ".join(str(message).split()) or type(error).__name__
