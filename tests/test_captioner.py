"""A captioner comes back from its file as it was; every other file is refused in one line that
says why.
"""

import json
import math

import pytest
import tiny
import torch
from refusals import refused
from torch.testing import assert_close

from satlib.data.text import Vocabulary
from satlib.errors import SatlibError
from satlib.files import read_safetensors, write_safetensors
from satlib.model import encoders
from satlib.model.captioner import Caption, Captioner

WORDS = Vocabulary(["a", "red", "circle", "square", "on", "the", "left", "blue"])
PHOTOS = [tiny.draw(example) for example in tiny.data().examples[:5]]


def first_maps(captioner):
    """The first word's map for each photograph."""
    return torch.stack([caption.alphas[0] for caption in captioner.caption(PHOTOS)])


@pytest.fixture
def captioner():
    return tiny.decided()


def error(path):
    return refused(lambda: Captioner.load(path))


class TestFile:
    def test_float32_is_exact(self, captioner, tmp_path):
        file = tmp_path / "model.safetensors"
        captioner.save(file)
        state = captioner.state_dict()

        # A run's folder stands for the model in it.
        for path in (file, tmp_path, str(tmp_path)):
            loaded = Captioner.load(path)
            assert not loaded.training
            assert loaded.vocabulary.words == WORDS.words
            assert loaded.recipe == captioner.recipe

            found = loaded.state_dict()
            assert state.keys() == found.keys()
            assert all(torch.equal(value, state[name]) for name, value in found.items())

    @pytest.mark.parametrize("trained", [False, True])
    def test_a_frozen_encoder_is_shared_and_a_trained_one_is_the_files(self, tmp_path, trained):
        """Its weights in the file never go into the encoder that other models use."""
        captioner = tiny.decided(changes=[f"encoder.train={trained}".lower()])
        shared = encoders.create("tiny")
        if trained:
            torch.nn.init.ones_(captioner.encoder.body[1].weight)
        captioner.save(tmp_path / "model.safetensors")

        before = shared.weights_hash
        loaded = Captioner.load(tmp_path, encoder=shared)
        assert (loaded.encoder is shared) == (not trained)
        assert shared.weights_hash == before
        assert loaded.encoder.weights_hash == captioner.encoder.weights_hash

    @pytest.mark.parametrize(
        ("storage", "least", "most"), [("float16", 0.45, 0.7), ("int8", 0.2, 0.6)]
    )
    def test_smaller_storage_has_a_bounded_error(self, captioner, tmp_path, storage, least, most):
        whole = tmp_path / "whole.safetensors"
        small = tmp_path / "small.safetensors"
        captioner.save(whole)
        captioner.save(small, storage)

        # The header, with its recipe and words, is as long in both; only the rest shrinks.
        header = len(json.dumps(read_safetensors(small)[0]))
        share = (small.stat().st_size - header) / (whole.stat().st_size - header)
        assert least < share < most

        loaded = Captioner.load(small)
        for name, value in captioner.decoder.state_dict().items():
            if storage == "float16" or value.dim() < 2:
                # Half a unit in the last of 11 bits, or in that of the smallest numbers.
                bound = value.abs() * 2**-11 + 2**-24
            else:
                # Half a step; a step is a row's greatest number over 127.
                greatest = value.abs().amax(1, keepdim=True)
                bound = (greatest / 254 * 1.001).expand_as(value)
            found = loaded.decoder.state_dict()[name]
            assert found.dtype == value.dtype
            assert ((found - value).abs() <= bound).all(), name

        tolerance = 1.0 if storage == "int8" else 0.05
        for one, other in zip(captioner.caption(PHOTOS), loaded.caption(PHOTOS), strict=True):
            near = pytest.approx(other.log_probability, abs=tolerance)
            assert one.log_probability == near

    @pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
    def test_a_trained_encoder_is_inside(self, tmp_path, storage):
        chosen = tiny.the_recipe("encoder.train=true", "encoder.pretrained=false")
        made = Captioner(chosen, WORDS, encoders.create("tiny", pretrained=False))
        # Away from what `create` gives, so that an encoder made anew is noticed.
        with torch.no_grad():
            for value in (*made.encoder.parameters(), made.encoder.body[2].running_mean):
                value.add_(1.0)

        made.save(tmp_path / "model.safetensors", storage)
        loaded = Captioner.load(tmp_path)
        found = loaded.encoder.state_dict()
        for name, value in made.encoder.state_dict().items():
            assert_close(found[name], value, rtol=0.01, atol=0.02)
        assert_close(first_maps(made), first_maps(loaded), rtol=0.05, atol=0.01)


class TestRefusals:
    def test_missing(self, tmp_path):
        assert "does not exist; train one with: satlib train RECIPE" in error(tmp_path / "nothing")
        assert "model.safetensors does not exist" in error(tmp_path)

    def test_other_weights_of_the_encoder(self, captioner, tmp_path, monkeypatch):
        captioner.save(tmp_path / "model.safetensors")
        monkeypatch.setitem(encoders._BUILDERS, "tiny", lambda pretrained: tiny.build(False))
        assert "was trained with other weights of tiny than those installed" in error(tmp_path)


def spoil(path, change, recipe=None, encoder=None):
    """Change the tensors and the recipe in a file's header, as a hostile hand might."""
    header, tensors = read_safetensors(path)
    change(tensors)
    for section, values in (recipe or {}).items():
        header["recipe"][section] |= values
    header["encoder"] |= encoder or {}
    write_safetensors(path, tensors, header)


