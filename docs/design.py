"""Draw how a photograph becomes a caption (design.webp), and its maps as a strip and animated. `python docs/design.py`.

Everything shown comes from a real model: `scenes-soft`, which comes with satlib, captions a drawn scene of the test split. The
scene is the first that `satlib.evaluation.maps.exemplary` yields. The pictures are WebP, which GitHub shows and which keeps all
colours.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Polygon, Rectangle

from satlib.data import images, scenes
from satlib.data.scenes import Scene
from satlib.data.text import END
from satlib.evaluation import animation, maps, overlay, plots
from satlib.model import shipped
from satlib.model.captioner import Caption, Captioner

DESIGN, STRIP, WALK = (Path(__file__).parent / name for name in ("design.webp", "strip.webp", "attention.webp"))
WIDTH, HEIGHT = 14.0, 8.1
INK, SOFT, PANEL, ACCENT = "#22303c", "#6b7a88", "#f3f6f9", "#d55e00"
BLUE, PALE, TRAINING = "#0072b2", "#cfe3f2", "#fdf3e7"


class Example(NamedTuple):
    """What is drawn: the picture, annotation vectors (h, w, D), words, maps (C, 224, 224, 3), and step `index` of the decoder.

    alpha (h, w), z (D,), h (n,); `likely` are the most probable words with their probabilities.
    """

    picture: np.ndarray
    a: np.ndarray
    words: list[str]
    maps: np.ndarray
    index: int
    alpha: np.ndarray
    beta: float
    z: np.ndarray
    h: np.ndarray
    likely: list[tuple[str, float]]


@torch.no_grad()
def example(captioner: Captioner, scene: Scene, caption: Caption) -> Example:
    """Run the decoder again over the caption to see inside, at the last word that describes an object."""
    photo = scene.photo()
    index = max(i for i, thing in enumerate(scenes.mentions(caption.words, scene)) if thing is not None)
    a = captioner.annotations(images.to_tensor(images.square(photo, captioner.view)).unsqueeze(0))
    ids = torch.tensor([[*captioner.vocabulary.encode(" ".join(caption.words)), END]])
    output = captioner.decoder(a, ids)
    alpha, beta = output.alphas[0, index], output.betas[0, index]
    best = output.logits[0, index].softmax(0).topk(4)
    grid = captioner.encoder.grid
    return Example(
        picture=np.asarray(photo) / 255,
        a=a[0].unflatten(0, grid).numpy(),
        words=[*caption.words, plots.END_LABEL],
        maps=overlay.lit(photo, caption.alphas, view=captioner.view),
        index=index,
        alpha=alpha.unflatten(0, grid).numpy(),
        beta=beta.item(),
        z=(beta * alpha @ a[0]).numpy(),
        h=output.states[0, index].numpy(),
        likely=[
            (captioner.vocabulary.decode([i])[0], p) for i, p in zip(best.indices.tolist(), best.values, strict=True)
        ],
    )


def text(axis: Axes, x: float, y: float, words: str, size: float = 11, colour: str = INK, **style: str) -> None:
    """Words centred at (x, y) if no other alignment is given."""
    axis.text(x, y, words, fontsize=size, color=colour, **{"ha": "center", "va": "center", **style})


def step(axis: Axes, x: float, title: str, below: str, module: str, top: float = 7.0, low: float = 4.62) -> None:
    """Title above a step; below it its formula, and the file that holds it."""
    text(axis, x, top, title, 12, weight="bold")
    text(axis, x, low, below, 10.5)
    text(axis, x, low - 0.25, module, 9.5, BLUE, family="monospace", va="top")


def arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], bend: float = 0, colour: str = INK) -> None:
    """An arrow, bent by a share of its length."""
    shape = {"arrowstyle": "-|>,head_width=3.2,head_length=5", "connectionstyle": f"arc3,rad={bend}"}
    axis.add_patch(FancyArrowPatch(start, end, color=colour, linewidth=1.5, shrinkA=0, shrinkB=0, **shape, zorder=4))


def panel(axis: Axes, x: float, y: float, width: float, height: float, colour: str) -> None:
    """A rounded background."""
    shape = "round,pad=0,rounding_size=0.15"
    axis.add_patch(FancyBboxPatch((x, y), width, height, shape, facecolor=colour, edgecolor="none", zorder=0))


def picture(
    axis: Axes, pixels: np.ndarray, x: float, y: float, side: float, edge: str = INK, line: float = 0.8
) -> None:
    """A square image with its lower left corner at (x, y); later ones cover earlier ones."""
    axis.imshow(pixels, extent=(x, x + side, y, y + side), interpolation="nearest", zorder=2, aspect="auto")
    corners = ([x, x + side, x + side, x, x], [y, y, y + side, y + side, y])
    axis.plot(*corners, color=edge, linewidth=line, zorder=2)


def bar(axis: Axes, values: np.ndarray, x: float, y: float, height: float, width: float = 0.2) -> None:
    """A vector as a column of colours."""
    shown = values[: len(values) // 16 * 16].reshape(16, -1).mean(1, keepdims=True)
    most = np.abs(shown).max()
    extent = (x, x + width, y, y + height)
    axis.imshow(shown, extent=extent, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", zorder=2)
    axis.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=INK, linewidth=0.8, zorder=3))


def colours(a: np.ndarray) -> np.ndarray:
    """Annotation vectors (h, w, D) as colours (h, w, 3): their three main directions of variation."""
    centred = a.reshape(-1, a.shape[2]) - a.mean((0, 1))
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    three = left[:, :3] * scale[:3] / scale[:3].max()
    low, high = np.percentile(three, [2, 98], axis=0)
    return (0.25 + 0.75 * ((three - low) / (high - low)).clip(0, 1)).reshape(*a.shape[:2], 3)


def draw_encoder(axis: Axes, shown: Example) -> None:
    """The photograph, the convolutional network, and the grid of annotation vectors."""
    picture(axis, shown.picture, 0.35, 5.0, 1.7)
    step(axis, 1.2, "photograph", "224 × 224 pixels", "images.py")
    for number, (side, x) in enumerate(((1.7, 2.6), (1.35, 2.95), (1.05, 3.27), (0.8, 3.56), (0.6, 3.82))):
        middle, lean = 5.85, 0.16
        corners = [(x, middle - side / 2), (x + lean, middle - side / 2 + lean), (x + lean, middle + side / 2)]
        corners.append((x, middle + side / 2 - lean))
        axis.add_patch(Polygon(corners, facecolor=PALE, edgecolor=BLUE, linewidth=1.1, zorder=3 + 0.1 * number))
    step(axis, 3.3, "encoder", "a convolutional network", "encoders.py")
    tiles = colours(shown.a)
    for depth in range(5, 0, -1):
        offset = 0.07 * depth
        picture(axis, tiles * 0.45 + 0.5, 4.85 + offset, 5.0 + offset, 1.35, SOFT, 0.5)
    picture(axis, tiles, 4.85, 5.0, 1.35)
    for line in range(1, tiles.shape[0]):
        at = 1.35 * line / tiles.shape[0]
        axis.plot([4.85 + at] * 2, [5.0, 6.35], color="white", linewidth=0.7, zorder=3)
        axis.plot([4.85, 6.2], [5.0 + at] * 2, color="white", linewidth=0.7, zorder=3)
    step(axis, 5.65, "annotation vectors", r"$a$: $L$ places $\times$ $D$ numbers", "features.py")
    arrow(axis, (2.15, 5.85), (2.5, 5.85))
    arrow(axis, (4.3, 5.85), (4.75, 5.85))


def draw_decoder(axis: Axes, shown: Example) -> None:
    """One word's step: weights, context, state, word."""
    panel(axis, 6.95, 3.65, 6.85, 3.95, PANEL)
    text(axis, 10.4, 7.4, f"at each step $t$;  here $t$ = {shown.index + 1}", 11, SOFT, style="italic")
    picture(axis, shown.maps[shown.index], 7.3, 5.1, 1.5)
    step(axis, 8.05, "attention", r"weights $\alpha_t$ = softmax$(e_t)$", "attention.py")
    bar(axis, shown.z, 9.72, 5.1, 1.5)
    step(axis, 9.85, "context", r"$z_t = \beta_t \sum_i \alpha_{ti}\, a_i$", "attention.py\ndecoder.py")
    axis.add_patch(
        FancyBboxPatch((10.75, 5.25), 1.1, 1.2, "round,pad=0,rounding_size=0.12", facecolor=PALE, edgecolor=BLUE)
    )
    text(axis, 11.3, 5.85, "LSTM", 13, BLUE, weight="bold")
    step(axis, 11.3, "state", r"$h_t$ from $h_{t-1},\ z_t,\ y_{t-1}$", "decoder.py")
    for row, (word, p) in enumerate(shown.likely):
        y = 6.4 - 0.36 * row
        axis.add_patch(Rectangle((13.05, y - 0.11), 0.62 * p, 0.22, color=BLUE if row == 0 else SOFT, zorder=2))
        text(axis, 12.99, y, word, 10.5, INK if row == 0 else SOFT, ha="right")
    step(axis, 12.95, "word", r"$p(y_t \mid a, y_{<t})$", "decoder.py")
    arrow(axis, (6.6, 5.85), (7.2, 5.85))
    arrow(axis, (8.9, 5.85), (9.62, 5.85))
    arrow(axis, (10.02, 5.85), (10.65, 5.85))
    arrow(axis, (11.95, 5.85), (12.2, 5.85))
    # Back to the beginning of the step: the state asks the next question, and the word is read.
    axis.plot([11.15, 11.15], [4.08, 3.9], color=SOFT, linewidth=1.3)
    axis.plot([11.15, 8.05], [3.9, 3.9], color=SOFT, linewidth=1.3)
    arrow(axis, (8.05, 3.9), (8.05, 4.1), colour=SOFT)
    text(axis, 9.6, 3.78, "the state $h_t$ decides where to look next", 9.5, SOFT, va="top")
    axis.plot([12.95, 12.95], [4.08, 3.9], color=SOFT, linewidth=1.3)
    axis.plot([12.95, 11.45], [3.9, 3.9], color=SOFT, linewidth=1.3)
    arrow(axis, (11.45, 3.9), (11.45, 4.1), colour=SOFT)
    text(axis, 12.4, 3.78, "the word $y_t$ is the LSTM's next input", 9.5, SOFT, va="top")


