# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention of bf16 in pairs: head sizes and numbers of keys that are no multiples, few queries, masks, strides."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from matmul_support import Machine
from test_attention import check, run

from kiln.lowering.cpu import isa

pytestmark = pytest.mark.skipif(not isa.host().has("avx512bf16"), reason="a CPU without the instruction")

MACHINE = Machine(64, 32)


def operands(queries: int, keys: int, size: int, value_size: int, kv_heads: int = 2) -> list[torch.Tensor]:
    """Queries, keys and values of 2 x 4 heads with NaN behind each row."""
    found = []
    for heads, rows, columns in ((4, queries, size), (kv_heads, keys, size), (kv_heads, keys, value_size)):
        memory = torch.full((2, heads, rows, columns + 5), torch.nan, dtype=torch.bfloat16)
        memory[..., :columns] = torch.randn(2, heads, rows, columns)
        found.append(memory[..., :columns])
    return found


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 77), (3, 130), (37, 61), (130, 129)])
@pytest.mark.parametrize(("size", "value_size"), [(64, 64), (33, 17), (8, 80), (1, 1)])
def test_sizes(queries: int, keys: int, size: int, value_size: int) -> None:
    torch.manual_seed(0)
    q, k, v = operands(queries, keys, size, value_size)
    check(run(q, k, v, machine=MACHINE), q, k, v)


@pytest.mark.parametrize("queries", [2, 70])
def test_causal_and_masks(queries: int) -> None:
    torch.manual_seed(0)
    q, k, v = operands(queries, 70, 40, 24)
    check(run(q, k, v, causal=True, machine=MACHINE), q, k, v, causal=True)
    mask = torch.rand(2, 1, queries, 70) < 0.6
    mask[..., 0] = True
    check(run(q, k, v, mask, machine=MACHINE), q, k, v, mask)


@pytest.mark.parametrize("queries", [3, 40])
def test_operands_without_unit_stride(queries: int) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 35, rows).bfloat16().mT for rows in (queries, 50, 50))
    check(run(q, k, v, machine=MACHINE), q, k, v)
