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
# # 6. Hard attention: a bound and its estimators (REINFORCE)
#
# **Hard attention throws a dart at the picture and reads the one place that it hits. Nobody can differentiate a dart, so how can
# such a model learn where to look?**
#
# Soft attention blends all places; hard attention looks at one and lives with the consequences. Here you add up every path of looks,
# in a case so small that one can. So you know the true gradient, and can say of each trick from the literature how far off it is.
#
# **You will be able to**
#
# - write the paper's lower bound on the likelihood, and say when it is tight;
# - write a loss for what has no derivative;
# - measure the bias and the noise of an estimate, and take most of the noise away.
#
# **Time**: 30 minutes to read, 51 more to write (15 of them for the optional end), 20 seconds to run. **Memory**: 1.9 GB.
# **Needs**: [notebook 04](04_soft_attention.ipynb) for the decoder; nothing to download. **Next**:
# [notebook 07](07_hard_attention_trained.ipynb) trains with what you write here.

# %%
import itertools
import math

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn
from torch.testing import assert_close

# %% jupyter={"source_hidden": true}
from satcourse.checks import reveal, seal, skip
from satcourse.figures import use_page_style
from satcourse.lessons.estimators import every_path, jacobian, path_gradients, tiny
from satcourse.widgets import still
from satcourse.widgets.slides import Slides
from satlib.evaluation import plots
from satlib.model.attention import AttentionOutput, HardAttention
from satlib.model.objective import word_losses

use_page_style()

# %% [markdown]
# ## A place is drawn, and one vector is read
# <!-- index: equation 8 | p(s_ti = 1 given s_j<t, a) = alpha_ti: the place is drawn from the weights | satlib.model.attention.HardAttention.draw | tests/test_hard.py::TestLooking::test_samples_follow_alpha -->
# <!-- index: equation 9 | z_t = sum_i s_ti a_i: the vector of one place | satlib.model.attention.HardAttention | tests/test_hard.py::TestLooking::test_samples_follow_alpha -->
# <!-- index: claim: a weight is a probability or an importance | the same alpha, drawn from (hard) or blended with (soft) | satlib.model.attention.HardAttention | tests/test_hard.py::TestLooking::test_outside_of_training -->
# <!-- asked: Soft or hard attention: what is the difference? | Soft attention reads the weighted mean of all places; hard attention draws one place by the same weights, and reads that. -->
#
# > **Paper, section 4.1, equations 8 and 9.** The place of word $t$ is a one-hot vector $s_t$, drawn from the attention
# > weights, and the context is the annotation vector of that place:
# > $$p(s_{ti} = 1 \mid s_{j<t}, a) = \alpha_{ti}, \qquad \hat z_t = \sum_i s_{ti}\, a_i .$$
#
# Lay the weights end to end on a line from 0 to 1 and throw a dart. (A dart on an edge hits the place that begins there.)


# %% tags=["task:6.1"]
def draw(alpha: Tensor, darts: Tensor) -> Tensor:
    """The place that each dart hits (B,), from 0. alpha: (B, L). darts: (B,), at least 0 and below 1."""
    # BEGIN SOLUTION
    edges = alpha.cumsum(1)[:, :-1]  # (B, L - 1): where one place ends and the next begins
    return (darts[:, None] >= edges).sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `cumsum` gives the places' right edges. The number of edges at or below the dart is the number of places that it flew past.

# %%
torch.manual_seed(0)
a = torch.tensor(
    [[-1.0, 0.2], [-0.3, 1.0], [0.9, 0.7], [0.8, -0.6], [-0.5, -0.9]]
)  # five places: (L, D)
alpha = torch.tensor([0.45, 0.25, 0.15, 0.10, 0.05])
place = draw(alpha.expand(4000, -1), torch.rand(4000))
print("drawn, of 4000:", place.bincount(minlength=5).tolist())
print(
    f"different contexts: {len(a[place].unique(dim=0))}; their mean: {a[place].mean(0).numpy().round(2)}"
)
print("soft attention's context:", (alpha @ a).numpy().round(2))

# %% [markdown]
# On average a hard look reads what soft attention reads.

# %% [markdown]
# ## A lower bound on the likelihood of a caption
# <!-- index: equation 10 | the bound L_s = sum_s p(s given a) log p(y given s, a) <= log p(y given a) | satcourse.lessons.estimators.Paths.bound | tests/test_hard.py::TestBound::test_never_above_the_log_likelihood -->
# <!-- index: claim: hard attention maximises a variational lower bound | all paths of a tiny case enumerated; the gap is a Kullback-Leibler divergence | satcourse.lessons.estimators.every_path | tests/test_hard.py::TestPaths::test_every_path_is_there_once_and_equals_a_walk -->
# <!-- asked: What is the variational lower bound of hard attention (ELBO, Jensen)? | The mean over paths of log p of the caption; it lies below the logarithm of the mean, by a Kullback-Leibler divergence. -->
#
# The data contain captions, but not the *path* $s = s_1, \dots, s_C$ of places behind the words. A caption's
# probability is a sum over all $L^C$ paths, too many, so the paper maximises something smaller:
#
# > **Paper, equation 10.**
# > $$L_s = \sum_s p(s \mid a) \log p(y \mid s, a) \;\le\; \log \sum_s p(s \mid a)\, p(y \mid s, a) = \log p(y \mid a) .$$
#
# (A mean of logarithms lies below the logarithm of the mean: Jensen.)


# %% tags=["task:6.2"]
def bound(p_place, p_word, L: int, C: int) -> tuple[float, float]:
    """L_s and log p(y|a), both summed over all L^C paths. A path is a tuple of C places, which are counted from 0.

    p_place(path[:t]): p(s_t | s_1..s_(t-1)) of the last of the first t places; p_word(path[:t]): p(y_t | s_1..s_t), of the word said there.
    """
    # BEGIN SOLUTION
    L_s, likelihood = 0.0, 0.0
    for path in itertools.product(range(L), repeat=C):
        p_path, p_caption = 1.0, 1.0
        for t in range(1, C + 1):
            p_path *= p_place(path[:t])
            p_caption *= p_word(path[:t])
        L_s += p_path * math.log(p_caption)
        likelihood += p_path * p_caption
    return L_s, math.log(likelihood)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `itertools.product(range(L), repeat=C)` lists the paths. Along each, multiply two products: p(s|a) and p(y|s,a).

# %% [markdown] tags=["pseudocode"]
# ```
# for every path:
#     p_path = p_place(path[:1]) * p_place(path[:2]) * ...
#     p_caption = the same of p_word
#     L_s += p_path * log p_caption
#     likelihood += p_path * p_caption
# L_s, log of likelihood
# ```


