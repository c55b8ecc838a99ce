"""Generating the captions of a split, scoring them, and storing both (section 5).

Captions are generated without teacher forcing: the decoder never sees the references. An
evaluation is a JSON file:

    recipe, data, split    the whole recipe, decoding as it was done; what was captioned
    metrics, captions      the scores by name, the captions by image id
    statistics             the numbers of each image that the scores are computed from
                           (`satlib.evaluation.statistics`)
    images, notes          the number of images, and a line for each score that is missing
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from satlib.data import scenes
from satlib.data.batches import read_batches
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.features import Reader
from satlib.data.text import tokenise
from satlib.errors import SatlibError
from satlib.evaluation import inventions, maps, metrics, statistics
from satlib.files import read_json, write_json
from satlib.model.captioner import Caption, Captioner

BATCH = 32  # images that are captioned at once


def images_of(data: CaptionSet, split: str) -> tuple[Example, ...]:
    """The examples of a split, which must have some."""
    examples = data.split(split)
    if not examples:
        raise SatlibError(
            f"{data.name} has no images in its {split} split; choose another with --split"
        )
    return examples


def generate(
    captioner: Captioner,
    reader: Reader,
    examples: Sequence[Example],
    beam: int | None = None,
    length_normalisation: float | None = None,
    progress: bool = True,
) -> dict[str, Caption]:
    """The best caption of each image, by image id."""
    captions = {}
    title = "captions" if progress else ""
    with captioner.evaluating():
        for batch, images in read_batches(reader, examples, BATCH, title):
            hypotheses = captioner.hypotheses(images, beam, length_normalisation)
            for example, best_first in zip(batch, hypotheses, strict=True):
                captions[example.image_id] = captioner.read(best_first[0])
    return captions


def quick_bleu(captions: Mapping[str, Caption], examples: Sequence[Example]) -> float:
    """Corpus BLEU-4 in percent, of satlib's own words: it selects the best epoch."""
    spoken = {}
    references = {}
    for example in examples:
        spoken[example.image_id] = " ".join(captions[example.image_id].words)
        references[example.image_id] = [" ".join(tokenise(line)) for line in example.references]
    return metrics.bleu(spoken, references)["BLEU-4"]


def evaluate(
    captioner: Captioner,
    data: CaptionSet,
    reader: Reader,
    split: str = "test",
    beam: int | None = None,
    length_normalisation: float | None = None,
    progress: bool = True,
    look: str | None = None,
) -> dict[str, Any]:
    """Caption a split and score the captions: an evaluation.

    `reader` reads the encoder's inputs or annotation vectors by image id. Beam width, length
    normalisation and `look`, the context vector of hard attention, are the recipe's unless they are
    given.

    Raises:
        SatlibError: the split has no images, or `look` is given for a model without hard attention.
    """
    examples = images_of(data, split)
    with captioner.looking(look):
        captions = generate(captioner, reader, examples, beam, length_normalisation, progress)

    # An evaluation says how its captions were decoded, not how the recipe would have done it.
    options = {"beam": beam, "length_normalisation": length_normalisation, "look": look}
    given = {name: value for name, value in options.items() if value is not None}
    decoding = msgspec.structs.replace(captioner.recipe.decoding, **given)
    recipe = msgspec.structs.replace(captioner.recipe, decoding=decoding)

    columns = maps.sharpness(captions[example.image_id] for example in examples)
    # Without attention all maps are even, and an even map has no peak.
    if data.name == "scenes" and recipe.decoder.attention != "none":
        columns["named words"] = []
        columns["peak"] = []
        for example in examples:
            words = maps.measure_all([example], captions)
            hits = sum(word.values["peak"] for word in words)
            columns["named words"].append(float(len(words)))
            columns["peak"].append(hits)

    texts = {example.image_id: captions[example.image_id].text for example in examples}
    scored = score(texts, data, split, columns)
    return {"recipe": msgspec.to_builtins(recipe), **scored}


