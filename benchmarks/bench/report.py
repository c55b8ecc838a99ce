"""The parts of `python -m benchmarks.bench`, run one after another, printed as they finish and written to one JSON file."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.bench import growth, parts
from benchmarks.bench.machine import bf16_on_cpu, machine
from benchmarks.bench.step import CONTESTANTS, Sizes, step
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.files.atomic import write_json
from satlib.model.device import choose

PRECISIONS = ("float32", "bf16")


class Bench:
    """The options of a run, and one method for each of its parts."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Read the options.

        Raises:
            SatlibError: an unknown contestant or precision.
        """
        self.options = options
        self.contestants, self.precisions = options.contestants.split(","), options.precisions.split(",")
        for given, known in ((self.contestants, CONTESTANTS), (self.precisions, PRECISIONS)):
            for name in given:
                if name not in known:
                    raise SatlibError(f"bench has no {name!r}; choose among {', '.join(known)}")
        self.device = choose(options.device)
        self.sizes = Sizes(L=options.places)
        self.results: dict[str, Any] = {"machine": machine(self.device)}

    def run(self, names: Sequence[str]) -> dict[str, Any]:
        """Measure the named parts; each is written as soon as it is done."""
        if self.device.type == "cpu" and "bf16" in self.precisions and not bf16_on_cpu():
            print("this processor emulates bf16: its bf16 figures say nothing about processors that support it")
        measure: dict[str, Callable[[], Any]] = {
            "step": self.step,
            "growth": self.growth,
            "epoch": self.epoch,
            "extraction": lambda: parts.extraction(
                self.options.encoders.split(","), self.device, rounds=self.options.rounds
            ),
            "beam": lambda: parts.beam(self.device, rounds=self.options.rounds),
            "loader": lambda: parts.loader(rounds=self.options.rounds),
            "memory": lambda: parts.memory(steps=8 * self.options.rounds),
        }
        for name in names:
            self.results[name] = measure[name]()
            write_json(self.options.out, self.results)
            if name != "step":
                print(f"{name}: {_line(self.results[name])}", flush=True)
        print(f"written to {self.options.out}")
        return self.results

    def step(self) -> list[dict[str, Any]]:
        """The training step at every D and batch size; every row is written as soon as it is measured."""
        rows: list[dict[str, Any]] = []
        for D in self.options.dims:
            for B in self.options.batches:
                sizes = replace(self.sizes, D=D, B=B)
                rows.append(step(sizes, self.contestants, self.options.rounds, self.device, self.precisions))
                print(table(rows[-1:]), flush=True)
                self.results["step"] = rows
                write_json(self.options.out, self.results)
        return rows

    def growth(self) -> dict[str, Any]:
        """The step's time against each of its sizes, also drawn beside the JSON file."""
        sizes = replace(self.sizes, D=self.options.dims[0], B=self.options.batches[0])
        measured = growth.growth(sizes, self.contestants, self.options.rounds, self.device)
        plots.save(plots.growth_figure(measured), self.options.out.with_suffix(".png"))
        return measured

    def epoch(self) -> list[dict[str, Any]]:
        """A whole epoch of each contestant but the baseline."""
        return [
            {"contestant": name, "D": D}
            | parts.epoch(
                replace(self.sizes, D=D, B=B), self.options.images, self.device, name, "bf16" in self.precisions
            )
            for D in self.options.dims
            for B in self.options.batches
            for name in self.contestants
            if name != "baseline"
        ]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results of `step` as Markdown."""
    lines = [
        "| D | batch | | tokens/s | ratio | CPU ratio | peak memory | products | traffic |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        for label, result in row["results"].items():
            ratio, cpu, memory = result["ratio"], result.get("cpu_ratio"), result["peak_bytes"]
            rate = result["tokens_per_second"]
            cells = [
                str(row["sizes"]["D"]),
                str(row["sizes"]["B"]),
                label,
                f"{rate['median']:,.0f} ({rate['low']:,.0f} to {rate['high']:,.0f})",
                f"{ratio['median']:.2f}",
                "-" if cpu is None else f"{cpu['median']:.2f} ({cpu['low']:.2f} to {cpu['high']:.2f})",
                "-" if memory is None else f"{memory / 1e6:,.0f} MB",
                f"{100 * result['products_share']:.0f} %" if "products_share" in result else "-",
                f"{100 * result['traffic_share']:.0f} %" if "traffic_share" in result else "-",
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _line(value: Any) -> str:
    """A result in one line: medians with their range."""
    if isinstance(value, dict) and {"median", "low", "high"} <= value.keys():
        return f"{value['median']:.4g} ({value['low']:.4g} to {value['high']:.4g})"
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_line(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " | ".join(map(_line, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
