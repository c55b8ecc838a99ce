"""Commands that use a trained model: satlib caption, export, page and info."""

import argparse
import platform
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satlib import __version__, captioning
from satlib.cli import inputs, outputs
from satlib.cli.options import (
    A_MODEL,
    ATTENTION,
    BEAM,
    DEVICE,
    JSON,
    MODEL,
    STORAGE,
    command,
    option,
    positive,
)
from satlib.errors import SatlibError

if TYPE_CHECKING:
    from satlib.evaluation.how_sure import Band
    from satlib.model.captioner import Captioner


@command(
    option("photos", type=Path, nargs="+", metavar="PHOTO", help="image files, or folders of them"),
    option("--model", type=Path, help=f"{A_MODEL}; by default the one for photographs"),
    BEAM,
    option("--best", type=positive, default=1, metavar="N", help="captions of each photograph"),
    option(
        "--sample",
        type=positive,
        metavar="N",
        help="draw N captions of each photograph in place of the best",
    ),
    option(
        "--temperature",
        type=float,
        default=1.0,
        metavar="X",
        help="of --sample: below 1 nearer to the most probable words (default: 1)",
    ),
    option("--seed", type=int, default=0, metavar="N", help="of --sample: the same draws the same"),
    option(
        "--out",
        type=Path,
        metavar="FOLDER",
        default=Path("captions"),
        help="folder for the pictures",
    ),
    option("--animate", action="store_true", help="also an animation (WebP)"),
    option(
        "--table",
        type=Path,
        metavar="FILE.csv",
        help="add captions to a table, none of a model twice; draw nothing",
    ),
    ATTENTION,
    JSON,
    DEVICE,
)
def caption(options: argparse.Namespace) -> int:
    """Caption photographs, and draw where each word looked."""
    from satlib.evaluation import how_sure
    from satlib.model import installed

    _require_consistent(options)
    # The model as it was named: that is how --json names it.
    model = options.model or Path(installed.PHOTOGRAPHS)
    captioner = inputs.captioner_of(model, options)
    results = captioning.caption_folder(
        options.photos,
        captioner,
        table=options.table,
        out=options.out,
        best=options.best,
        beam=options.beam,
        animate=options.animate,
        sample=options.sample or 0,
        temperature=options.temperature,
        seed=options.seed,
    )
    bands = _bands(captioner, options)
    # A model of drawn scenes is as sure of a photograph, which it has no words for.
    judged = " of drawn scenes" if captioner.recipe.data.name == "scenes" else ""
    found = []  # without the maps, which would fill the memory
    left_out = 0
    for result in results:
        if result.error:
            print(f"satlib: {result.error}", file=sys.stderr)
            left_out += 1
            continue
        band = how_sure.band_of(bands, result.captions[0].confidence)
        found.append(_as_json(result, model, band))
        if not options.json:
            _print(result, band.in_words(judged) if band else "")

    if options.json and found:
        outputs.print_json(found)
    elif found and (options.sample or options.best > 1):
        print(_variety(found))
    if not left_out:
        return 0
    # If nothing could be read, the mistake is in what was asked for, or the table has the others.
    return 1 if found or _has_captions(options.table) else 2


def _has_captions(table: Path | None) -> bool:
    """Whether a table, if there is one, has more than its heading."""
    if table is None:
        return False
    with open(table.expanduser(), "rb") as file:
        return len(list(islice(file, 2))) == 2


def _require_consistent(options: argparse.Namespace) -> None:
    """Refuse options of searching beside those of drawing."""
    if options.sample and (options.beam or options.best > 1):
        raise SatlibError("--best and --beam go without --sample: it draws, and does not search")
    if not options.sample and (options.temperature != 1 or options.seed):
        raise SatlibError("--temperature and --seed go with --sample")


def _bands(captioner: "Captioner", options: argparse.Namespace) -> "list[Band]":
    """How many captions with a score are true; none where nobody judged captions made so."""
    from satlib.evaluation import how_sure

    # What was judged are the best captions of the model's own search.
    as_judged = not (options.sample or options.beam or options.attention)
    return how_sure.bands_of(captioner) if as_judged else []


def _as_json(result: captioning.Result, model: Path, band: "Band | None") -> dict[str, Any]:
    """A photograph as --json prints it (docs/scripts.md)."""
    captions = []
    for caption in result.captions:
        captions.append({"model": str(model), **caption.to_json(), "true_of_such": None})
    if band:
        captions[0]["true_of_such"] = f"{band.true} of {band.judged}"
    return {
        "image": str(result.path),
        "picture": str(result.picture) if result.picture else None,
        "animation": str(result.animation) if result.animation else None,
        "captions": captions,
    }


