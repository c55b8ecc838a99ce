"""What the exercises 4.6 and 4.7 train: a small decoder, and a network that has to look at the right place."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from satcourse.exercises.calls import Failed
from satcourse.exercises.task import Answer, generator, numbers
from satlib.model.decoder import Decoder
from satlib.recipe import DecoderConfig

L, D, m, n, K = 5, 6, 4, 6, 7


class Pointer(nn.Module):
    """A network that has to look at the right one of L places: a (B, L, D), h (B, n) -> logits (B, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.W_a, self.W_h, self.v = nn.Linear(D, 16), nn.Linear(n, 16), nn.Linear(16, 1)
        self.out = nn.Linear(D, 4)

    def forward(self, a: Tensor, h: Tensor) -> Tensor:
        """The logits of the four answers."""
        e = self.v(torch.tanh(self.W_a(a) + self.W_h(h).unsqueeze(1))).squeeze(2)
        return self.out((torch.softmax(e, 1).unsqueeze(2) * a).sum(1))


def task_to_point(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Places a (64, L, D), questions h (64, n), answers (64,): the first two numbers of a say which place answers."""
    a, draw = numbers(64, L, D, seed=seed), generator(seed + 1)
    where = torch.randint(0, L, (64,), generator=draw)
    answers = torch.randint(0, 4, (64,), generator=draw)
    a[:, :, 0] = 0
    a[torch.arange(64), where, 0] = 3
    a[:, :, 2:] *= 0.3
    a[torch.arange(64), where, 2 + answers] += 2
    return a, numbers(64, n, seed=seed + 2), answers


def with_pointer(answer: Answer, seed: int) -> Any:
    """The losses that a learner's training gives for a new network."""
    torch.manual_seed(seed)
    losses = answer(Pointer(), *task_to_point(seed))
    return _without_graphs(losses) if isinstance(losses, (list, tuple)) else losses


def _without_graphs(losses: Sequence[Any]) -> Sequence[Any]:
    """The losses, refused if one of them holds its graph."""
    if any(isinstance(loss, Tensor) and loss.requires_grad for loss in losses):
        raise Failed("a loss holds its graph: keep a number, by loss.item()")
    return losses


class _Small(nn.Module):
    """satlib's decoder, as a learner's: model(a, captions) gives logits and maps."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = Decoder(DecoderConfig(embedding=m, hidden=n, attention_hidden=4, dropout=0.0), D, K)

    def forward(self, a: Tensor, captions: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (B, C, K) and maps (B, C, L), by teacher forcing."""
        output = self.decoder(a, captions)
        return output.logits, output.alphas


def three_steps(answer: Answer, seed: int) -> Any:
    """The losses of three calls of a learner's step, with plain gradient descent, and how far the weights have moved."""
    torch.manual_seed(seed)
    model = _Small()
    before = torch.cat([weight.detach().flatten() for weight in model.parameters()])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    a, captions = numbers(4, L, D, seed=seed), torch.randint(0, K, (4, 3), generator=generator(seed + 1))
    losses = _without_graphs([answer(model, optimiser, a, captions) for _ in range(3)])
    moved = torch.cat([weight.detach().flatten() for weight in model.parameters()]) - before
    return {**{f"the loss of step {k}": loss for k, loss in enumerate(losses, 1)}, "the weights": moved}
