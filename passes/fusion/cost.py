# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a kernel costs: bytes it moves, operations it computes, and an estimate of the time that both take.

The estimate is a roofline: a launch, and then the longer of moving and computing. It compares one kernel with two, so
only ratios matter. `Machine`'s figures are round numbers for one core of a server processor, the same on every host, so
that decisions (and the names of cached kernels) do not depend on where they are made. ``python -m benchmarks.machine``
measures them: on one core of an AMD EPYC (Zen 5), with other work on the machine, 115e9 bytes per second in the cache,
4.1e9 in memory, 35e9 operations and 164e9 multiply-adds counted twice. One thread goes from a kernel to the next in 22
ns (4 by 4 elements); `launch` is for threads that are woken and waited for.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.lowering.host.elements import item_bytes
from kiln.passes.fusion.graph import IN_MEMORY, FusionGraph

if TYPE_CHECKING:
    from kiln.passes.fusion.groups import Group

__all__ = ["Cost", "CostModel", "Machine", "amount"]

UNKNOWN_SIZE = 128
"""What a symbol counts as: decisions about dynamic sizes are made for sizes of this order."""


@dataclass(frozen=True)
class Machine:
    """launch: seconds until a kernel's threads are at work, the barrier behind it included. cache_bytes: up to where
    what a kernel writes is still in the cache for the next one. Bytes and operations (of `OP_COST`, on vectors) are
    per second; those of products are multiply-adds in registers."""

    launch: float = 1.5e-6
    cache_bytes: int = 1 << 20
    cache_rate: float = 40e9
    memory_rate: float = 10e9
    vector_rate: float = 40e9
    product_rate: float = 80e9


@dataclass(frozen=True)
class Cost:
    """Of some kernels: bytes read and written, operations on elements, multiply-adds of products, launches."""

    read: int = 0
    written: int = 0
    operations: int = 0
    products: int = 0
    kernels: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.read + other.read,
            self.written + other.written,
            self.operations + other.operations,
            self.products + other.products,
            self.kernels + other.kernels,
        )

    @property
    def moved(self) -> int:
        """Bytes of traffic."""
        return self.read + self.written

    def seconds(self, machine: Machine) -> float:
        """Estimated time on one core, for kernels of like size one after another."""
        rate = machine.cache_rate if self.moved <= machine.cache_bytes * max(1, self.kernels) else machine.memory_rate
        computing = self.operations / machine.vector_rate + self.products / machine.product_rate
        return self.kernels * machine.launch + max(self.moved / rate, computing)


class CostModel:
    """Costs of groups of one function. Sizes that are known at run time only count as `UNKNOWN_SIZE` each."""

    def __init__(self, graph: FusionGraph, machine: Machine | None = None):
        self.graph = graph
        self.machine = machine or Machine()
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

    def evaluations(self, indices: Iterable[tuple[ir.AffineExpr, ...]], space: list[ir.AffineExpr]) -> int:
        """How often a value is computed that loops over `space` read at `indices`.

        A loop inside of all loops that an index depends on does not compute it again.
        """
        total = 0
        for index in indices:
            used = {d for e in index for d in affine.dims_in(e)}
            total += self.count(space[: max(used, default=-1) + 1])
        return total

    def own_operations(self, op: ir.Operation) -> int:
        """Operations of computing each point of `op` once."""
        if op not in self._own:
            self._own[op] = 0 if op.name in IN_MEMORY else self.count(self.graph.space(op)) * self.graph.cost(op)
        return self._own[op]

    def products(self, op: ir.Operation) -> int:
        """Multiply-adds of a product, convolution or attention, counted twice as is usual; 0 for other ops."""
        name = name_of(op)
        if name not in IN_MEMORY:
            return 0
        result = self.count(self.graph.dims(op.results[0]))
        if name == "kiln.matmul":
            lhs = self.graph.dims(op.operands[0])
            transposed = ir.BoolAttr(op.attributes["transpose_lhs"]).value
            return 2 * result * self._size(lhs[-2] if transposed else lhs[-1])
        if name == "kiln.attention":
            scores = self.count(self.graph.dims(op.operands[0])[:-1]) * self._size(self.graph.dims(op.operands[1])[-2])
            return 2 * scores * self._size(self.graph.dims(op.operands[0])[-1]) + 2 * result * self._size(
                self.graph.dims(op.operands[1])[-2]
            )
        weight = self.graph.dims(op.operands[1])
        return 2 * result * self.count(weight[1:])

    def reads(self, group: "Group") -> dict[ir.Value, int]:
        """Bytes that the group reads of each value that it does not make itself."""
        made = {r for op in group.ops for r in op.results}
        found: dict[ir.Value, int] = {}
        for op in group.ops:
            for read in self.graph.reads[op]:
                if read.value in made:
                    continue
                size = self.bytes_of(read.value)
                if read.whole and op.name not in IN_MEMORY:
                    # A table: as many elements as are looked up.
                    looked_up = self.count(self.graph.space(op)) * item_bytes(read.value.type)
                    size = min(size, looked_up)
                found[read.value] = max(found.get(read.value, 0), size)
        return found

    def writes(self, group: "Group") -> int:
        """Bytes of results that something outside of the group reads."""
        members = set(group.ops)
        total = 0
        for op in group.ops:
            for result in op.results:
                readers = self.graph.readers.get(result, [])
                outside = result in self.graph.external or any(r.consumer not in members for r in readers)
                total += self.bytes_of(result) if outside else 0
        return total

    def cost(self, group: "Group", recomputed: int = 0) -> Cost:
        """Of one kernel; `recomputed` operations are added to those of computing each point once."""
        once = group.once("cost", lambda: self._cost(group))
        again = group.recomputed + recomputed
        return replace(once, operations=once.operations + again) if again else once

    def _cost(self, group: "Group") -> Cost:
        operations = sum(self.own_operations(op) for op in group.ops)
        products = sum(self.products(op) for op in group.ops)
        return Cost(sum(self.reads(group).values()), self.writes(group), operations, products, 1)


def amount(number: float, unit: str) -> str:
    """A readable figure: 2.1 MB, 300 kflop."""
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"
