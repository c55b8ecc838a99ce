"""Exercises of notebook 09: losses known in advance, a step, a run resumed, a timing on trial."""

import math
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from satcourse.checks.task import Answer, exercise, generator, numbers, without_graph
from satlib.data.text import PAD
from satlib.model.decoder import Decoder
from satlib.model.objective import word_losses
from satlib.recipe import DecoderConfig

# Annotation vectors (B, L, D) and captions (B, C), `PAD` after the end mark.
Parts = list[tuple[Tensor, Tensor]]


@exercise("9.1", "Two losses known in advance", difficulty=1, minutes=5)
def known_losses(counts: Tensor) -> tuple[float, float]:
    """The mean of -ln p over the words that are said: if all K words have the same p, and if p is
    how often each occurs.
    """
    p = counts / counts.sum()  # (K,)
    # A word that never occurs adds 0, not 0 times infinity.
    by_frequency = -torch.xlogy(p, p).sum()
    return math.log(len(counts)), by_frequency.item()


def _vocabularies() -> list[tuple[Tensor]]:
    unequal = torch.tensor([1.0, 1.0, 2.0, 4.0])
    with_an_unused_word = torch.tensor([8.0, 0.0, 2.0])
    one_word_prevails = torch.tensor([5.0] * 6 + [70.0])
    return [
        (unequal,),
        (with_an_unused_word,),
        (one_word_prevails,),
    ]


def _log_p(counts: Tensor) -> Tensor:
    return (counts[counts > 0] / counts.sum()).log()


known_losses.says = "three vocabularies, one with a word that never occurs"
known_losses.cases = _vocabularies
known_losses.mistakes = {
    "these are bits, by log2: ln is the natural logarithm": (
        lambda counts: [loss / math.log(2) for loss in known_losses(counts)]
    ),
    "ln K counts all K words, those that never occur, too": (
        lambda counts: known_losses(counts[counts > 0])
    ),
    "ln of all that is said: K is how many different words there are": (
        lambda counts: (math.log(counts.sum()), known_losses(counts)[1])
    ),
    "each word counts alike: a word that is said more often counts more, by its p": (
        lambda counts: (math.log(len(counts)), -_log_p(counts).mean().item())
    ),
    "counts are no logits: p is each count divided by their sum": (
        lambda counts: (math.log(len(counts)), torch.special.entr(counts.softmax(0)).sum().item())
    ),
    "the loss of the commonest word alone: the mean is over all that are said": (
        lambda counts: (math.log(len(counts)), -_log_p(counts).max().item())
    ),
}
known_losses.parts = ("all words equally likely", "by how often each occurs")


def _learner(seed: int, dropout: float = 0.0) -> tuple[Decoder, Any, Parts]:
    """A small decoder, gradient descent, and two batches."""
    torch.manual_seed(seed)
    config = DecoderConfig(embedding=4, hidden=6, attention_hidden=4, dropout=dropout)
    decoder = Decoder(config, 6, 7)
    optimiser = torch.optim.SGD(decoder.parameters(), 0.5)

    captions = torch.randint(0, 7, (5, 8), generator=generator(seed))
    # 6 words in the first batch and 14 in the second: unequal shares.
    captions[:3, 2:] = PAD
    captions[4, 6:] = PAD
    a = numbers(5, 5, 6, seed=seed)
    return decoder, optimiser, [(a[:3], captions[:3, :3]), (a[3:], captions[3:])]


def _weights(decoder: Decoder) -> Tensor:
    return torch.cat([weight.detach().flatten() for weight in decoder.parameters()])


@exercise("9.2", "One batch, learnt by heart", difficulty=2, minutes=8)
def overfit(
    decoder: Decoder, optimiser: Any, a: Tensor, captions: Tensor, steps: int
) -> list[float]:
    """Before each of `steps` steps, the loss: the sum over all words of the batch divided by their
    number, without `PAD`.
    """
    losses = []
    for _ in range(steps):
        logits = decoder(a, captions).logits
        loss = word_losses(logits, captions).sum() / (captions != PAD).sum()

        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def _overfitted(answer: Answer, seed: int, steps: int) -> Any:
    decoder, optimiser, parts = _learner(seed)
    a, captions = parts[1]
    losses = without_graph(answer(decoder, optimiser, a, captions, steps))
    # Losses alone would not show what the last step did.
    return {"the losses": losses, "the weights": _weights(decoder)}


