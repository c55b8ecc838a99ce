"""What usually goes wrong in captioning with attention, each with its measure, its limit and what to do: `satlib.training.doctor` asks all.

Limits lie between what satlib's own runs show (docs/results.md) and what the mistakes do, with room on both sides; the figures beside
them are the extremes over the runs that come with satlib.
"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from satlib.data.caption_set import CaptionSet
from satlib.data.text import tokenise
from satlib.evaluation import metrics, statistics
from satlib.training.patient import CHECKS, Patient, Result, Unknown, check  # noqa: F401  (the list that this module fills)
from satlib.training.validation import STILL

SAME = 0.05  # share of images with the commonest caption; at most .018 in our runs
FEW = 4  # images that may have one caption, however few images there are
DISTINCT = 0.3  # share of captions that differ from all others before them; at least .74
REPEATING = 0.05  # share of captions with a word or a pair of words twice in a row; at most .011
UNFINISHED = 0.03  # share of captions that end in the middle; at most .001
EMPTY = 0.01  # share of captions without a word; none
EVEN = 0.99  # mean entropy of the maps, as a share of that of even maps; at most .981
EQUAL_LENGTHS = 0.9  # share of captions as long as a reference; at most .40 on photographs, .69 on scenes
OFF = 0.1  # points between a score that is stated and one computed again; 0
FALLEN = 0.98  # last training loss over the first; at most .96
FASTEST = 0.005  # learning rate; at most .001
RISEN = 1.1  # loss over that of the epoch before
DISAGREE = 8.0  # BLEU-4 between the log and the evaluation of dev, which use other beams; at most 2.9
UNKNOWN_WORDS = 0.1  # share of the words of dev that the vocabulary does not have; .02 on Flickr8k
STRANGE = 0.5  # share of the model's own dev images that it takes for unlike its training images; .01 by definition
_CANNOT_END = frozenset(
    ["a", "an", "the", "of", "and", "with", "in", "on", "to", "at", "by", "for", "from", "is", "are"]
)


# --- Captions ----------------------------------------------------------------------------------------------------------


@check(
    "one caption for many images",
    f"the commonest caption is that of more than {SAME:.0%} of the images, or fewer than {DISTINCT:.0%} of the captions differ",
    "the decoder does not see the images: compare encoder, view and scale with those of training, train longer, or lower "
    "objective.doubly_stochastic and the dropout",
)
def same_caption(patient: Patient) -> Result:
    """Count equal captions."""
    counts, number = Counter(map(tuple, patient.captions)), len(patient.captions)
    often, distinct = counts.most_common(1)[0][1], len(counts) / number
    return Result(
        often > max(SAME * number, FEW) or distinct < DISTINCT,
        f"commonest caption {often / number:.1%} of images, {distinct:.0%} distinct",
    )


@check(
    "repeated words",
    f"more than {REPEATING:.0%} of the captions have a word, or a pair of words, twice in a row",
    "train longer or with a smaller learning rate; rewards invite them: give reward.cider more weight than reward.bleu1",
)
def repeated(patient: Patient) -> Result:
    """Look for "a a" and "a dog a dog"."""

    def repeats(words: Sequence[str]) -> bool:
        return any(words[i : i + n] == words[i + n : i + 2 * n] for n in (1, 2) for i in range(len(words) - 2 * n + 1))

    share = sum(map(repeats, patient.captions)) / len(patient.captions)
    return Result(share > REPEATING, f"{share:.1%} of captions repeat")


@check(
    "captions cut off",
    f"more than {UNFINISHED:.0%} of the captions end in the middle of a phrase, such as with an article, or are as long as "
    "decoding.max_length",
    "raise decoding.max_length; if captions are short all the same, the end mark was lost from the training captions",
)
def cut_off(patient: Patient) -> Result:
    """Look at last words and at lengths."""
    used = patient.captioner.recipe if patient.captioner else patient.recipe
    limit = used.decoding.max_length if used else math.inf

    def cut(words: Sequence[str]) -> bool:
        return bool(words) and (words[-1] in _CANNOT_END or len(words) >= limit)

    share = sum(map(cut, patient.captions)) / len(patient.captions)
    return Result(share > UNFINISHED, f"{share:.1%} are cut off")


@check(
    "empty captions",
    f"more than {EMPTY:.0%} of the captions have no word",
    "lower decoding.length_normalisation or the beam width; a beam prefers short captions when nothing counts against them",
)
def empty(patient: Patient) -> Result:
    """Count captions without a word."""
    share = sum(not words for words in patient.captions) / len(patient.captions)
    return Result(share > EMPTY, f"{share:.1%} are empty")


# --- Maps --------------------------------------------------------------------------------------------------------------


def _map_figure(patient: Patient, name: str) -> float:
    if patient.evaluation.get("attention") == "none":
        raise Unknown("the model has no attention")
    value = patient.evaluation["metrics"].get(name)
    if value is None:
        raise Unknown("the evaluation has no figures of the maps; make it again with: satlib evaluate")
    return value


@check(
    "maps that never move",
    f"from word to word, less than {STILL:.0%} of the attention moves",
    "lower objective.doubly_stochastic, raise the learning rate or train longer; the attention's energy must depend on the state",
)
def still(patient: Patient) -> Result:
    """The mean total variation between the maps of consecutive words."""
    moved = _map_figure(patient, "map movement")
    return Result(moved < STILL, f"{moved:.1%} of the attention moves from word to word")


@check(
    "even maps",
    f"the maps' entropy is more than {EVEN:.0%} of that of even maps",
    "train longer; the annotation vectors may be too small or all alike (encoder.scale), or objective.doubly_stochastic too large",
)
def even(patient: Patient) -> Result:
    """The mean entropy of the maps over log L."""
    entropy = _map_figure(patient, "map entropy")
    if patient.captioner is None:
        raise Unknown("without the model the number of places is not known")
    share = entropy / math.log(math.prod(patient.captioner.encoder.grid))
    return Result(share > EVEN, f"entropy {share:.1%} of that of even maps")


# --- Scores ------------------------------------------------------------------------------------------------------------


@check(
    "teacher-forced captions",
    f"more than {EQUAL_LENGTHS:.0%} of the captions are exactly as long as a reference",
    "captions were made with the true words as input; generate them with satlib evaluate, and report those scores",
)
def teacher_forced(patient: Patient) -> Result:
    """A model that is given the true words stops where they stop."""
    at = {name: index for index, name in enumerate(patient.statistics.columns)}
    lengths, references = (patient.statistics.values[:, at[name]] for name in ("words", "reference words"))
    share = float((lengths == references).mean())
    return Result(share > EQUAL_LENGTHS, f"{share:.0%} as long as the closest reference")


@check(
    "scores of other captions",
    f"a score is more than {OFF:g} points away from what the figures of the images give",
    "the scores belong to other captions or were changed; make them again with: satlib evaluate FILE.json",
)
def other_scores(patient: Patient) -> Result:
    """Compute the scores from the statistics."""
    given = patient.evaluation["metrics"]
    again = statistics.scores(patient.statistics, np.ones((1, len(patient.statistics.images))))
    off = {name: abs(float(values[0]) - given[name]) for name, values in again.items() if name in given}
    worst = max(off, key=off.__getitem__)
    return Result(off[worst] > OFF, f"largest difference {off[worst]:.2f} ({worst})")


@check(
    "another tokeniser",
    "the scores were not made with the tokeniser of the COCO tools, or count other words than the captions have",
    "scores by different tokenisers cannot be compared: install Java, then satlib evaluate FILE.json",
)
def other_tokeniser(patient: Patient) -> Result:
    """Compare the protocol, and the number of words that was scored with that in the captions."""
    at = patient.statistics.columns.index("words")
    scored, said = int(patient.statistics.values[:, at].sum()), sum(map(len, patient.captions))
    protocol = patient.evaluation["protocol"]
    wrong = protocol != metrics.PTB or abs(scored - said) > 0.01 * said
    return Result(wrong, f"{protocol}; {scored:,} words scored of {said:,}")


@check(
    "log and evaluation disagree",
    f"dev's BLEU-4 in the evaluation and in the log differ by more than {DISAGREE:g}",
    "the evaluated model is not the one that training kept, or the log's figure was made with the true words as input",
)
def disagree(patient: Patient) -> Result:
    """The kept epoch's greedy BLEU-4, beside the evaluation's."""
    kept = [record for record in patient.log if record["kept"]]
    if not kept or "dev" not in patient.evaluations:
        raise Unknown("that needs log.jsonl and an evaluation of dev: satlib evaluate RUN --split dev")
    logged, evaluated = kept[-1]["dev_bleu4"], patient.evaluations["dev"]["metrics"]["BLEU-4"]
    return Result(abs(logged - evaluated) > DISAGREE, f"log {logged:.1f}, evaluation {evaluated:.1f}")


# --- Training ----------------------------------------------------------------------------------------------------------


@check(
    "a loss that does not fall",
    f"the last epoch's training loss is more than {FALLEN:.0%} of the first one's",
    "lower training.learning_rate if the loss jumps, raise it if it creeps; look at curves.png",
)
def loss(patient: Patient) -> Result:
    """Training loss, first and last."""
    losses = [record["train_nll"] for record in patient.log if "train_nll" in record]
    if len(losses) < 2:
        raise Unknown("that needs a log.jsonl of two epochs of training on captions")
    share = losses[-1] / losses[0]
    return Result(share > FALLEN, f"{losses[0]:.2f} to {losses[-1]:.2f} nats per word in {len(losses)} epochs")


@check(
    "training that diverges",
    f"training.learning_rate is above {FASTEST:g}, or the loss so far in an epoch is more than {RISEN:.0%} of that of the epoch before "
    "(in the first epoch: of that of guessing, log K)",
    "start a new run with a smaller training.learning_rate, a training.warmup of some hundred batches, or a smaller training.clip",
)
def diverges(patient: Patient) -> Result:
    """The learning rate, and the loss in the checkpoint."""
    if patient.recipe is None:
        raise Unknown("that needs a run's folder with recipe.toml")
    rate, p = patient.recipe.training.learning_rate, patient.progress
    measured, risen = f"learning rate {rate:g}", False
    before = (
        patient.log[-1].get("train_nll") if patient.log else patient.vocabulary and math.log(len(patient.vocabulary))
    )
    if before and p is not None and p.words and "nll" in p.sums:
        now = p.sums["nll"] / p.words
        measured, risen = f"{measured}, loss {before:.2f}, then {now:.2f} nats per word", now > RISEN * before
    return Result(rate > FASTEST or risen, measured)


@check(
    "the vocabulary of another model",
    "the run's vocabulary.json and the model's words differ",
    "words and numbers do not belong together: restore vocabulary.json and model.safetensors of the same run",
)
def other_vocabulary(patient: Patient) -> Result:
    """The folder's vocabulary and the model's."""
    if patient.captioner is None or patient.vocabulary is None:
        raise Unknown("that needs a run's folder with model.safetensors and vocabulary.json")
    ours, theirs = patient.captioner.vocabulary.words, patient.vocabulary.words
    differ = sum(a != b for a, b in zip(ours, theirs, strict=False)) + abs(len(ours) - len(theirs))
    return Result(differ > 0, f"{differ:,} of {len(ours):,} words differ")


@check(
    "the normalisation of another model",
    f"the recipe's encoder, view or scale are not the model's, or more than {STRANGE:.0%} of its own data look unfamiliar to it",
    "give images and annotation vectors to the model as in its training: the same encoder, encoder.view and encoder.scale",
)
def other_normalisation(patient: Patient) -> Result:
    """The folder's recipe and the model's; or how familiar the images are."""
    if patient.captioner is None:
        raise Unknown("that needs the model")
    model = patient.captioner.recipe.encoder
    if patient.recipe is not None:
        ours = patient.recipe.encoder
        for key in ("name", "view", "scale"):
            here, there = getattr(ours, key), getattr(model, key)
            if here != there and (key, here) != ("scale", 0):  # 0: measured when training began
                return Result(True, f"encoder.{key} is {here} in recipe.toml, {there} in the model")
    if patient.distances and patient.captioner.familiarity:
        limit = patient.captioner.familiarity.threshold
        share = sum(distance > limit for distance in patient.distances) / len(patient.distances)
        return Result(share > STRANGE, f"{share:.0%} of the images are unfamiliar")
    if patient.recipe is None:
        raise Unknown("that needs a run's folder, or the data set that the model was trained on (--data)")
    return Result(False, f"encoder, view and scale {model.scale:g} are the model's")


# --- Data --------------------------------------------------------------------------------------------------------------


def _data(patient: Patient) -> CaptionSet:
    if patient.data is None:
        raise Unknown("the data set is not there; name its folder with --data")
    return patient.data


@check(
    "words that the model does not know",
    f"more than {UNKNOWN_WORDS:.0%} of the words of dev are not in the vocabulary",
    "build the vocabulary from these captions: lower data.min_count, or check data.language and the files' encoding",
)
def unknown_words(patient: Patient) -> Result:
    """The running words of dev's references."""
    data = _data(patient)
    if patient.captioner is None:
        raise Unknown("that needs the model")
    vocabulary = patient.captioner.vocabulary
    words = [w for e in data.split("dev") for text in e.references for w in tokenise(text, vocabulary.language)]
    if not words:
        raise Unknown("the data set has no dev captions")
    share = sum(word not in vocabulary for word in words) / len(words)
    return Result(share > UNKNOWN_WORDS, f"{share:.1%} of dev's words unknown")
