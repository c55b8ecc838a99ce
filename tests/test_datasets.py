"""Caption sets on tiny folders made here: what is read, and the one line that each kind of bad input gives."""

import json
import os
from pathlib import Path

import pytest
import refusals
from PIL import Image

from satlib import recipe
from satlib.data import folder
from satlib.data.check import check
from satlib.data.datasets import data_root, load
from satlib.errors import SatlibError
from satlib.training.training_data import training_data


def photo(path, colour="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), colour).save(path)


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))


def refused(name, root, *words):
    return refusals.refused(lambda: load(str(name), root), *words)


IMAGE_IDS = {"train": ["a.jpg", "b.jpg"], "dev": ["c.jpg"], "test": ["d.jpg"]}


@pytest.fixture
def flickr8k(tmp_path):
    base = tmp_path / "flickr8k"
    lines = []
    for split, image_ids in IMAGE_IDS.items():
        write(
            base / "Flickr8k_text" / f"Flickr_8k.{split}Images.txt", "".join(f"{image_id}\n" for image_id in image_ids)
        )
        for image_id in image_ids:
            photo(base / "Flicker8k_Dataset" / image_id)
            lines += [f"{image_id}#{number}\tA {split} dog number {number} ." for number in range(5)]
    lines += ["gone.jpg.1#0\tin no split and without a file", "a.jpg#5\tA sixth caption, which is not used ."]
    # with a byte order mark and line ends as Windows writes them
    write(base / "Flickr8k_text" / "Flickr8k.token.txt", "\ufeff" + "\r\n".join(lines) + "\r\n")
    return tmp_path


def texts(root):
    return root / "flickr8k" / "Flickr8k_text"


def test_flickr8k(flickr8k):
    data = load("flickr8k", flickr8k)
    assert data.name == "flickr8k"
    assert {split: [example.image_id for example in data.split(split)] for split in IMAGE_IDS} == IMAGE_IDS
    assert len(data) == 4  # the file that does not exist is in no split
    first = data.examples[0]
    assert first.references == tuple(f"A train dog number {number} ." for number in range(5))
    assert first.path == flickr8k / "flickr8k" / "Flicker8k_Dataset" / "a.jpg"
    assert data.photo(first).getpixel((0, 0))[0] > 200


def test_missing_root_and_files(flickr8k, tmp_path):
    refused("flickr8k", tmp_path / "nowhere", "missing", "nowhere", "satlib data fetch flickr8k")
    (texts(flickr8k) / "Flickr_8k.devImages.txt").unlink()
    refused("flickr8k", flickr8k, "missing", "Flickr_8k.devImages.txt", "expected layout", "satlib data fetch flickr8k")
    (tmp_path / "other").mkdir()
    refused("flickr8k", tmp_path / "other", "missing", "Flicker8k_Dataset")


def test_absent_images(flickr8k):
    for image_id in ("b.jpg", "d.jpg"):
        (flickr8k / "flickr8k" / "Flicker8k_Dataset" / image_id).unlink()
    refused(
        "flickr8k", flickr8k, "2 images (b.jpg, d.jpg)", "missing from", f"satlib data check {flickr8k / 'flickr8k'}"
    )
    assert len(load("flickr8k", flickr8k, require_images=False)) == 4


@pytest.mark.parametrize(
    ("file", "line", "words"),
    [
        ("Flickr8k.token.txt", "a.jpg\tno number", ["Flickr8k.token.txt, line 23", "expected IMAGE.jpg#NUMBER"]),
        ("Flickr_8k.trainImages.txt", "silent.jpg", ["1 image (silent.jpg)", "without captions"]),
        ("Flickr_8k.testImages.txt", "a.jpg", ["listed twice"]),
    ],
)
def test_bad_flickr8k(flickr8k, file, line, words):
    with open(texts(flickr8k) / file, "a", encoding="utf-8") as opened:
        opened.write(line + "\n")
    refused("flickr8k", flickr8k, *words)


# --- Karpathy's files ---------------------------------------------------------------------------------------------


def karpathy(path, images):
    """images: (filename, filepath or None, split, captions)."""
    rows = []
    for filename, filepath, split, captions in images:
        row = {"filename": filename, "split": split, "sentences": [{"raw": text, "tokens": []} for text in captions]}
        rows.append(row | ({"filepath": filepath} if filepath else {}))
    write(path, json.dumps({"dataset": "x", "images": rows}))


