"""A trained model in one file: from images to captions and attention maps.

The file is safetensors; its header has the recipe, the vocabulary, and the encoder's name and hash
of weights as JSON. Weights of an encoder that was never trained are not stored but loaded from
their usual source, and the hash verifies that they are the same.
"""

import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec import Struct, field
from PIL import Image
from torch import Tensor, nn

from satlib.data import images
from satlib.data.batches import chunks
from satlib.data.text import Vocabulary, written
from satlib.errors import SatlibError
from satlib.files import packed, read_safetensors, require_finite, unpacked, write_safetensors
from satlib.model import encoders, installed, search
from satlib.model.attention import HardAttention
from satlib.model.decoder import Decoder
from satlib.model.encoders import Encoder, EncoderHeader
from satlib.model.search import Hypothesis
from satlib.model.transformer import TransformerDecoder
from satlib.recipe import OF_MODEL, Recipe, from_dict

# Photographs that are searched together: each step then reads the decoder's weights once for all.
AT_ONCE = 16


class Header(Struct):
    """The header of model.safetensors; the recipe is read by `recipe.from_dict`."""

    format: Literal["satlib captioner 1"]
    recipe: dict[str, Any]
    vocabulary: list[str]
    encoder: EncoderHeader
    own_attention: str | None = field(name="own attention", default=None)


@dataclass(frozen=True)
class Caption:
    """A `Hypothesis` in words, with the maps alphas (C, h, w) on the encoder's grid."""

    words: list[str]
    log_probability: float
    alphas: Tensor
    betas: Tensor

    @property
    def text(self) -> str:
        """The caption as one line, with spaces as its script uses them."""
        return written(self.words)

    @property
    def confidence(self) -> float:
        """The geometric mean of the probabilities of the words and the end mark, 0 to 1."""
        return math.exp(self.log_probability / (len(self.words) + 1))

    def to_json(self) -> dict[str, Any]:
        """All but the maps."""
        return {
            "caption": self.text,
            "words": self.words,
            "log_probability": round(self.log_probability, 4),
            "score": round(self.confidence, 4),
        }


