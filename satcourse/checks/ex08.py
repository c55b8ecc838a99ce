"""Exercises of notebook 08: losses known in advance, a step, a run resumed, and a timing on trial."""

import math
import operator
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from satcourse.checks.task import Answer, exercise, generator, numbers, without_graph
from satlib.data.text import PAD
from satlib.model.decoder import Decoder
from satlib.model.objective import word_losses
from satlib.recipe import DecoderConfig

Parts = list[
    tuple[Tensor, Tensor]
]  # annotation vectors (B, L, D) and captions (B, C), `PAD` after the end mark


@exercise("8.1", "Two losses known in advance", difficulty=1, minutes=5)
def known_losses(counts: Tensor) -> tuple[float, float]:
    """The mean of -ln p over the words that are said: if all K words have the same p, and if p is how often each occurs."""
    p = counts / counts.sum()
    return math.log(len(counts)), -torch.xlogy(p, p).sum().item()


known_losses.says = "three vocabularies, one with a word that never occurs"
known_losses.cases = lambda: [
    (torch.tensor(counts),)
    for counts in ([1.0, 1.0, 2.0, 4.0], [8.0, 0.0, 2.0], [5.0] * 6 + [70.0])
]
known_losses.mistakes = {
    "ln K counts all K words, those that never occur, too": lambda counts: known_losses(
        counts[counts > 0]
    )
}
known_losses.parts = ("all words equally likely", "by how often each occurs")


def _learner(seed: int, dropout: float = 0.0) -> tuple[Decoder, Any, Parts]:
    """A small decoder, gradient descent, and two batches."""
    torch.manual_seed(seed)
    decoder = Decoder(
        DecoderConfig(embedding=4, hidden=6, attention_hidden=4, dropout=dropout), 6, 7
    )
    captions = torch.randint(0, 7, (5, 8), generator=generator(seed))
    captions[:3, 2:] = captions[4, 6:] = PAD
    a = numbers(5, 5, 6, seed=seed)
    parts = [(a[:3], captions[:3, :3]), (a[3:], captions[3:])]
    return decoder, torch.optim.SGD(decoder.parameters(), 0.5), parts


def _weights(decoder: Decoder) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in decoder.parameters()])


def _overfitted(answer: Answer, seed: int, steps: int) -> Any:
    decoder, optimiser, parts = _learner(seed)
    losses = without_graph(answer(decoder, optimiser, *parts[1], steps))
    return {"the losses": losses, "the weights": _weights(decoder)}


@exercise("8.2", "One batch, learnt by heart", difficulty=2, minutes=8)
def overfit(
    decoder: Decoder, optimiser: Any, a: Tensor, captions: Tensor, steps: int, *, wrong: str = ""
) -> list[float]:
    """Before each of `steps` steps, the loss: the sum over all words of the batch divided by their number, without `PAD`."""
    losses = []
    for _ in range(steps):
        each = word_losses(decoder(a, captions).logits, captions)
        loss = each.mean() if wrong == "padded" else each.sum() / (captions != PAD).sum()
        if wrong != "full":
            optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


overfit.says = "two small decoders: losses and weights"
overfit.cases = lambda: [(0, 5), (3, 4)]
overfit.observe = _overfitted
overfit.given = lambda seed, steps: f"{steps} steps"
overfit.tolerance = 1e-3
overfit.mistakes = {
    "padding counts as words: divide the sum by the words that are there": partial(
        overfit, wrong="padded"
    ),
    "the gradients of the step before are still there: empty them": partial(overfit, wrong="full"),
}


@exercise("8.3", "Warm-up and cosine", difficulty=1, minutes=5)
def learning_rate(
    step: int, steps: int, warmup: int, highest: float, first: int = 1, start: int = 0
) -> float:
    """highest, times (step + 1) / warmup up to 1 (or 1 without warm-up), times a cosine's half period from 1 at step 0 to 0 at `steps`."""
    rise = min(1.0, (step + first) / warmup) if warmup else 1.0
    start *= warmup
    return highest * rise * (1 + math.cos(math.pi * max(0, step - start) / (steps - start))) / 2


