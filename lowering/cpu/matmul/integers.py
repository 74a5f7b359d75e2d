# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of 8-bit integers, summed in 32 bits: a few steps of k an instruction; which of them a CPU has.

VPDPBUSD (AVX512-VNNI, AVX-VNNI) multiplies four unsigned by four signed numbers: the rhs is taken plus 128, and 128
times the sum of the lhs row is taken off. Elsewhere both are widened to 16 bits and multiplied in pairs (PMADDWD).
Neither saturates, so that sums are exact as long as 32 bits hold them, and wrap beyond.
"""

from dataclasses import dataclass, replace

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.dialects.schedules.cpu import AmxInt8Schedule, ByRowsSchedule, GemmSchedule, Int8DotSchedule, Int8Schedule
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.cpu.contraction import amx
from kiln.lowering.cpu.contraction.sizes import LINE, round_up
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.matmul.problem import Isa, MatmulProblem

__all__ = ["OFFSET", "Units", "choose_integers", "choose_packed_integers", "units_for", "units_of"]

OFFSET = 128
"""What is added to the rhs where the instruction takes it as unsigned."""

_DOT_ROWS = 8  # up to which a rhs [n, k] is read in place: packing takes longer than so few rows
_PACKED_ROWS = 4  # fewer are limited by the memory that the rhs comes from, in whatever order
_KC, _MC, _NC = 512, 256, 192  # 128 KiB of the lhs, 96 of the rhs
_KC_IN_PLACE, _MC_IN_PLACE, _NC_IN_PLACE = 4096, 512, 96
"""Of a lhs that is read in place: k in one piece, so that sums stay in registers, and two panels at a time, which the
tiles of the two before prefetch. Measured: "8-bit integer products, lhs in place" in epyc-kernel-rules.json."""
_SHAPES = {3: 1.0, 4: 1.03, 2: 1.04, 1: 1.3}
"""Vectors of a tile, and the time of tiles of 24 sums with as many: 8 x 3 against 6 x 4 and 12 x 2, 128 and 1024 rows
of [768, 768] on a Zen 5."""
_AMX_KC, _AMX_NC, _AMX_ROWS = 1024, 256, 9  # fewer rows are dot products, be the rhs constant or not


@dataclass(frozen=True)
class Units:
    """How vectors of `width` sums are made: `group` steps of k at once. shifted: the rhs is taken plus
    OFFSET, and the lhs multiplied as i8, not as i16."""

    width: int
    group: int
    shifted: bool
    intrinsic: str

    def right(self, b: Builder, x: ir.Value) -> ir.Value:
        """A vector of width * group i8 of the rhs as an operand of `add`."""
        return arith.xori(x, b.int_(-OFFSET, x.type)) if self.shifted else self._widened(b, x)

    def left(self, b: Builder, x: ir.Value) -> ir.Value:
        """The same of the lhs."""
        return x if self.shifted else self._widened(b, x)

    def everywhere(self, b: Builder, x: ir.Value) -> ir.Value:
        """A group of the lhs, in an i32 (as i8, or as i16 if these are multiplied), in all lanes."""
        kind = b.i8 if self.shifted else b.i16
        return vector.bitcast(b.vec(self.width * self.group, kind), b.broadcast(x, self.width))

    def add(self, b: Builder, acc: ir.Value, right: ir.Value, left: ir.Value) -> ir.Value:
        """Lane i of `acc` plus the products of group i of both operands."""
        if self.shifted:
            return _call(self.intrinsic, acc.type, acc, right, left)
        if self.intrinsic:
            return arith.addi(acc, _call(self.intrinsic, acc.type, right, left))
        for part in range(self.group):
            lanes = range(part, self.width * self.group, self.group)
            x, y = (arith.extsi(acc.type, b.shuffle(v, v, lanes)) for v in (right, left))
            acc = arith.addi(acc, arith.muli(x, y))
        return acc

    def _widened(self, b: Builder, x: ir.Value) -> ir.Value:
        return arith.extsi(b.vec(self.width * self.group, b.i16), x)


def units_of(width: int, cpu: amx.Features) -> Units:
    """The instructions of a CPU for `width` sums a vector."""
    if width == 16 and cpu.has("avx512vnni"):
        return Units(width, 4, True, "avx512.vpdpbusd.512")
    if width == 8 and (cpu.has("avxvnni") or cpu.has("avx512vnni") and cpu.has("avx512vl")):
        return Units(width, 4, True, "avx512.vpdpbusd.256")
    names = {16: ("avx512bw", "avx512.pmaddw.d.512"), 8: ("avx2", "avx2.pmadd.wd"), 4: ("sse2", "sse2.pmadd.wd")}
    feature, intrinsic = names.get(width, ("", ""))
    return Units(width, 2, False, intrinsic if feature and cpu.has(feature) else "")


def units_for(schedule: Int8Schedule) -> Units:
    """The instructions for a schedule on the CPU that code is made for."""
    return units_of(schedule.width, target())


def _call(name: str, result: ir.Type, *operands: ir.Value) -> ir.Value:
    attributes = {
        "intrin": ir.StringAttr.get(f"llvm.x86.{name}"),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
    }
    return ir.Operation.create(
        "llvm.call_intrinsic", results=[result], operands=list(operands), attributes=attributes
    ).result


def choose_integers(problem: MatmulProblem, isa: Isa) -> GemmSchedule:
    """The schedule of a product of 8-bit integers; sizes and strides that are no ints count as unknown."""
    m = problem.m
    in_place = problem.lhs_strides[-1] == 1 and problem.rhs_strides[-2] == 1
    large = _tiles(problem, isa, m if isinstance(m, int) else 256)
    if not in_place:
        return large
    if isinstance(m, int):
        return _dot(m, isa) if m <= _DOT_ROWS else large
    return ByRowsSchedule(limit=_DOT_ROWS, small=_dot(_DOT_ROWS, isa), large=large)


def choose_packed_integers(problem: MatmulProblem, isa: Isa) -> Int8Schedule | None:
    """The schedule for a constant rhs, packed in panels before the first call; None where that is no faster."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.batch or not (isinstance(m, int) and isinstance(n, int) and isinstance(k, int)):
        return None
    fewest = _AMX_ROWS if amx.has_amx("i8", isa) else _PACKED_ROWS
    if m < fewest or n < isa.vector_bytes // 4 or k < 16:
        return None
    return replace(_tiles(problem, isa, m), packed=True)


