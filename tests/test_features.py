"""A store holds what its encoder gives, is whole or not there, and is refused when it is not what is asked for."""

import dataclasses
import json
import os
import resource
import shutil
import threading
from collections import namedtuple

import pytest
import tiny
import torch

from satlib import encoders, features, images
from satlib.datasets import CaptionSet, Example
from satlib.errors import SatlibError
from satlib.features import FeatureStore, Pixels, extract, read_ahead

DATA = tiny.data(train=9, dev=3, test=1)
KEYS = [example.key for example in DATA.examples]
ARRAY, MANIFEST = "annotations.f16", "manifest.json"
IMAGE = 4 * tiny.DIM * 2  # bytes


@pytest.fixture(autouse=True)
def _tiny(monkeypatch):
    monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)
    monkeypatch.setitem(encoders._BUILDERS, "other", tiny.build)


def make(folder, data=DATA, encoder=None, batch_size=4):
    return extract(data, encoder or encoders.create("tiny"), folder, batch_size=batch_size, progress=False)


def error(call, *arguments):
    with pytest.raises(SatlibError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestStore:
    def test_it_holds_what_the_encoder_gives(self, tmp_path):
        store, encoder = make(tmp_path), encoders.create("tiny")
        assert (len(store), store.grid, store.dim) == (13, (2, 2), tiny.DIM)
        chosen = ["dev-1", "train-8", "train-0", "dev-1"]
        read = store.read(chosen)
        assert read.dtype == torch.float32
        assert read.shape == (4, 4, tiny.DIM)
        by_key = {example.key: example for example in DATA.examples}
        for row, key in zip(read, chosen, strict=True):
            with torch.inference_mode():
                direct = encoder(images.to_tensor(DATA.photo(by_key[key])).unsqueeze(0))[0]
            torch.testing.assert_close(row, direct, rtol=2**-11, atol=1e-6)  # half a unit in float16's last place

    def test_only_what_is_asked_for_is_read(self, tmp_path):
        store = make(tmp_path)
        assert (tmp_path / ARRAY).stat().st_size == 13 * IMAGE
        os.truncate(tmp_path / ARRAY, 5 * IMAGE)  # in the manifest's order: five images are left
        assert len(store.read(KEYS[:5])) == 5
        with pytest.raises(SatlibError, match="cut short"):
            store.read(KEYS[5:6])

    def test_the_manifest_says_everything(self, tmp_path):
        make(tmp_path)
        manifest = json.loads((tmp_path / MANIFEST).read_text())
        encoder = encoders.create("tiny")
        assert manifest == {
            "data": "tiny",
            "encoder": "tiny",
            "weights": encoder.weights_hash,
            "preprocessing": features.PREPROCESSING,
            "grid": [2, 2],
            "dim": tiny.DIM,
            "images": KEYS,
        }
        assert sorted(path.name for path in tmp_path.iterdir()) == [ARRAY, MANIFEST]

    def test_a_key_that_is_not_there(self, tmp_path):
        assert "has no image 'nobody'; run satlib features again" in error(make(tmp_path).read, ["dev-0", "nobody"])

    def test_a_finished_store_is_opened_not_made_again(self, tmp_path, monkeypatch):
        make(tmp_path)
        monkeypatch.setattr(CaptionSet, "photo", lambda *_: pytest.fail("an image was read"))
        assert len(make(tmp_path)) == 13

    @pytest.mark.parametrize("name", ["timm:vit/a", "vgg19"])
    def test_a_folder_for_each_pair(self, tmp_path, name):
        folder = features.folder(tmp_path, "flickr8k", name)
        assert folder.parent == tmp_path / "features"
        assert folder.name == "flickr8k-" + name.replace(":", "-").replace("/", "-")


class TestInterruption:
    class Stopped(BaseException):
        pass

    def stop_at(self, monkeypatch, key):
        true = CaptionSet.photo

        def photo(data, example):
            if example.key == key:
                raise self.Stopped
            return true(data, example)

        monkeypatch.setattr(CaptionSet, "photo", photo)

    @pytest.mark.parametrize("left", [0, 1, IMAGE - 1])
    @pytest.mark.parametrize("key", ["train-0", "train-5", "test-0"])
    def test_going_on_gives_the_same_bytes(self, tmp_path, key, left):
        make(tmp_path / "whole")
        with pytest.MonkeyPatch.context() as patch:
            self.stop_at(patch, key)
            with pytest.raises(self.Stopped):
                make(tmp_path / "stopped")
        assert "is not finished; make it with: satlib features" in error(FeatureStore, tmp_path / "stopped")
        with open(tmp_path / "stopped" / (ARRAY + ".partial"), "ab") as array:
            array.write(b"x" * left)  # what a kill leaves of an image
        read, true = [], CaptionSet.photo
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CaptionSet, "photo", lambda data, e: read.append(e.key) or true(data, e))
            make(tmp_path / "stopped")
        assert len(read) == 13 - 4 * (KEYS.index(key) // 4)  # the batches before were not computed again
        for name in (ARRAY, MANIFEST):
            assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert len(list((tmp_path / "stopped").iterdir())) == 2

    def test_something_else_does_not_go_on_with_it(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            self.stop_at(patch, "dev-0")
            with pytest.raises(self.Stopped):
                make(tmp_path)
        said = error(make, tmp_path, DATA, encoders.create("tiny", pretrained=False))
        assert "an unfinished extraction with another value of weights; delete it" in said
        assert "another value of images" in error(make, tmp_path, tiny.data(train=2))


class TestRefusals:
    def test_none(self, tmp_path):
        assert "does not exist; make it with: satlib features" in error(FeatureStore, tmp_path / "nothing")

    def test_another_encoder(self, tmp_path):
        make(tmp_path)
        assert "made with encoder 'tiny', not 'other'" in error(make, tmp_path, DATA, encoders.create("other"))

    def test_other_weights(self, tmp_path):
        make(tmp_path)
        assert "made with weights '" in error(make, tmp_path, DATA, encoders.create("tiny", pretrained=False))

    def test_another_preprocessing(self, tmp_path, monkeypatch):
        make(tmp_path)
        monkeypatch.setattr(features, "PREPROCESSING", "stretched to 224 x 224")
        said = error(make, tmp_path)
        assert "made with preprocessing 'RGB; " in said
        assert "not 'stretched to 224 x 224'" in said

    def test_missing_images(self, tmp_path):
        make(tmp_path)
        more = dataclasses.replace(DATA, examples=(*DATA.examples, Example("dev-9", "dev", ("a",))))
        assert "lacks 1 images, dev-9 first; run satlib features again" in error(make, tmp_path, more)

    @pytest.mark.parametrize("change", [-IMAGE, -1, 1])
    def test_an_array_of_another_length(self, tmp_path, change):
        make(tmp_path)
        whole = (tmp_path / ARRAY).read_bytes()
        (tmp_path / ARRAY).write_bytes((whole + b"x")[: len(whole) + change])
        assert f"holds {13 * IMAGE + change} bytes instead of {13 * IMAGE}; delete" in error(FeatureStore, tmp_path)

    def test_no_array(self, tmp_path):
        make(tmp_path)
        (tmp_path / ARRAY).unlink()
        assert "holds 0 bytes instead of" in error(FeatureStore, tmp_path)

    @pytest.mark.parametrize("text", ["[]", "{}", '{"grid": [2, 2]}'])
    def test_a_manifest_of_something_else(self, tmp_path, text):
        make(tmp_path)
        (tmp_path / MANIFEST).write_text(text)
        assert "is no feature store's manifest; delete" in error(FeatureStore, tmp_path)

    def test_a_manifest_cut_short(self, tmp_path):
        make(tmp_path)
        (tmp_path / MANIFEST).write_bytes((tmp_path / MANIFEST).read_bytes()[:50])
        assert "is not complete JSON" in error(FeatureStore, tmp_path)


class TestBadImages:
    def photographs(self, folder):
        examples = []
        for example in DATA.examples[:6]:
            path = folder / f"{example.key}.jpg"
            DATA.photo(example).save(path)
            examples.append(dataclasses.replace(example, path=path))
        return CaptionSet("photographs", tuple(examples))

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (lambda path: path.write_bytes(path.read_bytes()[:900]), "cut short or damaged"),
            (lambda path: path.write_bytes(b""), "is empty"),
            (lambda path: path.write_text("<html>not found</html>"), "is not an image"),
            (lambda path: path.unlink(), "does not exist"),
        ],
    )
    def test_are_named_and_what_was_done_is_kept(self, tmp_path, damage, said):
        data = self.photographs(tmp_path)
        path = data.examples[5].path
        good = path.read_bytes()
        damage(path)
        message = error(make, tmp_path / "store", data)
        assert str(path) in message
        assert said in message
        assert (tmp_path / "store" / (ARRAY + ".partial")).stat().st_size == 4 * IMAGE
        path.write_bytes(good)
        assert len(make(tmp_path / "store", data)) == 6


