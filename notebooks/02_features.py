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
# The paper's captioner does not see pixels. It sees 196 vectors, one for each cell of a grid over the photograph.
# A convolutional network computes them. This notebook takes such a vector apart: which pixels it sees, what it knows
# about them, and what it has lost.
#
# **You will be able to**
#
# - turn a photograph into the paper's annotation vectors $a_1, \dots, a_L$, and say which pixels each of them sees;
# - measure what each layer knows about an object, with error bars;
# - project an activation back to pixels with a deconvnet that you first work out by hand;
# - measure what changes at each layer when the picture is moved, enlarged or turned;
# - compare encoders, and run a frozen encoder once instead of in every epoch.
#
# **Minutes**: 38 to read, 0.8 to run on two CPU cores. **Memory**: 2.1 GB. **Needs**: no earlier notebook; nothing to
# download.

# %%
import itertools
import json
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
import torchvision
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

import satlib
from satcourse import demo
from satcourse.lessons import seeing
from satlib.data import scenes
from satlib.data.datasets import CaptionSet, Example
from satlib.data.images import open_photo, square, to_tensor
from satlib.evaluation import maps as ground
from satlib.evaluation import overlay, plots, table
from satlib.model import encoders, shipped
from satlib.model.captioner import Captioner
from satlib.training.features import extract

BLUE, ORANGE, GREEN, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9"  # Okabe and Ito
PINK = "#cc79a7"
LAYERS = ("conv1_2", "conv2_2", "conv3_4", "conv4_4", "conv5_4")
plt.style.use("satcourse.page")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# %% [markdown]
# ## Annotation vectors
#
# <!-- index: section 3.1.1 | annotation vectors a = {a_1, ..., a_L} of a convolutional layer | satlib.model.encoders.Encoder | tests/test_encoders.py::test_places_are_in_rows_from_the_top_left -->
#
# > **Paper, section 3.1.1.** The encoder turns one picture into $L$ vectors of $D$ dimensions. Each vector stands for a
# > part of the picture:
# > $$a = \{a_1, \dots, a_L\}, \quad a_i \in \mathbb{R}^D$$
# > They come from a convolutional layer. Earlier captioners used one vector from a fully connected layer. With several
# > vectors the decoder can focus on parts of the picture by weighting them.
#
# > **Section 4.3.** The layer is the last convolutional map of VGG-19 before max pooling, $14 \times 14 \times 512$. So
# > $L = 196$ and $D = 512$. The network was trained to classify ImageNet and is not trained further.
#
# In other words: lay a grid of $14 \times 14$ cells over the photograph. For each cell the network gives a list of 512
# numbers. Each number comes from one *feature map*, and says how strongly that map's pattern is present there. Number
# the cells row by row, and you have $a_1, \dots, a_{196}$. The decoder gets nothing else from the photograph.
#
# VGG-19's weights come with the installation. The next cell runs it once on five photographs and keeps the outputs of
# five layers. Layers are named by block and number: `conv5_4` is the fourth convolution of the fifth block, after its
# ReLU. It is the paper's layer. Each photograph is cropped to its middle, as in the paper. (satlib's own training runs
# squeeze the whole photograph into the square instead.)
# <!-- source: cropped to its middle, as in the paper | section 5.4 of the paper -->
# <!-- source: squeeze the whole photograph into the square | docs/recipes.md, encoder.view; the recipes in satlib/recipes -->
#
# **Predict, then run.** Write down a number: what share of the 196 x 512 numbers is exactly zero?

# %%
encoder = encoders.create("vgg19").requires_grad_(False).to(device)
names = [path.stem for path in demo.photographs()]
photos = [open_photo(path) for path in demo.photographs()]
squares = [square(photo, "crop") for photo in photos]  # the paper's view: shortest side to 256, the middle 224 x 224
pixels = torch.stack([to_tensor(each) for each in squares]).float().to(device).requires_grad_(True)

trace = seeing.look(encoder, pixels, LAYERS)
place = (7, 7)  # a gradient for the next section, while autograd still holds the graph
(gradient,) = torch.autograd.grad(trace.maps["conv5_4"][:, :, place[0], place[1]].sum(), pixels)
trace = seeing.Trace({layer: each.detach() for layer, each in trace.maps.items()}, trace.switches, trace.sizes)

last = trace.maps["conv5_4"]
a = last.flatten(2).transpose(1, 2)  # (B, 512, 14, 14) -> (B, 512, 196) -> (B, 196, 512)

