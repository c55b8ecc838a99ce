"""Caption sets on tiny folders made here: what is read, and the one line that each kind of bad input gives."""

import json
from pathlib import Path

import pytest
import refusals
from PIL import Image

from satlib.data import folder
from satlib.data.caption_set import CaptionSet, Example, joined
from satlib.data.check import check
from satlib.data.datasets import data_root, load


def photo(path, colour="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), colour).save(path)


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))


def read(name, root=None, **options):
    """The split and the captions of each image."""
    return {e.image_id: (e.split, e.references) for e in load(str(name), root, **options).examples}


def refused(name, root, *words):
    return refusals.refused(lambda: load(str(name), root), *words)


# --- Flickr8k as its authors distribute it --------------------------------------------------------------------------


IMAGE_IDS = {"train": ["a.jpg", "b.jpg"], "dev": ["c.jpg"], "test": ["d.jpg"]}


@pytest.fixture
def flickr8k(tmp_path):
    base, lines = tmp_path / "flickr8k", []
    for split, image_ids in IMAGE_IDS.items():
        write(
            base / "Flickr8k_text" / f"Flickr_8k.{split}Images.txt",
            "".join(f"{name}\n" for name in image_ids),
        )
        for image_id in image_ids:
            photo(base / "Flicker8k_Dataset" / image_id)
            lines += [
                f"{image_id}#{number}\tA {split} dog number {number} ." for number in range(5)
            ]
    lines += [
        "gone.jpg.1#0\tin no split and without a file",
        "a.jpg#5\tA sixth caption, which is not used .",
    ]
    # with a byte order mark and line ends as Windows writes them
    write(base / "Flickr8k_text" / "Flickr8k.token.txt", "\ufeff" + "\r\n".join(lines) + "\r\n")
    return tmp_path


def test_flickr8k(flickr8k):
    data = load("flickr8k", flickr8k)
    assert data.name == "flickr8k"
    assert {
        split: [example.image_id for example in data.split(split)] for split in IMAGE_IDS
    } == IMAGE_IDS
    assert len(data) == 4  # the file that does not exist is in no split
    first = data.examples[0]
    assert first.references == tuple(f"A train dog number {number} ." for number in range(5))
    assert first.path == flickr8k / "flickr8k" / "Flicker8k_Dataset" / "a.jpg"
    assert data.photo(first).getpixel((0, 0))[0] > 200
    assert load(str(flickr8k / "flickr8k")).examples == data.examples


def test_bad_flickr8k(flickr8k, tmp_path):
    refused("flickr8k", tmp_path / "nowhere", "nowhere", "is missing", "satlib data fetch flickr8k")
    for image_id in ("b.jpg", "d.jpg"):
        (flickr8k / "flickr8k" / "Flicker8k_Dataset" / image_id).unlink()
    refused("flickr8k", flickr8k, "2 images (b.jpg, d.jpg)", "missing from", "satlib data check")
    assert len(load("flickr8k", flickr8k, require_images=False)) == 4
    texts = flickr8k / "flickr8k" / "Flickr8k_text"
    write(texts / "Flickr_8k.devImages.txt", "silent.jpg")
    refused("flickr8k", flickr8k, "1 images (silent.jpg)", "without captions")
    write(texts / "Flickr8k.token.txt", "a.jpg#0\tA dog .\na.jpg without a tab")
    refused("flickr8k", flickr8k, "Flickr8k.token.txt, line 2", "expected IMAGE.jpg#NUMBER")


# --- Karpathy's files: Flickr30k, COCO ------------------------------------------------------------------------------


def karpathy(path, images):
    """images: (filepath, filename, split, captions)."""
    rows = [
        {"filepath": filepath, "filename": name, "split": split, "sentences": [{"raw": text, "tokens": []} for text in captions]}
        for filepath, name, split, captions in images
    ]  # fmt: skip
    write(path, json.dumps({"dataset": "x", "images": rows}))


COCO = [
    ("train2014", "COCO_train2014_1.jpg", "train", ["A cat .\n", "The cat  sits ."]),
    ("val2014", "COCO_val2014_2.jpg", "restval", ["A dog ."]),
    ("val2014", "COCO_val2014_3.jpg", "val", ["A cow .", " . "]),
    ("val2014", "COCO_val2014_4.jpg", "test", ["A bird ."]),
]


