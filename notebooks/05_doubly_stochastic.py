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
# # 5. Doubly stochastic attention, and what soft attention approximates
#
# Two things that the paper says of soft attention in half a page each: a penalty that asks the decoder to look everywhere in the course of a caption, and a reason why weighing places is nearly the same as
# averaging over random looks. Both turn out to be more precise, and in part other, than they sound.
#
# **You will be able to**
#
# - compute the penalty of equation 14, and say what it asks when a caption has fewer words than the image has places;
# - translate a $\lambda$ from one implementation to another, between which "$\lambda = 1$" differs by a factor of two hundred;
# - train with and without it, and measure what it does to coverage, to the maps and to the captions;
# - derive the normalised weighted geometric mean of section 4.2, check it to the last digit, and measure how far soft attention is from the exact marginal.
#
# **Minutes**: 35 to read, 0.8 to run on two CPU cores. **Memory**: 0.9 GB. **Needs**: notebook 04; nothing to download.

# %%
import copy
import math

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from satlib import estimators, overlay, shipped
from satlib.batching import Batch, SameLengthBatches, pairs
from satlib.captioner import Captioner
from satlib.course import explorer, marginal
from satlib.course.steering import steered
from satlib.course.vectors import Vectors
from satlib.datasets import scenes
from satlib.decoder import Decoder, DecoderConfig, View
from satlib.features import Pixels
from satlib.objectives import doubly_stochastic_penalty, entropy, movement, negative_log_likelihood, word_losses
from satlib.text import Vocabulary

BLUE, RED, GREEN, ORANGE, SKY, PINK = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
plt.rcParams |= {"figure.dpi": 85, "axes.spines.top": False, "axes.spines.right": False, "font.size": 10}

# %% [markdown]
# ## Two sums
#
# The maps of a caption are a table: a row for each word, a column for each place. Every row sums to one, because a softmax made it. What do the columns sum to? $m_i = \sum_t \alpha_{ti}$ is all the attention
# that place $i$ gets while the caption is said. We call these sums the *coverage*.
#
# Here is the table of a caption by the scenes model of notebook 04, which was trained without any penalty.
#
# **What do you expect to see** in the columns? The scene has two objects, and much that nobody mentions.

# %%
trained = Captioner.load(shipped.model("scenes-soft"))
photo = scenes.scene("test-000011").photo()
reading = explorer.read(trained, explorer.annotate(trained, photo))
table = reading.alphas.flatten(1)  # (C, L)
C, L = table.shape
coverage = table.sum(0)
assert_close(table.sum(1), torch.ones(C))
assert_close(coverage.sum(), torch.tensor(float(C)))  # whatever the columns are, their sum is C

figure = plt.figure(figsize=(9.2, 4), layout="constrained")
grid = figure.add_gridspec(2, 2, width_ratios=(2.6, 1), height_ratios=(1, 2.6))
top, main = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
top.bar(range(1, L + 1), coverage, color=BLUE, width=1)
top.axhline(1, color="0.3", linestyle=":")
top.set(title=f"columns: coverage m of {L} places (dotted: 1)", xticks=[], xlim=(0.5, L + 0.5))
main.imshow(table, cmap="cividis", aspect="auto", interpolation="nearest", extent=(0.5, L + 0.5, C - 0.5, -0.5))
main.set_yticks(range(C), reading.labels, fontsize=8)
main.set(xlabel="place", title="maps (light: large), each row sums to 1")
seen = figure.add_subplot(grid[:, 1])
seen.imshow(overlay.lit(photo, coverage.view(1, 7, 7), 168)[0])
seen.set_title("coverage (light: large)")
seen.set_axis_off()
plt.show()
print(f"{(coverage < 0.5 * C / L).sum()} of {L} places get less than half of an even share C/L = {C / L:.2f}")

# %% [markdown]
# ## The penalty
# <!-- index: equation 14 | L_d = -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2 | satlib.objectives.doubly_stochastic_penalty | tests/test_objectives.py::test_penalty_by_hand -->
# <!-- index: section 4.2.1 | doubly stochastic attention: sum_t alpha_ti near tau | satlib.objectives.doubly_stochastic_penalty | tests/test_objectives.py::test_penalty_at_uniform_attention -->
#
# > **Paper, section 4.2.1.** Over places the weights sum to one by construction; over words nothing holds them, so the decoder may ignore parts of the image. To discourage that, training asks for
# > $\sum_t \alpha_{ti} \approx \tau$, with $\tau \ge L/D$, and $\tau$ simply set to 1. The loss is
# > $$L_d = -\log p(y|a) + \lambda \sum_{i=1}^L \Big(1 - \sum_{t=1}^C \alpha_{ti}\Big)^2. \tag{14}$$
# > The authors saw better figures by it, and richer captions.
#
# A table whose rows *and* columns sum to one is called doubly stochastic; hence the name. By hand, for three words and two places:

# %%
alphas = torch.tensor([[0.5, 0.5], [0.25, 0.75], [1.0, 0.0]])  # (C, L)
by_hand = 0.0
for i in range(2):
    m_i = sum(alphas[t, i] for t in range(3))  # 1.75, then 1.25
    by_hand += (1 - m_i) ** 2
assert by_hand == 0.75**2 + 0.25**2
assert_close(by_hand, doubly_stochastic_penalty(alphas[None])[0])  # satlib's takes a batch: (B, C, L) -> (B,)

