"""Flickr30k Entities: phrases and boxes by hand, folders and zip files, and a clear line for each kind of damage."""

import zipfile

import entities_files
import numpy as np
import pytest
from entities_files import CHILD, GIRL, annotation
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from satlib.data import entities, images
from satlib.data.entities import Entities, Phrase, number
from satlib.data.text import tokenise
from satlib.errors import SatlibError

WHOLE = ((0.1, 0.1, 0.3, 0.9), (0.1, 0.5, 0.3, 0.7))  # of the two boxes, in a picture of 200 x 100 pixels


@pytest.fixture
def folder(tmp_path):
    return entities_files.write(tmp_path / "entities", {"17": (annotation(), [GIRL, CHILD])})


def zipped(folder, top="", compression=zipfile.ZIP_STORED):
    path = folder.parent / "annotations.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for file in sorted(folder.rglob("*.*")):
            archive.write(file, top + file.relative_to(folder).as_posix())
        archive.writestr(f"__MACOSX/{top}Annotations/._17.xml", b"resource fork")
        archive.writestr(f"__MACOSX/{top}Sentences/._17.txt", b"resource fork")
    return path


@pytest.mark.parametrize("kind", ["folder", "folder above", "zip", "zip with a top folder"])
def test_phrases_by_hand(folder, kind):
    places = {"folder": lambda: folder, "folder above": lambda: folder.parent, "zip": lambda: zipped(folder)}
    entities = Entities(places.get(kind, lambda: zipped(folder, "top/", zipfile.ZIP_DEFLATED))())
    child = entities.sentence("17_ab.jpg", tokenise("A child, in a pink dress, near the hills"))
    assert child.phrases == (
        Phrase(0, 2, "1", ("people",), WHOLE[:1]),
        Phrase(3, 6, "2", ("clothing",), WHOLE[1:]),
        Phrase(7, 9, "3", ("scene",), ()),
    )
    girl = entities.sentence("17.jpg", tokenise("The girl's dress, which is pink."))
    assert girl.words == ("the", "girl's", "dress", "which", "is", "pink")  # where Entities has "girl 's"
    assert girl.phrases == (
        Phrase(0, 2, "1", ("people",), WHOLE[:1]),
        Phrase(2, 3, "2", ("clothing", "other"), WHOLE[1:]),
        Phrase(3, 4, "0", ("notvisual",), ()),
    )
    assert entities.sentence("17.jpg", ["a", "boy", "in", "a", "pink", "dress", "near", "the", "hills"]) is None
    assert [len(sentence.phrases) for sentence in entities.sentences("17.jpg")] == [3, 3]


def test_which_images_there_are(folder):
    entities = Entities(folder)
    assert number("1000268201_693b08cb0e.jpg") == number("photos/1000268201.jpg") == "1000268201"
    assert "17_x.jpg" in entities
    assert "18.jpg" not in entities
    assert entities.size("17.jpg") == (200, 100)
    with pytest.raises(SatlibError, match=r"has no Annotations/18.xml"):
        entities.sentence("18.jpg", ["a", "dog"])


def test_an_entity_may_have_several_boxes_and_a_box_several_entities(tmp_path):
    objects = ((("1", "2"), (0, 0, 100, 100)), (("1",), (100, 0, 200, 50)))
    captions = ["[/EN#1/people Two men] and [/EN#2/people one] and [/EN#9/other something] [/EN#2/people .]"]
    entities = Entities(entities_files.write(tmp_path, {"1": (annotation(objects=objects), captions)}))
    two, one, unknown = entities.sentence("1.jpg", ["Two", "men", "and", "one", "and", "something", "."]).phrases
    assert two.boxes == ((0, 0, 0.5, 1), (0.5, 0, 1, 0.5))
    assert one.boxes == ((0, 0, 0.5, 1),)
    assert unknown.boxes == ()  # no object has its id; and a phrase of punctuation alone is none


@pytest.mark.parametrize("view", images.VIEWS)
@pytest.mark.parametrize(
    ("size", "squeezed"), [((500, 400), None), ((300, 900), None), ((300, 900), (224, 224)), ((500, 400), (288, 288))]
)
def test_boxes_are_where_the_encoder_sees_them(tmp_path, view, size, squeezed):
    """Against the picture itself: a white box drawn on black, squeezed as the file is, and as encoders see it."""
    box = tuple(round(share * side) for share, side in zip((0.3, 0.35, 0.6, 0.6), (*size, *size), strict=True))
    objects = ((("1",), box), (("2",), (1, 1, 3, 3)))
    xml, caption = annotation(size, objects), "[/EN#1/other Box] [/EN#2/other corner]"
    annotations = Entities(entities_files.write(tmp_path, {"1": (xml, [caption])}))
    first, corner = annotations.sentence("1.jpg", ["box", "corner"], images.seen_part(squeezed or size, view)).phrases
    pixels = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    pixels[box[1] : box[3], box[0] : box[2]] = 255
    photo = Image.fromarray(pixels)
    photo = photo.resize(squeezed) if squeezed else photo
    ys, xs = np.nonzero(np.asarray(images.square(photo, view))[:, :, 0] > 127)
    seen = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1])
    assert np.abs(224 * np.array(first.boxes[0]) - seen).max() <= 1.5
    cropped = view == "crop" and squeezed != (224, 224)
    assert len(corner.boxes) == (0 if cropped else 1)  # the crop removes the corner


