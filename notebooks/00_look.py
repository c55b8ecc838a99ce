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
# A network writes a sentence about a picture. For each word, it looks at some part of the picture. In this notebook you
# move along the sentence and watch where it looks. Then you take over: you choose where it looks, and see what it says.
# The network comes from *Show, Attend and Tell* (Xu et al., 2015), which this course calls "the paper".
#
# ![A drawn scene and its sentence: word by word, the light moves to what the word names](../docs/attention.webp)
#
# **You will be able to**
#
# - see where a captioner looks as it chooses each word, for drawings, for photographs and for your own photograph;
# - make it look elsewhere, and predict which word changes;
# - say what attention replaces, and when one vector for all words is not enough;
# - find your way through the ten notebooks.
#
# **Minutes**: 15 to read, 0.2 to run on two CPU cores. **Memory**: 1.5 GB. **Needs**: no other notebook; nothing to
# download but satlib, the course's Python package, and the packages that it needs.

# %%
import io

import ipywidgets
import matplotlib.pyplot as plt
import torch
from IPython.display import display
from PIL import Image

from satcourse import demo
from satcourse.widgets import drawings
from satcourse.widgets.explorer import annotate, read
from satcourse.widgets.scrubber import Scrubber
from satcourse.widgets.steering import look_again
from satlib.data import images, scenes
from satlib.evaluation import overlay, plots, table
from satlib.model import attention, shipped
from satlib.model.captioner import Captioner

plt.style.use("satcourse.page")

# %% [markdown]
# ## Move the light
#
# <!-- index: claim: every word comes with a map of where it was seen | the maps alpha_t of a generated caption, along a slider and drawn | satcourse.widgets.scrubber.Scrubber | tests/test_scrubber.py::TestTheLight::test_it_says_and_shows_what_the_captioner_does -->
#
# Here is a drawn scene, and a captioner that was trained on drawings like it. It has seen only drawings and sentences.
# Nobody told it where anything is. It has not seen this scene before.
# <!-- source: only drawings and sentences | satlib/models/README.md -->
#
# **Drag the slider below the sentence**, or click on it and use the arrow keys. The picture keeps its colours where
# the model looks while it chooses the word, and the rest is dimmed. We call the bright part "the light".
#
# **Predict first.** The sentence has 13 words. Write down a number: at which word does the light leave the first
# object?

# %%
scene = scenes.scene("test-000000")
captioner = Captioner.load(shipped.model("scenes-soft"))
Scrubber(captioner, {"a drawn scene": scene.photo()})

# %% [markdown]
# On a page without widgets, look at this strip instead. It shows all the steps of the slider. In each picture, a thin
# white line surrounds the part where the light has at least half of its maximum.
# <!-- source: at least half of its maximum | satlib/evaluation/plots.py -->

# %%
a = annotate(captioner, scene.photo())  # (L, D) = (196, 128): the picture as the captioner sees it
caption = read(captioner, a)
print(len(caption.words), "words:", " ".join(caption.words))
plots.attention_figure(scene.photo(), caption.words, caption.alphas)

# %%
lit = {
    word: [
        float(overlay.upsample(caption.alphas)[i][mask].sum()) for mask in scene.masks
    ]  # of the triangle, of the star
    for i, word in enumerate(caption.words)
    if word in ("triangle", "with", "dotted", "star", "to", "its")
}
for word, (on_triangle, on_star) in lit.items():
    share = 100 * on_triangle / (on_triangle + on_star)
    print(
        f"word {caption.words.index(word) + 1:2}, {word:9} {share:3.0f} % of the light on the two objects is on the triangle"
    )

# %% [markdown]
# <details><summary>Answer</summary>
#
# Between word 5, "with", and word 8, "dotted", and in one jump: at the strip's second "big" it is already on the star.
# At "to" it goes back to the triangle, and at "its" to the star again, as your eyes do when you compare two things. The model
# learnt this from drawings and their sentences alone. How it does so is the subject of notebook 04.
# <!-- source: from drawings and their sentences alone | satlib/models/README.md -->
#
# </details>

# %% [markdown]
# ## Now you choose where it looks
#
# Does the light matter, or is it only decoration? Test it. Go back to the slider and choose word 4, "triangle". Then
# **click on the star**. (With the keyboard: Tab to a place of the picture, then the space bar.) All attention for
# that word is now on the place that you chose. The words before it stay. The model writes the rest by itself.
#
# **Predict first.** What will word 4 be? And what will the colour be if you force word 3, "purple", to the star? Do the
# words after it change, too?
#
# The next cell does both, for people without widgets.

