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
# # 7. Decoding and judging
#
# A trained model gives probabilities. A caption is a choice, and there are several ways to make it. Then somebody has to say how good the caption is, and there are several
# ways to be wrong about that, too. Both halves decide the figures in a results table as much as the model does.
#
# **You will be able to**
#
# - write greedy decoding, beam search and sampling, check them against a search through everything, and say what each is for;
# - say why a wider beam finds likelier captions and not always better ones;
# - compute BLEU, CIDEr and the core of METEOR by hand, and name a mistake that each of them does not see;
# - tell a figure of generated captions from one of teacher forcing, and say why the likelihood and BLEU part ways.
#
# **Minutes**: 30 to read, 1 to run on two CPU cores. **Memory**: 1.6 GB. **Needs**: notebook 03 for words and references, 04 for the model; nothing to download. METEOR
# is shown where Java is installed. Where Flickr8k is present, its photographs and captions are judged too.

# %%
import copy
import json
import math
import random
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from nltk.translate.bleu_score import corpus_bleu
from pycocoevalcap.cider.cider import Cider
from torch import Tensor
from torch.testing import assert_close

from satlib import decoding, demo, features, metrics, shipped
from satlib.batching import SameLengthBatches, pairs
from satlib.captioner import Captioner
from satlib.course.beam_tree import tree_figure
from satlib.datasets import Example, find_root, load, scenes
from satlib.datasets.scenes_grammar import parse
from satlib.decoder import Decoder, DecoderConfig
from satlib.decoding import Hypothesis
from satlib.evaluation import generate
from satlib.features import Pixels
from satlib.images import open_photo, square, to_tensor
from satlib.objectives import negative_log_likelihood
from satlib.plots import END_LABEL
from satlib.text import END, UNKNOWN, tokenise

BLUE, RED, GREEN, ORANGE, SKY, PINK = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9", "#cc79a7"
plt.rcParams |= {"figure.dpi": 85, "axes.spines.top": False, "axes.spines.right": False, "font.size": 10}
SEED = 0

# %% [markdown]
# # Decoding
#
# ## A model is a table of next words
#
# After the words so far, a captioner gives each word a probability: $p(y_t \mid a, y_1, \dots, y_{t-1})$. The probability of a caption is the product of those of its words and of its
# end. For decoding nothing else matters, so let us begin with a model small enough to be read: a table that describes some photograph of a dog.

# %%
TABLE = {
    (): {"a": 0.60, "the": 0.40},
    ("a",): {"dog": 0.25, "brown": 0.40, "big": 0.35},
    ("a", "dog"): {END_LABEL: 0.55, "runs": 0.45},
    ("a", "brown"): {"dog": 1.0},
    ("a", "brown", "dog"): {END_LABEL: 0.60, "runs": 0.40},
    ("a", "big"): {"dog": 1.0},
    ("a", "big", "dog"): {END_LABEL: 0.55, "runs": 0.45},
    ("the",): {"dog": 0.85, "brown": 0.15},
    ("the", "dog"): {"runs": 0.85, END_LABEL: 0.15},
    ("the", "brown"): {"dog": 1.0},
    ("the", "brown", "dog"): {"runs": 1.0},
}
Prefix = tuple
NextWords = Callable[[Prefix], Mapping]


def story(prefix: Prefix) -> Mapping[str, float]:
    """The table; after "runs" every caption ends."""
    return {END_LABEL: 1.0} if prefix[-1:] == ("runs",) else TABLE[prefix]


# %% [markdown]
# Three ways to choose. Each takes any such table, and knows nothing of pictures or networks.


# %%
def everything(
    next_words: NextWords, longest: int, end: object = END_LABEL, prefix: Prefix = (), p: float = 1.0
) -> Iterator:
    """Every caption of at most `longest` words with its probability, its end included."""
    for word, p_word in next_words(prefix).items():
        if word == end:
            yield (*prefix, word), p * p_word
        elif len(prefix) < longest:
            yield from everything(next_words, longest, end, (*prefix, word), p * p_word)


def greedy(next_words: NextWords, longest: int, end: object = END_LABEL) -> Prefix:
    """The likeliest word, again and again; at the longest length only the end may follow."""
    words: Prefix = ()
    while words[-1:] != (end,):
        p = next_words(words)
        words = (*words, end if len(words) == longest else max(p, key=p.get))
    return words


