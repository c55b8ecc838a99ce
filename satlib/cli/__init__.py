"""The command line: `satlib --help`.

A command is a function below its options; its docstring is its help. It imports what it needs when it runs:
`satlib --help` answers at once. Other packages add commands in a module of the entry-point group "satlib.commands".
"""

import argparse
import csv
import importlib.metadata
import io
import itertools
import json
import os
import platform
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satlib import __version__, files
from satlib import recipe as recipes
from satlib.errors import Interrupted, SatlibError
from satlib.recipe import SAVE_SECONDS

if TYPE_CHECKING:
    from satlib.data.caption_set import CaptionSet
    from satlib.data.features import Reader
    from satlib.model.captioner import Captioner
    from satlib.recipe import Recipe

DESCRIPTION = """\
Show, Attend and Tell: train an image captioner with visual attention, score it, and see where it looked.
Begin with satlib demo, or with satlib caption photo.jpg.
"""
GROUPS = {
    "Learn": ("demo", "check"),
    "Use": ("caption", "page", "export", "info"),
    "Train": ("data", "features", "train", "tune", "recipe"),
    "Measure": ("evaluate", "ground", "table"),
}

Option = tuple[tuple[str, ...], dict[str, Any]]  # the arguments of ArgumentParser.add_argument
COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int | None], tuple[Option, ...]]] = {}


def option(*names: str, **settings: Any) -> Option:
    """An option of a command, described as for `ArgumentParser.add_argument`."""
    return names, settings


def command(*options: Option) -> Callable:
    """Decorate a function so that `satlib NAME` calls it with its options; it returns the exit status, None for 0."""

    def register(function: Callable[[argparse.Namespace], int | None]) -> Callable:
        COMMANDS[function.__name__] = function, options
        return function

    return register


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)


# Options of several commands.
_SPLITS = ("train", "dev", "test")
_A_MODEL = "a run's folder, a model file, or the name of a model that comes with satlib"
RECIPE = option("recipe", help="a recipe (satlib recipe lists them) or a .toml file")
SET = option(
    "--set",
    action="append",
    default=[],
    metavar="SECTION.KEY=VALUE",
    help="change a value; repeatable",
)
SKIP = option("--skip-broken", action="store_true", help="leave out images that cannot be read")
MODEL = option("model", type=Path, help=_A_MODEL)
DATA = option("--data", metavar="FOLDER", help="the folder of data sets: $SATLIB_DATA or ./data")
DATA_SET = option(
    "--data-set",
    metavar="NAME",
    help="another data set than the model's: its name, or your own folder",
)
SPLIT = option("--split", choices=_SPLITS, default="test", help="the split to caption")
BEAM = option("--beam", type=positive, help="the beam width; by default the recipe's")
OUT = option(
    "--out", type=Path, metavar="FOLDER", help="the folder for results; by default that of the run"
)
DEVICE = option(
    "--device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="where to compute"
)
JSON = option("--json", action="store_true", help="print the result as JSON")
STORAGE = option(
    "--storage",
    choices=("float32", "float16", "int8"),
    default="int8",
    help="the number format of the weights",
)
ATTENTION = option(
    "--attention", metavar="FILE:FUNCTION", help="your own attend(e, a) -> (z, alpha)"
)
ENTITIES = option(
    "--entities",
    type=Path,
    metavar="PATH",
    help="Flickr30k Entities: its folder, or annotations.zip",
)


@command(
    option("action", choices=("fetch", "check")),
    option("name", metavar="DATA", help="flickr8k, flickr30k, coco, scenes, or your own folder"),
    DATA,
)
def data(options: argparse.Namespace) -> int:
    """Download a data set (fetch), or check its captions and photographs (check)."""
    from satlib.data import check, datasets, download

    root = datasets.data_root(options.data)
    if options.action == "fetch":
        download.fetch(options.name, root)
        return 0
    return int(not check.check(options.name, root))


