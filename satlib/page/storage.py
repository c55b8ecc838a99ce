"""The weights of an exported graph in smaller formats. A runtime turns them back into float32 when it loads the graph.

"float32" keeps every weight. "float16" stores large tensors in half precision. "int8" stores matrices as 8-bit integers with one
scale for each row, as `storage` does, and the kernels of the encoder, which need more, as integers of 14 bits, or of 11 bits where
a kernel is large, with one scale for each output channel.
"""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

_LARGE = 1024  # smaller tensors stay in float32
# Of 200 captions of dev photographs (flickr8k-lite0-soft), 195 stay the same with these numbers of bits; with 8 bits for large
# kernels 182, with 12 bits for all 192, with 14 for all 199, and with float16, which takes more space, 196.
_BITS, _BITS_LARGE, _LARGE_KERNEL = 14, 11, 100_000


def shrunk(model: "ModelProto", storage: str) -> "ModelProto":
    """The same graph with its large weights in a smaller format ("float32", "float16" or "int8"), and without the exporter's notes."""
    from onnx import numpy_helper

    nodes = list(model.graph.node)
    for node in nodes:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    kept: list[TensorProto] = []
    restoring: list[NodeProto] = []
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if storage == "float32" or values.dtype != np.float32 or values.size < _LARGE:
            kept.append(tensor)
            continue
        made = _half if storage == "float16" or values.ndim == 1 else _matrix if values.ndim == 2 else _kernel
        parts, steps = made(values, tensor.name)
        kept += [numpy_helper.from_array(part, name) for name, part in parts.items()]
        restoring += steps
    for field, content in (("initializer", kept), ("node", restoring + nodes)):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(content)
    return model


def _half(values: np.ndarray, name: str) -> tuple[dict[str, np.ndarray], list["NodeProto"]]:
    """A tensor in half precision: what is stored, by name, and the nodes that make `name` of it."""
    from onnx import TensorProto, helper

    small = f"{name}.small"
    return {small: values.astype(np.float16)}, [helper.make_node("Cast", [small], [name], to=TensorProto.FLOAT)]


def _matrix(values: np.ndarray, name: str) -> tuple[dict[str, np.ndarray], list["NodeProto"]]:
    """A matrix in 8 bits: what is stored, by name, and the nodes that make `name` of it."""
    from onnx import TensorProto, helper

    small, whole, scale = (f"{name}.{part}" for part in ("small", "whole", "scale"))
    stored = dict(zip((small, scale), eight_bits(values), strict=True))
    return stored, [
        helper.make_node("Cast", [small], [whole], to=TensorProto.FLOAT),
        helper.make_node("Mul", [whole, scale], [name]),
    ]


def eight_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix as int8, and scales that turn it back, one for each row or, where that is closer, for each column.

    The exporter transposes some matrices. The weights of a model that is stored in 8 bits come back exactly.
    """

    def along(axis: int) -> tuple[float, np.ndarray, np.ndarray]:
        scale = (np.abs(values).max(1 - axis, keepdims=True).clip(1e-8) / 127).astype(np.float32)
        whole = np.rint(values / scale).astype(np.int8)
        return float(np.abs(whole * scale - values).max()), whole, scale

    _, whole, scale = min(along(0), along(1), key=lambda way: way[0])
    return whole, scale


def _kernel(values: np.ndarray, name: str) -> tuple[dict[str, np.ndarray], list["NodeProto"]]:
    """A convolution's kernel (out, in, h, w) as integers high 2^8 + low: what is stored, by name, and the nodes that make `name` of it.

    A byte each, because general compression then finds the few values that the high bytes have.
    """
    from onnx import TensorProto, helper

    limit = 2 ** ((_BITS_LARGE if values.size > _LARGE_KERNEL else _BITS) - 1) - 1
    scale = (np.abs(values).max((1, 2, 3), keepdims=True).clip(1e-8) / limit).astype(np.float32)
    whole = np.rint(values / scale).astype(np.int16)
    high, low, base, scales = (f"{name}.{part}" for part in ("high", "low", "base", "scale"))
    stored = {
        high: (whole >> 8).astype(np.int8),
        low: (whole & 255).astype(np.uint8),
        base: np.array(256, np.float32),
        scales: scale,
    }
    return stored, [
        helper.make_node("Cast", [high], [f"{high}.float"], to=TensorProto.FLOAT),
        helper.make_node("Cast", [low], [f"{low}.float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{high}.float", base], [f"{high}.shifted"]),
        helper.make_node("Add", [f"{high}.shifted", f"{low}.float"], [f"{name}.whole"]),
        helper.make_node("Mul", [f"{name}.whole", scales], [name]),
    ]
