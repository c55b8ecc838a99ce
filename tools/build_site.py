"""The course as a site, a folder of static files that works without a network.

    python tools/build_site.py [FOLDER] [--no-live]

writes the pages' sources into build/site-source, has Sphinx build the site from them with
docs/site/conf.py, and puts the live page (`satlib page`) beside it. Notebooks are not executed:
their stored outputs are shown. A page keeps its place in the repository, so that links between
pages need no change; a link to a module leads to its page of the API, and a link to any other file
becomes plain text. The pages in reference/ are what satlib's own commands print.
"""

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat

from satlib.cli import GROUPS

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
SOURCE = ROOT / "build" / "site-source"
# In the root of a site: without it GitHub Pages leaves out folders that begin with _.
MARKER = ".nojekyll"
# Pages beside those in docs/.
MORE = [
    "benchmarks/README.md",
    "data/README.md",
    "satlib-models/satlib_models/README.md",
    "notebooks/INDEX.md",
    "notebooks/QUESTIONS.md",
]
ANSWERS = "satcourse/checks"  # a learner who looks for a page should not meet the answers
PICTURE = (
    "![A drawn scene above its caption; word by word, what the word describes keeps its colours]"
    "(docs/attention.webp)"
)
LIVE = """\
<p><a href="live/trial.html">Attention on trial: five bets on what the light explains</a> ·
<a href="live/index.html">Open this on a page of its own</a></p>
<iframe class="live" src="live/index.html" title="The captioner in your browser"></iframe>
"""
SOLUTION = re.compile(r"<details><summary>Solution</summary>.*?</details>", re.S)
NO_SOLUTION = (
    "<details><summary>Solution</summary>\n\nThe notebook has it here: `make lab`.\n\n</details>"
)
HEADING = r"^#+ "
EQUATION = r"\$\$.+?\$\$"
# A link or a picture, whose label may hold code or a picture.
LINK = (
    r"(?P<label>!?\[(?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\[\]])*\])"
    r"\((?P<target>[^)\s]+)\)"
)
# A block of code, or code within a line, unless it is all of a link's label.
CODE = r"^(?P<fence>`{3,}).*?^(?P=fence)$|`[^`\n]+`(?!\])"
NOTEBOOK_TABLE = re.compile(r"^\| \| notebook \| subject \|\n(?:\|.*\n)+", re.M)


