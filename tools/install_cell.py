"""The cells at a notebook's beginning.

They are Colab's badge, where the repository has an address, and the cell that installs satlib.
"""

import tomllib
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

ROOT = Path(__file__).resolve().parent.parent
# SATLIB_SOURCE may say where pip finds the repository; otherwise it is the repository's address, or
# an archive or a checkout of it beside the notebook.
INSTALL = """\
# On Colab, or wherever satlib is missing, this cell installs it; otherwise it does nothing.
import importlib.util
import os
import subprocess
import sys
from glob import glob
from pathlib import Path

if importlib.util.find_spec("satlib") is None:
    source = os.environ.get("SATLIB_SOURCE", "{address}")
    if not source:
        kinds = "satlib*.zip", "satlib*.tar.gz", "satlib*/pyproject.toml", "../pyproject.toml"
        archives = [path for kind in kinds for path in sorted(glob(kind))]
        if not archives:
            raise FileNotFoundError("put an archive of satlib's repository, satlib*.zip, beside this notebook and run this cell again")
        source = Path(archives[0].removesuffix("pyproject.toml")).resolve().as_uri()
    packages = f"satlib[course] @ {{source}}", f"satlib-models @ {{source}}#subdirectory=satlib-models"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)"""


def opening(path: str) -> list[NotebookNode]:
    """The cells after a notebook's first; `path` is the notebook's, from the repository's root."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Source")

    install = new_code_cell(
        INSTALL.format(address=f"git+{address}" if address else ""),
        # Folded: learners should meet the subject first.
        metadata={"tags": ["install"], "jupyter": {"source_hidden": True}},
    )
    if address is None:
        return [install]

    # Colab opens github.com/OWNER/NAME under /github/OWNER/NAME.
    colab = "https://colab.research.google.com"
    repository = address.removeprefix("https://").replace("github.com", "github")
    page = f"{colab}/{repository}/blob/main/{path}"
    badge = new_markdown_cell(f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({page})")
    return [badge, install]
