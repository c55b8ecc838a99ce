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
# "Show, Attend and Tell" takes its attention from a translator: in September 2014 Bahdanau, Cho and Bengio used
# attention to translate sentences. (Attention to parts of an image is older still: Mnih et al. published "Recurrent
# models of visual attention" in June 2014.) In this notebook you build the translator, train it, and check where it
# looks.
# <!-- source: is older still | V. Mnih et al., arXiv:1406.6247, June 2014; D. Bahdanau et al., arXiv:1409.0473, September 2014 -->
#
# **You will be able to**
#
# - say what attention computes, in three lines, and compute it by hand;
# - write an encoder, additive attention, a decoder and their training loop;
# - measure how much a fixed vector costs a translator on long sentences;
# - read an alignment matrix, and compare it with the truth and with two baselines;
# - recognise attention in a network without recurrence and in a memory network.
#
# **Minutes**: 30 to read, 0.9 to run on two CPU cores. **Memory**: 1.1 GB. **Needs**: no earlier notebook; nothing to
# download.

# %%
import copy
import math
import random
from pathlib import Path

import ipywidgets
import matplotlib.pyplot as plt
import torch
from IPython.display import display
from matplotlib.patches import Rectangle
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from satcourse.lessons import translation, translation_world
from satlib.data.datasets import data_root
from satlib.data.text import Vocabulary, tokenise
from satlib.evaluation import metrics
from satlib.evaluation.plots import INK
from satlib.model import attention

plt.style.use("satcourse.page")
BLUE, VERMILION = "C0", "C5"

# %% [markdown]
# ## A small world to translate
#
# We use an invented language, **Orrish**, because we know all of its rules. A noun ends in *-o* or *-a*. Its determiner
# and adjectives take the same ending. In the plural they all add *-n*, as does the noun. Adjectives follow the noun,
# prepositions follow their noun phrase, and the verb stands at the end of its clause. "A" is not translated. "Does not"
# is one word, after the verb.
#
# `translation_world.translate` translates an English sentence. For each Orrish word it also gives the English word
# behind it.

# %%
# NBVAL_CHECK_OUTPUT
for english in ("the dog sleeps", "my small red cat sees the dog", "every queen does not want a tall tower"):
    print(f"{english:40} {' '.join(word.text for word in translation_world.translate(english))}")

# %% [markdown]
# The two languages order their words differently. A line joins each Orrish word to its English word. Where lines cross,
# a translator cannot simply go word by word from left to right.


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
# We train on 5,000 sentences of 3 to 20 English words and test on 460 others. Each vocabulary has two special words,
# for the end of a sentence and for an unknown word.

# %%
everything = translation_world.pairs(5460, seed=0, shortest=3, longest=20)
test_pairs, train_pairs = everything[:460], everything[460:]
assert len(train_pairs) == 5000
english, orrish = (Vocabulary.from_captions(pair[side] for pair in train_pairs) for side in (0, 1))
assert not {pair.source for pair in train_pairs} & {pair.source for pair in test_pairs}
print(f"{len(english)} English words and {len(orrish)} Orrish words, including two special words in each vocabulary")

# %% [markdown]
# ## A sentence in one vector
#
# <!-- index: claim: a fixed vector loses long sentences | one vector for the whole sentence, z_t = [h_L forward; h_1 backward] | satcourse.lessons.translation.Translator | tests/test_translation.py::test_without_attention_one_vector_is_all_that_the_decoder_gets -->
#
# The early neural translators (Sutskever et al., 2014; Cho et al., 2014) have two parts. The **encoder** is a recurrent
# network that reads the sentence $x_1 \dots x_L$. Its last state represents the whole sentence. The **decoder** is
# another recurrent network. It writes the translation $y_1 \dots y_C$. Our encoder reads in both directions, and the
# decoder gets both last states at each step:
#
# $$ z = [\overrightarrow{h}_L ; \overleftarrow{h}_1], \qquad s_t = \mathrm{GRU}([E y_{t-1}; z],\, s_{t-1}), \qquad
# p(y_t) \propto \exp\left(W [E y_{t-1}; s_t; z]\right) $$
#
# $E y$ is the embedding of word $y$, $s_t$ is the decoder's state, and $W$ is the matrix of the output layer.
#
# Here is the encoder. It returns all of its states, a mask that is true at words, and the last states as one vector.


