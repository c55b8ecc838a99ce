"""Faults that are planted in runs and models are named, each by its own check; what comes with satlib has none."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from satlib import cli, recipe
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.files.weights import read_safetensors, write_safetensors
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.training import doctor, loop

ROOT = Path(__file__).parent.parent
RESULTS = Path(doctor.__file__).parent.parent / "results"


def wrong(place, root=Path("nowhere")):
    return [finding.name for finding in doctor.examine(Path(place), Path(root)) if finding.state == "wrong"]


@pytest.fixture
def run(tmp_path):
    """A copy of the run flickr8k-soft, as far as satlib keeps it."""
    return Path(shutil.copytree(RESULTS / "flickr8k-soft", tmp_path / "run"))


def evaluation(run, **changes):
    """Change the evaluations of a run; a change is given the evaluation's value."""
    for path in run.glob("evaluation-*.json"):
        content = json.loads(path.read_text())
        for name, change in changes.items():
            content[name] = change(content[name])
        path.write_text(json.dumps(content))


def captions(change):
    """A change of every other caption's words."""
    return lambda old: {
        name: " ".join(change(text.split())) if number % 2 else text for number, (name, text) in enumerate(old.items())
    }


def log(run, change):
    path = run / "log.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for number, record in enumerate(lines):
        change(number, record)
    path.write_text("".join(json.dumps(record) + "\n" for record in lines))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scenes-soft", "scenes-hard"])
def test_no_false_alarm_on_models(name, tmp_path):
    findings = doctor.examine(Path(name), tmp_path)
    assert [finding.name for finding in findings if finding.state == "wrong"] == []
    assert sum(finding.state == "fine" for finding in findings) >= 7


def test_no_false_alarm_on_runs(tmp_path):
    for path in sorted(path.parent for path in shipped.evaluations()):
        findings = doctor.examine(path, tmp_path)
        assert [finding.name for finding in findings if finding.state == "wrong"] == [], path
        fine = {finding.name for finding in findings if finding.state == "fine"}
        expected = {check.name for check in doctor.CHECKS[:1] + doctor.CHECKS[2:4]} | {"scores of other captions"}
        assert fine >= expected | ({"maps that are even or do not move"} if path.name[-5:] != "-none" else set()), path


def shortened(stored):
    at = stored["columns"].index("words")
    for row in stored["images"].values():
        row[at] //= 2
    return stored


