"""The command line: the whole way from a folder of photographs to a table, JSON for scripts, and exit statuses."""

import csv
import json
import shutil
import subprocess
import sys

import entities_files
import pytest
from PIL import Image

from satlib import cli, files
from satlib.data import scenes
from satlib.evaluation import animation
from satlib.model.captioner import Captioner


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twelve drawn scenes as photographs of somebody's own."""
    root = tmp_path_factory.mktemp("own") / "my scenes"
    root.mkdir()
    with open(root / "captions.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "split"])
        for i in range(12):
            scene = scenes.scene(f"train-{i:06}")
            scene.photo().save(root / f"{i}.jpg")
            split = "dev" if i in (8, 9) else "test" if i > 9 else "train"
            table.writerows([f"{i}.jpg", caption, split] for caption in scene.captions)
    return root


def changes(folder):
    values = {
        "data.name": folder, "data.min_count": 1, "decoder.embedding": 16, "decoder.hidden": 16,
        "decoder.attention_hidden": 8, "training.epochs": 1, "training.average": 0.0, "decoding.max_length": 6,
    }  # fmt: skip
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """Features computed and one epoch trained by the commands: (data root, run folder)."""
    root = tmp_path_factory.mktemp("root")
    common = ["own-folder", *changes(folder), "--data", root, "--device", "cpu"]
    satlib("features", *common)
    satlib("train", *common, "--out", root / "run")
    return root, root / "run"


@pytest.fixture(autouse=True)
def _loud():
    yield
    files.quiet = False


def satlib(*words, status=0):
    assert cli.main([str(word) for word in words]) == status


def mistake(capsys, *words):
    """The one line that a command prints about a mistake."""
    capsys.readouterr()
    satlib(*words, status=2)
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("satlib: ")
    assert output.err.count("\n") == 1
    return output.err


def test_broken_images_are_left_out_when_asked(folder, tmp_path, capsys):
    shutil.copytree(folder, tmp_path / "own")
    (tmp_path / "own" / "1.jpg").write_text("<html>")
    (tmp_path / "own" / "2.jpg").unlink()
    common = ["own-folder", *changes(tmp_path / "own"), "--data", tmp_path, "--device", "cpu"]
    assert "2.jpg" in mistake(capsys, "features", *common)
    satlib("features", *common, "--skip-broken")
    satlib("train", *common, "--skip-broken", "--out", tmp_path / "run")
    output = capsys.readouterr()
    assert output.out.count("own: 2 of 12 images left out") == 2
    assert all(name in output.err for name in ("1.jpg", "2.jpg"))


def test_evaluate_writes_and_prints_and_the_table_shows_it(run, capsys):
    root, folder = run
    satlib("evaluate", folder, "--data", root, "--device", "cpu", "--beam", 2)
    evaluation = json.loads((folder / "evaluation-test.json").read_text())
    assert set(evaluation["captions"]) == {"10.jpg", "11.jpg"}
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["BLEU-4", f"{evaluation['metrics']['BLEU-4']:.2f}"] in printed
    satlib("table", folder, "--json")
    rows = json.loads(capsys.readouterr().out)
    (bleu,) = [row["scores"]["BLEU-4"] for row in rows if row["ours"]]
    assert float(bleu) == pytest.approx(evaluation["metrics"]["BLEU-4"], abs=0.05)


def test_captions_are_scored_from_a_file(run, tmp_path, capsys):
    root, folder = run
    common = ["--data", root, "--split", "dev"]
    satlib("evaluate", folder, *common, "--device", "cpu", "--out", tmp_path)
    evaluation = json.loads((tmp_path / "evaluation-dev.json").read_text())
    (tmp_path / "captions.json").write_text(json.dumps(evaluation["captions"]))
    data = Captioner.load(folder).recipe.data.name
    satlib(
        "evaluate",
        tmp_path / "captions.json",
        *common,
        "--data-set",
        data,
        "--out",
        tmp_path / "again",
    )
    again = json.loads((tmp_path / "again" / "evaluation-dev.json").read_text())
    assert again["metrics"].items() <= evaluation["metrics"].items()
    assert "give --data-set and --split" in mistake(capsys, "evaluate", tmp_path / "captions.json")


def test_ground_by_entities(run, folder, tmp_path, capsys):
    """Every reference's first word has all of one photograph as its box; the other photograph has no annotations."""
    with open(folder / "captions.csv", encoding="utf-8") as file:
        references = [row["caption"] for row in csv.DictReader(file) if row["image"] == "10.jpg"][
            :5
        ]
    captions = [
        f"[/EN#1/other {first}] {rest}"
        for first, rest in (text.split(" ", 1) for text in references)
    ]
    xml = entities_files.annotation((224, 224), ((("1",), (0, 0, 224, 224)),))
    path = entities_files.write(tmp_path / "entities", {"10": (xml, captions)})
    satlib(
        "ground", run[1], "--data", run[0], "--device", "cpu", "--out", tmp_path, "--entities", path
    )
    report = json.loads((tmp_path / "ground-test.json").read_text())["true"]["all"]
    assert report["words"] == len(set(references))
    assert report["peak"] == 100
    assert report["mass"] == pytest.approx(100)
    assert "written to" in capsys.readouterr().out


def test_caption_gives_json_and_a_picture_for_each_photograph(run, folder, tmp_path, capsys):
    """Also for photographs of one name; a file that is no photograph is left out, and the status is 1."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "3.jpg").write_bytes((folder / "4.jpg").read_bytes())
    (tmp_path / "page.jpg").write_text("<html>")
    photos = [folder / "3.jpg", tmp_path / "page.jpg", tmp_path / "other" / "3.jpg"]
    satlib(
        "caption",
        *photos,
        "--model",
        run[1],
        "--out",
        tmp_path,
        "--beam",
        2,
        "--best",
        4,
        "--json",
        status=1,
    )
    output = capsys.readouterr()
    assert "cannot read the image" in output.err
    results = json.loads(output.out)
    assert [result["image"] for result in results] == [str(photos[0]), str(photos[2])]
    assert results[0].keys() == {"image", "picture", "animation", "captions"}
    assert results[0]["captions"][0].keys() == {
        "model",
        "caption",
        "words",
        "log_probability",
        "confidence",
    }
    (captions,) = Captioner.load(run[1]).captions([photos[2]], beam=4)
    assert [each["words"] for each in results[1]["captions"]] == [
        caption.words for caption in captions
    ]
    assert len(captions) == 4
    assert (tmp_path / "3.png").read_bytes() != (tmp_path / "3-2.png").read_bytes()
    satlib("caption", tmp_path / "page.jpg", "--model", run[1], status=2)
    paths = [folder / f"{number}.jpg" for number in range(6)]
    satlib("caption", *paths, "--model", run[1], "--table", tmp_path / "six.csv")
    captions = zip(paths, Captioner.load(run[1]).caption(paths), strict=True)
    expected = [(each.text, f"  {path}; {each.confidence:.0%} sure") for path, each in captions]
    lines = capsys.readouterr().out.splitlines()
    assert list(zip(lines[::2], lines[1::2], strict=True)) == expected


def test_a_folder_is_captioned_into_a_table_that_a_stop_leaves_whole(run, tmp_path, capsys):
    for number in range(5):
        scene = scenes.scene(f"test-{number:06}").photo()
        file = tmp_path / "photos" / ("inside" if number > 2 else "") / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        scene.save(file)
    table, command = (
        tmp_path / "t.csv",
        ["caption", tmp_path / "photos", "--model", run[1], "--table"],
    )
    satlib(*command, table)
    whole = table.read_text(encoding="utf-8")
    assert [row["image"] for row in csv.DictReader(whole.splitlines())] == [
        str(tmp_path / "photos" / name)
        for name in ("0.png", "1.png", "2.png", "inside/3.png", "inside/4.png")
    ]
    table.write_text("".join(whole.splitlines(keepends=True)[:4]), encoding="utf-8")  # after a stop
    capsys.readouterr()
    satlib(*command, table)
    assert table.read_text(encoding="utf-8") == whole
    assert capsys.readouterr().out.count("sure") == 2


def test_caption_animates(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(animation, "LONGER_SIDE", 96)
    satlib(
        "caption",
        folder / "3.jpg",
        "--model",
        "scenes-soft",
        "--out",
        tmp_path,
        "--animate",
        "--json",
    )
    (result,) = json.loads(capsys.readouterr().out)
    with Image.open(result["animation"]) as walk:
        assert walk.n_frames == len(result["captions"][0]["words"])


def test_info_prints_versions_or_what_a_models_file_says(run, capsys):
    satlib("info", "--json")
    assert json.loads(capsys.readouterr().out)["satlib"].startswith("0.")
    satlib("info", run[1], "--json")
    assert "model.safetensors" in json.loads(capsys.readouterr().out)["file"]


class TestMistakes:
    """A line on standard error and status 2; what modules say of bad input is tested with them."""

    def test_no_such_file_model_or_data_set(self, capsys, run, folder, tmp_path):
        assert "no.jpg does not exist" in mistake(capsys, "caption", tmp_path / "no.jpg")
        assert "no_run does not exist" in mistake(capsys, "evaluate", tmp_path / "no_run")
        assert "satlib data fetch flickr8k" in mistake(
            capsys, "train", "flickr8k-soft", "--data", tmp_path / "nowhere"
        )
        assert "must end in .safetensors" in mistake(
            capsys, "export", run[1], tmp_path / "model.pt"
        )
        assert "no file and no data set" in mistake(capsys, "table", "flickr9k")
        common = ["own-folder", *changes(folder), "--data", tmp_path, "--out", tmp_path / "run"]
        assert "run satlib features" in mistake(capsys, "train", *common)


def test_help_lists_every_command_without_importing_torch():
    code = (
        "import sys\nfrom satlib import cli\ntry:\n cli.main(['--help'])\n"
        "finally:\n assert not {'torch', 'torchvision', 'matplotlib', 'nltk'} & sys.modules.keys()"
    )
    listing = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for command in (*cli.COMMANDS, "check", "demo"):
        assert f"\n  {command} " in listing
