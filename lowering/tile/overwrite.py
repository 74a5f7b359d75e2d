# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which operands a kernel may find its result in: it reads each element of them before it writes that element.

True of a nest, of either target, where every read of the operand is at the index that is written (of an operand in
other dims, at the address), or in a reduction over dims that one thread walks as a whole before it writes any of them
(softmax over rows).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import opdef
from kiln.lowering.tile.access import Accesses, Indices, Loops
from kiln.lowering.tile.body import FusionBody

__all__ = ["Overwriting", "overwritable"]


def overwritable(body: FusionBody, layouts: Sequence[ir.AffineMap], operand: int, root: int) -> bool:
    """Whether a kernel made of loops alone may write result `root` into the memory of tensor operand `operand`.

    `layouts`: of the operands, then of the results. Both must be the same map on the same sizes and element type, or
    lead to the same addresses.
    """
    return Overwriting(body, layouts).allows(operand, root)


class Overwriting:
    """`overwritable` for all operands and results of one kernel: sets of operands are numbers, operand i is bit i."""

    def __init__(self, body: FusionBody, layouts: Sequence[ir.AffineMap]) -> None:
        self.body, self.layouts = body, layouts
        self._read = _operands_read(body)
        self._captured = _captured(body, self._read)
        self._alike: dict[tuple[ir.Type, Indices, ir.AffineMap], int] = {}
        for i, value in enumerate(body.tensors):
            key = value.type, body.dims(value), layouts[i]
            self._alike[key] = self._alike.get(key, 0) | 1 << i
        parts = body.parts()
        self._part_of = {i: part for part in parts for i in part.mine}
        self._parts = {id(part): self._union(part.roots[i] for i in part.mine) for part in parts}
        self._nests: dict[tuple[int, Indices], _Nest | None] = {}

    def allows(self, operand: int, root: int) -> bool:
        """Whether result `root` may be written into the memory of tensor operand `operand`."""
        return bool(self.operands_for(root) >> operand & 1)

    def operands_for(self, root: int) -> int:
        """The tensor operands into whose memory result `root` may be written."""
        result, part = self.body.roots[root], self._part_of[root]
        dims = self.body.dims(result)
        layout = self.layouts[len(self.body.tensors) + root]
        found = (self._alike.get((result.type, dims, layout), 0) | self._reshaped(result)) & ~self._captured
        # A thread may be done with one part while another thread has not begun with it.
        for number, read in self._parts.items():
            found &= -1 if number == id(part) else ~read
        if not found:
            return 0
        key = id(part), dims
        if key not in self._nests:
            self._nests[key] = self._nest(part, dims)
        nest = self._nests[key]
        if nest is None:
            return 0
        found &= ~sum(
            1 << i for i in nest.elsewhere if found >> i & 1 and not nest.is_at_point(i, self.layouts[i], layout)
        )
        # Results of one point are stored in order: none after `root` may read what it has overwritten.
        return found & nest.operands & ~(nest.later[root] & ~(self._read[result] if nest.is_loaded_once else 0))

    def _reshaped(self, result: ir.Value) -> int:
        """Operands of as many elements of the result's type, whose number is known, in other dims."""
        mine = ir.RankedTensorType(result.type)
        if not mine.has_static_shape:
            return 0
        types = [ir.RankedTensorType(value.type) for value in self.body.tensors]
        return sum(
            1 << i
            for i, t in enumerate(types)
            if t.has_static_shape
            and t.element_type == mine.element_type
            and list(t.shape) != list(mine.shape)
            and prod(t.shape) == prod(mine.shape)
        )

    def _union(self, values: Iterable[ir.Value]) -> int:
        """Operands that any of some values is computed from, table lookups aside."""
        found = 0
        for value in values:
            found |= self._read[value]
        return found

    def _nest(self, body: FusionBody, dims: Indices) -> "_Nest | None":
        """The nest of the results of a part that have these sizes; None beside results with more loops, as each point
        of those may store the same element.
        """
        sizes = {i: body.dims(body.roots[i]) for i in body.mine}
        together = [i for i, of in sizes.items() if of == dims]
        others = [body.roots[i] for i, of in sizes.items() if of != dims]
        if any(len(of) >= len(dims) and of != dims and _loops(of) != _loops(dims) for of in sizes.values()):
            return None
        walk = _Reads(body, Loops(), self.layouts)
        point = [walk.loops.new(extent) for extent in dims]
        indices = tuple(walk.loops.simplify(d) for d in point)
        around = frozenset(d.position for d in point)
        for i in together:
            walk.visit(body.roots[i], indices, around)
        allowed = (1 << len(body.tensors)) - 1
        # Other results may be another nest, which runs before or after this one.
        allowed &= ~self._union(others) & ~self._union(walk.shifted)
        used = {d for _, at in walk.reduced for e in at for d in affine.dims_in(e) if d < len(dims)}
        elsewhere: dict[int, list[Indices]] = {}
        for operand, reads in walk.reads.items():
            if body.dims(body.tensors[operand]) != dims:
                elsewhere[operand] = reads
                continue
            if any(at != indices for at in reads) and (others or not _rows_first(reads, indices, used)):
                allowed &= ~(1 << operand)
        later: dict[int, int] = {}
        behind = 0
        for i in reversed(together):
            later[i] = behind
            behind |= self._read[body.roots[i]]
        return _Nest(allowed, later, _is_loaded_once(body), indices, elsewhere)


