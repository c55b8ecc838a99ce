"""How fast a training step is, beside a decoder as it is commonly written, and how near to what the machine can do.

Contestants take turns within one run, round by round, so that other load on the machine falls on all of them; a ratio is the
median over the rounds of the ratio within a round. "CPU" figures count processor time and not wall time: on a shared CPU they
are the steadier ones.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from benchmarks.bench.baseline import Baseline
from benchmarks.bench.machine import ceiling, peak_memory, spread, synchronise
from satlib.data import counts
from satlib.model.decoder import Decoder, Output
from satlib.model.objective import caption_loss
from satlib.recipe import DecoderConfig
from satlib.training import fast

# baseline: bench.baseline. plain: satlib's Decoder. checkpointed: plain, attention computed again in the backward pass.
# fast: satlib.training.fast. compiled: plain, each word's step through torch.compile.
CONTESTANTS = ("baseline", "plain", "checkpointed", "fast", "compiled")
CLIP = 5.0


@dataclass(frozen=True)
class Sizes:
    """The sizes of a step; letters as in the paper."""

    D: int = 512
    B: int = 64
    L: int = 196
    n: int = 512  # the LSTM's, and as many for the embedding and the attention MLP
    K: int = 9000
    C: int = 0  # words of every caption, the end mark included; 0: as in Flickr8k

    def lengths(self, count: int, shift: float = 0.5) -> list[int]:
        """The lengths of `count` captions, spread evenly over Flickr8k's; `shift`, 0 to 1, moves along them."""
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
        self.model: nn.Module = (Baseline(decoder) if name == "baseline" else decoder).to(device).train()
        self.forward: Callable[..., Output] = partial(fast.forward, decoder) if name == "fast" else decoder
        if name == "checkpointed":
            decoder.attention.forward = partial(checkpoint, decoder.attention.forward, use_reentrant=False)
        if name == "compiled":
            # The step of a word has the same shapes whatever the caption's length: one compilation serves all.
            decoder.step = torch.compile(decoder.step)
        # The baseline has torch's default; satlib's training uses the fused kernel.
        parameters = list(self.model.parameters())
        self.optimiser = torch.optim.Adam(parameters, lr=1e-4, fused=None if name == "baseline" else True)

    @property
    def label(self) -> str:
        """Name and precision."""
        return f"{self.name} {'bf16' if self.bf16 else 'float32'}"

    def batches(self, a: Tensor, shift: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The batches of a turn: for the baseline one of B captions of mixed lengths, else three of one length each."""
        B, lengths = self.sizes.B, self.sizes.lengths
        if self.name == "baseline":
            mixed = [sorted(lengths(B, shift), reverse=True)]
        else:
            mixed = [[length] * B for length in lengths(1 if self.sizes.C else 3, shift)]
        for row in mixed:
            captions = torch.randint(0, self.sizes.K, (B, row[0]), generator=torch.Generator().manual_seed(1))
            yield a, captions.to(self.device), torch.tensor(row)

    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """Forward, backward, clip, Adam, as in training: -> the loss."""
        with torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext():
            if isinstance(self.model, Baseline):
                loss = self.model.loss(a, captions, lengths)
            else:
                loss = caption_loss(self.forward, a, captions).loss
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()
        return loss.detach()

    def turn(self, a: Tensor, shift: float = 0.5) -> Took:
        """Its batches, timed one after the other."""
        words, batches = 0, list(self.batches(a, shift))
        synchronise(self.device)
        clock, cpu = time.perf_counter(), time.process_time()
        for batch in batches:
            self.step(*batch)
            words += int(batch[2].sum())
        synchronise(self.device)
        return Took(words, time.perf_counter() - clock, time.process_time() - cpu)


class Work(NamedTuple):
    """The least work of a turn: operations of matrix products, and bytes that must pass through memory."""

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


def step(
    sizes: Sizes,
    contestants: Sequence[str] = ("baseline", "plain", "fast"),
    rounds: int = 5,
    device: torch.device | None = None,
    precisions: Sequence[str] = ("float32",),
) -> dict[str, Any]:
    """Words per second of a training step, contestants taking turns.

    Args:
        sizes: of the step.
        contestants: of `CONTESTANTS`; the first, in the first precision, is what the others are compared with.
        rounds: turns of each, after one that is not counted.
        device: where; the CPU by default.
        precisions: float32, bf16.
    """
    device = device or torch.device("cpu")
    a = torch.randn(sizes.B, sizes.L, sizes.D, generator=torch.Generator().manual_seed(2)).relu_().to(device)
    field = [Contestant(name, sizes, device, which == "bf16") for which in precisions for name in contestants]
    memory = {one.label: peak_memory(lambda one=one: one.turn(a, 1 - 1e-9), device) for one in field}
    turns: dict[str, list[Took]] = {one.label: [] for one in field}
    best = {which: ceiling(sizes.n, sizes.K, device, which == "bf16") for which in precisions}
    for number in range(rounds):
        for one in field:
            turns[one.label].append(one.turn(a, (number + 0.5) / rounds))
        best = {
            which: tuple(map(max, best[which], ceiling(sizes.n, sizes.K, device, which == "bf16", 1)))  # type: ignore[misc]
            for which in precisions
        }
    first = turns[field[0].label]
    results = {}
    for one in field:
        results[one.label] = _rates(turns[one.label], first, device) | {"peak_bytes": memory[one.label]}
        if one.name != "baseline":
            rate = best["bf16" if one.bf16 else "float32"]
            results[one.label] |= _share(sizes, turns[one.label], rounds, *rate, device)
    return {
        "sizes": asdict(sizes),
        "rounds": rounds,
        "machine": {
            which: dict(zip(("operations_per_second", "bytes_per_second"), best[which], strict=True)) for which in best
        },
        "results": results,
    }


def _rates(turns: Sequence[Took], first: Sequence[Took], device: torch.device) -> dict[str, dict[str, float]]:
    """Words per second and their ratio to the first contestant's, round by round; on a CPU by processor time as well."""
    rates = {
        "tokens_per_second": spread([t.words / t.seconds for t in turns]),
        "ratio": spread([t.words / t.seconds * f.seconds / f.words for t, f in zip(turns, first, strict=True)]),
    }
    if device.type == "cpu":
        rates |= {
            "tokens_per_cpu_second": spread([t.words / t.cpu for t in turns]),
            "cpu_ratio": spread([t.words / t.cpu * f.cpu / f.words for t, f in zip(turns, first, strict=True)]),
        }
    return rates


def _share(
    sizes: Sizes, turns: Sequence[Took], rounds: int, rate: float, bandwidth: float, device: torch.device
) -> dict[str, float]:
    """The share of the time that the step's matrix products would take at the machine's peak rate, and its bytes at its bandwidth."""
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
