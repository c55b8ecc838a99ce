"""Exercises of notebook 02: a photograph as a bag of places."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from satcourse.checks.task import exercise, numbers

Place = tuple[int, int]
D, H, W = 3, 2, 4
_BLOCK = ((3, 1), (3, 1), (2, 2))
_VGG = (
    *_BLOCK,
    *_BLOCK,
    *((3, 1),) * 4,
    (2, 2),
    *((3, 1),) * 4,
    (2, 2),
    *((3, 1),) * 4,
)  # to conv5_4


@exercise(
    "2.1", "From maps to annotation vectors", difficulty=1, minutes=4, equation="section 3.1.1"
)
def places(maps: Tensor) -> Tensor:
    """The vector of each place, row by row from the top left, each row from left to right: (B, D, h, w) -> (B, h w, D)."""
    return maps.flatten(2).transpose(1, 2)


places.says = "every place of a grid of 2 x 4 and of 2 x 2, row by row"
places.cases = lambda: [(numbers(2, D, H, W),), (numbers(1, 4, 2, 2, seed=1),)]
places.mistakes = {
    "reshape mixes places: the channels must become the last axis first": lambda x: x.reshape(
        len(x), -1, x.shape[1]
    ),
    "the places go down the columns: place 1 is to the right of place 0": lambda x: places(
        x.transpose(2, 3)
    ),
}


def centre(i: int, grid: tuple[int, int], size: int) -> tuple[float, float]:
    """The middle (y, x) of cell i, in pixels from the top left corner."""
    return (i // grid[1] + 0.5) * size / grid[0], (i % grid[1] + 0.5) * size / grid[1]


@exercise("2.2", "The receptive field", difficulty=2, minutes=8, equation="section 5.4")
def receptive_field(layers: Sequence[tuple[int, int]], *, early: bool = False) -> int:
    """Side of what one activation sees: a layer adds (kernel - 1) jumps; then its stride multiplies the jump."""
    side, jump = 1, 1
    for kernel, stride in layers:
        side += (kernel - 1) * jump * (stride if early else 1)
        jump *= stride
    return side


receptive_field.says = "five networks, VGG-19 up to conv5_4 among them"
receptive_field.cases = lambda: [
    ([(3, 1)],),
    (list(_BLOCK),),
    ([(7, 2), (3, 2), (3, 1), (5, 1)],),
    ([(5, 3), (3, 4), (3, 1), (2, 2)],),
    (list(_VGG),),
]
receptive_field.mistakes = {
    "a layer's own stride counts for the layers above it, not for itself": partial(
        receptive_field, early=True
    ),
}


def _spread(values: Tensor) -> Tensor:
    return values.repeat_interleave(2, 2).repeat_interleave(2, 3)


@exercise(
    "2.3", "Undo a pooling", difficulty=2, minutes=10, equation="Zeiler and Fergus, section 2.1"
)
def unpool(values: Tensor, pooled: Tensor) -> Tensor:
    """Each value at the first of the largest of its window in `pooled`, row by row, and zeros elsewhere: (B, C, h, w), (B, C, 2h, 2w) -> (B, C, 2h, 2w)."""
    _, switches = functional.max_pool2d(pooled, 2, return_indices=True)
    return functional.max_unpool2d(values, switches, (2, 2))


unpool.says = "each value where its window had its first maximum, zeros elsewhere, in windows of four zeros, too"
unpool.cases = lambda: [
    (numbers(2, 3, 1, 3), numbers(2, 3, 2, 6, seed=1)),
    (numbers(1, 4, 3, 3, seed=2), numbers(1, 4, 6, 6, seed=3).relu().round()),
]
unpool.mistakes = {
    "each value fills its whole window: it belongs where the maximum was, zeros elsewhere": lambda v, p: (
        _spread(v)
    ),
}


@exercise(
    "2.4", "All the way down", difficulty=2, minutes=10, equation="Zeiler and Fergus, section 2.1"
)
def down(
    signal: Tensor,
    modules: nn.Sequential,
    pooled: list[Tensor],
    *,
    back: Any = functional.conv_transpose2d,
    bias: bool = False,
    gate: bool = True,
) -> Tensor:
    """From the last module to the first: the transposed convolution without bias, a ReLU, and for a pooling unpool with the last map left."""
    left = [*pooled]
    for module in reversed(modules):
        if isinstance(module, nn.Conv2d):
            signal = back(signal, module.weight, module.bias if bias else None, padding=1)
        elif isinstance(module, nn.ReLU):
            signal = signal.relu() if gate else signal
        else:
            signal = unpool(signal, left.pop())
    return signal


def _blocks() -> nn.Sequential:
    """Three blocks, as VGG's are, but with one convolution each."""
    modules = [
        each
        for _ in range(3)
        for each in (nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ][:-1]
    for i, module in enumerate(modules):
        for weight in module.parameters():
            weight.data = numbers(*weight.shape, seed=i)
    return nn.Sequential(*modules).requires_grad_(False)


down.says = "signals of both signs, through three convolutions, three ReLUs and two poolings"
down.cases = lambda: [
    (
        numbers(1, 4, 2, 3, seed=i),
        [numbers(1, 4, 8, 12, seed=i + 5), numbers(1, 4, 4, 6, seed=i + 7)],
    )
    for i in (1, 2)
]
down.observe = lambda answer, signal, pooled: answer(signal, _blocks(), [*pooled])
down.mistakes = {
    "a convolution is undone by its transpose: functional.conv_transpose2d": partial(
        down, back=functional.conv2d
    ),
    "without bias: on the way down nothing is added": partial(down, bias=True),
    "a ReLU is a ReLU on the way down, too: what is negative ends there": partial(down, gate=False),
}


@exercise("2.5", "How alike two places are", difficulty=1, minutes=5)
def cosines(a: Tensor, q: Tensor) -> Tensor:
    """The dot product of each row of a with q, over the length of the row and the length of q: (L, D), (D,) -> (L,)."""
    return functional.cosine_similarity(a, q[None])


cosines.says = "vectors of very different lengths, the vector itself among them"
cosines.cases = lambda: [
    (numbers(6, 4), numbers(4, seed=1)),
    (3 * numbers(8, 5, seed=2), 3 * numbers(8, 5, seed=2)[3]),
]
cosines.mistakes = {
    "a dot product prefers long vectors: divide by the lengths": lambda a, q: a @ q,
    "divided by the vectors' lengths only: q has a length too": lambda a, q: (
        functional.normalize(a, dim=1) @ q
    ),
}


Picture = Callable[[int, Place], Tensor]


def _correlation(x: Tensor, y: Tensor) -> Tensor:
    return torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1]


