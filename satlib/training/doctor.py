"""`satlib doctor`: examine a run or a model for what usually goes wrong (`satlib.training.symptoms`), and say what to do."""

from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from satlib import recipe
from satlib.data import datasets
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, maps
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.training import checkpoint, symptoms
from satlib.training.checkpoint import CHECKPOINT
from satlib.training.patient import Check, Patient, Unknown
from satlib.training.validation import read_log

SAMPLE = 50  # images that the model captions if there is no evaluation


@dataclass(frozen=True)
class Finding:
    """What a check found.

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
        device: where to caption, if there is no evaluation.

    Raises:
        SatlibError: there is no such run or model, or a file cannot be read.
    """
    patient = admitted(place, root, device)
    return [_finding(patient, check) for check in symptoms.CHECKS]


def _finding(patient: Patient, check: Check) -> Finding:
    try:
        wrong, measured = check.of(patient)
    except Unknown as missing:
        return Finding(check.name, "not examined", str(missing))
    return Finding(check.name, "wrong" if wrong else "fine", measured, check.advice if wrong else "")


def admitted(place: Path, root: Path, device: str | torch.device = "cpu") -> Patient:
    """Everything that is known about a run or a model; arguments and errors as for `examine`."""
    file = shipped.or_shipped(place)
    folder = file if file.is_dir() else None
    model = folder / "model.safetensors" if folder else file
    patient = Patient()
    if folder:
        _read_folder(patient, folder)
    if model.is_file() or folder is None:
        patient.captioner = Captioner.load(model, device)
    if folder and not (patient.captioner or patient.log or patient.evaluations or patient.progress):
        raise SatlibError(f"{place} holds no model, checkpoint, log or evaluation; give a run's folder or a model")
    used = patient.captioner.recipe if patient.captioner else patient.recipe
    if used is not None:
        patient.data = _data(used, root)
    if patient.captioner is not None and patient.data is not None:
        _sample(patient, patient.captioner, patient.data)
    return patient


def _read_folder(patient: Patient, folder: Path) -> None:
    for split in datasets.SPLITS:
        path = folder / f"evaluation-{split}.json"
        if path.is_file():
            patient.evaluations[split] = evaluate.read(path)
    if (folder / CHECKPOINT).is_file():
        patient.progress = checkpoint.read(folder / CHECKPOINT)[0].progress
    if (folder / "log.jsonl").is_file():
        patient.log = read_log(folder / "log.jsonl")
    if (folder / "recipe.toml").is_file():
        patient.recipe = recipe.load(str(folder / "recipe.toml"))
    if (folder / "vocabulary.json").is_file():
        patient.vocabulary = Vocabulary.load(folder / "vocabulary.json")


def _data(used: recipe.Recipe, root: Path) -> datasets.CaptionSet | None:
    """The data set of a recipe, None where it is not there; of a stream, only the recipe's training can tell more."""
    try:
        data = datasets.load(used.data.name, root, train_images=used.data.train_images)
    except SatlibError:
        return None
    return None if data.streamed else data


def _sample(patient: Patient, captioner: Captioner, data: datasets.CaptionSet) -> None:
    """Let the model see some dev images; without an evaluation, also caption them."""
    examples = data.split("dev")[:SAMPLE]
    if not examples:
        return
    reader = Pixels(data, captioner.view)
    if captioner.familiarity:
        for start in range(0, len(examples), 10):
            batch = reader.read([example.image_id for example in examples[start : start + 10]])
            patient.distances += captioner.familiarity.distances(captioner.encoded(batch)).tolist()
    if not patient.evaluations:
        captions = evaluate.generate(captioner, reader, examples)
        patient.sampled = {
            "attention": captioner.recipe.decoder.attention,
            "captions": {name: caption.text for name, caption in captions.items()},
            "metrics": maps.entropy_and_movement(captions.values())[0],
        }


def render(findings: list[Finding]) -> str:
    """The findings as text: what is wrong first, with what to do, then what is fine, then what was not examined."""
    lines = []
    for state in ("wrong", "fine", "not examined"):
        for finding in findings:
            if finding.state == state:
                lines.append(f"{state:12}  {finding.name}: {finding.measured}")
                if finding.advice:
                    lines.append(f"{'':12}  what to do: {finding.advice}")
    counts = ", ".join(
        f"{sum(f.state == state for f in findings)} {state}" for state in ("wrong", "fine", "not examined")
    )
    return "\n".join([*lines, counts])


def to_json(findings: list[Finding]) -> list[dict[str, str]]:
    """The findings for a program."""
    return [asdict(finding) for finding in findings]
