"""Where satlib is missing, a notebook's first cell has pip install it from an archive beside the
notebook, or from a clone.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

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
    Path("../pyproject.toml").touch()
    with ZipFile("satlib-main (1).zip", "w") as archive:
        archive.writestr("satlib-main/pyproject.toml", "")
    exec(cell, {})
    checkout = Path("satlib-main").resolve()
    assert commands[-1][-2:] == [f"{checkout}[course]", f"{checkout}/satlib-models"]
    # Now it is there, nothing is fetched.
    monkeypatch.setenv("SATLIB_SOURCE", "https://example.org/satlib")
    exec(cell, {})
    assert len(commands) == 2
    shutil.rmtree(checkout)
    exec(cell, {})
    assert commands[2][:2] == ["git", "clone"]
    assert commands[2][-2:] == ["https://example.org/satlib", "satlib"]
