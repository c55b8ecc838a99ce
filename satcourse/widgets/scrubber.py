"""A caption to press: press a word, and the picture shows where the model looked; click on the picture, and it looks there; press
another word, and the caption goes on from that.

Scrubber(satlib.load("scenes-soft"), {"a scene": scenes.scene("test-000000").photo()})
"""

import html
import io
import itertools
from collections.abc import Mapping
from typing import Any

import ipywidgets
import torch
from matplotlib.figure import Figure
from PIL import Image

from satcourse.widgets import still
from satcourse.widgets.reading import ALTERNATIVES, annotate, read
from satlib.data.images import seen_box
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model.captioner import Captioner

_WIDE = (
    760  # pixels of the whole widget; JupyterLab and Colab have room for it beside their own panels
)
_LONGEST = 406  # pixels of the picture's longer side
_BLUE, _ORANGE = "#0072b2", "#d55e00"
STILL = (
    "> **Run > Run All Cells**, and here are words to press, and a picture to click on. Until then, all its steps at once; the "
    "thin line surrounds where the light has at least half of its maximum:"
)


class Scrubber:
    """A caption of buttons, and the picture in its own colours where the model looks at the chosen word.

    A click on the picture forces all attention of the chosen word to that place; a second click releases it. A word that is pressed
    or typed stands in place of the chosen one. The words before it stay, and the model continues after it (greedily, as
    `reading.read`). Pressing the controls in code acts like a hand.

    own, reading: the caption with nothing forced, and the one that is shown. index: of the chosen word. places: word index -> (row, column) that the word is
    forced to look at. said: the first words, up to the last that was pressed or typed. cells: a transparent button over each place.
    """

    def __init__(self, captioner: Captioner, pictures: Mapping[str, Image.Image]) -> None:
        self._captioner, self._pictures = captioner, pictures
        self._grid = captioner.encoder.grid
        self.picture = ipywidgets.Dropdown(
            options=list(pictures), description="picture", layout={"width": "260px"}
        )
        self.release = ipywidgets.Button(
            description="let it go on by itself", layout={"width": "190px"}
        )
        self.words, self.sentence = [], ipywidgets.HBox(layout={"flex_flow": "row wrap"})
        self.note, self._heading = ipywidgets.HTML(layout={"width": "310px"}), ipywidgets.HTML()
        self.alternatives = [
            ipywidgets.Button(layout={"width": "110px"}) for _ in range(ALTERNATIVES)
        ]
        self._bars = [ipywidgets.HTML(layout={"width": "190px"}) for _ in range(ALTERNATIVES)]
        words = captioner.vocabulary.words[2:]
        self.instead = ipywidgets.Combobox(
            placeholder="or type a word", options=words, continuous_update=False
        )
        self.image = ipywidgets.Image(format="png", layout={"margin": "0"})
        self.cells = [
            self._cell(row, column) for row, column in itertools.product(*map(range, self._grid))
        ]
        self._over = ipywidgets.GridBox([self.image, *self.cells], layout={"overflow": "hidden"})

        rows = [ipywidgets.HBox(pair) for pair in zip(self.alternatives, self._bars, strict=True)]
        beside = ipywidgets.VBox([self._heading, *rows, self.instead, self.note, self.release])
        beside.layout.margin = "0 0 0 24px"
        head = [self.picture] if len(pictures) > 1 else []
        body = ipywidgets.HBox([self._over, beside])
        self.box = ipywidgets.VBox([*head, self.sentence, body], layout={"width": f"{_WIDE + 8}px"})

        for number, button in enumerate(self.alternatives):
            button.on_click(
                lambda _, number=number: self.say(self.reading.alternatives[self.index][number][0])
            )
        self.picture.observe(self._start_over, "value")
        self.instead.observe(lambda change: change["new"] and self.say(change["new"]), "value")
        self.release.on_click(lambda _: self._continue({}, []))
        self._start_over()

    def _ipython_display_(self) -> None:
        still.show(self.box, STILL, self.figure)

    def figure(self) -> Figure:
        """All steps of the caption that is shown, which remain visible where widgets do not work."""
        words, alphas = self.reading.labels[:-1], self.reading.alphas
        return plots.attention_figure(self._photo, words, alphas, view=self._captioner.view)

    def look_at(self, place: tuple[int, int]) -> None:
        """Force the chosen word's attention to a place (row, column), or release the word if it is already forced there."""
        places = dict(self.places)
        if places.pop(self.index, None) != place:
            places[self.index] = place
        self._continue(places, self.said)

    def say(self, word: str) -> None:
        """Put a word in place of the chosen one: the words before it stay, and the model continues after it."""
        try:
            self._continue(self.places, [*self.reading.labels[: self.index], word])
        except SatlibError as error:  # not in the vocabulary
            self.note.value = html.escape(str(error))

    def _cell(self, row: int, column: int) -> Any:
        layout = {"width": "auto", "height": "auto", "margin": "0", "padding": "0"}
        layout["grid_area"] = f"{row + 2} / {column + 2} / {row + 3} / {column + 3}"
        name = f"look at row {row + 1}, column {column + 1}"
        cell = ipywidgets.Button(tooltip=name, style={"button_color": "transparent"}, layout=layout)
        cell.on_click(lambda _: self.look_at((row, column)))
        return cell

    def _start_over(self, _: Any = None) -> None:
        """Show the chosen picture and its own caption from the first word."""
        self._photo = self._pictures[self.picture.value]
        self._a = annotate(self._captioner, self._photo)
        self.own = read(self._captioner, self._a)
        self._arrange()
        self.index = 0
        self._continue({}, [])

    def _arrange(self) -> None:
        """Lay the buttons over the part of the picture that the encoder sees."""
        scale = _LONGEST / max(self._photo.size)
        width, height = (round(scale * side) for side in self._photo.size)
        left, top, right, bottom = (
            scale * edge for edge in seen_box(self._photo.size, self._captioner.view)
        )
        rows, columns = self._grid
        self.image.layout.width, self.image.layout.height = f"{width}px", f"{height}px"
        self.image.layout.grid_area = f"1 / 1 / {rows + 3} / {columns + 3}"
        over = self._over.layout
        over.width, over.height, over.grid_gap = f"{width}px", f"{height}px", "0"
        high, wide = (bottom - top) / rows, (right - left) / columns
        over.grid_template_rows = (
            f"{top:.2f}px repeat({rows}, {high:.2f}px) {height - bottom:.2f}px"
        )
        over.grid_template_columns = (
            f"{left:.2f}px repeat({columns}, {wide:.2f}px) {width - right:.2f}px"
        )

    def _continue(self, places: dict[int, tuple[int, int]], said: list[str]) -> None:
        """Caption the picture again, with attention forced to these places and these first words."""
        light = torch.zeros(1 + max(places, default=-1), *self._grid)
        for index, (row, column) in places.items():
            light[index, row, column] = 1
        self.reading = read(self._captioner, self._a, said, given=light.flatten(1))
        self.places, self.said = places, said
        for number in range(len(self.words), len(self.reading.labels)):
            self.words.append(ipywidgets.Button(layout={"width": "auto", "padding": "0 8px"}))
            self.words[number].on_click(lambda _, number=number: self.choose(number))
        self.choose(min(self.index, len(self.reading.labels) - 1))

    def choose(self, index: int) -> None:
        """Choose a word: show where the model looks for it."""
        self.index, buffer = index, io.BytesIO()
        lit = plots.lit(
            self._photo, self.reading.alphas[index : index + 1], _LONGEST, self._captioner.view
        )[0]
        Image.fromarray(lit).save(buffer, "PNG", compress_level=1)
        self.image.value = buffer.getvalue()
        self._say()
        self.note.value, self.instead.value = self._note(), ""
        where = (
            "where <b>you</b> make it look" if index in self.places else "where it looks by itself"
        )
        self._heading.value = f"Word {index + 1}, {where}. Say instead:"
        rows = zip(self.alternatives, self._bars, self.reading.alternatives[index], strict=True)
        for button, bar, (word, p) in rows:
            button.description = word
            button.style.font_weight = "bold" if word == self.reading.labels[index] else "normal"
            style = (
                f"background:{_BLUE};height:12px;width:{max(120 * p, 1):.0f}px;display:inline-block"
            )
            bar.value = f'<div style="{style}"></div> {100 * p:.0f} %'
        self.release.disabled = not (self.places or self.said)
        forced = self.places.get(index)
        for place, cell in zip(itertools.product(*map(range, self._grid)), self.cells, strict=True):
            cell.layout.border = f"3px solid {_ORANGE}" if place == forced else "none"

    def _say(self) -> None:
        """The sentence: the chosen word on blue, words that differ from the model's own in orange italics."""
        labels, own = self.reading.labels, self.own.labels
        self.sentence.children = self.words[: len(labels)]
        for number, (button, label) in enumerate(zip(self.words, labels, strict=False)):
            chosen, same = number == self.index, own[number : number + 1] == [label]
            button.description, button.style.button_color = label, _BLUE if chosen else None
            button.style.text_color = "white" if chosen else None if same else _ORANGE
            button.style.font_style, button.style.font_weight = (
                ("normal", "normal") if same else ("italic", "bold")
            )
            moved = number in self.places or number == len(self.said) - 1
            button.layout.border_bottom = f"3px solid {_ORANGE}" if moved else "none"

    def _note(self) -> str:
        """How to force the light, and what the model says by itself where the caption is another."""
        own = html.escape(" ".join(self.own.words))
        changed = (
            f"<br>By itself it says:<br><i>{own}</i>"
            if self.reading.labels != self.own.labels
            else ""
        )
        return f'<div style="line-height:1.4">Click on the picture to make it look there.{changed}</div>'
