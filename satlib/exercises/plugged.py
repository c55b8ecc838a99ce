"""A learner's own attention in satlib's decoder: `satlib train scenes-soft --attention my_notebook.ipynb:attend`.

The function is that of exercise 4.8: attend(e, a) takes energies e (B, L) and annotation vectors a (B, L, D) and gives context
vectors z (B, D) and weights alpha (B, L). It stands in the place of softmax and weighted mean; the energies stay satlib's, and learn through it.
"""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from satlib.attention import Look, SoftAttention
from satlib.captioner import Captioner
from satlib.errors import SatlibError
from satlib.files import read_json

Attend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_KEPT = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


class PluggedAttention(SoftAttention):
    """Soft attention whose weights and context vectors somebody else computes from the energies."""

    def __init__(self, energy: nn.Module, attend: Attend) -> None:
        super().__init__(energy)
        self.attend = attend

    def forward(self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None) -> Look:
        """Look at a (B, L, D) in state h (B, n)."""
        return Look(*self.attend(self.energy(keys, h), a))


def load(place: str) -> Attend:
    """A function of a Python file or a notebook, checked on small tensors.

    Of a notebook, imports and definitions are taken and nothing else is run; what is defined twice counts as it was last, and cells
    that satlib put into its exercises (checks, and the names given to satlib's own functions) do not count.

    Args:
        place: FILE:FUNCTION.

    Raises:
        SatlibError: no such file or function, or it does not give what an attention gives.
    """
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not file or not name.isidentifier() or path.suffix not in (".py", ".ipynb"):
        raise SatlibError(f"--attention takes FILE.py:FUNCTION or FILE.ipynb:FUNCTION, not {place!r}")
    if not path.is_file():
        raise SatlibError(f"{path} does not exist; check the path")
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        exec(compile(_code(path), str(path), "exec"), names)
    except SatlibError:
        raise
    except Exception as error:
        raise SatlibError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    attend = names.get(name)
    if not callable(attend):
        raise SatlibError(f"{path} defines no function {name}()")
    _try(attend, f"{path}:{name}")
    return attend


def _code(path: Path) -> str | ast.Module:
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    body: list[ast.stmt] = []
    notebook = read_json(path)
    for cell in notebook["cells"] if isinstance(notebook, dict) and "cells" in notebook else []:
        metadata = cell.get("metadata", {})
        if cell["cell_type"] != "code" or metadata.get("satlib", {}).get("role") in ("check", "catch-up"):
            continue
        if "install" in metadata.get("tags", ()):
            continue
        lines = [line for line in "".join(cell["source"]).splitlines() if not line.startswith(("%", "!"))]
        try:
            body += [each for each in ast.parse("\n".join(lines)).body if isinstance(each, _KEPT) and _is_plain(each)]
        except SyntaxError as error:
            raise SatlibError(
                f"{path} has a cell that is not Python: {error.msg}: {(error.text or '').strip()}"
            ) from error
    return ast.Module(body, [])


def _is_plain(statement: ast.stmt) -> bool:
    """A definition; of assignments those of constants alone, which run nothing."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return True
    return not any(isinstance(node, (ast.Call, ast.Name)) for node in ast.walk(statement.value or ast.Constant(0)))


def _try(attend: Attend, place: str) -> None:
    """Shapes, numbers and a gradient, before hours are spent.

    Raises:
        SatlibError: it is not an attention.
    """
    B, L, D = 3, 5, 4
    generator = torch.Generator().manual_seed(0)
    e, a = torch.randn(B, L, generator=generator).requires_grad_(), torch.randn(B, L, D, generator=generator)
    try:
        given = attend(e, a)
    except Exception as error:
        raise SatlibError(f"{place} raises {type(error).__name__} for e {(B, L)} and a {(B, L, D)}: {error}") from error
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(isinstance(each, Tensor) for each in given):
        raise SatlibError(f"{place} must give two tensors, (z, alpha), not {type(given).__name__}")
    for name, found, wanted in (("z", given[0], (B, D)), ("alpha", given[1], (B, L))):
        if tuple(found.shape) != wanted:
            raise SatlibError(
                f"{place} gives {name} of shape {tuple(found.shape)}; for e {(B, L)} and a {(B, L, D)} it must be {wanted}"
            )
        if not torch.isfinite(found).all():
            raise SatlibError(f"{place} gives {name} with NaN or infinity")
    gradient = torch.autograd.grad(given[0].sum(), e, allow_unused=True)[0] if given[0].requires_grad else None
    if gradient is None or not gradient.any():
        raise SatlibError(f"{place} lets no gradient through to the energies: nothing would learn where to look")


def plug(captioner: Captioner, attend: Attend, place: str) -> None:
    """Put a function in the place of a captioner's softmax and weighted mean; `place` (FILE:FUNCTION) goes into the model's file.

    Raises:
        SatlibError: it has no soft attention.
    """
    attention = captioner.decoder.attention
    if not isinstance(attention, SoftAttention):
        raise SatlibError(
            '--attention takes the place of soft attention: choose a recipe with decoder.attention = "soft"'
        )
    captioner.decoder.attention = PluggedAttention(attention.energy, attend)
    captioner.own_attention = place
