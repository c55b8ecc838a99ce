"""One rule for everything that is decided on the dev split: beam width, length normalisation, shares of averaged models.

`satlib choose` follows it, and `satlib average` with several shares. `RULE` says it in words and `Candidate.rank` in code. Each decision is written to the run's `choice.json`, with the dev scores of
everything that was tried. The test split has no part in it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
from pycocoevalcap.cider.cider import Cider

from satlib.beyond.averaging import average_weights
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.features import Reader, read_ahead
from satlib.evaluation import evaluate, metrics
from satlib.files.atomic import write_json, write_text
from satlib.files.progress import progress_bar, say
from satlib.files.reading import read_json
from satlib.model import search
from satlib.model.captioner import Caption, Captioner
from satlib.training.loop import LOG, MODEL
from satlib.training.validation import read_log

RULE = (
    "The epoch has the best dev score of the recipe's training.select. Beam width, length normalisation and the shares of averaged "
    "models have the greatest dev CIDEr (COCO tools, PTB tokens); of equal ones, the smallest values are chosen, in this order."
)
FILE = "choice.json"
BEAMS = (1, 2, 3, 4, 5)
NORMALISATIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5)


@dataclass(frozen=True)
class Candidate:
    """A decision that was tried: its values, such as {"beam": 3, "length_normalisation": 0.7}, its dev scores, its captions."""

    values: dict[str, float]
    scores: dict[str, float]
    captions: Mapping[str, Caption]

    def rank(self) -> tuple[float, ...]:
        """The rule: of several candidates, the one with the smallest rank is chosen."""
        return -self.scores["CIDEr"], *self.values.values()

    def record(self) -> dict[str, float]:
        """The candidate in `choice.json`."""
        return self.values | {name: round(score, 4) for name, score in self.scores.items()}


@dataclass(frozen=True)
class Choice:
    """A decision among candidates, which are in the order in which they were tried."""

    candidates: Sequence[Candidate]

    @property
    def best(self) -> Candidate:
        """The candidate that the rule chooses."""
        return min(self.candidates, key=Candidate.rank)

    def record(self) -> dict[str, Any]:
        """The decision in `choice.json`."""
        return {"chosen": self.best.record(), "tried": [candidate.record() for candidate in self.candidates]}


# Values that are tried, and the captions that they give by image id.
Decoded = tuple[dict[str, float], Mapping[str, Caption]]


def judge(decoded: Sequence[Decoded], examples: Sequence[Example], language: str, progress: bool) -> Choice:
    """Score captions of the dev images as `satlib evaluate` does: CIDEr, BLEU-1 and BLEU-4 without brevity penalty, in percent."""
    references = {example.image_id: example.references for example in examples}
    human_lines = [line for example in examples for line in example.references]
    texts = sorted({" ".join(captions[image_id].words) for _, captions in decoded for image_id in references})
    lines = metrics.split_words([*human_lines, *texts], language)[0]
    human = metrics.group(references, list(references), lines[: len(human_lines)])
    line_of = dict(zip(texts, lines[len(human_lines) :], strict=True))
    candidates = []
    for values, captions in decoded:
        generated = {image_id: [line_of[" ".join(captions[image_id].words)]] for image_id in references}
        bleu = metrics.bleu(generated, human)
        scores = {"CIDEr": 100 * float(Cider().compute_score(human, generated)[0])}
        scores |= {name: bleu[f"{name} (no brevity penalty)"] for name in ("BLEU-1", "BLEU-4")}
        candidates.append(Candidate(values, scores, captions))
        if progress:
            tried = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in values.items())
            say(f"{tried}: " + ", ".join(f"{name} {score:.2f}" for name, score in scores.items()))
    return Choice(candidates)


def choose_decoding(
    captioner: Captioner,
    data: CaptionSet,
    reader: Reader,
    beams: Sequence[int] = BEAMS,
    normalisations: Sequence[float] = NORMALISATIONS,
    progress: bool = True,
) -> Choice:
    """Choose beam width and length normalisation on dev, with one pass over the images for each beam width.

    Greedy decoding, a beam of 1, compares no hypotheses: it is tried once, without length normalisation.

    Raises:
        SatlibError: the data have no dev images.
    """
    examples, decoded = evaluate.images_of(data, "dev"), []
    for beam in sorted(set(beams)):
        exponents = sorted(set(normalisations)) if beam > 1 else [0.0]
        found = _decode(captioner, reader, examples, beam, exponents, progress)
        decoded += [
            ({"beam": beam, "length_normalisation": exponent}, captions)
            for exponent, captions in zip(exponents, found, strict=True)
        ]
    return judge(decoded, examples, captioner.vocabulary.language, progress)


@torch.inference_mode()
def _decode(
    captioner: Captioner,
    reader: Reader,
    examples: Sequence[Example],
    beam: int,
    exponents: Sequence[float],
    progress: bool,
) -> list[dict[str, Caption]]:
    """The captions of the examples for each length normalisation, from one pass."""
    captioner.eval()
    found: list[dict[str, Caption]] = [{} for _ in exponents]
    batches = [examples[start : start + evaluate.BATCH] for start in range(0, len(examples), evaluate.BATCH)]
    inputs = read_ahead(lambda batch: reader.read([example.image_id for example in batch]), batches)
    bar = progress_bar(batches, unit="batch", desc=f"beam {beam}", show=progress, leave=False)
    longest = captioner.recipe.decoding.max_length
    for batch, images in zip(bar, inputs, strict=True):
        a = captioner.annotations(images.to(captioner.device))
        if beam == 1:
            best = [search.greedy(captioner.decoder, a, longest)]
        else:
            searches = search.beam_searches(captioner.decoder, a, beam, longest, exponents)
            best = [[hypotheses[0] for hypotheses in images] for images in searches]
        for captions, hypotheses in zip(found, best, strict=True):
            for example, hypothesis in zip(batch, hypotheses, strict=True):
                captions[example.image_id] = captioner.read(hypothesis)
    return found


def choose_share(
    a: Captioner,
    b: Captioner,
    data: CaptionSet,
    reader: Reader,
    shares: Sequence[float],
    progress: bool = True,
) -> Choice:
    """Choose the share of b's weights in the average of two models on dev, decoded as b's recipe says.

    Raises:
        SatlibError: the data have no dev images, or the models cannot be averaged.
    """
    examples = evaluate.images_of(data, "dev")
    decoded = [
        ({"share": share}, evaluate.generate(average_weights(a, b, share), reader, examples, progress=progress))
        for share in sorted(set(shares))
    ]
    return judge(decoded, examples, b.vocabulary.language, progress)


def write_decoding(choice: Choice, captioner: Captioner, data: CaptionSet, run: Path) -> None:
    """Write a decision about decoding into a run: `choice.json`, `evaluation-dev.json`, and the recipe of its model.

    Each file is replaced atomically, the model last. The captioner's recipe is changed as well.
    """
    best, examples = choice.best, evaluate.images_of(data, "dev")
    beam, exponent = int(best.values["beam"]), float(best.values["length_normalisation"])
    decoding = msgspec.structs.replace(captioner.recipe.decoding, beam=beam, length_normalisation=exponent)
    captioner.recipe = msgspec.structs.replace(captioner.recipe, decoding=decoding)
    settings = evaluate.settings(captioner, data, "dev")
    result = evaluate.of_captions(best.captions, examples, settings, captioner.vocabulary.language)
    write_record("decoding", choice, data, run)
    evaluate.save(result, run)
    write_text(run / "recipe.toml", captioner.recipe.to_toml())
    captioner.save(run / MODEL)


def write_record(decision: str, choice: Choice, data: CaptionSet, run: Path) -> None:
    """Write a decision into a run's `choice.json`, beside earlier decisions of another kind."""
    path = run / FILE
    record = (
        read_json(path, dict[str, Any], "a record of choices", "delete it and choose again") if path.is_file() else {}
    )
    examples = evaluate.images_of(data, "dev")
    record |= {"rule": RULE, "data": data.name, "split": "dev", "images": len(examples)}
    log = read_log(run / LOG) if (run / LOG).is_file() else []  # an average has none
    kept = [line for line in log if line["kept"]]
    if kept:
        scores = {name: value for name, value in kept[-1].items() if name.startswith("dev_")}
        record["epoch"] = {"chosen": kept[-1]["epoch"], "of": len(log), **scores}
    write_json(path, record | {decision: choice.record()})
