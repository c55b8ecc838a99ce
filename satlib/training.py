"""The training procedure (section 4.3): same-length batches, early stopping on generated captions, a run as a folder.

A run's folder holds `recipe.toml`, `vocabulary.json`, `log.jsonl` (one JSON object per epoch), `curves.png`,
`model.safetensors` (the best captioner so far) and `checkpoint.safetensors` (everything that going on needs). Every one is
written whole or not at all; a run that was stopped and resumed is bit for bit the run that was not (on a CPU).

Several processes may work on one run (`satlib.distributed`): each does its share of every batch, and the first writes the files.
"""

import copy
import hashlib
import json
import math
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice, tee
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from tqdm import tqdm

from satlib import distributed, plots, reward
from satlib.batching import Batch, ImageBatches, Pair, SameLengthBatches, pairs
from satlib.captioner import Captioner, read_safetensors, require_finite, write_safetensors
from satlib.datasets import CaptionSet, Example
from satlib.datasets.sharded import Shards
from satlib.decoder import State
from satlib.decoding import rollout
from satlib.device import precision
from satlib.encoders import create
from satlib.errors import SatlibError
from satlib.evaluation import generate, quick_bleu
from satlib.features import Pixels, Reader, read_ahead
from satlib.files import write_text
from satlib.objectives import (
    VariationalBound,
    coins,
    doubly_stochastic_penalty,
    entropy,
    movement,
    negative_log_likelihood,
)
from satlib.recipe import Recipe, TrainingConfig, completed, from_dict
from satlib.streaming import StreamedBatches
from satlib.teaching import Teachers, taught_loss
from satlib.text import Vocabulary

CHECKPOINT, MODEL, LOG = "checkpoint.safetensors", "model.safetensors", "log.jsonl"
FORMAT = "satlib checkpoint 1"
SAVE_SECONDS = 600.0  # a checkpoint is written after every epoch, and within one whenever the last is this old
LOGGED = ("nll", "penalty", "entropy", "movement", "reward", "baseline")
STILL = 0.02  # total variation between the maps of consecutive words below which a map stands still


class Interrupted(SatlibError):  # noqa: N818 (an event, not an error)
    """The run was asked to stop (Ctrl-C or SIGTERM) and did so after saving a checkpoint."""


@dataclass
class Progress:
    """Where a run stands; with the weights and the random state, all that resuming needs."""

    epoch: int = 0  # epochs finished
    batch: int = 0  # batches of the next one that are done
    sums: dict[str, float] = field(default_factory=dict)  # over those batches' captions: nll, penalty, ...
    words: int = 0
    captions: int = 0
    sampled: int = 0  # captions of batches that have a reward: places or words were sampled
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)  # one record per finished epoch

    def count(self, name: str) -> int:
        """What a sum is divided by for its mean: words for the NLL, captions for the rest."""
        return self.words if name == "nll" else self.sampled if name in ("reward", "baseline") else self.captions

    def best(self) -> dict[str, Any] | None:
        """The record of the epoch that is kept: the last one marked, each when it was the best so far."""
        return next((record for record in reversed(self.history) if record["kept"]), None)


def judged(record: Mapping[str, Any], select: str) -> float:
    """What an epoch is worth on dev by `training.select`, higher is better.

    Captions that a person would choose, or words that a person would choose: the two part late in training (section 4.3).
    """
    return -record["dev_nll"] if select == "nll" else record[f"dev_{select}"]


