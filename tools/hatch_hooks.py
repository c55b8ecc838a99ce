"""What hatchling asks while it builds the package: README.md as its long description."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# A label may contain code, and brackets in code do not end it.
LINK = re.compile(
    r"(?P<picture>!?)\[(?P<label>(?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)"
)


class LongDescription(MetadataHookInterface):
    """README.md with links that work outside the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Source")
        if address:
            # To this version's tag: on main, files may have moved since.
            address = f"{address.rstrip('/')}/{{}}/v{metadata['version']}/"
        text = with_outside_links(readme, address)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_outside_links(text: str, address: str | None) -> str:
    """Markdown whose relative links lead to `address`, which has a place for "blob" or "raw".

    Without an address, links become plain text, and pictures are left out.
    """

    def link(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        label = LINK.sub(link, label)  # it may be a picture
        if "://" in target or target.startswith(("#", "mailto:")):
            return f"{picture}[{label}]({target})"
        if address is None:
            return "" if picture else label

        # GitHub shows a file's page under blob, and the bytes of a picture under raw.
        return f"{picture}[{label}]({address.format('raw' if picture else 'blob')}{target})"

    # A picture for phones alone.
    text = re.sub("<source.*?>", "", text)
    return LINK.sub(link, text)
