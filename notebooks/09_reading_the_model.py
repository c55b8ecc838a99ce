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
# # 9. Reading the model
#
# A captioner with attention shows where it looked. What may you conclude from that? This notebook looks at captions and maps, then counts, then
# moves the attention by force and watches the words. At the end the model is yours to play with.
#
# **You will be able to**
#
# - draw a map of real VGG-19 features the way the paper does, and say what the drawing adds to the squares behind it;
# - measure whether words look at what they name, against chance and against a map that ignores the word;
# - tell a mistake of looking from a mistake of naming, and find out which of them a model makes;
# - test whether a map is a cause of its word, instead of believing it;
# - steer a captioner: its temperature, its words, its model, in an explorer.
#
# **Minutes**: 20 to read, 0.8 to run on two CPU cores. **Memory**: 1.7 GB. **Needs**: notebook 04 (soft attention), of 06 the idea of hard
# attention; nothing to download. Where Flickr8k is present, its photographs are in the gallery.

# %%
from collections import Counter

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn import functional

from satlib import demo, encoders, ground, overlay, plots, shipped
from satlib.captioner import Captioner
from satlib.course import drawings
from satlib.course.explorer import Explorer, annotate, read
from satlib.course.steering import look_again, tempered
from satlib.datasets import Example, find_root, load, scenes
from satlib.evaluation import maps
from satlib.features import Pixels
from satlib.images import open_photo, square, to_tensor

BLUE, ORANGE, GREEN, YELLOW, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#56b4e9"
SAMPLE, SCENES = 0, 400  # which test scenes; every assertion below has been tried on five samples

# %% [markdown]
# ## A gallery: right and wrong
#
# <!-- index: section 5.4 | captions right and wrong, with their maps, in the manner of figures 3 to 5 | satlib.course.drawings.gallery_figure | tests/test_drawings.py::test_a_gallery_is_whole_and_marks_wrong_words -->
#
# Two models of drawn scenes come with satlib: one has soft attention, the other hard. Both caption 400 scenes that neither has seen, word by word, the
# most probable word each time, so that we can ask later what any of these words would have been otherwise.

# %%
models = {name: Captioner.load(shipped.model(f"scenes-{name}")) for name in ("soft", "hard")}
data = scenes.load(0, 0, (SAMPLE + 1) * SCENES)
tests = data.split("test")[SAMPLE * SCENES :]
world = {each.image_id: scenes.scene(each.image_id) for each in tests}
reader = Pixels(data)
batches = [list(world)[start : start + 50] for start in range(0, SCENES, 50)]
features, captions = {}, {}
with torch.inference_mode():
    for name, model in models.items():
        vectors = torch.cat([model.annotations(reader.read(batch)) for batch in batches])  # (400, 49, 128)
        features[name] = dict(zip(world, vectors, strict=True))
        found = [model.read(best[0]) for best in model.hypotheses(vectors, beam=1)]
        captions[name] = dict(zip(world, found, strict=True))
wrong = {
    name: [each for each in tests if not scenes.exact_match(made[each.image_id].words, world[each.image_id])]
    for name, made in captions.items()
}
for name in models:
    print(f"{name}: {100 - 100 * len(wrong[name]) / SCENES:.0f} % of {SCENES} captions are wholly right")

# %% [markdown]
# A caption is wholly right if it names both objects with all their attributes and says how they lie. Where a caption is wrong, which
# word is to blame? A noun phrase belongs to the object of which more of its words are true; what it says falsely of that object is a
# **mistake** (`ground.scene_mistakes`).
#
# **What do you expect to see?** Above, four right captions; below, four wrong ones, the false words in orange italics. Look for a reason in the picture.

# %% tags=["docs:mistakes"]
masks = {each.image_id: world[each.image_id].masks for each in tests}
mistakes = {
    name: [(each, target) for each in wrong[name] for target in ground.scene_mistakes(each, made[each.image_id].words)]
    for name, made in captions.items()
}


def truth_of(example: Example, target: ground.Target) -> scenes.Thing:
    """The object that a word is about."""
    return next(
        thing
        for thing, mask in zip(world[example.image_id].objects, masks[example.image_id], strict=True)
        if (mask == target.mask).all()
    )