def test_karpathy_with_restval(tmp_path):
    images = [
        ("1.jpg", "train2014", "train", ["A cat .\n", "The cat  sits ."]),
        ("2.jpg", "val2014", "restval", ["A dog ."]),
        ("3.jpg", "val2014", "val", ["A cow .", " . "]),
        ("4.jpg", "val2014", "test", ["A bird ."]),
    ]
    karpathy(tmp_path / "coco" / "dataset_coco.json", images)
    for filename, filepath, _, _ in images:
        photo(tmp_path / "coco" / filepath / filename)
    by_path, by_name = load(str(tmp_path / "coco" / "dataset_coco.json"), tmp_path), load("coco", tmp_path)
    assert by_path.examples == by_name.examples
    assert [(example.image_id, example.split) for example in by_name.examples] == [
        ("train2014/1.jpg", "train"),
        ("val2014/2.jpg", "train"),
        ("val2014/3.jpg", "dev"),
        ("val2014/4.jpg", "test"),
    ]
    # A newline in a caption breaks METEOR's files.
    assert by_name.examples[0].references == ("A cat .", "The cat sits .")
    assert by_name.examples[2].references == ("A cow .",)  # what has no word is left out


def test_karpathy_finds_images_in_the_data_root(tmp_path):
    karpathy(tmp_path / "splits" / "dataset_flickr8k.json", [("a.jpg", None, "train", ["A dog ."])])
    photo(tmp_path / "flickr8k" / "Flicker8k_Dataset" / "a.jpg")
    data = load(str(tmp_path / "splits" / "dataset_flickr8k.json"), tmp_path)
    assert data.name == "flickr8k"
    assert data.examples[0].path == tmp_path / "flickr8k" / "Flicker8k_Dataset" / "a.jpg"


def test_bad_karpathy_files(tmp_path):
    path = tmp_path / "dataset_x.json"
    for text, word in [
        ('{"images": [', "dataset_x.json"),
        ('{"images": []}', "no images with captions"),
        ('{"images": [{"filename": "a.jpg", "split": "extra", "sentences": []}]}', "'extra'"),
        ('{"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "."}]}]}', "without captions"),
    ]:
        write(path, text)
        refused(path, tmp_path, word)
    row = ("a.jpg", None, "train", ["A dog ."])
    karpathy(path, [row, row])
    refused(path, tmp_path, "a.jpg is listed twice")
    karpathy(path, [row])
    refused(path, tmp_path, "1 image (a.jpg)", "missing from")


# --- Flickr30k ----------------------------------------------------------------------------------------------------


@pytest.fixture
def flickr30k(tmp_path):
    base = tmp_path / "flickr30k"
    rows = [(f"{n}.jpg", None, split, ["from json"]) for n, split in enumerate(("train", "val", "test"), 1)]
    karpathy(base / "dataset_flickr30k.json", rows)
    for row in rows:
        photo(base / "flickr30k-images" / row[0])
    return tmp_path


def test_flickr30k_sources_of_captions(flickr30k):
    base = flickr30k / "flickr30k"
    assert load("flickr30k", flickr30k).examples[0].references == ("from json",)
    write(base / "results_20130124.token", "".join(f"{n}.jpg#0\tTwo men .\n" for n in (1, 2, 3)))
    assert load("flickr30k", flickr30k).examples[1].references == ("Two men .",)
    write(base / "results_20130124.token", "1.jpg#0\tTwo men .\n")
    refused("flickr30k", flickr30k, "2 images (2.jpg, 3.jpg)", "without captions")
    (base / "dataset_flickr30k.json").unlink()
    refused("flickr30k", flickr30k, "missing", "flickr30k/dataset_flickr30k.json", "form")


# --- COCO ---------------------------------------------------------------------------------------------------------


def coco_file(path, images, captions):
    listed = [{"id": number, "file_name": name} for number, name in images]
    said = [{"id": i, "image_id": number, "caption": text} for i, number, text in captions]
    write(path, json.dumps({"images": listed, "annotations": said}))


@pytest.fixture
def coco(tmp_path):
    base = tmp_path / "coco"
    parts = {
        "train2014": [(1, "t1.jpg"), (2, "t2.jpg")],
        "val2014": [(number, f"v{number}.jpg") for number in range(10, 15)],
    }
    for part, images in parts.items():
        captions = [(100 - number, number, f"Picture {number} .") for number, _ in images]
        captions.append((1, images[0][0], "The lowest id comes first ."))
        coco_file(base / "annotations" / f"captions_{part}.json", images, captions)
        for _, name in images:
            photo(base / part / name)
    return tmp_path


