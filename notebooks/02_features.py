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
# # 2. Features: a photograph as 196 vectors
#
# **What does the decoder see in place of a photograph?**
#
# The paper's decoder never sees a pixel. It sees 196 vectors that a convolutional network has computed, one for each cell
# of a grid over the photograph. Here you take such vectors apart, and put a famous kind of picture on trial.
#
# **You will be able to**
#
# - turn a photograph into annotation vectors, and say which pixels each of them sees;
# - carry an activation back to pixels, test whether the picture explains it, and find the part of the method that draws it;
# - say what the layers of a network know about an object, and what a mean over all places forgets;
# - choose an encoder, and run a frozen one once instead of in every epoch.
#
# **Time**: 35 minutes to read, 57 more to write, 75 seconds to run. **Memory**: 1.8 GB. **Needs**: nothing.
# **Next**: [notebook 03](03_captions.ipynb), words as numbers.

# %% jupyter={"source_hidden": true}
import copy
import json
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from torchvision import transforms

import satlib
from satcourse import demo
from satcourse.figures import show_photographs, use_page_style
from satcourse.widgets.slides import Slides
from satlib.data import scenes
from satlib.data.datasets import CaptionSet, Example
from satlib.data.images import open_photo, square, to_tensor
from satlib.model import installed
from satlib.training.features import extract as extract_to_disk

use_page_style()

# %%
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from satcourse.checks import reveal, seal
from satlib.model import encoders

# %% [markdown]
# ## Annotation vectors
# <!-- index: section 3.1.1 | annotation vectors a = {a_1, ..., a_L} of a convolutional layer | satlib.model.encoders.Encoder | tests/test_encoders.py::test_places_are_in_rows_from_the_top_left -->
# <!-- asked: What are annotation vectors (grid features, "att" features), and how do I make them from feature maps? | The numbers of all maps at one place of the grid, 14 x 14 places for VGG-19: the function `places`. -->
#
# > **Paper, section 3.1.1** (in our words, here and below). The encoder turns a picture into $L$ vectors of $D$ dimensions,
# > one for each part of it, so that the decoder can attend to some parts:
# > $$a = \{a_1, \dots, a_L\}, \quad a_i \in \mathbb{R}^D$$
#
# > **Section 4.3.** The layer is the Oxford VGGnet's fourth convolution before a max pooling: $14 \times 14 \times 512$, so $L = 196$
# > and $D = 512$. The network has learned to classify ImageNet and is frozen.
#
# We take this net to be VGG-19, whose last three blocks have four convolutions each. The paper's layer is then `conv5_4`: block 5, convolution 4, after its ReLU.
# We run the network on five photographs (its weights rounded to 8 bits), and keep the last layer of each block.

# %% jupyter={"source_hidden": true}
names = ["dog", "cats", "cows", "elephants", "lifeboat"]
paths = {path.stem: path for path in demo.photographs() if path.stem in names}
photos = [open_photo(path) for path in paths.values()]
squares = [
    square(photo, "crop") for photo in photos
]  # the paper's view: shortest side to 256, the middle 224 x 224
pixels = torch.stack([to_tensor(each) for each in squares]).float()


def lowered(photo, by):
    """A photograph shifted down by at most 48 pixels, without a border: 160 x 160 pixels of its square of 256."""
    large = transforms.CenterCrop(256)(transforms.Resize(256)(photo))
    return large.crop((48, 48 - by, 208, 208 - by))


# %%
encoder = encoders.create("vgg19").requires_grad_(False)
LAYERS = {
    "conv1_2": 3,
    "conv2_2": 8,
    "conv3_4": 17,
    "conv4_4": 26,
    "conv5_4": 35,
}  # the number of each one's ReLU
maps, x = {}, encoder.normalised(pixels)
for number, module in enumerate(encoder.body):
    x = module(x)
    maps |= {layer: x for layer in LAYERS if LAYERS[layer] == number}
print({layer: tuple(maps[layer].shape) for layer in LAYERS})

# %% [markdown]
# The output is 512 maps of $14 \times 14$ numbers. A decoder needs 512 numbers for each place, row by row from the top left.


# %% tags=["task:2.1"]
def places(maps: Tensor) -> Tensor:
    """Annotation vectors a (B, h w, D) from feature maps (B, D, h, w), row by row from the top left."""
    # BEGIN SOLUTION
    B, D, h, w = maps.shape
    return maps.permute(0, 2, 3, 1).reshape(B, h * w, D)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `reshape` alone never moves a number: it only cuts the same row of numbers at other points. So bring the channels to the end first.

# %% [markdown] tags=["pseudocode"]
# ```
# maps with the channel axis last        (B, h, w, D)
# h and w made one axis                  (B, h * w, D)
# ```

# %% [markdown]
# Place 73, counted from 0, is on an eye of the red cat.


# %% jupyter={"source_hidden": true}
def centre(i: int, grid: tuple[int, int], size: int) -> tuple[float, float]:
    """The middle (y, x) of place i, in pixels from the upper left corner of a square picture."""
    row, column = divmod(i, grid[1])
    return (row + 0.5) * size / grid[0], (column + 0.5) * size / grid[1]


# %% jupyter={"source_hidden": true}
a = places(maps["conv5_4"])
eye, eye_vector = 73, a[names.index("cats"), 73]


def bare(axis, picture, title="", **style):
    """A panel without ticks and frame."""
    axis.imshow(picture, **style)
    axis.axis("off")
    axis.set_title(title, fontsize=9)


DARK_EDGE = [withStroke(linewidth=2.6, foreground="black")]


def outline(axis, middle, side, colour="white", **style):
    """A square about (y, x), seen on bright and on dark."""
    corner = (
        middle[1] - side / 2 - 0.5,
        middle[0] - side / 2 - 0.5,
    )  # imshow has the first pixel's middle at 0
    axis.add_patch(
        Rectangle(
            corner,
            side,
            side,
            fill=False,
            edgecolor=colour,
            linewidth=1.4,
            path_effects=DARK_EDGE,
            **style,
        )
    )


figure, axes = plt.subplots(
    1, 5, figsize=(9.6, 2.0), width_ratios=(1, 1.6, 1, 1, 1), layout="constrained"
)
bare(axes[0], squares[names.index("cats")], "place 73")
outline(axes[0], centre(eye, (14, 14), 224), 16)
axes[1].vlines(range(512), 0, eye_vector, linewidth=1)
axes[1].set_title("its vector", fontsize=9)
axes[1].set_xlabel("number of the map", fontsize=9)
axes[1].tick_params(labelsize=8)
for axis, channel in zip(axes[2:], eye_vector.topk(3).indices.tolist(), strict=True):
    bare(axis, maps["conv5_4"][names.index("cats"), channel], f"map {channel}", cmap="cividis")
