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
# # 3. Captions
#
# **How do sentences that people wrote become numbers from which a network can learn?**
#
# A decoder never sees a sentence. It sees a row of integers. Here you go from what people wrote about a picture to the batch that one
# training step uses.
#
# **You will be able to**
#
# - split captions into words, and build a vocabulary that is the same tomorrow;
# - say what you lose when you leave rare words out, and save them in pieces;
# - make batches of captions of one length, as section 4.3 of the paper does, and say how much work that saves;
# - compute a loss that does not flatter itself.
#
# **Time**: 22 minutes to read, 64 more to write, 40 seconds to run. **Memory**: 1.0 GB. **Needs**: nothing, and nothing to
# download.
# **Next**: [notebook 04](04_soft_attention.ipynb), soft attention.

# %% jupyter={"source_hidden": true}
import random
from functools import partial

import matplotlib.pyplot as plt

from satcourse.checks.ex03 import IMPOSTORS
from satcourse.figures import use_page_style
from satcourse.lessons import counts
from satcourse.widgets.slides import Slides
from satlib.data.batches import pairs
from satlib.model.decoder import Decoder
from satlib.model.objective import word_losses
from satlib.recipe import DecoderConfig

use_page_style()

# %%
from collections import Counter
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from satcourse.checks import reveal, seal, skip
from satlib.data import scenes
from satlib.data.text import Vocabulary, tokenise

# %% [markdown]
# ## Five references per picture
# <!-- index: section 5.1 | data sets, five references for each image | satlib.data.datasets.load | tests/test_datasets.py::test_flickr8k -->
# <!-- asked: Flickr8k, Flickr30k or COCO: how many captions, and whose splits (Karpathy)? | Five for each picture in all three, as the paper has it; a table has the sizes of the splits, and who made them. -->
#
# A caption data set has pictures, some captions for each, and a split for each picture: train, dev or test. Drawn scenes need no files:
# satlib draws the picture, and a small grammar writes its captions.

# %%
data = scenes.load(train=1500, dev=100, test=200)
example = data.split("train")[4]

# %% jupyter={"source_hidden": true}
figure, (left, right) = plt.subplots(
    1, 2, width_ratios=(1, 3), figsize=(8.8, 2.4), layout="constrained"
)
left.imshow(data.photo(example))
for row, caption in enumerate(example.references):
    right.text(
        0.0, 0.86 - 0.19 * row, f"{row + 1}. {caption}", fontsize=9, transform=right.transAxes
    )
left.axis("off")
right.axis("off")
plt.show()

# %% [markdown]
# All five are right, and no two are alike.
#
# > **Paper, section 5.1** (in our words, here and below). Flickr8k and Flickr30k have five captions for each picture. Some pictures of COCO
# > have more; those in excess of five are left out, so that all three have the same number of references.
#
# | data set | pictures: train / dev / test | who made the splits |
# | --- | --- | --- |
# | drawn scenes | as many as you want | you choose |
# | Flickr8k | 6,000 / 1,000 / 1,000 | its authors |
# | Flickr30k | 29,000 / 1,014 / 1,000 | Karpathy; it was published without splits |
# | COCO 2014 | 113,287 / 5,000 / 5,000 | Karpathy |
#
# How to get them, or make your own, is in [docs/data.md](../docs/data.md).
#
# ## Words
# <!-- asked: Which tokeniser (tokenizer) should I use for captions? | There is no right one; use the same one everywhere, above all on both sides of a score. -->
#
# > **Paper, section 5.1.** COCO gets only basic tokenization, to be consistent with the one that Flickr8k and Flickr30k come with.
#
# We read "basic" like this: everything is put in lower case, and only words are kept. A word has letters and digits, and may have hyphens and
# apostrophes *inside*. Whatever else stands there ends a word.


# %% tags=["task:3.1"]
def words(caption: str) -> list[str]:
    """The words of a caption: "The dog's ball (red)!" gives ["the", "dog's", "ball", "red"]."""
    # BEGIN SOLUTION
    kept = "".join(
        letter if letter.isalnum() or letter in "-'" else " " for letter in caption.lower()
    )
    return [word.strip("-'") for word in kept.split() if word.strip("-'")]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Replace every character that no word can contain by a space, and split. Then look at the ends of what you have: what about `- one` and `'big'`?

# %% [markdown] tags=["pseudocode"]
# ```
# in lower case, put a space in place of all but letters, digits, - and '
# split at spaces
# take - and ' off the ends of each piece; drop what is empty then
# ```

