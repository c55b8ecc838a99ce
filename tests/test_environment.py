"""The files that describe the environment agree, and satlib imports without what only the course and the extras need."""

import itertools
import os
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def required(extra):
    """The requirements of an extra, with those of satlib's own extras that it names."""
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == "satlib":
            yield from itertools.chain.from_iterable(map(required, requirement.extras))
        else:
            yield requirement


def test_constraints_pin_every_dependency_as_pyproject_allows():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = [Requirement(line) for line in lines if line and not line.startswith("#")]
    for python, system in itertools.product(("3.11", "3.12", "3.13", "3.14"), ("linux", "darwin")):
        machine = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": system}
        pinned = {}
        for pin in constraints:
            if pin.marker is None or pin.marker.evaluate(machine):
                (version,) = pin.specifier
                pinned[canonicalize_name(pin.name)] = version.version
        for needed in [*map(Requirement, PROJECT["dependencies"]), *required("dev")]:
            if needed.marker is None or needed.marker.evaluate(machine):
                assert needed.specifier.contains(pinned[canonicalize_name(needed.name)]), needed


def test_dev_is_every_extra():
    names = {extra: {canonicalize_name(requirement.name) for requirement in required(extra)} for extra in EXTRAS}
    assert names["dev"] == set().union(*names.values())


def fresh_python(code):
    """Run `code` in a new interpreter and return the words that it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert ended.returncode == 0, ended.stderr
    return set(ended.stdout.split())


def test_every_module_imports_without_the_extras():
    loaded = fresh_python("""
import importlib, pkgutil, sys
for name in ("ipywidgets", "nbclient", "ipykernel", "IPython", "optuna", "onnx", "datasets", "pillow_heif"):
    sys.modules[name] = None  # importing it fails
import satlib
for module in pkgutil.walk_packages(satlib.__path__, "satlib."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
""")
    assert {"satlib.errors", "satlib.model.decoder", "satlib.recipe"} <= loaded


def test_importing_satlib_alone_is_quick():
    loaded = fresh_python("import sys, satlib; print(*sys.modules)")
    assert "satlib" in loaded
    assert not {"torch", "torchvision", "timm", "matplotlib", "nltk"} & loaded
