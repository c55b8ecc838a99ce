"""Speed and memory of satlib's training step beside a decoder as it is commonly written.

    python benchmarks/bench.py
    python benchmarks/bench.py step --dims 512 2048 --batches 64 --hidden 512 --rounds 3

`step` measures a training step, at each of the sizes; `beam` measures the beam search; without a
name, both are measured. `--help` lists all options. The contestants of `step` take turns, round by
round, so that other load on the machine falls on all of them. A ratio is the median over the rounds
of the ratio within a round.
"""

import argparse
import copy
import json
import re
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from satlib.data import scenes
from satlib.data.images import to_tensor
from satlib.model import installed
from satlib.model.captioner import Captioner
from satlib.model.decoder import Decoder, DecoderConfig
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.model.search import beam_search

CLIP = 5.0
# Lengths of Flickr8k's training captions, end mark included: the middle of each twentieth of them,
# and the longest.
LENGTHS = (6, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 16, 17, 20)
LONGEST = 37
IMAGES = 32  # in a batch of the beam search
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}
PARTS = ("step", "beam")
Row = dict[str, Any]  # what was measured, by name
Action = Callable[[], Any]


class Baseline(nn.Module):
    """A decoder as it is commonly written, with the mathematics and the weights of satlib's.

    It has soft attention and an LSTM cell on [E y; z]. A batch has captions of any length, padded
    and sorted; the loop runs to the longest, and the batch shrinks as captions end. The projection
    of the annotation vectors and the vocabulary layer are inside the loop.
    """

    def __init__(self, decoder: Decoder) -> None:
        """Copy the weights of a decoder with soft attention by the additive energy."""
        super().__init__()
        twin = copy.deepcopy(decoder)
        self.embedding = twin.embedding
        self.gate = twin.gate
        self.annotation, self.state, self.energy = twin.attention.energy.children()
        self.initial_h = twin.initial_h
        self.initial_c = twin.initial_c
        self.output_state = twin.output_state
        self.output_context = twin.output_context
        self.output = twin.output
        self.dropout = twin.dropout

        # satlib has a matrix for each of the cell's inputs, and one bias; torch's cell has one
        # matrix for both inputs, and two biases.
        inputs = torch.cat([twin.gates_word.weight, twin.gates_context.weight], 1)  # (4 n, m + D)
        cell = nn.LSTMCell(inputs.shape[1], decoder.config.hidden)
        self.cell = cell.to(twin.output.weight)
        with torch.no_grad():
            self.cell.weight_ih.copy_(inputs)
            self.cell.weight_hh.copy_(twin.gates_state.weight)
            self.cell.bias_ih.copy_(twin.gates_word.bias)
            self.cell.bias_hh.zero_()

    def forward(self, a: Tensor, captions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, C, K) and alphas (B, C, L), zero after a caption's end.

        Args:
            a: annotation vectors (B, L, D), by length of the caption, longest first.
            captions: ids (B, C), the end mark last, anything after it.
            lengths: (B,), the end marks included, not growing.
        """
        B, C = captions.shape
        mean = a.mean(1)  # (B, D)
        h = self.initial_h(mean)
        c = self.initial_c(mean)

        # The word before each word; zeros before the first.
        embedded = self.embedding(captions)  # (B, C, m)
        nothing = torch.zeros_like(embedded[:, :1])
        embedded = torch.cat([nothing, embedded[:, :-1]], 1)

        logits = a.new_zeros(B, C, self.output.out_features)
        alphas = a.new_zeros(B, C, a.shape[1])
        for t in range(C):
            # Captions are sorted: those that have ended are the last rows.
            rows = int((lengths > t).sum())
            a_t = a[:rows]
            h = h[:rows]
            c = c[:rows]
            word = embedded[:rows, t]

            query = self.state(h).unsqueeze(1)  # (rows, 1, n)
            units = torch.tanh(self.annotation(a_t) + query)  # (rows, L, n)
            alpha = torch.softmax(self.energy(units).squeeze(2), dim=1)  # (rows, L)
            z = (a_t * alpha.unsqueeze(2)).sum(1)  # (rows, D)
            if self.gate is not None:
                z = torch.sigmoid(self.gate(h)) * z

            h, c = self.cell(torch.cat([word, z], 1), (h, c))
            deep = word + self.output_state(self.dropout(h)) + self.output_context(z)

            # Under autocast the parts may be in bfloat16.
            logits[:rows, t] = self.output(self.dropout(deep)).to(logits.dtype)
            alphas[:rows, t] = alpha.to(alphas.dtype)
        return logits, alphas

    def loss(self, a: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """-log p(y|a) of a word, and the doubly stochastic penalty of a caption, each a mean."""
        logits, alphas = self(a, captions, lengths)
        # Packing leaves out what was padded, and wants the lengths on the CPU.
        kept = lengths.cpu()
        scores = pack_padded_sequence(logits, kept, batch_first=True).data  # (words, K)
        targets = pack_padded_sequence(captions, kept, batch_first=True).data  # (words,)
        nll = nn.functional.cross_entropy(scores, targets)
        return nll + doubly_stochastic_penalty(alphas).mean()


@dataclass(frozen=True)
class Sizes:
    """The sizes of a step, in the paper's letters."""

    D: int = 512
    B: int = 64
    L: int = 196
    n: int = 512  # of the embedding and of the attention MLP, too
    K: int = 9000