@pytest.mark.parametrize(
    "paths",
    [
        [f"{filepath}/{name}" for filepath, name, *_ in COCO],
        # those of 2017 are divided differently and named by their numbers alone
        ["train2017/1.jpg", "val2017/2.jpg", "train2017/3.jpg", "train2017/4.jpg"],
    ],
)
def test_coco_in_karpathys_split(tmp_path, paths):
    karpathy(tmp_path / "coco" / "dataset_coco.json", COCO)
    for path in paths:
        photo(tmp_path / "coco" / path)
    data = load("coco", tmp_path)
    assert load(str(tmp_path / "coco" / "dataset_coco.json"), tmp_path).examples == data.examples
    assert [
        example.path.relative_to(tmp_path / "coco").as_posix() for example in data.examples
    ] == paths
    assert read("coco", tmp_path) == {
        # A newline in a caption breaks METEOR's files.
        "train2014/COCO_train2014_1.jpg": ("train", ("A cat .", "The cat sits .")),
        "val2014/COCO_val2014_2.jpg": ("train", ("A dog .",)),
        "val2014/COCO_val2014_3.jpg": ("dev", ("A cow .",)),  # what has no word is left out
        "val2014/COCO_val2014_4.jpg": ("test", ("A bird .",)),
    }


def test_flickr30k(tmp_path):
    refused("flickr30k", tmp_path, "is missing", "satlib data fetch flickr30k")
    karpathy(
        tmp_path / "flickr30k" / "dataset_flickr30k.json", [("", "1.jpg", "test", ["A dog ."])]
    )
    photo(tmp_path / "flickr30k" / "flickr30k-images" / "1.jpg")
    assert read("flickr30k", tmp_path) == {"1.jpg": ("test", ("A dog .",))}


def test_bad_karpathy_files(tmp_path):
    path = tmp_path / "dataset_x.json"
    write(path, '{"images": [')
    refused(path, tmp_path, "dataset_x.json")
    for images, words in [
        ([], "no images with captions"),
        ([("", "a.jpg", "extra", [])], "'extra'"),
        ([("", "a.jpg", "train", ["."])], "without captions"),
    ]:
        karpathy(path, images)
        refused(path, tmp_path, words)


# --- Your own folder ----------------------------------------------------------------------------------------------


def test_own_folder_by_csv(tmp_path):
    rows = 'Image,caption,split\nx/a.jpg,"A dog, running",train\n.\\x\\a.jpg,Dog!,train\nb.png,A cat,validation\nc.png,Ein Kätzchen,test\n'
    write(tmp_path / "mine" / "captions.csv", rows)
    for name in ("x/a.jpg", "b.png", "c.png"):
        photo(tmp_path / "mine" / name)
    assert load(str(tmp_path / "mine")).name == "mine"
    assert read(tmp_path / "mine") == read("mine", tmp_path) == {
        "x/a.jpg": ("train", ("A dog, running", "Dog!")),
        "b.png": ("dev", ("A cat",)),
        "c.png": ("test", ("Ein Kätzchen",)),
    }  # fmt: skip
    refused("yours", tmp_path, "'yours' is neither a data set", "nor a folder")
    refused("FOLDER", tmp_path, "--set data.name=PATH")


def test_what_a_table_says_is_not_lost(tmp_path):
    """Folders that name splits, lists of captions written as text, more than five captions, a line break in one."""
    seven = "".join(f"val/b.jpg,cat {number}\n" for number in range(7))
    rows = f"""train/a.jpg,"['a dog', 'it is [old]']"\n{seven}test/c.jpg,"[A] bird\non it"\n"""
    write(tmp_path / "captions.csv", "image,caption\n" + rows)
    assert read(tmp_path, require_images=False) == {
        "train/a.jpg": ("train", ("a dog", "it is [old]")),
        "val/b.jpg": ("dev", tuple(f"cat {number}" for number in range(7))),
        "test/c.jpg": ("test", ("[A] bird on it",)),
    }


