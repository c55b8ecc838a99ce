"""The programs in tools/, to import."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import editions  # noqa: F401
import install_cell  # noqa: F401
import release_check  # noqa: F401

import exercises  # noqa: F401