show_photographs(figure)
print(f"{(eye_vector > 0).sum()} of its 512 numbers are not zero")
print(f"zeros among all numbers: {100 * (a == 0).float().mean():.0f} percent")

# %% [markdown]
# Each place responds to few patterns. On the right are the three
# maps in which it is largest. Look where else all three light up: on the other cat's face.
#
# ## What a place can see
# <!-- index: section 5.4 | a 14 x 14 map with large receptive fields, drawn 16 times larger and smoothed | satcourse.checks.ex02 | tests/test_exercises.py::TestVerdicts -->
# <!-- asked: What is the receptive field of one attention cell? | In VGG-19's last layer it is wider than the photograph, but half of the gradient lies within less than five cells. -->
#
# > **Paper, section 5.4.** Four poolings by 2 lie between the pixels and the map: $224 / 2^4 = 14$. To be drawn on the
# > photograph, the weights are enlarged 16 times and smoothed with a Gaussian, because the receptive fields are large.
#
# How large? A convolution of 3 sees 3 pixels. A second one above it sees one more on each side: 5. After a pooling of 2, neighbours are 2 pixels apart, so the
# next convolution of 3 adds 4 pixels. In general, neighbours are `jump` pixels apart, 1 at first; a kernel of $k$ adds $(k - 1) \cdot \mathit{jump}$ pixels, and a stride of
# $s$ multiplies the jump by $s$, for the layers above.


# %% tags=["task:2.2"]
def receptive_field(layers: list[tuple[int, int]]) -> int:
    """The side in pixels of what one activation sees; layers: (kernel, stride) of each, from the pixels upwards."""
    # BEGIN SOLUTION
    side, jump = 1, 1
    for kernel, stride in layers:
        side += (kernel - 1) * jump
        jump *= stride
    return side
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Two convolutions of 3 see 5 pixels. A convolution of 3, then a pooling of 2 with stride 2: 4. Another convolution of 3 above them: 8.

# %% [markdown] tags=["pseudocode"]
# ```
# side = 1, jump = 1
# for each layer from pixels upwards:
#     side = side + (kernel - 1) * jump
#     jump = jump * stride
# ```

# %%
sides = {}
for layer, number in LAYERS.items():
    below = [module for module in encoder.body[:number] if not isinstance(module, nn.ReLU)]
    sides[layer] = receptive_field(
        [(3, 1) if isinstance(module, nn.Conv2d) else (2, 2) for module in below]
    )
print(sides)

# %% [markdown]
# 252 pixels, and the whole photograph has 224! So a place in the middle *can* see everything. But not all pixels count alike: from the middle of the field,
# more paths lead up to the vector (the *effective* receptive field; Luo et al., 2016). The gradient says how much each pixel counts. How wide is the
# square that holds half of it, in absolute value?

# %%
my_half_guess = ...  # pixels: (low, high), or skip


# %% jupyter={"source_hidden": true}
def side_holding(weights, share):
    """Side of the smallest square around the centre of mass that holds a share of the weights (H, W)."""
    weights = weights.double() / weights.double().sum()
    rows, columns = (torch.arange(size, dtype=weights.dtype) for size in weights.shape)
    y, x = weights.sum(1) @ rows, weights.sum(0) @ columns
    distances, order = (
        torch.maximum((rows - y).abs().unsqueeze(1), (columns - x).abs()).flatten().sort()
    )
    held = weights.flatten()[order].cumsum(0)
    return int(2 * distances[(held >= share - 1e-9).int().argmax()]) + 1


def draw_seen():
    """Receptive fields on the lifeboat, and what counts in three photographs."""
    figure, axes = plt.subplots(1, 4, figsize=(8.8, 2.4), layout="constrained")
    bare(axes[0], squares[names.index("lifeboat")], "what four layers can see")
    for layer, colour in zip(list(LAYERS)[:-1], ("white", "C1", "C2", "C4"), strict=True):
        outline(axes[0], (120, 120), sides[layer], colour)
        if sides[layer] > 16:  # else there is no room
            style = {
                "fontsize": 7,
                "ha": "center",
                "va": "top",
                "bbox": {"facecolor": "white", "linewidth": 0, "pad": 1},
            }
            axes[0].text(120, 125 + sides[layer] / 2, layer, **style)
    for axis, name in zip(axes[1:], ("lifeboat", "cats", "cows"), strict=True):
        each = weight[names.index(name)]
        bare(
            axis,
            (each / each.quantile(0.998)).clamp(max=1).sqrt(),
            f"what counts: {name}",
            cmap="cividis",
        )
        outline(axis, (120, 120), 16, "C1")
        rows, columns = (
            each.sum(1 - axis_) @ (torch.arange(224.0) + 0.5) / each.sum() for axis_ in (0, 1)
        )
        outline(axis, (float(rows), float(columns)), half[names.index(name)])
    show_photographs(figure)


# %%
seal(my_half_guess)
seen = pixels.clone().requires_grad_(True)
(gradient,) = torch.autograd.grad(
    encoder.maps(seen)[:, :, 7, 7].sum(), seen
)  # of the vectors in row 7, column 7
weight = gradient.abs().sum(1)  # (5, 224, 224)
half = [side_holding(each, 0.5) for each in weight]
draw_seen()
print(dict(zip(names, half, strict=True)))
reveal("side of the square that holds half, pixels", np.mean(half))

# %% [markdown] tags=["answer"]
# 70 pixels, less than five cells. In the three dark pictures, bright pixels count more: the small square is the cell, with 2 to 5 percent, and the large one holds half.
# (On the left, the smallest first, is what `conv1_2`, `conv2_2`, `conv3_4` and `conv4_4` can see.)

# %% [markdown]
# So a place sees a region with a soft edge, and the paper's Gaussian imitates that edge. A vector can tell you about what is *beside* its cell.
# Whoever says "the model looks here" should remember how wide "here" is.
#
# ## Back to pixels
# <!-- index: claim: activations can be projected to pixels (deconvnet) | switches, ReLU, transposed filters | satcourse.checks.ex02 | tests/test_exercises.py::TestVerdicts -->
#
# Which pixels make one of a place's numbers large? Zeiler and Fergus (2014) keep one activation, set all others of its layer to
# zero, and run the network backwards, as a *deconvnet*:
#
# | up | down |
# | --- | --- |
# | a convolution | the transposed convolution, without bias |
# | ReLU | ReLU again, of the signal that comes *down* |
# | max pooling keeps one of four values, and we remember which: the *switch* | the value goes where the switch points; zeros elsewhere |
#
# A gradient goes down in the same way, but for the ReLU: a gradient passes where the signal going *up* was positive, a deconvnet where the
# signal coming *down* is (Springenberg et al., 2014). Remember this difference.


