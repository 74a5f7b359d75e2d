# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Integer expressions of a plan, compiled to Python functions."""

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kiln.errors import KilnError
from kiln.functions import Fn
from kiln.runtime.aten_call import affine_to_python
from kiln.runtime.plan import Expr

__all__ = ["affine_evaluator", "derived_evaluator"]


def affine_evaluator(expressions: Iterable[Expr]) -> Callable[[Sequence[int | None]], dict[Expr, int]]:
    """A function from symbol values to {expression: value}; numbers stand for themselves.

    The symbols that the expressions use must have values; the others may be None.
    """
    distinct = list(dict.fromkeys(expressions))
    texts = [e for e in distinct if isinstance(e, str)]
    fixed: dict[Expr, int] = {e: e for e in distinct if isinstance(e, int)}
    items = ", ".join(f"{text!r}: {affine_to_python(text)}" for text in texts)
    compute = eval(compile(f"lambda s: {{{items}}}", "<kiln sizes>", "eval"))
    if not texts:
        return lambda s: fixed
    return lambda s: {**fixed, **compute(s)}


def derived_evaluator(text: str, names: Sequence[str]) -> Callable[..., int]:
    """A function of the symbols `names`, in order, from the text of a sympy integer expression ("Max(1, s27)").

    Understands integer arithmetic and PyTorch's size functions (torch.utils._sympy.functions); anything else is a
    KilnError, here and not at the call.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise KilnError(f"size expression {text!r} does not parse: {error.msg}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise KilnError(f"size expression {text!r}: {type(node).__name__} is not integer arithmetic")
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS):
            raise KilnError(f"size expression {text!r}: unknown function {ast.unparse(node.func)}")
        if isinstance(node, ast.Name) and node.id not in _FUNCTIONS and node.id not in names:
            raise KilnError(f"size expression {text!r}: unknown symbol {node.id!r}; known: {', '.join(names)}")
    function = eval(compile(f"lambda {', '.join(names)}: int({text})", "<kiln size>", "eval"), dict(_FUNCTIONS))
    return function


_ALLOWED = (
    *(ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Call, ast.Tuple, ast.IfExp),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.Not, ast.BoolOp, ast.And, ast.Or),
    *(ast.BitAnd, ast.BitOr, ast.Invert, ast.RShift, ast.LShift),
    *(ast.Compare, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
)


def _exact(numerator: Any, denominator: int) -> int:
    return numerator // denominator


def _piecewise(*cases: Any) -> int:
    return next(value for value, condition in cases if condition)


# sympy's and PyTorch's names; see torch/utils/_sympy/functions.py for their meaning.
_FUNCTIONS: dict[str, Fn[Any, Any] | bool] = {
    "int": int,
    "Max": max,
    "Min": min,
    "Abs": abs,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": _exact,
    "CeilDiv": lambda a, b: -(-a // b),
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: a // b % c,
    "Where": lambda c, a, b: a if c else b,
    "Piecewise": _piecewise,
    "PowByNatural": pow,
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
    "IntTrueDiv": lambda a, b: a / b,
    "FloatTrueDiv": lambda a, b: a / b,
    "ToFloat": float,
    "TruncToInt": int,
    "CeilToInt": lambda a: -int(-a // 1),
    "FloorToInt": lambda a: int(a // 1),
    "RoundToInt": round,
    "ceiling": lambda a: -int(-a // 1),
    "floor": lambda a: int(a // 1),
    "Ne": lambda a, b: a != b,
    "Eq": lambda a, b: a == b,
    "Identity": lambda a: a,
    "True": True,
    "False": False,
}