# %% [markdown]
# Two places and two words, with numbers made up:

# %%
alpha_1 = [0.7, 0.3]  # p(s_1)
alpha_2 = [
    [0.6, 0.4],
    [0.1, 0.9],
]  # p(s_2 | s_1): where it looks next depends on where it has looked
word_1 = [0.5, 0.1]  # p(y_1 | s_1)
word_2 = [[0.8, 0.05], [0.3, 0.6]]  # p(y_2 | s_1, s_2)
p_place = {(i,): alpha_1[i] for i in range(2)} | {
    (i, j): alpha_2[i][j] for i in range(2) for j in range(2)
}
p_word = {(i,): word_1[i] for i in range(2)} | {
    (i, j): word_2[i][j] for i in range(2) for j in range(2)
}
L_s, log_likelihood = bound(p_place.get, p_word.get, L=2, C=2)

# %% jupyter={"source_hidden": true}
four = list(itertools.product(range(2), repeat=2))
p_path = torch.tensor([alpha_1[i] * alpha_2[i][j] for i, j in four])
p_caption = torch.tensor([word_1[i] * word_2[i][j] for i, j in four])
x, mean = torch.linspace(0.012, 0.45, 200), p_path @ p_caption
figure, axis = plt.subplots(figsize=(6.2, 3.1), layout="constrained")
axis.plot(x, x.log(), color=plots.INK)
axis.scatter(
    p_caption,
    p_caption.log(),
    s=900 * p_path,
    color="C4",
    edgecolor="k",
    zorder=3,
    label="a path (area: $p(s|a)$)",
)
axis.plot(
    mean,
    log_likelihood,
    "^",
    color="C0",
    markersize=10,
    zorder=4,
    label=rf"$\log p(y|a) = {log_likelihood:.2f}$",
)
axis.plot(
    mean,
    L_s,
    "v",
    color="C5",
    markersize=10,
    zorder=4,
    label=f"$L_s = {L_s:.2f}$, mean height of the paths",
)
axis.annotate("", (mean, L_s + 0.1), (mean, log_likelihood - 0.1), arrowprops={"arrowstyle": "<->"})
axis.annotate("the gap", (mean + 0.008, (L_s + log_likelihood) / 2), va="center")
axis.set(xlabel="$p(y|s,a)$ of a path", ylabel=r"$\log p(y|s,a)$")
axis.legend(loc="lower right")
plt.show()

# %% [markdown]
# Now a real decoder with random weights, four places and three words, and so $4^3 = 64$ paths. Let
# $p(s|y,a) = p(s|a)\,p(y|s,a) / p(y|a)$ be the probability of a path for someone who has read the caption. Then
#
# $$\log p(y|a) - L_s = \sum_s p(s|a) \log \frac{p(y|a)}{p(y|s,a)} = \sum_s p(s|a) \log \frac{p(s|a)}{p(s|y,a)} = \mathrm{KL}\big(p(s|a)\,\big\|\,p(s|y,a)\big) .$$

# %%
decoder, a, caption = tiny()  # a: (1, L, D) with L = 4, D = 3; caption: (1, C) with C = 3
paths = every_path(
    decoder, a, caption
)  # of each path log p of its places and words, (64, C), and of the whole, (64,)
begun = {tuple(path[:t]): row for row, path in enumerate(paths.places.tolist()) for t in (1, 2, 3)}
L_s, log_likelihood = bound(
    lambda path: paths.log_p_place[begun[path], len(path) - 1].exp().item(),
    lambda path: paths.log_p_word[begun[path], len(path) - 1].exp().item(),
    L=4,
    C=3,
)
p = paths.log_p_path.exp().detach()  # p(s|a), (64,)
with_hindsight = (
    paths.log_p_path + paths.log_p_caption
).detach() - log_likelihood  # log p(s|y,a), (64,)
kl = (p * (p.log() - with_hindsight)).sum()
assert_close(log_likelihood - L_s, kl.item())
print(f"{len(p)} paths: L_s = {L_s:.3f}, log p(y|a) = {log_likelihood:.3f}, gap = KL = {kl:.3f}")

# %% [markdown]
# The gap measures how differently one would look after reading the caption.

# %% [markdown]
# ### When the bound is tight
# <!-- index: claim: the bound is tight where looks are certain or make no difference | the gap against the temperature of alpha and against the weight of the context | satcourse.lessons.estimators.Paths | tests/test_hard.py::TestBound::test_equal_when_alpha_is_one_hot -->
#
# The bound is tight if $\alpha$ is one-hot, or if the looks make no difference to the words. We lower the temperature of $\alpha$, or scale down
# the weights that read $\hat z$, of five decoders (dotted: as they are).


# %%
@torch.no_grad()
def gap(seed, temperature=1.0, sight=1.0):
    decoder, a, caption = tiny(seed)
    decoder.attention.energy.energy.weight.div_(temperature)
    decoder.gates_context.weight.mul_(sight)
    decoder.output_context.weight.mul_(sight)
    paths = every_path(decoder, a, caption)
    return (paths.log_likelihood - paths.bound).item()


factor = gap(0, sight=0.01) / gap(0, sight=0.001)
print(f"a tenth of the scale divides the gap by {factor:.0f}")

# %% jupyter={"source_hidden": true}
temperatures, sights = np.logspace(1.5, -2, 12), np.logspace(0.5, -3, 11)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.1), sharey=True, layout="constrained")
for seed, marker in enumerate("oDs^v"):
    left.loglog(
        temperatures, [gap(seed, temperature=t) for t in temperatures], marker=marker, markersize=4
    )
    right.loglog(sights, [gap(seed, sight=w) for w in sights], marker=marker, markersize=4)
left.set(
    xlabel=r"temperature of $\alpha$ (to the right: even)",
    ylabel="gap in nats",
    title="the looks become certain",
)
left.set_ylim(bottom=1e-9)
right.set(xlabel=r"scale of the weights on $\hat z$", title="the looks stop mattering")
for axis in (left, right):
    axis.axvline(1, color=plots.INK, linestyle=":")
plt.show()

# %% [markdown]
# The gap is the price of spreading the probability over looks that
# matter. Training on the bound can avoid it by sharpening the maps, whatever the pictures show.

