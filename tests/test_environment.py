"""satlib imports without what only the course and the extras need."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fresh_python(code):
    """Run `code` in a new interpreter and return the words that it printed."""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


def test_every_module_imports_without_the_extras():
    loaded = fresh_python("""
import importlib, pkgutil, sys
for name in ("ipywidgets", "nbclient", "ipykernel", "IPython", "onnx", "datasets", "pillow_heif"):
    sys.modules[name] = None  # importing it fails
import satlib
for module in pkgutil.walk_packages(satlib.__path__, "satlib."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
""")
    # That the walk found the package, and not nothing.
    assert {"satlib.errors", "satlib.model.decoder", "satlib.recipe"} <= loaded
