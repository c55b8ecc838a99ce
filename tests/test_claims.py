"""tools/claims.py: what holds a notebook's prose. It is shown planted faults."""

import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import claims  # noqa: E402

import notebooks  # noqa: E402


def notebook(*cells):
    """Markdown for a string; for a pair, a code cell and what it printed."""
    made = []
    for cell in cells:
        if isinstance(cell, str):
            made.append(nbformat.v4.new_markdown_cell(cell))
        else:
            code, printed = cell
            made.append(nbformat.v4.new_code_cell(code, outputs=[nbformat.v4.new_output("stream", text=printed)]))
    return nbformat.v4.new_notebook(cells=made)


def found(*cells):
    return [(claim.text, claim.basis) for claim in claims.claims(notebook(*cells))]


def test_a_number_is_shown_or_chosen_or_nothing_holds_it():
    for said, printed, basis in (
        ("The loss is 0.31.", "loss 0.3138", "shown in cell 1"),
        ("The loss is 0.32.", "loss 0.3138", None),
        ("They are right in 94 % of all cases.", "share 0.939", "shown in cell 1"),
        ("They are right in 94 of all cases.", "share 0.939", None),
        ("It has 30,000 captions.", "30000 captions", "shown in cell 1"),
        ("It has 40,000 captions.", "30000 captions", None),
        ("It learns for 12 epochs.", "", "chosen in cell 1"),
        ("It learns for 13 epochs.", "", None),
    ):
        ((_, held),) = found(said, ("epochs = 12", printed))
        assert held == basis, said
    # Small numbers of another section hold nothing, and long ones do.
    other = found("# One", ("run()", "7 and 61.93"), "# Two\n\nThere are 7. BLEU is 61.9.")
    assert other == [("7", None), ("61.9", "shown in cell 1")]


def test_a_comparison_needs_an_assertion_that_quotes_it():
    for sentence in (
        "Soft attention is faster than hard attention.", "It is as good as the other.", "The first is the lowest of all.",
        "Both are exactly right.", "The error falls.", "Three words in four are right.", "This never happens.",
    ):  # fmt: skip
        quote, other = sentence.rstrip(".").lower(), "something else is said here"
        for code, held in ((f"assert a < b, {quote!r}", "asserted in cell 1"), (f"assert a < b, {other!r}", None)):
            ((_, basis),) = found(sentence, (code, ""))
            assert basis == held, sentence


def test_what_claims_nothing():
    head = "# 1. T\n\n**You will be able to**\n\n- do 17 things faster than before.\n\n**Minutes**: 9 to read"
    for text in (
        "VGG-19 of 2014", "see section 3.1.2 and equations 4 and 5", "`x = 31` and $y = 17$", "Is it 31 or 17?",
        "The rest of the test split is of interest, rather than the forest.", head,
        "## Try it\n\nSet it to 5.\n\n## References\n\n- pages 17 to 31",
    ):  # fmt: skip
        assert found(text) == [], text
    assert found(head, "## Try it\n\nSet it to 5.\n\n## What to remember\n\nIt is 17.") == [("17", None)]


def test_a_mark_holds_the_words_that_it_quotes_and_sources_are_listed_at_the_end():
    cells = notebook(
        "# 0. T\n\n<!-- source: a year\nearlier | Mnih et al., 2014 -->\nA year earlier.",
        ("2 + 2", "4"),
        "<!-- here: more than three | the\ncell above -->\nIt is more than three.\n<!-- source: exactly | tests/README.md -->\nExactly.",
    ).cells
    bases = [claim.basis for claim in claims.claims(nbformat.v4.new_notebook(cells=cells))]
    assert {"here: the cell above", "source: tests/README.md"} <= set(bases)
    (notes,) = notebooks.notes_cell(cells)
    listed = [line for line in notes.source.splitlines() if line.startswith("- ")]
    assert listed == ['- "a year earlier": Mnih et al., 2014', '- "exactly": tests/README.md']
    assert notebooks.notes_cell(cells[1:2]) == []


def test_marks_that_hold_nothing_are_a_fault():
    with pytest.raises(ValueError, match="which the cell does not say"):
        found("<!-- source: two years earlier | X, 2014 -->\nIt is a year earlier.")
    for origin in ("tests/test_nowhere.py", "satlib/results/none/x.json", "notebook 77"):
        with pytest.raises(ValueError, match="does not exist"):
            found(f"<!-- source: never seen before | {origin} -->\nIt was never seen before.")