@given(
    st.lists(st.tuples(st.sampled_from(["a dog", "the man 's hat", "T-shirt", "n't", ","]), st.booleans()), max_size=8)
)
def test_phrases_have_the_letters_of_their_words(tmp_path_factory, parts):
    """However phrases and tokens divide a caption: the words of a phrase contain its letters, in order."""
    line = " ".join(f"[/EN#{i + 1}/other {text}]" if phrase else text for i, (text, phrase) in enumerate(parts))
    folder = entities_files.write(tmp_path_factory.mktemp("entities"), {"1": (annotation(), ["x " + line])})
    sentence = Entities(folder).sentence("1.jpg", tokenise("x " + " ".join(text for text, _ in parts)))
    named = {i + 1: text for i, (text, phrase) in enumerate(parts) if phrase and text != ","}
    assert [int(phrase.entity) for phrase in sentence.phrases] == list(named)
    for phrase in sentence.phrases:
        letters = "".join(filter(str.isalnum, named[int(phrase.entity)].lower()))
        assert letters in "".join(filter(str.isalnum, "".join(sentence.words[phrase.start : phrase.end])))
        assert phrase.end - phrase.start <= len(tokenise(named[int(phrase.entity)])) + 1


class TestDamage:
    def refuse(self, path, pattern, image="17.jpg"):
        with pytest.raises(SatlibError, match=pattern):
            Entities(path).sentence(image, ["a", "child", "in", "a", "pink", "dress", "near", "the", "hills"])

    def test_not_entities(self, tmp_path, folder):
        self.refuse(tmp_path / "nowhere", "nowhere does not exist; name Flickr30k Entities")
        (tmp_path / "text.zip").write_text("no zip file")
        self.refuse(tmp_path / "text.zip", "is not a complete zip file")
        for file in (folder / "Sentences").iterdir():
            file.unlink()
        self.refuse(folder, "does not contain both folders of Flickr30k Entities; expected: Annotations/NUMBER.xml")

    def test_two_copies(self, tmp_path):
        for name in ("a", "b"):
            entities_files.write(tmp_path / "both" / name, {"17": (annotation(), [CHILD])})
        self.refuse(tmp_path / "both", "contains both folders 2 times")

    def test_a_truncated_zip(self, folder):
        path = zipped(folder)
        path.write_bytes(path.read_bytes()[:-30])
        self.refuse(path, "is not a complete zip file")

    @pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_a_changed_byte_in_the_middle_of_a_zip(self, folder, compression):
        path = zipped(folder, compression=compression)
        raw = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            info = archive.getinfo("Annotations/17.xml")
        raw[info.header_offset + 30 + len(info.filename) + info.compress_size // 2] ^= 0xFF
        path.write_bytes(raw)
        self.refuse(path, r"cannot read .*annotations.zip, Annotations/17.xml \(.*copy or download")

    def test_half_of_a_photograph(self, folder):
        (folder / "Sentences" / "18.txt").write_text("A dog .")
        assert "18.jpg" in Entities(folder)
        self.refuse(folder, "has no Annotations/18.xml", "18.jpg")

    def test_not_text(self, folder):
        (folder / "Sentences" / "17.txt").write_bytes(b"caf\xe9")
        self.refuse(folder, r"cannot read .*Sentences/17.txt \('utf-8' codec can't decode byte 0xe9 in position 3")

    @pytest.mark.parametrize(
        ("old", "new", "pattern"),
        [
            ("</annotation>", "", "no element found"),
            ("<width>200</width>", "<width>wide</width>", "invalid literal for int.*'wide'"),
            ("<xmax>60</xmax>", "", "could not convert string to float: ''"),
            ("<xmax>60</xmax>", "<xmax>nan</xmax>", "no pixel of 200 x 100 is in the box 20, 10, nan, 90"),
            ("<xmax>60</xmax>", "<xmax>20</xmax>", "no pixel of 200 x 100 is in the box 20, 10, 20, 90"),
            ("<xmin>20</xmin>", "<xmin>200</xmin>", "no pixel of 200 x 100 is in the box 200, 10, 60, 90"),
        ],
    )
    def test_annotations(self, folder, old, new, pattern):
        assert old in annotation()
        (folder / "Annotations" / "17.xml").write_text(annotation().replace(old, new, 1))
        self.refuse(folder, rf"Annotations/17.xml is not an annotation of Flickr30k Entities \({pattern}")

    def test_boxes_a_little_outside_are_clipped(self):
        found = entities.read_annotation(annotation(objects=((("1",), (-2, 0, 202, 101)),)), "here")
        assert found == ((200, 100), {"1": [(0, 0, 200, 100)]})

    @pytest.mark.parametrize(
        "line", ["[/EN#1/people A child in a dress .", "[/EN#x/people A child]", "[/EN#1/people [/EN#2/other A]"]
    )
    def test_captions(self, folder, line):
        (folder / "Sentences" / "17.txt").write_text(f"{GIRL}\n{line}\n")
        self.refuse(folder, r"Sentences/17.txt, line 2: expected phrases as")