def draw_caption(axis: Axes, shown: Example) -> None:
    """The whole caption, the map of each word below it; and the loss."""
    text(axis, 0.35, 3.2, "the caption", 12, weight="bold", ha="left")
    text(axis, 1.5, 3.2, "beam search keeps the most probable sentences", 10.5, ha="left")
    text(axis, 5.55, 3.2, "search.py", 9.5, BLUE, family="monospace", ha="left")
    text(axis, 6.95, 3.2, "a map shows where the model looked for each word", 10.5, ha="left")
    text(axis, 11.12, 3.2, "plots.py", 9.5, BLUE, family="monospace", ha="left")
    pitch = (WIDTH - 0.6) / len(shown.words)
    for number, (word, lit) in enumerate(zip(shown.words, shown.maps, strict=True)):
        x, now = 0.35 + number * pitch, number == shown.index
        text(axis, x + 0.43, 2.82, word, 10.5, ACCENT if now else INK, weight="bold" if now else "normal")
        picture(axis, lit, x, 1.78, 0.86, ACCENT if now else SOFT, 2.4 if now else 0.6)
    panel(axis, 0.2, 0.2, WIDTH - 0.4, 1.2, TRAINING)
    text(axis, 0.45, 1.08, "training", 12, ACCENT, weight="bold", ha="left")
    told = "the decoder reads the true words (teacher forcing), and its weights change so that this loss falls:"
    text(axis, 1.5, 1.08, told, 10.5, ha="left")
    text(axis, 0.45, 0.55, r"$L_d \;=\; -\log\, p(y \mid a)$", 13.5, ha="left")
    text(axis, 2.55, 0.55, "make the true words probable", 10.5, SOFT, ha="left")
    penalty = r"$+\;\; \lambda \sum_{i=1}^{L}\, (1 - \sum_{t=1}^{C} \alpha_{ti})^2$"
    text(axis, 5.45, 0.55, penalty, 13.5, ha="left")
    text(axis, 8.0, 0.55, "give every place its share of attention", 10.5, SOFT, ha="left")
    text(axis, 13.55, 1.08, "objective.py", 9.5, BLUE, family="monospace", ha="right")
    text(axis, 13.55, 0.55, "loop.py", 9.5, BLUE, family="monospace", ha="right")


def figure(shown: Example) -> Figure:
    """The whole drawing."""
    drawn = Figure(figsize=(WIDTH, HEIGHT))
    axis = drawn.add_axes((0, 0, 1, 1))
    draw_encoder(axis, shown)
    draw_decoder(axis, shown)
    draw_caption(axis, shown)
    axis.set(xlim=(0, WIDTH), ylim=(0, HEIGHT - 0.3))
    axis.axis("off")
    return drawn


def draw() -> None:
    """Write the drawings."""
    captioner = Captioner.load(shipped.model("scenes-soft"))
    scene, caption = next(maps.exemplary(captioner, beam=1))  # greedy, as in notebook 00
    print(f"{scene.image_id}: {caption.text}")
    photo, view = scene.photo(), captioner.view
    strip = plots.attention_figure(photo, caption.words, caption.alphas, caption.betas, view=view)
    for target, drawn in ((DESIGN, figure(example(captioner, scene, caption))), (STRIP, strip)):
        drawn.savefig(target, format="webp", dpi=144, pil_kwargs={"quality": 85, "method": 6})
    animation.animate(photo, caption.words, caption.alphas, WALK, view)


if __name__ == "__main__":
    draw()
