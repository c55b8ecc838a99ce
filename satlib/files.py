"""What every other room uses to touch the disk and the terminal.

Text and JSON are read strictly: UTF-8, decoded into the type that the reader declares, or refused
in one line. Files are written atomically. Tensors are stored as safetensors, never as a pickle.
Imports nothing of satlib but `satlib.errors`.
"""

import contextlib
import errno
import gc
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
from filelock import FileLock, Timeout
from msgspec import Meta
from tqdm import tqdm

from satlib.errors import SatlibError

# torch takes seconds to import: only what touches tensors waits for it.
if TYPE_CHECKING:
    from torch import Tensor


# --- Reading text and JSON --------------------------------------------------------------------

Kind = TypeVar("Kind")

# A field of a file, with limits that no sound file exceeds.
Name = Annotated[str, Meta(min_length=1, max_length=1000)]

# In a folder that one process holds.
LOCK = ".lock"


def read_text(path: Path) -> str:
    """The content of a UTF-8 text file, without a byte order mark.

    Raises:
        SatlibError: the file cannot be read, or is not UTF-8 (with the line number).
    """
    return text_of(read_bytes(path), path)


def read_bytes(path: Path) -> bytes:
    """The content of a file.

    Raises:
        SatlibError: the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise SatlibError(f"cannot read {path}: {error.strerror}") from error


def text_of(raw: bytes, path: Path) -> str:
    """What was read from a file as text; errors as for `read_text`."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SatlibError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8") from error


def read_lines(path: Path) -> list[tuple[int, str]]:
    """The non-blank lines with their numbers, counted from 1; errors as for `read_text`."""
    # Only a newline ends a line: `splitlines` would also split at the separators of Unicode.
    lines = (line.removesuffix("\r") for line in read_text(path).split("\n"))
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def read_json(path: Path, kind: type[Kind], what: str, advice: str = "create it again") -> Kind:
    """A JSON file as a value of type `kind`; errors as for `read_text` and `decode`."""
    return decode(read_text(path), kind, str(path), what, advice)


def decode(text: str, kind: type[Kind], where: str, what: str, advice: str) -> Kind:
    """A JSON text as a value of type `kind`.

    Raises:
        SatlibError: "WHERE is not WHAT (why); ADVICE".
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SatlibError(f"{where} is not {what} ({error}); {advice}") from error


# --- Writing ----------------------------------------------------------------------------------

# Python's stand-ins for bytes that are not UTF-8, and line breaks.
_UNWRITABLE = re.compile(r"[\r\n\ud800-\udfff]")


def require_writable(name: str) -> None:
    """Refuse the name of a file that cannot stand in a line of UTF-8 text."""
    if _UNWRITABLE.search(name):
        raise SatlibError(f"the name {name!r} is not UTF-8, or has a line break; rename the file")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name the file that a block writes, if it cannot.

    Raises:
        SatlibError: the disk is full, or the folder is missing or cannot be written to.
    """
    try:
        yield
    except OSError as error:
        free = "free some space or " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        raise SatlibError(
            f"cannot write {path}: {error.strerror}; {free}choose another folder"
        ) from error


@contextlib.contextmanager
def locked(path: Path, lock: Path) -> Iterator[None]:
    """Hold a file or a folder, so that no second process mixes its writing with the first's.

    The lock ends with its process. Its file stays: deleting it could let two processes in.

    Raises:
        SatlibError: another process holds it; or as for `writing`.
    """
    with writing(path):
        try:
            held = FileLock(lock, timeout=0).acquire()
        except Timeout as error:
            raise SatlibError(
                f"{path} is in use by another process; wait for it, or choose another name"
            ) from error
    with held:
        yield


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a folder, which is created if needed, and delete what a killed process left half written.

    Raises:
        SatlibError: as for `locked`.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, folder / LOCK):
        # `replacing` leaves them; nobody else writes here now.
        for left_over in folder.glob(".*.partial"):
            left_over.unlink(missing_ok=True)
        yield


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, which becomes `path` if the block succeeds.

    It is deleted otherwise. A reader sees either the old or the new file, never a partial one, even
    if the writing process is killed.

    Raises:
        SatlibError: as for `writing`.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield partial

            # The content has to be on the disk before the name is. Opened for writing, because
            # Windows flushes nothing else.
            with open(partial, "r+b") as written:
                os.fsync(written.fileno())
            partial.replace(path)
    finally:
        # There is none after a success, and no folder if the parent is a file.
        with contextlib.suppress(OSError):
            partial.unlink()


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically, with the same line breaks on every system."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


