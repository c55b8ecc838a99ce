"""`satlib check`: run a learner's notebooks by nbval and say of each exercise whether it is done, blank or wrong, and why."""

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

CELL_SECONDS = 120  # importing torch on a busy machine takes one of them
DONE, BLANK, WRONG = "done", "blank", "wrong"


@dataclass
class Row:
    """One exercise of one notebook: done, blank or wrong, the reason, and the seconds of its cells."""

    notebook: str
    exercise: str
    state: str
    reason: str
    seconds: float


class _Recorder:
    """A pytest plugin that keeps what it hears of exercises."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.troubles: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        notebook = report.nodeid.split("::")[0]
        place = dict(report.user_properties).get("satlib")
        if report.when != "call" or place is None:
            if report.failed:
                said = str(report.longrepr).strip().splitlines() or [""]
                self.troubles.append(f"{notebook}, {report.nodeid.split('::')[-1]}: {_plain(said[-1])}")
            return
        key = notebook, place["exercise"]
        row = self.rows.setdefault(key, Row(notebook, place["exercise"], "", "", 0.0))
        row.seconds += report.duration
        if place["role"] == "check" and report.passed and not row.state:
            row.state = DONE
        if not report.passed and row.state != WRONG:  # an answer's cell that fails comes before its check
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
    """The notebooks to check: those named, those in a folder that is named, or those in exercises/.

    Raises:
        SatlibError: there is none.
    """
    found = []
    for path in given or [Path("exercises")]:
        inside = (
            sorted(each for each in path.glob("*.ipynb") if not each.name.startswith(".")) if path.is_dir() else [path]
        )
        if not inside or not all(each.is_file() for each in inside):
            raise SatlibError(f"there is no notebook at {path}; name one, or make satlib's with: make exercises")
        found += inside
    wrong = [path for path in found if path.suffix != ".ipynb"]
    if wrong:
        raise SatlibError(f"{wrong[0]} is not a notebook (.ipynb)")
    return found


def run(paths: Sequence[Path], processes: int = 1) -> tuple[list[Row], list[str]]:
    """Run notebooks, each in a kernel of its own.

    Returns:
        A row for each exercise, in order, and a line for each thing that went wrong outside of exercises.

    Raises:
        SatlibError: nbval is not installed.
    """
    for module in ("nbval", "ipykernel"):
        if importlib.util.find_spec(module) is None:
            raise SatlibError(f"checking needs {module}: pip install 'satlib[course]'")
    import pytest

    from satlib.exercises import summary

    recorder = _Recorder()
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
    for row in recorder.rows.values():
        row.state = row.state or WRONG
        row.reason = row.reason or ("its check was not run" if row.state == WRONG else "")

    def order(row: Row) -> tuple[str, list[int]]:
        return row.notebook, [int(part) for part in row.exercise.split(".")]

    return sorted(recorder.rows.values(), key=order), recorder.troubles


def table(rows: Sequence[Row], troubles: Sequence[str] = ()) -> str:
    """What `satlib check` prints."""
    lines, notebook = [], None
    for row in rows:
        if row.notebook != notebook:
            notebook = row.notebook
            lines += ["", notebook] if lines else [notebook]
        first, *more = textwrap.wrap(row.reason.replace("\n", " "), 96) or [""]
        lines.append(f"  {row.exercise:5} {row.state:6} {row.seconds:5.1f} s  {first}".rstrip())
        lines += [" " * 23 + line for line in more]
    for trouble in troubles:
        lines.append(f"  outside of the exercises: {trouble}")
    counts = {state: sum(row.state == state for row in rows) for state in (DONE, BLANK, WRONG)}
    seconds = sum(row.seconds for row in rows)
    lines += ["", f"{counts[DONE]} of {len(rows)} done, {counts[BLANK]} blank, {counts[WRONG]} wrong; {seconds:.0f} s"]
    return "\n".join(lines)


def main(given: Sequence[Path], json_file: Path | None = None, processes: int = 2) -> int:
    """Check, print the table; 0 if all exercises are done, 1 if any is blank or wrong or a notebook has none."""
    rows, troubles = run(notebooks(given), processes)
    print(table(rows, troubles))
    if json_file is not None:
        json_file.write_text(
            json.dumps({"exercises": [asdict(row) for row in rows], "troubles": troubles}, indent=1) + "\n",
            encoding="utf-8",
        )
    sys.stdout.flush()
    return 0 if rows and not troubles and all(row.state == DONE for row in rows) else 1
