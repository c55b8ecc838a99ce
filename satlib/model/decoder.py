"""The decoder: an LSTM that looks at the image before every word (section 3.1.2).

For t = 1..C, with y_0 a zero embedding:

    alpha_t, z_t = attention(a, h_{t-1})                      equations 4 to 6; section 4: z_t
    beta_t       = sigma(f_beta(h_{t-1}));  z_t <- beta_t z_t  section 4.2.1, a scalar gate
    i, f, o      = sigma(W_y E y_{t-1} + W_h h_{t-1} + W_z z_t + b)     equation 1, and tanh for g
    c_t          = f * c_{t-1} + i * g                        equation 2
    h_t          = o * tanh(c_t)                              equation 3
    p(y_t)       ~ exp(L_o(E y_{t-1} + L_h h_t + L_z z_t))    equation 7

The words' share of the gates and the vocabulary layer need no loop over time: each is one matrix
product per batch.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from satlib.data.text import START
from satlib.model import attention
from satlib.recipe import DecoderConfig


class State(NamedTuple):
    """The LSTM's hidden and memory states, (B, n) each."""

    h: Tensor
    c: Tensor


class Annotations(NamedTuple):
    """Annotation vectors a (B, L, D), and their keys, which `project` computes once.

    expected: see `attention.HardAttention`.
    """

    a: Tensor
    keys: Tensor
    expected: Tensor | None = None


def select(record: Any, rows: Tensor) -> Any:
    """Some rows of a `State`, of `Annotations` or of a Transformer's cache, in the given order."""
    return type(record)(*(None if tensor is None else tensor[rows] for tensor in record))


def stacked(steps: Sequence[tuple[Any, ...]]) -> list[Any]:
    """What T steps gave, each a tuple of tensors (B, ...) -> tensors (B, T, ...).

    What is None at each step, such as the place of soft attention, stays None.
    """
    values_of_steps = zip(*steps, strict=True)
    return [None if values[0] is None else torch.stack(values, 1) for values in values_of_steps]


class Step(NamedTuple):
    """One step of the LSTM.

    Its new state, the gated context z (B, D), the gate beta (B,), and alpha and place as in
    `attention.AttentionOutput`.
    """

    state: State
    z: Tensor
    alpha: Tensor
    beta: Tensor
    place: Tensor | None


class Prediction(NamedTuple):
    """The next word's logits (B, K), and what led to them.

    The new state and, as in `Step`, alpha, beta and place.
    """

    logits: Tensor
    state: Any
    alpha: Tensor
    beta: Tensor
    place: Tensor | None


class Output(NamedTuple):
    """A whole caption's: logits (B, C, K), alphas (B, C, L), betas (B, C), places (B, C) or None.

    states: h_{t-1} of the LSTM (B, C, n), n = 0 for a Transformer.
    """

    logits: Tensor
    alphas: Tensor
    betas: Tensor
    places: Tensor | None
    states: Tensor


