# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention of bf16 by tiles, emulated: head sizes and numbers of keys that are no multiples, masks, strides, threads."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from amx_emulation import EMULATED, emulated_amx
from matmul_support import Machine
from test_attention import check, run
from test_attention_pairs import operands

pytestmark = pytest.mark.skipif(not EMULATED, reason="a CPU that does not run the other instructions of such kernels")

MACHINE = Machine(64, 32)


@pytest.fixture(autouse=True)
def _amx(monkeypatch: pytest.MonkeyPatch):
    with emulated_amx(monkeypatch):
        yield


@pytest.mark.parametrize(("queries", "keys"), [(5, 1), (37, 61), (130, 129)])
@pytest.mark.parametrize(("size", "value_size"), [(64, 64), (33, 17), (8, 80)])
def test_sizes(queries: int, keys: int, size: int, value_size: int) -> None:
    torch.manual_seed(0)
    q, k, v = operands(queries, keys, size, value_size)
    check(run(q, k, v, machine=MACHINE), q, k, v)


def test_causal_and_masks() -> None:
    torch.manual_seed(0)
    q, k, v = operands(70, 70, 40, 24)
    check(run(q, k, v, causal=True, machine=MACHINE), q, k, v, causal=True)
    mask = torch.rand(2, 1, 70, 70) < 0.6
    mask[..., 0] = True
    check(run(q, k, v, mask, machine=MACHINE), q, k, v, mask)


def test_operands_without_unit_stride() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 35, rows).bfloat16().mT for rows in (40, 50, 50))
    check(run(q, k, v, machine=MACHINE), q, k, v)
