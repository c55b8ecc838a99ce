"""Small changes of a solution, one at a time, each with what it does to the numbers in words.

A kind of change is a function that yields edits of a syntax tree. To add one, write such a function
and put it into KINDS.

The words complete "These are the numbers ...". They use the names that the task itself uses, and
those of functions that learners know (FUNCTIONS): a change that cannot be said in them is no help
to a learner, and is not tried.
"""

import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from satcourse.checks.task import Task

# New nodes by the ids of those that they replace.
Places = dict[int, Any]


class Edit(NamedTuple):
    """A change of a syntax tree: in words, None if it cannot be said, and where."""

    words: str | None
    places: Places
    leaves_out: bool = False  # something, and puts nothing in its place


FAMILIES = (
    {"relu", "sigmoid", "tanh"},
    {"amax", "mean", "sum"},
    {"max", "min"},
    {"argmax", "argmin"},
)
OVER_AXES = {"argmax", "argmin", "cumsum", "log_softmax", "mean", "softmax", "std", "sum"}
# Functions that learners know by these names.
FUNCTIONS = OVER_AXES.union(
    *FAMILIES,
    {"abs", "clamp", "detach", "exp", "log", "logsumexp", "lower", "masked_fill", "pad"},
    {"sqrt", "square", "tril", "zero_grad"},
)
MODULES = {"functional", "math", "nn", "np", "torch"}
OPERATIONS = {
    ast.Add: "sum",
    ast.Sub: "difference",
    ast.Mult: "product",
    ast.Div: "quotient",
}


class Language:
    """What can be said of a function of a solution: in the names of the task's text.

    The names in FUNCTIONS may be used for every task.
    """

    def __init__(self, task: Task, function: Any) -> None:
        text = inspect.getdoc(task.reference) or ""
        parameters = inspect.signature(task.reference).parameters
        self.names = {*re.findall(r"\d+\.\d+|\w+", text), *parameters, *task.parts} - FUNCTIONS
        # What another function returns, which the solution calls, has no name.
        self.result = "the result" if function is task.reference else None

    def joined(self, names: Iterable[str]) -> str | None:
        """Those of the names that the task uses too, joined by "and"; None if there are none."""
        return " and ".join(sorted({*names} & self.names)) or None

    def phrase(self, node: ast.AST) -> str | None:
        """An expression in words, such as "b", "the tanh of c" or "the term in Z and z".

        None if the task has no name for it.
        """
        if isinstance(node, ast.Constant) and not isinstance(node.value, str):
            return str(node.value)

        names = self.joined(_name(each) for each in ast.walk(node))
        function = _called(node)
        if function in FUNCTIONS:
            return f"the {function} of {names}" if names else f"the {function}"
        if isinstance(node, (ast.Name, ast.Attribute)):
            return names
        return _said("the term in {}", names)

    def computed(self, line: ast.AST) -> str | None:
        """What a line computes: variables, or the result."""
        is_last = isinstance(line, ast.Return)
        return self.result if is_last else self.joined(_variables(line, ast.Store))


def _said(sentence: str, *phrases: str | None) -> str | None:
    """A sentence with phrases in its gaps, {}.

    None if one of them cannot be said, or if two are the same: "x and x exchanged" says nothing.
    """
    if None in phrases or len({*phrases}) < len(phrases):
        return None
    return sentence.format(*phrases)


def changes(task: Task, function: Any) -> Iterator[tuple[str, ast.FunctionDef]]:
    """A function of a solution with each change, in words and as a syntax tree.

    Those that leave something out come first, and of these, as of the others, those nearest to the
    surface, to whole lines.
    """
    tree = parsed(function)
    language = Language(task, function)
    edits = []
    for kind in KINDS:
        edits += [edit for edit in kind(tree, language) if edit.words is not None]

    # `walk` goes from a function to its lines, and from these to what is inside them.
    order_of = {id(node): order for order, node in enumerate(ast.walk(tree))}
    edits.sort(key=lambda edit: min(order_of[place] for place in edit.places))
    # One forgets a thing more easily than one exchanges it for another. Each sort keeps the order
    # of the one before.
    edits.sort(key=lambda edit: not edit.leaves_out)
    for edit in edits:
        yield edit.words, ast.fix_missing_locations(_replaced(tree, edit.places))


