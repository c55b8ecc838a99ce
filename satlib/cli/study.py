"""Commands that explain, check, compare and measure: `satlib recipe`, `estimators`, `encoders`, `course`, `check`, `bench`, `info`, `demo`."""

import argparse
import os
import shlex
from pathlib import Path

from satlib.cli.arguments import Commands, command, data_option, device_option, json_option, numbers, positive, printed
from satlib.errors import SatlibError
from satlib.files import progress

BENCHES = ("step", "growth", "epoch", "extraction", "beam", "loader", "memory")


def add_recipe(commands: Commands) -> None:
    """`satlib recipe`."""
    parser = command(commands, "recipe", recipe, "list the recipes, print one, or explain the options of recipes")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a recipe's name or the path of a .toml file; without it, all are listed",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="give each option's default, valid values and meaning, and mark the values of NAME that differ from the default",
    )
    parser.add_argument("--markdown", action="store_true", help="write Markdown")


def recipe(options: argparse.Namespace) -> int:
    """Print recipes or their options."""
    from satlib.cli import explain

    if options.explain:
        print(explain.explained(options.name, options.markdown))
    else:
        print(explain.whole(options.name, options.markdown) if options.name else explain.listing(options.markdown))
    return 0


def add_estimators(commands: Commands) -> None:
    """`satlib estimators`."""
    parser = command(
        commands,
        "estimators",
        estimators,
        "compare hard attention's gradient estimators with the bound's exact gradient",
    )
    parser.add_argument("--draws", type=positive, default=400, help="independent estimates per estimator")


def estimators(options: argparse.Namespace) -> int:
    """Print bias and noise of the estimators."""
    from satcourse.lessons import estimators

    print(estimators.report(options.draws))
    return 0


def add_encoders(commands: Commands) -> None:
    """`satlib encoders`."""
    parser = command(
        commands,
        "encoders",
        encoders,
        "train and score the same decoder on each encoder whose weights are installed or can be downloaded, and print the table",
    )
    parser.add_argument(
        "recipes",
        nargs="*",
        metavar="RECIPE",
        help="recipes with frozen encoders; by default Flickr8k's, one per encoder",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a value of all recipes; may be repeated",
    )
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder for the runs, one per recipe")
    data_option(parser)
    device_option(parser)


def encoders(options: argparse.Namespace) -> int:
    """Train, score and tabulate encoders."""
    from satlib.data import datasets
    from satlib.evaluation import table
    from satlib.model import device
    from satlib.training import encoder_study

    names = options.recipes or encoder_study.RECIPES
    root, place = datasets.data_root(options.data), device.choose(options.device)
    written, left_out = encoder_study.study(names, options.set, root, options.runs, place)
    print(table.render(table.rows(written)))
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    return 0


def _json_file(text: str) -> Path:
    """The path of a .json file, so that a notebook that follows --json is not taken for one and overwritten."""
    if text != "-" and not text.endswith(".json"):
        raise argparse.ArgumentTypeError(
            f"must be a file with the ending .json, not {text}; put --json behind the notebooks"
        )
    return Path(text)


def add_course(commands: Commands) -> None:
    """`satlib course`."""
    parser = command(commands, "course", course, "write the course's notebooks and exercises into a folder")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="what you have changed there stays as it is")


def course(options: argparse.Namespace) -> int:
    """Write the course, and say how to begin."""
    from satcourse.course_folder import write_course

    for what, files in write_course(options.folder).items():
        print(f"{what}: {len(files)} {'file' if len(files) == 1 else 'files'}")
        if what.startswith("changed"):
            print(*(f"  {options.folder / name}" for name in files), sep="\n")
    paths = [options.folder, options.folder / "notebooks" / "00_look.ipynb", options.folder / "exercises"]
    folder, first, exercises = (shlex.quote(str(path)) for path in paths)
    progress.say(f"Begin with: jupyter lab --notebook-dir={folder} {first}")
    progress.say(f"Are your exercises right? satlib check {exercises}")
    return 0


