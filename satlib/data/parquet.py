"""Captioned photographs in parquet files, as Hugging Face's `datasets` writes them: the images are in the files. Needs pyarrow.

A row has an image (its encoded bytes and perhaps its path) and captions, in columns as in `layouts.imagefolder`. An image is called by
the column file_name or filename, or by its path, if no two rows have the same; otherwise by the SHA-256 of its bytes, so that rows of
one photograph come together. Splits come from the column split, or from the files' names (train-00000-of-00002.parquet) or folders;
if all files are of one split, that decides nothing.
"""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from PIL import Image

from satlib.data import images
from satlib.data.caption_set import SPLIT_NAMES, Example
from satlib.data.layouts import Row, imagefolder
from satlib.errors import SatlibError

_NAMES = ("file_name", "filename")  # columns that name a row's image


def files(place: Path) -> list[Path]:
    """The parquet files of a folder and those in it, sorted; or the file itself."""
    return [place] if place.suffix == ".parquet" else sorted(place.rglob("*.parquet"))


class Photographs:
    """The rows of parquet files, and the photographs in them, which are read when they are used.

    Attributes:
        rows: the place of each row in words, and what it says; `Row.image` is the image's id.
    """

    def __init__(self, paths: list[Path]) -> None:
        """Read the captions.

        Raises:
            SatlibError: pyarrow is not installed, or a file is damaged or has no images or no captions.
        """
        self._lock = threading.Lock()
        self._group = lru_cache(2)(self._read_group)
        by_file = {_split(path) for path in paths}
        rows = [(path, *row) for path in paths for row in _rows(path, _split(path) if len(by_file) > 1 else None)]
        names = [row.image for *_, row in rows]
        self._places: dict[str, tuple[Path, int, int]] = {}
        self.rows: list[tuple[str, Row]] = []
        by_name = all(names) and len(set(names)) == len(names)
        for path, group, number, where, row in rows:
            if not by_name:
                row.image = hashlib.sha256(self._content(path, group, number, where)).hexdigest()[:16]
            self._places[row.image] = path, group, number
            self.rows.append((where, row))

    def photo(self, example: Example) -> Image.Image:
        """The image of an example; errors as for `images.decode`."""
        path, group, number = self._places[example.image_id]
        where = f"{path}, {example.image_id}"
        return images.decode(self._content(path, group, number, where), where)

    def _content(self, path: Path, group: int, number: int, where: str) -> bytes:
        with self._lock:  # threads want images of the same group
            value = self._group(path, group)[number]
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise SatlibError(f"{where}: the image is not in the file; download the data set with its images in it")
        return content

    def _read_group(self, path: Path, group: int) -> list[Any]:
        """The images of a row group, of which several are usually wanted, one after the other."""
        with _opened(path) as file:
            column = _image(file.schema_arrow, path).name
            return file.read_row_group(group, columns=[column]).column(column).to_pylist()


def _rows(path: Path, split: str | None) -> Iterator[tuple[int, int, str, Row]]:
    """The rows of a file: row group, number in it, place in words, and content without images."""
    with _opened(path) as file:
        image = _image(file.schema_arrow, path)
        columns = [field.name for field in file.schema_arrow if _is_text(field.type)]
        if "path" in _fields(image.type):
            columns.append(f"{image.name}.path")
        for group in range(file.num_row_groups):
            for number, row in enumerate(file.read_row_group(group, columns=columns).to_pylist()):
                where = f"{path}, row {number + 1} of group {group + 1}"
                in_image = (row.pop(image.name, None) or {}).get("path")
                names = [row.pop(name, None) for name in _NAMES]
                found = imagefolder({**row, "file_name": next(filter(None, [*names, in_image]), "")}, where)
                found.image = PurePath(found.image.strip()).as_posix() if found.image.strip() else ""
                found.split = found.split or split
                yield group, number, where, found


def _image(schema: Any, path: Path) -> Any:
    """The column of images: bytes, alone or with a path; of several, the one called image."""
    found = [field for field in schema if "bytes" in _fields(field.type) or "binary" in str(field.type)]
    if not found:
        raise SatlibError(
            f"{path} has no column of images, as Hugging Face writes them; it has {', '.join(schema.names)}"
        )
    return next((field for field in found if field.name == "image"), found[0])


def _fields(kind: Any) -> list[str]:
    """The fields of a column's type; none if it has no parts."""
    return [kind.field(index).name for index in range(kind.num_fields)]


def _is_text(kind: Any) -> bool:
    """Whether a column holds texts, or lists of them."""
    kind = kind.value_type if str(kind).startswith(("list<", "large_list<")) else kind
    return str(kind) in ("string", "large_string")


def _split(path: Path) -> str | None:
    """The split that a file's name begins with, or else that its folder is called."""
    words = (re.split(r"[-_.]", path.name.lower())[0], path.parent.name.lower())
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """A parquet file.

    Raises:
        SatlibError: pyarrow is not installed, or the file is damaged.
    """
    pyarrow, parquet = _pyarrow(path)
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (pyarrow.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise SatlibError(f"{path} is damaged or no parquet file ({reason}); download it again") from error


def _pyarrow(path: Path) -> tuple[ModuleType, ModuleType]:
    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise SatlibError(f"{path} is a parquet file; to read those, run: pip install 'satlib[hub]'") from error
