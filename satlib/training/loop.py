"""The training loop (section 4.3): same-length batches, early stopping on generated captions, a run as a folder.

A run's folder holds `recipe.toml`, `vocabulary.json`, `log.jsonl` (a line per epoch), `curves.png`, `model.safetensors` (the best
captioner so far) and `checkpoint.safetensors` (everything that resuming needs). Each file is written atomically; on a CPU, a run
that was stopped and resumed gives the same bits as one that was not. Several processes may share a run
(`satlib.training.distributed`): each computes its rows of every batch, and the first writes the files.
"""

import json
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from satlib.data.batches import Batch
from satlib.data.caption_set import CaptionSet
from satlib.data.entities import Entities
from satlib.data.features import Reader
from satlib.errors import Diverged, Interrupted, SatlibError
from satlib.evaluation import plots
from satlib.files import progress_bar, read_ahead, say, write_json, write_text
from satlib.model.captioner import Captioner
from satlib.model.encoders import create
from satlib.model.installed import precision
from satlib.recipe import SAVE_SECONDS, Recipe, TrainingConfig
from satlib.training import checkpoint, distributed, losses, starting
from satlib.training.checkpoint import Progress, RunState, locked, update_average
from satlib.training.training_data import training_data
from satlib.training.validation import describe, dev_score, epoch_record

MODEL, LOG = "model.safetensors", "log.jsonl"