def _overfit_wrongly(
    decoder: Decoder,
    optimiser: Any,
    a: Tensor,
    captions: Tensor,
    steps: int,
    *,
    mean: Callable[[Tensor, Tensor], Tensor] = lambda losses, words: losses.sum() / words.sum(),
    empties: bool = True,
    after: bool = False,
) -> list[float]:
    """`overfit` with another mean of the words' losses, old gradients, or the losses after."""

    def loss_now() -> Tensor:
        return mean(word_losses(decoder(a, captions).logits, captions), captions != PAD)

    losses = []
    for _ in range(steps):
        loss = loss_now()
        if empties:
            optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss_now().item() if after else loss.item())
    return losses


def _at_rate(rate: float, decoder: Decoder, _: Any, *inputs: Any) -> list[float]:
    return overfit(decoder, torch.optim.SGD(decoder.parameters(), rate), *inputs)


overfit.says = "two small decoders: losses and weights"
overfit.cases = lambda: [
    (0, 5),
    (3, 4),
]
overfit.observe = _overfitted
overfit.given = lambda seed, steps: f"{steps} steps"
# Rounding grows from step to step.
overfit.tolerance = 1e-3
overfit.mistakes = {
    "padding counts as words: divide the sum by the words that are there": partial(
        _overfit_wrongly, mean=lambda losses, words: losses.mean()
    ),
    "the gradients of the step before are still there: empty them": partial(
        _overfit_wrongly, empties=False
    ),
    "the mean of the captions' own means: divide one sum by one number of words": partial(
        _overfit_wrongly, mean=lambda losses, words: (losses.sum(1) / words.sum(1)).mean()
    ),
    "these are the losses after the steps: the loss before each is asked for": partial(
        _overfit_wrongly, after=True
    ),
    "the weights do not change: put `zero_grad()` before `backward()`, "
    "and `optimiser.step()` after it": partial(_at_rate, 0.0),
    # There are 14 words, and so the gradient of the sum is 14 times as long: as with this rate.
    "the gradient is that of the sum: divide by the number of words before `backward()`": (
        partial(_at_rate, 14 * 0.5)
    ),
}


@exercise("9.3", "Warm-up and cosine", difficulty=1, minutes=5)
def learning_rate(step: int, steps: int, warmup: int, highest: float) -> float:
    """highest, times (step + 1) / warmup up to 1 (or 1 without warm-up), times a cosine's half
    period from 1 at step 0 to 0 at `steps`.
    """
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    fall = (1 + math.cos(math.pi * step / steps)) / 2
    return highest * rise * fall


def _steps_of_trainings() -> list[tuple[int, int, int, float]]:
    cases = []
    # 100 steps, 10 of them warm-up; 40, and 4 of them; 10 without warm-up.
    for steps, warmup in ((100, 10), (40, 4), (10, 0)):
        for step in (0, 3, 9, steps - 1):
            cases.append((step, steps, warmup, 0.01))
    return cases


def _starts_at_0(step: int, steps: int, warmup: int, highest: float) -> float:
    rise = min(1.0, step / warmup) if warmup else 1.0
    return rise * learning_rate(step, steps, 0, highest)


def _cosine_waits(step: int, steps: int, warmup: int, highest: float) -> float:
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    # The cosine alone: of the steps after the warm-up.
    fall = learning_rate(max(0, step - warmup), steps - warmup, 0, highest)
    return rise * fall


def _never_both(step: int, steps: int, warmup: int, highest: float) -> float:
    if step < warmup:
        return highest * (step + 1) / warmup
    return learning_rate(step, steps, 0, highest)


def _zero_at_the_last(step: int, steps: int, warmup: int, highest: float) -> float:
    rise = min(1.0, (step + 1) / warmup) if warmup else 1.0
    return rise * learning_rate(step, steps - 1, 0, highest)


