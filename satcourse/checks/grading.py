"""`satlib check`: run exercise notebooks and report each exercise.

It is done, blank, wrong or missing.
"""

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

# The project's cell trains, which took more than 120 s on a busy machine.
CELL_SECONDS = 300
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
    """The notebooks to check: the given files and those in the given folders.

    Raises SatlibError for a path without any.
    """
    paths: list[Path] = []
    for path in files:
        # Not what begins with a dot: editors and Jupyter keep their own copies so.
        inside = sorted(path.glob("[!.]*.ipynb")) if path.is_dir() else [path]
        if not inside or not all(file.is_file() and file.suffix == ".ipynb" for file in inside):
            raise SatlibError(f"there is no notebook at {path}")
        paths += inside
    return paths


def run(path: Path) -> NotebookNode:
    """Run the code cells of a notebook in a kernel, in the notebook's folder.

    After an error the next cell runs. A cell that hangs is interrupted; after one that ends its
    kernel no other runs. The file is not changed.
    """
    notebook: Any = nbformat.read(path, 4)
    # What is stored there is of an earlier run, and must not be judged where this one ends early.
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
    # The kernel's own errors are hidden; what cells print comes as a message.
    with client.setup_kernel(stderr=subprocess.DEVNULL):
        for index, cell in enumerate(notebook.cells):
            try:
                client.execute_cell(cell, index)
            except DeadKernelError:
                died = nbformat.v4.new_output(
                    "error", ename="DeadKernel", evalue=DIED, traceback=[]
                )
                cell.outputs = [died]
                break
    return notebook


def judge(notebook: NotebookNode) -> tuple[list[Result], list[str]]:
    """The result of each exercise of a notebook that was run, and a line for each other error."""
    results: dict[str, Result] = {}
    troubles: list[str] = []
    for number, cell in enumerate(notebook.cells, 1):
        mark = cell.metadata.get("satlib", {})
        outputs: Sequence[Any] = cell.get("outputs", ())
        errors = [output for output in outputs if output.output_type == "error"]
        id = mark.get("exercise")

        if id is None:
            troubles += [f"cell {number}: {_message(error)}" for error in errors[:1]]
        # The first result counts: an answer that does not run is wrong, whatever its check says.
        elif id in results:
            continue
        elif errors:
            results[id] = _of_error(id, errors[0])
        elif mark.get("role") == "check":
            results[id] = _of_output(id, outputs)

    # All exercises of the notebook, also those whose cells somebody has deleted.
    chapters = {int(id.split(".")[0]) for id in results}
    all_results = []
    for number in sorted(chapters):
        for id in chapter(number):
            missing = Result(id, MISSING, "its check is not in the notebook")
            all_results.append(results.get(id, missing))
    return all_results, troubles


def _of_error(id: str, error: Any) -> Result:
    """The result of an exercise whose cell ended in an error: `check`'s Wrong, or any other."""
    text = COLOUR.sub("", error.evalue).removeprefix(f"{id} is ")
    state, _, reason = text.partition(": ")
    if error.ename == "Wrong" and state in (BLANK, WRONG):
        return Result(id, state, reason)
    return Result(id, WRONG, _message(error))


def _of_output(id: str, outputs: Sequence[Any]) -> Result:
    """The result of an exercise whose check ended without an error."""
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    # Somebody may have put something else into the cell, which is no check.
    if f"{id} is right: " in printed:
        return Result(id, DONE, "")
    return Result(id, WRONG, "its check was not run")


def _message(error: Any) -> str:
    """An error of a cell in one line."""
    # A cell that hangs is interrupted, and so ends as if somebody had pressed Ctrl-C.
    if error.ename in ("KeyboardInterrupt", "DeadKernel"):
        return error.evalue or HUNG
    text = COLOUR.sub("", error.evalue).strip()
    first_line = text.splitlines()[0] if text else ""
    return f"{error.ename}: {first_line}"


def table(name: str, results: Sequence[Result], troubles: Sequence[str]) -> str:
    """What `satlib check` prints about one notebook."""
    lines = [name]
    lines += [f"  {exercise:5} {state:7} {reason}".rstrip() for exercise, state, reason in results]
    lines += [f"  outside the exercises: {trouble}" for trouble in troubles]

    counts = Counter(result.state for result in results)
    total = f"{counts[DONE]} of {len(results)} done"
    for state in (BLANK, WRONG, MISSING):
        if counts[state]:
            total += f", {counts[state]} {state}"

    # Whoever has not begun knows where to begin.
    done = {result.exercise for result in results if result.state == DONE}
    left = [result.exercise for result in results if result.state != DONE]
    if left and done:
        number = int(left[0].split(".")[0])
        total += f"; next: {following(chapter(number), done)}"
    return "\n".join([*lines, total, ""])


def main(files: Sequence[Path]) -> int:
    """Check notebooks, two at a time, and print the results.

    Returns 0 if everything is done and nothing else failed, otherwise 1.
    """
    paths = notebooks(files)
    good = True
    # Threads suffice: each waits for its own kernel, which is a process.
    with ThreadPoolExecutor(2) as pool:
        for path, notebook in zip(paths, pool.map(run, paths), strict=True):
            results, troubles = judge(notebook)
            if not results:
                troubles.append("there are no exercises: no cell is a check created by satlib")
            print(table(str(path), results, troubles), flush=True)
            good = good and not troubles and all(result.state == DONE for result in results)
    return 0 if good else 1
