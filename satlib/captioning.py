"""Many photographs captioned: with pictures of where each word looked, or into a table.

May import `satlib.evaluation` and what is below it. All of that, torch included, is imported when
it is used: `import satlib` stays quick.
"""

import csv
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from satlib import files
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


def caption_folder(
    photos: Path | str | Sequence[Path | str],
    model: "Captioner | Path | str | None" = None,
    table: Path | str | None = None,
    out: Path | str = "captions",
    best: int = 1,
    beam: int | None = None,
    animate: bool = False,
    sample: int = 0,
    temperature: float = 1.0,
    seed: int = 0,
) -> Iterator[Result]:
    """Caption photographs; yields each one's result once it is in the table, and its files written.

    Args:
        photos: image files, and folders, from which all images are taken but hidden ones
            and those of linked folders.
        model: a captioner, or what `satlib.load` takes; by default the model for photographs.
        table: a CSV file, to which captions are added; a photograph that has its captions there,
            by this model and this way of decoding, is left out. Its folder must exist.
        out: the folder for pictures; with a table none are drawn.
        best: the number of captions of each photograph.
        beam: the beam width, raised to `best`; by default the recipe's.
        animate: whether an animation is written into `out` for each photograph.
        sample: draw so many captions of each photograph (`Captioner.samples`), in place of the best.
        temperature: of what is drawn: below 1 nearer to the most probable words.
        seed: the same seed draws the same captions.

    Raises:
        SatlibError: there is no such model, or the table is another's, in use, damaged or cannot
            be written. A photograph that cannot be read has a result with the error in it instead.
    """
    from satlib.model import installed
    from satlib.model.captioner import Captioner

    if isinstance(photos, Path | str):
        photos = [photos]
    out = Path(out).expanduser()
    paths = _photographs(photos, out)

    if isinstance(model, Captioner):
        captioner = model
    else:
        captioner = Captioner.load(model or installed.PHOTOGRAPHS, installed.device())
    decoding = _decoding(captioner, best, beam, sample, temperature, seed)

    if table is None:
        opened = nullcontext()
    else:
        opened = _opened(Path(table), f"{captioner.id} {decoding.name}")
    # Before the threads, which would otherwise change the mode under each other.
    with opened as rows, captioner.evaluating():
        if rows is not None:
            paths = rows.waiting(paths, decoding.count)

        for path, captions in _captioned(decoding, paths, rows):
            if isinstance(captions, SatlibError):
                yield Result(path, error=captions)
                continue

            name = _name_of(path)
            picture = out / f"{name}.png" if rows is None else None
            # A caption without words has no frames.
            moving = out / f"{name}.webp" if animate and captions[0].words else None
            _draw(path, captions[0], picture, moving)

            captions = captions[: decoding.count]
            # Last, so that a photograph of the table has all its files.
            if rows is not None:
                rows.add(path, captions)
            yield Result(path, captions, picture, moving)


class _Decoding(NamedTuple):
    """A way from photographs to captions."""

    describe: Callable[[Sequence["Image"]], list[list["Caption"]]]
    name: str  # in the table, behind the model's
    count: int  # of captions of each photograph that are wanted
    draws: bool  # random numbers


def _decoding(
    captioner: "Captioner",
    best: int,
    beam: int | None,
    sample: int,
    temperature: float,
    seed: int,
) -> _Decoding:
    """The way that the arguments of `caption_folder` ask for."""
    if sample:
        draw = partial(captioner.samples, count=sample, temperature=temperature, seed=seed)
        return _Decoding(draw, f"temperature {temperature:g} seed {seed}", sample, draws=True)

    # A narrower beam has fewer captions.
    beam = max(beam or captioner.recipe.decoding.beam, best)
    draws = captioner.recipe.decoding.look == "sample"
    return _Decoding(partial(captioner.captions, beam=beam), f"beam {beam}", best, draws)


