"""What would be released: the wheels with their files and licences, and links that work outside the repository."""

import fnmatch
import subprocess
import sys
import tomllib
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

from satlib import __version__

ROOT = Path(__file__).resolve().parent.parent
NON_COMMERCIAL = "LicenseRef-Flickr8k-Models"


def wheel(project, folder):
    """Build a wheel; its file names, and its metadata."""
    command = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--wheel",
        "--outdir",
        str(folder),
        str(project),
    ]
    subprocess.run(command, check=True, capture_output=True)
    archive = ZipFile(next(folder.glob(f"*-{__version__}-py3-none-any.whl")))
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return archive.namelist(), message_from_bytes(archive.read(metadata))


def test_satlib_is_mit_and_has_the_models_for_scenes_alone(tmp_path):
    names, metadata = wheel(ROOT, tmp_path)
    assert {Path(name).name for name in names if name.endswith(".safetensors")} == {
        "scenes-soft.safetensors",
        "scenes-hard.safetensors",
        "midnight.safetensors",
    }
    assert not [
        name for name in names if name.endswith((".png", ".jpg", ".ipynb")) or "tests" in name
    ]
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_payload().startswith("# ")


def test_the_models_for_photographs_are_a_wheel_with_terms_of_its_own(tmp_path):
    names, metadata = wheel(ROOT / "satlib-models", tmp_path)
    shipped = {path.name for path in (ROOT / "satlib-models/satlib_models").glob("*.safetensors")}
    assert {Path(name).name for name in names if name.endswith(".safetensors")} == shipped
    assert metadata["License-Expression"] == f"{NON_COMMERCIAL} AND Apache-2.0"
    assert sorted(metadata.get_all("License-File")) == [
        "LICENSES/Apache-2.0.txt",
        f"LICENSES/{NON_COMMERCIAL}.txt",
    ]


def licence(path):
    """A file's licence by REUSE.toml, in which the last table that fits counts."""
    tables = tomllib.loads((ROOT / "REUSE.toml").read_text(encoding="utf-8"))["annotations"]
    paths = [
        (table, [table["path"]] if isinstance(table["path"], str) else table["path"])
        for table in tables
    ]
    *_, last = (
        table
        for table, patterns in paths
        if any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
    )
    return last["SPDX-License-Identifier"]


def test_each_file_has_its_licence():
    for path in (ROOT / "satlib-models/satlib_models").glob("*.safetensors"):
        assert licence(path.relative_to(ROOT).as_posix()) == f"{NON_COMMERCIAL} AND Apache-2.0"
    photographs = {
        licence(path.relative_to(ROOT).as_posix())
        for path in (ROOT / "notebooks/photographs").iterdir()
    }
    assert photographs == {"CC-BY-2.0", "CC-BY-SA-2.0", "LicenseRef-No-Known-Copyright"}
    assert licence("satlib/shipped/scenes-soft.safetensors") == licence("README.md") == "MIT"
    assert licence("tests/official/decoder.npz") == "BSD-3-Clause"
