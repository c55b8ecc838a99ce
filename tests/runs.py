"""Comparing the folders of two training runs bit by bit."""

import json

from satlib.model.captioner import read_safetensors
from satlib.training.checkpoint import CHECKPOINT
from satlib.training.loop import LOG, MODEL

CLOCK = ("seconds", "tokens_per_second")


def differences(one, other):
    """Names of tensors, of entries and of files that differ; empty if all bits agree. Timings are not compared."""
    names, others = ({path.name for path in run.iterdir()} for run in (one, other))
    differing = [f"{name} is in one of them only" for name in sorted(names ^ others)]
    for name in sorted({CHECKPOINT, MODEL} & names & others):
        (header, tensors), (other_header, other_tensors) = (read_safetensors(run / name) for run in (one, other))
        keys = sorted(tensors.keys() | other_tensors.keys())
        differing += [f"{name}: {key}" for key in keys if bits(tensors.get(key)) != bits(other_tensors.get(key))]
        entries, other_entries = without_clock(header), without_clock(other_header)
        keys = sorted(entries.keys() | other_entries.keys())
        differing += [f"{name}: {key} of its header" for key in keys if entries.get(key) != other_entries.get(key)]
    if LOG in names & others:
        logs = [[json.loads(line) for line in (run / LOG).read_text().splitlines()] for run in (one, other)]
        differing += [LOG] if without_clock(logs[0]) != without_clock(logs[1]) else []
    for name in sorted({"recipe.toml", "vocabulary.json"} & names & others):
        differing += [name] if (one / name).read_bytes() != (other / name).read_bytes() else []
    return differing


def bits(tensor):
    """What two equal tensors share; 0.0 and -0.0, which compare as equal, differ."""
    return tensor if tensor is None else (tensor.dtype, tensor.shape, tensor.numpy().tobytes())


def without_clock(value):
    """A value from a log or header without its timings."""
    if isinstance(value, dict):
        return {key: without_clock(entry) for key, entry in value.items() if key not in CLOCK}
    return [without_clock(entry) for entry in value] if isinstance(value, list) else value
