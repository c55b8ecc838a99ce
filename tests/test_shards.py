"""A set comes back out of its shards as it went in, streams in an order that only seed and epoch decide, and trains."""

import io
import json
import shutil
import sys
import tarfile
from collections import Counter

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from serving import Server

from satlib import cli
from satlib.data import datasets, folder, images, scenes, shards
from satlib.data.datasets import CaptionSet, Example
from satlib.data.features import Pixels
from satlib.data.shards import StreamedBatches
from satlib.data.text import END
from satlib.errors import SatlibError
from satlib.training import loop
from satlib.training.distributed import Ranks


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    """A folder of shards: 20 images of 3 captions in three shards of training, 6 of dev, 4 of test."""
    folder = tmp_path_factory.mktemp("shards")
    shards.write(tiny.data(), folder, images_per_shard=8, progress=False)
    return folder


@pytest.fixture
def copied(some, tmp_path):
    return shutil.copytree(some, tmp_path / "my shards: ä %20")


def stream(folder, **more):
    data = datasets.load(str(folder))
    values = {"max_length": 40, "batch_size": 8, "seed": 3, "buffer": 10} | more
    return StreamedBatches(data, data.vocabulary(1000, 1), **values)


def rows(batches):
    return [
        (image_id, tuple(row))
        for batch in batches
        for image_id, row in zip(batch.image_ids, batch.captions.tolist(), strict=True)
    ]


def train(folder, data, *changes):
    chosen = tiny.the_recipe("data.buffer=10", *changes)
    return loop.train(chosen, data, Pixels(data), folder, progress=False)


class TestWriting:
    def test_scenes_come_back_to_the_pixel(self, tmp_path):
        data = scenes.load(train=7, dev=2, test=3)
        shards.write(data, tmp_path, images_per_shard=3, progress=False)
        found = datasets.load(str(tmp_path))
        assert (found.name, len(found)) == ("scenes", 12)
        assert len(list(tmp_path.glob("train-*.tar"))) == 3
        read, pixels = {example.image_id: example for example in found.read_all()}, Pixels(found)
        assert [e.image_id for e in found.split("dev")] == [e.image_id for e in data.split("dev")]
        assert len(read) == 12
        for example in data.examples:
            one = read[example.image_id]
            assert (one.split, one.references) == (example.split, example.references)
            assert np.array_equal(np.asarray(found.photo(one)), np.asarray(data.photo(example)))
            assert torch.equal(pixels.read([one.image_id])[0], images.to_tensor(images.square(data.photo(example))))

    def test_the_index_knows_what_a_stream_cannot(self, some):
        index = json.loads((some / shards.INDEX).read_text())
        words = [shards.tokenise(caption) for each in tiny.data().split("train") for caption in each.references]
        assert index["lengths"] == {str(n): count for n, count in Counter(map(len, words)).items()}
        assert index["words"] == Counter(word for caption in words for word in caption)
        assert [shard["images"] for shard in index["splits"]["train"]] == [8, 8, 4]
        assert datasets.load(str(some)).vocabulary(9, 1).words[:4] == ("<end>", "<unknown>", "a", "is")

    def test_files_keep_their_bytes_whatever_they_are_called(self, tmp_path):
        photos, rng = tmp_path / "photos", np.random.default_rng(0)
        names = ["a.jpg", "a.jpeg", "b.c/d.1.JPG", "b_c/d_1.jpg", "ä ö.webp", "__x__/y.png"]
        for name in names:
            (photos / name).parent.mkdir(parents=True, exist_ok=True)
            kind = {".webp": "WEBP", ".png": "PNG"}.get((photos / name).suffix, "JPEG")
            Image.fromarray(rng.integers(0, 256, (40, 60, 3), np.uint8)).save(photos / name, format=kind)
        lines = [f'{name},A dog number {i}.,train\n{name},"Hm, a cat",train' for i, name in enumerate(names)]
        (photos / "captions.csv").write_text("\n".join(["image,caption,split", *lines]), encoding="utf-8")
        data = datasets.load(str(photos))
        shards.write(data, tmp_path / "shards", progress=False)
        read = {e.image_id: e.references for e in datasets.load(str(tmp_path / "shards")).read_all()}
        assert read == {e.image_id: e.references for e in data.examples}
        for picture in read:
            assert picture.content == (photos / picture).read_bytes()

    def test_the_webdataset_library_reads_them_alone(self, some):
        webdataset = pytest.importorskip("webdataset")
        urls = [str(path) for path in sorted(some.glob("train-*.tar"))]
        samples = list(webdataset.WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("png", "json"))
        data = tiny.data()
        pictures = {example.image_id: np.asarray(data.photo(example)) for example in data.split("train")}
        assert {about["key"] for _, about in samples} == pictures.keys()
        assert all(np.array_equal(np.asarray(picture), pictures[about["key"]]) for picture, about in samples)

    def test_the_same_set_gives_the_same_bytes_and_no_second_one_in_its_place(self, some, tmp_path):
        shards.write(tiny.data(), tmp_path, images_per_shard=8, progress=False)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
            path.name: path.read_bytes() for path in some.iterdir()
        }
        with pytest.raises(SatlibError, match="already exists"):
            shards.write(tiny.data(), tmp_path, progress=False)

    def test_by_the_command_line(self, tmp_path, capsys):
        folder.save(scenes.load(0, 3, 0), tmp_path / "scenes")
        arguments = ["data", "shards", str(tmp_path / "scenes"), str(tmp_path / "shards"), "--images-per-shard", "2"]
        assert cli.main(arguments) == 0
        assert "dev           3 images" in capsys.readouterr().out
        assert len(datasets.load(str(tmp_path / "shards")).split("dev")) == 3
        assert cli.main(["data", "check", str(tmp_path / "shards")]) == 1
        said = capsys.readouterr().out
        assert "3 read, 0 missing, 0 unreadable\nnothing to train on in train: " in said
        assert cli.main([*arguments[:3], str(tmp_path / "other"), "--split", "train"]) == 2
        assert "no images in train" in capsys.readouterr().err


