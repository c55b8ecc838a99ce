"""`satlib demo`: in seconds a word at each place of a scene, in minutes a captioner trained before
your eyes, then photographs.
"""

import shutil
import time
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import torch

from satcourse.widgets import drawings
from satcourse.widgets.reading import annotate, labels, read
from satcourse.widgets.steering import everywhere
from satlib import recipe
from satlib.data import images, scenes
from satlib.data.features import Pixels
from satlib.errors import SatlibError
from satlib.evaluation import animation, evaluate, plots
from satlib.model import installed
from satlib.model.captioner import Captioner
from satlib.training import loop

Say = Callable[[str], None]  # prints a line

# The recipe scenes-soft, with half of its scenes and of its attention's hidden units, and an epoch
# of 50 batches.
CHANGES = (
    "data.train_images=8000",
    "training.epoch_images=800",
    "training.epochs=10",
    "training.patience=10",
    "decoder.attention_hidden=64",
)
DEV = 20  # scenes that select the epoch
TEST = 200  # scenes that are scored
SCENE = "test-000000"
WORD = 8  # "green", of a star
NAME = "demo"
# Free photographs (docs/data.md), and what a person said of each. What the last two show is in no
# training caption.
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
# They are in the checkout that satlib was installed from, in the one that a notebook runs in, or in
# the one that its first cell has put beside it.
CHECKOUTS = Path.cwd().glob("satlib*")
ROOTS = (Path(__file__).resolve().parent.parent, Path.cwd(), Path.cwd().parent, *CHECKOUTS)
FOLDERS = [root / "notebooks/photographs" for root in ROOTS]
FOLDER = next((folder for folder in FOLDERS if folder.is_dir()), Path())


def photographs() -> list[Path]:
    """The course's photographs, in the order of `PHOTOGRAPHS`."""
    if not FOLDER.name:
        raise SatlibError(
            "the course's photographs are in the repository, in notebooks/photographs"
        )
    return [FOLDER / name for name in PHOTOGRAPHS]


def run(
    out: Path, changes: Sequence[str] = CHANGES, dev: int = DEV, test: int = TEST, show: bool = True
) -> None:
    """Force a word to each place, train, evaluate, caption photographs; print each step and the
    time. An earlier demo's run is deleted.
    """
    say = _clock()
    # First: what is missing is reported before the training.
    model = installed.model()
    paths = photographs()
    words = _force_everywhere(say, out, show)
    _train(say, out, words, recipe.load("scenes-soft", changes), dev, test)
    _caption_photographs(say, out, model, paths)
    say(
        "Done. Now move the light yourself: make lab. "
        "Or caption a photograph of yours: satlib caption YOUR_PHOTO.jpg"
    )


def _clock() -> Say:
    """A `print` that begins each line with the seconds since now."""
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - start:3.0f} s] {line}", flush=True)

    return say


def _force_everywhere(say: Say, out: Path, show: bool) -> list[str]:
    """Draw what a trained model says if it looks at each place; return its own caption."""
    captioner = Captioner.load(installed.model("scenes-soft"))
    photo = scenes.scene(SCENE).photo()
    a = annotate(captioner, photo)  # (L, D)
    words = read(captioner, a).words
    say(f"1. A trained model says of a new scene: {' '.join(words)}")

    picture = out / "everywhere.png"
    p = everywhere(captioner, a, words, WORD)
    plots.save(drawings.answers_figure(photo, labels(captioner, p), words[WORD]), picture)
    print(
        f"   {picture}: what it says in place of {words[WORD]!r} "
        "if it has to look at one place alone"
    )
    if show:
        webbrowser.open(picture.resolve().as_uri())
    return words


def _train(
    say: Say, out: Path, words: list[str], scenes_soft: recipe.Recipe, dev: int, test: int
) -> None:
    """Train a model from scratch, show how the map of a word is born, and evaluate it."""
    start = time.process_time()
    # Under a name of its own: only a run of this name is ever deleted.
    chosen = msgspec.structs.replace(scenes_soft, name=NAME)
    folder = out / "training"
    forget(folder)
    data = scenes.load(chosen.data.train_images, dev, test)
    say(
        f"2. The same model from scratch, on {chosen.data.train_images:,} other scenes. "
        "After so many steps it says of this one:"
    )
    photo = scenes.scene(SCENE).photo()
    maps = []
    counts = []  # of steps

    def tell(record: dict) -> None:
        captioner = Captioner.load(folder)
        images_per_epoch = chosen.training.epoch_images or chosen.data.train_images
        steps = record["epoch"] * images_per_epoch // chosen.training.batch_size
        print(f"   {steps:5,}  {captioner.caption([photo], beam=1)[0].text}", flush=True)
        counts.append(f"{steps:,}")
        # Before the same words each time, so that only the training changes the map.
        maps.append(read(captioner, annotate(captioner, photo), forced=words).alphas[WORD])

    captioner = loop.train(chosen, data, Pixels(data), folder, "cpu", progress=False, on_epoch=tell)

    # The one score that needs no other: METEOR alone would take seconds.
    captions = evaluate.generate(captioner, Pixels(data), data.split("test"), progress=False)
    right = 0
    for image_id, caption in captions.items():
        right += scenes.exact_match(caption.text, scenes.scene(image_id))

    film = out / "birth.webp"
    title = f"“{words[WORD]}” after step"
    animation.animate(photo, counts, torch.stack(maps), film, title)
    print(f"   {film}: how the map of {words[WORD]!r} was born")

    minutes = (time.process_time() - start) / 60
    say(
        f"   Of {test} new scenes, {100 * right / test:.0f} % are described right in every detail: "
        f"{right / minutes:.0f} exact captions per processor minute."
    )


def _caption_photographs(say: Say, out: Path, model: Path, paths: Sequence[Path]) -> None:
    say(
        f"3. Photographs, by the model that comes with satlib ({model.stem}). By our reading three "
        "of its eight captions are true; below each, what a person said"
    )
    captioner = Captioner.load(model)
    for path in paths:
        photo = images.open_photo(path)
        caption = captioner.caption([photo])[0]
        picture = out / f"photo-{path.stem}.png"
        plots.attention_figure(photo, caption.words, caption.alphas, picture)
        print(f"   {path.stem:10} {caption.text} (score {caption.confidence:.2f})")
        print(f"{'':14}({PHOTOGRAPHS[path.name]})")
    print(
        "   It has to say something, even where it has never seen such a thing. "
        f"The maps are in {out}/."
    )


def forget(folder: Path) -> None:
    """Delete the run of an earlier demo, and no other."""
    file = folder / "recipe.toml"
    # A folder that `--out` names may hold a run of the reader's own.
    if file.is_file() and file.read_text(encoding="utf-8").startswith(f'name = "{NAME}"\n'):
        shutil.rmtree(folder)
