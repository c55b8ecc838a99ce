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
# # 1. Attention before images
#
# Attention was invented for sentences, a year before anyone gave it pictures. This notebook builds it there, where every step can be
# checked: a translator that must carry a whole sentence in one vector, the same translator allowed to look back, and two tasks
# where attention does without a recurrent network at all.
#
# **You will be able to**
#
# - say what attention computes, in three lines, and compute it by hand;
# - explain, and show by measurement, what a fixed vector costs a translator of long sentences;
# - read an alignment matrix, and check it against the truth;
# - choose between additive and dot-product scores, and mask padding;
# - recognise attention in a network without recurrence and in a memory that is asked questions.
#
# **Minutes**: 25 to read, 1.1 to run on two CPU cores. **Memory**: 0.9 GB. **Needs**: no earlier notebook; nothing to download.

# %%
import math
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import Rectangle
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu

from satlib import attention, metrics
from satlib.course import translation, translation_world
from satlib.datasets import data_root
from satlib.text import Vocabulary, tokenise

BLUE, VERMILION, GREEN, ORANGE, PINK = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7"  # Okabe and Ito

# %% [markdown]
# ## A small world to translate
#
# Real translation needs millions of sentences. We use a language of our own, **Orrish**, of which every rule is known. Its nouns
# have a class, *-o* or *-a*, and what goes with a noun takes its ending (and *-n* for several); adjectives follow the noun;
# "a" is not said; prepositions stand behind; the verb stands at the end, and "does not" is one word after it.
#
# `translation_world.translate` says an English sentence in Orrish, and for each word where in the English it comes from.

# %%
# NBVAL_CHECK_OUTPUT
for english in ("the dog sleeps", "my small red cat sees the dog", "every queen does not want a tall tower"):
    print(f"{english:40} {' '.join(word.text for word in translation_world.translate(english))}")

# %% [markdown]
# The two languages put their words in different orders. In the picture a line joins each word of Orrish to the English
# word that it comes from; a word without a line is not said. Where lines cross, a translator that goes from left to right has to wait,
# or to look back.


# %%
def draw_lines(axis: plt.Axes, english: str) -> None:
    """Two rows of words, and a line between those that translate each other."""
    words, said = english.split(), translation_world.translate(english)
    for row, texts in ((1, words), (0, [word.text for word in said])):
        for i, text in enumerate(texts):
            axis.text((i + 0.5) / len(texts), row, text, ha="center", va="bottom" if row else "top", fontsize=11)
    for i, word in enumerate(said):
        ends = [(word.source + 0.5) / len(words), (i + 0.5) / len(said)]
        axis.plot(ends, [0.97, 0.03], color=BLUE, linewidth=1.6)
    axis.set(xlim=(0, 1), ylim=(-0.3, 1.3))
    axis.axis("off")


figure, axis = plt.subplots(figsize=(9, 1.7), dpi=90, layout="constrained")
draw_lines(axis, "my small red cat that follows a dog does not see the tall towers")

# %% [markdown]
# Now 5,000 sentences to learn from and 460 others to test on. Sentences have 3 to 20 English words, every length equally often.

# %%
everything = translation_world.pairs(5460, seed=0, longest=20)
test_pairs, train_pairs = everything[:460], everything[460:]
english, orrish = (Vocabulary.from_captions(pair[side] for pair in train_pairs) for side in (0, 1))
assert not {pair.source for pair in train_pairs} & {pair.source for pair in test_pairs}
print(f"{len(english)} English words, {len(orrish)} Orrish ones (with the two special words of each vocabulary)")

# %% [markdown]
# ## A sentence in one vector
#
# <!-- index: claim: a fixed vector loses long sentences | one vector for the whole sentence, z_t = [h_L forward; h_1 backward] | satlib.course.translation.Translator | tests/test_translation.py::test_without_attention_one_vector_is_all_that_the_decoder_gets -->
#
# The first neural translators (Sutskever et al., 2014; Cho et al., 2014) have two halves. The **encoder**, a recurrent network, reads the
# sentence $x_1 \dots x_L$; its last state is the sentence's meaning. The **decoder**, another recurrent network, writes the translation
# $y_1 \dots y_C$ from it. Ours reads in both directions and gives the decoder both last states, at every step:
#
# $$ z = [\overrightarrow{h}_L ; \overleftarrow{h}_1], \qquad s_t = \mathrm{GRU}([E y_{t-1}; z],\, s_{t-1}), \qquad
# p(y_t) \propto \exp\left(W [E y_{t-1}; s_t; z]\right) $$
#
# Here $z$ has 128 numbers: 43 for each word of "the dog sleeps", six for each word of a sentence of 20. Training is as for any
# network that writes words: Adam, on the mean negative log-likelihood of the true next word; the first epoch takes the short sentences first.
#
# **What do you expect to see** when we measure translations of short and of long sentences apart?

# %%
STEPS = 300