# %% [markdown]
# ## What it asks for
#
# Rows that sum to one leave the penalty less freedom than it seems to have. All entries of the table together sum to $C$, so $\sum_i m_i = C$ whatever the decoder does. Multiply the square out, with $\tau$ in place of 1:
#
# $$\sum_i (\tau - m_i)^2 = L\tau^2 - 2\tau C + \sum_i m_i^2 = \underbrace{L \big(\tau - \tfrac{C}{L}\big)^2}_{\text{a constant}} + \sum_i \big(m_i - \tfrac{C}{L}\big)^2 .$$
#
# Three things follow.
#
# 1. **It asks for evenness, not for ones.** The only part that can be changed is the distance of the coverage from the even share $C/L$. A caption of $C = 12$ words over $L = 196$ places cannot give each
#    place 1; the best it can do is $12/196$ each, and the penalty stays at $(L - C)^2/L$.
# 2. **$\tau$ does nothing.** It stands in the constant alone. $\tau = 1$, $\tau = L/D$ or $\tau = 0$ give the same gradient and train the same model.
# 3. **It asks words to look apart, and each word to look broadly.** $\sum_i m_i^2 = \sum_t \lVert \alpha_t \rVert^2 + \sum_{t \ne u} \alpha_t \cdot \alpha_u$: the first sum is large for sharp maps, the second for pairs of words
#    whose maps overlap.

# %%
torch.manual_seed(0)
e = torch.randn(14, 49).double().requires_grad_()  # energies of 14 words at 49 places
alphas = torch.softmax(e, 1)
m, share = alphas.sum(0), 14 / 49
penalty = doubly_stochastic_penalty(alphas[None])[0]

assert_close(penalty, 49 * (1 - share) ** 2 + (m - share).square().sum())  # 1
gradients = [
    torch.autograd.grad((tau - alphas.sum(0)).square().sum(), e, retain_graph=True)[0] for tau in (0, 49 / 128, 1)
]
assert_close(gradients[0], gradients[1])  # 2
assert_close(gradients[0], gradients[2])
overlaps = alphas @ alphas.T  # (C, C): alpha_t . alpha_u
assert_close(m.square().sum(), overlaps.diagonal().sum() + (overlaps.sum() - overlaps.diagonal().sum()))  # 3

# %% [markdown]
# ### Let the maps do as they like
#
# What would the maps be if nothing but the penalty shaped them? We make the energies themselves the parameters, with no decoder and no words behind them, and go downhill. Three cases: fewer words than
# places, as many, and more. And two beginnings for the first: nearly even maps, and sharp ones.
#
# **What do you expect to see?** Does coverage become even? And do the maps have to?


# %%
def go_downhill(words, scale, places=49, steps=250):
    """Minimise the penalty over free energies: its course (steps,), and the maps (C, L) before and after."""
    generator = torch.Generator().manual_seed(1)
    e = (scale * torch.randn(words, places, generator=generator)).requires_grad_()
    before = torch.softmax(e, 1).detach()
    optimiser, course = torch.optim.Adam([e], 0.05), []
    for _ in range(steps):
        penalty = doubly_stochastic_penalty(torch.softmax(e, 1)[None])[0]
        optimiser.zero_grad()
        penalty.backward()
        optimiser.step()
        course.append(penalty.item())
    return course, before, torch.softmax(e, 1).detach()


cases = {"14 words, sharp": (14, 4), "14 words, nearly even": (14, 0.3), "49 words": (49, 4), "70 words": (70, 4)}
found = {name: go_downhill(*case) for name, case in cases.items()}
for name, (course, _, after) in found.items():
    words = cases[name][0]
    assert abs(course[-1] - (49 - words) ** 2 / 49) < 0.05  # the floor: all that can be had
    assert (after.sum(0) - words / 49).abs().max() < 0.05  # coverage is even
_, before, after = found["14 words, sharp"]
assert entropy(after).mean() < math.log(49) - 0.5  # the maps are not

figure, axes = plt.subplots(1, 3, figsize=(9.6, 2.8), width_ratios=(1.25, 1, 1), layout="constrained")
for (name, (course, _, _)), colour, dash in zip(
    found.items(), (BLUE, SKY, RED, GREEN), ("-", "--", "-.", ":"), strict=True
):
    axes[0].plot(range(1, len(course) + 1), course, dash, color=colour, linewidth=2, label=name)
axes[0].set(xscale="log", yscale="symlog", xlabel="step", ylim=(-0.3, 300), title="penalty")
axes[0].legend(frameon=False, fontsize=8)
for axis, maps, title in ((axes[1], before, "14 sharp maps"), (axes[2], after, "after 250 steps")):
    axis.imshow(
        maps, cmap="cividis", aspect="auto", interpolation="nearest", vmin=0, vmax=0.5, extent=(0.5, 49.5, 14.5, 0.5)
    )
    axis.set(xlabel="place", ylabel="word", title=f"{title}, H = {entropy(maps).mean():.2f}")
plt.show()

# %% [markdown]
# 49 words over 49 places reach zero: the one case in which the table can be doubly stochastic. 14 words stop at $35^2/49 = 25$, 70 words at $21^2/49 = 9$; no $\lambda$ and no training takes them below. Coverage is even in all
# cases, but the maps need not be: where they began sharp, they have shared the places out among them, each word its own. So the penalty leaves two ways open, *look at everything at every word*, or *look at something
# else at each word*. Which of them a decoder takes depends on what is easier to learn.