# %% [markdown]
# ## Why the gradient cannot pass through the sample
# <!-- index: claim: hard attention needs Monte Carlo gradients | with the sample held, log p(y given s, a) is a staircase in every weight of the attention: its derivative is zero | satlib.model.attention.HardAttention | tests/test_hard.py::TestPaths::test_weighed_and_added_up_they_are_the_gradient_of_the_bound -->
# <!-- asked: Why is hard attention not differentiable? | With the sample held, the likelihood is a staircase in each weight of the attention: back-propagation brings it no gradient. -->
#
# Draw a path, compute $\log p(y|s,a)$, call `backward()`: nothing reaches the attention. Throw three darts at all 64 paths laid end to
# end, and turn one weight of the attention network:

# %% jupyter={"source_hidden": true}
other, *case = tiny()
knob = other.attention.energy.energy.weight  # (1, width)
turns = torch.linspace(-6, 6, 121, dtype=torch.double)
turned = []
with torch.no_grad():
    for turn in turns:
        knob[0, 0] = turn
        turned.append(every_path(other, *case))
probabilities, heights = (
    torch.stack([each.log_p_path.exp() for each in turned]),
    turned[0].log_p_caption,
)
figure, axis = plt.subplots(figsize=(6.6, 3.1), layout="constrained")
for dart, colour, line in zip((0.12, 0.4, 0.77), ("C1", "C2", "C3"), ("-", "--", ":"), strict=True):
    path = draw(probabilities, torch.full((len(turns),), dart))
    axis.step(
        turns,
        heights[path],
        where="mid",
        color=colour,
        linestyle=line,
        label=f"one throw, dart at {dart}",
    )
axis.plot(
    turns, probabilities @ heights, color="C0", linewidth=2.5, label="$L_s$: mean over all throws"
)
axis.set(xlabel="one weight of the attention network", ylabel=r"$\log p(y|s,a)$")
axis.legend(fontsize=9)
plt.show()

# %% [markdown]
# Each throw is a staircase; the mean over all throws is smooth.

# %% [markdown]
# ## The score-function identity
# <!-- index: equation 11 | gradient of L_s: a likelihood term and a score-function term, summed over paths | satcourse.lessons.estimators.path_gradients | tests/test_hard.py::TestPaths::test_weighed_and_added_up_they_are_the_gradient_of_the_bound -->
# <!-- asked: How does hard attention learn, then (the log-derivative trick)? | From a second term, the score function, which makes good paths more likely; the attention learns from it alone. -->
#
# Both factors of $p(s|a) \log p(y|s,a)$ depend on the weights $W$: two terms. In the one that
# differentiates $p(s|a)$, the identity $\partial p = p\, \partial \log p$ turns the sum into a mean under $p$ again:
#
# > **Paper, equation 11.**
# > $$\frac{\partial L_s}{\partial W} = \sum_s p(s|a) \left[ \frac{\partial \log p(y|s,a)}{\partial W} + \log p(y|s,a)\, \frac{\partial \log p(s|a)}{\partial W} \right] .$$
#
# The first, the *likelihood* term, teaches the words, given where the decoder looked. The *score-function* term makes good
# paths more likely.

# %%
names, weights = zip(*decoder.named_parameters(), strict=True)
gradients = path_gradients(
    paths, weights
)  # of each path on its own; score: (64, C looks, W weights)
likelihood, path_score = gradients.likelihood, gradients.score.sum(1)  # (64, W) each
reward = paths.log_p_caption.detach()
likelihood_term, score_term = p @ likelihood, p @ (reward[:, None] * path_score)
exact = likelihood_term + score_term  # equation 11
by_autograd = torch.autograd.grad(paths.bound, weights, retain_graph=True)
assert_close(exact, nn.utils.parameters_to_vector(by_autograd))

# %% jupyter={"source_hidden": true}
owners = [
    name.split(".")[0]
    for name, weight in zip(names, weights, strict=True)
    for _ in range(weight.numel())
]
for part in ("attention", "gates_state", "output"):
    of = torch.tensor([owner == part for owner in owners])
    print(
        f"{part:12} likelihood term {likelihood_term[of].norm():6.2f}   score-function term {score_term[of].norm():6.2f}"
    )

# %% [markdown]
# The attention learns from the score-function term alone, the output layer from the likelihood term alone, the LSTM from both.

# %% [markdown]
# ## Monte Carlo, or REINFORCE
# <!-- index: equation 12 | the gradient estimated from N sampled paths | satlib.model.objective.VariationalBound | tests/test_hard.py::TestEstimators::test_mean_is_the_exact_gradient_of_the_bound -->
# <!-- index: claim: hard attention is equivalent to REINFORCE | exactly so for the attention's weights; the others learn from the likelihood, too | satlib.model.objective.VariationalBound | tests/test_hard.py::TestEstimators::test_mean_is_the_exact_gradient_of_the_bound -->
# <!-- index: claim: the reward is the log-likelihood of the sentence under the sampled path | log p(y given s, a) multiplies the score | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
# <!-- asked: What are policy, action and reward in hard attention (REINFORCE, policy gradient)? | The policy is the map, an action is a place, and the reward is the log-likelihood of the caption. -->
#
# Eleven words on 196 places give $196^{11}$ paths, so we sample.
#
# > **Paper, equation 12.** Draw $\tilde s^n_t$ from $\alpha_t$ for $n = 1, \dots, N$ and take
# > $$\frac{\partial L_s}{\partial W} \approx \frac1N \sum_{n=1}^N \left[ \frac{\partial \log p(y|\tilde s^n,a)}{\partial W} + \log p(y|\tilde s^n,a)\, \frac{\partial \log p(\tilde s^n|a)}{\partial W} \right] .$$
#
# Reinforcement learning calls the second term REINFORCE (a *policy gradient*). The policy is $\alpha_t$, an action is a place, and the reward, paid at the
# end, is $\log p(y|\tilde s,a)$.
#
# Write a loss whose gradient is *minus* the second term, with a number $b$ subtracted from the reward (you will see
# why). No gradient may flow into the reward.


