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
# # Exercises 2. Features
#
# A photograph becomes a table of vectors. Which row is which part of the picture, what can it see, and how do you get
# back to pixels? Write each function, run its cell, and run the check below it. Under each check you can unfold a hint,
# the solution and, where you write a whole function, pseudocode.

# %%
import torch
from torch import Tensor, nn
from torch.nn import functional

from satcourse.exercises import carry_on, check

# %% [markdown]
# ## 2.1
#
# A convolutional network returns $D$ maps of $h \times w$ numbers. The decoder needs annotation vectors: one row of $D$
# numbers for each of the $L = h w$ places. The places of the top row come first, from left to right.


# %%
def places(maps: Tensor) -> Tensor:
    """Exercise 2.1: from maps (B, D, h, w) to annotation vectors a (B, h * w, D)."""
    # BEGIN SOLUTION
    B, D, h, w = maps.shape
    return maps.permute(0, 2, 3, 1).reshape(B, h * w, D)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `reshape` alone never moves a number: it only cuts the same row of numbers at other points. So bring the channels to
# the end first.

# %% [markdown] tags=["pseudocode"]
# ```
# maps with the channel axis last        (B, h, w, D)
# h and w made one axis                  (B, h * w, D)
# ```

# %% [markdown]
# ## 2.2
#
# Place $i$ of a grid, counted from 0, is a cell of the square picture. Where is the middle of that cell, in pixels from
# the upper left corner? The picture begins at 0 and ends at `size`, so the middle of its first pixel is at 0.5.
# (Exercise 9.4 uses another convention: there the middle of the first pixel is at 0.)


# %%
def centre(i: int, grid: tuple[int, int], size: int) -> tuple[float, float]:
    """Exercise 2.2: (y, x) of the middle of place i. grid: (rows, columns). size: side of the picture in pixels."""
    # BEGIN SOLUTION
    row, column = i // grid[1], i % grid[1]
    return (row + 0.5) * size / grid[0], (column + 0.5) * size / grid[1]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A row of the grid holds as many places as the grid has columns. `divmod` gives row and column at once; half a cell
# leads to the middle.

# %% [markdown] tags=["pseudocode"]
# ```
# row, column = i divided by the number of columns, and what is left over
# y = (row + 1/2) times the height of a cell
# x = (column + 1/2) times the width of a cell
# ```

# %% [markdown]
# ## 2.3
#
# How many pixels (side of a square) can change one activation? Go from pixels upwards. At each layer, neighbouring
# activations are `jump` pixels apart, so a kernel of $k$ sees $(k-1) \cdot \mathit{jump}$ pixels more; a stride of $s$
# makes them $s$ times as far apart for the layers above.


# %%
def receptive_field(layers: list[tuple[int, int]]) -> int:
    """Exercise 2.3: the side in pixels. layers: (kernel, stride) of each convolution and pooling, from pixels upwards."""
    # BEGIN SOLUTION
    side = 1
    jump = 1
    for kernel, stride in layers:
        side = side + (kernel - 1) * jump
        jump = jump * stride
    return side
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Two convolutions of 3 see 5 pixels. A convolution of 3, then a pooling of 2 with stride 2: 4. Another convolution of 3
# above them: 8.

# %% [markdown] tags=["pseudocode"]
# ```
# side = 1, jump = 1
# for each layer from pixels upwards:
#     side = side + (kernel - 1) * jump
#     jump = jump * stride
# ```

# %% [markdown]
# ## 2.4
#
# A deconvnet goes from an activation back to pixels. On its way it undoes max pooling: each value goes where the
# maximum of its window was (the *switch*), and the rest of the window is 0. `pooled` is the pooling's input, the map
# before it was pooled. The pooling has windows of 2 x 2 and stride 2. No window has two equal numbers.


# %%
def unpool(values: Tensor, pooled: Tensor) -> Tensor:
    """Exercise 2.4: values (B, C, h, w) back in the size of pooled (B, C, 2h, 2w), each where its window had its maximum."""
    # BEGIN SOLUTION
    maxima = functional.max_pool2d(pooled, 2).repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    spread = values.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
    return torch.where(pooled == maxima, spread, 0.0)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `repeat_interleave(2, dim)` writes each number twice in a row along `dim`. Spread the window's maximum over its