def test_official_coco(coco):
    data = load("coco", coco)
    assert [example.image_id for example in data.split("train")] == ["train2014/t1.jpg", "train2014/t2.jpg"]
    assert data.examples[0].references == ("The lowest id comes first .", "Picture 1 .")
    held_out = [*data.split("dev"), *data.split("test")]
    assert len(data.split("dev")) == len(data.split("test")) == 2  # of five; the fifth is in no split
    assert len({example.image_id for example in held_out}) == 4
    assert all(example.image_id.startswith("val2014/") for example in held_out)
    assert load("coco", coco).examples == data.examples


def test_bad_coco(coco, tmp_path):
    path = coco / "coco" / "annotations" / "captions_val2014.json"
    write(path, '{"images": [{"id": 1, "file_name": "a"}], "annotations": [{"image_id": 2, "id": 1, "caption": "A"}]}')
    refused("coco", coco, "captions_val2014.json", "image 2 of a caption is not listed")
    coco_file(path, [(1, "a.jpg"), (1, "b.jpg")], [])
    refused("coco", coco, "captions_val2014.json", "two images have the same id")
    path.unlink()
    refused("coco", coco, "captions_val2014.json", "satlib data fetch coco")


# --- Your own folder ----------------------------------------------------------------------------------------------


def test_own_folder_by_csv(tmp_path):
    rows = 'image,caption,split\nx/a.jpg,"A dog, running",train\n./x/a.jpg,Dog!,train\nb.png,A cat,validation\nc.png,Ein Kätzchen,test\n'
    write(tmp_path / "mine" / "captions.csv", rows)
    for name in ("x/a.jpg", "b.png", "c.png"):
        photo(tmp_path / "mine" / name)
    data = load(str(tmp_path / "mine"))
    assert data.name == "mine"
    assert [(e.image_id, e.split, e.references) for e in data.examples] == [
        ("x/a.jpg", "train", ("A dog, running", "Dog!")),
        ("b.png", "dev", ("A cat",)),
        ("c.png", "test", ("Ein Kätzchen",)),
    ]
    assert data.photo(data.examples[0]).size == (8, 6)


def found(place):
    return {e.image_id: (e.split, e.references) for e in load(str(place)).examples}


THREE = {"a.jpg": ("train", ("A dog",)), "b.jpg": ("dev", ("A cat",)), "c.jpg": ("test", ("A cow",))}


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_imagefolder(tmp_path, name):
    rows = [{"file_name": i, "split": split, "text": text, "width": 8} for i, (split, (text,)) in THREE.items()]
    lines = [json.dumps(row) for row in rows]
    if name.endswith("csv"):
        lines = ["file_name,split,text,width", *(",".join(map(str, row.values())) for row in rows)]
    write(tmp_path / name, "\n".join(lines))
    for image_id in THREE:
        photo(tmp_path / image_id)
    assert found(tmp_path) == THREE
    (tmp_path / name).unlink()
    for image_id, (split, (text,)) in THREE.items():  # a file of captions in each split's folder
        photo(tmp_path / split / image_id)
        row = f"file_name,caption_1,caption_2\n{image_id},{text},{text} again\n"
        write(tmp_path / split / "metadata.csv", row)
    assert found(tmp_path)["dev/b.jpg"] == ("dev", ("A cat", "A cat again"))
    write(tmp_path / "metadata.jsonl", '{"image": "a.jpg"}')
    refused(tmp_path, tmp_path, "metadata.jsonl", "only one can hold the captions")
    write(tmp_path / "mine" / "metadata.jsonl", '{"file_name": "a.jpg", "x": "A dog", "y": "A cat"}')
    refused(tmp_path / "mine", tmp_path, "line 1", "a column `text` must hold the caption")