# %% tags=["task:6.3"]
def score_loss(log_p_path: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """The loss, (). log_p_path: log p(s|a) of N samples (N,), with a graph. reward: (N,), perhaps with a graph too."""
    # BEGIN SOLUTION
    advantage = (reward - baseline).detach()
    return -(advantage * log_p_path).mean()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `x.detach()` is x as a number without a history. What should keep its history, and what should not?

# %% [markdown]
# How good is an estimate? Its *bias* is how far its mean is from the truth, its *noise* the root of its mean squared distance from its
# own mean. We divide both by the length of the true gradient.


# %% tags=["task:6.4"]
def bias_and_noise(p: Tensor, estimates: Tensor, truth: Tensor) -> tuple[float, float]:
    """Both over the length of the truth. estimates: all S that can come out (S, W), with probabilities p (S,). truth: (W,)."""
    # BEGIN SOLUTION
    mean = p @ estimates
    squared_distance = (estimates - mean).square().sum(1)  # (S,)
    length = truth.norm()
    return ((mean - truth).norm() / length).item(), ((p @ squared_distance).sqrt() / length).item()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A mean is `p @ ...`. A vector's squared length is the sum of its squares.

# %% [markdown]
# The rewards are near -29 here. **How large is the noise of an estimate from one sample, in percent?**

# %%
my_error_guess = ...  # a range that you are 80 % sure of, (low, high), or skip
# %% jupyter={"source_hidden": true}
seal(my_error_guess)


def noise(baseline):
    """The noise of one sample: a sum over all 64 paths, so no sampling."""
    every = (
        likelihood + (reward - baseline)[:, None] * path_score
    )  # what each path would give: (64, W)
    bias, spread = bias_and_noise(p, every, exact)
    assert bias < 1e-9  # none, whatever the baseline
    return spread


noise_without = noise(0.0)
reveal("one sample is off by, percent", 100 * noise_without)


# %% jupyter={"source_hidden": true}
def estimate(N, baseline=0.0):
    """An estimate of the gradient of L_s from N sampled paths: (W,)."""
    drawn = torch.multinomial(p, N, replacement=True)
    rewards = paths.log_p_caption[drawn]
    loss = -rewards.mean() + score_loss(paths.log_p_path[drawn], rewards, baseline)
    return -nn.utils.parameters_to_vector(torch.autograd.grad(loss, weights, retain_graph=True))


torch.manual_seed(0)
shown = [k for k in exact.abs().argsort(descending=True).tolist() if owners[k] == "attention"][:2]
errors = {}
figure, axes = plt.subplots(2, 3, figsize=(9, 5), sharex="row", sharey="row", layout="constrained")
for axis, (b, N) in zip(axes.flat, itertools.product((0.0, L_s), (1, 16, 256)), strict=True):
    cloud = torch.stack([estimate(N, b) for _ in range(100)])
    errors[b, N] = 100 * (cloud - exact).norm(dim=1).square().mean().sqrt() / exact.norm()
    axis.scatter(*cloud[:, shown].T, s=9, color="C4", label="100 estimates")
    axis.axvline(exact[shown[0]], color="C5", linewidth=1, zorder=0, label="exact")
    axis.axhline(exact[shown[1]], color="C5", linewidth=1, zorder=0)
    axis.set_title(f"N = {N}, b = {b:.0f}")
axes[1, 1].set_xlabel("gradient of one attention weight")
axes[0, 0].set_ylabel("gradient of another")
axes[0, 2].legend(fontsize=9)
plt.show()
print(
    "in the pictures:",
    ", ".join(f"{error:.0f} % (b = {b:.0f}, N = {N})" for (b, N), error in errors.items()),
)

# %% [markdown] tags=["answer"]
# 715 percent. The mean is right, an estimate from one sample is hopeless, and four times the samples only halve the error.

# %% [markdown]
# In the lower row, whose scale is finer, $b = -29$ is subtracted from the reward.

# %% [markdown]
# ## A baseline changes the variance, not the mean
# <!-- index: section 4.1 | variance reduction: the moving-average baseline b_k = 0.9 b_{k-1} + 0.1 log p(y given s_k, a) | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_sentence_reward_against_the_moving_average -->
# <!-- index: claim: a moving-average baseline reduces variance | the exact variance against b is a parabola; measured for every baseline | satlib.model.objective.VariationalBound | tests/test_hard.py::TestEstimators::test_every_baseline_has_less_noise_than_none -->
# <!-- asked: Does a baseline bias REINFORCE: a constant, or a moving average? | No, if it does not depend on the path just drawn: on average nothing changes, and a good one lowers the noise. -->
#
# A reward of -29 pushes down *every* path that is drawn; good ones only recover because bad ones are pushed harder.
# Subtract a constant $b$, and on average nothing changes:
#
# $$\sum_s p(s|a)\, b\, \frac{\partial \log p(s|a)}{\partial W} = b\, \frac{\partial}{\partial W} \sum_s p(s|a) = b\, \frac{\partial 1}{\partial W} = 0 .$$
#
# > **Paper, section 4.1.** The baseline is a moving average over the minibatches $k$:
# > $$b_k = 0.9\, b_{k-1} + 0.1 \log p(y \mid \tilde s_k, a) .$$
#
# The proof needs a $b$ that does not depend on the path just drawn, so a batch is judged by the *old* baseline.


# %%
def moving_average(baseline, log_p):
    """The advantages (B,) and the new baseline, neither with a graph. log_p: log p(y|s,a) of the batch (B,), with a graph."""
    rewards = log_p.detach()
    return rewards - baseline, 0.9 * baseline + 0.1 * rewards.mean().item()


# %% jupyter={"source_hidden": true}
falls_elsewhere, less_to_come = [], []
for seed in range(1, 8):
    theirs = tiny(seed)
    each = every_path(*theirs)
    d_w, d_q = path_gradients(each, list(theirs[0].parameters()))
    p_each, r, words = (
        each.log_p_path.exp().detach(),
        each.log_p_caption.detach(),
        each.log_p_word.detach(),
    )
    truth = p_each @ (d_w + r[:, None] * d_q.sum(1))
    less = (r - p_each @ r)[:, None].expand(-1, 3)  # a reward for each look
    later = words.flip(1).cumsum(1).flip(1)
    ways = (r[:, None].expand(-1, 3), less, later - p_each @ later)
    noises = [
        bias_and_noise(p_each, d_w + (way[:, :, None] * d_q).sum(1), truth)[1] for way in ways
    ]
    falls_elsewhere.append(noises[0] / noises[1])
    less_to_come.append(noises[2] / noises[1])

# %%
averages = [0.0]  # the paper's b_k, from 0
for _ in range(60):
    _, b_k = moving_average(averages[-1], paths.log_p_caption[torch.multinomial(p, 1)])
    averages.append(b_k)
noise_with = noise(L_s)
fall = noise_without / noise_with
print(
    f"the noise falls by a factor of {fall:.1f}; in seven other decoders by",
    *(f"{x:.1f}" for x in falls_elsewhere),
)

# %% jupyter={"source_hidden": true}
constants = np.linspace(2 * L_s, 5, 41)
figure, (left, right) = plt.subplots(
    1, 2, figsize=(8.8, 3.1), width_ratios=(1.25, 1), layout="constrained"
)
left.plot(constants, [noise(b) ** 2 for b in constants])
left.plot((0, L_s), (noise_without**2, noise_with**2), "o", color="C5", markersize=8)
left.annotate(
    f"no baseline: {noise_without**2:.1f} ", (-2, noise_without**2), ha="right", va="center"
)
left.annotate(f"mean reward: {noise_with**2:.2f}", (L_s, 13), ha="center")
left.set(xlabel="baseline $b$", ylabel="variance of one sample\n(noise squared)")
right.plot(averages, color="C2", label="$b_k$")
right.axhline(L_s, color=plots.INK, linestyle="--", label="mean reward ($= L_s$)")
right.set(xlabel="minibatch $k$", ylabel="nats")
right.legend()
plt.show()

# %% [markdown]
# A hundred paths, thrown once and judged by one baseline after the other. Move it, and the paths stay where they are; only what each of them says
# about the weights changes:

# %% jupyter={"source_hidden": true}
torch.manual_seed(1)
thrown = torch.multinomial(p, 100, replacement=True)  # paths, the same for each baseline


def said_by_thrown(b):
    every = likelihood + (reward - b)[:, None] * path_score  # what each path would give: (64, W)
    return every[thrown][:, shown]  # (100, 2)


farthest = 1.1 * float(said_by_thrown(0).abs().max())


def draw_thrown(b):
    x, y = said_by_thrown(b).T
    figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
    axis.scatter(x, y, s=22, color="C4", alpha=0.6, label="what one path says")
    axis.plot(*exact[shown], "x", color="C5", markersize=11, markeredgewidth=3, label="the truth")
    axis.set(xlim=(-farthest, farthest), ylim=(-farthest, farthest))
    axis.set(xlabel="gradient of one attention weight", ylabel="of another")
    axis.legend(fontsize=8, loc="upper left")
    return figure


Slides(
    draw_thrown,
    [0, -5, -10, -15, -20, -25, round(L_s), -35, -45, -60],
    "baseline",
    lambda b: f"b = {b}. One path is off by {100 * noise(b):.0f} %",
)

# %% [markdown]
# The noise falls by a factor of 11 (in seven other random decoders by 2 to 12). But a moving average that starts at 0 takes some forty minibatches to get there.

# %% [markdown]
# ## Which reward teaches which look
# <!-- index: claim: a look is to be rewarded for the words to come only | the products of earlier words' rewards with the look's score have mean zero | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_reward_to_come -->
# <!-- asked: What is reward to go (the reward still to come)? | A look cannot have helped words that were out before it: leave their rewards out, and the mean stays the same. -->
#
# The paper rewards every look for the whole sentence: the estimate is a sum of each word's log-probability times each
# look's score. **Three words times three looks: how many of the nine products have mean zero?**

# %%
my_zeros_guess = ...  # a range that you are 80 % sure of, (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_zeros_guess)
word_rewards = paths.log_p_word.detach()  # log p(y_t|...), (64, C)
products = word_rewards[:, :, None, None] * gradients.score[:, None]  # (64, C words, C looks, W)
mean_product = torch.einsum("s,stuw->tuw", p, products)
teaches = mean_product.norm(dim=2)  # (C, C)
zeros = int((teaches < 1e-9).sum())
reveal("products with mean zero", zeros)

to_come = word_rewards.flip(1).cumsum(1).flip(1)  # (64, C): the reward still to come at each look
samples = likelihood + ((to_come - p @ to_come)[:, :, None] * gradients.score).sum(1)
bias, noise_to_come = bias_and_noise(p, samples, exact)
print(
    f"the sentence's reward: noise {noise_with:.2f}; the reward to come: noise {noise_to_come:.2f}, bias {bias:.2f}"
)

# %% jupyter={"source_hidden": true}
deviates = torch.einsum("s,stuw->tu", p, (products - mean_product).square()).sqrt()
figure, axes = plt.subplots(1, 2, figsize=(7.4, 3), layout="constrained")
for axis, values, title in zip(
    axes, (teaches, deviates), ("mean: what is learnt", "standard deviation: noise"), strict=True
):
    axis.imshow(values, cmap="cividis", vmin=0)
    for (row, column), value in np.ndenumerate(values.numpy()):
        ink = "k" if value > 0.45 * values.max() else "w"
        axis.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink)
    axis.set(title=title, xlabel="look $t$", ylabel="word $t'$")
    axis.set_xticks(range(3), ("1", "2", "3"))
    axis.set_yticks(range(3), ("1", "2", "3"))
    axis.spines[:].set_visible(False)
