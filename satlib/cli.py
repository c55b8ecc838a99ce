"""The command line: `satlib --help`.

Each command's work is done elsewhere; here options become calls and errors become one line and an exit status.
"""

import argparse
import itertools
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from satlib import __version__
from satlib.errors import SatlibError

# Modules that need torch are imported by the commands that use them: `satlib --help` answers at once.
if TYPE_CHECKING:
    from satlib.captioner import Captioner
    from satlib.datasets import CaptionSet
    from satlib.encoders import Encoder
    from satlib.features import Reader
    from satlib.recipe import Recipe

LOOKS = ("expected", "probable", "sample")  # as satlib.attention has them
LANGUAGES = ("zh", "ja", "th", "lo", "km", "my")  # as satlib.text has them
MODEL = "a run's folder, a model file, or the name of a model that comes with satlib"
BENCHES = ("step", "growth", "epoch", "extraction", "beam", "loader", "memory")
DESCRIPTION = """\
Show, Attend and Tell: train a captioner that looks, measure it, and see where it looked.

A first walk:
  satlib demo                                train on drawn scenes, then caption photographs; minutes on two CPU cores
  satlib caption photo.jpg                   caption a photograph with the model that comes with satlib
  satlib data fetch flickr8k                 get Flickr8k (1 GB)
  satlib features flickr8k-soft              compute its annotation vectors, once
  satlib train flickr8k-soft                 train soft attention; again to go on after a stop
  satlib evaluate runs/flickr8k-soft         caption the test split and score it
  satlib ground runs/scenes-soft             do words look at what they name?
  satlib table                               the paper's Table 1 beside your rows

Data sets are looked for below --data, else $SATLIB_DATA, else ./data."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; give its exit status: 0 when all went well, 2 for a mistake that a person can put right, 130 when stopped."""
    parser = _parser()
    options = parser.parse_args(arguments)
    # Threads that wait by spinning slow a step several times over where the processor is shared; threads that sleep at once slow it
    # by a third where it is not. So: spin for some microseconds, then sleep. Read when torch is loaded.
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "0" if options.command is _bench else "10000")
    processes, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))  # torchrun's
    try:
        if processes > 1 and options.command not in (_features, _train):
            raise SatlibError(
                "of satlib's commands only features and train are for torchrun; start this one without it"
            )
        return options.command(options)
    except SatlibError as error:
        interrupted = type(error).__name__ == "Interrupted"
        if not (interrupted and rank):  # all processes stop together, and one says it
            print(f"satlib{f', process {rank} of {processes}' if rank else ''}: {error}", file=sys.stderr)
        return 130 if interrupted else 2
    except KeyboardInterrupt:
        print("satlib: stopped; what was finished is kept", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away (head, less): not our mistake
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, as for every other mistake."""
        self.exit(2, f"satlib: {message}; see: {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="satlib", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"satlib {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(
            name, help=text, description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        made.set_defaults(command=run)
        return made

    data = command("data", _data, "fetch a data set, or check what is there")
    data.add_argument("action", choices=("fetch", "check"))
    data.add_argument(
        "name", help="flickr8k, flickr30k, coco, scenes, a Karpathy dataset_*.json, your own folder, or shards"
    )
    _language_option(data)
    _data_option(data)

    scenes = command(
        "scenes", _scenes, "write drawn scenes as a folder of pictures with captions.csv, to look at or to caption"
    )
    scenes.add_argument("folder", type=Path, help="where they go")
    scenes.add_argument("--split", choices=("train", "dev", "test"), default="test", help="which scenes")
    scenes.add_argument("--count", type=_positive, default=4, help="how many, from the first")

    shards = command("shards", _shards, "write a data set as WebDataset shards, to train on as a stream")
    shards.add_argument("name", metavar="DATA", help="as for satlib data")
    shards.add_argument("folder", type=Path, help="where they go")
    shards.add_argument(
        "--split",
        choices=("train", "dev", "test"),
        action="append",
        help="which images; all by default; may be repeated",
    )
    shards.add_argument("--images-per-shard", type=_positive, default=1000, help="at most")
    shards.add_argument("--train-images", type=_positive, help="how many of training, from the first; all by default")
    _language_option(shards)
    _data_option(shards)

    features = command("features", _features, "compute the annotation vectors of a recipe's images, once; resumes")
    _recipe_options(features)
    _data_option(features)
    _device_option(features)
    features.add_argument("--batch-size", type=_positive, default=32, help="images at a time")

    train = command("train", _train, "train a captioner by a recipe; the same command goes on after a stop")
    _recipe_options(train)
    # The second names are for torchrun, which takes the first for beginnings of its own --run-path and --start-method.
    train.add_argument("--run", "--run-folder", type=Path, help="the run's folder; runs/RECIPE by default")
    train.add_argument(
        "--start",
        "--start-from",
        type=Path,
        help="a run or model whose weights a new run begins with (soft, then hard); also the name of one that comes with satlib",
    )
    train.add_argument(
        "--teacher",
        type=Path,
        action="append",
        default=[],
        metavar="MODEL",
        help="a run or model whose word probabilities are learnt from too (objective.teaching); several times for several; also "
        "the name of one that comes with satlib",
    )
    train.add_argument(
        "--checkpoint-every",
        type=_at_least_zero,
        default=600.0,  # training.SAVE_SECONDS
        metavar="SECONDS",
        help="write a checkpoint within an epoch when the last one is this old",
    )
    _data_option(train)
    _device_option(train)
    _attention_option(train)

    tune = command(
        "tune", _tune, "search a recipe's hyperparameters with Optuna, on the dev split; goes on after a stop"
    )
    _recipe_options(tune)
    tune.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="SECTION.KEY=LOW..HIGH",
        help="what varies, also as SECTION.KEY=A,B,C; may be repeated; the usual values by default",
    )
    tune.add_argument("--trials", type=_positive, default=20, help="how many in all, earlier ones included")
    tune.add_argument("--folder", type=Path, help="the search's folder; tune/RECIPE by default")
    _data_option(tune)
    _device_option(tune)

    evaluate = command("evaluate", _evaluate, "generate captions for a split and score them")
    evaluate.add_argument("model", type=Path, help=MODEL)
    evaluate.add_argument("--split", choices=("train", "dev", "test"), default="test", help="which images")
    evaluate.add_argument("--beam", type=_positive, help="beam width; as the recipe says by default")
    evaluate.add_argument(
        "--length-normalisation", type=_at_least_zero, help="rank by log p / C^this; as the recipe says by default"
    )
    evaluate.add_argument(
        "--look", choices=LOOKS, help="what hard attention sees when it generates; as the recipe says by default"
    )
    evaluate.add_argument("--out", type=Path, help="folder for the evaluation file; beside the model by default")
    _data_option(evaluate)
    _device_option(evaluate)
    _attention_option(evaluate)

    ground = command("ground", _ground, "measure whether words look at the objects that they name")
    ground.add_argument("model", type=Path, help=MODEL)
    ground.add_argument("--split", choices=("train", "dev", "test"), default="test", help="which images")
    ground.add_argument("--boxes", type=Path, help="boxes of photographs, COCO's instances_*.json; scenes know theirs")
    ground.add_argument("--beam", type=_positive, help="beam width; as the recipe says by default")
    ground.add_argument("--out", type=Path, help="folder for figures and picture; beside the model by default")
    _data_option(ground)
    _device_option(ground)

    caption = command("caption", _caption, "caption photographs, and draw where each word looked")
    caption.add_argument("photos", type=Path, nargs="+", metavar="IMAGE", help="files of any usual picture format")
    caption.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        dest="models",
        help=f"{MODEL}; give several to compare them, one below the other",
    )
    caption.add_argument("--beam", type=_positive, help="beam width; as the model's recipe says by default")
    caption.add_argument("--pictures", type=Path, default=Path("captions"), help="folder for the pictures of attention")
    _device_option(caption)

    mix = command(
        "mix",
        _mix,
        "make a model whose weights lie between two models', where one was begun from the other, or both from a third",
    )
    mix.add_argument(
        "a",
        type=Path,
        metavar="A",
        help=f"one of them: {MODEL}",
    )
    mix.add_argument("b", type=Path, metavar="B", help="the other; the mixture captions by its recipe")
    mix.add_argument("run", type=Path, metavar="RUN", help="a new folder for the mixture")
    mix.add_argument("--share", type=_finite, default=0.5, help="of B's weights, 0 to 1; choose it on dev")

    export = command("export", _export, "write a model as a small file to give away; evaluate it before you do")
    export.add_argument("model", type=Path, help=MODEL)
    export.add_argument("file", type=Path, help="the file to write, NAME.safetensors")
    export.add_argument(
        "--storage",
        choices=("float32", "float16", "int8"),
        default="int8",
        help="int8: a quarter of the size, almost the same captions",
    )

    table = command("table", _table, "print a table like the paper's Table 1: published rows beside ours")
    table.add_argument(
        "files", type=Path, nargs="*", help="evaluation files or run folders; by default runs/* and satlib's own"
    )
    table.add_argument("--split", choices=("train", "dev", "test"), default="test", help="which evaluations")
    table.add_argument("--markdown", action="store_true", help="write Markdown")

    check = command(
        "estimators", _estimators, "hold hard attention's estimators against the exact gradient of the bound"
    )
    check.add_argument("--draws", type=_positive, default=400, help="independent estimates of each")

    exercises = command(
        "check", _check, "run notebooks of exercises, and say of each whether it is done, blank, wrong or missing"
    )
    exercises.add_argument("files", type=Path, nargs="*", help="notebooks or folders; exercises/ by default")
    exercises.add_argument("--json", type=Path, help="also write the table there, for a program to read")
    exercises.add_argument("--processes", type=_positive, default=2, help="notebooks at a time")
    exercises.add_argument(
        "--only",
        metavar="ID,...",
        type=lambda text: text.split(","),
        help="the exercises that count, as 4.1,4.2 of a notebook that was shortened; all of its chapter if left out",
    )

    bench = command("bench", _bench, "measure speed beside a decoder as it is commonly written, and memory")
    bench.add_argument(
        "parts", nargs="*", metavar="PART", help=f"{', '.join(BENCHES)}; step, extraction, beam and loader by default"
    )
    bench.add_argument("--dims", type=_numbers, default=[512, 2048], metavar="D,...", help="D, dimensions of a place")
    bench.add_argument("--batches", type=_numbers, default=[32, 64, 256], metavar="B,...", help="captions at a time")
    bench.add_argument(
        "--contestants",
        default="textbook,plain,fast",
        help="of textbook, plain, fast, compiled; ratios are to the first",
    )
    bench.add_argument("--precisions", default="float32", help="of float32, bf16")
    bench.add_argument("--rounds", type=_positive, default=5, help="turns of each contestant")
    bench.add_argument("--images", type=_positive, default=6000, help="of the epoch; COCO has 82783")
    bench.add_argument("--places", type=_positive, default=196, help="L, places of an image")
    bench.add_argument("--encoders", default="vgg19,efficientnet-lite0", help="for extraction")
    bench.add_argument("--out", type=Path, default=Path("bench.json"), help="file for all figures; growth also draws")
    _device_option(bench)

    command("info", _info, "print versions, devices, and what is missing")

    demo = command("demo", _demo, "train on drawn scenes, evaluate, caption photographs: all of it in minutes on a CPU")
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder for everything that it makes")
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, not {text}")
    return int(text)


def _finite(text: str, but: str = "", least: float = -math.inf) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= least):
        raise argparse.ArgumentTypeError(f"must be a finite number{but}, not {text}")
    return value


def _at_least_zero(text: str) -> float:
    return _finite(text, " of at least 0", 0.0)


def _numbers(text: str) -> list[int]:
    return [_positive(each) for each in text.split(",")]


def _data_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="FOLDER", help="where data sets lie; $SATLIB_DATA or ./data by default")


def _language_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language",
        choices=LANGUAGES,
        default="",
        help="of the captions, where it has no spaces between words: what data.language of the recipe will be",
    )


def _attention_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--attention",
        metavar="FILE:FUNCTION",
        help="your own attend(e, a) -> (z, alpha), of a .py or a notebook, in the place of softmax and weighted mean",
    )


def _device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto", help="where to compute")


def _recipe_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", help="a recipe's name (satlib info lists them) or the path of a .toml file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.KEY=VALUE",
        help="change a value of the recipe; may be repeated",
    )


def _data(options: argparse.Namespace) -> int:
    from satlib.datasets import data_root

    root = data_root(options.data)
    if options.action == "fetch":
        from satlib.datasets import download

        download.fetch(options.name, root)
        return 0
    from satlib.datasets import check

    report = check.check(options.name, root, language=options.language)
    print(report)
    return 0 if report.ok else 2


def _scenes(options: argparse.Namespace) -> int:
    from satlib.datasets import folder, scenes

    data = scenes.load(**{"train": 0, "dev": 0, "test": 0, options.split: options.count})
    folder.save(data, options.folder)
    for example in data.examples:
        print(f"{options.folder / example.image_id}.png: {example.references[0]}")
    return 0


def _shards(options: argparse.Namespace) -> int:
    from satlib import datasets
    from satlib.datasets import shards

    some = options.train_images or 0
    data = datasets.load(options.name, datasets.data_root(options.data), train_images=some)
    splits = options.split or datasets.SPLITS
    index = shards.write(data, options.folder, splits, options.images_per_shard, some, language=options.language)
    for split, written in index["splits"].items():
        images, captions, size = (sum(shard[what] for shard in written) for what in ("images", "captions", "bytes"))
        print(
            f"{split:5} {images:9,} images, {captions:10,} captions, {len(written):5,} shards, {size / 1e6:10,.1f} MB"
        )
    language = f" --set data.language={options.language}" if options.language else ""
    print(f"in {options.folder}; next: satlib train RECIPE --set data.name={options.folder}{language}")
    return 0


def _features(options: argparse.Namespace) -> int:
    from satlib import datasets, device, recipe
    from satlib.datasets.sharded import Shards

    chosen = recipe.load(options.recipe, options.set)
    root = datasets.data_root(options.data)
    data = datasets.load(chosen.data.name, root, train_images=chosen.data.train_images)
    if chosen.encoder.train or isinstance(data, Shards):
        why = "trains its encoder" if chosen.encoder.train else "reads a stream, and its encoder with it"
        print(f"{chosen.name} {why}: there is nothing to compute beforehand")
        return 0
    from satlib import distributed, encoders, extraction, features

    encoder = encoders.create(chosen.encoder.name, chosen.encoder.pretrained)
    folder = features.folder(root, data, encoder.name, chosen.encoder.view)
    with distributed.launched(device.choose(options.device)) as place:
        store = extraction.extract(data, encoder, folder, place, options.batch_size, view=chosen.encoder.view)
        first = distributed.current().first
    if first:
        h, w = store.grid
        print(f"{folder}: {len(store):,} images, {h}x{w} places of {store.dim} dimensions")
    return 0


def _train(options: argparse.Namespace) -> int:
    from satlib import datasets, device, distributed, encoders, recipe, shipped, training
    from satlib.captioner import Captioner

    prepare = _plug(options)
    chosen = recipe.load(options.recipe, options.set)
    run = options.run or Path("runs") / chosen.name
    root = datasets.data_root(options.data)
    data = datasets.load(chosen.data.name, root, train_images=chosen.data.train_images)
    encoder = None if chosen.encoder.train else encoders.create(chosen.encoder.name, chosen.encoder.pretrained)
    with distributed.launched(device.choose(options.device)) as place:
        reader = _reader(chosen, data, encoder, root, ("train", "dev"))
        teachers = [
            (teacher, _reader_of(teacher, data, root, ("train",)))
            for teacher in (Captioner.load(shipped.or_shipped(model), place) for model in options.teacher)
        ]
        start = options.start and shipped.or_shipped(options.start)
        training.train(
            chosen, data, reader, run, place, start=start, prepare=prepare, teachers=teachers,
            save_seconds=options.checkpoint_every,
        )  # fmt: skip
        first = distributed.current().first
    if first:
        print(f"the best epoch's model is {run / training.MODEL}; next: satlib evaluate {run}")
    return 0


def _plug(options: argparse.Namespace) -> "Callable[[Captioner], None] | None":
    """Puts the function that --attention names into a captioner."""
    if options.attention is None:
        return None
    from satlib.exercises import plugged

    attend = plugged.load(options.attention)
    return lambda captioner: plugged.plug(captioner, attend, options.attention)


def _captioner(model: Path | str, options: argparse.Namespace) -> "Captioner":
    """A trained model; a line says so where it was trained with an attention that its file cannot carry."""
    from satlib import device, shipped
    from satlib.captioner import Captioner

    captioner = Captioner.load(shipped.or_shipped(Path(model)), device.choose(options.device))
    if captioner.own_attention and getattr(options, "attention", None) is None:
        print(
            f"satlib: {model} was trained with --attention {captioner.own_attention}, and looks by softmax without it;"
            " satlib evaluate takes the same option",
            file=sys.stderr,
        )
    return captioner


def _beside(model: Path) -> Path:
    """Where a model's figures belong: its run; for a model that comes with satlib, the run that its name would have here."""
    from satlib import shipped

    if shipped.or_shipped(model) != model:
        return Path("runs") / model
    return model if model.is_dir() else model.parent


def _tune(options: argparse.Namespace) -> int:
    from satlib import datasets, device, encoders, recipe, tune

    chosen = recipe.load(options.recipe, options.set)
    space = [tune.Knob.read(text) for text in options.vary] or tune.default_space(chosen)
    folder = options.folder or Path("tune") / chosen.name
    root = datasets.data_root(options.data)
    data = datasets.load(chosen.data.name, root, train_images=chosen.data.train_images)
    encoder = None if chosen.encoder.train else encoders.create(chosen.encoder.name, chosen.encoder.pretrained)
    reader = _reader(chosen, data, encoder, root, ("train", "dev"))
    tune.tune(chosen, data, reader, folder, space, options.trials, device.choose(options.device))
    print(f"every trial: {folder / 'history.json'}, drawn in {folder / 'history.png'}")
    if (folder / "best.toml").is_file():
        print(f"the best recipe so far is {folder / 'best.toml'}; next: satlib train {folder / 'best.toml'}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from satlib import datasets, evaluation

    captioner = _captioner(options.model, options)
    chosen = captioner.recipe
    if plug := _plug(options):
        plug(captioner)
    root = datasets.data_root(options.data)
    data = datasets.load(chosen.data.name, root, train_images=chosen.data.train_images)
    evaluation.images_of(data, options.split)  # before a store is asked for that nobody needs
    reader = _reader_of(captioner, data, root, (options.split,))
    found = evaluation.evaluate(
        captioner, data, reader, options.split, options.beam, options.length_normalisation, look=options.look
    )
    folder = options.out or _beside(options.model)
    path = evaluation.save(found, folder)
    print(f"{found['images']:,} images of {found['data']} {found['split']}, beam {found['beam']}; {found['protocol']}")
    for name, value in found["metrics"].items():
        print(f"  {name:28} {value:6.2f}")
    for note in found["notes"]:
        print(f"note: {note}")
    print(f"written to {path}")
    return 0


def _ground(options: argparse.Namespace) -> int:
    from satlib import datasets, evaluation, ground, plots
    from satlib.files import write_json

    captioner = _captioner(options.model, options)
    boxes = ground.Boxes(options.boxes, captioner.view) if options.boxes else None
    chosen = captioner.recipe
    root = datasets.data_root(options.data)
    data = datasets.load(chosen.data.name, root, train_images=chosen.data.train_images)
    ground.require_places(data, boxes)
    reader = _reader_of(captioner, data, root, (options.split,))
    captions = evaluation.generate(captioner, reader, evaluation.images_of(data, options.split), options.beam)
    found = ground.summary(ground.ground(data, captions, boxes))
    folder = options.out or _beside(options.model)
    path = folder / f"ground-{options.split}.json"
    write_json(path, {"recipe": chosen.name, "data": data.name, "split": options.split, **found})
    plots.save(plots.ground_figure(found), path.with_suffix(".png"))
    print(ground.render(found))
    print(f"written to {path} and {path.with_suffix('.png')}")
    return 0


def _reader_of(captioner: "Captioner", data: "CaptionSet", root: Path, splits: Sequence[str]) -> "Reader":
    """Where a trained model's inputs come from."""
    encoder = None if captioner.recipe.encoder.train else captioner.encoder
    return _reader(captioner.recipe, data, encoder, root, splits)


def _reader(
    chosen: "Recipe", data: "CaptionSet", encoder: "Encoder | None", root: Path, splits: Sequence[str]
) -> "Reader":
    """Where a run's inputs come from: pixels where the encoder trains or the data are a stream, else the frozen one's store.

    `splits` are those that will be read: of a store only their images are compared with their files.
    """
    from satlib import features, streaming
    from satlib.datasets.sharded import Shards

    if isinstance(data, Shards):
        return streaming.StreamedImages(chosen.encoder.view)
    if encoder is None:
        return features.Pixels(data, chosen.encoder.view)
    examples = [example for split in splits for example in data.split(split)]
    return features.open_store(root, data, encoder, chosen.encoder.view, examples)


def _caption(options: argparse.Namespace) -> int:
    from satlib import images, plots, shipped

    photos = [images.open_photo(path) for path in options.photos]
    models = options.models or [shipped.model()]
    captioners = [_captioner(model, options) for model in models]
    runs = [(model.parent if model.name == "model.safetensors" else model).resolve() for model in models]
    names = [run.name if run.is_dir() else run.stem for run in runs]  # a run "lr0.001" keeps its whole name
    for path, photo, picture in zip(options.photos, photos, _pictures(options), strict=True):
        captions = [captioner.caption([photo], options.beam)[0] for captioner in captioners]
        if len(captions) == 1:
            only = captions[0]
            plots.attention_figure(photo, only.words, only.alphas, only.betas, picture, captioners[0].view)
            print(f"{path}: {only.text}  (log p {only.log_probability:.1f}; {picture})")
            continue
        rows = [(name, caption.words, caption.alphas) for name, caption in zip(names, captions, strict=True)]
        plots.compare_figure(photo, rows, picture, [captioner.view for captioner in captioners])
        print(f"{path}  ({picture})")
        for name, caption in zip(names, captions, strict=True):
            print(f"  {name}: {caption.text}  (log p {caption.log_probability:.1f})")
    return 0


def _pictures(options: argparse.Namespace) -> list[Path]:
    """A picture's place for each photograph: named after it, and numbered where that name is taken."""
    places: list[Path] = []
    for path in options.photos:
        names = itertools.chain([path.stem], (f"{path.stem}-{number}" for number in itertools.count(2)))
        places.append(next(place for name in names if (place := options.pictures / f"{name}.png") not in places))
    return places


def _mix(options: argparse.Namespace) -> int:
    from satlib import shipped, training
    from satlib.captioner import Captioner
    from satlib.mixing import mix

    file = options.run / training.MODEL
    if file.exists():
        raise SatlibError(f"{file} is there already; name another folder")
    a, b = (Captioner.load(shipped.or_shipped(model)) for model in (options.a, options.b))
    mix(a, b, options.share).save(file)
    print(f"{file}: {options.share:g} of {options.b}; next: satlib evaluate {options.run} --split dev")
    return 0


def _export(options: argparse.Namespace) -> int:
    from satlib import shipped
    from satlib.captioner import Captioner

    if options.file.suffix != ".safetensors":
        raise SatlibError(f"{options.file} must end in .safetensors, which is what it will hold")
    Captioner.load(shipped.or_shipped(options.model)).save(options.file, options.storage)
    print(f"{options.file}: {options.file.stat().st_size / 1e6:.1f} MB, {options.storage}")
    return 0


def _table(options: argparse.Namespace) -> int:
    from satlib import shipped, table

    files = []
    for path in options.files:
        found = sorted(path.glob("evaluation-*.json")) if path.is_dir() else [path]
        if not found:
            raise SatlibError(f"{path} holds no evaluation; make one with: satlib evaluate {path}")
        files += found
    files = files or [*shipped.evaluations(), *sorted(Path("runs").glob("*/evaluation-*.json"))]
    print(table.render(table.rows(files, options.split), "markdown" if options.markdown else "text"))
    return 0


def _estimators(options: argparse.Namespace) -> int:
    from satlib import estimators

    print(estimators.report(options.draws))
    return 0


def _check(options: argparse.Namespace) -> int:
    from satlib.exercises import grading

    return grading.main(options.files, options.json, options.processes, options.only)


def _bench(options: argparse.Namespace) -> int:
    parts = options.parts or ["step", "extraction", "beam", "loader"]
    unknown = set(parts) - set(BENCHES)
    if unknown:
        raise SatlibError(f"bench has no part {sorted(unknown)[0]!r}; choose among {', '.join(BENCHES)}")
    from satlib import bench_report

    bench_report.run(parts, options)
    return 0


def _info(options: argparse.Namespace) -> int:
    from satlib import info

    print(info.report())
    return 0


def _demo(options: argparse.Namespace) -> int:
    from satlib import demo

    demo.run(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
