"""Commands that say what a model is worth: satlib evaluate, ground and table."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from satlib.cli import inputs, outputs
from satlib.cli.options import (
    A_MODEL,
    ATTENTION,
    BEAM,
    DATA,
    DATA_SET,
    DEVICE,
    ENTITIES,
    JSON,
    MODEL,
    OUT,
    SPLIT,
    SPLITS,
    command,
    option,
)
from satlib.errors import SatlibError


@command(
    option(
        "model",
        type=Path,
        help=f"{A_MODEL}; or a .json file of captions, to score them without a model",
    ),
    option("--split", choices=SPLITS, help="the split (default: test, or the file's)"),
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
    if options.model.suffix == ".json":
        evaluation, path = _of_captions(options)
    elif options.model.suffix in (".csv", ".jsonl", ".txt"):
        raise SatlibError(
            f"{options.model} is no .json file of captions; docs/scripts.md scores those of a table"
        )
    else:
        evaluation, path = _of_model(options)

    if options.json:
        # The captions and the numbers of each image are in the file.
        short = {"file": str(path), **evaluation}
        del short["captions"], short["statistics"]
        outputs.print_json(short)
        return
    print(f"{evaluation['images']:,} images of {evaluation['data']} {evaluation['split']}")
    for name, value in evaluation["metrics"].items():
        print(f"  {name:28} {value:6.2f}")
    for note in evaluation["notes"]:
        print(f"note: {note}")
    print(f"written to {path}")


def _of_captions(options: argparse.Namespace) -> tuple[dict[str, Any], Path]:
    """The evaluation of a file's captions, which may be an evaluation itself, and where it is."""
    from satlib.data import datasets
    from satlib.evaluation import evaluate

    earlier, texts = evaluate.read_captions(options.model)
    name = options.data_set or earlier.get("data")
    split = options.split or earlier.get("split")
    if name is None or split is None:
        raise SatlibError(
            f"{options.model} does not say what was captioned: give --data-set and --split"
        )
    captions = datasets.load(name, datasets.data_root(options.data))
    texts = evaluate.by_image_id(texts, evaluate.images_of(captions, split))
    scored = evaluate.score(texts, captions, split)

    # What needs the model, such as its recipe and the scores of its maps, stays as it was.
    metrics = earlier.get("metrics", {}) | scored["metrics"]
    evaluation = {**earlier, **scored, "metrics": metrics}
    return evaluation, evaluate.save(evaluation, options.out or options.model.parent)


def _of_model(options: argparse.Namespace) -> tuple[dict[str, Any], Path]:
    """The evaluation of a model, and where it is."""
    from satlib.evaluation import evaluate

    split = options.split or "test"
    captioner = inputs.captioner_of(options.model, options)
    captions = inputs.captions_of(captioner.recipe, options)
    evaluate.images_of(captions, split)  # an empty split is reported before a missing store
    reader = inputs.reader_of(captioner.recipe, captions, (split,), options, captioner)
    evaluation = evaluate.evaluate(
        captioner,
        captions,
        reader,
        split,
        beam=options.beam,
        length_normalisation=options.length_normalisation,
        look=options.look,
    )
    return evaluation, evaluate.save(evaluation, outputs.results_folder(options, captions))


@command(MODEL, SPLIT, ENTITIES, BEAM, OUT, DATA_SET, DATA, DEVICE, ATTENTION)
def ground(options: argparse.Namespace) -> None:
    """Measure whether words look at the objects that they name."""
    from satlib.data.entities import Entities
    from satlib.evaluation import evaluate, maps
    from satlib.files import write_json

    if options.entities and options.beam:
        raise SatlibError("--beam goes without --entities: boxes belong to people's captions")
    captioner = inputs.captioner_of(options.model, options)
    recipe = captioner.recipe
    captions = inputs.captions_of(recipe, options)
    entities = Entities(options.entities) if options.entities else None
    examples = evaluate.images_of(captions, options.split)
    if entities is None and captions.name != "scenes":
        raise SatlibError(
            f"{captions.name} has no masks; give boxes with --entities (Flickr30k Entities)"
        )

    # Boxes belong to the words of true captions, the masks of scenes to whatever names an object.
    reader = inputs.reader_of(recipe, captions, (options.split,), options, captioner)
    if entities:
        kind = "true"
        words = maps.measure_true(captioner, reader, examples, entities)
    else:
        kind = "generated"
        generated = evaluate.generate(captioner, reader, examples, options.beam)
        words = maps.measure_all(examples, generated, recipe.decoder.attention != "none")
    means = maps.summary(words)

    path = outputs.results_folder(options, captions) / f"ground-{options.split}.json"
    about = {"recipe": recipe.to_dict(), "data": captions.name, "split": options.split}
    write_json(path, {**about, kind: {"all": means}})
    print(maps.render(means))
    print(f"written to {path}")


@command(
    option(
        "only",
        nargs="*",
        metavar="WHAT",
        help="data sets, evaluation files or runs; by default all",
    ),
    option("--split", choices=SPLITS, default="test", help="the evaluated split"),
    JSON,
)
def table(options: argparse.Namespace) -> None:
    """Print a table like the paper's Table 1: published results beside yours."""
    from satlib.evaluation import table

    files, names = _files_and_names(options.only)
    rows = table.rows(files, options.split)
    if names:
        # One may ask for whatever there are rows of, published ones included.
        known = sorted({row.data for row in rows})
        unknown = names - {name.lower() for name in known}
        if unknown:
            raise SatlibError(
                f"{min(unknown)} is neither a file nor a data set of the table; "
                f"it has {', '.join(known)}"
            )
        rows = [row for row in rows if row.data.lower() in names]

    if not options.json:
        print(table.render(rows))
        return
    values = []
    for row in rows:
        values.append({"data": row.data, "name": row.name, "ours": row.ours, "scores": row.figures})
    outputs.print_json(values)


def _files_and_names(words: Sequence[str]) -> tuple[list[Path], set[str]]:
    """The evaluations and the data sets that a table's words name; without a file, all of them."""
    from satlib.model import installed

    # A word is a path if there is such a file or folder, and the name of a data set otherwise.
    paths = []
    names = set()
    for word in words:
        if Path(word).exists():
            paths.append(Path(word))
        else:
            names.add(word.lower())

    files = []
    for path in paths:
        files += sorted(path.glob("evaluation-*.json")) if path.is_dir() else [path]
    if paths and not files:
        raise SatlibError(f"{paths[0]} has no evaluation; satlib evaluate {paths[0]} makes one")
    if not files:
        files = [*installed.evaluations(), *sorted(Path("runs").glob("*/evaluation-*.json"))]
    return files, names
