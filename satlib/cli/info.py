"""`satlib info`."""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
from pathlib import Path

from satlib import __version__, recipe
from satlib.cli.arguments import MODEL, add_shared, printed

_LIBRARIES = ("torch", "torchvision", "timm", "numpy", "pillow", "safetensors", "pycocoevalcap", "nltk", "matplotlib")
_COURSE = ("ipywidgets", "nbclient", "ipykernel")


def add_info(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib info`."""
    parser.add_argument(
        "model", type=Path, nargs="?", metavar="MODEL", help=f"print what this model's file says instead: {MODEL}"
    )
    add_shared(parser, "--json")


def info(options: argparse.Namespace) -> int:
    """Print what is installed, or what a model's file says of it."""
    lines = _header(options.model) if options.model else topics()
    if options.json:
        return printed(lines)
    width = max(map(len, lines))
    print("\n".join(f"{name:{width}}  {line}" for name, line in lines.items()))
    return 0


def _header(model: Path) -> dict[str, str]:
    """What the header of a model's file says, and the recipe with all its options."""
    from satlib.model import captioner, shipped

    path, header, tensors = captioner.read_file(shipped.or_shipped(model))
    weights = sum(value.numel() for value in tensors.values())
    return {
        "file": f"{path}, {path.stat().st_size / 1e6:.1f} MB, {weights:,} weights",
        "vocabulary": f"{len(header.vocabulary):,} words",
        **{section: str(options) for section, options in header.recipe.items()},
        **{name: str(value) for name, value in header.card.items()},
    }


def topics() -> dict[str, str]:
    """What to know before starting, or when something does not work, by topic."""
    import torch

    from satlib.data.datasets import NAMES, data_root
    from satlib.evaluation import metrics
    from satlib.model import encoders, shipped

    cuda = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())) or "none"
    root = data_root()
    present = [name for name in NAMES if name != "scenes" and (root / name).is_dir()]
    missing = [name for name in _COURSE if importlib.util.find_spec(name) is None]
    return {
        "satlib": f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        "libraries": ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _LIBRARIES),
        "processor": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads",
        "CUDA": cuda,
        "MPS": "yes" if torch.backends.mps.is_available() else "none",
        "Java": (metrics.java_available() and shutil.which("java"))
        or f"missing, so METEOR cannot be computed; {metrics.GET_JAVA}",
        "course": "installed" if not missing else f"missing {', '.join(missing)}; pip install 'satlib[lab]'",
        "data": f"{root}: {', '.join(present) or 'no data sets yet; run satlib data fetch flickr8k (drawn scenes need no files)'}",
        "recipes": ", ".join(recipe.names()),
        "encoders": ", ".join((*encoders.names(), "timm:NAME")),
        "models": ", ".join(shipped.models()),
    }
