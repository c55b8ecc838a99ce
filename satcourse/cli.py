"""Commands of the course: `satlib check` and `demo`, which pyproject.toml adds to satlib's."""

import argparse
from pathlib import Path

from satlib.errors import SatlibError


def add_check(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib check`."""
    parser.add_argument(
        "files", type=Path, nargs="*", default=[Path("exercises")], help="notebooks or folders; by default exercises/"
    )


def check(options: argparse.Namespace) -> int:
    """Run exercise notebooks and report which exercises are done, blank, wrong or missing."""
    try:
        from satcourse.exercises import grading
    except ModuleNotFoundError as error:
        raise SatlibError(f"satlib check needs {error.name}; run: pip install 'satlib[course]'") from error
    return grading.main(options.files)


def add_demo(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib demo`."""
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for all results")


def demo(options: argparse.Namespace) -> int:
    """Train on drawn scenes, evaluate, and caption photographs, in minutes on a CPU."""
    from satcourse import demo

    demo.run(options.out)
    return 0