@command(RECIPE, SET, SKIP, DATA, DEVICE)
def features(options: argparse.Namespace) -> None:
    """Compute the annotation vectors of a recipe's images, once; resumes after a stop."""
    from satlib.data import datasets, features
    from satlib.model import encoders, installed
    from satlib.training import distributed
    from satlib.training.features import extract, root_mean_square

    recipe = recipes.load(options.recipe, options.set)
    if recipe.encoder.train:
        print(f"{recipe.name} trains its encoder: there is nothing to compute beforehand")
        return
    captions = _captions(recipe, options)
    encoder = encoders.create(recipe.encoder.name, recipe.encoder.pretrained)
    folder = features.folder(
        datasets.data_root(options.data), captions, encoder.name, recipe.encoder.view
    )
    with distributed.launched(installed.device(options.device)) as place:
        store = extract(captions, encoder, folder, place, view=recipe.encoder.view)
        if distributed.current().first:
            h, w = store.grid
            print(f"{folder}: {len(store):,} images, {h}x{w} places of {store.dim} dimensions")
            images = [example.image_id for example in captions.split("train") or captions.examples]
            size = root_mean_square(store, images)
            print(f"root mean square {size:.3g}; encoder.scale = {1 / size:.2g} makes it 1")


@command(
    RECIPE,
    SET,
    option("--out", type=Path, metavar="FOLDER", help="the run's folder; by default runs/RECIPE"),
    option("--start", type=Path, metavar="MODEL", help=f"the model to begin with: {_A_MODEL}"),
    ENTITIES,
    SKIP,
    option(
        "--checkpoint-every",
        type=float,
        default=SAVE_SECONDS,
        metavar="SECONDS",
        help="also within an epoch",
    ),
    DATA,
    DEVICE,
    ATTENTION,
)
def train(options: argparse.Namespace) -> None:
    """Train a captioner by a recipe; the same command resumes after a stop."""
    from satlib.data.entities import Entities
    from satlib.model import installed
    from satlib.training import distributed, loop, starting, validation

    prepare = _own_attention(options)
    recipe = recipes.load(options.recipe, options.set)
    run = options.out or Path("runs") / recipe.name
    if options.start:
        recipe = starting.fitted(recipe, options.start, options.set)
    captions = _captions(recipe, options)
    with distributed.launched(installed.device(options.device)) as place:
        reader = _reader(recipe, captions, ("train", "dev"), options)
        loop.train(
            recipe, captions, reader, run, place, start=options.start, prepare=prepare, save_seconds=options.checkpoint_every,
            entities=options.entities and Entities(options.entities),
        )  # fmt: skip
        if not distributed.current().first:
            return
    print(f"the model of the best epoch is {run / loop.MODEL}; next: satlib evaluate {run}")
    for line in validation.remarks(run / loop.LOG):
        print(line)


@command(
    RECIPE,
    SET,
    option(
        "--vary",
        action="append",
        default=[],
        metavar="SECTION.KEY=LOW..HIGH",
        help="or SECTION.KEY=A,B,C; repeatable",
    ),
    option("--trials", type=positive, default=20, help="trials in all, earlier ones included"),
    option(
        "--out", type=Path, metavar="FOLDER", help="the search's folder; by default tune/RECIPE"
    ),
    DATA,
    DEVICE,
)
def tune(options: argparse.Namespace) -> None:
    """Search a recipe's hyperparameters on the dev split with Optuna; resumes after a stop."""
    from satlib.model import installed
    from satlib.training import tuning

    recipe = recipes.load(options.recipe, options.set)
    space = options.vary or tuning.default_space(recipe)
    folder = options.out or Path("tune") / recipe.name
    captions = _captions(recipe, options)
    reader = _reader(recipe, captions, ("train", "dev"), options)
    tuning.tune(
        recipe, captions, reader, folder, space, options.trials, installed.device(options.device)
    )
    print(f"all trials are in {folder / 'history.json'}")
    if (folder / "best.toml").is_file():
        print(f"next: satlib train {folder / 'best.toml'}")


