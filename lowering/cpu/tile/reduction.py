# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Loops for `linalg.generic` reductions, met while something that needs them is evaluated.

If the result is the same for all lanes, the reduction is vectorised along one of its own dims and ends in a
horizontal reduction (a row reduction); otherwise the lanes stay what they are and each reduces for itself (a column
reduction, a pooling window). Reductions of one level over one space share their loops.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import affine
from kiln.dialects.walk import defining_op
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.isa import target
from kiln.lowering.cpu.tile import planning
from kiln.lowering.cpu.tile.cuts import Cut, choose_cut, is_known
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.scopes import Lane
from kiln.lowering.cpu.tile.spills import Spills
from kiln.lowering.tile.access import Accesses, Indices
from kiln.lowering.tile.body import Reduction, invert, output_map
from kiln.lowering.tile.combiner import Combiner, combiners

_TAKEN = paths.group("cpu reductions", "short rows")

_Body = Callable[..., list[ir.Value]]
"""body(index, accumulators): the accumulators after that turn of a loop."""

CASCADE = 64
"""Terms that are added to one accumulator before it is added to the next one, which takes as many in turn, and so on:
the rounding error grows with the logarithm of the number of terms (torch sums in cascades, too)."""
WIDE = 8
"""Vectors per step of a cheap row reduction: as many independent chains hide the latency of the combiner."""
NOT_UNROLLED = {"loop_annotation": "#llvm.loop_annotation<unroll = <disable = true>>"}
"""For loops with chains: if LLVM unrolls them further, each load meets every 32nd line of a stream, which the
processor's prefetchers then lose."""


def emit_reduction(e: Evaluator, value: ir.Value, indices: Indices) -> ir.Value:
    """Emit the loops that compute `value` at `indices`, with all its siblings; returns the value."""
    reduction = e.body.reduction(value)
    assert reduction is not None
    group = e.body.siblings(reduction)
    uniform = e.is_uniform(indices)
    known = all(c.kind is not None for r in group for c in combiners(r.op))
    if not known:
        # A combiner that is not recognised has only its sequential order: one reduction, element by element.
        group = [reduction]
    with e.lanes(Lane() if uniform else e.lane):
        results = _Loops(e, group, indices, vectorise=uniform and known).emit()
    scope = e.scopes[-1]
    for r, values in zip(group, results, strict=True):
        for result, emitted in zip(r.op.results, values, strict=True):
            scope.memo[(result, indices, None)] = emitted
    return scope.memo[(value, indices, None)]


