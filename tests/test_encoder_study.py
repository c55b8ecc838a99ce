"""`satlib encoders` with a drawn data set of a few images, and encoders with and without weights; `encoder.scale` as measured."""

import urllib.error

import pytest
import tiny
import torch
from torch import nn
from torch.hub import get_dir

from satlib import cli, recipe
from satlib.data import folder, scenes
from satlib.errors import SatlibError
from satlib.evaluation import plots
from satlib.model import encoders
from satlib.model.captioner import Captioner
from satlib.training import encoder_study, loop, scaling

SMALL = (
    "data.min_count=1", "decoder.embedding=16", "decoder.hidden=16", "decoder.attention_hidden=8", "training.batch_size=8",
    "training.epochs=1", "training.average=0", "decoding.beam=1", "decoding.max_length=8",
)  # fmt: skip


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """A folder of a few drawn scenes, and no network."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(plots, "curves_figure", lambda history: plots.Figure(figsize=(0.1, 0.1)))

    def refuse(*arguments, **options):
        raise urllib.error.URLError("no route to host")

    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    folder.save(scenes.load(train=6, dev=2, test=2), tmp_path / "drawn")
    return tmp_path


def test_all_encoders_with_weights_are_in_the_table(drawn, capsys):
    """AlexNet's file is there (with random weights); ResNet-152's is not, and there is no network."""
    from torchvision.models import alexnet

    weights = drawn / "torch" / "hub" / "checkpoints" / "alexnet-owt-7be5be79.pth"
    assert weights.parent == drawn.joinpath(get_dir()) / "checkpoints"
    weights.parent.mkdir(parents=True)
    torch.save(alexnet(weights=None).state_dict(), weights)
    changes = [f"data.name={drawn / 'drawn'}", *SMALL]
    names = ["flickr8k-alexnet-soft", "flickr8k-resnet152-soft", "flickr8k-lite0-soft"]
    call = ["encoders", *names, "--data", str(drawn), "--runs", str(drawn / "runs"), "--device", "cpu"]
    call += [part for change in changes for part in ("--set", change)]
    assert cli.main(call) == 0
    said = capsys.readouterr().out
    assert "satlib: flickr8k-alexnet-soft" in said
    assert "satlib: flickr8k-lite0-soft" in said
    assert "left out: flickr8k-resnet152-soft: cannot download https://" in said
    files = {path: path.stat().st_mtime_ns for path in drawn.glob("runs/*/checkpoint.safetensors")}
    assert {path.parent.name for path in files} == {"flickr8k-alexnet-soft", "flickr8k-lite0-soft"}
    loaded = Captioner.load(drawn / "runs" / "flickr8k-alexnet-soft")
    assert loaded.recipe.encoder.scale > 0  # measured
    assert cli.main(call) == 0  # nothing is trained again
    assert files == {path: path.stat().st_mtime_ns for path in files}


def test_no_weights_at_all(drawn):
    with pytest.raises(SatlibError, match="no encoder has weights here: cannot download"):
        encoder_study.study(["flickr8k-googlenet-soft"], [f"data.name={drawn / 'drawn'}"], drawn, drawn / "runs", "cpu")


def test_encoders_are_compared_frozen(drawn):
    with pytest.raises(SatlibError, match="flickr8k-lite0-tuned trains its encoder"):
        encoder_study.study(["flickr8k-lite0-tuned"], [], drawn, drawn / "runs", "cpu")


def test_the_recipes_differ_in_the_encoder_alone():
    paper = recipe.load("flickr8k-soft").to_dict()
    for name in encoder_study.RECIPES[1:5]:
        other = recipe.load(name).to_dict()
        assert {key for key in paper if key != "name" and paper[key] != other[key]} == {"encoder"}
        assert (other["encoder"]["name"], other["encoder"]["scale"]) == (name.split("-")[1], 0)
        assert other["encoder"]["name"] in encoders.names()


class TestScale:
    @pytest.fixture
    def encoder(self, monkeypatch):
        monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)
        return encoders.create("tiny")

    class Constant:
        """Vectors of one value, and half of them zero: a root mean square of value / sqrt 2."""

        def __init__(self, value):
            self.value = value

        def read(self, image_ids):
            a = torch.full((len(image_ids), 4, 6), self.value)
            a[:, :2] = 0
            return a

    def test_by_hand(self, encoder):
        names = [str(i) for i in range(100)]
        size = scaling.root_mean_square(encoder, self.Constant(8.0), names)
        assert size == pytest.approx(8 / 2**0.5)
        assert scaling.scale_of(size) == 0.18
        assert (
            scaling.with_scale(tiny.the_recipe("encoder.scale=0"), encoder, self.Constant(8.0), names).encoder.scale
            == 0.18
        )

    def test_pixels_go_through_the_encoder(self, encoder):
        class Pixels:
            def read(self, image_ids):
                return torch.zeros(len(image_ids), 3, 224, 224)

        with torch.inference_mode():
            expected = encoder(torch.zeros(1, 3, 224, 224)).square().mean().sqrt().item()
        assert scaling.root_mean_square(encoder, Pixels(), ["a", "b"]) == pytest.approx(expected)

    def test_a_number_is_left_alone(self, encoder):
        chosen = tiny.the_recipe("encoder.scale=0.5")
        assert scaling.with_scale(chosen, encoder, None, []) is chosen

    def test_vectors_of_nothing(self, encoder):
        with pytest.raises(SatlibError, match=r"root mean square of 0\.0; check the encoder"):
            scaling.with_scale(tiny.the_recipe("encoder.scale=0"), encoder, self.Constant(0.0), ["a"])

    def test_a_stream(self, encoder):
        with pytest.raises(SatlibError, match="cannot be measured on a stream"):
            scaling.with_scale(tiny.the_recipe("encoder.scale=0"), encoder, self.Constant(1.0), [])

    def test_a_run_has_the_number_and_goes_on_with_it(self, encoder, tmp_path):
        for epochs in (1, 2):
            chosen = tiny.the_recipe("encoder.scale=0", f"training.epochs={epochs}")
            captioner = loop.train(chosen, tiny.data(), tiny.Reader(), tmp_path, progress=False)
        sizes = tiny.Reader().read([one.image_id for one in tiny.data().split("train")])
        assert captioner.recipe.encoder.scale == scaling.scale_of(sizes.double().square().mean().sqrt().item())

    def test_a_captioner_needs_the_number(self, encoder):
        with pytest.raises(SatlibError, match="is measured when training begins"):
            Captioner(
                tiny.the_recipe("encoder.scale=0"),
                loop.training_data(tiny.data(), tiny.the_recipe()).vocabulary,
                encoder,
            )


def test_satlib_features_prints_the_scale(drawn, capsys):
    call = ["features", "own-folder", "--data", str(drawn), "--device", "cpu"]
    call += ["--set", f"data.name={drawn / 'drawn'}", "--set", "encoder.name=efficientnet-lite0"]
    assert cli.main(call) == 0
    said = capsys.readouterr().out
    assert "root mean square " in said
    assert ": encoder.scale = " in said


def test_the_tiny_network_has_a_batch_normalisation():
    network = tiny.build(True).body.train()
    assert isinstance(network[2], nn.BatchNorm2d)
    encoders.freeze_statistics(network)
    assert not network[2].training
    assert not any(p.requires_grad for p in network[2].parameters())
    assert network[1].training
    assert all(p.requires_grad for p in network[1].parameters())
