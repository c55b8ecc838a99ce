"""The files that describe the environment agree: pyproject.toml, environment.yml, constraints.txt, tools/install.sh."""

import ast
import io
import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image
from rattler import MatchSpec
from rattler.exceptions import InvalidMatchSpecError

from satcourse.widgets import upload

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
SUPPORTED = ["3.11", "3.12", "3.13", "3.14"]
UNTRIED = {"3.14"}  # every dependency has wheels for it, but nobody has run the tests there yet: no classifier
# What the extras bring that learners have, as it is imported.
COURSE_MODULES = ("ipywidgets", "nbclient", "ipykernel", "jupyterlab")


def conda_lines():
    lines = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    return [line for line in lines if isinstance(line, str)], [line for line in lines if isinstance(line, dict)]


def constraints():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def required(extra):
    """The requirements of an extra, with those of satlib's own extras that it names."""
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name == "satlib":
            for other in requirement.extras:
                yield from required(other)
        else:
            yield requirement


def names(extra):
    return {canonicalize_name(requirement.name) for requirement in required(extra)}


def test_every_conda_line_is_a_match_spec_and_the_rest_is_pyprojects_in_the_versions_of_constraints():
    """Conda writes the section `pip` into a requirements file beside environment.yml, where pip reads both lines."""
    lines, sections = conda_lines()
    assert sections == [{"pip": ["-c constraints.txt", "-e .[lab]", "-e ./models"]}]
    specs = [str(MatchSpec(line)) for line in lines]
    assert {spec.split()[0] for spec in specs} == {"python", "openjdk", "pip"}
    with pytest.raises(InvalidMatchSpecError):
        MatchSpec("python >=3.10,,<")  # so that a line which is none would be seen


def test_learners_do_not_get_the_contributors_tools():
    tools = {"playwright", "uv", "py-rattler", "ruff", "hypothesis", "jupytext", "nbval", "scikit-image"}
    assert names("dev") >= tools | names("site")  # the tests build the site
    assert names("lab") == {*COURSE_MODULES}
    assert names("course") == names("lab") - {"jupyterlab"}  # Colab and Kaggle have an interface of their own


def test_dev_is_every_extra():
    assert names("dev") >= {name for extra in EXTRAS for name in names(extra)}


def test_each_target_installs_what_it_needs(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    wanted = dict.fromkeys(["demo", "lab", "check", "exercises"], "sh tools/install.sh") | {
        "site": "sh tools/install.sh site"
    }
    targets = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    for target in sorted({*targets} - {"help"}):  # each in a checkout of its own
        installs, checkout = wanted.get(target, "sh tools/install.sh dev"), tmp_path / f"my {target}"
        checkout.mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt", "tools"):
            (checkout / name).symlink_to(ROOT / name)
        command = ["make", "--dry-run", target]
        first = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout.splitlines()
        assert [line for line in first if "install.sh" in line] == [installs], target
        (checkout / ".venv").mkdir()
        (checkout / ".venv" / f".{installs.removeprefix('sh tools/install.sh').strip() or 'installed'}").touch()
        again = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True).stdout
        assert "install.sh" not in again, target


# What ipywidgets 8 has and 7.7 has not.
ONLY_IN_8 = {
    "TagsInput", "ColorsInput", "FloatsInput", "IntsInput", "TimePicker", "DatetimePicker", "NaiveDatetimePicker",
    "Stack", "TypedTuple",
}  # fmt: skip
TRAITS_ONLY_IN_8 = {"tabbable", "tooltip", "description_allow_html", "behavior", "titles"}


def test_widgets_are_those_that_ipywidgets_7_has_too():
    """Colab has 7.7.1. In an environment of its own, `pip install "ipywidgets<8"` and tests/test_explorer.py try it out."""
    used, wrong = set(), []
    for source in (
        path for folder in ("satcourse", "notebooks", "solutions") for path in (ROOT / folder).rglob("*.py")
    ):
        text = source.read_text(encoding="utf-8")
        if "ipywidgets" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "ipywidgets":
                used.add(node.attr)
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("ipywidgets."):
                own = {"tooltip"} if node.func.attr == "Button" else set()  # a button's own in 7.7 too
                wrong += [each.arg for each in node.keywords if each.arg in TRAITS_ONLY_IN_8 - own]
            if isinstance(node, ast.Attribute) and node.attr in TRAITS_ONLY_IN_8 | {"_repr_mimebundle_"}:
                wrong.append(node.attr)
    assert {"Dropdown", "FileUpload"} <= used
    assert not used & ONLY_IN_8
    assert wrong == []


def test_an_upload_is_read_as_either_ipywidgets_gives_it():
    """A dict of files by their names from 7, a tuple of files from 8."""
    buffer = io.BytesIO()
    Image.new("RGBA", (3, 2), (255, 0, 0, 255)).save(buffer, "PNG")
    files = {"a.png": {"content": buffer.getvalue()}, "b.png": {"content": buffer.getvalue()}}
    for value in (files, tuple(files.values())):
        photos = upload.photographs(value)
        assert [(photo.mode, photo.size, photo.getpixel((0, 0))) for photo in photos] == [
            ("RGB", (3, 2), (255, 0, 0))
        ] * 2


def test_every_file_names_the_same_pythons():
    python = next(line for line in conda_lines()[0] if line.startswith("python "))
    assert python.removeprefix("python ") == PROJECT["requires-python"] == f">={SUPPORTED[0]}"
    classifiers = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    assert [found[1] for found in classifiers if found] == [each for each in SUPPORTED if each not in UNTRIED]
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == SUPPORTED
    assert "sys.version_info < (3, 11)" in (ROOT / "tools/install.sh").read_text(encoding="utf-8")


