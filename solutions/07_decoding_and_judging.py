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
# # Exercises 7. Decoding and judging
#
# A model returns probabilities of next words. A search turns them into a caption, and a score says how good it is. You
# write the searches and the scores. Run each cell, and run the check below it. Under each check you can unfold a hint,
# the solution and, where you write a whole function, pseudocode.
#
# Here a model is a function. `next_words(prefix)` takes the words so far as a tuple, `()` at the beginning, and returns
# a dict from next word to probability. A caption ends with the word `END`.

# %%
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from satcourse.exercises import carry_on, check

END = "(end)"


def story(prefix: tuple[str, ...]) -> dict[str, float]:
    """A small model to try your searches on: story(()) is what may come first."""
    table = {
        (): {"a": 0.6, "the": 0.4},
        ("a",): {"dog": 0.4, "cat": 0.35, "bird": 0.25},
        ("the",): {"dog": 0.9, "cat": 0.1},
        ("the", "dog"): {"runs": 0.85, END: 0.15},
    }
    return table.get(prefix, {END: 1.0})


# %% [markdown]
# ## 7.1
#
# Take the most probable word, then the most probable word after it, and so on, until the end mark, or until there are
# `longest` words.


# %%
def greedy(next_words: Callable, longest: int) -> list[str]:
    """Exercise 7.1: the words, the end mark among them if it came. next_words: a model. longest: words at most."""
    # BEGIN SOLUTION
    words = []
    while len(words) < longest:
        following = next_words(tuple(words))
        best = max(following, key=following.get)
        words.append(best)
        if best == END:
            break
    return words
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `max(d, key=d.get)` is the key of a dict with the largest value. A model wants a tuple: `tuple(words)`.

# %% [markdown] tags=["pseudocode"]
# ```
# words = nothing
# as long as there are fewer than `longest`:
#     add the most probable word after them
#     stop if it is the end mark
# ```

# %% [markdown]
# ## 7.2
#
# Keep the `width` best beginnings instead of one. At each step, extend every living beginning by every word that may
# follow, and keep the `width` best of all these. Those that end with the end mark are finished and grow no more. In the
# end the best *finished* caption wins. Rank beginnings by their log-probability, the sum of the logarithms of their
# words' probabilities. A caption has at most `longest` words, its end mark included. If none is finished by then, the
# result is an empty list and minus infinity.


# %%
def beam_search(next_words: Callable, width: int, longest: int) -> tuple[list[str], float]:
    """Exercise 7.2: the best finished caption, its end mark included, and its log-probability."""
    # BEGIN SOLUTION
    living = [(0.0, ())]
    finished = []
    for _ in range(longest):
        grown = []
        for total, words in living:
            for word, p in next_words(words).items():
                grown.append((total + math.log(p), (*words, word)))
        grown.sort(reverse=True)
        kept = grown[:width]
        finished += [each for each in kept if each[1][-1] == END]
        living = [each for each in kept if each[1][-1] != END]
    total, words = max(finished, default=(-math.inf, ()))
    return list(words), total
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Pairs (log-probability, words) sort by themselves, best first with `sort(reverse=True)`. Keep two lists: living and
# finished.

# %% [markdown] tags=["pseudocode"]
# ```
# living = [(0, no words)], finished = []
# repeat `longest` times:
#     grown = every living beginning with every word that may follow, log p added
#     kept = the `width` best of grown
#     those of kept that end go to finished; the others are living
# the best of finished, or nothing and minus infinity
# ```

# %% [markdown]
# ## 7.3
#
# To sample at a temperature, sharpen the words' probabilities ($T < 1$) or flatten them ($T > 1$) before you draw one.
#
# $$p_T(k) = \frac{p(k)^{1/T}}{\sum_j p(j)^{1/T}} = \mathrm{softmax}\Big(\frac{\log p}{T}\Big)_k$$


# %%
def at_temperature(p: Tensor, T: float) -> Tensor:
    """Exercise 7.3: the distribution (K,) at temperature T. p: (K,), sums to 1."""
    # BEGIN SOLUTION
    powers = p ** (1 / T)
    return powers / powers.sum()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# At T = 1/2 each probability is squared; then divide by the sum.

# %% [markdown] tags=["pseudocode"]
# ```
# powers = p to the power 1 / T
# powers / sum of powers
# ```

