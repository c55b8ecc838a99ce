"""The loop over words behind `satlib.training.fast`: `Decoder.step` for every word of a caption, with a hand-written gradient.

It saves time and memory in four places:

1. One matrix product of h_{t-1} gives the gates' share, the query W_h h of the energies and the gate beta; and the gradient of
   each weight is one product over all words after the loop, where autograd adds one up per word.
2. The additive energy costs a tanh of L x n per word. But tanh(k + q) = 1 - 2 r with r = 1 / (1 + e^2k e^2q), and e^2k is the
   same for all words of a caption: a word is left with a multiplication, an addition and a division.
3. No r is stored for the backward pass: it is recomputed, a few rows at a time, so that it stays in the processor's cache.
4. The gradient of the keys is accumulated in place over the words, and its common factors are applied at the end.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from satlib.model.attention import AdditiveEnergy, ConcatEnergy, HardAttention, NoAttention
from satlib.model.decoder import Decoder, State, View

CACHE = 2**20  # bytes of r at a time and thread on a CPU, near its second-level cache
STEEP = 20.0  # keys up to this size: 1 - tanh(20) is less than float64 can tell from 0, so that no query can mislead


class Steps(NamedTuple):
    """A whole caption's, as in `decoder.Output`: h_1..h_C (B, C, n), gated z (B, C, D), alphas (B, C, L), betas (B, C), places."""

    h: Tensor
    z: Tensor
    alphas: Tensor
    betas: Tensor
    places: Tensor | None


def steps(decoder: Decoder, view: View, state: State, gates_words: Tensor) -> Steps:
    """All words of a caption, with teacher forcing.

    Args:
        decoder: whose weights and attention.
        view: of B images.
        state: h_0, c_0.
        gates_words: W_y E y_{t-1} + b for t = 1..C (B, C, 4n).
    """
    attention, n = decoder.attention, decoder.config.hidden
    energy = getattr(attention, "energy", None)
    query = v = None
    if isinstance(energy, AdditiveEnergy):
        query, v = energy.state.weight, energy.energy.weight
    elif isinstance(energy, ConcatEnergy):
        query, v = energy.joint.weight[:, energy.annotation_dim :], energy.energy.weight
    gate = decoder.gate
    # The rows of one matrix that meets h: gates, query, beta.
    parts = [decoder.gates_state.weight, query, None if gate is None else gate.weight]
    weights = torch.cat([part for part in parts if part is not None])
    split = (4 * n, 0 if query is None else len(query), 0 if gate is None else 1)
    look = attention.choose if isinstance(attention, HardAttention) else None
    kind = view.a.device.type
    low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    expected = None if look is None else view.expected
    plan = _Plan(split, look, expected, isinstance(attention, NoAttention), low)
    bias = None if gate is None else gate.bias
    *values, places = _Loop.apply(
        plan, view.a, view.keys, *state, gates_words, weights, decoder.gates_context.weight, v, bias
    )
    return Steps(*values, places if look is not None and places.numel() else None)


