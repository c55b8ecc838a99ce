"""The course as a site, a folder of static files that works without a network: `python tools/build_site.py [FOLDER] [--no-live]`.

Writes the pages' sources into build/site-source, lets Sphinx build the site from them with docs/site/conf.py, and puts the live
page (`satlib page`) beside it. Notebooks are not executed: their stored outputs are shown. A page keeps its place in the repository,
so that links between pages stay as they are written; a link to a module leads to its page of the API, and a link to any other file
becomes plain text. The pages in reference/ are what satlib's own commands print.
"""

import argparse
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
SITE, SOURCE = ROOT / "build" / "site", ROOT / "build" / "site-source"
MORE = [
    "benchmarks/README.md",
    "data/README.md",
    "satlib-models/satlib_models/README.md",
    "notebooks/INDEX.md",
]
ANSWERS = "satcourse/checks"  # a learner who looks for a page should not meet the answers
COMMANDS = (
    "caption", "train", "tune", "features", "evaluate", "ground", "table", "export", "page", "data", "recipe", "info", "check", "demo",
)  # fmt: skip
PICTURE = "![A drawn scene above its caption; word by word, what the word describes keeps its colours](docs/attention.webp)"
LIVE = """\
<iframe class="live" src="live/index.html" title="The captioner in your browser"></iframe>
<p><a href="live/index.html">Open it on a page of its own</a></p>
"""
WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = "> *Here the notebook has a control to move, and a picture that follows it. Start the course with `make lab` to use it.*"
NO_SOLUTION = (
    "<details><summary>Solution</summary>\n\nThe notebook has it here: `make lab`.\n\n</details>"
)
# A block of code, in which nothing is a heading, a link or an equation; or one of these.
HEADING = re.compile(r"^(`{3,}).*?^\1$|^#+ ", re.M | re.S)
EQUATION = re.compile(r"^(`{3,}).*?^\1$|\$\$.+?\$\$", re.M | re.S)
CODE_OR_LINK = re.compile(
    r"^(`{3,}).*?^\1$|`[^`\n]+`(?!\])|(!?\[(?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\[\]])*\])\(([^)\s]+)\)",
    re.M | re.S,
)


def module(path: str) -> str:
    """The name of the module in a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def modules() -> list[str]:
    """The modules that have a page: not the exercises, which hold the answers."""
    paths = [
        path.relative_to(ROOT).as_posix()
        for name in ("satlib", "satcourse")
        for path in (ROOT / name).rglob("*.py")
    ]
    return sorted(
        module(path) for path in paths if not path.startswith(ANSWERS) and "._" not in module(path)
    )


class Pages:
    """Writes the pages' sources into a folder, with links put right for the site."""

    def __init__(self, folder: Path, pages: list[str], live: bool) -> None:
        self.folder, self.pages, self.live, self.modules = folder, {*pages}, live, modules()

    def write(self, path: str, text: str) -> None:
        """Write a page's source, at the place that it has in the repository."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def linked(self, page: str, text: str) -> str:
        """Markdown of a page with its links put right, and each displayed equation on one line: + would begin a list's item."""

        def link(match: re.Match[str]) -> str:
            label, target = match[2], match[3]
            if target is None:
                return match[0]
            place = self.target(page, target)
            return f"{label}({place})" if place else label.lstrip("!")[1:-1]

        text = EQUATION.sub(
            lambda match: match[0] if match[1] else re.sub(r"\n(> ?)*\s*", " ", match[0]), text
        )
        return CODE_OR_LINK.sub(link, text)

    def target(self, page: str, link: str) -> str | None:
        """Where a link of a page leads on the site; None: nowhere."""
        if "://" in link or link.startswith(("#", "mailto:")):
            return link
        file, _, anchor = link.partition("#")
        folder = posixpath.dirname(page)
        path = posixpath.normpath(posixpath.join(folder, file))
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
                solution = r"<details><summary>Solution</summary>.*?</details>"
                cell.source = re.sub(solution, NO_SOLUTION, cell.source, flags=re.S)
        self.write(f"downloads/{path}", nbformat.writes(book))
        first, *rest = book.cells
        if self.live and path == "notebooks/00_look.ipynb":  # in place of its picture
            first.source = re.sub(r"!\[.*\)", LIVE.replace("live/", "../live/"), first.source)
        first.source += f"\n\n{{download}}`Download this notebook <../downloads/{path}>` ({posixpath.basename(path)})"
        # A second title would be a second page in the table of contents.
        lower = any(re.match("# ", cell.source) for cell in rest if cell.cell_type == "markdown")
        for cell in book.cells:
            if cell.cell_type == "markdown":
                if lower and cell is not first:
                    cell.source = HEADING.sub(
                        lambda match: match[0] if match[1] else f"#{match[0]}", cell.source
                    )
                label = f"(cell-{cell.id})=\n" if cell.source.startswith("#") else ""
                cell.source = label + self.linked(path, cell.source)
                continue
            if cell.metadata.get("jupyter", {}).get("source_hidden"):
                cell.metadata["tags"] = [*cell.metadata.get("tags", []), "remove-input"]
            for output in cell.outputs:
                if WIDGET in output.get("data", {}):
                    output.data = nbformat.from_dict({"text/markdown": NO_WIDGET})
        book.cells = [cell for cell in book.cells if "install" not in cell.metadata.get("tags", [])]
        self.write(path, nbformat.writes(book))

    def api(self) -> None:
        """Write a page for each module, and one that lists them."""
        for name in self.modules:
            self.write(
                f"api/{name}.rst",
                f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n   :members:\n",
            )
        names = "\n".join(f"   {name}" for name in self.modules)
        self.write("api/index.rst", f"API\n===\n\n.. toctree::\n\n{names}\n")

    def reference(self) -> None:
        """Write the pages that satlib's commands print: every command, every recipe and every result."""
        helps = [f"## satlib {name}\n\n```text\n{satlib(name, '--help')}```\n" for name in COMMANDS]
        self.write("reference/commands.md", "# Commands\n\n" + "\n".join(helps))
        recipes = [
            f"## {path.stem}\n\n```toml\n{path.read_text(encoding='utf-8')}```\n"
            for path in sorted((ROOT / "satlib" / "recipes").glob("*.toml"))
        ]
        options = f"## Every option\n\n```text\n{satlib('recipe', '--explain')}```\n\n"
        self.write("reference/recipes.md", "# Recipes\n\n" + options + "\n".join(recipes))
        self.write("reference/table.md", f"# All results\n\n```text\n{satlib('table')}```\n")


