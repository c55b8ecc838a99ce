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
# A decoder does not see a sentence. It sees a sequence of integers. In this notebook you go all the way from what
# people wrote about a picture to the batch of integers that one training step uses, and you measure what some of the
# choices on the way cost.
#
# **You will be able to**
#
# - say what a caption data set contains, load the published ones, and make your own;
# - split captions into words, and show what happens to a score when references and captions are split differently;
# - build a vocabulary from the training captions, and say what you lose when you leave rare words out;
# - make batches of captions of one length, as section 4.3 of the paper does, and say how much work that saves.
#
# **Minutes**: 25 to read, 0.3 to run on two CPU cores. **Memory**: 1.0 GB. **Needs**: nothing, and nothing to download.
# If you have Flickr8k, the notebook uses its captions too.

# %%
import csv
import math
import random
import re
import shutil
import tempfile
import textwrap
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

from satcourse import demo
from satlib.data import counts, scenes
from satlib.data.batches import Batch, Pair, SameLengthBatches, pairs
from satlib.data.datasets import MAX_REFERENCES, Example, find_root, load
from satlib.data.images import open_photo
from satlib.data.text import END, UNKNOWN, Vocabulary, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import metrics, plots
from satlib.model.decoder import Decoder
from satlib.model.objective import negative_log_likelihood, word_losses
from satlib.recipe import DecoderConfig

BLUE, ORANGE, GREEN, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9"
plt.style.use("satcourse.page")
plt.rcParams |= {"figure.dpi": 85, "axes.spines.top": False, "axes.spines.right": False, "font.size": 10}
SEED = 0
root = find_root("flickr8k")
flickr8k = None if root is None else load("flickr8k", root, require_images=False)
print("Flickr8k is", "not here: its counts, which come with satlib, stand in" if flickr8k is None else f"in {root}")

# %% [markdown]
# ## What a caption data set contains
#
# A caption data set has pictures, some captions for each picture, and a split for each picture: train, dev or test. For
# drawn scenes you need no files. `satlib` draws the picture, and a small grammar writes five captions for it.

# %%
data = scenes.load(train=1500, dev=100, test=200, seed=SEED)
example = data.split("train")[4]

figure, (left, right) = plt.subplots(1, 2, width_ratios=(1, 2.6), figsize=(8.4, 2.6), layout="constrained")
left.imshow(data.photo(example))
left.set_title(f"{example.image_id}, split {example.split}", fontsize=9)
for row, caption in enumerate(example.references):
    right.text(0.0, 0.86 - 0.19 * row, f"{row + 1}. {caption}", fontsize=9.5, transform=right.transAxes)
left.axis("off")
right.axis("off")
plt.show()

# %% [markdown]
# All five captions are correct. There is no single right answer. That will matter in notebook 07, where captions are
# scored.
#
# ## Five references per picture
#
# <!-- index: section 5.1 | data sets, five references for each image | satlib.data.datasets.load | tests/test_datasets.py::test_at_most_five_references -->
#
# > **Paper, section 5.1.** Flickr8k and Flickr30k have five captions for each picture. Some pictures of COCO have more;
# > captions in excess of five are left out, so that the three sets have the same number of references.
#
# <!-- source: 6,000 / 1,000 / 1,000 | Hodosh et al., JAIR 2013; docs/data.md -->
# <!-- source: 29,000 / 1,014 / 1,000 | Karpathy's files of splits; docs/data.md -->
# <!-- source: 113,287 / 5,000 / 5,000 | Karpathy's files of splits; docs/data.md -->
# <!-- source: 8 : 1 : 1 | tests/test_datasets.py -->
#
# | data set | pictures: train / dev / test | who makes the splits | how to get it |
# | --- | --- | --- | --- |
# | drawn scenes | as many as you like | you say how many scenes each has | nothing to get |
# | Flickr8k | 6,000 / 1,000 / 1,000 | its authors' lists | `satlib data fetch flickr8k` |
# | Flickr30k | 29,000 / 1,014 / 1,000 | Karpathy; it was published without splits | sign its authors' form |
# | COCO 2014 | 113,287 / 5,000 / 5,000 | Karpathy | `satlib data fetch coco` |
# | your own folder | as you say, or 8 : 1 : 1 | a column of yours, or a hash of each path | a `captions.csv` |
#
# The number of references changes the score. A caption is compared with all of them, so with more references, more of
# its words can count as correct. To make your own data set, put photographs and a `captions.csv` in a folder. Here is
# one with photographs from scikit-image. The astronaut has *six* captions.
#
# **Predict.** How many of the six will satlib keep?

# %%
own = Path(tempfile.mkdtemp()) / "mine"
own.mkdir()
rows = [
    ("astronaut.png", "A woman in an orange space suit smiles.", "train"),
    ("astronaut.png", "An astronaut stands before a flag, holding her helmet.", "train"),
    ("astronaut.png", "A smiling astronaut in front of a model of a shuttle.", "train"),
    ("astronaut.png", "A woman in a space suit has her picture taken.", "train"),
    ("astronaut.png", "An astronaut with short hair looks into the camera.", "train"),
    ("astronaut.png", "This sixth caption is one too many.", "train"),
    ("chelsea.png", "The face of a ginger cat, from very near.", "train"),
    ("coffee.png", "A cup of coffee and a spoon on a wooden table.", "dev"),
    ("rocket.jpg", "A rocket on its launch pad at night.", "test"),
]
for path in demo.photographs():
    (own / path.name).write_bytes(path.read_bytes())
