"""BLEU, METEOR, ROUGE-L and CIDEr of generated captions (section 5).

Published results use BLEU with the COCO tools' brevity penalty ("BLEU-n"), or without, as the
paper's Table 1 ("BLEU-n (no brevity penalty)"). Words are those of the COCO tools
(`satlib.evaluation.ptb`). METEOR 1.5 is a Java program in pycocoevalcap.

The functions that end in `_columns` measure each caption; `satlib.evaluation.statistics` says how
the score of any set of images follows. Captions and references are given to them by image id,
their words joined by spaces.
"""

import math
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pycocoevalcap
import regex
from pycocoevalcap.rouge.rouge import Rouge

from satlib.data.text import is_character, normalise
from satlib.errors import SatlibError
from satlib.evaluation import ptb

MAX_N = 4  # words in the longest n-gram
SIGMA = 6.0  # words; the width of CIDEr-D's Gaussian penalty on a difference in length
GET_JAVA = (
    "install Java "
    "(apt install default-jre-headless, brew install openjdk, or conda install openjdk)"
)

BLEU = ("words", "reference words", "1-grams", "2-grams", "3-grams", "4-grams")
METEOR = tuple(f"METEOR {number}" for number in range(1, 24))  # as the program prints them

# Where METEOR's numbers are; but for the chunks, first those of the caption, then the reference's.
_WORDS = slice(0, 2)
_FUNCTION_WORDS = slice(2, 4)
_STAGES = slice(4, 20)  # matches by four stages, each of content and of function words
_CHUNKS = 20
_MATCHED = slice(21, 23)

# METEOR 1.5's own values for English.
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75
_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of its stages
_METEOR_JAR = Path(pycocoevalcap.__path__[0]).resolve() / "meteor" / "meteor-1.5.jar"
# The jar finds these itself, except if the path of the installation contains a space.
_PARAPHRASES = _METEOR_JAR.parent / "data" / "paraphrase-en.gz"
# METEOR reads and prints numbers with the locale's decimal point; without the encoding, "café" is
# read wrongly.
_LOCALE = ("-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8")

# The full stops and commas of other scripts: the tokenizer knows English punctuation only.
_FULL_STOPS = regex.compile(r"(?![\x00-\x7f])\p{Terminal_Punctuation}")
# Line breaks, and METEOR's own separator, would misalign all captions after this one.
_BREAKS = re.compile(r"[\x00-\x1f\x7f]|\|\|\|")
# A character of a script that is written without spaces between words, with its marks.
_CHARACTER = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*"
)

Captions = Mapping[str, str]  # one for each image, by image id
References = Mapping[str, Sequence[str]]  # one or more for each image, by image id
Columns = dict[str, list[Any]]  # the numbers of each caption, in the order of the captions, by name
_Ngram = tuple[Hashable, ...]
_Vector = tuple[int, list[dict[_Ngram, float]], list[float]]


