"""Small changes of a solution, one at a time, each with what it does to the numbers in words.

A kind of change is a function: of a node of the solution's syntax tree, or of a block of its lines,
it yields edits. To add a kind, write such a function and put it into KINDS. The words complete
"These are the numbers ..."; they use the names that the task itself uses, and no other. A change
without such words is none that a learner could be told of, and is left out.
"""

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, NamedTuple

from satcourse.checks.task import Task

# What learners call these functions; of others nothing is said.
FUNCTIONS = {
    "abs": "absolute value",
    "amax": "maximum",
    "amin": "minimum",
    "argmax": "argmax",
    "argmin": "argmin",
    "clamp": "lower limit",
    "clip_grad_norm_": "clipping",
    "cumsum": "running sum",
    "detach": "detach",
    "exp": "exponential",
    "fmean": "mean",
    "log": "logarithm",
    "log_softmax": "logarithm of a softmax",
    "long": "rounding down",
    "lower": "lower case",
    "masked_fill": "mask",
    "max": "maximum",
    "mean": "mean",
    "min": "minimum",
    "normalize": "unit length",
    "relu": "ReLU",
    "sigmoid": "sigmoid",
    "softmax": "softmax",
    "sqrt": "root",
    "square": "square",
    "std": "standard deviation",
    "sum": "sum",
    "tanh": "tanh",
    "zero_grad": "zero_grad",
}
FAMILIES = (
    ("tanh", "sigmoid", "relu"),
    ("softmax", "sigmoid", "log_softmax"),
    ("sum", "mean", "amax"),
    ("max", "min", "sum"),
    ("argmax", "argmin"),
)
OVER_AXES = {"argmax", "argmin", "cumsum", "mean", "normalize", "softmax", "std", "sum"}
MODULES = {"functional", "math", "nn", "np", "torch"}
SUM, DIFFERENCE, PRODUCT, QUOTIENT = "sum", "difference", "product", "quotient"
OPERATIONS = {ast.Add: SUM, ast.Sub: DIFFERENCE, ast.Mult: PRODUCT, ast.Div: QUOTIENT}
COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "=="}
# What may stand around a result, or a named value, and should not.
MORE = {
    "with one more softmax of {}": "torch.softmax(_, -1)",
    "with one more sigmoid of {}": "torch.sigmoid(_)",
    "with one more tanh of {}": "torch.tanh(_)",
    "with the logarithm of {}": "torch.log(_)",
    "with the exponential of {}": "torch.exp(_)",
    "with the root of {}": "_ ** 0.5",
    "with the square of {}": "_ ** 2",
    "with 1 less {}": "1 - _",
    "with the mean of {}": "_.mean()",
    "with the sum of {} over axis 0": "_.sum(0)",
    "with the sum of {} over axis 1": "_.sum(1)",
    "with the mean of {} over axis 0": "_.mean(0)",
    "with the mean of {} over axis 1": "_.mean(1)",
    "with the first element of {} alone": "_[0]",
    "with the last element of {} alone": "_[-1]",
    "with {} rounded to two decimals": "round(_, 2)",
}


class Edit(NamedTuple):
    """A change: what it does in words, and what stands in the place of which nodes or blocks."""

    words: str | None  # None: it cannot be said
    places: Mapping[int, Any]  # by their ids


class Change(NamedTuple):
    """A changed solution."""

    words: str
    tree: ast.FunctionDef


class Language:
    """What can be said of a solution: in the names of the task's own text, and no others."""

    def __init__(self, task: Task, tree: ast.FunctionDef) -> None:
        self.text = inspect.getdoc(task.reference) or ""
        parameters = inspect.signature(task.reference).parameters
        self.names = {*re.findall(r"\w+", self.text), *parameters, *task.parts}
        self.parts = task.parts
        self.variables = sorted({*parameters, *_written(tree)} & self.names)

    def known(self, node: ast.AST) -> Iterator[str]:
        """The names in an expression that the task uses, too, in order."""
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in self.names - {*FUNCTIONS}:
                yield name
            case _:
                for child in ast.iter_child_nodes(node):
                    yield from self.known(child)

    def phrase(self, node: ast.AST) -> str | None:
        """An expression in words, such as "b", "the tanh of c", "the part with z and Z"."""
        names = " and ".join(dict.fromkeys(self.known(node)))
        match node:
            case ast.Constant(value=int() | float() as value):
                return f"{value:g}"
            case ast.Call() if _called(node) in FUNCTIONS:
                return f"the {FUNCTIONS[_called(node)]}" + (f" of {names}" if names else "")
            case ast.Name() | ast.Attribute() | ast.Tuple() | ast.Starred():
                return names or None
        return f"the part with {names}" if names else None

    def result(self, line: ast.stmt) -> str | None:
        """What a line computes: names, or the whole result."""
        if isinstance(line, ast.Return):
            return "the result"
        return " and ".join(name for name in _written(line) if name in self.names) or None


