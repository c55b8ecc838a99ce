"""Exercises of notebook 06: hard attention, from a draw to the estimator."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises.task import Answer, distribution, exercise, generator, gradients, numbers, with_gradients
from satcourse.lessons import bounds, estimators
from satlib.beyond.rewards import advantages
from satlib.data.text import END
from satlib.model import objective
from satlib.model.attention import entropy

B, C, L, N = 3, 4, 5, 3


def _edges(alpha: Tensor) -> Tensor:
    return alpha.cumsum(1)[:, :-1]


@exercise("6.1", "A place is drawn", difficulty=2, minutes=10, equation="equation 8")
def draw(alpha: Tensor, darts: Tensor) -> Tensor:
    """The place that a dart hits: alpha (B, L), darts (B,) -> (B,)."""
    return (darts[:, None] >= _edges(alpha)).sum(1)


draw.says = "darts on edges, places of weight 0 and 1, and weights that sum to less than 1"
draw.cases = lambda: [
    (torch.tensor([[0.45, 0.25, 0.15, 0.1, 0.05]]).repeat(4, 1), torch.tensor([0.01, 0.46, 0.8, 0.99])),
    (torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.3, 0.7, 0.0])),
    (torch.tensor([[0.5, 0.3, 0.2 - 1e-6]]), torch.tensor([1 - 2**-24])),
]
draw.mistakes = {
    "this is the place with the largest weight, whatever the dart": lambda alpha, _: alpha.argmax(1),
    "a dart meets one edge here, not all: give it an axis of size 1": lambda alpha, x: (x >= _edges(alpha)).sum(1),
    "a dart on an edge hits the place that begins there": lambda alpha, x: (x[:, None] > _edges(alpha)).sum(1),
    "an edge is a running sum of weights: cumsum": lambda alpha, x: (x[:, None] >= alpha[:, :-1]).sum(1),
    "places are counted from 0": lambda *x: draw(*x) + 1,
    "weights may sum to a little less than 1: leave the last edge out": lambda alpha, x: (
        x[:, None] >= alpha.cumsum(1)
    ).sum(1),
}


@exercise("6.2", "The bound, summed over every path", difficulty=2, minutes=4, equation="equation 10")
def bound(log_p_path: Tensor, log_p_caption: Tensor) -> Tensor:
    """L_s over all paths."""
    return (log_p_path.exp() * log_p_caption).sum()


bound.says = "the bound of 8 and of 25 paths, and its gradients"
bound.cases = lambda: [
    (distribution(8).log(), -numbers(8, seed=1).abs() * 3),
    (distribution(25, seed=2, sharp=2.0).log(), -numbers(25, seed=3).abs() * 5),
]
bound.observe = with_gradients("log p(s|a)", "log p(y|s,a)")
bound.mistakes = {
    "this is log p(y|a), which the bound lies below": lambda path, caption: torch.logsumexp(path + caption, 0),
    "the paths count alike: weigh each by its probability": lambda path, caption: caption.mean(),
}


def _at_both(answer: Answer, log_p: Tensor, reward: Tensor, baseline: float) -> Any:
    """The gradients of a learner's loss at log p(s|a) and at the reward."""
    loss = answer(log_p.requires_grad_(), reward.requires_grad_(), baseline)
    return gradients(loss, {"log p(s|a)": log_p, "the reward, log p(y|s,a)": reward})


