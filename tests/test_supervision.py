"""Attention supervised by boxes: targets, loss, and that training with them moves the maps."""

from functools import partial
from types import SimpleNamespace

import entities_files
import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

from satlib.beyond.boxes import BoxTargets, box_loss, cover
from satlib.data.batches import Batch
from satlib.data.entities import Entities
from satlib.data.text import END, PAD, Vocabulary
from satlib.errors import SatlibError
from satlib.model.objective import caption_loss
from satlib.recipe import TrainingConfig
from satlib.training.losses import drop_annotations


def annotate(folder, data, box=(0, 0, 50, 50), leave_out=()):
    """Made-up annotations: the phrase "A COLOUR SHAPE" of every image's first caption has one box in 100 x 100 pixels."""
    files = {}
    for example in data.examples:
        if example.image_id not in leave_out:
            a, colour, shape, *rest = example.references[0].rstrip(".").split()
            sentence = f"[/EN#7/other {a} {colour} {shape}] {' '.join(rest)} ."
            xml = entities_files.annotation((100, 100), ((("7",), box),))
            files[example.image_id] = xml, [sentence, *example.references[1:]]
    return Entities(entities_files.write(folder, files))


def in_the_first_cell(captioner, data):
    """The mean weight of the top left cell at the third word, the shape, of every first caption."""
    captioner.eval()
    weights = []
    for example in data.split("dev"):
        ids = torch.tensor([[*captioner.vocabulary.encode(example.references[0]), END]])
        with torch.no_grad():
            output = captioner.decoder(
                captioner.annotations(tiny.Reader().read([example.image_id])), ids
            )
        weights.append(output.alphas[0, 2, 0].item())
    return float(np.mean(weights))


class TestCover:
    def test_by_hand(self):
        """Of a 2 x 2 grid: the left half, and the top quarter of the right half; what two boxes share counts once."""
        shares = cover(((0.0, 0.0, 0.5, 1.0), (0.0, 0.0, 1.0, 0.25)), (2, 2))
        torch.testing.assert_close(shares, torch.tensor([1.0, 0.5, 1.0, 0.0]))

    @given(
        st.lists(st.integers(0, 223), min_size=4, max_size=4).filter(
            lambda v: v[0] < v[2] and v[1] < v[3]
        ),
        st.integers(1, 14),
        st.integers(1, 14),
    )
    def test_one_box_in_closed_form(self, corners, h, w):
        """For one box the share is the product of the overlaps on both axes, whatever the grid."""
        left, top, right, bottom = (value / 224 for value in corners)
        across = [max(0, min(right, (i + 1) / w) - max(left, i / w)) * w for i in range(w)]
        down = [max(0, min(bottom, (i + 1) / h) - max(top, i / h)) * h for i in range(h)]
        expected = torch.tensor(np.outer(down, across), dtype=torch.float32).flatten()
        torch.testing.assert_close(
            cover(((left, top, right, bottom),), (h, w)), expected, rtol=1e-4, atol=1e-5
        )


