"""Exercises of notebook 06: hard attention, from a draw to the estimator."""

import itertools
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from satcourse.checks.calls import Failed
from satcourse.checks.task import (
    Answer,
    distribution,
    exercise,
    generator,
    gradients,
    numbers,
    with_gradients,
)
from satlib.data.text import END
from satlib.model import objective
from satlib.model.attention import entropy

B, C, L, N = 3, 4, 5, 3


def _edges(alpha: Tensor) -> Tensor:
    return alpha.cumsum(1)[:, :-1]


@exercise("6.1", "A place is drawn", difficulty=2, minutes=7, equation="equation 8")
def draw(alpha: Tensor, darts: Tensor) -> Tensor:
    """The number of the place that each dart hits, (B,): the places lie end to end, each as long as its weight."""
    return (darts[:, None] >= _edges(alpha)).sum(1)


draw.says = "darts on edges, places of weight 0 and 1, and weights that sum to less than 1"
draw.cases = lambda: [
    (
        torch.tensor([[0.45, 0.25, 0.15, 0.1, 0.05]]).repeat(4, 1),
        torch.tensor([0.01, 0.46, 0.8, 0.99]),
    ),
    (torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.3, 0.7, 0.0])),
    (torch.tensor([[0.5, 0.3, 0.2 - 1e-6]]), torch.tensor([1 - 2**-24])),
]
draw.mistakes = {
    "a dart on an edge hits the place that begins there": lambda alpha, x: (
        x[:, None] > _edges(alpha)
    ).sum(1),
    "an edge is a running sum of weights: cumsum": lambda alpha, x: (
        x[:, None] >= alpha[:, :-1]
    ).sum(1),
    "weights may sum to a little less than 1: then no edge is beyond the dart, and argmax gives 0": lambda alpha, x: (
        (alpha.cumsum(1) > x[:, None]).float().argmax(1)
    ),
    "weights may sum to a little less than 1: leave the last edge out": lambda alpha, x: (
        x[:, None] >= alpha.cumsum(1)
    ).sum(1),
}


@exercise(
    "6.2", "The bound, summed over every path", difficulty=2, minutes=9, equation="equation 10"
)
def bound(
    p_place: Answer,
    p_word: Answer,
    L: int,
    C: int,
    *,
    begin: int = 1,
    mean: Answer = lambda p, q: (p @ q.log()).item(),
) -> tuple[float, float]:
    """L_s, the mean of log p(y|s,a) under p(s|a), and log p(y|a), the log of the mean of p(y|s,a)."""
    paths = [
        [path[:t] for t in range(begin, C + 1)] for path in itertools.product(range(L), repeat=C)
    ]
    p, q = (
        torch.tensor([math.prod(map(of, each)) for each in paths]).double()
        for of in (p_place, p_word)
    )
    return mean(p, q), (p @ q).log().item()


def _chances(L: int, C: int, seed: int) -> tuple[Any, ...]:
    """The probabilities of each beginning's last place and word."""
    begun = [path for t in range(C) for path in itertools.product(range(L), repeat=t)]
    places = {
        (*path, i): p
        for n, path in enumerate(begun)
        for i, p in enumerate(distribution(L, seed=seed + n).tolist())
    }
    words = dict(zip(places, numbers(len(places), seed=seed).sigmoid().tolist(), strict=True))
    return places.__getitem__, words.__getitem__, L, C


bound.says = "2 places and 2 words, 4 and 3, and 3 places for a single word"
bound.cases = lambda: [_chances(2, 2, 0), _chances(4, 3, 1), _chances(3, 1, 2)]
bound.parts = ("L_s", "log p(y|a)")
bound.given = lambda p_place, p_word, L, C: f"L = {L}, C = {C}"
bound.mistakes = {
    "multiply over path[:1], path[:2], ...: this takes the whole path alone": lambda p, q, L, C: (
        bound(p, q, L, C, begin=C)
    ),
    "both are log p(y|a): in L_s the logarithm stands inside the sum": partial(
        bound, mean=lambda p, q: (p @ q).log().item()
    ),
    "L_s is a mean over paths: weigh each by its probability": partial(
        bound, mean=lambda p, q: q.log().mean().item()
    ),
}


def _at_both(answer: Answer, log_p: Tensor, reward: Tensor, baseline: float) -> Any:
    """The gradients of a learner's loss at log p(s|a) and at the reward."""
    loss = answer(log_p.requires_grad_(), reward.requires_grad_(), baseline)
    return gradients(loss, {"log p(s|a)": log_p, "the reward, log p(y|s,a)": reward})


