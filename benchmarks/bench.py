"""Speed and memory of satlib's training step beside a decoder as it is commonly written; encoders and beam search.

    python benchmarks/bench.py [step] [encoders] [beam] [--dims 512,2048] [--batches 64] [--precisions float32,bf16]

The contestants take turns, round by round, so that other load on the machine falls on all of them. A ratio is the median over the
rounds of the ratio within a round.
"""

import argparse
import copy
import itertools
import json
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
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
# Lengths of Flickr8k's training captions, end mark included: the middle of each twentieth of them, and the longest.
LENGTHS = (6, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 16, 17, 20)
LONGEST = 37
CONTESTANTS = ("baseline", "satlib", "compiled")


class Baseline(nn.Module):
    """A decoder as it is commonly written, with the mathematics and the weights of satlib's: soft attention, LSTM cell on [E y; z].

    A batch has captions of any length, padded and sorted; the loop runs to the longest, and the batch shrinks as captions end.
    The projection of the annotation vectors and the vocabulary layer are inside the loop.
    """

    def __init__(self, decoder: Decoder) -> None:
        """Copy the weights of a decoder with soft attention by the additive energy."""
        super().__init__()
        m, n, D = decoder.config.embedding, decoder.config.hidden, decoder.gates_context.in_features
        twin = copy.deepcopy(decoder)
        self.embedding, self.gate = twin.embedding, twin.gate
        self.annotation, self.state, self.energy = twin.attention.energy.children()
        self.initial_h, self.initial_c = twin.initial_h, twin.initial_c
        self.output_state, self.output_context, self.output = (
            twin.output_state,
            twin.output_context,
            twin.output,
        )
        self.dropout = twin.dropout
        self.cell = nn.LSTMCell(m + D, n).to(twin.output.weight)
        with torch.no_grad():
            self.cell.weight_ih.copy_(
                torch.cat([twin.gates_word.weight, twin.gates_context.weight], 1)
            )
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
        mean = a.mean(1)
        h, c = self.initial_h(mean), self.initial_c(mean)
        embedded = self.embedding(captions)
        embedded = torch.cat([torch.zeros_like(embedded[:, :1]), embedded[:, :-1]], 1)
        logits = a.new_zeros(B, C, self.output.out_features)
        alphas = a.new_zeros(B, C, a.shape[1])
        for t in range(C):
            rows = int((lengths > t).sum())
            a_t, h, c, word = a[:rows], h[:rows], c[:rows], embedded[:rows, t]
            energies = self.energy(
                torch.tanh(self.annotation(a_t) + self.state(h).unsqueeze(1))
            ).squeeze(2)
            alpha = torch.softmax(energies, dim=1)
            z = (a_t * alpha.unsqueeze(2)).sum(1)
            if self.gate is not None:
                z = torch.sigmoid(self.gate(h)) * z
            h, c = self.cell(torch.cat([word, z], 1), (h, c))
            deep = word + self.output_state(self.dropout(h)) + self.output_context(z)
            logits[:rows, t] = self.output(self.dropout(deep)).to(logits.dtype)
            alphas[:rows, t] = alpha.to(alphas.dtype)
        return logits, alphas

    def loss(self, a: Tensor, captions: Tensor, lengths: Tensor) -> Tensor:
        """-log p(y|a) of a word, and the doubly stochastic penalty of a caption, each a mean."""
        logits, alphas = self(a, captions, lengths)
        kept = lengths.cpu()
        scores, targets = (
            pack_padded_sequence(each, kept, batch_first=True).data for each in (logits, captions)
        )
        return (
            nn.functional.cross_entropy(scores, targets) + doubly_stochastic_penalty(alphas).mean()
        )


@dataclass(frozen=True)
class Sizes:
    """The sizes of a step, in the paper's letters. n is also the size of the embedding and of the attention MLP."""

    D: int = 512
    B: int = 64
    L: int = 196
    n: int = 512
    K: int = 9000


class Contestant:
    """A decoder with its training step: "baseline", "satlib", or "compiled" (the step of a word by torch.compile)."""

    def __init__(self, name: str, sizes: Sizes, device: torch.device, bf16: bool = False) -> None:
        """Create it with weights that depend on the sizes alone."""
        torch.manual_seed(0)
        config = DecoderConfig(embedding=sizes.n, hidden=sizes.n, attention_hidden=sizes.n)
        decoder = Decoder(config, sizes.D, sizes.K)
        self.name, self.sizes, self.device, self.bf16 = name, sizes, device, bf16
        self.model: nn.Module = (
            (Baseline(decoder) if name == "baseline" else decoder).to(device).train()
        )
        if (
            name == "compiled"
        ):  # the step of a word has the same shapes whatever the caption's length
            decoder.step = torch.compile(decoder.step)
        # The baseline has torch's default; satlib trains with the fused kernel.
        self.optimiser = torch.optim.Adam(
            self.model.parameters(), lr=1e-4, fused=None if name == "baseline" else True
        )

    def lengths(self, shift: float, longest: bool = False) -> list[list[int]]:
        """The lengths of the captions in each batch of a turn; `shift`, 0 to 1, moves along Flickr8k's lengths.

        The baseline gets one batch of mixed lengths, longest first; satlib gets three batches of one length each.
        """
        count = self.sizes.B if self.name == "baseline" else 3
        chosen = [LENGTHS[int((i + shift) / count * len(LENGTHS))] for i in range(count)]
        chosen[-1] = LONGEST if longest else chosen[-1]
        return (
            [chosen[::-1]]
            if self.name == "baseline"
            else [[length] * self.sizes.B for length in chosen]
        )

    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> None:
        """Forward pass, backward pass, clipping and Adam, as in training."""
        with torch.autocast(self.device.type, torch.bfloat16) if self.bf16 else nullcontext():
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
        for row in self.lengths(shift, longest):
            captions = torch.randint(
                0, self.sizes.K, (len(row), row[0]), generator=torch.Generator().manual_seed(1)
            )
            batches.append((captions.to(self.device), torch.tensor(row)))
        seconds = timed(lambda: [self.step(a, *batch) for batch in batches], self.device)
        return sum(int(lengths.sum()) for _, lengths in batches) / seconds