# %% [markdown]
# ## 7.4
#
# This is the core of BLEU: what share of a caption's $n$-grams occurs in a reference? An $n$-gram counts at most as
# often as in the reference that has it most: its count is *clipped*. ("star star star" against "a star" scores 1/3.) A
# caption too short to have an $n$-gram scores 0. `ngrams` counts them for you.


# %%
def ngrams(words: list[str], n: int) -> Counter:
    """How often each n-gram, a tuple of n words in a row, is said."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


# %%
def clipped_precision(caption: list[str], references: list[list[str]], n: int) -> float:
    """Exercise 7.4: the share, 0 to 1. caption: words. references: words of each."""
    # BEGIN SOLUTION
    ours = ngrams(caption, n)
    if not ours:
        return 0.0
    hits = 0
    for gram, count in ours.items():
        most = max(ngrams(each, n)[gram] for each in references)
        hits += min(count, most)
    return hits / sum(ours.values())
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A `Counter` gives 0 for what it has not seen. For each n-gram of the caption: the smaller of its own count and the
# largest count of the references.

# %% [markdown] tags=["pseudocode"]
# ```
# ours = how often each n-gram of the caption is there
# hits = sum over them of min(its count, largest count in one reference)
# hits / number of the caption's n-grams
# ```

# %% [markdown]
# ## 7.5
#
# Precision alone rewards short captions. So the COCO tools' BLEU has a penalty for captions that are too short. With
# $c$ words, and $r$ the length of the reference whose length is closest to $c$ (if two are equally close, the shorter):
#
# $$\mathrm{BP} = \begin{cases} 1 & c \ge r \\ \exp(1 - r / c) & c < r \end{cases}$$


# %%
def brevity_penalty(length: int, references: list[int]) -> float:
    """Exercise 7.5: the factor, 0 to 1. length: c. references: their lengths."""
    # BEGIN SOLUTION
    r = min(references, key=lambda each: (abs(each - length), each))
    if length >= r:
        return 1.0
    return math.exp(1 - r / length)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `min(references, key=lambda r: (abs(r - length), r))` looks at the distance first, and at the length itself where
# distances are equal.

# %% [markdown] tags=["pseudocode"]
# ```
# r = the closest reference length (if two are equally close, the shorter)
# 1 if length >= r, else exp(1 - r / length)
# ```

# %% [markdown]
# ## 7.6
#
# BLEU of a corpus, without the brevity penalty, as in Table 1 of *Show, Attend and Tell*. Hits and n-grams are counted
# over *all* captions before they are divided; then the geometric mean of the precisions of $n = 1, \dots, N$. A
# caption's hits are `clipped_precision` times its number of n-grams. If one precision is 0, BLEU is 0. At least one
# caption has $N$ words.
#
# $$\mathrm{BLEU}_N = \Big(\prod_{n=1}^N \frac{\sum_{\text{captions}} \mathrm{hits}_n}{\sum_{\text{captions}} \text{n-grams}_n}\Big)^{1/N}$$


# %%
def bleu(captions: list[list[str]], references: list[list[list[str]]], N: int) -> float:
    """Exercise 7.6: BLEU-N of a corpus, 0 to 1. captions: words of each. references: those of each caption."""
    # BEGIN SOLUTION
    product = 1.0
    for n in range(1, N + 1):
        hits, total = 0.0, 0
        for caption, human in zip(captions, references):
            count = max(0, len(caption) - n + 1)
            hits += clipped_precision(caption, human, n) * count
            total += count
        product *= hits / total
    return product ** (1 / N)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Two loops: over n, and inside it over the captions. A caption of c words has c - n + 1 n-grams, never fewer than 0.

# %% [markdown] tags=["pseudocode"]
# ```
# for n from 1 to N:
#     hits, total = sums over the captions of (clipped_precision * its n-grams), (its n-grams)
#     precision_n = hits / total
# the N-th root of the product of the precisions
# ```

# %% [markdown]
# ## 7.7
#
# A beam search that runs, and something is wrong with it: it seldom returns a short caption, even where a short one is
# more probable than the one that it returns. Find the bug and fix it.


# %%
def best_caption(next_words: Callable[[tuple[str, ...]], dict[str, float]], width: int, longest: int) -> list[str]:
    """Exercise 7.7: the most probable caption that a beam of `width` finds within `longest` words, without END."""
    living, finished = [((), 0.0)], []
    for _ in range(longest):
        grown = [
            ((*words, word), score + math.log(p))
            for words, score in living
            for word, p in next_words(words).items()
            if p > 0
        ]
        grown = sorted(grown, key=lambda each: each[1], reverse=True)[:width]
        # BEGIN SOLUTION
        finished += [each for each in grown if each[0][-1] == END]
        # END SOLUTION
        # STUB finished = [each for each in grown if each[0][-1] == END]
        living = [each for each in grown if each[0][-1] != END]
        if not living:
            break
    words, _ = max(finished or living, key=lambda each: each[1])
    return [word for word in words if word != END]


# %% [markdown] tags=["hint"]
# Print `finished` at each step, for a model in which a caption of one word ends with a high probability.

# %% [markdown]
# ## 7.8
#
# Somebody's BLEU is higher than everybody else's. Here is the heart of it. With the references "the dog in the grass",
# "the dog" and "the grass", it gives the caption "the the the the" a precision of 1. Find the bug and fix it.


# %%
def hits(caption: list[str], references: list[list[str]], n: int) -> tuple[int, int]:
    """Exercise 7.8: the caption's n-grams that count as found, and all of its n-grams."""

    def ngrams(words: list[str]) -> Counter:
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    most = Counter()
    for each in references:
        # BEGIN SOLUTION
        most |= ngrams(each)
        # END SOLUTION
        # STUB most += ngrams(each)
    said = ngrams(caption)
    return sum((said & most).values()), sum(said.values())


