"""The programs in tools/, to import."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import build_site  # noqa: F401
import editions  # noqa: F401
import hatch_hooks  # noqa: F401
import install_cell  # noqa: F401
import paper_index  # noqa: F401

import exercises  # noqa: F401
import notebooks  # noqa: F401
