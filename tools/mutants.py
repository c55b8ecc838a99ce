"""How sensitive are the checks of the exercises? `python tools/mutants.py [ID ...]`.

Each solution in solutions/*.py is changed in one place (a sign, an axis, a number by one, a comparison, a missing detach, mask,
square, absolute value, ...) and given to its check. Prints the share of changes that were found wrong, and every change that was
not; those known to leave the answer right are printed with the reason (`JUDGED`) and do not count.
"""

import argparse
import ast
import contextlib
import copy
import dataclasses
import io
import sys
from collections.abc import Iterator, Sequence

import jupytext

from exercises import SOLUTION, solved, sources
from satcourse.exercises import Wrong, check
from satcourse.exercises.engine import chapter

LEAST = 0.95  # share of changes that must be found
# Changes that leave the answer right: (exercise, the changed line) -> reason.
JUDGED: dict[tuple[str, str], str] = {
    ("1.5", "alpha = torch.softmax(a @ query, dim=-1)"): "right: there is one axis, the first and the last",
    ("2.5", "cosines[i] = -3"): "right: no cosine is below -1",
    ("2.5", "cosines[i] = -1"): "right: a cosine of exactly -1 with all other places does not occur",
    (
        "6.5",
        "return (advantage, 0.9 * baseline + 0.1 * rewards.mean())",
    ): "right: a tensor without a history is a number too",
    ("4.9", "losses.append(loss)"): "right: a tensor without axes is a number too",
    ("4.10", "return loss"): "right: a tensor without axes is a number too",
    ("7.4", "return -0.0"): "right: it is equal to 0",
    ("7.5", "if length > r:"): "right: at equal lengths exp(1 - r / c) is 1",
    ("8.4", "if norm < most:"): "right: at the limit the factor is 1",
    (
        "8.4",
        "return [gradient for gradient in gradients]",
    ): "right: returning the same gradients does not change them",
    ("8.5", "for epoch in range(2, len(scores) + 1):"): "right: nothing can happen at epoch 1",
    (
        "9.3",
        "return -sum((weight * padded[:, k:k + width] for k, weight in enumerate(kernel)))",
    ): "right: the function is applied twice",
}

_SWAPS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mod,
}
_SWAPS |= {ast.Mod: ast.FloorDiv, ast.MatMult: ast.Mult}
_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
# Calls that can be dropped: x.detach() -> x, torch.tanh(x) -> x.
_FORGOTTEN = {"detach", "masked_fill", "abs", "square", "sqrt", "log", "exp", "relu", "tanh", "sigmoid", "softmax"}
_FORGOTTEN |= {"float", "mean", "flip", "lower", "unsqueeze", "squeeze", "item", "reshape", "permute", "clone"}
_OTHERS = {
    "sum": "mean",
    "mean": "sum",
    "max": "min",
    "min": "max",
    "argmax": "argmin",
    "sigmoid": "tanh",
    "tanh": "sigmoid",
}


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """The replacements of a node."""
    if isinstance(node, ast.BinOp):
        if type(node.op) in _SWAPS:
            yield ast.BinOp(node.left, _SWAPS[type(node.op)](), node.right)
        if isinstance(node.op, (ast.Add, ast.Mult, ast.Sub, ast.Pow, ast.Div)):  # drop one side
            yield node.left
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield ast.Compare(node.left, [_COMPARISONS[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield ast.Constant(node.value + 1)
        yield ast.Constant(node.value - 1)
    elif isinstance(node, ast.Constant) and type(node.value) is float:
        yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.Constant) and node.value is True:
        yield ast.Constant(False)
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        of_torch = isinstance(owner, ast.Name) and owner.id in ("torch", "functional", "math")
        if name in _FORGOTTEN and (owner is not None):
            yield node.args[0] if of_torch else owner
        if name in _OTHERS:
            other = copy.deepcopy(node)
            if isinstance(other.func, ast.Attribute):
                other.func.attr = _OTHERS[name]
            else:
                other.func.id = _OTHERS[name]
            yield other
        if name in ("sum", "mean") and owner is not None and node.args and not of_torch:
            yield ast.Call(node.func, [], [])  # drop the axis
    elif isinstance(node, (ast.Return, ast.Tuple)) and isinstance(getattr(node, "value", node), ast.Tuple):
        values = getattr(node, "value", node)
        if isinstance(node, ast.Return) and len(values.elts) == 2:
            yield ast.Return(ast.Tuple(values.elts[::-1], values.ctx))
    elif isinstance(node, ast.Return) and node.value is not None:
        yield ast.Return(ast.UnaryOp(ast.USub(), node.value))
    elif isinstance(node, ast.AugAssign):
        yield ast.Pass()


def mutants(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """The code of each changed function, with the line that was changed."""
    nodes = [node for statement in function.body[1:] for node in ast.walk(statement)]  # the docstring stays
    for index, node in enumerate(nodes):
        for number, _ in enumerate(_changes(node)):
            twin = copy.deepcopy(function)
            old = [node for statement in twin.body[1:] for node in ast.walk(statement)][index]
            new = list(_changes(old))[number]
            code = ast.unparse(ast.fix_missing_locations(_Replace(old, ast.copy_location(new, old)).visit(twin)))
            before, after = ast.unparse(function).splitlines(), code.splitlines()
            differing = [line for old_line, line in zip(before, after, strict=False) if old_line != line] or after[-1:]
            if before != after:
                yield code, differing[0].strip()


class _Replace(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        """Replace the old node by the new one."""
        return self.new if node is self.old else self.generic_visit(node)


def solutions(wanted: Sequence[str]) -> dict[str, tuple[ast.FunctionDef, dict]]:
    """The solution of each exercise, and the names that its module defines; only of the notebooks of these ids, if there are any."""
    functions = {}
    for source in sources(sorted({f"{int(id.split('.')[0]):02}" for id in wanted})):
        names: dict = {"__name__": "solutions"}
        tasks = {asked.name: asked.id for asked in chapter(int(source.stem[:2])).values()}
        for cell in jupytext.read(source).cells:
            if cell.cell_type != "code" or "plots." in cell.source:
                continue
            code = solved(cell.source)
            exec(compile(code, source.name, "exec"), names)
            if SOLUTION.search(cell.source):
                (function,) = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
                functions[tasks[function.name]] = function, names
    return functions


def survives(id: str, code: str, names: dict) -> bool:
    """Whether a changed function passes its check."""
    own = dict(names)
    exec(compile(code, "<mutant>", "exec"), own)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            check(id, own[chapter(int(id.split(".")[0]))[id].name])
    except Wrong:
        return False
    return True


def main() -> int:
    """See the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="exercises, as 4.2, or notebooks, as 4; by default all")
    wanted = parser.parse_args().ids
    caught = judged = total = 0
    for id, (function, names) in solutions(wanted).items():
        if wanted and id not in wanted and id.split(".")[0] not in wanted:
            continue
        tasks = chapter(int(id.split(".")[0]))
        tasks[id] = dataclasses.replace(tasks[id], seconds=1.0, mistakes={})  # the name of a mistake does not matter
        for code, line in mutants(function):
            total += 1
            if not survives(id, code, names):
                caught += 1
                continue
            why = JUDGED.get((id, line))
            judged += why is not None
            print(
                f"{id}: `{line}` was not found: {why or 'NOT JUDGED: is the answer right, or is the check too weak?'}",
                flush=True,
            )
    share = caught / max(1, total)
    fair = caught / max(1, total - judged)
    print(
        f"{caught} of {total} changes were found wrong: {share:.1%}; of those that do make the answer wrong: {fair:.1%}"
    )
    return 0 if fair >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
