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
# # 4. Soft attention: an LSTM that looks before every word
#
# This is the heart of *Show, Attend and Tell*. Before each word, the decoder gives every place of the image a weight,
# and reads the weighted mean of the vectors at those places. You will build that decoder from its equations, one at a
# time. Then you will put the parts into a class, train it on this page, and check that satlib's decoder computes the
# same numbers. After that you will see where a trained decoder looks.
#
# **You will be able to**
#
# - write down and compute every equation of the decoder (1 to 7, and 13);
# - write the whole decoder as a PyTorch module, and train it until it names what it sees;
# - explain how a network learns where to look when nobody shows it a place;
# - read attention maps, and test whether they mean what they seem to mean;
# - show by experiment which words decide where the decoder looks next.
#
# **Minutes**: 45 to read, 0.7 to run on two CPU cores. **Memory**: 1.6 GB. **Needs**: notebook 02 for what annotation
# vectors are; nothing to download.

# %%
import json
from pathlib import Path

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import nn
from torch.testing import assert_close

import satlib
from satcourse import demo
from satcourse.lessons.vectors import Vectors
from satcourse.widgets import explorer
from satcourse.widgets.steering import steered
from satlib import recipe
from satlib.data import images, scenes
from satlib.data.batches import SameLengthBatches, pairs
from satlib.data.datasets import find_root, load
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary
from satlib.evaluation import evaluate, overlay, plots
from satlib.evaluation import maps as ground
from satlib.model import attention, encoders, shipped
from satlib.model.attention import entropy
from satlib.model.captioner import Captioner
from satlib.model.decoder import Decoder
from satlib.model.objective import negative_log_likelihood

BLUE, RED, GREEN, ORANGE, SKY, PINK = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
plt.style.use("satcourse.page")
plt.rcParams |= {"figure.dpi": 85, "axes.spines.top": False, "axes.spines.right": False, "font.size": 10}

# %% [markdown]
# ## What the decoder is given
#
# > **Paper, section 3.1.1.** The encoder turns an image into $L$ annotation vectors, one for each part of the image, of
# > $D$ dimensions each: $a = \{a_1, \dots, a_L\}$, $a_i \in \mathbb{R}^D$. They come from a convolutional layer and not
# > from a fully connected one, so that the decoder can favour some parts of the image over others. The caption is
# > $y = \{y_1, \dots, y_C\}$, words out of a vocabulary of $K$.
#
# Here is a photograph, and the output of the paper's encoder for it. VGG-19 gives $L = 14 \cdot 14 = 196$ places with
# $D = 512$ numbers each. The decoder never sees a pixel. It has only the table on the right.
# <!-- source: The decoder never sees a pixel | section 3.1.2 of the paper -->

# %%
photographs = {path.stem: images.open_photo(path) for path in demo.photographs()}
cat = images.square(photographs["chelsea"], "crop")  # its middle, (224, 224)
with torch.inference_mode():
    vgg = encoders.create("vgg19")
    a_cat = vgg(images.to_tensor(cat)[None])[0]
assert a_cat.shape == (196, 512)
place, row, column = 4 * 14 + 4, 4, 4  # at the left eye, counted from 0
seen = cat.resize((112, 112))  # as much as the figures need