def changes(task: Task, function: Any) -> Iterator[Change]:
    """All changes of a function's source that can be said, those nearest to its surface first."""
    tree = parsed(function)
    language = Language(task, tree)
    edits = []
    for depth, place in _places(tree, 0):
        for kind in KINDS:
            edits += [(depth, edit) for edit in kind(place, language) if edit.words]

    seen = set()
    for _, (words, places) in sorted(edits, key=lambda pair: pair[0]):
        changed = replaced(tree, places)
        text = ast.unparse(changed)
        if text not in seen:
            yield Change(str(words), changed)
        seen.add(text)


def parsed(function: Any) -> ast.FunctionDef:
    """The syntax tree of a function, without decorators, annotations and docstring.

    Raises OSError if there is no source.
    """
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    assert isinstance(tree, ast.FunctionDef)
    tree.decorator_list = []
    tree.returns = None
    for argument in ast.walk(tree):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    if ast.get_docstring(tree):
        del tree.body[0]
    return tree


def replaced(tree: ast.FunctionDef, places: Mapping[int, Any]) -> ast.FunctionDef:
    """A copy of a tree with other nodes, or blocks, in the places of some."""
    # A copy of what deepcopy believes that it has copied already is what it is told.
    return ast.fix_missing_locations(copy.deepcopy(tree, {**places}))


def _places(node: ast.AST, depth: int) -> Iterator[tuple[int, Any]]:
    """All nodes below a node and all blocks of lines, with their depth."""
    for value in vars(node).values():
        if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
            yield depth, value
    yield depth, node
    for child in ast.iter_child_nodes(node):
        yield from _places(child, depth + 1)


def _with(node: Any, **fields: Any) -> Any:
    """A copy of a node with other fields."""
    other = copy.copy(node)
    vars(other).update(fields)
    return other


def _said(words: str, *phrases: str | None) -> str | None:
    """Words with phrases in their gaps; None if there is no phrase for one, or the same twice."""
    if None in phrases or len({*phrases}) < len(phrases):
        return None
    return words.format(*phrases)


def _called(call: ast.Call) -> str:
    """The name of the function that is called, without its module or object."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _subject(call: ast.Call) -> ast.expr | None:
    """What is left of a call without its function: the object of a method, or the first argument."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=module)) if module in MODULES:
            return call.args[0] if call.args else None
        case ast.Attribute(value=value):
            return value
    return call.args[0] if call.args else None


def _written(node: ast.AST) -> list[str]:
    """The variables that a node assigns."""
    return [name.id for name in _names(node, ast.Store)]


def _names(node: ast.AST, context: type[ast.expr_context]) -> list[ast.Name]:
    nodes = ast.walk(node)
    return [each for each in nodes if isinstance(each, ast.Name) and isinstance(each.ctx, context)]


# Kinds of changes within a line.


def constants(node: Any, language: Language) -> Iterator[Edit]:
    """Another number."""
    if not isinstance(node, ast.Constant) or type(node.value) not in (int, float):
        return
    old = node.value
    for new in (old - 1, old + 1, -old, 2 * old, old / 2, 1 - old, 0, 1, 2):
        # Only what the task says itself is said again.
        instead = f"{old:g}" if re.search(rf"\b{old:g}\b", language.text) else "another number"
        yield Edit(f"with {new:g} in place of {instead}", {id(node): ast.Constant(type(old)(new))})


def axes(node: Any, language: Language) -> Iterator[Edit]:
    """Another axis, or none."""
    if not isinstance(node, ast.Call) or _called(node) not in OVER_AXES:
        return
    function = FUNCTIONS[_called(node)]
    keywords = [each for each in node.keywords if each.arg in ("dim", "axis")]
    position = 0 if _subject(node) is getattr(node.func, "value", None) else 1
    if not keywords and len(node.args) <= position:
        return

    axis = keywords[0].value if keywords else node.args[position]
    for new in (0, 1, 2, -1):
        batch = ", the batch" if new == 0 and "(B," in language.text else ""
        words = f"with the {function} over axis {new}{batch}"
        yield Edit(words, {id(axis): ast.Constant(new)})
    everything = _with(node, args=node.args[:position], keywords=[])
    yield Edit(f"with the {function} over all numbers", {id(node): everything})


