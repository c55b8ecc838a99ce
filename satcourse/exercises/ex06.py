"""Exercises of notebook 06: hard attention, from a draw to the estimator."""

from itertools import count
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from satcourse.exercises import enumeration
from satcourse.exercises.task import Answer, Exploration, Task, distribution, explain, numbers, predict
from satcourse.lessons.estimators import Paths
from satlib.model import attention, objective
from satlib.model.attention import AdditiveEnergy, HardAttention
from satlib.model.decoder import Output
from satlib.model.objective import HardConfig, VariationalBound

B, C, L, K, D, N = 3, 4, 5, 6, 2, 3


def _short_of_one() -> Tensor:
    """Weights (1, L) that sum to a little less than 1 in float32, as about every third softmax does."""
    return next(alpha for seed in count() if (alpha := distribution(1, L, seed=seed)).cumsum(1)[0, -1] < 1)


def _not_all_zero(inputs: tuple[Any, ...], estimate: Tensor) -> str | None:
    if estimate.abs().max() < 1e-5:
        return (
            "it is zero everywhere, as if the reward had no part in it: place i's reward multiplies row i, not column i"
        )
    return None


def draw(alpha: Tensor, darts: Tensor) -> Tensor:
    """The place whose stretch of the line from 0 to 1 a dart hits: alpha (B, L), darts (B,) -> (B,)."""
    return (darts.unsqueeze(1) >= alpha.cumsum(1)[:, :-1]).sum(1)


def _draw_loop(alpha: Tensor, darts: Tensor) -> Tensor:
    result = []
    for weights, dart in zip(alpha.tolist(), darts.tolist(), strict=True):
        i = 0
        while i < len(weights) - 1 and dart >= weights[i]:
            dart, i = dart - weights[i], i + 1
        result.append(i)
    return torch.tensor(result)


def log_p_path(alphas: Tensor, places: Tensor) -> Tensor:
    """satlib's log p(s_t), summed over the words."""
    return objective.log_probability(alphas, places).sum(1)


def _chosen(alphas: Tensor, places: Tensor) -> Tensor:
    return alphas.gather(2, places.unsqueeze(2)).squeeze(2)


def bound(log_p_path: Tensor, log_p_caption: Tensor) -> Tensor:
    """L_s over all paths, as satlib sums it."""
    return Paths(log_p_path.long()[:, None], log_p_path[:, None], log_p_caption[:, None]).bound


