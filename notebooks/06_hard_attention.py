# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 6. Hard attention: one place a word
#
# Soft attention blends all places. Hard attention picks one at random, and reads that one alone. Nothing can be differentiated through a pick, and
# the likelihood of a caption becomes a sum over all the ways of looking. This notebook takes that sum seriously: on a case that is small enough we
# run *every* way of looking, so that each claim about bounds, gradients, bias and variance is held against the truth.
#
# **You will be able to**
#
# - write down the bound $L_s$, say when it is tight, and say exactly what is lost when it is not;
# - derive its gradient, estimate it from samples, and know whether an estimator is unbiased by measuring it;
# - say what a baseline, a reward to come, the entropy term, the 0.5 mix and a Gumbel-softmax each do to bias and to variance;
# - read satlib's `VariationalBound` line by line, and find the places where other implementations differ;
# - use a trained hard model (expected, most probable or sampled looks) and compare its maps with those of a soft one.
#
# **Minutes**: 50 to read, 0.8 to run on two CPU cores. **Memory**: 0.9 GB. **Needs**: notebook 04 for the decoder; nothing to download.

# %%
import inspect
import itertools
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display
from matplotlib.patches import Circle
from torch import nn
from torch.testing import assert_close

from satlib import device, evaluation, ground, plots, shipped
from satlib.attention import AdditiveEnergy, HardAttention
from satlib.captioner import Captioner
from satlib.datasets import scenes
from satlib.decoder import Output, State
from satlib.estimators import EstimatorConfig, every_path, measure, path_gradients, tiny
from satlib.features import Pixels
from satlib.objectives import HardConfig, VariationalBound, doubly_stochastic_penalty, entropy, word_losses
from satlib.text import END

BLUE, RED, GREEN, ORANGE, SKY, PINK = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
CASE = 0  # which tiny case: 0 to 4 have been tried
plt.rcParams |= {"figure.dpi": 85, "axes.spines.top": False, "axes.spines.right": False, "font.size": 10}

# %% [markdown]
# ## A place is drawn, and one vector is read
# <!-- index: equation 8 | p(s_ti = 1 given s_j<t, a) = alpha_ti: the place is drawn from the weights | satlib.attention.HardAttention.draw | tests/test_hard.py::TestLooking::test_samples_follow_alpha -->
# <!-- index: equation 9 | z_t = sum_i s_ti a_i: the vector of one place | satlib.attention.HardAttention | tests/test_hard.py::TestLooking::test_samples_follow_alpha -->
# <!-- index: claim: a weight is a probability or an importance | the same alpha, drawn from (hard) or blended with (soft) | satlib.attention.HardAttention | tests/test_hard.py::TestLooking::test_outside_of_training -->
#
# > **Paper, section 4.1, equations 8 and 9.** Where the model looks for word $t$ is a variable of its own, the one-hot vector $s_t$ over the $L$
# > places. It is random, and the attention weights are its distribution; the context vector is the annotation vector of the chosen place:
# > $$p(s_{ti} = 1 \mid s_{j<t}, a) = \alpha_{ti}, \qquad \hat z_t = \sum_i s_{ti}\, a_i .$$
#
# The weights $\alpha_t$ are computed as before (equations 4 and 5). What changes is how they are read: soft attention takes them for the share of
# each place in a blend, hard attention for the probability that a place is the right one. To draw a place by hand, lay the weights end to end on a
# line from 0 to 1 and throw a dart.
#
# **What do you expect to see?** Five places, each a point in the plane ($D = 2$). Where do 4,000 context vectors lie, and where is their mean?

# %%
torch.manual_seed(0)
a = torch.tensor([[-1.0, 0.2], [-0.3, 1.0], [0.9, 0.7], [0.8, -0.6], [-0.5, -0.9]])  # (L, D)
alpha = torch.tensor([0.45, 0.25, 0.15, 0.10, 0.05])  # (L,)
N = 4000

darts = torch.rand(N, 1)
place = (darts > alpha.cumsum(0)[:-1]).sum(1)  # (N,): how many edges lie below the dart
s = nn.functional.one_hot(place, 5).float()  # (N, L)
z = s @ a  # equation 9: (N, D)

by_satlib = HardAttention(AdditiveEnergy(2, 3, 4)).draw(alpha.expand(N, -1))  # (N,)
four_errors = 4 * (alpha * (1 - alpha) / N).sqrt()
for drawn in (place, by_satlib):
    assert ((drawn.bincount(minlength=5) / N - alpha).abs() < four_errors).all()
soft = alpha @ a  # the expectation of z, equation 13
assert torch.equal(z, a[place])
assert ((z.mean(0) - soft).abs() < 4 * z.std(0) / N**0.5).all()

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.2), layout="constrained")
left.bar(range(1, 6), alpha, color=SKY, label=r"$\alpha_i$")
left.plot(range(1, 6), place.bincount(minlength=5) / N, "D", color="black", label="drawn by hand")
left.plot(range(1, 6), by_satlib.bincount(minlength=5) / N, "x", color=RED, markersize=9, label="drawn by satlib")
left.set(xlabel="place $i$", ylabel="probability, frequency")
left.legend(frameon=False)
right.scatter(*a.T, s=1500 * alpha, color=SKY, edgecolor="black", label="$\\hat z$, hard (area: how often)")
right.plot(*z.mean(0), "x", color=RED, markersize=12, markeredgewidth=2, label="mean of the hard $\\hat z$")
right.plot(*soft, "*", color=BLUE, markersize=11, label="$\\hat z$, soft")
for i, (x, y) in enumerate(a.tolist()):
    right.annotate(f"$a_{i + 1}$", (x + 0.2, y), va="center")
right.set(xlim=(-1.4, 1.4), ylim=(-1.3, 1.4), xticks=[], yticks=[])
right.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)
plt.show()

# %% [markdown]
# A hard context vector is always a real place. The soft one is their mean, a point where there may be nothing at all.
#
# ## The likelihood of a caption whose looks nobody saw
# <!-- index: equation 10 | the bound L_s = sum_s p(s given a) log p(y given s, a) <= log p(y given a) | satlib.estimators.Paths.bound | tests/test_hard.py::TestBound::test_never_above_the_log_likelihood -->
# <!-- index: claim: hard attention maximises a variational lower bound | all paths of a tiny case enumerated; the gap is a Kullback-Leibler divergence | satlib.estimators.every_path | tests/test_hard.py::TestPaths::test_every_path_is_there_once_and_equals_a_walk -->
#
# Training data are captions. Nobody recorded the looks $s = s_1, \dots, s_C$, which we call a *path*. The probability of the caption is therefore a
# sum over all $L^C$ paths. Take two places and a caption of two words: four paths. Make up the numbers.

# %%
# NBVAL_CHECK_OUTPUT
alpha_1 = [0.7, 0.3]  # p(s_1)
alpha_2 = [[0.6, 0.4], [0.1, 0.9]]  # p(s_2 | s_1): where it looks next depends on where it has looked
word_1 = [0.5, 0.1]  # p(y_1 | s_1)
word_2 = [[0.8, 0.05], [0.3, 0.6]]  # p(y_2 | s_1, s_2)

p_path, p_caption = [], []
print("path   p(s|a)  p(y|s,a)  log p(y|s,a)")
for i, j in itertools.product(range(2), repeat=2):
    p_path.append(alpha_1[i] * alpha_2[i][j])
    p_caption.append(word_1[i] * word_2[i][j])
    print(f"{i + 1}, {j + 1}  {p_path[-1]:7.3f} {p_caption[-1]:9.3f} {np.log(p_caption[-1]):13.3f}")
p_path, p_caption = np.array(p_path), np.array(p_caption)
log_likelihood = np.log(np.sum(p_path * p_caption))
bound = np.sum(p_path * np.log(p_caption))
print(f"log p(y|a) = log {np.sum(p_path * p_caption):.4f} = {log_likelihood:.3f};  L_s = {bound:.3f}")
assert bound < log_likelihood

# %% [markdown]
# > **Paper, equation 10.** The objective is a lower bound on the log-likelihood of the caption:
# > $$L_s = \sum_s p(s \mid a) \log p(y \mid s, a) \;\le\; \log \sum_s p(s \mid a)\, p(y \mid s, a) = \log p(y \mid a) .$$
#
# The mean of logarithms is never above the logarithm of the mean, because a logarithm bends downwards (Jensen). In the picture each path is a point
# on the curve, as large as its probability. Both ways of averaging meet at the same $x$; one stays on the curve, the other hangs below it.

# %%
x = np.linspace(0.012, 0.45, 200)
figure, axis = plt.subplots(figsize=(6.2, 3.3), layout="constrained")
axis.plot(x, np.log(x), color="0.5")
axis.scatter(
    p_caption,
    np.log(p_caption),
    s=900 * p_path,
    color=SKY,
    edgecolor="black",
    zorder=3,
    label="a path (area: $p(s|a)$)",
)
mean = np.exp(log_likelihood)
axis.plot(mean, log_likelihood, "^", color=BLUE, markersize=10, zorder=4, label=r"$\log p(y|a)$: on the curve")
axis.plot(mean, bound, "v", color=RED, markersize=10, zorder=4, label="$L_s$: mean height of the paths")
axis.annotate("", (mean, bound + 0.1), (mean, log_likelihood - 0.1), arrowprops={"arrowstyle": "<->"})
axis.annotate("the gap", (mean + 0.008, (bound + log_likelihood) / 2), va="center")
axis.set(xlabel="$p(y|s,a)$ of a path", ylabel=r"$\log p(y|s,a)$")
axis.legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# Now with a real decoder. `tiny()` gives one of some 350 weights, a few annotation vectors and a caption. First with two places and two words, each
# of the four paths walked by hand: at every step the place is put in, not drawn, and we add up two logarithms.