def beam(next_words: NextWords, width: int, longest: int, end: object = END_LABEL) -> tuple[list, set]:
    """The `width` best captions that are found, as (words, log p), best first; and every beginning that was kept."""
    living, finished, kept = [((), 0.0)], [], set()
    for t in range(longest + 1):
        candidates = [
            ((*words, word), total + math.log(p))
            for words, total in living
            for word, p in next_words(words).items()
            if p > 0 and (t < longest or word == end)
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        ended = [candidate for candidate in candidates[:width] if candidate[0][-1] == end]
        living = [candidate for candidate in candidates if candidate[0][-1] != end][:width]
        finished += ended
        kept |= {words for words, _ in ended + living}
    return sorted(finished, key=lambda each: -each[1])[:width], kept


captions = dict(everything(story, longest=5))
best = max(captions, key=captions.get)
assert math.isclose(sum(captions.values()), 1.0)
print(f"{len(captions)} captions; the best one: {' '.join(best)}, p = {captions[best]:.3f}")

# %% [markdown]
# ## Greedy decoding, drawn
#
# All captions of the table, one a line. Blue and solid: what the search kept. Grey and dotted: what it dropped. Red and thick: the caption that it gives. Numbers are the
# probabilities of words; at the right stand those of captions.
#
# **What do you expect to see?** Greedy takes "a" at first, since 0.60 is more than 0.40. Can it still reach the best caption?

# %%
chosen = greedy(story, longest=5)
assert chosen != best, "greedy misses the best caption of this table"
assert captions[chosen] < 0.6 * captions[best]
tree_figure(story, best=chosen)

# %% [markdown]
# It cannot: that caption begins with "the". A choice that was right for one word was wrong for the sentence.
#
# ## The beam
#
# Keep the `width` likeliest beginnings instead of one. With two, "the" survives the first step and wins at the second.

# %%
(first, *_), kept = beam(story, width=2, longest=5)
assert first[0] == best
assert math.isclose(first[1], math.log(captions[best]))
assert beam(story, 1, 5)[0][0][0] == chosen, "a beam of width 1 is greedy decoding"
assert [words for words, _ in beam(story, len(captions), 5)[0]] == sorted(captions, key=lambda words: -captions[words])
tree_figure(story, kept, best=first[0])

# %% [markdown]
# The last line says: a beam that never drops anything is a search through everything.
#
# **Look again at the tree.** Half of the probability lies on captions that say *which* dog it is, and yet none of them is the best one. What is specific can be said in many ways, and they share
# their probability. What is general is said in one. The most probable caption is a bland one. Remember it for the end of this half.

# %%
specific = sum(p for words, p in captions.items() if {"brown", "big"} & set(words))
print(
    f"captions that name a property: {specific:.2f} of the probability; the best of them has {max(p for words, p in captions.items() if {'brown', 'big'} & set(words)):.3f}"
)
assert specific > 0.5
assert not {"brown", "big"} & set(best)

# %% [markdown]
# ## The same on satlib's decoder
#
# A decoder of the paper with five words and random weights is such a table as well, one for each picture. Three independent ways must agree: our functions, satlib's (which work on many pictures at once and keep the
# LSTM's state), and the search through everything.

# %%
torch.manual_seed(SEED)
K, longest = 5, 3
tiny = Decoder(
    DecoderConfig(embedding=6, hidden=6, attention_hidden=5, dropout=0.0), annotation_dim=4, vocabulary_size=K
)
tiny = tiny.double().eval().requires_grad_(False)
tiny.output.weight.mul_(4.0)  # sharper, so that captions differ
a = 2 * torch.randn(3, 3, 4).double()  # (B, L, D): three pictures of three places


def table_of(decoder: Decoder, a: Tensor) -> NextWords:
    """The next words of one picture a (1, L, D), asked of a decoder by teacher forcing. "Unknown" is never said."""

    def next_words(prefix: Prefix) -> Mapping[int, float]:
        logits = decoder(a, torch.tensor([[*prefix, END]])).logits[0, -1]  # (K,)
        return {word: p for word, p in enumerate(logits.softmax(0).tolist()) if word != UNKNOWN}

    return next_words


for width in (1, 2, 3, 30):
    found = decoding.beam_search(tiny, a, width, longest)
    for image, hypotheses in enumerate(found):
        by_hand, _ = beam(table_of(tiny, a[image : image + 1]), width, longest, END)
        assert [(*each.words, END) for each in hypotheses] == [words for words, _ in by_hand]
        assert_close([each.log_probability for each in hypotheses], [log_p for _, log_p in by_hand])
for image, hypothesis in enumerate(decoding.greedy(tiny, a, longest)):
    assert (*hypothesis.words, END) == greedy(table_of(tiny, a[image : image + 1]), longest, END)
    exact = dict(everything(table_of(tiny, a[image : image + 1]), longest, END))
    assert (*found[image][0].words, END) == max(exact, key=exact.get)
print("beams of 1, 2, 3 and 30, greedy, and everything: equal")

# %% [markdown]
# From here on decoding is satlib's.
#
# ## Sampling
#
# Do not choose: draw. Each word with its probability, so each caption with its own. A temperature $T$ draws from $p(y_t)^{1/T}$ instead, normalised again: below 1 likely words become likelier still.


# %%
def at_temperature(next_words: NextWords, T: float) -> NextWords:
    """The same table with p^(1/T) in place of p."""

    def sharpened(prefix: Prefix) -> Mapping:
        powers = {word: p ** (1 / T) for word, p in next_words(prefix).items()}
        return {word: power / sum(powers.values()) for word, power in powers.items()}

    return sharpened


def sample(next_words: NextWords, chance: random.Random, end: object = END_LABEL) -> Prefix:
    """One caption: each word is where a random number falls on the words' probabilities, laid end to end."""
    words: Prefix = ()
    while words[-1:] != (end,):
        p = next_words(words)
        ends = np.cumsum(list(p.values()))
        words = (*words, list(p)[min(np.searchsorted(ends, chance.random()), len(p) - 1)])
    return words


chance, n = random.Random(SEED), 10_000
counted = Counter(sample(story, chance) for _ in range(n))
for words, p in captions.items():
    assert abs(counted[words] / n - p) < 4.5 * math.sqrt(p * (1 - p) / n), "drawn as often as it is probable"
temperatures = {T: dict(everything(at_temperature(story, T), 5)) for T in (0.02, 0.5, 1.0, 2.0)}

figure, axes = plt.subplots(1, 4, figsize=(9, 2.5), sharey=True, layout="constrained")
for axis, (T, table) in zip(axes, temperatures.items(), strict=True):
    colours = [RED if words == chosen else BLUE if words == best else "0.7" for words in captions]
    axis.barh([" ".join(words[:-1]) for words in captions], [table[words] for words in captions], color=colours)
    if T == 1.0:
        axis.plot([counted[words] / n for words in captions], range(len(captions)), "k|", markersize=9)
    axis.set(title=f"T = {T}", xlim=(0, 1))
axes[0].invert_yaxis()

# %% [markdown]
# Red: what greedy decoding gives. Blue: the most probable caption. The black ticks at $T = 1$ are shares of 10,000 drawn captions. As $T$ goes to 0, sampling becomes *greedy*, not the best caption.

# %%
assert temperatures[0.02][chosen] > 0.95
assert temperatures[0.02][best] < 0.05
entropies = [-sum(p * math.log(p) for p in table.values() if p > 0) for table in temperatures.values()]
assert entropies == sorted(entropies), "the hotter, the more even"

# %% [markdown]
# ## On photographs
#
# The model that comes with satlib, trained on Flickr8k, and two photographs of scikit-image: greedy, the best three of a beam of 5, and captions drawn at two temperatures. Before each stands its $\log p(y \mid a)$.

# %%
photographer = Captioner.load(shipped.model())
paths = [path for path in demo.photographs() if path.stem in ("astronaut", "motorcycle_left", "grace_hopper")][:2]
photos = [open_photo(path) for path in paths]
batch = torch.stack([to_tensor(square(photo, photographer.view)) for photo in photos])
with torch.inference_mode():
    seen = photographer.annotations(batch)  # (B, L, D)
generator = torch.Generator().manual_seed(SEED)
ways = {
    "greedy": [[each] for each in decoding.greedy(photographer.decoder, seen)],
    "beam of 5": [found[:3] for found in decoding.beam_search(photographer.decoder, seen, 5)],
    "drawn, T = 0.5": [
        [each] for each in decoding.sample(photographer.decoder, seen, temperature=0.5, generator=generator)
    ],
    "drawn, T = 1": [
        [each] for each in decoding.sample(photographer.decoder, seen, temperature=1.0, generator=generator)
    ],
}
figure, axes = plt.subplots(
    len(photos), 2, figsize=(8.6, 1.9 * len(photos)), width_ratios=(1, 3.6), layout="constrained"
)
for image, (photo, (left, right)) in enumerate(zip(photos, np.atleast_2d(axes), strict=True)):
    left.imshow(photo)
    lines = [
        f"{name:15} {each.log_probability:6.1f}  "
        + "\n".join(textwrap.wrap(" ".join(photographer.vocabulary.decode(each.words)), 46, subsequent_indent=" " * 24))
        for name, found in ways.items()
        for each in found[image]
    ]
    right.text(0, 0.97, "\n".join(lines), fontsize=8.5, va="top", family="monospace", transform=right.transAxes)
    left.axis("off")
    right.axis("off")
for one, several in zip(ways["greedy"], ways["beam of 5"], strict=True):
    assert several[0].log_probability >= one[0].log_probability - 1e-4

# %% [markdown]
# Fluent, and wrong in places: these photographs are not like Flickr8k's. The beam's three differ in a word or two; beams do. What is drawn at $T = 1$ is varied and careless.
#
# ## Measured, where right and wrong are known
#
# Drawn scenes say of each caption whether it is right: both objects, all attributes, the relation (`exact_match`). So we can ask what a temperature costs. satlib brings a model of soft attention for scenes.

# %%
N = 120
data = scenes.load(train=0, dev=0, test=N, seed=SEED)
captioner = Captioner.load(shipped.model("scenes-soft"))
vocabulary, pixels = captioner.vocabulary, Pixels(data)


def annotations(examples: Sequence[Example]) -> Tensor:
    """What the encoder makes of pictures: (B, L, D)."""
    with torch.inference_mode():
        parts = [pixels.read([each.image_id for each in examples[i : i + 30]]) for i in range(0, len(examples), 30)]
        return torch.cat([captioner.annotations(part) for part in parts])


test = data.split("test")
a_test = annotations(test)
references = {each.image_id: [" ".join(tokenise(line)) for line in each.references] for each in test}


def said(found: Sequence[Hypothesis]) -> dict[str, str]:
    """One caption a picture, as a line."""
    return {each.image_id: " ".join(vocabulary.decode(one.words)) for each, one in zip(test, found, strict=True)}


def right(captions: Mapping[str, str]) -> float:
    """Percent of captions that say what is there, all of it, and nothing else."""
    return (
        100
        * sum(scenes.exact_match(line, scenes.scene(image_id, SEED)) for image_id, line in captions.items())
        / len(captions)
    )


hotter = [0.25, 0.5, 0.75, 1.0, 1.5]
drawn = [decoding.sample(captioner.decoder, a_test, 24, T, torch.Generator().manual_seed(SEED)) for T in hotter]
correct = [right(said(found)) for found in drawn]
print("greedy:", f"{right(said(decoding.greedy(captioner.decoder, a_test, 24))):.0f} % right")
for T, percent in zip(hotter, correct, strict=True):
    print(f"T = {T:4}: {percent:3.0f} % right")
assert correct[0] > correct[3] + 10 > correct[4] + 20

# %% [markdown]
# A captioner that has to be right does not draw. Drawing is for other things: for many different captions of one picture, and for training, where what is drawn is rewarded (notebook 06 draws
# places, and `satlib train flickr8k-soft-reward` draws words).
#
# ## Length, and what a wider beam does to it
#
# Each further word multiplies the probability by something below 1, so long captions start with a handicap. A beam that searches better finds that handicap better. The usual remedy ranks by
#
# $$\frac{\log p(y \mid a)}{C^{\gamma}},$$
#
# with $C$ the words and the end mark, and $\gamma$ between 0 (the log-probability itself) and 1 (its mean over words). By hand, over all captions of the tiny decoder:

# %%
for image in range(len(a)):
    exact = dict(everything(table_of(tiny, a[image : image + 1]), longest, END))
    for gamma in (0.0, 0.7, 1.0):
        by_hand = max(exact, key=lambda words: math.log(exact[words]) / len(words) ** gamma)
        found = decoding.beam_search(tiny, a[image : image + 1], 30, longest, gamma)[0][0]
        assert (*found.words, END) == by_hand

# %% [markdown]
# Now on scenes: beams from 1 to 10, with $\gamma = 0$ and $\gamma = 1$.
#
# **What do you expect to see?** The wider the beam, the likelier the captions. Longer or shorter? And are there more right ones?

# %%
beams = [1, 2, 3, 5, 10]
searched = {
    gamma: [
        [image[0] for image in decoding.beam_search(captioner.decoder, a_test, width, 24, gamma)] for width in beams
    ]
    for gamma in (0.0, 1.0)
}
words = {gamma: [np.mean([len(each.words) for each in found]) for found in every] for gamma, every in searched.items()}
likely = [np.mean([each.log_probability for each in found]) for found in searched[0.0]]
correct = [right(said(found)) for found in searched[0.0]]
of_people = np.mean([len(line.split()) for lines in references.values() for line in lines])

figure, (left, middle, last) = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
left.plot(beams, likely, color=BLUE, marker="o")
left.set(title="log p(y|a), mean", xlabel="width of the beam")
middle.plot(beams, words[0.0], color=BLUE, marker="o", label="$\\gamma$ = 0")
middle.plot(beams, words[1.0], color=RED, marker="s", linestyle="--", label="$\\gamma$ = 1")
middle.axhline(of_people, color="0.3", linestyle=":", label="people")
middle.set(title="words in a caption, mean", xlabel="width of the beam")
middle.legend(frameon=False, fontsize=8.5)
last.plot(beams, correct, color=BLUE, marker="o")
_ = last.set(title="right captions, percent", xlabel="width of the beam", ylim=(0, 100))

# %%
for i in range(len(beams) - 1):
    pairs_of = zip(searched[0.0][i], searched[0.0][i + 1], strict=True)
    lower = sum(wide.log_probability < narrow.log_probability - 1e-4 for narrow, wide in pairs_of)
    print(f"from width {beams[i]} to {beams[i + 1]}: {lower} of {N} captions are less likely than before")
print(
    "width", beams, "\nlog p", np.round(likely, 2), "\nwords", np.round(words[0.0], 2), "\nright", np.round(correct, 1)
)
assert likely[0] < likely[2] < likely[4], "likelier"
assert words[0.0][4] < words[0.0][0] - 0.2, "shorter"
assert words[1.0][4] > words[0.0][4] + 0.2, "not with the normalisation"
assert correct[4] < correct[2] + 4, "and not better"

# %% [markdown]
# <!-- index: claim: a wider beam finds likelier captions, not better ones | beam width against log p, length and exact match | satlib.decoding.beam_search | tests/test_decoding.py::test_a_full_beam_is_exhaustive_search -->
#
# ### Why a wider beam need not give a better caption
#
# It need not even be likelier, for a single picture: a beginning that the narrow beam kept can be crowded out by others that turn out worse (the counts above). On the whole it is. But likelier is not better,
# for three reasons that are all on this page. The search was asked for the *most probable* caption, and that one is bland: what can be said in many ways shares its probability (the tree). It is short, because every word costs.
# And what the model thinks probable is not what is true: from some width on, the search finds the model's mistakes, not its own. So the width is a hyperparameter, chosen on the dev split, and 3 to 5 is usual.

# %% [markdown]
# # Judging
#
# ## BLEU, by hand
#
# BLEU asks how many of a caption's words, pairs, triples and fours some reference has too. Three ideas:
#
# - **clipping**: an $n$-gram counts at most as often as it stands in *one* reference, so that "star star star" gets one star;
# - **the geometric mean**: BLEU-$n$ is that of the precisions $p_1, \dots, p_n$, each over the whole corpus, so that one of them near 0 is felt;
# - **the brevity penalty**: precision alone rewards saying little. With $c$ words said and $r$ in the references (for each caption, the one closest in length), multiply by
#   $\min(1, e^{1 - r/c})$.


# %%
def ngrams(words: Sequence[str], n: int) -> Counter:
    """Every run of n words, counted."""
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu(
    captions: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]], n: int, penalty: bool = True
) -> float:
    """Corpus BLEU-n, 0 to 1."""
    agree, total, c, r = [0] * n, [0] * n, 0, 0
    for words, others in zip(captions, references, strict=True):
        for k in range(n):
            most = Counter()
            for other in others:
                most |= ngrams(other, k + 1)  # of each n-gram the greatest count in one reference
            agree[k] += (ngrams(words, k + 1) & most).total()
            total[k] += ngrams(words, k + 1).total()
        c += len(words)
        r += min((abs(len(other) - len(words)), len(other)) for other in others)[1]
    if not all(agree):
        return 0.0
    mean = math.exp(sum(math.log(k / m) for k, m in zip(agree, total, strict=True)) / n)
    return mean * (min(1.0, math.exp(1 - r / c)) if penalty else 1.0)


