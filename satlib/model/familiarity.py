"""Whether a photograph is like those that a model was trained on.

A captioner describes everything in the words of its training set and cannot say "I do not know". The mean of a photograph's
annotation vectors, scaled to length 1, is m. P are the principal directions of m over the training photographs (eigenvectors of
the mean of m m^T). The distance of a photograph is the part of m outside their span, `1 - |P m|^2`, between 0 and 1. It is
unlike the training set if its distance exceeds that of 99 % of the dev photographs, which were not trained on.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from satlib.data.caption_set import CaptionSet
    from satlib.data.features import Reader

DIRECTIONS = 64  # twice as many double the size and change little
FALSE_ALARMS = 0.01  # the share of the dev photographs that count as unlike
_BATCH = 64


class Stored(Struct):
    """In the header of a model: int8 directions in base64, a scale for each, and the largest distance that is familiar."""

    directions: str
    scales: list[float]
    threshold: float


@dataclass(frozen=True)
class Familiarity:
    """The span of the training photographs' mean annotation vectors.

    directions: (k, D), int8; row i of P is this row times scales[i]. scales: (k,), float32. threshold: the greatest distance
    that is familiar.
    """

    directions: Tensor
    scales: Tensor
    threshold: float

    def distances(self, a: Tensor) -> Tensor:
        """The distance of each image: annotation vectors (B, L, D) -> (B,), 0 (like the training set) to 1."""
        return _outside(_unit_means(a), (self.directions * self.scales[:, None]).to(a.device))

    def unlike(self, a: Tensor) -> list[bool]:
        """Whether each image is unlike the training set: annotation vectors (B, L, D) -> B values."""
        return (self.distances(a) > self.threshold).tolist()

    def stored(self) -> Stored:
        """For the header of a model's file: about 1.4 bytes for each number of P."""
        directions = base64.b64encode(self.directions.cpu().numpy().tobytes()).decode()
        return Stored(directions, self.scales.tolist(), self.threshold)

    @classmethod
    def restored(cls, stored: Stored) -> "Familiarity":
        """From what `stored` gave."""
        content = np.frombuffer(base64.b64decode(stored.directions), dtype=np.int8)
        directions = torch.from_numpy(content.reshape(len(stored.scales), -1).copy())
        return cls(directions, torch.tensor(stored.scales, dtype=torch.float32), stored.threshold)


def learn(annotations: Callable[[Tensor], Tensor], reader: "Reader", data: "CaptionSet") -> Familiarity:
    """Describe the training images of a data set; the dev images set the threshold. annotations: `Captioner.annotations`."""
    train, dev = (_unit_means_of(annotations, reader, data, split) for split in ("train", "dev"))
    moments = train.T.double() @ train.double()
    directions = torch.linalg.eigh(moments).eigenvectors.flip(1).T[: min(DIRECTIONS, len(train))].float()
    scales = directions.abs().amax(1) / 127
    rounded = (directions / scales[:, None]).round().to(torch.int8)
    distances = _outside(dev, rounded * scales[:, None])
    return Familiarity(rounded, scales, torch.quantile(distances, 1 - FALSE_ALARMS).item())


@torch.inference_mode()
def _unit_means_of(annotations: Callable[[Tensor], Tensor], reader: "Reader", data: "CaptionSet", split: str) -> Tensor:
    """`_unit_means` of the images of a split: (N, D)."""
    from satlib.data.features import read_ahead  # captioning a photograph does not need it

    names = [example.image_id for example in data.split(split)]
    chunks: list[Sequence[str]] = [names[start : start + _BATCH] for start in range(0, len(names), _BATCH)]
    return torch.cat([_unit_means(annotations(batch)).cpu() for batch in read_ahead(reader.read, chunks)])


def _unit_means(a: Tensor) -> Tensor:
    """The mean annotation vector of each image, scaled to length 1: (B, L, D) -> (B, D), float32."""
    return functional.normalize(a.float().mean(1), dim=1)


def _outside(means: Tensor, directions: Tensor) -> Tensor:
    """The part of each vector (B, D) outside of the span of orthonormal rows (k, D): (B,)."""
    return 1 - (means @ directions.T).square().sum(1)
