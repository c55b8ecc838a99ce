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
# The heart of *Show, Attend and Tell*: a decoder that, before each word, weighs all places of the image and reads their weighted mean.
# You will build it from its equations, one at a time, and then watch a trained one look.
#
# **You will be able to**
#
# - write down and compute every equation of the decoder (1 to 7, and 13), and say what each of its inputs can and cannot know;
# - say why a network learns where to look although nobody ever shows it a place;
# - train soft attention, and read its maps: sharp or blurred, on the named thing or beside it, what the gate lets through;
# - show by experiment that where it looks next depends on the words so far, and on *which* words.
#
# **Minutes**: 40 to read, 0.6 to run on two CPU cores. **Memory**: 1.4 GB. **Needs**: notebook 02 for what annotation vectors are; nothing to
# download.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from IPython.display import display
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from torch import nn
from torch.testing import assert_close

from satlib import attention, demo, encoders, evaluation, ground, images, overlay, plots, recipe, shipped, training
from satlib.batching import SameLengthBatches, pairs
from satlib.captioner import Captioner
from satlib.course import explorer
from satlib.course.steering import steered
from satlib.course.vectors import Vectors
from satlib.datasets import find_root, load, scenes
from satlib.decoder import Decoder, DecoderConfig
from satlib.features import Pixels
from satlib.objectives import entropy, negative_log_likelihood
from satlib.text import Vocabulary

BLUE, RED, GREEN, ORANGE, SKY, PINK = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
plt.rcParams |= {"figure.dpi": 85, "axes.spines.top": False, "axes.spines.right": False, "font.size": 10}

# %% [markdown]
# ## What the decoder is given
#
# > **Paper, section 3.1.1.** The encoder turns an image into $L$ annotation vectors, one for each part of the image, of $D$ dimensions each:
# > $a = \{a_1, \dots, a_L\}$, $a_i \in \mathbb{R}^D$. They come from a convolutional layer and not from a fully connected one, so that the
# > decoder can favour some parts of the image over others. The caption is $y = \{y_1, \dots, y_C\}$, words out of a vocabulary of $K$.
#
# Here is a photograph and what the paper's encoder, VGG-19, makes of it: $L = 14 \cdot 14 = 196$ places, $D = 512$ numbers at each. The decoder
# never sees a pixel. All it has is the table on the right, and it may ask each of its rows a question.

# %%
photographs = {path.stem: images.open_photo(path) for path in demo.photographs()}
cat = images.square(photographs["chelsea"], "crop")  # its middle, (224, 224)
with torch.inference_mode():
    vgg = encoders.create("vgg19")
    a_cat = vgg(images.to_tensor(cat)[None])[0]  # (196, 512)
place, row, column = 4 * 14 + 4, 4, 4  # at the left eye, counted from 0
seen = cat.resize((112, 112))  # as much as the figures need

figure = plots.NotebookFigure(figsize=(8, 3.4), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=(1, 1.3))
left.imshow(seen)
for line in range(0, 113, 8):
    left.axhline(line - 0.5, color="white", linewidth=0.5)
    left.axvline(line - 0.5, color="white", linewidth=0.5)
left.add_patch(Rectangle((8 * column, 8 * row), 8, 8, fill=False, edgecolor=RED, linewidth=3))
left.set_title(f"196 places; framed: number {place + 1}")
left.set_axis_off()
right.imshow(a_cat, cmap="cividis", aspect="auto", interpolation="nearest", vmax=a_cat.quantile(0.99))
right.annotate(
    "", (0, place), (-40, place), arrowprops={"color": RED, "width": 2, "headwidth": 9}, annotation_clip=False
)
right.set(
    title="a: one row for each place (light: large)", xlabel="dimension, 1 to D = 512", ylabel="place, 1 to L = 196"
)
display(figure)

# %% [markdown]
# To follow the equations by hand we need something smaller. A decoder with all the parts of the real one, but $L = 6$ places, $D = 5$,
# embeddings of $m = 3$, a state of $n = 4$ and $K = 7$ words. It is satlib's; we compute beside it, in plain sums, from the same weights.

# %%
L, D, m, n, K = 6, 5, 3, 4, 7
torch.manual_seed(8)
tiny = Decoder(DecoderConfig(embedding=m, hidden=n, attention_hidden=8, dropout=0.0), D, K).double().eval()
for weight in tiny.parameters():
    nn.init.normal_(weight, std=0.6)  # large enough for everything to matter
    weight.requires_grad_(False)
a = torch.randn(L, D).double()  # one image; satlib takes a batch of them, here a[None]: (1, L, D)

# %% [markdown]
# ## Before the first word: the initial state
# <!-- index: section 3.1.2 | h_0 and c_0: two MLPs of the mean annotation vector | satlib.decoder.Decoder.initial_state | tests/test_decoder.py::test_initial_state_reads_the_mean_annotation_vector -->
#
# > **Paper, section 3.1.2.** Memory and hidden state begin as what two separate networks predict from the average annotation vector:
# > $$c_0 = f_{init,c}\Big(\frac1L \sum_{i=1}^L a_i\Big), \qquad h_0 = f_{init,h}\Big(\frac1L \sum_{i=1}^L a_i\Big).$$
#
# The paper says "MLP" and no more; the official code has a hidden layer with a ReLU and a tanh at the end, and so has satlib.

# %%
mean = sum(a[i] for i in range(L)) / L


def mlp(layers, x):
    hidden, out = layers[0], layers[3]  # between them: ReLU and dropout
    return torch.tanh(out.weight @ torch.relu(hidden.weight @ x + hidden.bias) + out.bias)


h, c = mlp(tiny.initial_h, mean), mlp(tiny.initial_c, mean)
state = tiny.initial_state(a[None])
assert_close(h, state.h[0])
assert_close(c, state.c[0])

# %% [markdown]
# A mean does not know where anything was. Shuffle the places of an image as you like: $h_0$ is the same, to the last digit or nearly so. What
# the first glance tells the decoder is *what* there is in the image, not *where*; places come in with attention, from the first word on.
#
# **What do you expect to see?** The state of an image, of the same places in another order, and of another image.

# %%
shuffled, another = a[torch.tensor([3, 0, 5, 1, 4, 2])], torch.randn(L, D).double()
three = {"an image": a, "its places shuffled": shuffled, "another image": another}
begun = {name: tiny.initial_state(each[None]).h[0] for name, each in three.items()}
assert_close(begun["an image"], begun["its places shuffled"])
assert (begun["an image"] - begun["another image"]).abs().max() > 0.1