def test_several_sets_are_one(tmp_path):
    """Each keeps its splits and its photographs, and is cut on its own; two images of one name are refused."""
    for name, colour, images in (
        ("one", "red", "abc"),
        ("two", "blue", "de"),
        ("three", "red", "b"),
    ):
        rows = [f"{image}.png,a thing,{'dev' if image == 'b' else 'train'}\n" for image in images]
        write(tmp_path / name / "captions.csv", "image,caption,split\n" + "".join(rows))
        for image in images:
            photo(tmp_path / name / f"{image}.png", colour)
    both = load("one+two", tmp_path, train_images=1)
    assert both.name == "one+two"
    assert both.home == tmp_path
    assert [(e.image_id, e.split) for e in both.examples] == [
        ("a.png", "train"),
        ("b.png", "dev"),
        ("d.png", "train"),
    ]
    assert [both.photo(e).getpixel((0, 0)) for e in both.split("train")] == [
        (255, 0, 0),
        (0, 0, 255),
    ]
    refused("one+three", tmp_path, "one and three", "b.png")
    drawn = [
        CaptionSet(
            c, (Example(c + ".png", "train", (c,)),), lambda _, c=c: Image.new("RGB", (1, 1), c)
        )
        for c in ("red", "blue")
    ]
    assert [joined(drawn).photo(e).getpixel((0, 0)) for e in joined(drawn).examples] == [
        (255, 0, 0),
        (0, 0, 255),
    ]


def test_kaggles_flickr8k_has_the_official_splits(tmp_path):
    lines = (
        line.split("\t")
        for line in Path(folder._SPLITS_8K).read_text(encoding="utf-8").splitlines()
    )
    official = {split: numbers.split(" ")[0] + "_x.jpg" for split, numbers in lines}
    texts = ['A dog, running with "care" .', '"A ""big"" dog, running ."', "A dog ."]
    rows = zip((official[split] for split in ("train", "dev", "test")), texts, strict=True)
    write(
        tmp_path / "captions.txt",
        "image,caption\n" + "".join(f"{name},{text}\n" for name, text in rows),
    )
    for name in official.values():
        photo(tmp_path / "Images" / name)
    assert list(read(tmp_path).values()) == [
        ("train", ('A dog, running with "care" .',)),
        ("dev", ('A "big" dog, running .',)),
        ("test", ("A dog .",)),
    ]


@pytest.mark.parametrize("form", ["parquet", "imagefolder"])
def test_what_hugging_faces_library_reads(tmp_path, form):
    datasets = pytest.importorskip("datasets", reason="needs the extra [hub]")
    place, splits = tmp_path / "set", {"train": "red", "validation": "blue", "test": "green"}
    for split, colour in splits.items():
        photo(place / split / "a.png", colour)
        if form == "parquet":
            image = {"bytes": (place / split / "a.png").read_bytes(), "path": None}
            rows = {
                "image": [image, image],
                "caption": [f"A {colour} dog", "A dog"],
            }  # a photograph in two rows
            table = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
            table.to_parquet(place / f"{split}-00000-of-00001.parquet")
            (place / split / "a.png").unlink()
        else:
            write(
                place / split / "metadata.csv",
                f"file_name,text_1,text_2\na.png,A {colour} dog,A dog\n",
            )
    data = load(str(place))
    captions = {e.split: e.references for e in data.examples}
    assert captions == {
        "train": ("A red dog", "A dog"),
        "dev": ("A blue dog", "A dog"),
        "test": ("A green dog", "A dog"),
    }
    assert data.photo(data.split("dev")[0]).getpixel((0, 0)) == (0, 0, 255)


def test_captions_beside_photographs(tmp_path):
    (tmp_path / "train").mkdir()
    for name in ("a", "b"):
        photo(tmp_path / "train" / f"{name}.png")
        write(tmp_path / "train" / f"{name}.txt", f"A dog {name}\n\nA cat\n")
    assert read(tmp_path) == {
        f"train/{name}.png": ("train", (f"A dog {name}", "A cat")) for name in ("a", "b")
    }
    photo(tmp_path / "train" / "c.jpg")
    refused(tmp_path, tmp_path, "1 images (train/c.jpg)", "without captions")