def _dot(m: int, isa: Isa) -> Int8DotSchedule:
    """Rows and columns, a power of two, of a tile of sums; a sum of the row itself is kept as well."""
    wide = isa.vector_registers >= 32
    width = isa.vector_bytes // 4
    mr, nr = (1, min(8 if wide else 4, width)) if m <= 1 else (4 if wide and m > 2 else 2, 4)
    return Int8DotSchedule(mr=mr, nr=nr, width=width, mc=64, nc=64)


def _amx_tiles(problem: MatmulProblem, m: int) -> AmxInt8Schedule:
    """Two by two tiles of 16 x 16 sums, for few rows one by four."""
    mr, nv = (amx.ROWS, 4) if m <= amx.ROWS else (2 * amx.ROWS, 2)
    if isinstance(problem.n, int):
        nv = min(nv, max(1, -(-problem.n // 16)))
    k, kc = problem.k, _AMX_KC
    if isinstance(k, int) and k > 0:
        kc = -(-k // max(1, -(-k // _AMX_KC)))
    mc = min(_MC, max(m, 1)) if isinstance(problem.m, int) else _MC
    nc = nv * 16 * max(1, _AMX_NC // (nv * 16))
    return AmxInt8Schedule(mr=mr, nv=nv, width=16, mc=mc, nc=nc, kc=round_up(kc, LINE))


def _tile_cycles(m: int, mr: int, nv: int) -> float:
    """The cycles of a step of k for all rows: two products each, at least as many as one takes, and loads."""
    return -(-max(m, 1) // mr) * (max(mr * nv / 2, 4.0) + nv / 4)


def _tiles(problem: MatmulProblem, isa: Isa, m: int) -> Int8Schedule:
    if amx.has_amx("i8", isa) and isa.vector_bytes == amx.BYTES and m >= _AMX_ROWS:
        return _amx_tiles(problem, m)
    width = isa.vector_bytes // 4
    wide = isa.vector_registers >= 32
    n, k = problem.n, problem.k
    few: dict[int, float] = {v: 1.0 for v in ((4, 3, 2, 1) if wide else (2, 1))}
    shapes = _SHAPES if wide and m >= 8 else few
    nv = min(shapes, key=lambda v: shapes[v])
    if isinstance(n, int):
        nv = min(shapes, key=lambda v: (-(-max(n, 1) // (v * width)) * v * shapes[v] * (1 + 0.02 / v), -v))
    highest = (24 if wide else 8) // nv
    mr = min((r for r in (12, 8, 6, 4, 3, 2, 1) if r <= highest), key=lambda r: (_tile_cycles(m, r, nv), -r))
    # Where groups of the lhs are multiplied as they are, and lie side by side, copying its rows is of no use.
    in_place = units_of(width, isa).shifted and problem.lhs_strides[-1] == 1 and isinstance(k, int) and k >= 4
    longest, mc, columns = (_KC_IN_PLACE, _MC_IN_PLACE, _NC_IN_PLACE) if in_place else (_KC, _MC, _NC)
    kc = longest
    if isinstance(k, int) and k > 0:
        kc = -(-k // max(1, -(-k // longest)))
    return Int8Schedule(
        mr=mr,
        nv=nv,
        width=width,
        mc=min(mc, max(m, 1)) if isinstance(problem.m, int) else mc,
        nc=nv * width * max(1, columns // (nv * width)),
        kc=round_up(kc, LINE),
        in_place=in_place,
        fetch=in_place,
    )
