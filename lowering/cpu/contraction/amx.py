# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Intel's AMX: eight tile registers of 16 rows by 64 bytes, and the units that multiply them.

    AMX_BF16.begin(b)                                  # once in a function, before any tile is used
    AMX_BF16.zero(b, 0)
    AMX_BF16.load(b, 1, (lhs, at, stride), "left")     # 16 rows of 32 bf16 (or 64 i8)
    AMX_BF16.load(b, 2, (rhs, at, stride), "right")    # 16 rows of 16 columns of pairs along k (fours of i8)
    AMX_BF16.multiply_accumulate(b, 0, 1, 2)           # tile 0 [16, 16] of f32 (i32) += tile 1 times tile 2
    AMX_BF16.store(b, 0, (sums, at, stride))
    AMX_BF16.end(b)                                    # behind the last use: the thread has no tiles to save then

Which tile holds what is the emitter's choice, and LLVM neither moves nor spills them (the intrinsics count as reading
and writing all memory). A call of another function may change every tile.

bf16 products take subnormal numbers as zero, and sums round to nearest, as VDPBF16PS does. Integers do not saturate.

Linux gives a process the state for tiles when it asks (`kiln.runtime.amx`); `isa.host` claims AMX only where it was
given, so that `has_amx` is the one question to ask.
"""

from dataclasses import dataclass, replace

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.contraction.unit import MatrixUnit, Place, Tile
from kiln.lowering.cpu.intrinsics import call_void
from kiln.lowering.cpu.isa import Isa

__all__ = ["AMX_BF16", "AMX_BF16X3", "AMX_INT8", "BYTES", "ROWS", "AmxUnit", "has_amx"]

TILES, ROWS, BYTES = 8, 16, 64
"""Tile registers, their rows, and the bytes of a row."""

_FEATURES = {"bf16": "amx-bf16", "i8": "amx-int8"}
_PALETTE_BYTES, _ROW_BYTES, _ROWS = 64, 16, 48
"""LDTILECFG's operand: palette at 0, bytes of a row (16 bits each) from 16 on, rows (8 bits each) from 48 on."""


def has_amx(dtype: str, cpu: Isa) -> bool:
    """Whether a CPU multiplies tiles of `dtype` ("bf16", or "i8": signed)."""
    return dtype in _FEATURES and cpu.has("amx-tile") and cpu.has(_FEATURES[dtype])


@dataclass(frozen=True, kw_only=True)
class AmxUnit(MatrixUnit):
    """An instruction on tile registers: sums[i, j] += the sum over groups g and e of left[i, g, e] * right[g, j, e]."""

    instruction: str
    rows: int = ROWS
    columns: int = ROWS
    registers: int = TILES

    def begin(self, b: Builder) -> None:
        """Give all tiles 16 rows by 64 bytes, and set them to zero: about 100 cycles."""
        palette = [0] * _PALETTE_BYTES
        palette[0] = 1
        for tile in range(TILES):
            palette[_ROW_BYTES + 2 * tile], palette[_ROWS + tile] = BYTES, ROWS
        address = b.in_frame(("amx palette",), ir.Type.parse(f"!llvm.array<{_PALETTE_BYTES} x i8>"), _PALETTE_BYTES)
        llvm.store(b.numbers(palette, b.i8), address)
        _instruction(b, "ldtilecfg", address)

    def end(self, b: Builder) -> None:
        """What tiles hold is lost, and need not be saved when the thread is interrupted."""
        _instruction(b, "tilerelease")

    def zero(self, b: Builder, register: int) -> Tile:
        """Set a tile to zero."""
        _instruction(b, "tilezero", _number(b, register))
        return register

    def load(self, b: Builder, register: int, place: Place, side: str) -> Tile:
        """Fill a tile with rows of a 1-D memref; every row of the tile's shape is read, whole."""
        _instruction(b, "tileloadd64", _number(b, register), *_rows(b, place))
        return register

    def multiply_accumulate(self, b: Builder, sums: Tile, left: Tile, right: Tile) -> Tile:
        """Change the register of the sums."""
        _instruction(b, self.instruction, *(_number(b, tile) for tile in (sums, left, right)))
        return sums

    def store(self, b: Builder, tile: Tile, place: Place) -> None:
        """Write a tile to rows of a 1-D memref."""
        _instruction(b, "tilestored64", _number(b, tile), *_rows(b, place))


AMX_BF16 = AmxUnit(operands="bf16", sums="f32", depth=32, group=2, instruction="tdpbf16ps")
AMX_INT8 = AmxUnit(operands="i8", sums="i32", depth=64, group=4, instruction="tdpbssd")
AMX_BF16X3 = replace(AMX_BF16, operands="f32", terms=((0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (0, 2)))
"""f32 as the sum of three bf16 (parts.py): six of the nine products of parts."""


def _number(b: Builder, tile: Tile) -> ir.Value:
    """A tile's number, which the instruction holds: a constant of LLVM's dialect beside it."""
    return llvm.ConstantOp(b.i8, ir.IntegerAttr.get(b.i8, tile)).result


def _rows(b: Builder, place: Place) -> tuple[ir.Value, ir.Value]:
    """Where the first row begins, and the bytes to the next."""
    buffer, at, stride = place[:3]
    size = ir.MemRefType(buffer.type).element_type.width // 8
    return b.address(buffer, at), arith.index_cast(b.i64, b.value(b.muli(stride, size)))


def _instruction(b: Builder, name: str, *operands: ir.Value) -> None:
    """Every instruction is emitted here: tests replace this function by an emulation."""
    call_void(name, *operands)
