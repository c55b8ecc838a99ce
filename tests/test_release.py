"""What would be released: the distributions, their licences and links, the course that they carry, and the workflow."""

import fnmatch
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from tools_path import hatch_hooks, release_check

from satlib import __version__

ROOT = Path(__file__).resolve().parent.parent
NON_COMMERCIAL = "LicenseRef-Flickr8k-Models"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels of satlib and of satlib-models, built from the source archives as for a release."""
    folder = tmp_path_factory.mktemp("distributions")
    for project in (ROOT, ROOT / "models"):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(project)]
        subprocess.run(command, check=True, capture_output=True)
    return [next(folder.glob(f"{name}-{__version__}-py3-none-any.whl")) for name in ("satlib", "satlib_models")]


def test_the_wheel_has_the_models_for_scenes_and_no_answers_or_photographs(wheels):
    names = set(ZipFile(wheels[0]).namelist())
    assert {name for name in names if name.endswith(".safetensors")} == {
        f"satlib/models/scenes-{kind}.safetensors" for kind in ("soft", "hard")
    }
    assert not [name for name in names if name.endswith((".png", ".jpg", ".ipynb")) or "tests" in name]


def test_the_models_for_photographs_are_a_wheel_of_their_own_with_its_terms(wheels):
    names, about = set(ZipFile(wheels[1]).namelist()), release_check.metadata_of(wheels[1])
    assert {name for name in names if name.endswith((".safetensors", ".md"))} == {
        f"satlib_models/{name}"
        for name in (
            "README.md",
            *(f"flickr8k-{kind}.safetensors" for kind in ("lite0-boxes", "lite0-soft")),
        )
    }
    assert about["License-Expression"] == f"{NON_COMMERCIAL} AND Apache-2.0"
    assert sorted(about.get_all("License-File")) == ["LICENSES/Apache-2.0.txt", f"LICENSES/{NON_COMMERCIAL}.txt"]
    (source,) = wheels[0].parent.glob("satlib-*.tar.gz")
    with tarfile.open(source) as archive:
        assert not [name for name in archive.getnames() if "flickr8k-lite0-boxes.safetensors" in name]
    for name in ("Apache-2.0.txt", f"{NON_COMMERCIAL}.txt"):  # those of the repository
        assert (ROOT / "models/LICENSES" / name).read_bytes() == (ROOT / "LICENSES" / name).read_bytes()


def test_the_metadata_names_the_licence_and_no_link_fails(wheels):
    folder = release_check.metadata_of(wheels[0])
    assert folder["License-Expression"] == "MIT"
    assert folder.get_all("License-File") == ["LICENSE"]
    assert folder.get_payload().startswith("# satlib: Show, Attend and Tell")
    assert links_that_fail(folder.get_payload()) == []
    required = release_check.requirements(wheels[0])
    assert {"torch>=2.6", "jupyterlab>=4.2", "nbclient>=0.8", 'numpy>=2.1; python_version >= "3.13"'} <= {*required}
    assert not [line for line in required if "extra" in line or line.startswith(("ruff", "sphinx"))]


def links_that_fail(text: str) -> list[str]:
    """Relative links and pictures of a page in Markdown, which lead nowhere outside the repository."""
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", text, flags=re.M | re.S)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target and target[0] != "#"]


def licence(path: str) -> str:
    """A file's licence by REUSE.toml, in which the last table that fits counts."""
    tables = tomllib.loads((ROOT / "REUSE.toml").read_text(encoding="utf-8"))["annotations"]
    paths = [(table, [table["path"]] if isinstance(table["path"], str) else table["path"]) for table in tables]
    return [
        table["SPDX-License-Identifier"] for table, all_ in paths if any(fnmatch.fnmatch(path, each) for each in all_)
    ][-1]


def test_each_file_has_its_licence():
    models = {
        path.name: licence(path.relative_to(ROOT).as_posix())
        for folder in ("satlib/models", "models/satlib_models")
        for path in (ROOT / folder).glob("*.safetensors")
    }
    assert models == {
        "flickr8k-lite0-boxes.safetensors": f"{NON_COMMERCIAL} AND Apache-2.0",
        "flickr8k-lite0-soft.safetensors": NON_COMMERCIAL,
        "scenes-soft.safetensors": "MIT",
        "scenes-hard.safetensors": "MIT",
    }
    photographs = {licence(path.relative_to(ROOT).as_posix()) for path in (ROOT / "notebooks/photographs").iterdir()}
    assert photographs == {"CC0-1.0", "LicenseRef-Public-Domain"}
    assert {licence(name) for name in ("satlib/model/decoder.py", "notebooks/00_look.ipynb", "README.md")} == {"MIT"}
    assert (ROOT / "LICENSES/MIT.txt").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert {path.stem for path in (ROOT / "LICENSES").iterdir()} == {
        *("MIT", "CC0-1.0", "LicenseRef-Public-Domain"),
        *("Apache-2.0", NON_COMMERCIAL),
    }


def test_the_long_description_s_links_lead_to_the_repository_or_become_text():
    text = "[guide](docs/a.md#b) ![shape](docs/a.png) [web](https://x.org) [here](#here)"
    there = hatch_hooks.with_outside_links(text, "https://h.org/r/{}/v1/")
    assert there == (
        "[guide](https://h.org/r/blob/v1/docs/a.md#b) ![shape](https://h.org/r/raw/v1/docs/a.png) "
        "[web](https://x.org) [here](#here)"
    )
    assert hatch_hooks.with_outside_links(text, None) == "guide  [web](https://x.org) [here](#here)"


class TestWorkflow:
    JOBS = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]

    def test_its_shell_lines_hold_for_this_version(self, tmp_path):
        """The check of the tag, the address of the links and the section of the changelog, run as they stand in the file."""
        tag = {"GITHUB_REF_NAME": f"v{__version__}", "GITHUB_SERVER_URL": "https://h.org", "GITHUB_REPOSITORY": "o/r"}
        for name in ("CHANGELOG.md", "pyproject.toml"):
            (tmp_path / name).write_bytes((ROOT / name).read_bytes())
        (tmp_path / "satlib").mkdir()
        (tmp_path / "satlib/__init__.py").write_bytes((ROOT / "satlib/__init__.py").read_bytes())

        def run(line, **changed):
            return subprocess.run(
                ["bash", "-ec", line], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", **tag, **changed}
            ).returncode

        lines = [step["run"] for job in ("build", "publish") for step in self.JOBS[job]["steps"] if "run" in step]
        (checks,) = (line for line in lines if "__version__" in line)
        (address,) = (line for line in lines if "Source" in line)
        (section,) = (line for line in lines if line.startswith("awk"))
        assert run(checks) == 0
        assert run(checks, GITHUB_REF_NAME="v99.0") != 0
        assert run(address) == 0
        project = tomllib.loads((tmp_path / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["urls"] == {"Source": "https://h.org/o/r"}
        assert project["name"] == "satlib"
        assert run(section) == 0
        assert (tmp_path / "notes.md").read_text(encoding="utf-8").startswith(f"## {__version__} (")
