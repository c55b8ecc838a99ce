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
    """Made-up annotations: a box for the phrase "A COLOUR SHAPE" of every image's first caption.

    It is in a picture of 100 x 100 pixels.
    """
    files = {}
    for example in data.examples:
        if example.image_id in leave_out:
            continue
        first, *others = example.references
        a, colour, shape, *rest = first.rstrip(".").split()
        sentence = f"[/EN#7/other {a} {colour} {shape}] {' '.join(rest)} ."
        objects = ((("7",), box),)
        xml = entities_files.annotation((100, 100), objects)
        files[example.image_id] = xml, [sentence, *others]
    return Entities(entities_files.write(folder, files))


def in_the_first_cell(captioner, data):
    """The mean weight of the top left cell at the third word, the shape, of first captions."""
    captioner.eval()
    weights = []
    for example in data.split("dev"):
        ids = [*captioner.vocabulary.encode(example.references[0]), END]
        vectors = tiny.Reader().read([example.image_id])
        with torch.no_grad():
            a = captioner.annotations(vectors)
            output = captioner.decoder(a, torch.tensor([ids]))
        weights.append(output.alphas[0, 2, 0].item())
    return float(np.mean(weights))


def overlaps(start, end, cells):
    """The share of each cell of an axis that lies between start and end."""
    shares = []
    for i in range(cells):
        inside = min(end, (i + 1) / cells) - max(start, i / cells)
        shares.append(max(0, inside) * cells)
    return shares


CORNERS = st.lists(st.integers(0, 223), min_size=4, max_size=4)


class TestCover:
    def test_by_hand(self):
        """Of a 2 x 2 grid: the left half, and the top quarter of both halves."""
        left = (0.0, 0.0, 0.5, 1.0)
        top = (0.0, 0.0, 1.0, 0.25)
        shares = cover((left, top), (2, 2))
        # What two boxes share counts once.
        expected = torch.tensor([1.0, 0.5, 1.0, 0.0])
        torch.testing.assert_close(shares, expected)

    @given(
        CORNERS.filter(lambda corners: corners[0] < corners[2] and corners[1] < corners[3]),
        st.integers(1, 14),
        st.integers(1, 14),
    )
    def test_one_box_in_closed_form(self, corners, h, w):
        """For one box the share is the product of the overlaps on both axes, whatever the grid."""
        left, top, right, bottom = (value / 224 for value in corners)
        box = (left, top, right, bottom)
        shares = cover((box,), (h, w))

        across = overlaps(left, right, w)
        down = overlaps(top, bottom, h)
        expected = torch.tensor(np.outer(down, across), dtype=torch.float32)
        torch.testing.assert_close(shares, expected.flatten(), rtol=1e-4, atol=1e-5)


class TestLoss:
    def test_by_hand(self):
        """Two words with boxes, and one without between them."""
        maps = [
            [0.3, 0.5, 0.2],
            [0.1, 0.1, 0.8],
            [0.25, 0.5, 0.25],
        ]
        shares = [
            [1.0, 0.5, 0.0],
            [0.0, 0.0, 0.0],
            [1.0, 0.0, 0.0],
        ]
        alphas = torch.tensor([maps], requires_grad=True)
        loss = box_loss(alphas, torch.tensor([shares]))
        # Minus the logarithms of the masses, which are 0.3 + 0.5 / 2 and 0.25.
        expected = -np.log(0.3 + 0.25) - np.log(0.25)
        assert loss.tolist() == pytest.approx([expected])

        (gradient,) = torch.autograd.grad(loss, alphas)
        with_box, without_box, _ = gradient[0]
        assert with_box.any()
        assert not without_box.any()

    def test_each_sampled_path_has_the_boxes_of_its_caption(self):
        """Two captions of one word, one with a box in the first place and one in the second. Both
        paths of each look into its box.
        """
        covers = torch.eye(2).unsqueeze(1)  # (2, 1, 2)
        # A caption's paths are side by side.
        alphas = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 1.0]]])
        targets = SimpleNamespace(weight=1.0, of=lambda *_: covers)
        output = SimpleNamespace(alphas=alphas)
        loss, _ = BoxTargets.__call__(targets, Batch([], covers), None, output)
        # -log 1 of each.
        assert loss == 0

    def test_its_share_in_the_loss(self):
        """caption_loss adds the weight times the mean over captions."""
        decoder = tiny.decided().decoder
        covers = torch.rand(3, 3, 4)
        # Of the four places three are left.
        places = torch.tensor([0, 2, 3])
        a = torch.randn(3, 3, tiny.DIM)
        captions = torch.tensor([[2, 3, END]] * 3)
        targets = SimpleNamespace(weight=0.7, of=lambda *_: covers)
        batch = Batch(["a", "b", "c"], captions)
        term = partial(BoxTargets.__call__, targets, batch, places)

        plain = caption_loss(decoder, a, captions, terms=[])
        boxed = caption_loss(decoder, a, captions, terms=[term])
        alphas = decoder(a, captions).alphas
        of_captions = box_loss(alphas, covers[..., places])
        added = boxed.loss - plain.loss
        expected = 0.7 * of_captions.mean()
        torch.testing.assert_close(added, expected, rtol=1e-4, atol=1e-5)
        # What is logged is the mean over the nine words.
        torch.testing.assert_close(boxed.means["boxes"], of_captions.sum() / 9)