@dataclass(frozen=True)
class _Nest:
    """Results that one nest stores. operands: what it reads at the point that it writes, or before it writes. later:
    operands that the results behind each one are computed from. is_loaded_once: see there. point: the indices of what
    is stored. elsewhere: where operands of other sizes are read.
    """

    operands: int
    later: dict[int, int]
    is_loaded_once: bool
    point: Indices
    elsewhere: Mapping[int, Sequence[Indices]]

    def is_at_point(self, operand: int, layout: ir.AffineMap, of_result: ir.AffineMap) -> bool:
        """Whether each element of an operand is read where its address is that of the element that is written."""
        written = _address(of_result, self.point)
        return all(_address(layout, at) == written for at in self.elsewhere[operand])


def _loops(dims: Indices) -> list[ir.AffineExpr]:
    """The dims that are walked: those of one element are not."""
    one = ir.AffineConstantExpr.get(1)
    return [d for d in dims if d != one]


def _address(layout: ir.AffineMap, indices: Indices) -> ir.AffineExpr:
    return affine.simplify(affine.substitute(layout.results[0], dict(enumerate(indices))))


def _is_loaded_once(body: FusionBody) -> bool:
    """Whether all results get an element of an operand from one load, so that it does not matter what was stored since.

    The evaluator remembers loads by index; index expressions of views may differ where indices do not.
    """
    return not body.has_reductions and all(
        op.operation.name in ("linalg.generic", "kiln.empty", "arith.constant") for op in body.operations
    )


def _rows_first(reads: Sequence[Indices], point: Indices, used: set[int]) -> bool:
    """Whether each read is at `point` but for dims that one thread reduces as a whole: no reduction is indexed by them.

    Reductions without such a dim in their index are done before anything of the rest of it is stored. used: dims that
    reductions are indexed by.
    """
    rank = len(point)
    for indices in reads:
        for d, (e, here) in enumerate(zip(indices, point, strict=True)):
            is_whole = isinstance(e, ir.AffineDimExpr) and e.position >= rank and d not in used
            if e != here and not is_whole:
                return False
    return True


def _operands_read(body: FusionBody) -> dict[ir.Value, int]:
    """The operands that each value is computed from, table lookups aside: operand i is bit i."""
    found = {value: 1 << i for i, value in enumerate(body.tensors)}
    for op in body.operations:
        read = 0
        for value in op.operands:
            read |= found.get(value, 0)
        found.update(dict.fromkeys(op.results, read))
    return found


def _captured(body: FusionBody, read: Mapping[ir.Value, int]) -> int:
    """Operands that a table lookup reads, at places that no index expression tells: operand i is bit i."""
    found = 0
    for op in body.operations:
        if op.operation.name != "linalg.generic":
            continue
        for inner in op.regions[0].blocks[0].operations:
            if inner.operation.name == "tensor.extract":
                found |= read[inner.operands[0]]
    return found


class _Reads(Accesses):
    """Also at which indices each operand is read; `shifted` are values that are read through a pad or concatenation."""

    def __init__(self, body: FusionBody, loops: Loops, layouts: Sequence[ir.AffineMap]) -> None:
        super().__init__(body, loops, layouts)
        self.reads: dict[int, list[Indices]] = {}
        self.shifted: set[ir.Value] = set()

    def visit(self, value: ir.Value, indices: Indices, around: frozenset[int]) -> None:
        position = self.body.argument_position(value)
        if position is not None:
            self.reads.setdefault(position, []).append(indices)
        elif opdef(value.owner).is_guarded:
            self.shifted.add(value)
        super().visit(value, indices, around)
