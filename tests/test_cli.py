"""The command line: the whole way from a folder of photographs to a table, and one line for every mistake."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys

import entities_files
import pytest
import torch
from PIL import Image

from satlib import cli, recipe
from satlib.data import scenes
from satlib.evaluation import animation
from satlib.model import shipped
from satlib.model.captioner import Caption, Captioner


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
    """Features computed and one epoch trained by the commands; (data root, run folder)."""
    root = tmp_path_factory.mktemp("root")
    common = ["own-folder", *changes(folder), "--data", str(root), "--device", "cpu"]
    done("features", *common, "--batch-size", "5")
    done("train", *common, "--out", str(root / "run"))
    return root, root / "run"


def done(*words):
    """Run a command that succeeds."""
    assert cli.main([str(word) for word in words]) == 0


def mistake(capsys, *arguments):
    """The one line that a command prints about a mistake."""
    capsys.readouterr()
    try:
        status = cli.main([str(argument) for argument in arguments])
    except SystemExit as stopped:  # argparse's way
        status = stopped.code
    said = capsys.readouterr()
    assert status == 2
    assert said.out == ""
    assert said.err.startswith("satlib: ")
    assert said.err.count("\n") == 1
    assert said.err.endswith("\n")
    return said.err


class TestTheWholeWay:
    def test_evaluate_writes_and_prints(self, run, capsys):
        root, folder = run
        done("evaluate", folder, "--data", root, "--device", "cpu", "--beam", 2)
        found = json.loads((folder / "evaluation-test.json").read_text())
        assert (found["split"], found["beam"], found["images"]) == ("test", 2, 2)
        assert set(found["captions"]) == {"10.jpg", "11.jpg"}
        assert 0 < found["metrics"]["map entropy"] <= 3.892  # log 49
        assert 0 <= found["metrics"]["map movement"] <= 1
        printed = capsys.readouterr().out.splitlines()
        assert ["BLEU-4", f"{found['metrics']['BLEU-4']:.2f}"] in [line.split() for line in printed]
        done("table", folder)
        assert f"{folder.name}: own-folder, efficientnet-lite0 (whole), soft, beam 2" in capsys.readouterr().out

    def test_a_finished_run_says_so(self, run, folder, capsys):
        common = ["own-folder", *changes(folder), "--data", run[0], "--device", "cpu", "--out", run[1]]
        done("train", *common)
        assert f"{run[1]} is finished after epoch 1; raise training.epochs to train on\n" in capsys.readouterr().out

    def test_ground_by_boxes(self, run, tmp_path, capsys):
        """The first word that it says, whatever it is, is a category here, and all of every photograph is its box."""
        common = ["--data", run[0], "--device", "cpu", "--out", tmp_path]
        done("evaluate", run[1], *common)
        captions = json.loads((tmp_path / "evaluation-test.json").read_text())["captions"]
        word = " ".join(captions.values()).split()[0]
        images = [{"id": i, "file_name": f"{i}.jpg", "width": 224, "height": 224} for i in (10, 11)]
        boxes = [{"image_id": i, "category_id": 1, "bbox": [0, 0, 224, 224]} for i in (10, 11)]
        content = {"categories": [{"id": 1, "name": word}], "images": images, "annotations": boxes}
        (tmp_path / "boxes.json").write_text(json.dumps(content))
        command = ["ground", run[1], *common, "--boxes", tmp_path / "boxes.json"]
        done(*command)
        found = json.loads((tmp_path / "ground-test.json").read_text())
        overall = found["boxes"]["generated"]["all"]
        assert overall["peak"] == 100
        assert overall["mass"] == pytest.approx(100)
        assert list(found["boxes"]["generated"]["by kind"]) == [word]
        assert (tmp_path / "ground-test.png").is_file()
        assert "generated captions" in capsys.readouterr().out

    def test_ground_by_entities(self, run, folder, tmp_path, capsys):
        """Every reference's first word has all of one photograph as its box; the other photograph has no annotations."""
        with open(folder / "captions.csv", encoding="utf-8") as file:
            references = [row["caption"] for row in csv.DictReader(file) if row["image"] == "10.jpg"][:5]
        captions = [f"[/EN#1/other {first}] {rest}" for first, rest in (text.split(" ", 1) for text in references)]
        xml = entities_files.annotation((224, 224), ((("1",), (0, 0, 224, 224)),))
        path = entities_files.write(tmp_path / "entities", {"10": (xml, captions)})
        common = ["--data", run[0], "--device", "cpu", "--out", tmp_path]
        command = ["ground", run[1], *common, "--entities", path]
        done(*command)
        found = json.loads((tmp_path / "ground-test.json").read_text())
        assert found["split"] == "test"
        overall = found["entities"]["true"]["all"]
        assert overall["phrases"] == len(set(references))
        assert {overall[name] for name in ("peak", "peak centre", "peak mean map", "peak best cell")} == {100}
        assert [overall[name] for name in ("mass", "mass even", "mass best cell")] == pytest.approx([100] * 3)
        assert 0 < found["entities"]["entropy share"] <= 100
        assert found["entities"]["counts"].pop("images without annotations") == 1
        assert "true captions" in capsys.readouterr().out
        assert (tmp_path / "ground-test.png").is_file()

    def test_caption_draws_a_picture_for_each(self, run, folder, tmp_path, capsys):
        """Also for photographs of one name."""
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "3.jpg").write_bytes((folder / "4.jpg").read_bytes())
        photos = [folder / "3.jpg", folder / "4.jpg", tmp_path / "other" / "3.jpg"]
        done("caption", *photos, "--model", run[1], "--out", tmp_path / "seen")
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(": ")[0] for line in lines] == [str(photo) for photo in photos]
        pictures = {path.name: path.read_bytes() for path in (tmp_path / "seen").iterdir()}
        assert set(pictures) == {"3.png", "3-2.png", "4.png"}
        assert pictures["3.png"] != pictures["3-2.png"]

    def test_caption_leaves_out_what_it_cannot_read(self, run, folder, tmp_path, capsys):
        (tmp_path / "page.jpg").write_text("<html>")
        command = ["caption", "--model", run[1], "--out", tmp_path / "seen"]
        photos = [folder / "3.jpg", tmp_path / "page.jpg", folder / "4.jpg"]
        assert cli.main([str(word) for word in (*command, *photos, "--no-pictures", "--json")]) == 1
        said = capsys.readouterr()
        assert said.err.splitlines() == [
            f"satlib: {tmp_path / 'page.jpg'} is not an image, or its format is not supported; convert it to JPEG or PNG"
        ]
        found = json.loads(said.out)
        assert [(one["image"], one["picture"]) for one in found] == [(str(photos[0]), None), (str(photos[2]), None)]
        assert not (tmp_path / "seen").exists()

    def test_what_a_models_file_says(self, run, capsys):
        done("info", run[1], "--json")
        lines = json.loads(capsys.readouterr().out)
        recipe = Captioner.load(run[1]).recipe
        assert lines["name"] == recipe.name
        assert lines["decoder"] == str(recipe.to_dict()["decoder"])

    def test_caption_animates(self, folder, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(animation, "LONGEST", 96)
        command = ["caption", folder / "3.jpg", "--model", "scenes-soft", "--out", tmp_path, "--animate"]
        done(*command, "--json")
        (said,) = json.loads(capsys.readouterr().out)
        assert said["animation"] == str(tmp_path / "3.webp")
        with Image.open(tmp_path / "3.webp") as walk:
            assert walk.n_frames == len(said["captions"][0]["words"])
        assert "give --model once" in mistake(capsys, *command, "--model", "scenes-hard")
        for words, said in ((["dog"], f", {tmp_path / '3.webp'})"), ([], "; no words to animate)")):
            (tmp_path / "3.webp").unlink(missing_ok=True)
            spoken = Caption(words, -1.0, torch.full((len(words) + 1, 7, 7), 1 / 49), torch.ones(len(words) + 1))
            monkeypatch.setattr(Captioner, "caption", lambda self, photos, beam, spoken=spoken: [spoken])
            done(*command)
            assert capsys.readouterr().out.rstrip().endswith(f"; {tmp_path / '3.png'}{said}")
            assert (tmp_path / "3.webp").exists() == bool(words)

    @pytest.mark.slow
    def test_caption_compares_models(self, run, folder, tmp_path, capsys):
        other = tmp_path / "other"
        shutil.copytree(run[1], other)
        command = ["caption", folder / "3.jpg", "--model", run[1], "--model", other / "model.safetensors"]
        done(*command, "--out", tmp_path / "both")
        first, *rows = capsys.readouterr().out.splitlines()
        assert first == f"{folder / '3.jpg'}  ({tmp_path / 'both' / '3.png'})"
        assert [row.split(": ")[0] for row in rows] == [f"  {run[1].name}", "  other"]
        assert rows[0].split(": ")[1] == rows[1].split(": ")[1]
        done(*command[:4], "--out", tmp_path / "one")
        heights = [Image.open(tmp_path / name / "3.png").height for name in ("both", "one")]
        assert heights[0] > heights[1]

    @pytest.mark.slow
    def test_a_model_that_comes_with_satlib_goes_by_its_name(self, run, folder, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(shipped, "_MODELS", tmp_path)
        shutil.copy(run[1] / "model.safetensors", tmp_path / "another.safetensors")
        command = ["caption", str(folder / "3.jpg"), "--out", str(tmp_path / "seen"), "--model"]
        done(*command, "another")
        by_name = capsys.readouterr().out
        done(*command, str(run[1]))
        assert capsys.readouterr().out == by_name
        assert cli.main([*command, "none-such"]) == 2
        assert "none-such" in capsys.readouterr().err
        done("export", "another", str(tmp_path / "again.safetensors"))
        monkeypatch.chdir(tmp_path)  # its figures go to a run of its name, never among satlib's own files
        done("evaluate", "another", "--data", str(run[0]), "--split", "dev")
        assert (tmp_path / "runs" / "another" / "evaluation-dev.json").is_file()

    def test_a_trained_encoder_needs_no_features(self, folder, capsys):
        done("features", "own-folder", *changes(folder), "--set", "encoder.train=true")
        assert "there is nothing to compute beforehand" in capsys.readouterr().out


class TestMistakes:
    """What the modules say of bad input is tested with them; here is what is said before they are called."""

    def test_a_look_that_soft_attention_has_not(self, run, capsys):
        said = mistake(capsys, "evaluate", run[1], "--data", run[0], "--look", "sample")
        assert "this model has soft attention" in said

    def test_ground(self, run, tmp_path, capsys):
        command = ("ground", run[1], "--data", run[0])
        assert "give boxes in COCO's format with --boxes" in mistake(capsys, *command)
        (tmp_path / "boxes.json").write_text("[]")
        said = mistake(capsys, *command, "--boxes", tmp_path / "boxes.json")
        assert "is not a file of boxes in COCO's format" in said
        path = entities_files.write(tmp_path, {"17": (entities_files.annotation(), [entities_files.CHILD])})
        said = mistake(capsys, *command, "--entities", path)
        assert "has none of these 2 images (10.jpg, for example)" in said
        assert "not allowed with argument" in mistake(capsys, *command, "--entities", path, "--boxes", path)

    def test_no_data_root(self, capsys, tmp_path, monkeypatch):
        said = mistake(capsys, "train", "flickr8k-lite0-soft", "--data", tmp_path / "nowhere")
        assert f"the data root {tmp_path}/nowhere does not exist; set it with --data or SATLIB_DATA" in said
        monkeypatch.setenv("SATLIB_DATA", str(tmp_path / "there"))
        assert f"the data root {tmp_path}/there" in mistake(capsys, "train", "flickr8k-soft")

    def test_no_features_yet(self, capsys, folder, tmp_path):
        said = mistake(capsys, "train", "own-folder", *changes(folder), "--data", tmp_path, "--out", tmp_path / "run")
        assert "does not exist; create it with: satlib features" in said
        assert not (tmp_path / "run").exists()

    def test_files(self, capsys, run, folder, tmp_path):
        assert "no.jpg does not exist" in mistake(capsys, "caption", tmp_path / "no.jpg")
        assert "no_run does not exist; train one with" in mistake(capsys, "evaluate", tmp_path / "no_run")
        assert "model.safetensors does not exist" in mistake(capsys, "evaluate", tmp_path)
        assert "must end in .safetensors" in mistake(capsys, "export", run[1], tmp_path / "model.pt")
        (tmp_path / "file").write_text("mine")
        words = ("caption", folder / "0.jpg", "--model", run[1], "--out", tmp_path / "file")
        assert "cannot write" in mistake(capsys, *words)
        said = mistake(capsys, "table", "flickr9k")
        assert "no data set of that name; it has Flickr8k, Flickr30k, COCO, scenes" in said
        (tmp_path / "run").mkdir()
        assert "has no evaluation; make one with: satlib evaluate" in mistake(capsys, "table", tmp_path / "run")

    def test_an_empty_split(self, capsys, run, folder, tmp_path):
        own = shutil.copytree(folder, tmp_path / "own")
        (own / "captions.csv").write_text((folder / "captions.csv").read_text().replace(",test", ",dev"))
        said = mistake(capsys, "evaluate", run[1], "--data", tmp_path, "--data-set", own)
        assert "own has no images in its test split; choose another with --split" in said

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("dance",), ""),
            (("train",), ""),
            (("evaluate", "x", "--device", "tpu"), "invalid choice: 'tpu'"),
            (("evaluate", "x", "--beam=1.5"), "must be a whole number of at least 1"),
            (("evaluate", "x", "--length-normalisation=nan"), "must be a finite number of at least 0, not nan"),
            (("train", "x", "--checkpoint-every=-1"), "must be a finite number of at least 0, not -1"),
            (("trian", "scenes-soft"), "no command is called 'trian' (did you mean train?)"),
            (("dmeo",), "no command is called 'dmeo' (did you mean demo?)"),
            (("recipe", "flickr8k-sot", "--explain"), "no recipe is called 'flickr8k-sot' (did you mean flickr8k-soft?)"),
            (("train", "scenes-soft", "--set", "epochs"), "write it as section.key=value"),
            (("train", "scenes-soft", "--set", "training.epochs", "5"), "example training.epochs=3, not training.epochs; see: satlib train --help"),
            (("train", "scenes-soft", "--epochs", "5"), "--epochs 5 (did you mean --set training.epochs=VALUE?); see: satlib train --help"),
            (("caption", "x.jpg", "--modle", "y"), "--modle y (did you mean --model?); see: satlib caption --help"),
            (("data", "check", "scenes", "--dataa=y"), "--dataa=y (did you mean --data?); see: satlib data check --help"),
            (("recipe", "scenes-soft", "5"), "unrecognized arguments: 5; see: satlib recipe --help"),
            (("caption", "https://example.com/a.jpg"), "https://example.com/a.jpg is an address; download the photograph"),
        ],
    )  # fmt: skip
    def test_usage(self, capsys, words, message):
        assert message in mistake(capsys, *words)