with open(own / "captions.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("image", "caption", "split"), *rows])

mine = load(str(own))
assert {name: len(mine.split(name)) for name in ("train", "dev", "test")} == {"train": 2, "dev": 1, "test": 1}
assert len(mine.examples[0].references) == MAX_REFERENCES == 5
assert not any("sixth" in caption for caption in mine.examples[0].references)

figure, axes = plt.subplots(1, len(mine), figsize=(6.4, 2.1), layout="constrained")
for axis, each in zip(axes, mine.examples, strict=True):
    axis.imshow(open_photo(each.path))
    axis.set_title(f"{each.split} ({len(each.references)})", fontsize=9)
    axis.set_xlabel(textwrap.fill(each.references[0], 24), fontsize=7.5)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)

# %% [markdown]
# The title above each photograph shows its split and how many captions were kept.
#
# <details><summary>Answer</summary>
#
# Five: satlib follows the paper.
#
# </details>
#
# No picture may be in two splits. Otherwise the model is tested on pictures that it has been trained on. satlib refuses
# such a folder:

# %%
both = shutil.copytree(own, Path(tempfile.mkdtemp()) / "both")
with open(both / "captions.csv", "a", newline="", encoding="utf-8") as file:
    csv.writer(file).writerow(("coffee.png", "A cup of coffee.", "test"))  # it is in dev already
try:
    load(str(both))
except SatlibError as refused:
    print(str(refused).replace(str(both.parent), "..."))
else:
    raise AssertionError("satlib refuses such a folder")

# %% [markdown]
# ## Words
#
# > **Paper, section 5.1.** Only basic tokenization is applied to COCO's captions, so that they look like those of
# > Flickr8k and Flickr30k.
#
# In satlib, "basic" means lower case, and words only. A word consists of letters and digits, and may have hyphens and
# apostrophes inside (satlib makes one exception, which comes later). Let us write that ourselves:


# %%
def words_of(caption: str) -> list[str]:
    """Replace what is in no word by spaces, split at spaces, take hyphens and apostrophes off the ends."""
    kept = "".join(letter if letter.isalnum() or letter in "-'" else " " for letter in caption.lower())
    return [word.strip("-'") for word in kept.split() if word.strip("-'")]


for caption in (
    "A dog's T-shirt, (red)!",
    "Two men -- one of them old -- play chess.",
    "Nº 7 wins 3-0 .",
    "Ein Müller läuft",
):
    print(words_of(caption))
    assert words_of(caption) == tokenise(caption)
captions = [caption for each in data.examples for caption in each.references]
assert all(words_of(caption) == tokenise(caption) for caption in captions), "agree on every caption of our scenes"

# %% [markdown]
# Our function and satlib's `tokenise` agree on every caption of our scenes. From here on we use satlib's. The two are
# not identical, though. Flickr8k's files write a possessive as two words: `a dog 's toy`.
# <!-- source: write a possessive as two words | satlib/data/flickr8k-counts.tsv -->
#
# **Predict.** Into how many words does each of the two functions split `a dog 's toy`?

# %%
# NBVAL_CHECK_OUTPUT
for caption in ("a dog 's toy", "A dog\u2019s toy"):
    print(f"by hand {words_of(caption)}, satlib {tokenise(caption)}")
assert words_of("a dog 's toy") != tokenise("a dog 's toy"), "The two are not identical"
assert "'s" in tokenise("a dog 's toy")
assert len(words_of("a dog 's toy")) == len(tokenise("a dog 's toy")) == 4
assert tokenise("A dog\u2019s toy") == tokenise("A dog's toy")

# %% [markdown]
# <details><summary>Answer</summary>
#
# Both give four words, but our function drops the apostrophe of `'s`. satlib keeps it. satlib also treats a curly
# apostrophe like a straight one.
#
# </details>
#
# Neither choice is *right*. What matters is to make the same choice everywhere. That takes care: satlib trains on the
# words of this tokenizer, but published scores are computed on the words of another one (the Penn Treebank's, in the
# COCO tools).
# <!-- source: published scores are computed on the words of another one | notebook 07; pycocoevalcap, tokenizer/ptbtokenizer.py -->
#
# ## The same tokenizer on both sides
#
# <!-- index: claim: both sides are split alike | a period or a capital on one side only moves BLEU-1 by points | satlib.evaluation.metrics.score | tests/test_metrics.py::test_tokens_without_java_are_nearly_those_with_it -->
#
# BLEU-1 is the share of a caption's words that also occur in a reference, times a **brevity penalty**, which lowers the
# score of captions that are shorter than their references (notebook 07 explains both). Let us score correct captions,
# without the penalty: the first caption of each test scene against the other four. Every caption ends with a period. We
# can drop the period on both sides, keep it on both sides, or make the mistake of keeping it on one side.
# <!-- source: shorter than their references | notebook 07 -->
# <!-- source: a word counts at most as often as it occurs in any single reference | the definition of BLEU, notebook 07 -->
#
# Let $w$ be the number of words in all scored captions, $m$ the number of those words that also occur in a reference
# (a word counts at most as often as it occurs in any single reference), and $N$ the number of captions. Then
#
# $$\text{neither: } \frac{m}{w}, \qquad \text{both: } \frac{m+N}{w+N}, \qquad \text{scored captions only: } \frac{m}{w+N}, \qquad \text{references only: } \frac{m}{w}.$$
#
# **Predict.** Without periods, BLEU-1 will be about 86. What will it be with a period on the scored side only? The
# captions have about 14 words.