# %%
decoder, a, caption = tiny(CASE)  # a: (1, L, D) with L = 4, D = 3; caption: (1, C) with C = 3
two_places, two_words = a[:, :2], caption[:, :2]


def walk(path):
    """Follow one path by equations 1 to 9 and return log p(s|a) and log p(y|s,a)."""
    state, word, log_p_path, log_p_caption = decoder.initial_state(two_places), torch.tensor([-1]), 0.0, 0.0
    for t, place in enumerate(path):
        e = decoder.attention.energy(decoder.attention.keys(two_places), state.h)
        log_p_path += e.log_softmax(1)[0, place]
        z = torch.sigmoid(decoder.gate(state.h)) * two_places[:, place]
        y = decoder.embed(word)
        gates = decoder.gates_word(y) + decoder.gates_state(state.h) + decoder.gates_context(z)
        i, f, g, o = gates.chunk(4, dim=1)
        c = f.sigmoid() * state.c + i.sigmoid() * g.tanh()
        state, word = State(o.sigmoid() * c.tanh(), c), two_words[:, t]
        log_p_caption += decoder.logits(y, state.h, z).log_softmax(1)[0, word[0]]
    return torch.stack([log_p_path, log_p_caption])


walked = torch.stack([walk(path) for path in itertools.product(range(2), repeat=2)])  # (4, 2)
paths = every_path(decoder, two_places, two_words)
assert_close(walked[:, 0], paths.log_p_path)
assert_close(walked[:, 1], paths.log_p_caption)
assert_close((walked[:, 0].exp() * walked[:, 1]).sum(), paths.bound)
assert_close(walked.sum(1).logsumexp(0), paths.log_likelihood)

# %% [markdown]
# satlib's `every_path` does the same for all paths at once, in one batch. From here on the case has $L = 4$ and $C = 3$: 64 paths.
#
# How large is the gap? Write $p(s \mid y, a)$ for the probability of a path once we know what was said, by Bayes' rule
# $p(s|a)\, p(y|s,a) / p(y|a)$. Then
#
# $$\log p(y|a) - L_s = \sum_s p(s|a) \log \frac{p(y|a)}{p(y|s,a)} = \sum_s p(s|a) \log \frac{p(s|a)}{p(s|y,a)} = \mathrm{KL}\big(p(s|a)\,\big\|\,p(s|y,a)\big) .$$
#
# The gap is the divergence between where the model looks *before* it knows the caption and where it would say that it looked *afterwards*. In the
# language of variational inference: the approximate posterior is the prior itself.

# %%
paths = every_path(decoder, a, caption)
p = paths.log_p_path.exp().detach()  # p(s|a), (64,)
posterior = (paths.log_p_path + paths.log_p_caption - paths.log_likelihood).detach()  # log p(s|y,a), (64,)
kl = (p * (p.log() - posterior)).sum()
assert_close(p.sum().item(), 1.0)
assert_close(paths.log_likelihood - paths.bound, kl)
for seed in range(20):  # twenty other decoders, images and captions
    with torch.no_grad():
        other = every_path(*tiny(seed))
    assert other.bound < other.log_likelihood
print(f"{len(p)} paths: L_s = {paths.bound:.3f}, log p(y|a) = {paths.log_likelihood:.3f}, gap = KL = {kl:.3f}")

# %% [markdown]
# ## When the bound is tight
# <!-- index: claim: the bound is tight where looks are certain or make no difference | the gap against the temperature of alpha and against the weight of the context | satlib.estimators.Paths | tests/test_hard.py::TestBound::test_equal_when_alpha_is_one_hot -->
#
# A divergence is zero when the two distributions are equal. There are two ways to get there:
#
# - $\alpha$ is one-hot: there is only one path, and nothing to learn about it afterwards;
# - the words do not depend on the looks: $p(y|s,a)$ is the same for all paths, so that the caption says nothing about them.
#
# **What do you expect to see?** On the left the energies are divided by a temperature before the softmax, on the right the weights that carry
# $\hat z_t$ to the LSTM and to the words are scaled down. Five different decoders. Must the curves fall all the way?


# %%
def gap(seed, temperature=1.0, sight=1.0):
    decoder, a, caption = tiny(seed)
    with torch.no_grad():
        decoder.attention.energy.energy.weight.div_(temperature)
        decoder.gates_context.weight.mul_(sight)
        decoder.output_context.weight.mul_(sight)
        paths = every_path(decoder, a, caption)
    return (paths.log_likelihood - paths.bound).item()


temperatures, sights = np.logspace(1.5, -3, 19), np.logspace(0.5, -3, 15)
cooled = np.array([[gap(seed, temperature=t) for t in temperatures] for seed in range(5)])  # (5, 19)
blinded = np.array([[gap(seed, sight=w) for w in sights] for seed in range(5)])  # (5, 15)
assert (cooled > -1e-9).all()
assert (blinded > -1e-9).all()
assert (cooled[:, -1] < 1e-6).all()
assert (blinded[:, -1] < 1e-4).all()
assert (cooled[:, 0] > 0.5).all()
powers = [np.polyfit(np.log(sights[-6:]), np.log(blind[-6:]), 1)[0] for blind in blinded]
assert all(1.9 < power < 2.1 for power in powers), powers

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.1), sharey=True, layout="constrained")
styles = list(zip((BLUE, RED, GREEN, ORANGE, PINK), "oDs^v", strict=True))
for (colour, marker), hot, blind in zip(styles, cooled, blinded, strict=True):
    left.loglog(temperatures, hot.clip(1e-9), color=colour, marker=marker, markersize=4)
    right.loglog(sights, blind.clip(1e-9), color=colour, marker=marker, markersize=4)
left.set(xlabel=r"temperature of $\alpha$ (to the right: even)", ylabel="gap in nats", title="the looks become certain")
right.set(xlabel=r"scale of the weights on $\hat z$", title="the looks stop mattering")
left.axvline(1, color="0.7", linestyle=":")
right.axvline(1, color="0.7", linestyle=":")
plt.show()

# %% [markdown]
# Both go to zero (what is below $10^{-9}$ is drawn there), the left one faster than any power of the temperature, the right one with the square of
# the scale. They need not fall all the way: a divergence may grow before it vanishes.
#
# This says something about what hard attention will learn. $L_s$ charges for being undecided about looks *that matter*, which the likelihood itself
# does not. Maximising it pulls the maps together. At the end of this notebook you will see that trained hard maps are sharper than soft ones.
#
# ## Why the gradient cannot pass through the sample
# <!-- index: claim: hard attention needs Monte Carlo gradients | with the sample held, log p(y given s, a) is a staircase in every weight of the attention: its derivative is zero | satlib.attention.HardAttention | tests/test_hard.py::TestPaths::test_weighed_and_added_up_they_are_the_gradient_of_the_bound -->
#
# Draw a path, compute $\log p(y|s,a)$, call `backward()`. What reaches the network that decides where to look?

# %%
output = decoder(a, caption)  # in training mode: a path is drawn
log_p = -word_losses(output.logits, caption).sum()
attention_weights = list(decoder.attention.parameters())
reached = torch.autograd.grad(log_p, attention_weights, allow_unused=True)
reached = [gradient for gradient in reached if gradient is not None and gradient.any()]
assert not reached
print(f"tensors of attention weights reached by back-propagation: {len(reached)} of {len(attention_weights)}")

# %% [markdown]
# Nothing. Autograd is not being clumsy here: the derivative *is* zero. Hold the darts and turn one weight $w$ of the attention. The probabilities
# change smoothly, but the dart falls on the same place until an edge passes under it, and then it falls on another.
#
# **What do you expect to see?** $\log p(y|s,a)$ for three throws of the darts, as $w$ turns; and $L_s$, the mean over all throws.

# %%
decoder, a, caption = tiny(CASE)
knob = decoder.attention.energy.energy.weight  # (1, width)
turns = torch.linspace(-6, 6, 121, dtype=torch.double)
log_p_paths, log_p_captions = [], []
with torch.no_grad():
    for turn in turns:
        knob[0, 0] = turn
        paths = every_path(decoder, a, caption)
        log_p_paths.append(paths.log_p_path)
        log_p_captions.append(paths.log_p_caption)
edges, height = torch.stack(log_p_paths).exp().cumsum(1), log_p_captions[0]  # (121, 64), (64,)
assert_close(torch.stack(log_p_captions), height.expand(121, -1))  # a given path says the same, whatever w is
smooth = (torch.stack(log_p_paths).exp() * height).sum(1)  # L_s as a function of w, (121,)

figure, axis = plt.subplots(figsize=(6.6, 3.2), layout="constrained")
for dart, colour, line in zip((0.12, 0.4, 0.77), (ORANGE, GREEN, PINK), ("-", "--", ":"), strict=True):
    path = (edges < dart).sum(1).clamp(max=63)  # one dart on all 64 paths laid end to end
    stairs = height[path]
    assert (stairs.diff() == 0).double().mean() > 0.7
    axis.step(turns, stairs, where="mid", color=colour, linestyle=line, label=f"one throw, dart at {dart}")
axis.plot(turns, smooth, color=BLUE, linewidth=2.5, label="$L_s$: mean over all throws")
axis.set(xlabel="one weight of the attention network", ylabel=r"$\log p(y|s,a)$")
axis.legend(frameon=False, fontsize=9)
plt.show()
assert (smooth.diff() == 0).sum() == 0

