"""Annotation vectors in memory: for a few hundred images, what a `FeatureStore` is on disk for
thousands.

A decoder then trains in seconds: as in the paper (section 4.3), the encoder runs once and not at
every step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from satlib.data.features import Reader
from satlib.model.captioner import Captioner


class Vectors:
    """The annotation vectors of images by image id: a `features.Reader`, from which a decoder can
    be trained.

    a: annotation vectors (N, L, D) before `encoder.scale`, on the CPU.
    """

    @torch.no_grad()
    def __init__(
        self, captioner: Captioner, reader: Reader, image_ids: Sequence[str], batch_size: int = 20
    ) -> None:
        vectors = []
        for start in range(0, len(image_ids), batch_size):
            pixels = reader.read(image_ids[start : start + batch_size])
            # On the CPU, which has more room than a GPU.
            vectors.append(captioner.encoder(pixels.to(captioner.device)).cpu())
        self.a = torch.cat(vectors)
        self._row = {image_id: number for number, image_id in enumerate(image_ids)}

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The annotation vectors of the named images: (B, L, D)."""
        rows = [self._row[image_id] for image_id in image_ids]
        return self.a[rows]