# %%
class Encoder(nn.Module):
    """A bidirectional GRU over the source words."""

    def __init__(self, words: int, embedding: int = 48, hidden: int = 64) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.gru = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids x (B, L), lengths (B,) -> states a (B, L, D), mask (B, L), last states (B, D)."""
        # Packing makes the backward direction start at each sentence's last word, not at the padding.
        packed = pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
        packed, last = self.gru(packed)
        a, _ = pad_packed_sequence(packed, batch_first=True)
        mask = torch.arange(a.shape[1]) < lengths.unsqueeze(1)
        return a, mask, torch.cat([last[0], last[1]], dim=1)


# %% [markdown]
# The decoder asks a small module, `look`, for its vector $z$. For now `look` returns the fixed vector at each step.
# Later we change this module and nothing else.


# %%
class OneVector(nn.Module):
    """No attention: the same vector at each step."""

    def keys(self, a: Tensor) -> None:
        return None

    def forward(self, a: Tensor, keys: None, mask: Tensor, fixed: Tensor, s: Tensor) -> tuple[Tensor, None]:
        return fixed, None


class Decoder(nn.Module):
    """A GRU that writes the translation."""

    def __init__(self, words: int, look: nn.Module, embedding: int = 48, D: int = 128) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, embedding)
        self.look = look
        self.initial = nn.Linear(D, D)
        self.cell = nn.GRUCell(embedding + D, D)
        self.output = nn.Linear(embedding + D + D, words)

    def forward(self, a: Tensor, mask: Tensor, fixed: Tensor, y: Tensor) -> Tensor:
        """Teacher forcing: logits (B, C, K) of each word of y (B, C), given the true words before it."""
        s, keys, logits = torch.tanh(self.initial(fixed)), self.look.keys(a), []
        E = self.embedding(y[:, :-1].clamp(min=0))
        E = torch.cat([torch.zeros_like(E[:, :1]), E], dim=1)  # no word comes before the first
        for Ey in E.unbind(1):
            z, _ = self.look(a, keys, mask, fixed, s)
            s = self.cell(torch.cat([Ey, z], dim=1), s)
            logits.append(torch.cat([Ey, s, z], dim=1))
        return self.output(torch.stack(logits, dim=1))


# %% [markdown]
# The training loop is the usual one: Adam minimises the negative log-likelihood of the true next word. A batch holds
# sentences of similar length. The first epoch goes from short sentences to long ones; later epochs shuffle the batches.

# %%
STEPS, BATCH, RATE = 1000, 32, 0.01
PADDING = -1
data = [(translation.ids(english, pair.source), translation.ids(orrish, pair.target)) for pair in train_pairs]


def collate(sentences: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    """Pad a batch: x (B, L), lengths (B,), y (B, C)."""
    x, y = zip(*sentences)
    lengths = torch.tensor([len(one) for one in x])
    return pad_sequence(x, batch_first=True), lengths, pad_sequence(y, batch_first=True, padding_value=PADDING)


def initialise(model: nn.Module) -> None:
    """Orthogonal recurrent weights, as in Bahdanau et al.; Xavier for the other matrices."""
    for name, weight in model.named_parameters():
        if "weight_hh" in name:
            for gate in weight.data.chunk(3):
                nn.init.orthogonal_(gate)
        elif weight.dim() == 2 and "embedding" not in name:
            nn.init.xavier_uniform_(weight)


def fit(look: nn.Module, seed: int = 0) -> nn.ModuleDict:
    """Train an encoder and a decoder; print the loss twice on the way."""
    torch.manual_seed(seed)
    model = nn.ModuleDict({"encoder": Encoder(len(english)), "decoder": Decoder(len(orrish), look)})
    initialise(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda done: min(10 * (done + 1) / STEPS, 0.5 + 0.5 * math.cos(math.pi * done / STEPS))
    )
    ordered = sorted(data, key=lambda pair: len(pair[0]))
    batches = [ordered[start : start + BATCH] for start in range(0, len(ordered), BATCH)]
    shuffle, losses = random.Random(seed), []
    for step in range(STEPS):
        if step and step % len(batches) == 0:
            shuffle.shuffle(batches)
        x, lengths, y = collate(batches[step % len(batches)])
        logits = model["decoder"](*model["encoder"](x, lengths), y)
        loss = cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=PADDING)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
        if (step + 1) % (STEPS // 2) == 0:
            print(f"step {step + 1}, {sum(losses[-50:]) / len(losses[-50:]):.2f} nats per word")
    return model


fixed_parts = fit(OneVector())

# %% [markdown]
# `satcourse.lessons.translation.Translator` is the same model with a greedy search on top: at each step it writes the most
# probable word. We copy our weights into it. Both models must then give the same logits.
# <!-- source: the most probable word | satcourse/lessons/translation.py, translate -->


# %%
def packaged(parts: nn.ModuleDict, kind: str) -> translation.Translator:
    """satlib's translator with the weights of ours."""
    names = {
        "encoder.embedding.": "source_embedding.",
        "encoder.gru.": "encoder.",
        "decoder.embedding.": "target_embedding.",
        "decoder.look.W_a.": "energy.annotation.",
        "decoder.look.W_s.": "energy.state.",
        "decoder.look.v.": "energy.energy.",
        "decoder.": "",
    }
    weights = {}
    for name, weight in parts.state_dict().items():
        ours = next(ours for ours in names if name.startswith(ours))
        weights[names[ours] + name.removeprefix(ours)] = weight
    model = translation.Translator(english, orrish, kind)
    model.load_state_dict(weights)
    return model.eval()


