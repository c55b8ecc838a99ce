"""Answers that no teacher hopes for: each gets a clear failure in time, and the next task is as if nothing had been."""

import builtins
import contextlib
import dataclasses
import functools
import io
import math
import os
import random
import re
import subprocess
import sys
import time
import warnings
from collections import Counter

import numpy as np
import pytest
import torch

from satcourse.exercises import Wrong, check, engine, guard, reference, settings, task, watch


@contextlib.contextmanager
def allowed(seconds):
    """The time that an answer to 4.2 has, which a busy machine spends on other programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.chapter(4), "4.2", dataclasses.replace(task("4.2"), seconds=seconds))
        yield


def said(answer, id="4.2", seconds=60.0):
    """The message of the failure; then a right answer must still be right."""
    out = io.StringIO()
    with allowed(seconds), contextlib.redirect_stdout(out), pytest.raises(Wrong) as caught:
        check(id, answer)
    with contextlib.redirect_stdout(io.StringIO()):
        check("4.3", lambda alpha, a: torch.einsum("bl,bld->bd", alpha, a))
        check("4.2", lambda e: torch.softmax(e, 1))
    assert len(str(caught.value).splitlines()) <= 2
    assert len(str(caught.value)) < 300
    return str(caught.value).removeprefix(f"{id} is wrong: "), out.getvalue()


def endless(e):
    while True:
        pass


def stubborn(e):
    while True:
        try:  # noqa: SIM105
            e = e + 1
        except BaseException:
            pass


def asleep(e):
    time.sleep(1000)


@pytest.mark.parametrize("answer", [endless, stubborn, asleep])
def test_an_endless_loop(answer):
    """That there is a message at all says that it was stopped: none of them ends before the test's own time is up."""
    message, _ = said(answer, seconds=0.5)
    assert message == "it did not end within 0.5 s; is there a loop that never stops?"


LATE_ALARMS = """
import signal
from satcourse.exercises import guard

ring = signal.setitimer
# Once its time is up, alarms come so fast that many of them reach the clean-up, as on a machine that does little in 0.2 ms.
signal.setitimer = lambda which, first, then=0.0: ring(which, *((2e-5, 2e-5) if 0 < first < 1e-3 else (first, then)))

def endless():
    while True:
        pass

for _ in range(20):
    try:
        guard.run(endless, None, 0.02)
    except guard.Failed as failed:
        print(failed)
    print(signal.getitimer(signal.ITIMER_REAL))
    signal.raise_signal(signal.SIGALRM)  # one that comes when all is over
print(guard.run(lambda: "right", None, 10.0)[0])
"""


def test_an_alarm_that_rings_during_the_clean_up_does_no_harm():
    """In a process of its own, which such an alarm could end."""
    done = subprocess.run([sys.executable, "-c", LATE_ALARMS], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    failed = ["it did not end within 0.02 s; is there a loop that never stops?", "(0.0, 0.0)"]
    assert done.stdout.splitlines() == [*failed * 20, "right"]


def test_the_time_that_a_stopped_process_has_lost_does_not_count():
    """A right answer in a process that was stopped for longer than its patience (a computer that sleeps, a busy server)."""

    def stopped():
        pid = os.getpid()
        wake = subprocess.Popen(["sh", "-c", f"sleep 0.1; kill -STOP {pid}; sleep 2; kill -CONT {pid}"])
        wake.wait()
        return "right"

    assert guard.run(stopped, None, 0.5)[0] == "right"


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited where the kernel says how much is taken")
@pytest.mark.parametrize(
    "answer",
    [
        lambda e: torch.zeros(2_000_000_000),
        lambda e: [0] * 10**10,
        lambda e: np.ones(10**10),
        lambda e: torch.zeros(10**13),
    ],
)
def test_a_gigantic_tensor(answer):
    assert said(answer)[0].startswith("it needs more than 2 GB of memory")


def test_a_gigantic_view_costs_nothing_and_is_the_wrong_shape():
    assert said(lambda e: torch.zeros(1).expand(10**12))[0] == "wrong shape: expected (2, 5), got (1000000000000,)"


def test_a_print_storm():
    def answer(e):
        while True:
            print("here I am " * 1000)

    message, out = said(answer)
    assert message == "it prints too much: more than 1,000,000 characters"
    assert len(out) < 5000


def test_prints_for_debugging_are_shown():
    def answer(e):
        print("shape:", e.shape)
        return torch.softmax(e, 0)

    message, out = said(answer)
    assert "batch axis" in message
    assert out == "weights() printed: shape: torch.Size([2, 5])\n\n"


def test_torch_replaced_in_the_answer():
    def answer(e):
        torch.softmax = lambda *inputs, **more: 0
        torch.Tensor.sum = lambda *inputs, **more: 0
        builtins.sum = max
        return e

    before = torch.softmax, torch.Tensor.sum, builtins.sum
    message, _ = said(answer)
    assert "torch.softmax" in message
    assert "undone" in message
    assert before == (torch.softmax, torch.Tensor.sum, builtins.sum)
    assert torch.ones(3).sum() == 3


def test_torch_replaced_before_the_check():
    before = math.log
    math.log = lambda x: 0.0
    message, _ = said(lambda e: torch.softmax(e, 1))
    assert message == "math.log had been replaced globally and is restored now; check again"
    assert math.log is before


def test_settings_changed():
    def answer(e):
        torch.set_default_dtype(torch.float64)
        return torch.softmax(e, 1)

    assert said(answer)[0] == "it changes torch's default dtype globally; it has been restored"
    assert torch.get_default_dtype() == torch.float32

    def another(e):
        torch.set_grad_enabled(False)
        return torch.softmax(e, 1)

    assert "gradient mode" in said(another)[0]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda: torch.set_default_device("meta"), "torch's default device"),
        (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "torch's number of threads"),
        (lambda: torch.autograd.set_detect_anomaly(True), "torch's anomaly mode"),
        (lambda: torch.use_deterministic_algorithms(True), "torch's deterministic mode"),
        (lambda: torch.set_float32_matmul_precision("medium"), "torch's precision of matrix products"),
        (lambda: os.chdir("/"), "the working directory"),
    ],
)
def test_other_settings_changed(change, what):
    def answer(e):
        change()
        return reference("4.2")(e)

    assert said(answer)[0] == f"it changes {what} globally; it has been restored"
    assert torch.zeros(1).device.type == "cpu"


