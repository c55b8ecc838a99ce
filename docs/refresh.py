"""Write what is generated: in docs/ the drawing, the map of rooms in design.md and the tables in results.md; in the README the live page.

`python docs/refresh.py`
"""

import ast
import tomllib
from pathlib import Path

import design

from satlib.evaluation import table
from satlib.model import shipped

DOCS = Path(__file__).resolve().parent
MAP = ("<!-- output of docs/refresh.py -->\n", "<!-- end of the output -->")
TABLE = ("<!-- output of satlib table --markdown -->\n", "<!-- end of the table -->")
LIVE = ("<!-- output of docs/refresh.py -->\n", "<!-- end of the live page -->")
# From the bottom to the top: each imports only what is above it in the table.
ROOMS = (
    "satlib/errors.py", "satlib/files", "satlib/recipe.py", "satlib/data", "satlib/model", "satlib/evaluation", "satlib/beyond",
    "satlib/training", "satlib/page", "satlib/cli", "satcourse", "satcourse/exercises", "satcourse/lessons", "satcourse/widgets",
)  # fmt: skip


def summary(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".").replace("|", r"\|")


def rooms() -> str:
    """The map of the rooms in Markdown: what each is for, and its files."""
    lines = ["| room | what it is for | files |", "| --- | --- | --- |"]
    for name in ROOMS:
        path = DOCS.parent / name
        files = sorted(path.glob("*.py")) if path.is_dir() else []
        chapters = [file for file in files if file.stem.startswith("ex") and file.stem[2:].isdigit()]
        shown = [
            f"[{file.stem}](../{name}/{file.name})" for file in files if file.stem[0] != "_" and file not in chapters
        ]
        shown += [f"{chapters[0].stem} to {chapters[-1].stem}"] if chapters else []
        purpose = summary(path / "__init__.py" if path.is_dir() else path)
        lines.append(f"| [{name}](../{name}) | {purpose} | {', '.join(shown)} |")
    return "\n".join(lines) + "\n"


def results() -> str:
    """What `satlib table --markdown` prints of the evaluations that come with satlib."""
    return table.render(table.rows(shipped.evaluations()), markdown=True).strip() + "\n"


def live(address: str | None) -> str:
    """The picture of the live page, which leads to its address where that is known."""
    picture = (
        "![A scene, the sentence that a captioner wrote in the browser, and light on what it looked at](docs/live.webp)"
    )
    if address is None:
        page = "The same on [a web page](docs/page.md) without a server: move the light, and the sentence changes."
        return f"{picture}\n\n*{page}*\n"
    return (
        f"[{picture}]({address})\n\n*[Try it in your browser]({address}): move the light, and the sentence changes.*\n"
    )


def address_of_live_page() -> str | None:
    """`Demo` in [project.urls] of pyproject.toml, the one place for addresses."""
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Demo")


def between(page: str, marks: tuple[str, str]) -> str:
    """What stands between two marks on a page."""
    return page.split(marks[0])[1].split(marks[1])[0]


def put(path: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what stands between two marks on a page."""
    before, rest = path.read_text(encoding="utf-8").split(marks[0])
    path.write_text(before + marks[0] + text + marks[1] + rest.split(marks[1])[1], encoding="utf-8")


if __name__ == "__main__":
    design.draw()
    put(DOCS / "design.md", MAP, rooms())
    put(DOCS / "results.md", TABLE, results())
    put(DOCS.parent / "README.md", LIVE, live(address_of_live_page()))
