"""The course as a site, a folder of static files that works without a network: `python tools/build_site.py [FOLDER] [--no-live]`.

Writes the pages' sources into build/site-source, lets Sphinx make the site from them with docs/site/conf.py, and puts the live
page (`satlib page`) beside it. Notebooks are not executed: their stored outputs are shown.

A page keeps its place in the repository (docs/design.md, notebooks/04_soft_attention.ipynb), so that links between pages stay as
they are written. Other links are put right: a cell of a notebook, a module (its page of the API), a file or a folder that is no
page by itself (a page that shows it). A link to what the site leaves out, the solutions, becomes plain text.
"""

import argparse
import ast
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
SITE, SOURCE = ROOT / "build" / "site", ROOT / "build" / "site-source"
MORE = ["benchmarks/README.md", "data/README.md", "models/satlib_models/README.md", "tests/README.md"]
LEFT_OUT = ("solutions", "satcourse/exercises")  # a learner who looks for a page should not meet the answers
PICTURE = """\
[![A drawn scene above its caption; word by word, what the word describes keeps its colours](docs/attention.webp)](
docs/design.md)
"""
LIVE = """\
Try it: choose a word under the picture, then tap the picture, and the model looks there. (It runs in your browser; your own
pictures stay on your device.)

<iframe class="live" src="live/index.html" title="The captioner in your browser" loading="lazy"></iframe>
<p><a href="live/index.html">Open the captioner on a page of its own</a></p>
"""
WIDGET = "application/vnd.jupyter.widget-view+json"
NO_WIDGET = (
    "> *Here the notebook has a control to move, and a picture that follows it. A page cannot run it: download the notebook, or "
    "start the course with `make lab`.*"
)
NO_SOLUTION = (
    "<details><summary>Solution</summary>\n\nThe notebook has it here. Start the course with `make lab`.\n\n</details>"
)
LANGUAGES = {
    ".py": "python", ".toml": "toml", ".json": "json", ".yml": "yaml", ".yaml": "yaml", ".sh": "bash", ".md": "markdown",
    ".css": "css", ".js": "javascript",
}  # fmt: skip
HIDDEN = (
    "---\norphan: true\nno-search: true\n---\n\n"  # not in the contents, nor in the search: it would find mostly tests
)
# A block of code, in which nothing is a heading, a link or an equation; or one of these.
HEADING = re.compile(r"^(`{3,}).*?^\1$|^#+ ", re.M | re.S)
EQUATION = re.compile(r"^(`{3,}).*?^\1$|\$\$.+?\$\$", re.M | re.S)
CODE_OR_LINK = re.compile(
    r"^(`{3,}).*?^\1$|`[^`\n]+`(?!\])|(\[(?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\[\]])*\])\(([^)\s]+)\)", re.M | re.S
)


