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

from satcourse.exercises import ex07, ex08, reference
from satcourse.exercises.ex07 import END, OPPOSITES, ngrams
from satcourse.lessons.estimators import Paths
from satlib.data import scenes
from satlib.data.text import tokenise
from satlib.evaluation import metrics
from satlib.model.decoder import Output
from satlib.model.objective import HardConfig, VariationalBound

RIGHT = defaultdict(list)


def right(id):
    def keep(function):
        RIGHT[id].append(function)
        return function

    return keep


@right("0.1")
def evidence_by_counting(here, elsewhere):
    words = [max(range(len(p)), key=p.tolist().__getitem__) for p in here]
    return torch.stack([(elsewhere[:, w] < p[w]).float().mean() >= 0.95 for p, w in zip(here, words, strict=True)])


@right("1.1")
def greedy_recursive(step, s, longest, y=None):
    if not longest or y == 0:
        return [], []
    logits, s, alpha = step(y, s)
    y = max(range(len(logits)), key=logits.tolist().__getitem__)
    words, weights = greedy_recursive(step, s, longest - 1, y)
    return [y, *words], [alpha, *weights]


RIGHT["1.2"] += [lambda e, a: (sum(w * x for w, x in zip(e.softmax(0), a, strict=True)), e.softmax(0))]
RIGHT["1.3"] += [lambda e, mask: torch.where(mask, e, -torch.inf).log_softmax(1).exp()]
RIGHT["1.4"] += [
    lambda a, s, P, Q, b, v: torch.stack([((P @ w.T).T + Q @ q + b).tanh() @ v for w, q in zip(a, s, strict=True)])
]
RIGHT["1.6"] += [lambda write, a, s: [write(one @ a, s).topk(1).indices.item() for one in torch.eye(len(a))]]


@right("1.5")
def noun_or_next_by_loop(peak, own, noun):
    rows = [(p - o, n - o) for p, o, n in zip(peak.tolist(), own.tolist(), noun.tolist(), strict=True) if n != o + 1]
    return 100 * sum(p == n for p, n in rows) / len(rows), 100 * sum(p == 1 for p, _ in rows) / len(rows)


@right("2.3")
def unpool_by_loop(values, pooled):
    back = torch.zeros_like(pooled)
    for b, c, y, x in torch.cartesian_prod(*map(torch.arange, values.shape)).tolist():
        dy, dx = divmod(int(pooled[b, c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2].argmax()), 2)
        back[b, c, 2 * y + dy, 2 * x + dx] = values[b, c, y, x]
    return back


RIGHT["2.1"] += [lambda x: x.permute(0, 2, 3, 1).reshape(len(x), -1, x.shape[1])]
RIGHT["2.2"] += [lambda layers: reduce(lambda side, layer: (side - 1) * layer[1] + layer[0], reversed(layers), 1)]
RIGHT["2.4"] += [lambda a, q: (a * q).sum(1) / (a.square().sum(1) * q.square().sum()).sqrt()]
RIGHT["3.1"] += [lambda caption: re.findall(r"[^\W_]+(?:[-'][^\W_]+)*", caption.lower())]


@right("2.5")
def likeness_by_standardising(picture, channel, place, channels, places):
    unit = [(x - x.mean()) / (x - x.mean()).norm() for x in (picture(c, place) for c in channels)]
    return np.mean(
        [(unit[channels.index(channel)] * x).sum() for c, x in zip(channels, unit, strict=True) if c != channel]
    )


@right("3.2")
def sorted_once(captions, size):
    counts = Counter(word for caption in captions for word in tokenise(caption))
    return sorted(counts, key=lambda word: (-counts[word], word))[: size - 2]