figure = plots.NotebookFigure(figsize=(7, 3), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
left.imshow(seen)
for line in range(0, 113, 8):
    left.axhline(line - 0.5, color="w", linewidth=0.5)
    left.axvline(line - 0.5, color="w", linewidth=0.5)
left.add_patch(Rectangle((8 * column, 8 * row), 8, 8, fill=False, edgecolor=RED, linewidth=3))
left.set_title(f"196 places; framed: number {place + 1}")
left.set_axis_off()
counted = (0.5, 512.5, 196.5, 0.5)  # the axes count from 1
right.imshow(a_cat, cmap="cividis", aspect="auto", interpolation="nearest", vmax=a_cat.quantile(0.99), extent=counted)
right.annotate(
    "", (0, place + 1), (-40, place + 1), arrowprops={"color": RED, "width": 2, "headwidth": 9}, annotation_clip=False
)
right.set(
    title="a: one row for each place (light: large)", xlabel="dimension, 1 to D = 512", ylabel="place, 1 to L = 196"
)
display(figure)

# %% [markdown]
# That table is too large to follow by hand. So we first build every part at a small size: six places of five
# dimensions, word embeddings of $m = 3$, a state of $n = 4$, and a vocabulary of $K = 7$. All the weights are random.
# Later, we put the same code into a class, and train the class on images.

# %%
L, D, m, n, K = 6, 5, 3, 4, 7
torch.manual_seed(7)
torch.set_grad_enabled(False)  # no training yet
a = 2 * torch.randn(L, D)  # the annotation vectors of one image

# %% [markdown]
# ## Before the first word: the initial state
# <!-- index: section 3.1.2 | h_0 and c_0: two MLPs of the mean annotation vector | satlib.model.decoder.Decoder.initial_state | tests/test_decoder.py::test_initial_state_reads_the_mean_annotation_vector -->
#
# > **Paper, section 3.1.2.** Two separate networks predict the initial memory and the initial hidden state from the
# > average annotation vector:
# > $$c_0 = f_{init,c}\Big(\frac1L \sum_{i=1}^L a_i\Big), \qquad h_0 = f_{init,h}\Big(\frac1L \sum_{i=1}^L a_i\Big).$$
#
# The paper says "MLP" and gives no details. The official code has a hidden layer with a ReLU, and a tanh at the end. We
# do the same.


# %%
def mlp(D, n):
    return nn.Sequential(nn.Linear(D, n), nn.ReLU(), nn.Linear(n, n), nn.Tanh())


init_h, init_c = mlp(D, n), mlp(D, n)
mean = sum(a[i] for i in range(L)) / L
h, c = init_h(mean), init_c(mean)  # (n,) each
print("h_0 =", h.numpy().round(2))

# %% [markdown]
# The mean treats all places alike. Shuffle the places of an image, and $h_0$ stays the same. So the first state is a
# summary of the whole image, and it cannot pick out a place. Attention can: it gives each place its own weight.

# %%
shuffled = a[torch.tensor([3, 0, 5, 1, 4, 2])]
assert_close(init_h(shuffled.mean(0)), h)
assert (init_h(torch.randn(L, D).mean(0)) - h).abs().max() > 0.1  # another image gives another state

# %% [markdown]
# ## A score for each place: energies
# <!-- index: equation 4 | energies e_ti = f_att(a_i, h_{t-1}) | satlib.model.attention.AdditiveEnergy | tests/test_attention.py::test_energy_equals_a_loop_over_places -->
# <!-- index: claim: each place is asked alone | the relevance of a part is computed without looking at the other parts | satlib.model.attention.AdditiveEnergy | tests/test_soft_attention.py::test_each_place_is_asked_alone -->
#
# > **Paper, equation 4.** A model $f_{att}$, a multilayer perceptron that sees the previous hidden state, scores each
# > place:
# > $$e_{ti} = f_{att}(a_i, h_{t-1}).$$
#
# The state asks a question, and each place answers with one number, its *energy*. The perceptron has one hidden layer:
#
# $$e_{ti} = v \cdot \tanh(W_a a_i + W_h h_{t-1} + b).$$
#
# Each hidden unit adds evidence from the place to evidence from the state, and $v$ says how much that unit counts. The
# same $v$, $W_a$ and $W_h$ serve all places and all words. In code, $b$ is the bias of the layer `W_a`.

# %%
W_a, W_h, v = nn.Linear(D, 8), nn.Linear(n, 8, bias=False), nn.Linear(8, 1, bias=False)
e = torch.stack([v(torch.tanh(W_a(a[i]) + W_h(h)))[0] for i in range(L)])  # one place at a time
at_once = v(torch.tanh(W_a(a) + W_h(h))).squeeze(1)  # (L, D) -> (L, 8) -> (L, 1) -> (L,)
assert_close(at_once, e)
print("energies:", e.numpy().round(2))

# Change what is at one place. Only its own answer changes.
changed = a.clone()
changed[2] += 1
moved = (v(torch.tanh(W_a(changed) + W_h(h))).squeeze(1) - at_once).abs() > 1e-5
assert moved.tolist() == [i == 2 for i in range(L)]

# %% [markdown]
# The loop and the single line give the same energies. Each place is scored on its own: it does not know what the other
# places hold.

# %% [markdown]
# ### Other scores
# <!-- index: claim: relevance may be computed in other ways | concat, general (Luong et al.) and dot in place of the additive energy | satlib.model.attention.ENERGIES | tests/test_attention.py::test_energy_equals_a_loop_over_places -->
#
# Attention only needs an $f_{att}$ that turns $a_i$ and $h_{t-1}$ into a number. Luong, Pham and Manning (2015) tried
# three such functions:
# <!-- source: three such functions | Luong, Pham and Manning, EMNLP 2015, section 3.1 -->
#
# $$e_{ti} = \begin{cases} a_i^\top h_{t-1} & \text{dot} \\ a_i^\top W h_{t-1} & \text{general} \\ v \cdot \tanh(W [a_i; h_{t-1}]) & \text{concat} \end{cases}$$
#
# *Dot* has no weights, and needs $D = n$. *General* learns one matrix that translates between states and places.
# *Concat* is the perceptron above without the bias: its $W$ is $W_a$ and $W_h$, side by side. The perceptron with the
# bias, which we use for equation 4, is called *additive*.
#
# How do they differ? Take annotation vectors with two dimensions and keep the state fixed. Then we can draw the energy
# of every possible $a_i$ as a landscape. The arrow is the state.
#
# **Predict, then run.** *Dot* must be a plane that slopes up along the arrow. How many of the other three landscapes
# (*general*, *concat*, *additive*) bend?

# %%
torch.manual_seed(4)
h_2 = torch.tensor([1.2, 0.5])
side = torch.linspace(-3, 3, 61)
plane = torch.stack(torch.meshgrid(side, side, indexing="xy"), 2).view(1, -1, 2)  # (1, 61 * 61, 2): every a_i of a grid
landscapes = {}
for name in ("dot", "general", "concat", "additive"):
    energy = attention.ENERGIES[name](2, 2, 6)
    for weight in energy.parameters():
        nn.init.normal_(weight)
    landscapes[name] = energy(energy.keys(plane), h_2[None])[0]
    longer = energy(energy.keys(2 * plane), h_2[None])[0]
    if name in ("dot", "general"):
        assert_close(longer, 2 * landscapes[name])
    else:
        bound = energy.energy.weight.abs().sum()  # tanh is within -1..1
        assert max(landscapes[name].abs().max(), longer.abs().max()) <= bound, "cannot exceed the sum of $|v|$"

figure, axes = plt.subplots(1, 4, figsize=(9.4, 2.7), sharey=True, layout="constrained")
for axis, (name, values) in zip(axes, landscapes.items(), strict=True):
    filled = axis.contourf(side, side, values.view(61, 61), 12, cmap="cividis")
    axis.annotate("", h_2.tolist(), (0, 0), arrowprops={"color": RED, "width": 1.5, "headwidth": 7})
    axis.set(title=name, aspect="equal", xlabel="$a_{i1}$")
    bar = figure.colorbar(filled, ax=axis, shrink=0.75, orientation="horizontal")
    bar.locator = MaxNLocator(4)
    bar.update_ticks()
axes[0].set_ylabel("$a_{i2}$")
plt.show()

# %% [markdown]
# <details><summary>Answer</summary>
#
# Two: *concat* and *additive*. *Dot* slopes up along the arrow, and *general* along the arrow turned and stretched by
# $W$. Both are planes: make $a_i$ two times as long, and the energy doubles. The landscapes of the two perceptrons
# bend. They also saturate: an energy cannot exceed the sum of $|v|$, however long the vector is. You will soon see what
# a plain dot product does with VGG-19's long vectors.
# <!-- here: make a_i two times as long, and the energy doubles | the linear energies of the cell above, compared with those of 2 * plane -->
#
# </details>

# %% [markdown]
# ## Energies become weights: the softmax
# <!-- index: equation 5 | weights alpha_ti, a softmax over the places | satlib.model.attention.SoftAttention | tests/test_attention.py::test_weights_and_context_by_hand -->
# <!-- index: claim: a softmax is an argmax that can be differentiated | from even weights to one place, as energies grow | satlib.model.attention.SoftAttention | tests/test_attention.py::test_weights_are_a_distribution_and_follow_the_places -->
#
# > **Paper, equation 5.** $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_{k=1}^L \exp(e_{tk})}$$

# %%
alpha = torch.stack([e[i].exp() / sum(e[k].exp() for k in range(L)) for i in range(L)])
assert_close(alpha, torch.softmax(e, 0))
assert_close(alpha.sum(), torch.tensor(1.0))
assert_close(torch.softmax(e + 17, 0), alpha)  # only differences count: why v needs no bias

# %% [markdown]
# The weights of all places form the *attention map*. The differences between the energies decide how sharp the map is.
# Divide all energies by a number $T$, the *temperature*. At a high temperature every place gets a weight near $1/L$. At
# a low temperature the best place gets nearly all the weight: the softmax comes close to an argmax, but still has a
# derivative. The entropy of the map, $H = -\sum_i \alpha_i \ln \alpha_i$, says where a map stands between the two. It
# is $\ln L$ for an even map, and 0 when one place has all the weight.

# %%
temperatures = (100, 1, 0.3, 0.1, 0.03)
maps = torch.stack([torch.softmax(e / T, 0) for T in temperatures])
H = entropy(maps)
assert abs(H[0] - np.log(L)) < 1e-3
assert (H.diff() < 0).all(), "The lower the temperature, the sharper the map"
assert maps[-1].argmax() == e.argmax()

figure, axes = plt.subplots(1, 5, figsize=(9.2, 2), sharey=True, layout="constrained")
for axis, temperature, map_, spread in zip(axes, temperatures, maps, H, strict=True):
    axis.bar(range(1, L + 1), map_, color=BLUE)
    axis.set(title=f"T = {temperature}\nH = {spread:.2f}", xlabel="place", xticks=range(1, L + 1), ylim=(0, 1))
axes[0].set_ylabel("weight")
plt.show()

# %% [markdown]
# The lower the temperature, the sharper the map.
#
# ### A blurred map and a sharp one, on a photograph
#
# We can try this on the cat without any training. The energy of each place is its similarity to the framed place at one
# eye: the cosine between the two annotation vectors.
#
# **Predict, then run.** The vectors come after a ReLU, so they have no negative numbers, and the cosines lie between 0
# and 1. An even map of the 196 places has the entropy $\ln 196$. Write down a number: what percentage of that entropy
# does the map at $T = 1$ have?

# %%
unit = a_cat / a_cat.norm(dim=1, keepdim=True)
cosines = unit @ unit[place]  # (196,)
asked = {f"cosine, T = {T}": torch.softmax(cosines / T, 0) for T in (1, 0.1, 0.03)}
asked["dot product, T = 1"] = torch.softmax(a_cat @ a_cat[place], 0)
spread = {name: entropy(map_).abs().item() for name, map_ in asked.items()}

figure = plots.NotebookFigure(figsize=(8, 2), layout="constrained")
axes = figure.subplots(1, 5)
axes[0].imshow(seen)
axes[0].add_patch(Rectangle((8 * column, 8 * row), 8, 8, fill=False, edgecolor=RED, linewidth=2))
axes[0].set_title("like this place?", fontsize=9)
lit = overlay.lit(cat, torch.stack([*asked.values()]).view(-1, 14, 14), 112)
for axis, picture, name in zip(axes[1:], lit, asked, strict=True):
    axis.imshow(picture)
    axis.set_title(f"{name}\nH = {spread[name]:.2f}", fontsize=9)
for axis in axes:
    axis.set_axis_off()
display(figure)

flat, two_eyes, one_eye, raw = spread.values()
lengths = a_cat.norm(dim=1)
print(f"T = 1: H = {flat:.2f}, which is {100 * flat / np.log(196):.1f} % of ln 196 = {np.log(196):.2f}")
print(f"lengths of the annotation vectors: {lengths.min():.0f} to {lengths.max():.0f}")
print(f"raw dot product: {100 * asked['dot product, T = 1'].max():.0f} % of the weight is on one place")
assert flat > two_eyes > one_eye
assert asked["dot product, T = 1"].argmax() != place, "not even the place that we asked about"
assert cosines.view(14, 14)[:, 10:].max() > cosines.quantile(0.95)  # the other side of the face

# %% [markdown]
# <details><summary>Answer</summary>
#
# About 100 percent: H = 5.26 of 5.28. Energies that differ by less than 1 hardly separate 196 places, so the weighted
# mean is close to the plain mean of all the vectors. At $T = 0.1$ the framed eye stands out, and the other eye a
# little. At $T = 0.03$ fewer places are left.
# <!-- here: differ by less than 1 | cosines of vectors after a ReLU lie between 0 and 1 -->
#
# The raw dot product rewards long vectors, not only similar ones. Nearly all its weight goes to one place, and that is
# not even the place that we asked about. Such a softmax is saturated: it has almost no gradient to learn from. So
# training must be able to set the scale of the energies. In equation 4 it can do this through $v$.
#
# </details>
#
# Move the slider to change the temperature. (The picture needs a running notebook; the figure above shows the maps at
# three temperatures.)

# %%
slider = ipywidgets.FloatLogSlider(value=0.1, base=10, min=-2.2, max=1, step=0.1, description="T", readout_format=".2g")
screen = ipywidgets.Image(format="png", layout={"width": "420px", "max_width": "100%"})


def redraw(_=None):
    map_ = torch.softmax(cosines / slider.value, 0)
    figure = plots.NotebookFigure(figsize=(5, 2.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.imshow(overlay.lit(cat, map_.view(1, 14, 14), 168)[0])
    left.set_axis_off()
    right.plot(map_.sort(descending=True).values, color=BLUE)
    right.set(title=f"T = {slider.value:.2g}, H = {entropy(map_):.2f}", xlabel="places, sorted", ylabel="weight")
    right.set(ylim=(0, None))
    screen.value = figure._repr_png_()


slider.observe(redraw, "value")
redraw()
display(ipywidgets.VBox([slider, screen]))

# %% [markdown]
# ## Weights become one vector: the context
# <!-- index: equation 6 | context vector z_t = phi({a_i}, {alpha_ti}) | satlib.model.attention.SoftAttention | tests/test_attention.py::test_weights_and_context_by_hand -->
# <!-- index: equation 13 | soft attention takes the expectation: E[z_t] = sum_i alpha_ti a_i | satlib.model.attention.SoftAttention | tests/test_soft_attention.py::test_the_context_is_the_expectation_over_sampled_places -->
#
# > **Paper, equation 6.** Weights and annotation vectors give the context vector, by a function that returns a single
# > vector: $\hat z_t = \phi(\{a_i\}, \{\alpha_{ti}\})$.
# >
# > **Paper, section 4.2, equation 13.** Where hard attention samples one place $s_t$ for each word, soft attention takes
# > the expectation of the context vector:
# > $$\mathbb{E}_{p(s_t|a)}[\hat z_t] = \sum_{i=1}^L \alpha_{ti} a_i .$$
#
# An expectation is a sum over all possible cases, each multiplied by its probability. Here there are six cases: $s_t$
# is place 1, or place 2, and so on. Each case is a one-hot vector, and its context is the annotation vector of that
# place.
# <!-- source: place 1, or place 2 | equation 13 of the paper, with L = 6 -->

# %%
one_hot = torch.eye(L)  # row i: the case that s_t is place i
expectation = sum(alpha[i] * (one_hot[i] @ a) for i in range(L))
z = sum(alpha[i] * a[i] for i in range(L))
assert_close(z, expectation)
assert_close(z, alpha @ a)

# %% [markdown]
# ### Why it learns where to look
# <!-- index: claim: soft attention is differentiable | it trains end to end by back-propagation, with nobody saying where to look | satlib.model.attention.SoftAttention | tests/test_soft_attention.py::test_gradient_pulls_the_context_towards_a_place -->
#
# A weighted mean lies inside the convex hull of the vectors that it averages (grey in the figure below). With a sharp
# map it sits at one of the vectors. With an even map it sits at their plain mean. In between it moves smoothly. From
# equation 5, $\partial \alpha_i / \partial e_k = \alpha_i (\delta_{ik} - \alpha_k)$, and therefore
#
# $$\frac{\partial \hat z}{\partial e_k} = \sum_i \alpha_i (\delta_{ik} - \alpha_k)\, a_i = \alpha_k\, (a_k - \hat z).$$
#
# Raise the energy of a place, and the context moves towards the vector of that place. The pull is proportional to the
# weight that the place already has. With the loss $\ell$ the chain rule gives
#
# $$\frac{\partial \ell}{\partial e_k} = \alpha_k\, (a_k - \hat z) \cdot \frac{\partial \ell}{\partial \hat z} .$$
#
# If a context more like $a_k$ would have made the next word likelier, training raises the energy of place $k$. So the
# words alone teach the decoder where to look.
# <!-- here: more like a_k would have made the next word likelier | the chain rule, in the formula before it -->

# %%
jacobian = torch.autograd.functional.jacobian(lambda e: torch.softmax(e, 0) @ a, e)  # (D, L)
assert_close(jacobian, torch.stack([alpha[k] * (a[k] - z) for k in range(L)], 1))

corners = torch.tensor([[-1.0, -0.7], [1.1, -0.9], [1.5, 0.5], [0.1, 1.3], [-1.3, 0.6], [0.2, 0.1]])  # L = 6, D = 2
answers = torch.tensor([0.1, -0.5, 0.9, 0.3, -0.3, 0.5])
path = torch.stack([torch.softmax(scale * answers, 0) @ corners for scale in np.linspace(0, 25, 200)])
weights = torch.softmax(2 * answers, 0)
here = weights @ corners
pulls = weights[:, None] * (corners - here)  # (6, 2)
away = (corners - here).norm(dim=1)
assert pulls.norm(dim=1).argmax() == 2 == weights.argmax(), "place 3 pulls hardest: it has the most weight"
assert min(away[1], away[4]) > away[2], "Places 2 and 5 are farther off"
assert max(weights[1], weights[4]) < 0.05, "each has less than 5 % of the weight"
assert set(pulls.norm(dim=1).argsort()[:2].tolist()) == {1, 4}, "they pull least"
hull = corners[[0, 1, 2, 3, 4, 0]]

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained")
for axis in (left, right):
    axis.fill(*hull.T, color=plots.INK, alpha=0.15, linewidth=0)
    axis.scatter(*corners.T, s=60, color=ORANGE, zorder=3)
    for k, corner in enumerate(corners, 1):
        axis.annotate(f"$a_{k}$", corner.tolist(), (-4, -16) if k == 6 else (7, 4), textcoords="offset points")
    axis.set(aspect="equal", xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
left.plot(*path.T, color=BLUE, linewidth=2)
left.plot(*path[0], "s", color=BLUE, markersize=8, label="even map: the mean")
left.plot(*path[-1], "D", color=BLUE, markersize=8, fillstyle="none", zorder=4, label="sharp map: one place")
left.set_title("the context as the map sharpens")
left.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, frameon=False)
right.plot(*here, "o", color=BLUE, markersize=9, zorder=4)
for pull in 1.8 * pulls:
    right.annotate("", (here + pull).tolist(), here.tolist(), arrowprops={"color": RED, "width": 1, "headwidth": 5})
right.set_title(r"the pull of each energy: $\alpha_k (a_k - \hat z)$")
plt.show()
print("length of each pull:", ", ".join(f"place {k} {length:.2f}" for k, length in enumerate(pulls.norm(dim=1), 1)))

# %% [markdown]
# On the right, place 3 pulls hardest: it has the most weight, and the context is not there yet. Places 2 and 5 are
# farther off, but each has less than 5 % of the weight, so they pull least. The energy of a place with little weight
# gets little gradient.

# %% [markdown]
# ## How much of the context to use: the gate
# <!-- index: section 4.2.1 | gate beta_t = sigma(f_beta(h_{t-1})), a scalar on the context | satlib.model.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
#
# > **Paper, section 4.2.1.** From the previous state the model also predicts a scalar gate,
# > $\beta_t = \sigma(f_\beta(h_{t-1}))$, and the context becomes $\phi(\{a_i\}, \{\alpha_i\}) = \beta_t \sum_i \alpha_i a_i$. It
# > lets the decoder weigh, at each word, the language against the image.
#
# Weights that sum to one cannot say "nothing here helps". The gate can. In the official code, and here, the gated
# vector goes to *both* the LSTM and the output layer.

# %%
f_beta = nn.Linear(n, 1)
beta = torch.sigmoid(f_beta(h))
z = beta * z

# %% [markdown]
# ## The state moves on: an LSTM
# <!-- index: equation 1 | input, forget and output gates and the candidate, from E y_{t-1}, h_{t-1} and z_t | satlib.model.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
# <!-- index: equation 2 | memory c_t = f_t c_{t-1} + i_t g_t | satlib.model.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
# <!-- index: equation 3 | state h_t = o_t tanh(c_t) | satlib.model.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
#
# > **Paper, equations 1 to 3.** With $E y_{t-1}$ the embedding of the word before,
# > $$\begin{pmatrix} i_t \\ f_t \\ o_t \\ g_t \end{pmatrix} = \begin{pmatrix} \sigma \\ \sigma \\ \sigma \\ \tanh \end{pmatrix} T \begin{pmatrix} E y_{t-1} \\ h_{t-1} \\ \hat z_t \end{pmatrix}, \qquad c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh(c_t).$$
#
# Here $T$ is a linear layer, not the temperature. Its input is three vectors one below the other: the word before, the
# state, and the context. Its output is cut into four pieces of $n$ numbers.

# %%
E, T = nn.Embedding(K, m), nn.Linear(m + n + D, 4 * n)
Ey = E(torch.tensor(3))  # the word before was number 3
i, f, o, g = T(torch.cat([Ey, h, z])).chunk(4)
c_1 = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
h_1 = torch.sigmoid(o) * torch.tanh(c_1)

# %% [markdown]
# We can check this with PyTorch's own `LSTMCell`. Give it the pair $[E y_{t-1}; \hat z_t]$ as its input, and it
# computes the same state. So attention is a way to choose the input of an ordinary LSTM. One detail: the paper's
# order of the pieces is i, f, o, g, and PyTorch's is i, f, g, o. Swap the last two, or the results will not match.


# %%
def in_torch_order(rows):
    """Rows for i, f, o, g (the paper's order) to rows for i, f, g, o (PyTorch's, and satlib's)."""
    i, f, o, g = rows.chunk(4)
    return torch.cat([i, f, g, o])


of_word, of_state, of_context = in_torch_order(T.weight).split((m, n, D), dim=1)
cell = nn.LSTMCell(m + D, n)
cell.load_state_dict(
    {
        "weight_ih": torch.cat([of_word, of_context], 1),
        "weight_hh": of_state,
        "bias_ih": in_torch_order(T.bias),
        "bias_hh": torch.zeros(4 * n),
    }
)
h_torch, c_torch = cell(torch.cat([Ey, z])[None], (h[None], c[None]))
assert_close(h_1, h_torch[0])
assert_close(c_1, c_torch[0])

# %% [markdown]
# What do the three gates do? Watch one unit whose gates we set by hand. It should store something at word 3, keep it,
# let it be read at words 6 and 7, and drop it at word 9.

# %%
words_on = np.arange(1, 13)
write, candidate = np.where(words_on == 3, 0.95, 0.02), np.where(words_on == 3, 0.9, 0.3)
keep, read = np.where(words_on == 9, 0.05, 0.98), np.where((words_on == 6) | (words_on == 7), 0.95, 0.05)
memory, said = [0.0], []
for i_, f_, g_, o_ in zip(write, keep, candidate, read, strict=True):
    memory.append(f_ * memory[-1] + i_ * g_)  # equation 2
    said.append(o_ * np.tanh(memory[-1]))  # equation 3
assert min(memory[3:9]) > 0.8, "The memory is full from word 3 to word 8"
assert memory[9] < 0.1
shown = [word for word in words_on if said[word - 1] > 0.3]
assert shown == [6, 7], "at words 6 and 7 only"

figure, (above, below) = plt.subplots(2, 1, figsize=(7.6, 3.4), sharex=True, layout="constrained")
for values, name, colour, style in (
    (write, "input $i$", BLUE, "-o"),
    (keep, "forget $f$ (1: keep)", RED, "--s"),
    (read, "output $o$", GREEN, ":D"),
):
    above.plot(words_on, values, style, color=colour, markersize=5, label=name)
below.plot(words_on, memory[1:], "-o", color=PINK, markersize=5, label="memory $c_t$")
below.plot(words_on, said, "--s", color=plots.INK, markersize=5, label="state $h_t$")
below.set(xlabel="word t", xticks=words_on)
for axis in (above, below):
    axis.set_ylim(-0.05, 1.05)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
plt.show()

# %% [markdown]
# The memory is full from word 3 to word 8. But the state shows it at words 6 and 7 only, and the energies, the gate
# $\beta$ and the output read the state. A captioner needs this: after "a red star" it has to remember that the star has
# been described, without naming it again.

# %% [markdown]
# ## A word comes out
# <!-- index: equation 7 | p(y_t) ~ exp(L_o(E y_{t-1} + L_h h_t + L_z z_t)) | satlib.model.decoder.Decoder.logits | tests/test_decoder.py::test_sequence_equals_steps_one_by_one -->
#
# > **Paper, equation 7.** The next word's probability, from the word before, the new state and the context:
# > $$p(y_t | a, y_1, \dots, y_{t-1}) \propto \exp(L_o(E y_{t-1} + L_h h_t + L_z \hat z_t)).$$
#
# The context comes in twice: through the LSTM into $h_t$, and directly. The direct path is short: what the decoder sees
# can raise a word's logit at once.
# <!-- source: comes in twice | equations 1 and 7 of the paper -->

# %%
L_h, L_z, L_o = nn.Linear(n, m), nn.Linear(D, m, bias=False), nn.Linear(m, K)
logits = L_o(Ey + L_h(h_1) + L_z(z))
p = logits.exp() / logits.exp().sum()
print("p(next word) =", p.numpy().round(2))
by_hand = logits, alpha, h_1, c_1  # to compare with the class below

# %% [markdown]
# Then the loop repeats: the new state scores the places for the next word. A caption starts from $h_0$ and a zero
# embedding (there is no start word) and ends with the end mark.

# %% [markdown]
# ## The whole decoder, in one class
#
# Now put the parts together. These are the lines from above, for a batch of $B$ images at a time. Shapes are in the
# comments. `forward` is *teacher forcing*: at each step the decoder gets the true previous word, even if it would have
# chosen another word itself.


# %%
class SoftAttentionDecoder(nn.Module):
    """Annotation vectors (B, L, D) and true captions (B, C) to logits (B, C, K) and maps (B, C, L)."""

    def __init__(self, D, K, m=64, n=128, width=64):
        super().__init__()
        self.init_h, self.init_c = mlp(D, n), mlp(D, n)  # section 3.1.2
        self.W_a = nn.Linear(D, width)  # equation 4
        self.W_h = nn.Linear(n, width, bias=False)
        self.v = nn.Linear(width, 1, bias=False)
        self.f_beta = nn.Linear(n, 1)  # section 4.2.1
        self.E = nn.Embedding(K, m)
        self.T = nn.Linear(m + n + D, 4 * n)  # equation 1
        self.L_h = nn.Linear(n, m)  # equation 7
        self.L_z = nn.Linear(D, m, bias=False)
        self.L_o = nn.Linear(m, K)

    def start(self, a):
        """The state before the first word, and the zero embedding in place of a word."""
        mean = a.mean(1)  # (B, D)
        return self.init_h(mean), self.init_c(mean), torch.zeros(len(a), self.E.embedding_dim)

    def look(self, a, h):
        """Where to look, and what is seen there: weights (B, L) and the gated context (B, D)."""
        e = self.v(torch.tanh(self.W_a(a) + self.W_h(h)[:, None])).squeeze(2)  # equation 4: (B, L)
        alpha = torch.softmax(e, dim=1)  # equation 5
        z = (alpha[:, :, None] * a).sum(1)  # equations 6 and 13: (B, D)
        beta = torch.sigmoid(self.f_beta(h))  # section 4.2.1: (B, 1)
        return alpha, beta * z

    def step(self, a, h, c, Ey):
        """One word: look, move the state on, score the words."""
        alpha, z = self.look(a, h)
        i, f, o, g = self.T(torch.cat([Ey, h, z], dim=1)).chunk(4, dim=1)  # equation 1
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # equation 2
        h = torch.sigmoid(o) * torch.tanh(c)  # equation 3
        logits = self.L_o(Ey + self.L_h(h) + self.L_z(z))  # equation 7: (B, K)
        return logits, alpha, h, c

    def forward(self, a, captions):
        h, c, Ey = self.start(a)
        logits, alphas = [], []
        for y in captions.T:  # y: (B,), the true word
            scores, alpha, h, c = self.step(a, h, c, Ey)
            logits.append(scores)
            alphas.append(alpha)
            Ey = self.E(y)  # teacher forcing
        return torch.stack(logits, 1), torch.stack(alphas, 1)


# %% [markdown]
# Does the class compute what we computed by hand? Give it our parts, and compare one step.

# %%
small = SoftAttentionDecoder(D, K, m, n, width=8)
ours = {"init_h": init_h, "init_c": init_c, "W_a": W_a, "W_h": W_h, "v": v, "f_beta": f_beta}
ours |= {"E": E, "T": T, "L_h": L_h, "L_z": L_z, "L_o": L_o}
assert set(ours) == {name for name, _ in small.named_children()}  # every part
for name, part in ours.items():
    setattr(small, name, part)

h_0, c_0, _ = small.start(a[None])  # a batch of one image
by_class = small.step(a[None], h_0, c_0, Ey[None])
for mine, its in zip(by_hand, by_class, strict=True):
    assert_close(its[0], mine)
print("logits, weights, state and memory: the same by hand and by the class")

# %% [markdown]
# ## Training from captions alone
# <!-- index: claim: the attention network is trained together with encoder and decoder | the error of the words reaches every part | satlib.training.loop.train | tests/test_decoder.py::test_every_weight_learns -->
#
# Now we train on images: drawn scenes, with two objects among clutter. The captions say what the objects are, and where
# one lies relative to the other. No caption gives a position in pixels or places. The loss is the negative
# log-likelihood of the true words,
#
# $$-\log p(y|a) = -\sum_{t=1}^C \log p(y_t \,|\, a, y_1, \dots, y_{t-1}).$$
#
# As in the paper, the encoder has been trained before. It belongs to the scenes model that comes with satlib, and gives
# 14 × 14 places of 128 dimensions. It was trained together with that model's decoder, on captioned scenes that include
# our training scenes. So its vectors may already tell colours and shapes apart. Our decoder starts from random weights.
# We draw 500 scenes for training and 100 for the test, with five captions each. Neither the scenes model nor our
# decoder is trained on the test scenes.
# <!-- source: captioned scenes that include our training scenes | satlib/recipes/scenes-soft.toml, its first 500 -->
# <!-- source: 14 × 14 places of 128 dimensions | satlib/model/encoders.py -->
# <!-- source: Neither the scenes model nor our decoder is trained on the test scenes | satlib/training/loop.py, train; the training loop of this notebook -->
#
# First, which parts get a gradient? We send part of a batch through the encoder and the decoder, and back. The figure
# shows the length of each gradient, relative to the weights.

# %%
torch.set_grad_enabled(True)  # from here on we train
trained = Captioner.load(shipped.model("scenes-soft"))
data = scenes.load(500, 0, 100)
reader = Pixels(data)
vectors = Vectors(trained, reader, [example.image_id for example in data.examples])  # (600, 196, 128): encode once
vocabulary = Vocabulary.from_captions(caption for example in data.split("train") for caption in example.references)
batches = SameLengthBatches(pairs(data.split("train"), vocabulary, 40), 64)  # no batch needs padding
tests = data.split("test")
print(
    f"{vectors.a.shape[1]} places of {vectors.a.shape[2]} dimensions; {len(vocabulary)} words; {len(batches)} batches"
)

torch.manual_seed(0)
decoder = SoftAttentionDecoder(D=128, K=len(vocabulary))
batch = batches.epoch(0)[0]
convolutions = [layer.weight for layer in trained.encoder.body if isinstance(layer, nn.Conv2d)]
for weight in (convolutions[0], convolutions[-1]):
    weight.requires_grad_(True)
logits, _ = decoder(trained.encoder(reader.read(batch.image_ids[:16])), batch.captions[:16])
nn.functional.cross_entropy(logits.flatten(0, 1), batch.captions[:16].flatten()).backward()
parts = {
    "encoder, first layer": convolutions[0],
    "encoder, last layer": convolutions[-1],
    "attention, $W_a$": decoder.W_a.weight,
    "attention, $W_h$": decoder.W_h.weight,
    "attention, $v$": decoder.v.weight,
    "gate": decoder.f_beta.weight,
    "initial state": decoder.init_h[2].weight,
    "LSTM, $T$": decoder.T.weight,
    "words, $E$": decoder.E.weight,
    "output, $L_o$": decoder.L_o.weight,
}
reach = {name: (weight.grad.norm() / weight.norm()).item() for name, weight in parts.items()}
assert min(reach.values()) > 0, "Every part in the figure gets a gradient"
assert reach["attention, $W_h$"] < 0.3 * min(reach["attention, $W_a$"], reach["attention, $v$"]), (
    "The gradient of $W_h$ is smaller than those of $W_a$ and $v$"
)

figure, axis = plt.subplots(figsize=(6.4, 2.9), layout="constrained")
for number, (name, value) in enumerate(reach.items()):
    colour, marker = (GREEN, "s") if "encoder" in name else (RED, "D") if "attention" in name else (BLUE, "o")
    axis.plot(value, number, marker, color=colour, markersize=8)
axis.set_yticks(range(len(reach)), reach)
axis.invert_yaxis()
axis.grid(axis="x")
axis.set(xscale="log", xlabel="length of the gradient / length of the weights")
plt.show()

# %% [markdown]
# Every part in the figure gets a gradient, even the first layer of the encoder. The gradient of $W_h$ is smaller than
# those of $W_a$ and $v$. There are two likely reasons. The state is still small at the start. And $W_h h_{t-1}$ is
# the same for all places. If the tanh were linear, it would add the same number to all energies, and the softmax
# would ignore it.
#
# Now train the decoder. The encoder stays frozen, as in the paper. So its vectors are computed only once: the cell
# above has done it.
#
# **Predict, then run.** The 100 held-out scenes have 200 objects. Write down two numbers: how many objects will the
# decoder name with the right colour and shape after six passes over the training scenes? And how many of the 200
# would it name right by luck?

# %%
EPOCHS = 6
optimiser = torch.optim.Adam(decoder.parameters())
schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=EPOCHS * len(batches), pct_start=0.15)
history = []  # (loss per word, entropy of the maps) of each batch
for epoch in range(EPOCHS):
    for batch in batches.epoch(epoch):
        logits, alphas = decoder(vectors.read(batch.image_ids), batch.captions)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch.captions.flatten())
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        history.append((loss.item(), entropy(alphas.detach()).mean().item()))
    losses, spreads = np.mean(history[-len(batches) :], axis=0)
    print(f"epoch {epoch + 1}: {losses:.2f} nats per word, entropy of the maps {spreads:.2f}")

# %% [markdown]
# Teacher forcing is for training. To write a caption, the decoder gets its own last word. The function below is
# *greedy*: it takes the most probable word at each step. Then we count. An object is named right if one phrase of the
# caption has its colour and its shape. To measure luck, we compare each caption with the *next* scene.
# <!-- here: takes the most probable word | the argmax of the function below -->


# %%
@torch.no_grad()
def write(decoder, a, longest=24):
    """Greedy captions for annotation vectors a (B, L, D): B lists of words, and maps (B, longest, L)."""
    h, c, Ey = decoder.start(a)
    ids, maps = [], []
    for _ in range(longest):
        logits, alpha, h, c = decoder.step(a, h, c, Ey)
        ids.append(logits.argmax(1))
        maps.append(alpha)
        Ey = decoder.E(ids[-1])
    rows = [row[: row.index(0)] if 0 in row else row for row in torch.stack(ids, 1).tolist()]  # the end mark is word 0
    return [vocabulary.decode(row) for row in rows], torch.stack(maps, 1)


def named(words, scene):
    """How many of the two objects of a scene a caption names with the right colour and shape."""
    said = [dict(phrase.attributes.values()) for phrase in scenes.grammar.phrases(words)]
    return sum(
        any(each.get("colour") == thing.colour and each.get("shape") == thing.shape for each in said)
        for thing in scene.objects
    )


drawn = [scenes.scene(example.image_id) for example in tests]
captions, maps = write(decoder, vectors.read([example.image_id for example in tests]))
right = sum(named(words, scene) for words, scene in zip(captions, drawn, strict=True))
luck = sum(named(words, scene) for words, scene in zip(captions, drawn[1:] + drawn[:1], strict=True))
whole = sum(scenes.exact_match(words, scene) for words, scene in zip(captions, drawn, strict=True))
print(f"{right} of 200 objects named right; {luck} by luck")
print(f"{whole} of 100 captions right in size, colour, pattern, shape and relation")
assert right > 180, "The decoder names what it sees"
assert luck < 40, "far above luck"

curves = np.array(history)
figure, (left, middle) = plt.subplots(1, 2, figsize=(8, 2.6), layout="constrained")
for axis, values, known, label in (
    (left, curves[:, 0], len(vocabulary), "knowing nothing"),
    (middle, curves[:, 1], vectors.a.shape[1], "even"),
):
    axis.plot(np.arange(1, len(values) + 1) / len(batches), values, color=BLUE, linewidth=1)
    axis.axhline(np.log(known), color=plots.INK, linestyle=":", label=f"{label}: ln {known}")
    axis.set(xlabel="epoch", ylim=(0, None))
    axis.legend(frameon=False)
left.set_title("loss, nats per word")
middle.set_title("entropy of the maps, nats")
plt.show()
assert curves[-20:, 1].mean() < np.log(vectors.a.shape[1]) / 2, "below half of that"

# %% [markdown]
# <details><summary>Answer</summary>
#
# The decoder names what it sees, far above luck: about 19 objects of 20. (Your run may differ by a few, because
# rounding differs between machines.) The loss does not ask for sharp maps. But they begin even, at $\ln 196$, and end
# below half of that. So it seems that looking at few places helps to predict the words.
# <!-- here: about 19 objects of 20 | the count printed above, bounded by its assertion -->
#
# </details>
#
# Here is the first caption that is right in every word, with its maps. For each word, the picture keeps its own colours
# where the weight was high *when that word was chosen*. It is dimmed elsewhere. Each map of 14 × 14 weights is enlarged
# and smoothed with a Gaussian, as in the paper's figures, and scaled to its own maximum. The thin line encloses the
# area with at least half of the maximum.
# <!-- source: at least half of the maximum | satlib/evaluation/plots.py -->
# <!-- source: 14 × 14 weights | satlib/model/encoders.py -->

# %%
pick = next(i for i, words in enumerate(captions) if scenes.exact_match(words, drawn[i]))
words = captions[pick]
photo = data.photo(tests[pick])
print("the grammar's caption:", tests[pick].references[0])
print("our decoder:          ", " ".join(words))
figure = plots.attention_figure(photo, words, maps[pick, : len(words)].unflatten(1, trained.encoder.grid))
display(figure)

# %% [markdown]
# The map moves from the first object to the second, as the words do. Some of the weight lies beside the objects; we
# come back to that below. A grammar in satlib wrote the reference caption. It may use other words for the same things.

# %% [markdown]
# ## satlib's decoder is the same
#
# satlib has a decoder too, with more options. With the same weights, does it compute the same? It keeps the three parts
# of $T$ in three matrices, and the gates in PyTorch's order. It also has dropout, which `eval()` switches off.
# Otherwise only the names differ.


# %%
def under_satlibs_names(decoder):
    """The weights of a SoftAttentionDecoder, named and ordered as satlib's Decoder wants them."""
    names = {
        "init_h.0": "initial_h.0",
        "init_h.2": "initial_h.3",  # satlib has dropout before its second layer
        "init_c.0": "initial_c.0",
        "init_c.2": "initial_c.3",
        "W_a": "attention.energy.annotation",
        "W_h": "attention.energy.state",
        "v": "attention.energy.energy",
        "f_beta": "gate",
        "E": "embedding",
        "L_h": "output_state",
        "L_z": "output_context",
        "L_o": "output",
    }
    weights = {}
    for name, weight in decoder.state_dict().items():
        part, kind = name.rsplit(".", 1)  # "init_h.0", "weight"
        if part in names:
            weights[f"{names[part]}.{kind}"] = weight
    m, n = decoder.E.embedding_dim, decoder.W_h.in_features
    D = decoder.W_a.in_features
    of_word, of_state, of_context = in_torch_order(decoder.T.weight).split((m, n, D), dim=1)
    weights |= {"gates_word.weight": of_word, "gates_word.bias": in_torch_order(decoder.T.bias)}
    return weights | {"gates_state.weight": of_state, "gates_context.weight": of_context}


sizes = ("decoder.embedding=64", "decoder.hidden=128", "decoder.attention_hidden=64")
chosen = recipe.load("scenes-soft", sizes)
satlibs = Decoder(chosen.decoder, annotation_dim=128, vocabulary_size=len(vocabulary)).eval()
satlibs.load_state_dict(under_satlibs_names(decoder))  # an error if a weight is missing, left over, or of another shape

batch = batches.epoch(0)[0]
with torch.inference_mode():
    a_batch = vectors.read(batch.image_ids)
    logits, alphas = decoder(a_batch, batch.captions)
    output = satlibs(a_batch, batch.captions)
assert_close(logits, output.logits, atol=1e-4, rtol=1e-4)
assert_close(alphas, output.alphas, atol=1e-5, rtol=1e-4)
print(f"{len(batch.captions)} captions of {batch.captions.shape[1]} words, {logits.numel():,} logits:")
print(f"largest difference of a logit {(logits - output.logits).abs().max():.0e}")
print(f"largest difference of a weight {(alphas - output.alphas).abs().max():.0e}")

# %% [markdown]
# The same logits and the same maps, up to rounding. So from here on we may use satlib's tools on *your* decoder: put it
# behind the encoder, and it is a captioner.

# %%
yours = Captioner(chosen, vocabulary, trained.encoder)
yours.decoder.load_state_dict(satlibs.state_dict())
yours.eval()
read_by_satlib = explorer.read(yours, explorer.annotate(yours, photo))  # greedy, as above
assert read_by_satlib.words == words
print(" ".join(read_by_satlib.words))

# %% [markdown]
# ## Reading the maps
# <!-- index: claim: weights can be looked at, and agree with what people would look at | maps of generated words lie on what the words name | satlib.evaluation.maps.measure_all | tests/test_maps.py::TestScenes::test_maps_that_look_at_what_is_named -->
#
# One picture is not enough evidence. So take all the captions of your decoder on the test scenes, and every word in
# them that names an object or says something true of it. Is the peak of the word's map on that object, or within 15
# pixels of it? We compare it with two baselines: a random place, and the mean of all maps of the same caption, which
# ignores the word.
# <!-- source: or within 15 pixels of it | satlib/evaluation/maps.py -->
#
# **Predict, then run.** Write down a number: for what percentage of these words is the peak on the right object?

# %%
generated = evaluate.generate(yours, reader, tests, beam=1, progress=False)
looked = ground.summary(ground.measure_all(tests, generated))
own, still, chance = (looked["all"]["pointing" + suffix] for suffix in ("", "_still", "_chance"))
print(f"peak on the right object: {own:.1f} % of words; mean map of the caption {still:.1f} %; chance {chance:.1f} %")
assert own > max(still + 10, 3 * chance), "far above both"
assert looked["all"]["mass"] < own, "The *mass*, the share of the weight on the object, is lower"
plots.ground_figure(looked)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It is the first number of the output, far above both baselines. Yet no caption says at which place an object is. The
# *mass*, the share of the weight on the object, is lower (on the right): a good part of the weight lies beside the
# object. A likely reason: the convolutions also read pixels around a place, so the vector of a place next to an object
# can describe that object too. Read the maps as pointers, not as outlines.
#
# </details>

# %% [markdown]
# ## What a blurred map and a sharp one do
#
# From here on we study the scenes model that comes with satlib. It has the same parts, but it was trained on 6,600
# scenes for five epochs, encoder included.
# <!-- source: 6,600 scenes for five epochs, encoder included | satlib/recipes/scenes-soft.toml -->
#
# Would sharper or blurrier maps be better than those that training found? Divide all energies of this model by a
# temperature $T$, and change nothing else. Then ask how likely the true captions still are, in nats of NLL (negative
# log-likelihood) per word. The pictures below the curve show the map for one colour word at four temperatures.
#
# **Predict, then run.** At $T = 1$ the model is as it was trained. Which costs more, $T = 0.01$ (each look returns one
# place) or $T = 100$ (each look returns the mean of all places)? Write down for both what they add to the NLL, in
# nats per word.

# %%
few = tests[:30]
with torch.inference_mode():
    a_few = trained.annotations(reader.read([each.image_id for each in few]))
row = {each.image_id: number for number, each in enumerate(few)}
true = SameLengthBatches(pairs(few, trained.vocabulary, 40), 150).epoch(0)
temperatures, nll = (0.01, 0.1, 0.3, 1, 2, 4, 10, 100), []
with torch.inference_mode():
    for temperature in temperatures:
        twin = steered(trained.decoder, temperature)
        losses = [
            negative_log_likelihood(
                twin(a_few[[row[image_id] for image_id in each.image_ids]], each.captions).logits, each.captions
            )
            for each in true
        ]
        nll.append((torch.cat(losses).sum() / sum(each.captions.numel() for each in true)).item())
at = dict(zip(temperatures, nll, strict=True))
print("NLL per word: " + ", ".join(f"{at[temperature]:.2f} at T = {temperature}" for temperature in (0.01, 1, 100)))
assert at[100] - at[1] > 10 * (at[0.01] - at[1]) > 0, "Blurring costs far more than sharpening"
assert min(nll) > at[1] - 0.01, "None of the other temperatures does better than $T = 1$ by a hundredth of a nat"

finished = explorer.read(trained, explorer.annotate(trained, photo)).words
said = {T: explorer.read(trained, explorer.annotate(trained, photo), finished, T) for T in (0.1, 1, 4, 100)}
index = finished.index(drawn[pick].objects[0].colour)
figure = plots.NotebookFigure(figsize=(8, 4.2), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=(1.25, 1))
axis = above.subplots()
axis.plot(temperatures, nll, "-o", color=BLUE)
axis.set(xscale="log", xlabel="temperature T", ylabel="NLL, nats per word", ylim=(0, None))
axis.axvline(1, color=plots.INK, linestyle=":")
axis.annotate("as trained", (1, 0.1), (6, 0), textcoords="offset points")
for axis, (temperature, reading) in zip(below.subplots(1, 4), said.items(), strict=True):
    axis.imshow(overlay.lit(photo, reading.alphas[index : index + 1], 112)[0])
    axis.set_axis_off()
    axis.set_title(f"T = {temperature}: p({reading.words[index]}) = {reading.probabilities[index]:.2f}", fontsize=9)
display(figure)

# %% [markdown]
# <details><summary>Answer</summary>
#
# None of the other temperatures does better than $T = 1$ by a hundredth of a nat. Blurring costs far more than
# sharpening. On average over the words, one place is nearly enough. In the pictures, the colour is least probable where the map is even. A
# likely reason: the mean of all places does not say which colour goes with which shape.
# <!-- here: one place is nearly enough | the small loss at T = 0.01, printed above -->
#
# A sharp map need not be a good one. It shows that the decoder relies on few places, not that they are the right
# places. To find out, check where the peak is, as above.
#
# </details>

# %% [markdown]
# ## The gate, word by word
# <!-- index: claim: the gate is larger where an object is described | measured by kind of word, on scenes | satlib.model.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
#
# > **Paper, section 4.2.1.** The gating variable, as far as the authors could see from examples, is larger when the
# > decoder describes an object in the image.
#
# We can measure this. The scenes model writes a caption for each test scene. We group all the words by kind.
#
# **Predict, then run.** Six kinds of words: colour, shape, size, texture ("dotted"), other words ("a", "is", "with"),
# and the end mark. Write down their order by the mean of $\beta$.

# %%
betas, spreads = {}, {}
generated = evaluate.generate(trained, reader, tests, beam=1, progress=False)
for each in tests:
    made = generated[each.image_id]
    kind_of = {k: said[0] for phrase in scenes.grammar.phrases(made.words) for k, said in phrase.attributes.items()}
    for k, (beta_k, map_) in enumerate(zip(made.betas.tolist(), made.alphas.flatten(1), strict=True)):
        kind = kind_of.get(k, "other words" if k < len(made.words) else "(end)")
        betas.setdefault(kind, []).append(beta_k)
        spreads.setdefault(kind, []).append(entropy(map_).item())
mean_of = {kind: np.mean(values) for kind, values in betas.items()}
kinds = sorted(mean_of, key=mean_of.get)
print("mean gate: " + ", ".join(f"{kind} {mean_of[kind]:.2f}" for kind in kinds))
assert min(mean_of["colour"], mean_of["shape"]) > mean_of["other words"] + 0.05, (
    "higher at colours and shapes than at other words"
)
assert mean_of["texture"] < mean_of["colour"] - 0.1, "At textures the gate is lower than at colours"
spread_of = {kind: np.mean(values) for kind, values in spreads.items()}
assert max(spread_of["colour"], spread_of["shape"]) < min(spread_of["size"], spread_of["other words"]) - 0.2, (
    "The maps are sharper at colours and shapes than at sizes and at other words"
)

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.8), sharey=True, layout="constrained")
for axis, values, colour, marker in ((left, betas, BLUE, "o"), (right, spreads, RED, "D")):
    for height, kind in enumerate(kinds):
        axis.plot(np.quantile(values[kind], (0.1, 0.9)), (height, height), color=colour, linewidth=3, alpha=0.65)
        axis.plot(np.mean(values[kind]), height, marker, color=colour, markersize=8)
