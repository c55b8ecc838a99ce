"""What an exception means, and how a wrong result is related to the right one, in a sentence.

A check asks for the relation where neither a known mistake of the exercise, nor its own advice, nor
a small change of its solution explains the results. To add a relation of tensors, yield its
sentence where it is true, in the function of its group; what is tried first is said first. `equal`
says of two results whether the check takes them for equal.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from satcourse.checks.task import GRADIENT

Parts = Mapping[str, Any]
Equal = Callable[[Any, Any], bool]

WEAK = "the values are right, but not the gradients"

FUNCTIONS = {
    "the sign is reversed": torch.neg,
    "this is the exponential of what is asked for": torch.exp,
    "this is the logarithm of what is asked for": torch.log,
    "this is the square root of what is asked for": torch.sqrt,
    "this is 1 divided by what is asked for": torch.reciprocal,
}
# What torch and Python say of a mistake, and what that means.
EXCEPTIONS = {
    "pop from empty list": "more is taken off the list than is in it",
    "non-empty list": "there is nothing to join: the loop did not run, or did not append",
    "non-empty TensorList": "there is nothing to join: the loop did not run, or did not append",
    "values to unpack": "there are not as many parts, or axes, as names for them",
    "cannot be multiplied": "the left factor's last axis must be as long as the right one's first",
    "must match the size": "an axis is missing (keepdim=True, unsqueeze), or in another place",
    "out of range": "the last of n places is n - 1",
    "out of bounds": "the last of n places is n - 1",
    "return_types": "max and min along an axis give two things, the values and their places",
    "does not require grad": "the loss does not depend on what learns, perhaps by a detach or no_grad",
    "non-leaf": "an optimiser moves only what is no result of a computation",
    "a second time": "each backward() needs a loss of its own: compute it anew in each step",
    "type int64": "places are whole numbers: are these the values?",
    "Input dtype must be": "truths and whole numbers have no mean: .float() makes numbers of them",
    "`-` operator": "truths cannot be subtracted: .float() makes 0 and 1 of them",
    "to Python scalars": "one number is wanted, and this tensor has several",
    "to Scalar": "one number is wanted, and this tensor has several",
    "division by zero": "in this case the divisor is 0",
    "Expected target size": "cross_entropy takes axis 1 for the classes",
    "match except in dimension": "cat joins along one axis, 0 if none is named; the others must agree",
    "to be equal size": "what is stacked has one shape: pad the shorter ones first",
    "view size": "after an exchange of axes the numbers lie in another order, which view cannot show",
    "associated with a value": "it may be set in a loop that does not run at all",
    "called after step()": "the scaler's update() ends each step",
    "Weights only": "a file holds tensors and numbers, no whole objects: save a state_dict()",
}
SHIFTS = {"one place too late": 1, "one place too early": -1}
STEPS = (torch.softmax, torch.log_softmax, torch.mean, torch.sum)


def exception(message: str) -> str:
    """What an exception's message means, as "more is taken off ..."; "" if nobody knows."""
    known = (meaning for words, meaning in EXCEPTIONS.items() if words in message)
    return next(known, "")


def relation(expected: Any, got: Any, equal: Equal) -> str | None:
    """The relation of two results, which are not equal, in a sentence.

    None if none that this module knows is true.
    """
    if isinstance(expected, Mapping):
        return _of_parts(expected, got, equal)
    if isinstance(expected, (list, tuple)) and isinstance(got, (list, tuple)):
        return _of_sequences(list(expected), list(got), equal)
    if isinstance(expected, (Tensor, Number)) and isinstance(got, (Tensor, Number)):
        one = torch.as_tensor(expected).detach()
        other = torch.as_tensor(got).detach()
        return _of_tensors(one, other, equal)
    return None


def _of_parts(expected: Parts, got: Parts, equal: Equal) -> str | None:
    """The relation of results by the names of their parts, gradients among them."""
    values = [key for key in expected if not key.startswith(GRADIENT)]
    wrong = [key for key in expected if not equal(expected[key], got[key])]
    wrong_values = [key for key in wrong if key in values]

    # First, since parts in the wrong order may look related in other ways, too.
    in_order = [expected[key] for key in values]
    backwards = [got[key] for key in reversed(values)]
    if len(values) > 1 and equal(in_order, backwards):
        return f"the parts are in the wrong order: {', '.join(values)}"

    # Where values are wrong, too, the gradients say little.
    if not wrong_values:
        for key in wrong:
            if not got[key].any():
                return f"no gradient reaches {key.removeprefix(GRADIENT)}: left out, or detached?"

    first = wrong[0]
    sentence = relation(expected[first], got[first], equal)
    if sentence is None and values and not wrong_values:
        return WEAK
    return sentence


