"""The definition of an exercise: a reference, cases, likeliest mistakes; and inputs for cases."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor

from satcourse.checks.calls import Failed

Answer = Callable[..., Any]
Case = tuple[Any, ...]  # the inputs of a call, or the sizes from which `observe` makes them
# From the expected and the learner's result, what to say; None: nothing.
Advice = Callable[[Any, Any], str | None]
GRADIENT = "the gradient at "  # so begin the names of the parts that are gradients
NO_GRAPH = (
    "nothing is left to learn from: "
    "the result is cut off from the graph (by detach, item, argmax or no_grad?)"
)


def _call(answer: Answer, *inputs: Any) -> Any:
    return answer(*inputs)


@dataclass(eq=False)
class Task:
    """One exercise: its card, which `exercise` writes, and its check, given part by part.

    A call of the task is a call of the reference.
    """

    # The card.
    id: str  # of the notebook and the task, as "4.2"
    name: str  # of the function that the learner writes
    title: str
    difficulty: int  # 1 to 3
    minutes: int
    # The source: "equation 5", "section 5.4", "Bahdanau et al., section 3.1"; "" if it has none.
    equation: str

    # A right function. Its docstring says what is asked, and the names
    # of its parameters stand in the messages.
    reference: Answer
    # Creates the inputs of each call.
    cases: Callable[[], Sequence[Case]] = tuple
    # What a right answer was checked against, for the message of success.
    says: str = ""
    # Messages, and functions that make the mistakes. The first that does what the learner's
    # function does is reported.
    mistakes: Mapping[str, Answer] = field(default_factory=dict)
    # Called with a function and a case's inputs; what it returns is compared.
    observe: Answer = _call
    tolerance: float = 1e-4  # see `compare.difference`
    # The limit of one call, in seconds of processor time: generous, since torch loads modules when a
    # function is first used.
    seconds: float = 10.0
    # Describes a case's inputs; by default short inputs are shown as they are.
    given: Callable[..., str] | None = None
    # The names of a result's elements, for the messages: ("h", "c").
    parts: Sequence[str] = ()
    # What to say of a wrong result that no mistake explains.
    advise: Advice | None = None

    def __call__(self, *inputs: Any, **more: Any) -> Any:
        """The reference's result."""
        return self.reference(*inputs, **more)

    @property
    def todo(self) -> str:
        """What is left to do while it is blank."""
        return f"write {self.name}()"


def exercise(
    id: str, title: str, difficulty: int, minutes: int, equation: str = ""
) -> Callable[[Answer], Task]:
    """Make a task of its reference: a decorator. The arguments are those attributes of `Task`."""

    def task(reference: Answer) -> Task:
        return Task(id, reference.__name__, title, difficulty, minutes, equation, reference)

    return task


def generator(seed: int) -> torch.Generator:
    """A random generator for a check's inputs."""
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """A tensor of normally distributed numbers, the same for the same seed."""
    return scale * torch.randn(shape, generator=generator(seed))


def distribution(*shape: int, seed: int = 0, sharp: float = 1.0) -> Tensor:
    """A tensor of weights that sum to 1 over the last axis."""
    return torch.softmax(numbers(*shape, seed=seed, scale=sharp), -1)


class CutOff(Failed):
    """A result is cut off from its graph; `values` has what it is, without gradients."""

    values: Mapping[str, Tensor] = {}


def gradients(loss: Any, leaves: Mapping[str, Tensor]) -> Any:
    """The gradients of a learner's loss at tensors, by their names.

    A loss that is no single number is returned as it is. Raises CutOff if the loss is cut off from
    its graph.
    """
    is_scalar = isinstance(loss, Tensor) and not loss.dim()
    if not isinstance(loss, Number) and not is_scalar:
        return loss
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise CutOff(NO_GRAPH)

    values = torch.autograd.grad(loss, [*leaves.values()], retain_graph=True, allow_unused=True)
    found = {}
    for (name, leaf), value in zip(leaves.items(), values, strict=True):
        # An input that plays no part has a gradient of 0, and the message says where.
        found[GRADIENT + name] = torch.zeros_like(leaf) if value is None else value
    return found


def without_graph(results: Any) -> Any:
    """A learner's results as they are.

    Raises Failed if they are a list, and one of its tensors still holds its graph.
    """
    if isinstance(results, list) and any(getattr(each, "requires_grad", False) for each in results):
        raise Failed(
            "a result holds its graph, and so memory: loss.item() or maps.detach() lets go of it"
        )
    return results


def with_gradients(*names: str, parts: Sequence[str] = ("",)) -> Answer:
    """An `observe` that compares a function's result and its gradients.

    `names` are those of the first inputs: the gradients at these are compared, of a weighted sum
    over the result. `parts` are the names of the tensors that the function returns, if it returns
    several. What `observe` gives is a dict of the parts and the gradients, by their names, or the
    learner's result as it is if it is of the wrong kind.
    """

    def observe(answer: Answer, *inputs: Any) -> Any:
        leaves = [value.requires_grad_() for value in inputs[: len(names)]]
        # The learner's function gets copies, because torch lets nobody change a leaf in place.
        copies = [leaf * 1 for leaf in leaves]
        output = answer(*copies, *inputs[len(names) :])

        # The engine looks at the inputs: it refuses a function that changes one, or returns it.
        for leaf, copy in zip(leaves, copies, strict=True):
            leaf.data.copy_(copy.detach())
        for leaf, copy in zip(leaves, copies, strict=True):
            if output is copy:
                return leaf

        if isinstance(output, Number):
            raise CutOff(NO_GRAPH)
        tensors = output if isinstance(output, (tuple, list)) else [output]
        if any(isinstance(each, np.ndarray) for each in tensors):
            raise Failed("keep to tensors: gradients must flow through it")
        if len(tensors) != len(parts) or not all(isinstance(each, Tensor) for each in tensors):
            return output

        return _parts_and_gradients(
            dict(zip(parts, tensors, strict=True)), dict(zip(names, leaves, strict=True))
        )

    return observe


def _parts_and_gradients(parts: Mapping[str, Tensor], leaves: Mapping[str, Tensor]) -> Any:
    """A result's parts, and the gradients of a weighted sum over all of them, by their names.

    Raises CutOff if no gradient flows, and Failed if something was changed in place.
    """
    # Different weights: a softmax sums to 1, and the gradient of a plain sum over it is 0.
    total = sum(
        (each.flatten() * torch.linspace(1, 2, each.numel())).sum() for each in parts.values()
    )
    values = {name: each.detach() for name, each in parts.items()}
    try:
        return values | gradients(total, leaves)
    except CutOff as cut:
        cut.values = values
        raise
    except RuntimeError:
        raise Failed(
            "no way back for the gradients: it changes in place (`x /= y`) what they need"
        ) from None