def _mean(
    picture: Picture, exhibit: tuple[int, Place], others: Iterable[tuple[int, Place]]
) -> float:
    return (
        torch.stack([_correlation(picture(*exhibit), picture(*other)) for other in others])
        .mean()
        .item()
    )


@exercise(
    "2.6",
    "Does the map matter?",
    difficulty=2,
    minutes=10,
    equation="Zeiler and Fergus, section 2.1",
)
def likeness(
    picture: Picture, channel: int, place: Place, channels: list[int], places: list[Place]
) -> float:
    """The mean correlation of a map's picture with those of the other maps at the same place."""
    return _mean(
        picture, (channel, place), ((other, place) for other in channels if other != channel)
    )


def _exhibits() -> list[tuple[Any, ...]]:
    """Pictures that the map makes, and pictures that the place makes, whatever the map."""
    maps, where = 2 + numbers(9, 3, 4, 4, seed=1), numbers(5, 5, 3, 4, 4, seed=2)
    by_map, by_place = lambda m, at: maps[m] + where[at] / 5, lambda m, at: maps[m] / 5 + where[at]
    return [
        (picture, 3, (1, 4), [0, 3, 5, 8], [(0, 2), (1, 4), (3, 3)])
        for picture in (by_map, by_place)
    ]


likeness.says = (
    "it tells pictures that the map makes from pictures that the place makes, whatever the map"
)
likeness.cases = _exhibits
likeness.given = lambda *_: "pictures that the map makes, then pictures that the place makes"
likeness.mistakes = {
    "the artefact lives: you keep the map and change the place, and all that you see is that places differ": (
        lambda picture, m, at, maps, places: _mean(
            picture, (m, at), ((m, other) for other in places if other != at)
        )
    ),
    "the exhibit is compared with itself, too, and that is always 1": lambda picture, m, at, maps, places: (
        _mean(picture, (m, at), ((other, at) for other in maps))
    ),
}
