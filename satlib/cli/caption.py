"""`satlib caption`."""

import argparse
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satlib.cli import inputs
from satlib.cli.arguments import MODEL, add_shared, printed
from satlib.errors import SatlibError

if TYPE_CHECKING:
    from satlib.model.captioner import Caption


def add_caption(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib caption`."""
    parser.add_argument("photos", type=Path, nargs="+", metavar="IMAGE", help="image files of any usual format")
    parser.add_argument(
        "--model",
        type=Path,
        action="append",
        default=[],
        dest="models",
        help=f"{MODEL}; may be repeated, to compare models",
    )
    add_shared(parser, "--beam")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", default=Path("captions"), help="folder for the pictures of attention"
    )
    parser.add_argument(
        "--animate",
        action="store_true",
        help="also write each caption as one animated picture (WebP, at most 1 MB), in which the light walks along the sentence; "
        "with one model",
    )
    add_shared(parser, "--json", "--device")


def caption(options: argparse.Namespace) -> int:
    """Caption photographs."""
    from satlib.data import images
    from satlib.evaluation import animation, plots
    from satlib.model import shipped

    if options.animate and len(options.models) > 1:
        raise SatlibError(
            "--animate shows one model's caption; give --model once, or leave out --animate to compare models"
        )
    photos = [images.open_photo(path) for path in options.photos]
    models = options.models or [shipped.model()]
    captioners = [inputs.captioner(model, options) for model in models]
    names = [_name(model) for model in models]
    results = []
    for path, photo, picture in zip(options.photos, photos, _pictures(options), strict=True):
        captions = [captioner.caption([photo], options.beam)[0] for captioner in captioners]
        by = dict(zip(names, captions, strict=True))
        described = [_described(*each) for each in by.items()]
        results.append({"image": str(path), "picture": str(picture), "animation": None, "captions": described})
        if len(captions) == 1:
            only, written = captions[0], str(picture)
            plots.attention_figure(photo, only.words, only.alphas, only.betas, picture, captioners[0].view)
            if options.animate and not only.words:
                written += "; no words to animate"
            elif options.animate:
                walk = picture.with_suffix(".webp")
                animation.animate(photo, only.words, only.alphas, walk, captioners[0].view)
                results[-1]["animation"], written = str(walk), f"{picture}, {walk}"
            if not options.json:
                print(f"{path}: {only.text}{only.remark}  (log p {only.log_probability:.1f}; {written})")
            continue
        rows = [(name, caption.words, caption.alphas) for name, caption in zip(names, captions, strict=True)]
        plots.compare_figure(photo, rows, picture, [captioner.view for captioner in captioners])
        if options.json:
            continue
        print(f"{path}  ({picture})")
        for name, caption in zip(names, captions, strict=True):
            print(f"  {name}: {caption.text}{caption.remark}  (log p {caption.log_probability:.1f})")
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
