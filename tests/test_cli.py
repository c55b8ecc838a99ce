"""The command line: the whole way from a folder of photographs to a table, and one line for every mistake."""

import csv
import json
import re
import shutil
import subprocess
import sys

import entities_files
import msgspec
import pytest
import torch
from PIL import Image

from satlib import cli, recipe
from satlib.data import scenes
from satlib.model import shipped
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
        "data.name": folder,
        "data.min_count": 1,
        "decoder.embedding": 16,
        "decoder.hidden": 16,
        "decoder.attention_hidden": 8,
        "training.epochs": 1,
        "training.average": 0.0,
        "decoding.max_length": 6,
    }
    return [word for name, value in values.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    """Features computed and one epoch trained by the commands; (data root, run folder)."""
    root = tmp_path_factory.mktemp("root")
    common = ["own-folder", *changes(folder), "--data", str(root), "--device", "cpu"]
    assert cli.main(["features", *common, "--batch-size", "5"]) == 0
    assert cli.main(["train", *common, "--out", str(root / "run")]) == 0
    return root, root / "run"


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
    def test_features_are_where_training_looks(self, run):
        (store,) = (run[0] / "features").glob("my scenes-*-efficientnet-lite0-whole")
        manifest = json.loads((store / "manifest.json").read_text())
        assert len(manifest["images"]) == 12
        assert manifest["grid"] == [7, 7]

    def test_evaluate_writes_and_prints(self, run, capsys):
        root, folder = run
        command = ["evaluate", folder, "--data", root, "--device", "cpu", "--beam", "2"]
        assert cli.main([str(word) for word in command]) == 0
        found = json.loads((folder / "evaluation-test.json").read_text())
        assert (found["split"], found["beam"], found["images"]) == ("test", 2, 2)
        assert set(found["captions"]) == {"10.jpg", "11.jpg"}
        assert 0 < found["metrics"]["map entropy"] <= 3.892  # log 49
        assert 0 <= found["metrics"]["map movement"] <= 1
        printed = capsys.readouterr().out.splitlines()
        assert ["BLEU-4", f"{found['metrics']['BLEU-4']:.2f}"] in [line.split() for line in printed]
        assert cli.main(["table", str(folder)]) == 0
        assert f"{folder.name}: own-folder, efficientnet-lite0 (whole), soft, beam 2" in capsys.readouterr().out

    def test_ground_by_boxes(self, run, tmp_path, capsys):
        """The first word that it says, whatever it is, is a category here, and all of every photograph is its box."""
        common = ["--data", run[0], "--device", "cpu", "--out", tmp_path]
        assert cli.main([str(word) for word in ["evaluate", run[1], *common]]) == 0
        captions = json.loads((tmp_path / "evaluation-test.json").read_text())["captions"]
        word = " ".join(captions.values()).split()[0]
        images = [{"id": i, "file_name": f"{i}.jpg", "width": 224, "height": 224} for i in (10, 11)]
        boxes = [{"image_id": i, "category_id": 1, "bbox": [0, 0, 224, 224]} for i in (10, 11)]
        content = {"categories": [{"id": 1, "name": word}], "images": images, "annotations": boxes}
        (tmp_path / "boxes.json").write_text(json.dumps(content))
        command = ["ground", run[1], *common, "--boxes", tmp_path / "boxes.json"]
        assert cli.main([str(word) for word in command]) == 0
        found = json.loads((tmp_path / "ground-test.json").read_text())
        assert found["all"]["pointing"] == 100
        assert found["all"]["mass"] == pytest.approx(100)
        assert list(found["by class"]) == [word]
        assert (tmp_path / "ground-test.png").is_file()
        assert "pointing" in capsys.readouterr().out

    def test_ground_by_entities(self, run, folder, tmp_path, capsys):
        """Every reference's first word has all of one photograph as its box; the other photograph has no annotations."""
        with open(folder / "captions.csv", encoding="utf-8") as file:
            references = [row["caption"] for row in csv.DictReader(file) if row["image"] == "10.jpg"][:5]
        captions = [f"[/EN#1/other {first}] {rest}" for first, rest in (text.split(" ", 1) for text in references)]
        xml = entities_files.annotation((224, 224), ((("1",), (0, 0, 224, 224)),))
        path = entities_files.write(tmp_path / "entities", {"10": (xml, captions)})
        common = ["--data", run[0], "--device", "cpu", "--out", tmp_path]
        command = ["ground", run[1], *common, "--entities", path]
        assert cli.main([str(word) for word in command]) == 0
        found = json.loads((tmp_path / "ground-test.json").read_text())
        assert found["split"] == "test"
        overall = found["entities"]["true"]["all"]
        assert overall["phrases"] == len(set(references))
        assert {overall[name] for name in ("peak", "peak centre", "peak mean map", "peak best cell")} == {100}
        assert [overall[name] for name in ("mass", "mass even", "mass best cell")] == pytest.approx([100] * 3)
        assert 0 < found["entities"]["entropy share"] <= 100
        assert found["entities"]["counts"]["images without annotations"] == 1
        assert "true captions" in capsys.readouterr().out

    def test_evaluate_elsewhere(self, run, tmp_path):
        root, folder = run
        command = ["evaluate", folder / "model.safetensors", "--data", root, "--split", "dev", "--out", tmp_path / "x"]
        assert cli.main([str(word) for word in command]) == 0
        assert (tmp_path / "x" / "evaluation-dev.json").is_file()

    def test_caption_draws_a_picture_for_each(self, run, folder, capsys, tmp_path):
        photos = [str(folder / f"{i}.jpg") for i in (3, 4)]
        assert cli.main(["caption", *photos, "--model", str(run[1]), "--out", str(tmp_path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(": ")[0] for line in lines] == photos
        assert sorted(path.name for path in tmp_path.iterdir()) == ["3.png", "4.png"]

    def test_photographs_of_one_name_have_a_picture_each(self, run, folder, tmp_path):
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "3.jpg").write_bytes((folder / "4.jpg").read_bytes())
        photos = [str(folder / "3.jpg"), str(tmp_path / "other" / "3.jpg")]
        assert cli.main(["caption", *photos, "--model", str(run[1]), "--out", str(tmp_path / "seen")]) == 0
        pictures = sorted((tmp_path / "seen").iterdir())
        assert [path.name for path in pictures] == ["3-2.png", "3.png"]
        assert pictures[0].read_bytes() != pictures[1].read_bytes()

    def test_caption_compares_models(self, run, folder, tmp_path, capsys):
        other = tmp_path / "other"
        shutil.copytree(run[1], other)
        command = ["caption", folder / "3.jpg", "--model", run[1], "--model", other / "model.safetensors"]
        assert cli.main([str(word) for word in [*command, "--out", tmp_path / "both"]]) == 0
        first, *rows = capsys.readouterr().out.splitlines()
        assert first == f"{folder / '3.jpg'}  ({tmp_path / 'both' / '3.png'})"
        assert [row.split(": ")[0] for row in rows] == [f"  {run[1].name}", "  other"]
        assert rows[0].split(": ")[1] == rows[1].split(": ")[1]
        assert cli.main([str(word) for word in [*command[:4], "--out", tmp_path / "one"]]) == 0
        heights = [Image.open(tmp_path / name / "3.png").height for name in ("both", "one")]
        assert heights[0] > heights[1]

    def test_a_model_that_comes_with_satlib_goes_by_its_name(self, run, folder, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(shipped, "_MODELS", tmp_path)
        shutil.copy(run[1] / "model.safetensors", tmp_path / "another.safetensors")
        command = ["caption", str(folder / "3.jpg"), "--out", str(tmp_path / "seen"), "--model"]
        assert cli.main([*command, "another"]) == 0
        by_name = capsys.readouterr().out
        assert cli.main([*command, str(run[1])]) == 0
        assert capsys.readouterr().out == by_name
        assert cli.main([*command, "none-such"]) == 2
        assert "none-such" in capsys.readouterr().err
        assert cli.main(["export", "another", str(tmp_path / "again.safetensors")]) == 0
        monkeypatch.chdir(tmp_path)  # its figures go to a run of its name, never among satlib's own files
        assert cli.main(["evaluate", "another", "--data", str(run[0]), "--split", "dev"]) == 0
        assert (tmp_path / "runs" / "another" / "evaluation-dev.json").is_file()

    def test_export_is_smaller_and_captions(self, run, folder, tmp_path, capsys):
        small = tmp_path / "small.safetensors"
        assert cli.main(["export", str(run[1]), str(small)]) == 0
        assert small.stat().st_size < 0.5 * (run[1] / "model.safetensors").stat().st_size
        assert cli.main(["caption", str(folder / "3.jpg"), "--model", str(small), "--out", str(tmp_path)]) == 0

    def test_the_average_of_a_model_with_itself_is_the_model(self, run, folder, tmp_path, monkeypatch, capsys):
        """By its name, for one, as --start takes it."""
        monkeypatch.setattr(shipped, "_MODELS", tmp_path)
        shutil.copy(run[1] / "model.safetensors", tmp_path / "another.safetensors")
        command = ["average", "another", run[1], tmp_path / "averaged", "--share", "0.7"]
        assert cli.main([str(word) for word in command]) == 0
        assert "0.7 of" in capsys.readouterr().out
        averaged, whole = (Captioner.load(path).decoder.state_dict() for path in (tmp_path / "averaged", run[1]))
        assert all(torch.equal(value, whole[name]) for name, value in averaged.items())
        assert "already exists; name another folder" in mistake(capsys, *command)
        assert "give a number from 0 to 1" in mistake(capsys, *command[:3], tmp_path / "other", "--share", "-1")
        for share in ("nan", "inf", "half"):
            said = mistake(capsys, *command[:3], tmp_path / "other", "--share", share)
            assert f"argument --share: must be a finite number, not {share}" in said
        assert not (tmp_path / "other").exists()

    @pytest.mark.slow
    def test_choose(self, run, tmp_path, capsys):
        """The best dev CIDEr of all that was tried is in the model, the recipe and the evaluation; the training's epoch beside it."""
        folder = tmp_path / "run"
        shutil.copytree(run[1], folder)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        command = [
            "choose",
            str(folder),
            "--data",
            str(run[0]),
            "--device",
            "cpu",
            "--beams",
            "1,3",
            "--normalisations",
            "0,1",
        ]
        assert cli.main([*command, "--no-write"]) == 0
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert cli.main(command) == 0
        written = json.loads((folder / "choice.json").read_text())
        tried = written["decoding"]["tried"]
        assert [(each["beam"], each["length_normalisation"]) for each in tried] == [(1, 0), (3, 0), (3, 1)]
        chosen = min(tried, key=lambda each: (-each["CIDEr"], each["beam"], each["length_normalisation"]))
        assert written["decoding"]["chosen"] == chosen
        assert written["epoch"]["chosen"] == 1
        assert "greatest dev CIDEr" in written["rule"]
        made = Captioner.load(folder)
        assert (made.recipe.decoding.beam, made.recipe.decoding.length_normalisation) == (
            chosen["beam"],
            chosen["length_normalisation"],
        )
        assert recipe.load(str(folder / "recipe.toml")) == made.recipe
        found = json.loads((folder / "evaluation-dev.json").read_text())
        assert found["beam"] == chosen["beam"]
        assert found["metrics"]["CIDEr"] == pytest.approx(chosen["CIDEr"], abs=1e-4)
        # Evaluated anew, the model gives these captions and scores.
        assert cli.main(["evaluate", str(folder), "--data", str(run[0]), "--split", "dev", "--out", str(tmp_path)]) == 0
        again = json.loads((tmp_path / "evaluation-dev.json").read_text())
        assert again == found
        # And so does their file, without the model. A folder of one's own has to be named again.
        own = ["--data-set", made.recipe.data.name, "--data", str(run[0])]
        assert cli.main(["evaluate", str(folder / "evaluation-dev.json"), *own, "--out", str(tmp_path / "s")]) == 0
        scored = json.loads((tmp_path / "s" / "evaluation-dev.json").read_text())
        assert scored["metrics"] == found["metrics"]
        assert scored["captions"] == found["captions"]
        only = tmp_path / "captions.json"
        only.write_text(json.dumps(found["captions"]))
        command = ["evaluate", str(only), *own, "--split", "dev"]
        assert cli.main([*command, "--out", str(tmp_path / "t")]) == 0
        scored = json.loads((tmp_path / "t" / "evaluation-dev.json").read_text())
        assert scored["metrics"].items() <= found["metrics"].items()
        assert "give --data-set and --split" in mistake(capsys, *command[:2])

    def test_the_share_of_an_average_is_chosen(self, run, tmp_path, capsys):
        averaged = tmp_path / "averaged"
        command = ["average", run[1], run[1], averaged, "--shares", "0.5,0.2", "--data", run[0], "--device", "cpu"]
        assert cli.main([str(word) for word in command]) == 0
        decision = json.loads((averaged / "choice.json").read_text())["average"]
        assert [each["share"] for each in decision["tried"]] == [0.2, 0.5]
        assert decision["chosen"]["share"] == 0.2  # both are the same model: the smaller one
        assert "0.2 of" in capsys.readouterr().out
        assert recipe.load(str(averaged / "recipe.toml")) == Captioner.load(averaged).recipe

    def test_train_again_is_done(self, run, folder, capsys):
        before = (run[1] / "checkpoint.safetensors").read_bytes()
        again = [
            "train",
            "own-folder",
            *changes(folder),
            "--data",
            str(run[0]),
            "--out",
            str(run[1]),
            "--device",
            "cpu",
        ]
        assert cli.main(again) == 0
        assert (run[1] / "checkpoint.safetensors").read_bytes() == before

    @pytest.mark.slow
    def test_a_teacher_teaches(self, run, folder, tmp_path, monkeypatch, capsys):
        common = ["train", "own-folder", *changes(folder), "--data", str(run[0]), "--device", "cpu"]
        assert "none-such does not exist" in mistake(
            capsys, *common, "--out", tmp_path / "run", "--teacher", tmp_path / "none-such"
        )
        monkeypatch.setattr(shipped, "_MODELS", tmp_path)
        shutil.copy(run[1] / "model.safetensors", tmp_path / "another.safetensors")
        for name, others in {
            "distilled": ["--teacher", run[1]],
            "by-name": ["--teacher", "another"],
            "alone": [],
            "started": ["--start", "another"],
        }.items():
            assert cli.main([str(word) for word in [*common, "--out", tmp_path / name, *others]]) == 0
        distilled, by_name, alone, started = (
            Captioner.load(tmp_path / name).decoder.output.weight
            for name in ("distilled", "by-name", "alone", "started")
        )
        assert torch.equal(distilled, by_name)
        assert not torch.equal(distilled, alone)
        assert not torch.equal(started, alone)

    def test_data_check(self, folder, capsys):
        assert cli.main(["data", "check", str(folder)]) == 0
        assert "12" in capsys.readouterr().out

    def test_a_trained_encoder_needs_no_features(self, capsys):
        assert cli.main(["features", "scenes-soft"]) == 0
        assert "there is nothing to compute beforehand" in capsys.readouterr().out


class TestMistakes:
    def test_a_look_that_soft_attention_has_not(self, run, capsys):
        said = mistake(capsys, "evaluate", run[1], "--data", run[0], "--look", "sample")
        assert "this model has soft attention" in said

    def test_ground_without_boxes(self, run, capsys):
        assert "give boxes in COCO's format with --boxes" in mistake(capsys, "ground", run[1], "--data", run[0])

    def test_ground_with_something_else(self, run, tmp_path, capsys):
        (tmp_path / "boxes.json").write_text("[]")
        said = mistake(capsys, "ground", run[1], "--data", run[0], "--boxes", tmp_path / "boxes.json")
        assert "is not a file of boxes in COCO's format" in said

    def test_ground_with_entities_of_something_else(self, run, tmp_path, capsys):
        command = ("ground", run[1], "--data", run[0], "--entities")
        assert "does not contain both folders of Flickr30k Entities" in mistake(capsys, *command, tmp_path)
        path = entities_files.write(tmp_path, {"17": (entities_files.annotation(), [entities_files.CHILD])})
        assert "has none of these 2 images (10.jpg, for example)" in mistake(capsys, *command, path)
        assert "not allowed with argument" in mistake(capsys, *command, path, "--boxes", path)

    def test_no_data_root(self, capsys, tmp_path):
        said = mistake(capsys, "train", "flickr8k-lite0-soft", "--data", tmp_path / "nowhere")
        assert f"the data root {tmp_path}/nowhere does not exist; set it with --data or SATLIB_DATA" in said

    def test_a_data_root_without_the_set(self, capsys, tmp_path):
        assert str(tmp_path / "flickr8k") in mistake(capsys, "features", "flickr8k-soft", "--data", tmp_path)

    def test_the_data_root_by_the_environment(self, capsys, tmp_path, monkeypatch):
        monkeypatch.setenv("SATLIB_DATA", str(tmp_path / "there"))
        assert f"the data root {tmp_path}/there" in mistake(capsys, "train", "flickr8k-soft")

    def test_a_recipe(self, capsys, tmp_path):
        assert "no recipe is called 'flickr9k' (did you mean flickr8k-soft?); choose one of " in mistake(
            capsys, "train", "flickr9k"
        )
        assert "nothing.toml does not exist" in mistake(capsys, "train", tmp_path / "nothing.toml")
        assert "must be a whole number" in mistake(capsys, "train", "scenes-soft", "--set", "training.epochs=many")
        assert "write it as section.key=value" in mistake(capsys, "train", "scenes-soft", "--set", "epochs")

    def test_an_encoder(self, capsys, folder):
        words = ("features", "own-folder", *changes(folder), "--set", "encoder.name=vgg")
        assert "unknown encoder 'vgg'; choose from" in mistake(capsys, *words)

    def test_no_features_yet(self, capsys, folder, tmp_path):
        said = mistake(capsys, "train", "own-folder", *changes(folder), "--data", tmp_path, "--out", tmp_path / "run")
        assert "does not exist; create it with: satlib features" in said
        assert not (tmp_path / "run").exists()

    def test_photographs(self, capsys, tmp_path, folder):
        (tmp_path / "page.jpg").write_text("<html>")
        (tmp_path / "empty.jpg").write_bytes(b"")
        (tmp_path / "cut.jpg").write_bytes((folder / "0.jpg").read_bytes()[:1000])
        assert "no.jpg does not exist" in mistake(capsys, "caption", tmp_path / "no.jpg")
        assert "page.jpg is not an image" in mistake(capsys, "caption", tmp_path / "page.jpg")
        assert "empty.jpg is empty" in mistake(capsys, "caption", tmp_path / "empty.jpg")
        assert "cut.jpg is truncated" in mistake(capsys, "caption", folder / "1.jpg", tmp_path / "cut.jpg")
        assert "is a folder" in mistake(capsys, "caption", tmp_path)

    def test_a_model(self, capsys, tmp_path, folder):
        photo, model = folder / "0.jpg", tmp_path / "model.pt"
        assert "no_run does not exist; train one with" in mistake(capsys, "evaluate", tmp_path / "no_run")
        assert "model.safetensors does not exist" in mistake(capsys, "evaluate", tmp_path)
        torch.save({"a": torch.zeros(1)}, model)
        assert "is a pickle" in mistake(capsys, "caption", photo, "--model", model)
        model.write_bytes(b"")
        assert "is damaged or truncated" in mistake(capsys, "caption", photo, "--model", model)

    def test_pictures_that_cannot_be_written(self, capsys, run, folder, tmp_path):
        (tmp_path / "file").write_text("mine")
        words = ("caption", folder / "0.jpg", "--model", run[1], "--out", tmp_path / "file")
        assert "cannot write" in mistake(capsys, *words)

    def test_an_export_of_another_kind(self, capsys, run, tmp_path):
        assert "must end in .safetensors" in mistake(capsys, "export", run[1], tmp_path / "model.pt")

    def test_files_for_the_table(self, capsys, tmp_path):
        (tmp_path / "x.json").write_text('{"recipe": ')
        assert "is not valid JSON" in mistake(capsys, "table", tmp_path / "x.json")
        assert "nothing.json does not exist" in mistake(capsys, "table", tmp_path / "nothing.json")
        said = mistake(capsys, "table", "flickr9k")
        assert "no data set of that name; it has Flickr8k, Flickr30k, COCO, scenes" in said
        (tmp_path / "run").mkdir()
        assert "has no evaluation; make one with: satlib evaluate" in mistake(capsys, "table", tmp_path / "run")

    def test_an_empty_split(self, capsys, run, folder, tmp_path):
        text = (folder / "captions.csv").read_text()
        (tmp_path / "own").mkdir()
        for i in range(12):
            (tmp_path / "own" / f"{i}.jpg").symlink_to(folder / f"{i}.jpg")
        (tmp_path / "own" / "captions.csv").write_text(text.replace(",test", ",dev"))
        model = Captioner.load(run[1])
        model.recipe = msgspec.structs.replace(
            model.recipe, data=msgspec.structs.replace(model.recipe.data, name=str(tmp_path / "own"))
        )
        model.save(tmp_path / "model.safetensors")
        said = mistake(capsys, "evaluate", tmp_path / "model.safetensors", "--data", tmp_path)
        assert "own has no images in its test split; choose another with --split" in said

    def test_devices(self, capsys, run):
        assert "invalid choice: 'tpu'" in mistake(capsys, "evaluate", run[1], "--device", "tpu")
        if not torch.cuda.is_available():
            assert "the device 'cuda' is not available; choose from auto, " in mistake(
                capsys, "evaluate", run[1], "--device", "cuda"
            )

    @pytest.mark.parametrize("beam", ["0", "-1", "two", "1.5"])
    def test_a_beam(self, capsys, beam):
        assert "must be a whole number of at least 1" in mistake(capsys, "evaluate", "x", f"--beam={beam}")

    @pytest.mark.parametrize("words", [("dance",), ("train",), ("evaluate", "x", "--split", "all"), ("info", "--x")])
    def test_usage(self, capsys, words):
        assert " --help\n" in mistake(capsys, *words)

    def test_a_mistyped_command(self, capsys):
        assert "no command is called 'trian' (did you mean train?)" in mistake(capsys, "trian", "scenes-soft")
        assert "no command is called 'dmeo' (did you mean demo?)" in mistake(capsys, "dmeo")


def test_help_is_quick_and_reads_like_a_manual():
    """Without torch, which takes seconds to import."""
    code = (
        "import sys\nfrom satlib.cli import main\ntry:\n main(['--help'])\nfinally:\n assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in (
        "data",
        "features",
        "train",
        "evaluate",
        "caption",
        "table",
        "info",
        "average",
        "recipe",
        "export",
        "demo",
    ):
        assert f"\n    {command} " in done.stdout
    assert "satlib caption photo.jpg" in done.stdout


def test_no_default_is_shown_for_options_that_have_none(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    said = capsys.readouterr().out
    assert "(default: 600.0)" in said
    assert "None" not in said
    assert "[]" not in said


def test_without_a_command_it_shows_five(capsys):
    assert cli.main([]) == 0
    commands = re.findall(r"^  satlib (\w+)", capsys.readouterr().out, re.M)
    assert commands == ["demo", "caption", "train", "evaluate", "table"]


class TestRecipe:
    def test_the_list(self, capsys):
        assert cli.main(["recipe"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines] == recipe.names()
        assert "flickr8k-soft              Soft attention on Flickr8k with the paper's encoder, VGG-19." in lines

    def test_one_whole(self, capsys, tmp_path):
        """What is printed is a recipe file."""
        assert cli.main(["recipe", "flickr8k-hard"]) == 0
        (tmp_path / "flickr8k-hard.toml").write_text(capsys.readouterr().out, encoding="utf-8")
        assert recipe.load(str(tmp_path / "flickr8k-hard.toml")) == recipe.load("flickr8k-hard")

    def test_one_explained(self, capsys):
        assert cli.main(["recipe", "flickr8k-hard", "--explain"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert "* min_count = 5  (default 1; at least 1)" in lines
        assert "  max_length = 40  (default 40; at least 1 and at most 1,000)" in lines
        assert '* attention = "hard"  (default "soft"; "soft" | "hard" | "none")' in lines

    def test_all_options_are_explained(self, capsys):
        assert cli.main(["recipe", "--explain"]) == 0
        lines = capsys.readouterr().out.splitlines()
        keys = [line.split(" = ")[0].strip() for line in lines if line.startswith("  ") and " = " in line]
        assert keys == [key for section in recipe.SECTIONS for key in recipe.declared(section)]

    def test_markdown(self, capsys):
        assert cli.main(["recipe", "flickr8k-hard", "--explain", "--markdown"]) == 0
        row = "| `min_count` | **`5`** | `1` | at least 1 | how often a word must occur"
        assert row in capsys.readouterr().out
        assert cli.main(["recipe", "flickr8k-hard", "--markdown"]) == 0
        assert capsys.readouterr().out.startswith("```toml\n# Hard attention on Flickr8k")

    def test_none_such(self, capsys):
        said = mistake(capsys, "recipe", "flickr8k-sot", "--explain")
        assert "no recipe is called 'flickr8k-sot' (did you mean flickr8k-soft?); choose one of" in said


def test_python_m_satlib_is_satlib():
    done = subprocess.run([sys.executable, "-m", "satlib", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("satlib ")


def test_ctrl_c_is_one_line(monkeypatch, capsys):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("satlib.cli.doctor.info", interrupted)
    assert cli.main(["info"]) == 130
    assert capsys.readouterr().err == "satlib: interrupted; finished work is kept\n"


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1,5", ""])
@pytest.mark.parametrize(
    ("option", "command"),
    [("--length-normalisation", ["evaluate", "x"]), ("--checkpoint-every", ["train", "scenes-soft"])],
)
def test_numbers_of_at_least_zero(capsys, option, command, value):
    said = mistake(capsys, *command, f"{option}={value}")
    assert f"argument {option}: must be a finite number of at least 0, not {value}" in said


@pytest.mark.parametrize(("cause", "status"), [(KeyboardInterrupt(), 130), (ValueError("no interruption"), 3)])
def test_ctrl_c_while_a_class_is_created_is_an_interruption(monkeypatch, capsys, cause, status):
    def wrapped(options):
        raise RuntimeError("Error calling __set_name__ on 'x' instance 'y' in 'Z'") from cause

    monkeypatch.setattr("satlib.cli.doctor.info", wrapped)
    assert cli.main(["info"]) == status
    said = capsys.readouterr().err
    assert said == "satlib: interrupted; finished work is kept\n" if status == 130 else "no interruption" in said
