"""Does attention fall on what a phrase names? Captions of photographs compared with Flickr30k Entities (section 5.4).

Two kinds of captions are measured. In the true ones, the decoder is given the reference's words (teacher forcing), and the map of
each phrase's last word, usually its noun, is compared with the boxes of the phrase. In generated ones, a word is measured if
it is the last word of some phrase that people wrote about the photograph, and compared with the boxes of all such phrases.
The measures are those of `pointing`. Beside each are the same measures of an even map, of the centre of the picture, of the mean map of
the caption, which ignores the word, and of the best single cell, which is the most that the grid allows.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from satlib.data.caption_set import CaptionSet, Example
from satlib.data.entities import Entities
from satlib.data.features import Reader, read_ahead
from satlib.data.text import END, tokenise
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, pointing
from satlib.evaluation.pointing import CENTRE, Box
from satlib.files.progress import progress_bar
from satlib.model.captioner import Caption, Captioner

MASS = ("mass", "mass even", "mass mean map", "mass best cell")
PEAK = ("peak", "peak centre", "peak mean map", "peak best cell")
SIZES = {
    "below 10 %": 0.1,
    "10 to 40 %": 0.4,
    "above 40 %": math.inf,
}  # the area of the boxes, as a share of the picture
BATCH = 16  # images: five captions of each are in memory, with the probability of every word


@dataclass(frozen=True)
class Named:
    """A word of a caption and the boxes of what it names.

    Attributes:
        index: of the word in the caption.
        kinds: of what it names, such as people or animals; usually one.
        boxes: as fractions of what the encoder sees.
    """

    index: int
    kinds: tuple[str, ...]
    boxes: tuple[Box, ...]


class Photo(NamedTuple):
    """What `Entities` needs to know of a photograph: its file name, the encoder's view, and its file's size if that matters."""

    image_id: str
    view: str = "whole"
    size: tuple[int, int] | None = None

    @classmethod
    def of(cls, data: CaptionSet, example: Example, view: str) -> "Photo":
        """The photograph of an example; its file is opened for the view "crop" alone, which depends on the file's size."""
        return cls(example.image_id, view, None if view == "whole" else data.photo(example).size)


@dataclass(frozen=True)
class Measured:
    """A named word with the measures of its map, 0 to 1, by the names in MASS and PEAK.

    caption: has the words and the maps. Without attention, all maps are even and have no peak, and PEAK is left out.
    """

    image_id: str
    caption: Caption
    named: Named
    measures: Mapping[str, float]


def measure(image_id: str, captions: Sequence[tuple[Caption, Sequence[Named]]], peaked: bool = True) -> list[Measured]:
    """Measure the named words of an image's captions.

    Args:
        image_id: kept in the results.
        captions: each with its named words.
        peaked: whether the maps have a peak; False for a model without attention.
    """
    measured, targets = [], {}
    for caption, names in captions:
        if not names:
            continue
        maps = caption.alphas[: len(caption.words)].cpu()
        mean = maps.mean(0)
        peaks = pointing.peaks(torch.stack([mean, *(maps[named.index] for named in names)])) if peaked else None
        for row, named in enumerate(names, 1):
            target = targets.get(named.boxes) or pointing.Target.of(named.boxes, tuple(mean.shape))
            targets[named.boxes] = target  # the captions of an image share most of their boxes
            masses = target.mass(maps[named.index]), target.area(), target.mass(mean), target.best_mass()
            measures = dict(zip(MASS, masses, strict=True))
            if peaks is not None:
                hits = target.peak(peaks[row]), target.peak(CENTRE), target.peak(peaks[0]), target.best_peak()
                measures |= zip(PEAK, hits, strict=True)
            measured.append(Measured(image_id, caption, named, measures))
    return measured


def named_in_reference(entities: Entities, photo: Photo, reference: str, language: str) -> list[Named] | None:
    """The last word of each phrase of a reference that has boxes; None if Entities does not have the reference."""
    sentence = entities.sentence(photo.image_id, reference, photo.view, photo.size, language)
    if sentence is None:
        return None
    return [Named(phrase.end - 1, phrase.kinds, phrase.boxes) for phrase in sentence.phrases if phrase.boxes]


def named_in_caption(entities: Entities, photo: Photo, words: Sequence[str]) -> list[Named]:
    """The words of a generated caption that end a phrase that people wrote about the photograph.

    The boxes are those of all phrases of the photograph's captions with that last word.
    """
    boxes: dict[str, dict[Box, None]] = defaultdict(dict)  # as ordered sets
    kinds: dict[str, dict[str, None]] = defaultdict(dict)
    for sentence in entities.sentences(*photo):
        for phrase in sentence.phrases:
            if phrase.boxes:
                head = sentence.words[phrase.end - 1]
                boxes[head] |= dict.fromkeys(phrase.boxes)
                kinds[head] |= dict.fromkeys(phrase.kinds)
    return [Named(i, tuple(kinds[word]), tuple(boxes[word])) for i, word in enumerate(words) if word in boxes]


