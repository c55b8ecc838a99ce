"""`satlib demo`: training, evaluation and captioning in minutes on a CPU, without a download.

Soft attention is trained on drawn scenes and scored on held-out scenes; then the model that comes with satlib captions
free photographs: first those that are like its training photographs, then, so marked, those that are not. For
each caption, a picture shows where each word looked.
"""

import importlib.util
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from PIL import Image

from satlib import recipe
from satlib.data import images, scenes
from satlib.data.caption_set import CaptionSet
from satlib.data.features import Pixels
from satlib.errors import Interrupted, SatlibError
from satlib.evaluation import evaluate, plots
from satlib.model import shipped
from satlib.model.captioner import Caption, Captioner
from satlib.training import loop

# The recipe scenes-soft, shortened to about 90 seconds on two CPU cores.
CHANGES = ("data.train_images=2200", "training.epochs=2", "decoder.attention_hidden=64")
DEV = 100  # scenes that select the epoch
TEST = 200  # scenes that are scored
DRAWN = 3  # test scenes whose attention is drawn
NAME = "demo"
# Free photographs, whose sources docs/data.md names. The model was trained on photographs of people; the astronaut is one.
PEOPLE = ("camera.png",)
PHOTOGRAPHS = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")
_FOLDER = Path(__file__).parent / "photographs"
_FAMILIAR = {  # `Caption.unlike`, in the order in which the demo shows photographs
    False: "Like its training photographs, which does not make every caption true:",
    True: "Unlike its training photographs, so expect mistakes:",
    None: "The model cannot tell whether these are like its training photographs:",
}
_FIGURES = {
    "exact match": "of captions have both objects, all attributes and the relation right",
    "pointing": "of words look at the object that they name",
    "BLEU-4": "",
    "METEOR": "",
}


def run(out: Path, changes: Sequence[str] = CHANGES, dev: int = DEV, test: int = TEST, progress: bool = True) -> None:
    """Train, evaluate and caption photographs; print each step and the time since the start.

    Training always starts from scratch: the run of an earlier demo in the folder is deleted. It runs on the CPU, so that the
    same machine gives the same results every time.

    Args:
        out: the folder for pictures and the training run.
        changes: to the recipe scenes-soft.
        dev: the number of held-out scenes that select the epoch.
        test: the number of held-out scenes that are scored.
        progress: show progress bars and a line per epoch.

    Raises:
        SatlibError: the folder holds another run, or the model that comes with satlib is missing.
        Interrupted: by Ctrl-C or SIGTERM; the next demo starts from scratch.
    """
    model = shipped.model()  # first, so that a missing model is reported before the training
    say = _Clock()
    chosen = msgspec.structs.replace(recipe.load("scenes-soft", changes), name=NAME)
    train = chosen.data.train_images
    threads = torch.get_num_threads()
    say(f"1. Soft attention on {train:,} drawn scenes, encoder and decoder from scratch (CPU threads: {threads})")
    folder = _start_over(out / "training")
    data = scenes.load(train, dev, test)
    try:
        captioner = loop.train(chosen, data, Pixels(data), folder, "cpu", progress)
    except Interrupted as error:
        raise Interrupted("the demo was stopped; the same command begins it again") from error

    say(f"2. {test:,} held-out scenes, captioned by beam search of width {chosen.decoding.beam}")
    _evaluate(captioner, data, folder, progress)
    for i, example in enumerate(data.split("test")[:DRAWN], 1):
        scene = scenes.scene(example.image_id)
        picture = out / f"scene-{i}.png"
        text = _picture(captioner, data.photo(example), picture).text
        verdict = "right" if scenes.exact_match(text, scene) else f"wrong; a correct caption: {scene.captions[0]}"
        print(f"   {picture}: {text} ({verdict})")

    say(f"3. Photographs, captioned by the model that comes with satlib ({model.stem})")
    print("   It has seen 6,000 photographs (Flickr8k), most of them of people and dogs outdoors, and nothing else.")
    _describe(Captioner.load(model), list(dict.fromkeys([*people(), *photographs()])), out)

    say(
        f"Done. {out}/ has a picture for each caption above, in its own colours where the model looked at each word, dimmed and grey elsewhere."
    )
    print(f"   {folder}/ has the training run, with curves.png and evaluation-test.json. Next, try:")
    satlib = "satlib" if shutil.which("satlib") else sys.argv[0]
    print(f"   {satlib} caption YOUR_PHOTO.jpg     caption your own photograph")
    print(f"   {satlib} train scenes-soft          train on all scenes, to the end; then scenes-none, to compare")
    print(f"   {satlib} data fetch flickr8k        download photographs to train on; see docs/training.md")


def photographs() -> list[Path]:
    """Photographs that come with the course: an astronaut, a cat, a cup of coffee and a rocket."""
    return [_FOLDER / name for name in PHOTOGRAPHS]


def people() -> list[Path]:
    """More photographs of people: a man with a camera; and Grace Hopper, who comes with matplotlib."""
    matplotlib = importlib.util.find_spec("matplotlib")
    locations = (matplotlib.submodule_search_locations if matplotlib else None) or ()
    others = [Path(location) / "mpl-data" / "sample_data" / "grace_hopper.jpg" for location in locations]
    return [_FOLDER / name for name in PEOPLE] + [path for path in others if path.is_file()]


def _start_over(folder: Path) -> Path:
    """Delete the run of an earlier demo; refuse a folder that holds anything else."""
    recipe_file = folder / "recipe.toml"
    if recipe_file.is_file() and recipe_file.read_text(encoding="utf-8").startswith(f'name = "{NAME}"\n'):
        shutil.rmtree(folder)
    if folder.exists() and any(folder.iterdir()):
        raise SatlibError(f"{folder} was not made by satlib demo, and is left as it is; name another folder with --out")
    return folder


def _picture(captioner: Captioner, photo: Image.Image, path: Path) -> Caption:
    """Caption a photograph and draw where each word looked."""
    caption = captioner.caption([photo])[0]
    plots.attention_figure(photo, caption.words, caption.alphas, caption.betas, path, captioner.view)
    return caption


def _describe(captioner: Captioner, paths: Sequence[Path], out: Path) -> None:
    """Caption photographs and draw each; print those that are like the training photographs first (`_FAMILIAR`)."""
    captions = {}
    for path in paths:
        picture = out / f"photo-{path.stem}.png"
        captions[picture] = _picture(captioner, images.open_photo(path), picture)
    for unlike, heading in _FAMILIAR.items():
        lines = [f"   {picture}: {caption.text}" for picture, caption in captions.items() if caption.unlike is unlike]
        if lines:
            print("\n".join([f"   {heading}", *lines]))


def _evaluate(captioner: Captioner, data: CaptionSet, folder: Path, progress: bool) -> None:
    result = evaluate.evaluate(captioner, data, Pixels(data), "test", progress=progress)
    evaluate.save(result, folder)
    for name, meaning in _FIGURES.items():
        if name in result["metrics"]:
            print(f"   {name:11} {result['metrics'][name]:5.1f} %  {meaning}".rstrip())
    for note in result["notes"]:
        print(f"   note: {note}")


class _Clock:
    """Prints lines with the seconds since its creation."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._start:3.0f} s] {line}", flush=True)
