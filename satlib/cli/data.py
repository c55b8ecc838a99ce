"""Commands for data: `satlib data` and `features`."""

import argparse
from pathlib import Path

from satlib.cli import inputs
from satlib.cli.arguments import SPLITS, Formatter, add_shared, positive


def add_data(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib data`."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    what = "flickr8k, flickr30k, coco, scenes, the path of a folder or a JSON file (docs/data.md lists their forms), or shards"
    for action, run, text in (
        ("fetch", fetch, "download a data set"),
        ("check", check, "check the files of a data set; 1 if something is wrong"),
        ("shards", shards, "write a data set as WebDataset shards, to train on as a stream"),
    ):
        command = actions.add_parser(action, help=text, description=text, formatter_class=Formatter)
        command.add_argument("--quiet", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.add_argument("name", metavar="DATA", help=what)
        if action == "shards":
            _add_shards(command)
        if action != "fetch":
            add_shared(command, "--language")
        add_shared(command, "--data")
        command.set_defaults(action=run)


def data(options: argparse.Namespace) -> int:
    """Download, check or convert a data set."""
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

    report = check.check(options.name, data_root(options.data), language=options.language)
    print(report)
    return 0 if report.ok else 1


def _add_shards(parser: argparse.ArgumentParser) -> None:
    """The options that only `satlib data shards` has."""
    parser.add_argument("folder", type=Path, help="a new folder for the shards")
    parser.add_argument(
        "--split", choices=SPLITS, action="append", help="a split to write; by default all; may be repeated"
    )
    parser.add_argument(
        "--images-per-shard", type=positive, default=1000, help="the largest number of images in a shard"
    )
    parser.add_argument(
        "--train-images", type=positive, help="how many training images, from the first; by default all"
    )


def shards(options: argparse.Namespace) -> int:
    """Write shards, and print their number and size."""
    from satlib.data import datasets, shards

    data = datasets.load(options.name, datasets.data_root(options.data), train_images=options.train_images or 0)
    splits = options.split or datasets.SPLITS
    index = shards.write(data, options.folder, splits, options.images_per_shard, language=options.language)
    for split, written in index.splits.items():
        images, captions, size = (
            sum(getattr(shard, name) for shard in written) for name in ("images", "captions", "bytes")
        )
        print(
            f"{split:5} {images:9,} images, {captions:10,} captions, {len(written):5,} shards, {size / 1e6:10,.1f} MB"
        )
    language = f" --set data.language={options.language}" if options.language else ""
    print(f"in {options.folder}; next: satlib train RECIPE --set data.name={options.folder}{language}")
    return 0


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
    if chosen.encoder.train or data.streamed:
        reason = "trains its encoder" if chosen.encoder.train else "reads its images as a stream"
        print(f"{chosen.name} {reason}: there is nothing to compute beforehand")
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