# %%
def with_period(caption: str) -> list[str]:
    """The words, and the period at the end as a word of its own."""
    return tokenise(caption) + (["."] if caption.rstrip().endswith(".") else [])


def with_capitals(caption: str) -> list[str]:
    """The words as they are written, without punctuation."""
    return re.findall(r"[\w'-]+", caption)


def reference_bleu(
    of_scored: Callable[[str], list[str]], of_references: Callable[[str], list[str]], examples: Sequence[Example]
) -> dict[str, float]:
    """BLEU of everybody's first caption against the others, each side split by its own function."""
    said = {each.image_id: [" ".join(of_scored(each.references[0]))] for each in examples}
    against = {each.image_id: [" ".join(of_references(other)) for other in each.references[1:]] for each in examples}
    return metrics.bleu(said, against)


def protocols(examples: Sequence[Example]) -> dict[str, dict[str, float]]:
    """The same captions, scored in five ways."""
    return {
        "no period": reference_bleu(tokenise, tokenise, examples),
        "period on both sides": reference_bleu(with_period, with_period, examples),
        "period on the scored side": reference_bleu(with_period, tokenise, examples),
        "period on the references' side": reference_bleu(tokenise, with_period, examples),
        "capitals on the scored side": reference_bleu(with_capitals, tokenise, examples),
    }


def matched_words(examples: Sequence[Example]) -> tuple[int, int]:
    """The m and w of the formulas above: each word counts at most as often as one reference has it."""
    m = w = 0
    for each in examples:
        words = Counter(tokenise(each.references[0]))
        most = Counter()
        for other in each.references[1:]:
            most |= Counter(tokenise(other))
        m, w = m + (words & most).total(), w + words.total()
    return m, w


scored = data.split("test")
assert all([word.lower() for word in with_capitals(each)] == tokenise(each) for each in captions)
measured = protocols(scored)
m, w = matched_words(scored)
N = len(scored)
no_penalty = {name: values["BLEU-1 (no brevity penalty)"] for name, values in measured.items()}
expected = [100 * m / w, 100 * (m + N) / (w + N), 100 * m / (w + N), 100 * m / w]
for (name, value), by_formula in zip(no_penalty.items(), expected, strict=False):
    print(
        f"{name:32} {value:5.1f}   by the formula {by_formula:5.1f}   with brevity penalty {measured[name]['BLEU-1']:5.1f}"
    )
    assert math.isclose(value, by_formula, rel_tol=1e-6)
print(f"{'capitals on the scored side':32} {no_penalty['capitals on the scored side']:5.1f}")
print(f"words per caption: {w / N:.1f}")
assert 13.5 < w / N < 14.5, "about 14 words"
assert 85.5 < no_penalty["no period"] < 86.5, "will be about 86"

# %% [markdown]
# The next picture shows the same scores. Its dashed line marks the score without periods.

# %%
figure, axis = plt.subplots(figsize=(8.4, 2.4), layout="constrained")
labels = list(no_penalty)
bars = axis.barh(labels, list(no_penalty.values()), color=[BLUE, GREEN, ORANGE, SKY, YELLOW], height=0.62)
for bar, hatch in zip(bars, ["", "//", "xx", "..", "\\\\"], strict=True):
    bar.set(hatch=hatch)
axis.bar_label(bars, fmt="%.1f", padding=3, fontsize=9)
axis.axvline(no_penalty["no period"], color=plots.INK, linestyle="--", linewidth=1)
axis.invert_yaxis()
axis.set(xlim=(50, 95), xlabel="BLEU-1 of the grammar's captions, percent, no brevity penalty (the axis begins at 50)")
plt.show()
# %%
spread = max(no_penalty.values()) - min(no_penalty.values())
assert no_penalty["period on the scored side"] < no_penalty["no period"] - 4
assert spread > 4, "the score moved by several points"
assert no_penalty["capitals on the scored side"] < no_penalty["no period"] - 3
assert no_penalty["period on both sides"] > no_penalty["no period"] + 0.5
gains = [100 * (share * w + N) / (w + N) - 100 * share for share in (0.9, 0.8, 0.7, 0.6)]  # of a period on both sides
assert gains == sorted(gains), "The lower the score is without it, the more it adds"
assert measured["period on the references' side"]["BLEU-1"] <= measured["no period"]["BLEU-1"]
if flickr8k is not None:
    real = {name: values["BLEU-1"] for name, values in protocols(flickr8k.split("test")).items()}
    print("Flickr8k, people's captions, with brevity penalty:", {name: round(value, 1) for name, value in real.items()})
    assert real["period on both sides"] > real["no period"] + 1.5

