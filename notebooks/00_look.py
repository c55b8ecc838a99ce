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
# # 0. Look
#
# **Before each word, a captioner looks somewhere. What does it say if you make it look elsewhere?**
#
# A network writes a sentence about a picture, and before each word it looks somewhere. Here you watch where it looks. Then you take over and
# choose.
#
# **Click on this text and press Shift+Enter three times**; it takes ten seconds. (Without Python, the same runs in
# [a web page](../docs/caption.md).) Then **press the words of the sentence, one after another**: the picture is bright where the model
# looks as it chooses the word. We call that *the light*. At which of the 13 words does it first lie on the star?
#
# ![A drawn scene and its sentence: word by word, the light moves to what the word names](../docs/attention.webp)

# %%
from satcourse.figures import use_page_style
from satcourse.widgets.scrubber import Scrubber
from satlib.data import scenes
from satlib.model import installed
from satlib.model.captioner import Captioner

use_page_style()
scene = scenes.scene("test-000000")
captioner = Captioner.load(installed.model("scenes-soft"))
Scrubber(captioner, {"a drawn scene": scene.photo()})

# %% [markdown]
# ## Move the light
# <!-- asked: How do I see where an image captioner looks, word by word (attention visualisation)? | Press the words of its sentence: the picture is bright where the weights were high as the model chose that word. -->
#
# <!-- index: claim: every word comes with a map of where it was seen | the maps alpha_t of a generated caption, word by word and drawn | satcourse.widgets.scrubber.Scrubber | tests/test_scrubber.py::test_it_says_and_shows_what_the_captioner_does -->
#
# This captioner has seen drawings and sentences about them, and nobody ever told it where anything is. Its attention and its decoder are those of
# *Show, Attend and Tell* (Xu et al., 2015), which is "the paper" from here on; its encoder is a smaller one.
#
# **You will be able to**
#
# - see where a captioner looks as it chooses each word, and make it look elsewhere;
# - say what attention replaces, and what a bright map does not prove.
#
# **Time**: 17 minutes to read, 8 more to write, 45 seconds to run. **Memory**: 1.5 GB. **Needs**: nothing.
# **Next**: [notebook 01](01_attention_before_images.ipynb), where attention comes from.

# %% jupyter={"source_hidden": true}
import json
from collections import Counter

import torch

from satcourse import demo
from satcourse.checks import reveal, seal, skip
from satcourse.widgets import drawings
from satcourse.widgets.reading import annotate, labels, read
from satcourse.widgets.slides import Slides
from satcourse.widgets.steering import everywhere, look_again, steered
from satcourse.widgets.upload import show_caption, show_upload_button
from satlib.data import images
from satlib.evaluation import plots

# %%
a = annotate(captioner, scene.photo())  # (L, D): the picture as the captioner sees it
caption = read(captioner, a)
star = torch.as_tensor(scene.masks[1]).flatten()  # of the star's pixels
on_star = [bool(star[light.argmax()]) for light in plots.upsample(caption.alphas).flatten(1)]
print(f"{a.shape[0]} places, {a.shape[1]} numbers for each. In capitals: the star is brightest.")
print(*[w.upper() if on else w for w, on in zip(caption.words, on_star)])

# %% [markdown]
# At word 7, the second "big", the light jumps to the star. It stays there until "star". At "to its right" it leaves for the bare background above:
# those words name no object.
#
# ## Now you choose where it looks
# <!-- asked: Does attention change what is said, or is it only decoration? | It changes it: with all attention for the colour word on the other object, the model says that object's colour. -->
#
# Does the light matter, or is it only decoration? Go back to the sentence, press word 9, "green", and **click on the
# triangle**. (Or Tab, then space.) All attention for that word is now where you put it. The words
# before it stay, and the model writes the rest by itself. How many of the 13 words will change?
#
# The answer is **sealed** until you put a guess in place of the dots (Shift+Enter runs a cell): a range of which you are 80 % sure,
# or `skip`. Notebook 11 counts how many ranges held the truth.

# %%
my_change_guess = ...  # (low, high), or skip

# %%
seal(my_change_guess)
light = torch.zeros(9, len(a))  # a row for each of the first nine words; zeros leave the word alone
light[8, caption.alphas[caption.words.index("triangle")].argmax()] = (
    1  # word 9 looks at the triangle alone
)
forced = read(captioner, a, given=light)
print("by itself:", *caption.words)
print("forced:   ", *forced.words)
changed = sum(one != other for one, other in zip(caption.words, forced.words, strict=True))
reveal("words that changed", changed)

