"""The parts of `satlib bench`, run one after another, printed as they are ready and written to one JSON file."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from satlib import bench, bench_parts, plots
from satlib.device import choose
from satlib.errors import SatlibError
from satlib.files import write_json


def run(parts: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Measure; every part is written as soon as it is there.

    Raises:
        SatlibError: a contestant or a precision that is not there.
    """
    contestants, precisions = options.contestants.split(","), options.precisions.split(",")
    for given, known in ((contestants, bench.CONTESTANTS), (precisions, ("float32", "bf16"))):
        for name in given:
            if name not in known:
                raise SatlibError(f"bench has no {name!r}; choose among {', '.join(known)}")
    device = choose(options.device)
    sizes = bench.Sizes(L=options.places)
    found: dict[str, Any] = {"machine": bench.machine(device)}
    if device.type == "cpu" and "bf16" in precisions and not bench.bf16_on_cpu():
        print("this processor has no bf16 of its own: its figures say nothing about one that has")

    def steps() -> list[dict[str, Any]]:
        rows = []
        for D in options.dims:
            for B in options.batches:
                rows.append(bench.step(replace(sizes, D=D, B=B), contestants, options.rounds, device, precisions))
                print(bench.table(rows[-1:]), flush=True)
                found["step"] = rows
                write_json(options.out, found)
        return rows

    def growth() -> dict[str, Any]:
        named = [name for name in contestants if name != "plain"]
        made = bench.growth(replace(sizes, D=options.dims[0], B=options.batches[0]), named, options.rounds, device)
        plots.save(plots.growth_figure(made), options.out.with_suffix(".png"))
        return made

    def epoch() -> list[dict[str, Any]]:
        bf16 = "bf16" in precisions
        return [
            {"contestant": name, "D": D}
            | bench_parts.epoch(replace(sizes, D=D, B=B), options.images, device, name, bf16)
            for D in options.dims
            for B in options.batches
            for name in contestants
            if name != "textbook"
        ]

    work: dict[str, Callable[[], Any]] = {
        "step": steps,
        "growth": growth,
        "epoch": epoch,
        "extraction": lambda: bench_parts.extraction(options.encoders.split(","), device, rounds=options.rounds),
        "beam": lambda: bench_parts.beam(device, rounds=options.rounds),
        "loader": lambda: bench_parts.loader(rounds=options.rounds),
        "memory": lambda: bench_parts.memory(steps=8 * options.rounds),
    }
    for part in parts:
        found[part] = work[part]()
        write_json(options.out, found)
        if part != "step":
            print(f"{part}: {_line(found[part])}", flush=True)
    print(f"written to {options.out}")
    return found


def _line(value: Any) -> str:
    """A result in one line: medians, with the least and the most."""
    if isinstance(value, dict) and {"median", "low", "high"} <= value.keys():
        return f"{value['median']:.4g} ({value['low']:.4g} to {value['high']:.4g})"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_line(each)}" for key, each in value.items())
    if isinstance(value, list):
        return " | ".join(map(_line, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
