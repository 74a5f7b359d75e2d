# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sizes as sympy expressions: those of a pattern's own symbols, and those of the function it is looked for in."""

from collections.abc import Sequence
from typing import Any

import sympy
from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type

__all__ = ["argument_sizes", "bind", "map_of", "result_sizes", "strides_of", "symbol", "to_sympy"]


def symbol(name: str) -> sympy.Symbol:
    """The sympy symbol of a size."""
    return sympy.Symbol(name, integer=True, positive=True)


def to_sympy(expr: ir.AffineExpr, names: Sequence[str]) -> sympy.Expr:
    """An affine expression over the symbols ``names``."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineConstantExpr):
        return sympy.Integer(expr.value)
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbol(names[expr.position])
    assert isinstance(expr, ir.AffineBinaryExpr)
    lhs, rhs = to_sympy(expr.lhs, names), to_sympy(expr.rhs, names)
    if isinstance(expr, ir.AffineAddExpr):
        return sympy.expand(lhs + rhs)
    if isinstance(expr, ir.AffineMulExpr):
        return sympy.expand(lhs * rhs)
    if isinstance(expr, ir.AffineModExpr):
        return sympy.Function("mod")(lhs, rhs)
    return sympy.Function("div" if isinstance(expr, ir.AffineFloorDivExpr) else "ceildiv")(lhs, rhs)


def map_of(value: ir.Value, of_op: str, of_argument: str) -> ir.AffineMap | None:
    """The affine map that a torch value carries as an attribute; None without one."""
    if isinstance(value, ir.BlockArgument):
        function = value.owner.owner
        attrs: Any = function.attributes["arg_attrs"][value.arg_number] if "arg_attrs" in function.attributes else {}
        entry = attrs[of_argument] if of_argument in attrs else None
    else:
        op = defining_op(value)
        assert op is not None
        entry = op.attributes[of_op][ir.OpResult(value).result_number] if of_op in op.attributes else None
    return entry.value if isinstance(entry, ir.AffineMapAttr) else None


def result_sizes(value: ir.Value, names: Sequence[str]) -> tuple[sympy.Expr, ...] | None:
    """The sizes of a tensor; None where it is no tensor or a size is not known."""
    parsed = parse_tensor_type(type_text(value.type))
    if parsed is None:
        return None
    if None not in parsed[0]:
        return tuple(sympy.Integer(size) for size in parsed[0])
    given = map_of(value, "kiln.shapes", "kiln.shape")
    return None if given is None else tuple(to_sympy(expr, names) for expr in given.results)


def argument_sizes(argument: ir.Value, names: Sequence[str]) -> tuple[sympy.Expr, ...]:
    """The sizes of a tensor argument."""
    found = result_sizes(argument, names)
    assert found is not None
    return found


def strides_of(value: ir.Value, names: Sequence[str]) -> tuple[sympy.Expr, ...]:
    """The strides of a tensor of known sizes; row-major where the IR does not say."""
    given = map_of(value, "kiln.strides", "kiln.strides")
    if given is not None:
        return tuple(to_sympy(expr, names) for expr in given.results)
    strides: list[sympy.Expr] = []
    step: sympy.Expr = sympy.Integer(1)
    for size in reversed(result_sizes(value, names) or ()):
        strides.append(step)
        step = sympy.expand(step * size)
    return tuple(reversed(strides))


def bind(
    pattern: Sequence[sympy.Expr], found: Sequence[sympy.Expr], table: dict[sympy.Symbol, sympy.Expr]
) -> str | None:
    """Extend ``table`` so that the pattern's sizes become those found; the reason where that is impossible."""
    if len(pattern) != len(found):
        return f"rank {len(pattern)} expected, found {len(found)}"
    for expected, size in zip(pattern, found, strict=True):
        if isinstance(expected, sympy.Symbol):
            if table.setdefault(expected, size) != size:
                return f"size {table[expected]} expected, found {size}"
        elif sympy.expand(expected.subs(table)) != size:
            return f"size {expected.subs(table)} expected, found {size}"
    return None
