# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whole models: right on several inputs, strides kept, no more kernels and ATen calls than listed."""

from collections import Counter

import pytest
import torch

import kiln
from benchmarks.networks import BUILDERS

# ATen calls a model may keep per call: convolutions go to the vendor where choose-vendor expects it faster.
ALLOWED_ATEN: dict[str, set[str]] = {
    "bert": set(),
    "gpt2": set(),
    "llama": set(),
    "t5": set(),
    "vit": {"aten.convolution.default"},
    "resnet18": {"aten.convolution.default"},
    "mobilenet_v2": {"aten.convolution.default"},
}


@pytest.mark.parametrize("name", BUILDERS)
def test_model(name, check_model):
    model, make_inputs = BUILDERS[name]()
    generator = torch.Generator().manual_seed(1)
    (report,) = check_model(model, make_inputs(generator), make_inputs(generator))
    left = Counter(call.op for call in report.aten_calls)
    assert set(left) <= ALLOWED_ATEN[name], left


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_no_aten_call_is_left(name):
    model, make_inputs = BUILDERS[name]()
    with torch.no_grad():
        explanation = kiln.explain(model, *make_inputs(torch.Generator().manual_seed(1)), options={"fallback": False})
    print(explanation)
    assert len(explanation.graphs) == 1
    assert not explanation.graph_breaks
    assert explanation.aten_calls == []
    assert "no ATen call is left" in str(explanation)


def launches(name: str, layers: int) -> int:
    model, make_inputs = BUILDERS[name](layers=layers)
    torch._dynamo.reset()
    with torch.no_grad():
        explanation = kiln.explain(model, *make_inputs(torch.Generator().manual_seed(1)))
    return sum(kernel.launches for graph in explanation.graphs for kernel in graph.kernels)