@exercise("6.3", "The score-function gradient", difficulty=3, minutes=12, equation="equations 11 and 12")
def score_loss(log_p_place: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """A loss whose gradient is minus the score-function estimate."""
    return -((reward - baseline).detach() * log_p_place).mean()


score_loss.says = "its gradients: of log p(s|a) the estimate, of the reward nothing"
score_loss.cases = lambda: [
    (-numbers(4).abs(), -3 * numbers(4, seed=1).abs(), 0.0),
    (-numbers(3, seed=2).abs(), numbers(3, seed=3), -2.0),
]
score_loss.observe = _at_both
score_loss.mistakes = {
    "baseline not subtracted: take it off the reward": lambda p, r, b: score_loss(p, r, 0.0),
    "reward not detached: its own gradient flows back too": lambda p, r, b: -((r - b) * p).mean(),
    "the wrong sign: a loss goes down": lambda *x: -score_loss(*x),
    "the sum over the samples: take their mean": lambda p, *x: len(p) * score_loss(p, *x),
    "the baseline is added: subtract it": lambda p, r, b: score_loss(p, r, -b),
}


def _baseline(answer: Answer, baseline: float, log_p: Tensor) -> Any:
    """Both results, and whether either hangs on the graph."""
    log_p.requires_grad_()
    output = answer(baseline, log_p)
    if not isinstance(output, (tuple, list)) or len(output) != 2:
        return output
    tied = any(isinstance(value, Tensor) and value.requires_grad for value in output)
    return {"the advantage": output[0], "the new baseline": output[1], "hangs on the graph (0: no)": tied}


@exercise("6.4", "A baseline that follows", difficulty=2, minutes=4, equation="section 4.1")
def moving_average(baseline: float, log_p: Tensor) -> tuple[Tensor, float]:
    """What a batch's rewards exceed the old baseline by, and the new one."""
    return (log_p - baseline).detach(), 0.9 * baseline + 0.1 * log_p.mean().item()


moving_average.says = "the advantage, the new baseline, and that neither hangs on the graph"
moving_average.cases = lambda: [(0.0, -numbers(4).abs() * 5), (-8.0, -numbers(3, seed=1).abs() * 5)]
moving_average.observe = _baseline
moving_average.mistakes = {
    "one or both hang on the graph: detach the rewards": lambda b, r: (r - b, 0.9 * b + 0.1 * r.mean()),
    "the baseline was updated before its use: it would know these very samples": lambda b, r: (
        r.detach() - (new := moving_average(b, r)[1]),
        new,
    ),
}


leave_one_out = exercise(
    "6.5", "The other samples as a baseline", difficulty=2, minutes=8, equation="Kool et al. (2019)"
)(objective.leave_one_out)
leave_one_out.says = "captions of 3 and of 4 samples"
leave_one_out.cases = lambda: [(numbers(B, N),), (numbers(4, 4, seed=1),)]
leave_one_out.mistakes = {
    "a sample is in its own baseline: leave it out": lambda r: r.mean(1, True).expand_as(r),
    "the others' sum is divided by N: there are N - 1 of them": lambda r: (r.sum(1, True) - r) / r.shape[1],
}


gumbel_softmax = exercise("6.6", "A dart with a gradient", difficulty=3, minutes=8, equation="Jang et al. (2017)")(
    estimators.gumbel_softmax
)
gumbel_softmax.says = "one place forward, the softmax's gradient backward, at two temperatures"
gumbel_softmax.cases = lambda: [
    (numbers(B, L), numbers(B, L, seed=1), 1.0),
    (numbers(2, 4, seed=2), numbers(2, 4, seed=3), 0.5),
]
gumbel_softmax.observe = with_gradients("the energies")
gumbel_softmax.mistakes = {
    "soft on the way forward, too: one place is read": lambda e, g, T: torch.softmax((e + g) / T, 1),
    "without the noise this is always the likeliest place": lambda e, g, T: gumbel_softmax(e, 0 * g, T),
    "divide by the temperature": lambda e, g, T: gumbel_softmax(e, g, 1 / T),
    "the temperature has no effect": lambda e, g, _: gumbel_softmax(e, g, 1.0),
    "divide energies *and* noise by the temperature": lambda e, g, T: gumbel_softmax(e, g * T, T),
    "a gradient of the wrong sign: + soft - soft.detach()": lambda *x: 2 * (y := gumbel_softmax(*x)).detach() - y,
    "soft is in the weights, too: - soft.detach()": lambda e, g, T: (
        gumbel_softmax(e, g, T) + torch.softmax((e + g) / T, 1).detach()
    ),
}

vimco_signal = exercise("6.7", "What each path adds", difficulty=3, minutes=8, equation="Mnih and Rezende (2016)")(
    bounds.vimco_signal
)
vimco_signal.says = "groups of 2, 3 and 4 paths"
vimco_signal.cases = lambda: [(numbers(B, 4, scale=2.0),), (numbers(2, 3, seed=1),), (numbers(2, 2, seed=2),)]
vimco_signal.mistakes = {
    "the others' *geometric* mean: average logarithms": lambda w: (
        w.logsumexp(1, True) - (leave_one_out(w.exp()) * w.shape[1]).log()
    ),
    "w_k is left out: put the others' mean in its place": lambda w: (
        w.logsumexp(1, True) - (leave_one_out(w.exp()) * (w.shape[1] - 1)).log()
    ),
    "nothing is subtracted: this is L itself": lambda w: (w.exp().mean(1, True).log()).expand_as(w),
}


def _through(answer: Answer, log_p_word: Tensor, alphas: Tensor, *rest: Any) -> Any:
    """The loss and its gradients, at the energies: an answer may normalise alpha again."""
    energies = alphas.log().requires_grad_()
    loss = answer(log_p_word.requires_grad_(), torch.softmax(energies, -1), *rest)
    result = gradients(loss, {"log p(y_t)": log_p_word, "the energies": energies})
    return result if result is loss else {"the loss": torch.as_tensor(loss).detach(), **result}


@exercise("6.8", "The whole estimator", difficulty=3, minutes=18, equation="section 4.1, the final learning rule")
def estimator(
    log_p_word: Tensor,
    alphas: Tensor,
    places: Tensor,
    baseline: float,
    lambda_r: float,
    lambda_e: float,
    *,
    detach: bool = True,
    to_come: bool = False,
    likelihood: float = 1.0,
) -> Tensor:
    """A loss whose gradient is minus the paper's estimate, or minus one with a slip."""
    log_p = log_p_word.sum(1)
    advantage = (log_p_word.flip(1).cumsum(1).flip(1) if to_come else log_p.unsqueeze(1)) - baseline
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)
    score = ((advantage.detach() if detach else advantage) * chosen.log()).sum(1)
    return -(likelihood * log_p + lambda_r * score + lambda_e * entropy(alphas).sum(1)).mean()


