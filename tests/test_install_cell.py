"""Where satlib is missing, a notebook's first cell has pip install it from an archive beside the
notebook.
"""

import importlib.util
import subprocess
from pathlib import Path

import pytest
from tools_path import install_cell


def test_the_cell_takes_an_archive_or_a_checkout_beside_the_notebook(tmp_path, monkeypatch):
    folder = tmp_path / "my notebooks"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SATLIB_SOURCE", raising=False)
    commands = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    # As if satlib were missing.
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    cell = install_cell.opening("notebooks/00_look.ipynb")[-1].source
    with pytest.raises(FileNotFoundError):
        exec(cell, {})

    # An archive beside the notebook is preferred to a checkout around it.
    for name in ("pyproject.toml", "../pyproject.toml", "satlib-main (1).zip"):
        Path(name).touch()
    exec(cell, {})
    address = Path("satlib-main (1).zip").resolve().as_uri()
    assert commands[0][-2:] == [
        f"satlib[course] @ {address}",
        f"satlib-models @ {address}#subdirectory=satlib-models",
    ]