# %% [markdown]
# Each staircase is flat almost everywhere; all of its change is in the jumps, which a derivative does not see. The mean of the staircases is smooth
# and has a slope. The mean of the slopes is not the slope of the mean.
#
# ## The score-function identity
# <!-- index: equation 11 | gradient of L_s: a likelihood term and a score-function term, summed over paths | satlib.estimators.path_gradients | tests/test_hard.py::TestPaths::test_weighed_and_added_up_they_are_the_gradient_of_the_bound -->
#
# So differentiate the sum itself. Two things depend on the weights $W$, the probability of a path and what is said along it; the product rule gives
# two terms. The one trick is $\partial p = p\, \partial \log p$, which turns a sum with $\partial p$ into a mean under $p$ again:
#
# $$\frac{\partial L_s}{\partial W}
# = \sum_s \left[ p(s|a) \frac{\partial \log p(y|s,a)}{\partial W} + \log p(y|s,a)\, \frac{\partial p(s|a)}{\partial W} \right] .$$
#
# > **Paper, equation 11.**
# > $$\frac{\partial L_s}{\partial W} = \sum_s p(s|a) \left[ \frac{\partial \log p(y|s,a)}{\partial W}
# > + \log p(y|s,a)\, \frac{\partial \log p(s|a)}{\partial W} \right] .$$
#
# The first term teaches the decoder to speak well given where it looked. The second, the *score-function* term, makes paths likelier in the measure
# that they were good. With 64 paths we can compute it exactly: `path_gradients` gives both derivatives for every path, and we weigh and add. Three
# independent ways to the same vector: equation 11, autograd through the enumerated sum, and finite differences of $L_s$, which know nothing of any
# of this.

# %%
decoder, a, caption = tiny(CASE)
weights = list(decoder.parameters())
paths = every_path(decoder, a, caption)
likelihood, score = path_gradients(paths, weights)  # (64, W), (64, C, W): for each path, flat over all W weights
p, reward = paths.log_p_path.exp().detach(), paths.log_p_caption.detach()  # (64,), (64,)
path_score = score.sum(1)  # d log p(s|a) / dW, (64, W)

likelihood_term = p @ likelihood
score_term = p @ (reward[:, None] * path_score)
exact = likelihood_term + score_term  # equation 11

by_autograd = torch.cat([g.flatten() for g in torch.autograd.grad(paths.bound, weights, retain_graph=True)])
assert_close(exact, by_autograd)

start, step = nn.utils.parameters_to_vector(weights).detach(), 1e-5
numbers = range(0, len(start), 3)  # every third weight
slopes = []
with torch.no_grad():
    for k in numbers:
        ends = []
        for sign in (1, -1):
            moved = start.clone()
            moved[k] += sign * step
            nn.utils.vector_to_parameters(moved, weights)
            ends.append(every_path(decoder, a, caption).bound)
        slopes.append((ends[0] - ends[1]) / (2 * step))
    nn.utils.vector_to_parameters(start, weights)
assert_close(torch.stack(slopes), exact[list(numbers)], rtol=1e-5, atol=1e-6)
print(f"{len(slopes)} finite differences agree with equation 11; |gradient| = {exact.norm():.2f}")

# %% [markdown]
# **What do you expect to see?** The length of each term, for each part of the decoder. Which parts learn from the score-function term alone? Which
# do not need it at all?

# %%
sizes, first = {}, 0
for name, weight in decoder.named_parameters():
    part = name.split(".")[0]
    sizes.setdefault(part, []).extend(range(first, first + weight.numel()))
    first += weight.numel()
teaches = {part: (likelihood_term[rows].norm().item(), score_term[rows].norm().item()) for part, rows in sizes.items()}
assert teaches["attention"][0] == 0
assert teaches["attention"][1] > 0
for part in ("output", "output_state", "output_context"):
    assert teaches[part][0] > 0
    assert teaches[part][1] == 0

figure, axis = plt.subplots(figsize=(7.4, 3.4), layout="constrained")
rows = np.arange(len(teaches))
axis.barh(rows - 0.2, [each[0] for each in teaches.values()], 0.38, color=BLUE, label="likelihood term")
axis.barh(
    rows + 0.2,
    [each[1] for each in teaches.values()],
    0.38,
    color=ORANGE,
    hatch="//",
    edgecolor="black",
    label="score-function term",
)
axis.set_yticks(rows, teaches)
axis.invert_yaxis()
axis.set(xscale="symlog", xlabel="length of the exact gradient (0 is at the left edge)", xlim=(0, None))
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# The attention network learns from the score-function term alone. The layers behind the last look, which no later choice depends on, learn from the
# likelihood alone. All that lies before a look (the LSTM, the embedding, the initial memory, the gate) gets both. (`initial_h` gets next to nothing
# in this case: its tanh is saturated.)
#
# ## Monte Carlo, or REINFORCE
# <!-- index: equation 12 | the gradient estimated from N sampled paths | satlib.objectives.VariationalBound | tests/test_hard.py::TestEstimators::test_mean_is_the_exact_gradient_of_the_bound -->
# <!-- index: claim: hard attention is equivalent to REINFORCE | exactly so for the attention's weights; the others learn from the likelihood, too | satlib.objectives.VariationalBound | tests/test_hard.py::TestEstimators::test_mean_is_the_exact_gradient_of_the_bound -->
# <!-- index: claim: the reward is the log-likelihood of the sentence under the sampled path | log p(y given s, a) multiplies the score | satlib.objectives.VariationalBound | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
#
# A real caption has $196^{11}$ paths. But equation 11 is a mean under $p(s|a)$, and a mean can be estimated from samples.
#
# > **Paper, equation 12.** Draw $\tilde s^n_t \sim \mathrm{Multinoulli}_L(\{\alpha_i\})$ for $n = 1, \dots, N$ and take
# > $$\frac{\partial L_s}{\partial W} \approx \frac1N \sum_{n=1}^N \left[ \frac{\partial \log p(y|\tilde s^n,a)}{\partial W}
# > + \log p(y|\tilde s^n,a)\, \frac{\partial \log p(\tilde s^n|a)}{\partial W} \right] .$$
#
# Whoever knows reinforcement learning has met this rule as REINFORCE (Williams, 1992):
#
# | reinforcement learning | hard attention |
# | --- | --- |
# | state | $h_{t-1}$ and the image |
# | action | the place $s_t$ |
# | policy | $\alpha_t$ |
# | episode | a caption of $C$ words |
# | reward | $\log p(y \mid \tilde s, a)$, given once, at the end |
#
# The summary "hard attention is REINFORCE" is exact for the attention's weights, as the bars above show. For the rest it is half of the story: in
# reinforcement learning the reward comes from outside, here it is itself computed from $W$, so that it has a gradient of its own, the likelihood
# term.
#
# First, does the decoder really draw paths with probability $p(s|a)$? Then, does the mean of many samples come to the exact gradient, and how fast?
# A sample is a path, and we have the gradient of each of the 64 paths at hand: to draw a million samples it is enough to draw how often each path
# came up.

# %%
torch.manual_seed(0)
draws = 20_000
with torch.no_grad():
    places = decoder(a.expand(draws, -1, -1), caption.expand(draws, -1)).places  # (draws, C)
number = (places * torch.tensor([16, 4, 1])).sum(1)  # which of the 64 paths, in the order of every_path
often = number.bincount(minlength=64) / draws
errors = (often - p).abs() / (p * (1 - p) / draws).sqrt()
assert errors[p > 1e-3].max() < 4.5

samples = likelihood + reward[:, None] * path_score  # (64, W): what equation 12 takes from each path
assert_close(p @ samples, exact)
variance = p @ (samples - exact).square()  # (W,): of one sample, exactly


