# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How many kernels a model takes: upper bounds, so that a change that breaks fusion apart is seen."""

import pytest
import torch

import kiln
from benchmarks.networks import BUILDERS


def launches(name: str, layers: int) -> tuple[int, int]:
    """(launches, distinct kernels) of one call."""
    torch._dynamo.reset()
    model, make_inputs = BUILDERS[name](layers=layers)
    with torch.no_grad():
        explanation = kiln.explain(model, *make_inputs(torch.Generator().manual_seed(1)), options={"fallback": False})
    (graph,) = explanation.graphs
    return sum(kernel.launches for kernel in graph.kernels), len(graph.kernels)


# A BERT layer: query, key, value, attention, projection, norm, two products with their epilogues, norm.
# A GPT-2 layer: norm, query-key-value, attention, projection, norm, two products.
@pytest.mark.parametrize(("name", "per_layer"), [("bert", 9), ("gpt2", 7), ("llama", 14), ("vit", 9)])
def test_launches_per_layer(name, per_layer):
    one, _ = launches(name, 1)
    two, _ = launches(name, 2)
    assert two - one <= per_layer


def test_identical_layers_share_kernels():
    _, one = launches("bert", 1)
    _, three = launches("bert", 3)
    assert three <= one + 1
