"""Generating the captions of a split, scoring them, and saving both (section 5).

Captions are always generated without teacher forcing: the decoder never sees the reference words.
"""

import contextlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pycocoevalcap.bleu.bleu import Bleu
from tqdm import tqdm

from satlib import metrics
from satlib.captioner import Caption, Captioner
from satlib.datasets import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.features import Reader, read_ahead
from satlib.files import write_json
from satlib.objectives import entropy, movement
from satlib.text import tokenise

BATCH = 32


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
    bar = tqdm(total=len(examples), unit="img", desc="captions", disable=not progress)
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
        example.image_id: [
            " ".join(tokenise(reference, captions[example.image_id].language)) for reference in example.references
        ]
        for example in examples
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
    scores = metrics.score(
        {image_id: " ".join(caption.words) for image_id, caption in captions.items()},
        {example.image_id: example.references for example in examples},
        language=captioner.vocabulary.language,
    )
    figures = dict(scores.values) | maps(captions.values())
    if data.name == "scenes":
        figures |= _scene_metrics(captions, examples, captioner.recipe.decoder.attention)
    return {
        **_settings(captioner, data, split, beam, length_normalisation, look),
        "images": len(examples),
        "protocol": scores.protocol,
        "notes": list(scores.notes),
        "metrics": figures,
        "captions": {image_id: caption.text for image_id, caption in captions.items()},
    }


def _scene_metrics(captions: Mapping[str, Caption], examples: Sequence[Example], attention: str) -> dict[str, float]:
    """Metrics in percent that only scenes allow: exact match and, with attention, the pointing game."""
    from satlib import ground
    from satlib.datasets import scenes

    right = sum(
        scenes.exact_match(captions[example.image_id].text, scenes.scene(example.image_id)) for example in examples
    )
    figures = {"exact match": 100 * right / len(examples)}
    if attention != "none":  # a uniform map has no peak to measure
        measured = ground.look_up(examples, captions)
        if measured:
            total = ground.summary(measured)["all"]
            figures |= {
                "pointing": total["pointing"],
                "pointing by chance": total["pointing_chance"],
                "pointing strict": total["pointing strict"],
            }
    return figures


def _settings(
    captioner: Captioner,
    data: CaptionSet,
    split: str,
    beam: int | None,
    length_normalisation: float | None,
    look: str | None,
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
        **({"maximised": "reward"} if recipe.objective.maximise == "reward" else {}),
        **({"origins": list(captioner.origins)} if captioner.origins else {}),
        "beam": decoding.beam if beam is None else beam,
        "length_normalisation": decoding.length_normalisation if length_normalisation is None else length_normalisation,
        **({"look": look or decoding.look} if recipe.decoder.attention == "hard" else {}),
    }


def maps(captions: Iterable[Caption]) -> dict[str, float]:
    """Sharpness and movement of the attention maps of generated words, averaged over captions.

    "map entropy" is in nats (log L for a uniform map); "map movement" is the total variation distance between the maps of
    consecutive words (0 to 1).
    """
    entropies, movements = [], []
    for caption in captions:
        alphas = caption.alphas.flatten(1)
        entropies.append(entropy(alphas).mean().item())
        if len(alphas) > 1:
            movements.append(movement(alphas.unsqueeze(0)).mean().item())
    return {"map entropy": sum(entropies) / len(entropies), "map movement": sum(movements) / max(len(movements), 1)}


def save(evaluation: dict[str, Any], run: Path) -> Path:
    """Write an evaluation into its run's folder and return the file's path."""
    path = run / f"evaluation-{evaluation['split']}.json"
    write_json(path, evaluation)
    return path
