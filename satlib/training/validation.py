"""What is judged on dev: an epoch, by generated captions and the likelihood of the true ones."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from satlib.data.batches import Pair, SameLengthBatches
from satlib.data.features import Reader
from satlib.errors import Diverged
from satlib.evaluation.evaluate import BATCH, generate, quick_bleu
from satlib.files import read_ahead
from satlib.model.captioner import Captioner
from satlib.model.objective import negative_log_likelihood
from satlib.training.checkpoint import RunState
from satlib.training.training_data import TrainingData


def dev_score(record: Mapping[str, Any], select: str) -> float:
    """The dev score that `training.select` names, the higher the better; they disagree late (section 4.3).

    A BLEU-4 below 1 % is noise: until there is more, the probability per word decides, which is below 1.
    """
    if select == "bleu4" and record["dev_bleu4"] < 1:
        return math.exp(-record["dev_nll"])
    return -record["dev_nll"] if select == "nll" else record[f"dev_{select}"]


def epoch_record(state: RunState, data: TrainingData, reader: Reader) -> dict[str, Any]:
    """An epoch's line of the log: training means, and figures of the averaged weights on dev, all of them finite."""
    p, captioner = state.progress, state.averaged
    generated = generate(captioner, reader, data.dev, beam=1, progress=False)
    record = {
        "event": "epoch",
        "epoch": p.epoch + 1,
        **{f"train_{name}": mean for name, mean in p.means().items()},
        "dev_nll": dev_nll(captioner, reader, data.dev_pairs, captioner.recipe.training.batch_size),
        "dev_bleu4": quick_bleu(generated, data.dev),
        "dev_distinct": len({caption.text for caption in generated.values()}) / len(generated),
        "learning_rate": state.optimiser.param_groups[0]["lr"],
        "seconds": round(p.seconds, 1),
        "tokens_per_second": round(p.words / max(p.seconds, 1e-9), 1),
    }
    if data.dev_reward is not None:
        record["dev_reward"] = data.dev_reward.mean(
            {name: caption.words for name, caption in generated.items()}
        )
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(
                f"after epoch {p.epoch + 1} {name} is {value}; lower training.learning_rate in a new run"
            )
    return record


def describe(record: Mapping[str, Any]) -> str:
    """An epoch's record in a line."""
    if "dev_reward" in record:
        trained = f"reward {record['train_reward']:.3f}, dev reward {record['dev_reward']:.3f}"
    else:
        trained = f"{record['train_nll']:.3f}"
    return (
        f"epoch {record['epoch']}: train {trained}, dev {record['dev_nll']:.3f} nats per word, "
        f"dev BLEU-4 {record['dev_bleu4']:.1f} (greedy), {record['seconds']:.0f} s"
    )


def remarks(log: Path) -> list[str]:
    """What a finished run's log.jsonl says about what usually goes wrong."""
    records = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    best, last = [record for record in records if record["kept"]][-1], records[-1]
    distinct = best.get("dev_distinct", 1.0)  # logs of earlier versions lack it
    findings = {
        f"only {distinct:.0%} of the dev captions differ: the decoder hardly uses the images; train longer, or "
        "lower objective.doubly_stochastic": distinct < 0.3,
        # Total variation between the maps of consecutive words; without attention it is 0.
        "the attention map hardly depends on the word; train longer, or lower objective.doubly_stochastic": (
            0 < best.get("train_movement", 1) < 0.02
        ),
        "the dev loss was still falling in the last epoch; raise training.epochs in a new run": (
            len(records) > 1 and last["dev_nll"] == min(record["dev_nll"] for record in records)
        ),
    }
    return [finding for finding, true in findings.items() if true]


@torch.inference_mode()
def dev_nll(captioner: Captioner, reader: Reader, dev: Sequence[Pair], batch_size: int) -> float:
    """-log p(y|a) in nats per word (end marks included) over all captions, by teacher forcing."""
    total, words = 0.0, 0
    names = list(dict.fromkeys(pair.image_id for pair in dev))
    # Each image's vectors are computed once, and of many images, so that enough captions have the same length.
    chunks = [names[start : start + 256] for start in range(0, len(names), 256)]
    with captioner.evaluating():
        for chunk, images in zip(chunks, read_ahead(reader.read, chunks), strict=True):
            a = torch.cat(
                [captioner.annotations(part.to(captioner.device)) for part in images.split(BATCH)]
            )
            row = {name: number for number, name in enumerate(chunk)}
            for batch in SameLengthBatches(
                [pair for pair in dev if pair.image_id in row], batch_size
            ).epoch(0):
                captions = batch.captions.to(captioner.device)
                output = captioner.decoder(a[[row[name] for name in batch.image_ids]], captions)
                total += negative_log_likelihood(output.logits, captions).sum().item()
                words += captions.numel()
    return total / words
