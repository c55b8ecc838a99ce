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
# # Exercises 8. Training for real
#
# What changes when numbers have 8 significant bits, when several processes share a batch, and when a training run has
# to stop or resume by itself? Write each function, run its cell, and run the check below it. Under each check you can
# unfold a hint, the solution and, where you write a whole function, pseudocode.

# %%
import copy

import torch
from torch import Tensor

from satcourse.exercises import carry_on, check

# %% [markdown]
# ## 8.1
#
# On a GPU the decoder runs in bf16, which keeps 8 significant bits of a number: near 1 the next number is 1.0078. The
# maps come in bf16, and the penalty
#
# $$\sum_{i=1}^L \Big(1 - \sum_{t=1}^C \alpha_{ti}\Big)^2$$
#
# consists of sums and of small differences. Where must float32 begin, so that nothing in the maps is lost? Return the
# penalty in float32.


# %%
def precise_penalty(alphas: Tensor) -> Tensor:
    """Exercise 8.1: the penalty of each caption (B,) in float32. alphas: (B, C, L), bf16."""
    # BEGIN SOLUTION
    share = alphas.float().sum(1)  # (B, L)
    return (1 - share).square().sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A sum in bf16 is rounded to 8 bits as soon as it is made. `alphas.float()` is the same maps in float32.

# %% [markdown] tags=["pseudocode"]
# ```
# convert the maps to float32
# share = sum over the words; then as in exercise 5.2
# ```

# %% [markdown]
# ## 8.2
#
# A batch is shared among processes: rank $r$ of `size` takes some of its rows. No row may be left out or taken twice,
# and no process may get more than one row more than any other, because the slowest decides how long a step takes. Which
# rows does rank $r$ take? Any such division will do.


# %%
def rows_of(rows: int, rank: int, size: int) -> list[int]:
    """Exercise 8.2: the numbers of the rows (from 0) that a rank takes. rows: in the batch. rank: 0 to size - 1."""
    # BEGIN SOLUTION
    return [row for row in range(rows) if row % size == rank]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Deal them out like cards.

# %% [markdown] tags=["pseudocode"]
# ```
# rank r takes rows r, r + size, r + 2 size, ... as long as there are any
# ```

# %% [markdown]
# ## 8.3
#
# Each rank has the gradient $g_r$ of *its* mean loss, over its $n_r$ rows. What is the gradient of the mean over all
# rows? (Frameworks average over the ranks. With unequal rows that is a different gradient. A rank may even have no
# rows; its gradient is then zero.)


# %%
def whole_gradient(gradients: Tensor, rows: Tensor) -> Tensor:
    """Exercise 8.3: the gradient of the whole batch's mean (W,). gradients: (R, W), of each rank's mean. rows: (R,), of each."""
    # BEGIN SOLUTION
    share = rows / rows.sum()
    return share @ gradients
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A mean times its number of rows is a sum, and sums can be added.

# %% [markdown] tags=["pseudocode"]
# ```
# sum over the ranks of (its rows times its gradient), divided by all rows
# ```

# %% [markdown]
# ## 8.4
#
# Sometimes a batch gives such a large gradient that one step ruins the model. Clip it: if the norm of *all* gradients
# together, as one long vector, is above the limit, make all of them smaller by the same factor, so that the norm is the
# limit. The direction stays. If the norm is not above the limit, all gradients stay as they are. The norm may be zero.


# %%
def clipped(gradients: list[Tensor], most: float) -> list[Tensor]:
    """Exercise 8.4: the gradients of all weights, clipped together. gradients: of any shapes. most: the largest norm."""
    # BEGIN SOLUTION
    norm = sum(gradient.square().sum() for gradient in gradients).sqrt()
    if norm <= most:
        return [gradient.clone() for gradient in gradients]
    return [gradient * (most / norm) for gradient in gradients]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The square of the whole norm is the sum of the squares of all numbers of all gradients.

# %% [markdown] tags=["pseudocode"]
# ```
# norm = root of the sum of all squares
# factor = most / norm if the norm is above the limit, else 1
# every gradient times the factor
# ```

# %% [markdown]
# ## 8.5
#
# > **Paper, section 4.3.** The model that is kept is the one with the best BLEU on held-out captions, and early stopping uses the same score.
#
# After each epoch there is a score. Higher is better; an equal score is not. Training stops after `patience` epochs in
# a row without a better score, or when the scores end. Which epoch was the best, and which the last? Count epochs from
# 1.


# %%
def best_and_last(scores: list[float], patience: int) -> tuple[int, int]:
    """Exercise 8.5: (best epoch, last epoch), from 1. scores: one for each epoch, as if training never stopped early."""
    # BEGIN SOLUTION
    best = 1
    for epoch in range(1, len(scores) + 1):
        if scores[epoch - 1] > scores[best - 1]:
            best = epoch
        if epoch - best == patience:
            return best, epoch
    return best, len(scores)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Remember the best epoch so far. How many epochs have passed since then?

# %% [markdown] tags=["pseudocode"]
# ```
# best = 1
# for each epoch:
#     if its score is above the best one's: best = epoch
#     if epoch - best is patience: stop here
# ```

# %% [markdown]
# ## 8.6
#
# A training run is stopped and resumed in a new process. It should go on as if it had never stopped. It does not: after
# the stop the losses are different. Find the bug and fix it.
#
# `begin(problem)` returns a new model and its optimiser, Adam. `steps` makes some steps and returns their losses.


# %%
def begin(problem: tuple) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A new model and its optimiser. problem: a seed, inputs (B, 4) and targets (B, 1)."""
    torch.manual_seed(problem[0])
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), 0.05)


def steps(model: torch.nn.Module, optimiser: torch.optim.Optimizer, problem: tuple, count: int) -> list[float]:
    """The losses before each of `count` steps."""
    _, x, y = problem
    losses = []
    for _ in range(count):
        loss = (model(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


# %%
def in_two_parts(problem: tuple, first: int, second: int) -> list[float]:
    """Exercise 8.6: the losses of `first` steps and, after a stop, of `second` more steps."""
    model, optimiser = begin(problem)
    losses = steps(model, optimiser, problem, first)
    # BEGIN SOLUTION
    kept = copy.deepcopy({"model": model.state_dict(), "optimiser": optimiser.state_dict()})
    # END SOLUTION
    # STUB kept = copy.deepcopy({"model": model.state_dict()})
    # Here the process ends. A new one begins, and has only what was kept.
    model, optimiser = begin(problem)
    model.load_state_dict(kept["model"])
    # BEGIN SOLUTION
    optimiser.load_state_dict(kept["optimiser"])
    # END SOLUTION
    # STUB # and on we go
    return losses + steps(model, optimiser, problem, second)


# %% [markdown] tags=["hint"]
# Adam keeps two running means for each weight, and it counts its steps. Where are they after the stop?