# %% tags=["task:2.3"]
def unpool(values: Tensor, pooled: Tensor) -> Tensor:
    """Undo a max pooling of 2 x 2: each value where its window had its maximum, zeros elsewhere.

    values: (B, C, h, w). pooled: (B, C, 2h, 2w), the map that had been pooled. Returns (B, C, 2h, 2w).
    Where a window has several maxima, as one of four zeros has, the value goes to the first of them, row by row.
    """
    # BEGIN SOLUTION
    _, switches = functional.max_pool2d(pooled, 2, return_indices=True)
    return functional.max_unpool2d(values, switches, 2)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `functional.max_pool2d` with `return_indices=True` gives you the switches, and PyTorch has the way back, too.

# %% [markdown] tags=["pseudocode"]
# ```
# switches = where each window of pooled has its first maximum
# result = zeros like pooled; at the switches, the values
# ```


# %% [markdown]
# And the whole way:


# %% tags=["task:2.4"]
def down(signal: Tensor, modules, pooled: list[Tensor]) -> Tensor:
    """A signal at the output of a row of modules, carried back to its input.

    modules: nn.Conv2d (3 x 3, padding 1), nn.ReLU and nn.MaxPool2d (2 x 2), in the order in which they ran.
    pooled: the map that each pooling had pooled, in the same order.
    """
    # BEGIN SOLUTION
    left = list(pooled)  # a copy: the caller's list stays as it is
    for module in reversed(modules):
        if isinstance(module, nn.Conv2d):
            signal = functional.conv_transpose2d(signal, module.weight, padding=1)
        elif isinstance(module, nn.ReLU):
            signal = signal.relu()
        else:
            signal = unpool(signal, left.pop())
    return signal
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `functional.conv_transpose2d(signal, module.weight, padding=1)` is the first row of the table. The last pooling is the first on the way down.

# %% [markdown] tags=["pseudocode"]
# ```
# for each module, from the last to the first:
#     a convolution: the transposed one, with the same weight and padding
#     a ReLU: a ReLU
#     a pooling: unpool, with the last map of pooled that is left
# ```


# %%
def to_pixels(layer: str, image: int, channel: int, place: tuple[int, int]) -> Tensor:
    """One activation, all the way down: (3, 224, 224)."""
    one = {name: each[image : image + 1] for name, each in maps.items()}
    signal = torch.zeros_like(one[layer])
    signal[0, channel, *place] = one[layer][0, channel, *place]
    pooled = [
        one[below] for below in list(LAYERS)[: list(LAYERS).index(layer)]
    ]  # the last map of each block below
    return down(signal, encoder.body[: LAYERS[layer] + 1], pooled)[0].flip(
        0
    )  # these weights know blue, green, red


# %% jupyter={"source_hidden": true}
figure, grid = plt.subplots(3, 6, figsize=(8.8, 4.6), layout="constrained")
for row, (layer, window) in zip(
    grid, {"conv2_2": 24, "conv3_4": 64, "conv4_4": 120}.items(), strict=True
):
    stride = 224 // maps[layer].shape[3]
    edge = window // (2 * stride) + 1  # so that the window lies inside the photograph
    inner = maps[layer][:, :, edge:-edge, edge:-edge]
    channel = int(
        inner.flatten(2).amax(2).sort(0, descending=True).values[2].argmax()
    )  # strong in three photographs
    strengths, peaks = inner[:, channel].flatten(1).max(1)  # of each photograph
    for pair, image in zip(row.reshape(3, 2), strengths.topk(3).indices.tolist(), strict=True):
        y, x = (edge + each for each in divmod(int(peaks[image]), inner.shape[3]))
        if names[image] == "cats":
            exhibit = channel, (y, x)  # of the last row, for the trial
        top, left = (int((each + 0.5) * stride - window / 2) for each in (y, x))
        cut = to_pixels(layer, image, channel, (y, x))[:, top : top + window, left : left + window]
        limit = cut.abs().flatten().quantile(0.995)
        bare(
            pair[0],
            np.asarray(squares[image])[top : top + window, left : left + window],
            names[image],
        )
        bare(
            pair[1],
            (0.5 + cut / (2 * limit)).clamp(0, 1).permute(1, 2, 0),
            f"{layer}, map {channel}",
        )
show_photographs(figure)

# %% [markdown]
# <!-- index: claim: layers see growing patterns (Zeiler and Fergus) | strongest activations, projected to pixels | satcourse.checks.ex02 | tests/test_exercises.py::TestVerdicts -->
#
# Each row shows one feature map at its peaks in three photographs, in windows of 24, 64 and 120 pixels. The pictures of the first show a bright spot
# that is dark on its right, those of the second short stripes. The third row has a cat's eyes and nose, but only on the cat. Keep that cat
# in mind.
#
# ## Similar places have similar vectors
#
# $$\cos(a_i, q) = \frac{a_i \cdot q}{\lVert a_i \rVert\, \lVert q \rVert}$$


# %% tags=["task:2.5"]
def cosines(a: Tensor, q: Tensor) -> Tensor:
    """The cosine of every vector of a (L, D) with q (D,): (L,)."""
    # BEGIN SOLUTION
    return (a @ q) / (a.norm(dim=1) * q.norm())
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `a @ q` gives all dot products at once; `norm(dim=1)` gives one length for each row.

# %% [markdown] tags=["pseudocode"]
# ```
# dot products of the rows of a with q       (L,)
# each over the length of its row, and over the length of q
# ```

# %% [markdown]
# What resembles each of three places most, in its own photograph and the others?

# %% jupyter={"source_hidden": true}
queries = {"eye": ("cats", eye), "wheel": ("lifeboat", 13 * 14 + 4), "cow": ("cows", 9 * 14 + 1)}
nearest = {}  # query, photograph -> cosine and place
figure, grid = plt.subplots(3, 7, figsize=(8.8, 4.2), layout="constrained")
for row, (title, (own, i)) in zip(grid, queries.items(), strict=True):
    q = a[names.index(own), i]
    bare(row[0], squares[names.index(own)], title)
    outline(row[0], centre(i, (14, 14), 224), 16)
    bare(
        row[1],
        cosines(a[names.index(own)], q).view(14, 14),
        "cosine",
        cmap="cividis",
        vmin=0,
        vmax=1,
    )
    for axis, other in zip(row[2:], [own, *(name for name in names if name != own)], strict=True):
        similar = cosines(a[names.index(other)], q).view(14, 14)
        if other == own:  # not the place itself, nor what overlaps with it
            y, x = divmod(i, 14)
            similar[y - 2 : y + 3, max(0, x - 2) : x + 3] = -1
        nearest[title, other] = similar.max().item(), int(similar.argmax())
        y, x = centre(nearest[title, other][1], (14, 14), 224)
        top, left = (int(min(max(each - 44, 0), 136)) for each in (y, x))
        where = "here" if other == own else other
        patch = np.asarray(squares[names.index(other)])[top : top + 88, left : left + 88]
        bare(axis, patch, f"{where} {nearest[title, other][0]:.2f}")
show_photographs(figure)

