"""Install what would be released into fresh environments, and use it there from an empty folder. `python tools/release_check.py`

Without arguments it builds a wheel and a source archive, and tries the wheel with each Python from 3.10 to 3.13 that it finds, with the lowest
and with the newest versions that pyproject.toml allows. It needs a network (package registries) and some 10 GB of disk for a while.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import Path as ZipPath

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
UV = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
SHOWN = ("torch", "numpy", "pillow", "matplotlib", "timm", "msgspec", "jupyterlab", "nbval")
PHOTO = "import shutil, matplotlib.cbook as c; shutil.copy(c.get_sample_data('grace_hopper.jpg', asfileobj=False), 'photo.jpg')"
# What somebody does in the folder, in this order; the environment's programs are on the PATH.
COMMANDS = (
    "satlib --version",
    "satlib info",
    f'python -c "{PHOTO}"',
    "satlib caption photo.jpg",
    "satlib train scenes-soft --set data.train_images=200 --set training.epochs=1",
    "satlib evaluate runs/scenes-soft --split dev",
    "satlib table",
    "satlib course course",
    "pytest -q -p no:cacheprovider --nbval-lax --nbval-current-env course/notebooks/00_look.ipynb",
    "satlib check course/exercises/01_attention_before_images.ipynb --only 1.1",
)
BLANK = COMMANDS[-1]  # nobody has done the exercise: status 1


def build(folder: Path) -> Path:
    """Build both distributions into `folder`; give the wheel, which is made from the source archive."""
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True, stdout=subprocess.DEVNULL
    )
    return next(folder.glob("*.whl"))


def metadata_of(wheel: Path) -> Message:
    """A wheel's metadata; the payload is the long description."""
    info = next(entry for entry in ZipPath(wheel).iterdir() if entry.name.endswith(".dist-info"))
    return message_from_string((info / "METADATA").read_text(encoding="utf-8"))


def requirements(metadata: Message) -> list[str]:
    """What the package and the course require, as lines for an installer; to it, they are then direct requirements."""
    lines = [re.sub(r"(;| and) extra == 'course'$", "", line) for line in metadata.get_all("Requires-Dist", [])]
    return [line for line in lines if "extra ==" not in line]


def links_that_fail(text: str) -> list[str]:
    """Relative links and pictures of a page in Markdown, which lead nowhere outside the repository."""
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", text, flags=re.M | re.S)
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target and target[0] != "#"]


def attempt(wheel: Path, python: str, resolution: str) -> tuple[str, float]:
    """Install the wheel with the course into a new environment and use it; give the versions and the seconds.

    Raises:
        RuntimeError: a command did not end as it should; its output is in the message.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as parent:
        place = Path(parent)
        empty = place / "empty"
        empty.mkdir()
        programs = place / "env" / ("Scripts" if os.name == "nt" else "bin")
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SATLIB_DATA")}
        environment |= {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "2",
            "VIRTUAL_ENV": str(place / "env"),
        }
        say(
            f"uv venv --python {python} env",
            [UV, "venv", "--quiet", "--python", python, str(place / "env")],
            environment,
            place,
        )
        what = [f"satlib[course] @ {wheel.resolve().as_uri()}", *requirements(metadata_of(wheel))]
        install = [UV, "pip", "install", "--quiet", "--resolution", RESOLUTIONS[resolution], *what]
        say(
            f"uv pip install --resolution {RESOLUTIONS[resolution]} 'satlib[course] @ {wheel.name}' ...",
            install,
            environment,
            place,
        )
        listed = subprocess.run(
            [UV, "pip", "freeze"], env=environment, cwd=place, capture_output=True, text=True, check=True
        )
        versions = dict(line.split("==") for line in listed.stdout.split() if "==" in line)
        for line in COMMANDS:
            say(line, ["bash", "-c", line], environment, empty, status=int(line == BLANK))
    return ", ".join(f"{name} {versions[name]}" for name in SHOWN), time.monotonic() - began


def interpreter(python: str) -> str | None:
    """The path of an interpreter, by its version, its name or its path; None if it is not on this machine."""
    found = subprocess.run([UV, "python", "find", "--no-python-downloads", python], capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else None


def say(line: str, command: list[str], environment: dict[str, str], folder: Path, status: int = 0) -> None:
    """Print a command and how long it took.

    Raises:
        RuntimeError: it ended with another status.
    """
    print(f"  $ {line}", end="", flush=True)
    began = time.monotonic()
    ended = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    print(f"   {time.monotonic() - began:.0f} s", flush=True)
    if ended.returncode != status:
        raise RuntimeError(
            f"{line} ended with status {ended.returncode}, not {status}:\n{ended.stdout}\n{ended.stderr}"
        )


def main() -> int:
    """Try everything; 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path, nargs="?", help="by default it is built")
    parser.add_argument("--pythons", nargs="*", default=PYTHONS, help="versions or paths of interpreters")
    parser.add_argument("--resolutions", nargs="*", default=tuple(RESOLUTIONS), choices=RESOLUTIONS)
    options = parser.parse_args()
    failed, rows = 0, []
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel or build(Path(folder))
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        for target in links_that_fail(str(metadata_of(wheel).get_payload())):
            failed = 1
            print(f"the long description links to {target}, which is nowhere outside the repository")
        for python in options.pythons:
            if not (path := interpreter(python)):
                print(f"Python {python}: not on this machine")
                rows.append(f"| {python} | - | not on this machine, not tried | |")
                continue
            for resolution in options.resolutions:
                print(f"Python {python}, {resolution} versions:")
                try:
                    versions, seconds = attempt(wheel, path, resolution)
                    rows.append(f"| {python} | {resolution} | {versions} | {seconds:.0f} s |")
                except RuntimeError as error:
                    failed = 1
                    print(error)
                    rows.append(f"| {python} | {resolution} | failed: {str(error).splitlines()[0]} | |")
    print("\n| Python | versions | of which | all commands |\n| --- | --- | --- | ---: |", *rows, sep="\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
