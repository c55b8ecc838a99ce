"""The definition of an exercise: a reference, cases, and its likeliest mistakes; and inputs for the cases."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

import torch
from torch import Tensor

from satcourse.checks.calls import Failed

Answer = Callable[..., Any]
Advice = Callable[
    [Any, Any], str | None
]  # from the expected and the learner's result, what to say; None: nothing


@dataclass(eq=False)
class Task:
    """One exercise: its card, which `exercise` writes, and its check, whose parts are then given one by one.

    A call of the task is a call of the reference, whose keywords make mistakes.
    """

    id: str  # of the notebook and the task, as "4.2"
    name: str  # of the function that the learner writes
    title: str
    difficulty: int  # 1 to 3
    minutes: int
    equation: str  # its source: "equation 5", "section 5.4", "Bahdanau et al., section 3.1"; "" if it has none
    reference: Answer  # a right function; satlib's own if it has one
    cases: Callable[[], Sequence[tuple[Any, ...]]] = (
        tuple  # creates the inputs, a tuple for each call
    )
    says: str = ""  # what a right answer was checked against, for the message of success
    mistakes: Mapping[str, Answer] = field(
        default_factory=dict
    )  # messages, and functions that make the mistakes
    # Called with a function and a case's inputs; what it returns is compared.
    observe: Answer = lambda answer, *inputs: answer(*inputs)
    tolerance: float = 1e-4  # relative to the largest value
    seconds: float = 10.0  # the time limit of one call; at the first call of some functions torch loads further modules
    given: Callable[..., str] | None = (
        None  # describes a case's inputs; by default short inputs are shown as they are
    )
    parts: Sequence[str] = ()  # the names of a result's elements, for the messages: ("h", "c")
    advise: Advice | None = None  # what to say of a wrong result that no mistake explains

    def __call__(self, *inputs: Any, **mistake: Any) -> Any:
        """The reference's result."""
        return self.reference(*inputs, **mistake)

    @property
    def todo(self) -> str:
        """What is left to do while it is blank."""
        return f"write {self.name}()"


def exercise(
    id: str, title: str, difficulty: int, minutes: int, equation: str = ""
) -> Callable[[Answer], Task]:
    """Make a task of its reference: a decorator. The arguments are those attributes of `Task`."""
    return lambda function: Task(
        id, function.__name__, title, difficulty, minutes, equation, function
    )


def generator(seed: int) -> torch.Generator:
    """A random generator for a check's inputs."""
    return torch.Generator().manual_seed(seed)


def numbers(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """A tensor of normally distributed numbers, the same for the same seed."""
    return scale * torch.randn(shape, generator=generator(seed))


def distribution(*shape: int, seed: int = 0, sharp: float = 1.0) -> Tensor:
    """A tensor of weights that sum to 1 over the last axis."""
    return torch.softmax(numbers(*shape, seed=seed, scale=sharp), -1)


def gradients(loss: Any, leaves: Mapping[str, Tensor]) -> Any:
    """The gradients of a learner's loss at tensors, by their names; what is no number is returned as it is."""
    if not isinstance(loss, Number) and not (isinstance(loss, Tensor) and not loss.dim()):
        return loss
    if not isinstance(loss, Tensor) or not loss.requires_grad:
        raise Failed(
            "nothing is left to learn from: the result is cut off from the graph (by detach, item or no_grad?)"
        )
    values = torch.autograd.grad(loss, [*leaves.values()], retain_graph=True, allow_unused=True)
    pairs = zip(leaves.items(), values, strict=True)
    return {
        f"the gradient at {name}": torch.zeros_like(leaf) if g is None else g
        for (name, leaf), g in pairs
    }


def without_graph(results: Any) -> Any:
    """A learner's results as they are; a list of which one still holds its graph is refused."""
    if isinstance(results, list) and any(getattr(each, "requires_grad", False) for each in results):
        raise Failed(
            "a result holds its graph, and so memory: loss.item() or maps.detach() lets go of it"
        )
    return results


def with_gradients(*names: str, parts: Sequence[str] = ("",)) -> Answer:
    """An `observe` that compares a result, or its parts, and the gradients of a sum over it at the first inputs, which are so named."""

    def observe(answer: Answer, *inputs: Any) -> Any:
        leaves = [value.requires_grad_() for value in inputs[: len(names)]]
        copies = [leaf * 1 for leaf in leaves]  # a leaf would not let itself be changed
        output = answer(*copies, *inputs[len(names) :])
        for leaf, copy in zip(leaves, copies, strict=True):
            if output is copy:
                return leaf
            leaf.data.copy_(copy.detach())
        if isinstance(output, Number):
            return gradients(output, {})  # refuses it
        tensors = output if isinstance(output, (tuple, list)) else [output]
        if len(tensors) != len(parts) or not all(isinstance(each, Tensor) for each in tensors):
            return output
        total = sum((each.flatten() * torch.linspace(1, 2, each.numel())).sum() for each in tensors)
        values = {part: each.detach() for part, each in zip(parts, tensors, strict=True)}
        try:
            return values | gradients(total, dict(zip(names, leaves, strict=True)))
        except RuntimeError:
            raise Failed(
                "no way back for the gradients: it changes in place (`x /= y`) what they need"
            ) from None

    return observe