def trained(kind: str, seed: int = 0) -> translation.Translator:
    """A translator, trained on the small world; prints its loss twice on the way."""
    torch.manual_seed(seed)
    model, losses = translation.Translator(english, orrish, kind), []

    def report(step: int, loss: float) -> None:
        losses.append(loss)
        if step % (STEPS // 2) == 0:
            print(f"{kind}: step {step}, {sum(losses[-50:]) / 50:.2f} nats per word")

    translation.train(model, train_pairs, STEPS, batch_size=32, learning_rate=1e-2, seed=seed, report=report)
    return model


fixed = trained("none")

# %% [markdown]
# We measure by BLEU-4, the share of one to four words in a row that a reference has too, with a penalty for
# what is too short (notebook 07 takes it apart). A sentence of fewer than four words has no four in a row, so we
# measure sentences of six English words and more; none of their translations is shorter than four words.

# %%
GROUPS = ((6, 8), (9, 12), (13, 16), (17, 20))


def bleu_by_length(model: translation.Translator, pairs: list[translation.SentencePair]) -> list[float]:
    """BLEU-4 in percent of greedy translations, for each group of source lengths."""
    found = []
    for shortest, longest in GROUPS:
        group = [pair for pair in pairs if shortest <= len(tokenise(pair.source)) <= longest]
        if not group:
            found.append(math.nan)
            continue
        said = translation.translate(model, [pair.source for pair in group])
        hypotheses = {str(i): [" ".join(one.words)] for i, one in enumerate(said)}
        references = {str(i): [" ".join(tokenise(pair.target))] for i, pair in enumerate(group)}
        found.append(metrics.bleu(hypotheses, references)["BLEU-4"])
    return found


def draw_bleu(axis: plt.Axes, curves: dict[str, list[float]]) -> None:
    styles = {
        "fixed vector": (VERMILION, "s", "--"),
        "additive attention": (BLUE, "o", "-"),
        "dot-product attention": (GREEN, "D", ":"),
    }
    for name, values in curves.items():
        color, marker, dash = styles[name]
        axis.plot(range(len(GROUPS)), values, dash, color=color, marker=marker, linewidth=2, markersize=7, label=name)
    axis.set_xticks(range(len(GROUPS)), [f"{low} to {high}" for low, high in GROUPS])
    axis.set(xlabel="words in the English sentence", ylabel="BLEU-4 (percent)", ylim=(0, 102))
    axis.grid(color="0.9")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)


assert all(len(pair.target.split()) >= 4 for pair in test_pairs if len(pair.source.split()) >= GROUPS[0][0])
curves = {"fixed vector": bleu_by_length(fixed, test_pairs)}
figure, axis = plt.subplots(figsize=(5.6, 3.2), dpi=90, layout="constrained")
draw_bleu(axis, curves)

# %% [markdown]
# Each further word costs. And these are sentences of lengths that it was trained on. Look at what goes wrong in a long one: the
# beginning is often right, then words of the right kind stand in the right places, but they are other words. The grammar
# fitted into the vector; the content did not.

# %%
long = next(pair for pair in test_pairs if len(pair.source.split()) == 18)
print("English:     ", long.source)
print("Orrish:      ", long.target)
print("fixed vector:", " ".join(translation.translate(fixed, [long.source])[0].words))

# %% [markdown]
# ## What attention computes
#
# <!-- index: claim: weights are a softmax of scores | softmax of the scores of (input, context); the output is the inputs' weighted mean | satlib.attention.SoftAttention | tests/test_attention.py::test_weights_and_context_by_hand -->
#
# People do not take in a scene at once either; they look at one part and then at another, as the question of the moment asks (Itti et al., 1998,
# made a model of it). Bahdanau, Cho and Bengio (2015) let the decoder look at all the encoder's states, and choose among them anew for each
# word. What it does there has nothing to do with sentences. Attention takes **inputs** $y_1 \dots y_n$ and a **context** $c$, what is wanted just now. It
#
# 1. scores each input against the context, $e_i = \mathrm{score}(y_i, c)$: each on its own, no input knows of the others;
# 2. turns scores into weights that are positive and sum to one, $\alpha_i = e^{e_i} / \sum_j e^{e_j}$: a **softmax**;
# 3. returns the weighted mean $z = \sum_i \alpha_i y_i$.
#
# | here | in a translator | in the captioner of this course |
# | --- | --- | --- |
# | input $y_i$ | $a_i$, the encoder's state at word $i$ | $a_i$, the features of place $i$ |
# | context $c$ | $s_{t-1}$, the decoder's state | $h_{t-1}$, the decoder's state |
# | score $e_i$, weight $\alpha_i$ | $e_{ti}$, $\alpha_{ti}$ at word $t$ | $e_{ti}$, $\alpha_{ti}$ at word $t$ |
# | output $z$ | context vector $z_t$ (their $c_t$) | context vector $\hat{z}_t$ |
#
# In Python:


# %%
def attend(inputs: Tensor, context: Tensor, score) -> tuple[Tensor, Tensor]:
    """Attention over inputs (n, D) by a score of two vectors: z (D,) and weights (n,)."""
    exponentials = [math.exp(score(y_i, context)) for y_i in inputs]
    weights = [each / sum(exponentials) for each in exponentials]
    return sum(alpha_i * y_i for alpha_i, y_i in zip(weights, inputs)), torch.tensor(weights)


def dot(y_i: Tensor, c: Tensor) -> float:
    """y_i . c: large where the input points the way the context points."""
    return float(sum(u * v for u, v in zip(y_i, c)))