left.set_yticks(range(len(kinds)), [f"{kind} ({len(betas[kind])})" for kind in kinds])
left.set(title=r"gate $\beta$: mean, and where 80 % lie", xlim=(0.2, 1.02))
right.set(title="entropy of the map, nats", xlim=(-0.1, 4))
plt.show()

# %% [markdown]
# <details><summary>Answer</summary>
#
# The gate is higher at colours and shapes than at other words, as the paper says. But it is not that simple. At
# textures the gate is lower than at colours, although a texture has to be seen too. So in this model the
# describing words differ among themselves. The right panel shows the entropy. The maps are sharper at colours and
# shapes than at sizes and at other words.
#
# </details>
#
# Be careful with such numbers. A gate of 0.6 scales a vector, and the next layer can scale it back. So compare gates
# only within one model.
# <!-- here: a gate of 0.6 | an example; equation 1 multiplies the gated context by T -->

# %% [markdown]
# ## Where it looks next depends on the words so far
# <!-- index: claim: where it looks next depends on the words so far | forced words move the maps, from the second word after them on | satcourse.widgets.explorer.read | tests/test_soft_attention.py::test_a_word_moves_the_maps_from_the_second_after_it -->
#
# > **Paper, section 3.1.2.** The hidden state varies as the output goes on: *where* the network looks next depends on the
# > sequence of words already generated.
#
# Which words count? Follow a word through your class. `step` computes $\alpha_t$ from $h_{t-1}$, and $h_{t-1}$ was
# computed from $E y_{t-2}$. The previous word, $y_{t-1}$, enters in equation 1, after the decoder has looked. So the
# word $y_t$ cannot change map $t + 1$. It can change map $t + 2$ and all later maps. Check it on your decoder: change
# the second word of a caption.
#
# The distance between two maps is the total variation: 0 for equal maps, 1 for maps without a common place.
# <!-- source: 0 for equal maps, 1 for maps without a common place | definition of total variation, satlib/model/objective.py -->

