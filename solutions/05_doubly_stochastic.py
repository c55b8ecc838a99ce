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
# # Exercises 5. Doubly stochastic attention, and what soft attention approximates
#
# The penalty of equation 14, and the average that soft attention approximates. Many programs get one of them wrong by a
# sum over the wrong axis. Write each function, run its cell, and run the check below it. Under each check you can
# unfold a hint, the solution and, where you write a whole function, pseudocode.
#
# Shapes: $B$ captions of $C$ words, $L$ places, $K$ words in the vocabulary.

# %%
import torch
from torch import Tensor

from satcourse.exercises import carry_on, check

# %% [markdown]
# ## 5.1
#
# The penalty wants every place to get 1 over a whole caption. But the weights of each word sum to 1, so a caption of
# $C$ words has $C$ to give to $L$ places. What is the least value that the penalty
# $\sum_{i=1}^L (1 - \sum_t \alpha_{ti})^2$ can take?


# %%
def least_penalty(C: int, L: int) -> float:
    """Exercise 5.1: the smallest possible penalty of a caption of C words and L places."""
    # BEGIN SOLUTION
    share = C / L  # the same for each place
    return L * (1 - share) ** 2
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Write $m_i$ for what place $i$ gets. The $m_i$ sum to $C$. For which $m_i$ is $\sum_i (1 - m_i)^2$ smallest? Try two
# places and one word first.

# %% [markdown] tags=["pseudocode"]
# ```
# share = C / L
# L times (1 - share) squared
# ```

# %% [markdown]
# ## 5.2
#
# Now the penalty itself. The weights of each place, summed over the words, should be about 1. A caption's penalty is
# the squared distance from that, summed over the places:
#
# $$\sum_{i=1}^L \Big(1 - \sum_{t=1}^C \alpha_{ti}\Big)^2$$


# %%
def penalty(alphas: Tensor) -> Tensor:
    """Exercise 5.2: one number for each caption (B,). alphas: (B, C, L)."""
    # BEGIN SOLUTION
    miss = 1 - alphas.sum(1)  # (B, L)
    return (miss**2).sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The brackets show the order: a sum over words, a difference, a square, and then the sum over places.

# %% [markdown] tags=["pseudocode"]
# ```
# share = alphas summed over the words       (B, L)
# penalty = (1 - share) squared, summed over the places
# ```

# %% [markdown]
# ## 5.3
#
# Training minimises the captions' negative log-likelihood plus $\lambda$ times the penalty, averaged over the captions
# of the batch.
#
# $$L_d = -\log p(y \mid a) + \lambda \sum_{i=1}^L \Big(1 - \sum_{t=1}^C \alpha_{ti}\Big)^2, \qquad \log p(y \mid a) = \sum_{t=1}^C \log p(y_t \mid a, y_{<t})$$


# %%
def objective(log_p: Tensor, alphas: Tensor, weight: float) -> Tensor:
    """Exercise 5.3: the loss of a batch (). log_p: (B, C), of each word. alphas: (B, C, L). weight: lambda."""
    # BEGIN SOLUTION
    nll = -log_p.sum(1)  # (B,)
    return (nll + weight * penalty(alphas)).mean()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `penalty` returns one number for each caption. So does the sum of its words' log-probabilities. Take the mean over the
# captions last.

# %% [markdown] tags=["pseudocode"]
# ```
# nll = minus the sum of log_p over the words        (B,)
# loss = mean over the captions of nll + weight * penalty
# ```

# %% [markdown]
# ## 5.4
#
# If a place were drawn from the weights, the next word's probability would be a mean over the places. Each place has
# its own distribution, from its own pass of the decoder:
#
# $$p(y_t) = \sum_{i=1}^L \alpha_{ti}\; \mathrm{softmax}(n_{ti})$$
#
# where $n_{ti}$ are the logits if place $i$ is what was seen.


# %%
def marginal(alpha: Tensor, n: Tensor) -> Tensor:
    """Exercise 5.4: the word's distribution (B, K), exactly. alpha: (B, L). n: (B, L, K)."""
    # BEGIN SOLUTION
    p = torch.softmax(n, dim=2)
    return (alpha.unsqueeze(2) * p).sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# First a distribution for each place, a softmax over the K words; then their weighted mean.

# %% [markdown] tags=["pseudocode"]
# ```
# p = softmax of n over the words        (B, L, K)
# sum over the places of alpha * p       (B, K)
# ```

# %% [markdown]
# ## 5.5
#
# Soft attention makes one pass instead of $L$. It approximates another kind of mean, the normalised weighted geometric
# mean (NWGM):
#
# $$\mathrm{NWGM}(y_t = k) = \frac{\prod_i p_{ik}^{\alpha_i}}{\sum_j \prod_i p_{ij}^{\alpha_i}}$$


