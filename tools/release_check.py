"""Install wheels with the course into fresh environments and use them from an empty folder: `python tools/release_check.py dist`

It does so with the lowest and with the newest versions that pyproject.toml allows; `--python 3.12` chooses the Python. It needs uv,
a network (package registries) and some 10 GB of disk for a while. The exit status is 1 if a command does not end as it should.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from pathlib import Path
from zipfile import Path as ZipPath

from packaging.requirements import Requirement

UV = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
RESOLUTIONS = ("lowest-direct", "highest")
PHOTO = "import shutil, matplotlib.cbook as c; shutil.copy(c.get_sample_data('grace_hopper.jpg', asfileobj=False), 'photo.jpg')"
# What somebody does in the folder, in this order, and the exit status. First without the models for photographs, ...
WITHOUT_MODELS = {
    "satlib --version": 0,
    "satlib info": 0,
    f'python -c "{PHOTO}"': 0,
    "satlib caption photo.jpg": 2,
}
# ... then with them.
WITH_MODELS = {
    "satlib caption photo.jpg": 0,
    "satlib train scenes-soft --set data.train_images=200 --set training.epochs=1": 0,
    "satlib evaluate runs/scenes-soft --split dev": 0,
    "satlib table": 0,
}


def metadata_of(wheel: Path) -> Message:
    """A wheel's metadata; the payload is the long description."""
    info = next(entry for entry in ZipPath(wheel).iterdir() if entry.name.endswith(".dist-info"))
    return message_from_string((info / "METADATA").read_text(encoding="utf-8"))


def requirements(wheel: Path, extra: str = "lab") -> list[str]:
    """What the package and an extra of it require, as lines for an installer; to it, they are then direct requirements."""
    found = [Requirement(line) for line in metadata_of(wheel).get_all("Requires-Dist", [])]
    return sorted({line for chosen in ("", extra) for line in _required(found, chosen)})


def _required(found: list[Requirement], extra: str) -> Iterator[str]:
    """The requirements of an extra ("": of the package alone), with those of the package's own extras that it names."""
    for requirement in found:
        marker = str(requirement.marker or "")
        if (f'extra == "{extra}"' in marker) if extra else "extra ==" not in marker:
            if requirement.name == "satlib":
                for other in requirement.extras:
                    yield from _required(found, other)
            else:
                rest = marker.replace(f'extra == "{extra}"', "").removesuffix(" and ")
                yield f"{requirement.name}{requirement.specifier}" + (f"; {rest}" if rest else "")


def attempt(wheels: Path, python: str, resolution: str, place: Path) -> bool:
    """Install the wheels in the empty folder `place` and run the commands; whether each ended as it should."""
    (satlib,), (models,) = wheels.resolve().glob("satlib-*.whl"), wheels.resolve().glob("satlib_models-*.whl")
    programs = place / "env" / ("Scripts" if os.name == "nt" else "bin")
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SATLIB_DATA")}
    environment |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(place / "env")}
    install = [UV, "pip", "install", "--quiet", "--resolution", resolution]
    package = [f"satlib[lab] @ {satlib.as_uri()}", *requirements(satlib)]
    steps: list[tuple[list[str], int]] = [([UV, "venv", "--quiet", "--python", python, "env"], 0)]
    steps += [([*install, *package], 0), *((shlex.split(line), code) for line, code in WITHOUT_MODELS.items())]
    steps += [([*install, str(models)], 0), *((shlex.split(line), code) for line, code in WITH_MODELS.items())]
    for command, status in steps:
        print("$", shlex.join(command[:6]), flush=True)
        program = shutil.which(command[0], path=environment["PATH"]) or command[0]
        ended = subprocess.run(
            [program, *command[1:]],
            env=environment,
            cwd=place,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            stdin=subprocess.DEVNULL,
        )
        if ended.returncode != status:
            print(f"ended with status {ended.returncode}, not {status}:\n{ended.stdout}\n{ended.stderr}")
            return False
    return True


def main() -> int:
    """Read the arguments and try both sets of versions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", type=Path, help="the folder with the wheels of satlib and satlib-models")
    parser.add_argument("--python", default=sys.executable, help="a version, a name or a path (this Python)")
    parser.add_argument("--resolution", choices=RESOLUTIONS, action="append", help="try these versions alone")
    options = parser.parse_args()
    for resolution in options.resolution or RESOLUTIONS:
        print(f"{options.python}, {resolution} versions:")
        with tempfile.TemporaryDirectory() as place:
            if not attempt(options.wheels, options.python, resolution, Path(place)):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