@right("3.4")
def even_batches(lengths, size):
    """Four captions in batches of three as two and two: no more batches than needed either."""
    groups = [[i for i, other in enumerate(lengths) if other == length] for length in set(lengths)]
    pieces = [(group, -(-len(group) // size)) for group in groups]
    return [group[start::count] for group, count in pieces for start in range(count)]


@right("3.3")
def byte_pairs_by_text(counted, n):
    texts, pairs = {f" {' '.join(word)} ": times for word, times in counted.items()}, []
    while len(pairs) < n:
        each = [(pair, times) for text, times in texts.items() for pair in itertools.pairwise(text.split())]
        totals = {pair: sum(times for other, times in each if other == pair) for pair, _ in each}
        if not totals:
            return pairs
        pairs.append(sorted(totals, key=lambda pair: (-totals[pair], pair))[0])
        texts = {
            re.sub(rf"(?<= ){pairs[-1][0]} {pairs[-1][1]}(?= )", "".join(pairs[-1]), t): k for t, k in texts.items()
        }
    return pairs


@right("4.1")
def energies_by_loop(a, h, W_a, W_h, b, v):
    images = zip(a, h, strict=True)
    return torch.stack(
        [torch.stack([v.dot(torch.tanh(W_a @ x + W_h @ s + b)) for x in places]) for places, s in images]
    )


@right("4.5")
def lstm_cell(Ey, h, c, z, W, U, Z, b):
    cell = nn.LSTMCell(Ey.shape[1] + z.shape[1], h.shape[1]).requires_grad_(False)
    merged = {"weight_ih": torch.cat([W, Z], 1), "weight_hh": U, "bias_ih": b, "bias_hh": torch.zeros_like(b)}
    cell.load_state_dict(merged)
    return cell(torch.cat([Ey, z], 1), (h, c))


@right("4.6")
def step_by_log_softmax(model, optimiser, a, captions):
    optimiser.zero_grad(set_to_none=False)
    loss = -torch.log_softmax(model(a, captions)[0], 2).gather(2, captions.unsqueeze(2)).mean()
    loss.backward()
    optimiser.step()
    return loss.detach()


@right("4.7")
def emptied_after_the_step(model, a, h, answers):
    optimiser, losses = torch.optim.Adam(model.parameters(), 0.02), []
    for _ in range(40):
        loss = -torch.log_softmax(model(a, h), 1)[torch.arange(len(answers)), answers].mean()
        loss.backward()
        optimiser.step()
        model.zero_grad()
        losses.append(float(loss.detach()))
    return losses


RIGHT["3.6"] += [lambda: ("X-ray: a 2nd dog's 'ball', (a,b)", "Café; it's one-eyed")]
RIGHT["3.5"] += [lambda losses, lengths: torch.cat([row[:n] for row, n in zip(losses, lengths, strict=True)]).mean()]
RIGHT["4.2"] += [lambda e: (e - e.logsumexp(1, keepdim=True)).exp()]
RIGHT["4.3"] += [lambda e, a: (torch.einsum("bl,bld->bd", torch.softmax(e, -1), a), torch.softmax(e, -1))]
RIGHT["4.4"] += [lambda z, h, w, b: torch.einsum("b,bd->bd", 1 / (1 + torch.exp(-(h * w).sum(1) - b)), z)]
RIGHT["5.1"] += [lambda C, L: (L - C) ** 2 / L]
RIGHT["5.2"] += [lambda alphas: alphas.shape[2] - 2 * alphas.sum((1, 2)) + alphas.double().sum(1).pow(2).sum(1)]
RIGHT["5.3"] += [lambda weight, C, L: C * weight * (1 / L)]
RIGHT["5.4"] += [lambda log_p, x, weight: -log_p.sum() / len(x) + weight * (1 - x.sum(1)).square().sum(1).mean()]
RIGHT["5.5"] += [lambda alpha, n: torch.logsumexp(alpha.log().unsqueeze(2) + n.log_softmax(2), 1).exp()]
RIGHT["5.6"] += [lambda alpha, n: torch.einsum("bl,blk->bk", alpha.double(), n.double().log_softmax(2)).softmax(1)]


RIGHT["5.7"] += [lambda x, lengths: sum((1 - x[i, :n].sum(0)).square().sum() for i, n in enumerate(lengths)) / len(x)]


@right("6.1")
def draw_by_walking(alpha, darts):
    result = []
    for weights, dart in zip(alpha.tolist(), darts.tolist(), strict=True):
        i = 0
        while i < len(weights) - 1 and dart >= weights[i]:
            dart, i = dart - weights[i], i + 1
        result.append(i)
    return torch.tensor(result)


RIGHT["6.2"] += [lambda path, caption: Paths(path.long()[:, None], path[:, None], caption[:, None]).bound]
RIGHT["6.3"] += [lambda log_p, reward, b: (log_p * (b - reward.detach())).sum() / len(reward)]
RIGHT["6.4"] += [lambda b, log_p: (log_p.detach() - b, 0.9 * b + 0.1 * log_p.detach().mean())]
RIGHT["6.5"] += [lambda r: r.double() @ (1 - torch.eye(r.shape[1]).double()) / (r.shape[1] - 1)]
RIGHT["6.7"] += [lambda r: (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + 1e-6)]
RIGHT["6.8"] += [lambda log_p, reward, b: -reward.mean() - ((reward.detach() - b) * log_p).mean()]


@right("6.6")
def satlibs_loss(log_p_word, alphas, places, baseline, lambda_r, lambda_e):
    """From logits that are log-probabilities of two words: that of the caption, and the rest."""
    logits = torch.stack([log_p_word, torch.log1p(-log_p_word.exp())], 2)
    module = VariationalBound(HardConfig(baseline="moving-average", lambda_r=lambda_r, lambda_e=lambda_e), 1)
    module.average.fill_(baseline)
    output = Output(logits, alphas, alphas[:, :, 0], places, alphas[:, :, :1])
    return module.eval()(output, torch.zeros_like(places)).loss


@right("7.1")
def likeliest_recursive(table, longest, prefix=()):
    if longest == 0 or END in prefix:
        return list(prefix)
    following = table(prefix)
    return likeliest_recursive(table, longest - 1, (*prefix, min(following, key=lambda word: -following[word])))


@right("7.2")
def beam_as_a_table(next_words, width, longest):
    """A table of finished captions beside the living ones."""
    beams, done = {(): 0.0}, {}
    for _ in range(longest):
        options = {
            (*words, w): total + math.log(p) for words, total in beams.items() for w, p in next_words(words).items()
        }
        best = sorted(options, key=options.__getitem__, reverse=True)[:width]
        done |= {words: options[words] for words in best if words[-1] == END}
        beams = {words: options[words] for words in best if words[-1] != END}
    return (list(max(done, key=done.__getitem__)), max(done.values())) if done else ([], -math.inf)


@right("7.3")
def nucleus_one_by_one(p, share):
    kept = torch.zeros(len(p), dtype=torch.bool)
    while p[kept].sum() < share:
        kept[torch.where(kept, -1.0, p).argmax()] = True
    return torch.where(kept, p, 0.0) / p[kept].sum()


@right("7.4")
def union_of_references(caption, references, n):
    most = reduce(Counter.__or__, [ngrams(words, n) for words in references])
    return float((ngrams(caption, n) & most).total()) / max(1, len(caption) - n + 1)


@right("7.5")
def exponential_of_the_mean_logarithm(captions, references, N):
    precisions = []
    for n in range(1, N + 1):
        totals = [max(0, len(words) - n + 1) for words in captions]
        rows = zip(captions, references, totals, strict=True)
        precisions.append(sum(union_of_references(words, each, n) * total for words, each, total in rows) / sum(totals))
    return math.exp(sum(map(math.log, precisions)) / N) if all(precisions) else 0.0


@right("7.6")
def one_set_at_a_time(said, there):
    wrong = [[thing for thing in ours if thing not in theirs] for ours, theirs in zip(said, there, strict=True)]
    return 100 * sum(map(len, wrong)) / sum(map(len, said)), 100 * sum(map(bool, wrong)) / len(said)


@right("7.7")
def last_of_the_table(next_words, width, longest):
    words, _ = beam_as_a_table(next_words, width, longest)
    return words[:-1] or ex07.best_caption(next_words, width, longest)


@right("7.8")
def best_lie(references):
    """Every single change of every reference is tried."""
    tried = []
    for words in map(str.split, references):
        for place, word in enumerate(words):
            changed = " ".join([*words[:place], OPPOSITES.get(word, word), *words[place + 1 :]])
            if scenes.grammar.parse(changed) != scenes.grammar.parse(references[0]):
                tried.append(changed)
    return max(tried, key=lambda caption: metrics.bleu({"": caption}, {"": references})["BLEU-4 (no brevity penalty)"])


@right("8.1")
def best_and_last_in_windows(scores, patience):
    epochs = range(patience + 1, len(scores) + 1)
    last = next((n for n in epochs if max(scores[n - patience : n]) <= max(scores[: n - patience])), len(scores))
    return scores.index(max(scores[:last])) + 1, last


@right("8.3")
def clipped_by_torch(gradients, most):
    weights = [nn.Parameter(torch.zeros_like(each)) for each in gradients]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient.clone()
    nn.utils.clip_grad_norm_(weights, most)
    return [weight.grad for weight in weights]


@right("9.1")
def by_distance(alpha, mask, tolerance):
    at = (alpha == alpha.max()).nonzero()[0].tolist()
    y, x = ((at[i] + 0.5) * mask.shape[i] / alpha.shape[i] - 0.5 for i in (0, 1))
    return min(math.dist((y, x), pixel) for pixel in mask.nonzero().tolist()) <= tolerance


@right("9.2")
def by_parts_covered(alpha, mask):
    h, w = alpha.shape
    return (alpha.double() * mask.float().unflatten(0, (h, -1)).unflatten(2, (w, -1)).mean((1, 3))).sum()


RIGHT["8.2"] += [lambda sizes: [1 / sum(sizes) * size for size in sizes]]
RIGHT["8.4"] += [lambda problem, m, n: ex08._steps(*ex08._begin(problem), problem, m + n)]
RIGHT["8.5"] += [
    lambda alphas: (1 - alphas.double().sum(1)).square().sum(1),
    lambda alphas: (1 - alphas.sum(1, dtype=torch.float32)).square().sum(1),
]
RIGHT["9.3"] += [
    lambda mask, h, w: functional.normalize(mask.view(h, -1, w, mask.shape[1] // w).sum((1, 3)).flatten().float(), 1, 0)
]
RIGHT["9.4"] += [lambda: (4, "Circle", "own"), lambda: list(reference("9.4")())]


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


@right("10.4")
def force_map_by_map(alpha, light, moved):
    result = alpha.clone()
    for b, t in (light.sum(2) > 0).nonzero().tolist():
        result[b, moved, t] = light[b, t]
    return result


RIGHT["10.2"] += [
    lambda alpha, v: torch.einsum("bhcl,blhe->bche", alpha, v.unflatten(2, (alpha.shape[1], -1))).flatten(2)
]
RIGHT["10.3"] += [
    lambda p, w: torch.tensor([[j < p or p <= j <= i for j in range(p + w)] for i in range(p + w)]),
]
RIGHT["10.5"] += [lambda captions, start: torch.tensor([[start, *row[:-1]] for row in captions.tolist()])]


@right("10.6")
def described_in_sentences(a):
    captions, maps = reference("10.6")(a)
    return [" ".join(words) for words in captions], maps.double()
