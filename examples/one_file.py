"""Show, Attend and Tell (Xu et al., 2015) in one file: an image captioner with visual attention.

    python one_file.py                                  # soft attention (section 4.2), drawn scenes
    python one_file.py --attention=hard --steps=3000    # hard attention (section 4.1)
    python one_file.py --features=data/features/flickr8k-efficientnet-lite0-whole \
        --embedding=256 --hidden=512 --attention_hidden=256 --dropout=0.5 --batch_size=64 \
        --doubly_stochastic=0.02 --steps=500            # Flickr8k, 376 s

What to expect on a CPU:

    soft attention   two cores, 84 s      298 of 300 held-out scenes get a caption that equals
                                          a reference; BLEU-4 99.7
    hard attention   a busy core, 455 s   300 of 300; BLEU-4 100.0
    Flickr8k         one core, 376 s      BLEU-4 16.2 on the dev images

It needs torch, numpy, pillow and matplotlib, nothing else. Read it from top to bottom: the data,
the encoder, the decoder with its attention, the loss, beam search, training.

Letters and equation numbers are the paper's:

    B   images in a batch                    a      annotation vectors, one for each place
    L   places in an image                   h, c   the LSTM's state and its memory cell
    D   numbers in an annotation vector      alpha  attention weights, one for each place
    C   words in a caption and its end mark  s      the place that hard attention draws
    K   words in the vocabulary              z      the context vector: what the decoder sees
    m   numbers in a word's embedding        y      the words of a caption
    n   LSTM units
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

# --- Settings -------------------------------------------------------------------------------------
# Change any of them on the command line, as in --attention=hard --steps=500.

attention = "soft"  # soft or hard
features = ""  # a folder of Flickr8k's annotation vectors from `satlib features`; else scenes
scenes = 3000  # drawn for training; a tenth as many are held out
embedding = 64  # m
hidden = 256  # n
attention_hidden = 128  # units of the attention MLP
dropout = 0.0
doubly_stochastic = 0.0  # soft attention: lambda of equation 14
lambda_r = 0.03  # hard attention: weight of the score-function term
lambda_e = 0.0  # hard attention: weight of the entropy term; shapes are learnt sooner without it
steps = 1500  # batches to train on
batch_size = 16
learning_rate = 1e-3  # at its peak: it rises over 50 batches, then falls along a cosine
beam = 3  # hypotheses that beam search keeps
longest = 30  # words in a generated caption
seed = 0
device = "cuda" if torch.cuda.is_available() else "cpu"
picture = "one_file.png"  # attention maps of four held-out images

# --- Data: drawn scenes ---------------------------------------------------------------------------
# A scene is two coloured shapes, one above or left of the other, among small grey ones that no
# caption mentions. Each scene has known right answers, so we can count the captions that are right.

COLOURS = {
    "red": "#d33",
    "orange": "#f81",
    "yellow": "#fd3",
    "green": "#2a5",
    "blue": "#36d",
    "purple": "#93c",
}
GREYS = ("silver", "darkgray", "gray")
PAPERS = ("white", "linen", "lavender", "honeydew", "mistyrose", "lightcyan")

# A shape is the distances of its corners from its centre, all the way round.
SHAPES = {
    "circle": [1] * 60,
    "triangle": [1] * 3,
    "diamond": [1] * 4,
    "star": [1, 0.42] * 5,
}

# Each relation has a caption of 8 words and one of 9. A batch has captions of one length only,
# and in this way it shows both relations.
ABOVE = ("a {} is above a {}", "a {} with a {} below it")
LEFT = ("a {} left of a {}", "a {} is left of a {}")

Caption = list[str]  # a caption, split into words


class Example(NamedTuple):
    """An image with its captions."""

    input: np.ndarray  # pixels (3, 224, 224), uint8, or annotation vectors (L, D), float16
    photo: np.ndarray | Path  # pixels (224, 224, 3), or the file
    captions: list[Caption]


def draw_scene() -> Example:
    """Draw a random scene, with its two captions; they name the upper or left shape first."""
    relation = random.choice([ABOVE, LEFT])

    # Place the second shape to the right of the first, 70 pixels or more from the edges.
    distance = random.uniform(150, 300)
    x1 = random.uniform(70, 378 - distance)
    y1 = random.uniform(70, 378)
    x2 = x1 + distance
    y2 = y1 + distance * random.uniform(-0.4, 0.4)
    y2 = min(max(y2, 70), 378)

    # "Above" is the same with x and y exchanged.
    if relation is LEFT:
        places = [(x1, y1), (x2, y2)]
    else:
        places = [(y1, x1), (y2, x2)]

    count = random.randint(2, 5)
    greys = random.choices(GREYS, k=count)
    colours = random.sample(list(COLOURS), 2)

    # The grey shapes may be anywhere.
    grey_places = []
    for _ in greys:
        x = random.uniform(0, 448)
        y = random.uniform(0, 448)
        grey_places.append((x, y))

    # They are drawn first, so that the coloured ones cover them.
    paper = random.choice(PAPERS)
    image = Image.new("RGB", (448, 448), paper)
    for grey, (x, y) in zip(greys, grey_places):
        draw_shape(image, x, y, grey)

    names = []
    for colour, (x, y) in zip(colours, places):
        shape = draw_shape(image, x, y, colour)
        names.append(f"{colour} {shape}")

    # PIL draws jagged edges; drawing at twice the size and shrinking smooths them.
    image = image.resize((224, 224), Image.Resampling.BOX)
    pixels = np.array(image)  # (224, 224, 3)

    captions = []
    for sentence in relation:
        caption = sentence.format(*names)
        captions.append(caption.split())

    return Example(
        input=pixels.transpose(2, 0, 1),  # (3, 224, 224)
        photo=pixels,
        captions=captions,
    )


def draw_shape(
    image: Image.Image,
    x: float,
    y: float,
    colour: str,
) -> str:
    """Draw a random shape around (x, y), small if it is grey, and return its name."""
    shape = random.choice(list(SHAPES))
    if colour in GREYS:
        size = random.uniform(15, 45)
    else:
        size = random.uniform(46, 70)
    tilt = random.uniform(-0.2, 0.2)  # radians

    radii = SHAPES[shape]
    corners = []
    for k, radius in enumerate(radii):
        angle = tilt + 2 * math.pi * k / len(radii)  # clockwise from the top
        corner_x = x + size * radius * math.sin(angle)
        corner_y = y - size * radius * math.cos(angle)
        corners.append((corner_x, corner_y))

    # PIL knows the greys by name; our colours are softer than PIL's.
    fill = COLOURS.get(colour, colour)
    ImageDraw.Draw(image).polygon(corners, fill)
    return shape


# --- Data: Flickr8k -------------------------------------------------------------------------------
# An encoder that was trained on ImageNet has turned these photographs into annotation vectors,
# once and for all. We only read them.


def read_flickr8k(folder: Path) -> tuple[list[Example], list[Example]]:
    """Read Flickr8k's training and dev images as annotation vectors.

    The folder has two files. annotations.f16: (N, L, D) numbers in float16. manifest.json: "grid"
    (h, w), "dim" D, "images" {file name: [row, ...]} and "home", the folder of the photographs;
    the folder Flickr8k_text, with captions and splits, is beside that one.
    """
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    manifest = json.loads(text)
    rows = manifest["images"]

    # A memory map: a row is read from the disk when a batch needs it.
    L = math.prod(manifest["grid"])
    shape = (len(rows), L, manifest["dim"])
    vectors = np.memmap(folder / "annotations.f16", np.float16, "r", shape=shape)

    photos = Path(manifest["home"])
    texts = photos.parent / "Flickr8k_text"
    captions = read_captions(texts / "Flickr8k.token.txt")

    splits = []
    for split in ("train", "dev"):
        file = texts / f"Flickr_8k.{split}Images.txt"
        examples = []
        for name in file.read_text(encoding="utf-8").split():
            row = rows[name][0]
            example = Example(vectors[row], photos / name, captions[name])
            examples.append(example)
        splits.append(examples)

    training, dev = splits
    return training, dev


def read_captions(file: Path) -> dict[str, list[Caption]]:
    """Read the captions of each photograph, in lower case and without punctuation."""
    captions = defaultdict(list)
    text = file.read_text(encoding="utf-8")
    for line in text.splitlines():
        # 1000268201_693b08cb0e.jpg#0 <tab> A child in a pink dress is climbing up ...
        numbered_name, caption = line.split("\t")
        name = numbered_name[:-2]
        words = re.findall(r"[a-z0-9][a-z0-9'-]*", caption.lower())
        captions[name].append(words)
    return captions


# --- Data: the vocabulary, and batches ------------------------------------------------------------
# The model knows words by their numbers. A batch has captions of one length, which is what the
# paper does (section 4.3): nothing has to be padded, and no loss has to be masked.

END = 0  # the first two words of every vocabulary
UNKNOWN = 1


class Pair(NamedTuple):
    """An image with one of its captions."""

    input: np.ndarray  # as in Example
    caption: list[int]  # word numbers, the last is END


def build_vocabulary(examples: list[Example]) -> list[str]:
    """List the words that occur five times or more, the most frequent first."""
    counts = Counter()
    for example in examples:
        for caption in example.captions:
            counts.update(caption)

    vocabulary = ["<end>", "<unknown>"]
    for word, count in counts.most_common():
        if count >= 5:
            vocabulary.append(word)
    return vocabulary


def group_by_length(
    examples: list[Example],
    vocabulary: list[str],
) -> list[list[Pair]]:
    """Group all pairs of an image and a caption by the length of the caption."""
    ids = {word: i for i, word in enumerate(vocabulary)}
    groups = defaultdict(list)
    for example in examples:
        for caption in example.captions:
            numbers = [ids.get(word, UNKNOWN) for word in caption]
            numbers.append(END)
            pair = Pair(example.input, numbers)
            groups[len(caption)].append(pair)
    return list(groups.values())


def get_batch(groups: list[list[Pair]]) -> tuple[Tensor, Tensor]:
    """Draw random inputs, with captions (B, C) that all have one length."""
    # A large group is drawn more often, so that every caption is equally likely.
    weights = [len(group) for group in groups]
    group = random.choices(groups, weights)[0]
    pairs = random.choices(group, k=batch_size)

    inputs = np.stack([pair.input for pair in pairs])
    inputs = torch.tensor(inputs, device=device).float()  # (B, 3, 224, 224) or (B, L, D)

    captions = [pair.caption for pair in pairs]
    captions = torch.tensor(captions, device=device)  # (B, C)
    return inputs, captions


# --- The encoder (section 3.1.1) ------------------------------------------------------------------
# An image becomes L annotation vectors, one for each place of a grid. The decoder will choose
# among them, so they come from a convolution, not from a layer that sees the whole image.


def convolution(
    before: int,
    after: int,
    kernel: int,
    stride: int,
    padding: int,
) -> nn.Sequential:
    """A convolution from `before` to `after` channels, normalised and rectified."""
    return nn.Sequential(
        # No bias of its own: the normalisation would subtract it, and adds one itself.
        nn.Conv2d(before, after, kernel, stride, padding, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(),
    )


class Encoder(nn.Module):
    """Five convolutions, trained from scratch with the decoder: L = 14 x 14 places, D = 128."""

    def __init__(self) -> None:
        super().__init__()
        self.lower = nn.Sequential(
            convolution(3, 24, kernel=6, stride=4, padding=1),  # 224 -> 56
            convolution(24, 48, kernel=4, stride=2, padding=1),  # 56 -> 28
            convolution(48, 96, kernel=2, stride=2, padding=0),  # 28 -> 14
        )

        # No more strides from here: a place sees 58 pixels, its own 16 in the middle.
        self.upper = nn.Sequential(
            convolution(96 + 2, 128, kernel=3, stride=1, padding=1),
            convolution(128, 128, kernel=1, stride=1, padding=0),
        )

        # The coordinates of the places, from -1 to 1.
        line = torch.linspace(-1, 1, 14)
        y, x = torch.meshgrid(line, line, indexing="ij")
        yx = torch.stack([y, x])  # (2, 14, 14)
        self.register_buffer("yx", yx, persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, 224, 224), from 0 to 255 -> annotation vectors a (B, L, D)."""
        maps = self.lower(pixels / 127.5 - 1)  # (B, 96, 14, 14)

        # A convolution does not know where it is. "Above" and "left" need to know.
        yx = self.yx.expand(len(maps), -1, -1, -1)  # (B, 2, 14, 14)
        maps = torch.cat([maps, yx], 1)  # (B, 98, 14, 14)

        maps = self.upper(maps)  # (B, D, 14, 14)
        return maps.flatten(2).transpose(1, 2)  # (B, L, D)


