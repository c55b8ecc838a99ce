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
# # Exercises 3. Captions
#
# Sentences become batches of numbers. No word may be lost, and none may be counted that nobody said. Write each
# function, run its cell, and run the check below it. Under each check you can unfold a hint, the solution and, where
# you write a whole function, pseudocode.

# %%
import random
import re
from collections import Counter, defaultdict

import torch
from torch import Tensor

from satcourse.exercises import carry_on, check

# %% [markdown]
# ## 3.1
#
# Split a caption into words of the letters a to z, in lower case, and digits, without punctuation. A single apostrophe
# or hyphen between two letters or digits belongs to the word (dog's, t-shirt). Anywhere else it is punctuation (a dog -
# 'big' and brown).


# %%
def words(caption: str) -> list[str]:
    """Exercise 3.1: the words of a caption, in their order."""
    # BEGIN SOLUTION
    return re.findall(r"[a-z0-9]+(?:[-'][a-z0-9]+)*", caption.lower())
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `re.findall(pattern, text)` finds all pieces of a text that match a pattern. `[a-z0-9]+` matches a run of letters and
# digits, `[-']` a hyphen or an apostrophe, and `(?:...)*` any number of what is in the brackets. Two words may have no
# space between them, as in "a dog,a cat".

# %% [markdown] tags=["pseudocode"]
# ```
# make the caption lower case
# find every run of letters and digits; where a hyphen or an apostrophe joins it to another run, both are one word
# ```

# %% [markdown]
# ## 3.2
#
# A vocabulary of $K$ words has two special ones (the end mark, the unknown word) and the $K - 2$ most frequent words of
# the *training* captions, the most frequent first. Words that are equally frequent are in alphabetical order, so the
# order of the captions does not matter. Use `words`.


# %%
def vocabulary(captions: list[str], size: int) -> list[str]:
    """Exercise 3.2: the words that are kept, without the two special ones. size: K, those two included."""
    # BEGIN SOLUTION
    counts = Counter(word for caption in captions for word in words(caption))
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    return ordered[: size - 2]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `Counter` counts. `sorted(..., key=lambda word: (-counts[word], word))` sorts by two things: frequency, downwards, and
# then the alphabet.

# %% [markdown] tags=["pseudocode"]
# ```
# count all words of all captions
# sort them by (frequency downwards, alphabet)
# keep the first size - 2
# ```

# %% [markdown]
# ## 3.3
#
# Words become ids: 0 is the end of the caption, 1 any word that is not known, and `known[0]` has id 2. Every caption
# ends with the end mark.


# %%
def encode(caption: list[str], known: list[str]) -> list[int]:
    """Exercise 3.3: the ids of a caption's words, the end mark last."""
    # BEGIN SOLUTION
    ids = {word: i + 2 for i, word in enumerate(known)}
    return [ids.get(word, 1) for word in caption] + [0]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Make a dict from word to id first. `dict.get(word, 1)` gives 1 where there is no such word.

# %% [markdown] tags=["pseudocode"]
# ```
# ids = each known word -> its place + 2
# the id of each word of the caption, 1 if it has none; then 0
# ```

# %% [markdown]
# ## 3.4
#
# > **Paper, section 4.3.** A step takes as long as the longest caption of its batch, so batches are made of captions of one length.
#
# You get the length of each caption. Return the batches, each a list of caption indices, from 0. Every caption occurs
# once, a batch has captions of one length and at most `size` of them, and there are no more batches than needed.


# %%
def same_length_batches(lengths: list[int], size: int) -> list[list[int]]:
    """Exercise 3.4: batches, each a list of caption indices. lengths[i]: the length of caption i."""
    # BEGIN SOLUTION
    groups = defaultdict(list)
    for i, length in enumerate(lengths):
        groups[length].append(i)
    batches = []
    for group in groups.values():
        for start in range(0, len(group), size):
            batches.append(group[start : start + size])
    return batches
    # END SOLUTION


# %% [markdown] tags=["hint"]
# First collect the indices of all captions of each length. Then cut each list into pieces. A slice may reach beyond the
# end of a list.

# %% [markdown] tags=["pseudocode"]
# ```
# for each length: the indices of all captions of that length
# cut each of these lists into pieces of at most `size`
# ```

# %% [markdown]
# ## 3.5
#
# In a batch of mixed lengths, short captions are padded, and the padding has a loss too. Return the mean loss of the
# true words alone.


# %%
def word_loss(losses: Tensor, lengths: Tensor) -> Tensor:
    """Exercise 3.5: nats per true word, (). losses: (B, C), one for each place. lengths: (B,), true words of each caption."""
    # BEGIN SOLUTION
    mask = torch.arange(losses.shape[1]) < lengths.unsqueeze(1)  # (B, C), True at words
    return (losses * mask).sum() / mask.sum()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `torch.arange(C) < lengths.unsqueeze(1)` is a table (B, C), True at the words. By how many is the sum to be divided?

# %% [markdown] tags=["pseudocode"]
# ```
# mask = place < length, for each place of each caption
# sum of the losses at words / number of words
# ```

# %% [markdown]
# ## 3.6
#
# In training the decoder does not read its own words. To produce each word, it is given the *true* previous word. This
# is called teacher forcing. So each caption is used twice, the second time shifted by one: as what is asked for, and as
# what goes in. satlib has no start mark. At the first step there is no previous word, so the input is a vector of
# zeros.


# %%
def inputs_and_targets(captions: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """Exercise 3.6: the embedding of the word before each word (B, C, m), and the words that are asked for (B, C).

    captions: (B, C), the ids of captions of equal length, each row with its end mark at the end. E: (K, m), the embeddings.
    """
    # BEGIN SOLUTION
    inputs = torch.zeros(*captions.shape, E.shape[1])
    inputs[:, 1:] = E[captions[:, :-1]]
    return inputs, captions
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Write down, for "a dog (end)", what the decoder gets at steps 1, 2 and 3, and what it has to say there. Which word
# is never an input?

# %% [markdown] tags=["pseudocode"]
# ```
# inputs = zeros                                         (B, C, m)
# inputs from step 2 on = embeddings of all words but the last
# targets = the captions as they are                     (B, C)
# ```

# %% [markdown]
# ## 3.7
#
# What if batches did mix lengths? Say that captions have 6 to 16 words, the end mark included, and all lengths are
# equally frequent. In each batch the captions are filled up to the longest of them. With batches of 2, about 14 % of
# all steps are padding. What is the share with batches of 64?


# %%
def padding_of_64() -> float:
    """Exercise 3.7: the share of padding, between 0 and 1."""
    # BEGIN SOLUTION
    return 1 - 11 / 16  # the longest of 64 almost always has 16 words, and the mean is 11
    # END SOLUTION


# %% [markdown] tags=["hint"]
# How long is the longest of 64 captions, nearly always? How long is a caption on average?

# %% [markdown]
# Now run it.

# %%
chance = random.Random(0)
for size in (1, 2, 4, 16, 64):
    drawn = [[chance.randint(6, 16) for _ in range(size)] for _ in range(500)]
    steps = sum(size * max(lengths) for lengths in drawn)
    print(f"batches of {size:2}: {1 - sum(map(sum, drawn)) / steps:.1%} padding")