def said_of(thing: scenes.Thing) -> str:
    """An object in words."""
    texture = "" if thing.texture == "plain" else f"{thing.texture} "
    return f"{thing.size} {texture}{thing.colour} {thing.shape}"


def cell(example: Example) -> tuple[np.ndarray, list[str], set[int], str]:
    """A picture of the gallery: pixels, words, false words, the truth."""
    words, about = captions["soft"][example.image_id].words, world[example.image_id]
    false = {target.index for each, target in mistakes["soft"] if each is example}
    truth = "\n".join(map(said_of, about.objects)) if false else ""
    return np.asarray(data.photo(example)), words, false, truth


right = [each for each in tests if each not in wrong["soft"]]
blamed = list(dict.fromkeys(each.image_id for each, _ in mistakes["soft"]))
drawings.gallery_figure([cell(each) for each in (*right[:4], *[each for each in tests if each.image_id in blamed][:4])])

# %% [markdown]
# And photographs. With Flickr8k on your disk they are of its test split; else they come with scikit-image, and are not of the kind that the model
# knows. Nobody marked the false words here: do it yourself.

# %%
photographer = Captioner.load(shipped.model())
root = find_root("flickr8k")
if root is None:
    photographs = {path.stem: open_photo(path) for path in demo.photographs()[:4]}
else:
    flickr8k = load("flickr8k", root)
    photographs = {each.image_id: flickr8k.photo(each) for each in flickr8k.split("test")[:8]}
described = dict(zip(photographs, photographer.caption(list(photographs.values())), strict=True))
drawings.gallery_figure(
    [(overlay.scaled(photo, 336), described[name].words, (), "") for name, photo in photographs.items()]
)

# %% [markdown]
# The sentences are well formed and mostly untrue: a model has to say *something*, and says what its 6,000 training photographs were about. Do the maps
# warn you? Here is the cup of coffee, or your first photograph.

# %%
name = "coffee" if "coffee" in photographs else next(iter(photographs))
plots.attention_figure(photographs[name], described[name].words, described[name].alphas)

# %%
moves = {"photographs": maps(described.values())[0], "scenes, soft": maps(captions["soft"].values())[0]}
for kind, figures in moves.items():
    print(f"{kind:13} the map moves by {figures['map movement']:.2f} between words, of 1 at most")

# %% [markdown]
# They do not: the light has no trouble finding a place for each word, whether the word is true or not. A map that lies on a thing vouches for nothing. And on
# photographs the maps move less from word to word than on scenes, as the figures say. Remember that when you see the finest examples of a paper side by side: figures are
# chosen. So let us count instead, where counting is possible.
#
# ## How a map is drawn
#
# <!-- index: section 5.4 | a map drawn: upsampled by 2^4 = 16, then a Gaussian | satlib.overlay.upsample | tests/test_plots.py::test_upsampled_maps_equal_scipys_gaussian -->
#
# > **Paper, section 5.4.** VGG's maps shrink only where it pools, four times by two: $224 / 2^4 = 14$. To draw the weights they are enlarged
# > by the factor $2^4 = 16$, and a Gaussian filter imitates how large a receptive field is.
#
# Take a real map of that size: VGG-19's 196 annotation vectors of a photograph, and the simplest attention there is. The question is one of
# these vectors itself, that of the cat's eye (outlined); the energy of a place is 30 times its cosine with it; equation 5 makes weights of them.
#
# Then by hand: every weight fills a square of 16 by 16 pixels; rows, then columns are convolved with a Gaussian. Ours has a standard deviation
# of one cell, 16 pixels (notebook 02 measured how far a place sees), and mirrors the map at the border so that no weight is lost there.
#
# **What do you expect to see?** Where else does the photograph look like an eye? And does the smooth cloud say anything that the squares do not?

# %%
cat = next((path for path in demo.photographs() if path.stem == "chelsea"), demo.photographs()[0])
with torch.inference_mode():
    a = encoders.create("vgg19")(to_tensor(square(open_photo(cat), "crop"))[None])[0]  # (196, 512)
