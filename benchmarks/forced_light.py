"""Does the word follow the light? Attention moved by force to the other object of a drawn scene, while the model describes one.

    python benchmarks/forced_light.py scenes-soft
    python benchmarks/forced_light.py runs/scenes-transformer/model.safetensors

The model captions test scenes greedily. At each word for an object's size, colour or shape in which the two objects differ, and at
that word alone, an even map over the other object takes the place of the model's own; the words before it and their light stay. The
figures are the shares of these words that then become true of the other object, and that stay true of their own. A Transformer's
light is moved in all heads, in those of a layer, and in one. In the row "own object", a control, the even map is over the right
object. The intervals hold 95 % of 1,000 bootstrap samples of scenes.
"""

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from satcourse.widgets.steering import look_again
from satlib.data import scenes
from satlib.data.images import to_tensor
from satlib.data.scenes import Scene
from satlib.evaluation import maps
from satlib.evaluation.statistics import interval, resamples
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.model.transformer import AnyDecoder, TransformerDecoder

KINDS = ("size", "colour", "shape")  # said of every object; texture is not


def telling(words: list[str], scene: Scene) -> list[tuple[int, str, int]]:
    """The words that tell the objects apart: their index, their kind, and the number of the object that they describe."""
    numbers, (first, second) = scenes.mentions(words, scene), scene.objects
    return [
        (index, kind, numbers[index])
        for phrase in scenes.grammar.phrases(words)
        for index, (kind, _) in phrase.attributes.items()
        if kind in KINDS and numbers[index] is not None and getattr(first, kind) != getattr(second, kind)
    ]


def over(mask: np.ndarray, grid: tuple[int, int]) -> Tensor:
    """A map that is even over an object's pixels: bool (224, 224) -> (L,), sums to 1."""
    cover = torch.from_numpy(maps.cells(mask, grid)[0]).float().flatten()
    return cover / cover.sum()


def lights(decoder: AnyDecoder) -> dict[str, tuple[bool, Tensor]]:
    """What is done with the light, by name: whether it goes to the other object, and in which maps.

    The maps are 1 where the light is moved, 0 where the model's own stays: (1,), or (layers, heads, 1) of a Transformer.
    """
    if not isinstance(decoder, TransformerDecoder):
        return {"own object": (False, torch.ones(1)), "other object": (True, torch.ones(1))}
    heads = torch.arange(decoder.config.layers * decoder.config.heads).view(decoder.config.layers, -1, 1)
    moved = {"own object": (False, (heads >= 0).float()), "other object": (True, (heads >= 0).float())}
    for layer, row in enumerate(heads):
        moved[f"layer {layer + 1}"] = True, torch.isin(heads, row).float()
    for number, (layer, head) in enumerate(np.ndindex(heads.shape[:2])):
        moved[f"layer {layer + 1}, head {head + 1}"] = True, (heads == number).float()
    return moved


def follow(captioner: Captioner, scene: Scene) -> dict[str, list[tuple[bool, bool]]]:
    """For each light that is moved, of each word asked about: whether it follows, whether it stays."""
    picture, masks = scene.render()
    a = captioner.encoded(to_tensor(picture).unsqueeze(0))
    words = captioner.read(captioner.hypotheses(a, beam=1)[0][0]).words
    asked = telling(words, scene)
    if not asked:
        return {}
    indices, kinds, numbers = zip(*asked, strict=True)
    described = torch.tensor(numbers)
    even = torch.stack([over(mask, captioner.encoder.grid) for mask in masks])  # (2, L)
    a, found = captioner.annotations(a).expand(len(asked), -1, -1), {}
    for name, (elsewhere, moved) in lights(captioner.decoder).items():
        drawn = even[1 - described if elsewhere else described]
        given = drawn.view(len(asked), *[1] * (moved.dim() - 1), -1) * moved
        best = look_again(captioner, a, [words] * len(asked), indices, given).argmax(1)
        found[name] = []
        for index, kind, number, word in zip(indices, kinds, numbers, best.tolist(), strict=True):
            again = [*words[:index], captioner.vocabulary.words[word], *words[index + 1 :]]
            said = [phrase.attributes[index] for phrase in scenes.grammar.phrases(again) if index in phrase.attributes]
            own, other = (getattr(scene.objects[n], kind) for n in (number, 1 - number))
            found[name].append(((kind, other) in said, (kind, own) in said))
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="the name of a model that comes with satlib, or a model file")
    parser.add_argument("--images", type=int, default=500)
    args = parser.parse_args()
    path = Path(args.model)
    captioner = Captioner.load(path if path.is_file() else shipped.model(args.model))
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros((args.images, 3)))  # words, that follow, that stay
    for number, example in enumerate(scenes.load(1, 1, args.images).split("test")):
        for name, outcomes in follow(captioner, scenes.scene(example.image_id)).items():
            sums[name][number] = len(outcomes), *np.sum(outcomes, axis=0)
    weights = sum(each.numel() for each in captioner.decoder.parameters())
    words = next(iter(sums.values()))[:, 0].sum()
    print(
        f"{args.model}: {weights / 1e6:.2f} million weights in the decoder; {words:.0f} words of {args.images} scenes"
    )
    counts = resamples(args.images, 1000)
    for name, of_scene in sums.items():
        drawn, total = counts @ of_scene, of_scene.sum(0)
        shares = [
            "{} {:5.1f} % ({:.1f} to {:.1f})".format(
                verb, 100 * total[i] / total[0], *interval(100 * drawn[:, i] / drawn[:, 0])
            )
            for i, verb in ((1, "follow"), (2, "stay"))
        ]
        print(f"  {name:16} {'   '.join(shares)}")


if __name__ == "__main__":
    main()