# %% [markdown]
# Nobody changed a caption, yet the score moved by several points. For scale: in Table 1 of the paper, soft attention
# has a BLEU-1 of 67 on Flickr8k, and the older Log Bilinear model has 65.6. A period on both sides is an easy word
# that every caption gets right. The lower the score is without it, the more it adds. With a period on the scored side
# only, each caption has one more word, and it is wrong. With a period on the references' side only, the share of
# correct words stays the same, but the references are longer, and the brevity penalty lowers the score. So a score
# means little without its **protocol**: how both sides were split. satlib's scores carry their protocol with them:
#
# <!-- source: a BLEU-1 of 67 on Flickr8k, and the older Log Bilinear model has 65.6 | Table 1 of Xu et al., 2015 -->

# %%
said = {each.image_id: each.references[0] for each in scored}
print(metrics.score(said, {each.image_id: each.references[1:] for each in scored}, meteor=False).protocol)

# %% [markdown]
# ## The vocabulary
#
# <!-- index: section 5.1 | a fixed vocabulary of 10,000 words | satlib.data.text.Vocabulary | tests/test_text.py::test_ids_are_ordered_by_frequency_then_alphabet -->
#
# > **Paper, section 5.1.** One fixed size for all experiments: a vocabulary of 10,000 words.
#
# Count the words of the *training* captions, sort them by frequency, and keep the first ones. Two ids are reserved:
# `END` ends a caption, and `UNKNOWN` stands for every word that was left out. There is no start mark: the decoder
# predicts the first word from a zero embedding.
# <!-- source: the first word from a zero embedding | satlib/model/decoder.py -->
#
# Ties need care. Many words have the same count. If their order depends on chance (on the order of a set, or of files),
# then the same words may get different ids in the next run, and weights from an earlier run no longer fit them. So
# satlib sorts ties alphabetically.


# %%
def vocabulary_of(captions: list[str], size: int = 10_000, min_count: int = 1) -> list[str]:
    """The words by their ids, by hand."""
    counted = Counter(word for caption in captions for word in tokenise(caption))
    frequent = [(-number, word) for word, number in counted.items() if number >= min_count]
    return ["<end>", "<unknown>", *(word for _, word in sorted(frequent))][:size]


training = [caption for each in data.split("train") for caption in each.references]
vocabulary = Vocabulary.from_captions(training)
assert list(vocabulary.words) == vocabulary_of(training)

shuffled = random.Random(SEED).sample(training, len(training))
assert Vocabulary.from_captions(shuffled).hash == vocabulary.hash, "the order of the captions must not matter"

ids = vocabulary.encode("A big red hippopotamus.")
print(ids, vocabulary.decode([*ids, END, 5, 5]))
assert (END, UNKNOWN) == (0, 1)
assert ids[-1] == UNKNOWN
assert vocabulary.decode([*ids, END, 5, 5]) == ["a", "big", "red", "<unknown>"], "what follows the end is not read"

# %% [markdown]
# ### Zipf's law
#
# Sort the words of a language by frequency. Zipf's law says that the frequency of the word of rank $r$ is
# proportional to $1/r$. On logarithmic axes that is a line of slope $-1$.
#
# The captions of Flickr8k do not come with satlib, but their word counts do.
#
# **Predict.** What share of Flickr8k's training words occur only once? Write down a number. Then sketch the frequency
# against the rank, on logarithmic axes, for Flickr8k and for our scenes, whose grammar has a few dozen words.

# %%
real, drawn = counts.read(), counts.count(data)
if flickr8k is not None:
    assert counts.count(flickr8k) == real, "the counts that come with satlib are those of the captions here"


def frequencies(words: Counter) -> np.ndarray:
    """How often each word is said, the most frequent first."""
    return np.array(sorted(words.values(), reverse=True))


seen, said = frequencies(real["train"].words), frequencies(drawn["train"].words)
rank = np.arange(1, len(seen) + 1)
slope, height = np.polyfit(np.log(rank[:1000]), np.log(seen[:1000]), 1)

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.1), layout="constrained")
left.loglog(rank, seen, color=BLUE, linewidth=2, label=f"Flickr8k: {len(seen):,} words")
left.loglog(
    rank[:1000],
    np.exp(height) * rank[:1000] ** slope,
    color=plots.INK,
    linestyle=":",
    label=f"a line of slope {slope:.2f}",
)
left.loglog(
    rank[: len(said)], said, color=ORANGE, linewidth=2, linestyle="--", label=f"drawn scenes: {len(said)} words"
)
left.set(xlabel="rank of the word", ylabel="times it is said", title="Training captions")
left.legend(frameon=False, fontsize=8.5)
least = np.array([1, 2, 3, 5, 10, 20, 50])
kept = np.array([(seen >= number).sum() for number in least])
unknown = [
    100
    * sum(number for word, number in real["dev"].words.items() if real["train"].words[word] < number_least)
    / real["dev"].words.total()
    for number_least in least
]
right.semilogx(kept, unknown, color=BLUE, marker="o", linewidth=2)
for number_least, x, y in zip(least, kept, unknown, strict=True):
    right.annotate(f"{number_least}", (x, y), xytext=(4, 5), textcoords="offset points", fontsize=9)
ticks = [500, 1000, 2000, 4000, 8000]
right.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
right.minorticks_off()
right.set(
    xlabel="words kept",
    ylabel="unknown dev words, percent",
    title="Flickr8k: words seen at least ... times",
    ylim=(0, 14),
)
right.grid()

