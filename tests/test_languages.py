"""Captions in a script without spaces between words: vocabulary, model, scores."""

import pytest
import tiny
import torch
from PIL import Image

from satlib.data import datasets
from satlib.data.text import UNKNOWN
from satlib.evaluation import evaluate, metrics
from satlib.training import loop

COLOURS = ("红色", "蓝色", "绿色")
SHAPES = ("圆", "方块", "星")


def vectors(image_id):
    """Annotation vectors from nowhere, the same every time."""
    generator = torch.Generator().manual_seed(len(image_id))
    return torch.randn(4, tiny.DIM, generator=generator)


class Reader:
    """Annotation vectors by image id."""

    def read(self, image_ids):
        return torch.stack([vectors(image_id) for image_id in image_ids])


@pytest.fixture
def data(tmp_path):
    """Chinese captions: 12 images of training, 4 of dev, 4 of test."""
    place = tmp_path / "photos"
    place.mkdir()
    rows = ["image,caption,split"]
    for i in range(20):
        if i < 12:
            split = "train"
        elif i < 16:
            split = "dev"
        else:
            split = "test"
        what = COLOURS[i % 3] + SHAPES[i // 3 % 3]
        Image.new("RGB", (8, 8)).save(place / f"{i}.png")
        rows.append(f"{i}.png,左边有一个{what}。,{split}")
        # Latin letters and Japanese among them, as people write.
        rows.append(f"{i}.png,一个{what}在カメラー的T恤上,{split}")
    (place / "captions.csv").write_text("\n".join(rows), encoding="utf-8")
    return datasets.load(str(place))


def test_chinese_from_a_folder_to_scores(data, tmp_path):
    changes = ("training.epochs=8", "training.learning_rate=0.05", "decoding.max_length=20")
    chosen = tiny.the_recipe(*changes)
    captioner = loop.train(chosen, data, Reader(), tmp_path / "run", progress=False)
    assert {"红", "圆", "t", "恤", "メ"} < set(captioner.vocabulary.words)
    assert UNKNOWN not in captioner.vocabulary.encode("カメラー")

    found = evaluate.evaluate(captioner, data, Reader(), progress=False)
    # METEOR's stems and paraphrases are English.
    assert "METEOR" not in found["metrics"]
    assert any("METEOR is missing" in note for note in found["notes"])
    # If a word were a whole sentence, captions and references would agree in nothing.
    bleu = found["metrics"]["BLEU-4"]
    assert bleu > 20

    test = data.split("test")
    captions = evaluate.generate(captioner, Reader(), test, progress=False)
    assert evaluate.quick_bleu(captions, test) == pytest.approx(bleu)
    for image_id, caption in captions.items():
        assert len(caption.words) > 5
        assert found["captions"][image_id] == caption.text
        # Spaces stand beside Latin letters only.
        assert caption.text == "".join(caption.words).replace("t恤", " t 恤")


def test_scores_see_one_spelling_and_no_foreign_full_stop():
    """A generated caption is in NFC and has no punctuation; the references of it may have both."""
    spoken = {
        "a": "कुत्ता दौड़ रहा है यहाँ",
        "b": "café au lait noir",
        "c": "رجل يركض في الشارع",
    }
    # A danda; an accent of its own and a soft hyphen; an invisible mark of direction, an Arabic
    # comma and an Arabic question mark.
    human = {
        "a": ["कुत्ता दौड़ रहा है यहाँ।"],
        "b": ["cafe\u0301 au lait\u00ad noir"],
        "c": ["\u200fرجل، يركض في الشارع؟"],
    }
    captions, references = metrics.split_words(spoken, human)
    assert metrics.bleu(captions, references)["BLEU-4"] == pytest.approx(100)
