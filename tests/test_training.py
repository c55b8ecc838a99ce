"""A run killed at any moment and resumed is bit for bit the one that was not; its lock; and what a training does, by hand."""

import contextlib
import dataclasses
import json
import math
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
import torch
from runs import differences, without_clock

from satlib import files, recipe
from satlib.data.batches import pairs
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, plots
from satlib.model import encoders, objective
from satlib.model.captioner import Captioner, read_safetensors
from satlib.recipe import TrainingConfig
from satlib.training import checkpoint, loop, validation
from satlib.training.checkpoint import CHECKPOINT, LOCK, locked, update_average
from satlib.training.features import root_mean_square
from satlib.training.loop import LOG, MODEL, set_learning_rate

CURVES = plots.curves_figure
FILES = {"recipe.toml", "vocabulary.json", LOG, "curves.png", MODEL, CHECKPOINT, LOCK}
AVERAGED = ("training.average=0.9", "training.warmup=5", "training.schedule=cosine")
RMSPROP = ("training.optimiser=rmsprop", "training.learning_rate=0.001")


def equal(here, there):
    return here.keys() == there.keys() and all(
        torch.equal(here[name], there[name]) for name in here
    )


def alone(captioner, pair):
    """log p(y_t) of a caption's words, and its maps (C, L), from the decoder's output for it alone."""
    with torch.inference_mode():
        output = captioner.decoder(
            tiny.Reader().read([pair.image_id]), torch.tensor([pair.caption])
        )
    log_p = output.logits[0].double().log_softmax(1)
    return [log_p[t, word].item() for t, word in enumerate(pair.caption)], output.alphas[0]


class TestResuming:
    """At the moments that matter; `test_resuming` has the shipped recipes."""

    @pytest.mark.parametrize(
        "changes", [RMSPROP, ("training.average=0.9",)], ids=["rmsprop", "average"]
    )
    def test_more_epochs_go_on_where_fewer_ended(self, tmp_path, changes):
        tiny.train(tmp_path / "whole", *changes)
        tiny.train(tmp_path / "more", *changes, "training.epochs=1")
        tiny.train(tmp_path / "more", *changes)

        header, tensors = read_safetensors(tmp_path / "more" / CHECKPOINT)
        assert header["progress"]["epoch"] == 3
        # The model is of the last epoch: it shows what became of a moving average.
        assert header["progress"]["history"][-1]["kept"]
        assert equal(tensors, read_safetensors(tmp_path / "whole" / CHECKPOINT)[1])
        models = [read_safetensors(tmp_path / name / MODEL)[1] for name in ("more", "whole")]
        assert equal(*models)

    @pytest.mark.slow
    def test_killed_before_any_of_its_writes(self, tmp_path, monkeypatch):
        rename, changes = Path.replace, (*AVERAGED, "training.epochs=2")
        tiny.train(tmp_path / "whole", *changes)

        class Killed(BaseException):
            pass

        def killed_after(writes, folder):
            def replace(path, target):
                nonlocal writes
                writes -= 1
                if writes < 0:
                    raise Killed
                return rename(path, target)

            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                patch.setattr(Path, "replace", replace)
                tiny.train(folder, *changes)
            return writes < 0

        writes = 0
        while killed_after(writes, folder := tmp_path / str(writes)):
            folder.mkdir(exist_ok=True)  # not there if the first write was the one
            (folder / ".checkpoint.safetensors.left.partial").write_bytes(b"half of it")
            tiny.train(folder, *changes)
            assert differences(folder, tmp_path / "whole") == []
            writes += 1
        assert (
            writes > 9
        )  # recipe, vocabulary, checkpoint; then model, checkpoint, log and curves after each epoch

    def test_what_belongs_to_another_run_is_refused(self, tmp_path):
        tiny.train(tmp_path, "training.epochs=1")
        with pytest.raises(
            SatlibError, match=r"begun with another decoder.hidden; name another folder with --out"
        ):
            tiny.train(tmp_path, "decoder.hidden=20")
        tiny.train(
            tmp_path, "training.epochs=1", "decoding.beam=4"
        )  # how captions are generated may change
        data = tiny.data()
        first = dataclasses.replace(data.examples[0], references=("a purple zebra",))
        with pytest.raises(SatlibError, match=r"begun with other captions or boxes"):
            tiny.train(
                tmp_path, captions=dataclasses.replace(data, examples=(first, *data.examples[1:]))
            )
        (tmp_path / CHECKPOINT).unlink()
        with pytest.raises(SatlibError, match="a model without a checkpoint"):
            tiny.train(tmp_path)


