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
# # Exercises 10. The project: an attention of your own
#
# You get 500 drawn scenes with captions, and a decoder that sees only the mean of the annotation vectors. It names few
# objects right. Give it an attention, train it, and let the check judge it on scenes that nobody has seen. It counts
# what your decoder says, and it looks at where your decoder looks.
#
# You have two bars to pass: 160 of 200 objects with the right colour and shape, and maps that have their peak on the
# object at half of the words that describe one. Training takes about a minute on a laptop.
#
# Shapes: $B$ scenes of $L = 196$ places of $D = 128$ dimensions, in a grid of 14 × 14; the state has $n$ numbers, the
# vocabulary $K$ words. Word 0 is the end mark.

# %%
import torch
from torch import Tensor, nn

from satcourse.exercises import carry_on, check
from satcourse.exercises.ex10 import named_right
from satcourse.lessons.vectors import Vectors
from satlib.data import scenes
from satlib.data.batches import SameLengthBatches, pairs
from satlib.data.features import Pixels
from satlib.data.text import Vocabulary
from satlib.model import shipped
from satlib.model.captioner import Captioner

data = scenes.load(500, 0, 100)  # 500 scenes for training, 100 to try your decoder on
vectors = Vectors(Captioner.load(shipped.model("scenes-soft")), Pixels(data), [each.image_id for each in data.examples])
vocabulary = Vocabulary.from_captions(caption for each in data.split("train") for caption in each.references)
batches = SameLengthBatches(pairs(data.split("train"), vocabulary, 40), 64)
print(f"{len(batches)} batches; annotation vectors {tuple(vectors.a.shape)}; {len(vocabulary)} words")

# %% [markdown]
# ## What you start from
#
# `Blind` is a small decoder. At every word it reads the same vector, the mean of all places. To give it an attention,
# you need to change only `weights`, and to add new parameters in `__init__`.