# %%
for caption in (
    "A dog's T-shirt, (red)!",
    "Two men -- one of them old -- play chess.",
    "Nº 7 wins 3-0 .",
):
    print(words(caption))
captions = [caption for each in data.examples for caption in each.references]
differing = [caption for caption in captions if words(caption) != tokenise(caption)]
print(f"satlib's tokenise splits {len(differing)} of {len(captions):,} captions differently")

# %% [markdown]
# There is no *right* tokeniser. What matters is to use the same one everywhere, above all on both sides of a score.
#
# ## The vocabulary
# <!-- index: section 5.1 | a fixed vocabulary of 10,000 words | satlib.data.text.Vocabulary | tests/test_text.py::test_ids_are_ordered_by_frequency_then_alphabet -->
# <!-- index: claim: the vocabulary is counted on training captions alone | test words that training never saw stay unknown | satlib.data.text.Vocabulary | tests/test_text.py::test_size_and_min_count_bound_the_vocabulary -->
# <!-- asked: How do I build a vocabulary, and may it see the test captions? | Count the words of the training captions alone, keep the most frequent, and sort ties by the alphabet. -->
#
# > **Paper, section 5.1.** A vocabulary of 10,000 words in all experiments.
#
# Count the words of the *training* captions, sort them by frequency, and keep the first ones. Two places are taken: 0 is the end mark, 1
# stands for every unknown word.
#
# Many words are equally frequent. If their order is left to chance (to a Python set, or to the order of files), then words get other ids in
# the next run, and the weights of the last one no longer fit them. So sort ties by the alphabet.


# %% tags=["task:3.2"]
def vocabulary(captions: list[str], size: int) -> list[str]:
    """The words worth knowing, the most frequent first; with the two special ones there are at most `size`."""
    # BEGIN SOLUTION
    counted = Counter(word for caption in captions for word in words(caption))
    return sorted(counted, key=lambda word: (-counted[word], word))[: size - 2]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A `Counter` counts. `sorted(..., key=lambda word: (-counted[word], word))` sorts by two things at once.

# %% [markdown] tags=["pseudocode"]
# ```
# count the words of all captions
# sort them by count, the largest first; equal ones by the alphabet
# keep the first size - 2
# ```


# %%
def encode(caption: list[str], known: list[str]) -> list[int]:
    """The words of a caption as ids, and the end mark: 0 is the end, 1 an unknown word, 2 the first of the known ones."""
    ids = {word: number for number, word in enumerate(known, start=2)}
    return [*(ids.get(word, 1) for word in caption), 0]


training = [caption for each in data.split("train") for caption in each.references]
known = vocabulary(training, 10_000)
print(f"{len(known)} words: {', '.join(known[:8])}, ...")
print("A big red hippopotamus. ->", encode(words("A big red hippopotamus."), known))
shuffled = vocabulary(random.Random(0).sample(training, len(training)), 10_000)
print("the same from shuffled captions:", shuffled == known)

# %% [markdown]
# The hippopotamus has become a 1.
#
# ### Leaving rare words out
# <!-- asked: How many words become unknown (UNK) with a threshold of five (min_count)? | A few in a hundred in new captions, though two thirds of Flickr8k's words are left out. -->
#
# Our grammar has 62 words. People have more: the training captions of Flickr8k, whose word counts come with satlib, have 7,689. So the paper's
# 10,000 leave out none of them. But a rare word is hard to learn, and it costs a row of the embedding and a row of the output layer, a thousand
# numbers at 512 dimensions. Many recipes therefore drop words that are seen fewer than, say, five times. **Then how many of 100 words in new
# captions are unknown?**

# %%
my_guess_unknown = ...  # a range of which you are 80 % sure, (low, high), or skip


# %% jupyter={"source_hidden": true}
def draw_counts():
    """How often words are said, and what leaving out the rare ones costs."""
    _, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.1), layout="constrained")
    left.loglog(np.arange(1, len(seen) + 1), seen, label=f"Flickr8k: {len(seen):,} words")
    spoken = [
        word for each in data.split("train") for line in each.references for word in tokenise(line)
    ]
    drawn = sorted(Counter(spoken).values(), reverse=True)
    left.loglog(
        np.arange(1, len(drawn) + 1), drawn, "C5--", label=f"drawn scenes: {len(drawn)} words"
    )
    left.set(
        xlabel="rank of the word (1: the most frequent)",
        ylabel="times it is said",
        title="training captions",
    )
    left.legend()
    right.plot(kept, unknown, "o-")
    for number, x, y in zip(least, kept, unknown, strict=True):
        label = f"seen {number} times or more" if number == least[-1] else f"{number}"
        right.annotate(label, (x, y), xytext=(5, 5), textcoords="offset points")
    right.set(
        xlabel="words kept",
        ylabel="unknown dev words, percent",
        title="what leaving words out costs",
    )
    right.set(xlim=(0, 8500), ylim=(0, 14))
    plt.show()


