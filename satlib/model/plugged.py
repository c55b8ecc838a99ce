"""An attention of your own, from a file: `satlib train scenes-soft --attention mine.py:attend`.

NAME is a function or a class. The function is that of exercise 4.3: from energies e (B, L) and
annotation vectors a (B, L, D) to context vectors z (B, D) and weights alpha (B, L); the energies
remain satlib's and are trained through it. The class is an `Attention` with weights of its own,
made by NAME(D, n, width); it is registered under its name, which becomes the recipe's
`decoder.attention`. A notebook writes the file with %%writefile.
"""

import runpy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from satlib.errors import SatlibError
from satlib.model.attention import AdditiveEnergy, Attention, AttentionOutput, SoftAttention
from satlib.model.captioner import Captioner

Attend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


class PluggedAttention(SoftAttention):
    """Soft attention whose weights and context vectors a given function computes."""

    def __init__(self, energy: AdditiveEnergy, attend: Attend) -> None:
        super().__init__(energy)
        self.attend = attend

    def weights(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The function's weights; nothing is drawn."""
        _, alpha = self.attend(self.energy(keys, h), a)
        return alpha, None

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> AttentionOutput:
        """The function's weights and its own context vector, which need not be their mean."""
        z, alpha = self.attend(self.energy(keys, h), a)
        return AttentionOutput(z, alpha)


def load(place: str) -> Attend | type[Attention]:
    """The function or the class FILE.py:NAME, tried on small tensors before hours of training.

    Raises:
        SatlibError: there is no such file or name, or what it returns has other shapes.
    """
    file, _, name = place.rpartition(":")
    if not file.endswith(".py"):
        raise SatlibError(
            f"an attention is given as FILE.py:NAME, not as {place!r}; "
            "a notebook writes one by %%writefile"
        )
    if not Path(file).is_file():
        raise SatlibError(
            f"the file {file} of --attention does not exist; name the one that has {name}"
        )
    found = runpy.run_path(file).get(name)
    if found is None:
        raise SatlibError(f"{file} defines no function or class {name}")

    B, L, D, n, width = 3, 5, 4, 6, 8
    if not isinstance(found, type):
        made = PluggedAttention(AdditiveEnergy(D, n, width), found)
    elif issubclass(found, Attention):
        made = found(D, n, width)
    else:
        raise SatlibError(f"{place} is not a satlib.model.attention.Attention; derive it from that")

    a = torch.randn(B, L, D)
    z, alpha, _ = made(a, made.keys(a), torch.randn(B, n))
    if z.shape != (B, D) or alpha.shape != (B, L):
        wanted = f"z {(B, D)} and alpha {(B, L)}"
        got = f"{tuple(z.shape)} and {tuple(alpha.shape)}"
        raise SatlibError(f"{place} must return {wanted} for a {(B, L, D)}, not {got}")
    return found


def plug(captioner: Captioner, attend: Attend, place: str) -> None:
    """Replace a captioner's softmax and weighted mean by a function.

    place: FILE:FUNCTION, saved with the model.
    """
    soft = captioner.decoder.attention
    if captioner.recipe.decoder.attention != "soft" or not isinstance(soft, SoftAttention):
        raise SatlibError(
            "--attention replaces soft attention of an LSTM: choose a recipe with "
            'decoder.attention = "soft"'
        )
    captioner.decoder.attention = PluggedAttention(soft.energy, attend)
    captioner.own_attention = place
