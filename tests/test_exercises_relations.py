"""What a wrong result has to do with the right one: said where it holds for all cases, and not where it holds by chance."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from satcourse.exercises.relations import relation


def cases(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator) + 0.1 for shape in shapes]


def said(change, *rights) -> str | None:
    return relation([(right, change(right)) for right in rights])


SEEDS = st.integers(0, 2**31)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (torch.neg, "every value has the wrong sign"),
        (lambda x: 1 - x, "every value is 1 minus the expected one"),
        (lambda x: x * 3, "every value is 3 times the expected one"),
        (lambda x: x / math.log(2), "a logarithm to the base 2"),
        (lambda x: x + 0.5, "every value is 0.5 too large"),
        (lambda x: x - 2, "every value is 2 too small"),
        (torch.log, "the logarithm of the expected one"),
        (torch.exp, "the exponential of the expected one"),
        (torch.square, "the square of the expected one"),
        (torch.reciprocal, "1 divided by the expected one"),
        (lambda x: x / len(x), "every value is 0.25 times the expected one, in another case 0.2 times"),
        (lambda x: x.flip(1), "in reverse order along axis 1"),
        (lambda x: x.roll(1, 0), "one place too late along axis 0"),
        (lambda x: torch.cat([x[1:], torch.zeros(1, x.size(1))]), "one place too early along axis 0"),
        (lambda x: x.T, "axes are exchanged"),
        (lambda x: x.sum(0), "the sum of the expected values along axis 0: that axis should stay"),
        (lambda x: x.unsqueeze(1), "an axis of size 1 too many (axis 1)"),
        (lambda x: torch.stack([x / 3, x / 2, x / 6]), "the sum of its values along axis 0 is what is expected"),
        (lambda x: torch.stack([x - 1, x + 1]), "the mean of its values along axis 0 is what is expected"),
        (lambda x: x[:-1], "only the last ones are missing along axis 0"),
        (lambda x: x.flatten(), "in a tensor of another shape"),
        (lambda x: x.flatten().roll(5).view(x.shape), "but in other places"),
        (lambda x: x.flatten()[:5], None),
        (torch.zeros_like, None),
    ],
)
@given(seed=SEEDS)
@settings(max_examples=20)
def test_it_is_said(change, words, seed):
    found = said(change, *cases(seed, (4, 3), (5, 3)))
    assert found is None if words is None else words in found


@given(seed=SEEDS)
def test_results_that_have_nothing_to_do_with_the_right_ones_in_all_cases_or_in_one(seed):
    rights, gots = cases(seed, (4, 3), (5, 3)), cases(seed + 1, (4, 3), (5, 3))
    assert relation(list(zip(rights, gots, strict=True))) is None
    assert relation([(rights[0], -rights[0]), (rights[1], rights[1] + gots[1])]) is None


def test_two_numbers_prove_nothing():
    assert relation([(torch.tensor(1.0), torch.tensor(2.0)), (torch.tensor(3.0), torch.tensor(6.0))]) is None
    numbers = [1.0, 3.0, 4.0]
    assert relation([(number, 2 * number) for number in numbers]) == "every value is 2 times the expected one"


def test_right_cases_do_not_count():
    first, second = cases(0, (4,), (6,))
    assert relation([(first, first), (second, -second)]) == "every value has the wrong sign"


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (["runs", "dog", "a"], "the order is reversed"),
        (["a", "dog"], "only its last element is missing"),
        (["dog", "runs"], "only its first element is missing"),
        (["a", "dog", "runs", "END", "END"], "the beginning is right, and then more follows"),
        (["START", "a", "dog", "runs"], "the end is right, but more stands before it"),
        (["dog", "a", "runs"], "the elements are right, but in another order"),
        (["a", "cat", "runs"], None),
    ],
)
def test_words(got, words):
    assert relation([(["a", "dog", "runs"], got)]) == words


def test_of_several_parts_the_first_that_differs():
    z, alpha = cases(0, (4,), (6,))
    assert relation([((z, alpha), (z, -alpha))]) == "every value has the wrong sign"
    assert relation([({"z": z}, {"z": z / 2})]) == "every value is 0.5 times the expected one"


@pytest.mark.parametrize("got", [None, object(), "a", [None, None, None], torch.tensor([math.nan] * 4), torch.ones(0)])
def test_whatever_a_learner_returns(got):
    assert relation([(cases(0, (4,))[0], got)]) is None