estimator.says = "the loss and both of its gradients"
estimator.cases = lambda: [
    (-numbers(B, C).abs() - 0.1, distribution(B, C, L), torch.arange(B * C).view(B, C) % L, -5.0, 1.0, 0.5),
    (-numbers(1, 2, seed=2).abs() - 0.1, distribution(1, 2, 3, seed=3), torch.tensor([[2, 1]]), -1.0, 0.5, 0.0),
]
estimator.observe = _through
estimator.given = lambda *x: f"baseline = {x[3]:g}, lambda_r = {x[4]:g}, lambda_e = {x[5]:g}"
estimator.mistakes = {
    "reward not detached: it teaches through the likelihood term alone": partial(estimator, detach=False),
    "the entropy term has the wrong sign": lambda p, a, s, b, r, e: estimator(p, a, s, b, r, -e),
    "entropies are summed over the words": lambda p, a, s, b, r, e: estimator(p, a, s, b, r, e / p.shape[1]),
    "the baseline is added: subtract it": lambda p, a, s, b, r, e: estimator(p, a, s, -b, r, e),
    "the likelihood term is missing: the words would learn nothing": partial(estimator, likelihood=0.0),
    "log p(y|s,a) is the words' sum, not their mean": lambda p, *x: estimator(p / p.shape[1], *x),
    "the sum over the batch: take the mean": lambda p, *x: len(p) * estimator(p, *x),
    "the wrong sign: this would be maximised": lambda *x: -estimator(*x),
    "rewarded for the words to come: no bias, less noise, but the paper rewards the whole caption": partial(
        estimator, to_come=True
    ),
}