figure, axes = plt.subplots(1, 3, figsize=(7.5, 1.9), sharey=True, layout="constrained")
for axis, (name, h_0), colour in zip(axes, begun.items(), (BLUE, SKY, ORANGE), strict=True):
    axis.bar(range(1, n + 1), h_0, color=colour)
    axis.axhline(0, color="0.3", linewidth=0.8)
    axis.set(title=name, xlabel="unit", xticks=range(1, n + 1), ylim=(-1.05, 1.05))
axes[0].set_ylabel("$h_0$")
plt.show()

# %% [markdown]
# ## The question to each place: energies
# <!-- index: equation 4 | energies e_ti = f_att(a_i, h_{t-1}) | satlib.attention.AdditiveEnergy | tests/test_attention.py::test_energy_equals_a_loop_over_places -->
# <!-- index: claim: each place is asked alone | the relevance of a part is computed without looking at the other parts | satlib.attention.AdditiveEnergy | tests/test_soft_attention.py::test_each_place_is_asked_alone -->
#
# > **Paper, equation 4.** A model $f_{att}$, a multilayer perceptron that sees the previous hidden state, scores each place:
# > $$e_{ti} = f_{att}(a_i, h_{t-1}).$$
#
# The state asks, a place answers with one number. The perceptron has one hidden layer: $e_{ti} = v \cdot \tanh(W_a a_i + W_h h_{t-1} + b)$. Read it as a set
# of small detectors: each hidden unit adds evidence from the place to evidence from the state, and $v$ says how much it counts. The same $v$, $W_a$, $W_h$
# serve at every place and at every word.

# %%
f = tiny.attention.energy
W_a, b, W_h, v = f.annotation.weight, f.annotation.bias, f.state.weight, f.energy.weight[0]
e = torch.stack([v @ torch.tanh(W_a @ a[i] + b + W_h @ h) for i in range(L)])

keys = f.keys(a[None])  # W_a a_i + b: the same at every word, so satlib computes it once for each image
assert_close(e, f(keys, h[None])[0])

# Each place is asked alone: change what is at place 2, and no other answer changes.
changed = a.clone()
changed[2] += 1
others = f(keys, h[None])[0] == f(f.keys(changed[None]), h[None])[0]
assert others.tolist() == [i != 2 for i in range(L)]

# %% [markdown]
# ### Other ways to ask
# <!-- index: claim: relevance may be computed in other ways | concat, general (Luong et al.) and dot in place of the additive energy | satlib.attention.ENERGIES | tests/test_attention.py::test_energy_equals_a_loop_over_places -->
#
# All that attention needs of $f_{att}$ is that it mixes $a_i$ and $h_{t-1}$ into a number. Luong, Pham and Manning (2015) try these, of which the slides
# that this course follows show *general* and *concat*:
#
# $$e_{ti} = \begin{cases} a_i^\top h_{t-1} & \text{dot} \\ a_i^\top W h_{t-1} & \text{general} \\ v \cdot \tanh(W [a_i; h_{t-1}]) & \text{concat} \end{cases}$$
#
# *Dot* has nothing to learn, and needs $D = n$. *General* learns one matrix that translates between what states ask and what places say. *Concat* is the
# paper's perceptron written with one matrix: its first $D$ columns are $W_a$, the rest $W_h$.

# %%
torch.manual_seed(1)
h_wide = torch.randn(D).double()  # for dot: a state as wide as an annotation vector
dot, general, concat = (attention.ENERGIES[name](D, D, 8).double() for name in ("dot", "general", "concat"))
W = general.bilinear.weight.T  # stored as its transpose
joint, u = concat.joint.weight, concat.energy.weight[0]
by_hand = {
    dot: [a[i] @ h_wide for i in range(L)],
    general: [a[i] @ W @ h_wide for i in range(L)],
    concat: [u @ torch.tanh(joint @ torch.cat([a[i], h_wide])) for i in range(L)],
}
for energy, values in by_hand.items():
    assert_close(torch.stack(values), energy(energy.keys(a[None]), h_wide[None])[0])

# Concat with its matrix cut in two is the additive energy without its bias.
additive = attention.AdditiveEnergy(D, D, 8).double()
halves = {"annotation.weight": joint[:, :D], "annotation.bias": torch.zeros(8).double(), "state.weight": joint[:, D:]}
additive.load_state_dict(halves | {"energy.weight": u[None]})
assert_close(additive(additive.keys(a[None]), h_wide[None]), concat(concat.keys(a[None]), h_wide[None]))

# %% [markdown]
# What is the difference? Let annotation vectors have two dimensions, hold the state still, and draw the energy of every possible $a_i$ as a landscape. The
# arrow is the state.
#
# **What do you expect to see?** *Dot* must be a slope that rises along the state. Which of the others can bend?

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
    with torch.no_grad():
        landscapes[name] = energy(energy.keys(plane), h_2[None])[0]
        twice = energy(energy.keys(2 * plane), h_2[None])[0]
    if name in ("dot", "general"):  # linear in a_i: twice as long a vector, twice the energy
        assert_close(twice, 2 * landscapes[name])
    else:  # bounded: no place can shout louder than the sum of |v|
        assert max(landscapes[name].abs().max(), twice.abs().max()) <= energy.energy.weight.abs().sum()

figure, axes = plt.subplots(1, 4, figsize=(9.4, 2.7), sharey=True, layout="constrained")
for axis, (name, values) in zip(axes, landscapes.items(), strict=True):
    filled = axis.contourf(side, side, values.view(61, 61), 12, cmap="cividis")
    axis.contour(side, side, values.view(61, 61), 12, colors="white", linewidths=0.4)
    axis.annotate("", h_2.tolist(), (0, 0), arrowprops={"color": RED, "width": 1.5, "headwidth": 7})
    axis.set(title=name, aspect="equal", xlabel="$a_{i1}$")
    bar = figure.colorbar(filled, ax=axis, shrink=0.75, orientation="horizontal")
    bar.locator = MaxNLocator(4)
    bar.update_ticks()
axes[0].set_ylabel("$a_{i2}$")
plt.show()

# %% [markdown]
# Light is high. *Dot* rises along the arrow, *general* along the arrow turned and stretched by $W$; both are planes, and both grow with the length of $a_i$. The two
# perceptrons bend: they can prefer a region in the middle, and they saturate, so that a place with a huge vector cannot shout the others down. For features
# whose lengths vary as much as those of a ReLU network do, that is worth having; you will see in a moment what a plain dot product makes of VGG-19's.

