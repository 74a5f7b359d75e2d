# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Where a loop is cut, so that each piece knows which operands of a concatenation (or the inside of a pad) it reads.

A loop over a concatenated dim would compute every operand at each iteration and keep one. Cut at the borders of the
operands, each piece of the loop has the code of its own operand, without masks. The code does not grow much, because
the operands' code is in either form written once. A loop over blocks of lanes is cut at borders between blocks.

Borders that follow from sizes known at run time only are expressions, and so is what is known of the loop's index in a
piece (`Loops.pieces`). Where their order depends on the sizes, each is moved up to the one before it at run time: some
pieces have no elements then.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of, opdef
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.tile.access import Indices, compose
from kiln.lowering.tile.body import indexing_maps, invert, output_map

__all__ = ["MOST_PIECES", "Cut", "choose_cut", "choose_cuts", "code_of", "emit_pieces", "is_known", "known_borders"]

MOST_PIECES = 256
"""Pieces of one loop: each is a loop of its own. Not measured: it bounds the code and the time to make it."""
MORE_CODE = 1.5
"""How much more code, by ops, the pieces may have than the whole loop. Not measured, as above."""
GUARD = 4
"""Ops by which a loop tells at run time whether it reads an operand: two comparisons, a mask and a select."""

Border = int | ir.AffineExpr
"""A number, or an expression over symbols that is none."""

Cut = tuple[int, list[Border]]
"""A loop dim, and where its pieces begin; the last border is the dim's extent."""

Box = dict[int, tuple[Border, Border]]
"""Ranges of loop dims."""


def _border(expr: ir.AffineExpr) -> Border:
    expr = affine.simplify(expr)
    number = affine.constant_of(expr)
    return expr if number is None else number


def _at_most(x: Border, y: Border) -> bool:
    """Whether `x <= y` is provable."""
    return x <= y if isinstance(x, int) and isinstance(y, int) else affine.nonnegative(_expr(y) - _expr(x))


def _expr(x: Border) -> ir.AffineExpr:
    return ir.AffineConstantExpr.get(x) if isinstance(x, int) else x


@dataclass(eq=False)
class _Node:
    """A value at an index. weight: ops that it takes. reads: what it is computed from; where a pad or concatenation
    lies between, with its number and the range of each loop dim in which the operand is read, as far as it is known.
    """

    weight: int
    reads: list[tuple["_Node", int, Box]] = field(default_factory=list[tuple["_Node", int, Box]])


