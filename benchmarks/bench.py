"""Speed and memory of satlib's training step beside a decoder as it is commonly written; extraction and beam search.

    python benchmarks/bench.py [step] [extraction] [beam] [--dims 512,2048] [--batches 64] [--contestants baseline,satlib]

Contestants take turns, round by round, so that other load on the machine falls on all of them; a ratio is the median over the
rounds of the ratio within a round. CPU ratios count processor time, which is steadier on a machine that is busy.
"""

import argparse
import copy
import ctypes
import json
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "0")  # read when torch is loaded; see satlib.cli

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from satlib.data import counts, scenes
from satlib.data.images import square, to_tensor
from satlib.files.atomic import write_json
from satlib.model import device as devices
from satlib.model import encoders, shipped
from satlib.model.captioner import Captioner
from satlib.model.decoder import Decoder, DecoderConfig
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood
from satlib.model.search import beam_search

CLIP = 5.0


def peak_memory(action: Callable[[], Any], device: torch.device) -> float | None:
    """Peak bytes that an action takes beyond what was in use before; None where the system does not say."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        action()
        return float(torch.cuda.max_memory_allocated(device) - before)
    if not Path("/proc/self/clear_refs").exists():
        return None
    with suppress(AttributeError):  # a C library without it: freed memory may then count as in use
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the peak
    before = _memory("VmRSS")
    action()
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    """The process's memory in bytes, a line of /proc/self/status: VmRSS is now, VmHWM the peak."""
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return 1024.0 * int(match[1]) if match else 0.0


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
        self.output_state, self.output_context, self.output = twin.output_state, twin.output_context, twin.output
        self.dropout = twin.dropout
        self.cell = nn.LSTMCell(m + D, n).to(twin.output.weight)
        with torch.no_grad():
            self.cell.weight_ih.copy_(torch.cat([twin.gates_word.weight, twin.gates_context.weight], 1))
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
            energies = self.energy(torch.tanh(self.annotation(a_t) + self.state(h).unsqueeze(1))).squeeze(2)
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
        scores, targets = (pack_padded_sequence(each, kept, batch_first=True).data for each in (logits, captions))
        return nn.functional.cross_entropy(scores, targets) + doubly_stochastic_penalty(alphas).mean()


@dataclass(frozen=True)
class Sizes:
    """The sizes of a step; letters as in the paper. n is also that of the embedding and the attention MLP."""

    D: int = 512
    B: int = 64
    L: int = 196
    n: int = 512
    K: int = 9000

    def lengths(self, count: int, shift: float = 0.5) -> list[int]:
        """The lengths of `count` captions, spread evenly over Flickr8k's; `shift`, 0 to 1, moves along them."""
        ordered = _flickr8k_lengths()
        return [ordered[int((i + shift) / count * len(ordered))] for i in range(count)]


@lru_cache
def _flickr8k_lengths() -> list[int]:
    return sorted(length + 1 for length in counts.read()["train"].lengths.elements())


class Turn(NamedTuple):
    """One contestant's turn: words, wall seconds, processor seconds."""

    words: int
    seconds: float
    cpu: float


