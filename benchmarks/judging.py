"""What notebook 07 shows of Flickr8k: `python benchmarks/judging.py --data data` writes satlib/results/judging.json.

    people          each of the five captions of a test photograph is judged against the other four, and each model of the
                    table of results against the same four: means over the five ways to leave one out
    teacher forcing the likeliest words after the true words, beside generated captions; both are judged against the reference
                    that was fed and against all five
    likelihood      of people's test captions, in nats per word, beside BLEU-4 of generated captions, by model
    inventions      how many of the objects that people and models name are in none of the same four references: percent, and the
                    limits of its 95 % interval by the bootstrap over photographs

`python benchmarks/judging.py --captions` measures the first and the last anew, from stored captions. "teacher forcing" and "likelihood"
need the features of the models (`satlib features MODEL`), "people" needs Java for METEOR, the mean over captions.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pycocoevalcap.cider.cider import Cider

from satlib.data import datasets
from satlib.data.batches import pairs
from satlib.data.caption_set import CaptionSet
from satlib.data.text import END, UNKNOWN, tokenise
from satlib.evaluation import inventions, metrics
from satlib.evaluation.statistics import interval, resamples
from satlib.files.atomic import write_json
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.training.features import open_store
from satlib.training.validation import dev_nll

TARGET = Path(__file__).resolve().parent.parent / "satlib" / "results" / "judging.json"
COMMAND = "python benchmarks/judging.py --data data"
MODEL = "flickr8k-lite0-soft"  # of "teacher forcing"
MODELS = (MODEL, "flickr8k-hard-reward")  # of "likelihood": trained by likelihood, and by rewards at last
Captions = Mapping[str, str]
References = Mapping[str, Sequence[str]]


def against_four(captions: Captions | None, references: References) -> dict[str, float]:
    """Scores in percent, means over the five ways to leave one reference out; None judges the caption that was left out."""
    rows, every, judges = [], {}, {}
    for out in range(5):
        four = {image: [line for i, line in enumerate(lines) if i != out] for image, lines in references.items()}
        lines = {image: [captions[image] if captions else references[image][out]] for image in references}
        bleu = metrics.bleu(lines, four)
        rows.append([bleu["BLEU-1"], bleu["BLEU-4"], 100 * float(Cider().compute_score(four, lines)[0])])
        every |= {(out, image): line for image, line in lines.items()}
        judges |= {(out, image): line for image, line in four.items()}
    found = dict(zip(("BLEU-1", "BLEU-4", "CIDEr"), np.mean(rows, axis=0).tolist(), strict=True))
    found["METEOR"] = float(np.mean(list(metrics.meteor_of_each(every, judges).values())))
    found["words"] = float(np.mean([len(line.split()) for (line,) in every.values()]))
    return {name: round(value, 2) for name, value in found.items()}


def invented(captions: Captions | None, references: References) -> tuple[float, float, float]:
    """Percent of the named objects that none of four references mentions, its interval's limits; None judges the caption left out."""
    counts = np.zeros((len(references), 2))  # objects, invented objects
    for row, (image, lines) in zip(counts, references.items(), strict=True):
        for out in range(5):
            text = captions[image] if captions else lines[out]
            found = inventions.of_photograph(text, [*lines[:out], *lines[out + 1 :]])
            row += found["objects"], found["invented objects"]
    objects, false = (np.concatenate([np.ones((1, len(counts))), resamples(len(counts))]) @ counts).T
    share, *drawn = 100 * false / objects
    return float(share), *interval(np.array(drawn))


def everyone(references: References) -> Iterator[tuple[str, Captions | None]]:
    """People (None), and the captions of each model of the table that captioned the same photographs."""
    yield "people", None
    for path in shipped.evaluations():
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["captions"].keys() == references.keys():
            yield path.parent.name, stored["captions"]


def teacher_forcing(data: CaptionSet, root: Path, references: References) -> dict[str, Any]:
    """BLEU-1 and BLEU-4 of generated captions and of forced words, without unknown words and the end mark."""
    captioner = Captioner.load(shipped.model(MODEL))
    store = open_store(root, data, captioner.encoder, captioner.view, data.split("test"))
    forced = {}
    for image, lines in references.items():
        caption = torch.tensor([[*captioner.vocabulary.encode(lines[0]), END]])  # (1, C)
        logits = captioner.decoder(captioner.annotations(store.read([image])), caption).logits[0, :-1]  # (C - 1, K)
        logits[:, [END, UNKNOWN]] = -torch.inf
        forced[image] = " ".join(captioner.vocabulary.words[word] for word in logits.argmax(1).tolist())
    generated = evaluation(MODEL)["captions"]
    found: dict[str, Any] = {"model": MODEL}
    for against, judges in (("fed", {image: lines[:1] for image, lines in references.items()}), ("all", references)):
        for what, captions in (("generated", generated), ("forced", forced)):
            bleu = metrics.bleu({image: [captions[image]] for image in references}, judges)
            found[f"{what}, {against}"] = {name: round(bleu[name], 2) for name in ("BLEU-1", "BLEU-4")}
    return found


def likelihood(data: CaptionSet, root: Path) -> dict[str, dict[str, float]]:
    """Nats per word of people's captions, and BLEU-4 as in the table of results."""
    found = {}
    for name in MODELS:
        captioner = Captioner.load(shipped.model(name))
        store = open_store(root, data, captioner.encoder, captioner.view, data.split("test"))
        nats = dev_nll(captioner, store, pairs(data.split("test"), captioner.vocabulary, 40), 64)
        found[name] = {"NLL": round(nats, 3), "BLEU-4": round(evaluation(name)["metrics"]["BLEU-4"], 2)}
        found[name]["words in the vocabulary"] = len(captioner.vocabulary.words)
    return found


def evaluation(name: str) -> dict[str, Any]:
    """The stored evaluation of a model."""
    path = next(path for path in shipped.evaluations() if path.parent.name == name)
    return json.loads(path.read_text(encoding="utf-8"))


@torch.inference_mode()
def main() -> None:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--captions", action="store_true", help='only judge stored captions: "people" and "inventions"')
    args = parser.parse_args()
    root = args.data
    data = datasets.load("flickr8k", root, require_images=False)
    references = {each.image_id: [" ".join(tokenise(line)) for line in each.references] for each in data.split("test")}
    found: dict[str, Any] = {"command": COMMAND, "images": len(references)}
    if not args.captions:
        found["teacher forcing"] = teacher_forcing(data, root, references)
        found["likelihood"] = likelihood(data, root)
        print(found, flush=True)
    found |= {"people": {}, "inventions": {}}
    for name, captions in everyone(references):
        found["people"][name] = against_four(captions, references)
        found["inventions"][name] = [round(value, 3) for value in invented(captions, references)]
        print(name, found["people"][name], found["inventions"][name], flush=True)
    earlier = json.loads(TARGET.read_text(encoding="utf-8")) if args.captions else {}
    write_json(TARGET, earlier | found)


if __name__ == "__main__":
    main()
