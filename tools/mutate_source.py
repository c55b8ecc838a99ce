"""The changes that `tools/mutate.py` tries: each in one place of a module's syntax tree. Texts and types are left alone."""

import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

_SWAPS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
_SWAPS |= {ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
_SWAPS |= {ast.LShift: ast.RShift, ast.RShift: ast.LShift}
_COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    **{ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,)},
    **{ast.In: (ast.NotIn,), ast.NotIn: (ast.In,)},
}
# x.name(...) and name(x) that may be dropped, leaving x.
_FORGOTTEN = {"detach", "clone", "contiguous", "to", "abs", "square", "sqrt", "log", "exp", "tanh", "clamp"}
_FORGOTTEN |= {"masked_fill", "flip", "cumsum", "mul_", "add_", "expand_as", "sigmoid", "dropout", "_precise"}
_FORGOTTEN |= {"sorted", "reversed", "isfinite", "permutation", "float", "int"}
_EXCHANGED = {"sum": "mean", "mean": "sum", "max": "min", "min": "max", "argmax": "argmin", "all": "any", "any": "all"}
_EXCHANGED |= {"zeros": "ones", "new_zeros": "new_ones", "new_ones": "new_zeros", "zeros_like": "ones_like"}
_KEPT_DECORATORS = {"dataclass", "property", "staticmethod", "classmethod", "contextmanager"}
_COMMUTATIVE = {"mul", "add", "max", "min", "maximum", "minimum", "isclose", "promote_types"}
_MODULES = {"torch", "nn", "functional", "math", "np"}


class Mutant(NamedTuple):
    """A change: `new` replaces the value of `parent`'s field (in a list, at `index`); None deletes it."""

    parent: ast.AST
    field: str
    index: int | None
    new: ast.AST | None
    line: int
    where: str  # the function
    before: str
    after: str

    def apply(self) -> None:
        """Apply the change to the tree."""
        if self.index is None:
            setattr(self.parent, self.field, self.new)
        elif self.new is None:
            del getattr(self.parent, self.field)[self.index]
        else:
            getattr(self.parent, self.field)[self.index] = self.new