def test_help_is_quick_and_reads_like_a_manual():
    """Without torch, which takes seconds to import."""
    code = (
        "import sys\nfrom satlib.cli import main\ntry:\n main(['--help'])\nfinally:\n assert 'torch' not in sys.modules"
    )
    listing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in (*cli.COMMANDS, "demo"):
        assert f"\n    {command} " in listing.stdout
    assert "satlib caption photo.jpg" in listing.stdout


def test_without_a_command_it_shows_five(capsys):
    done()
    commands = re.findall(r"^  satlib (\w+)", capsys.readouterr().out, re.M)
    assert commands == ["demo", "caption", "train", "evaluate", "table"]


class TestRecipe:
    def test_the_list(self, capsys):
        done("recipe")
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == recipe.names()
        described = dict(line.split(maxsplit=1) for line in lines)
        assert described["flickr8k-soft"] == "Soft attention on Flickr8k with the paper's encoder, VGG-19."

    def test_one_whole(self, capsys, tmp_path):
        """What is printed is a recipe file."""
        done("recipe", "flickr8k-hard")
        (tmp_path / "flickr8k-hard.toml").write_text(capsys.readouterr().out, encoding="utf-8")
        assert recipe.load(str(tmp_path / "flickr8k-hard.toml")) == recipe.load("flickr8k-hard")

    def test_one_explained(self, capsys):
        done("recipe", "flickr8k-hard", "--explain")
        lines = capsys.readouterr().out.splitlines()
        assert "* min_count = 5  (default 1; at least 1)" in lines
        assert "  max_length = 40  (default 40; at least 1 and at most 1,000)" in lines
        assert '* attention = "hard"  (default "soft"; "soft" | "hard" | "none")' in lines

    def test_all_options_are_explained(self, capsys):
        done("recipe", "--explain")
        lines = capsys.readouterr().out.splitlines()
        keys = [line.split(" = ")[0].strip() for line in lines if line.startswith("  ") and " = " in line]
        assert keys == [key for section in recipe.SECTIONS for key in recipe.declared(section)]


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    """Also while a class is created, which Python up to 3.11 reports as a RuntimeError."""

    def stopped(error, cause):
        def info(options):
            raise error from cause

        monkeypatch.setattr("satlib.cli.info.info", info)
        return cli.main(["info"]), capsys.readouterr().err

    wrapped = RuntimeError("Error calling __set_name__ on 'x' instance 'y' in 'Z'")
    for error, cause in ((KeyboardInterrupt(), None), (wrapped, KeyboardInterrupt())):
        assert stopped(error, cause) == (130, "satlib: interrupted; finished work is kept\n")
    status, said = stopped(wrapped, ValueError("no interruption"))
    assert status == 3
    assert "no interruption" in said


def test_a_sign_that_the_output_s_encoding_lacks_does_not_stop_a_command():
    """On Windows, a pipe has the system's encoding: that of Western Europe has no check marks, and ASCII no plus-minus."""
    done = subprocess.run(
        [sys.executable, "-m", "satlib", "table", "scenes"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"},
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"?: half the width of the 95 % interval" in done.stdout
