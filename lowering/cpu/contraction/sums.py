# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The loop over k of a register tile: tiles of sums that stay in registers while operands come and go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.contraction.unit import MatrixUnit, Place, Tile
from kiln.lowering.cpu.transpose import transpose_registers

__all__ = ["Grid", "Operand", "Runs", "load_sums", "multiply_step", "store_sums", "sum_products", "transpose_block"]

Operand = Callable[[int, int, Index], Place | ir.Value]
"""place(part, n, k): where the n-th tile of an operand lies at step k, or a tile that is a value already. part: one of
those that `terms` name."""

Steps = Callable[[Index, Sequence[Tile]], list[Tile]]
"""steps(k, sums): the sums behind the steps from k on."""

Runs = tuple[int, Callable[[Index], None]]
"""A number of steps of k, and what is emitted, given the first of them, before each run of so many."""


@dataclass(frozen=True)
class Grid:
    """The tiles of sums of a register tile: `high` below and `wide` beside each other."""

    high: int
    wide: int

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """Their rows and columns in the grid; the n-th is in register n."""
        return [(r, v) for r in range(self.high) for v in range(self.wide)]

    def operands(self, registers: int) -> tuple[Sequence[int], Sequence[int]]:
        """Registers for tiles of the left and of the right operand: those of one that is wanted again keep theirs, the
        others take turns in what is left.
        """
        free = range(self.high * self.wide, registers)
        held = 1 if self.high == 1 else len(free) - self.wide
        return free[:held], free[held:]


def multiply_step(
    b: Builder,
    unit: MatrixUnit,
    grid: Grid,
    sums: Sequence[Tile],
    left: Operand,
    right: Operand,
    k: Index = 0,
    terms: Sequence[tuple[int, int]] | None = None,
    missing: Index = 0,
) -> list[Tile]:
    """`sums`, in the order of `grid.tiles`, and the products of the unit's depth at step k: each tile is loaded once.

    terms: parts of both operands to multiply, in place of the unit's. missing: the last steps, which are not there.
    """

    def load(register: int, operand: Operand, part: int, n: int, side: str) -> Tile:
        place = operand(part, n, k)
        if isinstance(place, ir.Value):
            return place
        return unit.load(b, register, place if missing == 0 else place._replace(missing=missing), side)

    out, terms = list(sums), terms or unit.terms
    if not unit.is_numbered:  # LLVM chooses registers
        for p, q in terms:
            row = [load(0, right, q, v, "right") for v in range(grid.wide)]
            for r in range(grid.high):
                x = load(0, left, p, r, "left")
                for i, y in enumerate(row, r * grid.wide):
                    out[i] = unit.multiply_accumulate(b, out[i], x, y)
        return out
    lefts, rights = grid.operands(unit.registers)
    held: dict[int, tuple[str, int, int]] = {}

    def tile(side: str, operand: Operand, part: int, n: int, registers: Sequence[int]) -> Tile:
        register = registers[n % len(registers)]
        if held.get(register) != (side, part, n):
            load(register, operand, part, n, side)
            held[register] = side, part, n
        return register

    for p, q in terms:
        for i, (r, v) in enumerate(grid.tiles):
            x, y = tile("left", left, p, r, lefts), tile("right", right, q, v, rights)
            unit.multiply_accumulate(b, out[i], x, y)
    return out


def sum_products(
    b: Builder,
    unit: MatrixUnit,
    grid: Grid,
    left: Operand,
    right: Operand,
    steps: Index,
    start: Sequence[Tile] | None = None,
    *,
    filled: bool = True,
    unrolled: bool = False,
    terms: Sequence[tuple[int, int]] | None = None,
    runs: Runs | None = None,
) -> list[Tile]:
    """The sums, in the order of `grid.tiles`, of the products of `steps` steps of k, and of `start` (None: zeros).

    filled: zeros fill both operands up to a multiple of the unit's depth, as numbered registers need. unrolled: steps,
    whose number is known, are written out. terms: those of `multiply_step`.
    """

    def step(k: Index, sums: Sequence[Tile]) -> list[Tile]:
        return multiply_step(b, unit, grid, sums, left, right, k, terms)

    def loop(low: Index, high: Index, size: int, body: Steps, sums: Sequence[Tile]) -> list[Tile]:
        if unit.is_numbered:
            b.for_(low, high, size, lambda k: body(k, sums) and None)
            return list(sums)
        return [*b.for_(low, high, size, body, [x for x in sums if isinstance(x, ir.Value)])]

    sums = _zeros(b, unit, grid) if start is None else list(start)
    whole = steps if filled else b.round_down(steps, unit.depth)
    if unrolled:
        assert isinstance(whole, int)
        for k in range(0, whole, unit.depth):
            sums = step(k, sums)
    elif runs is None:
        sums = loop(0, whole, unit.depth, step, sums)
    else:
        count, first = runs

        def run(low: Index, sums: Sequence[Tile]) -> list[Tile]:
            first(low)
            if count == unit.depth:
                return step(low, sums)
            return loop(low, b.mini(b.addi(low, count), whole), unit.depth, step, sums)

        sums = loop(0, whole, count, run, sums)
    if filled:
        return sums
    rest = b.subi(steps, whole)

    def last() -> list[Tile]:
        return multiply_step(b, unit, grid, sums, left, right, whole, missing=b.subi(unit.depth, rest))

    types = [x.type for x in sums if isinstance(x, ir.Value)]
    return [*b.if_(b.cmpi("sgt", rest, 0), last, lambda: sums, types)]


def load_sums(
    b: Builder, unit: MatrixUnit, grid: Grid, place: Callable[[int, int], Place], is_first: Condition = False
) -> list[Tile]:
    """The tiles of sums that lie at place(row of the grid, column), in numbered registers; zeros where `is_first`."""

    def there() -> None:
        for n, (r, v) in enumerate(grid.tiles):
            unit.load(b, n, place(r, v), "sums")

    b.if_(is_first, lambda: _zeros(b, unit, grid) and None, there)
    return [*range(len(grid.tiles))]


def store_sums(
    b: Builder, unit: MatrixUnit, grid: Grid, sums: Sequence[Tile], place: Callable[[int, int], Place]
) -> None:
    """Store tiles of sums at place(row of the grid, column)."""
    for tile, (r, v) in zip(sums, grid.tiles, strict=True):
        unit.store(b, tile, place(r, v))


def transpose_block(b: Builder, source: Place, target: Place, rows: Index, cols: Index, width: int) -> None:
    """target[j, i] = source[i, j] for i < rows, j < cols, `width` by `width` elements at a time, in registers.

    Both buffers have room for multiples of `width` rows and columns.
    """
    (x, x_at, x_stride), (y, y_at, y_stride) = source[:3], target[:3]

    def square(i: Index, j: Index) -> None:
        start, to = b.sum_(x_at, b.muli(i, x_stride), j), b.sum_(y_at, b.muli(j, y_stride), i)
        loaded = [b.vload(x, b.addi(start, b.muli(r, x_stride)), width) for r in range(width)]
        for r, column in enumerate(transpose_registers(b, loaded)):
            b.vstore(column, y, b.addi(to, b.muli(r, y_stride)))

    b.for_(0, cols, width, lambda j: b.for_(0, rows, width, lambda i: square(i, j)) and None)


def _zeros(b: Builder, unit: MatrixUnit, grid: Grid) -> list[Tile]:
    return [unit.zero(b, n) for n in range(len(grid.tiles))]
