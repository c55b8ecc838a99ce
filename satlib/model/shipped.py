"""Files that come with satlib: trained captioners, and the evaluations of satlib's results.

The captioners for drawn scenes are in satlib itself. Those for photographs, which are for non-commercial use only, are in the package
satlib-models of the same repository (models/).
"""

import importlib.util
from pathlib import Path

from satlib.errors import SatlibError

PHOTOGRAPHS = "flickr8k-lite0-boxes"
_FOR_PHOTOGRAPHS = (PHOTOGRAPHS, "flickr8k-lite0-soft")
_MODELS = Path(__file__).parent.parent / "models"
_RESULTS = Path(__file__).parent.parent / "results"


def _files() -> dict[str, Path]:
    """The files of the captioners that are installed, by name."""
    separate = importlib.util.find_spec("satlib_models")
    more = separate.submodule_search_locations if separate else None
    folders = [_MODELS, *map(Path, more or ())]
    return {path.stem: path for folder in folders for path in folder.glob("*.safetensors")}


def models() -> list[str]:
    """The names of the captioners that are installed, which are those of their recipes."""
    return sorted(_files())


def model(name: str = PHOTOGRAPHS) -> Path:
    """The file of a captioner; by default, of the one for photographs.

    Raises:
        SatlibError: no captioner of that name comes with satlib, or it is not installed.
    """
    files = _files()
    if name in files:
        return files[name]
    if name in _FOR_PHOTOGRAPHS:
        raise SatlibError(
            f"the model {name} is not installed; it is in the package satlib-models, for non-commercial research and education: "
            "run pip install ./models in a checkout of satlib's repository"
        )
    raise SatlibError(
        f"the model {name} does not exist; train one with: satlib train RECIPE. Or name one that comes with satlib: "
        + ", ".join(models())
    )


def or_shipped(path: Path) -> Path:
    """The path, if it exists; otherwise the file of the captioner of that name."""
    return path if path.exists() else model(str(path))


def name_of(path: Path) -> str | None:
    """The name of the captioner that comes with satlib in this file; None of any other file."""
    return path.stem if _files().get(path.stem) == path else None


def evaluations() -> list[Path]:
    """The evaluations of the test split, sorted by their folders' names; a folder has the files of a run."""
    return sorted(_RESULTS.glob("*/evaluation-test.json"))
