"""Which precision a device trains in."""

import torch

from satlib.model import installed


def test_an_encoder_that_trains_on_a_gpu_takes_16_bits_and_all_else_float32(monkeypatch):
    for native, chosen in ((True, torch.bfloat16), (False, torch.float16)):

        def supported(including_emulation=True, native=native):
            # torch says yes to bf16 on a T4, which only emulates it.
            return native or including_emulation

        monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
        assert installed.precision("auto", torch.device("cuda"), True) == chosen

        for name, trains in (("cuda", False), ("cpu", True), ("mps", True)):
            assert installed.precision("auto", torch.device(name), trains) == torch.float32