# %% [markdown]
# ## Answers become weights: the softmax
# <!-- index: equation 5 | weights alpha_ti, a softmax over the places | satlib.attention.SoftAttention | tests/test_attention.py::test_weights_and_context_by_hand -->
# <!-- index: claim: a softmax is an argmax that can be differentiated | from even weights to one place, as energies grow | satlib.attention.SoftAttention | tests/test_attention.py::test_weights_are_a_distribution_and_follow_the_places -->
#
# > **Paper, equation 5.** $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_{k=1}^L \exp(e_{tk})}$$

# %%
alpha = torch.stack([e[i].exp() / sum(e[k].exp() for k in range(L)) for i in range(L)])
look = tiny.attention(a[None], keys, h[None])
assert_close(alpha, look.alpha[0])
assert_close(alpha.sum(), torch.tensor(1.0).double())
assert_close(torch.softmax(e + 17, 0), alpha)  # only differences count: why the last layer of f_att needs no bias

# %% [markdown]
# The *size* of the differences decides how sharp the map is. Multiply all energies by the same number: at 0 every place weighs $1/L$, at large ones the best place takes
# all, and the softmax has become an argmax, except that it has a derivative everywhere. One number says where a map stands between the two, its
# entropy $H = -\sum_i \alpha_i \ln \alpha_i$: $\ln L$ when it is even, 0 when one place has all.

# %%
scales = (0, 0.5, 1, 2, 8)
maps = torch.stack([torch.softmax(scale * e, 0) for scale in scales])
H = entropy(maps)
assert_close(H[0], torch.tensor(L).double().log())
assert (H.diff() < 0).all()
assert maps[-1].argmax() == e.argmax()

figure, axes = plt.subplots(1, 5, figsize=(9.2, 2), sharey=True, layout="constrained")
for axis, scale, map_, spread in zip(axes, scales, maps, H, strict=True):
    axis.bar(range(1, L + 1), map_, color=BLUE)
    axis.set(title=f"energies × {scale}\nH = {spread:.2f}", xlabel="place", xticks=range(1, L + 1), ylim=(0, 1))
axes[0].set_ylabel("weight")
plt.show()

# %% [markdown]
# ### A blurred map and a sharp one, on a photograph
#
# No training is needed to try that on the cat. Let the question be one of its own places: the framed one from above, at an eye. A dot product then asks every place
# "are you like this one?". Vectors of VGG-19 are long, so we first ask with *cosines*, which lie between 0 and 1 here, times a scale.
#
# **What do you expect to see** at scale 1, where no energy is above 1? And which places besides the framed one should light up? (Each map is drawn on its
# own scale: light is its largest weight.)

# %%
unit = a_cat / a_cat.norm(dim=1, keepdim=True)
cosines = unit @ unit[place]  # (196,)
asked = torch.stack(
    [torch.softmax(scale * cosines, 0) for scale in (1, 10, 30)] + [torch.softmax(a_cat @ a_cat[place], 0)]
)
spread = entropy(asked).abs()
figure = plots.NotebookFigure(figsize=(8.6, 2.2), layout="constrained")
axes = figure.subplots(1, 5)
axes[0].imshow(seen)
axes[0].add_patch(Rectangle((8 * column, 8 * row), 8, 8, fill=False, edgecolor=RED, linewidth=2))
axes[0].set_title("like this place?", fontsize=9)
lit = overlay.upsample(asked.view(-1, 14, 14), (112, 112)).numpy()
for axis, map_, each, name in zip(
    axes[1:], lit, spread, ("1 × cosine", "10 × cosine", "30 × cosine", "raw dot"), strict=True
):
    axis.imshow(seen.convert("L"), cmap="gray")
    axis.imshow(map_, cmap="cividis", alpha=0.7, vmin=0, vmax=map_.max())
    axis.set_title(f"{name}\nH = {each:.2f}", fontsize=9)
for axis in axes:
    axis.set_axis_off()
display(figure)

lengths = a_cat.norm(dim=1)
print(f"lengths of the annotation vectors: {lengths.min():.0f} to {lengths.max():.0f}")
assert spread[0] > 0.98 * np.log(196)  # nearly even: energies that differ by less than 1 cannot choose among 196
assert spread[0] > spread[1] > spread[2]
assert spread[3] < 0.1  # products of long vectors differ by thousands: one place takes all
right_eye = cosines.view(14, 14)[:, 10:].max()  # the other side of the face
assert right_eye > cosines.quantile(0.95)

# %% [markdown]
# At scale 1 the weights are all but equal, H = 5.26 of at most ln 196 = 5.28: a blurred map, whose weighted mean says what the whole image says. At 10 the two eyes stand out, at 30 little but the eye
# that was asked about. The raw dot product asks for likeness *and length*: it leaves one place and nothing else, and not even the right one. A softmax that saturated has no gradient to learn from. So energies must be free to find their scale. The perceptron of equation 4 finds
# it with $v$: blurred while it knows nothing, sharper as it learns.

# %% [markdown]
# ## Weights become one vector: the context
# <!-- index: equation 6 | context vector z_t = phi({a_i}, {alpha_ti}) | satlib.attention.SoftAttention | tests/test_attention.py::test_weights_and_context_by_hand -->
# <!-- index: equation 13 | soft attention takes the expectation: E[z_t] = sum_i alpha_ti a_i | satlib.attention.SoftAttention | tests/test_soft_attention.py::test_the_context_is_the_expectation_over_sampled_places -->
#
# > **Paper, equation 6.** Weights and annotation vectors give the context vector, by a function that returns a single vector: $\hat z_t = \phi(\{a_i\}, \{\alpha_{ti}\})$.
# >
# > **Paper, section 4.2, equation 13.** Where hard attention samples one place $s_t$ for each word, soft attention takes the expectation of the context vector:
# > $$\mathbb{E}_{p(s_t|a)}[\hat z_t] = \sum_{i=1}^L \alpha_{ti} a_i .$$
#
# An expectation is a sum over all that may happen, each case times its probability. Here $L$ things may happen: $s_t$ is place 1, or 2, ... Each case is a one-hot vector, and
# its context is that place's annotation vector.

# %%
one_hot = torch.eye(L).double()  # row i: the case that s_t is place i
expectation = sum(alpha[i] * (one_hot[i] @ a) for i in range(L))
z = sum(alpha[i] * a[i] for i in range(L))
assert_close(z, expectation)
assert_close(z, look.z[0])