# %% jupyter={"source_hidden": true}
seal(my_guess_unknown)
flickr8k = counts.read()
train, dev = flickr8k["train"].words, flickr8k["dev"].words
seen = np.array(sorted(train.values(), reverse=True))
least = [1, 2, 3, 5, 10, 20, 50]
kept = [(seen >= number).sum() for number in least]
unknown = [
    100 * sum(times for word, times in dev.items() if train[word] < number) / dev.total()
    for number in least
]
draw_counts()
reveal("unknown with a least count of 5, percent", unknown[3])
once, once_in_text = 100 * (seen == 1).mean(), 100 * (seen == 1).sum() / seen.sum()
print(f"seen once: {once:.0f} percent of the words, {once_in_text:.1f} percent of the text")
print(
    f"words kept: {kept[3]:,} of {kept[0]:,}; unknown without a least count: {unknown[0]:.1f} percent"
)
per_caption = dev.total() / flickr8k["dev"].lengths.total()
print(
    f"words in a dev caption: {per_caption:.1f}; unknown among them: {per_caption * unknown[3] / 100:.2f}"
)

# %% [markdown] tags=["answer"]
# 3.4. With all words it is 1.3, so two thirds of the vocabulary are gone at little cost. It sounds like nothing. But a caption has eleven words,
# so 100 captions have 37 holes.

# %% [markdown]
# 41 percent of the words are said only once, and all of them together make up 1 percent of the text. On the left, Flickr8k's curve is nearly
# straight, as is usual for a language (Zipf's law), and steepens slowly. The grammar's curve drops like a cliff, because the grammar has no rare words.
#
# There is one mistake that nothing warns you about: counting the words of *all* captions. Then nearly a third of the unknown words in the test captions
# disappear, and without a least count all of them do. With them goes the sign of what training has missed.
#
# ### Words in pieces
# <!-- asked: What is byte-pair encoding (BPE, subword tokens)? | Join the most frequent pair of neighbours again and again: common words become one piece, and rare ones can be spelt. -->
# <!-- asked: Why not a character-level captioner? | Characters leave next to nothing unknown, but a word takes more than twice as many of them as of pieces. -->
#
# The hippopotamus can be saved. Language models have no unknown words, because their tokens are *pieces* of words, down to single bytes.
# **Byte-pair encoding** (BPE; Sennrich et al., 2016) finds such pieces. It begins with single characters, and again and again it joins the most
# frequent pair of neighbours in the text. What is common becomes one piece. What is rare can still be spelt, by the same joins in the same order.
#
# We leave out one thing that Sennrich et al. have: a mark at the end of each word.


# %% tags=["task:3.3"]
def byte_pairs(counts: dict[str, int], number: int) -> list[tuple[str, str]]:
    """The pairs that are joined, in order. counts: how often each word is said. Of equally frequent pairs, the first in the alphabet."""

    # BEGIN SOLUTION
    def joined(pieces, pair):
        result = []
        for piece in pieces:
            if result and (result[-1], piece) == pair:
                result[-1] += piece
            else:
                result.append(piece)
        return result

    words, merges = {word: [*word] for word in counts}, []
    for _ in range(number):
        frequent = Counter()
        for word, pieces in words.items():
            for pair in pairwise(pieces):
                frequent[pair] += counts[word]
        merges.append(min(frequent, key=lambda pair: (-frequent[pair], pair)))
        words = {word: joined(pieces, merges[-1]) for word, pieces in words.items()}
    return merges
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A pair counts as often as its word is said; `pairwise(pieces)` gives a word's neighbours. Begin with a function `joined(pieces, pair)`: go
# through the pieces from the left, and append each to a list, or to that list's last piece.

# %% [markdown] tags=["pseudocode"]
# ```
# the pieces of each word: its letters
# so many times:
#     count the neighbours in all words, each as often as the word is said
#     take the most frequent pair; join it in all words
# ```


