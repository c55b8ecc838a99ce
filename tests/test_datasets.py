"""Caption sets on tiny folders made here: what is read, and the one line that each kind of bad
input gives.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import refusals
from PIL import Image

from satlib.data import features, folder
from satlib.data.caption_set import CaptionSet, Example, joined
from satlib.data.check import check
from satlib.data.datasets import data_root, load
from satlib.data.features import Manifest, Record


def photo(path, colour="red"):
    """Write a small photograph of one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 6), colour).save(path)


def write(path, text, encoding="utf-8"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))


def write_table(path, head, rows):
    """A table of captions; a row may be of several lines."""
    write(path, "\n".join([head, *rows]) + "\n")


def read(name, root=None, **options):
    """The split and the captions of each image."""
    data = load(str(name), root, **options)
    return {example.image_id: (example.split, example.references) for example in data.examples}


def colour(data, example):
    """The colour of a photograph of one colour."""
    return data.photo(example).getpixel((0, 0))


RED = (255, 0, 0)
BLUE = (0, 0, 255)


def refused(name, root, *words):
    return refusals.refused(lambda: load(str(name), root), *words)


# --- Flickr8k as its authors distribute it --------------------------------------------------------


IMAGE_IDS = {"train": ["a.jpg", "b.jpg"], "dev": ["c.jpg"], "test": ["d.jpg"]}


@pytest.fixture
def flickr8k(tmp_path):
    base = tmp_path / "flickr8k"
    texts = base / "Flickr8k_text"
    lines = []
    for split, image_ids in IMAGE_IDS.items():
        names = "".join(f"{name}\n" for name in image_ids)
        write(texts / f"Flickr_8k.{split}Images.txt", names)
        for image_id in image_ids:
            photo(base / "Flicker8k_Dataset" / image_id)
            for number in range(5):
                lines.append(f"{image_id}#{number}\tA {split} dog number {number} .")

    # The real file has captions of an image that was never distributed.
    lines.append("gone.jpg.1#0\tin no split and without a file")
    lines.append("a.jpg#5\tA sixth caption, which is not used .")

    # With a byte order mark and line ends as Windows writes them.
    write(texts / "Flickr8k.token.txt", "\ufeff" + "\r\n".join(lines) + "\r\n")
    return tmp_path


def test_flickr8k(flickr8k):
    data = load("flickr8k", flickr8k)
    assert data.name == "flickr8k"
    for split, image_ids in IMAGE_IDS.items():
        assert [example.image_id for example in data.split(split)] == image_ids
    # The file that does not exist is in no split.
    assert len(data) == 4

    first = data.examples[0]
    assert first.references == tuple(f"A train dog number {number} ." for number in range(5))
    assert first.path == flickr8k / "flickr8k" / "Flicker8k_Dataset" / "a.jpg"
    # JPEG loses a little of the red.
    assert data.photo(first).getpixel((0, 0))[0] > 200
    assert load(str(flickr8k / "flickr8k")).examples == data.examples


def test_bad_flickr8k(flickr8k, tmp_path):
    refused("flickr8k", tmp_path / "nowhere", "nowhere", "is missing", "satlib data fetch flickr8k")

    for image_id in ("b.jpg", "d.jpg"):
        (flickr8k / "flickr8k" / "Flicker8k_Dataset" / image_id).unlink()
    refused("flickr8k", flickr8k, "2 images (b.jpg, d.jpg)", "missing from", "satlib data check")
    # With features computed elsewhere, the photographs are not needed.
    assert len(load("flickr8k", flickr8k, require_images=False)) == 4

    texts = flickr8k / "flickr8k" / "Flickr8k_text"
    write(texts / "Flickr_8k.devImages.txt", "silent.jpg")
    refused("flickr8k", flickr8k, "1 image (silent.jpg)", "without captions")

    write(texts / "Flickr8k.token.txt", "a.jpg#0\tA dog .\na.jpg without a tab")
    refused("flickr8k", flickr8k, "Flickr8k.token.txt, line 2", "expected IMAGE.jpg#NUMBER")


# --- Karpathy's files: Flickr30k, COCO ------------------------------------------------------------


