"""An encoder without weights: an annotation vector holds the pixels of its location, averaged to 4 x 4 points of three colours.

It costs almost no computation, so training on it takes seconds. It encodes colours and sizes, but hardly any shapes.
Importing this module registers it with `satlib.model.encoders.create`.
"""

from torch import nn

from satlib.model import encoders

NAME = "patches"


def build(pretrained: bool) -> encoders.Encoder:
    """Images (B, 3, 224, 224) -> (B, 48, 7, 7); it has no weights, so `pretrained` has no effect."""
    return encoders.Encoder(nn.Sequential(nn.AdaptiveAvgPool2d(28), nn.PixelUnshuffle(4)))


encoders.register(NAME, build)
