"""The fast way through the decoder, what `training.loop = "fast"` trains with: a loop with a hand-written gradient.

`forward` gives the values and gradients of `Decoder.forward` (tests/test_fast.py), on a CPU in a third of the memory and in
less time (benchmarks/README.md). It does not call `Decoder.step`, so `check` refuses every decoder for which that would make
a difference. The loop itself is in `satlib.training.fast_loop`.
"""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from satlib.errors import SatlibError
from satlib.model.attention import (
    AdditiveEnergy,
    ConcatEnergy,
    DotEnergy,
    GeneralEnergy,
    HardAttention,
    NoAttention,
    SoftAttention,
    softmax,
)
from satlib.model.decoder import Decoder, Output
from satlib.training.fast_loop import steps

TOLERANCE = 1e-8  # relative distance of the two loops in float64; measured distances are below 1e-12
# Whose methods this module computes by other means; a subclass may compute something else.
_DECODER = ("forward", "step", "view")
_ATTENTIONS = (SoftAttention, HardAttention, NoAttention)
_ENERGIES = (AdditiveEnergy, ConcatEnergy, GeneralEnergy, DotEnergy, type(None))


def loop(decoder: Decoder, name: str) -> Callable[..., Output]:
    """The way through a caption that `training.loop` names: the decoder itself ("plain"), or `forward` ("fast").

    Raises:
        SatlibError: "fast" would compute something else than this decoder.
    """
    if name == "plain":
        return decoder
    check(decoder)
    return partial(forward, decoder)


def forward(decoder: Decoder, a: Tensor, captions: Tensor, expected: Tensor | None = None) -> Output:
    """`Decoder.forward`, by this module's loop; call `check` once before."""
    view, state = decoder.view(a, expected), decoder.initial_state(a)
    embedded = decoder.embed(nn.functional.pad(captions[:, :-1], (1, 0), value=-1))
    h, z, alphas, betas, places = steps(decoder, view, state, decoder.gates_word(embedded))
    states = torch.cat([state.h.unsqueeze(1), h[:, :-1]], 1)
    return Output(decoder.logits(embedded, h, z), alphas, betas, places, states)


def check(decoder: Decoder) -> None:
    """Refuse a decoder for which this loop would compute something else than its own `step`.

    Its class, attention and energy must be satlib's, without hooks. And, because somebody may have edited their source, both
    loops are run on a small random batch: outputs and gradients must agree. Global hooks of torch, and hooks that are added
    later, are not noticed.

    Raises:
        SatlibError: why, and that `training.loop = "plain"` runs any decoder.
    """
    reason = _own_code(decoder) or _difference(decoder)
    if reason:
        raise SatlibError(f'training.loop = "fast" cannot run this decoder: {reason}; set training.loop = "plain"')


def _own_code(decoder: Decoder) -> str | None:
    """The part of a decoder that this loop would skip, or None."""
    for name in _DECODER:
        if getattr(type(decoder), name) is not getattr(Decoder, name) or name in vars(decoder):
            return f"it has its own {name}()"
    attention = decoder.attention
    energy = getattr(attention, "energy", None)
    if type(attention) not in _ATTENTIONS:
        return f"its attention is {type(attention).__name__}, which the fast loop does not know"
    if getattr(attention, "normalise", softmax) is not softmax:
        return "its weights are no softmax of the energies"
    if type(energy) not in _ENERGIES:
        return f"its energy is {type(energy).__name__}, which the fast loop does not know"
    skipped = [decoder, *attention.modules(), decoder.gates_state, decoder.gates_context]
    for module in skipped + ([] if decoder.gate is None else [decoder.gate]):
        if "forward" in vars(module):
            return f"the forward() of its {type(module).__name__} has been replaced"
        if any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)):
            return f"its {type(module).__name__} has hooks, which the fast loop would not call"
    return None


def _difference(decoder: Decoder) -> str | None:
    """How outputs or gradients of the two loops differ on a small batch in float64, or None; random numbers are left alone."""
    some = torch.tensor([True, False, True])  # images that take the expectation, with hard attention
    try:
        for training, expected in ((True, None), (False, None), (True, some)):
            twin = copy.deepcopy(decoder).cpu().double().train(training)
            fast, plain = (_outputs(loop, twin, expected) for loop in (partial(forward, twin), twin))
            for name in plain | fast:
                if name not in plain or name not in fast:
                    return f"{name} exists in one of the two loops only"
                distance = (fast[name] - plain[name]).double().norm() / plain[name].double().norm().clamp(min=1e-3)
                if not distance <= TOLERANCE:
                    return (
                        f"{name} differs from the plain loop's by {distance:.1e} of its size, so its code or its weights are "
                        "not those that the fast loop implements"
                    )
    except Exception as error:  # whatever the decoder's own code raises
        return f"comparing it with the plain loop ended in {type(error).__name__}: {error}"
    return None


def _outputs(loop: Callable[..., Output], twin: Decoder, expected: Tensor | None) -> dict[str, Tensor]:
    """A loop's outputs on three made images, and the gradients of the weights and the annotation vectors, by name."""
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(3, 5, twin.gates_context.in_features, generator=generator, dtype=torch.float64).requires_grad_()
    captions = torch.randint(0, twin.output.out_features, (3, 4), generator=generator)
    # Both loops begin with the same random numbers, and leave them as they were.
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        output = loop(a, captions, expected)
        twin.zero_grad()
        (output.logits.square().sum() + output.alphas.square().sum() + output.betas.square().sum()).backward()
    values = {name: value.detach() for name, value in output._asdict().items() if value is not None}
    gradients = {f"the gradient of {name}": w.grad for name, w in twin.named_parameters() if w.grad is not None}
    return values | gradients | {"the gradient of the annotation vectors": a.grad}