MOODS = {
    "double": lambda stack: torch.set_default_dtype(torch.float64),
    "no gradients": lambda stack: torch.set_grad_enabled(False),
    "no_grad": lambda stack: stack.enter_context(torch.no_grad()),
    "inference_mode": lambda stack: stack.enter_context(torch.inference_mode()),
    "default device": lambda stack: torch.set_default_device("meta"),
    "device": lambda stack: stack.enter_context(torch.device("meta")),
    "autocast": lambda stack: stack.enter_context(torch.autocast("cpu")),
    "deterministic": lambda stack: torch.use_deterministic_algorithms(True),
    "bf16 products": lambda stack: torch.set_float32_matmul_precision("medium"),
    "warnings are errors": lambda stack: warnings.simplefilter("error"),
    "numpy raises": lambda stack: np.seterr(all="raise"),
    "seeded": lambda stack: (torch.manual_seed(7), random.seed(7), np.random.seed(7)),
}


@pytest.mark.parametrize("mood", MOODS)
def test_a_right_answer_is_right_whatever_the_notebook_has_set(mood):
    """Every exercise; afterwards the notebook's settings are as it left them."""
    with settings.neutral(), contextlib.ExitStack() as stack:
        MOODS[mood](stack)
        before, filters, drawn = settings.values(), list(warnings.filters), torch.get_rng_state()
        inference = torch.is_inference_mode_enabled()
        for number in engine.CHAPTERS:
            for asked in engine.chapter(number).values():
                with contextlib.redirect_stdout(io.StringIO()):
                    check(asked.id, asked.others[0])
        assert settings.values() == before
        assert torch.is_inference_mode_enabled() == inference
        assert list(warnings.filters) == filters
        assert torch.equal(torch.get_rng_state(), drawn) or mood in ("default device", "device")


@pytest.mark.parametrize("mood", MOODS)
def test_a_wrong_answer_has_the_same_message_whatever_the_notebook_has_set(mood):
    asked = task("6.4")  # compares gradients
    for message, mistake in asked.mistakes.items():
        with settings.neutral(), contextlib.ExitStack() as stack:
            MOODS[mood](stack)
            with pytest.raises(Wrong) as caught:
                check("6.4", mistake)
        assert str(caught.value) == f"6.4 is wrong: {message}"


def test_the_double_precision_of_a_notebook_is_no_mischief_of_the_answers():
    """torch replaces torch.Storage then; that was taken for a function that the answer had replaced."""
    with settings.neutral():
        torch.set_default_dtype(torch.float64)
        assert watch.put_back() == []


def test_settings_of_python_are_put_back():
    before = os.getcwd(), sys.getrecursionlimit(), np.geterr(), list(warnings.filters)

    def answer(e):
        os.chdir("/"), sys.setrecursionlimit(5000), np.seterr(all="raise"), warnings.simplefilter("error")
        return torch.softmax(e, 0)

    said(answer)
    assert before == (os.getcwd(), sys.getrecursionlimit(), np.geterr(), list(warnings.filters))