learning_rate.says = "four steps of three trainings, one without warm-up"
learning_rate.cases = lambda: [
    (step, steps, warmup, 0.01)
    for steps, warmup in ((100, 10), (40, 4), (10, 0))
    for step in (0, 3, 9, steps - 1)
]
learning_rate.mistakes = {
    "the first step has a rate of 0: step 0 belongs to the warm-up": partial(
        learning_rate, first=0
    ),
    "the cosine waits for the end of the warm-up: it begins at step 0, too": partial(
        learning_rate, start=1
    ),
}


@exercise("8.4", "Means of unequal parts", difficulty=2, minutes=6)
def shares(parts: list[Tensor]) -> list[float]:
    """Each part's share of all words. Words are all ids but `PAD`; 0 is the end mark, a word too."""
    words = [(captions != PAD).sum().item() for captions in parts]
    return [count / sum(words) for count in words]


def _padded(*lengths: list[int]) -> list[Tensor]:
    captions = [
        [torch.arange(length).flip(0) for length in part] for part in lengths
    ]  # 0 is the end mark
    pad = partial(nn.utils.rnn.pad_sequence, batch_first=True, padding_value=PAD)
    return [pad(part) if part else torch.zeros(0, 4).long() for part in captions]


shares.says = "captions of equal and of unequal lengths, and a part without any"
shares.cases = lambda: [
    (_padded([9, 5], [3, 3, 1], [12]),),
    (_padded([4] * 4, [4] * 3),),
    (_padded([6, 2], [], [1]),),
]
shares.observe = lambda answer, parts: (
    got.tolist() if isinstance(got := answer(parts), Tensor) else got
)
shares.mistakes = {
    "captions are counted, not words": lambda parts: [
        len(each) / sum(map(len, parts)) for each in parts
    ],
    "padding is counted: `captions != PAD` are the words": lambda parts: shares(
        [each + 9 for each in parts]
    ),
    "the end mark is a word, too, and its id is 0": lambda parts: shares(
        [each - (each == 0).long() for each in parts]
    ),
}


def _stepped(answer: Answer, seed: int, most: float, scale: float) -> Any:
    """Three steps: losses, weights, precision, and what is done when a part begins."""
    half, (decoder, optimiser, parts) = (torch.float16 if seed else torch.bfloat16), _learner(seed)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    seen, before = [], _weights(decoder)
    decoder.register_forward_hook(
        lambda _, __, y: seen.append((y.logits.dtype, decoder.output.weight.grad is not None))
    )
    losses = without_graph(
        [answer(decoder, optimiser, scaler, parts, half, most) for _ in range(3)]
    )
    return {
        "it computes in": str({dtype for dtype, _ in seen}),
        "when the second part begins": "the first one's gradients are "
        + ("there" if all(done for _, done in seen[1::2]) else "not there, or emptied"),
        **{f"the loss of step {k}": loss for k, loss in enumerate(losses, 1)},
        "how far the weights moved": _weights(decoder) - before,
    }


@exercise(
    "8.5",
    "A step in mixed precision",
    difficulty=3,
    minutes=15,
    equation="Micikevicius et al., section 3",
)
def step(
    decoder: Decoder,
    optimiser: Any,
    scaler: Any,
    parts: Parts,
    half: torch.dtype,
    most: float,
    *,
    wrong: str = "",
) -> float:
    """One step on the mean loss per word of all parts, which is returned: part by part, by its share, scaled; then unscaled and clipped."""
    if wrong != "full":
        optimiser.zero_grad()
    total = 0.0
    each = [1 / len(parts)] * len(parts) if wrong == "alike" else shares([y for _, y in parts])
    for share, (a, captions) in zip(each, parts, strict=True):
        with torch.autocast(a.device.type, half):
            logits = decoder(a, captions).logits
        loss = share * word_losses(logits, captions).sum() / (captions != PAD).sum().clamp(min=1)
        scaler.scale(loss).backward()
        total += loss.item()
    if wrong != "scaled":
        scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(decoder.parameters(), 9.0 if wrong == "long" else most)
    scaler.step(optimiser)
    scaler.update()
    return total


