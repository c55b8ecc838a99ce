"""`satlib doctor`: examine a run or a model for what usually goes wrong in captioning with attention, and say what to do.

Limits lie between what satlib's own runs show (docs/results.md) and what the mistakes do, with room on both sides; the figures beside
them are the extremes over the runs and models that come with satlib.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from satlib import recipe as recipes
from satlib.data import datasets
from satlib.data.caption_set import CaptionSet
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, maps, statistics
from satlib.files.weights import not_finite, read_safetensors
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.training.checkpoint import CHECKPOINT
from satlib.training.validation import STILL, read_log

SAMPLE = 50  # dev images that the model captions
FEWEST = 20  # captions: of fewer, shares say little
SAME = 0.05  # share of images with the commonest caption; at most .018 in our runs
FEW = 4  # images that may have one caption, however few images there are
DISTINCT = 0.3  # share of captions that differ from all others before them; at least .74
UNFINISHED = 0.03  # share of captions that end in the middle; at most .001
SHORT = 0.85  # words of the captions over those of the closest references; at least .99
EVEN = 0.99  # mean entropy of the maps, as a share of that of even maps; at most .981
SHUT = 0.05  # mean of the gate
OFF = 0.1  # points between a score that is stated and one computed again; 0
FALLEN = 0.98  # last training loss over the first; at most .96
RISEN = 1.15  # last loss on dev over the least; at most 1.10
UNKNOWN_WORDS = 0.1  # share of the words of dev that the vocabulary does not have; .02 on Flickr8k
_CANNOT_END = frozenset(
    ["a", "an", "the", "of", "and", "with", "in", "on", "to", "at", "by", "for", "from", "is", "are"]
)


class Unknown(Exception):  # noqa: N818 (an answer, not an error)
    """What a check needs is not there; the text says what, and how to get it."""


@dataclass
class Evidence:
    """What is known about a run or a model.

    Attributes:
        evaluations: by split.
        log: a record for each epoch.
        recipe, vocabulary: of the run's folder, beside those of the model.
        infinite: the model's weights that are not finite; None without a model.
        captioner: the model, if its weights are finite.
        data: the recipe's data set, if it is there.
        sample: what the model says of some dev images, by image id.
    """

    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    recipe: recipes.Recipe | None = None
    vocabulary: Vocabulary | None = None
    infinite: list[str] | None = None
    captioner: Captioner | None = None
    data: CaptionSet | None = None
    sample: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def evaluation(self) -> dict[str, Any]:
        """The evaluation of test, or else of dev, or else the sample in the form of one."""
        stored = self.evaluations.get("test") or self.evaluations.get("dev")
        if stored:
            return stored
        if self.captioner is None or not self.sample:
            raise Unknown(
                "there are no captions; name the folder of the data sets with --data, or make captions with: satlib evaluate"
            )
        return {
            "attention": self.captioner.recipe.decoder.attention,
            "captions": {name: caption.text for name, caption in self.sample.items()},
            "metrics": maps.entropy_and_movement(self.sample.values())[0],
        }

    @cached_property
    def captions(self) -> list[list[str]]:
        """The words of each caption."""
        language = self.captioner.vocabulary.language if self.captioner else ""
        captions = [tokenise(text, language) for text in self.evaluation.get("captions", {}).values()]
        if len(captions) < FEWEST:
            raise Unknown(f"there are {len(captions)} captions, and {FEWEST} are needed; evaluate more images")
        return captions

    @cached_property
    def statistics(self) -> statistics.Statistics:
        """The figures of each image."""
        stored = self.evaluation.get("statistics")
        if not stored:
            raise Unknown("the evaluation has no figures for each image; make it again with: satlib evaluate")
        return statistics.Statistics.of(stored)

    def column(self, name: str) -> np.ndarray:
        """A figure of each image, (N,)."""
        return self.statistics.values[:, self.statistics.columns.index(name)]

    def losses(self, name: str) -> list[float]:
        """A loss after each epoch of training on captions; on rewards, it may rise."""
        losses = [record[name] for record in self.log if "train_nll" in record]
        if len(losses) < 2:
            raise Unknown("that needs a log.jsonl of two epochs of training on captions")
        return losses

    def map_figure(self, name: str) -> float:
        """A mean over the attention maps."""
        if self.evaluation.get("attention") == "none":
            raise Unknown("the model has no attention")
        value = self.evaluation["metrics"].get(name)
        if value is None:
            raise Unknown("the evaluation has no figures of the maps; make it again with: satlib evaluate")
        return value

    @property
    def model(self) -> Captioner:
        """The model, for checks that cannot do without."""
        if self.captioner is None:
            raise Unknown("that needs a model with finite weights")
        return self.captioner


Result = tuple[bool, str]  # whether something is wrong, and what was measured


@dataclass(frozen=True)
class Check:
    """A check: its name, what it measures, its advice, and the function that does it."""

    name: str
    measure: str
    advice: str
    of: Callable[[Evidence], Result]


CHECKS: list[Check] = []


def check(
    name: str, measure: str, advice: str
) -> Callable[[Callable[[Evidence], Result]], Callable[[Evidence], Result]]:
    """Add a function to `CHECKS`."""

    def add(function: Callable[[Evidence], Result]) -> Callable[[Evidence], Result]:
        CHECKS.append(Check(name, measure, advice, function))
        return function

    return add


@check(
    "one caption for many images",
    f"the commonest caption is that of more than {SAME:.0%} of the images, or fewer than {DISTINCT:.0%} of the captions differ",
    "the decoder does not see the images: compare encoder, view and scale with those of training, train longer, or lower "
    "objective.doubly_stochastic and the dropout",
)
def _same_caption(evidence: Evidence) -> Result:
    counts, number = Counter(map(tuple, evidence.captions)), len(evidence.captions)
    often, distinct = counts.most_common(1)[0][1], len(counts) / number
    wrong = often > max(SAME * number, FEW) or distinct < DISTINCT
    return wrong, f"commonest caption {often / number:.1%} of images, {distinct:.0%} distinct"


@check(
    "captions cut off",
    f"more than {UNFINISHED:.0%} of the captions are as long as decoding.max_length, which is more than one word",
    "raise decoding.max_length",
)
def _cut_off(evidence: Evidence) -> Result:
    source = evidence.captioner or evidence
    if source.recipe is None:
        raise Unknown("that needs the model or a run's folder with recipe.toml")
    limit = source.recipe.decoding.max_length
    share = sum(len(words) >= max(limit, 2) for words in evidence.captions) / len(evidence.captions)
    return share > UNFINISHED, f"{share:.1%} have {limit} words"


@check(
    "captions that end in the middle",
    f"more than {UNFINISHED:.0%} of the captions of two words or more end with a word such as an article",
    "look at the training captions, which may be cut off themselves",
)
def _unfinished(evidence: Evidence) -> Result:
    share = sum(len(words) > 1 and words[-1] in _CANNOT_END for words in evidence.captions) / len(evidence.captions)
    return share > UNFINISHED, f"{share:.1%} end in the middle of a phrase"


@check(
    "captions much shorter than the references",
    f"the captions have fewer than {SHORT:.0%} of the words of the closest references",
    "raise decoding.length_normalisation or lower decoding.beam: a beam prefers short captions when nothing counts against them",
)
def _short(evidence: Evidence) -> Result:
    share = float(evidence.column("words").sum() / evidence.column("reference words").sum())
    return share < SHORT, f"{share:.0%} of the references' words"


@check(
    "maps that are even or do not move",
    f"from word to word, less than {STILL:.0%} of the attention moves, or the maps' entropy is more than {EVEN:.0%} of that of even maps",
    "lower objective.doubly_stochastic, raise the learning rate or train longer; the annotation vectors may be too small "
    "(encoder.scale)",
)
def _maps(evidence: Evidence) -> Result:
    entropy, moved = evidence.map_figure("map entropy"), evidence.map_figure("map movement")
    measured = f"{moved:.1%} of the attention moves from word to word"
    if evidence.captioner is None:  # the number of places is not known
        return moved < STILL, measured
    share = entropy / math.log(math.prod(evidence.captioner.encoder.grid))
    return moved < STILL or share > EVEN, f"{measured}, entropy {share:.1%} of that of even maps"


@check(
    "a gate that is shut",
    f"the gate's mean over the words is less than {SHUT:g}",
    "the decoder hardly uses the context vector: compare encoder.scale with that of training, train longer, or set decoder.gate = false",
)
def _gate(evidence: Evidence) -> Result:
    if not evidence.model.recipe.decoder.gate or evidence.model.recipe.decoder.kind == "transformer":
        raise Unknown("the model has no gate")
    if not evidence.sample:
        raise Unknown("that needs the data set; name its folder with --data")
    mean = float(torch.cat([caption.betas for caption in evidence.sample.values()]).mean())
    return mean < SHUT, f"mean {mean:.2f}"


@check(
    "scores of other captions",
    f"a score is more than {OFF:g} points away from what the figures of the images give, or other words were scored than the captions have",
    "the scores belong to other captions or were changed; make them again with: satlib evaluate FILE.json",
)
def _other_scores(evidence: Evidence) -> Result:
    stated = evidence.evaluation["metrics"]
    again = statistics.scores(evidence.statistics, np.ones((1, len(evidence.statistics.images))))
    off = {name: abs(float(values[0]) - stated[name]) for name, values in again.items() if name in stated}
    worst = max(off, key=off.__getitem__)
    scored, said = int(evidence.column("words").sum()), sum(map(len, evidence.captions))
    wrong = off[worst] > OFF or abs(scored - said) > 0.01 * said
    return wrong, f"largest difference {off[worst]:.2f} ({worst}); {scored:,} words scored of {said:,}"


@check(
    "a loss that does not fall",
    f"the last epoch's training loss is more than {FALLEN:.0%} of the first one's",
    "lower training.learning_rate if the loss jumps, raise it if it creeps; look at curves.png",
)
def _loss(evidence: Evidence) -> Result:
    losses = evidence.losses("train_nll")
    measured = f"{losses[0]:.2f} to {losses[-1]:.2f} nats per word in {len(losses)} epochs"
    return losses[-1] > FALLEN * losses[0], measured


@check(
    "overfitting",
    f"the last epoch's loss on dev is more than {RISEN:.0%} of the least one",
    "train for fewer epochs (training.epochs, training.patience), on more captions, or with more decoder.dropout",
)
def _overfitting(evidence: Evidence) -> Result:
    losses = evidence.losses("dev_nll")
    measured = f"dev {min(losses):.2f} nats per word at best, {losses[-1]:.2f} in the last epoch"
    return losses[-1] > RISEN * min(losses), measured


@check(
    "weights that are not finite",
    "a weight of the model is NaN or infinite",
    "copy the file again; if it is as it was trained, train again with a smaller training.learning_rate or training.clip",
)
def _infinite(evidence: Evidence) -> Result:
    if evidence.infinite is None:
        raise Unknown("that needs the model")
    return bool(evidence.infinite), ", ".join(evidence.infinite) or "all are finite"


@check(
    "the vocabulary of another model",
    "the run's vocabulary.json and the model's words differ",
    "words and numbers do not belong together: restore vocabulary.json and model.safetensors of the same run",
)
def _other_vocabulary(evidence: Evidence) -> Result:
    if evidence.vocabulary is None:
        raise Unknown("that needs a run's folder with model.safetensors and vocabulary.json")
    ours, theirs = evidence.model.vocabulary.words, evidence.vocabulary.words
    differ = sum(a != b for a, b in zip(ours, theirs, strict=False)) + abs(len(ours) - len(theirs))
    return differ > 0, f"{differ:,} of {len(ours):,} words differ"


@check(
    "words that the model does not know",
    f"more than {UNKNOWN_WORDS:.0%} of the words of dev are not in the vocabulary",
    "build the vocabulary from these captions: lower data.min_count, or check data.language and the files' encoding",
)
def _unknown_words(evidence: Evidence) -> Result:
    vocabulary, data = evidence.model.vocabulary, evidence.data
    if data is None:
        raise Unknown("the data set is not there; name its folder with --data")
    words = [w for e in data.split("dev") for text in e.references for w in tokenise(text, vocabulary.language)]
    if not words:
        raise Unknown("the data set has no dev captions")
    share = sum(word not in vocabulary for word in words) / len(words)
    return share > UNKNOWN_WORDS, f"{share:.1%} of dev's words unknown"


@dataclass(frozen=True)
class Finding:
    """What a check says.

    Attributes:
        name: of the check.
        state: "fine", "wrong" or "not examined".
        measured: the figures, or what is missing.
        advice: what to do, if it is wrong.
    """

    name: str
    state: str
    measured: str
    advice: str = ""


def examine(place: Path, root: Path, device: str | torch.device = "cpu") -> list[Finding]:
    """Run all checks on a run's folder, a model file, or a model that comes with satlib.

    Args:
        place: what to examine.
        root: the folder of data sets; checks that need one are left out where it is not there.
        device: where to caption.

    Raises:
        SatlibError: there is no such run or model, or a file cannot be read.
    """
    evidence, findings = _evidence(place, root, device), []
    for check in CHECKS:
        try:
            wrong, measured = check.of(evidence)
            findings.append(Finding(check.name, "wrong" if wrong else "fine", measured, check.advice if wrong else ""))
        except Unknown as missing:
            findings.append(Finding(check.name, "not examined", str(missing)))
    return findings


def _evidence(place: Path, root: Path, device: str | torch.device) -> Evidence:
    file = shipped.or_shipped(place)
    evidence = _of_folder(file) if file.is_dir() else Evidence()
    model = file / "model.safetensors" if file.is_dir() else file
    if model.is_file() or not file.is_dir():
        evidence.infinite = not_finite(read_safetensors(model)[1])
        evidence.captioner = None if evidence.infinite else Captioner.load(model, device)
    elif not (evidence.log or evidence.evaluations or (file / CHECKPOINT).is_file()):
        raise SatlibError(f"{place} holds no model, checkpoint, log or evaluation; give a run's folder or a model")
    captioner = evidence.captioner
    if captioner:
        settings = captioner.recipe.data
        with contextlib.suppress(SatlibError):  # the data set is not there
            evidence.data = datasets.load(settings.name, root, train_images=settings.train_images)
    if captioner and evidence.data and (examples := evidence.data.split("dev")[:SAMPLE]):
        evidence.sample = evaluate.generate(captioner, Pixels(evidence.data, captioner.view), examples)
    return evidence


def _of_folder(folder: Path) -> Evidence:
    evidence = Evidence()
    for split in datasets.SPLITS:
        path = folder / f"evaluation-{split}.json"
        if path.is_file():
            evidence.evaluations[split] = evaluate.read(path)
    if (folder / "log.jsonl").is_file():
        evidence.log = read_log(folder / "log.jsonl")
    if (folder / "recipe.toml").is_file():
        evidence.recipe = recipes.load(str(folder / "recipe.toml"))
    if (folder / "vocabulary.json").is_file():
        evidence.vocabulary = Vocabulary.load(folder / "vocabulary.json")
    return evidence


def render(findings: list[Finding]) -> str:
    """The findings as text: what is wrong first, with what to do, then what is fine, then what was not examined."""
    lines, counts = [], []
    for state in ("wrong", "fine", "not examined"):
        those = [finding for finding in findings if finding.state == state]
        counts.append(f"{len(those)} {state}")
        for finding in those:
            lines.append(f"{state:12}  {finding.name}: {finding.measured}")
            if finding.advice:
                lines.append(f"{'':12}  what to do: {finding.advice}")
    return "\n".join([*lines, ", ".join(counts)])