class TestLoss:
    def test_by_hand(self):
        """Two words with boxes, one without, which has no gradient: the masses are 0.3 + 0.5 / 2 and 0.25."""
        alphas = torch.tensor(
            [[[0.3, 0.5, 0.2], [0.1, 0.1, 0.8], [0.25, 0.5, 0.25]]], requires_grad=True
        )
        loss = box_loss(alphas, torch.tensor([[[1.0, 0.5, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]]))
        assert loss.tolist() == pytest.approx([-np.log(0.3 + 0.25) - np.log(0.25)])
        (gradient,) = torch.autograd.grad(loss, alphas)
        assert gradient[0, 0].any()
        assert not gradient[0, 1].any()

    def test_its_share_in_the_loss(self):
        """caption_loss adds the weight times the mean over captions; of the places that are left, here three of four."""
        decoder, covers, places = (
            tiny.decided().decoder,
            torch.rand(3, 3, 4),
            torch.tensor([0, 2, 3]),
        )
        a, captions = torch.randn(3, 3, tiny.DIM), torch.tensor([[2, 3, END]] * 3)
        targets = SimpleNamespace(weight=0.7, of=lambda *_: covers)
        term = partial(BoxTargets.__call__, targets, Batch(["a", "b", "c"], captions), places)
        plain, boxed = (caption_loss(decoder, a, captions, terms=terms) for terms in ([], [term]))
        outside = box_loss(
            decoder(a, captions).alphas, torch.stack([covers[..., i] for i in (0, 2, 3)], 2)
        )
        torch.testing.assert_close(
            boxed.loss - plain.loss, 0.7 * outside.mean(), rtol=1e-4, atol=1e-5
        )
        torch.testing.assert_close(boxed.means["boxes"], outside.sum() / 9)


DATA = tiny.data()
VOCABULARY = Vocabulary.from_captions(
    [caption for one in DATA.examples for caption in one.references]
)


def targets(entities, view="whole"):
    return BoxTargets(entities, DATA.split("train"), VOCABULARY, (2, 2), view)


def caption(number, reference=0):
    return [*VOCABULARY.encode(DATA.examples[number].references[reference]), END]


class TestTargets:
    def test_the_last_word_of_a_phrase(self, tmp_path):
        """The third word of every first caption has the top left cell; no other word and no padding has any."""
        found = targets(annotate(tmp_path, DATA))
        assert found.phrases == 20
        for reference in (0, 1):
            captions = torch.tensor([[*caption(i, reference), PAD] for i in (0, 2)])
            expected = torch.zeros(*captions.shape, 4)
            expected[:, 2, 0] = 1.0 if reference == 0 else 0.0
            assert torch.equal(
                found.of([DATA.examples[i].image_id for i in (0, 2)], captions), expected
            )

    def test_boxes_are_those_of_the_part_that_the_encoder_sees(self, tmp_path):
        """ "crop" leaves out a sixteenth at each side: a box of the left quarter ends at 3/14 of the rest, 3/7 of the first cell."""
        entities = annotate(tmp_path, DATA, (0, 0, 25, 100))
        for view, share in (("whole", 1 / 2), ("crop", 3 / 7)):
            covers = targets(entities, view).of(
                [DATA.examples[0].image_id], torch.tensor([caption(0)])
            )
            torch.testing.assert_close(covers[0, 2], torch.tensor([share, 0.0, share, 0.0]))

    def test_images_without_annotations_are_left_out(self, tmp_path):
        assert targets(annotate(tmp_path, DATA, leave_out=("train-0", "train-1"))).phrases == 18


class TestTraining:
    @pytest.mark.slow
    @pytest.mark.parametrize("attention", ["soft", "hard"])
    def test_maps_move_into_the_boxes(self, tmp_path, attention):
        changes = (
            f"decoder.attention={attention}", "decoder.attention_hidden=32", "decoder.dropout=0.0", "training.epochs=20",
            "training.learning_rate=0.03", "training.select=nll", "objective.doubly_stochastic=0.0",
        )  # fmt: skip
        without = tiny.train(tmp_path / "without", *changes)
        entities = annotate(tmp_path / "entities", DATA)
        boxed = tiny.train(tmp_path / "with", *changes, "objective.boxes=2.0", entities=entities)
        assert in_the_first_cell(without, DATA) < 0.45
        assert in_the_first_cell(boxed, DATA) > 0.55

    def test_it_resumes_with_the_same_boxes_only(self, tmp_path):
        one, other = (
            annotate(tmp_path / "one", DATA),
            annotate(tmp_path / "other", DATA, (50, 50, 100, 100)),
        )
        tiny.train(tmp_path / "run", "objective.boxes=1.0", "training.epochs=1", entities=one)
        with pytest.raises(SatlibError, match="other captions or boxes"):
            tiny.train(tmp_path / "run", "objective.boxes=1.0", entities=other)


class TestDrop:
    """Places and dimensions that a batch leaves out."""

    def test_vectors_and_boxes_lose_the_same_places(self):
        a = (
            torch.arange(12.0).expand(3, 12).unsqueeze(2).repeat(1, 1, 5)
        )  # every vector holds its place's number
        torch.manual_seed(0)
        kept, dropped = drop_annotations(a, TrainingConfig(drop_places=0.25))
        assert kept.shape == (3, 9, 5)
        places = kept[0, :, 0]
        assert torch.equal(places, places.sort().values)
        assert torch.equal(kept, a[:, places.long()])
        assert torch.equal(dropped, places.long())

    def test_a_dimension_is_dropped_in_all_places_of_a_caption(self):
        torch.manual_seed(0)
        a, _ = drop_annotations(torch.ones(200, 6, 50), TrainingConfig(drop_dimensions=0.2))
        assert torch.equal(a, a[:, :1].expand_as(a))
        assert set(a[:, 0].flatten().tolist()) == {0.0, 1.25}
        assert (a[:, 0] == 0).float().mean() == pytest.approx(0.2, abs=0.02)
