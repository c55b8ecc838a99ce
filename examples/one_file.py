"""Show, Attend and Tell (Xu et al., 2015) in one file: an image captioner with visual attention, from pixels to captions.

    python one_file.py                                  # soft attention (section 4.2) on drawn scenes
    python one_file.py --attention=hard --steps=3000    # hard attention (section 4.1)
    python one_file.py --features=data/features/flickr8k-efficientnet-lite0-whole --embedding=256 --hidden=512 \
        --attention_hidden=256 --dropout=0.5 --batch_size=64 --doubly_stochastic=0.02 --steps=500    # Flickr8k, 376 s

Measured: soft attention, two CPU cores, 84 s: 298 of 300 held-out scenes get a caption that equals a reference, BLEU-4 99.7. Hard
attention, one core that other programs were using too, 455 s: 300, 100.0. Flickr8k's dev images, one core: BLEU-4 16.2.

It needs torch, numpy, pillow and matplotlib, nothing else. Equation numbers and letters are the paper's: B images, L places,
D numbers in an annotation vector, C words in a caption (the end mark included), K words in the vocabulary.
"""

import argparse
import json
import math
import random
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from PIL import Image, ImageDraw
from torch import Tensor, nn

# --- Settings: change any of them on the command line, as in --attention=hard --steps=500 -----------------------------

attention = "soft"  # soft or hard
features = ""  # a folder of Flickr8k's annotation vectors, made by `satlib features`; without it scenes are drawn
scenes = 3000  # drawn for training; a tenth as many are held out
embedding = 64  # m, numbers in a word's embedding
hidden = 256  # n, LSTM units
attention_hidden = 128  # units of the attention MLP
dropout = 0.0
doubly_stochastic = 0.0  # soft attention: lambda of equation 14
lambda_r = 0.03  # hard attention: weight of the score-function term
lambda_e = 0.0  # hard attention: weight of the entropy term; shapes are learnt sooner without it
steps = 1500  # batches to train on
batch_size = 16
learning_rate = 1e-3  # at its highest: it rises over 50 batches, then falls along a cosine
beam = 3  # hypotheses that beam search keeps
longest = 30  # words in a generated caption
seed = 0
device = "cuda" if torch.cuda.is_available() else "cpu"
picture = "one_file.png"  # attention maps of four held-out images

# --- Data: images or their annotation vectors, with captions ------------------------------------------------------------

END, UNKNOWN = 0, 1  # the first two words of every vocabulary
COLOURS = {
    "red": "#d33",
    "orange": "#f81",
    "yellow": "#fd3",
    "green": "#2a5",
    "blue": "#36d",
    "purple": "#93c",
}
GREYS = ("silver", "darkgray", "gray")  # of shapes that no caption mentions
PAPERS = ("white", "linen", "lavender", "honeydew", "mistyrose", "lightcyan")
SHAPES = {
    "circle": [1] * 60,
    "triangle": [1] * 3,
    "diamond": [1] * 4,
    "star": [1, 0.42] * 5,
}  # the corners' radii
# Each relation takes 8 words or 9, so that a batch of captions of one length shows both relations.
ABOVE, LEFT = (
    ("a {} is above a {}", "a {} with a {} below it"),
    ("a {} left of a {}", "a {} is left of a {}"),
)


class Example(NamedTuple):  # an image and its captions
    input: np.ndarray  # pixels (3, 224, 224), uint8, or annotation vectors (L, D), float16
    photo: np.ndarray | Path  # pixels (224, 224, 3), or the file
    captions: list[list[str]]  # several, split into words


def draw_scene() -> Example:
    """Two coloured shapes among grey ones, with two true captions; they name the upper or left shape first."""
    relation, far = random.choice([ABOVE, LEFT]), random.uniform(150, 300)
    x1, y1 = random.uniform(70, 378 - far), random.uniform(70, 378)
    x2, y2 = x1 + far, min(max(y1 + far * random.uniform(-0.4, 0.4), 70), 378)
    colours = [*random.choices(GREYS, k=random.randint(2, 5)), *random.sample(list(COLOURS), 2)]
    places = [(random.uniform(0, 448), random.uniform(0, 448)) for _ in colours[:-2]]
    places += [(x1, y1), (x2, y2)] if relation is LEFT else [(y1, x1), (y2, x2)]
    image, names = Image.new("RGB", (448, 448), random.choice(PAPERS)), []
    for (x, y), colour in zip(places, colours):
        shape, radii = random.choice(list(SHAPES.items()))
        size, tilt = (
            random.uniform(15, 45) if colour in GREYS else random.uniform(46, 70),
            random.uniform(-0.2, 0.2),
        )
        angles = [tilt + 2 * math.pi * k / len(radii) for k in range(len(radii))]
        corners = [
            (x + size * r * math.sin(t), y - size * r * math.cos(t)) for r, t in zip(radii, angles)
        ]
        ImageDraw.Draw(image).polygon(corners, COLOURS.get(colour, colour))
        names.append(f"{colour} {shape}")
    pixels = np.array(
        image.resize((224, 224), Image.Resampling.BOX)
    )  # drawn at twice the size for smooth edges
    return Example(
        pixels.transpose(2, 0, 1),
        pixels,
        [sentence.format(*names[-2:]).split() for sentence in relation],
    )


