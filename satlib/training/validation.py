"""Judging an epoch on dev, by generated captions and by the likelihood of the true ones."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from satlib.data.batches import Pair, SameLengthBatches, read_batches
from satlib.data.features import Reader
from satlib.errors import Diverged
from satlib.evaluation.evaluate import BATCH, generate, quick_bleu
from satlib.model.captioner import Captioner
from satlib.model.objective import negative_log_likelihood
from satlib.training.checkpoint import RunState
from satlib.training.training_data import TrainingData

CHUNK = 256  # images whose annotation vectors are in memory together


def dev_score(record: Mapping[str, Any], select: str) -> float:
    """The dev score that `training.select` names, the higher the better.

    Late in training BLEU and the likelihood disagree (section 4.3).
    """
    if select == "nll":
        return -record["dev_nll"]
    # A BLEU-4 below 1 % is noise: until there is more, the probability per word decides, which is
    # below 1.
    if select == "bleu4" and record["dev_bleu4"] < 1:
        return math.exp(-record["dev_nll"])
    return record[f"dev_{select}"]


def epoch_record(state: RunState, data: TrainingData, reader: Reader) -> dict[str, Any]:
    """An epoch's line of the log: training means, and figures of the averaged weights on dev.

    Raises:
        Diverged: one of them is not finite.
    """
    p = state.progress
    captioner = state.averaged
    record: dict[str, Any] = {"epoch": p.epoch + 1}
    for name, mean in p.means().items():
        record[f"train_{name}"] = mean

    # Greedy captions: beam search would take longer than many an epoch.
    generated = generate(captioner, reader, data.dev, beam=1, progress=False)
    texts = {caption.text for caption in generated.values()}
    batch_size = captioner.recipe.training.batch_size
    record["dev_nll"] = dev_nll(captioner, reader, data.dev_pairs, batch_size)
    record["dev_bleu4"] = quick_bleu(generated, data.dev)
    record["dev_distinct"] = len(texts) / len(generated)

    record["learning_rate"] = state.optimiser.param_groups[0]["lr"]
    record["seconds"] = round(p.seconds, 1)
    if data.dev_reward is not None:
        captions = {image_id: caption.words for image_id, caption in generated.items()}
        record["dev_reward"] = data.dev_reward.mean(captions)

    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(
                f"after epoch {p.epoch + 1} {name} is {value}; "
                "lower training.learning_rate in a new run"
            )
    return record


def describe(record: Mapping[str, Any]) -> str:
    """An epoch's record in a line."""
    # Training on rewards has no likelihood of true captions to tell.
    if "dev_reward" in record:
        trained = f"reward {record['train_reward']:.3f}, dev reward {record['dev_reward']:.3f}"
    else:
        trained = f"{record['train_nll']:.3f}"
    return (
        f"epoch {record['epoch']}: train {trained}, dev {record['dev_nll']:.3f} nats per word, "
        f"dev BLEU-4 {record['dev_bleu4']:.1f} (greedy), {record['seconds']:.0f} s"
    )


def remarks(log: Path) -> list[str]:
    """What usually goes wrong, as far as a finished run's log.jsonl shows it: a line for each."""
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    best = [record for record in records if record["kept"]][-1]
    findings = []

    distinct = best["dev_distinct"]
    if distinct < 0.3:
        findings.append(
            f"only {distinct:.0%} of the dev captions differ: the decoder hardly uses the images; "
            "train longer, or lower objective.doubly_stochastic"
        )

    # Total variation between the maps of consecutive words: 0 without attention, and missing where
    # each caption has one word.
    if 0 < best.get("train_movement", 0.0) < 0.02:
        findings.append(
            "the attention map hardly depends on the word; "
            "train longer, or lower objective.doubly_stochastic"
        )

    lowest = min(record["dev_nll"] for record in records)
    if len(records) > 1 and records[-1]["dev_nll"] == lowest:
        findings.append(
            "the dev loss was still falling in the last epoch; raise training.epochs in a new run"
        )
    return findings


@torch.inference_mode()
def dev_nll(captioner: Captioner, reader: Reader, dev: Sequence[Pair], batch_size: int) -> float:
    """-log p(y|a) in nats per word (end marks included) over all captions, by teacher forcing."""
    total = 0.0
    words = 0
    # Each image's vectors are computed once, and of many images together, so that enough captions
    # have the same length.
    one_of_each = list({pair.image_id: pair for pair in dev}.values())
    with captioner.evaluating():
        for chunk, images in read_batches(reader, one_of_each, CHUNK):
            parts = [
                captioner.annotations(part.to(captioner.device)) for part in images.split(BATCH)
            ]
            annotations = torch.cat(parts)  # (images, L, D)
            row = {pair.image_id: number for number, pair in enumerate(chunk)}

            own = [pair for pair in dev if pair.image_id in row]
            for batch in SameLengthBatches(own, batch_size).epoch(0):
                captions = batch.captions.to(captioner.device)
                a = annotations[[row[name] for name in batch.image_ids]]  # (B, L, D)
                output = captioner.decoder(a, captions)
                total += negative_log_likelihood(output.logits, captions).sum().item()
                words += captions.numel()
    return total / words