# A list of numbers that is spread over several lines. The pattern never matches inside a JSON
# text, because a line break there is written as a backslash and an n.
_LIST_OF_NUMBERS = re.compile(
    r"(?<=\[)\n\s*(?:(?:-?[\d.]+(?:[eE][-+]?\d+)?|null),?\n\s*)+(?=\])",
)


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON, atomically, with each list of numbers on one line.

    Raises:
        SatlibError: the value contains NaN or infinity; or as for `replacing`.
    """
    try:
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise SatlibError(f"cannot write {path}: {error}; check the model and its data") from error

    text = _LIST_OF_NUMBERS.sub(lambda numbers: " ".join(numbers[0].split()), text)
    write_text(path, text + "\n")


# --- Tensors ----------------------------------------------------------------------------------

# How the pickles of PyTorch begin: a zip file, or protocol 2 or 4.
_PICKLE_STARTS = (b"PK", b"\x80\x02", b"\x80\x04")


def read_safetensors(
    path: Path,
    kind: type[Kind] = dict[str, Any],
    what: str = "from satlib",
    advice: str = "copy the file again",
) -> tuple[Kind, dict[str, "Tensor"]]:
    """The JSON header, decoded as `kind`, and the tensors of a file written by `write_safetensors`.

    Raises:
        SatlibError: the file is missing, damaged, a pickle, or not from satlib.
    """
    if not path.is_file():
        raise SatlibError(f"the model {path} does not exist; train one with: satlib train RECIPE")

    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            names = file.keys()
            # Copies, because reading mapped tensors would kill the process (SIGBUS) if the file
            # were truncated later.
            tensors = {name: file.get_tensor(name).clone() for name in names}
    except (safetensors.SafetensorError, OSError) as error:
        # Only now: the length that a safetensors file begins with may look like a pickle.
        with open(path, "rb") as raw:
            start = raw.read(2)
        if start in _PICKLE_STARTS:
            raise SatlibError(
                f"{path} is a pickle, which could run arbitrary code; satlib reads only safetensors"
            ) from error
        reason = " ".join(str(error).split())
        raise SatlibError(
            f"{path} is damaged or truncated ({reason}); copy it again or train again"
        ) from error

    if "satlib" not in metadata:
        raise SatlibError(
            f"{path} holds weights, but not from satlib; "
            "give a run's folder or its model.safetensors"
        )
    header = decode(metadata["satlib"], kind, f"the header of {path}", what, advice)
    return header, tensors


def write_safetensors(
    path: Path, tensors: dict[str, "Tensor"], header: msgspec.Struct | dict[str, Any]
) -> None:
    """Write tensors and a JSON header atomically; errors as for `replacing`."""
    from safetensors.torch import save_file

    # Copies, because no two tensors of a file may share memory.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    metadata = {"satlib": msgspec.json.encode(header).decode()}
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, metadata=metadata)
        # For a full disk, safetensors raises an error of its own, which `replacing` does not know.
        except safetensors.SafetensorError as error:
            raise OSError(0, " ".join(str(error).split())) from error


def require_finite(tensors: Mapping[str, "Tensor"], path: Path) -> None:
    """Refuse tensors of a file that contain NaN or infinity."""
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise SatlibError(
                f"{path}: {name} holds values that are not finite, or beyond its number format"
            )


def packed(tensors: dict[str, "Tensor"], storage: str) -> Iterator[tuple[str, "Tensor"]]:
    """Names and tensors as they are written, in the `storage` "float32", "float16" or "int8".

    An int8 matrix is followed by the scales of its rows, "NAME:scale".
    """
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        if storage == "float32" or not value.is_floating_point():
            yield name, value
        # A vector has no rows that could share a scale, and takes little room anyway.
        elif storage == "float16" or value.dim() < 2:
            yield name, value.half()
        else:
            # The largest absolute value of a row becomes 127; a row of zeros stays zero.
            scale = value.flatten(1).abs().amax(1).clamp(min=1e-8) / 127
            yield name, (value / _along_rows(scale, value)).round().char()
            yield name + ":scale", scale


def unpacked(tensors: dict[str, "Tensor"], path: Path) -> Iterator[tuple[str, "Tensor"]]:
    """Names and float32 tensors from what `packed` gave, and a file holds.

    Raises:
        SatlibError: a matrix of 8 bits lacks the scales of its rows.
    """
    import torch

    for name, value in tensors.items():
        if name.endswith(":scale"):
            continue
        if value.dtype == torch.int8:
            scale = tensors.get(name + ":scale")
            if scale is None or scale.shape != value.shape[:1]:
                raise SatlibError(f"{path}: {name} lacks the scales of its rows; copy it again")
            value = value.float() * _along_rows(scale, value)
        elif value.is_floating_point():
            value = value.float()
        yield name, value


def _along_rows(scale: "Tensor", value: "Tensor") -> "Tensor":
    """One scale per row (N,) -> (N, 1, ...), with as many dimensions as the value (N, ...)."""
    return scale.view(-1, *[1] * (value.dim() - 1))


# --- The terminal -----------------------------------------------------------------------------

# Set by the command line's --quiet.
quiet = False


def progress_bar(iterable: Iterable[Any] | None = None, show: bool = True, **options: Any) -> tqdm:
    """A progress bar of tqdm with these options.

    It is hidden with --quiet, if `show` is false, and outside a terminal or a notebook.
    """
    # A process without a console, such as a Windows service, has no stderr.
    in_terminal = sys.stderr is not None and sys.stderr.isatty()
    in_notebook = "ipykernel" in sys.modules
    hidden = quiet or not show or not (in_notebook or in_terminal)
    return tqdm(iterable, disable=hidden, **options)


def say(line: str) -> None:
    """Write a line above the progress bars at once; nothing with --quiet."""
    if not quiet:
        tqdm.write(line)
        # A log file or a pipe would otherwise show the line only much later.
        sys.stdout.flush()


def note(line: str) -> None:
    """Write what is neither a result nor a mistake to standard error; nothing with --quiet."""
    if not quiet:
        print(line, file=sys.stderr)


# --- Memory -----------------------------------------------------------------------------------


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """A block that makes millions of objects, none of them garbage.

    Each pass of Python's collector would look through all of them: 2 seconds in 5 for a large table.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# --- Threads ----------------------------------------------------------------------------------

Item = TypeVar("Item")
Value = TypeVar("Value")


def read_ahead(
    read: Callable[[Item], Value], items: Iterable[Item], threads: int = 2
) -> Iterator[Value]:
    """Yield read(item) for each item in order, while threads read the next few."""
    items = iter(items)
    pool = ThreadPoolExecutor(threads)
    try:
        # One more than there are threads, so that none waits while the caller uses a value.
        pending = deque(pool.submit(read, item) for item in islice(items, threads + 1))
        while pending:
            value = pending.popleft().result()
            pending.extend(pool.submit(read, item) for item in islice(items, 1))
            yield value
    finally:
        # After a failure or Ctrl-C, what has not begun does not begin.
        pool.shutdown(cancel_futures=True)
