"""Right answers to the exercises, written independently of their references: each check has to
accept them.

Most are written in a style that a learner may well choose and the reference does not: a loop where
the reference multiplies matrices, another function of torch, another order of the same sums.
"""

import itertools
import math
import re
import statistics
from collections import Counter, defaultdict
from functools import reduce

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from satcourse.checks import reference
from satcourse.checks.ex08 import END, OPPOSITES, ngrams
from satcourse.widgets.steering import steered
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


def indices(shape):
    """All indices of a tensor of this shape, the last one running fastest."""
    return torch.cartesian_prod(*map(torch.arange, shape)).tolist()


# --- 0: look --------------------------------------------------------------------------------------


@right("0.1")
def evidence_by_counting(here, elsewhere):
    verdicts = []
    for p in here:
        word = max(range(len(p)), key=p.tolist().__getitem__)
        less_likely = elsewhere[:, word] < p[word]
        verdicts.append(less_likely.float().mean() >= 0.95)
    return torch.stack(verdicts)


# --- 1: attention before images -------------------------------------------------------------------


@right("1.2")
def greedy_recursive(step, s, longest, y=None):
    if not longest or y == 0:
        return [], []
    logits, s, alpha = step(y, s)
    y = max(range(len(logits)), key=logits.tolist().__getitem__)
    words, weights = greedy_recursive(step, s, longest - 1, y)
    return [y, *words], [alpha, *weights]


@right("1.3")
def context_vector_by_vector(e, a):
    alpha = e.softmax(0)
    return sum(w * x for w, x in zip(alpha, a, strict=True)), alpha


@right("1.4")
def masked_softmax_by_logarithms(e, mask):
    return torch.where(mask, e, -torch.inf).log_softmax(1).exp()


@right("1.5")
def energies_image_by_image(a, s, P, Q, b, v):
    rows = []
    for w, q in zip(a, s, strict=True):
        units = ((P @ w.T).T + Q @ q + b).tanh()
        rows.append(units @ v)
    return torch.stack(rows)


@right("1.7")
def noun_or_next_by_loop(peak, own, noun):
    rows = []
    for p, o, n in zip(peak.tolist(), own.tolist(), noun.tolist(), strict=True):
        # Where the noun is the next word, the two hypotheses say the same.
        if n != o + 1:
            rows.append((p - o, n - o))
    at_noun = sum(p == n for p, n in rows)
    at_next = sum(p == 1 for p, _ in rows)
    return 100 * at_noun / len(rows), 100 * at_next / len(rows)


# --- 2: features ----------------------------------------------------------------------------------


@right("2.1")
def places_by_reshaping(x):
    return x.permute(0, 2, 3, 1).reshape(len(x), -1, x.shape[1])


@right("2.2")
def field_from_the_top(layers):
    # One unit of the output, widened layer by layer down to the pixels.
    side = 1
    for kernel, stride in reversed(layers):
        side = (side - 1) * stride + kernel
    return side


