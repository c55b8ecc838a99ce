"""Exercises of notebook 02: a photograph as a bag of places."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from satcourse.exercises.calls import Failed
from satcourse.exercises.task import Answer, exercise, numbers
from satcourse.lessons.seeing import unpool as satlib_unpool

D, H, W = 3, 2, 4
_BLOCK = ((3, 1), (3, 1), (2, 2))
_VGG = (*_BLOCK, *_BLOCK, *((3, 1),) * 4, (2, 2), *((3, 1),) * 4, (2, 2), *((3, 1),) * 4)  # to conv5_4


@exercise("2.1", "From maps to annotation vectors", difficulty=1, minutes=4, equation="section 3.1.1")
def places(maps: Tensor) -> Tensor:
    """The rows of a grid one after the other, as satlib's encoders have them: (B, D, h, w) -> (B, h w, D)."""
    return maps.flatten(2).transpose(1, 2)


places.says = "every place of a grid of 2 x 4 and of 2 x 2, row by row"
places.cases = lambda: [(numbers(2, D, H, W),), (numbers(1, 4, 2, 2, seed=1),)]
places.mistakes = {
    "reshape mixes places: the channels must become the last axis first": lambda x: x.reshape(len(x), -1, x.shape[1]),
    "the places go down the columns: place 1 is to the right of place 0": lambda x: places(x.transpose(2, 3)),
}


@exercise("2.2", "Where is place i?", difficulty=1, minutes=4, equation="section 3.1.1")
def centre(i: int, grid: tuple[int, int], size: int, *, half: float = 0.5, axis: int = 1) -> tuple[float, float]:
    """The middle of cell i, in pixels from the top left corner: (y, x)."""
    row, column = divmod(i, grid[axis])
    return (row + half) * size / grid[0], (column + half) * size / grid[1]


centre.says = "three places in grids of 14 x 14, 7 x 7 and 2 x 5"
centre.cases = lambda: [(60, (14, 14), 224), (7, (2, 5), 100), (23, (7, 7), 100)]
centre.mistakes = {
    "this is the upper left corner of the cell: its middle is half a cell farther": partial(centre, half=0.0),
    "rows are as long as the grid is wide: divide by the number of columns": partial(centre, axis=0),
}


@exercise("2.3", "The receptive field", difficulty=2, minutes=8, equation="section 5.4")
def receptive_field(layers: Sequence[tuple[int, int]], *, early: bool = False) -> int:
    """Side of what one activation sees, from the kernels and strides of the layers, from pixels upwards."""
    side, jump = 1, 1
    for kernel, stride in layers:
        side += (kernel - 1) * jump * (stride if early else 1)
        jump *= stride
    return side


receptive_field.says = "four networks, VGG-19 up to conv5_4 among them"
receptive_field.cases = lambda: [([(3, 1)],), (list(_BLOCK),), ([(7, 2), (3, 2), (3, 1), (5, 1)],), (list(_VGG),)]
receptive_field.mistakes = {
    "the strides have no part in it": lambda layers: receptive_field([(kernel, 1) for kernel, _ in layers]),
    "a layer's own stride counts for the layers above it, not for itself": partial(receptive_field, early=True),
}


def _spread(values: Tensor) -> Tensor:
    return values.repeat_interleave(2, 2).repeat_interleave(2, 3)


def _at_every_maximum(values: Tensor, pooled: Tensor) -> Tensor:
    return _spread(values) * (pooled == _spread(functional.max_pool2d(pooled, 2)))


@exercise("2.4", "Undo a pooling", difficulty=2, minutes=10, equation="Zeiler and Fergus, section 2.1")
def unpool(values: Tensor, pooled: Tensor) -> Tensor:
    """satlib's unpooling, its switches those of pooling by 2: (B, C, h, w), (B, C, 2h, 2w) -> (B, C, 2h, 2w)."""
    _, switches = functional.max_pool2d(pooled, 2, return_indices=True)
    return satlib_unpool(values, switches, (pooled.shape[2], pooled.shape[3]))


