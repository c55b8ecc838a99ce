"""The command line: from a folder of photographs to a table, JSON for scripts, exit statuses."""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import entities_files
import pytest
from PIL import Image
from refusals import refused

import satlib as package
from satlib import cli
from satlib.data import scenes
from satlib.evaluation import animation, metrics
from satlib.model import installed
from satlib.model.captioner import Captioner

DOCS = Path(__file__).parent.parent / "docs"


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
            if i < 8:
                split = "train"
            elif i < 10:
                split = "dev"
            else:
                split = "test"
            for caption in scene.captions:
                table.writerow([f"{i}.jpg", caption, split])
    return root


def changes(folder):
    """Options that make own-folder's model small, and its training short."""
    words = []
    for change in (
        f"data.name={folder}",
        "data.min_count=1",
        "decoder.embedding=16",
        "decoder.hidden=16",
        "decoder.attention_hidden=8",
        "training.epochs=1",
        "training.average=0.0",
        "decoding.max_length=6",
    ):
        words += ["--set", change]
    return words


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """Features computed and one epoch trained by the commands: (data root, run folder)."""
    root = tmp_path_factory.mktemp("root")
    common = ["own-folder", *changes(folder), "--data", root, "--device", "cpu"]
    satlib("features", *common)
    satlib("train", *common, "--out", root / "run")
    return root, root / "run"


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
    # Both commands say how many; which ones, and why, goes to standard error.
    output = capsys.readouterr()
    assert output.out.count("own: 2 of 12 images left out") == 2
    assert all(name in output.err for name in ("1.jpg", "2.jpg"))


def test_evaluate_writes_and_prints_and_the_table_shows_it(run, capsys):
    root, folder = run
    # A beam of 0.7 would fail: this notices if the two are swapped.
    decoding = ["--beam", 2, "--length-normalisation", 0.7]
    satlib("evaluate", folder, "--data", root, "--device", "cpu", *decoding)
    evaluation = json.loads((folder / "evaluation-test.json").read_text())
    assert set(evaluation["captions"]) == {"10.jpg", "11.jpg"}
    score = evaluation["metrics"]["BLEU-4"]
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["BLEU-4", f"{score:.2f}"] in printed

    satlib("table", folder, "--json")
    rows = json.loads(capsys.readouterr().out)
    (shown,) = [row["scores"]["BLEU-4"] for row in rows if row["ours"]]
    # The table has one decimal.
    assert float(shown) == pytest.approx(score, abs=0.05)


def test_captions_are_scored_from_a_file(run, tmp_path, capsys):
    root, folder = run
    common = ["--data", root, "--split", "dev"]
    satlib("evaluate", folder, *common, "--device", "cpu", "--out", tmp_path)
    evaluation = json.loads((tmp_path / "evaluation-dev.json").read_text())
    captions = tmp_path / "captions.json"
    data = Captioner.load(folder).recipe.data.name
    again = tmp_path / "again"
    # Somebody may have edited an evaluation's captions, so its own scores must be replaced.
    outdated = evaluation | {"metrics": {"BLEU-1": -1}}
    results = [
        {"image_id": int(Path(image_id).stem), "caption": text}
        for image_id, text in evaluation["captions"].items()
    ]
    for content in (outdated, evaluation["captions"], results):
        captions.write_text(json.dumps(content))
        satlib("evaluate", captions, *common, "--data-set", data, "--out", again)
        scores = json.loads((again / "evaluation-dev.json").read_text())["metrics"]
        # Those of the attention maps are missing: a file of captions has none.
        assert scores.items() <= evaluation["metrics"].items()

    assert "give --data-set and --split" in mistake(capsys, "evaluate", captions)
    assert "docs/scripts.md" in mistake(capsys, "evaluate", "captions.csv")


