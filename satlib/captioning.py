"""Many photographs captioned: with pictures of where each word looked, or into a table.

May import `satlib.evaluation` and what is below it. All of that, torch included, is imported when
it is used: `import satlib` stays quick.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from satlib.errors import SatlibError

if TYPE_CHECKING:
    from PIL.Image import Image

    from satlib.model.captioner import Caption, Captioner


@dataclass(frozen=True)
class Result:
    """What there is of one photograph."""

    path: Path
    captions: Sequence["Caption"] = ()  # best first; none of a photograph that cannot be read
    picture: Path | None = None  # the file of the attention maps
    animation: Path | None = None
    error: SatlibError | None = None  # why it cannot be read


class Table:
    """A CSV file with a row for each caption, which grows with every photograph.

    A photograph is in the table once one of its captions is; it is not captioned again.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # The file alone says what is done, whichever way the run before has ended.
        with open(self.path, "a+", encoding="utf-8") as file:
            file.seek(0)
            self.done = {row[0] for row in csv.reader(file) if row}
            if not self.done:
                file.write("image,caption,confidence\n")

    def add(self, photo: Path, captions: Sequence["Caption"]) -> None:
        """Write the captions of a photograph."""
        rows = []
        for caption in captions:
            values = caption.to_json()
            rows.append([photo, values["caption"], values["confidence"]])
        # Opened anew for each photograph: what is written is on the disk, and survives a stop.
        with open(self.path, "a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def waiting(
    photos: Sequence[Path | str], table: Path | str | None = None, out: Path | str = "captions"
) -> list[Path]:
    """The photographs of files and folders that are not in the table yet, in order.

    Folders are searched with all that is inside them, but for `out`: pictures of attention maps
    are not photographs. A folder without any is in the list itself, and read as an error.
    """
    from satlib.data import images

    found: list[Path] = []
    for path in map(Path, photos):
        inside = [file for file in images.files_in(path) if Path(out) not in file.parents]
        if inside:
            found += inside
        else:
            found.append(path)

    # By its path as it is given: the same photograph by another path counts as another one.
    if table is not None:
        done = Table(table).done
        found = [path for path in found if str(path) not in done]
    return found


def caption_folder(
    photos: Path | str | Sequence[Path | str],
    model: "Captioner | Path | str | None" = None,
    table: Path | str | None = None,
    out: Path | str = "captions",
    best: int = 1,
    beam: int | None = None,
    animate: bool = False,
) -> Iterator[Result]:
    """Caption photographs; yields each one's result once it is in the table, and its files written.

    Args:
        photos: image files, and folders, from which all images are taken (`waiting`).
        model: a captioner, or what `satlib.load` takes; by default the model for photographs.
        table: a CSV file, to which captions are added; a photograph that is in it is left out.
        out: the folder for pictures; with a table none are drawn.
        best: the number of captions of each photograph.
        beam: the beam width, raised to `best`; by default the recipe's.
        animate: whether an animation is written into `out` for each photograph.

    Raises:
        SatlibError: there is no such model. A photograph that cannot be read has a result with the
            error in it instead.
    """
    from satlib.evaluation import animation, plots
    from satlib.model import installed
    from satlib.model.captioner import Captioner

    if isinstance(photos, Path | str):
        photos = [photos]
    out = Path(out)
    paths = waiting(photos, table, out)
    rows = Table(table) if table is not None else None

    if isinstance(model, Captioner):
        captioner = model
    else:
        captioner = Captioner.load(model or installed.PHOTOGRAPHS, installed.device())
    beam = max(beam or captioner.recipe.decoding.beam, best)  # a narrower beam has fewer captions

    stems = Counter[str]()
    for path, photo, captions in _captioned(captioner, paths, beam):
        if isinstance(photo, SatlibError):
            yield Result(path, error=photo)
            continue
        first = captions[0]
        captions = captions[:best]

        # Photographs of different folders may have the same name: 3.png, 3-2.png.
        stems[path.stem] += 1
        number = f"-{stems[path.stem]}" if stems[path.stem] > 1 else ""
        file = out / f"{path.stem}{number}.png"

        picture = None
        if rows is None:
            picture = file
            plots.attention_figure(
                photo, first.words, first.alphas, first.betas, picture, captioner.view
            )
        moving = None
        if animate and first.words:  # a caption without words has no frames
            moving = file.with_suffix(".webp")
            animation.animate(photo, first.words, first.alphas, moving, captioner.view)

        # Last, so that a photograph of the table has all its files.
        if rows is not None:
            rows.add(path, captions)
        yield Result(path, captions, picture, moving)


def _captioned(
    captioner: "Captioner", paths: Sequence[Path], beam: int
) -> Iterator[tuple[Path, "Image | SatlibError", "list[Caption]"]]:
    """Each path, its photograph, and all captions of the beam; or why there is no photograph."""
    from satlib.data.batches import chunks
    from satlib.files import read_ahead

    # As many as suit the encoder go through it together, while the next are read.
    batches = chunks(paths, captioner.encoder.at_once)
    photos_of_batches = read_ahead(lambda batch: [_read(path) for path in batch], batches)
    for batch, photos in zip(batches, photos_of_batches, strict=True):
        readable = [photo for photo in photos if not isinstance(photo, SatlibError)]
        found = iter(captioner.captions(readable, beam))
        for path, photo in zip(batch, photos, strict=True):
            yield path, photo, [] if isinstance(photo, SatlibError) else next(found)


def _read(path: Path) -> "Image | SatlibError":
    """A photograph, or why there is none."""
    from satlib.data import images

    # Returned, not raised: one broken file must not end the captioning of thousands.
    try:
        if path.is_dir():  # one without photographs, or it would have been searched
            raise SatlibError(f"the image {path / '*.jpg'} does not exist; check the path")
        return images.open_photo(path)
    except SatlibError as error:
        return error