def compare(parts: nn.ModuleDict, model: translation.Translator) -> float:
    """The largest difference between the two models' logits on eight training sentences."""
    x, lengths, y = collate(data[:8])
    with torch.no_grad():
        ours = parts["decoder"](*parts["encoder"](x, lengths), y)
        theirs = model([source for source, _ in data[:8]], y)
    return float((ours - theirs)[y != PADDING].abs().max())


fixed = packaged(fixed_parts, "none")
difference = compare(fixed_parts, fixed)
print(f"largest difference between logits: {difference:.1e}")
assert difference < 1e-3, "Both models must then give the same logits"

# %% [markdown]
# ### How long a sentence can it handle?
#
# We measure with BLEU-4. It measures how many of the translation's runs of up to four words also occur in the
# reference, and it penalises short translations (notebook 07 takes it apart). A reference needs four words to have a run
# of four. Orrish has no word for "a", so its sentences can have few words. So we use English sentences of six words or
# more.
#
# **Write down two numbers**: the BLEU-4 of the fixed vector for 6 to 8 words, and for 17 to 20 words.

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
    styles = {"fixed vector": (VERMILION, "s", "--"), "additive attention": (BLUE, "o", "-")}
    for name, values in curves.items():
        color, marker, dash = styles[name]
        axis.plot(range(len(GROUPS)), values, dash, color=color, marker=marker, linewidth=2, markersize=7, label=name)
    axis.set_xticks(range(len(GROUPS)), [f"{low} to {high}" for low, high in GROUPS])
    axis.set(xlabel="words in the English sentence", ylabel="BLEU-4 (percent)", ylim=(0, 102))
    axis.grid()
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False)


assert all(len(pair.target.split()) >= 4 for pair in test_pairs if len(pair.source.split()) >= GROUPS[0][0])
curves = {"fixed vector": bleu_by_length(fixed, test_pairs)}
figure, axis = plt.subplots(figsize=(5.6, 3.2), dpi=90, layout="constrained")
draw_bleu(axis, curves)
print("BLEU-4:", " ".join(f"{value:.1f}" for value in curves["fixed vector"]))
assert curves["fixed vector"][0] > curves["fixed vector"][-1] + 20, "Long sentences score worse than short ones"

# %% [markdown]
# <details><summary>Answer</summary>
#
# The printed list has both numbers: the first and the last. Long sentences score worse than short ones, although the
# model trained on both.
#
# </details>
#
# Here is one long sentence:

# %%
long = next(pair for pair in test_pairs if len(pair.source.split()) == 18)
said = translation.translate(fixed, [long.source])[0].words
print("English:     ", long.source)
print("Orrish:      ", long.target)
print("fixed vector:", " ".join(said))
print(f"{len(said)} words for {len(long.target.split())}")

# %% [markdown]
# ## What attention computes
#
# <!-- index: claim: weights are a softmax of scores | softmax of the scores of (input, context); the output is the inputs' weighted mean | satlib.model.attention.SoftAttention | tests/test_attention.py::test_weights_and_context_by_hand -->
#
# Bahdanau, Cho and Bengio (2015) let the decoder look at all the encoder's states. Before each word it decides again
# which of them matter. The computation has nothing to do with sentences. Attention takes **inputs** $y_1 \dots y_n$
# (here any vectors, not the words of a translation) and a **context** $c$, which says what is wanted now. It
#
# 1. scores each input against the context, $e_i = \mathrm{score}(y_i, c)$, independently of the other inputs;
# 2. turns scores into weights that are positive and sum to one, $\alpha_i = e^{e_i} / \sum_j e^{e_j}$: a **softmax**;
# 3. returns the weighted mean $z = \sum_i \alpha_i y_i$.
#
# | here | in a translator | in the captioner of this course |
# | --- | --- | --- |
# | input $y_i$ | $a_i$, the encoder's state at word $i$ | $a_i$, the features of place $i$ |
# | context $c$ | $s_{t-1}$, the decoder's state | $h_{t-1}$, the decoder's state |
# | score $e_i$, weight $\alpha_i$ | $e_{ti}$, $\alpha_{ti}$ at word $t$ | $e_{ti}$, $\alpha_{ti}$ at word $t$ |
# | output $z$ | context vector $z_t$ (Bahdanau et al. write $c$) | context vector $\hat{z}_t$ |
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
# Multiply the context by a number, and all dot-product scores are multiplied by it. **Write down two points**: where is
# $z$ with 0, and where with 30? In the picture, the dots are the inputs, larger with more weight. The arrow has the
# direction of the context, and the star is $z$.