directions = functional.normalize(a, dim=1)
weights = torch.softmax(30 * directions @ directions[5 * 14 + 3], 0).view(14, 14)
large = weights.numpy().repeat(16, axis=0).repeat(16, axis=1)  # (14, 14) -> (224, 224)
steps = np.arange(-64, 65)  # to four standard deviations
bell = np.exp(-0.5 * (steps / 16) ** 2)
bell /= bell.sum()
smooth = large
for axis in (0, 1):
    mirrored = np.pad(smooth, [(64, 64) if each == axis else (0, 0) for each in (0, 1)], mode="symmetric")
    smooth = np.apply_along_axis(np.convolve, axis, mirrored, bell, mode="valid")
torch.testing.assert_close(torch.tensor(smooth).float(), overlay.upsample(weights[None])[0], rtol=1e-4, atol=1e-7)

photo = square(open_photo(cat), "crop")
panels = {
    "asked at the eye": photo,
    "weights, 16 by 16 pixels each": np.sqrt(large),  # the root, so that small weights can be seen, too
    "and a Gaussian": np.sqrt(smooth),
    "as light (no root)": overlay.lit(photo, weights[None])[0],
}
figure, axes = plt.subplots(1, len(panels), figsize=(9, 2.6), layout="constrained")
for axis, (title, picture) in zip(axes, panels.items(), strict=True):
    axis.imshow(picture, cmap="gray", vmin=0)
    axis.set_title(title, fontsize=10)
    axis.set_axis_off()
axes[0].add_patch(plt.Rectangle((3 * 16, 5 * 16), 16, 16, fill=False, edgecolor=ORANGE, linewidth=2))
plt.show()

# %% [markdown]
# Faintly, the other eye. Nobody taught VGG-19 to find pairs; alike places have alike vectors.
#
# The cloud is prettier and says *less*: neighbouring peaks run into one, and its greatest value lies far below that of the sharpest square. It is meant to say
# something else: that an annotation vector has seen more than its square. So measure on the grid, and draw the cloud.

# %%
assert smooth.max() < 0.7 * large.max()
if cat.stem == "chelsea":
    row, column = divmod(int(weights[:, 7:].argmax()), 7)  # of the right half
    assert 4 <= row <= 8, "the other eye"
    assert 2 <= column <= 6
np.testing.assert_allclose(smooth.mean(), large.mean(), rtol=1e-4)  # nothing is lost

# %% [markdown]
# ## The pointing game
#
# <!-- index: claim: alignments agree with human intuition | the peak of a word's map on what it names, against chance and against a map that ignores the word | satlib.ground.measure | tests/test_ground.py::test_measures_by_hand -->
#
# > **Paper, section 5.4.** The alignments that the model learns agree very strongly with human intuition.
#
# How strongly? Take a word that says something true of an object. Is the heaviest place of its map on that object? That is the *pointing
# game*; the centre of the cell may miss the object's pixels by 15, because a cell is 32 pixels wide. By hand, for one word:

# %%
example = right[0]
words, alphas = captions["soft"][example.image_id].words, captions["soft"][example.image_id].alphas
target = next(each for each in ground.scene_targets(example, words) if each.kind == "shape")
row, column = divmod(int(alphas[target.index].argmax()), 7)
y, x = 32 * row + 15.5, 32 * column + 15.5  # the middle of the heaviest cell, in pixels
ys, xs = np.nonzero(target.mask)
away = np.sqrt((ys - y) ** 2 + (xs - x) ** 2).min()
by_hand = away <= 15
assert by_hand == bool(ground.measure(captions["soft"][example.image_id], [target])[0].pointing)

figure, axis = plt.subplots(figsize=(3.2, 3.2), layout="constrained")
axis.imshow(overlay.lit(data.photo(example), alphas[target.index : target.index + 1])[0])
axis.contour(target.mask, levels=[0.5], colors="white", linewidths=1.5)
axis.plot(x, y, "x", color="white", markersize=12, markeredgewidth=3)
axis.set_title(f'"{words[target.index]}": {away:.0f} pixels away, {"a hit" if by_hand else "a miss"}', fontsize=11)
axis.set_axis_off()
plt.show()

