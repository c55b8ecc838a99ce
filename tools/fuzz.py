"""Strangers' files: valid files of every kind that satlib reads are changed at random, and satlib must read or refuse each.

    python tools/fuzz.py --cases 10000              all kinds, in turn
    python tools/fuzz.py --kind model --cases 500   one kind

A case is a problem if it ends in anything but a result or one line of advice, takes more than 20 seconds, writes outside of its own
folder, leaves a half-written file, or accepts a file that was cut short. `make test` runs 300 cases.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import fuzz_kinds

from satlib.cli import main as satlib
from satlib.errors import SatlibError

SECONDS = 20
_CACHES = (
    tempfile.gettempdir() + "/torch",
    str(Path.home() / ".cache"),
    str(Path.home() / ".config"),
    "/dev/",
    "/proc/",
)
_watching: list[Path] = []  # the folder of the case that runs
_written: list[str] = []  # what it wrote elsewhere


@dataclass
class Results:
    """The outcomes of the cases of a kind, and what went wrong."""

    outcomes: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0


class TooSlow(BaseException):
    """A case took too long; no `except Exception` may catch it."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    """Note a file that is written outside of the case's folder."""
    if not _watching:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = (isinstance(mode, str) and set(mode) & set("wax+")) or (
            mode is None and flags & (os.O_WRONLY | os.O_RDWR)
        )
    elif event in ("os.mkdir", "os.rename"):
        path, writes = arguments[event == "os.rename"], True
    else:
        return
    if writes and isinstance(path, str | Path):
        where = os.path.abspath(path)
        inside = Path(where).is_relative_to(_watching[0])
        if not (inside or where.startswith(_CACHES) or "__pycache__" in where):
            _written.append(f"{event} {where}")


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def outcome(use: Callable[[], object]) -> tuple[str, str]:
    """Run a case: "accepted" or "refused", or what else happened, and what was said."""
    said = io.StringIO()
    try:
        with _limited(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            status = use()
            status = status if isinstance(status, int) else 0
    except TooSlow:
        return f"over {SECONDS} s", ""
    except SatlibError as error:
        return "refused", str(error)
    except SystemExit as error:
        status = error.code
    except BaseException as error:
        return f"bare {type(error).__name__}", f"{error}"[:200]
    return ("accepted" if status in (None, 0, 1) else "refused" if status == 2 else f"exit {status}"), said.getvalue()


def run_case(kind: fuzz_kinds.Kind, valid: Path, chance: random.Random, results: Results) -> None:
    """Copy the valid files, change them, use them, and note what happened."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "case"
        shutil.copytree(valid, folder)
        change, cut = fuzz_kinds.change(kind, folder, chance)
        _watching.append(folder)
        began = time.perf_counter()
        try:
            got, said = outcome(lambda: kind.use(folder, satlib))
        finally:
            _watching.clear()
        results.slowest = max(results.slowest, time.perf_counter() - began)
        problem = "" if got in ("accepted", "refused") else f"{got}: {said}"
        if got == "accepted" and cut and kind.notices_cuts:
            problem = "accepted a file that was cut short"
        if got == "refused" and ("Traceback" in said or not said.strip() or "\n" in said.strip().split("satlib: ")[-1]):
            problem = f"refused without one line of advice: {said[:200]!r}"
        left_over = [str(path.relative_to(folder)) for path in folder.rglob("*.partial")] if got != "accepted" else []
        if _written or left_over:
            problem = f"wrote {_written or left_over}"
            _written.clear()
        results.outcomes["problem" if problem else got] += 1
        if problem:
            results.problems.append(f"{change}: {problem}")


def _run_cases(kind: fuzz_kinds.Kind, valid: Path, results: Results, cases: int) -> None:
    """Run so many cases; hypothesis chooses them, the same each time."""

    @settings(max_examples=cases, database=None, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(st.integers(0, 2**64 - 1))
    def case(seed: int) -> None:
        run_case(kind, valid, random.Random(seed), results)

    case()


def fuzz(names: list[str], cases: int, progress: bool = False) -> dict[str, Results]:
    """Run so many cases in all, equally many of each kind: the results by kind."""
    found = {}
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        for number, kind in enumerate(names):
            valid = Path(name) / kind
            valid.mkdir()
            chosen = fuzz_kinds.KINDS[kind]
            chosen.make(valid)
            copy = Path(shutil.copytree(valid, valid.with_name(f"{kind}, used")))
            got, said = outcome(partial(chosen.use, copy, satlib))
            assert got == "accepted", f"the valid files of {kind} are refused: {got} {said}"
            results = found[kind] = Results()
            _run_cases(chosen, valid, results, cases // len(names) + (number < cases % len(names)))
            if progress:
                print(line(kind, results), file=sys.stderr, flush=True)
    return found


def line(kind: str, results: Results) -> str:
    """A row of the table."""
    counts = [results.outcomes[name] for name in ("accepted", "refused", "problem")]
    return f"{kind:12} {sum(counts):7,} {counts[0]:9,} {counts[1]:8,} {counts[2]:9,} {results.slowest:9.1f} s"


def main(arguments: list[str] | None = None) -> int:
    """Run the cases and print the table; status 1 if there was a problem."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=300, help="number of cases in all")
    parser.add_argument("--kind", choices=fuzz_kinds.KINDS, action="append", help="one kind; may be repeated")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"{'kind':12} {'cases':>7} {'accepted':>9} {'refused':>8} {'problems':>9} {'slowest':>11}")
    found = fuzz(options.kind or list(fuzz_kinds.KINDS), options.cases, progress=True)
    problems = [f"{kind}: {problem}" for kind, results in found.items() for problem in results.problems]
    print(f"{sum(sum(results.outcomes.values()) for results in found.values()):,} cases, {len(problems)} problems")
    for problem in problems[:40]:
        print(problem)
    return 1 if problems else 0


sys.addaudithook(_audit)
if __name__ == "__main__":
    sys.exit(main())
