"""A trained model in one file: images in, captions and maps of attention out.

The file is safetensors; its header carries the recipe, the vocabulary and the encoder's name and weights' hash as JSON.
Weights of a frozen encoder are not in it: they come from where the encoder's always come from, and the hash says whether
they are the ones that the decoder was trained with.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from satlib import decoding, encoders, images, origins, recipe
from satlib.attention import HardAttention
from satlib.configs import LOOKS
from satlib.decoder import Decoder
from satlib.decoding import Hypothesis
from satlib.encoders import Encoder
from satlib.errors import SatlibError
from satlib.files import replacing
from satlib.recipe import Recipe
from satlib.text import Vocabulary, written

FORMAT = "satlib captioner 1"
STORAGE = ("float32", "float16", "int8")


@dataclass(frozen=True)
class Caption:
    """A caption and where its words were seen.

    Attributes:
        words: without the end mark.
        log_probability: natural logarithm of p(y|a), the end mark included.
        alphas: (C, h, w): the map of each word, and last that of the end mark; each sums to 1.
        betas: (C,): how much of the context vector the gate let through.
        language: that of the vocabulary (`text.Vocabulary`).
    """

    words: list[str]
    log_probability: float
    alphas: Tensor
    betas: Tensor
    language: str = ""

    @property
    def text(self) -> str:
        """The words as a line, as the language writes them."""
        return written(self.words, self.language)


class Captioner(nn.Module):
    """Encoder, decoder and vocabulary, and the recipe that made them."""

    def __init__(self, recipe: Recipe, vocabulary: Vocabulary, encoder: Encoder) -> None:
        """Put a captioner with a fresh decoder together.

        Raises:
            SatlibError: the recipe and the vocabulary are not for the same language.
        """
        super().__init__()
        if vocabulary.language != recipe.data.language:
            raise SatlibError(
                f"the recipe has data.language = {recipe.data.language!r}, but the vocabulary was made with "
                f"{vocabulary.language!r}; make it again with the recipe's language"
            )
        self.recipe = recipe
        self.vocabulary = vocabulary
        self.encoder = encoder
        self.own_attention: str | None = None  # FILE:FUNCTION, where somebody's own attention was put into it
        self.origins: tuple[str, ...] = ()  # the models that its weights come from (satlib.origins)
        self.decoder = Decoder(recipe.decoder, encoder.dim, len(vocabulary))
        if isinstance(self.decoder.attention, HardAttention):
            self.decoder.attention.look = recipe.decoding.look
        encoder.requires_grad_(recipe.encoder.train)

    def train(self, mode: bool = True) -> "Captioner":
        """Training or evaluation mode; a frozen encoder stays in evaluation mode, its batch statistics with it."""
        super().train(mode)
        self.encoder.train(mode and self.recipe.encoder.train)
        return self

    def annotations(self, batch: Tensor) -> Tensor:
        """Images (B, 3, 224, 224) or the encoder's annotation vectors (B, L, D), as the decoder takes them (`encoder.scale`)."""
        a = self.encoder(batch) if batch.dim() == 4 else batch
        scale = self.recipe.encoder.scale
        return a if scale == 1 else a * scale

    @property
    def view(self) -> str:
        """What the encoder sees of a photograph (`images.square`)."""
        return self.recipe.encoder.view

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.decoder.output.weight.device

    @contextmanager
    def looking(self, look: str | None) -> Iterator[None]:
        """For a while, let hard attention see what `look` says (`attention.HardAttention`); None leaves it as it is.

        Raises:
            SatlibError: an unknown look, or a model without hard attention.
        """
        attention = self.decoder.attention
        if look is None:
            yield
            return
        if not isinstance(attention, HardAttention) or look not in LOOKS:
            raise SatlibError(
                f"the look {look!r} is for models with hard attention, and one of {', '.join(LOOKS)}; "
                f"this one has {self.recipe.decoder.attention} attention"
            )
        before, attention.look = attention.look, look
        try:
            yield
        finally:
            attention.look = before

    def caption(
        self,
        photos: Sequence[Path | str | Image.Image],
        beam: int | None = None,
        length_normalisation: float | None = None,
        max_length: int | None = None,
    ) -> list[Caption]:
        """Caption photographs (paths or pictures) by beam search; what is not given is as the recipe says.

        Raises:
            SatlibError: a file is not a readable picture.
        """
        if not photos:
            return []
        pictures = [photo if isinstance(photo, Image.Image) else images.open_photo(Path(photo)) for photo in photos]
        batch = torch.stack(
            [images.to_tensor(images.square(images.to_rgb(picture), self.view)) for picture in pictures]
        )
        return [self.read(best[0]) for best in self.hypotheses(batch, beam, length_normalisation, max_length)]

    @torch.inference_mode()
    def hypotheses(
        self,
        batch: Tensor,
        beam: int | None = None,
        length_normalisation: float | None = None,
        max_length: int | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses for each of a batch of images (B, 3, 224, 224) or annotation vectors (B, L, D), best first.

        Raises:
            SatlibError: annotation vectors are not finite.
        """
        was_training = self.training
        self.eval()
        defaults = self.recipe.decoding
        a = self.annotations(batch.to(self.device))
        finite = torch.isfinite(a).flatten(1).all(1)
        if not finite.all():
            raise SatlibError(
                f"the annotation vectors of image {finite.tolist().index(False) + 1} of {len(a)} are not finite; compute them "
                "again with: satlib features RECIPE"
            )
        beam = defaults.beam if beam is None else beam
        max_length = defaults.max_length if max_length is None else max_length
        if beam == 1:
            found = [[hypothesis] for hypothesis in decoding.greedy(self.decoder, a, max_length)]
        else:
            normalisation = defaults.length_normalisation if length_normalisation is None else length_normalisation
            found = decoding.beam_search(self.decoder, a, beam, max_length, normalisation)
        self.train(was_training)
        return found

    def read(self, hypothesis: Hypothesis) -> Caption:
        """A hypothesis in words, its maps on the encoder's grid."""
        alphas = hypothesis.alphas.view(-1, *self.encoder.grid)
        words, language = self.vocabulary.decode(hypothesis.words), self.vocabulary.language
        return Caption(words, hypothesis.log_probability, alphas, hypothesis.betas, language)

    def save(self, path: Path, storage: str = "float32", card: dict[str, Any] | None = None) -> None:
        """Write the captioner, whole or not at all.

        Args:
            path: the file.
            storage: "float32", "float16", or "int8": matrices as 8-bit integers with one scale a row, a quarter of the size.
            card: what people should know about it (data, terms, figures), kept in the header.

        Raises:
            SatlibError: an unknown storage, or a weight that is not finite or beyond what the storage can hold.
        """
        if storage not in STORAGE:
            raise SatlibError(f"weights can be stored as {', '.join(STORAGE)}, not {storage!r}")
        kept = self.state_dict() if self.recipe.encoder.train else self.decoder.state_dict(prefix="decoder.")
        header = {
            "format": FORMAT,
            "recipe": self.recipe.to_dict(),
            "vocabulary": self.vocabulary.to_json(),
            "encoder": {
                "name": self.encoder.name,
                "weights": None if self.recipe.encoder.train else self.encoder.weights_hash,
            },
            "card": card or {},
            "own attention": self.own_attention,
            "origins": self.origins,
        }
        stored = dict(_stored(kept, storage))
        for name in beyond(stored):
            if beyond({name: kept[name.removesuffix(":scale")]}):
                raise SatlibError(f"cannot write {path}: {name} holds values that are not finite; train again")
            raise SatlibError(f"cannot write {path}: {name} holds values beyond float16; store it as float32")
        write_safetensors(path, stored, header)

    @classmethod
    def load(cls, path: Path | str, device: str | torch.device = "cpu") -> "Captioner":
        """Read what `save` wrote; a run's folder stands for its `model.safetensors`.

        Raises:
            SatlibError: the file is missing, cut short, a pickle or something else, a weight in it is not finite, or the encoder
                here has other weights.
        """
        path = Path(path)
        path = path / "model.safetensors" if path.is_dir() else path
        header, tensors = read_safetensors(path)
        if header.get("format") != FORMAT:
            raise SatlibError(
                f"{path} is not a captioner of satlib (it says {header.get('format', 'nothing')!r}); give a run's folder or its model.safetensors"
            )
        made_by = recipe.from_dict(recipe.completed(header["recipe"]))
        trained = made_by.encoder.train
        encoder = encoders.create(header["encoder"]["name"], pretrained=not trained)
        if not trained and encoder.weights_hash != header["encoder"]["weights"]:
            raise SatlibError(
                f"{path} was trained with other weights of {encoder.name} than those installed here; install the same ones or train again"
            )
        captioner = cls(made_by, Vocabulary(header["vocabulary"], made_by.data.language), encoder)
        captioner.own_attention = header.get("own attention")
        captioner.origins = origins.current(header.get("origins", ()))
        restored = dict(_restored(tensors))
        require_finite(restored, path)
        try:
            (captioner if trained else captioner.decoder).load_state_dict(
                {name if trained else name.removeprefix("decoder."): value for name, value in restored.items()}
            )
        except RuntimeError as error:  # names or shapes that do not fit
            raise SatlibError(
                f"{path} does not fit its own recipe and vocabulary ({str(error).splitlines()[-1].strip()}); "
                "it was made by another version of satlib or changed afterwards: train again"
            ) from error
        return captioner.to(device).eval()


def read_safetensors(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON header that satlib wrote into a file of weights, and the weights.

    Raises:
        SatlibError: the file is missing, empty, cut short, a pickle, or not satlib's.
    """
    if not path.is_file():
        raise SatlibError(f"the model {path} does not exist; train one with: satlib train RECIPE")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # Copies: what is mapped from a file ends the process (SIGBUS) when somebody shortens that file later.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (safetensors.SafetensorError, OSError) as error:
        if _is_pickle(path):  # asked only now: the length that a safetensors file begins with may look like one
            raise SatlibError(
                f"{path} is a pickle, which could run anybody's code; satlib reads safetensors only"
            ) from error
        reason = " ".join(str(error).split())
        raise SatlibError(f"{path} is damaged or cut short ({reason}); copy it again or train again") from error
    try:
        header = json.loads(metadata["satlib"])
    except (KeyError, json.JSONDecodeError) as error:
        raise SatlibError(
            f"{path} holds weights, but not satlib's; give a run's folder or its model.safetensors"
        ) from error
    return header, tensors


def write_safetensors(path: Path, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
    """Write weights and a JSON header, whole or not at all.

    Raises:
        SatlibError: the disk is full or the folder cannot be written.
    """
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}  # none shares memory
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, metadata={"satlib": json.dumps(header)})
        except safetensors.SafetensorError as error:  # a full disk is not an OSError there
            reason = " ".join(str(error).split())
            raise SatlibError(f"cannot write {path}: {reason}; free some space or choose another folder") from error


def beyond(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of those that hold NaN or infinity."""
    return [name for name, value in tensors.items() if not torch.isfinite(value).all()]


def require_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse what a file holds where a value is NaN or infinite.

    Raises:
        SatlibError: the first such tensor's name.
    """
    for name in beyond(tensors):
        raise SatlibError(f"{path}: {name} holds values that are not finite; copy the file again or train again")


def _is_pickle(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            start = file.read(2)
    except OSError:
        return False
    return start == b"PK" or (start[:1] == b"\x80" and start[1:] in (b"\x02", b"\x03", b"\x04", b"\x05"))


def _stored(tensors: dict[str, Tensor], storage: str) -> Iterator[tuple[str, Tensor]]:
    for name, value in tensors.items():
        value = value.detach().cpu().contiguous()
        if storage == "float32" or not value.is_floating_point():
            yield name, value
        elif storage == "float16" or value.dim() < 2:
            yield name, value.half()
        else:
            scale = value.flatten(1).abs().amax(1).clamp(min=1e-8) / 127
            yield name, (value / scale.view(-1, *[1] * (value.dim() - 1))).round().to(torch.int8)
            yield name + ":scale", scale


def _restored(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, value in tensors.items():
        if name.endswith(":scale"):
            continue
        if value.dtype == torch.int8:
            scale = tensors[name + ":scale"]
            value = value.float() * scale.view(-1, *[1] * (value.dim() - 1))
        yield name, value.float() if value.dtype == torch.float16 else value
