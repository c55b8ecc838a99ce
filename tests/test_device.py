"""Which precision a device trains in; what the device can do is asked, and here answered by hand."""

import pytest
import torch

from satlib import device


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that multiplies bf16 itself, or only by emulation."""

    def answers(native):
        def supported(including_emulation=True):
            return native or including_emulation

        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        return torch.device("cuda")

    return answers


@pytest.mark.parametrize(("native", "chosen"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_by_what_it_does_itself(gpu, native, chosen):
    assert device.precision("auto", gpu(native)) == chosen


@pytest.mark.parametrize("name", ["cpu", "mps"])
def test_other_devices_take_float32(name):
    assert device.precision("auto", torch.device(name)) == torch.float32


@pytest.mark.parametrize(
    ("name", "chosen"), [("float32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_name_is_taken_at_its_word(gpu, name, chosen):
    for place in (gpu(True), gpu(False), torch.device("cpu")):
        assert device.precision(name, place) == chosen
