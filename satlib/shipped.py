"""What comes with satlib: a captioner trained on Flickr8k and the evaluations behind the figures in the README."""

from pathlib import Path

from satlib.errors import SatlibError

_MODELS = Path(__file__).parent / "models"
_RESULTS = Path(__file__).parent / "results"


def model() -> Path:
    """The captioner for photographs; `satlib/models/README.md` is its card.

    Raises:
        SatlibError: it is not there.
    """
    path = _MODELS / "flickr8k-lite0-soft.safetensors"
    if not path.is_file():
        raise SatlibError(
            f"the model that comes with satlib, {path}, is missing; install satlib again or name one with --model"
        )
    return path


def evaluations() -> list[Path]:
    """The evaluation files, in order of name."""
    return sorted(_RESULTS.glob("*.json"))
