"""A store holds what its encoder gives, knows its images, is whole or not there, and is refused when it is not what is asked for."""

import dataclasses
import hashlib
import json
import os
import resource
import shutil
import zlib
from collections import namedtuple

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from refusals import refused

from satlib.data import datasets, features, images
from satlib.data.datasets import CaptionSet, Example
from satlib.data.features import FeatureStore, Pixels, Source, read_ahead
from satlib.errors import SatlibError
from satlib.model import encoders
from satlib.training import features as training_features
from satlib.training.features import extract, open_store

DATA = tiny.data(train=9, dev=3, test=1)
IMAGE_IDS = [example.image_id for example in DATA.examples]
ARRAY, MANIFEST = "annotations.f16", "manifest.json"
IMAGE = 4 * tiny.DIM * 2  # bytes


@pytest.fixture(autouse=True)
def _other(monkeypatch):
    monkeypatch.setitem(encoders._BUILDERS, "other", tiny.build)


def make(folder, data=DATA, encoder=None, batch_size=4):
    return extract(data, encoder or encoders.create("tiny"), folder, batch_size=batch_size, progress=False)


def source(encoder="tiny", pretrained=True, view="whole"):
    return Source(encoder, encoders.create(encoder, pretrained).weights_hash, view)


def error(call, *arguments):
    return refused(lambda: call(*arguments))


class TestStore:
    def test_it_holds_what_the_encoder_gives(self, tmp_path):
        store, encoder = make(tmp_path), encoders.create("tiny")
        assert (len(store), store.grid, store.dim) == (13, (2, 2), tiny.DIM)
        chosen = ["dev-1", "train-8", "train-0", "dev-1"]
        read = store.read(chosen)
        assert read.dtype == torch.float32
        assert read.shape == (4, 4, tiny.DIM)
        by_id = {example.image_id: example for example in DATA.examples}
        for row, image_id in zip(read, chosen, strict=True):
            with torch.inference_mode():
                direct = encoder(images.to_tensor(DATA.photo(by_id[image_id])).unsqueeze(0))[0]
            torch.testing.assert_close(row, direct, rtol=2**-11, atol=1e-6)  # half a unit in float16's last place

    def test_only_what_is_asked_for_is_read(self, tmp_path):
        store = make(tmp_path)
        assert (tmp_path / ARRAY).stat().st_size == 13 * IMAGE
        os.truncate(tmp_path / ARRAY, 5 * IMAGE)  # in the manifest's order: five images are left
        assert len(store.read(IMAGE_IDS[:5])) == 5
        with pytest.raises(SatlibError, match="truncated"):
            store.read(IMAGE_IDS[5:6])

    def test_the_manifest_says_everything(self, tmp_path):
        make(tmp_path)
        manifest, array = json.loads((tmp_path / MANIFEST).read_text()), (tmp_path / ARRAY).read_bytes()
        pixels = [np.asarray(DATA.photo(example)).tobytes() for example in DATA.examples]
        assert manifest == {
            "format": "satlib features 3",
            "data": "tiny",
            "home": "drawn",
            "encoder": "tiny",
            "weights": encoders.create("tiny").weights_hash,
            "view": "whole",
            "grid": [2, 2],
            "dim": tiny.DIM,
            "images": {
                image_id: [row, 0, 0, hashlib.sha256(drawn).hexdigest(), zlib.crc32(array[row * IMAGE :][:IMAGE])]
                for row, (image_id, drawn) in enumerate(zip(IMAGE_IDS, pixels, strict=True))
            },
        }
        assert list(manifest["images"]) == IMAGE_IDS
        assert {path.name for path in tmp_path.iterdir()} - {".lock"} == {ARRAY, MANIFEST}

    def test_a_key_that_is_not_there(self, tmp_path):
        assert "has no image 'nobody'; run satlib features again" in error(make(tmp_path).read, ["dev-0", "nobody"])

    def test_a_finished_store_is_opened_not_made_again(self, tmp_path, monkeypatch):
        make(tmp_path)
        before = {name: (tmp_path / name).stat().st_mtime_ns for name in (ARRAY, MANIFEST)}
        monkeypatch.setattr(encoders.Encoder, "forward", lambda *_: pytest.fail("an image was encoded"))
        assert len(make(tmp_path)) == 13
        assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before


