"""The layouts in which people have captioned photographs: each is read, and bad versions of each are refused in one line."""

import json
from pathlib import Path

import pytest
import refusals
from PIL import Image

from satlib import cli
from satlib.data import folder
from satlib.data.datasets import load

NAMES = ("a.jpg", "b.jpg", "c.jpg")
SPLITS = ("train", "validation", "test")


def photos(place, names=NAMES):
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6), "red").save(place / name, format="JPEG")


def lines(path, *texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")


def found(place):
    return {example.image_id: (example.split, example.references) for example in load(str(place)).examples}


def refused(place, *parts):
    refusals.refused(lambda: load(str(place)), *parts)


def coco(names=NAMES, **changes):
    """Two captions of each image, the annotations of all in reverse order."""
    listed = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    said = [{"id": 9 - n, "image_id": n % len(names), "caption": f"dog {n}"} for n in range(2 * len(names))]
    return json.dumps({"images": listed, "annotations": said, "categories": [], **changes})


@pytest.fixture
def by_thirds(monkeypatch):
    """A hash that puts a.jpg, b.jpg and c.jpg in train, dev and test."""
    monkeypatch.setattr(folder, "by_hash", lambda name: ("train", "dev", "test")["abc".index(Path(name).name[0])])


def official(split, count):
    table = dict(
        line.split("\t") for line in (Path(folder.__file__).parent / "flickr8k-splits.tsv").read_text().splitlines()
    )
    return [f"{number}_0123456789.jpg" for number in table[split].split(" ")[:count]]


class TestKaggle:
    def test_flickr8k_by_its_official_splits(self, tmp_path):
        """Also with commas outside of quotation marks; one photograph is in no official split."""
        names = [*official("train", 2), *official("dev", 1), *official("test", 1)]
        unused = official("none", 1)
        said = [f'{name},"A dog, ""Rex"", runs ."' for name in names] + [
            f"{names[0]},A dog, running .",
            f"{unused[0]},A cat .",
        ]
        lines(tmp_path / "captions.txt", "image,caption", *said)
        photos(tmp_path / "Images", [*names, *unused])
        read = found(tmp_path)
        assert [split for split, _ in read.values()] == ["train", "train", "dev", "test"]
        assert read[names[0]][1] == ('A dog, "Rex", runs .', "A dog, running .")
        assert load(str(tmp_path)).examples[0].path == tmp_path / "Images" / names[0]
        assert cli.main(["data", "check", str(tmp_path)]) == 0

    def test_all_of_flickr8k(self, tmp_path):
        counts = {split: official(split, None) for split in ("train", "dev", "test", "none")}
        assert {split: len(names) for split, names in counts.items()} == {
            "train": 6000,
            "dev": 1000,
            "test": 1000,
            "none": 92,
        }
        lines(
            tmp_path / "captions.txt",
            "image,caption",
            *(f"{name},A dog" for names in counts.values() for name in names),
        )
        data = load(str(tmp_path), require_images=False)
        assert {split: [one.image_id for one in data.split(split)] for split in ("train", "dev", "test")} == {
            split: names for split, names in counts.items() if split != "none"
        }

    def test_other_photographs_are_split_by_the_hash(self, tmp_path, by_thirds):
        lines(tmp_path / "captions.txt", "image,caption", *(f"{name},A dog" for name in NAMES))
        photos(tmp_path / "Flicker8k_Dataset")  # as the folder of the official archive is spelt
        assert [split for split, _ in found(tmp_path).values()] == ["train", "dev", "test"]

    def test_flickr30k(self, tmp_path, by_thirds):
        said = [f"{name}| {number}| A dog , {number} ." for name in NAMES for number in range(5)]
        lines(tmp_path / "results.csv", "image_name| comment_number| comment", *said)
        photos(tmp_path / "flickr30k_images")
        read = found(tmp_path)
        assert list(read) == list(NAMES)
        assert read["b.jpg"] == ("dev", tuple(f"A dog , {number} ." for number in range(5)))

    @pytest.mark.parametrize(
        ("file", "text", "says"),
        [
            ("captions.txt", (), "the first line must be image,caption, as in Kaggle's Flickr8k; it is nothing"),
            ("captions.txt", ("a.jpg,A dog",), "it is 'a.jpg,A dog'"),
            ("captions.txt", ("image,caption", "a.jpg A dog"), "line 2: expected IMAGE,CAPTION, found 'a.jpg A dog'"),
            ("captions.txt", ("image,caption", "a.jpg,"), "line 2"),
            ("results.csv", ("image_name| comment_number| comment", "a.jpg, A dog"), "line 2: expected IMAGE.jpg| NUMBER| CAPTION"),
        ],
    )  # fmt: skip
    def test_bad_ones(self, tmp_path, file, text, says):
        lines(tmp_path / file, *text)
        refused(tmp_path, str(tmp_path / file), says)


class TestImagefolder:
    def test_csv_in_folders_of_splits(self, tmp_path):
        for name, split in zip(NAMES, SPLITS, strict=True):
            lines(tmp_path / split / "metadata.csv", "file_name,text", f'{name},"A dog, running"', f"{name},A dog")
            photos(tmp_path / split, [name])
        assert found(tmp_path) == {
            f"{folder}/{name}": (split, ("A dog, running", "A dog"))
            for name, folder, split in zip(NAMES, SPLITS, ("train", "dev", "test"), strict=True)
        }

    @pytest.mark.parametrize(
        "row",
        [
            {"text": ["A dog", "Dog!"]},
            {"Captions": ["A dog", "Dog!"], "text": "of a page"},
            {"sentences": ["A dog", "Dog!"], "url": "of a page"},
            {"caption_0": "A dog", "caption_1": "Dog!", "caption_2": "", "width": 8},
            {"description": ["A dog", "Dog!"], "width": 8},
        ],
    )
    def test_json_lines_with_several_captions(self, tmp_path, row):
        rows = [{"file_name": f"x/{n}", "split": s, **row} for n, s in zip(NAMES, SPLITS, strict=True)]
        lines(tmp_path / "metadata.jsonl", *map(json.dumps, rows))
        photos(tmp_path / "x")
        assert found(tmp_path)["x/b.jpg"] == ("dev", ("A dog", "Dog!"))

    @pytest.mark.parametrize(
        ("file", "text", "says"),
        [
            ("metadata.csv", "image,text", "the first line must name the columns file_name,text[,split]; it has image, text"),
            ("metadata.csv", "file_name;text", "separated by semicolons; save the file with commas, as file_name,text[,split]"),
            ("metadata.csv", "file_name,text\na.jpg,A dog, running", "line 2: more fields than columns"),
            ("metadata.csv", "file_name,title,alt\na.jpg,A,B", "line 2: one column must hold the caption; call it text (the others are title, alt)"),
            ("metadata.jsonl", '{"file_name": "a.jpg", "width": 8}', "line 1: one column must hold the caption"),
            ("metadata.jsonl", '{"file_name": "a.jpg", "text": [7]}', "line 1: one column must hold the caption"),
            ("metadata.jsonl", '{"text": "A dog"}', "line 1: file_name must be the path of an image"),
            ("metadata.jsonl", '["a.jpg"]', "line 1 is not an object"),
            ("metadata.jsonl", '{"file_name": "a.jpg", ', "line 1 is not valid JSON"),
        ],
    )  # fmt: skip
    def test_bad_ones(self, tmp_path, file, text, says):
        lines(tmp_path / file, text)
        refused(tmp_path, str(tmp_path / file), says)


class TestCoco:
    @pytest.mark.parametrize(
        ("file", "place"),
        [("annotations.json", "images"), ("annotations/exported.json", "."), ("captions.json", "val")],
    )
    def test_as_annotation_tools_export_it(self, tmp_path, by_thirds, file, place):
        lines(tmp_path / file, coco())
        photos(tmp_path / place)
        assert found(tmp_path) == {
            "a.jpg": ("train", ("dog 3", "dog 0")), "b.jpg": ("dev", ("dog 4", "dog 1")), "c.jpg": ("test", ("dog 5", "dog 2")),
        }  # fmt: skip
        if "/" not in file:
            assert list(found(tmp_path / file).values()) == list(found(tmp_path).values())

    def test_a_file_for_each_split(self, tmp_path):
        for name, split in zip(NAMES, ("captions_train2020", "val", "my-test"), strict=True):
            lines(tmp_path / "annotations" / f"{split}.json", coco([name]))
        lines(tmp_path / "info.json", '{"licence": "MIT"}')
        photos(tmp_path / "images")
        assert [split for split, _ in found(tmp_path).values()] == ["train", "dev", "test"]

    def test_the_official_files_under_any_name(self, tmp_path):
        for part, names in (("train2017", NAMES[:1]), ("val2017", NAMES[1:])):
            lines(tmp_path / "annotations" / f"captions_{part}.json", coco(names))
            photos(tmp_path / part, names)
        data = load(str(tmp_path))
        assert data.name == "coco-2017"
        assert {len(data.split(split)) for split in ("train", "dev", "test")} == {1}
        (tmp_path / "train2017" / "a.jpg").unlink()
        refused(tmp_path, f"satlib data check {tmp_path}")

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"annotations": [{"id": 1, "image_id": 0, "bbox": [0, 0, 1, 1]}]}, "annotations[0].caption is missing"),
            ({"annotations": [{"id": 1, "image_id": 7, "caption": "A dog"}]}, "image 7 is not listed"),
            ({"annotations": [{"id": 1, "image_id": 0, "caption": "A dog"}]}, "2 images (b.jpg, c.jpg) in a split but without captions"),
        ],
    )  # fmt: skip
    def test_bad_ones(self, tmp_path, by_thirds, changes, says):
        lines(tmp_path / "annotations.json", coco(**changes))
        photos(tmp_path)
        refused(tmp_path, says)
        refused(tmp_path / "annotations.json", says)


def test_several_files_of_captions_are_not_chosen_from(tmp_path):
    lines(tmp_path / "captions.csv", "image,caption")
    lines(tmp_path / "metadata.csv", "file_name,text")
    refused(tmp_path, "has captions.csv and metadata.csv, and only one can hold the captions")


def test_a_folder_without_captions_names_what_there_could_be(tmp_path):
    refused(tmp_path, "captions.csv with the columns image,caption[,split]", "Kaggle's captions.txt", "metadata.csv")
