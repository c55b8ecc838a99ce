"""`satlib demo`: in seconds a word at each place of a scene, in minutes a captioner trained before your eyes, then photographs."""

import shutil
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import msgspec
import torch
from PIL import Image

from satcourse.widgets import drawings
from satcourse.widgets.reading import annotate, labels, read
from satcourse.widgets.steering import everywhere
from satlib import recipe
from satlib.data import images, scenes
from satlib.data.features import Pixels
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, plots
from satlib.model import installed
from satlib.model.captioner import Captioner
from satlib.training import loop

# The recipe scenes-soft, with half of its scenes and of its attention's hidden units, and an epoch of 50 batches.
CHANGES = (
    "data.train_images=8000",
    "training.epoch_images=800",
    "training.epochs=10",
    "training.patience=10",
)
CHANGES = (*CHANGES, "decoder.attention_hidden=64")
DEV, TEST = 50, 200  # scenes that select the epoch, and that are scored
SCENE, WORD = "test-000000", 8  # "green", of a star
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
FOLDER = next(
    (folder for root in ROOTS if (folder := root / "notebooks/photographs").is_dir()), Path()
)


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
    """Force a word to each place, train, evaluate, caption photographs; print each step and the time. An earlier demo's run is deleted."""
    start = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - start:3.0f} s] {line}", flush=True)

    model, paths = (
        installed.model(),
        photographs(),
    )  # first: what is missing is reported before the training
    trained, photo = Captioner.load(installed.model("scenes-soft")), scenes.scene(SCENE).photo()
    words = read(trained, annotate(trained, photo)).words
    say(f"1. A trained model says of a new scene: {' '.join(words)}")
    p, picture = everywhere(trained, annotate(trained, photo), words, WORD), out / "everywhere.png"
    plots.save(drawings.answers_figure(photo, labels(trained, p), words[WORD]), picture)
    print(
        f"   {picture}: what it says in place of {words[WORD]!r} if it has to look at one place alone"
    )
    if show:
        webbrowser.open(picture.resolve().as_uri())

    chosen = msgspec.structs.replace(recipe.load("scenes-soft", changes), name=NAME)
    folder, maps = out / "training", []
    forget(folder)
    data = scenes.load(chosen.data.train_images, dev, test)
    say(
        f"2. The same model from scratch, on {chosen.data.train_images:,} other scenes. After so many steps it says of this one:"
    )

    def tell(record: dict) -> None:
        captioner = Captioner.load(folder)
        steps = (
            record["epoch"]
            * (chosen.training.epoch_images or chosen.data.train_images)
            // chosen.training.batch_size
        )
        print(f"   {steps:5,}  {captioner.caption([photo], beam=1)[0].text}", flush=True)
        maps.append(read(captioner, annotate(captioner, photo), forced=words).alphas[WORD])

    captioner = loop.train(chosen, data, Pixels(data), folder, "cpu", progress=False, on_epoch=tell)
    result = evaluate.evaluate(captioner, data, Pixels(data), "test", progress=False)
    evaluate.save(result, folder)
    frames = [Image.fromarray(each) for each in plots.lit(photo, torch.stack(maps), 448)]
    frames[0].save(
        out / "birth.webp", save_all=True, append_images=frames[1:], duration=600, loop=0
    )
    print(f"   {out / 'birth.webp'}: how the map of {words[WORD]!r} was born")
    say(
        f"   Of {test} new scenes, {result['metrics']['exact match']:.0f} % are described right in every detail."
    )

    say(
        f"3. Photographs, by the model that comes with satlib ({model.stem}); below, what a person said"
    )
    captioner = Captioner.load(model)
    for path in paths:
        photo, picture = images.open_photo(path), out / f"photo-{path.stem}.png"
        caption = captioner.caption([photo])[0]
        plots.attention_figure(
            photo, caption.words, caption.alphas, caption.betas, picture, captioner.view
        )
        print(
            f"   {path.stem:10} {caption.text} ({caption.confidence:.0%} sure)\n{'':14}({PHOTOGRAPHS[path.name]})"
        )
    print(
        f"   It has to say something, even where it has never seen such a thing. The maps are in {out}/."
    )
    say(
        "Done. Now move the light yourself: make lab. Or caption a photograph of yours: satlib caption YOUR_PHOTO.jpg"
    )


def forget(folder: Path) -> None:
    """Delete the run of an earlier demo, and no other."""
    file = folder / "recipe.toml"
    if file.is_file() and file.read_text(encoding="utf-8").startswith(f'name = "{NAME}"\n'):
        shutil.rmtree(folder)