class Pages:
    """The pages of the site, written into a folder from which Sphinx builds it.

    Attributes:
        shown: files and folders that some page links to and that are no pages by themselves, from the repository's root.
        live: whether the site has the live page.
    """

    def __init__(self, folder: Path, pages: list[str], live: bool = False) -> None:
        self.folder, self.pages, self.modules, self.live = folder, set(pages), sorted(modules()), live
        self.shown: set[str] = set()

    def write(self, path: str, text: str) -> None:
        """Write a page's source, at the place that it has in the repository."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def linked(self, page: str, text: str) -> str:
        """Markdown of a page with its links put right, and each displayed equation on one line: + would begin a list's item."""

        def put_right(match: re.Match[str]) -> str:
            if match[3] is None:
                return match[0]
            label = self.linked(page, match[2]) if match[2].startswith("[![") else match[2]
            if self.live and label == "[a web page]":  # not to how such a page is made, but to the page
                return f'<a href="{relative(page, "live/index.html")}">a web page</a>'
            target = self.target(page, match[2], match[3])
            return f"{label}({target})" if target else label[1:-1]

        text = EQUATION.sub(lambda match: match[0] if match[1] else re.sub(r"\n(> ?)*\s*", " ", match[0]), text)
        return CODE_OR_LINK.sub(put_right, text)

    def target(self, page: str, label: str, link: str) -> str | None:
        """Where a link of a page leads on the site; None: nowhere."""
        if "://" in link or link.startswith(("#", "mailto:")):
            return link
        file, _, anchor = link.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
        if path in self.pages and anchor.startswith("cell-id="):
            return f"#cell-{anchor.removeprefix('cell-id=')}"
        if module(path) in self.modules and label.strip("[]`") in objects(path):
            return "#" + label.strip("[]`")
        place = self.place(path)
        return place and relative(page, place) + (f"#{anchor}" if anchor else "")

    def place(self, path: str) -> str | None:
        """The page of a file or folder of the repository, or a picture; None: it is left out."""
        if path in self.pages or path.endswith((".png", ".jpeg", ".webp")):
            return path
        if path.startswith(LEFT_OUT):
            return None
        if path == "exercises":
            return "exercises/index.md"
        if path.endswith(".py") and module(path) in self.modules:
            return f"api/{module(path)}.rst"
        self.shown.add(path)
        return shown_page(path)

    def notebook(self, path: str) -> None:
        """Write a notebook as its page, and the notebook itself for the reader to take along."""
        book = nbformat.read(ROOT / path, 4)
        if path.startswith("exercises/"):
            book.cells = [unsolved(cell) for cell in book.cells]
        self.write(f"downloads/{path}", nbformat.writes(book))
        first, *rest = book.cells
        first.source += f"\n\n{{download}}`Download this notebook <../downloads/{path}>` ({posixpath.basename(path)})"
        # A second title would be a second page in the table of contents.
        lower = any(re.match("# ", cell.source) for cell in rest if cell.cell_type == "markdown")
        for cell in book.cells:
            if cell.cell_type == "markdown":
                if lower and cell is not first:
                    cell.source = HEADING.sub(lambda match: match[0] if match[1] else f"#{match[0]}", cell.source)
                label = f"(cell-{cell.id})=\n" if cell.source.startswith("#") else ""
                cell.source = label + self.linked(path, cell.source)
            else:
                as_read(cell)
        book.cells = [cell for cell in book.cells if "install" not in cell.metadata.get("tags", [])]
        self.write(path, nbformat.writes(book))

    def shown_files(self) -> None:
        """Write a page for each file and folder that a page links to, and for the files of such folders."""
        for path in sorted(path for path in self.shown if (ROOT / path).is_dir()):
            files = [file for file in sorted((ROOT / path).iterdir()) if file.suffix in LANGUAGES and file.is_file()]
            files = [file.relative_to(ROOT).as_posix() for file in files if file.stat().st_size < 100_000]
            places = {file: self.place(file) or "" for file in files}
            lines = [f"- [{posixpath.basename(file)}]({relative(shown_page(path), places[file])})" for file in files]
            self.write(shown_page(path), f"{HIDDEN}# {path}\n\n" + "\n".join(lines) + "\n")
        for path in sorted(path for path in self.shown if (ROOT / path).is_file()):
            text, language = (ROOT / path).read_text(encoding="utf-8"), LANGUAGES.get(Path(path).suffix, "text")
            self.write(shown_page(path), f"{HIDDEN}# {path}\n\n``````{language}\n{text.rstrip()}\n``````\n")

    def api(self) -> None:
        """Write a page for each module, and one that lists them."""
        for name in self.modules:
            self.write(f"api/{name}.rst", f"{name}\n{'=' * len(name)}\n\n.. automodule:: {name}\n   :members:\n")
        rows = "\n".join(f"   * - :doc:`{name}`\n     - {summary(name)}" for name in self.modules)
        names = "\n".join(f"   {name}" for name in self.modules)
        table = f".. list-table::\n   :widths: auto\n\n{rows}\n\n.. toctree::\n   :hidden:\n\n{names}\n"
        self.write("api/index.rst", f"API\n===\n\n{table}")


def shown_page(path: str) -> str:
    """The page that shows a file or lists a folder; hosts may leave out folders that begin with a dot."""
    return f"source/{path.lstrip('.')}.md"