# %% [markdown]
# A share of hits means nothing alone. Large objects are hit by chance; and a map that lies on both objects all the time would hit often without
# listening to any word. So beside each figure stand two that cost nothing: a **random cell**, and the **mean of the caption's own maps**,
# which ignores the word.
#
# **What do you expect to see?** Dots, the words' own maps, to the right of diamonds (the word ignored) and ticks (chance). And soft or hard: whose peaks are better?

# %%
looked = {name: ground.summary(ground.look_up(tests, made)) for name, made in captions.items()}
for name, found in looked.items():
    overall = found["all"]
    print(
        f"{name}: {overall['words']} words; peak on the object {overall['pointing']:.1f} %, "
        f"ignoring the word {overall['pointing_still']:.1f} %, chance {overall['pointing_chance']:.1f} %"
    )
    assert overall["pointing"] > overall["pointing_still"] + 15
    assert overall["pointing"] > overall["pointing_chance"] + 40
plots.ground_figure(looked["soft"])

# %% [markdown]
# Both models look at what they name, far beyond what a map that ignores the word would get. Nobody ever told them where anything is. Between soft and hard
# there is little: a few points at most, on this sample or on another one. (Notebook 06 compares their maps.)
#
# But look at the right panel. Not even a quarter of soft attention's *weight* lies on the object's pixels: the peak is often at the object's edge or next to it, where an
# annotation vector still sees all of it. A map is not an outline of a thing.
#
# ## Mistakes, and what the maps say about them
#
# <!-- index: claim: maps let one see why a mistake was made | wrong words counted: looked right and named wrong, or looked wrong | satlib.ground.scene_mistakes | tests/test_ground.py::test_words_that_are_false_of_what_their_phrase_describes -->
#
# > **Paper, section 5.4 and figure 5.** From the maps of captions with mistakes one can get an intuition why the mistakes were made.
#
# A false word can come about in two ways. Either the model **looked wrong**: its peak was not on the object that its phrase is about. Or it
# **looked right and named wrong**. Count them.
#
# **What do you expect to see?** If maps explain mistakes, false words should look wrong far more often than true ones.

# %%
judged = {
    name: [
        (each, target, ground.measure(captions[name][each.image_id], [target])[0].pointing == 1)
        for each, target in found
    ]
    for name, found in mistakes.items()
}
print("         false words   looked right, named wrong   looked wrong   | of true words looked right")
for name, found in judged.items():
    hits = sum(hit for *_, hit in found)
    true = looked[name]["all"]["pointing"]
    print(
        f"{name:8} {len(found):11d} {hits:19d} ({100 * hits / len(found):2.0f} %) {len(found) - hits:14d}   | {true:4.0f} %"
    )
    assert hits > 0.55 * len(found)
shares = Counter(target.kind for _, target, _ in judged["soft"] + judged["hard"])
print("what they are about:", ", ".join(f"{kind} {count}" for kind, count in shares.most_common()))
assert shares["shape"] > 0.5 * sum(shares.values())

# %% [markdown]
# Most false words looked at the right object, nearly as often as true ones did. These models do not fail at looking: they see the object and take a
# star for a triangle. Here are some of either kind, each lit by the map of its false word, the object outlined.

# %%
examples = [each for each in judged["soft"] if each[2]][:4] + [each for each in judged["soft"] if not each[2]][:4]
figure = plots.NotebookFigure(figsize=(8.4, 4.9), layout="constrained")
axes = figure.subplots(2, 4)
for axis, (each, target, hit) in zip(axes.flat, examples, strict=False):
    made, truth = captions["soft"][each.image_id], getattr(truth_of(each, target), target.kind)
    axis.imshow(overlay.lit(data.photo(each), made.alphas[target.index : target.index + 1])[0])
    axis.contour(target.mask, levels=[0.5], colors="white", linewidths=1.2)
    axis.set_title(f"said {made.words[target.index]}, is {truth}\nlooked {'right' if hit else 'wrong'}", fontsize=10)
for axis in axes.flat:
    axis.set_axis_off()
figure