class TestInterruption:
    class Stopped(BaseException):
        pass

    def stop_at(self, monkeypatch, image_id):
        true = CaptionSet.photo

        def photo(data, example):
            if example.image_id == image_id:
                raise self.Stopped
            return true(data, example)

        monkeypatch.setattr(CaptionSet, "photo", photo)

    @pytest.mark.parametrize(
        ("image_id", "killed"), [("train-0", True), ("train-5", False), ("train-5", True), ("test-0", False)]
    )
    def test_going_on_gives_the_same_bytes(self, tmp_path, image_id, killed):
        make(tmp_path / "whole")
        stopped = tmp_path / "stopped"
        with pytest.MonkeyPatch.context() as patch:
            self.stop_at(patch, image_id)
            if killed:  # nothing is written at the end
                patch.setattr(training_features, "SAVE_SECONDS", -1.0)
                true, saves = training_features.write_manifest, []
                limit = 1 + IMAGE_IDS.index(image_id) // 4
                patch.setattr(
                    training_features, "write_manifest", lambda *a: saves.append(1) or len(saves) > limit or true(*a)
                )
            with pytest.raises(self.Stopped):
                make(stopped)
        with open(stopped / ARRAY, "ab") as array:
            array.write(b"x" * (IMAGE - 1))  # what a kill leaves of an image
        assert "lacks" in error(FeatureStore(stopped).check, source(), DATA, DATA.examples)
        encoded, true = [], encoders.Encoder.forward
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encoders.Encoder, "forward", lambda self, batch: encoded.extend(batch) or true(self, batch))
            make(stopped)
        assert len(encoded) == 13 - 4 * (IMAGE_IDS.index(image_id) // 4)  # the batches before were not computed again
        for name in (ARRAY, MANIFEST):
            assert (stopped / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()

    def test_only_one_at_a_time(self, tmp_path, monkeypatch):
        true = CaptionSet.photo
        said = []

        def photo(data, example):
            if example.image_id == "train-5":
                said.append(error(make, tmp_path))
            return true(data, example)

        monkeypatch.setattr(CaptionSet, "photo", photo)
        make(tmp_path)
        assert f"{tmp_path} is in use by another satlib features; wait until it has ended" in said[0]


class TestRefusals:
    def test_none(self, tmp_path):
        assert "does not exist; create it with: satlib features" in error(FeatureStore, tmp_path / "nothing")

    def test_another_encoder_weights_or_view(self, tmp_path):
        store = make(tmp_path)
        for made_by, said in (
            (source("other"), "made with encoder 'tiny', not 'other'; delete it and run satlib features again"),
            (source(pretrained=False), "made with weights"),
            (source(view="crop"), "made with view 'whole', not 'crop'"),
        ):
            assert said in error(store.check, made_by, DATA, DATA.examples)
        assert "made with encoder 'tiny', not 'other'" in error(make, tmp_path, DATA, encoders.create("other"))

    def test_missing_images(self, tmp_path):
        store = make(tmp_path)
        more = (*DATA.examples, Example("dev-9", "dev", ("a",)))
        said = error(store.check, source(), DATA, more)
        assert "lacks 1 image (the first is dev-9); run satlib features again, which computes only the missing" in said

    def test_an_array_that_is_too_short(self, tmp_path):
        make(tmp_path)
        whole = (tmp_path / ARRAY).read_bytes()
        (tmp_path / ARRAY).write_bytes(whole[:-1])
        said = error(FeatureStore, tmp_path)
        assert f"has {13 * IMAGE - 1} bytes instead of {13 * IMAGE}; run satlib features again" in said
        make(tmp_path)  # which does help
        assert (tmp_path / ARRAY).read_bytes()[: 12 * IMAGE] == whole[: 12 * IMAGE]
        assert len(make(tmp_path).read(IMAGE_IDS)) == 13

    @pytest.mark.parametrize("change", [("features 3", "features 2"), ("{", "")])
    def test_a_manifest_of_something_else(self, tmp_path, change):
        make(tmp_path)
        (tmp_path / MANIFEST).write_text((tmp_path / MANIFEST).read_text().replace(*change))
        assert "run satlib features again" in error(FeatureStore, tmp_path)


class TestItsOwnImages:
    """A store of photographs in a folder: found by another folder, with an image replaced, added, removed; with bytes damaged."""

    @pytest.fixture
    def root(self, tmp_path):
        return tmp_path / "data"

    def photos(self, folder, seed=0, count=10):
        folder.mkdir(parents=True, exist_ok=True)
        rng, lines = np.random.default_rng(seed), ["image,caption,split"]
        for i in range(count):
            self.paint(folder / f"{i}.png", rng.integers(1000))
            lines.append(f"{i}.png,A dog number {i}.,{('train', 'dev', 'test')[min(i // 4, 2)]}")
        (folder / "captions.csv").write_text("\n".join(lines))
        return datasets.load(str(folder))

    def paint(self, path, seed):
        Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 60, 3), np.uint8)).save(path)

    def make(self, root, data, progress=False, verify=False):
        encoder = encoders.create("tiny")
        return extract(
            data, encoder, features.folder(root, data, "tiny"), batch_size=4, progress=progress, verify=verify
        )

    def open(self, root, data, split="train"):
        return open_store(root, data, encoders.create("tiny"), "whole", data.split(split))

    def direct(self, data, image_id):
        with torch.inference_mode():
            return encoders.create("tiny")(Pixels(data).read([image_id]))

    def assert_right(self, store, data):
        for example in data.examples:
            read = store.read([example.image_id])
            torch.testing.assert_close(read, self.direct(data, example.image_id), rtol=2**-10, atol=1e-3)

    def test_two_folders_of_one_name_have_two_stores(self, root, tmp_path):
        a, b = (self.photos(tmp_path / parent / "photos", seed) for parent, seed in (("A", 0), ("B", 1)))
        assert [e.image_id for e in a.examples] == [e.image_id for e in b.examples]
        place = self.make(root, a).folder
        assert "does not exist; create it with: satlib features" in error(self.open, root, b)
        shutil.copytree(place, features.folder(root, b, "tiny"))  # somebody puts it there
        assert f"was made from {a.home}, not from {b.home}; run satlib features again" in error(self.open, root, b)
        self.make(root, b)
        for data in (a, b):
            self.assert_right(self.open(root, data), data)
        assert features.folder(root, a, "timm:vit/a", "crop").name == place.name.replace(
            "tiny-whole", "timm-vit-a-crop"
        )

    def test_a_set_that_moved_is_compared_and_not_computed_again(self, root, monkeypatch, capsys):
        data = self.photos(root / "photos")
        self.make(root, data)
        root.rename(root.parent / "moved")
        moved = datasets.load(str(root.parent / "moved" / "photos"))
        assert "run satlib features again" in error(self.open, root.parent / "moved", moved)
        with monkeypatch.context() as patch:
            patch.setattr(encoders.Encoder, "forward", lambda *_: pytest.fail("an image was encoded"))
            self.make(root.parent / "moved", moved, progress=True)
        assert f"moved from {data.home}; computing 0 of 10 images" in capsys.readouterr().out
        self.assert_right(self.open(root.parent / "moved", moved), moved)

    def test_only_what_is_new_or_changed_is_computed_and_a_line_says_so(self, root, tmp_path, monkeypatch, capsys):
        folder = tmp_path / "photos"
        data = self.photos(folder)
        before = self.make(root, data).read(["0.png"])
        self.paint(folder / "3.png", 77)
        self.paint(folder / "new.png", 78)
        (folder / "9.png").unlink()
        lines = (folder / "captions.csv").read_text().splitlines()
        (folder / "captions.csv").write_text("\n".join([*lines[:-1], "new.png,A new dog.,train"]))
        data = datasets.load(str(folder))
        assert "lacks 1 image (the first is new.png)" in error(self.open, root, data)
        assert "1 image changed after" in error(
            lambda: open_store(root, data, encoders.create("tiny"), "whole", data.split("train")[:4])
        )
        assert len(self.open(root, data, "dev").read(["4.png"])) == 1  # of which nothing has changed
        read, true = [], CaptionSet.photo
        with monkeypatch.context() as patch:
            patch.setattr(CaptionSet, "photo", lambda data, e: read.append(e.image_id) or true(data, e))
            store = self.make(root, data, progress=True)
        assert read == ["3.png", "new.png"]
        assert "1 new, 1 changed; computing 2 of 10 images" in capsys.readouterr().out
        self.assert_right(store, data)
        self.assert_right(self.open(root, data), data)
        assert torch.equal(store.read(["0.png"]), before)

    def test_a_file_with_another_date_is_compared_and_one_with_the_same_by_verify_alone(self, root, tmp_path, capsys):
        data = self.photos(tmp_path / "photos")
        store, path = self.make(root, data), data.examples[2].path
        before = path.stat()
        os.utime(path, ns=(0, 0))
        self.open(root, data)  # only the date is new
        self.make(root, data)
        assert FeatureStore(store.folder).manifest.images["2.png"].modified == 0
        self.paint(path, 99)
        path.write_bytes(path.read_bytes()[: before.st_size].ljust(before.st_size, b"\0"))
        os.utime(path, ns=(0, 0))
        self.make(root, data, progress=True)
        assert capsys.readouterr().out == ""
        self.make(root, data, progress=True, verify=True)
        assert "1 changed; computing 1 of 10 images" in capsys.readouterr().out
        self.assert_right(self.open(root, data), data)
        Image.new("RGB", (9, 9)).save(path)
        os.utime(path, ns=(0, 0))
        assert "1 image changed after" in error(self.open, root, data)  # its size

    def test_a_set_with_fewer_training_images_keeps_the_other_vectors(self, root, tmp_path, capsys):
        whole = self.photos(tmp_path / "photos")
        few = datasets.load(str(tmp_path / "photos"), train_images=2)
        assert [example.image_id for example in few.examples] == [f"{i}.png" for i in (0, 1, 4, 5, 6, 7, 8, 9)]
        assert len(self.make(root, few)) == 8
        assert "lacks 2 images (the first is 2.png)" in error(self.open, root, whole)
        assert len(self.make(root, whole)) == 10
        assert len(self.make(root, few)) == 10
        self.assert_right(self.open(root, whole), whole)

    def test_a_stopped_update_leaves_the_old_store_whole(self, root, tmp_path, monkeypatch):
        data = self.photos(tmp_path / "photos")
        vectors = self.make(root, data).read(["3.png", "5.png"])
        for i in range(5):
            self.paint(tmp_path / "photos" / f"{i}.png", 100 + i)
        with monkeypatch.context() as patch:
            TestInterruption().stop_at(patch, "4.png")
            with pytest.raises(TestInterruption.Stopped):
                self.make(root, data)
        assert torch.equal(FeatureStore(features.folder(root, data, "tiny")).read(["5.png"]), vectors[1:])
        read, true = [], CaptionSet.photo
        with monkeypatch.context() as patch:
            patch.setattr(CaptionSet, "photo", lambda data, e: read.append(e.image_id) or true(data, e))
            store = self.make(root, data)
        assert read == ["4.png"]  # the first four were noted
        self.assert_right(store, data)

    def test_an_image_that_is_gone_is_named(self, root, tmp_path):
        data = self.photos(tmp_path / "photos")
        self.make(root, data)
        data.examples[1].path.unlink()
        said = error(self.open, root, data)
        assert f"the image {data.examples[1].path} does not exist; restore it, or delete its captions" in said

    def test_damaged_bytes_are_noticed_and_mended(self, root, tmp_path, capsys):
        data = self.photos(tmp_path / "photos")
        array = self.make(root, data).folder / ARRAY
        content = bytearray(array.read_bytes())
        content[2 * IMAGE] ^= 4
        array.write_bytes(content)
        store = self.open(root, data)
        assert len(store.read(["1.png", "3.png"])) == 2
        for _ in range(2):  # a refusal is not forgotten
            assert "again with --verify, which" in error(store.read, ["1.png", "2.png"])
        self.make(root, data, progress=True, verify=True)
        assert "1 damaged; computing 1 of 10 images" in capsys.readouterr().out
        self.assert_right(self.open(root, data), data)


