"""The cells at a notebook's beginning.

They are Colab's badge, where the repository has an address, and the cell that installs satlib.
"""

import tomllib
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell

ROOT = Path(__file__).resolve().parent.parent
# SATLIB_SOURCE may say what git clones; otherwise it is the repository's address, or an archive or a
# checkout of it beside the notebook. The folder stays: the course's photographs are in no package.
INSTALL = """\
# On Colab, or wherever satlib is missing, this cell installs it; otherwise it does nothing.
import importlib.util
import os
import shutil
import subprocess
import sys
from glob import glob
from pathlib import Path

if importlib.util.find_spec("satlib") is None:
    address = os.environ.get("SATLIB_SOURCE", "{address}")
    if not glob("satlib*/pyproject.toml"):
        if address:
            subprocess.run(["git", "clone", "--quiet", "--depth", "1", address, "satlib"], check=True)
        for archive in glob("satlib*.zip") + glob("satlib*.tar.gz"):
            shutil.unpack_archive(archive)
    folders = sorted(glob("satlib*/pyproject.toml")) + glob("../pyproject.toml")
    if not folders:
        raise FileNotFoundError("put an archive of satlib's repository, satlib*.zip, beside this notebook and run this cell again")
    folder = Path(folders[0]).resolve().parent
    packages = f"{{folder}}[course]", f"{{folder}}/satlib-models"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)"""


def opening(path: str) -> list[NotebookNode]:
    """The cells after a notebook's first; `path` is the notebook's, from the repository's root."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    address = project.get("urls", {}).get("Source")

    install = new_code_cell(
        INSTALL.format(address=address or ""),
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