def _variety(found: list[dict[str, Any]]) -> str:
    """How varied several captions of each photograph are."""
    captions = []
    words = set()
    for photo in found:
        for caption in photo["captions"]:
            captions.append((photo["image"], caption["caption"]))
            words.update(caption["words"])
    return (
        f"{len(captions):,} captions of {len(found):,} photographs: "
        f"{len(set(captions)):,} distinct, {len(words):,} words"
    )


def _print(result: captioning.Result, true_of_such: str) -> None:
    """Print each caption on a line, and below them the file, the scores and what was drawn.

    true_of_such: of the best caption, how many with such a score were true, where that is known.
    """
    for caption in result.captions:
        print(caption.text or "(no words)")

    scores = ", ".join(f"{caption.confidence:.2f}" for caption in result.captions)
    about = [str(result.path), f"score {scores}"]
    if true_of_such:
        about.append(true_of_such)
    about += [str(file) for file in (result.picture, result.animation) if file]
    line = "; ".join(about)
    if sys.stdout.isatty():  # faint, so that the captions stand out
        line = f"\x1b[2m{line}\x1b[0m"
    print(f"  {line}", flush=True)  # a photograph takes seconds: nobody should wait for a buffer


@command(
    MODEL,
    option("target", type=Path, help="the file to write, NAME.safetensors; with --onnx, a folder"),
    option("--onnx", action="store_true", help="write ONNX graphs, for programs without PyTorch"),
    STORAGE,
    ATTENTION,
    DEVICE,
)
def export(options: argparse.Namespace) -> None:
    """Write a model as a small file, or as ONNX graphs."""
    captioner = inputs.captioner_of(options.model, options)
    if options.onnx:
        # Only now: onnx is an extra that a file of weights does not need.
        from satlib.page import export

        export.export(captioner, options.target, options.storage)
        print(f"written to {options.target}")
        return

    if options.target.suffix != ".safetensors":
        raise SatlibError(f"{options.target} must end in .safetensors")
    captioner.save(options.target, options.storage)
    megabytes = options.target.stat().st_size / 1e6
    print(f"{options.target}: {megabytes:.1f} MB, {options.storage}")


@command(
    option("folder", type=Path, help="the folder to write"),
    option(
        "--model", action="append", dest="models", metavar="MODEL", help=f"{A_MODEL}; repeatable"
    ),
    option("--open", action="store_true", help="show it"),
    STORAGE,
    # No function: on a page no Python runs, and a class is exported with the model.
    option(
        "--attention",
        metavar="FILE:NAME",
        help="your own class, with which the models were trained (docs/contributing.md)",
    ),
)
def page(options: argparse.Namespace) -> None:
    """Write a web page on which captioners run in the browser."""
    from satlib.page import live

    if inputs.own_attention(options).plug:
        raise SatlibError(
            f"a page cannot run the function {options.attention}: give a class "
            "(docs/contributing.md)"
        )
    live.write(options.folder, options.models, options.storage)
    print(f"written to {options.folder}")
    if options.open:
        live.show(options.folder)


@command(
    option(
        "model", type=Path, nargs="?", help=f"print what this model's file says instead: {A_MODEL}"
    ),
    JSON,
)
def info(options: argparse.Namespace) -> None:
    """Print versions, devices and what is missing; or what a model's file says."""
    topics = _of_model(options.model) if options.model else _of_this_machine()
    if options.json:
        outputs.print_json(topics)
    else:
        outputs.print_rows(topics)


def _of_model(model: Path) -> dict[str, str]:
    """What a model's file says, by topic."""
    from satlib.model import captioner

    path, header, tensors = captioner.read_file(model)
    megabytes = path.stat().st_size / 1e6
    weights = sum(value.numel() for value in tensors.values())
    topics = {
        "file": f"{path}, {megabytes:.1f} MB, {weights:,} weights",
        "vocabulary": f"{len(header.vocabulary):,} words",
    }
    # As the file has it, also where this version of satlib would refuse it.
    for section, values in header.recipe.items():
        topics[section] = str(values)
    return topics


def _of_this_machine() -> dict[str, str]:
    """Versions, devices and what is missing, by topic."""
    import torch

    from satlib.evaluation import metrics
    from satlib.model import installed

    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if gpus:
        devices = ", ".join(gpus)
    elif torch.backends.mps.is_available():
        devices = "Apple's, by MPS"
    else:
        devices = "none"

    # A Mac without Java has a program of that name, which only says what to install.
    java = shutil.which("java") if metrics.java_available() else None
    system = f"{platform.system()} {platform.machine()}"
    return {
        "satlib": f"{__version__}, Python {platform.python_version()}, {system}",
        "torch": torch.__version__,
        "GPUs": devices,
        "Java": java or f"missing, so METEOR cannot be computed; {metrics.GET_JAVA}",
        "models": ", ".join(installed.models()),
    }
