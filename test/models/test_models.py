# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whole models: right on several inputs, strides kept, and no ATen call but the known ones."""

import pytest
import torch

import kiln
from benchmarks.networks import BUILDERS

#: What is left to ATen, by model, and why. Everything else is Kiln's.
ATEN_CALLS: dict[str, list[tuple[str, str]]] = {}


@pytest.mark.parametrize("name", BUILDERS)
def test_model(name, check_model):
    model, make_inputs = BUILDERS[name]()
    generator = torch.Generator().manual_seed(1)
    (report,) = check_model(model, make_inputs(generator), make_inputs(generator))
    calls = [(call.op, call.reason.partition(";")[0]) for call in report.aten_calls]
    assert calls == ATEN_CALLS.get(name, [])


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


def test_splats_that_products_read():
    """Splats and iotas are computed inside of kernels, but a product reads its operands in memory."""

    def function(q, k, v):
        mask = torch.zeros(1, 2, 6, 6)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return torch.ones(5, 6) @ attended @ torch.arange(12.0).view(4, 3) + torch.arange(3.0)

    arguments = [torch.randn(1, 2, 6, 4) for _ in range(3)]
    with torch.no_grad():
        compiled = torch.compile(function, backend=kiln.backend, fullgraph=True, options={"fallback": False})
        torch.testing.assert_close(compiled(*arguments), function(*arguments), rtol=1e-5, atol=1e-4)