people = {image_id: lines[0] for image_id, lines in references.items()}
others = {image_id: lines[1:] for image_id, lines in references.items()}
split = [line.split() for line in people.values()], [[line.split() for line in lines] for lines in others.values()]
ours = metrics.bleu({image_id: [line] for image_id, line in people.items()}, others)
for n in range(1, 5):
    by_hand, without = bleu(*split, n), bleu(*split, n, penalty=False)
    theirs = corpus_bleu(split[1], split[0], weights=(1 / n,) * n)
    assert math.isclose(by_hand, theirs, rel_tol=1e-9)
    assert math.isclose(100 * by_hand, ours[f"BLEU-{n}"], rel_tol=1e-6)
    assert math.isclose(100 * without, ours[f"BLEU-{n} (no brevity penalty)"], rel_tol=1e-6)
print("by hand, nltk and satlib.metrics (the COCO tools) agree")
assert math.isclose(bleu([["star", "star", "star"]], [[["a", "star"]]], 1), 1 / 3), "clipped"

# %% [markdown]
# One caption, drawn: a bar for each $n$-gram. Blue: some reference has it. White and hatched: none has.

# %%
caption = tokenise("A big star is to the left of a small red circle.")
against = [
    tokenise("A big star sits to the left of a small red disc."),
    tokenise("The small red circle is on the right of a big star."),
]
figure, axis = plt.subplots(figsize=(8.6, 2.4), layout="constrained")
for n in range(1, 5):
    most = ngrams(against[0], n) | ngrams(against[1], n)
    for i in range(len(caption) - n + 1):
        hit = most[tuple(caption[i : i + n])] > 0
        style = {"color": BLUE} if hit else {"facecolor": "white", "edgecolor": RED, "hatch": "////"}
        axis.barh(n + 0.22 * (i % n) - 0.11 * (n - 1), n - 0.12, left=i + 0.06, height=0.8 / (n + 0.6), **style)
    hits = (ngrams(caption, n) & most).total()
    axis.text(len(caption) + 0.2, n, f"$p_{n}$ = {hits}/{len(caption) - n + 1}", va="center", fontsize=9)
