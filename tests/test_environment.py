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


def test_an_installation_looks_at_the_free_disk_first(tmp_path):
    """Where 2.9 GB are free, it stops before it makes or fetches anything."""
    df = tmp_path / "df"
    df.write_text("#!/bin/sh\necho size\necho disk 9000000 6100000 2900000 68% /\n")
    df.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHON": sys.executable,
    }
    work = tmp_path / "checkout"
    work.mkdir()
    command = ["sh", ROOT / "tools" / "install.sh"]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=work)
    assert ended.returncode == 1
    assert "needs 3 GB of disk, and 2 GB are free here" in ended.stderr
    assert not list(work.iterdir())