@command(
    option(
        "model",
        type=Path,
        help=f"{_A_MODEL}; or a .json file of captions, to score them without a model",
    ),
    option("--split", choices=_SPLITS, help="the split (default: test, or the file's)"),
    BEAM,
    option(
        "--length-normalisation",
        type=float,
        metavar="X",
        help="rank by log p / length^X; by default the recipe's",
    ),
    option(
        "--look",
        choices=("expected", "probable", "sample"),
        help="hard attention's context; by default the recipe's",
    ),
    OUT,
    JSON,
    DATA_SET,
    DATA,
    DEVICE,
    ATTENTION,
)
def evaluate(options: argparse.Namespace) -> None:
    """Caption a split and score the captions, or score those of a file."""
    from satlib.data import datasets
    from satlib.evaluation import evaluate

    if options.model.suffix == ".json":
        earlier, texts = evaluate.read_captions(options.model)
        name, split = options.data_set or earlier.get("data"), options.split or earlier.get("split")
        if name is None or split is None:
            raise SatlibError(
                f"{options.model} does not say what was captioned: give --data-set and --split"
            )
        captions = datasets.load(name, datasets.data_root(options.data))
        evaluation = evaluate.score(texts, captions, split)
        evaluation = {
            **earlier,
            **evaluation,
            "metrics": earlier.get("metrics", {}) | evaluation["metrics"],
        }
        path = evaluate.save(evaluation, options.out or options.model.parent)
    else:
        options.split = options.split or "test"
        captioner = _captioner(options.model, options)
        captions = _captions(captioner.recipe, options)
        evaluate.images_of(captions, options.split)  # an empty split is reported first
        reader = _reader(captioner.recipe, captions, (options.split,), options, captioner)
        evaluation = evaluate.evaluate(
            captioner,
            captions,
            reader,
            options.split,
            options.beam,
            options.length_normalisation,
            look=options.look,
        )
        path = evaluate.save(evaluation, _results_folder(options, captions))
    if options.json:
        short = {
            name: value
            for name, value in evaluation.items()
            if name not in ("captions", "statistics")
        }
        _print_json({"file": str(path), **short})
        return
    print("{images:,} images of {data} {split}".format_map(evaluation))
    for name, value in evaluation["metrics"].items():
        print(f"  {name:28} {value:6.2f}")
    for note in evaluation["notes"]:
        print(f"note: {note}")
    print(f"written to {path}")


@command(MODEL, SPLIT, ENTITIES, BEAM, OUT, DATA_SET, DATA, DEVICE)
def ground(options: argparse.Namespace) -> None:
    """Measure whether words look at the objects that they name."""
    from satlib.data.entities import Entities
    from satlib.evaluation import evaluate, maps
    from satlib.files import write_json

    captioner = _captioner(options.model, options)
    captions = _captions(captioner.recipe, options)
    entities = Entities(options.entities) if options.entities else None
    examples = evaluate.images_of(captions, options.split)
    if entities is None and captions.name != "scenes":
        raise SatlibError(
            f"{captions.name} has no masks; give boxes with --entities (Flickr30k Entities)"
        )
    reader = _reader(captioner.recipe, captions, (options.split,), options, captioner)
    if entities:
        words = maps.measure_true(captioner, captions, reader, examples, entities)
    else:
        generated = evaluate.generate(captioner, reader, examples, options.beam)
        words = maps.measure_all(examples, generated, captioner.recipe.decoder.attention != "none")
    means = maps.summary(words)
    path = _results_folder(options, captions) / f"ground-{options.split}.json"
    of = {"recipe": captioner.recipe.to_dict(), "data": captions.name, "split": options.split}
    write_json(path, {**of, "true" if entities else "generated": means})
    print(maps.render(means))
    print(f"written to {path}")


@command(
    option(
        "only",
        nargs="*",
        metavar="WHAT",
        help="data sets, evaluation files or runs; by default all",
    ),
    option("--split", choices=_SPLITS, default="test", help="the evaluated split"),
    JSON,
)
def table(options: argparse.Namespace) -> None:
    """Print a table like the paper's Table 1: published results beside yours."""
    from satlib.evaluation import table
    from satlib.model import installed

    paths = [Path(word) for word in options.only if Path(word).exists()]
    names = {word.lower() for word in options.only if not Path(word).exists()}
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("evaluation-*.json")) if path.is_dir() else [path])
    ]
    if paths and not files:
        raise SatlibError(f"{paths[0]} has no evaluation; satlib evaluate {paths[0]} makes one")
    rows = table.rows(
        files or [*installed.evaluations(), *sorted(Path("runs").glob("*/evaluation-*.json"))],
        options.split,
    )
    data_sets = sorted({row.data for row in rows})
    if unknown := names - set(map(str.lower, data_sets)):
        raise SatlibError(
            f"{min(unknown)} is no file and no data set of the table; it has {', '.join(data_sets)}"
        )
    rows = [row for row in rows if not names or row.data.lower() in names]
    if options.json:
        _print_json(
            [
                {"data": row.data, "name": row.name, "ours": row.ours, "scores": row.figures}
                for row in rows
            ]
        )
    else:
        print(table.render(rows))