# %% [markdown]
# ### Why it learns where to look
# <!-- index: claim: soft attention is differentiable | it trains end to end by back-propagation, with nobody saying where to look | satlib.attention.SoftAttention | tests/test_soft_attention.py::test_gradient_pulls_the_context_towards_a_place -->
#
# A weighted mean lies inside the hull of what it is a mean of: at one of its corners when the map is sharp, in the middle when it is even. And it moves smoothly. From equation 5,
# $\partial \alpha_i / \partial e_k = \alpha_i (\delta_{ik} - \alpha_k)$, and with that
#
# $$\frac{\partial \hat z}{\partial e_k} = \sum_i \alpha_i (\delta_{ik} - \alpha_k)\, a_i = \alpha_k\, (a_k - \hat z).$$
#
# Raising the energy of a place pulls the context towards that place's vector, the more the more weight it has already. Put the loss $\ell$ behind it: $\partial \ell / \partial e_k = \alpha_k\,
# (a_k - \hat z) \cdot \partial \ell / \partial \hat z$. If the next word would have been likelier with a context more like $a_k$, the energy of place $k$ goes up. That is
# all the teaching that attention gets: words, and no places.

# %%
jacobian = torch.autograd.functional.jacobian(lambda e: torch.softmax(e, 0) @ a, e)  # (D, L)
assert_close(jacobian, torch.stack([alpha[k] * (a[k] - z) for k in range(L)], 1))

corners = torch.tensor([[-1.0, -0.7], [1.1, -0.9], [1.5, 0.5], [0.1, 1.3], [-1.3, 0.6], [0.2, 0.1]])  # L = 6, D = 2
answers = torch.tensor([0.1, -0.5, 0.9, 0.3, -0.3, 0.5])
path = torch.stack([torch.softmax(scale * answers, 0) @ corners for scale in np.linspace(0, 25, 200)])
weights = torch.softmax(2 * answers, 0)
here = weights @ corners
hull = corners[[0, 1, 2, 3, 4, 0]]

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.4), sharey=True, layout="constrained")
for axis in (left, right):
    axis.fill(*hull.T, color="0.93")
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
for k in range(6):
    pull = 1.8 * weights[k] * (corners[k] - here)
    right.annotate("", (here + pull).tolist(), here.tolist(), arrowprops={"color": RED, "width": 1, "headwidth": 6})
right.set_title(r"the pull of each energy: $\alpha_k (a_k - \hat z)$")
plt.show()

# %% [markdown]
# On the right, place 3 pulls hardest: it has the most weight, and the context is not there yet. Places 1 and 2 are farther off, but what nobody looks at cannot pull: an energy that has lost is slow to come back.

# %% [markdown]
# ## How much of it to let in: the gate
# <!-- index: section 4.2.1 | gate beta_t = sigma(f_beta(h_{t-1})), a scalar on the context | satlib.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
#
# > **Paper, section 4.2.1.** From the previous state the model also predicts a scalar gate, $\beta_t = \sigma(f_\beta(h_{t-1}))$, and the context becomes
# > $\phi(\{a_i\}, \{\alpha_i\}) = \beta_t \sum_i \alpha_i a_i$. It lets the decoder weigh, at each word, the language against the image.
#
# Weights that sum to one cannot say "nothing here helps": attention must look somewhere. The gate can say so. In the official code, and here, the gated vector is what *both* the LSTM
# and the output layer receive.

# %%
beta = torch.sigmoid(tiny.gate.weight[0] @ h + tiny.gate.bias[0])
z = beta * z

# %% [markdown]
# ## The state moves on: an LSTM
# <!-- index: equation 1 | input, forget and output gates and the candidate, from E y_{t-1}, h_{t-1} and z_t | satlib.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
# <!-- index: equation 2 | memory c_t = f_t c_{t-1} + i_t g_t | satlib.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
# <!-- index: equation 3 | state h_t = o_t tanh(c_t) | satlib.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
#
# > **Paper, equations 1 to 3.** With $E y_{t-1}$ the embedding of the word before,
# > $$\begin{pmatrix} i_t \\ f_t \\ o_t \\ g_t \end{pmatrix} = \begin{pmatrix} \sigma \\ \sigma \\ \sigma \\ \tanh \end{pmatrix} T \begin{pmatrix} E y_{t-1} \\ h_{t-1} \\ \hat z_t \end{pmatrix}, \qquad
# > c_t = f_t \odot c_{t-1} + i_t \odot g_t, \qquad h_t = o_t \odot \tanh(c_t).$$
#
# Written out, gate by gate, as an earlier version of the paper has it: $i_t = \sigma(W_i E y_{t-1} + U_i h_{t-1} + Z_i \hat z_t + b_i)$, and so on for $f$, $o$, $g$. Three sources for every gate: the
# word, the state, the image. satlib keeps the four $W$ in one matrix, the four $U$, and the four $Z$, in the order i, f, g, o.

# %%
word = torch.tensor(3)  # y_{t-1}
Ey = tiny.embedding.weight[word]
W_i, W_f, W_g, W_o = tiny.gates_word.weight.split(n)
b_i, b_f, b_g, b_o = tiny.gates_word.bias.split(n)
U_i, U_f, U_g, U_o = tiny.gates_state.weight.split(n)
Z_i, Z_f, Z_g, Z_o = tiny.gates_context.weight.split(n)

i_t = torch.sigmoid(W_i @ Ey + U_i @ h + Z_i @ z + b_i)
f_t = torch.sigmoid(W_f @ Ey + U_f @ h + Z_f @ z + b_f)
o_t = torch.sigmoid(W_o @ Ey + U_o @ h + Z_o @ z + b_o)
g_t = torch.tanh(W_g @ Ey + U_g @ h + Z_g @ z + b_g)
c_t = f_t * c + i_t * g_t
h_t = o_t * torch.tanh(c_t)

# %% [markdown]
# Two judges. `Decoder.step` does all of the above at once, from the look to the new state. And PyTorch's own `LSTMCell` is the same LSTM if we tell it that its input is the pair
# $[E y_{t-1}; \hat z_t]$: attention is a way to choose the input of an ordinary LSTM.

# %%
view = tiny.view(a[None])
step = tiny.step(view, state, tiny.gates_word(tiny.embed(word[None])))
for mine, satlibs in ((h_t, step.state.h), (c_t, step.state.c), (z, step.z), (alpha, step.alpha), (beta, step.beta)):
    assert_close(mine, satlibs[0])

