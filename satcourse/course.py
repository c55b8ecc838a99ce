"""`satlib course FOLDER`: the notebooks and exercises that come with satlib, put where somebody can work in them.

The build of the package imports this module too: at the top it needs the standard library alone.
"""

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Collection
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

PACKED = Path(__file__).resolve().parent / "_course"  # in an installed package
CHECKOUT = Path(__file__).resolve().parent.parent
# What a learner needs beside satlib. Solutions and the notebooks' sources stay in the repository.
PATTERNS = (
    "notebooks/*.ipynb",
    "notebooks/INDEX.md",
    "exercises/*.ipynb",
    "exercises/conftest.py",
    "exercises/AGENTS.md",
    "examples/one_file.py",
    "docs/attention.webp",  # the first picture of notebook 00
)
# A block or a span of code, in which nothing is a link; a picture; or a link, whose label may contain a span of code.
_CODE_OR_LINK = re.compile(
    r"^(?P<fence>`{3,}).*?^(?P=fence)$|`[^`\n]+`(?!\])"
    r"|(?P<picture>!?)\[(?P<label>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)",
    re.M | re.S,
)


def course_files(root: Path) -> list[str]:
    """The paths of the course's files in a checkout or in the installed package, from its root, sorted."""
    return sorted(path.relative_to(root).as_posix() for pattern in PATTERNS for path in root.glob(pattern))


def without_outside_links(text: str, page: str, inside: Collection[str], address: str | None, version: str) -> str:
    """A page's Markdown for readers who have only some of the repository's files.

    Args:
        text: the page.
        page: its path in the repository.
        inside: paths of the files that the readers have; links to these, to their folders and to the web stay as they are.
        address: where the repository is published, such as https://github.com/OWNER/NAME; None: nobody knows.
        version: satlib's version; its tag names the state of the repository that links lead to.

    Returns:
        the page with other links leading to `address`, or, without one, as plain text and without pictures.
    """
    folders = {posixpath.dirname(path) for path in inside}

    def replaced(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        file, hash_mark, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
        if path in inside or path in folders:
            return match[0]
        if address is None:
            return "" if match["picture"] else match["label"]
        kind = "raw" if match["picture"] else "blob"
        place = f"{address.rstrip('/')}/{kind}/v{version}/{path}{hash_mark}{anchor}"
        return f"{match['picture']}[{match['label']}]({place})"

    return _CODE_OR_LINK.sub(replaced, text)


def write_course(folder: Path) -> dict[str, list[str]]:
    """Write the course's files into a folder. A file that is there already stays as it is.

    Args:
        folder: is made where it does not exist; may hold other files.

    Returns:
        paths from `folder`, by what was done: "written", "the same already", and "changed, and left as it is".

    Raises:
        SatlibError: this installation has no course, or the folder cannot be written.
    """
    from satlib.errors import SatlibError
    from satlib.files.atomic import replacing

    root = PACKED if PACKED.is_dir() else CHECKOUT
    files = course_files(root)
    if not files:
        raise SatlibError(
            f"this installation of satlib has no course ({root}): install satlib from its wheel, or clone it"
        )
    done: dict[str, list[str]] = defaultdict(list)
    for name in files:
        content, path = _content(root, name, files), folder / name
        if path.is_dir():
            raise SatlibError(f"{path} is a folder, where the course has a file; name another folder")
        if path.is_file():
            done["the same already" if path.read_bytes() == content else "changed, and left as it is"].append(name)
            continue
        with replacing(path) as partial:
            partial.write_bytes(content)
        done["written"].append(name)
    return dict(done)


def _content(root: Path, name: str, files: list[str]) -> bytes:
    """A file of the course, without links that lead outside the course's folder."""
    from satlib import __version__

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
    return dict(line.split(", ", 1) for line in lines).get("Source")