def karpathy(path, images):
    """images: (filepath, filename, split, captions)."""
    rows = []
    for filepath, name, split, captions in images:
        row = {
            "filepath": filepath,
            "filename": name,
            "split": split,
            "sentences": [{"raw": text, "tokens": []} for text in captions],
        }
        rows.append(row)
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
        # Those of 2017 are divided differently and named by their numbers alone.
        ["train2017/1.jpg", "val2017/2.jpg", "train2017/3.jpg", "train2017/4.jpg"],
    ],
)
def test_coco_in_karpathys_split(tmp_path, paths):
    base = tmp_path / "coco"
    karpathy(base / "dataset_coco.json", COCO)
    for path in paths:
        photo(base / path)

    data = load("coco", tmp_path)
    assert load(str(base / "dataset_coco.json"), tmp_path).examples == data.examples
    found = [example.path.relative_to(base).as_posix() for example in data.examples]
    assert found == paths
    assert read("coco", tmp_path) == {
        # A newline in a caption breaks METEOR's files.
        "train2014/COCO_train2014_1.jpg": ("train", ("A cat .", "The cat sits .")),
        "val2014/COCO_val2014_2.jpg": ("train", ("A dog .",)),
        # What has no word is left out.
        "val2014/COCO_val2014_3.jpg": ("dev", ("A cow .",)),
        "val2014/COCO_val2014_4.jpg": ("test", ("A bird .",)),
    }


def test_flickr30k(tmp_path):
    refused("flickr30k", tmp_path, "is missing", "satlib data fetch flickr30k")

    base = tmp_path / "flickr30k"
    karpathy(base / "dataset_flickr30k.json", [("", "1.jpg", "test", ["A dog ."])])
    photo(base / "flickr30k-images" / "1.jpg")
    assert read("flickr30k", tmp_path) == {"1.jpg": ("test", ("A dog .",))}


def test_bad_karpathy_files(tmp_path):
    path = tmp_path / "dataset_x.json"
    write(path, '{"images": [')
    refused(path, tmp_path, "dataset_x.json")

    karpathy(path, [])
    refused(path, tmp_path, "no images with captions")
    karpathy(path, [("", "a.jpg", "extra", [])])
    refused(path, tmp_path, "'extra'")
    karpathy(path, [("", "a.jpg", "train", ["."])])
    refused(path, tmp_path, "without captions")


# --- COCO's own files, RSICD's --------------------------------------------------------------------


def coco_file(path, images, captions):
    """images: the name of each by its id; captions: (the image's id, the text)."""
    listed = [{"id": number, "file_name": name} for number, name in images.items()]
    annotations = [{"image_id": number, "caption": text} for number, text in captions]
    write(path, json.dumps({"images": listed, "annotations": annotations}))


@pytest.mark.parametrize("folders", [("train2017", "val2017"), ("images/train2017", "images")])
def test_cocos_own_files(tmp_path, folders):
    """Two photographs of one name in two splits are two; what lies beside the captions is not read."""
    base = tmp_path / "mine"
    train, val = (f"{folder}/0001.jpg" for folder in folders)
    annotations = base / "annotations"
    coco_file(
        annotations / "captions_train2017.json", {7: "0001.jpg"}, [(7, "A cat ."), (7, "Cat")]
    )
    coco_file(
        annotations / "captions_val2017.json", {7: "0001.jpg", 8: "none.jpg"}, [(7, "A dog .")]
    )
    write(annotations / "instances_train2017.json", "{}")
    photo(base / train)
    photo(base / val)

    expected = {train: ("train", ("A cat .", "Cat")), val: ("dev", ("A dog .",))}
    assert read(base) == expected
    # A file by its own name, and a folder named in another way.
    assert read(annotations / "captions_val2017.json") == {val: expected[val]}
    assert read("mine", tmp_path) == expected
    # The ids, for which COCO's results ask.
    assert [example.number for example in load(str(base)).examples] == ["7", "7"]