# %% [markdown] tags=["answer"]
# One. Green became purple, and the sentence now describes a star that is nowhere in the picture. So the light is no decoration.

# %% [markdown]
# You changed what one part of a network passes on, left everything else alone, and saw what came out. That is an **intervention**.
#
# ### Every place at once
#
# The next cell puts the light on each of the 196 places at word 9. At how many will it still say "green"?

# %%
my_green_guess = ...  # (low, high), or skip

# %%
seal(my_green_guess)
tints = {
    "green": "#5cc85c",
    "red": "#f07070",
    "purple": "#c39bd3",
    "yellow": "#f2c80f",
    "orange": "#ffa64d",
}
colours = labels(captioner, everywhere(captioner, a, caption.words, 8))
green = sum(word == "green" for row in colours for word, _ in row)
reveal("places at which it says green", green)
drawings.answers_figure(scene.photo(), colours, "green", tints=tints)

# %% [markdown] tags=["answer"]
# At 65: 18 of the 21 places that the star touches, and 47 others.

# %% [markdown]
# On the bare background it says orange more often than green, and in places yellow or red, though neither object has these colours. Remember that
# a label is only the likeliest of 62 words; the paler it is drawn, the less likely it is.
#
# So what would the model say if it looked at *nothing*? Give it a 197th place, whose vector is zeros, and put the light there.

# %%
with_nothing = torch.cat([a, torch.zeros(1, a.shape[1])])
p_nothing = look_again(
    captioner, with_nothing[None], [caption.words], [8], torch.eye(len(a) + 1)[-1:]
)[0]
p_green = p_nothing[captioner.vocabulary.words.index("green")].item()
for p, word in zip(*p_nothing.topk(3)):
    print(f"{captioner.vocabulary.words[word]:8} {p:.0%}")
surer = sum(word == "green" and p > p_green for row in colours for word, p in row)
print(f"places that say green, and more surely than nothing does: {surer}")

# %% [markdown]
# Green, too, with 38 %. It remembers the star from its looks at the two words before. (With zeros at those words as well, green has 5 %.)
#
# That was a **control**: the same question, without the look. There are several ways to look at nothing, and they do not agree:
#
# | in place of the look | green looks that are surer | of these, on the star |
# | --- | --- | --- |
# | zeros | 26 of 65 | 16 |
# | 1,000 bare places of other scenes | 14 (surer than 95 % of them) | 14 |
#
# The model has no word for "I see nothing". A captioner has to say *something*.
#
# ### One scene is no evidence
#
# So much for one star. Let us take scenes with two colours, change the light at the second colour word only, and count.

# %% jupyter={"source_hidden": true}
SCENES = 40  # of 150 in the text: more take minutes
HUES = {"red", "green", "blue", "yellow", "purple", "orange"}


def second_colour(number):
    """The two colours of a scene's sentence, and what is said for the second with the light elsewhere; None: not two colours."""
    a = annotate(captioner, scenes.scene(f"test-{number:06d}").photo())
    said = read(captioner, a)
    at = [i for i, word in enumerate(said.words) if word in HUES]
    if len(at) != 2 or said.words[at[0]] == said.words[at[1]]:
        return None
    first, second = at
    L = len(a)
    lights = {  # over the places and a last one, which is nothing
        "all places evenly": torch.tensor([[1 / L] * L + [0.0]]),
        "nothing": torch.eye(L + 1)[-1:],
        "the first object": torch.eye(L + 1)[said.alphas[first].argmax()][None],
    }
    with_nothing = torch.cat([a, torch.zeros(1, a.shape[1])])
    answers = {"where it looked itself": said.words[second]}
    for name, light in lights.items():
        p = look_again(captioner, with_nothing[None], [said.words], [second], light)[0]
        answers[name] = captioner.vocabulary.words[p.argmax()]
    return said.words[first], said.words[second], answers


counted, number = [], 0
while len(counted) < SCENES:
    counted += filter(None, [second_colour(number)])
    number += 1
print(f"{SCENES} scenes, percent{'':8}the second colour   the first")
of_scenes = {}
for name in counted[0][2]:
    of_scenes[name] = [
        100 * sum(answers[name] == pair[which] for *pair, answers in counted) / SCENES
        for which in (1, 0)
    ]
    print(f"{name:24}{of_scenes[name][0]:19.0f} {of_scenes[name][1]:11.0f}")

