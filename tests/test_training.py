"""Training: resumed runs are bit for bit those never stopped; the lock; and each part by hand."""

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
from satlib.files import LOCK, locked_folder
from satlib.model import encoders, objective
from satlib.model.captioner import Captioner, read_safetensors
from satlib.recipe import TrainingConfig
from satlib.training import checkpoint, loop, validation
from satlib.training.checkpoint import CHECKPOINT, update_average
from satlib.training.features import root_mean_square
from satlib.training.loop import LOG, MODEL, set_learning_rate

CURVES = plots.curves_figure
FILES = {"recipe.toml", "vocabulary.json", LOG, "curves.png", MODEL, CHECKPOINT, LOCK}
AVERAGED = ("training.average=0.9", "training.warmup=5", "training.schedule=cosine")
RMSPROP = ("training.optimiser=rmsprop", "training.learning_rate=0.001")


def equal(here, there):
    if here.keys() != there.keys():
        return False
    return all(torch.equal(here[name], there[name]) for name in here)


def tensors_of(path):
    _, tensors = read_safetensors(path)
    return tensors


def alone(captioner, pair):
    """log p(y_t) of a caption's words, and its maps (C, L), if the decoder gets it alone."""
    a = tiny.Reader().read([pair.image_id])
    captions = torch.tensor([pair.caption])
    with torch.inference_mode():
        output = captioner.decoder(a, captions)
    log_p = output.logits[0].double().log_softmax(1)  # (C, K)
    of_words = [log_p[t, word].item() for t, word in enumerate(pair.caption)]
    return of_words, output.alphas[0]


class TestResuming:
    """At the moments that matter; `test_resuming` has the shipped recipes."""

    @pytest.mark.parametrize(
        "changes", [RMSPROP, ("training.average=0.9",)], ids=["rmsprop", "average"]
    )
    def test_more_epochs_go_on_where_fewer_ended(self, tmp_path, changes):
        whole = tmp_path / "whole"
        more = tmp_path / "more"
        tiny.train(whole, *changes)
        tiny.train(more, *changes, "training.epochs=1")
        tiny.train(more, *changes)

        header, tensors = read_safetensors(more / CHECKPOINT)
        assert header["progress"]["epoch"] == 3
        # The model is of the last epoch: it shows what became of a moving average.
        assert header["progress"]["history"][-1]["kept"]
        assert equal(tensors, tensors_of(whole / CHECKPOINT))
        assert equal(tensors_of(more / MODEL), tensors_of(whole / MODEL))

    @pytest.mark.slow
    def test_killed_before_any_of_its_writes(self, tmp_path, monkeypatch):
        changes = (*AVERAGED, "training.epochs=2")
        tiny.train(tmp_path / "whole", *changes)
        rename = Path.replace

        class Killed(BaseException):
            pass

        def killed_after(writes, folder):
            """Train, but die at the first write after so many; whether it came to that."""

            def replace(path, target):
                nonlocal writes
                writes -= 1
                if writes < 0:
                    raise Killed
                return rename(path, target)

            # An atomic write ends with a renaming.
            with monkeypatch.context() as patch, contextlib.suppress(Killed):
                patch.setattr(Path, "replace", replace)
                tiny.train(folder, *changes)
            return writes < 0

        writes = 0
        folder = tmp_path / "0"
        while killed_after(writes, folder):
            # The folder is not there if the first write was the one.
            folder.mkdir(exist_ok=True)
            (folder / ".checkpoint.safetensors.left.partial").write_bytes(b"half of it")
            tiny.train(folder, *changes)
            assert differences(folder, tmp_path / "whole") == []
            writes += 1
            folder = tmp_path / str(writes)
        # Recipe, vocabulary, checkpoint; then model, checkpoint, log and curves after each epoch.
        assert writes > 9

    def test_what_belongs_to_another_run_is_refused(self, tmp_path):
        tiny.train(tmp_path, "training.epochs=1")
        message = r"begun with another decoder.hidden; name another folder with --out"
        with pytest.raises(SatlibError, match=message):
            tiny.train(tmp_path, "decoder.hidden=20")
        # How captions are generated may change.
        tiny.train(tmp_path, "training.epochs=1", "decoding.beam=4")

        data = tiny.data()
        first, *others = data.examples
        first = dataclasses.replace(first, references=("a purple zebra",))
        changed = dataclasses.replace(data, examples=(first, *others))
        with pytest.raises(SatlibError, match=r"begun with other captions or boxes"):
            tiny.train(tmp_path, captions=changed)

        (tmp_path / CHECKPOINT).unlink()
        with pytest.raises(SatlibError, match="a model without a checkpoint"):
            tiny.train(tmp_path)