def _name(node: ast.AST) -> str:
    """The last part of a dotted name or of a called one; "" for other expressions."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The replacements of an expression."""
    if isinstance(node, ast.BinOp):
        if type(node.op) in _SWAPS:
            yield ast.BinOp(node.left, _SWAPS[type(node.op)](), node.right)
            yield node.left
    elif isinstance(node, ast.Compare):
        for other in _COMPARISONS[type(node.ops[-1])]:
            yield ast.Compare(node.left, [*node.ops[:-1], other()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, (int, float)):
            yield ast.Constant(node.value + 1)
            if isinstance(node.value, int) and node.value:
                yield ast.Constant(node.value - 1)
    elif isinstance(node, ast.Slice):
        if node.lower is not None:
            yield ast.Slice(None, node.upper, node.step)
        if node.upper is not None:
            yield ast.Slice(node.lower, None, node.step)
    elif isinstance(node, ast.Call):
        yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    """The replacements of a call."""
    name = _name(node)
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    method = owner is not None and _name(owner) not in _MODULES | {"self"}
    moved = name == "to" and any(_name(argument) == "device" for argument in node.args)  # on a CPU nothing moves
    if name in _FORGOTTEN and (method or node.args) and not moved:
        yield owner if method else node.args[0]
    if name in _EXCHANGED and (owner is not None or name not in ("sum", "mean")):  # there is no function mean()
        other = copy.deepcopy(node)
        setattr(other.func, "attr" if owner is not None else "id", _EXCHANGED[name])
        yield other
    for i, keyword in enumerate(node.keywords):
        # On a CPU every device is the same, and `strict` is an assertion, which no right call breaks.
        if keyword.arg not in (None, "device", "strict"):
            yield ast.Call(node.func, node.args, node.keywords[:i] + node.keywords[i + 1 :])
    for i in range(len(node.args) - 1):
        one, other = node.args[i : i + 2]
        alike = type(one) is type(other) and not isinstance(one, (ast.Constant, ast.Starred))
        if alike and name not in _COMMUTATIVE:
            yield ast.Call(node.func, [*node.args[:i], other, one, *node.args[i + 2 :]], node.keywords)


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    """The replacements of a statement."""
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Break, ast.Continue)):
        yield ast.Pass()
    if isinstance(node, ast.AugAssign) and type(node.op) in _SWAPS:
        yield ast.AugAssign(node.target, _SWAPS[type(node.op)](), node.value)
    if isinstance(node, ast.Return) and not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield ast.Return(ast.Constant(None))
    if isinstance(node, (ast.If, ast.While)):
        yield type(node)(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    if isinstance(node, ast.With) and not any(item.optional_vars for item in node.items):
        yield ast.If(ast.Constant(True), node.body, [])


def _skipped(node: ast.AST, parent: ast.AST, field: str) -> bool:
    """Whether a node is not changed: texts, types, imports, and code for type checkers or error messages only."""
    if field in ("annotation", "returns", "names", "type_comment", "ctx") or isinstance(
        parent, (ast.Raise, ast.Assert)
    ):
        return True
    if field == "decorator_list" or (isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING"):
        return True
    if isinstance(parent, ast.keyword) and parent.arg in ("device", "strict"):
        return True
    return isinstance(node, (ast.JoinedStr, ast.Assert)) or (isinstance(node, ast.Constant) and node.value is None)


def mutants(tree: ast.Module) -> list[Mutant]:
    """All changes of a module, by line."""
    changes: dict[tuple[int, str, str], Mutant] = {}

    def changed(parent: ast.AST, field: str, index: int | None, new: ast.AST | None, top: ast.stmt, where: str) -> None:
        before = ast.unparse(top).splitlines()
        old = getattr(parent, field) if index is None else getattr(parent, field)[index]
        mutant = Mutant(parent, field, index, new, getattr(old, "lineno", top.lineno), where, "", "")
        if old is top:
            after = ast.unparse(ast.fix_missing_locations(new)).splitlines()
        else:
            mutant.apply()
            after = ast.unparse(ast.fix_missing_locations(top)).splitlines()
            if new is None:
                getattr(parent, field).insert(index, old)
            else:
                mutant._replace(new=old).apply()
        if before != after:
            lines = next(((b, a) for b, a in zip(before, after, strict=False) if b != a), (before[-1], after[-1]))
            mutant = mutant._replace(before=lines[0].strip(), after=lines[1].strip())
            changes.setdefault((mutant.line, mutant.before, mutant.after), mutant)

    def walk(node: ast.AST, top: ast.stmt | None, where: str, inside: bool) -> None:
        for field, value in ast.iter_fields(node):
            many = isinstance(value, list)
            for index, child in enumerate(list(value) if many else [value]):
                if not isinstance(child, ast.AST) or _skipped(child, node, field):
                    continue
                place = index if many else None
                here, name = child if isinstance(child, ast.stmt) else top, where
                if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                    name = f"{where}.{child.name}".lstrip(".")
                    for i, decorator in enumerate(child.decorator_list):
                        if _name(decorator) not in _KEPT_DECORATORS:
                            changed(child, "decorator_list", i, None, child, name)
                text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
                if isinstance(child, ast.stmt) and inside and not text:
                    for new in _statements(child):
                        changed(node, field, place, new, child, name)
                elif isinstance(child, (ast.expr, ast.Slice)) and here is not None:
                    for new in _expressions(child):
                        changed(node, field, place, new, here, name)
                elif isinstance(child, ast.comprehension):
                    for i in range(len(child.ifs)):
                        changed(child, "ifs", i, None, here, name)
                if not text:
                    walk(child, here, name, inside or isinstance(child, ast.FunctionDef))

    walk(tree, None, "", False)
    return sorted(changes.values(), key=lambda mutant: mutant.line)