def satlib(*arguments: str) -> str:
    """What a command of satlib prints."""
    command = [sys.executable, "-m", "satlib", *arguments]
    return subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8"
    ).stdout


def write_source(folder: Path, live: bool) -> None:
    """Write all that Sphinx reads into a folder, which is replaced; `live`: the live page is in the front page and in notebook 00."""
    shutil.rmtree(folder, ignore_errors=True)
    books = [
        path
        for name in ("notebooks", "exercises")
        for path in sorted((ROOT / name).glob("[0-9][0-9]_*.ipynb"))
    ]
    books = [path.relative_to(ROOT).as_posix() for path in books]
    texts = [*(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), *MORE]
    pages = Pages(folder, books + texts, live)
    for path in books:
        pages.notebook(path)
    for path in texts:
        pages.write(path, pages.linked(path, (ROOT / path).read_text(encoding="utf-8")))
    for picture in (
        path for kind in ("png", "jpeg", "webp") for path in (ROOT / "docs").glob(f"*.{kind}")
    ):
        shutil.copy(picture, folder / "docs")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = "\n".join(re.findall(r"^\| \| notebook \| subject \|\n(?:\|.*\n)+", readme, re.M))
    for path in (ROOT / "docs" / "site").glob("*.md"):
        text = path.read_text(encoding="utf-8").replace("<!-- live -->", LIVE if live else PICTURE)
        name = path.name if path.name == "index.md" else path.name.replace("-", "/", 1)
        pages.write(name, pages.linked(name, text.replace("<!-- notebooks -->", table)))
    pages.api()
    pages.reference()


def build(site: Path = SITE, source: Path = SOURCE, live: bool = True) -> None:
    """Build the site; both folders are replaced. A warning of Sphinx is an error."""
    shutil.rmtree(site, ignore_errors=True)
    if live:
        subprocess.run(
            [sys.executable, "-m", "satlib", "page", str(site / "live")], cwd=ROOT, check=True
        )
    write_source(source, live)
    options = [
        "--builder=html",
        "--fail-on-warning",
        "--keep-going",
        "--quiet",
        f"--conf-dir={ROOT / 'docs' / 'site'}",
    ]
    folders = [f"--doctree-dir={source.parent / 'site-doctrees'}", str(source), str(site)]
    subprocess.run(
        [sys.executable, "-m", "sphinx", "--fresh-env", *options, *folders], cwd=ROOT, check=True
    )
    for template in (site / "_static").glob("*.html"):
        template.unlink()  # the theme's own, which Sphinx copies with its scripts: no page
    (site / ".nojekyll").touch()  # GitHub Pages leaves out folders that begin with _ otherwise


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "folder", nargs="?", type=Path, default=SITE, help="the folder to write (build/site)"
    )
    parser.add_argument(
        "--no-live", action="store_true", help="leave out the page that captions in the browser"
    )
    options = parser.parse_args()
    build(options.folder.resolve(), live=not options.no_live)
