# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whether, and how, an op joins the kernel of one that reads it."""

from collections.abc import Sequence
from functools import reduce
from operator import mul

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import Role, opdef
from kiln.dialects.rounding import is_narrow
from kiln.dialects.walk import defining_op
from kiln.lowering import paths
from kiln.lowering.target import ALONE
from kiln.passes.fusion.cost import amount
from kiln.passes.fusion.graph import Read
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.loops import is_one, loops_of
from kiln.passes.fusion.rows import why_not_joined
from kiln.passes.fusion.rules import fusion_rules
from kiln.passes.roundings.kept import adds_to_sums

__all__ = ["try_to_join"]

_TAKEN = paths.group("cpu fusion", "long columns apart")

MOST_INDICES = 8
"""Indices at which a kernel computes one value: its code grows with each, and may double with each op below."""
MOST_SCOPES = 16
"""Ways through pads and concatenations to one value: a kernel has its code, and that of what is below, in each."""


def try_to_join(grouping: Grouping, op: ir.Operation, group: Group, reads: list[Read], stored: bool) -> str | None:
    """Merge `op`'s group into `group`; returns why not."""
    own = grouping.of[op]
    if any(r.whole and grouping.of[r.consumer] is group for v in op.results for r in grouping.graph.readers.get(v, [])):
        return "gathered from, or a matrix operand, in the consumer's kernel"
    indices = grouping.indices(group, reads)
    if indices is None:
        return "read at an index that is not affine in the consumer's loops"
    if grouping.would_cycle(own, group):
        return "a path through another kernel leads back"
    accesses = grouping.model.tally(group).accesses_with(op) if grouping.most_accesses else 0
    if accesses > grouping.most_accesses:
        return f"a kernel of {accesses} loads and stores: more than {grouping.most_accesses} take long to compile"
    scopes = len(grouping.guard_scopes(group, reads))
    if scopes > MOST_SCOPES:
        return f"read in {scopes} ways through pads and concatenations: a kernel has code for {MOST_SCOPES} at most"
    if own.named is not None:
        return _try_epilogue(grouping, own, group, indices, reads)
    if own.reduced is not None:
        return _try_reduction(grouping, op, group, indices, reads)
    if _leaves_product(grouping, op, group, indices, reads):
        return "added to sums before they are rounded, in the product's kernel, which the consumer is none for"
    return _try_pointwise(grouping, op, group, indices, stored, reads)


def _leaves_product(
    grouping: Grouping, op: ir.Operation, group: Group, indices: list[tuple[ir.AffineExpr, ...]], reads: list[Read]
) -> bool:
    """Whether `op` adds to a product's sums what the program's op adds, and `group` cannot have that product: what is
    stored in between would be rounded once more than eager's.
    """
    if not adds_to_sums(op):
        return False
    product = defining_op(grouping.graph.source(op.operands[0]))
    if product is None or opdef(product).role is not Role.CONTRACTION or ALONE in product.attributes:
        return False
    if not is_narrow(product.results[0].type.element_type):
        return False
    return bool(_why_no_product(grouping, product, op.results[0], group, indices, reads))


def _try_pointwise(
    grouping: Grouping,
    op: ir.Operation,
    group: Group,
    indices: list[tuple[ir.AffineExpr, ...]],
    stored: bool,
    reads: list[Read],
) -> str | None:
    if stored and group.named is not None and opdef(group.named).role is not Role.CONTRACTION:
        return "needed in memory, and the consumer's kernel writes one result"
    if len(indices) > MOST_INDICES:
        return f"read at {len(indices)} indices: a kernel computes a value at {MOST_INDICES} at most"
    plain = [_plain(i) for i in indices]
    if stored:
        full = len(indices) == 1 and plain[0] is not None and not grouping.is_guarded(group, reads)
        whole = full and _covers(group, indices[0], grouping.graph.dims(op.results[0]))
        if not whole or not _storable(group, plain[0] or []):
            return "needed in memory, and not over the consumer's loops"
    # Behind the sums of a product an op costs nothing, and it reads what is not in memory yet.
    is_cut = grouping.cuts and not grouping.graph.contracted(op)
    times = grouping.model.evaluations(indices, group.space, grouping.graph.dims(op.results[0]) if is_cut else ())
    again = max(0, times - grouping.model.count(grouping.graph.space(op))) * grouping.graph.cost(op)
    if again and not stored and _follows_convolution(grouping, op, grouping.model.bytes_of(op.results[0])):
        return "computed once behind a convolution's sums, not again and again here: the traffic is the same"
    if again:
        before = grouping.model.cost(grouping.of[op]) + grouping.model.cost(group)
        after = grouping.model.cost_with(group, op, again)
        seconds = before.seconds(grouping.model.machine), after.seconds(grouping.model.machine)
        if seconds[1] > fusion_rules().slower * seconds[0]:
            saves, costs = amount(before.moved - after.moved, "B"), amount(again, "op")
            where = f"at {len(indices)} indices" if len(indices) > 1 else "again and again"
            slower = f"{1e6 * seconds[1]:.3g} instead of {1e6 * seconds[0]:.3g} us"
            return f"read {where}: saves {saves} of traffic, but computes {costs} more ({slower})"
        group.recomputed += again
        grouping.alternatives.setdefault(grouping.graph.position[op], 1)
    grouping.adopt(op, group, [grouping.graph.producer_point(op, index) for index in indices])
    return None