# %%
peak = caption.alphas[caption.words.index("star")].flatten().argmax()
print("by itself:            ", " ".join(caption.words))
forced = {}
for index in (3, 2):
    look = torch.zeros(index + 1, len(a))
    look[index, peak] = 1  # all attention on the star, at this word only
    forced[index] = read(captioner, a, given=look)
    print(f"word {index + 1} looks at the star:", " ".join(forced[index].words))
assert forced[3].words == [word if i != 3 else "star" for i, word in enumerate(caption.words)], "only that word changes"
assert forced[2].words == [word if i != 2 else "green" for i, word in enumerate(caption.words)], (
    "only that word changes"
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The triangle becomes a star, and purple becomes green. Each time, only that word changes. The last sentence describes
# a big green triangle that is not there. So here the light is not decoration. It affects which word the model chooses.
# Notebook 09 tests this on a hundred scenes, and finds words that the light does not affect.
# <!-- source: on a hundred scenes | notebook 09 -->
# <!-- source: words that the light does not affect | notebook 09 -->
#
# </details>

# %% [markdown]
# ### Every place at once
#
# The picture has 196 places. You could click on each of them at "triangle". The next cell does that for you.
#
# **Predict first.** Much of the picture is empty background. What will the model say there? Write down a word, and a
# number: at how many of the 196 places will it be that word?

# %%
index, L = caption.words.index("triangle"), len(a)
p = look_again(captioner, a.expand(L, -1, -1), [caption.words] * L, [index] * L, torch.eye(L))  # (L, K)
said = [captioner.vocabulary.words[word] for word in p.argmax(1).tolist()]
for shape in sorted(set(said), key=said.count, reverse=True):
    print(f"{shape:9} at {said.count(shape):3} of {L} places")
rows, columns = captioner.encoder.grid
drawings.answers_figure(scene.photo(), [said[columns * row :][:columns] for row in range(rows)], "triangle")

# %% tags=["claims"] jupyter={"source_hidden": true}
assert set(said) == {"circle", "square", "triangle", "star"}, "it always names a shape"
assert said.count("star") > L / 2, "more than half"

# %% [markdown]
# <details><summary>Answer</summary>
#
# It says "star", at 166 places, and the star in the picture covers few of them. "Triangle" it says at 9 places; see
# where they lie. On the empty background there is nothing to name, but it always names a shape. It has no word for "I
# see nothing", so "star" serves. Keep this in mind: a captioner has to say *something*.
#
# </details>

# %% [markdown]
# ## Is it right about other scenes?
#
# One scene proves little. In drawn scenes a program can check each caption. Every scene has two objects to describe.
# The grey shapes, the twigs and the small specks are clutter, which no caption names. A caption is right if it names
# both objects with their sizes, colours, shapes and textures, and says where one is relative to the other. One wrong
# word makes it wrong.
# <!-- source: which no caption names | satlib/data/scenes.py -->
#
# **Predict first.** Take a hundred test scenes; the scene above is one of them. Write down a number: how many captions
# are right in every word?

# %%
hundred = [scenes.scene(f"test-{number:06}") for number in range(100)]
captions = captioner.caption([each.photo() for each in hundred], beam=1)
right = [scenes.exact_match(each.words, one) for one, each in zip(hundred, captions, strict=True)]
print(f"{sum(right)} of {len(right)} captions are right in every word")
wrong = right.index(False)
print(f"the first wrong caption: {captions[wrong].text}")
print(f"a right one:             {hundred[wrong].captions[0]}")
assert sum(right) >= 85, "nearly all of them are right"
plots.attention_figure(hundred[wrong].photo(), captions[wrong].words, captions[wrong].alphas)

# %% [markdown]
# <details><summary>Answer</summary>
#
# The first line above says how many; nearly all of them are right. Look at the wrong one. Is the light in the right
# place at the wrong word? The model can look at the right place and still choose a wrong word. Or it can look at the
# wrong place. Notebook 09 counts both kinds of mistakes.
#
# </details>

# %% [markdown]
# ## Photographs, and what goes wrong
#
# Another captioner comes with satlib, for photographs. It learnt from 6,000 photographs, mostly of people and dogs
# (Flickr8k), with five sentences about each. In its last epochs it also had help: boxes drawn by people told it where
# things are.
# <!-- source: mostly of people and dogs | Hodosh et al., JAIR 2013 -->
# <!-- source: 6,000 photographs | satlib/models/README.md -->
# <!-- source: boxes drawn by people | satlib/models/README.md -->
#
# Here are five photographs that it has never seen. They are not from Flickr8k, but come with scikit-image.
# <!-- source: that it has never seen | satlib/models/README.md -->
#
# **Predict first.** Write down a number: how many of the five captions will be true?

# %%
photographer = Captioner.load(shipped.model())
photographs = {path.stem: images.open_photo(path) for path in demo.photographs()}
described = dict(zip(photographs, photographer.caption(list(photographs.values()), beam=1), strict=True))
for name, each in described.items():
    print(f"{name:16} {'unlike its training photographs' if each.unlike else '':32} {each.text}")
drawings.gallery_figure(
    [(overlay.scaled(photo, 336), described[name].words, (), "") for name, photo in photographs.items()],
    columns=5,
)

# %% [markdown]
# <details><summary>Answer</summary>
#
# We would accept none of them. The astronaut is a woman in an orange suit, not a boy. The cat becomes a person, the
# cup of coffee a dog, the rocket a man in a street. The motorcycle is there, but nobody rides it. The sentences sound
# like Flickr8k, because the model learnt its words there. It has no way to say "I do not know".
#
# satlib has a check for this (`satlib.model.familiarity`). It compares a photograph with the training photographs and warns
# if it is unlike them. Here it warns about three photographs. It does not warn about the astronaut and the motorcycle,
# but their captions are wrong too. A familiar photograph can still get a wrong caption.
#
# </details>
#
# Now look where the model looks. Choose a photograph, move the slider, and click to move the light.

# %%
assert sum(each.unlike for each in described.values()) == 3, "it warns about three photographs"
Scrubber(photographer, photographs)

# %%
plots.attention_figure(photographs["coffee"], described["coffee"].words, described["coffee"].alphas)

# %% [markdown]
# At "dog", the model looks at the cup. A map with a bright spot does not tell you that the word is true.
#
# All captions here are *greedy*: at each step the model takes its most probable word. The slider does the same, so it
# shows the same captions. The command `satlib caption` uses a beam search, which compares several captions (notebook
# 07). It can find another sentence for the same photograph.
# <!-- source: its most probable word | satlib/model/search.py -->
# <!-- source: the same photograph | notebook 07 -->
#
# ## Your own photograph
#
# Put the path of a photograph between the quotes after `MY_PHOTO` and run the cell, or press its button.

# %%
MY_PHOTO = ""  # "holiday/beach.jpg", for example


def show(picture: Image.Image) -> None:
    """Caption a picture, and show where each word looked."""
    found = photographer.caption([picture], beam=1)[0]
    print(found.text, "(unlike its training photographs: expect mistakes)" if found.unlike else "")
    display(Scrubber(photographer, {"your photograph": picture}))


if MY_PHOTO:
    show(images.open_photo(MY_PHOTO))
output = ipywidgets.Output()
upload = ipywidgets.FileUpload(accept="image/*", description="a photograph", multiple=True)


def uploaded(change: dict) -> None:
    """Show what was chosen with the button."""
    output.clear_output()
    chosen = change["new"]  # a tuple of files; in ipywidgets 7, which Colab has, a dict
    with output:
        for file in chosen.values() if isinstance(chosen, dict) else chosen:
            show(images.to_rgb(Image.open(io.BytesIO(file["content"]))))


upload.observe(uploaded, "value")
display(ipywidgets.VBox([upload, output]))

# %% [markdown]
# ## What attention replaces
#
# <!-- index: section 3.1 | the model as a whole: encoder, annotation vectors, decoder, attention | satlib.model.captioner.Captioner | tests/test_captioner.py::TestCaption::test_maps_are_distributions_on_the_grid -->
#
# Earlier captioners, such as Show and Tell (Vinyals et al., 2015), had two parts. An **encoder**, a convolutional
# network, turned the picture into one vector. A **decoder**, a recurrent network, turned the vector into words, one
# after the other.
#
# > **Paper, section 1.** One vector that keeps only the most salient things of a picture works, but loses information
# > that a richer description needs. Features from a lower layer keep this information. But then the model has to be
# > steered to what matters at the moment. Attention does that: it brings a part of the picture forward when it is
# > needed.
#
# So here the encoder stops earlier. It returns not one vector but a grid of them, the **annotation vectors**
# $a_1, \dots, a_L$, one for each place. Before each word $t$ the decoder gives each place a weight $\alpha_{ti}$. The weights are not
# negative and sum to 1. These weights are the light that you moved. The decoder then gets one vector again, the **context
# vector** $\hat{z}_t = \sum_i \alpha_{ti}\, a_i$, but a new one for each word. The picture below shows some of the words.

# %%
assert (caption.alphas >= 0).all()
assert torch.allclose(caption.alphas.sum((1, 2)), torch.ones(1)), "the weights are not negative and sum to 1"
drawings.fixed_vector_figure(scene.photo(), caption.words, caption.alphas, (2, 3, 8, 9))

# %% [markdown]
# ## One vector cannot be two things
#
# <!-- index: claim: one fixed vector cannot serve every word | a mean of places against a look for each word, on scenes and on photographs | satlib.model.attention.NoAttention | tests/test_attention.py::test_without_attention_every_place_weighs_the_same -->
#
# Take a picture with three places, and vectors of two dimensions. The first dimension means "red", the second "star".
# The first place is red, the second is a star, the third is empty. In another picture, the first place is a red star
# and the rest is empty.
#
# **Predict first.** A model without attention gets the mean over the places. Write down both means. Can it tell the
# pictures apart?

# %%
places = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])  # (B, L, D) = (1, 3, 2)
together = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]])  # another picture: a red star at place 1
fixed = attention.NoAttention()
z, also = (fixed(picture, fixed.keys(picture), torch.zeros(1, 4)).z for picture in (places, together))
print("one fixed vector: ", z.tolist(), "and of the other picture", also.tolist())
torch.testing.assert_close(z, places.mean(1))
assert torch.equal(z, also), "the two pictures have the same mean"

