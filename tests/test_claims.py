"""tools/claims.py: what holds a notebook's prose. It is shown planted faults."""

import shutil
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


class TestNumbers:
    @pytest.mark.parametrize(
        ("said", "printed", "basis"),
        [
            ("The loss is 0.31.", "loss 0.3138", "shown in cell 1"),
            ("The loss is 0.32.", "loss 0.3138", None),
            ("They are right in 94 % of all cases.", "share 0.939", "shown in cell 1"),
            ("They are right in 94 of all cases.", "share 0.939", None),
            ("It has 30,000 captions.", "30000 captions", "shown in cell 1"),
            ("It has 40,000 captions.", "30000 captions", None),
            ("It learns for 12 epochs.", "", "chosen in cell 1"),
            ("It learns for 13 epochs.", "", None),
        ],
    )
    def test_a_number_is_shown_or_chosen_or_nothing_holds_it(self, said, printed, basis):
        ((_, held),) = found(said, ("epochs = 12", printed))
        assert held == basis

    def test_small_numbers_of_another_section_hold_nothing_and_long_ones_do(self):
        other = ("run()", "7 and 61.93")
        assert found("# One", other, "# Two\n\nThere are 7. BLEU is 61.9.") == [
            ("7", None),
            ("61.9", "shown in cell 1"),
        ]

    @pytest.mark.parametrize(
        "text",
        ["VGG-19 of 2014", "see section 3.1.2 and equations 4 and 5", "`x = 31` and $y = 17$", "Is it 31 or 17?"],
    )
    def test_names_code_formulas_and_questions_claim_nothing(self, text):
        assert found(text) == []

    def test_goals_tasks_and_references_claim_nothing(self):
        head = "# 1. T\n\n**You will be able to**\n\n- do 17 things faster than before.\n\n**Minutes**: 9 to read"
        assert found(head, "## Try it\n\nSet it to 5.\n\n## References\n\n- pages 17 to 31") == []
        assert found(head, "## Try it\n\nSet it to 5.\n\n## What to remember\n\nIt is 17.") == [("17", None)]


class TestComparisons:
    @pytest.mark.parametrize(
        "sentence",
        [
            "Soft attention is faster than hard attention.",
            "It is as good as the other.",
            "The first is the lowest of all.",
            "Both are exactly right.",
            "The error falls.",
            "Three words in four are right.",
            "This never happens.",
        ],
    )
    def test_a_comparison_needs_an_assertion_that_quotes_it(self, sentence):
        quote = sentence.rstrip(".").lower()
        ((_, basis),) = found(sentence, (f"assert a < b, {quote!r}", ""))
        assert basis == "asserted in cell 1"
        ((_, basis),) = found(sentence, ("assert a < b, 'something else is said here'", ""))
        assert basis is None
        ((_, basis),) = found(sentence, ("assert a < b", ""))
        assert basis is None

    def test_words_that_only_look_like_superlatives_do_not_compare(self):
        assert found("The rest of the test split is of interest, rather than the forest.") == []


class TestSources:
    def test_a_source_mark_holds_the_words_that_it_quotes(self):
        text = "<!-- source: a year earlier than the other | Mnih et al., NeurIPS 2014 -->\nIt is a year earlier than the other."
        assert found(text) == [("than", "source: Mnih et al., NeurIPS 2014")]

    def test_a_here_mark_holds_them_too(self):
        text = "<!-- here: a year earlier\nthan the other | the\ncell below -->\nIt is a year earlier than the other."
        assert found(text) == [("than", "here: the cell below")]

    def test_the_notebook_lists_its_sources_at_its_end_and_nothing_else(self):
        cells = notebook(
            "# 0. T\n\n<!-- source: a year\nearlier | Mnih et al., 2014 -->\nA year earlier.",
            ("2 + 2", "4"),
            "<!-- here: more than three | the cell above -->\nIt is more than three.\n<!-- source: exactly | tests/README.md -->\nExactly.",
        ).cells
        (notes,) = notebooks.notes_cell(cells)
        assert notes.source.startswith("## Notes\n")
        listed = [line for line in notes.source.splitlines() if line.startswith("- ")]
        assert listed == ['- "a year earlier": Mnih et al., 2014', '- "exactly": tests/README.md']
        assert found("It is there.", notes.source) == []  # a list of claims claims nothing itself
        assert notebooks.notes_cell(cells[1:2]) == []

    def test_words_that_are_not_there_are_a_fault(self):
        with pytest.raises(ValueError, match="which the cell does not say"):
            found("<!-- source: two years earlier | X, 2014 -->\nIt is a year earlier.")

    @pytest.mark.parametrize("origin", ["tests/test_nowhere.py", "satlib/results/none/x.json", "notebook 77"])
    def test_a_file_or_notebook_that_is_not_there_is_a_fault(self, origin):
        with pytest.raises(ValueError, match="does not exist"):
            found(f"<!-- source: never seen before | {origin} -->\nIt was never seen before.")


def test_the_claims_of_a_source_that_was_edited_are_not_taken_from_the_old_notebook(tmp_path, capsys):
    (source,) = notebooks.sources(["03"])
    for path in (source, source.with_suffix(".ipynb")):
        shutil.copy(path, tmp_path)
    copied = tmp_path / source.name
    assert notebooks.unheld(copied, listed=False) == []
    assert "0 with nothing behind them" in capsys.readouterr().out
    copied.write_text(copied.read_text().replace("# # 3. Captions", "# # 3. Captions\n#\n# It is 40 times faster."))
    (said,) = notebooks.unheld(copied, listed=False)
    assert said.startswith(f"{source.stem}.ipynb is not what {source.name} gives; make it")


def test_a_planted_fault_in_a_committed_notebook_is_found():
    path = notebooks.sources(["04"])[0].with_suffix(".ipynb")
    real = nbformat.read(path, 4)
    before = sum(claim.basis is None for claim in claims.claims(real))
    last = next(cell for cell in reversed(real.cells) if cell.cell_type == "markdown" and "## What to" in cell.source)
    last.source += "\n- It names 123.4 % of the colours, twice as many as any other model."
    missing = [claim.text for claim in claims.claims(real) if claim.basis is None]
    assert len(missing) == before + 3
    assert {"123.4 %", "twice"} < set(missing)
