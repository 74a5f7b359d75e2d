# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the code generator asks of a fusion's region: sizes, layouts, reductions and what they depend on."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.memo import PerContext
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op
from kiln.errors import UnsupportedError

# Elementary-operation cost of a body op, in units of one vector add; anything absent costs 1.
OP_COST = {
    "math.exp": 12, "math.exp2": 10, "math.expm1": 18, "math.log": 14, "math.log2": 14, "math.log1p": 18,
    "math.log10": 14, "math.sin": 20, "math.cos": 20, "math.tan": 30, "math.tanh": 16, "math.erf": 16,
    "math.erfc": 20, "math.powf": 40, "math.atan2": 25, "math.atan": 20, "math.asin": 25, "math.acos": 25,
    "math.sinh": 25, "math.cosh": 25, "math.cbrt": 25, "arith.divf": 5, "math.sqrt": 6, "math.rsqrt": 8,
    "arith.remf": 20, "arith.divsi": 20, "arith.remsi": 20, "arith.floordivsi": 20, "tensor.extract": 8,
    "arith.constant": 0, "linalg.yield": 0, "linalg.index": 0,
}  # fmt: skip
EXPENSIVE = 8
"""From this cost on, a value that several loops need is kept in scratch memory instead of computed again."""


@dataclass(frozen=True)
class Reduction:
    """A `linalg.generic` with reduction dims. `level` counts the reductions on the longest path into it."""

    op: ir.OpView
    dims: tuple[int, ...]
    level: int