@exercise(
    "6.3", "The score-function gradient", difficulty=3, minutes=10, equation="equations 11 and 12"
)
def score_loss(log_p_place: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """A loss whose gradient is minus the mean of (reward - baseline) times that of log p(s|a), with none for the reward."""
    return -((reward - baseline).detach() * log_p_place).mean()


score_loss.says = "its gradients: of log p(s|a) the estimate, of the reward nothing"
score_loss.cases = lambda: [
    (-numbers(4, seed=2).abs(), numbers(4, seed=3), 0.3),
    (-numbers(4).abs(), -3 * numbers(4, seed=1).abs(), 0.0),
]
score_loss.observe = _at_both
score_loss.mistakes = {
    "reward not detached: its own gradient flows back too": lambda p, r, b: -((r - b) * p).mean(),
}


@exercise("6.4", "Bias and noise", difficulty=2, minutes=6)
def bias_and_noise(
    p: Tensor, estimates: Tensor, truth: Tensor, *, centre: Answer = torch.matmul
) -> tuple[float, float]:
    """The mean estimate's distance from the truth, and the estimates' root mean square distance from their mean, both by the truth's length."""
    bias, off = p @ estimates - truth, estimates - centre(p, estimates)
    return (bias.norm() / truth.norm()).item(), (
        (p @ off.square().sum(1)).sqrt() / truth.norm()
    ).item()


bias_and_noise.says = "estimators of 6 and of 3 possible estimates"
bias_and_noise.cases = lambda: [
    (distribution(6, seed=1), numbers(6, 4, seed=2), 0.1 * numbers(4, seed=3)),
    (distribution(3, seed=3), numbers(3, 5, seed=4), numbers(5, seed=5)),
]
bias_and_noise.parts = ("the bias", "the noise")
bias_and_noise.mistakes = {
    "measured from the truth, bias is in the noise: take the distance from the mean": lambda p, x, truth: (
        bias_and_noise(p, x, truth, centre=lambda *_: truth)
    ),
}


@exercise(
    "6.5", "The other samples as a baseline", difficulty=2, minutes=4, equation="Kool et al. (2019)"
)
def leave_one_out(rewards: Tensor) -> Tensor:
    """For each sample the mean reward of the others in its row, (B, N)."""
    return objective.leave_one_out(rewards)


leave_one_out.says = "captions of 3 and of 4 samples"
leave_one_out.cases = lambda: [(numbers(2, N),), (numbers(5, 4, seed=1),)]
leave_one_out.mistakes = {
    "a sample is in its own baseline: leave it out": lambda r: r.mean(1, True).expand_as(r),
    "this is the reward less its baseline: the baseline alone is asked": lambda r: (
        r - leave_one_out(r)
    ),
}


@exercise("6.6", "A dart with a gradient", difficulty=3, minutes=7, equation="Jang et al. (2017)")
def gumbel_softmax(energies: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """Forward one-hot, at the largest energy + noise; backward the softmax of (energies + noise) / temperature over the places."""
    relaxed = torch.softmax((energies + noise) / temperature, 1)
    return nn.functional.one_hot(relaxed.argmax(1), relaxed.shape[1]) + relaxed - relaxed.detach()


gumbel_softmax.says = "one place forward, the softmax's gradient backward, at two temperatures"
gumbel_softmax.cases = lambda: [
    (numbers(B, L), numbers(B, L, seed=1), 1.0),
    (numbers(2, 4, seed=2), numbers(2, 4, seed=3), 0.5),
]
gumbel_softmax.observe = with_gradients("the energies")
gumbel_softmax.mistakes = {
    "soft on the way forward, too: one place is read": lambda e, g, T: torch.softmax(
        (e + g) / T, 1
    ),
    "divide energies *and* noise by the temperature": lambda e, g, T: gumbel_softmax(e, g * T, T),
}


@exercise("6.7", "What each path adds", difficulty=3, minutes=8, equation="Mnih and Rezende (2016)")
def vimco(
    log_w: Tensor,
    d_log_w: Tensor,
    d_log_q: Tensor,
    *,
    stand_in: Answer = objective.leave_one_out,
    share: Answer = lambda w: w.softmax(1),
) -> Tensor:
    """For each row, the sum over k of softmax(log_w)_k d_log_w_k + signal_k d_log_q_k."""
    alone = torch.eye(log_w.shape[1], dtype=torch.bool)
    replaced = torch.where(
        alone, stand_in(log_w).unsqueeze(2), log_w.unsqueeze(1)
    )  # (S, K, K): row k without w_k
    signal = log_w.logsumexp(1, True) - replaced.logsumexp(2)
    return (share(log_w).unsqueeze(2) * d_log_w + signal.unsqueeze(2) * d_log_q).sum(1)


vimco.says = "groups of 2, 3 and 4 paths"
vimco.cases = lambda: [
    (numbers(S, K, seed=K, scale=2.0), numbers(S, K, 5, seed=10 + K), numbers(S, K, 5, seed=20 + K))
    for S, K in ((B, 4), (2, 3), (2, 2))
]
vimco.mistakes = {
    "the others' plain mean stands in for w_k, or nothing does: take their *geometric* mean": partial(
        vimco, stand_in=lambda w: leave_one_out(w.exp()).log()
    ),
    "a path is in its own stand-in: leave it out": partial(
        vimco, stand_in=lambda w: w.mean(1, True).expand_as(w)
    ),
    "the signal has the wrong sign: the bound with w_k, less the one without it": lambda w, d, q: (
        vimco(w, d, -q)
    ),
    "each gradient of log w counts by the path's share: softmax": partial(
        vimco, share=torch.ones_like
    ),
}


def _through(answer: Answer, log_p_word: Tensor, alphas: Tensor, *rest: Any) -> Any:
    """The loss and its gradients, at the energies: an answer may normalise alpha again."""
    energies = alphas.log().requires_grad_()
    loss = answer(log_p_word.requires_grad_(), torch.softmax(energies, -1), *rest)
    result = gradients(loss, {"log p(y_t)": log_p_word, "the energies": energies})
    return result if result is loss else {"the loss": torch.as_tensor(loss).detach(), **result}


@exercise(
    "6.8",
    "The whole estimator",
    difficulty=3,
    minutes=14,
    equation="section 4.1, the final learning rule",
)
def estimator(
    log_p_word: Tensor,
    alphas: Tensor,
    places: Tensor,
    baseline: float,
    lambda_r: float,
    lambda_e: float,
    *,
    detach: bool = True,
    rewarded: Answer = lambda log_p: log_p.sum(1, True),
) -> Tensor:
    """Minus the mean over captions of log p + lambda_r [log p - baseline] log p(s) + lambda_e H, each a sum over words, [] a constant."""
    log_p = log_p_word.sum(1)
    advantage = rewarded(log_p_word) - baseline
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    score = ((advantage.detach() if detach else advantage) * chosen.log()).sum(1)
    return -(log_p + lambda_r * score + lambda_e * entropy(alphas).sum(1)).mean()


estimator.says = "the loss and both of its gradients"
estimator.cases = lambda: [
    (
        -numbers(B, C).abs() - 0.1,
        distribution(B, C, L),
        torch.arange(B * C).view(B, C) % L,
        -5.0,
        1.0,
        0.5,
    ),
    (
        -numbers(1, 2, seed=2).abs() - 0.1,
        distribution(1, 2, 3, seed=3),
        torch.tensor([[2, 1]]),
        -1.0,
        0.5,
        0.0,
    ),
]
estimator.observe = _through
estimator.given = lambda *x: f"baseline = {x[3]:g}, lambda_r = {x[4]:g}, lambda_e = {x[5]:g}"
estimator.mistakes = {
    "reward not detached: it teaches through the likelihood term alone": partial(
        estimator, detach=False
    ),
    "entropies are summed over the words": lambda p, a, s, b, r, e: estimator(
        p, a, s, b, r, e / p.shape[1]
    ),
    "log p(y|s,a) is the words' sum, not their mean": lambda p, *x: estimator(p / p.shape[1], *x),
    "rewarded for the words to come: no bias, less noise, but the paper rewards the whole caption": partial(
        estimator, rewarded=lambda p: p.flip(1).cumsum(1).flip(1)
    ),
    "each look is rewarded for its own word alone: the reward is the whole caption's": partial(
        estimator, rewarded=torch.clone
    ),
    "the entropy is a gain: the loss falls with it": lambda p, a, s, b, r, e: estimator(
        p, a, s, b, r, -e
    ),
}


@exercise("6.9", "A rollout", difficulty=3, minutes=9)
def tell(
    step: Answer, state: Any, darts: Tensor, *, slip: str = "", begin: int = -1
) -> tuple[Tensor, Tensor]:
    """Words (B, C), one dart for each, drawn from the softmax, END after the end; and the sum of their log p, up to and with END."""
    words, ended, told = torch.full((len(darts),), begin), torch.zeros(len(darts)).bool(), []
    log_p: Any = 0.0
    for column in darts.T:
        logits, after = step(state, words)
        state = state if slip == "state" else after
        log_p_next = logits.log_softmax(1)
        words = draw(log_p_next.exp(), column).masked_fill(ended & ("words" not in slip), END)
        before, ended = ended, ended | (words == END)
        silent = ended if slip == "END" else before & ("log_p" not in slip)
        log_p = log_p + log_p_next.gather(1, words[:, None])[:, 0].masked_fill(silent, 0.0)
        told.append(words)
    return torch.stack(told, 1), log_p


def _policy(K: int, seed: int) -> Answer:
    """A step whose logits depend on the last word and on how many there were."""
    table = numbers(K + 1, K, seed=seed).requires_grad_()
    step: Any = lambda n, words: (table[words + 1] * (1 + n.unsqueeze(1)), n + 1)  # noqa: E731
    step.table = table
    return step


def _told(answer: Answer, step: Any, state: Tensor, darts: Tensor) -> Any:
    """What a learner samples, and its gradient."""
    result = answer(step, state, darts)
    if (
        not isinstance(result, (tuple, list))
        or len(result) != 2
        or getattr(result[1], "ndim", 0) != 1
    ):
        return result
    try:
        slope = gradients(result[1].sum(), {"the policy's logits": step.table})
    except RuntimeError:
        raise Failed(
            "the gradients need a mask that it changes in place: `ended = ended | ...`, not `|=`"
        ) from None
    return {"the words": result[0], "log p of the captions": result[1].detach(), **slope}


tell.says = "the words, their log-probability and its gradient, with captions that end early"
tell.cases = lambda: [
    (_policy(K, s), torch.zeros(B), torch.rand(B, 5, generator=generator(s)))
    for s, K, B in ((1, 4, 6), (4, 3, 6), (10, 3, 1))
]
tell.observe = _told
tell.mistakes = {
    "log p goes on after the end: there it counts 0": partial(tell, slip="log_p"),
    "the words go on after the end: there they are END": partial(tell, slip="words"),
    "END itself counts: use the mask of those that had ended before it": partial(tell, slip="END"),
    "the state is not handed on: each step needs the one before's": partial(tell, slip="state"),
    "-1 stands for the beginning": partial(tell, begin=END),
}


@exercise("6.10", "Rewards at work", difficulty=3, minutes=8, equation="Ahmadian et al. (2024)")
def practise(
    policy: nn.Module,
    attempt: Answer,
    optimiser: Any,
    steps: int,
    *,
    slip: str = "",
    most: float = 5.0,
) -> None:
    """Each step: minus the mean of (reward - mean reward of the other tries) log p; its gradient, clipped to a norm of 5."""
    for _ in range(steps):
        reward, log_p = attempt()
        loss = -((reward - leave_one_out(reward) * (slip != "none")) * log_p).mean()
        optimiser.zero_grad() if slip != "adds up" else None
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), most)
        optimiser.step()


