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
# # 9. Training for real
#
# **What may happen to a training of many hours without changing its result?**
#
# So far we have trained models in a cell, within seconds. A real training takes minutes to days. First you write a step that
# fits into little memory, and train with it. Then you stop a run, and divide one between processes: the result must not change. At the end
# you read what real runs did and cost, and judge a timing.
#
# **You will be able to**
#
# - tell within a minute whether a training can work at all;
# - write a training step with warm-up, accumulation, clipping and mixed precision;
# - resume a run bit for bit, divide a step among processes, and judge a timing.
#
# **Time**: 36 minutes to read, 63 more to write, 70 seconds to run. **Memory**: 1.7 GB. **Needs**: notebooks
# 03 and 04; nothing to download.
# **Next**: [notebook 10](10_reading_the_model.ipynb), what maps show.

# %% jupyter={"source_hidden": true}
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from statistics import median

os.environ["TQDM_DISABLE"] = "1"  # no progress bars on this page
warnings.filterwarnings("ignore", "In CPU autocast")  # of float32, which turns it off

import matplotlib.pyplot as plt
import torch
from IPython.display import display
from torch.utils.flop_counter import FlopCounterMode

import satlib
from satcourse.checks import reveal, seal, skip
from satcourse.figures import use_page_style
from satcourse.lessons import counts
from satcourse.widgets.slides import Slides
from satlib import recipe
from satlib.data import features, scenes
from satlib.data.batches import ImageBatches, pairs
from satlib.data.text import Vocabulary
from satlib.evaluation import evaluate, maps, plots, statistics, table
from satlib.model import encoders, installed
from satlib.model.captioner import Captioner
from satlib.recipe import DecoderConfig
from satlib.training import loop
from satlib.training.checkpoint import create_optimiser
from satlib.training.features import extract

use_page_style()
work = Path(tempfile.mkdtemp())
place = installed.device()
print(f"computing on: {torch.cuda.get_device_name() if place.type == 'cuda' else place.type}")

# %%
import math

import torch
from torch import Tensor, nn

from satlib.data.text import PAD
from satlib.model.decoder import Decoder
from satlib.model.objective import word_losses

# %% [markdown]
# ## Before the first step
# <!-- asked: What is perplexity, and is a loss of 2.5 good? | Perplexity is the exponential of the loss; compare with two losses known in advance, ln K and that of the words' frequencies. -->
# <!-- asked: How do I test a training loop (overfit one batch)? | Its first loss is ln K, and one small batch can be learnt by heart, but even with wrong pictures: that shows less than it seems. -->
# <!-- asked: The loss falls: does that show that attention learns (gradient flow)? | No: with the attention cut off from its gradients it falls as well; look at the first gradients of each part. -->
#
# A training loop with a bug seldom crashes. It trains, a little worse than it could. So test it while a test takes seconds, on 500 drawn
# scenes with five captions each. As in the paper the encoder is frozen, and computes its annotation vectors once; unlike the paper's, it
# learned from captions of scenes.

# %% jupyter={"source_hidden": true}
gpu = place.type == "cuda"
SCALE = 1.4  # brings the numbers in the vectors to a size of about 1
drawn = scenes.load(train=4000 if gpu else 500, dev=0, test=100)
mine = recipe.load("scenes-soft", [
    "encoder.name=model:scenes-soft", "encoder.train=false", "encoder.pretrained=true", f"encoder.scale={SCALE}",
    "decoder.attention_hidden=64",
])  # fmt: skip
encoder = encoders.create(mine.encoder.name).to(place)
vectors = extract(drawn, encoder, features.folder(work, drawn, encoder.name), place, progress=False)
training = drawn.split("train")
vocabulary = Vocabulary.from_captions(line for each in training for line in each.references)
every = pairs(
    training, vocabulary, 40
)  # an image id and a caption's word ids each; of at most 40 words
occur = Counter(word for pair in every for word in pair.caption)
print(
    f"{len(every):,} captions, {occur.total():,} words with the end marks, of K = {len(vocabulary)} kinds"
)


def padded(chosen) -> tuple[Tensor, Tensor]:
    """Annotation vectors (B, L, D) and captions (B, C), `PAD` at the end."""
    captions = [torch.tensor(pair.caption) for pair in chosen]
    a = SCALE * vectors.read([pair.image_id for pair in chosen]).float()
    return a, nn.utils.rnn.pad_sequence(captions, batch_first=True, padding_value=PAD)


def small(**settings) -> Decoder:
    """A decoder that trains within seconds."""
    sizes = {"embedding": 64, "hidden": 128, "attention_hidden": 32, "dropout": 0.0}
    return Decoder(DecoderConfig(**sizes | settings), a_few.shape[2], len(vocabulary))


# %% [markdown]
# Two losses are known in advance, in nats per word (the exponential of a loss is the *perplexity*). An untrained model should give all $K$ words the same probability: what is its
# loss? And a model that looks at nothing can still learn how often each word occurs, $p_k$: what is its best loss? If the loss falls below
# that, the model uses the pictures or the order of the words.


# %% tags=["task:9.1"]
def known_losses(counts: Tensor) -> tuple[float, float]:
    """Both losses. counts: how often each of the K words occurs (K,), some perhaps never."""
    # BEGIN SOLUTION
    p = counts / counts.sum()
    seen = p[p > 0]
    return math.log(len(counts)), -(seen * seen.log()).sum().item()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The mean of $-\ln p$ of the words that are said. In the first case each $p$ is $1/K$; in the second a word of frequency $p$ is
# said in a share $p$ of the cases, and one of frequency 0 never.

# %% [markdown]
# Next, train on one small batch again and again. A model with far more weights than the batch has words should learn it by heart, if no two
# captions share a picture: else it cannot know which one to give. `word_losses(logits, captions)` from satlib gives $-\ln p$ of each word, (B, C), and 0 where a shorter caption has `PAD` after its
# end mark; `decoder(a, captions).logits` are the logits.


# %% tags=["task:9.2"]
def overfit(decoder, optimiser, a: Tensor, captions: Tensor, steps: int) -> list[float]:
    """The loss before each step: the mean over all words that are there. a: (B, L, D). captions: (B, C), `PAD` at the end."""
    # BEGIN SOLUTION
    losses = []
    for _ in range(steps):
        loss = word_losses(decoder(a, captions).logits, captions).sum() / (captions != PAD).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `captions != PAD` are the words. Empty the gradients, go backwards, step. Keep `loss.item()`, a number.

# %% jupyter={"source_hidden": true}
uniform, by_frequency = known_losses(
    torch.tensor([float(occur[k]) for k in range(len(vocabulary))])
)
a_few, few = padded([every[i] for i in range(0, 80, 5)])  # one caption for each of 16 scenes
by_heart = {}
for name, shift, attends in (
    ("its own pictures", 0, True),
    ("other scenes' pictures", 1, True),
    ("no gradient for the attention", 0, False),
):
    torch.manual_seed(0)
    decoder = small()
    decoder.attention.requires_grad_(attends)
    optimiser = torch.optim.Adam(decoder.parameters(), 1e-2)
    by_heart[name] = overfit(decoder, optimiser, a_few.roll(shift, 0), few, 60)