plt.show()

# %% [markdown] tags=["answer"]
# Three, above the diagonal, where the word was out before the look. Reward a look only for what is *still to come*, and the mean stays
# while the noise falls from 0.64 to 0.57. (In the seven others the change is between -22 and +1 percent.)

# %% [markdown]
# ### You are hard attention
#
# For each of three words, look at one of four places, as often as the percentages say; the decoder pays the $\log p$ of the true word. Your captions estimate the gradient.


# %% jupyter={"source_hidden": true}
def hard_attention_by_hand():
    """A game that goes on whatever later cells call their values: -> its board, and errors of recorded games."""
    chances, pay = (
        paths.log_p_place.exp().detach(),
        paths.log_p_word.detach(),
    )  # of each path's looks and words, (64, 3)
    told, parts, goal, means = (
        paths.log_p_caption.detach(),
        (likelihood, path_score),
        exact,
        (0.0, L_s),
    )
    beginnings = paths.places.tolist()

    def beginning(looks):
        """The first of the paths that begin with these looks."""
        return next(row for row, path in enumerate(beginnings) if path[: len(looks)] == looks)

    def off(played):
        """How far the estimate of some paths is from the exact gradient, without and with a baseline, in percent."""
        mine = [parts[0][played] + (told[played, None] - b) * parts[1][played] for b in means]
        return [100 * ((each.mean(0) - goal).norm() / goal.norm()).item() for each in mine]

    looks, played = [], []
    buttons = [ipywidgets.Button(layout={"width": "90px", "height": "56px"}) for _ in range(4)]
    account = ipywidgets.HTML()

    def look_at(place):
        looks.append(place)
        paid = pay[beginning(looks), len(looks) - 1]
        account.value = f"word {len(looks)} pays {paid:.1f} nats"
        if len(looks) == 3:
            played.append(beginning(looks))
            account.value += f"; the caption {told[played[-1]]:.1f}<br>{len(played)} captions: " + (
                "{:.0f} % off without a baseline, {:.0f} % with it".format(*off(played))
            )
            looks.clear()
        show_chances()

    def show_chances():
        for place, button in enumerate(buttons):
            button.description = f"{100 * chances[beginning([*looks, place]), len(looks)]:.0f} %"

    for place, button in enumerate(buttons):
        button.on_click(lambda _, place=place: look_at(place))
    show_chances()
    return ipywidgets.VBox(
        [ipywidgets.HBox(buttons[:2]), ipywidgets.HBox(buttons[2:]), account]
    ), off


