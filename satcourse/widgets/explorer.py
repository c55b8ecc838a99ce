"""An interactive captioner: give the first words, set the temperature of the attention, and see how the caption continues.

`reading.read` completes a caption that you began, and `drawings.reading_figure` draws the result; both are plain functions. `Explorer`
adds controls (ipywidgets) to them, in a notebook:

    Explorer({"soft": Captioner.load(shipped.model("scenes-soft"))}, {"a scene": scenes.scene("test-000000").photo()})
"""

import html
from collections.abc import Mapping
from typing import Any

from PIL import Image
from torch import Tensor

from satcourse.widgets import drawings
from satcourse.widgets.reading import ALTERNATIVES, Reading, annotate, read
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model.captioner import Captioner


class Explorer:
    """Controls for `read`: choose a model, an image, a temperature, a word, and another word in its place.

    It starts at the first model and image, temperature 1 and the first word of the model's own caption, with no word given.

    Attributes:
        reading: the reading that is shown.
        image: its figure, an ipywidgets Image that holds a PNG.
        model, picture, temperature, word, instead: the controls; setting their values in code acts like a click.
        alternatives: a button for each probable word in place of the chosen one.
        alone: the button that discards the given words.
        note: a line for error messages.
        box: the whole widget, to be displayed.
    """

    def __init__(self, captioners: Mapping[str, Captioner], pictures: Mapping[str, Image.Image]) -> None:
        """Create the controls and draw the first reading.

        Args:
            captioners: displayed name -> captioner in evaluation mode.
            pictures: displayed name -> image.

        Raises:
            SatlibError: there is no captioner or no image, or ipywidgets is not installed.
        """
        if not captioners or not pictures:
            raise SatlibError("the explorer needs at least one captioner and one picture")
        try:
            import ipywidgets  # here, because nothing else in satlib needs it
        except ImportError as error:
            raise SatlibError("the explorer needs ipywidgets; run: pip install 'satlib[course]'") from error
        self._captioners, self._pictures = captioners, pictures
        self._annotations: dict[tuple[str, str], Tensor] = {}
        self._alone: dict[tuple[str, str], Reading] = {}  # the model's own caption
        self._forced: list[str] = []
        self._busy = False
        wide = {"style": {"description_width": "85px"}}
        self.model = ipywidgets.Dropdown(options=list(captioners), description="model", **wide)
        self.picture = ipywidgets.Dropdown(options=list(pictures), description="picture", **wide)
        self.temperature = ipywidgets.FloatLogSlider(
            value=1.0, base=10, min=-1.5, max=1.5, step=0.1, description="temperature", readout_format=".2f", **wide
        )
        self.alone = ipywidgets.Button(description="the model's own caption", layout={"width": "auto"})
        self.word = ipywidgets.ToggleButtons(style={"button_width": "auto"})
        self.alternatives = [ipywidgets.Button(layout={"width": "auto"}) for _ in range(ALTERNATIVES)]
        self.instead = ipywidgets.Combobox(placeholder="or type a word and press Enter", continuous_update=False)
        self.note = ipywidgets.HTML()
        self.image = ipywidgets.Image(format="png", layout={"width": "900px", "max_width": "100%"})
        say = ipywidgets.HBox([ipywidgets.Label("say instead:"), *self.alternatives, self.instead])
        say.layout.flex_flow = "row wrap"
        head = [ipywidgets.HBox([self.model, self.picture]), ipywidgets.HBox([self.temperature, self.alone])]
        for line in head:
            line.layout.flex_flow = "row wrap"
        self.box = ipywidgets.VBox([*head, self.word, say, self.note, self.image])
        for control in (self.model, self.picture):
            control.observe(self._start_over, "value")
        for control in (self.temperature, self.word):
            control.observe(self._redraw, "value")
        self.alone.on_click(self._start_over)
        self.instead.observe(lambda change: change["new"] and self.say(change["new"]), "value")
        for number, button in enumerate(self.alternatives):
            button.on_click(lambda _, number=number: self.say(self.reading.alternatives[self.word.value][number][0]))
        self._start_over()

    def _ipython_display_(self) -> None:
        """Show the controls, where a notebook shows the explorer; by a call that ipywidgets 7 (Colab's) and 8 both answer."""
        from IPython.display import display

        display(self.box)

    def say(self, word: str) -> None:
        """Replace the chosen word: the words before it stay, and the model continues after it."""
        before, self._forced = self._forced, [*self.reading.labels[: self.word.value], word]
        try:
            self._redraw()
        except SatlibError as error:
            self._forced = before
            self.note.value = html.escape(str(error))

    def figure(self) -> plots.NotebookFigure:
        """The current figure, which remains visible where widgets do not work."""
        model, picture = self._chosen
        title = f"{model}   |   {picture}   |   temperature of the attention: {self.temperature.value:.2g}"
        alone = self._alone[model, picture].labels
        view = self._captioners[model].view
        return drawings.reading_figure(self._pictures[picture], self.reading, self.word.value, alone, title, view)

    @property
    def _chosen(self) -> tuple[str, str]:
        return self.model.value, self.picture.value

    def _start_over(self, _: Any = None) -> None:
        self._forced = []
        self._redraw()

    def _read(self) -> Reading:
        chosen, captioner = self._chosen, self._captioners[self.model.value]
        if chosen not in self._annotations:
            self._annotations[chosen] = annotate(captioner, self._pictures[self.picture.value])
            self._alone[chosen] = read(captioner, self._annotations[chosen])
        return read(captioner, self._annotations[chosen], self._forced, self.temperature.value, ALTERNATIVES)

    def _redraw(self, _: Any = None) -> None:
        if self._busy:  # called by our own changes to the controls below
            return
        self._busy = True
        try:
            self.reading = self._read()
            index = min(self.word.value or 0, len(self.reading.labels) - 1)
            labels = self.reading.labels
            # The browser finds a button by its label, so that equal labels get invisible spaces of different number.
            options = tuple((label + "\u200b" * labels[:i].count(label), i) for i, label in enumerate(labels))
            if self.word.options != options:
                self.word.options = options
            self.word.value = index
            for button, (word, p) in zip(self.alternatives, self.reading.alternatives[index], strict=False):
                button.description = f"{word}  {100 * p:.0f} %"
            self.instead.value = ""
            self.instead.options = self._captioners[self.model.value].vocabulary.words[2:]
            self.note.value = ""
            self.image.value = self.figure()._repr_png_()
        finally:
            self._busy = False
