"""Run a learner's notebook cell by cell; a cell that hangs or ends its kernel costs only its own exercise."""

import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from ipykernel.kernelspec import make_ipkernel_cmd
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

CELL_SECONDS = 300  # the project's cell trains, which took more than 120 s on a busy machine
OUTPUT_SECONDS = 120  # how long to wait for a cell's outputs once it has ended
START_SECONDS = 120
HUNG = f"the cell did not end within {CELL_SECONDS} s; is there a loop that never stops?"
DIED = "the cell ended its kernel (os._exit, or more memory than there is)"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class CellOutcome:
    """What a code cell did.

    exercise, role: of satlib's cells, as "4.2" and "check"; otherwise "". number: among all cells, from 1. error: one line; "" if
    there was none. said: what it printed. seconds: the time it took.
    """

    exercise: str
    role: str
    number: int
    error: str = ""
    said: str = ""
    seconds: float = 0.0


def run_notebook(path: Path, ran: Callable[[], object] = lambda: None) -> list[CellOutcome]:
    """Run the code cells of a notebook in a kernel of this Python, in the notebook's folder.

    After an error the next cell runs. A cell that hangs or ends its kernel is given up, with the other cells of its exercise; a
    new kernel first runs the cells outside the exercises and those that put in satlib's own functions, and goes on from there.

    Args:
        path: the notebook; it is not changed.
        ran: called after each cell.
    """
    notebook: Any = nbformat.read(path, 4)
    outcomes = [
        CellOutcome(place.get("exercise", ""), place.get("role", ""), number)
        for number, cell, place in _code_cells(notebook)
    ]
    done = 0
    while done < len(outcomes):
        with _kernel(notebook, path.parent) as client:
            done = _run_from(done, client, outcomes, ran)
    return outcomes


def _code_cells(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode, dict[str, str]]]:
    """The number, the cell and its place among the exercises, for each cell of code."""
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            yield number, cell, cell.metadata.get("satlib", {})


def _run_from(first: int, client: NotebookClient, outcomes: list[CellOutcome], ran: Callable[[], object]) -> int:
    """Run the cells from the `first` on in a new kernel until one of them hangs or ends it; give the number of those done."""
    for outcome in outcomes[:first]:
        if outcome.error not in (HUNG, DIED) and (not outcome.exercise or outcome.role == "catch-up"):
            _run_cell(client, outcome.number)
    for index in range(first, len(outcomes)):
        outcome = outcomes[index]
        given_up = any(
            other.exercise == outcome.exercise != "" and other.error in (HUNG, DIED) for other in outcomes[:index]
        )
        if given_up and outcome.role != "catch-up":
            continue
        began = time.monotonic()
        outcome.error, outcome.said = _run_cell(client, outcome.number)
        outcome.seconds = time.monotonic() - began
        ran()
        if outcome.error in (HUNG, DIED):
            return index + 1
    return len(outcomes)


class _ThisPython(KernelSpecManager):
    """Knows one kernel, that of the running interpreter, whatever kernels are installed elsewhere."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """The same for every name."""
        return KernelSpec(argv=make_ipkernel_cmd(), display_name="Python", language="python")


@contextlib.contextmanager
def _kernel(notebook: NotebookNode, folder: Path) -> Iterator[NotebookClient]:
    """A client for the cells of a notebook, with a kernel of its own that is ended afterwards."""
    client = NotebookClient(
        notebook,
        km=AsyncKernelManager(kernel_spec_manager=_ThisPython()),
        timeout=CELL_SECONDS,
        iopub_timeout=OUTPUT_SECONDS,
        startup_timeout=START_SECONDS,
        allow_errors=True,
        shutdown_kernel="immediate",  # it may be in an endless loop
        resources={"metadata": {"path": str(folder)}},
    )
    # nbclient leaves a kernel alive if it did not make the manager itself, hence cleanup_kc. stderr is that of the kernel itself;
    # what cells print comes as a message.
    with client.setup_kernel(cleanup_kc=True, stderr=subprocess.DEVNULL):
        yield client


def _run_cell(client: NotebookClient, number: int) -> tuple[str, str]:
    """Run one cell; give its error in one line, "" if there is none, and what it printed."""
    cell = client.nb.cells[number - 1]
    try:
        client.execute_cell(cell, number - 1)
    except CellTimeoutError:
        return HUNG, ""
    except DeadKernelError:
        return DIED, ""
    errors = [output for output in cell.outputs if output.output_type == "error"]
    said = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    return (_line(errors[0]) if errors else ""), _COLOUR.sub("", said)


def _line(error: Any) -> str:
    """An error of a cell in one line: an exercise's message as it is, another one with its type."""
    text = _COLOUR.sub("", error.evalue).strip()
    first = text.splitlines()[0] if text else ""
    return text if error.ename == "Wrong" else f"{error.ename}: {first}"
