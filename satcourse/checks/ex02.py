"""Exercises of notebook 02: a photograph as a bag of places."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from satcourse.checks.calls import Failed
from satcourse.checks.task import Answer, Case, exercise, numbers

Place = tuple[int, int]
Layers = Sequence[tuple[int, int]]  # each as (kernel, stride)
Picture = Callable[[int, Place], Tensor]
D, H, W = 3, 2, 4

_CONVOLUTION = (3, 1)
_POOLING = (2, 2)
_SMALL_BLOCK = [_CONVOLUTION] * 2 + [_POOLING]
_LARGE_BLOCK = [_CONVOLUTION] * 4 + [_POOLING]
# VGG-19 to conv5_4, whose map the paper uses: the last pooling is left out.
_VGG = (_SMALL_BLOCK * 2 + _LARGE_BLOCK * 3)[:-1]


@exercise(
    "2.1", "From maps to annotation vectors", difficulty=1, minutes=4, equation="section 3.1.1"
)
def places(maps: Tensor) -> Tensor:
    """The vector of each place, row by row from the top left, each row from left to right:
    (B, D, h, w) -> (B, h w, D).
    """
    return maps.flatten(2).transpose(1, 2)


places.says = "every place of a grid of 2 x 4 and of 2 x 2, row by row"
places.cases = lambda: [
    (numbers(2, D, H, W),),
    # As many channels as places: a wrong axis leaves the shape right.
    (numbers(1, 4, 2, 2, seed=1),),
]
places.mistakes = {
    "reshape mixes places: the channels must become the last axis first": (
        lambda maps: maps.reshape(len(maps), -1, maps.shape[1])
    ),
    "the places go down the columns: place 1 is to the right of place 0": (
        lambda maps: places(maps.transpose(2, 3))
    ),
}


def centre(i: int, grid: tuple[int, int], size: int) -> tuple[float, float]:
    """The middle (y, x) of cell i, in pixels from the top left corner."""
    rows, columns = grid
    row, column = divmod(i, columns)
    return (row + 0.5) * size / rows, (column + 0.5) * size / columns


@exercise("2.2", "The receptive field", difficulty=2, minutes=8, equation="section 5.4")
def receptive_field(layers: Layers) -> int:
    """Side of what one activation sees: a layer adds (kernel - 1) jumps;
    then its stride multiplies the jump.
    """
    side = 1
    jump = 1
    for kernel, stride in layers:
        side += (kernel - 1) * jump
        jump *= stride
    return side


def _stride_too_early(layers: Layers) -> int:
    side = 1
    jump = 1
    for kernel, stride in layers:
        jump *= stride
        side += (kernel - 1) * jump
    return side


def _side(next_jump: Callable[[int, int], int]) -> Answer:
    """`receptive_field` with another next_jump(jump, stride)."""

    def answer(layers: Layers) -> int:
        side = 1
        jump = 1
        for kernel, stride in layers:
            side += (kernel - 1) * jump
            jump = next_jump(jump, stride)
        return side

    return answer


receptive_field.says = "five networks, VGG-19 up to conv5_4 among them"
receptive_field.cases = lambda: [
    ([(3, 1)],),
    ([*_SMALL_BLOCK],),
    # Strides in layers with large kernels: there it shows whether one counts for its own layer.
    ([(7, 2), (3, 2), (3, 1), (5, 1)],),
    ([(5, 3), (3, 4), (3, 1), (2, 2)],),
    ([*_VGG],),
]
receptive_field.mistakes = {
    "a layer's own stride counts for the layers above it, not for itself": _stride_too_early,
    "the layers are read from the top: jumps grow from the pixels upwards": lambda layers: (
        receptive_field(layers[::-1])
    ),
    "the whole kernels are added: the first of a kernel's places is there already": (
        # The kernels as they are, and without the first pixel.
        lambda layers: receptive_field([(kernel + 1, stride) for kernel, stride in layers]) - 1
    ),
    "a kernel of 3 sees 2 jumps more, not 3: its first place is there already": lambda layers: (
        receptive_field([(kernel + 1, stride) for kernel, stride in layers])
    ),
    "strides multiply: after strides of 2 and 3 a jump is 6": _side(
        lambda jump, stride: jump + stride - 1
    ),
    "only one stride counts: the strides of all layers below multiply": _side(
        lambda jump, stride: stride
    ),
}


@exercise(
    "2.3", "Undo a pooling", difficulty=2, minutes=10, equation="Zeiler and Fergus, section 2.1"
)
def unpool(values: Tensor, pooled: Tensor) -> Tensor:
    """Each value at the first of the largest of its window in `pooled`, row by row,
    and zeros elsewhere: (B, C, h, w), (B, C, 2h, 2w) -> (B, C, 2h, 2w).
    """
    _, switches = functional.max_pool2d(pooled, 2, return_indices=True)
    return functional.max_unpool2d(values, switches, (2, 2))


unpool.says = (
    "each value where its window had its first maximum, "
    "zeros elsewhere, in windows of four zeros, too"
)
unpool.cases = lambda: [
    (numbers(2, 3, 1, 3), numbers(2, 3, 2, 6, seed=1)),
    # After a ReLU and a rounding windows have several largest values, or nothing but zeros.
    (numbers(1, 4, 3, 3, seed=2), numbers(1, 4, 6, 6, seed=3).relu().round()),
]


def _several_in_a_window(expected: Tensor, got: Tensor) -> str | None:
    share = functional.avg_pool2d(1.0 * (got != 0), 2)
    several = "a window has several values: only the first of its largest gets one"
    return several if share.max() > 1 / 4 else None


unpool.advise = _several_in_a_window
unpool.mistakes = {
    "each value fills its whole window: it belongs where the maximum was, zeros elsewhere": (
        lambda values, pooled: values.repeat_interleave(2, 2).repeat_interleave(2, 3)
    ),
    "values stand where places should: a pooling gives the maxima, and then their places": (
        lambda values, pooled: functional.max_unpool2d(values, values, [2, 2])
    ),
}


@exercise(
    "2.4", "All the way down", difficulty=2, minutes=10, equation="Zeiler and Fergus, section 2.1"
)
def down(
    signal: Tensor, modules: Sequence[nn.Module] | nn.Sequential, pooled: list[Tensor]
) -> Tensor:
    """From the last module to the first: the transposed convolution without bias, a ReLU,
    and for a pooling unpool with the last map left.
    """
    left = [*pooled]  # the learner's notebook uses the list again
    for module in reversed(modules):
        if isinstance(module, nn.Conv2d):
            signal = functional.conv_transpose2d(signal, module.weight, padding=1)
        elif isinstance(module, nn.ReLU):
            signal = signal.relu()
        else:
            signal = unpool(signal, left.pop())
    return signal


def _blocks() -> nn.Sequential:
    """Three blocks, as VGG's are, but with one convolution each, and the last without a pooling."""
    modules: list[nn.Module] = []
    for _ in range(3):
        modules += [nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    modules.pop()

    # Not torch's own numbers, which depend on the notebook's seed, and whose biases are small.
    for i, module in enumerate(modules):
        for weight in module.parameters():
            weight.data = numbers(*weight.shape, seed=i)
    return nn.Sequential(*modules).requires_grad_(False)


def _down_case(i: int) -> tuple[Tensor, list[Tensor]]:
    """A signal at the top, and the two maps that were pooled, the lower one first."""
    signal = numbers(1, 4, 2, 3, seed=i)
    lower = numbers(1, 4, 8, 12, seed=i + 5)
    upper = numbers(1, 4, 4, 6, seed=i + 7)
    return signal, [lower, upper]


def _through_blocks(answer: Answer, signal: Tensor, pooled: list[Tensor]) -> object:
    # The maps in a list of their own, since a learner may well pop them off it.
    return answer(signal, _blocks(), [*pooled])


def _transposed(signal: Tensor, module: nn.Conv2d) -> Tensor:
    return functional.conv_transpose2d(signal, module.weight, padding=1)


def _down_with(
    convolve: Answer = _transposed,
    rectify: Answer = torch.relu,
    order: Answer = reversed,
    next_map: int = -1,
) -> Answer:
    """`down` with other steps: convolve(signal, module) and rectify(signal); or in another order."""

    def answer(signal: Tensor, modules: nn.Sequential, pooled: list[Tensor]) -> Tensor:
        for module in order(modules):
            if isinstance(module, nn.Conv2d):
                signal = convolve(signal, module)
            elif isinstance(module, nn.ReLU):
                signal = rectify(signal)
            else:
                signal = unpool(signal, pooled.pop(next_map))
        return signal

    return answer


down.says = "signals of both signs, through three convolutions, three ReLUs and two poolings"
down.cases = lambda: [_down_case(1), _down_case(2)]
down.observe = _through_blocks
down.mistakes = {
    "a convolution is undone by its transpose: functional.conv_transpose2d": _down_with(
        lambda signal, module: functional.conv2d(signal, module.weight, padding=1)
    ),
    "that is the way up again: each module is undone, not run": _down_with(
        lambda signal, module: module(signal)
    ),
    "a transposed convolution flips the kernel, too, not only the channels": _down_with(
        lambda signal, module: functional.conv2d(signal, module.weight.transpose(0, 1), padding=1)
    ),
    "without bias: on the way down nothing is taken off": _down_with(
        lambda signal, module: _transposed(signal - module.bias[:, None, None], module)
    ),
    "without bias: on the way down nothing is added": _down_with(
        lambda signal, module: functional.conv_transpose2d(
            signal, module.weight, module.bias, padding=1
        )
    ),
    "a ReLU is a ReLU on the way down, too: what is negative ends there": _down_with(
        rectify=lambda signal: signal
    ),
    "each convolution adds a frame: on the way up it was padded, so on the way down, too": (
        _down_with(lambda signal, module: functional.conv_transpose2d(signal, module.weight))
    ),
    "the modules go upwards: the way down begins with the last": _down_with(order=list),
    "each pooling has a map of its own: here the last one serves them all": (
        lambda signal, modules, pooled: _down_with()(signal, modules, [pooled[-1]] * len(pooled))
    ),
    "the maps begin with the first: the one that was pooled last comes first": _down_with(
        next_map=0
    ),
}


@exercise("2.5", "How alike two places are", difficulty=1, minutes=5)
def cosines(a: Tensor, q: Tensor) -> Tensor:
    """The dot product of each row of a with q, over the length of the row and the length of q:
    (L, D), (D,) -> (L,).
    """
    return functional.cosine_similarity(a, q[None])


def _one_of_the_rows() -> tuple[Tensor, Tensor]:
    # So that one cosine is exactly 1.
    a = 3 * numbers(8, 5, seed=2)
    return a, a[3].clone()


cosines.says = "vectors of very different lengths, the vector itself among them"
cosines.cases = lambda: [
    (numbers(6, 4), numbers(4, seed=1)),
    _one_of_the_rows(),
]
cosines.mistakes = {
    "a dot product prefers long vectors: divide by the lengths": lambda a, q: a @ q,
    "divided by the vectors' lengths only: q has a length too": (
        lambda a, q: functional.normalize(a, dim=1) @ q
    ),
    "divided by the length of q only: each row has a length, too": lambda a, q: a @ q / q.norm(),
    "that is one length for the whole of a: each row has its own": (
        lambda a, q: a @ q / a.norm() / q.norm()
    ),
    "these are lengths of columns of a: each row has its own": (
        lambda a, q: a / a.norm(dim=0) @ q / q.norm()
    ),
    "lengths of columns do not fit the rows: each row has its own": (
        lambda a, q: (a @ q) / a.norm(dim=0)
    ),
    "one number for each column: each row is asked for, over its D numbers": (
        lambda a, q: functional.cosine_similarity(a, q, dim=0)
    ),
    "x / y * z multiplies by z: put both lengths under the line, in brackets": (
        lambda a, q: a @ q / a.norm(dim=1) * q.norm()
    ),
    "each row with each row: q is what they are compared with": (
        lambda a, q: functional.normalize(a) @ functional.normalize(a).T
    ),
    "a length is the root of the sum of squares: the root is missing": (
        lambda a, q: a @ q / a.square().sum(1) / q.square().sum()
    ),
    "this is a correlation: nothing is subtracted from a cosine's vectors": (
        lambda a, q: cosines(a - a.mean(1, keepdim=True), q - q.mean())
    ),
}


def _mean_correlation(exhibit: Tensor, others: list[Tensor]) -> float:
    return _correlations(exhibit, others).mean().item()


def _correlations(exhibit: Tensor, others: list[Tensor]) -> Tensor:
    correlations = []
    for other in others:
        rows = torch.stack([exhibit.flatten(), other.flatten()])
        correlations.append(torch.corrcoef(rows)[0, 1])
    return torch.stack(correlations)


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
    others = [picture(other, place) for other in channels if other != channel]
    return _mean_correlation(picture(channel, place), others)


def _exhibits() -> list[Case]:
    """Pictures that the map makes, and pictures that the place makes, whatever the map."""
    # The pictures have 3 channels of 4 x 4 pixels.
    of_map = 2 + numbers(9, 3, 4, 4, seed=1)
    of_place = numbers(5, 5, 3, 4, 4, seed=2)
    # Both have a part in each picture, but one of them only a fifth.

    def by_map(channel: int, place: Place) -> Tensor:
        return of_map[channel] + of_place[place] / 5

    def by_place(channel: int, place: Place) -> Tensor:
        return of_map[channel] / 5 + of_place[place]

    # The exhibit itself is among them: it must be left out.
    channels = [0, 3, 5, 8]
    places = [(0, 2), (1, 4), (3, 3)]
    return [
        (by_map, 3, (1, 4), channels, places),
        (by_place, 3, (1, 4), channels, places),
    ]


def _likeness_by(compare: Callable[[Tensor, list[Tensor]], Any]) -> Answer:
    """`likeness` by compare(the exhibit, the other maps' pictures at its place)."""
    return lambda picture, channel, place, channels, places: compare(
        picture(channel, place), [picture(c, place) for c in channels if c != channel]
    )


def _likeness_of(chosen: Callable[[bool, bool], bool]) -> Answer:
    """`likeness` to the pictures that chosen(is the map the same, is the place the same)."""
    return lambda picture, channel, place, channels, places: _mean_correlation(
        picture(channel, place),
        [
            picture(other, where)
            for other in channels
            for where in places
            if chosen(other == channel, where == place)
        ],
    )


likeness.says = (
    "it tells pictures that the map makes from pictures that the place makes, whatever the map"
)
likeness.cases = _exhibits
likeness.given = lambda *_: "pictures that the map makes, then pictures that the place makes"
likeness.mistakes = {
    "this lets an artefact pass: you keep the map and change the place, "
    "and all that you see is that places differ": _likeness_of(
        lambda same_map, same_place: same_map and not same_place
    ),
    "the exhibit is compared with itself, too, and that is always 1": _likeness_of(
        lambda same_map, same_place: same_place
    ),
    "two things change, the map and the place: change the map alone": _likeness_of(
        lambda same_map, same_place: not same_map and not same_place
    ),
    "every place is there: a control changes the map and keeps the place": _likeness_of(
        lambda same_map, same_place: not same_map
    ),
    "whatever is not the exhibit is there: change the map, keep the place": _likeness_of(
        lambda same_map, same_place: not same_map or not same_place
    ),
    "absolute values: a picture that is light where this one is dark is not like it": (
        _likeness_by(lambda exhibit, others: _correlations(exhibit, others).abs().mean())
    ),
    "that is a cosine: a correlation takes each picture's mean away first": _likeness_by(
        lambda exhibit, others: (
            sum(
                functional.cosine_similarity(exhibit.flatten(), other.flatten(), dim=0)
                for other in others
            )
            / len(others)
        )
    ),
    "a correlation with the mean picture: the mean of the correlations is asked": _likeness_by(
        lambda exhibit, others: _mean_correlation(exhibit, [torch.stack(others).mean(0)])
    ),
    "divided by the number of all maps: the exhibit's own is not among the others": _likeness_by(
        lambda exhibit, others: _correlations(exhibit, others).sum() / (len(others) + 1)
    ),
}


Suspect = Callable[[nn.Sequential, nn.Sequential, list[Tensor]], Any]


@exercise(
    "2.7",
    "Take each suspect out",
    difficulty=2,
    minutes=10,
    equation="Zeiler and Fergus, section 2.1",
)
def taken_out(
    suspect: str, pooled: list[Tensor], modules: nn.Sequential, noise: nn.Sequential
) -> tuple[Sequence[nn.Module], list[Tensor]]:
    """What `down` gets, the modules and the maps, once this one suspect is out and the other two
    are as they were.
    """
    return _OUT[suspect](modules, noise, pooled)


def _no_switches(modules: nn.Sequential, noise: nn.Sequential, pooled: list[Tensor]) -> Any:
    """A map of equal numbers has its first maximum at the top left of each window."""
    return modules, [torch.zeros_like(each) for each in pooled]


def _no_weights(modules: nn.Sequential, noise: nn.Sequential, pooled: list[Tensor]) -> Any:
    return noise, pooled


def _without(kind: type[nn.Module]) -> Suspect:
    """All modules but those of a kind."""
    return lambda modules, noise, pooled: (
        [module for module in modules if not isinstance(module, kind)],
        pooled,
    )


def _as_it_is(modules: nn.Sequential, noise: nn.Sequential, pooled: list[Tensor]) -> Any:
    return modules, pooled


_OUT: dict[str, Suspect] = {
    "switches": _no_switches,
    "weights": _no_weights,
    "ReLU": _without(nn.ReLU),
}


def _carried_down(answer: Answer, suspect: str, pooled: list[Tensor], signal: Tensor) -> object:
    modules, noise = _blocks(), _blocks()
    for i, module in enumerate(noise):
        for weight in module.parameters():
            weight.data = numbers(*weight.shape, seed=i + 20)

    found = answer(suspect, pooled, modules, noise)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Failed("expected two things: the modules, then the maps")

    left, maps = [*found[0]], found[1]  # a filter, too
    if not all(isinstance(each, nn.Module) for each in left):
        raise Failed("the modules come first, then the maps")
    return down(signal, left, maps)


def _taking(**out: Suspect) -> Answer:
    """`taken_out`, but for these suspects."""
    return lambda suspect, pooled, modules, noise: (_OUT | out)[suspect](modules, noise, pooled)


def _identities(modules: nn.Sequential, noise: nn.Sequential, pooled: list[Tensor]) -> Any:
    return [nn.Identity() if isinstance(each, nn.ReLU) else each for each in modules], pooled


def _alone(suspect: str, pooled: list[Tensor], modules: nn.Sequential, noise: nn.Sequential) -> Any:
    """The suspect is left, and all others are out."""
    for other in _OUT.keys() - {suspect}:
        convolutions = noise if other == "weights" else modules
        modules, pooled = _OUT[other](convolutions, noise, pooled)
    return modules, pooled


taken_out.says = "each suspect alone, on the way down through three blocks; the others stay"
taken_out.cases = lambda: [(suspect, *reversed(_down_case(3))) for suspect in _OUT]
taken_out.observe = _carried_down
taken_out.given = lambda suspect, *_: f"taken out: {suspect}"
taken_out.mistakes = {
    "the suspect stays and the others go: ask what is missing without it": _alone,
    "the switches are still there: maps of equal numbers point to the top left": _taking(
        switches=_as_it_is
    ),
    "the weights are still those of the network: noise has the same modules": _taking(
        weights=_as_it_is
    ),
    "the ReLUs are still there: leave them out of the modules": _taking(ReLU=_as_it_is),
    "a pooling takes a map off the list: give it maps that point to the top left, not none": (
        _taking(switches=lambda modules, noise, pooled: (modules, []))
    ),
    "the poolings stay: without a switch, a value still goes to one place of its window": _taking(
        switches=_without(nn.MaxPool2d)
    ),
    "other switches are switches: maps of equal numbers have none": _taking(
        switches=lambda modules, noise, pooled: (modules, [-each for each in pooled])
    ),
    "two are out: the switches stay when the weights go": _taking(
        weights=lambda modules, noise, pooled: _no_switches(noise, noise, pooled)
    ),
    "down takes an Identity for a pooling: leave the ReLUs out of the list": _taking(
        ReLU=_identities
    ),
    "one ReLU is out, and the others still stand": _taking(
        ReLU=lambda modules, noise, pooled: (modules[:-1], pooled)
    ),
}
