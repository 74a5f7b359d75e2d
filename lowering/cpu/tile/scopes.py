# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Lanes: which dim is a vector's, what an index is along it, and what scratch memory holds at each level."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import arith
from typing_extensions import override

from kiln.dialects import affine
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.tile.lines import Bend, Pattern, bent_line, lane_pattern
from kiln.lowering.tile import scopes as shared
from kiln.lowering.tile.access import lane_coefficient
from kiln.lowering.tile.scopes import Guard

UNALIGNED = 1 << 62
"""An alignment that no divisor is a multiple of."""


@dataclass
class Spilled:
    """A value kept in scratch memory: `fixed` are the indices that hold outside of the loop that wrote it."""

    buffer: ir.Value
    fixed: dict[int, ir.AffineExpr]
    free: list[int]
    sizes: list[ir.AffineExpr]


@dataclass
class Scope(shared.Scope):
    """One level of control flow, with the values that scratch memory holds from there on."""

    spilled: dict[ir.Value, Spilled] = field(default_factory=dict[ir.Value, Spilled])


@dataclass
class Lane:
    """The dim whose consecutive values are a vector's lanes; `mask` turns off those past its end.

    aligned: the first lane is a multiple of the width, so that divisions of the dim by multiples of it are uniform.
    extent: of the dim's loop, from 0 on, where no lane in use is behind it.
    """

    dim: int | None = None
    width: int = 1
    mask: ir.Value | None = None
    aligned: bool = True
    extent: ir.AffineExpr | None = None

    def line(self, expr: ir.AffineExpr) -> tuple[ir.AffineExpr, ir.AffineExpr] | None:
        """`expr` along the lanes as (stride, index of the first lane), or None if the lanes are not on a line."""
        assert self.dim is not None
        return lane_coefficient(expr, self.dim, self.width if self.aligned else UNALIGNED)

    def pattern(self, expr: ir.AffineExpr) -> Pattern | None:
        """`expr` as steps known for each lane, or None if they are not."""
        assert self.dim is not None
        return lane_pattern(expr, self.dim, self.width, self.width if self.aligned else 1)

    def bend(self, expr: ir.AffineExpr) -> Bend | None:
        """`expr` as a line of the lanes that jumps once, or None if it is no such line."""
        assert self.dim is not None
        return bent_line(expr, self.dim, self.width, self.width if self.aligned else UNALIGNED, self.extent)


class Scopes(shared.Scopes):
    """The open loops of a kernel, one of whose dims may be the lanes of vectors."""

    b: Builder
    scopes: list[Scope]
    scope_type = Scope

    def __init__(self, b: Builder, symbols: Sequence[Index]):
        super().__init__(b, symbols, b.entry.owner.operation)
        self.lane = Lane()

    @contextmanager
    def lanes(self, lane: Lane) -> Generator[None, None, None]:
        """Vectorise along another dim."""
        saved, self.lane = self.lane, lane
        yield
        self.lane = saved

    @override
    def round_down(self, quotient: bool, x: ir.Value, y: ir.Value) -> ir.Value:
        floor = arith.floordivsi(x, y)
        return floor if quotient else arith.subi(x, arith.muli(floor, y))

    def index_value(self, expr: ir.AffineExpr) -> ir.Value:
        """`expr` as an index scalar, or as a vector of indices if it varies along the lane."""
        expr = expr.maybe_downcast()
        if self.lane.dim is None or self.lane.dim not in affine.dims_in(expr):
            return self.b.value(self.index(expr))
        linear = self.lane.line(expr)
        if linear is not None:
            return self._on_line(*linear)
        pattern = self.lane.pattern(expr)
        if pattern is not None:
            return arith.addi(self.splat(self.b.value(self.index(pattern[0]))), self.b.numbers(pattern[1]))
        bend = self.lane.bend(expr)
        if bend is not None:
            line = self._on_line(bend.stride, bend.base)
            below = self.b.mask_below(self.index(bend.at), self.lane.width)
            return (
                line if below is None else arith.select(below, line, self._on_line(bend.stride, bend.base + bend.jump))
            )
        return self.b.value(
            self.combine(expr, self.splat(self.index_value(expr.lhs)), self.splat(self.index_value(expr.rhs)))
        )

    def _on_line(self, stride: ir.AffineExpr, base: ir.AffineExpr) -> ir.Value:
        lanes = self.b.step(self.lane.width)
        if stride != ir.AffineConstantExpr.get(1):
            lanes = arith.muli(lanes, self.splat(self.b.value(self.index(stride))))
        return arith.addi(lanes, self.splat(self.b.value(self.index(base))))

    def splat(self, value: ir.Value) -> ir.Value:
        """A vector; a uniform value is broadcast."""
        if isinstance(value.type, ir.VectorType):
            return value
        return self.b.broadcast(value, self.lane.width)

    def is_uniform(self, indices: Sequence[ir.AffineExpr]) -> bool:
        """Whether nothing in `indices` varies along the lane."""
        return self.lane.dim is None or not any(self.lane.dim in affine.dims_in(e) for e in indices)

    def mask(self, guard: Guard | None) -> ir.Value | None:
        """Lanes that may touch memory; None for all."""
        if guard is None:
            return self.lane.mask
        inside = self.splat(self.b.condition(guard.mask))
        return inside if self.lane.mask is None else arith.andi(inside, self.lane.mask)
