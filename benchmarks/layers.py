"""What each layer of VGG-19 knows of an object: its colour, its texture, its shape (notebook 02 shows the result).

    python benchmarks/layers.py --scenes 150 --output satlib/results/vgg19-layers.json

Every object of a drawn scene gets the mean vector of a layer over its visible pixels. Two questions are put to these vectors:
does the nearest object of another scene (by cosine) have the same attribute, and can a linear classifier (ridge regression to
one-hot labels, ten folds of whole scenes) read the attribute? The intervals hold 95 % of 1,000 bootstrap samples of scenes.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from satcourse.lessons import seeing
from satlib.data import scenes
from satlib.data.images import to_tensor
from satlib.files.atomic import replacing
from satlib.model import encoders

LAYERS = ("conv1_2", "conv2_2", "conv3_4", "conv4_4", "conv5_4")
ATTRIBUTES = ("colour", "texture", "shape")
COMMAND = "python benchmarks/layers.py --scenes {} --output satlib/results/vgg19-layers.json"


def object_vectors(maps: Tensor, masks: Tensor) -> Tensor:
    """The mean vector of a layer over the visible pixels of each object.

    A cell counts by the share of its area that the object covers.

    Args:
        maps: (S, C, h, w), one layer's maps of S scenes.
        masks: (S, K, H, W), 1 at the visible pixels of each of a scene's K objects, otherwise 0.

    Returns:
        (S K, C), the objects of the first scene first.
    """
    shares = functional.adaptive_avg_pool2d(masks, (maps.shape[2], maps.shape[3]))
    return (torch.einsum("scyx,skyx->skc", maps, shares) / shares.sum((2, 3)).unsqueeze(2)).flatten(0, 1)


def nearest_elsewhere(vectors: Tensor, scenes: Tensor) -> Tensor:
    """For each object the one of another scene whose vector has the largest cosine with its own.

    Args:
        vectors: (N, C).
        scenes: (N,), the scene of each object.

    Returns:
        (N,), indices of objects.
    """
    unit = functional.normalize(vectors, dim=1)
    return (unit @ unit.T).masked_fill(scenes.unsqueeze(1) == scenes, -torch.inf).argmax(1)


def vectors_of(drawn: list[scenes.Scene], batch: int = 4) -> dict[str, Tensor]:
    """Layer -> the objects' vectors (2 S, C)."""
    encoder = encoders.create("vgg19").requires_grad_(False)
    found: dict[str, list[Tensor]] = {layer: [] for layer in LAYERS}
    for start in range(0, len(drawn), batch):
        pictures, masks = zip(*(each.render() for each in drawn[start : start + batch]), strict=True)
        with torch.inference_mode():
            maps = seeing.look(encoder, torch.stack([to_tensor(each) for each in pictures]), LAYERS).maps
        for layer in LAYERS:
            found[layer].append(object_vectors(maps[layer], torch.from_numpy(np.stack(masks)).float()))
        print(f"{start + len(pictures)} of {len(drawn)} scenes", flush=True)
    return {layer: torch.cat(parts).clone() for layer, parts in found.items()}


def read_linearly(vectors: Tensor, labels: Tensor, owner: Tensor, folds: int = 10, penalty: float = 1e-3) -> Tensor:
    """Whether a linear classifier, fitted on other scenes, reads each object's label: (N,)."""
    x = functional.normalize(vectors.double(), dim=1)
    y, right = functional.one_hot(labels).double(), torch.zeros(len(x), dtype=torch.bool)
    for fold in range(folds):
        test = owner % folds == fold
        mean, level = x[~test].mean(0), y[~test].mean(0)
        centred = x[~test] - mean
        variance = centred.square().sum(1).mean()  # the penalty's unit, so that it means the same at each layer
        weights = torch.linalg.solve(
            centred.T @ centred + penalty * len(centred) * variance * torch.eye(x.shape[1], dtype=x.dtype),
            centred.T @ (y[~test] - level),
        )
        right[test] = ((x[test] - mean) @ weights + level).argmax(1) == labels[test]
    return right


def interval(right: Tensor, samples: int = 1000) -> dict[str, float]:
    """Percent of the objects, two in each scene, and the limits of its 95 % interval."""
    of_scene = right.float().view(-1, 2).mean(1)
    drawn = torch.randint(len(of_scene), (samples, len(of_scene)), generator=torch.Generator().manual_seed(0))
    low, high = of_scene[drawn].mean(1).quantile(torch.tensor([0.025, 0.975])).tolist()
    return {name: round(100 * v, 1) for name, v in (("share", float(of_scene.mean())), ("low", low), ("high", high))}


def study(drawn: list[scenes.Scene], vectors: dict[str, Tensor]) -> dict:
    """Attribute -> chance, and the figures of each layer for both questions."""
    owner = torch.arange(len(drawn)).repeat_interleave(2)
    found = {}
    for attribute in ATTRIBUTES:
        values = [getattr(thing, attribute) for each in drawn for thing in each.objects]
        names = sorted(set(values))
        labels = torch.tensor([names.index(value) for value in values])
        same = labels.unsqueeze(1) == labels
        elsewhere = owner.unsqueeze(1) != owner
        found[attribute] = {
            "chance": round(100 * float(same[elsewhere].float().mean()), 1),
            "nearest": {
                layer: interval(labels[nearest_elsewhere(each, owner)] == labels) for layer, each in vectors.items()
            },
            "linear": {layer: interval(read_linearly(each, labels, owner)) for layer, each in vectors.items()},
        }
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=int, default=150)
    parser.add_argument("--output", type=Path, default=Path("layers.json"))
    args = parser.parse_args()
    drawn = [scenes.scene(example.image_id) for example in scenes.load(1, args.scenes, 1).split("dev")]
    found = study(drawn, vectors_of(drawn))
    for attribute, figures in found.items():
        for question in ("nearest", "linear"):
            row = "  ".join(
                "{share:5.1f} ({low:.0f} to {high:.0f})".format(**each) for each in figures[question].values()
            )
            print(f"{attribute:8} {question:8} {row}   chance {figures['chance']}")
    content = {"command": COMMAND.format(args.scenes), "objects": 2 * len(drawn), "attributes": found}
    with replacing(args.output) as path:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
