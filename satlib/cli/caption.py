"""Commands that use models: `satlib evaluate`, `ground`, `caption` and `table`."""

import argparse
import itertools
from pathlib import Path

from satlib.cli import inputs
from satlib.cli.arguments import (
    MODEL,
    SPLITS,
    Commands,
    at_least_zero,
    attention_option,
    beam_option,
    command,
    data_option,
    device_option,
    split_option,
)
from satlib.configs import LOOKS
from satlib.errors import SatlibError


def add_evaluate(commands: Commands) -> None:
    """`satlib evaluate`."""
    parser = command(commands, "evaluate", evaluate, "generate captions for a split and score them")
    parser.add_argument("model", type=Path, help=MODEL)
    split_option(parser)
    beam_option(parser)
    parser.add_argument(
        "--length-normalisation",
        type=at_least_zero,
        metavar="X",
        help="rank hypotheses by log p / length^X; by default the recipe's",
    )
    parser.add_argument(
        "--look",
        choices=LOOKS,
        help="the context vector of hard attention (see decoding.look in satlib recipe --explain); by default the recipe's",
    )
    parser.add_argument("--out", type=Path, help="folder for the evaluation file; by default that of the model")
    data_option(parser)
    device_option(parser)
    attention_option(parser)


def evaluate(options: argparse.Namespace) -> int:
    """Generate and score captions."""
    from satlib import evaluation

    captioner = inputs.captioner(options.model, options)
    if plug := inputs.own_attention(options):
        plug(captioner)
    data, root = inputs.data_of(captioner.recipe, options)
    evaluation.images_of(data, options.split)  # an empty split is reported before a missing feature store
    reader = inputs.model_reader(captioner, data, root, (options.split,))
    result = evaluation.evaluate(
        captioner, data, reader, options.split, options.beam, options.length_normalisation, look=options.look
    )
    path = evaluation.save(result, options.out or inputs.results_folder(options.model))
    print(
        f"{result['images']:,} images of {result['data']} {result['split']}, beam {result['beam']}; {result['protocol']}"
    )
    for name, value in result["metrics"].items():
        print(f"  {name:28} {value:6.2f}")
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"written to {path}")
    return 0


def add_ground(commands: Commands) -> None:
    """`satlib ground`."""
    parser = command(commands, "ground", ground, "measure whether words look at the objects that they name")
    parser.add_argument("model", type=Path, help=MODEL)
    split_option(parser)
    parser.add_argument(
        "--boxes", type=Path, help="bounding boxes of the photographs, COCO's instances_*.json; drawn scenes need none"
    )
    beam_option(parser)
    parser.add_argument("--out", type=Path, help="folder for the scores and their plot; by default that of the model")
    data_option(parser)
    device_option(parser)


def ground(options: argparse.Namespace) -> int:
    """Compare attention maps with the places of objects."""
    from satlib import evaluation, ground, plots
    from satlib.files import write_json

    captioner = inputs.captioner(options.model, options)
    boxes = ground.Boxes(options.boxes, captioner.view) if options.boxes else None
    data, root = inputs.data_of(captioner.recipe, options)
    ground.require_places(data, boxes)
    reader = inputs.model_reader(captioner, data, root, (options.split,))
    captions = evaluation.generate(captioner, reader, evaluation.images_of(data, options.split), options.beam)
    scores = ground.summary(ground.ground(data, captions, boxes))
    path = (options.out or inputs.results_folder(options.model)) / f"ground-{options.split}.json"
    write_json(path, {"recipe": captioner.recipe.name, "data": data.name, "split": options.split, **scores})
    plots.save(plots.ground_figure(scores), path.with_suffix(".png"))
    print(ground.render(scores))
    print(f"written to {path} and {path.with_suffix('.png')}")
    return 0


def add_caption(commands: Commands) -> None:
    """`satlib caption`."""
    parser = command(commands, "caption", caption, "caption photographs, and draw where each word looked")
    parser.add_argument("photos", type=Path, nargs="+", metavar="IMAGE", help="image files of any usual format")
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        dest="models",
        help=f"{MODEL}; may be repeated, to compare models",
    )
    beam_option(parser)
    parser.add_argument("--pictures", type=Path, default=Path("captions"), help="folder for the pictures of attention")
    device_option(parser)


def caption(options: argparse.Namespace) -> int:
    """Caption photographs."""
    from satlib import images, plots, shipped
    from satlib.familiarity import remark

    photos = [images.open_photo(path) for path in options.photos]
    models = options.models or [shipped.model()]
    captioners = [inputs.captioner(model, options) for model in models]
    names = [_name(model) for model in models]
    for path, photo, picture in zip(options.photos, photos, _pictures(options), strict=True):
        captions = [captioner.caption([photo], options.beam)[0] for captioner in captioners]
        if len(captions) == 1:
            only = captions[0]
            plots.attention_figure(photo, only.words, only.alphas, only.betas, picture, captioners[0].view)
            print(f"{path}: {only.text}{remark(only)}  (log p {only.log_probability:.1f}; {picture})")
            continue
        rows = [(name, caption.words, caption.alphas) for name, caption in zip(names, captions, strict=True)]
        plots.compare_figure(photo, rows, picture, [captioner.view for captioner in captioners])
        print(f"{path}  ({picture})")
        for name, caption in zip(names, captions, strict=True):
            print(f"  {name}: {caption.text}{remark(caption)}  (log p {caption.log_probability:.1f})")
    return 0


def _name(model: Path) -> str:
    """The name of a model in a comparison: that of its run's folder, or of its file without the suffix."""
    run = (model.parent if model.name == "model.safetensors" else model).resolve()
    return run.name if run.is_dir() else run.stem  # a run "lr0.001" keeps its whole name


def _pictures(options: argparse.Namespace) -> list[Path]:
    """The file of each photograph's picture: named after the photograph, with a number where that name is taken."""
    files: list[Path] = []
    for path in options.photos:
        names = itertools.chain([path.stem], (f"{path.stem}-{number}" for number in itertools.count(2)))
        files.append(next(file for name in names if (file := options.pictures / f"{name}.png") not in files))
    return files


def add_table(commands: Commands) -> None:
    """`satlib table`."""
    parser = command(commands, "table", table, "print a table like the paper's Table 1: published results beside yours")
    parser.add_argument(
        "files", type=Path, nargs="*", help="evaluation files or run folders; by default runs/* and satlib's own"
    )
    parser.add_argument("--split", choices=SPLITS, default="test", help="the split that was evaluated")
    parser.add_argument("--markdown", action="store_true", help="write Markdown")


def table(options: argparse.Namespace) -> int:
    """Print the table."""
    from satlib import shipped, table

    files: list[Path] = []
    for path in options.files:
        evaluations = sorted(path.glob("evaluation-*.json")) if path.is_dir() else [path]
        if not evaluations:
            raise SatlibError(f"{path} has no evaluation; make one with: satlib evaluate {path}")
        files += evaluations
    files = files or [*shipped.evaluations(), *sorted(Path("runs").glob("*/evaluation-*.json"))]
    print(table.render(table.rows(files, options.split), "markdown" if options.markdown else "text"))
    return 0


COMMANDS = (add_evaluate, add_ground, add_caption, add_table)
