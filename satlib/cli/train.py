"""Commands on the way to a trained model: satlib data, features, train and recipe."""

import argparse
from pathlib import Path

from satlib import recipe as recipes
from satlib.cli import inputs, outputs
from satlib.cli.options import (
    A_MODEL,
    ATTENTION,
    DATA,
    DEVICE,
    ENTITIES,
    RECIPE,
    SET,
    SKIP,
    command,
    option,
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
    return 0 if check.check(options.name, root) else 1


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

    captions = inputs.captions_of(recipe, options)
    encoder = encoders.create(recipe.encoder.name, recipe.encoder.pretrained)
    folder = features.folder(datasets.data_root(options.data), captions, encoder.name)
    with distributed.launched(installed.device(options.device)) as device:
        store = extract(captions, encoder, folder, device)
        # Of torchrun's processes, the first one reports.
        if not distributed.current().first:
            return
        h, w = store.grid
        print(f"{folder}: {len(store):,} images, {h}x{w} places of {store.dim} dimensions")

        # An untrained LSTM saturates on much larger numbers; test photographs have no say in it.
        examples = captions.split("train") or captions.examples
        size = root_mean_square(store, [example.image_id for example in examples])
        print(f"root mean square {size:.3g}; encoder.scale = {1 / size:.2g} makes it 1")


@command(
    RECIPE,
    SET,
    option("--out", type=Path, metavar="FOLDER", help="the run's folder; by default runs/RECIPE"),
    option("--start", type=Path, metavar="MODEL", help=f"the model to begin with: {A_MODEL}"),
    ENTITIES,
    SKIP,
    option(
        "--checkpoint-every",
        type=float,
        default=recipes.SAVE_SECONDS,
        metavar="SECONDS",
        help="save a checkpoint within an epoch, too, that often (default: %(default)g)",
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

    # The attention first: a mistake in it should show before the data are read.
    own = inputs.own_attention(options)
    changes = [*options.set, *own.changes]
    recipe = recipes.load(options.recipe, changes)
    run = options.out or Path("runs") / recipe.name
    # A run takes its sizes from the model that it begins with, but for those of --set.
    if options.start:
        recipe = starting.fitted(recipe, options.start, changes)

    captions = inputs.captions_of(recipe, options)
    with distributed.launched(installed.device(options.device)) as device:
        reader = inputs.reader_of(recipe, captions, ("train", "dev"), options)
        loop.train(
            recipe,
            captions,
            reader,
            run,
            device,
            start=options.start,
            prepare=own.plug,
            save_seconds=options.checkpoint_every,
            entities=Entities(options.entities) if options.entities else None,
        )
        if not distributed.current().first:
            return

    # COCO's own files have no test split.
    split = "" if captions.split("test") else " --split dev"
    print(f"the model of the best epoch is {run / loop.MODEL}; next: satlib evaluate {run}{split}")
    for line in validation.remarks(run / loop.LOG):
        print(line)


@command(
    option("name", nargs="?", help="a recipe or a .toml file; without it, all are listed"),
    option("--explain", action="store_true", help="each option's default, values and meaning"),
)
def recipe(options: argparse.Namespace) -> None:
    """List the recipes, print one with all its values, or explain the options."""
    if options.explain:
        shown = recipes.load(options.name) if options.name else recipes.Recipe("recipe")
        print(recipes.explained(shown))
    elif options.name:
        # The output is a recipe itself: satlib recipe scenes-soft > my.toml
        print(f"# {recipes.description(options.name)}")
        print(recipes.load(options.name).to_toml(), end="")
    else:
        outputs.print_rows({name: recipes.description(name) for name in recipes.names()})