# %% [markdown]
# Forty scenes are few: a share of them has a standard error of up to 8 points, and the last row above came out low.
# Here are three draws of 150:
#
# | the light lies on | it says the second colour | it says the first |
# | --- | --- | --- |
# | where the model looked itself | 100 % | 0 % |
# | the first object | 0 % | 69 to 77 % |
# | nothing (zeros) | 57 to 63 % | 2 to 5 % |
# | all places, evenly | 52 to 57 % | 7 to 9 % |
# <!-- again: SCENES = 40 to SCENES = 150; number = [], 0 to number = [], 300 and 600 -->
#
# The second row says that the light can overrule whatever the model remembers. The last two rows say that the look is often not needed: without it
# the colour is still right in half of the scenes or more. That is memory, from the looks at the words before. Spread the light evenly over those words
# as well, and the right colour falls to about 24 %, hardly more than the share of the first colour.
#
# ## A photograph
#
# satlib's default captioner learned from 6,694 other photographs, mostly of people and dogs. This one *was* told where things are: boxes that
# people had drawn taught its attention ([model card](../satlib-models/satlib_models/README.md)).

# %%
photographer = Captioner.load(installed.model())
photographs = {path.stem: images.open_photo(path) for path in demo.photographs()}
Scrubber(photographer, {"elephants": photographs["elephants"], **photographs})

# %% [markdown]
# Now put the light
# for "beach" on each of the 196 places, and the photograph gets its labels.

# %% tags=["docs:labels"] jupyter={"source_hidden": true}
a_savanna = annotate(photographer, photographs["elephants"])
savanna = read(photographer, a_savanna).words
places = labels(photographer, everywhere(photographer, a_savanna, savanna, savanna.index("beach")))
drawings.answers_figure(photographs["elephants"], places, "beach")

# %% [markdown]
# It says "elephant" on the elephant in front, "beach" at the water, "sandy" on the sand, and "field" on the savanna. But on the elephants behind it says
# "field" and "grassy". And what is grassy about the sky?
#
# ## Where it fails, and what gives it away
# <!-- asked: Can I trust a caption with a high confidence score? | Only in part: captions with high scores are true more often, but a score of 0.48 does not mean that 48 of 100 are true. -->
# <!-- asked: Does the attention map of a wrong word (a hallucination) look wrong, too? | Not always: at the false word "dog" the model looks straight at the cow. -->
#
# How many of the captions of the other seven photographs will be true? Beside each stands a score from 0 to 1. It says how probable the model
# found its own words, as the geometric mean of their probabilities (one over the *perplexity*).

# %%
my_truth_guess = ...  # (low, high), or skip

# %%
seal(my_truth_guess)
described = dict(
    zip(photographs, photographer.caption(list(photographs.values()), beam=1), strict=True)
)
sure = {name: each.confidence for name, each in described.items()}
for name in sorted(sure, key=sure.get, reverse=True):
    print(f"{name:12} {sure[name]:.2f}  {described[name].text}")
reveal("true captions of the seven, as we judge", 2)
shown = [
    (plots.scaled(photographs[name], 336), each.words, (), "") for name, each in described.items()
]
drawings.gallery_figure(
    [each for each, name in zip(shown, described) if name != "elephants"], columns=4
)

# %% [markdown] tags=["answer"]
# Two, if a dark brown dog may be black: the dog and the train. The tennis player holds no ball, the cats and the cow
# are called dogs, nobody sits on a chair, and the people sit in a boat.
#
# This is not bad luck. Two readers judged captions of this model without seeing the scores ([how sure it is](../docs/caption.md#how-sure-it-is)).
# This is how many they called true, of 150 at first, and of 60 more that had been set aside:
#
# | score | true | true of those set aside |
# | --- | --- | --- |
# | from 0.53 | 25 of 50 | 8 of 17 |
# | 0.44 to 0.53 | 11 of 50 | 7 of 18 |
# | below 0.44 | 8 of 50 | 7 of 25 |
#
# So the score ranks captions, though less steeply than it first seemed. But a score of 0.48 does not mean that 48 of 100 such captions are true.

# %% [markdown]
# Does the map of a false word give it away?

# %%
plots.attention_figure(photographs["cows"], described["cows"].words, described["cows"].alphas)