cell = nn.LSTMCell(m + D, n).double()
merged = torch.cat([tiny.gates_word.weight, tiny.gates_context.weight], 1)
biases = {"bias_ih": tiny.gates_word.bias, "bias_hh": torch.zeros(4 * n)}
cell.load_state_dict({"weight_ih": merged, "weight_hh": tiny.gates_state.weight, **biases})
h_torch, c_torch = cell(torch.cat([Ey, z])[None], (h[None], c[None]))
assert_close(h_t, h_torch[0])
assert_close(c_t, c_torch[0])

# %% [markdown]
# What the three gates are for is seen best on one unit whose gates we set by hand. It shall note something at word 3, keep it, let it be read at words 6 and 7, and drop it at word 9.

# %%
words_on = np.arange(1, 13)
write, candidate = np.where(words_on == 3, 0.95, 0.02), np.where(words_on == 3, 0.9, 0.3)
keep, read = np.where(words_on == 9, 0.05, 0.98), np.where((words_on == 6) | (words_on == 7), 0.95, 0.05)
memory, said = [0.0], []
for i_, f_, g_, o_ in zip(write, keep, candidate, read, strict=True):
    memory.append(f_ * memory[-1] + i_ * g_)  # equation 2
    said.append(o_ * np.tanh(memory[-1]))  # equation 3
assert min(memory[3:9]) > 0.8  # kept from word 3 to word 8
assert memory[9] < 0.1

figure, (above, below) = plt.subplots(2, 1, figsize=(7.6, 3.4), sharex=True, layout="constrained")
for values, name, colour, style in (
    (write, "input $i$", BLUE, "-o"),
    (keep, "forget $f$ (1: keep)", RED, "--s"),
    (read, "output $o$", GREEN, ":D"),
):
    above.plot(words_on, values, style, color=colour, markersize=5, label=name)
below.plot(words_on, memory[1:], "-o", color=PINK, markersize=5, label="memory $c_t$")
below.plot(words_on, said, "--s", color="0.2", markersize=5, label="state $h_t$")
below.set(xlabel="word t", xticks=words_on)
for axis in (above, below):
    axis.set_ylim(-0.05, 1.05)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
plt.show()

# %% [markdown]
# The memory is there from word 3 to word 8, but the state, and with it the energies, the gate $\beta$ and the output, sees it at words 6 and 7 only. A captioner needs exactly that: having said "a red
# star", it has to remember that the star is done, and say nothing of it until the other object is named too.

# %% [markdown]
# ## A word comes out
# <!-- index: equation 7 | p(y_t) ~ exp(L_o(E y_{t-1} + L_h h_t + L_z z_t)) | satlib.decoder.Decoder.logits | tests/test_decoder.py::test_sequence_equals_steps_one_by_one -->
#
# > **Paper, equation 7.** The next word's probability, from the word before, the new state and the context:
# > $$p(y_t | a, y_1, \dots, y_{t-1}) \propto \exp(L_o(E y_{t-1} + L_h h_t + L_z \hat z_t)).$$
#
# $\hat z_t$ comes in twice: through the LSTM into $h_t$, and directly. The direct way is short: what is seen at the lit places can raise a word's logit at once.

# %%
L_o, L_h, L_z = tiny.output, tiny.output_state, tiny.output_context
logits = L_o.weight @ (Ey + L_h.weight @ h_t + L_h.bias + L_z.weight @ z) + L_o.bias
assert_close(logits, tiny.logits(Ey[None], step.state.h, step.z)[0])
p = logits.exp() / logits.exp().sum()
assert_close(p.log(), torch.log_softmax(tiny.logits(Ey[None], step.state.h, step.z)[0], 0))

# %% [markdown]
# From here on it goes round: the new state asks the places again. A caption is this loop, from $h_0$ and a zero embedding (there is no start word) to the end mark. `Decoder.forward` is the loop with
# the true words fed in, *teacher forcing*; it takes the vocabulary layer out of the loop and does it once for all words.

# %%
caption = torch.tensor([[3, 1, 5, 0]])  # (1, C): the end mark is word 0
state, loop = tiny.initial_state(a[None]), []
for previous in (-1, *caption[0, :-1].tolist()):  # -1: before the first word
    embedded = tiny.embed(torch.tensor([previous]))
    state, z_t, alpha_t, beta_t, _ = tiny.step(view, state, tiny.gates_word(embedded))
    loop.append((tiny.logits(embedded, state.h, z_t), alpha_t, beta_t))
output = tiny(a[None], caption)
for mine, satlibs in zip(zip(*loop, strict=True), (output.logits, output.alphas, output.betas), strict=True):
    assert_close(torch.stack(mine, 1), satlibs)

# %% [markdown]
# ## Training, with nobody saying where
# <!-- index: claim: the attention network is trained together with encoder and decoder | the error of the words reaches every part | satlib.training.train | tests/test_decoder.py::test_every_weight_learns -->
#
# Now with images: drawn scenes, each with two objects among clutter. Their captions say what the objects are and how the one lies to the other. No caption
# says where in the picture anything is, in pixels or places. What is minimised is
#
# $$-\log p(y|a) = -\sum_{t=1}^C \log p(y_t \,|\, a, y_1, \dots, y_{t-1}),$$
#
# the sum of the surprises at the true words. As in the paper, the encoder has been trained before: it is that of the scenes model that comes with satlib, 7 × 7 places of 128 dimensions. The decoder and its attention begin with
# random weights. First a look at the error: one batch, one backward pass through decoder and encoder, and the length of the gradient at each part, relative to the length of that part's weights.

# %%
computer = torch.device("cuda" if torch.cuda.is_available() else "cpu")
large = computer.type == "cuda"  # with a GPU this notebook trains on all scenes
small_size = ("data.train_images=240", "training.epochs=3", "training.warmup=20", "training.learning_rate=4e-3")
chosen = recipe.load("scenes-soft", () if large else small_size)
data = scenes.load(chosen.data.train_images, 40, 60)
reader = Pixels(data)

trained = Captioner.load(shipped.model("scenes-soft"))
vocabulary = Vocabulary.from_captions(caption for example in data.split("train") for caption in example.references)
torch.manual_seed(0)
fresh = Captioner(chosen, vocabulary, encoders.create("small", pretrained=False)).train()
fresh.encoder.load_state_dict(trained.encoder.state_dict())

batch = SameLengthBatches(pairs(data.split("train")[:60], vocabulary, 40), 16).epoch(0)[0]
logits = fresh.decoder(fresh.annotations(reader.read(batch.image_ids)), batch.captions).logits
negative_log_likelihood(logits, batch.captions).mean().backward()

