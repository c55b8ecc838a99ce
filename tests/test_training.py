"""Stopped or killed at any moment and resumed, a run is bit for bit the one that was not; and what a training does, by hand."""

import contextlib
import dataclasses
import functools
import json
import math
import os
import resource
import signal
from pathlib import Path

import pytest
import tiny
import torch
from runs import differences
from torch import nn

from satlib import recipe
from satlib.data.batches import Batch, pairs
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model import encoders, objective
from satlib.model.captioner import Captioner, read_safetensors, write_safetensors
from satlib.recipe import TrainingConfig
from satlib.training import checkpoint, interruption, loop, optimisation, validation
from satlib.training.checkpoint import LOCK
from satlib.training.loop import CHECKPOINT, LOG, MODEL
from satlib.training.optimisation import learning_rate_factor, update_average

CURVES = plots.curves_figure
FILES = {"recipe.toml", "vocabulary.json", LOG, "curves.png", MODEL, CHECKPOINT, LOCK}
AVERAGED = ("training.average=0.9", "training.warmup=5", "training.schedule=cosine", "objective.label_smoothing=0.1")
BATCHES = 9  # of an epoch
RMSPROP = ("training.optimiser=rmsprop", "training.learning_rate=0.001")


def weights(folder):
    return read_safetensors(folder / MODEL)[1]


def equal(here, there):
    return here.keys() == there.keys() and all(torch.equal(here[name], there[name]) for name in here)


@contextlib.contextmanager
def stopped_after(updates, number):
    """Send ourselves a signal when so many batches are done."""
    count, update = 0, loop.Trainer.update

    def counted(session, *arguments):
        nonlocal count
        update(session, *arguments)
        count += 1
        if count == updates:
            os.kill(os.getpid(), number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "update", counted)
        yield


@contextlib.contextmanager
def disk_with_room_for(size):
    """No file may grow beyond this: what a full disk does to a writer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that was not stopped."""
    folder = tmp_path_factory.mktemp("whole")
    tiny.train(folder, *AVERAGED)
    return folder