class Captioner(nn.Module):
    """Encoder, decoder and vocabulary, with their recipe."""

    def __init__(self, recipe: Recipe, vocabulary: Vocabulary, encoder: Encoder) -> None:
        super().__init__()
        self.recipe = recipe
        self.name = recipe.name  # after `load`, that of its file
        self.vocabulary = vocabulary
        self.encoder = encoder
        self.own_attention: str | None = None  # FILE:FUNCTION of a user-defined attention

        kind = TransformerDecoder if recipe.decoder.kind == "transformer" else Decoder
        self.decoder = kind(recipe.decoder, encoder.dim, len(vocabulary))
        if isinstance(self.decoder.attention, HardAttention):
            self.decoder.attention.look = recipe.decoding.look

        # What does not train must not be moved by the optimiser, nor count as its parameter.
        encoder.requires_grad_(recipe.encoder.train)
        if recipe.encoder.frozen_statistics:
            encoders.freeze_statistics(encoder)

    def train(self, mode: bool = True) -> "Captioner":
        """Set the mode; a frozen encoder and frozen batch statistics stay in evaluation mode."""
        # Dropout and batch statistics of a frozen encoder would change the annotation vectors.
        super().train(mode)
        self.encoder.train(mode and self.recipe.encoder.train)
        if self.recipe.encoder.frozen_statistics:
            encoders.freeze_statistics(self.encoder)
        return self

    def annotations(self, batch: Tensor) -> Tensor:
        """The decoder's input (B, L, D), scaled.

        batch: images (B, 3, 224, 224) or annotation vectors (B, L, D).
        """
        a = self.encoder(batch) if batch.dim() == 4 else batch
        # Vectors of VGG-19 are so large that they saturate an LSTM with fresh weights.
        scale = self.recipe.encoder.scale
        return a if scale == 1 else a * scale

    @property
    def id(self) -> str:
        """Its name and the beginning of its weights' SHA-256: "scenes-soft 3f9a61c2".

        With an attention of one's own, also that.
        """
        parts = [self.name, encoders.hash_of(self)[:8], self.own_attention]
        return " ".join(filter(None, parts))

    @property
    def holds_encoder(self) -> bool:
        """Whether the file holds the encoder's weights: some training has changed them."""
        return self.recipe.encoder.train or self.encoder.name.startswith(OF_MODEL)

    @cached_property
    def content_words(self) -> Tensor:
        """The words (K,) bool that a caption has once at most, with `decoding.no_repeat`."""
        return search.content_words(self.vocabulary)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.decoder.embedding.weight.device

    @contextmanager
    def looking(self, look: str | None) -> Iterator[None]:
        """Set `attention.HardAttention.look` within a `with` block; None changes nothing."""
        if look is None:
            yield
            return

        attention = self.decoder.attention
        if not isinstance(attention, HardAttention):
            raise SatlibError(f"the look {look!r} needs a model with hard attention")
        before = attention.look
        attention.look = look
        try:
            yield
        finally:
            attention.look = before

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode within a `with` block, the mode of before after it."""
        was_training = self.training
        self.eval()
        try:
            yield
        finally:
            self.train(was_training)

    def caption(self, photos: Sequence[images.Given], beam: int | None = None) -> list[Caption]:
        """The best of the `captions` of each photograph."""
        return [best for best, *_ in self.captions(photos, beam)]

    @torch.inference_mode()
    def captions(
        self, photos: Sequence[images.Given], beam: int | None = None
    ) -> list[list[Caption]]:
        """The captions of each photograph, best first.

        photos: paths or Pillow images. beam: 1 is greedy, None the recipe's.
        """
        captions: list[list[Caption]] = []
        with self.evaluating():
            for pixels in self._batches(photos):
                for found in self.hypotheses(pixels, beam):
                    captions.append([self.read(hypothesis) for hypothesis in found])
        return captions

    @torch.inference_mode()
    def samples(
        self,
        photos: Sequence[images.Given],
        count: int,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> list[list[Caption]]:
        """So many captions of each photograph, drawn word by word (`search.rollout`).

        They are the model's own, in the order of drawing: `decoding.no_repeat` and the beam are of
        the search. What is drawn depends on the seed and the photograph, not on those before it.

        Raises:
            SatlibError: as for `captions`, or the temperature is not from 0.01 to 100.
        """
        # Beyond, softmax overflows, or hardly anything is left of the model.
        if not 0.01 <= temperature <= 100:
            raise SatlibError(f"the temperature must be from 0.01 to 100, not {temperature}")
        captions: list[list[Caption]] = []
        with self.evaluating():
            for pixels in self._batches(photos):
                vectors = self.annotations(pixels.to(self.device))  # (B, L, D)
                for square, own in zip(pixels, vectors, strict=True):
                    a = own.expand(count, -1, -1)  # (count, L, D)
                    with torch.random.fork_rng():
                        torch.manual_seed(seed + zlib.crc32(square.numpy().tobytes()))
                        drawn = search.rollout(
                            self.decoder,
                            self.decoder.project(a),
                            self.decoder.initial_state(a),
                            self.recipe.decoding.max_length,
                            temperature,
                        )
                    captions.append([self.read(hypothesis) for hypothesis in drawn.hypotheses()])
        return captions

    def _batches(self, photos: Sequence[images.Given]) -> Iterator[Tensor]:
        """Photographs as the encoder takes them: (B, 3, 224, 224), uint8."""
        if isinstance(photos, Path | str | Image.Image):
            raise SatlibError(
                "caption takes a list of photographs; put this one in brackets: caption([photo])"
            )
        for some in chunks(photos, AT_ONCE):
            squares = [images.square(images.photo_of(photo)) for photo in some]
            yield torch.stack([images.to_tensor(square) for square in squares])

    @torch.inference_mode()
    def hypotheses(
        self, batch: Tensor, beam: int | None = None, length_normalisation: float | None = None
    ) -> list[list[Hypothesis]]:
        """The hypotheses for each image of a batch, best first.

        batch: images (B, 3, 224, 224) or annotation vectors (B, L, D). Call it in evaluation mode
        (`evaluating`). Arguments that are None take the recipe's values.
        """
        decoding = self.recipe.decoding
        if beam is None:
            beam = decoding.beam
        if length_normalisation is None:
            length_normalisation = decoding.length_normalisation
        if beam == 1:  # greedy: there are no ranks
            length_normalisation = 0.0
        once = self.content_words.to(self.device) if decoding.no_repeat else None

        a = self.annotations(batch.to(self.device))
        return search.beam_search(
            self.decoder, a, beam, decoding.max_length, length_normalisation, once
        )

    def read(self, hypothesis: Hypothesis) -> Caption:
        """A hypothesis as a caption: ids become words, and maps get the encoder's grid (h, w)."""
        alphas = hypothesis.alphas.view(-1, *self.encoder.grid)
        words = self.vocabulary.decode(hypothesis.words)
        return Caption(words, hypothesis.log_probability, alphas, hypothesis.betas)

    def save(self, path: Path, storage: str = "float32") -> None:
        """Write the captioner atomically.

        storage: of the weights, "float32", "float16", or "int8" (matrices, with one scale per row).
        """
        # A frozen encoder is not stored: its hash tells whether the one that is loaded later is the
        # same.
        if self.holds_encoder:
            tensors = self.state_dict()
            encoder_hash = None
        else:
            tensors = self.decoder.state_dict(prefix="decoder.")
            encoder_hash = self.encoder.weights_hash
        stored = dict(packed(tensors, storage))
        require_finite(stored, path)  # a weight beyond float16 is infinite there

        header = Header(
            format="satlib captioner 1",
            recipe=self.recipe.to_dict(),
            vocabulary=self.vocabulary.to_json(),
            encoder=EncoderHeader(self.encoder.architecture, encoder_hash),
            own_attention=self.own_attention,
        )
        write_safetensors(path, stored, header)

    @classmethod
    def load(
        cls, model: Path | str, device: str | torch.device = "cpu", encoder: Encoder | None = None
    ) -> "Captioner":
        """Read a file written by `save`.

        model: its path, the folder of its run, or a name (`installed.model`).

        encoder: a frozen encoder that exists already, to share it if it is the model's; otherwise
        one is made.

        Raises:
            SatlibError: there is no such model, its file is damaged, or its weights are not those
            of its recipe.
        """
        path, header, tensors = read_file(model)
        weights = dict(unpacked(tensors, path))
        require_finite(weights, path)

        # A file without the encoder's weights names them by their hash.
        recipe = from_dict(header.recipe)
        is_frozen = header.encoder.weights is not None
        if encoder is None or not is_frozen or encoder.name != header.encoder.name:
            encoder = encoders.create(header.encoder.name, pretrained=is_frozen)
            encoder.name = recipe.encoder.name
        if is_frozen and encoder.weights_hash != header.encoder.weights:
            raise SatlibError(
                f"{path} was trained with other weights of {encoder.name} than those installed; "
                "train again"
            )

        vocabulary = Vocabulary(header.vocabulary)
        other = SatlibError(
            f"{path} holds other weights than its header describes: copy it again; if its attention "
            "is your own, give the file that it was trained with"
        )
        # First of all: a header could ask for more memory than there is.
        sizes = {size for value in weights.values() for size in value.shape}
        if not {recipe.decoder.hidden, len(vocabulary)} <= sizes:
            raise other

        captioner = cls(recipe, vocabulary, encoder)
        captioner.own_attention = header.own_attention
        # Many runs have a file of this name, each in its folder.
        file = path.resolve()
        captioner.name = file.parent.name if file.name == "model.safetensors" else file.stem
        if is_frozen:
            weights |= encoder.state_dict(prefix="encoder.")
        try:
            captioner.load_state_dict(weights)
        except RuntimeError as error:  # names or shapes
            raise other from error
        return captioner.to(device).eval()


def read_file(model: Path | str) -> tuple[Path, Header, dict[str, Tensor]]:
    """A captioner's file (`installed.model`), its header, and its tensors as they are stored."""
    path = installed.model(model)
    return path, *read_safetensors(
        path, Header, "that of a captioner", "give a run's folder or its model.safetensors"
    )
