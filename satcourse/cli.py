"""Commands of the course: `satlib check` and `demo`, which pyproject.toml adds to satlib's."""

import argparse
from pathlib import Path

from satlib.cli.arguments import positive
from satlib.errors import SatlibError


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
        "--class", dest="class_folder", type=Path, metavar="FOLDER", help="check a class: a folder with one per learner"
    )
    parser.add_argument(
        "--due",
        metavar="ID,...",
        type=lambda text: text.split(","),
        default=[],
        help="with --class: what must be done, such as 4.1,4.2 or 4 for all of notebook 04; by default everything",
    )
    parser.add_argument(
        "--seed",
        metavar="N",
        help="vary the random inputs of the checks by this class seed, whatever the notebooks say",
    )
    parser.add_argument(
        "--only",
        metavar="ID,...",
        type=lambda text: text.split(","),
        default=[],
        help="the exercises that count, such as 4.1,4.2 for a shortened notebook, or 4 for all of notebook 04; by default "
        "all of a notebook's chapter",
    )
    parser.add_argument(
        "--learner",
        nargs="?",
        const="",
        metavar="NAME",
        help="vary the random inputs of the checks by this name, as tools/exercises.py class --learner does; with --class and "
        "without a name, by that of each folder",
    )


def check(options: argparse.Namespace) -> int:
    """Run exercise notebooks and report which exercises are done, blank, wrong or missing."""
    from satcourse.exercises import grading
    from satcourse.exercises.task import learner_seed, whole_seed

    seed = None if options.seed is None else whole_seed(options.seed)
    if options.class_folder is not None:
        return _check_class(options, seed)
    for option, given in (
        ("--due", options.due),
        ("--learner without a name", options.learner == ""),
    ):
        if given:
            raise SatlibError(f"{option} needs --class FOLDER, a folder with one folder for each learner")
    if options.learner:
        seed = learner_seed(options.learner, seed or 0)
    return grading.main(options.files, options.json, options.processes, options.only, seed)


def _check_class(options: argparse.Namespace, seed: int | None) -> int:
    """`satlib check --class FOLDER`."""
    from satcourse.exercises import grading

    if options.files or options.only or options.learner:
        raise SatlibError(
            "--class takes a folder and no notebooks, --due in place of --only, and --learner without a name"
        )
    by_name = options.learner is not None
    return grading.main_class(options.class_folder, options.due, options.json, options.processes, seed, by_name)


def add_demo(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib demo`."""
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for all results")


def demo(options: argparse.Namespace) -> int:
    """Train on drawn scenes, evaluate, and caption photographs, in minutes on a CPU."""
    from satcourse import demo

    demo.run(options.out)
    return 0
