"""What would be released: wheels with their files and licences, links that work anywhere."""

import fnmatch
import re
import subprocess
import sys
import tomllib
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest
from tools_path import hatch_hooks

from satlib import __version__

ROOT = Path(__file__).resolve().parent.parent
NON_COMMERCIAL = "LicenseRef-Flickr8k-Models"


def wheel(project, folder):
    """Build a wheel; its file names, and its metadata."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel"]
    command += ["--outdir", str(folder), str(project)]
    subprocess.run(command, check=True, capture_output=True)

    archive = ZipFile(next(folder.glob(f"*-{__version__}-py3-none-any.whl")))
    names = archive.namelist()
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    return names, message_from_bytes(archive.read(metadata))


@pytest.mark.parametrize("address", [None, "https://example.org/{}/v1/"])
def test_the_long_description_leads_out_of_the_repository(address):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    text = hatch_hooks.with_outside_links(readme, address)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [link for link in links if "://" not in link and not link.startswith("#")] == []
    assert "srcset" not in text
    # A picture that is a link.
    assert ("[![A drawn" in text) == (address is not None)


def models(names):
    """The file names of the models among some paths."""
    return {Path(name).name for name in names if name.endswith(".safetensors")}


def test_satlib_is_mit_and_has_the_models_for_scenes_alone(tmp_path):
    names, metadata = wheel(ROOT, tmp_path)
    # Scenes are drawn by satlib itself: nobody else's licence holds for what was learnt from them.
    assert models(names) == {
        "scenes-soft.safetensors",
        "scenes-hard.safetensors",
        "midnight.safetensors",
    }
    for name in names:
        assert not name.endswith((".png", ".jpg", ".ipynb"))
        assert "tests" not in name

    assert metadata["License-Expression"] == "MIT"
    # The long description is the README.
    assert metadata.get_payload().startswith("# ")


def test_the_models_for_photographs_are_a_wheel_with_terms_of_its_own(tmp_path):
    names, metadata = wheel(ROOT / "satlib-models", tmp_path)
    folder = ROOT / "satlib-models/satlib_models"
    assert models(names) == {path.name for path in folder.glob("*.safetensors")}

    # Their data are for research only; their encoder began with weights under Apache-2.0.
    assert metadata["License-Expression"] == f"{NON_COMMERCIAL} AND Apache-2.0"
    assert sorted(metadata.get_all("License-File")) == [
        "LICENSES/Apache-2.0.txt",
        f"LICENSES/{NON_COMMERCIAL}.txt",
    ]


def licence(path):
    """A file's licence by REUSE.toml."""
    text = (ROOT / "REUSE.toml").read_text(encoding="utf-8")
    found = None
    # The last table that fits counts.
    for table in tomllib.loads(text)["annotations"]:
        patterns = table["path"]
        if isinstance(patterns, str):
            patterns = [patterns]
        if any(fnmatch.fnmatch(path, pattern) for pattern in patterns):
            found = table["SPDX-License-Identifier"]
    return found


def licences(files):
    return {licence(path.relative_to(ROOT).as_posix()) for path in files}


def test_each_file_has_its_licence():
    of_models = licences((ROOT / "satlib-models/satlib_models").glob("*.safetensors"))
    assert of_models == {f"{NON_COMMERCIAL} AND Apache-2.0"}
    photographs = licences((ROOT / "notebooks/photographs").iterdir())
    assert photographs == {"CC-BY-2.0", "CC-BY-SA-2.0", "LicenseRef-No-Known-Copyright"}

    # The narrower tables do not take what is satlib's own.
    assert licence("satlib/shipped/scenes-soft.safetensors") == "MIT"
    assert licence("README.md") == "MIT"
    assert licence("tests/official/decoder.npz") == "BSD-3-Clause"