def widen(tensors):
    tensors["decoder.gates_state.weight"] = torch.zeros(64, 17)


class TestHostileFiles:
    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            (lambda t: t.update(extra=torch.zeros(3)), "holds other weights"),
            (lambda t: t.pop("decoder.output.bias"), "holds other weights"),
            (widen, "holds other weights"),
            (lambda t: t.pop("decoder.output.weight:scale"), "lacks the scales of its rows"),
            (
                lambda t: t.update({"decoder.output.weight:scale": torch.ones(3)}),
                "lacks the scales of its rows",
            ),
        ],
    )
    def test_other_tensors(self, captioner, tmp_path, change, reason):
        file = tmp_path / "model.safetensors"
        captioner.save(file, "int8")
        spoil(file, change)
        assert f"{file}" in error(file)
        assert reason in error(file)
        assert "copy it again" in error(file)

    @pytest.mark.parametrize(
        ("section", "option", "value"),
        [
            ("decoding", "beam", 10**6),
            ("decoding", "max_length", 10**9),
            ("decoder", "hidden", 10**9),
            ("decoder", "embedding", 10**12),
        ],
    )
    def test_sizes_beyond_memory(self, captioner, tmp_path, section, option, value):
        captioner.save(tmp_path / "model.safetensors")
        spoil(tmp_path / "model.safetensors", lambda _: None, {section: {option: value}})
        assert f"{section}.{option} is int" in error(tmp_path)

    def test_a_size_that_no_tensor_has(self, captioner, tmp_path, monkeypatch):
        """Within the limits, but gigabytes in all: nothing is made of that size."""
        captioner.save(tmp_path / "model.safetensors")
        spoil(tmp_path / "model.safetensors", lambda _: None, {"decoder": {"hidden": 9999}})
        monkeypatch.setattr(Captioner, "__init__", lambda *_: pytest.fail("was built"))
        assert "holds other weights" in error(tmp_path)

    def test_encoders(self, captioner, tmp_path):
        file = tmp_path / "model.safetensors"
        captioner.save(file)
        for name in ("tiny@100000", "tiny@0", f"tiny@{'9' * 5000}", "tiny@"):
            spoil(file, lambda _: None, encoder={"name": name, "weights": None})
            assert "needs a side of 1 to 1,999 pixels" in error(file)

        # A file whose encoder would be its own, without end.
        spoil(file, lambda _: None, encoder={"name": f"model:{file}"})
        assert "names another model's encoder" in error(file)
        # And one that says that it has an encoder, and has none.
        spoil(file, lambda _: None, encoder={"name": "tiny"})
        refused(lambda: encoders.create(f"model:{file}"), "does not hold the weights of tiny")


class TestNotFinite:
    @pytest.mark.parametrize(
        ("storage", "value"),
        [
            ("float32", math.nan),
            ("int8", -math.inf),
            ("float16", 1e5),
            ("int8", 1e5),
        ],
    )
    def test_is_not_written(self, captioner, tmp_path, storage, value):
        """float16 ends at 65,504; vectors are in float16 in int8 files, too."""
        with torch.no_grad():
            captioner.decoder.output.bias[1] = value
        with pytest.raises(SatlibError, match=r"decoder\.output\.bias"):
            captioner.save(tmp_path / "model.safetensors", storage)
        assert not list(tmp_path.iterdir())


class TestCaption:
    def test_maps_are_distributions_on_the_grid(self, captioner):
        for caption in captioner.caption(PHOTOS, beam=3):
            # A map for each word and one for the end mark.
            steps = len(caption.words) + 1
            assert caption.alphas.shape == (steps, 2, 2)
            assert caption.betas.shape == (steps,)
            assert_close(caption.alphas.sum((1, 2)), torch.ones(steps))
            assert ((caption.betas >= 0) & (caption.betas <= 1)).all()
            assert caption.log_probability < 0
            assert caption.text.split() == caption.words

    def test_the_confidence_is_the_geometric_mean_with_the_end_mark(self):
        # Two words and the end mark: the third root of .008 is .2.
        log_p = math.log(0.5 * 0.2 * 0.08)
        maps = torch.ones(3, 1, 1)
        caption = Caption(["a", "dog"], log_p, maps, maps[:, 0, 0])
        assert caption.confidence == pytest.approx(0.2)

    @pytest.mark.parametrize("beam", [1, 3])
    def test_a_batch_says_what_each_alone_says(self, captioner, beam):
        together = captioner.caption(PHOTOS, beam=beam)
        alone = [captioner.caption([photo], beam=beam)[0] for photo in PHOTOS]

        assert [c.words for c in together] == [c.words for c in alone]
        # Sums in batches of another size are rounded otherwise.
        for one, other in zip(together, alone, strict=True):
            assert one.log_probability == pytest.approx(other.log_probability, abs=1e-4)
            assert_close(one.alphas, other.alphas, atol=1e-5, rtol=1e-4)

    def test_training_goes_on_in_training_mode(self, captioner):
        captioner.train()
        captioner.caption(PHOTOS[:1])
        assert captioner.training
        assert captioner.decoder.training
        # A frozen encoder never trains, so its statistics stay as they are.
        assert not captioner.encoder.training