class Contestant(ABC):
    """What takes turns at a training step. Its weights depend on the sizes alone."""

    def __init__(self, sizes: Sizes, device: torch.device, precision: str) -> None:
        self.sizes = sizes
        self.device = device
        self.dtype = PRECISIONS[precision]

    @abstractmethod
    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> None:
        """A training step on a batch: a (B, L, D), captions (B, C), lengths (B,)."""

    def lengths(self, shift: float, longest: bool) -> list[list[int]]:
        """The lengths of the captions in each batch of a turn: three batches of one length each.

        shift: from 0, below 1, moves along Flickr8k's lengths. longest: whether the last one is the
        longest.
        """
        return [[length] * self.sizes.B for length in _chosen(3, shift, longest)]

    def turn(self, a: Tensor, shift: float = 0.5, longest: bool = False) -> float:
        """Words per second of the batches of a turn, one after the other."""
        batches = []
        words = 0
        for lengths in self.lengths(shift, longest):
            # Words at random: the time does not depend on them.
            shape = (len(lengths), lengths[0])  # the longest is the first
            generator = torch.Generator().manual_seed(1)
            captions = torch.randint(0, self.sizes.K, shape, generator=generator)
            batches.append((captions.to(self.device), torch.tensor(lengths)))
            words += sum(lengths)

        def steps() -> None:
            for captions, lengths in batches:
                self.step(a, captions, lengths)

        return words / timed(steps, self.device)


def _chosen(count: int, shift: float, longest: bool) -> list[int]:
    """So many of Flickr8k's lengths, evenly spread over them, the shortest first."""
    lengths = [LENGTHS[int((i + shift) / count * len(LENGTHS))] for i in range(count)]
    if longest:
        lengths[-1] = LONGEST
    return lengths


