"""What this machine has: captioners and evaluations that come with satlib, and a device.

Captioners for drawn scenes are in satlib itself. The one for photographs, for non-commercial use
only, is in the package satlib-models of the same repository.
"""

import importlib.util
from pathlib import Path

import torch

from satlib.errors import SatlibError

PHOTOGRAPHS = "flickr8k-lite0-coco"
_HOME = Path(__file__).parent.parent


def _files() -> dict[str, Path]:
    """The files of the captioners that are installed, by name."""
    # The captioner for photographs has terms of its own, and so a package of its own.
    folders = [_HOME / "shipped"]
    separate = importlib.util.find_spec("satlib_models")
    if separate is not None:
        folders += map(Path, separate.submodule_search_locations or ())

    found = {}
    for folder in folders:
        for path in folder.glob("*.safetensors"):
            found[path.stem] = path
    return found


def models() -> list[str]:
    """The names of the captioners that are installed, which are those of their recipes."""
    return sorted(_files())


def model(name: Path | str = PHOTOGRAPHS) -> Path:
    """The file of a captioner.

    name: its path, the folder of its run, or its name if it comes with satlib.

    Raises:
        SatlibError: there is none, or its package is not installed.
    """
    path = Path(name).expanduser()
    if path.exists():
        return path / "model.safetensors" if path.is_dir() else path
    if file := _files().get(str(name)):
        return file
    if str(name) == PHOTOGRAPHS:
        raise SatlibError(
            f"the model {name} is not installed; it is in the package satlib-models, for "
            "non-commercial research and education: run pip install ./satlib-models in a checkout "
            "of satlib's repository"
        )
    known = ", ".join(models())
    raise SatlibError(
        f"the model {name} does not exist; train one with: satlib train RECIPE. "
        f"Or name one that comes with satlib: {known}"
    )


def evaluations() -> list[Path]:
    """The evaluations of the test split, sorted by their folders' names."""
    return sorted((_HOME / "results").glob("*/evaluation-test.json"))


def device(name: str = "auto") -> torch.device:
    """The named device; "auto" is CUDA if available, else Apple's MPS, else the CPU.

    SatlibError if it is not available.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    # In order of preference.
    usable = [kind for kind, is_usable in available.items() if is_usable]
    if name == "auto":
        return torch.device(usable[0])
    kind, _, _ = name.partition(":")  # without the number of a GPU
    if kind not in usable:
        choices = ", ".join(usable)
        raise SatlibError(f"the device {name!r} is not available; choose from auto, {choices}")
    return torch.device(name)


def precision(name: str, device: torch.device, train_encoder: bool = True) -> torch.dtype:
    """The data type of matrix products for a `training.precision`: auto, float32, bf16 or fp16.

    "auto" is float32, in which the decoder is fastest, unless a GPU trains an encoder: then bf16,
    or fp16 on a GPU that only emulates bf16, slowly.
    """
    # An encoder's convolutions gain from half precision; the decoder's small products do not.
    if name == "auto" and device.type == "cuda" and train_encoder:
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return torch.bfloat16
        return torch.float16
    return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(name, torch.float32)