def test_operators_and_libraries_replaced():
    def answer(e):
        torch.Tensor.__sub__ = lambda *inputs: 0
        Counter.update = lambda *inputs, **more: None
        re.findall = lambda *inputs: []
        return e

    message, _ = said(answer)
    assert message == "it replaces re.findall, Tensor.__sub__, Counter.update globally; this has been undone"
    assert (torch.ones(1) - torch.ones(1)).item() == 0
    assert Counter("aab") == {"a": 2, "b": 1}
    assert re.findall("a", "aa") == ["a", "a"]


def test_what_torch_replaces_itself_is_no_mischief(monkeypatch):
    """Its compiler, once loaded, puts a wrapper of its own in the place of torch.manual_seed."""

    @functools.wraps(torch.manual_seed)
    def wrapper(seed):
        return None

    monkeypatch.setattr(torch, "manual_seed", wrapper)
    assert watch.put_back() == []


def test_random_numbers_are_not_disturbed():
    def answer(e):
        torch.manual_seed(5), random.seed(5), np.random.seed(5)
        torch.rand(3)
        return torch.softmax(e, 0)

    states = torch.get_rng_state(), random.getstate()
    said(answer)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()


def test_nan():
    assert said(lambda e: torch.softmax(e, 1) * torch.nan)[0].startswith("NaN at [0, 0], where 0.")


def test_the_input_itself():
    assert said(lambda e: e)[0] == "it returns its input e unchanged"


def test_the_input_changed():
    def answer(e):
        e -= e.max(1, keepdim=True).values
        return torch.softmax(e, 1)

    assert said(answer)[0].startswith("it changes its input e: work on a copy")


def test_an_error_names_the_learners_own_line():
    def answer(e):
        places = e.shape[5]
        return places  # noqa: RET504

    message, _ = said(answer)
    assert message.startswith("it raises IndexError: tuple index out of range")
    assert message.endswith("in line 2 of answer: places = e.shape[5]")


def test_an_error_in_a_helper_names_the_helpers_line():
    def helper(e):
        return e.shape[5]

    message, _ = said(lambda e: helper(e))
    assert message.endswith("in line 2 of helper: return e.shape[5]")


def test_leaving_the_program():
    assert said(lambda e: sys.exit(3))[0].startswith("it raises SystemExit: 3")


def test_deep_recursion():
    def answer(e):
        return answer(e)

    assert said(answer)[0].startswith("it raises RecursionError")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda e: None if e.shape[0] else 0, "expected a tensor of shape (2, 5), got None; is a return missing?"),
        (lambda e: "0.2", "expected a tensor of shape (2, 5), got a str"),
        (lambda e: torch.softmax(e, 1).tolist(), "expected a tensor of shape (2, 5), got a list"),
        (lambda e: torch.softmax(e, 1)[:, :2], "wrong shape: expected (2, 5), got (2, 2)"),
        (lambda e: torch.softmax(e, 1) * 2, "the weights do not sum to one over the places: a sum is 2"),
        (lambda a, b: a, "it raises TypeError: "),
        (5, "weights is an int, not a function"),
    ],
)
def test_the_wrong_thing(answer, message):
    assert said(answer)[0].startswith(message)


def test_a_wrong_value_says_where_and_by_how_much():
    def answer(e):
        alpha = torch.softmax(e, 1)
        alpha[1, 1] += 0.0004
        return alpha

    assert said(answer)[0].startswith("wrong value at [1, 1]: expected ")


@pytest.mark.parametrize("body", ["...", "pass", "return None", "return ...", "raise NotImplementedError", "'a word'"])
def test_all_kinds_of_blank(body):
    names = {}
    exec(f"def weights(e):\n    {body}", names)
    with pytest.raises(Wrong, match=r"^4\.2 is blank: write weights\(\)$") as caught:
        check("4.2", names["weights"])
    assert caught.value.blank


def test_a_line_left_blank():
    def answer(e):
        alpha = ...
        return alpha.sum(1)

    with pytest.raises(Wrong, match=r"is blank"):
        check("4.2", answer)


def test_ipython_shows_the_message_alone():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("from satcourse.exercises import check")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        shell.run_cell("check('4.2', lambda e: e.softmax(0))")
    lines = [line for line in out.getvalue().splitlines() if line.strip()]
    assert lines == [
        "\x1b[31m4.2 is wrong: softmax over the batch axis: the weights of one image must sum to 1 over its places\x1b[0m"
    ]


def test_no_such_exercise():
    with pytest.raises(Exception, match=r"no exercise '4\.99'"):
        check("4.99", reference("4.2"))
    with pytest.raises(Exception, match=r"notebook 44 has no exercises"):
        reference("44.1")