class _Reach:
    """What values at indices are computed from, and the borders of the pads and concatenations between."""

    def __init__(self, e: Evaluator) -> None:
        self.e = e
        self.nodes: dict[tuple[ir.Value, Indices], _Node] = {}
        self.borders: dict[int, dict[Border, None]] = {}  # as sets in a fixed order
        self.guards = 0

    def node(self, value: ir.Value, indices: Indices) -> _Node:
        key = value, indices
        if key not in self.nodes:
            self.nodes[key] = _Node(1)
            if self.e.body.argument_position(value) is None:
                self._expand(self.nodes[key], value, indices)
        return self.nodes[key]

    def operands(self, op: ir.OpView, point: Sequence[ir.AffineExpr | None]) -> list[_Node]:
        """What a `linalg.generic` reads at a point."""
        count = len(op.operands) - len(op.results)
        return [
            self.node(v, compose(m, point, self.e.loops))
            for v, m in list(zip(op.operands, indexing_maps(op), strict=True))[:count]
            if isinstance(v.type, ir.RankedTensorType)
        ]

    def _expand(self, node: _Node, value: ir.Value, indices: Indices) -> None:
        op = value.owner.opview
        name, body = name_of(op), self.e.body
        if name == "kiln.view":
            view = compose(body.local_map(op, "map"), indices, self.e.loops)
            node.reads.append((self.node(op.operands[0], view), 0, {}))
        elif name == "linalg.generic" and body.reduction(value) is None:
            node.weight = len(op.regions[0].blocks[0].operations)
            node.reads += [(read, 0, {}) for read in self.operands(op, invert(output_map(op), indices))]
        elif name == "kiln.cat":
            self._expand_cat(node, op, indices)
        elif opdef(op).is_guarded:
            low = body.local_map(op, "low").results
            zero = ir.AffineConstantExpr.get(0)
            sizes = body.dims(op.operands[0])
            moved = [
                d
                for d, (lo, hi) in enumerate(zip(low, body.local_map(op, "high").results, strict=True))
                if lo != zero or hi != zero
            ]
            self._guarded(node, op.operands[0], indices, [(d, low[d], low[d] + sizes[d]) for d in moved])

    def _expand_cat(self, node: _Node, op: ir.OpView, indices: Indices) -> None:
        dim = ir.IntegerAttr(op.operation.attributes["dim"]).value
        start: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        for piece in op.operands:
            if isinstance(piece.type, ir.RankedTensorType):
                stop = start + self.e.body.dims(piece)[dim]
                self._guarded(node, piece, indices, [(dim, start, stop)])
                start = stop

    def _guarded(
        self, node: _Node, value: ir.Value, indices: Indices, where: Iterable[tuple[int, ir.AffineExpr, ir.AffineExpr]]
    ) -> None:
        """A read of `value` that holds `where` an index of the result lies in a range, from whose start it counts."""
        self.guards += 1
        ranges: Box = {}
        inner = list(indices)
        is_known = True
        for dim, low, high in where:
            inner[dim] = self.e.loops.simplify(indices[dim] - low)
            line = affine.linear_coefficients(indices[dim])
            if line is None:
                is_known = False
                continue
            first, stop = _border(low - line[0]), _border(high - line[0])
            if not line[1] and (_at_most(1, first) or _at_most(stop, 0)):
                return
            if not line[1] and _at_most(first, 0) and _at_most(1, stop):
                continue
            is_known = False
            if len(line[1]) == 1 and all(affine.constant_of(c) == 1 for c in line[1].values()):
                d = next(iter(line[1]))
                ranges[d] = first, stop
                self.borders.setdefault(d, {}).update(dict.fromkeys(ranges[d]))
        node.reads.append((self.node(value, tuple(inner)), 0 if is_known else self.guards, ranges))


def _code(nodes: Iterable[_Node], box: Box) -> int:
    """Ops of the code for some values in a piece of the loops. What lies behind a guard is code apart from that behind
    others.
    """
    seen = {(node, 0) for node in nodes}
    work, total = list(seen), 0
    while work:
        node, scope = work.pop()
        total += node.weight
        for read, guard, ranges in node.reads:
            known = [(ranges[d], box[d]) for d in ranges.keys() & box.keys()]
            if guard and any(_at_most(stop, low) or _at_most(high, start) for (start, stop), (low, high) in known):
                continue
            is_inside = all(_at_most(start, low) and _at_most(high, stop) for (start, stop), (low, high) in known)
            always = not guard or (bool(ranges) and len(known) == len(ranges) and is_inside)
            key = read, scope if always else hash((scope, guard))
            if not always:
                total += GUARD
            if key not in seen:
                seen.add(key)
                work.append(key)
    return total


def code_of(e: Evaluator, values: Sequence[tuple[ir.Value, Indices]]) -> int:
    """Ops of the code that computes `values` at indices in uncut loops."""
    reach = _Reach(e)
    box: Box = {d: (0, n) for d, x in enumerate(e.loops.extents) if (n := affine.constant_of(x)) is not None}
    return _code([reach.node(value, indices) for value, indices in values], box)