# %% jupyter={"source_hidden": true}
def in_pieces(word, merges):
    """A word in the pieces of these merges."""
    pieces = [*word]
    for pair in merges:
        i = 0
        while i < len(pieces) - 1:
            if (pieces[i], pieces[i + 1]) == pair:
                pieces[i : i + 2] = ["".join(pair)]
            i += 1
    return pieces


# %% jupyter={"source_hidden": true}
common = {word: times for word, times in train.items() if times >= 5}
merges = byte_pairs(common, 300)
for word in ("dogs", "running", "skateboarder", "hippopotamus"):
    print("-".join(in_pieces(word, merges)), end="  ")
print()
letters = {letter for word in common for letter in word}
unspelt = {word for word in dev if not set(word) <= letters}
share = 100 * sum(dev[word] for word in unspelt) / dev.total()
spelt, longer = (
    sum(len(cut(word)) * times for word, times in dev.items()) / dev.total()
    for cut in (list, partial(in_pieces, merges=merges))
)
print(
    f"{len(letters)} characters, {share:.3f} of 100 unknown ({', '.join(sorted(unspelt))}), {spelt:.2f} a word"
)
print(f"{len(letters) + 300} pieces, {share:.3f} of 100 unknown, {longer:.2f} a word")

# %% [markdown]
# Every join makes something shorter. Which words become whole first, and which never?

# %% jupyter={"source_hidden": true}
SHOWN = ("a", "dog", "running", "grass", "children", "skateboarder", "hippopotamus")


def draw_pieces(joins):
    """Words in the pieces that so many joins leave, a box for each."""
    figure = plt.figure(figsize=(3.4, 1.9))
    axis = figure.add_axes((0, 0, 1, 1), xlim=(0, 3.4), ylim=(-len(SHOWN) + 0.4, 0.6))
    axis.set_axis_off()
    for row, word in enumerate(SHOWN):
        at = 0.15  # inches
        for piece in in_pieces(word, merges[:joins]):
            box = {"boxstyle": "round,pad=0.3", "facecolor": "#dbe9f6", "edgecolor": "C0"}
            axis.text(at, -row, piece, family="monospace", fontsize=9, va="center", bbox=box)
            at += 0.076 * len(piece) + 0.16
    return figure


def pieces_a_word(joins):
    total = sum(len(in_pieces(word, merges[:joins])) * times for word, times in dev.items())
    last = f'; the last joined "{"".join(merges[joins - 1])}"' if joins else ""
    return f"{joins} ({total / dev.total():.2f} pieces a word{last})"


Slides(draw_pieces, [0, 1, 3, 10, 30, 100, 200, 300], "joins", pieces_a_word)

# %% [markdown]
# 34 characters already do what 2,536 words could not: only about 1 word in 10,000 is unknown, one with a digit that no common word has. The
# hippopotamus can be spelt, if not understood. The price is length. Single characters make 4.03 pieces a word. The joins lower that to 1.64, and
# a caption still has nearly 60 percent more steps than with words.
#
# Now put the pieces together again:

# %%
print("one word: ", *in_pieces("skateboarder", merges))
print("two words:", *in_pieces("skateboard", merges), *in_pieces("er", merges))

marked = byte_pairs({word + "_": times for word, times in common.items()}, 300)  # "_" is no letter
line = "a skateboarder runs"
pieces = [piece for word in line.split() for piece in in_pieces(word + "_", marked)]
print("with a mark:", *pieces, "->", "".join(pieces).replace("_", " "))
with_mark = sum(len(in_pieces(word + "_", marked)) * times for word, times in dev.items())
print(f"with a mark: {with_mark / dev.total():.2f} pieces a word")

# %% [markdown]
# Without a mark nobody can: `skateboard er` may be one word or two. With a mark at the end of each word (Sennrich's is `</w>`), the sentence
# comes back. With as many joins, the mark raises 1.64 pieces a word to 1.78. So your pieces are good enough to *read* captions; a captioner that *writes* in
# pieces needs the mark.
#
# ## Batches of one length
# <!-- index: section 4.3 | batches of captions of one length | satlib.data.batches.SameLengthBatches | tests/test_batching.py::test_every_caption_exactly_once_and_one_length_a_batch -->
# <!-- index: claim: batches of one length train faster | padding share, measured | satlib.data.batches.SameLengthBatches | tests/test_batching.py::test_every_caption_exactly_once_and_one_length_a_batch -->
# <!-- asked: Should I sort captions by length (buckets, pack_padded_sequence)? | In random batches about half of all steps are padding; batches of one length have none, at the price of a few small batches. -->
#
# > **Paper, section 4.3.** An update takes time in proportion to its longest caption. So each update draws a length, and then 64 captions of
# > that length. Training converged much faster, with no noticeable loss of performance.
#
# In a mixed batch, each caption is filled up to the length of the longest. The filling is called *padding*: it is computed and thrown away. **In
# random batches of 64 captions of Flickr8k, what share of all steps is padding?**