def operands(node: Any, language: Language) -> Iterator[Edit]:
    """A part of a sum or product left out, or both exchanged; another operator."""
    if not isinstance(node, ast.BinOp):
        return
    left, right = language.phrase(node.left), language.phrase(node.right)
    operation = OPERATIONS.get(type(node.op), "")
    if operation in (SUM, DIFFERENCE):
        yield Edit(_said(f"without {{}} in the {operation}", left), {id(node): node.right})
        yield Edit(_said(f"without {{}} in the {operation}", right), {id(node): node.left})
    elif operation == PRODUCT:
        yield Edit(_said("without {} as a factor", left), {id(node): node.right})
        yield Edit(_said("without {} as a factor", right), {id(node): node.left})
    elif operation == QUOTIENT:
        yield Edit(_said("without the division by {}", right), {id(node): node.left})
    elif isinstance(node.op, ast.Pow):
        yield Edit("without the power", {id(node): node.left})

    if operation:
        for other, name in OPERATIONS.items():
            if name != operation:
                words = f"with a {name} in place of a {operation}"
                yield Edit(words, {id(node): _with(node, op=other())})
    exchanged = _with(node, left=node.right, right=node.left)
    yield Edit(_said("with {} and {} exchanged", left, right), {id(node): exchanged})


def signs(node: Any, language: Language) -> Iterator[Edit]:
    """A minus or a not left out, another comparison."""
    match node:
        case ast.UnaryOp(op=ast.USub()):
            yield Edit("without the minus sign", {id(node): node.operand})
        case ast.UnaryOp():
            words = _said("with {} the other way round", language.phrase(node.operand))
            yield Edit(words, {id(node): node.operand})
        case ast.Compare(ops=[old]) if type(old) in COMPARISONS:
            for new, sign in COMPARISONS.items():
                words = f"with {sign} in place of {COMPARISONS[type(old)]}"
                yield Edit(words, {id(node): _with(node, ops=[new()])})


def functions(node: Any, language: Language) -> Iterator[Edit]:
    """A function left out, or another of its family; an argument left out."""
    if not isinstance(node, ast.Call):
        return
    subject, name = _subject(node), _called(node)
    if name in FUNCTIONS and subject is not None:
        yield Edit(f"without {language.phrase(node)}", {id(node): subject})
        for other in _relatives(name):
            words = f"with a {FUNCTIONS[other]} in place of {language.phrase(node)}"
            yield Edit(words, {id(node): _other_function(node, other)})
    for keyword in node.keywords:
        rest = [each for each in node.keywords if each is not keyword]
        yield Edit(_said("without {}", keyword.arg), {id(node): _with(node, keywords=rest)})


def _relatives(name: str) -> list[str]:
    found = [other for family in FAMILIES if name in family for other in family]
    return [other for other in dict.fromkeys(found) if other != name]


def _other_function(call: ast.Call, name: str) -> ast.Call:
    """A call of another function; one of single numbers has no axis."""
    field = "attr" if isinstance(call.func, ast.Attribute) else "id"
    other = _with(call, func=_with(call.func, **{field: name}))
    if name in FAMILIES[0] and _called(call) not in FAMILIES[0]:
        is_method = _subject(call) is getattr(call.func, "value", None)
        other = _with(other, args=[] if is_method else call.args[:1], keywords=[])
    return other


def everywhere(node: Any, language: Language) -> Iterator[Edit]:
    """A function left out, or another of its family, wherever it is called."""
    if not isinstance(node, ast.FunctionDef):
        return
    calls: dict[str, list[ast.Call]] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and _called(each) in FUNCTIONS and _subject(each):
            calls.setdefault(_called(each), []).append(each)
    for name, those in calls.items():
        if len(those) > 1:
            yield Edit(f"without any {FUNCTIONS[name]}", {id(one): _subject(one) for one in those})
            for other in _relatives(name):
                words = f"with a {FUNCTIONS[other]} in place of every {FUNCTIONS[name]}"
                yield Edit(words, {id(one): _other_function(one, other) for one in those})