def _draw(
    path: Path,
    caption: "Caption",
    picture: Path | None,
    moving: Path | None,
) -> None:
    """Draw where each word looked: the maps side by side, and as an animation."""
    if picture is None and moving is None:
        return

    # Only now: matplotlib takes a third of a second to import.
    from satlib.data import images
    from satlib.evaluation import plots

    # Read again: those of all batches that are on their way would fill the memory.
    photo = images.open_photo(path)
    if picture is not None:
        plots.attention_figure(photo, caption.words, caption.alphas, picture)
    if moving is not None:
        from satlib.evaluation import animation

        animation.animate(photo, caption.words, caption.alphas, moving)


def _photographs(photos: Sequence[Path | str], out: Path) -> list[Path]:
    """The photographs in files and folders, in order.

    Pictures of attention maps, in the folder `out`, are none. A folder without photographs is in
    the list itself, and read as an error.
    """
    from satlib.data import images

    drawings = Path(os.path.realpath(out))
    found: list[Path] = []
    for path in photos:
        path = Path(path).expanduser()
        inside = images.files_in(path)

        folder = Path(os.path.realpath(path))
        if drawings == folder:
            raise SatlibError(f"{out} has the photographs; draw into another folder: --out FOLDER")
        if drawings.is_relative_to(folder):
            # By the name that its files have here.
            inner = path / drawings.relative_to(folder)
            inside = [file for file in inside if inner not in file.parents]
        found += inside or [path]
    return found


def _name_of(photo: Path) -> str:
    """A name for a photograph's pictures that those of no other photograph have, in any run.

    The digits after its own name are of its path: many folders have a 1.jpg, and some file systems
    take A.jpg for a.jpg.
    """
    place = os.fsencode(os.path.realpath(photo))
    # A file's name with its ending may not be longer than 255 bytes.
    return f"{photo.stem[:40]}-{sha256(place).hexdigest()[:8]}"