# %% jupyter={"source_hidden": true}
figure, axis = plt.subplots(figsize=(6.5, 2.6))
for (name, losses), style in zip(by_heart.items(), ("C0-", "C1--", "C3:"), strict=True):
    axis.plot(losses, style, label=f"one batch, {name}")
for value, name in ((uniform, "$\\ln K$"), (by_frequency, "frequencies alone")):
    axis.axhline(value, color="#b0b4be", linestyle=":")
    axis.annotate(name, (60, value), (0, 2), textcoords="offset points", ha="right", va="bottom")
axis.set(xlabel="step", ylabel="nats per word", ylim=(0, 5))
axis.legend(loc="center right")
plt.show()
print(
    f"known: {uniform:.2f} and {by_frequency:.2f}; before the first step: {by_heart['its own pictures'][0]:.2f}"
)

# %% [markdown]
# It begins at $\ln K$ and ends near 0: the loop learns. But with *another scene's* picture beside each caption the batch is learnt just as well, and with the attention cut off from its gradients the loss still falls to 0.03.
# Whether the data are right, or each part learns, the test cannot tell. So look at each part's first gradients, too:

# %% jupyter={"source_hidden": true}
norms = {}
for attends in (True, False):
    torch.manual_seed(0)
    decoder = small()
    decoder.attention.requires_grad_(attends)
    word_losses(decoder(a_few, few).logits, few).sum().div((few != PAD).sum()).backward()
    for part in ("embedding", "attention", "gates_state", "gates_context", "output"):
        gradients = [
            weight.grad.flatten()
            for weight in getattr(decoder, part).parameters()
            if weight.grad is not None
        ]
        norms[part, attends] = torch.cat(gradients).norm().item() if gradients else 0.0
    line = ", ".join(
        f"{part} {norm:.3f}" for (part, which), norm in norms.items() if which == attends
    )
    print("as it is: " if attends else "cut off:  ", line)

# %% [markdown]
# ## The parts of a step
#
# ### A rate that rises and falls
# <!-- asked: Why warm-up, and what is a cosine schedule for the learning rate? | At first Adam does not know how large gradients are, so the rate rises; then it falls like half a cosine to nearly 0. -->
#
# At the start Adam does not know yet how large gradients are, so the learning rate rises over some *warm-up* steps; at the end small steps
# reach what large ones jump over. The highest rate is multiplied by two factors. One rises in a line over the first `warmup`
# steps, from 1 / `warmup` at step 0 to 1, and stays there. The other is half a period of a cosine, from 1 at step 0 to 0 at `steps`, one
# step after the last.


# %% tags=["task:9.3"]
def learning_rate(step: int, steps: int, warmup: int, highest: float) -> float:
    """The rate of step 0, 1, ..., steps - 1. warmup may be 0."""
    # BEGIN SOLUTION
    rising = min(1.0, (step + 1) / warmup) if warmup else 1.0
    falling = (1 + math.cos(math.pi * step / steps)) / 2
    return highest * rising * falling
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A cosine goes from 1 to -1 between 0 and $\pi$. Move it up by one and halve it.

# %% [markdown]
# ### Accumulation
# <!-- asked: How do I accumulate gradients when a batch does not fit (out of memory)? | Multiply the mean loss of each part by its share of the words: the sum is the gradient of one pass, up to rounding. -->
#
# You want batches of 64 captions, and only 24 fit. Then run three passes, of 24, 24 and 16, and take one step: `backward()` *adds* to
# `.grad`. Each pass has the mean loss of its own *words*. By what must it be multiplied, so that the sum is the gradient of the mean over
# all words?


# %% tags=["task:9.4"]
def shares(parts: list[Tensor]) -> list[float]:
    """A factor for each part. parts: captions (B, C), `PAD` after the end mark; a part may have none."""
    # BEGIN SOLUTION
    words = [(captions != PAD).sum().item() for captions in parts]
    return [count / sum(words) for count in words]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A mean times its number of words is a sum, and sums can be added.

# %% jupyter={"source_hidden": true}
exact = small(embedding=32, hidden=64).double()  # float64, so that rounding hides nothing
a_64, rows = padded(sorted(every[:64], key=lambda pair: len(pair.caption)))
sizes = [24, 24, 16]


def gradient(sizes: list[int], factors: list[float]) -> Tensor:
    """The gradient after a pass for each part, its mean per word multiplied by its factor."""
    exact.zero_grad()
    for a, captions, factor in zip(a_64.double().split(sizes), rows.split(sizes), factors):
        (
            factor
            * word_losses(exact(a, captions).logits, captions).sum()
            / (captions != PAD).sum()
        ).backward()
    return torch.cat([parameter.grad.flatten() for parameter in exact.parameters()])


def apart(one: Tensor, other: Tensor) -> float:
    return ((one - other).norm() / other.norm()).item()


once = gradient([64], [1.0])
ways = {
    "your shares": shares(list(rows.split(sizes))),
    "by captions": [size / 64 for size in sizes],
}
ways |= {"a third each": [1 / 3] * 3, "not multiplied": [1.0] * 3}
off = {name: apart(gradient(sizes, factors), once) for name, factors in ways.items()}
for name, value in off.items():
    print(f"{name:15} relative difference to one pass of 64: {value:.1e}")

# %% [markdown]
# With your shares the gradient is that of one pass, up to rounding. Weighted by captions, or a third each, it is 2 to 4 percent off. (In
# random order, not by length as here, weighting by captions is less than 1 percent off.)
#
# Not multiplied, the gradient is three times as long, and Adam, which
# divides by the size of gradients, would hardly complain: so such bugs last.
# <!-- again: sorted(every[:64], key=lambda pair: len(pair.caption)) to random.sample(every, 64) -->
#
# ### Clipping
# <!-- asked: What does gradient clipping do (exploding gradients)? | If all gradients together are longer than a limit, they are scaled down to it, and the direction stays. -->
#
# Now and then a batch gives such a large gradient that one step ruins the model. So if the norm of *all* gradients together, as one long vector, is
# above a limit, all are scaled down to it, and the direction stays: `nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)`, after the last
# part and before the step.

# %% [markdown]
# ### Mixed precision
# <!-- asked: float16 or bfloat16, and why a GradScaler? | float16 loses small gradients unless the loss is scaled; bf16 keeps their range, but has few bits. -->
#
# <!-- index: claim: bf16 keeps float32's range and an 8-bit significand | gradients that float16 loses and bf16 does not | satlib.model.objective.word_losses | tests/test_training.py -->
#
# float16 spends its 16 bits on precision. bf16, a float32 with the lower half cut off, spends them on range:
#
# | | significant bits | from | to |
# | --- | --- | --- | --- |
# | float16 | 11 | $6 \times 10^{-5}$ | 65,504 |
# | bf16 | 8 | $10^{-38}$ | $3 \times 10^{38}$ |
#
# Below its range, down to $6 \times 10^{-8}$, float16 loses bits one by one. Here are the gradients
# of our decoder, without exact zeros, after 15 steps on its batch and after 60, when it knows it by heart.

