"""What nbval does not do by itself: it holds each notebook to its memory, and prints what each took."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
from execution import peak_memory

SECONDS, GIGABYTES = 90, 3.0
_TOOK = "notebook took"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let nbval wait longer than 5 s for a cell's outputs: on a busy machine it would give up, and every later cell would fail."""
    if hasattr(item, "output_timeout"):
        item.output_timeout = 120


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Note when a notebook's first cell begins, its kernel's start included."""
    notebook = item.parent
    if not hasattr(notebook, "began"):
        notebook.began = time.monotonic()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After a notebook's last cell, while its kernel still runs: how long did it take, how much did it hold?"""
    notebook = item.parent
    kernel = getattr(notebook, "kernel", None)
    if kernel is None or (nextitem is not None and nextitem.parent is notebook):
        return (yield)
    seconds = time.monotonic() - notebook.began
    memory = peak_memory(kernel.km.provisioner.pid)
    item.user_properties.append((_TOOK, (Path(item.fspath).name, seconds, memory)))
    result = yield
    if memory > GIGABYTES:
        pytest.fail(f"{Path(item.fspath).name} held {memory:.1f} GB; at most {GIGABYTES} are allowed", pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of seconds and memory."""
    took = sorted(
        {
            tuple(value)
            for reports in terminalreporter.stats.values()
            for report in reports
            for name, value in getattr(report, "user_properties", ())
            if name == _TOOK
        }
    )
    if took:
        terminalreporter.section("what the notebooks took")
        for name, seconds, memory in took:
            # Said, not failed: how long a notebook takes depends on the machine and on what else it does.
            over = f"   more than {SECONDS} s" if seconds > SECONDS else ""
            terminalreporter.write_line(f"{name:36} {seconds:5.0f} s {memory:5.1f} GB{over}")
        total = sum(seconds for _, seconds, _ in took)
        terminalreporter.write_line(f"{'together':36} {total:5.0f} s")
