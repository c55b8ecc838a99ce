"""Short messages for exercise notebooks that nbval runs: "exercise 4.2 is blank: write weights()" instead of a traceback.

A conftest.py next to the notebooks imports the hooks:
`from satcourse.exercises.summary import pytest_itemcollected, pytest_runtest_makereport`.
"""

import re
from collections.abc import Generator
from typing import Any

import pytest
from _pytest._code.code import ReprExceptionInfo, ReprFileLocation, ReprTracebackNative

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_VERDICT = re.compile(r"^(\d+\.\d+) is (blank|wrong): .*", re.MULTILINE | re.DOTALL)
OUTPUT_SECONDS = 120  # how long nbval waits for a cell's outputs once the cell has ended


def verdict(item: Any, error: BaseException) -> tuple[str, str] | None:
    """The exercise of a failed cell and its message; None if the cell belongs to no exercise."""
    trace = _COLOUR.sub("", str(getattr(error, "inner_traceback", None) or "")).strip()
    match = _VERDICT.search(trace)
    if match:
        return match[1], match[0].strip()
    exercise = item.cell.metadata.get("satlib", {}).get("exercise") if hasattr(item, "cell") else None
    if exercise is None:
        return None
    last = trace.splitlines()[-1] if trace else str(error)
    if item.cell.metadata["satlib"].get("role") == "check" and "NameError" in last:
        last = "run the cell above first: " + last
    return exercise, f"{exercise} is wrong: {last}"


def pytest_itemcollected(item: Any) -> None:
    """Let nbval wait longer than 5 s for a cell's outputs: on a busy machine it would give up, and every later cell would fail."""
    if hasattr(item, "output_timeout"):
        item.output_timeout = OUTPUT_SECONDS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Generator[None, Any, Any]:
    """Replace a cell's traceback by the exercise's message."""
    report = yield
    place = getattr(getattr(item, "cell", None), "metadata", {}).get("satlib")
    if call.when == "call" and place and not any(name == "satlib" for name, _ in report.user_properties):
        message = ""
        failure = verdict(item, call.excinfo.value) if report.failed and call.excinfo else None
        if failure:
            _, message = failure
            text = f"exercise {message}"
            report.longrepr = ReprExceptionInfo(
                ReprTracebackNative([text]), ReprFileLocation(str(item.path), item.cell_num, text.splitlines()[0])
            )
        if not message and not report.passed:  # after a timeout nbval skips the rest of the notebook
            skipped = "NBVAL_SKIP" in item.cell.source
            why = "it is marked to be skipped" if skipped else "it was not run, because a cell before it took too long"
            message = f"{place['exercise']} is wrong: {why}"
        report.user_properties.append(("satlib", {**place, "message": message, "path": str(item.path)}))
    return report
