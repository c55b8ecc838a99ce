"""README and docs/: what people are told to type is understood, links lead somewhere, and figures are those of the evaluation files."""

import importlib
import re
import shlex
import sys
from pathlib import Path

from satlib import cli, recipe
from satlib.errors import SatlibError
from satlib.evaluation import table
from satlib.model import shipped

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "docs"))

import refresh  # noqa: E402

ROOTS = ["README.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md"]
OTHERS = [
    *ROOTS,
    "exercises/AGENTS.md",
    "benchmarks/README.md",
    "data/README.md",
    "models/satlib_models/README.md",
    "tests/README.md",
]
PAGES = [*OTHERS, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))]
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
README = TEXT["README.md"]
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)]+)\)")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
COMMAND = r"(?:\.venv/bin/)?((?:satlib [a-z]|torchrun -|make [a-z]|python [a-z]|sh [a-z])[^\n#`]*)"


def fenced(text: str) -> list[str]:
    """The blocks of code that are not Python."""
    return [block for block in re.findall(r"^```(.*?)^```", text, re.M | re.S) if not block.startswith("python\n")]


def commands() -> list[str]:
    """All commands of all pages: lines of blocks, and what stands between backticks."""
    found = set()
    for text in TEXT.values():
        for block in fenced(text):
            found.update(re.findall(rf"^ *{COMMAND}", block.replace("\\\n", " "), re.M))
        found.update(re.findall(rf"^    {COMMAND}", text.replace("\\\n", " "), re.M))
        found.update(re.findall(rf"`{COMMAND}`", text))
    return sorted({re.split("  +| > ", command.strip())[0] for command in found})


PARSER = cli.parser()
COMMANDS = commands()
SATLIB = sorted({re.sub(r".* -m (-- )?", "", command) for command in COMMANDS if re.match(r"satlib|torchrun", command)})


def wrong(command):
    """What is wrong with a command of satlib; None if it is understood, and its recipe can be loaded."""
    words = shlex.split(command)[1:]
    spoken_of = len(words) == 1 and not words[0].startswith("-")
    try:
        options = PARSER.parse_args([*words, "--help"] if spoken_of else words)
        name = getattr(options, "recipe", None)
        if name and not name.isupper() and not name.endswith(".toml"):  # those stand for a recipe of one's own
            recipe.load(name, getattr(options, "set", []))
    except SystemExit as end:
        return None if spoken_of and end.code == 0 else f"{command}: status {end.code}"
    except SatlibError as error:
        return f"{command}: {error}"


def test_every_command_is_understood(capsys):
    assert list(filter(None, map(wrong, SATLIB))) == []
    assert wrong("satlib train no-such-recipe")
    assert wrong("satlib train --no-such-option")


def test_every_target_of_make_and_every_script_is_there():
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    missing = [
        word
        for command in COMMANDS
        if command.startswith("make ")
        for word in shlex.split(command)[1:]
        if "=" not in word and word not in targets
    ]
    scripts = [shlex.split(command)[1] for command in COMMANDS if re.match("python|sh ", command)]
    assert missing + [path for path in scripts if not (ROOT / path).is_file()] == []
    assert {"make demo", "make test", "make lab"} <= set(re.findall(r"^make [a-z]+", README, re.M))


def test_every_recipe_is_described():
    named = set(re.findall(r"`([a-z0-9-]+)`", TEXT["docs/training.md"] + TEXT["docs/results.md"]))
    assert not set(recipe.names()) - named
    kinds = r"`((?:scenes|flickr8k|flickr30k|coco)-[a-z0-9-]+)`"
    assert not {name for text in TEXT.values() for name in re.findall(kinds, text)} - set(recipe.names())


def slugs(text: str) -> list[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def broken(page):
    """The links and pictures of a page that lead nowhere."""
    for link in ("".join(pair) for pair in LINK.findall(TEXT[page])):
        file, _, anchor = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        there = "://" in link or target.exists()
        if not there or (anchor and "://" not in link and anchor not in slugs(target.read_text(encoding="utf-8"))):
            yield f"{page}: {link}"


def test_every_link_and_picture_leads_somewhere():
    assert [link for page in PAGES for link in broken(page)] == []


def test_the_table_is_what_the_command_prints():
    shown = refresh.between(TEXT["docs/results.md"], refresh.TABLE)
    assert shown == refresh.results(), "run: python docs/refresh.py"


def test_the_figures_of_the_readme_are_those_of_the_evaluations():
    shown = dict(re.findall(r"^\| satlib, .*?\(`([a-z0-9-]+)`\) \| (.+) \|$", README, re.M))
    assert len(shown) == 6
    files = {path.parent.name: path for path in shipped.evaluations()}
    for name, figures in shown.items():
        (row,) = (row for row in table.rows([files[name]], "test") if row.ours)
        assert figures.split(" | ") == [
            f"{row.figures[c]:.{d}f}" for c, d in (("BLEU-1", 1), ("BLEU-4", 1), ("METEOR", 2))
        ]
    paper = [row.figures for row in table.rows([], "test") if row.data == "Flickr8k" and row.name.endswith("Attention")]
    for kind, figures in zip(("soft", "hard"), paper, strict=True):
        values = " | ".join(figures[column] for column in ("BLEU-1", "BLEU-4", "METEOR"))
        assert f"| paper, {kind} attention | {values} |" in README
    for kind in ("soft", "hard", "none"):
        (row,) = (row for row in table.rows([files[f"scenes-{kind}"]], "test") if row.ours)
        assert f"{row.figures['exact match']} %" in " ".join(README.split())


def test_the_live_page_is_on_the_first_screen():
    """Its picture leads to the page where pyproject.toml has an address for it, as it does in the long description."""
    written = refresh.between(README, refresh.LIVE)
    assert written == refresh.live(refresh.address_of_live_page()), "run: python docs/refresh.py"
    assert README.index(written) < README.index("## Start here")
    address = "https://h.org/live/"
    assert refresh.live(address).startswith("[![")
    assert refresh.live(address).count(f"]({address})") == 2


def test_every_function_of_the_design_is_there():
    steps = TEXT["docs/design.md"].split("## Map of the rooms")[0]
    names = re.findall(r"`([a-z_]+\.[a-z_]+)\.([A-Z]\w+|[a-z_]+)(?:\.([a-z_]+))?`", steps)
    assert len(names) > 10
    for module, *path in names:
        owner = importlib.import_module(f"satlib.{module}")
        for name in filter(None, path):
            owner = getattr(owner, name)


def test_the_map_of_rooms_is_whole():
    assert refresh.between(TEXT["docs/design.md"], refresh.MAP) == refresh.rooms(), "run: python docs/refresh.py"