# %% jupyter={"source_hidden": true}
torch.manual_seed(0)
decoder = small()
optimiser = torch.optim.Adam(decoder.parameters(), 1e-2)
found, lost, error = {}, {}, {}
for steps, more in ((15, 15), (60, 45)):
    overfit(decoder, optimiser, a_few, few, more)
    decoder.zero_grad()
    word_losses(decoder(a_few, few).logits, few).sum().div((few != PAD).sum()).backward()
    g = torch.cat([parameter.grad.flatten() for parameter in decoder.parameters()])
    g = found[steps] = g[g != 0]
    for name, factor, kind in (
        ("float16", 1, torch.float16),
        ("float16, scaled by 4,096", 4096, torch.float16),
        ("bfloat16", 1, torch.bfloat16),
    ):
        rounded = (g * factor).to(kind).float() / factor
        lost[steps, name], error[steps, name] = (
            (rounded == 0).float().mean().item(),
            apart(rounded, g),
        )
figure, axis = plt.subplots(figsize=(7.2, 2.5), layout="constrained")
for steps, colour in ((15, "#b0b4be"), (60, "C0")):
    axis.hist(
        found[steps].abs().log10().numpy(),
        80,
        color=colour,
        alpha=0.8,
        label=f"after {steps} steps",
    )
axis.set_ylim(0, 1.4 * axis.get_ylim()[1])  # room for the two labels
for mark, text in ((2**-25, "float16\nrounds to 0"), (2**-14, "float16\nloses bits")):
    axis.axvline(math.log10(mark), color="C1", linestyle="--")
    axis.annotate(
        text,
        (math.log10(mark), axis.get_ylim()[1]),
        (-5, -2),
        textcoords="offset points",
        ha="right",
        va="top",
    )
axis.set(xlabel="size of a gradient, power of ten", ylabel="number of weights", xlim=(-12, -1))
axis.legend()
plt.show()
for (steps, name), share in lost.items():
    print(
        f"{steps} steps, {name:24} {100 * share:4.1f} % become zero; error of them all {error[steps, name]:.1e}"
    )

# %% [markdown]
# After 60 steps float16 rounds a tenth to a quarter of them to zero. But these are the smallest ones, so look at the error of the whole
# gradient. Early in training float16's is about an *eighth* of bf16's. Only later, when gradients are small, may float16's be the larger.
# (Six seeds agree.)
#
# So multiply the loss by a power of two, and divide the gradients by it before the step: then float16's error is an eighth again.
# `torch.amp.GradScaler` does that, and lowers the factor when a gradient overflows.
# <!-- again: manual_seed(0) to manual_seed(1) ... (5) -->
#
# bf16 needs no scaling, but has few bits. **Count to a thousand in steps of one, in bf16. Where do you end?**

# %%
my_guess_count = ...  # a range that you are 80 % sure of, (low, high), or skip

# %%
seal(my_guess_count)
count = torch.zeros((), dtype=torch.bfloat16)
for _ in range(1000):
    count += 1
reveal("a thousand ones", count.item())

# %% [markdown] tags=["answer"]
# 256: from there on bf16 numbers are 2 apart, and 257 is rounded back. A weight of 1 would not feel a step of 0.001 either.

# %% [markdown]
# Hence *mixed* precision: weights, the optimiser's means and losses stay in float32, and `torch.autocast` rounds the inputs of matrix
# products. Now put the whole step together. For each part, run the decoder under `torch.autocast(a.device.type, half)`, and go
# backwards outside of it with `scaler.scale(loss).backward()`. Then `scaler.unscale_(optimiser)`, clip, `scaler.step(optimiser)` and
# `scaler.update()`.


# %% tags=["task:9.5"]
def step(decoder, optimiser, scaler, parts: list, half: torch.dtype, most: float) -> float:
    """One step on the parts of a batch: pairs of a (B, L, D) and captions (B, C). Returns the mean loss per word before it."""
    # BEGIN SOLUTION
    optimiser.zero_grad()
    total = 0.0
    for share, (a, captions) in zip(shares([y for _, y in parts]), parts):
        with torch.autocast(a.device.type, half):
            logits = decoder(a, captions).logits
        loss = share * word_losses(logits, captions).sum() / (captions != PAD).sum().clamp(min=1)
        scaler.scale(loss).backward()
        total += loss.item()
    scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(decoder.parameters(), most)
    scaler.step(optimiser)
    scaler.update()
    return total
    # END SOLUTION


# %% [markdown] tags=["hint"]
# The limit `most` is meant for the true gradients, so unscale before you clip. Add `loss.item()`, not `loss`: a loss holds its graph,
# and with it the memory that you wanted to save.

# %% [markdown] tags=["pseudocode"]
# ```
# empty the gradients
# for each part with its share:
#     logits, under autocast
#     its mean loss per word, times its share; scaled, backwards
# unscale, clip, step, update
# ```

# %% [markdown]
# ## A run of your own
#
# A batch has two parts, of eight scenes with two captions each (`by_caption` repeats a scene's vectors for its captions). The optimiser is
# **Muon**; more on it below.

# %% jupyter={"source_hidden": true}
torch.manual_seed(0)
captioner = Captioner(mine, vocabulary, encoder).to(place)
optimiser = create_optimiser(captioner)
half = (
    torch.bfloat16
    if gpu and torch.cuda.is_bf16_supported(including_emulation=False)
    else torch.float16
)
scaler = torch.amp.GradScaler(place.type, enabled=gpu and half == torch.float16)
half = half if gpu else torch.float32  # on a CPU without the hardware 16 bits are slower
two = [pair for number, pair in enumerate(every) if number % 5 < 2]
batches = ImageBatches([each.image_id for each in training], 8, 0, two)

# %%
EPOCHS, WARMUP, HIGHEST = 3, 10, 8e-3
per_epoch = len(batches) // 2
losses, begin = [], time.monotonic()
for epoch in range(EPOCHS):
    order = iter(batches.epoch(epoch))
    for both in zip(order, order, strict=False):
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(len(losses), EPOCHS * per_epoch, WARMUP, HIGHEST)
        parts = []
        for part in both:
            a = captioner.annotations(
                vectors.read(part.image_ids).to(place)
            )  # a row for each scene, scaled
            parts.append((part.by_caption(a), part.captions.to(place)))  # a row for each caption
        losses.append(step(captioner.decoder, optimiser, scaler, parts, half, 5.0))
    print(
        f"epoch {epoch + 1}: {sum(losses[-per_epoch:]) / per_epoch:.3f} nats per word, {time.monotonic() - begin:.0f} s"
    )

# %% jupyter={"source_hidden": true}
written = evaluate.generate(captioner, vectors, drawn.split("test"), progress=False)
right = {
    name: scenes.exact_match(caption.words, scenes.scene(name)) for name, caption in written.items()
}
peaks = [word.values["peak"] for word in maps.measure_all(drawn.split("test"), written)]
on_it = 100 * sum(peaks) / len(peaks)
print(f"of 100 test scenes: everything right in {sum(right.values())}", end="; ")
print(f"of the words for an object, {on_it:.0f} % have the peak of their map on it")

