"""How the time of a training step grows with each of its sizes."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from benchmarks.bench.step import Contestant, Sizes

GROWTH: dict[str, tuple[int, ...]] = {
    "L": (49, 98, 196, 392),
    "B": (8, 16, 32, 64, 128),
    "C": (6, 12, 24, 48),
    "K": (1000, 3000, 9000, 27000),
}


def growth(
    sizes: Sizes,
    contestants: Sequence[str] = ("baseline", "plain", "fast"),
    rounds: int = 3,
    device: torch.device | None = None,
    values: dict[str, tuple[int, ...]] | None = None,
) -> dict[str, Any]:
    """Seconds of a step as one size grows and the others stay: processor time on a CPU, elsewhere wall time."""
    device = device or torch.device("cpu")
    sizes = replace(sizes, C=sizes.C or 12)
    seconds: dict[str, dict[str, list[float]]] = {}
    for size, grid in (values or GROWTH).items():
        seconds[size] = {"values": list(grid), **{contestant: [] for contestant in contestants}}
        for value in grid:
            now = replace(sizes, **{size: value})
            a = torch.randn(now.B, now.L, now.D).relu_().to(device)
            field = [Contestant(contestant, now, device) for contestant in contestants]
            rows = [[contestant.turn(a) for contestant in field] for _ in range(rounds + 1)][1:]
            for contestant, turns in zip(field, zip(*rows, strict=True), strict=True):
                best = min(turn.cpu if device.type == "cpu" else turn.seconds for turn in turns)
                seconds[size][contestant.name].append(best)
    return {"sizes": asdict(sizes), "seconds": seconds}
