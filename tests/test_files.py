"""What satlib writes as JSON is JSON."""

import math

import numpy as np
import pytest

from satlib.errors import SatlibError
from satlib.files.atomic import write_json
from satlib.files.reading import read_json


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float64("nan")])
def test_a_number_that_json_does_not_have(tmp_path, value):
    path = tmp_path / "evaluation.json"
    write_json(path, {"old": 1})
    with pytest.raises(SatlibError, match=r"cannot write .*evaluation\.json: metrics\.map entropy\.1 is (nan|-?inf)"):
        write_json(path, {"data": "x", "metrics": {"BLEU-1": 1.0, "map entropy": [0.5, value]}})
    assert read_json(path, dict[str, int], "what it was") == {"old": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["evaluation.json"]
