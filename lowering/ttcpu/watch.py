# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Accesses that are compared with the memory that they may touch, and what is told of those outside of it.

A loop over a block's elements carries how far off its accesses are and reports once, behind it: a test and a report for
each element would keep LLVM from vectorising the loop.
"""

from collections.abc import Callable, Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.dialects import tt
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.ttcpu.blocks import loop_nest
from kiln.lowering.ttcpu.core import Extent, Lowering
from kiln.lowering.ttcpu.extents import extents_of
from kiln.lowering.ttcpu.functions import call

__all__ = ["Watch", "report", "report_failing", "report_kernel"]

_NOTHING = -(1 << 63)
"""The offset of no access."""

_REPORT = """
func.func private @kiln_report(%record: !llvm.ptr, %launch: i64, %site: i64, %argument: i64, %offset: i64, %size: i64,
                               %program: i64) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %found = llvm.load %record : !llvm.ptr -> i64
  %is_first = arith.cmpi eq, %found, %zero : i64
  scf.if %is_first {
    llvm.store %one, %record : i64, !llvm.ptr
    FIELDS
  }
  return
}
"""


def _report_function() -> str:
    lines: list[str] = []
    for i, name in enumerate(("launch", "site", "argument", "offset", "size", "program"), 1):
        lines.append(f"%at{i} = llvm.getelementptr %record[{i}] : (!llvm.ptr) -> !llvm.ptr, i64")
        lines.append(f"llvm.store %{name}, %at{i} : i64, !llvm.ptr")
    return _REPORT.replace("FIELDS", "\n".join(lines))


class Watch:
    """The accesses of one op. pointer: of the source, a scalar or a block; kind: as in `Site`; item: bytes of each."""

    def __init__(self, low: Lowering, op: ir.Operation, kind: str, pointer: ir.Value, item: int) -> None:
        self.low, self.op, self.kind, self.item = low, op, kind, item
        self.extents = extents_of(low, pointer)
        self.limits = [_limit(low.b, e.size, item) for e in self.extents]

    def each(self, shape: Sequence[int], body: Callable[[tuple[ir.Value, ...]], Sequence[ir.Value]]) -> None:
        """Runs `body`, which returns what `touch` gave it last, for all elements, and reports what was outside."""
        if not self.extents:

            def plain(index: tuple[ir.Value, ...]) -> None:
                body(index)

            loop_nest(self.low.b, shape, plain)
            return
        offset, is_outside = _greatest(self.low.b, shape, lambda index: body(index)[0])
        first = self.extents[0]
        self.low.b.if_(is_outside, lambda: report(self.low, self.op, self.kind, first, offset))

    def fill(self, result: ir.Value, value: Callable[[tuple[ir.Value, ...]], Sequence[ir.Value]]) -> None:
        """Makes the elements `value(index)`, behind which is what `touch` gave it last, those of an op's result."""
        low = self.low
        if not tt.is_block(result.type):
            made: list[ir.Value] = []

            def one(index: tuple[ir.Value, ...]) -> Sequence[ir.Value]:
                first, *rest = value(index)
                made.append(first)
                return rest

            self.each((), one)
            low.values[result] = made[0]
            return
        target = low.memory_of(result)

        def element(index: tuple[ir.Value, ...]) -> Sequence[ir.Value]:
            first, *rest = value(index)
            target.write(first, index)
            return rest

        self.each(target.shape, element)
        low.values[result] = target

    @property
    def types(self) -> list[ir.Type]:
        """Of what `touch` returns behind the access's own values."""
        return [self.low.b.i64] if self.extents else []

    @property
    def nothing(self) -> list[ir.Value]:
        """What stands for no access."""
        return [self.low.b.int_(_NOTHING, self.low.b.i64)] if self.extents else []

    def touch(
        self, address: ir.Value, access: Callable[[], list[ir.Value]], otherwise: Sequence[ir.Value] = ()
    ) -> list[ir.Value]:
        """The values of `access`, or `otherwise` where the address is outside; then how far outside it was."""
        if not self.extents:
            return access()
        b = self.low.b
        number = llvm.ptrtoint(b.i64, address)
        offset, inside = None, None
        for extent, limit in zip(self.extents, self.limits, strict=True):
            here = arith.subi(number, extent.base)
            offset = here if offset is None else offset
            fits = arith.cmpi(6, here, limit)
            inside = fits if inside is None else arith.ori(inside, fits)
        assert offset is not None and inside is not None
        if otherwise:
            values = b.if_(inside, access, lambda: list(otherwise), [v.type for v in otherwise])
        else:
            values = b.if_(inside, access)
        return [*values, arith.select(inside, b.int_(_NOTHING, b.i64), offset)]


def report_failing(
    low: Lowering,
    op: ir.Operation,
    kind: str,
    shape: Sequence[int],
    holds: Callable[[tuple[ir.Value, ...]], ir.Value],
    detail: str,
) -> None:
    """Reports that a condition, by element of a block, does not hold for some."""
    if low.record is None:
        return
    b = low.b
    nothing, something = b.int_(_NOTHING, b.i64), b.int_(0, b.i64)
    found, fails = _greatest(b, shape, lambda index: arith.select(holds(index), nothing, something))
    b.if_(fails, lambda: report(low, op, kind, None, found, detail))


def report(
    low: Lowering, op: ir.Operation, kind: str, extent: Extent | None, offset: ir.Value, detail: str = ""
) -> None:
    """Fills in the kernel's record, if nothing is in it: an op found something wrong."""
    if low.record is not None:
        _report(low, low.sites.add(op, kind, detail), extent, offset)


def report_kernel(low: Lowering, offset: ir.Value) -> None:
    """`report` of the kernel itself: its programs wait for each other."""
    _report(low, 0, None, offset)


def _report(low: Lowering, number: int, extent: Extent | None, offset: ir.Value) -> None:
    b = low.b
    assert low.record is not None
    site, nowhere = b.int_(number, b.i64), b.int_(-1, b.i64)
    argument, size = (nowhere, nowhere) if extent is None else (extent.number, extent.size)
    call(b, "kiln_report", _report_function(), [*low.record, site, argument, offset, size, low.program])


def _limit(b: Builder, size: ir.Value, item: int) -> ir.Value:
    """The offsets below this one are those of whole elements."""
    return arith.maxsi(arith.subi(size, b.int_(item - 1, b.i64)), b.int_(0, b.i64))


def _greatest(
    b: Builder, shape: Sequence[int], body: Callable[[tuple[ir.Value, ...]], ir.Value]
) -> tuple[ir.Value, ir.Value]:
    """The greatest of the i64 values of all elements, and whether one of them is more than `_NOTHING`."""
    nothing = b.int_(_NOTHING, b.i64)

    def nest(index: tuple[ir.Value, ...], carried: list[ir.Value]) -> list[ir.Value]:
        if len(index) == len(shape):
            return [arith.maxsi(carried[0], body(index))]
        return b.for_(0, shape[len(index)], 1, lambda i, c: nest((*index, b.value(i)), c), carried)

    (found,) = nest((), [nothing])
    return found, arith.cmpi(1, found, nothing)