# %% jupyter={"source_hidden": true}
figure, (axis, other) = plt.subplots(2, 1, figsize=(6.5, 3.4), height_ratios=(2.4, 1), sharex=True)
axis.plot(losses)
for value, name in ((uniform, "$\\ln K$"), (by_frequency, "frequencies alone")):
    axis.axhline(value, color="#b0b4be", linestyle=":")
    axis.annotate(
        name, (len(losses), value), (0, 2), textcoords="offset points", ha="right", va="bottom"
    )
axis.set(ylabel="nats per word", ylim=(0, 5))
other.plot([learning_rate(k, len(losses), WARMUP, HIGHEST) for k in range(len(losses))], "C2")
other.set(xlabel="step", ylabel="rate", ylim=(0, HIGHEST))
plt.show()
photos = [
    scenes.scene(name).photo() for name in (max(right, key=right.get), min(right, key=right.get))
]
for photo, caption in zip(photos, captioner.caption(photos), strict=True):
    display(plots.attention_figure(photo, caption.words, caption.alphas))

# %% [markdown]
# Your loop has trained a model that attends. Find what is wrong in the second caption.
#
# <details><summary>What is wrong, in the run on this page</summary>
#
# The square is not above the star, but to its left.
#
# </details>
#
# (Here warm-up gains nothing: without it three
# seeds end at a slightly lower loss.)
# <!-- again: EPOCHS, WARMUP, HIGHEST = 3, 10, 8e-3 to EPOCHS, WARMUP, HIGHEST = 3, 1, 8e-3, each with manual_seed(0) and manual_seed(1), (2) -->
#
# ### Which optimiser?
# <!-- asked: Adam or Muon? | On this task Muon's runs end lower than Adam's, and take a little longer. -->
#
# To Adam, which divides each gradient by its usual size, a matrix is a bag of numbers. Muon (Jordan et al., 2024) takes a mean of the last
# gradients, $M = U S V^\top$, and leaves the singular values $S$ out: it steps along $U V^\top$ (nearly), at the same speed in
# all directions. Vectors, embeddings and the output matrix keep Adam.
#
# In [a benchmark](../benchmarks/optimisers.py) on this task, with three seeds each and the learning rate that was best for the first, Adam is half a
# nat per word behind after two of four epochs. In the end Muon's runs are at 0.66 or 0.67, and Adam's at 0.71 to 1.25, in a little less time.

# %% jupyter={"source_hidden": true}
results = Path(satlib.__file__).parent / "results"
contest = json.loads((results / "optimisers.json").read_text())
colours = {"adam": "C1", "muon": "C0"}
figure, axis = plt.subplots(figsize=(6, 2.6))
for run in contest:
    label = run["optimiser"].capitalize() if run["seed"] == 0 else None
    axis.plot(range(1, 5), run["dev_nll"], "o-", color=colours[run["optimiser"]], label=label)
axis.set(xlabel="epoch", ylabel="dev NLL, nats per word", xticks=range(1, 5), ylim=(0, None))
axis.legend()
plt.show()

# %% [markdown]
# ## Stopped and resumed
# <!-- asked: How do I resume a training: is the optimiser's state needed? | Yes, and the random state and the place in the data: then every bit is the same; from weights alone it is another experiment. -->
#
# <!-- index: section 4.3 | stochastic gradient descent with adaptive learning rates: the state that a stopped training must keep | satlib.training.loop.train | tests/test_resuming.py -->
#
# This is a good place to stop.
#
# Somebody closes the laptop. To resume as if nothing had happened, the weights are not enough. Adam keeps two running means for each
# weight; without them its first step moves nearly every weight that has a gradient by a full learning rate. Then there are the random numbers for dropout,
# the place in the data, and with float16 the scaler's factor.


# %% tags=["task:9.6"]
def train_on(decoder, optimiser, batches: list, last: int, file: Path) -> None:
    """Train with `overfit`, one step a batch, up to batches[last - 1]; then save in the file what resuming needs.

    batches: pairs of a (B, L, D) and captions (B, C). If there is a file, resume where it was written.
    """
    # BEGIN SOLUTION
    done = 0
    if file.exists():
        state = torch.load(file)
        decoder.load_state_dict(state["decoder"])
        optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["random"])
        done = state["done"]
    for a, captions in batches[done:last]:
        overfit(decoder, optimiser, a, captions, 1)
    state = {"decoder": decoder.state_dict(), "optimiser": optimiser.state_dict()}
    torch.save(state | {"random": torch.get_rng_state(), "done": last}, file)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `decoder.state_dict()` and `load_state_dict`; the optimiser has them, too. `torch.get_rng_state()`, `torch.set_rng_state`.
# `torch.save(anything, file)`, `torch.load(file)`.

# %% [markdown] tags=["pseudocode"]
# ```
# done = 0; if there is a file, load both states, the random numbers, and done
# train on batches done to last; save all four
# ```

# %% [markdown]
# Stop after 5 batches of 12. Resume, as in another process, with a new decoder, whose weights and random numbers your file must replace. A
# third run has the *weights* alone. **What percentage of the resumed run's weights will differ from those of a run that was never stopped?**

# %%
my_guess_differ = ...  # (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_guess_differ)
batches, runs = [padded(every[i : i + 64 : 4]) for i in range(0, 768, 64)], Path(tempfile.mkdtemp())


def learner(seed: int):
    torch.manual_seed(seed)
    decoder = small(dropout=0.3)
    return decoder, torch.optim.Adam(decoder.parameters(), 1e-2)


def weights(decoder) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in decoder.parameters()])


whole, optimiser = learner(0)
train_on(whole, optimiser, batches, 12, runs / "whole")
stopped, optimiser = learner(0)
train_on(stopped, optimiser, batches, 5, runs / "stopped")
resumed, optimiser = learner(1)
train_on(resumed, optimiser, batches, 12, runs / "stopped")
train_on(
    stopped, torch.optim.Adam(stopped.parameters(), 1e-2), batches[5:], 7, runs / "weights only"
)
differ = (weights(resumed) != weights(whole)).float().mean().item()
reveal("weights that differ, percent", 100 * differ)
print(
    f"from the weights alone: they differ by {100 * apart(weights(stopped), weights(whole)):.0f} % of their length"
)

# %% [markdown] tags=["answer"]
# 0: every bit is the same.

# %% [markdown]
# Move the moment at which the laptop is closed. The dots, the resumed run, lie on the line of the run that never stopped:


# %% jupyter={"source_hidden": true}
def followed(decoder, optimiser, batches, name, first=0):
    """The loss on sixteen captions after each batch from `first` on."""
    found = []
    for done in range(first + 1, len(batches) + 1):
        train_on(decoder, optimiser, batches, done, runs / name)
        with torch.no_grad():
            decoder.eval()
            losses = word_losses(decoder(a_few, few).logits, few)
            decoder.train()
        found.append((losses.sum() / (few != PAD).sum()).item())
    return found


courses = {}
with torch.random.fork_rng():  # the rest of this notebook keeps its random numbers
    never = followed(*learner(0), batches, "never stopped")
    for stop in (1, 3, 5, 7, 9):
        closed, optimiser = learner(0)
        train_on(closed, optimiser, batches, stop, runs / f"closed {stop}")
        resumed_here = followed(*learner(1), batches, f"closed {stop}", stop)
        # From the weights alone: a fresh Adam, and other random numbers.
        fresh = torch.optim.Adam(closed.parameters(), 1e-2)
        alone = followed(closed, fresh, batches[stop:], f"alone {stop}")
        courses[stop] = resumed_here, alone


