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
# # 6. Hard attention: one place per word
#
# Soft attention blends all places. Hard attention draws one place at random and reads only that one. You cannot
# differentiate through a random draw. So how can it learn where to look? We start with a case so small that we can
# enumerate all sequences of places, and check every estimate against the exact answer. Then we build the paper's
# estimator and train hard attention with it, on this page.
#
# **You will be able to**
#
# - write down the bound $L_s$ and say when it is tight;
# - derive its gradient, estimate it from samples, and measure the estimate's bias and variance;
# - say what a baseline, the reward to come, the entropy term, the 0.5 mix and a Gumbel-softmax do to bias and variance;
# - write the paper's training loss in a few lines and train a decoder with it;
# - compare the maps of soft and hard attention word by word.
#
# **Minutes**: 45 to read, 1.3 to run on two CPU cores. **Memory**: 1.6 GB. **Needs**: notebook 04 for the decoder;
# nothing to download.

# %%
import itertools

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display
from msgspec.structs import replace
from torch import nn
from torch.testing import assert_close

from satcourse.lessons.estimators import EstimatorConfig, every_path, measure, path_gradients, tiny
from satlib.data import scenes
from satlib.data.features import Pixels
from satlib.data.text import END
from satlib.evaluation import evaluate, plots
from satlib.evaluation import maps as ground
from satlib.model import shipped
from satlib.model.attention import AdditiveEnergy, HardAttention, entropy
from satlib.model.captioner import Captioner
from satlib.model.decoder import Decoder, State
from satlib.model.objective import HardConfig, VariationalBound, doubly_stochastic_penalty, word_losses

plt.style.use("satcourse.page")
BLUE, RED, GREEN, ORANGE, SKY, PINK = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
CASE = 0  # which tiny case: 0 to 4 have been tried
plt.rcParams |= {"figure.dpi": 85, "axes.spines.top": False, "axes.spines.right": False, "font.size": 10}

# %% [markdown]
# ## A place is drawn, and one vector is read
# <!-- index: equation 8 | p(s_ti = 1 given s_j<t, a) = alpha_ti: the place is drawn from the weights | satlib.model.attention.HardAttention.draw | tests/test_hard.py::TestLooking::test_samples_follow_alpha -->
# <!-- index: equation 9 | z_t = sum_i s_ti a_i: the vector of one place | satlib.model.attention.HardAttention | tests/test_hard.py::TestLooking::test_samples_follow_alpha -->
# <!-- index: claim: a weight is a probability or an importance | the same alpha, drawn from (hard) or blended with (soft) | satlib.model.attention.HardAttention | tests/test_hard.py::TestLooking::test_outside_of_training -->
#
# > **Paper, section 4.1, equations 8 and 9.** The place of word $t$ is a random variable: the one-hot vector $s_t$ over
# > the $L$ places. The attention weights are its distribution. The context vector is the annotation vector of the
# > chosen place:
# > $$p(s_{ti} = 1 \mid s_{j<t}, a) = \alpha_{ti}, \qquad \hat z_t = \sum_i s_{ti}\, a_i .$$
#
# The decoder computes the weights $\alpha_t$ as before. Only their meaning changes: they are now the probabilities of a
# draw. To draw a place by hand, lay the weights end to end on a line from 0 to 1 and throw a dart.
#
# Below are five places; the vector of each is a point in the plane. We make 4,000 draws. **Write down a number**: how
# many different context vectors will you see?

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
left.plot(range(1, 6), place.bincount(minlength=5) / N, "D", color=plots.INK, label="drawn by hand")
left.plot(range(1, 6), by_satlib.bincount(minlength=5) / N, "x", color=RED, markersize=9, label="drawn by satlib")
left.set(xlabel="place $i$", ylabel="probability, frequency")
left.legend(frameon=False)
right.scatter(*a.T, s=1500 * alpha, color=SKY, edgecolor=plots.INK, label="$\\hat z$, hard (area: how often)")
right.plot(*z.mean(0), "x", color=RED, markersize=12, markeredgewidth=2, label="mean of the hard $\\hat z$")
right.plot(*soft, "*", color=BLUE, markersize=11, label="$\\hat z$, soft")
for i, (x, y) in enumerate(a.tolist()):
    right.annotate(f"$a_{i + 1}$", (x + 0.25, y), va="center")
right.set(xlim=(-1.4, 1.4), ylim=(-1.3, 1.4), xticks=[], yticks=[])
right.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), fontsize=9)
plt.show()
assert z.unique(dim=0).shape[0] == 5, "only five different vectors"
print("different context vectors:", len(z.unique(dim=0)))

# %% [markdown]
# <details><summary>Answer</summary>
#
# You see only five different vectors. A hard context vector is the vector of one place. The soft context vector is the
# weighted mean of all five, which need not be the vector of any place.
#
# </details>

# %% [markdown]
# ## A lower bound on the likelihood of a caption
# <!-- index: equation 10 | the bound L_s = sum_s p(s given a) log p(y given s, a) <= log p(y given a) | satcourse.lessons.estimators.Paths.bound | tests/test_hard.py::TestBound::test_never_above_the_log_likelihood -->
# <!-- index: claim: hard attention maximises a variational lower bound | all paths of a tiny case enumerated; the gap is a Kullback-Leibler divergence | satcourse.lessons.estimators.every_path | tests/test_hard.py::TestPaths::test_every_path_is_there_once_and_equals_a_walk -->
#
# The training data contain captions, but not the places $s = s_1, \dots, s_C$ that go with the words. We call one such
# sequence of places a *path*, and each of its steps a *look*. The probability of the caption is a sum over all $L^C$
# paths. Take two places and a caption of two words, with made-up numbers. **Write down a number**: how many paths are
# there?

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
# <details><summary>Answer</summary>
#
# There are 4 paths.
#
# </details>
#
# > **Paper, equation 10.** The objective is a lower bound on the log-likelihood of the caption:
# > $$L_s = \sum_s p(s \mid a) \log p(y \mid s, a) \;\le\; \log \sum_s p(s \mid a)\, p(y \mid s, a) = \log p(y \mid a) .$$
#
# Here the bound is −2.283 and the log-likelihood is −1.650. The logarithm is concave, so the mean of the logarithms
# cannot exceed the logarithm of the mean (Jensen's inequality).