class Decoder(nn.Module):
    """Annotation vectors and words so far to the next word's distribution."""

    def __init__(self, config: DecoderConfig, annotation_dim: int, vocabulary_size: int) -> None:
        """Fresh weights, for annotation vectors of D numbers and K words, special ones included."""
        super().__init__()
        m = config.embedding
        n = config.hidden
        D = annotation_dim
        K = vocabulary_size

        self.config = config
        self.embedding = nn.Embedding(K, m)
        self.attention = attention.create(
            config.attention, D, n, config.attention_hidden, config.attention_layers
        )
        # beta of section 4.2.1.
        self.gate = nn.Linear(n, 1) if config.gate else None

        # The LSTM's four gates, one above the other: i, f, g, o.
        self.gates_word = nn.Linear(m, 4 * n)
        self.gates_state = nn.Linear(n, 4 * n, bias=False)
        self.gates_context = nn.Linear(D, 4 * n, bias=False)
        self.initial_h = self._initial_mlp(D, n, config.dropout)
        self.initial_c = self._initial_mlp(D, n, config.dropout)

        # Equation 7: L_h, L_z and L_o.
        self.output_state = nn.Linear(n, m)
        self.output_context = nn.Linear(D, m, bias=False)
        self.output = nn.Linear(m, K)
        self.dropout = nn.Dropout(config.dropout)

        # Orthogonal where states meet states: over many words they neither grow nor vanish.
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.orthogonal_(self.gates_state.weight)

    @staticmethod
    def _initial_mlp(annotation_dim: int, hidden: int, dropout: float) -> nn.Sequential:
        return nn.Sequential(
            nn.Linear(annotation_dim, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
        )

    def project(self, a: Tensor, expected: Tensor | None = None) -> Annotations:
        """Annotation vectors a (B, L, D) with their keys, for any number of steps."""
        keys = self.attention.keys(a)

        # autocast would round a anew at every word, and autograd keep each copy. An `a` that is
        # trained stays as it is: its gradients are to be summed in float32.
        device = a.device.type
        if torch.is_autocast_enabled(device) and not a.requires_grad:
            a = a.to(torch.get_autocast_dtype(device))
        return Annotations(a, keys, expected)

    def initial_state(self, a: Tensor) -> State:
        """h_0 and c_0 from two MLPs of the mean annotation vector of a (B, L, D)."""
        mean = a.mean(1)  # (B, D)
        return State(self.initial_h(mean), self.initial_c(mean))

    def embed(self, words: Tensor) -> Tensor:
        """Ids (...) -> E y (..., m); a negative id stands for y_0, a zero before the first word."""
        # The embedding has no row for y_0: any row, times 0.
        is_word = (words >= 0).unsqueeze(-1)
        return self.embedding(words.clamp(min=0)) * is_word

    def step(self, annotations: Annotations, state: State, gates_word: Tensor) -> Step:
        """Attend to the image, then update the LSTM; gates_word: W_y E y_{t-1} + b (B, 4n)."""
        a, keys, expected = annotations
        z, alpha, place = self.attention(a, keys, state.h, expected)

        # Section 4.2.1: how much the model looks at all.
        if self.gate is None:
            beta = z.new_ones(len(z))
        else:
            beta = torch.sigmoid(self.gate(state.h)).squeeze(1)  # (B,)
            z = beta.unsqueeze(1) * z

        # Equations 1 to 3.
        gates = gates_word + self.gates_state(state.h) + self.gates_context(z)  # (B, 4n)
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * state.c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return Step(State(h, c), z, alpha, beta, place)

    def logits(self, embedded: Tensor, h: Tensor, z: Tensor) -> Tensor:
        """L_o(E y_{t-1} + L_h h_t + L_z z_t): (..., m), (..., n), (..., D) -> (..., K)."""
        # Words, state and context meet in m numbers: a deep output layer (Pascanu et al., 2014).
        deep = embedded + self.output_state(self.dropout(h)) + self.output_context(z)  # (..., m)
        if self.config.output_tanh:
            deep = torch.tanh(deep)
        return self.output(self.dropout(deep))

    def predict(self, annotations: Annotations, state: State, words: Tensor) -> Prediction:
        """The next word's logits, after one more word (B,) for each row, -1 for y_0."""
        embedded = self.embed(words)  # (B, m)
        step = self.step(annotations, state, self.gates_word(embedded))
        logits = self.logits(embedded, step.state.h, step.z)
        return Prediction(logits, step.state, step.alpha, step.beta, step.place)

    def forward(self, a: Tensor, captions: Tensor, expected: Tensor | None = None) -> Output:
        """Teacher forcing: every word is predicted from the true words before it.

        a: annotation vectors (B, L, D). captions: ids (B, C) with the end mark, `PAD` after it.
        expected: see `attention.HardAttention`.
        """
        annotations = self.project(a, expected)
        state = self.initial_state(a)

        # The word before each word: y_0 before the first.
        before = nn.functional.pad(captions[:, :-1], (1, 0), value=START)  # (B, C)
        embedded = self.embed(before)  # (B, C, m)
        gates_words = self.gates_word(embedded)  # (B, C, 4n)

        # The only loop over the words: gates above and the vocabulary below need none.
        steps = []
        # Unbound, not indexed: autograd would give each word's index a gradient of all words' size.
        for gates_word in gates_words.unbind(1):
            # The baseline of hard attention may depend on the state before the look, not after it.
            before_look = state.h
            state, z, alpha, beta, place = self.step(annotations, state, gates_word)
            steps.append((state.h, z, alpha, beta, place, before_look))

        # (B, C, n), (B, C, D), then as in `Output`.
        h, z, alphas, betas, places, states = stacked(steps)
        return Output(self.logits(embedded, h, z), alphas, betas, places, states)
