"""The training loop (section 4.3): same-length batches, early stopping on generated captions, a run as a folder.

A run's folder holds `recipe.toml`, `vocabulary.json`, `log.jsonl` (one JSON object per epoch), `curves.png`, `model.safetensors`
(the best captioner so far) and `checkpoint.safetensors` (everything that resuming needs). Each file is written atomically; on a
CPU, a run that was stopped and resumed gives the same bits as one that was not. Several processes may share a run
(`satlib.training.distributed`): each computes its rows of every batch, and the first writes the files.
"""

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from satlib.beyond import boxes
from satlib.beyond.rewards import reward_loss
from satlib.data.batches import Batch
from satlib.data.caption_set import CaptionSet
from satlib.data.entities import Entities
from satlib.data.features import Pixels, Reader, read_ahead
from satlib.errors import Diverged, Interrupted, SatlibError
from satlib.evaluation import plots
from satlib.files.atomic import write_text
from satlib.files.progress import progress_bar, say
from satlib.model.captioner import Captioner
from satlib.model.device import precision
from satlib.model.encoders import create
from satlib.model.objective import BatchLoss, caption_loss, coins
from satlib.recipe import SAVE_SECONDS, Recipe
from satlib.training import checkpoint, distributed, starting
from satlib.training.checkpoint import Progress, RunState, locked, set_learning_rate, update_average
from satlib.training.training_data import drop_annotations, random_views, training_data
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
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Captioner:
    """Train a captioner, or resume a run that was stopped: -> the best captioner, which is also in the run's folder.

    `Trainer` explains the options. `on_epoch` is called with each epoch's record once it is on disk.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM, after a checkpoint.
        SatlibError: the folder holds another run or is in use, `start` does not fit, or the loss is no longer finite.
    """
    with ExitStack() as held:
        distributed.current().from_first(lambda: held.enter_context(locked(run)))
        trainer = Trainer(recipe, data, reader, run, torch.device(device), progress, start, **options)
        trainer.run(on_epoch)
        last = trainer.captioner
        shared = None if recipe.encoder.train else last.encoder
        return Captioner.load(run / MODEL, device, shared) if trainer.ranks.first else last


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

        reader: gives annotation vectors (a feature store) or pixels (an encoder that trains) by image id.
        start: a trained model whose weights a new run begins with; its attention may be of another kind.
        prepare: called with the fresh captioner, to change a part of it.
        entities: the boxes of the training captions' phrases, if `objective.boxes` gives them a weight.
        save_seconds: age of the last checkpoint at which one is written within an epoch; 0: after every batch.
        """
        self.reader, self.folder, self.device = reader, folder, device
        self.save_seconds, self.saved = save_seconds, time.monotonic()
        self.ranks = distributed.current()
        self.show = progress and self.ranks.first
        self.data = training_data(data, recipe)
        self.batches, self.steps = self.data.batches, len(self.data.batches)  # of an epoch
        torch.manual_seed(recipe.training.seed)
        encoder = create(recipe.encoder.name, recipe.encoder.pretrained)
        recipe = self.ranks.from_first(lambda: starting.with_scale(recipe, encoder, reader, self.data.train_ids))
        self.recipe = recipe
        self.captioner = Captioner(recipe, self.data.vocabulary, encoder).to(device)
        if prepare is not None:
            prepare(self.captioner)
        self.terms = boxes.terms(entities, data, self.captioner)
        self.low = precision(recipe.training.precision, device)
        self.state = RunState(self.captioner, self.data.hash + "".join(term.hash for term in self.terms), self.low)
        self.stopping = self.between_epochs = False
        self._begin(start)
        learning: list[nn.Module] = [self.captioner if recipe.encoder.train else self.captioner.decoder]
        if self.state.bound is not None:
            learning.append(self.state.bound)
        loss = self._caption_loss if self.data.reward is None else self._reward_loss
        self.loss = self.ranks.parallel(loss, learning, partly=recipe.encoder.train)  # a head may be unused

    @property
    def progress(self) -> Progress:
        """How far the run has come."""
        return self.state.progress

    def _begin(self, start: Path | None) -> None:
        """Resume from the folder's checkpoint, or write the first files of a new run."""
        found = self.ranks.from_first(lambda: checkpoint.find(self.folder))
        if found is not None:
            self.state.restore(*found, self.folder)
            if self.progress.history:  # the process may have been killed between checkpoint and log
                self._write_log()
            if self.show:
                done = "has ended; raise training.epochs to train on" if self.finished() else "resumes"
                say(f"{self.folder} {done} after epoch {self.progress.epoch}, batch {self.progress.batch}")
            return
        if self.ranks.first and (self.folder / MODEL).exists():
            raise SatlibError(f"{self.folder} holds a model without a checkpoint; name another folder with --out")
        if start is not None:
            starting.start_from(start, self.state)
        elif self.data.reward is not None:
            raise SatlibError('objective.maximise = "reward" improves a trained model: give one with --start')
        if self.ranks.first:
            write_text(self.folder / "recipe.toml", self.recipe.to_toml())
            self.data.vocabulary.save(self.folder / "vocabulary.json")
        self.save_checkpoint()  # from now on the folder is known as this run's, whenever the process is killed

    def save_checkpoint(self) -> None:
        """Write the run's state into its folder; the first process does."""
        if self.ranks.first:
            checkpoint.save(self.folder, self.state)
        self.saved = time.monotonic()

    def run(self, on_epoch: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Train to the end, by epochs or by patience."""
        with self._stops():
            if isinstance(self.reader, Pixels) and not self.finished():
                self.reader.prepare(self.data.train_ids, self.show)
            while not self.finished():
                self._epoch()
                self._end_epoch()
                if on_epoch is not None:
                    on_epoch(self.progress.history[-1])
                if self.ranks.any(self.stopping) and not self.finished():
                    raise Interrupted(f"stopped after epoch {self.progress.epoch}; the same command resumes it")

    @contextmanager
    def _stops(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop the run after the current batch; between epochs, and when repeated, they stop it at once."""

        def stop(number: int, frame: object) -> None:
            if self.stopping or (self.between_epochs and self.ranks.first):
                raise Interrupted("stopped; the same command resumes from the last checkpoint")
            self.stopping = True

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread (a notebook's worker), which receives no signals
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def finished(self) -> bool:
        """Whether all epochs are done, or `patience` of them without a better one."""
        config, best = self.recipe.training, self.progress.best()
        waited = self.progress.epoch - best["epoch"] if best else 0
        return self.progress.epoch >= config.epochs or waited >= config.patience

    def done(self) -> float:
        """The share of the training's batches that are done."""
        p = self.state.progress
        return (p.epoch + p.batch / self.steps) / self.recipe.training.epochs

    def _epoch(self) -> None:
        """The remaining batches of the current epoch."""
        p = self.progress
        start, before = time.perf_counter(), p.seconds
        name = f"epoch {p.epoch + 1}/{self.recipe.training.epochs}"
        bar = progress_bar(total=self.steps, initial=p.batch, unit="batch", desc=name, show=self.show)
        shares = [self.ranks.share(batch) for batch in islice(self.batches.epoch(p.epoch), p.batch, None)]
        inputs = read_ahead(lambda batch: self.reader.read(batch.image_ids), shares)
        with bar:
            for batch, annotations in zip(shares, inputs, strict=True):
                self.update(batch, annotations)
                p.seconds = before + time.perf_counter() - start
                bar.update()
                bar.set_postfix_str(p.so_far(), refresh=False)
                stopping = self.ranks.any(self.stopping)
                if stopping or time.monotonic() - self.saved >= self.save_seconds:
                    self.save_checkpoint()
                if stopping:
                    raise Interrupted(f"stopped after batch {p.batch} of {name}; the same command resumes it")

    def update(self, batch: Batch, annotations: Tensor) -> None:
        """One batch: loss, gradient, clipping, a step of the optimiser and of the moving average, counts."""
        config, state, p = self.recipe.training, self.state, self.state.progress
        step = p.epoch * self.steps + p.batch
        self.ranks.seed(config.seed, step)
        with nullcontext() if self.low == torch.float32 else torch.autocast(self.device.type, self.low):
            result = self.loss(batch, annotations)
        if not torch.isfinite(result.loss):
            raise self._not_finite("loss", result.loss, batch)
        state.optimiser.zero_grad(set_to_none=True)
        state.scaler.scale(result.loss * batch.weight).backward()
        if state.bound is not None:
            self.ranks.mean(state.bound.average, batch.weight)
        state.scaler.unscale_(state.optimiser)
        norm = nn.utils.clip_grad_norm_(self.captioner.parameters(), config.clip or math.inf)
        # Checked before the step, so that no broken weight is ever kept. A scale that is too large makes it infinite as well.
        if not torch.isfinite(norm) and state.scaler.get_scale() <= 1:
            raise self._not_finite("gradient's norm", norm, batch)
        set_learning_rate(state.optimiser, config, step, config.epochs * self.steps)
        scale = state.scaler.get_scale()
        state.scaler.step(state.optimiser)  # skipped where a gradient has overflowed
        state.scaler.update()
        if config.average and state.scaler.get_scale() >= scale:
            # A smaller decay in the first batches: the average would otherwise keep the random initial weights.
            update_average(state.averaged, self.captioner, min(config.average, (1 + step) / (10 + step)))
        p.add(result, batch.weight, self.ranks)

    def _caption_loss(self, batch: Batch, annotations: Tensor) -> BatchLoss:
        """Equation 14 or hard attention's bound, for a batch of captions."""
        self.captioner.train()
        config, places = self.recipe.training, None
        annotations = annotations.to(self.device, non_blocking=True)
        if config.augment:
            annotations = random_views(annotations)
        a = self.captioner.annotations(annotations)
        if config.drop_places or config.drop_dimensions:
            a, places = drop_annotations(a, config)
        return caption_loss(
            self.captioner.decoder,
            batch.by_caption(a),
            batch.captions.to(self.device),
            self.recipe.objective.doubly_stochastic,
            self.state.bound,
            self.done(),
            [partial(term, batch, places) for term in self.terms],
        )

    def _reward_loss(self, batch: Batch, annotations: Tensor) -> BatchLoss:
        """The expected reward of captions that the model samples for a batch of images."""
        assert self.data.reward is not None
        config, hard = self.recipe.reward, self.recipe.decoder.attention == "hard"
        self.captioner.eval()  # rewarded as it will generate: without dropout
        a = self.captioner.annotations(annotations.to(self.device, non_blocking=True))
        with self.captioner.looking("sample" if hard else None):
            return reward_loss(
                self.captioner.decoder,
                a,
                partial(self.data.reward.of_rollout, batch.image_ids),
                config.samples,
                self.recipe.decoding.max_length,
                config.temperature,
                self.recipe.objective.doubly_stochastic,
                coins(self.recipe.hard, len(a), self.device, self.done()) if hard else None,
                config.baseline,
            )

    def _not_finite(self, what: str, value: Tensor, batch: Batch) -> Diverged:
        return Diverged(
            f"the {what} is {value.item()} at batch {self.progress.batch + 1} of epoch {self.progress.epoch + 1}, images "
            f"{', '.join(batch.image_ids[:3])}; lower training.learning_rate in a new run, or check those images"
        )

    def _end_epoch(self) -> None:
        """Judge the epoch on dev, keep its model if it is the best, write checkpoint and log."""
        p, config = self.progress, self.recipe.training
        # The last batch's learning rate, also in a process that resumed right after that batch.
        set_learning_rate(self.state.optimiser, config, (p.epoch + 1) * self.steps - 1, config.epochs * self.steps)
        self.save_checkpoint()  # judging may take minutes
        self.between_epochs = True
        record = self.ranks.from_first(lambda: epoch_record(self.state, self.data, self.reader))
        best = p.best()
        record["kept"] = best is None or dev_score(record, config.select) > dev_score(best, config.select)
        self.state.progress = Progress(epoch=p.epoch + 1, history=[*p.history, record])
        if record["kept"] and self.ranks.first:
            self.state.averaged.save(self.folder / MODEL)
        self.save_checkpoint()
        self.between_epochs = False
        if self.show:
            say(describe(record, self.recipe))
        self._write_log()

    def _write_log(self) -> None:
        if self.ranks.first:
            write_text(self.folder / LOG, "".join(json.dumps(line) + "\n" for line in self.progress.history))
            plots.save(plots.curves_figure(self.progress.history), self.folder / "curves.png")