class TestStreaming:
    def test_every_caption_exactly_once_and_one_length_a_batch(self, some):
        batches = stream(some)
        vocabulary = batches.vocabulary
        wanted = [
            (example.image_id, (*vocabulary.encode(caption), END))
            for example in tiny.data().split("train")
            for caption in example.references
        ]
        for epoch in (0, 1):
            found = list(batches.epoch(epoch))
            assert Counter(rows(found)) == Counter(wanted)
            assert len(found) == len(batches)
            assert all(batch.captions.shape == (len(batch.image_ids), batch.captions.shape[1]) for batch in found)

    def test_seed_and_epoch_alone_decide_the_order(self, some):
        first = rows(stream(some).epoch(2))
        assert rows(stream(some).epoch(2)) == first
        assert rows(stream(some).epoch(3)) != first
        assert rows(stream(some, seed=4).epoch(2)) != first

    def test_what_is_left_out(self, some):
        batches = stream(some, max_length=5)
        assert {len(caption) for _, caption in rows(batches.epoch(0))} == {6}
        assert len(list(batches.epoch(0))) == len(batches)
        batches = stream(some)
        batches.vocabulary = datasets.load(str(some)).vocabulary(3, 1)  # "a" alone
        assert len(rows(batches.epoch(0))) == 60
        batches.vocabulary = type(batches.vocabulary)(["white"])
        assert len(rows(batches.epoch(0))) == 15
        assert len(list(batches.epoch(0))) <= len(batches)

    def test_two_ranks_have_equal_work_and_their_own_rows(self, some):
        batches, shares = list(stream(some).epoch(0)), []
        for rank in range(2):
            shares.append([Ranks(rank, 2).share(batch) for batch in stream(some).epoch(0)])
        assert [share.captions.shape for share in shares[0]] == [share.captions.shape for share in shares[1]]
        assert Counter(rows(shares[0]) + rows(shares[1])) == Counter(rows(batches))

    def test_memory_is_that_of_the_buffer_however_large_the_set(self, tmp_path):
        still = Image.new("RGB", (8, 8))
        examples = tuple(
            Example(f"{i}", "train", (f"a dog {'runs ' * (i % 4)}", f"the {'small ' * (i % 3)}cat")) for i in range(240)
        )
        shards.write(
            CaptionSet("still", examples, lambda example: still), tmp_path, images_per_shard=20, progress=False
        )
        batches, alive = stream(tmp_path, batch_size=4, buffer=12), []

        class Counted(shards.StreamedImage):
            count = 0

            def __init__(self, *arguments):
                Counted.count += 1

            def __del__(self):
                Counted.count -= 1

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shards, "StreamedImage", Counted)
            for _ in batches.epoch(0):
                alive.append(Counted.count)
        # The buffer, less than a batch of each length, one, what is read.
        assert 12 / 2 <= max(alive) <= 12 + 7 * 3 + 4 + 2

    def test_an_address_serves_as_well(self, some):
        with Server(some) as server:
            assert rows(stream(server.address).epoch(0)) == rows(stream(some).epoch(0))
            with pytest.raises(SatlibError, match="HTTP 404"):
                datasets.load(f"{server.address}/nowhere")

    def test_a_command_is_not_run(self, tmp_path):
        with pytest.raises(SatlibError, match="neither a data set"):
            datasets.load(f"pipe:touch {tmp_path}/run; cat {{}}", tmp_path)
        assert list(tmp_path.iterdir()) == []