energy, decoder = fresh.decoder.attention.energy, fresh.decoder
convolutions = [layer.weight for layer in fresh.encoder.body if isinstance(layer, nn.Conv2d)]
parts = {
    "encoder, first layer": convolutions[0],
    "encoder, last layer": convolutions[-1],
    "attention, $W_a$": energy.annotation.weight,
    "attention, $W_h$": energy.state.weight,
    "attention, $v$": energy.energy.weight,
    "gate": decoder.gate.weight,
    "initial state": decoder.initial_h[3].weight,
    "LSTM, $U$": decoder.gates_state.weight,
    "LSTM, $Z$": decoder.gates_context.weight,
    "words, $E$": decoder.embedding.weight,
    "output, $L_o$": decoder.output.weight,
}
reach = {name: (weight.grad.norm() / weight.norm()).item() for name, weight in parts.items()}
assert min(reach.values()) > 0
assert reach["attention, $W_h$"] < 0.3 * min(reach["attention, $W_a$"], reach["attention, $v$"])

figure, axis = plt.subplots(figsize=(6.4, 3), layout="constrained")
for number, (name, value) in enumerate(reach.items()):
    colour, marker = (GREEN, "s") if "encoder" in name else (RED, "D") if "attention" in name else (BLUE, "o")
    axis.plot(value, number, marker, color=colour, markersize=8)
axis.set_yticks(range(len(reach)), reach)
axis.invert_yaxis()
axis.grid(axis="x", color="0.9")
axis.set(xscale="log", xlabel="length of the gradient / length of the weights")
plt.show()

# %% [markdown]
# Every part hears of the error, the encoder's first layer included: words alone can teach all of them (`make demo` trains everything from random weights). Little of it comes to $W_h$, the way by
# which words steer the looking: its gradient is multiplied by a state that is still small. So expect maps that depend on the picture first, and on the word later.
#
# Now the training itself: satlib's, with the recipe `scenes-soft` made much smaller, 240 scenes in place of 3,300, and the encoder left as it is, as in the paper. So its annotation vectors are computed once, and the decoder learns in seconds.
#
# **What do you expect to see?** The loss falls. The maps start even, with an entropy of $\ln 49 = 3.89$, and nobody asks for sharp ones.

# %%
log = []


def report(record):
    log.append(record)
    words, spread = (
        f"train {record['train_nll']:.2f}, dev {record['dev_nll']:.2f} nats per word",
        record["train_entropy"],
    )
    print(f"epoch {record['epoch']}: {words}, entropy of the maps {spread:.2f}")


with tempfile.TemporaryDirectory() as folder:
    fresh.save(Path(folder) / "start.safetensors")
    begin = {"start": Path(folder) / "start.safetensors", "device": computer, "progress": False, "on_epoch": report}
    vectors = Vectors(fresh.eval(), reader, [example.image_id for example in data.examples])
    young = training.train(chosen, data, vectors, Path(folder) / "run", **begin).to("cpu")

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(9.6, 2.7), layout="constrained")
epochs = [record["epoch"] for record in log]
left.plot(epochs, [record["train_nll"] for record in log], "--s", color=SKY, label="training, mean of the epoch")
left.plot(epochs, [record["dev_nll"] for record in log], "-o", color=BLUE, label="dev scenes, after it")
left.axhline(np.log(len(vocabulary)), color="0.4", linestyle=":", label=f"knowing nothing: ln {len(vocabulary)}")
left.set(title="NLL, nats per word", xlabel="epoch", xticks=epochs, ylim=0)
middle.plot(epochs, [record["train_entropy"] for record in log], "-D", color=RED, label="mean of the epoch")
middle.axhline(np.log(49), color="0.4", linestyle=":", label="even maps: ln 49")
middle.set(title="entropy of the maps, nats", xlabel="epoch", xticks=epochs, ylim=(0, 4.2))
right.plot(epochs, [record["train_movement"] for record in log], "-^", color=GREEN)
right.set(title="movement from word to word", xlabel="epoch", xticks=epochs, ylim=(0, 0.4))
left.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, 0.92))
middle.legend(frameon=False, fontsize=8, loc="lower left")
plt.show()

assert log[-1]["dev_nll"] < log[0]["dev_nll"] < np.log(len(vocabulary))
assert log[-1]["train_entropy"] < log[0]["train_entropy"] - 0.1

# %% [markdown]
# The maps sharpen, because that helps to predict words. And as $W_h$ let us expect, they hardly move at first: the decoder finds places that are worth looking at, the same for all words, and only then learns to go from one to the other.

# %% [markdown]
# ## Reading the maps
# <!-- index: claim: weights can be looked at, and agree with what people would look at | maps of generated words lie on what the words name | satlib.ground.look_up | tests/test_ground.py::TestScenes::test_maps_that_look_at_what_is_named -->
#
# A few seconds are a short education. The model that comes with satlib had five minutes and 3,300 scenes. Here is one scene that neither has seen, captioned by both.
#
# How to read such a figure: under each word the picture keeps its own colours where the weight was high *when that word was chosen*, and is dimmed elsewhere. A map of 7 × 7 weights is enlarged to the picture, smoothed with a Gaussian as in the
# paper's figures, and scaled to its own maximum. A blurred map lights everything. The thin line encloses what has at least half of the maximum.

# %%
example = data.split("test")[11]
photo = data.photo(example)
captions = {name: each.caption([photo])[0] for name, each in (("seconds", young), ("minutes", trained))}
print("a person:", example.references[0])
figure = plots.compare_figure(photo, [(name, each.words[:10], each.alphas[:10]) for name, each in captions.items()])
figure.set_size_inches(0.75 * figure.get_size_inches())
display(figure)

# %% [markdown]
# What do the two have in common? Both begin with something big and purple. But the young one calls it a square, misses its dots, and then says it all again, although the second object is blue: its map has hardly moved
# in between, and lies between the two objects. The other's map goes from the object on the left to the one on the right, as its words do.
#
# One picture convinces nobody. For 60 scenes, every word that names an object or says something true of it: is the peak of its map on that object? Beside it stand two
# answers that cost nothing: a random place, and the mean of the caption's own maps, which does not depend on the word.

# %%
tests = data.split("test")
generated = evaluation.generate(trained, reader, tests, beam=1, progress=False)
looked = ground.summary(ground.look_up(tests, generated))
right = sum(scenes.exact_match(generated[each.image_id].text, scenes.scene(each.image_id)) for each in tests)
print(f"{right} of {len(tests)} captions wholly right")
assert looked["all"]["pointing"] > looked["all"]["pointing_still"] + 15
assert looked["all"]["pointing"] > 3 * looked["all"]["pointing_chance"]
plots.ground_figure(looked)