@command(
    option("photos", type=Path, nargs="+", metavar="PHOTO", help="image files, or folders of them"),
    option("--model", type=Path, help=f"{_A_MODEL}; by default the one for photographs"),
    BEAM,
    option("--best", type=positive, default=1, metavar="N", help="captions of each photograph"),
    option(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=Path("captions"),
        help="folder for the pictures",
    ),
    option("--animate", action="store_true", help="also an animation (WebP)"),
    option(
        "--table",
        type=Path,
        metavar="FILE.csv",
        help="add captions to a table, none twice; draw nothing",
    ),
    JSON,
    DEVICE,
)
def caption(options: argparse.Namespace) -> int:
    """Caption photographs, and draw where each word looked."""
    from satlib.data import images
    from satlib.evaluation import animation, plots
    from satlib.files import read_ahead
    from satlib.model import installed

    model = options.model or Path(installed.PHOTOGRAPHS)
    photos: list[Path] = []
    for path in options.photos:
        inside = [
            file for file in images.files_in(path) if options.out not in file.parents
        ]  # nor its own pictures
        photos += inside or [path / "*.jpg" if path.is_dir() else path]
    if options.table:
        options.table.parent.mkdir(parents=True, exist_ok=True)
        with open(options.table, "a+", encoding="utf-8") as table:
            table.seek(0)
            if not (done := {row[0] for row in csv.reader(table) if row}):
                table.write("image,caption,confidence\n")
        photos = [path for path in photos if str(path) not in done]
        print(f"{len(photos):,} are not in {options.table} yet", file=sys.stderr)
    captioner = _captioner(model, options)
    beam = max(options.beam or captioner.recipe.decoding.beam, options.best)
    results: list[dict[str, Any]] = []
    stems = Counter[str]()

    def read(path: Path) -> tuple[Path, Any] | None:
        try:
            return path, images.open_photo(path)
        except SatlibError as error:
            print(f"satlib: {error}", file=sys.stderr)

    def captioned() -> Iterator[Any]:
        opened = filter(None, read_ahead(read, photos))
        while some := [*itertools.islice(opened, captioner.encoder.at_once)]:
            yield from zip(
                some, captioner.captions([photo for _, photo in some], beam), strict=True
            )

    for (path, photo), captions in captioned():
        best, captions = captions[0], captions[: options.best]
        stems[path.stem] += 1
        picture = (
            options.out / f"{path.stem}{f'-{stems[path.stem]}' if stems[path.stem] > 1 else ''}.png"
        )
        files: dict[str, str | None] = {"picture": None, "animation": None}
        if not options.table:
            files["picture"] = str(picture)
            plots.attention_figure(
                photo, best.words, best.alphas, best.betas, picture, captioner.view
            )
        if options.animate and best.words:
            files["animation"] = str(picture.with_suffix(".webp"))
            animation.animate(
                photo, best.words, best.alphas, picture.with_suffix(".webp"), captioner.view
            )
        described = [{"model": str(model), **each.to_json()} for each in captions]
        results.append({"image": str(path), **files, "captions": described})
        if options.table:
            with open(options.table, "a", encoding="utf-8", newline="") as table:
                rows = ([path, each["caption"], each["confidence"]] for each in described)
                csv.writer(table, lineterminator="\n").writerows(rows)
        if not options.json:
            sure = ", ".join(f"{each.confidence:.0%}" for each in captions)
            about = "; ".join([str(path), f"{sure} sure", *filter(None, files.values())])
            about = f"\x1b[2m{about}\x1b[0m" if sys.stdout.isatty() else about
            print(
                *(each.text or "(no words)" for each in captions),
                f"  {about}",
                sep="\n",
                flush=True,
            )
    if options.json and results:
        _print_json(results)
    return 2 if photos and not results else int(len(results) < len(photos))