# %%
x = np.linspace(0.012, 0.45, 200)
figure, axis = plt.subplots(figsize=(6.2, 3.3), layout="constrained")
axis.plot(x, np.log(x), color=plots.INK)
axis.scatter(
    p_caption,
    np.log(p_caption),
    s=900 * p_path,
    color=SKY,
    edgecolor=plots.INK,
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
# Now we use a real decoder. `tiny()` gives a small one, a few annotation vectors and a caption. We start with two
# places and two words and follow each path by hand. At every step we fix the place. We add up the log-probabilities of
# the places, and those of the words.

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
# Our result agrees with satlib's `every_path`, which runs all paths in one batch. From here on the case has $L = 4$
# places and $C = 3$ words. **Write down a number**: how many paths is that?
#
# How large is the gap? Write $p(s \mid y, a)$ for the probability of a path once we know the caption. By Bayes' rule it
# is $p(s|a)\, p(y|s,a) / p(y|a)$. Then the gap is a Kullback-Leibler divergence, $\mathrm{KL}$:
#
# $$\log p(y|a) - L_s = \sum_s p(s|a) \log \frac{p(y|a)}{p(y|s,a)} = \sum_s p(s|a) \log \frac{p(s|a)}{p(s|y,a)} = \mathrm{KL}\big(p(s|a)\,\big\|\,p(s|y,a)\big) .$$

# %%
paths = every_path(decoder, a, caption)
p = paths.log_p_path.exp().detach()  # p(s|a), (64,)
posterior = (paths.log_p_path + paths.log_p_caption - paths.log_likelihood).detach()  # log p(s|y,a), (64,)
kl = (p * (p.log() - posterior)).sum()
assert_close(p.sum().item(), 1.0)
assert_close(paths.log_likelihood - paths.bound, kl)
for seed in range(1, 21):  # twenty other decoders, images and captions
    with torch.no_grad():
        other = every_path(*tiny(seed))
    assert other.bound < other.log_likelihood
print(f"{len(p)} paths: L_s = {paths.bound:.3f}, log p(y|a) = {paths.log_likelihood:.3f}, gap = KL = {kl:.3f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# There are 64 paths, and the gap is 1.719 nats. The gap is a divergence between two distributions over paths: one
# before the model knows the caption, the other after.
#
# </details>

# %% [markdown]
# ## When the bound is tight
# <!-- index: claim: the bound is tight where looks are certain or make no difference | the gap against the temperature of alpha and against the weight of the context | satcourse.lessons.estimators.Paths | tests/test_hard.py::TestBound::test_equal_when_alpha_is_one_hot -->
#
# A divergence is zero when its two distributions agree. That happens in two ways:
#
# - $\alpha$ is one-hot: there is only one path, and the caption tells you nothing new about it;
# - the words do not depend on the looks: the caption says nothing about the path.
#
# On the left we divide the energies by a temperature. On the right we scale down the weights that carry $\hat z_t$ to
# the LSTM and to the words. Each line is another decoder. **Write down a number**: on the right, where the scale is
# small, by what factor does the gap shrink when you divide the scale by ten?


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
left.axvline(1, color=plots.INK, linestyle=":")
right.axvline(1, color=plots.INK, linestyle=":")
plt.show()
print(f"slope of the right-hand lines: {min(powers):.2f} to {max(powers):.2f}")
assert max(cooled[:, -1].max(), blinded[:, -1].max()) < 1e-4, "both gaps shrink towards zero"

# %% [markdown]
# <details><summary>Answer</summary>
#
# Both gaps shrink towards zero. (On the left the lines end at $10^{-9}$, because the code cuts them off there.) On the
# right, the slope of the lines at small scales is close to 2: a tenth of the scale leaves a hundredth of the gap. So
# the gap is a price for spreading the probability over looks that matter for the words. Training on the bound may
# therefore sharpen the maps. We will see.
#
# </details>

# %% [markdown]
# ## Why the gradient cannot pass through the sample
# <!-- index: claim: hard attention needs Monte Carlo gradients | with the sample held, log p(y given s, a) is a staircase in every weight of the attention: its derivative is zero | satlib.model.attention.HardAttention | tests/test_hard.py::TestPaths::test_weighed_and_added_up_they_are_the_gradient_of_the_bound -->
#
# Draw a path, compute $\log p(y|s,a)$ and call `backward()`. The attention network has 4 tensors of weights. **Write
# down a number**: how many of them get a gradient?

# %%
output = decoder(a, caption)  # in training mode: a path is drawn
log_p = -word_losses(output.logits, caption).sum()
attention_weights = list(decoder.attention.parameters())
reached = torch.autograd.grad(log_p, attention_weights, allow_unused=True)
reached = [gradient for gradient in reached if gradient is not None and gradient.any()]
assert not reached
print(f"tensors of attention weights reached by back-propagation: {len(reached)} of {len(attention_weights)}")
assert len(reached) == 0, "none of the 4 tensors"

# %% [markdown]
# <details><summary>Answer</summary>
#
# None of the 4 tensors gets one.
#
# </details>
#
# The derivative is zero. Keep the dart fixed and change one weight $w$ of the attention. The probabilities change
# smoothly, but the drawn place stays the same until the border between two places passes the dart. To make the figure,
# we lay all paths end to end on the line from 0 to 1, so that one dart picks a whole path. You see $\log p(y|s,a)$ for three darts,
# and $L_s$, the mean over all darts.

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
# Each staircase is flat between its jumps. The mean of the staircases is smooth and has a slope.
#
# ## The score-function identity
# <!-- index: equation 11 | gradient of L_s: a likelihood term and a score-function term, summed over paths | satcourse.lessons.estimators.path_gradients | tests/test_hard.py::TestPaths::test_weighed_and_added_up_they_are_the_gradient_of_the_bound -->
#
# So we differentiate the sum itself. Two things depend on the weights $W$: the probability of a path, and the
# probability of the caption along it. The product rule gives two terms. In the one that differentiates $p(s|a)$, the
# identity $\partial p = p\, \partial \log p$ makes a mean under $p$ again.
#
# > **Paper, equation 11.**
# > $$\frac{\partial L_s}{\partial W} = \sum_s p(s|a) \left[ \frac{\partial \log p(y|s,a)}{\partial W} + \log p(y|s,a)\, \frac{\partial \log p(s|a)}{\partial W} \right] .$$
#
# The first term is the *likelihood* term. It teaches the decoder to predict the words, given where it looked. The
# second is the *score-function* term. It makes good paths more likely. With so few paths we can compute both, and check
# the sum in two other ways: by autograd through the enumerated sum, and by finite differences of $L_s$.

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
# **Write down a number**: what share of the attention's gradient comes from the score-function term?

# %%
sizes, first = {}, 0
for name, weight in decoder.named_parameters():
    part = name.split(".")[0]
    sizes.setdefault(part, []).extend(range(first, first + weight.numel()))
    first += weight.numel()
teaches = {part: (likelihood_term[rows].norm().item(), score_term[rows].norm().item()) for part, rows in sizes.items()}
assert teaches["attention"][0] == 0, "attention learns from the score-function term alone"
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
    edgecolor=plots.INK,
    label="score-function term",
)
axis.set_yticks(rows, teaches)
axis.invert_yaxis()
axis.set(xscale="symlog", xlabel="length of the exact gradient (0 is at the left edge)", xlim=(0, None))
axis.legend(frameon=False)
plt.show()
share = teaches["attention"][1] / sum(teaches["attention"])
print(f"share of the score-function term in the attention: {100 * share:.0f} percent")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 100 percent: the attention learns from the score-function term alone. The output layers learn from the likelihood term
# alone, because no later draw depends on them. Other parts, such as the LSTM and the embedding, get both. The bars of
# `initial_h` are too short to see.
#
# </details>

# %% [markdown]
# ## Monte Carlo, or REINFORCE
# <!-- index: equation 12 | the gradient estimated from N sampled paths | satlib.model.objective.VariationalBound | tests/test_hard.py::TestEstimators::test_mean_is_the_exact_gradient_of_the_bound -->
# <!-- index: claim: hard attention is equivalent to REINFORCE | exactly so for the attention's weights; the others learn from the likelihood, too | satlib.model.objective.VariationalBound | tests/test_hard.py::TestEstimators::test_mean_is_the_exact_gradient_of_the_bound -->
# <!-- index: claim: the reward is the log-likelihood of the sentence under the sampled path | log p(y given s, a) multiplies the score | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
#
# A caption of eleven words on 196 places has $196^{11}$ paths. So we estimate the mean from samples.
# <!-- source: on 196 places | section 4.3 of the paper: 14 x 14 annotation vectors -->
#
# > **Paper, equation 12.** Draw $\tilde s^n_t \sim \mathrm{Multinoulli}_L(\{\alpha_i\})$ for $n = 1, \dots, N$ and take
# > $$\frac{\partial L_s}{\partial W} \approx \frac1N \sum_{n=1}^N \left[ \frac{\partial \log p(y|\tilde s^n,a)}{\partial W} + \log p(y|\tilde s^n,a)\, \frac{\partial \log p(\tilde s^n|a)}{\partial W} \right] .$$
#
# In reinforcement learning this rule is called REINFORCE (Williams, 1992):
#
# | reinforcement learning | hard attention |
# | --- | --- |
# | state | $h_{t-1}$ and the image |
# | action | the place $s_t$ |
# | policy | $\alpha_t$ |
# | episode | a caption of $C$ words |
# | reward | $\log p(y \mid \tilde s, a)$, given once, at the end |
#
# In reinforcement learning the reward comes from outside. Here it depends on $W$ itself, which is why there is a
# likelihood term.
#
# **Write down a number**: by what percentage of the gradient's length is one sample off?

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
assert -0.54 < slope < -0.46, "four times the samples halve the error"

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
left.axhline(0, color=plots.INK, linewidth=0.8)
left.set(xlabel="the twelve attention weights with the largest gradient", ylabel="gradient", xticks=[])
left.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1))
right.loglog(counts, off, "o", color=BLUE, label=f"measured, slope {slope:.2f}")
right.loglog(
    counts,
    (variance.sum() / torch.tensor(counts)).sqrt() / exact.norm(),
    "--",
    color=plots.INK,
    label=r"$\sigma / \sqrt{N}$",
)
right.set(xlabel="samples N", ylabel="error over length of the gradient")
right.legend(frameon=False)
plt.show()
assert variance.sum().sqrt() > 1.5 * exact.norm(), "the error is longer than the gradient"
print(f"one sample is off by {100 * (variance.sum().sqrt() / exact.norm()):.0f} percent of the gradient's length")

