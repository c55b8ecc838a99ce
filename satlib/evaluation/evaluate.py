"""Generating the captions of a split, scoring them, and saving both (section 5).

Captions are always generated without teacher forcing: the decoder never sees the reference words.
"""

import contextlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from pycocoevalcap.bleu.bleu import Bleu

from satlib.data import scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.data.features import Reader, read_ahead
from satlib.data.text import tokenise
from satlib.errors import SatlibError
from satlib.evaluation import inventions, maps, metrics, statistics
from satlib.files.atomic import write_json
from satlib.files.progress import progress_bar
from satlib.files.reading import Size, read_json
from satlib.model.captioner import Caption, Captioner
from satlib.recipe import Recipe

BATCH = 32
REWARD_NAMES = {
    "cider": "CIDEr-D",
    "bleu1": "BLEU-1",
    "bleu4": "BLEU-4",
}  # by the recipe's [reward]
_OF_MAPS = ("map entropy", "map movement", "pointing", "pointing strict", "pointing by chance")


def generate(
    captioner: Captioner,
    reader: Reader,
    examples: Sequence[Example],
    beam: int | None = None,
    length_normalisation: float | None = None,
    progress: bool = True,
) -> dict[str, Caption]:
    """The best caption of each image, by image id. See `evaluate` for the arguments."""
    batches = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    captions = {}
    bar = progress_bar(total=len(examples), unit="img", desc="captions", show=progress)
    with bar:
        inputs = read_ahead(lambda batch: reader.read([example.image_id for example in batch]), batches)
        for batch, images in zip(batches, inputs, strict=True):
            hypotheses = captioner.hypotheses(images, beam, length_normalisation)
            for example, best_first in zip(batch, hypotheses, strict=True):
                captions[example.image_id] = captioner.read(best_first[0])
            bar.update(len(batch))
    return captions


def images_of(data: CaptionSet, split: str) -> tuple[Example, ...]:
    """The examples of a split.

    Raises:
        SatlibError: the split has no images.
    """
    examples = data.split(split)
    if not examples:
        raise SatlibError(f"{data.name} has no images in its {split} split; choose another with --split")
    return examples


def quick_bleu(captions: Mapping[str, Caption], examples: Sequence[Example]) -> float:
    """Corpus BLEU-4 in percent with satlib's tokeniser, which needs no Java: used to select the best epoch."""
    references = {
        example.image_id: [" ".join(tokenise(reference)) for reference in example.references] for example in examples
    }
    with contextlib.redirect_stdout(io.StringIO()):
        score, _ = Bleu(4).compute_score(
            references, {example.image_id: [" ".join(captions[example.image_id].words)] for example in examples}
        )
    return 100 * score[3]


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
    """Caption a split and score the captions; `satlib evaluate` writes the result and `satlib table` reads it.

    Args:
        captioner: a trained captioner.
        data: the caption set.
        reader: reads the encoder's inputs or annotation vectors by image id.
        split: the split to caption.
        beam: the beam width; by default the recipe's.
        length_normalisation: by default the recipe's.
        progress: show a progress bar.
        look: the context vector of hard attention, "expected", "probable" or "sample"; by default the recipe's.

    Raises:
        SatlibError: the split has no images, or `look` is given for a model without hard attention.
    """
    examples = images_of(data, split)
    with captioner.looking(look):
        captions = generate(captioner, reader, examples, beam, length_normalisation, progress)
    options = settings(captioner, data, split, beam, length_normalisation, look)
    return of_captions(captions, examples, options)


