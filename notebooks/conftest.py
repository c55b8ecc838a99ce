"""Let nbval wait longer than 5 s for a cell's outputs: on a busy machine it would give up, and every later cell would fail."""

from typing import Any


def pytest_itemcollected(item: Any) -> None:
    """Called by pytest for each cell."""
    if hasattr(item, "output_timeout"):
        item.output_timeout = 120