def choose_cuts(
    e: Evaluator,
    values: Sequence[tuple[ir.Value, Indices]],
    points: Sequence[tuple[ir.OpView, Sequence[ir.AffineExpr | None]]],
    dims: Sequence[int],
) -> list[Cut]:
    """Those of `dims` whose loops are cut, the one with the least code first; `values` at indices, and ops at points,
    are computed in them.
    """
    if not any(opdef(op).is_guarded for op in e.body.operations):
        return []
    reach = _Reach(e)
    nodes = [reach.node(value, indices) for value, indices in values]
    nodes += [node for op, point in points for node in reach.operands(op, point)]
    boxes: list[Box] = [{d: (_border(low), _border(high)) for d, (low, high) in e.loops.pieces.items()}]
    most = MORE_CODE * _code(nodes, boxes[0])
    cuts: list[Cut] = []
    while True:
        found: list[tuple[int, Cut]] = []
        for d in dims:
            if d not in reach.borders or any(d == cut[0] for cut in cuts):
                continue
            borders = _in_order(reach.borders[d], _border(e.loops.extents[d]))
            if not 3 <= len(borders) <= MOST_PIECES // len(boxes) + 1:
                continue
            code = _code_of_all(nodes, _cut_boxes(boxes, (d, borders)), most)
            if code is not None:
                found.append((code, (d, borders)))
        if not found:
            return cuts
        cuts.append(min(found)[1])
        boxes = _cut_boxes(boxes, cuts[-1])


def _in_order(borders: Iterable[Border], extent: Border) -> list[Border]:
    """A loop's own borders and, between them, those inside, in order as far as one is provable."""
    found: list[Border] = []
    for x in borders:
        if not _at_most(x, 0) and not _at_most(extent, x):
            found.insert(next((k for k, y in enumerate(found) if _at_most(x, y)), len(found)), x)
    return [0, *found, extent]


def choose_cut(
    e: Evaluator,
    values: Sequence[tuple[ir.Value, Indices]],
    points: Sequence[tuple[ir.OpView, Sequence[ir.AffineExpr | None]]],
    dims: Sequence[int],
) -> Cut | None:
    """The first of `choose_cuts`, if any."""
    return next(iter(choose_cuts(e, values, points, dims)), None)


def _cut_boxes(boxes: Sequence[Box], cut: Cut) -> list[Box]:
    return [{**box, cut[0]: piece} for box in boxes for piece in pairwise(cut[1])]


def _code_of_all(nodes: Sequence[_Node], boxes: Iterable[Box], most: float) -> int | None:
    """Ops of the code for all `boxes`; None where it is more than `most`."""
    code = 0
    for box in boxes:
        code += _code(nodes, box)
        if code > most:
            return None
    return code


def is_known(cut: Cut) -> bool:
    """Whether all borders are numbers, of which the builder knows what follows for an index."""
    return all(isinstance(x, int) for x in cut[1])


def known_borders(cut: Cut | None, width: int) -> list[int]:
    """Where a loop over blocks of `width` lanes begins to read other operands: between blocks, not inside of one; none
    where borders are known at run time only.
    """
    borders = [x for x in cut[1] if isinstance(x, int)] if cut is not None and is_known(cut) else []
    return [x for x in borders if 0 < x < borders[-1] // width * width and x % width == 0]


def emit_pieces(e: Evaluator, cut: Cut, loop: Callable[[Index, Index], object]) -> None:
    """The pieces of a loop, one after the other: `loop` emits a piece, given where it begins and its length."""
    b, (dim, borders) = e.b, cut
    is_ordered = all(_at_most(low, high) for low, high in pairwise(borders))
    stop: Index = 0
    for low, high in pairwise(borders):
        first, stop = stop, e.index(_expr(high))
        if is_ordered:
            length = e.index(affine.simplify(_expr(high) - _expr(low)))
        else:
            stop = b.mini(b.maxi(stop, first), e.index(_expr(borders[-1])))
            length = b.subi(stop, first)
        if is_known(cut):
            loop(first, length)
            continue

        def piece(first: Index = first, length: Index = length, low: Border = low, high: Border = high) -> None:
            with e.piece(dim, _expr(low), _expr(high)):
                loop(first, length)

        is_filled = is_ordered and _at_most(1, _border(_expr(high) - _expr(low)))
        b.if_(is_filled or b.cmpi("slt", 0, length), piece)
