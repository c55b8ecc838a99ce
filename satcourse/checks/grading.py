"""`satlib check`: run exercise notebooks and report each exercise as done, blank, wrong or missing."""

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode

from satcourse.checks.engine import chapter, following
from satlib.errors import SatlibError

CELL_SECONDS = 300  # the project's cell trains, which took more than 120 s on a busy machine
HUNG = f"the cell did not end within {CELL_SECONDS} s; is there a loop that never stops?"
DIED = "the cell ended its kernel (os._exit, or more memory than there is)"
DONE, BLANK, WRONG, MISSING = "done", "blank", "wrong", "missing"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Result(NamedTuple):
    """The result of one exercise: its id, its state, and the reason if it is not done."""

    exercise: str
    state: str
    reason: str


def notebooks(files: Sequence[Path]) -> list[Path]:
    """The notebooks to check: the given files and those in the given folders; a path without any is refused."""
    paths: list[Path] = []
    for path in files:
        inside = sorted(path.glob("[!.]*.ipynb")) if path.is_dir() else [path]
        if not inside or not all(file.is_file() and file.suffix == ".ipynb" for file in inside):
            raise SatlibError(f"there is no notebook at {path}")
        paths += inside
    return paths


def run(path: Path) -> NotebookNode:
    """Run the code cells of a notebook in a kernel, in the notebook's folder; after an error the next cell runs.

    A cell that hangs is interrupted; after one that ends its kernel no other runs. The file is not changed.
    """
    notebook: Any = nbformat.read(path, 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        interrupt_on_timeout=True,
        iopub_timeout=120,  # on a busy machine outputs arrive late
        allow_errors=True,
        shutdown_kernel="immediate",
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    )
    with client.setup_kernel(
        stderr=subprocess.DEVNULL
    ):  # the kernel's own; what cells print comes as a message
        for index, cell in enumerate(notebook.cells):
            try:
                client.execute_cell(cell, index)
            except DeadKernelError:
                cell.outputs = [
                    nbformat.v4.new_output("error", ename="DeadKernel", evalue=DIED, traceback=[])
                ]
                break
    return notebook


def judge(notebook: NotebookNode) -> tuple[list[Result], list[str]]:
    """The result of each exercise of a notebook that was run, and a line for each error outside the exercises."""
    results: dict[str, Result] = {}
    troubles: list[str] = []
    for number, cell in enumerate(notebook.cells, 1):
        place = cell.metadata.get("satlib", {})
        outputs: Sequence[Any] = cell.get("outputs", ())
        error = next((output for output in outputs if output.output_type == "error"), None)
        id = place.get("exercise")
        if id is None:
            troubles += [f"cell {number}: {_message(error)}"] if error else []
        elif error and id not in results:
            state, _, reason = (
                COLOUR.sub("", error.evalue).removeprefix(f"{id} is ").partition(": ")
            )
            known = error.ename == "Wrong" and state in (BLANK, WRONG)
            results[id] = Result(id, state, reason) if known else Result(id, WRONG, _message(error))
        elif place.get("role") == "check" and id not in results:
            printed = "".join(output.text for output in outputs if output.output_type == "stream")
            right = f"{id} is right: " in printed
            results[id] = (
                Result(id, DONE, "") if right else Result(id, WRONG, "its check was not run")
            )
    chapters = {int(id.split(".")[0]) for id in results}
    expected = [id for number in sorted(chapters) for id in chapter(number)]
    return [
        results.get(id, Result(id, MISSING, "its check is not in the notebook")) for id in expected
    ], troubles


def _message(error: Any) -> str:
    """An error of a cell in one line."""
    if error.ename in ("KeyboardInterrupt", "DeadKernel"):
        return error.evalue or HUNG
    text = COLOUR.sub("", error.evalue).strip()
    return f"{error.ename}: {text.splitlines()[0] if text else ''}"


def table(name: str, results: Sequence[Result], troubles: Sequence[str]) -> str:
    """What `satlib check` prints about one notebook."""
    lines = [name]
    lines += [f"  {exercise:5} {state:7} {reason}".rstrip() for exercise, state, reason in results]
    lines += [f"  outside the exercises: {trouble}" for trouble in troubles]
    counts = Counter(result.state for result in results)
    total = f"{counts[DONE]} of {len(results)} done"
    total += "".join(
        f", {counts[state]} {state}" for state in (BLANK, WRONG, MISSING) if counts[state]
    )
    done = {result.exercise for result in results if result.state == DONE}
    left = next((result.exercise for result in results if result.state != DONE), None)
    if left and done:
        total += f"; next: {following(chapter(int(left.split('.')[0])), done)}"
    return "\n".join([*lines, total, ""])


def main(files: Sequence[Path]) -> int:
    """Check notebooks, two at a time, and print the results; return 0 if everything is done and nothing else failed, otherwise 1."""
    paths, good = notebooks(files), True
    with ThreadPoolExecutor(2) as pool:
        for path, notebook in zip(paths, pool.map(run, paths), strict=True):
            results, troubles = judge(notebook)
            if not results:
                troubles.append("there are no exercises: no cell is a check created by satlib")
            print(table(str(path), results, troubles), flush=True)
            good = good and not troubles and all(result.state == DONE for result in results)
    return 0 if good else 1
