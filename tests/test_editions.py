"""One source, three editions (tools/editions.py): what is in which."""

import re

from tools_path import editions, exercises

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
    # STUB return C


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
    assert all(part in text for part in ("    covered = alphas.sum(1)\n    return", 'assert True, "held"'))
    for absent in ("SOLUTION", "STUB", "check(", "Two sums", "To think about", "least_penalty", "carry_on", "5.2"):
        assert absent not in text

    # The workbook has blanks, cards, checks, folds, and what later cells use.
    at = texts["exercises"].index('check("5.2", penalty)')
    card, blank, _, folds, catch_up, later = texts["exercises"][at - 2 : at + 4]
    assert card.startswith("### 5.2 The penalty\n\n●")
    assert blank == 'def penalty(alphas):\n    """The penalty."""\n    ...  # 5.2: your code here'
    assert re.findall("<summary>(.+)</summary>", folds) == ["Hint", "Solution"]
    assert catch_up.startswith('penalty = carry_on("5.2")')
    assert later.startswith("print(penalty(")
    text = "\n".join(texts["exercises"])
    for part in ("def least_penalty(C, L):\n    return C", "[notebook 06](../notebooks/06_hard_attention.ipynb)"):
        assert part in text
    for absent in ('least_penalty = carry_on("5.1")', "held"):  # nobody calls it; claims are of the edition to read
        assert absent not in text
    changed = [solved for blank, solved in zip(texts["exercises"], texts["solutions"], strict=True) if blank != solved]
    assert [text.split("(")[0] for text in changed] == ["def penalty", "def least_penalty"]


def test_a_prediction_is_asked_before_its_answer_can_be_seen():
    """The guess is a cell of its own above the one that reveals the truth."""
    for source in exercises.sources():
        cells = [cell.source for cell in editions.cells(source, editions.READ)]
        asked, told = (
            {name: place for place, text in enumerate(cells) for name in re.findall(pattern, text, re.M)}
            for pattern in (r"^(\w*guess\w*) = ", r'\breveal\(f?"[^"]*", (\w+), ')
        )
        assert asked.keys() == told.keys()
        assert all(asked[name] < told[name] for name in asked)
