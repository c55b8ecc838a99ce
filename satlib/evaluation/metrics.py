"""BLEU, METEOR, ROUGE-L and CIDEr of generated captions (section 5).

Published results use BLEU with the COCO tools' brevity penalty ("BLEU-n"), or without, as the paper's Table 1 ("BLEU-n (no brevity
penalty)"). Words are those of the COCO tools (`satlib.evaluation.ptb`). Each measure is computed from numbers of each caption, whose
sums give the score of any set of images (`satlib.evaluation.statistics`). METEOR 1.5 is a Java program in pycocoevalcap.
"""

import math
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pycocoevalcap
import regex
from pycocoevalcap.rouge.rouge import Rouge

from satlib.data.text import is_character, normalise
from satlib.errors import SatlibError
from satlib.evaluation import ptb

LONGEST = 4  # words in an n-gram, at most
SIGMA = 6.0  # words; the width of CIDEr-D's Gaussian penalty on a difference in length
GET_JAVA = "install Java (apt install default-jre-headless, brew install openjdk, or conda install openjdk)"

BLEU = ("words", "reference words", "1-grams", "2-grams", "3-grams", "4-grams")
METEOR = tuple(f"METEOR {number}" for number in range(1, 24))  # as the program prints them
_ALPHA, _BETA, _GAMMA, _DELTA = 0.85, 0.2, 0.6, 0.75  # METEOR 1.5's own values for English
_WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of its stages
_METEOR_JAR = Path(pycocoevalcap.__path__[0]).resolve() / "meteor" / "meteor-1.5.jar"
# The jar finds these itself, except if the path of the installation contains a space.
_PARAPHRASES = _METEOR_JAR.parent / "data" / "paraphrase-en.gz"
# METEOR reads and prints numbers with the locale's decimal point; without the encoding, "café" is read wrongly.
_LOCALE = ("-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8")

_FULL_STOPS = regex.compile(
    r"(?![\x00-\x7f])\p{Terminal_Punctuation}"
)  # and commas, of other scripts
_BREAKS = re.compile(r"[\x00-\x1f\x7f]|\|\|\|")  # would misalign all captions after this one
_CHARACTER = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]\p{M}*"
)

_Ngram = tuple[Hashable, ...]
_Vector = tuple[int, list[dict[_Ngram, float]], list[float]]
Columns = dict[str, list[Any]]  # the numbers of each caption, in the order of the captions, by name


def measure(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]], meteor: bool = True
) -> tuple[Columns, list[str]]:
    """Measure one caption per image against its references: the numbers of each caption, and a line for each score that is missing.

    Captions are given as they are written, by image id; an empty one counts and scores 0. METEOR takes ten seconds to start.

    Raises:
        SatlibError: the image ids differ, or no reference of an image has a word.
    """
    if unpaired := sorted(hypotheses.keys() ^ references.keys()):
        raise SatlibError(
            f"{len(unpaired)} images have no caption or no reference ({unpaired[0]}, for example)"
        )
    generated, human = split_words(hypotheses, references)
    words = {image: [line.split() for line in lines] for image, lines in human.items()}
    counts = [bleu_counts(line.split(), words[image]) for image, line in generated.items()]
    columns = {name: [float(row[i]) for row in counts] for i, name in enumerate(BLEU)}
    rouge, cider = Rouge(), Cider(words)
    columns["ROUGE-L"] = [
        100 * float(rouge.calc_score([line], human[image])) for image, line in generated.items()
    ]
    columns["CIDEr"] = [100 * cider.score(image, line.split()) for image, line in generated.items()]
    notes = []
    if (
        meteor
        and sum(any(map(is_character, line.split())) for line in generated.values())
        > len(generated) / 2
    ):
        notes.append("METEOR is missing: it is for English")
    elif meteor:
        try:
            columns |= dict(
                zip(METEOR, meteor_statistics(generated, human).T.tolist(), strict=True)
            )
        except SatlibError as error:
            notes.append(f"{error}; the other scores are complete")
    return columns, notes


def split_words(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Captions and references as lines of words joined by spaces, without the references that have no word."""
    raw = [*hypotheses.values(), *(line for image in hypotheses for line in references[image])]
    lines = iter(ptb.split([_one_line(caption) for caption in raw]))
    generated = {image: next(lines) for image in hypotheses}
    human = {
        image: list(filter(None, [next(lines) for _ in references[image]])) for image in hypotheses
    }
    if wordless := [image for image, own in human.items() if not own]:
        raise SatlibError(
            f"no reference of {wordless[0]} has a word in it; correct it or leave the image out"
        )
    return generated, human


def _one_line(caption: str) -> str:
    """A caption on one line; a character of a script that is written without spaces between words is a word of its own."""
    line = _FULL_STOPS.sub(" ", normalise(caption))  # the tokenizer knows English punctuation only
    return " ".join(_BREAKS.sub(" ", _CHARACTER.sub(r" \g<0> ", line)).split())


def ngrams(words: Sequence[Hashable]) -> Counter[_Ngram]:
    """How often each n-gram, n = 1 to 4, occurs in a caption."""
    return Counter(
        tuple(words[start : start + n])
        for n in range(1, LONGEST + 1)
        for start in range(len(words) - n + 1)
    )


def bleu_counts(
    words: Sequence[Hashable], references: Sequence[Sequence[Hashable]]
) -> tuple[int, ...]:
    """What BLEU counts in a caption (Papineni et al., 2002), in the order of the columns `BLEU`.

    The reference length is the closest one, of two the shorter. Matches are clipped at the most that one reference has.
    """
    length = min(
        (len(reference) for reference in references), key=lambda own: (abs(own - len(words)), own)
    )
    most: Counter[_Ngram] = Counter()
    for reference in references:
        most |= ngrams(reference)
    matches = [0] * LONGEST
    for ngram, count in ngrams(words).items():
        matches[len(ngram) - 1] += min(count, most[ngram])
    return len(words), length, *matches


def bleu_scores(sums: np.ndarray, guesses: np.ndarray) -> dict[str, np.ndarray]:
    """Corpus BLEU-1..4 in percent as in the COCO tools, with and without brevity penalty, of R samples of captions.

    `sums` are the sums of their `bleu_counts` (R, 6); `guesses` is how many n-grams they have (R, 4).
    """
    small, tiny = (
        1e-9,
        1e-15,
    )  # the COCO tools' own: without a match of 4 words, BLEU-4 can be 0.02 instead of 0
    precision = (sums[:, 2:] + tiny) / (guesses + small)
    bleu = np.cumprod(precision, axis=1) ** (1 / np.arange(1, LONGEST + 1))
    ratio = (sums[:, 0] + tiny) / (sums[:, 1] + small)
    penalty = np.where(ratio < 1, np.exp(1 - 1 / np.minimum(ratio, 1)), 1.0)
    penalised = {f"BLEU-{n}": 100 * penalty * bleu[:, n - 1] for n in range(1, LONGEST + 1)}
    return penalised | {
        f"BLEU-{n} (no brevity penalty)": 100 * bleu[:, n - 1] for n in range(1, LONGEST + 1)
    }


def guesses(words: np.ndarray) -> np.ndarray:
    """How many n-grams captions of so many words have, n = 1 to 4: (N,) -> (N, 4)."""
    return np.maximum(words[:, None] - np.arange(LONGEST), 0)


def bleu(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Corpus BLEU-1..4 in percent, with and without brevity penalty, of captions whose words are joined by spaces."""
    rows = [
        bleu_counts(line.split(), [own.split() for own in references[key]])
        for key, line in hypotheses.items()
    ]
    counts = np.array(rows)
    scores = bleu_scores(counts.sum(0, keepdims=True), guesses(counts[:, 0]).sum(0, keepdims=True))
    return {name: float(score[0]) for name, score in scores.items()}


class Cider:
    """CIDEr-D (Vedantam et al., 2015), with inverse document frequencies from references by image id."""

    def __init__(self, references: Mapping[str, Sequence[Sequence[Hashable]]]) -> None:
        """Count in how many images' references each n-gram occurs, and weigh the references' own."""
        self._number = len(references)
        self._images: Counter[_Ngram] = Counter()
        for own in references.values():
            self._images.update({ngram for words in own for ngram in ngrams(words)})
        self._vectors = {
            image: [self._vector(words) for words in own] for image, own in references.items()
        }

    def score(self, image_id: str, words: Sequence[Hashable]) -> float:
        """CIDEr-D of a caption, 0 to 10."""
        length, weights, norms = self._vector(words)
        total = 0.0
        for their_length, their_weights, their_norms in self._vectors[image_id]:
            similarity = 0.0
            for own, theirs, norm, their_norm in zip(
                weights, their_weights, norms, their_norms, strict=True
            ):
                if norm and their_norm:
                    shared = sum(
                        min(w, theirs.get(g, 0.0)) * theirs.get(g, 0.0) for g, w in own.items()
                    )
                    similarity += shared / (norm * their_norm)
            total += similarity * math.exp(-((length - their_length) ** 2) / (2 * SIGMA**2))
        return 10 * total / LONGEST / len(self._vectors[image_id])

    def _vector(self, words: Sequence[Hashable]) -> _Vector:
        """A caption's length; for each n, the weights of its n-grams and their norm."""
        weights: list[dict[_Ngram, float]] = [{} for _ in range(LONGEST)]
        for ngram, count in ngrams(words).items():
            weights[len(ngram) - 1][ngram] = count * math.log(
                self._number / max(self._images[ngram], 1)
            )
        return (
            len(words),
            weights,
            [math.sqrt(sum(weight**2 for weight in own.values())) for own in weights],
        )


def java_available() -> bool:
    """Whether a working Java is on the PATH (a Mac without Java has a `java` that only says what to install)."""
    java = shutil.which("java")
    return (
        java is not None and subprocess.run([java, "-version"], capture_output=True).returncode == 0
    )


def meteor_statistics(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]
) -> np.ndarray:
    """What METEOR 1.5, with the options of the COCO tools, counts in each caption and its best reference: (N, 23).

    Raises:
        SatlibError: Java does not work, or METEOR fails.
    """
    if not java_available():
        raise SatlibError(f"METEOR is missing: no working Java was found; {GET_JAVA}")
    # Every image needs the same number of references. The best one counts, so repeating the last changes nothing.
    most = max(len(lines) for lines in references.values())
    padded = [
        line
        for image in hypotheses
        for line in [*references[image], *[references[image][-1]] * most][:most]
    ]
    with tempfile.TemporaryDirectory(prefix="satlib-meteor-") as folder:
        for name, lines in (("hypotheses", hypotheses.values()), ("references", padded)):
            Path(folder, name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        command = [
            "java",
            "-Xmx2G",
            *_LOCALE,
            "-jar",
            str(_METEOR_JAR),
            "hypotheses",
            "references",
            "-ssOut",
        ]
        command += ["-r", str(most), "-l", "en", "-norm", "-a", str(_PARAPHRASES)]
        finished = subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8")
    if finished.returncode:
        raise SatlibError(f"METEOR is missing: {finished.stderr.strip()}")
    counted = np.array([line.split() for line in finished.stdout.splitlines()], dtype=np.float64)
    words, chunks, matches = counted[:, :2], 20, counted[:, -2:]
    counted[(matches == words).all(1) & (counted[:, chunks] == 1), chunks] = (
        0  # as the program does when it scores
    )
    return counted


def meteor_scores(sums: np.ndarray) -> np.ndarray:
    """METEOR 1.5 in percent, from the sums (R, 23) of `meteor_statistics`, as the program computes it -> (R,)."""
    lengths, functions = sums[:, :2], sums[:, 2:4]  # of the caption, of the reference
    stages = sums[:, 4:20].reshape(
        -1, 4, 2, 2
    )  # stage, content or function word, caption or reference
    chunks, matched = sums[:, 20], sums[:, 21:23]
    weighted = np.einsum("rskc,s,k->rc", stages, _WEIGHTS, (_DELTA, 1 - _DELTA))
    whole = _DELTA * (lengths - functions) + (1 - _DELTA) * functions
    precision, recall = (weighted / np.where(whole > 0, whole, 1)).T
    mean = precision * recall / np.maximum(_ALPHA * precision + (1 - _ALPHA) * recall, 1e-300)
    fragmentation = chunks / np.maximum(matched.mean(1), 1e-300)
    return 100 * mean * (1 - _GAMMA * fragmentation**_BETA)