# %% [markdown]
# Dots, the maps, lie far to the right of chance and of the map that ignores the word: nobody taught this model where a star is, and for three words in four the peak is on the right object. The *mass* is lower. A
# place of this encoder sees far more than its own cell of the grid, so that a neighbour of the star's cell can tell the decoder about the star. Maps point; they do not outline.

# %% [markdown]
# ## What a blurred map and a sharp one do
#
# Is the sharpness that training found the right one? We can change it without touching anything else: divide all energies by a temperature $T$ before the softmax. Below 1 every map is sharper than the model
# means it, above 1 more blurred; and we ask how likely the true captions still are.
#
# **What do you expect to see** at the two ends? On the right every look returns the mean of all places. On the left, one place only.

# %%
few = tests[:30]
with torch.inference_mode():
    a_few = trained.annotations(reader.read([each.image_id for each in few]))
row = {each.image_id: number for number, each in enumerate(few)}
batches = SameLengthBatches(pairs(few, trained.vocabulary, 40), 150).epoch(0)
temperatures, nll = (0.01, 0.1, 0.3, 1, 2, 4, 10, 100), []
with torch.inference_mode():
    for temperature in temperatures:
        twin = steered(trained.decoder, temperature)
        losses = [
            negative_log_likelihood(
                twin(a_few[[row[image_id] for image_id in each.image_ids]], each.captions).logits, each.captions
            )
            for each in batches
        ]
        nll.append((torch.cat(losses).sum() / sum(each.captions.numel() for each in batches)).item())
at = dict(zip(temperatures, nll, strict=True))
assert at[100] > at[1] + 0.4  # blurred: nearly all that places had to say is lost
assert at[1] + 0.01 < at[0.01] < at[1] + 0.3  # sharp: a little is lost

said = {
    T: explorer.read(trained, explorer.annotate(trained, photo), captions["minutes"].words, T) for T in (0.1, 1, 4, 100)
}
index = captions["minutes"].words.index(scenes.scene(example.image_id).objects[0].colour)
figure = plots.NotebookFigure(figsize=(8, 4.2), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=(1.25, 1))
axis = above.subplots()
axis.plot(temperatures, nll, "-o", color=BLUE)
axis.set(xscale="log", xlabel="temperature T", ylabel="NLL, nats per word", ylim=(0, None))
axis.axvline(1, color="0.4", linestyle=":")
axis.annotate("as trained", (1, 0.1), (6, 0), textcoords="offset points")
for axis, (T, reading) in zip(below.subplots(1, 4), said.items(), strict=True):
    axis.imshow(overlay.lit(photo, reading.alphas[index : index + 1], 112)[0])
    axis.set_axis_off()
    axis.set_title(f"T = {T}: p({reading.words[index]}) = {reading.probabilities[index]:.2f}", fontsize=9)
display(figure)

# %% [markdown]
# Sharpening costs little: for most words one place tells nearly all. Blurring costs nearly everything that attention gave; with the mean of all places the decoder no longer knows which colour goes with which shape. A sharp map
# is no proof of a good one, though: it says that the decoder relies on few places, not that they are the right ones. For that, ask where the peak is, as above.
#
# A blurred map has an innocent reading too. At "is" or "the" there is nothing to be seen, and then the gate should be closing.

# %% [markdown]
# ## The gate, word by word
# <!-- index: claim: the gate is larger where an object is described | measured by kind of word, on scenes | satlib.decoder.Decoder.step | tests/test_decoder.py::test_step_equals_lstm_cell_with_merged_weights -->
#
# > **Paper, section 4.2.1.** The gating variable, as far as the authors could see from examples, is larger when the decoder describes an object in the image.
#
# We can count. All words of the 60 captions, by what they say.

# %%
betas, spreads = {}, {}
for each in tests:
    made = generated[each.image_id]
    kind_of = {k: said[0] for phrase in scenes.grammar.phrases(made.words) for k, said in phrase.attributes.items()}
    for k, (beta_k, map_) in enumerate(zip(made.betas.tolist(), made.alphas.flatten(1), strict=True)):
        kind = kind_of.get(k, "other words" if k < len(made.words) else "(end)")
        betas.setdefault(kind, []).append(beta_k)
        spreads.setdefault(kind, []).append(entropy(map_).item())
kinds = sorted(betas, key=lambda kind: np.mean(betas[kind]))

figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 2.8), sharey=True, layout="constrained")
for axis, values, colour, marker in ((left, betas, BLUE, "o"), (right, spreads, RED, "D")):
    for height, kind in enumerate(kinds):
        axis.plot(np.quantile(values[kind], (0.1, 0.9)), (height, height), color=colour, linewidth=3, alpha=0.35)
        axis.plot(np.mean(values[kind]), height, marker, color=colour, markersize=8)
left.set_yticks(range(len(kinds)), [f"{kind} ({len(betas[kind])})" for kind in kinds])
left.set(title=r"gate $\beta$: mean, and where 80 % lie", xlim=(0.4, 1.02))
right.set(title="entropy of the map, nats", xlim=(-0.1, 4))
plt.show()

naming = np.mean(betas["colour"] + betas["shape"])
assert naming > np.mean(betas["other words"]) + 0.05
assert naming > np.mean(betas["size"]) + 0.05

# %% [markdown]
# On scenes the claim holds: at colours and shapes the gate is open, and the maps are sharpest. It is lower for words that follow from the words before ("is", "with", "a"). At sizes it is lowest of all, although
# a size is as much a thing to be seen as a colour is: the claim is about some of the words that describe, not about all.
#
# Two cautions. A gate of 0.6 multiplies a vector that the next layer can multiply back: only differences between words mean something, and only in one model. And it is an observation, not
# a law: the captioner for photographs below keeps its gate between 0.7 and 1 throughout, with no clear pattern.

# %% [markdown]
# ## Where it looks next depends on the words so far
# <!-- index: claim: where it looks next depends on the words so far | forced words move the maps, from the second word after them on | satlib.course.explorer.read | tests/test_soft_attention.py::test_a_word_moves_the_maps_from_the_second_after_it -->
#
# > **Paper, section 3.1.2.** The hidden state varies as the output goes on: *where* the network looks next depends on the sequence of words already generated.
#
# Which words exactly? Follow a word through the equations. $\alpha_t$ is computed from $h_{t-1}$, and $h_{t-1}$ was computed from $E y_{t-2}$. So the map for word $t$ has read $y_1$ to
# $y_{t-2}$: *not the word just said*. That one enters beside $\hat z_t$, in equation 1, when the looking is done. A word moves the maps from the second after it on. On the tiny decoder, exactly:

