"""Files that come with satlib: trained captioners for photographs and for drawn scenes, and the evaluations of satlib's results."""

from pathlib import Path

from satlib.errors import SatlibError

PHOTOGRAPHS = "flickr8k-lite0-boxes"
_MODELS = Path(__file__).parent.parent / "models"
_RESULTS = Path(__file__).parent.parent / "results"


def models() -> list[str]:
    """The names of the captioners, which are those of their recipes; `satlib/models/README.md` is their model card."""
    return sorted(path.stem for path in _MODELS.glob("*.safetensors"))


def model(name: str = PHOTOGRAPHS) -> Path:
    """The file of a captioner; by default, of the one for photographs.

    Raises:
        SatlibError: no captioner of that name comes with satlib.
    """
    path = _MODELS / f"{name}.safetensors"
    if not path.is_file():
        raise SatlibError(
            f"no model called {name} comes with satlib (its models: {', '.join(models()) or 'none; install satlib again'}); "
            "give a run's folder or a model file with --model"
        )
    return path


def name_of(path: Path) -> str | None:
    """The name of the captioner that comes with satlib in this file; None of any other file."""
    return path.stem if path.stem in models() and model(path.stem) == path else None


def or_shipped(path: Path) -> Path:
    """The path, if it exists; otherwise the file of the captioner of that name, which comes with satlib.

    Raises:
        SatlibError: there is neither.
    """
    if path.exists():
        return path
    if str(path) not in models():
        raise SatlibError(
            f"the model {path} does not exist; train one with: satlib train RECIPE. Or name one that comes with satlib: "
            + ", ".join(models())
        )
    return model(str(path))


def evaluations() -> list[Path]:
    """The evaluations of the test split, sorted by their folders' names; a folder has the files of a run."""
    return sorted(_RESULTS.glob("*/evaluation-test.json"))
