"""A word scrubber: drag along a caption, and the picture shows where the model looked; click on the picture, and it looks there.

Scrubber(Captioner.load(shipped.model("scenes-soft")), {"a scene": scenes.scene("test-000000").photo()})
"""

import html
import io
import itertools
from collections.abc import Mapping
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from satcourse.widgets import still
from satcourse.widgets.explorer import Reading, annotate, read
from satlib.data.images import seen_box
from satlib.errors import SatlibError
from satlib.evaluation import overlay, plots
from satlib.model.captioner import Captioner

_WIDE = 760  # pixels of the whole widget; JupyterLab and Colab have room for it beside their own panels
_LONGEST = 406  # pixels of the picture's longer side
STILL = (
    "> **Run > Run All Cells**, and here is a slider along the sentence, and a picture to click on. Until then, all its steps at "
    "once; the thin line surrounds where the light has at least half of its maximum:"
)
_BLUE, _ORANGE = "#0072b2", "#d55e00"


class Scrubber:
    """A caption with a slider below its words, and the picture in its own colours where the model looks at the chosen word.

    A click on the picture forces all attention of the chosen word to that place. The words before it stay, and the model
    continues after it (greedily, as `explorer.read`). A second click on the place lets the word look by itself again.

    It starts at the first picture and the first word, with no place forced. Everything that is shown follows from `picture`,
    `word` and `places`.

    Attributes:
        reading: the caption that is shown, with its maps.
        places: word index -> (row, column) of the annotation grid that the word is forced to look at.
        picture, word: the controls; setting their values in code acts like a hand. `word` is a slider.
        cells: a transparent button over each place of the annotation grid, row by row.
        release: the button that removes all forced places.
        image: the lit picture, an ipywidgets Image that holds a PNG.
        sentence, probable: what is written above and beside the picture, as HTML.
        box: the whole widget, to be displayed.
    """

    def __init__(self, captioner: Captioner, pictures: Mapping[str, Image.Image]) -> None:
        """Create the controls and draw the first picture.

        Args:
            captioner: in evaluation mode.
            pictures: displayed name -> RGB image.

        Raises:
            SatlibError: there is no picture, or ipywidgets is not installed.
        """
        if not pictures:
            raise SatlibError("the scrubber needs at least one picture")
        try:
            import ipywidgets  # here, because nothing else in satlib needs it
        except ImportError as error:
            raise SatlibError("the scrubber needs ipywidgets; run: pip install 'satlib[course]'") from error
        self._captioner, self._pictures = captioner, pictures
        self._known: dict[str, tuple[Tensor, Reading]] = {}  # annotation vectors and own caption of each picture
        self._busy = False
        self.places: dict[int, tuple[int, int]] = {}
        self.picture = ipywidgets.Dropdown(options=list(pictures), description="picture", layout={"width": "260px"})
        self.release = ipywidgets.Button(description="let it look by itself", layout={"width": "190px"})
        self.word = ipywidgets.IntSlider(min=0, max=1, readout=False)
        self.sentence, self.probable = ipywidgets.HTML(), ipywidgets.HTML(layout={"width": "310px"})
        self.image = ipywidgets.Image(format="png", layout={"margin": "0"})
        self.cells = []
        for row, column in itertools.product(*map(range, self._grid)):
            layout = {"width": "auto", "height": "auto", "margin": "0", "padding": "0"}
            name = f"look at row {row + 1}, column {column + 1}"
            cell = ipywidgets.Button(tooltip=name, style={"button_color": "transparent"}, layout=layout)
            cell.on_click(lambda _, place=(row, column): self.look_at(place))
            self.cells.append(cell)
        self._over = ipywidgets.GridBox([self.image, *self.cells], layout={"overflow": "hidden"})
        beside = ipywidgets.VBox([self.probable, self.release], layout={"margin": "0 0 0 24px"})
        head = [self.picture] if len(pictures) > 1 else []
        body = ipywidgets.HBox([self._over, beside])
        self.box = ipywidgets.VBox([*head, self.sentence, self.word, body], layout={"width": f"{_WIDE + 8}px"})
        self.picture.observe(self._start_over, "value")
        self.word.observe(self._redraw, "value")
        self.release.on_click(lambda _: self._look({}))
        self._start_over()

    def _ipython_display_(self) -> None:
        """Show the controls, where a notebook shows the scrubber; all steps at once where nobody can move them."""
        still.show(self.box, STILL, self.figure)

    def figure(self) -> Figure:
        """All steps of the caption that is shown, which remain visible where widgets do not work."""
        photo, reading = self._pictures[self.picture.value], self.reading
        return plots.attention_figure(photo, reading.labels[:-1], reading.alphas, view=self._captioner.view)

    def look_at(self, place: tuple[int, int]) -> None:
        """Force the chosen word's attention to a place (row, column), or release the word if it is already forced there."""
        places = {index: each for index, each in self.places.items() if index != self.word.value}
        self._look(places if self.places.get(self.word.value) == place else places | {self.word.value: place})

    @property
    def own(self) -> Reading:
        """The model's own caption of the picture, with no place forced."""
        return self._known[self.picture.value][1]

    @property
    def _grid(self) -> tuple[int, int]:
        return self._captioner.encoder.grid

    def _start_over(self, _: Any = None) -> None:
        """Another picture: its own caption, from the first word."""
        name = self.picture.value
        if name not in self._known:
            a = annotate(self._captioner, self._pictures[name])
            self._known[name] = a, read(self._captioner, a)
        self._arrange()
        self._busy = True
        self.word.value = 0
        self._busy = False
        self._look({})

    def _arrange(self) -> None:
        """Lay the buttons over the part of the picture that the encoder sees."""
        photo = self._pictures[self.picture.value]
        width, height = (round(_LONGEST * side / max(photo.size)) for side in photo.size)
        left, top, right, bottom = (
            edge * _LONGEST / max(photo.size) for edge in seen_box(photo.size, self._captioner.view)
        )
        rows, columns = self._grid
        self.image.layout.width, self.image.layout.height = f"{width}px", f"{height}px"
        self.image.layout.grid_area = f"1 / 1 / {rows + 3} / {columns + 3}"
        over = self._over.layout
        over.width, over.height, over.grid_gap = f"{width}px", f"{height}px", "0"
        over.grid_template_rows = f"{top:.2f}px repeat({rows}, {(bottom - top) / rows:.2f}px) {height - bottom:.2f}px"
        over.grid_template_columns = (
            f"{left:.2f}px repeat({columns}, {(right - left) / columns:.2f}px) {width - right:.2f}px"
        )
        for number, cell in enumerate(self.cells):
            row, column = (each + 2 for each in divmod(number, columns))
            cell.layout.grid_area = f"{row} / {column} / {row + 1} / {column + 1}"

    def _look(self, places: dict[int, tuple[int, int]]) -> None:
        """Caption the picture again, with attention forced to these places."""
        self.places = places
        a, own = self._known[self.picture.value]
        given = torch.zeros(1 + max(places, default=-1), *self._grid)
        for index, (row, column) in places.items():
            given[index, row, column] = 1
        self.reading = read(self._captioner, a, given=given.flatten(1)) if places else own
        self._pngs: dict[int, bytes] = {}
        self._busy = True
        last = len(self.reading.labels) - 1
        self.word.value = min(self.word.value, last)  # before the maximum, which would move it
        self.word.max = last
        half = _WIDE / (2 * (last + 1))  # of a word's column: the slider's ends are below the first and the last word
        self.word.layout.width, self.word.layout.margin = f"{_WIDE - 2 * half + 20:.0f}px", f"0 0 0 {half - 10:.0f}px"
        self._busy = False
        self._redraw()

    def _redraw(self, _: Any = None) -> None:
        if self._busy:  # called by our own changes to the controls
            return
        index = self.word.value
        if index not in self._pngs:
            photo, buffer = self._pictures[self.picture.value], io.BytesIO()
            lit = overlay.lit(photo, self.reading.alphas[index : index + 1], _LONGEST, self._captioner.view)[0]
            Image.fromarray(lit).save(buffer, "PNG", compress_level=1)
            self._pngs[index] = buffer.getvalue()
        self.image.value = self._pngs[index]
        self.sentence.value, self.probable.value = self._words(index), self._bars(index)
        self.release.disabled = not self.places
        row, column = self.places.get(index, (-1, -1))
        for number, cell in enumerate(self.cells):
            cell.layout.border = f"3px solid {_ORANGE}" if number == row * self._grid[1] + column >= 0 else "none"

    def _words(self, index: int) -> str:
        """The sentence: a column for each word, the chosen one framed, words that differ from the model's own in italics."""
        wide, parts, own = _WIDE / len(self.reading.labels), [], dict(enumerate(self.own.labels))
        for number, label in enumerate(self.reading.labels):
            style = f"font-size:{min(15.0, 1.95 * wide / len(label)):.1f}px;border-radius:4px;padding:3px 0;"
            if number == index:
                style += f"background:{_BLUE};color:white;"
            elif label != own.get(number):
                style += f"color:{_ORANGE};"
            if label != own.get(number):
                style += "font-style:italic;font-weight:bold;"
            if number in self.places:
                style += f"box-shadow:inset 0 -3px {_ORANGE};"
            parts.append(f'<span style="{style}">{html.escape(label)}</span>')
        columns = f"display:grid;grid-template-columns:repeat({len(parts)},1fr);align-items:center;text-align:center"
        return f'<div style="width:{_WIDE}px;{columns}">{"".join(parts)}</div>'

    def _bars(self, index: int) -> str:
        """The likeliest words at a step, with a bar for the probability of each."""
        label, lines = self.reading.labels[index], []
        for word, p in self.reading.alternatives[index]:
            bar = f'<div style="background:{_BLUE};height:12px;width:{max(120 * p, 1):.0f}px"></div>'
            bold = "font-weight:bold" if word == label else ""
            row = [
                f'<td style="text-align:right;{bold}">{html.escape(word)}</td>',
                f'<td style="width:124px">{bar}</td>',
            ]
            lines.append(f"<tr>{''.join(row)}<td>{100 * p:.0f} %</td></tr>")
        where = "where <b>you</b> make it look" if index in self.places else "where it looks by itself"
        own = html.escape(" ".join(self.own.words))
        changed = f"<p>By itself it says:<br><i>{own}</i></p>" if self.reading.labels != self.own.labels else ""
        head = f"<p>Word {index + 1}, {where}:</p>"
        hint = "<p>Click on the picture to make it look there.</p>"
        return f'<div style="line-height:1.4">{head}<table style="border-spacing:6px 1px">{"".join(lines)}</table>{hint}{changed}</div>'
