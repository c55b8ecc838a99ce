"""Exported graphs say what the model says: on pictures, in any number of rows, with given light."""

import hashlib
import json

import numpy as np
import pytest
import tiny
import torch

from satlib import cli
from satlib.data import images, scenes
from satlib.data.text import END, UNKNOWN
from satlib.model.captioner import Captioner
from satlib.page import export

onnxruntime = pytest.importorskip("onnxruntime", reason="needs pip install onnxruntime")
onnx = pytest.importorskip("onnx", reason="ONNX needs pip install 'satlib[page]'")
pytest.importorskip("onnxscript", reason="ONNX needs pip install 'satlib[page]'")
EXAMPLES = scenes.load(1, 1, 10).split("test")
PHOTOS = [scenes.scene(example.image_id).photo() for example in EXAMPLES]


class Exported:
    """An exported model, run as a program without PyTorch runs it."""

    def __init__(self, folder):
        self.encoder = onnxruntime.InferenceSession(str(folder / "encoder.onnx"))
        self.decoder = onnxruntime.InferenceSession(str(folder / "step.onnx"))
        self.manifest = json.loads((folder / "manifest.json").read_text())
        for name, file in self.manifest["files"].items():
            content = (folder / name).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            assert digest == file["sha256"]

    def encode(self, photo):
        """a, keys, h, c."""
        square = images.square(photo)
        pixels = images.to_tensor(square).unsqueeze(0).float()  # (1, 3, 224, 224)
        return self.encoder.run(None, {"pixels": pixels.numpy()})

    def step(self, a, keys, h, c, words, light=None):
        """log_p, alpha, beta, h, c."""
        if light is None:
            # No light is given: the attention's own.
            size = (len(words), a.shape[1])
            light = np.zeros(size, np.float32)
        inputs = {
            "a": a,
            "keys": keys,
            "h": h,
            "c": c,
            "words": np.array(words),
            "light": light,
        }
        return self.decoder.run(None, inputs)

    def greedy(self, photo):
        """The ids of the words and their maps."""
        a, keys, h, c = self.encode(photo)
        longest = self.manifest["decoding"]["max_length"]
        repeatable = self.manifest["repeatable"]
        words = [-1]
        alphas = []
        while words[-1] != END:
            log_p, alpha, _, h, c = self.step(a, keys, h, c, words[-1:])
            alphas.append(alpha[0])

            log_p[:, UNKNOWN] = -np.inf
            if repeatable is not None:
                used = [word for word in words[1:] if word not in repeatable]
                log_p[:, used] = -np.inf
            if len(words) <= longest:
                words.append(int(log_p[0].argmax()))
            else:
                words.append(END)
        return words[1:-1], np.stack(alphas)


@pytest.fixture(scope="module", params=["scenes-soft", "hard", "none"])
def model(request):
    """A shipped model, and tiny ones with the other kinds of decoder."""
    if request.param == "scenes-soft":
        return Captioner.load(request.param)
    changes = []
    if request.param == "none":
        # With the options that the others do not have.
        changes = ["decoder.output_tanh=true", "decoding.no_repeat=true"]
    return tiny.decided(request.param, changes=changes)


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    # Translating takes seconds, so it is done once. A storage changes the graphs: float32, which
    # leaves the weights alone, comes first.
    graphs = list(export._graphs(model))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export, "_graphs", lambda _: graphs)
        for kind in ("float32", "int8"):
            export.export(model, folder / kind, kind)
    return folder


@pytest.fixture(scope="module")
def exported(folders):
    return Exported(folders / "float32")


