# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Weights for tiles: pairs of elements of the sum, 16 outputs side by side ("VNNI order")."""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.cpu.contraction.bf16 import as_integers
from kiln.lowering.cpu.contraction.pack import transpose_registers
from kiln.lowering.cpu.conv.problem import ConvProblem
from kiln.lowering.cpu.conv.tiles_plan import BLOCK, ROWS, Depth
from kiln.lowering.cpu.matmul.problem import known

__all__ = ["PackWeights"]

_TILE = ROWS * ROWS  # pairs


class PackWeights:
    """Packs the weights of a block of outputs: [block][tap][tile][pair][output][2].

    weight: the operand; target: scratch as pairs (i32), staging: the same for (taps + 1) * 16 vectors.
    """

    def __init__(
        self, b: Builder, p: ConvProblem, depth: Depth, tiles: int, weight: ir.Value, target: ir.Value,
        staging: ir.Value, halves: ir.Value,
    ):  # fmt: skip
        self.b, self.p, self.depth, self.tiles = b, p, depth, tiles
        self.weight, self.target, self.staging, self.halves = weight, target, staging, halves
        self.window = p.kernel[0] * p.kernel[1]

    def pack(self, start: Index, count: Index) -> None:
        """The weights of `count` outputs, the first of which begins at `start`. Tiles repeat the last output where
        there are no more; nothing reads what is computed from that.
        """
        b, p = self.b, self.p
        _, c, y, z = p.weight_strides
        dense = (
            isinstance(c, int)
            and c == self.window
            and (p.kernel[0] == 1 or y == p.kernel[1])
            and (p.kernel[1] == 1 or z == 1)
        )
        for tile in range(self.tiles):
            last = b.subi(count, 1)
            rows = [
                b.addi(start, b.muli(b.mini(tile * ROWS + lane, last), known(p.weight_strides[0])))
                for lane in range(ROWS)
            ]
            if self.depth.order != "channels":
                self.elements(tile, rows)
            elif isinstance(c, int) and c == 1:
                self.channels_last(tile, rows)
            elif dense:
                self.row_major(tile, rows)
            else:
                self.elements(tile, rows)

    def place(self, block: Index, tap: Index, tile: int) -> Index:
        """Where a tile of pairs begins in the target."""
        b = self.b
        number = b.addi(b.muli(b.addi(b.muli(block, len(self.depth.taps)), tap), self.tiles), tile)
        return b.muli(number, _TILE)

    def turned(self, rows: list[Index], at: Index, left: Index) -> list[ir.Value]:
        """32 elements of each row from `at` on, `left` of them there and the others zero, as 16 vectors of pairs."""
        b = self.b
        mask = b.mask_below(left, BLOCK)
        loaded = [b.vload(self.weight, b.addi(row, at), BLOCK, mask) for row in rows]
        return transpose_registers(b, [as_integers(b, x) for x in loaded])

    def channels_last(self, tile: int, rows: list[Index]) -> None:
        """Neighbouring channels are pairs already: tiles are transposed."""
        b, p = self.b, self.p
        columns = p.kernel[1]

        def tap(t: Index) -> None:
            y, z = b.divi(t, columns), b.remi(t, columns)
            at = b.addi(b.muli(y, known(p.weight_strides[2])), b.muli(z, known(p.weight_strides[3])))

            def block(i: Index, left: int = BLOCK) -> None:
                vectors = self.turned(rows, b.addi(at, b.muli(i, BLOCK)), left)
                target = self.place(i, t, tile)
                for n, x in enumerate(vectors):
                    b.vstore(x, self.target, b.addi(target, n * ROWS))

            full, rest = divmod(p.channels, BLOCK)
            b.for_(0, full, 1, block)
            if rest:
                block(full, rest)

        b.for_(0, self.window, 1, tap)

    def row_major(self, tile: int, rows: list[Index]) -> None:
        """[c][kh][kw]: words of two neighbours, transposed, from which the pairs of a tap in two channels are made."""
        b, p, window = self.b, self.p, self.window

        def block(i: Index, channels: int = BLOCK) -> None:
            total = channels * window
            at = b.muli(i, BLOCK * window)

            def words(q: Index, left: int = BLOCK) -> None:
                for n, x in enumerate(self.turned(rows, b.addi(at, q), left)):
                    b.vstore(x, self.staging, b.addi(b.muli(q, ROWS // 2), n * ROWS))

            b.for_(0, total // BLOCK * BLOCK, BLOCK, words)
            done = total // BLOCK * BLOCK
            if done < total:
                words(done, total - done)
                done += BLOCK
            # Channels that are none.
            zero = b.zero(b.vec(ROWS, b.i32))
            b.for_(done // 2, window * ROWS, 1, lambda n: b.vstore(zero, self.staging, b.muli(n, ROWS)))

            for t in range(window):
                target = self.place(i, t, tile)

                def pair(k: Index, t: int = t, target: Index = target) -> None:
                    first = b.muli(k, window)  # of the words: two elements each
                    low, high = (self.word(b.addi(first, q // 2)) for q in (t, t + window))
                    low, high = _half(b, low, t % 2, 0), _half(b, high, (t + window) % 2, 1)
                    b.vstore(arith.ori(low, high), self.target, b.addi(target, b.muli(k, ROWS)))

                b.for_(0, ROWS, 1, pair)

        full, rest = divmod(p.channels, BLOCK)
        b.for_(0, full, 1, block)
        if rest:
            block(full, rest)

    def word(self, q: Index) -> ir.Value:
        """Elements 2 q and 2 q + 1 of 16 outputs."""
        return self.b.vload(self.staging, self.b.muli(q, ROWS), ROWS)

    def elements(self, tile: int, rows: list[Index]) -> None:
        """Element by element, of weights in any order; for few of them."""
        b, p, depth = self.b, self.p, self.depth
        zero = b.zero(b.vec(ROWS, b.i32))

        def clear(t: Index) -> None:
            number = b.addi(b.muli(t, self.tiles), tile)
            b.for_(0, ROWS, 1, lambda n: b.vstore(zero, self.target, b.addi(b.muli(number, _TILE), b.muli(n, ROWS))))

        b.for_(0, depth.blocks * len(depth.taps), 1, clear)

        def one(c: Index, y: Index, z: Index) -> None:
            if depth.order == "channels":
                element, tap = c, b.addi(b.muli(y, p.kernel[1]), z)
            elif depth.order == "columns":
                element, tap = b.addi(b.muli(c, depth.span), z), y
            else:
                element, tap = b.addi(b.muli(z, p.channels), c), y
            at = b.sum_(*(b.muli(i, known(s)) for i, s in zip((c, y, z), p.weight_strides[1:], strict=True)))
            pair = b.divi(b.remi(element, BLOCK), 2)
            target = b.addi(self.place(b.divi(element, BLOCK), tap, tile), b.muli(pair, ROWS))
            target = b.addi(b.muli(target, 2), b.remi(element, 2))
            for lane, row in enumerate(rows):
                b.store(b.load(self.weight, b.addi(row, at)), self.halves, b.addi(target, 2 * lane))

        def channel(c: Index) -> None:
            b.for_(0, p.kernel[0], 1, lambda y: b.for_(0, p.kernel[1], 1, lambda z: one(c, y, z)) and None)

        b.for_(0, p.channels, 1, channel)


def _half(b: Builder, x: ir.Value, source: int, target: int) -> ir.Value:
    """One half of each lane (1: the upper one) as another, with zeros beside it."""
    if source == target:
        return arith.andi(x, b.int_(-(1 << 16) if source else 0xFFFF, x.type))
    return (arith.shrui if source else arith.shli)(x, b.int_(16, x.type))
