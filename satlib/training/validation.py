"""What an epoch is judged by on dev: generated captions, the likelihood of the true ones, the spread of the estimator."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from satlib.data.batches import Batch, Pair, SameLengthBatches
from satlib.data.features import Reader, read_ahead
from satlib.errors import Diverged
from satlib.evaluation.evaluate import BATCH, generate, quick_bleu
from satlib.files.reading import decode
from satlib.model.attention import HardAttention
from satlib.model.captioner import Captioner
from satlib.model.objective import VariationalBound, coins, negative_log_likelihood
from satlib.recipe import Recipe
from satlib.training.checkpoint import EpochRecord, RunState
from satlib.training.training_data import TrainingData

STILL = 0.02  # total variation between the maps of consecutive words below which the map does not depend on the word


def read_log(path: Path) -> list[dict[str, Any]]:
    """The records of a run's log.jsonl, one for each epoch.

    Raises:
        SatlibError: a line is not such a record.
    """
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        about = f"{path}, line {number}", "an epoch's record", "copy the run again"
        decode(line, EpochRecord, *about)
        records.append(decode(line, dict[str, Any], *about))
    return records


def dev_score(record: Mapping[str, Any], select: str) -> float:
    """The dev score used for model selection by `training.select`; higher is better.

    bleu4 and reward score generated captions, nll the true ones: late in training they disagree (section 4.3).
    """
    return -record["dev_nll"] if select == "nll" else record[f"dev_{select}"]


def epoch_record(state: RunState, data: TrainingData, reader: Reader, done: float) -> dict[str, Any]:
    """An epoch's line of the log: training means, and figures on dev of the averaged weights.

    Raises:
        SatlibError: a figure is not finite.
    """
    p, captioner, config = state.progress, state.averaged, state.captioner.recipe.training
    generated = generate(captioner, reader, data.dev, beam=1, progress=False)
    record = {
        "event": "epoch",
        "epoch": p.epoch + 1,
        **{f"train_{name}": total / p.count(name) for name, total in p.sums.items()},
        "dev_nll": dev_nll(captioner, reader, data.dev_pairs, config.batch_size),
        "dev_bleu4": quick_bleu(generated, data.dev),
        "dev_distinct": len({caption.text for caption in generated.values()}) / len(generated),
        "learning_rate": state.optimiser.param_groups[0]["lr"],
        "seconds": round(p.seconds, 1),
        "tokens_per_second": round(p.words / max(p.seconds, 1e-9), 1),
    }
    if state.bound is not None:
        batch = next(iter(data.batches.epoch(0)))  # the same for every epoch
        record["gradient_spread"] = gradient_spread(state.captioner, state.bound, reader, batch, done, config.seed)
    if data.dev_reward is not None:
        record["dev_reward"] = data.dev_reward.mean({name: caption.words for name, caption in generated.items()})
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(
                f"after epoch {p.epoch + 1} {name} is {value}, which is not finite; lower training.learning_rate in a new run, or "
                "compute the features again"
            )
    return record


def describe(record: Mapping[str, Any], recipe: Recipe) -> str:
    """An epoch's record in a line, and a warning where the attention map does not depend on the word."""
    rewarded = "dev_reward" in record
    trained = f"reward {record['train_reward']:.3f}" if rewarded else f"{record['train_nll']:.3f}"
    dev_reward = f"dev reward {record['dev_reward']:.3f}, " if rewarded else ""
    line = (
        f"epoch {record['epoch']}: train {trained}, {dev_reward}dev {record['dev_nll']:.3f} nats per word, "
        f"dev BLEU-4 {record['dev_bleu4']:.1f} (greedy), {record['seconds']:.0f} s"
    )
    moved = record.get("train_movement", 1.0)
    if recipe.decoder.attention != "none" and moved < STILL:
        line += (
            f"\nwarning: the attention map hardly depends on the word (it moves by {moved:.3f} of 1 between words); try a smaller "
            "objective.doubly_stochastic, a larger training.learning_rate, or more epochs"
        )
    return line


def remarks(log: Sequence[Mapping[str, Any]], select: str) -> list[str]:
    """What a finished run's records say about what usually goes wrong; `select` is its `training.select`."""
    best = [record for record in log if record["kept"]][-1]
    lines = []
    if best.get("dev_distinct", 1.0) < 0.3:
        lines.append(
            f"only {best['dev_distinct']:.0%} of the dev captions differ: the decoder hardly uses the images; train longer, or "
            "lower objective.doubly_stochastic and decoder.dropout"
        )
    if len(log) > 1 and log[-1]["dev_nll"] == min(record["dev_nll"] for record in log):
        lines.append("the dev loss was still falling in the last epoch; raise training.epochs in a new run")
    if select == "bleu4" and best["dev_bleu4"] < 1:
        lines.append('dev BLEU-4 is too small to select epochs by; set training.select = "nll" in a new run')
    return lines


@torch.inference_mode()
def dev_nll(captioner: Captioner, reader: Reader, dev: Sequence[Pair], batch_size: int) -> float:
    """-log p(y|a) in nats per word (end marks included) over all captions, by teacher forcing."""
    captioner.eval()
    total, words = 0.0, 0
    pairs_of: dict[str, list[Pair]] = defaultdict(list)
    for pair in dev:
        pairs_of[pair.image_id].append(pair)
    names = list(pairs_of)
    # Each image's vectors are computed once, and of many images, so that enough captions have the same length.
    chunks = [names[start : start + 256] for start in range(0, len(names), 256)]
    for chunk, images in zip(chunks, read_ahead(reader.read, chunks), strict=True):
        a = torch.cat([captioner.annotations(part.to(captioner.device)) for part in images.split(BATCH)])
        row = {name: number for number, name in enumerate(chunk)}
        for batch in SameLengthBatches([pair for name in chunk for pair in pairs_of[name]], batch_size).epoch(0):
            captions = batch.captions.to(captioner.device)
            output = captioner.decoder(a[[row[name] for name in batch.image_ids]], captions)
            total += negative_log_likelihood(output.logits, captions).sum().item()
            words += captions.numel()
    return total / words


def gradient_spread(
    captioner: Captioner,
    bound: VariationalBound,
    reader: Reader,
    batch: Batch,
    done: float,
    seed: int = 0,
    draws: int = 8,
) -> float:
    """The noise of the gradient of the attention's energy: the standard deviation of its estimates over the norm of their mean.

    For one batch of captions, without dropout; the random state of the training is left as it was.

    Args:
        captioner: with hard attention.
        bound: the estimator.
        reader: gives the batch's images.
        batch: the captions.
        done: share of the training that is done.
        seed: of the samples.
        draws: estimates.
    """
    decoder, config, device = captioner.decoder, bound.config, captioner.device
    attention = decoder.attention
    assert isinstance(attention, HardAttention)
    energy = list(attention.energy.parameters())
    captioner.eval()
    bound.eval()
    attention.train()  # to sample
    estimates = []
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        a = batch.by_caption(captioner.annotations(reader.read(batch.image_ids).to(device)).detach())
        a, captions = (rows.repeat_interleave(config.samples, 0) for rows in (a, batch.captions.to(device)))
        for _ in range(draws):
            expected = coins(config, len(batch.captions), device, done).repeat_interleave(config.samples)
            loss = bound(decoder(a, captions, expected), captions).loss
            gradients = torch.autograd.grad(loss, energy)
            estimates.append(torch.cat([gradient.flatten() for gradient in gradients]).double())
    bound.train()
    table = torch.stack(estimates)
    return (table.var(0).sum().sqrt() / table.mean(0).norm().clamp(min=1e-12)).item()
