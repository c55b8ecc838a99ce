"""Install built wheels into a fresh environment and use them: `python tools/release_check.py dist [--resolution lowest-direct]`

Without --resolution, it tries the lowest and the newest versions that pyproject.toml allows. It needs uv, a package registry and
some 10 GB of disk. The exit status is 1 if a command does not end as it should.
"""

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLUTIONS = ("lowest-direct", "highest")
# What somebody does in an empty folder with two notebooks of the course, and the exit status. Nobody has done the exercises.
COMMANDS = {
    "satlib --version": 0,
    "satlib info": 0,
    "satlib caption camera.png": 0,
    "satlib train scenes-soft --set data.train_images=200 --set training.epochs=1": 0,
    "satlib evaluate runs/scenes-soft --split dev": 0,
    "satlib table": 0,
    "jupyter execute 01_attention_before_images.ipynb": 0,
    "satlib check 03_captions.ipynb": 1,
}


def attempt(wheels: list[str], resolution: str, folder: Path) -> bool:
    """Install the wheels in an empty folder and run the commands; whether each ended as it should."""
    for path in ("notebooks/photographs/camera.png", "notebooks/01_attention_before_images.ipynb"):
        shutil.copy(ROOT / path, folder)
    shutil.copy(ROOT / "exercises/03_captions.ipynb", folder)
    programs = folder / "env" / ("Scripts" if os.name == "nt" else "bin")
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"VIRTUAL_ENV": str(folder / "env"), "PYTHONPATH": "", "MPLBACKEND": "agg"}
    project = shlex.quote((ROOT / "pyproject.toml").as_posix())
    steps = {
        f"uv venv --quiet --python {shlex.quote(Path(sys.executable).as_posix())} env": 0,
        f"uv pip compile --quiet {project} --extra lab --resolution {resolution} --output-file versions.txt": 0,
        f"uv pip install --quiet -r versions.txt {shlex.join(wheels)}": 0,
    } | COMMANDS
    for command, status in steps.items():
        print("$", command, flush=True)
        first, *rest = shlex.split(command)
        program = shutil.which(first, path=environment["PATH"]) or first
        ended = subprocess.run([program, *rest], env=environment, cwd=folder, stdin=subprocess.DEVNULL)
        if ended.returncode != status:
            print(f"ended with status {ended.returncode}, not {status}")
            return False
    return True


def main() -> int:
    """Read the arguments and try the versions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheels", type=Path, help="the folder with the wheels of satlib and satlib-models")
    parser.add_argument("--resolution", choices=RESOLUTIONS, action="append", help="try these versions alone")
    options = parser.parse_args()
    wheels = [path.resolve().as_posix() for path in sorted(options.wheels.glob("*.whl"))]
    for resolution in options.resolution or RESOLUTIONS:
        print(f"{resolution} versions:")
        with tempfile.TemporaryDirectory() as folder:
            if not attempt(wheels, resolution, Path(folder)):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
