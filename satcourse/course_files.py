"""Which files of the repository are the course, and their links outside it. Standard library alone: the build of the package imports it."""

import posixpath
import re
from collections.abc import Collection
from pathlib import Path

# What a learner needs beside satlib. Solutions and the notebooks' sources stay in the repository.
PATTERNS = (
    "notebooks/*.ipynb",
    "notebooks/INDEX.md",
    "exercises/*.ipynb",
    "exercises/conftest.py",
    "examples/one_file.py",
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

    def replaced(found: re.Match[str]) -> str:
        target = found["target"]
        if target is None or "://" in target or target.startswith(("#", "mailto:")):
            return found[0]
        file, hash_mark, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
        if path in inside or path in folders:
            return found[0]
        if address is None:
            return "" if found["picture"] else found["label"]
        kind = "raw" if found["picture"] else "blob"
        place = f"{address.rstrip('/')}/{kind}/v{version}/{path}{hash_mark}{anchor}"
        return f"{found['picture']}[{found['label']}]({place})"

    return _CODE_OR_LINK.sub(replaced, text)