@command(
    MODEL,
    option("target", type=Path, help="the file to write, NAME.safetensors; with --onnx, a folder"),
    option("--onnx", action="store_true", help="write ONNX graphs, for programs without PyTorch"),
    STORAGE,
)
def export(options: argparse.Namespace) -> None:
    """Write a model as a small file, or as ONNX graphs."""
    from satlib.model.captioner import Captioner

    captioner = Captioner.load(options.model)
    if options.onnx:
        from satlib.page import export

        export.export(captioner, options.target, options.storage)
        print(f"written to {options.target}")
        return
    if options.target.suffix != ".safetensors":
        raise SatlibError(f"{options.target} must end in .safetensors")
    captioner.save(options.target, options.storage)
    print(f"{options.target}: {options.target.stat().st_size / 1e6:.1f} MB, {options.storage}")


@command(
    option("folder", type=Path, help="the folder to write"),
    option(
        "--model", action="append", dest="models", metavar="MODEL", help=f"{_A_MODEL}; repeatable"
    ),
    option("--open", action="store_true", help="show it"),
    STORAGE,
)
def page(options: argparse.Namespace) -> None:
    """Write a web page on which captioners run in the browser."""
    from satlib.page import live

    live.write(options.folder, options.models, options.storage)
    print(f"written to {options.folder}")
    if options.open:
        live.show(options.folder)


@command(
    option("name", nargs="?", help="a recipe or a .toml file; without it, all are listed"),
    option("--explain", action="store_true", help="each option's default, values and meaning"),
)
def recipe(options: argparse.Namespace) -> None:
    """List the recipes, print one with all its values, or explain the options."""

    if options.explain:
        print(
            recipes.explained(
                recipes.load(options.name) if options.name else recipes.Recipe("recipe")
            )
        )
    elif options.name:
        print(
            f"# {recipes.description(options.name)}\n{recipes.load(options.name).to_toml()}", end=""
        )
    else:
        _print_rows({name: recipes.description(name) for name in recipes.names()})


@command(
    option(
        "model", type=Path, nargs="?", help=f"print what this model's file says instead: {_A_MODEL}"
    ),
    JSON,
)
def info(options: argparse.Namespace) -> None:
    """Print versions, devices and what is missing; or what a model's file says."""
    import torch

    from satlib.evaluation import metrics
    from satlib.model import captioner, installed

    if options.model:
        path, header, tensors = captioner.read_file(options.model)
        weights = sum(value.numel() for value in tensors.values())
        topics = {
            "file": f"{path}, {path.stat().st_size / 1e6:.1f} MB, {weights:,} weights",
            "vocabulary": f"{len(header.vocabulary):,} words",
            **{section: str(values) for section, values in header.recipe.items()},
        }
    else:
        java = metrics.java_available() and shutil.which("java")
        topics = {
            "satlib": f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
            "torch": torch.__version__,
            "GPUs": ", ".join(map(torch.cuda.get_device_name, range(torch.cuda.device_count())))
            or ("Apple's, by MPS" if torch.backends.mps.is_available() else "none"),
            "Java": java or f"missing, so METEOR cannot be computed; {metrics.GET_JAVA}",
            "models": ", ".join(installed.models()),
        }
    (_print_json if options.json else _print_rows)(topics)


# What several commands open.


def _captions(recipe: "Recipe", options: argparse.Namespace) -> "CaptionSet":
    """The data set of the recipe, or of --data-set."""
    from satlib.data import check, datasets

    root, skip = datasets.data_root(options.data), getattr(options, "skip_broken", False)
    if other := getattr(options, "data_set", None):
        return datasets.load(other, root)
    captions = datasets.load(recipe.data.name, root, not skip, recipe.data.train_images)
    return check.readable(captions) if skip else captions