def outside_code(text: str, pattern: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Markdown with what `pattern` matches replaced, but for what stands in code."""

    def code_or_replaced(match: re.Match[str]) -> str:
        return match[0] if match["code"] else replace(match)

    # Whatever begins first is matched: code, and all that it holds, or the pattern.
    either = re.compile(f"(?P<code>{CODE})|{pattern}", re.M | re.S)
    return either.sub(code_or_replaced, text)


def module(path: str) -> str:
    """The name of the module in a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules() -> list[str]:
    """The modules that have a page: not the exercises, which hold the answers."""
    names = []
    for package in ("satlib", "satcourse"):
        for file in (ROOT / package).rglob("*.py"):
            path = file.relative_to(ROOT).as_posix()
            private = "._" in module(path)
            if not private and not path.startswith(ANSWERS):
                names.append(module(path))
    return sorted(names)


class Pages:
    """Writes the pages' sources into a folder, with links put right for the site."""

    def __init__(self, folder: Path, pages: list[str], live: bool) -> None:
        self.folder = folder
        self.pages = set(pages)
        self.live = live  # the live page is in notebook 00
        self.modules = modules()

    def write(self, path: str, text: str) -> None:
        """Write a page's source, at the place that it has in the repository."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def linked(self, page: str, text: str) -> str:
        """Markdown of a page with its links put right, and each displayed equation on one line."""

        def one_line(match: re.Match[str]) -> str:
            # A line that begins with + would be the item of a list.
            return re.sub(r"\n(> ?)*\s*", " ", match[0])

        def link(match: re.Match[str]) -> str:
            label = match["label"]
            place = self.target(page, match["target"])
            return f"{label}({place})" if place else label.lstrip("!")[1:-1]

        text = outside_code(text, EQUATION, one_line)
        return outside_code(text, LINK, link)

    def target(self, page: str, link: str) -> str | None:
        """Where a link of a page leads on the site; None: nowhere."""
        if "://" in link or link.startswith(("#", "mailto:")):
            return link

        file, _, anchor = link.partition("#")
        folder = posixpath.dirname(page)
        path = posixpath.normpath(posixpath.join(folder, file))

        # JupyterLab scrolls to a cell by its id; here the cell has a label, see `notebook`.
        if path in self.pages and anchor.startswith("cell-id="):
            return f"#cell-{anchor.removeprefix('cell-id=')}"
        if path in self.pages or path.endswith((".png", ".jpeg", ".webp")):
            return link

        if path == "exercises":
            path = "exercises/index.md"
        elif path.endswith(".py") and module(path) in self.modules:
            path = f"api/{module(path)}.rst"
        else:
            return None
        return posixpath.relpath(path, folder or ".")

    def notebook(self, path: str) -> None:
        """Write a notebook as its page, and the notebook itself for the reader to download."""
        book = nbformat.read(ROOT / path, 4)
        if path.startswith("exercises/"):
            for cell in book.cells:
                cell.source = SOLUTION.sub(NO_SOLUTION, cell.source)
        self.write(f"downloads/{path}", nbformat.writes(book))

        first, *rest = book.cells
        name = posixpath.basename(path)
        if self.live and path == "notebooks/00_look.ipynb":  # in place of its picture
            live = LIVE.replace("live/", "../live/")
            first.source = re.sub(r"!\[.*\)", live, first.source)
        first.source += f"\n\n{{download}}`Download this notebook <../downloads/{path}>` ({name})"

        # A second title would be a second page in the table of contents, so all headings after the
        # first move down a level.
        texts = [cell for cell in rest if cell.cell_type == "markdown"]
        if any(cell.source.startswith("# ") for cell in texts):
            for cell in texts:
                cell.source = outside_code(cell.source, HEADING, lambda match: f"#{match[0]}")

        for cell in book.cells:
            if cell.cell_type == "markdown":
                # Links lead to headings by the ids of their cells.
                label = f"(cell-{cell.id})=\n" if cell.source.startswith("#") else ""
                cell.source = label + self.linked(path, cell.source)
            elif cell.metadata.get("jupyter", {}).get("source_hidden"):
                cell.metadata["tags"] = [*cell.metadata.get("tags", []), "remove-input"]

        # On a page there is nothing to install.
        book.cells = [cell for cell in book.cells if "install" not in cell.metadata.get("tags", [])]
        self.write(path, nbformat.writes(book))

    def pictures(self) -> None:
        """Copy the pictures of docs/."""
        for kind in ("png", "jpeg", "webp"):
            for picture in (ROOT / "docs").glob(f"*.{kind}"):
                shutil.copy(picture, self.folder / "docs")

    def site_pages(self) -> None:
        """Write the pages that only the site has; exercises-index.md becomes exercises/index.md."""
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        table = "\n".join(NOTEBOOK_TABLE.findall(readme))
        for file in (ROOT / "docs" / "site").glob("*.md"):
            path = file.name if file.name == "index.md" else file.name.replace("-", "/", 1)
            text = file.read_text(encoding="utf-8")
            text = text.replace("<!-- live -->", LIVE if self.live else PICTURE)
            text = text.replace("<!-- notebooks -->", table)
            self.write(path, self.linked(path, text))

    def api(self) -> None:
        """Write a page for each module, and one that lists them."""
        # Sphinx fills them from the docstrings.
        for name in self.modules:
            title = f"{name}\n{'=' * len(name)}\n\n"
            self.write(f"api/{name}.rst", f"{title}.. automodule:: {name}\n   :members:\n")
        names = "\n".join(f"   {name}" for name in self.modules)
        self.write("api/index.rst", f"API\n===\n\n.. toctree::\n\n{names}\n")

    def reference(self) -> None:
        """Write the pages that satlib's commands print: commands, recipes and results."""
        helps = [
            f"## satlib {name}\n\n```text\n{satlib(name, '--help')}```\n"
            for name in sum(GROUPS.values(), ())
        ]
        self.write("reference/commands.md", "# Commands\n\n" + "\n".join(helps))

        options = f"## Every option\n\n```text\n{satlib('recipe', '--explain')}```\n\n"
        recipes = []
        for file in sorted((ROOT / "satlib" / "recipes").glob("*.toml")):
            text = file.read_text(encoding="utf-8")
            recipes.append(f"## {file.stem}\n\n```toml\n{text}```\n")
        self.write("reference/recipes.md", "# Recipes\n\n" + options + "\n".join(recipes))

        self.write("reference/table.md", f"# All results\n\n```text\n{satlib('table')}```\n")


def satlib(*arguments: str) -> str:
    """What a command of satlib prints."""
    return subprocess.run(
        [sys.executable, "-m", "satlib", *arguments],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    ).stdout


def notebook_paths() -> list[str]:
    """The notebooks and workbooks in the repository."""
    paths = []
    for folder in ("notebooks", "exercises"):
        for file in sorted((ROOT / folder).glob("[0-9][0-9]_*.ipynb")):
            paths.append(f"{folder}/{file.name}")
    return paths


def write_source(folder: Path, live: bool) -> None:
    """Write all that Sphinx reads into a folder, which is replaced.

    With `live`, the live page is in the front page and in notebook 00.
    """
    shutil.rmtree(folder, ignore_errors=True)
    books = notebook_paths()
    texts = [f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md")] + MORE

    pages = Pages(folder, books + texts, live)
    for path in books:
        pages.notebook(path)
    for path in texts:
        text = (ROOT / path).read_text(encoding="utf-8")
        pages.write(path, pages.linked(path, text))
    pages.pictures()
    pages.site_pages()
    pages.api()
    pages.reference()


def build(site: Path, live: bool) -> None:
    """Build the site in a folder, in place of an earlier one. A warning of Sphinx is an error."""
    if site.exists() and any(site.iterdir()) and not (site / MARKER).exists():
        sys.exit(f"{site} holds something else than a site; name a new folder")
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    (site / MARKER).touch()
    if live:
        command = [sys.executable, "-m", "satlib", "page", str(site / "live")]
        subprocess.run(command, cwd=ROOT, check=True)

    write_source(SOURCE, live)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--fresh-env",
        "--builder=html",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        f"--conf-dir={ROOT / 'docs' / 'site'}",
        f"--doctree-dir={ROOT / 'build' / 'site-doctrees'}",
        str(SOURCE),
        str(site),
    ]
    subprocess.run(command, cwd=ROOT, check=True)

    # Sphinx copies the theme's templates along with its scripts; they are not pages.
    for template in (site / "_static").glob("*.html"):
        template.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=SITE,
        help="the folder to write (build/site)",
    )
    parser.add_argument(
        "--no-live",
        action="store_true",
        help="leave out the page that captions in the browser",
    )
    options = parser.parse_args()
    build(options.folder.resolve(), live=not options.no_live)