class Contestant:
    """A decoder with its way through a training step: "baseline", "satlib", or "compiled" (each word's step by torch.compile)."""

    def __init__(self, name: str, sizes: Sizes, device: torch.device, bf16: bool = False) -> None:
        """Make it with weights that depend on the sizes alone."""
        torch.manual_seed(0)
        config = DecoderConfig(embedding=sizes.n, hidden=sizes.n, attention_hidden=sizes.n)
        decoder = Decoder(config, sizes.D, sizes.K)
        self.name, self.sizes, self.device, self.bf16 = name, sizes, device, bf16
        self.label = f"{name} {'bf16' if bf16 else 'float32'}"
        self.model: nn.Module = (Baseline(decoder) if name == "baseline" else decoder).to(device).train()
        if name == "compiled":  # the step of a word has the same shapes whatever the caption's length
            decoder.step = torch.compile(decoder.step)
        # The baseline has torch's default; satlib's training uses the fused kernel.
        fused = None if name == "baseline" else True
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-4, fused=fused)

    def batches(self, a: Tensor, shift: float) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The batches of a turn: for the baseline one of B captions of mixed lengths, else three of one length each."""
        B = self.sizes.B
        if self.name == "baseline":
            rows = [sorted(self.sizes.lengths(B, shift), reverse=True)]
        else:
            rows = [[length] * B for length in self.sizes.lengths(3, shift)]
        for row in rows:
            captions = torch.randint(0, self.sizes.K, (B, row[0]), generator=torch.Generator().manual_seed(1))
            yield a, captions.to(self.device), torch.tensor(row)

    def step(self, a: Tensor, captions: Tensor, lengths: Tensor) -> None:
        """Forward, backward, clip, Adam, as in training."""
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

    def turn(self, a: Tensor, shift: float = 0.5) -> Turn:
        """Its batches, timed one after the other."""
        batches = list(self.batches(a, shift))
        synchronise(self.device)
        clock, cpu = time.perf_counter(), time.process_time()
        for batch in batches:
            self.step(*batch)
        synchronise(self.device)
        words = sum(int(lengths.sum()) for _, _, lengths in batches)
        return Turn(words, time.perf_counter() - clock, time.process_time() - cpu)


def synchronise(device: torch.device) -> None:
    """Wait for what the device has been given to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and most."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def step(
    sizes: Sizes,
    contestants: Sequence[str],
    rounds: int,
    device: torch.device,
    precisions: Sequence[str] = ("float32",),
) -> dict[str, Any]:
    """Words per second of a training step, its ratio to the first contestant's, and its peak memory (with the longest captions)."""
    a = torch.randn(sizes.B, sizes.L, sizes.D, generator=torch.Generator().manual_seed(2)).relu_().to(device)
    field = [Contestant(name, sizes, device, kind == "bf16") for kind in precisions for name in contestants]
    memory = {one.label: peak_memory(lambda one=one: one.turn(a, 1 - 1e-9), device) for one in field}
    turns: dict[str, list[Turn]] = {one.label: [] for one in field}
    for number in range(rounds):
        for one in field:
            turns[one.label].append(one.turn(a, (number + 0.5) / rounds))
    first = turns[field[0].label]
    results = {}
    for label, own in turns.items():
        pairs = list(zip(own, first, strict=True))
        results[label] = {
            "words_per_second": spread([turn.words / turn.seconds for turn in own]),
            "ratio": spread([turn.words / turn.seconds * other.seconds / other.words for turn, other in pairs]),
            "cpu_ratio": spread([turn.words / turn.cpu * other.cpu / other.words for turn, other in pairs]),
            "peak_bytes": memory[label],
        }
    return {"sizes": asdict(sizes), "rounds": rounds, "results": results}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The results of `step` as Markdown."""
    lines = [
        "| D | batch | | words/s | ratio | CPU ratio | peak memory |",
        "| ---: | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        for label, result in row["results"].items():
            rate, ratio, cpu = (result[name] for name in ("words_per_second", "ratio", "cpu_ratio"))
            memory = "-" if result["peak_bytes"] is None else f"{result['peak_bytes'] / 1e6:,.0f} MB"
            lines.append(
                f"| {row['sizes']['D']} | {row['sizes']['B']} | {label} "
                f"| {rate['median']:,.0f} ({rate['low']:,.0f} to {rate['high']:,.0f}) | {ratio['median']:.2f} "
                f"| {cpu['median']:.2f} ({cpu['low']:.2f} to {cpu['high']:.2f}) | {memory} |"
            )
    return "\n".join(lines)


@torch.inference_mode()
def extraction(names: Sequence[str], device: torch.device, rounds: int, batch: int = 32) -> dict[str, Any]:
    """Images a second of each encoder."""
    pixels = torch.randint(0, 256, (batch, 3, 224, 224), dtype=torch.uint8, device=device)
    rates: dict[str, Any] = {}
    for name in names:
        encoder = encoders.create(name).to(device).eval()
        times = [_seconds(lambda encoder=encoder: encoder(pixels), device) for _ in range(rounds + 1)]
        rates[name] = spread([batch / seconds for seconds in times[1:]])
    return rates


@torch.inference_mode()
def beam(device: torch.device, rounds: int, widths: Sequence[int] = (1, 3, 5), images: int = 32) -> dict[str, Any]:
    """Captions a second of the model that comes with satlib, from annotation vectors on, by the width of the beam."""
    captioner = Captioner.load(shipped.model(), device).eval()
    data = scenes.load(train=0, dev=0, test=images)
    pixels = torch.stack([to_tensor(square(data.photo(example))) for example in data.examples]).to(device)
    a, longest = captioner.annotations(captioner.encoder(pixels)), captioner.recipe.decoding.max_length
    rates = {}
    for width in widths:
        search = lambda width=width: beam_search(captioner.decoder, a, width, longest)  # noqa: E731
        rates[str(width)] = spread([images / _seconds(search, device) for _ in range(rounds + 1)][1:])
    return rates


def _seconds(action: Any, device: torch.device) -> float:
    synchronise(device)
    start = time.perf_counter()
    action()
    synchronise(device)
    return time.perf_counter() - start


def machine(device: torch.device) -> dict[str, Any]:
    """The machine that figures were measured on."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
        processor = match[1] if match else processor
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "busy": os.getloadavg()[0],
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "torch": torch.__version__,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for; print it, and write it to a file as soon as it is measured."""
    numbers = lambda text: [int(part) for part in text.split(",")]  # noqa: E731
    names = lambda *known: lambda text: [known[known.index(part)] for part in text.split(",")]  # noqa: E731
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of step, extraction, beam; by default all")
    parser.add_argument("--dims", type=numbers, default=[512, 2048], metavar="D,...")
    parser.add_argument("--batches", type=numbers, default=[64], metavar="B,...")
    contestants = names("baseline", "satlib", "compiled")
    parser.add_argument("--contestants", type=contestants, default=["baseline", "satlib"], metavar="NAME,...")
    parser.add_argument("--precisions", type=names("float32", "bf16"), default=["float32"], metavar="NAME,...")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--places", type=int, default=196, metavar="L")
    parser.add_argument("--encoders", type=lambda text: text.split(","), default=["vgg19", "efficientnet-lite0"])
    parser.add_argument("--out", type=Path, default=Path("bench.json"))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda", "mps"), default="auto")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - {"step", "extraction", "beam"}:
        parser.error(f"there is no part {unknown.pop()!r}; choose among step, extraction, beam")
    parts, device = options.parts or ["step", "extraction", "beam"], devices.choose(options.device)
    results: dict[str, Any] = {"machine": machine(device)}
    for part in parts:
        if part == "step":
            results["step"] = []
            for D, B in ((D, B) for D in options.dims for B in options.batches):
                sizes = Sizes(D, B, options.places)
                results["step"].append(step(sizes, options.contestants, options.rounds, device, options.precisions))
                print(table(results["step"][-1:]), flush=True)
                write_json(options.out, results)
        else:
            measured = (
                extraction(options.encoders, device, options.rounds)
                if part == "extraction"
                else beam(device, options.rounds)
            )
            results[part] = measured
            print(
                f"{part}: {json.dumps({name: round(rate['median'], 1) for name, rate in measured.items()})} per second"
            )
            write_json(options.out, results)


if __name__ == "__main__":
    main()
