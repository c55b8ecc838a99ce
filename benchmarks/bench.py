"""Speed and memory of satlib's training step beside a decoder as it is commonly written.

    python benchmarks/bench.py [step] [encoders] [beam] [--dims 512,2048] [--batches 64]
        [--precisions float32,bf16]

`encoders` and `beam` measure satlib's encoders and its beam search. The contestants of `step` take
turns, round by round, so that other load on the machine falls on all of them. A ratio is the median
over the rounds of the ratio within a round.
"""

import argparse
import copy
import json
import platform
import re
import statistics
import time
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
from satlib.model import encoders, installed
from satlib.model.captioner import Captioner
from satlib.model.decoder import Decoder, DecoderConfig
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.model.search import beam_search

CLIP = 5.0
# Lengths of Flickr8k's training captions, end mark included: the middle of each twentieth of them,
# and the longest.
LENGTHS = (6, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 16, 17, 20)
LONGEST = 37
ENCODERS = ("vgg19", "efficientnet-lite0")
IMAGES = 32  # in a batch of encoders and beam search
CONTESTANTS = ("baseline", "satlib", "compiled", "floor")
PARTS = ("step", "encoders", "beam")
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


class Contestant:
    """A decoder with its training step.

    "baseline", "satlib", "compiled", which has the step of a word compiled by torch.compile, or
    "floor", which only multiplies the matrices of satlib's step, in float32.
    """

    def __init__(self, name: str, sizes: Sizes, device: torch.device, precision: str) -> None:
        """Create it with weights that depend on the sizes alone."""
        torch.manual_seed(0)
        config = DecoderConfig(embedding=sizes.n, hidden=sizes.n, attention_hidden=sizes.n)
        decoder = Decoder(config, sizes.D, sizes.K)
        self.name = name
        self.sizes = sizes
        self.device = device
        self.precision = precision

        # satlib trains with the fused kernel; the baseline has torch's default.
        self.model: nn.Module = decoder
        fused: bool | None = True
        if name == "baseline":
            self.model = Baseline(decoder)
            fused = None
        self.model.to(device).train()
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=fused)

        # Not the whole decoder: a word's step has the same shapes whatever the caption's length.
        if name == "compiled":
            decoder.step = torch.compile(decoder.step)

    def lengths(self, shift: float, longest: bool) -> list[list[int]]:
        """The lengths of the captions in each batch of a turn.

        The baseline gets one batch of mixed lengths, longest first; satlib gets three batches of
        one length each. `shift`, 0 to 1, moves along Flickr8k's lengths.
        """
        count = self.sizes.B if self.name == "baseline" else 3
        chosen = [LENGTHS[int((i + shift) / count * len(LENGTHS))] for i in range(count)]
        if longest:
            chosen[-1] = LONGEST

        if self.name == "baseline":
            return [chosen[::-1]]
        return [[length] * self.sizes.B for length in chosen]

    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> None:
        """Forward pass, backward pass, clipping and Adam, as in training."""
        if self.name == "floor":
            multiply(self.sizes, captions.shape[1], self.device)
            return

        bf16 = self.precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=bf16):
            if isinstance(self.model, Baseline):
                loss = self.model.loss(a, captions, lengths)
            else:
                output = self.model(a, captions)
                loss = negative_log_likelihood(output.logits, captions).mean()
                loss = loss + doubly_stochastic_penalty(output.alphas).mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimiser.step()

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


def multiply(sizes: Sizes, C: int, device: torch.device) -> None:
    """The matrix products of a step for captions of C words: of each y = x W', y W and y' x."""
    B, L, D, n, K = sizes.B, sizes.L, sizes.D, sizes.n, sizes.K
    # The keys, the gates' part in the words, and what the logits are made of.
    once = [(B * L, D, n), (B * C, n, 4 * n), (B * C, n, n), (B * C, D, n), (B * C, n, K)]
    # The query, the energies, and the gates' parts in the state and the context.
    each_word = [(B, n, n), (B * L, n, 1), (B, n, 4 * n), (B, D, 4 * n)]

    for rows, inputs, outputs in once + C * each_word:
        x, W = _factors(rows, inputs, outputs, device)
        y = x @ W.T  # forward
        y @ W  # the gradient at x
        y.T @ x  # the gradient at W