@right("2.3")
def unpool_by_loop(values, pooled):
    back = torch.zeros_like(pooled)
    for b, c, y, x in indices(values.shape):
        window = pooled[b, c, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
        dy, dx = divmod(int(window.argmax()), 2)
        back[b, c, 2 * y + dy, 2 * x + dx] = values[b, c, y, x]
    return back


@right("2.5")
def cosines_under_one_root(a, q):
    squares = a.square().sum(1) * q.square().sum()
    return (a * q).sum(1) / squares.sqrt()


@right("2.6")
def likeness_by_standardising(picture, channel, place, channels, places):
    unit = {}
    for c in channels:
        x = picture(c, place)
        x = x - x.mean()
        # Of vectors of mean 0 and length 1, the inner product is the correlation.
        unit[c] = x / x.norm()
    others = [x for c, x in unit.items() if c != channel]
    return np.mean([(unit[channel] * x).sum() for x in others])


@right("2.7")
def taken_out_by_filling(suspect, pooled, modules, noise):
    kinds = (nn.Conv2d, nn.MaxPool2d) if suspect == "ReLU" else nn.Module
    kept = [
        each for each in (noise if suspect == "weights" else modules) if isinstance(each, kinds)
    ]
    return kept, [torch.ones_like(p) if suspect == "switches" else p for p in pooled]


# --- 3: captions ----------------------------------------------------------------------------------


@right("3.1")
def words_by_letters(caption):
    return re.findall(r"[^\W_]+(?:[-'][^\W_]+)*", caption.lower())


@right("3.3")
def byte_pairs_by_lists(counts, number):
    def join(pieces, pair):
        for i in range(len(pieces) - 1):
            if (pieces[i], pieces[i + 1]) == pair:
                return [*pieces[:i], "".join(pair), *join(pieces[i + 2 :], pair)]
        return pieces

    words = [([*word], times) for word, times in counts.items()]
    merges = []
    while len(merges) < number:
        found = Counter()
        for pieces, times in words:
            for pair in itertools.pairwise(pieces):
                found[pair] += times

        # The most frequent, and of several the first by the alphabet.
        best = min(found, key=lambda pair: (-found[pair], pair))
        merges.append(best)
        words = [(join(pieces, best), times) for pieces, times in words]
    return merges


@right("3.4")
def even_batches(lengths, size):
    """Four captions in batches of three as two and two: no more batches than needed either."""
    batches = []
    for length in set(lengths):
        group = [i for i, other in enumerate(lengths) if other == length]
        count = -(-len(group) // size)
        batches += [group[start::count] for start in range(count)]
    return batches


@right("3.5")
def mean_over_the_words_put_end_to_end(losses, lengths):
    rows = [row[:n] for row, n in zip(losses, lengths, strict=True)]
    return torch.cat(rows).mean()


@right("3.6")
def word_by_word(captions, E):
    before = [E[words] for words in captions.T[:-1]]
    nothing = torch.zeros(len(captions), E.shape[1])
    return torch.stack([nothing, *before], 1), captions.clone()


@right("3.7")
def a_caption_with_everything():
    return ("A café's T-shirt, 'blue'; one",)


# --- 4: soft attention ----------------------------------------------------------------------------


@right("4.1")
def energies_by_loop(a, h, W_a, W_h, b, v):
    images = []
    for places, s in zip(a, h, strict=True):
        energies = [v.dot(torch.tanh(W_a @ x + W_h @ s + b)) for x in places]
        images.append(torch.stack(energies))
    return torch.stack(images)


@right("4.2")
def softmax_by_logsumexp(e):
    return (e - e.logsumexp(1, keepdim=True)).exp()


@right("4.3")
def context_by_einsum(e, a):
    alpha = torch.softmax(e, -1)
    return torch.einsum("bl,bld->bd", alpha, a), alpha


@right("4.4")
def lstm_cell(Ey, h, c, z, W, U, Z, b):
    cell = nn.LSTMCell(Ey.shape[1] + z.shape[1], h.shape[1])
    merged = {
        "weight_ih": torch.cat([W, Z], 1),
        "weight_hh": U,
        # torch's cell has two biases, which it adds.
        "bias_ih": b,
        "bias_hh": torch.zeros_like(b),
    }
    inputs = torch.cat([Ey, z], 1)
    return torch.func.functional_call(cell, merged, (inputs, (h, c)))


@right("4.7")
def step_by_log_softmax(model, optimiser, a, captions):
    optimiser.zero_grad(set_to_none=False)
    log_p = torch.log_softmax(model(a, captions)[0], 2)
    loss = -log_p.gather(2, captions.unsqueeze(2)).mean()
    loss.backward()
    optimiser.step()
    return loss.detach()


@right("4.8")
def word_written_out(x, a, h, c, Ey, alpha):
    z = torch.stack([row @ places for row, places in zip(alpha, a, strict=True)])
    z = x.f_beta(h).sigmoid() * z
    h, _ = lstm_cell(Ey, h, c, z, x.W.weight, x.U.weight, x.Z.weight, x.W.bias)
    return x.L_o(Ey + x.L_h(h) + x.L_z(z))


# --- 5: doubly stochastic attention ---------------------------------------------------------------


@right("5.1")
def least_penalty_of_equal_sums(C, L):
    return (L - C) ** 2 / L


@right("5.2")
def penalty_multiplied_out(alphas):
    # (1 - s)^2 = 1 - 2 s + s^2, summed over the places.
    squares = alphas.double().sum(1).pow(2).sum(1)
    return alphas.shape[2] - 2 * alphas.sum((1, 2)) + squares


@right("5.4")
def equivalent_weight(weight, C, L):
    return C * weight * (1 / L)


@right("5.8")
def cost_of_each_epoch(nll, t):
    columns = []
    for before, after in zip(nll[0].T, nll[1].T, strict=True):
        differences = [b - a for a, b in zip(before.tolist(), after.tolist(), strict=True)]
        mean = statistics.mean(differences)
        half = t * statistics.stdev(differences) / math.sqrt(len(differences))
        columns.append([mean - half, mean, mean + half])
    return np.array(columns).T


# --- 6: hard attention ----------------------------------------------------------------------------


@right("6.1")
def draw_by_walking(alpha, darts):
    result = []
    for weights, dart in zip(alpha.tolist(), darts.tolist(), strict=True):
        i = 0
        while i < len(weights) - 1 and dart >= weights[i]:
            dart -= weights[i]
            i += 1
        result.append(i)
    return torch.tensor(result)


@right("6.3")
def score_as_a_sum(log_p, reward, b):
    return (log_p * (b - reward.detach())).sum() / len(reward)


@right("6.5")
def leave_one_out_by_a_matrix(r):
    others = 1 - torch.eye(r.shape[1]).double()
    return r.double() @ others / (r.shape[1] - 1)


@right("6.6")
def by_a_sum_that_is_zero(energies, noise, temperature):
    soft = ((energies + noise) / temperature).softmax(1)
    hard = (soft == soft.amax(1, keepdim=True)).float()
    return soft - (soft - hard).detach()


# --- 7: hard attention trained, and rewards -------------------------------------------------------


@right("7.1")
def satlibs_loss(log_p_word, alphas, places, baseline, lambda_r, lambda_e):
    """From logits that are log-probabilities of two words: that of the caption, and the rest."""
    logits = torch.stack([log_p_word, torch.log1p(-log_p_word.exp())], 2)
    config = HardConfig(baseline="moving-average", lambda_r=lambda_r, lambda_e=lambda_e)
    module = VariationalBound(config, hidden=1, longest=places.shape[1])
    module.average.fill_(baseline)

    # Betas and states play no part in the loss; anything of their shape will do.
    output = Output(logits, alphas, alphas[:, :, 0], places, alphas[:, :, :1])
    return module.eval()(output, torch.zeros_like(places)).loss


@right("7.2")
def all_words_first(step, state, darts):
    """To the last dart, whether a caption has ended or not; what follows its end is masked."""
    words = torch.full((len(darts),), -1)
    told = []
    logs = []
    for dart in darts.T:
        logits, state = step(state, words)
        words = draw_by_walking(logits.softmax(1).detach(), dart)
        told.append(words)
        logs.append(-functional.cross_entropy(logits, words, reduction="none"))

    told = torch.stack(told, 1)
    logs = torch.stack(logs, 1)
    # The end mark itself still counts.
    over = (told == 0).cumsum(1) - (told == 0).long() > 0
    return told.masked_fill(over, 0), logs.masked_fill(over, 0.0).sum(1)


# --- 8: decoding and judging ----------------------------------------------------------------------


@right("8.1")
def beam_as_a_table(next_words, width, longest):
    """A table of finished captions beside the living ones."""
    beams = {(): 0.0}
    done = {}
    for _ in range(longest):
        options = {}
        for words, total in beams.items():
            for word, p in next_words(words).items():
                options[(*words, word)] = total + math.log(p)

        best = sorted(options, key=options.__getitem__, reverse=True)[:width]
        done |= {words: options[words] for words in best if words[-1] == END}
        beams = {words: options[words] for words in best if words[-1] != END}

    if not done:
        return [], -math.inf
    winner = max(done, key=done.__getitem__)
    return list(winner), done[winner]


@right("8.2")
def nucleus_one_by_one(p, share):
    kept = torch.zeros(len(p), dtype=torch.bool)
    while p[kept].sum() < share:
        kept[torch.where(kept, -1.0, p).argmax()] = True
    return torch.where(kept, p, 0.0) / p[kept].sum()


@right("8.3")
def union_of_references(caption, references, n):
    most = reduce(Counter.__or__, [ngrams(words, n) for words in references])
    matches = (ngrams(caption, n) & most).total()
    return float(matches) / max(1, len(caption) - n + 1)


@right("8.4")
def exponential_of_the_mean_logarithm(captions, references, N):
    precisions = []
    for n in range(1, N + 1):
        totals = [max(0, len(words) - n + 1) for words in captions]
        matches = 0
        for words, each, total in zip(captions, references, totals, strict=True):
            matches += union_of_references(words, each, n) * total
        precisions.append(matches / sum(totals))

    if not all(precisions):
        return 0.0
    return math.exp(sum(map(math.log, precisions)) / N)


@right("8.8")
def best_lie(references):
    """Every single change of every reference is tried."""
    tried = []
    for words in map(str.split, references):
        for place, word in enumerate(words):
            opposite = OPPOSITES.get(word, word)
            changed = " ".join([*words[:place], opposite, *words[place + 1 :]])
            if scenes.grammar.parse(changed) != scenes.grammar.parse(references[0]):
                tried.append(changed)

    def score(caption):
        scores = metrics.bleu({"": caption}, {"": references})
        return scores["BLEU-4 (no brevity penalty)"]

    return max(tried, key=score)


@right("8.9")
def harmonic_mean(said, there):
    common = [fact for fact in said if fact in there]
    if not common:
        return 0.0
    return 2 / (len(said) / len(common) + len(there) / len(common))


# --- 9: training for real -------------------------------------------------------------------------


@right("9.1")
def as_cross_entropies(counts):
    logits = counts.clamp(min=1e-30).log()
    p = counts / counts.sum()
    # A distribution's cross-entropy with itself is its entropy.
    entropy = functional.cross_entropy(logits[None], p[None])
    return math.log(counts.numel()), entropy.item()


@right("9.2")
def by_torchs_cross_entropy(decoder, optimiser, a, captions, steps):
    losses = []
    for _ in range(steps):
        optimiser.zero_grad()
        logits = decoder(a, captions).logits.flatten(0, 1)
        loss = functional.cross_entropy(logits, captions.flatten(), ignore_index=-1)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@right("9.3")
def as_satlib_sets_it(step, steps, warmup, highest):
    optimiser = torch.optim.SGD([nn.Parameter(torch.zeros(1))], highest)
    optimiser.param_groups[0]["base"] = highest
    set_learning_rate(optimiser, TrainingConfig(warmup=warmup, schedule="cosine"), step, steps)
    return optimiser.param_groups[0]["lr"]


@right("9.4")
def shares_of_words(parts):
    words = [(y >= 0).sum().item() for y in parts]
    return [count / sum(words) for count in words]


@right("9.5")
def sums_over_all_words(decoder, optimiser, scaler, parts, half, most):
    optimiser.zero_grad(set_to_none=False)
    total = 0.0
    words = sum((y != -1).sum() for _, y in parts)
    for a, y in parts:
        with torch.autocast("cpu", half):
            logits = decoder(a, y).logits.float().transpose(1, 2)
            loss = functional.cross_entropy(logits, y, ignore_index=-1, reduction="sum") / words
        scaler.scale(loss).backward()
        total += loss.item()

    scaler.unscale_(optimiser)
    weights = [weight for group in optimiser.param_groups for weight in group["params"]]
    nn.utils.clip_grad_norm_(weights, most)
    scaler.step(optimiser)
    scaler.update()
    return total


@right("9.5")
def empty_parts_passed_over(decoder, optimiser, scaler, parts, half, most):
    """The decoder does not run on a part without words."""
    optimiser.zero_grad()  # to None: so it shows when the first part of a step begins
    with_words = [(a, y) for a, y in parts if (y != -1).any()]
    return sums_over_all_words(decoder, optimiser, scaler, with_words, half, most)


@right("9.7")
def faster_by_every_toss(ours, theirs):
    won = sum(a < b for a, b in zip(ours, theirs, strict=True))
    # If neither is faster, each pair is the toss of a fair coin.
    tosses = list(itertools.product((0, 1), repeat=len(ours)))
    as_many = sum(sum(toss) >= won for toss in tosses)
    return as_many / len(tosses) <= 0.05


# --- 10: reading the model -------------------------------------------------------------------------


@right("10.1")
def by_distance(alpha, mask, tolerance):
    cell = (alpha == alpha.max()).nonzero()[0].tolist()
    sides = zip(cell, mask.shape, alpha.shape, strict=True)
    # The middle of the cell, in pixels whose own middles have whole coordinates.
    middle = [(at + 0.5) * pixels / cells - 0.5 for at, pixels, cells in sides]
    nearest = min(math.dist(middle, pixel) for pixel in mask.nonzero().tolist())
    return nearest <= tolerance


@right("10.2")
def by_parts_covered(alpha, mask):
    h, w = alpha.shape
    cells = mask.float().unflatten(0, (h, -1)).unflatten(2, (w, -1))
    return (alpha.double() * cells.mean((1, 3))).sum()


@right("10.3")
def normalised_counts(mask, h, w):
    pixels = mask.view(h, -1, w, mask.shape[1] // w).sum((1, 3))
    return functional.normalize(pixels.flatten().float(), 1, 0)


@right("10.4")
def by_steered(decoder, a, words, alpha):
    """satlib's own decoder, whose map is replaced at the last place alone."""
    own_maps = a.new_zeros(*words.shape, a.shape[1])
    given = torch.cat([own_maps, alpha[:, None]], 1)
    # Which word comes last makes no difference: its logits are computed before it is read.
    return steered(decoder, given=given)(a, functional.pad(words, (0, 1))).logits[:, -1]


@right("10.5")
def by_bootstrap(cured, placebos):
    draws = torch.randint(len(cured), (2000, len(cured)))
    for each in placebos:
        means = (cured.double() - each.double())[draws].mean(1)
        # Above 0 means that the 95 % interval of the difference lies above 0.
        if means.quantile(0.025) <= 0:
            return False
    return True


# --- 11: from 2015 to now -------------------------------------------------------------------------


@right("11.1")
def weights_one_by_one(q, k, heads, visible=None):
    width = q.shape[2] // heads
    result = q.new_zeros(len(q), heads, q.shape[1], k.shape[1])
    for b, head, t in indices(result.shape[:3]):
        share = slice(head * width, (head + 1) * width)
        allowed = list(range(k.shape[1]))
        if visible is not None:
            allowed = visible[t].nonzero().flatten().tolist()
        query = q[b, t, share]
        products = [query.dot(k[b, i, share]) for i in allowed]
        energies = torch.stack(products) / width**0.5
        result[b, head, t, allowed] = torch.softmax(energies, 0)
    return result


@right("11.2")
def contexts_by_einsum(alpha, v):
    values = v.unflatten(2, (alpha.shape[1], -1))
    return torch.einsum("bhcl,blhe->bche", alpha, values).flatten(2)


@right("11.3")
def visible_pair_by_pair(p, w):
    C = p + w
    visible = torch.zeros(C, C, dtype=torch.bool)
    for i in range(C):
        for j in range(C):
            # The prefix sees itself whole; a word sees itself and what is before it.
            visible[i, j] = j < p or p <= j <= i
    return visible


@right("11.4")
def one_more_by_torch(q, k, v, kept, heads):
    keys = torch.hstack([kept[0], k])
    values = torch.hstack([kept[1], v])
    # torch wants (B, heads, words, width).
    parts = [x.unflatten(2, (heads, -1)).transpose(1, 2) for x in (q, keys, values)]
    context = functional.scaled_dot_product_attention(*parts)
    return context.transpose(1, 2).flatten(2), [keys, values]


@right("11.5")
def force_map_by_map(alpha, light, moved):
    result = alpha.clone()
    for b, t in (light.sum(2) > 0).nonzero().tolist():
        result[b, moved, t] = light[b, t]
    return result


@right("11.6")
def lost_head_by_head(stay, n):
    without = ~torch.eye(n).bool()
    return torch.tensor([stay(row) - stay(row | True) for row in without])


# --- 12: a vision-language model ------------------------------------------------------------------


@right("12.1")
def gate_by_the_sigmoid(x, found, g):
    # tanh g = 2 sigmoid(2 g) - 1
    return torch.addcmul(x, (2 * g).sigmoid() * 2 - 1, found)


@right("12.3")
def described_in_sentences(a):
    captions, maps = reference("12.3")(a)
    return [" ".join(words) for words in captions], maps.double()
