"""`satlib check`: run a learner's notebooks with nbval and report each exercise as done, blank, wrong or missing."""

import ast
import contextlib
import importlib.util
import io
import json
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from satlib.errors import SatlibError
from satlib.exercises.engine import chapter, task

CELL_SECONDS = 120  # long enough for a cell that imports torch on a busy machine
DONE, BLANK, WRONG, MISSING = "done", "blank", "wrong", "missing"


@dataclass
class ExerciseResult:
    """The result of one exercise in one notebook: its state, the reason, and the seconds that its cells took."""

    notebook: str
    exercise: str
    state: str
    reason: str
    seconds: float


class _Recorder:
    """A pytest plugin that collects the results of exercises."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], ExerciseResult] = {}
        self.troubles: list[str] = []
        self.names: dict[Path, str] = {}  # pytest's name of each file

    def pytest_runtest_logreport(self, report: Any) -> None:
        notebook = report.nodeid.split("::")[0]
        place = dict(report.user_properties).get("satlib")
        if report.when != "call" or place is None:
            if report.failed:
                said = str(report.longrepr).strip().splitlines() or [""]
                self.troubles.append(f"{notebook}, {report.nodeid.split('::')[-1]}: {_plain(said[-1])}")
            return
        key = notebook, place["exercise"]
        row = self.rows.setdefault(key, ExerciseResult(notebook, place["exercise"], "", "", 0.0))
        row.seconds += report.duration
        self.names[Path(place.get("path", notebook)).resolve()] = notebook
        if place["role"] == "check" and report.passed and not row.state:
            row.state = DONE
        if not report.passed and row.state != WRONG:  # if the answer's cell has failed, its message stays
            _, _, reason = place["message"].partition(": ")
            blank = place["message"].startswith(f"{place['exercise']} is blank")
            row.state, row.reason = (BLANK if blank else WRONG), reason

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.troubles.append(_plain(str(report.longrepr).strip().splitlines()[-1]))


def _plain(text: str) -> str:
    from satlib.exercises.summary import _COLOUR

    return _COLOUR.sub("", text)


def notebooks(given: Sequence[Path]) -> list[Path]:
    """The notebooks to check: the given files, those in given folders, or by default those in exercises/.

    Raises:
        SatlibError: there is no notebook at a given path.
    """
    paths = []
    for path in given or [Path("exercises")]:
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
    """Run notebooks, each in its own kernel; in parallel if pytest-xdist is installed, otherwise one after the other.

    Returns:
        The result of each exercise, in order, and a line for each error outside the exercises. Exercises of a notebook's
        chapter that are missing from the notebook are included.

    Raises:
        SatlibError: nbval is not installed.
    """
    for module in ("nbval", "ipykernel"):
        if importlib.util.find_spec(module) is None:
            raise SatlibError(f"satlib check needs {module}; run: pip install 'satlib[course]'")
    import pytest

    from satlib.exercises import summary

    recorder = _Recorder()
    spoilt: dict[Path, dict[str, str]] = {}
    for path in paths:
        try:
            spoilt[path.resolve()] = unchecked(path)
        except SatlibError as error:
            recorder.troubles.append(str(error))
    paths = [path for path in paths if path.resolve() in spoilt]
    if not paths:
        return [], recorder.troubles
    options = ["--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout", str(CELL_SECONDS), "-o", "addopts=", "-q"]
    options += ["-p", "no:cacheprovider", "--color", "no", "--nbval-kernel-startup-timeout", "120"]
    plugins: list[Any] = [recorder]
    if processes > 1 and len(paths) > 1 and importlib.util.find_spec("xdist") is not None:
        options += ["-n", str(min(processes, len(paths))), "--dist", "loadscope", "-p", "satlib.exercises.summary"]
    else:
        plugins.append(summary)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        status = pytest.main([*options, *map(str, paths)], plugins=plugins)
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) and not recorder.troubles:
        last = [line for line in output.getvalue().splitlines() if line.strip()][-1:]
        recorder.troubles.append(f"pytest stopped: {' '.join(last) or status}")
    for path, reasons in spoilt.items():
        name = recorder.names.get(path, str(path))
        for exercise, reason in reasons.items():
            row = recorder.rows.get((name, exercise))
            if row is None:
                recorder.rows[name, exercise] = ExerciseResult(name, exercise, MISSING, reason, 0.0)
            elif row.state in ("", DONE):
                row.state, row.reason = WRONG, reason
    for row in recorder.rows.values():
        row.state = row.state or WRONG
        row.reason = row.reason or ("its check was not run" if row.state == WRONG else "")

    def order(row: ExerciseResult) -> tuple[str, list[int]]:
        return row.notebook, [int(part) for part in row.exercise.split(".")]

    return sorted(recorder.rows.values(), key=order), recorder.troubles


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
    seconds = sum(row.seconds for row in rows)
    totals = [f"{counts[DONE]} of {len(rows)} done", f"{counts[BLANK]} blank", f"{counts[WRONG]} wrong"]
    totals += [f"{counts[MISSING]} missing"] if counts[MISSING] else []
    lines += ["", f"{', '.join(totals)}; {seconds:.0f} s"]
    return "\n".join(lines)


def main(
    given: Sequence[Path], json_file: Path | None = None, processes: int = 2, only: Sequence[str] | None = None
) -> int:
    """Check notebooks and print the results; return 0 if all exercises are done and there was no other error, otherwise 1.

    Args:
        given: notebooks and folders.
        json_file: also write the results there as JSON.
        processes: the number of notebooks to run at a time.
        only: the ids of the exercises that count; by default all.
    """
    rows, troubles = run(notebooks(given), processes)
    rows = [row for row in rows if only is None or row.exercise in only]
    print(table(rows, troubles))
    if json_file is not None:
        json_file.write_text(
            json.dumps({"exercises": [asdict(row) for row in rows], "troubles": troubles}, indent=1) + "\n",
            encoding="utf-8",
        )
    sys.stdout.flush()
    return 0 if rows and not troubles and all(row.state == DONE for row in rows) else 1