def draw_means(N, repeats, seed=0):
    """Means of N samples, `repeats` times: (repeats, W)."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        torch.multinomial(p, N, replacement=True, generator=generator).bincount(minlength=64) for _ in range(repeats)
    ]
    return torch.stack(drawn).double() / N @ samples


one_mean, N = draw_means(65_536, 1)[0], 65_536
standard_error = (variance / N).sqrt()
moving = standard_error > 0
assert ((one_mean - exact).abs()[moving] / standard_error[moving]).max() < 5

counts = [4**k for k in range(1, 9)]
off = [((draw_means(N, 50) - exact).norm(dim=1) / exact.norm()).square().mean().sqrt().item() for N in counts]
slope = np.polyfit(np.log(counts), np.log(off), 1)[0]
assert -0.54 < slope < -0.46, slope

figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.3), width_ratios=(1.2, 1), layout="constrained")
shown = torch.tensor(sizes["attention"])
shown = shown[exact[shown].abs().argsort(descending=True)[:12]]
few, N = draw_means(4000, 1)[0], 4000
left.errorbar(
    range(12),
    few[shown],
    2 * (variance[shown] / N).sqrt(),
    fmt="o",
    color=BLUE,
    capsize=3,
    markersize=4,
    label="mean of 4,000 samples, 2 standard errors",
)
left.plot(range(12), exact[shown], "_", color=RED, markersize=13, markeredgewidth=2.5, label="exact")
left.axhline(0, color="0.7", linewidth=0.8)
left.set(xlabel="the twelve attention weights with the largest gradient", ylabel="gradient", xticks=[])
left.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1))
right.loglog(counts, off, "o", color=BLUE, label=f"measured, slope {slope:.2f}")
right.loglog(
    counts,
    (variance.sum() / torch.tensor(counts)).sqrt() / exact.norm(),
    "--",
    color="0.4",
    label=r"$\sigma / \sqrt{N}$",
)
right.set(xlabel="samples N", ylabel="error over length of the gradient")
right.legend(frameon=False)
plt.show()
assert variance.sum().sqrt() > 1.5 * exact.norm()
print(f"one sample is off by {100 * (variance.sum().sqrt() / exact.norm()):.0f} percent of the gradient's length")

# %% [markdown]
# The estimate is right on average, and one sample of it is useless: the error is several times as long as what it estimates. Four times the samples
# halve it, so waiting is expensive. What is needed is a smaller variance.
#
# ## A baseline costs nothing and changes the variance
# <!-- index: section 4.1 | variance reduction: the moving-average baseline b_k = 0.9 b_{k-1} + 0.1 log p(y given s_k, a) | satlib.objectives.VariationalBound | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
# <!-- index: claim: a moving-average baseline reduces variance | the exact variance against b is a parabola; measured for every baseline | satlib.estimators.measure | tests/test_hard.py::TestEstimators::test_every_baseline_has_less_noise_than_none -->
#
# Here $\log p(y|s,a)$ lies around $-29$, whatever the path. So *every* path that is drawn is pushed down hard, the good and the bad, and only the
# difference between pushes means anything. Take a constant $b$ off the reward. It changes nothing on average, because probabilities sum to 1
# whatever the weights are:
#
# $$\sum_s p(s|a)\, b\, \frac{\partial \log p(s|a)}{\partial W} = b\, \frac{\partial}{\partial W} \sum_s p(s|a) = b\, \frac{\partial 1}{\partial W} = 0 .$$
#
# > **Paper, section 4.1.** The baseline is a moving average over the minibatches $k$ of the log-likelihoods seen, with exponential decay,
# > $$b_k = 0.9\, b_{k-1} + 0.1 \log p(y \mid \tilde s_k, a) ,$$
# > and $\log p(y|\tilde s,a) - b$ takes the place of the reward.
#
# The variance, on the other hand, is a parabola in $b$. We need no sampling to draw it.
#
# **What do you expect to see?** Where is $b = 0$ on the parabola, where is the mean reward, and where is the best $b$?


# %%
def noise_of(samples):
    """Standard deviation of one sample over the length of the gradient, exactly: samples (64, W) that have the exact mean."""
    assert_close(p @ samples, exact)  # for any baseline: unbiased
    return ((p @ (samples - exact).square()).sum().sqrt() / exact.norm()).item()


mean_reward = (p @ reward).item()  # = L_s
length = path_score.square().sum(1)
best = (
    (p * (reward * length + (path_score * likelihood).sum(1))).sum() / (p * length).sum()
).item()  # the parabola's foot
constants = np.linspace(2 * mean_reward, 5, 41)
noises = [noise_of(likelihood + (reward - b)[:, None] * path_score) for b in constants]
at = {b: noise_of(likelihood + (reward - b)[:, None] * path_score) for b in (0.0, mean_reward, best)}
assert at[best] <= at[mean_reward] < 1.1 * at[best]
assert at[mean_reward] < 0.6 * at[0.0]

torch.manual_seed(0)
b_k, averages = 0.0, [0.0]
for _ in range(60):
    b_k = 0.9 * b_k + 0.1 * reward[torch.multinomial(p, 1)].item()
    averages.append(b_k)

figure, (left, right) = plt.subplots(1, 2, figsize=(8.8, 3.2), width_ratios=(1.25, 1), layout="constrained")
left.plot(constants, np.square(noises), color=BLUE)
for b, label, marker in ((0.0, "no baseline", "X"), (mean_reward, "mean reward", "o"), (best, "best constant", "v")):
    left.plot(b, at[b] ** 2, marker, color=RED, markersize=9, label=f"{label}, b = {b:.1f}: {at[b] ** 2:.2f}")
left.set(xlabel="baseline $b$", ylabel="variance of one sample")
left.legend(frameon=False, fontsize=9)
right.plot(averages, color=GREEN, label="$b_k$, from 0")
right.axhline(mean_reward, color="0.4", linestyle="--", label="mean reward ($= L_s$)")
right.set(xlabel="minibatch $k$", ylabel="$b_k$")
right.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# The mean reward is nearly as good as the best constant, and the moving average finds it by itself. Two details matter:
#
# - it starts at 0, and after ten minibatches has come two thirds of the way ($1 - 0.9^{10}$): a training begins with hardly any baseline;
# - $b_k$ must be *used before it is updated*. The proof above needs a $b$ that does not depend on the path at hand; one that has just been updated with it does.
#
# ## Which reward teaches which look
# <!-- index: claim: a look is to be rewarded for the words to come only | the products of earlier words' rewards with the look's score have mean zero | satlib.objectives.VariationalBound | tests/test_hard.py::TestTerms::test_reward_to_come -->
#
# In the paper every look of a caption gets the same reward, that of the whole sentence. Yet the look at word 3 cannot have helped word 1. Take the
# score-function term apart, into each word's log-probability times each look's score,
#
# $$\log p(y|s,a)\, \frac{\partial \log p(s|a)}{\partial W} = \sum_{t'} \sum_t \log p(y_{t'} | s_{\le t'}, a)\; \frac{\partial \log p(s_t | s_{<t}, a)}{\partial W} ,$$
#
# and compute the mean and the standard deviation of each of the $C \times C$ products.
#
# **What do you expect to see?** Rows are words, columns are looks; light is large. Where is the mean zero? Is the noise zero there, too?

# %%
word_rewards = paths.log_p_word.detach()  # log p(y_t|...), (64, C)
products = word_rewards[:, :, None, None] * score[:, None, :, :]  # (64, C words, C looks, W)
mean_product = torch.einsum("s,stuw->tuw", p, products)
teach = mean_product.norm(dim=2)  # (C, C)
deviate = torch.einsum("s,stuw->tu", p, (products - mean_product).square()).sqrt()
above = torch.ones(3, 3).triu(1).bool()  # words before the look
assert teach[above].max() < 1e-9 * teach.max()
assert deviate[above].min() > 0.1

figure, axes = plt.subplots(1, 2, figsize=(7.4, 3.1), layout="constrained")
for axis, values, title in zip(
    axes, (teach, deviate), ("mean: what is learnt", "standard deviation: noise"), strict=True
):
    axis.imshow(values, cmap="cividis", vmin=0)
    for (row, column), value in np.ndenumerate(values.numpy()):
        axis.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            color="black" if value > 0.45 * values.max() else "white",
        )
    axis.set(title=title, xlabel="look $t$", ylabel="word $t'$", xticks=range(3), yticks=range(3))
    axis.set_xticklabels(("1", "2", "3"))
    axis.set_yticklabels(("1", "2", "3"))
    axis.spines[:].set_visible(False)
plt.show()

# %% [markdown]
# Above the diagonal, where the word came before the look, there is nothing to learn and plenty of noise. Leave it out: reward look $t$ with
# $\sum_{t' \ge t} \log p(y_{t'} | \cdot)$, the log-likelihood *still to come*. Same mean, less variance. Each $t$ then deserves a baseline of its
# own, since fewer words remain as $t$ grows.
#
# Do not go further and keep the diagonal only. A look does change later words, through the LSTM and through where it looks next; the entries below
# the diagonal are not zero. Rewarding a look with its own word alone is a different gradient:

# %%
to_come = word_rewards.flip(1).cumsum(1).flip(1)  # (64, C)
rewards = {"sentence": word_rewards.sum(1, keepdim=True).expand(-1, 3), "to come": to_come}
exactly = {}
for name, each in rewards.items():
    for label, b in (("no baseline", torch.zeros(3)), ("mean reward", p @ each)):
        exactly[name, label] = noise_of(likelihood + ((each - b)[:, :, None] * score).sum(1))
        print(f"reward {name:9} {label:12} noise {exactly[name, label]:5.2f}")
for label in ("no baseline", "mean reward"):
    assert exactly["to come", label] < 0.97 * exactly["sentence", label]

own_word = p @ (likelihood + ((word_rewards - p @ word_rewards)[:, :, None] * score).sum(1))
away = (own_word - exact)[sizes["attention"]].norm() / exact[sizes["attention"]].norm()
print(f"reward own word only: the mean is off by {100 * away:.0f} percent of the attention's gradient")
assert away > 0.02

# %% [markdown]
# ## The table: every baseline, with satlib's own code
# <!-- index: claim: other samples are a baseline | leave one out: the mean reward of a caption's N - 1 other samples | satlib.objectives.VariationalBound | tests/test_hard.py::TestTerms::test_other_samples -->
#
# Until now we wrote the estimators down ourselves. `satlib.estimators.measure` runs the real decoder with the real `VariationalBound` many times on
# the same case and compares the mean of its gradients with the exact one. Four baselines:
#
# | `baseline` | $b$ |
# | --- | --- |
# | `none` | 0 |
# | `moving-average` | the paper's |
# | `learned` | the moving average and a linear function of $h_{t-1}$, fitted to what it leaves (after Mnih et al., 2014) |
# | `other-samples` | draw $N$ paths of each caption; the mean reward of the $N - 1$ others (after Mnih and Rezende, 2016) |
#
# None of them looks at the place that it is taken off for, so none may bias the estimate. `worst` is how far the mean of the worst weight lies from
# the truth, in its own standard errors (348 weights: up to 4 or so is chance). `noise` is the standard deviation that one sampled path brings, over
# the length of the gradient. Estimators in one group see the same sampled paths.

# %%
plain = EstimatorConfig(expectation=0.0, lambda_e=0.0)
groups = ((1, ("none", "moving-average", "learned")), (4, ("none", "other-samples")))
table = {}
print(f"{'reward':9} {'N':>2} {'baseline':15} {'worst':>6} {'noise':>6}")
for kind, (N, baselines) in itertools.product(("sentence", "to-come"), groups):
    for baseline in baselines:
        config = replace(plain, reward=kind, samples=N, baseline=baseline)
        found = measure(baseline, config, claims=True, draws=80, seed=CASE)
        table[kind, N, baseline] = found.noise * N**0.5  # of one path, so that N = 1 and N = 4 can be compared
        print(f"{kind:9} {N:2} {baseline:15} {found.worst:6.1f} {table[kind, N, baseline]:6.2f}")
        assert found.worst < 5  # unbiased

for kind, (N, (none, *others)) in itertools.product(("sentence", "to-come"), groups):
    for baseline in others:
        assert table[kind, N, baseline] < 0.75 * table[kind, N, none]
for (kind, N, baseline), noise in table.items():
    if kind == "to-come":
        assert noise < table["sentence", N, baseline]
assert 0.8 < table["sentence", 1, "none"] / exactly["sentence", "no baseline"] < 1.25  # the real code against our sum

figure, axis = plt.subplots(figsize=(7.2, 3.1), layout="constrained")
names = [(N, baseline) for N, baselines in groups for baseline in baselines]
for shift, kind, colour, hatch in ((-0.2, "sentence", BLUE, ""), (0.2, "to-come", ORANGE, "//")):
    bars = axis.barh(
        np.arange(5) + shift,
        [table[(kind, *name)] for name in names],
        0.38,
        color=colour,
        hatch=hatch,
        edgecolor="black",
        label=f"reward {kind}",
    )
    axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
axis.set_yticks(range(5), [f"{baseline}, N = {N}" for N, baseline in names])
axis.invert_yaxis()
axis.margins(x=0.1)
axis.set(xlabel="noise: standard deviation of one path over the gradient's length")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# Any baseline is far better than none. Between the three there is little to choose *here*, and that is the fault of the case: it has one caption,
# so that one number, the mean reward, is all that a baseline could know.
#
# ## Baselines earn their keep where captions differ
#
# A minibatch holds short captions and long ones, easy and hard ones, whose log-likelihoods lie tens of nats apart. One moving average for all of
# them is then a poor guess for each. Eight images with a caption each, four paths of each: how large is the *advantage*, reward minus baseline,
# that multiplies the scores?
#
# **What do you expect to see?** Which baseline can tell captions apart?

# %%
generator = torch.Generator().manual_seed(1000)
images = torch.randn(8, 4, 3, generator=generator, dtype=torch.double).repeat_interleave(4, 0)  # (8 N, L, D), N = 4
captions = torch.randint(0, 5, (8, 3), generator=generator).repeat_interleave(4, 0)  # (8 N, C)


def advantage(baseline, kind):
    """Root mean square of reward minus baseline, after the baseline has learnt what it can."""
    torch.manual_seed(0)
    config = replace(plain, baseline=baseline, reward=kind, samples=4)
    estimator = VariationalBound(config, decoder.config.hidden, longest=3).double()
    learner = torch.optim.Adam(estimator.parameters(), 0.1) if baseline == "learned" else None
    for _ in range({"learned": 150, "moving-average": 60}.get(baseline, 0)):
        with torch.no_grad():
            output = decoder(images, captions)
        loss = estimator(output, captions).loss
        if learner is not None:
            learner.zero_grad()
            loss.backward()
            learner.step()
    estimator.eval()
    torch.manual_seed(1)  # the same paths for all
    with torch.no_grad():
        squares = [estimator(decoder(images, captions), captions).advantage.square().mean() for _ in range(40)]
    return torch.stack(squares).mean().sqrt().item()


kinds, baselines = ("sentence", "to-come"), ("none", "moving-average", "learned", "other-samples")
left_over = {(kind, baseline): advantage(baseline, kind) for kind in kinds for baseline in baselines}
for kind in kinds:
    assert left_over[kind, "other-samples"] < left_over[kind, "moving-average"] < 0.7 * left_over[kind, "none"]
    assert left_over[kind, "learned"] < left_over[kind, "moving-average"]

figure, axis = plt.subplots(figsize=(7.2, 2.7), layout="constrained")
for shift, kind, colour, hatch in ((-0.2, "sentence", BLUE, ""), (0.2, "to-come", ORANGE, "//")):
    bars = axis.barh(
        np.arange(4) + shift,
        [left_over[kind, each] for each in baselines],
        0.38,
        color=colour,
        hatch=hatch,
        edgecolor="black",
        label=f"reward {kind}",
    )
    axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
axis.set_yticks(range(4), baselines)
axis.invert_yaxis()
axis.margins(x=0.1)
axis.set(xlabel="what is left of the reward, in nats (root mean square)")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# The other paths of the same caption know how hard that caption is; the learned baseline knows a little, from a state of four units; the moving
# average knows nothing of it. The price of `other-samples` is $N$ passes of the decoder for each caption; the encoder runs once for all of them.
#
# ## What noise costs
# <!-- index: claim: hard attention is less stable to train than soft | the same ascent by the exact gradient, and by samples with and without a baseline | satlib.estimators.every_path | tests/test_hard.py::TestEstimators::test_every_baseline_has_less_noise_than_none -->
#
# Let the attention learn while everything else stays as it is, 100 steps of Adam, eight sampled paths a step: once with the exact gradient, which
# no real model can have, and three times with each of three baselines. No $L_s$ can be higher than that of looking, always, along the one path of
# the highest $\log p(y|s,a)$.


# %%
def learn(baseline, seed, steps=100, lambda_e=0.0):
    """L_s and the entropy of paths at every step, while the attention alone learns: (steps, 2)."""
    decoder, a, caption = tiny(CASE)
    decoder.requires_grad_(False)
    decoder.attention.requires_grad_(True)
    optimiser = torch.optim.Adam(decoder.attention.parameters(), 0.05)
    generator, b, log = torch.Generator().manual_seed(seed), 0.0, []
    for _ in range(steps):
        paths = every_path(decoder, a, caption)
        p, reward = paths.log_p_path.exp(), paths.log_p_caption
        spread = -(p * paths.log_p_path).sum()  # entropy of the path: that of all its looks together
        log.append([(p @ reward).item(), spread.item()])
        if baseline == "exact":
            loss = -(p @ reward) - lambda_e * spread
        else:
            drawn = torch.multinomial(p.detach(), 8, replacement=True, generator=generator)
            R = reward[drawn]
            off = {"none": 0.0, "moving-average": b, "other-samples": (R.sum() - R) / 7}[baseline]
            loss = -((R - off) * paths.log_p_path[drawn]).mean()
            b = 0.9 * b + 0.1 * R.mean().item()  # after it was used
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return np.array(log)


climbs = {"exact": [learn("exact", 0)[:, 0]]}
for baseline in ("other-samples", "moving-average", "none"):
    climbs[baseline] = [learn(baseline, seed)[:, 0] for seed in range(3)]
climbed = {name: np.mean(runs) for name, runs in climbs.items()}  # on average over the steps
rise = climbs["exact"][0][-1] - climbs["exact"][0][0]
print({name: f"{height:.2f}" for name, height in climbed.items()})
assert climbed["exact"] > climbed["other-samples"] > climbed["none"] + 0.03 * rise

figure, axis = plt.subplots(figsize=(7.2, 3.3), layout="constrained")
looks = {"exact": ("black", "-"), "other-samples": (BLUE, "--"), "moving-average": (GREEN, "-."), "none": (RED, ":")}
for name, runs in climbs.items():
    colour, line = looks[name]
    for number, run in enumerate(runs):
        axis.plot(run, color=colour, linestyle=line, linewidth=1.8, label=name if number == 0 else None)
axis.axhline(reward.max(), color="0.6", linewidth=1)
axis.annotate("the best path", (1, reward.max()), va="bottom", color="0.4")
axis.set(xlabel="step", ylabel="$L_s$, exact")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# The direction is right on average in all of them. Without a baseline most of each step is noise. That is what "less stable and more expensive than
# soft attention" comes to: more steps, and some of them downhill.
#
# ## The entropy term
# <!-- index: section 4.1 | the entropy term lambda_e H[s] | satlib.objectives.entropy | tests/test_hard.py::TestTerms::test_entropy_and_movement_by_hand -->
#
# > **Paper, section 4.1.** To bring the variance down further, the entropy $H[s]$ of the looks is added to the objective. The whole learning rule is then
# > $$\frac{\partial L_s}{\partial W} \approx \frac1N \sum_{n=1}^N \left[ \frac{\partial \log p(y|\tilde s^n,a)}{\partial W}
# > + \lambda_r \big(\log p(y|\tilde s^n,a) - b\big) \frac{\partial \log p(\tilde s^n|a)}{\partial W} + \lambda_e \frac{\partial H[\tilde s^n]}{\partial W} \right] ,$$
# > with weights $\lambda_r$ and $\lambda_e$ chosen on held-out data.
#
# What does it do? A policy that has become sure of a place never tries another, and so never learns that another would have been better. The
# entropy term pays for keeping options open. We can even say what it leads to. Of all distributions $q$ over paths, the one with the largest
# $\sum_s q(s) \log p(y|s,a) + \lambda_e H[q]$ is
#
# $$q(s) \propto p(y|s,a)^{1/\lambda_e} :$$
#
# $\lambda_e$ is a temperature. At 0 only the best path is left; at 1, $q$ is the posterior under even looks; when it is large, all paths are alike.
#
# **What do you expect to see?** The same ascent by the exact gradient, with three values of $\lambda_e$.

# %%
spreads = {lambda_e: learn("exact", 0, lambda_e=lambda_e) for lambda_e in (0.0, 0.5, 3.0)}
last = {lambda_e: log[-1] for lambda_e, log in spreads.items()}
assert last[0.0][1] < last[0.5][1] < last[3.0][1]
assert last[0.0][0] > last[3.0][0]

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.9), layout="constrained")
for (lambda_e, log), colour, line in zip(spreads.items(), (BLUE, GREEN, ORANGE), ("-", "--", ":"), strict=True):
    left.plot(log[:, 1], color=colour, linestyle=line, linewidth=2, label=rf"$\lambda_e$ = {lambda_e}")
    right.plot(log[:, 0], color=colour, linestyle=line, linewidth=2)
left.axhline(np.log(64), color="0.6", linewidth=1)
left.annotate("all 64 paths alike", (40, np.log(64)), va="bottom", color="0.4")
left.set(xlabel="step", ylabel="entropy of the path in nats", ylim=(0, 4.8))
right.set(xlabel="step", ylabel="$L_s$")
left.legend(frameon=False)
plt.show()

# %% [markdown]
# What is bought with entropy is paid for in $L_s$: it is a bias, on purpose. The paper wants less variance from it. At satlib's default of
# $\lambda_e = 0.01$, does it move the bias or the noise of an estimate?

# %%
with_entropy = measure("entropy", replace(plain, lambda_e=0.01), claims=False, draws=80, seed=CASE)
print(
    f"noise {with_entropy.noise:.3f} with the entropy term, {table['sentence', 1, 'moving-average']:.3f} without; worst weight {with_entropy.worst:.1f}"
)
assert abs(with_entropy.noise / table["sentence", 1, "moving-average"] - 1) < 0.05
assert with_entropy.worst < 5

# %% [markdown]
# Neither. What it changes is not the noise of a step but where many steps lead.
#
# ## The mix: half of the images take the expectation
# <!-- index: section 4.1 | with probability 0.5 for a given image the sample is replaced by its expectation | satlib.objectives.coins | tests/test_hard.py::TestLooking::test_coins_are_per_image -->
# <!-- index: claim: mixing in the expectation reduces variance | and it is biased: its mean is the gradient of another objective, known exactly | satlib.estimators.measure | tests/test_hard.py::TestEstimators::test_what_claims_no_unbiasedness_is_seen_to_be_biased -->
#
# > **Paper, section 4.1.** With probability 0.5 for a given image, the sampled place is replaced by its expectation: $\tilde s$ becomes $\alpha$, and $\hat z_t = \sum_i \alpha_{ti} a_i$.
#
# For such an image the decoder is a soft one: differentiable all the way, with no score and no noise from sampling. The price is easily computed.
# On average the estimate is no longer the gradient of $L_s$ but that of
#
# $$\tfrac12 L_s + \tfrac12 \log p(y \mid a;\ \hat z = E[\hat z]) ,$$
#
# half hard, half soft. That is a sensible objective, and it is not the bound. We predict the mean and the noise from the enumeration and see
# whether the real estimator agrees.

# %%
soft_output = decoder(a, caption, torch.tensor([True]))  # expected: every look of this image
soft_log_p = -word_losses(soft_output.logits, caption).sum()
soft_gradient = torch.cat([g.flatten() for g in torch.autograd.grad(soft_log_p, weights)])


def off_by(gradient):
    return ((gradient - exact).norm() / exact.norm()).item()


mixed = 0.5 * exact + 0.5 * soft_gradient
hard_variance = at[mean_reward] ** 2  # of a sampled path, with the mean reward as baseline
coin_variance = (
    off_by(soft_gradient) / 2
) ** 2  # of the coin itself: half the way from one gradient to the other, squared
predicted = (0.5 * hard_variance + coin_variance) ** 0.5

found = measure("mix", replace(plain, expectation=0.5), claims=False, draws=80, seed=CASE)
print(
    f"bias:  predicted {off_by(mixed):.3f}, measured {found.bias:.3f} (worst weight {found.worst:.0f} standard errors)"
)
print(f"noise: predicted {predicted:.3f}, measured {found.noise:.3f}; without the mix {at[mean_reward]:.3f}")
assert abs(found.bias - off_by(mixed)) < 0.04
assert 0.8 < found.noise / predicted < 1.2
assert found.worst > 8  # biased beyond doubt
assert found.noise < 0.9 * at[mean_reward]

# %% [markdown]
# ### The official code's variant
# <!-- index: claim: the official code trains a variant of equation 12 | one coin per minibatch, mean per-word reward, a tenth of it, not divided by the batch | satlib.estimators.OfficialBound | tests/test_hard.py::TestTerms::test_official_variant -->
#
# The paper's own Theano code (`capgen.py`) departs from the paper, and those who port it inherit this:
#
# - **one coin per minibatch** decides for all of its images at once;
# - the reward is the **mean** log-probability per word, not the sentence's sum;
# - the score-function term is **divided by 10** and, unlike the likelihood term, **not divided by the minibatch's size** $B$;
# - since the gradient with regard to $\alpha$ is written by hand there, the doubly stochastic penalty on $\alpha$ has no effect in hard mode;
# - with its option `RL_sumCost` off, each look is rewarded with its own word only and without a baseline: the diagonal of the matrix above.
#
# Together, the score-function term has $B / (10\, C)$ times the weight that equation 11 gives it, so that the objective depends on the size of the
# minibatch and on the length of the sentence. `satlib.estimators.OfficialBound` does the same. Its mean can be predicted, too: half of the time the soft
# gradient, otherwise likelihood term and re-weighed score-function term.

# %%
B, C = 64, 3
official = 0.5 * (likelihood_term + 0.1 * B / C * score_term) + 0.5 * soft_gradient
config = replace(plain, official=True, expectation=0.5, lambda_r=0.1)
found = measure("official", config, claims=False, draws=80, rows=B, seed=CASE)
print(
    f"official variant, B = {B}, C = {C}: bias predicted {off_by(official):.2f}, measured {found.bias:.2f}; worst weight {found.worst:.0f}"
)
assert abs(found.bias - off_by(official)) < 0.06
assert found.worst > 8

# %% [markdown]
# ### Gumbel-softmax, for comparison
# <!-- index: claim: a Gumbel-softmax is a modern alternative | straight-through: less noise, and a bias that grows with the temperature | satlib.estimators.GumbelAttention | tests/test_hard.py::TestLooking::test_gumbel_gradient_is_that_of_the_relaxed_sample -->
#
# Adding Gumbel noise to the energies and taking the largest is another way to draw from $\alpha$. The *straight-through* trick (Jang et al., 2017)
# goes forward with the place that was drawn and backward with a softmax of the noisy energies at some temperature, as if the place had been soft.
# It needs no reward, no score, no baseline. It is biased, since the backward pass is of another function.
#
# Bias does not shrink with more data and noise does. So the question is how many captions a step sees. From bias and noise the error of a
# minibatch's gradient is $\sqrt{\text{bias}^2 + \text{noise}^2 / B}$.
#
# **What do you expect to see?** Which lines flatten out, and where do they cross? One coin per minibatch is a line of its own: however large the
# minibatch, its gradient is either hard or soft.

# %% tags=["docs:estimators"]
gumbel = {t: measure("gumbel", replace(plain, gumbel=t), claims=False, draws=80, seed=CASE) for t in (0.3, 1.0, 3.0)}
for temperature, found in gumbel.items():
    print(
        f"Gumbel-softmax, temperature {temperature}: bias {found.bias:.3f}, noise {found.noise:.2f}, worst weight {found.worst:.0f}"
    )
assert gumbel[0.3].noise > gumbel[1.0].noise > gumbel[3.0].noise
assert gumbel[0.3].bias < gumbel[3.0].bias
assert gumbel[1.0].worst > 8

sizes_of_batch = np.logspace(0, 5, 26)
bias = off_by(mixed) ** 2
lines = {
    "score function, no baseline": (at[0.0] ** 2 / sizes_of_batch, RED, ":"),
    "score function, moving average": (hard_variance / sizes_of_batch, BLUE, "-"),
    "0.5 mix, a coin per image": (bias + (0.5 * hard_variance + coin_variance) / sizes_of_batch, GREEN, "--"),
    "0.5 mix, one coin per minibatch": (bias + coin_variance + 0.5 * hard_variance / sizes_of_batch, ORANGE, "-."),
    "Gumbel-softmax, temperature 1": (
        gumbel[1.0].bias ** 2 + gumbel[1.0].noise ** 2 / sizes_of_batch,
        PINK,
        (0, (5, 1, 1, 1, 1, 1)),
    ),
}
ends = {name: squares[-1] for name, (squares, *_) in lines.items()}
assert max(ends["score function, no baseline"], ends["score function, moving average"]) < min(list(ends.values())[2:])
assert ends["0.5 mix, one coin per minibatch"] > 1.5 * ends["0.5 mix, a coin per image"]
assert lines["0.5 mix, a coin per image"][0][0] < lines["score function, moving average"][0][0]

figure, axis = plt.subplots(figsize=(7.4, 3.6), layout="constrained")
for name, (squares, colour, line) in lines.items():
    axis.loglog(sizes_of_batch, np.sqrt(squares), color=colour, linestyle=line, linewidth=2, label=name)
axis.set(xlabel="captions in a minibatch, one path each", ylabel="error over length of the gradient")
axis.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# On the left, where training happens, the biased estimators win; on the right the unbiased ones do, and without end. Neither side is wrong. What is
# wrong is not to know on which one you are.
#
# ## `VariationalBound`, line by line
# <!-- index: section 4.1 | the learning rule with lambda_r, lambda_e and b: each term a line of VariationalBound | satlib.objectives.VariationalBound.forward | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
#
# Here is satlib's estimator, without its docstring.

# %%
print(inspect.getsource(VariationalBound.forward).split('"""')[2].strip("\n"))

