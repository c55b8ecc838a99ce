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
    encoder = encoder or encoders.create("tiny")
    return extract(data, encoder, folder, batch_size=4, progress=False)


def check(folder, data, encoder="tiny"):
    manifest = training_features._manifest(data, encoders.create(encoder))
    FeatureStore(folder / "store").check(manifest, data.examples)


@pytest.fixture
def photographs(tmp_path):
    """An own folder of six photographs."""
    place = tmp_path / "mine"
    place.mkdir()
    rows = ["image,caption,split"]
    for number, split in enumerate(("train", "train", "train", "dev", "dev", "test")):
        # Darker and lighter reds: no two photographs are the same.
        photo = Image.new("RGB", (20, 10), (40 * number, 0, 0))
        photo.save(place / f"{number}.png")
        rows.append(f"{number}.png,a dog,{split}")
    (place / "captions.csv").write_text("\n".join(rows))
    return place


def counting(monkeypatch):
    """A list that grows by the images whose pixels are read."""
    read = Pixels.read
    seen = []

    def counted(self, ids):
        seen.extend(ids)
        return read(self, ids)

    monkeypatch.setattr(Pixels, "read", counted)
    return seen


def test_it_holds_what_the_encoder_gives(tmp_path):
    store = make(tmp_path)
    encoder = encoders.create("tiny")
    assert len(store) == 13
    assert store.grid == (2, 2)
    assert store.dim == tiny.DIM

    # In another order than the store's, and one of them twice.
    chosen = ["dev-1", "train-8", "train-0", "dev-1"]
    by_id = {example.image_id: example for example in DATA.examples}
    for row, image_id in zip(store.read(chosen), chosen, strict=True):
        pixels = images.to_tensor(DATA.photo(by_id[image_id])).unsqueeze(0)
        with torch.inference_mode():
            direct = encoder(pixels)[0]
        # Half a unit in float16's last place.
        torch.testing.assert_close(row, direct, rtol=2**-11, atol=1e-6)


