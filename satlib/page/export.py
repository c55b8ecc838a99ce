"""A captioner as two ONNX graphs, for programs without PyTorch: a browser, a phone, a server in another language.

    encoder.onnx      pixels (1, 3, 224, 224) -> a (1, L, D), keys (1, L, W), h_0, c_0 (1, n)
    step.onnx         a, keys, h_{t-1}, c_{t-1} (B, n), words (B,), light (B, L)
                      -> log_p (B, K), alpha (B, L), beta (B,), h_t, c_t (B, n)
    vocabulary.json   the K words in the order of their ids, the end mark and the unknown word included
    manifest.json     sizes, special words, decoding, and the SHA-256 of the other files

Pixels are RGB, 0 to 255, of `images.square`. B hypotheses of one image share its a and keys. `words` are the ids of the words
before, -1 at first. A row of `light` that is not all zero replaces alpha.
"""

import contextlib
import hashlib
import io
import logging
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from satlib.data import images
from satlib.data.text import END, UNKNOWN
from satlib.errors import SatlibError
from satlib.files import write_json
from satlib.model.attention import Attention
from satlib.model.captioner import Captioner
from satlib.model.decoder import Annotations, Decoder, State
from satlib.model.search import content_words

if TYPE_CHECKING:
    from onnx import ModelProto

FORMAT = "satlib onnx 1"
ENCODER, STEP, WORDS, MANIFEST = "encoder.onnx", "step.onnx", "vocabulary.json", "manifest.json"
_LARGE = 1024  # smaller tensors stay in float32


class _Encoder(nn.Module):
    """All that is computed once for an image."""

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        self.captioner = captioner

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Pixels (1, 3, 224, 224) -> a, keys, h_0, c_0."""
        captioner = self.captioner
        a = captioner.annotations(pixels)
        state = captioner.decoder.initial_state(a)
        assert isinstance(state, State)
        return a, captioner.decoder.project(a).keys, state.h, state.c


class _Step(nn.Module):
    """One word of B hypotheses of one image."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, c: Tensor, words: Tensor, light: Tensor
    ) -> tuple[Tensor, ...]:
        """a, keys (1, L, ..), h, c (B, n), words (B,), light (B, L) -> log p, alpha, beta, h, c."""
        decoder, B = self.decoder, words.shape[0]  # len() would fix the number of rows in the graph
        attention = decoder.attention
        decoder.attention = _Lit(attention, light)
        embedded = decoder.embed(words)
        annotations = Annotations(a.expand(B, -1, -1), keys.expand(B, -1, -1))
        step = decoder.step(annotations, State(h, c), decoder.gates_word(embedded))
        decoder.attention = attention
        log_p = torch.log_softmax(decoder.logits(embedded, step.state.h, step.z), 1)
        return log_p, step.alpha, step.beta, step.state.h, step.state.c


class _Lit(Attention):
    """An attention whose weights are replaced by `light` (B, L) in the rows where there is any."""

    def __init__(self, attention: Attention, light: Tensor) -> None:
        super().__init__()
        self.attention = attention
        self.light = light

    def weights(
        self, a: Tensor, keys: Tensor, h: Tensor, expected: Tensor | None = None
    ) -> tuple[Tensor, None]:
        """The light, of sum 1, or the weights of the attention inside; no place."""
        own, _ = self.attention.weights(a, keys, h, expected)
        total = self.light.sum(1, keepdim=True)  # (B, 1)
        light = self.light / total.clamp(min=1e-12)
        if own.dim() == 3:  # all heads look at the light
            light, total = light.unsqueeze(1), total.unsqueeze(1)
        return torch.where(total > 0, light, own), None

    def read(self, alpha: Tensor, a: Tensor, place: Tensor | None = None) -> Tensor:
        """The context vector, as the attention inside forms it."""
        return self.attention.read(alpha, a, place)


def export(captioner: Captioner, folder: Path, storage: str = "int8") -> dict[str, Any]:
    """Write a captioner as ONNX graphs into a new folder, or one that holds an earlier export: -> the manifest.

    Raises:
        SatlibError: the extra `page` is missing, the folder holds something else, or the model has a Transformer or samples places.
    """
    recipe = captioner.recipe
    if recipe.decoder.kind == "transformer":
        raise SatlibError(
            f'{recipe.name} has a Transformer; only models with decoder.kind = "lstm" can be exported'
        )
    if recipe.decoder.attention == "hard" and recipe.decoding.look != "expected":
        raise SatlibError(
            f'{recipe.name} looks at {recipe.decoding.look} places; set decoding.look = "expected" first'
        )
    try:
        import onnxscript  # noqa: F401  (PyTorch's exporter needs it)
    except ImportError as error:
        raise SatlibError(f"this needs {error.name}; run: pip install 'satlib[page]'") from error
    with replaced(folder, MANIFEST) as new:
        for file, graph in _graphs(captioner):
            (new / file).write_bytes(_stored(graph, storage).SerializeToString())
        write_json(new / WORDS, list(captioner.vocabulary.words))
        contents = {name: (new / name).read_bytes() for name in (ENCODER, STEP, WORDS)}
        repeatable = (~content_words(captioner.vocabulary)).nonzero().flatten().tolist()
        manifest = {
            "format": FORMAT,
            "model": recipe.name,
            "files": {
                name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                for name, content in contents.items()
            },
            "image": {"side": images.SIZE, "view": captioner.view},
            "grid": list(captioner.encoder.grid),
            "words": {"end": END, "unknown": UNKNOWN, "before the first": -1},
            "decoding": recipe.to_dict()["decoding"],
            "repeatable": repeatable if recipe.decoding.no_repeat else None,
        }
        write_json(new / MANIFEST, manifest)
    return manifest


