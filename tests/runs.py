"""Comparing the folders of two training runs bit by bit."""

import json

from satlib.model.captioner import read_safetensors
from satlib.training.checkpoint import CHECKPOINT
from satlib.training.loop import LOG, MODEL

# The entry that differs even between two runs of the same command.
CLOCK = "seconds"


def differences(one, other):
    """Names of tensors, entries and files that differ; empty if all bits agree, timings aside."""
    here = contents(one)
    there = contents(other)
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def contents(run):
    """What a run's folder holds, by name."""
    found = {}
    for path in run.iterdir():
        if path.suffix in (".toml", ".json"):
            found[path.name] = path.read_bytes()
        else:
            # Of a picture or a log only the presence counts; the log's lines follow.
            found[path.name] = True

    lines = (run / LOG).read_text().splitlines()
    found[LOG] = without_clock([json.loads(line) for line in lines])

    for file in (CHECKPOINT, MODEL):
        header, tensors = read_safetensors(run / file)
        for key, value in header.items():
            found[f"{file}: {key} of its header"] = without_clock(value)
        for key, value in tensors.items():
            # As bytes, because 0.0 and -0.0 compare as equal.
            found[f"{file}: {key}"] = (value.dtype, value.shape, value.numpy().tobytes())
    return found


def without_clock(value):
    """A value from a log or header without its timings."""
    if isinstance(value, dict):
        return {key: without_clock(entry) for key, entry in value.items() if key != CLOCK}
    if isinstance(value, list):
        return [without_clock(entry) for entry in value]
    return value
