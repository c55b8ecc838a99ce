"""The cells at a notebook's beginning: Colab's badge where the repository has an address, and the cell that installs satlib."""

import tomllib
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
FROM_ADDRESS = """\
# On Colab, or wherever satlib is missing, this cell installs it; otherwise it does nothing.
import importlib.util
import os
import subprocess
import sys

if importlib.util.find_spec("satlib") is None:
    source = os.environ.get("SATLIB_SOURCE", "git+{address}")
    packages = f"satlib[course] @ {{source}}", f"satlib-models @ {{source}}#subdirectory=models"
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)"""
FROM_ARCHIVE = """\
# Where satlib is missing, this cell installs it; otherwise it does nothing.
# It takes an archive of the repository (satlib*.zip, satlib*.tar.gz) or a checkout beside this notebook; on Colab, upload one.
import glob
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("satlib") is None:
    kinds = "satlib-*.whl", "satlib*.zip", "satlib*.tar.gz", "satlib*/pyproject.toml", "../pyproject.toml"
    found = [os.environ.get("SATLIB_SOURCE", ""), *(path for kind in kinds for path in sorted(glob.glob(kind)))]
    if not any(found) and "google.colab" in sys.modules:
        from google.colab import files

        print("Choose an archive of satlib's repository, a .zip or .tar.gz file:")
        found = list(files.upload())
    source = next(filter(None, found), None)
    if source is None:
        raise FileNotFoundError("put an archive of satlib's repository, satlib*.zip, beside this notebook and run this cell again")
    url = source if "://" in source else Path(source.removesuffix("pyproject.toml")).resolve().as_uri()
    models = [f"satlib-models @ {url}#subdirectory=models"]
    if url.endswith(".whl"):
        models = [path.resolve().as_uri() for path in Path().glob("satlib_models-*.whl")]
    packages = [f"satlib[course] @ {url}", *models]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *packages], check=True)"""


def address() -> str | None:
    """Where the repository is published, or None where nobody knows: pyproject.toml is the one place that says it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Source")


def opening(path: str) -> list[NotebookNode]:
    """The cells after a notebook's first: Colab's badge where the repository has an address, and the one that installs satlib.

    Args:
        path: the notebook's, from the repository's root.
    """
    at, marked = address(), {"tags": ["install"], "jupyter": {"source_hidden": True}}  # folded
    if at is None:
        return [nbformat.v4.new_code_cell(FROM_ARCHIVE, metadata=marked)]
    colab = "https://colab.research.google.com"
    page = f"{colab}/{at.removeprefix('https://').replace('github.com', 'github')}/blob/main/{path}"
    badge = f"[![Open in Colab]({colab}/assets/colab-badge.svg)]({page})"
    install = nbformat.v4.new_code_cell(FROM_ADDRESS.format(address=at), metadata=marked)
    return [nbformat.v4.new_markdown_cell(badge), install]
