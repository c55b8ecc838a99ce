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
# Two minutes: a network describes a picture in a sentence, and for each word you see where in the picture it looked. Then the way
# through the course, and a first lesson in not believing a table.
#
# **You will be able to**
#
# - caption a photograph, yours too, and see where each word looked;
# - say what attention replaces, and why one vector for all words is too little;
# - find your way through the ten notebooks;
# - find out where a wrong figure in a table of results comes from.
#
# **Minutes**: 5 to read, 0.2 to run on two CPU cores. **Memory**: 1.0 GB. **Needs**: nothing, and nothing to download.

# %%
import io

import ipywidgets
import torch
from IPython.display import display
from PIL import Image

from satlib import attention, demo, images, plots, shipped, table
from satlib.captioner import Captioner
from satlib.course import drawings
from satlib.datasets import scenes

# %% [markdown]
# ## A photograph, and where each word looked
#
# <!-- index: claim: every word comes with a map of where it was seen | the maps alpha_t of a generated caption, drawn | satlib.plots.attention_figure | tests/test_plots.py::test_each_word_has_its_map_and_the_end_too -->
#
# The captioner below comes with satlib. It learnt from 6,000 photographs of people and dogs (Flickr8k), five sentences about each. The
# photograph comes with scikit-image, and the captioner has never seen it.
#
# **What do you expect to see?** One picture for each word. Where it keeps its own colours, the network looked while it chose that word;
# what is dimmed it ignored. The thin line encloses what has at least half of the map's maximum. $\beta$ below says how much of what it saw it let in.

# %%
captioner = Captioner.load(shipped.model())
photo = images.open_photo(demo.photographs()[0])
caption = captioner.caption([photo])[0]
print(caption.text)
plots.attention_figure(photo, caption.words, caption.alphas, caption.betas)

# %% [markdown]
# Read it twice. First as a sentence: it is good English, some of it is right, and some is invented. A woman in a flight suit is described with
# the words of a world of people and dogs outdoors, because the model has no others, and no way to say "I do not know".
#
# Then as pictures. At "boy" the light is on the face, at "jacket" on the suit. How a network learns where to look, from whole photographs and whole
# sentences alone, is the subject of notebook 04. This captioner had help: in the last two of its ten epochs, boxes drawn by people told it where the things
# are that a phrase names. Here is a drawn scene, captioned by a model that had no such help:
#
# ![Two drawn stars. At "striped purple star" the left star is lit, at "big blue star" the right one.](../docs/attention.png)
#
# ## Your own photograph
#
# Put a path between the quotes, or press the button. With neither, this cell does nothing.

# %%
MY_PHOTO = ""  # "holiday/beach.jpg", for example


def show(picture: Image.Image) -> None:
    """Caption a picture, and draw where each word looked."""
    found = captioner.caption([picture])[0]
    print(found.text)
    display(plots.attention_figure(picture, found.words, found.alphas, found.betas))


if MY_PHOTO:
    show(images.open_photo(MY_PHOTO))
output = ipywidgets.Output()
upload = ipywidgets.FileUpload(accept="image/*", description="a photograph", multiple=True)


def uploaded(change: dict) -> None:
    """Show what was chosen with the button."""
    output.clear_output()
    chosen = change["new"]  # the files; from ipywidgets 7, which Colab has, by their names
    with output:
        for file in chosen.values() if isinstance(chosen, dict) else chosen:
            show(images.to_rgb(Image.open(io.BytesIO(file["content"]))))


upload.observe(uploaded, "value")
display(ipywidgets.VBox([upload, output]))

# %% [markdown]
# ## A world where we know what is right
#
# Whether a caption of a photograph is right is for people to say. So the course has a second world: drawn scenes of two objects, with
# clutter around them. There a program can tell whether a caption names both objects, their sizes, colours, shapes and textures, and how
# they lie to each other, and it knows the place of each object to the pixel. Another captioner, trained on 3,300 such scenes in minutes, is
# asked about twelve that it has never seen.
#
# **What do you expect to see?** Most captions right, down to the last attribute. In the maps, the light goes from one object to
# the other in the middle of the sentence.

