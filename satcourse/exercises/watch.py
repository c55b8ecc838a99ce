"""Detect and undo replaced functions, such as torch.softmax: those that exercises and their checks rely on."""

import builtins
import contextlib
import math
import random
import re
from collections import Counter, defaultdict
from typing import Any

import numpy
import torch
from torch.nn import functional

from satcourse.exercises import compare

_BUILTINS = [
    "abs",
    "all",
    "any",
    "bool",
    "dict",
    "enumerate",
    "float",
    "int",
    "isinstance",
    "len",
    "list",
    "map",
    "max",
    "min",
    "pow",
    "print",
    "range",
    "reversed",
    "round",
    "set",
    "sorted",
    "str",
    "sum",
    "tuple",
    "type",
    "zip",
]
# Only names that exist at import are watched: libraries add names of their own later.
_WATCHED: dict[Any, tuple[str, ...]] = {
    builtins: tuple(_BUILTINS),
    math: tuple(name for name in vars(math) if name[0] != "_"),
    random: ("random", "seed", "choice", "choices", "randint", "shuffle"),
    numpy: tuple(name for name in vars(numpy) if name[0] != "_" and callable(vars(numpy)[name])),
    # torch itself replaces torch.Storage when the default dtype changes.
    torch: tuple(name for name in vars(torch) if name[0] != "_" and callable(vars(torch)[name]) and name != "Storage"),
    functional: tuple(name for name in vars(functional) if name[0] != "_"),
    torch.testing: ("assert_close",),
    torch.autograd: ("grad", "backward"),
    re: ("compile", "findall", "finditer", "fullmatch", "match", "search", "split", "sub"),
    compare: ("difference", "same"),
}
_OPERATORS = (
    "add", "sub", "mul", "truediv", "pow", "matmul", "radd", "rsub", "rmul", "rtruediv", "neg", "abs", "invert",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "getitem", "setitem", "len", "iter", "float", "int", "bool",
)  # fmt: skip
_METHODS = (*(name for name in dir(torch.Tensor) if name[0] != "_"), *(f"__{name}__" for name in _OPERATORS))
_MODULES = ("Linear", "Module", "Embedding", "LSTMCell")


def _now() -> dict[tuple[Any, str], Any]:
    """The current object of each watched name."""
    objects = {(owner, name): vars(owner).get(name) for owner, names in _WATCHED.items() for name in names}
    objects |= {(torch.Tensor, name): getattr(torch.Tensor, name, None) for name in _METHODS}
    for kind in (Counter, defaultdict):
        objects |= {(kind, name): getattr(kind, name) for name in vars(kind) if callable(getattr(kind, name))}
    for name in _MODULES:
        objects |= {
            (getattr(torch.nn, name), method): getattr(getattr(torch.nn, name), method)
            for method in ("__call__", "forward")
        }
    return objects


_SNAPSHOT = _now()


def _of_torch(now: Any, name: str) -> bool:
    """Whether torch itself has wrapped the function, as it does with some when its compiler is loaded; that is accepted."""
    return getattr(now, "__name__", "") == name and str(getattr(now, "__module__", "")).partition(".")[0] == "torch"


def put_back() -> list[str]:
    """Restore everything replaced since satcourse.exercises was imported; return the names, as "torch.softmax"."""
    restored = []
    for (owner, name), was in _SNAPSHOT.items():
        now = getattr(owner, name, None) if isinstance(owner, type) else vars(owner).get(name)
        # `==`, because C descriptors return a new object at each access.
        if now is was or (isinstance(owner, type) and now == was) or _of_torch(now, name):
            continue
        restored.append(f"{owner.__name__}.{name}".replace("builtins.", ""))
        if isinstance(owner, type) and owner is torch.Tensor and hasattr(torch._C.TensorBase, name):
            with contextlib.suppress(AttributeError):
                delattr(owner, name)
            if getattr(owner, name, None) == was:
                continue
        setattr(owner, name, was)
    return restored