# %% [markdown]
# | in the learning rule | in the code |
# | --- | --- |
# | $\log p(y \mid \tilde s, a)$ | `likelihood`, minus the words' losses summed over the caption |
# | $\partial \log p(y \mid \tilde s, a) / \partial W$ | the first `loss`: an optimiser goes down, so every sign is turned |
# | $\log p(\tilde s_t \mid a) = \log \alpha_{t \tilde s_t}$ | `log_p_place`; 0 where the expectation was taken (`sampled` is false there), which takes the score of such an image away |
# | $\log p(y \mid \tilde s, a)$ as a number | `rewards`: `losses.detach()`, since the reward multiplies a gradient and is not to be differentiated itself |
# | $b$ | `baseline`, computed before it is updated; `fit` is the learned one's own regression loss, and 0 for the others |
# | $\lambda_r (\dots - b)\, \partial \log p(\tilde s \mid a) / \partial W$ | `advantage * log_p_place`, summed over the words |
# | $\lambda_e\, \partial H[\tilde s] / \partial W$ | `spread` |
# | $\frac1N \sum_n$, and the mean over the minibatch | `.mean()`: samples are rows |
#
# Now the same by hand, for two captions of three words with two paths each, in loops: no tensors in the sums, no shared code. Not only the loss but
# also its gradient with regard to every $\alpha_{ti}$:
#
# $$\frac{\partial\, \text{loss}}{\partial \alpha_{ti}} = \frac1{BN} \Big[ -\lambda_r \frac{R_t - b_t}{\alpha_{ti}} [\tilde s_t = i] + \lambda_e (\log \alpha_{ti} + 1) \Big] .$$