inputs = torch.tensor([[1.0, 0.2], [0.3, 1.0], [-0.9, 0.5], [-0.2, -0.8]])
context = torch.tensor([0.9, 0.5])
z, weights = attend(inputs, context, dot)
print("weights", [round(float(w), 2) for w in weights], " z", [round(float(x), 2) for x in z])

soft = attention.SoftAttention(attention.DotEnergy(2, 2, 0))  # satlib's: batches, a (1, 4, 2) and h (1, 2)
look = soft(inputs.unsqueeze(0), soft.keys(inputs.unsqueeze(0)), context.unsqueeze(0))
torch.testing.assert_close(look.z[0], z)
torch.testing.assert_close(look.alpha[0], weights)

# %% [markdown]
# Multiply the context by a number, and all scores are multiplied. **What do you expect to see** with 0? With a large number?
#
# In the picture dots are inputs, the larger the more weight; the arrow is the context; the star is $z$.

# %%
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), dpi=90, layout="constrained", sharey=True)
outputs = {}
for axis, factor in zip(axes, (0, 1, 3, 30)):
    z, weights = attend(inputs, factor * context, dot)
    outputs[factor] = z
    axis.scatter(*inputs.T, s=30 + 500 * weights, color=BLUE, alpha=0.8, label="inputs")
    for y_i, weight in zip(inputs, weights):
        axis.annotate(f"{weight:.2f}", y_i, xytext=(0, -19), textcoords="offset points", ha="center", fontsize=9)
    axis.annotate("", 0.6 * context, (0, 0), arrowprops={"arrowstyle": "->", "color": "0.3", "linewidth": 1.8})
    axis.scatter(*z, marker="*", s=170, color=VERMILION, edgecolor="black", linewidth=0.6, zorder=3, label="z")
    axis.set(title=f"context times {factor}", xlim=(-1.4, 1.5), ylim=(-1.3, 1.4), aspect="equal")
    axis.set_xticks([])
    axis.set_yticks([])
figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)

torch.testing.assert_close(outputs[0], inputs.mean(0))  # no preference: the plain mean
torch.testing.assert_close(outputs[30], inputs[0], atol=1e-3, rtol=0)  # a strong one: the best input alone

# %% [markdown]
# Between the mean of everything and the best input alone, $z$ never leaves the space between the inputs: a softmax is an
# argmax made soft enough to have a gradient. That gradient is why nobody has to tell the network where to look.
#
# ## Two ways to score
#
# <!-- index: claim: dot and additive scores | y_i . c against v . tanh(W_a y_i + W_h c + b) | satlib.attention.AdditiveEnergy | tests/test_attention.py::test_energy_equals_a_loop_over_places -->
#
# The score may be any function of an input and the context. Two are in use:
#
# $$ \text{dot product: } e_i = y_i^\top c \qquad\qquad \text{additive: } e_i = v^\top \tanh(W_a y_i + W_h c + b) $$
#
# The dot product (Luong et al., 2015) has nothing to learn and is one matrix product; inputs and context need the same size.
# The additive score (Bahdanau et al., 2015, and the captioner's $f_{att}$, equation 4) is a small network with one hidden layer. What can
# it say that a dot product cannot? For a given context the dot product is a *plane* over the inputs: it rises in one direction for
# ever. Four hidden units make a *hill*: with $\tanh(2u + 1) - \tanh(2u - 1)$, which is highest at $u = 0$, in each of two
# coordinates $u = y - c$, the highest score goes to the input that is *nearest* to the context.

# %%
additive = attention.AdditiveEnergy(2, 2, 4)
pairs_of_units = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
with torch.no_grad():
    additive.annotation.weight.copy_(2 * pairs_of_units)
    additive.state.weight.copy_(-2 * pairs_of_units)
    additive.annotation.bias.copy_(torch.tensor([1.0, -1.0, 1.0, -1.0]))
    additive.energy.weight.copy_(torch.tensor([[1.0, -1.0, 1.0, -1.0]]))


def hill(y_i: Tensor, c: Tensor) -> float:
    """The additive score, unit by unit."""
    W_a, b, W_h, v = (
        additive.annotation.weight,
        additive.annotation.bias,
        additive.state.weight,
        additive.energy.weight[0],
    )
    return sum(float(v[k]) * math.tanh(dot(W_a[k], y_i) + dot(W_h[k], c) + float(b[k])) for k in range(4))


z, weights = attend(inputs, context, hill)
soft = attention.SoftAttention(additive)
look = soft(inputs.unsqueeze(0), soft.keys(inputs.unsqueeze(0)), context.unsqueeze(0))
torch.testing.assert_close(look.z[0], z)
torch.testing.assert_close(look.alpha[0], weights)

line = torch.linspace(-2, 2, 81)
grid = torch.cartesian_prod(line, line)  # (81 * 81, 2)
scores = {}
with torch.no_grad():
    for name, energy in (("dot product", attention.DotEnergy(2, 2, 0)), ("additive, with these weights", additive)):
        scores[name] = energy(energy.keys(grid.unsqueeze(0)), context.unsqueeze(0))[0]

