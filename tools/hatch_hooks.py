"""What hatchling asks while it builds the package: the long description, and the files of the course that go into the wheel."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


def course_module(root: str) -> Any:
    """The module satcourse.course of this checkout, which needs nothing but the standard library."""
    sys.path.insert(0, root)
    try:
        from satcourse import course
    finally:
        sys.path.remove(root)
    return course


class LongDescription(MetadataHookInterface):
    """README.md with links that work outside the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Source")
        text = course_module(self.root).without_outside_links(readme, "README.md", (), address, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Course(BuildHookInterface):
    """Notebooks and exercises for `satlib course`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the course's files into the wheel; an editable installation finds them in the checkout."""
        if version == "editable":
            return
        for name in course_module(self.root).course_files(Path(self.root)):
            build_data["force_include"][f"{self.root}/{name}"] = f"satcourse/_course/{name}"