def _practised(answer: Answer, scale: int, steps: int) -> Any:
    """A policy's weights afterwards, and how often it was asked."""
    policy, asked, words = nn.Linear(4, 2, bias=False), [], torch.tensor([[0, 1, 2], [3, 0, 0]])
    nn.init.zeros_(policy.weight)

    def attempt() -> tuple[Tensor, Tensor]:
        asked.append(steps)
        return scale * torch.tensor([[1.0, 0.0, 0.5], [1.0, 0.0, 0.2]]), policy.weight.log_softmax(
            1
        ).gather(1, words)

    answer(policy, attempt, torch.optim.SGD(policy.parameters(), 0.1), steps)
    return {"steps": len(asked), "the policy's weights afterwards": policy.weight.detach()}


practise.says = (
    "a small policy after 1, 3 and 4 steps, with gradients of moderate size and huge ones"
)
practise.cases = lambda: [(1, 1), (2, 3), (300, 4)]
practise.observe = _practised
practise.given = lambda scale, steps: f"{steps} steps, rewards of up to {scale}"
practise.mistakes = {
    "gradients add up: zero_grad() before each backward()": partial(practise, slip="adds up"),
    "no baseline: take off the mean reward of the other tries": partial(practise, slip="none"),
    "gradients are not clipped to a norm of 5": partial(practise, most=math.inf),
}


@exercise(
    "6.11",
    "On trial: what the rewards taught",
    difficulty=2,
    minutes=6,
    equation="Chen et al. (2021)",
)
def pass_at(
    successes: Tensor,
    k: int,
    *,
    of: Answer = lambda c, n, k: 1 - math.comb(n - c, k) / math.comb(n, k),
) -> float:
    """The chance that of k different tries of a scene's N at least one succeeds, and its mean over the scenes."""
    n = successes.shape[1]
    return sum(of(c, n, k) for c in successes.sum(1).tolist()) / len(successes)


pass_at.says = "one try, all of them, and some: any of them counts, whichever k are taken"
pass_at.cases = lambda: (
    [(numbers(5, 8, seed=8) > 1, k) for k in (1, 8, 3)] + [(torch.eye(4).bool(), 4)]
)
pass_at.mistakes = {
    "the artefact lives: this mean rises if a policy only repeats its best tries": lambda s, _: (
        s.float().mean().item()
    ),
    "the first k tries alone: average over all choices of k": lambda s, k: (
        s[:, :k].any(1).float().mean().item()
    ),
    "with replacement: choose k different tries": partial(
        pass_at, of=lambda c, n, k: 1 - (1 - c / n) ** k
    ),
}