look = torch.tensor([[1.0, 0.0, 0.0]])  # alpha: all weight on place 1
z, also = (torch.einsum("bl,bld->bd", look, picture) for picture in (places, together))
print("a look at place 1:", z.tolist(), "and at the other picture", also.tolist())
assert not torch.equal(z, also)

# %% [markdown]
# <details><summary>Answer</summary>
#
# It cannot: the two pictures have the same mean. A look at place 1 tells them apart.
#
# </details>
#
# We built this example so that the mean fails. A mean over more dimensions keeps more, and an encoder can learn to put
# more into it. So we compare trained models. satlib comes with stored scores of models that were trained on the same
# pictures, once with attention and once with the mean in its place. (They were made with `satlib train` and `satlib
# evaluate`.) The photograph models, `flickr8k-lite0` below, use the encoder EfficientNet-Lite0.
# <!-- source: trained on the same pictures | satlib/recipes/scenes-none.toml and satlib/recipes/flickr8k-lite0-none.toml -->
# <!-- source: the encoder EfficientNet-Lite0 | satlib/recipes/flickr8k-lite0-soft.toml -->
#
# **Predict first.** With attention, 96 % of the captions of scenes are right in every word. Write down a number: how
# many are right with the mean? And for photographs: how many points of BLEU-4 does the mean cost? (BLEU-4 compares a
# caption with captions that people wrote. Notebook 07 explains it.)

