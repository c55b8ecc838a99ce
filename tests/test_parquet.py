"""Hugging Face's parquet files: written by pyarrow as `datasets` writes them, read back, and bad ones refused in one line."""

import io
import sys

import pytest
from PIL import Image
from test_layouts import found, official, refused

from satlib import cli
from satlib.data import features, folder
from satlib.data.datasets import load

COLOURS = ("red", "lime", "blue", "black", "white", "navy")


@pytest.fixture
def pq():
    return pytest.importorskip("pyarrow.parquet")


def picture(colour):
    content = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(content, format="PNG")
    return content.getvalue()


def write(pq, path, colours, paths=None, per_group=2, **columns):
    """Rows of pictures of one colour each; two rows a group."""
    import pyarrow

    path.parent.mkdir(parents=True, exist_ok=True)
    images = [{"bytes": picture(colour), "path": paths and paths[n]} for n, colour in enumerate(colours)]
    kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    table = {"image": pyarrow.array(images, kind), **{name: pyarrow.array(values) for name, values in columns.items()}}
    pq.write_table(pyarrow.table(table), path, row_group_size=per_group)


def test_splits_by_the_files_names(pq, tmp_path):
    """With a number in each column name, a long row group, and the names of the photographs; any image is the row's own."""
    parts = {
        "train-00000-of-00002": COLOURS[:3],
        "train-00001-of-00002": COLOURS[3:4],
        "validation-0": COLOURS[4:5],
        "test-0": COLOURS[5:],
    }
    for name, colours in parts.items():
        said = {f"caption_{k}": [f"{colour} {k}" for colour in colours] for k in range(2)}
        write(
            pq,
            tmp_path / "data" / f"{name}.parquet",
            colours,
            [f"{colour}.png" for colour in colours],
            **said,
            width=[8] * len(colours),
        )
    data = load(str(tmp_path))
    assert found(tmp_path) == {
        f"{colour}.png": ("train" if n < 4 else ("dev", "test")[n - 4], (f"{colour} 0", f"{colour} 1"))
        for n, colour in enumerate(COLOURS)
    }
    for colour in reversed(COLOURS):
        assert data.image(f"{colour}.png").tobytes() == Image.new("RGB", (8, 6), colour).tobytes()
    assert features.home_of(data) == str(tmp_path)
    assert cli.main(["data", "check", str(tmp_path)]) == 0


@pytest.mark.parametrize("paths", [None, ["image.png"] * 4])
def test_rows_of_one_photograph_come_together(pq, tmp_path, monkeypatch, paths):
    """Without names, or with one name for all, by their bytes; a file of one split decides nothing, so the hash does."""
    splits = iter(("train", "dev", "test"))
    monkeypatch.setattr(folder, "by_hash", lambda name: next(splits))
    colours, said = ["red", "lime", "red", "blue"], ["red 1", "lime", "red 2", "blue"]
    write(pq, tmp_path / "train.parquet", colours, paths, text=said)
    data = load(str(tmp_path / "train.parquet"))
    assert [(one.split, one.references) for one in data.examples] == [
        ("train", ("red 1", "red 2")),
        ("dev", ("lime",)),
        ("test", ("blue",)),
    ]
    assert data.photo(data.examples[0]).getpixel((0, 0)) == (255, 0, 0)


def test_a_column_says_splits_and_another_the_names(pq, tmp_path):
    """As in Flickr30k on the Hub, which is one file called test; lists of captions, and other texts beside them."""
    names = [*official("train", 1), *official("dev", 1), *official("test", 1)]
    write(
        pq, tmp_path / "TEST" / "0000.parquet", COLOURS[:3], filename=names, caption=[[f"dog {n}", "A dog"] for n in range(3)],
        sentids=[["1"]] * 3, split=["train", "val", "test"],
    )  # fmt: skip
    assert found(tmp_path) == {
        name: (split, (f"dog {n}", "A dog"))
        for n, (name, split) in enumerate(zip(names, ("train", "dev", "test"), strict=True))
    }


def test_flickr8k_in_one_file_has_its_official_splits(pq, tmp_path):
    names = [*official("test", 1), *official("train", 1), *official("dev", 1)]
    write(pq, tmp_path / "default" / "train" / "0000.parquet", COLOURS[:3], names, text=["A dog"] * 3)
    assert {name: split for name, (split, _) in found(tmp_path).items()} == dict(
        zip(names, ("test", "train", "dev"), strict=True)
    )


def test_bad_ones(pq, tmp_path):
    import pyarrow

    path = tmp_path / "train.parquet"
    path.write_bytes(b"PAR1, and then nothing")
    refused(tmp_path, str(path), "damaged or no parquet file", "download it again")
    pq.write_table(pyarrow.table({"text": ["a dog"], "url": ["https://example.com"]}), path)
    refused(tmp_path, str(path), "has no column of images", "it has text, url")
    write(pq, path, ["red"], ["a.png"], width=[8])
    refused(tmp_path, "row 1 of group 1", "one column must hold the caption")
    write(pq, path, ["red"], text=[" "])
    refused(tmp_path, "row 1 of group 1: the caption contains no word")


def test_an_image_that_is_not_in_the_file(pq, tmp_path, capsys):
    import pyarrow

    kind = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    images = pyarrow.array([{"bytes": None, "path": f"{n}.png"} for n in range(3)], kind)
    pq.write_table(
        pyarrow.table({"image": images, "text": ["A dog"] * 3, "split": ["train", "dev", "test"]}),
        tmp_path / "a.parquet",
    )
    assert cli.main(["data", "check", str(tmp_path)]) == 1
    assert (
        "a.parquet, 0.png: the image is not in the file; download the data set with its images"
        in capsys.readouterr().out
    )


def test_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "train.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(
        tmp_path, str(tmp_path / "train.parquet"), "is a parquet file; to read those, run: pip install 'satlib[hub]'"
    )
