"""Right answers to the exercises, written independently of their references: each check has to accept them."""

import itertools
import math
import re
from collections import Counter, defaultdict
from functools import reduce

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from satcourse.checks import reference
from satcourse.checks.ex07 import END, OPPOSITES, ngrams
from satlib.data import scenes
from satlib.evaluation import metrics
from satlib.model.decoder import Output
from satlib.model.objective import HardConfig, VariationalBound
from satlib.recipe import TrainingConfig
from satlib.training.loop import set_learning_rate

RIGHT = defaultdict(list)


def right(id):
    def keep(function):
        RIGHT[id].append(function)
        return function

    return keep


@right("0.1")
def evidence_by_counting(here, elsewhere):
    words = [max(range(len(p)), key=p.tolist().__getitem__) for p in here]
    return torch.stack(
        [(elsewhere[:, w] < p[w]).float().mean() >= 0.95 for p, w in zip(here, words, strict=True)]
    )


@right("1.2")
def greedy_recursive(step, s, longest, y=None):
    if not longest or y == 0:
        return [], []
    logits, s, alpha = step(y, s)
    y = max(range(len(logits)), key=logits.tolist().__getitem__)
    words, weights = greedy_recursive(step, s, longest - 1, y)
    return [y, *words], [alpha, *weights]


RIGHT["1.3"] += [
    lambda e, a: (sum(w * x for w, x in zip(e.softmax(0), a, strict=True)), e.softmax(0))
]
RIGHT["1.4"] += [lambda e, mask: torch.where(mask, e, -torch.inf).log_softmax(1).exp()]
RIGHT["1.5"] += [
    lambda a, s, P, Q, b, v: torch.stack(
        [((P @ w.T).T + Q @ q + b).tanh() @ v for w, q in zip(a, s, strict=True)]
    )
]


@right("1.7")
def noun_or_next_by_loop(peak, own, noun):
    rows = [
        (p - o, n - o)
        for p, o, n in zip(peak.tolist(), own.tolist(), noun.tolist(), strict=True)
        if n != o + 1
    ]
    return 100 * sum(p == n for p, n in rows) / len(rows), 100 * sum(p == 1 for p, _ in rows) / len(
        rows
    )


@right("2.3")
def unpool_by_loop(values, pooled):
    back = torch.zeros_like(pooled)
    for b, c, y, x in torch.cartesian_prod(*map(torch.arange, values.shape)).tolist():
        dy, dx = divmod(int(pooled[b, c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].argmax()), 2)
        back[b, c, 2 * y + dy, 2 * x + dx] = values[b, c, y, x]
    return back


RIGHT["2.1"] += [lambda x: x.permute(0, 2, 3, 1).reshape(len(x), -1, x.shape[1])]
RIGHT["2.2"] += [
    lambda layers: reduce(lambda side, layer: (side - 1) * layer[1] + layer[0], reversed(layers), 1)
]
RIGHT["2.5"] += [lambda a, q: (a * q).sum(1) / (a.square().sum(1) * q.square().sum()).sqrt()]
RIGHT["3.1"] += [lambda caption: re.findall(r"[^\W_]+(?:[-'][^\W_]+)*", caption.lower())]


@right("2.6")
def likeness_by_standardising(picture, channel, place, channels, places):
    unit = [(x - x.mean()) / (x - x.mean()).norm() for x in (picture(c, place) for c in channels)]
    return np.mean(
        [
            (unit[channels.index(channel)] * x).sum()
            for c, x in zip(channels, unit, strict=True)
            if c != channel
        ]
    )


@right("3.3")
def byte_pairs_by_lists(counts, number):
    def join(pieces, pair):
        for i in range(len(pieces) - 1):
            if (pieces[i], pieces[i + 1]) == pair:
                return [*pieces[:i], "".join(pair), *join(pieces[i + 2 :], pair)]
        return pieces

    words, merges = [([*word], times) for word, times in counts.items()], []
    while len(merges) < number:
        found = [
            pair
            for pieces, times in words
            for pair in itertools.pairwise(pieces)
            for _ in range(times)
        ]
        merges.append(sorted(Counter(found).items(), key=lambda item: (-item[1], item[0]))[0][0])
        words = [(join(pieces, merges[-1]), times) for pieces, times in words]
    return merges