def test_ground_by_entities(run, folder, tmp_path, capsys):
    """The box of every reference's first word is a whole photograph; the other one has no boxes."""
    with open(folder / "captions.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["image"] == "10.jpg"]
    references = [row["caption"] for row in rows][:5]

    # As Entities writes them: the first word is a phrase, and its entity has the number 1.
    captions = []
    for text in references:
        first, rest = text.split(" ", 1)
        captions.append(f"[/EN#1/other {first}] {rest}")
    everything = (("1",), (0, 0, 224, 224))
    xml = entities_files.annotation((224, 224), (everything,))
    path = entities_files.write(tmp_path / "entities", {"10": (xml, captions)})

    root, model = run
    common = ["--data", root, "--device", "cpu", "--out", tmp_path]
    satlib("ground", model, *common, "--entities", path)
    report = json.loads((tmp_path / "ground-test.json").read_text())["true"]["all"]
    assert report["words"] == len(set(references))
    # Wherever the model looks, it looks into a box that is the whole photograph.
    assert report["peak"] == 100
    assert report["mass"] == pytest.approx(100)
    assert "written to" in capsys.readouterr().out


def test_caption_gives_json_and_a_picture_for_each_photograph(run, folder, tmp_path, capsys):
    """Also for photographs of one name; if one cannot be read, the status is 1."""
    other = tmp_path / "other" / "3.jpg"
    other.parent.mkdir()
    other.write_bytes((folder / "4.jpg").read_bytes())
    broken = tmp_path / "page.jpg"
    broken.write_text("<html>")
    photos = [folder / "3.jpg", broken, other]

    common = ["--model", run[1], "--out", tmp_path]
    satlib("caption", *photos, *common, "--beam", 2, "--best", 4, "--json", status=1)
    output = capsys.readouterr()
    assert "cannot read the image" in output.err
    results = json.loads(output.out)
    assert [result["image"] for result in results] == [str(folder / "3.jpg"), str(other)]
    assert results[0].keys() == {"image", "picture", "animation", "captions"}
    keys = {"model", "caption", "words", "log_probability", "score", "true_of_such"}
    assert results[0]["captions"][0].keys() == keys

    # Four captions need a beam of four, though two were asked for.
    (captions,) = Captioner.load(run[1]).captions([other], beam=4)
    assert len(captions) == 4
    words = [caption.words for caption in captions]
    assert [each["words"] for each in results[1]["captions"]] == words
    first, second = (Path(result["picture"]).read_bytes() for result in results)
    assert first != second


def test_caption_prints_each_caption_above_its_photograph(run, folder, tmp_path, capsys):
    paths = [folder / f"{number}.jpg" for number in range(6)]
    satlib("caption", *paths, "--model", run[1], "--table", tmp_path / "six.csv")
    captions = Captioner.load(run[1]).caption(paths)
    expected = []
    for path, caption in zip(paths, captions, strict=True):
        expected += [caption.text, f"  {path}; score {caption.confidence:.2f}"]
    assert capsys.readouterr().out.splitlines() == expected


def test_caption_ends_with_2_if_it_can_read_nothing(run, tmp_path, capsys):
    page = tmp_path / "page.jpg"
    page.write_text("<html>")
    assert "cannot read the image" in mistake(capsys, "caption", page, "--model", run[1])

    empty = tmp_path / "empty"
    empty.mkdir()
    line = mistake(capsys, "caption", empty, "--model", run[1])

    assert line == f"satlib: {empty} has no images; check the path\n"


def test_a_folder_is_captioned_into_a_table(run, tmp_path, capsys, monkeypatch):
    # The comma in the name must not begin another column.
    photos = tmp_path / "lakes, 2024"
    for number in range(5):
        # The last two are in a folder inside the folder.
        file = photos / ("inside" if number > 2 else "") / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        scenes.scene(f"test-{number:06}").photo().save(file)

    table = tmp_path / "t.csv"
    command = ["caption", photos, "--model", run[1], "--table", table]
    satlib(*command)
    whole = table.read_text(encoding="utf-8")
    names = ("0.png", "1.png", "2.png", "inside/3.png", "inside/4.png")
    images = [row["image"] for row in csv.DictReader(whole.splitlines())]
    assert images == [str(photos / name) for name in names]

    capsys.readouterr()
    satlib(*command)
    assert capsys.readouterr().err == f"not in {table} yet: 0\n"

    # What is left cannot be read: status 1, for the table has the others; 2 if it has none.
    (photos / "5.png").write_text("<html>")
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path))
    satlib(*command[:-1], "~/t.csv", status=1)
    satlib(*command[:-1], tmp_path / "new.csv", "--beam", 1, status=1)
    satlib("caption", photos / "5.png", *command[2:-1], tmp_path / "empty.csv", status=2)
    (photos / "5.png").unlink()
    capsys.readouterr()

    # How much is left to do is no result.
    satlib(*command, "--quiet")
    output = capsys.readouterr()
    assert output.out + output.err == ""


