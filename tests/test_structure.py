"""The structure: functions that fit on a screen. That imports go down only is checked by `make lint`."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTION = 60


def test_functions_fit_on_a_screen():
    paths = [path for folder in ("satlib", "satcourse", "tools", "examples") for path in (ROOT / folder).rglob("*.py")]
    functions = [
        (path, node)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 500
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {node.end_lineno - node.lineno + 1} lines"
        for path, node in functions
        if node.end_lineno - node.lineno + 1 > FUNCTION
    ]
    assert long == []
