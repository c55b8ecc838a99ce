"""Exported graphs say what the model says: on drawn scenes and photographs, for any number of rows, with light given by hand."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from satlib import recipe
from satlib.cli import main
from satlib.data import images, scenes
from satlib.data.text import END, UNKNOWN, Vocabulary
from satlib.errors import SatlibError
from satlib.model import search, shipped
from satlib.model.captioner import Captioner
from satlib.model.encoders import create
from satlib.page import export, storage
from satlib.page.reader import MANIFEST, STEP, WORDS, Exported, pixels_of

pytest.importorskip("onnxruntime", reason="ONNX needs pip install 'satlib[page]'")
pytest.importorskip("onnxscript", reason="ONNX needs pip install 'satlib[page]'")
import onnx

SCENES = [example.image_id for example in scenes.load(1, 1, 12).split("test")]


@pytest.fixture(scope="module", params=["scenes-soft", "scenes-hard", "flickr8k-lite0-soft"])
def model(request):
    return Captioner.load(shipped.model(request.param))


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    folder, graphs = tmp_path_factory.mktemp("onnx"), list(export._graphs(model))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_graphs", lambda _: graphs)  # translated once; the second storage changes them
        for kind in ("float32", "int8"):
            export.export(model, folder / kind, kind)
    return folder


@pytest.fixture(scope="module")
def exported(folders):
    return Exported(folders / "float32")


@pytest.fixture(scope="module")
def soft(tmp_path_factory):
    """As the command writes it over an earlier export."""
    folder = tmp_path_factory.mktemp("soft") / "model"
    folder.mkdir()
    (folder / MANIFEST).write_text("{}")
    assert main(["export", "scenes-soft", "--onnx", str(folder), "--storage", "int8"]) == 0
    return folder


def pytorch(model, photo):
    batch = images.to_tensor(images.square(photo, model.view)).unsqueeze(0)
    with torch.inference_mode():
        return search.greedy(model.decoder, model.annotations(batch.float()), model.recipe.decoding.max_length)[0]


def test_captions_are_those_of_pytorch(model, exported):
    for name in SCENES:
        photo = scenes.scene(name).photo()
        right, spoken = pytorch(model, photo), exported.greedy(photo)
        assert spoken.words == right.words
        assert exported.text(spoken) == " ".join(model.vocabulary.decode(right.words))
        assert spoken.log_probability == pytest.approx(right.log_probability, abs=1e-4)
        np.testing.assert_allclose(spoken.alphas, right.alphas, atol=1e-5)


def test_small_files_say_almost_the_same(model, folders):
    small = Exported(folders / "int8")
    words_off, maps_off = export.differences(model, small)
    assert words_off < 0.1
    assert maps_off < 0.01
    bytes_of = [sum(file.stat().st_size for file in (folders / name).iterdir()) for name in ("float32", "int8")]
    assert bytes_of[1] < 0.45 * bytes_of[0]


def test_weights_of_an_8_bit_model_come_back_exactly(folders):
    """The decoder that comes with satlib is stored in 8 bits, so 8 bits lose nothing of it."""
    if json.loads((folders / "int8" / MANIFEST).read_text())["model"] != "flickr8k-lite0-soft":
        pytest.skip("only the photographs' model is stored in 8 bits")
    whole, small = (onnx.load(folders / name / STEP) for name in ("float32", "int8"))
    stored = {each.name: onnx.numpy_helper.to_array(each) for each in small.graph.initializer}
    compared = 0
    for each in whole.graph.initializer:
        if f"{each.name}.scale" in stored:
            values = stored[f"{each.name}.small"].astype(np.float32) * stored[f"{each.name}.scale"]
            right = onnx.numpy_helper.to_array(each)
            np.testing.assert_allclose(values, right, atol=1e-6 * np.abs(right).max())
            compared += right.size
    assert compared > 8e6


def test_rows_do_not_touch_each_other(exported):
    rows = 5
    seen = exported.encode(pixels_of(scenes.scene(SCENES[0]).photo(), exported.manifest.image.view))
    generator = np.random.default_rng(rows)
    L = seen["a"].shape[1]
    h, c = (np.tanh(generator.normal(size=(rows, seen["h"].shape[1]))).astype(np.float32) for _ in "hc")
    words = [-1, 0, 5, 7, 9]
    light = np.zeros((rows, L), np.float32)
    light[-1, 3] = 2.0  # its sum need not be 1
    together = exported.step(seen, h, c, words, light)
    for row in range(rows):
        alone = exported.step(seen, h[row : row + 1], c[row : row + 1], words[row : row + 1], light[row : row + 1])
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one[row : row + 1], other, atol=1e-5)
    assert together[1][-1, 3] == 1.0


def test_light_by_hand(model, exported):
    """The context vector under given light is the weighted mean of the annotation vectors: computed here from the equations."""
    photo = scenes.scene(SCENES[1]).photo()
    seen = exported.encode(pixels_of(photo, model.view))
    light = np.zeros((1, seen["a"].shape[1]), np.float32)
    light[0, [4, 11]] = 1.0, 3.0
    got = exported.step(seen, seen["h"], seen["c"], [-1], light)
    decoder = model.decoder
    with torch.inference_mode():
        a, h, c = (torch.from_numpy(seen[name]) for name in ("a", "h", "c"))
        z = 0.25 * a[:, 4] + 0.75 * a[:, 11]
        beta = torch.sigmoid(decoder.gate(h)) if decoder.gate else torch.ones(1, 1)
        embedded = torch.zeros(1, decoder.config.embedding)
        parts = decoder.gates_word(embedded) + decoder.gates_state(h) + decoder.gates_context(beta * z)
        i, f, g, o = parts.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        log_p = torch.log_softmax(decoder.logits(embedded, h, beta * z), 1)
    for value, right in zip(got, (log_p, torch.from_numpy(light) / 4, beta[:, 0], h, c), strict=True):
        np.testing.assert_allclose(value, right, atol=1e-4)


def test_the_command_replaces_an_earlier_export(soft):
    assert Exported(soft).manifest.storage == "int8"
    assert [file.name for file in soft.parent.iterdir()] == ["model"]


def test_light_on_the_other_object_names_that_one(soft):
    """The first object is named first; with the light on the second, the model begins with that one.

    We compare colours: most places of a shape show none of its outline, so with the light on all of them, it is often misnamed.
    """
    exported = Exported(soft)
    named = tried = 0
    for name in SCENES:
        scene = scenes.scene(name)
        first, second = scene.objects
        if first.colour == second.colour:
            continue
        picture, masks = scene.render()
        seen = exported.encode(pixels_of(picture, "whole"))
        side = exported.manifest.grid[0]
        grid = np.array(Image.fromarray(masks[1].astype(np.uint8) * 255).resize((side, side), Image.Resampling.BOX))
        light = (grid / grid.sum()).reshape(1, -1).astype(np.float32)
        words, h, c = [-1], seen["h"], seen["c"]
        while words[-1] != END and len(words) < 8:
            log_p, _, _, h, c = exported.step(seen, h, c, words[-1:], light)
            log_p[:, UNKNOWN] = -np.inf
            words.append(int(log_p[0].argmax()))
        said = exported.vocabulary.decode(words[1:])
        colours = [word for word in said if word in scenes.grammar.COLOURS]
        tried += 1
        named += colours[:1] == [second.colour]
    assert tried >= 6
    assert named >= 0.9 * tried, f"{named} of {tried}"


def test_a_model_that_knows_its_training_set_gives_the_distance(model, exported):
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (300, 200, 3), np.uint8))
    batch = images.to_tensor(images.square(noise, model.view)).unsqueeze(0)
    distance = exported.encode(pixels_of(noise, model.view))["distance"]
    if model.familiarity is None:
        assert exported.manifest.unlike_above is None
        assert distance == -1
    else:
        right = model.familiarity.distances(model.encoded(batch))
        np.testing.assert_allclose(distance, right, atol=1e-4)
        assert exported.manifest.unlike_above == model.familiarity.threshold


def small(attention="soft", **settings):
    sets = [f"decoder.attention={attention}", *(f"decoder.{name}={value}" for name, value in settings.items())]
    made = recipe.load("scenes-soft", sets)
    torch.manual_seed(0)
    return Captioner(made, Vocabulary(["a", "dog", "runs"]), create("small", pretrained=False)).eval()


@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "none"},
        {"energy": "concat"},
        {"energy": "general", "output_tanh": "true"},
        {"energy": "dot", "hidden": 128},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_every_kind_of_decoder(settings, tmp_path):
    export.export(small(**settings), tmp_path / "made")  # it compares with PyTorch


class TestBadInput:
    def test_a_graph_that_differs_is_not_written(self, tmp_path, monkeypatch):
        right = storage.shrunk

        def spoilt(graph, storage):
            for each in graph.graph.initializer:
                values = onnx.numpy_helper.to_array(each)
                if values.dtype == np.float32 and values.size > 1000:
                    each.CopyFrom(onnx.numpy_helper.from_array(-values, each.name))
                    break
            return right(graph, storage)

        monkeypatch.setattr(export, "shrunk", spoilt)
        with pytest.raises(SatlibError, match=r"differ from the model: log p by up to .*; nothing was written"):
            export.export(small(), tmp_path / "made")
        assert list(tmp_path.iterdir()) == []

    def test_another_folder_is_left_alone(self, tmp_path):
        (tmp_path / "mine.txt").write_text("keep")
        with pytest.raises(SatlibError, match="is not empty, and holds no earlier export"):
            export.export(small(), tmp_path)
        assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]

    def test_sampled_places(self, tmp_path):
        made = recipe.load("scenes-hard", ["decoding.look=sample"])
        model = Captioner(made, Vocabulary(["a"]), create("small", pretrained=False))
        with pytest.raises(SatlibError, match="only expected ones can be exported"):
            export.export(model, tmp_path / "made")
        export.require_exportable(tiny.decided(changes=["decoding.look=sample"]))  # which soft attention does not do

    def test_files_that_are_not_those_of_an_export(self, soft, tmp_path):
        with pytest.raises(SatlibError, match="holds no exported model; make one with: satlib export MODEL --onnx"):
            Exported(tmp_path)
        copy = shutil.copytree(soft, tmp_path / "copy")
        manifest = json.loads((copy / MANIFEST).read_text())
        (copy / WORDS).write_bytes((copy / WORDS).read_bytes()[:-10])
        with pytest.raises(SatlibError, match=f"{WORDS} is missing or not what manifest.json says; export again"):
            Exported(copy)
        (copy / MANIFEST).write_text(json.dumps(manifest | {"format": "satlib onnx 7"}))
        with pytest.raises(SatlibError, match=r"format: invalid enum value 'satlib onnx 7'.*; export again"):
            Exported(copy)

    def test_without_the_packages(self, tmp_path):
        missing = "onnxscript"
        code = (
            "import sys; sys.modules[sys.argv[1]] = None\n"
            "from satlib.cli import main\n"
            "sys.exit(main(['export', 'scenes-soft', '--onnx', sys.argv[2]]))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, missing, str(tmp_path / "made")], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert f"this needs {missing}; run: pip install 'satlib[page]'" in done.stderr
        assert list(tmp_path.iterdir()) == []