def draw_closed(stop):
    resumed_here, alone = courses[stop]
    after = range(stop + 1, len(batches) + 1)
    figure, axis = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
    axis.plot(range(1, len(batches) + 1), never, color="C0", label="never stopped")
    axis.plot(after, resumed_here, "o", color="C0", label="resumed")
    axis.plot(after, alone, "x--", color="C5", label="from the weights alone")
    axis.axvline(stop + 0.5, color=plots.INK, linestyle=":")
    axis.set(xlabel="batch", ylabel="loss, nats per word", ylim=(3.1, 4.1))
    axis.legend()
    return figure


Slides(draw_closed, [*courses], "the laptop is closed after batch", start=2)

# %% [markdown]
# The run from the weights alone is a different experiment. (On a GPU, where some operations give different bits every time, a resumed run is the same only up to
# rounding.)

# %% [markdown]
# ## Several processes, one training run
# <!-- asked: Why do several GPUs (DistributedDataParallel, DDP) give different gradients? | A plain average of unequal parts is wrong: multiply each loss by the number of ranks times its share of the words. -->
#
# <!-- index: claim: gradients averaged over processes are those of one | weighted by their words; two gloo processes against one | satlib.training.distributed.Ranks | tests/test_distributed.py::TestEquality::test_soft -->
#
# Each GPU runs a process (a *rank*) with a copy of the model, which computes the gradient of its rows of the batch. PyTorch's
# `DistributedDataParallel` (DDP) averages the gradients, and all copies take the same step. This file stops at the averaged gradients:

# %% jupyter={"source_hidden": true}
# %%capture
# %%writefile {work}/toy.py
"""A model and a batch, the same on every rank."""

import torch

from satlib import recipe
from satlib.model.decoder import Decoder
from satlib.model.objective import word_losses


class CaptionLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)  # the same weights on every rank
        config = recipe.DecoderConfig(embedding=32, hidden=64, attention_hidden=32, dropout=0.0)
        self.decoder = Decoder(config, 48, 100)

    def forward(self, a, captions):
        return word_losses(self.decoder(a, captions).logits, captions).mean()


def batch():
    """Seven rows of random numbers: vectors and captions."""
    generator = torch.Generator().manual_seed(1)
    captions = torch.randint(2, 100, (7, 9), generator=generator)
    return torch.randn(7, 49, 48, generator=generator), captions


# %%
# %%capture
# %%writefile {work}/ddp.py
"""One step's gradients on two ranks: torchrun --nproc-per-node 2 ddp.py, FACTORS="1.14 0.86"."""

import os

import torch
import torch.distributed.nn  # before init_process_group: imported later, it keeps the group and its threads alive
import toy
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")  # on GPUs "nccl", and a device for each rank
rank, size = distributed.get_rank(), distributed.get_world_size()
model = DistributedDataParallel(toy.CaptionLoss())
a, captions = (values[rank::size] for values in toy.batch())  # this rank's rows
gradients = {}
for name, factor in {"plain": 1.0, "weighted": float(os.environ["FACTORS"].split()[rank])}.items():
    model.zero_grad()
    (factor * model(a, captions)).backward()  # averages the gradients over the ranks
    gradients[name] = torch.cat([p.grad.flatten() for p in model.parameters()])
if rank == 0:
    torch.save(gradients, "gradients.pt")
distributed.destroy_process_group()

# %% [markdown]
# The batch has 7 rows, so the ranks have 4 and 3. Means of unequal parts need your shares. But DDP divides their sum by the number of
# ranks $R$; to undo that, each loss is multiplied by $R$ times its share. **By what percentage is the plain average wrong?**

# %%
my_guess_wrong = ...  # (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_guess_wrong)
sys.path.insert(0, str(work))
import toy

factors = " ".join(
    str(2 * share) for share in shares([toy.batch()[1][rank::2] for rank in range(2)])
)
command = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node",
    "2",
    "ddp.py",
]
environment = os.environ | {"OMP_NUM_THREADS": "1", "FACTORS": factors}
result = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)
assert result.returncode == 0, result.stderr
alone = toy.CaptionLoss()
alone(*toy.batch()).backward()
one_process = torch.cat([parameter.grad.flatten() for parameter in alone.parameters()])
wrong = {
    name: apart(of_ranks, one_process)
    for name, of_ranks in torch.load(work / "gradients.pt").items()
}
for name, value in wrong.items():
    print(f"{name:8} average: relative difference to one process {value:.1e}")
reveal("plain average, percent", 100 * wrong["plain"])

# %% [markdown] tags=["answer"]
# By 15 percent, and your shares give the gradient of one process, up to rounding.

# %% [markdown]
# Nothing warns you of the plain average: training goes on, and what it learns depends on the number of GPUs. (These rows are random
# numbers; how wrong it is with captions depends on the draw.)

# %% [markdown]
# ## A real run, from its log
# <!-- asked: The loss falls and BLEU does not: which epoch is the best (early stopping, overfitting)? | They may part ways late in training, so stop on BLEU; too little patience can stop before the best epoch. -->
#
# This is another good place to stop. Up to the trial at the end you now only read.
#
# `flickr8k-lite0-tuned` trained an encoder, EfficientNet-Lite0, with the decoder, on Flickr8k's 6,000 training photographs and an NVIDIA
# H200. Its log has the negative log-likelihood (NLL) in nats per word and the BLEU-4 on dev. Beside it is an older run of `flickr8k-paper-soft`: 1,000
# LSTM units, a frozen VGG-19, and PyTorch's RMSProp, which takes [longer steps](../docs/results.md#what-we-could-not-reproduce) than the paper's code.


# %% jupyter={"source_hidden": true}
def log_of(folder):
    """The epochs of a run, from its log."""
    return [json.loads(line) for line in (folder / loop.LOG).read_text().splitlines()]


logs = {name: log_of(results / name) for name in ("flickr8k-lite0-tuned", "flickr8k-paper-soft")}
figure, axes = plt.subplots(
    2, 2, figsize=(8.6, 4.2), height_ratios=(1.5, 1), sharex="col", layout="constrained"
)
for (above, below), (name, epochs) in zip(axes.T, logs.items(), strict=True):
    numbers = [each["epoch"] for each in epochs]
    above.plot(numbers, [each["train_nll"] for each in epochs], "C0o-", label="training")
    above.plot(numbers, [each["dev_nll"] for each in epochs], "C1D--", label="dev")
    above.set(title=name, ylabel="NLL, nats per word", ylim=(1.8, 5.7))
    above.legend()
    below.plot(numbers, [each["dev_bleu4"] for each in epochs], "C2s-")
    below.set(xlabel="epoch", ylabel="dev BLEU-4", ylim=(0, 24), xticks=numbers[1::2])
plt.show()
minutes = sum(each["seconds"] for each in logs["flickr8k-lite0-tuned"]) / 60
print(f"nine epochs on the H200: {minutes:.1f} minutes")

