"""Whether a photograph is like those that a model was trained on.

A captioner describes everything in the words of its training set and cannot say "I do not know". The mean of a photograph's
annotation vectors, scaled to length 1, is m. P are the principal directions of m over the training photographs (eigenvectors of
the mean of m m^T). The distance of a photograph is the part of m outside their span, `1 - |P m|^2`, between 0 and 1. It is
unlike the training set if its distance exceeds that of 99 % of the dev photographs.
"""

import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional

DIRECTIONS = 64  # twice as many double the size and change little
FALSE_ALARMS = 0.01  # the share of the dev photographs that count as unlike


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
        return _outside(functional.normalize(a.float().mean(1), dim=1), self.span().to(a.device))

    def unlike(self, a: Tensor) -> list[bool]:
        """Whether each image is unlike the training set: annotation vectors (B, L, D) -> B values."""
        return (self.distances(a) > self.threshold).tolist()


def learn(train: Tensor, dev: Tensor) -> Familiarity:
    """From the mean annotation vectors (N, D) of the training images; those of the dev images set the threshold."""
    train, dev = functional.normalize(train, dim=1), functional.normalize(dev, dim=1)
    moments = train.T.double() @ train.double()
    directions = torch.linalg.eigh(moments).eigenvectors.flip(1).T[: min(DIRECTIONS, len(train))].float()
    scales = directions.abs().amax(1) / 127
    rounded = (directions / scales[:, None]).round().to(torch.int8)
    threshold = torch.quantile(_outside(dev, rounded * scales[:, None]), 1 - FALSE_ALARMS).item()
    return Familiarity(rounded.contiguous().numpy().tobytes(), scales.tolist(), threshold)


def _outside(means: Tensor, directions: Tensor) -> Tensor:
    """The part of each vector (B, D) outside of the span of orthonormal rows (k, D): (B,)."""
    return 1 - (means @ directions.T).square().sum(1)
