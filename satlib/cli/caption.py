"""`satlib caption`."""

import argparse
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satlib.cli import inputs
from satlib.cli.arguments import MODEL, add_shared, printed
from satlib.errors import SatlibError

if TYPE_CHECKING:
    from PIL import Image

    from satlib.model.captioner import Caption


def add_caption(parser: argparse.ArgumentParser) -> None:
    """The options of `satlib caption`."""
    parser.add_argument("photos", type=_file, nargs="+", metavar="IMAGE", help="image files of any usual format")
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
    parser.add_argument("--no-pictures", action="store_true", help="draw no pictures, which takes most of the time")
    parser.add_argument(
        "--animate",
        action="store_true",
        help="also write each caption as one animated picture (WebP, at most 1 MB), in which the light walks along the sentence; "
        "with one model",
    )
    add_shared(parser, "--json", "--device")


def _file(text: str) -> Path:
    """The path of a photograph."""
    if text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text} is an address; download the photograph, and give its file")
    return Path(text)


def caption(options: argparse.Namespace) -> int:
    """Caption photographs; 1 if some could not be read, 2 if none could."""
    from satlib.model import shipped

    if options.animate and len(options.models) > 1:
        raise SatlibError("--animate is for one model; give --model once, or leave out --animate to compare models")
    models = options.models or [shipped.model()]
    captioners = [inputs.captioner(model, options) for model in models]
    views = [captioner.view for captioner in captioners]
    results = []
    for path, picture in zip(options.photos, _pictures(options), strict=True):
        if (photo := _opened(path)) is None:
            continue
        captions = [captioner.caption([photo], options.beam)[0] for captioner in captioners]
        named = list(zip(map(_name, models), captions, strict=True))
        drawn = _drawn(photo, named, views, picture, options)
        results.append({"image": str(path), **drawn, "captions": [_described(*each) for each in named]})
        if not options.json:
            _print(path, named, drawn, options)
    if options.json and results:
        printed(results)
    return 2 if not results else int(len(results) < len(options.photos))


def _opened(path: Path) -> "Image.Image | None":
    """A photograph; None, and a line on standard error, if it cannot be read."""
    from satlib.data import images

    try:
        return images.open_photo(path)
    except SatlibError as error:
        print(f"satlib: {error}", file=sys.stderr)
        return None


def _drawn(
    photo: "Image.Image",
    captions: "list[tuple[str, Caption]]",
    views: list[str],
    picture: Path,
    options: argparse.Namespace,
) -> dict[str, str | None]:
    """Draw the captions of a photograph by one or more models; gives the paths of what was drawn."""
    from satlib.evaluation import animation, plots

    drawn: dict[str, str | None] = {"picture": None, "animation": None}
    only = captions[0][1]
    if not options.no_pictures:
        if len(captions) == 1:
            plots.attention_figure(photo, only.words, only.alphas, only.betas, picture, views[0])
        else:
            rows = [(name, caption.words, caption.alphas) for name, caption in captions]
            plots.compare_figure(photo, rows, picture, views)
        drawn["picture"] = str(picture)
    if options.animate and only.words:
        walk = picture.with_suffix(".webp")
        animation.animate(photo, only.words, only.alphas, walk, views[0])
        drawn["animation"] = str(walk)
    return drawn


def _print(
    path: Path, captions: "list[tuple[str, Caption]]", drawn: dict[str, str | None], options: argparse.Namespace
) -> None:
    """Print the captions of a photograph, with the paths of what was drawn."""
    files = ", ".join(file for file in drawn.values() if file)
    if len(captions) == 1:
        only = captions[0][1]
        notes = [f"log p {only.log_probability:.1f}", files]
        if options.animate and not only.words:
            notes.append("no words to animate")
        print(f"{path}: {only.text}{only.remark}  ({'; '.join(filter(None, notes))})")
        return
    print(f"{path}  ({files})" if files else path)
    for name, caption in captions:
        print(f"  {name}: {caption.text}{caption.remark}  (log p {caption.log_probability:.1f})")


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
