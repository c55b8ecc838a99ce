"""BLEU, METEOR, ROUGE-L, CIDEr and SPICE of generated captions (section 5), in percent.

Two protocols stand side by side, because published figures follow one or the other:

- "BLEU-n" is that of the COCO tools, with the brevity penalty (closest reference length);
- "BLEU-n (no brevity penalty)" is that of the paper's Table 1.

Hypotheses and references are split into words by the same tokenizer, Stanford's PTB tokenizer, which loses case and
punctuation. It and METEOR 1.5 are Java programs that come with pycocoevalcap. They run here in a folder of their own,
from file to file and under a time limit: pycocoevalcap's own wrapper of METEOR talks to the program over pipes and waits
for ever once anything goes wrong, and its wrapper of the tokenizer writes into site-packages. The figures are the same.
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
from dataclasses import dataclass
from pathlib import Path

import regex
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer import ptbtokenizer

from satlib.errors import SatlibError
from satlib.text import LANGUAGES, normalise, tokenise

PTB = "COCO tools: PTB tokenizer, lower case, no punctuation, on both sides"
CHARACTERS = "data.language = {}: characters, Latin words and digits whole, lower case, no punctuation, on both sides"
WITHOUT_JAVA = (
    "no Java: nltk's Treebank tokenizer, lower case, no punctuation, on both sides; close to the COCO tools, not equal"
)
GET_JAVA = (
    "install Java (apt install default-jre-headless, brew install openjdk, or conda install openjdk) and evaluate again"
)

_FULL_STOPS = regex.compile(r"(?![\x00-\x7f])\p{Terminal_Punctuation}")  # and commas, of other scripts

_COCO_TOOLS = Path(ptbtokenizer.__file__).resolve().parents[1]
_PTB_JAR = _COCO_TOOLS / "tokenizer" / ptbtokenizer.STANFORD_CORENLP_3_4_1_JAR
METEOR_JAR = _COCO_TOOLS / "meteor" / "meteor-1.5.jar"
# The jar finds these by itself, but not where a space stands in the path of the installation (it looks below "%2520").
_METEOR_PARAPHRASES = _COCO_TOOLS / "meteor" / "data" / "paraphrase-en.gz"
_SPICE = _COCO_TOOLS / "spice"
_SPICE_MODELS = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")

# The locale decides the decimal point that METEOR reads and prints; the encoding, what becomes of "café".
_LOCALE = ("-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8")


@dataclass(frozen=True)
class Scores:
    """The figures of a set of captions.

    Attributes:
        values: percent by name: "BLEU-1".."BLEU-4", "BLEU-1 (no brevity penalty)".., "ROUGE-L", "CIDEr", and "METEOR"
            and "SPICE" where they could be had.
        protocol: how the captions were split into words.
        notes: one line for each thing that is missing or worth knowing, with what to do about it.
    """

    values: dict[str, float]
    protocol: str
    notes: tuple[str, ...] = ()


class _JavaError(Exception):
    """A Java program that failed or took too long, in a few words."""


def score(
    hypotheses: Mapping[str, str],
    references: Mapping[str, Sequence[str]],
    *,
    meteor: bool = True,
    timeout: float = 600.0,
    language: str = "",
) -> Scores:
    """Measure one caption per image against its references.

    An empty hypothesis is counted, and scores 0. References without a word are left out.

    Args:
        hypotheses: image id to the raw generated caption.
        references: the same ids to raw human captions, any number from 1 on.
        meteor: False leaves out METEOR and SPICE, which take ten seconds and more to start.
        timeout: seconds after which a Java program is stopped; its figure is then missing, with a note.
        language: one of `text.LANGUAGES`, whose words the PTB tokenizer cannot find: captions are split into characters
            then (`text.tokenise`), and METEOR and SPICE, which know English, are left out.

    Raises:
        SatlibError: nothing to measure, image ids that differ, or an image without a reference.
    """
    _check(hypotheses, references)
    image_ids = list(hypotheses)
    captions = [hypotheses[image_id] for image_id in image_ids] + [
        caption for image_id in image_ids for caption in references[image_id]
    ]
    notes = []
    java = not language and java_available()
    if language:
        words, protocol = [" ".join(tokenise(caption, language)) for caption in captions], CHARACTERS.format(language)
        notes.append(f"METEOR and SPICE are left out: they know English, not {LANGUAGES[language]}")
    elif not java:
        notes.append(f"METEOR is missing and words are split by nltk: no working Java was found; {GET_JAVA}")
    else:
        try:
            words, protocol = ptb_tokenise(captions, timeout), PTB
        except _JavaError as error:
            java = False
            notes.append(f"METEOR is missing and words are split by nltk: the PTB tokenizer {error}; {GET_JAVA}")
    if not java and not language:
        words, protocol = treebank_tokenise(captions), WITHOUT_JAVA

    rest = iter(words[len(image_ids) :])
    spoken = {image_id: [line] for image_id, line in zip(image_ids, words[: len(image_ids)], strict=True)}
    human = {
        image_id: [line for _, line in zip(references[image_id], rest, strict=False) if line] for image_id in image_ids
    }
    for image_id in image_ids:
        if not human[image_id]:
            raise SatlibError(
                f"no reference of {image_id} has a word in it; correct its captions or leave the image out"
            )

    values = bleu(spoken, human)
    values["ROUGE-L"] = 100 * float(Rouge().compute_score(human, spoken)[0])
    values["CIDEr"] = 100 * float(Cider().compute_score(human, spoken)[0])
    if len(image_ids) == 1:
        notes.append("CIDEr weighs words by how few images they are said of, and is always 0 for a single image")
    for name, measure in {"METEOR": _meteor, "SPICE": _spice}.items():
        if not (java and meteor) or (name == "SPICE" and not _spice_installed()):
            continue
        try:
            values[name] = 100 * measure(spoken, human, timeout)
        except _JavaError as error:
            notes.append(f"{name} is missing: it {error}; the other figures are complete")
    return Scores(values, protocol, tuple(notes))


def bleu(hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Corpus BLEU-1..4 in percent, with and without brevity penalty, of text that is already split by spaces.

    n-grams are counted over the corpus and clipped at the most that any one reference has; the reference length is the
    closest, the shorter of two as close. Where not one n-gram agrees the COCO tools put 1e-15 for the count, so that a
    short test can show a BLEU-4 of 0.02 instead of 0.

    Args:
        hypotheses: image id to a list of one line.
        references: image id to one line or more.
    """
    values = {}
    # A reference length of 0 makes every hypothesis long enough: no penalty.
    for suffix, length in (("", None), (" (no brevity penalty)", 0)):
        scorer = BleuScorer(n=4, special_reflen=length)
        for image_id, (line,) in hypotheses.items():
            scorer += (line, references[image_id])
        figures, _ = scorer.compute_score(option="closest")
        values |= {f"BLEU-{n}{suffix}": 100 * float(figure) for n, figure in enumerate(figures, 1)}
    return values