board, off = hard_attention_by_hand()
torch.manual_seed(0)
by_darts = torch.multinomial(p, 64, replacement=True).tolist()
played_by_darts = {number: off(by_darts[:number]) for number in (1, 4, 16, 64)}
for number, (without, with_it) in played_by_darts.items():
    print(
        f"a recorded game, {number:2} captions by darts: {without:.0f} % off without a baseline, {with_it:.0f} % with it"
    )
print(
    "whoever always takes the likeliest path: {:.0f} % and {:.0f} % off, for good".format(
        *off([int(p.argmax())])
    )
)
still.show(board, "> **Run > Run All Cells**, and here are four places to look at.")

# %% [markdown]
# In this game, as in 78 percent of 2,000 others with this decoder, one caption with a baseline beats 64 without. (Do not count on it: 64 captions
# divide the noise by 8, and in six of the seven other decoders the baseline divides it by less.) And whoever always takes the likeliest path
# stays 22 percent off even with it, however long the game.

# %% [markdown]
# ## The other samples as a baseline
# <!-- index: claim: other samples are a baseline | leave one out: the mean reward of a caption's N - 1 other samples | satlib.model.objective.VariationalBound | tests/test_hard.py::TestTerms::test_leave_one_out -->
# <!-- asked: What is RLOO (leave one out)? | Each sample of a caption is judged by the mean reward of the caption's other samples, never by its own. -->
#
# A single average finds easy captions good and hard ones bad, wherever the model looked. So draw $N$ paths of
# *this* caption, and judge each by the others:
#
# $$b_n = \frac{1}{N - 1} \sum_{k \ne n} r_k .$$
#
# The sample itself stays out.


# %% tags=["task:6.5"]
def leave_one_out(rewards: Tensor) -> Tensor:
    """The baseline of each sample (B, N). rewards: (B, N), the samples of a caption in a row."""
    # BEGIN SOLUTION
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The others' sum is the row's sum less the sample's own reward.

# %% [markdown]
# We take eight images, each with a caption of two words (16 paths). Without a baseline the reward amounts to 13 nats (root mean square).
# What is left if we subtract one average for all eight captions, or the mean of three other samples?

# %% jupyter={"source_hidden": true}
generator = torch.Generator().manual_seed(1000)
images = torch.randn(8, 4, 3, generator=generator, dtype=torch.double).split(1)
captions = torch.randint(0, 5, (8, 3), generator=generator)[:, :2].split(1)
eight = [every_path(decoder, *each) for each in zip(images, captions, strict=True)]

average = np.mean([each.bound.item() for each in eight])  # where the moving average settles
torch.manual_seed(0)
rewards = torch.cat(
    [
        each.log_p_caption[each.log_p_path.exp().multinomial(40_000, replacement=True)].view(-1, 4)
        for each in eight
    ]
).detach()  # (80,000, 4): four paths of a caption in a row

# %%
left_over = {
    name: (rewards - b).square().mean().sqrt().item()
    for name, b in (("none", 0.0), ("average", average), ("others", leave_one_out(rewards)))
}
print("left, in nats:", {name: round(value, 1) for name, value in left_over.items()})

# %% [markdown]
# About 4 nats and 2: much of what the average leaves is the difference between easy and hard captions.

# %% [markdown]
# ## A little bias for less noise: the mix
# <!-- index: section 4.1 | with probability 0.5 for a given image the sample is replaced by its expectation | satlib.model.objective.coins | tests/test_hard.py::TestLooking::test_coins_are_per_image -->
# <!-- index: claim: mixing in the expectation reduces variance | and it is biased: its mean is the gradient of another objective, known exactly | satlib.model.objective.coins | tests/test_hard.py::TestEstimators::test_what_claims_no_unbiasedness_is_seen_to_be_biased -->
#
# The paper has one more trick. With probability 0.5, for a given image, it replaces the sample by its expectation: soft
# attention, which has no noise but another objective, and so is biased.
#
# Now compare them all on the eight captions. For each we list every estimate that can come out, with its probability: `groups` gives all rows of
# $K$ paths, and an estimate is made of each row.


# %% jupyter={"source_hidden": true}
def independent(log_p, K):
    """All outcomes of K independent draws of a path, regardless of order: paths (S, K) and probabilities (S,). log_p: (P,)."""
    drawn = list(itertools.combinations_with_replacement(range(len(log_p)), K))
    orders = [
        math.factorial(K) / math.prod(map(math.factorial, map(s.count, set(s)))) for s in drawn
    ]
    rows = torch.tensor(drawn)
    return rows, log_p.new_tensor(orders) * log_p[rows].sum(1).exp()


def groups(paths, K):
    """All rows of K paths: their probabilities (S,), rewards (S, K) and both gradients (S, K, W)."""
    gradients = path_gradients(paths, weights)
    rows, probability = independent(paths.log_p_path.detach(), K)
    return (
        probability,
        paths.log_p_caption.detach()[rows],
        gradients.likelihood[rows],
        gradients.score.sum(1)[rows],
    )


# %%
def by_score_function(reward, d_log_w, d_log_q, baseline):
    """Rewards (S, K), gradients of log p(y|s,a) and log p(s|a) (S, K, W): an estimate from each row of K paths, (S, W)."""
    return (d_log_w + (reward - baseline)[:, :, None] * d_log_q).mean(1)


ones, fours = ([groups(each, K) for each in eight] for K in (1, 4))
none = [(p, by_score_function(*rest, 0.0)) for p, *rest in ones]
one = [(p, by_score_function(*rest, average)) for p, *rest in ones]
others = [(p, by_score_function(r, d_w, d_q, leave_one_out(r))) for p, r, d_w, d_q in fours]

# %% [markdown]
# The mix's list has soft attention's gradient with probability 0.5, and each sampled gradient with half the probability that it had.


# %% jupyter={"source_hidden": true}
def log_p_of(output, caption):
    """log p(y|...) of each row: (B,)."""
    return -word_losses(output.logits, caption.expand(len(output.logits), -1)).sum(1)


