"""What comes with satlib: trained captioners, for photographs and for drawn scenes, and the evaluations behind the README's figures."""

from pathlib import Path

from satlib.errors import SatlibError

PHOTOGRAPHS = "flickr8k-lite0-soft"
_MODELS = Path(__file__).parent / "models"
_RESULTS = Path(__file__).parent / "results"


def models() -> list[str]:
    """The names of the captioners, after their recipes; `satlib/models/README.md` is their card."""
    return sorted(path.stem for path in _MODELS.glob("*.safetensors"))


def model(name: str = PHOTOGRAPHS) -> Path:
    """A captioner's file; the one for photographs if no other is named.

    Raises:
        SatlibError: there is none of that name.
    """
    path = _MODELS / f"{name}.safetensors"
    if not path.is_file():
        raise SatlibError(
            f"no model called {name} comes with satlib (there are: {', '.join(models()) or 'none; install satlib again'}); "
            "name a run or a model's file with --model"
        )
    return path


def or_shipped(path: Path) -> Path:
    """The path as it is, or, where nothing lies there and a captioner of that name comes with satlib, that captioner's file."""
    return model(str(path)) if str(path) in models() and not path.exists() else path


def evaluations() -> list[Path]:
    """The evaluation files, in order of name."""
    return sorted(_RESULTS.glob("*.json"))