# %%
measured = {row.model.split(",")[0].removeprefix("satlib: "): row for row in table.rows(shipped.evaluations())}
score = {}
for name, column in (("scenes", "exact match"), ("flickr8k-lite0", "BLEU-4")):
    for kind in ("soft", "none"):
        score[name, kind] = float(measured[f"{name}-{kind}"].figures[column])
    print(
        f"{name:15} {column:12} with attention {score[name, 'soft']:5.1f}   with one vector {score[name, 'none']:5.1f}"
    )
assert score["scenes", "none"] < 50 < 90 < score["scenes", "soft"], "with one vector, most captions are wrong"
assert abs(score["flickr8k-lite0", "soft"] - score["flickr8k-lite0", "none"]) < 2, "the mean is nearly as good"

# %% [markdown]
# <details><summary>Answer</summary>
#
# On scenes a sentence has to say which attribute belongs to which object, and with one vector, most captions
# are wrong. On Flickr8k, scored by BLEU, the mean is nearly as good. Perhaps few words of its captions depend on *where* a thing is.
#
# </details>

# %% [markdown]
# ## The map of the course
#
# Take the notebooks in order. Each says at its top what it needs. Notebooks 01 to 09 have exercises with checks, in
# [exercises/](../exercises/), and this one has "Try it" below.

# %%
drawings.course_map(
    [
        ("Begin", [("00", "look"), ("01", "before images")]),
        ("What goes in", [("02", "features"), ("03", "captions")]),
        ("Attention", [("04", "soft attention"), ("05", "doubly stochastic"), ("06", "hard attention")]),
        ("What comes out", [("07", "decoding, judging"), ("08", "training for real"), ("09", "reading the model")]),
    ]
)