# %%
one, other = torch.tensor([[3, 1, 5, 2, 4, 0]]), torch.tensor([[3, 6, 5, 2, 4, 0]])  # the second word differs
moved = (tiny(a[None], one).alphas - tiny(a[None], other).alphas).abs().sum(2)[0]
assert (moved[:3] == 0).all()  # the maps of words 1, 2 and 3
assert (moved[3:] > 1e-3).all()  # and of 4, 5, 6

# %% [markdown]
# And how far does a word move the eyes of a trained model? We force a word, and let everything else be as it was. Two kinds of words, in scenes where one object is above the other:
#
# - the first word, "above" or "below". *Above a star there is ...* begins with the lower object, *below a star ...* with the upper one;
# - a colour: after "a big" or "a small" we force the colour of the one or of the other object.
#
# **What do you expect to see?** Which of the two changes where to look next?

# %%
standing = [each for each in tests if scenes.scene(each.image_id).relation in ("above", "below")]
about = [scenes.scene(each.image_id) for each in standing]
with torch.inference_mode():
    a_standing = trained.annotations(reader.read([each.image_id for each in standing]))


def look_after(beginnings):
    """The map of the second word after each beginning's last one: (B, L)."""
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
distance = {}  # total variation: 0, the same map; 1, no place in common
for pair in (("above", "below"), ("one colour", "the other colour")):
    assert torch.equal(just_after[pair[0]], just_after[pair[1]])  # the map of the word that follows at once: untouched
    distance[pair] = (after[pair[0]] - after[pair[1]]).abs().sum(1) / 2

hits = np.zeros((2, 2))  # peak of the map on the (upper, lower) object, after (above, below)
for number, scene in enumerate(about):
    masks = sorted(zip(scene.objects, scene.masks, strict=True), key=lambda each: each[0].centre[1])
    for place_of, (_, mask) in enumerate(masks):
        target = [ground.Target(0, "object", mask)]
        for word_of, word in enumerate(("above", "below")):
            seen = ground.Caption([word], 0.0, after[word][number].view(1, 7, 7), torch.ones(1))
            hits[word_of, place_of] += ground.measure(seen, target)[0].pointing / len(about)

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

relation, colour = distance.values()
assert relation.mean() > 0.5
assert colour.mean() < 0.1
assert hits[0, 1] > hits[0, 0] + 0.3  # after "above": the lower one
assert hits[1, 0] > hits[1, 1] + 0.3

# %% [markdown]
# One word at the beginning, and the eyes go to the other end of the picture. A wrong colour moves them hardly at all: whatever colour was said, the next word is about the same object. So "depends on the words so far" is true, and can be
# put more precisely: on what these words leave to be said.
#
# Here is one such scene, finished by the model itself after each of the two words.

# %%
pick = int(relation.argmax())
photo = data.photo(standing[pick])
begun = {word: explorer.read(trained, a_standing[pick], [word]) for word in ("above", "below")}
for word, reading in begun.items():
    right = scenes.exact_match(reading.words, about[pick])
    print(f"{word}: {' '.join(reading.words)} ({'right' if right else 'not wholly right'})")
plots.compare_figure(photo, [(f"{word} ...", each.words[:5], each.alphas[:5]) for word, each in begun.items()])

# %% [markdown]
# ## A photograph
#
# The captioner for photographs that comes with satlib reads EfficientNet-Lite0 and -Lite2 side by side, $9 \times 9 \times 2560$. It was trained on the 6,000 photographs of Flickr8k,
# at the end with boxes for what the phrases name. Below stands what it says
# of one by itself, and what when its caption is made to begin otherwise. With Flickr8k on your disk the photograph is one of its test split; else it is one that scikit-image carries, which is farther from what the
# model has seen.

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
assert (moved[:2] == 0).all()  # the first two maps have not read the first word
assert moved[2:].max() > 0.05
print("by itself:", " ".join(by_itself.words))
print("forced:   ", " ".join(forced.words))
print("the map moves by", " ".join(f"{each:.2f}" for each in moved))
plots.compare_figure(
    photo, [(name, each.words[:5], each.alphas[:5]) for name, each in (("by itself", by_itself), ("forced", forced))]
)

# %% [markdown]
# The maps are broader than on scenes, and move less: by 0.21 from word to word where those of scenes move by 0.40, says `satlib table`. A photograph's caption can be guessed from the mean of its places far better than a scene's can, so there is less to gain from
# looking. Read such maps with care. They tell where weight was, not why a word was chosen; whether moving the weight would have changed the word is a question that you have now learnt to ask.

# %% [markdown]
# ## Try it
#
# - **A mistake to make on purpose:** in the cell of the energies, give $f_{att}$ the state $h_t$ in place of $h_{t-1}$. To compute $h_t$ you need $\hat z_t$, for which you need $\alpha_t$: the circle is why equation 4 has $t - 1$.
# - **Another one:** leave out the softmax and use the energies themselves as weights. Which of the assertions on $\hat z$ fail? Can the context leave the hull?
# - Add `"decoder.attention=none"` to `small_size` (and leave out what the gradients say of $W_a$, $W_h$ and $v$, which it has not). How far does the dev NLL fall, and why does the entropy stay at $\ln 49$?
# - The same with `"decoder.energy=general"`. In the first epoch, are its maps sharper or more blurred than those of the perceptron? Think of what the landscapes said about long vectors.
# - Close the gate: put `with torch.no_grad(): trained.decoder.gate.bias.fill_(-20)` before the cell of the temperatures. What does a decoder say that must not see the context? It still knows $h_0$.
# - Force a wrong *shape* with `explorer.read(trained, a_standing[0], ["a", "big", "star"])`. Does the model correct itself later, or go on as if it were true?

# %% [markdown]
# ## What to remember
#
# - Before each word: energies from the state and each place on its own (4), a softmax (5), a weighted mean (6, 13), a gate; then an ordinary LSTM step (1 to 3) and a word (7).
# - $\partial \hat z / \partial e_k = \alpha_k (a_k - \hat z)$: a place gains weight when a context more like it would have made the true word likelier. That is how looking is learnt from words alone.
# - The scale of the energies decides between a blurred map (the mean of everything) and a sharp one (one place). Training finds it; a raw dot product of long vectors does not leave it the choice.
# - The map for a word has read all words but the last one. It moves where words decide what is to be said next, and not with every word.
# - A map shows where the weight was. Whether the peak is on the named thing has to be counted; whether it mattered has to be tried.

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