# %%
one = torch.tensor([vocabulary.encode("a big red star above a blue square")])
other = torch.tensor([vocabulary.encode("a small red star above a blue square")])
a_one = vectors.a[:1]
with torch.inference_mode():
    moved = (decoder(a_one, one)[1] - decoder(a_one, other)[1]).abs().sum(2)[0] / 2
print("each map moves by", " ".join(f"{each:.4f}" for each in moved))
assert (moved[:3] == 0).all(), "the first three maps do not move"
assert (moved[3:] > 0).all()

# %% [markdown]
# The second word changed, and the first three maps do not move. The fourth is the first map that depends on it.
#
# How far does a word move the maps? We give satlib's scenes model the beginning of a caption, and read its maps. The
# scenes are those where one object is above the other, and the two differ in size and in colour. We try two kinds of
# words:
#
# - the first word, "above" or "below". *Above a star there is ...* begins with the lower object, *below a star ...*
#   with the upper one;
# - a colour: after the size of one object ("a big" or "a small"), we put its own colour or a wrong colour, that of the
#   other object.
#
# We compare the first maps that can change: those of the second word after "above" or "below", and after the colour.
#
# **Predict, then run.** Write down two numbers between 0 and 1: how far does this map move for the first kind, and how
# far for the second?

# %%
standing, about = [], []
for each in tests:
    scene = scenes.scene(each.image_id)
    first, second = scene.objects
    if scene.relation in ("above", "below") and first.size != second.size and first.colour != second.colour:
        standing.append(each)
        about.append(scene)
