# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The text of `specialized.py`'s kernel for Triton's stages behind its own scheduling: TTGIR for sm_90.

Barriers (mbarriers in shared memory) come in pairs: "full" is completed by the copies that the producer starts, "empty"
by the consumers when they have read a block. A barrier's phase is the parity of how often its slot was used before.
"""

from collections.abc import Callable, Sequence
from math import prod

from kiln.lowering.gpu.dot.attention import LOWEST
from kiln.lowering.gpu.dot.specialized import HALF, LEAST, Place, Specialized
from kiln.lowering.gpu.dot.specialized_code import Code, Number

__all__ = ["specialized_ttgir"]

_BYTES = 2
_CONSUMER_REGISTERS, _PRODUCER_REGISTERS = 240, 24
"""Of a thread; together 2 x 128 x 240 + 128 x 24 of the multiprocessor's 65536."""
_BARRIER = "!ttg.memdesc<1xi64, #flat, #smem, mutable>"


def specialized_ttgir(p: Specialized, name: str) -> str:
    """A module with the kernel `name`, whose arguments are the four descriptors in their places' order; descriptor
    types are spelled as by Triton 3.6.
    """
    kernel = _Kernel(p)
    arguments = sorted((getattr(p, x).arg, x) for x in ("query", "key", "value", "result"))
    given = ", ".join(f"%{x}: {kernel.descriptor(x)}" for _, x in arguments)
    return "\n".join([*_header(p), f"  tt.func public @{name}({given}) {{", *kernel.lines(), "    tt.return\n  }\n}\n"])


def _header(p: Specialized) -> list[str]:
    mma = "#ttg.nvidia_mma<{{versionMajor = 3, versionMinor = 0, warpsPerCTA = [4, 1], instrShape = [16, {}, 16]}}>"
    block = "#ttg.nvmma_shared<{{swizzlingByteWidth = 128, transposed = {}, elementBitWidth = 16{}}}>"
    ranks = sorted({len(getattr(p, x).start) for x in ("query", "key", "value", "result")} | {2})
    return [
        f"#scores = {mma.format(p.block_n)}",
        f"#sums = {mma.format(p.size)}",
        "#weights = #ttg.dot_op<{opIdx = 0, parent = #sums, kWidth = 2}>",
        "#score_rows = #ttg.slice<{dim = 1, parent = #scores}>",
        "#score_columns = #ttg.slice<{dim = 0, parent = #scores}>",
        "#sum_rows = #ttg.slice<{dim = 1, parent = #sums}>",
        *(f"#block{n} = {block.format('false', '' if n == 2 else f', rank = {n}')}" for n in ranks),
        f"#turned = {block.format('true', '')}",
        "#flat = #ttg.swizzled_shared<{vec = 1, perPhase = 1, maxPhase = 1, order = [0]}>",
        "#smem = #ttg.shared_memory",
        'module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", '
        '"ttg.threads-per-warp" = 32 : i32} {',
    ]


