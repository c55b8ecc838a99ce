"""Strangers' files: a valid file of each kind, changed at random, is read or refused in one line, and nothing else happens."""

import json
import shutil
import struct

import numpy as np
import pytest
import tiny
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from satlib import recipe
from satlib.data import coco, folder, karpathy, scenes
from satlib.data.images import open_photo
from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.evaluation import evaluate, results
from satlib.model import shipped
from satlib.model.captioner import Captioner
from satlib.training import checkpoint, loop
from satlib.training.validation import read_log

ODD = (None, True, -1, 0, 0.5, 2**63, 10**30, 1e308, "", "../../../escape", "a\x00b", "é" * 3, "a" * 10_000, [], {}, [[]], [None], {"": None})  # fmt: skip


@st.composite
def changed_value(draw, value):
    """A JSON value in which one place, at any depth, is replaced, left out, doubled or turned into text."""
    holder, inner, key = None, value, None
    while isinstance(inner, dict | list) and inner and (holder is None or draw(st.integers(0, 9)) < 7):
        key = draw(st.sampled_from(list(inner) if isinstance(inner, dict) else range(len(inner))))
        holder, inner = inner, inner[key]
    way = draw(st.sampled_from(["replace", "leave out", "double", "as text"]))
    if holder is None or way == "replace":
        odd = draw(st.sampled_from(ODD))
        if holder is None:
            return odd
        holder[key] = odd
    elif way == "leave out":
        del holder[key]
    elif way == "as text":
        holder[key] = str(inner)
    elif isinstance(holder, list):
        holder.insert(key, inner)
    else:
        holder[f"{key}2"] = inner
    return value


@st.composite
def changed_bytes(draw, content):
    """A file cut short, or with some bytes flipped, put in, left out or overwritten."""
    at, some = (
        draw(st.integers(0, len(content))),
        draw(st.binary(max_size=40) | st.sampled_from([b"9" * 5000, b"[" * 5000])),
    )
    ways = [content[:at], content[:at] + some + content[at:], content[:at] + content[at + len(some) :], content * 2]
    return draw(st.sampled_from([*ways, content[:at] + some + content[at + len(some) :], some]))


@st.composite
def changed(draw, content, suffix):
    """A changed file: its JSON, or the JSON in the header of a safetensors file, or bytes anywhere."""
    if suffix == ".json" and draw(st.booleans()):
        return json.dumps(draw(changed_value(json.loads(content)))).encode()
    if suffix == ".safetensors" and draw(st.integers(0, 2)):
        (length,) = struct.unpack("<Q", content[:8])
        outer = json.loads(content[8 : 8 + length])
        outer["__metadata__"]["satlib"] = json.dumps(draw(changed_value(json.loads(outer["__metadata__"]["satlib"]))))
        packed = json.dumps(outer).encode()
        return struct.pack("<Q", len(packed)) + packed + content[8 + length :]
    return draw(changed_bytes(content))


def as_json(value):
    return lambda path: path.write_text(json.dumps(value))


def a_checkpoint(path):
    loop.train(tiny.the_recipe("training.epochs=1"), tiny.data(), tiny.Reader(), path.parent / "run", progress=False)
    shutil.copy(path.parent / "run" / loop.CHECKPOINT, path)


def evaluation(path):
    content = json.loads(next(file for file in shipped.evaluations() if "scenes-soft" in str(file)).read_text())
    names = list(content["captions"])[:5]
    content["captions"] = {name: content["captions"][name] for name in names}
    content["statistics"]["images"] = {name: content["statistics"]["images"][name] for name in names}
    path.write_text(json.dumps(content))


def scene(path):
    Image.fromarray(np.asarray(scenes.scene("test-000001").photo())).save(path)


def model(path):
    Captioner.load(shipped.model("scenes-soft")).save(path, "int8")


RECORD = {
    "event": "epoch", "epoch": 1, "kept": True, "train_nll": 3.5, "dev_nll": 4.0, "dev_bleu4": 1.5, "seconds": 2.0,
}  # fmt: skip
KARPATHY = [{"filename": f"{n}.png", "split": split, "sentences": [{"raw": "a dog"}]} for n, split in enumerate(("train", "val", "test"))]  # fmt: skip
COCO = {"images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(3)], "annotations": [{"id": n, "image_id": n, "caption": "a dog"} for n in range(3)]}  # fmt: skip
ROWS = [{"image": f"{n}.png", "caption": ["a dog", "a cat"], "split": split} for n, split in enumerate(("train", "dev", "test"))]  # fmt: skip
KINDS = {  # file: how a valid one is made, and how it is read
    "recipe.toml": (lambda path: path.write_text(recipe.load("scenes-hard").to_toml()), lambda path: recipe.load(str(path))),
    "model.safetensors": (model, Captioner.load),
    "checkpoint.safetensors": (a_checkpoint, checkpoint.read),
    "log.jsonl": (as_json(RECORD), read_log),
    "evaluation-test.json": (evaluation, evaluate.read),
    "results.json": (as_json([{"image_id": n, "caption": "a dog"} for n in (1, "2.jpg")]), results.read),
    "vocabulary.json": (as_json(["a", "穿"]), Vocabulary.load),
    "dataset_x.json": (as_json({"images": KARPATHY}), lambda path: karpathy.load(path, None, False)),
    "captions_val2014.json": (as_json(COCO), lambda path: coco.read(path, "val2014")),
    "captions.json": (as_json(ROWS), lambda path: folder.load(path.parent, False)),
    "captions.csv": (lambda path: path.write_text("image,caption,split\n0.png,a dog,train\n1.png,a cat,dev\n2.png,a cow,test\n"), lambda path: folder.load(path.parent, False)),
    "photo.png": (scene, open_photo),
    "photo.jpg": (scene, open_photo),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_a_changed_file_is_read_or_refused(name, tmp_path):
    make, read = KINDS[name]
    make(tmp_path / name)
    content, case, refusals = (tmp_path / name).read_bytes(), tmp_path / "case", []
    read(tmp_path / name)

    @settings(max_examples=25, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(changed(content, (tmp_path / name).suffix))
    def one(other):
        assume(other != content)
        case.mkdir(exist_ok=True)
        (case / name).write_bytes(other)
        try:
            read(case / name)
        except SatlibError as error:
            refusals.append(str(error))
        assert [path.name for path in case.iterdir()] == [name]  # nothing else is written, least of all half a file

    one()
    assert len(refusals) >= 3
    assert all(message.strip() and "\n" not in message for message in refusals)
