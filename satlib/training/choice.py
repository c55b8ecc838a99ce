"""How a trained model generates captions, chosen on the dev split: beam width and length normalisation."""

from collections.abc import Sequence

from satlib.data.caption_set import CaptionSet
from satlib.data.features import Reader
from satlib.evaluation import evaluate, metrics
from satlib.files.progress import say
from satlib.model.captioner import Captioner

NORMALISATIONS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5)


def choose_decoding(
    captioner: Captioner,
    data: CaptionSet,
    reader: Reader,
    beams: Sequence[int] = (1, 2, 3, 4, 5),
    normalisations: Sequence[float] = NORMALISATIONS,
) -> dict[tuple[int, float], float]:
    """The dev CIDEr of each beam width and length normalisation, the best first; of equal ones, the smaller values.

    Greedy decoding, a beam of 1, ranks no hypotheses: it is tried once, without length normalisation.
    """
    examples = evaluate.images_of(data, "dev")
    references = {example.image_id: example.references for example in examples}
    scores = {}
    for beam in beams:
        for exponent in normalisations if beam > 1 else (0.0,):
            captions = evaluate.generate(captioner, reader, examples, beam, exponent, progress=False)
            texts = {image_id: caption.text for image_id, caption in captions.items()}
            columns, _ = metrics.measure(texts, references, meteor=False)
            scores[beam, exponent] = sum(columns["CIDEr"]) / len(examples)
            say(f"beam {beam}, length normalisation {exponent:g}: dev CIDEr {scores[beam, exponent]:.2f}")
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
