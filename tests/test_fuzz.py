"""300 changed files of all kinds that satlib reads; `python tools/fuzz.py --cases 10000` tries more."""

import random

import pytest
from tools_path import fuzz, fuzz_kinds

from satlib.errors import SatlibError

SHARE = 18  # cases of each kind: 300 in all


@pytest.mark.parametrize("kind", fuzz_kinds.KINDS)
def test_strangers_files(kind):
    results = fuzz.fuzz([kind], SHARE)[kind]
    assert results.problems == []
    assert sum(results.outcomes.values()) == SHARE
    assert results.outcomes["refused"] >= 3


def test_there_are_300():
    assert SHARE * len(fuzz_kinds.KINDS) >= 300


def fuzzed(use, cases=12, cut=True):
    """The problems of cases on a file of 100 bytes, used by a function."""
    kind = fuzz_kinds.Kind(lambda folder: (folder / "a.txt").write_bytes(bytes(range(100))), use, ("a.txt",), cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fuzz_kinds.KINDS, "made up", kind)
        return fuzz.fuzz(["made up"], cases)["made up"].problems


class TestWhatIsAProblem:
    def test_a_bare_error(self):
        calls = []

        def use(folder, _):
            calls.append(folder)
            if len(calls) > 1:
                raise KeyError("x")

        assert all("bare KeyError: 'x'" in problem for problem in fuzzed(use))

    def test_a_cut_file_that_is_accepted(self):
        assert {problem.partition(": ")[2].partition(" at")[0] for problem in fuzzed(lambda *_: None, 60)} == {"cut"}
        assert fuzzed(lambda *_: None, 60, cut=False) == []

    def test_a_file_outside_and_a_half_written_one(self, tmp_path):
        def outside(folder, _):
            (tmp_path / "escaped").write_text("x")

        def partly(folder, _):
            if (folder / "a.txt").read_bytes() != bytes(range(100)):
                (folder / ".out.partial").write_text("x")
                raise SatlibError("no")

        assert all(f"open {tmp_path / 'escaped'}" in problem for problem in fuzzed(outside))
        assert fuzzed(outside)
        assert any(".out.partial" in problem for problem in fuzzed(partly))

    def test_what_takes_too_long(self, monkeypatch):
        monkeypatch.setattr(fuzz, "SECONDS", 0.05)
        first = iter([True])

        def use(folder, _):
            while not next(first, False):
                pass

        assert all("over 0.05 s" in problem for problem in fuzzed(use, 2))

    def test_advice_of_more_than_a_line(self):
        first = iter([True])

        def use(folder, _):
            if not next(first, False):
                raise SatlibError("one\ntwo")

        assert all("without one line of advice" in problem for problem in fuzzed(use, 2))


def test_changes_of_json_change_something():
    """Every change leaves JSON that differs; all ways occur."""
    import json

    value = {"a": [1, {"b": "c"}], "d": {"e": 2.5}}
    said = set()
    for seed in range(200):
        done, content = fuzz_kinds._json(json.dumps(value).encode(), random.Random(seed))
        said |= {way for way in ("replaced", "left out", "doubled", "kind changed") if way in done}
        assert json.loads(content) != value or "replaced" in done
    assert len(said) == 4
