"""Commands of the course, which pyproject.toml adds to satlib's: `satlib check` and `demo`."""

import argparse
from pathlib import Path

from satlib.cli import command, option, positive


def _json_file(text: str) -> Path:
    """The path of a .json file, so that a notebook that follows --json is not overwritten."""
    if text != "-" and not text.endswith(".json"):
        raise argparse.ArgumentTypeError(
            f"must be a file with the ending .json, not {text}; put --json behind the notebooks"
        )
    return Path(text)


@command(
    option("files", type=Path, nargs="*", help="notebooks or folders; by default exercises/"),
    option(
        "--json",
        type=_json_file,
        nargs="?",
        const=Path("-"),
        metavar="FILE.json",
        help="print the results as JSON, or write them",
    ),
    option("--processes", type=positive, default=2, help="notebooks that run at a time"),
    option(
        "--only",
        metavar="ID,...",
        type=lambda text: text.split(","),
        default=[],
        help="the exercises that count, such as 4.1,4.2, or 4 for all of notebook 04; by default all of a notebook's chapter",
    ),
)
def check(options: argparse.Namespace) -> int:
    """Run exercise notebooks and report which exercises are done, blank, wrong or missing."""
    from satcourse.exercises import grading

    return grading.main(options.files, options.json, options.processes, options.only)


@command(option("--out", type=Path, default=Path("demo"), help="folder for all results"))
def demo(options: argparse.Namespace) -> None:
    """Train on drawn scenes, evaluate, and caption photographs, in minutes on a CPU."""
    from satcourse import demo

    demo.run(options.out)