class TestNotFinite:
    class Broken(tiny.Reader):
        def read(self, image_ids):
            a = super().read(image_ids)
            if "train-7" in image_ids:
                a = a * math.nan
            return a

    def test_a_loss(self, tmp_path):
        """The batch that is named holds the image, and the files are those of the epoch before."""
        tiny.train(tmp_path, "training.batch_size=1", "training.epochs=1")
        checkpoint = (tmp_path / CHECKPOINT).read_bytes()
        model = (tmp_path / MODEL).read_bytes()

        message = r"^the loss is nan at batch \d+ of epoch 2, images train-7; lower.*$"
        with pytest.raises(SatlibError, match=message):
            tiny.train(tmp_path, "training.batch_size=1", reader=self.Broken())
        assert (tmp_path / CHECKPOINT).read_bytes() == checkpoint
        assert (tmp_path / MODEL).read_bytes() == model

    @pytest.mark.parametrize(
        ("precision", "moment"), [("float32", "1 of epoch 1"), ("fp16", "8 of epoch 2")]
    )
    def test_a_gradient_under_a_finite_loss(self, tmp_path, monkeypatch, precision, moment):
        """In fp16 the scale is halved until it cannot be the reason."""
        word_losses = objective.word_losses

        def infinitely_steep(logits, captions):
            # The root of 0 is 0, and its derivative is infinite.
            zero = 0 * logits.float().sum(2)
            return word_losses(logits, captions) + zero.sqrt()

        monkeypatch.setattr(objective, "word_losses", infinitely_steep)
        with pytest.raises(SatlibError, match=rf"the gradient's norm is nan at batch {moment}"):
            tiny.train(tmp_path, f"training.precision={precision}", "training.clip=0")

        # No such step reached the weights.
        for value in tensors_of(tmp_path / CHECKPOINT).values():
            assert value.isfinite().all()


def test_in_fp16_an_overflow_leaves_the_step_out(tmp_path, monkeypatch):
    """The loss is scaled up, so that small gradients survive; large ones may overflow."""
    update = loop.Trainer.update
    seen = []

    def watched(session, *arguments):
        state = session.state
        if len(seen) == 2:
            # Too much for float16.
            state.scaler._scale.fill_(2.0**22)
        scale = state.scaler.get_scale()
        before = {name: value.clone() for name, value in state.stored.state_dict().items()}
        update(session, *arguments)

        # Whether weights and average stayed as they were.
        unchanged = equal(before, state.stored.state_dict())
        seen.append((scale, state.scaler.get_scale(), unchanged))

    monkeypatch.setattr(loop.Trainer, "update", watched)
    tiny.train(tmp_path, "training.precision=fp16", "training.average=0.9", "training.epochs=1")

    # At an overflow, and only there, the scale is halved and nothing changes.
    assert seen[2] == (2.0**22, 2.0**21, True)
    for before, after, unchanged in seen:
        assert unchanged == (after < before)
    *_, (_, scale, unchanged) = seen
    assert not unchanged

    header, tensors = read_safetensors(tmp_path / CHECKPOINT)
    assert header["scaler"]["scale"] == scale
    steps = [step for step in seen if not step[2]]
    assert tensors["optimiser.0.step"] == len(steps)


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
    group = {"base": 2.0}
    optimiser = SimpleNamespace(param_groups=[group])
    rates = []
    for step in range(6):
        set_learning_rate(optimiser, TrainingConfig(**config), step, 6)
        rates.append(group["lr"])
    # The factors are rounded to three digits.
    expected = [2 * factor for factor in factors]
    assert rates == pytest.approx(expected, abs=2e-3)


def test_stops_after_patience_and_keeps_the_best(tmp_path, monkeypatch):
    def scores(*values):
        """The dev scores of the next epochs."""
        left = list(values)
        monkeypatch.setattr(validation, "quick_bleu", lambda captions, examples: left.pop(0))

    # Two epochs without a better one than the second are enough.
    patient = tmp_path / "patient"
    scores(1, 3, 2, 3, 9)
    tiny.train(patient, "training.patience=2", "training.epochs=10")
    log = tiny.log(patient)
    assert [record["dev_bleu4"] for record in log] == [1, 3, 2, 3]

    # So the model is that of the second epoch.
    two = tmp_path / "two"
    scores(1, 3)
    tiny.train(two, "training.epochs=2")
    assert equal(tensors_of(patient / MODEL), tensors_of(two / MODEL))

    # It stays stopped: another epoch would find no score.
    scores()
    tiny.train(patient, "training.patience=2", "training.epochs=10")

    # Below 1 the dev loss decides.
    noise = tmp_path / "noise"
    scores(0.9, 0.1, 0.1, 1.0, 0.9)
    tiny.train(noise, "training.patience=5", "training.epochs=5")
    log = tiny.log(noise)
    assert log[2]["dev_nll"] < log[1]["dev_nll"] < log[0]["dev_nll"]
    assert [record["kept"] for record in log] == [True, True, True, True, False]