def test_a_stopped_extraction_resumes_with_the_same_bytes(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    make(whole)

    encoder = encoders.create("tiny")
    batches = []

    def stop(*_):
        batches.append(1)
        if len(batches) == 3:
            raise KeyboardInterrupt

    handle = encoder.register_forward_hook(stop)
    with pytest.raises(KeyboardInterrupt):
        make(stopped, encoder=encoder)
    handle.remove()

    # Two batches of four were written before it stopped; a kill may cut off a line.
    assert len(FeatureStore(stopped)) == 8
    with open(stopped / features.JOURNAL, "a", encoding="utf-8") as journal:
        journal.write('["train-8",[8,')
    assert len(FeatureStore(stopped)) == 8
    seen = counting(monkeypatch)
    make(stopped, encoder=encoder)
    assert seen == IMAGE_IDS[8:]
    for name in (features.ARRAY, features.MANIFEST):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()
    assert not (stopped / features.JOURNAL).exists()


def test_a_store_of_an_earlier_version_is_gone_on_with(tmp_path, monkeypatch):
    """Its manifest is the same, and says 5; stores before that had other squares."""
    make(tmp_path / "store", DATA.shortened(5))
    manifest = tmp_path / "store" / features.MANIFEST
    written = manifest.read_text()
    manifest.write_text(written.replace("features 6", "features 5"))
    assert len(FeatureStore(tmp_path / "store")) == 9

    seen = counting(monkeypatch)
    store = make(tmp_path / "store")
    assert seen == IMAGE_IDS[5:9]
    assert store.read(IMAGE_IDS).equal(make(tmp_path / "anew").read(IMAGE_IDS))
    # What knows no journal must not go on with it.
    assert "features 6" in manifest.read_text()

    manifest.write_text(written.replace("features 6", "features 4"))
    with pytest.raises(SatlibError, match=r"features 4.* delete .*store and run satlib features"):
        make(tmp_path / "store")


def test_a_journal_belongs_to_its_manifest(tmp_path, monkeypatch):
    """Without one it may be of another encoder, and is not read; nor is what a disk has damaged."""
    store = tmp_path / "store"
    store.mkdir()
    (store / features.JOURNAL).write_text('["dev-1",[0,0,0]]\n')
    save = features.Manifest.save

    def killed(self, folder):
        save(self, folder)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(features.Manifest, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            make(store)
    assert features.read_manifest(store).images == {}

    seen = counting(monkeypatch)
    made = make(store)
    assert seen == IMAGE_IDS
    assert made.read(IMAGE_IDS).equal(make(tmp_path / "anew").read(IMAGE_IDS))

    (store / features.JOURNAL).write_text('["dev-1",[0,0]]\n')
    with pytest.raises(SatlibError, match=r"journal.jsonl is damaged .* delete"):
        make(store)


def test_only_new_and_changed_images_are_computed(photographs, tmp_path, monkeypatch):
    make(tmp_path / "store", datasets.load(str(photographs), train_images=2))

    # One image is changed, and one of training was left out before.
    Image.new("RGB", (20, 10), "white").save(photographs / "3.png")
    os.utime(photographs / "3.png", (1, 1))
    data = datasets.load(str(photographs))
    with pytest.raises(SatlibError, match=r"lacks 2 images, or they have changed \(one is 2.png\)"):
        check(tmp_path, data)

    seen = counting(monkeypatch)
    store = make(tmp_path / "store", data)
    assert seen == ["2.png", "3.png"]
    anew = make(tmp_path / "anew", data)
    assert store.read(["3.png"]).equal(anew.read(["3.png"]))
    check(tmp_path, data)


def test_another_encoder_or_folder_is_refused(photographs, tmp_path, monkeypatch):
    # The same weights by another name.
    monkeypatch.setitem(encoders._BUILDERS, "other", tiny.build)
    data = datasets.load(str(photographs))
    with pytest.raises(SatlibError, match="does not exist; run satlib features"):
        check(tmp_path, data)

    store = tmp_path / "store"
    make(store, data)
    with pytest.raises(SatlibError, match="was made with encoder"):
        check(tmp_path, data, encoder="other")
    with pytest.raises(SatlibError, match="was made with home"):
        check(tmp_path, DATA)
    with pytest.raises(SatlibError, match="was made with weights"):
        make(store, data, encoders.create("tiny", pretrained=False))

    # Cut off while it is read, and before.
    opened = FeatureStore(store)
    os.truncate(store / features.ARRAY, 10)
    with pytest.raises(SatlibError, match="missing or cut off"):
        opened.read(["0.png"])
    with pytest.raises(SatlibError, match="missing or cut off"):
        check(tmp_path, data)


def test_pixels_in_order_and_kept(photographs):
    """As many as have room, of those with files: what is drawn is drawn again."""
    data = datasets.load(str(photographs))
    ids = [example.image_id for example in data.examples[:2]]
    drawn = ["dev-0", "train-1"]
    # Room for one image of 224 x 224 pixels.
    room = 3 * 224 * 224

    for own, names, kept in ((data, ids, ids[:1]), (DATA, drawn, [])):
        pixels = Pixels(own, cache_bytes=room)
        first = pixels.read(names)
        assert first.dtype == torch.uint8
        assert first.shape == (2, 3, 224, 224)
        assert first.flip(0).equal(pixels.read(names[::-1]))
        assert list(pixels._cache) == kept


def test_reading_ahead_gives_every_item_in_order_and_an_error():
    doubled = list(read_ahead(lambda item: item * 2, range(50)))
    assert doubled == list(range(0, 100, 2))
    # An error of the thread that reads is raised where its item is wanted.
    with pytest.raises(ZeroDivisionError):
        list(read_ahead(lambda item: 1 / item, [1, 0, 1]))
