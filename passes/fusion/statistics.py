# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels of reductions take in the kernels that walk the same rows with what they found.

The greedy walk puts a reduction into one of its consumers. If that is a small one (the running mean of a batch norm in
training), the large one (the normalised result) is left behind, and reads again what the reduction has read.

Not where rows are neighbours in memory (a batch norm of a channels-last image): there two kernels walk all of it in
order, once each, and one would walk some columns of it twice. One core, [8, 64, 28, 28]: 129 us as one, 99 as two;
row-major 206 and 207, [4, 16, 112, 112] row-major 209 and 227.
"""

from dataclasses import replace

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import output_map
from kiln.passes.fusion.cost import amount
from kiln.passes.fusion.graph import Point
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.loops import MOST_OPS, is_one, loops_of
from kiln.passes.fusion.rules import fusion_rules

__all__ = ["join_statistics"]


def join_statistics(grouping: Grouping) -> None:
    """Merge reductions with pointwise kernels that read their results along the same rows."""
    for found in grouping.groups():
        group: Group | None = found
        # Merging makes no kernel fit that did not fit before, so that none before this one is asked again.
        while group is not None:
            group = _join_one(grouping, group)


def _join_one(grouping: Grouping, group: Group) -> Group | None:
    """The group with the first reader that it can take in; None if there is none."""
    if group.reduced is None or group.named is not None or len(group.ops) >= MOST_OPS:
        return None
    for reader in grouping.successors(group):
        if isinstance(reader, Group) and _join(grouping, group, reader):
            return grouping.of[group.ops[0]]
    return None


def _join(grouping: Grouping, group: Group, reader: Group) -> bool:
    """Compute `reader` in the loops of `group`; returns whether that was possible and is no slower."""
    if reader.named is not None or reader.reduced is not None or len(group.ops) + len(reader.ops) > MOST_OPS:
        return False
    loops = _same_rows(grouping, group, reader)
    if loops is None or grouping.would_cycle(group, reader):
        return False
    if _rows_are_columns(grouping, group, reader, loops):
        grouping.decisions.append((reader.ops[-1], "its rows are neighbours in memory: not with their reductions"))
        return False
    points = {op: [_moved(point, loops) for point in points] for op, points in reader.points.items()}
    merged = replace(
        group,
        ops=sorted([*group.ops, *reader.ops], key=lambda o: grouping.graph.position[o]),
        points=group.points | points,
        recomputed=group.recomputed + reader.recomputed,
        guarded=group.guarded | reader.guarded,
        scopes=group.scopes | reader.scopes,
    )
    model = grouping.model
    before, after = model.cost(group) + model.cost(reader), model.cost(merged)
    if after.seconds(model.machine) > fusion_rules().slower * before.seconds(model.machine):
        return False
    for op in merged.ops:
        grouping.of[op] = merged
    saved = amount(before.moved - after.moved, "B")
    why = f"fused into the kernel of {group.ops[-1].name}: walks the rows of its reductions, saves {saved} of traffic"
    grouping.decisions.append((reader.ops[-1], why))
    return True


def _same_rows(grouping: Grouping, group: Group, reader: Group) -> dict[int, ir.AffineExpr] | None:
    """Each loop of `reader` over those of `group`, whose rows they walk; None if they don't."""
    assert group.reduced is not None
    loops: dict[int, int] = {}
    for op in reader.ops:
        for read in grouping.graph.reads[op]:
            maker = defining_op(read.value)
            if maker is None or grouping.of.get(maker) is not group:
                continue
            found = grouping.indices(reader, [read])
            if read.whole or grouping.is_guarded(reader, [read]) or found is None or len(found) != 1:
                return None
            made = _index_of(group, maker)
            if made is None:
                return None
            sizes = grouping.graph.dims(read.value)
            for mine, theirs, size in zip(found[0], made, sizes, strict=True):
                if is_one(size):
                    continue
                if not isinstance(mine, ir.AffineDimExpr) or not isinstance(theirs, ir.AffineDimExpr):
                    return None
                if loops.setdefault(mine.position, theirs.position) != theirs.position:
                    return None
    every = frozenset(range(len(group.space)))
    kept = loops_of(every - group.reduced, group.space)
    rows = frozenset(loops.values())
    if not kept or not kept <= rows or len(rows) != len(loops) or not rows <= every:
        return None
    left = [d for d in range(len(reader.space)) if d not in loops and not is_one(reader.space[d])]
    inner = [d for d in sorted(loops_of(group.reduced, group.space)) if d not in rows]
    if [reader.space[d] for d in left] != [group.space[d] for d in inner] and left:
        return None
    if any(reader.space[mine] != group.space[theirs] for mine, theirs in loops.items()):
        return None
    loops |= dict(zip(left, inner, strict=False))
    zero = ir.AffineConstantExpr.get(0)
    return {d: ir.AffineDimExpr.get(loops[d]) if d in loops else zero for d in range(len(reader.space))}


def _rows_are_columns(grouping: Grouping, group: Group, reader: Group, loops: dict[int, ir.AffineExpr]) -> bool:
    """Whether the largest tensor that `reader` reads has the elements of different rows next to each other."""
    assert group.reduced is not None
    if not any(affine.dims_in(e) & group.reduced for e in loops.values()):
        return False  # one element a row
    members = {*group.ops, *reader.ops}
    reads = [r for op in reader.ops for r in grouping.graph.reads[op] if defining_op(r.value) not in members]
    largest = max(reads, key=lambda r: grouping.model.bytes_of(r.value), default=None)
    dim = None if largest is None else grouping.graph.innermost(largest.value)
    if largest is None or dim is None:
        return False
    found = grouping.indices(reader, [largest])
    if not found or largest.whole:
        return False
    kept = frozenset(range(len(group.space))) - group.reduced
    return bool(affine.dims_in(affine.substitute(found[0][dim], loops)) & loops_of(kept, group.space))


def _index_of(group: Group, op: ir.Operation) -> tuple[ir.AffineExpr, ...] | None:
    """The index, over the group's loops, of the element of its result that `op` computes; None if it has several."""
    points = group.points[op]
    if len(points) != 1 or op.name != "linalg.generic" or len(op.results) != 1:
        return None
    dims = {i: e for i, e in enumerate(points[0]) if e is not None}
    results = output_map(op.opview).results
    if any(not affine.dims_in(e) <= dims.keys() for e in results):
        return None
    return tuple(affine.simplify(affine.substitute(e, dims), dict(enumerate(group.space))) for e in results)


def _moved(point: Point, loops: dict[int, ir.AffineExpr]) -> Point:
    """A point of one group over the loops of another."""
    return tuple(None if e is None else affine.substitute(e, loops) for e in point)
