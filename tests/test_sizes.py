"""Modules that can be read in one sitting, functions that fit on a screen."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for folder in ("satlib", "tools", "examples") for path in (ROOT / folder).rglob("*.py"))
MODULE, FUNCTION = 350, 60
TABLES = "ex[0-9][0-9].py"  # the exercises of a chapter: a table of tasks


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sizes(path):
    text = path.read_text(encoding="utf-8")
    functions = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {name: lines for name, lines in functions.items() if lines > FUNCTION} == {}
    assert path.match(TABLES) or len(text.splitlines()) <= MODULE