# %% [markdown]
# <details><summary>Answer</summary>
#
# One sample is off by 715 percent: the error is longer than the gradient. The mean is right, but precision is
# expensive: four times the samples halve the error. We need a smaller variance.
#
# </details>

# %% [markdown]
# Move the slider. Each point is an estimate of two weights' gradients from $N$ samples; the cross is the exact value.
# The larger $N$, the closer the cloud is to the cross.

# %%
pair = shown[:2]  # the two attention weights with the largest gradient
spread_of_one = variance[pair].sqrt()


def cloud(axis, N):
    """Draw 200 estimates of two gradients, from N samples each."""
    axis.scatter(*draw_means(N, 200)[:, pair].T, s=9, color=SKY, label="200 estimates")
    axis.plot(*exact[pair], "P", color=RED, markersize=11, label="exact")
    axis.set(title=f"N = {N}", xlabel="one gradient", ylabel="another")
    axis.set_xlim(*(exact[pair[0]] + 2 * spread_of_one[0] * torch.tensor([-1, 1])).tolist())
    axis.set_ylim(*(exact[pair[1]] + 2 * spread_of_one[1] * torch.tensor([-1, 1])).tolist())


def slide(N):
    """One cloud, for the slider."""
    _, axis = plt.subplots(figsize=(4.2, 3.4), layout="constrained")
    cloud(axis, N)
    axis.legend(frameon=False, fontsize=9)
    plt.show()


slider = ipywidgets.SelectionSlider(options=[1, 4, 16, 64, 256, 1024], value=4, description="N")
display(ipywidgets.VBox([slider, ipywidgets.interactive_output(slide, {"N": slider})]))
figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), layout="constrained")
for axis, N in zip(axes, (1, 16, 256), strict=True):
    cloud(axis, N)
plt.show()

# %% [markdown]
# ## A baseline changes the variance, not the mean
# <!-- index: section 4.1 | variance reduction: the moving-average baseline b_k = 0.9 b_{k-1} + 0.1 log p(y given s_k, a) | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
# <!-- index: claim: a moving-average baseline reduces variance | the exact variance against b is a parabola; measured for every baseline | satcourse.lessons.estimators.measure | tests/test_hard.py::TestEstimators::test_every_baseline_has_less_noise_than_none -->
#
# Here $\log p(y|s,a)$ is strongly negative for all paths. So the estimate lowers the probability of every path that we
# draw, good or bad. The remedy: subtract a constant $b$ from the reward. On average this changes nothing, because
# probabilities sum to 1:
#
# $$\sum_s p(s|a)\, b\, \frac{\partial \log p(s|a)}{\partial W} = b\, \frac{\partial}{\partial W} \sum_s p(s|a) = b\, \frac{\partial 1}{\partial W} = 0 .$$
#
# > **Paper, section 4.1.** The baseline is a moving average over the minibatches $k$ of the log-likelihoods seen,
# > $$b_k = 0.9\, b_{k-1} + 0.1 \log p(y \mid \tilde s_k, a) ,$$
# > and $\log p(y|\tilde s,a) - b$ takes the place of the reward.
#
# The variance is a parabola in $b$, and we can compute it without sampling. The *noise* is the standard deviation of
# one sample, divided by the gradient's length; the figure shows its square. **Write down a number**: at which $b$ is
# the parabola's lowest point?


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
assert at[mean_reward] < 1.1 * at[best], "nearly as good as the best constant"
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
left.set(xlabel="baseline $b$", ylabel="variance of one sample (noise squared)")
left.legend(frameon=False, fontsize=9)
right.plot(averages, color=GREEN, label="$b_k$, from 0")
right.axhline(mean_reward, color=plots.INK, linestyle="--", label="mean reward ($= L_s$)")
right.set(xlabel="minibatch $k$", ylabel="$b_k$")
right.legend(frameon=False, fontsize=9)
plt.show()
print(
    f"best b = {best:.1f}, mean reward {mean_reward:.1f}; noise {at[0.0]:.2f} without baseline, {at[mean_reward]:.2f} with it"
)
print(f"the moving average has come {100 * (1 - 0.9**10):.0f} percent of the way after {10} minibatches")

# %% [markdown]
# <details><summary>Answer</summary>
#
# At −28.8. The mean reward, −29.0, is nearly as good as the best constant.
#
# </details>
#
# Two details matter:
#
# - The moving average starts at 0. After 10 minibatches it has come 65 percent of the way to the mean reward.
# - For minibatch $k$ use $b_{k-1}$, and update it afterwards. The proof needs a $b$ that does not depend on the path
#   just drawn.
#
# ## Which reward teaches which look
# <!-- index: claim: a look is to be rewarded for the words to come only | the products of earlier words' rewards with the look's score have mean zero | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_reward_to_come -->
#
# The paper rewards every look with the log-likelihood of the whole sentence. But the look for word 3 comes too late to
# help word 1. Split the score-function term into products, each word's log-probability times each look's score,
#
# $$\log p(y|s,a)\, \frac{\partial \log p(s|a)}{\partial W} = \sum_{t'} \sum_t \log p(y_{t'} | s_{\le t'}, a)\; \frac{\partial \log p(s_t | s_{<t}, a)}{\partial W} ,$$
#
# and compute the mean and the standard deviation of each product. **Write down a number**: of the nine products, how
# many have mean zero?

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
            color="#111111" if value > 0.45 * values.max() else "#eeeeee",
        )
    axis.set(title=title, xlabel="look $t$", ylabel="word $t'$", xticks=range(3), yticks=range(3))
    axis.set_xticklabels(("1", "2", "3"))
    axis.set_yticklabels(("1", "2", "3"))
    axis.spines[:].set_visible(False)