DATA = tiny.data()
CAPTIONS = []
for example in DATA.examples:
    CAPTIONS += example.references
VOCABULARY = Vocabulary.from_captions(CAPTIONS)


def targets(entities):
    return BoxTargets(entities, DATA.split("train"), VOCABULARY, (2, 2))


def caption(number, reference=0):
    return [*VOCABULARY.encode(DATA.examples[number].references[reference]), END]


class TestTargets:
    def test_the_last_word_of_a_phrase(self, tmp_path):
        """The third word of every first caption has the top left cell; no other has any."""
        found = targets(annotate(tmp_path, DATA))
        assert found.phrases == 20

        numbers = (0, 2)
        image_ids = [DATA.examples[i].image_id for i in numbers]
        for reference in (0, 1):
            captions = torch.tensor([[*caption(i, reference), PAD] for i in numbers])
            expected = torch.zeros(*captions.shape, 4)
            # The second captions have no phrase with a box.
            if reference == 0:
                expected[:, 2, 0] = 1.0
            assert torch.equal(found.of(image_ids, captions), expected)

    def test_a_box_has_its_share_of_a_cell(self, tmp_path):
        """The left quarter of the photograph is half of both cells on the left."""
        entities = annotate(tmp_path, DATA, (0, 0, 25, 100))
        image_ids = [DATA.examples[0].image_id]
        captions = torch.tensor([caption(0)])
        covers = targets(entities).of(image_ids, captions)
        expected = torch.tensor([0.5, 0.0, 0.5, 0.0])
        torch.testing.assert_close(covers[0, 2], expected)

    def test_images_without_annotations_are_left_out(self, tmp_path):
        entities = annotate(tmp_path, DATA, leave_out=("train-0", "train-1"))
        assert targets(entities).phrases == 18


class TestTraining:
    @pytest.mark.slow
    @pytest.mark.parametrize("attention", ["soft", "hard"])
    def test_maps_move_into_the_boxes(self, tmp_path, attention):
        changes = (
            f"decoder.attention={attention}",
            "decoder.attention_hidden=32",
            "decoder.dropout=0.0",
            "training.epochs=20",
            "training.learning_rate=0.03",
            "training.select=nll",
            "objective.doubly_stochastic=0.0",
        )
        without = tiny.train(tmp_path / "without", *changes)
        entities = annotate(tmp_path / "entities", DATA)
        boxed = tiny.train(tmp_path / "with", *changes, "objective.boxes=2.0", entities=entities)

        # An even map has a quarter in that cell.
        assert in_the_first_cell(without, DATA) < 0.45
        assert in_the_first_cell(boxed, DATA) > 0.55

    def test_it_resumes_with_the_same_boxes_only(self, tmp_path):
        one = annotate(tmp_path / "one", DATA)
        other = annotate(tmp_path / "other", DATA, (50, 50, 100, 100))
        run = tmp_path / "run"
        tiny.train(run, "objective.boxes=1.0", "training.epochs=1", entities=one)
        with pytest.raises(SatlibError, match="other captions or boxes"):
            tiny.train(run, "objective.boxes=1.0", entities=other)


class TestDrop:
    """Places and dimensions that a batch leaves out."""

    def test_vectors_and_boxes_lose_the_same_places(self):
        # Every vector holds its place's number.
        numbers = torch.arange(12.0).expand(3, 12)
        a = numbers.unsqueeze(2).repeat(1, 1, 5)
        torch.manual_seed(0)
        kept, indices = drop_annotations(a, TrainingConfig(drop_places=0.25))

        assert kept.shape == (3, 9, 5)
        places = kept[0, :, 0]
        # They keep their order.
        assert torch.equal(places, places.sort().values)
        assert torch.equal(kept, a[:, places.long()])
        assert torch.equal(indices, places.long())

    def test_a_dimension_is_dropped_in_all_places_of_a_caption(self):
        torch.manual_seed(0)
        ones = torch.ones(200, 6, 50)
        a, _ = drop_annotations(ones, TrainingConfig(drop_dimensions=0.2))
        first = a[:, :1]
        assert torch.equal(a, first.expand_as(a))
        # As dropout does, what is left is divided by the share that is left: 1 / 0.8.
        assert set(first.flatten().tolist()) == {0.0, 1.25}
        dropped = (first == 0).float().mean()
        assert dropped == pytest.approx(0.2, abs=0.02)