print(f"{len(standing)} scenes")
with torch.inference_mode():
    a_standing = trained.annotations(reader.read([each.image_id for each in standing]))


def look_after(beginnings):
    """The map of the second word after each beginning's last one: (B, L), and of the first."""
    ids = torch.tensor(
        [trained.vocabulary.encode(f"{each} a a") for each in beginnings]
    )  # what follows is not read yet
    with torch.inference_mode():
        alphas = trained.decoder(a_standing, ids).alphas
    return alphas[:, -1], alphas[:, -2]


after, just_after = {}, {}
for word in ("above", "below"):
    after[word], just_after[word] = look_after([word] * len(about))
for number, word in enumerate(("one colour", "the other colour")):
    after[word], just_after[word] = look_after([f"a {s.objects[0].size} {s.objects[number].colour}" for s in about])
distance = {}
for pair in (("above", "below"), ("one colour", "the other colour")):
    assert torch.equal(just_after[pair[0]], just_after[pair[1]])  # the map of the word that follows at once: untouched
    distance[pair] = (after[pair[0]] - after[pair[1]]).abs().sum(1) / 2
relation, colour = distance.values()
print(f'mean distance of the maps: {relation.mean():.2f} for "above" and "below", {colour.mean():.2f} for the colours')

hits = np.zeros((2, 2))  # peak of the map on the (upper, lower) object, after (above, below)
for number, scene in enumerate(about):
    masks = sorted(zip(scene.objects, scene.masks, strict=True), key=lambda each: each[0].centre[1])
    for place_of, (_, mask) in enumerate(masks):
        target = [ground.Target(0, "object", mask)]
        for word_of, word in enumerate(("above", "below")):
            one_map = ground.Caption([word], 0.0, after[word][number].view(1, *trained.encoder.grid), torch.ones(1))
            hits[word_of, place_of] += ground.measure(one_map, target)[0].values["pointing"] / len(about)

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.7), width_ratios=(1.3, 1), layout="constrained")
for height, values in enumerate(distance.values()):
    jitter = height + np.linspace(-0.18, 0.18, len(values))
    left.plot(values, jitter, "oD"[height], color=(BLUE, RED)[height], markersize=5, alpha=0.7)