# %%
once = (seen == 1).mean()
print(
    f"{once:.0%} of Flickr8k's {len(seen):,} training words are seen once; the 100 commonest make up {seen[:100].sum() / seen.sum():.0%} of the text"
)
assert -1.3 < slope < -1.1, "steeper than Zipf's law says"
to_line = np.log(seen / (np.exp(height) * rank**slope))
assert np.abs(to_line[19:1000]).max() < 0.35, "From rank 20 to rank 1,000 its curve is close to a line"
assert 0.35 < once < 0.45, "about four words in ten"
assert len(said) < 100, "a few dozen words"
print("the rarest word of the scenes is said", said[-1], "times")
assert said[-1] >= 5, "a small grammar has no rare words"
assert len(seen) < 10_000, "the paper's 10,000 leaves out nothing of Flickr8k"

# %% [markdown]
# <details><summary>Answer</summary>
#
# For Flickr8k it is about four words in ten. From rank 20 to rank 1,000 its curve is close to a line, a little steeper
# than Zipf's law says. The curve of the scenes is flat and then drops like a cliff: a small grammar has no rare words.
#
# </details>
#
# ### What do you lose when you leave rare words out?
#
# A word that occurs once is hard to learn, and it has a cost: one row of the embedding and one row of the output layer.
# If the embedding has 512 dimensions, these are about a thousand numbers. `min_count` leaves rare words out. The
# numbers in the right picture above are values of `min_count`.
#
# **Predict.** `min_count=5` removes two thirds of the words. What share of the words in new captions becomes unknown?

# %%
print("least count   words kept   output and embedding weights (512 each)   dev words unknown")
for number_least, K, share in zip(least.tolist(), kept.tolist(), unknown, strict=True):
    print(f"{number_least:11} {K:12,} {(K + 2) * (2 * 512 + 1):29,} {share:28.1f} %")
of_five = dict(zip(least.tolist(), zip(kept.tolist(), unknown, strict=True), strict=True))[5]
assert abs(1 - of_five[0] / len(seen) - 2 / 3) < 0.02, "removes two thirds of the words"
assert 1.5 < of_five[1] - unknown[0] < 2.5, "about two in a hundred more than without"
assert unknown[0] > 1, "more than one dev word in a hundred is unknown"

# %% [markdown]
# <details><summary>Answer</summary>
#
# Only about two in a hundred more than without `min_count`. satlib's recipe `flickr8k-soft`, a file with the settings
# of a training run, uses `min_count=5`.
# <!-- source: uses `min_count=5` | satlib/recipes/flickr8k-soft.toml -->
#
# </details>
#
# Even with all training words, more than one dev word in a hundred is unknown.
#
# ### A mistake to avoid: counting test captions too
#
# <!-- index: claim: the vocabulary is counted on training captions alone | test words that training never saw stay unknown | satlib.data.text.Vocabulary | tests/test_text.py::test_size_and_min_count_bound_the_vocabulary -->
#
# It is easy to count the words of all captions in one loop and to split the data afterwards. Nothing fails, and unknown
# words even disappear from the test captions.

# %%
everything = sum((split.words for split in real.values()), Counter())
leaked = [word for word in everything if word not in real["train"].words]
test_only = {word: number for word, number in real["test"].words.items() if word not in real["train"].words}


def ids_by_count(words: Counter) -> dict[str, int]:
    """Word to id, as above."""
    return {word: number for number, word in enumerate(sorted(words, key=lambda word: (-words[word], word)), 2)}


honest, leaking = ids_by_count(real["train"].words), ids_by_count(everything)
moved = sum(honest[word] != leaking[word] for word in honest)
print(
    f"{len(leaked):,} more words, which training never sees; {moved / len(honest):.0%} of the other words have another id"
)
print(
    f"test: {len(test_only)} words were never seen, {sum(test_only.values()) / real['test'].words.total():.1%} of the text"
)
print("among them:", ", ".join(sorted(test_only, key=lambda word: (-test_only[word], word))[:8]))
assert len(leaked) > 1000, "more than a thousand rows whose words do not occur in training"
assert moved / len(honest) > 0.5

# %% [markdown]
# The leak has four effects. The output layer has more than a thousand rows whose words do not occur in training.
# Perplexities are computed over another set of words, so they cannot be compared. Trained weights do not fit the
# vocabulary of a correct run. And the share of unknown words, which would tell you how well the training captions
# cover the test captions, becomes zero. `satlib train` builds its vocabulary from training captions only.
# <!-- source: from training captions only | satlib/training/training_data.py -->
#
# ## Batches of one length
#
# <!-- index: section 4.3 | batches of captions of one length | satlib.data.batches.SameLengthBatches | tests/test_batching.py::test_every_caption_exactly_once_and_one_length_a_batch -->
#
# > **Paper, section 4.3.** An update takes time in proportion to its longest caption. So a dictionary from length to
# > captions is made once; each update draws a length and then 64 captions of that length. Training converged much
# > faster, with no noticeable loss of performance.
#
# First, how long are captions?

# %%
figure, axis = plt.subplots(figsize=(8.4, 2.7), layout="constrained")
for number, (name, split, style) in enumerate(
    [("Flickr8k", real["train"], {"color": BLUE}), ("drawn scenes", drawn["train"], {"color": ORANGE, "hatch": "//"})]
):
    total, longest = split.lengths.total(), max(split.lengths)
    mean = sum(length * times for length, times in split.lengths.items()) / total
    at = np.array(sorted(split.lengths))
    share = [100 * split.lengths[length] / total for length in at]
    axis.bar(
        at + 0.4 * number - 0.2,
        share,
        width=0.4,
        label=f"{name}: mean {mean:.1f}, longest {longest}",
        **style,
    )
