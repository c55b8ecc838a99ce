"""A captioner as two ONNX graphs, for programs without PyTorch: a browser, a phone, a server in another language.

A folder holds

    encoder.onnx      pixels (1, 3, 224, 224) -> a (1, L, D), keys (1, L, W), h_0, c_0 (1, n), distance (1,)
    step.onnx         a, keys, h_{t-1}, c_{t-1} (B, n), words (B,), light (B, L)
                      -> log_p (B, K), alpha (B, L), beta (B,), h_t, c_t (B, n)
    vocabulary.json   the K words in the order of their ids, the end mark and the unknown word included
    manifest.json     sizes, special words, decoding, the SHA-256 of the other files, the differences from PyTorch

Pixels are float32, RGB, 0 to 255, of the square that `images.square` makes. B hypotheses of one image share its a and keys.
words are the ids of the words before, -1 before the first one. A row of `light` that is not all zero replaces alpha: the model
then looks where it is told to. `distance` is that of `familiarity`, -1 if the model cannot tell.

`storage` makes the files smaller; all computation is in float32.
"""

import contextlib
import io
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from satlib.data import images, scenes
from satlib.data.text import END, UNKNOWN
from satlib.errors import SatlibError
from satlib.files.atomic import write_json
from satlib.files.weights import STORAGE
from satlib.model.captioner import Captioner
from satlib.model.decoder import Annotations, Decoder, State
from satlib.page.reader import (
    ENCODER,
    FORMAT,
    MANIFEST,
    SAID,
    SEEN,
    STEP,
    WORDS,
    Exported,
    fingerprint,
    needed,
    pixels_of,
)
from satlib.page.storage import shrunk

if TYPE_CHECKING:
    from onnx import ModelProto

# The largest differences in log p and in alpha from PyTorch that `export` accepts.
_LIMITS = {"float32": (1e-3, 1e-4), "float16": (0.1, 0.01), "int8": (0.1, 0.01)}


