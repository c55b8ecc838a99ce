"""Which precision a device trains in; what the device can do is asked, and here answered by hand."""

from types import SimpleNamespace

import pytest
import torch

from satlib.model import device


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that multiplies bf16 itself, or only by emulation."""

    def answers(native):
        def supported(including_emulation=True):
            return native or including_emulation

        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        return torch.device("cuda")

    return answers


CARDS = {"Tesla V100": 7.0, "Tesla T4": 7.5, "A100": 8.0, "L4": 8.9, "H100": 9.0}  # and their compute capability


@pytest.mark.parametrize("card", CARDS)
def test_cards_by_their_compute_capability(monkeypatch, card):
    """torch's own question, with the card's answer: it says yes to bf16 on a T4, unless asked about the hardware."""
    major, minor = divmod(round(10 * CARDS[card]), 10)
    properties = SimpleNamespace(name=card, major=major, minor=minor)
    monkeypatch.setattr(torch.version, "hip", None)
    for name, answer in (("is_available", True), ("current_device", 0), ("get_device_properties", properties)):
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(torch.cuda, "_check_bf16_tensor_supported", lambda _: True)
    assert torch.cuda.is_bf16_supported()
    expected = torch.bfloat16 if major >= 8 else torch.float16
    assert device.precision("auto", torch.device("cuda")) == expected


@pytest.mark.parametrize("name", ["cpu", "mps"])
def test_other_devices_take_float32(name):
    assert device.precision("auto", torch.device(name)) == torch.float32


@pytest.mark.parametrize(
    ("name", "chosen"), [("float32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_name_is_taken_at_its_word(gpu, name, chosen):
    for place in (gpu(True), gpu(False), torch.device("cpu")):
        assert device.precision(name, place) == chosen
