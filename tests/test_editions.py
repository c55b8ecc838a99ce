"""One source, three editions (tools/editions.py): what is in which."""

import json
import re
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from tools_path import editions, notebooks

SOURCE = '''\
# %% [markdown]
# # 5. A notebook
#
# See [notebook 06](06_hard_attention.ipynb).

# %% [markdown]
# ## The penalty

# %% tags=["task:5.2"]
def penalty(alphas):
    """The penalty."""
    # BEGIN SOLUTION
    covered = alphas.sum(1)
    return (1 - covered).square().sum(1)
    # END SOLUTION


# %% [markdown] tags=["hint"]
# Two sums.

# %%
print(penalty(torch.ones(1, 1, 1)))

# %% [markdown] tags=["workbook"]
# ## To think about

# %% tags=["task:5.1"]
def least_penalty(C, L):
    # BEGIN SOLUTION
    return (L - C) ** 2 / L
    # END SOLUTION


# %% [markdown]
# ## References

# %% tags=["claims"]
assert True, "held"
'''


def test_each_edition_has_its_parts_and_no_others(tmp_path):
    source = tmp_path / "05_a_notebook.py"
    source.write_text(SOURCE)
    names = (editions.READ, editions.WORK, editions.SOLVED)
    texts = {name: [cell.source for cell in editions.cells(source, name)] for name in names}

    text = "\n".join(texts["notebooks"])
    assert "    covered = alphas.sum(1)\n    return" in text
    assert 'assert True, "held"' in text
    for absent in (
        "SOLUTION",
        "check(",
        "Two sums",
        "To think about",
        "least_penalty",
        "carry_on",
        "5.2",
    ):
        assert absent not in text

    # The workbook has blanks, cards, checks, folds, and what later cells use.
    workbook = texts["exercises"]
    at = workbook.index('check("5.2", penalty)')
    card, blank, _, folds, catch_up, later = workbook[at - 2 : at + 4]
    assert card.startswith("### 5.2 The penalty\n\n●")
    assert blank == 'def penalty(alphas):\n    """The penalty."""\n    ...  # 5.2: your code here'
    assert re.findall("<summary>(.+)</summary>", folds) == ["Hint", "Solution"]
    assert catch_up.startswith('penalty = carry_on("5.2")')
    assert later.startswith("print(penalty(")

    text = "\n".join(workbook)
    assert "def least_penalty(C, L):\n    ...  # 5.1: your code here" in text
    assert "[notebook 06](../notebooks/06_hard_attention.ipynb)" in text
    # Nobody calls it later; and claims belong to the edition to read.
    assert 'least_penalty = carry_on("5.1")' not in text
    assert "held" not in text

    # The solutions differ from the workbook in the two functions alone.
    changed = []
    for blank, solved in zip(workbook, texts["solutions"], strict=True):
        if blank != solved:
            changed.append(solved.split("(")[0])
    assert changed == ["def penalty", "def least_penalty"]


def test_a_prediction_is_asked_before_its_answer_can_be_seen():
    """The guess is a cell of its own above the sealed one, which reveals the truth."""
    for source in notebooks.sources():
        cells = editions.cells(source, editions.READ)
        code = [cell.source for cell in cells if cell.cell_type == "code"]
        text = "\n".join(code)
        asked = re.findall(r"^(\w*guess\w*) = ", text, re.MULTILINE)
        # More would make a notebook an examination.
        assert len(asked) <= 4, source

        sealed = [text for text in code if text.startswith("seal(")]
        first_lines = [cell.partition("\n")[0] for cell in sealed]
        assert first_lines == [f"seal({name})" for name in asked], source
        assert all("reveal(" in cell for cell in sealed)
        assert all(text.index(f"{name} = ") < text.index(f"seal({name})") for name in asked)


SEALED = """
seal(guess)
print("a hint")
truth = 65
reveal("places", truth)
display("a picture")
truth"""


def test_a_sealed_cell_shows_nothing_until_somebody_guesses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell.instance()
    shown = {}
    try:
        shell.run_cell("from satcourse.checks import reveal, seal, skip")
        # Not yet, not at all, a range, the right range too late, a number, a range the wrong way.
        for guess in ("...", "skip", "(20, 40)", "(60, 70)", "40", "(40, 20)"):
            with capture_output() as captured:
                shell.run_cell(f"guess = {guess}")
                shell.run_cell(SEALED)
            displayed = [output.data for output in captured.outputs]
            shown[guess] = captured.stdout + str(displayed)
        assert shell.user_ns["truth"] == 65
    finally:
        InteractiveShell.clear_instance()

    assert shown["..."].startswith("Sealed")
    assert not re.search("hint|65|picture|ranges", shown["..."])
    assert "a hint\nplaces: 65\n" in shown["skip"]
    assert "a picture" in shown["skip"]
    assert "places: 65 (outside your range, 20 to 40)" in shown["(20, 40)"]
    assert "places: 65 (inside your range, 60 to 70)" in shown["(60, 70)"]
    assert "places: 65 (you guessed 40)" in shown["40"]
    assert "begins with its lower end" in shown["(40, 20)"]

    # The first range counts: those after it are made by somebody who has seen the truth.
    guesses = json.loads(Path("guesses.json").read_text(encoding="utf-8"))
    assert guesses == {"places": [20, 40, 65]}