# %%
my_guess_padding = ...  # percent: (low, high), or skip


# %% jupyter={"source_hidden": true}
def draw_padding():
    """The lengths of captions, and 16 captions of a batch with their padding."""
    _, (left, right) = plt.subplots(1, 2, figsize=(8.4, 2.9), layout="constrained")
    left.hist(lengths, bins=np.arange(1.5, lengths.max() + 1.5), rwidth=0.85)
    left.set(title="captions of Flickr8k", xlabel="words, the end mark included", ylabel="captions")
    right.barh(range(16), mixed[0][:16], height=0.9)
    rest = mixed[0].max() - mixed[0][:16]  # up to the longest of all 64
    right.barh(
        range(16),
        rest,
        left=mixed[0][:16],
        height=0.9,
        color="white",
        edgecolor="C5",
        hatch="///",
        linewidth=0,
    )
    right.set(title="16 of them in a batch; hatched: padding", xlabel="steps", yticks=[])
    plt.show()


# %%
seal(my_guess_padding)
lengths = np.repeat(
    [length + 1 for length in flickr8k["train"].lengths], [*flickr8k["train"].lengths.values()]
)
chance = np.random.default_rng(0)
mixed = np.array_split(chance.permutation(lengths), len(lengths) // 64)
padding = 100 * (1 - lengths.sum() / sum(len(part) * part.max() for part in mixed))
draw_padding()
reveal("padding, percent of all steps", padding)

# %% [markdown] tags=["answer"]
# Nearly half: 49 percent in this shuffle. So the same words take about twice the work.

# %% [markdown]
# So group the captions by length, and cut each group into batches. Then every caption comes once an epoch, and the price is at most one small
# batch for each length. (A real loader shuffles the captions first and the batches afterwards, anew in each epoch.)


# %% tags=["task:3.4"]
def same_length_batches(lengths: list[int], size: int) -> list[list[int]]:
    """Batches of captions, each a list of their numbers: one length in a batch, at most `size`, every caption once.

    lengths: the length of caption 0, of caption 1, and so on.
    """
    # BEGIN SOLUTION
    groups = {}
    for number, length in enumerate(lengths):
        groups.setdefault(length, []).append(number)
    return [
        group[start : start + size]
        for group in groups.values()
        for start in range(0, len(group), size)
    ]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# A dict from length to the numbers of its captions. Then slices: `group[start : start + size]`. If you sort and cut instead, what happens where
# a length runs out?

# %% [markdown] tags=["pseudocode"]
# ```
# groups: for each length, the numbers of its captions
# for each group: cut it into pieces of `size`; the last may be smaller
# ```

# %%
batches = same_length_batches(lengths.tolist(), 64)
of_length = Counter(lengths.tolist())
updates = len(batches)
print(
    f"{len(lengths):,} captions in {updates} batches; mixed there would be {-(-len(lengths) // 64)}"
)

# %% [markdown]
# ### Every caption once, or a random length?
# <!-- asked: Draw a random length for each batch, or use every caption once an epoch? | With lengths drawn evenly, more than half of the captions are not used at all in an epoch's updates, and rare lengths come again and again. -->
#
# Read the paper again: each update draws a length. Suppose that we drew lengths *evenly*, and the captions afresh each time. Then rare lengths
# would get as many updates as common ones. (Nobody does that, as far as we know: the official code takes the lengths in turn and skips those
# that are used up.) **In as many updates as one epoch has, what share of the captions of Flickr8k would not be used at all?**

# %%
my_guess_unused = ...  # percent: (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_guess_unused)
draws = updates / len(of_length)  # of each length, on average
missed = sum(n * (1 - min(1, 64 / n)) ** draws for n in of_length.values()) / len(lengths)
commonest = max(of_length.values())
reveal("not used at all, percent", 100 * missed)
print(
    f"lengths drawn as often as they occur: {100 * (1 - 64 / len(lengths)) ** updates:.0f} percent not used"
)
print(
    f"a caption of the commonest length is used {draws * 64 / commonest:.2f} times, one of the rarest {draws:.0f} times"
)

# %% [markdown] tags=["answer"]
# 62 percent, while each of the longest captions would come along 15 times. If lengths are drawn as often as they occur, it is still 35 percent.
# The paper does not say which it means.

# %% [markdown]
# ### Padding lies about the loss
# <!-- asked: Must I mask padding in the loss (ignore_index), and divide by the words? | Yes: padding is easy to predict, and counted in the mean it makes the loss look better than it is. -->
#
# If you mix lengths after all, padding does more than waste time. Short captions are padded with end marks, and once the first of them is said,
# the others are easy to predict. Let them into the mean, and the loss looks better than the model is.


# %% tags=["task:3.5"]
def word_loss(losses: Tensor, lengths: Tensor) -> Tensor:
    """The mean loss of the true words, (), from the loss at every place (B, C) and the lengths of the captions (B,)."""
    # BEGIN SOLUTION
    true = torch.arange(losses.shape[1]) < lengths.unsqueeze(1)  # (B, C)
    return losses[true].mean()
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `torch.arange(C) < lengths.unsqueeze(1)` is True at the words. Every word counts the same, whether its caption is long or short.

# %% [markdown] tags=["pseudocode"]
# ```
# mask: True at places before each caption's length     (B, C)
# the mean of the losses where the mask is True
# ```

# %% [markdown]
# Here a small decoder learns our shortest and our longest caption by heart, once with the padding in its loss and once without. Each starts
# from three seeds.


# %%
def by_heart(with_padding: bool, seed: int, steps: int = 160) -> np.ndarray:
    """The loss with padding counted, and per true word, at each step of learning two captions: (steps, 2), nats."""
    torch.manual_seed(seed)
    sizes = DecoderConfig(embedding=32, hidden=64, attention_hidden=32, dropout=0.0)
    decoder = Decoder(sizes, 64, len(known) + 2)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=3e-3)
    a = torch.randn(2, 49, 64)  # two images that are nothing but noise
    found = []
    for _ in range(steps):
        losses = word_losses(decoder(a, padded).logits, padded)
        flattering, honest = losses.mean(), word_loss(losses, true_lengths)
        optimiser.zero_grad()
        (flattering if with_padding else honest).backward()
        optimiser.step()
        found.append((flattering.item(), honest.item()))
    return np.array(found)