# %% [markdown]
# ## Its scale
#
# How strong is $\lambda = 1$? Compare the two parts of $L_d$ for a model that knows nothing yet: even maps, and $1/K$ for every word. The penalty is $L (1 - C/L)^2$ and the cross-entropy $C \ln K$, so
#
# $$\frac{\text{penalty}}{\text{cross-entropy}} = \frac{(L - C)^2}{L\, C \ln K} .$$
#
# For VGG-19's $L = 196$, the paper's $K = 10{,}000$ and a caption of Flickr8k, which has about eleven words and the end mark:


# %%
def ratio(C, L=196, K=10_000):
    return (L - C) ** 2 / (L * C * math.log(K))


for C in (8, 10, 11.9, 14, 20):
    print(f"C = {C:4}: {ratio(C):.2f}")
assert round(ratio(11.9), 2) == 1.58

# %% [markdown]
# So at the beginning the penalty is the larger part of the paper's loss. By how much depends on who wrote the code: these forms of the two terms are all to be found in public re-implementations, each with its own "$\lambda$ = 1".


# %%
def word_mean(losses):
    return losses.mean()


def caption_sum(losses):
    return losses.sum(1).mean()


FORMS = {  # name: (cross-entropy of (B, C) losses, penalty of (B, C, L) maps)
    "equation 14 (satlib)": (caption_sum, lambda A: (1 - A.sum(1)).square().sum(1).mean()),
    "sum over places, mean over words": (word_mean, lambda A: (1 - A.sum(1)).square().sum(1).mean()),
    "mean over places, mean over words": (word_mean, lambda A: (1 - A.sum(1)).square().mean()),
    "official code: sum over the batch": (caption_sum, lambda A: (1 - A.sum(1)).square().sum(0).mean()),
    "16/196 in place of 1": (caption_sum, lambda A: (16 / 196 - A.sum(1)).square().sum(1).mean()),
    "summed over the wrong axis": (word_mean, lambda A: (1 - A.sum(2)).square().mean()),
}
B, C, L, K = 64, 12, 196, 10_000
even = torch.full((B, C, L), 1 / L, dtype=torch.double)
unknowing = torch.full((B, C), math.log(K), dtype=torch.double)
at_start = {name: (penalty(even) / cross_entropy(unknowing)).item() for name, (cross_entropy, penalty) in FORMS.items()}

torch.manual_seed(0)
e = torch.randn(B, C, L).double().requires_grad_()
losses = torch.rand(B, C).double().requires_grad_()


def pulls(form):
    """How hard a form pulls at the energies, for each unit of pull at the words."""
    cross_entropy, penalty = form
    by_penalty = torch.autograd.grad(penalty(torch.softmax(e, 2)), e)[0]
    by_words = torch.autograd.grad(cross_entropy(losses), losses)[0]
    return by_penalty / by_words[0, 0]


paper = pulls(FORMS["equation 14 (satlib)"])
same_as = {}  # the lambda of equation 14 that trains the same model as this form with its lambda = 1
for name, form in FORMS.items():
    same_as[name] = ((pulls(form) * paper).sum() / paper.square().sum()).item()
    assert_close(pulls(form), same_as[name] * paper, atol=1e-9, rtol=1e-6)  # a multiple of the paper's, at every energy

# %%
# NBVAL_CHECK_OUTPUT
print(f"{'lambda = 1, C = 12, L = 196, B = 64':36} {'penalty / CE':>12} {'lambda of eq. 14':>17}")
for name in FORMS:
    print(f"{name:36} {at_start[name]:12.3f} {abs(same_as[name]):17.3f}")

# %% [markdown]
# The first column is what one reads off a log at the beginning. It spans 0 to 19 and says nothing about the training: the maps are even, so the penalty is all constant, and its gradient is zero. The second column is what counts:
# the $\lambda$ of equation 14 that gives the same training. Derive one of them: with means over places and words, the penalty is divided by $L$ and the cross-entropy by $C$, so their relation is $C/L = 12/196 = 0.061$ of the paper's.
#
# - The first and the fifth form are *the same training*, whatever the first column says: aiming at 16/196 looks gentle, since its penalty starts near zero, but $\tau$ does nothing.
# - The official code's form grows with the batch; the forms that divide the cross-entropy by the number of words change with the length of the caption.
# - The last has no effect at all: over places, maps sum to one already. Nothing fails, and the log shows a penalty of 0. A check that is worth making in any code: *does the penalty change when the maps do?*

# %%
assert 1.5 < at_start["equation 14 (satlib)"] < 1.6
assert at_start["sum over places, mean over words"] > 18
assert abs(at_start["summed over the wrong axis"]) < 1e-20
assert_close(same_as["mean over places, mean over words"], C / L)
assert_close(same_as["sum over places, mean over words"], float(C))
assert_close(same_as["official code: sum over the batch"], B / L)
assert_close(same_as["16/196 in place of 1"], 1.0)