def _follows_convolution(grouping: Grouping, op: ir.Operation, size: int) -> bool:
    """Whether `op` is computed, position by position, from the result of a convolution that only it needs, directly or
    by ops that only it needs; what it makes of that has at most as many bytes (`size`).
    """
    makers = {value: defining_op(value) for value in grouping.graph.contracted(op)}
    values = [value for value, maker in makers.items() if maker is not None and maker.name == "kiln.conv"]
    return any(size <= grouping.model.bytes_of(value) for value in values)


def _plain(index: tuple[ir.AffineExpr, ...]) -> list[int] | None:
    """Positions of the group's dims that index an operand, each at most once; constants are left out."""
    dims: list[int] = []
    for e in index:
        if isinstance(e, ir.AffineConstantExpr):
            continue
        if not isinstance(e, ir.AffineDimExpr) or e.position in dims:
            return None
        dims.append(e.position)
    return dims


def _covers(group: Group, index: tuple[ir.AffineExpr, ...], dims: tuple[ir.AffineExpr, ...]) -> bool:
    """Whether a plain index, over the group's loops, comes to each element of a value: a slice that begins at 0 is read
    at the same index as the whole.
    """
    return all(
        group.space[e.position] == size if isinstance(e, ir.AffineDimExpr) else is_one(size)
        for e, size in zip(index, dims, strict=True)
    )


def _storable(group: Group, dims: list[int]) -> bool:
    """Whether the op's result can be written by the group's loops without writing it many times over."""
    every = frozenset(range(len(group.space)))
    mine = loops_of(frozenset(dims), group.space)
    kept = every - (group.reduced or frozenset())
    return dims == sorted(dims) and mine in (loops_of(every, group.space), loops_of(kept, group.space))


def _try_reduction(
    grouping: Grouping,
    op: ir.Operation,
    group: Group,
    indices: list[tuple[ir.AffineExpr, ...]],
    reads: list[Read],
) -> str | None:
    if group.named is not None:
        return "a reduction before a matrix product or attention"
    if grouping.is_guarded(group, reads):
        return "a reduction below a pad or concatenation"
    if len(indices) != 1:
        return "a reduction read at several indices"
    dims = _plain(indices[0])
    if dims is None or dims != sorted(dims):
        return "a reduction read at an index that is not a subset of the consumer's loops"
    own_space = grouping.graph.space(op)
    point = list(grouping.graph.producer_point(op, indices[0]))
    reduced = [i for i, e in enumerate(point) if e is None]
    zero = ir.AffineConstantExpr.get(0)
    rest = [d for d in range(len(group.space)) if d not in dims]
    if any(not is_one(own_space[i]) for i in reduced):
        # A dim of size 1 is read at 0: it is none of the loops that the reduction walks.
        point = [zero if e is None and is_one(own_space[i]) else e for i, e in enumerate(point)]
        reduced = [i for i in reduced if not is_one(own_space[i])]
        rest = [d for d in rest if not is_one(group.space[d])]
    extents = [own_space[i] for i in reduced]
    if rest and group.reduced is None:
        length = grouping.model.count(extents)
        if length > fusion_rules().column_elements and _are_columns(grouping, op, frozenset(reduced)):
            why = f"its rows, of {length} elements, are neighbours in memory: not with what walks them again"
            return _TAKEN("long columns apart", why)
    if group.reduced is not None and loops_of(frozenset(rest), group.space) != loops_of(group.reduced, group.space):
        return "the consumer's kernel reduces other loops"
    if not rest and group.reduced is None:
        rest = list(range(len(group.space), len(group.space) + len(extents)))
        group.space += extents
    elif [group.space[d] for d in rest] != extents:
        return "the reduced loops differ from the consumer's"
    if not dims:
        total, most = 1, fusion_rules().serial_elements
        for x in extents:
            total *= x.value if isinstance(x, ir.AffineConstantExpr) else most
        if total > most:
            return "a reduction over everything: its kernel has no rows to share among threads"
    for i, d in zip(reduced, rest, strict=True):
        point[i] = ir.AffineDimExpr.get(d)
    group.reduced = frozenset(rest)
    grouping.adopt(op, group, [tuple(point)])
    return None