both = sorted(
    pairs(data.split("train"), Vocabulary(known), max_length=40), key=lambda pair: len(pair.caption)
)
two = [torch.tensor(pair.caption) for pair in (both[0], both[-1])]
padded = nn.utils.rnn.pad_sequence(
    two, batch_first=True
)  # (2, C of the longer), with the end mark, 0
true_lengths = torch.tensor([len(caption) for caption in two])
learned = {
    "padding, too": [by_heart(True, seed) for seed in range(3)],
    "true words alone": [by_heart(False, seed) for seed in range(3)],
}
for name, curves in learned.items():
    for step in (40, 80, 160):
        flattering, honest = np.mean([curve[step - 1] for curve in curves], axis=0)
        print(
            f"learned {name:16} step {step:3}: {flattering:.2f} with padding counted, {honest:.2f} per true word"
        )

# %% jupyter={"source_hidden": true}
figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
for (name, curves), style in zip(learned.items(), ("C1--", "C0-"), strict=True):
    for number, curve in enumerate(curves):
        axis.plot(range(1, 161), curve[:, 1], style, label=None if number else f"learns {name}")
axis.plot(
    range(1, 161),
    learned["padding, too"][0][:, 0],
    "C5:",
    label="what the first of these reports (padding counted)",
)
axis.set(xlabel="steps", ylabel="loss (nats)", ylim=(0, None))
axis.legend()
plt.show()

