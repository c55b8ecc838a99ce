"""A captioner that was exported as ONNX graphs (`onnx_export`), run by onnxruntime: what a program without PyTorch does."""

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta, Struct, field
from PIL import Image

from satlib.data import images
from satlib.data.text import END, SPECIALS, UNKNOWN, Vocabulary, written
from satlib.errors import SatlibError
from satlib.files.reading import Count, Size, read_json

FORMAT = "satlib onnx 1"
ENCODER, STEP, WORDS, MANIFEST = "encoder.onnx", "step.onnx", "vocabulary.json", "manifest.json"
SEEN = ("a", "keys", "h", "c", "distance")
SAID = ("log_p", "alpha", "beta", "h_next", "c_next")


class File(Struct):
    """A file of an export."""

    bytes: Count
    sha256: str


class Photographs(Struct):
    """The photographs that an exported model takes."""

    view: str


class Decoding(Struct):
    """How an exported model captions."""

    max_length: Annotated[int, Meta(ge=1, le=1000)]


class Manifest(Struct):
    """manifest.json."""

    format: Literal["satlib onnx 1"]
    storage: str
    files: dict[Annotated[str, Meta(pattern=r"^[\w.-]+$")], File]
    image: Photographs
    grid: tuple[Size, Size]
    decoding: Decoding
    unlike_above: float | None = field(name="unlike above", default=None)


@contextlib.contextmanager
def needed() -> Iterator[None]:
    """Turn a missing package into advice."""
    try:
        yield
    except ImportError as error:
        raise SatlibError(f"this needs {error.name}; run: pip install 'satlib[page]'") from error


def fingerprint(file: Path) -> File:
    """The size and the SHA-256 of a file."""
    content = file.read_bytes()
    return File(len(content), hashlib.sha256(content).hexdigest())


def pixels_of(photo: Image.Image, view: str) -> np.ndarray:
    """The input of the encoder (1, 3, 224, 224): a photograph as `images.square` makes it."""
    return images.to_tensor(images.square(images.to_rgb(photo), view)).unsqueeze(0).float().numpy()


@dataclass(frozen=True)
class Spoken:
    """A greedy caption of an exported model: its words, log p(y|a), and the maps (C, L), that of the end mark last."""

    words: list[int]
    log_probability: float
    alphas: np.ndarray


class Exported:
    """An exported model, run by onnxruntime on one thread.

    Attributes:
        manifest: manifest.json.
        vocabulary: the words and their ids.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder.

        Raises:
            SatlibError: onnxruntime is not installed, the folder holds no export, or a file has changed.
        """
        with needed():
            import onnxruntime
        if not (folder / MANIFEST).is_file():
            raise SatlibError(f"{folder} holds no exported model; make one with: satlib export MODEL --onnx {folder}")
        self.manifest = read_json(folder / MANIFEST, Manifest, "the manifest of an exported model", "export again")
        for name, content in self.manifest.files.items():
            if not (folder / name).is_file() or fingerprint(folder / name) != content:
                raise SatlibError(f"{folder / name} is missing or not what manifest.json says; export again")
        self.vocabulary = Vocabulary(read_json(folder / WORDS, list[str], "a list of words")[len(SPECIALS) :])
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        self._encoder, self._step = (
            onnxruntime.InferenceSession(str(folder / name), settings, providers=["CPUExecutionProvider"])
            for name in (ENCODER, STEP)
        )

    def encode(self, pixels: np.ndarray) -> dict[str, np.ndarray]:
        """Pixels (1, 3, 224, 224), float32 in 0..255 -> a, keys, h, c, distance."""
        values = (np.asarray(value) for value in self._encoder.run(list(SEEN), {"pixels": pixels}))
        return dict(zip(SEEN, values, strict=True))

    def step(
        self, seen: dict[str, np.ndarray], h: np.ndarray, c: np.ndarray, words: list[int], light: np.ndarray
    ) -> tuple:
        """log_p (B, K), alpha (B, L), beta (B,), h and c (B, n), after words of B hypotheses."""
        given = {"a": seen["a"], "keys": seen["keys"], "h": h, "c": c, "words": np.array(words), "light": light}
        return tuple(self._step.run(list(SAID), given))

    def greedy(self, photo: Image.Image) -> Spoken:
        """The caption that takes the most probable word at every step, as `decoding.greedy` does."""
        seen = self.encode(pixels_of(photo, self.manifest.image.view))
        h, c, light = seen["h"], seen["c"], np.zeros(seen["a"].shape[:2], np.float32)
        words, total, alphas = [-1], 0.0, []
        longest = self.manifest.decoding.max_length
        while words[-1] != END:
            log_p, alpha, _, h, c = self.step(seen, h, c, words[-1:], light)
            log_p[:, UNKNOWN] = -np.inf
            words.append(END if len(words) > longest else int(log_p[0].argmax()))
            total += float(log_p[0, words[-1]])
            alphas.append(alpha[0])
        return Spoken(words[1:-1], total, np.stack(alphas))

    def text(self, spoken: Spoken) -> str:
        """A caption as one line."""
        return written(self.vocabulary.decode(spoken.words))