# %%
def geometric(alpha: Tensor, p: Tensor) -> Tensor:
    """Exercise 5.5: the NWGM (B, K) of the places' distributions p (B, L, K), with weights alpha (B, L)."""
    # BEGIN SOLUTION
    product = (p ** alpha.unsqueeze(2)).prod(1)  # (B, K)
    return product / product.sum(1, keepdim=True)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A product over the places for each word, then divide by the sum over the words. (A product is the exp of a sum of
# logarithms.)

# %% [markdown] tags=["pseudocode"]
# ```
# product = product over the places of p to the power alpha      (B, K)
# product / (sum of product over the words)
# ```

# %% [markdown]
# ## 5.6
#
# Why is the NWGM interesting? If each $p_i$ is a softmax of logits $n_i$, you do not need the distributions of the
# individual places: the NWGM is *one* softmax, of the expected logits. Write that. The check compares it with the NWGM.
#
# $$\mathrm{NWGM} = \mathrm{softmax}\Big(\sum_{i=1}^L \alpha_i n_i\Big)$$


# %%
def softmax_of_mean(alpha: Tensor, n: Tensor) -> Tensor:
    """Exercise 5.6: the NWGM (B, K) by one softmax. alpha: (B, L). n: (B, L, K)."""
    # BEGIN SOLUTION
    expected = torch.einsum("bl,blk->bk", alpha, n)
    return torch.softmax(expected, dim=1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The same two operations as in 5.4, in the other order.

# %% [markdown] tags=["pseudocode"]
# ```
# expected = sum over the places of alpha * n    (B, K)
# softmax of expected over the words
# ```

# %% [markdown]
# ## 5.7
#
# A caption of 12 words cannot give 1 to each of 196 places. What does the penalty then ask of the maps? (Notebook 05
# computes its gradient for three goals $\tau$.)
#
# - **a.** It raises the attention that the caption spends, until every place has 1.
# - **b.** It evens out the coverage: places that got more than others should get less.
# - **c.** It makes the map of every single word even.
# - **d.** It asks for nothing. Where the goal cannot be reached, there is no gradient.


# %%
def what_it_asks() -> str:
    """Exercise 5.7: "a", "b", "c" or "d"."""
    # BEGIN SOLUTION
    return "b"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Look at points 1, 2 and 3 in the notebook's section "What it asks for", and at the maps after 250 steps.

# %% [markdown]
# ## 5.8
#
# In one batch the captions have different lengths. The short ones are filled up, and the decoder makes a map for every
# step, for the padding too. This function is used in a training run, and something is odd: a caption of two words in a
# batch of long ones gets a *smaller* penalty than the same caption alone. Find the bug and fix it.


# %%
def batch_penalty(alphas: Tensor, lengths: Tensor) -> Tensor:
    """Exercise 5.8: the mean penalty of a batch, (). alphas: (B, T, L), filled up to T words. lengths: (B,), the true ones."""
    # BEGIN SOLUTION
    real = torch.arange(alphas.shape[1]) < lengths.unsqueeze(1)  # (B, T): False at padding
    share = (alphas * real.unsqueeze(2)).sum(1)
    # END SOLUTION
    # STUB share = alphas.sum(1)
    penalty = (1 - share).square().sum(1)
    return penalty.mean()


# %% [markdown] tags=["hint"]
# `lengths` is never used. Which of the T maps of a caption belong to its words?

# %% [markdown]
# ## Explore: How much lambda?
#
# The cell below lets the penalty and one other wish act on energies that are themselves the parameters. The other wish
# is that each of 12 words puts its weight on a place of its own choice. Change $\lambda$ from 0 to 10. When does the
# penalty begin to win? What happens to a word whose place another word wants too? Draw what you find.

# %%
wanted = torch.tensor([0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5, 6])  # the place that each of 12 words would like, of 49
for weight in (0.0, 0.1, 1.0):
    e = torch.zeros(12, 49, requires_grad=True)
    optimiser = torch.optim.Adam([e], 0.1)
    for _ in range(200):
        alpha = torch.softmax(e, 1)
        wish = -alpha[torch.arange(12), wanted].log().sum()
        loss = wish + weight * (1 - alpha.sum(0)).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(
        f"lambda {weight}: {alpha[torch.arange(12), wanted].mean().item():.2f} of a word's weight is where it wants it"
    )

# %% [markdown] tags=["rubric"]
# A full answer
#
# - tries at least five values of $\lambda$ and draws the weight at the wanted places against $\lambda$;
# - says for which words the penalty changes the map first, and why;
# - compares the coverage with the even share 12/49;
# - says what plays the part of the other wish in a real decoder;
# - names one thing that this toy leaves out.