# %% [markdown]
# At step 40 the models that learn padding report a loss of 1.49 on average, where their true one is 1.99. That is the lie: one model, two numbers.
# The control, which never learned padding, is not flattered.
#
# Those that learn padding are also slower: from each of the three seeds, the control is ahead at step 40 and at step 80. Probably padding takes a share of the gradient. (It is not that the
# end mark confuses them: padded with another id, they are as slow.) But they are no worse in the end, when all six models know the two captions by heart.
# <!-- again: in by_heart, padded = torch.where(true, padded, 1), and the plain mean of cross_entropy, six seeds: 2.02 at step 40, where end marks give 1.97 -->
#
# Batches of one length have nothing to mask.
#
# ## What goes in, what should come out
# <!-- asked: What is fed before the first word: is there a start token? | Zeros stand before the first word here; then each true word goes in, and the next one is asked for (shifted by one). -->
# <!-- asked: Why does a captioner need an end token? | The end mark is the last word that it is asked for; a captioner that never was cannot end. -->
#
# In training the decoder is fed the true words, whatever it would have said (*teacher forcing*). Each word is asked for one step before it is
# fed. So the sentence predicts itself, word by word from the left (an *autoregressive* model).


# %% tags=["task:3.6"]
def inputs_and_targets(captions: Tensor, E: Tensor) -> tuple[Tensor, Tensor]:
    """What a decoder is fed at each step, (B, C, m), and the word that it is then asked for, (B, C).

    captions: ids (B, C) that end with the end mark. E: (K, m), a row for each word. Before the first word there are zeros.
    """
    # BEGIN SOLUTION
    nothing = torch.zeros(len(captions), 1, E.shape[1])
    return torch.cat([nothing, E[captions[:, :-1]]], dim=1), captions
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `E[captions]` looks up all embeddings at once, (B, C, m). Which word of each caption is never fed?

# %% [markdown] tags=["pseudocode"]
# ```
# inputs: zeros (B, 1, m), then the embeddings of all words but the last
# targets: the captions
# ```

# %%
toy = torch.tensor([encode(["a", "red", "star"], known)])
inputs, targets = inputs_and_targets(
    toy, torch.arange(len(known) + 2.0).unsqueeze(1)
)  # an embedding that is the id
print("fed:      ", inputs.squeeze(2).int().tolist()[0])
print("asked for:", targets.tolist()[0])

# %% [markdown]
# The last word that it is fed is "star", and the right answer is 0: stop talking. A captioner that was never asked for the end mark cannot end
# a sentence.
#
# ## On trial: 0 of 9,000
#
# `words` and satlib's tokeniser agreed on all 9,000 captions. Is that a proof? Here are five tokenisers, each wrong in one way. How many
# captions do *they* split differently?

# %%
for fault, impostor in IMPOSTORS.items():
    print(
        f"{sum(impostor(caption) != tokenise(caption) for caption in captions):5,}  one that {fault}"
    )
print(
    "characters in the 9,000 captions:",
    *sorted({letter for caption in captions for letter in caption} - {" "}),
)

# %% [markdown]
# Four of the five pass, too, because these captions have nothing but letters, blanks, commas and full stops. So write the control: captions on
# which each of the five gives itself away.


# %% tags=["task:3.7"]
def probes() -> list[str]:
    """At most three captions. On one of them at least, each of the five wrong tokenisers differs from satlib's."""
    # BEGIN SOLUTION
    return ["A T-shirt; a dog's ball!", "one café -- and a 'bar'"]
    # END SOLUTION


# %% [markdown] tags=["hint"]
# What can stand in a caption that is neither a small letter, a comma nor a full stop? One caption can catch several of them.

# %% jupyter={"source_hidden": true}
caught = {
    fault: [text for text in probes() if impostor(text) != tokenise(text)]
    for fault, impostor in IMPOSTORS.items()
}
for fault, texts in caught.items():
    print(f"one that {fault}: {texts[0] if texts else 'passes'}")
for text in (*probes(), "The dog’s well--known rock-'n'-roll", "a horse 's lead"):
    if words(text) != tokenise(text):
        print("ours and satlib's:", words(text), tokenise(text))

# %% [markdown]
# Two captions do what 9,000 could not. And on the last two lines even our `words` differs from satlib's tokeniser: at the curly apostrophe, at `--`, and at `'n'`. Where an 's stands alone, our rule
# drops its apostrophe; satlib keeps it, since Flickr8k writes it so. The two differ in 395 of Flickr8k's 40,460 captions, each time for that
# reason. The verdict on "0 of 9,000": it is true, and nearly empty. A test is only as good as what it could have caught.
#
# ## What to remember
#
# - Split captions the same way everywhere. Count the vocabulary on training captions, and let no chance into its order.
# - Pieces of words leave next to nothing unknown, at the price of longer sentences. They need a mark at the end of a word, or nobody can join
#   them again.
# - Batches of one length need no padding and no mask. With captions like Flickr8k's, randomly mixed batches are about twice the work.
# - Padding that is learned makes the loss look better than it is, and here it slowed learning; the model ended up just as good.
# - The words before go in, the words come out, and the end mark is a word.
#
# So how do they become numbers? **Word by word, by a vocabulary counted on the training captions, the end mark last, in batches of one length; where there is padding, the loss leaves it out.**

