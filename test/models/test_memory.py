# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Memory of whole models: never more traffic, and never a higher peak, than eager's operators one by one."""

import pytest
import torch

import kiln
from benchmarks.networks import BUILDERS

#: One layer is enough: the others are the same.
LAYERED = ("bert", "gpt2", "llama", "t5", "vit")


@pytest.mark.parametrize("name", [*LAYERED, "resnet18", "mobilenet_v2", "convnext", "swin", "unet", "lstm"])
def test_never_more_than_eager(name):
    model, make_inputs = BUILDERS[name](**({"layers": 1} if name in LAYERED else {}))
    with torch.no_grad():
        explanation = kiln.explain(model, *make_inputs(torch.Generator().manual_seed(1)), options={"fallback": False})
    for graph in explanation.graphs:
        assert graph.memory is not None and graph.eager_memory is not None
        assert graph.memory.moved <= graph.eager_memory.moved
        assert graph.memory.peak <= graph.eager_memory.peak
    assert "bytes read and written" in str(explanation)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_outputs_beside_intermediates(name):
    """Large logits, whose memory holds the intermediates of the layers before; several layers."""
    width = {"layers": 2, "width": 128, "heads": 4, "batch": 1, "length": 64, "vocabulary": 1000}
    model, make_inputs = BUILDERS[name](**width)
    with torch.no_grad():
        (graph,) = kiln.explain(
            model, *make_inputs(torch.Generator().manual_seed(1)), options={"fallback": False}
        ).graphs
    assert graph.memory is not None and graph.eager_memory is not None
    assert graph.memory.peak <= graph.eager_memory.peak