def timed(action: Callable[[], Any], device: torch.device) -> float:
    """Seconds that an action takes, with what it leaves for a GPU to do."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    action()
    wait()
    return time.perf_counter() - start


def peak_memory(action: Callable[[], Any], device: torch.device) -> float | None:
    """Peak bytes that an action takes beyond what was in use before; None where the system does not say."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        action()
        return float(torch.cuda.max_memory_allocated(device) - before)
    if not Path("/proc/self/clear_refs").exists():
        return None
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the peak
    before = _memory("VmRSS")
    action()
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    """The memory of this process in bytes: VmRSS is now, VmHWM the peak."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
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
) -> Iterator[dict[str, Any]]:
    """Words per second of a training step, the ratio to the first contestant's, and the peak memory with the longest captions."""
    a = (
        torch.randn(sizes.B, sizes.L, sizes.D, generator=torch.Generator().manual_seed(2))
        .relu_()
        .to(device)
    )
    field = [
        (Contestant(name, sizes, device, kind == "bf16"), kind)
        for kind in precisions
        for name in contestants
    ]
    memory = [peak_memory(lambda one=one: one.turn(a, longest=True), device) for one, _ in field]
    shifts = [(number + 0.5) / rounds for number in range(rounds)]
    rates = list(zip(*([one.turn(a, shift) for one, _ in field] for shift in shifts), strict=True))
    for (one, kind), own, peak in zip(field, rates, memory, strict=True):
        ratio = spread([rate / first for rate, first in zip(own, rates[0], strict=True)])
        row = {"name": f"{one.name} {kind}", "D": sizes.D, "batch": sizes.B}
        yield row | {"words per second": spread(own), "ratio": ratio, "peak bytes": peak}


@torch.inference_mode()
def extraction(
    names: Sequence[str], rounds: int, device: torch.device, batch: int = 32
) -> Iterator[dict[str, Any]]:
    """Images per second of each encoder."""
    pixels = torch.randint(0, 256, (batch, 3, 224, 224), dtype=torch.uint8, device=device)
    for name in names:
        encoder = encoders.create(name).to(device).eval()
        times = [timed(lambda encoder=encoder: encoder(pixels), device) for _ in range(rounds + 1)]
        yield {
            "name": name,
            "images per second": spread([batch / seconds for seconds in times[1:]]),
        }


@torch.inference_mode()
def beam(rounds: int, device: torch.device, batch: int = 32) -> Iterator[dict[str, Any]]:
    """Captions per second of the scenes model, from annotation vectors on, by the width of the beam."""
    captioner = Captioner.load(installed.model("scenes-soft"), device).eval()
    pixels = torch.stack(
        [to_tensor(scenes.scene(f"test-{i:06d}").photo()) for i in range(batch)]
    ).to(device)
    a, longest = (
        captioner.annotations(captioner.encoder(pixels)),
        captioner.recipe.decoding.max_length,
    )
    for width in (1, 3, 5):
        search = lambda width=width: beam_search(captioner.decoder, a, width, longest)  # noqa: E731
        times = [timed(search, device) for _ in range(rounds + 1)]
        yield {
            "name": f"beam {width}",
            "captions per second": spread([batch / seconds for seconds in times[1:]]),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the parts; print each row, and write all of them to a file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="step, encoders, beam (default: all)"
    )
    parser.add_argument("--dims", default="512,2048", metavar="D,...")
    parser.add_argument("--batches", default="64", metavar="B,...")
    parser.add_argument(
        "--contestants", default="baseline,satlib", metavar="NAME,...", help="also compiled"
    )
    parser.add_argument("--precisions", default="float32", metavar="NAME,...", help="float32, bf16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="auto", help="cpu, cuda or mps")
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    options = parser.parse_args(arguments)
    parts, device = options.parts or ["step", "encoders", "beam"], installed.device(options.device)
    contestants, precisions = options.contestants.split(","), options.precisions.split(",")
    if not {*parts} <= {"step", "encoders", "beam"} or not {*contestants} <= {*CONTESTANTS}:
        parser.error(f"the parts: step, encoders, beam; the contestants: {', '.join(CONTESTANTS)}")
    sizes = [
        Sizes(int(D), int(B)) for D in options.dims.split(",") for B in options.batches.split(",")
    ]
    rows: list[dict[str, Any]] = []
    measured = {
        "step": itertools.chain.from_iterable(
            step(size, contestants, options.rounds, device, precisions) for size in sizes
        ),
        "encoders": extraction(("vgg19", "efficientnet-lite0"), options.rounds, device),
        "beam": beam(options.rounds, device),
    }
    for row in itertools.chain.from_iterable(measured[part] for part in parts):
        figures = {
            name: f"{value['median']:,.2f}" if isinstance(value, dict) else value
            for name, value in row.items()
        }
        print(figures, flush=True)
        rows.append(row)
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    machine = {"processor": platform.processor(), "threads": torch.get_num_threads(), "gpu": gpu}
    result = {"machine": machine | {"torch": torch.__version__}, "rows": rows}
    options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