# %%
scene_captioner = Captioner.load(shipped.model("scenes-soft"))
twelve = [scenes.scene(f"test-{number:06}") for number in range(12)]
captions = scene_captioner.caption([scene.photo() for scene in twelve])
right = [scenes.exact_match(caption.words, scene) for scene, caption in zip(twelve, captions, strict=True)]
print(f"{sum(right)} of {len(right)} captions are right in every word")
assert sum(right) >= 7  # 10.6 on average; 7 or fewer once in many hundred samples

first = right.index(True)
scene, caption = twelve[first], captions[first]
print(f"the captioner: {caption.text}")
print(f"a person:      {scene.captions[0]}")
plots.attention_figure(scene.photo(), caption.words, caption.alphas, caption.betas)

# %% [markdown]
# ## What attention replaces
#
# <!-- index: section 3.1 | the model as a whole: encoder, annotation vectors, decoder, attention | satlib.captioner.Captioner | tests/test_captioner.py::TestCaption::test_maps_are_distributions_on_the_grid -->
#
# Captioners before this one had two parts. An **encoder**, a convolutional network, turned the picture into one vector. A
# **decoder**, a recurrent network, turned the vector into words, one after the other.
#
# > **Paper, section 1.** Boiling a picture down to its most salient things in one vector works, and loses what a richer description
# > would need. Features from a lower layer keep it; but then the model has to be steered to what matters at each moment.
# > That is attention: parts of the picture come forward when they are needed.
#
# So the encoder stops earlier and hands over not one vector but a grid of them, the **annotation vectors** $a_1, \dots, a_L$, one for
# each place. Before each word $t$ the decoder weighs the places: $\alpha_{ti}$, positive and together 1. What it is given to see is one
# vector again, the **context vector** $\hat{z}_t = \sum_i \alpha_{ti}\, a_i$, but a new one for each word.

# %%
shown = [index for index, number in enumerate(scenes.mentions(caption.words, scene)) if number is not None]
half = len(shown) // 2
drawings.fixed_vector_figure(
    scene.photo(), caption.words, caption.alphas, [*shown[half - 2 : half], shown[-2], shown[-1]]
)

# %% [markdown]
# ## One vector cannot be two things
#
# <!-- index: claim: one fixed vector cannot serve every word | a mean of places against a look for each word, on scenes and on photographs | satlib.attention.NoAttention | tests/test_attention.py::test_without_attention_every_place_weighs_the_same -->
#
# Three places with vectors of two dimensions, on paper. Say that the first dimension is "red" and the second "star": place 1 is
# red, place 2 is a star, place 3 is empty. The mean over the places says that there is something red and something with points, but not
# whether it is a red star. A look at each place in turn says it.