def test_a_bad_image_is_named_and_what_was_done_is_kept(tmp_path):
    examples = []
    for example in DATA.examples[:6]:
        path = tmp_path / f"{example.image_id}.jpg"
        DATA.photo(example).save(path)
        examples.append(dataclasses.replace(example, path=path))
    data, good = CaptionSet("photographs", tuple(examples)), path.read_bytes()
    path.write_bytes(good[:900])
    assert f"{path} is truncated or damaged" in error(make, tmp_path / "store", data)
    assert (tmp_path / "store" / ARRAY).stat().st_size == 4 * IMAGE
    path.write_bytes(good)
    assert len(make(tmp_path / "store", data)) == 6


class TestDisk:
    def test_too_small_from_the_start(self, tmp_path, monkeypatch):
        usage = namedtuple("usage", "total used free")
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 0, 13 * IMAGE - 1))
        assert "GB free, but the features need 0.0 GB; free some space" in error(make, tmp_path)
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
    assert "gives values beyond float16 in the batch that starts with image train-0" in error(
        make, tmp_path, DATA, encoder
    )
    assert len(FeatureStore(tmp_path)) == 0


def test_pixels_in_order_and_kept():
    read = []
    data = dataclasses.replace(DATA, draw=lambda example: read.append(example.image_id) or tiny.draw(example))
    pixels = Pixels(data, cache_bytes=2 * 3 * 224 * 224)
    first = pixels.read(["dev-1", "train-2", "train-3"])
    assert first.dtype == torch.uint8
    assert first.shape == (3, 3, 224, 224)
    assert torch.equal(first[1], images.to_tensor(tiny.draw(DATA.examples[2])))
    assert torch.equal(pixels.read(["train-3", "dev-1"]), first[[2, 0]])
    assert read == ["dev-1", "train-2", "train-3", "train-3"]  # there was room for two


def test_reading_ahead_gives_every_item_in_order_and_an_error():
    for count in (0, 2, 3, 20):
        assert list(read_ahead(lambda i: i * i, list(range(count)))) == [i * i for i in range(count)]
    with pytest.raises(ZeroDivisionError):
        list(read_ahead(lambda i: 1 / (3 - i), list(range(9))))
