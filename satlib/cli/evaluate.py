"""Commands that use models and their captions: `satlib evaluate`, `ground` and `table`."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satlib.cli import inputs
from satlib.cli.arguments import MODEL, SPLITS, add_shared, at_least_zero, printed
from satlib.errors import SatlibError
from satlib.recipe import LOOKS

if TYPE_CHECKING:
    from PIL.Image import Image

    from satlib.data.coco import Boxes
    from satlib.data.entities import Entities
    from satlib.evaluation.grounding import Entry


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib evaluate`."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help=f'{MODEL}; or captions to score without a model: an evaluation file, JSON {{"image id": "caption", ...}}, '
        "or a list in COCO's results format",
    )
    parser.add_argument("--split", choices=SPLITS, help="which split (default: test, or that of the evaluation file)")
    add_shared(parser, "--beam")
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
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="folder for the evaluation file; by default that of the model"
    )
    add_shared(parser, "--json", "--data-set", "--data", "--device", "--attention")


def evaluate(options: argparse.Namespace) -> int:
    """Generate and score captions, or score those of a file."""
    from satlib.evaluation import evaluate

    if options.model.suffix == ".json":
        return _score_file(options)
    options.split = options.split or "test"
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
    return _report(result, f", beam {result['beam']}", path, options)


_LONG = ("captions", "statistics")  # of an evaluation; its file has them


def _report(result: dict[str, Any], how: str, path: Path, options: argparse.Namespace) -> int:
    """Print the scores of an evaluation that was written to `path`; gives the exit status 0."""
    if options.json:
        return printed({"file": str(path), **{name: value for name, value in result.items() if name not in _LONG}})
    print(f"{result['images']:,} images of {result['data']} {result['split']}{how}; {result['protocol']}")
    for name, value in result["metrics"].items():
        print(f"  {name:28} {value:6.2f}")
    for note in result["notes"]:
        print(f"note: {note}")
    print(f"written to {path}")
    return 0


def _score_file(options: argparse.Namespace) -> int:
    """Score captions from a file."""
    from satlib.data import datasets
    from satlib.evaluation import evaluate, results

    earlier, captions = results.read(options.model)
    name, split = options.data_set or earlier.get("data"), options.split or earlier.get("split")
    if name is None or split is None:
        raise SatlibError(f"{options.model} does not say what was captioned: give --data-set and --split")
    data = datasets.load(name, datasets.data_root(options.data))
    if isinstance(captions, list):
        captions = results.by_our_ids(captions, data, options.model)
    result = evaluate.rescore(captions, data, split, earlier)
    path = evaluate.save(result, options.out or options.model.parent)
    return _report(result, "", path, options)


def add_ground(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib ground`."""
    parser.add_argument("model", type=Path, help=MODEL)
    parser.add_argument("--split", choices=SPLITS, default="test", help="which split")
    places = parser.add_mutually_exclusive_group()
    places.add_argument(
        "--boxes", type=Path, help="bounding boxes of the photographs, COCO's instances_*.json; drawn scenes need none"
    )
    places.add_argument(
        "--entities",
        type=Path,
        metavar="PATH",
        help="Flickr30k Entities, for the photographs of Flickr8k and Flickr30k: a folder with Annotations and Sentences, or "
        "annotations.zip",
    )
    add_shared(parser, "--beam")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder for the scores and their picture; by default that of the model",
    )
    add_shared(parser, "--data-set", "--data", "--device")


def ground(options: argparse.Namespace) -> int:
    """Compare attention maps with the places of objects."""
    from satlib.evaluation import evaluate, maps, plots
    from satlib.files.atomic import write_json

    if options.entities or options.boxes:
        return _ground_boxes(options)
    captioner = inputs.captioner(options.model, options)
    data, root = inputs.data_of(captioner.recipe, options)
    maps.require_masks(data)
    reader = inputs.images_reader(captioner, data, root, options)
    captions = evaluate.generate(captioner, reader, evaluate.images_of(data, options.split), options.beam)
    scores = maps.summary(maps.ground(data, captions))
    heads = maps.of_heads(captioner, reader, captions)
    if heads:
        scores["by head"] = {name: maps.summary(maps.ground(data, each))["all"] for name, each in heads.items()}
    path = inputs.results_folder(options, data) / f"ground-{options.split}.json"
    write_json(path, {"recipe": captioner.recipe.name, "data": data.name, "split": options.split, **scores})
    plots.save(plots.ground_figure(scores), path.with_suffix(".png"))
    print(maps.render(scores))
    print(f"written to {path} and {path.with_suffix('.png')}")
    return 0