def _captioned(
    decoding: _Decoding, paths: Sequence[Path], rows: "Table | None"
) -> Iterator[tuple[Path, "list[Caption] | SatlibError"]]:
    """Each path with its photograph's captions, or why there is no photograph."""
    import torch

    from satlib.data.batches import chunks
    from satlib.model.captioner import AT_ONCE

    def described(batch: Sequence[Path]) -> list["list[Caption] | SatlibError"]:
        if not decoding.draws:
            torch.set_num_threads(max(1, threads // 2))
        squares = [_read(path, rows) for path in batch]
        found = iter(decoding.describe([s for s in squares if not isinstance(s, SatlibError)]))
        return [square if isinstance(square, SatlibError) else next(found) for square in squares]

    batches = chunks(paths, AT_ONCE)
    threads = torch.get_num_threads()
    # Two batches at a time, with half of the threads each: much of a search is of steps too small
    # to be shared. One where random numbers are drawn: all threads draw from the same.
    try:
        results = (map if decoding.draws else files.read_ahead)(described, batches)
        for batch, found in zip(batches, results, strict=True):
            yield from zip(batch, found, strict=True)
    finally:
        torch.set_num_threads(threads)


def _read(path: Path, rows: "Table | None") -> "Image | SatlibError":
    """A photograph's square, or why there is none."""
    from satlib.data import images

    # Returned, not raised: one broken file must not end the captioning of thousands.
    try:
        # Refused now, before anything is computed: a name that no table can hold.
        if rows is not None:
            rows.name_of(path)
        if path.is_dir():  # one without photographs, or it would have been searched
            raise SatlibError(f"{path} has no images; check the path")
        return images.square(images.open_photo(path))
    except SatlibError as error:
        return error


# --- The table --------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path, author: str) -> Iterator["Table"]:
    """A table that no other process may open meanwhile."""
    files.require_writable(author)
    path = path.expanduser()
    # The lock is of the file, by whichever link it is named.
    file = Path(os.path.realpath(path))
    # Not made: with a folder's name mistyped, everything would be captioned again.
    if not file.parent.is_dir():
        raise SatlibError(f"cannot write {path}: {path.parent} is no folder; check the path")
    with files.locked(path, file.with_name(f".{file.name}.lock")):
        yield Table(path, author)


class Table:
    """A CSV file with a row for each caption, which grows with every photograph.

    The file alone says what is done, whichever way the run before has ended. A photograph is known
    by where its file is, however its path is written; its captions count for one author.

    Raises:
        SatlibError: the file is not such a table, or cannot be read or written.
    """

    def __init__(self, path: Path, author: str) -> None:
        """author: the model, and how it decodes, as in the column "model"."""
        self.path = path
        self.file = Path(os.path.realpath(path))
        self.author = author
        self.counts = Counter[tuple[str, str]]()  # captions of a photograph by an author
        for image, _, _, model in self._rows():
            place = os.path.realpath(self.file.parent / image)
            self.counts[place, model] += 1

    def waiting(self, photos: Sequence[Path], count: int) -> list[Path]:
        """The photographs that do not have so many captions yet, each once."""
        found: dict[str, Path] = {}
        for photo in photos:
            place = os.path.realpath(photo)
            if self.counts[place, self.author] < count:
                found.setdefault(place, photo)
        files.note(f"not in {self.path} yet: {len(found):,}")
        return list(found.values())

    def name_of(self, photo: Path) -> str:
        """What the column "image" has: from the table's folder, it leads to the photograph.

        Raises:
            SatlibError: it cannot stand in a table.
        """
        name = photo.absolute()
        # A table beside or above its photographs can be moved with them.
        if not photo.is_absolute() and name.is_relative_to(self.file.parent):
            name = name.relative_to(self.file.parent)
        files.require_writable(str(name))
        return str(name)

    def add(self, photo: Path, captions: Sequence["Caption"]) -> None:
        """Write the captions of a photograph, but those that are there from a run before."""
        rows = []
        known = self.counts[os.path.realpath(photo), self.author]
        for caption in captions[known:]:
            values = caption.to_json()
            rows.append([self.name_of(photo), values["caption"], values["score"], self.author])
        self._append(_lines(rows))

    def _append(self, text: str) -> None:
        # Opened anew for each photograph: what is written is on the disk, and survives a stop.
        with (
            files.writing(self.path),
            open(self.path, "a", encoding="utf-8", newline="") as file,
        ):
            file.write(text)

    def _rows(self) -> list[list[str]]:
        """The rows of the file, which is begun, repaired or refused."""
        from satlib.data.folder import EARLIER_MACHINE, MACHINE

        raw = files.read_bytes(self.path) if self.path.exists() else b""
        heading = _lines([MACHINE])
        # An empty file, or a heading that a kill cut short.
        if heading.encode().startswith(raw):
            self._append(heading[len(raw) :])
            return []

        # A kill or a full disk may have left a part of a line, even of a letter.
        whole, line_break, unfinished = raw.rpartition(b"\n")
        text = files.text_of(whole + line_break, self.path)
        lines = csv.reader(io.StringIO(text, newline=""), strict=True)
        rows = []
        try:
            columns = next(lines, [])
            if columns not in (MACHINE, EARLIER_MACHINE):
                raise csv.Error(f"its columns are not {heading.strip()}, as satlib writes them")
            for row in filter(None, lines):  # but for blank lines
                if len(row) != len(columns):
                    raise csv.Error(f"{len(row)} columns in place of {len(columns)}")
                rows.append(row)
        except csv.Error as error:
            raise SatlibError(
                f"{self.path}, line {lines.line_num}: {error}; name another table, or mend the line"
            ) from error

        if unfinished:
            # In place, which also a full disk allows.
            with files.writing(self.path):
                os.truncate(self.path, len(raw) - len(unfinished))
            files.note(f"{self.path}: the last line was unfinished, and is dropped")
        if columns == EARLIER_MACHINE:
            rows = [[*row, ""] for row in rows]
            # The file itself: replacing a link would leave its target as it was.
            files.write_text(self.file, _lines([MACHINE, *rows]))
            files.note(f"{self.path}: its rows name no model; they stay, and count for none")
        return rows


def _lines(rows: Sequence[Sequence[Any]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
