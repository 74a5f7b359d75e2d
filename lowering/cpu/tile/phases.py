# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What a kernel with matrix products computes when: the products in their order, then the loops behind them.

A phase is one product with the pointwise ops that walk its elements (its epilogue), or the loops for everything that
does not: a reduction along the rows, and what needs its result. Values that a later phase reads are *kept*: in scratch
memory, or where the kernel stores them anyway.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.access import Indices, Loops, compose, compose_one, indices_at, linear_offset
from kiln.lowering.tile.body import FusionBody, indexing_maps, invert, output_map, reduction_dims
from kiln.lowering.tile.overwrite import overwritable

__all__ = ["PhaseBody", "Phases", "find_hosts", "find_phases", "hosted_layout", "kept_layout", "row_count"]


class PhaseBody(FusionBody):
    """A body with what other phases keep as operands, and what this one keeps among its results.

    tensors: those of the fusion, then every kept value. roots: those of the fusion, then every kept value. Only the
    `loaded` ones are operands here; only `mine` are results.
    """

    def __init__(self, base: FusionBody, kept: Sequence[ir.Value], loaded: set[ir.Value], mine: Sequence[int]):
        super().__init__(base.fusion, base.part)
        first = len(self.tensors)
        self.tensors = [*self.tensors, *kept]
        self.roots = [*self.roots, *kept]
        self.mine = list(mine)
        self._argument_position |= {v: first + i for i, v in enumerate(kept) if v in loaded}
        needed = self._computed([self.roots[i] for i in self.mine])
        self.operations = [op for op in self.operations if op.operation in needed]
        self._find_reductions()

    def _computed(self, values: Sequence[ir.Value]) -> set[ir.Operation]:
        """The ops that `values` are computed from here: nothing behind what is loaded."""
        found: set[ir.Operation] = set()
        work = list(values)
        while work:
            value = work.pop()
            op = defining_op(value)
            if op is None or op in found or self.argument_position(value) is not None:
                continue
            if op.parent != self.fusion.operation:
                continue
            found.add(op)
            work += op.operands
            for region in op.regions:
                work += [v for block in region.blocks for inner in block.operations for v in inner.operands]
        return found


@dataclass
class Phases:
    """The phases of a body: `products` in order, then `loops`, where there are any.

    kept: values that later phases read. crossing: those of them that a product's epilogue reads. behind: those that the
    loops read.
    """

    products: list[PhaseBody]
    loops: PhaseBody | None
    kept: list[ir.Value]
    crossing: list[ir.Value]
    behind: list[ir.Value]

    @property
    def count(self) -> int:
        """How many phases there are."""
        return len(self.products) + (self.loops is not None)


def find_phases(body: FusionBody) -> Phases:
    """Takes a body with at least one kiln.matmul apart into phases."""
    products = [op.results[0] for op in body.operations if op.operation.name == "kiln.matmul"]
    last = len(products)
    stages = _stages(body, products)
    kept: list[ir.Value] = []
    crossing: list[ir.Value] = []
    behind: list[ir.Value] = []
    for op in body.operations:
        for result in op.results:
            own = stages.get(result)
            if own is None or op.operation.name == "kiln.view" and own < last:
                continue
            for v in op.operands:
                source = _source(body, v)
                before = stages.get(source)
                if before is None or before >= own:
                    continue
                if source not in kept:
                    kept.append(source)
                readers = crossing if own < last else behind
                if source not in readers:
                    readers.append(source)
    for i in body.mine:
        source = _source(body, body.roots[i])
        if stages.get(source) is not None and stages[body.roots[i]] != stages[source] and source not in behind:
            behind.append(source)
            kept += [source] if source not in kept else []
    has_loops = any(stages.get(body.roots[i]) == last for i in body.mine)
    bodies: list[PhaseBody] = []
    count = len(body.roots)
    for stage in range(last + has_loops):
        # What depends on no product is stored by the last phase, whose loops it shares.
        own = [i for i in body.mine if stages.get(body.roots[i], last - 1 + has_loops) == stage]
        own += [count + i for i, v in enumerate(kept) if stages[v] == stage and v not in [body.roots[k] for k in own]]
        bodies.append(PhaseBody(body, kept, {v for v in kept if stages[v] < stage}, own))
    return Phases(bodies[:last], bodies[last] if has_loops else None, kept, crossing, behind)


def _stages(body: FusionBody, products: Sequence[ir.Value]) -> dict[ir.Value, int]:
    """The phase that each value which depends on a product is computed in."""
    last = len(products)
    space = _Space(body, products[0]) if products else None
    stages: dict[ir.Value, int] = {}
    reduced: set[ir.Value] = set()  # what needs a reduction: once a row, not once for every vector of an epilogue
    for op in body.operations:
        if op.results[0] in products:
            stages[op.results[0]] = list(products).index(op.results[0])
            continue
        needs_reduction = bool(reduction_dims(op)) or any(v in reduced for v in op.operands)
        if needs_reduction:
            reduced.update(op.results)
        below = [stages[v] for v in op.operands if v in stages]
        if not below:
            continue
        stage = max(below)
        if space is None or needs_reduction or not space.walks(op, [v for v in op.operands if v in stages]):
            stage = last
        stages.update(dict.fromkeys(op.results, stage))
    return stages