# %% [markdown]
# <!-- index: claim: NLL and BLEU part ways | the log of a run that overfits | satlib.training.validation.dev_score | tests/test_training.py::test_stops_after_patience_and_keeps_the_best -->
#
# In the first epoch the training NLL lies *above* dev's: it is a mean over an epoch in which the model was mostly worse, with dropout. On
# the right, it goes on falling while dev's rises from 3.13 to 3.44: the decoder is memorising.
#
# A model that grows too sure of itself pays in NLL whenever a reference has another word; in BLEU it pays nothing, as long as its likeliest word stays the
# likeliest. On the right the two do not clearly part: BLEU ends 2.4 points below its best, but two neighbouring epochs differ by more; and
# epoch 8, best by BLEU, is nearly best by NLL.
#
# > **Paper, section 4.3** (in our words). Late in training, log-likelihood and BLEU part ways. So training stops early on BLEU (*early stopping*).


# %%
def best_and_last(scores: list[float], patience: int) -> tuple[int, int]:
    """(best epoch, last epoch), counted from 1. scores: one for each epoch, as if training never stopped early."""
    best = 1
    for epoch in range(1, len(scores) + 1):
        if scores[epoch - 1] > scores[best - 1]:
            best = epoch
        if epoch - best == patience:
            return best, epoch
    return best, len(scores)


# %% jupyter={"source_hidden": true}
bleu = [each["dev_bleu4"] for each in logs["flickr8k-paper-soft"]]
for patience in (1, 3, 10):
    best, last = best_and_last(bleu, patience)
    print(
        f"patience {patience:2}: best epoch {best}, dev BLEU-4 {bleu[best - 1]:.2f}; stops after epoch {last}"
    )

# %% [markdown]
# A patience of 3 would have kept epoch 4 instead of 8, lower by 0.14 BLEU, which may be chance, and stopped after 7 epochs instead of 18.
#
# ### Training the encoder, too
# <!-- index: section 4.3 | fine-tuning the encoder: its own learning rate, frozen batch statistics | satlib.model.encoders.freeze_statistics | tests/test_fine_tuning.py -->
# <!-- asked: Should I fine-tune the encoder (CNN), and at which rate? | The run shown did, at a quarter of the decoder's rate, and scored higher; but it differs in more than that. -->
#
# The encoder of `flickr8k-lite0-tuned` learned at a quarter of the decoder's rate; both rates rose over 400 batches. Its photographs have
# 448 pixels, so $14 \times 14$ places instead of $7 \times 7$. The [test split's](../docs/results.md) CIDEr is 61.9, where `flickr8k-lite0-soft`,
# with a frozen encoder, has 56.4 (one run each). But the recipes also differ in mirrored photographs, dropped places, $\lambda$, the
# attention's width, rate, batches and epochs: what made it better, these two runs cannot tell.

# %% [markdown]
# ### What to type
# <!-- index: section 4.3 | a search for hyperparameters, judged on dev | satlib.training.validation.dev_score | tests/test_tune.py -->
# <!-- index: section 4.3 | what differs between Flickr8k, Flickr30k and COCO | satlib.recipe.load | tests/test_recipes_files.py -->
#
# ```
# satlib data fetch flickr8k                  # photographs and captions, 1.1 GB
# satlib train flickr8k-lite0-tuned           # the same command resumes after a stop
# satlib evaluate runs/flickr8k-lite0-tuned   # captions the test split and scores the captions
# satlib table runs/flickr8k-lite0-tuned/evaluation-test.json
# ```
#
# [The rest](../docs/training.md): two GPUs, COCO, and a search for hyperparameters.

# %% [markdown]
# ### A hundred photographs of your own
# <!-- asked: Can I train on my own photographs, and how many (fine-tuning, catastrophic forgetting)? | A hundred seem to help a trained captioner a little, some hundreds clearly; the old data seem to be forgotten, and not if some are mixed in. -->
#
# [A benchmark](../benchmarks/own_photographs.py) let the captioner of Flickr8k, which knows people and dogs, learn from 25 to 694
# photographs of COCO, with its decoder alone, in small steps (`own-folder-further`). Before, its CIDEr was 65 on Flickr8k and 35 on COCO.

# %% tags=["docs:own"] jupyter={"source_hidden": true}
rows = json.loads((results / "own-photographs.json").read_text())
figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
for part, colour, label in (
    ("old", "C1", "Flickr8k: what it knew"),
    ("own", "C0", "COCO: your photographs"),
):
    mean, low, high = torch.tensor([row[f"CIDEr of {part}"] for row in rows if not row["old"]]).T
    bars = (mean - low, high - mean)
    axis.errorbar(range(len(mean)), mean, bars, fmt="o-", color=colour, capsize=3, label=label)
numbers = [row["own"] for row in rows if not row["old"]]
axis.set(
    xlabel="photographs to learn from",
    ylabel="CIDEr",
    xticks=range(len(numbers)),
    xticklabels=numbers,
    ylim=(0, None),
)
axis.legend()
plt.show()
learnt = {row["own"]: row for row in rows if not row["old"]}

# %% [markdown]
# With more photographs, COCO's own CIDEr rises, after minutes of one core. On Flickr8k it falls from 65 to 57: the captioner seems to forget (*catastrophic forgetting*). With as many of
# Flickr8k's photographs mixed in, it does not. (Each is one training. The bars are 95 % intervals over the same dev photographs: whether they overlap proves nothing.)

# %% [markdown]
# ## What a step costs
# <!-- asked: Why is my GPU not busy: what batch size? | A small step probably waits for Python: four times the captions take little more time, so try a larger batch first. -->
#
# <!-- index: section 4.3 | what training costs: time of a step, memory, an epoch in seconds | satlib.training.loop.train | tests/test_training.py -->
#
# The paper's soft model took less than three days for COCO on an NVIDIA Titan Black. Here are steps of a decoder with 512 LSTM
# units, as in `flickr8k-soft`, and 9,000 words, on an H200. **In float32, a step with 64 captions takes 16 milliseconds. How many does
# one with 256 take?**

# %% jupyter={"source_hidden": true}
H200 = {  # words per second: the median round. From benchmarks/gpu/nvidia-h200
    ("float32", 64): 45_854,
    ("float32", 256): 153_985,
    ("bf16", 64): 30_229,
    ("bf16", 256): 121_714,
    ("bf16", 1024): 444_165,
}
flickr = counts.read()["train"]
words = sum(
    (length + 1) * number for length, number in flickr.lengths.items()
)  # with the end marks
step_ms = {
    (name, size): 1000 * size * words / flickr.lengths.total() / rate
    for (name, size), rate in H200.items()
}
config = DecoderConfig(embedding=512, hidden=512, attention_hidden=512)
with FlopCounterMode(display=False) as counter:  # what two captions of twelve words cost
    some = torch.zeros(2, 12, dtype=torch.long)
    word_losses(
        Decoder(config, 512, 9000)(torch.randn(2, 196, 512), some).logits, some
    ).mean().backward()
per_word = counter.get_total_flops() / some.numel()
teraflops = {key: per_word * rate / 1e12 for key, rate in H200.items()}

