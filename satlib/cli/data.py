"""Commands for data: `satlib data` and `features`."""

import argparse

from satlib.cli import inputs
from satlib.cli.arguments import Formatter, add_shared, positive


def add_data(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib data`."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    what = "flickr8k, flickr30k, coco, scenes, or the path of a folder or a JSON file (docs/data.md lists their forms)"
    for action, run, text in (
        ("fetch", fetch, "download a data set"),
        ("check", check, "check the files of a data set; 1 if something is wrong"),
    ):
        command = actions.add_parser(action, help=text, description=text, formatter_class=Formatter)
        command.add_argument("--quiet", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.add_argument("name", metavar="DATA", help=what)
        add_shared(command, "--data")
        command.set_defaults(action=run)


def data(options: argparse.Namespace) -> int:
    """Download or check a data set."""
    return options.action(options)


def fetch(options: argparse.Namespace) -> int:
    """Download a data set."""
    from satlib.data import download
    from satlib.data.datasets import data_root

    download.fetch(options.name, data_root(options.data))
    return 0


def check(options: argparse.Namespace) -> int:
    """Check the files of a data set; 1 if something is wrong."""
    from satlib.data import check
    from satlib.data.datasets import data_root

    report = check.check(options.name, data_root(options.data))
    print(report)
    return 0 if report.ok else 1


def add_features(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib features`."""
    add_shared(parser, "recipe", "--set", "--data", "--device")
    parser.add_argument("--batch-size", type=positive, default=32, help="images per batch")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare the content of all images and the checksums of all vectors, not only sizes and times of files",
    )


def features(options: argparse.Namespace) -> int:
    """Compute annotation vectors."""
    from satlib import recipe
    from satlib.data import features
    from satlib.model import device, encoders
    from satlib.training import distributed, scaling
    from satlib.training.features import extract

    chosen = recipe.load(options.recipe, options.set)
    data, root = inputs.data_of(chosen, options)
    if chosen.encoder.train:
        print(f"{chosen.name} trains its encoder: there is nothing to compute beforehand")
        return 0
    encoder = encoders.create(chosen.encoder.name, chosen.encoder.pretrained)
    folder = features.folder(root, data, encoder.name, chosen.encoder.view)
    with distributed.launched(device.choose(options.device)) as place:
        store = extract(
            data, encoder, folder, place, options.batch_size, view=chosen.encoder.view, verify=options.verify
        )
        first = distributed.current().first
    if first:
        h, w = store.grid
        print(f"{folder}: {len(store):,} images, {h}x{w} places of {store.dim} dimensions")
        size = scaling.root_mean_square(encoder, store, [one.image_id for one in data.split("train") or data.examples])
        print(f"root mean square {size:.3g}: encoder.scale = {scaling.scale_of(size):g} brings it to about 1")
    return 0