names = list(FORMS)[::-1]
figure, axis = plt.subplots(figsize=(8.4, 2.8), layout="constrained")
axis.plot(
    [max(at_start[name], 1e-3) for name in names],
    names,
    "o",
    color=BLUE,
    markersize=9,
    label="penalty / cross-entropy at the start",
)
axis.plot(
    [max(same_as[name], 1e-3) for name in names],
    names,
    "D",
    color=RED,
    fillstyle="none",
    markersize=9,
    label="λ of equation 14 that trains the same",
)
axis.set(xscale="log", xlim=(7e-4, 60))
axis.set_xticks((1e-3, 1e-2, 1e-1, 1, 10), ("0", "0.01", "0.1", "1", "10"))
axis.grid(axis="x", color="0.9")
axis.legend(loc="upper center", bbox_to_anchor=(0.4, -0.15), ncols=2, frameon=False)
plt.show()

# %% [markdown]
# ## With and without
# <!-- index: claim: the penalty makes attention cover the image | coverage, entropy, movement and NLL of trainings with lambda = 0, 0.1 and 1 | satlib.objectives.doubly_stochastic_penalty | tests/test_objectives.py::test_penalty_by_hand -->
#
# Three trainings that differ in $\lambda$ alone. So that each takes seconds, the encoder is the trained one of the scenes model, frozen; its annotation vectors are computed once. The decoders begin from the same random weights and see
# the same batches. The loss is equation 14, in one line.

# %%
large = torch.cuda.is_available()  # with a GPU: more scenes, more epochs
computer = torch.device("cuda" if large else "cpu")
data = scenes.load(2000 if large else 400, 0, 60)
vectors = Vectors(trained, Pixels(data), [example.image_id for example in data.examples])
vocabulary = Vocabulary.from_captions(caption for example in data.split("train") for caption in example.references)
batches = SameLengthBatches(pairs(data.split("train"), vocabulary, 40), 64)
tests = SameLengthBatches(pairs(data.split("test"), vocabulary, 40), 300).epoch(0)


def look(decoder, batch: Batch):
    return decoder(vectors.read(batch.image_ids).to(computer), batch.captions.to(computer))


def train(penalty_weight, seed=0, epochs=10 if large else 5, rate=5e-3):
    torch.manual_seed(seed)
    decoder = Decoder(
        DecoderConfig(embedding=48, hidden=64, attention_hidden=48, dropout=0.0), vectors.a.shape[2], len(vocabulary)
    ).to(computer)
    optimiser = torch.optim.Adam(decoder.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=epochs * len(batches), pct_start=0.15)
    for epoch in range(epochs):
        for batch in batches.epoch(epoch):
            output = look(decoder, batch)
            nll = negative_log_likelihood(output.logits, batch.captions.to(computer))
            loss = (nll + penalty_weight * doubly_stochastic_penalty(output.alphas)).mean()  # equation 14
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
            optimiser.step()
            schedule.step()
    return decoder.eval()


LAMBDAS = (0, 0.1, 1)
STYLES = {BLUE: "-", SKY: "--", ORANGE: "-.", GREEN: ":"}  # colour and dashes of each
decoders = {}
for weight in LAMBDAS:
    decoders[weight] = train(weight)
    print(f"lambda = {weight}: done")

# %% [markdown]
# Measured on the true captions of 60 scenes that no training has seen, teacher forced:
#
# - **places covered**, $1 / \sum_i (m_i / C)^2$: 1 if all attention goes to one place, 49 if it is even;
# - **places ignored**: the part of them with less than half of the even share;
# - entropy of the maps, their movement from word to word (total variation), and the NLL per word.
#
# **What do you expect to see?** Equation 14 asks for coverage. Which of the two ways will the decoder take, and what will it cost?


# %%
@torch.inference_mode()
def measured(decoder) -> dict[str, float]:
    sums: dict[str, float] = {}
    for batch in tests:
        output = look(decoder, batch)
        alphas, captions = output.alphas.cpu(), batch.captions
        shares = alphas.sum(1) / captions.shape[1]  # (B, L): m_i / C
        values = {
            "places covered": 1 / shares.square().sum(1),
            "places ignored, %": 100 * (shares < 0.5 / shares.shape[1]).double().mean(1),
            "entropy, nats": entropy(alphas).mean(1),
            "movement": movement(alphas).mean(1),
            "NLL, nats per word": negative_log_likelihood(output.logits.cpu(), captions) / captions.shape[1],
        }
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value.sum().item()
    return {name: total / sum(len(batch.image_ids) for batch in tests) for name, total in sums.items()}


results = {weight: measured(decoder) for weight, decoder in decoders.items()}
covered, ignored, spread, _, nll = ([results[weight][name] for weight in LAMBDAS] for name in results[0])
assert covered == sorted(covered)  # it covers,
assert covered[-1] > 4 * covered[0]
assert ignored[0] > 60
assert ignored[-1] < 10
assert spread[-1] > spread[0] + 1  # by looking broadly,
assert nll[-1] > nll[0] + 0.08  # and here the captions pay for it

