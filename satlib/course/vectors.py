"""Annotation vectors in memory: for a few hundred images what a `FeatureStore` is on disk for thousands.

With them a decoder trains in seconds, as in the paper (section 4.3): the encoder's work is done once and not at every step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from satlib.captioner import Captioner
from satlib.features import Reader


class Vectors:
    """What a captioner's encoder makes of images, by key; a `features.Reader`, so that it can be trained from.

    Attributes:
        a: annotation vectors (N, L, D) before `encoder.scale`, on the CPU.
    """

    def __init__(self, captioner: Captioner, reader: Reader, keys: Sequence[str], batch_size: int = 20) -> None:
        """Encode the images of some keys.

        Args:
            captioner: in evaluation mode.
            reader: of their pixels.
            keys: each once.
            batch_size: how many at a time.
        """
        found = []
        with torch.no_grad():
            for start in range(0, len(keys), batch_size):
                images = reader.read(keys[start : start + batch_size])
                found.append(captioner.encoder(images.to(captioner.device)).cpu())
        self.a = torch.cat(found)
        self._row = {key: number for number, key in enumerate(keys)}

    def read(self, keys: Sequence[str]) -> Tensor:
        """The named images' annotation vectors: (B, L, D)."""
        return self.a[[self._row[key] for key in keys]]