def _reader(
    recipe: "Recipe",
    captions: "CaptionSet",
    splits: Sequence[str],
    options: argparse.Namespace,
    captioner: "Captioner | None" = None,
) -> "Reader":
    """Pixels, for an encoder that trains and for --data-set; else the feature store, checked for some splits."""
    from satlib.data import datasets, features
    from satlib.model import encoders
    from satlib.training.features import open_store

    trained = captioner.holds_encoder if captioner else recipe.encoder.train
    if trained or getattr(options, "data_set", None):
        return features.Pixels(captions, recipe.encoder.view)
    encoder = (
        captioner.encoder
        if captioner
        else encoders.create(recipe.encoder.name, recipe.encoder.pretrained)
    )
    examples = [example for split in splits for example in captions.split(split)]
    return open_store(
        datasets.data_root(options.data), captions, encoder, recipe.encoder.view, examples
    )


def _captioner(model: Path, options: argparse.Namespace) -> "Captioner":
    """A trained model, with the function of --attention."""
    from satlib.model import installed
    from satlib.model.captioner import Captioner

    captioner = Captioner.load(model, installed.device(options.device))
    if plug := _own_attention(options):
        plug(captioner)
    elif captioner.own_attention:
        print(
            f"satlib: {model} was trained with --attention {captioner.own_attention}, which is missing",
            file=sys.stderr,
        )
    return captioner


def _own_attention(options: argparse.Namespace) -> "Callable[[Captioner], None] | None":
    """A function that plugs --attention in; None without it."""
    if not (file := getattr(options, "attention", None)):
        return None
    from satlib.model import plugged

    attend = plugged.load(file)
    return lambda captioner: plugged.plug(captioner, attend, file)


def _results_folder(options: argparse.Namespace, captions: "CaptionSet") -> Path:
    """--out; or the model's run, or runs/NAME for one of satlib's models, with a folder for another data set."""
    model: Path = options.model
    if options.out:
        return options.out
    folder = (
        Path("runs") / model.name
        if not model.exists()
        else model
        if model.is_dir()
        else model.parent
    )
    return folder / captions.name if options.data_set else folder


def _print_json(value: Any) -> None:
    unicode = (
        (sys.stdout.encoding or "").lower().startswith("utf")
    )  # where letters are lost, they are escaped
    print(json.dumps(value, indent=1, ensure_ascii=not unicode, allow_nan=False))


def _print_rows(rows: dict[str, str]) -> None:
    for name, line in rows.items():
        print(f"{name:{max(map(len, rows))}}  {line}")


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    lists = [
        f"{group}\n"
        + "".join(f"  {name:9} {COMMANDS[name][0].__doc__}\n" for name in names if name in COMMANDS)
        for group, names in GROUPS.items()
    ]
    about = "\n".join([DESCRIPTION, *lists])
    result = argparse.ArgumentParser(
        "satlib", description=about, formatter_class=argparse.RawTextHelpFormatter
    )
    result.add_argument("--version", action="version", version=f"satlib {__version__}")
    subparsers = result.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, (function, options) in COMMANDS.items():
        subparser = subparsers.add_parser(name, description=function.__doc__)
        subparser.add_argument(
            "--quiet", action="store_true", help="print only results and mistakes"
        )
        for names, settings in options:
            subparser.add_argument(*names, **settings)
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return its exit status.

    0; 1 if something was found to be wrong or a photograph was left out; 2 for a mistake that the user can correct; 130 after
    Ctrl-C or SIGTERM, with finished work kept.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if words[0] not in COMMANDS:
        for entry in importlib.metadata.entry_points(group="satlib.commands"):
            entry.load()
    options = parser().parse_args(words)
    files.quiet = options.quiet
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a pipe of Windows has an encoding without "✓"
    if (
        "OMP_WAIT_POLICY" not in os.environ
    ):  # threads that spin for long are slow on a shared processor, others elsewhere
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    before = signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # ends a command as Ctrl-C does
    try:
        status = COMMANDS[options.command][0](options) or 0
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has enough: satlib table | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Interrupted as error:
        if (
            os.environ.get("RANK", "0") == "0"
        ):  # torchrun's processes stop together; the first one reports it
            print(f"satlib: {error}", file=sys.stderr)
        return 130
    except SatlibError as error:
        print(f"satlib: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("satlib: interrupted; finished work is kept", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