def test_split_by_hash_is_stable_and_about_8_1_1(tmp_path):
    splits = {f"{number}.jpg": folder.by_hash(f"{number}.jpg") for number in range(2000)}
    assert 1500 < [*splits.values()].count("train") < 1700  # 1,600 expected, standard deviation 18
    assert 140 < [*splits.values()].count("dev") < 260
    # By sha256sum, the first 16 digits of the digests: 3938d9535f5726b4, b49c8408bccef123, b3ba14f579032f9b.
    assert (0x3938D9535F5726B4 % 10, 0xB49C8408BCCEF123 % 10, 0xB3BA14F579032F9B % 10) == (8, 1, 1)
    assert [splits[image_id] for image_id in ("0.jpg", "22.jpg", "23.jpg")] == [
        "train",
        "test",
        "test",
    ]
    write(
        tmp_path / "captions.csv",
        "image,caption\n" + "".join(f"{image_id},A dog\n" for image_id in splits),
    )
    assert {
        image_id: split for image_id, (split, _) in read(tmp_path, require_images=False).items()
    } == splits


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a.jpg,A dog\nb.jpg,A cat\n", ["first line must name"]),
        ("image,caption\na.jpg,.\n", ["line 2: 1 rows lack"]),
        ("image,caption,split\na.jpg,A dog, running,train\n", ["line 2", "double quotes"]),
        ('image,caption\na.jpg,"A dog\n', ["line", "quotation marks"]),
        ("image,caption,split\na.jpg,A dog,train\na.jpg,A dog,test\n", ["line 3", "train", "test"]),
        ("image,caption\na.jpg,Ein Kätzchen\n", ["captions.csv", "not UTF-8", "line 2"]),
        ("image,caption\na.jpg,nan\nb.jpg,A cat\nc.jpg,\n", ["line 2, 4: 2 rows lack"]),
        ('image,caption\na.jpg,"A dog\nb.jpg,A cat\nc.jpg,12"\n', ["mark in line 2", "to line 4"]),
        (
            "image,caption\ntrain/a.jpg,A dog\nb.jpg,A cat\n",
            ["train/a.jpg is", "b.jpg is not", "column split"],
        ),
    ],
)
def test_bad_folders(tmp_path, rows, words):
    write(tmp_path / "captions.csv", rows, encoding="latin-1")
    refused(tmp_path, tmp_path, *words)


# --- The root, the number of scenes, the check ------------------------------------------------------------------------


def test_data_root(monkeypatch):
    monkeypatch.delenv("SATLIB_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("SATLIB_DATA", "/somewhere")
    assert data_root() == Path("/somewhere")
    assert data_root("~/else") == Path.home() / "else"


def test_check_counts_by_hand(tmp_path, capsys):
    rows = [
        "a.jpg,A dog runs,train",
        "a.jpg,A dog,train",
        "b.jpg,A cat runs !,dev",
        "c.jpg,Dog,test",
    ]
    write(tmp_path / "captions.csv", "\n".join(["image,caption,split", *rows]))
    photo(tmp_path / "a.jpg")
    write(tmp_path / "c.jpg", "not an image")
    photo(tmp_path / "d.JPG")
    assert not check(str(tmp_path))
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert ["train", "1", "2", "2-2", "0", "2-3", "(2.5)", "100.00%"] in rows
    assert ["dev", "1", "1", "1-1", "0", "3-3", "(3.0)", "66.67%"] in rows  # a, runs; not cat
    # a, dog, runs and the two special words
    for part in (
        "K = 5",
        "1 read, 2 missing or unreadable; 1 more without captions",
        "b.jpg does not exist",
        "the image",
        "c.jpg",
    ):
        assert part in out
    write(tmp_path / "captions.csv", "image,caption,split\na.jpg,A dog,valid\n")
    assert not check(str(tmp_path))
    assert "no images in train: satlib train needs" in capsys.readouterr().out


def test_check_names_what_would_go_wrong_in_silence(tmp_path, capsys):
    long = " and ".join(["a dog"] * 20)  # 59 words
    rows = [f"train/a.png,{long}", "val/b.png,a dog", "test/c.png,a cat", "train/d.png,a dark cat"]
    write(tmp_path / "captions.csv", "\n".join(["image,caption", *rows]))
    for name, colour in (
        ("train/a", "red"),
        ("val/b", "blue"),
        ("test/c", "red"),
        ("train/d", (9, 9, 15)),
    ):
        file = tmp_path / f"{name}.png"
        file.parent.mkdir(exist_ok=True)
        Image.new("RGB", (9, 9), colour).save(file)
    assert not check(str(tmp_path))
    out = capsys.readouterr().out
    assert "train/a.png (train), test/c.png (test): the same photograph" in out
    assert "train/d.png is nearly black: its values end at 15 of 255" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("train ")]
    assert row[:5] == ["train", "2", "2", "1-1", "1"]  # one of over 40 words
    assert "4 read, 0 missing" in out