for i, word in enumerate(caption):
    axis.text(i + 0.5, 0.38, word, ha="center", va="center", fontsize=9)
axis.set(
    xlim=(0, len(caption) + 1.6),
    ylim=(4.7, 0.1),
    yticks=range(1, 5),
    yticklabels=["words", "pairs", "triples", "fours"],
    xticks=[],
)
axis.spines[["left", "bottom"]].set_visible(False)
axis.tick_params(length=0)

# %% [markdown]
# ## BLEU without brevity penalty
#
# <!-- index: claim: BLEU is reported without brevity penalty | what captions cut short score with and without it | satlib.metrics.bleu | tests/test_metrics.py::test_brevity_penalty_by_hand -->
#
# > **Paper, section 5.1, with its notes.** BLEU-1 to BLEU-4 are reported *without* a brevity penalty; BLEU-$n$ is the geometric mean of the precisions. BLEU has its critics, so METEOR is
# > reported as well.
#
# It is a choice that was common then, and it makes the paper's figures incomparable with those of the COCO tools, which have the penalty. How much can hide in it? Take the model's captions and
# keep their first words only.
#
# **What do you expect to see?** "a big purple triangle" for a scene of two objects: nearly half of the truth. Is its BLEU half?

# %%
generated = said(searched[0.0][2])  # beam of 3
kept_words = list(range(4, 17, 2))
cut = [
    metrics.bleu({image_id: [" ".join(line.split()[:number])] for image_id, line in generated.items()}, references)
    for number in kept_words
]
with_penalty, without = [each["BLEU-4"] for each in cut], [each["BLEU-4 (no brevity penalty)"] for each in cut]
figure, axis = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
axis.plot(kept_words, without, color=RED, marker="s", linestyle="--", label="without brevity penalty (the paper)")
axis.plot(kept_words, with_penalty, color=BLUE, marker="o", label="with it (COCO tools)")
axis.set(xlabel="words kept of each caption", ylabel="BLEU-4, percent", ylim=(0, 90))
_ = axis.legend(frameon=False, loc="lower right")

# %%
print(
    f"captions of four words: {without[0]:.0f} without, {with_penalty[0]:.0f} with the penalty; whole: {without[-1]:.0f} and {with_penalty[-1]:.0f}"
)
assert without[0] > 0.85 * without[-1], "half a caption is as good, if nobody asks for the rest"
assert with_penalty[0] < 0.3 * with_penalty[-1]
assert right({image_id: " ".join(line.split()[:4]) for image_id, line in generated.items()}) == 0