@dataclass
class FusionBody:
    """Analysis of one `kiln.fusion`, or of one of its parts; holds for as long as its body is not changed.

    Parts (attribute `parts = array<i64: ...>`, a number per result) have nothing to do with each other but the kernel
    that they are in: no result of one is computed from what another computes, and loops are never shared.

    roots: what the fusion yields. mine: positions among them of this body's results; all of them without `part`.
    operations: what these are computed from. outer: an analysis of the function, for what is asked of likely sizes.
    """

    fusion: ir.OpView
    part: int | None = None
    outer: SymbolicShapes | None = None
    block: ir.Block = field(init=False)
    tensors: list[ir.Value] = field(init=False)
    symbols: list[ir.Value] = field(init=False)
    roots: list[ir.Value] = field(init=False)
    mine: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.block = self.fusion.regions[0].blocks[0]
        arguments = list(self.block.arguments)
        self.symbols = [a for a in arguments if isinstance(a.type, ir.IndexType)]
        self.tensors = [a for a in arguments if not isinstance(a.type, ir.IndexType)]
        operations = list(self.block.operations)
        self.operations = operations[:-1]
        self.roots = list(operations[-1].operands)
        self.mine = [i for i, p in enumerate(part_numbers(self.fusion)) if self.part is None or p == self.part]
        if self.part is not None:
            needed = _computed_from([self.roots[i] for i in self.mine], self.fusion)
            self.operations = [op for op in self.operations if op.operation in needed]
        self.shapes = SymbolicShapes(self.fusion, self.outer)
        self._symbol_position = {s: i for i, s in enumerate(self.symbols)}
        self._argument_position = {a: i for i, a in enumerate(self.tensors)}
        self._maps: dict[tuple[ir.Operation, str], ir.AffineMap] = {}
        self._extents: dict[ir.Operation, tuple[ir.AffineExpr, ...]] = {}
        self._find_reductions()

    def _find_reductions(self) -> None:
        """The reductions among the operations, and the level of each value."""
        self._reductions: dict[ir.Value, Reduction] = {}
        self._levels: dict[ir.Value, int] = {}
        for op in self.operations:
            level = max((self._levels.get(v, 0) for v in op.operands), default=0)
            dims = reduction_dims(op)
            if dims:
                level += 1
                reduction = Reduction(op, dims, level)
                self._reductions.update(dict.fromkeys(op.results, reduction))
            self._levels.update(dict.fromkeys(op.results, level))
        self._spills: dict[ir.Value, int] | None = None

    def parts(self) -> list["FusionBody"]:
        """One body per part, in order; the whole body where there is only one."""
        numbers = list(dict.fromkeys(part_numbers(self.fusion)))
        if len(numbers) < 2 or self.part is not None:
            return [self]
        return [FusionBody(self.fusion, number, self.outer) for number in numbers]

    @property
    def location(self) -> ir.Location:
        """That of the named op whose kernel this is; where there is none, of the fusion: of all ops in it."""
        named = next((op for op in self.operations if kiln.opdef(op).has_kernel), self.fusion)
        return named.location

    # -- values ----------------------------------------

    def argument_position(self, value: ir.Value) -> int | None:
        """Which tensor operand of the fusion `value` is, or None for a value computed in the body."""
        return self._argument_position.get(value)

    def dims(self, value: ir.Value) -> tuple[ir.AffineExpr, ...]:
        """Sizes of a tensor value over the fusion's symbols."""
        return tuple(self.shapes.dims(value))

    def reduction(self, value: ir.Value) -> Reduction | None:
        """The reduction that computes `value`, if one does."""
        return self._reductions.get(value)

    @property
    def has_reductions(self) -> bool:
        """Whether any op of the body is a reduction."""
        return bool(self._reductions)

    def reductions(self) -> list[Reduction]:
        """All reductions, in order."""
        return list(dict.fromkeys(self._reductions.values()))

    def siblings(self, reduction: Reduction) -> list[Reduction]:
        """Reductions that one loop can compute: same level, same iteration space, same output map; in order."""
        extents = self.loop_extents(reduction.op)
        out_map = str(output_map(reduction.op))
        found: list[Reduction] = []
        for other in self.reductions():
            if other.level != reduction.level or other.dims != reduction.dims:
                continue
            if self.loop_extents(other.op) == extents and str(output_map(other.op)) == out_map:
                found.append(other)
        return found

    # -- maps ----------------------------------------

    def local_map(self, op: ir.OpView, name: str) -> ir.AffineMap:
        """The affine map attribute `name` of `op`, with the op's symbols renumbered to the fusion's."""
        key = (op.operation, name)
        found = self._maps.get(key)
        if found is None:
            own = ir.AffineMapAttr(op.operation.attributes[name]).value
            local = [self._symbol_position[v] for v in op.operation.operands if v in self._symbol_position]
            symbols = {i: ir.AffineSymbolExpr.get(position) for i, position in enumerate(local)}
            results = [affine.substitute(e, {}, symbols) for e in own.results]
            found = self._maps[key] = ir.AffineMap.get(own.n_dims, len(self.symbols), results)
        return found

    def loop_extents(self, op: ir.OpView) -> tuple[ir.AffineExpr, ...]:
        """Iteration space of a `linalg.generic`, from the operands that a dim indexes directly."""
        found = self._extents.get(op.operation)
        if found is None:
            found = self._extents[op.operation] = self._loop_extents(op)
        return found

    def _loop_extents(self, op: ir.OpView) -> tuple[ir.AffineExpr, ...]:
        maps = indexing_maps(op)
        extents: list[ir.AffineExpr | None] = [None] * maps[0].n_dims
        for value, m in zip(op.operands, maps, strict=True):
            if not isinstance(value.type, ir.RankedTensorType):
                continue
            for size, e in zip(self.dims(value), m.results, strict=True):
                if isinstance(e, ir.AffineDimExpr):
                    known = extents[e.position]
                    if known is None or isinstance(size, ir.AffineConstantExpr):
                        extents[e.position] = size
        if any(e is None for e in extents):
            raise UnsupportedError("linalg.generic", str(op.location), "a loop whose extent no operand gives")
        return tuple(e for e in extents if e is not None)

    # -- costs ----------------------------------------

    def own_cost(self, op: ir.OpView) -> int:
        """Cost of one element of `op` alone."""
        if op.operation.name != "linalg.generic":
            return 1
        return sum(OP_COST.get(o.operation.name, 1) for o in op.regions[0].blocks[0].operations)

    def element_cost(self, value: ir.Value) -> int:
        """Cost of one element of a root: of the ops on its own dims, without reductions."""
        return self._costs_of_ranks.get(_rank(value), 0)

    @cached_property
    def _costs_of_ranks(self) -> dict[int, int]:
        """Number of dims -> cost of one element of all ops with so many, without reductions."""
        costs: Counter[int] = Counter()
        for op in self.operations:
            if op.results and op.results[0] not in self._reductions:
                costs[_rank(op.results[0])] += self.own_cost(op)
        return costs

    def level(self, value: ir.Value) -> int:
        """Number of reductions on the longest path into `value`, itself included."""
        return self._levels.get(value, 0)

    def spill_level(self, value: ir.Value) -> int | None:
        """The reduction level in whose loop `value` is to be kept in scratch memory; None to recompute it."""
        if self._spills is None:
            self._spills = self._plan_spills()
        return self._spills.get(value)

    def _plan_spills(self) -> dict[ir.Value, int]:
        final = 1 + max(self._levels.values(), default=0)
        stages: dict[ir.Value, set[int]] = {self.roots[i]: {final} for i in self.mine}
        inclusive: dict[ir.Value, int] = {}
        for op in self.operations:
            # What has fewer dims is computed once a row, not once an element.
            below = sum(inclusive.get(v, 0) for v in op.operands if _rank(v) == _rank(op.results[0]))
            cost = 0 if op.results and op.results[0] in self._reductions else below + self.own_cost(op)
            inclusive.update(dict.fromkeys(op.results, cost))
        spills: dict[ir.Value, int] = {}
        for op in reversed(self.operations):
            used: set[int] = set()
            for result in op.results:
                used |= stages.get(result, set())
            reduction = self._reductions.get(op.results[0]) if op.results else None
            if reduction is not None:
                used = {reduction.level}
            elif len(used) > 1 and len(op.results) == 1 and inclusive[op.results[0]] >= EXPENSIVE:
                spills[op.results[0]] = min(used)
                used = {min(used)}
            for v in op.operands:
                stages.setdefault(v, set()).update(used)
        return spills


