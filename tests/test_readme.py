"""README and docs/: the commands are understood, links lead somewhere, and figures are those of the evaluation files."""

import json
import re
import shlex
from pathlib import Path

import satcourse.cli  # noqa: F401  (its commands are satlib's, too)
from satlib import cli, recipe
from satlib.errors import SatlibError

ROOT = Path(__file__).resolve().parent.parent
OTHERS = [
    "README.md",
    ".github/CONTRIBUTING.md",
    "CHANGELOG.md",
    ".github/SECURITY.md",
    "exercises/AGENTS.md",
    "benchmarks/README.md",
]
OTHERS += [
    "data/README.md",
    "satlib-models/satlib_models/README.md",
    "tests/README.md",
    "notebooks/INDEX.md",
]
PAGES = [
    *OTHERS,
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
]
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands():
    """The complete commands of satlib in all blocks of code."""
    for text in TEXT.values():
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.M | re.S):
            lines = re.findall(
                r"^ *!?((?:satlib|torchrun) [^\n#]*)", block.replace("\\\n", " "), re.M
            )
            yield from (re.sub(r".* -m (-- )?", "", line).strip() for line in lines)


def mistake(command):
    """What is wrong with a command; None if it is understood, and its recipe can be loaded."""
    try:
        options = cli.parser().parse_args(shlex.split(command)[1:])
        if getattr(options, "recipe", None) and not options.recipe.endswith(".toml"):
            recipe.load(options.recipe, getattr(options, "set", []))
    except (SystemExit, SatlibError) as error:
        return f"{command}: {error}"


def test_every_command_is_understood(capsys):
    found = sorted(set(commands()))
    assert len(found) > 30
    assert list(filter(None, map(mistake, found))) == []
    assert mistake("satlib train no-such-recipe")


def slugs(text):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def broken(page):
    """The links and pictures of a page that lead nowhere."""
    for link in LINK.findall(re.sub(r"`[^`\n]+`(?!\])", "", TEXT[page])):
        file, _, anchor = link.partition("#")
        target = (ROOT / page).parent / file if file else ROOT / page
        if "://" in link or anchor.startswith("cell-id="):
            continue
        if not target.exists() or (
            anchor and anchor not in slugs(target.read_text(encoding="utf-8"))
        ):
            yield f"{page}: {link}"


def test_every_link_and_picture_leads_somewhere():
    assert [link for page in PAGES for link in broken(page)] == []


def test_every_recipe_is_described_and_no_other():
    named = set(
        re.findall(
            r"`((?:scenes|flickr8k|flickr30k|coco|own)-[a-z0-9-]+)`", TEXT["docs/training.md"]
        )
    )
    assert named == set(recipe.names())


def test_the_figures_of_the_readme_are_those_of_the_evaluations():
    rows = re.findall(
        r"^\| satlib, .*?\(`([a-z0-9-]+)`.*?\) \| (.+) \| (.+) \| (.+) \|$", TEXT["README.md"], re.M
    )
    assert len(rows) == 2
    for name, *figures in rows:
        evaluation = json.loads(
            (ROOT / f"satlib/results/{name}/evaluation-test.json").read_text(encoding="utf-8")
        )
        scores = [
            evaluation["metrics"][column]
            for column in ("BLEU-1 (no brevity penalty)", "BLEU-4 (no brevity penalty)", "METEOR")
        ]
        assert [float(figure) for figure in figures] == [
            round(scores[0], 1),
            round(scores[1], 1),
            round(scores[2], 2),
        ]
