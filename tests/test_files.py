"""What satlib writes as JSON is JSON."""

import math
import os
from pathlib import Path

import numpy as np
import pytest

from satlib.errors import SatlibError
from satlib.files.atomic import write_json, write_text
from satlib.files.reading import read_json


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_a_number_that_json_does_not_have(tmp_path, value):
    path = tmp_path / "evaluation.json"
    write_json(path, {"old": 1})
    with pytest.raises(SatlibError, match=r"cannot write .*evaluation\.json: metrics\.map entropy\.1 is (nan|-?inf)"):
        write_json(path, {"data": "x", "metrics": {"BLEU-1": 1.0, "map entropy": [0.5, value]}})
    assert read_json(path, dict[str, int], "what it was") == {"old": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["evaluation.json"]


def test_a_file_is_written_as_windows_needs_it_too(tmp_path, monkeypatch):
    """There, `os.fsync` refuses what is open for reading alone, and text gets other line breaks unless told otherwise."""
    fcntl = pytest.importorskip("fcntl", reason="asks how a file is open")
    modes, newlines, write = [], [], Path.write_text
    monkeypatch.setattr(os, "fsync", lambda handle: modes.append(fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE))
    monkeypatch.setattr(Path, "write_text", lambda *a, **more: newlines.append(more["newline"]) or write(*a, **more))
    write_text(tmp_path / "lines.txt", "one\ntwo\n")
    assert (tmp_path / "lines.txt").read_bytes() == b"one\ntwo\n"
    assert (modes, newlines) == ([os.O_RDWR], ["\n"])
