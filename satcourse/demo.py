"""`satlib demo`: training, evaluation and captioning in minutes on a CPU, without a download.

Soft attention is trained on drawn scenes and scored on held-out ones; then the model for photographs captions free ones.
"""

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from PIL import Image

from satlib import recipe
from satlib.data import images, scenes
from satlib.data.features import Pixels
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, plots
from satlib.model import shipped
from satlib.model.captioner import Caption, Captioner
from satlib.training import loop

# The recipe scenes-soft, with half of its scenes and of its attention's hidden units.
CHANGES = ("data.train_images=8000", "training.epochs=2", "decoder.attention_hidden=64")
DEV, TEST = 100, 200  # scenes that select the epoch, and that are scored
DRAWN = 3  # test scenes whose attention is drawn
NAME = "demo"
# Free photographs (docs/data.md), and what a person said of each. What the last two show is in no training caption.
PHOTOGRAPHS = {
    "dog.jpg": "a dog leaping to catch a red frisbee",
    "tennis.jpg": "the man balances on one leg after serving a tennis ball",
    "cats.jpg": "two cats sitting on top of a pair of shoes",
    "train.jpg": "a blue commuter train traveling towards a train tunnel",
    "cows.jpg": "a cow standing in a grassy open field",
    "elephants.jpg": "one elephant standing away from the rest of the herd drinking water",
    "telephone.jpg": "the telephone has a banana where the receiver should be",
    "lifeboat.jpg": "a boat full of people is on a trailer with wheels",
}
# They are in the checkout that satlib was installed from, or in the one that a notebook runs in.
ROOTS = (Path(__file__).resolve().parent.parent, Path.cwd(), Path.cwd().parent)
FOLDER = next((folder for root in ROOTS if (folder := root / "notebooks/photographs").is_dir()), Path())
METRICS = {
    "exact match": "of captions have both objects, all attributes and the relation right",
    "peak": "of words look at the object that they name",
    "BLEU-4": "",
    "METEOR": "",
}


def photographs() -> list[Path]:
    """The course's photographs, in the order of `PHOTOGRAPHS`."""
    if not FOLDER.name:
        raise SatlibError("the course's photographs are in the repository, in notebooks/photographs")
    return [FOLDER / name for name in PHOTOGRAPHS]


def run(out: Path, changes: Sequence[str] = CHANGES, dev: int = DEV, test: int = TEST, progress: bool = True) -> None:
    """Train, evaluate and caption photographs; print each step and the time since the start. An earlier demo's run is deleted."""
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - start:3.0f} s] {line}", flush=True)

    model, paths = shipped.model(), photographs()  # first: what is missing is reported before the training
    chosen = msgspec.structs.replace(recipe.load("scenes-soft", changes), name=NAME)
    train = chosen.data.train_images
    say(f"1. Soft attention on {train:,} drawn scenes, encoder and decoder from scratch")
    folder = out / "training"
    forget(folder)
    data = scenes.load(train, dev, test)
    captioner = loop.train(chosen, data, Pixels(data), folder, "cpu", progress)

    say(f"2. {test:,} held-out scenes, captioned by beam search of width {chosen.decoding.beam}")
    result = evaluate.evaluate(captioner, data, Pixels(data), "test", progress=progress)
    evaluate.save(result, folder)
    for name, meaning in METRICS.items():
        if name in result["metrics"]:
            print(f"   {name:11} {result['metrics'][name]:5.1f} %  {meaning}".rstrip())
    for note in result["notes"]:
        print(f"   note: {note}")
    for i, example in enumerate(data.split("test")[:DRAWN], 1):
        scene, picture = scenes.scene(example.image_id), out / f"scene-{i}.png"
        text = describe(captioner, data.photo(example), picture).text
        verdict = "right" if scenes.exact_match(text, scene) else f"wrong; a correct caption: {scene.captions[0]}"
        print(f"   {picture}: {text} ({verdict})")

    say(f"3. Photographs, captioned by the model that comes with satlib ({model.stem})")
    print("   Below each caption is what a person said of the photograph.")
    captioner = Captioner.load(model)
    for path in paths:
        picture = out / f"photo-{path.stem}.png"
        caption = describe(captioner, images.open_photo(path), picture)
        print(f"   {picture}: {caption.text} ({caption.confidence:.0%} sure)\n      ({PHOTOGRAPHS[path.name]})")

    say(f"Done. {out}/ has a picture for each caption: in colour where the model looked at each word, grey elsewhere.")
    print(f"   {folder}/ has the training run, with curves.png and evaluation-test.json. Next, try:")
    print("   satlib caption YOUR_PHOTO.jpg     caption your own photograph")
    print("   satlib train scenes-soft          train on all scenes, to the end; then scenes-none, to compare")


def forget(folder: Path) -> None:
    """Delete the run of an earlier demo, and no other."""
    file = folder / "recipe.toml"
    if file.is_file() and file.read_text(encoding="utf-8").startswith(f'name = "{NAME}"\n'):
        shutil.rmtree(folder)


def describe(captioner: Captioner, photo: Image.Image, path: Path) -> Caption:
    """Caption a photograph and draw where each word looked."""
    caption = captioner.caption([photo])[0]
    plots.attention_figure(photo, caption.words, caption.alphas, caption.betas, path, captioner.view)
    return caption