# %% [markdown]
# Not here. At "dog", the model looks straight at the cow. The scores only hint: the train's caption is right, and has a lower score than the
# cow's.
#
# ## Your own photograph
#
# Put a path between the quotes, or press the button.

# %%
MY_PHOTO = ""  # "holiday/beach.jpg", for example
if MY_PHOTO:
    show_caption(photographer, images.open_photo(MY_PHOTO))
show_upload_button(photographer)

# %% [markdown]
# ## What attention replaces
# <!-- asked: What are the encoder and the decoder of an image captioner (encoder-decoder)? | The encoder, a convolutional network, turns the picture into vectors, and the decoder, here an LSTM, turns these into words. -->
# <!-- asked: What is a context vector? | The weighted mean of the annotation vectors, a new one for each word. -->
#
# <!-- index: section 3.1 | the model as a whole: encoder, annotation vectors, decoder, attention | satlib.model.captioner.Captioner | tests/test_captioner.py::TestCaption::test_maps_are_distributions_on_the_grid -->
#
# The usual neural captioner of 2014 had two parts (an *encoder-decoder*). An **encoder**, a convolutional network, turned the picture into one
# vector. A **decoder**, a recurrent network (here an LSTM), turned that vector into words. So the one vector had to hold whatever any word would
# need.
#
# Here the encoder stops earlier and returns a grid of **annotation vectors** $a_1, \dots, a_L$, one for each place. Before each
# word $t$, the decoder gives every place a weight $\alpha_{ti}$. The weights are not negative, and their sum is 1. They are the light that you
# moved. The decoder still gets one vector, the **context vector** $\hat{z}_t = \sum_i \alpha_{ti}\, a_i$, but a new one for each word.
# (Words that look at the places of a picture: today this is called *cross-attention*.)

# %% jupyter={"source_hidden": true}
torch.testing.assert_close(caption.alphas.sum((1, 2)), torch.ones(len(caption.alphas)))
shown = [3, 4, 8, 12]
even, own = torch.full((4, 14, 14), 1 / 196), caption.alphas[shown]
lit = [*plots.lit(scene.photo(), even, 224), *plots.lit(scene.photo(), own, 224)]
told = ["the mean of all places"] * 4 + ["a mean of its own"] * 4
drawings.gallery_figure(
    [(each, [caption.words[i]], (), text) for each, i, text in zip(lit, 2 * shown, told)]
)

# %% [markdown]
# ### What one vector loses
# <!-- asked: How would a captioner work without attention, with one mean vector (global average pooling)? | On scenes it mostly knows what is there, and often loses what belongs together; on photographs its scores hardly suffer. -->
#
# <!-- index: claim: one fixed vector cannot serve every word | a mean of places against a look for each word, on scenes and on photographs | satlib.model.attention.NoAttention | tests/test_attention.py::test_without_attention_every_place_weighs_the_same -->
#
# The upper row passes the mean on at every step. Suppose that a place has two numbers, "red" and "star". One picture has something red
# here and a star there; the other has a red star, and nothing beside it.

# %%
red_and_star = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # (L, D): two places, two numbers
red_star = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
print("means:  ", red_and_star.mean(0).tolist(), red_star.mean(0).tolist())
print("place 1:", red_and_star[0].tolist(), red_star[0].tolist())

# %% [markdown]
# The means are the same, and one look at place 1 tells the pictures apart. But a trained encoder has 128 numbers for each place, and could hide a
# whole scene in their mean. Does it? With attention, 98 % of the captions of scenes are right in every detail. What percentage without?

# %%
my_mean_guess = ...  # (low, high), or skip

# %% jupyter={"source_hidden": true}
seal(my_mean_guess)
evaluations = {
    path.parent.name: json.loads(path.read_text(encoding="utf-8"))
    for path in installed.evaluations()
}
metrics = {name: each["metrics"] for name, each in evaluations.items()}


def details(meaning):
    """The sizes, colours, patterns and shapes of both objects, whichever has them."""
    return sorted([*vars(meaning.first).values(), *vars(meaning.second).values()])


for name in ("scenes-soft", "scenes-none"):
    captions = evaluations[name]["captions"]
    told = [
        (scenes.grammar.parse(text), scenes.scene(image_id).meaning)
        for image_id, text in captions.items()
    ]
    all_details = [details(said) == details(true) for said, true in told if said]
    both_objects = [
        {said.first, said.second} == {true.first, true.second} for said, true in told if said
    ]
    metrics[name] |= {
        "all details": 100 * sum(all_details) / len(told),
        "both objects": 100 * sum(both_objects) / len(told),
    }
