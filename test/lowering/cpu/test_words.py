# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Copies of operands as words, of both sides: element types, strides, sizes that are no multiples, sizes of run time."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from matmul_support import Kernel

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.contraction.amx import AMX_BF16, AMX_BF16X3, AMX_INT8
from kiln.lowering.cpu.contraction.parts import RANGE_BYTES, FloatWords, Range
from kiln.lowering.cpu.contraction.unit import MatrixUnit
from kiln.lowering.cpu.contraction.words import Lines, Words, pack

pytestmark = pytest.mark.skipif(not isa.host().has("avx512bf16"), reason="a CPU without vectors of 64 bytes")

UNITS = {"bf16": AMX_BF16, "i8": AMX_INT8, "f32": AMX_BF16X3, "i8 as bf16": AMX_BF16}
PITCH = 96  # lines and words that there is room for
SIZES = [(1, 1), (16, 64), (17, 33), (31, 130), (5, 3), (40, 95)]


def operand(kind: str, lines: int, depth: int, layout: str) -> torch.Tensor:
    """Lines by steps of k, "k": neighbours along k, "lines": across lines, "none"; what lies between is 7."""
    if layout == "lines":
        return operand(kind, depth, lines, "k").T
    step = 3 if layout == "none" else 1
    x = torch.randint(-128, 128, (lines, depth * step + 2)) if "i8" in kind else torch.randn(lines, depth * step + 2)
    x = x.to({"bf16": torch.bfloat16, "f32": torch.float32}.get(kind, torch.int8))
    memory = torch.full_like(x, 7)
    memory[:, : depth * step : step] = x[:, : depth * step : step]
    return memory[:, : depth * step : step]


def wanted(x: torch.Tensor, unit: MatrixUnit, kind: str, turned: bool) -> torch.Tensor:
    """[part, line, word], or [part, word, line] if `turned`, padded with zeros, as bytes."""
    lines, depth = x.shape
    if kind == "f32":
        parts, rest = [], x
        for _ in range(3):
            high = (rest.contiguous().view(torch.int32) & -65536).view(torch.float32)
            parts.append(high.bfloat16())
            rest = rest - high
    else:
        parts = [x.bfloat16() if kind == "i8 as bf16" else x]
    unit_depth = 16 * unit.group
    padded = torch.zeros(len(parts), lines, -(-depth // unit_depth) * unit_depth, dtype=parts[0].dtype)
    padded[:, :, :depth] = torch.stack(parts)
    words = padded.view(torch.int32)
    return words.mT if turned else words


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", ["k", "lines", "none"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("kind", list(UNITS))
def test_pack(kind: str, turned: bool, layout: str, dynamic: bool) -> None:
    torch.manual_seed(0)
    unit = UNITS[kind]
    for lines, depth in [(0, 0)] if dynamic else SIZES[1:4:2]:
        kernel = packing(
            kind, turned, operand(kind, lines or 2, depth or 2, layout), None if dynamic else (lines, depth)
        )
        for size in SIZES if dynamic else [(lines, depth)]:
            x = operand(kind, *size, layout)
            whole = wanted(x, unit, kind, turned)
            found = torch.full((whole.shape[0], PITCH, PITCH), -1, dtype=torch.int32)
            symbols = (*size, *x.stride()) if dynamic else ()
            kernel(x, found, symbols=symbols)
            assert torch.equal(found[:, : whole.shape[1], : whole.shape[2]], whole)


def packing(kind: str, turned: bool, x: torch.Tensor, size: tuple[int, int] | None) -> Kernel:
    """A kernel that packs an operand like `x` into [part, PITCH, PITCH] words."""
    unit = UNITS[kind]
    strides = tuple(x.stride())

    def emit(b, buffers, symbols, ctx):
        lines, depth = size or symbols[:2]
        given = [s if s == 1 or size else d for s, d in zip(strides, symbols[2:] or strides, strict=True)]
        source = Lines(buffers[0], *given)
        words = Words(b, source, unit)
        if kind == "f32":
            seen = Range(b, ctx.scratch, 0)
            seen.reset()
            words = FloatWords(b, source, unit, seen)
        place = lambda part, i: (buffers[1], b.addi(i if turned else b.muli(i, PITCH), part * PITCH * PITCH))
        pack(words, 0, lines, depth, place, PITCH, turned=turned)

    dtypes = ["i8" if "i8" in kind else kind, "i32"]
    return Kernel(dtypes, 0 if size else 4, RANGE_BYTES, emit)
