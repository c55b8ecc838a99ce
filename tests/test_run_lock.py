"""A run's folder belongs to one process; whoever stops a process gets it back at once."""

import os
import signal
import subprocess
import sys
import time

import pytest
import tiny
from runs import differences

from satlib.errors import SatlibError
from satlib.evaluation import evaluate
from satlib.training import loop, validation
from satlib.training.checkpoint import locked

HOLD = "import sys; from pathlib import Path; from satlib.training.checkpoint import locked\nwith locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder `run`."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_folder_belongs_to_one_process_until_it_ends(tmp_path, holder):
    with pytest.raises(SatlibError, match=r"run is in use by another process; .*--out"):
        tiny.train(tmp_path / "run")
    holder.kill()
    holder.wait()
    for _ in range(2):  # it is given back after a mistake too
        with pytest.raises(ZeroDivisionError), locked(tmp_path / "run"):
            raise ZeroDivisionError
    assert not any((tmp_path / "run").iterdir())


def test_a_folder_that_cannot_be_created(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SatlibError, match="choose another folder with --out"), locked(tmp_path / "file" / "run"):
        pass


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
    with pytest.raises(loop.Interrupted, match="stopped while epoch 2 was judged; the same command resumes it"):
        tiny.train(tmp_path / "stopped")
    assert time.monotonic() - began < 30
    tiny.train(tmp_path / "stopped")
    assert differences(tmp_path / "whole", tmp_path / "stopped") == []


def test_sigterm_ends_any_command_as_ctrl_c_does(tmp_path, capsys, monkeypatch):
    from satlib.cli import doctor, main

    def waits(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(doctor, "report", waits)
    assert main(["info"]) == 130
    assert capsys.readouterr().err == "satlib: interrupted; finished work is kept\n"
    assert signal.getsignal(signal.SIGTERM) == before