class _Plan(NamedTuple):
    """The settings of a loop, none of which is differentiated."""

    split: tuple[int, int, int]  # rows of h's product: gates, query, beta
    look: Callable[[Tensor], Tensor | None] | None  # how a place is chosen by alpha
    expected: Tensor | None  # as in `decoder.View`
    mean: bool  # no attention: z is the mean
    low: torch.dtype | None  # of matrix products, under autocast

    def cast(self, weights: Tensor) -> Tensor:
        """Weights as products take them."""
        return weights.to(self.low or torch.promote_types(weights.dtype, torch.float32))

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        """The matrix product, in the precision that was asked for."""
        return x @ y if self.low is None else (x.to(self.low) @ y.to(self.low)).to(x.dtype)

    def soft(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Which rows take the expectation where places are chosen, and their annotation vectors."""
        none = torch.empty(0, dtype=torch.long, device=a.device)
        rows = none if self.expected is None else self.expected.nonzero().squeeze(1)
        return rows, a[rows]

    @contextmanager
    def exact(self) -> Iterator[None]:
        """No casting but by `times`."""
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield


class _Tanh:
    """e = v . tanh(keys + q), and what the gradient of its inputs needs, words coming one by one."""

    def __init__(self, keys: Tensor, v: Tensor) -> None:
        B, L, width = keys.shape
        least, most = keys.aminmax()
        self.steep = bool(torch.maximum(-least, most) > STEEP)  # then tanh itself: rare, and as right
        self.table = keys if self.steep else (2 * keys).exp_()
        self.v = v.flatten()
        at_once = CACHE * torch.get_num_threads() // (L * width * keys.element_size())
        self.rows = B if keys.is_cuda else min(B, max(1, at_once))
        self.space = keys.new_empty(self.rows, L, width)
        self.one = keys.new_ones(())

    def begin(self) -> None:
        """Nothing has been added up yet."""
        self.d_table = torch.zeros_like(self.table)
        self.d_v = torch.zeros_like(self.v).unsqueeze(0)

    def parts(self, q: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """For a few rows at a time: which, and r = (1 - tanh(keys + q)) / 2, (rows, L, width), good until the next."""
        factor = (q if self.steep else (2 * q).clamp(-4 * STEEP, 4 * STEEP).exp_()).unsqueeze(1)
        for start in range(0, len(self.table), self.rows):
            rows = slice(start, min(start + self.rows, len(self.table)))
            r = self.space[: rows.stop - start]
            if self.steep:
                torch.add(self.table[rows], factor[rows], out=r).tanh_().mul_(-0.5).add_(0.5)
            else:
                torch.addcmul(self.one, self.table[rows], factor[rows], out=r).reciprocal_()
            yield rows, r

    def energies(self, q: Tensor) -> Tensor:
        """From q (B, width): e (B, L), less the sum of v, which no softmax sees."""
        e = q.new_empty(self.table.shape[:2])
        v = -2 * self.v
        for rows, r in self.parts(q):
            torch.mv(r.view(-1, len(v)), v, out=e[rows].view(-1))
        return e

    def backward(self, q: Tensor, d_e: Tensor) -> Tensor:
        """The gradient of q (B, width) by that of e (B, L); those of keys and v are added up. tanh' = 4 r (1 - r)."""
        d_q = q.new_empty(q.shape)
        for rows, r in self.parts(q):
            d = d_e[rows]
            self.d_v.addmm_(d.view(1, -1), r.view(-1, r.shape[2]))
            slope = torch.addcmul(r, r, r, value=-1, out=r)
            torch.bmm(d.unsqueeze(1), slope, out=d_q[rows].unsqueeze(1))
            self.d_table[rows].addcmul_(slope, d.unsqueeze(2))
        return d_q.mul_(4 * self.v)

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Of keys and v."""
        return self.d_table.mul_(4 * self.v), self.d_v.mul_(-2)


class _Dot:
    """e = keys . q, with q = h."""

    def __init__(self, keys: Tensor) -> None:
        self.table = keys

    def begin(self) -> None:
        """Nothing has been seen yet."""
        self.seen: list[tuple[Tensor, Tensor]] = []

    def energies(self, q: Tensor) -> Tensor:
        """From q (B, n): e (B, L)."""
        return _along(self.table, q)

    def backward(self, q: Tensor, d_e: Tensor) -> Tensor:
        """As `_Tanh.backward`."""
        self.seen.append((d_e, q))
        return _weighted(d_e, self.table)

    def gradients(self) -> tuple[Tensor, None]:
        """Of keys: one product over the words for each row."""
        d_e, q = (torch.stack(parts, 1) for parts in zip(*self.seen, strict=True))
        return torch.bmm(d_e.transpose(1, 2), q), None


def _weighted(weights: Tensor, a: Tensor) -> Tensor:
    """sum_i w_i a_i: (B, L), (B, L, D) -> (B, D)."""
    return torch.bmm(weights.unsqueeze(1), a).squeeze(1)


def _along(a: Tensor, x: Tensor) -> Tensor:
    """a_i . x: (B, L, D), (B, D) -> (B, L). As a row times a matrix: on a CPU the other order takes four times as long."""
    return torch.bmm(x.unsqueeze(1), a.transpose(1, 2)).squeeze(1)


class _Loop(torch.autograd.Function):
    """h_0, c_0 and the words' share of the gates to all h_t, z_t, alpha_t, beta_t, s_t. What it keeps has words first: (C, B, ...)."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        a: Tensor,
        keys: Tensor,
        h: Tensor,
        c: Tensor,
        words: Tensor,
        of_h: Tensor,
        of_z: Tensor,
        v: Tensor | None,
        bias: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """See `steps`; of_h (4n + width + 1, n) and of_z (4n, D) are the weights that meet h and z at every word."""
        precise = torch.promote_types(of_h.dtype, torch.float32)
        a, keys, h, c, words = (each.to(precise) for each in (a, keys, h, c, words))
        of_h, of_z = plan.cast(of_h), plan.cast(of_z)
        (B, L, D), C, n = a.shape, words.shape[1], h.shape[1]
        energy = None if plan.mean else _Dot(keys) if v is None else _Tanh(keys, v.to(precise))
        products, gates = a.new_empty(C, B, len(of_h)), a.new_empty(C, B, 4 * n)
        hs, cs, zs = a.new_empty(C + 1, B, n), a.new_empty(C + 1, B, n), a.new_empty(C, B, D)
        alphas, betas = a.new_full((C, B, L), 1 / L), a.new_ones(C, B)
        places: list[Tensor] = []
        soft, a_soft = plan.soft(a)
        every = torch.arange(B, device=a.device)
        hs[0], cs[0] = h, c
        with plan.exact():
            for t in range(C):
                products[t] = plan.times(hs[t], of_h.T)
                from_h, q, from_gate = products[t].split(plan.split, 1)
                if energy is None:
                    z = keys.squeeze(1)
                else:
                    torch.softmax(energy.energies(q if plan.split[1] else hs[t]), 1, out=alphas[t])
                    place = None if plan.look is None else plan.look(alphas[t])
                    if place is None:
                        z = _weighted(alphas[t], a)
                    else:
                        z = a[every, place]
                        if len(a_soft):
                            z[soft] = _weighted(alphas[t][soft], a_soft)
                        places.append(place if plan.expected is None else place.masked_fill(plan.expected, -1))
                if bias is not None:
                    torch.sigmoid(from_gate.squeeze(1) + bias, out=betas[t])
                torch.mul(z, betas[t].unsqueeze(1), out=zs[t])
                torch.add(words[:, t], from_h, out=gates[t]).add_(plan.times(zs[t], of_z.T))
                i, f, g, o = gates[t].chunk(4, 1)
                i.sigmoid_(), f.sigmoid_(), g.tanh_(), o.sigmoid_()
                torch.mul(f, cs[t], out=cs[t + 1]).addcmul_(i, g)
                torch.mul(o, cs[t + 1].tanh(), out=hs[t + 1])
        if not places:
            soft, a_soft = slice(None), a
        ctx.save_for_backward(of_h, of_z, a_soft, hs, cs, zs, alphas, betas, gates, products, *places)
        ctx.plan, ctx.energy, ctx.soft = plan, energy, soft
        chosen = torch.stack(places, 1) if places else every.new_empty(0)
        ctx.mark_non_differentiable(chosen)
        return (*(each.transpose(0, 1).contiguous() for each in (hs[1:], zs, alphas, betas)), chosen)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_hs: Tensor, d_zs: Tensor, d_alphas: Tensor, d_betas: Tensor, _: Any) -> tuple[Any, ...]:
        """From the last word to the first."""
        of_h, of_z, a_soft, hs, cs, zs, alphas, betas, gates, products, *places = ctx.saved_tensors
        plan, energy, soft = ctx.plan, ctx.energy, ctx.soft
        C, n, width = len(zs), hs.shape[2], plan.split[1]
        d_products, d_seen = torch.empty_like(products), torch.empty_like(zs)
        d_h, d_c = torch.zeros_like(hs[0]), torch.zeros_like(cs[0])
        if energy is not None:
            energy.begin()
        with plan.exact():
            for t in reversed(range(C)):
                d_gates, d_q, d_gate = d_products[t].split(plan.split, 1)
                i, f, g, o = gates[t].chunk(4, 1)
                tanh_c = cs[t + 1].tanh()
                d_h = d_h + d_hs[:, t]
                d_c = d_c + d_h * o * (1 - tanh_c.square())
                d_i, d_f, d_g, d_o = d_gates.chunk(4, 1)
                torch.mul(d_c * g, i * (1 - i), out=d_i)
                torch.mul(d_c * cs[t], f * (1 - f), out=d_f)
                torch.mul(d_c * i, 1 - g.square(), out=d_g)
                torch.mul(d_h * tanh_c, o * (1 - o), out=d_o)
                d_c = d_c * f
                d_z = plan.times(d_gates, of_z).add_(d_zs[:, t])
                if plan.split[2]:  # zs is gated already: z . d_z times beta (1 - beta) is zs . d_z times 1 - beta
                    d_gate[:, 0] = (1 - betas[t]) * ((zs[t] * d_z).sum(1) + betas[t] * d_betas[:, t])
                torch.mul(d_z, betas[t].unsqueeze(1), out=d_seen[t])
                if energy is None:
                    d_h = plan.times(d_products[t], of_h)
                    continue
                d_alpha = d_alphas[:, t].clone()
                if len(a_soft):
                    d_alpha[soft] += _along(a_soft, d_seen[t][soft])
                d_e = alphas[t] * (d_alpha - (alphas[t] * d_alpha).sum(1, keepdim=True))
                if width:
                    d_q.copy_(energy.backward(products[t].split(plan.split, 1)[1], d_e))
                    d_h = plan.times(d_products[t], of_h)
                else:
                    d_h = plan.times(d_products[t], of_h) + energy.backward(hs[t], d_e)
            rows = d_products.flatten(0, 1)
            d_of_h = plan.times(rows.T, hs[:-1].flatten(0, 1))
            d_of_z = plan.times(rows[:, : 4 * n].T, zs.flatten(0, 1))
        d_a = d_v = None
        if energy is None:
            d_keys = d_seen.sum(0).unsqueeze(1)
        else:
            d_keys, d_v = energy.gradients()
            if ctx.needs_input_grad[1]:
                d_a = _of_annotations(alphas, places, d_seen)
        d_bias = rows[:, -1].sum().unsqueeze(0) if plan.split[2] else None
        d_words = d_products[:, :, : 4 * n].transpose(0, 1)
        return None, d_a, d_keys, d_h, d_c, d_words, d_of_h, d_of_z, d_v, d_bias


def _of_annotations(alphas: Tensor, places: Sequence[Tensor], d_z: Tensor) -> Tensor:
    """The gradient of a by that of every word's z: each got its share alpha of z, or all or nothing where a place was sampled."""
    if places:
        place = torch.stack(list(places)).unsqueeze(2)
        one_hot = torch.zeros_like(alphas).scatter_(2, place.clamp(min=0), 1)
        alphas = torch.where(place >= 0, one_hot, alphas)
    return torch.bmm(alphas.permute(1, 2, 0), d_z.transpose(0, 1))