def score(
    captions: Mapping[str, str],
    data: CaptionSet,
    split: str,
    columns_of_maps: metrics.Columns | None = None,
) -> dict[str, Any]:
    """An evaluation of captions by image id, whoever wrote them, without a recipe.

    Raises:
        SatlibError: the captions are not those of the split's images.
    """
    examples = images_of(data, split)
    references = {example.image_id: example.references for example in examples}
    columns, notes = statistics.measure(captions, references)

    # Of a scene everything is known; of a photograph, only what people said.
    if data.name == "scenes":
        columns["exact match"] = []
        for image_id, text in captions.items():
            right = scenes.exact_match(text, scenes.scene(image_id))
            columns["exact match"].append(float(right))
    else:
        try:
            columns |= inventions.measure(captions, references)
        except SatlibError as error:
            notes.append(str(error))
    # Captions that another captioner wrote have no maps.
    columns |= columns_of_maps or {}

    # The movement of maps, where each caption is a single word.
    for name in [name for name, values in columns.items() if set(values) == {None}]:
        del columns[name]
        notes.append(f"{name} is missing: no caption has it")

    return {
        "data": data.name,
        "split": split,
        "images": len(captions),
        "notes": notes + statistics.unknown(columns),
        "metrics": statistics.whole(columns, list(captions.values())),
        "captions": dict(captions),
        "statistics": statistics.stored(columns, list(captions)),
    }


class _Result(msgspec.Struct):
    """A caption in the list that COCO's evaluation server takes."""

    image_id: int | str
    caption: str


def read_captions(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The earlier evaluation that a file holds, and its captions.

    Of a file {"image id": "caption", ...}, or of a list of COCO's results: {} and the captions, by
    the ids or the numbers of the images (`by_image_id`).

    Raises:
        SatlibError: the file is missing, is none of them, or has two captions of an image.
    """
    form = (
        'an evaluation of satlib, {"image id": "caption", ...} or COCO\'s results, '
        '[{"image_id": 1, "caption": "..."}, ...]'
    )
    content = read_json(path, dict[str, Any] | list[_Result], form)
    if isinstance(content, list):
        captions = {str(result.image_id): result.caption for result in content}
        if len(captions) < len(content):
            raise SatlibError(f"{path} has two captions of one image; keep one of each image")
        return {}, captions

    # An image may be called "captions", but its caption is not a dict.
    if isinstance(content.get("captions"), dict):
        return content, content["captions"]
    return {}, read_json(path, dict[str, str], form)


def by_image_id(captions: Mapping[str, str], examples: Sequence[Example]) -> dict[str, str]:
    """Captions by image ids, of captions by ids or by the numbers of COCO's results.

    A number is the one of COCO's files of captions, or else what the image's name consists of: 42
    of "val2014/COCO_val2014_000000000042.jpg" and of "42.jpg". What belongs to no image stays.

    Raises:
        SatlibError: two captions belong to one image.
    """
    ids = {}
    for example in examples:
        digits = re.fullmatch(r"(?:COCO_\w+_)?(\d+)", PurePosixPath(example.image_id).stem)
        number = example.number or (str(int(digits[1])) if digits else "")
        if number:
            ids[number] = example.image_id
    # An image may be called "42" itself.
    ids |= {example.image_id: example.image_id for example in examples}

    found = {ids.get(name, name): text for name, text in captions.items()}
    if len(found) < len(captions):
        raise SatlibError("an image has two captions, one by its name, one by its number; keep one")
    return found


def save(evaluation: Mapping[str, Any], run: Path) -> Path:
    """Write an evaluation into its run's folder: -> the file's path."""
    path = run / f"evaluation-{evaluation['split']}.json"
    write_json(path, evaluation)
    return path


def read(path: Path) -> dict[str, Any]:
    """A stored evaluation.

    Raises:
        SatlibError: the file is missing, or is not an evaluation.
    """
    advice = "create it again with `satlib evaluate`"
    evaluation = read_json(path, dict[str, Any], "an evaluation", advice)
    if not {"data", "split", "metrics", "statistics"} <= evaluation.keys():
        raise SatlibError(f"{path} is not an evaluation; {advice}")
    return evaluation