class _Encoder(nn.Module):
    """All that is computed once for an image."""

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        self.captioner = captioner

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Pixels (1, 3, 224, 224) -> a, keys, h_0, c_0, distance."""
        captioner = self.captioner
        vectors = captioner.encoder(pixels)
        a = captioner.annotations(vectors)
        state = captioner.decoder.initial_state(a)
        assert isinstance(state, State)
        known = captioner.familiarity
        distance = a.new_full((a.shape[0],), -1.0) if known is None else known.distances(vectors)
        return a, captioner.decoder.project(a).keys, state.h, state.c, distance


class _Step(nn.Module):
    """One word of B hypotheses of one image."""

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        assert isinstance(captioner.decoder, Decoder)  # `export` refuses a Transformer
        self.decoder = captioner.decoder

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, c: Tensor, words: Tensor, light: Tensor
    ) -> tuple[Tensor, ...]:
        """a, keys (1, L, ..), h, c (B, n), words (B,), light (B, L) -> log p, alpha, beta, h, c."""
        decoder, B = self.decoder, words.shape[0]  # len() would fix the number of rows in the graph
        attention = decoder.attention
        decoder.attention = _Lit(attention, light)  # type: ignore[bad-assignment]
        try:
            embedded = decoder.embed(words)
            annotations = Annotations(a.expand(B, -1, -1), keys.expand(B, -1, -1))
            step = decoder.step(annotations, State(h, c), decoder.gates_word(embedded))
        finally:
            decoder.attention = attention
        log_p = torch.log_softmax(decoder.logits(embedded, step.state.h, step.z), 1)
        return log_p, step.alpha, step.beta, step.state.h, step.state.c


class _Lit(nn.Module):
    """An attention whose weights give way to `light` (B, L) in the rows where there is any."""

    def __init__(self, attention: nn.Module, light: Tensor) -> None:
        super().__init__()
        self.attention, self.light = attention, light

    def forward(self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None) -> tuple[Tensor, Tensor, None]:
        """The context vector (B, D), the weights (B, L), no place."""
        look = self.attention(a, keys, h, expected)
        total = self.light.sum(1, keepdim=True)
        given = self.light / total.clamp(min=1e-12)
        alpha = torch.where(total > 0, given, look.alpha)
        return torch.where(total > 0, torch.bmm(given.unsqueeze(1), a).squeeze(1), look.z), alpha, None


def export(captioner: Captioner, folder: Path, storage: str = "float32") -> dict[str, Any]:
    """Write a captioner as ONNX graphs, after a comparison with PyTorch on drawn scenes and noise.

    Args:
        captioner: any but one with sampled or most probable places.
        folder: a new one, or one that an earlier export made; it appears only when it is whole.
        storage: of the weights: "float32", "float16" or "int8" (see `satlib.page.storage`).

    Returns:
        The manifest.

    Raises:
        SatlibError: onnx is not installed, the folder holds something else, the model cannot be exported, or the graphs differ
            from PyTorch.
    """
    with needed():
        import onnx
        import onnxruntime  # noqa: F401  (the comparison needs it)
        import onnxscript  # noqa: F401  (PyTorch's exporter needs it)
    if storage not in STORAGE:
        raise SatlibError(f"weights can be stored as {', '.join(STORAGE)}, not {storage!r}")
    require_exportable(captioner)
    with replaced(folder, MANIFEST, "export") as new:
        for file, model in _graphs(captioner):
            small = shrunk(model, storage)
            onnx.checker.check_model(small)
            (new / file).write_bytes(small.SerializeToString())
        write_json(new / WORDS, list(captioner.vocabulary.words))
        manifest = _manifest(captioner, new, storage)
        write_json(new / MANIFEST, manifest)
        manifest["largest difference"] = _compared(captioner, Exported(new), storage)
        write_json(new / MANIFEST, manifest)
    return manifest


def require_exportable(captioner: Captioner) -> None:
    """Refuse a model that no graphs can be made of.

    Raises:
        SatlibError: it has a Transformer, or it looks at sampled or most probable places.
    """
    recipe = captioner.recipe
    if recipe.decoder.kind == "transformer":
        raise SatlibError(
            f'{recipe.name} has a Transformer, which cannot be exported; choose a model with decoder.kind = "lstm"'
        )
    if recipe.decoding.look != "expected" and recipe.decoder.attention == "hard":
        raise SatlibError(
            f"the model looks at {recipe.decoding.look} places; only expected ones can be exported: set decoding.look"
        )


@contextlib.contextmanager
def replaced(folder: Path, marker: str, kind: str) -> Iterator[Path]:
    """An empty folder that takes the place of `folder` when the block has ended without an error.

    Args:
        folder: a new one, or one that an earlier export or page is in.
        marker: the file by which that is known.
        kind: what the folder holds, for the message.

    Raises:
        SatlibError: the folder holds something else.
    """
    if folder.exists() and not (folder / marker).is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise SatlibError(f"{folder} is not empty, and holds no earlier {kind}; name a new folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as partial:
        new = Path(partial) / kind
        new.mkdir()
        yield new
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def _graphs(captioner: Captioner) -> Iterator[tuple[str, "ModelProto"]]:
    """Each file's name with its graph, weights in float32."""
    captioner.eval()
    pixels = torch.zeros(1, 3, images.SIZE, images.SIZE)
    encoder, step = _Encoder(captioner).eval(), _Step(captioner).eval()
    with torch.inference_mode():
        a, keys, h, c, _ = encoder(pixels)
    yield ENCODER, _traced(encoder, (pixels,), ("pixels",), SEEN, ({},))
    rows = torch.export.Dim("rows")
    light = torch.zeros(2, a.shape[1])
    inputs = (a, keys, h.repeat(2, 1), c.repeat(2, 1), torch.tensor([-1, END]), light)
    names = ("a", "keys", "h", "c", "words", "light")
    yield STEP, _traced(step, inputs, names, SAID, ({}, {}, *({0: rows} for _ in range(4))))


