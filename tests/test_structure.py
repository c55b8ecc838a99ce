"""The structure: functions that fit on a screen, and no module that only POSIX systems can import. That imports go down only is checked by `make lint`."""

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


POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "termios"}
POSIX_NAMES = {  # of os and signal
    "SIGHUP", "SIGKILL", "SIGPROF", "SIGALRM", "setitimer", "ITIMER_PROF", "alarm", "pause", "fork", "forkpty", "getpgid",
    "getuid", "geteuid", "killpg", "mkfifo", "sched_getaffinity", "sched_setaffinity", "setsid", "uname", "O_NONBLOCK",
}  # fmt: skip
GUARDED = {
    "satlib/evaluation/metrics.py": "killpg",
    "satcourse/exercises/calls.py": "setitimer",
}  # by hasattr, see there


def test_what_people_use_needs_no_posix():
    found = set()
    for path in (path for folder in ("satlib", "satcourse") for path in (ROOT / folder).rglob("*.py")):
        text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                imported = [node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
                assert not POSIX_MODULES & {*imported}, f"{name}:{node.lineno}"
            if (
                isinstance(node, ast.Attribute)
                and node.attr in POSIX_NAMES
                and ast.unparse(node.value) in ("os", "signal")
            ):
                found.add(name)
    assert found == {*GUARDED}
    for name, attribute in GUARDED.items():
        assert f'"{attribute}")' in (ROOT / name).read_text(encoding="utf-8")  # hasattr(os, ...)