# %% [markdown]
# So a figure without the penalty needs the length of the captions beside it. `satlib evaluate` gives both; for captions as long as the references they are the same.
#
# ## Before two rows are compared
#
# <!-- index: section 5.2 | what has to be equal before two rows of a table are compared | satlib.table.rows | tests/test_table.py::test_published_figures_are_as_printed -->
#
# > **Paper, section 5.2.** Three things make comparison hard. The encoder: GoogLeNet's or VGG's features alone lift a figure above AlexNet's, with the same decoder. One model or an ensemble of several.
# > And the split, where a data set has no official one; the paper takes published splits, and finds that they matter little.
#
# To these three add what this notebook measures: the tokenizer, the penalty, the number of references, the beam, and whether the captions were *generated*. When one of them differs, the difference of two figures says nothing about the models.
#
# ## METEOR
#
# METEOR lays the caption beside one reference at a time, and joins words: the same word, the same stem ("runs", "running"), a synonym, a paraphrase. From the joined words it takes precision $P$ and recall $R$ (words with content count
# more than "the" and "of") and then asks whether they come in the same order: joined words that run on in both form a chunk.
#
# $$F = \frac{P R}{0.85 P + 0.15 R}, \qquad \text{METEOR} = F \left(1 - 0.6 \left(\frac{\text{chunks}}{\text{joined words}}\right)^{0.2}\right),$$
#
# and one chunk is no penalty. Recall weighs most: METEOR is the one that misses what was *not* said. METEOR 1.5 is a Java program; nltk's function of that name is another formula, and its figures are not comparable.
#
# By hand: "the cat chases the dog" where a person said "the dog chases the cat". All words are there, so $P = R = F = 1$; in three chunks.

# %%
same_words = 100 * (1 - 0.6 * (3 / 5) ** 0.2)
java = metrics.java_available()
print(f"by hand {same_words:.2f}; the program says so too, below" if java else f"by hand {same_words:.2f}")
if not java:
    print(f"METEOR is left out below: no working Java was found; {metrics.GET_JAVA}")

# %% [markdown]
# ## CIDEr, by hand
#
# CIDEr asks: does the caption say what *these* people said of *this* picture, and not what is said of any? An $n$-gram weighs its count times $\log$ (pictures / pictures whose references have it). "a" is said of every picture and
# weighs 0. A caption is the vector of its weights, for $n = 1..4$; the figure is the cosine with each reference, averaged. The form in use, CIDEr-D, clips counts at the reference's and multiplies by
# $e^{-(\text{difference in length})^2 / 2\sigma^2}$ with $\sigma = 6$, all times 10.


