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
# A draw, its probability, the bound, and the estimator of its gradient: term by term, then all of it. Write each function, run its cell and the check
# below it. Below the check wait a hint, a pseudocode and a solution, folded.
#
# Shapes: $B$ captions of $C$ words, $L$ places; $s_t$ is a place, by number; $N$ samples of a caption.

# %%
import torch
from torch import Tensor

from satlib.exercises import check, reference

# %% [markdown]
# ## 6.1
#
# Lay the weights end to end on a line from 0 to 1; place 0 begins at 0. A dart hits the line at a number between 0 and 1: on which place?
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
# `cumsum` gives the place's right edges. The number of edges at or below the dart is the number of places that it flew past.

# %% [markdown] tags=["pseudocode"]
# ```
# edges = running sum of the weights, without the last (which is 1)
# place = how many edges are at or below the dart
# ```

# %% [markdown]
# ## 6.2
#
# The log-probability of a whole way of looking, $s = (s_1, \dots, s_C)$: the weights of the places that were drawn, one for each word.
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
# In a case small enough, all paths $s$ can be listed. Given each one's log-probability and the caption's log-probability along it, compute the bound:
#
# $$L_s = \sum_s p(s \mid a) \log p(y \mid s, a) \;\le\; \log \sum_s p(s \mid a)\, p(y \mid s, a) = \log p(y \mid a)$$


# %%
def bound(log_p_path: Tensor, log_p_caption: Tensor) -> Tensor:
    """Exercise 6.3: L_s (). log_p_path: log p(s|a) of each of P paths (P,). log_p_caption: log p(y|s,a) (P,)."""
    # BEGIN SOLUTION
    return (log_p_path.exp() * log_p_caption).sum()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A mean of log p(y|s,a), each path weighed by its probability.

# %% [markdown] tags=["pseudocode"]
# ```
# sum over the paths of exp(log_p_path) * log_p_caption
# ```

# %% [markdown]
# ## 6.4
#
# No gradient passes through a draw. But $\nabla\, \mathbb{E}[r] = \mathbb{E}[\,(r - b)\, \nabla \log p(s \mid a)\,]$, and that can be sampled. Write a loss whose gradient is
# *minus* the mean of this over the batch, so that gradient descent raises the reward. The reward is a number here: no gradient may flow into it.


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
# A baseline leaves the estimate unbiased as long as it does not know the sample that it is taken off. The paper's follows the rewards from batch to batch:
#
# $$b_k = 0.9\, b_{k-1} + 0.1\, \overline{\log p(y \mid \tilde s_k, a)}$$
#
# Give the advantages of this batch, taken with the *old* baseline, and then the new one. Neither may hang on the graph.


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
# With $N$ samples of each caption there is a better baseline, and it costs nothing: for each sample, the mean reward of the $N - 1$ *others* of the same caption.
#
# $$b_n = \frac{1}{N - 1} \sum_{k \ne n} r_k$$


# %%
def other_samples(rewards: Tensor) -> Tensor:
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
# The entropy of a map says how undecided it is: $\ln L$ if it is even, 0 if one place has all. The paper adds it to the objective, to
# reduce the variance of its estimator. Some weights may be exactly 0; they add nothing.
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
# The coins have been tossed: where one is True, the image's context is the expectation $\sum_i \alpha_i a_i$; where it is False, the vector of the place that was drawn.


# %%
def mix(a: Tensor, alpha: Tensor, places: Tensor, coins: Tensor) -> Tensor:
    """Exercise 6.8: context vectors (B, D). a: (B, L, D). alpha: (B, L). places: (B,), drawn. coins: (B,) bool."""
    # BEGIN SOLUTION
    expected = (alpha.unsqueeze(2) * a).sum(1)
    sampled = a[torch.arange(len(a)), places]
    return torch.where(coins.unsqueeze(1), expected, sampled)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `a[torch.arange(B), places]` picks one row for each image. `torch.where(coin, x, y)` chooses; the coin needs an axis for the dimensions.

# %% [markdown] tags=["pseudocode"]
# ```
# expected = sum over the places of alpha * a
# sampled = each image's row of its drawn place
# expected where the coin is True, else sampled
# ```

# %% [markdown]
# ## 6.9
#
# All of it, as a loss whose gradient is minus the paper's estimate. For each caption, with its sampled places $\tilde s$,
#
# $$\log p(y \mid \tilde s, a) \;+\; \lambda_r\, \big(\log p(y \mid \tilde s, a) - b\big) \sum_t \log \alpha_{t, \tilde s_t} \;+\; \lambda_e \sum_t H[\alpha_t]$$
#
# with the bracket a number, not a function of the weights. The loss is minus the mean of this over the batch.


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
# loss = - mean of likelihood + lambda_r * advantage * log_p_places + lambda_e * spread
# ```
