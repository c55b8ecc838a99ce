"""Compare measures of how unlike the training set a photograph is (`satlib/model/familiarity.py`).

    python benchmarks/familiarity.py flickr8k-lite0-soft --data data

Each measure is fitted on the training photographs; its threshold is the 99th percentile of dev. Printed for each: false alarms on
the test photographs, and how many images of three unlike kinds it detects, with the AUC against test. One half of the unlike
images (with dev) is for choosing a measure, the other half (with test) for judging the one that was chosen.
"""

import argparse
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from satlib.data import datasets, images, scenes
from satlib.model import familiarity, shipped
from satlib.model.captioner import Captioner
from satlib.training.features import open_store

# Those of scikit-image's pictures that show no people and nothing that people ride.
PICTURES = [
    "brick",
    "cell",
    "chelsea",
    "chessboard_RGB",
    "clock_motion",
    "coffee",
    "coins",
    "color",
    "grass",
    "gravel",
    "hubble_deep_field",
    "ihc",
    "logo",
    "microaneurysms",
    "moon",
    "page",
    "phantom",
    "retina",
    "rocket",
    "text",
]
Measure = Callable[[Tensor], Tensor]


def pictures() -> Iterator[Image.Image]:
    """Photographs and drawings that come with scikit-image."""
    spec = importlib.util.find_spec("skimage")
    folder = Path(spec.submodule_search_locations[0]) / "data"
    for name in PICTURES:
        yield images.to_rgb(images.open_photo(next(folder.glob(f"{name}.*"))))


def textures(count: int = 10) -> Iterator[Image.Image]:
    """Noise, blurred noise, gratings and plain colours."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:224, :224]
    for i in range(count):
        yield Image.fromarray(random.integers(0, 256, (224, 224, 3), dtype=np.uint8))
        small = Image.fromarray(random.integers(0, 256, (4 + i, 4 + i, 3), dtype=np.uint8))
        yield small.resize((224, 224), Image.Resampling.BICUBIC)
        wave = np.sin(random.uniform(0.05, 0.6) * x + random.uniform(0.05, 0.6) * y)[..., None]
        yield Image.fromarray((127.5 + 127.5 * wave * random.uniform(0, 1, 3)).astype(np.uint8))
        yield Image.new("RGB", (224, 224), tuple(random.integers(0, 256, 3).tolist()))


def measures(train: Tensor) -> dict[str, Measure]:
    """The candidates, fitted on the training photographs' mean vectors (N, D) of length 1."""
    mean, count = train.mean(0), len(train)
    _, values, axes = torch.linalg.svd(train - mean, full_matrices=False)
    variance = values.square() / count

    def mahalanobis(m: Tensor, k: int = 64) -> Tensor:
        """With a covariance of k directions, and one variance for all others."""
        inside = (m - mean) @ axes[:k].T
        rest = (m - mean).square().sum(1) - inside.square().sum(1)
        return (inside.square() / variance[:k]).sum(1) + rest / variance[k:].mean()

    found: dict[str, Measure] = {"distance from the mean": lambda m: (m - mean).norm(dim=1), "Mahalanobis": mahalanobis}
    found["10th nearest neighbour"] = lambda m: 1 - (m @ train.T).topk(10).values[:, -1]
    own = torch.linalg.svd(train, full_matrices=False).Vh
    for k in (32, 64, 128, 256):
        found[f"outside {k} directions"] = lambda m, k=k: 1 - (m @ own[:k].T).square().sum(1)
    return found


def auc(like: Tensor, unlike: Tensor) -> float:
    """The probability that an unlike image has the greater distance."""
    return (unlike[:, None] > like[None]).double().mean().item()


@torch.inference_mode()
def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, default=Path("data"))
    options = parser.parse_args()
    captioner = Captioner.load(shipped.or_shipped(options.model))
    data = datasets.load(captioner.recipe.data.name, options.data)
    store = open_store(options.data, data, captioner.encoder, captioner.view, data.examples)
    like = {s: familiarity.all_unit_means(captioner.annotations, store, data, s) for s in ("train", "dev", "test")}
    drawn = [scenes.scene(f"test-{i:06d}").photo() for i in range(40)]
    unlike = {"scikit-image": list(pictures()), "scenes": drawn, "textures": list(textures())}
    means = {}
    for kind, photos in unlike.items():
        batches = [images.to_tensor(images.square(photo, captioner.view))[None] for photo in photos]
        means[kind] = torch.cat([familiarity.unit_means(captioner.annotations(batch)) for batch in batches])
    for half, split in enumerate(("dev", "test")):
        print(f"{'to choose' if split == 'dev' else 'to judge'}: unlike images against {split}")
        print(f"{'':24}{'false alarms':>14}" + "".join(f"{kind:>16}" for kind in means) + f"{'AUC of all':>13}")
        for name, measure in measures(like["train"]).items():
            threshold = measure(like["dev"]).quantile(1 - familiarity.FALSE_ALARMS)
            usual = measure(like[split])
            found = {kind: measure(m[half::2]) for kind, m in means.items()}
            counts = [f"{int((values > threshold).sum())} of {len(values)}" for values in found.values()]
            print(
                f"{name:24}{100 * (usual > threshold).float().mean():12.1f} %"
                + "".join(f"{count:>16}" for count in counts)
                + f"{auc(usual, torch.cat(list(found.values()))):13.3f}"
            )


if __name__ == "__main__":
    main()