def part_numbers(fusion: ir.OpView) -> list[int]:
    """The part that each result of a fusion belongs to."""
    attributes = fusion.operation.attributes
    if "parts" in attributes:
        return list(ir.DenseI64ArrayAttr(attributes["parts"]))
    return [0] * len(fusion.operation.results)


def _computed_from(values: Sequence[ir.Value], fusion: ir.OpView) -> set[ir.Operation]:
    """Ops of the body of `fusion` that `values` are computed from."""
    found: set[ir.Operation] = set()
    work = list(values)
    while work:
        op = defining_op(work.pop())
        if op is None or op in found or op.parent != fusion.operation:
            continue
        found.add(op)
        work += op.operands
        work += [v for r in op.regions for block in r.blocks for inner in block.operations for v in inner.operands]
    return found


def _rank(value: ir.Value) -> int:
    return ir.RankedTensorType(value.type).rank if isinstance(value.type, ir.RankedTensorType) else 0


def indexing_maps(op: ir.OpView) -> list[ir.AffineMap]:
    """Indexing maps of a `linalg.generic`, one per operand."""
    # What is read from the bindings is of the most derived class.
    maps: Any = op.operation.attributes["indexing_maps"]
    return [attribute.value for attribute in maps]


def output_map(op: ir.OpView) -> ir.AffineMap:
    """Indexing map of a `linalg.generic`'s (first) result."""
    return indexing_maps(op)[len(op.operands) - len(op.results)]


def reduction_dims(op: ir.OpView) -> tuple[int, ...]:
    """Positions of the reduction dims of a `linalg.generic`; empty for any other op."""
    operation = op.operation
    if operation.name != "linalg.generic":
        return ()
    kinds = operation.attributes["iterator_types"]
    known = _REDUCED.of(kinds.context)
    found = known.get(hash(kinds))
    if found is None:
        names = map(str, ir.ArrayAttr(kinds))  # takes long: MLIR writes to a Python file
        found = known[hash(kinds)] = tuple(i for i, kind in enumerate(names) if "reduction" in kind)
    return found


_REDUCED = PerContext()
"""Positions of reduction dims by the attribute that has them."""


def invert(out_map: ir.AffineMap, indices: Sequence[ir.AffineExpr]) -> list[ir.AffineExpr | None]:
    """Iteration-space indices from the result's indices; None for the dims that the map drops."""
    found: list[ir.AffineExpr | None] = [None] * out_map.n_dims
    for e, index in zip(out_map.results, indices, strict=True):
        if isinstance(e, ir.AffineDimExpr):
            found[e.position] = index
    return found
