# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A `linalg.generic` reduction in two steps: partial results, and what combines them (`split-reductions`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.builder import Builder, Expr
from kiln.lowering.tile.body import indexing_maps, output_map, reduction_dims
from kiln.lowering.tile.combiner import Combiner
from kiln.passes.loops import generic

__all__ = ["Parts", "clone_with", "combined", "copy_body", "elementwise", "fill", "projection", "second_step"]

Operand = tuple[ir.Value, ir.AffineMap]
"""An input of a loop nest, and its indexing map."""


@dataclass(frozen=True)
class Parts:
    """How the loops of a reduction are cut.

    Loops of the first step are those of the op, with split dims walking within a part, and last the parts. A dim whose
    parts are single elements is parallel itself.

    extents: of the op's loops, of split dims as numbers. splits: of dims, the number of their parts; what these leave
    over is `rest`. build: for tensors of these sizes.
    """

    extents: tuple[Expr, ...]
    splits: Mapping[int, int]
    build: Builder = field(compare=False)

    @cached_property
    def within(self) -> list[int]:
        """The dims whose parts have more than one element."""
        return [d for d in self.splits if self.splits[d] < self._extent(d)]

    @cached_property
    def numbers(self) -> dict[int, ir.AffineDimExpr]:
        """Of the split dims, the loop that walks over the parts."""
        rank = len(self.extents)
        within = self.within
        return {d: ir.AffineDimExpr.get(d if d not in within else rank + within.index(d)) for d in self.splits}

    @property
    def leftover(self) -> dict[int, int]:
        """Of the split dims, elements behind the last part."""
        return {d: rest for d, count in self.splits.items() if (rest := self._extent(d) % count)}

    def length(self, dim: int) -> int:
        """Elements of a part along a split dim."""
        return self._extent(dim) // self.splits[dim]

    def _extent(self, dim: int) -> int:
        extent = self.extents[dim]
        assert isinstance(extent, int), "of a split dim"
        return extent

    def partial(self, op: ir.OpView, combiner: Combiner, replaced: Mapping[int, Operand] | None = None) -> ir.Value:
        """Results of the parts: a tensor of the results' dims and, behind them, the parts.

        replaced: inputs, by number, whose place others take, with maps over the loops of this step.
        """
        rank, within, count = len(self.extents), self.within, len(op.operands) - 1
        loops = rank + len(within)
        out = output_map(op)
        moved: list[ir.AffineExpr] = [ir.AffineDimExpr.get(d) for d in range(rank)]
        for d in within:
            moved[d] = self.numbers[d] * self.length(d) + moved[d]
        inputs = [
            (value, ir.AffineMap.get(loops, 0, [_substitute(e, moved) for e in m.results]))
            for value, m in zip(list(op.operands)[:count], indexing_maps(op), strict=False)
        ]
        for number, operand in (replaced or {}).items():
            inputs[number] = operand
        # The extent of a part is not the size of any operand: a tensor without contents carries it.
        carriers = [(self.build.empty(_element(op), [self.length(d)]), projection(loops, [d])) for d in within]
        result = ir.AffineMap.get(loops, 0, [*out.results, *self.numbers.values()])
        reduced = set(reduction_dims(op)) - (self.splits.keys() - set(within))
        sizes = [*(_extent(e, self.extents) for e in out.results), *self.splits.values()]
        made = generic(
            [value for value, _ in (*inputs, *carriers)],
            fill(self.build, _element(op), sizes, combiner),
            [*(m for _, m in (*inputs, *carriers)), result],
            ["reduction" if d in reduced else "parallel" for d in range(loops)],
        )
        starts = {d: (self.numbers[d].position, self.length(d)) for d in within}
        copy_body(op, made, count, [_element(op)] * len(carriers), starts)
        return made.results[0]

    def rest(self, op: ir.OpView, dim: int, combiner: Combiner) -> ir.Value:
        """The op on what is left over along a dim alone, from the combiner's identity on."""
        rank, count = len(self.extents), self.leftover[dim]
        operands = list(op.operands)[: len(op.operands) - 1]
        start = self._extent(dim) - count
        moved: list[ir.AffineExpr] = [ir.AffineDimExpr.get(d) for d in range(rank)]
        moved[dim] = moved[dim] + start
        maps = [ir.AffineMap.get(rank, 0, [_substitute(e, moved) for e in m.results]) for m in indexing_maps(op)]
        made = generic(
            [*operands, self.build.empty(_element(op), [count])],
            fill(self.build, _element(op), [_extent(e, self.extents) for e in output_map(op).results], combiner),
            [*maps[:-1], projection(rank, [dim]), output_map(op)],
            ["reduction" if d in reduction_dims(op) else "parallel" for d in range(rank)],
        )
        copy_body(op, made, len(operands), [_element(op)], {dim: (None, start)})
        return made.results[0]


def combined(op: ir.OpView, partial: ir.Value, combiner: Combiner) -> ir.Value:
    """The results of an op's parts, which are the last dims of `partial`, by the combiner alone, from what the op
    begins with.
    """
    made, block = second_step(op, [(partial, None)])
    with ir.InsertionPoint(block):
        _yield(combiner, block.arguments[1], block.arguments[0])
    return made.results[0]