learning_rate.says = "four steps of three trainings, one without warm-up"
learning_rate.cases = _steps_of_trainings
learning_rate.mistakes = {
    "the first step has a rate of 0: step 0 belongs to the warm-up": _starts_at_0,
    "the cosine waits for the end of the warm-up: it begins at step 0, too": _cosine_waits,
    "the cosine waits until the rate is highest: it falls during the warm-up, too": _never_both,
    "the rate is 0 at the last step: the cosine reaches 0 at `steps`, one later": (
        _zero_at_the_last
    ),
    "a quarter of the cosine's period: half of it goes from 1 to -1": (
        lambda step, steps, warmup, highest: (
            learning_rate(step, steps, warmup, highest)
            / learning_rate(step, steps, 0, 1)
            * math.cos(math.pi / 2 * step / steps)
        )
    ),
    "the warm-up has one step too many: after `warmup` steps the rate is highest": (
        lambda step, steps, warmup, highest: (
            min(1.0, (step + 1) / (warmup + 1)) * learning_rate(step, steps, 0, highest)
        )
    ),
    "there may be no warm-up: without it the first factor is 1, not a quotient by 0": (
        lambda step, steps, warmup, highest: 1 / warmup
    ),
}


@exercise("9.4", "Means of unequal parts", difficulty=2, minutes=6)
def shares(parts: list[Tensor]) -> list[float]:
    """Each part's share of all words. Words are all ids but `PAD`; 0 is the end mark, a word
    too.
    """
    words = [(captions != PAD).sum().item() for captions in parts]
    return [count / sum(words) for count in words]


def _padded(*parts: list[int]) -> list[Tensor]:
    """Captions of these lengths, part by part."""
    padded = []
    for lengths in parts:
        # Ids that count down to 0, the end mark.
        captions = [torch.arange(length).flip(0) for length in lengths]
        if captions:
            part = nn.utils.rnn.pad_sequence(captions, batch_first=True, padding_value=PAD)
        else:
            part = torch.zeros(0, 4).long()
        padded.append(part)
    return padded


def _unequal_parts() -> list[tuple[list[Tensor]]]:
    unequal = _padded([9, 5], [3, 3, 1], [12])
    # Without padding, words and captions have the same shares.
    equal_lengths = _padded([4] * 4, [4] * 3)
    one_empty = _padded([6, 2], [], [1])
    return [
        (unequal,),
        (equal_lengths,),
        (one_empty,),
    ]


def _as_a_list(answer: Answer, parts: list[Tensor]) -> Any:
    # A tensor of the right shares is as good as a list of them.
    result = answer(parts)
    return result.tolist() if isinstance(result, Tensor) else result


def _captions_counted(parts: list[Tensor]) -> list[float]:
    total = sum(map(len, parts))
    return [len(captions) / total for captions in parts]


def _padding_counted(parts: list[Tensor]) -> list[float]:
    # With other ids, none is `PAD`.
    return shares([captions + 9 for captions in parts])


def _end_marks_left_out(parts: list[Tensor]) -> list[float]:
    # `PAD` is -1: one less than the end mark.
    return shares([captions - (captions == 0).long() for captions in parts])


shares.says = "captions of equal and of unequal lengths, and a part without any"
shares.cases = _unequal_parts
shares.observe = _as_a_list
shares.mistakes = {
    "captions are counted, not words": _captions_counted,
    "this is how much of each part is words: each part's share of all words is asked": (
        lambda parts: [(captions != PAD).float().mean().item() for captions in parts]
    ),
    "padding is counted: `captions != PAD` are the words": _padding_counted,
    "the end mark is a word, too, and its id is 0": _end_marks_left_out,
    "0 is the end mark, a word; padding is `PAD`, which is not 0": (
        lambda parts: shares([captions.abs().where(captions != 0, PAD) for captions in parts])
    ),
}


@exercise(
    "9.5",
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
) -> float:
    """One step on the mean loss per word of all parts, which is returned: part by part, by its
    share, scaled; then unscaled and clipped.
    """
    optimiser.zero_grad()
    factors = shares([captions for _, captions in parts])
    total = _backward(decoder, scaler, parts, half, factors)

    # Clipped at their true length, which the scale would hide.
    scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(decoder.parameters(), most)
    scaler.step(optimiser)
    scaler.update()
    return total


