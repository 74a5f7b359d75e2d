# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the ops of a group read, make and compute together, counted on as ops are added."""

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from torch_mlir import ir

from kiln.dialects.kiln import Role, opdef
from kiln.dialects.walk import defining_op
from kiln.lowering.cpu.rates import CpuRates

if TYPE_CHECKING:
    from kiln.passes.fusion.cost import CostModel

__all__ = ["Cost", "Machine", "Tally"]


@dataclass(frozen=True)
class Machine:
    """launch: seconds until a kernel's threads are at work, the barrier behind it included. cache_bytes: up to where
    what a kernel writes is still in the cache for the next one. Bytes and operations (of `OP_COST`, on vectors) are
    per second; those of products are multiply-adds in registers.
    """

    launch: float
    cache_bytes: int
    cache_rate: float
    memory_rate: float
    vector_rate: float
    product_rate: float

    @classmethod
    def of(cls, rates: CpuRates) -> Self:
        """That of a core with these rates."""
        return cls(
            launch=rates.launch_time * 1e-9,
            cache_bytes=rates.cache_bytes,
            cache_rate=rates.cache_rate * 1e9,
            memory_rate=rates.memory_rate * 1e9,
            vector_rate=rates.vector_rate * 1e9,
            product_rate=rates.product_rate * 1e9,
        )


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


class Tally:
    """Sums over the ops of one group. The work of adding an op is that of looking at its operands and readers.

    reads: bytes read of each value that no op of the group makes. loads: how many reads these are, of each. written:
    values of the group's that others read. users: positions of the ops outside of the group that
    read what it makes, itself where parts of it do. products: named ops that read operands in place, whose results the
    group reads.
    """

    def __init__(self, model: "CostModel") -> None:
        self.model = model
        self.made: set[ir.Value] = set()
        self.reads: dict[ir.Value, int] = {}
        self.loads: Counter[ir.Value] = Counter()
        self.written: set[ir.Value] = set()
        self.users: dict[int, None] = {}
        self.products: dict[ir.Operation, None] = {}
        self._members: set[ir.Operation] = set()
        self._outside: dict[ir.Value, int] = {}  # reads of what the group makes, by others
        self._cost = Cost(kernels=1)

    def cost(self) -> Cost:
        """Of the group as one kernel that computes each value once."""
        return self._cost

    def change(self, op: ir.Operation) -> Cost:
        """What another op adds to that."""
        model, graph = self.model, self.model.graph
        read = written = 0
        for value, size in self._reads_of(op).items():
            read += max(0, size - self.reads.get(value, 0))
        for value in op.results:
            read -= self.reads.get(value, 0)
            written += model.bytes_of(value) if self._count_outside(op, value) else 0
        mine: dict[ir.Value, int] = {}
        for r in graph.reads[op]:
            if r.value in self.made:
                mine[r.value] = mine.get(r.value, 0) + 1
        written -= sum(model.bytes_of(v) for v, count in mine.items() if self._outside[v] == count)
        return Cost(read, written, model.own_operations(op), model.products(op))

    def accesses_with(self, op: ir.Operation) -> int:
        """Loads and stores of the group's loops with another op, where all that reads the op is in it. What several ops
        load counts for each.
        """
        loads = self._loads_of(op)
        inside = sum(self.loads.get(value, 0) for value in op.results)
        return self.loads.total() - inside + loads.total() + len(self.written)

    def add(self, op: ir.Operation) -> None:
        """Count an op in."""
        graph = self.model.graph
        self._cost += self.change(op)
        for value, size in self._reads_of(op).items():
            self.reads[value] = max(size, self.reads.get(value, 0))
        self.loads += self._loads_of(op)
        for r in graph.reads[op]:
            if r.value in self.made:
                self._outside[r.value] -= 1
                if not self._outside[r.value]:
                    self.written.discard(r.value)
            maker = defining_op(r.value)
            if maker is not None and opdef(maker).role is Role.CONTRACTION:
                self.products[maker] = None
        for value in op.results:
            self._outside[value] = self._count_outside(op, value)
            if self._outside[value]:
                self.written.add(value)
            self.reads.pop(value, None)
            self.loads.pop(value, None)
            self.made.add(value)
        self._members.add(op)
        self.products.pop(op, None)
        at = graph.position
        self.users.pop(at[op], None)
        self.users.update(dict.fromkeys(p for p in graph.users(op) if graph.operations[p] not in self._members))

    def _loads_of(self, op: ir.Operation) -> Counter[ir.Value]:
        """How often an op reads each value that the group does not make."""
        return Counter(r.value for r in self.model.graph.reads[op] if r.value not in self.made)

    def _reads_of(self, op: ir.Operation) -> dict[ir.Value, int]:
        """Bytes that an op reads of each value that the group does not make."""
        found: dict[ir.Value, int] = {}
        for r in self.model.graph.reads[op]:
            if r.value not in self.made:
                found[r.value] = max(found.get(r.value, 0), self.model.bytes_read(op, r))
        return found

    def _count_outside(self, op: ir.Operation, value: ir.Value) -> int:
        """Reads of a result of `op` by what is neither in the group nor `op`; the function's own use counts as one."""
        graph = self.model.graph
        reads = sum(r.consumer not in self._members for r in graph.readers.get(value, ()))
        return reads + (value in graph.external)