def test_a_script_captions_a_folder(run, folder, tmp_path, monkeypatch, capsys):
    """The lines of docs/scripts.md, and what else `caption_folder` says of a photograph."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "PHOTOGRAPHS", run[1])  # a small model in place of the default
    photos = Path("photographs")
    photos.mkdir()
    for name in ("0.jpg", "2.jpg"):
        shutil.copy(folder / name, photos)
    (photos / "1.jpg").write_text("<html>")

    text = (DOCS / "scripts.md").read_text(encoding="utf-8")
    folder_lines, score_lines = re.findall(
        r"^```python\n([^`]+machine-captions[^`]+)```$", text, re.MULTILINE
    )
    exec(folder_lines, {})
    printed = capsys.readouterr().out
    captions = Captioner.load(run[1]).caption([photos / "0.jpg", photos / "2.jpg"])
    assert f"{photos / '0.jpg'} {captions[0].text}\n" in printed
    assert f"{photos / '2.jpg'} {captions[1].text}\n" in printed
    assert "cannot read the image photographs/1.jpg" in printed.replace("\\", "/")

    # What is in the table is left out; what could not be read is tried again.
    (again,) = package.caption_folder("photographs", table="machine-captions.csv")
    assert again.path == photos / "1.jpg"
    assert again.error
    assert not again.captions

    # Scored against a person's, as the page does it.
    references = {"0.jpg": ["a red circle"], "2.jpg": ["a green square"]}
    lines = "image,caption\n0.jpg,a red circle\n2.jpg,a green square\n"
    (photos / "captions.csv").write_text(lines, encoding="utf-8")
    texts = {"0.jpg": captions[0].text, "2.jpg": captions[1].text}
    exec(score_lines, {})
    printed = capsys.readouterr().out
    assert f"BLEU-1 {metrics.bleu(texts, references)['BLEU-1']:.1f}\n" in printed
    assert "CIDEr" in printed


def test_captions_are_drawn_and_their_variety_is_told(run, folder, tmp_path, capsys):
    photos = [folder / "3.jpg", folder / "4.jpg"]
    common = ["caption", *photos, "--model", run[1], "--table", tmp_path / "drawn.csv"]
    satlib(*common, "--sample", 5, "--temperature", 2, "--seed", 3)
    *captions, variety = capsys.readouterr().out.splitlines()
    first, second = Captioner.load(run[1]).samples(photos, 5, temperature=2.0, seed=3)
    assert captions[:5] == [caption.text or "(no words)" for caption in first]

    distinct = len({each.text for each in first}) + len({each.text for each in second})
    words = {word for each in first + second for word in each.words}
    expected = f"10 captions of 2 photographs: {distinct} distinct, {len(words)} words"
    assert variety == expected

    # The best ones are told of likewise, a single one is not.
    satlib(*common, "--best", 3)
    assert capsys.readouterr().out.splitlines()[-1].startswith("6 captions of 2 photographs: 6 ")
    satlib(*common, "--beam", 1)
    assert "distinct" not in capsys.readouterr().out

    for words in (["--sample", 2, "--best", 2], ["--sample", 2, "--beam", 2], ["--seed", 1]):
        assert re.search("go with(out)? --sample", mistake(capsys, *common, *words))
    assert "0.01 to 100" in mistake(capsys, *common, "--quiet", "--sample", 9, "--temperature", 0)


def test_caption_animates(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(animation, "LONGER_SIDE", 96)  # pixels, for speed
    common = ["--model", "scenes-soft", "--out", tmp_path]
    satlib("caption", folder / "3.jpg", *common, "--animate", "--json")
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

        nowhere = ["--data", tmp_path / "nowhere"]
        line = mistake(capsys, "train", "flickr8k-soft", *nowhere)
        assert "satlib data fetch flickr8k" in line

        line = mistake(capsys, "export", run[1], tmp_path / "model.pt")
        assert "must end in .safetensors" in line
        assert "neither a file nor a data set" in mistake(capsys, "table", "flickr9k")

        # Without its features, which another root has.
        common = ["own-folder", *changes(folder), "--data", tmp_path, "--out", tmp_path / "run"]
        # With --start, the encoder is the model's, which satlib features would not know.
        lacking = mistake(capsys, "train", *common)
        assert "run satlib features" in lacking
        assert "encoder.name=" in lacking


def test_help_lists_every_command_without_importing_torch():
    # Whoever asks for help should not wait for torch, which takes more than a second to import.
    # In a process of its own, because this one has imported everything.
    code = """
import sys
from satlib import cli
try:
    cli.main(["--help"])
finally:
    assert not {"torch", "torchvision", "matplotlib", "nltk"} & sys.modules.keys()
"""
    command = [sys.executable, "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)

    # The last two are satcourse's, by an entry point.
    for command in (*cli.COMMANDS, "check", "demo"):
        assert f"\n  {command} " in process.stdout


def test_where_nothing_can_be_written(folder, tmp_path, capsys):
    """One line: as on a read-only disk, but that a file is in the way."""
    (tmp_path / "features").touch()
    common = ["own-folder", *changes(folder), "--data", tmp_path, "--device", "cpu"]
    assert str(tmp_path / "features") in mistake(capsys, "features", *common)
    run = tmp_path / "features" / "run"
    common += ["--set", "encoder.name=small", "--set", "encoder.train=true"]
    common += ["--set", "encoder.pretrained=false"]
    assert str(run) in mistake(capsys, "train", *common, "--out", run)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_full_disk(folder, tmp_path, capsys, monkeypatch):
    common = ["own-folder", *changes(folder), "--data", tmp_path, "--device", "cpu"]
    touch = Path.touch

    def full(path):
        if path.name == "annotations.f16":
            path.symlink_to("/dev/full")
        else:
            touch(path)

    monkeypatch.setattr(Path, "touch", full)
    line = mistake(capsys, "features", *common, "--quiet")
    assert "annotations.f16: No space left on device; free some space" in line


def test_what_may_have_been_meant(capsys):
    assert "no command captoin; did you mean caption?" in mistake(capsys, "captoin", "a.jpg")
    for number in ("0", "1001", "9" * 5000):
        with pytest.raises(SystemExit):
            cli.main(["caption", "a.jpg", "--beam", number])
        assert "must be a whole number of 1 to 1000" in capsys.readouterr().err


def test_the_page_says_that_it_needs_node(monkeypatch):
    """Also where npm, or what it once fetched, is there."""
    live = pytest.importorskip("satlib.page.live")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "node" else name)
    refused(live._runtime, "install Node.js")