def test_kaggles_flickr8k_has_the_official_splits(tmp_path):
    lines = (line.split("\t") for line in Path(folder._SPLITS_8K).read_text(encoding="utf-8").splitlines())
    official = {split: numbers.split(" ")[0] + "_x.jpg" for split, numbers in lines}
    texts = ['A dog, running with "care" .', '"A ""big"" dog, running ."', "A dog ."]
    rows = zip((official[split] for split in ("train", "dev", "test")), texts, strict=True)
    write(tmp_path / "captions.txt", "image,caption\n" + "".join(f"{name},{text}\n" for name, text in rows))
    for name in official.values():
        photo(tmp_path / "Images" / name)
    assert [(split, texts) for split, texts in found(tmp_path).values()] == [
        ("train", ('A dog, running with "care" .',)),
        ("dev", ('A "big" dog, running .',)),
        ("test", ("A dog .",)),
    ]
    write(tmp_path / "captions.txt", "a.jpg#0\tA dog .\n")
    refused(tmp_path, tmp_path, "the first line must be image,caption")


def test_cocos_form_with_own_ids(tmp_path):
    numbers = range(60)
    photos = [{"id": f"img {n}", "file_name": f"{n}.jpg"} for n in numbers]
    texts = [{"image_id": f"img {n}", "caption": f"dog {n}"} for n in reversed(numbers)]
    write(tmp_path / "captions.json", json.dumps({"images": photos, "annotations": texts}))
    for n in numbers:
        photo(tmp_path / "images" / f"{n}.jpg")
    assert found(tmp_path) == found(tmp_path / "captions.json")
    assert found(tmp_path) == {f"{n}.jpg": (folder.by_hash(f"{n}.jpg"), (f"dog {n}",)) for n in numbers}


def test_parquet_files(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the extra [hub]")
    for split, colour in (("train", "red"), ("validation", "blue"), ("test", "green")):
        photo(tmp_path / f"{split}.png", colour)
        image = {"bytes": (tmp_path / f"{split}.png").read_bytes(), "path": None}
        rows = {"image": [image, image], "caption": [f"A {colour} dog", "A dog"]}  # a photograph in two rows
        table = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image())
        (tmp_path / "set").mkdir(exist_ok=True)
        table.to_parquet(tmp_path / "set" / f"{split}-00000-of-00001.parquet")
    data = load(str(tmp_path / "set"))
    assert [(e.split, e.references) for e in data.examples] == [
        ("train", ("A red dog", "A dog")),
        ("dev", ("A blue dog", "A dog")),
        ("test", ("A green dog", "A dog")),
    ]
    assert data.photo(data.examples[1]).getpixel((0, 0)) == (0, 0, 255)


def test_split_by_hash_is_stable_and_about_8_1_1(tmp_path):
    image_ids = [f"{number}.jpg" for number in range(2000)]
    splits = [folder.by_hash(image_id) for image_id in image_ids]
    assert splits == [folder.by_hash(image_id) for image_id in image_ids]
    assert 1500 < splits.count("train") < 1700  # 1,600 expected, standard deviation 18
    assert 140 < splits.count("dev") < 260
    # By sha256sum, the first 16 digits of the digests: 3938d9535f5726b4, b49c8408bccef123, b3ba14f579032f9b.
    assert (0x3938D9535F5726B4 % 10, 0xB49C8408BCCEF123 % 10, 0xB3BA14F579032F9B % 10) == (8, 1, 1)
    assert [folder.by_hash(image_id) for image_id in ("0.jpg", "22.jpg", "23.jpg")] == ["train", "test", "test"]
    kept = image_ids[:200]
    write(tmp_path / "captions.csv", "image,caption\n" + "".join(f"{image_id},A dog\n" for image_id in kept))
    data = load(str(tmp_path), require_images=False)
    assert {example.image_id: example.split for example in data.examples} == dict(zip(kept, splits[:200], strict=True))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("", ["first line must name"]),
        ("image,caption\n", ["no image"]),
        ("image,caption\na.jpg,\n", ["line 2", "without a word"]),
        ("image,caption\n,A dog\n", ["line 2", "no image"]),
        ("image,caption\na.jpg,A dog, running\n", ["line 2", "double quotes"]),
        ('image,caption\na.jpg,"A dog\n', ["line", "quotation marks"]),
        ("image,caption,split\na.jpg,A dog,teach\n", ["line 2", "'teach'"]),
        ("image,caption,split\na.jpg,A dog,train\na.jpg,A dog,test\n", ["line 3", "train", "test"]),
        ("image,caption,split\na.jpg,A dog,train\nb.jpg,A dog,\n", ["b.jpg", "no split"]),
        ("image,caption\na.jpg,A dog\n", ["hash of their paths gives none to", "test", "a column `split`"]),
        ("image,caption,split\na.jpg,A dog,train\n", ["1 image (a.jpg)", "missing from", "satlib data check /"]),
        ("image,caption\na.jpg,Ein Kätzchen\n", ["captions.csv", "not UTF-8", "line 2"]),
        (None, ["no file of captions", "image,caption"]),
    ],
)
def test_bad_folders(tmp_path, rows, words):
    if rows is not None:
        write(tmp_path / "captions.csv", rows, encoding="latin-1")
    refused(tmp_path, tmp_path, *words)