figure, axes = plt.subplots(1, 5, figsize=(10, 2.3), layout="constrained")
for axis, (name, top) in zip(
    axes,
    (
        ("places covered", 49),
        ("places ignored, %", 100),
        ("entropy, nats", 3.9),
        ("movement", 1),
        ("NLL, nats per word", None),
    ),
    strict=True,
):
    axis.bar(range(len(LAMBDAS)), [results[weight][name] for weight in LAMBDAS], color=STYLES, edgecolor="0.2")
    for x, weight in enumerate(LAMBDAS):
        axis.annotate(
            f"{results[weight][name]:.3g}",
            (x, results[weight][name]),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axis.set_xticks(range(len(LAMBDAS)), LAMBDAS)
    axis.set(title=name, xlabel="λ", ylim=(0, 1.15 * (top or max(nll))))
    axis.title.set_fontsize(10)
plt.show()

# %% [markdown]
# And in pictures: one caption of one scene, its coverage (lit where $m_i$ is large) and the map of a word that names an object, for the three decoders. Below, all test captions: the shares of the 49 places,
# sorted, where 1 is the even share.

# %%
example = data.split("test")[11]
caption = torch.tensor([[*vocabulary.encode(example.references[0]), 0]])
picture, kind = data.photo(example), scenes.scene(example.image_id).objects[0]
word = next(t for t, each in enumerate(vocabulary.decode(caption[0].tolist())) if each == kind.colour)
figure = plt.figure(figsize=(9.4, 4.4), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=(0.85, 1))
panels = above.subplots(1, 2 * len(LAMBDAS))
axis = below.subplots()
for number, ((weight, decoder), (colour, dash)) in enumerate(zip(decoders.items(), STYLES.items(), strict=False)):
    alphas = look(decoder, Batch([example.image_id], caption)).alphas[0].detach().cpu()
    for offset, (map_, title) in enumerate(((alphas.sum(0), "coverage"), (alphas[word], f'"{kind.colour}"'))):
        panel = panels[2 * number + offset]
        panel.imshow(overlay.lit(picture, map_.view(1, 7, 7), 112)[0])
        panel.set_title(f"λ = {weight}: {title}", fontsize=9)
        panel.set_axis_off()
    with torch.inference_mode():
        shares = torch.cat([49 * look(decoder, batch).alphas.mean(1).cpu() for batch in tests])  # (captions, L)
    axis.plot(
        range(1, 50),
        shares.sort(1, descending=True).values.mean(0),
        dash,
        color=colour,
        linewidth=2.5,
        label=f"λ = {weight}",
    )
axis.axhline(1, color="0.4", linestyle=":")
axis.set(yscale="log", xlabel="places, from the most to the least looked at", ylabel="share (1: even)")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# The penalty does what it says: coverage goes from a few places to nearly all. It does so in the first of the two ways, by broad maps: at $\lambda = 1$ even the map of a word that names an object keeps little more than its peak, and gives the rest of its weight to the whole picture. And
# the captions get worse, because a scene's caption depends on looking at one thing at a time, and the clutter, nine tenths of the picture, is never named.
#
# This does not contradict the paper, where the penalty improved the results. Photographs are not scenes: more of what they show is worth a word, and maps that hardly move may profit from being told to. But it is a warning: one data set's default is
# another's mistake. satlib's recipes use $\lambda = 0$ for scenes, 0.01 or 0.02 for Flickr8k, and the paper's 1 for COCO.

# %% [markdown]
# ## What soft attention approximates
#
# Now to the second half page. Hard attention, of which notebook 06 treats, says that the place $s_t$ is random, drawn from $\alpha_t$. Then a word's probability is a mean over places, the *marginal*:
#
# $$p(y_t = k) = \sum_i \alpha_{ti} \; p(y_t = k \,|\, \hat z_t = a_i).$$
#
# It takes a pass of the decoder for each of $L$ places, and over a whole caption for each of $L^C$ paths. Soft attention makes one pass, with the mean of the vectors. A mean of outputs against the output of a mean: when is that nearly the same?
#
# > **Paper, section 4.2.** To first order, $\mathbb{E}[h_t]$ is what one forward pass with $\mathbb{E}[\hat z_t]$ gives. Let $n_{t,i}$ be $n_t = L_o(E y_{t-1} + L_h h_t + L_z \hat z_t)$ with $\hat z_t$ set to $a_i$. The normalised weighted geometric mean (NWGM) of
# > the softmax over places is
# > $$\mathrm{NWGM}[p(y_t = k | a)] = \frac{\prod_i \exp(n_{t,k,i})^{p(s_{t,i} = 1|a)}}{\sum_j \prod_i \exp(n_{t,j,i})^{p(s_{t,i} = 1|a)}} = \frac{\exp(\mathbb{E}[n_{t,k}])}{\sum_j \exp(\mathbb{E}[n_{t,j}])},$$
# > and by a result of Baldi and Sadowski (2014) it approximates the expectation. So soft attention approximately maximises the marginal likelihood.
#
# That is a chain of three links, and each can be measured:
#
# $$\underbrace{\mathrm{softmax}(n_t(\mathbb{E}[\hat z_t]))}_{\text{soft attention}} \;\overset{1}{\approx}\; \underbrace{\mathrm{softmax}(\mathbb{E}[n_t])}_{} \;\overset{2}{=}\; \mathrm{NWGM} \;\overset{3}{\approx}\; \underbrace{\mathbb{E}[\mathrm{softmax}(n_t)]}_{\text{marginal}}$$

# %% [markdown]
# ### The exact link: NWGM is a softmax of a mean
# <!-- index: section 4.2 | NWGM of the words' distributions = softmax of the expected n_t | satlib.course.marginal.nwgm | tests/test_marginal.py::test_nwgm_is_the_softmax_of_the_expected_pre_activation -->
#
# A geometric mean with weights $\alpha_i$ is the exponential of a mean logarithm: $\prod_i p_i^{\alpha_i} = \exp(\sum_i \alpha_i \ln p_i)$. It does not sum to one over the words, so it is normalised. With $\ln p_{ik} = n_{ik} - \ln \sum_j e^{n_{ij}}$,
# the second term is the same for all words $k$; it cancels when we normalise, and $\exp(\mathbb{E}[n_k])$ is left.
#
# `marginal.every_place` takes the decoder's next step $L$ times, with one place's vector each time. First by hand on satlib's tiny decoder, from the definition:

# %%
tiny, a_tiny, caption_tiny = estimators.tiny(3)  # 4 places, 5 words, double precision
tiny.eval().requires_grad_(False)
view, state = tiny.view(a_tiny), tiny.initial_state(a_tiny)
first = tiny.embed(torch.tensor([-1]))
places = marginal.every_place(tiny, view, state, first)
alpha, p = places.alpha[0], places.log_p[0].exp()  # (L,), (L, K)

product = torch.ones(p.shape[1]).double()
for i in range(len(alpha)):
    product = product * p[i] ** alpha[i]
nwgm = product / product.sum()
assert product.sum() < 1  # why it has to be normalised
assert_close(nwgm, torch.softmax((alpha[:, None] * places.n[0]).sum(0), 0), atol=1e-12, rtol=0)  # link 2: exact
assert_close(nwgm, marginal.nwgm(places.log_p, places.alpha)[0])

step = tiny.step(view, state, tiny.gates_word(first))
soft = tiny.logits(first, step.state.h, step.z).softmax(1)[0]
arithmetic = sum(alpha[i] * p[i] for i in range(len(alpha)))
assert_close(arithmetic, places.marginal[0])

figure, axis = plt.subplots(figsize=(7.4, 2.6), layout="constrained")
for number, (values, name, colour) in enumerate(
    (
        (p[alpha.argmax()], "heaviest place alone", "0.75"),
        (soft, "soft attention", BLUE),
        (nwgm, "NWGM", SKY),
        (arithmetic, "marginal", ORANGE),
    )
):
    axis.bar(
        torch.arange(5) + 0.2 * (number - 1.5),
        values,
        0.19,
        color=colour,
        label=name,
        hatch=("", "", "//", "..")[number],
        edgecolor="0.2",
    )
axis.set(xlabel="word", xticks=range(5), ylabel="probability")
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# The geometric mean shows its character: a word that *one* weighty place rules out is nearly ruled out altogether, where the arithmetic mean only takes that place's share off. Soft attention follows the geometric mean.
#
# ### The first link: a state of the mean for the mean of states
# <!-- index: claim: soft attention approximates the marginal over places | to second order in the spread of the annotation vectors | satlib.course.marginal.every_place | tests/test_marginal.py::test_each_place_equals_a_look_forced_there -->
#
# $n_t$ is linear in $h_t$ and $\hat z_t$, so $\mathbb{E}[n_t] = L_o(E y_{t-1} + L_h \mathbb{E}[h_t] + L_z \mathbb{E}[\hat z_t])$. The only difference from soft attention is $\mathbb{E}[h_t]$, for which soft attention has $h_t(\mathbb{E}[\hat z_t])$. Expand $h_t$
# around the mean: the first-order term is proportional to $\mathbb{E}[\hat z_t - \mathbb{E}[\hat z_t]] = 0$. What is left is of second order. So pull all annotation vectors towards their weighted mean, by a factor $\varepsilon$, the weights held: the error must fall as $\varepsilon^2$.
# That is a prediction that can fail.

# %%
factors = torch.tensor([0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]).double()
mean = (alpha[:, None] * a_tiny[0]).sum(0)
errors: dict[str, list[float]] = {
    "E[h] and h(E[z])": [],
    "soft and NWGM": [],
    "NWGM and marginal": [],
    "soft and marginal": [],
}
for factor in factors:
    pulled = View(mean + factor * (a_tiny - mean), view.keys)  # the keys, and so the weights, as before
    each = marginal.every_place(tiny, pulled, state, first)
    made = tiny.step(pulled, state, tiny.gates_word(first))
    of_mean = tiny.logits(first, made.state.h, made.z).softmax(1)
    geometric = marginal.nwgm(each.log_p, each.alpha)
    for name, difference in zip(
        errors,
        (
            (each.alpha[0] @ each.h[0]) - made.state.h[0],
            of_mean - geometric,
            geometric - each.marginal,
            of_mean - each.marginal,
        ),
        strict=True,
    ):
        errors[name].append(difference.norm().item())
slopes = {name: math.log(values[2] / values[0]) / math.log(5) for name, values in errors.items()}  # from 0.01 to 0.05
assert all(1.8 < slope < 2.2 for slope in slopes.values()), slopes

figure, axis = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
for (name, values), colour, style in zip(
    errors.items(), (PINK, SKY, ORANGE, BLUE), ("-s", "--D", "-.^", ":o"), strict=True
):
    axis.plot(factors, values, style, color=colour, label=f"{name}: slope {slopes[name]:.2f}")
axis.set(xscale="log", yscale="log", xlabel=r"$\varepsilon$: how far the places lie apart", ylabel="distance")
axis.legend(frameon=False, fontsize=9)
plt.show()

# %% [markdown]
# Straight lines of slope 2 at the left: both approximations are of second order. At $\varepsilon = 1$ they may be anything, and on the right they bend. So theory says that soft attention is good *if the places that share the weight say
# similar things*, or if one place has it all. What do they say in a trained model?
#
# ### In a trained model, word by word
#
# Sum over all 49 places at every word of true captions, for the scenes model; and because the answer depends on how the weight is spread, do it at several temperatures of the softmax (notebook 04), from sharp to even.
# For each word: the total variation between the distributions, and the NLL of the true word under four of them:
#
# - *soft*: one pass;
# - *NWGM*;
# - *marginal*: the exact mean over places;
# - *bound*: $\sum_i \alpha_{ti} \ln p(y_t | a_i)$, what hard attention maximises in place of the marginal's logarithm.
#
# **What do you expect to see?** One order is certain. By Jensen's inequality the bound is below the logarithm of the marginal; and since $\prod_i p_i^{\alpha_i}$ sums to less than one, normalising only raises it, so that the bound is below the NWGM's too.


# %%
@torch.inference_mode()
def word_by_word(decoder, batch: Batch) -> Tensor:
    """(words, 8): entropy, TV of soft and marginal, of NWGM and marginal, of soft and NWGM, NLL by soft, NWGM, marginal, bound."""
    seen = vectors.read(batch.image_ids).double()
    view, state, previous, found = decoder.view(seen), decoder.initial_state(seen), torch.full((len(seen),), -1), []
    for word in batch.captions.T:
        embedded = decoder.embed(previous)
        every = marginal.every_place(decoder, view, state, embedded)
        state, z, *_ = decoder.step(view, state, decoder.gates_word(embedded))
        soft, geometric = decoder.logits(embedded, state.h, z).softmax(1), marginal.nwgm(every.log_p, every.alpha)
        expected = torch.einsum("bl,blk->bk", every.alpha, every.n).softmax(1)
        assert_close(geometric, expected, atol=1e-6, rtol=0)  # link 2 again, on real maps
        true = word.unsqueeze(1)
        distances = [
            (p - q).abs().sum(1) / 2
            for p, q in ((soft, every.marginal), (geometric, every.marginal), (soft, geometric))
        ]
        nll = [-p.gather(1, true).squeeze(1).log() for p in (soft, geometric, every.marginal)]
        at_places = every.log_p.gather(2, true.unsqueeze(1).expand(-1, every.alpha.shape[1], 1)).squeeze(2)  # (B, L)
        found.append(torch.stack([entropy(every.alpha), *distances, *nll, -(every.alpha * at_places).sum(1)], 1))
        previous = word
    return torch.cat(found)


first_reference = pairs(data.split("test")[:30], trained.vocabulary, 40)[::5]  # one caption for each scene
captions = SameLengthBatches(first_reference, 64).epoch(0)
temperatures = (0.03, 0.3, 0.6, 1, 1.5, 2.5, 5, 100)
precise = copy.deepcopy(trained.decoder).double()
at = {T: torch.cat([word_by_word(steered(precise, T), batch) for batch in captions]) for T in temperatures}
for values in at.values():
    assert (values[:, 7] > values[:, 5] - 1e-9).all()  # bound below NWGM, at every word
    assert (values[:, 7] > values[:, 6] - 1e-9).all()  # and below the marginal

means = torch.stack([values.mean(0) for values in at.values()])  # (temperatures, 8)
natural = means[temperatures.index(1)]
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.4), layout="constrained")
left.scatter(at[1][:, 0], at[1][:, 1], s=7, color="0.6", label="a word, as trained (T = 1)")
for column, name, colour, style in (
    (1, "soft and marginal", BLUE, "-o"),
    (2, "NWGM and marginal", ORANGE, "--^"),
    (3, "soft and NWGM", SKY, ":D"),
):
    left.plot(means[:, 0], means[:, column], style, color=colour, label=f"{name}, mean")
