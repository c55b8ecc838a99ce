"""A caption to press: press a word, and the picture shows where the model looked; click on the
picture, and it looks there; press another word, and the caption goes on from that.

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
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model.captioner import Captioner

# Pixels of the whole widget: JupyterLab and Colab have room for it beside their own panels.
_WIDE = 760
_PICTURE = 406  # pixels of the picture's longer side
_BLUE, _ORANGE = "#0072b2", "#d55e00"
STILL = (
    "> **Run > Run All Cells**, and here are words to press, and a picture to click on. "
    "Until then, all its steps at once; the thin line surrounds where the light has at least half "
    "of its maximum:"
)


class Scrubber:
    """A caption of buttons, and the picture in its own colours where the model looks at the chosen
    word.

    A click on the picture forces all attention of the chosen word to that place; a second click
    releases it. A word that is pressed or typed stands in place of the chosen one. The words before
    it stay, and the model continues after it (greedily, as `reading.read`). Pressing the controls
    in code acts like a hand.

    own, reading: the caption with nothing forced, and the one that is shown. index: of the chosen
    word. places: word index -> (row, column) that the word is forced to look at. said: the first
    words, up to the last that was pressed or typed. cells: a transparent button over each place.
    """

    def __init__(self, captioner: Captioner, pictures: Mapping[str, Image.Image]) -> None:
        self._captioner = captioner
        self._pictures = pictures
        self._grid = captioner.encoder.grid
        self._create_controls()
        self._lay_out()
        self._connect()
        self._start_over()

    def _create_controls(self) -> None:
        self.picture = ipywidgets.Dropdown(
            options=list(self._pictures), description="picture", layout={"width": "260px"}
        )
        self.release = ipywidgets.Button(
            description="let it go on by itself", layout={"width": "190px"}
        )
        # Buttons of words are created when a caption first has so many.
        self.words = []
        self.sentence = ipywidgets.HBox(layout={"flex_flow": "row wrap"})
        self.note = ipywidgets.HTML(layout={"width": "310px"})
        self._heading = ipywidgets.HTML()
        self.alternatives = [
            ipywidgets.Button(layout={"width": "110px"}) for _ in range(ALTERNATIVES)
        ]
        self._bars = [ipywidgets.HTML(layout={"width": "190px"}) for _ in range(ALTERNATIVES)]
        # Without the end mark and UNKNOWN, which nobody types.
        words = self._captioner.vocabulary.words[2:]
        self.instead = ipywidgets.Combobox(
            placeholder="or type a word", options=words, continuous_update=False
        )
        self.image = ipywidgets.Image(format="png", layout={"margin": "0"})
        self.cells = [
            self._cell(row, column) for row, column in itertools.product(*map(range, self._grid))
        ]

    def _lay_out(self) -> None:
        """The picture with its buttons, the alternatives beside it, the sentence above both."""
        self._over = ipywidgets.GridBox([self.image, *self.cells], layout={"overflow": "hidden"})
        rows = [ipywidgets.HBox(pair) for pair in zip(self.alternatives, self._bars, strict=True)]
        beside = ipywidgets.VBox([self._heading, *rows, self.instead, self.note, self.release])
        beside.layout.margin = "0 0 0 24px"

        parts: list[Any] = [self.sentence, ipywidgets.HBox([self._over, beside])]
        # One picture leaves nothing to choose.
        if len(self._pictures) > 1:
            parts.insert(0, self.picture)
        self.box = ipywidgets.VBox(parts, layout={"width": f"{_WIDE + 8}px"})

    def _connect(self) -> None:
        """Say what happens when a control is pressed or changed."""
        for number, button in enumerate(self.alternatives):
            button.on_click(lambda _, number=number: self._say_alternative(number))
        self.picture.observe(self._start_over, "value")
        self.instead.observe(self._typed, "value")
        self.release.on_click(lambda _: self._continue({}, []))

    def _ipython_display_(self) -> None:
        still.show(self.box, STILL, self.figure)

    def figure(self) -> Figure:
        """All steps of the caption that is shown, which remain visible where widgets do not
        work.
        """
        words = self.reading.labels[:-1]
        alphas = self.reading.alphas
        return plots.attention_figure(self._photo, words, alphas)

    def look_at(self, place: tuple[int, int]) -> None:
        """Force the chosen word's attention to a place (row, column), or release the word if it is
        already forced there.
        """
        places = dict(self.places)
        before = places.pop(self.index, None)
        if before != place:
            places[self.index] = place
        self._continue(places, self.said)

    def say(self, word: str) -> None:
        """Put a word in place of the chosen one: the words before it stay, and the model continues
        after it.
        """
        try:
            self._continue(self.places, [*self.reading.labels[: self.index], word])
        except SatlibError as error:  # not in the vocabulary
            self.note.value = html.escape(str(error))

    def _say_alternative(self, number: int) -> None:
        word, _ = self.reading.alternatives[self.index][number]
        self.say(word)

    def _typed(self, change: dict) -> None:
        # Choosing another word empties the field, and that says nothing.
        if change["new"]:
            self.say(change["new"])

    def _cell(self, row: int, column: int) -> Any:
        layout = {"width": "auto", "height": "auto", "margin": "0", "padding": "0"}
        # Lines of a CSS grid are counted from 1.
        layout["grid_area"] = f"{row + 1} / {column + 1} / {row + 2} / {column + 2}"
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
        """Lay the buttons over the picture."""
        scale = _PICTURE / max(self._photo.size)
        width, height = (round(scale * side) for side in self._photo.size)
        rows, columns = self._grid

        # The picture fills the whole grid, below the buttons.
        image = self.image.layout
        image.width = f"{width}px"
        image.height = f"{height}px"
        image.grid_area = f"1 / 1 / {rows + 1} / {columns + 1}"

        over = self._over.layout
        over.width = f"{width}px"
        over.height = f"{height}px"
        over.grid_gap = "0"
        over.grid_template_rows = f"repeat({rows}, {height / rows:.2f}px)"
        over.grid_template_columns = f"repeat({columns}, {width / columns:.2f}px)"

    def _continue(self, places: dict[int, tuple[int, int]], said: list[str]) -> None:
        """Caption the picture again, with attention forced to these places and these first
        words.
        """
        # Rows of zeros leave a word its own map.
        light = torch.zeros(1 + max(places, default=-1), *self._grid)
        for index, (row, column) in places.items():
            light[index, row, column] = 1
        self.reading = read(self._captioner, self._a, said, given=light.flatten(1))
        self.places = places
        self.said = said

        # Buttons are kept: a shorter caption merely shows fewer.
        for number in range(len(self.words), len(self.reading.labels)):
            button = ipywidgets.Button(layout={"width": "auto", "padding": "0 8px"})
            button.on_click(lambda _, number=number: self.choose(number))
            self.words.append(button)
        self.choose(min(self.index, len(self.reading.labels) - 1))

    def choose(self, index: int) -> None:
        """Choose a word: show where the model looks for it."""
        self.index = index
        self._show_light()
        self._show_sentence()
        self.note.value = self._note()
        self.instead.value = ""
        self._show_alternatives()
        self.release.disabled = not (self.places or self.said)
        self._show_place()

    def _show_light(self) -> None:
        """The picture, lit where the model looks at the chosen word."""
        alpha = self.reading.alphas[self.index : self.index + 1]
        lit = plots.lit(self._photo, alpha, _PICTURE)[0]
        buffer = io.BytesIO()
        # Little compression is quicker, and the kernel is near.
        Image.fromarray(lit).save(buffer, "PNG", compress_level=1)
        self.image.value = buffer.getvalue()

    def _show_alternatives(self) -> None:
        """The words that were likely in place of the chosen one, each with a bar."""
        where = "where it looks by itself"
        if self.index in self.places:
            where = "where <b>you</b> make it look"
        self._heading.value = f"Word {self.index + 1}, {where}. Say instead:"

        likely = self.reading.alternatives[self.index]
        for button, bar, (word, p) in zip(self.alternatives, self._bars, likely, strict=True):
            button.description = word
            said = word == self.reading.labels[self.index]
            button.style.font_weight = "bold" if said else "normal"
            # A pixel at least, so that each has a bar.
            width = f"{max(120 * p, 1):.0f}px"
            style = f"background:{_BLUE};height:12px;width:{width};display:inline-block"
            bar.value = f'<div style="{style}"></div> {100 * p:.0f} %'

    def _show_place(self) -> None:
        """A frame around the place that the chosen word is forced to look at."""
        forced = self.places.get(self.index)
        for place, cell in zip(itertools.product(*map(range, self._grid)), self.cells, strict=True):
            cell.layout.border = f"3px solid {_ORANGE}" if place == forced else "none"

    def _show_sentence(self) -> None:
        """The sentence: the chosen word on blue, words that differ from the model's own in orange
        italics.
        """
        labels = self.reading.labels
        own = self.own.labels
        self.sentence.children = self.words[: len(labels)]
        for number, (button, label) in enumerate(zip(self.words, labels, strict=False)):
            chosen = number == self.index
            # The caption may be longer than the model's own.
            same = own[number : number + 1] == [label]
            button.description = label

            style = button.style
            style.button_color = _BLUE if chosen else None
            if chosen:
                style.text_color = "white"
            elif same:
                style.text_color = None
            else:
                style.text_color = _ORANGE
            style.font_style = "normal" if same else "italic"
            style.font_weight = "normal" if same else "bold"

            # A line under what the reader has moved: a look, or the last word that was said.
            moved = number in self.places or number == len(self.said) - 1
            button.layout.border_bottom = f"3px solid {_ORANGE}" if moved else "none"

    def _note(self) -> str:
        """How to force the light, and what the model says by itself where the caption is
        another.
        """
        text = "Click on the picture to make it look there."
        if self.reading.labels != self.own.labels:
            own = html.escape(" ".join(self.own.words))
            text += f"<br>By itself it says:<br><i>{own}</i>"
        return f'<div style="line-height:1.4">{text}</div>'