def test_a_missing_photograph_has_no_namesake(tmp_path):
    """The first one listed: its mask, or an image of another split, is not taken for it."""
    names = [f"{i:04}.jpg" for i in range(4)]
    write_table(tmp_path / "captions.csv", "image,caption", [f"{name},A cat" for name in names])
    for name in names:
        photo(tmp_path / "masks" / name)
    for name in names[1:]:
        photo(tmp_path / "images" / name)
    data = load(str(tmp_path), require_images=False)
    paths = [example.path for example in data.examples]
    assert {path.parent.name for path in paths} == {"images"}
    assert sum(path.is_file() for path in paths) == 3

    # One alone beside the table: the others are looked for by their names.
    photo(tmp_path / "scattered" / names[0])
    for name in names[1:]:
        photo(tmp_path / "scattered" / "photos" / name)
    write_table(
        tmp_path / "scattered" / "captions.csv",
        "image,caption",
        [f"{name},A cat" for name in names],
    )
    assert len(load(str(tmp_path / "scattered"))) == 4


def test_cocos_form_without_splits_and_folders(tmp_path):
    """Ids may be texts, and the photographs of 2017 are those of 2014."""
    images = {f"n{i}": f"COCO_train2014_{i:04}.jpg" for i in range(40)}
    coco_file(tmp_path / "captions.json", images, [(number, "A cat .") for number in images])
    for i in range(40):
        photo(tmp_path / "some" / "where" / f"{i:04}.jpg")
    data = load(str(tmp_path))
    assert {example.path.parent.name for example in data.examples} == {"where"}
    assert {example.split for example in data.examples} == {"train", "dev", "test"}


def test_bad_coco_files(tmp_path):
    path = tmp_path / "captions.json"
    coco_file(path, {1: "a.jpg"}, [(1, "A cat ."), (2, "A dog ."), (3, "A cow .")])
    refused(
        tmp_path,
        None,
        "captions.json",
        "captions of images that it does not list (2, one of the id 2)",
    )
    coco_file(path, {1: "a.jpg", 2: "a.jpg"}, [(1, "A cat .")])
    refused(tmp_path, None, "the id 2 or the name a.jpg is there twice")
    write(
        path,
        json.dumps(
            {
                "images": [{"id": 1, "file_name": "a"}, {"id": 1, "file_name": "b"}],
                "annotations": [],
            }
        ),
    )
    refused(tmp_path, None, "the id 1 or the name b is there twice")
    coco_file(path, {1: "../a.jpg"}, [(1, "A cat .")])
    refused(tmp_path, None, "1 image (../a.jpg) outside")
    coco_file(path, {1: "a.jpg"}, [(1, None)])
    refused(path, None, "annotations without a caption, such as boxes", "captions_train2017.json")


def test_rsicds_form(tmp_path):
    """UCM-Captions' folder: `imgs`, TIFF, and sentences of tokens alone, which copies have."""
    listed = []
    for split in ("train", "val", "test"):
        name = f"{split}.tif"
        photo(tmp_path / "UCM" / "imgs" / name)
        sentence = {"tokens": ["a", "plane", split], "raw": f"A plane {split} .", "sentid": 0}
        own = {
            "filename": name,
            "imgid": 0,
            "sentids": [0],
            "split": split,
            "sentences": [sentence],
        }
        listed.append(own)
    del listed[0]["sentences"][0]["raw"]
    write(tmp_path / "UCM" / "dataset.json", json.dumps({"images": listed, "dataset": "ucm"}))
    assert load(str(tmp_path / "UCM")).name == "UCM"
    assert read(tmp_path / "UCM") == {
        "train.tif": ("train", ("a plane train",)),
        "val.tif": ("dev", ("A plane val .",)),
        "test.tif": ("test", ("A plane test .",)),
    }


# --- Your own folder ------------------------------------------------------------------------------


def test_own_folder_by_csv(tmp_path):
    rows = [
        'x/a.jpg,"A dog, running",train',
        # The same photograph, as a path of Windows.
        ".\\x\\a.jpg,Dog!,train",
        "b.png,A cat,validation",
        "c.png,Ein Kätzchen,test",
    ]
    mine = tmp_path / "mine"
    write_table(mine / "captions.csv", "Image,caption,split", rows)
    for name in ("x/a.jpg", "b.png", "c.png"):
        photo(mine / name)

    assert load(str(mine)).name == "mine"
    expected = {
        "x/a.jpg": ("train", ("A dog, running", "Dog!")),
        "b.png": ("dev", ("A cat",)),
        "c.png": ("test", ("Ein Kätzchen",)),
    }
    assert read(mine) == expected
    assert read("mine", tmp_path) == expected

    refused("yours", tmp_path, "'yours' is neither a data set", "nor a folder")
    # As the recipe own-folder has it, before anybody has named a folder.
    refused("FOLDER", tmp_path, "--set data.name=PATH")


