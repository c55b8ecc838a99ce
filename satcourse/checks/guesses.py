"""Sealed guesses.

A cell that begins with `seal` shows nothing until its reader has guessed, or typed `skip`.
"""

import os
from collections.abc import Sequence
from numbers import Number
from pathlib import Path
from typing import Any

from IPython import get_ipython
from IPython.utils.capture import capture_output

from satcourse.widgets import still
from satlib.files import read_json, write_json

# Beside the notebook: what was asked, the ends of the first range, and the truth.
KEPT = Path("guesses.json")
skip = "skip"
_guess: Any = skip  # of the latest `seal`


def seal(guess: Any) -> None:
    """Hide what the rest of this cell prints and draws, unless its reader has guessed.

    A guess is a range (low, high), a number, or `skip`; what is plainly none of these raises
    ValueError. Everything is computed, so that later cells run. A notebook executed to be stored is sealed
    nowhere.
    """
    global _guess
    _guess = guess
    if isinstance(guess, Sequence) and guess != skip:
        low, high = guess
        if low > high:
            raise ValueError(
                f"a range begins with its lower end: ({high}, {low}), not ({low}, {high})"
            )
    elif guess is not ... and guess != skip and not isinstance(guess, Number):
        raise ValueError("a guess is a range, such as (20, 40), a number, or skip")

    shell = get_ipython()
    if guess is not ... or shell is None or still.ENVIRONMENT in os.environ:
        return

    # Not a `with` block: the cell's own lines are what is to be hidden, up to its end.
    hidden = capture_output()
    hidden.__enter__()

    def end(result: Any) -> None:
        shell.events.unregister("post_run_cell", end)
        hidden.__exit__(None, None, None)
        print(
            "Sealed. Put a range that you are 80 % sure of, or skip, in place of the dots; "
            "run that cell and this one."
        )

    shell.events.register("post_run_cell", end)


def reveal(what: str, truth: float) -> None:
    """Print a number beside the guess of this cell; a range is kept for notebook 11.

    Of several ranges for one question the first is kept.
    """
    text = f"{what}: {float(truth):.3g}"
    if isinstance(_guess, Number):
        text += f" (you guessed {_guess:g})"
    elif isinstance(_guess, Sequence) and _guess != skip:
        low, high = _guess
        where = "inside" if low <= truth <= high else "outside"
        text += f" ({where} your range, {low:g} to {high:g})"
        # What is kept already comes last and wins: a second guess is made with the truth in view.
        write_json(KEPT, {what: [low, high, float(truth)], **kept()})
    print(text)


def kept() -> dict[str, list[float]]:
    """The ranges and truths of this folder's notebooks, by what was asked."""
    if not KEPT.exists():
        return {}
    return read_json(KEPT, dict[str, list[float]], "guesses", "delete it")