def _backward(
    decoder: Decoder,
    scaler: Any,
    parts: Parts,
    half: torch.dtype,
    factors: list[float],
) -> float:
    """Add up the gradients of each part's mean loss per word times its factor; the sum of these."""
    total = 0.0
    for factor, (a, captions) in zip(factors, parts, strict=True):
        with torch.autocast(a.device.type, half):
            logits = decoder(a, captions).logits
        # A part without words has a loss of 0, not 0 / 0.
        words = (captions != PAD).sum().clamp(min=1)
        loss = factor * word_losses(logits, captions).sum() / words
        # Part by part, so that one graph at a time is in memory.
        scaler.scale(loss).backward()
        total += loss.item()
    return total


def _three_steps(
    answer: Answer, seed: int, most: float, scale: float, without_words: int = 0
) -> Any:
    """Three steps: losses, weights, precision, and what is done when a part begins."""
    decoder, optimiser, parts = _learner(seed)
    # Parts of padding alone.
    parts += [(a[:1], captions[:1] * 0 + PAD) for a, captions in parts[:without_words]]
    half = torch.float16 if seed else torch.bfloat16
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    before = _weights(decoder)
    dtypes = set()
    has_gradients: list[list[bool]] = []  # for each step, and for each part of it

    def look(module: nn.Module, inputs: Any, output: Any) -> None:
        dtypes.add(output.logits.dtype)
        has_gradients[-1].append(decoder.output.weight.grad is not None)

    decoder.register_forward_hook(look)
    losses = []
    for _ in range(3):
        has_gradients.append([])
        losses.append(answer(decoder, optimiser, scaler, parts, half, most))
    without_graph(losses)

    # A part without words may have been passed over.
    there = "there" if all(step[1:2] == [True] for step in has_gradients) else "not there"
    return {
        "it computes in": str(dtypes),
        "when the second part begins": f"the first one's gradients are {there}",
        **{f"the loss of step {number}": loss for number, loss in enumerate(losses, 1)},
        "how far the weights moved": _weights(decoder) - before,
    }


def _step_wrongly(
    decoder: Decoder,
    optimiser: Any,
    scaler: Any,
    parts: Parts,
    half: torch.dtype,
    most: float,
    *,
    empties: bool = True,
    unscales: bool = True,
    alike: bool = False,
    skips: bool = True,
) -> float:
    if empties:
        optimiser.zero_grad()
    factors = shares([captions for _, captions in parts])
    if alike:
        factors = [1 / len(parts)] * len(parts)
    total = _backward(decoder, scaler, parts, half, factors)

    if unscales:
        scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(decoder.parameters(), most)
    if skips:
        scaler.step(optimiser)
    else:
        optimiser.step()
    scaler.update()
    return total


def _parts_and_precision(expected: Any, got: Any) -> str | None:
    # Without any logits nothing has been computed.
    if got["it computes in"] == "set()":
        return None
    if got["it computes in"] != expected["it computes in"]:
        return f"the logits are in {got['it computes in']}: compute them under autocast, in `half`"
    if got["when the second part begins"] != expected["when the second part begins"]:
        return (
            "when the second part begins, the first one's gradients are not there: "
            "empty them once a step, go backwards part by part, and step after the last"
        )
    return None


def _not_clipped(*inputs: Any) -> float:
    *others, _ = inputs
    # No gradient of these decoders is so long.
    return step(*others, 9.0)


step.says = "three steps in bf16 or float16 with two parts, clipped, scaled, once to infinity"
step.cases = lambda: [
    (0, 0.1, 1024.0),
    (3, 5.0, 1.0),
    # A gradient of infinity: the scaler leaves the step out.
    (0, 1.0, math.inf),
    # A part without words: its loss is not 0 / 0.
    (3, 5.0, 1.0, 1),
]
step.observe = _three_steps
step.advise = _parts_and_precision
step.given = "most = {1}, a scale of {2:g}".format
# Half precision: about three digits.
step.tolerance = 0.01
step.mistakes = {
    "the gradients of the step before are still there: empty them": partial(
        _step_wrongly, empties=False
    ),
    "the scaled gradients are clipped: unscale them first": partial(_step_wrongly, unscales=False),
    "the gradients are not clipped": _not_clipped,
    "the parts count alike: multiply each mean by its share of the words": partial(
        _step_wrongly, alike=True
    ),
    "the loss is not scaled: `scaler.scale(loss).backward()`": (
        lambda decoder, optimiser, scaler, *_: scaler.unscale_(optimiser)
    ),
    "`scaler.step(optimiser)`, not `optimiser.step()`: "
    "it leaves out a step whose gradients overflow": partial(_step_wrongly, skips=False),
}


