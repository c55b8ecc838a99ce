"""Train a decoder further by one objective or another (notebook 07): the same weights, captions and
steps.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from satlib.data.caption_set import CaptionSet
from satlib.data.features import Pixels
from satlib.data.text import END
from satlib.model.captioner import Captioner
from satlib.model.decoder import Decoder
from satlib.model.objective import negative_log_likelihood

Loss = Callable[[Decoder, Tensor, Tensor], Tensor]  # of a (B, L, D) and captions (B, C): ()


class Captions(NamedTuple):
    """A split of I images, and its captions by their number of words."""

    vectors: Tensor  # annotation vectors: (I, L, D)
    by_length: list[
        tuple[Tensor, Tensor]
    ]  # n captions of C words: the image's row (n,), ids (n, C)


@torch.no_grad()
def captions(captioner: Captioner, data: CaptionSet, split: str) -> Captions:
    """Read a split once."""
    examples = list(data.split(split))
    reader = Pixels(data)
    vectors = []
    # 50 at a time, so that not all pictures are in memory at once.
    for start in range(0, len(examples), 50):
        ids = [example.image_id for example in examples[start : start + 50]]
        vectors.append(captioner.annotations(reader.read(ids)))

    by_length: dict[int, tuple[list[int], list[list[int]]]] = {}
    for row, example in enumerate(examples):
        for reference in example.references:
            ids = [*captioner.vocabulary.encode(reference), END]
            rows, words = by_length.setdefault(len(ids), ([], []))
            rows.append(row)
            words.append(ids)

    tensors = [(torch.tensor(rows), torch.tensor(words)) for rows, words in by_length.values()]
    return Captions(torch.cat(vectors), tensors)


def soft_loss(decoder: Decoder, a: Tensor, words: Tensor) -> Tensor:
    """-log p(y|a), without a penalty."""
    return negative_log_likelihood(decoder(a, words).logits, words).mean()


def train(
    start: Decoder,
    attention: str,
    loss: Loss,
    data: Captions,
    batch: int,
    steps: int = 300,
    seed: int = 0,
) -> Decoder:
    """Train a decoder with the weights of `start` and "soft" or "hard" attention, as notebook 07
    does; `start` stays as it is.
    """
    config = replace(start.config, attention=attention)
    decoder = Decoder(config, data.vectors.shape[2], start.embedding.num_embeddings)
    decoder.load_state_dict(start.state_dict())

    optimiser = torch.optim.Adam(decoder.train().parameters(), 3e-4)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    # The captions have their own generator, so that every objective sees the same ones, however
    # many random numbers it draws itself.
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)

    # Batches have captions of one length; a length is drawn as often as captions have it.
    shares = torch.tensor([float(len(rows)) for rows, _ in data.by_length])
    for _ in range(steps):
        rows, words = data.by_length[torch.multinomial(shares, 1, generator=generator)]
        picked = torch.randint(len(rows), (batch,), generator=generator)

        optimiser.zero_grad()
        loss(decoder, data.vectors[rows[picked]], words[picked]).backward()
        nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
        optimiser.step()
        decay.step()
    return decoder.eval()
