"""What hatchling asks while it builds the package: README.md as its long description."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)\[(?P<label>(?:`[^`]*`|[^\[\]`])*)\]\((?P<target>[^)\s]+)\)")


class LongDescription(MetadataHookInterface):
    """README.md with links that work outside the repository."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set `readme`."""
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = metadata.get("urls", {}).get("Source")
        text = with_outside_links(
            readme, address and f"{address.rstrip('/')}/{{}}/v{metadata['version']}/"
        )
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def with_outside_links(text: str, address: str | None) -> str:
    """Markdown whose relative links lead to `address`, which has a place for "blob" or "raw"; without one, as plain text, without pictures."""

    def link(match: re.Match[str]) -> str:
        picture, label, target = match.groups()
        if "://" in target or target.startswith(("#", "mailto:")):
            return match[0]
        if address is None:
            return "" if picture else label
        return f"{picture}[{label}]({address.format('raw' if picture else 'blob')}{target})"

    return LINK.sub(link, text)