def _replaced(tree: Any, places: Places) -> Any:
    """A copy of a tree, or of a part of one, with other nodes in some places.

    >>> sum_of_two = ast.parse("a + b").body[0].value
    >>> ast.unparse(_replaced(sum_of_two, {id(sum_of_two.right): ast.Constant(1)}))  # 'a + 1'
    """
    if id(tree) in places:
        return places[id(tree)]
    if isinstance(tree, list):
        return [_replaced(part, places) for part in tree]
    if isinstance(tree, ast.AST):
        fields = {name: _replaced(part, places) for name, part in ast.iter_fields(tree)}
        return type(tree)(**fields)
    return tree  # a name, a number or None


def parsed(function: Any) -> Any:
    """The syntax tree of a function, without decorators. Raises OSError if it has no source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    return _with(tree, decorator_list=[])


def nodes(tree: ast.AST, *kinds: type) -> list[Any]:
    """The nodes of some kinds in a tree."""
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def _with(node: Any, **fields: Any) -> Any:
    """A copy of a node with other fields."""
    other = copy.copy(node)
    vars(other).update(fields)
    return other


def _variables(node: ast.AST, context: type) -> set[str]:
    """The variables that some code reads (ast.Load), or assigns (ast.Store)."""
    return {name.id for name in nodes(node, ast.Name) if isinstance(name.ctx, context)}


def _name(node: ast.AST) -> str:
    """The name of a variable, or of an attribute without its object; "" of anything else."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.AST) -> str:
    """The name of the function that is called, without its module or object; "" of no call."""
    return _name(node.func) if isinstance(node, ast.Call) else ""


def _subject(call: ast.Call) -> ast.expr | None:
    """What is left of a call without its function: a method's object, or the first argument."""
    if isinstance(call.func, ast.Attribute) and _name(call.func.value) not in MODULES:
        return call.func.value
    return call.args[0] if call.args else None


# Kinds of changes.


