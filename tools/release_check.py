"""Install a wheel with its course into fresh environments and use it from an empty folder: `python tools/release_check.py dist/*.whl`

It does so with the lowest and with the newest versions that pyproject.toml allows, with Python 3.10 to 3.13 by `--python 3.10`. It needs uv,
a network (package registries) and some 10 GB of disk for a while. The exit status is 1 if a command does not end as it should.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import Path as ZipPath

UV = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
PHOTO = "import shutil, matplotlib.cbook as c; shutil.copy(c.get_sample_data('grace_hopper.jpg', asfileobj=False), 'photo.jpg')"
# What somebody does in the folder, in this order, and the exit status: nobody has done the exercise of the last line.
COMMANDS = {
    "satlib --version": 0,
    "satlib info": 0,
    f'python -c "{PHOTO}"': 0,
    "satlib caption photo.jpg": 0,
    "satlib train scenes-soft --set data.train_images=200 --set training.epochs=1": 0,
    "satlib evaluate runs/scenes-soft --split dev": 0,
    "satlib table": 0,
    "satlib course course": 0,
    "pytest -q -p no:cacheprovider --nbval-lax --nbval-current-env course/notebooks/00_look.ipynb": 0,
    "satlib check course/exercises/03_captions.ipynb --only 3.1": 1,
}


def metadata_of(wheel: Path) -> Message:
    """A wheel's metadata; the payload is the long description."""
    info = next(entry for entry in ZipPath(wheel).iterdir() if entry.name.endswith(".dist-info"))
    return message_from_string((info / "METADATA").read_text(encoding="utf-8"))


def requirements(wheel: Path) -> list[str]:
    """What package and course require, as lines for an installer; to it, they are then direct requirements."""
    lines = metadata_of(wheel).get_all("Requires-Dist", [])
    lines = [re.sub(r"(;| and) extra == 'course'$", "", line) for line in lines]
    return [line for line in lines if "extra ==" not in line]


def attempt(wheel: Path, python: str, resolution: str, place: Path) -> bool:
    """Install the wheel in the empty folder `place` and run the commands; whether each ended as it should."""
    programs = place / "env" / ("Scripts" if os.name == "nt" else "bin")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SATLIB_DATA")}
    environment |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(place / "env")}
    package = f"satlib[course] @ {wheel.resolve().as_uri()}"
    install = [UV, "pip", "install", "--quiet", "--resolution", resolution, package]
    steps: list[tuple[list[str], int]] = [([UV, "venv", "--quiet", "--python", python, "env"], 0)]
    steps += [([*install, *requirements(wheel)], 0), *((["bash", "-c", line], code) for line, code in COMMANDS.items())]
    for command, status in steps:
        print("$", command[-1] if command[0] == "bash" else " ".join(command[:6]), flush=True)
        ended = subprocess.run(
            command, env=environment, cwd=place, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if ended.returncode != status:
            print(f"ended with status {ended.returncode}, not {status}:\n{ended.stdout}\n{ended.stderr}")
            return False
    return True


def main() -> int:
    """Read the arguments and try both sets of versions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="a version, a name or a path (this Python)")
    options = parser.parse_args()
    for resolution in ("lowest-direct", "highest"):
        print(f"{options.python}, {resolution} versions:")
        with tempfile.TemporaryDirectory() as place:
            if not attempt(options.wheel, options.python, resolution, Path(place)):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
