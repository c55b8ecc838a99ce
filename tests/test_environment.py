"""The files that describe the environment agree: pyproject.toml, environment.yml, constraints.txt, tools/install.sh."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from rattler import MatchSpec
from rattler.exceptions import InvalidMatchSpecError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SUPPORTED = ["3.10", "3.11", "3.12", "3.13"]
# What the course's extra brings, as it is imported; IPython comes along with JupyterLab.
COURSE_MODULES = {
    "jupyterlab": "jupyterlab",
    "jupytext": "jupytext",
    "ipywidgets": "ipywidgets",
    "nbval": "nbval",
    "scikit-image": "skimage",
    "optuna": "optuna",
}


def conda_lines():
    lines = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    return [line for line in lines if isinstance(line, str)], [line for line in lines if isinstance(line, dict)]


def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def minors(specifier):
    """The Python 3 minors that a version specifier admits, of those that exist or may soon."""
    return [f"3.{n}" for n in range(20) if SpecifierSet(specifier).contains(f"3.{n}.5")]


def test_every_conda_line_is_a_match_spec():
    specs = [str(MatchSpec(line)) for line in conda_lines()[0]]
    assert {spec.split()[0] for spec in specs} == {"python", "openjdk", "pip"}
    with pytest.raises(InvalidMatchSpecError):
        MatchSpec("python >=3.10,,<")  # so that a line which is none would be seen


def test_conda_takes_the_rest_from_pyproject():
    _, sections = conda_lines()
    assert sections == [{"pip": ["-e .[course,dev]"]}]
    assert {"course", "dev"} <= set(EXTRAS)


def test_every_file_names_the_same_pythons():
    python = next(line for line in conda_lines()[0] if line.startswith("python "))
    assert minors(python.removeprefix("python ")) == SUPPORTED
    assert minors(PROJECT["requires-python"]) == SUPPORTED
    classifiers = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    assert [found[1] for found in classifiers if found] == SUPPORTED
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == SUPPORTED
    assert "(3, 10) <= sys.version_info[:2] <= (3, 13)" in (ROOT / "tools/install.sh").read_text(encoding="utf-8")


@pytest.mark.parametrize("python", SUPPORTED)
@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_constraints_pin_every_dependency_as_pyproject_allows(python, system):
    machine = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": system}
    pinned = {}
    for pin in constraints():
        assert not pin.extras, "pip refuses extras in constraints"
        if pin.marker is None or pin.marker.evaluate(machine):
            name = canonicalize_name(pin.name)
            assert name not in pinned, f"{name} twice for Python {python}"
            (only,) = pin.specifier
            assert only.operator == "=="
            pinned[name] = only.version
    for line in [*PROJECT["dependencies"], *EXTRAS["course"], *EXTRAS["dev"]]:
        asked = Requirement(line)
        if asked.marker is None or asked.marker.evaluate(machine):
            assert asked.specifier.contains(pinned[canonicalize_name(asked.name)]), line


def test_constraints_name_no_address():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--" not in text  # no option: no index, no place to look
    assert " @ " not in text


def fresh_python(code, **more):
    """Run `code` in a new interpreter and return what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_imports_without_the_course():
    assert set(COURSE_MODULES) == {Requirement(line).name for line in EXTRAS["course"]}
    blocked = {*COURSE_MODULES.values(), "IPython"}
    output = fresh_python(f"""
import importlib, pkgutil, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
try:
    import IPython
except ModuleNotFoundError:
    print("blocked")
import satlib
for module in pkgutil.walk_packages(satlib.__path__, "satlib."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
""")
    assert output.split()[0] == "blocked"
    assert {"satlib.errors", "satlib.decoder", "satlib.datasets", "satlib.recipes"} <= set(output.split())


def test_importing_satlib_alone_is_quick():
    loaded = fresh_python("import sys, satlib; print(*sys.modules)").split()
    assert "satlib" in loaded
    assert not {"torch", "torchvision", "timm", "matplotlib", "nltk"} & set(loaded)


# The installer, tried with stand-ins for Python, uv and pip that only write down what they were asked.

PYTHON_STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
case "$*" in
    *version_info*) exit "${WRONG_VERSION:-0}" ;;
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *--constraint*) exit "${NO_SUCH_VERSIONS:-0}" ;;
    *"-e .[course,dev]") exit "${NO_NETWORK:-0}" ;;
esac
"""


@pytest.fixture
def installer(tmp_path):
    """Run tools/install.sh in an empty checkout whose path has a space, and return the outcome and what was asked."""
    checkout, tools = tmp_path / "my checkout", tmp_path / "bin"
    checkout.mkdir()
    tools.mkdir()
    for name in ("sh", "mkdir", "cp", "rm", "basename"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "python3").write_text(PYTHON_STAND_IN)
    (tools / "python3").chmod(0o755)
    shutil.copytree(ROOT / "tools", checkout / "tools")

    def run(**more):
        log = tmp_path / "log"
        log.write_text("")
        done = subprocess.run(
            ["sh", "tools/install.sh"],
            cwd=checkout,
            env={"PATH": str(tools), "LOG": str(log), **more},
            capture_output=True,
            text=True,
        )
        return done, log.read_text()

    run.checkout = checkout
    return run


def test_installs_with_pip_where_there_is_no_uv(installer):
    done, asked = installer()
    assert done.returncode == 0, done.stderr
    assert "-m pip install --quiet --constraint constraints.txt -e .[course,dev]" in asked
    assert (installer.checkout / ".venv/.installed").exists()
    assert not (installer.checkout / ".venv/.installing").exists()
    again, asked = installer()
    assert again.returncode == 0
    assert "-m venv" not in asked  # a whole environment is brought up to date, not made anew


def test_versions_that_are_not_offered_are_let_go_and_said(installer):
    done, asked = installer(NO_SUCH_VERSIONS="1")
    assert done.returncode == 0
    assert "constraints.txt are not to be had here" in done.stderr
    assert asked.rstrip().endswith("-m pip install --quiet -e .[course,dev]")
    assert (installer.checkout / ".venv/.installed").exists()


def test_an_installation_that_broke_off_is_begun_again(installer):
    done, _ = installer(NO_SUCH_VERSIONS="1", NO_NETWORK="1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("satlib: the installation failed")
    assert not (installer.checkout / ".venv/.installed").exists()
    done, asked = installer()
    assert done.returncode == 0
    assert "-m venv .venv" in asked
    assert (installer.checkout / ".venv/.installed").exists()


def test_no_python_of_the_right_version_is_one_clear_line(installer):
    done, _ = installer(WRONG_VERSION="1")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "no Python 3.10 to 3.13" in line
    assert "brew install python@3.12" in line
    done, _ = installer(WRONG_VERSION="1", PYTHON="python3")
    (line,) = done.stderr.splitlines()
    assert "PYTHON=python3 is no Python 3.10 to 3.13" in line
