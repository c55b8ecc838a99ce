"""Which precision a device trains in."""

import pytest
import torch

from satlib.model import device


@pytest.mark.parametrize("name", ["cpu", "mps"])
def test_other_devices_take_float32(name):
    assert device.precision("auto", torch.device(name)) == torch.float32


@pytest.mark.parametrize(("native", "chosen"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_takes_bf16_only_if_its_hardware_has_it(monkeypatch, native, chosen):
    """torch itself says yes on a T4, which emulates bf16 more slowly than it computes float32."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: native or including_emulation)
    assert device.precision("auto", torch.device("cuda")) == chosen