def test_what_a_table_says_is_not_lost(tmp_path):
    """Folders that name splits, lists of captions written as text, more than five captions, a line
    break in one.
    """
    rows = [
        """train/a.jpg,"['a dog', 'it is [old]']\"""",
        *[f"val/b.jpg,cat {number}" for number in range(7)],
        'test/c.jpg,"[A] bird\non it"',
    ]
    write_table(tmp_path / "captions.csv", "image,caption", rows)
    assert read(tmp_path, require_images=False) == {
        "train/a.jpg": ("train", ("a dog", "it is [old]")),
        "val/b.jpg": ("dev", tuple(f"cat {number}" for number in range(7))),
        "test/c.jpg": ("test", ("[A] bird on it",)),
    }


@pytest.mark.parametrize("form", ["metadata.csv", "metadata.jsonl"])
def test_imagefolders(tmp_path, form):
    """A table in each folder, of the photographs there; no library is needed."""
    for folder_name, colours in (("a", ["red", "blue"]), ("a/b", ["red"])):
        rows = []
        for name in colours:
            photo(tmp_path / folder_name / f"{name}.png")
            rows.append({"file_name": f"{name}.png", "text": f"{folder_name} {name}", "text_id": 5})
        if form == "metadata.csv":
            lines = [",".join(map(str, row.values())) for row in rows]
            write_table(tmp_path / folder_name / form, "file_name,text,text_id", lines)
        else:
            write(tmp_path / folder_name / form, "\n".join(map(json.dumps, rows)))

    found = {image_id: texts for image_id, (_, texts) in read(tmp_path).items()}
    assert found == {
        "a/red.png": ("a red",),
        "a/blue.png": ("a blue",),
        "a/b/red.png": ("a/b red",),
    }
    # The table's own name leads to its folder.
    assert len(load(str(tmp_path / "a" / "b" / form))) == 1


def test_several_columns_of_captions_and_images_elsewhere(tmp_path, capsys):
    """The photographs' folder, and how their names are spelt: a Mac writes é as e and an accent."""
    photo(tmp_path / "Images" / "Images" / "cafe\u0301.png")
    rows = ["caf\u00e9.png,A dog,,A red dog"]
    write_table(tmp_path / "Captions.CSV", "filename,caption1,caption2,caption3", rows)
    assert [texts for _, texts in read(tmp_path).values()] == [("A dog", "A red dog")]
    assert capsys.readouterr().err.count("caf\u00e9.png is cafe\u0301.png") == 1


def test_what_leads_out_of_the_folder_is_refused(tmp_path):
    mine = tmp_path / "mine"
    photo(mine / "a.png")
    photo(tmp_path / "b.png")
    write_table(mine / "captions.csv", "image,caption", [f"{mine / 'a.png'},A dog"])
    assert list(read(mine)) == ["a.png"]
    for place in ("../b.png", "x/../../b.png", tmp_path / "b.png"):
        write_table(mine / "captions.csv", "image,caption", [f"{place},A dog"])
        refused(mine, None, "1 image", "outside", "b.png")


def test_other_layouts_are_described(tmp_path):
    refused(tmp_path, None, "images: 0, other files: 0 (none)", "captions.csv")
    photo(tmp_path / "images" / "1.png")
    write(tmp_path / "text_c10" / "1.txt", "a dog")
    refused(tmp_path, None, "images: 1, other files: 1 (text_c10/1.txt)", "docs/data.md")

    for row in ('{"file_name": "1.png", "conversations": []}', '{"file_name": '):
        write(tmp_path / "metadata.jsonl", row)
        refused(tmp_path, None, "metadata.jsonl, line 1")


