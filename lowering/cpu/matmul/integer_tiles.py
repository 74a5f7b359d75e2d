# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Matmul of 8-bit integers by register tiles: broadcast groups of the lhs times vectors of groups of the rhs.

A vector of the rhs holds the `group` next steps of k of each of its columns, next to each other: packed so in scratch,
or by the compiler for a constant (`packed`), [k / group][nr][group]. The lhs is copied to scratch, where a group is one
32-bit element, and ends in zeros, which make up for what the last group of the rhs holds beyond k.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch_mlir import ir
from torch_mlir.dialects import arith, vector

from kiln.lowering.cpu import amx
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.matmul import pack
from kiln.lowering.cpu.matmul.blocks import Masks
from kiln.lowering.cpu.matmul.integers import OFFSET, units_for
from kiln.lowering.cpu.matmul.microkernel import LINE, round_up
from kiln.lowering.cpu.matmul.panels import Panels
from kiln.lowering.cpu.matmul.problem import Buffers, Epilogue, KernelContext, MatmulProblem, known

__all__ = ["emit_integers", "integers_layout", "packed_integer_strides"]


def integers_layout(problem: MatmulProblem, schedule: dict) -> dict[str, int]:
    """Offsets of the scratch areas and their total `bytes`: the sums, those of the lhs rows, both operands' copies."""
    mr, nr = schedule["mr"], schedule["nv"] * schedule["width"]
    mc, nc, kc = round_up(schedule["mc"], mr), round_up(schedule["nc"], nr), round_up(schedule["kc"], LINE)
    wide = 1 if units_for(schedule).narrow else 2  # bytes of an element of the lhs
    layout = {"tile_stride": nc, "mc": mc, "nc": nc, "kc": kc, "elements": round_up(mc * nc, LINE // 4)}
    layout["rows"] = layout["elements"] * 4
    # Rows a multiple of a page apart would fall into the same cache sets: one line of padding.
    layout["lhs"], layout["lhs_stride"] = layout["rows"] + round_up(mc * 4, LINE), kc + LINE
    layout["rhs"] = layout["lhs"] + mc * layout["lhs_stride"] * wide
    layout["bytes"] = layout["rhs"] + (0 if schedule.get("packed") else nc * kc)
    return layout


def packed_integer_strides(schedule: dict, k: int) -> tuple[int, int, int]:
    """Strides along k (between groups) and n (between panels) of a packed rhs, and the steps of k in a group."""
    units = units_for(schedule)
    whole = LINE if units.tiles else units.group  # tiles are read whole
    return schedule["nv"] * schedule["width"], round_up(k, whole), units.group


def emit_integers(
    b: Builder, problem: MatmulProblem, schedule: dict, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
) -> None:
    """Emits the kernel; schedule keys: mr, nv, width, mc, nc, kc (a multiple of 64), packed, tiles (AMX)."""
    _Integers(b, problem, schedule, operands, epilogue, ctx).emit()


class _Integers(Panels):
    def __init__(
        self, b: Builder, problem: MatmulProblem, s: dict, operands: Buffers, epilogue: Epilogue, ctx: KernelContext
    ):
        lay = integers_layout(problem, s)
        super().__init__(b, problem, s, operands, epilogue, ctx, lay, b.i32)
        self.units = units_for(s)
        self.group = self.units.group
        self.step = self.width * self.group
        kind, count = (b.i8, 1) if self.units.narrow else (b.i16, 2)

        def area(name: str, elements: int, type_: ir.Type) -> ir.Value:
            return b.view(ctx.scratch, b.addi(ctx.scratch_offset, lay[name]), elements, type_)

        self.sums = b.view(ctx.scratch, ctx.scratch_offset, lay["elements"], b.i32)
        self.rows = area("rows", lay["mc"], b.i32)
        elements = lay["mc"] * lay["lhs_stride"]
        self.lhs, self.groups = area("lhs", elements, kind), area("lhs", elements * count // 4, b.i32)
        self.packed = bool(s.get("packed"))
        self.rhs = operands.rhs if self.packed else area("rhs", lay["nc"] * lay["kc"], b.i8)

    def k_piece(self, pc: Index, depth: Index, lhs: Index, rhs: Index, rows: Index, cols: Index) -> None:
        b, mr = self.b, self.mr
        self.pack_lhs(lhs, rows, depth)
        if not self.packed:
            self.pack_panels(rhs, cols, depth, self.layout["kc"], self.step)

        def tiles(j: Index, right: Index, masks: Masks) -> None:
            # Rows past the end have sums of what lies there, which nothing reads.
            tile = self.amx_tile if self.units.tiles else self.tile
            b.for_(0, rows, mr, lambda i: tile(pc, depth, i, j, right))

        self.column_tiles(rhs, cols, None if self.packed else lambda j: b.muli(j, self.layout["kc"]), tiles)

    def emit(self) -> None:
        if self.units.tiles:
            amx.configure(self.b)
        super().emit()
        if self.units.tiles:
            amx.release(self.b)

    def amx_tile(self, pc: Index, depth: Index, i: Index, j: Index, right: Index) -> None:
        """One register tile by AMX, whose sums go on from those of the pieces of k before."""
        b, nv, stride = self.b, self.nv, self.layout["tile_stride"]
        height = self.mr // amx.ROWS
        places = [
            b.sum_(b.muli(i, stride), j, r * amx.ROWS * stride + v * self.width)
            for r in range(height)
            for v in range(nv)
        ]
        lefts = [height * nv + r for r in range(height)]
        free = range(height * nv + height, amx.TILES)
        rights = [free[v % len(free)] for v in range(nv)]

        def clear() -> None:
            for tile in range(height * nv):
                amx.zero(b, tile)

        def resume() -> None:
            for tile, place in enumerate(places):
                amx.load(b, tile, self.sums, place, stride)

        def step(k: Index) -> None:
            for r in range(height):
                start = b.muli(b.addi(i, r * amx.ROWS), self.layout["lhs_stride"])
                amx.load(b, lefts[r], self.lhs, b.addi(start, k), self.layout["lhs_stride"])
            for v in range(nv):
                at = b.sum_(right, b.muli(k, self.nr), v * self.step)
                amx.load(b, rights[v], self.rhs, at, self.nr * self.group)
                for r in range(height):
                    amx.multiply(b, r * nv + v, lefts[r], rights[v], "i8")

        b.if_(b.cmpi("eq", pc, 0), clear, resume)
        b.for_(0, depth, amx.BYTES, step)
        for tile, place in enumerate(places):
            amx.store(b, tile, self.sums, place, stride)

    def tile(self, pc: Index, depth: Index, i: Index, j: Index, right: Index) -> None:
        """One register tile: sums over this piece of k, then added to the block."""
        b, nv, units = self.b, self.nv, self.units
        stride = self.layout["lhs_stride"] // self.group
        starts = [b.muli(b.addi(i, r), stride) for r in range(self.mr)]

        def step(g: Index, acc: list[ir.Value]) -> list[ir.Value]:
            out = list(acc)
            at = b.addi(right, b.muli(g, self.nr * self.group))
            row = [units.right(b, b.vload(self.rhs, b.addi(at, v * self.step), self.step)) for v in range(nv)]
            for r, start in enumerate(starts):
                x = units.everywhere(b, b.load(self.groups, b.addi(start, g)))
                for v in range(nv):
                    out[r * nv + v] = units.add(b, out[r * nv + v], row[v], x)
            return out

        if units.shifted:
            acc = [b.broadcast(b.load(self.rows, b.addi(i, r)), self.width) for r in range(self.mr) for _ in range(nv)]
        else:
            acc = [b.zero(self.vector)] * (self.mr * nv)
        acc = b.for_(0, b.ceildivi(depth, self.group), 1, step, acc)
        self.keep(pc, i, j, self.mr, acc)

    def add(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """The sum of two vectors of sums."""
        return arith.addi(x, y)

    def block(self, batch: list[Index], m0: Index, n0: Index, rows: Index, cols: Index) -> None:
        # Sums that are the result go there from registers, not by way of scratch: 7 % of [512, 768] x [768, 768].
        b = self.b
        plain = self.epilogue.is_plain_store and not self.units.tiles
        to = self.epilogue.destination(b, batch) if plain else None
        self.extent = rows, cols
        self.result = to and replace(to, offset=b.sum_(to.offset, b.muli(m0, to.row_stride), n0))
        super().block(batch, m0, n0, rows, cols)

    def finish(self, batch: list[Index], origin: tuple[Index, Index], size: tuple[Index, Index]) -> None:
        if self.result is None:
            super().finish(batch, origin, size)

    def keep(self, pc: Index, i: Index, j: Index, count: int, acc: Sequence[ir.Value]) -> None:
        b = self.b
        if self.result is None:
            super().keep(pc, i, j, count, acc)
            return
        acc = self.resumed(pc, i, j, count, acc)
        last = b.cmpi("sge", b.addi(pc, self.kc), known(self.p.k))
        b.if_(last, lambda: self.store(i, j, count, acc), lambda: self.save(i, j, count, acc))

    def store(self, i: Index, j: Index, count: int, acc: Sequence[ir.Value]) -> None:
        """The sums of a tile, as the result."""
        b, (rows, cols), to = self.b, self.extent, self.result
        assert to is not None
        starts = [b.sum_(to.offset, b.muli(b.addi(i, r), to.row_stride), j) for r in range(count)]

        def whole() -> None:
            for r, start in enumerate(starts):
                for v in range(self.nv):
                    b.vstore(acc[r * self.nv + v], to.buffer, b.addi(start, v * self.width))

        def part() -> None:
            left = b.subi(cols, j)
            masks = [b.mask_below(b.maxi(b.subi(left, v * self.width), 0), self.width) for v in range(self.nv)]

            def row(r: int) -> None:
                for v, mask in enumerate(masks):
                    b.vstore(acc[r * self.nv + v], to.buffer, b.addi(starts[r], v * self.width), mask)

            for r in range(count):
                b.if_(b.cmpi("slt", b.addi(i, r), rows), lambda r=r: row(r))

        inside = b.andc(b.cmpi("sle", b.addi(i, count), rows), b.cmpi("sle", b.addi(j, self.nr), cols))
        b.if_(inside, whole, part)

    def pack_lhs(self, lhs: Index, rows: Index, depth: Index) -> None:
        """Copies the lhs block, and keeps what its rows have too much where the rhs is shifted."""
        b, stride = self.b, self.layout["lhs_stride"]
        kind = ir.MemRefType(self.lhs.type).element_type
        full = b.round_down(depth, self.step)
        tail = b.subi(depth, full)
        ones = b.int_(1, b.vec(self.step, b.i8))

        def store(x: ir.Value, at: Index) -> None:
            b.vstore(x if x.type.element_type == kind else arith.extsi(b.vec(self.step, kind), x), self.lhs, at)

        def row(i: Index) -> None:
            source, target = b.addi(lhs, b.muli(i, self.lhs_row)), b.muli(i, stride)

            def lanes(k: Index, mask: ir.Value | None) -> ir.Value:
                at = b.addi(source, b.muli(k, self.lhs_k))
                return b.gather(self.operands.lhs, at, self.lhs_k, self.step, mask)

            def copy(k: Index, acc: Sequence[ir.Value], mask: ir.Value | None = None) -> list[ir.Value]:
                x = lanes(k, mask)
                store(x, b.addi(target, k))
                return [self.units.add(b, acc[0], ones, x)] if self.units.shifted else list(acc)

            total = b.for_(0, full, self.step, copy, [b.zero(self.vector)])
            before = list(total)
            total = b.if_(
                b.cmpi("sgt", tail, 0),
                lambda: copy(full, before, b.tail_mask(tail, self.step)),
                lambda: before,
                [self.vector],
            )
            if self.units.shifted:
                b.store(arith.muli(b.reduce("add", total[0]), b.int_(-OFFSET, b.i32)), self.rows, i)

        b.for_(0, rows, 1, row)

    def place(self, target: Index, k: Index) -> Index:
        """Where the group of step k (a multiple of `group`) lies, for the columns that begin at `target`."""
        return self.b.addi(target, self.b.muli(k, self.nr))

    def turned(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """Columns with unit stride along k: as vectors of four steps of k each, transposed in registers."""
        b, width = self.b, self.width
        last = b.subi(cols, 1)
        starts = [b.addi(source, b.muli(b.mini(i, last), self.rhs_col)) for i in range(width)]
        quads = 4 * width
        full = b.round_down(depth, quads)
        tail = b.subi(depth, full)
        bytes_ = b.vec(quads, b.i8)

        def rows(k: Index, mask: ir.Value | None = None) -> None:
            loaded = [
                vector.bitcast(self.vector, b.vload(self.operands.rhs, b.addi(s, k), quads, mask)) for s in starts
            ]
            for q, x in enumerate(pack.transpose_registers(b, loaded)):
                x = vector.bitcast(bytes_, x)
                if self.group == 4:
                    b.vstore(x, self.rhs, self.place(target, b.addi(k, 4 * q)))
                    continue
                for half in range(2):
                    lanes = [4 * c + 2 * half + e for c in range(width) for e in range(2)]
                    b.vstore(b.shuffle(x, x, lanes), self.rhs, self.place(target, b.addi(k, 4 * q + 2 * half)))

        b.for_(0, full, quads, rows)
        b.if_(b.cmpi("sgt", tail, 0), lambda: rows(full, b.tail_mask(tail, quads)))

    def interleaved(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """Columns with unit stride along n: the rows of a group, lane by lane."""
        b, width = self.b, self.width
        last = b.subi(depth, 1)

        def groups(mask: ir.Value | None) -> None:
            def one(k: Index) -> None:
                # Rows past the last one repeat it: they meet zeros.
                at = [b.addi(source, b.muli(b.mini(b.addi(k, e), last), self.rhs_k)) for e in range(self.group)]
                x = [b.vload(self.operands.rhs, start, width, mask) for start in at]
                while len(x) > 1:
                    half, size = len(x) // 2, self.group // len(x)
                    lanes = [
                        side * width * size + c * size + e
                        for c in range(width)
                        for side in range(2)
                        for e in range(size)
                    ]
                    x = [b.shuffle(x[2 * i], x[2 * i + 1], lanes) for i in range(half)]
                b.vstore(x[0], self.rhs, self.place(target, k))

            b.for_(0, depth, self.group, one)

        b.if_(b.cmpi("eq", cols, width), lambda: groups(None), lambda: groups(b.mask_below(cols, width)))

    def gathered(self, source: Index, target: Index, cols: Index, depth: Index) -> None:
        """Columns of any strides, element by element."""
        b, group = self.b, self.group

        def one(k: Index, c: Index) -> None:
            x = b.load(self.operands.rhs, b.sum_(source, b.muli(k, self.rhs_k), b.muli(c, self.rhs_col)))
            at = self.place(target, b.muli(b.divi(k, group), group))
            b.store(x, self.rhs, b.sum_(at, b.muli(c, group), b.remi(k, group)))

        b.for_(0, depth, 1, lambda k: b.for_(0, cols, 1, lambda c: one(k, c)))
