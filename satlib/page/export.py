"""A captioner as two ONNX graphs, for programs without PyTorch: a browser, a phone, a server.

    encoder.onnx      pixels (1, 3, 224, 224) -> a (1, L, D), keys (1, L, W), h_0, c_0 (1, n)
    step.onnx         a, keys, h_{t-1}, c_{t-1} (B, n), words (B,), light (B, L)
                      -> log_p (B, K), alpha (B, L), beta (B,), h_t, c_t (B, n)
    vocabulary.json   the K words in the order of their ids, with the end mark and the unknown word
    manifest.json     sizes, special words, decoding, and the SHA-256 of the other files

Pixels are RGB, 0 to 255, of `images.square`. B hypotheses of one image share its a and keys.
`words` are the ids of the words before, -1 at first. A row of `light` that is not all zero replaces
alpha.
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

if TYPE_CHECKING:
    from onnx import ModelProto

# The page refuses another one: a change of what stands above changes the number.
FORMAT = "satlib onnx 1"
ENCODER = "encoder.onnx"
STEP = "step.onnx"
WORDS = "vocabulary.json"
MANIFEST = "manifest.json"
_LARGE = 1024  # numbers; smaller tensors stay in float32


class _Encoder(nn.Module):
    """All that is computed once for an image."""

    def __init__(self, captioner: Captioner) -> None:
        super().__init__()
        self.captioner = captioner

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Pixels (1, 3, 224, 224) -> a, keys, h_0, c_0."""
        a = self.captioner.annotations(pixels)
        decoder = self.captioner.decoder
        state = decoder.initial_state(a)
        assert isinstance(state, State)
        return a, decoder.project(a).keys, state.h, state.c