@contextlib.contextmanager
def replaced(folder: Path, marker: str) -> Iterator[Path]:
    """An empty folder that takes the place of `folder`, new or with a `marker`, when the block has ended."""
    if folder.exists() and not (folder / marker).is_file() and any(folder.iterdir()):
        raise SatlibError(
            f"{folder} is not empty, and holds no {marker} of an earlier time; name a new folder"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as partial:
        new = Path(partial) / "new"
        new.mkdir()
        yield new
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)


def _graphs(captioner: Captioner) -> Iterator[tuple[str, "ModelProto"]]:
    """Each file's name and its graph, with weights in float32."""
    assert isinstance(captioner.decoder, Decoder)
    encoder, step = _Encoder(captioner).eval(), _Step(captioner.decoder).eval()
    pixels = torch.zeros(1, 3, images.SIZE, images.SIZE)
    with torch.no_grad():
        a, keys, h, c = encoder(pixels)
    yield ENCODER, _traced(encoder, {"pixels": pixels}, ("a", "keys", "h", "c"), ())
    words, light = torch.tensor([-1, END]), torch.zeros(2, a.shape[1])
    rows = {"h": h.repeat(2, 1), "c": c.repeat(2, 1), "words": words, "light": light}
    outputs = ("log_p", "alpha", "beta", "h_next", "c_next")
    yield STEP, _traced(step, {"a": a, "keys": keys, **rows}, outputs, tuple(rows))


def _traced(
    module: nn.Module, inputs: dict[str, Tensor], outputs: tuple[str, ...], of_rows: tuple[str, ...]
) -> "ModelProto":
    """A module as a graph; the first dimension of the inputs `of_rows` is free."""
    rows = torch.export.Dim("rows")
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=tuple({0: rows} if name in of_rows else {} for name in inputs),
            dynamo=True,
        )
    assert program is not None
    return program.model_proto


def _stored(model: "ModelProto", storage: str) -> "ModelProto":
    """The same graph with its large weights in half precision, or with "int8" its matrices as 8-bit integers.

    A runtime turns them into float32 when it loads the graph.
    """
    from onnx import TensorProto, helper, numpy_helper

    nodes = list(model.graph.node)
    for node in nodes:  # the exporter's notes are larger than small graphs
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    weights, restoring = [], []
    for tensor in model.graph.initializer:
        values, small = numpy_helper.to_array(tensor), f"{tensor.name}.small"
        if storage == "float32" or values.dtype != np.float32 or values.size < _LARGE:
            weights.append(tensor)
        elif storage == "int8" and values.ndim == 2:
            integers, scale, axis = _eight_bits(values)
            weights += [
                numpy_helper.from_array(integers, small),
                numpy_helper.from_array(scale, f"{small}.scale"),
            ]
            restoring.append(
                helper.make_node(
                    "DequantizeLinear", [small, f"{small}.scale"], [tensor.name], axis=axis
                )
            )
        else:
            weights.append(numpy_helper.from_array(values.astype(np.float16), small))
            restoring.append(helper.make_node("Cast", [small], [tensor.name], to=TensorProto.FLOAT))
    model.graph.ClearField("initializer")
    model.graph.ClearField("node")
    model.graph.initializer.extend(weights)
    model.graph.node.extend(restoring + nodes)
    return model


def _eight_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """A matrix as 8-bit integers, their scales, and the axis along which these run: the one with the smaller error.

    The exporter transposes some matrices. The weights of a model that is stored in 8 bits come back exactly.
    """
    choices = []
    for axis in (0, 1):
        scale = (np.abs(values).max(1 - axis, keepdims=True).clip(1e-8) / 127).astype(np.float32)
        integers = np.rint(values / scale).astype(np.int8)
        choices.append((np.abs(integers * scale - values).max(), integers, scale.ravel(), axis))
    return min(choices, key=lambda choice: choice[0])[1:]
