"""`satlib bench`: how fast training is, beside a decoder as it is commonly written, and how near to what the machine can do.

Contestants take turns within one run (round by round), so that whatever else the machine does falls on all of them; a ratio is
the median over the rounds of the ratio within a round. "CPU" figures count the processor's seconds and not the clock's: on a
CPU that others share they are the steadier ones.
"""

import ctypes
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from satlib import fast
from satlib.datasets import counts
from satlib.decoder import Decoder, DecoderConfig
from satlib.objectives import doubly_stochastic_penalty, negative_log_likelihood
from satlib.textbook import Textbook

# textbook: satlib.textbook. plain: satlib with autograd's loop. fast: satlib.fast. compiled: plain, each word's step through torch.compile.
CONTESTANTS = ("textbook", "plain", "fast", "compiled")
CLIP = 5.0


@dataclass(frozen=True)
class Sizes:
    """Of a step; letters as in the paper."""

    D: int = 512
    B: int = 64
    L: int = 196
    n: int = 512  # the LSTM's, and as many for the embedding and the attention MLP
    K: int = 9000
    C: int = 0  # words of every caption, the end mark included; 0: as in Flickr8k

    def lengths(self, count: int, shift: float = 0.5) -> list[int]:
        """The lengths of so many captions, spread over Flickr8k's as evenly as can be; `shift`, 0 to 1, says which of them."""
        if self.C:
            return [self.C] * count
        ordered = _flickr8k_lengths()
        return [ordered[int((i + shift) / count * len(ordered))] for i in range(count)]


@lru_cache
def _flickr8k_lengths() -> list[int]:
    return sorted(length + 1 for length in counts.read()["train"].lengths.elements())


class Took(NamedTuple):
    """One contestant's turn."""

    words: int
    seconds: float
    cpu: float


