# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`histc` as a scatter of ones: how many elements fall into each of a number of equal bins."""

from math import isfinite, prod
from typing import TYPE_CHECKING

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine, kiln
from kiln.dialects.reference import scalar
from kiln.dialects.reference.builder import dim, dims

if TYPE_CHECKING:
    from kiln.passes.scatters.convert import Call

__all__ = ["histogram"]

_COPIES = 256
"""Counters of a bin: elements that follow each other count in different ones, or programs would wait for each other
where most elements are in few bins."""
_MOST_COUNTERS = 1 << 20
_FEW = 1 << 13
"""Elements that one counter a bin is enough for."""


def histogram(call: "Call") -> ir.Value:
    """`histc(x, bins, min, max)`: an element from min to max is in bin (x - min) * bins / (max - min), max in the last.

    As in eager, products and quotients are rounded to the type of `x`; NaNs are in no bin. Counts are integers, which
    add up to the same in any order.
    """
    x = call.tensor(call.given(0, "self"))
    bins = int(call.number(call.given(1, "bins", 100)))
    low, high = (float(call.number(call.given(2 + i, name, 0))) for i, name in enumerate(("min", "max")))
    element = ir.RankedTensorType(x.type).element_type
    if not isinstance(element, ir.F32Type | ir.F64Type):
        call.unsupported(f"bins are computed in {element}")
    if not (isfinite(low) and isfinite(high) and low < high):
        call.unsupported("the range is that of the elements")
    b, wide = call.b, ir.F64Type.get()
    rows, copies = _rows(call, x, bins)
    # Of f32, so that the bounds are what they are in eager.
    first, last = (scalar.constant(element, v) for v in (low, high))

    def is_counted(v: ir.Value) -> ir.Value:
        return scalar.both(scalar.compare("ge", v, first), scalar.compare("le", v, last))

    def one(v: ir.Value) -> ir.Value:
        return scalar.cast(is_counted(v), ir.IntegerType.get_signless(32))

    def bin_of(v: ir.Value) -> ir.Value:
        inside = scalar.select(is_counted(v), v, first)
        scaled = scalar.mul(scalar.sub(inside, first), scalar.constant(element, bins))
        # In f64 and rounded again, it is the quotient that f32 has; a GPU's own f32 quotient is not.
        quotient = scalar.cast(
            scalar.div(scalar.cast(scaled, wide), scalar.cast(scalar.sub(last, first), wide)), element
        )
        index = arith.fptosi(ir.IntegerType.get_signless(64), quotient)
        return scalar.minimum(index, scalar.constant(index.type, bins - 1))

    sizes = b.sizes(rows)
    ones = b.map([(rows, dims(2))], sizes, ir.IntegerType.get_signless(32), one)
    index = b.map([(rows, dims(2))], sizes, ir.IntegerType.get_signless(64), bin_of)
    counters = [ir.AffineConstantExpr.get(n) for n in (bins, copies)]
    start = b.empty(ir.IntegerType.get_signless(32), counters)
    counts = kiln.scatter_nd(start, ones, [index], [0], [1], "sum", True)
    wide_int = ir.IntegerType.get_signless(64)
    total = b.reduce(
        [(counts, dims(2))], [dim(0)], counters[:1], "pr", wide_int, 0,
        lambda v, t: scalar.add(scalar.cast(v, wide_int), t),
    )  # fmt: skip
    return b.cast(total, element)


def _rows(call: "Call", x: ir.Value, bins: int) -> tuple[ir.Value, int]:
    """The elements in rows, with NaNs behind them, and how long a row is: a counter of each bin for each column."""
    b = call.b
    sizes = b.sizes(x)
    known = [affine.constant_of(n) for n in sizes]
    numbers = [n for n in known if n is not None]
    count = prod(numbers) if len(numbers) == len(known) else None
    if count is None and len(sizes) > 1:
        call.unsupported("several dims of sizes known at run time")
    if any(p >= len(call.shapes.symbols) for e in sizes for p in affine.symbols_in(e)):
        call.unsupported("sizes that have no names")
    copies = 1
    while (count is None or count > _FEW) and copies < _COPIES and 2 * copies * bins <= _MOST_COUNTERS:
        copies *= 2
    total = sizes[0] if count is None else ir.AffineConstantExpr.get(count)
    strides = [prod(numbers[i + 1 :]) for i in range(len(numbers))]
    flat = [_digit(dim(0), stride, size) for stride, size in zip(strides, numbers, strict=True)]
    line = x if len(sizes) == 1 else b.view(x, flat, [total])
    more = affine.simplify(ir.AffineExpr.get_ceil_div(total, copies) * copies - total)
    if more != ir.AffineConstantExpr.get(0):
        line = b.pad(line, float("nan"), [0], [more])
    height = affine.simplify(ir.AffineExpr.get_ceil_div(total, copies))
    return b.view(line, [dim(0) * copies + dim(1)], [height, ir.AffineConstantExpr.get(copies)]), copies


def _digit(position: ir.AffineExpr, stride: int, size: int) -> ir.AffineExpr:
    """The index along a dim, of the element at a row-major position."""
    if size == 0:
        return ir.AffineConstantExpr.get(0)
    return ir.AffineExpr.get_mod(ir.AffineExpr.get_floor_div(position, stride or 1).maybe_downcast(), size)
