# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""AMX without the hardware: each instruction becomes loops over a register file in the function's frame.

Everything else is the kernel as a processor with AMX would run it. Tiles obey their configuration: rows and bytes
beyond it are zero, and without one nothing is loaded. Rows that a load reads outside of an operand are read here, too.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, func, llvm, vector

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import amx

EMULATED = isa.host().has("avx512bf16")
"""Whether this machine runs what else is in such kernels."""

_TILE = 16 * 64
_CONFIGURATION = 8 * _TILE


@contextlib.contextmanager
def emulated_amx(monkeypatch: Any) -> Iterator[isa.Isa]:
    """Inside, code is made for this machine with AMX (by `torch.compile` as well, without the caches on disk), and runs
    on it without; yields that CPU."""
    cpu = cpu_with_amx()
    with monkeypatch.context() as patch, isa.compiling_for(cpu):
        patch.setattr(amx, "_instruction", _emulate)
        patch.setattr(isa, "host", lambda: cpu)
        patch.setenv("KILN_CACHE", "0")
        yield cpu


def cpu_with_amx() -> isa.Isa:
    """This machine, if it had AMX, and the caches and the library of the processors that do."""
    host = isa.host()
    features = tuple(sorted({*host.features, "amx-bf16", "amx-int8", "amx-tile"}))
    return dataclasses.replace(host, features=features, l2_bytes=2 << 20, library_bytes=64)


def _emulate(b: Builder, name: str, *operands: ir.Value) -> None:
    """A call of the instruction's function, which is made once in a module."""
    file = _register_file(b)
    function = _function(b, name, [x.type for x in operands])
    func.CallOp([], function, [file, *operands])


def _register_file(b: Builder) -> ir.Value:
    """The tiles, and behind them the configuration, in the frame of the kernel."""

    def make() -> ir.Value:
        count = llvm.ConstantOp(b.i64, ir.IntegerAttr.get(b.i64, 1)).result
        type_ = ir.Type.parse(f"!llvm.array<{_CONFIGURATION + 64} x i8>")
        return llvm.AllocaOp(ir.Type.parse("!llvm.ptr"), count, type_, alignment=64).result

    return b._once(("emulated tiles",), make)


def _function(b: Builder, name: str, types: list[ir.Type]) -> str:
    symbol = f"emulated_{name}"
    module = b.entry.owner
    while module.name != "builtin.module":
        module = module.parent
    body = module.regions[0].blocks[0]
    if any("sym_name" in op.attributes and ir.StringAttr(op.attributes["sym_name"]).value == symbol for op in body):
        return symbol
    with ir.InsertionPoint.at_block_begin(body):
        function = func.FuncOp(symbol, ([ir.Type.parse("!llvm.ptr"), *types], []), visibility="private")
        block = function.add_entry_block()
        with ir.InsertionPoint(block):
            inner = Builder(block)
            registers = _Registers(inner, block.arguments[0])
            given = [inner.to_index(x) if x.type == inner.i8 else x for x in list(block.arguments)[1:]]
            registers.run(name, given)
            func.return_([])
    return symbol