class _Kernel:
    def __init__(self, p: Specialized):
        self.p = p
        self.slots = p.num_stages
        halves, blocks = f"2x{HALF}x{p.size}", f"{p.num_stages}x{p.block_n}x{p.size}"
        self.scores, self.sums = f"tensor<{HALF}x{p.block_n}xf32, #scores>", f"tensor<{HALF}x{p.size}xf32, #sums>"
        self.weights = f"tensor<{HALF}x{p.block_n}x{p.element}, #weights>"
        self.row = f"tensor<{HALF}xf32, #score_rows>"
        self.memory = {
            "q": f"!ttg.memdesc<{halves}x{p.element}, #block2, #smem, mutable>",
            "o": f"!ttg.memdesc<{halves}x{p.element}, #block2, #smem, mutable>",
            "k": f"!ttg.memdesc<{blocks}x{p.element}, #block2, #smem, mutable>",
            "v": f"!ttg.memdesc<{blocks}x{p.element}, #block2, #smem, mutable>",
        }
        # Of the query, of keys, of values; "turn" is for taking turns.
        barriers = {"q_full": 2, "q_empty": 2, "k_full": 0, "k_empty": 0, "v_full": 0, "v_empty": 0, "turn": 2}
        self.barriers = {name: n or self.slots for name, n in barriers.items()}
        self.captured = {
            **{x: self.descriptor(x) for x in ("query", "key", "value", "result")},
            **self.memory,
            **{x: f"!ttg.memdesc<{n}x1xi64, #flat, #smem, mutable>" for x, n in self.barriers.items()},
        }

    def descriptor(self, name: str) -> str:
        place: Place = getattr(self.p, name)
        rows = HALF if name in ("query", "result") else self.p.block_n
        boxes = "x".join(str(x) for x in (*[1] * (len(place.start) - 2), rows, self.p.size))
        return f"!tt.tensordesc<tensor<{boxes}x{self.p.element}, #block{len(place.start)}>>"

    def lines(self) -> list[str]:
        """The function's body."""
        code = Code(prefix="x")
        code.indent = 4
        for name, type_ in self.captured.items():
            if name in self.memory or name in self.barriers:
                code.line(f"%{name} = ttg.local_alloc : () -> {type_}")
        for name, n in self.barriers.items():
            # Both consumers read keys and values.
            count = 2 if name in ("k_empty", "v_empty") else 1
            for i in range(n):
                code.line(f"ttng.init_barrier {self.barrier(code, name, i)}, {count} : {_BARRIER}")
        code.line("ttng.fence_async_shared {bCluster = false}")
        types = ", ".join(self.captured.values())
        code.line(
            f"ttg.warp_specialize({', '.join('%' + x for x in self.captured)}) attributes "
            f"{{requestedRegisters = array<i32: {_CONSUMER_REGISTERS}, {_PRODUCER_REGISTERS}>}}"
        )
        code.line("default {")
        code.lines += self.consumer(0, "")
        code.line("  ttg.warp_yield")
        code.line("}")
        for i, (part, warps) in enumerate(((self.consumer(1, "_0"), 4), (self.producer("_1"), 1))):
            given = ", ".join(f"%{name}_{i}: {type_}" for name, type_ in self.captured.items())
            code.line(f"partition{i}({given}) num_warps({warps}) {{")
            code.lines += part
            code.line("  ttg.warp_return")
            code.line("}" if i == 0 else f"}} : ({types}) -> ()")
        return code.lines

    # -- what both jobs need ---------------------------------------------------------------------------------

    def barrier(self, c: Code, name: str, slot: Number) -> str:
        type_ = self.captured[name]
        return c.new(f"ttg.memdesc_index {c.outer(name)}[{c.number(slot)}] : {type_} -> {_BARRIER}")

    def wait(self, c: Code, name: str, slot: Number, phase: Number) -> None:
        barrier, yes = self.barrier(c, name, slot), c.new("arith.constant true")
        c.line(f"ttng.wait_barrier {barrier}, {c.number(phase)}, {yes} : {_BARRIER}")

    def arrive(self, c: Code, name: str, slot: Number) -> None:
        barrier, yes = self.barrier(c, name, slot), c.new("arith.constant true")
        c.line(f"ttng.arrive_barrier {barrier}, 1, {yes} : {_BARRIER}")

    def block_type(self, name: str, layout: str = "#block2") -> str:
        rows = HALF if name in ("q", "o") else self.p.block_n
        return f"!ttg.memdesc<{rows}x{self.p.size}x{self.p.element}, {layout}, #smem, mutable>"

    def block(self, c: Code, name: str, slot: Number) -> str:
        return c.new(
            f"ttg.memdesc_index {c.outer(name)}[{c.number(slot)}] : {self.memory[name]} -> {self.block_type(name)}"
        )

    def slot(self, c: Code, used: Number) -> tuple[Number, Number]:
        """Slot and phase of block number `used` of all that a program reads."""
        return c.rem(used, self.slots), c.odd(c.div(used, self.slots))

    def tile(self, c: Code, number: str) -> tuple[list[Number], list[Number], Number, Number]:
        """Indices of the head and of its keys' head, the first query, blocks of keys."""
        p = self.p
        group = p.heads_together * p.blocks
        within = c.rem(number, group)
        head = c.add(c.mul(c.div(number, group), p.heads_together), c.rem(within, p.heads_together))
        block = c.div(within, p.heads_together)
        count: Number = p.key_blocks
        if p.causal:
            block = c.sub(p.blocks - 1, block)
            reach = c.add(c.mul(block, 2 * HALF), 2 * HALF + p.block_n - 1)
            count = c.min(count, c.div(reach, p.block_n))
        indices: list[Number] = []
        sizes = [*p.batch, p.heads]
        for i, size in enumerate(sizes):
            left = c.div(head, prod(sizes[i + 1 :]))
            indices.append(c.rem(left, size) if i else left)
        kv = [*indices[:-1], c.div(indices[-1], p.heads // p.kv_heads)]
        return indices, kv, c.mul(block, 2 * HALF), count

    def coordinates(self, c: Code, place: Place, indices: Sequence[Number], row: Number) -> str:
        own = [i for i, dim in zip(indices, place.leading, strict=True) if dim >= 0]
        return ", ".join(c.number(c.add(i, first)) for i, first in zip((*own, row, 0), place.start, strict=True))

    def tiles(self, c: Code, carried: int, body: Callable[[str, list[str]], Sequence[Number]]) -> None:
        """The loop over a program's tiles, with counters that start at 0."""
        first, step = c.new("tt.get_program_id x : i32"), c.new("tt.get_num_programs x : i32")
        c.loop(first, self.p.tiles, step, [("0", "i32")] * carried, body)

    # -- the producer ----------------------------------------------------------------------------------------

    def producer(self, part: str) -> list[str]:
        """One warp that starts all copies to shared memory."""
        p, c = self.p, Code(part)
        halves, rows = HALF * p.size * _BYTES, p.block_n * p.size * _BYTES

        def copy(name: str, memory: str, barrier: str, slot: Number, size: int, indices: list[Number], row: Number):
            full, yes = self.barrier(c, barrier, slot), c.new("arith.constant true")
            c.line(f"ttng.barrier_expect {full}, {size}, {yes} : {_BARRIER}")
            at = self.coordinates(c, getattr(p, name), indices, row)
            block = self.block(c, memory, slot)
            types = f"{self.descriptor(name)}, {_BARRIER} -> {self.block_type(memory)}"
            c.line(f"ttng.async_tma_copy_global_to_local {c.outer(name)}[{at}] {block}, {full}, {yes} : {types}")

        def tile(number: str, carried: list[str]) -> list[Number]:
            indices, kv, row, count = self.tile(c, number)
            used, done = carried
            for half in range(2):
                self.wait(c, "q_empty", half, c.flip(c.odd(done)))
                copy("query", "q", "q_full", half, halves, indices, c.add(row, half * HALF))

            def step(i: str, inner: list[str]) -> list[Number]:
                slot, phase = self.slot(c, inner[0])
                start = c.mul(c.sub(c.sub(count, 1), i), p.block_n)
                for name, memory in (("key", "k"), ("value", "v")):
                    self.wait(c, f"{memory}_empty", slot, c.flip(phase))
                    copy(name, memory, f"{memory}_full", slot, rows, kv, start)
                return [c.add(inner[0], 1)]

            (used,) = c.loop(0, count, 1, [(used, "i32")], step)
            return [used, c.add(done, 1)]

        c.indent = 6
        self.tiles(c, 2, tile)
        return c.lines

    # -- the consumers ---------------------------------------------------------------------------------------

    def consumer(self, half: int, part: str) -> list[str]:
        """Four warps that have the first or the second 64 queries of each tile."""
        c = Code(part)
        self.tiles(c, 3, lambda number, carried: self.consume(c, half, number, carried))
        c.line("ttng.async_tma_store_wait {pendings = 0 : i32}")
        return c.lines

    def consume(self, c: Code, half: int, number: str, carried: Sequence[str]) -> list[Number]:
        """One tile. carried: blocks of keys read before, tiles done, turns taken."""
        p = self.p
        used, done, turns = carried
        indices, _, row, count = self.tile(c, number)
        row = c.add(row, half * HALF)
        q = self.block(c, "q", half)
        self.wait(c, "q_full", half, c.odd(done))
        slot, phase = self.slot(c, used)
        self.wait(c, "k_full", slot, phase)
        (scores,) = self.wait_dots(c, 0, (self.score(c, q, slot), self.scores))
        self.arrive(c, "k_empty", slot)
        scores = self.masked(c, scores, row, count)
        lowest = c.new(f"arith.constant dense<{LOWEST}> : {self.row}")
        best = self.scaled(c, self.reduce(c, "maxnumf", scores), self.row)
        top = c.new(f"arith.maxnumf {lowest}, {best} : {self.row}")
        weights, total = self.powers(c, scores, top)
        narrow = self.narrowed(c, weights)
        zeros = c.new(f"arith.constant dense<0.0> : {self.sums}")

        def step(i: str, inner: list[str]) -> list[Number]:
            used, turns, top, total, narrow, sums = inner
            ahead = c.add(used, 1)
            slot, phase = self.slot(c, ahead)
            behind, old_phase = self.slot(c, used)
            self.wait(c, "k_full", slot, phase)
            if p.pingpong:
                self.wait(c, "turn", half, c.flip(c.odd(turns)) if half == 0 else c.odd(turns))
            # The next scores are under way while these weights meet their values.
            product = self.score(c, q, slot)
            self.wait(c, "v_full", behind, old_phase)
            result = self.weigh(c, narrow, behind, sums)
            if p.pingpong:
                self.arrive(c, "turn", 1 - half)
            (scores,) = self.wait_dots(c, 1, (product, self.scores))
            self.arrive(c, "k_empty", slot)
            best = self.scaled(c, self.reduce(c, "maxnumf", scores), self.row)
            new_top = c.new(f"arith.maxnumf {top}, {best} : {self.row}")
            less = c.new(f"arith.subf {top}, {new_top} : {self.row}")
            shrink = c.new(f"math.exp2 {less} : {self.row}")
            weights, added = self.powers(c, scores, new_top)
            kept = c.new(f"arith.mulf {total}, {shrink} : {self.row}")
            total = c.new(f"arith.addf {kept}, {added} : {self.row}")
            # That the new weights pass through the wait has them computed under the product.
            new = self.narrowed(c, weights)
            result, _, new = self.wait_dots(c, 0, (result, self.sums), (narrow, self.weights), (new, self.weights))
            self.arrive(c, "v_empty", behind)
            sums = c.new(f"arith.mulf {result}, {self.along_sums(c, shrink)} : {self.sums}")
            return [ahead, c.add(turns, 1), new_top, total, new, sums]

        inits = [(used, "i32"), (turns, "i32"), (top, self.row), (total, self.row), (narrow, self.weights)]
        inits.append((zeros, self.sums))
        used, turns, _, total, narrow, sums = c.loop(1, count, 1, inits, step)
        self.arrive(c, "q_empty", half)
        slot, phase = self.slot(c, used)
        self.wait(c, "v_full", slot, phase)
        result = self.weigh(c, narrow, slot, sums)
        result, _ = self.wait_dots(c, 0, (result, self.sums), (narrow, self.weights))
        self.arrive(c, "v_empty", slot)
        self.store(c, half, result, total, indices, row)
        return [c.add(used, 1), c.add(done, 1), turns]

    def store(self, c: Code, half: int, sums: str, total: str, indices: list[Number], row: Number) -> None:
        """sums / total, through shared memory, when the stores of the tile before have read it."""
        p = self.p
        one = c.new(f"arith.constant dense<1.0> : {self.row}")
        if p.zeros:
            least = c.new(f"arith.constant dense<{LEAST}> : {self.row}")
            total = c.new(f"arith.maxnumf {total}, {least} : {self.row}")
        part = c.new(f"arith.divf {one}, {total} : {self.row}")
        scaled = c.new(f"arith.mulf {sums}, {self.along_sums(c, part)} : {self.sums}")
        narrow = f"tensor<{HALF}x{p.size}x{p.element}, #sums>"
        out = c.new(f"arith.truncf {scaled} : {self.sums} to {narrow}")
        c.line("ttng.async_tma_store_wait {pendings = 0 : i32}")
        memory = self.block(c, "o", half)
        c.line(f"ttg.local_store {out}, {memory} : {narrow} -> {self.block_type('o')}")
        c.line("ttng.fence_async_shared {bCluster = false}")
        at = self.coordinates(c, p.result, indices, row)
        types = f"{self.descriptor('result')}, {self.block_type('o')}"
        c.line(f"ttng.async_tma_copy_local_to_global {c.outer('result')}[{at}] {memory} : {types}")

    def score(self, c: Code, q: str, slot: Number) -> str:
        """Starts query times keys."""
        keys, turned = self.block_type("k"), f"{self.p.size}x{self.p.block_n}x{self.p.element}, #turned, #smem, mutable"
        block = self.block(c, "k", slot)
        k = c.new(f"ttg.memdesc_trans {block} {{order = array<i32: 1, 0>}} : {keys} -> !ttg.memdesc<{turned}>")
        zeros, no = c.new(f"arith.constant dense<0.0> : {self.scores}"), c.new("arith.constant false")
        types = f"{self.block_type('q')} * !ttg.memdesc<{turned}> -> {self.scores}"
        return c.new(
            f"ttng.warp_group_dot {q}, {k}, {zeros}, {no} {{inputPrecision = 0 : i32, isAsync = true}} : {types}"
        )

    def weigh(self, c: Code, weights: str, slot: Number, sums: str) -> str:
        """Starts adding weights times values to the sums."""
        v, yes = self.block(c, "v", slot), c.new("arith.constant true")
        types = f"{self.weights} * {self.block_type('v')} -> {self.sums}"
        return c.new(
            f"ttng.warp_group_dot {weights}, {v}, {sums}, {yes} {{inputPrecision = 0 : i32, isAsync = true}} : {types}"
        )

    def wait_dots(self, c: Code, pending: int, *values: tuple[str, str]) -> list[str]:
        """Waits until at most `pending` products are under way; the values are there behind it."""
        names, types = (", ".join(x) for x in zip(*values, strict=True))
        c.count += 1
        name = f"%{c.prefix}{c.count}"
        c.line(
            f"{name}:{len(values)} = ttng.warp_group_dot_wait {names} {{pendings = {pending} : i32}} : {types}"
            if len(values) > 1
            else f"{name} = ttng.warp_group_dot_wait {names} {{pendings = {pending} : i32}} : {types}"
        )
        return [f"{name}#{i}" for i in range(len(values))] if len(values) > 1 else [name]

    def masked(self, c: Code, scores: str, row: Number, count: Number) -> str:
        """The scores of a tile's first step, where keys do not exist or come after a query: minus infinity."""
        p = self.p
        width = f"{HALF}x{p.block_n}"
        conditions: list[str] = []
        start = c.number(c.mul(c.sub(count, 1), p.block_n))
        column_type = f"tensor<{p.block_n}xi32, #score_columns>"
        row_type = f"tensor<{HALF}xi32, #score_rows>"

        def line(start: str, length: int, type_: str, axis: int, shape: str) -> str:
            lanes = c.new(f"tt.make_range {{end = {length} : i32, start = 0 : i32}} : {type_}")
            splat = c.new(f"tt.splat {start} : i32 -> {type_}")
            index = c.new(f"arith.addi {splat}, {lanes} : {type_}")
            wide = f"tensor<{shape}xi32, #scores>"
            index = c.new(f"tt.expand_dims {index} {{axis = {axis} : i32}} : {type_} -> {wide}")
            return c.new(f"tt.broadcast {index} : {wide} -> tensor<{width}xi32, #scores>")

        if p.causal or p.keys % p.block_n:
            columns = line(start, p.block_n, column_type, 0, f"1x{p.block_n}")
            if p.keys % p.block_n:
                end = c.new(f"arith.constant dense<{p.keys}> : tensor<{width}xi32, #scores>")
                conditions.append(c.new(f"arith.cmpi slt, {columns}, {end} : tensor<{width}xi32, #scores>"))
            if p.causal:
                rows = line(c.number(row), HALF, row_type, 1, f"{HALF}x1")
                conditions.append(c.new(f"arith.cmpi sle, {columns}, {rows} : tensor<{width}xi32, #scores>"))
        for condition in conditions:
            removed = c.new(f"arith.constant dense<0xFF800000> : {self.scores}")
            types = f"tensor<{width}xi1, #scores>, {self.scores}"
            scores = c.new(f"arith.select {condition}, {scores}, {removed} : {types}")
        return scores

    def reduce(self, c: Code, op: str, x: str) -> str:
        """Along a row, by one of arith's ops."""
        c.count += 1
        name = f"%{c.prefix}{c.count}"
        c.line(f'{name} = "tt.reduce"({x}) <{{axis = 1 : i32}}> ({{')
        c.line(f"^bb0({name}_a: f32, {name}_b: f32):")
        c.line(f"  {name}_c = arith.{op} {name}_a, {name}_b : f32")
        c.line(f"  tt.reduce.return {name}_c : f32")
        c.line(f"}}) : ({self.scores}) -> {self.row}")
        return name

    def scaled(self, c: Code, x: str, type_: str) -> str:
        factor = c.new(f"arith.constant dense<{self.p.factor:.9e}> : {type_}")
        return c.new(f"arith.mulf {x}, {factor} : {type_}")

    def powers(self, c: Code, scores: str, top: str) -> tuple[str, str]:
        """Two to what the scores, scaled, are above `top`; the sum of each row."""
        column = f"tensor<{HALF}x1xf32, #scores>"
        column_top = c.new(f"tt.expand_dims {top} {{axis = 1 : i32}} : {self.row} -> {column}")
        tops = c.new(f"tt.broadcast {column_top} : {column} -> {self.scores}")
        difference = c.new(f"arith.subf {self.scaled(c, scores, self.scores)}, {tops} : {self.scores}")
        weights = c.new(f"math.exp2 {difference} : {self.scores}")
        return weights, self.reduce(c, "addf", weights)

    def narrowed(self, c: Code, weights: str) -> str:
        """As the left operand of a product, in registers."""
        narrow = f"tensor<{HALF}x{self.p.block_n}x{self.p.element}, #scores>"
        rounded = c.new(f"arith.truncf {weights} : {self.scores} to {narrow}")
        return c.new(f"ttg.convert_layout {rounded} : {narrow} -> {self.weights}")

    def along_sums(self, c: Code, row: str) -> str:
        """A value per row, at all of its sums."""
        rows, column = f"tensor<{HALF}xf32, #sum_rows>", f"tensor<{HALF}x1xf32, #sums>"
        turned = c.new(f"ttg.convert_layout {row} : {self.row} -> {rows}")
        turned = c.new(f"tt.expand_dims {turned} {{axis = 1 : i32}} : {rows} -> {column}")
        return c.new(f"tt.broadcast {turned} : {column} -> {self.sums}")
