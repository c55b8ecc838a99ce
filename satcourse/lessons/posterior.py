"""A learned posterior of the places: an attention that also sees the word y_t, after Deng et al. (2018, arXiv:1807.03756).

Theirs sees all words of the target. This one does not know the words to come, so it can be exact for the last look only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from satcourse.lessons.estimators import paths_of, run_every_path
from satlib.model.attention import AdditiveEnergy
from satlib.model.decoder import Decoder, Output


class Posterior(nn.Module):
    """q(s_t|s_<t, y_<=t, a): the attention's weights times exp(v . tanh(W_a a_i + W_h [h_{t-1}; E y_t] + b)), normalised.

    The decoder is input here: no gradient goes through q to its weights. Fresh, q is the attention itself.
    """

    def __init__(self, decoder: Decoder, annotation_dim: int, width: int) -> None:
        super().__init__()
        self.energy = AdditiveEnergy(annotation_dim, decoder.config.hidden + decoder.config.embedding, width)
        nn.init.zeros_(self.energy.energy.weight)

    def forward(self, decoder: Decoder, output: Output, a: Tensor, caption: Tensor) -> Tensor:
        """Log q(s) of the rows of `run_every_path`: a (1, L, D), caption (1, C) -> (P,)."""
        assert output.places is not None  # every path is sampled
        P, C, _ = output.alphas.shape
        keys, y = self.energy.annotation(a).expand(P * C, -1, -1), decoder.embed(caption).expand(P, -1, -1)
        query = torch.cat([output.states, y], 2).flatten(0, 1).detach()  # [h_{t-1}; E y_t] (P C, n + m)
        log_q = torch.log_softmax(output.alphas.flatten(0, 1).detach().log() + self.energy(keys, query), 1)
        return log_q.gather(1, output.places.flatten().unsqueeze(1)).view(P, C).sum(1)


def fit(decoder: Decoder, cases: Sequence[tuple[Tensor, Tensor]], width: int = 8, steps: int = 500) -> Posterior:
    """Fit one q to all cases (a (1, L, D), caption (1, C)) by ascending their mean L_1, summed over every path; the decoder stays."""
    torch.manual_seed(0)
    q = Posterior(decoder, cases[0][0].shape[2], width).to(cases[0][0])
    with torch.no_grad():
        outputs = [run_every_path(decoder, *case) for case in cases]
    optimiser = torch.optim.Adam(q.parameters(), 0.02)
    for _ in range(steps):
        loss = torch.zeros(()).to(cases[0][0])
        for output, (a, caption) in zip(outputs, cases, strict=True):
            paths, log_q = paths_of(output, caption), q(decoder, output, a, caption)
            loss = loss - (log_q.exp() * (paths.log_p_path + paths.log_p_caption - log_q)).sum() / len(cases)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return q
