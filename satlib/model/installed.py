"""What is installed on this machine: captioners and evaluations that come with satlib, and devices to compute on.

Captioners for drawn scenes are in satlib itself. The one for photographs, for non-commercial use only, is in the package
satlib-models of the same repository.
"""

import importlib.util
from pathlib import Path

import torch

from satlib.errors import SatlibError

PHOTOGRAPHS = "flickr8k-lite0-coco"
_HOME = Path(__file__).parent.parent


def _files() -> dict[str, Path]:
    """The files of the captioners that are installed, by name."""
    separate = importlib.util.find_spec("satlib_models")
    more = separate.submodule_search_locations if separate else None
    folders = [_HOME / "shipped", *map(Path, more or ())]
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
            "run pip install ./satlib-models in a checkout of satlib's repository"
        )
    raise SatlibError(
        f"the model {name} does not exist; train one with: satlib train RECIPE. Or name one that comes with satlib: "
        + ", ".join(models())
    )


def evaluations() -> list[Path]:
    """The evaluations of the test split, sorted by their folders' names; a folder has the files of a run."""
    return sorted((_HOME / "results").glob("*/evaluation-test.json"))


def device(name: str = "auto") -> torch.device:
    """The named device; "auto" is CUDA if available, else Apple's MPS, else the CPU. SatlibError if it is not available."""
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        return torch.device(next(kind for kind, usable in available.items() if usable))
    if not available.get(name.partition(":")[0], False):
        choices = ", ".join(kind for kind, usable in available.items() if usable)
        raise SatlibError(f"the device {name!r} is not available; choose from auto, {choices}")
    return torch.device(name)


def precision(name: str, device: torch.device, train_encoder: bool = True) -> torch.dtype:
    """The data type of matrix products for a `training.precision`: auto, float32, bf16 or fp16.

    "auto" is float32, in which the decoder is fastest, unless a GPU trains an encoder: then bf16, or fp16 on a GPU that only
    emulates bf16, slowly.
    """
    if name == "auto" and device.type == "cuda" and train_encoder:
        return (
            torch.bfloat16
            if torch.cuda.is_bf16_supported(including_emulation=False)
            else torch.float16
        )
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name, torch.float32)
