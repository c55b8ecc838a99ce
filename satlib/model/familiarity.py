"""Whether a photograph is like those that a model was trained on.

A captioner describes everything in the words of its training set and cannot say "I do not know". The mean of a photograph's
annotation vectors, scaled to length 1, is m. P are the principal directions of m over the training photographs (eigenvectors of
the mean of m m^T). The distance of a photograph is the part of m outside their span, `1 - |P m|^2`, between 0 and 1. It is
unlike the training set if its distance exceeds that of 99 % of the dev photographs, which were not trained on.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

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


class Familiarity(Struct):
    """The span of the training photographs' mean annotation vectors, as it stands in the header of a model's file.

    directions: k rows of D int8 numbers (base64 in JSON); row i times scales[i] is row i of P. threshold: the greatest distance
    that is familiar.
    """

    directions: bytes
    scales: list[float]
    threshold: float

    def span(self) -> Tensor:
        """P (k, D)."""
        rows = torch.frombuffer(bytearray(self.directions), dtype=torch.int8).view(len(self.scales), -1)
        return rows * torch.tensor(self.scales).unsqueeze(1)

    def distances(self, a: Tensor) -> Tensor:
        """The distance of each image: annotation vectors (B, L, D) -> (B,), 0 (like the training set) to 1."""
        return _outside(_unit_means(a), self.span().to(a.device))

    def unlike(self, a: Tensor) -> list[bool]:
        """Whether each image is unlike the training set: annotation vectors (B, L, D) -> B values."""
        return (self.distances(a) > self.threshold).tolist()


def learn(annotations: Callable[[Tensor], Tensor], reader: "Reader", data: "CaptionSet") -> Familiarity:
    """Describe the training images of a data set; the dev images set the threshold. annotations: `Captioner.annotations`."""
    train, dev = (_unit_means_of(annotations, reader, data, split) for split in ("train", "dev"))
    moments = train.T.double() @ train.double()
    directions = torch.linalg.eigh(moments).eigenvectors.flip(1).T[: min(DIRECTIONS, len(train))].float()
    scales = directions.abs().amax(1) / 127
    rounded = (directions / scales[:, None]).round().to(torch.int8)
    threshold = torch.quantile(_outside(dev, rounded * scales[:, None]), 1 - FALSE_ALARMS).item()
    return Familiarity(rounded.contiguous().numpy().tobytes(), scales.tolist(), threshold)


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
