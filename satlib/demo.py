"""`satlib demo`: the paper's main job in minutes on a CPU, with nothing to download.

Soft attention is trained on drawn scenes and measured on scenes that it has never seen; then the model that comes with
satlib captions photographs that an installed package carries. Each caption becomes a picture of where its words looked.
"""

import dataclasses
import importlib.util
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from PIL import Image

from satlib import evaluation, images, plots, recipe, shipped, training
from satlib.captioner import Captioner
from satlib.datasets import CaptionSet, scenes
from satlib.errors import SatlibError
from satlib.features import Pixels

# The recipe scenes-soft, shortened to about 90 seconds on two CPU cores.
CHANGES = ("data.train_images=1500", "training.epochs=2")
DEV, TEST, DRAWN = (
    100,
    200,
    3,
)  # scenes that choose the epoch, scenes that are scored, and how many of these become pictures
NAME = "demo"
# Photographs that come with scikit-image; matplotlib's stands in where that is not installed.
PHOTOGRAPHS = {
    "skimage": ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg"),
    "matplotlib": ("grace_hopper.jpg",),
}
_FOLDERS = {"skimage": "data", "matplotlib": "mpl-data/sample_data"}
_FIGURES = {
    "exact match": "both objects, every attribute and their relation right",
    "pointing": "of the words look at what they name",
    "BLEU-4": "",
    "METEOR": "",
}


def run(out: Path, changes: Sequence[str] = CHANGES, dev: int = DEV, test: int = TEST, progress: bool = True) -> None:
    """Train, evaluate, caption photographs; say at each step what happens and how long it took.

    The training always starts from nothing, also where an earlier demo lies in the folder. It runs on the CPU, so that
    the same machine gives the same figures every time.

    Args:
        out: the folder for pictures and the training run.
        changes: to the recipe scenes-soft.
        dev: how many held-out scenes choose the epoch.
        test: how many others are scored.
        progress: show bars and a line per epoch.

    Raises:
        SatlibError: the folder holds another run, or the model that comes with satlib is missing.
    """
    model = shipped.model()  # asked first: it would be a pity to learn of it at the end
    say = _Clock()
    chosen = dataclasses.replace(recipe.load("scenes-soft", changes), name=NAME)
    train = chosen.data.train_images
    threads = torch.get_num_threads()
    say(f"1. Soft attention on {train:,} drawn scenes, encoder and decoder from scratch (CPU threads: {threads})")
    folder = _start_over(out / "training")
    data = scenes.load(train, dev, test)
    captioner = training.train(chosen, data, Pixels(data), folder, "cpu", progress)

    say(f"2. {test:,} scenes that it has never seen, captioned by beam search of width {chosen.decoding.beam}")
    _evaluate(captioner, data, folder, progress)
    for i, example in enumerate(data.split("test")[:DRAWN], 1):
        scene = scenes.scene(example.image_id)
        picture = out / f"scene-{i}.png"
        text = _picture(captioner, data.photo(example), picture)
        verdict = "right" if scenes.exact_match(text, scene) else f"wrong; a person: {scene.captions[0]}"
        print(f"   {picture}: {text} ({verdict})")

    say(f"3. Photographs, by the model that comes with satlib ({model.stem})")
    captioner = Captioner.load(model)
    for path in photographs():
        picture = out / f"photo-{path.stem}.png"
        print(f"   {picture}: {_picture(captioner, images.open_photo(path), picture)}")

    say(f"Done. In {out}/: a picture for each caption above, lit where the model looked at each word;")
    print(f"   {folder}/: the run, with curves.png and evaluation-test.json. What to try next:")
    satlib = "satlib" if shutil.which("satlib") else sys.argv[0]
    print(f"   {satlib} caption YOUR_PHOTO.jpg     your own photograph")
    print(f"   {satlib} train scenes-soft          the same on all scenes, to the end; scenes-none to compare")
    print(f"   {satlib} data fetch flickr8k        real photographs to train on: see README.md")


def photographs() -> list[Path]:
    """Real photographs that an installed package carries, found without importing it.

    Raises:
        SatlibError: neither scikit-image's nor matplotlib's are there.
    """
    for package in PHOTOGRAPHS:
        there = [path for path in _carried(package) if path.is_file()]
        if there:
            return there
    raise SatlibError("no photographs were found in scikit-image or matplotlib; run: pip install scikit-image")


def _carried(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from (Path(location) / _FOLDERS[package] / name for name in PHOTOGRAPHS[package])


def _start_over(folder: Path) -> Path:
    """Make room for the training: an earlier demo's is deleted, anything else is not touched."""
    recipe_file = folder / "recipe.toml"
    if recipe_file.is_file() and recipe_file.read_text(encoding="utf-8").startswith(f'name = "{NAME}"\n'):
        shutil.rmtree(folder)
    if folder.exists() and any(folder.iterdir()):
        raise SatlibError(f"{folder} is not a demo's and stays as it is; name another folder with --out")
    return folder


def _picture(captioner: Captioner, photo: Image.Image, path: Path) -> str:
    """Caption a photo and draw where each word looked; give the caption."""
    caption = captioner.caption([photo])[0]
    plots.attention_figure(photo, caption.words, caption.alphas, caption.betas, path, captioner.view)
    return caption.text


def _evaluate(captioner: Captioner, data: CaptionSet, folder: Path, progress: bool) -> None:
    found = evaluation.evaluate(captioner, data, Pixels(data), "test", progress=progress)
    evaluation.save(found, folder)
    for name, meaning in _FIGURES.items():
        if name in found["metrics"]:
            print(f"   {name:11} {found['metrics'][name]:5.1f} %  {meaning}".rstrip())
    for note in found["notes"]:
        print(f"   note: {note}")


class _Clock:
    """Prints lines with the seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._start:3.0f} s] {line}", flush=True)
