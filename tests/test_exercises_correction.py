"""Mistakes that are named by a change of the solution that makes them."""

import re

import torch
from right_answers import RIGHT
from test_exercises import verdict

from satcourse.checks import calls, changes, correction, engine, reference, task
from satcourse.checks.engine import chapter


def lstm(Ey, h, c, z, W, U, Z, b, order="ifgo", gate=torch.sigmoid, new=torch.tanh):
    rows = Ey @ W.T + h @ U.T + z @ Z.T + b
    parts = dict(zip(order, rows.chunk(4, 1), strict=True))
    i, f, g, o = (parts[name] for name in "ifgo")
    c = gate(f) * c + gate(i) * torch.tanh(g)
    return gate(o) * new(c), c


def bare(x):
    return x


def stepped(x, a, h, c, Ey, ungated_logits=False, late_gate=False):
    """One word of 4.5, with the gate where one puts it by mistake."""
    e = reference("4.1")(a, h, x.W_a.weight, x.W_h.weight, x.W_a.bias, x.v.weight[0])
    z, alpha = reference("4.3")(e, a)
    gated = z if late_gate else x.f_beta(h).sigmoid() * z
    h, c = reference("4.4")(Ey, h, c, gated, x.W.weight, x.U.weight, x.Z.weight, x.W.bias)
    if late_gate:
        gated = x.f_beta(h).sigmoid() * z
    logits = x.L_o(Ey + x.L_h(h) + x.L_z(z if ungated_logits else gated))
    return logits, alpha, h, c


def written(x, a, captions, hands_on=True, reads=True):
    h, c, Ey = x.start(a)
    outputs = []
    for y in captions.T:
        logits, alpha, new_h, new_c = reference("4.5")(x, a, h, c, Ey)
        outputs.append((logits, alpha))
        if hands_on:
            h, c = new_h, new_c
        if reads:
            Ey = x.E(y)
    logits, alphas = zip(*outputs, strict=True)
    return torch.stack(logits, 1), torch.stack(alphas, 1)


def over_the_batch(e, a):
    alpha = e.softmax(0)
    return (alpha[..., None] * a).sum(1), alpha


def unshared(alphas):
    """5.5, with a word's whole light for its share."""
    light = alphas.sum(1)
    right = reference("5.5")(alphas)
    right[:, 0] = 100 * (light < 0.5 / light.shape[1]).float().mean(1)
    return right


def looks_of_another_half(alpha, own):
    C, L = alpha.shape
    diagonal = ((torch.arange(C) + 1) * L / C).long()
    return alpha.argmax(1) == own, diagonal == own


# Of each kind of change: (the exercise, the answer, what is said of its numbers).
EXAMPLES = [
    # Another axis.
    ("12.2", lambda log_p, r: -((r - r.mean(0)) * log_p).mean(), "with the mean over axis 0"),
    # A function left out, once and everywhere; another one.
    ("4.4", lambda *x: lstm(*x, new=bare), "without the tanh of c"),
    ("4.4", lambda *x: lstm(*x, gate=bare), "without any sigmoid"),
    ("5.5", unshared, "with the sum in place of the mean of alphas"),
    # A part left out, another operation, no sign.
    (
        "6.3",
        lambda log_p, r, b: -((r + b).detach() * log_p).mean(),
        "with a sum in place of the difference",
    ),
    (
        "6.3",
        lambda log_p, r, b: -(r.detach() * log_p).mean(),
        "with baseline left out of the difference",
    ),
    ("6.3", lambda log_p, r, b: ((r - b).detach() * log_p).mean(), "without the minus sign"),
    # Two exchanged; one in place of another.
    ("4.4", lambda *x: lstm(*x, order="figo"), "with i and f exchanged"),
    (
        "4.3",
        lambda e, a: (torch.einsum("bl,bld->bd", e, a), e.softmax(1)),
        "with e in place of alpha",
    ),
    # Another number.
    ("1.6", looks_of_another_half, "with 1 in place of 0.5"),
    # A line left out, variables that stay as they were.
    ("4.6", lambda *x: written(*x, reads=False), "without the new Ey"),
    ("4.6", lambda *x: written(*x, hands_on=False), "without the new c and h"),
    # A value of before, or of after.
    ("4.5", lambda *x: stepped(*x, ungated_logits=True), "with logits from the old z"),
    ("4.5", lambda *x: stepped(*x, late_gate=True), "with beta from the new h"),
]


def test_an_example_of_each_kind_of_change():
    for id, answer, words in EXAMPLES:
        text = verdict(id, answer)
        assert text.startswith(f"{id} is wrong: These are the numbers {words} ("), text


