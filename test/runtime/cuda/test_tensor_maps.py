# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Tensor maps of sizes known at run time, on the emulated GPU: one compilation, a descriptor encoded for each size."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_micro import own_kernels
from test_networks import compiled, error
from torch import nn

import kiln

BF16 = torch.bfloat16


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape).to(BF16)


def check(
    gpu: Any, function: Callable[..., Any], calls: Sequence[Sequence[torch.Tensor]], maps: int, dims: int
) -> None:
    """All calls share one graph, whose kernels have so many descriptors; the first `dims` dims have any size. What a
    library would compute has a kernel."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any], **given: Any) -> Any:
        graphs.append(graph)
        return kiln.backend(graph, inputs, options={"fallback": False, "cache": False, "pipeline": own_kernels()})

    run = torch.compile(function, backend=backend, fullgraph=True)
    exact = copy.deepcopy(function).double() if isinstance(function, nn.Module) else function
    with torch.no_grad():
        for given in calls:
            for x in given:
                for dim in range(dims):
                    torch._dynamo.mark_dynamic(x, dim)
            result, expected = run(*given), exact(*(x.double() for x in given))
            assert error(result, expected) < 6e-3, [tuple(x.shape) for x in given]
    assert len(graphs) == 1
    assert sum(map(len, gpu.descriptors.values())) == maps


class Layers(nn.Module):
    """Two linear layers with a function behind each; the second weight is [k, n]."""

    def __init__(self, inner: int, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first = nn.Linear(72, inner).to(BF16)
        self.second = nn.Parameter(randn(inner, 520) / inner**0.5)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.function(self.first(x)) @ self.second)


def test_any_number_of_rows(gpu) -> None:
    """Weights of either order; batch and sequence are one tall product, of which nothing but the count changes."""
    sizes = [(2, 70), (3, 129), (5, 3), (2, 64)]
    check(gpu, Layers(1096, F.gelu), [[randn(a, b, 72)] for a, b in sizes], maps=4, dims=2)
    assert len(gpu.encoded) > 8


def test_descriptors_are_encoded_again_only_when_something_changed(gpu) -> None:
    layer = nn.Linear(64, 1024, bias=False).to(BF16).requires_grad_(False)
    inputs = [randn(300, 64), randn(77, 64)]
    run = compiled(lambda x: torch.tanh(layer(x)))
    for x in inputs:
        torch._dynamo.mark_dynamic(x, 0)
    weight = layer.weight.double()
    changed = []
    for i in (0, 1, 1, 0, 0):
        before = len(gpu.encoded)
        assert error(run(inputs[i]), torch.tanh(inputs[i].double() @ weight.T)) < 6e-3
        changed.append(len(gpu.encoded) - before)
    # Each size has a table of its own, which knows what its descriptors were made by.
    assert changed == [2, 2, 0, 2, 0]


def test_batches_and_sums_of_any_length(gpu) -> None:
    """[b, t, 128]^T @ [b, t, 128]: rows, columns and strides of a matrix are known, the batch and the sums are not."""
    calls = [[randn(b, t, 128), randn(b, t, 128)] for b, t in ((16, 500), (2, 33), (7, 128))]
    check(gpu, lambda x, y: torch.relu(x.mT @ y), calls, maps=2, dims=2)


def test_columns_of_any_number(gpu) -> None:
    """Scores: as many columns as keys."""
    calls = [[randn(b, t, 64), randn(b, t, 64)] for b, t in ((16, 500), (2, 33), (4, 257))]
    check(gpu, lambda x, y: torch.relu(x @ y.mT), calls, maps=2, dims=2)


def test_rows_that_start_anywhere_are_loaded_through_pointers(gpu) -> None:
    """Rows as long as the sums, which may be no multiple of 16 bytes."""
    calls = [[randn(9, t), randn(t, 72)] for t in (100, 33, 64)]
    run = compiled(lambda x, y: torch.relu(x @ y))
    for x, y in calls:
        torch._dynamo.mark_dynamic(x, 1)
        torch._dynamo.mark_dynamic(y, 0)
        assert error(run(x, y), torch.relu(x.double() @ y.double())) < 6e-3
    assert len(gpu.kernels) == 1 and not gpu.descriptors


@pytest.mark.parametrize("causal", [False, True])
def test_attention_of_any_length(gpu, causal: bool) -> None:
    """Queries, keys and values are slices of one projection, heads behind tokens."""

    def model(x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, 64)).transpose(1, 2) for t in x.chunk(3, dim=-1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    check(gpu, model, [[randn(b, t, 384)] for b, t in ((2, 100), (3, 17), (2, 300))], maps=2, dims=2)


def test_attention_to_nothing(gpu) -> None:
    """No keys: the driver takes no descriptor of an empty tensor."""

    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v)

    run = compiled(model)
    q = randn(2, 2, 70, 64)
    for keys in (40, 70, 0):
        k, v = randn(2, 2, keys, 64), randn(2, 2, keys, 64)
        for t in (k, v):
            torch._dynamo.maybe_mark_dynamic(t, 2)
        expected = model(q.double(), k.double(), v.double())
        found = run(q, k, v)
        assert torch.equal(found.isnan(), expected.isnan())
        assert error(found.nan_to_num(), expected.nan_to_num()) < 6e-3


def test_persistent_programs_without_a_tile(gpu) -> None:
    """A grid for many rows, called with few: some programs have nothing to do."""
    check(gpu, Layers(16640, torch.relu), [[randn(n, 72)] for n in (300, 2, 130)], maps=4, dims=1)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_large_weights_are_the_library_s_for_any_number_of_rows(gpu, approximate: str) -> None:
    """It has an algorithm for each number; what follows is one kernel for all."""
    layer = nn.Linear(1024, 1032).to(BF16).requires_grad_(False)
    run, exact = compiled(lambda x: F.gelu(layer(x), approximate=approximate) * 2), copy.deepcopy(layer).double()
    for rows in (30, 7, 64):
        x = randn(rows, 1024)
        torch._dynamo.mark_dynamic(x, 0)
        assert error(run(x), F.gelu(exact(x.double()), approximate=approximate) * 2) < 6e-3
    assert [sorted(sizes) for *sizes, _ in gpu.library.calls] == [[n, 1024, 1032] for n in (30, 7, 64)]
    assert len(gpu.kernels) == 1