class TestDisk:
    def test_too_small_from_the_start(self, tmp_path, monkeypatch):
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 0, 13 * IMAGE - 1))
        assert "GB free and the features need 0.0 GB; free some space" in error(make, tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 0, 13 * IMAGE))
        make(tmp_path)

    def test_full_meanwhile(self, tmp_path):
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        data = tiny.data(train=40)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40 * IMAGE, hard))
        try:
            said = error(make, tmp_path / "full", data)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert "cannot write" in said
        assert "free some space and run the same command again" in said
        make(tmp_path / "full", data)
        make(tmp_path / "whole", data)
        assert (tmp_path / "full" / ARRAY).read_bytes() == (tmp_path / "whole" / ARRAY).read_bytes()


def test_values_beyond_float16_are_refused(tmp_path):
    encoder = encoders.create("tiny")
    with torch.no_grad():
        encoder.body[1].weight.mul_(1e8)
    assert "gives values beyond float16 near image train-0" in error(make, tmp_path, DATA, encoder)
    assert not (tmp_path / MANIFEST).exists()


class TestPixels:
    def test_in_order_and_kept(self):
        read = []
        data = dataclasses.replace(DATA, draw=lambda example: read.append(example.key) or tiny.draw(example))
        pixels = Pixels(data, cache_bytes=2 * 3 * 224 * 224)
        first = pixels.read(["dev-1", "train-2", "train-3"])
        assert first.dtype == torch.uint8
        assert first.shape == (3, 3, 224, 224)
        assert torch.equal(first[1], images.to_tensor(tiny.draw(DATA.examples[2])))
        assert torch.equal(pixels.read(["train-3", "dev-1"]), first[[2, 0]])
        assert read == ["dev-1", "train-2", "train-3", "train-3"]  # there was room for two


class TestReadAhead:
    @pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 20])
    def test_every_item_in_order(self, count):
        assert list(read_ahead(lambda i: i * i, list(range(count)))) == [i * i for i in range(count)]

    def test_a_few_ahead_not_all(self):
        begun = []
        squares = read_ahead(lambda i: begun.append(i) or i, list(range(100)), threads=2)
        next(squares)
        squares.close()
        assert len(begun) <= 5
        assert threading.active_count() < 50

    def test_an_error_comes_out(self):
        def read(i):
            if i == 3:
                raise SatlibError("the third")
            return i

        with pytest.raises(SatlibError, match="the third"):
            list(read_ahead(read, list(range(9))))