class TestNotFinite:
    class Broken(tiny.Reader):
        def read(self, image_ids):
            return super().read(image_ids) * (math.nan if "train-7" in image_ids else 1)

    def test_a_loss(self, tmp_path):
        """The batch that is named holds the image, and the files are those of the epoch before."""
        tiny.train(tmp_path, "training.batch_size=1", "training.epochs=1")
        before = (tmp_path / CHECKPOINT).read_bytes(), (tmp_path / MODEL).read_bytes()
        with pytest.raises(
            SatlibError, match=r"^the loss is nan at batch \d+ of epoch 2, images train-7; lower.*$"
        ):
            tiny.train(tmp_path, "training.batch_size=1", reader=self.Broken())
        assert ((tmp_path / CHECKPOINT).read_bytes(), (tmp_path / MODEL).read_bytes()) == before

    @pytest.mark.parametrize(
        ("precision", "moment"), [("float32", "1 of epoch 1"), ("fp16", "8 of epoch 2")]
    )
    def test_a_gradient_under_a_finite_loss(self, tmp_path, monkeypatch, precision, moment):
        """In fp16 the scale is halved until it cannot be the reason."""
        true = objective.word_losses

        def infinitely_steep(logits, captions):
            return true(logits, captions) + (0 * logits.float().sum(2)).sqrt()

        monkeypatch.setattr(objective, "word_losses", infinitely_steep)
        with pytest.raises(SatlibError, match=rf"the gradient's norm is nan at batch {moment}"):
            tiny.train(tmp_path, f"training.precision={precision}", "training.clip=0")
        assert all(
            value.isfinite().all() for value in read_safetensors(tmp_path / CHECKPOINT)[1].values()
        )


def test_in_fp16_an_overflow_leaves_the_step_out(tmp_path, monkeypatch):
    """The loss is scaled up, so that small gradients survive; where large ones overflow, weights and average stay."""
    update, seen = loop.Trainer.update, []

    def watched(session, *arguments):
        state = session.state
        if len(seen) == 2:
            state.scaler._scale.fill_(2.0**22)  # too much for float16
        scale = state.scaler.get_scale()
        before = {name: value.clone() for name, value in state.stored.state_dict().items()}
        update(session, *arguments)
        seen.append((scale, state.scaler.get_scale(), equal(before, state.stored.state_dict())))

    monkeypatch.setattr(loop.Trainer, "update", watched)
    tiny.train(tmp_path, "training.precision=fp16", "training.average=0.9", "training.epochs=1")
    assert seen[2] == (2.0**22, 2.0**21, True)
    assert all(still == (after < before) for before, after, still in seen)
    assert not seen[-1][2]
    header, tensors = read_safetensors(tmp_path / CHECKPOINT)
    assert header["scaler"]["scale"] == seen[-1][1]
    assert tensors["optimiser.0.step"] == sum(not still for _, _, still in seen)