def java_available() -> bool:
    """Whether a Java that runs is on the PATH (a Mac without Java has a `java` that only says what to install)."""
    if shutil.which("java") is None:
        return False
    try:
        with _folder() as folder:
            _java(["-version"], folder, timeout=30)
    except _JavaError:
        return False
    return True


def ptb_tokenise(captions: Sequence[str], timeout: float = 600.0) -> list[str]:
    """Split captions as the COCO tools do: PTB words in lower case, joined by spaces, punctuation left out.

    Raises:
        _JavaError: the tokenizer failed or took longer than `timeout` seconds.
    """
    with _folder() as folder:
        (folder / "captions").write_text("\n".join(map(_one_line, captions)) + "\n", encoding="utf-8")
        arguments = [*_LOCALE, "-cp", str(_PTB_JAR), "edu.stanford.nlp.process.PTBTokenizer"]
        output = _java([*arguments, "-preserveLines", "-lowerCase", "captions"], folder, timeout)
    lines = output.removesuffix("\n").split("\n")
    if len(lines) != len(captions):
        raise _JavaError(f"gave {len(lines)} lines for {len(captions)} captions")
    return [_without_punctuation(line.split(" ")) for line in lines]


def treebank_tokenise(captions: Sequence[str]) -> list[str]:
    """The same as `ptb_tokenise` by nltk's Treebank tokenizer: nearly the same words, and no Java."""
    from nltk.tokenize.treebank import TreebankWordTokenizer  # here, because it takes a second to import

    split = TreebankWordTokenizer().tokenize
    return [
        _without_punctuation(word.lower() for word in split(_one_line(caption), convert_parentheses=True))
        for caption in captions
    ]