step.says = "three steps in bf16 or float16 with two parts, clipped, scaled, once to infinity"
step.cases = lambda: [(0, 0.1, 1024.0), (3, 5.0, 1.0), (0, 1.0, math.inf)]
step.observe = _stepped
step.given = lambda seed, most, scale: f"most = {most}, and a scale of {scale:g}"
step.tolerance = 0.01
step.mistakes = {
    "the gradients of the step before are still there: empty them": partial(step, wrong="full"),
    "the scaled gradients are clipped: unscale them first": partial(step, wrong="scaled"),
    "the gradients are not clipped": partial(step, wrong="long"),
    "the parts count alike: multiply each mean by its share of the words": partial(
        step, wrong="alike"
    ),
}


def _resumed(answer: Answer, *stops: int) -> Any:
    """The weights after some processes, each with other random numbers until it reads the file."""
    with tempfile.TemporaryDirectory() as folder:
        for seed, last in enumerate(stops):
            decoder, _, parts = _learner(seed, 0.5)
            answer(
                decoder,
                torch.optim.Adam(decoder.parameters(), 0.1),
                parts * 3,
                last,
                Path(folder, "run"),
            )
    return {"the weights": _weights(decoder)}


@exercise("8.6", "As if never stopped", difficulty=2, minutes=12)
def train_on(
    decoder: Decoder, optimiser: Any, batches: Parts, last: int, file: Path, *, forgets: str = ""
) -> None:
    """One step on each of batches[done:last], as if never stopped: read weights, means, random state and done before, save them after."""
    done = 0
    if file.exists():
        weights, means, random, done = torch.load(file)
        decoder.load_state_dict(weights)
        if forgets != "means":
            optimiser.load_state_dict(means)
        if forgets != "random":
            torch.set_rng_state(random)
    for a, captions in batches[done * (forgets != "place") : last]:
        overfit(decoder, optimiser, a, captions, 1)
    torch.save((decoder.state_dict(), optimiser.state_dict(), torch.get_rng_state(), last), file)


train_on.says = "the weights of runs with dropout and Adam, never stopped, once and twice"
train_on.cases = lambda: [(4,), (3, 6), (1, 4, 5)]
train_on.observe = _resumed
train_on.given = lambda *stops: f"stops at {stops}"
train_on.mistakes = {
    "the optimiser begins anew: its running means belong in the file": partial(
        train_on, forgets="means"
    ),
    "dropout has other random numbers: keep their state": partial(train_on, forgets="random"),
    "batches that were done are trained on again: keep the place": partial(
        train_on, forgets="place"
    ),
}


@exercise("8.7", "A timing on trial", difficulty=2, minutes=12)
def faster(ours: list[float], theirs: list[float]) -> bool:
    """Whether a fair coin would win as many of the rounds, or more, with a probability of at most 5 %."""
    rounds, won = len(ours), sum(map(operator.lt, ours, theirs))
    return sum(math.comb(rounds, k) for k in range(won, rounds + 1)) <= 0.05 * 2**rounds


_NOISE = [1.01, 0.98, 1.03, 0.99, 1.04, 0.97, 1.02, 0.98, 1.0]
_LOAD = [1.0, 1.5, 3.1, 2.3, 1.1, 1.7, 2.6, 1.2, 0.9]
_BETTER = [0.93 * load * noise for load, noise in zip(_LOAD, _NOISE, strict=True)]
faster.says = "real gains, on a busy machine too; noise, a small lead, four rounds, a loss"
faster.cases = lambda: [
    (_BETTER, _LOAD),
    ([0.99] * 9 + [9.0] * 2, [1.0] * 11),
    (_NOISE, [1.005, 2.9, 1.02, 1.02, 1.03, 1.0, 1.01, 3.1, 0.995]),
    ([0.97] * 8 + [1.05] * 2, [1.0] * 10),
    ([0.8, 0.95, 0.7, 0.9], [1.0] * 4),
    (_LOAD, _BETTER),
    (_LOAD, _LOAD),  # ties
]
faster.given = lambda ours, theirs: (
    f"{sum(map(operator.lt, ours, theirs))} of {len(ours)} rounds won"
)
faster.mistakes = {
    "two busy moments make a step 'faster' than itself: means believe them": lambda a, b: (
        sum(a) < sum(b)
    ),
    "a real gain is lost: on a busy machine ranges overlap, though each round agrees": lambda a, b: (
        max(a) < min(b)
    ),
}
