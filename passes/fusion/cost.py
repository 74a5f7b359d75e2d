# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a kernel costs: bytes it moves, operations it computes, and an estimate of the time that both take.

The estimate is a roofline: a launch, and then the longer of moving and computing. It compares one kernel with two, so
only ratios matter. `Machine`'s figures are those of a core: `lowering/cpu/machines/core.toml`, round numbers that are
the same on every host, or what `kiln-tune --machine` measured (docs/machines.md).
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import Role, opdef
from kiln.lowering.cpu.rates import generic
from kiln.lowering.host.elements import item_bytes
from kiln.passes.fusion.graph import FusionGraph, Read
from kiln.passes.fusion.tally import Cost, Machine, Tally

if TYPE_CHECKING:
    from kiln.passes.fusion.groups import Group

__all__ = ["Cost", "CostModel", "Machine", "amount"]

UNKNOWN_SIZE = 128
"""What a symbol counts as: decisions about dynamic sizes are made for sizes of this order."""


class CostModel:
    """Costs of groups of one function. Sizes that are known at run time only count as `UNKNOWN_SIZE` each."""

    def __init__(self, graph: FusionGraph, machine: Machine | None = None):
        self.graph = graph
        self.machine = machine or Machine.of(generic())
        self._bytes: dict[ir.Value, int] = {}
        self._own: dict[ir.Operation, int] = {}

    def count(self, sizes: Iterable[ir.AffineExpr]) -> int:
        """Points of a space."""
        return math.prod(self._size(e) for e in sizes)

    def _size(self, e: ir.AffineExpr) -> int:
        known = affine.constant_of(e)
        if known is not None:
            return known
        guess = {s: ir.AffineConstantExpr.get(UNKNOWN_SIZE) for s in affine.symbols_in(e)}
        known = affine.constant_of(affine.simplify(affine.substitute(e, {}, guess)))
        return UNKNOWN_SIZE if known is None else known

    def bytes_of(self, value: ir.Value) -> int:
        """Size of a tensor in memory."""
        if value not in self._bytes:
            self._bytes[value] = self.count(self.graph.dims(value)) * item_bytes(value.type)
        return self._bytes[value]

    def evaluations(
        self,
        indices: Iterable[tuple[ir.AffineExpr, ...]],
        space: list[ir.AffineExpr],
        sizes: Sequence[ir.AffineExpr] = (),
    ) -> int:
        """How often a value is computed that loops over `space` read at `indices`.

        A loop inside of all loops that an index depends on does not compute it again. With the `sizes` of the value:
        where a loop is longer, for a pad or the other operands of a concatenation, only its iterations inside of the
        value count: kernels cut loops at concatenations (lowering/gpu/tile/cuts.py), and borders of pads are narrow.
        """
        total = 0
        for index in indices:
            used = {d for e in index for d in affine.dims_in(e)}
            extents = [self._size(e) for e in space[: max(used, default=-1) + 1]]
            for e, size in zip(index, sizes, strict=bool(sizes)):
                line = affine.linear_coefficients(e)
                if line is not None and len(line[1]) == 1:
                    ((d, step),) = line[1].items()
                    extents[d] = min(extents[d], self._size(size)) if affine.constant_of(step) == 1 else extents[d]
            total += math.prod(extents)
        return total

    def own_operations(self, op: ir.Operation) -> int:
        """Operations of computing each point of `op` once."""
        if op not in self._own:
            is_product = opdef(op).role is Role.CONTRACTION
            self._own[op] = 0 if is_product else self.count(self.graph.space(op)) * self.graph.cost(op)
        return self._own[op]

    def products(self, op: ir.Operation) -> int:
        """Multiply-adds of a product, convolution or attention, counted twice as is usual; 0 for other ops."""
        flops = opdef(op).flops
        return 0 if flops is None else flops(op, lambda value: [self._size(e) for e in self.graph.dims(value)])

    def bytes_read(self, op: ir.Operation, read: Read) -> int:
        """Bytes that one read by `op` takes."""
        size = self.bytes_of(read.value)
        if read.whole and opdef(op).role is not Role.CONTRACTION:
            # A table: as many elements as are looked up.
            return min(size, self.count(self.graph.space(op)) * item_bytes(read.value.type))
        return size

    def tally(self, group: "Group") -> Tally:
        """What the ops of a group read and make together; as ops are added, it is counted on."""
        if group.counted is None:
            group.counted = Tally(self)
            for op in group.ops:
                group.counted.add(op)
        return group.counted

    def cost(self, group: "Group", recomputed: int = 0) -> Cost:
        """Of one kernel; `recomputed` operations are added to those of computing each point once."""
        once = self.tally(group).cost()
        again = group.recomputed + recomputed
        return replace(once, operations=once.operations + again) if again else once

    def cost_with(self, group: "Group", op: ir.Operation, recomputed: int) -> Cost:
        """Of a kernel with one op more."""
        once = self.tally(group).cost() + self.tally(group).change(op)
        again = group.recomputed + recomputed
        return replace(once, operations=once.operations + again) if again else once

    def shared(self, a: "Group", b: "Group") -> int:
        """Bytes that both of two groups read, neither of which reads what the other makes."""
        few, many = sorted((self.tally(a).reads, self.tally(b).reads), key=len)
        return sum(min(size, many[value]) for value, size in few.items() if value in many)


def amount(number: float, unit: str) -> str:
    """A readable figure: 2.1 MB, 300 kflop."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"
