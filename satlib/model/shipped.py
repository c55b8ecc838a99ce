"""The captioners and the evaluations that come with satlib.

Those for drawn scenes are in satlib itself. The one for photographs, for non-commercial use only, is in the package satlib-models of
the same repository (models/).
"""

import importlib.util
from pathlib import Path

from satlib.errors import SatlibError

PHOTOGRAPHS = "flickr8k-lite0-coco"
_HOME = Path(__file__).parent.parent


def _files() -> dict[str, Path]:
    """The files of the captioners that are installed, by name."""
    separate = importlib.util.find_spec("satlib_models")
    more = separate.submodule_search_locations if separate else None
    folders = [_HOME / "models", *map(Path, more or ())]
    return {path.stem: path for folder in folders for path in folder.glob("*.safetensors")}


def models() -> list[str]:
    """The names of the captioners that are installed, which are those of their recipes."""
    return sorted(_files())


def model(name: Path | str = PHOTOGRAPHS) -> Path:
    """The file of a captioner, given by its path, by the folder of its run, or by its name if it comes with satlib.

    Raises:
        SatlibError: there is none, or its package is not installed.
    """
    path = Path(name)
    if path.exists():
        return path / "model.safetensors" if path.is_dir() else path
    if file := _files().get(str(name)):
        return file
    if str(name) == PHOTOGRAPHS:
        raise SatlibError(
            f"the model {name} is not installed; it is in the package satlib-models, for non-commercial research and education: "
            "run pip install ./models in a checkout of satlib's repository"
        )
    raise SatlibError(
        f"the model {name} does not exist; train one with: satlib train RECIPE. Or name one that comes with satlib: "
        + ", ".join(models())
    )


def evaluations() -> list[Path]:
    """The evaluations of the test split, sorted by their folders' names; a folder has the files of a run."""
    return sorted((_HOME / "results").glob("*/evaluation-test.json"))