def _traced(
    module: nn.Module, inputs: tuple[Tensor, ...], names: tuple[str, ...], outputs: tuple[str, ...], shapes: tuple
) -> "ModelProto":
    """A module as a graph.

    Raises:
        SatlibError: PyTorch cannot translate it.
    """
    quiet = {name: logging.getLogger(name).level for name in ("onnxscript", "onnx_ir")}
    try:
        for name in quiet:
            logging.getLogger(name).setLevel(logging.ERROR)
        with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module,
                tuple(value.clone() for value in inputs),  # not inference tensors
                input_names=names,
                output_names=outputs,
                dynamic_shapes=shapes,
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise SatlibError(f"PyTorch cannot write this model as ONNX: {str(error).splitlines()[0]}") from error
    finally:
        for name, level in quiet.items():
            logging.getLogger(name).setLevel(level)
    assert program is not None
    return program.model_proto


def _manifest(captioner: Captioner, folder: Path, storage: str) -> dict[str, Any]:
    decoding, known = captioner.recipe.decoding, captioner.familiarity
    return {
        "format": FORMAT,
        "model": captioner.recipe.name,
        "storage": storage,
        "files": {name: msgspec.structs.asdict(fingerprint(folder / name)) for name in (ENCODER, STEP, WORDS)},
        "image": {"side": images.SIZE, "view": captioner.view, "channels": "RGB", "range": [0, 255]},
        "grid": list(captioner.encoder.grid),
        "attention": captioner.recipe.decoder.attention,
        "words": {"end": END, "unknown": UNKNOWN, "before the first": -1},
        "decoding": {
            "beam": decoding.beam,
            "length_normalisation": decoding.length_normalisation,
            "max_length": decoding.max_length,
        },
        "unlike above": None if known is None else known.threshold,
    }


def _examples() -> Iterator[Image.Image]:
    """Pictures to compare on: four drawn scenes and one of noise."""
    for example in scenes.load(1, 4, 1).split("dev"):
        yield scenes.scene(example.image_id).photo()
    noise = np.random.default_rng(0).integers(0, 256, (images.SIZE, images.SIZE, 3), np.uint8)
    yield Image.fromarray(noise)


@torch.inference_mode()
def differences(captioner: Captioner, exported: Exported) -> tuple[float, float]:
    """The largest differences in log p and in alpha between PyTorch and an export, at every word of PyTorch's greedy captions."""
    words_off = maps_off = 0.0
    encoder, step = _Encoder(captioner).eval(), _Step(captioner).eval()
    for photo in _examples():
        pixels = pixels_of(photo, captioner.view)
        a, keys, h, c, _ = encoder(torch.from_numpy(pixels))
        seen = exported.encode(pixels)
        other_h, other_c = seen["h"], seen["c"]
        light = torch.zeros(1, a.shape[1])
        word, said = -1, 0
        while word != END and said <= captioner.recipe.decoding.max_length:
            log_p, alpha, _, h, c = step(a, keys, h, c, torch.tensor([word]), light)
            other_p, other_alpha, _, other_h, other_c = exported.step(seen, other_h, other_c, [word], light.numpy())
            likely = log_p[0] > np.log(1e-4)  # far below, a difference in log p changes no caption
            words_off = max(words_off, float((log_p[0] - torch.from_numpy(other_p[0]))[likely].abs().max()))
            maps_off = max(maps_off, float((alpha - torch.from_numpy(other_alpha)).abs().max()))
            log_p[:, UNKNOWN] = -torch.inf
            word, said = int(log_p.argmax()), said + 1
    return words_off, maps_off


def _compared(captioner: Captioner, exported: Exported, storage: str) -> dict[str, float]:
    """The largest differences of an export from PyTorch, by name.

    Raises:
        SatlibError: they differ.
    """
    off = differences(captioner, exported)
    if not all(value <= limit for value, limit in zip(off, _LIMITS[storage], strict=True)):
        raise SatlibError(
            f"the exported graphs differ from the model: log p by up to {off[0]:.2g}, alpha by up to {off[1]:.2g}; "
            "nothing was written; try --storage float32, or another version of torch"
        )
    return dict(zip(("log_p", "alpha"), off, strict=True))
