"""How much there is to read: tokens of code and words of prose, and the limits on them.

A token is one of Python's own tokenizer. Comments, docstrings, blank lines, indentation and line
ends are free, and so are long names and short lines: nothing is gained by squeezing. The page's
JavaScript, HTML and CSS are counted in lines that say something, Markdown and notebooks in words.
The limits stand in pyproject.toml, [tool.budget]; `make lint` holds them, and docs/contributing.md
says how one is raised.

Printed beside them, and never a limit: tokens a line of code, comments on lines of their own for
100 lines of code, and the share of lines longer than 100 characters.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from dataclasses import dataclass
from pathlib import Path

import nbformat

LONG = 100  # characters
# What Python's tokenizer yields beside the tokens that say something.
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class Size:
    """The size of some Python files."""

    tokens: int = 0
    code_lines: int = 0
    comments: int = 0  # on a line of their own
    lines: int = 0
    long_lines: int = 0

    def __str__(self) -> str:
        per_line = self.tokens / max(self.code_lines, 1)
        comments = 100 * self.comments / max(self.code_lines, 1)
        long_lines = 100 * self.long_lines / max(self.lines, 1)
        return f"{self.code_lines:6,} {per_line:6.1f} {comments:6.1f} {long_lines:6.1f}"


def docstring_lines(text: str) -> set[int]:
    """The numbers of the lines that a docstring stands on."""
    lines = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.update(range(docstring.lineno, docstring.end_lineno + 1))
    return lines


def size(files: list[Path]) -> Size:
    """The size of Python files."""
    total = Size()
    for file in files:
        text = file.read_text(encoding="utf-8")
        prose = docstring_lines(text)
        said = []
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in LAYOUT and token.start[0] not in prose:
                said.append(token)
        total.tokens += len(said)
        total.code_lines += len({token.start[0] for token in said})

        lines = text.splitlines()
        total.lines += len(lines)
        total.comments += sum(line.lstrip().startswith("#") for line in lines)
        total.long_lines += sum(len(line) > LONG for line in lines)
    return total


def page_lines(file: Path) -> int:
    """The lines of JavaScript, HTML or CSS that are neither blank nor a comment on lines of their own."""
    count = 0
    in_comment = False
    for line in map(str.strip, file.read_text(encoding="utf-8").splitlines()):
        in_comment = in_comment or line.startswith("/*")
        if line and not in_comment and not line.startswith(("//", "<!--")):
            count += 1
        in_comment = in_comment and "*/" not in line
    return count


def words(file: Path) -> int:
    """The words of a Markdown file or of a notebook's text, without comments, which nobody sees."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = nbformat.reads(text, 4).cells
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return len(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split())


def files(patterns: str) -> list[Path]:
    """The files that some patterns, separated by spaces, match."""
    return sorted(file for pattern in patterns.split() for file in Path().glob(pattern))


def main() -> int:
    """Print every size, and return 1 if one is over its limit."""
    settings = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["tool"]["budget"]
    limits = dict.fromkeys(settings["rooms"]) | settings["limits"]  # rooms have none
    status = 0

    print("   size     limit          lines tok/line comments long %")
    for patterns, limit in limits.items():
        shape = ""
        if patterns.endswith(".py"):
            python = size(files(patterns))
            count, unit, shape = python.tokens, "tokens", str(python)
        elif patterns.endswith((".js", ".css")):
            count, unit = sum(map(page_lines, files(patterns))), "lines"
        else:
            count, unit = sum(map(words, files(patterns))), "words"

        over = limit is not None and count > limit
        status |= over
        of_limit = f"of {limit:6,}" if limit else ""
        print(f"{count:7,} {of_limit:9} {unit:6} {shape:27}  {patterns}{'  OVER' if over else ''}")
    if status:
        print("over a limit: docs/contributing.md, Limits, says what to do", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
