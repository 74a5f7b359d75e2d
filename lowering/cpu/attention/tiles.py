# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention of bf16 by tiles (AMX): strips of 16 queries by up to 64 keys, and by up to 64 columns of the values.

The kernel of pairs (pairs.py) keeps in scratch what tiles want: queries in rows of 32 elements, keys and values in
pairs along what is summed. Sums of scores go from the tiles to scratch, where the softmax finds them, and its
exponentials, rounded to bf16, are the left tiles of the second product, whose sums start from the rescaled output.
"""

from collections.abc import Callable

from torch_mlir import ir

from kiln.lowering.cpu.attention.pairs import PairedAttention
from kiln.lowering.cpu.builder import Index
from kiln.lowering.cpu.contraction import Grid, Place, add_products
from kiln.lowering.cpu.contraction.amx import AMX_BF16
from kiln.lowering.cpu.contraction.sizes import round_up

__all__ = ["TiledAttention"]

_COLUMNS = 4  # tiles of sums beside each other


class TiledAttention(PairedAttention):
    """The kernel with strips of 16 queries, whose scores and sums of values are products of tiles."""

    def emit(self) -> None:
        """Tiles are this kernel's alone from its first to its last instruction."""
        AMX_BF16.begin(self.b)
        super().emit()
        AMX_BF16.end(self.b)

    def scores(self, i: Index, count: Index) -> None:
        """p[r, j] = q[i + r] . k[j], for whole tiles of keys (past `count` something finite or stale)."""
        b, lay, width = self.b, self.lay, self.width
        rows = b.addi(2 * lay["q"], b.muli(i, self.q_row))

        def tiles(j: Index, number: int) -> None:
            add_products(
                b,
                AMX_BF16,
                Grid(1, number),
                lambda _, v: Place(self.scratch, b.sum_(lay["p"], j, v * width), lay["p_stride"]),
                lambda _, r, e: Place(self.halves, b.addi(rows, e), self.q_row),
                lambda _, v, e: Place(
                    self.pairs,
                    b.sum_(lay["k"], j, v * width, b.muli(b.divi(e, 2), lay["keys"])),
                    lay["keys"],
                ),
                round_up(self.p.qk_size, AMX_BF16.depth),
                unrolled=True,
            )

        self.columns(lay["keys"], count, tiles)

    def accumulate(self, i: Index, count: Index, values: tuple[ir.Value, Index, Index]) -> None:
        """out[i + r] = out[i + r] * drop[r] + p[r] @ v."""
        b, lay, width, size = self.b, self.lay, self.width, self.lay["v_padded"]
        base = b.addi(lay["out"], b.muli(i, size))
        _, start, row = values

        def rescale(r: Index) -> None:
            factor = b.broadcast(b.load(self.scratch, b.addi(lay["drop"], r)), width)
            for j in range(0, size, width):
                at = b.sum_(base, b.muli(r, size), j)
                self.store(b.mulf(self.load(at), factor), at)

        b.for_(0, self.mr, 1, rescale)

        def tiles(j: Index, number: int) -> None:
            def pairs(_: int, v: int, k: Index) -> Place:
                return Place(self.pairs, b.sum_(start, b.muli(b.divi(k, 2), row), j, v * width), row)

            add_products(
                b,
                AMX_BF16,
                Grid(1, number),
                lambda _, v: Place(self.scratch, b.sum_(base, j, v * width), size),
                lambda _, r, k: Place(self.halves, b.addi(2 * lay["p"], k), 2 * lay["p_stride"]),
                pairs,
                count,
                first=False,
            )

        self.columns(size, size, tiles)

    def columns(self, size: int, count: Index, tiles: Callable[[Index, int], None]) -> None:
        """tiles(first column, number of tiles) for those of `size` columns that begin before `count`."""
        b, unit = self.b, _COLUMNS * self.width
        full = size // unit * unit
        b.for_(0, b.mini(count, full), unit, lambda j: tiles(j, _COLUMNS))
        if full < size:
            b.if_(b.cmpi("sgt", count, full), lambda: tiles(full, (size - full) // self.width))