@torch.inference_mode()
def forced(captioner: Captioner, batch: Tensor, references: Sequence[Sequence[str]]) -> list[list[Caption]]:
    """The maps of true captions, by teacher forcing; words outside the vocabulary are unknown words, as in training.

    Args:
        captioner: hard attention passes on what the recipe's `decoding.look` says.
        batch: B images (B, 3, 224, 224) or their annotation vectors (B, L, D).
        references: the raw captions of each image.

    Returns:
        A caption for each reference, with its own words, the map of the end mark last, and log p(y|a).
    """
    captioner.eval()
    a = captioner.annotations(batch.to(captioner.device))
    vocabulary = captioner.vocabulary
    rows = [(image, reference) for image, its in enumerate(references) for reference in its]
    ids = [[*vocabulary.encode(reference), END] for _, reference in rows]
    made: list[list[Caption]] = [[] for _ in references]
    if not rows:
        return made
    padded = pad_sequence([torch.tensor(each) for each in ids], True, END).to(captioner.device)
    output = captioner.decoder(a[torch.tensor([image for image, _ in rows], device=a.device)], padded)
    scores = output.logits.log_softmax(2).gather(2, padded.unsqueeze(2)).squeeze(2).cpu()
    alphas, betas = output.alphas.float().cpu(), output.betas.float().cpu()
    for row, (image, reference) in enumerate(rows):
        length = len(ids[row])  # what follows is padding, which no earlier word depends on
        made[image].append(
            Caption(
                tokenise(reference, vocabulary.language),
                float(scores[row, :length].sum()),
                alphas[row, :length].view(length, *captioner.encoder.grid),
                betas[row, :length],
                vocabulary.language,
            )
        )
    return made


@dataclass(frozen=True)
class Grounding:
    """What was measured on a split.

    Attributes:
        true: the named words of the true captions.
        generated: those of the generated captions.
        maps: of the true captions, end marks included: "entropy share", the maps' entropy in percent of ln L, and "movement", the
            total variation distance between the maps of consecutive words, 0 to 1.
        counts: "images" with annotations and "images without annotations"; "references" found in Entities and "references
            not found".
    """

    true: list[Measured]
    generated: list[Measured]
    maps: dict[str, float]
    counts: dict[str, int]


def ground(
    captioner: Captioner,
    data: CaptionSet,
    reader: Reader,
    entities: Entities,
    split: str = "test",
    beam: int | None = None,
    progress: bool = True,
) -> Grounding:
    """Measure the true and the generated captions of a split.

    Args:
        captioner: a trained captioner.
        data: the caption set.
        reader: reads the encoder's inputs or annotation vectors by image id.
        entities: the boxes.
        split: the split to measure.
        beam: the beam width of the generated captions; by default the recipe's.
        progress: show progress bars.

    Raises:
        SatlibError: the split has no images, Entities has none of them or none of their captions, or is damaged.
    """
    everything = evaluate.images_of(data, split)
    covered = set(entities.covered(example.image_id for example in everything))
    examples = [example for example in everything if example.image_id in covered]
    photos = {example.image_id: Photo.of(data, example, captioner.view) for example in examples}
    peaked = captioner.recipe.decoder.attention != "none"
    made = evaluate.generate(captioner, reader, examples, beam, progress=progress)
    true, captions = _true(captioner, reader, entities, examples, photos, progress)
    if not captions:
        raise SatlibError(
            f"{entities.path} has none of the captions of {data.name} {split}; are these the annotations of this data set?"
        )
    generated = [
        measured
        for image_id, caption in made.items()
        for measured in measure(
            image_id, [(caption, named_in_caption(entities, photos[image_id], caption.words))], peaked
        )
    ]
    figures, _ = evaluate.maps(captions)
    references = sum(len(example.references) for example in examples)
    return Grounding(
        true,
        generated,
        {
            "entropy share": 100 * figures["map entropy"] / math.log(math.prod(captioner.encoder.grid)),
            "movement": figures["map movement"],
        },
        {
            "images": len(examples),
            "images without annotations": len(everything) - len(examples),
            "references": len(captions),
            "references not found": references - len(captions),
        },
    )


def _true(
    captioner: Captioner,
    reader: Reader,
    entities: Entities,
    examples: Sequence[Example],
    photos: Mapping[str, Photo],
    progress: bool,
) -> tuple[list[Measured], list[Caption]]:
    """The named words of the true captions of some images, and these captions, as far as Entities has them."""
    measured, captions = [], []
    peaked = captioner.recipe.decoder.attention != "none"
    batches = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    inputs = read_ahead(lambda batch: reader.read([example.image_id for example in batch]), batches)
    with progress_bar(total=len(examples), unit="img", desc="true captions", show=progress) as bar:
        for batch, vectors in zip(batches, inputs, strict=True):
            known = [_known(entities, photos[example.image_id], example, captioner) for example in batch]
            looked = forced(captioner, vectors, [list(references) for references in known])
            for example, references, its in zip(batch, known, looked, strict=True):
                measured += measure(example.image_id, list(zip(its, references.values(), strict=True)), peaked)
                captions += its
            bar.update(len(batch))
    return measured, captions


def _known(entities: Entities, photo: Photo, example: Example, captioner: Captioner) -> dict[str, list[Named]]:
    """The references of an image that Entities has, with their named words; of two equal references, one."""
    named = {
        reference: named_in_reference(entities, photo, reference, captioner.vocabulary.language)
        for reference in example.references
    }
    return {reference: names for reference, names in named.items() if names is not None}