unpool.says = "each value where its window had its first maximum, zeros elsewhere, in windows of four zeros, too"
unpool.cases = lambda: [
    (numbers(2, 3, 1, 3), numbers(2, 3, 2, 6, seed=1)),
    (numbers(1, 4, 3, 3, seed=2), (numbers(1, 4, 6, 6, seed=3) - 0.7).relu()),
]
unpool.mistakes = {
    "each value fills its whole window: it belongs where the maximum was, zeros elsewhere": lambda v, p: _spread(v),
    "a value is at several places of its window: of equal maxima (four zeros behind a ReLU) the first counts": _at_every_maximum,
}


@exercise("2.5", "How alike two places are", difficulty=1, minutes=5)
def cosines(a: Tensor, q: Tensor) -> Tensor:
    """The cosine of each vector (L, D) with q (D,): (L,)."""
    return functional.cosine_similarity(a, q[None])


cosines.says = "vectors of very different lengths, the vector itself among them"
cosines.cases = lambda: [(numbers(6, 4), numbers(4, seed=1)), (3 * numbers(8, 5, seed=2), 3 * numbers(8, 5, seed=2)[3])]
cosines.mistakes = {
    "a dot product prefers long vectors: divide by the lengths": lambda a, q: a @ q,
    "divided by the vectors' lengths only: q has a length too": lambda a, q: functional.normalize(a, dim=1) @ q,
}


@exercise("2.6", "One pixel changes", difficulty=2, minutes=3, kind="predict")
def how_many() -> int:
    """How many vectors of the workbook's small network change with one pixel."""
    return 9


how_many.says = "each vector sees 12 x 12 pixels, and the fields are 4 apart: 12/4 = 3 hold the pixel along each axis"
how_many.cases = lambda: [()]
how_many.tolerance = 0.04
how_many.advise = lambda expected, got: (
    f"expected a {'larger' if got < expected else 'smaller'} number than {got:g}: think again, or run the experiment below"
)
how_many.mistakes = {
    "the fields of neighbouring vectors overlap: a pixel lies in more than one of them": lambda: 1,
    "that is along one axis: a picture has two": lambda: 3,
}


def _extracted(answer: Answer, photos: Tensor, size: int, seed: int) -> Any:
    """What an extraction gives with a new network, which has been trained and is still in its mode of training."""
    torch.manual_seed(seed)
    norm: Any = nn.BatchNorm2d(4)
    norm.running_mean.copy_(torch.randn(4) / 2)
    norm.running_var.copy_(torch.rand(4) + 0.5)
    network = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), norm, nn.ReLU(), nn.Conv2d(4, 5, 1))
    output = answer(network, photos, size)
    if isinstance(output, Tensor) and output.requires_grad:
        raise Failed("every vector would be stored with its graph: no_grad was right, only eval was missing")
    return output


@exercise("2.7", "Vectors that depend on the neighbours", difficulty=2, minutes=5, equation="section 4.3", kind="bug")
def extract(network: nn.Module, photos: Tensor, size: int, *, trains: bool = False) -> Tensor:
    """Annotation vectors (N, L, D) of a frozen network, computed in batches of `size`; the bug: it `trains` meanwhile."""
    network.train(trains)
    with torch.no_grad():
        return torch.cat([places(network(batch)) for batch in photos.split(size)])


extract.start = partial(extract, trains=True)
extract.says = "batches of two and of four: the vectors that a photograph has alone"
extract.cases = lambda: [(numbers(5, 3, 16, 16), 2, 0), (numbers(4, 3, 12, 12, seed=1), 4, 3)]
extract.observe = _extracted
extract.mistakes = {
    "one photograph at a time, but still normalised by its own mean": lambda *x: extract.start(*x[:2], 1),
}
