"""satlib in scripts: what docs/scripts.md promises of JSON, exit statuses and bars."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from satlib import cli
from satlib.data import scenes
from satlib.files import progress

DOC = (Path(__file__).parent.parent / "docs" / "scripts.md").read_text(encoding="utf-8")
ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def _loud():
    yield
    progress.quiet = False


@pytest.fixture
def scene(tmp_path):
    scenes.scene("test-000001").photo().save(tmp_path / "scene.png")
    return str(tmp_path / "scene.png")


def printed(capsys, *arguments):
    assert cli.main([str(argument) for argument in arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return json.loads(out)


def documented(heading):
    """The fields of the table that follows a paragraph beginning with `heading`."""
    table = DOC.split(heading, 1)[1].split("| --- | --- |", 1)[1].split("\n\n", 1)[0]
    return {name for row in table.splitlines() if row for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def fields(value, prefix=""):
    """The names of an object's fields; those of the objects in a list as "list[].field"."""
    found = set()
    for name, inner in value.items():
        found.add(prefix + name)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            found |= fields(inner[0], f"{prefix}{name}[].")
    return found


class TestJson:
    def test_caption(self, scene, tmp_path, capsys):
        (said,) = printed(
            capsys, "caption", scene, "--model", "scenes-soft", "--model", "scenes-hard", "--out", tmp_path, "--json"
        )
        assert fields(said) == documented("`satlib caption photo.jpg --json`")
        assert [caption["model"] for caption in said["captions"]] == ["scenes-soft", "scenes-hard"]
        assert " ".join(said["captions"][0]["words"]) == said["captions"][0]["caption"]
        with Image.open(said["picture"]) as picture:
            assert picture.width > 100

    def test_table(self, capsys):
        rows = printed(capsys, "table", "--json")
        assert fields(rows[0]) == documented("`satlib table --json`")
        (paper,) = [row for row in rows if row["data"] == "Flickr8k" and "Soft-Attention" in row["model"]]
        assert paper["figures"]["BLEU-1"] == 67.0
        assert not paper["ours"]
        flickr8k = [row for row in rows if row["data"] == "Flickr8k"]
        assert printed(capsys, "table", "flickr8k", "--json") == flickr8k

    def test_info(self, capsys):
        assert printed(capsys, "info", "--json")["satlib"].startswith("0.")

    @pytest.mark.slow
    def test_check(self, tmp_path, capsys):
        notebook = shutil.copy(ROOT / "exercises" / "03_captions.ipynb", tmp_path)
        assert cli.main(["check", notebook, "--only", "3.1", "--json"]) == 1
        said = json.loads(capsys.readouterr().out)
        assert fields(said) | {"troubles"} == documented("`satlib check FILE ... --json`")
        assert [(row["exercise"], row["state"]) for row in said["exercises"]] == [("3.1", "blank")]

    def test_check_does_not_overwrite_a_notebook(self, tmp_path, capsys):
        (tmp_path / "a.ipynb").write_text("mine")
        with pytest.raises(SystemExit) as stopped:
            cli.main(["check", "--json", str(tmp_path / "a.ipynb")])
        assert stopped.value.code == 2
        assert "must be a file with the ending .json" in capsys.readouterr().err
        assert (tmp_path / "a.ipynb").read_text() == "mine"


class TestEvaluateJson:
    @pytest.mark.needs_java
    def test_fields(self, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(scenes, "load", lambda load=scenes.load, **_: load(2, 2, 3))
        said = printed(capsys, "evaluate", "scenes-soft", "--out", tmp_path, "--json")
        assert fields(said) >= documented("`satlib evaluate RUN --json`")
        assert json.loads(Path(said["file"]).read_text(encoding="utf-8"))["metrics"] == said["metrics"]


def test_exit_statuses_are_documented():
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", DOC, re.MULTILINE))
    assert {int(status): text.replace("`", "") for status, text in rows.items()} == cli.EXIT


@pytest.mark.slow
@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_and_log_files(tmp_path, quiet):
    """In a process whose output is no terminal, a training says a line for each epoch and shows no bar; with --quiet, its result."""
    changes = ("data.train_images=8", "training.epochs=1", "decoder.hidden=8", "training.select=nll")
    script = "from satlib.data import scenes; load = scenes.load; scenes.load = lambda **_: load(8, 2, 0); from satlib import cli; import sys; sys.exit(cli.main(sys.argv[1:]))"
    given = ["train", "scenes-soft", "--out", str(tmp_path / "run")]
    given += [part for change in changes for part in ("--set", change)]
    done = subprocess.run([sys.executable, "-c", script, *given, *["--quiet"] * quiet], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("the model of the best epoch is ")
    assert [line.split(":")[0] for line in lines[:-1][:1]] == ([] if quiet else ["epoch 1"])


def test_a_bar_is_for_somebody_who_watches(monkeypatch, capsys):
    for terminal, kernel, quiet, shown in [(0, 0, 0, 0), (1, 0, 0, 1), (0, 1, 0, 1), (1, 0, 1, 0), (1, 1, 1, 0)]:
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: bool(terminal))
        monkeypatch.setattr(progress, "quiet", bool(quiet))
        with monkeypatch.context() as patch:
            shell = SimpleNamespace(kernel=object()) if kernel else None
            patch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
            with progress.progress_bar(range(3)) as bar:
                assert (type(bar) is progress.tqdm and not bar.disable) == bool(shown)


def test_every_command_is_quiet():
    names = cli.parser()._subparsers._group_actions[0].choices
    assert not [name for name, command in names.items() if "--quiet" not in command._option_string_actions]
