"""Commands of the course, which pyproject.toml adds to satlib's: `satlib check` and `demo`."""

import argparse
from pathlib import Path

from satlib.cli import command, option
from satlib.errors import SatlibError


@command(
    option(
        "files", type=Path, nargs="*", default=[Path("exercises")], help="notebooks or folders; by default exercises/"
    )
)
def check(options: argparse.Namespace) -> int:
    """Run exercise notebooks and report which exercises are done, blank, wrong or missing."""
    try:
        from satcourse.exercises import grading
    except ModuleNotFoundError as error:
        raise SatlibError(f"satlib check needs {error.name}; run: pip install 'satlib[course]'") from error
    return grading.main(options.files)


@command(option("--out", type=Path, default=Path("demo"), help="folder for all results"))
def demo(options: argparse.Namespace) -> None:
    """Train on drawn scenes, evaluate, and caption photographs, in minutes on a CPU."""
    from satcourse import demo

    demo.run(options.out)