def test_a_name_that_is_not_utf8(tmp_path):
    try:
        (tmp_path / "caf\udce9.txt").write_text("a dog")
    except OSError:
        pytest.skip("this disk has names in UTF-8 alone")
    Image.new("RGB", (8, 6)).save(tmp_path / "caf\udce9.png")
    refused(tmp_path, None, r"1 image (caf\udce9.png) with names that are not UTF-8")


@pytest.mark.parametrize("words", [["a", "red", "dog", "."], "['a', 'red', 'dog', '.']"])
def test_a_list_of_words_is_one_caption(words):
    assert folder.captions_in({"caption": words}, "line 1") == ["a red dog ."]
    several = {"caption": [["a", "dog"], ["a", "cat"]]}
    assert folder.captions_in(several, "line 1") == ["a dog", "a cat"]
    # A script without spaces: each character is a token.
    assert folder.captions_in({"caption": ["红狗", "一只狗"]}, "line 1") == ["红狗", "一只狗"]


@pytest.mark.parametrize(
    ("caption", "captions"),
    [
        ("['a dog', \"it's [old]\"]", ["a dog", "it's [old]"]),
        (' ["a dog", "a \\u00e9clair"]\n', ["a dog", "a éclair"]),
        # Lists of anything but captions, and what Python would warn of.
        *[(text, [text]) for text in ("[1, 2]", "['a', 2]", "[]", "[A] bird", "['a' dog")],
        *[(text, [text]) for text in ("1is a number", "'a'", "[1is, 'a']", "['a \\dog' x]")],
    ],
)
@pytest.mark.filterwarnings("always")
def test_only_a_list_of_strings_is_several_captions(caption, captions, recwarn):
    assert folder.texts_in(caption) == captions
    assert not recwarn.list


def drawn(name):
    """A set of one picture of this colour, which is drawn and has no file."""
    example = Example(name + ".png", "train", (name,))
    return CaptionSet(name, (example,), lambda _: Image.new("RGB", (1, 1), name))


def test_several_sets_are_one(tmp_path):
    """Each keeps its splits and its photographs, and is cut on its own; two images of one name
    are refused.
    """
    sets = (
        ("one", "red", "abc"),
        ("two", "blue", "de"),
        ("three", "red", "b"),
    )
    for name, colour_name, images in sets:
        rows = []
        for image in images:
            split = "dev" if image == "b" else "train"
            rows.append(f"{image}.png,a thing,{split}")
            photo(tmp_path / name / f"{image}.png", colour_name)
        write_table(tmp_path / name / "captions.csv", "image,caption,split", rows)

    both = load("one+two", tmp_path, train_images=1)
    assert both.name == "one+two"
    assert both.home == tmp_path
    # One image of training of each: c and e are cut.
    assert [(example.image_id, example.split) for example in both.examples] == [
        ("a.png", "train"),
        ("b.png", "dev"),
        ("d.png", "train"),
    ]
    assert [colour(both, example) for example in both.split("train")] == [RED, BLUE]
    refused("one+three", tmp_path, "one and three", "b.png")

    # A set whose pictures have no files draws its own.
    both = joined([drawn("red"), drawn("blue")])
    assert [colour(both, example) for example in both.examples] == [RED, BLUE]


def test_kaggles_flickr8k_has_the_official_splits(tmp_path):
    # satlib's list of the official splits has a line for each: its name and its images' numbers.
    official = {}
    for line in Path(folder._SPLITS_8K).read_text(encoding="utf-8").splitlines():
        split, numbers = line.split("\t")
        official[split] = numbers.split(" ")[0] + "_x.jpg"
    for name in official.values():
        photo(tmp_path / "Images" / name)

    rows = [
        # Kaggle's file does not quote all captions that have commas.
        official["train"] + ',A dog, running with "care" .',
        official["dev"] + ',"A ""big"" dog, running ."',
        official["test"] + ",A dog .",
    ]
    write_table(tmp_path / "captions.txt", "image,caption", rows)
    assert list(read(tmp_path).values()) == [
        ("train", ('A dog, running with "care" .',)),
        ("dev", ('A "big" dog, running .',)),
        ("test", ("A dog .",)),
    ]