def test_constraints_pin_every_dependency_as_pyproject_allows():
    for python, system in itertools.product(SUPPORTED, ("linux", "darwin")):
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
        for needed in [*map(Requirement, PROJECT["dependencies"]), *required("dev")]:
            if needed.marker is None or needed.marker.evaluate(machine):
                assert needed.specifier.contains(pinned[canonicalize_name(needed.name)]), needed


def fresh_python(code, **more):
    """Run `code` in a new interpreter and return what it printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_every_module_imports_without_the_course():
    blocked = {*COURSE_MODULES, "optuna", "onnx", "pillow_heif", "IPython"}
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
    assert {"satlib.errors", "satlib.model.decoder", "satlib.data.datasets", "satlib.recipes"} <= set(output.split())


def test_importing_satlib_alone_is_quick():
    loaded = fresh_python("import sys, satlib; print(*sys.modules)").split()
    assert "satlib" in loaded
    assert not {"torch", "torchvision", "timm", "matplotlib", "nltk"} & set(loaded)


# The installer, tried with stand-ins for Python, uv and pip that only write down what they were asked.

PYTHON_STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
case "$*" in
    *version_info*) exit "${WRONG_VERSION:-0}" ;;
    *--index-url*) exit "${NO_INDEX:-0}" ;;
    "-m venv .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    *--constraint*) exit "${NO_SUCH_VERSIONS:-0}" ;;
    *"-e .[lab"*) exit "${NO_NETWORK:-0}" ;;
esac
"""


@pytest.fixture
def installer(tmp_path):
    """Run tools/install.sh in an empty checkout whose path has a space, and return the outcome and what was asked."""
    checkout, tools = tmp_path / "my checkout", tmp_path / "bin"
    checkout.mkdir()
    tools.mkdir()
    for name in ("sh", "mkdir", "cp", "rm", "basename", "uname"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "python3").write_text(PYTHON_STAND_IN)
    (tools / "python3").chmod(0o755)
    shutil.copytree(ROOT / "tools", checkout / "tools")

    def run(*arguments, **more):
        log = tmp_path / "log"
        log.write_text("")
        done = subprocess.run(
            ["sh", "tools/install.sh", *arguments],
            cwd=checkout,
            env={"PATH": str(tools), "LOG": str(log), **more},
            capture_output=True,
            text=True,
        )
        return done, log.read_text()

    run.checkout, run.path = checkout, tools
    return run


def test_installs_with_pip_where_there_is_no_uv(installer):
    marks = installer.checkout / ".venv"
    done, log = installer()
    assert done.returncode == 0, done.stderr
    assert "-m pip install --quiet --constraint constraints.txt -e .[lab] -e ./models\n" in log
    assert {path.name for path in marks.iterdir() if path.is_file()} == {".installed"}
    done, log = installer("dev")  # a whole environment is brought up to date, not made anew
    assert done.returncode == 0, done.stderr
    assert "-m venv" not in log
    assert "-m pip install --quiet --constraint constraints.txt -e .[lab,dev] -e ./models\n" in log
    assert (marks / ".dev").exists()


def test_versions_that_are_not_offered_are_let_go_and_one_that_broke_off_is_begun_again(installer):
    done, _ = installer("dev", NO_SUCH_VERSIONS="1", NO_NETWORK="1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("satlib: the installation failed")
    assert not {".installed", ".dev"} & {path.name for path in (installer.checkout / ".venv").iterdir()}
    done, log = installer(NO_SUCH_VERSIONS="1")
    assert done.returncode == 0
    assert "-m venv .venv" in log
    assert "constraints.txt are not to be had here" in done.stderr
    assert log.rstrip().endswith("-m pip install --quiet -e .[lab] -e ./models")
    assert (installer.checkout / ".venv/.installed").exists()


def test_no_python_of_the_right_version_is_one_clear_line(installer):
    done, _ = installer(WRONG_VERSION="1")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "no Python 3.11 or later" in line
    assert "brew install python@3.12" in line
    done, _ = installer(WRONG_VERSION="1", PYTHON="python3")
    (line,) = done.stderr.splitlines()
    assert "PYTHON=python3 is no Python 3.11 or later" in line


@pytest.mark.skipif(sys.platform != "linux", reason="only the wheels for Linux bring CUDA")
def test_without_a_gpu_torch_comes_without_cuda_where_its_index_is_reached(installer):
    light = "-m pip install --quiet --no-deps --index-url {} --constraint constraints.txt torch torchvision\n"
    done, log = installer()
    at = log.index(light.format("https://download.pytorch.org/whl/cpu"))
    assert at < log.index("-e .[lab] -e ./models")
    assert done.stderr.splitlines() == ["satlib: making .venv; this takes some minutes once"]
    _, log = installer(TORCH_INDEX="file:///mirror")
    assert light.format("file:///mirror") in log
    done, log = installer(NO_INDEX="1")
    assert done.returncode == 0
    assert "torch without CUDA is not to be had from https://download.pytorch.org/whl/cpu" in done.stderr
    assert log.endswith("-e .[lab] -e ./models\n")
    gpu = Path(installer.path) / "nvidia-smi"
    gpu.write_text("#!/bin/sh\n")
    gpu.chmod(0o755)
    assert "--index-url" not in installer()[1]
