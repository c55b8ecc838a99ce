"""What a learner's results have to do with the right ones: the wrong sign, twice as large, a row late, in another order.

A task's list of mistakes cannot foresee all of them. A relation is said only if it holds for every result of the trials that
differs, so it is a fact about the results, never a guess at the line of code.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from satcourse.exercises.compare import same

FEWEST = 3  # distinct numbers: fewer may be related by chance

# Said of a right value x and the learner's y: y = f(x) for all of them.
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "every value has the wrong sign": torch.neg,
    "every value is 1 minus the expected one": lambda x: 1 - x,
    "every value is the square of the expected one": torch.square,
    "every value is the square root of the expected one": torch.sqrt,
    "every value is 1 divided by the expected one": torch.reciprocal,
    "every value is the exponential of the expected one": torch.exp,
    "every value is the logarithm of the expected one": torch.log,
    "every value is the absolute value of the expected one": torch.abs,
    "every value is the expected one, rounded": torch.round,
}
_FACTORS = {
    1 / math.log(2): "a logarithm to the base 2 in place of the natural one makes that factor",
    math.log(2): "a natural logarithm in place of one to the base 2 makes that factor",
}


def relation(pairs: Sequence[tuple[Any, Any]], tolerance: float = 1e-4) -> str | None:
    """What holds between the right results and a learner's, in one sentence; None if nothing simple does.

    Args:
        pairs: for each trial the right result and the learner's: numbers, tensors, strings, and lists, tuples and dicts of them.
        tolerance: for numbers, relative to the largest right one.
    """
    try:
        differing = [(right, got) for right, got in map(_plain, pairs) if not same(right, got, tolerance)]
        if not differing:
            return None
        if all(isinstance(value, Tensor) for pair in differing for value in pair):
            return next(_of_tensors(differing, tolerance), None)
        if all(isinstance(value, (list, str)) for pair in differing for value in pair):
            return next(_of_sequences(differing), None)
        return None
    except Exception:  # a learner's object may raise anything when it is inspected
        return None


def _plain(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """A pair whose numbers are tensors and whose tuples are lists; of two collections, their first parts that differ."""
    right, got = map(_value, pair)
    if isinstance(right, Mapping) and isinstance(got, Mapping) and right.keys() == got.keys():
        right, got = list(right.values()), [got[key] for key in right]
    nested = (list, tuple, Mapping, Tensor)
    if isinstance(right, list) and isinstance(got, list) and len(right) == len(got):
        parts = [_plain(part) for part in zip(right, got, strict=True)]
        if any(isinstance(part, nested) for part in right):
            return next((part for part in parts if not same(*part, 1e-4)), (0, 0))
    return right, got


def _value(value: Any) -> Any:
    if isinstance(value, (Tensor, Number, np.number, np.ndarray)):
        return torch.as_tensor(value).detach().double()
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(part, float) for part in value):
            return torch.tensor(value, dtype=torch.double)
        return list(value)
    return value


def _close(one: Tensor, other: Tensor, scale: Tensor, tolerance: float) -> bool:
    """Whether two tensors are equal but for a tolerance relative to the largest of `scale`."""
    finite = scale[scale.isfinite()].abs()
    most = max(1e-8, finite.max().item()) if finite.numel() else 1.0
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * most, equal_nan=True)


def _of_tensors(pairs: list[tuple[Tensor, Tensor]], tolerance: float) -> Iterator[str]:
    """All relations between tensors that hold, the plainest first."""

    def holds(change: Callable[[Tensor], Tensor], of_got: bool = False) -> bool:
        """Whether the changed right tensors are the learner's, or with `of_got` the learner's changed the right ones."""
        for right, got in pairs:
            try:
                one, other = (right, change(got)) if of_got else (got, change(right))
            except (RuntimeError, IndexError):  # no such axis
                return False
            if one.shape != other.shape or not one.isfinite().all() or not _close(one, other, one, tolerance):
                return False
        return True

    rights, gots = (torch.cat([pair[side].flatten() for pair in pairs]) for side in (0, 1))
    if rights[rights.isfinite()].unique().numel() < FEWEST or gots.unique().numel() < 2:
        return
    axes = range(max(right.dim() for right, _ in pairs))
    if all(right.shape == got.shape for right, got in pairs):
        yield from (words for words, function in _FUNCTIONS.items() if holds(function))
        yield from _scaled(pairs, tolerance)
        for axis in axes:
            if holds(lambda x, axis=axis: x.flip(axis)):
                yield f"the values are right, in reverse order{_along(axis, axes)}"
            for step, words in ((1, "one place too late"), (-1, "one place too early")):
                inner = slice(1, None) if step == 1 else slice(None, -1)
                if holds(lambda x, axis=axis, step=step: x.roll(step, axis)) or all(
                    right.size(axis) > 2
                    and _close(
                        right.roll(step, axis).transpose(0, axis)[inner],
                        got.transpose(0, axis)[inner],
                        right,
                        tolerance,
                    )
                    for right, got in pairs
                ):
                    yield f"the values are right, but {words}{_along(axis, axes)}"
    for order in permutations(axes):
        if len(axes) > 1 and list(order) != list(axes) and holds(lambda x, order=order: x.permute(order)):
            yield "the values are right, but axes are exchanged"
    for axis in axes:
        for name in ("sum", "mean"):
            if holds(lambda x, axis=axis, name=name: getattr(x, name)(axis)):
                yield f"this is the {name} of the expected values{_along(axis, axes)}: that axis should stay"
        for words, part in _ENDS.items():
            if holds(lambda x, axis=axis, part=part: part(x, axis)):
                yield f"{words}{_along(axis, axes)}"
    for axis in range(max(got.dim() for _, got in pairs)):
        if all(got.size(axis) == 1 for _, got in pairs) and holds(lambda x, axis=axis: x.squeeze(axis), of_got=True):
            yield f"the values are right, with an axis of size 1 too many (axis {axis})"
        for name in ("sum", "mean"):
            if holds(lambda x, axis=axis, name=name: getattr(x, name)(axis), of_got=True):
                yield f"the {name} of its values along axis {axis} is what is expected"
    if all(right.numel() == got.numel() for right, got in pairs):
        if all(right.shape != got.shape for right, got in pairs) and holds(lambda x: x.flatten()):
            yield "the values are right, in a tensor of another shape"
        if all(_close(right.flatten().sort()[0], got.flatten().sort()[0], right, tolerance) for right, got in pairs):
            yield "the values are right, but in other places"


_ENDS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "only the last ones are missing": lambda x, axis: x.narrow(axis, 0, x.size(axis) - 1),
    "only the first ones are missing": lambda x, axis: x.narrow(axis, 1, x.size(axis) - 1),
}


def _along(axis: int, axes: Sequence[int]) -> str:
    return f" along axis {axis}" if len(axes) > 1 else ""


def _scaled(pairs: list[tuple[Tensor, Tensor]], tolerance: float) -> Iterator[str]:
    """Whether one factor, or one summand, makes the right values the learner's."""
    right, got = (torch.cat([pair[side].flatten() for pair in pairs]) for side in (0, 1))
    if not (right.isfinite().all() and got.isfinite().all()):
        return
    factor = (right @ got / (right @ right)).item()
    if abs(factor) > tolerance and _close(got, factor * right, got, tolerance):
        reason = next((words for known, words in _FACTORS.items() if math.isclose(factor, known, rel_tol=1e-3)), None)
        yield f"every value is {factor:.4g} times the expected one" + (f": {reason}" if reason else "")
        return
    more = (got - right).mean().item()
    if _close(got - right, torch.full_like(right, more), right, tolerance):
        yield f"every value is {abs(more):.4g} too {'large' if more > 0 else 'small'}"
    factors = [(one @ other / (one @ one)).item() for one, other in ((a.flatten(), b.flatten()) for a, b in pairs)]
    if any(one.unique().numel() < FEWEST for one, _ in pairs) or min(map(abs, factors)) < tolerance:
        return
    if all(_close(other, by * one, other, tolerance) for (one, other), by in zip(pairs, factors, strict=True)):
        second = next(by for by in factors if not math.isclose(by, factors[0], rel_tol=1e-3))
        yield f"every value is {factors[0]:.4g} times the expected one, in another case {second:.4g} times"


def _of_sequences(pairs: list[tuple[Any, Any]]) -> Iterator[str]:
    """All relations between lists or strings that hold."""
    for words, change in {
        "the order is reversed": lambda x: x[::-1],
        "only its last element is missing": lambda x: x[:-1],
        "only its first element is missing": lambda x: x[1:],
    }.items():
        if all(len(right) > 1 and change(right) == got for right, got in pairs):
            yield words
    if all(len(right) > 1 and got[: len(right)] == right for right, got in pairs):
        yield "the beginning is right, and then more follows"
    if all(len(right) > 1 and got[-len(right) :] == right for right, got in pairs):
        yield "the end is right, but more stands before it"
    if all(len(got) > 1 and right[: len(got)] == got for right, got in pairs):
        yield "the beginning is right, but it ends too early"
    if all(len(right) > 1 and sorted(map(repr, right)) == sorted(map(repr, got)) for right, got in pairs):
        yield "the elements are right, but in another order"
