"""Stopped or killed at any moment and resumed, a run is bit for bit the one that was not; and what a training does, by hand."""

import contextlib
import dataclasses
import json
import math
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
import torch
from runs import differences

from satlib import recipe
from satlib.data.batches import pairs
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model import encoders, objective
from satlib.model.captioner import Captioner, read_safetensors
from satlib.recipe import TrainingConfig
from satlib.training import checkpoint, loop, validation
from satlib.training.checkpoint import CHECKPOINT, LOCK, update_average
from satlib.training.loop import LOG, MODEL, set_learning_rate

CURVES = plots.curves_figure
FILES = {"recipe.toml", "vocabulary.json", LOG, "curves.png", MODEL, CHECKPOINT, LOCK}
AVERAGED = ("training.average=0.9", "training.warmup=5", "training.schedule=cosine")
RMSPROP = ("training.optimiser=rmsprop", "training.learning_rate=0.001")


def weights(folder):
    return read_safetensors(folder / MODEL)[1]


def equal(here, there):
    return here.keys() == there.keys() and all(torch.equal(here[name], there[name]) for name in here)


@contextlib.contextmanager
def disk_with_room_for(size):
    """No file may grow beyond this: what a full disk does to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestResuming:
    """At the moments that matter; `test_resuming` has the shipped recipes."""

    def test_more_epochs_go_on_where_fewer_ended(self, tmp_path):
        tiny.train(tmp_path / "whole", *RMSPROP)
        tiny.train(tmp_path / "more", *RMSPROP, "training.epochs=1")
        tiny.train(tmp_path / "more", *RMSPROP)
        (header, tensors), (_, others) = (read_safetensors(tmp_path / name / CHECKPOINT) for name in ("more", "whole"))
        assert equal(tensors, others)
        assert header["progress"]["epoch"] == 3

    @pytest.mark.slow
    def test_killed_before_any_of_its_writes(self, tmp_path, monkeypatch):
        rename, changes = Path.replace, (*AVERAGED, "training.epochs=2")
        tiny.train(tmp_path / "whole", *changes)

        class Killed(BaseException):
            pass

        def killed_at(folder, last):
            count = 0

            def replace(path, target):
                nonlocal count
                count += 1
                if count > last:
                    raise Killed
                return rename(path, target)

            with monkeypatch.context() as patch:
                patch.setattr(Path, "replace", replace)
                try:
                    tiny.train(folder, *changes)
                except Killed:
                    return True
                return False

        writes = 0
        while killed_at(folder := tmp_path / str(writes), writes):
            folder.mkdir(exist_ok=True)  # not there if the first write was the one
            (folder / ".checkpoint.safetensors.left.partial").write_bytes(b"half of it")
            tiny.train(folder, *changes)
            assert differences(folder, tmp_path / "whole") == []
            writes += 1
        assert writes > 9  # recipe, vocabulary, checkpoint; then model, checkpoint, log and curves after each epoch


class TestRefusals:
    @pytest.fixture
    def run(self, tmp_path):
        tiny.train(tmp_path, "training.epochs=1")
        return tmp_path

    def test_another_recipe(self, run):
        with pytest.raises(SatlibError, match=r"begun with another decoder.hidden; name another folder with --out"):
            tiny.train(run, "decoder.hidden=20")
        tiny.train(run, "training.epochs=1", "decoding.beam=4")  # how captions are generated may change

    def test_other_captions(self, run):
        other = tiny.data()
        first = dataclasses.replace(other.examples[0], references=("a purple zebra",))
        with pytest.raises(SatlibError, match=r"begun with other captions or boxes"):
            tiny.train(run, captions=dataclasses.replace(other, examples=(first, *other.examples[1:])))

    def test_a_model_alone_is_not_overwritten(self, run):
        (run / CHECKPOINT).unlink()
        with pytest.raises(SatlibError, match="a model without a checkpoint"):
            tiny.train(run)


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
        ) as caught:
            tiny.train(tmp_path, "training.batch_size=1", reader=self.Broken())
        assert "\n" not in str(caught.value)
        assert ((tmp_path / CHECKPOINT).read_bytes(), (tmp_path / MODEL).read_bytes()) == before

    @pytest.mark.parametrize(("precision", "moment"), [("float32", "1 of epoch 1"), ("fp16", "8 of epoch 2")])
    def test_a_gradient_under_a_finite_loss(self, tmp_path, monkeypatch, precision, moment):
        """In fp16 the scale is halved until it cannot be the reason."""
        true = objective.negative_log_likelihood

        def infinitely_steep(logits, captions):
            return true(logits, captions) + (0 * logits.float().flatten(1).sum(1)).sqrt()

        monkeypatch.setattr(objective, "negative_log_likelihood", infinitely_steep)
        with pytest.raises(SatlibError, match=rf"the gradient's norm is nan at batch {moment}"):
            tiny.train(tmp_path, f"training.precision={precision}", "training.clip=0")
        assert all(value.isfinite().all() for value in read_safetensors(tmp_path / CHECKPOINT)[1].values())


class TestScaledLoss:
    """fp16: the loss is scaled up, so that small gradients survive; where large ones overflow the step is left out."""

    FP16 = ("training.precision=fp16", "training.average=0.9", "training.epochs=1")

    @pytest.mark.parametrize("optimiser", ["adam", "rmsprop"])
    def test_an_overflow_leaves_the_step_out(self, tmp_path, monkeypatch, optimiser):
        update, seen = loop.Trainer.update, []

        def watched(session, *arguments):
            if len(seen) == 2:
                session.state.scaler._scale.fill_(2.0**22)  # too much for float16
            scale = session.state.scaler.get_scale()
            before = [
                {name: value.clone() for name, value in each.state_dict().items()}
                for each in (session.state.captioner, session.state.averaged)
            ]
            update(session, *arguments)
            now = session.state.captioner.state_dict(), session.state.averaged.state_dict()
            seen.append((scale, session.state.scaler.get_scale(), *map(equal, before, now)))

        monkeypatch.setattr(loop.Trainer, "update", watched)
        tiny.train(tmp_path, *self.FP16, f"training.optimiser={optimiser}")
        assert seen[2] == (2.0**22, 2.0**21, True, True)
        assert all(still == averaged == (after < before) for before, after, still, averaged in seen)
        assert seen[-1][2:] == (False, False)
        header, tensors = read_safetensors(tmp_path / CHECKPOINT)
        assert header["scaler"]["scale"] == seen[-1][1]
        assert tensors["optimiser.0.step"] == sum(not still for _, _, still, _ in seen)


def test_a_full_disk_leaves_the_old_files_and_one_line(tmp_path):
    tiny.train(tmp_path, "training.epochs=1", *RMSPROP)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with disk_with_room_for(9000), pytest.raises(SatlibError, match=r"cannot write .*; free some space") as caught:
        tiny.train(tmp_path, *RMSPROP)
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    tiny.train(tmp_path, *RMSPROP)  # with space again
    assert len(tiny.log(tmp_path)) == 3


class TestSchedule:
    @pytest.mark.parametrize(
        ("config", "factors"),
        [
            ({}, [1, 1, 1, 1, 1, 1]),
            ({"warmup": 4}, [0.25, 0.5, 0.75, 1, 1, 1]),
            ({"schedule": "cosine"}, [1, 0.933, 0.75, 0.5, 0.25, 0.067]),
            ({"schedule": "cosine", "warmup": 4}, [0.25, 0.467, 0.5625, 0.5, 0.25, 0.067]),
        ],
    )
    def test_by_hand(self, config, factors):
        rates, optimiser = [], SimpleNamespace(param_groups=[{"base": 2.0}])
        for step in range(6):
            set_learning_rate(optimiser, TrainingConfig(**config), step, 6)
            rates.append(optimiser.param_groups[0]["lr"])
        assert rates == pytest.approx([2 * factor for factor in factors], abs=2e-3)


def test_stops_after_patience_and_keeps_the_best(tmp_path, monkeypatch):
    def scores(values):
        left = list(values)
        monkeypatch.setattr(validation, "quick_bleu", lambda captions, examples: left.pop(0))

    scores([1, 3, 2, 3, 9])
    tiny.train(tmp_path / "patient", "training.patience=2", "training.epochs=10")
    assert [record["dev_bleu4"] for record in tiny.log(tmp_path / "patient")] == [1, 3, 2, 3]
    scores([1, 3])
    tiny.train(tmp_path / "two", "training.epochs=2")
    assert equal(weights(tmp_path / "patient"), weights(tmp_path / "two"))
    scores([])
    tiny.train(tmp_path / "patient", "training.patience=2", "training.epochs=10")  # it stays stopped


class TestOptimiser:
    def captioner(self, *changes):
        chosen = tiny.the_recipe(*changes)
        return Captioner(chosen, Vocabulary(["a", "b"]), encoders.create("tiny"))

    def test_rmsprop_is_graves_form(self):
        """Graves (2013), equations 38 to 45, eps after the root as torch adds it."""
        captioner = self.captioner("training.optimiser=rmsprop", "training.learning_rate=0.002")
        optimiser = checkpoint.create_optimiser(captioner)
        parameter = captioner.decoder.output.weight
        w = parameter.detach().double().clone()
        n, g, delta = (torch.zeros_like(w) for _ in range(3))
        for _ in range(5):
            gradient = torch.randn_like(parameter)
            parameter.grad = gradient.clone()
            optimiser.step()
            n = 0.95 * n + 0.05 * gradient.double() ** 2
            g = 0.95 * g + 0.05 * gradient.double()
            delta = 0.9 * delta - 0.002 * gradient.double() / ((n - g**2).sqrt() + 1e-4)
            w += delta
        torch.testing.assert_close(parameter.detach().double(), w, atol=1e-6, rtol=1e-5)

    @pytest.mark.parametrize(("pretrained", "rate"), [("true", 0.0003), ("false", 0.01)])
    def test_an_encoder_that_trains_has_its_own_rate(self, pretrained, rate):
        captioner = self.captioner(
            "encoder.train=true", f"encoder.pretrained={pretrained}", "training.encoder_learning_rate=0.0003"
        )
        decoder, encoder = checkpoint.create_optimiser(captioner).param_groups
        assert (decoder["lr"], encoder["lr"]) == (0.01, rate)
        assert len(encoder["params"]) == len(list(captioner.encoder.parameters()))
        (group,) = checkpoint.create_optimiser(self.captioner()).param_groups  # a frozen one is not in it
        assert len(group["params"]) == len(decoder["params"])

    def test_average_by_hand(self):
        mean, now = (self.captioner("encoder.train=true") for _ in range(2))
        for captioner, value in ((mean, 2.0), (now, 6.0)):
            for tensor in captioner.state_dict().values():
                tensor.fill_(value)
        update_average(mean, now, 0.75)
        for name, tensor in mean.state_dict().items():  # 0.75 * 2 + 0.25 * 6 = 3; a counter is what it is now
            assert (tensor == (6 if "num_batches" in name else 3)).all(), name
        assert all((tensor == 6).all() for tensor in now.state_dict().values())

    def test_an_average_forgets_faster_while_it_has_seen_little(self, tmp_path, monkeypatch):
        decays = []
        monkeypatch.setattr(loop, "update_average", lambda mean, now, decay: decays.append(decay))
        tiny.train(tmp_path, "training.average=0.5", "training.epochs=1", "training.batch_size=4")
        assert decays[:9] == [1 / 10, 2 / 11, 3 / 12, 4 / 13, 5 / 14, 6 / 15, 7 / 16, 8 / 17, 0.5]
        assert set(decays[8:]) == {0.5}


class TestRun:
    def test_a_run_is_a_folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(plots, "curves_figure", CURVES)
        captioner = tiny.train(tmp_path, "decoder.dropout=0.0", "training.epochs=2", "training.learning_rate=0.03")
        assert {path.name for path in tmp_path.iterdir()} == FILES
        assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
        log = tiny.log(tmp_path)
        assert [record["epoch"] for record in log] == [1, 2]
        assert log[1]["train_nll"] < log[0]["train_nll"]
        assert log[1]["dev_bleu4"] > 0
        assert {"event", "train_penalty", "dev_nll", "learning_rate", "seconds", "tokens_per_second"} <= log[0].keys()
        assert json.loads((tmp_path / "vocabulary.json").read_text()) == captioner.vocabulary.to_json()
        assert recipe.load(str(tmp_path / "recipe.toml")) == captioner.recipe
        assert not captioner.training

    def test_the_log_says_the_loss_of_the_training(self, tmp_path):
        """At a learning rate of 0, without dropout: the first weights' loss, reckoned here caption by caption."""
        captioner = tiny.train(tmp_path, "decoder.dropout=0.0", "training.learning_rate=0", "training.epochs=1")
        (record,) = tiny.log(tmp_path)
        data, reader, total, words, penalty, captions = tiny.data(), tiny.Reader(), 0.0, 0, 0.0, 0
        for pair in pairs(data.split("train"), captioner.vocabulary, 40):
            with torch.inference_mode():
                logits, alphas, *_ = captioner.decoder(reader.read([pair.image_id]), torch.tensor([pair.caption]))
            log_p = logits[0].double().log_softmax(1)
            total -= sum(log_p[t, word].item() for t, word in enumerate(pair.caption))
            penalty += sum((1 - alphas[0, :, i].sum().item()) ** 2 for i in range(4))
            words += len(pair.caption)
            captions += 1
        assert record["train_nll"] == pytest.approx(total / words, rel=1e-5)
        assert record["train_penalty"] == pytest.approx(penalty / captions, rel=1e-4)

    def test_dev_nll_is_the_mean_over_words_of_one_caption_at_a_time(self, tmp_path):
        captioner, reader = tiny.train(tmp_path, "training.epochs=1"), tiny.Reader()
        dev, total = pairs(tiny.data().split("dev"), captioner.vocabulary, 40), 0.0
        for pair in dev:
            with torch.inference_mode():
                logits = captioner.decoder(reader.read([pair.image_id]), torch.tensor([pair.caption])).logits
            log_p = logits[0].double().log_softmax(1)
            total -= sum(log_p[t, word].item() for t, word in enumerate(pair.caption))
        expected = total / sum(len(pair.caption) for pair in dev)
        assert validation.dev_nll(captioner, reader, dev, 4) == pytest.approx(expected, rel=1e-5)

    @pytest.mark.slow
    def test_eight_captions_are_learnt_by_heart(self, tmp_path):
        data = tiny.data()
        texts = [
            "a red circle on the left", "two blue stars", "there is nothing here", "a dog", "the sea at night in winter",
            "green square above a white one", "one two three", "a man rides a red horse",
        ]  # fmt: skip
        examples = [dataclasses.replace(e, references=(t,)) for e, t in zip(data.examples, texts, strict=False)]
        same = [dataclasses.replace(e, split="dev") for e in examples]
        captioner = tiny.train(
            tmp_path, "decoder.dropout=0.0", "decoder.hidden=32", "training.learning_rate=0.02", "training.epochs=40",
            "objective.doubly_stochastic=0", "training.select=nll", captions=dataclasses.replace(data, examples=(*examples, *same)),
        )  # fmt: skip
        last = tiny.log(tmp_path)[-1]
        assert last["train_nll"] < 0.02
        assert last["dev_nll"] < 0.02
        assert last["dev_bleu4"] > 99
        best = captioner.hypotheses(tiny.Reader().read([e.image_id for e in examples]), beam=3)
        assert [captioner.read(found[0]).text for found in best] == texts