def train(
    recipe: Recipe,
    data: CaptionSet,
    reader: Reader,
    run: Path,
    device: str | torch.device = "cpu",
    progress: bool = True,
    start: Path | None = None,
    prepare: Callable[[Captioner], None] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Captioner:
    """Train a captioner, or resume a run that was stopped: -> the best captioner, which is also in the run's folder.

    `Trainer` explains the options. `on_epoch` is called with each epoch's record once it is on disk, in a resumed run first with
    those of its earlier epochs. On other processes than the first, the result is the last captioner.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM, after a checkpoint.
        SatlibError: the folder holds another run or is in use, `start` does not fit, or the loss is no longer finite.
    """
    with ExitStack() as held:
        distributed.current().from_first(lambda: held.enter_context(locked(run)))
        trainer = Trainer(
            recipe, data, reader, run, torch.device(device), progress, start, prepare, **options
        )
        trainer.run(on_epoch)
        last = trainer.state.captioner
        if not trainer.ranks.first:
            return last
        best = Captioner.load(run / MODEL, device, None if recipe.encoder.train else last.encoder)
        if prepare is not None:
            prepare(best)
        return best


class Trainer:
    """One process's work on a run: batch by batch, epoch by epoch."""

    def __init__(
        self,
        recipe: Recipe,
        data: CaptionSet,
        reader: Reader,
        folder: Path,
        device: torch.device,
        progress: bool = True,
        start: Path | None = None,
        prepare: Callable[[Captioner], None] | None = None,
        entities: Entities | None = None,
        save_seconds: float = SAVE_SECONDS,
    ) -> None:
        """Build the model and its optimiser, and resume from the folder's checkpoint if there is one.

        reader: of annotation vectors or, for an encoder that trains, of pixels. start: a trained model whose weights a new run
        begins with. prepare: called with the fresh captioner, and with
        the best one, to change a part without weights of its own.
        save_seconds: age of the last checkpoint at which one is written within an epoch.
        """
        self.recipe, self.reader, self.folder = recipe, reader, folder
        self.device, self.save_seconds = device, save_seconds
        self.saved = time.monotonic()
        self.stopping = self.between_epochs = False
        self.ranks = distributed.current()
        self.show = progress and self.ranks.first
        torch.manual_seed(recipe.training.seed)
        encoder = create(recipe.encoder.name, recipe.encoder.pretrained)
        words = starting.vocabulary(data, recipe.data, start)
        self.data = training_data(data, recipe, words, encoder.grid, entities)
        self.steps = len(self.data.batches)  # of an epoch
        captioner = Captioner(recipe, words, encoder).to(device)
        if prepare is not None:
            prepare(captioner)
        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32
        low = precision(recipe.training.precision, device, recipe.encoder.train)
        self.state = RunState(captioner, self.data.hash, low)
        self._begin(start)
        loss = losses.create(self.state, self.data)
        self.loss = self.ranks.parallel(
            loss, self.state.learning, partly=recipe.encoder.train
        )  # the head is unused

    def _begin(self, start: Path | None) -> None:
        """Resume from the folder's checkpoint, or write the first files of a new run."""
        found = self.ranks.from_first(lambda: checkpoint.find(self.folder))
        if found is not None:
            self.state.restore(*found, self.folder)
            p = self.state.progress
            if p.history:  # the process may have been killed between checkpoint and log
                self._write_log()
            if self.show:
                done = (
                    "has ended; raise training.epochs to train on" if self.finished() else "resumes"
                )
                say(f"{self.folder} {done} after epoch {p.epoch}, batch {p.batch}")
            return
        if self.ranks.first and (self.folder / MODEL).exists():
            raise SatlibError(
                f"{self.folder} holds a model without a checkpoint; name another folder with --out"
            )
        if start is not None:
            starting.start_from(start, self.state)
        elif self.data.reward is not None:
            raise SatlibError(
                'objective.maximise = "reward" improves a trained model: give one with --start'
            )
        if self.ranks.first:
            write_text(self.folder / "recipe.toml", self.recipe.to_toml())
            write_json(self.folder / "vocabulary.json", self.data.vocabulary.to_json())
        self._save()  # from now on the folder is known as this run's

    def _save(self) -> None:
        """Write a checkpoint; the first process does."""
        if self.ranks.first:
            self.state.save(self.folder)
        self.saved = time.monotonic()

    def run(self, on_epoch: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Train to the end, by epochs or by patience."""
        with self._stops():
            if on_epoch is not None:
                for record in self.state.progress.history:
                    on_epoch(record)
            while not self.finished():
                self._epoch()
                self._end_epoch()
                if on_epoch is not None:
                    on_epoch(self.state.progress.history[-1])
                if self.ranks.any(self.stopping) and not self.finished():
                    raise Interrupted(
                        f"stopped after epoch {self.state.progress.epoch}; the same command resumes it"
                    )

    @contextmanager
    def _stops(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop the run after the current batch; between epochs, or when repeated, at once."""

        def stop(number: int, frame: object) -> None:
            if self.stopping or (self.between_epochs and self.ranks.first):
                raise Interrupted("stopped; the same command resumes from the last checkpoint")
            self.stopping = True

        main = (
            threading.current_thread() is threading.main_thread()
        )  # a notebook's worker receives no signals
        before = {
            number: signal.signal(number, stop)
            for number in (signal.SIGINT, signal.SIGTERM)
            if main
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def finished(self) -> bool:
        """Whether all epochs are done, or `patience` of them without a better one."""
        config, p = self.recipe.training, self.state.progress
        best = p.best()
        return p.epoch >= config.epochs or (
            best is not None and p.epoch - best["epoch"] >= config.patience
        )

    def _epoch(self) -> None:
        """The remaining batches of the current epoch."""
        p = self.state.progress
        start, before = time.perf_counter(), p.seconds
        name = f"epoch {p.epoch + 1}/{self.recipe.training.epochs}"
        shares = [
            self.ranks.share(batch)
            for batch in islice(self.data.batches.epoch(p.epoch), p.batch, None)
        ]
        inputs = read_ahead(lambda batch: self.reader.read(batch.image_ids), shares)
        self.state.captioner.train()
        with progress_bar(
            total=self.steps, initial=p.batch, unit="batch", desc=name, show=self.show
        ) as bar:
            for batch, annotations in zip(shares, inputs, strict=True):
                self.update(batch, annotations)
                p.seconds = before + time.perf_counter() - start
                bar.update()
                bar.set_postfix_str(p.so_far(), refresh=False)
                stopping = self.ranks.any(self.stopping)
                if stopping or time.monotonic() - self.saved >= self.save_seconds:
                    self._save()
                if stopping:
                    raise Interrupted(
                        f"stopped after batch {p.batch} of {name}; the same command resumes it"
                    )

    def update(self, batch: Batch, annotations: Tensor) -> None:
        """One batch: loss, gradient, clipping, a step of the optimiser and of the moving average, sums."""
        config, state, p = self.recipe.training, self.state, self.state.progress
        step, steps = p.epoch * self.steps + p.batch, config.epochs * self.steps
        if self.ranks.size > 1:  # a single process continues its own stream
            self.ranks.seed(config.seed, step)
        done = (
            p.epoch + p.batch / self.steps
        ) / config.epochs  # step / steps is another number in its last bit
        with (
            nullcontext()
            if state.low == torch.float32
            else torch.autocast(self.device.type, state.low)
        ):
            result = self.loss(batch, annotations.to(self.device, non_blocking=True), done)
        if not torch.isfinite(result.loss):
            raise self._not_finite("loss", result.loss, batch)
        state.optimiser.zero_grad(set_to_none=True)
        state.scaler.scale(result.loss * batch.weight).backward()
        if state.bound is not None:
            self.ranks.mean(state.bound.average, batch.weight)
        state.scaler.unscale_(state.optimiser)
        norm = nn.utils.clip_grad_norm_(state.captioner.parameters(), config.clip or math.inf)
        scale = state.scaler.get_scale()
        # Before the step, so that no broken weight is ever kept. A scale that is too large makes it infinite as well.
        if not torch.isfinite(norm) and scale <= 1:
            raise self._not_finite("gradient's norm", norm, batch)
        set_learning_rate(state.optimiser, config, step, steps)
        state.scaler.step(state.optimiser)  # skipped where a gradient has overflowed
        state.scaler.update()
        if config.average and state.scaler.get_scale() >= scale:
            # A smaller decay in the first batches: the average would otherwise keep the random initial weights.
            update_average(
                state.averaged, state.captioner, min(config.average, (1 + step) / (10 + step))
            )
        sums = {name: value.item() * result.captions for name, value in result.means.items()}
        counts = {
            "words": result.words,
            "captions": result.captions,
            "sampled": result.captions * ("reward" in sums),
        }
        own = (
            sums | counts if batch.weight else {}
        )  # a share without a row of its own counts nothing
        total: Counter[str] = Counter()
        for share in self.ranks.gather(own) if self.ranks.size > 1 else [own]:
            total.update(share)
        p.batch += 1
        p.words, p.captions, p.sampled = (
            getattr(p, name) + int(total.pop(name)) for name in counts
        )
        for name, value in total.items():
            p.sums[name] = p.sums.get(name, 0.0) + value

    def _not_finite(self, what: str, value: Tensor, batch: Batch) -> Diverged:
        p, names = self.state.progress, ", ".join(batch.image_ids[:3])
        where = f"batch {p.batch + 1} of epoch {p.epoch + 1}, images {names}"
        advice = "lower training.learning_rate in a new run, or check those images"
        return Diverged(f"the {what} is {value.item()} at {where}; {advice}")

    def _end_epoch(self) -> None:
        """Judge the epoch on dev, keep its model if it is the best, write checkpoint and log."""
        p, config = self.state.progress, self.recipe.training
        # The last batch's learning rate, also in a process that resumed right after that batch.
        set_learning_rate(
            self.state.optimiser, config, (p.epoch + 1) * self.steps - 1, config.epochs * self.steps
        )
        self._save()  # judging may take minutes
        self.between_epochs = True
        record = self.ranks.from_first(lambda: epoch_record(self.state, self.data, self.reader))
        best = p.best()
        record["kept"] = best is None or dev_score(record, config.select) > dev_score(
            best, config.select
        )
        self.state.progress = Progress(epoch=p.epoch + 1, history=[*p.history, record])
        if record["kept"] and self.ranks.first:
            self.state.averaged.save(self.folder / MODEL)
        self._save()
        self.between_epochs = False
        if self.show:
            say(describe(record))
        self._write_log()

    def _write_log(self) -> None:
        if self.ranks.first:
            history = self.state.progress.history
            write_text(self.folder / LOG, "".join(json.dumps(record) + "\n" for record in history))
            plots.save(plots.curves_figure(history), self.folder / "curves.png")


def set_learning_rate(
    optimiser: torch.optim.Optimizer, config: TrainingConfig, step: int, steps: int
) -> None:
    """Give every group its learning rate at batch `step` of `steps` of all epochs: warm-up, then the schedule."""
    factor = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "cosine":
        factor *= 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))
    elif config.schedule == "linear":
        factor *= min(1.0, max(0.0, 1 - step / steps) / 0.3)
    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor
