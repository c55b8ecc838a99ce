"""BLEU, METEOR, ROUGE-L, CIDEr and SPICE of generated captions (section 5), in percent.

BLEU is reported under two protocols, because published results use one or the other:

- "BLEU-n" follows the COCO tools, with the brevity penalty (closest reference length);
- "BLEU-n (no brevity penalty)" follows the paper's Table 1.

Hypotheses and references are split into words by the same tokenizer, that of the COCO tools, which drops case and
punctuation (`satlib.evaluation.ptb`). METEOR 1.5 is a Java program that comes with pycocoevalcap. The score is that of
pycocoevalcap's own wrapper, but the program runs here with files as input and output, in a temporary folder and under a time
limit: the wrapper talks to it over pipes and hangs on any error.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pycocoevalcap
import regex
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from satlib.data.text import is_character, normalise, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import ptb
from satlib.evaluation.statistics import BLEU, METEOR, meteor_score

PTB = "COCO tools: PTB tokenizer, lower case, no punctuation, on both sides"
CHARACTERS = "satlib's tokeniser: characters, Latin words and digits whole, lower case, no punctuation, on both sides"
GET_JAVA = (
    "install Java (apt install default-jre-headless, brew install openjdk, or conda install openjdk) and evaluate again"
)
# METEOR reads and prints numbers with the locale's decimal point; without the encoding, "café" is read wrongly.
LOCALE = ("-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8")
_FULL_STOPS = regex.compile(r"(?![\x00-\x7f])\p{Terminal_Punctuation}")  # and commas, of other scripts

_COCO_TOOLS = Path(pycocoevalcap.__path__[0]).resolve()
METEOR_JAR = _COCO_TOOLS / "meteor" / "meteor-1.5.jar"
# The jar finds these itself, except if the path of the installation contains a space (it looks below "%2520").
_METEOR_PARAPHRASES = _COCO_TOOLS / "meteor" / "data" / "paraphrase-en.gz"
_SPICE = _COCO_TOOLS / "spice"
_SPICE_MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")


class JavaError(Exception):
    """A Java program failed or took too long; the message completes "METEOR ..."."""


@dataclass(frozen=True)
class Scores:
    """The scores of a set of captions.

    Attributes:
        values: percent by name: "BLEU-1".."BLEU-4", "BLEU-1 (no brevity penalty)".., "ROUGE-L", "CIDEr"; "METEOR" if Java
            works; "SPICE" if its models are installed as well.
        protocol: how the captions were split into words.
        notes: one line for each missing score or caveat, with the remedy.
        statistics: numbers of each image in the order of the hypotheses, by column, from which `satlib.evaluation.statistics` computes the
            scores of any set of these images.
    """

    values: dict[str, float]
    protocol: str
    notes: tuple[str, ...] = ()
    statistics: dict[str, list[float]] = field(default_factory=dict)


def score(
    hypotheses: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    meteor: bool = True,
    timeout: float = 600.0,
) -> Scores:
    """Score one caption per image against the image's references.

    An empty hypothesis counts and scores 0. References without a word are left out. Without a working Java, METEOR and SPICE
    are missing, and `notes` says so; the other scores are the same.

    Args:
        hypotheses: image id to the generated caption, not tokenised.
        references: the same image ids to human captions, not tokenised, at least one each.
        meteor: False leaves out METEOR and SPICE, which take ten seconds or more to start.
        timeout: seconds after which a Java program is stopped; its score is then missing, with a note.

    Raises:
        SatlibError: there is nothing to score, the image ids differ, or an image has no reference.
    """
    _check(hypotheses, references)
    image_ids = list(hypotheses)
    captions = [hypotheses[image_id] for image_id in image_ids] + [
        caption for image_id in image_ids for caption in references[image_id]
    ]
    lines, protocol, notes = split_words(captions)
    generated = {image_id: [line] for image_id, line in zip(image_ids, lines[: len(image_ids)], strict=True)}
    human = group(references, image_ids, lines[len(image_ids) :])

    values, statistics = bleu(generated, human), bleu_statistics(generated, human)
    for name, tool in (("ROUGE-L", Rouge()), ("CIDEr", Cider())):
        mean, of_images = tool.compute_score(human, generated)
        values[name], statistics[name] = 100 * float(mean), [100 * float(value) for value in of_images]
    if len(image_ids) == 1:
        notes.append("CIDEr weights n-grams by how few images they occur in; for a single image it is always 0")
    if meteor and protocol == PTB:
        java_values, java_statistics, java_notes = _java_metrics(generated, human, timeout)
        values |= java_values
        statistics |= java_statistics
        notes += java_notes
    return Scores(values, protocol, tuple(notes), statistics)


def group(
    references: Mapping[str, Sequence[str]], image_ids: Sequence[str], lines: Sequence[str]
) -> dict[str, list[str]]:
    """Split references, image by image in the order of `image_ids`, by image id; those without a word are left out.

    Raises:
        SatlibError: no reference of an image has a word.
    """
    rest = iter(lines)
    human = {
        image_id: [line for _, line in zip(references[image_id], rest, strict=False) if line] for image_id in image_ids
    }
    for image_id in image_ids:
        if not human[image_id]:
            raise SatlibError(
                f"no reference of {image_id} has a word in it; correct its captions or leave the image out"
            )
    return human


def split_words(captions: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Split captions into words joined by spaces; give them, the protocol, and a note on what it leaves out.

    The PTB tokenizer needs spaces between words. If most captions are in a script without spaces, such as Chinese, all are
    split by `text.tokenise` into characters.
    """
    words = [tokenise(caption) for caption in captions]
    if sum(any(map(is_character, line)) for line in words) > len(captions) / 2:
        note = "METEOR and SPICE are left out: they support English, not scripts without spaces between words"
        return [" ".join(line) for line in words], CHARACTERS, [note]
    return ptb.split([_one_line(caption) for caption in captions]), PTB, []


def _java_metrics(
    generated: Mapping[str, Sequence[str]], human: Mapping[str, Sequence[str]], timeout: float
) -> tuple[dict[str, float], dict[str, list[float]], list[str]]:
    """METEOR, with its statistics, and SPICE if its models are installed, in percent; with a note for a program that failed."""
    if not java_available():
        return {}, {}, [f"METEOR is missing: no working Java was found; {GET_JAVA}; the other scores are complete"]
    values, statistics, notes = {}, {}, []
    try:
        counted = _meteor_statistics(generated, human, timeout)
        values["METEOR"] = 100 * float(meteor_score(counted.sum(0, keepdims=True))[0])
        statistics = dict(zip(METEOR, counted.T.tolist(), strict=True))
    except JavaError as error:
        notes.append(f"METEOR is missing: it {error}; the other scores are complete")
    if _spice_installed():
        try:
            values["SPICE"] = 100 * _spice(generated, human, timeout)
        except JavaError as error:
            notes.append(f"SPICE is missing: it {error}; the other scores are complete")
    return values, statistics, notes


def bleu(hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Corpus BLEU-1..4 in percent, with and without brevity penalty, of captions whose words are joined by spaces.

    Counts of n-grams are summed over the corpus, each clipped at its largest count in any one reference. The reference length
    is the closest one; of two equally close, the shorter. If no n-gram matches, the COCO tools use a count of 1e-15, so a
    very short text can have a BLEU-4 of 0.02 instead of 0.

    Args:
        hypotheses: image id to a list of one line.
        references: image id to one or more lines.
    """
    values = {}
    # With a reference length of 0 every hypothesis is long enough: no brevity penalty.
    for suffix, length in (("", None), (" (no brevity penalty)", 0)):
        scorer = BleuScorer(n=4, special_reflen=length)
        for image_id, (line,) in hypotheses.items():
            scorer += (line, references[image_id])
        scores, _ = scorer.compute_score(option="closest")
        values |= {f"BLEU-{n}{suffix}": 100 * float(fraction) for n, fraction in enumerate(scores, 1)}
    return values


def bleu_statistics(
    hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]]
) -> dict[str, list[float]]:
    """What BLEU counts in each caption, by column (`statistics.BLEU`); the arguments are those of `bleu`."""
    scorer = BleuScorer(n=4)
    for image_id, (line,) in hypotheses.items():
        scorer += (line, references[image_id])
    rows = [
        (
            counted["testlen"],
            min((abs(length - counted["testlen"]), length) for length in counted["reflen"])[1],  # the closest
            *counted["correct"],
        )
        for counted in scorer.ctest
    ]
    return {name: list(column) for name, column in zip(BLEU, zip(*rows, strict=True), strict=True)}


def _check(hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not hypotheses:
        raise SatlibError("there is no caption to score; caption at least one image")
    for missing, noun in (
        (references.keys() - hypotheses.keys(), "caption"),
        (hypotheses.keys() - references.keys(), "reference"),
    ):
        if missing:
            raise SatlibError(
                f"{len(missing)} images have no {noun}, the first is {min(missing)}; give the same images on both sides"
            )
    for image_id, captions in references.items():
        if isinstance(captions, str) or not captions:
            raise SatlibError(f"the references of {image_id} must be a list of at least one caption")


def _one_line(caption: str) -> str:
    """A caption on one line: a line break, tab, control character or `|||` would misalign all captions after it."""
    encodable = caption.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair cannot be written
    # The tokenizer knows English punctuation only: a danda or an ideographic full stop would count as (part of) a word.
    line = _FULL_STOPS.sub(" ", normalise(encodable))
    return " ".join(re.sub(r"[\x00-\x1f\x7f]|\|\|\|", " ", line).split())


def meteor_of_each(
    hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], timeout: float = 600.0
) -> dict[str, float]:
    """METEOR 1.5 of each caption, in percent, of captions whose words are joined by spaces.

    The score of a corpus is not their mean: METEOR first sums the matches over all captions.

    Args:
        hypotheses: image id to a list of one line.
        references: image id to one or more lines.
        timeout: seconds after which the Java program is stopped.

    Raises:
        SatlibError: Java does not work, or METEOR failed.
    """
    try:
        counted = _meteor_statistics(hypotheses, references, timeout)
    except JavaError as error:
        raise SatlibError(f"METEOR {error}; {GET_JAVA}") from error
    return dict(zip(hypotheses, (100 * meteor_score(counted)).tolist(), strict=True))


def _meteor_statistics(
    hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], timeout: float
) -> np.ndarray:
    """The statistics (N, 23) that METEOR 1.5, with the options of the COCO tools, prints for each caption and its best reference.

    The program expects the same number of references for every image. It scores against the best one, so repeating the last
    reference changes nothing.
    """
    most = max(len(lines) for lines in references.values())
    with temporary_folder() as folder:
        (folder / "hypotheses").write_text("".join(f"{line}\n" for (line,) in hypotheses.values()), encoding="utf-8")
        padded = [
            line
            for image_id in hypotheses
            for line in [*references[image_id], *[references[image_id][-1]] * most][:most]
        ]
        (folder / "references").write_text("".join(f"{line}\n" for line in padded), encoding="utf-8")
        arguments = ["-Xmx2G", *LOCALE, "-jar", str(METEOR_JAR), "hypotheses", "references", "-ssOut"]
        output = run_java(
            [*arguments, "-r", str(most), "-l", "en", "-norm", "-a", str(_METEOR_PARAPHRASES)], folder, timeout
        )
    try:
        counted = np.array([line.split() for line in output.splitlines()], dtype=np.float64)
    except ValueError as error:
        raise JavaError("printed something other than its statistics") from error
    if counted.shape != (len(hypotheses), len(METEOR)):
        raise JavaError("did not print its statistics for all captions")
    words, chunks, matches = counted[:, :2], METEOR.index("METEOR chunks"), counted[:, -2:]
    counted[(matches == words).all(1) & (counted[:, chunks] == 1), chunks] = 0  # as the program does when it scores
    return counted


def _spice_installed() -> bool:
    """Whether SPICE's models, which do not come with pycocoevalcap, are in its folder."""
    return all((_SPICE / "lib" / name).is_file() for name in _SPICE_MODELS)


def _spice(hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], timeout: float) -> float:
    """SPICE as a fraction: the mean over images of the F-score of scene-graph tuples."""
    images = [
        {"image_id": image_id, "test": line, "refs": list(references[image_id])}
        for image_id, (line,) in hypotheses.items()
    ]
    with temporary_folder() as folder:
        (folder / "images.json").write_text(json.dumps(images), encoding="utf-8")
        arguments = ["-Xmx8G", *LOCALE, "-jar", str(_SPICE / "spice-1.0.jar"), "images.json", "-out", "scores.json"]
        run_java([*arguments, "-subset", "-silent"], folder, timeout)
        try:
            measured = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
            return sum(image["scores"]["All"]["f"] or 0.0 for image in measured) / len(hypotheses)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise JavaError("wrote no scores") from error


def java_available() -> bool:
    """Whether a working Java is on the PATH (a Mac without Java has a `java` that only says what to install)."""
    if shutil.which("java") is None:
        return False
    try:
        with temporary_folder() as folder:
            run_java(["-version"], folder, timeout=30)
    except JavaError:
        return False
    return True


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for the files of a Java program, removed at the end of the `with`."""
    with tempfile.TemporaryDirectory(prefix="satlib-metrics-") as name:
        yield Path(name)


def run_java(arguments: Sequence[str], folder: Path, timeout: float) -> str:
    """Run Java in a folder and return its standard output; no process of it is left running, whatever happens.

    Output goes to files: reading a pipe would hang as long as some grandchild keeps it open.
    """
    output, errors = folder / "stdout", folder / "stderr"
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        streams = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr}
        try:
            process = subprocess.Popen(["java", *arguments], cwd=folder, start_new_session=True, **streams)
        except OSError as error:
            raise JavaError(f"cannot be started ({error.strerror})") from error
        try:
            status = process.wait(timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:  # Windows has no process groups of this kind
                    process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise JavaError(f"was stopped after {timeout:g} seconds") from error
            raise
    if status != 0:
        messages = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise JavaError(f"ended with status {status} ({messages[-1] if messages else 'no message'})")
    return output.read_text(encoding="utf-8", errors="replace")