class TestOptimiser:
    def captioner(self, *changes):
        vocabulary = Vocabulary(["a", "b"])
        return Captioner(tiny.the_recipe(*changes), vocabulary, encoders.create("tiny"))

    def test_rmsprop_is_graves_form(self):
        """Graves (2013), equations 38 to 45: gradients so small that eps, under the root, decides."""
        captioner = self.captioner("training.optimiser=rmsprop", "training.learning_rate=0.002")
        optimiser = checkpoint.create_optimiser(captioner)
        parameter = captioner.decoder.output.weight
        before = parameter.detach().double().clone()
        w = before.clone()
        n = torch.zeros_like(w)
        g = torch.zeros_like(w)
        delta = torch.zeros_like(w)
        for _ in range(5):
            parameter.grad = 1e-3 * torch.randn_like(parameter)
            gradient = parameter.grad.double()
            optimiser.step()

            # Epsilon is under the root, unlike in torch.
            n = 0.95 * n + 0.05 * gradient**2
            g = 0.95 * g + 0.05 * gradient
            delta = 0.9 * delta - 0.002 * gradient / (n - g**2 + 1e-4).sqrt()
            w += delta
        moved = parameter.detach().double() - before
        torch.testing.assert_close(moved, w - before, atol=1e-7, rtol=1e-3)

    def test_average_by_hand(self):
        mean = self.captioner("encoder.train=true")
        now = self.captioner("encoder.train=true")
        for tensor in mean.state_dict().values():
            tensor.fill_(2.0)
        for tensor in now.state_dict().values():
            tensor.fill_(6.0)
        update_average(mean, now, 0.75)

        for name, tensor in mean.state_dict().items():
            # 0.75 * 2 + 0.25 * 6 = 3; a counter is what it is now.
            expected = 6 if "num_batches" in name else 3
            assert (tensor == expected).all(), name


class TestRun:
    def test_a_run_is_a_folder(self, tmp_path, monkeypatch):
        # With real curves, which other tests leave out.
        monkeypatch.setattr(plots, "curves_figure", CURVES)
        changes = (
            "decoder.dropout=0.0",
            "training.epochs=2",
            "training.learning_rate=0.03",
            "training.schedule=linear",
            # 0 turns clipping off; it is not the largest norm.
            "training.clip=0",
        )
        captioner = tiny.train(tmp_path, *changes)
        assert {path.name for path in tmp_path.iterdir()} == FILES
        assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")

        first, second = tiny.log(tmp_path)
        assert first["epoch"] == 1
        assert second["epoch"] == 2
        # Far more than rounding would do to weights that stay.
        assert second["train_nll"] < 0.9 * first["train_nll"]
        assert second["dev_bleu4"] > 0
        # At the last of 18 batches 1/18 of the training is left; the rate falls over its last 0.3.
        assert second["learning_rate"] == pytest.approx(0.03 / 18 / 0.3)
        columns = {
            "train_penalty",
            "dev_nll",
            "learning_rate",
            "seconds",
        }
        assert columns <= first.keys()

        words = json.loads((tmp_path / "vocabulary.json").read_text())
        assert words == captioner.vocabulary.to_json()
        assert recipe.load(str(tmp_path / "recipe.toml")) == captioner.recipe
        # It is ready to caption.
        assert not captioner.training

    def test_the_log_has_the_means_of_one_caption_at_a_time(self, tmp_path):
        """Of the training captions' loss, and of the dev captions' likelihood."""
        # So that the weights are the same before and after, and nothing is random.
        changes = ("decoder.dropout=0.0", "training.learning_rate=0", "training.epochs=1")
        captioner = tiny.train(tmp_path, *changes)
        (record,) = tiny.log(tmp_path)

        for split in ("train", "dev"):
            log_p = []
            penalties = []
            for pair in pairs(tiny.data().split(split), captioner.vocabulary, 40):
                of_words, alphas = alone(captioner, pair)
                log_p += of_words
                places = alphas.T.tolist()  # the weights of each place at every word
                penalties.append(sum((1 - sum(weights)) ** 2 for weights in places))

            # The likelihood is per word, the penalty per caption.
            nll = -sum(log_p) / len(log_p)
            assert record[f"{split}_nll"] == pytest.approx(nll, rel=1e-5)
            if split == "train":
                penalty = sum(penalties) / len(penalties)
                assert record["train_penalty"] == pytest.approx(penalty, rel=1e-4)

    def test_the_likelihood_of_dev_is_without_dropout(self):
        captioner = tiny.decided()
        dev = pairs(tiny.data().split("dev"), captioner.vocabulary, 40)
        found = set()
        for training in (False, True):
            captioner.train(training)
            found.add(validation.dev_nll(captioner, tiny.Reader(), dev, 8))
        assert len(found) == 1

    def test_the_average_begins_with_a_small_decay(self, tmp_path):
        """(1 + t) / (10 + t) is 1/10 at the first batch: what was drawn at random is soon gone."""
        trainer = tiny.session(tmp_path, "training.average=0.999")
        average = trainer.state.averaged.decoder.output.bias
        drawn = average.clone()
        batch = trainer.data.batches.epoch(0)[0]
        trainer.update(batch, tiny.Reader().read(batch.image_ids))

        trained = trainer.state.captioner.decoder.output.bias
        torch.testing.assert_close(average, 0.1 * drawn + 0.9 * trained)

    @pytest.mark.slow
    def test_eight_captions_are_learnt_by_heart(self, tmp_path):
        data = tiny.data()
        texts = [
            "a red circle on the left",
            "two blue stars",
            "there is nothing here",
            "a dog",
            "the sea at night in winter",
            "green square above a white one",
            "one two three",
            "a man rides a red horse",
        ]
        examples = []
        for example, text in zip(data.examples, texts, strict=False):
            examples.append(dataclasses.replace(example, references=(text,)))
        # The same images are dev, too.
        same = [dataclasses.replace(example, split="dev") for example in examples]
        changes = (
            "decoder.dropout=0.0",
            "decoder.hidden=32",
            "training.learning_rate=0.02",
            "training.epochs=40",
            "objective.doubly_stochastic=0",
            "training.select=nll",
        )
        captions = dataclasses.replace(data, examples=(*examples, *same))
        captioner = tiny.train(tmp_path, *changes, captions=captions)

        last = tiny.log(tmp_path)[-1]
        assert max(last["train_nll"], last["dev_nll"]) < 0.02
        assert last["dev_bleu4"] > 99
        a = tiny.Reader().read([example.image_id for example in examples])
        found = captioner.hypotheses(a, beam=3)
        assert [captioner.read(best).text for best, *_ in found] == texts