def read_flickr8k(folder: Path) -> tuple[list[Example], list[Example]]:
    """Flickr8k's training and dev images as annotation vectors.

    annotations.f16: (N, L, D) numbers in float16. manifest.json: "grid" (h, w), "dim" D, "images" {file name: [row, ...]} and
    "home", the folder of the photographs; Flickr8k_text, with captions and splits, is beside it.
    """
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    rows = manifest["images"]
    shape = (len(rows), math.prod(manifest["grid"]), manifest["dim"])
    vectors = np.memmap(folder / "annotations.f16", np.float16, "r", shape=shape)
    photos, texts = Path(manifest["home"]), Path(manifest["home"]).parent / "Flickr8k_text"
    captions = defaultdict(list)
    for line in (texts / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        name, caption = line.split(
            "\t"
        )  # 1000268201_693b08cb0e.jpg#0 <tab> A child in a pink dress is ...
        captions[name[:-2]].append(re.findall(r"[a-z0-9][a-z0-9'-]*", caption.lower()))
    train, dev = (
        (texts / f"Flickr_8k.{split}Images.txt").read_text("utf-8").split()
        for split in ("train", "dev")
    )
    return tuple(
        [Example(vectors[rows[n][0]], photos / n, captions[n]) for n in names]
        for names in (train, dev)
    )


def get_batch(by_length: dict[int, list[tuple[np.ndarray, list[int]]]]) -> tuple[Tensor, Tensor]:
    """Random inputs with captions (B, C) of one length, so that nothing has to be padded (section 4.3)."""
    length = random.choices(list(by_length), [len(pairs) for pairs in by_length.values()])[0]
    inputs, captions = zip(*random.choices(by_length[length], k=batch_size))
    return torch.tensor(np.stack(inputs), device=device).float(), torch.tensor(
        captions, device=device
    )


# --- The encoder: an image becomes L annotation vectors (section 3.1.1) ------------------------------------------------
class Encoder(nn.Module):
    """Five convolutions, trained from scratch together with the decoder: L = 14 x 14 places, D = 128."""

    def __init__(self) -> None:
        super().__init__()

        def convolution(
            before: int, after: int, kernel: int, stride: int, padding: int
        ) -> list[nn.Module]:
            return [
                nn.Conv2d(before, after, kernel, stride, padding, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(),
            ]

        self.lower = nn.Sequential(
            *convolution(3, 24, kernel=6, stride=4, padding=1),  # 224 -> 56
            *convolution(24, 48, kernel=4, stride=2, padding=1),  # 56 -> 28
            *convolution(48, 96, kernel=2, stride=2, padding=0),  # 28 -> 14
        )
        self.upper = (
            nn.Sequential(  # no more strides: a place sees 58 pixels, its own 16 in the middle
                *convolution(96 + 2, 128, kernel=3, stride=1, padding=1),
                *convolution(128, 128, kernel=1, stride=1, padding=0),
            )
        )
        line = torch.linspace(-1, 1, 14)
        self.register_buffer(
            "yx", torch.stack(torch.meshgrid(line, line, indexing="ij")), persistent=False
        )

    def forward(self, pixels: Tensor) -> Tensor:
        """(B, 3, 224, 224), 0 to 255 -> annotation vectors a (B, L, D)."""
        maps = self.lower(pixels / 127.5 - 1)  # (B, 96, 14, 14)
        maps = torch.cat(
            [maps, self.yx.expand(len(maps), -1, -1, -1)], 1
        )  # tells each place where it is, for "above"
        return self.upper(maps).flatten(2).transpose(1, 2)


# --- The decoder: an LSTM that looks at the image before every word (section 3.1.2) ------------------------------------
class Attention(nn.Module):
    """Where to look for the next word, and what is seen there."""

    def __init__(self, D: int, n: int, width: int) -> None:
        super().__init__()
        self.annotation = nn.Linear(D, width)
        self.state = nn.Linear(n, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, coin: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The context vector z (B, D), the weights alpha (B, L), and the place s (B,), -1 where z is an expectation."""
        e = self.energy(torch.tanh(keys + self.state(h).unsqueeze(1))).squeeze(2)  # eq. 4: (B, L)
        alpha = e.softmax(1)  # eq. 5
        z = torch.bmm(alpha.unsqueeze(1), a).squeeze(1)  # eq. 13: the expectation over all places
        if coin is None:
            return z, alpha, torch.full((len(a),), -1, device=a.device)
        s = torch.multinomial(alpha.detach(), 1).squeeze(1)  # eq. 8: one place is drawn
        seen = a[torch.arange(len(a), device=a.device), s]  # eq. 9: only that place is seen
        return torch.where(coin.unsqueeze(1), z, seen), alpha, s.masked_fill(coin, -1)


class Decoder(nn.Module):
    """Annotation vectors and the words so far -> the next word's distribution."""

    def __init__(
        self, kind: str, D: int, K: int, m: int, n: int, width: int, dropout: float
    ) -> None:
        super().__init__()
        self.kind = kind  # soft or hard
        self.embedding = nn.Embedding(K, m)  # E
        self.attention = Attention(D, n, width)
        self.gate = nn.Linear(n, 1)  # f_beta
        self.gates_word = nn.Linear(m, 4 * n)  # with the next two, the matrix of eq. 1
        self.gates_state = nn.Linear(n, 4 * n, bias=False)
        self.gates_context = nn.Linear(D, 4 * n, bias=False)
        self.initial_h, self.initial_c = (
            nn.Sequential(
                nn.Linear(D, n), nn.ReLU(), nn.Dropout(dropout), nn.Linear(n, n), nn.Tanh()
            )
            for _ in "hc"
        )
        self.output_state = nn.Linear(n, m)  # L_h
        self.output_context = nn.Linear(D, m, bias=False)  # L_z
        self.output = nn.Linear(m, K)  # L_o
        self.dropout = nn.Dropout(dropout)

    def begin(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Once per image: the annotation vectors' part of eq. 4 (B, L, width), and h_0, c_0 (B, n)."""
        return self.attention.annotation(a), self.initial_h(a.mean(1)), self.initial_c(a.mean(1))

    def step(
        self, y: Tensor, h: Tensor, c: Tensor, a: Tensor, keys: Tensor, coin: Tensor | None
    ) -> tuple[Tensor, ...]:
        """The last word (B,), -1 before the first, h and c (B, n) -> logits (B, K), the new h and c, alpha (B, L), s (B,)."""
        Ey = self.embedding(y.clamp(min=0)) * (y >= 0).unsqueeze(
            1
        )  # (B, m), zeros before the first word
        z, alpha, s = self.attention(a, keys, h, coin)
        z = torch.sigmoid(self.gate(h)) * z  # beta, section 4.2.1
        i, f, g, o = (self.gates_word(Ey) + self.gates_state(h) + self.gates_context(z)).chunk(
            4, 1
        )  # eq. 1
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)  # eq. 2
        h = torch.sigmoid(o) * torch.tanh(c)  # eq. 3
        deep = Ey + self.output_state(self.dropout(h)) + self.output_context(z)  # eq. 7: (B, m)
        return self.output(self.dropout(deep)), h, c, alpha, s

    def forward(self, a: Tensor, captions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Every word from the true ones before it: a (B, L, D), (B, C) -> logits (B, C, K), alphas (B, C, L), s (B, C)."""
        # End of section 4.1: with probability 0.5 an image takes the expectation in place of its samples.
        coin = (
            torch.rand(len(a), device=a.device) < 0.5
            if self.kind == "hard" and self.training
            else None
        )
        keys, h, c = self.begin(a)
        outputs = []
        for y in F.pad(captions[:, :-1], (1, 0), value=-1).unbind(1):
            logits, h, c, alpha, s = self.step(y, h, c, a, keys, coin)
            outputs.append((logits, alpha, s))
        return tuple(torch.stack(parts, 1) for parts in zip(*outputs))


# --- The loss (section 4): sums over words and places, a mean over the batch --------------------------------------------
def log_likelihood(logits: Tensor, captions: Tensor) -> Tensor:
    """log p(y|a): (B, C, K), (B, C) -> (B,)."""
    return -F.cross_entropy(logits.transpose(1, 2), captions, reduction="none").sum(1)


def soft_loss(logits: Tensor, alphas: Tensor, captions: Tensor) -> Tensor:
    """Equation 14: -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2."""
    penalty = (1 - alphas.sum(1)).square().sum(1)
    return (doubly_stochastic * penalty - log_likelihood(logits, captions)).mean()


def hard_loss(
    logits: Tensor, alphas: Tensor, s: Tensor, captions: Tensor, b: float
) -> tuple[Tensor, float]:
    """A loss whose gradient is minus the paper's estimate (end of section 4.1) with one sample s, and the next baseline b."""
    log_p = log_likelihood(
        logits, captions
    )  # its gradient, d log p(y|s,a) / dW, is the first term: (B,)
    log_alphas = alphas.clamp(min=1e-30).log()  # (B, C, L)
    log_s = log_alphas.gather(2, s.clamp(min=0).unsqueeze(2)).squeeze(2) * (
        s >= 0
    )  # log p(s|a): (B, C)
    score = (log_p.detach() - b) * log_s.sum(
        1
    )  # the second term, (log p(y|s,a) - b) d log p(s|a) / dW
    entropy = -(alphas * log_alphas).sum((1, 2))  # the third, dH[s] / dW
    return -(
        log_p + lambda_r * score + lambda_e * entropy
    ).mean(), 0.9 * b + 0.1 * log_p.mean().item()


# --- Captions, and how good they are ------------------------------------------------------------------------------------
@torch.inference_mode()
def beam_search(decoder: Decoder, a: Tensor, beam: int) -> tuple[list[int], Tensor]:
    """The most probable caption found for one image, a (L, D): its words, and the maps of these and of the end mark (C, L)."""
    keys, h, c = decoder.begin(a.unsqueeze(0))
    alive, ended = [(0.0, [-1], [], h[0], c[0])], []  # hypotheses: log p(y|a), words, maps, h, c
    for t in range(longest + 1):
        totals, captions, _, h, c = zip(*alive)
        h, c, size = torch.stack(h), torch.stack(c), (len(alive), -1, -1)
        y = torch.tensor([words[-1] for words in captions], device=a.device)
        logits, h, c, alpha, _ = decoder.step(y, h, c, a.expand(size), keys.expand(size), None)
        log_p = logits.log_softmax(1)
        log_p[:, UNKNOWN] = -math.inf
        if t == longest:  # only the end mark may follow
            log_p[:, END + 1 :] = -math.inf
        log_p += torch.tensor(totals, device=a.device).unsqueeze(1)
        grown = []
        for total, i in zip(*(best.tolist() for best in log_p.flatten().topk(2 * beam))):
            k, word = divmod(i, log_p.shape[1])
            _, words, maps, _, _ = alive[k]
            grown.append((total, [*words, word], [*maps, alpha[k]], h[k], c[k]))
        ended += [each for each in grown[:beam] if each[1][-1] == END]
        alive = [each for each in grown if each[1][-1] != END][:beam]
        if ended and max(total for total, *_ in ended) >= alive[0][0]:
            break  # every further word makes the others less probable
    _, words, maps, _, _ = max(ended, key=lambda each: each[0])
    return words[1:-1], torch.stack(maps)


def bleu4(captions: list[list[str]], references: list[list[list[str]]]) -> float:
    """Corpus BLEU-4 in percent (Papineni et al., 2002): n-grams that a reference has, and a penalty for being short."""
    found, made, length, closest = [0] * 4, [0] * 4, 0, 0
    for caption, others in zip(captions, references):
        length += len(caption)
        closest += min((abs(len(other) - len(caption)), len(other)) for other in others)[1]
        for n in range(1, 5):
            counts, *allowed = (
                Counter(zip(*(words[i:] for i in range(n)))) for words in (caption, *others)
            )
            found[n - 1] += sum(
                min(count, max(other[gram] for other in allowed)) for gram, count in counts.items()
            )
            made[n - 1] += sum(counts.values())
    precision = math.prod(max(f, 1e-15) / max(m, 1) for f, m in zip(found, made)) ** 0.25
    return 100 * precision * math.exp(min(0.0, 1 - closest / max(length, 1)))


def draw_attention(examples: list[Example], captions: list[list[str]], maps: list[Tensor]) -> None:
    """A row for each image: the image, then for each word the image lit where the decoder looked."""
    columns, side = 1 + max(map(len, captions)), math.isqrt(maps[0].shape[1])
    figure = Figure((1.2 * columns, 1.4 * len(examples)), layout="constrained")
    blank = {"xticks": (), "yticks": (), "frame_on": False}
    axes = figure.subplots(len(examples), columns, squeeze=False, subplot_kw=blank)
    for row, (_, photo, _), words, alphas in zip(axes, examples, captions, maps):
        image = Image.open(photo).convert("RGB") if features else Image.fromarray(photo)
        pixels = np.asarray(image.resize((224, 224))) / 255
        light = F.interpolate(alphas.view(1, -1, side, side), (224, 224), mode="bicubic")[0].clamp(
            min=0
        )
        row[0].imshow(pixels)
        for axis, word, spot in zip(row[1:], words, light.cpu()):
            axis.imshow(
                pixels * (0.35 + 0.65 * spot / spot.max()).clamp(max=1).unsqueeze(2).numpy()
            )
            axis.set_title(word, fontsize=9)
    figure.savefig(picture, dpi=100)


# --- Training -----------------------------------------------------------------------------------------------------------
def main() -> None:
    """Train, caption held-out images, draw what the decoder looked at."""
    random.seed(seed)
    torch.manual_seed(seed)
    if features:
        training, held_out = read_flickr8k(Path(features))
    else:
        training, held_out = (
            [draw_scene() for _ in range(scenes)],
            [draw_scene() for _ in range(scenes // 10)],
        )
    counts = Counter(
        word for example in training for caption in example.captions for word in caption
    )
    vocabulary = [
        "<end>",
        "<unknown>",
        *(word for word, count in counts.most_common() if count >= 5),
    ]
    ids, by_length = {word: i for i, word in enumerate(vocabulary)}, defaultdict(list)
    for example in training:
        for caption in example.captions:
            by_length[len(caption)].append(
                (example.input, [*(ids.get(word, UNKNOWN) for word in caption), END])
            )
    encoder, D = (nn.Identity(), training[0].input.shape[1]) if features else (Encoder(), 128)
    decoder = Decoder(attention, D, len(vocabulary), embedding, hidden, attention_hidden, dropout)
    model = nn.ModuleList([encoder, decoder]).to(device)
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    b, nats, begun = 0.0, [], time.time()
    for step in range(1, steps + 1):
        inputs, captions = get_batch(by_length)
        optimiser.param_groups[0]["lr"] = learning_rate * min(
            step / 50, 0.5 + 0.5 * math.cos(math.pi * step / steps)
        )
        logits, alphas, s = decoder(encoder(inputs), captions)
        if attention == "soft":
            loss = soft_loss(logits, alphas, captions)
        else:
            loss, b = hard_loss(logits, alphas, s, captions, b)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        nats.append(-log_likelihood(logits, captions).sum().item() / captions.numel())
        if step % 100 == 0 or step == steps:
            print(
                f"step {step}: {np.mean(nats[-100:]):.3f} nats per word, {time.time() - begun:.0f} s",
                flush=True,
            )
    model.eval().requires_grad_(False)
    seen = [
        encoder(torch.tensor(example.input, device=device).float().unsqueeze(0))[0]
        for example in held_out
    ]
    references = [example.captions for example in held_out]
    for width in (1, beam):
        found, maps = zip(*(beam_search(decoder, a, width) for a in seen))
        captions = [[vocabulary[word] for word in words] for words in found]
        right = sum(caption in others for caption, others in zip(captions, references))
        print(
            f"beam {width}: BLEU-4 {bleu4(captions, references):.1f}, {right} of {len(captions)} equal a reference"
        )
    draw_attention(held_out[:4], captions[:4], maps[:4])
    print(f"{picture} shows where it looked; {time.time() - begun:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description="Show, Attend and Tell in one file; its first lines say more."
    )
    for name, value in list(globals().items()):
        if name[0].islower() and isinstance(value, (str, int, float)):
            choices = ("soft", "hard") if name == "attention" else None
            parser.add_argument(
                f"--{name}",
                type=type(value),
                default=value,
                choices=choices,
                help=f"default: {value}",
            )
    globals().update(vars(parser.parse_args()))
    main()
