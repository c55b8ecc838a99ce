"""Generated captions of a split, their figures, and the file that keeps both (section 5).

Captions are always generated: nothing here sees the true words.
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
    """The best caption of every image, by image id."""
    batches = [examples[start : start + BATCH] for start in range(0, len(examples), BATCH)]
    captions = {}
    bar = tqdm(total=len(examples), unit="img", desc="captions", disable=not progress)
    with bar:
        for batch, annotations in zip(
            batches, read_ahead(lambda b: reader.read([e.image_id for e in b]), batches), strict=True
        ):
            for example, best in zip(batch, captioner.hypotheses(annotations, beam, length_normalisation), strict=True):
                captions[example.image_id] = captioner.read(best[0])
            bar.update(len(batch))
    return captions


def images_of(data: CaptionSet, split: str) -> tuple[Example, ...]:
    """The examples of a split that is to be captioned.

    Raises:
        SatlibError: there are none.
    """
    examples = data.split(split)
    if not examples:
        raise SatlibError(f"{data.name} has no images in its {split} split; choose another with --split")
    return examples


def quick_bleu(captions: Mapping[str, Caption], examples: Sequence[Example]) -> float:
    """Corpus BLEU-4 in percent on satlib's own tokens: for choosing an epoch, the same with and without Java."""
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
    """Caption a split and score it: what `satlib evaluate` writes and `satlib table` reads.

    Args:
        captioner: a trained one.
        data: the set.
        reader: of its images.
        split: which of them.
        beam: as the recipe says by default.
        length_normalisation: as the recipe says by default.
        progress: show a bar.
        look: what hard attention sees: "expected", "probable" or "sample"; as the recipe says by default.

    Raises:
        SatlibError: the split has no image, or a look is asked of a model without hard attention.
    """
    examples = images_of(data, split)
    with captioner.looking(look):
        captions = generate(captioner, reader, examples, beam, length_normalisation, progress)
    scores = metrics.score(
        {image_id: " ".join(caption.words) for image_id, caption in captions.items()},
        {example.image_id: example.references for example in examples},
        language=captioner.vocabulary.language,
    )
    recipe = captioner.recipe
    figures = dict(scores.values) | maps(captions.values())
    if data.name == "scenes":
        from satlib import ground
        from satlib.datasets import scenes

        right = sum(
            scenes.exact_match(captions[example.image_id].text, scenes.scene(example.image_id)) for example in examples
        )
        figures["exact match"] = 100 * right / len(examples)
        if recipe.decoder.attention != "none":  # an even map has no peak
            looked = ground.look_up(examples, captions)
            if looked:
                total = ground.summary(looked)["all"]
                figures |= {"pointing": total["pointing"], "pointing by chance": total["pointing_chance"]}
    return {
        "recipe": recipe.name,
        "data": data.name,
        "split": split,
        "encoder": captioner.encoder.name,
        "view": captioner.view,
        "attention": recipe.decoder.attention,
        **({"maximised": "reward"} if recipe.objective.maximise == "reward" else {}),
        **({"origins": list(captioner.origins)} if captioner.origins else {}),
        "beam": recipe.decoding.beam if beam is None else beam,
        "length_normalisation": recipe.decoding.length_normalisation
        if length_normalisation is None
        else length_normalisation,
        **({"look": look or recipe.decoding.look} if recipe.decoder.attention == "hard" else {}),
        "images": len(examples),
        "protocol": scores.protocol,
        "notes": list(scores.notes),
        "metrics": figures,
        "captions": {image_id: caption.text for image_id, caption in captions.items()},
    }


def maps(captions: Iterable[Caption]) -> dict[str, float]:
    """How sharp the maps of generated words are, and whether they move: means over captions.

    "map entropy" in nats (log L for an even map), and "map movement", the total variation between consecutive words (0 to 1).
    """
    entropies, movements = [], []
    for caption in captions:
        alphas = caption.alphas.flatten(1)
        entropies.append(entropy(alphas).mean().item())
        if len(alphas) > 1:
            movements.append(movement(alphas.unsqueeze(0)).mean().item())
    return {"map entropy": sum(entropies) / len(entropies), "map movement": sum(movements) / max(len(movements), 1)}


def save(evaluation: dict[str, Any], run: Path) -> Path:
    """Write an evaluation into its run's folder; give the file's path."""
    path = run / f"evaluation-{evaluation['split']}.json"
    write_json(path, evaluation)
    return path
