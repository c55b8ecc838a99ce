"""Commands that use models and their captions: `satlib evaluate`, `score`, `ground`, `caption` and `table`."""

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

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
    data_set_option,
    device_option,
    json_option,
    language_option,
    out_option,
    printed,
    split_option,
)
from satlib.errors import SatlibError
from satlib.recipe import LOOKS

if TYPE_CHECKING:
    from satlib.model.captioner import Caption


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
    out_option(parser, "folder for the evaluation file; by default that of the model")
    json_option(parser)
    data_set_option(parser)
    data_option(parser)
    device_option(parser)
    attention_option(parser)


def evaluate(options: argparse.Namespace) -> int:
    """Generate and score captions."""
    from satlib.evaluation import evaluate

    captioner = inputs.captioner(options.model, options)
    if plug := inputs.own_attention(options):
        plug(captioner)
    data, root = inputs.data_of(captioner.recipe, options)
    evaluate.images_of(data, options.split)  # an empty split is reported before a missing feature store
    reader = inputs.images_reader(captioner, data, root, options)
    result = evaluate.evaluate(
        captioner, data, reader, options.split, options.beam, options.length_normalisation, look=options.look
    )
    path = evaluate.save(result, inputs.results_folder(options, data))
    if options.json:
        return printed({"file": str(path), **{name: value for name, value in result.items() if name not in _LONG}})
    made = f"{result['data']} {result['split']}, beam {result['beam']}"
    _report(result, made, path)
    return 0


_LONG = ("captions", "statistics")  # of an evaluation; its file has them


def _report(result: dict[str, Any], made: str, path: Path) -> None:
    """Print the scores of an evaluation that was written to `path`."""
    print(f"{result['images']:,} images of {made}; {result['protocol']}")
    for name, value in result["metrics"].items():
        print(f"  {name:28} {value:6.2f}")
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"written to {path}")


def add_score(commands: Commands) -> None:
    """`satlib score`."""
    parser = command(commands, "score", score, "score captions from a file, without a model")
    parser.add_argument(
        "captions",
        type=Path,
        metavar="FILE",
        help='an evaluation file, or JSON of the form {"image id": "caption", ...}',
    )
    parser.add_argument(
        "--data-set", metavar="NAME", help="the data set that was captioned; by default that of the evaluation file"
    )
    parser.add_argument("--split", choices=SPLITS, help="the split; by default that of the evaluation file")
    out_option(parser, "folder for the evaluation file; by default that of FILE")
    language_option(parser)
    data_option(parser)


class Rescored(Struct):
    """What `satlib score` needs of an earlier evaluation; the rest it passes on."""

    captions: dict[str, str]
    data: str | None = None
    split: str | None = None
    metrics: dict[str, float] = {}


def score(options: argparse.Namespace) -> int:
    """Score captions from a file."""
    from satlib.data import datasets
    from satlib.evaluation import evaluate
    from satlib.files.reading import read_json

    about = 'an evaluation or {"image id": "caption", ...}', "correct the file"
    content = read_json(options.captions, dict[str, Any], *about)
    earlier = content if isinstance(content.get("captions"), dict) else {}
    read_json(options.captions, Rescored if earlier else dict[str, str], *about)
    captions = earlier.get("captions", content)
    name, split = options.data_set or earlier.get("data"), options.split or earlier.get("split")
    if name is None or split is None:
        raise SatlibError(f"{options.captions} does not say what was captioned: give --data-set and --split")
    data = datasets.load(name, datasets.data_root(options.data))
    result = evaluate.rescore(captions, data, split, earlier, options.language)
    path = evaluate.save(result, options.out or options.captions.parent)
    _report(result, f"{result['data']} {result['split']}", path)
    return 0


def add_ground(commands: Commands) -> None:
    """`satlib ground`."""
    parser = command(commands, "ground", ground, "measure whether words look at the objects that they name")
    parser.add_argument("model", type=Path, help=MODEL)
    split_option(parser)
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--boxes", type=Path, help="bounding boxes of the photographs, COCO's instances_*.json; drawn scenes need none"
    )
    places.add_argument(
        "--entities",
        type=Path,
        metavar="PATH",
        help="Flickr30k Entities, for the photographs of Flickr8k and Flickr30k: a folder with Annotations and Sentences, or "
        "annotations.zip; measures true and generated captions",
    )
    beam_option(parser)
    out_option(parser, "folder for the scores and their plot; by default that of the model")
    data_set_option(parser)
    data_option(parser)
    device_option(parser)


def ground(options: argparse.Namespace) -> int:
    """Compare attention maps with the places of objects."""
    from satlib.evaluation import evaluate, ground, plots
    from satlib.files.atomic import write_json

    if options.entities:
        return _ground_phrases(options)
    captioner = inputs.captioner(options.model, options)
    boxes = ground.Boxes(options.boxes, captioner.view) if options.boxes else None
    data, root = inputs.data_of(captioner.recipe, options)
    ground.require_places(data, boxes)
    reader = inputs.images_reader(captioner, data, root, options)
    captions = evaluate.generate(captioner, reader, evaluate.images_of(data, options.split), options.beam)
    scores = ground.summary(ground.ground(data, captions, boxes))
    path = inputs.results_folder(options, data) / f"ground-{options.split}.json"
    write_json(path, {"recipe": captioner.recipe.name, "data": data.name, "split": options.split, **scores})
    plots.save(plots.ground_figure(scores), path.with_suffix(".png"))
    print(ground.render(scores))
    print(f"written to {path} and {path.with_suffix('.png')}")
    return 0