# %%
def cider(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> float:
    """CIDEr-D, 0 to 10: the mean over captions."""
    pictures: Counter = Counter()
    for lines in references.values():
        pictures.update({gram for line in lines for n in range(1, 5) for gram in ngrams(line.split(), n)})

    def weights(line: str, n: int) -> dict[tuple, float]:
        return {
            gram: number * math.log(len(references) / max(1, pictures[gram]))
            for gram, number in ngrams(line.split(), n).items()
        }

    def norm(vector: Mapping[tuple, float]) -> float:
        return math.sqrt(sum(weight**2 for weight in vector.values()))

    total = 0.0
    for image_id, line in captions.items():
        for other in references[image_id]:
            near = math.exp(-((len(line.split()) - len(other.split())) ** 2) / (2 * 6.0**2))
            for n in range(1, 5):
                v, w = weights(line, n), weights(other, n)
                if norm(v) and norm(w):
                    shared = sum(min(v[gram], w[gram]) * w[gram] for gram in v.keys() & w.keys())
                    total += near * shared / (norm(v) * norm(w)) / len(references[image_id])
    return 10 * total / 4 / len(captions)


by_program = Cider().compute_score(others, {image_id: [line] for image_id, line in people.items()})[0]
by_hand = cider(people, others)
print(f"CIDEr-D of one person against four: by hand {by_hand:.4f}, COCO tools {by_program:.4f}")
assert math.isclose(by_hand, by_program, rel_tol=1e-6)

# %% [markdown]
# ## What they miss: captions made wrong on purpose
#
# Take a person's caption and damage it, judge it against the other four, and see who notices. Of each we know whether it is still *true*:
#
# | | true? | example |
# | --- | --- | --- |
# | a person's | yes | a big red star above a small blue circle |
# | other words | yes | a huge red star over a tiny blue disc |
# | colours swapped | no | a big blue star above a small red circle |
# | relation turned round | no | a big red star below a small blue circle |
# | words shuffled | no sentence | circle a star blue big above small a red |
# | another scene's | no | a small green square to the left of a big yellow star |
#
# **What do you expect to see?** Which of the false ones scores above "other words", which is true?

# %%
SYNONYMS = {
    "big": "huge",
    "large": "huge",
    "small": "tiny",
    "little": "tiny",
    "circle": "disc",
    "above": "over",
    "below": "beneath",
    "under": "beneath",
    "dotted": "spotted",
    "dots": "spots",
}
TURNED = {
    "left": "right",
    "right": "left",
    "above": "below",
    "over": "under",
    "below": "above",
    "under": "over",
    "beneath": "over",
    "underneath": "over",
}


def swap_colours(line: str) -> str:
    """The two colours of a caption, exchanged."""
    one, other = (word for word in line.split() if word in scenes.grammar.COLOURS)
    return " ".join({one: other, other: one}.get(word, word) for word in line.split())


def replaced(line: str, by: Mapping[str, str]) -> str:
    """Each word by another where there is one."""
    return " ".join(by.get(word, word) for word in line.split())


shuffler, lines = random.Random(SEED), list(people.values())
damaged = {
    "a person's": people,
    "other words": {image_id: replaced(line, SYNONYMS) for image_id, line in people.items()},
    "colours swapped": {image_id: swap_colours(line) for image_id, line in people.items()},
    "relation turned round": {image_id: replaced(line, TURNED) for image_id, line in people.items()},
    "words shuffled": {
        image_id: " ".join(shuffler.sample(line.split(), len(line.split()))) for image_id, line in people.items()
    },
    "another scene's": dict(zip(people, lines[1:] + lines[:1], strict=True)),
}
true = [name for name, captions in damaged.items() if right(captions) == 100]
assert true == ["a person's", "other words"]
assert all(right(captions) <= 2 for name, captions in damaged.items() if name not in true)


def judge(
    sets: Mapping[str, Mapping[str, str]], references: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """The figures of several sets of captions; METEOR as the mean over captions, of all sets in one run of its program."""
    figures = {}
    for name, captions in sets.items():
        lines = {image_id: [line] for image_id, line in captions.items()}
        values = metrics.bleu(lines, references)
        figures[name] = {
            "BLEU-1": values["BLEU-1"],
            "BLEU-4": values["BLEU-4"],
            "CIDEr": 100 * Cider().compute_score(references, lines)[0],
        }
    if java:
        every = {(name, image_id): [line] for name, captions in sets.items() for image_id, line in captions.items()}
        others = {(name, image_id): references[image_id] for name, image_id in every}
        every["by hand"], others["by hand"] = ["the cat chases the dog"], ["the dog chases the cat"]
        each = metrics.meteor_of_each(every, others)
        assert math.isclose(each["by hand"], same_words, abs_tol=0.01)
        for name, captions in sets.items():
            figures[name]["METEOR"] = float(np.mean([each[name, image_id] for image_id in captions]))
    return figures


figures = judge(damaged, others)
figure, axes = plt.subplots(1, len(figures["a person's"]), figsize=(9, 2.5), sharey=True, layout="constrained")
for axis, measure in zip(axes, figures["a person's"], strict=True):
    for row, (name, values) in enumerate(figures.items()):
        style = {"color": BLUE} if name in true else {"facecolor": "white", "edgecolor": RED, "hatch": "////"}
        bar = axis.barh(row, values[measure], height=0.7, **style)
        axis.bar_label(bar, fmt="%.0f", padding=2, fontsize=8)
    axis.set(
        title=measure,
        yticks=range(len(figures)),
        yticklabels=list(figures),
        xlim=(0, 1.25 * max(each[measure] for each in figures.values())),
    )
axes[0].invert_yaxis()

# %% [markdown]
# Blue: true captions. White and hatched: false ones, or no sentence.

# %%
for measure in figures["a person's"]:
    noticed = [
        name for name in figures if name not in true and figures[name][measure] > figures["other words"][measure]
    ]
    print(f"{measure:7} puts above the true caption in other words: {', '.join(noticed) or 'nothing'}")
assert math.isclose(figures["colours swapped"]["BLEU-1"], figures["a person's"]["BLEU-1"]), (
    "the same words: BLEU-1 cannot notice"
)
assert math.isclose(figures["words shuffled"]["BLEU-1"], figures["a person's"]["BLEU-1"])
assert figures["words shuffled"]["BLEU-4"] < 0.25 * figures["a person's"]["BLEU-4"], "but BLEU-4 does notice the order"
assert figures["relation turned round"]["BLEU-4"] > figures["other words"]["BLEU-4"], "false above true"
assert figures["colours swapped"]["BLEU-1"] > figures["other words"]["BLEU-1"] + 3, "false above true"
if java:
    lost = {
        measure: 1 - figures["other words"][measure] / figures["a person's"][measure]
        for measure in figures["a person's"]
    }
    print("lost by saying the truth in other words:", {measure: f"{share:.0%}" for measure, share in lost.items()})
    assert lost["METEOR"] < lost["BLEU-4"], "METEOR knows some synonyms"

# %% [markdown]
# All of them count words that agree. None knows what is *true*: exchange two words of a caption and it says the opposite, at nearly the same figure. Where right and wrong are known, as here, measure that too.
#
# ## People, judged like models: the upper mark?
#
# <!-- index: claim: human captions are no upper mark of BLEU | people against people, on the references that the model is judged by | satlib.metrics.bleu | tests/test_metrics.py::test_bleu_equals_nltk_and_pycocoevalcap -->
#
# Judge each person against the four others, and the model against the same four, and average over who is left out.

# %%
sides = {"people": [], "the model": []}
for left_out in range(5):
    four = {image_id: [line for i, line in enumerate(lines) if i != left_out] for image_id, lines in references.items()}
    person = {image_id: lines[left_out] for image_id, lines in references.items()}
    for name, captions in (("people", person), ("the model", generated)):
        values = metrics.bleu({image_id: [line] for image_id, line in captions.items()}, four)
        sides[name].append(
            [
                values["BLEU-1"],
                values["BLEU-4"],
                100 * Cider().compute_score(four, {image_id: [line] for image_id, line in captions.items()})[0],
                right(captions),
            ]
        )
means = {name: np.mean(values, axis=0) for name, values in sides.items()}
names = ["BLEU-1", "BLEU-4", "CIDEr / 4", "right"]
figure, axis = plt.subplots(figsize=(6.5, 2.4), layout="constrained")
for offset, (name, values), style in zip(
    (-0.19, 0.19), means.items(), ({"color": BLUE}, {"color": ORANGE, "hatch": "//", "edgecolor": "white"}), strict=True
):
    bars = axis.bar(np.arange(4) + offset, values / [1, 1, 4, 1], width=0.36, label=name, **style)
    axis.bar_label(bars, fmt="%.0f", fontsize=8.5)
axis.set(xticks=range(4), xticklabels=names, ylim=(0, 118), ylabel="percent")
axis.legend(frameon=False, ncols=2, loc="upper center")
assert means["the model"][1] > means["people"][1] + 8, "by BLEU-4 the model is better than people"
assert means["people"][3] == 100 > means["the model"][3] + 3, "by truth it is not"

# %% [markdown]
# A model gives the most usual phrase for what it sees. A person says it as only that person would, and is punished for it. So "better than people" in a table of BLEU or CIDEr means: more usual. It is also a reason not to stare at the last
# point of BLEU.
#
# With Flickr8k's captions at hand, the same for real ones; the model's captions come from the evaluation files behind [the table of results](../docs/results.md).

# %%
root = find_root("flickr8k")
flickr8k = None if root is None else load("flickr8k", root, require_images=False)
if flickr8k is None:
    print("Flickr8k is not here")
else:
    real = {each.image_id: [" ".join(tokenise(line)) for line in each.references] for each in flickr8k.split("test")}
    captions = json.loads(
        next(path for path in shipped.evaluations() if path.parent.name == "flickr8k-lite0-soft").read_text()
    )["captions"]
    rows = []
    for left_out in range(5):
        four = {image_id: [line for i, line in enumerate(lines) if i != left_out] for image_id, lines in real.items()}
        for whose in ({image_id: lines[left_out] for image_id, lines in real.items()}, captions):
            values = metrics.bleu({image_id: [whose[image_id]] for image_id in real}, four)
            rows.append(
                [
                    values["BLEU-1"],
                    values["BLEU-4"],
                    100 * Cider().compute_score(four, {image_id: [whose[image_id]] for image_id in real})[0],
                ]
            )
    print(
        "Flickr8k test, four references. BLEU-1, BLEU-4, CIDEr: people",
        np.mean(rows[::2], 0).round(1),
        "satlib",
        np.mean(rows[1::2], 0).round(1),
    )

# %% [markdown]
# ## Teacher forcing gives a false BLEU
#
# <!-- index: claim: teacher forcing gives a false BLEU | BLEU of teacher-forced outputs against that of generated captions | satlib.evaluation.generate | tests/test_decoding.py::test_log_probability_and_maps_are_those_of_the_words -->
#
# In training the decoder is given the *true* words before each word. Its likeliest word at each of these places is at hand for nothing, and it is tempting to take these for its caption, and give their BLEU. Many re-implementations do. But it is not a caption:
# the model was told every word but one, and its own mistakes never reach it.


# %%
def teacher_forced(model: Captioner, a: Tensor, examples: Sequence[Example]) -> dict[str, str]:
    """The likeliest word at each place of each picture's first reference, given the true words before it."""
    found = {}
    for each, one in zip(examples, a, strict=True):
        caption = torch.tensor([[*model.vocabulary.encode(each.references[0]), END]])  # (1, C)
        with torch.inference_mode():
            logits = model.decoder(one[None], caption).logits[0, :-1]  # (C - 1, K)
            logits[:, [END, UNKNOWN]] = -torch.inf
        found[each.image_id] = " ".join(model.vocabulary.words[word] for word in logits.argmax(1).tolist())
    return found


forced = teacher_forced(captioner, a_test, test)
for image_id in list(forced)[:3]:
    print(f"true       {references[image_id][0]}\nforced     {forced[image_id]}\ngenerated  {generated[image_id]}\n")

# %% [markdown]
# Read the second lines. **What do you expect to see** when both are judged against the reference that was fed, and against all five?

# %%
fed = {image_id: lines[:1] for image_id, lines in references.items()}
compared = {
    (against, what): metrics.bleu({image_id: [line] for image_id, line in captions.items()}, judges)
    for against, judges in (("the reference that was fed", fed), ("all five", references))
    for what, captions in (("generated", generated), ("forced", forced))
}
sentences = {
    what: 100 * np.mean([parse(line.split()) is not None for line in captions.values()])
    for what, captions in (("generated", generated), ("forced", forced))
}
figure, axes = plt.subplots(1, 3, figsize=(9, 2.5), width_ratios=(2, 2, 1), sharey=True, layout="constrained")
for what, offset, style in (
    ("generated", -0.19, {"color": BLUE}),
    ("forced", 0.19, {"color": ORANGE, "hatch": "//", "edgecolor": "white"}),
):
    for axis, against in zip(axes, ("the reference that was fed", "all five"), strict=False):
        heights = [compared[against, what][f"BLEU-{n}"] for n in range(1, 5)]
        axis.bar_label(
            axis.bar(np.arange(4) + offset, heights, width=0.36, label=what, **style), fmt="%.0f", fontsize=8.5
        )
        axis.set(title=f"against {against}", xticks=range(4), xticklabels=[f"BLEU-{n}" for n in range(1, 5)])
    axes[2].bar_label(axes[2].bar(offset, sentences[what], width=0.36, **style), fmt="%.0f", fontsize=8.5)
axes[2].set(title="is a sentence", xticks=[])
axes[0].set(ylabel="percent", ylim=(0, 112))
_ = axes[0].legend(frameon=False, fontsize=8.5)

# %%
for n in range(1, 5):
    assert (
        compared["the reference that was fed", "forced"][f"BLEU-{n}"]
        > compared["the reference that was fed", "generated"][f"BLEU-{n}"] + 2
    )
assert sentences["generated"] > 95
assert sentences["forced"] < 25
assert right(forced) < 25 < right(generated) - 30

# %% [markdown]
# Against the sentence that it was told, each BLEU of the forced words is much higher; yet hardly one of them is a sentence. Against all five references it may fall on either side: BLEU-4 is *lower* here, because a caption that the model makes itself runs smoothly, and
# forced words jump. So the figure is not even wrong in one direction. It does not measure captions.
#
# On Flickr8k, where its features are at hand, the same for the model that comes with satlib.
# A public re-implementation of the paper with VGG-19 reports 64.8 for BLEU-1 and 15.5 for BLEU-4, measured on forced words: a high first and a low fourth figure are their signature.

# %%
store = None if root is None else features.folder(root, flickr8k, "efficientnet-lite0")
if flickr8k is None or not store.is_dir():
    print("Flickr8k's features are not here (satlib features flickr8k-lite0-soft)")
else:
    examples = flickr8k.split("test")[:300]
    reader = features.FeatureStore(store)
    real_a = torch.cat(
        [
            photographer.annotations(reader.read([each.image_id for each in examples[i : i + 50]]))
            for i in range(0, 300, 50)
        ]
    )
    captions = {
        image_id: caption.text for image_id, caption in generate(photographer, reader, examples, progress=False).items()
    }
    for against, judges in (
        ("fed", {each.image_id: real[each.image_id][:1] for each in examples}),
        ("all five", {each.image_id: real[each.image_id] for each in examples}),
    ):
        for what, lines in (("generated", captions), ("forced", teacher_forced(photographer, real_a, examples))):
            values = metrics.bleu({image_id: [line] for image_id, line in lines.items()}, judges)
            print(
                f"{what:9} against {against:8}",
                {name: round(value, 1) for name, value in values.items() if "penalty" not in name},
            )

# %% [markdown]
# ## NLL and BLEU part ways
#
# <!-- index: claim: NLL and BLEU part ways | the same captions at any NLL; real trainings, where NLL stands still or gets worse and BLEU goes on | satlib.validation.dev_score | tests/test_training.py::test_stops_after_patience_and_keeps_the_best -->
#
# > **Paper, section 4.3.** Late in training the correlation between the validation set's log-likelihood and BLEU breaks down. BLEU is what is reported, so BLEU on the validation set chooses the model.
#
# How can a model get worse at predicting people and not worse at captioning? The first answer needs no training. Divide all logits by a temperature: the likeliest word stays the likeliest, so every greedy caption stays the same, word for word. The
# likelihood of what people said does not.

# %%
NLL_TEMPERATURES = (0.25, 0.5, 1.0, 2.0)
batches = SameLengthBatches(pairs(test, vocabulary, 40), 128, SEED).epoch(0)
row = {each.image_id: number for number, each in enumerate(test)}


def nll(decoder: Decoder, a: Tensor, batches: Sequence, row: Mapping[str, int], T: float = 1.0) -> float:
    """Nats per word of human captions."""
    with torch.inference_mode():
        losses = [
            negative_log_likelihood(
                decoder(a[[row[image_id] for image_id in batch.image_ids]], batch.captions).logits / T, batch.captions
            ).sum()
            for batch in batches
        ]
    return (sum(losses) / sum(batch.captions.numel() for batch in batches)).item()


at = [nll(captioner.decoder, a_test, batches, row, T) for T in NLL_TEMPERATURES]
sure = copy.deepcopy(captioner.decoder)
with torch.no_grad():
    for parameter in (sure.output.weight, sure.output.bias):
        parameter.div_(0.25)
at_once, of_the_sure = (said(decoding.greedy(decoder, a_test, 24)) for decoder in (captioner.decoder, sure))
same = [at_once[image_id] == of_the_sure[image_id] for image_id in at_once]
print("T          " + "  ".join(f"{T:5}" for T in NLL_TEMPERATURES))
print(
    "NLL / word " + "  ".join(f"{value:5.2f}" for value in at),
    f"  greedy captions that stay the same: {np.mean(same):.0%}",
)
assert np.mean(same) > 0.98
assert at[0] > at[2] + 0.3

# %% [markdown]
# A model that is too sure of itself pays in NLL for each word that a person chose otherwise, and pays nothing in BLEU. And training makes models sure of themselves, the longer the more.
#
# Now real trainings on Flickr8k, epoch by epoch, NLL and BLEU-4 of the dev split. The first two logs were written by `satlib train flickr8k-lite0-soft` (the model that comes with satlib) and
# `satlib train flickr8k-soft`, both by likelihood. The third goes on from the second with `satlib train flickr8k-soft-reward --start runs/flickr8k-soft`, which maximises the agreement of the model's own captions with
# people's.
#
# **What do you expect to see?** If the two figures agreed, every path would be one line, walked up.

# %%
LOGS = {  # dev_nll and dev_bleu4 of log.jsonl
    "lite0, likelihood": (
        [3.282, 3.008, 2.901, 2.855, 2.844, 2.844, 2.846],
        [14.50, 15.70, 17.11, 17.71, 18.00, 18.03, 18.35],
    ),
    "VGG-19, likelihood": (
        [3.348, 3.057, 2.942, 2.887, 2.865, 2.858, 2.857],
        [13.30, 14.81, 15.34, 16.27, 16.67, 16.61, 16.68],
    ),
    "VGG-19, then rewards": (
        [2.857, 3.085, 3.181, 3.290, 3.340, 3.344, 3.344],
        [16.68, 19.93, 20.08, 20.03, 20.36, 20.24, 20.29],
    ),
}
one_bleu = metrics.bleu({image_id: [line] for image_id, line in at_once.items()}, references)["BLEU-4"]
figure, (left, last) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(1, 1.4), layout="constrained")
left.plot(at, [one_bleu] * len(at), color=BLUE, linestyle="none", marker="o", markersize=5)
for number, (T, x) in enumerate(zip(NLL_TEMPERATURES, at, strict=True)):
    left.annotate(
        f"T = {T:g}",
        (x, one_bleu),
        (0, 9 if number % 2 else -17),
        textcoords="offset points",
        ha="center",
        fontsize=8.5,
    )
left.set(title="one model, one set of captions", ylabel="BLEU-4", ylim=(one_bleu - 10, one_bleu + 10))
left.margins(x=0.15)
styles = (
    {"color": SKY, "marker": "D", "linestyle": ":"},
    {"color": BLUE, "marker": "o"},
    {"color": RED, "marker": "s", "linestyle": "--"},
)
for (name, (x, y)), style in zip(LOGS.items(), styles, strict=True):
    last.plot(x, y, markersize=4, label=name, **style)
last.set(title="real trainings on Flickr8k", ylim=(13, 21.5))
last.legend(frameon=False, fontsize=8.5, loc="center left")
for axis in (left, last):
    axis.set_xlabel("NLL, nats per word (better to the right)")
    axis.invert_xaxis()
    axis.grid(color="0.92")

# %% [markdown]
# Better is to the right and up. In the right panel each point is an epoch. By likelihood both paths climb at first, to the right and up: as long as a model learns what is in pictures, the two figures agree. Then NLL stands still and BLEU goes its own way. With rewards the path turns
# *back*: to the left and up.

# %%
for name in ("lite0, likelihood", "VGG-19, likelihood"):
    x, y = map(np.array, LOGS[name])
    print(f"{name}: correlation of NLL and BLEU-4 {np.corrcoef(x[:5], y[:5])[0, 1]:.2f} in epochs 1 to 5;", end=" ")
    print(f"after that NLL moves by {np.ptp(x[4:]):.3f}, BLEU-4 by {np.ptp(y[4:]):.2f}")
    assert np.corrcoef(x[:5], y[:5])[0, 1] < -0.95
    assert np.ptp(x[4:]) < 0.01
x, y = LOGS["VGG-19, then rewards"]
assert x[-1] > x[0] + 0.4
assert y[-1] > y[0] + 3

# %% [markdown]
# Rewards make the model keep to few, safe words, and so its probabilities leave most of what people say with nearly nothing. Half a nat a word worse, and clearly better captions, by BLEU.
#
# So choose the epoch by what you will report, on *generated* captions of the dev split (`training.select`). Where one thing can be said in many right ways, as in scenes, BLEU jumps with the turn of phrase, and the recipes for scenes choose by NLL. Neither is right everywhere; to know which one to believe is the craft.
#
# ## Try it
#
# 1. **Give the beam probabilities in place of log-probabilities that are summed** (leave out `math.log` and keep `+`). Which caption of the table wins now, and why always a long one?
# 2. **Keep the wrong parents**: in `beam`, let every candidate take its words from `living[0]`. Which assertion notices? Would you have noticed by reading captions?
# 3. **Take the bait**: report `teacher_forced` against all five references together with the generated captions' METEOR. Which of your readers could tell?
# 4. **Make a caption that beats everybody**: write by hand one for the first test scene with a higher BLEU-4 than any person's. What did you use of what you know about BLEU?
# 5. **Forget clipping**: take `& most` out of `bleu`. Then a captioner that says "a a a a a" gets what?
#
# ## What to remember
#
# - Greedy chooses words, the beam looks for sentences, sampling draws them. They agree with a search through everything where that can be made.
# - Likelier is not better: wide beams are shorter and blander. The width and the length's exponent belong to the model, and are chosen on dev.
# - A BLEU without its protocol (tokenizer, penalty, references, generated or forced) says nothing.
# - BLEU, METEOR and CIDEr count agreement, not truth; two words exchanged can turn the meaning round for nothing. A model may well pass people.
# - Judge generated captions only. Forced words are not captions.
# - NLL and BLEU measure two things, and part. Choose by what you report.
#
# ## References
#
# - K. Xu et al. *Show, Attend and Tell*. ICML 2015. Sections 4.3, 5.1 and 5.3. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - K. Papineni, S. Roukos, T. Ward, W.-J. Zhu. *BLEU: a Method for Automatic Evaluation of Machine Translation*. ACL 2002.
# - M. Denkowski, A. Lavie. *Meteor Universal: Language Specific Translation Evaluation for Any Target Language*. WMT 2014 (METEOR 1.5).
# - R. Vedantam, C. L. Zitnick, D. Parikh. *CIDEr: Consensus-based Image Description Evaluation*. CVPR 2015. [arXiv:1411.5726](https://arxiv.org/abs/1411.5726)
# - X. Chen et al. *Microsoft COCO Captions: Data Collection and Evaluation Server*. 2015. [arXiv:1504.00325](https://arxiv.org/abs/1504.00325)
# - F. Stahlberg, B. Byrne. *On NMT Search Errors and Model Errors: Cat Got Your Tongue?* EMNLP 2019 (the likeliest sentence may be the empty one). [arXiv:1908.10090](https://arxiv.org/abs/1908.10090)
# - S. J. Rennie et al. *Self-critical Sequence Training for Image Captioning*. CVPR 2017. [arXiv:1612.00563](https://arxiv.org/abs/1612.00563)
