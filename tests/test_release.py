"""What would be released: the distributions, their licences and links, the course that they carry, and the workflow."""

import fnmatch
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from tools_path import release_check

from satcourse.course import course_files, without_outside_links, write_course
from satlib import __version__
from satlib.errors import SatlibError

ROOT = Path(__file__).resolve().parent.parent
NON_COMMERCIAL = "LicenseRef-Flickr8k-Models"
FREE = ("MIT", "CC0-1.0", "LicenseRef-Public-Domain")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels of satlib and of satlib-models, built from the source archives as for a release."""
    folder = tmp_path_factory.mktemp("distributions")
    for project in (ROOT, ROOT / "models"):
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(project)]
        subprocess.run(command, check=True, capture_output=True)
    return [next(folder.glob(f"{name}-{__version__}-py3-none-any.whl")) for name in ("satlib", "satlib_models")]


def test_the_wheel_has_the_course_and_the_models_for_scenes(wheels):
    names = set(ZipFile(wheels[0]).namelist())
    assert {f"satcourse/_course/{name}" for name in course_files(ROOT)} <= names
    assert "satcourse/_course/notebooks/00_look.ipynb" in names
    assert {name for name in names if name.endswith(".safetensors")} == {
        f"satlib/models/scenes-{kind}.safetensors" for kind in ("soft", "hard")
    }
    assert not [name for name in names if "solutions" in name or "tests" in name]  # answers stay in the repository


def test_the_models_for_photographs_are_a_wheel_of_their_own_with_its_terms(wheels):
    names, about = set(ZipFile(wheels[1]).namelist()), release_check.metadata_of(wheels[1])
    assert {name for name in names if name.endswith((".safetensors", ".md"))} == {
        f"satlib_models/{name}"
        for name in (
            "README.md",
            *(f"flickr8k-{kind}.safetensors" for kind in ("hard-reward", "lite0-boxes", "lite0-soft")),
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
    assert folder["License-Expression"] == "MIT AND CC0-1.0 AND LicenseRef-Public-Domain"
    assert {*folder.get_all("License-File")} == {"REUSE.toml", *(f"LICENSES/{name}.txt" for name in FREE)}
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
        "flickr8k-hard-reward.safetensors": NON_COMMERCIAL,
        "scenes-soft.safetensors": "MIT",
        "scenes-hard.safetensors": "MIT",
    }
    photographs = {licence(path.relative_to(ROOT).as_posix()) for path in (ROOT / "satcourse/photographs").iterdir()}
    assert photographs == {"CC0-1.0", "LicenseRef-Public-Domain"}
    assert {licence(name) for name in ("satlib/model/decoder.py", "notebooks/00_look.ipynb", "README.md")} == {"MIT"}
    assert (ROOT / "LICENSES/MIT.txt").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert {path.stem for path in (ROOT / "LICENSES").iterdir()} == {*FREE, "Apache-2.0", NON_COMMERCIAL}


class TestLinks:
    TEXT = "[guide](docs/a.md#b) ![shape](docs/a.png) [web](https://x.org) [here](#here) [next](notebooks/n.ipynb) `[c](d)`"

    def test_lead_to_the_address_at_the_version_s_tag(self):
        text = without_outside_links(self.TEXT, "README.md", ["notebooks/n.ipynb"], "https://h.org/o/r/", "1.2")
        assert text == (
            "[guide](https://h.org/o/r/blob/v1.2/docs/a.md#b) ![shape](https://h.org/o/r/raw/v1.2/docs/a.png) "
            "[web](https://x.org) [here](#here) [next](notebooks/n.ipynb) `[c](d)`"
        )

    def test_become_text_where_nobody_knows_the_address(self):
        text = without_outside_links(self.TEXT, "README.md", ["notebooks/n.ipynb"], None, "1.2")
        assert text == "guide  [web](https://x.org) [here](#here) [next](notebooks/n.ipynb) `[c](d)`"


class TestCourse:
    def test_is_whole_and_every_link_leads_somewhere(self, tmp_path):
        done = write_course(tmp_path / "my course")
        assert done == {"written": course_files(ROOT)}
        assert len([name for name in done["written"] if re.match(r"notebooks/0\d_\w+\.ipynb", name)]) == 10
        for name in done["written"]:
            path = tmp_path / "my course" / name
            if path.suffix == ".ipynb":
                cells, ours = (
                    json.loads((root / name).read_text(encoding="utf-8"))["cells"] for root in (path.parents[1], ROOT)
                )
                runs, our_runs = ([cell for cell in each if cell["cell_type"] == "code"] for each in (cells, ours))
                assert runs == our_runs
                text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
            elif path.suffix == ".md":
                text = path.read_text(encoding="utf-8")
            else:
                continue
            for target in links_that_fail(text):
                assert (path.parent / target.partition("#")[0]).exists(), f"{name}: {target}"

    def test_never_overwrites_a_file(self, tmp_path):
        write_course(tmp_path)
        mine = tmp_path / "exercises/conftest.py"
        mine.write_text("# mine")
        (tmp_path / "notes.txt").write_text("my notes")
        (tmp_path / "notebooks/INDEX.md").unlink()
        done = write_course(tmp_path)
        assert done.pop("the same already")
        assert done == {
            "changed, and left as it is": ["exercises/conftest.py"],
            "written": ["notebooks/INDEX.md"],
        }
        assert mine.read_text() == "# mine"
        assert (tmp_path / "notes.txt").read_text() == "my notes"

    def test_refuses_a_folder_in_place_of_a_file(self, tmp_path):
        (tmp_path / "notebooks/00_look.ipynb").mkdir(parents=True)
        with pytest.raises(SatlibError, match="is a folder, where the course has a file"):
            write_course(tmp_path)


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