# %% [markdown]
# One cat's eye finds an eye of the other cat. The wheel finds another wheel, and a wheel of the car (so do 7 of 21
# places on the lifeboat's wheels; the other 14 find something else in that photograph). The cow finds
# another cow, and the elephant.
#
# ## What each layer knows about an object
# <!-- index: claim: lower layers keep what upper layers lose | an object's colour fades from layer to layer while its shape appears | satlib.model.encoders.Encoder | tests/test_encoders.py::test_places_are_in_rows_from_the_top_left -->
# <!-- asked: Which layer of a CNN keeps what a caption needs? | From layer to layer vectors say less of colour and more of shape; in the paper's layer colour is harder to read. -->
#
# > **Paper, section 1.** The top layer distils a picture to its salient objects, and may lose what a rich caption needs. A
# > lower layer keeps more, but then the model has to find what matters: attention.
#
# What do the layers lose? Take 300 objects of drawn scenes, and for each the mean vector over its pixels. Then ask two questions:
#
# - Does the *nearest* object of another scene have the same colour, texture, shape? That shows what dominates a vector.
# - Can a *linear classifier*, fitted on other scenes, name them (a *linear probe*)? That shows what can still be read from it.
#
# At `conv5_4`, of how many objects in 100 does the classifier name the colour (chance: 17)?

# %%
my_colour_guess = ...  # (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_colour_guess)
study = json.loads(
    (Path(satlib.__file__).parent / "results" / "vgg19-layers.json").read_text(encoding="utf-8")
)
print(f"{study['objects']} objects")
figure, axes = plt.subplots(1, 2, sharey=True, figsize=(8.8, 3), layout="constrained")
figure.get_layout_engine().set(wspace=0.06)  # between the layers' names
for axis, question in zip(axes, ("nearest", "linear"), strict=True):
    for attribute, marker in zip(study["attributes"], "Dso", strict=True):
        known = study["attributes"][attribute][question]
        low, share, high = (
            np.array([known[layer][end] for layer in LAYERS]) for end in ("low", "share", "high")
        )
        bars = np.maximum(0, [share - low, high - share])
        axis.errorbar(
            range(5), share, bars, marker=marker, markersize=5, capsize=3, label=attribute
        )
    axis.set_xticks(range(5), list(LAYERS), fontsize=9)
    axis.set(ylim=(0, 104))
axes[0].set_title("the nearest object has the same ... (percent)", fontsize=10)
axes[1].set_title("a linear classifier names the ... (bars: 95 % intervals)", fontsize=10)
axes[0].legend(loc="lower left")
plt.show()
colour = study["attributes"]["colour"]
reveal("colours that the classifier names, percent", colour["linear"]["conv5_4"]["share"])

# %% [markdown] tags=["answer"]
# 63 (the interval goes from 57 to 68). One block lower, at `conv4_4`, it names 98.

# %% [markdown]
# First the left picture. Texture counts at every layer. Beside it, colour dominates a vector at `conv1_2`: the nearest object always has the same one. At `conv4_4`
# shape does: the nearest object has the same shape in 99 cases of 100, at `conv1_2` only in 41. Yet the right picture shows that the colour is still there to be read. Only `conv5_4` loses much of it, and a little of texture and shape.
# (The other object does not blur it: with that one left out of the picture, the classifier names hardly more colours.)
# <!-- again: 100 scenes, each drawn twice, with one object and no occluders: 58 percent; with both: 56 -->
#
# Nobody can say from this how much is lost for good: the classifier, a ridge regression, would read more if it had more objects to learn from.
# The figure is stored, because 150 scenes take minutes. The next cell runs the same study on the first 30; if you have the minutes, put 150 there.

# %% jupyter={"source_hidden": true}
FEW_SCENES = 30


def object_vectors(scene) -> dict[str, Tensor]:
    """Layer -> the mean vector of each of the two objects, (2, D); a cell counts by the share of it that the object covers."""
    masks = torch.tensor(scene.masks).float()  # (2, 224, 224): the visible pixels
    x, found = encoder.normalised(to_tensor(scene.photo())[None].float()), {}
    for number, module in enumerate(encoder.body):
        x = module(x)
        for layer in LAYERS:
            if LAYERS[layer] == number:
                covered = functional.adaptive_avg_pool2d(masks, x.shape[2:])
                total = torch.einsum("dyx,kyx->kd", x[0], covered)
                found[layer] = total / covered.sum((1, 2)).unsqueeze(1)
    return found


def nearest_is_alike(vectors: Tensor, labels: Tensor, owner: Tensor) -> Tensor:
    """Whether the nearest object of another scene has the same label: (N,)."""
    unit = functional.normalize(vectors, dim=1)
    likest = (unit @ unit.T).masked_fill(owner.unsqueeze(1) == owner, -torch.inf).argmax(1)
    return labels[likest] == labels


def read_linearly(vectors: Tensor, labels: Tensor, owner: Tensor) -> Tensor:
    """Whether a ridge regression, fitted on the other nine tenths of the scenes, names the label: (N,)."""
    x, y = functional.normalize(vectors.double(), dim=1), functional.one_hot(labels).double()
    right = torch.zeros(len(x), dtype=torch.bool)
    for fold in range(10):
        test = owner % 10 == fold
        mean, level = x[~test].mean(0), y[~test].mean(0)
        centred = x[~test] - mean
        # In units of the variance, so that the penalty means the same at each layer.
        penalty = 1e-3 * len(centred) * centred.square().sum(1).mean() * torch.eye(x.shape[1])
        weights = torch.linalg.solve(centred.T @ centred + penalty, centred.T @ (y[~test] - level))
        right[test] = ((x[test] - mean) @ weights + level).argmax(1) == labels[test]
    return right


few = [scenes.scene(f"dev-{k:06d}") for k in range(FEW_SCENES)]
with torch.inference_mode():
    by_scene = [object_vectors(each) for each in few]
vectors = {layer: torch.cat([found[layer] for found in by_scene]) for layer in LAYERS}
owner = torch.arange(len(few)).repeat_interleave(2)
live = {}
for attribute in study["attributes"]:
    values = [getattr(thing, attribute) for each in few for thing in each.objects]
    labels = torch.tensor([sorted(set(values)).index(value) for value in values])
    for question, ask in (("nearest", nearest_is_alike), ("linear", read_linearly)):
        live[question, attribute] = [
            100 * ask(vectors[layer], labels, owner).float().mean().item() for layer in LAYERS
        ]
print(f"{len(owner)} objects, percent{'':11}", *LAYERS, sep="  ")
for (question, attribute), percent in sorted(live.items(), reverse=True):
    print(f"{question:8} {attribute:20}", *(f"{each:9.0f}" for each in percent))

