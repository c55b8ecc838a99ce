"""Does a device compute what the CPU computes? One batch of drawn scenes through an untrained captioner, forward and backward.

PyTorch has had faults on Apple's GPUs that gave wrong numbers without an error. So `--device auto` takes MPS only if this agrees.
"""

import functools
import math

import torch
from torch import Tensor

from satlib import recipe
from satlib.data import images, scenes
from satlib.data.text import Vocabulary
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.model.objective import doubly_stochastic_penalty, negative_log_likelihood

WORDS = 60
TOLERANCE = 0.02  # rounding alone gives up to 0.001, between one CPU thread and two


def agrees(kind: str) -> bool:
    """Whether a device that is available computes what the CPU computes."""
    return difference(kind) <= TOLERANCE


@functools.cache
def difference(kind: str) -> float:
    """The greatest difference of the loss and of any gradient, as a share of the tensor's greatest number on the CPU.

    Gradients below a thousandth of the greatest are rounding alone, and compared with that thousandth.

    Args:
        kind: a device that is available, such as "mps".

    Returns:
        1e-5 to 1e-3 for rounding in float32; infinity if the device gave something that is no number, or an error.
    """
    expected = values("cpu")
    try:
        found = values(kind)
    except RuntimeError:  # an operation that the device does not have
        return math.inf
    least = max(each.abs().max().item() for each in expected[1:]) / 1000
    shares = [
        (a - b).abs().max().item() / max(a.abs().max().item(), least) for a, b in zip(expected, found, strict=True)
    ]
    return max(share if math.isfinite(share) else math.inf for share in shares)


def model(words: int) -> Captioner:
    """The captioner of the recipe scenes-soft, which has no dropout, with random weights and so many words."""
    vocabulary = Vocabulary.from_captions([" ".join(f"word{i}" for i in range(words))], words, 1)
    return Captioner(recipe.load("scenes-soft"), vocabulary, encoders.create("small", pretrained=False)).train()


def values(kind: str) -> list[Tensor]:
    """The loss of one batch and the gradient of each weight, computed on a device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        captioner = model(WORDS)
        captions = torch.randint(4, WORDS, (4, 12))
    pixels = torch.stack([images.to_tensor(scenes.scene(f"train-{i:06}").photo()) for i in range(len(captions))])
    captioner, pixels, captions = captioner.to(kind), pixels.to(kind), captions.to(kind)
    output = captioner.decoder(captioner.annotations(pixels), captions)
    losses = negative_log_likelihood(output.logits, captions) + doubly_stochastic_penalty(output.alphas)
    loss = losses.mean()
    loss.backward()
    gradients = [weight.grad for weight in captioner.parameters() if weight.grad is not None]
    return [each.detach().cpu() for each in (loss, *gradients)]
