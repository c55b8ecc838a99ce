"""Exercises that check themselves.

`check("4.2", weights)` tests a learner's function; `reference("4.2")` is the solution.
"""

from satcourse.checks.engine import Wrong, carry_on, check, progress, reference, task
from satcourse.checks.guesses import kept, reveal, seal, skip

__all__ = [
    "Wrong",
    "carry_on",
    "check",
    "kept",
    "progress",
    "reference",
    "reveal",
    "seal",
    "skip",
    "task",
]
