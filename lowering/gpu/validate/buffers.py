# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The memory behind a kernel's pointers: which elements belong to each tensor.

`emit-gpu-kernels` keeps it as the attribute `kiln.buffers` of a `tt.func`: per pointer `{layout, sizes}`, affine maps
over the kernel's symbols (and the tensor's indices), and `is_result`. `kiln.in_place` is the fusion's `in_place`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.gpu.validate.facts import Facts
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly, const
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts

__all__ = ["Buffer", "attach_buffers", "buffers_of", "polynomial", "shared_memory"]


@dataclass(frozen=True)
class Buffer:
    """A tensor's elements in memory, in elements behind the pointer.

    sizes, strides: of its dims, if it is strided; start: its first element. indices, offset: the layout otherwise.
    """

    name: str
    is_result: bool
    sizes: tuple[Poly, ...]
    indices: tuple[Poly, ...]
    offset: Poly
    strides: tuple[Poly, ...] | None
    start: Poly

    @property
    def count(self) -> Poly:
        """How many elements there are."""
        total = const(1)
        for size in self.sizes:
            total = total * size
        return total

    @property
    def overlaps(self) -> bool:
        """Whether elements share memory: an expanded tensor."""
        dims = zip(self.strides or (), self.sizes, strict=False)
        return any(stride == const(0) and size != const(1) for stride, size in dims)

    @cached_property
    def ends(self) -> tuple[Poly, Poly] | None:
        """The first and the last offset; None where they are not known."""
        if self.strides is not None:
            last = self.start
            for size, stride in zip(self.sizes, self.strides, strict=True):
                last = last + (size - 1) * stride
            return self.start, last
        inside = [Cond.compare("ge", n - 1 - i) for n, i in zip(self.sizes, self.indices, strict=True)]
        facts = Facts(inside, [self.offset])
        low, high = facts.lower(self.offset), facts.upper(self.offset)
        return (const(int(low)), const(int(high))) if abs(low) < 1 << 62 and abs(high) < 1 << 62 else None

    def pieces(self) -> list[tuple[Poly, Poly]] | None:
        """(stride, elements) of dims that memory walks apart from each other, the largest stride first; None where
        that isn't known. A tensor without gaps is one piece of stride 1.
        """
        if self.strides is None:
            return None
        dims = [(s, n) for s, n in zip(self.strides, self.sizes, strict=True) if n != const(1) and s != const(0)]
        if all(s.known is not None for s, _ in dims):
            dims.sort(key=lambda d: -(d[0].known or 0))
        merged: list[tuple[Poly, Poly]] = []
        for stride, size in dims:
            if merged and merged[-1][0] == stride * size:
                merged[-1] = stride, merged[-1][1] * size
            else:
                merged.append((stride, size))
        return merged


def attach_buffers(fusion: ir.OpView, function: ir.Operation) -> None:
    """Sets `kiln.buffers` of a fusion's kernel."""
    body = FusionBody(fusion)
    entries: list[ir.Attribute] = []
    layouts = fusion_layouts(fusion, body)
    for i, (value, layout) in enumerate(zip([*body.tensors, *body.roots], layouts, strict=True)):
        sizes = ir.AffineMap.get(0, body.shapes.n_symbols, list(body.dims(value)))
        entry: dict[str, ir.Attribute] = {
            "layout": ir.AffineMapAttr.get(layout),
            "sizes": ir.AffineMapAttr.get(sizes),
            "is_result": ir.BoolAttr.get(i >= len(body.tensors)),
        }
        entries.append(ir.DictAttr.get(entry))
    function.attributes["kiln.buffers"] = ir.ArrayAttr.get(entries)
    attributes = fusion.operation.attributes
    if "in_place" in attributes:
        function.attributes["kiln.in_place"] = attributes["in_place"]


def shared_memory(function: ir.Operation, buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """(pointer of an operand, pointer of the result that is written over it), as `kiln.in_place` tells."""
    if "kiln.in_place" not in function.attributes:
        return []
    pairs = list(ir.DenseI64ArrayAttr(function.attributes["kiln.in_place"]))
    operands = sum(not buffer.is_result for buffer in buffers)
    return [(operand, operands + result) for operand, result in zip(pairs[::2], pairs[1::2], strict=True)]


def buffers_of(function: ir.Operation, symbols: Sequence[Poly]) -> list[Buffer]:
    """The buffers that `kiln.buffers` tells of."""
    found: list[Buffer] = []
    for number, entry in enumerate(ir.ArrayAttr(function.attributes["kiln.buffers"])):
        given = ir.DictAttr(entry)
        layout, sizes = (ir.AffineMapAttr(given[key]).value for key in ("layout", "sizes"))
        found.append(_buffer(number, layout, list(sizes.results), bool(ir.BoolAttr(given["is_result"]).value), symbols))
    return found


def _buffer(
    number: int, layout: ir.AffineMap, sizes: Sequence[ir.AffineExpr], is_result: bool, symbols: Sequence[Poly]
) -> Buffer:
    extents = tuple(polynomial(e, (), symbols) for e in sizes)
    indices = tuple(Poly.of(Atom("index", (number, d), (0, n.interval[1] - 1))) for d, n in enumerate(extents))
    linear = affine.linear_coefficients(layout.results[0])
    strides: tuple[Poly, ...] | None = None
    start = const(0)
    if linear is not None:
        start = polynomial(linear[0], (), symbols)
        zero = ir.AffineConstantExpr.get(0)
        strides = tuple(polynomial(linear[1].get(d, zero), (), symbols) for d in range(layout.n_dims))
        if any(s.interval[0] < 0 for s in strides):
            strides = None
    offset = polynomial(layout.results[0], indices, symbols)
    return Buffer(f"argument {number}", is_result, extents, indices, offset, strides, start)


def polynomial(expr: ir.AffineExpr, dims: Sequence[Poly], symbols: Sequence[Poly]) -> Poly:
    """An affine expression at these values of its dims and symbols."""
    expr = expr.maybe_downcast()
    if isinstance(expr, ir.AffineConstantExpr):
        return const(expr.value)
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    if isinstance(expr, ir.AffineSymbolExpr):
        if expr.position < len(symbols):
            return symbols[expr.position]
        return Poly.of(Atom("opaque", ("size", expr.position), (0, inf)))  # no argument of the kernel
    x, y = polynomial(expr.lhs, dims, symbols), polynomial(expr.rhs, dims, symbols)
    if isinstance(expr, ir.AffineAddExpr):
        return x + y
    if isinstance(expr, ir.AffineMulExpr):
        return x * y
    if isinstance(expr, ir.AffineModExpr):
        return x % y
    return x // y if isinstance(expr, ir.AffineFloorDivExpr) else (x + y - 1) // y