pairs = list(zip(images, captions, strict=True))
soft_ones = [
    jacobian(log_p_of(decoder(a, words, torch.tensor([True])), words), weights)
    for a, words in pairs
]
half = torch.tensor([0.5], dtype=torch.double)
mix = [
    (torch.cat([half, p / 2]), torch.cat([soft, hard]))
    for (p, hard), soft in zip(one, soft_ones, strict=True)
]
# the gradient of L_s, mean over the eight captions
truth = torch.stack([p @ estimates for p, estimates in one]).mean(0)


def of_eight(passes, each, truth):
    """Bias of the mean over the eight captions, and its noise for one pass of the decoder for each caption."""
    bias = (
        torch.stack([p @ estimates for p, estimates in each]).mean(0) - truth
    ).norm() / truth.norm()
    noises = [bias_and_noise(*one, truth)[1] for one in each]
    return bias.item(), np.sqrt(passes * np.square(noises).sum()) / len(each)  # variances add up


# %% jupyter={"source_hidden": true}
studied = {  # the decoder's passes for one estimate, and the estimates for each caption
    "score function, no baseline": (1, none),
    "score function, moving average": (1, one),
    "score function, 3 other samples": (4, others),
    "0.5 mix, moving average": (1, mix),
}

results, at_64 = {}, {}  # 64 paths are eight for each caption
for name, estimates in studied.items():
    bias, noise_of_one = results[name] = of_eight(*estimates, truth)
    at_64[name] = math.hypot(bias, noise_of_one / math.sqrt(8))
    print(f"{name:32} bias {bias:.2f}   error at 64 paths {at_64[name]:.2f}")

# %% [markdown]
# An estimator's error depends on how many paths you can afford for each caption:
# $\sqrt{\text{bias}^2 + \text{noise}^2 / \text{paths}}$. (Judging a path by three others takes four passes; 64 passes for eight captions are eight for each.)
#
# With 64 paths the error is 0.90 of the gradient's length without a baseline, and 0.20 with three other samples. The mix comes close to that, with 0.22.
# More paths help it, too, but its mean is wrong by 0.06, and its error never falls below that.

# %% [markdown]
# ## An optional end: Gumbel-softmax and VIMCO
#
# Two tricks that are younger than the paper. [Notebook 07](07_hard_attention_trained.ipynb) needs neither of them; you may go on to "What to
# remember".

# %% [markdown]
# ### A dart with a gradient: the Gumbel-softmax
# <!-- index: claim: a Gumbel-softmax is a modern alternative | straight-through: less noise, and a bias | satcourse.checks.ex06.gumbel_softmax | tests/test_exercises.py -->
# <!-- asked: Gumbel-softmax (straight-through) or REINFORCE? | The Gumbel-softmax has less noise and a bias: here it is ahead with few samples, and behind with many. -->
#
# The straight-through *Gumbel-softmax* (2017) adds Gumbel noise $g_i = -\log(-\log u_i)$ to the
# energies, $u_i$ uniform; the largest sum is at place $i$ with probability $\alpha_i$. Forward, that place is read: the weights
# are one-hot. Backward, they are taken for $\mathrm{softmax}((e + g) / \tau)$, which has a gradient, and the wrong one: a bias again.