left.set_yticks((0, 1), ["above | below", "colour of one |\nof the other"])
left.set(
    title="how far the map moves, scene by scene",
    xlabel="total variation between the two maps",
    xlim=(-0.03, 1.03),
    ylim=(1.5, -0.5),
)
for word_of, (word, hatch) in enumerate((("above", ""), ("below", "//"))):
    right.bar(
        np.arange(2) + 0.2 * (2 * word_of - 1),
        100 * hits[word_of],
        0.38,
        color=(SKY, ORANGE)[word_of],
        hatch=hatch,
        label=f'after "{word}"',
    )
right.set_xticks((0, 1), ("on the upper", "on the lower"))
right.set(title="peak of the map on an object (%)", ylim=(0, 100))
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
plt.show()

assert relation.mean() > 5 * colour.mean(), "far more than a wrong colour"
assert hits[0, 1] > 0.9, 'After "above" the peak is on the lower object in nearly all scenes'
assert hits[1, 0] > 0.9, 'after "below" it is the other way round'

# %% [markdown]
# <details><summary>Answer</summary>
#
# "Above" or "below" moves the map far more than a wrong colour does. After "above" the peak is on the lower object in
# nearly all scenes, and after "below" it is the other way round. A wrong colour hardly moves it. A likely reason:
# whichever colour is given, the decoder goes on with the object that it has been looking at, so what is left to say stays
# much the same. So the maps depend on the words so far, but not on all of
# them to the same degree. What seems to matter is whether a word changes what is left to say.
#
# </details>
#
# Here is the scene in which the map moves farthest. The model itself finishes the sentence after each of the two words.

