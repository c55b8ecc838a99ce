"""An autograder to upload to Gradescope: `python tools/autograder.py autograder.zip --only 4.1,4.2`.

The archive has the two scripts of tools/gradescope, what `satlib check` is told besides, and the wheels of satlib and its models,
which are built unless `--wheel` names others, such as a release's. Gradescope needs nothing else.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from satcourse.exercises.grading import exercises
from satcourse.exercises.task import whole_seed
from satlib.errors import SatlibError

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "tools" / "gradescope"


def pack(path: Path, wheels: Sequence[Path], options: Sequence[str]) -> None:
    """Write the archive.

    Args:
        path: of the archive.
        wheels: satlib's, which has the course, and its models'.
        options: what `satlib check` is told besides the notebooks.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for script in sorted(SCRIPTS.iterdir()):
            archive.write(script, script.name)
        archive.writestr("options", " ".join(options) + "\n")
        for wheel in wheels:
            archive.write(wheel, wheel.name)


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, metavar="FILE.zip")
    parser.add_argument("--only", default="", metavar="ID,...", help="the exercises that count, as for satlib check")
    parser.add_argument("--seed", metavar="N", help="the class seed of the checks, whatever the notebooks say")
    parser.add_argument("--wheel", type=Path, action="append", metavar="FILE.whl", help="may be given several times")
    arguments = parser.parse_args()
    options = [f"--only={arguments.only}"] if arguments.only else []
    try:
        exercises(arguments.only.split(",") if arguments.only else [])  # refuses what is no exercise
        if arguments.seed is not None:
            options.append(f"--seed={whole_seed(arguments.seed)}")
    except SatlibError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory() as folder:
        wheels = arguments.wheel
        if not wheels:
            for package in (ROOT, ROOT / "models"):  # satlib, and the captioners for photographs
                subprocess.run([sys.executable, "-m", "build", "--wheel", "--outdir", folder, str(package)], check=True)
            wheels = sorted(Path(folder).glob("*.whl"))
        pack(arguments.archive, wheels, options)
    print(f"{arguments.archive}: {arguments.archive.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