axis.set(xlabel="words in a caption", ylabel="percent of captions", xlim=(1, 37))
axis.legend(frameon=False)
plt.show()

# %% [markdown]
# Real captions have a long tail. One long caption in a batch forces all others to take as many steps. In the next
# picture, each row is a caption and each column is one step of the LSTM. Blue steps are words and the end mark. Hatched
# steps are padding: they are computed and thrown away.


# %%
def caption_lengths(split: counts.Counts) -> np.ndarray:
    """The length of every caption, its end mark included: what a step of training really walks."""
    return np.repeat(np.array(list(split.lengths)) + 1, list(split.lengths.values()))


rng = np.random.default_rng(SEED)
lengths = {"Flickr8k": caption_lengths(real["train"]), "drawn scenes": caption_lengths(drawn["train"])}
mixed = rng.choice(lengths["Flickr8k"], 16, replace=False)
same = np.full(16, 11)

figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9), layout="constrained")
for axis, batch, title in zip(axes, (mixed, same), ("16 captions at random", "16 captions of one length"), strict=True):
    longest = batch.max()
    axis.barh(range(16), batch, height=0.9, color=BLUE)
    axis.barh(
        range(16), longest - batch, left=batch, height=0.9, color="none", edgecolor=ORANGE, hatch="///", linewidth=0
    )
    axis.set(
        title=f"{title}: {1 - batch.sum() / (16 * longest):.0%} padding",
        xlim=(0, mixed.max()),
        xlabel="steps",
        xticks=range(0, mixed.max() + 1, 5),
        yticks=[],
    )
    axis.spines[["top", "right", "left"]].set_visible(False)

# %% [markdown]
# ### By hand
#
# Group the captions by length. Shuffle each group and cut it into batches. Then shuffle the batches. The paper draws
# new captions for each update. We cut each group into batches instead, so **every caption occurs once per epoch**. The
# price is that each length has at most one batch that is not full.


# %%
def cut(all_pairs: list[Pair], batch_size: int, seed: int) -> list[list[Pair]]:
    """Batches of one length each, every pair once."""
    by_length = defaultdict(list)
    for pair in all_pairs:
        by_length[len(pair.caption)].append(pair)
    chance, batches = random.Random(seed), []
    for _, members in sorted(by_length.items()):
        chance.shuffle(members)
        batches += [members[start : start + batch_size] for start in range(0, len(members), batch_size)]
    chance.shuffle(batches)
    return batches


all_pairs = pairs(data.split("train"), vocabulary, max_length=40)
by_hand = cut(all_pairs, 64, SEED)
ours = SameLengthBatches(all_pairs, 64, SEED)
batches = ours.epoch(0)


def contents(batch: Batch) -> Counter:
    """What is in one of satlib's batches, as pairs."""
    return Counter(
        Pair(image_id, tuple(row)) for image_id, row in zip(batch.image_ids, batch.captions.tolist(), strict=True)
    )


assert (
    sum((contents(batch) for batch in batches), Counter())
    == Counter(all_pairs)
    == Counter(pair for batch in by_hand for pair in batch)
)
assert len(batches) == len(by_hand) == len(ours)
assert len(batches) - math.ceil(len(all_pairs) / 64) < len({len(pair.caption) for pair in all_pairs}), (
    "at most one batch that is not full"
)
assert sorted(batch.captions.shape for batch in batches) == sorted(
    (len(batch), len(batch[0].caption)) for batch in by_hand
)
print(
    f"{len(all_pairs):,} pairs in {len(batches)} batches; with lengths mixed there would be {math.ceil(len(all_pairs) / 64)}"
)

# %% [markdown]
# One set of captions is only an example. The property has to hold for *any* set, so we test it on a hundred random
# sets, batch sizes and seeds.

# %%
chance = random.Random(SEED)
for trial in range(100):
    some = [Pair(f"{i}.jpg", (*[2] * chance.randint(1, 9), END)) for i in range(chance.randint(1, 150))]
    size, epoch = chance.randint(1, 70), chance.randint(0, 3)
    drawn_batches = SameLengthBatches(some, size, seed=trial).epoch(epoch)
    assert sum(map(contents, drawn_batches), Counter()) == Counter(some)  # every caption once per epoch
    assert all(1 <= len(batch.image_ids) <= size for batch in drawn_batches)
    assert all((batch.captions[:, :-1] != END).all() for batch in drawn_batches)  # one length: nothing is padded
again = [batch.image_ids for batch in SameLengthBatches(all_pairs, 64, SEED).epoch(3)]
assert again == [batch.image_ids for batch in ours.epoch(3)], (
    "seed and epoch alone decide, so that a stopped run can go on"
)
assert again != [batch.image_ids for batch in ours.epoch(4)]

# %% [markdown]
# ### Every caption once, or a random length?
#
# What if we draw the *length* uniformly, as a quick reading of the paper suggests? Rare lengths then get as many updates
# as common ones. (The official code does not do this. It takes the lengths in turn and skips those that are used up, so
# there too every caption occurs once per epoch.)
# <!-- source: every caption occurs once per epoch | homogeneous_data.py of github.com/kelvinxu/arctic-captions -->
# <!-- here: rare lengths then get as many updates as common ones | by definition of a uniform draw -->
#
# **Predict.** Take the lengths of Flickr8k, and as many updates as one epoch has. What share of the captions is not
# used at all?