# %%
far = int(relation.argmax())
assert (relation <= relation[far]).all(), "the map moves farthest"
photo = data.photo(standing[far])
begun = {word: explorer.read(trained, a_standing[far], [word]) for word in ("above", "below")}
for reading in begun.values():
    verdict = "right" if scenes.exact_match(reading.words, about[far]) else "not wholly right"
    print(f"{' '.join(reading.words)} ({verdict})")
figure = plots.compare_figure(photo, [(f"{word} ...", each.words[:5], each.alphas[:5]) for word, each in begun.items()])
display(figure)

# %% [markdown]
# ## A photograph
#
# The captioner for photographs that comes with satlib uses two encoders side by side, EfficientNet-Lite0 and -Lite2. It
# was trained on the photographs of Flickr8k. In the last stage of training, boxes showed it where the named objects
# are. If Flickr8k is on your disk, the photograph below is one of its test photographs. Otherwise it is a motorcycle
# from scikit-image.
# <!-- source: uses two encoders side by side, EfficientNet-Lite0 and -Lite2 | satlib/models/README.md -->
# <!-- source: In the last stage of training, boxes showed it where the named objects are | satlib/models/README.md -->
#
# We let the captioner write one caption by itself, and one that we begin with "two". Both are greedy. `satlib
# caption` searches with a beam. The beam's caption can differ, so we print it too.

