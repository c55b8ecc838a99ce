"""Pages of the site from the repository's files: links put right, notebooks and exercises as they are read, source files, modules.

A page keeps its place in the repository (docs/design.md, notebooks/04_soft_attention.ipynb), so that links between pages stay as
they are written. Other links are put right here: a cell of a notebook, a module (its page of the API), a file or a folder that is
no page by itself (a page that shows it). A link to what the site leaves out, the solutions, becomes plain text.
"""

import ast
import os
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = ("solutions", "satcourse/exercises")  # a learner who looks for a page should not meet the answers
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
# A block of code, in which nothing is a heading, or a heading's mark.
HEADING = re.compile(r"^(`{3,}).*?^\1$|^#+ ", re.M | re.S)
# A block or a span of code, in which nothing is a link, or a link: what stands before its target, and the target.
CODE_OR_LINK = re.compile(
    r"^(`{3,}).*?^\1$|`[^`\n]+`(?!\])|(\[(?:`[^`]*`|!\[[^\]]*\]\([^)]*\)|[^\[\]])*\])\(([^)\s]+)\)", re.M | re.S
)


class Pages:
    """The pages of the site, written into a folder from which Sphinx builds it.

    Attributes:
        shown: files and folders that some page links to and that are no pages by themselves, from the repository's root.
    """

    def __init__(self, folder: Path, pages: list[str], modules: list[str]) -> None:
        self.folder, self.pages, self.modules = folder, set(pages), set(modules)
        self.shown: set[str] = set()

    def write(self, path: str, text: str) -> None:
        """Write a page's source, at the place that it has in the repository."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def linked(self, page: str, text: str) -> str:
        """Markdown of a page with its links put right."""

        def put_right(found: re.Match[str]) -> str:
            if found[3] is None:
                return found[0]
            label = self.linked(page, found[2]) if found[2].startswith("[![") else found[2]
            target = self.target(page, found[2], found[3])
            return f"{label}({target})" if target else label[1:-1]

        return CODE_OR_LINK.sub(put_right, one_line_equations(text))

    def target(self, page: str, label: str, link: str) -> str | None:
        """Where a link of a page leads on the site; None: nowhere."""
        if "://" in link or link.startswith(("#", "mailto:")):
            return link
        file, _, anchor = link.partition("#")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
        if path in self.pages and anchor.startswith("cell-id="):
            return f"#{cell_label(anchor.removeprefix('cell-id='))}"
        named = label.strip("[]`")
        if module(path) in self.modules and named in objects(module(path)):
            return f"#{named}"
        place = self.place(path)
        return place and relative(page, place) + (f"#{anchor}" if anchor else "")

    def place(self, path: str) -> str | None:
        """The page of a file or folder of the repository, or a picture; None: it is left out."""
        if path in self.pages or path.endswith(".png"):
            return path
        if path.startswith(LEFT_OUT):
            return None
        if path == "exercises":
            return "exercises/index.md"
        if path.endswith(".py") and module(path) in self.modules:
            return api_page(module(path))
        self.shown.add(path)
        return shown_page(path)

    def notebook(self, path: str) -> None:
        """Write a notebook as its page, and the notebook itself for the reader to take along."""
        book = nbformat.read(ROOT / path, 4)
        if path.startswith("exercises/"):
            book.cells = [unsolved(cell) for cell in book.cells]
        self.write(f"downloads/{path}", nbformat.writes(book))
        name = posixpath.basename(path)
        first, *rest = book.cells
        first.source += f"\n\n{{download}}`Download this notebook <../downloads/{path}>` ({name})"
        # A second title would be a second page in the table of contents.
        lower = any(re.match("# ", cell.source) for cell in rest if cell.cell_type == "markdown")
        for cell in book.cells:
            if cell.cell_type == "markdown":
                deeper = lower and cell is not first
                source = (
                    HEADING.sub(lambda found: found[0] if found[1] else f"#{found[0]}", cell.source)
                    if deeper
                    else cell.source
                )
                label = f"({cell_label(cell.id)})=\n" if source.startswith("#") else ""
                cell.source = label + self.linked(path, source)
            else:
                as_read(cell)
        book.cells = [cell for cell in book.cells if "install" not in cell.metadata.get("tags", [])]
        self.write(path, nbformat.writes(book))

    def markdown(self, path: str) -> None:
        """Write a page of the documentation."""
        self.write(path, self.linked(path, (ROOT / path).read_text(encoding="utf-8")))

    def shown_files(self) -> None:
        """Write a page for each file and folder that a page links to, and for the files of such folders."""
        for path in sorted(path for path in self.shown if (ROOT / path).is_dir()):
            files = sorted(each.relative_to(ROOT).as_posix() for each in (ROOT / path).iterdir() if shows(each))
            page = shown_page(path)
            lines = [f"- [{posixpath.basename(file)}]({relative(page, self.place(file) or '')})" for file in files]
            self.write(page, f"{HIDDEN}# {path}\n\n" + "\n".join(lines) + "\n")
        for path in sorted(path for path in self.shown if (ROOT / path).is_file()):
            text, language = (ROOT / path).read_text(encoding="utf-8"), LANGUAGES.get(Path(path).suffix, "text")
            self.write(shown_page(path), f"{HIDDEN}# {path}\n\n``````{language}\n{text.rstrip()}\n``````\n")

    def api(self) -> None:
        """Write a page for each module, and one that lists them."""
        lines = []
        for name in sorted(self.modules):
            title = f"{name}\n{'=' * len(name)}\n\n"
            self.write(api_page(name), f"{title}.. automodule:: {name}\n   :members:\n")
            lines.append(f"   * - :doc:`{name}`\n     - {summary(name)}")
        table = ".. list-table::\n   :widths: auto\n\n" + "\n".join(lines)
        names = "\n".join(f"   {name}" for name in sorted(self.modules))
        self.write("api/index.rst", f"API\n===\n\n{table}\n\n.. toctree::\n   :hidden:\n\n{names}\n")


# Not in the table of contents, and not in the search: it would find mostly tests.
HIDDEN = "---\norphan: true\nno-search: true\n---\n\n"


def one_line_equations(text: str) -> str:
    """Markdown with each displayed equation on one line: a line of it that begins with + would be the item of a list."""

    def joined(found: re.Match[str]) -> str:
        return found[0] if found[1] else re.sub(r"\n(> ?)*\s*", " ", found[0])

    return re.sub(r"^(`{3,}).*?^\1$|\$\$.+?\$\$", joined, text, flags=re.M | re.S)


def shows(path: Path) -> bool:
    """Whether a file of a folder is text that is worth a page."""
    return path.suffix in LANGUAGES and path.is_file() and path.stat().st_size < 100_000


def shown_page(path: str) -> str:
    """The page that shows a file or lists a folder; hosts may leave out folders that begin with a dot."""
    return f"source/{path.lstrip('.')}.md"


def api_page(name: str) -> str:
    """The page of a module."""
    return f"api/{name}.rst"


def relative(page: str, target: str) -> str:
    """A link from one page to another."""
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def cell_label(cell: str) -> str:
    """The name by which a link finds a cell."""
    return f"cell-{cell}"


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
    """All modules that have a page: those of satlib, without the exercises (they hold the answers) and what is internal."""
    for path in sorted((ROOT / "satlib").rglob("*.py")):
        name = module(path.relative_to(ROOT).as_posix())
        if not path.relative_to(ROOT).as_posix().startswith(LEFT_OUT) and "._" not in name:
            yield name


def module(path: str) -> str:
    """The name of the module in a file, or of the package in a folder."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def file_of(name: str) -> Path:
    """The file of a module."""
    path = ROOT / name.replace(".", os.sep)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def objects(name: str) -> set[str]:
    """The full names of a module's public classes, functions and methods that have a docstring."""

    def inside(owner: ast.AST, prefix: str) -> Iterator[str]:
        for node in getattr(owner, "body", []):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
                if ast.get_docstring(node):
                    yield f"{prefix}.{node.name}"
                yield from inside(node, f"{prefix}.{node.name}") if isinstance(node, ast.ClassDef) else ()

    return set(inside(ast.parse(file_of(name).read_text(encoding="utf-8")), name))


def summary(name: str) -> str:
    """The first sentence or paragraph of a module's docstring."""
    text = ast.get_docstring(ast.parse(file_of(name).read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def table_of_notebooks() -> str:
    """The table of the ten notebooks, from README.md, for the front page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^\| \| notebook \| subject \|\n(?:\|.*\n)+", text, re.M))
