"""A run's folder belongs to one process; whoever stops a process gets it back at once."""

import os
import signal
import subprocess
import sys
import time

import pytest
import tiny

from satlib.errors import SatlibError
from satlib.evaluation import evaluate, plots
from satlib.model import encoders
from satlib.training import loop, validation
from satlib.training.run_lock import OWNER, locked

HOLD = "import sys; from pathlib import Path; from satlib.training.run_lock import locked\nwith locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"


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


def test_a_live_owner_is_named(tmp_path, holder):
    with pytest.raises(SatlibError, match=rf"run is in use by process {holder.pid} on .+, since \d{{4}}-.*--out"):
        loop.train(tiny.the_recipe(), tiny.data(), tiny.Reader(), tmp_path / "run", progress=False)
    assert {file.name for file in (tmp_path / "run").iterdir()} == {".lock", OWNER}


def test_the_lock_of_a_killed_owner_is_taken_over(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "run" / OWNER).is_file()
    with locked(tmp_path / "run"):
        pass
    assert not (tmp_path / "run" / OWNER).exists()


def test_it_is_given_back_after_a_mistake(tmp_path):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), locked(tmp_path):
            raise ZeroDivisionError


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SatlibError, match="choose another folder with --out"), locked(tmp_path / "file" / "run"):
        pass


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_while_dev_captions_are_generated_is_as_never_stopped(tmp_path, monkeypatch, number):
    """The signal comes in the middle of the second epoch's captions; what is not finished by then waits for a minute."""
    monkeypatch.setitem(encoders._BUILDERS, "tiny", tiny.build)
    monkeypatch.setattr(plots, "curves_figure", lambda history: plots.Figure(figsize=(0.1, 0.1)))
    generate, judged = evaluate.generate, []

    def slow(*arguments, **options):
        judged.append(None)
        if len(judged) == 2:
            os.kill(os.getpid(), number)
            time.sleep(60)
        return generate(*arguments, **options)

    def train(folder):
        return loop.train(tiny.the_recipe(), tiny.data(), tiny.Reader(), tmp_path / folder, progress=False)

    whole = train("whole").state_dict()
    monkeypatch.setattr(validation, "generate", slow)
    began = time.monotonic()
    with pytest.raises(loop.Interrupted, match="stopped while epoch 2 was judged; the same command resumes it"):
        train("stopped")
    assert time.monotonic() - began < 30
    resumed = train("stopped").state_dict()
    assert all(resumed[name].equal(value) for name, value in whole.items())


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