def score_loss(log_p_place: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """A loss whose gradient is minus the score-function estimate."""
    return -((reward - baseline).detach() * log_p_place).mean()


def _gradients(answer: Answer, log_p_place: Tensor, reward: Tensor, baseline: float) -> Any:
    """The gradients of the loss: of log p(s|a), and of the reward, which has to be left alone."""
    log_p_place.requires_grad_()
    reward.requires_grad_()
    loss = answer(log_p_place, reward, baseline)
    if not _is_number(loss):
        return loss
    result = (None, None)
    if isinstance(loss, Tensor) and loss.requires_grad:
        result = torch.autograd.grad(loss, (log_p_place, reward), allow_unused=True)
    at_place, at_reward = (torch.zeros(len(reward)) if each is None else each for each in result)
    return {"the gradient of log p(s|a)": at_place, "the gradient of the reward": at_reward}


def _is_number(loss: Any) -> bool:
    return isinstance(loss, Number) or (isinstance(loss, Tensor) and not loss.dim())


def moving_average(baseline: float, log_p: Tensor) -> tuple[Tensor, float]:
    """What a batch's rewards exceed the old baseline by, and the new one."""
    return (log_p - baseline).detach(), 0.9 * baseline + 0.1 * log_p.mean().item()


def _baseline(answer: Answer, baseline: float, log_p: Tensor) -> Any:
    """Advantage and new baseline; whether either hangs on the graph."""
    log_p.requires_grad_()
    given = answer(baseline, log_p)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        return given
    tied = [isinstance(each, Tensor) and each.requires_grad for each in given]
    values = [each.detach() if isinstance(each, Tensor) else each for each in given]
    return {
        "the advantage": values[0],
        "the new baseline": values[1],
        "constants for autograd": [not each for each in tied],
    }


def entropy(alpha: Tensor) -> Tensor:
    """satlib's entropy, in nats."""
    return attention.entropy(alpha)


class _GivenPlaces(HardAttention):
    def __init__(self, places: Tensor, alpha: Tensor) -> None:
        super().__init__(AdditiveEnergy(1, 1, 1))
        self.places, self.alpha = places, alpha

    def draw(self, alpha: Tensor) -> Tensor:
        return self.places


def mix(a: Tensor, alpha: Tensor, places: Tensor, coins: Tensor) -> Tensor:
    """satlib's hard attention with these weights, these draws and these coins."""
    module = _GivenPlaces(places, alpha)
    module.energy.forward = lambda keys, h: alpha.log()
    return module(a, a, a[:, 0], coins).z.detach()


def _mix(a: Tensor, alpha: Tensor, places: Tensor, coins: Tensor) -> Tensor:
    soft, hard = torch.einsum("bl,bld->bd", alpha, a), a[torch.arange(len(a)), places]
    return torch.where(coins.unsqueeze(1), soft, hard)


def estimator(
    log_p_word: Tensor, alphas: Tensor, places: Tensor, baseline: float, lambda_r: float, lambda_e: float
) -> Tensor:
    """satlib's loss of the variational bound, from logits that are log-probabilities of two words: that of the caption, and the rest."""
    rest = torch.log1p(-log_p_word.exp())
    logits = torch.stack([log_p_word, rest], 2)
    module = VariationalBound(HardConfig(baseline="moving-average", lambda_r=lambda_r, lambda_e=lambda_e), 1)
    module.average.fill_(baseline)
    output = Output(logits, alphas, alphas[:, :, 0], places, alphas[:, :, :1])
    return module.eval()(output, torch.zeros_like(places)).loss


def _estimator(
    log_p_word: Tensor,
    alphas: Tensor,
    places: Tensor,
    baseline: float,
    lambda_r: float,
    lambda_e: float,
    detach: bool = True,
) -> Tensor:
    log_p = log_p_word.sum(1)
    advantage = log_p.unsqueeze(1) - baseline
    score = ((advantage.detach() if detach else advantage) * _chosen(alphas, places).log()).sum(1)
    spread = -(alphas * alphas.log()).sum((1, 2))
    return -(log_p + lambda_r * score + lambda_e * spread).mean()


def _by_categorical(
    log_p_word: Tensor, alphas: Tensor, places: Tensor, baseline: float, lambda_r: float, lambda_e: float
) -> Tensor:
    looks, log_p = torch.distributions.Categorical(probs=alphas), log_p_word.sum(1)
    score = ((log_p.detach() - baseline)[:, None] * looks.log_prob(places)).sum(1)
    return -(log_p + lambda_r * score + lambda_e * looks.entropy().sum(1)).mean()


def _through(answer: Answer, log_p_word: Tensor, alphas: Tensor, *rest: Any) -> Any:
    """The loss and its gradients, at the energies: an answer may normalise alpha again, which changes nothing there."""
    log_p_word.requires_grad_()
    energies = alphas.log().requires_grad_()
    alphas = torch.softmax(energies, -1)
    loss = answer(log_p_word, alphas, *rest)
    if not _is_number(loss):
        return loss
    result = (None, None)
    if isinstance(loss, Tensor) and loss.requires_grad:
        result = torch.autograd.grad(loss, (log_p_word, energies), allow_unused=True)
    words, maps = (torch.zeros_like(x) if g is None else g for g, x in zip(result, (log_p_word, energies), strict=True))
    return {
        "the loss": torch.as_tensor(loss).detach(),
        "the gradient of log p(y_t)": words,
        "the gradient at the energies": maps,
    }


def _looks() -> list[tuple[Tensor, ...]]:
    return [
        (numbers(B, L, D), distribution(B, L, seed=1), torch.tensor([0, 4, 2]), torch.tensor([True, False, True])),
        (numbers(2, 3, D, seed=2), distribution(2, 3, seed=3), torch.tensor([1, 2]), torch.tensor([False, True])),
        (numbers(2, 3, D, seed=4), distribution(2, 3, seed=5), torch.tensor([0, 0]), torch.tensor([False, False])),
    ]


def _samples() -> list[tuple[Any, ...]]:
    places = torch.tensor([[0, 4, 2, 2], [1, 1, 3, 0], [2, 0, 4, 1]])
    first = (-numbers(B, C).abs() - 0.1, distribution(B, C, L, seed=1), places)
    return [
        (*first, -5.0, 1.0, 0.01),
        (*first, 0.0, 0.1, 0.5),
        (-numbers(1, 2, seed=2).abs() - 0.1, distribution(1, 2, 3, seed=3), places[:1, 2:] % 3, -1.0, 0.5, 0.0),
    ]


TASKS = (
    Task(
        id="6.1",
        name="draw",
        title="A place is drawn",
        difficulty=2,
        minutes=10,
        equation="equation 8",
        after="A place is drawn, and one vector is read",
        reference=draw,
        cases=lambda: [
            (
                torch.tensor([[0.45, 0.25, 0.15, 0.10, 0.05]]).expand(6, 5).clone(),
                torch.tensor([0.01, 0.44, 0.46, 0.8, 0.9, 0.99]),
            ),
            (torch.tensor([[0.2, 0.8], [1.0, 0.0], [0.0, 1.0]]), torch.tensor([0.3, 0.7, 0.0])),
            (torch.tensor([[0.3, 0.4, 0.3], [0.3, 0.4, 0.3]]), torch.tensor([0.2, 0.6])),
            (_short_of_one(), torch.tensor([1 - 2**-24])),
        ],
        mistakes={
            "this is the place with the largest weight, whatever the dart: a draw hits others too": lambda alpha, darts: (
                alpha.argmax(1)
            ),
            "one place too far: count the edges at or below the dart": lambda alpha, darts: draw(alpha, darts) + 1,
            "a dart just below 1 flies past the last place: rounded weights sum to a little less; leave the last edge out": (
                lambda alpha, darts: (darts.unsqueeze(1) >= alpha.cumsum(1)).sum(1)
            ),
            "drawn anew: the dart says which place it is": lambda alpha, darts: torch.multinomial(alpha, 1).squeeze(1),
            "a dart on an edge is put on the place before: it belongs to the place that begins there": lambda alpha, darts: (
                (darts.unsqueeze(1) > alpha.cumsum(1)[:, :-1]).sum(1)
            ),
        },
        says="twelve darts, places of weight 0 and 1 among their targets, and weights that sum to a little less than 1",
        others=(
            _draw_loop,
            lambda alpha, darts: (
                torch.searchsorted(alpha.cumsum(1), darts.unsqueeze(1), right=True)
                .squeeze(1)
                .clamp(max=alpha.shape[1] - 1)
            ),
        ),
    ),
    Task(
        id="6.2",
        name="log_p_path",
        title="How likely was this path?",
        difficulty=1,
        minutes=4,
        equation="section 4.1",
        after="A lower bound on the likelihood of a caption",
        reference=log_p_path,
        cases=lambda: [
            (distribution(B, C, L), torch.tensor([[0, 4, 2, 2], [1, 1, 3, 0], [2, 0, 4, 1]])),
            (distribution(2, 2, 2, seed=1), torch.tensor([[0, 1], [1, 1]])),
            (distribution(1, 80, L, seed=2), torch.arange(80).unsqueeze(0) % L),
        ],
        mistakes={
            "this is a probability: take logarithms, and sum": lambda alphas, places: _chosen(alphas, places).prod(1),
            "the mean over the words: log p(s|a) is their sum": lambda alphas, places: (
                log_p_path(alphas, places) / places.shape[1]
            ),
            "one number for each word: sum them over the words": lambda alphas, places: _chosen(alphas, places).log(),
            "the logarithm of the sum: take the sum of the logarithms": lambda alphas, places: (
                _chosen(alphas, places).sum(1).log()
            ),
            "the product of many weights is too small for float32 and becomes 0: sum their logarithms": lambda alphas, places: (
                _chosen(alphas, places).prod(1).log()
            ),
        },
        says="paths of 4, of 2 and of 80 words",
        others=(
            lambda alphas, places: _chosen(alphas.double(), places).prod(1).log(),
            lambda alphas, places: torch.stack(
                [sum(word[i].log() for word, i in zip(*each, strict=True)) for each in zip(alphas, places, strict=True)]
            ),
        ),
    ),
    Task(
        id="6.3",
        name="bound",
        title="The bound, summed over every path",
        difficulty=2,
        minutes=4,
        equation="equation 10",
        after="A lower bound on the likelihood of a caption",
        reference=bound,
        cases=lambda: [
            (distribution(8).log(), -numbers(8, seed=1).abs() * 3),
            (distribution(25, seed=2, sharp=2.0).log(), -numbers(25, seed=3).abs() * 5),
        ],
        mistakes={
            "this is log p(y|a), which the bound lies below: the mean is over log p(y|s,a)": lambda path, caption: (
                torch.logsumexp(path + caption, 0)
            ),
            "the paths count alike: weigh each by its probability": lambda path, caption: caption.mean(),
            "log p(s|a) is the weight: take exp of it": lambda path, caption: (path * caption).sum(),
            "the sign is turned: the bound is a log-likelihood, not a loss": lambda path, caption: (
                -(path.exp() * caption).sum()
            ),
            "this is the expected probability: the mean is over its logarithm": lambda path, caption: (
                path.exp() * caption.exp()
            ).sum(),
        },
        says="the bound of 8 and of 25 paths, as satlib sums it",
        others=(
            lambda path, caption: torch.softmax(path, 0) @ caption,
            lambda path, caption: sum(p.double().exp() * r for p, r in zip(path, caption, strict=True)),
        ),
    ),
    Task(
        id="6.4",
        name="score_loss",
        title="The score-function gradient",
        difficulty=3,
        minutes=15,
        equation="equations 11 and 12",
        after="Monte Carlo, or REINFORCE",
        reference=score_loss,
        cases=lambda: [
            (-numbers(4).abs(), -3 * numbers(4, seed=1).abs(), 0.0),
            (-numbers(3, seed=2).abs(), numbers(3, seed=3), -2.0),
        ],
        observe=_gradients,
        mistakes={
            "baseline not subtracted: take it off the reward": lambda log_p, reward, b: score_loss(log_p, reward, 0.0),
            "reward not detached: its own gradient flows back too; it is a number here, not a function of the weights": (
                lambda log_p, reward, b: -((reward - b) * log_p).mean()
            ),
            "the sign is turned: this makes rewarded places less likely": lambda log_p, reward, b: (
                -score_loss(log_p, reward, b)
            ),
            "nothing is left to learn from: only the reward is to be cut off from the graph, not the loss": (
                lambda log_p, reward, b: score_loss(log_p, reward, b).detach()
            ),
            "the sum over the samples: equation 12 takes their mean": lambda log_p, reward, b: (
                -((reward - b).detach() * log_p).sum()
            ),
        },
        says="its gradients: of log p(s|a) the estimate, of the reward nothing",
        others=(
            lambda log_p, reward, b: (log_p * (b - reward.detach())).sum() / len(reward),
            lambda log_p, reward, b: (
                -sum((r - b) * p for r, p in zip(reward.tolist(), log_p, strict=True)) / len(reward)
            ),
        ),
    ),
    Task(
        id="6.5",
        name="moving_average",
        title="A baseline that follows",
        difficulty=2,
        minutes=4,
        equation="section 4.1",
        after="A baseline changes the variance, not the mean",
        reference=moving_average,
        cases=lambda: [(0.0, -numbers(4).abs() * 5), (-8.0, -numbers(3, seed=1).abs() * 5)],
        observe=_baseline,
        mistakes={
            "baseline not detached: it hangs on the graph, and so will every later one": lambda b, log_p: (
                (log_p - b).detach(),
                0.9 * b + 0.1 * log_p.mean(),
            ),
            "advantage not detached: the reward is a number here, not a function of the weights": lambda b, log_p: (
                log_p - b,
                moving_average(b, log_p)[1],
            ),
            "neither is cut off from the graph: detach log p first": lambda b, log_p: (
                log_p - b,
                0.9 * b + 0.1 * log_p.mean(),
            ),
            "0.9 and 0.1 have changed places: the baseline moves slowly": lambda b, log_p: (
                (log_p - b).detach(),
                0.1 * b + 0.9 * log_p.mean().item(),
            ),
            "the baseline was updated before its use: it would know the very samples that it is taken off": lambda b, log_p: (
                (log_p - moving_average(b, log_p)[1]).detach(),
                moving_average(b, log_p)[1],
            ),
        },
        says="the advantage, the new baseline, and that neither hangs on the graph",
        others=(
            lambda b, log_p: (log_p.detach() - b, b + 0.1 * (log_p.mean().item() - b)),
            lambda b, log_p: [log_p.detach() - b, 0.9 * b + 0.1 * log_p.detach().mean()],
        ),
    ),
    Task(
        id="6.6",
        name="leave_one_out",
        title="A baseline from the other samples",
        difficulty=2,
        minutes=8,
        equation="Kool et al. (2019)",
        after="The table: every baseline, with satlib's own code",
        reference=objective.leave_one_out,
        cases=lambda: [(numbers(B, N),), (numbers(4, 4, seed=1),), (numbers(1, 2, seed=2),)],
        mistakes={
            "a sample is in its own baseline: that biases the gradient; leave it out": lambda r: r.mean(
                1, keepdim=True
            ).expand_as(r),
            "the others' sum is divided by N: there are N - 1 of them": lambda r: (
                (r.sum(1, keepdim=True) - r) / r.shape[1]
            ),
            "the others along the wrong axis: samples of one caption stand in a row": lambda r: (
                (r.sum(0) - r) / max(len(r) - 1, 1) if len(r) > 1 else r
            ),
            "this is what is left of the reward: the baseline alone is wanted": lambda r: (
                r - objective.leave_one_out(r)
            ),
            "the sum of the others: their mean is wanted": lambda r: r.sum(1, keepdim=True) - r,
        },
        says="captions of 2, 3 and 4 samples",
        others=(
            lambda r: torch.stack([torch.cat([r[:, :i], r[:, i + 1 :]], 1).mean(1) for i in range(r.shape[1])], 1),
            lambda r: r.double() @ (1 - torch.eye(r.shape[1]).double()) / (r.shape[1] - 1),
        ),
    ),
    Task(
        id="6.7",
        name="entropy",
        title="How uncertain is a map?",
        difficulty=1,
        minutes=4,
        equation="section 4.1",
        after="The entropy term",
        reference=entropy,
        cases=lambda: [
            (distribution(B, L),),
            (torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]),),
            (distribution(5, 5, seed=1),),
        ],
        mistakes={
            "0 times log 0 gives NaN; its limit is 0: try torch.xlogy": lambda alpha: -(alpha * alpha.log()).sum(-1),
            "the sign: an entropy is never below 0": lambda alpha: -entropy(alpha),
            "in bits: take the natural logarithm": lambda alpha: entropy(alpha) / torch.tensor(2.0).log(),
            "the mean over the places: the entropy is a sum": lambda alpha: entropy(alpha) / alpha.shape[-1],
            "a map with a weight of 0 loses all its entropy: 0 log 0 has to become 0 before the sum": lambda alpha: (
                torch.nan_to_num(-(alpha * alpha.log()).sum(-1))
            ),
        },
        says="even, sharp and ordinary maps, weights of 0 among them",
        others=(
            lambda alpha: torch.special.entr(alpha).sum(-1),
            lambda alpha: torch.distributions.Categorical(alpha.double()).entropy(),
            lambda alpha: -(alpha * alpha.clamp(min=1e-12).log()).sum(1),
        ),
    ),
    Task(
        id="6.8",
        name="mix",
        title="Half of the images take the expectation",
        difficulty=2,
        minutes=8,
        equation="section 4.1",
        after="The mix: half of the images take the expectation",
        reference=mix,
        cases=_looks,
        mistakes={
            "the coins are turned round: True takes the expectation": lambda a, alpha, places, coins: _mix(
                a, alpha, places, ~coins
            ),
            "the first image's coin decides for all: the paper tosses one for each image": lambda a, alpha, places, coins: (
                _mix(a, alpha, places, coins[:1].expand_as(coins))
            ),
            "these are coins of your own: `coins` says which image takes the expectation": lambda a, alpha, places, coins: (
                _mix(a, alpha, places, torch.rand(len(a)) < 0.5)
            ),
            "the sample is weighed by its alpha: a place that was drawn is read as it is": lambda a, alpha, places, coins: (
                torch.where(
                    coins[:, None],
                    torch.einsum("bl,bld->bd", alpha, a),
                    a[torch.arange(len(a)), places] * alpha.gather(1, places[:, None]),
                )
            ),
            "the place with the largest weight is read: read the one that was drawn": lambda a, alpha, places, coins: (
                _mix(a, alpha, alpha.argmax(1), coins)
            ),
        },
        says="seven images, against satlib's hard attention",
        others=(
            _mix,
            lambda a, alpha, places, coins: torch.stack(
                [w @ x if c else x[p] for x, w, p, c in zip(a, alpha, places.tolist(), coins.tolist(), strict=True)]
            ),
        ),
    ),
    Task(
        id="6.9",
        name="estimator",
        title="The whole estimator",
        difficulty=3,
        minutes=20,
        equation="section 4.1, the final learning rule",
        after="`VariationalBound`, line by line",
        reference=estimator,
        cases=_samples,
        observe=_through,
        mistakes={
            "reward not detached: log p(y|s,a) teaches through the likelihood term alone": lambda *x: _estimator(
                *x, detach=False
            ),
            "baseline not subtracted": lambda p, a, s, b, r, e: _estimator(p, a, s, 0.0, r, e),
            "the entropy term has the wrong sign: what is maximised has plus lambda_e times the entropy": lambda p, a, s, b, r, e: (
                _estimator(p, a, s, b, r, -e)
            ),
            "nothing is left to learn from: only the bracket is to be cut off from the graph, not the loss": lambda *x: (
                _estimator(*x).detach()
            ),
            "the sign of all of it: what is maximised must become a loss": lambda *x: -_estimator(*x),
        },
        says="the loss and both of its gradients, against satlib's VariationalBound",
        others=(
            _estimator,
            _by_categorical,
            lambda p, a, s, b, r, e: (
                sum(
                    -(
                        q.sum()
                        + r * (q.sum().item() - b) * m.gather(1, i[:, None]).log().sum()
                        - e * torch.xlogy(m, m).sum()
                    )
                    for q, m, i in zip(p, a, s, strict=True)
                )
                / len(p)
            ),
        ),
    ),
    Task(
        id="6.10",
        name="expected_estimate",
        title="Right on average",
        difficulty=2,
        minutes=8,
        equation="equation 12",
        after="A baseline changes the variance, not the mean",
        reference=enumeration.expected_estimate,
        cases=enumeration.cases,
        mistakes={
            "the places count alike: each estimate comes as often as its place is drawn, so weigh it by alpha": lambda *x: (
                enumeration.estimates(*x).mean(0)
            ),
            "the estimates are summed as they are: each comes as often as its place is drawn, so weigh it by alpha": lambda *x: (
                enumeration.estimates(*x).sum(0)
            ),
            "-alpha is missing: raising e_i lowers the other weights": lambda e, reward, baseline: (
                torch.softmax(e, 0) * (reward - baseline)
            ),
            "the sum goes along the wrong axis: add up the rows, each times its alpha": lambda e, reward, baseline: (
                enumeration.estimates(e, reward, baseline) @ torch.softmax(e, 0)
            ),
            "these are the estimates, place by place: take their mean, with the weights alpha": enumeration.estimates,
        },
        invariants=(_not_all_zero,),
        says="for three baselines the mean of the estimates is the gradient of the expected reward",
        others=(enumeration.by_autograd, enumeration.by_loop),
    ),
    predict(
        "6.11",
        "share",
        enumeration.share_of_variance,
        {
            "a baseline does change the variance: only the mean of the estimates stays": 1.0,
            "the rewards shrink to about a tenth, but the variance goes with their square": (0.07, 0.14),
            "that is the variance with the baseline, or the share in percent: give it as a fraction of the other": (
                0.58,
                0.68,
            ),
            "that is the share that the baseline saves: asked is what is left": (0.9, 0.999),
            "the fraction is upside down: the variance with the baseline stands above the line": (101, 1e9),
        },
        tolerance=0.7,
        title="How much noise does a baseline save?",
        difficulty=2,
        minutes=3,
        equation="section 4.1",
        after="A baseline changes the variance, not the mean",
        says="the variance goes with the square of what is left of the rewards",
    ),
    Task(
        id="6.12",
        name="reinforce_loss",
        kind="bug",
        title="A reward that learns",
        difficulty=3,
        minutes=5,
        equation="equation 12",
        after="`VariationalBound`, line by line",
        reference=enumeration.reinforce_loss,
        start=enumeration.its_own_reward_learns,
        cases=enumeration.samples,
        observe=enumeration.gradients,
        mistakes={
            "now the likelihood itself learns nothing: only its copy in the advantage has to be detached": (
                lambda log_p, log_likelihood, baseline: enumeration.reinforce_loss(
                    log_p, log_likelihood.detach(), baseline
                )
            ),
            "log p(s | a) gets no gradient: it is what the advantage has to teach": lambda log_p, log_likelihood, baseline: (
                enumeration.reinforce_loss(log_p.detach(), log_likelihood, baseline)
            ),
            "log p(s | a) is detached in place of the advantage": lambda log_p, log_likelihood, baseline: (
                enumeration.its_own_reward_learns(log_p.detach(), log_likelihood, baseline)
            ),
            "everything is detached: nothing learns": lambda *x: enumeration.reinforce_loss(*x).detach(),
            "the sum over the samples: equation 12 has their mean": lambda log_p, log_likelihood, baseline: (
                enumeration.reinforce_loss(log_p, log_likelihood, baseline) * len(log_p)
            ),
        },
        says="the gradients at both log-probabilities, with a baseline and without",
        others=(
            lambda log_p, log_likelihood, baseline: (
                -log_likelihood.mean() - ((log_likelihood.detach() - baseline) * log_p).mean()
            ),
        ),
    ),
    explain(
        "6.13",
        "what_the_rows_show",
        right="d",
        wrong={
            "a": "the paper's table says so of its own models; the rows of these two models do not",
            "b": "an interval that contains 0 shows no difference; it does not show that there is none",
            "c": "the intervals are about the photographs; each row is one training run, and another seed moves it too",
        },
        title="Hard against soft, from the table",
        difficulty=1,
        minutes=3,
        equation="section 5.3",
        after="What noise costs",
        says="each interval contains 0, so these two trainings do not settle which kind is better",
    ),
)
EXPLORATIONS = (Exploration("Samples or baselines?", 3, 10, "The table: every baseline, with satlib's own code"),)