# %%
of_length = Counter(lengths["Flickr8k"].tolist())
updates = sum(math.ceil(number / 64) for number in of_length.values())
at = np.array(sorted(of_length))
# A draw takes 64 of n captions (all of them, where there are fewer): each is seen min(1, 64/n) times.
even = np.array([updates / len(at) * min(1.0, 64 / of_length[length]) for length in at])

figure, axis = plt.subplots(figsize=(8.4, 2.7), layout="constrained")
axis.semilogy(at - 1, even, color=ORANGE, marker="s", linestyle="--", label="length drawn evenly")
axis.semilogy(at - 1, np.ones(len(at)), color=BLUE, marker="o", markersize=4, label="every caption once")
axis.set(
    xlabel="words in a caption", ylabel="times seen in an epoch", yticks=[0.1, 1, 10], yticklabels=["0.1", "1", "10"]
)
axis.grid()
axis.legend(frameon=False)
plt.show()

# %%
unseen = sum(
    of_length[length] * (1 - min(1, 64 / of_length[length])) ** (updates / len(at)) for length in at.tolist()
) / len(lengths["Flickr8k"])
print(
    f"{updates} updates; the commonest length is seen {even.min():.2f} times, rare ones {even.max():.0f} times; {unseen:.0%} of the captions not at all"
)
assert even.max() / even.min() > 30
assert unseen > 0.5, "More than half of the captions are not used"

# %% [markdown]
# <details><summary>Answer</summary>
#
# More than half of the captions are not used. Instead, the model would see a few very short and very long captions
# again and again.
#
# </details>
#
# ## What it saves
#
# <!-- index: claim: batches of one length train faster | padding share and time, measured | satlib.data.batches.SameLengthBatches | tests/test_batching.py::test_every_caption_exactly_once_and_one_length_a_batch -->
#
# **Predict.** Suppose that captions are batched at random, 64 at a time, and padded to the length of the longest one in
# their batch. What share of all steps is padding, for Flickr8k?
# <!-- here: the longest one in their batch | definition of the padding below -->


# %%
def padding(of: np.ndarray, batch_size: int, chance: np.random.Generator) -> float:
    """The share of an epoch's steps that are padding, captions batched at random."""
    order = chance.permutation(of)
    steps = sum(
        len(part) * part.max() for part in (order[i : i + batch_size] for i in range(0, len(order), batch_size))
    )
    return 1 - of.sum() / steps


sizes = [1, 2, 4, 8, 16, 32, 64, 128, 256]
shares = {name: [padding(of, size, rng) for size in sizes] for name, of in lengths.items()}

figure, axis = plt.subplots(figsize=(8.4, 2.7), layout="constrained")
for (name, values), style in zip(
    shares.items(), ({"color": BLUE, "marker": "o"}, {"color": ORANGE, "marker": "s", "linestyle": "--"}), strict=True
):
    axis.semilogx(sizes, [100 * value for value in values], base=2, label=f"{name}, at random", **style)
axis.semilogx(sizes, [0] * len(sizes), base=2, color=GREEN, marker="^", linestyle=":", label="one length a batch")
axis.set(xlabel="captions in a batch", ylabel="padding, percent of steps", xticks=sizes, xticklabels=sizes)
axis.grid()
axis.legend(frameon=False)
plt.show()

# %%
at_64 = {name: values[sizes.index(64)] for name, values in shares.items()}
for name, share in at_64.items():
    print(
        f"{name:12} at batches of 64: {share:.0%} padding, so the same words should take {1 / (1 - share):.2f} times as long"
    )
assert 0.45 < at_64["Flickr8k"] < 0.55, "About half of the steps are padding"
assert 1.8 < 1 / (1 - at_64["Flickr8k"]) < 2.2, "random batches should therefore take about twice as long"
assert at_64["drawn scenes"] > 0.2

# %% [markdown]
# <details><summary>Answer</summary>
#
# About half of the steps are padding. If each step takes the same time, random batches should therefore take about
# twice as long.
#
# </details>
#
# Does the measured time agree? We run a decoder forward and backward over captions with the lengths of Flickr8k, once
# in batches of nearly one length and once in random batches. Each step runs soft attention over 49 places. We measure
# processor time, which other programs disturb little, and alternate between the two kinds of batches.

# %%
torch.manual_seed(SEED)
threads = torch.get_num_threads()
torch.set_num_threads(1)
decoder = Decoder(
    DecoderConfig(embedding=64, hidden=128, attention_hidden=64, dropout=0.0), annotation_dim=64, vocabulary_size=500
)
a = torch.randn(64, 49, 64)


def step(steps: int) -> float:
    """Processor seconds of forward and backward over 64 captions of so many steps."""
    captions = torch.randint(2, 500, (64, steps))  # (B, C)
    began = time.process_time()
    negative_log_likelihood(decoder(a, captions).logits, captions).mean().backward()
    return time.process_time() - began