# %% [markdown]
# Is the map at least right about the few that "looked wrong"? If the look were to blame, a better look would cure them. `look_again` puts another map in
# the place of a word's own, leaves everything else as it was, and says what the model would have said. Give every false word the
# map that a person would draw: even over the object, nothing elsewhere.
#
# **What do you expect to see?** Cures, above all among those that looked wrong?


# %%
def over(mask: np.ndarray) -> torch.Tensor:
    """A map that is even over an object's pixels: (224, 224) -> (49,), sums to 1."""
    cover = functional.adaptive_avg_pool2d(torch.tensor(mask)[None].float(), (7, 7)).flatten()
    return cover / cover.sum()


def ask(name: str, asked: list, drawn: list | None) -> list[str]:
    """What a model says in the place of words (example, index) when maps that somebody drew take the place of its own."""
    made = [captions[name][each.image_id].words for each, _ in asked]
    a = torch.stack([features[name][each.image_id] for each, _ in asked])
    p = look_again(models[name], a, made, [index for _, index in asked], None if drawn is None else torch.stack(drawn))
    return [models[name].vocabulary.words[best] for best in p.argmax(1).tolist()]


value_of = {}  # a word -> what it says: "huge" -> ("size", "big")
for made in captions.values():
    for caption in made.values():
        for phrase in scenes.grammar.phrases(caption.words):
            value_of |= {caption.words[index]: said for index, said in phrase.attributes.items()}

for name, found in judged.items():
    new = ask(name, [(each, target.index) for each, target, _ in found], [over(target.mask) for _, target, _ in found])
    cured = Counter()
    for word, (each, target, hit) in zip(new, found, strict=True):
        truth = getattr(truth_of(each, target), target.kind)
        cured[hit, value_of.get(word) == (target.kind, truth)] += 1
    print(
        f"{name}: with a perfect look {cured[True, True]} of {cured[True, True] + cured[True, False]} are cured "
        f"that had looked right, {cured[False, True]} of {cured[False, True] + cured[False, False]} that had looked wrong"
    )
    assert cured[True, True] + cured[False, True] < 0.45 * len(found)

# %% [markdown]
# A perfect look cures about a quarter (one in seven to one in three, from sample to sample), and the greater part of those that "looked wrong" stays wrong. So even there the look is seldom the cause: what the encoder wrote
# into the annotation vectors is, or what the decoder had made up its mind about before.
#
# That is the honest form of the claim. A map tells you *where* a word's evidence was taken. It separates two kinds of mistakes, and that is
# worth having: these models need a better encoder, not better attention. It does not tell you why the evidence was misread.
#
# ## Is attention an explanation?
#
# <!-- index: claim: attention explains the word | the map of a word moved by force: the word follows | satlib.course.steering.look_again | tests/test_steering.py::TestLookAgain::test_one_step_written_out -->
#
# A picture beside a word could be decoration. Jain and Wallace (2019) found text classifiers that give the same answer under quite different
# attention; Wiegreffe and Pinter (2019) answered that it depends on what one asks. Ask the captioner. Take words that are true of one object and false of the
# other, and change nothing but the map at that word:
#
# - **on the other object**: does the word change into what is true *there*?
# - **on its own object**, evenly, as a person would draw it: does the word stay?
# - **even** over all places: can it do without looking?
#
# **What do you expect to see?** If maps were decoration, all three bars would be blue: the word stays. If the map decides, the first turns orange.

# %%
asked, facts = {}, {}  # (example, index); (kind, its value, the other object's value, the object's number)
for name in models:
    asked[name], facts[name] = [], []
    for each in tests[:100]:
        words, about = captions[name][each.image_id].words, world[each.image_id]
        numbers = scenes.mentions(words, about)
        for target in ground.scene_targets(each, words):
            own, other = (
                getattr(about.objects[n], target.kind) for n in (numbers[target.index], 1 - numbers[target.index])
            )
            if own != other:
                asked[name].append((each, target.index))
                facts[name].append((target.kind, own, other, numbers[target.index]))

