"""The structure: functions that fit on a screen, and imports that go down only."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("satlib/files/atomic.py", "import satlib.cli.arguments"),
        ("satlib/model/attention.py", "from satcourse import widgets"),
        (
            "satlib/model/decoder.py",
            "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from satlib.training import loop",
        ),
    ],
)
def test_an_import_that_goes_up_is_refused(module, line, tmp_path):
    """`make lint` checks the committed files; here a wrong import is planted in a copy."""
    program = shutil.which("lint-imports", path=Path(sys.executable).parent)
    for package in ("satlib", "satcourse"):
        ignored = shutil.ignore_patterns("*.safetensors", "*.json", "__pycache__", "node_modules")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    path = tmp_path / module
    path.write_text(path.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    command = [program, "--no-cache", "--no-logo"]
    output = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert output.returncode == 1, output.stdout + output.stderr
    assert "Each room imports only rooms below it BROKEN" in output.stdout
