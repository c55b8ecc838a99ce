"""A learner's own attention in satlib's decoder: `satlib train scenes-soft --attention my_notebook.ipynb:attend`.

The function is that of exercise 4.3: attend(e, a) takes energies e (B, L) and annotation vectors a (B, L, D) and returns context
vectors z (B, D) and weights alpha (B, L). It replaces the softmax and the weighted mean; the energies remain satlib's and are
trained through it.
"""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from satlib.errors import SatlibError
from satlib.files.reading import read_json
from satlib.model.attention import AttentionOutput, Energy, SoftAttention
from satlib.model.captioner import Captioner

Attend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


class PluggedAttention(SoftAttention):
    """Soft attention whose weights and context vectors a given function computes from the energies."""

    def __init__(self, energy: Energy, attend: Attend) -> None:
        super().__init__(energy)
        self.attend = attend

    def forward(self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None) -> AttentionOutput:
        """Attend to a (B, L, D) in state h (B, n)."""
        return AttentionOutput(*self.attend(self.energy(keys, h), a))


def load(place: str) -> Attend:
    """Load an attention from a Python file or a notebook, and check it on small tensors.

    Args:
        place: FILE:FUNCTION.

    Raises:
        SatlibError: the file or function does not exist, or its results are not those of an attention.
    """
    attend = function(place)
    _try(attend, place)
    return attend


def function(place: str) -> Callable[..., Any]:
    """Load a function from a Python file or a notebook.

    A Python file is run as a whole. Of a notebook, only imports, definitions and assignments of constants are run; other
    statements, also assignments that call a function or use another name, are left out, and so are checks. The last definition of
    a name counts. Catch-up cells are run too, as in the notebook, except one that would replace the function itself.

    Args:
        place: FILE:FUNCTION.

    Raises:
        SatlibError: the file or function does not exist.
    """
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not file or not name.isidentifier() or path.suffix not in (".py", ".ipynb"):
        raise SatlibError(f"a function is given as FILE.py:FUNCTION or FILE.ipynb:FUNCTION, not as {place!r}")
    if not path.is_file():
        raise SatlibError(f"{path} does not exist; check the path")
    names: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    try:
        _run(path, name, names)
    except SatlibError:
        raise
    except Exception as error:
        raise SatlibError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    if not callable(names.get(name)):
        raise SatlibError(f"{path} defines no function {name}()")
    return names[name]


def _run(path: Path, wanted: str, names: dict[str, Any]) -> None:
    """Run a Python file, or a notebook's statements one by one; the names that they define are put into `names`."""
    if path.suffix == ".py":
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
        return
    for statement in _statements(path, wanted):
        try:
            exec(compile(ast.Module([statement], []), str(path), "exec"), names)
        except NameError:  # a default value of another function may be something that the notebook has computed
            if not isinstance(statement, ast.FunctionDef) or statement.name == wanted:
                raise


def _statements(path: Path, wanted: str) -> list[ast.stmt]:
    """What is run of a notebook: its definitions, and what its catch-up cells say of other functions."""
    body: list[ast.stmt] = []
    notebook = read_json(path, dict[str, Any], "a notebook")
    for cell in notebook["cells"] if isinstance(notebook, dict) and "cells" in notebook else []:
        metadata = cell.get("metadata", {})
        role = metadata.get("satlib", {}).get("role")
        if cell["cell_type"] != "code" or role == "check" or "install" in metadata.get("tags", ()):
            continue
        lines = [line for line in "".join(cell["source"]).splitlines() if not line.startswith(("%", "!"))]
        try:
            statements = ast.parse("\n".join(lines)).body
        except SyntaxError as error:
            raise SatlibError(
                f"{path} has a cell that is not Python: {error.msg}: {(error.text or '').strip()}"
            ) from error
        if role == "catch-up":
            body += [node for node in statements if not _assigns(node, wanted)]
        else:
            body += [node for node in statements if isinstance(node, _DEFINITIONS) and _is_plain(node)]
    return body


def _assigns(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Assign) and any(
        isinstance(each, ast.Name) and each.id == name for each in statement.targets
    )


def _is_plain(statement: ast.stmt) -> bool:
    """Whether a statement is an import, a definition, or an assignment to names, without calls and names."""
    if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return True
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if any(isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets):
        return False
    return not any(isinstance(node, (ast.Call, ast.Name)) for node in ast.walk(statement.value or ast.Constant(0)))


def _try(attend: Attend, place: str) -> None:
    """Check shapes, values and the gradient on small tensors, before hours of training.

    Raises:
        SatlibError: the results are not those of an attention.
    """
    B, L, D = 3, 5, 4
    generator = torch.Generator().manual_seed(0)
    e, a = torch.randn(B, L, generator=generator).requires_grad_(), torch.randn(B, L, D, generator=generator)
    try:
        result = attend(e, a)
    except Exception as error:
        raise SatlibError(f"{place} raises {type(error).__name__} for e {(B, L)} and a {(B, L, D)}: {error}") from error
    if (
        not isinstance(result, (tuple, list))
        or len(result) != 2
        or not all(isinstance(part, Tensor) for part in result)
    ):
        raise SatlibError(f"{place} must return two tensors, (z, alpha), not {type(result).__name__}")
    for name, tensor, shape in (("z", result[0], (B, D)), ("alpha", result[1], (B, L))):
        if tuple(tensor.shape) != shape:
            raise SatlibError(
                f"{place} returns {name} of shape {tuple(tensor.shape)}; for e {(B, L)} and a {(B, L, D)} it must be {shape}"
            )
        if not torch.isfinite(tensor).all():
            raise SatlibError(f"{place} returns {name} with NaN or infinity")
    gradient = torch.autograd.grad(result[0].sum(), e, allow_unused=True)[0] if result[0].requires_grad else None
    if gradient is None or not gradient.any():
        raise SatlibError(f"{place} passes no gradient to the energies, so the attention could not be trained")


def plug(captioner: Captioner, attend: Attend, place: str) -> None:
    """Replace the softmax and weighted mean of a captioner by a function; `place` (FILE:FUNCTION) is saved with the model.

    Raises:
        SatlibError: the captioner has no soft attention.
    """
    attention = captioner.decoder.attention
    if not isinstance(attention, SoftAttention):
        raise SatlibError(
            '--attention replaces soft attention: choose a recipe with decoder.attention = "soft" and decoder.kind = "lstm"'
        )
    captioner.decoder.attention = PluggedAttention(attention.energy, attend)
    captioner.own_attention = place
