# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The counts of `benchmarks.proofs`."""

import json
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.proofs import _text, row_of
from kiln.lowering.gpu.builder import Builder


def mlp() -> tuple[nn.Module, list[torch.Tensor], bool]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 50), nn.GELU(), nn.LayerNorm(50)), [torch.randn(7, 40)], True


def test_a_model_is_counted_forward_and_backward() -> None:
    row = row_of("mlp", mlp)
    assert row.kernels > 3 and row.proved > row.kernels and not row.refuted and not row.error
    totals = json.loads(_text([asdict(row)]))["totals"]
    assert totals["kernels"] == row.kernels and totals["unknown"] == sum(row.unknown.values())


@pytest.mark.planted
def test_what_is_refuted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Builder.store

    def unmasked(b: Builder, pointer: Any, value: Any, mask: Any = None, *rest: Any) -> None:
        store(b, pointer, value, None, *rest)

    monkeypatch.setattr(Builder, "store", unmasked)
    row = row_of("mlp", mlp)
    assert row.refuted and all("refuted" in line for line in row.refuted) and not row.error


def test_a_model_that_fails() -> None:
    row = row_of("nothing", lambda: 1 // 0)
    assert row.error.startswith("ZeroDivisionError") and row.kernels == 0
