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
# # Exercises 6. Hard attention
#
# You write a draw, its probability, the bound and the estimator of its gradient, term by term, and then all of it.
# Write each function, run its cell, and run the check below it. Under each check you can unfold a hint, the solution
# and, where you write a whole function, pseudocode.
#
# Shapes: $B$ captions of $C$ words, $L$ places; $s_t$ is the place drawn at word $t$ ($s_{ti} = 1$ if it is place $i$);
# $N$ samples of a caption.

# %%
import torch
from torch import Tensor

from satcourse.exercises import carry_on, check

# %% [markdown]
# ## 6.1
#
# Lay the weights end to end on a line from 0 to 1. Place 0 begins at 0. A dart hits the line at a number between 0 and
# 1. Which place does it hit? (A dart exactly on an edge hits the place that begins there.)
#
# $$p(s_{ti} = 1 \mid s_{j<t}, a) = \alpha_{ti}$$


# %%
def draw(alpha: Tensor, darts: Tensor) -> Tensor:
    """Exercise 6.1: the place that each dart hits (B,), from 0. alpha: (B, L). darts: (B,), at least 0 and below 1."""
    # BEGIN SOLUTION
    edges = alpha.cumsum(1)[:, :-1]  # (B, L - 1): where one place ends and the next begins
    return (darts.unsqueeze(1) >= edges).sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `cumsum` gives the places' right edges. The number of edges at or below the dart is the number of places that it flew
# past.

# %% [markdown] tags=["pseudocode"]
# ```
# edges = running sum of the weights, without the last (which is 1)
# place = how many edges are at or below the dart
# ```

# %% [markdown]
# ## 6.2
#
# The log-probability of a whole path, $s = (s_1, \dots, s_C)$: the weights of the places that were drawn, one for each
# word. A caption may have 80 words, and the product of their weights may be too small for a float32.
#
# $$\log p(s \mid a) = \sum_{t=1}^C \log \alpha_{t, s_t}$$


# %%
def log_p_path(alphas: Tensor, places: Tensor) -> Tensor:
    """Exercise 6.2: log p(s|a) of each caption (B,). alphas: (B, C, L). places: (B, C), the place drawn at each word."""
    # BEGIN SOLUTION
    chosen = alphas.gather(2, places.unsqueeze(2)).squeeze(2)  # (B, C)
    return chosen.log().sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `alphas.gather(2, index)` picks along the axis of the places; the index needs three axes too, (B, C, 1).

# %% [markdown] tags=["pseudocode"]
# ```
# chosen = the weight of the drawn place, at each word       (B, C)
# sum of the logarithms over the words
# ```

# %% [markdown]
# ## 6.3
#
# In a small case, all paths $s$ can be listed. You get the log-probability of each path, and the caption's
# log-probability along it. Compute the bound:
#
# $$L_s = \sum_s p(s \mid a) \log p(y \mid s, a) \;\le\; \log \sum_s p(s \mid a)\, p(y \mid s, a) = \log p(y \mid a)$$


# %%
def bound(log_p_path: Tensor, log_p_caption: Tensor) -> Tensor:
    """Exercise 6.3: L_s (). log_p_path: log p(s|a) of each of P paths (P,). log_p_caption: log p(y|s,a) (P,)."""
    # BEGIN SOLUTION
    return (log_p_path.exp() * log_p_caption).sum()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A mean of log p(y|s,a), each path weighted by its probability.

# %% [markdown] tags=["pseudocode"]
# ```
# sum over the paths of exp(log_p_path) * log_p_caption
# ```

# %% [markdown]
# ## 6.4
#
# No gradient passes through a draw. But $\nabla\, \mathbb{E}[r] = \mathbb{E}[\,(r - b)\, \nabla \log p(s \mid a)\,]$,
# and you can sample that. Write a loss whose gradient is *minus* the mean of this over the batch, so that gradient
# descent raises the reward. The reward is a number here: no gradient may flow into it.