OUTCOMES = ("stays", "says what is true of the other", "says something else")
outcome = {}
for name in models:
    image_ids = [each.image_id for each, _ in asked[name]]
    before = [captions[name][each.image_id].words[index] for each, index in asked[name]]
    assert ask(name, asked[name], None) == before  # without any help it says what it said
    drawn = {
        "on the other object": [
            over(masks[image_id][1 - number]) for image_id, (*_, number) in zip(image_ids, facts[name], strict=True)
        ],
        "on its own object": [
            over(masks[image_id][number]) for image_id, (*_, number) in zip(image_ids, facts[name], strict=True)
        ],
        "even": [torch.full((49,), 1 / 49)] * len(image_ids),
    }
    for look, given in drawn.items():
        for after, word, (kind, own, other, _) in zip(ask(name, asked[name], given), before, facts[name], strict=True):
            said = value_of.get(after)
            stays = after == word or said == (kind, own)
            verdict = OUTCOMES[0] if stays else OUTCOMES[1] if said == (kind, other) else OUTCOMES[2]
            outcome.setdefault((name, look, "all"), Counter())[verdict] += 1
            outcome.setdefault((name, look, kind), Counter())[verdict] += 1


def share(name: str, look: str, verdict: str, kind: str = "all") -> float:
    """Percent of the words."""
    counts = outcome[name, look, kind]
    return 100 * counts[verdict] / counts.total()


figure, axes = plt.subplots(1, 2, figsize=(9.5, 2.7), sharey=True, layout="constrained")
styles = ((BLUE, ""), (ORANGE, "//"), ("0.8", ""))
for axis, name in zip(axes, models, strict=True):
    for place, look in enumerate(drawn):
        left = 0.0
        for verdict, (colour, hatch) in zip(OUTCOMES, styles, strict=True):
            wide = share(name, look, verdict)
            axis.barh(
                place,
                wide,
                left=left,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=verdict if place == 0 else None,
            )
            ink = "black" if colour == "0.8" else "white"
            box = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
            axis.text(left + wide / 2, place, f"{wide:.0f}", ha="center", va="center", color=ink, fontsize=11, bbox=box)
            left += wide
    axis.set_title(f"{name} attention, {len(asked[name])} words (percent)", fontsize=11)
    axis.set_yticks(range(len(drawn)), list(drawn))
    axis.set_xlim(0, 100)
    axis.spines[["top", "right"]].set_visible(False)
axes[0].invert_yaxis()
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
plt.show()

# %%
for name in models:
    assert share(name, "on the other object", OUTCOMES[1]) > 45  # the word follows the look
    assert share(name, "on the other object", OUTCOMES[0]) < 25
    assert share(name, "on its own object", OUTCOMES[1]) < 20  # and not because any push would do it
    assert share(name, "on its own object", OUTCOMES[0]) > share(name, "even", OUTCOMES[0]) + 20
    print(f"{name}: moved to the other object, the word follows:", end=" ")
    print(
        ", ".join(
            f"{kind} {share(name, 'on the other object', OUTCOMES[1], kind):.0f} %"
            for kind in ("size", "colour", "shape", "texture")
        )
    )

# %% [markdown]
# The word follows the look. One map moved, at one word, with the whole sentence before it speaking of the other object, and in more than half of
# the cases the model says what is true of the place it was made to look at; in about one of ten only does it keep to its word. Here the map is a cause.
#
# And three limits, from the same figure:
#
# - The map that a *person* would draw, even over the right object, keeps two or three words of four. The model's own maps are not what we would draw, and
#   it has learnt to read its own. A map that looks more sensible to you need not be better for it.
# - Colour and size follow readily, shape less, and texture least: a texture may be left unsaid, so that the model goes on to the
#   next word instead.
# - An even map leaves a third of the words in place. For those the map explains nothing: the sentence so far, or what the LSTM had already read, decides.
#
# ## Words that name nothing
#
# <!-- index: claim: attention can look at non-object regions | where "a", "is", "to the left of" look, and whether they need to | satlib.course.steering.look_again | tests/test_steering.py::TestLookAgain::test_where_it_looks_by_itself_it_says_the_same -->
#
# > **Paper, section 5.4.** Other systems bring object detectors that propose what words may be aligned with. Here the model may
# > attend to any region that helps, also one that is no object.
#
# It may, and it does something at every word, since $\alpha_t$ always sums to 1. Put numbers to the question: for words that name an object, articles,
# words of relation ("above", "left"), and the rest ("is", "with", "to"): how often is the peak on *neither* object, how wide is the map, and does the word survive an even
# map?