# %% [markdown]
# Sixty objects tell the same story: shape takes the place of colour. Most of their numbers are lower, perhaps because among so few the nearest one is farther away, and
# the classifier has less to learn from.
#
# ## The map moves with the picture
# <!-- index: claim: features move with the picture | photographs 32 pixels lower: the vectors two rows lower | satlib.model.encoders.Encoder | tests/test_encoders.py::test_places_are_in_rows_from_the_top_left -->
# <!-- asked: Does the feature map move with the object (translation equivariance)? | Mostly: with the photographs two cells lower, a vector resembles the one that was two rows higher. -->
#
# Move the photographs down by 32 pixels, two cells:

# %% jupyter={"source_hidden": true}
high, low = (
    encoder.maps(torch.stack([to_tensor(lowered(photo, by)) for photo in photos])) for by in (0, 32)
)
along = functional.cosine_similarity(low[:, :, 2:], high[:, :, :-2], dim=1).mean().item()
still = functional.cosine_similarity(low[:, :, 2:], high[:, :, 2:], dim=1).mean().item()
inner = (
    functional.cosine_similarity(low[:, :, 4:-2, 2:-2], high[:, :, 2:-4, 2:-2], dim=1).mean().item()
)
print(f"with the vector that was two rows higher: {along:.2f} ({inner:.2f} away from the borders)")
print(f"with the one that was in the same cell: {still:.2f}")

cat = names.index("cats")
question = high[cat, :, 3, 1]  # the eye, before
figure, axes = plt.subplots(1, 4, figsize=(8.8, 2.4), layout="constrained")
for pair, features, by, row, title in (
    (axes[:2], high, 0, 3, "before"),
    (axes[2:], low, 32, 5, "32 pixels lower"),
):
    bare(pair[0], lowered(photos[cat], by), title)
    outline(pair[0], centre(row * 10 + 1, (10, 10), 160), 16)
    similar = cosines(places(features)[cat], question).view(10, 10)
    bare(pair[1], similar, "cosine with the first eye", cmap="cividis", vmin=0, vmax=1)
show_photographs(figure)

# %% [markdown]
# After the move, a vector resembles the one that saw the *same part of the picture* before, two rows higher. It resembles the one that was in its own
# cell far less. That is *equivariance*, here for moves by whole cells: every place computes the same function of what lies around it. So a weight on a place points at a
# region around its cell: half of what counts lies in a square less than five cells wide, half outside it.
#
# ### A mean cannot see order
# <!-- index: claim: one vector for a picture loses where things are | exchanged places have the same mean; what captions from a trained mean get wrong | satlib.model.attention.NoAttention | tests/test_attention.py::test_without_attention_every_place_weighs_the_same -->
# <!-- asked: Does average pooling lose where things are (positions, CoordConv)? | A mean cannot see order by itself, but coordinates that are fed to the encoder survive it. -->
#
# Exchange the places of a map, and their mean stays the same. So a mean cannot know what is left of what, unless the vectors themselves say
# where they are or what is beside them. In satlib's small encoder, which the captioner without attention uses, they do: each place gets its
# coordinates as two more inputs (*CoordConv*).

# %% jupyter={"source_hidden": true}
evaluations = {
    path.parent.name: json.loads(path.read_text(encoding="utf-8"))
    for path in installed.evaluations()
}
metrics = {name: each["metrics"] for name, each in evaluations.items()}
captions = evaluations["scenes-none"]["captions"].items()
told = [(scenes.grammar.parse(text), scenes.scene(image_id).meaning) for image_id, text in captions]
both = [
    (said, true)
    for said, true in told
    if said and {said.first, said.second} == {true.first, true.second}
]
in_order = [said.first == true.first for said, true in both]
same_axis = [said.relation == true.relation for said, true in both]
print(
    f"{len(both)} of {len(told)} captions have both objects right; of these, in percent (chance: 50)"
)
print(
    f"the right one first: {100 * np.mean(in_order):.0f}; beside or above: {100 * np.mean(same_axis):.0f}"
)

# %% [markdown]
# So the coordinates survive the mean. Or do they? We trained it again, with them and without (percent):
#
# | | the right one first | beside or above |
# | --- | --- | --- |
# | with coordinates | 99 | 89 |
# | the same, fed zeros for them | 58 | |
# | without, twice | 59, 61 | 87, 92 |
#
# Without coordinates the order is only a little better than a guess: 8 to 11 points, where a standard error is 3. Whether two objects are beside or above each
# other is still known, perhaps because a single vector that sees both can tell.
#
# What the mean does lose is which property belongs to which object. In 264 of 500 captions an object is wrong (with attention, in 9). Yet only 6
# of these captions name a property that is nowhere in the picture.
# <!-- again: satlib train scenes-none --set training.seed=1, then satlib evaluate; without: zeros for y and x in _Coordinates, satlib/model/encoders.py -->
#
# ## Which encoder?
# <!-- index: claim: the encoder matters | encoders compared by shape, size, time and captions | satlib.model.encoders.create | tests/test_encoders.py::test_the_shape_of_each -->
# <!-- asked: VGG, GoogLeNet or a newer encoder: does it matter for the score? | Yes: EfficientNet-Lite0 in place of VGG-19 adds to BLEU-4, in single trainings with settings of their own. -->
# <!-- asked: What if the encoder has 7 x 7 places and not 14 x 14? | Both occur here: 7 x 7 with EfficientNet-Lite0, 14 x 14 with VGG-19; attention reads either. -->
#
# > **Paper, sections 4.3 and 5.2.** Any encoding function can be used, and a newer network alone can raise the scores. So compare
# > with captioners that use GoogLeNet or VGG.
#
# satlib has trained a captioner with attention on VGG-19, and one on EfficientNet-Lite0, each with its own settings. How many points of BLEU-4
# does the newer network add?

# %%
my_encoder_guess = ...  # (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_encoder_guess)
print(f"{'':20}{'places':>10}{'D':>6}{'weights':>9}")
for name in encoders.NAMES:
    with torch.device("meta"):  # shapes without numbers: no memory, no time
        each = encoders.create(name, pretrained=False)
    size = sum(weights.numel() for weights in each.body.parameters()) / 1e6
    print(f"{name:20}{each.grid[0]:5} x {each.grid[1]:2}{each.dim:6}{size:7.1f} M")

bleu = {
    run: metrics[f"flickr8k-{run}"]["BLEU-4"]
    for run in ("none", "soft", "lite0-none", "lite0-soft")
}
figure, axis = plt.subplots(figsize=(7, 2.2), layout="constrained")
for offset, kind, style in (
    (-0.2, "none", {"label": "mean", "color": "C1", "hatch": "//"}),
    (0.2, "soft", {"label": "soft attention", "color": "C0"}),
):
    bars = axis.barh(np.arange(2) + offset, [bleu[kind], bleu[f"lite0-{kind}"]], 0.36, **style)
    axis.bar_label(bars, fmt="%.1f", padding=3)
