"""Commands that make models: `satlib train` and `tune`."""

import argparse
from pathlib import Path

from satlib.cli import inputs
from satlib.cli.arguments import MODEL, add_shared, at_least_zero, positive
from satlib.recipe import SAVE_SECONDS


def add_train(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib train`."""
    add_shared(parser, "recipe", "--set")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="the run's folder; by default runs/RECIPE")
    parser.add_argument(
        "--start",
        type=Path,
        metavar="MODEL",
        help=f"start a new run from the weights of a trained model (such as hard attention from soft): {MODEL}",
    )
    parser.add_argument(
        "--entities",
        type=Path,
        metavar="PATH",
        help="Flickr30k Entities (folder or zip): boxes that supervise attention (see objective.boxes)",
    )
    parser.add_argument(
        "--checkpoint-every",
        type=at_least_zero,
        default=SAVE_SECONDS,
        metavar="SECONDS",
        help="write a checkpoint within an epoch when the last one is this old",
    )
    add_shared(parser, "--data", "--device", "--attention")


def train(options: argparse.Namespace) -> int:
    """Train, or resume a run."""
    from satlib import recipe
    from satlib.data.entities import Entities
    from satlib.data.features import FeatureStore
    from satlib.model import device, familiarity, shipped
    from satlib.training import distributed, loop, starting, validation

    prepare = inputs.own_attention(options)
    chosen = recipe.load(options.recipe, options.set)
    run = options.out or Path("runs") / chosen.name
    start = options.start and shipped.or_shipped(options.start)
    if start:
        chosen = starting.fitted(chosen, start, options.set)
    data, root = inputs.data_of(chosen, options)
    with distributed.launched(device.choose(options.device)) as place:
        reader = inputs.training_reader(chosen, data, root)
        captioner = loop.train(
            chosen, data, reader, run, place, start=start, prepare=prepare,
            save_seconds=options.checkpoint_every, entities=options.entities and Entities(options.entities),
        )  # fmt: skip
        first = distributed.current().first
    if first:
        if captioner.familiarity is None and isinstance(reader, FeatureStore):
            captioner.familiarity = familiarity.learn(captioner.annotations, reader, data)
            captioner.save(run / loop.MODEL)
        print(f"the model of the best epoch is {run / loop.MODEL}; next: satlib evaluate {run}")
        for line in validation.remarks(validation.read_log(run / loop.LOG), chosen.training.select):
            print(line)
    return 0


def add_tune(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib tune`."""
    add_shared(parser, "recipe", "--set")
    parser.add_argument(
        "--vary",
        action="append",
        default=[],
        metavar="SECTION.KEY=LOW..HIGH",
        help="a value to search, within a range or among choices (SECTION.KEY=A,B,C); may be repeated; by default the usual ones",
    )
    parser.add_argument("--trials", type=positive, default=20, help="number of trials in all, earlier ones included")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="the search's folder; by default tune/RECIPE")
    add_shared(parser, "--data", "--device")


def tune(options: argparse.Namespace) -> int:
    """Search hyperparameters."""
    from satlib import recipe
    from satlib.model import device
    from satlib.training import tuning

    chosen = recipe.load(options.recipe, options.set)
    space = [tuning.Knob.read(text) for text in options.vary] or tuning.default_space(chosen)
    folder = options.out or Path("tune") / chosen.name
    data, root = inputs.data_of(chosen, options)
    reader = inputs.training_reader(chosen, data, root)
    tuning.tune(chosen, data, reader, folder, space, options.trials, device.choose(options.device))
    print(f"all trials are in {folder / 'history.json'}, with a plot in {folder / 'history.png'}")
    if (folder / "best.toml").is_file():
        print(f"the best recipe so far is {folder / 'best.toml'}; next: satlib train {folder / 'best.toml'}")
    return 0