scores = [("scenes", name) for name in ("all details", "both objects", "exact match")]
for name, metric in [*scores, ("flickr8k", "BLEU-4"), ("flickr8k-lite0", "BLEU-4")]:
    soft, none = (metrics[f"{name}-{kind}"][metric] for kind in ("soft", "none"))
    print(f"{name:15} {metric:14} with attention {soft:5.1f}   with the mean {none:5.1f}")
reveal("captions of scenes right with the mean, in percent", metrics["scenes-none"]["exact match"])

# %% [markdown] tags=["answer"]
# 41 %. Of all captions with the mean, 76 % mention exactly the sizes, colours, patterns and shapes that are in the picture, but only 47 % give them to the
# right objects. The mean mostly knows what is there. It often loses what belongs together.

# %% [markdown]
# On photographs it hardly matters. With the paper's encoder, VGG-19, attention was worth 1.2 points of BLEU-4 (a score that notebook 08
# explains; the two above are rounded). But two trainings of one recipe differed by up to 0.8, and with EfficientNet-Lite0 attention was worth 0.1. So these runs do not show
# that it helps there. Why, then, are today's language models built on it? The course keeps this question for
# [its end](11_from_2015_to_now.ipynb).
#
# ## On trial: the labels
#
# Look at the labels of the dog, at the word "dog" (after "a black").

# %% jupyter={"source_hidden": true}
a_dog = annotate(photographer, photographs["dog"])
words = read(photographer, a_dog).words
here = everywhere(photographer, a_dog, words, words.index("dog"))
drawings.answers_figure(photographs["dog"], labels(photographer, here), "dog")

# %% [markdown]
# It says "dog" on the dog, and "and" nearly everywhere else. Is the lawn an "and"? Ask as before: what would be said *without this
# picture*? Zeros make too weak a control, since all 196 labels pass it. Photographs of other things are better. Put the same words before, and the
# light on each of their places. A label counts as evidence if its word is likelier here than at 95 % of the places elsewhere. The cows and the
# cats are accused, too, after the same words.


# %% tags=["task:0.1"]
def evidence(here, elsewhere):
    """Which labels tell something of this picture: here (L, K), elsewhere (N, K), the words' probabilities at places -> (L,), bool."""
    # BEGIN SOLUTION
    p, word = here.max(1)  # (L,): the labels
    return p > elsewhere[:, word].quantile(0.95, dim=0)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# `elsewhere[:, word]` has a column for each label: what its word gets at the places of other pictures. `quantile(0.95, dim=0)` is what 95 % of
# a column do not exceed.

# %%
spoken = {
    name: everywhere(photographer, annotate(photographer, photo), words, words.index("dog"))
    for name, photo in photographs.items()
}
for exhibit in ("cows", "cats", "dog"):
    here = spoken[exhibit]
    lives = evidence(
        here, torch.cat([spoken[name] for name in spoken if name != exhibit])
    )  # elsewhere: (7 * 196, K)
    for verdict, which in (("labels", lives | True), ("evidence", lives)):
        said = Counter(
            photographer.vocabulary.words[word] for word in here.argmax(1)[which].tolist()
        )
        print(
            f"{exhibit:5}{verdict:9}",
            *[f"{word} {count}" for word, count in said.most_common(4)],
            sep="  ",
        )
drawings.answers_figure(photographs["dog"], labels(photographer, here * lives[:, None]), "dog")

# %% [markdown]
# The dog's 134 "and" are gone. All 47 "dog" stay, and so do "tree" and "grass" in their places. But the cows' labels are all "and", and 23 of them
# live. And all 13 "dog" on the cats live.
#
# How many live by chance? The 5 % is a promise about the average over many photographs. Neighbouring places live or die together, and
# there are only seven other photographs. So try it on a word that names nothing, "and":

# %% jupyter={"source_hidden": true}
AND = photographer.vocabulary.words.index("and")
passing_and = {}
for name, probabilities in spoken.items():
    passes = evidence(
        probabilities, torch.cat([spoken[other] for other in spoken if other != name])
    )
    empty = probabilities.argmax(1) == AND
    passing_and[name] = int((passes & empty).sum()), int(empty.sum())
for name, (passed, count) in sorted(passing_and.items(), key=lambda item: item[1][0] / item[1][1]):
    print(f'{name:10} {passed:3} of {count} "and" pass: {passed / count:4.0%}')