# %% [markdown] tags=["workbook"]
# ## Now think
#
# ### Sort instead of grouping
#
# ●○○ · 10 minutes · open
#
# Somebody sorts all captions by length and cuts pieces of 64. Compute the padding that is left. The code is one line shorter, too. What is
# wrong with never shuffling across batches, and which single line would mend it?
#
# <details><summary>Answer</summary>0.3 percent: 469 batches, of which 23 hold more than one length. But each epoch goes from short captions to long ones. Shuffle the batches.
# (The same captions still meet each time, unless they are shuffled before the sort, too.)</details>

# %% [markdown]
# ## References
#
# - K. Xu et al., ICML 2015, [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - Flickr8k: M. Hodosh, P. Young, J. Hockenmaier, JAIR 47, 2013.
# - Byte pairs: R. Sennrich, B. Haddow, A. Birch, ACL 2016. [arXiv:1508.07909](https://arxiv.org/abs/1508.07909)
# - Flickr30k: P. Young et al., TACL 2, 2014.
# - COCO: T.-Y. Lin et al., ECCV 2014. [arXiv:1405.0312](https://arxiv.org/abs/1405.0312)
# - The splits: A. Karpathy, L. Fei-Fei, CVPR 2015. [arXiv:1412.2306](https://arxiv.org/abs/1412.2306)

# %% tags=["claims"] jupyter={"source_hidden": true}
# What the prose says in numbers, held against this run.
assert not differing
assert shuffled == known
assert len(known) == 62
assert 41 <= once < 42
assert 3.3 < unknown[3] < 3.45, "3.4 words in 100"
assert 1.25 < unknown[0] < 1.35, "instead of 1.3"
assert 0.95 < once_in_text < 1.05, "1 percent of the text"
assert 10.5 < per_caption < 11.5, "eleven words"
assert abs(kept[3] / kept[0] - 1 / 3) < 0.01, "drop two thirds of the vocabulary"
assert 48 < padding < 50, "49 percent"
assert 0.61 < missed < 0.62, "62 percent"
reported, true = np.mean([curve[39] for curve in learned["padding, too"]], axis=0)
assert abs(reported - 1.49) < 0.1
assert abs(true - 1.99) < 0.1
assert abs(with_mark / dev.total() - 1.78) < 0.005
assert not any("_" in word for word in common), "the mark is no letter"
assert "".join(pieces).split("_") == [*line.split(), ""], "the sentence comes back"
assert in_pieces("skateboarder", merges) == in_pieces("skateboard", merges) + in_pieces(
    "er", merges
)
for padding_too, words_alone in zip(*learned.values(), strict=True):
    assert padding_too[39, 0] < padding_too[39, 1] - 0.3, "it flatters"
    assert words_alone[39, 1] < padding_too[39, 1] - 0.2, "ahead at step 40"
    assert words_alone[79, 1] < padding_too[79, 1], "and at step 80"
    assert max(words_alone[159, 1], padding_too[159, 1]) < 0.05, "both know them by heart"
assert round(100 * (1 - 64 / len(lengths)) ** updates) == 35
assert (len(captions), round(draws)) == (9000, 15)
assert (len(common), len(letters) + 300) == (2536, 334), (
    "34 characters do what 2,536 words could not"
)
assert share < 0.012, "about 1 word in 10,000"
assert unspelt
assert all(set(word) - letters <= {*"0123456789"} for word in unspelt), "for a digit"
assert abs(longer - 1.64) < 0.005
assert len(letters) == 34
assert abs(spelt - 4.03) < 0.005
assert 1.55 < (per_caption * longer + 1) / (per_caption + 1) < 1.6, (
    "nearly 60 percent more, with the end mark"
)
assert round(per_caption * unknown[3]) == 37
assert words("a horse 's lead") != tokenise("a horse 's lead")
passed = [
    all(impostor(caption) == tokenise(caption) for caption in captions)
    for impostor in IMPOSTORS.values()
]
assert sum(passed) == 4, "four of five pass"
assert all(caught.values())
assert len(probes()) == 2
assert words("The dog’s well--known rock-'n'-roll") != tokenise(
    "The dog’s well--known rock-'n'-roll"
)