step(10)  # the first one also sets things up
some = np.sort(rng.choice(lengths["Flickr8k"], 64 * 24, replace=False))
one_length = [int(part.mean().round()) for part in some.reshape(24, 64)]  # 24 batches of nearly one length
at_random = [
    int(part.max()) for part in rng.permutation(some).reshape(24, 64)
]  # the same captions, padded to the longest
spent = {"one length": 0.0, "at random": 0.0}
for short, long in zip(one_length, at_random, strict=True):
    spent["one length"] += step(short)
    spent["at random"] += step(long)
torch.set_num_threads(threads)
ratio, predicted = spent["at random"] / spent["one length"], sum(at_random) / sum(one_length)
print(
    f"{len(some):,} captions: {spent['at random']:.1f} s padded, {spent['one length']:.1f} s of one length: {ratio:.1f} times (by the steps: {predicted:.1f})"
)
assert 1.5 < ratio < 3, "random batches take about twice the time"

# %% [markdown]
# The measured time follows the number of steps. On these lengths, random batches take about twice the time.
#
# ### No mask
#
# Padding is not only slow. Short captions are padded with end marks. If these get into the loss, the loss looks too
# good: after the first end mark, the others are easy to predict. A batch of mixed lengths therefore needs a mask
# wherever we sum, and forgetting the mask raises no error. Here a decoder trains for a moment without the mask. Then
# we compare the mean loss with and without padding.

# %%
torch.manual_seed(SEED)
in_order = sorted(all_pairs, key=lambda pair: len(pair.caption))
two = [torch.tensor(pair.caption) for pair in (in_order[0], in_order[-1])]  # the shortest and the longest
padded = torch.nn.utils.rnn.pad_sequence(two, batch_first=True, padding_value=END)  # (2, C of the longer)
mask = torch.stack([torch.arange(padded.shape[1]) < len(caption) for caption in two])
decoder = Decoder(DecoderConfig(embedding=32, hidden=64, attention_hidden=32, dropout=0.0), 64, len(vocabulary))
optimiser = torch.optim.Adam(decoder.parameters(), lr=3e-3)
for _ in range(40):
    loss = word_losses(decoder(a[:2], padded).logits, padded).mean()  # the mistake: padding is learned, too
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
with torch.no_grad():
    losses = word_losses(decoder(a[:2], padded).logits, padded)
    alone = [
        word_losses(decoder(a[i : i + 1], caption[None]).logits, caption[None]).sum() for i, caption in enumerate(two)
    ]
torch.testing.assert_close((losses * mask).sum(), torch.stack(alone).sum())  # masked: what the captions cost alone
honest, flattered = (losses[mask].mean().item(), losses.mean().item())
print(f"nats per word: {honest:.2f} over words, {flattered:.2f} with padding counted as words")
assert flattered < honest - 0.05, "the loss looks too good"

# %% [markdown]
# Batches of one length have nothing to mask. If you mix lengths, you must mask.
#
# ## Try it
#
# 1. **Give the test captions to the vocabulary.** In a new cell, build `leaky = Vocabulary.from_captions(training +
#    [...])`, with the captions of the test split. Compare its `hash` and `words` with those of `vocabulary`: new words,
#    or only a new order? Then load only 20 training scenes, and try again.
# 2. **Break ties by chance.** With the 20 scenes, let `vocabulary_of` sort `set(counted)` by count alone. (Its check
#    then fails.) Print `vocabulary_of(training)`, restart the kernel, and do it again. Which ids differ?
# 3. **Cut before you sort.** In `cut`, shuffle all pairs first and cut pieces of 64 without looking at lengths. Which
#    assertion catches it?
# 4. **Sort instead of grouping.** In `padding`, set `order = np.sort(of)`, run the cell, and print `shares`. (The next
#    cell's assertions then fail.) How much padding is left at 64? What do you lose if you do not shuffle these batches?
# 5. **Make your own folder** with ten photographs and leave the column `split` out. Does each split get a photograph?
#    If not, what does the message tell you to do?
#
# ## What to remember
#
# - A caption data set has pictures, captions and splits. Each picture is in one split.
# - Split references and captions with the same tokenizer, and say which. A period on just the scored side costs several
#   points.
# - Many words are rare, but they make up little of the text. Leaving them out makes few words of new captions
#   unknown.
# - Build the vocabulary from training captions only. Its order must not depend on chance.
# - Batches of one length need no padding and no mask. With captions like those of Flickr8k, random batches take about
#   twice the time.
#
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio. *Show, Attend and Tell*. ICML 2015. Sections 4.3 and 5.1. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - M. Hodosh, P. Young, J. Hockenmaier. *Framing Image Description as a Ranking Task*. JAIR 47, 2013 (Flickr8k).
# - P. Young, A. Lai, M. Hodosh, J. Hockenmaier. *From Image Descriptions to Visual Denotations*. TACL 2, 2014
#   (Flickr30k).
# - T.-Y. Lin et al. *Microsoft COCO: Common Objects in Context*. ECCV 2014. X. Chen et al. *Microsoft COCO Captions*. 2015. [arXiv:1504.00325](https://arxiv.org/abs/1504.00325)
# - A. Karpathy, L. Fei-Fei. *Deep Visual-Semantic Alignments for Generating Image Descriptions*. CVPR 2015 (the
#   splits).
# - G. K. Zipf. *Human Behavior and the Principle of Least Effort*. Addison-Wesley, 1949.
