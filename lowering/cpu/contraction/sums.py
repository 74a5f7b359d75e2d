# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The loop over k of a register tile: tiles of sums that stay in registers while operands come and go."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from kiln.lowering.cpu.builder import Builder, Condition, Index
from kiln.lowering.cpu.contraction.unit import MatrixUnit, Place, Tile

__all__ = ["Grid", "Operand", "add_products", "multiply_step", "sum_products"]

Operand = Callable[[int, int, Index], Place | ir.Value]
"""place(part, n, k): where the n-th tile of an operand lies at step k, or a tile that is a value already. part: one of
those that `terms` name."""

Steps = Callable[[Index, Sequence[Tile]], list[Tile]]
"""steps(k, sums): the sums behind the steps from k on."""


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
    sums: Sequence[Tile],
    left: Operand,
    right: Operand,
    steps: Index,
    *,
    terms: Sequence[tuple[int, int]] | None = None,
    before: Callable[[Index], None] | None = None,
    runs: tuple[int, Callable[[Index], None]] | None = None,
    unroll: int = 1,
    unrolled: bool = False,
) -> list[Tile]:
    """`sums`, in the order of `grid.tiles`, and the products of `steps` steps of k, a multiple of the unit's depth.

    terms: those of `multiply_step`. before: emitted at the start of each step. runs: a number of steps of k, and what
    is emitted, given the first of them, before each run of so many. unroll: steps of the loop that are written out.
    unrolled: all of them, whose number is known.
    """

    def some(k: Index, sums: Sequence[Tile], count: int) -> list[Tile]:
        for u in range(count):
            at = b.addi(k, u * unit.depth)
            if before is not None:
                before(at)
            sums = multiply_step(b, unit, grid, sums, left, right, at, terms)
        return list(sums)

    def loop(low: Index, high: Index, step: int, body: Steps, sums: Sequence[Tile]) -> list[Tile]:
        if unit.is_numbered:
            b.for_(low, high, step, lambda k: body(k, sums) and None)
            return list(sums)
        return [*b.for_(low, high, step, body, [x for x in sums if isinstance(x, ir.Value)])]

    def run(low: Index, high: Index, sums: Sequence[Tile]) -> list[Tile]:
        wide = unroll * unit.depth
        full = b.addi(low, b.round_down(b.subi(high, low), wide)) if unroll > 1 else high
        sums = loop(low, full, wide, lambda k, a: some(k, a, unroll), sums)
        return loop(full, high, unit.depth, lambda k, a: some(k, a, 1), sums) if unroll > 1 else list(sums)

    if unrolled:
        assert isinstance(steps, int)
        return some(0, sums, steps // unit.depth)
    if runs is None:
        return run(0, steps, sums)
    count, first = runs

    def begun(k: Index, sums: Sequence[Tile]) -> list[Tile]:
        first(k)
        return run(k, b.mini(b.addi(k, count), steps), sums)

    return loop(0, steps, count, begun, sums)


def add_products(
    b: Builder,
    unit: MatrixUnit,
    grid: Grid,
    places: Callable[[int, int], Place] | None,
    left: Operand,
    right: Operand,
    steps: Index,
    *,
    first: Condition = True,
    afresh: bool = False,
    filled: bool = True,
    load: Callable[[int, Place], Tile] | None = None,
    store: Callable[[Sequence[Tile]], None] | None = None,
    **loop: Any,
) -> None:
    """Products of `steps` steps of k, added to the tiles of sums at `places` (of a row and a column of the grid).

    first: what lies at the places is not read. afresh: sums start from zero, and are added to what lies there at the
    end: long chains of additions have larger errors. filled: zeros fill both operands up to a multiple of the unit's
    depth. load: what the n-th tile, which lies at a place, starts from, in place of the sums there. store: what is done
    with the tiles, in place of storing them; with places = None they lie nowhere. loop: the keywords of `sum_products`.
    """
    carried, count = unit.carried(b), grid.high * grid.wide
    types = [carried] * count if carried else []

    def at() -> list[Place]:  # asked for where they are wanted: addresses are not alive in the loop
        return [places(r, v) for r, v in grid.tiles] if places else []

    def zeros() -> list[Tile]:
        return [unit.zero(b, n) for n in range(count)]

    def there() -> list[Tile]:
        return [unit.load(b, n, place, "sums") for n, place in enumerate(at())]

    def chosen(then: Callable[[], list[Tile]]) -> list[Tile]:
        return [*b.if_(first, zeros, then, types)] or [*range(count)]

    given = load
    begun = [given(n, place) for n, place in enumerate(at())] if given else zeros() if afresh else chosen(there)
    whole = steps if filled else b.round_down(steps, unit.depth)
    rest = 0 if filled else b.subi(steps, whole)
    sums = sum_products(b, unit, grid, begun, left, right, whole, **loop)

    def last() -> list[Tile]:
        return multiply_step(b, unit, grid, sums, left, right, whole, missing=b.subi(unit.depth, rest))

    sums = [*b.if_(b.cmpi("sgt", rest, 0), last, lambda: sums, types)] or sums
    if afresh and first is not True:
        sums = [unit.add(b, x, y) for x, y in zip(sums, chosen(there), strict=True)]
    if store is not None:
        store(sums)
        return
    for tile, place in zip(sums, at(), strict=True):
        unit.store(b, tile, place)
