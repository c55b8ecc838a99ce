"""How a wrong result is related to the right one, in a true sentence: where no known mistake of an exercise explains it."""

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from satcourse.checks.compare import difference

ALL: Mapping[str, Callable[[Tensor], Tensor]] = {
    "the sign is reversed": torch.neg,
    "this is the exponential of what is asked for": torch.exp,
    "this is the logarithm of what is asked for": torch.log,
    "this is the square root of what is asked for": torch.sqrt,
    "this is 1 divided by what is asked for": torch.reciprocal,
}
AXIS: Mapping[str, Callable[[Tensor, int], Tensor]] = {
    "one place too late": lambda x, axis: x.roll(1, axis),
    "one place too early": lambda x, axis: x.roll(-1, axis),
}
WEAK = "the values are right, but not the gradients"
STEPS = (torch.softmax, torch.log_softmax, torch.mean, torch.sum)


def relation(expected: Any, got: Any) -> str | None:
    """The relation of two results, which `difference` finds unequal, in a sentence; None if none of this module's is true."""
    if isinstance(expected, Mapping):
        return _parts(expected, got)
    if isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple)):
        return _sequences(list(expected), list(got))
    if not isinstance(expected, (Tensor, Number)) or not isinstance(got, (Tensor, Number)):
        return None
    one, other = (torch.as_tensor(x).detach() for x in (expected, got))
    if one.dtype != torch.bool:
        one, other = one.double(), other.double()
    return next(
        (says for says, right, wrong in _tensors(one, other) if not difference(right, wrong)), None
    )


def _parts(expected: Mapping[str, Any], got: Mapping[str, Any]) -> str | None:
    wrong = [key for key in expected if difference(expected[key], got[key])]
    back = [key for key in wrong if key.startswith("the gradient at ")]
    values = [key for key in expected if not key.startswith("the gradient at ")]
    if len(values) > 1 and not difference(
        [expected[key] for key in values], [got[key] for key in values[::-1]]
    ):
        return f"the parts are in the wrong order: {', '.join(values)}"
    for key in back:
        if not got[key].any():
            return f"no gradient reaches {key.removeprefix('the gradient at ')}: left out, or detached?"
    says = relation(expected[wrong[0]], got[wrong[0]])
    return says or (WEAK if back == wrong and values else None)


def _sequences(expected: list[Any], got: list[Any]) -> str | None:
    if sorted(map(repr, expected)) == sorted(map(repr, got)) or not difference(expected[::-1], got):
        return "the right ones, but in another order"
    if all(isinstance(x, Number) for x in (*expected, *got)):
        says = relation(torch.tensor(expected), torch.tensor(got))
        if says:
            return says
    if len(got) == len(expected):
        return next(
            relation(*pair) for pair in zip(expected, got, strict=True) if difference(*pair)
        )
    short, long = sorted((expected, got), key=len)
    more = len(long) - len(short)
    parts = {"end": long[:-more], "beginning": long[more:]}
    where = next((name for name, part in parts.items() if not difference(short, part)), None)
    return where and f"{more} {'missing' if long is expected else 'too many'} at the {where}"


def _tensors(expected: Tensor, got: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Sentences, each with two tensors; it is true if these are equal."""
    alike, several, axes = expected.shape == got.shape, expected.numel() > 1, range(expected.dim())
    if alike and not several and not (expected.double() % 1).any() and not (got.double() % 1).any():
        return  # of two whole numbers much is true by chance
    if not alike:
        yield "an axis of size 1 too many (keepdim=True, unsqueeze?)", expected, got.squeeze()
        yield "an axis of size 1 is missing", expected.squeeze(), got
    for order in [*permutations(axes)][1:]:
        yield f"axes swapped: they are in the order {order}", expected.permute(order), got
    if expected.dtype == torch.bool:
        yield "True and False are swapped", ~expected, got
        return
    if not expected.isfinite().all() or not expected.any():
        return
    if not got.isfinite().all():
        yield "not a number, or infinite: an exp that overflows, a log of 0, or 0 / 0?", got, got
    yield from ((says, function(expected), got) for says, function in ALL.items())
    for axis in axes:
        yield from (
            (f"{says} along axis {axis}", function(expected, axis), got)
            for says, function in AXIS.items()
        )
        yield from (
            (f"a {step.__name__} over axis {axis} too many", step(expected, axis), got)
            for step in STEPS
        )
    for axis in range(got.dim()):
        yield from (
            (f"a {step.__name__} over axis {axis} is missing", expected, step(got, axis))
            for step in STEPS
        )
    yield "the right numbers, but in another shape", expected.flatten(), got.flatten()
    if not alike:
        return
    for axis in axes:
        sums, others = expected.sum(axis), got.sum(axis)
        if not difference(torch.ones_like(sums), sums) and difference(sums, others):
            worst = others.flatten()[(others - 1).abs().argmax()]
            yield f"it does not sum to 1 over axis {axis}, but to {worst:.5g}", sums, sums
    factor, flat = (expected * got).sum() / expected.square().sum(), got.flatten()
    if several:
        yield "the same number everywhere", flat[:1].expand_as(flat), flat
        yield (
            "the right numbers, but in other places",
            expected.flatten().sort().values,
            flat.sort().values,
        )
    if several or any(x > 1.5 and abs(x - x.round()) < 1e-4 for x in (factor, 1 / factor)):
        yield f"{factor:.4g} times what is asked for", factor * expected, got