def second_step(op: ir.OpView, inputs: Sequence[tuple[ir.Value, ir.AffineMap | None]]) -> tuple[ir.Operation, ir.Block]:
    """A nest over an op's results and parts that reduces the latter, and its body with an argument for each operand.

    inputs: with their maps; None where it is that of partial results in the order of the op's dims, as the first one's.
    """
    sizes = len(output_map(op).results)
    rank = ir.RankedTensorType(inputs[0][0].type).rank
    made = generic(
        [value for value, _ in inputs],
        op.operands[len(op.operands) - 1],
        [*(m or projection(rank, range(rank)) for _, m in inputs), projection(rank, range(sizes))],
        ["parallel"] * sizes + ["reduction"] * (rank - sizes),
    )
    elements = [ir.RankedTensorType(v.type).element_type for v in (*(value for value, _ in inputs), made.results[0])]
    return made, made.regions[0].blocks.append(*elements, arg_locs=[made.location] * len(elements))


def elementwise(build: Builder, combiner: Combiner, x: ir.Value, y: ir.Value) -> ir.Value:
    """`x` and `y` combined element by element."""
    type_ = ir.RankedTensorType(x.type)
    every = projection(type_.rank, range(type_.rank))
    out = build.empty(type_.element_type, build.sizes(x))
    both = generic([x, y], out, [every] * 3, ["parallel"] * type_.rank)
    block = both.regions[0].blocks.append(*[type_.element_type] * 3, arg_locs=[both.location] * 3)
    with ir.InsertionPoint(block):
        _yield(combiner, *list(block.arguments)[:2])
    return both.results[0]


def clone_with(op: ir.Operation, env: dict[ir.Value, ir.Value]) -> ir.Operation:
    """A copy of an op of a body, of what `env` has in the place of its operands; `env` gets its results."""
    clone = op.clone()
    for i, value in enumerate(op.operands):
        if value in env:
            clone.operands[i] = env[value]
    env.update(zip(op.results, clone.results, strict=True))
    return clone


def projection(rank: int, positions: Sequence[int]) -> ir.AffineMap:
    """The map from `rank` loops to those at these positions."""
    return ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(p) for p in positions])


def _yield(combiner: Combiner, x: ir.Value, y: ir.Value) -> None:
    total = ir.Operation.create(combiner.op, results=[x.type], operands=[x, y])
    ir.Operation.create("linalg.yield", operands=[total.result])


def _element(op: ir.OpView) -> ir.Type:
    return ir.RankedTensorType(op.results[0].type).element_type


def _substitute(e: ir.AffineExpr, dims: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    return affine.substitute(e, dict(enumerate(dims)))


def _extent(e: ir.AffineExpr, extents: Sequence[Expr]) -> Expr:
    return extents[e.position] if isinstance(e, ir.AffineDimExpr) else 1


def fill(build: Builder, element: ir.Type, sizes: Sequence[Expr], combiner: Combiner) -> ir.Value:
    """A tensor of the combiner's identity, as reductions begin with."""
    assert combiner.identity is not None, "checked by the caller"
    empty = build.empty(element, sizes)
    constant = _constant(combiner.identity, element)
    made = generic([], empty, [projection(len(sizes), range(len(sizes)))], ["parallel"] * len(sizes))
    block = made.regions[0].blocks.append(element, arg_locs=[made.location])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[constant])
    return made.results[0]


def _constant(value: ir.Attribute, type_: ir.Type) -> ir.Value:
    return ir.Operation.create("arith.constant", results=[type_], attributes={"value": value}).result


def copy_body(
    op: ir.OpView,
    into: ir.Operation,
    count: int,
    others: Sequence[ir.Type],
    starts: Mapping[int, tuple[int | None, int]],
) -> None:
    """The op's body with more arguments, which nothing uses, behind those of its `count` inputs: of these types.

    starts: of loops, where they begin: (loop, n) n times the index of another loop, (None, n) at n.
    """
    source = op.regions[0].blocks[0]
    types = [a.type for a in source.arguments]
    block = into.regions[0].blocks.append(
        *types[:count], *others, types[-1], arg_locs=[op.operation.location] * (count + len(others) + 1)
    )
    env: dict[ir.Value, ir.Value] = dict(
        zip(source.arguments, [*list(block.arguments)[:count], block.arguments[count + len(others)]], strict=True)
    )
    with ir.InsertionPoint(block):
        for inner in source.operations:
            clone = clone_with(inner.operation, env)
            if inner.operation.name == "linalg.index":
                dim = ir.IntegerAttr(inner.operation.attributes["dim"]).value
                if dim in starts:
                    env[inner.operation.results[0]] = _moved(clone.results[0], *starts[dim])


def _moved(index: ir.Value, loop: int | None, step: int) -> ir.Value:
    """`index` + `step`, or + `step` times the index of a loop."""
    start = _constant(ir.IntegerAttr.get(index.type, step), index.type)
    if loop is not None:
        dim = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), loop)
        number = ir.Operation.create("linalg.index", results=[index.type], attributes={"dim": dim}).result
        start = ir.Operation.create("arith.muli", results=[index.type], operands=[number, start]).result
    return ir.Operation.create("arith.addi", results=[index.type], operands=[index, start]).result
