"""`satlib check`: run notebooks and report each exercise as done, blank, wrong or missing."""

import ast
import importlib.util
import json
import sys
import textwrap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from satcourse.exercises.engine import chapter, following, task
from satlib.errors import SatlibError
from satlib.files.progress import progress_bar

if TYPE_CHECKING:  # it needs nbclient, which only `satlib check` does
    from satcourse.exercises.running import CellOutcome

DONE, BLANK, WRONG, MISSING = "done", "blank", "wrong", "missing"
STDOUT = Path("-")  # in place of a file
SILENT = "its check said nothing; is `check` still satlib's?"


@dataclass
class ExerciseResult:
    """The result of one exercise in one notebook: its state, the reason, and the seconds that its cells took."""

    notebook: str
    exercise: str
    state: str
    reason: str
    seconds: float


def judge(notebook: str, outcomes: Sequence["CellOutcome"]) -> tuple[list[ExerciseResult], list[str]]:
    """The result of each exercise whose cells were run, and a line for each error outside the exercises."""
    rows: dict[str, ExerciseResult] = {}
    troubles = []
    for outcome in outcomes:
        if not outcome.exercise:
            if outcome.error:
                troubles.append(f"{notebook}, cell {outcome.number}: {outcome.error}")
            continue
        id = outcome.exercise
        row = rows.setdefault(id, ExerciseResult(notebook, id, "", "", 0.0))
        row.seconds += outcome.seconds
        if outcome.error and row.state != WRONG:  # if the answer's cell has failed, its message stays
            row.state, row.reason = _failure(outcome)
        elif outcome.role == "check" and outcome.seconds and not row.state:
            right = f"{id} is right: " in outcome.said
            row.state, row.reason = (DONE, "") if right else (WRONG, SILENT)
    return list(rows.values()), troubles


def _failure(outcome: "CellOutcome") -> tuple[str, str]:
    """The state and the reason of an exercise, one of whose cells has failed."""
    for state in (BLANK, WRONG):
        message = outcome.error.partition(f"{outcome.exercise} is {state}: ")
        if message[1]:
            return state, message[2]
    if outcome.role == "check" and outcome.error.startswith("NameError"):
        return WRONG, f"run the cell above first: {outcome.error}"
    return WRONG, outcome.error


def notebooks(files: Sequence[Path]) -> list[Path]:
    """The notebooks to check: the given files, those in given folders, or by default those in exercises/.

    Raises:
        SatlibError: there is no notebook at a given path.
    """
    paths = []
    for path in files or [Path("exercises")]:
        inside = (
            sorted(file for file in path.glob("*.ipynb") if not file.name.startswith(".")) if path.is_dir() else [path]
        )
        if not inside or not all(file.is_file() for file in inside):
            raise SatlibError(
                f"there is no notebook at {path}; give the path of one, or create satlib's with: make exercises"
            )
        paths += inside
    wrong = [path for path in paths if path.suffix != ".ipynb"]
    if wrong:
        raise SatlibError(f"{wrong[0]} is not a notebook (.ipynb)")
    return paths