@cache
def _factors(rows: int, inputs: int, outputs: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Inputs x (rows, inputs) and weights W (outputs, inputs), made once."""
    return torch.ones(rows, inputs, device=device), torch.ones(outputs, inputs, device=device)


def timed(action: Action, device: torch.device) -> float:
    """Seconds that an action takes, with what it leaves for a GPU to do."""
    # A call returns before the GPU has done its work.
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


def peak_memory(action: Action, device: torch.device) -> float | None:
    """Peak bytes that an action takes beyond what was in use before.

    None where the system does not say.
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

    field = []
    for precision in precisions:
        field += [Contestant(name, sizes, device, precision) for name in contestants]

    # These turns also warm everything up: none of them is in the rates.
    memory = [peak_memory(partial(one.turn, a, longest=True), device) for one in field]

    rates = [[] for _ in field]
    for number in range(rounds):
        shift = (number + 0.5) / rounds
        # In turns, so that what slows the machine down slows all of them down.
        for one, own in zip(field, rates, strict=True):
            own.append(one.turn(a, shift))

    for one, own, peak in zip(field, rates, memory, strict=True):
        # Within a round, where both had the same load on the machine.
        ratios = [rate / first for rate, first in zip(own, rates[0], strict=True)]
        yield {
            "name": f"{one.name} {one.precision}",
            "D": sizes.D,
            "batch": sizes.B,
            "words per second": spread(own),
            "ratio": spread(ratios),
            "peak bytes": peak,
        }


def per_second(action: Action, rounds: int, device: torch.device) -> dict[str, float]:
    """Images per second of an action on IMAGES of them."""
    times = [timed(action, device) for _ in range(rounds + 1)]
    # The first time warms everything up.
    return spread([IMAGES / seconds for seconds in times[1:]])


@torch.inference_mode()
def extraction(rounds: int, device: torch.device) -> Iterator[Row]:
    """Images per second of each encoder."""
    shape = (IMAGES, 3, 224, 224)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, device=device)
    for name in ENCODERS:
        encoder = encoders.create(name).to(device).eval()
        rate = per_second(partial(encoder, pixels), rounds, device)
        yield {"name": name, "images per second": rate}


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
    """The rows of a part; each is measured when it is asked for."""
    if part == "encoders":
        yield from extraction(options.rounds, device)
    elif part == "beam":
        yield from beam(options.rounds, device)
    else:
        contestants = options.contestants.split(",")
        precisions = options.precisions.split(",")
        for D in options.dims.split(","):
            for B in options.batches.split(","):
                sizes = Sizes(int(D), int(B))
                yield from step(sizes, contestants, options.rounds, device, precisions)


def main() -> None:
    """Measure the parts; print each row, and write all of them to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts",
        nargs="*",
        metavar="PART",
        help="step, encoders, beam (default: all)",
    )
    parser.add_argument("--dims", default="512,2048", metavar="D,...")
    parser.add_argument("--batches", default="64", metavar="B,...")
    parser.add_argument(
        "--contestants",
        default="baseline,satlib,floor",
        metavar="NAME,...",
        help="also compiled",
    )
    parser.add_argument(
        "--precisions",
        default="float32",
        metavar="NAME,...",
        help="float32, bf16",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto", help="cpu, cuda or mps")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    options = parser.parse_args()

    parts = options.parts or PARTS
    contestants = options.contestants.split(",")
    if {*parts} - {*PARTS} or {*contestants} - {*CONTESTANTS}:
        parser.error(f"the parts: {', '.join(PARTS)}; the contestants: {', '.join(CONTESTANTS)}")

    device = installed.device(options.device)
    rows = []
    for part in parts:
        for row in measured(part, options, device):
            figures = {}
            for name, value in row.items():
                figures[name] = f"{value['median']:,.2f}" if isinstance(value, dict) else value
            print(figures, flush=True)
            rows.append(row)

    machine = {
        "processor": platform.processor(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "torch": torch.__version__,
    }
    result = {"machine": machine, "rows": rows}
    options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