# %%
RELATIONS = ("above", "over", "below", "under", "beneath", "underneath", "left", "right")
groups = {name: {kind: [] for kind in ("of an object", "a, the", "of relation", "others")} for name in models}
for name, found in groups.items():
    for each in tests[:100]:
        words = captions[name][each.image_id].words
        numbers = scenes.mentions(words, world[each.image_id])
        described = {index for phrase in scenes.grammar.phrases(words) for index in phrase.attributes}
        for index, word in enumerate(words):
            if numbers[index] is not None:
                found["of an object"].append((each, index))
            elif word in ("a", "the"):
                found["a, the"].append((each, index))
            elif word in RELATIONS:
                found["of relation"].append((each, index))
            elif index not in described:  # a false word of a phrase is none of these
                found["others"].append((each, index))

figures = {}
print("              words        peak on no object   entropy, nats    gate   survive an even map")
for name, found in groups.items():
    for kind, group in found.items():
        chosen = [captions[name][each.image_id] for each, _ in group]
        alpha = torch.stack([caption.alphas[index] for caption, (_, index) in zip(chosen, group, strict=True)])
        on_none = [
            not any(
                hit.pointing
                for hit in ground.measure(caption, [ground.Target(index, kind, mask) for mask in masks[each.image_id]])
            )
            for caption, (each, index) in zip(chosen, group, strict=True)
        ]
        kept = ask(name, group, [torch.full((49,), 1 / 49)] * len(group))
        survive = [word == caption.words[index] for word, caption, (_, index) in zip(kept, chosen, group, strict=True)]
        flat = alpha.flatten(1)
        entropy = float(-(flat * flat.clamp(min=1e-12).log()).sum(1).mean())
        beta = float(
            torch.stack([caption.betas[index] for caption, (_, index) in zip(chosen, group, strict=True)]).mean()
        )
        figures[name, kind] = 100 * np.mean(on_none), entropy, beta, 100 * np.mean(survive)
        off, entropy, beta, stay = figures[name, kind]
        print(f"{name:5} {kind:13} {len(group):4} {off:18.0f} % {entropy:13.2f} {beta:12.2f} {stay:14.0f} %")
    assert figures[name, "a, the"][0] > figures[name, "of an object"][0] + 5
    assert figures[name, "a, the"][1] > figures[name, "of an object"][1] + 0.5
    assert figures[name, "a, the"][3] > 90 > 65 > figures[name, "of an object"][3]

# %% [markdown]
# Words that name nothing have wider maps, whose peaks are more often on no object (far more often with soft attention), and "a" does not care at all where it looks: under an even map it stays. Words of
# objects do care. In between, a word of relation is decided by more than one place and mostly stands already.
#
# So do not read meaning into the map of "a". It shows where the *next* look is being prepared, or nothing. A region that is no object can matter, but that has
# to be tested, as above, and not read off the light.
#
# ## A temperature for the softmax
#
# <!-- index: equation 5 | the softmax over places at a temperature, from the weights alone | satlib.course.steering.tempered | tests/test_steering.py::TestTemperature::test_by_hand -->
#
# One more handle before the explorer. Divide the energies of equation 5 by a temperature $T$: below 1 the map gets sharper, above 1 flatter. Nothing but the
# weights is needed, since the sum in the softmax cancels:
#
# $$\alpha_{ti}^{(T)} = \frac{\exp(e_{ti}/T)}{\sum_k \exp(e_{tk}/T)} = \frac{\alpha_{ti}^{1/T}}{\sum_k \alpha_{tk}^{1/T}}$$

# %%
e = torch.tensor([0.0, 1.0, 2.0])
alpha = torch.softmax(e, 0)
for T in (0.1, 0.5, 2.0, 10.0):
    roots = alpha ** (1 / T)
    torch.testing.assert_close(roots / roots.sum(), torch.softmax(e / T, 0))
    torch.testing.assert_close(tempered(alpha, T), torch.softmax(e / T, 0))
    print(f"T = {T:4}:", " ".join(f"{weight:.3f}" for weight in tempered(alpha, T)))
