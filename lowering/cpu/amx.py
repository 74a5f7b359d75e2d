# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tile registers of Intel's AMX: eight of 16 rows by 64 bytes, and what multiplies them.

    configure(b)                                  # once in a function, before any tile is used; sets all to zero
    zero(b, 0)
    load(b, 1, lhs, at, row_stride)               # 16 rows of 32 bf16 (or 64 i8)
    load(b, 2, rhs, at, row_stride)               # 16 rows of 16 columns of pairs along k (fours of i8), "VNNI order"
    multiply(b, 0, 1, 2)                          # tile 0 [16, 16] of f32 (i32) += tile 1 times tile 2
    store(b, 0, sums, at, row_stride)
    release(b)                                    # behind the last use: the kernel keeps no tiles for the thread then

Tiles are named by number: which of them holds what is the emitter's choice, and LLVM neither moves nor spills them (the
intrinsics count as reading and writing all memory). A call of another function may change every tile.

bf16 products take subnormal numbers as zero, and sums round to nearest, as VDPBF16PS does. Integers do not saturate.

Linux gives a process the state for tiles when it asks (`kiln.runtime.amx`); `isa.host` claims AMX only where it was
given, so that `has_amx` is the one question to ask.
"""

from collections.abc import Sequence
from typing import Protocol

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, memref

from kiln.lowering.cpu.builder import Builder, Index

__all__ = [
    "BYTES",
    "ROWS",
    "TILES",
    "Features",
    "configure",
    "has_amx",
    "load",
    "multiply",
    "release",
    "store",
    "zero",
]

TILES, ROWS, BYTES = 8, 16, 64
"""Tile registers, their rows, and the bytes of a row."""

_FEATURES = {"bf16": "amx-bf16", "i8": "amx-int8"}
_MULTIPLY = {"bf16": "tdpbf16ps", "i8": "tdpbssd"}
_PALETTE_BYTES, _ROW_BYTES, _ROWS = 64, 16, 48
"""LDTILECFG's operand: palette at 0, bytes of a row (16 bits each) from 16 on, rows (8 bits each) from 48 on."""


class Features(Protocol):
    """What is asked of a CPU: `kiln.lowering.cpu.isa.Isa`."""

    def has(self, feature: str) -> bool: ...


def has_amx(dtype: str, cpu: Features) -> bool:
    """Whether a CPU multiplies tiles of `dtype` ("bf16", or "i8": signed)."""
    return dtype in _FEATURES and cpu.has("amx-tile") and cpu.has(_FEATURES[dtype])


def configure(b: Builder, shapes: Sequence[tuple[Index, int]] | None = None) -> None:
    """Gives tiles their shapes, and sets them to zero. About 100 cycles: not for the innermost loop.

    shapes: rows (1 to 16) and bytes of a row (4 to 64, a multiple of 4) of tile 0, 1, ...; those beyond must not be
    used. None: all of 16 rows by 64 bytes.
    """
    shapes = [(ROWS, BYTES)] * TILES if shapes is None else list(shapes)
    palette = [0] * _PALETTE_BYTES
    palette[0] = 1
    for tile, (rows, width) in enumerate(shapes):
        palette[_ROW_BYTES + 2 * tile] = width
        palette[_ROWS + tile] = rows if isinstance(rows, int) else 0
    address = _palette(b)
    type_ = b.vec(_PALETTE_BYTES, b.i8)
    values = [ir.IntegerAttr.get(b.i8, x) for x in palette]
    llvm.store(b.constant(ir.DenseElementsAttr.get(values, type_), type_), address)
    for tile, (rows, _) in enumerate(shapes):
        if not isinstance(rows, int):
            at = llvm.GEPOp(address.type, address, [], [_ROWS + tile], b.i8, 0).result
            llvm.store(arith.index_cast(b.i8, rows), at)
    _instruction(b, "ldtilecfg", address)


def zero(b: Builder, tile: int) -> None:
    """Sets a tile to zero."""
    _instruction(b, "tilezero", _number(b, tile))


def load(b: Builder, tile: int, buffer: ir.Value, at: Index, stride: Index) -> None:
    """Fills a tile with rows of a 1-D memref, the first at element `at`, the next `stride` elements behind it.

    Every row of the tile's shape is read, whole.
    """
    _instruction(b, "tileloadd64", _number(b, tile), *_rows(b, buffer, at, stride))


def store(b: Builder, tile: int, buffer: ir.Value, at: Index, stride: Index) -> None:
    """Writes a tile to rows of a 1-D memref; see `load`."""
    _instruction(b, "tilestored64", _number(b, tile), *_rows(b, buffer, at, stride))


def multiply(b: Builder, sums: int, lhs: int, rhs: int, dtype: str = "bf16") -> None:
    """sums[i, j] += the sum over groups g and e of lhs[i, g, e] * rhs[g, j, e]; e: 2 bf16 of a pair, or 4 i8."""
    _instruction(b, _MULTIPLY[dtype], _number(b, sums), _number(b, lhs), _number(b, rhs))


def release(b: Builder) -> None:
    """Ends the use of tiles: what they hold is lost, and need not be saved when the thread is interrupted."""
    _instruction(b, "tilerelease")


def _palette(b: Builder) -> ir.Value:
    """Memory for LDTILECFG's operand in the function's frame."""

    def make() -> ir.Value:
        count = llvm.ConstantOp(b.i64, ir.IntegerAttr.get(b.i64, 1)).result
        type_ = ir.Type.parse(f"!llvm.array<{_PALETTE_BYTES} x i8>")
        return llvm.AllocaOp(ir.Type.parse("!llvm.ptr"), count, type_, alignment=_PALETTE_BYTES).result

    return b._once(("amx palette",), make)


def _number(b: Builder, tile: int) -> ir.Value:
    """A tile's number, which the instruction holds: a constant of LLVM's dialect beside it."""
    return llvm.ConstantOp(b.i8, ir.IntegerAttr.get(b.i8, tile)).result


def _rows(b: Builder, buffer: ir.Value, at: Index, stride: Index) -> tuple[ir.Value, ir.Value]:
    """Where the first row begins, and the bytes to the next."""
    element = ir.MemRefType(buffer.type).element_type
    size = 2 if isinstance(element, ir.BF16Type | ir.F16Type) else _width(element) // 8
    base = memref.extract_aligned_pointer_as_index(buffer)
    address = arith.index_cast(b.i64, b.value(b.addi(base, b.muli(at, size))))
    pointer = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), address)
    return pointer, arith.index_cast(b.i64, b.value(b.muli(stride, size)))


def _width(element: ir.Type) -> int:
    return 32 if isinstance(element, ir.F32Type) else ir.IntegerType(element).width


def _instruction(b: Builder, name: str, *operands: ir.Value) -> None:
    attributes = {
        "intrin": ir.StringAttr.get(f"llvm.x86.{name}"),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
    }
    ir.Operation.create("llvm.call_intrinsic", results=[], operands=list(operands), attributes=attributes)