# %% [markdown] tags=["hint"]
# How often may "the" count? Print `most`. A `Counter` knows `+`, `|` and `&`.

# %% [markdown]
# ## 7.9
#
# The core of METEOR, from an alignment that is given, with every word weighing the same. `pairs` says which word of the
# caption is aligned with which of the reference: `(i, j)`. With $m$ pairs,
#
# $$P = \frac{m}{\text{words said}}, \quad R = \frac{m}{\text{words wanted}}, \quad F = \frac{P R}{0.85\, P + 0.15\, R}, \quad \text{METEOR} = F\, \big(1 - 0.6\, (c/m)^{0.2}\big) .$$
#
# $c$ is the number of chunks: runs of caption words whose partners are a run too, in the same order. If caption and
# reference are equal (one chunk that covers both), there is no penalty. Without a pair, METEOR is 0.


# %%
def meteor_core(pairs: list[tuple[int, int]], said: int, wanted: int) -> float:
    """Exercise 7.9: METEOR of a caption of `said` words against a reference of `wanted` words; pairs may be in any order."""
    # BEGIN SOLUTION
    if not pairs:
        return 0.0
    m, pairs = len(pairs), sorted(pairs)
    P, R = m / said, m / wanted
    F = P * R / (0.85 * P + 0.15 * R)
    chunks = 1 + sum((i, j) != (before_i + 1, before_j + 1) for (before_i, before_j), (i, j) in pairwise(pairs))
    if chunks == 1 and m == said == wanted:
        return F
    return F * (1 - 0.6 * (chunks / m) ** 0.2)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Sort the pairs by the caption's words. A new chunk begins wherever a pair does not follow the pair before it in *both*
# sentences.

# %% [markdown] tags=["pseudocode"]
# ```
# no pairs: 0
# m = number of pairs;  P = m / said;  R = m / wanted;  F as above
# chunks = 1 + how many pairs do not follow the one before by (1, 1)
# one chunk, and m = said = wanted: F
# otherwise F (1 - 0.6 (chunks / m)^0.2)
# ```

# %% [markdown]
# ## 7.10
#
# In notebook 07, the words predicted under teacher forcing have a higher BLEU-1, against the reference that was fed in,
# than the captions that the same model generates. Yet few of the forced lines are sentences. Why is their BLEU-1
# higher?
#
# - **a.** At each step the model is given the reference's true words so far. It cannot go astray, and many words follow from
#   the one before.
# - **b.** The forced words are compared with other references than the generated captions.
# - **c.** The forced words are found by a wider beam.
# - **d.** The model has learnt the test photographs by heart.


# %%
def why_too_high() -> str:
    """Exercise 7.10: "a", "b", "c" or "d"."""
    # BEGIN SOLUTION
    return "a"
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Look at the lines "true", "forced" and "generated" in the notebook. What does the model know when it says its fifth
# word?