# --- The root, drawing, the check -----------------------------------------------------------------------------------


def test_data_root(monkeypatch):
    monkeypatch.delenv("SATLIB_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("SATLIB_DATA", "/somewhere")
    assert data_root() == Path("/somewhere")
    assert data_root("~/else") == Path.home() / "else"


@pytest.mark.slow
def test_a_recipe_may_ask_for_any_number_of_scenes(tmp_path):
    usual = load("scenes", tmp_path)
    more = load("scenes", tmp_path, train_images=4_100)
    assert len(usual.split("train")) == 4_000
    assert len(more.split("train")) == 4_100
    assert more.split("train")[:4_000] == usual.split("train")
    assert more.split("test") == usual.split("test")


def test_check_counts_by_hand(tmp_path):
    rows = [
        ("a.jpg", "A dog runs", "train"),
        ("a.jpg", "A dog", "train"),
        ("b.jpg", "A cat runs !", "dev"),
        ("c.jpg", "Dog", "test"),
    ]
    write(tmp_path / "captions.csv", "image,caption,split\n" + "".join(",".join(row) + "\n" for row in rows))
    photo(tmp_path / "a.jpg")
    write(tmp_path / "c.jpg", "not an image")
    report = check(str(tmp_path), progress=False)
    assert not report.ok
    assert report.opened == 1
    assert report.vocabulary == 5  # a, dog, runs and the two special words
    train, dev = report.splits["train"], report.splits["dev"]
    assert (train["images"], train["captions"], train["per image"], train["words (mean)"]) == (1, 2, "2-2", "2-3 (2.5)")
    assert (dev["known words"], dev["running"]) == ("66.7%", "66.67%")  # a, runs; not cat
    for part in ("b.jpg does not exist", "c.jpg is not an image", "1 read, 2 missing or unreadable", "K = 5", "66.7%"):
        assert part in str(report)


@pytest.mark.parametrize(("split", "lacking"), [("train", ["dev"]), ("valid", ["train"]), ("test", ["train", "dev"])])
def test_check_finds_what_training_would_refuse(tmp_path, split, lacking):
    photo(tmp_path / "a.jpg")
    photo(tmp_path / "b.jpg")
    write(
        tmp_path / "own" / "captions.csv",
        f"image,caption,split\n../a.jpg,A dog,{split}\n{tmp_path / 'b.jpg'},A cat,{split}\n",
    )
    report = check(os.path.relpath(tmp_path / "own"), progress=False)  # with a relative and an absolute path
    assert (report.opened, report.lacking, report.ok) == (2, lacking, False)
    assert f"nothing to train on in {' and '.join(lacking)}: satlib train needs" in str(report)
    with pytest.raises(SatlibError, match="needs images in its train and its dev split"):
        training_data(load(str(tmp_path / "own")), recipe.load("own-folder"))


@pytest.mark.parametrize(
    ("train", "dev", "lacking"),
    [
        ("dog " * 41, "A dog", ["train"]),
        ("dog " * 40, "A dog", []),
        ("A dog", "a " * 41, ["dev"]),
        ("A dog", "Two cats", ["dev"]),
    ],
)
def test_check_finds_captions_that_training_would_refuse(tmp_path, train, dev, lacking):
    """Too long, or without a word that the training captions have."""
    for name in "ab":
        photo(tmp_path / f"{name}.jpg")
    write(tmp_path / "captions.csv", f"image,caption,split\na.jpg,{train},train\nb.jpg,{dev},dev\n")
    assert check(str(tmp_path), progress=False).lacking == lacking
    data, used = load(str(tmp_path)), recipe.load("own-folder", ["data.min_count=1"])
    if lacking:
        with pytest.raises(SatlibError, match="none of the 1 images has a caption of 1 to 40 words with a known one"):
            training_data(data, used)
    else:
        training_data(data, used)