def row_count(body: FusionBody, value: ir.Value) -> ir.AffineExpr:
    """The product of all sizes but the last."""
    rows: ir.AffineExpr = ir.AffineConstantExpr.get(1)
    for size in body.dims(value)[:-1]:
        rows = rows * size
    return rows.maybe_downcast()


class _Space:
    """The elements of a product, by row and column."""

    def __init__(self, body: FusionBody, product: ir.Value):
        self.body, self.loops = body, Loops()
        self.rows, self.columns = row_count(body, product), body.dims(product)[-1]
        self.row, self.column = self.loops.new(self.rows), self.loops.new(self.columns)

    def at(self, value: ir.Value) -> Indices | None:
        """The index of `value` for a row and a column; None if its elements are not those of the product."""
        dims = self.body.dims(value) if isinstance(value.type, ir.RankedTensorType) else ()
        if not dims or dims[-1] != self.columns:
            return None
        if not affine.equal(row_count(self.body, value), self.rows, {}):
            return None
        rest: ir.AffineExpr = self.row
        index: list[ir.AffineExpr] = []
        for size in reversed(dims[1:-1]):
            index.insert(0, ir.AffineExpr.get_mod(rest, size))
            rest = ir.AffineExpr.get_floor_div(rest, size)
        if len(dims) > 1:
            index.insert(0, rest)
        return tuple(self.loops.simplify(x) for x in (*index, self.column))

    def walks(self, op: ir.OpView, operands: Sequence[ir.Value]) -> bool:
        """Whether `op` gives an element of the product's space from the same element of each of `operands`."""
        index = self.at(op.results[0])
        if index is None or reduction_dims(op):
            return False
        name = name_of(op)
        if name == "kiln.view":
            return compose(self.body.local_map(op, "map"), index, self.loops) == self.at(operands[0])
        if name != "linalg.generic":
            return False
        point = invert(output_map(op), index)
        maps = indexing_maps(op)
        return all(
            compose(m, point, self.loops) == self.at(v) for v, m in zip(op.operands, maps, strict=True) if v in operands
        )


def find_hosts(body: FusionBody, phases: Phases) -> dict[ir.Value, int]:
    """Values that the loops read, and no result holds, by the result of the loops that can: each of its elements is
    written when those of the value that share its row have been read.
    """
    hosts: dict[ir.Value, int] = {}
    loops = phases.loops
    if loops is None:
        return hosts
    layouts = [_row_major(body.dims(v), len(body.symbols)) for v in [*loops.tensors, *loops.roots]]
    stored = [body.roots[i] for i in body.mine]
    for value in phases.behind:
        operand = loops.argument_position(value)
        assert operand is not None, "what the loops read is an operand of them"
        for root in loops.mine:
            if value not in stored and root not in hosts.values() and overwritable(loops, layouts, operand, root):
                hosts[value] = root
                break
    return hosts


def hosted_layout(body: FusionBody, value: ir.Value, root: int, layout: ir.AffineMap) -> ir.AffineMap:
    """Element offsets of a value in the memory of the result that is its host, whose layout is given: its elements are
    those of the result in row-major order, whose sizes may be others.
    """
    dims, sizes = body.dims(value), body.dims(body.roots[root])
    if dims == sizes:
        return layout
    loops = Loops()
    index = [loops.new(size) for size in dims]
    offset = compose_one(layout, indices_at(linear_offset(index, dims), sizes), loops)
    return ir.AffineMap.get(len(dims), layout.n_symbols, [offset])


def _row_major(sizes: Sequence[ir.AffineExpr], symbols: int) -> ir.AffineMap:
    dims = [ir.AffineDimExpr.get(i) for i in range(len(sizes))]
    return ir.AffineMap.get(len(sizes), symbols, [linear_offset(dims, sizes)])


def _source(body: FusionBody, value: ir.Value) -> ir.Value:
    """`value` without the views on top of it."""
    op = defining_op(value)
    while op is not None and op.name == "kiln.view" and body.argument_position(value) is None:
        value = op.operands[0]
        op = defining_op(value)
    return value


def kept_layout(
    body: FusionBody, value: ir.Value, row_stride: ir.AffineExpr, row_origin: int, column_origin: int
) -> ir.AffineMap:
    """Element offsets of a block of a kept value in scratch memory.

    The block's first row and column are the symbols of the given positions.
    """
    dims = body.dims(value)
    d = [ir.AffineDimExpr.get(i) for i in range(len(dims))]
    row = linear_offset(d[:-1], dims[:-1]) - ir.AffineSymbolExpr.get(row_origin)
    offset = row * row_stride + d[-1] - ir.AffineSymbolExpr.get(column_origin)
    return ir.AffineMap.get(len(dims), max(row_origin, column_origin) + 1, [offset])