class TestResuming:
    """At the moments that matter; `test_resuming` has the shipped recipes."""

    @pytest.mark.parametrize("epochs", [0.2, 1, 2.9])
    def test_stopped_and_resumed_is_the_run_that_was_not(self, epochs, whole, tmp_path):
        number = signal.SIGTERM if epochs < 1 else signal.SIGINT
        updates = math.ceil(epochs * BATCHES)
        with stopped_after(updates, number), pytest.raises(loop.Interrupted, match="the same command resumes it"):
            tiny.train(tmp_path, *AVERAGED)
        progress = read_safetensors(tmp_path / CHECKPOINT)[0]["progress"]
        assert progress["epoch"] * BATCHES + progress["batch"] == updates
        torch.manual_seed(7)  # another process has other random numbers
        tiny.train(tmp_path, *AVERAGED)
        assert differences(tmp_path, whole) == []

    def test_a_finished_run_stays_as_it_is_and_gives_the_signals_back(self, whole):
        before = {name: (whole / name).read_bytes() for name in FILES}
        handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
        tiny.train(whole, *AVERAGED)
        assert {name: (whole / name).read_bytes() for name in FILES} == before
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers

    def test_more_epochs_go_on_where_fewer_ended(self, tmp_path):
        tiny.train(tmp_path / "whole", *RMSPROP)
        tiny.train(tmp_path / "more", *RMSPROP, "training.epochs=1")
        tiny.train(tmp_path / "more", *RMSPROP)
        (header, tensors), (_, others) = (read_safetensors(tmp_path / name / CHECKPOINT) for name in ("more", "whole"))
        assert equal(tensors, others)
        assert header["progress"]["epoch"] == 3

    def test_another_seed_is_another_run(self, whole, tmp_path):
        tiny.train(tmp_path, *AVERAGED, "training.seed=4")
        assert not equal(weights(tmp_path), weights(whole))

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
        with pytest.raises(SatlibError, match=r"training captions.*name another folder with --out"):
            tiny.train(run, captions=dataclasses.replace(other, examples=(first, *other.examples[1:])))

    def test_a_checkpoint_of_something_else(self, run):
        header, tensors = read_safetensors(run / CHECKPOINT)
        (run / CHECKPOINT).write_bytes((run / MODEL).read_bytes())
        with pytest.raises(SatlibError, match="is not that of a checkpoint"):
            tiny.train(run)
        tensors["model.output.bias"] = torch.zeros(5)
        write_safetensors(run / CHECKPOINT, tensors, header)
        with pytest.raises(SatlibError, match=r"does not fit its recipe .*size mismatch.*name another folder"):
            tiny.train(run)

    def test_a_model_alone_is_not_overwritten(self, run):
        (run / CHECKPOINT).unlink()
        with pytest.raises(SatlibError, match="a finished model without a checkpoint"):
            tiny.train(run)

    @pytest.mark.parametrize("split", [0, 1])
    def test_an_empty_split(self, tmp_path, split):
        with pytest.raises(SatlibError, match="needs images in both its train and its dev split"):
            tiny.train(tmp_path, captions=tiny.data(train=20 * split, dev=6 - 6 * split))
        assert not list(tmp_path.iterdir())

    def test_a_folder_that_is_a_file(self, tmp_path):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(SatlibError, match=r"cannot write .*/file: File exists; choose another folder with --out"):
            tiny.train(tmp_path / "file")


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

    def test_what_dev_says(self, tmp_path, monkeypatch):
        monkeypatch.setattr(validation, "dev_nll", lambda *arguments: math.nan)
        with pytest.raises(SatlibError, match=r"after epoch 1 dev_nll .* is not finite; lower"):
            tiny.train(tmp_path)
        assert not (tmp_path / MODEL).exists()

    @pytest.mark.parametrize("name", ["model.output.bias", "optimiser.0.exp_avg", "average.output.bias"])
    def test_a_checkpoint(self, tmp_path, name):
        tiny.train(tmp_path, "training.epochs=1", "training.average=0.9")
        header, tensors = read_safetensors(tmp_path / CHECKPOINT)
        tensors[name].view(-1)[0] = math.nan
        write_safetensors(tmp_path / CHECKPOINT, tensors, header)
        with pytest.raises(SatlibError, match=rf"checkpoint\.safetensors: {name} holds values that are not finite"):
            tiny.train(tmp_path, "training.average=0.9")

    @pytest.mark.parametrize(("precision", "moment"), [("float32", "1 of epoch 1"), ("fp16", "8 of epoch 2")])
    def test_a_gradient_under_a_finite_loss(self, tmp_path, monkeypatch, precision, moment):
        """In fp16 the scale is halved until it cannot be the reason."""
        true = objective.negative_log_likelihood

        def infinitely_steep(logits, captions, smoothing=0.0):
            return true(logits, captions, smoothing) + (0 * logits.float().flatten(1).sum(1)).sqrt()

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
                for each in (session.captioner, session.state.averaged)
            ]
            update(session, *arguments)
            now = session.captioner.state_dict(), session.state.averaged.state_dict()
            seen.append((scale, session.state.scaler.get_scale(), *map(equal, before, now)))

        monkeypatch.setattr(loop.Trainer, "update", watched)
        tiny.train(tmp_path, *self.FP16, f"training.optimiser={optimiser}")
        assert seen[2] == (2.0**22, 2.0**21, True, True)
        assert all(still == averaged == (after < before) for before, after, still, averaged in seen)
        assert seen[-1][2:] == (False, False)
        header, tensors = read_safetensors(tmp_path / CHECKPOINT)
        assert header["scaler"]["scale"] == seen[-1][1]
        assert tensors["optimiser.0.step"] == sum(not still for _, _, still, _ in seen)

    def test_what_is_clipped_is_not_scaled(self, tmp_path, monkeypatch):
        clip, norms = nn.utils.clip_grad_norm_, []

        def watched(parameters, most):
            norms.append(clip(parameters, most).item())
            return torch.tensor(norms[-1])

        monkeypatch.setattr(nn.utils, "clip_grad_norm_", watched)
        # A scale at which no gradient overflows, so that no step is left out.
        monkeypatch.setattr(torch.amp, "GradScaler", functools.partial(torch.amp.GradScaler, init_scale=2.0**8))
        for precision in ("float32", "fp16"):
            tiny.train(
                tmp_path / precision, "training.epochs=1", "training.batch_size=60", f"training.precision={precision}"
            )
        exact, rounded = norms[: len(norms) // 2], norms[len(norms) // 2 :]
        assert rounded == pytest.approx(exact, rel=0.01)
        assert rounded != exact


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
        found = [learning_rate_factor(TrainingConfig(**config), step, 6) for step in range(6)]
        assert found == pytest.approx(factors, abs=1e-3)

    def test_it_reaches_the_optimiser(self, tmp_path):
        """Adam's first step is as long as its learning rate, whatever the gradient."""
        changes = ("training.batch_size=60", "data.max_length=5", "training.epochs=1", "decoder.dropout=0.0")
        tiny.train(tmp_path / "still", *changes, "training.learning_rate=0")
        tiny.train(tmp_path / "moved", *changes, "training.learning_rate=0.01", "training.warmup=5")
        assert read_safetensors(tmp_path / "moved" / CHECKPOINT)[1]["optimiser.0.step"] == 1
        name = "decoder.output.bias"
        moved = weights(tmp_path / "moved")[name] - weights(tmp_path / "still")[name]
        torch.testing.assert_close(moved.abs(), torch.full_like(moved, 0.01 / 5), rtol=1e-3, atol=0)


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
        return Captioner(chosen, Vocabulary(["a", "b"]), encoders.create("tiny")), chosen

    def test_rmsprop_is_graves_form(self):
        """Graves (2013), equations 38 to 45, eps after the root as torch adds it."""
        captioner, chosen = self.captioner("training.optimiser=rmsprop", "training.learning_rate=0.002")
        optimiser = optimisation.create_optimiser(captioner, chosen)
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
        captioner, chosen = self.captioner(
            "encoder.train=true", f"encoder.pretrained={pretrained}", "training.encoder_learning_rate=0.0003"
        )
        decoder, encoder = optimisation.create_optimiser(captioner, chosen).param_groups
        assert (decoder["lr"], encoder["lr"]) == (0.01, rate)
        assert len(encoder["params"]) == len(list(captioner.encoder.parameters()))
        (group,) = optimisation.create_optimiser(*self.captioner()).param_groups  # a frozen one is not in it
        assert len(group["params"]) == len(decoder["params"])

    def test_frozen_means_frozen(self):
        """The statistics of its BatchNorm, too, stay as they are in training mode."""
        captioner, _ = self.captioner()
        captioner.train()
        before = encoders.weights_hash(captioner.encoder)
        captioner.annotations(torch.rand(4, 3, 224, 224) * 255)
        assert encoders.weights_hash(captioner.encoder) == before
        assert captioner.decoder.training
        assert not any(isinstance(m, nn.BatchNorm2d) and m.training for m in captioner.modules())

    def test_average_by_hand(self):
        (mean, _), (now, _) = (self.captioner("encoder.train=true") for _ in range(2))
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
        assert Vocabulary.load(tmp_path / "vocabulary.json") == captioner.vocabulary
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

    def test_bf16(self, tmp_path):
        tiny.train(tmp_path / "bf16", "training.precision=bf16", "training.epochs=2")
        tiny.train(tmp_path / "float32", "training.epochs=2")
        short, long = (tiny.log(tmp_path / name)[1]["train_nll"] for name in ("bf16", "float32"))
        assert short == pytest.approx(long, rel=0.05)
        assert short != long

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


class TestOnEpoch:
    def test_it_is_told_each_record_once_that_is_safe(self, tmp_path):
        heard = []

        def on_epoch(record):
            heard.append(record)
            assert json.loads((tmp_path / LOG).read_text().splitlines()[-1]) == record

        tiny.train(tmp_path, on_epoch=on_epoch)
        assert [record["epoch"] for record in heard] == [1, 2, 3]

    def test_a_request_to_stop_between_two_epochs(self, tmp_path):
        """It comes when the epoch's last batch is long done; at the last epoch there is nothing left to stop."""
        with pytest.raises(loop.Interrupted, match="stopped after epoch 1; the same command resumes it"):
            tiny.train(tmp_path, on_epoch=lambda record: os.kill(os.getpid(), signal.SIGINT))
        assert len((tmp_path / LOG).read_text().splitlines()) == 1
        tiny.train(tmp_path, on_epoch=lambda record: record["epoch"] == 3 and os.kill(os.getpid(), signal.SIGINT))
        assert len((tmp_path / LOG).read_text().splitlines()) == 3


def spread_of(session):
    batch = next(iter(session.batches.epoch(0)))
    return validation.gradient_spread(session.captioner, session.state.bound, session.reader, batch, session.done())


def finished_epoch(epoch, kept):
    return {"epoch": epoch, "kept": kept, "dev_nll": 3.0, "dev_bleu4": 13.0}


def test_the_spread_of_a_batch_of_images_is_that_of_its_captions(tmp_path):
    """Each image once with its captions, against each caption with an image of its own."""
    tiny.train(tmp_path / "whole", "decoder.attention=hard", "training.batches=images", "training.epochs=1")
    assert tiny.log(tmp_path / "whole")[0]["gradient_spread"] > 0
    session = tiny.session(tmp_path / "run", "decoder.attention=hard", "training.batches=images", "hard.samples=2")
    (batch, *_), trainer = session.batches.epoch(0), session.captioner
    spreads = [
        validation.gradient_spread(trainer, session.state.bound, session.reader, each, 0.5)
        for each in (batch, Batch(batch.images, batch.captions))
    ]
    assert spreads[0] == spreads[1]


class TestSession:
    def test_when_it_has_finished(self, tmp_path):
        """10 epochs, a patience of 3; the best is epoch 2."""
        session = tiny.session(tmp_path, "training.epochs=10", "training.patience=3")
        history = [finished_epoch(epoch, epoch == 2) for epoch in range(1, 11)]
        for epoch, finished in ((0, False), (1, False), (2, False), (4, False), (5, True), (9, True)):
            session.state.progress = checkpoint.Progress(epoch=epoch, history=history[:epoch])
            assert session.finished() == finished, epoch
        session.state.progress = checkpoint.Progress(epoch=10, history=[finished_epoch(10, True)])
        assert session.finished()

    def test_the_share_that_is_done(self, tmp_path):
        session = tiny.session(tmp_path, "training.epochs=4")
        assert len(session.batches) == 9
        for epoch, batch, done in ((0, 0, 0), (0, 3, 1 / 12), (1, 0, 1 / 4), (3, 6, 11 / 12)):
            session.state.progress = checkpoint.Progress(epoch=epoch, batch=batch)
            assert session.done() == pytest.approx(done)

    def test_a_record_by_hand(self, tmp_path, monkeypatch):
        """30 nats over 12 words, 4 captions, 2 of them sampled, in 2.04 seconds."""
        monkeypatch.setattr(validation, "dev_nll", lambda *given: 3.5)
        monkeypatch.setattr(validation, "quick_bleu", lambda *given: 12.5)
        session = tiny.session(tmp_path)
        sums = {"nll": 30.0, "penalty": 6.0, "entropy": 5.0, "movement": 1.0, "reward": -16.0, "baseline": -8.0}
        session.state.progress = checkpoint.Progress(1, 8, sums, 12, 4, 2, 2.04, [finished_epoch(1, True)])
        assert session.judge() == {
            **{"event": "epoch", "epoch": 2, "train_nll": 2.5, "train_penalty": 1.5, "train_entropy": 1.25},
            **{"train_movement": 0.25, "train_reward": -8.0, "train_baseline": -4.0, "dev_nll": 3.5, "dev_bleu4": 12.5},
            **{"learning_rate": 0.01, "seconds": 2.0, "tokens_per_second": 5.9, "kept": False},
        }
        for before, kept in ((12.5, False), (12.4, True)):
            session.progress.history[0]["dev_bleu4"] = before
            assert session.judge()["kept"] is kept
        session.progress.seconds = 0.0  # a clock that stands still
        assert session.judge()["tokens_per_second"] == 12e9

    @pytest.mark.parametrize(("limit", "written"), [(0.0, [*range(1, 10)]), (3.0, [3, 6, 9]), (10.0, [])])
    def test_a_checkpoint_within_an_epoch_by_its_age(self, tmp_path, monkeypatch, limit, written):
        """A clock that goes on by 1 with each of 9 batches; before the first and after the epoch one is written anyway."""
        update, save, now, saved = loop.Trainer.update, loop.Trainer.save_checkpoint, [0.0], []

        def ticking(session, *given):
            now[0] += 1
            update(session, *given)

        def counted(session):
            saved.append(session.progress.batch)
            save(session)

        monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(loop.Trainer, "update", ticking)
        monkeypatch.setattr(loop.Trainer, "save_checkpoint", counted)
        session = tiny.session(tmp_path, "training.epochs=1", save_seconds=limit)
        session.run(interruption.StopRequest(), None)
        assert saved == [0, *written, 0]

    def test_images_are_drawn_once_and_not_for_a_run_that_has_finished(self, tmp_path, monkeypatch):
        prepared = []
        monkeypatch.setattr(
            Pixels, "prepare", lambda reader, image_ids, progress: prepared.append((image_ids, progress))
        )
        changes = ("training.epochs=1", "data.train_images=8")
        for _ in range(2):
            tiny.train(tmp_path, *changes, reader=Pixels(tiny.data()))
        assert prepared == [([f"train-{i}" for i in range(8)], False)]

    def test_what_is_said_so_far(self):
        """With hard attention the log of captions has a reward too, but it is the loss that counts."""
        counts = {"words": 12, "captions": 4, "sampled": 4}
        assert checkpoint.Progress(sums={"nll": 30.0, "reward": 3.0}, **counts).so_far() == "loss 2.500/word"
        assert checkpoint.Progress(sums={"reward": 3.0}, **counts).so_far() == "reward 0.750"

    @pytest.mark.parametrize(
        ("attention", "moved", "warned"), [("soft", 0.019, 1), ("soft", 0.02, 0), ("soft", None, 0), ("none", 0.0, 0)]
    )
    def test_what_is_said_after_an_epoch(self, attention, moved, warned):
        chosen = tiny.the_recipe(f"decoder.attention={attention}")
        record = {"epoch": 4, "train_nll": 2.5, "dev_nll": 3.5, "dev_bleu4": 12.5, "seconds": 7.0}
        told = validation.describe(record if moved is None else record | {"train_movement": moved}, chosen)
        assert told.startswith("epoch 4: train 2.500, dev 3.500 nats per word, dev BLEU-4 12.5 (greedy), 7 s")
        assert told.count("\nwarning: the attention map hardly depends on the word") == warned
        told = validation.describe(record | {"train_reward": 0.25, "dev_reward": 0.5}, chosen)
        assert told.startswith("epoch 4: train reward 0.250, dev reward 0.500, dev 3.500 nats")

    def test_a_checkpoint_of_a_gpu_goes_on_on_a_cpu(self, tmp_path, monkeypatch):
        """With the CPU's random numbers; nothing is said to a GPU, of which there need be none."""
        tiny.train(tmp_path, "training.epochs=1")
        header, tensors = read_safetensors(tmp_path / CHECKPOINT)
        write_safetensors(tmp_path / CHECKPOINT, tensors | {"random.cuda": torch.zeros(16, dtype=torch.uint8)}, header)
        told = []
        monkeypatch.setattr(torch.cuda, "set_rng_state", lambda *given: told.append(given))
        torch.manual_seed(8)
        tiny.session(tmp_path, "training.epochs=1")
        assert torch.equal(torch.get_rng_state(), tensors["random"])
        assert told == []

    def test_a_log_that_a_kill_left_behind_is_written_again(self, tmp_path):
        tiny.train(tmp_path, "training.epochs=1")
        before = (tmp_path / LOG).read_bytes()
        (tmp_path / LOG).unlink()
        tiny.session(tmp_path, "training.epochs=1")
        assert (tmp_path / LOG).read_bytes() == before

    def test_a_gradients_spread_by_hand(self, tmp_path, monkeypatch):
        """Eight estimates, half (1, 2) and half (3, 2): variances 8/7 and 0, a mean of (2, 2)."""
        session = tiny.session(tmp_path, "decoder.attention=hard")
        modes, left = [], [torch.tensor([1.0 + 2 * (i % 2), 2.0]) for i in range(8)]

        def grad(loss, energy):
            modes.append((session.captioner.decoder.training, session.captioner.decoder.attention.training))
            return (left.pop(),)

        monkeypatch.setattr(torch.autograd, "grad", grad)
        assert spread_of(session) == pytest.approx(math.sqrt(8 / 7) / math.sqrt(8))
        assert modes == [(False, True)] * 8
        assert session.state.bound.training

    def test_a_gradients_spread_leaves_the_training_alone(self, tmp_path):
        """Neither the random numbers nor the moving average change, and so it says the same twice; at first all take the expectation."""
        session = tiny.session(tmp_path, "decoder.attention=hard")
        random, average = torch.get_rng_state(), session.state.bound.average.clone()
        first = spread_of(session)
        assert first > 0.01
        assert torch.equal(torch.get_rng_state(), random)
        assert torch.equal(session.state.bound.average, average)
        torch.manual_seed(11)
        assert spread_of(session) == first
        certain = tiny.session(tmp_path / "certain", "decoder.attention=hard", "hard.anneal=0.5")
        assert spread_of(certain) < 1e-6

    def test_a_second_ctrl_c_stops_at_once_and_a_second_sigterm_does_not(self, capfd):
        with interruption.stop_requests() as request:
            assert not request.requested
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
            assert request.requested
            assert capfd.readouterr().err.count("stopping after this batch; Ctrl-C once more stops at once") == 1
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    def test_a_start_gives_its_weights_to_the_average_too(self, tmp_path):
        begun = tiny.train(tmp_path / "begun", "training.epochs=1")
        session = tiny.session(tmp_path / "run", "training.average=0.9", start=tmp_path / "begun")
        for captioner in (session.captioner, session.state.averaged):
            assert equal(captioner.state_dict(), begun.state_dict())
        assert session.state.averaged is not session.captioner