def axes(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """Another axis."""
    for call in nodes(tree, ast.Call):
        function = _called(call)
        if function not in OVER_AXES:
            continue

        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            # A number of one digit is taken for an axis.
            if not re.fullmatch(r"-?\d", ast.unparse(argument)):
                continue
            for axis in (0, 1, 2, -1):
                batch = ", the batch" if axis == 0 and "B" in language.names else ""
                words = f"with the {function} over axis {axis}{batch}"
                yield Edit(words, {id(argument): ast.Constant(axis)})


def functions(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """A function left out, or another of its family: in one place, or everywhere."""
    calls = [call for call in nodes(tree, ast.Call) if _subject(call)]
    called = {_called(call) for call in calls}
    for name in sorted(FUNCTIONS & called):
        those = [call for call in calls if _called(call) == name]
        for call in those:
            phrase = language.phrase(call)
            yield Edit(_said("without {}", phrase), {id(call): _subject(call)}, leaves_out=True)
            yield from _of_family(name, [call], phrase)

        if len(those) > 1:
            subjects = {id(call): _subject(call) for call in those}
            yield Edit(f"without any {name}", subjects, leaves_out=True)
            yield from _of_family(name, those, f"every {name}")


def _of_family(name: str, calls: list[ast.Call], phrase: str | None) -> Iterator[Edit]:
    """Another function of its family in some calls of one; `phrase` says which calls."""
    family = next((family for family in FAMILIES if name in family), set())
    for other in sorted(family - {name}):
        # The name of `x.sum` is its `attr`, that of `sum` its `id`; the field too many is not read.
        renamed = {id(call.func): _with(call.func, attr=other, id=other) for call in calls}
        yield Edit(_said("with the {} in place of {}", other, phrase), renamed)


def operands(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """An operation's parts exchanged, one of them left out, another operation, no sign."""
    for node in nodes(tree, ast.BinOp):
        left, right = language.phrase(node.left), language.phrase(node.right)
        exchanged = _with(node, left=node.right, right=node.left)
        yield Edit(_said("with {} and {} exchanged", left, right), {id(node): exchanged})

        operation = OPERATIONS.get(type(node.op))
        # First what is subtracted or divided by: that is what one forgets.
        for forgotten, rest in ((right, node.left), (left, node.right)):
            words = _said("with {} left out of the {}", forgotten, operation)
            yield Edit(words, {id(node): rest}, leaves_out=True)
        for other, name in OPERATIONS.items():
            words = _said("with a {} in place of the {}", name, operation)
            yield Edit(words, {id(node): _with(node, op=other())})

    for node in nodes(tree, ast.UnaryOp):
        operand = language.phrase(node.operand)
        places = {id(node): node.operand}
        if isinstance(node.operand, ast.Constant):
            yield Edit(f"with {operand} in place of -{operand}", places)
        elif isinstance(node.op, ast.USub):
            yield Edit("without the minus sign", places, leaves_out=True)
        else:
            yield Edit(_said("with {} the other way round", operand), places)


def exchanges(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """Two arguments, targets or results exchanged; one variable in place of another."""
    for node in nodes(tree, ast.Call, ast.Tuple):
        items = node.args if isinstance(node, ast.Call) else node.elts
        for one, other in combinations(items, 2):
            phrases = language.phrase(one), language.phrase(other)
            words = _said("with {} and {} exchanged", *phrases)
            yield Edit(words, {id(one): other, id(other): one})

    names = nodes(tree, ast.Name)
    known = {name.id for name in names} & language.names
    read = [name for name in names if isinstance(name.ctx, ast.Load)]
    for name in read:
        for other in sorted(known):
            words = _said("with {} in place of {}", other, language.phrase(name))
            yield Edit(words, {id(name): _with(name, id=other)})


def constants(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """Another number, for one that the task mentions and that has no sign."""
    signed = {id(node.operand) for node in nodes(tree, ast.UnaryOp)}
    for node in nodes(tree, ast.Constant):
        if id(node) in signed:
            continue
        if type(node.value) in (int, float) and str(node.value) in language.names:
            for new in (0, 1, 2, node.value - 1, node.value + 1, -node.value):
                words = _said("with {} in place of {}", str(new), str(node.value))
                yield Edit(words, {id(node): ast.Constant(new)})


def lines(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """A line left out, or only its assignments to variables that it reads, too."""
    for line in nodes(tree, ast.Assign, ast.AugAssign, ast.If):
        words = _said("without the new {}", language.computed(line))
        yield Edit(words, {id(line): ast.Pass()}, leaves_out=True)

        # What would be assigned to such a variable goes to _, which nobody reads.
        both = _variables(line, ast.Load) & _variables(line, ast.Store)
        targets = [each for each in nodes(line, ast.Name) if isinstance(each.ctx, ast.Store)]
        places = {id(each): _with(each, id="_") for each in targets if each.id in both}
        if places:
            words = _said("without the new {}", language.joined(both))
            yield Edit(words, places, leaves_out=True)


def moved_up(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """A line reads what a later one assigns: the later one is moved up, before it."""
    for first, last in _pairs(tree):
        names = _variables(first, ast.Load) & _variables(last, ast.Store)
        if names:
            phrases = language.computed(first), language.joined(names)
            words = _said("with {} from the new {}", *phrases)
            yield Edit(words, {id(first): _together(last, first), id(last): ast.Pass()})


def stale(tree: ast.AST, language: Language) -> Iterator[Edit]:
    """A line reads what was there before an earlier one assigned it."""
    for first, last in _pairs(tree):
        names = _variables(first, ast.Store) & _variables(last, ast.Load)
        if not names:
            continue

        phrases = language.computed(last), language.joined(names)
        words = _said("with {} from the old {}", *phrases)
        # x is kept as _x before the earlier line, and _x is read in the later one.
        kept = [ast.parse(f"_{name} = {name}").body[0] for name in sorted(names)]
        reads = [each for each in nodes(last, ast.Name) if isinstance(each.ctx, ast.Load)]
        old = {id(each): _with(each, id=f"_{each.id}") for each in reads if each.id in names}
        yield Edit(words, {id(first): _together(*kept, first), id(last): _replaced(last, old)})


def _pairs(tree: ast.AST) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    """Each line with each that follows it in its block; the block of an `else` is left out."""
    for node in ast.walk(tree):
        block = getattr(node, "body", None)
        if isinstance(block, list):  # a lambda's is an expression
            yield from combinations(block, 2)


def _together(*lines: Any) -> ast.If:
    """Several lines in the place of one."""
    return ast.If(ast.Constant(True), [*lines], [])


KINDS = (axes, functions, operands, exchanges, constants, lines, moved_up, stale)
