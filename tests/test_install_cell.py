"""How a notebook gets satlib where it is missing: from the repository's address, or from an archive of the repository."""

import importlib.util
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from tools_path import editions, exercises, install_cell

import notebooks  # the programs in tools/, which tools_path has put on the path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "https://github.com/someone/their-satlib"


@pytest.fixture
def run_cell(tmp_path, monkeypatch):
    """Run an installing cell in a folder of its own, where satlib is missing and pip only writes down what it was asked for."""
    folder = tmp_path / "my notebooks"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SATLIB_SOURCE", raising=False)
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: asked.append(command))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    def run(cell=install_cell.FROM_ARCHIVE):
        asked.clear()
        exec(compile(cell, "<cell>", "exec"), {})
        (command,) = asked
        assert command[:5] == [sys.executable, "-m", "pip", "install", "--quiet"]
        address = command[5].removeprefix("satlib[course] @ ")
        others = [] if address.endswith(".whl") else [f"satlib-models @ {address}#subdirectory=models"]
        assert command[6:] == others + [path.resolve().as_uri() for path in Path().glob("satlib_models*")]
        return address

    run.asked = asked
    return run


def colab(monkeypatch, upload):
    """Make it look like Colab, where `upload` stands for the dialogue that asks for a file."""
    google = types.ModuleType("google.colab")
    google.files = types.SimpleNamespace(upload=upload)
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.colab", google)


def test_with_an_address_there_is_a_badge_and_pip_takes_it_from_there(monkeypatch, run_cell):
    monkeypatch.setattr(install_cell, "address", lambda: ADDRESS)
    badge, install = install_cell.opening("notebooks/00_look.ipynb")
    page = "https://colab.research.google.com/github/someone/their-satlib/blob/main/notebooks/00_look.ipynb"
    assert badge.source.endswith(f"({page})")
    assert run_cell(install.source) == f"git+{ADDRESS}"


@pytest.mark.parametrize("address", [ADDRESS, None])
def test_the_opening_comes_after_the_first_cell_of_notebooks_and_exercises(monkeypatch, address):
    monkeypatch.setattr(install_cell, "address", lambda: address)
    source, solution = notebooks.sources(["01"])[0], exercises.sources(["01"])[0]
    for path, notebook in [
        (f"notebooks/{source.stem}.ipynb", notebooks.generate(source)),
        (f"exercises/{solution.stem}.ipynb", exercises.generate(solution, editions.WORK)),
        (f"solutions/{solution.stem}.ipynb", exercises.generate(solution, editions.SOLVED)),
    ]:
        wanted = [cell.source for cell in install_cell.opening(path)]
        assert len(wanted) == (1 if address is None else 2)
        assert address is not None or "://github.com" not in wanted[0]
        assert [cell.source for cell in notebook.cells[1 : 1 + len(wanted)]] == wanted


def test_an_archive_a_wheel_or_a_checkout_beside_the_notebook(run_cell):
    names = "satlib-main.zip", "satlib.zip", "satlib-1.0.tar.gz", "satlib-main (1).zip", "satlib-1.0-py3-none-any.whl"
    for name in names:
        Path(name).touch()
        assert run_cell() == Path(name).resolve().as_uri()
        assert " " not in run_cell()  # pip reads an address
        Path(name).unlink()
    for name in ("satlib-1.0-py3-none-any.whl", "satlib_models-1.0-py3-none-any.whl"):
        Path(name).touch()
    assert run_cell() == Path("satlib-1.0-py3-none-any.whl").resolve().as_uri()
    for name in Path().glob("*.whl"):
        name.unlink()
    for folder in ("satlib-main", ".."):
        Path(folder).mkdir(exist_ok=True)
        (Path(folder) / "pyproject.toml").touch()
        assert run_cell() == Path(folder).resolve().as_uri()
        (Path(folder) / "pyproject.toml").unlink()


def test_colab_asks_for_the_archive_where_there_is_none(run_cell, monkeypatch, capsys):
    with pytest.raises(
        FileNotFoundError, match=r"put an archive of satlib's repository, satlib\*\.zip, beside this notebook"
    ):
        run_cell()
    colab(monkeypatch, dict)  # the dialogue is cancelled
    with pytest.raises(FileNotFoundError, match="put an archive"):
        run_cell()
    colab(monkeypatch, lambda: {"whatever-main.zip": b"PK"})
    assert run_cell() == Path("whatever-main.zip").resolve().as_uri()
    assert "Choose an archive of satlib's repository" in capsys.readouterr().out
    colab(monkeypatch, lambda: pytest.fail("it asks"))
    Path("satlib.zip").touch()
    assert run_cell() == Path("satlib.zip").resolve().as_uri()


@pytest.mark.slow
def test_pip_installs_from_a_real_archive(tmp_path):
    """An archive as GitHub makes it, with one folder at the top; without network and dependencies."""
    pytest.importorskip("pip", reason="this environment was made without pip")
    pytest.importorskip("hatchling", reason="hatchling is not installed (pip install hatchling)")
    modules = [f"{name}/{path.name}" for name in ("satlib", "satcourse") for path in (ROOT / name).glob("*.py")]
    files = ["pyproject.toml", "README.md", "LICENSE", "models", "tools/hatch_hooks.py", *modules]
    archive = str(tmp_path / "satlib-main.zip")
    command = ["git", "archive", "--format=zip", "--prefix=satlib-main/", "-o", archive, "HEAD"]
    made = subprocess.run([*command, *files], cwd=ROOT, capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"git cannot archive the checkout: {made.stderr.strip()}")
    target = tmp_path / "site"
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_TARGET": str(target)}
    environment = {name: value for name, value in os.environ.items() if name != "SATLIB_SOURCE"} | offline
    missing = "import importlib.util; importlib.util.find_spec = lambda name: None\n"
    command = [sys.executable, "-c", missing + install_cell.FROM_ARCHIVE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (target / "satlib" / "__init__.py").is_file()
    assert (target / "satlib_models" / "flickr8k-lite0-boxes.safetensors").is_file()
    assert len(list(target.glob("satlib-*.dist-info"))) == 1
