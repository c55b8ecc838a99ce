"""Annotation vectors in memory: for a few hundred images what a `FeatureStore` is on disk for thousands.

With them a decoder trains in seconds, as in the paper (section 4.3): the encoder's work is done once and not at every step.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from satlib.captioner import Captioner
from satlib.features import Reader


class Vectors:
    """What a captioner's encoder makes of images, by image id; a `features.Reader`, so that it can be trained from.

    Attributes:
        a: annotation vectors (N, L, D) before `encoder.scale`, on the CPU.
    """

    def __init__(self, captioner: Captioner, reader: Reader, image_ids: Sequence[str], batch_size: int = 20) -> None:
        """Encode some images.

        Args:
            captioner: in evaluation mode.
            reader: of their pixels.
            image_ids: each once.
            batch_size: how many at a time.
        """
        found = []
        with torch.no_grad():
            for start in range(0, len(image_ids), batch_size):
                images = reader.read(image_ids[start : start + batch_size])
                found.append(captioner.encoder(images.to(captioner.device)).cpu())
        self.a = torch.cat(found)
        self._row = {image_id: number for number, image_id in enumerate(image_ids)}

    def read(self, image_ids: Sequence[str]) -> Tensor:
        """The named images' annotation vectors: (B, L, D)."""
        return self.a[[self._row[image_id] for image_id in image_ids]]