@exercise("6.9", "GRPO's advantage", difficulty=2, minutes=4, equation="Shao et al. (2024), section 4.1")
def group_advantage(rewards: Tensor) -> Tensor:
    """GRPO's advantages: (B, N) -> (B, N)."""
    return advantages(rewards, "group")


group_advantage.says = "groups of 4 and 5, one of them with equal rewards"
group_advantage.cases = lambda: [
    (numbers(B, 4),),
    (torch.tensor([[1.0, 0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0]]),),
]
group_advantage.tolerance = 1e-3
group_advantage.mistakes = {
    "not divided by the group's standard deviation": lambda r: r - r.mean(1, True),
    "torch's std divides by N - 1, this one by N": lambda r: (
        (r - r.mean(1, True)) / r.std(1, correction=0, keepdim=True).clamp(1e-6)
    ),
    "equal rewards give NaN: their deviation is 0": lambda r: (r - r.mean(1, True)) / r.std(1, keepdim=True),
}


@exercise("6.10", "A rollout", difficulty=3, minutes=9)
def tell(step: Answer, state: Any, darts: Tensor, *, slip: str = "", begin: int = -1) -> tuple[Tensor, Tensor]:
    """Sample captions: step(state, words) -> logits (B, K), state; darts (B, C) -> words (B, C), log p of the captions (B,)."""
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
    if not isinstance(result, (tuple, list)) or len(result) != 2 or getattr(result[1], "ndim", 0) != 1:
        return result
    slope = gradients(result[1].sum(), {"the policy's logits": step.table})
    return {"the words": result[0], "log p of the captions": result[1].detach(), **slope}


tell.says = "the words, their log-probability and its gradient, with captions that end early"
tell.cases = lambda: [
    (_policy(K, s), torch.zeros(6), torch.rand(6, 5, generator=generator(s))) for s, K in ((1, 4), (4, 3))
]
tell.observe = _told
tell.mistakes = {
    "after a caption's end its words are END and log p counts 0": partial(tell, slip="words, log_p"),
    "log p goes on after the end: there it counts 0": partial(tell, slip="log_p"),
    "the words go on after the end: there they are END": partial(tell, slip="words"),
    "END itself counts: use the mask of those that had ended before it": partial(tell, slip="END"),
    "the state is not handed on: each step needs the one before's": partial(tell, slip="state"),
    "-1 stands for the beginning": partial(tell, begin=END),
    "give back (words, log p)": lambda *x: tell(*x)[::-1],
}


@exercise("6.11", "On trial: what the rewards taught", difficulty=2, minutes=4)
def learnt(before: Tensor, after: Tensor) -> Tensor:
    """How the share of scenes grows in which any try succeeds: (B, N), (B, N) -> ()."""
    return (1.0 * after.any(1) - 1.0 * before.any(1)).mean()


learnt.says = "a policy that only repeats what it could do, and one that can do more"
learnt.cases = lambda: [
    (torch.eye(4).bool(), torch.ones(4, 4).bool()),
    (torch.tensor([[0, 0, 0], [0, 1, 0]]).bool(), torch.tensor([[0, 1, 0], [1, 0, 0]]).bool()),
    (torch.tensor([[0, 1], [1, 0], [0, 0]]).bool(), torch.tensor([[1, 1], [0, 0], [0, 0]]).bool()),
]
learnt.mistakes = {
    "the artefact lives: the mean rises if a policy only repeats its best tries": lambda b, a: (
        1.0 * a - 1.0 * b
    ).mean(),
    "no comparison: subtract what the old policy could do": lambda b, a: learnt(b & False, a),
    "every try must succeed here: one is enough": lambda b, a: (1.0 * a.all(1) - 1.0 * b.all(1)).mean(),
}