# %% [markdown]
# The nominal 5 % is anything from 0 to 17 %. A threshold on a map is no significance test.
#
# So do not stop at 95 %. Move the slider, and watch the labels of the cats die. How long does "dog" live there, and how long on the dog?

# %% jupyter={"source_hidden": true}
DOG = photographer.vocabulary.words.index("dog")


def living(exhibit, share):
    """The places (196,) of a photograph whose label is likelier there than at a share of the places elsewhere."""
    others = torch.cat([spoken[name] for name in spoken if name != exhibit])
    p, word = spoken[exhibit].max(1)
    return p > others[:, word].quantile(share, dim=0)


def draw_living(share):
    kept = spoken["cats"] * living("cats", share)[:, None]
    return drawings.answers_figure(photographs["cats"], labels(photographer, kept), "dog")


def dogs(share):
    on = {
        name: int((living(name, share) & (spoken[name].argmax(1) == DOG)).sum())
        for name in ("dog", "cats")
    }
    return f'{share:.0%}. "dog" lives at {on["cats"]} places on the cats, at {on["dog"]} on the dog'


Slides(
    draw_living,
    [0, 0.8, 0.95, 0.97, 0.98, 0.99],
    "a label must be likelier here than at this share of the places elsewhere",
    dogs,
)

# %% [markdown]
# The verdict: evidence says that *this picture differs here*, not that the label is true. A stricter test separates the dog from the cats: at 99 %, 37
# "dog" labels live on the dog, and none on the cats. But we chose 99 % after seeing this. (With a second dog elsewhere, the same one mirrored, 46 of the 47 still pass at 95 %.)
#
# ## The map of the course
#
# | Begin | What goes in | Attention | What comes out | And then |
# | --- | --- | --- | --- | --- |
# | 00 look | [02 features](02_features.ipynb) | [04 soft attention](04_soft_attention.ipynb) | [08 decoding, judging](08_decoding_and_judging.ipynb) | [11 from 2015 to now](11_from_2015_to_now.ipynb) |
# | [01 before images](01_attention_before_images.ipynb) | [03 captions](03_captions.ipynb) | [05 doubly stochastic](05_doubly_stochastic.ipynb) | [09 training for real](09_training_for_real.ipynb) | [12 a vision-language model](12_vision_language_model.ipynb) |
# | | | [06 hard attention](06_hard_attention.ipynb) | [10 reading the model](10_reading_the_model.ipynb) | |
# | | | [07 hard attention trained](07_hard_attention_trained.ipynb) | | |
#
# [The index](INDEX.md) leads from an equation to its place, and [one_file.py](../examples/one_file.py) has the whole system.
#
# ## Try it
#
# 1. Put the labels of the elephants on trial. Is what lives at 99 % always true?
#    <details><summary>Answer</summary>40 live: 15 "beach" (at a waterhole), 11 "field", 10 "walks", no "elephant".</details>
# 2. Show the photographs to the wrong model: `Scrubber(captioner, photographs)`. Do its maps look less sensible, and what does
#    that say about a good-looking map?
#
# ## What to remember
#
# - For each word, attention gives the decoder a new view of the picture: a weighted mean of the annotation vectors.
# - Move the light, and words can change. Take it away, and half of the colour words or more stay: the model remembers.
# - The model has to say something, even where there is nothing. A control asks what it says without
#   the look. What passes need not be true, and a nominal 5 % may be 0 or 17.
# - A fluent sentence with a bright map can still be wrong.
#
# So what does it say? **Often what lies at the new place. But a word that it says without any light, too, did not need this look: it may come from memory.**
#
# ## References
#
# - K. Xu et al. *Show, Attend and Tell: Neural Image Caption Generation with Visual Attention.* ICML 2015.
#   [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - M. Hodosh, P. Young, J. Hockenmaier: *Framing Image Description as a Ranking Task*. JAIR 47, 2013. Flickr8k.

