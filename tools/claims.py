"""What holds each number and each comparison in a notebook's prose.

A notebook's text says what its cells show, and cells change. So each number and each comparison in its markdown has to be

- shown: the number is in a text output of the same section (from one heading to the next), possibly with more digits; a
  number of three digits or more may be shown anywhere in the notebook; or
- chosen: it is a literal in the code of that section; or
- asserted: it is in words that an assertion of the notebook quotes, `assert soft < hard, "soft is faster than hard"`; or
- marked: it is in words that a mark in the same cell quotes, with what holds them. `<!-- source: published in 2015 | Xu et al.,
  ICML 2015 -->` names something outside the notebook, which lists these marks at its end, under "Notes". `<!-- here: three sizes |
  the cell below -->` names something in it. Paths of this repository and notebooks that a mark names have to exist.

Questions, goals, the tasks under "Try it", quotations of the paper, code, formulas, references and the names of things (VGG-19,
section 3.1) claim nothing.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
NUMBER = re.compile(
    r"(?<![\w.,\-/])[-+−]?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\w]|[.,]?\d)(\s*(?:%|percent\b|per cent\b))?"
)
_NOT_SUPERLATIVE = (
    r"(?:test|rest|request|interest|suggest|forest|west|guest|invest|honest|modest|latest|contest|protest|nearest|digest|"
    r"quest|nest|chest|arrest|earnest|priest|harvest|pytest|attest)"
)
COMPARISON = re.compile(
    r"\b(?:"
    r"(?<!rather )(?<!other )than"
    rf"|(?!{_NOT_SUPERLATIVE}\b)\w{{2,}}est"
    r"|most(?! often)|worst"
    r"|as \w+ as(?! (?:possible|you|soon))"
    r"|equals?|identical|exactly|the same as"
    r"|never|always"
    r"|half|halves|twice|doubles?|(?:a|two|three) (?:third|quarter|fifth)s?|(?:two|three|four|five|ten|many|\d+) times"
    r"|(?:one|two|three|four|five|six|seven|eight|nine) (?:words? )?(?:in|of|out of) (?:\w+ )?(?:three|four|five|six|seven|eight|nine|ten|twelve)"
    r"|beats?|wins?|loses?|outperforms?|improves?|worsens?|vanish(?:es)?|grows?|shrinks?|rises?|falls?"
    r")\b",
    re.IGNORECASE,
)
_EXEMPT = re.compile(
    r"<!--.*?-->"
    r"|```.*?```|`[^`\n]+`|\$\$.*?\$\$|\$[^$]+\$"  # code and formulas
    r"|!\[[^\]]*\]\([^)]*\)|\]\([^)\s]*\)|https?://\S+|</?[a-z][^>\n]*>"  # pictures, addresses, HTML
    r"|^#+ .*?$|^\s*\d+\. |^\|[-:| ]+\|$"  # headings, list numbers, rules of tables
    r"|^>[^\n]*$"  # quotations
    r"|\*\*You will be able to\*\*.*?\*\*Minutes\*\*.*?$"  # goals and budget
    r"|\b(?:[Ss]ections?|[Ee]quations?|[Ff]igures?|[Tt]ables?|[Nn]otebooks?|[Ee]xercises?|[Ss]teps?|[Cc]laims?|[Ll]inks?)"
    r"\s+\d+(?:\.\d+)*(?:(?:,| and| or| to)\s+\d+(?:\.\d+)*)*"
    r"|\b(?:19|20)\d\d\b|\b0\d\b|\b\d+-(?:bit|D)\b"
    r"|[^.!?:\n]*\n?[^.!?:\n]*\?",  # questions
    re.DOTALL | re.MULTILINE,
)
_MARK = re.compile(r"<!--\s*(?P<kind>source|here):\s*(?P<words>.+?)\s*\|\s*(?P<origin>.+?)\s*-->", re.DOTALL)
_SILENT_SECTION = re.compile(r"^## (?:Try it|References|Notes|Exercises)$.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_SPECIFIC = 3  # digits from which a number is taken as shown wherever it is shown in the notebook


@dataclass(frozen=True)
class Claim:
    """A number or a comparison in a notebook's prose.

    Attributes:
        cell: the index of its markdown cell.
        text: the number, or the comparing words.
        context: some words on either side.
        basis: what holds it; None if nothing does.
    """

    cell: int
    text: str
    context: str
    basis: str | None


@dataclass(frozen=True)
class _Evidence:
    """What the code cells of a section, or of a notebook, show."""

    shown: list[tuple[float, int]]  # numbers in outputs, and the cells
    chosen: list[tuple[float, int]]  # literals in code


def claims(notebook: NotebookNode) -> list[Claim]:
    """Every claim of an executed notebook, in order.

    Raises:
        ValueError: a source mark quotes words that its cell does not have, or names a file that does not exist.
    """
    sections = list(_sections(notebook))
    evidence = [_evidence(notebook, section) for section in sections]
    everything = _evidence(notebook, range(len(notebook.cells)))
    quoted = list(_assertions(notebook))
    found: list[Claim] = []
    for section, own in zip(sections, evidence, strict=True):
        for index in section:
            if notebook.cells[index].cell_type == "markdown":
                prose = _SILENT_SECTION.sub("", notebook.cells[index].source)
                found += _claims_of(index, prose, own, everything, quoted)
    return found


def _sections(notebook: NotebookNode) -> Iterator[range]:
    """The cells from one heading to the next; a cell with a heading begins a section."""
    starts = [0]
    for index, cell in enumerate(notebook.cells):
        if index and cell.cell_type == "markdown" and re.search(r"^#+ ", cell.source, re.MULTILINE):
            starts.append(index)
    for first, end in zip(starts, [*starts[1:], len(notebook.cells)], strict=True):
        yield range(first, end)


def _evidence(notebook: NotebookNode, cells: Iterable[int]) -> _Evidence:
    shown, chosen = [], []
    for index in cells:
        cell = notebook.cells[index]
        if cell.cell_type == "code":
            shown += [(value, index) for value in _values(_text_of(cell))]
            chosen += [(value, index) for value in _literals(cell.source)]
    return _Evidence(shown, chosen)


def _text_of(cell: NotebookNode) -> str:
    """Everything that a code cell shows as text."""
    parts = []
    for output in cell.get("outputs", ()):
        parts.append(output.get("text", ""))
        data = output.get("data", {})
        parts += [data.get("text/plain", ""), data.get("text/markdown", "")]
        parts.append(re.sub(r"<[^>]+>", " ", data.get("text/html", "")))
    return "\n".join(parts)


def _values(text: str) -> Iterator[float]:
    for match in re.finditer(r"(?<![\w.])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?:e([+-]?\d+))?", text):
        exponent = f"e{match[3]}" if match[3] else ""
        yield float(match[1].replace(",", "") + (match[2] or "") + exponent)


def _literals(code: str) -> Iterator[float]:
    """The numbers in a cell's code; lines of IPython's own commands are left out."""
    plain = "\n".join("" if line.lstrip().startswith(("%", "!")) else line for line in code.splitlines())
    try:
        for token in tokenize.generate_tokens(io.StringIO(plain).readline):
            if token.type == tokenize.NUMBER:
                value = ast.literal_eval(token.string)
                if isinstance(value, int | float):
                    yield float(value)
    except (tokenize.TokenError, SyntaxError):
        return


def _assertions(notebook: NotebookNode) -> Iterator[tuple[str, int]]:
    """(words, cell) for each assertion with a message of three words or more."""
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "code":
            continue
        plain = "\n".join("pass" if line.startswith(("%", "!")) else line for line in cell.source.splitlines())
        for node in ast.walk(ast.parse(plain)):
            if isinstance(node, ast.Assert) and isinstance(node.msg, ast.Constant) and isinstance(node.msg.value, str):
                words = _plain(node.msg.value)
                if len(words.split()) >= 3:
                    yield words, index


def _plain(text: str) -> str:
    """Text as it is compared: lower case, single spaces, no marks of emphasis, code or formulas."""
    return " ".join(re.sub(r"[*`$]|(?<!\w)_|_(?!\w)", "", text).lower().split())


def _claims_of(
    index: int, chunk: str, evidence: _Evidence, everything: _Evidence, quoted: list[tuple[str, int]]
) -> Iterator[Claim]:
    text = _Text(chunk)
    held: list[tuple[int, int, str]] = [
        (*span, f"asserted in cell {cell}") for words, cell in quoted for span in text.spans(words)
    ]
    for kind, words, origin in marks(chunk):
        _check_origin(origin)
        spans = text.spans(_plain(words))
        if not spans:
            raise ValueError(f"cell {index}: the {kind} mark quotes {words!r}, which the cell does not say")
        held += [(*span, f"{kind}: {origin}") for span in spans]
    for match in sorted([*NUMBER.finditer(text.plain), *COMPARISON.finditer(text.plain)], key=lambda m: m.start()):
        first, end = match.span()
        if text.exempt(first, end):
            continue
        basis = next((name for low, high, name in held if low <= first and end <= high), None)
        if basis is None and match.re is NUMBER:
            basis = _shown(match, evidence, everything)
        yield Claim(index, match[0].strip(), text.plain[max(first - 50, 0) : end + 50], basis)


def _shown(match: re.Match[str], evidence: _Evidence, everything: _Evidence) -> str | None:
    """The output or literal that has a number of the prose, if there is one."""
    written = match[1].replace(",", "") + (match[2] or "")
    value, decimals = float(written), len(match[2] or ".") - 1
    places = [(evidence.shown, "shown"), (evidence.chosen, "chosen")]
    if len(written.replace(".", "").strip("0")) >= _SPECIFIC:
        places.append((everything.shown, "shown"))
    for numbers, verb in places:
        for number, cell in numbers:
            if abs(number - value) <= 0.5000001 * 10**-decimals and (decimals or number == value or number >= 10):
                return f"{verb} in cell {cell}"
            if match[3] and abs(100 * number - value) <= 0.5000001 * 10**-decimals and number <= 1:
                return f"{verb} in cell {cell}"
    return None


def marks(text: str) -> list[tuple[str, str, str]]:
    """(kind, words, origin) of each mark in a cell's text, in order: kind is "source" or "here"."""
    return [tuple(" ".join(part.split()) for part in mark.groups()) for mark in _MARK.finditer(text)]


