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
# A model gives probabilities of next words; a caption is a search among them, and a figure says how good it is. Write the searches and the figures. Run
# each cell and the check below it. Below the check wait a hint, a pseudocode and a solution, folded.
#
# Here a model is a function: `next_words(prefix)` takes the words so far as a tuple, `()` at the beginning, and gives a dict from next word to probability.
# A caption ends with the word `END`, after which nothing follows.

# %%
import math
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from satlib.exercises import check, reference

END = "(end)"


def story(prefix: tuple[str, ...]) -> dict[str, float]:
    """A model to try yours with: story(()) is what may come first."""
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
# Take the most probable word, then the most probable word after it, and so on, until the end mark, or until there are `longest` words.


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
# Keep the `width` best beginnings instead of one. At each step every living beginning grows by every word that may follow; of all these, the `width` best
# are kept; those of them that end with the end mark are finished and grow no more. At last the best *finished* caption wins. Beginnings are ranked by their log-probability, the
# sum of the logarithms of their words' probabilities. A caption has at most `longest` words, its end mark included. If none is finished by then, the result is
# an empty list and minus infinity.


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
# Pairs (log-probability, words) sort by themselves, best first with `sort(reverse=True)`. Keep two lists: living and finished.

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
# Sampling at a temperature: the words' probabilities are sharpened ($T < 1$) or flattened ($T > 1$) before one is drawn.
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
# The heart of BLEU: which share of a caption's $n$-grams does a reference have? Said more often than in any reference, an $n$-gram does not count more often: its
# count is *clipped* at the most that any one reference has. ("star star star" against "a star" scores 1/3.) A caption too short to have an $n$-gram scores 0.
# `ngrams` counts them for you.


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
# A `Counter` gives 0 for what it has not seen. For each n-gram of the caption: the smaller of its own count and the largest count of the references.

# %% [markdown] tags=["pseudocode"]
# ```
# ours = how often each n-gram of the caption is there
# hits = sum over them of min(its count, largest count in one reference)
# hits / number of the caption's n-grams
# ```

# %% [markdown]
# ## 7.5
#
# Precision alone is won by saying little. The COCO tools' BLEU takes something off captions that are too short. With $c$ words, and $r$ the length of the reference whose
# length is closest to $c$ (the shorter of two as close):
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
# `min(references, key=lambda r: (abs(r - length), r))` looks at the distance first, and at the length itself where distances are equal.

# %% [markdown] tags=["pseudocode"]
# ```
# r = the closest reference length, the shorter of two as close
# 1 if length >= r, else exp(1 - r / length)
# ```

# %% [markdown]
# ## 7.6
#
# BLEU of a corpus, without the brevity penalty, as in the paper's Table 1. Hits and n-grams are counted over *all* captions before they are divided; then the geometric
# mean of the precisions of $n = 1, \dots, N$. A caption's hits are `clipped_precision` times its number of n-grams. If one precision is 0, BLEU is 0.
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
# Every further word makes a caption less probable, so a search prefers short ones. Rank finished captions by $\log p(y \mid a) / C^{\,\gamma}$ instead; $\gamma = 0$ is the
# log-probability itself.


# %%
def best_of(log_ps: list[float], lengths: list[int], power: float) -> int:
    """Exercise 7.7: the number of the best caption, from 0. log_ps: log p(y|a) of each. lengths: C of each. power: gamma."""
    # BEGIN SOLUTION
    scores = [log_p / length**power for log_p, length in zip(log_ps, lengths)]
    return scores.index(max(scores))
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Make a list of scores; `scores.index(max(scores))` is the place of its largest.

# %% [markdown] tags=["pseudocode"]
# ```
# score of each = log_p / length to the power gamma
# the number of the largest score
# ```