figure, axes = plt.subplots(1, 2, figsize=(7.6, 3.3), dpi=90, layout="constrained", sharey=True)
for axis, (name, values) in zip(axes, scores.items()):
    surface = values.view(81, 81).T  # rows are the second coordinate
    shown = axis.contourf(line, line, surface, levels=12, cmap="cividis")
    axis.contour(line, line, surface, levels=12, colors="black", linewidths=0.4)
    axis.scatter(*context, marker="X", s=90, color="white", edgecolor="black", label="context")
    axis.set(title=name, xlabel="$y_1$", aspect="equal")
    figure.colorbar(shown, ax=axis, shrink=0.85)
axes[0].set_ylabel("$y_2$")
axes[0].legend(loc="lower right", fontsize=9)

best = {name: grid[values.argmax()] for name, values in scores.items()}
torch.testing.assert_close(best["dot product"], torch.tensor([2.0, 2.0]))  # the far corner
torch.testing.assert_close(best["additive, with these weights"], context, atol=0.05, rtol=0)  # the context itself

# %% [markdown]
# Lighter is higher. Both panels ask with the same context; the dot product wants an input as far as possible in the context's
# direction, the hill wants one like the context. In practice the layers before the attention learn to make vectors that suit the score, and
# both work; we shall see it.
#
# ## Words that are not there
#
# Sentences in a batch have different lengths; the short ones are filled up. A softmax over filled places gives them weight, unless
# their scores are set to $-\infty$ before: $e^{-\infty} = 0$. (The captioner does without: all its images have the same places.)

# %%
energies = torch.tensor([[2.0, 1.0, 0.0, 0.0], [0.5, 0.1, 0.3, 0.9]])
mask = torch.tensor([[True, True, False, False], [True, True, True, True]])  # two words, four words
careless, careful = torch.softmax(energies, 1), translation.masked_softmax(energies, mask)
print(
    f"weight on words that are not there: {careless[0, 2:].sum():.2f} without the mask, {careful[0, 2:].sum():.2f} with it"
)
torch.testing.assert_close(careful[0, :2], torch.softmax(energies[0, :2], 0))  # as if the sentence were alone
torch.testing.assert_close(careful[1], careless[1])

# %% [markdown]
# ## The translator looks back
#
# Now the encoder keeps all its states, $a_i = [\overrightarrow{h}_i; \overleftarrow{h}_i]$, and the decoder forms a new vector from
# them before each word, with its own last state as the context:
#
# $$ e_{ti} = v^\top \tanh(W_a a_i + W_s s_{t-1} + b), \qquad \alpha_{ti} = \frac{\exp e_{ti}}{\sum_k \exp e_{tk}}, \qquad
# z_t = \sum_i \alpha_{ti} a_i $$
#
# Nothing else changes: `Translator.look` is the only place where the two differ. By hand, for the first word of a sentence and weights
# that nobody has trained yet:

# %%
torch.manual_seed(0)
fresh = translation.Translator(english, orrish, "additive")
with torch.no_grad():
    memory = fresh.read([translation.ids(english, "the dog sees my cat"), translation.ids(english, "the dog sleeps")])
    s_0 = torch.tanh(fresh.initial(memory.fixed))
    look_z, look_alpha = fresh.look(memory, s_0)
    energy = fresh.energy

    def bahdanau(a_i: Tensor, s: Tensor) -> float:
        """v . tanh(W_a a_i + W_s s + b)."""
        return float(energy.energy.weight[0] @ torch.tanh(energy.annotation(a_i) + energy.state(s)))

    z, weights = attend(memory.a[1, :4], s_0[1], bahdanau)  # "the dog sleeps" and the end mark
torch.testing.assert_close(look_z[1], z)
torch.testing.assert_close(look_alpha[1, :4], weights)
assert look_alpha[1, 4:].tolist() == [0, 0]
print("weights of 'the dog sleeps (end)':", [round(float(w), 3) for w in weights])

# %% [markdown]
# Even, as good as: it has not learned where to look. Train it, on the same sentences in the same order for as many steps, and a third
# one with dot-product scores. **What do you expect to see** in the curve?

# %% tags=["docs:length"]
looking = {"additive attention": trained("additive"), "dot-product attention": trained("dot")}
curves |= {name: bleu_by_length(model, test_pairs) for name, model in looking.items()}
figure, axis = plt.subplots(figsize=(5.6, 3.4), dpi=90, layout="constrained")
draw_bleu(axis, curves)
for name, values in curves.items():
    print(f"{name:22}", " ".join(f"{value:5.1f}" for value in values))

# %% [markdown]
# The fixed vector loses most of its BLEU from short sentences to long ones; attention keeps most of it, by either score. That is a claim, so it
# is checked: on long sentences attention is far above, and it keeps far more of what it reaches on short ones. (The dot product learns
# more slowly than the additive score here, and has not come as far after so few steps.)

# %%
kept = {name: values[-1] / values[0] for name, values in curves.items()}  # of the BLEU on short sentences
print("kept on long sentences:", {name: f"{part:.0%}" for name, part in kept.items()})
for name in looking:
    assert curves[name][-1] > curves["fixed vector"][-1] + 25, name
    assert kept[name] > kept["fixed vector"] + 0.25, name