# %%
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), dpi=90, layout="constrained", sharey=True)
outputs = {}
for axis, factor in zip(axes, (0, 1, 3, 30)):
    z, weights = attend(inputs, factor * context, dot)
    outputs[factor] = z
    axis.scatter(*inputs.T, s=30 + 500 * weights, color=BLUE, alpha=0.8, label="inputs")
    for y_i, weight in zip(inputs, weights):
        axis.annotate(f"{weight:.2f}", y_i, xytext=(0, -19), textcoords="offset points", ha="center", fontsize=9)
    axis.annotate("", 0.6 * context, (0, 0), arrowprops={"arrowstyle": "->", "color": INK, "linewidth": 1.8})
    axis.scatter(*z, marker="*", s=170, color=VERMILION, edgecolor=INK, linewidth=0.6, zorder=3, label="z")
    axis.set(title=f"context times {factor}", xlim=(-1.4, 1.5), ylim=(-1.3, 1.4), aspect="equal")
    axis.set_xticks([])
    axis.set_yticks([])
figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)

torch.testing.assert_close(outputs[0], inputs.mean(0))  # no preference: the plain mean
torch.testing.assert_close(outputs[30], inputs[0], atol=1e-3, rtol=0)
assert torch.dist(outputs[0], inputs.mean(0)) < 1e-5, "With 0, z equals the plain mean"
assert torch.dist(outputs[30], inputs[0]) < 1e-2, "z lies on the input with the highest score"

# %% [markdown]
# <details><summary>Answer</summary>
#
# With 0, $z$ equals the plain mean. With the large number, $z$ lies on the input with the highest score. In between,
# several inputs share the weight. Gradients pass through a softmax, so the network can learn where to look (Bahdanau et
# al., 2015, section 3.1). The gradient of an argmax is zero almost everywhere.
#
# </details>
#
# ## Two ways to score
#
# <!-- index: claim: dot and additive scores | y_i . c against v . tanh(W_a y_i + W_h c + b) | satlib.model.attention.AdditiveEnergy | tests/test_attention.py::test_energy_equals_a_loop_over_places -->
#
# The score may be any function of an input and the context. We compare two:
#
# $$ \text{dot product: } e_i = y_i^\top c \qquad\qquad \text{additive: } e_i = v^\top \tanh(W_a y_i + W_h c + b) $$
#
# The dot product (Luong et al., 2015) has nothing to learn; inputs and context need one common size. The additive score
# (Bahdanau et al., 2015, and the captioner's $f_{att}$ in Xu et al., 2015, equation 4) is a small network with one
# hidden layer.
#
# For a given context, the dot product is a linear function of the input: a *plane*. Four hidden units can make a
# *hill* instead. For each of the two coordinates, let $u$ be the input's coordinate minus the context's. We add up
# $\tanh(2u + 1) - \tanh(2u - 1)$, which peaks at $u = 0$. Take all points with coordinates from -2 to 2 as inputs.
# **Predict**: which of them would each score choose?

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
    axis.contour(line, line, surface, levels=12, colors=INK, linewidths=0.4)
    axis.scatter(*context, marker="X", s=90, color=VERMILION, edgecolor=INK, label="context")
    axis.set(title=name, xlabel="first coordinate", aspect="equal")
    figure.colorbar(shown, ax=axis, shrink=0.85)
axes[0].set_ylabel("second coordinate")
axes[0].legend(loc="lower right", fontsize=9, frameon=True, facecolor="white", framealpha=1)

best = {name: grid[values.argmax()] for name, values in scores.items()}
torch.testing.assert_close(best["dot product"], torch.tensor([2.0, 2.0]))  # a corner
torch.testing.assert_close(best["additive, with these weights"], context, atol=0.05, rtol=0)  # the context itself

# %% [markdown]
# <details><summary>Answer</summary>
#
# Lighter is higher, and the cross is the context. The dot product goes as far in the direction of the
# context as the square allows, to a corner. The hill chooses the context's own place.
#
# </details>
#
# ## Words that are not there
#
# Sentences in a batch have different lengths, so the short ones are padded. A softmax gives weight to padding too. So
# we set the scores of the padding to $-\infty$ before the softmax: $e^{-\infty} = 0$. The captioner needs no mask: all
# its images have the same number of places.

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
# ## The translator with attention
#
# Now the decoder looks at all the encoder's states, $a_i = [\overrightarrow{h}_i; \overleftarrow{h}_i]$. Before each
# word it scores them against its own previous state $s_{t-1}$, and takes their weighted mean:
#
# $$ e_{ti} = v^\top \tanh(W_a a_i + W_s s_{t-1} + b), \qquad \alpha_{ti} = \frac{\exp e_{ti}}{\sum_k \exp e_{tk}}, \qquad
# z_t = \sum_i \alpha_{ti} a_i $$
#
# The class is short. `keys` computes $W_a a_i + b$ once for a sentence, because it does not depend on $t$.