def relative(page: str, target: str) -> str:
    """A link from one page to another."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def unsolved(cell: NotebookNode) -> NotebookNode:
    """A cell of an exercise without the solution folded in it."""
    if cell.cell_type == "markdown":
        cell.source = re.sub(r"<details><summary>Solution</summary>.*?</details>", NO_SOLUTION, cell.source, flags=re.S)
    return cell


def as_read(cell: NotebookNode) -> None:
    """Make of a code cell what JupyterLab shows: hidden sources stay hidden, and a line stands for a widget."""
    if cell.metadata.get("jupyter", {}).get("source_hidden"):
        cell.metadata["tags"] = [*cell.metadata.get("tags", []), "remove-input"]
    for output in cell.outputs:
        if WIDGET in output.get("data", {}):
            output.data = nbformat.from_dict({"text/markdown": NO_WIDGET})


def modules() -> Iterator[str]:
    """All modules that have a page: not the exercises (they hold the answers), nor what is internal."""
    for path in [*(ROOT / "satlib").rglob("*.py"), *(ROOT / "satcourse").rglob("*.py")]:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(LEFT_OUT) and "._" not in module(name):
            yield module(name)


def module(path: str) -> str:
    """The name of the module in a file, or of the package in a folder."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def objects(path: str) -> set[str]:
    """The full names of a module's public classes, functions and methods that have a docstring."""

    def inside(owner: ast.AST, prefix: str) -> Iterator[str]:
        for node in getattr(owner, "body", []):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                if ast.get_docstring(node):
                    yield f"{prefix}.{node.name}"
                yield from inside(node, f"{prefix}.{node.name}") if isinstance(node, ast.ClassDef) else ()

    return (
        set(inside(ast.parse((ROOT / path).read_text(encoding="utf-8")), module(path))) if path[-3:] == ".py" else set()
    )


def summary(name: str) -> str:
    """The first sentence or paragraph of a module's docstring."""
    path = ROOT / name.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def write_source(folder: Path, live: bool) -> None:
    """Write all that Sphinx reads.

    Args:
        folder: is replaced.
        live: whether the front page begins with the live page; a picture takes its place otherwise.
    """
    shutil.rmtree(folder, ignore_errors=True)
    books = [path for name in ("notebooks", "exercises") for path in sorted((ROOT / name).glob("[0-9][0-9]_*.ipynb"))]
    books = [path.relative_to(ROOT).as_posix() for path in books]
    texts = ["notebooks/INDEX.md", *(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), *MORE]
    pages = Pages(folder, books + texts, live)
    for path in books:
        pages.notebook(path)
    for path in texts:
        pages.write(path, pages.linked(path, (ROOT / path).read_text(encoding="utf-8")))
    pictures = ("docs/*.png", "docs/*.jpeg", "docs/*.webp", "benchmarks/*.png")
    for picture in (path for pattern in pictures for path in ROOT.glob(pattern)):
        target = folder / picture.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, target)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = "\n".join(re.findall(r"^\| \| notebook \| subject \|\n(?:\|.*\n)+", readme, re.M))
    for path in (ROOT / "docs" / "site").glob("*.md"):
        text = path.read_text(encoding="utf-8").replace("<!-- live -->", LIVE if live else PICTURE)
        name = path.name if path.name == "index.md" else path.name.replace("-", "/", 1)
        pages.write(name, pages.linked(name, text.replace("<!-- notebooks -->", table)))
    pages.api()
    pages.shown_files()


def build(site: Path = SITE, source: Path = SOURCE, live: bool = True) -> None:
    """Make the site.

    Args:
        site: the folder to write; it is replaced.
        source: the folder of the pages' sources; it is replaced.
        live: make the live page too.

    Raises:
        subprocess.CalledProcessError: `satlib page` failed, or Sphinx found a mistake, and has said which; every warning is one.
    """
    shutil.rmtree(site, ignore_errors=True)
    if live:
        subprocess.run([sys.executable, "-m", "satlib", "page", str(site / "live")], cwd=ROOT, check=True)
    write_source(source, live)
    options = ["--builder=html", "--fail-on-warning", "--keep-going", "--quiet", f"--conf-dir={ROOT / 'docs' / 'site'}"]
    folders = [f"--doctree-dir={source.parent / 'site-doctrees'}", str(source), str(site)]
    subprocess.run([sys.executable, "-m", "sphinx", "--fresh-env", *options, *folders], cwd=ROOT, check=True)
    for template in (site / "_static").glob("*.html"):
        template.unlink()  # the theme's own, which Sphinx copies with its scripts: no page
    (site / ".nojekyll").touch()  # GitHub Pages leaves out folders that begin with _ otherwise


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=SITE, help="the folder to write (build/site)")
    parser.add_argument("--no-live", action="store_true", help="leave out the page that captions in the browser")
    options = parser.parse_args()
    try:
        build(options.folder.resolve(), live=not options.no_live)
    except subprocess.CalledProcessError as error:
        failed = "no live page (see above); --no-live builds without it"
        sys.exit(failed if "page" in error.cmd else "Sphinx failed; see above")