# --- Attention (sections 3.1.2, 4.1 and 4.2) ------------------------------------------------------
# Before each word the state of the LSTM asks a question, and each place answers with a number e.
# A softmax turns these into weights alpha. Soft attention sees the weighted mean of all places;
# hard attention draws one place with these probabilities, and sees that place alone.


class Attention(nn.Module):
    """Where to look for the next word, and what is seen there."""

    def __init__(
        self,
        D: int,
        n: int,
        width: int,  # units of the MLP
    ) -> None:
        super().__init__()
        self.annotation = nn.Linear(D, width)
        self.state = nn.Linear(n, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False)

    def forward(
        self,
        a: Tensor,  # annotation vectors (B, L, D)
        keys: Tensor,  # self.annotation(a), the same for every word: (B, L, width)
        h: Tensor,  # the LSTM's state before the word (B, n)
        coin: Tensor | None,  # True where an image takes the expectation (B,); None: all do
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Look at the image.

        Returns:
            The context vectors z (B, D), the weights alpha (B, L), and the places s (B,) that
            were drawn, -1 where z is an expectation.
        """
        # Equation 4: an MLP with one hidden layer says how well each place answers the state.
        query = self.state(h)  # (B, width)
        units = torch.tanh(keys + query.unsqueeze(1))  # (B, L, width)
        e = self.energy(units).squeeze(2)  # (B, L)

        # Equation 5.
        alpha = e.softmax(1)  # (B, L), and its sum over the places is 1

        # Equation 13: z = sum_i alpha_i a_i, for the whole batch at once.
        B = len(a)
        row = alpha.unsqueeze(1)  # (B, 1, L)
        expectation = torch.bmm(row, a).squeeze(1)  # (B, D)
        if coin is None:
            s = torch.full((B,), -1, device=a.device)
            return expectation, alpha, s

        # Equation 8: one place is drawn for each image. Drawing has no gradient, so hard_loss
        # has to estimate it.
        s = torch.multinomial(alpha.detach(), 1).squeeze(1)  # (B,)

        # Equation 9: only that place is seen.
        images = torch.arange(B, device=a.device)
        seen = a[images, s]  # (B, D)

        z = torch.where(coin.unsqueeze(1), expectation, seen)  # (B, D)
        s = s.masked_fill(coin, -1)
        return z, alpha, s


# --- The decoder (section 3.1.2) ------------------------------------------------------------------
# An LSTM that writes a caption word by word, and looks at the image before each word.


def initial_state(D: int, n: int, dropout: float) -> nn.Sequential:
    """An MLP from the mean annotation vector (B, D) to h_0 or c_0 (B, n)."""
    return nn.Sequential(
        nn.Linear(D, n),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(n, n),
        nn.Tanh(),
    )


class Decoder(nn.Module):
    """Annotation vectors and the words so far -> the next word's distribution."""

    def __init__(
        self,
        kind: str,  # of attention: soft or hard
        D: int,
        K: int,
        m: int,
        n: int,
        width: int,  # of the attention MLP
        dropout: float,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.embedding = nn.Embedding(K, m)  # E
        self.attention = Attention(D, n, width)
        self.gate = nn.Linear(n, 1)  # f_beta

        # The matrix of equation 1 in three parts, one for each of its inputs.
        self.gates_word = nn.Linear(m, 4 * n)
        self.gates_state = nn.Linear(n, 4 * n, bias=False)
        self.gates_context = nn.Linear(D, 4 * n, bias=False)

        self.initial_h = initial_state(D, n, dropout)
        self.initial_c = initial_state(D, n, dropout)

        self.output_state = nn.Linear(n, m)  # L_h
        self.output_context = nn.Linear(D, m, bias=False)  # L_z
        self.output = nn.Linear(m, K)  # L_o
        self.dropout = nn.Dropout(dropout)

    def begin(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What is computed once per image: a (B, L, D) -> keys (B, L, width), h_0, c_0 (B, n)."""
        keys = self.attention.annotation(a)
        h = self.initial_h(a.mean(1))
        c = self.initial_c(a.mean(1))
        return keys, h, c

    def step(
        self,
        y: Tensor,  # the last word (B,), -1 before the first
        h: Tensor,  # the state before this word (B, n)
        c: Tensor,  # and its memory (B, n)
        a: Tensor,  # annotation vectors (B, L, D)
        keys: Tensor,  # (B, L, width), see Attention
        coin: Tensor | None,  # (B,), see Attention
    ) -> tuple[Tensor, ...]:
        """Look, update the state, and predict a word.

        Returns:
            Logits (B, K), the new h and c (B, n), alpha (B, L) and s (B,).
        """
        # The last word's embedding; zeros where there is no last word.
        Ey = self.embedding(y.clamp(min=0))  # (B, m)
        Ey = Ey * (y >= 0).unsqueeze(1)

        # Section 4.2.1: beta lets the decoder ignore the image, for a word such as "of".
        z, alpha, s = self.attention(a, keys, h, coin)  # (B, D), (B, L), (B,)
        beta = torch.sigmoid(self.gate(h))  # (B, 1)
        z = beta * z

        # Equation 1: the gates of the LSTM.
        gates = self.gates_word(Ey) + self.gates_state(h) + self.gates_context(z)  # (B, 4 n)
        i, f, g, o = gates.chunk(4, 1)  # (B, n) each
        i = torch.sigmoid(i)  # what to write into the memory
        f = torch.sigmoid(f)  # what to keep there
        o = torch.sigmoid(o)  # what to show of it
        g = torch.tanh(g)  # what there is to write

        # Equations 2 and 3: the memory and the state.
        c = f * c + i * g
        h = o * torch.tanh(c)

        # Equation 7: the word depends on the last word, the state, and what was seen.
        from_state = self.output_state(self.dropout(h))  # (B, m)
        from_context = self.output_context(z)  # (B, m)
        deep = Ey + from_state + from_context
        logits = self.output(self.dropout(deep))  # (B, K)
        return logits, h, c, alpha, s

    def forward(
        self,
        a: Tensor,  # annotation vectors (B, L, D)
        captions: Tensor,  # (B, C)
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Predict every word from the true ones before it.

        Returns:
            Logits (B, C, K), alphas (B, C, L), and places s (B, C).
        """
        # End of section 4.1: to lower the variance, an image takes the expectation in place of
        # its samples with probability 0.5. Once trained, every image does.
        coin = None
        if self.kind == "hard" and self.training:
            chance = torch.rand(len(a), device=a.device)  # (B,)
            coin = chance < 0.5

        # The word before each word: captions moved along by one, with -1 in front.
        all_but_last = captions[:, :-1]  # (B, C - 1)
        previous = F.pad(all_but_last, (1, 0), value=-1)  # (B, C)

        keys, h, c = self.begin(a)
        all_logits = []
        alphas = []
        places = []
        for y in previous.unbind(1):
            logits, h, c, alpha, s = self.step(y, h, c, a, keys, coin)
            all_logits.append(logits)
            alphas.append(alpha)
            places.append(s)

        return (
            torch.stack(all_logits, 1),  # (B, C, K)
            torch.stack(alphas, 1),  # (B, C, L)
            torch.stack(places, 1),  # (B, C)
        )


# --- The loss (section 4) -------------------------------------------------------------------------
# Sums over words and places, and a mean over the batch.


def log_likelihood(logits: Tensor, captions: Tensor) -> Tensor:
    """log p(y|a): logits (B, C, K) and captions (B, C) -> (B,)."""
    classes = logits.transpose(1, 2)  # (B, K, C), the order that cross_entropy wants
    nll = F.cross_entropy(classes, captions, reduction="none")  # (B, C)
    return -nll.sum(1)


def soft_loss(
    logits: Tensor,  # (B, C, K)
    alphas: Tensor,  # (B, C, L)
    captions: Tensor,  # (B, C)
) -> Tensor:
    """Equation 14: -log p(y|a) + lambda sum_i (1 - sum_t alpha_ti)^2."""
    # Over the whole caption, every place should get about as much attention as any other.
    attention_paid = alphas.sum(1)  # (B, L)
    penalty = (1 - attention_paid).square().sum(1)  # (B,)

    log_p = log_likelihood(logits, captions)  # (B,)
    return (doubly_stochastic * penalty - log_p).mean()


def hard_loss(
    logits: Tensor,  # (B, C, K)
    alphas: Tensor,  # (B, C, L)
    s: Tensor,  # the places drawn (B, C), -1 where an image took the expectation
    captions: Tensor,  # (B, C)
    b: float,  # the baseline, a moving average of log p(y|s,a)
) -> tuple[Tensor, float]:
    """The loss of hard attention, and the next baseline.

    Its gradient is minus the estimate of equation 12 from one sample s, with the baseline and the
    entropy that the end of section 4.1 adds:

        d log p(y|s,a) / dW
        + lambda_r (log p(y|s,a) - b) d log p(s|a) / dW
        + lambda_e dH[s] / dW
    """
    # The first term: how to write better, given where we looked.
    log_p = log_likelihood(logits, captions)  # log p(y|s,a): (B,)

    # An image that took the expectation drew nothing: its log p(s|a) is 0, without a gradient.
    log_alphas = alphas.clamp(min=1e-30).log()  # (B, C, L)
    indices = s.clamp(min=0).unsqueeze(2)  # (B, C, 1)
    log_s = log_alphas.gather(2, indices).squeeze(2)  # (B, C)
    log_s = log_s * (s >= 0)

    # The second term: where a caption went better than usual, look there more often. The reward
    # is detached, because it weights the gradient and has none of its own here.
    reward = log_p.detach() - b  # (B,)
    score = reward * log_s.sum(1)  # (B,)

    # The third term, the entropy of the weights: keep looking around.
    entropy = -(alphas * log_alphas).sum((1, 2))  # (B,)

    objective = log_p + lambda_r * score + lambda_e * entropy  # (B,)
    next_b = 0.9 * b + 0.1 * log_p.mean().item()
    return -objective.mean(), next_b


# --- Captions: beam search ------------------------------------------------------------------------
# Taking the most probable word each time can lead into a poor sentence. Beam search follows
# several sentences at once, and keeps the best.


class Hypothesis(NamedTuple):
    """A caption, or the beginning of one."""

    log_p: float  # of all its words
    words: list[int]  # -1 (no word) first
    maps: list[Tensor]  # alpha (L,) of each word
    h: Tensor  # (n,)
    c: Tensor  # (n,)


@torch.inference_mode()
def beam_search(
    decoder: Decoder,  # in evaluation mode
    a: Tensor,  # one image's annotation vectors (L, D)
    beam: int,  # how many hypotheses are kept
) -> tuple[list[int], Tensor]:
    """Find the most probable caption: its words, and the maps of these and the end mark (C, L)."""
    keys, h, c = decoder.begin(a.unsqueeze(0))  # (1, L, width), (1, n), (1, n)
    start = Hypothesis(
        log_p=0.0,
        words=[-1],
        maps=[],
        h=h[0],
        c=c[0],
    )
    alive = [start]
    ended = []

    for t in range(longest + 1):
        # One step for all hypotheses at once: they are the batch, and share the image.
        last_words = [each.words[-1] for each in alive]
        y = torch.tensor(last_words, device=a.device)  # (beam,)
        h = torch.stack([each.h for each in alive])  # (beam, n)
        c = torch.stack([each.c for each in alive])  # (beam, n)
        size = (len(alive), -1, -1)
        same_a = a.expand(size)  # (beam, L, D)
        same_keys = keys.expand(size)  # (beam, L, width)
        logits, h, c, alpha, _ = decoder.step(y, h, c, same_a, same_keys, None)

        # A caption should have no "<unknown>" in it, and must end in time.
        log_p = logits.log_softmax(1)  # (beam, K)
        log_p[:, UNKNOWN] = -math.inf
        if t == longest:
            log_p[:, END + 1 :] = -math.inf

        # log p of each hypothesis with each word after it.
        totals = [each.log_p for each in alive]
        totals = torch.tensor(totals, device=a.device)  # (beam,)
        log_p += totals.unsqueeze(1)

        # The best of them. At most `beam` end here, one for each hypothesis that is alive, so
        # that among 2 * beam enough go on.
        best = log_p.flatten().topk(2 * beam)
        best_log_p = best.values.tolist()
        best_indices = best.indices.tolist()

        parents = alive
        alive = []
        K = log_p.shape[1]
        for rank in range(2 * beam):
            k = best_indices[rank] // K
            word = best_indices[rank] % K
            hypothesis = Hypothesis(
                log_p=best_log_p[rank],
                words=[*parents[k].words, word],
                maps=[*parents[k].maps, alpha[k]],
                h=h[k],
                c=c[k],
            )
            if word != END:
                alive.append(hypothesis)
            elif rank < beam:
                ended.append(hypothesis)
        alive = alive[:beam]

        # Every further word makes a hypothesis less probable: once an ended one leads, it has won.
        if ended:
            lead = max(each.log_p for each in ended)
            if lead >= alive[0].log_p:
                break

    winner = max(ended, key=lambda each: each.log_p)
    words = winner.words[1:-1]  # without the -1 and the end mark
    return words, torch.stack(winner.maps)


# --- Captions: how good they are ------------------------------------------------------------------
# BLEU-4, as in the paper's tables: the share of the captions' n-grams, n = 1 to 4, that occur in a
# reference, too.


def ngrams(words: Caption, n: int) -> Counter:
    """Count the sequences of n words."""
    counts = Counter()
    for start in range(len(words) - n + 1):
        gram = tuple(words[start : start + n])
        counts[gram] += 1
    return counts


def bleu4(
    captions: list[Caption],
    references: list[list[Caption]],  # several for each caption
) -> float:
    """Corpus BLEU-4 in percent (Papineni et al., 2002)."""
    found = [0] * 4  # n-grams that a reference has, too
    made = [0] * 4  # n-grams in all
    length = 0  # of all captions
    closest_length = 0  # of the references that come closest to them

    for caption, others in zip(captions, references):
        length += len(caption)

        # Of two references that are equally close, the shorter counts: it comes first.
        lengths = sorted(len(other) for other in others)
        differences = [abs(other - len(caption)) for other in lengths]
        closest = differences.index(min(differences))
        closest_length += lengths[closest]

        for n in range(1, 5):
            counts = ngrams(caption, n)
            other_counts = [ngrams(other, n) for other in others]
            for gram, count in counts.items():
                # Clipped: "a a a a" finds no more than the one "a" of a reference.
                most = max(other[gram] for other in other_counts)
                found[n - 1] += min(count, most)
                made[n - 1] += count

    precisions = []
    for f, m in zip(found, made):
        # Not quite zero, and no division by zero, where there was nothing to find.
        precision = max(f, 1e-15) / max(m, 1)
        precisions.append(precision)
    geometric_mean = math.prod(precisions) ** 0.25

    # Without a penalty, a caption of one safe word would score best.
    excess = 1 - closest_length / max(length, 1)
    brevity = math.exp(min(0.0, excess))
    return 100 * geometric_mean * brevity


# --- Captions: where the decoder looked -----------------------------------------------------------
# As in the paper's figures: the image once more for each word, lit where the attention was.


def read_photo(example: Example) -> np.ndarray:
    """Read an example's photograph, or its scene: (224, 224, 3), from 0 to 1."""
    if features:
        image = Image.open(example.photo).convert("RGB")
    else:
        image = Image.fromarray(example.photo)
    image = image.resize((224, 224))
    return np.asarray(image) / 255


def enlarge(alphas: Tensor) -> Tensor:
    """Enlarge maps (C, L) to the size of the image (C, 224, 224)."""
    side = math.isqrt(alphas.shape[1])  # L = side x side
    grids = alphas.view(1, -1, side, side)  # (1, C, side, side)
    light = F.interpolate(grids, (224, 224), mode="bicubic")

    # Bicubic interpolation overshoots below zero.
    return light[0].clamp(min=0).cpu()


def draw_attention(
    examples: list[Example],
    captions: list[Caption],
    maps: list[Tensor],  # (C, L) for each caption
) -> None:
    """Draw a row for each image, and save the picture."""
    rows = len(examples)
    columns = 1 + max(len(words) for words in captions)
    figure = Figure((1.2 * columns, 1.4 * rows), layout="constrained")
    blank = {"xticks": (), "yticks": (), "frame_on": False}
    axes = figure.subplots(rows, columns, squeeze=False, subplot_kw=blank)

    for row, example, words, alphas in zip(axes, examples, captions, maps):
        pixels = read_photo(example)
        row[0].imshow(pixels)

        # The end mark's map, the last, has no word: zip leaves it out.
        for axis, word, light in zip(row[1:], words, enlarge(alphas)):
            brightness = 0.35 + 0.65 * light / light.max()  # (224, 224)
            brightness = brightness.clamp(max=1)
            lit = pixels * brightness.unsqueeze(2).numpy()  # (224, 224, 3)
            axis.imshow(lit)
            axis.set_title(word, fontsize=9)

    figure.savefig(picture, dpi=100)


# --- Training -------------------------------------------------------------------------------------
# The encoder and the decoder are one model, trained together by Adam.


def learning_rate_at(step: int) -> float:
    """The learning rate of a step, counted from 1."""
    rise = step / 50
    fall = 0.5 + 0.5 * math.cos(math.pi * step / steps)
    return learning_rate * min(rise, fall)


def train(
    encoder: nn.Module,
    decoder: Decoder,
    groups: list[list[Pair]],
    begun: float,  # seconds, by time.time()
) -> None:
    """Train on `steps` batches; print the loss every 100 steps."""
    model = nn.ModuleList([encoder, decoder])
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    b = 0.0  # hard attention's baseline
    nats = []  # -log p of a word, in each batch

    for step in range(1, steps + 1):
        inputs, captions = get_batch(groups)  # (B, ...), (B, C)
        a = encoder(inputs)  # (B, L, D)
        logits, alphas, s = decoder(a, captions)  # (B, C, K), (B, C, L), (B, C)

        if attention == "soft":
            loss = soft_loss(logits, alphas, captions)
        else:
            loss, b = hard_loss(logits, alphas, s, captions, b)

        optimiser.zero_grad()
        loss.backward()

        # So that one odd batch cannot undo what was learnt.
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)

        optimiser.param_groups[0]["lr"] = learning_rate_at(step)
        optimiser.step()

        # Nats per word can be compared between batches; the loss grows with a caption's length.
        log_p = log_likelihood(logits, captions).sum()
        nats.append(-log_p.item() / captions.numel())

        if step % 100 == 0 or step == steps:
            recent = np.mean(nats[-100:])
            seconds = time.time() - begun
            print(f"step {step}: {recent:.3f} nats per word, {seconds:.0f} s", flush=True)


def read_data() -> tuple[list[Example], list[Example]]:
    """The training images, and the held-out ones."""
    if features:
        return read_flickr8k(Path(features))

    training = [draw_scene() for _ in range(scenes)]
    held_out = [draw_scene() for _ in range(scenes // 10)]
    return training, held_out


def build_encoder(example: Example) -> tuple[nn.Module, int]:
    """An encoder for images like this one, and D."""
    # Flickr8k's images come as annotation vectors: nothing is left to encode.
    if features:
        return nn.Identity(), example.input.shape[1]

    return Encoder(), 128


def main() -> None:
    """Train, caption held-out images, draw where the decoder looked."""
    random.seed(seed)
    torch.manual_seed(seed)

    training, held_out = read_data()
    vocabulary = build_vocabulary(training)
    groups = group_by_length(training, vocabulary)

    encoder, D = build_encoder(training[0])
    decoder = Decoder(
        kind=attention,
        D=D,
        K=len(vocabulary),
        m=embedding,
        n=hidden,
        width=attention_hidden,
        dropout=dropout,
    )
    encoder.to(device)
    decoder.to(device)

    begun = time.time()
    train(encoder, decoder, groups, begun)
    encoder.eval().requires_grad_(False)
    decoder.eval().requires_grad_(False)

    # The held-out images are encoded once, and captioned twice.
    annotations = []
    for example in held_out:
        pixels = torch.tensor(example.input, device=device).float()
        a = encoder(pixels.unsqueeze(0))  # (1, L, D)
        annotations.append(a[0])
    references = [example.captions for example in held_out]

    # A beam of one takes the most probable word each time.
    for width in (1, beam):
        captions = []
        maps = []
        for a in annotations:
            words, alphas = beam_search(decoder, a, width)
            captions.append([vocabulary[word] for word in words])
            maps.append(alphas)

        right = 0
        for caption, others in zip(captions, references):
            if caption in others:
                right += 1
        score = bleu4(captions, references)
        print(f"beam {width}: BLEU-4 {score:.1f}, {right} of {len(captions)} equal a reference")

    # The captions are those of the wider beam, the last.
    draw_attention(held_out[:4], captions[:4], maps[:4])
    seconds = time.time() - begun
    print(f"{picture} shows where it looked; {seconds:.0f} s")


# --- The command line -----------------------------------------------------------------------------
# Every lower-case variable of this file is a setting, and has an option of its name.


def read_settings() -> None:
    """Replace settings by what the command line says."""
    parser = argparse.ArgumentParser(
        description="Show, Attend and Tell in one file; its first lines say more."
    )
    for name, value in list(globals().items()):
        # Modules, functions, classes and constants are not settings.
        is_setting = name[0].islower() and isinstance(value, str | int | float)
        if not is_setting:
            continue

        choices = None
        if name == "attention":
            choices = ("soft", "hard")
        parser.add_argument(
            f"--{name}",
            type=type(value),
            default=value,
            choices=choices,
            help=f"default: {value}",
        )

    arguments = parser.parse_args()
    globals().update(vars(arguments))


if __name__ == "__main__":
    read_settings()
    main()
