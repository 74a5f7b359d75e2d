# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The memory behind a kernel's arguments: how much there is, and what it holds before the first program."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, memref

from kiln.dialects import affine
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.host.elements import item_bytes
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts

__all__ = ["Buffer", "address_of", "buffers_of", "buffers_of_tensors", "fill_bytes", "poison", "reach_of", "symbolic"]

_ALL_BITS = -1
"""NaN as a float of any type, -1 as an integer."""


@dataclass(frozen=True)
class Buffer:
    """The memory of one argument. sizes: over the kernel's symbols; offset: of an element, over the dims and symbols;
    item: bytes of an element; is_written: it is a result, in memory of its own, that nothing has written yet.
    """

    sizes: tuple[ir.AffineExpr, ...]
    offset: ir.AffineExpr
    item: int
    is_written: bool


def buffers_of(fusion: ir.OpView, kept: Sequence[int]) -> list[Buffer]:
    """Those of a fusion's kernel. kept: numbers of arguments whose memory holds something when the kernel starts."""
    body = FusionBody(fusion)
    found: list[Buffer] = []
    values = [*body.tensors, *body.roots]
    for i, (value, layout) in enumerate(zip(values, fusion_layouts(fusion, body), strict=True)):
        is_written = i >= len(body.tensors) and i not in kept
        found.append(Buffer(tuple(body.dims(value)), layout.results[0], item_bytes(value.type), is_written))
    return found


def buffers_of_tensors(tensors: Sequence[torch.Tensor]) -> list[Buffer]:
    """Those of a kernel that runs on tensors, which keep what they hold."""
    found: list[Buffer] = []
    for tensor in tensors:
        offset: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        for dim, stride in enumerate(tensor.stride()):
            offset = offset + ir.AffineDimExpr.get(dim) * stride
        sizes = tuple(ir.AffineConstantExpr.get(n) for n in tensor.shape)
        found.append(Buffer(sizes, offset, tensor.element_size(), False))
    return found


def reach_of(b: Builder, buffer: Buffer, symbols: Sequence[Index]) -> tuple[ir.Value, ir.Value]:
    """Where a buffer's memory starts, in bytes from the element at index 0, and how many bytes it has from its first to
    its last element; both i64. It starts in front of that element where a dim is read backwards.
    """
    sizes = [symbolic(b, n, symbols) for n in buffer.sizes]
    first, last = _outermost(b, buffer.offset, [b.subi(n, 1) for n in sizes], symbols)
    is_empty = False
    for n in sizes:
        is_empty = b.orc(is_empty, b.cmpi("sle", n, 0))
    size = b.select_index(is_empty, 0, b.muli(b.addi(b.subi(last, first), 1), buffer.item))
    start = b.select_index(is_empty, 0, b.muli(first, buffer.item))
    return arith.index_cast(b.i64, b.value(start)), arith.index_cast(b.i64, b.value(size))


def _outermost(
    b: Builder, offset: ir.AffineExpr, most: Sequence[Index], symbols: Sequence[Index]
) -> tuple[Index, Index]:
    """The smallest and the largest offset, for dims from 0 to `most`. Strides may be negative, and one that is a symbol
    does not tell; what is no sum of strides (a packed layout) only grows.
    """
    linear = affine.linear_coefficients(offset)
    if linear is None:
        return 0, symbolic(b, offset, symbols, most)
    constant, strides = linear
    first = last = symbolic(b, constant, symbols)
    for dim, stride in strides.items():
        step = b.muli(symbolic(b, stride, symbols), most[dim])
        first, last = b.addi(first, b.mini(step, 0)), b.addi(last, b.maxi(step, 0))
    return first, last


def poison(b: Builder, buffer: Buffer, start: ir.Value, symbols: Sequence[Index]) -> None:
    """Sets all bits of a buffer's elements, and of none between them. start: its address."""
    bits = ir.IntegerType.get_signless(8 * buffer.item)
    sizes = [symbolic(b, n, symbols) for n in buffer.sizes]

    def nest(index: tuple[Index, ...]) -> None:
        if len(index) < len(sizes):
            b.for_(0, sizes[len(index)], 1, lambda i: nest((*index, i)))
            return
        offset = symbolic(b, buffer.offset, symbols, index)
        llvm.store(b.int_(_ALL_BITS, bits), element(b, start, b.value(offset), bits))

    nest(())


def fill_bytes(b: Builder, start: ir.Value, size: Index, value: int) -> None:
    """Sets each byte from an address on."""
    byte = b.int_(value, b.i8)
    b.for_(0, size, 1, lambda i: llvm.store(byte, element(b, start, b.value(i), b.i8)) and None)


def element(b: Builder, start: ir.Value, offset: ir.Value, type_: ir.Type) -> ir.Value:
    """The address `offset` (an index) elements past one."""
    attributes = {
        "elem_type": ir.TypeAttr.get(type_),
        "rawConstantIndices": ir.DenseI32ArrayAttr.get([-(2**31)]),
    }
    operands = [start, arith.index_cast(b.i64, offset)]
    return ir.Operation.create(
        "llvm.getelementptr", results=[start.type], operands=operands, attributes=attributes
    ).result


def address_of(b: Builder, memory: ir.Value) -> ir.Value:
    """A memref's address as a pointer."""
    number = memref.extract_aligned_pointer_as_index(memory)
    return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), arith.index_cast(b.i64, number))


def symbolic(b: Builder, expr: ir.AffineExpr, symbols: Sequence[Index], dims: Sequence[Index] = ()) -> Index:
    """Emits an affine expression over symbols and dims. The dividend of a division may be negative, as of the rows that
    a pad to a multiple of three adds, `(-s0) mod 3`.
    """
    expr = expr.maybe_downcast()
    known = affine.constant_of(expr)
    if known is not None:
        return known
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbols[expr.position]
    if isinstance(expr, ir.AffineDimExpr):
        return dims[expr.position]
    lhs, rhs = symbolic(b, expr.lhs, symbols, dims), symbolic(b, expr.rhs, symbols, dims)
    if isinstance(expr, ir.AffineAddExpr):
        return b.addi(lhs, rhs)
    if isinstance(expr, ir.AffineMulExpr):
        return b.muli(lhs, rhs)
    is_natural = affine.nonnegative(expr.lhs)
    if isinstance(expr, ir.AffineCeilDivExpr):
        return b.ceildivi(lhs, rhs) if is_natural else arith.ceildivsi(b.value(lhs), b.value(rhs))
    is_quotient = isinstance(expr, ir.AffineFloorDivExpr)
    if is_natural:
        return b.divi(lhs, rhs) if is_quotient else b.remi(lhs, rhs)
    quotient = arith.floordivsi(b.value(lhs), b.value(rhs))
    return quotient if is_quotient else b.subi(lhs, b.muli(quotient, rhs))