# %%
my_guess_256 = ...  # (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_guess_256)
figure, axis = plt.subplots(figsize=(6.8, 3.2), layout="constrained")
for (name, size), middle in step_ms.items():
    label = f"{name}, {size:,} captions"
    axis.barh(label, middle, color="C1" if name == "bf16" else "C0")
    axis.text(middle + 0.5, label, f"{middle:.0f}", va="center")
axis.set(xlabel="milliseconds for a step on the H200, captions of mean length", xlim=(0, 40))
axis.set_title("medians of seven rounds, the last of three")
axis.invert_yaxis()
plt.show()
reveal("milliseconds for 256 captions in float32", step_ms["float32", 256])
print(
    f"{per_word / 1e6:.0f} million operations per word; 256 captions, float32: {teraflops['float32', 256]:.0f} TFLOP/s"
)
epoch_seconds = words / H200["float32", 256]
print(
    f"Flickr8k: {flickr.lengths.total():,} captions, {words:,} words: {epoch_seconds:.1f} s an epoch at this rate"
)

# %% [markdown] tags=["answer"]
# 20 milliseconds: four times the captions, and only a fifth more time.

# %% [markdown]
# So the card is not busy. Probably it waits for Python to hand it the next small operation. In float32 it does a sixth of what NVIDIA promises, and
# with 1,024 captions in bf16 3 % of it. Try a larger batch first. The price is memory, about 20 MB for each caption.
#
# The figure also seems to say that bf16 is slower than float32. Do not believe it yet: the machine was busy, and what would show it comes at the end.
#
# And the bill? At three dollars an hour the nine epochs of the run above cost 30 cents. `python benchmarks/bench.py` measures your card.

# %% [markdown]
# ## What the test split says
# <!-- asked: How much does attention gain on Flickr8k? | With VGG-19 a little, by BLEU-4 and METEOR; with EfficientNet-Lite0 no difference is certain; on drawn scenes very much. -->
#
# <!-- index: section 5.3 | Table 1 with satlib's own rows | satlib.evaluation.table.rows | tests/test_table.py -->
#
# Soft attention's gain over one mean vector, with 95 % intervals from a bootstrap over the test images
# ([all rows](../docs/results.md)):

# %% jupyter={"source_hidden": true}
ours = {
    line.name: line
    for line in table.rows(installed.evaluations())
    if line.data == "Flickr8k" and line.ours
}
gains = {}
for network, pair in (("VGG-19", "flickr8k-"), ("EfficientNet-Lite0", "flickr8k-lite0-")):
    differences = statistics.differences(
        *(ours[pair + kind].statistics for kind in ("soft", "none"))
    )
    for score in ("BLEU-4", "METEOR", "CIDEr"):
        gains[network, score] = differences[score + " (no brevity penalty)" * (score == "BLEU-4")]
        gain, low, high = gains[network, score]
        print(f"soft over none, {network:18} {score:6} {gain:+.1f} ({low:+.1f} to {high:+.1f})")

# %% [markdown]
# With VGG-19, 1.2 points of BLEU-4 (0.2 to 2.2), but by CIDEr nothing certain; with EfficientNet-Lite0 no difference is certain. The interval covers the choice of test
# images, not the seed of the training: in an earlier pair of VGG-19 runs, [no difference was certain](../docs/results.md). On scenes,
# whose captions have to tell two objects apart, 98 percent are right with attention and 41 without.

# %% [markdown]
# ## On trial: a timing
# <!-- asked: How do I compare the speed of two versions (benchmark)? | Let them take turns, and ask how often a fair coin would win as many rounds; a placebo, a step against itself, tests the test. -->
#
# "bf16 is slower than float32." You could time one, then the other, and compare. But a machine has good and bad minutes, and whoever runs first may meet
# the bad one: another program, a cold cache, a clock that has not yet gone up.
#
# So the two take turns, a round each, and a coin decides in each round who goes first. If neither were faster, each round would be the
# toss of a coin, too. Call ours faster if a fair coin would win so many rounds, or more, with a probability of at most 5 %.


# %% tags=["task:9.7"]
def faster(ours: list[float], theirs: list[float]) -> bool:
    """Whether ours is faster beyond doubt. The seconds of each round: ours[i] and theirs[i] were measured one after the other."""
    # BEGIN SOLUTION
    rounds = len(ours)
    won = sum(one < other for one, other in zip(ours, theirs))
    chance = sum(math.comb(rounds, k) for k in range(won, rounds + 1)) / 2**rounds
    return chance <= 0.05
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `math.comb(n, k)` of the $2^n$ sequences of $n$ tosses have $k$ heads.

# %% [markdown]
# Now three pairs on the machine that runs this page, the last of them a placebo, a step against itself.


# %% jupyter={"source_hidden": true}
def contender(kind: torch.dtype, size: int):
    """Makes a step's forward and backward pass on 16 captions, `size` at a time."""

    def run():
        for a, captions in zip(a_few.split(size), few.split(size), strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=kind == torch.bfloat16):
                logits = timed(a, captions).logits
            word_losses(logits, captions).mean().backward()

    return run


