"""Compare two results, and describe the first difference in one line."""

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor


def difference(
    expected: Any, got: Any, tolerance: float = 1e-4, parts: Sequence[str] = ()
) -> str | None:
    """Describe the first difference between two results in one line; None if they are equal.

    Results are tensors, numbers, strings, and lists, tuples and dicts of them. A number equals a tensor without axes, a list a tuple,
    and float32 may stand for float64. The tolerance is relative to the largest expected number; `parts` names a sequence's elements.
    """
    try:
        return _difference(expected, got, tolerance, "", parts)
    except Exception as error:  # a learner's object may raise anything when it is inspected
        return f"{kind(got)} that cannot be compared: {type(error).__name__}"


def _difference(
    expected: Any, got: Any, tolerance: float, where: str, parts: Sequence[str] = ()
) -> str | None:
    """`difference` of a part of two results, which the message calls `where`."""
    of = f"{where}: " if where else ""
    if isinstance(expected, (Tensor, Number, np.bool_)) and not isinstance(expected, str):
        problem = _not_numbers(expected, got)
        if problem:
            return of + problem
        return _values(torch.as_tensor(expected), torch.as_tensor(got), tolerance, of)
    if isinstance(expected, str):
        return (
            None
            if isinstance(got, str) and expected == got
            else f"{of}expected {expected!r}, got {short(got)}"
        )
    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            return f"{of}expected a dict, got {kind(got)}"
        pairs = [(str(key), expected[key], got[key]) for key in expected]
    elif isinstance(expected, Sequence):
        if isinstance(got, (str, Tensor, np.ndarray)) or not isinstance(got, Sequence):
            return f"{of}expected {kind(expected)} of {len(expected)}, got {kind(got)}"
        if all(isinstance(text, str) for text in expected):
            return (
                None
                if list(expected) == list(got)
                else f"{of}expected {short(expected)}, got {short(got)}"
            )
        if len(expected) != len(got):
            return f"{of}expected {len(expected)} elements, got {len(got)}: {short(got)}"
        names = parts or [f"number {i}" for i in range(len(expected))]
        pairs = list(zip(names, expected, got, strict=True))
    else:
        return None if expected == got else f"{of}expected {short(expected)}, got {short(got)}"
    for name, one, other in pairs:
        problem = _difference(one, other, tolerance, f"{where}, {name}" if where else name)
        if problem:
            return problem
    return None


def _not_numbers(expected: Any, got: Any) -> str | None:
    """Describe a wrong type or shape of a number or tensor; None if they are right."""
    if isinstance(expected, bool) and isinstance(got, Number) and got not in (0, 1):
        return f"expected True or False, got {short(got)}"
    shape = tuple(expected.shape) if isinstance(expected, Tensor) else ()
    if not isinstance(got, (Tensor, Number, np.bool_, np.number)):
        wanted = f"a tensor of shape {shape}" if isinstance(expected, Tensor) else "a number"
        hint = "; is a return missing?" if got is None else ""
        return f"expected {wanted}, got {kind(got)}{hint}"
    got_shape = tuple(got.shape) if isinstance(got, Tensor) else ()
    if got_shape != shape:
        return f"wrong shape: expected {shape}, got {got_shape}"
    if shape and isinstance(got, Tensor) and isinstance(expected, Tensor):
        kinds = {(x.dtype == torch.bool, x.is_floating_point()) for x in (expected, got)}
        return (
            None
            if len(kinds) == 1
            else f"expected a tensor of {expected.dtype}, got one of {got.dtype}"
        )
    return None


def _values(expected: Tensor, got: Tensor, tolerance: float, of: str) -> str | None:
    """Describe the value that differs most, after the prefix `of`; None if all are within the tolerance."""
    show = bool if expected.dtype == torch.bool else "{:.5g}".format
    expected, got = expected.detach().double(), got.detach().double()
    finite = expected[expected.isfinite()]
    scale = max(1e-2, finite.abs().max().item()) if finite.numel() else 1.0
    off = ~torch.isclose(got, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if not off.any():
        return None
    distance = torch.where(off, (got - expected).abs(), 0.0).nan_to_num(nan=torch.inf)
    worst = torch.unravel_index(distance.argmax(), distance.shape)
    at = f" at {[int(index) for index in worst]}" if worst else ""
    share = f"; {int(off.sum())} of {off.numel()} values are off" if off.numel() > 1 else ""
    return f"{of}wrong value{at}: expected {show(expected[worst])}, got {show(got[worst])}{share}"


def kind(value: Any) -> str:
    """A value's type in words."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a numpy array of shape {value.shape}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def short(value: Any, most: int = 120) -> str:
    """A value's repr on one line, cut off at `most` characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 4] + " ..."