NONE = {"statistics": lambda _: None}
PLANTED = {
    "one caption for many images": {
        "captions": captions(lambda _: ["a", "dog", "runs", "through", "the", "grass"])} | NONE,
    "captions that end in the middle": {"captions": captions(lambda words: [*words, "in", "a"])} | NONE,
    "maps that are even or do not move": {"metrics": lambda old: old | {"map movement": 0.001}} | NONE,
    "scores of other captions": {"metrics": lambda old: old | {"BLEU-4": old["BLEU-4"] + 0.5}},
    "captions much shorter than the references": {"statistics": shortened},
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_that_is_planted_in_an_evaluation(name, run):
    evaluation(run, **PLANTED[name])
    found = wrong(run)
    assert found == [name] or (name in found and "shorter" in name)  # whose scores are those of other captions, too


def test_captions_tokenised_differently(run):
    """Hyphens and points counted as words: more words were scored than the captions have."""
    evaluation(run, captions=captions(lambda words: words[1:]))
    assert wrong(run) == ["scores of other captions"]


def test_captions_of_one_word_are_not_cut_off(run):
    recipe_file = run / "recipe.toml"
    recipe_file.write_text(recipe.load(str(recipe_file), ["decoding.max_length=1"]).to_toml())
    evaluation(run, captions=lambda old: dict.fromkeys(old, "a"), statistics=lambda _: None)
    assert wrong(run) == ["one caption for many images"]


@pytest.mark.parametrize(
    ("name", "loss", "begin", "step"),
    [("overfitting", "dev_nll", 3, 0.1), ("a loss that does not fall", "train_nll", 4.1, -0.01)],
)
def test_a_log_that_goes_wrong(run, name, loss, begin, step):
    log(run, lambda number, record: record.update({loss: begin + step * number}))
    assert wrong(run) == [name]


SMALL = (
    "training.epochs=2", "training.batch_size=4", "decoder.hidden=16", "decoder.attention_hidden=8", "training.select=nll",
)  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run on eight scenes with everything that a run's folder has; it has learnt nothing yet."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    data = scenes.load(8, 2, 0)
    loop.train(recipe.load("scenes-soft", SMALL), data, Pixels(data), folder, progress=False)
    return folder


@pytest.mark.slow
class TestPlantedInModels:
    """What a model with such a fault says, or what its folder shows."""

    @pytest.fixture
    def folder(self, trained, tmp_path, monkeypatch):
        """The folder of a run with the weights of scenes-soft; few scenes are enough."""
        monkeypatch.setattr(scenes, "load", lambda load=scenes.load, **_: load(1, doctor.FEWEST, 1))
        folder = Path(shutil.copytree(trained, tmp_path / "run"))
        model = Captioner.load(shipped.model("scenes-soft"))
        model.save(folder / "model.safetensors")
        model.vocabulary.save(folder / "vocabulary.json")
        (folder / "recipe.toml").write_text(model.recipe.to_toml())
        log(folder, lambda number, record: record.update(train_nll=3.0 - number))
        return folder

    def test_none(self, folder):
        assert wrong(folder) == []

    def test_the_vocabulary_of_another_model(self, folder):
        words = Vocabulary.load(folder / "vocabulary.json").to_json()
        Vocabulary([words[1], words[0], *words[2:]]).save(folder / "vocabulary.json")
        assert wrong(folder) == ["the vocabulary of another model"]

    @pytest.mark.parametrize(
        ("name", "parts", "value"),
        [
            ("maps that are even or do not move", ("attention.energy.energy.weight",), 0),
            ("one caption for many images", ("initial", "gates_context", "output_context"), 0),  # it does not see
            ("a gate that is shut", ("gate.bias",), -50),
        ],
    )
    def test_a_decoder_with_other_weights(self, folder, name, parts, value):
        model = Captioner.load(folder)
        with torch.no_grad():
            for key, parameter in model.decoder.named_parameters():
                if key.startswith(parts):
                    parameter.fill_(value)
        model.save(folder / "model.safetensors")
        assert name in wrong(folder)

    def test_weights_that_are_not_finite(self, folder):
        header, tensors = read_safetensors(folder / "model.safetensors")
        tensors["decoder.output.weight"][0] = math.nan
        write_safetensors(folder / "model.safetensors", tensors, header)
        assert wrong(folder) == ["weights that are not finite"]

    def test_captions_cut_by_the_limit(self, folder):
        model = Captioner.load(folder)
        model.recipe = recipe.from_dict(model.recipe.to_dict() | {"decoding": {"max_length": 4, "beam": 1}})
        model.save(folder / "model.safetensors")
        assert "captions cut off" in wrong(folder)


class TestData:
    @pytest.fixture
    def home(self, tmp_path):
        """A data root with photographs of noise that a model knows the captions of."""
        home = tmp_path / "photos"
        home.mkdir()
        random = np.random.default_rng(0)
        rows = ["image,caption,split"]
        for number in range(12):
            Image.fromarray(random.integers(0, 255, (5, 6, 3), np.uint8)).resize((120, 90)).save(home / f"{number}.png")
            rows.append(f"{number}.png,a red star above a blue circle,{('train', 'dev', 'test')[number % 3]}")
        (home / "captions.csv").write_text("\n".join(rows) + "\n")
        return home

    def model(self, home):
        made = Captioner.load(shipped.model("scenes-soft"))
        made.recipe = recipe.from_dict(made.recipe.to_dict() | {"data": {"name": str(home)}})
        made.save(home.parent / "model.safetensors")
        return home.parent / "model.safetensors"

    def test_words_that_are_not_known(self, home):
        assert "words that the model does not know" not in wrong(self.model(home))
        path = home / "captions.csv"
        path.write_text(path.read_text().replace("a red star above", "ein roter Stern über"))
        assert "words that the model does not know" in wrong(self.model(home))


class TestCommand:
    def test_status_and_text(self, run, capsys):
        assert cli.main(["doctor", str(run)]) == 0
        evaluation(run, metrics=lambda old: old | {"map movement": 0.0}, statistics=lambda _: None)
        assert cli.main(["doctor", str(run)]) == 1
        lines = capsys.readouterr().out.split("wrong  ")[-1].splitlines()
        assert "maps that are even or do not move: 0.0% of the attention moves from word to word" in lines[0]
        assert lines[1].strip().startswith("what to do: lower objective.doubly_stochastic")
        assert lines[-1].startswith("1 wrong, ")

    def test_json(self, run, capsys):
        assert cli.main(["doctor", str(run), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert [tuple(finding) for finding in said] == [("name", "state", "measured", "advice")] * len(doctor.CHECKS)

    def test_nothing_there(self, tmp_path, capsys):
        assert cli.main(["doctor", str(tmp_path)]) == 2
        assert "holds no model, checkpoint, log or evaluation" in capsys.readouterr().err
        with pytest.raises(SatlibError, match="does not exist"):
            doctor.examine(tmp_path / "none", tmp_path)


def test_a_failed_training_points_to_the_doctor(tmp_path, monkeypatch):
    data = scenes.load(4, 2, 0)
    loss = loop.Trainer._caption_loss

    def infinite(*arguments):
        made = loss(*arguments)
        return made._replace(loss=made.loss * math.inf)

    monkeypatch.setattr(loop.Trainer, "_caption_loss", infinite)
    with pytest.raises(SatlibError, match=rf"see: satlib doctor {tmp_path / 'run'}$"):
        loop.train(recipe.load("scenes-soft", SMALL), data, Pixels(data), tmp_path / "run", progress=False)
    assert [finding.state for finding in doctor.examine(tmp_path / "run", tmp_path)].count("wrong") == 0


def test_the_documentation_has_every_check():
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for check in doctor.CHECKS:
        assert f"| {check.name} | {check.measure} | {check.advice} |" in text