def seconds(run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def rounds_of(one, other, rounds=15) -> tuple[list[float], list[float]]:
    """The seconds of both in each round; a coin decides which of them goes first."""
    of_one, of_other = [], []
    for _ in range(rounds):
        if random.random() < 0.5:
            of_one.append(seconds(one))
            of_other.append(seconds(other))
        else:
            of_other.append(seconds(other))
            of_one.append(seconds(one))
    return of_one, of_other


timed = small()
plain, brain, quarters = (
    contender(torch.float32, 16),
    contender(torch.bfloat16, 16),
    contender(torch.float32, 4),
)
for run in (plain, brain, quarters):
    run()  # the first call is always slow
verdicts = {}
for name, one, other in (
    ("float32 against bf16", plain, brain),
    ("16 captions against four times 4", plain, quarters),
    ("float32 against itself", plain, contender(torch.float32, 16)),
):
    of_one, of_other = rounds_of(one, other)
    verdicts[name] = faster(of_one, of_other), faster(of_other, of_one)
    first, second = verdicts[name]
    print(f"{name:34} {1000 * median(of_one):4.0f} and {1000 * median(of_other):4.0f} ms:", end=" ")
    print("the first is faster" if first else "the second is faster" if second else "not proven")

# %% [markdown]
# The placebo tests your test. Two equal steps seldom have equal medians, and your test may call them different once in 28 times. Without the coin it
# could not have noticed a machine that favours whoever goes first, or second: one of the two would win by its turn alone.
#
# On the CPU of this page bf16 wins, because it has instructions for it; without them bf16 takes twice as long, and float32 wins.
# <!-- again: ONEDNN_MAX_CPU_ISA=AVX512_CORE in the environment: no instructions for bf16 -->
#
# And on the H200? [Its file](../benchmarks/gpu/nvidia-h200/step.json) keeps the slowest and the fastest of seven rounds. With 64 captions the slowest in float32
# beats the fastest in bf16, so float32 won all seven: for a coin, one case in 128. With 256 the ranges overlap, and nobody can count the wins. So the sentence is false on one machine and true on another. Publish a timing with its
# rounds, and with more than three: three wins of three are one case in eight.

# %% [markdown]
# ## What to remember
#
# - Before the first step the loss is $\ln K$, and one batch can be learnt by heart: even with wrong pictures, or without learning to attend.
# - bf16 has float32's range; float16 has finer steps, but its loss must be scaled. Weights and sums stay in float32.
# - To resume, save the weights, the optimiser's means, the random state and the place in the epoch.
# - Choose on dev. Report test with its interval, and a timing with its rounds.
#
# So what may happen? **Memory may be short, processes may share the work, the laptop may be closed: if parts are weighted by their words and the whole state is saved, every step stays the same, up to rounding and, if the work is divided, to what dropout draws.**

# %% [markdown] tags=["workbook"]
# ## Now think: an accident, on purpose
#
# ●●○ · 15 minutes · open
#
# **Train in bf16 throughout.** Overfit the batch of this notebook with the decoder and its annotation vectors in bf16, and with Adam and a
# learning rate of $10^{-4}$. First guess what share of the weights moves in one step. And at $10^{-2}$?
#
# <details><summary>What you should see</summary>
#
# Nine in ten have a gradient, but at $10^{-4}$ only about a third moves: for the others the step is less than half the distance to the next
# bf16 number, and each is rounded back, however often it is made. After 60 steps the loss lags behind float32's. At $10^{-2}$ nearly all that
# have a gradient move, and both learn the batch. That is why the weights stay in float32.
#
# </details>

# %% [markdown]
# ## References
#
# - K. Xu et al., ICML 2015, [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - Adam: D. P. Kingma, J. Ba, ICLR 2015. Muon: K. Jordan et al., 2024, <https://kellerjordan.github.io/posts/muon>
# - Clipping: R. Pascanu, T. Mikolov, Y. Bengio, ICML 2013, section 3.2. Mixed precision: P. Micikevicius et al., ICLR 2018.
# - DDP: S. Li et al., VLDB 2020.

# %% tags=["claims"] jupyter={"source_hidden": true}
# What the prose says in numbers, held against this run and the stored results.
assert abs(by_heart["its own pictures"][0] - uniform) < 0.05
assert by_frequency < uniform - 0.5
assert all(each[-1] < 0.1 for each in by_heart.values()), (
    "learnt by heart, with the wrong pictures, too"
)
assert round(by_heart["no gradient for the attention"][-1], 2) == 0.03
assert norms["attention", True] > 0.01
assert not norms["attention", False]
assert off["your shares"] < 1e-12
assert all(0.02 < off[name] < 0.04 for name in ("by captions", "a third each"))
assert off["not multiplied"] > 1.9
half, brain = torch.finfo(torch.float16), torch.finfo(torch.bfloat16)
assert (f"{half.smallest_normal:.0e}", half.max, half.eps) == ("6e-05", 65504, 2**-10)
assert (f"{brain.smallest_normal:.0e}", f"{brain.max:.0e}", brain.eps) == ("1e-38", "3e+38", 2**-7)
assert 0.015 < lost[15, "float16"] < 0.04
assert 0.1 < lost[60, "float16"] < 0.245
assert 6 < error[15, "bfloat16"] / error[15, "float16"] < 10
assert 0.4 < error[60, "float16"] / error[60, "bfloat16"] < 1.6
assert 6 < error[60, "bfloat16"] / error[60, "float16, scaled by 4,096"] < 10
assert lost[60, "float16, scaled by 4,096"] < lost[60, "float16"] / 10
assert not lost[15, "bfloat16"]
assert not lost[60, "bfloat16"]
assert count == 256
assert on_it > 85
assert 55 < sum(right.values()) < 100
assert not min(right.values()), "something is wrong in the second"
assert sum(losses[-per_epoch:]) / per_epoch < by_frequency - 1
of = {name: [run for run in contest if run["optimiser"] == name] for name in colours}
second = {name: sum(run["dev_nll"][1] for run in runs) / 3 for name, runs in of.items()}
assert round(second["adam"] - second["muon"], 1) == 0.5
assert [[round(run["dev_nll"][-1], 2) for run in of[name]] for name in ("muon", "adam")] == [
    [0.66, 0.66, 0.67],
    [0.71, 0.75, 1.25],
]
assert [round(sum(run["seconds"] for run in of[name]) / 3) for name in ("muon", "adam")] == [66, 58]
paper_way = logs["flickr8k-paper-soft"]
assert [round(paper_way[i]["dev_nll"], 2) for i in (7, 17)] == [3.13, 3.44]
assert round(paper_way[17]["train_nll"], 2) == 1.94
assert [best_and_last(bleu, patience) for patience in (3, 10)] == [(4, 7), (8, 18)]
assert round(bleu[7] - bleu[3], 2) == 0.14
assert (round(bleu[7], 1), round(bleu[17], 1)) == (17.6, 15.2)
assert [round(step_ms["float32", size]) for size in (64, 256)] == [16, 20]
assert min(step_ms["bf16", size] / step_ms["float32", size] for size in (64, 256)) > 1.2
assert [round(teraflops[key]) for key in (("float32", 256), ("bf16", 1024))] == [11, 31]
assert [
    round(100 * 31 / 989),
    round(3 * 100 * minutes / 60),
    round(3 * 100 * 20 * epoch_seconds / 3600),
] == [3, 29, 4]
assert round(epoch_seconds, 1) == 2.3
assert flickr.lengths.total() == 30_000
assert differ == 0
assert apart(weights(stopped), weights(whole)) > 0.01
assert wrong["weighted"] < 1e-5
assert round(100 * wrong["plain"]) == 15
assert gains["VGG-19", "BLEU-4"][1] > 0
cider = [round(ours[f"flickr8k-lite0-{name}"].figures["CIDEr"], 1) for name in ("soft", "tuned")]
assert cider == [56.4, 61.9]
bleu = [round(ours[name].figures["BLEU-4"], 1) for name in ("flickr8k-lite0-soft", "flickr8k-soft")]
assert bleu == [22.6, 19.9]
assert all(
    gains["EfficientNet-Lite0", score][1] < 0 < gains["EfficientNet-Lite0", score][2]
    for score in ("BLEU-4", "METEOR", "CIDEr")
)
on_scenes = {
    line.name: line.figures["exact match"]
    for line in table.rows(installed.evaluations())
    if line.data == "scenes"
}
assert [round(on_scenes[name]) for name in ("scenes-soft", "scenes-none")] == [98, 41]
assert [round(learnt[0][f"CIDEr of {part}"][0]) for part in ("old", "own")] == [65, 35]
assert [round(learnt[100][f"CIDEr of {part}"][0]) for part in ("old", "own")] == [60, 41]
assert [round(learnt[694][f"CIDEr of {part}"][0]) for part in ("old", "own")] == [57, 57]
mixed = {
    row["own"]: [round(row[f"CIDEr of {part}"][0]) for part in ("old", "own")]
    for row in rows
    if row["old"] == row["own"]
}
assert (mixed[100], mixed[400]) == ([68, 40], [66, 50])
assert 220 < learnt[100]["seconds"] < 270, "four minutes of one core"