# %% [markdown]
# ### Your own sentence pairs
#
# A file `pairs.tsv` in the data folder (the variable SATLIB_DATA says which, else `data/`), a sentence, a tab and its translation on each
# line, and the next cell does the same with it: such files for many languages are made from the Tatoeba project's sentences. It
# takes longer than all the rest of this notebook; a GPU is used if there is one.

# %%
files = [folder / "pairs.tsv" for folder in (data_root(), Path("../data")) if (folder / "pairs.tsv").is_file()]
if files:
    own = translation.read_pairs(files[0])
    order = torch.randperm(len(own), generator=torch.Generator().manual_seed(0)).tolist()
    own = [own[i] for i in order[:60_000]]
    held = len(own) // 20
    vocabularies = [
        Vocabulary.from_captions((pair[side] for pair in own[held:]), size=8000, min_count=2) for side in (0, 1)
    ]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for kind in ("none", "additive"):
        torch.manual_seed(0)
        model = translation.Translator(*vocabularies, kind, embedding=128, hidden=256).to(device)
        translation.train(model, own[held:], steps=4000, learning_rate=2e-3)
        print(kind, [round(value, 1) for value in bleu_by_length(model, own[:held])])
else:
    print("no pairs.tsv: the small world is all there is")

# %% [markdown]
# ## The alignment matrix
#
# <!-- index: claim: alignment is readable | the weights alpha_ti as a matrix, target words by source words | satlib.course.translation_world.translate | tests/test_translation.py::test_hand_made_pairs -->
#
# Row by row the weights $\alpha_{ti}$ of one translation: where the decoder looked before it wrote each word. Nobody told the model which word
# belongs to which; it was given pairs of sentences. Here we know, and can frame the true places. Dark is weight.


# %%
def draw_alignment(axis: plt.Axes, english: str, found: translation.Translation, title: str) -> None:
    """Weights (C, L) of a translation; the true source of each word framed, where the word is right."""
    words, true = english.split(), translation_world.translate(english)
    axis.imshow(found.alphas, cmap="Greys", vmin=0, vmax=1, aspect="auto")
    for row, word in enumerate(true):
        if row < len(found.words) and found.words[row] == word.text:
            axis.add_patch(
                Rectangle((word.source - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=VERMILION, linewidth=1.8)
            )
    axis.set_xticks(
        range(len(words) + 1), [*words, "(end)"], rotation=60, ha="right", rotation_mode="anchor", fontsize=9
    )
    axis.set_yticks(range(len(found.alphas)), [*found.words, "(end)"][: len(found.alphas)], fontsize=9)
    axis.set_title(title, fontsize=11)


sentence = "my small red cat that follows a dog does not see the tall towers"
figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.4), dpi=90, layout="constrained")
for axis, (name, model) in zip(axes, looking.items()):
    draw_alignment(axis, sentence, translation.translate(model, [sentence])[0], name)

# %% [markdown]
# The dark places follow the crossings of the lines above, roughly: the noun before its adjectives, the object before its verb. After this short training
# the rows are sharp in some places and blurred in others, and not every word is right. How often is the darkest place the true one? And how often by chance?

# %%
right, nearly = {name: [] for name in looking}, {name: [] for name in looking}
chance = []
for name, model in looking.items():
    for pair, found in zip(test_pairs, translation.translate(model, [pair.source for pair in test_pairs])):
        for word, said, alpha in zip(translation_world.translate(pair.source), found.words, found.alphas):
            if said == word.text:  # only of words that it got right
                right[name].append(int(alpha.argmax()) == word.source)
                nearly[name].append(abs(int(alpha.argmax()) - word.source) <= 1)
                chance.append(1 / len(alpha))


def share(hits: list[bool] | list[float]) -> float:
    """The mean."""
    return sum(hits) / len(hits)


for name in looking:
    print(f"{name:22} on the true word {share(right[name]):.0%}, or beside it {share(nearly[name]):.0%}")
    assert share(right[name]) > share(chance) + 0.2
print(f"{'chance':22} on the true word {share(chance):.0%}")

# %% [markdown]
# Not all of them: a state of the encoder also knows its neighbours, so that looking one word aside often does as well. A map of
# attention says where the model looked, not what it must have needed. Keep that in mind for pictures.
#
# ## Attention without recurrence
#
# <!-- index: claim: attention without recurrence solves long-term memory | scores a(h_t) of each input alone, weighted mean, no recurrent network | satlib.attention.SoftAttention | tests/test_attention.py::test_weights_are_a_distribution_and_follow_the_places -->
#
# If the order of the inputs does not matter, nothing has to run along them. Raffel and Ellis (2015) keep attention and drop the
# recurrent network. Each input $x_t$ becomes $h_t$ on its own; the score has no context, only a learned direction:
#
# $$ h_t = \mathrm{LReLU}(W_{xh} x_t + b_{xh}), \quad e_t = a(h_t) = \tanh(W_{hc} h_t + b_{hc}), \quad \alpha_t = \frac{\exp e_t}{\sum_k \exp e_k},
# \quad c = \sum_t \alpha_t h_t, $$
# $$ s = \mathrm{LReLU}(W_{cs} c + b_{cs}), \qquad y = W_{sy} s + b_{sy} $$
#
# Their test is a task made to be hard for recurrent networks, *addition* (Hochreiter and Schmidhuber, 1997): a long sequence of numbers
# between -1 and 1, two of them marked; the answer is $0.5 + (x_1 + x_2) / 4$ of the two marked, right within 0.04. What lies between them
# can be as long as one likes.