def of_captions(
    captions: Mapping[str, Caption], examples: Sequence[Example], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The evaluation of generated captions, as `evaluate` gives it.

    Args:
        captions: by image id.
        examples: the images.
        settings: the model, the data and the decoding options (`settings`).
    """
    texts = {example.image_id: captions[example.image_id].text for example in examples}
    lines = {image_id: " ".join(captions[image_id].words) for image_id in texts}
    scores = metrics.score(lines, {example.image_id: example.references for example in examples})
    of_maps, map_columns = maps.entropy_and_movement(captions[image_id] for image_id in texts)
    invented, invention_columns = _inventions(texts, examples, settings["data"])
    figures, columns = dict(scores.values) | invented | of_maps, scores.statistics | invention_columns | map_columns
    if settings["data"] == "scenes":
        exact = _exact_matches(texts)
        columns |= exact
        figures["exact match"] = 100 * sum(exact["exact match"]) / len(examples)
        if settings["attention"] != "none":  # a uniform map has no peak to measure
            pointing, pointing_columns = _pointing(captions, examples)
            figures, columns = figures | pointing, columns | pointing_columns
    return {
        **settings,
        "images": len(examples),
        "protocol": scores.protocol,
        "notes": list(scores.notes),
        "metrics": figures,
        "captions": texts,
        "statistics": statistics.stored(columns, list(texts)),
    }


def _inventions(
    texts: Mapping[str, str], examples: Sequence[Example], data: str
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """What captions invent: scores in percent, and statistics; both empty if no caption names an object, as in another language."""
    columns = inventions.measure(texts, examples, data)
    if not any(columns["objects"]):
        return {}, {}
    figures = {
        name: 100 * sum(columns[name]) / sum(columns[of])
        for name, of in statistics.INVENTIONS.items()
        if any(columns.get(of, ()))
    }
    return figures | {"captions that invent": 100 * sum(columns["captions that invent"]) / len(examples)}, columns


def _exact_matches(texts: Mapping[str, str]) -> dict[str, list[float]]:
    """Whether each caption of a scene is completely correct (0 or 1), as a column of statistics."""
    return {
        "exact match": [float(scenes.exact_match(text, scenes.scene(image_id))) for image_id, text in texts.items()]
    }


def _pointing(
    captions: Mapping[str, Caption], examples: Sequence[Example]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """The pointing game on scenes: scores in percent, and statistics; both empty if no word can be measured."""
    of_images = [maps.measure_all([example], captions) for example in examples]
    measurements = [each for image in of_images for each in image]
    if not measurements:
        return {}, {}
    total = maps.summary(measurements)["all"]
    columns = {"pointing words": [float(len(image)) for image in of_images]}
    columns |= {name: [sum(each.values[name] for each in image) for image in of_images] for name in statistics.POINTING}
    return {
        **{name: total[name] for name in statistics.POINTING},
        "pointing by chance": total["pointing_chance"],
    }, columns


def rescore(captions: Mapping[str, str], data: CaptionSet, split: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The evaluation of captions from a file, without the model that made them.

    Figures that need the model's maps (map entropy, map movement, pointing) are those of `settings`, if it has any.

    Args:
        captions: a text for each image of the split.
        data: the caption set.
        split: the split that was captioned.
        settings: an earlier evaluation of these captions, or whatever else the result is to say.

    Raises:
        SatlibError: the captions are not those of the split's images.
    """
    examples = images_of(data, split)
    human = {example.image_id: example.references for example in examples}
    scores = metrics.score(captions, human)
    invented, invention_columns = _inventions(captions, examples, data.name)
    figures, columns = dict(scores.values) | invented, scores.statistics | invention_columns
    if data.name == "scenes":
        columns |= _exact_matches(captions)
        figures["exact match"] = 100 * sum(columns["exact match"]) / len(captions)
    earlier = {name: value for name, value in settings.get("metrics", {}).items() if name in _OF_MAPS}
    return {
        **settings,
        "data": data.name,
        "split": split,
        "images": len(captions),
        "protocol": scores.protocol,
        "notes": list(scores.notes),
        "metrics": figures | earlier,
        "captions": dict(captions),
        "statistics": statistics.stored(columns, list(captions)),
    }


def settings(
    captioner: Captioner,
    data: CaptionSet,
    split: str,
    beam: int | None = None,
    length_normalisation: float | None = None,
    look: str | None = None,
) -> dict[str, Any]:
    """The model, the data and the decoding options of an evaluation."""
    recipe, decoding = captioner.recipe, captioner.recipe.decoding
    return {
        "recipe": recipe.name,
        "data": data.name,
        "split": split,
        "encoder": captioner.encoder.name,
        "view": captioner.view,
        "attention": recipe.decoder.attention,
        **({"decoder": recipe.decoder.kind} if recipe.decoder.kind != "lstm" else {}),
        **({"boxes": recipe.objective.boxes} if recipe.objective.boxes else {}),
        **({"maximised": "reward", "rewards": rewards(recipe)} if recipe.objective.maximise == "reward" else {}),
        "beam": decoding.beam if beam is None else beam,
        "length_normalisation": decoding.length_normalisation if length_normalisation is None else length_normalisation,
        **({"look": look or decoding.look} if recipe.decoder.attention == "hard" else {}),
    }


def rewards(recipe: Recipe) -> dict[str, float]:
    """What a recipe rewards, with its weights: a weighted sum of these scores was maximised."""
    weights = {REWARD_NAMES[name]: getattr(recipe.reward, name) for name in REWARD_NAMES}
    return {name: weight for name, weight in weights.items() if weight}


def save(evaluation: dict[str, Any], run: Path) -> Path:
    """Write an evaluation into its run's folder and return the file's path."""
    path = run / f"evaluation-{evaluation['split']}.json"
    write_json(path, evaluation)
    return path


class StoredStatistics(Struct):
    """The statistics of each image in an evaluation (`satlib.evaluation.statistics`)."""

    columns: list[str]
    images: dict[str, list[float | None]]

    def __post_init__(self) -> None:
        """Refuse a row of another length."""
        if any(len(row) != len(self.columns) for row in self.images.values()):
            raise ValueError("an image has more or fewer numbers than there are columns")


class Evaluation(Struct):
    """What evaluation-SPLIT.json must have; the recipe decides what else."""

    recipe: str
    data: str
    split: str
    encoder: str
    attention: str
    protocol: str
    beam: Size
    metrics: dict[str, float]
    view: str = ""
    length_normalisation: float | None = None
    look: str | None = None
    captions: dict[str, str] = {}
    notes: list[str] = []
    origins: list[str] = []
    statistics: StoredStatistics | None = None


def read(path: Path) -> dict[str, Any]:
    """A stored evaluation, as `save` wrote it.

    Raises:
        SatlibError: the file is missing, or is not an evaluation.
    """
    about = "an evaluation", "create it again with `satlib evaluate`"
    read_json(path, Evaluation, *about)
    return read_json(path, dict[str, Any], *about)
