"""What every other room uses to touch the disk and the terminal.

Text and JSON are read strictly: UTF-8, decoded into the type that the reader declares, or refused in one line. Files are
written atomically. Tensors are stored as safetensors, never as a pickle. Imports nothing of satlib but `satlib.errors`.
"""

import contextlib
import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import safetensors
from msgspec import Meta
from tqdm import tqdm

from satlib.errors import SatlibError

if TYPE_CHECKING:  # torch takes seconds to import: only what touches tensors waits for it
    from torch import Tensor

Kind = TypeVar("Kind")
Count = Annotated[int, Meta(ge=0, le=2**53)]
Size = Annotated[int, Meta(ge=1, le=1_000_000)]
Name = Annotated[str, Meta(min_length=1, max_length=1000)]


def read_text(path: Path) -> str:
    """The content of a UTF-8 text file, without a byte order mark.

    Raises:
        SatlibError: the file cannot be read, or is not UTF-8 (with the line number).
    """
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SatlibError(f"cannot read {path}: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SatlibError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8") from error


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The non-blank lines with their numbers, counted from 1; errors as for `read_text`. Only a newline ends a line."""
    lines = (line.removesuffix("\r") for line in read_text(path).split("\n"))
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def read_json(path: Path, kind: type[Kind], what: str, advice: str = "create it again") -> Kind:
    """A JSON file as a value of type `kind`; errors as for `read_text` and `decode`."""
    return decode(read_text(path), kind, str(path), what, advice)


def decode(text: str, kind: type[Kind], where: str, what: str, advice: str) -> Kind:
    """A JSON text as a value of type `kind`, or a SatlibError: "WHERE is not WHAT (why); ADVICE"."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SatlibError(f"{where} is not {what} ({error}); {advice}") from error


# Writing

# In JSON, a line break cannot be inside a text.
_NUMBERS = re.compile(r"(?<=\[)\n\s*(?:(?:-?[\d.]+(?:[eE][-+]?\d+)?|null),?\n\s*)+(?=\])")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it to `path` when the block succeeds, delete it otherwise.

    A reader sees either the old or the new file, never a partial one, even if the writing process is killed. A full disk or a
    folder that cannot be written is a SatlibError.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with open(partial, "r+b") as written:  # Windows flushes only what is open for writing
            os.fsync(written.fileno())
        partial.replace(path)
    except OSError as error:
        raise SatlibError(
            f"cannot write {path}: {error.strerror}; free some space or choose another folder"
        ) from error
    finally:
        with contextlib.suppress(
            OSError
        ):  # there is none after a success, and no folder where that is a file
            partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, with the same line breaks on every system."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically; a list of numbers takes one line; NaN and infinity are refused."""
    try:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise SatlibError(f"cannot write {path}: {error}; check the model and its data") from error
    write_text(path, _NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text) + "\n")


# Tensors

Header = TypeVar("Header")


def read_safetensors(
    path: Path,
    kind: type[Header] = dict[str, Any],
    what: str = "from satlib",
    advice: str = "copy the file again",
) -> tuple[Header, dict[str, "Tensor"]]:
    """The JSON header, of the type `kind`, and the tensors of a file written by `write_safetensors`; any other is a SatlibError."""
    if not path.is_file():
        raise SatlibError(f"the model {path} does not exist; train one with: satlib train RECIPE")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies, because reading mapped tensors would kill the process (SIGBUS) if the file were truncated later.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        with open(
            path, "rb"
        ) as raw:  # only now: the length at the start of a safetensors file may look like a pickle
            if raw.read(2) in (b"PK", b"\x80\x02", b"\x80\x04"):
                raise SatlibError(
                    f"{path} is a pickle, which could run arbitrary code; satlib reads only safetensors"
                ) from error
        reason = " ".join(str(error).split())
        raise SatlibError(
            f"{path} is damaged or truncated ({reason}); copy it again or train again"
        ) from error
    if "satlib" not in metadata:
        raise SatlibError(
            f"{path} holds weights, but not from satlib; give a run's folder or its model.safetensors"
        )
    return decode(metadata["satlib"], kind, f"the header of {path}", what, advice), tensors


def write_safetensors(
    path: Path, tensors: dict[str, "Tensor"], header: msgspec.Struct | dict[str, Any]
) -> None:
    """Write tensors and a JSON header atomically (`replacing`)."""
    from safetensors.torch import save_file

    # Copies, because no two tensors of a file may share memory.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, metadata={"satlib": msgspec.json.encode(header).decode()})
        except (
            safetensors.SafetensorError
        ) as error:  # safetensors does not raise an OSError for a full disk
            reason = " ".join(str(error).split())
            raise SatlibError(
                f"cannot write {path}: {reason}; free some space or choose another folder"
            ) from error


def require_finite(tensors: Mapping[str, "Tensor"], path: Path) -> None:
    """Refuse tensors of a file that hold NaN or infinity."""
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise SatlibError(
                f"{path}: {name} holds values that are not finite, or beyond its number format"
            )


def packed(tensors: dict[str, "Tensor"], storage: str) -> Iterator[tuple[str, "Tensor"]]:
    """Names and tensors as they are written; an int8 matrix is followed by its scales, "NAME:scale"."""
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        if storage == "float32" or not value.is_floating_point():
            yield name, value
        elif storage == "float16" or value.dim() < 2:
            yield name, value.half()
        else:
            scale = value.flatten(1).abs().amax(1).clamp(min=1e-8) / 127
            yield name, (value / scale.view(-1, *[1] * (value.dim() - 1))).round().char()
            yield name + ":scale", scale


def unpacked(tensors: dict[str, "Tensor"]) -> Iterator[tuple[str, "Tensor"]]:
    """Names and float32 tensors from what `packed` gave."""
    import torch

    for name, value in tensors.items():
        if name.endswith(":scale"):
            continue
        if value.dtype == torch.int8:
            value = value.float() * tensors[name + ":scale"].view(-1, *[1] * (value.dim() - 1))
        yield name, value.float() if value.dtype == torch.float16 else value


# The terminal

quiet = False  # set by the command line


def progress_bar(iterable: Iterable[Any] | None = None, show: bool = True, **options: Any) -> tqdm:
    """A bar of tqdm with these options; none where nobody watches, with --quiet, or if `show` is false."""
    watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return tqdm(iterable, disable=quiet or not show or not watched, **options)


def say(line: str) -> None:
    """Write a line above the bars, at once; nothing with --quiet."""
    if not quiet:
        tqdm.write(line)
        sys.stdout.flush()


# Reading ahead

Item = TypeVar("Item")
Value = TypeVar("Value")


def read_ahead(
    read: Callable[[Item], Value], items: Iterable[Item], threads: int = 2
) -> Iterator[Value]:
    """Yield read(item) for each item in order, while threads read the next few."""
    items = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        pending = deque(pool.submit(read, item) for item in islice(items, threads + 1))
        while pending:
            value = pending.popleft().result()
            pending.extend(pool.submit(read, item) for item in islice(items, 1))
            yield value