class Trained(Contestant):
    """A model that trains: forward pass, backward pass, clipping and Adam, as satlib trains."""

    FUSED: bool | None = True  # the kernel of Adam that satlib trains with

    def __init__(self, sizes: Sizes, device: torch.device, precision: str) -> None:
        super().__init__(sizes, device, precision)
        torch.manual_seed(0)
        config = DecoderConfig(embedding=sizes.n, hidden=sizes.n, attention_hidden=sizes.n)
        self.model = self.build(Decoder(config, sizes.D, sizes.K)).to(device).train()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=self.FUSED)

    @abstractmethod
    def build(self, decoder: Decoder) -> nn.Module:
        """The model that trains, from a fresh decoder of satlib's."""

    def loss(self, a: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """-log p(y|a) and the doubly stochastic penalty of a caption, each a mean."""
        output = self.model(a, captions)
        nll = negative_log_likelihood(output.logits, captions).mean()
        return nll + doubly_stochastic_penalty(output.alphas).mean()

    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> None:
        """Loss, gradients, and a step of Adam."""
        reduced = self.dtype is not torch.float32
        with torch.autocast(self.device.type, self.dtype, enabled=reduced):
            loss = self.loss(a, captions, lengths)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()


class Satlib(Trained):
    """satlib's decoder."""

    def build(self, decoder: Decoder) -> nn.Module:
        """The decoder as it is."""
        return decoder


class Compiled(Trained):
    """satlib's decoder with the step of a word compiled by torch.compile."""

    def build(self, decoder: Decoder) -> nn.Module:
        """The decoder, compiled when it is first used."""
        # Not the whole decoder: a word's step has the same shapes whatever the caption's length.
        decoder.step = torch.compile(decoder.step)
        return decoder


class Commonly(Trained):
    """The decoder as it is commonly written, with torch's default for Adam."""

    FUSED = None

    def build(self, decoder: Decoder) -> nn.Module:
        """The baseline with the decoder's weights."""
        return Baseline(decoder)

    def lengths(self, shift: float, longest: bool) -> list[list[int]]:
        """One batch of mixed lengths, longest first."""
        return [_chosen(self.sizes.B, shift, longest)[::-1]]

    def loss(self, a: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """The baseline's own loss, which leaves out what was padded."""
        return self.model.loss(a, captions, lengths)


class Floor(Contestant):
    """Only the matrix products of satlib's step, each with the gradients that training needs."""

    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> None:
        """Multiply; what the matrices hold does not change the time."""
        B, L, D, n, K = self.sizes.B, self.sizes.L, self.sizes.D, self.sizes.n, self.sizes.K
        C = captions.shape[1]

        # The keys: the annotation vectors do not learn, and need no gradient.
        self.multiply(B * L, D, n, backward=False)
        # The MLPs of h_0 and c_0, which read the mean annotation vector.
        for _ in range(2):
            self.multiply(B, D, n, backward=False)
            self.multiply(B, n, n)
        # The gates' part in the words, and what the logits are made of.
        self.multiply(B * C, n, 4 * n)
        self.multiply(B * C, n, n)
        self.multiply(B * C, D, n)
        self.multiply(B * C, n, K)

        for _ in range(C):
            # The query, the energies, and the context that they choose.
            self.multiply(B, n, n)
            self.multiply(B * L, n, 1)
            self.look()
            # The scalar gate, and the LSTM gates' parts in the state and the context.
            self.multiply(B, n, 1)
            self.multiply(B, n, 4 * n)
            self.multiply(B, D, 4 * n)

    def multiply(self, rows: int, inputs: int, outputs: int, backward: bool = True) -> None:
        """Multiply y = x W', for the gradient at W and, with `backward`, the one at x."""
        x = _ones(rows, inputs, device=self.device, dtype=self.dtype)
        W = _ones(outputs, inputs, device=self.device, dtype=self.dtype)
        y = x @ W.T
        y.T @ x  # the gradient at W
        if backward:
            y @ W  # the gradient at x

    def look(self) -> None:
        """Multiply z = alpha a, for each caption, and for the gradient at alpha; a has none."""
        B, L, D = self.sizes.B, self.sizes.L, self.sizes.D
        alpha = _ones(B, 1, L, device=self.device, dtype=self.dtype)
        a = _ones(B * L, D, device=self.device, dtype=self.dtype).view(B, L, D)
        z = alpha @ a  # (B, 1, D)
        z @ a.mT  # the gradient at alpha


@cache
def _ones(*shape: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A tensor of such a shape, made once."""
    return torch.ones(shape, device=device, dtype=dtype)


CONTESTANTS: dict[str, type[Contestant]] = {
    "baseline": Commonly,
    "satlib": Satlib,
    "compiled": Compiled,
    "floor": Floor,
}


def timed(action: Action, device: torch.device) -> float:
    """Seconds that an action takes, with what it leaves for a GPU to do."""
    # A call returns before the GPU has done its work.
    waits = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}
    wait = waits.get(device.type, lambda: None)
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


def peak_memory(action: Action, device: torch.device) -> float | None:
    """Peak bytes that an action takes beyond what was in use before.

    None where the system does not say. On a CPU this is a lower bound: the process keeps some of
    the memory that earlier actions freed, and what is used again of it is not counted. So the first
    contestant's peak is the surest; measure one alone (--contestants) to be sure of another's.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        action()
        return float(torch.cuda.max_memory_allocated(device) - before)

    # Only Linux has this file.
    control = Path("/proc/self/clear_refs")
    if not control.exists():
        return None

    control.write_text("5", encoding="utf-8")  # resets the peak
    before = _memory("VmRSS")
    action()
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    """The memory of this process in bytes: VmRSS is now, VmHWM the peak."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    match = re.search(rf"{name}:\s+(\d+) kB", status)
    return 1024.0 * int(match[1]) if match else 0.0


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def step(
    sizes: Sizes,
    contestants: Sequence[str],
    rounds: int,
    device: torch.device,
    precisions: Sequence[str],
) -> Iterator[Row]:
    """Words per second of a training step, and the peak memory with the longest captions.

    The ratio is to the words per second of the first contestant.
    """
    generator = torch.Generator().manual_seed(2)
    a = torch.randn(sizes.B, sizes.L, sizes.D, generator=generator)
    a = a.relu_().to(device)  # annotation vectors are what a ReLU leaves

    field = {}
    for precision in precisions:
        for name in contestants:
            field[f"{name} {precision}"] = CONTESTANTS[name](sizes, device, precision)

    # These turns also warm everything up: none of them is in the rates.
    memory = {}
    for name, one in field.items():
        memory[name] = peak_memory(partial(one.turn, a, longest=True), device)

    rates = {name: [] for name in field}
    for number in range(rounds):
        shift = (number + 0.5) / rounds
        # In turns, so that what slows the machine down slows all of them down.
        for name, one in field.items():
            rates[name].append(one.turn(a, shift))

    first, *_ = rates.values()
    for name, own in rates.items():
        # Within a round, where both had the same load on the machine.
        ratios = [rate / other for rate, other in zip(own, first, strict=True)]
        yield {
            "name": name,
            "D": sizes.D,
            "batch": sizes.B,
            "n": sizes.n,
            "words per second": spread(own),
            "ratio": spread(ratios),
            "peak bytes": memory[name],
        }


def per_second(action: Action, rounds: int, device: torch.device) -> dict[str, float]:
    """Images per second of an action on IMAGES of them."""
    times = [timed(action, device) for _ in range(rounds + 1)]
    # The first time warms everything up.
    return spread([IMAGES / seconds for seconds in times[1:]])


@torch.inference_mode()
def beam(rounds: int, device: torch.device) -> Iterator[Row]:
    """Captions per second of the scenes model, from annotation vectors on, by the beam's width."""
    captioner = Captioner.load(installed.model("scenes-soft"), device).eval()
    photos = [scenes.scene(f"test-{i:06d}").photo() for i in range(IMAGES)]
    pixels = torch.stack([to_tensor(photo) for photo in photos]).to(device)
    a = captioner.annotations(captioner.encoder(pixels))  # (IMAGES, L, D)
    longest = captioner.recipe.decoding.max_length

    for width in (1, 3, 5):
        search = partial(beam_search, captioner.decoder, a, width, longest)
        rate = per_second(search, rounds, device)
        yield {"name": f"beam {width}", "captions per second": rate}


def measured(part: str, options: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """The rows of a part, one after the other."""
    if part == "beam":
        yield from beam(options.rounds, device)
    else:
        for D in options.dims:
            for B in options.batches:
                sizes = Sizes(D, B, n=options.hidden)
                yield from step(
                    sizes, options.contestants, options.rounds, device, options.precisions
                )


def main() -> None:
    """Measure the parts; print each row, and write all of them to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=PARTS)
    parser.add_argument("--dims", nargs="+", type=int, default=[512, 2048])
    parser.add_argument("--batches", nargs="+", type=int, default=[64])
    parser.add_argument("--hidden", type=int, default=Sizes.n)
    parser.add_argument(
        "--contestants",
        nargs="+",
        choices=CONTESTANTS,
        default=["baseline", "satlib", "floor"],
    )
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto", help="cpu, cuda or mps")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    options = parser.parse_args()

    device = installed.device(options.device)
    rows = []
    for part in [options.part] if options.part else PARTS:
        for row in measured(part, options, device):
            figures = {}
            for name, value in row.items():
                figures[name] = f"{value['median']:,.2f}" if isinstance(value, dict) else value
            print(figures, flush=True)
            rows.append(row)

    machine = {
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "torch": torch.__version__,
    }
    result = {"machine": machine, "rows": rows}
    options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
