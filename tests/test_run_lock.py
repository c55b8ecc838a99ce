"""A run's folder belongs to one process; whoever stops a process gets it back at once."""

import os
import signal
import time

import pytest
import tiny
from runs import differences

from satlib.errors import SatlibError
from satlib.evaluation import evaluate
from satlib.training import loop, validation
from satlib.training.checkpoint import locked


def test_a_folder_belongs_to_one_process_until_it_ends(tmp_path):
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with locked(tmp_path / "run"):
            os.write(writing, b"held")
            signal.pause()
    assert os.read(reading, 4) == b"held"
    try:
        with pytest.raises(SatlibError, match="run is in use by another process"):
            tiny.train(tmp_path / "run")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    for _ in range(2):  # it is given back after a mistake too
        with pytest.raises(ZeroDivisionError), locked(tmp_path / "run"):
            raise ZeroDivisionError


def test_stopped_while_dev_captions_are_generated_is_as_never_stopped(tmp_path, monkeypatch):
    """The signal comes in the middle of the second epoch's captions; what is not finished by then waits for a minute."""
    generate, judged = evaluate.generate, []

    def slow(*arguments, **options):
        judged.append(None)
        if len(judged) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        return generate(*arguments, **options)

    tiny.train(tmp_path / "whole")
    monkeypatch.setattr(validation, "generate", slow)
    began = time.monotonic()
    with pytest.raises(loop.Interrupted, match="the same command resumes"):
        tiny.train(tmp_path / "stopped")
    assert time.monotonic() - began < 30
    tiny.train(tmp_path / "stopped")
    assert differences(tmp_path / "whole", tmp_path / "stopped") == []


def test_sigterm_ends_any_command_as_ctrl_c_does(tmp_path, capsys, monkeypatch):
    from satlib import cli

    def waits(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setitem(cli.COMMANDS, "info", (waits, ()))
    assert cli.main(["info"]) == 130
    assert capsys.readouterr().err == "satlib: interrupted; finished work is kept\n"
    assert signal.getsignal(signal.SIGTERM) == before