def test_captions_and_maps_are_those_of_pytorch(model, folders, exported):
    """To the digit in float32; in 8 bits, with a third of the bytes, nearly."""
    small = Exported(folders / "int8")
    captions = model.caption(PHOTOS, beam=1)

    same = 0
    for photo, right in zip(PHOTOS, captions, strict=True):
        words, alphas = exported.greedy(photo)
        text = " ".join(right.words)
        assert words == model.vocabulary.encode(text)
        np.testing.assert_allclose(alphas, right.alphas.flatten(1), atol=1e-5)

        of_small, _ = small.greedy(photo)
        if of_small == words:
            same += 1
    # Rounded weights may change a word where two are about equally probable.
    assert same >= 0.9 * len(PHOTOS)

    sizes = {}
    for name in ("float32", "int8"):
        files = (folders / name).iterdir()
        sizes[name] = sum(file.stat().st_size for file in files)
    # A tiny model has hardly any matrix that is large enough.
    if model.recipe.name != "tiny":
        assert sizes["int8"] < 0.45 * sizes["float32"]


def test_rows_do_not_touch_each_other(exported):
    a, keys, first, _ = exported.encode(PHOTOS[0])
    generator = np.random.default_rng(5)
    size = (5, first.shape[1])
    h = np.tanh(generator.normal(size=size)).astype(np.float32)
    c = np.tanh(generator.normal(size=size)).astype(np.float32)
    words = [-1, 0, 5, 7, 9]
    # The last row is lit; the sum need not be 1.
    light = np.zeros((5, a.shape[1]), np.float32)
    light[-1, 3] = 2.0

    together = exported.step(a, keys, h, c, words, light)

    for row in range(5):
        one = slice(row, row + 1)  # keeps the axis
        alone = exported.step(a, keys, h[one], c[one], words[one], light[one])
        for values, whole in zip(alone, together, strict=True):
            np.testing.assert_allclose(values, whole[one], atol=1e-5)
    alpha = together[1]
    assert alpha[-1, 3] == 1.0


def test_light_by_hand(model, exported):
    """Under given light, z is the weighted mean of the annotation vectors, by the equations."""
    a, keys, h, c = exported.encode(PHOTOS[1])
    light = np.zeros((1, a.shape[1]), np.float32)
    light[0, [1, 3]] = 1.0, 3.0
    output = exported.step(a, keys, h, c, [-1], light)

    decoder = model.decoder
    with torch.inference_mode():
        a = torch.from_numpy(a)
        h = torch.from_numpy(h)
        c = torch.from_numpy(c)
        # Light of 1 and 3 is a quarter and three quarters of the whole.
        z = 0.25 * a[:, 1] + 0.75 * a[:, 3]
        if decoder.gate:
            beta = torch.sigmoid(decoder.gate(h))
        else:
            beta = torch.ones(1, 1)

        # Before the first word, the embedding is zero.
        embedded = torch.zeros(1, decoder.config.embedding)
        gates = decoder.gates_word(embedded) + decoder.gates_state(h)
        gates = gates + decoder.gates_context(beta * z)

        # Equations 1 to 3.
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        log_p = torch.log_softmax(decoder.logits(embedded, h, beta * z), 1)

    expected = (log_p, torch.from_numpy(light) / 4, beta[:, 0], h, c)
    for values, right in zip(output, expected, strict=True):
        np.testing.assert_allclose(values, right, atol=1e-4)


def test_the_command_replaces_an_earlier_export_and_nothing_else(tmp_path, capsys, monkeypatch):
    # Tracing takes seconds, and no graph is run here.
    monkeypatch.setattr(export, "_traced", lambda *_: onnx.ModelProto())
    model = tmp_path / "model.safetensors"
    tiny.decided().save(model)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine.txt").write_text("keep")
    command = ["export", str(model), "--onnx", str(folder)]
    assert cli.main(command) == 2
    assert "is not empty" in capsys.readouterr().err

    # A manifest says that the folder is an earlier export.
    (folder / "manifest.json").write_text("{}")
    assert cli.main(command) == 0
    assert {file.name for file in folder.iterdir()} == {
        "encoder.onnx",
        "step.onnx",
        "vocabulary.json",
        "manifest.json",
    }
    assert {file.name for file in tmp_path.iterdir()} == {"model.safetensors", "folder"}