def test_a_folder_belongs_to_one_process_until_it_ends(tmp_path):
    run = tmp_path / "run"
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with locked_folder(run):
            os.write(writing, b"held")
            signal.pause()

    # From here on the child has the folder.
    assert os.read(reading, 4) == b"held"
    try:
        with pytest.raises(SatlibError, match="run is in use by another process"):
            tiny.train(run)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    # It is free after the child's death, and after a mistake, too.
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), locked_folder(run):
            raise ZeroDivisionError


def test_stopped_while_dev_captions_are_generated_is_as_never_stopped(tmp_path, monkeypatch):
    """The signal comes in the middle of the second epoch's captions."""
    generate = evaluate.generate
    calls = 0

    def slow(*arguments, **options):
        nonlocal calls
        calls += 1
        if calls == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            # The run must not wait for the captions.
            time.sleep(60)
        return generate(*arguments, **options)

    whole = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    tiny.train(whole)
    monkeypatch.setattr(validation, "generate", slow)
    start = time.monotonic()
    with pytest.raises(loop.Interrupted, match="the same command resumes"):
        tiny.train(stopped)
    assert time.monotonic() - start < 30

    tiny.train(stopped)
    assert differences(whole, stopped) == []


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
    image_ids = [str(i) for i in range(100)]
    assert root_mean_square(Constant(), image_ids) == pytest.approx(8 / 2**0.5)


def test_the_scale_reaches_the_training_and_every_figure_of_dev(tmp_path):
    """Scaled by the recipe, or beforehand: the same bits."""
    runs = []
    for scale, reader in (("0.25", tiny.Reader()), ("1", Scaled())):
        folder = tmp_path / scale
        changes = ("training.epochs=2", f"encoder.scale={scale}")
        captioner = tiny.train(folder, *changes, reader=reader)
        weights = [value.tolist() for value in captioner.state_dict().values()]
        # Seconds differ from run to run.
        log = without_clock(tiny.log(folder))
        runs.append((log, weights))
    by_the_recipe, beforehand = runs
    assert by_the_recipe == beforehand


def test_quiet_says_nothing(tmp_path, monkeypatch, capsys):
    """Two thirds of the captions have more than five words, and each epoch has a line."""
    changes = ("data.max_length=5", "training.epochs=1")
    tiny.session(tmp_path / "loud", *changes, show=True).run()
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said] == ["40", "epoch"]

    monkeypatch.setattr(files, "quiet", True)
    tiny.session(tmp_path / "quiet", *changes, show=True).run()
    assert capsys.readouterr().out == ""