class Contestant:
    """A decoder with its way through a training step."""

    def __init__(self, name: str, sizes: Sizes, device: torch.device, bf16: bool = False) -> None:
        """Make it with weights that depend on the sizes alone."""
        torch.manual_seed(0)
        config = DecoderConfig(embedding=sizes.n, hidden=sizes.n, attention_hidden=sizes.n)
        decoder = Decoder(config, sizes.D, sizes.K)
        self.name, self.sizes, self.device, self.bf16 = name, sizes, device, bf16
        self.model: nn.Module = (Textbook(decoder) if name == "textbook" else decoder).to(device).train()
        if name == "compiled":
            # A word's step has the same shapes whatever a caption's length: one compilation serves all.
            decoder.step = torch.compile(decoder.step)
        # What is common is torch's own default; satlib's training asks for the fused one.
        parameters = list(self.model.parameters())
        self.optimiser = torch.optim.Adam(parameters, lr=1e-4, fused=None if name == "textbook" else True)

    @property
    def label(self) -> str:
        """Name and precision."""
        return f"{self.name} {'bf16' if self.bf16 else 'float32'}"

    def batches(self, a: Tensor, shift: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """What a turn goes through: the textbook's mixed batch of B captions, or ours, three of one length each."""
        B, lengths = self.sizes.B, self.sizes.lengths
        if self.name == "textbook":
            mixed = [sorted(lengths(B, shift), reverse=True)]
        else:
            mixed = [[length] * B for length in lengths(1 if self.sizes.C else 3, shift)]
        for each in mixed:
            captions = torch.randint(0, self.sizes.K, (B, each[0]), generator=torch.Generator().manual_seed(1))
            yield a, captions.to(self.device), torch.tensor(each)

    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """Forward, backward, clip, Adam: as training does; gives the loss."""
        with torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext():
            if isinstance(self.model, Textbook):
                loss = self.model.loss(a, captions, lengths)
            else:
                output = self.model(a, captions)
                loss = negative_log_likelihood(output.logits, captions).mean()
                loss = loss + doubly_stochastic_penalty(output.alphas).mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        return loss.detach()

    def turn(self, a: Tensor, shift: float = 0.5) -> Took:
        """Its batches, timed one after the other."""
        with fast.switched("1" if self.name == "fast" else "0"):
            words, batches = 0, list(self.batches(a, shift))
            synchronise(self.device)
            clock, cpu = time.perf_counter(), time.process_time()
            for batch in batches:
                self.step(*batch)
                words += int(batch[2].sum())
            synchronise(self.device)
            return Took(words, time.perf_counter() - clock, time.process_time() - cpu)


def synchronise(device: torch.device) -> None:
    """Wait for what the device has been given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Work(NamedTuple):
    """What a turn of satlib's must do: operations of matrix products, and bytes that pass through memory at the least."""

    operations: float
    bytes: float


def must_do(sizes: Sizes, B: int, C: int) -> Work:
    """Count one step: B captions of C words.

    A product (x, y) by (y, z) is 2 x y z operations, forward once and backward twice, or once where its input needs no gradient.
    Bytes, at 4 each: annotation vectors and keys are read once forward and once backward for every word, and the gradient of the
    keys is read and written; Adam and clipping pass over weights, gradients and two moments.
    """
    L, D, n, K = sizes.L, sizes.D, sizes.n, sizes.K
    once = 2 * 2 * B * (L * D * n + 2 * D * n)  # keys, and the first layers of the initial MLPs
    looking = 2 * 2 * B * C * L * (D + n)  # z and energies; backward as many again
    of_words = n * 4 * n + n * (5 * n + 1) + D * 4 * n + n * n + D * n + n * K  # gates by word, by h, by z; output
    weights = n * K * 2 + n * 4 * n * 2 + D * n * 4 + D * 4 * n + n * n * 5
    traffic = 4 * (B * C * L * (2 * D + 4 * n) + 10 * weights)
    return Work(once + looking + 3 * 2 * B * C * of_words + 3 * 2 * 2 * B * n * n, traffic)


def ceiling(sizes: Sizes, device: torch.device, bf16: bool = False, turns: int = 5) -> tuple[float, float]:
    """What the machine does at its best: operations a second of a large matrix product, bytes a second of a copy."""
    x = torch.randn(768, sizes.n, device=device, dtype=torch.bfloat16 if bf16 else torch.float32)
    y = torch.randn(sizes.n, sizes.K, device=device, dtype=x.dtype)
    source = torch.randn(2**25, device=device)
    target, scores, rate, bandwidth = torch.empty_like(source), x @ y, 0.0, 0.0
    repeats = 50 if device.type == "cuda" else 1
    for _ in range(turns):
        synchronise(device)
        start = time.process_time() if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter()
        for _ in range(repeats):
            torch.mm(x, y, out=scores)
        synchronise(device)
        middle = time.process_time() if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter()
        for _ in range(repeats):
            target.copy_(source)
        synchronise(device)
        end = time.process_time() if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter()
        rate = max(rate, repeats * 2 * x.numel() * sizes.K / (middle - start))
        bandwidth = max(bandwidth, repeats * 2 * 4 * source.numel() / (end - middle))
    return rate, bandwidth


def peak_memory(action: Callable[[], Any], device: torch.device) -> float | None:
    """Bytes that an action takes at its peak beyond what was there before; None where the system does not say."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        action()
        return float(torch.cuda.max_memory_allocated(device) - before)
    if not Path("/proc/self/clear_refs").exists():
        return None
    with suppress(AttributeError):  # a C library without it: freed memory may then count as taken
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten
    before = status("VmRSS")
    action()
    return status("VmHWM") - before


def status(name: str) -> float:
    """A line of /proc/self/status in bytes: VmRSS now, VmHWM the most, RssAnon and RssFile its parts."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024.0 * int(found[1]) if found else 0.0


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def step(
    sizes: Sizes,
    contestants: Sequence[str] = ("textbook", "plain", "fast"),
    rounds: int = 5,
    device: torch.device | None = None,
    precisions: Sequence[str] = ("float32",),
) -> dict[str, Any]:
    """Words a second of a training step, contestant by contestant in turn.

    Args:
        sizes: of the step.
        contestants: of `CONTESTANTS`; the first, in the first precision, is what the others are compared with.
        rounds: turns of each, after one that is not counted.
        device: where; the CPU by default.
        precisions: float32, bf16.
    """
    device = device or torch.device("cpu")
    a = torch.randn(sizes.B, sizes.L, sizes.D, generator=torch.Generator().manual_seed(2)).relu_().to(device)
    made = [Contestant(name, sizes, device, which == "bf16") for which in precisions for name in contestants]
    memory = {each.label: peak_memory(lambda each=each: each.turn(a, 1 - 1e-9), device) for each in made}
    took: dict[str, list[Took]] = {each.label: [] for each in made}
    best = {which: ceiling(sizes, device, which == "bf16") for which in precisions}
    for number in range(rounds):
        for each in made:
            took[each.label].append(each.turn(a, (number + 0.5) / rounds))
        best = {
            which: tuple(map(max, best[which], ceiling(sizes, device, which == "bf16", 1)))  # type: ignore[misc]
            for which in precisions
        }
    first = took[made[0].label]
    results = {}
    for each in made:
        turns = took[each.label]
        results[each.label] = {
            "tokens_per_second": spread([t.words / t.seconds for t in turns]),
            "ratio": spread([t.words / t.seconds * f.seconds / f.words for t, f in zip(turns, first, strict=True)]),
            "peak_bytes": memory[each.label],
        }
        if device.type == "cpu":
            results[each.label] |= {
                "tokens_per_cpu_second": spread([t.words / t.cpu for t in turns]),
                "cpu_ratio": spread([t.words / t.cpu * f.cpu / f.words for t, f in zip(turns, first, strict=True)]),
            }
        if each.name != "textbook":
            results[each.label] |= _share(sizes, turns, rounds, *best["bf16" if each.bf16 else "float32"], device)
    return {
        "sizes": asdict(sizes),
        "rounds": rounds,
        "machine": {
            which: dict(zip(("operations_per_second", "bytes_per_second"), best[which], strict=True)) for which in best
        },
        "results": results,
    }


def _share(
    sizes: Sizes, turns: Sequence[Took], rounds: int, rate: float, bandwidth: float, device: torch.device
) -> dict[str, float]:
    """Which part of the time the step's matrix products would take at the machine's rate, and its bytes at its bandwidth."""
    at_work = [
        sum(
            must_do(sizes, sizes.B, C)[i]
            for number in range(rounds)
            for C in sizes.lengths(1 if sizes.C else 3, (number + 0.5) / rounds)
        )
        for i in (0, 1)
    ]
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    spent = sum(t.cpu if alone else t.seconds for t in turns)
    return {"products_share": at_work[0] / rate / spent, "traffic_share": at_work[1] / bandwidth / spent}


GROWTH: dict[str, tuple[int, ...]] = {
    "L": (49, 98, 196, 392),
    "B": (8, 16, 32, 64, 128),
    "C": (6, 12, 24, 48),
    "K": (1000, 3000, 9000, 27000),
}


def growth(
    sizes: Sizes,
    contestants: Sequence[str] = ("textbook", "fast"),
    rounds: int = 3,
    device: torch.device | None = None,
    values: dict[str, tuple[int, ...]] | None = None,
) -> dict[str, Any]:
    """Seconds of a step as one size grows and the others stay: the processor's on a CPU, else the clock's."""
    device = device or torch.device("cpu")
    sizes = replace(sizes, C=sizes.C or 12)
    found: dict[str, Any] = {"sizes": asdict(sizes), "seconds": {}}
    for name, every in (values or GROWTH).items():
        found["seconds"][name] = {"values": list(every), **{contestant: [] for contestant in contestants}}
        for value in every:
            now = replace(sizes, **{name: value})
            a = torch.randn(now.B, now.L, now.D).relu_().to(device)
            made = [Contestant(contestant, now, device) for contestant in contestants]
            turns = [[each.turn(a) for each in made] for _ in range(rounds + 1)][1:]
            for i, each in enumerate(made):
                best = min(turn[i].cpu if device.type == "cpu" else turn[i].seconds for turn in turns)
                found["seconds"][name][each.name].append(best)
    return found


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    name = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        name = found[1] if found else name
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "busy": os.getloadavg()[0],
        "bf16": bf16_on_cpu(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "torch": torch.__version__,
    }


def bf16_on_cpu() -> bool:
    """Whether the CPU multiplies bf16 itself."""
    path = Path("/proc/cpuinfo")
    return path.exists() and re.search(r"\b(avx512_bf16|amx_bf16|bf16)\b", path.read_text()) is not None


def table(found: Sequence[dict[str, Any]]) -> str:
    """The results of `step` as Markdown."""
    lines = [
        "| D | batch | | tokens/s | ratio | CPU ratio | peak memory | products | traffic |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in found:
        for label, result in each["results"].items():
            ratio, cpu, memory = result["ratio"], result.get("cpu_ratio"), result["peak_bytes"]
            rate = result["tokens_per_second"]
            cells = [
                str(each["sizes"]["D"]),
                str(each["sizes"]["B"]),
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