assert encoder.grid == (14, 14)
assert a.shape == (len(photos), 196, 512)
for i in (0, 17, 195):
    assert torch.equal(a[0, i], last[0, :, i // 14, i % 14])  # place i is row i // 14, column i % 14
torch.testing.assert_close(encoder(pixels[:1].detach()), a[:1], rtol=1e-4, atol=1e-2)  # what satlib's encoder gives

zeros = (a == 0).float().mean((1, 2))
print("share of zeros:", ", ".join(f"{name} {share:.0%}" for name, share in zip(names, zeros.tolist(), strict=True)))
assert (a >= 0).all()
assert (zeros > 0.85).all(), "about nine numbers in ten are zero"
assert (zeros < 0.96).all()

# %% [markdown]
# <details><summary>Answer</summary>
#
# In each photograph about nine numbers in ten are zero. The ReLU cuts off everything negative, and each place responds
# to few patterns.
#
# </details>
#
# Here is one vector: that of the cell on one of the cat's eyes. On the right are the three feature maps with its
# largest numbers.
# <!-- here: the three feature maps with its largest numbers | the code of this section: the vector sorted, its first three -->

# %%
cat, eye = names.index("chelsea"), (5, 3)


def bare(axis: Axes, picture: np.ndarray | Tensor | Image.Image, title: str = "", **style: float | str) -> None:
    """A panel without ticks and frame."""
    axis.imshow(picture, **style)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    axis.set_title(title, fontsize=8)


def box(axis: Axes, centre: tuple[float, float], side: float, colour: str = "white", **style: float | str) -> None:
    """A square outline about (row, column) in pixels, seen on bright and on dark."""
    (y, x), half = centre, side / 2
    square_outline = Rectangle((x - half, y - half), side, side, fill=False, edgecolor=colour, **style)
    square_outline.set_path_effects([withStroke(linewidth=square_outline.get_linewidth() + 1.5, foreground="black")])
    axis.add_patch(square_outline)


def middle(place: tuple[int, int], stride: int = 16) -> tuple[float, float]:
    """The pixel in the middle of a cell."""
    return place[0] * stride + stride / 2, place[1] * stride + stride / 2


vector = a[cat, eye[0] * 14 + eye[1]].cpu()
figure = plots.NotebookFigure(figsize=(8.8, 2.0), layout="constrained")
axes = figure.subplots(1, 5, width_ratios=(1.2, 1.9, 1, 1, 1))
bare(axes[0], squares[cat], "14 x 14 places; one of them")
for edge in range(16, 224, 16):
    axes[0].axhline(edge, color="white", linewidth=0.3)
    axes[0].axvline(edge, color="white", linewidth=0.3)
box(axes[0], middle(eye), 16, linewidth=1.5)
axes[1].vlines(range(512), 0, vector, color=BLUE, linewidth=0.8)
axes[1].set_title("its vector: 512 numbers", fontsize=8)
axes[1].tick_params(labelsize=7)
for axis, channel in zip(axes[2:], vector.argsort(descending=True)[:3].tolist(), strict=True):
    bare(axis, last[cat, channel].cpu(), f"feature map {channel}", cmap="cividis")
    axis.add_patch(Rectangle((eye[1] - 0.5, eye[0] - 0.5), 1, 1, fill=False, edgecolor=ORANGE, linewidth=1.5))
figure

# %% [markdown]
# Left: the cell. Middle: its 512 numbers. Right: the three maps over the whole grid (yellow is strong), with the cell
# outlined. The maps respond at the other eye too.

# %% [markdown]
# ## What a place can see
#
# <!-- index: section 5.4 | a 14 x 14 map with large receptive fields, drawn 16 times larger and smoothed | satcourse.lessons.seeing.receptive_field | tests/test_seeing.py::TestReceptiveField::test_vgg19 -->
#
# > **Paper, section 5.4.** VGG-19 stacks $3 \times 3$ filters, and its maps shrink only where it pools. There are
# > four poolings by 2 between the $224 \times 224$ pixels and the map: $224 / 2^4 = 14$. To draw the attention
# > weights on the photograph, the paper enlarges them $2^4 = 16$ times and smooths them with a Gaussian, because the
# > receptive fields are large.
#
# The *receptive field* of an activation is the square of pixels that it depends on: the pixels that it sees. How large
# is it? Start at the pixels and go up. Let $r$ be the side of the square. Let $j$ be the distance in pixels between
# neighbouring activations. At first both are 1. A layer with kernel $k$ and stride $s$ changes them to
# $$r \leftarrow r + (k - 1)\,j, \qquad j \leftarrow j\,s.$$
# So a convolution ($k = 3$, $s = 1$) adds $2j$ to $r$. A pooling ($k = 2$, $s = 2$) adds $j$ and multiplies $j$ by 2.
#
# **Predict, then run.** A cell of the grid is 16 pixels wide. Write down a number: what is the side of the square that
# a vector of `conv5_4` sees?

# %%
r, j, sides = 1, 1, []
for module in encoder.body:
    if not isinstance(module, nn.ReLU):
        kernel, stride = (3, 1) if isinstance(module, nn.Conv2d) else (2, 2)
        r, j = r + (kernel - 1) * j, j * stride
    sides.append(r)
by_hand = {layer: sides[index] for layer, index in seeing.layer_names(encoder).items()}
for layer, side in by_hand.items():
    top, left, bottom, right = seeing.receptive_field(encoder, layer, (3, 3))
    assert bottom - top == right - left == side
print({layer: by_hand[layer] for layer in LAYERS})
assert by_hand["conv5_4"] > 224, "more than the whole photograph"

# %% [markdown]
# <details><summary>Answer</summary>
#
# 252 pixels. That is more than the whole photograph, which has 224.
#
# </details>
#
# So a place in the middle *can* see the whole photograph. But the pixels do not all count the same. A pixel in the
# middle of the field has many paths up to the vector; a pixel at its border has few (Luo et al., 2016).
# <!-- source: a pixel at its border has few | Luo et al. (2016), section 1 -->
#
# The absolute value of the gradient measures how much each pixel counts. The cell that ran VGG-19 already computed it:
# the gradient of the sum of the vector at row $7$, column $7$, with respect to every pixel.
#
# **Predict, then run.** Put a square around the gradient's centre of mass. Write down a number: how many pixels wide
# must it be to hold half of the sum of the absolute values?

# %%
weight = gradient.abs().sum(1).cpu()  # (B, 3, 224, 224) -> (B, 224, 224)
half_of_it = [seeing.side_holding(each, 0.5) for each in weight]
most_of_it = [seeing.side_holding(each, 0.9) for each in weight]
print("a square that holds half of the gradient: ", dict(zip(names, half_of_it, strict=True)))
print("a square that holds 90 % of it:           ", dict(zip(names, most_of_it, strict=True)))
assert all(60 <= side <= 85 for side in half_of_it), "Between 60 and 85 pixels, depending on the photograph"

figure = plots.NotebookFigure(figsize=(8.8, 2.35), layout="constrained")
axes = figure.subplots(1, 4)
bike = names.index("motorcycle_left")
bare(axes[0], squares[bike], "what it may see, by layer")
for layer, colour in zip(LAYERS[:-1], ("white", YELLOW, SKY, GREEN), strict=True):
    box(axes[0], middle(place), by_hand[layer], colour, linewidth=1.5)
box(axes[0], (111.5, 111.5), 220, ORANGE, linewidth=3)  # conv5_4: more than there is
for axis, i in zip(axes[1:], (bike, cat, names.index("coffee")), strict=True):
    bare(
        axis,
        (weight[i] / weight[i].quantile(0.998)).clamp(max=1).sqrt(),
        f"{names[i].split('_')[0]}: what it does see",
        cmap="cividis",
    )
    rows, columns = torch.arange(224.0), torch.arange(224.0)
    centre = float(weight[i].sum(1) @ rows / weight[i].sum()), float(weight[i].sum(0) @ columns / weight[i].sum())
    box(axis, middle(place), 16, ORANGE, linewidth=1.5)
    box(axis, centre, half_of_it[i], linewidth=1.2)
    box(axis, centre, most_of_it[i], linewidth=1.2, linestyle=":")
figure

# %% [markdown]
# <details><summary>Answer</summary>
#
# Between 60 and 85 pixels, depending on the photograph. That is about four to five cells.
#
# </details>
#
# Left: the squares that the five layers *can* see, from `conv1_2` (5 pixels, the dot) to `conv5_4` (the whole
# photograph). The other panels show the gradient of one place of `conv5_4` in three photographs. Bright pixels count
# more. The small orange square is the cell itself. The solid square holds 50 % of the sum of absolute values, the
# dotted one 90 %. Both are centred on the gradient's centre of mass.
#
# So a place mainly sees a region around its cell, and the region has a soft edge. The paper's Gaussian imitates this.

# %% [markdown]
# ### How far should a place see?
#
# Attention will give each place a weight, and we will read a large weight as "the model looks here". That is fair only
# if the field is small: a place that sees far beyond its cell can serve for looking at things beside it.
#
# satlib trains a network of its own for drawn scenes, which have two objects each, with known pixels. Compare two
# designs of five convolutions. In one, $7 \times 7$ places each see a square of 126 pixels. In the other, satlib's
# encoder `small`, $14 \times 14$ places each see a square of 58. To name an object, a place must see enough of it:
# let us say, at least half of its pixels.
#
# **Predict, then run.** In each design about ten places see that much of an object. Some lie on the object, others
# beside it. How far away, in pixels, is the middle of the farthest one, with the first design and with the second?
# <!-- here: at least half of its pixels | the function serving in the next cell -->

# %%
small = encoders.create("small", pretrained=False)
DESIGNS = {  # places on a side -> kernel, stride and padding of each convolution
    7: [(6, 4, 1), (3, 2, 1), (3, 2, 1), (3, 2, 0), (3, 1, 1)],
    small.grid[0]: [(m.kernel_size[0], m.stride[0], m.padding[0]) for m in small.body if isinstance(m, nn.Conv2d)],
}


def field(design: int, place: int) -> tuple[int, int]:
    """The first and the last pixel that a place sees along one axis, found from the top layer down."""
    low = high = place
    for kernel, stride, padding in reversed(DESIGNS[design]):
        low, high = low * stride - padding, high * stride - padding + kernel - 1
    return low, high


def serving(design: int, mask: np.ndarray) -> np.ndarray:
    """The middles (y, x) of the cells whose places see at least half of an object's pixels: (224, 224) -> (places, 2)."""
    fields, pixel = np.array([field(design, place) for place in range(design)]), np.arange(224)
    sees = ((fields[:, :1] <= pixel) & (pixel <= fields[:, 1:])).astype(int)  # (design, 224)
    return (np.argwhere(sees @ mask @ sees.T >= mask.sum() / 2) + 0.5) * 224 / design - 0.5


looked_at = scenes.load(1, 1, 100)
scene_of = {example.image_id: scenes.scene(example.image_id) for example in looked_at.split("test")}
all_masks = [mask for scene in scene_of.values() for mask in scene.masks]
far_away = {}
for design in DESIGNS:
    of_objects = [serving(design, mask) for mask in all_masks]
    gaps = [
        max(np.linalg.norm(np.argwhere(mask) - place, axis=1).min() for place in places)
        for mask, places in zip(all_masks, of_objects, strict=True)
    ]
    low, high = field(design, 0)
    far_away[design] = np.mean(gaps)
    print(
        f"{design} x {design} places that see {high - low + 1} pixels: {np.mean([len(places) for places in of_objects]):.1f} of them "
        f"see half of an object; the farthest is {far_away[design]:.0f} pixels away on average, {max(gaps):.0f} at most"
    )
assert far_away[7] > 32 > 16 > 2 * far_away[14], "more than a cell away; less than half a cell"

# %% [markdown]
# <details><summary>Answer</summary>
#
# 39 pixels on average with the wide field, and 5 with the narrow one: more than a cell away; less than half a cell.
#
# </details>
#
# So with the wide field a model may look well beside an object and still name it correctly. With the narrow field it has
# to look at the object. Does it? Nobody tells it where anything is: it is trained on drawings and captions alone. The
# next cell lets the model that comes with satlib caption the 100 scenes. It counts the words for which the peak of the
# map lies on the pixels of the object that the word describes.
# <!-- source: trained on drawings and captions alone | satlib/models/README.md -->

# %%
captioner = Captioner.load(shipped.model("scenes-soft"))
said = captioner.caption([looked_at.photo(example) for example in looked_at.split("test")], beam=1)
captions = dict(zip(scene_of, said, strict=True))
pointing = ground.summary(ground.ground(looked_at, captions))["all"]
print(
    f"{pointing['words']} words: peak on the object's own pixels {pointing['pointing strict']:.0f} %; "
    f"a random cell {pointing['pointing strict_chance']:.0f} %"
)
assert pointing["pointing strict"] > 85, "for about nine words in ten"

example = looked_at.split("test")[1]
scene, caption = scene_of[example.image_id], captions[example.image_id]
*_, target = (each for each in ground.scene_targets(example, caption.words) if each.kind == "shape")
figure = plots.NotebookFigure(figsize=(7.2, 2.75), layout="constrained")
axes = figure.subplots(1, 3)
for axis, design in zip(axes, DESIGNS, strict=False):
    cell, places = 224 / design, serving(design, target.mask)
    bare(axis, scene.photo(), f"{design} x {design} places: {len(places)} see half of it")
    axis.plot(*np.meshgrid(*2 * [(np.arange(design) + 0.5) * cell - 0.5]), ".", color="0.3", markersize=2)
    axis.plot(places[:, 1], places[:, 0], "o", color=ORANGE, markersize=5, markeredgecolor="black")
    far = max(places, key=lambda place: np.linalg.norm(np.argwhere(target.mask) - place, axis=1).min())
    box(axis, tuple(far), np.ptp(field(design, 0)) + 1, ORANGE, linewidth=1.5)
    axis.set(xlim=(-0.5, 223.5), ylim=(223.5, -0.5))
bare(
    axes[2],
    overlay.lit(scene.photo(), caption.alphas[target.index : target.index + 1])[0],
    f'the model at "{caption.words[target.index]}"',
)
for axis in axes:
    axis.contour(target.mask, levels=[0.5], colors="white", linewidths=1.2)
figure

# %% [markdown]
# The orange dots are the places that see at least half of the outlined object. The orange square is the field of the one
# farthest away. On the right is the light of the shipped model at the word that names the object. For about nine words
# in ten the peak is on the object itself: with these fields there is hardly another place from which the object can be
# seen. So design the fields if you want to read the maps.
# <!-- here: see at least half of the outlined object | the function serving in the cell before the last -->
# <!-- here: the one farthest away | the code of this section: max over the places -->

# %% [markdown]
# ## Similar places have similar vectors
#
# If a vector says what is at a place, then similar things should have similar vectors, wherever they are. We compare
# vectors by their cosine, which ignores their lengths. Take three places: a cat's eye, a motorcycle's rear wheel, a
# rocket. How similar is every other place of the same photograph? And which place is nearest in each of the other
# photographs?
#
# **Predict, then run.** No photograph shows a second cat, motorcycle or rocket. Which place is nearest to each of the
# three: elsewhere in its own photograph, and in the other photographs?

# %%
unit = functional.normalize(a, dim=2)
rocket, shuttle = (
    names.index("rocket"),
    names.index("astronaut"),
)  # behind the astronaut stands a model of a space shuttle
queries = {"an eye": (cat, eye), "rear wheel": (bike, (8, 2)), "rocket": (rocket, (10, 7))}


def nearest(picture: int, place: tuple[int, int], other: int) -> tuple[float, tuple[int, int]]:
    """The most similar place of a photograph; of the same photograph, at least three cells away."""
    similar = (unit[other] @ unit[picture, place[0] * 14 + place[1]]).view(14, 14).clone()
    if other == picture:
        similar[max(0, place[0] - 2) : place[0] + 3, max(0, place[1] - 2) : place[1] + 3] = -1.0
    return float(similar.max()), divmod(int(similar.argmax()), 14)


def patch(picture: Image.Image, place: tuple[int, int], side: int = 88) -> np.ndarray:
    """The pixels around a place; at the border the window is shifted so that it stays inside the photograph."""
    top, left = (int(min(max(pixel - side / 2, 0), 224 - side)) for pixel in middle(place))
    return np.asarray(picture)[top : top + side, left : left + side]


figure = plots.NotebookFigure(figsize=(8.8, 4.1), layout="constrained")
for row, (title, (i, asked)) in zip(figure.subplots(3, 7), queries.items(), strict=True):
    bare(row[0], squares[i], title)
    box(row[0], middle(asked), 16, linewidth=1.5)
    similar = (unit[i] @ unit[i, asked[0] * 14 + asked[1]]).view(14, 14).cpu()
    bare(row[1], similar, "how similar", cmap="cividis", vmin=0, vmax=1)
    others = [i, *(k for k in range(len(photos)) if k != i)]
    for axis, k in zip(row[2:], others, strict=True):
        cosine, there = nearest(i, asked, k)
        bare(axis, patch(squares[k], there), f"{'same' if k == i else names[k].split('_')[0]}: {cosine:.2f}")
figure

# %% [markdown]
# <details><summary>Answer</summary>
#
# Each row shows the place (outlined), its cosine with every place of its own photograph (yellow is similar), the
# nearest place at least three cells away, and the nearest place in each of the other photographs.
#
# - The eye finds the other eye.
# - The rear wheel finds the front wheel.
# - Among the other photographs, the rocket finds the astronaut's photograph, which shows a model of a space shuttle in
#   the background.
#
# Nobody trained the network to compare places. It was trained to tell a thousand classes apart (Simonyan and Zisserman,
# 2015).
#
# </details>
# <!-- source: It was trained to tell a thousand classes apart | Simonyan and Zisserman (2015), section 4 -->

# %%
assert nearest(*queries["an eye"], cat)[1][1] >= 9, "The eye finds the other eye"  # on the right of the photograph
assert nearest(*queries["rear wheel"], bike)[1][1] >= 9, "The rear wheel finds the front wheel"
found = {k: nearest(*queries["rocket"], k) for k in range(len(photos)) if k != rocket}
assert max(found, key=found.get) == shuttle, "the rocket finds the astronaut's"
assert found[shuttle][1][1] >= 9  # on the right, where the model stands

# %% [markdown]
# ## What each layer knows about an object
#
# <!-- index: claim: lower layers keep what upper layers lose | an object's colour fades from layer to layer while its shape appears | satcourse.lessons.seeing.look | tests/test_seeing.py::TestLayers::test_maps_are_what_each_module_gives -->
#
# > **Paper, section 1.** The top layer of a network distils a picture to its most salient objects. That may lose
# > information that a rich caption needs. A lower layer keeps more of it, but then the model needs a way to find what
# > matters: attention.
#
# What do the layers lose? Drawn scenes can answer, because we know the truth about every pixel. Each scene has two
# objects; the grey shapes, twigs and specks are clutter. An object's shape tells you nothing about its texture: they
# are chosen independently. At each layer, take the mean vector over the visible pixels of an object. Then find the
# nearest object (by cosine) in the *other* scenes. Does it have the same colour? The same texture? The same shape? If
# the vectors knew nothing, an object and its nearest object would agree only by chance.
# <!-- source: they are chosen independently | satlib/data/scenes.py, _kinds -->
#
# Here are the answers for 20 objects. The brackets are 95 % intervals, from resampling the scenes with replacement (the
# *bootstrap*).

# %%
SCENES = 10
drawn = [scenes.scene(example.image_id) for example in scenes.load(1, SCENES, 1).split("dev")]
rendered = [scene.render() for scene in drawn]  # the picture, and a mask for each object
owner = torch.arange(SCENES).repeat_interleave(2)  # objects 2s and 2s + 1 are in scene s
objects = [thing for scene in drawn for thing in scene.objects]

vectors: dict[str, list[Tensor]] = {layer: [] for layer in LAYERS}
for start in range(0, SCENES, 5):
    pictures, masks = zip(*rendered[start : start + 5], strict=True)
    with torch.no_grad():
        seen = seeing.look(encoder, torch.stack([to_tensor(each) for each in pictures]).to(device), LAYERS)
    cover = torch.from_numpy(np.stack(masks)).float().to(device)  # (5, 2, 224, 224)
    for layer, layer_map in seen.maps.items():
        shares = functional.adaptive_avg_pool2d(cover, layer_map.shape[2:])  # how much of a cell is the object's
        means = torch.einsum("sdyx,soyx->sod", layer_map, shares) / shares.sum((2, 3)).unsqueeze(2)
        torch.testing.assert_close(means.flatten(0, 1), seeing.object_vectors(layer_map, cover))  # satlib's
        vectors[layer].append(means.flatten(0, 1).cpu())

resampled = torch.randint(SCENES, (1000, SCENES), generator=torch.Generator().manual_seed(0))
widths, hits_of = [], {}
for attribute in ("colour", "texture", "shape"):
    labels = [getattr(thing, attribute) for thing in objects]
    line = []
    for layer in LAYERS:
        nearest_object = seeing.nearest_elsewhere(torch.cat(vectors[layer]), owner)
        hits = (
            torch.tensor([labels[i] == labels[j] for i, j in enumerate(nearest_object)]).float().view(SCENES, 2).mean(1)
        )
        low, high = hits[resampled].mean(1).quantile(torch.tensor([0.025, 0.975])).tolist()
        line.append(f"{layer} {hits.mean():4.0%} ({low:.0%} to {high:.0%})")
        widths.append(high - low)
        hits_of.setdefault(attribute, []).append(100 * float(hits.mean()))
    print(f"{attribute:8}", "  ".join(line))
assert SCENES > 10 or sorted(widths)[len(widths) // 2] > 0.2, "too few: most intervals are wider than 20 points"

few_objects_colour = hits_of["colour"][-1]  # to compare with the stored study
figure = plots.NotebookFigure(figsize=(6.6, 2.4), layout="constrained")
for axis, scene, (picture, _) in zip(figure.subplots(1, 3), drawn, rendered, strict=False):
    one, two = ("" if each.texture == "plain" else f"{each.texture} " for each in scene.objects)
    first, second = scene.objects
    bare(axis, picture, f"{one}{first.colour} {first.shape},\n{two}{second.colour} {second.shape}")
figure

# %% [markdown]
# Twenty objects are too few: most intervals are wider than 20 points. Where a share is 0 % or 100 %, the bootstrap gives
# an interval of width zero. Such an interval is too narrow. The same study on hundreds of objects would take too long
# here, so its result is stored. The command that made it is printed below.
#
# The stored study also asks a second question. The nearest object only shows what *dominates* a vector. A decoder
# learns its own weights and could pick out something weaker. So a linear classifier is trained on the vectors of nine
# tenths of the scenes, and it names the attribute of the objects in the other tenth. Each tenth takes its turn, so every
# object is named once.
# <!-- source: nine tenths of the scenes | benchmarks/layers.py -->
#
# **Predict, then run.** Write down two numbers. At `conv5_4`, how many of a hundred objects have the same colour as
# their nearest object? And for how many can the linear classifier name the colour?

# %%
study = json.loads((Path(satlib.__file__).parent / "results" / "vgg19-layers.json").read_text())
print(f"{study['objects']} objects, stored by: {study['command']}\n")
attributes = study["attributes"]
for question, title in (("nearest", "the nearest object has the same"), ("linear", "a linear classifier names the")):
    for attribute, figures in attributes.items():
        row = "  ".join(
            f"{layer} {each['share']:3.0f} ({each['low']:.0f} to {each['high']:.0f})"
            for layer, each in figures[question].items()
        )
        print(f"{title} {attribute:8} {row}")
print("\nchance:", ", ".join(f"{attribute} {figures['chance']:.0f} %" for attribute, figures in attributes.items()))

figure = plots.NotebookFigure(figsize=(8.8, 2.9), layout="constrained")
axes = figure.subplots(1, 2, sharey=True)
looks = zip(attributes.items(), (ORANGE, GREEN, BLUE), "Dso", ("-", "--", "-."), strict=True)
for (attribute, figures), colour, marker, dashes in looks:
    for axis, question in zip(axes, ("nearest", "linear"), strict=True):
        each = figures[question]
        middles = np.array([each[layer]["share"] for layer in LAYERS])
        bars = [middles - [each[layer]["low"] for layer in LAYERS], [each[layer]["high"] for layer in LAYERS] - middles]
        style = {"color": colour, "marker": marker, "linestyle": dashes, "markersize": 5, "capsize": 3}
        axis.errorbar(range(5), middles, np.abs(bars), label=attribute, **style)
    axes[0].plot((0, 4), 2 * (figures["chance"],), ":", color=colour, marker=marker, markersize=3, linewidth=1)
for axis, title in zip(
    axes, ("nearest object in another scene: the same ...", "a linear classifier names the ..."), strict=True
):
    axis.set_xticks(range(5), LAYERS)
    axis.set_title(f"{title} (percent)", fontsize=9)
    axis.set_ylim(0, 104)
    axis.tick_params(labelsize=8)
    axis.grid()
axes[0].legend(fontsize=8, loc="lower left", ncols=3)
figure

# %% [markdown]
# <details><summary>Answer</summary>
#
# At `conv5_4`, 45 of a hundred nearest objects have the same colour (17 would by chance). The linear classifier names
# the colour of 63 in a hundred.
#
# </details>
#
# In the left panel, dotted lines mark chance, with the colour and the marker of each attribute. The bars are 95 %
# intervals.
#
# - **Colour fades.** In the first layer the nearest object has the same colour. In the last layer, colour no longer
#   dominates. But a linear classifier still reads more of it than the nearest object shows.
# - **Shape appears.** From `conv1_2` to `conv4_4` the nearest object has the same shape more and more often.
# - **Texture is there from the first layer on.** Even at `conv5_4`, nine in ten of the nearest objects have the same
#   texture.
#
# The 20 objects above gave a lower share for colour at `conv5_4`. Noise need not be the only reason: 300 objects offer
# more candidates that match in shape, texture *and* colour. So compare layers within one study. Do not compare shares
# across studies.
#
# The paper worries about the top layer. For colour, some of the loss has happened already at `conv5_4`, the layer that
# the paper uses: even a linear classifier fitted on hundreds of objects reads less colour there than at `conv4_4`.

# %% tags=["claims"] jupyter={"source_hidden": true}
share = {
    (question, attribute): [attributes[attribute][question][layer] for layer in LAYERS]
    for question in ("nearest", "linear")
    for attribute in attributes
}
colour, shape, texture = (share["nearest", attribute] for attribute in ("colour", "shape", "texture"))
assert study["objects"] >= 200
assert few_objects_colour < colour[4]["low"], "The 20 objects above gave a lower share for colour"
assert colour[0]["low"] > 95
assert colour[3]["low"] > colour[4]["high"] > attributes["colour"]["chance"], "Colour fades"
assert share["linear", "colour"][4]["low"] > colour[4]["high"], (
    "a linear classifier still reads more of it than the nearest object shows"
)
assert all(lower["high"] < upper["low"] for lower, upper in itertools.pairwise(shape[:4])), (
    "the nearest object has the same shape more and more often"
)
assert min(each["low"] for each in texture[:4]) > 95
assert texture[4]["low"] <= 90 <= texture[4]["high"], "nine in ten of the nearest objects have the same texture"
assert share["linear", "colour"][4]["high"] < share["linear", "colour"][3]["low"], (
    "reads less colour there than at conv4_4"
)
assert share["linear", "colour"][3]["share"] > 95, "at conv4_4 a linear classifier names nearly every colour"
assert round(share["linear", "colour"][4]["share"]) == 63, "at conv5_4 only 63 in a hundred"
assert all(upper["share"] <= lower["share"] for lower, upper in itertools.pairwise(colour)), (
    "From layer to layer, colour dominates the vectors less"
)

# %% [markdown]
# ## A deconvnet by hand
#
# <!-- index: claim: activations can be projected to pixels (deconvnet) | switches, ReLU, transposed filters | satcourse.lessons.seeing.project | tests/test_seeing.py::TestProject::test_with_relu_it_is_autograd_with_the_gate_moved -->
#
# Which pattern of *pixels* does a feature map respond to? Zeiler and Fergus (2014) take one activation, set all others
# of its layer to zero, and run the network backwards. They call this a *deconvnet*. Each step up has a counterpart on
# the way down:
#
# | up | down |
# | --- | --- |
# | max pooling keeps one value of each window and records where it was: the *switch* | unpooling puts the value where the switch points, and zeros elsewhere |
# | ReLU passes positive values | ReLU again, applied to the signal that comes *down* |
# | convolution with filters $W$ | the transposed convolution: each value adds a copy of its own map's filter, multiplied by the value, to the places below that it came from |
#
# Only the second row differs from a gradient (Springenberg et al., 2014). A gradient passes where the *upward* signal
# was positive. The deconvnet passes where the *downward* signal is positive. Biases are left out.
# <!-- source: max pooling keeps one value of each window | Zeiler and Fergus (2014), section 2.1 -->
#
# Here it is with plain loops, for two convolutions, one pooling and two ReLUs:

# %%
torch.manual_seed(0)
body = nn.Sequential(
    nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3, padding=1), nn.ReLU()
)
tiny = encoders.Encoder("tiny", encoders.Network(body, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)))
image = torch.rand(1, 3, 12, 12)


def unpooled(signal: Tensor, pooled: Tensor) -> Tensor:
    """(C, h, w), and what was pooled (C, 2h, 2w) -> (C, 2h, 2w)."""
    back = torch.zeros_like(pooled)
    for c, y, x in np.ndindex(*signal.shape):
        window = pooled[c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
        dy, dx = divmod(int(window.argmax()), 2)  # the switch
        back[c, 2 * y + dy, 2 * x + dx] = signal[c, y, x]
    return back


def spread(signal: Tensor, weight: Tensor) -> Tensor:
    """The transposed convolution: (out, h, w) and (out, in, 3, 3) -> (in, h, w)."""
    back = torch.zeros(weight.shape[1], signal.shape[1] + 2, signal.shape[2] + 2)  # with the padding
    for c, y, x in np.ndindex(*signal.shape):
        back[:, y : y + 3, x : x + 3] += signal[c, y, x] * weight[c]
    return back[:, 1:-1, 1:-1]


with torch.no_grad():
    first = body[:2](image)[0]  # (4, 12, 12)
    second = body(image)[0]  # (5, 6, 6)
    channel, row, column = np.unravel_index(int(second[:, 1:-1, 1:-1].argmax()), (5, 4, 4)) + np.array([0, 1, 1])
    alone = torch.zeros_like(second)
    alone[channel, row, column] = second[channel, row, column]
    down = spread(alone.relu(), body[3].weight)  # (4, 6, 6)
    above = unpooled(down, first)  # (4, 12, 12)
    by_hand_pixels = spread(above.relu(), body[0].weight)  # (3, 12, 12)

    looked = seeing.look(tiny, image, ["conv2_1"])
    projected = seeing.project(tiny, looked, "conv2_1", 0, int(channel), (int(row), int(column)))
torch.testing.assert_close(projected, by_hand_pixels)  # satlib's is the same

top, left, bottom, right_edge = seeing.receptive_field(tiny, "conv2_1", (int(row), int(column)))
inside = by_hand_pixels.abs().sum(0)[max(top, 0) : bottom, max(left, 0) : right_edge]
torch.testing.assert_close(inside.sum(), by_hand_pixels.abs().sum())  # nothing outside of what it can see

figure = plots.NotebookFigure(figsize=(8.8, 1.75), layout="constrained")
axes = figure.subplots(1, 5)
strongest_map = int(above.relu().sum((1, 2)).argmax())
panels = {
    "1 one activation": alone[channel],
    "2 ReLU, transposed filters": down[strongest_map],
    "3 unpooled by switches": above[strongest_map],
    "4 ReLU": above[strongest_map].relu(),
    "5 transposed filters: pixels": by_hand_pixels.sum(0),
}
for axis, (title, values_of) in zip(axes, panels.items(), strict=True):
    limit = float(values_of.abs().max())
    bare(axis, values_of, title, cmap="PuOr", vmin=-limit, vmax=limit)
    axis.spines[:].set_visible(True)
figure

# %% [markdown]
# Read the figure from left to right, which is *down* the network: one activation of the upper layer; the signal below
# it in one feature map; the same after unpooling, at twice the resolution and mostly zero; after the ReLU; and the
# pixels. Violet is positive, orange and brown are negative, white is zero. The cell checks that `seeing.project` gives
# the same numbers.
# <!-- here: at twice the resolution | the code of this cell: max pooling by 2 -->
# <!-- here: gives the same numbers | the assertion assert_close in this cell -->

# %% [markdown]
# ## What layers see
#
# <!-- index: claim: layers see growing patterns (Zeiler and Fergus) | strongest activations, projected to pixels | satcourse.lessons.seeing.project | tests/test_seeing.py::TestProject::test_stays_inside_the_receptive_field -->
#
# Now the same on VGG-19. Each row of the figure is a layer. For each layer we take three feature maps that respond
# strongly in at least three of our photographs. Each map gets four panels, two for each of two photographs: the
# projection of the map's peak, and the photograph at the same pixels. The panels of the four rows are 12, 24, 64 and
# 120 pixels wide.
#
# We leave out `conv5_4`. Zeiler and Fergus choose the strongest activations from a whole validation set. Five
# photographs are enough for edges and textures. They are too few for the last layer, where Zeiler and Fergus find
# entire objects.
# <!-- source: choose the strongest activations from a whole validation set | Zeiler and Fergus (2014), figure 2 -->
# <!-- source: find entire objects | Zeiler and Fergus (2014), figure 2 -->
#
# **Predict, then run.** At `conv1_2` an activation sees a square 5 pixels wide. What pattern fits into it? And into the
# square of `conv4_4`, which is 116 pixels wide?

# %%
SHOWN = {"conv1_2": (2, 12), "conv2_2": (2, 24), "conv3_4": (2, 64), "conv4_4": (2, 120)}
projections: dict[str, list[list[tuple[int, tuple[int, int], Tensor]]]] = {}
for layer, (count, _) in SHOWN.items():
    maps = trace.maps[layer]
    peaks = maps.flatten(2).amax(2)  # (B, C): the strongest activation of each map in each photograph
    # the three maps whose third-highest peak over the photographs is largest
    chosen = peaks.sort(0, descending=True).values[2].argsort(descending=True)[:3].tolist()
    projections[layer] = [
        [
            (i, there, seeing.project(encoder, trace, layer, i, channel, there).cpu())
            for i, there in seeing.strongest(maps, channel, count)
        ]
        for channel in chosen
    ]


def draw_projection(pair: np.ndarray, layer: str, i: int, place: tuple[int, int], projection: Tensor) -> None:
    """The projection, its contrast stretched, and the photograph at the same pixels."""
    window = SHOWN[layer][1]
    stride = 224 // trace.maps[layer].shape[3]
    top, left = (int(min(max(p - window / 2, 0), 224 - window)) for p in middle(place, stride))
    cut = projection[:, top : top + window, left : left + window]
    if window > 100:  # what was unpooled four times is a cloud of dots: smooth it a little
        cut = functional.avg_pool2d(cut, 3, stride=1, padding=1)
    limit = float(cut.abs().flatten().quantile(0.995))
    bare(pair[0], (0.5 + cut / (2 * limit)).clamp(0, 1).permute(1, 2, 0))
    bare(pair[1], np.asarray(squares[i])[top : top + window, left : left + window])


figure = plots.NotebookFigure(figsize=(8.8, 3.3), layout="constrained")
figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
for axes, layer in zip(figure.subplots(4, 12), SHOWN, strict=True):
    for k, projected_one in enumerate(itertools.chain(*projections[layer])):
        draw_projection(axes[2 * k : 2 * k + 2], layer, *projected_one)
    axes[0].set_ylabel(layer, fontsize=9)
figure

# %% [markdown]
# Each of the three maps of `conv1_2` responds to a line or an edge in one direction. `conv2_2` responds to a
# contrast of colours, to spots and to bars, `conv3_4` to fine textures, arcs and slanted lines. At `conv4_4` the patterns
# have the size of parts of things. The two photographs of a map differ, but their projections look alike: very much so in
# the two lower layers, roughly in the two upper ones. This is the pattern that the map responds to.
#
# How large does the pattern get? Square the values of the projection. Then find the window that holds nine tenths of
# their sum. The cell prints its side.

# %%
extent = {
    layer: sorted(
        seeing.side_holding(projection.square().sum(0), 0.9)
        for _, _, projection in itertools.chain(*projections[layer])
    )
    for layer in SHOWN
}
for layer, each in extent.items():
    print(f"{layer}: {each[0]:3} to {each[-1]:3} pixels; it can see {by_hand[layer]:3}")
typical = [float(np.median(each)) for each in extent.values()]
assert typical == sorted(typical)
assert all(upper > 1.5 * lower for lower, upper in itertools.pairwise(typical[1:])), (
    "the pattern grows from layer to layer"
)
assert all(each[-1] <= by_hand[layer] for layer, each in extent.items())

# %% [markdown]
# In these numbers, as in the figure, the pattern grows from layer to layer.

# %% [markdown]
# ## Invariance, layer by layer
#
# <!-- index: claim: invariance grows with depth (Zeiler and Fergus, figure 5) | change of features under translation, scale, rotation | satcourse.lessons.seeing.change | tests/test_seeing.py::TestChange::test_an_image_and_itself_are_no_distance_apart -->
#
# A cat two pixels lower is still the same cat. Do its features stay the same? Zeiler and Fergus move, enlarge and turn
# five pictures, and plot how much the features of a low and a high layer change. We do the same. Distances are divided
# by the photograph's mean distance to the other four. So at every layer 0 means *unchanged* and 1 means *as different
# as another photograph*.
# <!-- source: five pictures | Zeiler and Fergus (2014), figure 5 -->
# <!-- source: as different as another photograph | satcourse/lessons/seeing.py, change -->
# <!-- here: the other four | five photographs in this notebook -->
#
# The network gets a window of 160 pixels instead of 224, cut from the photograph. When the picture moves, the border
# shows more of the photograph, not a black edge.
# <!-- source: a window of 160 pixels instead of 224 | satcourse/lessons/seeing.py, WINDOW -->
#
# We follow a low layer (`conv2_2`), a high one (`conv4_4`), the last map (`conv5_4`), and the *mean* of the last map
# over all places. The mean is what a captioner without attention gets.
#
# **Predict, then run.** Write down a number: when the picture moves by 2 pixels, how much does `conv2_2` change, from 0
# (unchanged) to 1 (another photograph)?

# %%
FOLLOWED = ("conv2_2", "conv4_4", "conv5_4", "mean of conv5_4")
fine = device.type == "cuda"  # where it costs nothing, more points
SHIFTS = sorted({2, 4, 8, 32, 48} | set(range(1, 49) if fine else ()))
SCALES = sorted({1.05, 1.2, 1.6} | set(np.arange(1.1, 1.81, 0.1).round(2).tolist() if fine else ()))
ANGLES = sorted({5, 20, 90} | set(range(10, 360, 10) if fine else ()))


def followed(pictures: list[Image.Image]) -> dict[str, Tensor]:
    """Features of pictures at the layers that are followed."""
    with torch.no_grad():
        maps = seeing.look(encoder, torch.stack([to_tensor(each) for each in pictures]).to(device), FOLLOWED[:3]).maps
    return maps | {"mean of conv5_4": maps["conv5_4"].mean((2, 3))}


before = followed([seeing.transformed(photo) for photo in photos])
kinds = {"shift": SHIFTS, "scale": SCALES, "angle": ANGLES}
changed: dict[tuple[str, float], dict[str, Tensor]] = {}  # (kind, amount) -> layer -> (B,)
moved = {}  # the last map of photographs moved by whole cells
for kind, amounts in kinds.items():
    for amount in amounts:
        after = followed([seeing.transformed(photo, **{kind: amount}) for photo in photos])
        changed[kind, amount] = {layer: each.cpu() for layer, each in seeing.change(before, after).items()}
        if kind == "shift" and amount % 16 == 0:
            moved[amount // 16] = after["conv5_4"]

# %%
styles = dict(zip(FOLLOWED, ((ORANGE, "D"), (GREEN, "s"), (BLUE, "o"), ("#cc79a7", "^")), strict=True))
titles = {"shift": "moved down (pixels)", "scale": "enlarged (times)", "angle": "turned (degrees)"}
figure = plots.NotebookFigure(figsize=(8.8, 4.3), layout="constrained")
grid = figure.subplots(2, 3, height_ratios=(1, 2.1))
for (above_axis, axis), (kind, amounts) in zip(grid.T, kinds.items(), strict=True):
    start = 1.0 if kind == "scale" else 0.0
    examples = [seeing.transformed(photos[shuttle], **{kind: amount}) for amount in (start, *amounts[-2:])]
    bare(
        above_axis,
        np.concatenate([np.pad(np.asarray(each.convert("RGBA")), ((0, 0), (0, 8), (0, 0))) for each in examples], 1),
    )
    for layer, (colour, marker) in styles.items():
        curves = torch.stack([changed[kind, amount][layer] for amount in amounts], 1)  # (B, amounts)
        curves = torch.cat([torch.zeros(len(photos), 1), curves], 1)
        axis.plot((start, *amounts), curves.T, color=colour, linewidth=0.5, alpha=0.5)
        axis.plot((start, *amounts), curves.mean(0), color=colour, marker=marker, markersize=4, label=layer)
    axis.set_xlabel(titles[kind], fontsize=8)
    axis.set_ylim(0, 1.2)
    axis.tick_params(labelsize=7)
    axis.grid()
grid[1, 0].set_ylabel("change (1: another photograph)", fontsize=8)
figure.legend(*grid[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
figure

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 0.5 on average.
#
# </details>
#
# Above: one photograph, unchanged and then as it is at the last two points of each curve. Below: the change of the
# features. Thin lines are the five photographs, thick lines their mean. For each of the five photographs:
#
# - **The low layer changes at once.** A shift of 4 pixels already takes `conv2_2` more than half as far as a shift of
#   48 pixels.
# - **The last map changes more slowly.** After a shift of 2 pixels, `conv5_4` has changed less than `conv2_2`.
# - **Its mean changes less still** under small changes of each kind.
# - **A quarter turn** changes every layer, and the mean too. VGG-19 is not invariant to rotation.

# %%
for kind, amount in (("shift", 2), ("scale", 1.05), ("angle", 5)):
    low, _, top_map, mean = (changed[kind, amount][layer] for layer in FOLLOWED)
    print(f"{kind} {amount}:", {layer: round(float(changed[kind, amount][layer].mean()), 2) for layer in FOLLOWED})
    assert (top_map < 0.8 * low).all(), "conv5_4 has changed less than conv2_2"
    assert (mean < 0.9 * top_map).all(), "Its mean changes less still"
share = {layer: changed["shift", 4][layer] / changed["shift", 48][layer] for layer in FOLLOWED}
print(
    "4 pixels of 48, part of the way:", {layer: [round(v, 2) for v in share[layer].tolist()] for layer in FOLLOWED[::2]}
)
assert (share["conv2_2"] > 0.5).all(), "more than half as far as a shift of 48 pixels"
assert (share["conv2_2"] > share["conv5_4"] + 0.2).all(), "The last map changes more slowly"
assert all((changed["angle", 90][layer] > 0.25).all() for layer in FOLLOWED), "A quarter turn changes every layer"

# %% [markdown]
# ### The map moves along
#
# Why does the last map change at all when the picture only moves? Because it is a *map*. Its vectors move to other
# places. Move the picture down by 32 pixels, which is two cells. Then compare each vector with the one that was two rows
# higher before the move.

# %%
for rows_down in sorted(moved):
    now, then = moved[rows_down], before["conv5_4"]
    along = functional.cosine_similarity(now[:, :, rows_down:], then[:, :, :-rows_down], dim=1).mean((1, 2))
    still = functional.cosine_similarity(now[:, :, rows_down:], then[:, :, rows_down:], dim=1).mean((1, 2))
    print(
        f"{16 * rows_down} pixels: cosine {along.mean():.2f} with the earlier vector of the same part of the picture, {still.mean():.2f} with the earlier vector of the same place"
    )
    assert (along > still + 0.1).all(), (
        "more similar to the earlier one of the same part of the picture than to the earlier one"
    )

# %% [markdown]
# On average, a vector is more similar to the earlier one of the same part of the picture than to the earlier one of the
# same place of the grid. This property is called *equivariance*: when the picture moves, the map moves with it. So a
# weight on a cell points at a place in the picture.
#
# ### What the mean forgets
#
# <!-- index: claim: one vector for a picture loses where things are | halves exchanged: the map changes, its mean hardly | satcourse.lessons.seeing.change | tests/test_seeing.py::TestChange::test_a_mirror_image_keeps_the_mean_and_nothing_else -->
#
# Cut each photograph down the middle and swap its two sides. What was on the left is now on the right. A caption that
# says *left of* would have to change.
#
# **Predict, then run.** Write down two numbers from 0 (unchanged) to 1 (another photograph): how much does the map
# change, and how much its mean?

# %%
exchanged = [np.concatenate([np.asarray(each)[:, 112:], np.asarray(each)[:, :112]], 1) for each in squares]
with torch.no_grad():
    halves = seeing.look(
        encoder, torch.stack([torch.from_numpy(each).permute(2, 0, 1) for each in exchanged]).to(device), ["conv5_4"]
    ).maps["conv5_4"]
noticed = seeing.change({"map": last, "mean": last.mean((2, 3))}, {"map": halves, "mean": halves.mean((2, 3))})
noticed = {name: each.cpu() for name, each in noticed.items()}
assert (noticed["mean"] < 0.6 * noticed["map"]).all(), "the mean changes much less than the map"
print({name: [round(v, 2) for v in each.tolist()] for name, each in noticed.items()})

figure = plots.NotebookFigure(figsize=(8.8, 2.2), layout="constrained")
axes = figure.subplots(1, 4, width_ratios=(1, 1, 0.1, 2))
bare(axes[0], squares[bike], "before")
bare(axes[1], exchanged[bike], "halves exchanged")
axes[2].axis("off")
for offset, (name, colour, hatch) in zip((0.2, -0.2), (("map", BLUE, ""), ("mean", PINK, "//")), strict=True):
    axes[3].barh(np.arange(len(names)) + offset, noticed[name], 0.36, color=colour, hatch=hatch, label=name)
axes[3].set_yticks(range(len(names)), [name.split("_")[0] for name in names], fontsize=8)
axes[3].set_title("change of conv5_4 (1: another photograph)", fontsize=9)
axes[3].tick_params(labelsize=8)
axes[3].legend(fontsize=8, frameon=False)
figure


# %% [markdown]
# <details><summary>Answer</summary>
#
# In every photograph the mean changes much less than the map. The mean hardly knows where anything is.
#
# </details>
#
# What does that cost? On drawn scenes, captions say *above* and *left of*. satlib's stored results include a model with
# *soft* attention (a weighted mean of the vectors, as in notebook 01) and a model with one plain mean.
#
# **Predict, then run.** Write down two numbers: what percentage of the captions does each model get completely right?


# %%
def measured(data: str, column: str) -> dict[str, float]:
    """A column of satlib's stored results (`satlib table`): name of the run -> percent."""
    return {
        row.model.removeprefix("satlib: ").split(",")[0]: float(row.figures[column])
        for row in table.rows(shipped.evaluations())
        if row.ours and row.data == data
    }


completely_right = measured("scenes", "exact match")
print({name: f"{completely_right[name]:.0f} %" for name in ("scenes-soft", "scenes-none")})
assert completely_right["scenes-none"] < 40 < 95 < completely_right["scenes-soft"]

# %% [markdown]
# <details><summary>Answer</summary>
#
# A caption is completely right in 96 % of the scenes with soft attention, and in 37 % without attention. Each caption
# names two objects with their attributes, and says where one is relative to the other. A mean vector averages over both
# objects.
#
# </details>

# %% [markdown]
# ## Encoders compared
#
# <!-- index: claim: the encoder matters | encoders compared by shape, size, time and captions | satlib.model.encoders.create | tests/test_encoders.py::test_the_shape_of_each -->
#
# > **Paper, section 4.3.** Any encoding function can be used in principle. **Section 5.2.** A newer network alone can
# > raise the scores of the same decoder. So the paper compares itself directly only with captioners that use GoogLeNet
# > or VGG. For METEOR it also notes some results with AlexNet.
#
# Sun et al. (see the references) re-implemented soft attention on Flickr8k and changed only the encoder. They scored
# captions on validation pictures with teacher forcing: each word was predicted after the *true* words before it
# (notebook 07). So compare their scores with each other, not with the paper's. satlib's own scores are for generated
# captions on the test split.
# <!-- source: changed only the encoder | Sun et al., their repository -->
# <!-- source: each word was predicted after the true words before it | Sun et al., their repository -->
#
# The table shows each encoder's grid, size and time on this CPU. The network does the same operations with any weights,
# so we time it with random ones. Trained weights of three encoders come with the installation; torchvision downloads
# the others. Only `small` has no trained weights.

# %%
SEED_TABLE = {  # BLEU-1, 2, 3, 4, METEOR
    "alexnet": (60.44, 34.90, 19.71, 10.81, 12.89),
    "googlenet": (64.53, 40.13, 25.12, 14.77, 16.45),
    "vgg19": (64.79, 40.37, 25.88, 15.48, 17.08),
    "densenet201": (64.81, 40.82, 26.26, 15.84, 16.95),
    "resnet152": (65.67, 41.40, 27.13, 16.48, 17.94),
}
PACKAGED = ("vgg19", "efficientnet-lite0", "efficientnet-lite2")


def whereabouts(name: str) -> str:
    """Where an encoder's trained weights are."""
    if name in PACKAGED:
        return "installed"
    if name == "small":
        return "none: trains with the decoder"
    url = torchvision.models.get_model_weights(name)["IMAGENET1K_V1"].url
    there = Path(torch.hub.get_dir(), "checkpoints", url.rsplit("/", 1)[1]).is_file()
    return "downloaded" if there else "a download"


def milliseconds(body: nn.Module) -> float:
    """One picture through a network with any weights, in processor time, so that other programs do not count."""
    body = body.to_empty(device="cpu").eval()
    for parameter in body.parameters():
        nn.init.uniform_(parameter, 0, 1 / parameter[0].numel())
    for buffer in body.buffers():
        buffer.fill_(1)
    with torch.inference_mode():
        body(torch.rand(1, 3, 96, 96))  # to warm up
        picture, began = torch.rand(1, 3, 224, 224), time.process_time()
        body(picture)
        return 1000 * (time.process_time() - began)


shapes, sizes, took = {}, {}, {}
print(f"{'':20}{'grid':>8}{'L':>5}{'D':>6}{'weights':>9}{'kB/image':>10}{'ms/image':>10}   trained weights")
for name in encoders.names():
    with torch.device("meta"):  # shapes without numbers: no memory, no time
        each = encoders.create(name, pretrained=False)
    (h, w), d = each.grid, each.dim
    shapes[name], sizes[name] = (h, w, d), sum(p.numel() for p in each.body.parameters())
    took[name] = milliseconds(each.body)
    kilobytes = h * w * d * 2 / 1000  # in float16
    print(
        f"{name:20}{f'{h} x {w}':>8}{h * w:5}{d:6}{sizes[name] / 1e6:7.1f} M{kilobytes:10.0f}{took[name]:10.0f}   {whereabouts(name)}"
    )
assert shapes["vgg19"] == (14, 14, 512)
assert len(PACKAGED) == 3, "weights of three encoders come with the installation"

# %% [markdown]
# **Predict, then run.** Which adds more BLEU-4 (notebook 01) on Flickr8k: a better encoder (EfficientNet-Lite0 instead
# of VGG-19), or attention instead of one mean vector? Write down both gains before you read them off the right panel
# below.

# %%
ours = measured("Flickr8k", "BLEU-4")
figure = plots.NotebookFigure(figsize=(8.8, 2.9), layout="constrained")
left_axis, right_axis = figure.subplots(1, 2, width_ratios=(1.4, 1))
for name, figures in SEED_TABLE.items():
    left_axis.plot(took[name], figures[3], "o", color="C0")
    left_axis.annotate(name, (took[name], figures[3]), (6, -3), textcoords="offset points", fontsize=8)
left_axis.set(
    xlabel="ms per picture, one core of this CPU",
    xlim=(0, 1.35 * max(took[name] for name in SEED_TABLE)),
    ylim=(9.5, 17.5),
)
left_axis.set_title("Sun et al.: BLEU-4, teacher forcing", fontsize=9)
pairs = {
    "VGG-19": ("flickr8k-none", "flickr8k-soft"),
    "EfficientNet-Lite0": ("flickr8k-lite0-none", "flickr8k-lite0-soft"),
}
for offset, kind, colour, hatch in ((0.2, 0, PINK, "//"), (-0.2, 1, BLUE, "")):
    heights = [ours[pair[kind]] for pair in pairs.values()]
    bars = right_axis.barh(
        np.arange(2) + offset,
        heights,
        0.36,
        color=colour,
        hatch=hatch,
        label=("mean", "soft attention")[kind],
    )
    right_axis.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
right_axis.set_yticks(range(2), list(pairs), fontsize=8)
right_axis.set(xlim=(0, 26), ylim=(-0.95, 1.5))
right_axis.set_title("satlib: BLEU-4, generated captions, test split", fontsize=9)
right_axis.legend(fontsize=8, frameon=False, loc="lower left", ncols=2)
figure

# %%
figures = np.array(list(SEED_TABLE.values()))
assert (figures[0] < figures[1:].min(0)).all(), "it is last in all five of their scores"
assert (figures[-1] > figures[:-1].max(0)).all(), "it is first in all five"
by_encoder = [ours[lite] - ours[vgg] for vgg, lite in zip(*pairs.values(), strict=True)]
by_attention = [ours[soft] - ours[none] for none, soft in pairs.values()]
print(f"BLEU-4 gained by another encoder: {by_encoder[0]:.1f} (mean), {by_encoder[1]:.1f} (soft attention)")
print(f"BLEU-4 gained by attention:       {by_attention[0]:.1f} (VGG-19), {by_attention[1]:.1f} (EfficientNet-Lite0)")
assert min(by_encoder) > max(by_attention), "the better encoder adds more BLEU-4 than attention"

# %% [markdown]
# <details><summary>Answer</summary>
#
# On Flickr8k the better encoder adds more BLEU-4 than attention: 3.7 and 2.7 against 1.1 and 0.1.
#
# </details>
#
# There are two lessons.
#
# - The content of the vectors matters. Sun et al. resize each encoder's map to $14 \times 14$ places, so all their
#   grids have the same size. AlexNet is last in all five of their scores (`SEED_TABLE`), and ResNet-152 is first in all
#   five.
# - Compare methods on the same encoder. If both the method and the encoder change, you cannot tell which of them
#   helped.
# <!-- source: resize each encoder's map to $14 \times 14$ places | Sun et al., their repository, code/resnet_encoder.py and its neighbours -->

# %% [markdown]
# ## Extract once
#
# <!-- index: section 4.3 | features of a frozen encoder, computed once and stored | satlib.training.features.extract | tests/test_features.py::TestStore::test_it_holds_what_the_encoder_gives -->
#
# The encoder is frozen, so a photograph has the same vectors in every epoch. There is no need to compute them twenty
# times in twenty epochs. `satlib.training.features.extract` writes them to a file as float16 numbers, and resumes where it
# stopped. If you add or replace a photograph later, it computes only that one.
# <!-- source: resumes where it stopped | satlib/training/features.py, extract -->
# <!-- source: it computes only that one | tests/test_features.py, test_only_what_is_new_or_changed_is_computed_and_a_line_says_so -->
# <!-- source: a photograph has the same vectors in every epoch | the encoder is in evaluation mode: tests/test_encoders.py -->
#
# **Predict, then run.** Write down two numbers. How many milliseconds does it take here to open one photograph, crop it,
# and run VGG-19 on it? And how many to read the stored 200 kB?

# %%
few = CaptionSet(
    "few",
    tuple(Example(name, "test", ("a photograph",), path) for name, path in zip(names, demo.photographs(), strict=True))[
        :2
    ],
)
image_ids = [example.image_id for example in few.examples]
with tempfile.TemporaryDirectory() as place_on_disk:
    began = time.perf_counter()
    store = extract(few, encoder, Path(place_on_disk) / "few-vgg19", device, progress=False, view="crop")
    computing = (time.perf_counter() - began) / len(image_ids)
    began = time.perf_counter()
    for _ in range(20):
        read = store.read(image_ids)
    reading = (time.perf_counter() - began) / (20 * len(image_ids))
    bytes_each = sum(path.stat().st_size for path in store.folder.glob("*.f16")) / len(image_ids)

exact = a[: len(image_ids)].cpu()
error = ((read - exact).norm() / exact.norm()).item()
print(f"computing: {1000 * computing:7.1f} ms for a photograph")
print(f"reading:   {1000 * reading:7.3f} ms, just written, so from the computer's memory")
print(f"reading:   {bytes_each / 100_000:7.1f} ms, if it has to come from a slow disk of 100 MB/s")
print(f"float16:   {bytes_each / 1000:7.1f} kB for a photograph; off by {error:.1e} of the vectors' norm")
for name, count in (("Flickr8k", 8_000), ("Flickr30k", 31_014), ("COCO", 123_287)):
    print(
        f"{name:9} {count:8,} photographs: {count * bytes_each / 1e9:5.1f} GB, {count * computing / 3600:5.1f} hours once"
    )
assert bytes_each == 196 * 512 * 2
assert max(reading, bytes_each / 100e6) < computing / 10, "reading is more than ten times faster than computing"
torch.testing.assert_close(read, exact, rtol=2**-10, atol=1e-2)  # float16 keeps 11 bits
assert error < 2**-11, "an error of less than one part in two thousand"

# %% [markdown]
# <details><summary>Answer</summary>
#
# Even from a slow disk, reading is more than ten times faster than computing. The exact factor depends on your CPU and
# your disk. float16 causes an error of less than one part in two thousand.
#
# </details>
#
# So extract once and read in every epoch. The exception is an encoder that trains with the decoder: its vectors change
# with every step. The small encoder of the drawn scenes is trained that way.

# %% [markdown]
# ## Try it
#
# 1. **Other places.** Put three places of your own into `queries`, such as the cat's nose, the motorcycle's handlebar
#    and the spoon beside the coffee (`names.index("coffee")`), and run its cell. (The cell after it checks the old
#    ones.) Which of them find something similar, and what is the cosine of those that do not?
# 2. **Turn the deconvnet into a gradient.** In the deconvnet by hand, gate by the *upward* signal: write `above *
#    (first > 0)` in place of `above.relu()`. Which assertion fails? Then draw gradients under "What layers see": write
#    `torch.autograd.grad(seeing.look(encoder, pixels[i : i + 1], [layer]).maps[layer][0, channel, *there],
#    pixels)[0][i].cpu()` in place of `seeing.project(...).cpu()`. What changes in the pictures for `conv4_4`?
# 3. **Lose the switches.** In `unpooled`, always put the value at the top left, and remove the assertion that now
#    fails. What changes on the tiny network? Why would more be lost on VGG-19, with four poolings below `conv5_4`?
# 4. **Leave out the division.** Copy the function `change` from `satcourse/lessons/seeing.py` into a cell, delete `/
#    others` from it, and add `seeing.change = change`. Leave out `axis.set_ylim(0, 1.2)`, and run the two cells of the
#    curves again. Why can the curves of different layers no longer share one axis?
# 5. **More scenes.** Set `SCENES = 40`. Compare the intervals with those of the stored study. How does their width
#    depend on the number of scenes?
#
# ## What to remember
#
# - The decoder gets $L$ vectors of $D$ numbers, one for each place of the last map. VGG-19 gives 196 vectors of 512
#   numbers.
# - A place in the middle can see the whole picture, but half of its gradient (in absolute value) lies within a square
#   four to five cells wide.
# - From layer to layer, colour dominates the vectors less. Shape dominates them more, up to `conv4_4`. Texture is
#   there from the first layer on. What no longer dominates can still be read: at `conv4_4` a linear classifier names
#   nearly every colour, at `conv5_4` only 63 in a hundred.
# - A place can serve for looking at anything in its field. Where the fields are small, the peak of a map has to be on the
#   object, or at its edge.
# - The last map moves with the picture. Its mean hardly knows where anything is.
# - Compare methods on the same encoder.
# - Run a frozen encoder once, and read its vectors in every epoch.
# <!-- here: half of its gradient | this notebook, section "What a place can see" -->
# <!-- source: 196 vectors of 512 numbers | section 4.3 of the paper -->
#
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio. *Show, Attend and Tell*. ICML 2015. Sections 1, 3.1.1, 4.3, 5.2 and 5.4. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - M. D. Zeiler, R. Fergus. *Visualizing and Understanding Convolutional Networks*. ECCV 2014.
#   [arXiv:1311.2901](https://arxiv.org/abs/1311.2901)
# - K. Simonyan, A. Zisserman. *Very Deep Convolutional Networks for Large-Scale Image Recognition*. ICLR 2015.
#   [arXiv:1409.1556](https://arxiv.org/abs/1409.1556)
# - W. Luo, Y. Li, R. Urtasun, R. Zemel. *Understanding the Effective Receptive Field in Deep Convolutional Neural
#   Networks*. NIPS 2016. [arXiv:1701.04128](https://arxiv.org/abs/1701.04128)
# - J. T. Springenberg, A. Dosovitskiy, T. Brox, M. Riedmiller. *Striving for Simplicity: The All Convolutional Net*.
#   2014 (deconvnet, gradient and guided backpropagation). [arXiv:1412.6806](https://arxiv.org/abs/1412.6806)
# - S. Sun, M. Wei, T. Chen, L. Hu, J. Baek. *Show, Attend and Tell*, a re-implementation with five encoders.
#   [github.com/sunny525s/Show_Attend_and_Tell](https://github.com/sunny525s/Show_Attend_and_Tell)