class TestTraining:
    def test_a_frozen_encoder_sees_every_image_as_it_does_elsewhere(self, some, tmp_path):
        data = datasets.load(str(some))
        captioner = train(tmp_path, data, "training.epochs=1")
        assert not any(parameter.requires_grad for parameter in captioner.encoder.parameters())
        example = data.split("dev")[0]
        pixels = images.to_tensor(tiny.draw(Example(example.image_id, "dev", ())))
        assert torch.equal(Pixels(data).read([example.image_id])[0], pixels)

    def test_train_and_evaluate_by_the_command_line(self, some, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("PATH", "")  # without Java: METEOR takes longer than all of this
        (tmp_path / "tiny.toml").write_text(tiny.the_recipe("training.epochs=1").to_toml())
        recipe, run = str(tmp_path / "tiny.toml"), str(tmp_path / "run")
        where = ["--set", f"data.name={some}"]
        assert cli.main(["features", recipe, *where]) == 0
        assert "nothing to compute" in capsys.readouterr().out
        assert cli.main(["train", recipe, *where, "--out", run, "--device", "cpu"]) == 0
        assert cli.main(["evaluate", run, "--device", "cpu"]) == 0
        assert "4 images of tiny test" in capsys.readouterr().out
        assert cli.main(["evaluate", run, "--split", "train", "--device", "cpu"]) == 2
        assert "are a stream, which is read whole" in capsys.readouterr().err

    @pytest.mark.parametrize("change", ["data.train_images=5", "objective.maximise=reward", "training.batches=images"])
    def test_what_a_stream_cannot_do(self, change, some, tmp_path):
        with pytest.raises(SatlibError, match=r"are a stream, which is read"):
            train(tmp_path, datasets.load(str(some)), change)

    def test_other_shards_are_not_gone_on_with(self, some, tmp_path):
        train(tmp_path / "run", datasets.load(str(some)), "training.epochs=1")
        shards.write(tiny.data(), tmp_path / "other", images_per_shard=7, progress=False)
        with pytest.raises(SatlibError, match="other training captions"):
            train(tmp_path / "run", datasets.load(str(tmp_path / "other")), "training.epochs=2")


class TestErrors:
    def test_no_training_images(self, tmp_path):
        shards.write(tiny.data(), tmp_path, ["dev", "test"], progress=False)
        data = datasets.load(str(tmp_path))
        assert (len(data), len(data.split("dev")), len(data.split("test"))) == (10, 6, 4)
        with pytest.raises(SatlibError, match="only shards of dev, test"):
            data.vocabulary(1000, 1)

    def test_no_index(self, copied, tmp_path):
        (copied / shards.INDEX).unlink()
        with pytest.raises(SatlibError, match=r"has no shards\.json.*satlib data shards DATA"):
            datasets.load(str(copied))

    @pytest.mark.parametrize(
        "change", [("train-000001.tar", "../x.tar"), ("satlib shards 1", "satlib shards 2"), ("{", "")]
    )
    def test_a_broken_index(self, change, copied):
        text = (copied / shards.INDEX).read_text()
        (copied / shards.INDEX).write_text(text.replace(*change))
        with pytest.raises(SatlibError, match="write the shards again"):
            datasets.load(str(copied))

    def test_a_missing_or_shortened_shard_is_noticed_before_training(self, copied):
        shard = copied / "train-000001.tar"
        shard.write_bytes(shard.read_bytes()[:5000])
        with pytest.raises(SatlibError, match=r"train-000001\.tar has the wrong size.*copy it again"):
            datasets.load(str(copied))
        shard.unlink()
        with pytest.raises(SatlibError, match=r"train-000001\.tar is missing"):
            datasets.load(str(copied))

    @pytest.mark.parametrize("cut", ["within a member", "between two images"])
    def test_a_shard_that_is_cut_while_it_is_read(self, cut, copied):
        batches = stream(copied)  # which saw it whole
        shard = copied / "train-000001.tar"
        with tarfile.open(shard) as tar:
            length = 700 if cut == "within a member" else tar.getmembers()[4].offset
        shard.write_bytes(shard.read_bytes()[:length])
        with pytest.raises(SatlibError, match=r"train-000001\.tar.*copy it again"):
            list(batches.epoch(0))
        shard.unlink()
        with pytest.raises(SatlibError, match=r"train-000001\.tar.*No such file"):
            list(batches.epoch(0))

    def test_broken_captions_and_a_broken_picture_are_named(self, copied):
        batches, shard = stream(copied), copied / "train-000002.tar"
        self.write(shard, {"picture.png": b"", "picture.json": b'{"key": "a", "captions": []}'})
        with pytest.raises(SatlibError, match=r"JSON file of picture in .*train-000002\.tar is not .*copy it again"):
            list(batches.epoch(0))
        self.write(shard, {"picture.png": b"", "picture.json": b'{"key": "a", "captions": ["!"]}'})
        with pytest.raises(SatlibError, match=r"picture in .*no word"):
            list(batches.epoch(0))
        self.write(shard, {"picture.png": b"GIF", "picture.json": b'{"key": "a", "captions": ["a dog"]}'})
        batches.shards.index.splits["train"][2].images = 1
        (broken,) = (batch for batch in batches.epoch(0) if "a" in batch.image_ids)
        with pytest.raises(SatlibError, match=r"picture in .*train-000002\.tar is not an image"):
            Pixels(batches.shards).read(broken.image_ids)

    def write(self, shard, members):
        with tarfile.open(shard, "w") as tar:
            for name, content in members.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))

    def test_no_webdataset(self, some, monkeypatch):
        monkeypatch.setitem(sys.modules, "webdataset", None)
        with pytest.raises(SatlibError, match=r"webdataset.*pip install 'satlib\[stream\]'"):
            datasets.load(str(some))

    def test_an_image_that_is_gone_is_named(self, tmp_path):
        data = CaptionSet("gone", (Example("a.jpg", "train", ("a dog",), tmp_path / "a.jpg"),))
        with pytest.raises(SatlibError, match=r"a\.jpg.*satlib data check"):
            shards.write(data, tmp_path / "shards", progress=False)
        assert not list((tmp_path / "shards").iterdir())