class _Step(nn.Module):
    """One word of B hypotheses of one image."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self, a: Tensor, keys: Tensor, h: Tensor, c: Tensor, words: Tensor, light: Tensor
    ) -> tuple[Tensor, ...]:
        """a, keys (1, L, ..), h, c (B, n), words (B,), light (B, L) -> log p, alpha, beta, h, c."""
        decoder = self.decoder
        B = words.shape[0]  # len() would fix the number of rows in the graph
        # Only while the graph is traced: the decoder is the captioner's own.
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
    """Write a captioner as ONNX graphs into a new folder, or over an earlier export: -> manifest.

    Raises:
        SatlibError: the extra `page` is missing, the folder holds something else, or the model has
            a Transformer or samples places.
    """
    recipe = captioner.recipe
    decoding = recipe.decoding
    if recipe.decoder.kind == "transformer":
        raise SatlibError(
            f"{recipe.name} has a Transformer; "
            'only models with decoder.kind = "lstm" can be exported'
        )
    # A graph has no random numbers, and the page shows maps, not single places.
    if recipe.decoder.attention == "hard" and decoding.look != "expected":
        raise SatlibError(
            f'{recipe.name} looks at {decoding.look} places; set decoding.look = "expected" first'
        )
    try:
        import onnxscript  # noqa: F401  (PyTorch's exporter needs it)
    except ImportError as error:
        raise SatlibError(f"this needs {error.name}; run: pip install 'satlib[page]'") from error

    with replaced(folder, MANIFEST) as new:
        for file, graph in _graphs(captioner):
            (new / file).write_bytes(_stored(graph, storage).SerializeToString())
        write_json(new / WORDS, list(captioner.vocabulary.words))

        # By the hashes a browser sees whether a file that it has kept is whole, and this model's.
        files = {}
        for name in (ENCODER, STEP, WORDS):
            content = (new / name).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files[name] = {"bytes": len(content), "sha256": digest}

        repeatable = None
        if decoding.no_repeat:  # other programs do not know which words are nouns
            repeatable = (~captioner.content_words).nonzero().flatten().tolist()
        manifest = {
            "format": FORMAT,
            "model": recipe.name,
            "files": files,
            "image": {"side": images.SIZE},
            "grid": list(captioner.encoder.grid),
            "words": {"end": END, "unknown": UNKNOWN, "before the first": -1},
            "decoding": recipe.to_dict()["decoding"],
            "repeatable": repeatable,
        }
        write_json(new / MANIFEST, manifest)
    return manifest


@contextlib.contextmanager
def replaced(folder: Path, marker: str) -> Iterator[Path]:
    """An empty folder that takes the place of `folder` when the block has ended without an error.

    `folder` must be new, empty, or hold the file `marker`: then satlib has written it.
    """
    own = (folder / marker).is_file()
    if folder.exists() and not own and any(folder.iterdir()):
        raise SatlibError(
            f"{folder} is not empty, and holds no {marker} from an earlier run; name a new folder"
        )

    # Beside it, because a folder can be renamed within a file system only.
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
    encoder = _Encoder(captioner).eval()
    step = _Step(captioner.decoder).eval()

    pixels = torch.zeros(1, 3, images.SIZE, images.SIZE)
    with torch.no_grad():
        a, keys, h, c = encoder(pixels)
    yield ENCODER, _traced(encoder, {"pixels": pixels}, ("a", "keys", "h", "c"), ())

    # Two rows, because the exporter takes a size of 1 for a constant.
    rows = {
        "h": h.repeat(2, 1),
        "c": c.repeat(2, 1),
        "words": torch.tensor([-1, END]),
        "light": torch.zeros(2, a.shape[1]),
    }
    outputs = ("log_p", "alpha", "beta", "h_next", "c_next")
    yield STEP, _traced(step, {"a": a, "keys": keys, **rows}, outputs, tuple(rows))


def _traced(
    module: nn.Module, inputs: dict[str, Tensor], outputs: tuple[str, ...], of_rows: tuple[str, ...]
) -> "ModelProto":
    """A module as a graph; the first dimension of the inputs `of_rows` is free."""
    rows = torch.export.Dim("rows")
    free = tuple({0: rows} if name in of_rows else {} for name in inputs)

    # The exporter reports its own steps, in three ways.
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    logging.getLogger("onnx_ir").setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=free,
            dynamo=True,
        )
    assert program is not None
    return program.model_proto


def _stored(model: "ModelProto", storage: str) -> "ModelProto":
    """The same graph with large weights in half precision, or with "int8" matrices in 8 bits.

    A runtime turns them into float32 when it loads the graph.
    """
    from onnx import TensorProto, helper, numpy_helper

    # The exporter's notes are larger than small graphs.
    nodes = list(model.graph.node)
    for node in nodes:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")

    weights = []
    restoring = []  # nodes that give a weight its name and its float32 back
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        name = f"{tensor.name}.small"
        if storage == "float32" or values.dtype != np.float32 or values.size < _LARGE:
            weights.append(tensor)
        elif storage == "int8" and values.ndim == 2:
            integers, scale, axis = _eight_bits(values)
            weights.append(numpy_helper.from_array(integers, name))
            weights.append(numpy_helper.from_array(scale, f"{name}.scale"))
            inputs = [name, f"{name}.scale"]
            node = helper.make_node("DequantizeLinear", inputs, [tensor.name], axis=axis)
            restoring.append(node)
        else:
            weights.append(numpy_helper.from_array(values.astype(np.float16), name))
            node = helper.make_node("Cast", [name], [tensor.name], to=TensorProto.FLOAT)
            restoring.append(node)

    # A graph's nodes are in the order in which they are computed.
    model.graph.ClearField("initializer")
    model.graph.ClearField("node")
    model.graph.initializer.extend(weights)
    model.graph.node.extend(restoring + nodes)
    return model


def _eight_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """A matrix as 8-bit integers, their scales, and the axis along which these run.

    The axis is the one with the smaller error: a model that is stored in 8 bits has scales for its
    rows, and the exporter transposes some matrices. So such weights come back exactly.
    """
    choices = []
    for axis in (0, 1):
        largest = np.abs(values).max(1 - axis, keepdims=True)
        scale = (largest.clip(1e-8) / 127).astype(np.float32)  # of zeros alone it is not 0
        integers = np.rint(values / scale).astype(np.int8)
        error = np.abs(integers * scale - values).max()
        choices.append((error, integers, scale.ravel(), axis))
    _, integers, scale, axis = min(choices, key=lambda choice: choice[0])
    return integers, scale, axis