def unchecked(path: Path) -> dict[str, str]:
    """The exercises of a notebook that cannot count as done because their checks are missing or changed, with the reason.

    Raises:
        SatlibError: the file is not a notebook, or has no exercises.
    """
    try:
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        places = [(cell.get("metadata", {}), "".join(cell["source"])) for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SatlibError(f"{path} is not a notebook: {type(error).__name__}") from error
    checks = {}
    for metadata, source in places:
        place = metadata.get("satlib", {})
        if place.get("role") == "check":
            marks = any("raises-exception" in tag or tag.startswith("nbval") for tag in metadata.get("tags", ()))
            checks[place["exercise"]] = _is_check(place["exercise"], source) and not marks
    if not checks:
        raise SatlibError(f"{path} has no exercises: none of its cells is a check created by satlib")
    reasons = {exercise: "its check has been changed" for exercise, good in checks.items() if not good}
    for number in {int(exercise.split(".")[0]) for exercise in checks}:
        reasons |= {
            exercise: "its check is not in the notebook" for exercise in chapter(number) if exercise not in checks
        }
    return reasons


def _is_check(exercise: str, source: str) -> bool:
    """Whether a cell's code is as generated; comments may differ, except those that nbval interprets."""
    try:
        does = ast.dump(ast.parse(source))
    except SyntaxError:
        return False
    return "NBVAL_" not in source and does == ast.dump(ast.parse(f'check("{exercise}", {task(exercise).name})'))


def run(paths: Sequence[Path], processes: int = 1) -> tuple[list[ExerciseResult], list[str]]:
    """Run notebooks, each in its own kernel, `processes` of them at a time; a progress bar shows where there is a terminal.

    Args:
        paths: the notebooks.
        processes: how many run at a time.

    Returns:
        The result of each exercise, in order, and a line for each error outside the exercises. Exercises of a notebook's
        chapter that are missing from the notebook are included.

    Raises:
        SatlibError: nbclient or ipykernel is not installed.
    """
    for module in ("nbclient", "ipykernel"):
        if importlib.util.find_spec(module) is None:
            raise SatlibError(f"satlib check needs {module}; run: pip install 'satlib[course]'")
    from satcourse.exercises import running

    reasons: dict[Path, dict[str, str]] = {}
    rows: list[ExerciseResult] = []
    troubles = []
    for path in paths:
        try:
            reasons[path] = unchecked(path)
        except SatlibError as error:
            troubles.append(str(error))
    with (
        ThreadPoolExecutor(max(1, processes)) as pool,
        progress_bar(unit="cell", desc=f"{len(reasons)} notebooks", show=sys.stderr.isatty(), leave=False) as bar,
    ):
        runs = pool.map(lambda path: running.run_notebook(path, bar.update), reasons)
        for (path, spoilt), outcomes in zip(reasons.items(), runs, strict=True):
            results, errors = judge(str(path), outcomes)
            rows += _with_reasons(str(path), results, spoilt)
            troubles += errors
    return sorted(rows, key=lambda row: (row.notebook, [int(part) for part in row.exercise.split(".")])), troubles


def _with_reasons(notebook: str, rows: list[ExerciseResult], spoilt: Mapping[str, str]) -> list[ExerciseResult]:
    """The results of a notebook, with those exercises that cannot count as done (`unchecked`), and the missing ones."""
    known = {row.exercise for row in rows}
    for row in rows:
        if row.exercise in spoilt and (row.state in ("", DONE) or row.reason == SILENT):
            row.state, row.reason = WRONG, spoilt[row.exercise]
        elif not row.state:
            row.state, row.reason = WRONG, "its check was not run"
    missing = [id for id in spoilt if id not in known]
    return rows + [ExerciseResult(notebook, id, MISSING, spoilt[id], 0.0) for id in missing]


def table(rows: Sequence[ExerciseResult], troubles: Sequence[str] = ()) -> str:
    """The text that `satlib check` prints."""
    lines, notebook = [], None
    for row in rows:
        if row.notebook != notebook:
            notebook = row.notebook
            lines += ["", notebook] if lines else [notebook]
        first, *more = textwrap.wrap(row.reason.replace("\n", " "), 96) or [""]
        lines.append(f"  {row.exercise:5} {row.state:7} {row.seconds:5.1f} s  {first}".rstrip())
        lines += [" " * 24 + line for line in more]
    for trouble in troubles:
        lines.append(f"  outside the exercises: {trouble}")
    counts = {state: sum(row.state == state for row in rows) for state in (DONE, BLANK, WRONG, MISSING)}
    totals = [f"{counts[DONE]} of {len(rows)} done", f"{counts[BLANK]} blank", f"{counts[WRONG]} wrong"]
    totals += [f"{counts[MISSING]} missing"] if counts[MISSING] else []
    lines += ["", ", ".join(totals)]
    done = {row.exercise for row in rows if row.state == DONE}
    left = next((row.exercise for row in rows if row.state != DONE), None)
    if left and done:
        lines[-1] += f"; next: {following(chapter(int(left.split('.')[0])), done)}"
    return "\n".join(lines)


def main(
    files: Sequence[Path],
    json_file: Path | None = None,
    processes: int = 2,
    only: Sequence[str] = (),
) -> int:
    """Check notebooks and print the results; return 0 if all exercises are done and there was no other error, otherwise 1.

    Args:
        files: notebooks and folders.
        json_file: also write the results there as JSON; `STDOUT` prints them in place of the table.
        processes: the number of notebooks to run at a time.
        only: what counts, as `exercises` takes it: by default all that the notebooks have; any other that is not there is missing.

    Raises:
        SatlibError: there is no such notebook or exercise.
    """
    wanted, paths = exercises(only), notebooks(files)
    rows, troubles = run(paths, processes)
    if wanted:
        there = {row.exercise for row in rows}
        rows = [row for row in rows if row.exercise in wanted]
        rows += [ExerciseResult("", id, MISSING, "no notebook has it", 0.0) for id in wanted if id not in there]
    _report(table(rows, troubles), {"exercises": [asdict(row) for row in rows], "troubles": troubles}, json_file)
    return 0 if rows and not troubles and all(row.state == DONE for row in rows) else 1


def _report(text: str, results: Mapping[str, Any], json_file: Path | None) -> None:
    """Print a table and write its results as JSON, or print these in place of it."""
    written = json.dumps(results, indent=1) + "\n"
    print(written if json_file == STDOUT else text)
    if json_file is not None and json_file != STDOUT:
        json_file.write_text(written, encoding="utf-8")
    sys.stdout.flush()


def exercises(names: Sequence[str]) -> list[str]:
    """The ids of exercises; a chapter's number stands for all of its exercises.

    Raises:
        SatlibError: there is no such exercise or chapter.
    """
    ids = {id for name in names for id in (chapter(int(name)) if name.isdigit() else [task(name).id])}
    return sorted(ids, key=lambda id: [int(part) for part in id.split(".")])
