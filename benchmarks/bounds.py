"""Bounds on log p(y|a) and estimators of their gradients, against the sum over every path: a table and docs/bounds.png.

    python benchmarks/bounds.py

Eight images of four places, each with a caption of two words, and the decoder of `estimators.tiny`: 16 paths per caption. All
figures but those of the Gumbel-softmax are sums over everything that can be drawn.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from satcourse.lessons import bounds, posterior
from satcourse.lessons.bounds import Drawn, Estimates
from satcourse.lessons.estimators import Paths, jacobian, path_gradients, paths_of, run_every_path, tiny
from satlib.model.decoder import Decoder

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "bounds.png"
PASSES = 4  # of the decoder for each caption: what the noise of the estimators is compared at
ATTENTION, EXACT = "the attention", "exact posterior"
ELSEWHERE, FITTED = "posterior learned from 64 others", "posterior learned from these 8"


def _set_probability(p: Tensor, gone: Tensor) -> Tensor:
    """Of drawing these k paths without replacement, in any order, after others of total probability `gone`: (S, k), (S,) -> (S,)."""
    if p.shape[1] == 0:
        return torch.ones_like(gone)
    others = [torch.cat([p[:, :i], p[:, i + 1 :]], 1) for i in range(p.shape[1])]
    firsts = zip(p.unbind(1), others, strict=True)
    parts = [first / (1 - gone) * _set_probability(rest, gone + first) for first, rest in firsts]
    return torch.stack(parts).sum(0)


def without_replacement(drawn: Drawn, K: int) -> Estimates:
    """L_1 by K different paths, 2 or more: the unordered-set estimator (Kool et al., 2020, arXiv:2002.06043), with its built-in baseline.

    sum_s p(s) R(S, s) [d log w(s) + (log w(s) - b_s) d log q(s)], where R(S, s) is the set's probability if s came first over
    that of the set S, and b_s = p(s) log w(s) + sum_r p(r) R(S - s, r) log w(r), with the ratios R after s was drawn.
    """
    rows = torch.tensor(list(itertools.combinations(range(len(drawn.log_q)), K)))
    p, rewards = drawn.log_q.detach().exp()[rows], drawn.log_w.detach()[rows]  # (S, K)
    probability = _set_probability(p, torch.zeros(len(p)).to(p))
    gradient = torch.zeros_like(drawn.d_log_q[rows[:, 0]])
    for k in range(K):
        others = [j for j in range(K) if j != k]
        after = _set_probability(p[:, others], p[:, k])  # of the other paths, once path k was drawn
        b = p[:, k] * rewards[:, k]
        for j in others:
            rest = [i for i in others if i != j]
            b = b + p[:, j] * _set_probability(p[:, rest], p[:, k] + p[:, j]) / after * rewards[:, j]
        estimate = drawn.d_log_w[rows[:, k]] + (rewards[:, k] - b).unsqueeze(1) * drawn.d_log_q[rows[:, k]]
        gradient += (p[:, k] * after / probability).unsqueeze(1) * estimate
    return Estimates(probability, gradient)


class Caption(NamedTuple):
    """A caption: a (1, L, D), words (1, C), its paths, and how they are drawn by each proposal."""

    a: Tensor
    words: Tensor
    paths: Paths
    drawn: dict[str, Drawn]


class Row(NamedTuple):
    """A line of the table: the objective () and the estimates of a caption; K passes of the decoder give one estimate."""

    name: str
    K: int
    objective: Callable[[Caption], Tensor]
    estimates: Callable[[Caption], Estimates]


class Figures(NamedTuple):
    """gap: nats. The others are lengths over that of the gradient of log p(y|a).

    own_bias, bias: of the mean's distance from the objective's gradient, and from that of log p(y|a). noise: standard deviation of
    the eight captions' mean gradient at one pass each.
    """

    gap: float
    own_bias: float
    bias: float
    noise: float


def pairs(number: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Images (1, 4, 3) and captions (1, 2); of seed 1000 notebook 06's eight, without their last word."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(number, 4, 3, generator=generator, dtype=torch.double)
    words = torch.randint(0, 5, (number, 3), generator=generator)[:, :2]
    return list(zip(images.split(1), words.split(1), strict=True))


def captions(decoder: Decoder) -> list[Caption]:
    """The eight of the table."""
    learned = {
        ELSEWHERE: posterior.fit(decoder, pairs(64, 2000), steps=300),
        FITTED: posterior.fit(decoder, pairs(8, 1000)),
    }
    found = []
    for a, words in pairs(8, 1000):
        output = run_every_path(decoder, a, words)
        paths = paths_of(output, words)
        gradients = path_gradients(paths, list(decoder.parameters()))
        log_q = {name: q(decoder, output, a, words).detach() for name, q in learned.items()}
        log_q[EXACT] = bounds.posterior(paths).detach()
        drawn = {name: bounds.from_proposal(paths, gradients, each) for name, each in log_q.items()}
        found.append(Caption(a, words, paths, {ATTENTION: bounds.from_attention(paths, gradients), **drawn}))
    return found


def rows(decoder: Decoder, mean_reward: float) -> list[Row]:
    """The lines of the table. mean_reward: where the moving average of the rewards settles."""

    def of(K: int, proposal: str = ATTENTION) -> Callable[[Caption], Tensor]:
        return lambda each: bounds.bound(each.drawn[proposal], K)

    def score(K: int, baseline: float | str, proposal: str = ATTENTION) -> Callable[[Caption], Estimates]:
        return lambda each: bounds.score_function(each.drawn[proposal], K, baseline)

    def several(K: int, vimco: bool) -> Callable[[Caption], Estimates]:
        return lambda each: bounds.multi_sample(each.drawn[ATTENTION], K, vimco)

    def different(each: Caption) -> Estimates:
        return without_replacement(each.drawn[ATTENTION], 4)

    def soft(each: Caption) -> Tensor:
        return bounds.soft_log_p(decoder, each.a, each.words)

    def surely_soft(each: Caption) -> Estimates:
        gradient = jacobian(soft(each).unsqueeze(0), list(decoder.parameters()))
        return Estimates(torch.ones(1, dtype=gradient.dtype), gradient)

    def half_soft(each: Caption) -> Estimates:
        return bounds.mixed(score(1, mean_reward)(each), surely_soft(each).gradient[0])

    def relaxed(each: Caption) -> Estimates:
        return bounds.gumbel(decoder, each.a, each.words, temperature=1.0, draws=4000)

    return [
        Row("L_s, no baseline", 1, of(1), score(1, 0.0)),
        Row("L_s, moving average", 1, of(1), score(1, mean_reward)),
        Row("L_s, leave-one-out", 4, of(1), score(4, "leave-one-out")),
        Row("L_s, without replacement", 4, of(1), different),
        Row("L_s, 0.5 mix, moving average", 1, of(1), half_soft),
        Row("L_s, Gumbel-softmax, temperature 1", 1, of(1), relaxed),
        *(
            Row(f"L_{K}, {'VIMCO' if vimco else 'no baseline'}", K, of(K), several(K, vimco))
            for K in (2, 4)
            for vimco in (False, True)
        ),
        *(Row(f"L_1, {q}", 1, of(1, q), score(1, 0.0, q)) for q in (ELSEWHERE, FITTED, EXACT)),
        Row("soft attention (no bound)", 1, soft, surely_soft),
    ]


def measure(row: Row, eight: list[Caption], weights: list[Tensor]) -> Figures:
    """Of the mean over the captions, with equally many estimates of each."""
    log_p = torch.stack([each.paths.log_likelihood for each in eight]).mean()
    objective = torch.stack([row.objective(each) for each in eight]).mean()
    truth, own = jacobian(torch.stack([log_p, objective]), weights)
    estimates = [row.estimates(each) for each in eight]
    mean = torch.stack([each.mean for each in estimates]).mean(0)
    variance = row.K * torch.stack([each.variance for each in estimates]).sum() / len(eight) ** 2
    lengths = torch.stack([(mean - own).norm(), (mean - truth).norm(), variance.sqrt()]) / truth.norm()
    return Figures((log_p - objective).item(), *lengths.tolist())


def draw(eight: list[Caption], found: dict[str, Figures]) -> None:
    """Left: gaps by the number of samples. Right: error against the gradient of log p(y|a), by passes of the decoder."""
    plt.style.use("satcourse.page")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.7), width_ratios=(1, 1.2), layout="constrained")
    counts = (1, 2, 3, 4, 6, 8)
    for proposal, colour, marker in (
        (ATTENTION, "#0072b2", "o"),
        (ELSEWHERE, "#cc79a7", "D"),
        (FITTED, "#e69f00", "s"),
    ):
        gaps = [
            np.mean([(each.paths.log_likelihood - bounds.bound(each.drawn[proposal], K)).item() for each in eight])
            for K in counts
        ]
        left.loglog(counts, gaps, color=colour, marker=marker, label=proposal)
    left.set(xlabel="samples K of the bound", ylabel="gap to log p(y|a) in nats", xticks=counts, xticklabels=counts)
    left.minorticks_off()
    left.legend(fontsize=8, loc="lower left", bbox_to_anchor=(-0.05, 1))
    passes = np.logspace(0, 5, 26)
    for name, colour, line in (
        ("L_s, no baseline", "#d55e00", ":"),
        ("L_s, leave-one-out", "#009e73", "-."),
        ("L_s, without replacement", "#0072b2", "-"),
        ("L_4, VIMCO", "#e69f00", "--"),
        (f"L_1, {ELSEWHERE}", "#cc79a7", (0, (5, 1, 1, 1, 1, 1))),
        (f"L_1, {EXACT}", "#56b4e9", (0, (8, 2))),
        ("soft attention (no bound)", "#6b7080", (0, (2, 1))),
    ):
        error = np.sqrt(found[name].bias ** 2 + found[name].noise ** 2 / passes)
        right.loglog(passes, error, color=colour, linestyle=line, linewidth=2, label=name)
    right.set(
        xlabel="passes of the decoder for each caption", ylabel="error over length\nof the gradient of log p(y|a)"
    )
    right.legend(fontsize=8, loc="lower left", bbox_to_anchor=(-0.05, 1), ncols=2)
    figure.savefig(PICTURE, dpi=170)


def main() -> None:
    """Measure, print and draw."""
    decoder, *_ = tiny()
    eight = captions(decoder)
    lines = rows(decoder, np.mean([each.paths.bound.item() for each in eight]))
    torch.manual_seed(0)
    found = {row.name: measure(row, eight, list(decoder.parameters())) for row in lines}
    print("| objective, estimator | passes | gap | bias | bias to log p(y\\|a) | noise |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for row in lines:
        gap, own, bias, noise = found[row.name]
        print(f"| {row.name} | {row.K} | {gap:.3f} | {own:.3f} | {bias:.3f} | {noise / PASSES**0.5:.2f} |")
    draw(eight, found)


if __name__ == "__main__":
    main()