# %%
log_p_words = [[-1.0, -2.0, -4.0], [-3.0, -1.0, -1.0], [-0.5, -0.2, -2.5], [-1.5, -0.3, -0.4]]  # (B N, C), B = N = 2
looked = [[0, 1, 1], [1, 0, 0], [1, 1, 0], [-1, -1, -1]]  # the last one took the expectation
weight = [
    [[0.2 + 0.1 * row + 0.05 * t, 0.8 - 0.1 * row - 0.05 * t] for t in range(3)] for row in range(4)
]  # alpha: (B N, C, L = 2)


def by_hand(reward, baseline, lambda_r, lambda_e, average=-4.0):
    """The loss, and its gradient with regard to alpha."""
    rows, loss, gradient = 4, 0.0, np.zeros((4, 3, 2))

    def rewarded(row, t):
        return sum(log_p_words[row][t:] if reward == "to-come" else log_p_words[row])

    for row, t in itertools.product(range(rows), range(3)):
        loss -= log_p_words[row][t] / rows
        other = row + 1 if row % 2 == 0 else row - 1  # the other path of the same caption
        b = rewarded(other, t) if baseline == "other-samples" else average
        if looked[row][t] >= 0:
            chosen = weight[row][t][looked[row][t]]
            loss -= lambda_r * (rewarded(row, t) - b) * np.log(chosen) / rows
            gradient[row, t, looked[row][t]] -= lambda_r * (rewarded(row, t) - b) / chosen / rows
        for i in range(2):
            loss += lambda_e * weight[row][t][i] * np.log(weight[row][t][i]) / rows
            gradient[row, t, i] += lambda_e * (np.log(weight[row][t][i]) + 1) / rows
    return loss, gradient