axis.set_yticks(range(2), ["VGG-19", "EfficientNet-Lite0"])
axis.invert_yaxis()
axis.set(xlim=(0, 32), title="BLEU-4 on Flickr8k, test split")
axis.legend(loc="upper right")
plt.show()
reveal("BLEU-4 added by the encoder", bleu["lite0-soft"] - bleu["soft"])

# %% [markdown] tags=["answer"]
# 2.7 (the interval goes from 1.5 to 3.8, over test photographs; each is a single training with settings of its own, which may have a part in it).

# %% [markdown]
# ## Extract once
# <!-- index: section 4.3 | features of a frozen encoder, computed once and stored | satlib.training.features.extract | tests/test_features.py::test_it_holds_what_the_encoder_gives -->
# <!-- asked: Can I compute the features once, before training (cache, float16)? | With a frozen encoder, yes: reading them is far faster than computing them, and float16 changes next to nothing. -->
#
# A frozen encoder gives the same vectors in every epoch. So compute them once, and store them as float16.

# %% jupyter={"source_hidden": true}
two = CaptionSet(
    "two",
    tuple(Example(name, "test", ("a photograph",)) for name in names[:2]),
    draw=lambda example: squares[names.index(example.image_id)],
)
with tempfile.TemporaryDirectory() as folder:
    began = time.perf_counter()
    store = extract_to_disk(two, encoder, Path(folder) / "vgg19", progress=False)
    computing = (time.perf_counter() - began) / 2
    began = time.perf_counter()
    read = store.read(names[:2])
    reading = (time.perf_counter() - began) / 2
    stored_bytes = sum(path.stat().st_size for path in store.folder.glob("*.f16")) / 2
error = ((read - a[:2]).norm() / a[:2].norm()).item()
print(f"computing {1000 * computing:.0f} ms a photograph, reading {1000 * reading:.1f} ms")
print(
    f"{stored_bytes / 1000:.1f} kB a photograph, {8000 * stored_bytes / 1e9:.1f} GB for Flickr8k; float16 is off by {error:.0e}"
)

# %% [markdown]
# ## On trial: the picture of a feature
# <!-- index: claim: a deconvnet's picture shows what its map responds to | pictures of other maps at the same place, correlated | satcourse.checks.ex02 | tests/test_exercises.py::TestVerdicts -->
# <!-- asked: Does a saliency picture (deconvnet) show what a feature responds to? | Hardly: from the third block upwards, pictures of different maps at one place are nearly the same; their gradients are not. -->
#
# Back to the cat's eyes and nose. "This is what the map looks for" is a claim about one map among 512. Your control is the mean
# correlation of that picture, the exhibit, with pictures that would look the same if the map made no difference.


# %%
def correlation(x: Tensor, y: Tensor) -> float:
    """Of two pictures, from -1 to 1; brightness and contrast do not matter."""
    return float(torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1])


# %% tags=["task:2.6"]
def likeness(
    picture,
    channel: int,
    place: tuple[int, int],
    channels: list[int],
    places: list[tuple[int, int]],
) -> float:
    """The mean correlation of the exhibit with pictures that would look the same if the map made no difference.

    picture(channel, place): a picture (3, h, w). channel, place: of the exhibit.
    channels, places: all that you may choose from, those of the exhibit among them.
    """
    # BEGIN SOLUTION
    exhibit = picture(channel, place)
    alike = [correlation(exhibit, picture(other, place)) for other in channels if other != channel]
    return sum(alike) / len(alike)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A control changes what the claim is about and keeps everything else. Is the claim about the map or about the place?

# %% [markdown] tags=["pseudocode"]
# ```
# exhibit = the picture of channel at place
# for each other channel, at the same place: its correlation with the exhibit
# their mean
# ```

# %% [markdown]
# Take the exhibit, the cat in the third row, and the 12 maps of `conv4_4` that are strongest at its place. What is the mean
# correlation?

# %%
my_likeness_guess = ...  # (low, high) between -1 and 1, or skip


# %% jupyter={"source_hidden": true}
def draw_trial():
    """The exhibit and the pictures of four other maps, by both methods."""
    figure, grid = plt.subplots(2, 5, figsize=(8.8, 3.6), layout="constrained")
    top, left = (int((each + 0.5) * 8 - 60) for each in place)
    for row, method in zip(grid, alike, strict=True):
        for axis, each in zip(row, channels, strict=False):
            cut = method(each, place)[:, top : top + 120, left : left + 120]
            limit = cut.abs().flatten().quantile(0.995)
            title = f"{method.__name__.split('_')[0]}, map {each}"
            bare(axis, (0.5 + cut / (2 * limit)).clamp(0, 1).permute(1, 2, 0), title)
    show_photographs(figure)


# %%
seal(my_likeness_guess)
cats = pixels[cat : cat + 1].clone().requires_grad_(True)
at_conv4_4 = encoder.body[: LAYERS["conv4_4"] + 1](encoder.normalised(cats))[0]  # (512, 28, 28)


def deconvnet(channel, place):
    """The picture that is on trial."""
    return to_pixels("conv4_4", cat, channel, place)


def gradient_of(channel, place):
    """The gradient of the same activation: (3, 224, 224)."""
    return torch.autograd.grad(at_conv4_4[channel, *place], cats, retain_graph=True)[0][0]


channel, place = exhibit
channels = [
    channel,
    *(each for each in at_conv4_4[:, *place].topk(13).indices.tolist() if each != channel),
][:13]
everywhere = [divmod(i, 28) for i in range(28 * 28)]
alike = {
    each: likeness(each, channel, place, channels, everywhere) for each in (deconvnet, gradient_of)
}
draw_trial()
print(f"with gradients: {alike[gradient_of]:.2f}")
reveal("correlation with the pictures of other maps", alike[deconvnet])

# %% [markdown] tags=["answer"]
# 0.98. Pictures of *different* maps at one place are nearly the same. The gradients of the same activations, below, are not. (`places` is the
# bait: the claim is about the map, so the place stays.)

# %% [markdown]
# Is it this place, or this layer? Here are the four strongest maps at 10 to 15 random places, in each of five draws:
#
# | layer | mean correlation of the maps' pictures |
# | --- | --- |
# | `conv2_2` | 0.50 to 0.55 |
# | `conv3_4` | 0.92 to 0.94 |
# | `conv4_4` | 0.97 to 0.98 |
#
# With gradients, none of these means is above 0.4. So the claim falls, from `conv3_4` upwards: the picture does *not* show what this map looks for. But what draws
# them, whichever map we ask?
#
# ### Three suspects
#
# A deconvnet carries three things down: the **switches** of the photograph, the **weights** of the network, and its own **ReLU**. To find the
# one that makes the maps alike, take each out alone, and leave the other two as they were (an *ablation*). You need not write `down` again.
# It gets other modules, or other maps:
#
# - *no switches*: every value goes to the top left of its window;
# - *no weights*: each convolution has random numbers;
# - *no ReLU*: what is negative goes on.