# %%
a = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]])  # (B, L, D) = (1, 3, 2)
together = torch.tensor([[[1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]])  # another picture: a red star at place 1
fixed = attention.NoAttention()
z, also = (fixed(picture, fixed.keys(picture), torch.zeros(1, 4)).z for picture in (a, together))
print("one fixed vector: ", z.tolist(), "and of the other picture", also.tolist())
torch.testing.assert_close(z, a.mean(1))
torch.testing.assert_close(z, also)  # two different pictures, one vector: the decoder cannot tell them apart

look = torch.tensor([[1.0, 0.0, 0.0]])  # alpha: all weight on place 1
z, also = (torch.einsum("bl,bld->bd", look, picture) for picture in (a, together))
print("a look at place 1:", z.tolist(), "and at the other picture", also.tolist())
assert not torch.equal(z, also)

# %% [markdown]
# That was a picture made to make the point: a mean over more dimensions keeps more. So how much does it matter when the encoder is trained too and may
# put whatever it likes into the mean? The results that come with satlib say it: the same model, trained on the same
# pictures with attention and with the mean in its place.
#
# **What do you expect to see?** On scenes a gulf. On photographs, think first: how often does a sentence such as "a dog runs through
# the grass" hang on *which* place is green?

# %%
measured = {row.model.split(",")[0].removeprefix("satlib: "): row for row in table.rows(shipped.evaluations())}
for name, column in (("scenes", "exact match"), ("flickr8k-lite0", "BLEU-4")):
    with_attention, without = (float(measured[f"{name}-{kind}"].figures[column]) for kind in ("soft", "none"))
    print(f"{name:15} {column:12} with attention {with_attention:5.1f}   with one vector {without:5.1f}")
    if name == "scenes":
        assert with_attention > without + 50

# %% [markdown]
# Where a sentence has to say which thing is what, one vector for all words fails. For the short captions of Flickr8k, scored by BLEU, the mean
# vector says nearly all that is asked. Both are true, and a course that showed only the first would sell you something.
#
# ## The map of the course
#
# Take the notebooks in order; each says at its top what it needs.

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
# | 01 | [Attention before images](01_attention_before_images.ipynb) | where attention comes from: a translator that has to squeeze a sentence into one vector, and fails as sentences grow; attention in general |
# | 02 | [Features](02_features.ipynb) | a convolutional network as a bag of places: what its layers see, what they forget, which encoder to take |
# | 03 | [Captions](03_captions.ipynb) | words, vocabulary, the data sets, and batches of one length |
# | 04 | [Soft attention](04_soft_attention.ipynb) | the decoder, equation by equation; training it; the gate $\beta$ |
# | 05 | [Doubly stochastic](05_doubly_stochastic.ipynb) | a penalty that makes it look everywhere once, and why soft attention is nearly the right thing |
# | 06 | [Hard attention](06_hard_attention.ipynb) | one place at a time: a bound, samples, and how to tame their noise |
# | 07 | [Decoding and judging](07_decoding_and_judging.ipynb) | from probabilities to a sentence; BLEU, METEOR, CIDEr, and what they miss |
# | 08 | [Training for real](08_training_for_real.ipynb) | GPUs, interruptions, searches; the paper's Table 1 with rows of ours |
# | 09 | [Reading the model](09_reading_the_model.ipynb) | what a map explains and what it does not; an explorer to play with |
#
# The [index](INDEX.md) goes the other way: from an equation or a claim of the paper to the cell that treats it.
#
# If you would rather see the whole system at once first, read [examples/one_file.py](../examples/one_file.py): data, encoder, soft and hard attention, loss,
# training loop, beam search and BLEU in one file of 350 lines that does not use satlib. A test checks that it computes the same as satlib.
#
# ## How to read a table
#
# <!-- index: section 5.3 | Table 1 read right, and how it is read wrong | satlib.table.rows | tests/test_table.py::test_published_figures_are_as_printed -->
#
# > **Paper, section 5.3.** Table 1 sums up the measurements: on Flickr8k, Flickr30k and COCO the models with attention are at the state of
# > the art in BLEU and METEOR, as single models.
#
# A summary of the paper on the web gives its figures for Flickr8k: soft attention 63, 41, 27 and 17.7 in BLEU-1 to BLEU-4 and 27.7 in METEOR,
# hard attention 65.6, 42.4, 29.9, 19.5 and 31.4. They look like results: they fall as they should, and hard beats soft as it should. They are
# wrong. satlib has Table 1 as it is printed (`satlib table`). Let us ask it where each of these figures really stands.
#
# **What do you expect to see?** Figures are seldom invented. Each should stand somewhere in the table.

# %%
# NBVAL_CHECK_OUTPUT
COLUMNS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR")
SUMMARY = {
    ("Flickr8k", "Soft-Attention"): "63 41 27 17.7 27.7",
    ("Flickr8k", "Hard-Attention"): "65.6 42.4 29.9 19.5 31.4",
    ("Flickr30k", "Soft-Attention"): "66.3 42.3 27.7 18.3 17.1",
    ("Flickr30k", "Hard-Attention"): "66.9 43.9 28.8 19.1 19.9",
    ("COCO", "Soft-Attention"): "64.2 45.1 30.4 20.3 20.41",
    ("COCO", "Hard-Attention"): "66.6 46.1 32.9 23.04 25.0",
}
published = [row for row in table.rows(()) if not row.ours]
stands: dict[tuple[str, str], list[tuple[str, str]]] = {}
correct = 0
for (data, model), line in SUMMARY.items():
    rows = [row for row in published if row.data == data]
    truth = next(row for row in rows if row.model == model).figures
    for column, value in zip(COLUMNS, line.split(), strict=True):
        found = [(row.model, c) for row in rows for c in COLUMNS if row.figures.get(c) == value]
        assert found, f"{value} stands nowhere in the table of {data}"
        stands.setdefault((data, model), []).append(found[0])
        correct += truth[column] == value
        if data == "Flickr8k":
            print(
                f"{model} {column}: said {value:>5}, printed {truth[column]:>5}; {value:>5} is {' of '.join(found[0][::-1])}"
            )
print(f"{correct} of {sum(map(len, stands.values()))} figures are in their place")
assert correct == 2

# %%
drawings.cells_figure(
    [row for row in published if row.data == "Flickr8k"],
    COLUMNS,
    {f"said to be {model}": set(stands["Flickr8k", model]) for model in ("Soft-Attention", "Hard-Attention")},
)

# %% [markdown]
# No ring is where it belongs: they run along other people's rows and slip down a row at the right. In the text that a program takes out of the PDF, the table stands column by column, and empty
# cells leave no trace. Whoever reads such a list as if it stood row by row gives soft attention the figures of other people's models. Three
# habits would have caught it, without the paper at hand:
#
# 1. **Ask what a figure can be.** A METEOR of 31.4 would lie 11 points above everything else of that time on Flickr8k.
# 2. **Ask for the whole row.** No model has these five figures together.
# 3. **Ask what the figure is of.** BLEU without brevity penalty is not the BLEU of the COCO tools; other splits are other exams. Notebooks 07 and 08
#    compare like with like.

# %%
flickr8k = {row.model: row.figures for row in published if row.data == "Flickr8k"}
greatest = max(float(figures["METEOR"]) for figures in flickr8k.values() if "METEOR" in figures)
assert float(SUMMARY["Flickr8k", "Soft-Attention"].split()[-1]) > greatest + 7  # habit 1
assert all(" ".join(figures.values()) not in SUMMARY.values() for figures in flickr8k.values())  # habit 2
print("Flickr8k as the paper prints it:")
for model in ("Soft-Attention", "Hard-Attention"):
    print(f"  {model}:", ", ".join(f"{column} {flickr8k[model][column]}" for column in COLUMNS))

# %% [markdown]
# ## Try it
#
# 1. Caption a photograph of a dog on grass, and one of a plate of food. Which words come back whatever you show it?
# 2. Ask the wrong model: `scene_captioner.caption([photo])`, the captioner of drawn scenes about the photograph. It answers, and its maps look as
#    sensible as ever. What does that say about a good-looking map?
# 3. A mistake to make on purpose: give `plots.attention_figure` the maps of another caption of the same length. Does the picture
#    tell you that they do not belong together?
# 4. Turn the photograph upside down (`photo.rotate(180)`). What stays of the sentence, and where do its words look?
#
# ## What to remember
#
# - Attention gives the decoder a new view of the picture for each word: a weighted mean of what the places hold.
# - Where to look can be learnt from sentences alone, as on the drawn scenes. On photographs, boxes in training give better maps.
# - One vector for all words cannot say which thing is what. Where no word depends on that, it is nearly as good.
# - A fluent sentence is no evidence, and neither is a plausible figure.
#
# ## References
#
# - K. Xu, J. Ba, R. Kiros, K. Cho, A. Courville, R. Salakhutdinov, R. Zemel, Y. Bengio: *Show, Attend and Tell: Neural Image Caption Generation with
#   Visual Attention*. ICML 2015. [arXiv:1502.03044](https://arxiv.org/abs/1502.03044)
# - O. Vinyals, A. Toshev, S. Bengio, D. Erhan: *Show and Tell: A Neural Image Caption Generator*. CVPR 2015. A captioner with one vector.
#   [arXiv:1411.4555](https://arxiv.org/abs/1411.4555)
# - M. Hodosh, P. Young, J. Hockenmaier: *Framing Image Description as a Ranking Task*. JAIR 47, 2013. Flickr8k.