for reward_kind, baseline in (
    ("sentence", "moving-average"),
    ("sentence", "other-samples"),
    ("to-come", "other-samples"),
):
    config = HardConfig(reward=reward_kind, baseline=baseline, samples=2, lambda_r=2.0, lambda_e=0.5)
    estimator = VariationalBound(config, hidden=4, longest=3).double()
    estimator.average.fill_(-4.0)
    spoken = torch.tensor(log_p_words, dtype=torch.double).exp()  # of word 0; word 1 has the rest
    alphas = torch.tensor(weight, dtype=torch.double, requires_grad=True)
    output = Output(
        torch.stack([spoken, 1 - spoken], 2).log(), alphas, torch.ones(4, 3), torch.tensor(looked), torch.zeros(4, 3, 4)
    )
    estimate = estimator(output, torch.zeros(4, 3, dtype=torch.long))
    estimate.loss.backward()
    loss, gradient = by_hand(reward_kind, baseline, lambda_r=2.0, lambda_e=0.5)
    assert_close(estimate.loss.item(), loss)
    assert_close(alphas.grad, torch.tensor(gradient))
    print(f"reward {reward_kind:8}  baseline {baseline:14}  loss {loss:8.4f}: by hand and by satlib")
mean_likelihood = np.mean(np.sum(log_p_words, axis=1))
one_more = VariationalBound(HardConfig(samples=2), hidden=4, longest=3).double()
one_more.average.fill_(-4.0)
_ = one_more(output, torch.zeros(4, 3, dtype=torch.long))
assert_close(one_more.average.item(), 0.9 * -4.0 + 0.1 * mean_likelihood)  # b_k, after it was used

# %% [markdown]
# ## A trained hard model looks at a scene
#
# Two captioners of drawn scenes come with satlib, trained on the same pictures: one with soft attention, one with hard. Let the hard one read a
# caption that a person wrote, twenty times, each time with looks of its own.
#
# **What do you expect to see?** A circle for each place that was chosen, as large as it was often chosen. For which words do the twenty agree?

# %%
chosen_device = device.choose()
models = {name: Captioner.load(shipped.model(f"scenes-{name}"), chosen_device) for name in ("soft", "hard")}
data = scenes.load(0, 0, 100 if chosen_device.type == "cpu" else 500)
reader, examples = Pixels(data), data.split("test")
reader.prepare([example.image_id for example in examples], progress=False)

hard = models["hard"]
scene = scenes.scene(examples[0].image_id)
words = hard.vocabulary.decode(hard.vocabulary.encode(scene.captions[0]))
ids = torch.tensor([[*hard.vocabulary.encode(scene.captions[0]), END]], device=chosen_device)  # (1, C)
torch.manual_seed(0)
with torch.no_grad(), hard.looking("sample"):
    vectors = hard.annotations(reader.read([scene.image_id]).to(chosen_device))  # (1, L, D)
    output = hard.decoder(vectors.expand(20, -1, -1), ids.expand(20, -1))
places, (rows, columns) = output.places.cpu(), hard.encoder.grid  # (20, C)
assert ((places >= 0) & (places < rows * columns)).all()

cell = 224 / columns
panels = min(len(words), 10)
figure, axes = plt.subplots(2, 5, figsize=(8.0, 3.6), layout="constrained")
photo = np.asarray(scene.photo().convert("L"))
for t, axis in enumerate(axes.flat):
    axis.set_axis_off()
    if t >= panels:
        continue
    axis.imshow(photo[::2, ::2], cmap="gray", vmin=-120, vmax=255, extent=(0, 224, 224, 0))
    axis.set_title(words[t], fontsize=10)
    for place, count in zip(*(each.tolist() for each in places[:, t].unique(return_counts=True)), strict=True):
        centre = ((place % columns + 0.5) * cell, (place // columns + 0.5) * cell)
        axis.add_patch(
            Circle(centre, cell * 0.75 * (count / 20) ** 0.5, facecolor=ORANGE, edgecolor="black", alpha=0.85)
        )
plt.show()

# %% [markdown]
# A chosen place need not lie in the middle of its object: its vector sees well beyond its cell, and nobody told the model which place to take.
#
# ## At test time: expected, most probable, or a sample
# <!-- index: claim: at test time hard attention may look in three ways | expected context, most probable place, a sample; the official code takes the expected one | satlib.captioner.Captioner.looking | tests/test_hard.py::TestTraining::test_evaluated_by_each_look -->
#
# The paper does not say what stands for $s_t$ when a caption is generated. There are three candidates: the *expected* context
# $\sum_i \alpha_{ti} a_i$, which is what the official code takes; the vector of the *most probable* place; or a *sample*, as in training.
# `Captioner.looking` (and `satlib evaluate --look`) chooses. Note what each is: the first is deterministic and has been seen in training only
# because of the mix; the second is deterministic and commits to one place; the third gives another caption each time, and $p(y|a)$ of what it says
# would again be a sum over paths.

# %%
captioned = {"soft": evaluation.generate(models["soft"], reader, examples, progress=False)}
for look in ("expected", "probable", "sample"):
    torch.manual_seed(0)
    with hard.looking(look):
        captioned[f"hard, {look}"] = evaluation.generate(hard, reader, examples, progress=False)

figures = {}
print(f"{len(examples)} scenes      exact match  entropy  movement  pointing  still  chance")
for name, captions in captioned.items():
    right = 100 * np.mean(
        [scenes.exact_match(captions[each.image_id].text, scenes.scene(each.image_id)) for each in examples]
    )
    maps, looked_at = evaluation.maps(captions.values())[0], ground.summary(ground.look_up(examples, captions))
    figures[name] = {**maps, **looked_at["all"], "exact match": right, "by class": looked_at["by class"]}
    each = figures[name]
    print(
        f"{name:16} {right:11.0f} % {each['map entropy']:8.2f} {each['map movement']:9.2f} {each['pointing']:8.0f} % "
        f"{each['pointing_still']:4.0f} % {each['pointing_chance']:5.0f} %"
    )
assert all(each["exact match"] > 0 for each in figures.values())

# %% [markdown]
# *Exact match*: both objects, all their attributes and their relation are right. *Entropy* of the maps in nats, that of the end mark included: an
# even map of 49 places has 3.89. *Movement*: how much of the map moves from word to word, 0 to 1. *Pointing*: words whose map has its peak on the
# object that they name; *still* is the same for a map that ignores the word, *chance* for a random place.
#
# ## Soft and hard on the same pictures, word by word
# <!-- index: claim: hard maps are sharper than soft ones | entropy, movement and the pointing game of both, trained on the same scenes | satlib.evaluation.maps | tests/test_hard.py::TestTerms::test_entropy_and_movement_by_hand -->
# <!-- index: section 5.4 | soft above, hard below, the same picture word by word, as in figure 3 | satlib.plots.compare_figure | tests/test_plots.py -->
#
# The paper's figure 3 shows one photograph twice, soft attention above and hard below, both with the same caption. Here is a scene of which our two
# say the same (the shortest such caption). Light is attention; each map is scaled to its own maximum.
#
# **What do you expect to see?** Which of the two lights one place only? Does a sharp map also lie on the right object?

# %%
both = captioned["soft"], captioned["hard, expected"]
same = [each.image_id for each in examples if both[0][each.image_id].words == both[1][each.image_id].words]
image_id = min(same or [examples[0].image_id], key=lambda image_id: len(both[0][image_id].words))
print(both[0][image_id].text)
rows = [
    (name, captions[image_id].words, captions[image_id].alphas[: len(captions[image_id].words)])
    for name, captions in zip(("soft", "hard"), both, strict=True)
]
figure = plots.compare_figure(scenes.scene(image_id).photo(), rows)
figure.set_size_inches(0.62 * figure.get_size_inches())
display(figure)

# %% [markdown]
# One picture proves nothing. All the scenes, then: the words' own maps, a map that ignores the word, and chance.

# %%
soft_all, hard_all = figures["soft"], figures["hard, expected"]
assert hard_all["map entropy"] < soft_all["map entropy"]
for each in (soft_all, hard_all):
    assert each["pointing"] > 3 * each["pointing_chance"]

per_word = {}
for name, captions in zip(("soft", "hard"), both, strict=True):
    per_word[name] = torch.cat([entropy(each.alphas.flatten(1)[: len(each.words)]) for each in captions.values()])

figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.3), layout="constrained")
bins = np.linspace(0, np.log(49), 21)
for name, colour, style in (
    ("soft", BLUE, {"histtype": "step", "linewidth": 2.5}),
    ("hard", ORANGE, {"alpha": 0.75, "hatch": "//", "edgecolor": "black"}),
):
    left.hist(
        per_word[name].numpy(),
        bins,
        color=colour,
        label=name,
        density=True,
        **style,
    )
