# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels of kind "matmul" with more than one phase: products that read each other's results, loops behind them.

How the threads share a kernel is the schedule's `split`:

* "blocks": each takes blocks of rows and columns, and computes every product for one block before the next block.
  What one product's epilogue reads of another (the gate of a gated unit) never leaves the cache.
* "rows": each takes blocks of whole rows; the loops behind the products (a norm, a softmax) run over the same rows
  as soon as these are there, from scratch memory.
* "team": the products are shared as well as they can be by themselves, then the threads wait for each other, and
  share the rows of the loops. What the loops read is a result of the kernel, or lies where one of the loops' own
  results is written row by row.

Which of them is possible is decided with the fusion (passes/fusion/rows.py): "rows" and "blocks" keep values in
scratch memory, "team" in results.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.schedules.cpu import (
    AmxBf16Schedule,
    AmxBf16x3Schedule,
    GemmSchedule,
    PhasesSchedule,
)
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction import Place
from kiln.lowering.cpu.matmul import (
    Buffers,
    emit_matmul,
    scratch_bytes,
)
from kiln.lowering.cpu.matmul.emit import normalise
from kiln.lowering.cpu.matmul.partition import for_each_block
from kiln.lowering.cpu.matmul.tiles import begin_sharing
from kiln.lowering.cpu.problem import KernelContext, known, offset_of, unflatten
from kiln.lowering.cpu.sizes import round_up
from kiln.lowering.cpu.tile.epilogue import FusedEpilogue
from kiln.lowering.cpu.tile.evaluator import Evaluator
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.cpu.tile.nest import Nest, plan_nest, work
from kiln.lowering.cpu.tile.nest_loops import NestEmitter
from kiln.lowering.cpu.tile.phases import (
    PhaseBody,
    Phases,
    find_hosts,
    find_phases,
    hosted_layout,
    kept_layout,
    row_count,
)
from kiln.lowering.cpu.tile.product import (
    Product,
    emit_matmul_fusion,
    static_size,
)
from kiln.lowering.cpu.tile.rows_schedule import ROW_UNIT, find_products, plan_product_fusion
from kiln.lowering.cpu.tile.scopes import Scope
from kiln.lowering.emitters import emits
from kiln.lowering.tile.layouts import offset_of as layout_offset
from kiln.lowering.tile.pieces import whole_groups

__all__ = ["emit_product_fusion"]

_TAKEN = paths.group("cpu phases", "one product", "blocks", "rows", "team", "team: kept in another shape")


@emits(kiln.MatmulOp, target="cpu", plan=plan_product_fusion, schedules=GemmSchedule | PhasesSchedule)
def emit_product_fusion(kernel: Kernel) -> None:
    """Write the kernel of a fusion of kind "matmul"."""
    phases, given = find_phases(kernel.body), kernel.schedule
    if phases.count == 1:
        _TAKEN("one product")
        emit_matmul_fusion(kernel, given if isinstance(given, GemmSchedule) else None)
        return
    schedule = given or plan_product_fusion(kernel.body, kernel.layouts)
    if not isinstance(schedule, PhasesSchedule):
        where = str(kernel.body.fusion.location)
        raise UnsupportedError("kiln.matmul", where, f"a schedule {schedule.kernel} for several phases")
    _PhaseEmitter(kernel, phases, schedule).emit()


@dataclass(frozen=True)
class _Block:
    """Rows and columns of all products: of which matrix of the batch, from where, how many."""

    batch: list[Index]
    m0: Index
    n0: Index
    rows: Index
    cols: Index


