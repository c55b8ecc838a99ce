"""A class: the exercises of many learners as a matrix, with points, as text, CSV and one page of HTML."""

import csv
import html
import io
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from satcourse.exercises.engine import chapter, task
from satcourse.exercises.grading import DONE, MISSING, STDOUT, ExerciseResult, run
from satlib.errors import SatlibError

STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
table { border-collapse: collapse; } th, td { padding: .3em .6em; border: 1px solid #8884; text-align: center; }
th:first-child { text-align: left; } td.done { background: #0072b2; color: white; } td.due { background: #d55e00; color: white; }
"""
MARKS = {"done": "✓", "blank": "·", "wrong": "✗", "missing": "–"}


def main(
    root: Path,
    due: Sequence[str] = (),
    csv_file: Path | None = None,
    html_file: Path | None = None,
    json_file: Path | None = None,
    processes: int = 2,
) -> int:
    """Check a class and print the matrix; return 0 if everybody has done what is due, otherwise 1.

    Args:
        root: the folder with a folder for each learner.
        due: ids of exercises and numbers of chapters; by default everything that somebody's notebooks have.
        csv_file: also write the matrix there, for a spreadsheet.
        html_file: also write the matrix there, as a page.
        json_file: also write all results there, with the checks' messages.
        processes: the number of notebooks to run at a time.

    Raises:
        SatlibError: there is no learner, or no such exercise.
    """
    wanted, paths = exercises(due), folders(root)
    rows, troubles = run([path for each in paths.values() for path in each], processes, sys.stderr.isatty())
    learners = [Learner(name, best([row for row in rows if Path(row.notebook) in own])) for name, own in paths.items()]
    chapters = {id.split(".")[0] for id in (*wanted, *(id for each in learners for id in each.results))}
    ids = exercises(sorted(chapters))
    wanted = wanted or ids
    if json_file != STDOUT:
        print(table(learners, ids))
        for trouble in troubles:
            print(f"outside the exercises: {trouble}")
    if csv_file is not None:
        csv_file.write_text(to_csv(learners, ids), encoding="utf-8")
    if html_file is not None:
        html_file.write_text(to_html(learners, ids, wanted), encoding="utf-8")
    if json_file is not None:
        people = {each.name: [asdict(row) for row in each.results.values()] for each in learners}
        text = json.dumps({"learners": people, "due": wanted, "troubles": troubles}, indent=1) + "\n"
        if json_file == STDOUT:
            print(text)
        else:
            json_file.write_text(text, encoding="utf-8")
    sys.stdout.flush()
    return 0 if all(each.state(id) == DONE for each in learners for id in wanted) else 1


@dataclass(frozen=True)
class Learner:
    """A learner's results, by exercise."""

    name: str
    results: Mapping[str, ExerciseResult]

    def state(self, exercise: str) -> str:
        """done, blank, wrong or missing."""
        return self.results[exercise].state if exercise in self.results else MISSING

    def points(self, exercises: Collection[str]) -> int:
        """The sum of the difficulties (1 to 3) of the exercises that are done."""
        return sum(task(exercise).difficulty for exercise in exercises if self.state(exercise) == DONE)


def folders(root: Path) -> dict[str, list[Path]]:
    """The notebooks of each learner: name of a folder in `root` -> the notebooks in it and below.

    Raises:
        SatlibError: no folder in `root` has a notebook.
    """
    if not root.is_dir():
        raise SatlibError(f"{root} is not a folder; a class is a folder with one folder for each learner")
    found = {}
    for folder in sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")):
        paths = [path for path in sorted(folder.rglob("*.ipynb")) if not _hidden(path.relative_to(folder))]
        if paths:
            found[folder.name] = paths
    if not found:
        raise SatlibError(f"no folder in {root} has a notebook; a class is a folder with one folder for each learner")
    return found


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def exercises(names: Sequence[str]) -> list[str]:
    """The ids of exercises; a chapter's number stands for all of its exercises.

    Raises:
        SatlibError: there is no such exercise or chapter.
    """
    ids = [id for name in names for id in (chapter(int(name)) if name.isdigit() else [task(name).id])]
    return sorted(set(ids), key=lambda id: [int(part) for part in id.split(".")])


def best(rows: Sequence[ExerciseResult]) -> dict[str, ExerciseResult]:
    """The results by exercise; of two notebooks with the same exercise, the one in which it is done counts."""
    found: dict[str, ExerciseResult] = {}
    for row in rows:
        before = found.get(row.exercise)
        if before is None or before.state == MISSING or (row.state == DONE and before.state != DONE):
            found[row.exercise] = row
    return found


def table(learners: Sequence[Learner], ids: Sequence[str]) -> str:
    """The matrix as text: a line for each learner, a column for each exercise."""
    width = max(len(learner.name) for learner in learners)
    lines = [" " * width + "".join(f" {id:>4}" for id in ids) + "  points"]
    most = sum(task(id).difficulty for id in ids)
    for learner in learners:
        marks = "".join(f" {MARKS[learner.state(id)]:>4}" for id in ids)
        lines.append(f"{learner.name:{width}}{marks}  {learner.points(ids)} of {most}")
    lines.append("✓ done   ✗ wrong   · blank   – missing")
    return "\n".join(lines)


def to_csv(learners: Sequence[Learner], ids: Sequence[str]) -> str:
    """The matrix for a spreadsheet: learner, points, and the state of each exercise."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["learner", "points", *ids])
    for learner in learners:
        writer.writerow([_inert(learner.name), learner.points(ids), *map(learner.state, ids)])
    return text.getvalue()


def _inert(name: str) -> str:
    """A name that a spreadsheet does not take for a formula."""
    return f"'{name}" if name[:1] in "=+-@\t" else name


def to_html(learners: Sequence[Learner], ids: Sequence[str], due: Collection[str]) -> str:
    """The matrix as a page; what is due and not done is orange, and a cell's tooltip has the check's message."""
    head = "".join(f'<th title="{html.escape(task(id).title)}">{id}</th>' for id in ids)
    lines = []
    for learner in learners:
        cells = []
        for id in ids:
            state = learner.state(id)
            kind = "done" if state == DONE else "due" if id in due else "open"
            reason = learner.results[id].reason if id in learner.results else ""
            cells.append(f'<td class="{kind}" title="{html.escape(f"{id} {state} {reason}")}">{MARKS[state]}</td>')
        name = html.escape(learner.name)
        lines.append(f"<tr><th>{name}</th>{''.join(cells)}<td>{learner.points(ids)}</td></tr>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Exercises</title><style>{STYLE}</style>'
        f"<table><thead><tr><th>learner</th>{head}<th>points</th></tr></thead><tbody>\n"
        + "\n".join(lines)
        + "\n</tbody></table><p>✓ done, ✗ wrong, · blank, – missing. Orange: due and not done.</p></html>\n"
    )
