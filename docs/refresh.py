"""Write what is generated in docs/: the drawing, the map of modules in design.md, the table in results.md. `python docs/refresh.py`."""

import ast
from pathlib import Path

import design

from satlib.evaluation import table
from satlib.model import shipped

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "satlib"
MAP = ("<!-- output of docs/refresh.py -->\n", "<!-- end of the output -->")
TABLE = ("<!-- output of satlib table --markdown -->\n", "<!-- end of the table -->")
# In the order in which a photograph becomes a caption; modules that are named nowhere come last.
GROUPS = {
    "From photograph to caption": "images encoders networks extraction features text attention decoder decoding captioner familiarity overlay plots",
    "Training": "recipe configs options training_data batching supervision objectives optimisation starting training validation scaling checkpoint storage run_lock interruption origins",
    "Evaluation": "metrics statistics evaluation choice table comparison ground pointing phrase_grounding phrase_report phrase_page estimators tune java",
    "What goes wrong": "doctor patient symptoms",
    "Beyond the paper": "reward meteor distillation weight_averaging",
    "Scale and speed": "device distributed streaming fast fast_loop",
    "Files from anywhere": "files schemas untrusted weight_files errors",
    "Command line and files to share": "info explain bars demo shipped course_folder course_files onnx_export onnx_storage onnx_reader live_page",
}
FOLDERS = {
    "datasets": "Flickr8k, Flickr30k, COCO, Karpathy's splits, your folder, drawn scenes; downloading, checking, shards",
    "course": "what only the notebooks need",
    "exercises": "the checks of the exercises",
    "cli": "the command line, one function per subcommand",
    "live": "the page that `satlib page` writes: HTML, CSS and scripts",
    "bench": "speed and memory beside a common implementation",
    "recipes": "one TOML file for each data set and model",
    "models": "trained captioners and their model cards",
    "results": "the evaluations behind the table of results, one folder per row",
}


def summary(path: Path) -> str:
    """The first paragraph of a module's docstring, up to its first full stop."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".").replace("|", r"\|")


def lines(path: Path) -> int:
    """How many lines a file has."""
    return len(path.read_text(encoding="utf-8").splitlines())


def modules() -> dict[str, list[Path]]:
    """The files of the package by group."""
    there = {path.stem: path for path in sorted(PACKAGE.glob("*.py")) if not path.stem.startswith("__")}
    groups = {group: [there.pop(name) for name in names.split() if name in there] for group, names in GROUPS.items()}
    return groups | {"Everything else": list(there.values())}


def module_map() -> str:
    """The map of modules in Markdown."""
    parts = []
    for group, files in modules().items():
        if not files:
            continue
        parts += [f"**{group}**", "", "| file | lines | content |", "| --- | ---: | --- |"]
        parts += [f"| [{path.name}](../satlib/{path.name}) | {lines(path)} | {summary(path)} |" for path in files]
        parts.append("")
    parts += ["**Folders**", "", "| folder | modules | lines | content |", "| --- | ---: | ---: | --- |"]
    for name, content in FOLDERS.items():
        files = [path for path in (PACKAGE / name).glob("*.py") if path.stem != "__init__" or lines(path)]
        if (PACKAGE / name).is_dir():
            counts = f"{len(files)} | {sum(map(lines, files))}" if len(files) > 1 else "- | -"
            parts.append(f"| [{name}/](../satlib/{name}) | {counts} | {content} |")
    return "\n".join(parts) + "\n"


def results() -> str:
    """What `satlib table --markdown` prints of the evaluations that come with satlib."""
    return table.render(table.rows(shipped.evaluations(), "test"), "markdown").strip() + "\n"


def between(page: str, marks: tuple[str, str]) -> str:
    """What stands between two marks on a page."""
    return page.split(marks[0])[1].split(marks[1])[0]


def put(path: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what stands between two marks on a page."""
    before, rest = path.read_text(encoding="utf-8").split(marks[0])
    path.write_text(before + marks[0] + text + marks[1] + rest.split(marks[1])[1], encoding="utf-8")


if __name__ == "__main__":
    design.draw()
    put(DOCS / "design.md", MAP, module_map())
    put(DOCS / "results.md", TABLE, results())
