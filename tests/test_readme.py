"""README and docs/: commands are understood, links lead somewhere, figures are the evaluations'."""

import json
import re
import shlex
import tomllib
from pathlib import Path

from PIL import Image, ImageChops

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
    "data/README.md",
    "satlib-models/satlib_models/README.md",
    "tests/README.md",
    "notebooks/INDEX.md",
    "notebooks/QUESTIONS.md",
]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*OTHERS, *(path.relative_to(ROOT).as_posix() for path in DOCS)]
TEXT = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}
PHONE = ROOT / "docs/labels-phone.jpeg"
PART = (432, 0, 1036, 907)  # seven columns of places, without the legend
LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands():
    """The complete commands of satlib in all blocks of code."""
    for text in TEXT.values():
        for block in re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.M | re.S):
            # A backslash continues a command on the next line.
            block = block.replace("\\\n", " ")
            for line in re.findall(r"^ *!?((?:satlib|torchrun) [^\n#]*)", block, re.M):
                # torchrun starts satlib as a module.
                yield re.sub(r".* -m (-- )?", "", line).strip()


def mistake(command):
    """What is wrong with a command; None if it is understood, and its recipe can be loaded."""
    words = shlex.split(command)
    try:
        options = cli.parser().parse_args(words[1:])
        # A recipe in a file of the reader's own is not there.
        if getattr(options, "recipe", None) and not options.recipe.endswith(".toml"):
            recipe.load(options.recipe, getattr(options, "set", []))
    except (SystemExit, SatlibError) as error:
        return f"{command}: {error}"


def test_every_command_is_understood(capsys):
    found = sorted(set(commands()))
    assert len(found) > 30
    assert list(filter(None, map(mistake, found))) == []

    # A mistake would be noticed.
    assert mistake("satlib train no-such-recipe")


def slugs(text):
    """The anchors of a page's headings, as GitHub makes them."""
    # In a block of code, a line that begins with # is a comment.
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found = []
    for heading in re.findall(r"^#+ (.+)$", prose, re.M):
        words = re.sub(r"[^\w\- ]", "", heading.lower())
        found.append(words.replace(" ", "-"))
    return found


def broken(page):
    """The links and pictures of a page that lead nowhere."""
    # In code, ](...) is no link; but a link's text may be code.
    prose = re.sub(r"`[^`\n]+`(?!\])", "", TEXT[page])
    for link in LINK.findall(prose):
        file, _, anchor = link.partition("#")
        # Other sites, and cells, whose anchors Jupyter makes.
        if "://" in link or anchor.startswith("cell-id="):
            continue

        target = ROOT / page
        if file:
            target = target.parent / file
        found = target.exists()
        if found and anchor:
            found = anchor in slugs(target.read_text(encoding="utf-8"))
        if not found:
            yield f"{page}: {link}"


def test_every_link_and_picture_leads_somewhere():
    assert [link for page in PAGES for link in broken(page)] == []


def test_the_addresses_are_those_of_the_project():
    """Without one, the picture leads to the page that says how to make a live page."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = project.get("urls", {})
    page = urls.get("Homepage", "docs/caption.md#a-web-page")
    assert f"](docs/attention.webp)]({page})" in TEXT["README.md"]
    for name in ("README.md", "docs/start.md"):
        assert "Source" not in urls or f"git clone --depth 1 {urls['Source']} " in TEXT[name]


def test_the_picture_for_phones_is_a_part_of_the_other():
    with Image.open(ROOT / "docs/labels.jpeg") as whole, Image.open(PHONE) as part:
        difference = ImageChops.difference(whole.crop(PART), part)
        # One word that changed would differ by 100 and more.
        assert max(max(difference.getextrema())) < 60, f"crop {PART} of it anew"


def test_every_recipe_is_described_and_no_other():
    pattern = r"`((?:scenes|flickr8k|flickr30k|coco|own)-[a-z0-9-]+)`"
    described = re.findall(pattern, TEXT["docs/training.md"])
    assert set(described) == set(recipe.names())


def test_the_figures_of_the_readme_are_those_of_the_evaluations():
    pattern = r"^\| satlib, .*?\(`([a-z0-9-]+)`.*?\) \| (.+) \| (.+) \| (.+) \|$"
    rows = re.findall(pattern, TEXT["README.md"], re.M)
    assert len(rows) == 2
    for name, bleu1, bleu4, meteor in rows:
        path = ROOT / f"satlib/results/{name}/evaluation-test.json"
        scores = json.loads(path.read_text(encoding="utf-8"))["metrics"]
        # With as many digits as the paper's table has.
        assert float(bleu1) == round(scores["BLEU-1 (no brevity penalty)"], 1)
        assert float(bleu4) == round(scores["BLEU-4 (no brevity penalty)"], 1)
        assert float(meteor) == round(scores["METEOR"], 2)