# window: where it equals `pooled` is the switch. (`functional.max_pool2d` with `return_indices=True` is another way.)

# %% [markdown] tags=["pseudocode"]
# ```
# maxima = each window's maximum, spread over the four places of its window
# spread = each value, spread over the four places of its window
# result = spread where pooled equals maxima, else 0
# ```

# %% [markdown]
# ## 2.5
#
# Which other place of the picture looks most like place $i$? Compare directions, not lengths:
#
# $$\cos(a_i, a_k) = \frac{a_i \cdot a_k}{\lVert a_i \rVert\, \lVert a_k \rVert}, \qquad k \ne i$$


# %%
def most_like(a: Tensor, i: int) -> int:
    """Exercise 2.5: the place k other than i whose vector has the largest cosine with a[i]. a: (L, D)."""
    # BEGIN SOLUTION
    unit = a / a.norm(dim=1, keepdim=True)
    cosines = unit @ unit[i]
    cosines[i] = -2
    return int(cosines.argmax())
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Divide every row by its length first; then a dot product is a cosine. Place i itself has cosine 1 with itself: give it
# something below -1.

# %% [markdown] tags=["pseudocode"]
# ```
# unit = each row of a over its length
# cosines = unit . unit[i]
# leave out i, take the largest
# ```

# %% [markdown]
# ## 2.6
#
# A small network has these layers: a convolution of 3, another one, a pooling of 2 with stride 2, a convolution of 3, a
# pooling of 2 with stride 2. It turns a photograph of 56 x 56 pixels into 14 x 14 vectors. In the middle of the
# photograph one pixel changes. How many of the 196 vectors change?


# %%
def how_many() -> float:
    """Exercise 2.6: the number of vectors that change."""
    # BEGIN SOLUTION
    return (12 / 4) ** 2  # a vector sees 12 pixels a side; neighbouring vectors are 4 pixels apart
    # END SOLUTION


# %% [markdown] tags=["hint"]
# How large is the square that one vector sees (exercise 2.3)? By how many pixels is its neighbour's square moved? How
# many of these squares hold the pixel, along one axis?

# %% [markdown]
# Now run it.

# %%
torch.manual_seed(0)
network = nn.Sequential(
    *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
    *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
).requires_grad_(False)
photo = torch.rand(1, 3, 56, 56)
changed = photo.clone()
changed[0, :, 28, 28] += 1
differs = (network(photo) != network(changed)).any(1)[0]  # (14, 14)
print(differs[4:11, 4:11].int(), differs.sum().item(), sep="\n")

# %% [markdown]
# ## 2.7
#
# This function computes the annotation vectors of many photographs, to be stored. The network has batch normalisation
# layers and is frozen. So the vectors of a photograph should not depend on the other photographs. But with another
# `size` of the batches they come out differently, as the lines below the function show. Find the bug and fix it.


# %%
def extract(network: nn.Module, photos: Tensor, size: int) -> Tensor:
    """Exercise 2.7: annotation vectors (N, L, D) of photos (N, 3, H, W), computed in batches of `size`."""
    rows = []
    # BEGIN SOLUTION
    network.eval()
    with torch.no_grad():
        # END SOLUTION
        # STUB with torch.no_grad():
        for start in range(0, len(photos), size):
            maps = network(photos[start : start + size])  # (size, D, h, w)
            rows.append(maps.flatten(2).transpose(1, 2))
    return torch.cat(rows)


torch.manual_seed(0)
network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.BatchNorm2d(4), nn.ReLU())
photos = torch.rand(6, 3, 32, 32)
difference = (extract(network, photos, 2) - extract(network, photos, 3)).abs().max().item()
print(f"largest difference between batches of 2 and of 3: {difference:.4f}")

# %% [markdown] tags=["hint"]
# `torch.no_grad()` turns off gradients and nothing else. What does a batch normalisation layer do in training, and how
# does it know that it is not being trained?
