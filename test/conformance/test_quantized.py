# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs that make quantized tensors: eager's results, with the reason why they run with ATen."""

import pytest
import torch

from kiln.frontend.report import collect

from .conftest import assert_same

IN_A_GRAPH = torch.__version__ >= (2, 12)
"""PyTorch breaks the graph at ops that it cannot trace: quantize_per_channel, and in 2.11 quantize_per_tensor."""


def per_tensor(x):
    return torch.quantize_per_tensor(x * 3, 0.1, 2, torch.qint8).dequantize() * 2


def per_channel(x):
    scales, zeros = torch.full((x.shape[0],), 0.1), torch.zeros(x.shape[0], dtype=torch.int64)
    return torch.quantize_per_channel(x, scales, zeros, 0, torch.quint8).dequantize() + 1


def kept(x):
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    return quantized.int_repr() + 1, quantized.dequantize()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("fn", "is_traced"),
    [(per_tensor, IN_A_GRAPH), (per_channel, False), (kept, IN_A_GRAPH)],
    ids=["per tensor", "per channel", "integers"],
)
def test_quantized_tensors_in_a_graph(fn, is_traced, dynamic):
    compiled = torch.compile(fn, backend="kiln", dynamic=dynamic)
    with collect() as reports:
        for rows in (4, 7):
            x = torch.randn(rows, 5)
            assert_same(compiled(x), fn(x))
    reasons = [report.fallback_reason for report in reports if report.executor == "aten"]
    assert bool(reasons) == is_traced
    assert all("is quantized (torch.q" in reason for reason in reasons)