# %%
def addition(count: int, length: int) -> tuple[Tensor, Tensor]:
    """Sequences (B, T, 2) of numbers and marks, and their answers (B,)."""
    numbers = 2 * torch.rand(count, length) - 1
    marked = torch.rand(count, length).topk(2, dim=1).indices
    marks = torch.zeros(count, length).scatter_(1, marked, 1.0)
    return torch.stack([numbers, marks], dim=2), 0.5 + (numbers * marks).sum(1) / 4


class Score(nn.Module):
    """e_t from h_t alone, in the form that `SoftAttention` asks for."""

    def __init__(self, width: int, squash) -> None:
        super().__init__()
        self.linear, self.squash = nn.Linear(width, 1), squash

    def keys(self, h: Tensor) -> Tensor:
        """(B, T, D) -> the scores (B, T) themselves: without a context there is nothing to wait for."""
        return self.squash(self.linear(h).squeeze(2))

    def forward(self, keys: Tensor, context: Tensor) -> Tensor:
        return keys


class FeedForwardAttention(nn.Module):
    def __init__(self, squash, width: int = 32) -> None:
        super().__init__()
        self.hidden, self.middle, self.output = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.attention = attention.SoftAttention(Score(width, squash))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sequences (B, T, 2) -> answers (B,) and weights (B, T)."""
        h = leaky_relu(self.hidden(x))
        c, alpha, _ = self.attention(h, self.attention.keys(h), None)
        return self.output(leaky_relu(self.middle(c))).squeeze(1), alpha


# %% [markdown]
# Three of them learn, on sequences of 20 to 200 numbers: one that squashes scores as the paper does; one that does not; and one whose
# scores are all zero, the plain mean. Squashed scores lie between -1 and 1, so no input can weigh more than $e^2 \approx 7.4$ times another.
# **What do you expect to see** when sequences get longer?

# %%
SCORES = {
    "mean (no scores)": torch.zeros_like,
    "attention, tanh scores": torch.tanh,
    "attention, plain scores": nn.Identity(),
}
LENGTHS = (20, 50, 100, 200)


def solved(squash, seed: int = 0, steps: int = 600) -> tuple[FeedForwardAttention, list[float]]:
    """Train on sequences of 20 to 200; the model, and the share of right answers at each of LENGTHS."""
    torch.manual_seed(seed)
    model = FeedForwardAttention(squash)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x, y = addition(100, int(torch.randint(20, 201, ())))
        loss = (model(x)[0] - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        tests = [addition(1000, length) for length in LENGTHS]
        return model, [float(((model(x)[0] - y).abs() < 0.04).float().mean()) for x, y in tests]


memories = {name: solved(squash) for name, squash in SCORES.items()}
styles = dict(zip(SCORES, ((VERMILION, "s", "--"), (ORANGE, "^", "-."), (BLUE, "o", "-"))))
figure, (left, right_axis) = plt.subplots(1, 2, figsize=(10, 3), dpi=90, layout="constrained")
for name, (_, shares) in memories.items():
    color, marker, dash = styles[name]
    left.plot(LENGTHS, [100 * share for share in shares], dash, color=color, marker=marker, linewidth=2, label=name)
left.set(
    xlabel="numbers in the sequence", ylabel="answers within 0.04 (percent)", ylim=(-45, 103), yticks=range(0, 101, 25)
)
left.grid(color="0.9")
left.legend(frameon=False, loc="lower left", fontsize=9)

torch.manual_seed(1)
x, y = addition(1, 100)
model = memories["attention, plain scores"][0]
with torch.no_grad():
    answer, alpha = model(x)
right_axis.bar(range(100), alpha[0], color=BLUE, width=1.0)
for t in x[0, :, 1].nonzero().flatten().tolist():
    right_axis.annotate(
        "marked",
        (t, 0),
        xytext=(0, -26),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        arrowprops={"arrowstyle": "->"},
    )
right_axis.set(
    xlabel="place in the sequence", ylabel="weight", title=f"answer {float(answer):.3f}, true {float(y):.3f}"
)
right_axis.set_xticks((0, 50, 100))
right_axis.xaxis.labelpad = 14

plain, squashed, mean = (
    memories[name][1] for name in ("attention, plain scores", "attention, tanh scores", "mean (no scores)")
)
assert min(plain) > 0.7
assert plain[-1] > mean[-1] + 0.3

# %% [markdown]
# Without recurrence the sequence's length does not matter, and the two marked numbers are found wherever they stand. In the plain mean the
# two are thinned by all the others: the longer the sequence, the more it would have to be multiplied, by a length that only the share of marks tells. One small
# network learns that for some lengths and not for all. Squashed scores leave it part of that work. (The
# paper trains on one length at a time, for far longer, and reaches 10,000 numbers.)
#
# What is lost is order. Shuffle the sequence, and nothing changes:

# %%
shuffled = x[:, torch.randperm(100)]
with torch.no_grad():
    torch.testing.assert_close(model(shuffled)[0], answer)

# %% [markdown]
# ## A memory that is asked
#
# <!-- index: claim: memory addressing is attention with separate embeddings | p = softmax(u . m_i) over addresses m = A x, o = sum_i p_i c_i over contents c = C x | satlib.attention.SoftAttention | tests/test_translation.py::test_scores_from_one_embedding_and_the_mean_of_another -->
#
# An end-to-end memory network (Sukhbaatar et al., 2015) stores sentences $x_i$ and is asked a question $q$. Every sentence is embedded
# twice: by $A$ as an **address** $m_i$, which is compared with the question, and by $C$ as **content** $c_i$, which is read. Both are sums over the
# sentence's words $x_{ij}$, plus a vector for how recent the sentence is:
#
# $$ m_i = \sum_j A x_{ij} + T_A(i), \quad c_i = \sum_j C x_{ij} + T_C(i), \quad u = B q, \quad p_i = \mathrm{softmax}(u^\top m_i),
# \quad o = \sum_i p_i c_i, \quad \hat{a} = \mathrm{softmax}(W(o + u)) $$
#
# Read it again: inputs, a context, a softmax of dot products, a weighted mean. It is attention, but what is scored is not what is
# averaged. Our stories have ten sentences like "Mary is in the garden"; people come again, and the question "Where is Mary?" wants her last
# place. (The paper repeats the look, with $u + o$ as the next question; one look is enough here.)

# %%
PEOPLE = ("Mary", "John", "Sandra", "Daniel", "Fred")
ROOMS = ("kitchen", "garden", "bathroom", "office", "hall", "bedroom")
SENTENCES = 10


def stories(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sentences (B, 10, 2) as ids of a person and a room, who is asked for (B,), the answer (B,), the sentence that says it (B,)."""
    who, where = torch.randint(len(PEOPLE), (count, SENTENCES)), torch.randint(len(ROOMS), (count, SENTENCES))
    asked = who.gather(1, torch.randint(SENTENCES, (count, 1)))  # someone who is in the story
    says = ((who == asked) * torch.arange(1, SENTENCES + 1)).argmax(1)
    return (
        torch.stack([who, len(PEOPLE) + where], 2),
        asked.squeeze(1),
        where.gather(1, says.unsqueeze(1)).squeeze(1),
        says,
    )


