"""A store holds what its encoder gives, resumes, and is refused when it is not what a run needs."""

import os

import pytest
import tiny
import torch
from PIL import Image

from satlib.data import datasets, features, images
from satlib.data.features import FeatureStore, Pixels
from satlib.errors import SatlibError
from satlib.files import read_ahead
from satlib.model import encoders
from satlib.training import features as training_features
from satlib.training.features import extract

DATA = tiny.data(train=9, dev=3, test=1)
IMAGE_IDS = [example.image_id for example in DATA.examples]


def make(folder, data=DATA, encoder=None):
    return extract(data, encoder or encoders.create("tiny"), folder, batch_size=4, progress=False)


def check(folder, data, encoder="tiny", view="whole"):
    manifest = training_features._manifest(data, encoders.create(encoder), view)
    FeatureStore(folder / "store").check(manifest, data.examples)


@pytest.fixture
def photographs(tmp_path):
    """An own folder of six photographs."""
    place, rows = tmp_path / "mine", ["image,caption,split"]
    place.mkdir()
    for number, split in enumerate(("train", "train", "train", "dev", "dev", "test")):
        Image.new("RGB", (20, 10), (40 * number, 0, 0)).save(place / f"{number}.png")
        rows.append(f"{number}.png,a dog,{split}")
    (place / "captions.csv").write_text("\n".join(rows))
    return place


def counting(monkeypatch):
    read, seen = Pixels.read, []
    monkeypatch.setattr(Pixels, "read", lambda self, ids: seen.extend(ids) or read(self, ids))
    return seen


def test_it_holds_what_the_encoder_gives(tmp_path):
    store, encoder = make(tmp_path), encoders.create("tiny")
    assert (len(store), store.grid, store.dim) == (13, (2, 2), tiny.DIM)
    chosen = ["dev-1", "train-8", "train-0", "dev-1"]
    by_id = {example.image_id: example for example in DATA.examples}
    for row, image_id in zip(store.read(chosen), chosen, strict=True):
        with torch.inference_mode():
            direct = encoder(images.to_tensor(DATA.photo(by_id[image_id])).unsqueeze(0))[0]
        torch.testing.assert_close(
            row, direct, rtol=2**-11, atol=1e-6
        )  # half a unit in float16's last place


def test_a_stopped_extraction_resumes_with_the_same_bytes(tmp_path, monkeypatch):
    make(tmp_path / "whole")
    encoder, batches = encoders.create("tiny"), []

    def stop(*_):
        batches.append(1)
        if len(batches) == 3:
            raise KeyboardInterrupt

    handle = encoder.register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "stopped", encoder=encoder)
    handle.remove()
    seen = counting(monkeypatch)
    make(tmp_path / "stopped", encoder=encoder)
    assert seen == IMAGE_IDS[8:]
    for name in (features.ARRAY, features.MANIFEST):
        assert (tmp_path / "stopped" / name).read_bytes() == (
            tmp_path / "whole" / name
        ).read_bytes()


def test_only_new_and_changed_images_are_computed(photographs, tmp_path, monkeypatch):
    make(tmp_path / "store", datasets.load(str(photographs), train_images=2))
    Image.new("RGB", (20, 10), "white").save(photographs / "3.png")
    os.utime(photographs / "3.png", (1, 1))
    data = datasets.load(str(photographs))
    with pytest.raises(SatlibError, match=r"lacks 2 images, or they have changed \(one is 2.png\)"):
        check(tmp_path, data)
    seen = counting(monkeypatch)
    store = make(tmp_path / "store", data)
    assert seen == ["2.png", "3.png"]
    assert store.read(["3.png"]).equal(make(tmp_path / "anew", data).read(["3.png"]))
    check(tmp_path, data)


def test_another_encoder_view_or_folder_is_refused(photographs, tmp_path, monkeypatch):
    monkeypatch.setitem(encoders._BUILDERS, "other", tiny.build)
    data = datasets.load(str(photographs))
    with pytest.raises(SatlibError, match="does not exist; run satlib features"):
        check(tmp_path, data)
    make(tmp_path / "store", data)
    for change, word in (
        ({"encoder": "other"}, "encoder"),
        ({"view": "crop"}, "view"),
        ({"data": DATA}, "home"),
    ):
        with pytest.raises(SatlibError, match=f"was made with {word}"):
            check(tmp_path, **{"data": data, **change})
    with pytest.raises(SatlibError, match="was made with weights"):
        make(tmp_path / "store", data, encoders.create("tiny", pretrained=False))
    os.truncate(tmp_path / "store" / features.ARRAY, 10)
    with pytest.raises(SatlibError, match="missing or cut off"):
        check(tmp_path, data)


def test_pixels_in_order_and_kept(photographs):
    """As many as have room, of those with files: what is drawn is drawn again."""
    data, room = datasets.load(str(photographs)), 3 * 224 * 224
    ids = [example.image_id for example in data.examples[:2]]
    for own, names, kept in ((data, ids, ids[:1]), (DATA, ["dev-0", "train-1"], [])):
        pixels = Pixels(own, cache_bytes=room)
        first = pixels.read(names)
        assert (first.dtype, first.shape) == (torch.uint8, (2, 3, 224, 224))
        assert first.flip(0).equal(pixels.read(names[::-1]))
        assert list(pixels._cache) == kept


def test_reading_ahead_gives_every_item_in_order_and_an_error():
    assert list(read_ahead(lambda item: item * 2, range(50))) == list(range(0, 100, 2))
    with pytest.raises(ZeroDivisionError):
        list(read_ahead(lambda item: 1 / item, [1, 0, 1]))
