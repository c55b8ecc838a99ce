"""Commands of the course, which pyproject.toml adds to satlib's: `satlib check` and `demo`."""

import argparse
from pathlib import Path

from satlib.cli import command, option
from satlib.errors import SatlibError

# A learner's own workbooks, and those of the course.
YOURS = Path("work/exercises")
COURSE = Path("exercises")


@command(
    option(
        "files",
        type=Path,
        nargs="*",
        help=f"notebooks or folders; by default {YOURS}, or else {COURSE}",
    )
)
def check(options: argparse.Namespace) -> int:
    """Run exercise notebooks and report which exercises are done, blank, wrong or missing."""
    # Here, since the other commands work without Jupyter.
    try:
        from satcourse.checks import grading
    except ModuleNotFoundError as error:
        raise SatlibError(
            f"satlib check needs {error.name}; run: pip install 'satlib[course]'"
        ) from error
    folder = YOURS if YOURS.is_dir() else COURSE
    return grading.main(options.files or [folder])


@command(
    option("--out", type=Path, default=Path("demo"), help="folder for all results"),
    option("--no-open", action="store_true", help="do not show the first picture in a browser"),
)
def demo(options: argparse.Namespace) -> None:
    """Move a model's attention, train one on drawn scenes, and caption photographs, in minutes on a CPU."""
    from satcourse import demo

    demo.run(options.out, show=not options.no_open)
