"""A learner's own attention in satlib's decoder: `satlib train scenes-soft --attention mine.py:attend`.

The function is that of exercise 4.3: from energies e (B, L) and annotation vectors a (B, L, D) to context vectors z (B, D) and
weights alpha (B, L). The energies remain satlib's and are trained through it. A notebook writes it into a file by %%writefile.
"""

import runpy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from satlib.errors import SatlibError
from satlib.model.attention import AdditiveEnergy, AttentionOutput, SoftAttention
from satlib.model.captioner import Captioner

Attend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class PluggedAttention(SoftAttention):
    """Soft attention whose weights and context vectors a given function computes."""

    def __init__(self, energy: AdditiveEnergy, attend: Attend) -> None:
        super().__init__(energy)
        self.attend = attend

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> AttentionOutput:
        """Attend to a (B, L, D) in state h (B, n)."""
        return AttentionOutput(*self.attend(self.energy(keys, h), a))


def load(place: str) -> Attend:
    """The function FILE.py:FUNCTION, tried on small tensors before hours of training."""
    file, _, name = place.rpartition(":")
    if not (file.endswith(".py") and Path(file).is_file()):
        raise SatlibError(
            f"a function is given as FILE.py:FUNCTION, not as {place!r}; a notebook writes one by %%writefile"
        )
    attend = runpy.run_path(file).get(name)
    if attend is None:
        raise SatlibError(f"{file} defines no function {name}()")
    B, L, D = 3, 5, 4
    z, alpha = attend(torch.randn(B, L), torch.randn(B, L, D))
    if z.shape != (B, D) or alpha.shape != (B, L):
        wanted, got = f"z {(B, D)} and alpha {(B, L)}", f"{tuple(z.shape)} and {tuple(alpha.shape)}"
        raise SatlibError(
            f"{place} must return {wanted} for e {(B, L)} and a {(B, L, D)}, not {got}"
        )
    return attend


def plug(captioner: Captioner, attend: Attend, place: str) -> None:
    """Replace a captioner's softmax and weighted mean by a function; `place` (FILE:FUNCTION) is saved with the model."""
    attention = captioner.decoder.attention
    if not isinstance(attention, SoftAttention):
        raise SatlibError(
            '--attention replaces soft attention of an LSTM: choose a recipe with decoder.attention = "soft"'
        )
    captioner.decoder.attention = PluggedAttention(attention.energy, attend)
    captioner.own_attention = place