# %% tags=["claims"] jupyter={"source_hidden": true}
assert len(caption.words) == 13, "The sentence has 13 words"
assert on_star[:13] == [False] * 6 + [True] * 4 + [False] * 3, (
    "At word 7, the second big; its right to the background"
)
things = torch.as_tensor(scene.masks).any(0).flatten()
assert not any(things[it.argmax()] for it in plots.upsample(caption.alphas[10:13])), (
    "for the bare background"
)
assert (changed, forced.words[8]) == (1, "purple"), "Green became purple"
assert caption.words[8] == "green", "each of them at word 9"
assert green == 65
assert len(captioner.vocabulary) - 2 == 62, "the likeliest of its 62 words"
assert (captioner.vocabulary.words[p_nothing.argmax()], round(p_green, 2), surer) == (
    "green",
    0.38,
    26,
)
another = torch.cat([annotate(captioner, scenes.scene("test-000001").photo()), with_nothing[-1:]])
p_another = look_again(captioner, another[None], [caption.words], [8], torch.eye(len(a) + 1)[-1:])[
    0
]
assert p_another[captioner.vocabulary.words.index("green")] < 0.025, "on another picture it is 2 %"
nothing = torch.zeros(1, 9, len(a) + 1)
nothing[0, 6:, -1] = 1  # at words 7, 8 and 9
decoder, before = steered(captioner.decoder, given=nothing), torch.tensor([-1])
keys, state = decoder.project(with_nothing[None]), decoder.initial_state(a[None])
with torch.no_grad():
    for word in caption.words[:9]:
        logits, state, *_ = decoder.predict(keys, state, before)
        before = torch.tensor([captioner.vocabulary.words.index(word)])
assert round(logits[0].softmax(0)[captioner.vocabulary.words.index("green")].item(), 2) == 0.05, (
    "with nothing there: 5 %"
)
patches = (
    torch.as_tensor(scene.masks[1]).reshape(14, 16, 14, 16).any(3).any(1).tolist()
)  # places that the star touches
on_the_star = [
    where
    for row, line in zip(colours, patches)
    for (word, p), where in zip(row, line)
    if word == "green" and p > p_green
]
assert sum(on_the_star) == 16, "16 are on the star"
backgrounds = []
for other in (scenes.scene(f"test-{k:06d}") for k in range(1, 21)):
    if "green" not in (other.meaning.first.colour, other.meaning.second.colour):
        full = torch.as_tensor(other.masks).any(0).reshape(14, 16, 14, 16).any(3).any(1).flatten()
        backgrounds.append(annotate(captioner, other.photo())[~full])
backgrounds = torch.cat(backgrounds)[:1000]
p_empty = torch.cat(
    [
        look_again(
            captioner,
            torch.cat([a.expand(50, -1, -1), some[:, None]], 1),
            [caption.words] * 50,
            [8] * 50,
            torch.eye(len(a) + 1)[-1:].expand(50, -1),
        )[:, captioner.vocabulary.words.index("green")]
        for some in backgrounds.split(50)
    ]
)
surest = [
    where
    for row, line in zip(colours, patches)
    for (word, p), where in zip(row, line)
    if word == "green" and p > p_empty.quantile(0.95)
]
assert (len(surest), sum(surest)) == (14, 14), "14 looks, all on the star"
said = {True: Counter(), False: Counter()}  # on the star, and on the background
other = torch.as_tensor(scene.masks[0]).reshape(14, 16, 14, 16).any(3).any(1).tolist()
for row, stars, triangles in zip(colours, patches, other):
    for (word, _), of_star, of_triangle in zip(row, stars, triangles):
        if of_star or not of_triangle:
            said[of_star][word] += 1
assert (said[True]["green"], said[True].total()) == (18, 21)
assert said[False]["orange"] > said[False]["green"] > said[False]["yellow"] > 0 < said[False]["red"]
assert sum(word == "orange" for row in colours for word, _ in row) > 80, "orange in most places"
assert {word for row in colours for word, _ in row} <= set(tints), "it names something"
assert described["elephants"].text == " ".join(savanna) == "a elephant is standing on a beach"
light_of = [divmod(int(each.argmax()), 14) for each in described["elephants"].alphas]
assert [light_of[savanna.index(word)] for word in ("elephant", "beach")] == [(9, 8), (11, 6)], (
    "on the elephant; on the wet sand"
)
assert [places[at][of][0] for at, of in ((9, 8), (11, 5), (12, 0), (6, 7), (4, 1))] == [
    "elephant",
    "beach",
    "sandy",
    "field",
    "grassy",
]
assert {word for word, _ in places[0]} == {"grassy"}, "grassy about the sky"
of_dog = [photographer.vocabulary.words[word] for word in here.argmax(1).tolist()]
assert (of_dog.count("and"), of_dog.count("dog")) == (134, 47), "134; 47"
alive = [word for word, lives_on in zip(of_dog, lives.tolist()) if lives_on]
assert (alive.count("and"), alive.count("dog")) == (0, 47), "gone; all stay"
elsewhere = {
    name: torch.cat([spoken[other] for other in spoken if other != name]) for name in spoken
}
assert {photographer.vocabulary.words[word] for word in spoken["cows"].argmax(1).tolist()} == {
    "and"
}, "all of them"
assert evidence(spoken["cows"], elsewhere["cows"]).sum() == 23
assert min(int(evidence(spoken[name], elsewhere[name]).sum()) for name in spoken) == 23, (
    "no photograph has fewer"
)