# %%
def score_loss(log_p_place: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """Exercise 6.4: the loss (). log_p_place: log p(s|a) (B,), with a graph. reward: (B,), perhaps with one too."""
    # BEGIN SOLUTION
    advantage = (reward - baseline).detach()
    return -(advantage * log_p_place).mean()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `x.detach()` is x as a number without a history. What should keep its history, and what should not?

# %% [markdown] tags=["pseudocode"]
# ```
# advantage = reward - baseline, cut off from the graph
# loss = - mean of advantage * log_p_place
# ```

# %% [markdown]
# ## 6.5
#
# A baseline leaves the estimate unbiased as long as it does not depend on the sample it is subtracted from. The paper's
# baseline follows the rewards from batch to batch:
#
# $$b_k = 0.9\, b_{k-1} + 0.1\, \overline{\log p(y \mid \tilde s_k, a)}$$
#
# Return the advantages of this batch, computed with the *old* baseline, and then the new baseline. Neither may have a
# gradient.


# %%
def moving_average(baseline: float, log_p: Tensor) -> tuple[Tensor, float]:
    """Exercise 6.5: the advantages (B,) and the new baseline. log_p: log p(y|s,a) of the batch (B,), with a graph."""
    # BEGIN SOLUTION
    rewards = log_p.detach()
    advantage = rewards - baseline
    return advantage, 0.9 * baseline + 0.1 * rewards.mean().item()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Detach once, at the top. `.item()` makes a Python number, which has no graph.

# %% [markdown] tags=["pseudocode"]
# ```
# rewards = log_p, cut off from the graph
# advantage = rewards - baseline
# new = 0.9 * baseline + 0.1 * mean of rewards
# ```

# %% [markdown]
# ## 6.6
#
# With $N$ samples of each caption there is a better baseline that costs nothing. For each sample, take the mean reward
# of the $N - 1$ *other* samples of the same caption.
#
# $$b_n = \frac{1}{N - 1} \sum_{k \ne n} r_k$$


# %%
def leave_one_out(rewards: Tensor) -> Tensor:
    """Exercise 6.6: the baseline of each sample (B, N). rewards: (B, N), the samples of a caption in a row."""
    # BEGIN SOLUTION
    total = rewards.sum(1, keepdim=True)
    return (total - rewards) / (rewards.shape[1] - 1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The others' sum is the row's sum less the sample's own reward.

# %% [markdown] tags=["pseudocode"]
# ```
# total = sum of each row
# (total - own reward) / (N - 1)
# ```

# %% [markdown]
# ## 6.7
#
# The entropy of a map says how undecided it is: $\ln L$ if it is even, 0 if one place has all. The paper adds it to the
# objective, to reduce the variance of its estimator. Some weights may be exactly 0; they add nothing.
#
# $$H[s_t] = -\sum_{i=1}^L \alpha_{ti} \ln \alpha_{ti}$$


# %%
def entropy(alpha: Tensor) -> Tensor:
    """Exercise 6.7: the entropy of each map in nats (B,). alpha: (B, L)."""
    # BEGIN SOLUTION
    return -torch.xlogy(alpha, alpha).sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `torch.xlogy(x, y)` is x log y, and 0 where x is 0.

# %% [markdown] tags=["pseudocode"]
# ```
# minus the sum over the places of alpha * log(alpha), where 0 log 0 counts as 0
# ```

# %% [markdown]
# ## 6.8
#
# > **Paper, section 4.1, end.** To lessen the noise further, with probability 0.5 *for a given image* the sampled location is replaced by its expectation.
#
# The coins have been tossed. Where one is True, the image's context is the expectation $\sum_i \alpha_i a_i$. Where it
# is False, it is the vector of the place that was drawn.


# %%
def mix(a: Tensor, alpha: Tensor, places: Tensor, coins: Tensor) -> Tensor:
    """Exercise 6.8: context vectors (B, D). a: (B, L, D). alpha: (B, L). places: (B,), drawn. coins: (B,) bool."""
    # BEGIN SOLUTION
    expected = (alpha.unsqueeze(2) * a).sum(1)
    sampled = a[torch.arange(len(a)), places]
    return torch.where(coins.unsqueeze(1), expected, sampled)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `a[torch.arange(B), places]` picks one row for each image. `torch.where(coin, x, y)` chooses; the coin needs an axis
# for the dimensions.

# %% [markdown] tags=["pseudocode"]
# ```
# expected = sum over the places of alpha * a
# sampled = each image's row of its drawn place
# expected where the coin is True, else sampled
# ```

# %% [markdown]
# ## 6.9
#
# Now write all of it, as a loss whose gradient is minus the paper's estimate. For each caption, with its sampled places
# $\tilde s$,
#
# $$\log p(y \mid \tilde s, a) \;+\; \lambda_r\, \big(\log p(y \mid \tilde s, a) - b\big) \sum_t \log \alpha_{t, \tilde s_t} \;+\; \lambda_e \sum_t H[\alpha_t]$$
#
# with the bracket treated as a constant: no gradient flows through it. The loss is minus the mean of this over the
# batch.


# %%
def estimator(
    log_p_word: Tensor, alphas: Tensor, places: Tensor, baseline: float, lambda_r: float, lambda_e: float
) -> Tensor:
    """Exercise 6.9: the loss (). log_p_word: log p(y_t|...) (B, C). alphas: (B, C, L). places: (B, C)."""
    # BEGIN SOLUTION
    likelihood = log_p_word.sum(1)  # (B,)
    advantage = likelihood.detach() - baseline
    log_p_places = alphas.gather(2, places.unsqueeze(2)).squeeze(2).log().sum(1)
    spread = -torch.xlogy(alphas, alphas).sum((1, 2))
    return -(likelihood + lambda_r * advantage * log_p_places + lambda_e * spread).mean()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Exercises 6.2, 6.4 and 6.7, summed over the words of each caption. One `.detach()` is needed.

# %% [markdown] tags=["pseudocode"]
# ```
# likelihood = sum over the words of log_p_word                  (B,)
# advantage = likelihood - baseline, cut off from the graph      (B,)
# log_p_places = log p of the drawn places, over the words       (B,)
# spread = entropy of the maps, over the words                   (B,)
# loss = - mean of (likelihood + lambda_r * advantage * log_p_places + lambda_e * spread)
# ```

# %% [markdown]
# ## 6.10
#
# Show that the estimate is right on average. Take one word, with energies $e$, weights $\alpha = \mathrm{softmax}(e)$
# and a reward $r_i$ for each place. A sample that drew place $i$ gives the estimate $(r_i - b)\, \partial \log \alpha_i
# / \partial e$. Compute its mean over all places, each as often as it is drawn:
#
# $$\sum_i \alpha_i\, (r_i - b)\, \frac{\partial \log \alpha_i}{\partial e}, \qquad \frac{\partial \log \alpha_i}{\partial e_j} = [i = j] - \alpha_j .$$


# %%
def expected_estimate(e: Tensor, reward: Tensor, baseline: float) -> Tensor:
    """Exercise 6.10: the mean estimate of the gradient with respect to e, (L,). e, reward: (L,)."""
    # BEGIN SOLUTION
    alpha = torch.softmax(e, 0)
    scores = torch.eye(len(e)) - alpha  # row i: the gradient of log alpha_i
    estimates = (reward - baseline).unsqueeze(1) * scores
    return alpha @ estimates
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Make a matrix with one row for each place: its estimate. `torch.eye(L) - alpha` has the gradients of all
# $\log \alpha_i$. Then take the mean of the rows with the weights $\alpha$.

# %% [markdown] tags=["pseudocode"]
# ```
# alpha = softmax of e
# scores[i, j] = (1 if i == j else 0) - alpha[j]
# estimates[i] = (reward[i] - baseline) * scores[i]
# the sum over i of alpha[i] * estimates[i]
# ```

# %% [markdown]
# Now compare it with the gradient of the expected reward, for three baselines.

# %%
e, reward = torch.tensor([0.5, -1.0, 2.0]), torch.tensor([-4.0, -9.0, -6.0])
leaf = e.clone().requires_grad_()
(torch.softmax(leaf, 0) @ reward).backward()
print("exact gradient", [round(value, 4) for value in leaf.grad.tolist()])
for baseline in (0.0, -6.0, 100.0):
    print(f"b = {baseline:6.1f}:   ", [round(value, 4) for value in expected_estimate(e, reward, baseline).tolist()])

# %% [markdown]
# ## 6.11
#
# **Predict, then run.** Four places with the weights 1/4 each. Their rewards are -10, -11, -12 and -13. One sample
# estimates the gradient with respect to the energies, as in 6.10, once with $b = 0$ and once with $b = -11.5$, the mean
# reward. The variance is the sum over the gradient's components. What is it with the baseline, as a share of that
# without? A rough number is enough, such as 0.2.


# %%
def share() -> float:
    """Exercise 6.11: the variance with b = -11.5, divided by the variance with b = 0."""
    # BEGIN SOLUTION
    # The mean squares of the rewards with and without the baseline, each times the squared length of a score, 0.75. Then
    # subtract the squared length of the mean gradient, 0.3125, from each.
    return (1.25 * 0.75 - 0.3125) / (133.5 * 0.75 - 0.3125)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The estimate is the reward, less the baseline, times a vector that depends on the place but not on the baseline, and
# that is equally long for all four places. By about how much are the rewards off zero, and by how much off their mean?
# The variance goes with the square.

# %% [markdown]
# Now run it.

# %%
alpha, reward = torch.full((4,), 0.25), -torch.arange(10.0, 14.0)
variances = []
for baseline in (0.0, -11.5):
    estimates = (reward - baseline).unsqueeze(1) * (torch.eye(4) - alpha)
    variances.append((alpha @ (estimates - alpha @ estimates).square().sum(1)).item())
    print(f"b = {baseline:5.1f}: variance {variances[-1]:.3f}")
print(f"share {variances[1] / variances[0]:.4f}")

# %% [markdown]
# ## 6.12
#
# A loss whose gradient should be minus the paper's estimate, for $N$ sampled paths: the likelihood's own gradient, and
# the advantage times that of $\log p(\tilde s \mid a)$. Without attention's part the training works. With it, the
# decoder learns less from unlikely paths, and on very unlikely ones it learns to *lower* the likelihood. Find the bug
# and fix it.


# %%
def reinforce_loss(log_p: Tensor, log_likelihood: Tensor, baseline: float) -> Tensor:
    """Exercise 6.12: the loss (). log_p: (N,), log p(s | a). log_likelihood: (N,), log p(y | s, a); both have gradients."""
    # BEGIN SOLUTION
    advantage = (log_likelihood - baseline).detach()
    # END SOLUTION
    # STUB advantage = log_likelihood - baseline
    return -(log_likelihood + advantage * log_p).mean()


# %% [markdown] tags=["hint"]
# Take the gradient of the loss with respect to `log_likelihood` by hand. It should be $-1/N$ for each sample.

# %% [markdown]
# ## 6.13
#
# Two models with the same encoder, `flickr8k-soft` and `flickr8k-hard`, on 1,000 test photographs. These are the
# differences (hard less soft) with 95 % intervals; they come from docs/not-reproduced.md. Each of the two models was
# trained once.
#
# | BLEU-1 | BLEU-4 | METEOR | CIDEr |
# | ---: | ---: | ---: | ---: |
# | -0.9 to +0.8 | -1.1 to +0.6 | -0.63 to +0.07 | -2.0 to +1.7 |
#
# The paper's hard row is 1.8 BLEU-4 above its soft row. What may you conclude from the four intervals?
#
# - **a.** Hard attention gives better captions, as the paper says.
# - **b.** The two kinds of attention are equally good.
# - **c.** Soft attention is better: the intervals reach further below 0 than above it, and another training would show the same.
# - **d.** These two models do not show which kind is better, and a gain of 1.8 BLEU-4 is unlikely for them.


# %%
def what_the_rows_show() -> str:
    """Exercise 6.13: "a", "b", "c" or "d"."""
    # BEGIN SOLUTION
    return "d"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# What does an interval that contains 0 say? And what varies in it: the photographs, the training, or both?

# %% [markdown]
# ## Explore: Samples or baselines?
#
# A smaller variance can be bought with more samples or with a better baseline. The cell below measures the first. Add
# the second: for 2, 4 and 8 samples, take the mean of the *other* samples as a baseline (exercise 6.6). Draw the
# variance against the number of samples, with and without the baseline. How many samples without a baseline have the
# same variance as two samples with it? Does the answer depend on the rewards? What does each cost?

# %%
alpha, reward = torch.softmax(torch.tensor([0.5, -1.0, 2.0, 0.0]), 0), torch.tensor([-10.0, -11.0, -12.0, -13.0])
generator = torch.Generator().manual_seed(0)
for samples in (1, 2, 4, 8):
    places = torch.multinomial(alpha.expand(4000, -1), samples, replacement=True, generator=generator)
    estimates = (reward[places].unsqueeze(2) * (torch.eye(4)[places] - alpha)).mean(1)
    print(f"{samples} samples: variance {estimates.var(0).sum():.2f}")

# %% [markdown] tags=["rubric"]
# A full answer
#
# - has a figure of variance against samples, with and without the baseline;
# - finds by how much the variance falls with twice the samples, and why;
# - says for which rewards the baseline of the others helps little;
# - counts what each costs: one sample is one pass of the decoder.