def train(
    recipe: Recipe,
    data: CaptionSet,
    reader: Reader,
    run: Path,
    device: str | torch.device = "cpu",
    progress: bool = True,
    start: Path | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
    prepare: Callable[[Captioner], None] | None = None,
    teachers: Sequence[tuple[Captioner, Reader]] = (),
    save_seconds: float = SAVE_SECONDS,
) -> Captioner:
    """Train a captioner, or go on with a run that was stopped; give the best one, which is also in the run's folder.

    Of several processes (`satlib.distributed.launched`) only the first needs that folder; the others give their last captioner.

    Args:
        recipe: what to do.
        data: captions and splits; "train" is trained on, "dev" chooses the epoch, "test" is not looked at.
        reader: gives annotation vectors (a feature store) or pixels (an encoder that trains) by key.
        run: the folder.
        device: where.
        progress: show a bar.
        start: a trained model (or its run's folder) whose weights a new run begins with; its attention may be another.
        on_epoch: called with each finished epoch's record, once it is safe on disk; what it raises ends the training.
        prepare: called with the fresh captioner, to change a part of it before anything else is done.
        teachers: trained models whose word probabilities are learnt from too (`satlib.teaching`), each with its reader.
        save_seconds: how old the last checkpoint may get before one is written within an epoch; 0: one after every batch.

    Raises:
        Interrupted: by Ctrl-C or SIGTERM, after a checkpoint.
        SatlibError: the folder holds another run, `start` does not fit, or the loss is no longer finite.
    """
    session = _Session(
        recipe, data, reader, run, torch.device(device), progress, start, prepare, teachers, save_seconds
    )
    with _stop_requests() as stop:
        session.run(stop, on_epoch)
    return Captioner.load(run / MODEL, device) if session.ranks.first else session.captioner


class _Work(NamedTuple):
    """What a batch comes to: the loss, the means to log by name, and how many captions and words they are over."""

    loss: Tensor
    sums: dict[str, Tensor]
    captions: int
    words: int