class _PhaseEmitter:
    def __init__(self, kernel: Kernel, phases: Phases, schedule: PhasesSchedule):
        self.kernel, self.phases, self.schedule, self.b = kernel, phases, schedule, kernel.b
        self.products = find_products(phases, kernel.layouts)
        self.schedules = schedule.products
        if len(self.schedules) != len(self.products):
            where = str(self.products[0].op.location)
            found = f"a schedule of {len(self.schedules)} products for {len(self.products)}"
            raise UnsupportedError("kiln.matmul", where, found)
        need = max(scratch_bytes(p.problem(static_size), s) for p, s in zip(self.products, self.schedules, strict=True))
        kernel.scratch.bytes = ir.AffineConstantExpr.get(round_up(need, 64))
        self.areas: dict[ir.Value, tuple[ir.Value, ir.AffineExpr]] = {}
        self.hosts = find_hosts(kernel.body, phases) if schedule.split == "team" else {}

    def emit(self) -> None:
        for product in self.products:
            total = product.m * product.n * product.k
            for x in product.batch:
                total = total * x
            self.kernel.work = self.kernel.work + total
        _TAKEN(self.schedule.split)
        if self.schedule.split == "rows":
            self._rows()
            return
        if self.phases.crossing:
            self._blocks()
        else:
            for i in range(len(self.products)):
                self._product(i, (self.kernel.tid, self.kernel.nt), None, (0, 0))
        if self.phases.loops is not None:
            shared = [self._root(v) for v in self.phases.behind]
            if None in shared:
                where = str(self.products[0].op.location)
                raise UnsupportedError("kiln.matmul", where, "loops behind it that read what the kernel does not store")
            self.kernel.wait(i for i in shared if i is not None)
            self._loops(self.phases.loops, None)

    # -- how threads share ----------------------------------------

    def _blocks(self) -> None:
        """Every product for one block of rows and columns, then the next block."""
        b, product = self.b, self.products[0]
        mc, nc, nr = self._block_sizes()
        e = self._evaluator(self.phases.products[0], (0, 0))
        count = ir.AffineConstantExpr.get(mc * nc)
        self._allocate(e, count, ir.AffineConstantExpr.get(nc))
        context = self.kernel.context

        first = self.schedules[0]
        if isinstance(first, (AmxBf16Schedule, AmxBf16x3Schedule)) and first.shared:
            begin_sharing(b, product.problem(static_size), first, context)

        def block(batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
            row0 = b.addi(self._first_row(e, product, batch), m0)
            for i in range(len(self.products)):
                self._product(i, (0, 1), _Block(batch, m0, n0, rows, cols), (row0, n0))

        for_each_block(b, product.problem(e.index), context, mc, nc, nr, block, ROW_UNIT)

    def _block_sizes(self) -> tuple[int, int, int]:
        """Rows and columns of a block, and what the columns are a multiple of."""
        s = self.schedule
        if s.mc is None or s.nc is None or s.nr is None:
            where = str(self.products[0].op.location)
            raise UnsupportedError("kiln.matmul", where, "its schedule has no fields 'mc', 'nc', 'nr'")
        return s.mc, s.nc, s.nr

    def _rows(self) -> None:
        """Every product, then the loops, for one block of rows, then the next block."""
        most = self.schedule.height or ROW_UNIT
        b, product = self.b, self.products[0]
        e = self._evaluator(self.phases.products[0], (0, 0))
        m, n = e.index(product.m), product.n
        batches: Index = 1
        for size in product.batch:
            batches = b.muli(batches, e.index(size))
        self._allocate(e, n * most, n)
        share = b.ceildivi(b.muli(batches, m), self.kernel.nt)
        height = b.mini(b.muli(b.ceildivi(b.maxi(share, 1), ROW_UNIT), ROW_UNIT), most)
        blocks = b.ceildivi(m, height)
        lo, hi = b.split(self.kernel.tid, self.kernel.nt, b.muli(batches, blocks))

        def task(t: Index) -> None:
            sizes = [e.index(x) for x in product.batch]
            batch = unflatten(b, b.divi(t, blocks), sizes) if sizes else []
            m0 = b.muli(b.remi(t, blocks) if sizes else t, height)
            rows = b.mini(b.subi(m, m0), height)
            row0 = b.addi(self._first_row(e, product, batch), m0)
            for i, p in enumerate(self.products):
                self._product(i, (0, 1), _Block(batch, m0, 0, rows, e.index(p.n)), (row0, 0))
            assert self.phases.loops is not None
            self._loops(self.phases.loops, (row0, b.addi(row0, rows)))

        b.for_(lo, hi, 1, task)

    def _first_row(self, e: Evaluator, product: Product, batch: Sequence[Index]) -> Index:
        """Rows before those of a matrix of the batch."""
        position: Index = 0
        for i, size in zip(batch, product.batch, strict=True):
            position = self.b.addi(self.b.muli(position, e.index(size)), i)
        return self.b.muli(position, e.index(product.m))

    # -- phases ----------------------------------------

    def _product(
        self, number: int, share: tuple[Index, Index], block: _Block | None, origin: tuple[Index, Index]
    ) -> None:
        """One product and its epilogue: a thread's share of it, or one block."""
        b, product = self.b, self.products[number]
        e = self._evaluator(self.phases.products[number], origin)
        lhs, rhs = (e.index(layout_offset(self.kernel.layouts[x])) for x in (product.lhs, product.rhs))
        operands = Buffers(self.kernel.buffers[product.lhs], self.kernel.buffers[product.rhs], lhs, rhs)
        problem = normalise(product.problem(e.index))  # a block's sizes do not tell that the product's are 1
        epilogue: Any = FusedEpilogue(e, product.op.results[0], product.batch, product.m, product.n)
        if block is not None:
            operands = replace(
                operands,
                lhs_offset=offset_of(b, lhs, [*block.batch, block.m0], problem.lhs_strides[:-1]),
                rhs_offset=b.addi(
                    offset_of(b, rhs, block.batch, problem.rhs_strides[:-2]),
                    b.muli(block.n0, known(problem.rhs_strides[-1])),
                ),
            )
            problem = replace(
                problem,
                batch=(),
                m=block.rows,
                n=block.cols,
                lhs_strides=problem.lhs_strides[-2:],
                rhs_strides=problem.rhs_strides[-2:],
            )
            epilogue = _BlockEpilogue(epilogue, block)
        context = KernelContext(*share, self.kernel.scratch.memory)
        emit_matmul(b, problem, self.schedules[number], operands, epilogue, context)

    def _loops(self, body: PhaseBody, span: tuple[Index, Index] | None) -> None:
        """The nests behind the products: this thread's share of them, or those of a span of rows."""
        for group in whole_groups(body):
            e = self._evaluator(body, (span[0] if span else 0, 0))
            nest = plan_nest(e, group, by_rows=span is not None)
            if span is None:
                NestEmitter(e, nest, self.kernel.tid, self.kernel.nt).emit()
            else:
                self._check_rows(e, nest, body)
                _SpanEmitter(e, nest, span).emit()
            self.kernel.work = self.kernel.work + work(e, nest)

    def _check_rows(self, e: Evaluator, nest: Nest, body: PhaseBody) -> None:
        """A unit of the nest's outer loops has to be a row of the products."""
        units: ir.AffineExpr = ir.AffineConstantExpr.get(1)
        for d in nest.outer:
            units = units * e.loops.extents[d]
        op = self.products[0].op
        if not affine.equal(units, row_count(body, op.results[0]), {}):
            raise UnsupportedError("kiln.matmul", str(op.location), "loops behind it that do not walk its rows")

    # -- memory ----------------------------------------

    def _allocate(self, e: Evaluator, count: ir.AffineExpr, row_stride: ir.AffineExpr) -> None:
        """Scratch memory for a block of each kept value that the kernel does not store anyway."""
        for value in self.phases.kept:
            if self._root(value) is None:
                element = ir.RankedTensorType(value.type).element_type
                self.areas[value] = self.kernel.scratch.allocate(e, count.maybe_downcast(), element), row_stride

    def _root(self, value: ir.Value) -> int | None:
        """The result in whose memory a kept value is."""
        body = self.kernel.body
        return next((i for i in body.mine if body.roots[i] == value), self.hosts.get(value))

    def _evaluator(self, body: PhaseBody, origin: tuple[Index, Index]) -> Evaluator:
        """An evaluator for a phase at the current insertion point; kept values are of the block at `origin`."""
        kernel = self.kernel
        tensors, symbols = len(kernel.body.tensors), len(kernel.body.symbols)
        memory: list[tuple[ir.Value, ir.AffineMap]] = []
        for value in self.phases.kept:
            root = self._root(value)
            if root is not None:
                layout = hosted_layout(kernel.body, value, root, kernel.layouts[tensors + root])
                if kernel.body.dims(value) != kernel.body.dims(kernel.body.roots[root]):
                    _TAKEN("team: kept in another shape")
                memory.append((kernel.buffers[tensors + root], layout))
            elif value in self.areas:
                buffer, stride = self.areas[value]
                memory.append((buffer, kept_layout(kernel.body, value, stride, symbols, symbols + 1)))
            else:  # not allocated yet: for sizes only
                memory.append((kernel.buffers[0], kernel.layouts[0]))
        phase = copy.copy(kernel)
        phase.body = body
        buffers, layouts = [x for x, _ in memory], [x for _, x in memory]
        phase.buffers = [*kernel.buffers[:tensors], *buffers, *kernel.buffers[tensors:], *buffers]
        phase.layouts = [*kernel.layouts[:tensors], *layouts, *kernel.layouts[tensors:], *layouts]
        phase.symbols = [*kernel.symbols, *origin]
        e = phase.evaluator()
        e.scopes = [Scope(set(), ir.InsertionPoint.current.block.owner.operation)]
        return e


class _BlockEpilogue:
    """The epilogue of a product, seen from one block of it."""

    def __init__(self, inner: FusedEpilogue, block: _Block):
        self.inner, self.block = inner, block

    def apply(
        self, b: Builder, index: Sequence[Index], column: Index, width: int, acc: ir.Value, mask: ir.Value | None
    ) -> None:
        at = [*self.block.batch, b.addi(self.block.m0, index[-1])]
        self.inner.apply(b, at, b.addi(self.block.n0, column), width, acc, mask)

    def destination(self, b: Builder, batch: Sequence[Index]) -> Place | None:
        whole = self.inner.destination(b, self.block.batch)
        return None if whole is None else whole.block(b, self.block.m0, self.block.n0)

    @property
    def is_plain_store(self) -> bool:
        return self.inner.is_plain_store


class _SpanEmitter(NestEmitter):
    """The loops of a nest for some of its outer iterations."""

    def __init__(self, e: Evaluator, nest: Nest, span: tuple[Index, Index]):
        super().__init__(e, nest, 0, 1)
        self.span = span

    def _outer(self, dims: list[int], k: int) -> None:
        def unit(i: Index) -> None:
            with self.e.inside_flat(i, dims):
                self._level(k + 1)

        self.e.b.for_(*self.span, 1, unit)