def split_words(
    hypotheses: Captions, references: References
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Captions and references as lines of words joined by spaces.

    References that have no word are left out.

    Raises:
        SatlibError: the image ids differ, or no reference of an image has a word.
    """
    sides = (("caption", hypotheses, references), ("reference", references, hypotheses))
    for what, own, others in sides:
        if missing := sorted(others.keys() - own.keys()):
            raise SatlibError(
                f"images without a {what}: {len(missing):,} ({missing[0]}, for example)"
            )

    # All lines are split at once: a full stop may depend on the next caption (`ptb.split`).
    raw = list(hypotheses.values())
    for image in hypotheses:
        raw += references[image]
    flat = [_one_line(caption) for caption in raw]
    lines = iter(ptb.split(flat))

    # The lines come back in the order in which they were given.
    generated = {image: next(lines) for image in hypotheses}
    human = {}
    for image in hypotheses:
        own = [next(lines) for _ in references[image]]
        human[image] = [line for line in own if line]

    if wordless := [image for image, own in human.items() if not own]:
        raise SatlibError(
            f"no reference of {wordless[0]} has a word in it; correct it or leave the image out"
        )
    return generated, human


def _one_line(caption: str) -> str:
    """A caption on one line, with spaces around each character that is a word of its own."""
    line = _FULL_STOPS.sub(" ", normalise(caption))
    line = _CHARACTER.sub(r" \g<0> ", line)
    line = _BREAKS.sub(" ", line)
    return " ".join(line.split())


def ngrams(words: Sequence[Hashable]) -> Counter[_Ngram]:
    """How often each n-gram, n = 1 to 4, occurs in a caption."""
    counts: Counter[_Ngram] = Counter()
    for n in range(1, MAX_N + 1):
        starts = range(len(words) - n + 1)
        counts.update(tuple(words[start : start + n]) for start in starts)
    return counts


def bleu_columns(captions: Captions, references: References) -> Columns:
    """What BLEU counts in each caption, in the columns `BLEU`."""
    columns: Columns = {name: [] for name in BLEU}
    for image_id, line in captions.items():
        human = [reference.split() for reference in references[image_id]]
        counts = bleu_counts(line.split(), human)
        for name, count in zip(BLEU, counts, strict=True):
            columns[name].append(float(count))
    return columns


def bleu_counts(
    words: Sequence[Hashable], references: Sequence[Sequence[Hashable]]
) -> tuple[int, ...]:
    """What BLEU counts in a caption (Papineni et al., 2002), in the order of the columns `BLEU`.

    The reference length is the closest one, of two the shorter. Matches are clipped at the most
    that one reference has.
    """
    lengths = [len(reference) for reference in references]
    closest = min(lengths, key=lambda length: (abs(length - len(words)), length))

    # "the the the" matches no more often than one reference has "the".
    most: Counter[_Ngram] = Counter()
    for reference in references:
        most |= ngrams(reference)

    matches = [0] * MAX_N
    for ngram, count in ngrams(words).items():
        n = len(ngram)
        matches[n - 1] += min(count, most[ngram])
    return len(words), closest, *matches


def bleu_scores(sums: np.ndarray, guesses: np.ndarray) -> dict[str, np.ndarray]:
    """Corpus BLEU-1..4 in percent, with and without brevity penalty, of R samples of captions.

    They are computed as in the COCO tools. `sums` are the sums of the captions' `bleu_counts`
    (R, 6); `guesses` is how many n-grams they have (R, 4). With fewer columns, for n = 1 to N, the
    scores are BLEU-1 to BLEU-N.
    """
    # The COCO tools' own: without a match of 4 words, BLEU-4 can be 0.02 instead of 0.
    small = 1e-9
    tiny = 1e-15

    # BLEU-n is the geometric mean of the precisions of 1 to n words.
    matches = sums[:, 2:]
    precision = (matches + tiny) / (guesses + small)  # (R, 4)
    orders = np.arange(1, matches.shape[1] + 1)
    bleu = np.cumprod(precision, axis=1) ** (1 / orders)  # (R, 4)

    # A corpus as long as its references has no penalty.
    words = sums[:, 0]
    reference_words = sums[:, 1]
    ratio = (words + tiny) / (reference_words + small)  # (R,)
    brevity = np.exp(1 - 1 / np.minimum(ratio, 1))
    penalty = np.where(ratio < 1, brevity, 1.0)

    scores = {}
    for n in orders:
        scores[f"BLEU-{n}"] = 100 * penalty * bleu[:, n - 1]
    for n in orders:
        scores[f"BLEU-{n} (no brevity penalty)"] = 100 * bleu[:, n - 1]
    return scores


def guesses(words: np.ndarray) -> np.ndarray:
    """How many n-grams captions of so many words have, n = 1 to 4: (N,) -> (N, 4)."""
    return np.maximum(words[:, None] - np.arange(MAX_N), 0)


def bleu(hypotheses: Captions, references: References) -> dict[str, float]:
    """Corpus BLEU-1..4 in percent, with and without brevity penalty.

    Words are joined by spaces.
    """
    columns = bleu_columns(hypotheses, references)
    counts = np.array(list(columns.values())).T  # (N, 6)
    sums = counts.sum(0, keepdims=True)
    all_guesses = guesses(counts[:, 0]).sum(0, keepdims=True)
    scores = bleu_scores(sums, all_guesses)
    return {name: float(score[0]) for name, score in scores.items()}


def rouge_columns(captions: Captions, references: References) -> Columns:
    """ROUGE-L of each caption in percent."""
    rouge = Rouge()
    scores = []
    for image, line in captions.items():
        score = rouge.calc_score([line], references[image])
        scores.append(100 * float(score))
    return {"ROUGE-L": scores}


def cider_columns(captions: Captions, references: References) -> Columns:
    """CIDEr-D of each caption in percent; these references give the weights of n-grams.

    Raises:
        SatlibError: no n-gram has a weight, because all images have all of them.
    """
    words = {}
    for image, lines in references.items():
        words[image] = [line.split() for line in lines]
    cider = Cider(words)
    if not cider.tells_apart():
        raise SatlibError("CIDEr is missing: all images have the same references, or there is one")

    scores = []
    for image, line in captions.items():
        score = cider.score(image, line.split())
        scores.append(100 * score)
    return {"CIDEr": scores}


class Cider:
    """CIDEr-D (Vedantam et al., 2015): inverse document frequencies from references by image id."""

    def __init__(self, references: Mapping[str, Sequence[Sequence[Hashable]]]) -> None:
        """Count in how many images' references each n-gram occurs, and weight the references'."""
        self._number = len(references)
        self._images: Counter[_Ngram] = Counter()
        for own in references.values():
            # An image counts once, however many of its references have the n-gram.
            of_image = set().union(*map(ngrams, own))
            self._images.update(of_image)

        self._vectors = {}
        for image, own in references.items():
            self._vectors[image] = [self._vector(words) for words in own]

    def tells_apart(self) -> bool:
        """Whether any n-gram has a weight: one that not every image has."""
        return any(images < self._number for images in self._images.values())

    def score(self, image_id: str, words: Sequence[Hashable]) -> float:
        """CIDEr-D of a caption, 0 to 10."""
        caption = self._vector(words)
        references = self._vectors[image_id]

        total = 0.0
        for reference in references:
            difference = caption[0] - reference[0]  # in length
            penalty = math.exp(-(difference**2) / (2 * SIGMA**2))
            total += self._similarity(caption, reference) * penalty
        return 10 * total / MAX_N / len(references)

    def _vector(self, words: Sequence[Hashable]) -> _Vector:
        """A caption's length; for each n, the weights of its n-grams and their norm."""
        weights: list[dict[_Ngram, float]] = [{} for _ in range(MAX_N)]
        for ngram, count in ngrams(words).items():
            images = max(self._images[ngram], 1)
            rarity = math.log(self._number / images)
            weights[len(ngram) - 1][ngram] = count * rarity

        norms = []
        for own in weights:
            squares = sum(weight**2 for weight in own.values())
            norms.append(math.sqrt(squares))
        return len(words), weights, norms

    @staticmethod
    def _similarity(caption: _Vector, reference: _Vector) -> float:
        """The sum over n of the cosines of two captions, without credit for repeated n-grams."""
        _, weights, norms = caption
        _, their_weights, their_norms = reference

        similarity = 0.0
        for n in range(MAX_N):
            if not (norms[n] and their_norms[n]):
                continue  # no n-grams, or only such as every image has
            theirs = their_weights[n]
            # The minimum: repeating an n-gram earns no more than the reference has of it.
            shared = sum(
                min(weight, theirs.get(ngram, 0.0)) * theirs.get(ngram, 0.0)
                for ngram, weight in weights[n].items()
            )
            similarity += shared / (norms[n] * their_norms[n])
        return similarity


def java_available() -> bool:
    """Whether a working Java is on the PATH.

    A Mac without Java has a `java` that only says what to install.
    """
    java = shutil.which("java")
    if java is None:
        return False
    finished = subprocess.run([java, "-version"], capture_output=True)
    return finished.returncode == 0


def meteor_columns(captions: Captions, references: References) -> Columns:
    """What METEOR counts in each caption, in the columns `METEOR`.

    Raises:
        SatlibError: the captions are not English, Java does not work, or METEOR fails.
    """
    # METEOR's stems, synonyms and paraphrases are English.
    foreign = 0
    for line in captions.values():
        if any(map(is_character, line.split())):
            foreign += 1
    if foreign > len(captions) / 2:
        raise SatlibError("METEOR is missing: it is for English")

    counts = meteor_statistics(captions, references)  # (N, 23)
    return dict(zip(METEOR, counts.T.tolist(), strict=True))


def meteor_statistics(hypotheses: Captions, references: References) -> np.ndarray:
    """What METEOR 1.5 counts in each caption and its best reference: (N, 23).

    Its options are those of the COCO tools.

    Raises:
        SatlibError: Java does not work, or METEOR fails.
    """
    if not java_available():
        raise SatlibError(f"METEOR is missing: no working Java was found; {GET_JAVA}")

    # Every image needs the same number of references. The best one counts, so repeating the last
    # changes nothing.
    most = max(len(lines) for lines in references.values())
    padded = []
    for image in hypotheses:
        lines = references[image]
        padded += lines
        padded += [lines[-1]] * (most - len(lines))

    with tempfile.TemporaryDirectory(prefix="satlib-meteor-") as folder:
        _write_lines(Path(folder, "hypotheses"), hypotheses.values())
        _write_lines(Path(folder, "references"), padded)
        # -ssOut prints what it counts in place of scores.
        command = ["java", "-Xmx2G", *_LOCALE, "-jar", str(_METEOR_JAR)]
        command += ["hypotheses", "references", "-ssOut", "-r", str(most)]
        command += ["-l", "en", "-norm", "-a", str(_PARAPHRASES)]
        finished = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
        )
    if finished.returncode:
        raise SatlibError(f"METEOR is missing: {finished.stderr.strip()}")

    rows = [line.split() for line in finished.stdout.splitlines()]
    counts = np.array(rows, dtype=np.float64)  # (N, 23)
    words = counts[:, _WORDS]
    chunks = counts[:, _CHUNKS]
    matched = counts[:, _MATCHED]
    # When it scores, the program counts no chunk in a caption that equals its reference.
    equal = (matched == words).all(1) & (chunks == 1)
    chunks[equal] = 0
    return counts


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each with its end."""
    text = "".join(f"{line}\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def meteor_scores(sums: np.ndarray) -> np.ndarray:
    """METEOR 1.5 in percent, as the program computes it, from the sums of `meteor_statistics`.

    (R, 23) -> (R,).
    """
    words = sums[:, _WORDS]
    functions = sums[:, _FUNCTION_WORDS]
    # By stage, content or function word, caption or reference.
    stages = sums[:, _STAGES].reshape(-1, 4, 2, 2)
    chunks = sums[:, _CHUNKS]
    matched = sums[:, _MATCHED]

    # Content words weigh more than function words, and exact matches more than paraphrases.
    of_kinds = (_DELTA, 1 - _DELTA)
    weighted = np.einsum("rskc,s,k->rc", stages, _WEIGHTS, of_kinds)  # (R, 2)
    whole = _DELTA * (words - functions) + (1 - _DELTA) * functions  # (R, 2)
    shares = weighted / np.where(whole > 0, whole, 1)
    precision, recall = shares.T
    balance = _ALPHA * precision + (1 - _ALPHA) * recall
    mean = precision * recall / np.maximum(balance, 1e-300)

    # Matches that are spread over many chunks are in another order than the reference's.
    fragmentation = chunks / np.maximum(matched.mean(1), 1e-300)
    return 100 * mean * (1 - _GAMMA * fragmentation**_BETA)