def _of_sequences(expected: list[Any], got: list[Any], equal: Equal) -> str | None:
    """The relation of lists, in a sentence.

    The elements may be grouped in another way, or in another order. Otherwise the numbers may be
    related, or the first wrong element to the right one; or some are missing, or too many.
    """
    are_lists = all(isinstance(x, (list, tuple)) for x in (*expected, *got))
    if are_lists and equal(expected, [*zip(*got, strict=False)]):
        return "the results go together place by place: give a list of each kind"

    flat = []
    for x in expected:
        flat += x if isinstance(x, (list, tuple)) else [x]
    if len(flat) > len(expected) and equal(flat, got):
        return "all are there, but some of them belong together, in a tuple of their own"

    # Not all elements can be compared in size, but all have a repr. Reversed tensors need a look of
    # their own: a repr shows a few digits, and no tolerance.
    right_elements = sorted(map(repr, expected))
    elements = sorted(map(repr, got))
    if elements == right_elements or equal(expected[::-1], got):
        return "the right ones, but in another order"

    # Lists of numbers may be related as tensors are; if not, the first wrong number may be.
    if all(isinstance(x, Number) for x in (*expected, *got)):
        sentence = relation(torch.tensor(expected), torch.tensor(got), equal)
        if sentence:
            return sentence

    if len(got) == len(expected):
        pairs = zip(expected, got, strict=True)
        wrong = [(one, other) for one, other in pairs if not equal(one, other)]
        return relation(*wrong[0], equal)
    if len(got) < len(expected):
        return _cut(got, expected, "missing", equal)
    return _cut(expected, got, "too many", equal)


def _cut(short: list[Any], long: list[Any], verdict: str, equal: Equal) -> str | None:
    """What one list has more at one end, as "2 missing at the end"; None if that is not all."""
    more = len(long) - len(short)
    if equal(short, long[:-more]):
        return f"{more} {verdict} at the end"
    if equal(short, long[more:]):
        return f"{more} {verdict} at the beginning"
    return None


def _of_tensors(expected: Tensor, got: Tensor, equal: Equal) -> str | None:
    """The plainest relation that holds."""
    # Not of truths: these are compared as True and False.
    if expected.dtype != torch.bool:
        expected, got = expected.double(), got.double()
    # The same numbers of another kind: integers as fractions.
    if equal(expected, got):
        return None
    return next(_relations(expected, got, equal), None)


def _relations(expected: Tensor, got: Tensor, equal: Equal) -> Iterator[str]:
    """The relations that hold and say something, the plainest first."""
    alike = expected.shape == got.shape

    if equal(100 * expected, got):
        yield "100 times what is asked for: percent, and not a share?"
    if equal(expected / 100, got):
        yield "a hundredth of what is asked for: a share, and not percent?"
    # Of two whole numbers much is true by chance: 4 is the square root of 16, and twice 2.
    if alike and expected.numel() <= 1 and _whole(expected) and _whole(got):
        return

    yield from _about_axes(expected, got, equal)

    if expected.dtype == torch.bool:
        if equal(~expected, got):
            yield "True and False are swapped"
        if equal(expected.nonzero().squeeze(1), got):
            yield "these are the places of True: for every place True or False is asked"
        if got.dtype != torch.bool:
            yield "True or False is asked for, not numbers"
        return

    # Of zeros, NaNs and infinities nothing below would say much.
    if not expected.isfinite().all():
        return
    if not got.isfinite().all():
        yield "not a number, or infinite: an exp that overflows, a log of 0, 0 / 0, or 0 times infinity?"
    if not expected.any():
        return

    for sentence, function in FUNCTIONS.items():
        if equal(function(expected), got):
            yield sentence
    yield from _about_steps(expected, got, equal)
    if not alike:
        if equal(expected.flatten(), got.flatten()):
            yield "the right numbers, but in another shape"
        yield from _about_lengths(expected, got, equal)
    else:
        yield from _about_sums(expected, got, equal)
        yield from _about_all_numbers(expected, got, equal)


def _whole(x: Tensor) -> bool:
    return not (x.double() % 1).any()


def _about_axes(expected: Tensor, got: Tensor, equal: Equal) -> Iterator[str]:
    """Relations of axes alone: axes of size 1 more or less, or axes swapped."""
    if expected.shape != got.shape:
        if equal(expected, got.squeeze()):
            yield "an axis of size 1 too many (keepdim=True, unsqueeze?)"
        if equal(expected.squeeze(), got):
            yield "an axis of size 1 is missing"

    # The first permutation is the order as it is.
    for order in [*permutations(range(expected.dim()))][1:]:
        if equal(expected.permute(order), got):
            yield f"axes swapped: they are in the order {order}"


def _about_lengths(expected: Tensor, got: Tensor, equal: Equal) -> Iterator[str]:
    """Relations of an axis that is too short, too long, or gone."""
    for axis in range(expected.dim()):
        without = expected.shape[:axis] + expected.shape[axis + 1 :]
        if got.shape == without:
            yield f"axis {axis} is gone: a sum, an argmax or an index too many?"
    if expected.dim() != got.dim():
        return

    for axis in range(expected.dim()):
        length, right_length = got.shape[axis], expected.shape[axis]
        both = min(length, right_length)
        more = abs(length - right_length)
        verdict = "missing" if length < right_length else "too many"
        # Where nothing is left to compare, everything is equal.
        if more and both:
            # A negative start counts from the end.
            for place, start in (("end", 0), ("beginning", -both)):
                right_rows = expected.narrow(axis, start, both)
                if equal(right_rows, got.narrow(axis, start, both)):
                    of_axis = f" of axis {axis}" if expected.dim() > 1 else ""
                    yield f"{more} {verdict} at the {place}{of_axis}"


def _about_steps(expected: Tensor, got: Tensor, equal: Equal) -> Iterator[str]:
    """Relations of what was done along one axis, and should not have been, or the reverse."""
    for axis in range(expected.dim()):
        for where, places in SHIFTS.items():
            if equal(expected.roll(places, axis), got):
                yield f"{where} along axis {axis}"
        for step in STEPS:
            if equal(step(expected, axis), got):
                yield f"a {step.__name__} over axis {axis} too many"

    for axis in range(got.dim()):
        for step in STEPS:
            if equal(expected, step(got, axis)):
                yield f"a {step.__name__} over axis {axis} is missing"


def _about_sums(expected: Tensor, got: Tensor, equal: Equal) -> Iterator[str]:
    """Relations of weights: an axis over which the right ones sum to 1, and the others do not."""
    for axis in range(expected.dim()):
        right_sums, sums = expected.sum(axis), got.sum(axis)
        normalised = equal(torch.ones_like(right_sums), right_sums)
        if normalised and not equal(right_sums, sums):
            farthest = (sums - 1).abs().argmax()
            worst = sums.flatten()[farthest]
            yield f"it does not sum to 1 over axis {axis}, but to {worst:.5g}"


def _about_all_numbers(expected: Tensor, got: Tensor, equal: Equal) -> Iterator[str]:
    """Relations of all the numbers together: one for all, other places, a factor."""
    several = expected.numel() > 1
    if several:
        flat = got.flatten()
        if equal(flat[:1].expand_as(flat), flat):
            yield "the same number everywhere"

        sorted_right = expected.flatten().sort().values
        # Zeros and ones are nearly always the right ones.
        has_others = len(sorted_right.round(decimals=4).unique()) > 2
        if has_others and equal(sorted_right, flat.sort().values):
            yield "the right numbers, but in other places"

    # Least squares. Every two numbers have some factor: for them it has to be whole, or 1 / whole.
    product = (expected * got).sum()
    factor = product / expected.square().sum()
    is_believed = several or _whole_factor(factor) or _whole_factor(1 / factor)
    times = f"{factor:.4g}"
    if is_believed and times != "1" and equal(factor * expected, got):
        yield f"{times} times what is asked for"


def _whole_factor(x: Tensor) -> bool:
    return bool(x > 1.5 and abs(x - x.round()) < 1e-4)