plt.show()
zeros = int((teach < 1e-9 * teach.max()).sum())
print(f"products with mean zero: {zeros} of {teach.numel()}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# 3 of the 9: those above the diagonal, where the word came before the look. They teach nothing and add noise.
#
# </details>
#
# So leave them out, and reward look $t$ with the log-likelihood *still to come*,
# $\sum_{t' \ge t} \log p(y_{t'} | \cdot)$. The mean does not change. But do not go so far as to keep only the diagonal.
# A look also changes later words, through the LSTM and through the later looks.

# %%
to_come = word_rewards.flip(1).cumsum(1).flip(1)  # (64, C)
rewards = {"sentence": word_rewards.sum(1, keepdim=True).expand(-1, 3), "to come": to_come}
exactly = {}
for name, each in rewards.items():
    for label, b in (("no baseline", torch.zeros(3)), ("mean reward", p @ each)):
        exactly[name, label] = noise_of(likelihood + ((each - b)[:, :, None] * score).sum(1))
        print(f"reward {name:9} {label:12} noise {exactly[name, label]:5.2f}")
for label in ("no baseline", "mean reward"):
    assert exactly["to come", label] < 0.97 * exactly["sentence", label], "less noise than the sentence's reward"

own_word = p @ (likelihood + ((word_rewards - p @ word_rewards)[:, :, None] * score).sum(1))
away = (own_word - exact)[sizes["attention"]].norm() / exact[sizes["attention"]].norm()
print(f"reward own word only: the mean is off by {100 * away:.0f} percent of the attention's gradient")
assert away > 0.02  # biased

# %% [markdown]
# On this one caption the reward to come has less noise than the sentence's reward. Rewarding a look with its own word
# alone is biased: the mean is off by 45 percent of the attention's gradient.
#
# ## The table: every baseline, with satlib's own code
# <!-- index: claim: other samples are a baseline | leave one out: the mean reward of a caption's N - 1 other samples | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_leave_one_out -->
#
# `satcourse.lessons.estimators.measure` draws many gradients on the tiny case, with the `VariationalBound` that satlib trains
# with. It compares their mean with the exact gradient. There are four baselines:
#
# | `baseline` | $b$ |
# | --- | --- |
# | `none` | 0 |
# | `moving-average` | the paper's |
# | `learned` | the moving average plus a linear function of $h_{t-1}$ (after Mnih and Gregor, 2014) |
# | `leave-one-out` | draw $N$ paths of each caption; the mean reward of the $N - 1$ others (Kool et al., 2019) |
#
# For each weight we divide the error of the mean gradient by its standard error. In the table, `worst` is the maximum
# of these ratios. A few standard errors can be chance. `noise` is that of one path. **Write down a number**: by what
# factor does the moving average lower the noise of the sentence's reward?

# %%
plain = EstimatorConfig(expectation=0.0, lambda_e=0.0)
groups = ((1, ("none", "moving-average", "learned")), (4, ("none", "leave-one-out")))
table = {}
print(f"{'reward':9} {'N':>2} {'baseline':15} {'worst':>6} {'noise':>6}")
for kind, (N, baselines) in itertools.product(("sentence", "to-come"), groups):
    for baseline in baselines:
        config = replace(plain, reward=kind, samples=N, baseline=baseline)
        found = measure(baseline, config, claims=True, draws=80, seed=CASE)
        table[kind, N, baseline] = found.noise * N**0.5  # of one path, so that N = 1 and N = 4 can be compared
        print(f"{kind:9} {N:2} {baseline:15} {found.worst:6.1f} {table[kind, N, baseline]:6.2f}")
        assert found.worst < 5  # no bias to be seen

for kind, (N, (none, *others)) in itertools.product(("sentence", "to-come"), groups):
    for baseline in others:
        assert table[kind, N, baseline] < 0.75 * table[kind, N, none], (
            "each of the three baselines has less noise than no baseline"
        )
for (kind, N, baseline), noise in table.items():
    if kind == "to-come":
        assert noise < table["sentence", N, baseline]
assert 0.8 < table["sentence", 1, "none"] / exactly["sentence", "no baseline"] < 1.25  # the real code against our sum

print(f"factor: {table['sentence', 1, 'none'] / table['sentence', 1, 'moving-average']:.0f}")

# %% [markdown]
# <details><summary>Answer</summary>
#
# By a factor of about 12. Here each of the three baselines has less noise than no baseline. The three differ little.
# This case has only one caption, so a baseline cannot adapt to easy and hard ones.
#
# </details>

# %% [markdown]
# ## Baselines where captions differ
#
# A real minibatch holds easy captions and hard ones. Take eight images with a caption each, and four paths of each. The
# *advantage*, reward minus baseline, multiplies the scores. We measure its root mean square, in nats. **Write down a
# number**: how many nats does the moving average leave of the sentence's reward?

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


kinds, baselines = ("sentence", "to-come"), ("none", "moving-average", "learned", "leave-one-out")
left_over = {(kind, baseline): advantage(baseline, kind) for kind in kinds for baseline in baselines}
for kind in kinds:
    assert left_over[kind, "leave-one-out"] < left_over[kind, "moving-average"], "less than the moving average leaves"
    assert left_over[kind, "learned"] < left_over[kind, "moving-average"]

for (kind, baseline), nats in left_over.items():
    print(f"reward {kind:8}  baseline {baseline:14}  left {nats:4.1f} nats")
assert left_over["to-come", "moving-average"] > left_over["sentence", "moving-average"], (
    "under the moving average the reward to come leaves more than the sentence's reward"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 6.4 nats. The other samples leave less than the moving average leaves, because they measure how hard this caption is.
# They cost $N$ passes of the decoder for each caption.
#
# Now look at the two rows whose baseline is the moving average. Under the moving average the reward to come leaves more
# than the sentence's reward. So the gain that we saw on one caption may not carry over. Measure before you choose.
#
# </details>

# %% [markdown]
# ## What noise costs
# <!-- index: claim: hard attention is less stable to train than soft | the same ascent by the exact gradient, and by samples with and without a baseline | satcourse.lessons.estimators.every_path | tests/test_hard.py::TestEstimators::test_every_baseline_has_less_noise_than_none -->
#
# We train the attention and freeze everything else: 100 steps of Adam, with eight sampled paths per step. We compare
# the exact gradient, which we can compute only because the case is tiny, with sampled ones: with other samples as the
# baseline, with the moving average, and without a baseline, three seeds each. For each we average $L_s$ over all steps.
# The *gain* is $L_s$ at the end minus $L_s$ at the start, for the exact gradient. **Write down a number**: how far does
# the average without a baseline lie below that of the exact gradient, as a share of the gain?


# %%
def learn(baseline, seed, steps=100, lambda_e=0.0, b=0.0):
    """L_s and the entropy of paths at every step, while the attention alone learns: (steps, 2)."""
    decoder, a, caption = tiny(CASE)
    decoder.requires_grad_(False)
    decoder.attention.requires_grad_(True)
    optimiser = torch.optim.Adam(decoder.attention.parameters(), 0.05)
    generator, log = torch.Generator().manual_seed(seed), []
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
            off = {"none": 0.0, "moving-average": b, "leave-one-out": (R.sum() - R) / 7}[baseline]
            loss = -((R - off) * paths.log_p_path[drawn]).mean()
            b = 0.9 * b + 0.1 * R.mean().item()  # after it was used
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return np.array(log)


climbs = {"exact": [learn("exact", 0)[:, 0]]}
for baseline in ("leave-one-out", "moving-average", "none"):
    climbs[baseline] = [learn(baseline, seed)[:, 0] for seed in range(3)]
climbed = {name: np.mean(runs) for name, runs in climbs.items()}  # on average over the steps
gain = climbs["exact"][0][-1] - climbs["exact"][0][0]
print({name: f"{height:.2f}" for name, height in climbed.items()})
assert climbed["exact"] > climbed["leave-one-out"] > climbed["none"] + 0.03 * gain, (
    "the noisier the gradient, the lower the average"
)
print(f"lost without a baseline: {(climbed['exact'] - climbed['none']) / gain:.2f} of the gain")
prepared = np.mean([learn("moving-average", seed, b=climbs["exact"][0][0])[:, 0] for seed in range(3)])
print(f"moving average that starts at the first mean reward: {prepared:.2f}")
assert prepared > climbed["moving-average"], "if it starts at the first mean reward, it loses less"

figure, axis = plt.subplots(figsize=(7.2, 3.3), layout="constrained")
looks = {"exact": (plots.INK, "-"), "leave-one-out": (BLUE, "--"), "moving-average": (GREEN, "-."), "none": (RED, ":")}
for name, runs in climbs.items():
    colour, line = looks[name]
    for number, run in enumerate(runs):
        axis.plot(run, color=colour, linestyle=line, linewidth=1.8, label=name if number == 0 else None)
axis.axhline(reward.max(), color=plots.INK, linewidth=1)
axis.annotate("the best path", (1, reward.max()), va="bottom", color=plots.INK)
axis.set(xlabel="step", ylabel="$L_s$, exact")
axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# <details><summary>Answer</summary>
#
# Without a baseline, the average is lower by 0.60 of the gain. Compare the exact gradient, other samples and no
# baseline: the noisier the gradient, the lower the average. The moving average starts at 0. If it starts at the first
# mean reward, it loses less. (These are three seeds on one tiny case.)
#
# </details>

# %% [markdown]
# ## The entropy term
# <!-- index: section 4.1 | the entropy term lambda_e H[s] | satlib.model.attention.entropy | tests/test_hard.py::TestTerms::test_entropy_and_movement_by_hand -->
#
# > **Paper, section 4.1.** To reduce the variance further, the entropy $H[s]$ of the looks is added. The whole learning
# > rule is then
# > $$\frac{\partial L_s}{\partial W} \approx \frac1N \sum_{n=1}^N \left[ \frac{\partial \log p(y|\tilde s^n,a)}{\partial W} + \lambda_r \big(\log p(y|\tilde s^n,a) - b\big) \frac{\partial \log p(\tilde s^n|a)}{\partial W} + \lambda_e \frac{\partial H[\tilde s^n]}{\partial W} \right] ,$$
# > with weights $\lambda_r$ and $\lambda_e$ chosen on held-out data.
#
# A model that is sure of one place does not try the others. The entropy term rewards it for spreading its probability.
# Which distribution $q$ over paths maximises $\sum_s q(s) \log p(y|s,a) + \lambda_e H[q]$? Set the derivative to zero,
# with a Lagrange multiplier for $\sum_s q(s) = 1$: it is $q(s) \propto p(y|s,a)^{1/\lambda_e}$. So $\lambda_e$ acts as
# a temperature. Below is the same ascent by the exact gradient, for three values of $\lambda_e$. **Write down a
# number**: an even distribution over all paths has an entropy of 4.16 nats; what does $\lambda_e = 3$ reach?

# %%
spreads = {lambda_e: learn("exact", 0, lambda_e=lambda_e) for lambda_e in (0.0, 0.5, 3.0)}
last = {lambda_e: log[-1] for lambda_e, log in spreads.items()}
assert last[0.0][1] < last[0.5][1] < last[3.0][1], "a larger weight leaves a higher entropy"
assert last[0.0][0] > last[3.0][0], "is lower than without the term"
for lambda_e, (height, spread) in last.items():
    print(f"lambda_e {lambda_e}: entropy {spread:.2f} of {np.log(64):.2f} nats, L_s {height:.2f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.9), layout="constrained")
for (lambda_e, log), colour, line in zip(spreads.items(), (BLUE, GREEN, ORANGE), ("-", "--", ":"), strict=True):
    left.plot(log[:, 1], color=colour, linestyle=line, linewidth=2, label=rf"$\lambda_e$ = {lambda_e}")
    right.plot(log[:, 0], color=colour, linestyle=line, linewidth=2)
left.axhline(np.log(64), color=plots.INK, linewidth=1)
left.annotate("all 64 paths equally likely", (25, np.log(64)), va="bottom", color=plots.INK)
left.set(xlabel="step", ylabel="entropy of the path in nats", ylim=(0, 4.8))
right.set(xlabel="step", ylabel="$L_s$")
left.legend(frameon=False)
plt.show()

# %% [markdown]
# <details><summary>Answer</summary>
#
# 3.76 nats. A larger weight leaves a higher entropy. At the end $L_s$ is lower than without the term: it biases the
# result on purpose.
#
# </details>

# %% [markdown]
# ## The mix: half of the images take the expectation
# <!-- index: section 4.1 | with probability 0.5 for a given image the sample is replaced by its expectation | satlib.model.objective.coins | tests/test_hard.py::TestLooking::test_coins_are_per_image -->
# <!-- index: claim: mixing in the expectation reduces variance | and it is biased: its mean is the gradient of another objective, known exactly | satcourse.lessons.estimators.measure | tests/test_hard.py::TestEstimators::test_what_claims_no_unbiasedness_is_seen_to_be_biased -->
#
# > **Paper, section 4.1.** With probability 0.5 for a given image, the sampled place is replaced by its expectation:
# > $\tilde s$ becomes $\alpha$, and $\hat z_t = \sum_i \alpha_{ti} a_i$.
#
# For such an image the decoder uses soft attention, so there is no noise from sampling. But on average the estimate is
# the gradient of another objective,
#
# $$\tfrac12 L_s + \tfrac12 \log p(y \mid a;\ \hat z = E[\hat z]) .$$
#
# From the enumeration we predict its bias and its noise. **Write down a number**: without the mix the noise is 0.64;
# what is it with the mix?

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
assert found.noise < 0.9 * at[mean_reward], "the mix has less noise than pure sampling"

# %% [markdown]
# <details><summary>Answer</summary>
#
# 0.44 measured, 0.45 predicted: the mix has less noise than pure sampling. Its bias is 0.047 of the gradient's length;
# the prediction is 0.044.
#
# </details>

# %% [markdown]
# ### The official code's variant
# <!-- index: claim: the official code trains a variant of equation 12 | one coin per minibatch, mean per-word reward, a tenth of it, not divided by the batch | satcourse.lessons.estimators.OfficialBound | tests/test_hard.py::TestTerms::test_official_variant -->
#
# The paper's own Theano code (`capgen.py`) differs from the paper in these points:
# <!-- source: divided by 10 | capgen.py of kelvinxu/arctic-captions; satcourse/lessons/estimators.py -->
#
# - **one coin per minibatch** decides for all of its images at once;
# - the reward is the **mean** log-probability of a word, not the sentence's sum;
# - the score-function term is **divided by 10**, and, unlike the likelihood term, **not divided by the minibatch's
#   size** $B$;
# - the gradient with respect to $\alpha$ is written by hand, so the doubly stochastic penalty has no effect in hard
#   mode;
# - with its option `RL_sumCost` off, each look is rewarded only with its own word, without a baseline.
#
# By the second and third points, the score-function term has $B / (10\, C)$ of the weight that equation 11 gives it.
# The objective then depends on the size of the minibatch. `satcourse.lessons.estimators.OfficialBound` does this too, and we can
# predict its bias. **Write down a number**: is it larger or smaller than the mix's, and how large?

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
assert found.bias > off_by(mixed), "a larger bias than the mix"

# %% [markdown]
# <details><summary>Answer</summary>
#
# Here it has a larger bias than the mix: predicted 0.10, measured 0.09.
#
# </details>

# %% [markdown]
# ### Gumbel-softmax, for comparison
# <!-- index: claim: a Gumbel-softmax is a modern alternative | straight-through: less noise, and a bias that grows with the temperature | satcourse.lessons.estimators.GumbelAttention | tests/test_hard.py::TestLooking::test_gumbel_gradient_is_that_of_the_relaxed_sample -->
#
# There is another way to draw from $\alpha$: add Gumbel noise to the energies ($-\log(-\log u)$, with $u$ uniform
# between 0 and 1) and take the place with the largest sum. The *straight-through* trick (Jang et al., 2017) uses the
# drawn place in the forward pass, and a softmax of the noisy energies in the backward pass. It needs no reward, no
# score and no baseline. It is biased, because the backward pass differentiates another function.
# <!-- source: take the place with the largest sum | Jang et al., 2017, section 2 -->
#
# More paths reduce noise, not bias. If the paths are independent, the error of a minibatch's gradient is
# $\sqrt{\text{bias}^2 + \text{noise}^2 / B}$ with $B$ sampled paths. A real minibatch holds easy captions and hard
# ones, so we take the eight images and captions from above, equally many paths of each. **Write down a number**: at 64
# paths, what is the error with the moving average?

# %% tags=["docs:estimators"]
eight = images[::4], captions[::4]
gumbel = {}
for temperature in (0.3, 1.0, 3.0):
    config = replace(plain, gumbel=temperature)
    gumbel[temperature] = measure("gumbel", config, claims=False, draws=80, seed=CASE, minibatch=eight)
    print(
        f"Gumbel-softmax, temperature {temperature}: bias {gumbel[temperature].bias:.3f}, noise {gumbel[temperature].noise:.2f}"
    )
assert gumbel[0.3].noise > gumbel[1.0].noise > gumbel[3.0].noise, "a higher temperature gives less noise"
assert gumbel[0.3].bias < gumbel[1.0].bias < gumbel[3.0].bias, "and a larger bias"

studied = {
    "score function, no baseline": (replace(plain, baseline="none"), RED, ":"),
    "score function, moving average": (plain, BLUE, "-"),
    "score function, other samples": (replace(plain, baseline="leave-one-out", samples=4), GREEN, "-."),
    "0.5 mix, moving average": (replace(plain, expectation=0.5), ORANGE, "--"),
    "Gumbel-softmax, temperature 1": (replace(plain, gumbel=1.0), PINK, (0, (5, 1, 1, 1, 1, 1))),
}
UNBIASED = [name for name in studied if name.startswith("score")]


def errors(name, case, paths):
    """The error of a minibatch's gradient with these numbers of sampled paths, over the gradient's length."""
    config, *_ = studied[name]
    found = measure(name, config, claims=name in UNBIASED, draws=80, seed=case, minibatch=eight)
    assert (found.worst < 5) == (name in UNBIASED)
    bias = 0 if name in UNBIASED else found.bias
    return np.sqrt(
        bias**2 + found.noise**2 * config.samples / paths
    )  # the noise of one path, with N paths of a caption


paths_drawn = np.logspace(0, 5, 26)
curves = {name: errors(name, CASE, paths_drawn) for name in studied}
figure, axis = plt.subplots(figsize=(7.4, 3.6), layout="constrained")
for name, (_, colour, line) in studied.items():
    axis.loglog(paths_drawn, curves[name], color=colour, linestyle=line, linewidth=2, label=name)
axis.set(xlabel="sampled paths in a minibatch of eight captions", ylabel="error over length of the gradient")
axis.legend(frameon=False, fontsize=9)
plt.show()

at_64 = {name: errors(name, CASE, 64) for name in studied}
for name, error in at_64.items():
    print(f"error at 64 paths: {error:.2f}  {name}")
none, average, others, mix, relaxed = studied
print(f"without a baseline, the same error takes {(at_64[none] / at_64[average]) ** 2:.0f} times as many paths")
better = sum(errors(relaxed, case, 64) < errors(average, case, 64) for case in range(5))
print(f"cases in which the Gumbel-softmax beats the moving average at 64 paths: {better} of 5")
overtakes = paths_drawn[np.argmax(curves[average] < curves[relaxed])]
assert 500 < overtakes < 2000, "the moving average overtakes the Gumbel-softmax, but only after some thousand paths"
assert at_64[others] < at_64[average], "The other samples are better"
assert min(at_64, key=at_64.get) == relaxed, "the Gumbel-softmax has the smallest error"
assert max(curves[name][-1] for name in UNBIASED) < min(curves[mix][-1], curves[relaxed][-1]), (
    "at the right end the unbiased estimators have the smallest errors"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# 0.32. One moving average for all captions is a poor baseline where captions differ: an easy caption looks good and
# a hard one bad, whatever the path. The other samples are better, because they know their own caption. And
# at 64 paths the Gumbel-softmax has the smallest error, although it is biased: while noise dominates, a little bias is
# a bargain. That holds against the moving average in all 5 tiny cases. More paths reduce only the noise. So the moving
# average overtakes the Gumbel-softmax, but only after some thousand paths, and at the right end the unbiased estimators
# have the smallest errors. For the Gumbel-softmax a higher temperature gives less noise and a larger bias.
#
# </details>

# %% [markdown]
# ## `VariationalBound`, line by line
# <!-- index: section 4.1 | the learning rule with lambda_r, lambda_e and b: each term a line of VariationalBound | satlib.model.objective.VariationalBound.forward | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
#
# Now build the training loss: the score function with a baseline, and the paper's mix. Its gradient should be minus the
# learning rule. So each term becomes a line of a *surrogate* loss, and we detach the factors that must not be
# differentiated. Each row is a caption with one sampled path. Rows that took the expectation have the place −1 and no
# score.


# %%
def hard_loss(output, captions, baseline, lambda_r, lambda_e):
    """The surrogate loss of a batch, and the new baseline: captions (B, C)."""
    log_p_words = output.logits.log_softmax(2).gather(2, captions[:, :, None])[:, :, 0]  # (B, C)
    log_p_caption = log_p_words.sum(1)  # log p(y|s,a): (B,)
    sampled = output.places >= 0  # false where the expectation was taken
    alpha_drawn = output.alphas.gather(2, output.places.clamp(min=0)[:, :, None])[:, :, 0]
    log_p_path = (alpha_drawn.log() * sampled).sum(1)  # log p(s|a): (B,)
    reward = log_p_caption.detach()  # a number: not to be differentiated
    H = -torch.xlogy(output.alphas, output.alphas).sum((1, 2))  # entropy of the looks: (B,)
    bound = log_p_caption + lambda_r * (reward - baseline) * log_p_path + lambda_e * H
    return -bound.mean(), 0.9 * baseline + 0.1 * reward.mean().item()  # the baseline is updated after its use


# %% [markdown]
# The data are satlib's synthetic scenes. To save time, **we start from the shipped `scenes-soft` weights** instead of
# training from scratch. The encoder stays frozen. The decoder starts with the same weights, but uses hard attention and
# is trained further. A scene's annotation vectors are computed once. The 60 test scenes are held out: no network was
# trained on them.
# <!-- here: the same weights | load_state_dict in the cell below -->
# <!-- source: no network was trained on them | satlib/training/loop.py, train; the training loop of this notebook -->

# %%
soft = Captioner.load(shipped.model("scenes-soft"), "cpu")
data = scenes.load(200, 0, 60)
reader, examples = Pixels(data), data.split("test")


def by_length(split):
    """Annotation vectors (I, L, D) of a split, and its captions by their number of words: image's row, ids."""
    chosen, found = data.split(split), {}
    with torch.no_grad():
        parts = [chosen[k : k + 50] for k in range(0, len(chosen), 50)]
        vectors = torch.cat([soft.annotations(reader.read([each.image_id for each in part])) for part in parts])
    for row, example in enumerate(chosen):
        for reference in example.references:
            ids = [*soft.vocabulary.encode(reference), END]
            found.setdefault(len(ids), []).append((row, ids))
    return vectors, [tuple(torch.tensor(each) for each in zip(*pairs, strict=True)) for pairs in found.values()]


train_vectors, train_captions = by_length("train")
test_vectors, test_captions = by_length("test")
hard = Decoder(replace(soft.decoder.config, attention="hard"), train_vectors.shape[2], len(soft.vocabulary))
hard.load_state_dict(soft.decoder.state_dict())
hard.train()

generator = torch.Generator().manual_seed(0)
shares = torch.tensor([float(len(rows)) for rows, _ in train_captions])


def batch(B):
    """B captions of one length and the vectors of their images: (B, L, D), (B, C)."""
    rows, captions = train_captions[torch.multinomial(shares, 1, generator=generator)]
    picked = torch.randint(len(rows), (B,), generator=generator)
    return train_vectors[rows[picked]], captions[picked]


a_batch, caption_batch = batch(16)
torch.manual_seed(0)
coin = torch.rand(16) < 0.5  # the paper's mix: one coin per image
output = hard(a_batch, caption_batch, coin)
ours, b_next = hard_loss(output, caption_batch, baseline=-11.0, lambda_r=0.1, lambda_e=0.01)
estimator = VariationalBound(HardConfig(lambda_r=0.1, lambda_e=0.01), hard.config.hidden)
estimator.average.fill_(-11.0)
theirs = estimator(output, caption_batch).loss
assert_close(ours, theirs)
gradients = [torch.autograd.grad(loss, list(hard.parameters()), retain_graph=True) for loss in (ours, theirs)]
for mine, satlibs in zip(*gradients, strict=True):
    assert_close(mine, satlibs, rtol=1e-4, atol=1e-6)
assert_close(estimator.average.item(), b_next)
assert abs(ours.item() - theirs.item()) < 1e-3, "the same loss, gradients and next baseline"
print(f"loss {ours:.4f} by hand, {theirs:.4f} by satlib; {len(gradients[0])} gradients agree; next b {b_next:.3f}")

# %% [markdown]
# On one batch, ours and satlib's `VariationalBound` give the same loss, gradients and next baseline.
#
# ## Train hard attention on this page
#
# The loop is short: draw a batch, flip a coin per image, follow the gradient of the surrogate. We set $\lambda_r =
# 0.1$ and $\lambda_e = 0$. So the score-function term has a tenth of the weight that equation 11 gives it: another
# bias, chosen for less noise. Every 50 steps we measure on the held-out scenes. In the output, "under sampled places"
# stands for the mean of $\log p(y|\tilde s,a)$, an estimate of $L_s$. At the start the weights are those of the soft
# model, but the places are sampled. The mean of $\log p(y|\tilde s,a)$ is then −11.20 nats per caption, and the mean
# entropy of a map is 1.64 nats. (An even map has 5.28 nats.) **Write down two numbers**: what will both be at the
# end?


# %%
def held_out():
    """Mean log p(y|s,a) of the held-out captions under sampled places, and the mean entropy of their maps, in nats."""
    hard.eval()
    hard.attention.look = "sample"
    torch.manual_seed(0)
    log_p, spread = [], []
    with torch.no_grad():
        for rows, captions in test_captions:
            output = hard(test_vectors[rows], captions)
            log_p.append(-word_losses(output.logits, captions).sum(1))
            spread.append(entropy(output.alphas).flatten())
    hard.train()
    return torch.cat(log_p).mean().item(), torch.cat(spread).mean().item()


STEPS, B, LAMBDA_R = 300, 32, 0.1
optimiser = torch.optim.Adam(hard.parameters(), 3e-4)
decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
baseline = -11.0  # near the mean reward at the start, so that no steps are lost while it climbs from 0
curve = [(0, *held_out())]
torch.manual_seed(0)
for step in range(1, STEPS + 1):
    a_batch, caption_batch = batch(B)
    coin = torch.rand(B) < 0.5
    loss, baseline = hard_loss(hard(a_batch, caption_batch, coin), caption_batch, baseline, LAMBDA_R, lambda_e=0.0)
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(hard.parameters(), 5.0)
    optimiser.step()
    decay.step()
    if step % 50 == 0:
        with torch.random.fork_rng():
            curve.append((step, *held_out()))

steps, bounds, entropies = (np.array(each) for each in zip(*curve, strict=True))
print(f"held out: log p(y|s,a) under sampled places {bounds[0]:.2f} -> {bounds[-1]:.2f} nats per caption")
even = np.log(test_vectors.shape[1])  # the entropy of an even map
print(f"held out: entropy of a map {entropies[0]:.2f} -> {entropies[-1]:.2f} nats of {even:.2f}")
assert bounds[-1] > bounds[0] + 0.1, "the likelihood under sampled places is better than before"
assert entropies[-1] < entropies[0] - 0.05, "the maps are sharper than before"

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.9), layout="constrained")
left.plot(steps, bounds, "o-", color=BLUE)
left.set(xlabel="step", ylabel="held-out log p(y|s,a)\nunder sampled places, nats")
right.plot(steps, entropies, "D--", color=ORANGE)
right.set(xlabel="step", ylabel="held-out entropy of a map, nats")
plt.show()

# %% [markdown]
# <details><summary>Answer</summary>
#
# From −11.20 to −10.23 nats per caption, and from 1.64 to 1.50 nats per map. On scenes that it did not train on, the
# likelihood under sampled places is better than before, and the maps are sharper than before. Both fit what the bound
# suggests: with sampled places, spreading the probability over looks has a cost.
#
# But this run does not prove that the bound is the reason. There is no control, such as more training with soft
# attention. It is one seed. And we picked the settings of the loop in short trials on these same held-out scenes, so
# the improvement may look larger here than it would on new scenes.
# <!-- here: larger here than it would on new scenes | a caution about selection, not a measurement -->
#
# </details>

# %% [markdown]
# ## Soft and hard on the same pictures, word by word
# <!-- index: claim: hard maps are sharper than soft ones | entropy, movement and the pointing game of both, trained on the same scenes | satlib.evaluation.maps.entropy_and_movement | tests/test_hard.py::TestTerms::test_entropy_and_movement_by_hand -->
# <!-- index: section 5.4 | soft above, hard below, the same picture word by word, as in figure 3 | satlib.evaluation.plots.compare_figure | tests/test_plots.py -->
#
# The paper's figure 3 (figure 2 on arXiv) shows a photograph with soft attention above and hard below, with the same
# words in the same columns. We do the same with the model that we started from and the one that we trained. Both read
# the same caption (teacher forcing), so column by column they look for the same word. The hard model draws no place
# here: it reads the mean context $\sum_i \alpha_{ti} a_i$.
#
# **Write down a number**: the caption has 15 words; for how many of them is the hard map sharper?
# <!-- source: the same words in the same columns | figure 3 of the paper -->
# <!-- here: the same caption (teacher forcing), so column by column they look for the same word | notebook 06, the next cell: one tensor of ids for both models -->

# %%
picture = scenes.scene(examples[0].image_id)
words = soft.vocabulary.decode(soft.vocabulary.encode(picture.captions[0]))
ids = torch.tensor([[*soft.vocabulary.encode(picture.captions[0]), END]])  # (1, C)
hard.eval()
hard.attention.look = "expected"
with torch.no_grad():
    pair_of_maps = [model(test_vectors[:1], ids).alphas[0, : len(words)] for model in (soft.decoder, hard)]  # (C, L)
rows = [
    (name, words, alphas.unflatten(1, soft.encoder.grid))
    for name, alphas in zip(("soft", "hard"), pair_of_maps, strict=True)
]
columns = 8  # soft above hard, and the second half of the caption below the first
figure, axes = plt.subplots(2 * -(-len(words) // columns), columns, figsize=(9.6, 5.4), layout="constrained")
photo = np.asarray(picture.photo())
for axis in axes.flat:
    axis.set_axis_off()
for row, (name, _, alphas) in enumerate(rows):
    for number, (word, alpha_t) in enumerate(zip(words, alphas, strict=True)):
        axis = axes[2 * (number // columns) + row, number % columns]
        light = nn.functional.interpolate(alpha_t[None, None], size=photo.shape[:2], mode="bilinear")[0, 0]
        share = (0.2 + 0.8 * light / light.max()).numpy()[:, :, None]
        axis.imshow((photo * share).astype(np.uint8))
        axis.set_title(f"{name}: {word}", fontsize=9)
plt.show()
sharper = (entropy(pair_of_maps[1]) < entropy(pair_of_maps[0])).sum().item()
print(f"the hard map is sharper for {sharper} of {len(words)} words")

# %% [markdown]
# <details><summary>Answer</summary>
#
# For 14 of the 15 words. Light marks attention; each map is scaled to its own maximum, and the rest is dimmed.
#
# </details>

# %% [markdown]
# One picture is not enough. Here are the entropies of the maps of all held-out captions.

# %%
per_word = {}
with torch.no_grad():
    for name, model in (("soft", soft.decoder), ("hard", hard)):
        found = [entropy(model(test_vectors[rows], captions).alphas).flatten() for rows, captions in test_captions]
        per_word[name] = torch.cat(found)
for name, each in per_word.items():
    print(f"{name}: mean entropy {each.mean():.2f} nats")
assert per_word["hard"].mean() < per_word["soft"].mean(), "hard maps are sharper than soft ones"

figure, axis = plt.subplots(figsize=(5.6, 2.8), layout="constrained")
bins = np.linspace(0, even, 25)
axis.hist(per_word["soft"].numpy(), bins, color=BLUE, label="soft", density=True, histtype="step", linewidth=2.5)
axis.hist(per_word["hard"].numpy(), bins, color=ORANGE, label="hard", density=True, alpha=0.7, hatch="//")
axis.axvline(even, color=plots.INK, linestyle="--", label="an even map")
axis.set(xlabel="entropy of a word's map in nats", ylabel="density of words")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# On average, hard maps are sharper than soft ones. The hard model here is the soft one after more training, so part of
# the difference may come from that.
#
# ## At test time: expected, most probable, or a sample
# <!-- index: claim: at test time hard attention may look in three ways | expected context, most probable place, a sample; the official code takes the expected one | satlib.model.captioner.Captioner.looking | tests/test_hard.py::TestTraining::test_evaluated_by_each_look -->
#
# The paper does not say how $s_t$ is chosen when the model generates a caption. There are three candidates: the
# *expected* context $\sum_i \alpha_{ti} a_i$, which the official code takes; the vector of the *most probable* place;
# or a *sample*, as in training.
# <!-- source: the *most probable* place | satlib/model/attention.py, HardAttention.look -->
#
# You choose with `Captioner.looking`, or with `satlib evaluate --look`. We try all three on the shipped model
# `scenes-hard`, which was trained from scratch with hard attention. *Exact match* means that both objects, their
# attributes and their relation are right. *Pointing* counts the words whose map peaks on the object that they name;
# *chance* is a random place. **Write down a number**: what percentage of the captions is right with each way of
# looking?
# <!-- source: trained from scratch with hard attention | satlib/recipes/scenes-hard.toml -->

# %%
full = Captioner.load(shipped.model("scenes-hard"), "cpu")
captioned = {"soft": evaluate.generate(soft, reader, examples, progress=False)}
for look in ("expected", "probable", "sample"):
    torch.manual_seed(0)
    with full.looking(look):
        captioned[f"hard, {look}"] = evaluate.generate(full, reader, examples, progress=False)

figures = {}
print(f"{len(examples)} scenes        exact match  entropy  pointing  chance")
for name, captions in captioned.items():
    right = [scenes.exact_match(captions[each.image_id].text, scenes.scene(each.image_id)) for each in examples]
    maps, pointed = (
        ground.entropy_and_movement(captions.values())[0],
        ground.summary(ground.measure_all(examples, captions))["all"],
    )
    figures[name] = {**maps, **pointed, "exact match": 100 * np.mean(right)}
    each = figures[name]
    print(
        f"{name:16} {each['exact match']:12.0f} % {each['map entropy']:8.2f} {each['pointing strict']:7.0f} % "
        f"{each['pointing strict_chance']:5.0f} %"
    )
for each in figures.values():
    assert each["pointing strict"] > 10 * each["pointing strict_chance"], "more than ten times chance"
assert figures["hard, expected"]["map entropy"] < figures["soft"]["map entropy"], (
    "its maps are sharper than the soft model's"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# Between 88 and 93 percent. The soft model has 97 percent. With 60 scenes and one training run for each model, such
# small differences do not show which is better. In each row the rate of pointing is more than ten times chance. And the
# full training agrees with ours: its maps are sharper than the soft model's.
#
# </details>

# %% [markdown]
# ## Why the doubly stochastic penalty is off
# <!-- index: claim: the doubly stochastic term is for soft attention | on alpha it pays for even maps; the floor of a hard path is a constant and teaches nothing | satlib.model.objective.doubly_stochastic_penalty | tests/test_hard.py::test_the_penalty_is_off_unless_asked_for -->
#
# Equation 14 adds $\lambda \sum_i (1 - \sum_t \alpha_{ti})^2$: it asks for even attention over all places in the course
# of a caption. In satlib it is off for hard attention unless you ask for it.
# <!-- source: it is off for hard attention unless you ask for it | docs/recipes.md, objective.doubly_stochastic -->
#
# A path of $C$ looks leaves at least $L - C$ places unvisited, so its penalty is at least $L - C$. But this is not the
# reason. As notebook 05 showed, a constant floor has no gradient, so it does not affect training. The reason is this:
# if you apply the penalty to $\alpha$, and the picture has more places than the caption has words, it punishes one-hot
# maps. Their sum cannot be even over all places, so the maps have to spread, while the bound favours sharp ones. Take
# 14 words on 49 places. Each map has its peak on a place of its own, and we sharpen all maps together, step by step,
# from almost even to one-hot. **Write down a number**: how much does the penalty of the maps rise, from even to
# one-hot?
# <!-- here: more places than the caption has words | the 14 words on 49 places of the cell below -->

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
assert of_maps[0] < of_maps[-1] - 9, "of these maps the even ones have the lowest penalty"
assert of_maps[0] == min(of_maps)
assert of_paths[0] > of_paths[-1] + 2, "even maps have a higher mean penalty than one-hot maps"
print(
    f"penalty of even maps {of_maps[0]:.1f}, of one-hot maps {of_maps[-1]:.1f}, difference {of_maps[-1] - of_maps[0]:.1f}"
)

figure, axis = plt.subplots(figsize=(6.4, 3.1), layout="constrained")
axis.plot(evenness, of_paths, "o-", color=RED, label="paths drawn from the maps (mean)")
axis.plot(evenness, of_maps, "D--", color=BLUE, label="the maps themselves")
axis.axhline(L - C, color=plots.INK, linestyle=":", label=f"L - C = {L - C}: a constant floor")
axis.set(
    xlabel="entropy of the maps in nats (left: one-hot, right: even)", ylabel="doubly stochastic penalty", ylim=(20, 55)
)
axis.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# <details><summary>Answer</summary>
#
# By 10.0. Even maps cost $L (1 - C/L)^2$, one-hot maps on different places $L - C$, and the difference is $C (1 - C/L)$.
# So of these maps the even ones have the lowest penalty. For the paths drawn from them it is the opposite: even maps have
# a higher mean penalty than one-hot maps. If you want to keep the looks from settling on one place too early, use the
# entropy term.
#
# </details>
#
# ## Try it
#
# 1. **Flip the sign.** In the cell of equation 12 write `samples = likelihood - reward[:, None] * path_score`. Which
#    assertion stops you? (The official file minimises, so there the same slip is a missing minus sign: commit `00f7f00`
#    lacks the minus sign, and `de281ce` has it.)
# 2. **Update the baseline first.** Let the baseline include the path just drawn: `b_new = 0.9 * mean_reward + 0.1 *
#    reward`. Compare the length of `p @ ((reward - b_new)[:, None] * path_score)` with that of `score_term`. By how
#    much does the expected gradient shrink, and why? (Hint: $R - (0.9\,b + 0.1\,R) = 0.9\,(R - b)$.) Do this right
#    below the figure with the parabola.
# 3. **Forget `detach`.** In `hard_loss` write `reward = log_p_caption`. Run this cell and the next. Which assertion
#    stops you? What is now the gradient's extra term?
# 4. **Another case.** Set `CASE` to another number up to 4 and run the notebook up to the Gumbel-softmax. Where an
#    assertion stops you, go on with the next cell. Which conclusions depend on the case?
# 5. **No mix.** In the training loop write `coin = torch.zeros(B, dtype=torch.bool)`. Run the cell that makes `hard`
#    again first, so that training starts from the soft weights. Do the maps get even sharper? What happens to the curve
#    of the likelihood?
#
# ## What to remember
#
# - Hard attention draws a place from $\alpha_t$ and reads that one vector. $L_s$ is a lower bound; the gap is
#   $\mathrm{KL}(p(s|a)\,\|\,p(s|y,a))$.
# - No gradient passes through a draw. The score-function identity turns the gradient into a mean, which samples
#   estimate without bias.
# - Variance is the difficulty. A good baseline that does not depend on the drawn place lowers it without bias. The
#   other samples of a caption know how hard it is; a moving average over all captions does not.
# - The mix, the official variant and the Gumbel-softmax are biased. Whether they are worth it depends on the size
#   of the batch: measure it with `satcourse.lessons.estimators`.
# - On scenes, in both of our comparisons, hard maps are sharper than soft ones.
#
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio. Show, Attend and Tell: Neural
#   Image Caption Generation with Visual Attention. ICML 2015, section 4.1; code:
#   [kelvinxu/arctic-captions](https://github.com/kelvinxu/arctic-captions).
# - R. J. Williams. Simple statistical gradient-following algorithms for connectionist reinforcement learning. Machine
#   Learning 8, 1992.
# - J. Ba, V. Mnih, K. Kavukcuoglu. Multiple Object Recognition with Visual Attention. ICLR 2015: where the bound comes
#   from.
# - A. Mnih, K. Gregor. Neural Variational Inference and Learning in Belief Networks. ICML 2014: learned baselines.
# - W. Kool, H. van Hoof, M. Welling. Buy 4 REINFORCE Samples, Get a Baseline for Free! ICLR 2019 workshop on deep
#   reinforcement learning meets structured prediction: the other samples as a baseline, today called RLOO. T. Salimans,
#   D. Knowles (arXiv:1401.1022, 2014) had it before.
# - E. Jang, S. Gu, B. Poole. Categorical Reparameterization with Gumbel-Softmax. ICLR 2017.
# - J. Zhang, Z. Lin, J. Brandt, X. Shen, S. Sclaroff. Top-down Neural Attention by Excitation Backprop. ECCV 2016: the
#   pointing game.
