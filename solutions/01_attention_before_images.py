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
# # Exercises 1. Attention before images
#
# Scores, a softmax, a weighted mean: attention as notebook 01 has it, before there is any image. Write each function, run its cell and the check below
# it. Below the check wait a hint, a pseudocode and a solution, folded.
#
# Shapes: $B$ sentences of $L$ words, each with an annotation vector of $D$ dimensions.

# %%
import torch
from torch import Tensor

from satlib.exercises import check, reference

# %% [markdown]
# ## 1.1
#
# Attention in general: given inputs $y_1, \dots, y_L$ and a score for each, weigh the inputs by a softmax of the scores and give their mean:
#
# $$z = \sum_{i=1}^L \alpha_i\, y_i, \qquad \alpha_i = \frac{\exp(s_i)}{\sum_k \exp(s_k)}$$


# %%
def attend(y: Tensor, scores: Tensor) -> Tensor:
    """Exercise 1.1: one vector (D,) from inputs y (L, D) and their scores (L,)."""
    # BEGIN SOLUTION
    alpha = scores.exp() / scores.exp().sum()
    return alpha @ y
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A vector of L weights times a matrix of L rows is the weighted sum of the rows.

# %% [markdown] tags=["pseudocode"]
# ```
# alpha = exp(scores) / sum of exp(scores)
# z = sum over i of alpha_i y_i
# ```

# %% [markdown]
# ## 1.2
#
# The simplest score is a dot product: the decoder's state $s$ asks every word of its sentence "are you like me?"
#
# $$e_i = a_i^\top s$$


# %%
def dot_energies(a: Tensor, s: Tensor) -> Tensor:
    """Exercise 1.2: an energy for each word (B, L), from annotation vectors a (B, L, D) and states s (B, D)."""
    # BEGIN SOLUTION
    return (a * s.unsqueeze(1)).sum(2)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# With an axis of size 1 in the middle, `s.unsqueeze(1)` meets every word of its own sentence. Or `torch.einsum("bld,bd->bl", a, s)`.

# %% [markdown] tags=["pseudocode"]
# ```
# products = a times s, the same s for all words of a sentence     (B, L, D)
# e = products summed over the D dimensions                        (B, L)
# ```

# %% [markdown]
# ## 1.3
#
# Sentences of different lengths lie in one batch with padding at their ends. `mask` is True where there is a word. Give weights that are 0 at padding and
# sum to 1 over the words.


# %%
def masked_weights(e: Tensor, mask: Tensor) -> Tensor:
    """Exercise 1.3: weights (B, L) over the words alone, from energies e (B, L) and a mask (B, L) of bool, True at words."""
    # BEGIN SOLUTION
    e = e.masked_fill(~mask, -torch.inf)
    return torch.softmax(e, dim=1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# What energy does a softmax turn into a weight of exactly 0? `masked_fill(where, value)` gives a copy.

# %% [markdown] tags=["pseudocode"]
# ```
# e = e, but minus infinity where there is no word
# alpha = softmax of e over the words
# ```

# %% [markdown]
# ## 1.4
#
# A memory network embeds every sentence twice: as an address $m_i$, which is compared with the question $u$, and as content $c_i$, which is read:
#
# $$p_i = \mathrm{softmax}(u^\top m_i), \qquad o = \sum_i p_i c_i, \qquad u' = o + u$$


# %%
def hop(m: Tensor, c: Tensor, u: Tensor) -> Tensor:
    """Exercise 1.4: the next question u' (B, D), from addresses m (B, L, D), contents c (B, L, D) and questions u (B, D)."""
    # BEGIN SOLUTION
    p = torch.softmax((m * u.unsqueeze(1)).sum(2), dim=1)
    o = (p.unsqueeze(2) * c).sum(1)
    return o + u
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Exercise 1.2 gives the scores, a softmax over the sentences the weights, exercise 1.1 the mean: of the contents, not of the addresses.

# %% [markdown] tags=["pseudocode"]
# ```
# p = softmax over the sentences of (m . u)      (B, L)
# o = sum over the sentences of p times c        (B, D)
# return o + u
# ```

# %% [markdown]
# ## 1.5
#
# Nobody has to ask: the inputs can score themselves (Raffel and Ellis, 2015). A sequence of any length becomes one vector, without recurrence:
#
# $$s_t = \tanh(w \cdot h_t + b), \qquad \alpha = \mathrm{softmax}(s), \qquad c = \sum_t \alpha_t h_t$$


# %%
def feed_forward(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Exercise 1.5: one vector for each sequence (B, D). h: (B, T, D). w: (D,). b: ()."""
    # BEGIN SOLUTION
    scores = torch.tanh(h @ w + b)  # (B, T)
    alpha = torch.softmax(scores, dim=1)
    return torch.einsum("bt,btd->bd", alpha, h)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `h @ w` is (B, T): one number for each step. The tanh comes before the softmax.

# %% [markdown] tags=["pseudocode"]
# ```
# scores = tanh(h . w + b)                   (B, T)
# alpha = softmax over the steps
# c = sum over the steps of alpha times h    (B, D)
# ```