def _check_origin(origin: str) -> None:
    """A mark's origin: each path of the repository and each notebook that it names is there."""
    for path in re.findall(r"\b(?:satlib|tests|benchmarks|docs|notebooks|examples|tools)/[\w./@+-]+", origin):
        if not (ROOT / path.rstrip(".")).exists():
            raise ValueError(f"a source mark names {path}, which does not exist")
    for number in re.findall(r"\bnotebook (\d\d)\b", origin):
        if not list((ROOT / "notebooks").glob(f"{number}_*.py")):
            raise ValueError(f"a source mark names notebook {number}, which does not exist")


class _Text:
    """A markdown cell's words without its marks, and which of them claim nothing."""

    def __init__(self, chunk: str) -> None:
        silent = [False] * len(chunk)
        for match in _EXEMPT.finditer(chunk):
            silent[match.start() : match.end()] = [True] * (match.end() - match.start())
        hidden = [False] * len(chunk)  # comments are no part of the text
        for match in re.finditer(r"<!--.*?-->", chunk, re.DOTALL):
            hidden[match.start() : match.end()] = [True] * (match.end() - match.start())
        letters: list[str] = []
        self._silent: list[bool] = []
        for position, letter in enumerate(chunk):
            if hidden[position] or letter in "*`$" or (letter == "_" and not _inside_word(chunk, position)):
                continue
            if letter.isspace():
                if not letters or letters[-1] == " ":
                    continue
                letter = " "
            letters.append(letter.lower())
            self._silent.append(silent[position])
        self.plain = "".join(letters)

    def spans(self, words: str) -> list[tuple[int, int]]:
        """Where the text has these words."""
        return [(match.start(), match.end()) for match in re.finditer(re.escape(words), self.plain)]

    def exempt(self, first: int, end: int) -> bool:
        """Whether any letter of these claims nothing."""
        return any(self._silent[first:end])


def _inside_word(text: str, position: int) -> bool:
    around = text[max(position - 1, 0)], text[min(position + 1, len(text) - 1)]
    return all(letter.isalnum() for letter in around)
