"""Commands of the course: `satlib check` and `demo`, which pyproject.toml adds to satlib's."""

import argparse
from pathlib import Path

from satlib.cli.arguments import positive


def _json_file(text: str) -> Path:
    """The path of a .json file, so that a notebook that follows --json is not taken for one and overwritten."""
    if text != "-" and not text.endswith(".json"):
        raise argparse.ArgumentTypeError(
            f"must be a file with the ending .json, not {text}; put --json behind the notebooks"
        )
    return Path(text)


def add_check(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib check`."""
    parser.add_argument("files", type=Path, nargs="*", help="notebooks or folders; by default exercises/")
    parser.add_argument(
        "--json",
        type=_json_file,
        nargs="?",
        const=Path("-"),
        metavar="FILE.json",
        help="print the results as JSON, or write them to a file as well (docs/scripts.md describes their form)",
    )
    parser.add_argument("--processes", type=positive, default=2, help="notebooks that run at a time")
    parser.add_argument(
        "--only",
        metavar="ID,...",
        type=lambda text: text.split(","),
        default=[],
        help="the exercises that count, such as 4.1,4.2 for a shortened notebook, or 4 for all of notebook 04; by default "
        "all of a notebook's chapter",
    )


def check(options: argparse.Namespace) -> int:
    """Run exercise notebooks and report which exercises are done, blank, wrong or missing."""
    from satcourse.exercises import grading

    return grading.main(options.files, options.json, options.processes, options.only)


def add_demo(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib demo`."""
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for all results")


def demo(options: argparse.Namespace) -> int:
    """Train on drawn scenes, evaluate, and caption photographs, in minutes on a CPU."""
    from satcourse import demo

    demo.run(options.out)
    return 0