# %%
class AdditiveAttention(nn.Module):
    """Bahdanau's attention."""

    def __init__(self, D: int = 128, hidden: int = 64) -> None:
        super().__init__()
        self.W_a = nn.Linear(D, hidden)
        self.W_s = nn.Linear(D, hidden, bias=False)
        self.v = nn.Linear(hidden, 1, bias=False)

    def keys(self, a: Tensor) -> Tensor:
        return self.W_a(a)

    def forward(self, a: Tensor, keys: Tensor, mask: Tensor, fixed: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """States a (B, L, D), s (B, D) -> z (B, D), alpha (B, L)."""
        e = self.v(torch.tanh(keys + self.W_s(s).unsqueeze(1))).squeeze(2)
        alpha = torch.softmax(e.masked_fill(~mask, -math.inf), dim=1)
        return torch.bmm(alpha.unsqueeze(1), a).squeeze(1), alpha


torch.manual_seed(0)
look, s_0 = AdditiveAttention(), torch.randn(1, 128)
a = torch.randn(1, 4, 128)
with torch.no_grad():
    z, alpha = look(a, look.keys(a), torch.ones(1, 4, dtype=torch.bool), None, s_0)
    by_hand = attend(a[0], s_0[0], lambda a_i, s: float(look.v(torch.tanh(look.W_a(a_i) + look.W_s(s)))))
torch.testing.assert_close(z[0], by_hand[0])
torch.testing.assert_close(alpha[0], by_hand[1])

# %% [markdown]
# We train it with the same loop for the same number of steps, and copy the weights into satlib's translator again.
#
# **Write down a number**: the BLEU-4 of attention on the last of the four groups of sentences.

# %% tags=["docs:length"]
attentive_parts = fit(AdditiveAttention())
attentive = packaged(attentive_parts, "additive")
difference = compare(attentive_parts, attentive)
print(f"largest difference between our logits and satlib's: {difference:.1e}")
assert difference < 1e-3
curves["additive attention"] = bleu_by_length(attentive, test_pairs)
figure, axis = plt.subplots(figsize=(5.6, 3.4), dpi=90, layout="constrained")
draw_bleu(axis, curves)
for name, values in curves.items():
    print(f"{name:22}", " ".join(f"{value:5.1f}" for value in values))
test_said = translation.translate(attentive, [pair.source for pair in test_pairs])
correct = sum(" ".join(one.words) == pair.target for one, pair in zip(test_said, test_pairs)) / len(test_pairs)
print(f"test sentences without an error: {correct:.0%}")
assert correct > 0.7
assert curves["additive attention"][-1] > curves["fixed vector"][-1] + 25, (
    "attention beats the fixed vector on long sentences"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The last number of the second row is the answer: attention beats the fixed vector on long sentences. The last line
# shows how many test sentences attention translates without a single wrong word.
#
# </details>

# %% [markdown]
# ### Your own sentence pairs
#
# Put a file `pairs.tsv` in the data folder: `data/`, or the folder that the environment variable SATLIB_DATA names.
# Each line is a sentence, a tab and its translation. Further columns are ignored. Sentence pairs from the Tatoeba
# project are published in this form. The next cell then trains both translators on it, on a GPU if there is one. This
# takes a long time.
# <!-- source: are published in this form | satcourse/lessons/translation.py, read_pairs -->

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
# <!-- index: claim: alignment is readable | the weights alpha_ti as a matrix, target words by source words | satcourse.lessons.translation_world.translate | tests/test_translation.py::test_hand_made_pairs -->
#
# Each row shows the weights $\alpha_{ti}$ before one Orrish word. The model saw only pairs of sentences; nobody told it
# which word belongs to which. We know, so we frame the true place of each correct word. Dark blue is a large weight.


# %%
def draw_alignment(axis: plt.Axes, english: str, found: translation.Translation, title: str) -> None:
    """Weights (C, L) of a translation; the true source of each word framed, where the word is right."""
    words, true = english.split(), translation_world.translate(english)
    axis.imshow(found.alphas, cmap="Blues", vmin=0, vmax=1, aspect="auto")
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
found = translation.translate(attentive, [sentence])[0]
figure, axis = plt.subplots(figsize=(5.4, 4.4), dpi=90, layout="constrained")
draw_alignment(axis, sentence, found, "additive attention")
wrong = sum(one != true.text for one, true in zip(found.words, translation_world.translate(sentence)))
print("wrong words:", wrong)

# %% [markdown]
# How good is this alignment over all test sentences? Two baselines help to judge it. *Chance* picks a place at random.
# The *diagonal* picks the place at the same relative position: the middle word of one sentence for the middle word of
# the other.
#
# **Write down two numbers**: how often does the diagonal hit the true word, and how often does attention? Count correct
# words only.

# %%
hits = {"attention": [], "diagonal": []}  # distances from the true place
chance = []
for pair, one in zip(test_pairs, test_said):
    true, L = translation_world.translate(pair.source), len(pair.source.split())
    for t, (word, text, alpha) in enumerate(zip(true, one.words, one.alphas)):
        if text == word.text:
            hits["attention"].append(abs(int(alpha.argmax()) - word.source))
            hits["diagonal"].append(abs(round((t + 0.5) * L / len(true) - 0.5) - word.source))
            chance.append(1 / L)


def share(distances: list[int], within: int) -> float:
    """How many are at most this far from the true place."""
    return sum(distance <= within for distance in distances) / len(distances)


for name, distances in hits.items():
    print(f"{name:10} on the true word {share(distances, 0):.0%}, or beside it {share(distances, 1):.0%}")
print(f"{'chance':10} on the true word {sum(chance) / len(chance):.0%}")
assert share(hits["attention"], 0) > share(hits["diagonal"], 0) + 0.1, (
    "Attention hits the true word more often than the diagonal"
)
assert share(hits["diagonal"], 0) > sum(chance) / len(chance) + 0.1, "the diagonal hits it more often than chance"

# %% [markdown]
# <details><summary>Answer</summary>
#
# Attention hits the true word more often than the diagonal, and the diagonal hits it more often than chance. So compare
# an alignment with the diagonal before you praise it. The matrix above has no wrong word, yet some of its rows are dark
# outside their frame. One possible reason: the encoder's state at one word also carries information about other words.
# The matrix shows where the model looked. It does not prove what the model needed.
#
# </details>
#
# ### Move the temperature
#
# Divide all scores by a temperature $T$ before the softmax: $\alpha_{ti} = \exp(e_{ti} / T) / \sum_k \exp(e_{tk} / T)$.
# The model was trained with $T = 1$. **Write down a number**: at $T = 4$, what percentage of the test sentences with
# six words or more has no error? Move the slider, and watch the words on the left.


# %%
def at_temperature(T: float) -> translation.Translator:
    """A copy of the trained translator, its scores divided by T."""
    model = copy.deepcopy(attentive)
    model.energy.energy.weight.data /= T  # e = v . tanh(...), so e / T = (v / T) . tanh(...)
    return model


def at(T: float) -> translation.Translation:
    return translation.translate(at_temperature(T), [sentence])[0]


slider = ipywidgets.FloatSlider(value=1.0, min=0.2, max=8.0, step=0.2, description="T", continuous_update=False)
output = ipywidgets.Output()


def show(change: dict | None = None) -> None:
    with output:
        output.clear_output(wait=True)
        figure, axis = plt.subplots(figsize=(5.4, 4.4), dpi=90, layout="constrained")
        draw_alignment(axis, sentence, at(slider.value), f"T = {slider.value:.1f}")
        display(figure)
        plt.close(figure)


slider.observe(show, names="value")
show()
display(ipywidgets.VBox([slider, output]))

# %% [markdown]
# On a page without widgets, look at these three temperatures.

# %%
figure, axes = plt.subplots(1, 3, figsize=(11, 4.4), dpi=80, layout="constrained")
for axis, T in zip(axes, (0.5, 1.0, 4.0)):
    draw_alignment(axis, sentence, at(T), f"T = {T}")
group = [pair for pair in test_pairs if len(pair.source.split()) >= 6]
blurred = {}
for T in (0.5, 1.0, 4.0):
    answers = translation.translate(at_temperature(T), [pair.source for pair in group])
    blurred[T] = sum(" ".join(one.words) == pair.target for one, pair in zip(answers, group)) / len(group)
    print(f"T = {T}: {blurred[T]:.0%} of the longer test sentences without an error")
assert blurred[4.0] < blurred[1.0] - 0.2, "At T = 4 fewer sentences are right than at T = 1"

# %% [markdown]
# <details><summary>Answer</summary>
#
# At $T = 4$ fewer sentences are right than at $T = 1$: the weights spread, and the mean mixes the words.
# At $T = 0.5$ the weights are sharper, but again fewer sentences are right.
#
# </details>
#
# ## Attention without recurrence
#
# <!-- index: claim: attention without recurrence solves long-term memory | scores a(h_t) of each input alone, weighted mean, no recurrent network | satlib.model.attention.SoftAttention | tests/test_attention.py::test_weights_are_a_distribution_and_follow_the_places -->
#
# Raffel and Ellis (2015) keep attention and drop the recurrent network. Each input $x_t$ becomes $h_t$ on its own. The
# score has no context, only a learned direction:
#
# $$ h_t = \mathrm{LReLU}(W_{xh} x_t + b_{xh}), \quad e_t = a(h_t) = W_{hc} h_t + b_{hc}, \quad \alpha_t = \frac{\exp e_t}{\sum_k \exp e_k},
# \quad c = \sum_t \alpha_t h_t, $$
# $$ s = \mathrm{LReLU}(W_{cs} c + b_{cs}), \qquad y = W_{sy} s + b_{sy} $$
#
# The $c$ in these formulas is not a context. It is the weighted mean that attention returns, which we call $z$. (LReLU
# is the leaky ReLU. They put a $\tanh$ around the score; we leave it out.) One of their test tasks is *addition*
# (Hochreiter and Schmidhuber, 1997). The input is a long sequence of random numbers, two of them marked. The answer is
# $0.5 + (m_1 + m_2) / 4$, where $m_1$ and $m_2$ are the marked numbers. A prediction is right if it is within 0.04 of
# the answer.


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
# We train two networks on sequences of 20 to 200 numbers: one learns its scores, the other has scores of zero, which
# gives the plain mean. **Write down two numbers**: how many answers does each get right at length 200, in percent?

# %%
SCORES = {
    "mean (no scores)": torch.zeros_like,
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
styles = dict(zip(SCORES, ((VERMILION, "s", "--"), (BLUE, "o", "-"))))
figure, (left, right_axis) = plt.subplots(1, 2, figsize=(10, 3), dpi=90, layout="constrained")
for name, (_, shares) in memories.items():
    color, marker, dash = styles[name]
    left.plot(LENGTHS, [100 * share for share in shares], dash, color=color, marker=marker, linewidth=2, label=name)
left.set(
    xlabel="numbers in the sequence", ylabel="answers within 0.04 (percent)", ylim=(0, 103), yticks=range(0, 101, 25)
)
left.grid()
left.legend(frameon=False, loc="center right", fontsize=9)

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
        arrowprops={"arrowstyle": "->", "color": INK},
    )
right_axis.set(
    xlabel="place in the sequence", ylabel="weight", title=f"answer {float(answer):.3f}, true {float(y):.3f}"
)
right_axis.set_xticks((0, 50, 100))
right_axis.xaxis.labelpad = 14

plain, mean = memories["attention, plain scores"][1], memories["mean (no scores)"][1]
print(f"right at length 200: attention {plain[-1]:.0%}, plain mean {mean[-1]:.0%}")
assert min(plain) > 0.7
assert plain[-1] > mean[-1] + 0.3, "attention gives more right answers than the plain mean"

# %% [markdown]
# <details><summary>Answer</summary>
#
# At length 200 attention gives more right answers than the plain mean. In the sequence on the right, the two tall bars
# stand at the marked numbers. The plain mean gives each number the same weight, marked or not, and that weight depends
# on the length. To undo this, the network would have to multiply by the length. Ours has not learned
# that: its curve peaks at 50.
#
# </details>
#
# The network does not know the order of its inputs. Shuffle the sequence, and the answer stays the same:

# %%
shuffled = x[:, torch.randperm(100)]
with torch.no_grad():
    torch.testing.assert_close(model(shuffled)[0], answer)

# %% [markdown]
# ## A memory network
#
# <!-- index: claim: memory addressing is attention with separate embeddings | p = softmax(u . m_i) over addresses m = A x, o = sum_i p_i c_i over contents c = C x | satlib.model.attention.SoftAttention | tests/test_translation.py::test_scores_from_one_embedding_and_the_mean_of_another -->
#
# An end-to-end memory network (Sukhbaatar et al., 2015) stores sentences $x_i$ and answers a question $q$. It has two
# embeddings of each sentence. $A$ gives the **address** $m_i$, which is compared with the question. $C$ gives the
# **content** $c_i$, which is read. Both are sums over the sentence's words $x_{ij}$, plus a vector for the sentence's
# position:
#
# $$ m_i = \sum_j A x_{ij} + T_A(i), \quad c_i = \sum_j C x_{ij} + T_C(i), \quad u = B q, \quad p_i = \mathrm{softmax}(u^\top m_i),
# \quad o = \sum_i p_i c_i, \quad \hat{a} = \mathrm{softmax}(W(o + u)) $$
#
# This is attention again: inputs, a context, a softmax of dot products, a weighted mean. What is new: the network
# scores one vector and averages another. Our stories have ten sentences like "Mary is in the garden". People move, and
# "Where is Mary?" asks for her last place.

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
# We train on the answers alone. Nobody tells the network which sentence to read. **Write down a number**: in how many
# of 100 new stories does the right sentence get the largest weight?


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
print(f"right answers: {answered:.1%}; the largest weight is on the sentence with the answer in {read:.1%}")
assert answered > 0.97
assert read > 0.97

# %% [markdown]
# Left: one story, with the weight of each sentence. Middle: what a word adds to a sentence's score when the question
# names a person, $u^\top A x$. Right: what a word adds to the answers when its sentence is read, $W C x$. Purple adds
# and orange takes away.

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
# Do addresses care about people or about rooms? And contents? We measure how much the entries of a row differ.


# %%
def spread(matrix: Tensor) -> float:
    """How much a row's entries differ from word to word, on average."""
    return float(matrix.std(dim=1).mean())


people, rooms = slice(0, len(PEOPLE)), slice(len(PEOPLE), None)
print(f"addresses: people {spread(addressing[:, people]):.1f}, rooms {spread(addressing[:, rooms]):.1f}")
print(f"contents:  people {spread(reading[:, people]):.1f}, rooms {spread(reading[:, rooms]):.1f}")
assert spread(addressing[:, people]) > 3 * spread(addressing[:, rooms]), "The addresses separate people more than rooms"
assert spread(reading[:, rooms]) > 2 * spread(reading[:, people]), "the contents separate rooms more than people"

# %% [markdown]
# The addresses separate people more than rooms; the contents separate rooms more than people.
#
# The Transformer (Vaswani et al., 2017) makes three vectors from each input: a *query* asks (here $u$), a *key* is
# compared with it ($m_i$), and a *value* is read ($c_i$).

# %% [markdown]
# ## Try it
#
# 1. Translate your own sentences: `translation_world.translate("the young king ...")` gives the true Orrish. If it does
#    not know a word, its error message names some of the words that may stand there. Draw a sentence with `draw_lines`,
#    and the attention model's translation, `translation.translate(attentive, [sentence])[0]`, with `draw_alignment`.
#    (The fixed vector has no weights to draw.) How long a sentence can each model handle?
# 2. Train the fixed vector with `STEPS = 4000`. Or make it wider: set `hidden=128` in `Encoder` and `D=256` in
#    `Decoder`, and in `packaged` give `Translator` `hidden=128`. Then stop after the first curve: the attention module
#    still has its old width. Is the curve flat now, or only higher?
# 3. A mistake to make: in `Encoder.forward`, replace the three lines of the packing by `a, last =
#    self.gru(self.embedding(x))`. Run this cell and the ones after it, up to `compare`. What does the backward
#    direction read first? `compare` stops the notebook: how did it find the mistake?
# 4. Another one: put the packing back, and let the mask in `Encoder.forward` be true everywhere: `mask =
#    torch.ones(a.shape[:2], dtype=torch.bool)`. Run the cells that train and compare both models again. Why does
#    `compare` find this mistake only in the model with attention?
# 5. Share the memory's embeddings: put `self.C = self.A` at the end of `__init__`. What do the two matrices look like
#    now? Undo that, and remove `T_A` from both sums, in `forward` and at the end of the cell. An assertion of the
#    training cell then fails, after the numbers. Which answers are wrong? Look at stories that name the person once,
#    twice and so on: `(x[:, :, 0] == q[:, None]).sum(1)` counts.
# 6. Ask the feed-forward network for the *first* marked number alone: in `addition`, write `0.5 + numbers.gather(1,
#    marked.min(1, keepdim=True).values).squeeze(1) / 4` in place of `0.5 + (numbers * marks).sum(1) / 4`. (An assertion
#    then fails, after the numbers.) Why can it not learn this? What would you add to its inputs?
# <!-- source: its error message names some of the words that may stand there | tests/test_translation.py -->
#
# ## What to remember
#
# - One fixed vector has to hold the whole sentence. Attention reads the sentence again before each word.
# - Attention scores each input against a context, applies a softmax, and returns the weighted mean.
# - Mask padding before the softmax.
# - You can draw the weights. They show where the model looked; compare them with a diagonal.
# - Attention needs no recurrence, and it may score one vector and average another. Notebook 04 applies it to images.
#
# ## References
#
# - K. Cho, B. van Merrienboer, D. Bahdanau, Y. Bengio. On the properties of neural machine translation: encoder-decoder
#   approaches. SSST-8, 2014.
# - I. Sutskever, O. Vinyals, Q. V. Le. Sequence to sequence learning with neural networks. NIPS 2014.
# - V. Mnih, N. Heess, A. Graves, K. Kavukcuoglu. Recurrent models of visual attention. NIPS 2014.
# - D. Bahdanau, K. Cho, Y. Bengio. Neural machine translation by jointly learning to align and translate. ICLR 2015.
# - M.-T. Luong, H. Pham, C. D. Manning. Effective approaches to attention-based neural machine translation. EMNLP 2015.
# - K. Xu et al. Show, attend and tell: neural image caption generation with visual attention. ICML 2015.
# - C. Raffel, D. P. W. Ellis. Feed-forward networks with attention can solve some long-term memory problems.
#   arXiv:1512.08756, 2015.
# - S. Sukhbaatar, A. Szlam, J. Weston, R. Fergus. End-to-end memory networks. NIPS 2015.
# - S. Hochreiter, J. Schmidhuber. Long short-term memory. Neural Computation 9(8), 1997.
# - A. Vaswani et al. Attention is all you need. NIPS 2017.
