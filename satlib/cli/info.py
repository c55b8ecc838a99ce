"""`satlib info`: versions, devices, and what is missing."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil

import torch

from satlib import __version__, recipe
from satlib.data.datasets import NAMES, data_root
from satlib.evaluation import metrics
from satlib.model import encoders, shipped

_LIBRARIES = ("torch", "torchvision", "timm", "numpy", "pillow", "safetensors", "pycocoevalcap", "nltk", "matplotlib")
_COURSE = ("jupyterlab", "jupytext", "ipywidgets", "nbval")


def topics() -> dict[str, str]:
    """What to know before starting, or when something does not work, by topic."""
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
        "Java": shutil.which("java")
        if metrics.java_available()
        else f"missing, so METEOR cannot be computed; {metrics.GET_JAVA}",
        "course": "installed" if not missing else f"missing {', '.join(missing)}; pip install -e '.[course]'",
        "data": f"{root}: {', '.join(present) or 'no data sets yet; run satlib data fetch flickr8k (drawn scenes need no files)'}",
        "recipes": ", ".join(recipe.names()),
        "encoders": ", ".join((*encoders.names(), "timm:NAME")),
        "model": str(shipped.model()),
    }


def report() -> str:
    """`topics`, one line for each."""
    lines = topics()
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {line}" for name, line in lines.items())
