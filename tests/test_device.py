"""Which precision a device trains in; what the device can do is asked, and here answered by hand."""

from types import SimpleNamespace

import pytest
import torch

from satlib import cli
from satlib.model import agreement, device


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


class TestAuto:
    """MPS is taken only if it computes what the CPU computes; here its numbers are the CPU's, as they are or with a fault."""

    @pytest.fixture
    def mac(self, monkeypatch):
        def made(fault):
            cpu = agreement.values
            monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
            monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
            monkeypatch.setattr(agreement, "values", lambda kind: cpu("cpu") if kind == "cpu" else fault(cpu("cpu")))
            agreement.difference.cache_clear()

        yield made
        agreement.difference.cache_clear()

    @staticmethod
    def one_gradient_zero(numbers):
        numbers[-1].zero_()
        return numbers

    @staticmethod
    def one_not_a_number(numbers):
        numbers[5].view(-1)[0] = torch.nan
        return numbers

    @staticmethod
    def not_implemented(numbers):
        raise NotImplementedError("the operator is not implemented for the MPS device")

    def test_mps_that_agrees_is_taken(self, mac, capsys):
        mac(lambda numbers: [each * (1 + 1e-4) for each in numbers])
        assert device.choose("auto").type == "mps"
        assert capsys.readouterr().err == ""
        assert cli.main(["info", "--device", "mps"]) == 0
        assert (
            "agrees with the CPU: loss and gradients of one batch differ by at most 0.0001 of"
            in capsys.readouterr().out
        )

    @pytest.mark.parametrize("fault", ["one_gradient_zero", "one_not_a_number", "not_implemented"])
    def test_mps_with_a_fault_is_left(self, mac, capsys, fault):
        mac(getattr(self, fault))
        assert device.choose("auto").type == "cpu"
        assert "MPS computes something else than the CPU here" in capsys.readouterr().err
        assert device.choose("mps").type == "mps"  # who asks for it gets it
        assert cli.main(["info", "--device", "mps"]) == 0
        assert "\nmps        does not agree with the CPU: " in capsys.readouterr().out

    def test_the_batch_trains_encoder_attention_and_decoder(self):
        """A fault in any of them shows: no weight is without a gradient."""
        assert len(agreement.values("cpu")) == 1 + sum(1 for _ in agreement.model(agreement.WORDS).parameters())
        assert agreement.difference("cpu") == 0