def test_what_hugging_faces_library_reads(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs the extra [hub]")
    place = tmp_path / "set"
    for split, name in (("train", "red"), ("validation", "blue"), ("test", "green")):
        photo(tmp_path / "a.png", name)
        # A photograph in two rows, with a caption each.
        image = {"bytes": (tmp_path / "a.png").read_bytes(), "path": None}
        columns = {"image": [image, image], "caption": [f"A {name} dog", "A dog"]}
        table = datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())
        table.to_parquet(place / f"{split}-00000-of-00001.parquet")

    data = load(str(place))
    captions = {example.split: example.references for example in data.examples}
    assert captions == {
        "train": ("A red dog", "A dog"),
        "dev": ("A blue dog", "A dog"),
        "test": ("A green dog", "A dog"),
    }
    (dev,) = data.split("dev")
    assert colour(data, dev) == BLUE


@pytest.mark.parametrize("ending", ["txt", "caption"])
def test_captions_beside_photographs(tmp_path, ending):
    for name in ("a", "b"):
        photo(tmp_path / "train" / f"{name}.png")
        write(tmp_path / "train" / f"{name}.{ending}", f"A dog {name}\n\nA cat\n")
    assert read(tmp_path) == {
        "train/a.png": ("train", ("A dog a", "A cat")),
        "train/b.png": ("train", ("A dog b", "A cat")),
    }

    photo(tmp_path / "train" / "c.jpg")
    refused(tmp_path, tmp_path, "1 image (train/c.jpg)", "without captions")


def test_split_by_hash_is_stable_and_about_8_1_1(tmp_path):
    splits = {f"{number}.jpg": folder.by_hash(f"{number}.jpg") for number in range(2000)}
    counts = Counter(splits.values())
    # 1,600 are expected, with a standard deviation of 18; and 200, with one of 13.
    assert 1500 < counts["train"] < 1700
    assert 140 < counts["dev"] < 260

    # By sha256sum, the first 16 digits of the digests: 3938d9535f5726b4, b49c8408bccef123,
    # b3ba14f579032f9b. The last decimal digit decides: 0 is dev, 1 is test, the others are train.
    assert 0x3938D9535F5726B4 % 10 == 8
    assert 0xB49C8408BCCEF123 % 10 == 1
    assert 0xB3BA14F579032F9B % 10 == 1
    assert splits["0.jpg"] == "train"
    assert splits["22.jpg"] == "test"
    assert splits["23.jpg"] == "test"

    rows = [f"{image_id},A dog" for image_id in splits]
    write_table(tmp_path / "captions.csv", "image,caption", rows)
    found = read(tmp_path, require_images=False)
    assert {image_id: split for image_id, (split, _) in found.items()} == splits


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a.jpg,A dog\nb.jpg,A cat\n", ["first line must name"]),
        ("image,caption\na.jpg,.\n", ["line 2: rows without", "(1)"]),
        # Editors count blank lines, too.
        ("image,caption\n\na.jpg,.\n", ["line 3: rows without"]),
        ("image,caption,split\na.jpg,A dog, running,train\n", ["line 2", "double quotes"]),
        ('image,caption\na.jpg,"A dog\n', ["line", "quotation marks"]),
        ("image,caption,split\na.jpg,A dog,train\na.jpg,A dog,test\n", ["line 3", "train", "test"]),
        ("image,caption\na.jpg,Ein Kätzchen\n", ["captions.csv", "not UTF-8", "line 2"]),
        (
            "image,caption\na.jpg,nan\nb.jpg,A cat\nc.jpg,\n",
            ["line 2, 4: rows without an image or a caption (2)"],
        ),
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