def passing(name, among, share):
    """How often each word is a label that passes."""
    p, word = spoken[name].max(1)
    kept = word[p > among[:, word].quantile(share, dim=0)]
    return Counter(photographer.vocabulary.words[each] for each in kept.tolist())


assert [passing(name, elsewhere[name], 0.95)["dog"] for name in ("dog", "cats")] == [47, 13], (
    "all 13"
)
assert [passing(name, elsewhere[name], 0.99)["dog"] for name in ("dog", "cats")] == [37, 0], (
    "at 99 %"
)
mirrored = everywhere(
    photographer, annotate(photographer, photographs["dog"].transpose(0)), words, words.index("dog")
)
assert passing("dog", torch.cat([elsewhere["dog"], mirrored]), 0.95)["dog"] == 46, "46 of the 47"
of_elephants = [passing("elephants", elsewhere["elephants"], share) for share in (0.95, 0.99)]
assert of_elephants[0] == of_elephants[1], "as at 95 %"
assert of_elephants[1].total() == 40, "40 live"
assert [of_elephants[1][word] for word in ("beach", "field", "walks", "elephant")] == [
    15,
    11,
    10,
    0,
]
assert [alive.count(word) == of_dog.count(word) > 0 for word in ("tree", "grass")] == [
    True,
    True,
], "and so do"
with_zeros = torch.cat([a_dog, torch.zeros(1, a_dog.shape[1])])
p_zeros = look_again(photographer, with_zeros[None], [words], [2], torch.eye(197)[-1:])[0]
assert words[:3] == ["a", "black", "dog"]
assert (here.max(1)[0] > p_zeros[here.argmax(1)]).all(), "all 196 labels pass it"
assert [name for name in described if "dog" in described[name].words] == ["dog", "cats", "cows"], (
    "The cats and the cow are dogs"
)
assert described["tennis"].text == "a man is holding a tennis ball on a court"
assert described["train"].text == "a blue and white train is traveling down a track"
assert "chair" in described["telephone"].words
assert sorted(sure, key=sure.get)[:2] == ["cats", "telephone"] or sorted(sure, key=sure.get)[
    :2
] == [
    "telephone",
    "cats",
]
assert {*sorted(sure, key=sure.get)[-3:]} == {"dog", "tennis", "elephants"}
assert round(metrics["scenes-soft"]["exact match"]) == 98, (
    "98 % of the captions of scenes are right in every word"
)
assert round(metrics["scenes-none"]["exact match"]) == 41, "41 %"
assert [round(metrics["scenes-none"][what]) for what in ("all details", "both objects")] == [
    76,
    47,
], "76 %; 47 %"
assert round(metrics["scenes-soft"]["both objects"]) == 98, "with attention, 98 % do"
assert abs(metrics["flickr8k-soft"]["BLEU-4"] - metrics["flickr8k-none"]["BLEU-4"] - 1.2) < 0.05, (
    "1.2 points of BLEU-4"
)
assert (
    abs(metrics["flickr8k-lite0-soft"]["BLEU-4"] - metrics["flickr8k-lite0-none"]["BLEU-4"] - 0.1)
    < 0.06
), "0.1 with EfficientNet-Lite0"
assert of_scenes["where it looked itself"] == [100, 0]
assert abs(of_scenes["nothing"][0] - 60) < 16, "of few scenes"
assert abs(of_scenes["all places evenly"][0] - 55) < 16
assert abs(of_scenes["the first object"][1] - 73) < 25
assert of_scenes["the first object"][0] < 5
assert [passing_and[name][0] for name in ("dog", "tennis", "elephants")] == [0, 0, 0], "from 0"
assert max(passed / count for passed, count in passing_and.values()) == 32 / 186, "to 17 %"