class MemoryNetwork(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.A, self.B, self.C = (nn.Embedding(len(PEOPLE) + len(ROOMS), width) for _ in range(3))
        self.T_A, self.T_C = (nn.Parameter(torch.empty(SENTENCES, width)) for _ in range(2))
        self.W = nn.Linear(width, len(ROOMS), bias=False)
        for weight in (self.A.weight, self.B.weight, self.C.weight, self.T_A, self.T_C):
            nn.init.normal_(weight, std=0.3)

    def forward(self, x: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """Stories (B, 10, 2), questions (B,) -> logits of the rooms (B, 6) and p (B, 10)."""
        m, c, u = self.A(x).sum(2) + self.T_A, self.C(x).sum(2) + self.T_C, self.B(q)
        p = torch.softmax(torch.bmm(m, u.unsqueeze(2)).squeeze(2), dim=1)
        o = torch.bmm(p.unsqueeze(1), c).squeeze(1)
        return self.W(o + u), p


torch.manual_seed(0)
network = MemoryNetwork()
x, q, *_ = stories(3)
m, c, u = network.A(x).sum(2) + network.T_A, network.C(x).sum(2) + network.T_C, network.B(q)
look = attention.SoftAttention(attention.DotEnergy(16, 16, 0))(
    a=c, keys=m, h=u
)  # satlib's soft attention, its keys from elsewhere
torch.testing.assert_close(network(x, q)[0], network.W(look.z + u))
torch.testing.assert_close(network(x, q)[1], look.alpha)

# %% [markdown]
# Only the answers are taught, never which sentence to read. **What do you expect** $A$ to care about, and what $C$?


# %%
def taught(seed: int = 0, steps: int = 600) -> MemoryNetwork:
    torch.manual_seed(seed)
    network = MemoryNetwork()
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x, q, answer, _ = stories(128)
        loss = cross_entropy(network(x, q)[0], answer)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return network


network = taught()
with torch.no_grad():
    x, q, answer, says = stories(2000)
    logits, p = network(x, q)
answered = float((logits.argmax(1) == answer).float().mean())
read = float((p.argmax(1) == says).float().mean())
print(f"right answers {answered:.1%}; the sentence that says it has the most weight in {read:.1%}")
assert answered > 0.97
assert read > 0.97

# %% [markdown]
# Left, one story with the weight of each sentence. Middle, what a word adds to a sentence's score when someone is asked for, $u^\top A x$.
# Right, what a word adds to the answers when it is read, $W C x$. Blue adds, orange takes away.

# %%
with torch.no_grad():
    addressing = network.B.weight[: len(PEOPLE)] @ network.A.weight.T  # (people, words)
    reading = network.W.weight @ network.C.weight.T  # (rooms, words)
figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), dpi=90, layout="constrained", width_ratios=(1, 1.25, 1.25))
texts = [f"{PEOPLE[who]} is in the {ROOMS[where - len(PEOPLE)]}" for who, where in x[0].tolist()]
axes[0].barh(range(SENTENCES), p[0], color=BLUE)
axes[0].set_yticks(range(SENTENCES), texts, fontsize=9)
axes[0].invert_yaxis()
axes[0].set(title=f"Where is {PEOPLE[q[0]]}?", xlabel="weight p", xlim=(0, 1))
for axis, matrix, rows, title in (
    (axes[1], addressing, PEOPLE, "addresses: asked for"),
    (axes[2], reading, ROOMS, "content: answer"),
):
    axis.imshow(matrix, cmap="PuOr", vmin=-matrix.abs().max(), vmax=matrix.abs().max(), aspect="auto")
    axis.set_xticks(
        range(len(PEOPLE) + len(ROOMS)), [*PEOPLE, *ROOMS], rotation=60, ha="right", rotation_mode="anchor", fontsize=9
    )
    axis.set_yticks(range(len(rows)), rows, fontsize=9)
    axis.set_title(title, fontsize=11)