def _places(options: argparse.Namespace) -> "Entities | Boxes":
    """The boxes of --entities or --boxes."""
    from satlib.data.coco import Boxes
    from satlib.data.entities import Entities

    return Entities(options.entities) if options.entities else Boxes(options.boxes)


def _ground_boxes(options: argparse.Namespace) -> int:
    """Compare a captioner's maps with boxes."""
    from satlib.evaluation import evaluate, grounding

    places = _places(options)
    captioner = inputs.captioner(options.model, options)
    data, root = inputs.data_of(captioner.recipe, options)
    examples = evaluate.images_of(data, options.split)
    known = set(grounding.covered(places, (example.image_id for example in examples)))
    reader = inputs.images_reader(captioner, data, root, options)
    annotated = [example for example in examples if example.image_id in known]
    generated = evaluate.generate(captioner, reader, annotated, options.beam)
    entries = grounding.entries(captioner, data, reader, annotated, generated)
    path = inputs.results_folder(options, data) / f"ground-{options.split}.json"
    about = {"recipe": captioner.recipe.name, "data": data.name, "split": options.split}
    return _judged(options, entries, places, path, about, data.image, len(examples) - len(annotated))


def _judged(
    options: argparse.Namespace,
    entries: "Sequence[Entry]",
    places: "Entities | Boxes",
    path: Path,
    about: dict[str, str],
    photo: "Callable[[str], Image] | None",
    left_out: int = 0,
) -> int:
    """Judge maps, write the figures to `path` and a picture beside it, and print them; gives the exit status 0.

    Args:
        options: of the command.
        entries: the captions and maps.
        places: the boxes.
        path: of the figures.
        about: what was judged, for the file.
        photo: gives a photograph by its name; None draws no picture.
        left_out: the number of images without annotations that are not among the entries.
    """
    from satlib.evaluation import grounding, plots
    from satlib.files.atomic import write_json

    report, judgements = grounding.judge(entries, places)
    report["counts"]["images without annotations"] += left_out
    write_json(path, {**about, "entities" if options.entities else "boxes": report})
    print(grounding.render(report))
    print(f"written to {path}", end="\n" if photo is None else "")
    if photo:
        plots.save(plots.sheet(grounding.extremes(judgements), photo), path.with_suffix(".png"))
        print(f" and {path.with_suffix('.png')}")
    return 0


def add_table(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib table`."""
    parser.add_argument(
        "only",
        type=Path,
        nargs="*",
        metavar="WHAT",
        help="names of data sets (flickr8k, for example), evaluation files or run folders; by default runs/* and satlib's own, "
        "of all data sets",
    )
    parser.add_argument("--split", choices=SPLITS, default="test", help="the split that was evaluated")
    parser.add_argument("--markdown", action="store_true", help="write Markdown")
    parser.add_argument(
        "--no-intervals", action="store_true", help="leave out the 95 %% intervals and the table of differences"
    )
    add_shared(parser, "--json")


def table(options: argparse.Namespace) -> int:
    """Print the table."""
    from satlib.evaluation import table
    from satlib.model import shipped

    files: list[Path] = []
    names: list[Path] = []
    for path in options.only:
        evaluations = sorted(path.glob("evaluation-*.json")) if path.is_dir() else [path] if path.exists() else []
        files += evaluations
        names += [] if evaluations else [path]
    files = files or [*shipped.evaluations(), *sorted(Path("runs").glob("*/evaluation-*.json"))]
    rows = table.rows(files, options.split)
    data_sets = {row.data.lower(): row.data for row in rows}
    for name in names:
        if str(name).lower() in data_sets:
            continue
        if name.is_dir():
            raise SatlibError(f"{name} has no evaluation; make one with: satlib evaluate {name}")
        raise SatlibError(
            f"{name} does not exist, and the table has no data set of that name; it has {', '.join(data_sets.values())}"
        )
    if names:
        wanted = {str(name).lower() for name in names}
        rows = [row for row in rows if row.data.lower() in wanted]
    if options.json:
        return printed([row.to_json() for row in rows])
    style = "markdown" if options.markdown else "text"
    print(table.render(rows, style, not options.no_intervals))
    return 0
