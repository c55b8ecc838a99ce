"""The kinds of files that `tools/fuzz.py` changes: how valid ones are made, how they are changed, and how satlib uses them."""

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from satlib import recipe
from satlib.data import coco, datasets, karpathy, scenes, shards
from satlib.data.entities import Entities
from satlib.data.features import FeatureStore, Pixels
from satlib.data.images import open_photo, square
from satlib.data.text import Vocabulary
from satlib.evaluation.ground import Boxes
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.model.encoders import create
from satlib.page import export
from satlib.page.reader import Exported
from satlib.training import loop
from satlib.training.features import extract
from satlib.training.validation import read_log

Satlib = Callable[[list[str]], int]
SMALL = ("decoder.embedding=8", "decoder.hidden=8", "decoder.attention_hidden=4", "training.batch_size=4", "training.epochs=1",
         "training.select=nll", "data.min_count=1", "decoding.max_length=4")  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 0.5, 2**31, 2**63, 10**30, 1e308, "", "x", "NaN", "../../../escape", "/escape", "a\x00b", "\ud800", "é" * 3,
    "a" * 10_000, [], {}, [[]], [None], {"": None}, float("nan"), float("inf"), -1e-320,
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        make: writes valid files into a folder.
        use: does with a folder what a user would: a command, or the function that a command calls; gives an exit status or nothing.
        files: patterns of the files to change.
        notices_cuts: whether a file that was cut short can be told from a whole one (a text of lines cannot).
    """

    make: Callable[[Path], None]
    use: Callable[[Path, Satlib], Any]
    files: tuple[str, ...]
    notices_cuts: bool = True


# --- Changes -----------------------------------------------------------------------------------------------------------


def change(kind: Kind, folder: Path, chance: random.Random) -> tuple[str, bool]:
    """Change one of a folder's files: what was done, and whether the file was cut short."""
    file = chance.choice(sorted(path for pattern in kind.files for path in folder.glob(pattern)))
    content = file.read_bytes()
    structured = {".json": _json, ".jsonl": _json_lines, ".safetensors": _safetensors}.get(file.suffix)
    if structured and chance.random() < 0.7:
        done, changed, cut = *structured(content, chance), False
    else:
        done, changed, cut = _bytes(content, chance)
    file.write_bytes(changed)
    return f"{file.name}: {done}", cut


def _bytes(content: bytes, chance: random.Random) -> tuple[str, bytes, bool]:
    """Cut, flip, insert, double, blank or replace some bytes."""
    at = chance.randrange(len(content) + 1)
    length = min(chance.choice([1, 1, 2, 8, 64, 1024]), max(len(content) - at, 1))
    some = chance.choice(
        [bytes(length), b"\xff" * length, chance.randbytes(length), b"\n" * length, b"9" * 5000, b"[" * 5000]
    )
    ways = {
        f"cut at {at}": content[:at],
        f"byte {at} flipped": bytes(value ^ (0x55 * (number == at)) for number, value in enumerate(content[: at + 1])) + content[at + 1 :],
        f"{len(some)} bytes put in at {at}": content[:at] + some + content[at:],
        f"{length} bytes left out at {at}": content[:at] + content[at + length :],
        f"{len(some)} bytes overwritten at {at}": content[:at] + some + content[at + len(some) :],
        "all bytes replaced": chance.randbytes(len(content)),
        "twice": content * 2,
    }  # fmt: skip
    done = chance.choice(list(ways))
    # What follows the last bracket is white space: without it the file is still whole.
    return done, ways[done], done.startswith("cut") and bool(content[at:].strip())