# --- The root, the number of scenes, the check ----------------------------------------------------


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
    table = tmp_path / "captions.csv"
    write_table(table, "image,caption,split", rows)
    photo(tmp_path / "a.jpg")
    write(tmp_path / "c.jpg", "not an image")
    photo(tmp_path / "d.JPG")
    assert not check(str(tmp_path))

    out = capsys.readouterr().out
    printed = [line.split() for line in out.splitlines()]
    assert ["train", "1", "2", "2-2", "0", "2-3", "(2.5)", "100.00%"] in printed
    # Two words of three are known: a and runs, but not cat.
    assert ["dev", "1", "1", "1-1", "0", "3-3", "(3.0)", "66.67%"] in printed
    # a, dog, runs and the two special words.
    assert "K = 5" in out
    assert "1 read, 2 missing or unreadable; 1 more without captions" in out
    assert "b.jpg does not exist" in out
    assert "the image" in out
    assert "c.jpg" in out

    write_table(table, "image,caption,split", ["a.jpg,A dog,valid"])
    assert not check(str(tmp_path))
    assert "no images in train: satlib train needs" in capsys.readouterr().out


def test_check_counts_near_copies_where_there_is_a_store(tmp_path, capsys):
    """Of two dev images, one points nearly where a training image does."""
    splits = {"a": "train", "b": "train", "c": "dev", "d": "dev"}
    rows = [f"{name}.png,A dog,{split}" for name, split in splits.items()]
    write_table(tmp_path / "own" / "captions.csv", "image,caption,split", rows)
    for brightness, name in enumerate(splits):
        photo(tmp_path / "own" / f"{name}.png", (200, 100, brightness))

    vectors = np.array([(1, 0), (0, 1), (3, 0.1), (-1, -1)], np.float16)  # a, b, c, d
    store = features.folder(tmp_path, load("own", tmp_path), "lite0")
    store.mkdir(parents=True)
    (store / features.ARRAY).write_bytes(vectors.tobytes())
    images = {f"{name}.png": Record(row, 0, 0) for row, name in enumerate(splits)}
    Manifest("satlib features 6", "", "lite0", "", (1, 1), 2, images).save(store)

    assert check("own", tmp_path)
    assert "1 of 2 dev images have a near copy in train" in capsys.readouterr().out


def test_check_names_what_would_go_wrong_in_silence(tmp_path, capsys):
    # 59 words; recipes train on captions of at most 40.
    long = " and ".join(["a dog"] * 20)
    rows = [
        f"train/a.png,{long}",
        "val/b.png,a dog",
        "test/c.png,a cat",
        "train/d.png,a dark cat",
    ]
    write_table(tmp_path / "captions.csv", "image,caption", rows)

    # The first and the third are the same picture, in two splits; the last is nearly black.
    photo(tmp_path / "train" / "a.png", "red")
    photo(tmp_path / "val" / "b.png", "blue")
    photo(tmp_path / "test" / "c.png", "red")
    photo(tmp_path / "train" / "d.png", (9, 9, 15))
    assert not check(str(tmp_path))

    out = capsys.readouterr().out
    assert "train/a.png (train), test/c.png (test): the same photograph" in out
    assert "train/d.png is nearly black: its values end at 15 of 255" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("train ")]
    # The fifth column counts captions of over 40 words.
    assert row[:5] == ["train", "2", "2", "1-1", "1"]
    assert "4 read, 0 missing" in out


def test_check_counts_the_captions_that_training_leaves_out(tmp_path, capsys):
    rows = ["image,caption,split"]
    for number, (split, captions) in enumerate([("train", 7), ("dev", 7)]):
        Image.new("RGB", (8, 8), (200, 0, number)).save(tmp_path / f"{number}.png")
        rows += [f"{number}.png,a red square,{split}"] * captions
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    assert check(str(tmp_path))
    assert "2 training captions are beyond the first 5" in capsys.readouterr().out


def test_check_fails_where_most_captions_are_too_long(tmp_path, capsys):
    long = " and ".join(["a dog"] * 20)
    photo(tmp_path / "a.png", "red")
    photo(tmp_path / "b.png", "blue")
    rows = [f"a.png,{long},train", f"a.png,{long} again,train", "b.png,a dog,dev"]
    for kept, passes in ((rows, False), (rows[1:], True)):
        write_table(tmp_path / "captions.csv", "image,caption,split", kept)
        assert check(str(tmp_path)) is passes
        out = capsys.readouterr().out
        assert f"{len(kept) - 1} of {len(kept)} captions have more than 40 words" in out
        assert "set it to 60" in out
        assert "decoding.max_length" in out
