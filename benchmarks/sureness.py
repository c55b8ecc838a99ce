"""Is a caption less sure where it is wrong? The map's entropy, the gate and the word's probability at false and at true words.

    python benchmarks/sureness.py scenes-soft --images 4000
    python benchmarks/sureness.py flickr8k-lite0-soft --data data

The model captions test images greedily. On scenes, a word is true if it describes an object of the scene, and false if the rest of
its phrase describes one that it does not fit. On photographs, a word that names an object is false if no reference mentions one of
that kind (`satlib.evaluation.inventions`). For each sign of doubt - a wide map, a closed gate, an improbable word - the figure is
the area under the ROC curve: how often a false word shows more of it than a true word of the same sort (a shape and a shape); 50 %
is no sign at all. The intervals hold 95 % of 1,000 bootstrap samples of images.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from satcourse.widgets.reading import annotate, read
from satlib.data import datasets, scenes
from satlib.data.caption_set import CaptionSet, Example
from satlib.evaluation import inventions, maps
from satlib.evaluation.statistics import interval, resamples
from satlib.model import shipped
from satlib.model.attention import entropy
from satlib.model.captioner import Captioner

SIGNS = ("entropy of the map", "gate closed", "improbable word")


def judged(words: list[str], example: Example, drawn: bool) -> dict[int, tuple[str, bool]]:
    """Index of a word -> its sort, and whether it is false; the other words are neither true nor false."""
    if drawn:
        found = {each.index: (each.kind, False) for each in maps.scene_targets(example, words)}
        return found | {each.index: (each.kind, True) for each in maps.scene_mistakes(example, words)}
    kinds = {i: inventions.objects(word) for i, word in enumerate(words)}
    theirs = set().union(*map(inventions.objects, example.references))
    return {i: ("object", not kind <= theirs) for i, kind in kinds.items() if kind}


def doubts(
    captioner: Captioner, examples: list[Example], data: CaptionSet
) -> Iterator[tuple[str, bool, int, list[float]]]:
    """For each judged word: its sort, whether it is false, its image, and the signs of doubt; more is more doubt."""
    for number, example in enumerate(examples):
        caption = read(captioner, annotate(captioner, data.photo(example)))
        wide = entropy(caption.alphas.flatten(1)).tolist()
        for index, (sort, false) in judged(caption.words, example, data.name == "scenes").items():
            yield sort, false, number, [wide[index], -caption.betas[index].item(), -caption.probabilities[index]]


def area(sort: np.ndarray, false: np.ndarray, values: np.ndarray, weights: np.ndarray) -> float:
    """Area under the ROC curve in percent: of weighted pairs of a false and a true word of a sort, those where the false one has more."""
    more = pairs = 0.0
    for each in np.unique(sort):
        here = sort == each
        wrong, weight = false[here], weights[here]
        _, rank = np.unique(values[here], return_inverse=True)
        true_at = np.bincount(rank, weight * ~wrong)
        below = np.cumsum(true_at) - true_at / 2  # half of the ties count
        more += (weight * wrong * below[rank]).sum()
        pairs += (weight * wrong).sum() * true_at.sum()
    return 100 * float(more / pairs)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the name of a model that comes with satlib, or a model file")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    args = parser.parse_args()
    path = Path(args.model)
    captioner = Captioner.load(path if path.is_file() else shipped.model(args.model))
    name = captioner.recipe.data.name
    data = scenes.load(1, 1, args.images) if name == "scenes" else datasets.load(name, datasets.data_root(args.data))
    found = list(doubts(captioner, list(data.split("test")[: args.images]), data))
    sort, false, image, signs = (np.array(each) for each in zip(*found, strict=True))
    print(f"{args.model}: {false.sum()} of {len(false):,} judged words are false, {args.images:,} images")
    counts = resamples(args.images, 1000)
    for sign, values in zip(SIGNS, signs.T, strict=True):
        low, high = interval(np.array([area(sort, false, values, count[image]) for count in counts]))
        print(f"  {sign:18} {area(sort, false, values, np.ones(len(false))):5.1f} % ({low:.1f} to {high:.1f})")


if __name__ == "__main__":
    main()