assert tempered(alpha, 1e-3).tolist() == [0, 0, 1]  # near 0: one place
torch.testing.assert_close(tempered(alpha, 1e6), torch.full((3,), 1 / 3))  # far above 1: all places alike

# %% [markdown]
# ## The explorer
#
# Choose a model, a picture, a word (press it), a temperature. Press one of the words after "say instead", or type another: what stood before
# it stays, and the model goes on from there. Words in brackets are yours, words in orange are not what the model says when nobody helps.
#
# If you read this on GitHub you see no controls; below them is a picture of what they show.

# %%
shown = {"scene": data.photo(right[0]), "scene with a mistake": data.photo(wrong["soft"][0])}
show = Explorer(
    {"soft attention": models["soft"], "hard attention": models["hard"], "photographs": photographer},
    shown | {f"scene {number + 1}": data.photo(each) for number, each in enumerate(tests[1:4])} | photographs,
)
show

# %%
show.figure()

# %% [markdown]
# What a hand does with a control, code can do. Here the temperature goes down, a word is chosen, another is put in its place; the picture has to
# change each time.

# %%
pictures = [show.image.value]
word = next(each.index for each in ground.scene_targets(right[0], show.reading.words) if each.kind == "shape")
show.word.value = word
pictures.append(show.image.value)
show.temperature.value = 0.3
pictures.append(show.image.value)
alone = list(show.reading.words)
show.say(show.reading.alternatives[word][1][0])  # its second choice
pictures.append(show.image.value)
show.model.value = "hard attention"
pictures.append(show.image.value)
assert len(set(pictures)) == len(pictures)
show.model.value, show.temperature.value = "soft attention", 1.0
show.word.value = word
show.say(show.reading.alternatives[word][1][0])
assert show.reading.words[:word] == alone[:word]
print("alone:", " ".join(read(models["soft"], annotate(models["soft"], shown["scene"])).words))
print("now:  ", " ".join(show.reading.words))
show.figure()

# %% [markdown]
# ## Try it
#
# 1. In the explorer, take a scene and change the *first* shape. Which later words change, and which follow the picture again?
# 2. Turn the temperature up to 30 with soft, then with hard attention. Which of the two keeps its colours longer? Why? (Notebook 06.)
# 3. Show the captioner of scenes a photograph. Its maps look no less convincing. Compare with your answer to question 2 in notebook 00.
# 4. A mistake to make on purpose: measure the pointing game with the *smoothed* map's peak instead of the grid's. By how much does the figure change, and in
#    whose favour?
# 5. Another: compare "peak on the object" of two models without the row "ignoring the word". Which conclusion changes when it is there?
#
# ## What to remember
#
# - A map shows where a word's evidence was taken on a coarse grid, smoothed for the eye. It is no outline and no proof.
# - Count before you believe a gallery: against chance, and against a map that ignores the word.
# - Most mistakes of these models are of naming, not of looking; even a perfect look cures about a quarter of them.
# - Moved by force, the map takes the word with it: a cause, for words that name something. For "a" it is decoration.
# - What a person would draw is not what the model needs.
#
# ## References
#
# - K. Xu et al.: *Show, Attend and Tell*. ICML 2015. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044). Sections 5.4 and 4.2.1.
# - J. Zhang, Z. Lin, J. Brandt, X. Shen, S. Sclaroff: *Top-down Neural Attention by Excitation Backprop*. ECCV 2016. The pointing game.
#   [arXiv:1608.00507](https://arxiv.org/abs/1608.00507)
# - S. Jain, B. C. Wallace: *Attention is not Explanation*. NAACL 2019. [arXiv:1902.10186](https://arxiv.org/abs/1902.10186)
# - S. Wiegreffe, Y. Pinter: *Attention is not not Explanation*. EMNLP 2019. [arXiv:1908.04626](https://arxiv.org/abs/1908.04626)
# - C. Liu, J. Mao, F. Sha, A. Yuille: *Attention Correctness in Neural Image Captioning*. AAAI 2017. Maps of captioners, measured.
#   [arXiv:1605.09553](https://arxiv.org/abs/1605.09553)