@exercise("9.6", "As if never stopped", difficulty=2, minutes=12)
def train_on(decoder: Decoder, optimiser: Any, batches: Parts, last: int, file: Path) -> None:
    """One step on each of batches[done:last], as if never stopped: read weights, means, random
    state and done before, save them after.
    """
    done = 0
    if file.exists():
        weights, means, random, done = torch.load(file)
        decoder.load_state_dict(weights)
        optimiser.load_state_dict(means)
        torch.set_rng_state(random)
    _train(decoder, optimiser, batches[done:last])
    _save(decoder, optimiser, last, file)


def _train(decoder: Decoder, optimiser: Any, batches: Parts) -> None:
    for a, captions in batches:
        overfit(decoder, optimiser, a, captions, 1)


def _save(decoder: Decoder, optimiser: Any, done: int, file: Path) -> None:
    state = (decoder.state_dict(), optimiser.state_dict(), torch.get_rng_state(), done)
    torch.save(state, file)


def _resumed(answer: Answer, *stops: int) -> Any:
    """The weights after some processes, each with other random numbers until it reads the file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "run")
        for seed, last in enumerate(stops):
            # Dropout draws random numbers, and Adam keeps means: both have to be resumed.
            decoder, _, parts = _learner(seed, dropout=0.5)
            optimiser = torch.optim.Adam(decoder.parameters(), 0.1)
            answer(decoder, optimiser, parts * 3, last, file)
    return {"the weights": _weights(decoder)}


def _forgetful(
    decoder: Decoder,
    optimiser: Any,
    batches: Parts,
    last: int,
    file: Path,
    *,
    forgets: str = "",
    shift: int = 0,
) -> None:
    """`train_on` that forgets something, or begins so many batches too late."""
    done = 0
    if file.exists():
        weights, means, random, done = torch.load(file)
        decoder.load_state_dict(weights)
        if forgets != "means":
            optimiser.load_state_dict(means)
        if forgets != "random":
            torch.set_rng_state(random)
        if forgets == "place":
            done = 0
        if forgets == "last":
            last += done
        done += shift
    # In a fork the random state stays what it was before.
    with torch.random.fork_rng([], forgets == "change"):
        _train(decoder, optimiser, batches[done:last])
    _save(decoder, optimiser, last, file)


train_on.says = "the weights of runs with dropout and Adam, never stopped, once and twice"
train_on.cases = lambda: [
    (4,),
    (3, 6),
    (1, 4, 5),
]
train_on.observe = _resumed
train_on.given = lambda *stops: f"stops at {stops}"
train_on.mistakes = {
    "the optimiser begins anew: its running means belong in the file": partial(
        _forgetful, forgets="means"
    ),
    "dropout has other random numbers: keep their state": partial(_forgetful, forgets="random"),
    "batches that were done are trained on again: keep the place": partial(
        _forgetful, forgets="place"
    ),
    "the random state is of before the training: save it after": partial(
        _forgetful, forgets="change"
    ),
    "`last` more batches: `batches[:last]` are to be done in all": partial(
        _forgetful, forgets="last"
    ),
    "a batch is passed over: `done` batches are done, and batches[done] is the next": partial(
        _forgetful, shift=1
    ),
    "the last batch is left out: `last` batches are to be done": (
        lambda decoder, optimiser, batches, last, file: train_on(
            decoder, optimiser, batches, last - 1, file
        )
    ),
    "a batch is done twice: `last` batches are done then, not one less": partial(
        _forgetful, shift=-1
    ),
    # As many too late as there are.
    "after a stop nothing is trained: save `last` as done, not the number of all batches": (
        partial(_forgetful, shift=6)
    ),
}


@exercise("9.7", "A timing on trial", difficulty=2, minutes=12)
def faster(ours: list[float], theirs: list[float]) -> bool:
    """Whether a fair coin would win as many of the rounds, or more, with a probability of at most
    5 %.
    """
    return _p(ours, theirs) <= 0.05


def _p(ours: list[float], theirs: list[float], more: int = 0) -> float:
    """How probable so many wins, and `more`, are by a fair coin."""
    rounds = len(ours)
    won = _rounds_won(ours, theirs) + more
    # Of the 2^rounds outcomes of as many tosses, those with so many wins or more.
    outcomes = sum(math.comb(rounds, k) for k in range(won, rounds + 1))
    return outcomes / 2**rounds


def _rounds_won(ours: list[float], theirs: list[float]) -> int:
    return sum(one < other for one, other in zip(ours, theirs, strict=True))


def _t_test(ours: list[float], theirs: list[float]) -> bool:
    gains = torch.tensor(theirs) - torch.tensor(ours)
    return bool(gains.mean() > 1.645 * gains.std() / len(ours) ** 0.5)


def _timings() -> list[tuple[list[float], list[float]]]:
    noise = [1.01, 0.98, 1.03, 0.99, 1.04, 0.97, 1.02, 0.98, 1.0]
    # Seconds on a busy machine: what else it does changes from round to round.
    load = [1.0, 1.5, 3.1, 2.3, 1.1, 1.7, 2.6, 1.2, 0.9]
    better = [0.93 * busy * factor for busy, factor in zip(load, noise, strict=True)]

    # 9 of 11 rounds are won, and two busy moments make the mean look worse.
    two_busy_moments = [0.99] * 9 + [9.0] * 2
    # The same step, with two busy moments of the other.
    unlucky = [1.005, 2.9, 1.02, 1.02, 1.03, 1.0, 1.01, 3.1, 0.995]
    # 8 of 10: by a fair coin in 5.5 % of all cases.
    small_lead = [0.97] * 8 + [1.05] * 2
    # 10 of 10, by a little and once by much.
    once_by_much = [1.0] * 9 + [6.0]
    # 4 of 4: in 6.25 %, however large each gain.
    four_rounds = [0.8, 0.95, 0.7, 0.9]
    # 2 of 3, and equal medians.
    two_of_three = [1.0, 2.0, 3.0]
    return [
        (better, load),
        (two_busy_moments, [1.0] * 11),
        (noise, unlucky),
        (small_lead, [1.0] * 10),
        ([0.99] * 10, once_by_much),
        (four_rounds, [1.0] * 4),
        (two_of_three, [2.0, 3.0, 0.5]),
        (load, better),
        # Ties are not won.
        (load, load),
    ]


faster.says = "real gains, on a busy machine too; noise, a small lead, four rounds, a loss"
faster.cases = _timings
faster.given = lambda ours, theirs: f"{_rounds_won(ours, theirs)} of {len(ours)} rounds won"
faster.mistakes = {
    "two busy moments make a step 'faster' than itself: means believe them": (
        lambda ours, theirs: sum(ours) < sum(theirs)
    ),
    "a real gain is lost: on a busy machine ranges overlap, though each round agrees": (
        lambda ours, theirs: max(ours) < min(theirs)
    ),
    "more than half of the rounds: a fair coin wins so many by chance, too": (
        lambda ours, theirs: _rounds_won(ours, theirs) > len(ours) / 2
    ),
    "medians are compared: no coin has been asked how often it would win as much": (
        lambda ours, theirs: median(ours) < median(theirs)
    ),
    "exactly so many rounds: add the outcomes in which a coin wins more": (
        lambda *times: _p(*times) - _p(*times, more=1) <= 0.05
    ),
    "only more rounds than were won: those in which a coin wins as many count, too": (
        lambda *times: _p(*times, more=1) <= 0.05
    ),
    "a round with equal times is won by nobody: `<`, not `<=`": (
        lambda ours, theirs: faster([one - 1e-9 for one in ours], theirs)
    ),
    "95 % of the rounds: the 5 % are the chance that a coin wins so many": (
        lambda ours, theirs: _rounds_won(ours, theirs) >= 0.95 * len(ours)
    ),
    "a t test asks how large the gains are: a coin asks only who won": _t_test,
    # Wilcoxon's test gives the same answers here.
    "a two-sided test, or Wilcoxon's, which asks how large the gains are: "
    "ask how probable as many wins or more are": lambda *times: 2 * _p(*times) <= 0.05,
    "a two-sided test, for which losing every round counts, too: "
    "ask how probable as many wins or more are": (
        lambda *times: 2 * min(_p(*times), 1 - _p(*times, more=1)) <= 0.05
    ),
    "the longer time wins: a smaller number of seconds is faster": (
        lambda ours, theirs: faster(theirs, ours)
    ),
}
