# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Builders of ``kiln.pad`` and ``kiln.cat`` with sizes as expressions over the function's symbols."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import kiln

from .emitter import Emitter
from .sizes import Expr, as_expr, constant_of


def pad(
    cx: Emitter,
    x: ir.Value,
    value: int | float | bool,
    low: "Sequence[int | Expr]",
    high: "Sequence[int | Expr]",
    shape: "Sequence[int | Expr] | None" = None,
) -> ir.Value:
    """``x`` with ``low``/``high`` elements of ``value`` around it; negative amounts crop. ``x`` itself for no padding.

    ``shape``: sizes of the result where they are known in a simpler form than ``low + size + high``.
    """
    lows, highs = [as_expr(v) for v in low], [as_expr(v) for v in high]
    if all(constant_of(v) == 0 for v in [*lows, *highs]):
        return x
    dtype = cx.dtype(x)
    sums = [a + size + b for a, size, b in zip(lows, cx.shape(x), highs, strict=True)]
    sizes = [as_expr(v) for v in shape] if shape is not None else sums
    (low_map, high_map, shape_map), symbols = cx.state.pack((0, lows), (0, highs), (0, sizes))
    filler = cx.scalars.const(value, dtype).value
    return cx.state.set_info(kiln.pad(x, filler, low_map, high_map, shape_map, symbols), sizes, dtype)


def cat(cx: Emitter, inputs: Sequence[ir.Value], at: int, shape: "Sequence[int | Expr]") -> ir.Value:
    """Concatenation along the non-negative dim ``at``; the only input itself where there is just one."""
    sizes = [as_expr(v) for v in shape]
    if len(inputs) == 1:
        return inputs[0]
    (shape_map,), symbols = cx.state.pack((0, sizes))
    return cx.state.set_info(kiln.cat(inputs, at, shape_map, symbols), sizes, cx.dtype(inputs[0]))


def list_unpack(value: ir.Value) -> ir.Operation | None:
    """The ``torch.prim.ListUnpack`` of a list of tensors: its results give the number of pieces and their sizes."""
    for use in value.uses:
        user = use.owner.operation
        if user.name == "torch.prim.ListUnpack":
            return user
    return None