def test_the_known_mistake_of_a_function_that_the_solution_calls():
    message = next(iter(task("4.2").mistakes))
    assert verdict("4.3", over_the_batch).startswith(f"4.3 is wrong: as in 4.2: {message} (")


def test_of_several_omissions_the_one_nearest_to_the_surface_is_said():
    """Without `jump *= stride` the numbers are also those without the factor `jump`, inside the
    line before it, and with `jump` in place of `stride`, inside the line itself.
    """

    def without_jumps(layers):
        return 1 + sum(kernel - 1 for kernel, _ in layers)

    exercise = task("2.2")
    expected = [without_jumps(*case) for case in exercise.cases()]
    agreeing = []
    for sentence, variant in correction._variants(exercise, exercise.reference, 0):
        try:
            found = [calls.run(lambda: variant(*case), 1.0) for case in exercise.cases()]  # noqa: B023
        except calls.Failed:
            continue
        if found == expected:
            agreeing.append(sentence.removeprefix("These are the numbers "))

    assert agreeing[0] == "without the new jump"
    assert {"with jump left out of the product", "with jump in place of stride"} <= {*agreeing}
    assert "the numbers without the new jump (" in verdict("2.2", without_jumps)


def test_what_was_left_out_is_said_before_what_was_exchanged():
    """Each answer's numbers are also those of an exchange, or of another function, nearer to the
    surface.
    """

    def half_of_all(alphas):
        right = reference("5.5")(alphas)
        right[:, 0] = 100 * (alphas.mean(1) < 0.5).float().mean(1)
        return right

    for id, answer, words in (
        ("12.2", lambda log_p, r: ((r - r.mean(1, keepdim=True)) * log_p).mean(), "the minus sign"),
        ("8.2", lambda p, share: p / p.sum(), "the cumsum of order and p"),
        ("5.5", half_of_all, "L left out of the quotient"),
    ):
        beginning = f"{id} is wrong: These are the numbers with(out)? {words} "
        assert re.match(beginning, verdict(id, answer)), verdict(id, answer)


def test_nothing_is_exchanged_with_itself_and_an_axis_keeps_its_sign():
    texts = []
    for id in ("4.5", "11.1"):
        texts += [words for words, _ in changes.changes(task(id), task(id).reference)]
    assert not [text for text in texts if re.search(r"with (.+) (and|in place of) \1\b", text)]

    # That of minus infinity; the axis -1 is another axis without it.
    assert texts.count("without the minus sign") == 1
    assert "with the softmax over axis 1" in texts


def test_what_is_true_of_some_cases_only_is_not_said():
    def exchanged_in_batches_of_two(*x):
        return lstm(*x, order="figo" if len(x[0]) == 2 else "ifgo")

    assert "exchanged" not in verdict("4.4", exchanged_in_batches_of_two)


def test_the_search_begins_with_a_wrong_answer_that_nothing_else_explains(monkeypatch):
    searched = []
    monkeypatch.setattr(engine, "first_change", lambda task, agrees: searched.append(task.id))
    for exercise in chapter(3).values():
        for answer in [*RIGHT[exercise.id], *exercise.mistakes.values()]:
            verdict(exercise.id, answer)
    # A few truths are explained by chance.
    verdict("9.7", lambda ours, theirs: False)
    assert searched == []

    verdict("4.4", lambda *x: lstm(*x, new=bare))
    assert searched == ["4.4"]


def test_no_more_than_one_run_where_a_search_would_be_slow_or_unsafe(monkeypatch):
    runs = []

    def agrees(function):
        runs.append(function)
        return False

    # A loop that may never end; a file; and no time at all.
    for id in ("1.2", "9.6"):
        assert correction.first_change(task(id), agrees) is None
    monkeypatch.setattr(correction, "SLOWEST", -1)
    assert correction.first_change(task("4.4"), agrees) is None
    assert runs == [reference(id) for id in ("1.2", "9.6", "4.4")]

    monkeypatch.setattr(correction, "SLOWEST", 9)
    monkeypatch.setattr(correction, "SECONDS", -1)
    assert correction.first_change(task("4.4"), agrees) is None
    assert runs[3:] == [reference("4.4")]


def test_every_change_of_every_solution_is_a_function_and_said_in_the_tasks_names():
    solutions = [exercise for number in engine.CHAPTERS for exercise in chapter(number).values()]
    for exercise in solutions:
        for sentence, variant in correction._variants(exercise, exercise.reference, 0):
            assert callable(variant)
            assert "None" not in sentence.partition("as in ")[0]


def test_without_the_source_a_check_works_as_before(monkeypatch):
    def lost(function):
        raise OSError

    monkeypatch.setattr("inspect.getsource", lost)
    assert "wrong value" in verdict("4.4", lambda *x: lstm(*x, new=bare))
