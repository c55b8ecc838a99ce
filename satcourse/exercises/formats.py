"""The results of `satlib check` in the forms that class platforms read: those of Gradescope, Classroom 50 and Canvas.

The forms: gradescope-autograders.readthedocs.io/en/latest/specs; schemas/result-v1.schema.json of github.com/foundation50/classroom50;
Canvas as lib/gradebook_importer.rb of github.com/instructure/canvas-lms reads it. Points are the exercises' difficulties, 1 to 3.
"""

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from satcourse.exercises.engine import task
from satcourse.exercises.grading import DONE, ExerciseResult, best
from satlib.errors import SatlibError


def _points(row: ExerciseResult) -> tuple[int, int]:
    """What an exercise has earned, and what it can earn."""
    most = task(row.exercise).difficulty
    return (most if row.state == DONE else 0), most


def gradescope(rows: Sequence[ExerciseResult], troubles: Sequence[str]) -> str:
    """The content of results/results.json: a test for each exercise; of two notebooks with the same one, that in which it is done."""
    tests: list[dict[str, Any]] = []
    for row in best(rows).values():
        points, most = _points(row)
        says = row.state if row.state == DONE else f"{row.state}: {row.reason}"
        name = task(row.exercise).title
        tests.append({"number": row.exercise, "name": name, "score": points, "max_score": most, "output": says})
    # Without a test Gradescope needs the score itself.
    return json.dumps({"output": "\n".join(troubles), **({"tests": tests} if tests else {"score": 0})})


def classroom50(rows: Sequence[ExerciseResult], troubles: Sequence[str]) -> str:
    """The content of result.json, where Classroom 50's runner has set its variables.

    Raises:
        SatlibError: a variable is missing.
    """
    wanted = ("CLASSROOM", "ASSIGNMENT", "OWNER", "SUBMISSION_TAG", "COMMIT_URL", "RELEASE_URL")
    missing = [name for name in wanted if not os.environ.get(name)]
    if missing:
        raise SatlibError(
            f"--format classroom50 needs the variables that Classroom 50 sets for an autograder; missing: {', '.join(missing)}"
        )
    tests: list[dict[str, Any]] = []
    for row in best(rows).values():
        points, most = _points(row)
        name = f"{row.exercise} {task(row.exercise).title}"
        tests.append({"test-name": name, "passed": row.state == DONE, "score": points, "max-score": most})
        tests[-1]["message"] = row.reason
    result = {
        "schema": "classroom50/result/v1",
        "classroom": os.environ["CLASSROOM"],
        "assignment": os.environ["ASSIGNMENT"],
        "assignment_type": os.environ.get("ASSIGNMENT_TYPE") or "individual",
        "owner": os.environ["OWNER"],
        "submission": os.environ["SUBMISSION_TAG"],
        "commit": os.environ["COMMIT_URL"],
        "release": os.environ["RELEASE_URL"],
        "review": os.environ.get("REVIEW_URL") or os.environ["COMMIT_URL"],
        "datetime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),  # the runner puts the commit's in
        "score": sum(test["score"] for test in tests),
        "max-score": sum(test["max-score"] for test in tests),
        "tests": tests,
    }
    return json.dumps(result, indent=1)


def canvas(results: Mapping[str, Mapping[str, ExerciseResult]], ids: Sequence[str]) -> str:
    """A file for Canvas' gradebook: a row for each learner, and a column for each notebook among the exercises that count.

    Canvas looks for a learner by the login (SIS Login ID), and then by the name: either may be the name of a learner's folder.
    """
    notebooks = list(dict.fromkeys(id.split(".")[0] for id in ids))
    file = io.StringIO()
    write = csv.writer(file, lineterminator="\n").writerow
    write(["Student", "ID", "SIS User ID", "SIS Login ID", "Section", *(f"satlib {int(n):02}" for n in notebooks)])

    def of(number: str) -> list[str]:
        return [id for id in ids if id.split(".")[0] == number]

    write(["    Points Possible", "", "", "", "", *(sum(task(id).difficulty for id in of(n)) for n in notebooks)])
    for name, own in results.items():
        earned = (sum(_points(own[id])[0] for id in of(number) if id in own) for number in notebooks)
        write([name, "", "", name, "", *earned])
    return file.getvalue().rstrip("\n")
