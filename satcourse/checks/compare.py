"""Compare two results, and describe the first difference in one line."""

import contextlib
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

    Results are tensors, numbers, strings, and lists, tuples and dicts of them. A number equals a
    tensor without axes, a list a tuple, and float32 may stand for float64. A number may be off by
    the tolerance times the sum of two: its own expected size, and that of the largest number
    expected in its tensor, or 0.01 if all are smaller. `parts` names a sequence's elements.
    """
    try:
        return _difference(expected, got, tolerance, "", parts)
    except Exception as error:  # a learner's object may raise anything when it is inspected
        return f"{kind(got)} that cannot be compared: {type(error).__name__}"


def _difference(
    expected: Any, got: Any, tolerance: float, where: str, parts: Sequence[str] = ()
) -> str | None:
    """`difference` of a part of two results, which the message calls `where`."""
    got = _converted(expected, got)
    problem = _problem(expected, got, tolerance)
    if problem:
        return f"{where}: {problem}" if where else problem

    for name, one, other in _elements(expected, got, parts):
        problem = _difference(one, other, tolerance, f"{where}, {name}" if where else name)
        if problem:
            return problem
    return None


def _converted(expected: Any, got: Any) -> Any:
    """The same numbers as a tensor, a list or a number, where one of these is expected."""
    if isinstance(got, np.ndarray) and not got.ndim:
        return got.item()
    has_rows = isinstance(got, (np.ndarray, Tensor)) and got.ndim > 0
    # Not a tuple of tensors: its elements are no rows.
    if has_rows and (isinstance(expected, list) or _is_flat(expected)):
        return [*got]
    has_elements = isinstance(got, (list, tuple, np.ndarray)) and len(got) > 0
    if isinstance(expected, Tensor) and has_elements:
        with contextlib.suppress(TypeError, ValueError):  # no numbers, or rows of unequal lengths
            return torch.as_tensor(got)
    return got


def _is_flat(value: Any) -> bool:
    """Whether a value is a tuple in which nothing has axes, as in one of numbers."""
    return isinstance(value, tuple) and not any(getattr(each, "ndim", 0) for each in value)


def _problem(expected: Any, got: Any, tolerance: float) -> str | None:
    """Describe a wrong value, or a wrong container whatever its elements; None if it is right."""
    if isinstance(expected, (Tensor, Number, np.bool_)):
        problem = _not_numbers(expected, got)
        return problem or _values(torch.as_tensor(expected), torch.as_tensor(got), tolerance)

    if isinstance(expected, Mapping):
        if not isinstance(got, Mapping):
            return f"expected a dict, got {kind(got)}"
        return None if {*expected} == {*got} else f"expected the keys {[*expected]}, got {[*got]}"

    # Before the sequences, since a string is one.
    if isinstance(expected, str):
        equal = isinstance(got, str) and expected == got
        return None if equal else f"expected {expected!r}, got {short(got)}"

    if isinstance(expected, Sequence):
        return _not_such_a_sequence(expected, got)

    return None if expected == got else f"expected {short(expected)}, got {short(got)}"


def _not_such_a_sequence(expected: Sequence[Any], got: Any) -> str | None:
    """Describe a wrong type or length of a sequence, or wrong words; None if they are right."""
    # A string is a sequence, too.
    if isinstance(got, str) or not isinstance(got, Sequence):
        return f"expected {kind(expected)} of {len(expected)}, got {kind(got)}"
    if _words(expected):
        equal = list(expected) == list(got)
        return None if equal else f"expected {short(expected)}, got {short(got)}"
    if len(expected) != len(got):
        # The repr of a tensor is numbers without end.
        elements = "" if "tensor(" in repr(got) else f": {short(got)}"
        return f"expected {len(expected)} elements, got {len(got)}{elements}"
    return None


def _words(sequence: Sequence[Any]) -> bool:
    """Whether all elements are strings: such a list is shown whole, as a caption would be."""
    return all(isinstance(element, str) for element in sequence)


def _elements(expected: Any, got: Any, parts: Sequence[str]) -> list[tuple[str, Any, Any]]:
    """The name of each element of two results, and what it is in either.

    [] if they have none, and of words, which are compared whole.
    """
    if isinstance(expected, Mapping):
        return [(str(key), expected[key], got[key]) for key in expected]
    if isinstance(expected, Sequence) and not _words(expected):
        names = parts or [f"number {i}" for i in range(len(expected))]
        return list(zip(names, expected, got, strict=True))
    return []


def named(expected: Any, got: Any, parts: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """The parts of two results by their names; {} if they have none, or not the same ones."""
    got = _converted(expected, got)
    has_names = parts or isinstance(expected, Mapping)
    if not has_names or _problem(expected, got, 0.0):
        return {}
    return {name: (one, other) for name, one, other in _elements(expected, got, parts)}


def _not_numbers(expected: Any, got: Any) -> str | None:
    """Describe a wrong type or shape of a number or tensor; None if they are right."""
    # 3 is not equal to True, but would be shown as True.
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

    # A single number may be a bool or an int, a tensor or none: `_values` compares it as 0 or 1.
    both_tensors = isinstance(expected, Tensor) and isinstance(got, Tensor)
    if shape and both_tensors and _dtype_kind(expected) != _dtype_kind(got):
        return f"expected a tensor of {expected.dtype}, got one of {got.dtype}"
    return None


def _dtype_kind(x: Tensor) -> str:
    """What a tensor holds, whatever the number of bits."""
    if x.dtype == torch.bool:
        return "truths"
    return "fractions" if x.is_floating_point() else "integers"


def _values(expected: Tensor, got: Tensor, tolerance: float) -> str | None:
    """Describe the value that differs most; None if all are within the tolerance."""
    are_truths = expected.dtype == torch.bool
    expected = expected.detach().double()
    got = got.detach().double()

    # At least 0.01: rounding errors of numbers that should all be 0 are no difference.
    finite = expected[expected.isfinite()].abs()
    scale = max(1e-2, finite.max().item()) if finite.numel() else 1.0
    off = ~torch.isclose(got, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if not off.any():
        return None

    # Where only one of them is a NaN, nothing is farther apart.
    distance = (got - expected).abs().nan_to_num(nan=torch.inf)
    distance = torch.where(off, distance, 0.0)
    worst = torch.unravel_index(distance.argmax(), distance.shape)
    at = f" at {[int(index) for index in worst]}" if worst else ""
    share = f"; {int(off.sum())} of {off.numel()} values are off" if off.numel() > 1 else ""
    values = expected[worst], got[worst]
    right, wrong = [bool(value) if are_truths else f"{value:.5g}" for value in values]
    return f"wrong value{at}: expected {right}, got {wrong}{share}"


def kind(value: Any) -> str:
    """A value's type in words."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"a numpy array of shape {value.shape}"
    name = type(value).__name__
    article = "an" if name[0].lower() in "aeiou" else "a"
    return f"{article} {name}"


def short(value: Any, most: int = 120) -> str:
    """A value's repr on one line, cut off at `most` characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= most else text[: most - 4] + " ..."