class _Session:
    """One process's work on a run."""

    def __init__(
        self,
        recipe: Recipe,
        data: CaptionSet,
        reader: Reader,
        run: Path,
        device: torch.device,
        progress: bool,
        start: Path | None = None,
        prepare: Callable[[Captioner], None] | None = None,
        teachers: Sequence[tuple[Captioner, Reader]] = (),
        save_seconds: float = SAVE_SECONDS,
    ) -> None:
        self.recipe, self.reader, self.folder, self.device = recipe, reader, run, device
        self.save_seconds = save_seconds
        self.ranks = distributed.current()
        self.show = progress and self.ranks.first
        streamed = isinstance(data, Shards)
        train_examples = () if streamed else data.split("train")[: recipe.data.train_images or None]
        self.dev: Sequence[Example] = data.split("dev")
        if not (train_examples or streamed) or not self.dev:
            raise SatlibError(
                f"{data.name} needs images in both its train and its dev split; see: satlib data check {data.name}"
            )
        captions = (caption for example in train_examples for caption in example.references)
        known = (recipe.data.vocabulary_size, recipe.data.min_count, recipe.data.language)
        vocabulary = data.vocabulary(*known) if streamed else Vocabulary.from_captions(captions, *known)
        config = recipe.training
        torch.manual_seed(config.seed)
        encoder = create(recipe.encoder.name, recipe.encoder.pretrained)
        self.captioner = Captioner(recipe, vocabulary, encoder).to(device)
        if prepare is not None:
            prepare(self.captioner)
        if teachers and recipe.objective.maximise == "reward":
            raise SatlibError(
                'teachers teach the words of true captions: leave them out where objective.maximise = "reward"'
            )
        self.teachers = Teachers(teachers, vocabulary) if teachers else None
        self.captioner.origins = self.teachers.origins if self.teachers else ()
        self.averaged = copy.deepcopy(self.captioner) if config.average else self.captioner
        self.bound: VariationalBound | None = None
        if recipe.decoder.attention == "hard" and recipe.objective.maximise == "likelihood":
            self.bound = VariationalBound(
                recipe.hard, recipe.decoder.hidden, recipe.objective.label_smoothing, recipe.data.max_length + 1
            ).to(device)
            if recipe.hard.official and self.ranks.size > 1:
                raise SatlibError("hard.official sums over a whole batch: train it in one process, or set it to false")
        self.optimiser = _optimiser(self.captioner, recipe, self.bound)
        self.train_keys = [example.image_id for example in train_examples]
        train_pairs = [] if streamed else pairs(train_examples, vocabulary, recipe.data.max_length)
        self.reward: reward.Consensus | None = None
        self.batches: SameLengthBatches | ImageBatches | StreamedBatches
        if streamed:
            self.batches = _stream(data, vocabulary, recipe)
        elif recipe.objective.maximise == "reward":
            self.reward = reward.Consensus(train_examples, vocabulary, recipe.reward)
            self.dev_reward = reward.Consensus(self.dev, vocabulary, recipe.reward)
            self.batches = ImageBatches(self.train_keys, config.batch_size, config.seed)
        else:
            self.batches = SameLengthBatches(train_pairs, config.batch_size, config.seed)
        self.dev_pairs: list[Pair] = pairs(self.dev, vocabulary, recipe.data.max_length)
        if isinstance(self.batches, StreamedBatches):
            self.captions_hash = self.batches.hash
        else:
            self.captions_hash = hashlib.sha256(repr([vocabulary.words, train_pairs]).encode()).hexdigest()
        self.progress = Progress()
        self.low = precision(config.precision, device)
        # Small gradients are nothing in fp16: the loss is scaled up, by as much as large ones allow.
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.low == torch.float16)
        self.saved = time.monotonic()
        found = self.ranks.from_first(lambda: self._begin(start))
        if found is not None:
            self._resume(*found)
        learning = [
            self.captioner if recipe.encoder.train else self.captioner.decoder,
            *([] if self.bound is None else [self.bound]),
        ]
        # Networks of timm may have a head that is not used, and a learned baseline is not where nothing is sampled.
        partly = (recipe.encoder.train and recipe.encoder.name.startswith("timm:")) or recipe.hard.estimator == "gumbel"
        self.work = self.ranks.parallel(
            self._likelihood if self.reward is None else self._expected_reward, learning, partly
        )

    def _begin(self, start: Path | None) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """The checkpoint to go on from, or None where the run is new; then its folder is made."""
        for left_over in self.folder.glob(".*.partial"):  # by a process that was killed while writing
            left_over.unlink(missing_ok=True)
        if (self.folder / CHECKPOINT).is_file():
            return read_safetensors(self.folder / CHECKPOINT)
        if (self.folder / MODEL).exists():
            raise SatlibError(
                f"{self.folder} holds a finished model without a checkpoint; name another folder with --run"
            )
        if start is not None:
            self._start_from(start)
        elif self.reward is not None:
            raise SatlibError(
                'objective.maximise = "reward" improves a model that captions already: give a trained one with --start'
            )
        write_text(self.folder / "recipe.toml", self.recipe.to_toml())
        self.captioner.vocabulary.save(self.folder / "vocabulary.json")
        # From now on the folder is known as this run's, whenever the process is killed.
        self._save_checkpoint()
        return None

    def run(self, stop: "_StopRequest", on_epoch: Callable[[dict[str, Any]], None] | None = None) -> None:
        config = self.recipe.training
        if isinstance(self.reader, Pixels) and not self._finished():
            self.reader.prepare(self.train_keys, self.show)
        while not self._finished():
            epoch = self.progress.epoch
            remaining = map(self.ranks.share, islice(self.batches.epoch(epoch), self.progress.batch, None))
            remaining, coming = tee(remaining)  # a stream's batches are made as they come
            bar = tqdm(
                total=len(self.batches),
                initial=self.progress.batch,
                unit="batch",
                desc=f"epoch {epoch + 1}/{config.epochs}",
                disable=not self.show,
            )
            start, before = time.perf_counter(), self.progress.seconds
            with bar:
                for batch, annotations in zip(
                    remaining, read_ahead(lambda b: self.reader.read(b.image_ids), coming), strict=True
                ):
                    self._update(batch, annotations)
                    stopping = self.ranks.any(stop.requested)
                    self.progress.seconds = before + time.perf_counter() - start
                    bar.update()
                    if self.show:
                        bar.set_postfix_str(
                            f"{self._so_far()}, {self.progress.words / self.progress.seconds:.0f} words/s",
                            refresh=False,
                        )
                    if stopping or time.monotonic() - self.saved >= self.save_seconds:
                        self._save_checkpoint()
                    if stopping:
                        raise Interrupted(
                            f"stopped after batch {self.progress.batch} of epoch {epoch + 1}; the same command goes on from there"
                        )
            self._end_epoch()
            if on_epoch is not None:
                on_epoch(self.progress.history[-1])
            if self.ranks.any(stop.requested) and not self._finished():
                raise Interrupted(f"stopped after epoch {epoch + 1}; the same command goes on from there")

    def _so_far(self) -> str:
        p = self.progress
        if self.reward is not None:
            return f"reward {p.sums['reward'] / p.count('reward'):.3f}"
        return f"loss {p.sums['nll'] / p.words:.3f}/word"

    def _finished(self) -> bool:
        config, best = self.recipe.training, self.progress.best()
        waited = self.progress.epoch - best["epoch"] if best else 0
        return self.progress.epoch >= config.epochs or waited >= config.patience

    def _done(self) -> float:
        """The share of the training's batches that are done."""
        p = self.progress
        return (p.epoch + p.batch / len(self.batches)) / self.recipe.training.epochs

    def _update(self, batch: Batch, annotations: Tensor) -> None:
        config, step = self.recipe.training, self.progress.epoch * len(self.batches) + self.progress.batch
        self.ranks.seed(config.seed, step)
        with nullcontext() if self.low == torch.float32 else torch.autocast(self.device.type, self.low):
            work = self.work(batch, annotations)
        if not torch.isfinite(work.loss):
            raise self._not_finite("loss", work.loss, batch)
        self.optimiser.zero_grad(set_to_none=True)
        self.scaler.scale(work.loss * batch.weight).backward()
        if self.bound is not None:
            self.ranks.mean(self.bound.average, batch.weight)
        self.scaler.unscale_(self.optimiser)
        norm = nn.utils.clip_grad_norm_(self.captioner.parameters(), config.clip or math.inf)
        # Checked before the step, so that no broken weight is ever kept. A scale that is too large makes it infinite as well.
        if not torch.isfinite(norm) and self.scaler.get_scale() <= 1:
            raise self._not_finite("gradient's norm", norm, batch)
        self._set_learning_rate(step)
        scale = self.scaler.get_scale()
        self.scaler.step(self.optimiser)  # not where a gradient has overflowed
        self.scaler.update()
        if config.average and self.scaler.get_scale() >= scale:
            # While few batches were seen, the average forgets faster: it would hold the random weights of the start otherwise.
            update_average(self.averaged, self.captioner, min(config.average, (1 + step) / (10 + step)))
        own = work.captions * (batch.weight > 0)  # a process without a row of its own went through another's
        sums = {name: value.item() * own for name, value in work.sums.items()}
        counts = {"words": work.words * (batch.weight > 0), "captions": own, "sampled": own * ("reward" in sums)}
        p = self.progress
        p.batch += 1
        for name, value in self.ranks.total(sums | counts, (*LOGGED, *counts)).items():
            if name in counts:
                setattr(p, name, getattr(p, name) + int(value))
            else:
                p.sums[name] = p.sums.get(name, 0.0) + value

    def _likelihood(self, batch: Batch, annotations: Tensor) -> "_Work":
        """-log p(y|a) of the batch's captions, or hard attention's bound, and the penalty."""
        self.captioner.train()
        captions = batch.captions.to(self.device)
        a = self.captioner.annotations(annotations.to(self.device, non_blocking=True))
        if self.bound is None:
            output = self.captioner.decoder(a, captions)
            loss = negative_log_likelihood(output.logits, captions, self.recipe.objective.label_smoothing).mean()
            sums = {"nll": loss}
        else:
            expected = coins(self.recipe.hard, len(a), self.device, self._done())
            a, captions, expected = (
                each.repeat_interleave(self.recipe.hard.samples, 0) for each in (a, captions, expected)
            )
            output = self.captioner.decoder(a, captions, expected)
            estimate = self.bound(output, captions)
            loss, sums = estimate.loss, {"nll": estimate.nll.mean()}
            if estimate.advantage.numel():  # these are over the captions that sampled, about half of them
                sums |= {
                    "reward": (estimate.advantage + estimate.baseline).mean(),
                    "baseline": estimate.baseline.mean(),
                }
        if self.teachers is not None:
            q = self.teachers.probabilities(batch.image_ids, batch.captions.to(self.device))
            taught = taught_loss(output.logits, q.repeat_interleave(len(output.logits) // len(q), 0)).mean()
            loss = torch.lerp(loss, taught, self.recipe.objective.teaching)
        penalty = doubly_stochastic_penalty(output.alphas).mean()
        sums |= {"penalty": penalty, "entropy": entropy(output.alphas).mean()}
        if captions.shape[1] > 1:
            sums |= {"movement": movement(output.alphas).mean()}
        loss = loss + self.recipe.objective.doubly_stochastic * penalty
        return _Work(loss, sums, len(captions), captions.numel())

    def _expected_reward(self, batch: Batch, annotations: Tensor) -> "_Work":
        """The expected reward of captions that the model draws for the batch's images, and the penalty on their maps."""
        assert self.reward is not None
        decoder, samples = self.captioner.decoder, self.recipe.reward.samples
        self.captioner.eval()  # what is rewarded is what will generate: without dropout
        a = self.captioner.annotations(annotations.to(self.device, non_blocking=True))
        rows = torch.arange(len(a), device=self.device).repeat_interleave(samples)
        first = decoder.initial_state(a)
        hard = self.recipe.decoder.attention == "hard"
        expected = coins(self.recipe.hard, len(a), self.device, self._done()) if hard else None
        with self.captioner.looking("sample" if hard else None):
            made = rollout(
                decoder,
                decoder.view(a, expected).select(rows),
                State(first.h[rows], first.c[rows]),
                self.recipe.decoding.max_length,
                self.recipe.reward.temperature,
            )
        rewards = self.reward.of([key for key in batch.image_ids for _ in range(samples)], made)
        going = reward.alive(made)
        penalty = doubly_stochastic_penalty(made.alphas * going.unsqueeze(2)).mean()
        loss = reward.self_critical(reward.policy(made), rewards, samples)
        words = int(going.sum())
        sums = {
            "reward": rewards.mean(),
            "penalty": penalty,
            "entropy": (entropy(made.alphas) * going).sum() / words,
            "movement": (movement(made.alphas) * going[:, 1:]).sum() / max(words - len(rows), 1),
        }
        return _Work(loss + self.recipe.objective.doubly_stochastic * penalty, sums, len(rows), words)

    def _not_finite(self, what: str, value: Tensor, batch: Batch) -> SatlibError:
        keys = ", ".join(batch.image_ids[:3]) + (", ..." if len(batch.image_ids) > 3 else "")
        return SatlibError(
            f"the {what} is {value.item()} at batch {self.progress.batch + 1} of epoch {self.progress.epoch + 1}, images "
            f"{keys}; lower training.learning_rate or training.clip in a new run, or check those images"
        )

    def _set_learning_rate(self, step: int) -> None:
        config = self.recipe.training
        factor = learning_rate_factor(config, step, config.epochs * len(self.batches))
        for group in self.optimiser.param_groups:
            group["lr"] = group["base"] * factor

    def _end_epoch(self) -> None:
        p = self.progress
        # The last batch's, also where a process that was stopped right after it did that batch.
        self._set_learning_rate((p.epoch + 1) * len(self.batches) - 1)
        record = self.ranks.from_first(self._judge)
        self.progress = Progress(epoch=p.epoch + 1, history=[*p.history, record])
        if not self.ranks.first:
            return
        if record["kept"]:
            self.averaged.save(self.folder / MODEL)
        self._save_checkpoint()
        self._write_log()
        if self.show:
            self._tell(record)

    def _judge(self) -> dict[str, Any]:
        """The epoch's record: what was trained, and what it is worth on dev."""
        p, config, best = self.progress, self.recipe.training, self.progress.best()
        generated = generate(self.averaged, self.reader, self.dev, beam=1, progress=False)
        record = {
            "event": "epoch",
            "epoch": p.epoch + 1,
            **{f"train_{name}": total / p.count(name) for name, total in p.sums.items()},
            "dev_nll": dev_nll(self.averaged, self.reader, self.dev_pairs, config.batch_size),
            "dev_bleu4": quick_bleu(generated, self.dev),
            "learning_rate": self.optimiser.param_groups[0]["lr"],
            "seconds": round(p.seconds, 1),
            "tokens_per_second": round(p.words / max(p.seconds, 1e-9), 1),
        }
        if self.bound is not None:
            record["gradient_spread"] = self._gradient_spread()
        if self.reward is not None:
            record["dev_reward"] = self.dev_reward.mean({key: caption.words for key, caption in generated.items()})
        for name, value in record.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise SatlibError(
                    f"after epoch {p.epoch + 1} {name} is {value}, which is not finite; lower training.learning_rate in a new run, or "
                    "compute the features again"
                )
        record["kept"] = best is None or judged(record, config.select) > judged(best, config.select)
        return record

    def _tell(self, record: Mapping[str, Any]) -> None:
        trained = f"reward {record['train_reward']:.3f}" if self.reward is not None else f"{record['train_nll']:.3f}"
        rewarded = f"dev reward {record['dev_reward']:.3f}, " if self.reward is not None else ""
        tqdm.write(
            f"epoch {record['epoch']}: train {trained}, {rewarded}dev {record['dev_nll']:.3f} nats per word, "
            f"dev BLEU-4 {record['dev_bleu4']:.1f} (greedy), {record['seconds']:.0f} s"
        )
        if self.recipe.decoder.attention != "none" and record.get("train_movement", 1.0) < STILL:
            tqdm.write(
                f"warning: the map hardly depends on the word (it moves {record['train_movement']:.3f} of 1 between words); "
                "try a smaller objective.doubly_stochastic, a larger training.learning_rate, or more epochs"
            )

    def _gradient_spread(self, draws: int = 8) -> float:
        """How far estimates of the energy's gradient lie apart: their standard deviation over the length of their mean.

        Of one batch of training captions, always the same, without dropout; the random numbers of the training are left alone.
        """
        assert self.bound is not None
        decoder, samples = self.captioner.decoder, self.recipe.hard.samples
        energy = list(decoder.attention.energy.parameters())
        batch = next(iter(self.batches.epoch(0)))
        self.captioner.eval()
        self.bound.eval()
        decoder.attention.train()  # to sample
        estimates = []
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(self.recipe.training.seed)
            a = self.captioner.annotations(self.reader.read(batch.image_ids).to(self.device)).detach()
            a, captions = (each.repeat_interleave(samples, 0) for each in (a, batch.captions.to(self.device)))
            for _ in range(draws):
                expected = coins(self.recipe.hard, len(batch.image_ids), self.device, self._done())
                output = decoder(a, captions, expected.repeat_interleave(samples))
                gradients = torch.autograd.grad(self.bound(output, captions).loss, energy)
                estimates.append(torch.cat([gradient.flatten() for gradient in gradients]).double())
        self.bound.train()
        together = torch.stack(estimates)
        return (together.var(0).sum().sqrt() / together.mean(0).norm().clamp(min=1e-12)).item()

    def _write_log(self) -> None:
        write_text(self.folder / LOG, "".join(json.dumps(line) + "\n" for line in self.progress.history))
        figure = plots.curves_figure(self.progress.history)
        plots.save(figure, self.folder / "curves.png")

    def _save_checkpoint(self) -> None:
        if not self.ranks.first:
            return
        tensors = {f"model.{name}": value for name, value in _without_frozen(self.captioner).items()}
        if self.averaged is not self.captioner:
            tensors |= {f"average.{name}": value for name, value in _without_frozen(self.averaged).items()}
        if self.bound is not None:
            tensors |= {f"bound.{name}": value for name, value in self.bound.state_dict().items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{i}.{key}": value for key, value in state.items()}
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        header = {
            "format": FORMAT,
            "recipe": self.recipe.to_dict(),
            "captions": self.captions_hash,
            "teachers": self.teachers.hashes if self.teachers else None,
            "origins": self.captioner.origins,
            "progress": asdict(self.progress),
            "scaler": self.scaler.state_dict(),
        }
        write_safetensors(self.folder / CHECKPOINT, tensors, header)
        self.saved = time.monotonic()

    def _start_from(self, path: Path) -> None:
        """Take the weights of another model: soft and hard attention have the same ones."""
        trained = Captioner.load(path, self.device)
        if trained.vocabulary != self.captioner.vocabulary:
            raise SatlibError(
                f"{path} has another vocabulary; train it on the same captions with the same [data] values"
            )
        try:
            for captioner in {id(each): each for each in (self.captioner, self.averaged)}.values():
                captioner.origins = (*trained.origins, f"begun from {trained.recipe.name}", *captioner.origins)
                part = captioner if self.recipe.encoder.train else captioner.decoder
                part.load_state_dict((trained if self.recipe.encoder.train else trained.decoder).state_dict())
        except RuntimeError as error:  # names or shapes
            raise SatlibError(
                f"{path} does not fit the recipe ({str(error).splitlines()[-1].strip()}); begin with a model of the same "
                "sizes and the same encoder"
            ) from error

    def _resume(self, header: Mapping[str, Any], tensors: dict[str, Tensor]) -> None:
        path = self.folder / CHECKPOINT
        if header.get("format") != FORMAT:
            raise SatlibError(f"{path} is not a checkpoint of satlib's; name another folder with --run")
        if header["captions"] != self.captions_hash:
            raise SatlibError(f"{path} was made with other training captions; name another folder with --run")
        if header.get("teachers") != (self.teachers.hashes if self.teachers else None):
            raise SatlibError(
                f"{path} was begun with other teachers; repeat the first command's --teacher, or name another --run"
            )
        # Through a recipe, so that a value which is newer than the checkpoint has its default there.
        before = from_dict(completed(header["recipe"])).to_dict()
        now = self.recipe.to_dict()
        changed = [
            f"{section}.{key}"
            for section in now
            if section not in ("name", "decoding")  # how captions are generated, and how long to train, may change
            for key in now[section]
            if before[section][key] != now[section][key]
            and (section, key) not in (("training", "epochs"), ("training", "patience"))
        ]
        if changed:
            raise SatlibError(
                f"{self.folder} was begun with another {changed[0]}; name another folder with --run, or repeat the first command"
            )
        require_finite(tensors, path)
        self.progress = Progress(**header["progress"])
        self.captioner.origins = self.averaged.origins = tuple(header.get("origins", ()))
        try:
            _restore(self.captioner, tensors, "model.")
            if self.averaged is not self.captioner:
                _restore(self.averaged, tensors, "average.")
            if self.bound is not None:
                self.bound.load_state_dict(_part(tensors, "bound."))
        except RuntimeError as error:  # names or shapes that do not fit
            raise SatlibError(
                f"{path} does not fit its recipe ({str(error).splitlines()[-1].strip()}): another version of satlib made it; "
                "name another folder with --run"
            ) from error
        _restore_optimiser(self.optimiser, _part(tensors, "optimiser."))
        # There is none from another device on which "auto" was another precision.
        if self.scaler.is_enabled() and header.get("scaler"):
            self.scaler.load_state_dict(header["scaler"])
        torch.set_rng_state(tensors["random"])
        if self.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        if self.progress.history and self.ranks.first:  # a kill may have come after the checkpoint and before the log
            self._write_log()
        if self.show:
            tqdm.write(f"going on with {self.folder} after epoch {self.progress.epoch}, batch {self.progress.batch}")


def learning_rate_factor(config: TrainingConfig, step: int, steps: int) -> float:
    """What the learning rate is multiplied by at batch `step` of `steps` over all epochs."""
    factor = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "cosine":
        factor *= 0.5 * (1 + math.cos(math.pi * min(step / steps, 1.0)))
    return factor


@torch.no_grad()
def update_average(averaged: nn.Module, current: nn.Module, decay: float) -> None:
    """Averaged <- decay * averaged + (1 - decay) * current, for everything that trains; counters are copied."""
    for mean, value in zip(_without_frozen(averaged).values(), _without_frozen(current).values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, 1 - decay)
        else:
            mean.copy_(value)


@torch.inference_mode()
def dev_nll(captioner: Captioner, reader: Reader, dev: Sequence[Pair], batch_size: int) -> float:
    """-log p(y|a) in nats per word (end marks included) over all captions, by teacher forcing."""
    captioner.eval()
    total, words = 0.0, 0
    pairs_of: dict[str, list[Pair]] = defaultdict(list)
    for pair in dev:
        pairs_of[pair.image_id].append(pair)
    keys = list(pairs_of)
    chunks = [keys[start : start + batch_size] for start in range(0, len(keys), batch_size)]
    for chunk, images in zip(chunks, read_ahead(reader.read, chunks), strict=True):
        a = captioner.annotations(images.to(captioner.device))  # once for all captions of an image
        row = {key: number for number, key in enumerate(chunk)}
        for batch in SameLengthBatches([pair for key in chunk for pair in pairs_of[key]], batch_size).epoch(0):
            captions = batch.captions.to(captioner.device)
            seen = a[[row[key] for key in batch.image_ids]]
            total += negative_log_likelihood(captioner.decoder(seen, captions).logits, captions).sum().item()
            words += captions.numel()
    return total / words


def _stream(data: Shards, vocabulary: Vocabulary, recipe: Recipe) -> StreamedBatches:
    if recipe.objective.maximise == "reward" or recipe.data.train_images:
        raise SatlibError(
            f"the training images in {data.place} are a stream, which is read whole and by its captions: "
            'set data.train_images = 0 and objective.maximise = "likelihood", or train on a data set in files'
        )
    config = recipe.training
    return StreamedBatches(data, vocabulary, recipe.data.max_length, config.batch_size, config.seed, recipe.data.buffer)


def _optimiser(captioner: Captioner, recipe: Recipe, bound: VariationalBound | None = None) -> torch.optim.Optimizer:
    config = recipe.training
    learned = [] if bound is None else list(bound.parameters())  # a baseline's
    groups = [{"params": [*captioner.decoder.parameters(), *learned], "lr": config.learning_rate}]
    if recipe.encoder.train:
        rate = config.encoder_learning_rate if recipe.encoder.pretrained else config.learning_rate
        groups.append({"params": list(captioner.encoder.parameters()), "lr": rate})
    if config.optimiser == "adam":
        optimiser: torch.optim.Optimizer = torch.optim.Adam(groups, fused=True)  # one pass over the weights
    else:
        # Graves (2013), equations 38 to 45: the squared mean gradient is taken off the second moment, and momentum follows.
        # (torch adds eps after the square root; Graves adds it before.)
        optimiser = torch.optim.RMSprop(groups, alpha=0.95, momentum=0.9, eps=1e-4, centered=True)
    for group in optimiser.param_groups:
        group["base"] = group["lr"]
    return optimiser


def _without_frozen(captioner: nn.Module) -> dict[str, Tensor]:
    """Everything that training changes: the decoder's tensors, and the encoder's where it trains."""
    assert isinstance(captioner, Captioner)
    part = captioner if captioner.recipe.encoder.train else captioner.decoder
    return part.state_dict()


def _restore(captioner: Captioner, tensors: dict[str, Tensor], prefix: str) -> None:
    part = captioner if captioner.recipe.encoder.train else captioner.decoder
    part.load_state_dict(_part(tensors, prefix))


def _restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give an optimiser its state back: tensors by "i.key", of the i-th parameter."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for name, value in tensors.items():
        i, key = name.split(".")
        parameter = parameters[int(i)]
        if value.shape == parameter.shape:
            # A file's tensors are contiguous. torch's fused Adam goes through weights and moments as they lie in memory: those
            # of a weight that is channels last must lie as it does.
            value = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
        state[int(i)][key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@dataclass
class _StopRequest:
    requested: bool = False


@contextmanager
def _stop_requests() -> Iterator[_StopRequest]:
    """Turn Ctrl-C and SIGTERM into a request to stop after the batch at hand; a second Ctrl-C stops at once."""
    request = _StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        if request.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        request.requested = True

    try:
        old = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread (a notebook's worker): nobody can send us signals
        old = {}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