class _Registers:
    def __init__(self, b: Builder, file: ir.Value):
        self.b, self.file = b, file
        self.row = b.vec(64, b.i8)
        self.pointer = ir.Type.parse("!llvm.ptr")

    def run(self, name: str, operands: list[ir.Value]) -> None:
        if name == "ldtilecfg":
            self.configure(operands[0])
        elif name == "tilezero":
            self.clear(operands[0])
        elif name == "tileloadd64":
            self.load(*operands)
        elif name == "tilestored64":
            self.store(*operands)
        elif name in ("tdpbf16ps", "tdpbssd"):
            self.multiply(operands[0], operands[1], operands[2], name)
        else:
            assert name == "tilerelease", name
            self.release()

    def at(self, base: ir.Value, offset: Index, stride: ir.Value | None = None) -> ir.Value:
        """base + offset bytes, or offset * stride."""
        b = self.b
        number = llvm.ptrtoint(b.i64, base)
        more = arith.index_cast(b.i64, b.value(offset))
        if stride is not None:
            more = arith.muli(more, stride)
        return llvm.inttoptr(self.pointer, arith.addi(number, more))

    def tile(self, tile: Index, row: Index = 0) -> ir.Value:
        return self.at(self.file, self.b.addi(self.b.muli(tile, _TILE), self.b.muli(row, 64)))

    def rows(self, tile: Index) -> Index:
        b = self.b
        return arith.index_cast(b.index_type, llvm.load(b.i8, self.at(self.file, b.addi(tile, _CONFIGURATION + 48))))

    def width(self, tile: Index) -> Index:
        b = self.b
        return arith.index_cast(
            b.index_type, llvm.load(b.i16, self.at(self.file, b.addi(b.muli(tile, 2), _CONFIGURATION + 16)))
        )

    def configure(self, palette: ir.Value) -> None:
        llvm.store(llvm.load(self.row, palette), self.at(self.file, _CONFIGURATION))
        for tile in range(8):
            self.clear(tile)

    def release(self) -> None:
        llvm.store(self.b.zero(self.row), self.at(self.file, _CONFIGURATION))

    def clear(self, tile: Index) -> None:
        self.b.for_(0, 16, 1, lambda r: llvm.store(self.b.zero(self.row), self.tile(tile, r)) and None)

    def load(self, tile: Index, address: ir.Value, stride: ir.Value) -> None:
        b = self.b
        mask = vector.create_mask(b.vec(64, b.i1), [self.width(tile)])
        self.clear(tile)

        def one(r: Index) -> None:
            where = self.at(address, r, stride)
            llvm.store(llvm.intr_masked_load(self.row, where, mask, 1, pass_thru=b.zero(self.row)), self.tile(tile, r))

        b.for_(0, self.rows(tile), 1, one)

    def store(self, tile: Index, address: ir.Value, stride: ir.Value) -> None:
        b = self.b
        mask = vector.create_mask(b.vec(64, b.i1), [self.width(tile)])

        def one(r: Index) -> None:
            llvm.intr_masked_store(llvm.load(self.row, self.tile(tile, r)), self.at(address, r, stride), mask, 1)

        b.for_(0, self.rows(tile), 1, one)

    def multiply(self, sums: Index, lhs: Index, rhs: Index, name: str) -> None:
        b = self.b
        floats, integers = b.vec(16, b.f32), b.vec(16, b.i32)
        kind = floats if name == "tdpbf16ps" else integers

        def parts(x: ir.Value) -> list[ir.Value]:
            """The numbers of a pair of bf16 (subnormal ones are zero), or of four i8, in each lane."""
            if kind is floats:
                low = arith.shli(x, b.int_(16, integers))
                high = arith.andi(x, b.int_(-(1 << 16), integers))
                return [normal(y) for y in (low, high)]
            up = [arith.shli(x, b.int_(24 - 8 * e, integers)) for e in range(4)]
            return [arith.shrsi(y, b.int_(24, integers)) for y in up]

        def normal(x: ir.Value) -> ir.Value:
            subnormal = b.cmpi("eq", arith.andi(x, b.int_(0xFF << 23, integers)), b.zero(integers))
            return vector.bitcast(floats, arith.select(subnormal, b.zero(integers), x))

        def row(m: Index) -> None:
            def group(k: Index, acc: list[ir.Value]) -> list[ir.Value]:
                one = llvm.load(b.i32, self.at(self.tile(lhs, m), b.muli(k, 4)))
                pairs = zip(parts(b.broadcast(one, 16)), parts(llvm.load(integers, self.tile(rhs, k))), strict=True)
                if kind is floats:
                    return [b.fma(x, y, z) for (x, y), z in zip(pairs, acc, strict=True)]
                for x, y in pairs:
                    acc = [arith.addi(acc[0], arith.muli(x, y))]
                return acc

            # The products of even steps of k, and those of odd ones, are summed before the sums so far come in.
            start = [b.zero(kind)] * (2 if kind is floats else 1)
            found = b.for_(0, b.divi(self.width(lhs), 4), 1, group, start)
            old = llvm.load(kind, self.tile(sums, m))
            new = b.addf(old, b.addf(*found)) if kind is floats else arith.addi(old, found[0])
            llvm.store(new, self.tile(sums, m))

        b.for_(0, self.rows(sums), 1, row)