def _ground_phrases(options: argparse.Namespace) -> int:
    """Compare attention maps with the boxes of phrases."""
    from satlib.data.entities import Entities
    from satlib.evaluation import evaluate, phrase_grounding, phrase_report
    from satlib.files.atomic import write_json

    entities = Entities(options.entities)
    captioner = inputs.captioner(options.model, options)
    data, root = inputs.data_of(captioner.recipe, options)
    entities.covered(example.image_id for example in evaluate.images_of(data, options.split))
    reader = inputs.images_reader(captioner, data, root, options)
    found = phrase_grounding.ground(captioner, data, reader, entities, options.split, options.beam)
    report, recipe = phrase_report.report(found), captioner.recipe.name
    path = inputs.results_folder(options, data) / f"ground-{options.split}.json"
    write_json(path, {"recipe": recipe, "data": data.name, "split": options.split, "entities": report})
    print(phrase_report.render(report))
    print(f"written to {path}")
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
    out_option(parser, "folder for the pictures of attention", default=Path("captions"))
    json_option(parser)
    device_option(parser)


def caption(options: argparse.Namespace) -> int:
    """Caption photographs."""
    from satlib.data import images
    from satlib.evaluation import plots
    from satlib.model import shipped
    from satlib.model.familiarity import remark

    photos = [images.open_photo(path) for path in options.photos]
    models = options.models or [shipped.model()]
    captioners = [inputs.captioner(model, options) for model in models]
    names = [_name(model) for model in models]
    results = []
    for path, photo, picture in zip(options.photos, photos, _pictures(options), strict=True):
        captions = [captioner.caption([photo], options.beam)[0] for captioner in captioners]
        by = dict(zip(names, captions, strict=True))
        results.append(
            {"image": str(path), "picture": str(picture), "captions": [_described(*each) for each in by.items()]}
        )
        if len(captions) == 1:
            only = captions[0]
            plots.attention_figure(photo, only.words, only.alphas, only.betas, picture, captioners[0].view)
            if not options.json:
                print(f"{path}: {only.text}{remark(only)}  (log p {only.log_probability:.1f}; {picture})")
            continue
        rows = [(name, caption.words, caption.alphas) for name, caption in zip(names, captions, strict=True)]
        plots.compare_figure(photo, rows, picture, [captioner.view for captioner in captioners])
        if options.json:
            continue
        print(f"{path}  ({picture})")
        for name, caption in zip(names, captions, strict=True):
            print(f"  {name}: {caption.text}{remark(caption)}  (log p {caption.log_probability:.1f})")
    return printed(results) if options.json else 0


def _described(model: str, caption: "Caption") -> dict[str, Any]:
    """A caption as `satlib caption --json` prints it."""
    return {
        "model": model,
        "caption": caption.text,
        "words": caption.words,
        "log_probability": round(caption.log_probability, 4),
        "unlike": caption.unlike,
    }


def _name(model: Path) -> str:
    """The name of a model in a comparison: that of its run's folder, or of its file without the suffix."""
    run = (model.parent if model.name == "model.safetensors" else model).resolve()
    return run.name if run.is_dir() else run.stem  # a run "lr0.001" keeps its whole name


def _pictures(options: argparse.Namespace) -> list[Path]:
    """The file of each photograph's picture: named after the photograph, with a number where that name is taken."""
    files: list[Path] = []
    for path in options.photos:
        names = itertools.chain([path.stem], (f"{path.stem}-{number}" for number in itertools.count(2)))
        files.append(next(file for name in names if (file := options.out / f"{name}.png") not in files))
    return files


def add_table(commands: Commands) -> None:
    """`satlib table`."""
    parser = command(commands, "table", table, "print a table like the paper's Table 1: published results beside yours")
    parser.add_argument(
        "files", type=Path, nargs="*", help="evaluation files or run folders; by default runs/* and satlib's own"
    )
    parser.add_argument("--split", choices=SPLITS, default="test", help="the split that was evaluated")
    parser.add_argument("--markdown", action="store_true", help="write Markdown")
    parser.add_argument(
        "--no-intervals", action="store_true", help="leave out the 95 %% intervals and the table of differences"
    )
    json_option(parser)


def table(options: argparse.Namespace) -> int:
    """Print the table."""
    from satlib.evaluation import table
    from satlib.model import shipped

    files: list[Path] = []
    for path in options.files:
        evaluations = sorted(path.glob("evaluation-*.json")) if path.is_dir() else [path]
        if not evaluations:
            raise SatlibError(f"{path} has no evaluation; make one with: satlib evaluate {path}")
        files += evaluations
    files = files or [*shipped.evaluations(), *sorted(Path("runs").glob("*/evaluation-*.json"))]
    rows = table.rows(files, options.split)
    if options.json:
        return printed([row.to_json() for row in rows])
    print(table.render(rows, "markdown" if options.markdown else "text", not options.no_intervals))
    return 0


COMMANDS = (add_evaluate, add_score, add_ground, add_caption, add_table)
