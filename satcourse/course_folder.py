"""`satlib course FOLDER`: the notebooks and exercises that come with satlib, put where somebody can work in them."""

import hashlib
import json
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

from satcourse.course_files import course_files, without_outside_links
from satlib import __version__
from satlib.errors import SatlibError
from satlib.files.atomic import read_json, replacing, write_json

PACKED = Path(__file__).resolve().parent / "_course"  # in an installed package
CHECKOUT = Path(__file__).resolve().parent.parent
RECORD = ".satlib-course.json"  # in the folder: the SHA-256 of each file as satlib wrote it


def write_course(folder: Path) -> dict[str, list[str]]:
    """Write the course's files into a folder. A file that somebody has changed stays as it is.

    Args:
        folder: is made where it does not exist; may hold an earlier version of the course, and other files.

    Returns:
        paths from `folder`, by what was done: "written", "brought up to date", "the same already", and "changed by you, and left
        as it is".

    Raises:
        SatlibError: this installation has no course, or the folder cannot be written.
    """
    root = PACKED if PACKED.is_dir() else CHECKOUT
    files = course_files(root)
    if not files:
        raise SatlibError(
            f"this installation of satlib has no course ({root}): install satlib from its wheel, or clone it"
        )
    record = folder / RECORD
    known = (
        read_json(record, dict[str, str], "a record of satlib course", "delete it; your files stay")
        if record.is_file()
        else {}
    )
    done: dict[str, list[str]] = defaultdict(list)
    for name in files:
        content, path = _content(root, name, files), folder / name
        there = _there(path)
        if there is None:
            _write(path, content)
            done["written"].append(name)
        elif there == content:
            done["the same already"].append(name)
        elif known.get(name) == _digest(there):
            _write(path, content)
            done["brought up to date"].append(name)
        else:
            done["changed by you, and left as it is"].append(name)
            continue
        known[name] = _digest(content)
    write_json(record, known)
    return dict(done)


def _content(root: Path, name: str, files: list[str]) -> bytes:
    """A file of the course, without links that lead outside the course's folder."""
    content = (root / name).read_bytes()
    if name.endswith(".md"):
        return without_outside_links(content.decode(), name, files, _address(), __version__).encode()
    if not name.endswith(".ipynb"):
        return content
    book = json.loads(content)
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            lines = without_outside_links("".join(cell["source"]), name, files, _address(), __version__)
            cell["source"] = lines.splitlines(keepends=True)
    return (json.dumps(book, ensure_ascii=False, indent=1) + "\n").encode()


def _address() -> str | None:
    """Where the repository is published, by the installed package's metadata."""
    try:
        lines = metadata("satlib").get_all("Project-URL") or []
    except PackageNotFoundError:  # run from a checkout on the Python path
        return None
    urls = dict(line.split(", ", 1) for line in lines)
    return urls.get("Source")


def _there(path: Path) -> bytes | None:
    if path.is_dir():
        raise SatlibError(f"{path} is a folder, where the course has a file; name another folder")
    return path.read_bytes() if path.is_file() else None


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as partial:
        partial.write_bytes(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
