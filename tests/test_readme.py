"""What the README tells people to type is understood, and what it names is there."""

import re
import shlex
from pathlib import Path

import pytest

from satlib import cli, recipe

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "data/README.md", "satlib/models/README.md"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = README.split("```")[1::2]
COMMANDS = sorted(
    {line.strip() for block in BLOCKS for line in re.findall(r"^ *(?:\.venv/bin/)?(satlib [a-z][^\n#]*)", block, re.M)}
    | set(re.findall(r"`(satlib [a-z][^`]*)`", README))
)


def test_there_are_commands():
    assert len(COMMANDS) > 12


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command):
    words = shlex.split(re.split("  +", command)[0])[1:]
    options = cli.parser().parse_args(words)
    for change in getattr(options, "set", []):
        recipe.load(options.recipe, [change])
    if hasattr(options, "recipe"):
        recipe.load(options.recipe)


def test_every_recipe_is_in_the_readme():
    assert set(re.findall(r"`([a-z0-9]+-[a-z0-9-]*(?:soft|hard|none|rmsprop|folder|reward))`", README)) == set(
        recipe.names()
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    path = ROOT / page
    links = re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing
