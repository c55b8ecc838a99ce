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
# # Exercises 9. Reading the model
#
# Draw a map over a picture, measure whether it is on the thing that a word names, and read a caption that is wrong.
# Write each function, run its cell, and run the check below it. Under each check you can unfold a hint, the solution
# and, where you write a whole function, pseudocode.

# %%
import json
from importlib import resources

import torch
from torch import Tensor

from satcourse.exercises import carry_on, check
from satcourse.exercises.ex09 import wrong_caption
from satlib.evaluation import plots

# %% [markdown]
# ## 9.1
#
# **Predict, then run.** People drew boxes around what the phrases of Flickr8k's captions name: "a man", "a red shirt",
# "the beach". Somebody who always points at the exact middle of the photograph is right if the middle lies in a box of
# the phrase. How often is that, in percent of the phrases?


# %%
def centre_hits() -> float:
    """Exercise 9.1: your prediction, from 0 to 100."""
    # BEGIN SOLUTION
    return 55
    # END SOLUTION


# %% [markdown] tags=["hint"]
# An even map has 31 % of its weight in the boxes. Are the boxes anywhere in the picture, or mostly in its middle?

# %% [markdown]
# Now run it: the stored measurement of a model that was trained on captions alone.

# %%
results = resources.files("satlib") / "results" / "flickr8k-lite02-soft" / "ground-test.json"
measured = json.loads(results.read_text())["entities"]["true"]["all"]
print(f"{measured['phrases']:,} phrases: the middle of the picture lies in a box for {measured['peak centre']:.1f} %,")
print(f"the peak of the word's map for {measured['peak']:.1f} %")

# %% [markdown]
# ## 9.2
#
# > **Paper, section 5.4.** A map of $14 \times 14$ is brought to the size of the picture by upsampling with a factor of
# > $2^4 = 16$ and smoothing with a Gaussian.
#
# A Gaussian, on whole pixels from $-\mathrm{radius}$ to $+\mathrm{radius}$. Cutting it off at the radius must not
# darken the picture, so the numbers have to sum to 1:
#
# $$k_x = \frac{\exp(-x^2 / 2\sigma^2)}{\sum_{x'} \exp(-x'^2 / 2\sigma^2)}$$


# %%
def gaussian(sigma: float, radius: int) -> Tensor:
    """Exercise 9.2: the kernel (2 * radius + 1,)."""
    # BEGIN SOLUTION
    x = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-(x**2) / (2 * sigma**2))
    return kernel / kernel.sum()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `torch.arange(-radius, radius + 1)` are the pixels. The sum is over these alone.

# %% [markdown] tags=["pseudocode"]
# ```
# x = -radius, ..., radius
# kernel = exp(-x^2 / (2 sigma^2))
# kernel / sum of kernel
# ```

# %% [markdown]
# ## 9.3
#
# Smooth a map. Along one axis, and then along the other, replace every pixel by the sum of its neighbours, weighted by
# the kernel,
#
# $$v'_x = \sum_{k=0}^{2r} \mathrm{kernel}_k \; v_{x + k - r}$$
#
# What is beyond the border? Zeros would darken the edges. Mirror the map there, its last pixel included, so that
# `a b c` becomes `c b a | a b c | c b a`. Then nothing is lost, and an even map stays even.


# %%
def smooth(values: Tensor, kernel: Tensor) -> Tensor:
    """Exercise 9.3: the smoothed map (H, W). values: (H, W). kernel: (2r + 1,), r no larger than H and W."""

    # BEGIN SOLUTION
    def along_rows(values: Tensor) -> Tensor:
        r = len(kernel) // 2
        width = values.shape[1]
        padded = torch.cat([values[:, :r].flip(1), values, values[:, width - r :].flip(1)], dim=1)
        return sum(weight * padded[:, k : k + width] for k, weight in enumerate(kernel))

    return along_rows(along_rows(values).T).T
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Write it for one axis and use it twice, with `.T` in between. The mirror image of the first r columns is
# `values[:, :r].flip(1)`.

# %% [markdown] tags=["pseudocode"]
# ```
# along the rows:
#     padded = first r columns mirrored, the map, last r columns mirrored
#     sum over k of kernel[k] * (padded from column k on, as wide as the map)
# then the same along the columns
# ```

# %% [markdown]
# ## 9.4
#
# The pointing game: take the heaviest cell of the map, and its middle in pixels. Is a pixel of the object within
# `tolerance` of it? In a picture of $H$ pixels and a grid of $h$ rows, the middle of row $r$ lies at
# $(r + \frac12) \frac Hh - \frac12$, because pixel 0 has its own middle at 0.