# %%
captioner = Captioner.load(shipped.model())
root = find_root("flickr8k")
if root is None:
    photo = photographs["motorcycle_left"]
else:
    flickr8k = load("flickr8k", root)
    photo = flickr8k.photo(flickr8k.split("test")[0])
a_photo = explorer.annotate(captioner, photo)
by_itself, forced = explorer.read(captioner, a_photo), explorer.read(captioner, a_photo, ["two"])
both = min(len(by_itself.words), len(forced.words))
moved = (by_itself.alphas[:both] - forced.alphas[:both]).abs().flatten(1).sum(1) / 2
assert (moved[:2] == 0).all(), "The first two maps do not move"
assert moved[2:].max() > 0.05
print("beam search:", captioner.caption([photo])[0].text)
print("greedy:     ", " ".join(by_itself.words))
print("forced:     ", " ".join(forced.words))
print("the map moves by", " ".join(f"{each:.2f}" for each in moved))
figure = plots.compare_figure(
    photo, [(name, each.words[:5], each.alphas[:5]) for name, each in (("by itself", by_itself), ("forced", forced))]
)
display(figure)

# %% [markdown]
# The first two maps do not move, as with the scenes: they do not depend on the first word yet. Later maps do move. If
# you see the motorcycle, do not trust the captions: nobody rides it.
#
# How much does the map move from one word to the next, in this model and in the scenes model? `satlib evaluate` has
# measured it on the whole test sets. We read the stored results.

# %%
stored = {}
for name in ("scenes-soft", "flickr8k-lite02-boxes"):
    file = Path(satlib.__file__).parent / "results" / name / "evaluation-test.json"
    stored[name] = json.loads(file.read_text())["metrics"]["map movement"]
    print(f"{name:22} moves by {stored[name]:.2f} from word to word")
assert stored["scenes-soft"] > 1.5 * stored["flickr8k-lite02-boxes"], "The maps of the photograph model move less"

# %% [markdown]
# The maps of the photograph model move less. The two models also differ in their encoders and their training, so these
# numbers cannot say why. Read such maps with care. They show where the weight was, not why a word was chosen. Would the
# word have changed if the weight had been elsewhere? Notebook 09 asks that.

# %% [markdown]
# ## Try it
#
# Where you change the class, run its cell and the cells of the training again. Assertions about the old numbers may
# then fail, after the new numbers are printed.
#
# - **A mistake to make on purpose:** in `step`, swap two names: `i, f, g, o = self.T(...)`. Run two more cells again:
#   the one that compares the class with our parts by hand, and the one that compares it with satlib's decoder. Which
#   checks fail? Does it learn as well as before, and why?
# - **Another one:** in `look`, use the energies themselves as weights: `alpha = e`. Where an assertion stops you, go on
#   with the next cell. (The logarithm in the entropy may give nan.) Does it still learn? Print `alphas.min()` and
#   `alphas.sum(2)` after the training: can the context leave the hull?
# - Replace the weights in `look` by `torch.full_like(alpha, 1 / 196)`: no attention. The cell that measures the
#   gradients then stops, because the attention gets none. Go on with the next cell. How many of the 200 objects are
#   named right now?
# - Close the gate with `nn.init.constant_(decoder.f_beta.bias, -100)`, and call `write` as above. What does the decoder
#   say without the context? It still knows $h_0$. (Train again afterwards.)
# - Train on 100 scenes in place of 500. How many objects are named right?
# - The scene of `a_standing[0]` has a big yellow circle (print `about[0].objects`). Force a wrong *shape* with
#   `explorer.read(trained, a_standing[0], ["a", "big", "yellow", "star"])`. Does the model correct itself later, or go
#   on as if it were true?

# %% [markdown]
# ## What to remember
#
# - Before each word, the decoder computes energies from the state and each place on its own (equation 4), a softmax
#   (5), a weighted mean (6, 13), and a gate. An ordinary LSTM step (1 to 3) and the word (7) follow. That is a class of
#   about 50 lines.
# - $\partial \hat z / \partial e_k = \alpha_k (a_k - \hat z)$: a place gains weight if more of its vector would have
#   made the true word likelier. That is how the decoder learns where to look from words alone.
# - The scale of the energies decides between a blurred map (the mean of everything) and a sharp one (one place).
#   Training finds it.
# - The map for a word depends on all the words before it except the last one. In our test, a word that changed what was
#   left to say moved the map far. A wrong colour did not.
# - A map shows where the weight was. To know whether the peaks are on the named objects, count them. To know whether a
#   place mattered for a word, move the weight elsewhere and see whether the word changes (notebook 09).
# <!-- source: a class of about 50 lines | tests/test_soft_attention.py, which counts the lines of SoftAttentionDecoder -->
# <!-- source: softmax (5), a weighted mean (6, 13), and a gate. An ordinary LSTM step (1 to 3) and the word (7) follow | numbers of equations in the paper -->
# <!-- here: if more of its vector would have made the true word likelier | the chain rule, under "Why it learns where to look" -->

# %% [markdown]
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio. *Show, Attend and Tell: Neural Image Caption Generation with Visual Attention.* ICML 2015. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - D. Bahdanau, K. Cho, Y. Bengio. *Neural Machine Translation by Jointly Learning to Align and Translate.* ICLR 2015. [arXiv:1409.0473](https://arxiv.org/abs/1409.0473)
# - M.-T. Luong, H. Pham, C. D. Manning. *Effective Approaches to Attention-based Neural Machine Translation.* EMNLP 2015. [arXiv:1508.04025](https://arxiv.org/abs/1508.04025)
# - S. Hochreiter, J. Schmidhuber. *Long Short-Term Memory.* Neural Computation 9(8), 1997.
# - W. Zaremba, I. Sutskever, O. Vinyals. *Recurrent Neural Network Regularization.* 2014. [arXiv:1409.2329](https://arxiv.org/abs/1409.2329)
# - K. Simonyan, A. Zisserman. *Very Deep Convolutional Networks for Large-Scale Image Recognition.* ICLR 2015. [arXiv:1409.1556](https://arxiv.org/abs/1409.1556)
# - J. Zhang, Z. Lin, J. Brandt, X. Shen, S. Sclaroff. *Top-down Neural Attention by Excitation Backprop.* ECCV 2016 (the pointing game). [arXiv:1608.00507](https://arxiv.org/abs/1608.00507)