# %%
class Blind(nn.Module):
    """An LSTM that reads the mean annotation vector at each word."""

    def __init__(self, D: int = 128, K: int = len(vocabulary), m: int = 64, n: int = 192) -> None:
        super().__init__()
        self.begin = nn.Linear(D, 2 * n)
        self.embed = nn.Embedding(K + 1, m)  # the last row stands for "no word yet"
        self.lstm = nn.LSTMCell(m + D, n)
        self.out = nn.Linear(n + D, K)

    def weights(self, a: Tensor, h: Tensor) -> Tensor:
        """How much each place counts: a (B, L, D), h (B, n) -> alpha (B, L)."""
        return a.new_full(a.shape[:2], 1 / a.shape[1])

    def start(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The word before the first one, h and c."""
        h, c = torch.tanh(self.begin(a.mean(1))).chunk(2, 1)
        return torch.full((len(a),), len(self.embed.weight) - 1), h, c

    def step(self, a: Tensor, word: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The logits of the next word (B, K), the map (B, L), and the new h and c."""
        alpha = self.weights(a, h)
        z = (alpha.unsqueeze(2) * a).sum(1)
        h, c = self.lstm(torch.cat([self.embed(word), z], 1), (h, c))
        return self.out(torch.cat([h, z], 1)), alpha, h, c


def train(decoder: nn.Module, epochs: int = 5) -> nn.Module:
    """Teacher forcing: at each word the decoder gets the true word before it."""
    optimiser = torch.optim.Adam(decoder.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=epochs * len(batches), pct_start=0.15)
    for epoch in range(epochs):
        losses = []
        for batch in batches.epoch(epoch):
            a = vectors.read(batch.image_ids)
            word, h, c = decoder.start(a)
            loss = 0
            for target in batch.captions.unbind(1):
                logits, _, h, c = decoder.step(a, word, h, c)
                loss = loss + nn.functional.cross_entropy(logits, target) / batch.captions.shape[1]
                word = target
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        print(f"epoch {epoch + 1}: {sum(losses) / len(losses):.2f} nats per word")
    return decoder


@torch.no_grad()
def greedy(decoder: nn.Module, a: Tensor, longest: int = 24) -> tuple[list[list[str]], Tensor]:
    """Captions of a (B, L, D) by their likeliest words, and the maps (B, longest, L)."""
    word, h, c = decoder.start(a)
    ids, maps = [], []
    for _ in range(longest):
        logits, alpha, h, c = decoder.step(a, word, h, c)
        word = logits.argmax(1)
        ids.append(word)
        maps.append(alpha)
    rows = [row[: row.index(0)] if 0 in row else row for row in torch.stack(ids, 1).tolist()]
    return [vocabulary.decode(row) for row in rows], torch.stack(maps, 1)


def score(decoder: nn.Module) -> int:
    """The objects of the 100 scenes to try that a decoder names with the right colour and shape: 200 at most."""
    ids = [each.image_id for each in data.split("test")]
    captions, _ = greedy(decoder, vectors.read(ids))
    return sum(named_right(words, scenes.scene(id)) for words, id in zip(captions, ids, strict=True))


torch.manual_seed(0)
blind = train(Blind())
print(f"without attention: {score(blind)} of 200 objects named right")

# %% [markdown]
# ## 10.1
#
# Write a decoder that looks, train it, and give its captions and maps for scenes that it has not seen:
# `describe(a)` takes annotation vectors $(B, L, D)$ and returns $B$ captions, each a list of words, and maps
# $(B, C, L)$, where $C$ is the number of words of the longest caption or more. A map sums to 1 over the places.
#
# You may change whatever you like: `weights` alone, or everything. Train before you call the check. `score` tells you
# how far you are with the objects; for the maps, run the check. The check asks for 160 of 200 objects, and for maps
# with their peak on the object at half of the words.


# %%
# BEGIN SOLUTION
class Seeing(Blind):
    """The same decoder with the paper's attention (equations 4 and 5)."""

    def __init__(self, D: int = 128, n: int = 192, k: int = 128) -> None:
        super().__init__(D=D, n=n)
        self.W_a, self.W_h = nn.Linear(D, k), nn.Linear(n, k, bias=False)
        self.v = nn.Linear(k, 1, bias=False)

    def weights(self, a: Tensor, h: Tensor) -> Tensor:
        e = self.v(torch.tanh(self.W_a(a) + self.W_h(h).unsqueeze(1))).squeeze(2)
        return torch.softmax(e, 1)


torch.manual_seed(0)
seeing = train(Seeing())
print(f"with attention: {score(seeing)} of 200 objects named right")


# END SOLUTION
# STUB # Your decoder, and its training.
def describe(a: Tensor) -> tuple[list[list[str]], Tensor]:
    """Exercise 10.1: captions of annotation vectors (B, L, D), and a map for each word (B, C, L)."""
    # BEGIN SOLUTION
    return greedy(seeing, a)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Let a class inherit from `Blind` and replace `weights`. Energies come from `a` and `h`, as in exercise 4.1, and a
# softmax over the places makes weights of them. The new matrices go into `__init__`. Then `train` an object of your
# class once, outside of `describe`, and let `describe` call `greedy`.

# %% [markdown] tags=["pseudocode"]
# ```
# class Seeing(Blind):
#     __init__: Blind's, and W_a, W_h, v
#     weights(a, h): softmax over the places of  v . tanh(W_a a + W_h h)
#
# seeing = a trained Seeing
# describe(a): greedy captions and maps of seeing
# ```

# %% [markdown]
# ## 10.2
#
# Suppose that your decoder names 180 objects right, and `Blind` 60. Which finding shows that the *maps* made the
# difference?
#
# - **a.** The training loss of your decoder ends far below that of `Blind`.
# - **b.** You put an even map in place of yours, in the same trained decoder. It then names few objects right.
# - **c.** A `Blind` with twice as many LSTM units names fewer objects right than your decoder.
# - **d.** The peaks of your maps lie on the objects that the words name.


# %%
def what_shows_it() -> str:
    """Exercise 10.2: "a", "b", "c" or "d"."""
    # BEGIN SOLUTION
    return "b"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# To show that something is a cause, take it away and leave everything else as it is.

# %% [markdown]
# ## Explore: Make it better
#
# Change one thing: add a gate (exercise 4.4), the doubly stochastic penalty (5.2), a temperature, two maps at each
# word, or hard attention with the estimator of chapter 6; or use fewer training scenes. Measure it with `score` for at
# least three seeds. Does it name more objects? Are its peaks more often on the right object? Here is a start.

# %%
few = [score(blind)]  # put in your own decoders, each trained from another seed
print(f"{len(few)} trained: {few}; mean {sum(few) / len(few):.0f} of 200")

# %% [markdown] tags=["rubric"]
# A full answer
#
# - changes one thing and names the question that it asks;
# - compares at least three seeds with and three without the change, and gives the spread of each;
# - says what happened to the maps, with a figure or with the share of words whose peak lies on the object;
# - finds a cause, and tests it by one more experiment;
# - says plainly if nothing improved.
