"""The training loop (section 4.3): same-length batches, early stopping on generated captions.

A run is a folder. It holds `recipe.toml`, `vocabulary.json`, `log.jsonl` (a line per epoch),
`curves.png`, `model.safetensors` (the best captioner so far) and `checkpoint.safetensors`
(everything that resuming needs). Each file is written atomically; on a CPU, a run that was stopped
and resumed gives the same bits as one that was not. Several processes may share a run
(`satlib.training.distributed`): each computes its rows of every batch, and the first writes the
files.
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
from satlib.files import locked_folder, progress_bar, read_ahead, say, write_json, write_text
from satlib.model.captioner import Captioner
from satlib.model.encoders import create, freeze_unused
from satlib.model.installed import precision
from satlib.model.objective import BatchLoss
from satlib.recipe import SAVE_SECONDS, Recipe, TrainingConfig
from satlib.training import checkpoint, distributed, losses, starting
from satlib.training.checkpoint import Progress, RunState, update_average
from satlib.training.training_data import training_data
from satlib.training.validation import describe, dev_score, epoch_record

MODEL = "model.safetensors"
LOG = "log.jsonl"
LINEAR_FALL = 0.3  # the last share of the training, in which the linear schedule falls to 0


def train(
    recipe: Recipe,
    data: CaptionSet,
    reader: Reader,
    run: Path,
    device: str | torch.device = "cpu",
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    **options: Any,
) -> Captioner:
    """Train a captioner, or resume a run that was stopped.

    Returns the best captioner, which is also in the run's folder; on other processes than the
    first, the last one. The options are those of `Trainer`: progress, start, prepare, entities and
    save_seconds. `on_epoch` is called with each epoch's record once it is on disk.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM, after a checkpoint.
        SatlibError: the folder holds another run or is in use, `start` does not fit, or the loss
            is no longer finite.
    """
    with ExitStack() as held:
        # The first process locks the folder for all of them, until this block ends.
        distributed.current().from_first(lambda: held.enter_context(locked_folder(run)))
        trainer = Trainer(recipe, data, reader, run, torch.device(device), **options)
        trainer.run(on_epoch)

        last = trainer.state.captioner
        if not trainer.ranks.first:
            return last

        # A frozen encoder is still what it was: no need to build it again.
        encoder = None if recipe.encoder.train else last.encoder
        best = Captioner.load(run / MODEL, device, encoder)
        if trainer.prepare is not None:
            trainer.prepare(best)
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
        """Build the model and its optimiser, and resume from the folder's checkpoint if it has one.

        reader: of annotation vectors or, for an encoder that trains, of pixels.
        start: a trained model whose weights a new run begins with.
        prepare: called with the fresh captioner, and with the best one, to replace a part that has
            no weights of its own.
        entities: the boxes of phrases, if attention is supervised.
        save_seconds: the age of the last checkpoint at which one is written within an epoch.
        """
        self.recipe = recipe
        self.reader = reader
        self.folder = folder
        self.device = device
        self.prepare = prepare
        self.save_seconds = save_seconds
        self.saved = time.monotonic()
        self.stopping = False
        self.between_epochs = False
        self.ranks = distributed.current()
        self.show = progress and self.ranks.first

        # From here on everything random follows from the seed: weights, dropout, sampled places.
        torch.manual_seed(recipe.training.seed)
        encoder = create(recipe.encoder.name, recipe.encoder.pretrained)
        words = starting.vocabulary(data, recipe.data, start)
        self.data = training_data(data, recipe, words, encoder.grid, entities)
        self.steps = len(self.data.batches)  # of an epoch

        captioner = Captioner(recipe, words, encoder).to(device)
        if recipe.encoder.train:
            freeze_unused(encoder)
        if prepare is not None:
            prepare(captioner)

        if device.type == "cuda":
            torch.set_float32_matmul_precision("high")  # TF32
        dtype = precision(recipe.training.precision, device, recipe.encoder.train)
        self.state = RunState(captioner, self.data.hash, dtype)
        found = self.ranks.from_first(lambda: checkpoint.find(folder))
        if found is None:
            self._begin(start)
        else:
            self._resume(*found)

        loss = losses.create(self.state, self.data)
        self.loss = self.ranks.parallel(loss, self.state.learning)

    def _begin(self, start: Path | None) -> None:
        """Take over the weights of `start`, if given, and write a new run's first files."""
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
        # The checkpoint marks the folder as this run's, so that no other run can take it.
        self._save()

    def _resume(self, header: checkpoint.Header, tensors: dict[str, Tensor]) -> None:
        """Continue where a checkpoint was written."""
        self.state.restore(header, tensors, self.folder)
        p = self.state.progress
        # The process may have been killed between checkpoint and log.
        if p.history:
            self._write_log()

        if not self.show:
            return
        if self.finished():
            say(
                f"{self.folder} has ended after epoch {p.epoch}; "
                "raise training.epochs or training.patience to train on"
            )
        else:
            say(f"{self.folder} resumes after epoch {p.epoch}, batch {p.batch}")

    def _save(self) -> None:
        """Write a checkpoint; the first process does."""
        if self.ranks.first:
            self.state.save(self.folder)
        self.saved = time.monotonic()

    def run(self, on_epoch: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Train to the end, by epochs or by patience."""
        with self._stops():
            while not self.finished():
                self._epoch()
                self._end_epoch()
                if on_epoch is not None:
                    on_epoch(self.state.progress.history[-1])
                if self.ranks.any(self.stopping) and not self.finished():
                    epoch = self.state.progress.epoch
                    raise Interrupted(f"stopped after epoch {epoch}; the same command resumes it")

    @contextmanager
    def _stops(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM stop the run after the current batch.

        When repeated they stop it at once; so they do between epochs in the first process, for
        which the others wait there.
        """

        def stop(number: int, frame: object) -> None:
            if self.stopping or (self.between_epochs and self.ranks.first):
                raise Interrupted("stopped; the same command resumes from the last checkpoint")
            self.stopping = True

        # Python allows handlers in the main thread alone; a notebook's worker receives no signals.
        before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def finished(self) -> bool:
        """Whether all epochs are done, or `patience` of them without a better one."""
        config = self.recipe.training
        p = self.state.progress
        if p.epoch >= config.epochs:
            return True
        best = p.best()
        return best is not None and p.epoch - best["epoch"] >= config.patience

    def _epoch(self) -> None:
        """The remaining batches of the current epoch."""
        p = self.state.progress
        name = f"epoch {p.epoch + 1}/{self.recipe.training.epochs}"
        start = time.perf_counter()
        before = p.seconds

        # A resumed epoch skips the batches that were trained on before.
        remaining = islice(self.data.batches.epoch(p.epoch), p.batch, None)
        shares = [self.ranks.share(batch) for batch in remaining]
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

                # All processes stop after the same batch, whichever of them got the signal.
                stopping = self.ranks.any(self.stopping)
                if stopping or time.monotonic() - self.saved >= self.save_seconds:
                    self._save()
                if stopping:
                    raise Interrupted(
                        f"stopped after batch {p.batch} of {name}; the same command resumes it"
                    )

    # One batch

    def update(self, batch: Batch, annotations: Tensor) -> None:
        """Train on one batch (section 4.3); annotations: what the reader gives for its images."""
        result = self._forward(batch, annotations)
        self._require_finite("loss", result.loss, batch)

        self._backward(result.loss, batch.weight)
        norm = self._clip()
        # Checked before the step, so that no broken weight of the captioner is kept. A loss that is
        # scaled up too far makes the norm infinite as well; then the step is left out and the scale
        # halved.
        if self.state.scaler.get_scale() <= 1:
            self._require_finite("gradient's norm", norm, batch)

        if self._step():
            self._average()
        self._count(batch, result)

    def _step_number(self) -> int:
        """The number of batches before this one, in all epochs."""
        p = self.state.progress
        return p.epoch * self.steps + p.batch

    def _forward(self, batch: Batch, annotations: Tensor) -> BatchLoss:
        """The loss of a batch (equation 14, or the run's other objective)."""
        p = self.state.progress
        config = self.recipe.training
        # A single process continues its own stream of random numbers.
        if self.ranks.size > 1:
            self.ranks.seed(config.seed, self._step_number())

        # The share of the training that is done. Divided in another order it may differ in its last
        # bit, and a run that is resumed after such a change would not be the one that was begun.
        done = (p.epoch + p.batch / self.steps) / config.epochs
        context = nullcontext()
        if self.state.dtype != torch.float32:
            context = torch.autocast(self.device.type, self.state.dtype)
        with context:
            return self.loss(batch, annotations.to(self.device, non_blocking=True), done)

    def _backward(self, loss: Tensor, weight: float) -> None:
        """The gradient of the loss, which in fp16 is scaled up so that small gradients survive."""
        state = self.state
        state.optimiser.zero_grad(set_to_none=True)
        state.scaler.scale(loss * weight).backward()
        # Hard attention's moving average of rewards is not a weight: nothing else averages it.
        if state.bound is not None:
            self.ranks.mean(state.bound.average, weight)

    def _clip(self) -> Tensor:
        """Shorten the gradient to `training.clip`; -> its norm before that, ()."""
        state = self.state
        # Unscaled first: the limit is for the gradient of the loss itself.
        state.scaler.unscale_(state.optimiser)
        # Of the captioner alone: a learned baseline's gradient is that of a squared error, in other
        # units, and could use up the limit.
        longest = self.recipe.training.clip or math.inf
        return nn.utils.clip_grad_norm_(state.captioner.parameters(), longest)

    def _step(self) -> bool:
        """A step of the optimiser; False where fp16 has overflowed, and the weights stay."""
        config = self.recipe.training
        optimiser = self.state.optimiser
        scaler = self.state.scaler
        set_learning_rate(optimiser, config, self._step_number(), config.epochs * self.steps)

        # The scaler leaves the step out where a gradient has overflowed, and then lowers its scale.
        scale = scaler.get_scale()
        scaler.step(optimiser)
        scaler.update()
        return scaler.get_scale() >= scale

    def _average(self) -> None:
        """Move the averaged weights a little towards the new ones."""
        if not self.recipe.training.average:
            return
        step = self._step_number()
        # A smaller decay in the first batches: the average would otherwise keep the random
        # initial weights.
        decay = min(self.recipe.training.average, (1 + step) / (10 + step))
        update_average(self.state.averaged, self.state.captioner, decay)

    def _count(self, batch: Batch, result: BatchLoss) -> None:
        """Add a batch to the epoch's sums, of which the log shows the means."""
        own: dict[str, float] = {}
        # A share without a row of its own has weight 0 and counts nothing.
        if batch.weight > 0:
            own = {name: mean.item() * result.captions for name, mean in result.means.items()}
            own["sampled"] = result.captions if "reward" in own else 0
            own["words"] = result.words
            own["captions"] = result.captions

        # First over the shares of this batch, then to the epoch's sums: floating point rounds by
        # the order, so this one stays, and a run can be repeated to the last digit.
        total: Counter[str] = Counter()
        for share in self.ranks.gather(own):
            total.update(share)

        p = self.state.progress
        p.batch += 1
        p.words += int(total.pop("words"))
        p.captions += int(total.pop("captions"))
        p.sampled += int(total.pop("sampled"))
        for name, value in total.items():
            p.sums[name] = p.sums.get(name, 0.0) + value

    def _require_finite(self, what: str, value: Tensor, batch: Batch) -> None:
        """Raise Diverged, with the batch's place and images, if a value is NaN or infinite."""
        if torch.isfinite(value):
            return
        p = self.state.progress
        names = ", ".join(batch.image_ids[:3])
        where = f"batch {p.batch + 1} of epoch {p.epoch + 1}, images {names}"
        raise Diverged(
            f"the {what} is {value.item()} at {where}; "
            "lower training.learning_rate in a new run, or check those images"
        )

    # The end of an epoch

    def _end_epoch(self) -> None:
        """Judge the epoch on dev, keep its model if it is the best, write checkpoint and log."""
        p = self.state.progress
        config = self.recipe.training
        # The last batch's learning rate, also in a process that resumed right after that batch.
        last = (p.epoch + 1) * self.steps - 1
        set_learning_rate(self.state.optimiser, config, last, config.epochs * self.steps)
        # Judging may take minutes, in which the process may be killed.
        self._save()

        self.between_epochs = True
        record = self.ranks.from_first(lambda: epoch_record(self.state, self.data, self.reader))
        score = dev_score(record, config.select)
        best = p.best()
        record["kept"] = best is None or score > dev_score(best, config.select)
        self.state.progress = Progress(epoch=p.epoch + 1, history=[*p.history, record])

        # The model before the checkpoint: a run killed in between judges the epoch once more.
        if record["kept"] and self.ranks.first:
            self.state.averaged.save(self.folder / MODEL)
        self._save()
        self.between_epochs = False

        if self.show:
            say(describe(record))
        self._write_log()

    def _write_log(self) -> None:
        """Write the records of all epochs, and their curves."""
        if self.ranks.first:
            history = self.state.progress.history
            lines = [json.dumps(record) + "\n" for record in history]
            write_text(self.folder / LOG, "".join(lines))
            plots.save(plots.curves_figure(history), self.folder / "curves.png")


def set_learning_rate(
    optimiser: torch.optim.Optimizer, config: TrainingConfig, step: int, steps: int
) -> None:
    """Give every group its learning rate at batch `step` of `steps` of all epochs.

    It is the group's peak rate times warm-up, times the schedule.
    """
    factor = 1.0
    if config.warmup:
        factor = min(1.0, (step + 1) / config.warmup)

    if config.schedule == "cosine":
        done = min(step / steps, 1.0)
        factor *= 0.5 * (1 + math.cos(math.pi * done))
    elif config.schedule == "linear":
        left = max(0.0, 1 - step / steps)
        factor *= min(1.0, left / LINEAR_FALL)

    for group in optimiser.param_groups:
        group["lr"] = group["base"] * factor