# %%
def points_at(alpha: Tensor, mask: Tensor, tolerance: float) -> bool:
    """Exercise 9.4: does the map point at the object? alpha: (h, w). mask: (H, W) bool, the object's pixels."""
    # BEGIN SOLUTION
    (h, w), (H, W) = alpha.shape, mask.shape
    row, column = divmod(int(alpha.argmax()), w)
    y = (row + 0.5) * H / h - 0.5
    x = (column + 0.5) * W / w - 0.5
    pixels = mask.nonzero()  # (N, 2): row and column of each pixel of the object
    squared = (pixels[:, 0] - y) ** 2 + (pixels[:, 1] - x) ** 2
    return bool((squared <= tolerance**2).any())
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `alpha.argmax()` counts through the rows; `divmod` by the number of columns gives row and column. `mask.nonzero()`
# lists the object's pixels.

# %% [markdown] tags=["pseudocode"]
# ```
# row, column of the heaviest cell
# y, x = its middle in pixels
# is any pixel of the object within `tolerance` of (y, x)?
# ```

# %% [markdown]
# ## 9.5
#
# The peak is one cell. How much of the *whole* map lies on the object? Spread each weight evenly over the pixels of its
# cell, and sum what is on the object's pixels.


# %%
def mass_on(alpha: Tensor, mask: Tensor) -> float:
    """Exercise 9.5: the part of the map on the object, 0 to 1. alpha: (h, w). mask: (H, W) bool; H / h = W / w is a whole number."""
    # BEGIN SOLUTION
    factor = mask.shape[0] // alpha.shape[0]
    per_pixel = alpha.repeat_interleave(factor, 0).repeat_interleave(factor, 1) / factor**2
    return float((per_pixel * mask).sum())
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `repeat_interleave`, along both axes, gives every pixel its cell's whole weight. Among how many pixels is it to be
# shared?

# %% [markdown] tags=["pseudocode"]
# ```
# per_pixel = each weight over the number of pixels of its cell, on all of them
# sum of per_pixel where the mask is True
# ```

# %% [markdown]
# ## 9.6
#
# A model may caption well and yet show the same map at every word. Measure how much of the map moves from each word to
# the next: half the sum of absolute differences (total variation), 0 if it stays, 1 if nothing of it stays where it
# was.
#
# $$\frac12 \sum_{i=1}^L |\alpha_{t+1,i} - \alpha_{ti}|$$


# %%
def movement(alphas: Tensor) -> Tensor:
    """Exercise 9.6: one number for each pair of neighbouring words (B, C - 1). alphas: (B, C, L)."""
    # BEGIN SOLUTION
    change = alphas[:, 1:] - alphas[:, :-1]
    return change.abs().sum(2) / 2
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `alphas[:, 1:]` are the maps from the second word on, `alphas[:, :-1]` those up to the last but one.

# %% [markdown] tags=["pseudocode"]
# ```
# change = each map less the one before
# half the sum over the places of its absolute values
# ```

# %% [markdown]
# ## 9.7
#
# A drawn scene, and what the model `scenes-soft` said of it. One word is false. Which one (count from 0), what should
# it be, and where did the model look as it said it: on its "own" object (the one that the phrase is about) or on the
# "other" one?

# %%
wrong = wrong_caption()
print("  ".join(f"{number} {word}" for number, word in enumerate(wrong.words)))
plots.attention_figure(wrong.photo, wrong.words, wrong.alphas)


# %%
def reading() -> tuple[int, str, str]:
    """Exercise 9.7: the number of the false word, the true word, and "own" or "other"."""
    # BEGIN SOLUTION
    return 10, "circle", "own"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# There are two objects, each with a size, a texture, a colour and a shape. Compare these eight words with the picture.
# Then look at the map of the false one.

# %% [markdown] tags=["pseudocode"]
# ```
# for each of the two phrases: is every word true of its object?
# at the false word's map: which object is lit?
# ```

# %% [markdown]
# ## 9.8
#
# Which finding shows that a map *explains* its word, and does not merely accompany it?
#
# - **a.** The map at a word is moved to the other object by force, and the word changes to what is true there.
# - **b.** The peak of the map lies on the object that the word names.
# - **c.** A second training, from another seed, draws the same map.
# - **d.** The map has a low entropy: nearly all weight is at one place.


# %%
def what_explains() -> str:
    """Exercise 9.8: "a", "b", "c" or "d"."""
    # BEGIN SOLUTION
    return "a"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# An explanation names a cause. How do you test whether one thing is the cause of another?