class _Loops:
    def __init__(self, e: Evaluator, group: list[Reduction], indices: Indices, vectorise: bool):
        self.e, self.group, self.indices = e, group, indices
        first = group[0]
        extents = e.body.loop_extents(first.op)
        point = invert(output_map(first.op), indices)
        self.dims: list[int] = []
        merged = planning.merge_reduction(e, group, indices) if vectorise else None
        if merged is None:
            for d in first.dims:
                fresh = e.loops.new(extents[d])
                point[d] = fresh
                self.dims.append(fresh.position)
        else:
            self.dims = merged.dims
            for d, expr in zip(first.dims, merged.exprs, strict=True):
                point[d] = expr
        for d, expr in enumerate(point):
            if expr is None:
                raise UnsupportedError("linalg.generic", str(first.op.location), "a reduction with a lost dim")
            point[d] = expr
        self.point = point
        self.combiners = [combiners(r.op) for r in group]
        self.cut: Cut | None = None
        self.part, self.spills = 0, Spills(self.dims, first.level)
        self.lane: int | None = None
        self.width = e.lane.width
        self.chains = 1
        self.is_cheap = False
        if vectorise:
            self.lane, self.width, self.chains = self._choose_lane()
        others = [d for d in self.dims if d != self.lane]
        cut = choose_cut(e, [], [(r.op, self.point) for r in group], others)
        self.cut = cut if cut is not None and is_known(cut) else None

    def _choose_lane(self) -> tuple[int, int, int]:
        """The dim, the lanes of a vector, and how many vectors at once are summed, each by itself.

        What is cheap waits for memory, and loads in the order of their addresses wait the least: vectors that follow
        each other are ops of their own, which LLVM leaves in their order, as it does not the parts of a wide one.
        """
        e = self.e
        accesses = Accesses(e.body, e.loops, e.layouts)
        for r in self.group:
            accesses.visit_operands(r.op, self.point, frozenset(self.dims))
        lane = planning.choose_lane(accesses, self.dims, e.loops)
        lane = self.dims[-1] if lane is None else lane
        cost = sum(e.body.own_cost(r.op) for r in self.group)
        wide = WIDE if cost <= 4 * len(self.group) and len(self.group) <= 2 else 2
        step = planning.lane_width(e, lane, wide)
        self.is_cheap = cost + self._cost_of_operands() <= target().rules.loops.reduction_cost
        if not self.is_cheap:
            return lane, step, 1
        width = planning.lane_width(e, lane, 1)
        return lane, width, max(1, step // width)

    def _cost_of_operands(self) -> int:
        """Cost of what an element needs on the way from memory, other reductions and what has fewer dims aside."""
        body = self.e.body
        rank = max(len(body.dims(v)) for r in self.group for v in r.op.operands)
        seen: dict[ir.Value, int] = {}
        left = [v for r in self.group for v in r.op.operands]
        while left:
            value = left.pop()
            op = defining_op(value)
            if op is None or value in seen or len(body.dims(value)) != rank or body.reduction(value) is not None:
                continue
            seen[value] = body.own_cost(op.opview)
            left += op.operands
        return sum(seen.values())

    # -- accumulators ----------------------------------------

    def _types(self) -> list[ir.Type]:
        return [ir.RankedTensorType(v.type).element_type for r in self.group for v in r.op.results]

    def _flat(self) -> list[Combiner]:
        return [c for cs in self.combiners for c in cs]

    def _one_chain(self, accs: list[ir.Value], chains: int) -> list[ir.Value]:
        """The combination of all chains."""
        count = len(accs) // chains
        parts = [accs[i : i + count] for i in range(0, len(accs), count)]
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [self._combine(x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
        return parts[0]

    def _start(self) -> list[ir.Value]:
        """Accumulators of one chain before the first element: identities, or the `outs` of an unrecognised combiner."""
        e = self.e
        start: list[ir.Value] = []
        vector = self.width > 1 or self.lane is not None or e.lane.dim is not None
        for c, type_, initial in zip(self._flat(), self._types(), self._initials(), strict=True):
            value = e.b.constant(c.identity, type_) if c.identity is not None else initial
            start.append(e.b.broadcast(value, self.width) if vector and _is_scalar(value) else value)
        return start

    def _initials(self) -> list[ir.Value]:
        e = self.e
        return [
            e.eval(v, self.indices)
            for r in self.group
            for v in list(r.op.operands)[len(r.op.operands) - len(r.op.results) :]
        ]

    def _combine(self, x: Sequence[ir.Value], y: Sequence[ir.Value]) -> list[ir.Value]:
        out: list[ir.Value] = []
        combiners = self._flat() * (len(x) // max(1, len(self._flat())))
        for c, p, q in zip(combiners, x, y, strict=True):
            out.append(ir.Operation.create(c.op, results=[p.type], operands=[p, q]).result)
        return out

    def _cascades(self) -> bool:
        return all(c.kind is not None for c in self._flat()) and any(c.op == "arith.addf" for c in self._flat())

    # -- loops ----------------------------------------

    def emit(self) -> list[list[ir.Value]]:
        e = self.e
        outer = [d for d in self.dims if d != self.lane]
        start = self._start()
        start = start * self.chains
        accs = self._nest(outer, start, self._lane_loop if self.lane is not None else self._step)
        if self.lane is not None:
            accs = self._one_chain(accs, self.chains)
            accs = [e.b.reduce(c.kind or "", a) for c, a in zip(self._flat(), accs, strict=True)]
        final: list[ir.Value] = []
        for c, acc, initial in zip(self._flat(), accs, self._initials(), strict=True):
            if c.identity is not None and not _is_constant(initial, c.identity):
                initial = initial if _is_scalar(acc) else e.splat(initial)
                acc = ir.Operation.create(c.op, results=[acc.type], operands=[initial, acc]).result
            final.append(acc)
        self.spills.keep(e, 1 if self.cut is None else len(self.cut[1]) - 1)
        split: list[list[ir.Value]] = []
        position = 0
        for r in self.group:
            split.append(final[position : position + len(r.op.results)])
            position += len(r.op.results)
        return split

    def _nest(
        self, dims: list[int], accs: list[ir.Value], leaf: Callable[[list[ir.Value]], list[ir.Value]]
    ) -> list[ir.Value]:
        if not dims:
            return leaf(accs)
        e, d = self.e, dims[0]
        extent = e.index(e.loops.extents[d])

        is_row = len(dims) == 1 and leaf == self._lane_loop
        rows = self._rows_at_once() if is_row else 1

        def body(i: Index, carried: list[ir.Value]) -> list[ir.Value]:
            with e.inside({d: i}):
                if self._cascades() and is_row and rows == 1:
                    return self._combine(carried, leaf(self._start() * self.chains))
                if self._cascades() and leaf == self._step and self._long(dims[1:]):
                    return self._combine(carried, self._nest(dims[1:], self._start(), leaf))
                return self._nest(dims[1:], carried, leaf)

        cut = self.cut if self.cut is not None and self.cut[0] == d else None
        borders: list[Index] = [0, extent] if cut is None else [x for x in cut[1] if isinstance(x, int)]
        for part, (low, high) in enumerate(pairwise(borders)):
            self.part = self.part if cut is None else part
            if rows > 1:
                accs = self._short_rows(low, high, rows, accs, body)
            elif self._cascades() and len(dims) == 1:
                accs = self._chunked(low, high, 1, accs, body, self.chains)
            else:
                accs = e.b.for_(low, high, 1, body, accs)
        return accs

    def _rows_at_once(self) -> int:
        """How many rows are summed each by itself where a row is a vector or two, as the channels of a group are: too
        short for chains of its own.
        """
        extent = None if self.lane is None else affine.constant_of(self.e.loops.extents[self.lane])
        if not extent or not self.is_cheap or self.chains > 1 or any(c.kind is None for c in self._flat()):
            return 1
        vectors = -(-extent // self.width) * -(-self.width // planning.lanes_of(self.e)) * len(self.group)
        return max(1, WIDE // vectors)

    def _short_rows(self, lower: Index, upper: Index, rows: int, accs: list[ir.Value], body: _Body) -> list[ir.Value]:
        """The loop over rows, `rows` of them at once with accumulators of their own."""
        _TAKEN("short rows")
        b, count = self.e.b, len(accs)
        last = b.addi(lower, b.round_down(b.subi(upper, lower), rows))

        def step(i: Index, carried: list[ir.Value]) -> list[ir.Value]:
            parts = [body(b.addi(i, r), carried[r * count : (r + 1) * count]) for r in range(rows)]
            return [a for part in parts for a in part]

        accs = [*accs, *self._start() * (rows - 1)]
        accs = self._one_chain(self._chunked(lower, last, rows, accs, step, rows), rows)
        return b.for_(last, upper, 1, body, accs)

    def _long(self, dims: list[int]) -> bool:
        """Whether loops over `dims` are worth a sum of their own (those of a pooling window are not)."""
        count = 1 if dims else 0
        for d in dims:
            extent = self.e.loops.extents[d]
            if not isinstance(extent, ir.AffineConstantExpr):
                return True
            count *= extent.value
        return count >= CASCADE // 4

    def _chunked(
        self, lower: Index, upper: Index, step: int, accs: list[ir.Value], body: _Body, chains: int
    ) -> list[ir.Value]:
        """A loop whose accumulators, `chains` of each, start anew every `CASCADE` turns, level by level."""
        b = self.e.b

        def level(sizes: list[int], low: Index, high: Index, accs: list[ir.Value]) -> list[ir.Value]:
            if not sizes:
                return b.for_(low, high, step, body, accs, self._annotations())
            size, *inner = sizes

            def part(c: Index, carried: list[ir.Value]) -> list[ir.Value]:
                with self.e.inside({}):
                    end = b.mini(b.addi(c, size), high)
                    return self._combine(carried, level(inner, c, end, self._start() * chains))

            return b.for_(low, high, size, part, accs, self._annotations())

        sizes = _chunks(lower, upper, step) if self._cascades() else []
        return level(sizes, lower, upper, accs)

    def _annotations(self) -> dict[str, str] | None:
        return NOT_UNROLLED if self.chains > 1 else None

    def _lane_loop(self, accs: list[ir.Value]) -> list[ir.Value]:
        e, b, lane, width = self.e, self.e.b, self.lane, self.width
        assert lane is not None
        extent = e.index(e.loops.extents[lane])
        step = width * self.chains
        count = len(accs) // self.chains
        whole = b.round_down(extent, step)
        last = b.round_down(extent, width)

        def one(i: Index, carried: list[ir.Value], mask: ir.Value | None = None) -> list[ir.Value]:
            with e.inside({lane: i}), e.lanes(Lane(lane, width, mask)):
                return self._step(carried)

        def body(i: Index, carried: list[ir.Value]) -> list[ir.Value]:
            out: list[ir.Value] = []
            for c in range(self.chains):
                out += one(b.addi(i, c * width), carried[c * count : (c + 1) * count])
            return out

        def masked(carried: list[ir.Value]) -> list[ir.Value]:
            return one(last, carried, b.mask_below(b.subi(extent, last), width))

        accs = self._chunked(0, whole, step, accs, body, self.chains)
        first, others = accs[:count], accs[count:]
        if self.chains > 1:
            first = b.for_(whole, last, width, one, first)
        rest = b.cmpi("slt", last, extent)
        if rest is not False:
            types = [a.type for a in first]
            first = masked(first) if rest is True else b.if_(rest, lambda: masked(first), lambda: first, types)
        return [*first, *others]

    def _step(self, accs: list[ir.Value]) -> list[ir.Value]:
        e = self.e
        out: list[ir.Value] = []
        position = 0
        for r in self.group:
            count = len(r.op.results)
            mine = accs[position : position + count]
            carried = list(r.op.regions[0].blocks[0].arguments)[-count:]
            new = e.body_at(r.op, self.point, None, given=dict(zip(carried, mine, strict=True)))
            if e.lane.mask is not None and self.lane is not None:
                new = [arith.select(e.lane.mask, n, m) for n, m in zip(new, mine, strict=True)]
            out += new
            position += count
        if self.lane is not None:
            self.spills.write(e, self.part)
        return out


def _chunks(lower: Index, upper: Index, step: int) -> list[int]:
    """How far the loops of a cascade go in a turn, from the outermost to the one around the loop by `step`."""
    size, sizes = CASCADE * step, list[int]()
    if not isinstance(lower, int) or not isinstance(upper, int):
        return [size * CASCADE, size]
    while upper - lower > 2 * size:
        sizes.insert(0, size)
        size *= CASCADE
    return sizes


def _is_scalar(value: ir.Value) -> bool:
    return not isinstance(value.type, ir.VectorType)


def _is_constant(value: ir.Value, attribute: ir.Attribute) -> bool:
    op = defining_op(value)
    return op is not None and op.name == "arith.constant" and op.attributes["value"] == attribute