def _json(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    done, value = _node(json.loads(content), chance)
    return done, json.dumps(value, ensure_ascii=True).encode()


def _json_lines(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    lines = content.splitlines()
    number = chance.randrange(len(lines))
    done, lines[number] = _json(lines[number], chance)
    return f"line {number + 1}: {done}", b"\n".join(lines) + b"\n"


def _node(value: Any, chance: random.Random) -> tuple[str, Any]:
    """Change one value somewhere in dictionaries and lists."""
    place, holder, path = value, None, ""
    key: Any = None
    while isinstance(place, dict | list) and place and (holder is None or chance.random() < 0.7):
        key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
        holder, place, path = place, place[key], f"{path}.{key}"[:80]
    other = chance.choice(ODD)
    if chance.random() < 0.1:
        for _ in range(chance.choice([3, 500])):
            other = [other] if chance.random() < 0.5 else {"a": other}
    if holder is None:
        return f"all replaced by {str(other)[:30]!r}", other
    way = chance.choice(["replaced", "replaced", "left out", "doubled", "kind changed"])
    if way == "replaced":
        holder[key] = other
    elif way == "left out":
        del holder[key]
    elif way == "kind changed":
        holder[key] = str(place) if not isinstance(place, str) else [place]
    elif isinstance(holder, list):
        holder.insert(key, place)
    else:
        holder[f"{key}2"] = place
    return f"{path} {way} ({str(other)[:30]!r})", value


def _safetensors(content: bytes, chance: random.Random) -> tuple[str, bytes]:
    """Change the container's own header, satlib's header in it, or the numbers."""
    (length,) = struct.unpack("<Q", content[:8])
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    if chance.random() < 0.6:
        done, inner = _node(json.loads(header["__metadata__"]["satlib"]), chance)
        header["__metadata__"]["satlib"] = json.dumps(inner)
    elif chance.random() < 0.6:
        done, header = _node(header, chance)
    else:
        values = np.frombuffer(body, np.uint8).copy()
        at = chance.randrange(len(values))
        values[at : at + 4] = 255
        done, body = f"numbers at {at} replaced", values.tobytes()
    packed = json.dumps(header).encode()
    return done, struct.pack("<Q", len(packed)) + packed + body


# --- Kinds -------------------------------------------------------------------------------------------------------------


def _scene(path: Path) -> None:
    Image.fromarray(np.asarray(scenes.scene("test-000001").photo())).save(path)


def _own_folder(folder: Path, name: str) -> None:
    for number in range(3):
        _scene(folder / f"{number}.png")
    rows = [
        (f"{number}.png", f"a scene, number {number}", split) for number, split in enumerate(("train", "dev", "test"))
    ]
    if name == "captions.csv":
        (folder / name).write_text("image,caption,split\n" + "".join(f'{a},"{b}",{c}\n' for a, b, c in rows))
    else:
        (folder / name).write_text(json.dumps([{"image": a, "caption": [b, b], "split": c} for a, b, c in rows]))


def _karpathy(folder: Path) -> None:
    images = [
        {
            "filename": f"{n}.png",
            "filepath": "val2014",
            "split": split,
            "sentences": [{"raw": "a dog"}, {"raw": "a cat"}],
        }
        for n, split in enumerate(("train", "restval", "val", "test"))
    ]
    (folder / "dataset_x.json").write_text(json.dumps({"dataset": "x", "images": images}))


def _coco(folder: Path) -> None:
    (folder / "annotations").mkdir()
    for part in ("train2014", "val2014"):
        value = {
            "images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(4)],
            "annotations": [{"id": 9 - n, "image_id": n % 4, "caption": f"a dog {n}"} for n in range(8)],
        }
        (folder / "annotations" / f"captions_{part}.json").write_text(json.dumps(value))


def _boxes(folder: Path) -> None:
    value = {
        "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "person"}],
        "images": [{"id": n, "width": 64, "height": 48, "file_name": f"{n}.jpg"} for n in range(3)],
        "annotations": [{"image_id": n % 3, "category_id": 1 + n % 2, "bbox": [n, 2.5, 10, 20]} for n in range(6)],
    }
    (folder / "instances.json").write_text(json.dumps(value))


def _use_boxes(folder: Path, _: Satlib) -> None:
    boxes = Boxes(folder / "instances.json")
    for number in range(3):
        boxes.targets(datasets.Example(f"{number}.jpg", "test", ("a dog",)), ["a", "dog", "and", "people"])


def _entities(folder: Path) -> None:
    for name in ("Annotations", "Sentences"):
        (folder / name).mkdir()
    box = "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>40</xmax><ymax>50</ymax></bndbox>"
    objects = f"<object><name>1</name>{box}</object><object><name>2</name><nobndbox>1</nobndbox></object>"
    xml = f"<annotation><size><width>64</width><height>60</height></size>{objects}</annotation>"
    (folder / "Annotations" / "7.xml").write_text(xml)
    (folder / "Sentences" / "7.txt").write_text("[/EN#1/people A child] on [/EN#2/scene the hills] .\n" * 2)


def _checkpoint(folder: Path) -> None:
    _train(folder)
    (folder / "log.jsonl").unlink()


def _train(folder: Path) -> Captioner:
    data = scenes.load(4, 2, 0)
    return loop.train(recipe.load("scenes-soft", SMALL), data, Pixels(data), folder, progress=False)


def _log(folder: Path) -> None:
    record = {
        "event": "epoch",
        "train_nll": 3.5,
        "dev_nll": 4.0,
        "dev_bleu4": 1.5,
        "seconds": 2.0,
        "learning_rate": 5e-4,
    }
    lines = [json.dumps({**record, "epoch": epoch, "kept": epoch < 3}) + "\n" for epoch in (1, 2, 3)]
    (folder / "log.jsonl").write_text("".join(lines))


def _features(folder: Path) -> None:
    torch.manual_seed(0)
    extract(scenes.load(2, 2, 0), create("small", False), folder / "store", progress=False)


def _use_features(folder: Path, _: Satlib) -> None:
    store = FeatureStore(folder / "store")
    store.read([example.image_id for example in scenes.load(2, 2, 0).examples])


def _shards(folder: Path) -> None:
    shards.write(scenes.load(3, 2, 0), folder, ["train", "dev"], images_per_shard=2, progress=False)


def _use_shards(folder: Path, _: Satlib) -> None:
    data = datasets.load(str(folder))
    for example in data.split("dev"):
        data.photo(example)
    list(data.read_all())


def _model(folder: Path) -> None:
    _scene(folder / "scene.png")
    Captioner.load(shipped.model("scenes-soft")).save(folder / "model.safetensors", "int8")


def _use_model(folder: Path, satlib: Satlib) -> int:
    status = satlib(["export", str(folder / "model.safetensors"), str(folder / "out.safetensors"), "--storage", "int8"])
    if status and (folder / "out.safetensors").exists():
        raise AssertionError("there is a file under its final name")
    return status


def _use_caption(folder: Path, satlib: Satlib) -> int:
    model = ["--model", str(folder / "model.safetensors"), "--out", str(folder / "out")]
    return satlib(["caption", str(folder / "scene.png"), *model, "--device", "cpu"])


def _evaluation(folder: Path) -> None:
    content = json.loads(next(path for path in shipped.evaluations() if "scenes-soft" in str(path)).read_text())
    few = dict(list(content["captions"].items())[:20])
    content["captions"] = few
    content["statistics"]["images"] = {name: content["statistics"]["images"][name] for name in few}
    (folder / "evaluation-test.json").write_text(json.dumps(content))


def _image(folder: Path) -> None:
    _scene(folder / "a.png")
    with Image.open(folder / "a.png") as photo:
        photo.convert("RGB").save(folder / "b.jpg")
        photo.save(folder / "c.webp")
        photo.quantize(16).save(folder / "d.gif")


def _use_image(folder: Path, _: Satlib) -> None:
    for name in ("a.png", "b.jpg", "c.webp", "d.gif"):
        square(open_photo(folder / name), "whole")


def _recipe(folder: Path) -> None:
    (folder / "mine.toml").write_text(recipe.load("scenes-hard").to_toml())


def _onnx(folder: Path) -> None:
    export.export(Captioner.load(shipped.model("scenes-soft")), folder / "exported", "int8")


def _use_onnx(folder: Path, _: Satlib) -> None:
    Exported(folder / "exported").greedy(scenes.scene("test-000001").photo())


def _vocabulary(folder: Path) -> None:
    Vocabulary(["a", "dog", "穿"], "zh").save(folder / "vocabulary.json")


def _path(folder: Path, pattern: str) -> Path:
    return next(folder.glob(pattern), folder / "gone")


def _resume(folder: Path, _: Satlib) -> None:
    _train(folder)


def _evaluate_phrases(folder: Path, _: Satlib) -> None:
    found = Entities(folder)
    found.size("7.jpg")
    found.sentences("7.jpg")


KINDS = {
    "recipe": Kind(_recipe, lambda folder, satlib: satlib(["recipe", str(folder / "mine.toml")]), ("*.toml",), False),
    "model": Kind(_model, _use_model, ("*.safetensors",)),
    "caption": Kind(_model, _use_caption, ("*.safetensors",)),
    "checkpoint": Kind(_checkpoint, _resume, ("checkpoint.safetensors",)),
    "log": Kind(_log, lambda folder, _: read_log(folder / "log.jsonl"), ("*.jsonl",), False),
    "features": Kind(_features, _use_features, ("store/*",)),
    "evaluation": Kind(_evaluation, lambda folder, satlib: satlib(["table", str(folder / "evaluation-test.json")]), ("*.json",)),
    "vocabulary": Kind(_vocabulary, lambda folder, _: Vocabulary.load(folder / "vocabulary.json"), ("*.json",)),
    "karpathy": Kind(_karpathy, lambda folder, _: karpathy.load(folder / "dataset_x.json", None, False), ("*.json",)),
    "coco": Kind(_coco, lambda folder, _: coco.load(folder, False), ("annotations/*.json",)),
    "boxes": Kind(_boxes, _use_boxes, ("*.json",)),
    "csv": Kind(lambda folder: _own_folder(folder, "captions.csv"), lambda folder, satlib: satlib(["data", "check", str(folder)]), ("captions.csv",), False),
    "own json": Kind(lambda folder: _own_folder(folder, "captions.json"), lambda folder, satlib: satlib(["data", "check", str(folder)]), ("captions.json",)),
    "entities": Kind(_entities, _evaluate_phrases, ("Annotations/*", "Sentences/*"), False),
    "shards": Kind(_shards, _use_shards, ("*.tar", "*.json")),
    "image": Kind(_image, _use_image, ("*.png", "*.jpg", "*.webp", "*.gif"), False),
    "onnx": Kind(_onnx, _use_onnx, ("exported/*",)),
}  # fmt: skip