# %% [markdown]
# The addresses tell people apart and hardly see rooms; the contents tell rooms apart and hardly see people. One embedding for both
# would have to do the two jobs in one vector. How far apart the jobs are, in figures:


# %%
def spread(matrix: Tensor) -> float:
    """How much a row's entries differ from word to word, on average."""
    return float(matrix.std(dim=1).mean())


people, rooms = slice(0, len(PEOPLE)), slice(len(PEOPLE), None)
print(f"addresses: people {spread(addressing[:, people]):.1f}, rooms {spread(addressing[:, rooms]):.1f}")
print(f"contents:  people {spread(reading[:, people]):.1f}, rooms {spread(reading[:, rooms]):.1f}")
assert spread(addressing[:, people]) > 3 * spread(addressing[:, rooms])
assert spread(reading[:, rooms]) > 2 * spread(reading[:, people])

# %% [markdown]
# The Transformer (Vaswani et al., 2017) makes all three vectors of the same inputs: what asks is a *query* (here $u$), what it is compared with a *key*
# ($m_i$), what is read a *value* ($c_i$). Other machines of 2014 and 2015 also *write* to the memory that they read by a softmax: the neural Turing machine (Graves et
# al., 2014), or a stack whose push and pop are soft (Joulin and Mikolov, 2015).

# %% [markdown]
# ## Try it
#
# 1. Translate sentences of your own: `translation_world.translate("the young king ...")` says what Orrish would, and its messages say which words there are.
#    Draw them with `draw_lines` and `draw_alignment`. How long a sentence does each model stand?
# 2. Train the fixed vector four times as long (`STEPS = 1200`, for it alone), or make it wider (`hidden=128`). Does its curve become level, or only
#    higher?
# 3. A mistake to make: in `Translator.read` leave out the packing (`self.encoder(embedded)`). The loss hardly moves. Which test fails, and what
#    does the backward direction see first?
# 4. Another: let the mask say True everywhere. Look at the alignment matrices of a short sentence translated beside a long one.
# 5. Tie the memory's embeddings, `self.C = self.A`. It still learns: what do the two matrices look like now? Take out `T_A`, and ask which of its
#    answers become wrong.
# 6. Ask the feed-forward network for the *first* marked number alone. Why can it not learn this, and what would you add to its inputs?
#
# ## What to remember
#
# - A fixed vector holds a short sentence and loses a long one; attention keeps every word and reads when it needs to.
# - Attention is: score each input against a context, softmax, weighted mean. Everything else is what the inputs, the context and the score are.
# - Additive and dot-product scores both work; mask what is not there before the softmax.
# - The weights can be drawn: an alignment that nobody taught. They show where the model looked, no more.
# - It needs no recurrence, and what is scored need not be what is averaged. The captioner looks at an image in just this way: notebook 04.
#
# ## References
#
# - K. Cho, B. van Merrienboer, D. Bahdanau, Y. Bengio. On the properties of neural machine translation: encoder-decoder approaches. SSST-8, 2014.
# - I. Sutskever, O. Vinyals, Q. V. Le. Sequence to sequence learning with neural networks. NIPS 2014.
# - D. Bahdanau, K. Cho, Y. Bengio. Neural machine translation by jointly learning to align and translate. ICLR 2015.
# - M.-T. Luong, H. Pham, C. D. Manning. Effective approaches to attention-based neural machine translation. EMNLP 2015.
# - K. Cho, A. Courville, Y. Bengio. Describing multimedia content using attention-based encoder-decoder networks. IEEE Transactions on Multimedia, 2015.
# - C. Raffel, D. P. W. Ellis. Feed-forward networks with attention can solve some long-term memory problems. arXiv:1512.08756, 2015.
# - S. Sukhbaatar, A. Szlam, J. Weston, R. Fergus. End-to-end memory networks. NIPS 2015.
# - S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9(8), 1997.
# - L. Itti, C. Koch, E. Niebur. A model of saliency-based visual attention for rapid scene analysis. IEEE PAMI 20(11), 1998.
# - A. Graves, G. Wayne, I. Danihelka. Neural Turing machines. arXiv:1410.5401, 2014.
# - A. Joulin, T. Mikolov. Inferring algorithmic patterns with stack-augmented recurrent nets. NIPS 2015.
# - A. Vaswani et al. Attention is all you need. NIPS 2017.