left.set(
    xlabel="entropy of the map, nats", ylabel="total variation", title="error of the approximation", ylim=(0, 0.45)
)
left.legend(frameon=False, fontsize=8)
for column, name, colour, style in (
    (7, "bound", RED, "-.s"),
    (6, "marginal", ORANGE, "--^"),
    (5, "NWGM", SKY, ":D"),
    (4, "soft", BLUE, "-o"),
):
    right.plot(means[:, 0], means[:, column], style, color=colour, label=name)
right.axvline(natural[0], color="0.4", linestyle=":")
right.annotate("as trained", (natural[0], 0.3), (5, 0), textcoords="offset points", fontsize=9)
right.set(xlabel="mean entropy of the maps, nats", title="NLL of the true words, nats per word", ylim=(0.25, 2.2))
right.legend(frameon=False, fontsize=8)
plt.show()
print("as trained: NLL per word of soft {:.3f}, NWGM {:.3f}, marginal {:.3f}, bound {:.3f}".format(*natural[4:8]))

assert natural[1] < 0.1  # soft attention is near the marginal
assert natural[3] < 0.5 * natural[2]  # the first link is the better one; most of the error is link 3
assert means[0, 1] < 0.5 * natural[1]  # sharper maps: smaller error
assert means[temperatures.index(2.5), 1] > 1.5 * natural[1]  # more blurred ones: larger
assert (natural[4] - natural[6]).abs() < 0.5 * (natural[7] - natural[6])  # nearer to the marginal than the bound is