# %% tags=["task:6.6"]
def gumbel_softmax(energies: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """One-hot weights whose gradient is that of a softmax. energies, noise (Gumbel's): (B, L) -> (B, L)."""
    # BEGIN SOLUTION
    soft_weights = torch.softmax((energies + noise) / temperature, 1)
    one_hot = nn.functional.one_hot(soft_weights.argmax(1), soft_weights.shape[1]).to(
        soft_weights.dtype
    )
    return one_hot + soft_weights - soft_weights.detach()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `x - x.detach()` is 0, and has the gradient of x.

# %% [markdown] tags=["pseudocode"]
# ```
# soft = softmax of (energies + noise) / temperature
# one_hot = 1 at the largest of soft, 0 elsewhere
# one_hot + (soft - soft cut off from the graph)
# ```

# %% [markdown]
# For each caption 600 estimates are drawn with your function.


# %% jupyter={"source_hidden": true}
class GumbelAttention(HardAttention):
    """Hard attention with a gradient through the draw, by the reader's function."""

    def forward(self, a, keys, h, expected=None):
        energies = self.energy(keys, h)
        drawn = gumbel_softmax(
            energies, -torch.empty_like(energies).exponential_().log(), temperature=1.0
        )
        z = torch.bmm(drawn.unsqueeze(1), a).squeeze(1)
        return AttentionOutput(z, torch.softmax(energies, dim=1), drawn.argmax(1))


def by_gumbel(a, caption):
    """600 estimates, each with the same probability."""
    attention, estimates = decoder.attention, []
    decoder.attention = GumbelAttention(attention.energy)
    for _ in range(
        6
    ):  # all at once, each draw would be differentiated by the gradient of every other
        output = decoder(a.expand(100, -1, -1), caption.expand(100, -1))
        estimates.append(jacobian(log_p_of(output, caption), weights))
    decoder.attention = attention
    return torch.full((600,), 1 / 600, dtype=torch.double), torch.cat(estimates)


# %%
torch.manual_seed(0)
name = "Gumbel-softmax, temperature 1"
bias, noise_of_one = results[name] = of_eight(1, [by_gumbel(*each) for each in pairs], truth)
at_64[name] = math.hypot(bias, noise_of_one / math.sqrt(8))
print(f"{name:32} bias {bias:.2f}   error at 64 paths {at_64[name]:.2f}")

# %% tags=["docs:estimators"] jupyter={"source_hidden": true}
paths_drawn = np.logspace(1, 6, 26)
figure, axis = plt.subplots(figsize=(7.4, 3.4), layout="constrained")
for (name, (bias, spread)), colour, line in zip(
    results.items(),
    ("C5", "C0", "C2", "C1", "C3"),
    (":", "-", "-.", "--", (0, (5, 1, 1, 1))),
    strict=True,
):
    axis.loglog(
        paths_drawn,
        np.sqrt(bias**2 + 8 * spread**2 / paths_drawn),
        color=colour,
        linestyle=line,
        label=name,
    )
axis.set(
    xlabel="sampled paths in a minibatch of eight captions",
    ylabel="error over length\nof the gradient of $L_s$",
)
axis.legend(fontsize=9)
plt.show()

# %% [markdown]
# At 64 paths the Gumbel-softmax comes closest: its error is 0.12. More paths reduce only the noise: from some 300 on the other samples win. (It leads at 64 paths in five of seven
# other random decoders, too.) And this is not the score function's best: all eight paths of a caption could judge one
# another, each look by the reward to come, with less noise.

# %% [markdown]
# ### Tighter bounds
# <!-- asked: What do IWAE and VIMCO add? | More paths inside the logarithm: the bound and its gradient come nearer to those of the likelihood. -->
#
# What we want is $\log p(y|a)$, not $L_s$. Put more paths inside the logarithm, and the bound
# $L_K = E\big[\log \frac1K \sum_k w_k\big]$ with $w_k = p(y|s^k,a)$ climbs from $L_1 = L_s$ to $\log p(y|a)$ (IWAE, 2016). Its gradient
# needs a reward for each path: what did path $k$ *add*? VIMCO (2016) puts the geometric mean of the other $K - 1$ in the place of $w_k$, and
# compares:
#
# $$\text{signal}_k = \log \tfrac1K \sum_j w_j \;-\; \log \tfrac1K \Big( \sum_{j \ne k} w_j + \big( \textstyle\prod_{j \ne k} w_j \big)^{1/(K-1)} \Big) .$$


# %% [markdown]
# The estimate is $\sum_k \big[ \frac{w_k}{\sum_j w_j}\, \partial \log w_k + \text{signal}_k\, \partial \log p(s^k|a) \big]$.


# %% tags=["task:6.7"]
def vimco(log_w: Tensor, d_log_w: Tensor, d_log_q: Tensor) -> Tensor:
    """An estimate of the gradient of L_K from each row of K paths: (S, W). log_w: (S, K).

    d_log_w, d_log_q: the gradients of log w and of log p(s|a) over W weights, (S, K, W).
    """
    # BEGIN SOLUTION
    stand_in = leave_one_out(log_w)  # (S, K): the logarithm of the geometric mean of the others
    itself = torch.eye(log_w.shape[1], dtype=torch.bool)
    replaced = torch.where(
        itself, stand_in[:, :, None], log_w[:, None, :]
    )  # (S, K, K): row k without w_k
    signal = log_w.logsumexp(1, keepdim=True) - replaced.logsumexp(2)
    share = log_w.softmax(1)
    return (share[:, :, None] * d_log_w + signal[:, :, None] * d_log_q).sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The logarithm of a geometric mean is a mean of logarithms, and you have a function for the mean of the others. `torch.where` with
# `torch.eye` puts it on the diagonal of a (S, K, K) tensor. The two $1/K$ cancel.

# %% [markdown] tags=["pseudocode"]
# ```
# stand_in = mean of the other log_w, for each k                 (S, K)
# replaced[s, k] = row s of log_w with stand_in[s, k] at place k (S, K, K)
# signal = logsumexp of log_w - logsumexp of each row of replaced
# share = softmax of log_w
# sum over k of share * d_log_w + signal * d_log_q
# ```

# %% jupyter={"source_hidden": true}
log_p = torch.stack([each.log_likelihood for each in eight]).mean()
wanted = jacobian(log_p[None], weights)[0]  # the gradient of log p(y|a)
bounds = {1: truth.new_tensor([each.bound.item() for each in eight])}  # L_1 and L_4 of each caption
bounds[4] = torch.stack([p @ (log_w.logsumexp(1) - math.log(4)) for p, log_w, *_ in fours])
rows = {1: others, 4: [(p, vimco(*rest)) for p, *rest in fours]}
gaps, biases = {}, {}
for K, estimates in rows.items():
    gaps[K] = (log_p - bounds[K].mean()).item()
    biases[K], spread = of_eight(4, estimates, wanted)
    print(
        f"L_{K}: gap {gaps[K]:.3f} nats, bias {biases[K]:.2f}, noise of four passes for each caption {spread / 2:.2f}"
    )

# %% [markdown]
# However many samples one takes, the gradient of $L_1$ is off by a third of the length of the gradient of $\log p(y|a)$, that of $L_4$ by 0.14.

# %% [markdown]
# ## What to remember
#
# - $L_s$ is a lower bound, and its gap is the price of looking before one knows the caption.
# - The attention learns from the score function alone: paths that explained the caption become likelier.
# - Samples estimate its gradient without bias, but with much noise. A baseline takes most of it away, and other samples of the same
#   caption make a good one.
# - A little bias is a bargain only while noise dominates.
#
# So how can it learn where to look? **It tries, and makes likelier what went better than the other tries.**

# %% [markdown]
# ## References
#
# - K. Xu et al., ICML 2015, [arXiv:1502.03044](https://arxiv.org/abs/1502.03044);
#   [code](https://github.com/kelvinxu/arctic-captions).
# - The bound: J. Ba et al., ICLR 2015, [arXiv:1412.7755](https://arxiv.org/abs/1412.7755). REINFORCE: R. J. Williams, Machine Learning 8,
#   1992.
# - Leave one out: T. Salimans, D. Knowles, [arXiv:1401.1022](https://arxiv.org/abs/1401.1022); W. Kool et al., 2019.
# - Gumbel-softmax: E. Jang et al., [arXiv:1611.01144](https://arxiv.org/abs/1611.01144)
# - Tighter bounds: Y. Burda et al. (IWAE), [arXiv:1509.00519](https://arxiv.org/abs/1509.00519); A. Mnih, D. Rezende
#   (VIMCO), [arXiv:1602.06725](https://arxiv.org/abs/1602.06725)

# %% tags=["claims"] jupyter={"source_hidden": true}
# What the prose says in numbers, held against this run.
assert 90 < factor < 110
assert likelihood_term[torch.tensor([owner == "attention" for owner in owners])].norm() == 0
assert round(100 * noise_without) == 715
assert round(fall) == 11
assert (round(min(falls_elsewhere)), round(max(falls_elsewhere))) == (2, 12)
assert [round(100 * (each - 1)) for each in (min(less_to_come), max(less_to_come))] == [-22, 1]
assert zeros == 3
assert (round(noise_with, 2), round(noise_to_come, 2)) == (0.64, 0.57)
assert [round(left_over[name]) for name in ("none", "average", "others")] == [13, 4, 2]
for error, stated in zip(at_64.values(), (0.90, 0.30, 0.20, 0.22, 0.12), strict=True):
    assert abs(error - stated) < 0.015
assert round(gaps[4], 3) == 0.135
assert [round(value, 2) for value in (gaps[1], *biases.values())] == [0.72, 0.33, 0.14]
assert played_by_darts[1][1] < played_by_darts[64][0], (
    "one caption with a baseline beats 64 without"
)