# %% tags=["task:2.7"]
def taken_out(suspect: str, pooled: list[Tensor], modules: nn.Sequential, noise: nn.Sequential):
    """What `down` gets, the modules and the maps, with one suspect out and the other two as they were.

    suspect: "switches", "weights" or "ReLU". pooled: the maps that were pooled. modules: of the network. noise: the same
    modules with random weights.
    """
    # BEGIN SOLUTION
    if suspect == "switches":
        pooled = [torch.zeros_like(each) for each in pooled]
    elif suspect == "weights":
        modules = noise
    else:
        modules = [module for module in modules if not isinstance(module, nn.ReLU)]
    return modules, pooled
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Where does `unpool` put a value if all numbers of its window are the same? Read the last line of its docstring.

# %% [markdown] tags=["pseudocode"]
# ```
# switches: maps of zeros in place of pooled
# weights:  noise in place of modules
# ReLU:     all modules but the ReLUs
# return the modules and the maps
# ```

# %% [markdown]
# Put your money on one of the three before you run the next cell. (It takes half a minute.) You will see six maps of one place, the exhibit first; the number is the
# exhibit's mean correlation with twelve others.

# %% jupyter={"source_hidden": true}
body = encoder.body[: LAYERS["conv4_4"] + 1]


def noise_like(modules: nn.Sequential, seed: int) -> nn.Sequential:
    """The same modules, with normally distributed weights of the same spread in every convolution."""
    torch.manual_seed(seed)
    copied = copy.deepcopy(modules)
    for module in copied:
        if isinstance(module, nn.Conv2d):
            module.weight.data = torch.randn(module.weight.shape) * module.weight.std()
    return copied


noise = noise_like(body, seed=0)


def deconvnet_without(*suspects):
    """The method on trial, with some of its parts taken out: a function of a map and a place."""
    modules, pooled = body, [maps[layer][cat : cat + 1] for layer in list(LAYERS)[:3]]
    for suspect in suspects:
        modules, pooled = taken_out(suspect, pooled, modules, noise)

    def picture(channel, place):
        signal = torch.zeros_like(maps["conv4_4"][cat : cat + 1])
        signal[0, channel, *place] = 1
        return down(signal, modules, pooled)[0].flip(0)

    return picture


methods = {
    "as it is": deconvnet_without(),
    "no switches": deconvnet_without("switches"),
    "no weights": deconvnet_without("weights"),
    "no ReLU": deconvnet_without("ReLU"),
    "the ReLU alone": deconvnet_without("switches", "weights"),
}

# %%
without = {
    title: likeness(method, channel, place, channels, everywhere)
    for title, method in methods.items()
}


# %% jupyter={"source_hidden": true}
def draw_suspects(title):
    """Six maps of one place, by one method."""
    figure, grid = plt.subplots(2, 3, figsize=(6.6, 4.7), layout="constrained")
    top, left = (int((each + 0.5) * 8 - 60) for each in place)
    for axis, each in zip(grid.flat, channels, strict=False):
        cut = methods[title](each, place)[:, top : top + 120, left : left + 120]
        limit = cut.abs().flatten().quantile(0.995)
        shown = (0.5 + cut / (2 * limit)).clamp(0, 1).permute(1, 2, 0)
        bare(axis, shown, f"map {each}")
    return figure


Slides(draw_suspects, [*methods], "deconvnet", lambda title: f"{title} ({without[title]:.2f})")

# %% [markdown]
# It is the ReLU. Without it, six maps draw six different things. Is it only this place, or this noise? Here are 18 random places, with three
# draws of noise:
#
# | taken out | the exhibit | the four strongest maps at 18 random places |
# | --- | --- | --- |
# | nothing | 0.98 | 0.95 to 0.99 |
# | the switches | 0.96 | 0.94 to 0.99 |
# | the weights | 0.85 | 0.84 to 0.93 |
# | **the ReLU** | **0.23** | **-0.04 to 0.36** |
# | the switches *and* the weights | 0.86 | 0.80 to 0.94 |
#
# So the photograph's switches and the network's weights draw the cat: take out either, and it is gone. But that *all* maps draw the same cat is the
# work of the ReLU on the way down. Take it out, and the maps part. Leave it with nothing but noise, and they still agree (0.86). The gradients had
# told us as much: they keep the switches and the weights, have no such ReLU, and reach 0.29.
#
# Why a ReLU? A dozen times it throws away what is negative. What is left of any signal then points into the same corner, and sums of such
# signals resemble each other. That is our reading, and nothing here tests it. Nie et al. (2018) blame the backward ReLU, too: they derive that such pictures
# recover the photograph, whatever the network decides.
# (For such pictures in general, see Mahendran and Vedaldi, 2016.)
#
# ## What to remember
#
# - A decoder gets a vector for each place: 196 of 512 numbers from VGG-19.
# - A place in the middle can see the whole picture, but half of the gradient, in absolute value, lies in a square of four to five cells.
# - Up to `conv4_4`, colour dominates a vector less and less, and shape more and more. What no longer dominates a vector can often still be read from it.
# - The map moves with the picture. A mean over places cannot see their order, unless the vectors know where they are.
# - Compare methods on the same encoder, and run a frozen encoder once.
# - Before a picture explains a map, ask for the picture of another map.
# - If two pictures agree too well, take the parts of the method out, one at a time. Here switches and weights draw the cat, and the ReLU on the
#   way down makes all maps draw the same one.
#
# So what does it see? **196 vectors, one for each place: what is there and around it, its shape and texture more than its colour. Do not trust a picture of one of these numbers
# before you have seen those of others.**

# %% [markdown] tags=["workbook"]
# ## Now think
#
# ### Another layer, another culprit?
#
# ●●○ · 15 minutes · open
#
# Try the three suspects at `conv2_2`, at a few places of your choice. Is it the ReLU there, too? Count the ReLUs and the poolings on the way
# down before you answer.
#
# <details><summary>Answer</summary>At `conv2_2` the maps are less alike from the start (0.43 to 0.62, three draws of six places). Without the
# switches 0.12 to 0.21 is left, and without the ReLU 0.12 to 0.21 as well: with one pooling and three ReLUs below, both are needed. With noise for
# weights, it is 0.51 to 0.74.</details>

# %% [markdown]
# ## References
#
# - K. Xu et al., ICML 2015, [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - VGG: K. Simonyan, A. Zisserman, [arXiv:1409.1556](https://arxiv.org/abs/1409.1556)
# - Deconvnet: M. D. Zeiler, R. Fergus, ECCV 2014.
#   [arXiv:1311.2901](https://arxiv.org/abs/1311.2901); J. T. Springenberg et al.,
#   [arXiv:1412.6806](https://arxiv.org/abs/1412.6806)
# - On such pictures: A. Mahendran, A. Vedaldi, ECCV 2016; W. Nie, Y. Zhang, A. Patel,
#   [arXiv:1805.07039](https://arxiv.org/abs/1805.07039)
# - Receptive fields: W. Luo et al., NIPS 2016. [arXiv:1701.04128](https://arxiv.org/abs/1701.04128)
# - Coordinates: R. Liu et al., NeurIPS 2018. [arXiv:1807.03247](https://arxiv.org/abs/1807.03247)