# %% [markdown]
# As trained, soft attention differs from the exact marginal by a few hundredths of total variation, and by a few hundredths of a nat per word: much nearer than the variational bound. The first link, $h_t(\mathbb{E}[\hat z_t])$ for $\mathbb{E}[h_t]$, is nearly perfect; what error
# there is lies in a geometric mean standing for an arithmetic one. It vanishes where one place has all the weight, and grows with entropy, as places come to disagree. It shrinks again where the maps are even, not because the approximation recovers, but because a context that
# is never seen in training makes the decoder unsure at every place.
#
# Soft attention's NLL is the lowest of the four as trained. That is no surprise: it is what was minimised. The approximation tells why the two kinds of attention are relatives, not which one to train.

# %% [markdown]
# ### A whole caption, all paths
#
# Word by word we gave every look the same past. Over a whole caption the past is random too: 4 places and 3 words make $4^3 = 64$ paths, and `estimators.every_path` runs them all. Ten decoders with random weights, large ones so that looks matter, each at temperatures from sharp to even:

# %%
rows = []
for seed in range(10):
    for T in (0.02, 0.1, 0.3, 1, 3, 10, 100):
        decoder, a_one, caption = estimators.tiny(seed)  # hard attention, to be run along paths
        with torch.no_grad():
            decoder.attention.energy.energy.weight.div_(T)
            exact = estimators.every_path(decoder, a_one, caption).log_likelihood
            output = decoder.eval()(a_one, caption)  # in evaluation it takes the expectation: soft attention
            ours = -word_losses(output.logits, caption).sum()
        rows.append((T, entropy(output.alphas).mean().item(), (ours - exact).item()))
