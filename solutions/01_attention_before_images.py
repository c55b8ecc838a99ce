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
# Scores, a softmax, a weighted mean: the attention of notebook 01, before there is any image. Write each function, run
# its cell, and run the check below it. Under each check you can unfold a hint, the solution and, where you write a
# whole function, pseudocode.
#
# Shapes: $B$ sentences of $L$ words; each word has an annotation vector of $D$ dimensions. (In 1.4: $B$ memories of $L$
# sentences, with one question for each memory.)

# %%
import torch
from torch import Tensor

from satcourse.exercises import carry_on, check

# %% [markdown]
# ## 1.1
#
# Attention in general takes inputs $y_1, \dots, y_L$ and a score for each. Return the mean of the inputs, weighted by
# the softmax of the scores:
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
# `s.unsqueeze(1)` has an axis of size 1 in the middle, so it is multiplied with every word of its own sentence. Or
# `torch.einsum("bld,bd->bl", a, s)`.

# %% [markdown] tags=["pseudocode"]
# ```
# products = a times s, the same s for all words of a sentence     (B, L, D)
# e = products summed over the D dimensions                        (B, L)
# ```

# %% [markdown]
# ## 1.3
#
# A batch holds sentences of different lengths, with padding at their ends. `mask` is True where there is a word. Return
# weights that are 0 at padding and sum to 1 over the words.


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
# A memory network embeds every sentence twice: as an address $m_i$, which is compared with the question $u$, and as
# content $c_i$, which is read:
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
# Exercise 1.2 gives the scores, a softmax over the sentences the weights, exercise 1.1 the mean: of the contents, not
# of the addresses.

# %% [markdown] tags=["pseudocode"]
# ```
# p = softmax over the sentences of (m . u)      (B, L)
# o = sum over the sentences of p times c        (B, D)
# return o + u
# ```

# %% [markdown]
# ## 1.5
#
# This function collects the alignment matrix of one sentence. Before each word the decoder's state asks all places,
# $\alpha_t = \mathrm{softmax}(a\, s_{t-1})$, and then `step` gives the next state from the word before, the context and
# the state. But something is odd in every matrix that it makes: the first two rows are alike. In the example below,
# each later row shows where the word *before* should have looked. Find the bug and fix it.
#
# The lines below the function try it on a decoder that wants to move on by one place at each step. The 1s should be on
# the diagonal.


# %%
def alignment(a: Tensor, s: Tensor, E: Tensor, step) -> Tensor:
    """Exercise 1.5: the weights before each word, (C, L).

    a: (L, D), the places. s: (D,), the first state. E: (C, m), the embedding of the word before each word.
    step(Ey, z, s): the next state (D,), from an embedding (m,), a context (D,) and a state (D,).
    """
    rows = []
    query = s
    for Ey in E:
        alpha = torch.softmax(a @ query, dim=0)  # (L,)
        z = alpha @ a
        # BEGIN SOLUTION
        s = step(Ey, z, s)
        query = s
        # END SOLUTION
        # STUB query = s
        # STUB s = step(Ey, z, s)
        rows.append(alpha)
    return torch.stack(rows)


places = 5 * torch.eye(4)
print(alignment(places, places[0], torch.zeros(4, 1), lambda Ey, z, s: s.roll(1)).round())

# %% [markdown] tags=["hint"]
# Go through the first two turns of the loop by hand. Which state does word 1 ask with, and which state does word 2 ask
# with?

# %% [markdown]
# ## 1.6
#
# Four words have the scores 2, 0, 0, 0. The softmax gives the first one a weight of 0.71 and the others 0.10 each. Now
# add 5 to all four scores, and then multiply them by 2. What is the weight of the first word then? Predict it before
# you run anything.


# %%
def new_weight() -> float:
    """Exercise 1.6: the first word's weight, to two decimals."""
    # BEGIN SOLUTION
    return 0.95  # the ratio to another word was exp(2) = 7.4; now it is exp(4) = 55; and 55 / (55 + 3) = 0.95
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The ratio of two weights is $\exp(s_1 - s_2)$. What happens to that difference when you add 5? When you multiply by 2?

# %% [markdown]
# Now run it.

# %%
scores = torch.tensor([2.0, 0.0, 0.0, 0.0])
for name, changed in (
    ("as they are", scores),
    ("plus 5", scores + 5),
    ("plus 5, times 2", 2 * (scores + 5)),
    ("times 1/2", scores / 2),
):
    print(f"{name:16}", " ".join(f"{weight:.3f}" for weight in torch.softmax(changed, 0).tolist()))

# %% [markdown]
# ## 1.7
#
# Notebook 01 draws BLEU-4 for English sentences of 6 to 8, 9 to 12, 13 to 16 and 17 to 20 words. The translator with
# one fixed vector loses most of its score from the first group to the last. The one with attention loses little. Why
# does the first one fail on long sentences?
#
# - **a.** It has never been trained on sentences that long.
# - **b.** A long sentence has more runs of four words that can be wrong, so BLEU is lower for it.
# - **c.** When the encoder comes to the end of a long sentence, it has forgotten the beginning.
# - **d.** The vector has the same number of dimensions for 6 words and for 20, and the decoder gets nothing else.


# %%
def why_it_fails() -> str:
    """Exercise 1.7: "a", "b", "c" or "d"."""
    # BEGIN SOLUTION
    return "d"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Both translators have the same encoder, sentences, steps and score. What can the second decoder read that the first
# cannot?
