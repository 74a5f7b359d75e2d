# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which operands a kernel may find its result in: it reads each element of them before it writes that element.

True of a nest (lowering/cpu/tile/nest.py) where every read of the operand is at the index that is written, or in a
reduction over dims that one thread walks as a whole before it writes any of them (softmax over rows).
"""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.lowering.tile.access import Accesses, Indices, Loops
from kiln.lowering.tile.body import FusionBody

__all__ = ["Overwriting", "overwritable"]


def overwritable(body: FusionBody, layouts: Sequence[ir.AffineMap], operand: int, root: int) -> bool:
    """Whether a kernel made of loops alone may write result `root` into the memory of tensor operand `operand`.

    `layouts`: of the operands, then of the results. Both must be the same map on the same sizes and element type.
    """
    return Overwriting(body, layouts).allows(operand, root)


class Overwriting:
    """`overwritable` for several operands and results of one kernel: what it reads where is found once."""

    def __init__(self, body: FusionBody, layouts: Sequence[ir.AffineMap]) -> None:
        self.body, self.layouts, self.parts = body, layouts, body.parts()
        self._captured = _captured(body)
        self._read: dict[ir.Value, set[int]] = {}
        self._walks: dict[tuple[ir.Value, ...], tuple[_Reads, Indices]] = {}

    def allows(self, operand: int, root: int) -> bool:
        """Whether result `root` may be written into the memory of tensor operand `operand`."""
        body, layouts = self.body, self.layouts
        if operand in self._captured:
            return False
        if len(self.parts) > 1:
            # A thread may be done with one part while another thread has not begun with it.
            others = [p.roots[i] for p in self.parts if root not in p.mine for i in p.mine]
            if any(self._reads(v, operand) for v in others):
                return False
            body = next(p for p in self.parts if root in p.mine)
        source, result = body.tensors[operand], body.roots[root]
        if source.type != result.type or body.dims(source) != body.dims(result):
            return False
        if layouts[operand] != layouts[len(body.tensors) + root]:
            return False
        dims = body.dims(result)
        smaller = [body.roots[i] for i in body.mine if len(body.dims(body.roots[i])) < len(dims)]
        together = [i for i in body.mine if body.dims(body.roots[i]) == dims]
        if len(smaller) + len(together) < len(body.mine) or any(self._reads(v, operand) for v in smaller):
            return False  # another nest, which may run before or after this one
        is_loaded = _is_loaded_once(body) and self._reads(result, operand)
        # Results of one point are stored in order: none after `root` may read what it has overwritten.
        if not is_loaded and any(i > root and self._reads(body.roots[i], operand) for i in together):
            return False
        walk, indices = self._walk(body, together, dims)
        if operand in walk.shifted:
            return False
        reads = [at for position, at in walk.reads if position == operand]
        return all(at == indices for at in reads) or (not smaller and _rows_first(walk, reads, indices))

    def _reads(self, value: ir.Value, operand: int) -> bool:
        """Whether `value` is computed from an operand, table lookups aside."""
        found = self._read.get(value)
        if found is None:
            found = self._read[value] = _read(self.body, value)
        return operand in found

    def _walk(self, body: FusionBody, together: Sequence[int], dims: Indices) -> tuple["_Reads", Indices]:
        """What the nest of some results of a part reads, and the point that it is at."""
        key = tuple(body.roots[i] for i in together)
        if key not in self._walks:
            walk = _Reads(body, Loops(), self.layouts)
            point = [walk.loops.new(extent) for extent in dims]
            indices = tuple(walk.loops.simplify(d) for d in point)
            around = frozenset(d.position for d in point)
            for value in key:
                walk.visit(value, indices, around)
            self._walks[key] = walk, indices
        return self._walks[key]


def _is_loaded_once(body: FusionBody) -> bool:
    """Whether all results get an element of an operand from one load, so that it does not matter what was stored since.

    The evaluator remembers loads by index; index expressions of views may differ where indices do not.
    """
    return not body.has_reductions and all(
        op.operation.name in ("linalg.generic", "kiln.empty", "arith.constant") for op in body.operations
    )


def _rows_first(walk: "_Reads", reads: Sequence[Indices], point: Indices) -> bool:
    """Whether each read is at `point` but for dims that one thread reduces as a whole: no reduction is indexed by them.

    Reductions without such a dim in their index are done before anything of the rest of it is stored.
    """
    rank = len(point)
    used = {d for _, indices in walk.reduced for e in indices for d in affine.dims_in(e) if d < rank}
    for indices in reads:
        for d, (e, here) in enumerate(zip(indices, point, strict=True)):
            is_whole = isinstance(e, ir.AffineDimExpr) and e.position >= rank and d not in used
            if e != here and not is_whole:
                return False
    return True


def _captured(body: FusionBody) -> set[int]:
    """Operands that a table lookup reads, at places that no index expression tells."""
    found: set[int] = set()
    for op in body.operations:
        if op.operation.name != "linalg.generic":
            continue
        for inner in op.regions[0].blocks[0].operations:
            if inner.operation.name == "tensor.extract":
                _arguments(body, inner.operands[0], found)
    return found


def _read(body: FusionBody, value: ir.Value) -> set[int]:
    """Operands that `value` is computed from, table lookups aside."""
    found: set[int] = set()
    _arguments(body, value, found)
    return found


def _arguments(body: FusionBody, value: ir.Value, found: set[int]) -> None:
    """Adds the operands that `value` is computed from."""
    position = body.argument_position(value)
    if position is not None:
        found.add(position)
    elif not isinstance(value.owner, ir.Block):
        for operand in value.owner.operands:
            _arguments(body, operand, found)


class _Reads(Accesses):
    """Also which operand is read at which index; `shifted` are those read through a pad or a concatenation."""

    def __init__(self, body: FusionBody, loops: Loops, layouts: Sequence[ir.AffineMap]) -> None:
        super().__init__(body, loops, layouts)
        self.reads: list[tuple[int, Indices]] = []
        self.shifted: set[int] = set()

    def visit(self, value: ir.Value, indices: Indices, around: frozenset[int]) -> None:
        position = self.body.argument_position(value)
        if position is not None:
            self.reads.append((position, indices))
        elif name_of(value.owner) in ("kiln.pad", "kiln.cat"):
            _arguments(self.body, value, self.shifted)
        super().visit(value, indices, around)