def _check(hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> None:
    if not hypotheses:
        raise SatlibError("there is no caption to measure; caption at least one image")
    for missing, what in (
        (references.keys() - hypotheses.keys(), "caption"),
        (hypotheses.keys() - references.keys(), "reference"),
    ):
        if missing:
            raise SatlibError(
                f"{len(missing)} images have no {what}, the first is {min(missing)}; give the same images on both sides"
            )
    for image_id, captions in references.items():
        if isinstance(captions, str) or not captions:
            raise SatlibError(f"the references of {image_id} must be a list of at least one caption")


def _one_line(caption: str) -> str:
    """A caption on one line: any line break, tab, control character or `|||` would shift the captions after it."""
    whole = caption.encode("utf-8", "replace").decode("utf-8")  # half of a surrogate pair cannot be written
    # Tokenizers know the punctuation of English alone: a danda or an ideographic full stop would be a word, or end one.
    whole = _FULL_STOPS.sub(" ", normalise(whole))
    return " ".join(re.sub(r"[\x00-\x1f\x7f]|\|\|\|", " ", whole).split())


def _without_punctuation(words: Iterator[str] | Sequence[str]) -> str:
    return " ".join(word for word in words if word and word not in ptbtokenizer.PUNCTUATIONS)


def meteor_of_each(
    hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], timeout: float = 600.0
) -> dict[str, float]:
    """METEOR 1.5 of every caption alone, in percent, of text that is already split by spaces.

    The figure of a corpus is not their mean: METEOR adds up what agrees over all captions first.

    Args:
        hypotheses: image id to a list of one line.
        references: image id to one line or more.
        timeout: seconds after which the Java program is stopped.

    Raises:
        SatlibError: no working Java, or METEOR failed.
    """
    try:
        output = _meteor_output(hypotheses, references, timeout)
    except _JavaError as error:
        raise SatlibError(f"METEOR {error}; {GET_JAVA}") from error
    each = re.findall(r"^Segment \d+ score:\s+(\S+)$", output, re.MULTILINE)
    return {image_id: 100 * float(value) for image_id, value in zip(hypotheses, each, strict=True)}


def _meteor(hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], timeout: float) -> float:
    """METEOR 1.5 of a corpus, as a fraction."""
    final = re.search(r"^Final score:\s+(\S+)$", _meteor_output(hypotheses, references, timeout), re.MULTILINE)
    assert final is not None
    return float(final[1])


def _meteor_output(
    hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], timeout: float
) -> str:
    """What METEOR 1.5 prints with the options of the COCO tools: a score for each segment, and a final one.

    In a file every image has the same number of references. METEOR takes the best reference, so saying the last one
    again changes nothing.
    """
    most = max(len(lines) for lines in references.values())
    with _folder() as folder:
        (folder / "hypotheses").write_text("".join(f"{line}\n" for (line,) in hypotheses.values()), encoding="utf-8")
        padded = [
            line
            for image_id in hypotheses
            for line in [*references[image_id], *[references[image_id][-1]] * most][:most]
        ]
        (folder / "references").write_text("".join(f"{line}\n" for line in padded), encoding="utf-8")
        arguments = ["-Xmx2G", *_LOCALE, "-jar", str(METEOR_JAR), "hypotheses", "references"]
        output = _java(
            [*arguments, "-r", str(most), "-l", "en", "-norm", "-a", str(_METEOR_PARAPHRASES)], folder, timeout
        )
    if not re.search(r"^Final score:\s+\S+$", output, re.MULTILINE) or output.count("\nSegment ") != len(hypotheses):
        raise _JavaError("printed no final score of all captions")
    return output


def _spice_installed() -> bool:
    """Whether SPICE's models, which pycocoevalcap does not carry, were put beside it."""
    return all((_SPICE / "lib" / name).is_file() for name in _SPICE_MODELS)


def _spice(hypotheses: Mapping[str, Sequence[str]], references: Mapping[str, Sequence[str]], timeout: float) -> float:
    """SPICE, as a fraction: the mean F-score of all scene-graph tuples."""
    images = [
        {"image_id": image_id, "test": line, "refs": list(references[image_id])}
        for image_id, (line,) in hypotheses.items()
    ]
    with _folder() as folder:
        (folder / "images.json").write_text(json.dumps(images), encoding="utf-8")
        arguments = ["-Xmx8G", *_LOCALE, "-jar", str(_SPICE / "spice-1.0.jar"), "images.json", "-out", "scores.json"]
        _java([*arguments, "-subset", "-silent"], folder, timeout)
        try:
            measured = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
            return sum(image["scores"]["All"]["f"] or 0.0 for image in measured) / len(hypotheses)
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise _JavaError("wrote no scores") from error


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="satlib-metrics-") as name:
        yield Path(name)


def _java(arguments: Sequence[str], folder: Path, timeout: float) -> str:
    """Run Java in a folder and give what it printed; whatever happens, nothing of it is left running.

    Files instead of pipes: a pipe that some grandchild keeps open can be waited for without end.
    """
    output, errors = folder / "stdout", folder / "stderr"
    with output.open("wb") as stdout, errors.open("wb") as stderr:
        try:
            process = subprocess.Popen(
                ["java", *arguments],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise _JavaError(f"cannot be started ({error.strerror})") from error
        try:
            status = process.wait(timeout)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise _JavaError(f"was stopped after {timeout:g} seconds") from error
            raise
    if status != 0:
        said = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise _JavaError(f"ended with status {status} ({said[-1] if said else 'no message'})")
    return output.read_text(encoding="utf-8", errors="replace")