# %% [markdown]
# | | | what it teaches |
# | --- | --- | --- |
# | 00 | [Look](00_look.ipynb) | you are here |
# | 01 | [Attention before images](01_attention_before_images.ipynb) | where attention comes from: a translator that squeezes a sentence into one vector; then attention in general |
# | 02 | [Features](02_features.ipynb) | the encoder: what its layers see, what they forget, and which encoder to choose |
# | 03 | [Captions](03_captions.ipynb) | words, vocabulary, the data sets, and batches without padding |
# | 04 | [Soft attention](04_soft_attention.ipynb) | the decoder, equation by equation; training it; the gate $\beta$ |
# | 05 | [Doubly stochastic](05_doubly_stochastic.ipynb) | a penalty that makes the model look everywhere, and when soft attention is a good approximation of hard attention |
# | 06 | [Hard attention](06_hard_attention.ipynb) | one place at a time: a bound, samples, and how to reduce their variance |
# | 07 | [Decoding and judging](07_decoding_and_judging.ipynb) | from probabilities to a sentence; BLEU, METEOR, CIDEr, and what they miss |
# | 08 | [Training for real](08_training_for_real.ipynb) | GPUs, interruptions, hyperparameter searches; the paper's Table 1 with our rows added |
# | 09 | [Reading the model](09_reading_the_model.ipynb) | what a map explains and what it does not; an explorer |
#
# The [index](INDEX.md) goes the other way: from an equation or a claim of the paper to the cell about it.
#
# If you would like to see the whole system in one place first, read [examples/one_file.py](../examples/one_file.py).
# It has data, encoder, soft and hard attention, loss, training loop, beam search and BLEU in one file of about 350
# lines, without satlib. A test checks that it computes the same as satlib.
# <!-- source: in one file of about 350 lines | examples/one_file.py -->
# <!-- source: it computes the same as satlib | tests/test_one_file.py -->
#
# ## The paper's table
#
# <!-- index: section 5.3 | Table 1 as printed: the rows of Flickr8k | satlib.evaluation.table.rows | tests/test_table.py::test_published_figures_are_as_printed -->
#
# > **Paper, section 5.3.** Table 1 sums up the measurements: on Flickr8k, Flickr30k and COCO the models with attention
# > are at the state of the art in BLEU and METEOR, as single models.
#
# satlib has Table 1 as it is printed (`satlib table`). Here are its rows for Flickr8k. Notebooks 07 and 08 say what
# these scores measure, and put satlib's rows beside them.

# %%
# NBVAL_CHECK_OUTPUT
columns = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR")
print(f"{'Flickr8k':35}", *(f"{column:>7}" for column in columns))
for row in table.rows(()):
    if row.data == "Flickr8k":
        print(f"{row.model:35}", *(f"{row.figures.get(column, '-'):>7}" for column in columns))

# %% [markdown]
# ## Try it
#
# 1. Go back to the first slider. At word 3, "striped", move the light to an empty place. Then do the same at word 5,
#    "circle". How many wrong words can you get into one sentence?
# 2. Caption a photograph of a dog on grass, and one of a plate of food. Which words come back whatever you show it?
# 3. Show the photographs to the wrong model, the captioner of drawn scenes: `Scrubber(captioner, photographs)`. It
#    answers. Do its maps look as sensible as before? What does that say about a good-looking map?
# 4. A mistake to make on purpose: call `plots.attention_figure(scene.photo(), caption.words, captions[0].alphas)`.
#    These maps come from another scene. Does the picture tell you that they do not belong to this one?
# 5. Turn a photograph upside down (`show(photographs["chelsea"].rotate(180))`). Which words stay, and where does the
#    model look?
#
# ## What to remember
#
# - Attention gives the decoder a new view of the picture for each word: a weighted mean of the annotation vectors.
# - Move the light, and the word can change. So the map can affect the choice of the word.
# - The model has to say something, even where there is nothing, and even about photographs unlike its training data.
# - One vector for all words fails on scenes, where a sentence says which attribute belongs to which object. On
#   Flickr8k, measured by BLEU, the mean is nearly as good.
# - A fluent sentence with a bright map can still be wrong.
#
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio: *Show, Attend and Tell: Neural
#   Image Caption Generation with Visual Attention*. ICML 2015. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - O. Vinyals, A. Toshev, S. Bengio, D. Erhan: *Show and Tell: A Neural Image Caption Generator*. CVPR 2015. A
#   captioner with one vector. [arXiv:1411.4555](https://arxiv.org/abs/1411.4555)
# - M. Hodosh, P. Young, J. Hockenmaier: *Framing Image Description as a Ranking Task*. JAIR 47, 2013. Flickr8k.