@pytest.mark.parametrize(
    ("config", "factors"),
    [
        ({"warmup": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
        ({"schedule": "cosine"}, [1, 0.933, 0.75, 0.5, 0.25, 0.067]),
        ({"schedule": "cosine", "warmup": 4}, [0.25, 0.467, 0.5625, 0.5, 0.25, 0.067]),
        # Full until 30 % of the training is left; at the last batch 1/6 is left, and 1/6 / 0.3.
        ({"schedule": "linear"}, [1, 1, 1, 1, 1, 0.556]),
    ],
)
def test_the_schedule_by_hand(config, factors):
    rates, optimiser = [], SimpleNamespace(param_groups=[{"base": 2.0}])
    for step in range(6):
        set_learning_rate(optimiser, TrainingConfig(**config), step, 6)
        rates.append(optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([2 * factor for factor in factors], abs=2e-3)


def test_stops_after_patience_and_keeps_the_best(tmp_path, monkeypatch):
    def scores(*values):
        left = list(values)
        monkeypatch.setattr(validation, "quick_bleu", lambda captions, examples: left.pop(0))

    scores(1, 3, 2, 3, 9)
    tiny.train(tmp_path / "patient", "training.patience=2", "training.epochs=10")
    assert [record["dev_bleu4"] for record in tiny.log(tmp_path / "patient")] == [1, 3, 2, 3]
    scores(1, 3)
    tiny.train(tmp_path / "two", "training.epochs=2")
    patient, two = (read_safetensors(tmp_path / name / MODEL)[1] for name in ("patient", "two"))
    assert equal(patient, two)
    scores()
    tiny.train(
        tmp_path / "patient", "training.patience=2", "training.epochs=10"
    )  # it stays stopped
    scores(0.9, 0.1, 0.1, 1.0, 0.9)  # below 1 the dev loss decides
    tiny.train(tmp_path / "noise", "training.patience=5", "training.epochs=5")
    log = tiny.log(tmp_path / "noise")
    assert log[2]["dev_nll"] < log[1]["dev_nll"] < log[0]["dev_nll"]
    assert [record["kept"] for record in log] == [True, True, True, True, False]


class TestOptimiser:
    def captioner(self, *changes):
        chosen = tiny.the_recipe(*changes)
        return Captioner(chosen, Vocabulary(["a", "b"]), encoders.create("tiny"))

    def test_rmsprop_is_graves_form(self):
        """Graves (2013), equations 38 to 45, with gradients so small that eps, under the root, decides."""
        captioner = self.captioner("training.optimiser=rmsprop", "training.learning_rate=0.002")
        optimiser = checkpoint.create_optimiser(captioner)
        parameter = captioner.decoder.output.weight
        before = parameter.detach().double().clone()
        w = before.clone()
        n, g, delta = (torch.zeros_like(w) for _ in range(3))
        for _ in range(5):
            parameter.grad = 1e-3 * torch.randn_like(parameter)
            gradient = parameter.grad.double()
            optimiser.step()
            n = 0.95 * n + 0.05 * gradient**2
            g = 0.95 * g + 0.05 * gradient
            delta = 0.9 * delta - 0.002 * gradient / (n - g**2 + 1e-4).sqrt()
            w += delta
        moved = parameter.detach().double() - before
        torch.testing.assert_close(moved, w - before, atol=1e-7, rtol=1e-3)

    def test_average_by_hand(self):
        mean, now = (self.captioner("encoder.train=true") for _ in range(2))
        for captioner, value in ((mean, 2.0), (now, 6.0)):
            for tensor in captioner.state_dict().values():
                tensor.fill_(value)
        update_average(mean, now, 0.75)
        for (
            name,
            tensor,
        ) in mean.state_dict().items():  # 0.75 * 2 + 0.25 * 6 = 3; a counter is what it is now
            assert (tensor == (6 if "num_batches" in name else 3)).all(), name


class TestRun:
    def test_a_run_is_a_folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(plots, "curves_figure", CURVES)
        captioner = tiny.train(
            tmp_path, "decoder.dropout=0.0", "training.epochs=2", "training.learning_rate=0.03"
        )
        assert {path.name for path in tmp_path.iterdir()} == FILES
        assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
        log = tiny.log(tmp_path)
        assert [record["epoch"] for record in log] == [1, 2]
        assert log[1]["train_nll"] < log[0]["train_nll"]
        assert log[1]["dev_bleu4"] > 0
        assert {
            "train_penalty",
            "dev_nll",
            "learning_rate",
            "seconds",
            "tokens_per_second",
        } <= log[0].keys()
        assert (
            json.loads((tmp_path / "vocabulary.json").read_text()) == captioner.vocabulary.to_json()
        )
        assert recipe.load(str(tmp_path / "recipe.toml")) == captioner.recipe
        assert not captioner.training

    def test_the_log_has_the_means_of_one_caption_at_a_time(self, tmp_path):
        """Of the training captions' loss at a learning rate of 0, without dropout; and of the dev captions' likelihood."""
        captioner = tiny.train(
            tmp_path, "decoder.dropout=0.0", "training.learning_rate=0", "training.epochs=1"
        )
        (record,) = tiny.log(tmp_path)
        for split in ("train", "dev"):
            captions = pairs(tiny.data().split(split), captioner.vocabulary, 40)
            outputs = [alone(captioner, pair) for pair in captions]
            words = [log_p for log_ps, _ in outputs for log_p in log_ps]
            assert record[f"{split}_nll"] == pytest.approx(-sum(words) / len(words), rel=1e-5)
            penalties = [
                sum((1 - sum(place)) ** 2 for place in alphas.T.tolist()) for _, alphas in outputs
            ]
            if split == "train":
                assert record["train_penalty"] == pytest.approx(
                    sum(penalties) / len(penalties), rel=1e-4
                )

    @pytest.mark.slow
    def test_eight_captions_are_learnt_by_heart(self, tmp_path):
        data = tiny.data()
        texts = [
            "a red circle on the left", "two blue stars", "there is nothing here", "a dog", "the sea at night in winter",
            "green square above a white one", "one two three", "a man rides a red horse",
        ]  # fmt: skip
        examples = [
            dataclasses.replace(e, references=(t,))
            for e, t in zip(data.examples, texts, strict=False)
        ]
        same = [dataclasses.replace(e, split="dev") for e in examples]
        captioner = tiny.train(
            tmp_path, "decoder.dropout=0.0", "decoder.hidden=32", "training.learning_rate=0.02", "training.epochs=40",
            "objective.doubly_stochastic=0", "training.select=nll", captions=dataclasses.replace(data, examples=(*examples, *same)),
        )  # fmt: skip
        last = tiny.log(tmp_path)[-1]
        assert max(last["train_nll"], last["dev_nll"]) < 0.02
        assert last["dev_bleu4"] > 99
        best = captioner.hypotheses(tiny.Reader().read([e.image_id for e in examples]), beam=3)
        assert [captioner.read(found[0]).text for found in best] == texts


def test_a_folder_belongs_to_one_process_until_it_ends(tmp_path):
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with locked(tmp_path / "run"):
            os.write(writing, b"held")
            signal.pause()
    assert os.read(reading, 4) == b"held"
    try:
        with pytest.raises(SatlibError, match="run is in use by another process"):
            tiny.train(tmp_path / "run")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for _ in range(2):  # it is given back after a mistake too
        with pytest.raises(ZeroDivisionError), locked(tmp_path / "run"):
            raise ZeroDivisionError


def test_stopped_while_dev_captions_are_generated_is_as_never_stopped(tmp_path, monkeypatch):
    """The signal comes in the middle of the second epoch's captions; what is not finished by then waits for a minute."""
    generate, judged = evaluate.generate, []

    def slow(*arguments, **options):
        judged.append(None)
        if len(judged) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        return generate(*arguments, **options)

    tiny.train(tmp_path / "whole")
    monkeypatch.setattr(validation, "generate", slow)
    began = time.monotonic()
    with pytest.raises(loop.Interrupted, match="the same command resumes"):
        tiny.train(tmp_path / "stopped")
    assert time.monotonic() - began < 30
    tiny.train(tmp_path / "stopped")
    assert differences(tmp_path / "whole", tmp_path / "stopped") == []


class Constant:
    """Vectors of one value, and half of them zero: a root mean square of value / sqrt 2."""

    def read(self, image_ids):
        a = torch.full((len(image_ids), 4, 6), 8.0)
        a[:, :2] = 0
        return a


class Scaled(tiny.Reader):
    """Vectors that are scaled beforehand."""

    def read(self, image_ids):
        return 0.25 * super().read(image_ids)


def test_the_scale_of_annotation_vectors_by_hand():
    assert root_mean_square(Constant(), [str(i) for i in range(100)]) == pytest.approx(8 / 2**0.5)


def test_the_scale_reaches_the_training_and_every_figure_of_dev(tmp_path):
    """Scaled by the recipe, or beforehand: the same bits."""
    runs = []
    for scale, reader in (("0.25", tiny.Reader()), ("1", Scaled())):
        captioner = tiny.train(
            tmp_path / scale, "training.epochs=2", f"encoder.scale={scale}", reader=reader
        )
        weights = [value.tolist() for value in captioner.state_dict().values()]
        runs.append((without_clock(tiny.log(tmp_path / scale)), weights))
    assert runs[0] == runs[1]


def test_quiet_says_nothing(tmp_path, monkeypatch, capsys):
    """Two thirds of the captions have more than five words, and each epoch has a line."""
    changes = ("data.max_length=5", "training.epochs=1")
    tiny.session(tmp_path / "loud", *changes, show=True).run()
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["40", "epoch"]

    monkeypatch.setattr(files, "quiet", True)
    tiny.session(tmp_path / "quiet", *changes, show=True).run()
    assert capsys.readouterr().out == ""
