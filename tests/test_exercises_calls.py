"""What a check says of answers that fail, and what it leaves as it was."""

import contextlib
import io
import sys

import pytest
import torch
from right_answers import RIGHT

from satcourse.checks import Wrong, calls, check, reference, task
from satlib.errors import SatlibError


def failure(answer, id="4.2"):
    """The message of the failure."""
    with pytest.raises(Wrong) as caught:
        check(id, answer)
    return str(caught.value).removeprefix(f"{id} is wrong: ")


def test_an_endless_loop():
    def endless():
        while True:
            pass

    message = r"^it did not end within 0\.05 s; is there a loop that never stops\?$"
    with pytest.raises(calls.Failed, match=message):
        calls.run(endless, 0.05)
    # And the next one is not interrupted by what was set for this one.
    assert calls.run(lambda: "right", 0.05) == "right"


def test_the_settings_of_a_notebook_change_no_verdict_and_stay_as_they_are():
    with contextlib.ExitStack() as stack:
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_default_device, None)
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        stack.enter_context(torch.inference_mode())
        state = torch.default_generator.get_state().tolist()

        # Values, states, a training step, gradients.
        for id in ("4.1", "4.4", "4.7", "6.3"):
            with contextlib.redirect_stdout(io.StringIO()):
                check(id, RIGHT[id][0])
        message, mistake = next(iter(task("6.3").mistakes.items()))
        assert failure(mistake, "6.3") == message

        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == "meta"
        assert torch.is_inference_mode_enabled()
        assert torch.default_generator.get_state().tolist() == state


def test_settings_that_an_answer_changes_are_put_back():
    def answer(C, L):
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_default_device("meta")
        torch.manual_seed(5)
        return 0.0

    state = torch.get_rng_state()
    assert "0 is possible only" in failure(answer, "5.1")
    assert torch.get_default_dtype() == torch.float32
    assert torch.zeros(1).device.type == "cpu"
    assert torch.is_grad_enabled()
    assert torch.equal(state, torch.get_rng_state())


# Wrong answers to exercise 4.2, which asks for a softmax over axis 1. In the first one, what raises
# is a line of its own, because the message quotes it.


def own_line(e):
    places = e.shape[5]
    return places  # noqa: RET504


def in_place(e):
    e -= e.max(1, keepdim=True).values
    return torch.softmax(e, 1)


def one_value(e):
    # A single weight of sixteen is wrong.
    alpha = torch.softmax(e, 1) + 0
    alpha[1, 1] += 0.0004
    return alpha


FAILURES = (
    (
        own_line,
        "it raises IndexError: tuple index out of range, "
        "in line 2 of own_line: places = e.shape[5]",
    ),
    (lambda e: sys.exit(3), "it raises SystemExit: 3"),
    (lambda e: e, "it returns its input e unchanged"),
    (in_place, "it changes its input e: work on a copy"),
    (
        lambda e: None if e.shape[0] else 0,
        "expected a tensor of shape (4, 4), got None; is a return missing?",
    ),
    (
        one_value,
        "it does not sum to 1 over axis 1, but to 1.0004 (wrong value at [1, 1]: expected ",
    ),
    (lambda e: e.softmax(1) * torch.nan, "not a number, or infinite"),
    (lambda e: e.softmax(1)[None], "an axis of size 1 too many"),
    (lambda e: e.softmax(1).mT, "axes swapped: they are in the order (1, 0)"),
    (lambda e: e.log_softmax(1), "this is the logarithm of what is asked for"),
    (lambda e: e + 0, "a softmax over axis 1 is missing"),
    (lambda e: e.softmax(1).sum(0), "a sum over axis 0 too many"),
    (lambda e: e.softmax(1).roll(1, 1), "one place too late along axis 1"),
    (lambda e: 0 * e + e.softmax(1).detach(), "no gradient reaches e: left out, or detached?"),
    (lambda e: e.softmax(1) + e - e.detach(), "the values are right, but not the gradients"),
    (5, "weights is an int, not a function"),
)


@pytest.mark.parametrize(("answer", "message"), FAILURES)
def test_what_is_said_of_a_failure(answer, message):
    assert failure(answer).startswith(message)


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        # On lines of their own: a message quotes the line that raised.
        (
            lambda e: e @ e.new_zeros(3, 2),
            "must be as long as the right one's first; with e (4, 4)",
        ),
        (
            lambda e: e / e.new_ones(3),
            "or in another place; with e (4, 4)",
        ),
        (
            lambda e: torch.stack([]),
            "the loop did not run, or did not append",
        ),
        (
            lambda e: e - e.max(1),
            "along an axis give two things, the values and their places",
        ),
        # What torch itself does not implement is no stub.
        (
            lambda e: (e > 0).mean(1),
            "truths and whole numbers have no mean: .float() makes numbers of them",
        ),
        (
            lambda e: max(x for x, y in [e.unbind()]),
            "there are not as many parts, or axes, as names for them",
        ),
    ],
)
def test_what_to_do_about_an_exception(answer, hint):
    assert hint in failure(answer)


def test_all_kinds_of_blank():
    for body in (
        "...",
        "pass",
        "return None",
        "return ...",
        "raise NotImplementedError",
        # A blank inside of what is given.
        "x = ...; return x.sum(1)",
    ):
        names = {}
        exec(f"def weights(e):\n    {body}", names)
        assert failure(names["weights"]) == "4.2 is blank: write weights()"


def test_ipython_shows_the_message_alone():
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell("from satcourse.checks import check")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        shell.run_cell("check('4.2', lambda e: e.softmax(0))")
    message = "softmax over the batch axis: an image's weights must sum to 1"
    # In red; a traceback would show the learner satlib's own lines.
    assert out.getvalue().strip() == f"\x1b[31m4.2 is wrong: {message}\x1b[0m"


def test_no_such_exercise():
    with pytest.raises(SatlibError, match=r"no exercise '4\.99'"):
        reference("4.99")
    with pytest.raises(SatlibError, match="there is no notebook 44"):
        reference("44.1")
