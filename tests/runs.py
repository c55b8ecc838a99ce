"""Comparing the folders of two training runs bit by bit."""

import json

from satlib.model.captioner import read_safetensors
from satlib.training.checkpoint import CHECKPOINT
from satlib.training.loop import LOG, MODEL

CLOCK = ("seconds", "tokens_per_second")


def differences(one, other):
    """Names of tensors, of entries and of files that differ; empty if all bits agree. Timings are not compared."""
    here, there = contents(one), contents(other)
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def contents(run):
    """What a run's folder holds, by name; tensors as bytes, because 0.0 and -0.0 compare as equal."""
    found = {
        path.name: path.read_bytes() for path in run.iterdir() if path.suffix in (".toml", ".json")
    }
    found |= {path.name: True for path in run.iterdir() if path.name not in found}
    found[LOG] = without_clock([json.loads(line) for line in (run / LOG).read_text().splitlines()])
    for file in (CHECKPOINT, MODEL):
        header, tensors = read_safetensors(run / file)
        found |= {
            f"{file}: {key} of its header": without_clock(value) for key, value in header.items()
        }
        found |= {
            f"{file}: {key}": (value.dtype, value.shape, value.numpy().tobytes())
            for key, value in tensors.items()
        }
    return found


def without_clock(value):
    """A value from a log or header without its timings."""
    if isinstance(value, dict):
        return {key: without_clock(entry) for key, entry in value.items() if key not in CLOCK}
    return [without_clock(entry) for entry in value] if isinstance(value, list) else value