# %% tags=["claims"] jupyter={"source_hidden": true}
# What the prose says in numbers, held against this run and the stored results.
assert torch.equal(a[0, 17], maps["conv5_4"][0, :, 1, 3])
assert 0.935 < (a == 0).float().mean() < 0.945, "94 percent"
assert abs(int((eye_vector > 0).sum()) - 25) < 3, "25 numbers"
assert (sides["conv1_2"], sides["conv4_4"], sides["conv5_4"]) == (5, 116, 252)
assert abs(np.mean(half) - 70) < 1.5, "less than five cells"
cell = weight[:, 112:128, 112:128].sum((1, 2)) / weight.sum((1, 2))
assert [round(100 * float(each)) for each in (cell.min(), cell.max())] == [2, 5], (
    "the cell itself: 2 to 5 percent"
)
names_of = [f"conv{b}_{n}" for b, last in enumerate((2, 2, 4, 4, 4), 1) for n in range(1, last + 1)]
relus = [number for number, module in enumerate(encoder.body) if isinstance(module, nn.ReLU)]
assert LAYERS.items() <= dict(zip(names_of, relus, strict=True)).items(), "the last of each block"
square_of_ones = torch.zeros(40, 50)
square_of_ones[10:20, 20:30] = 1.0
assert [side_holding(square_of_ones, share) for share in (1.0, 0.63, 0.65)] == [10, 8, 10], (
    "64 of 100 are in 8 x 8"
)
assert (np.asarray(lowered(photos[0], 24))[24:] == np.asarray(lowered(photos[0], 0))[:-24]).all(), (
    "by whole pixels"
)


class Rectified(torch.autograd.Function):
    """The deconvnet's ReLU: on the way back it lets pass what is positive there."""

    @staticmethod
    def forward(context, signal):
        return signal.relu()

    @staticmethod
    def backward(context, gradient):
        return gradient.relu()


signal = encoder.normalised(cats)
for module in encoder.body[: LAYERS["conv4_4"] + 1]:
    signal = Rectified.apply(signal) if isinstance(module, nn.ReLU) else module(signal)
(independent,) = torch.autograd.grad(signal[0, channel, *place], cats)
assert correlation(independent[0], deconvnet(channel, place)) > 0.999, (
    "the deconvnet is autograd with the ReLU's gate moved"
)
for (title, name), (cosine, spot) in {
    ("eye", "cats"): (0.92, (4, 8)),  # just below an eye of the other cat
    ("wheel", "lifeboat"): (0.76, (12, 13)),
    ("wheel", "dog"): (0.39, (3, 10)),  # just below a wheel of the car
    ("cow", "cows"): (0.64, (11, 8)),
    ("cow", "elephants"): (0.41, (8, 8)),  # just above the elephant
}.items():
    assert abs(nearest[title, name][0] - cosine) < 0.01
    assert divmod(nearest[title, name][1], 14) == spot
on_wheels = (
    a[names.index("lifeboat")].view(14, 14, -1)[11:][:, [2, 3, 4, 5, 11, 12, 13]].flatten(0, 1)
)
found = [int(cosines(a[names.index("dog")], vector).argmax()) for vector in on_wheels]
assert sum(divmod(spot, 14) in {(2, 10), (3, 9), (3, 10)} for spot in found) == 7, (
    "of 21 on the wheels, 7"
)
of = {  # question, attribute -> rounded share, layer by layer
    (question, attribute): [round(shares[question][layer]["share"]) for layer in LAYERS]
    for attribute, shares in study["attributes"].items()
    for question in ("nearest", "linear")
}
assert study["objects"] == 300
assert round(colour["chance"]) == 17
assert [of["nearest", "colour"][i] for i in (0, 3, 4)] == [100, 75, 45]
assert all(
    of[way, what][3] - of[way, what][4] < 11
    for way in ("nearest", "linear")
    for what in ("texture", "shape")
)
assert [of["nearest", "shape"][i] for i in (0, 3)] == [41, 99]
assert of["linear", "colour"][3:] == [98, 63]
assert [round(each, 2) for each in (along, inner, still)] == [0.8, 0.94, 0.39]
assert (len(both), round(100 * np.mean(in_order)), round(100 * np.mean(same_axis))) == (
    236,
    97,
    90,
), "97; 90"
assert round(100 - 100 * len(both) / len(told)) == 53
wrong = [pair for pair in told if pair not in both]
by_attention = [
    (scenes.grammar.parse(text), scenes.scene(image_id).meaning)
    for image_id, text in evaluations["scenes-soft"]["captions"].items()
]
names_both = [
    said and {said.first, said.second} == {true.first, true.second} for said, true in by_attention
]
assert names_both.count(True) == len(names_both) - 9 == 491, "with attention in 9"


def properties(meaning):
    """What a caption says of its two objects, whichever has it."""
    return {
        (name, value)
        for each in (meaning.first, meaning.second)
        for name, value in vars(each).items()
    }


assert (len(wrong), sum(not properties(said) <= properties(true) for said, true in wrong)) == (
    264,
    6,
)

assert round(bleu["lite0-soft"] - bleu["soft"], 1) == 2.7
assert round(bleu["soft"] - bleu["none"], 1) == 1.2
assert bleu["lite0-soft"] - bleu["lite0-none"] < 0.1
assert stored_bytes == 196 * 512 * 2
assert reading < computing / 10
assert error < 2**-11, "one part in two thousand"
assert len(channels) == 13, "the 12 maps"
assert round(alike[deconvnet], 2) == 0.98
assert abs(alike[gradient_of] - 0.29) < 0.02
assert abs(without["as it is"] - alike[deconvnet]) < 1e-3, (
    "a ReLU network does not care how strong a signal is"
)
assert abs(without["no switches"] - 0.96) < 0.01
assert abs(without["no weights"] - 0.85) < 0.04
assert abs(without["no ReLU"] - 0.23) < 0.02
assert abs(without["the ReLU alone"] - 0.86) < 0.04
assert sum(isinstance(module, nn.ReLU) for module in body) == 12, "a dozen times"
assert [round(each) for each in live["nearest", "shape"]][3] > 85, "the same story"
assert (
    live["nearest", "colour"][0]
    > 95
    > 85
    > live["nearest", "colour"][3]
    > live["nearest", "colour"][4]
)
assert live["linear", "colour"][4] < colour["linear"]["conv5_4"]["share"], "reads less"
