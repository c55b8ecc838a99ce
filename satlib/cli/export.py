"""Commands that put models into other files: `satlib export` and `page`."""

import argparse
from pathlib import Path

from satlib.cli import inputs
from satlib.cli.arguments import MODEL, add_shared
from satlib.errors import SatlibError

STORAGES = ("float32", "float16", "int8")  # as in satlib.files.weights, which imports torch


def add_export(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib export`."""
    parser.add_argument("model", type=Path, help=MODEL)
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("file", type=Path, nargs="?", help="the file to write, NAME.safetensors")
    target.add_argument(
        "--onnx",
        type=Path,
        metavar="FOLDER",
        help="write ONNX graphs there, for programs without PyTorch; with int8 the kernels of the encoder get 11 to 14 bits",
    )
    parser.add_argument(
        "--storage",
        choices=STORAGES,
        default="int8",
        help="the number format of the weights; int8 takes a quarter of the space of float32 and gives almost the same captions",
    )
    parser.add_argument(
        "--familiarity",
        action="store_true",
        help="describe the training images in the file, so that satlib caption says when an image is unlike them; needs the "
        "data set and its features; satlib train does this by itself if the encoder is frozen",
    )
    add_shared(parser, "--data")


def export(options: argparse.Namespace) -> int:
    """Write a model as a small file, or as ONNX graphs."""
    from satlib.model import familiarity, shipped
    from satlib.model.captioner import Captioner

    if options.onnx:
        return _export_onnx(options)
    if options.file.suffix != ".safetensors":
        raise SatlibError(f"{options.file} must end in .safetensors, the format of the file")
    captioner = Captioner.load(shipped.or_shipped(options.model))
    if options.familiarity:
        data, root = inputs.data_of(captioner.recipe, options)
        reader = inputs.model_reader(captioner, data, root, ("train", "dev"))
        captioner.familiarity = familiarity.learn(captioner.annotations, reader, data)
    captioner.save(options.file, options.storage)
    print(f"{options.file}: {options.file.stat().st_size / 1e6:.1f} MB, {options.storage}")
    return 0


def _export_onnx(options: argparse.Namespace) -> int:
    """Write a model as ONNX graphs.

    Raises:
        SatlibError: the model cannot be exported, or --familiarity is given, which is for files.
    """
    from satlib.model import shipped
    from satlib.model.captioner import Captioner
    from satlib.page import export

    if options.familiarity:
        raise SatlibError(
            "--familiarity describes a .safetensors file; export that first, then: satlib export FILE --onnx FOLDER"
        )
    made = export.export(Captioner.load(shipped.or_shipped(options.model)), options.onnx, options.storage)
    for name, content in made["files"].items():
        print(f"{options.onnx / name}: {content['bytes'] / 1e6:.1f} MB")
    off = made["largest difference"]
    print(
        f"{options.storage}; largest difference from PyTorch, on four drawn scenes and one picture of noise: "
        f"{off['alpha']:.1g} in a weight of attention, {off['log_p']:.1g} in the log-probability of a word"
    )
    return 0


def add_page(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib page`."""
    parser.add_argument("folder", type=Path, help="the folder to write; serve it with: python -m http.server -d FOLDER")
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        dest="models",
        help=f"{MODEL}; may be repeated; by default scenes-soft, scenes-hard and flickr8k-lite0-soft",
    )
    parser.add_argument("--storage", choices=STORAGES, default="int8", help="the number format of the weights")


def page(options: argparse.Namespace) -> int:
    """Write the page."""
    from satlib.model import shipped
    from satlib.page import live

    models = options.models or [Path(name) for name in live.MODELS]
    made = live.write(options.folder, [shipped.or_shipped(model) for model in models], options.storage)
    for model in made["models"]:
        print(f"{model['name']}: {model['bytes'] / 1e6:.1f} MB")
    size = sum(file.stat().st_size for file in options.folder.rglob("*") if file.is_file())
    print(
        f"{options.folder}: {size / 1e6:.1f} MB; to see it: python -m http.server -d {options.folder}, then http://localhost:8000"
    )
    return 0
