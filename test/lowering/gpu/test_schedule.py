# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tile sizes and warps: the measured points, and what holds for every size."""

import pytest

from kiln.dialects.schedules.gpu import NestSchedule
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.schedule import (
    LONGEST_ROW,
    RowShape,
    choose_pointwise,
    choose_row,
    choose_transpose,
)


def test_pointwise() -> None:
    assert choose_pointwise(4096 * 4096) == NestSchedule(tile=(1024,), num_warps=4)
    assert choose_pointwise(None) == NestSchedule(tile=(1024,), num_warps=4)
    assert choose_pointwise(3).tile == (4,)


@pytest.mark.parametrize(
    ("rows", "length", "warps"), [(4096, 1024, 2), (4096, 4096, 8), (4096, 8192, 16), (4096, 32768, 32)]
)
def test_a_row_in_registers(rows: int, length: int, warps: int) -> None:
    chosen = choose_row(RowShape(rows, length, reread=True))
    assert chosen == NestSchedule(tile=(1,), row=length, persistent=True, num_warps=warps)


def test_a_row_that_is_too_long_is_walked() -> None:
    chosen = choose_row(RowShape(64, LONGEST_ROW + 1, reread=True))
    assert not chosen.persistent and chosen.row == 4096


def test_more_inputs_leave_less_room() -> None:
    assert choose_row(RowShape(64, 16384, inputs=2, reread=True)).persistent
    assert not choose_row(RowShape(64, 16384, inputs=6, reread=True)).persistent


def test_short_rows_share_a_program_unless_there_are_few() -> None:
    assert choose_row(RowShape(1 << 20, 64)).tile == (16,)
    assert choose_row(RowShape(64, 64)).tile == (1,)


def test_an_empty_row_is_not_held() -> None:
    assert not choose_row(RowShape(64, 0)).persistent
    assert not choose_row(RowShape(64, 0, contiguous=False)).persistent


@pytest.mark.parametrize("rows", [None, 1, 7, 100, 4096, 1 << 20])
@pytest.mark.parametrize("length", [None, 0, 1, 3, 100, 4096, 10**6])
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("reread", [True, False])
def test_what_holds_for_every_row(rows: int | None, length: int | None, contiguous: bool, reread: bool) -> None:
    chosen = choose_row(RowShape(rows, length, contiguous, reread=reread))
    tile, row, warps = chosen.tile[0], chosen.row, chosen.num_warps
    assert tile & (tile - 1) == 0 and row & (row - 1) == 0
    assert tile * row <= 1 << 20
    assert warps in (1, 2, 4, 8, 16, 32)
    assert not chosen.persistent or (length is not None and row >= length)


@pytest.mark.parametrize("sizes", [(None, None), (8, 4096), (4096, 9), (64, 64)])
def test_transposes(sizes: tuple[int | None, int | None]) -> None:
    chosen = choose_transpose(sizes)
    assert all(n & (n - 1) == 0 and n <= 64 for n in chosen.tile)
    assert chosen.num_warps in (1, 2, 4, 8)


def test_gathers_have_more_loads_under_way() -> None:
    assert choose_pointwise(8192 * 1024, gathers=True) == NestSchedule(tile=(2048,), num_warps=4)
    assert choose_pointwise(None, gathers=True) == NestSchedule(tile=(2048,), num_warps=4)
    assert choose_pointwise(1000, gathers=True).tile == (128,)


def test_rows_and_blocks_keep_the_multiprocessors_of_the_chip_busy() -> None:
    """An L4 has 58 multiprocessors, an MI300X 304: fewer and more programs are enough."""
    l4, mi300 = machine("sm_89"), machine("gfx942")
    assert choose_pointwise(1 << 17, chip=l4).tile == (1024,)
    assert choose_pointwise(1 << 17).tile == (512,)
    assert choose_pointwise(1 << 17, chip=mi300).tile == (256,)
    rows = RowShape(2048, 64)
    assert [choose_row(rows, chip).tile for chip in (l4, None, mi300)] == [(16,), (4,), (2,)]