@right("3.6")
def word_by_word(captions, E):
    before = [E[words] for words in captions.T[:-1]]
    return torch.stack([torch.zeros(len(captions), E.shape[1]), *before], 1), captions.clone()


@right("3.4")
def even_batches(lengths, size):
    """Four captions in batches of three as two and two: no more batches than needed either."""
    groups = [[i for i, other in enumerate(lengths) if other == length] for length in set(lengths)]
    pieces = [(group, -(-len(group) // size)) for group in groups]
    return [group[start::count] for group, count in pieces for start in range(count)]


@right("4.1")
def energies_by_loop(a, h, W_a, W_h, b, v):
    images = zip(a, h, strict=True)
    return torch.stack(
        [
            torch.stack([v.dot(torch.tanh(W_a @ x + W_h @ s + b)) for x in places])
            for places, s in images
        ]
    )


@right("4.4")
def lstm_cell(Ey, h, c, z, W, U, Z, b):
    cell = nn.LSTMCell(Ey.shape[1] + z.shape[1], h.shape[1])
    merged = {
        "weight_ih": torch.cat([W, Z], 1),
        "weight_hh": U,
        "bias_ih": b,
        "bias_hh": torch.zeros_like(b),
    }
    return torch.func.functional_call(cell, merged, (torch.cat([Ey, z], 1), (h, c)))


@right("4.7")
def step_by_log_softmax(model, optimiser, a, captions):
    optimiser.zero_grad(set_to_none=False)
    loss = -torch.log_softmax(model(a, captions)[0], 2).gather(2, captions.unsqueeze(2)).mean()
    loss.backward()
    optimiser.step()
    return loss.detach()


@right("4.8")
def outside_by_the_nearest_blend(a, k):  # Frank and Wolfe
    others = torch.cat([a[:k], a[k + 1 :]]).double() - a[k]
    z = others.mean(0)
    for step in range(3000):
        i = (others @ z).argmin()
        if others[i] @ z > 1e-9:
            return True
        z = z + 2 / (step + 2) * (others[i] - z)
    return False


RIGHT["3.7"] += [lambda: ("A café's T-shirt, 'blue'; one",)]
RIGHT["3.5"] += [
    lambda losses, lengths: torch.cat(
        [row[:n] for row, n in zip(losses, lengths, strict=True)]
    ).mean()
]
RIGHT["4.2"] += [lambda e: (e - e.logsumexp(1, keepdim=True)).exp()]
RIGHT["4.3"] += [
    lambda e, a: (torch.einsum("bl,bld->bd", torch.softmax(e, -1), a), torch.softmax(e, -1))
]
RIGHT["5.1"] += [lambda C, L: (L - C) ** 2 / L]
RIGHT["5.2"] += [
    lambda alphas: alphas.shape[2] - 2 * alphas.sum((1, 2)) + alphas.double().sum(1).pow(2).sum(1)
]
RIGHT["5.4"] += [lambda weight, C, L: C * weight * (1 / L)]


RIGHT["5.8"] += [
    lambda x: (
        all(p > w for p in x[1, :, -1] for w in x[0, :, -1])
        and (x[1, :, -1] - x[0, :, -1]).sum() > 0.9 * (x[1] - x[0])[:, x.shape[2] // 2].sum()
    )
]


@right("6.1")
def draw_by_walking(alpha, darts):
    result = []
    for weights, dart in zip(alpha.tolist(), darts.tolist(), strict=True):
        i = 0
        while i < len(weights) - 1 and dart >= weights[i]:
            dart, i = dart - weights[i], i + 1
        result.append(i)
    return torch.tensor(result)


RIGHT["6.3"] += [lambda log_p, reward, b: (log_p * (b - reward.detach())).sum() / len(reward)]
RIGHT["6.5"] += [lambda r: r.double() @ (1 - torch.eye(r.shape[1]).double()) / (r.shape[1] - 1)]


@right("6.6")
def by_a_sum_that_is_zero(energies, noise, temperature):
    soft = ((energies + noise) / temperature).softmax(1)
    hard = (soft == soft.amax(1, keepdim=True)).float()
    return soft - (soft - hard).detach()


@right("6.9")
def all_words_first(step, state, darts):
    """To the last dart, whether a caption has ended or not; what follows its end is masked afterwards."""
    words, told, logs = torch.full((len(darts),), -1), [], []
    for dart in darts.T:
        logits, state = step(state, words)
        words = draw_by_walking(logits.softmax(1).detach(), dart)
        told.append(words)
        logs.append(-functional.cross_entropy(logits, words, reduction="none"))
    told, logs = torch.stack(told, 1), torch.stack(logs, 1)
    over = (told == 0).cumsum(1) - (told == 0).long() > 0
    return told.masked_fill(over, 0), logs.masked_fill(over, 0.0).sum(1)


@right("6.8")
def satlibs_loss(log_p_word, alphas, places, baseline, lambda_r, lambda_e):
    """From logits that are log-probabilities of two words: that of the caption, and the rest."""
    logits = torch.stack([log_p_word, torch.log1p(-log_p_word.exp())], 2)
    module = VariationalBound(
        HardConfig(baseline="moving-average", lambda_r=lambda_r, lambda_e=lambda_e), 1
    )
    module.average.fill_(baseline / places.shape[1])
    output = Output(logits, alphas, alphas[:, :, 0], places, alphas[:, :, :1])
    return module.eval()(output, torch.zeros_like(places)).loss


@right("7.1")
def beam_as_a_table(next_words, width, longest):
    """A table of finished captions beside the living ones."""
    beams, done = {(): 0.0}, {}
    for _ in range(longest):
        options = {
            (*words, w): total + math.log(p)
            for words, total in beams.items()
            for w, p in next_words(words).items()
        }
        best = sorted(options, key=options.__getitem__, reverse=True)[:width]
        done |= {words: options[words] for words in best if words[-1] == END}
        beams = {words: options[words] for words in best if words[-1] != END}
    return (list(max(done, key=done.__getitem__)), max(done.values())) if done else ([], -math.inf)


@right("7.2")
def nucleus_one_by_one(p, share):
    kept = torch.zeros(len(p), dtype=torch.bool)
    while p[kept].sum() < share:
        kept[torch.where(kept, -1.0, p).argmax()] = True
    return torch.where(kept, p, 0.0) / p[kept].sum()


@right("7.3")
def union_of_references(caption, references, n):
    most = reduce(Counter.__or__, [ngrams(words, n) for words in references])
    return float((ngrams(caption, n) & most).total()) / max(1, len(caption) - n + 1)


@right("7.4")
def exponential_of_the_mean_logarithm(captions, references, N):
    precisions = []
    for n in range(1, N + 1):
        totals = [max(0, len(words) - n + 1) for words in captions]
        rows = zip(captions, references, totals, strict=True)
        precisions.append(
            sum(union_of_references(words, each, n) * total for words, each, total in rows)
            / sum(totals)
        )
    return math.exp(sum(map(math.log, precisions)) / N) if all(precisions) else 0.0


@right("7.8")
def best_lie(references):
    """Every single change of every reference is tried."""
    tried = []
    for words in map(str.split, references):
        for place, word in enumerate(words):
            changed = " ".join([*words[:place], OPPOSITES.get(word, word), *words[place + 1 :]])
            if scenes.grammar.parse(changed) != scenes.grammar.parse(references[0]):
                tried.append(changed)
    return max(
        tried,
        key=lambda caption: metrics.bleu({"": caption}, {"": references})[
            "BLEU-4 (no brevity penalty)"
        ],
    )


@right("7.9")
def harmonic_mean(said, there):
    common = [fact for fact in said if fact in there]
    return 0.0 if not common else 2 / (len(said) / len(common) + len(there) / len(common))


@right("8.1")
def as_cross_entropies(counts):
    logits = counts.clamp(min=1e-30).log()
    return math.log(counts.numel()), nn.functional.cross_entropy(
        logits[None], (counts / counts.sum())[None]
    ).item()


@right("8.2")
def by_torchs_cross_entropy(decoder, optimiser, a, captions, steps):
    def one():
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(
            decoder(a, captions).logits.flatten(0, 1), captions.flatten(), ignore_index=-1
        )
        loss.backward()
        optimiser.step()
        return loss.item()

    return [one() for _ in range(steps)]


@right("8.3")
def as_satlib_sets_it(step, steps, warmup, highest):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], highest)
    optimiser.param_groups[0]["base"] = highest
    set_learning_rate(optimiser, TrainingConfig(warmup=warmup, schedule="cosine"), step, steps)
    return optimiser.param_groups[0]["lr"]


@right("8.5")
def sums_over_all_words(decoder, optimiser, scaler, parts, half, most):
    optimiser.zero_grad(set_to_none=False)
    total, words = 0.0, sum((y != -1).sum() for _, y in parts)
    for a, y in parts:
        with torch.autocast("cpu", half):
            logits = decoder(a, y).logits.float().transpose(1, 2)
            loss = nn.functional.cross_entropy(logits, y, ignore_index=-1, reduction="sum") / words
        scaler.scale(loss).backward()
        total += loss.item()
    scaler.unscale_(optimiser)
    nn.utils.clip_grad_norm_(
        [weight for group in optimiser.param_groups for weight in group["params"]], most
    )
    scaler.step(optimiser)
    scaler.update()
    return total


@right("8.7")
def faster_by_every_toss(ours, theirs):
    won = sum(a < b for a, b in zip(ours, theirs, strict=True))
    tosses = [sum(each) >= won for each in itertools.product((0, 1), repeat=len(ours))]
    return sum(tosses) / len(tosses) <= 0.05


@right("9.1")
def by_distance(alpha, mask, tolerance):
    at = (alpha == alpha.max()).nonzero()[0].tolist()
    y, x = ((at[i] + 0.5) * mask.shape[i] / alpha.shape[i] - 0.5 for i in (0, 1))
    return min(math.dist((y, x), pixel) for pixel in mask.nonzero().tolist()) <= tolerance


@right("9.2")
def by_parts_covered(alpha, mask):
    h, w = alpha.shape
    return (
        alpha.double() * mask.float().unflatten(0, (h, -1)).unflatten(2, (w, -1)).mean((1, 3))
    ).sum()


RIGHT["8.4"] += [
    lambda parts: [(y >= 0).sum().item() / sum((z >= 0).sum().item() for z in parts) for y in parts]
]
RIGHT["9.3"] += [
    lambda mask, h, w: functional.normalize(
        mask.view(h, -1, w, mask.shape[1] // w).sum((1, 3)).flatten().float(), 1, 0
    )
]


@right("9.5")
def by_bootstrap(cured, placebos):
    draws = torch.randint(len(cured), (2000, len(cured)))
    return all(
        ((cured.double() - each.double())[draws].mean(1).quantile(0.025) > 0).item()
        for each in placebos
    )


@right("10.1")
def weights_one_by_one(q, k, heads, visible=None):
    width = q.shape[2] // heads
    result = q.new_zeros(len(q), heads, q.shape[1], k.shape[1])
    for b, head, t in torch.cartesian_prod(*map(torch.arange, result.shape[:3])).tolist():
        share = slice(head * width, (head + 1) * width)
        allowed = range(k.shape[1]) if visible is None else visible[t].nonzero().flatten().tolist()
        e = torch.stack([q[b, t, share].dot(k[b, i, share]) for i in allowed]) / width**0.5
        result[b, head, t, list(allowed)] = torch.softmax(e, 0)
    return result


@right("10.5")
def force_map_by_map(alpha, light, moved):
    result = alpha.clone()
    for b, t in (light.sum(2) > 0).nonzero().tolist():
        result[b, moved, t] = light[b, t]
    return result


RIGHT["10.2"] += [
    lambda alpha, v: torch.einsum(
        "bhcl,blhe->bche", alpha, v.unflatten(2, (alpha.shape[1], -1))
    ).flatten(2)
]
RIGHT["10.3"] += [
    lambda p, w: torch.tensor([[j < p or p <= j <= i for j in range(p + w)] for i in range(p + w)]),
]


@right("10.4")
def one_more_by_torch(q, k, v, kept, heads):
    keys, values = (torch.hstack(pair) for pair in zip(kept, (k, v), strict=True))
    parts = (x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q, keys, values))
    return functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2), [
        keys,
        values,
    ]


RIGHT["10.6"] += [lambda x, found, g: torch.addcmul(x, (2 * g).sigmoid() * 2 - 1, found)]
RIGHT["10.7"] += [
    lambda stay, n: torch.tensor([stay(row) - stay(row | True) for row in ~torch.eye(n).bool()])
]


@right("10.10")
def described_in_sentences(a):
    captions, maps = reference("10.10")(a)
    return [" ".join(words) for words in captions], maps.double()