def exchanges(node: Any, language: Language) -> Iterator[Edit]:
    """Two arguments, targets or results exchanged; another variable."""
    match node:
        case ast.Call(args=items) | ast.Tuple(elts=items):
            for one, other in combinations(items, 2):
                phrases = language.phrase(one), language.phrase(other)
                words = _said("with {} and {} exchanged", *phrases)
                yield Edit(words, {id(one): other, id(other): one})
        case ast.Name(id=old, ctx=ast.Load()) if old in language.variables:
            for new in language.variables:
                words = _said("with {} in place of {}", new, old)
                yield Edit(words, {id(node): ast.Name(new, ast.Load())})


def choices(node: Any, language: Language) -> Iterator[Edit]:
    """All in place of a part; one case of two."""
    match node:
        case ast.Subscript(ctx=ast.Load()):
            words = _said("with all of {}, not a part of it", language.phrase(node.value))
            yield Edit(words, {id(node): node.value})
        case ast.IfExp():
            names = " and ".join(language.known(node.test)) or None
            for only in (node.body, node.orelse):
                yield Edit(_said("without the special case for {}", names), {id(node): only})


def more(node: Any, language: Language) -> Iterator[Edit]:
    """Something more around a result, or around a named value."""
    if not isinstance(node, (ast.Return, ast.Assign)) or node.value is None:
        return
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    names = [language.result(node)] * len(values)
    if isinstance(node, ast.Return) and len(values) == len(language.parts):
        names = [*language.parts]
    for value, name in zip(values, names, strict=True):
        for words, code in MORE.items():
            around = ast.parse(code, mode="eval").body
            (gap,) = [each for each in _names(around, ast.Load) if each.id == "_"]
            yield Edit(_said(words, name), {id(value): copy.deepcopy(around, {id(gap): value})})
        detached = ast.Call(ast.Attribute(value, "detach", ast.Load()), [], [])
        yield Edit(_said("with {} detached", name), {id(value): detached})


# Kinds of changes of whole lines.


def lines_left_out(block: Any, language: Language) -> Iterator[Edit]:
    """A line left out."""
    if not isinstance(block, list):
        return
    for place, line in enumerate(block):
        rest = block[:place] + block[place + 1 :] or [ast.Pass()]
        match line:
            case ast.Assign() | ast.AugAssign():
                words = _said("if {} stays as it was", language.result(line))
            case ast.Expr(value=ast.Call() as call) if _called(call) in FUNCTIONS:
                words = f"without {FUNCTIONS[_called(call)]}"
            case ast.If():
                names = " and ".join(language.known(line.test)) or None
                words = _said("without the special case for {}", names)
            case _:
                continue
        yield Edit(words, {id(block): rest})


def lines_moved(block: Any, language: Language) -> Iterator[Edit]:
    """A line earlier or later: what reads a variable that the other writes says what it means."""
    if not isinstance(block, list):
        return
    for one, other in combinations(range(len(block)), 2):
        later, earlier = block[other], block[one]
        if isinstance(later, ast.Return):
            continue
        down = [*block[:one], *block[one + 1 : other + 1], earlier, *block[other + 1 :]]
        up = [*block[:one], later, *block[one:other], *block[other + 1 :]]
        yield Edit(_reads(earlier, later, "new", language), {id(block): down})
        yield Edit(_reads(earlier, later, "new", language), {id(block): up})


def _reads(reader: ast.stmt, writer: ast.stmt, age: str, language: Language) -> str | None:
    """That one line reads what another writes; None if it does not, or if it cannot be said."""
    for name in language.known(writer):
        if name in _written(writer) and name in {each.id for each in _names(reader, ast.Load)}:
            return _said(f"with {{}} from the {age} {{}}", language.result(reader), name)
    return None


def earlier_values(block: Any, language: Language) -> Iterator[Edit]:
    """In one line the value that a variable had before."""
    if not isinstance(block, list):
        return
    for one, other in combinations(range(len(block)), 2):
        writer, reader = block[one], block[other]
        words = _reads(reader, writer, "old", language)
        for name in {*_written(writer)}:
            reads = [each for each in _names(reader, ast.Load) if each.id == name]
            old = ast.Name("_old", ast.Load())
            keep = ast.parse(f"_old = {name}").body
            line = copy.deepcopy(reader, {id(each): old for each in reads})
            body = [*block[:one], *keep, *block[one:other], line, *block[other + 1 :]]
            yield Edit(words if reads else None, {id(block): body})


KINDS = (
    axes,
    functions,
    everywhere,
    operands,
    signs,
    exchanges,
    constants,
    choices,
    lines_left_out,
    lines_moved,
    earlier_values,
    more,
)