def _are_columns(grouping: Grouping, op: ir.Operation, reduced: frozenset[int]) -> bool:
    """Whether the largest tensor that a reduction is computed from has elements of different rows next to each other:
    a loop over rows takes several at once, and does not have one of them in a cache when it comes again.

    reduced: loops of the op.
    """
    graph, largest = grouping.graph, 0
    are_columns = False
    work, seen = [(read, read.index) for read in graph.reads[op] if not read.whole], set[ir.Value]()
    while work:
        read, index = work.pop()
        if read.value in seen:
            continue
        seen.add(read.value)
        maker = defining_op(read.value)
        if maker is not None and maker in grouping.of and maker.name == "linalg.generic" and not graph.reduces(maker):
            loops = {d: e for d, e in enumerate(graph.producer_point(maker, index)) if e is not None}
            for below in graph.reads[maker]:
                if not below.whole:
                    work.append((below, tuple(affine.substitute(e, loops) for e in below.index)))
            continue
        size, dim = grouping.model.bytes_of(read.value), graph.innermost(read.value)
        if dim is None or size <= largest:
            continue
        largest = size
        walking = affine.dims_in(affine.simplify(index[dim], dict(enumerate(graph.space(op)))))
        are_columns = bool(walking) and not walking & reduced
    return are_columns


def _try_epilogue(
    grouping: Grouping, own: Group, group: Group, indices: list[tuple[ir.AffineExpr, ...]], reads: list[Read]
) -> str | None:
    op = own.named
    assert op is not None
    if opdef(op).role is not Role.CONTRACTION or ALONE in op.attributes:
        return "its kernel takes nothing behind it"
    reason = _why_no_product(grouping, op, op.results[0], group, indices, reads)
    if reason is not None:
        return reason
    if group.named is None:
        group.named = op
    else:
        group.others.append(op)
    grouping.adopt(op, group, [indices[0]])
    return None


def _why_no_product(
    grouping: Grouping,
    op: ir.Operation,
    value: ir.Value,
    group: Group,
    indices: list[tuple[ir.AffineExpr, ...]],
    reads: list[Read],
) -> str | None:
    """Why a group cannot have a product before its loops. `value`, its result or what is added to that, is read at
    `indices`.
    """
    if group.named is not None or group.reduced is not None:
        if not grouping.row_blocks and (group.reduced is not None or not _same_lhs(op, group.all_named)):
            return "the consumer is no pointwise kernel"
        reason = why_not_joined(grouping.graph, op, group.all_named, group.reduced, len(group.space))
        if reason is not None:
            return reason
    if grouping.is_guarded(group, reads) or len(indices) != 1:
        return "the result is read at several indices, or in part"
    same = _same_loops if op.name == "kiln.conv" else _same_rows
    if not same(group, indices[0], grouping.graph.dims(value)):
        return "the consumer's loops are not those of the result"
    return None


def _same_loops(group: Group, index: tuple[ir.AffineExpr, ...], dims: tuple[ir.AffineExpr, ...]) -> bool:
    """Whether the group's loops are the dims of a convolution's result, in their order."""
    ranges = dict(enumerate(group.space))
    return list(dims) == list(group.space) and all(
        affine.equal(e, ir.AffineDimExpr.get(i), ranges) for i, e in enumerate(index)
    )


def _same_rows(group: Group, index: tuple[ir.AffineExpr, ...], dims: tuple[ir.AffineExpr, ...]) -> bool:
    """Whether the group's loops walk a product's elements in their own order, up to a split of the rows."""
    rank = len(group.space)
    if not index or not rank or dims[-1] != group.space[-1]:
        return False
    if index[-1] != ir.AffineDimExpr.get(rank - 1) and not (is_one(dims[-1]) and _is_zero(index[-1])):
        return False
    if not affine.equal(_product(dims[:-1]), _product(group.space[:-1]), {}):
        return False  # the first rows of the result
    loops = [ir.AffineDimExpr.get(i) for i in range(rank - 1)]
    ranges = dict(enumerate(group.space))
    return affine.equal(_row_major(index[:-1], dims[:-1]), _row_major(loops, group.space[:-1]), ranges)


def _product(sizes: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    return reduce(mul, sizes, ir.AffineConstantExpr.get(1))


def _row_major(index: Sequence[ir.AffineExpr], sizes: Sequence[ir.AffineExpr]) -> ir.AffineExpr:
    """Position of `index` in a row-major array."""
    position: ir.AffineExpr = ir.AffineConstantExpr.get(0)
    for e, size in zip(index, sizes, strict=True):
        position = position * size + e
    return position


def _is_zero(e: ir.AffineExpr) -> bool:
    return affine.constant_of(e) == 0


def _same_lhs(op: ir.Operation, others: Sequence[ir.Operation]) -> bool:
    """Whether products multiply the same rows: one program can sum a tile of each (a gate and what it scales)."""
    key = (
        (op.operands[0], bool(ir.IntegerAttr(op.attributes["transpose_lhs"]).value))
        if op.name == "kiln.matmul"
        else None
    )
    return key is not None and all(
        other.name == op.name
        and (other.operands[0], bool(ir.IntegerAttr(other.attributes["transpose_lhs"]).value)) == key
        for other in others
    )
