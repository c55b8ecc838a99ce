"""Is each room within its budget? The limits stand in pyproject.toml, [tool.budget]; docs/contributing.md says how one is raised.

Python is counted in lines, or in units of 45 characters if that is more, so that long lines are no escape; Markdown in words.
"""

import sys
import tomllib
from pathlib import Path


def size(patterns: str) -> int:
    """Lines of Python or words of Markdown in the files that the patterns, separated by spaces, match."""
    texts = [file.read_text(encoding="utf-8") for pattern in patterns.split() for file in Path().glob(pattern)]
    if patterns.endswith(".md"):
        return sum(len(text.split()) for text in texts)
    return max(sum(text.count("\n") for text in texts), sum(map(len, texts)) // 45)


budget = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["budget"]
sizes = {room: size(room) for room in budget}
for room, limit in budget.items():
    print(f"{sizes[room]:7,} of {limit:6,}  {room}{'  OVER' * (sizes[room] > limit)}")
sys.exit(any(sizes[room] > limit for room, limit in budget.items()))