sharp, blurred = ([abs(error) for used, _, error in rows if used == T] for T in (0.02, 1))
assert sum(sharp) < 0.5 * sum(blurred)

figure, axis = plt.subplots(figsize=(6.4, 3), layout="constrained")
axis.scatter([H for _, H, _ in rows], [error for *_, error in rows], s=24, color=BLUE)
axis.axhline(0, color="0.4", linestyle=":")
axis.axvline(math.log(4), color="0.4", linestyle=":")
axis.set_yscale("symlog", linthresh=0.1)
axis.margins(y=0.1)
axis.set(
    xlabel="mean entropy of the maps, nats (dotted: ln 4)",
    ylabel="nats",
    title="log p(y|a): soft attention less the exact sum",
)
plt.show()
differences = [error for *_, error in rows]
assert min(differences) < -1
assert max(differences) > 0.5

# %% [markdown]
# Here, with weights that no training has made reasonable, the difference can be many nats (the axis is logarithmic beyond 0.1), and to either side: soft attention is no bound, neither upper nor lower. It goes to zero with the
# entropy, where only one path is left.

# %% [markdown]
# ## Try it
#
# - **A mistake to make on purpose:** in `train`, put the penalty on the wrong axis, `(1 - output.alphas.sum(2)).square().sum(1)`. Nothing fails until the assertions. Which number in `results` gives it away?
# - **Another one:** keep equation 14's penalty, but divide the NLL by the caption's length, as half of the world does. Which $\lambda$ of the table have you got? Does $\lambda = 0.1$ now behave as 1 did?
# - Add 0.01 to `LAMBDAS`. How much coverage does it buy, at what price? This is the size of weight that works for photographs.
# - In `train`, write the penalty out with $\tau = 5$, `(5 - output.alphas.sum(1)).square().sum(1)`, and confirm that `results` do not change, to the digits that rounding leaves.
# - In `go_downhill`, add $0.5 \sum_t H[\alpha_t]$ to what is minimised. Now the maps have to be sharp *and* share out the places: the second way.
# - In the figure of the three links, take another tiny decoder, `estimators.tiny(seed)`. Is soft attention always nearer to the NWGM than to the marginal?

# %% [markdown]
# ## What to remember
#
# - All maps of a caption sum to $C$. The penalty of equation 14 is a constant plus $\sum_i (m_i - C/L)^2$: it asks for even coverage, and $\tau$ has no effect.
# - Even coverage can come from even maps or from words that share the places out. Ours took the first way, and paid for it.
# - "$\lambda = 1$" means anything from 0 to 12 of the paper's $\lambda$, depending on what is summed and what is averaged. Translate it before you copy it.
# - NWGM $=$ softmax of the expected pre-activation, exactly. Soft attention $\approx$ NWGM to second order, and the NWGM $\approx$ the marginal: good where maps are sharp or places agree.
# - In a trained model the difference is small, and smaller than that of the bound that hard attention maximises; it is not a bound itself.

# %% [markdown]
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio. *Show, Attend and Tell: Neural Image Caption Generation with Visual Attention.* ICML 2015. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - P. Baldi, P. Sadowski. *The Dropout Learning Algorithm.* Artificial Intelligence 210, 2014 (the NWGM, there for dropout).
# - N. Srivastava, G. Hinton, A. Krizhevsky, I. Sutskever, R. Salakhutdinov. *Dropout: A Simple Way to Prevent Neural Networks from Overfitting.* JMLR 15, 2014.
# - The official code, in Theano: [github.com/kelvinxu/arctic-captions](https://github.com/kelvinxu/arctic-captions)