left.axvline(np.log(49), color="0.5", linestyle="--")
left.annotate("even map ", (np.log(49), 0.5), ha="right", color="0.4")
left.set(xlabel="entropy of a word's map in nats", ylabel="density of words")
left.legend(frameon=False, loc="upper center")
classes = [name for name in soft_all["by class"] if name in hard_all["by class"]]
for shift, name, each, colour, hatch in ((-0.2, "soft", soft_all, BLUE, ""), (0.2, "hard", hard_all, ORANGE, "//")):
    values = [each["pointing"], *(each["by class"][kind]["pointing"] for kind in classes)]
    right.barh(np.arange(len(values)) + shift, values, 0.38, color=colour, hatch=hatch, edgecolor="black", label=name)
chances = [soft_all["pointing_chance"], *(soft_all["by class"][kind]["pointing_chance"] for kind in classes)]
right.plot(chances, range(len(chances)), "|", color="black", markersize=16, markeredgewidth=2.5, label="chance")
right.set_yticks(range(len(chances)), ["all words", *classes])
right.invert_yaxis()
right.set(xlabel="peak on the object that the word names (percent)", xlim=(0, 100))
figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %% [markdown]
# The hard maps are sharper, as the gap of the bound had it. Both models look at what they name, far above chance and above a map that ignores the
# word. Movement says something else than sharpness: a map may be sharp and stay where it is for all the words of one object, as it should.
#
# ## Why the doubly stochastic penalty is off
# <!-- index: claim: the doubly stochastic term is for soft attention | for looks at one place it can never be small, and on alpha it pays for even maps | satlib.objectives.doubly_stochastic_penalty | tests/test_hard.py::test_the_penalty_is_off_unless_asked_for -->
#
# Equation 14 adds $\lambda \sum_i (1 - \sum_t \alpha_{ti})^2$: every place should get about one word's worth of attention in all. With hard
# attention a recipe of satlib leaves it out unless you ask for it. Three reasons, all of them arithmetic:
#
# - What a hard caption looks at is $\sum_t s_{ti}$, a count. With $C$ looks and $L > C$ places, at least $L - C$ places are never visited: the penalty of a path is at least $L - C$, whatever the model does.
# - Put on $\alpha$ instead, it pays for even maps. $C$ one-hot maps on different places cost $L - C$, even maps $L (1 - C/L)^2$, which is less by $C (1 - C/L)$. The bound pulls the maps together, the penalty pulls them apart.
# - To keep looks from collapsing too early there is already a term, $\lambda_e H[s]$, which knows what it is doing.
#
# **What do you expect to see?** 14 words on 49 places, each map with its peak on a place of its own, from even to one-hot. The penalty of the maps,
# and the mean penalty of paths that are drawn from them.

# %%
L, C = 49, 14
torch.manual_seed(0)
peaks = 3.0 * torch.eye(L)[torch.randperm(L)[:C]]  # (C, L)
temperatures = [10, *np.linspace(1.5, 0.35, 14), 0.05]
of_maps, of_paths, evenness = [], [], []
for temperature in temperatures:
    alphas = torch.softmax(peaks / temperature, 1)  # (C, L)
    drawn = nn.functional.one_hot(torch.multinomial(alphas, 2000, replacement=True), L).float()  # (C, 2000, L)
    of_maps.append(doubly_stochastic_penalty(alphas[None]).item())
    of_paths.append(doubly_stochastic_penalty(drawn.transpose(0, 1)).mean().item())
    evenness.append(entropy(alphas).mean().item())
    # E[penalty of a path] = penalty of the maps + sum of the variances alpha (1 - alpha)
    assert abs(of_paths[-1] - (of_maps[-1] + (alphas * (1 - alphas)).sum().item())) < 0.6
assert min(of_paths) > L - C - 0.001
assert abs(of_maps[-1] - (L - C)) < 0.01
assert abs((of_maps[-1] - L * (1 - C / L) ** 2) - C * (1 - C / L)) < 0.01
assert of_maps[0] < of_maps[-1] - 9

figure, axis = plt.subplots(figsize=(6.4, 3.1), layout="constrained")
axis.plot(evenness, of_paths, "o-", color=RED, label="paths drawn from the maps (mean)")
axis.plot(evenness, of_maps, "D--", color=BLUE, label="the maps themselves")
axis.axhline(L - C, color="0.5", linestyle=":", label=f"L - C = {L - C}: the least that any path can have")
axis.set(
    xlabel="entropy of the maps in nats (left: one-hot, right: even)", ylabel="doubly stochastic penalty", ylim=(20, 55)
)
axis.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# Of the maps, the even ones are the cheapest. That is the opposite of what hard attention is for.
#
# ## Try it
#
# Some of these are mistakes that people make. Make them on purpose.
#
# 1. **Turn the sign.** In the cell of equation 12 write `samples = likelihood - reward[:, None] * path_score`. One commit of the official file (`00f7f00`) lacks the minus sign that another (`de281ce`) has. Which assertion stops you?
#    Then do it in `learn` and see where $L_s$ goes.
# 2. **Update the baseline first.** In `learn`, move the line `b = 0.9 * b + ...` above `loss = ...`, with one sampled path in place of eight. By how much does the expected step shrink? (Hint: $R - (0.9\,b + 0.1\,R) = 0.9\,(R - b)$.)
# 3. **Forget `detach`.** In `by_hand` the rewards are numbers. In `learn` all of the decoder but the attention is frozen, so that nothing happens if you forget; unfreeze it (`decoder.requires_grad_(True)`), give all its weights to Adam, and compare `R` with `R.detach()`.
#    Which of the two is the gradient of $L_s$, if the likelihood term is to be added as well?
# 4. **Another case.** Set `CASE = 2`, whose rewards differ by tens of nats between paths, or any other up to 4. Which pictures change, and which conclusions stand? (All assertions do.)
# 5. **A greedy look.** Let the decoder take the most probable place in training instead of drawing (`decoder.attention.draw = lambda alpha: alpha.argmax(1)`) and measure the mean of the estimator. It has no noise. What has it instead?
#
# ## What to remember
#
# - Hard attention draws a place from $\alpha_t$ and reads that one vector. The likelihood becomes a sum over $L^C$ paths; the bound $L_s$ moves the logarithm inside, and the gap is $\mathrm{KL}(p(s|a)\,\|\,p(s|y,a))$: zero when looks are certain or do not matter.
# - No gradient passes through a draw. The score-function identity gives it back as a mean under $p(s|a)$, which samples estimate without bias: REINFORCE with the reward $\log p(y|\tilde s,a)$, and the only teacher that the attention has.
# - Variance is the whole difficulty. Baselines and rewards to come lower it for nothing; other samples of the same caption are the strongest baseline where captions differ.
# - The 0.5 mix, the official variant and the Gumbel-softmax lower it at the price of a bias. Each is the gradient of something else, and with all paths enumerated you can say of what and by how much.
# - Do not believe an estimator: measure it. `satlib estimators` prints the table.
# - Hard maps are sharper than soft ones and, on scenes, lie on what the words name.
#
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio. Show, Attend and Tell: Neural Image Caption Generation with Visual Attention. ICML 2015, section 4.1; code: [kelvinxu/arctic-captions](https://github.com/kelvinxu/arctic-captions).
# - R. J. Williams. Simple statistical gradient-following algorithms for connectionist reinforcement learning. Machine Learning 8, 1992.
# - V. Mnih, N. Heess, A. Graves, K. Kavukcuoglu. Recurrent Models of Visual Attention. NIPS 2014.
# - J. Ba, V. Mnih, K. Kavukcuoglu. Multiple Object Recognition with Visual Attention. ICLR 2015: where the bound comes from.
# - A. Mnih, K. Gregor. Neural Variational Inference and Learning in Belief Networks. ICML 2014: learned baselines.
# - A. Mnih, D. Rezende. Variational Inference for Monte Carlo Objectives. ICML 2016: the other samples as a baseline.
# - E. Jang, S. Gu, B. Poole. Categorical Reparameterization with Gumbel-Softmax. ICLR 2017.
# - J. Zhang, Z. Lin, J. Brandt, X. Shen, S. Sclaroff. Top-down Neural Attention by Excitation Backprop. ECCV 2016: the pointing game.