def add_check(commands: Commands) -> None:
    """`satlib check`."""
    parser = command(
        commands, "check", check, "run exercise notebooks and report which exercises are done, blank, wrong or missing"
    )
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
    parser.add_argument("--csv", type=Path, help="with --class: write the matrix to this file")
    parser.add_argument("--html", type=Path, help="with --class: write the matrix to this page")
    parser.add_argument(
        "--seed",
        metavar="N",
        help="vary the random inputs of the checks by this class seed, whatever the notebooks say",
    )
    parser.add_argument(
        "--only",
        metavar="ID,...",
        type=lambda text: text.split(","),
        help="the exercises that count, such as 4.1,4.2 for a shortened notebook; by default all of its chapter",
    )


def check(options: argparse.Namespace) -> int:
    """Grade exercise notebooks."""
    from satcourse.exercises import class_seed, classroom, grading
    from satcourse.exercises.task import CLASS_SEED

    if options.seed is not None:
        class_seed(options.seed)  # refuses what is no seed
        os.environ[CLASS_SEED] = options.seed  # for the notebooks' kernels
    if options.class_folder is not None:
        if options.files or options.only:
            raise SatlibError("--class takes a folder and no notebooks, and --due in place of --only")
        return classroom.main(
            options.class_folder, options.due, options.csv, options.html, options.json, options.processes
        )
    if options.due or options.csv or options.html:
        raise SatlibError("--due, --csv and --html need --class FOLDER, a folder with one folder for each learner")
    return grading.main(options.files, options.json, options.processes, options.only)


def add_bench(commands: Commands) -> None:
    """`satlib bench`."""
    parser = command(commands, "bench", bench, "measure speed, against a decoder as it is commonly written, and memory")
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help=f"{', '.join(BENCHES)}; by default step, extraction, beam and loader",
    )
    parser.add_argument("--dims", type=numbers, default=[512, 2048], metavar="D,...", help="dimensions of a place, D")
    parser.add_argument("--batches", type=numbers, default=[32, 64, 256], metavar="B,...", help="captions in a batch")
    parser.add_argument(
        "--contestants",
        default="baseline,plain,fast",
        help="of baseline, plain, checkpointed, fast, compiled; ratios are to the first",
    )
    parser.add_argument("--precisions", default="float32", help="of float32, bf16")
    parser.add_argument("--rounds", type=positive, default=5, help="measurements of each contestant, in turn")
    parser.add_argument("--images", type=positive, default=6000, help="images in the epoch; COCO has 82783")
    parser.add_argument("--places", type=positive, default=196, help="places in an image, L")
    parser.add_argument("--encoders", default="vgg19,efficientnet-lite0", help="the encoders of extraction")
    parser.add_argument("--out", type=Path, default=Path("bench.json"), help="file for the results; growth adds a plot")
    device_option(parser)


def bench(options: argparse.Namespace) -> int:
    """Measure speed and memory."""
    parts = options.parts or ["step", "extraction", "beam", "loader"]
    unknown = sorted(set(parts) - set(BENCHES))
    if unknown:
        raise SatlibError(f"bench has no part {unknown[0]!r}; choose among {', '.join(BENCHES)}")
    from benchmarks.bench.report import Bench

    Bench(options).run(parts)
    return 0


def add_info(commands: Commands) -> None:
    """`satlib info`."""
    json_option(command(commands, "info", info, "print versions, devices, and what is missing"))


def info(options: argparse.Namespace) -> int:
    """Print the report."""
    from satlib.cli import info

    if options.json:
        return printed(info.topics())
    print(info.report())
    return 0


def add_demo(commands: Commands) -> None:
    """`satlib demo`."""
    parser = command(
        commands, "demo", demo, "train on drawn scenes, evaluate, and caption photographs, in minutes on a CPU"
    )
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for all results")


def demo(options: argparse.Namespace) -> int:
    """Run the demo."""
    from satcourse import demo

    demo.run(options.out)
    return 0


COMMANDS = (
    add_recipe,
    add_estimators,
    add_encoders,
    add_course,
    add_check,
    add_bench,
    add_info,
    add_demo,
)
