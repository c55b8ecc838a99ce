"""Captions in a script without spaces between words: vocabulary, model, scores."""

import pytest
import tiny
import torch
from PIL import Image

from satlib.data import datasets
from satlib.data.text import UNKNOWN
from satlib.evaluation import evaluate, metrics
from satlib.training import loop

COLOURS, SHAPES = ("红色", "蓝色", "绿色"), ("圆", "方块", "星")


class Reader:
    """Annotation vectors by image id, from nowhere."""

    def read(self, image_ids):
        return torch.stack(
            [
                torch.randn(4, tiny.DIM, generator=torch.Generator().manual_seed(len(image_id)))
                for image_id in image_ids
            ]
        )


@pytest.fixture
def data(tmp_path):
    """Chinese captions: 12 images of training, 4 of dev, 4 of test."""
    place, rows = tmp_path / "photos", ["image,caption,split"]
    place.mkdir()
    for i in range(20):
        split, what = (
            "train" if i < 12 else "dev" if i < 16 else "test",
            COLOURS[i % 3] + SHAPES[i // 3 % 3],
        )
        Image.new("RGB", (8, 8)).save(place / f"{i}.png")
        rows += [
            f"{i}.png,左边有一个{what}。,{split}",
            f"{i}.png,一个{what}在カメラー的T恤上,{split}",
        ]
    (place / "captions.csv").write_text("\n".join(rows), encoding="utf-8")
    return datasets.load(str(place))


def test_chinese_from_a_folder_to_scores(data, tmp_path):
    changes = ("training.epochs=8", "training.learning_rate=0.05", "decoding.max_length=20")
    captioner = loop.train(
        tiny.the_recipe(*changes), data, Reader(), tmp_path / "run", progress=False
    )
    assert {"红", "圆", "t", "恤", "メ"} < set(captioner.vocabulary.words)
    assert UNKNOWN not in captioner.vocabulary.encode("カメラー")
    found = evaluate.evaluate(captioner, data, Reader(), progress=False)
    assert "METEOR" not in found["metrics"]
    assert any("METEOR is missing" in note for note in found["notes"])
    assert found["metrics"]["BLEU-4"] > 20  # words of whole sentences would agree in nothing
    captions = evaluate.generate(captioner, Reader(), data.split("test"), progress=False)
    assert evaluate.quick_bleu(captions, data.split("test")) == pytest.approx(
        found["metrics"]["BLEU-4"]
    )
    for image_id, caption in captions.items():
        assert len(caption.words) > 5
        assert (
            found["captions"][image_id]
            == caption.text
            == "".join(caption.words).replace("t恤", " t 恤")
        )


def test_scores_see_one_spelling_and_no_foreign_full_stop():
    """A generated caption is in NFC and has no punctuation; the references of it may have both."""
    spoken = {"a": "कुत्ता दौड़ रहा है यहाँ", "b": "café au lait noir", "c": "رجل يركض في الشارع"}
    human = {
        "a": ["कुत्ता दौड़ रहा है यहाँ।"],
        "b": ["cafe\u0301 au lait\u00ad noir"],
        "c": ["\u200fرجل، يركض في الشارع؟"],
    }
    assert metrics.bleu(*metrics.split_words(spoken, human))["BLEU-4"] == pytest.approx(100)
