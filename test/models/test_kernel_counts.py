# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""How many kernels a model takes, pinned: a change that breaks fusion apart is seen."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import kiln
from benchmarks.networks import BUILDERS
from kiln.frontend.report import CompileReport


def compiled(call, *inputs) -> CompileReport:
    """The report of the one graph that `call(*inputs)` is."""
    torch._dynamo.reset()
    with torch.no_grad():
        (graph,) = kiln.explain(call, *inputs, options={"fallback": False}).graphs
    return graph


def launches(graph: CompileReport) -> int:
    """Launches of kernels and ATen calls of one call of the graph."""
    return sum(kernel.launches for kernel in graph.kernels) + len(graph.aten_calls)


def network(name: str, layers: int, batch: int = 2) -> CompileReport:
    model, make_inputs = BUILDERS[name](layers=layers, batch=batch)
    return compiled(model, *make_inputs(torch.Generator().manual_seed(1)))


# BERT, GPT-2, ViT: query, key and value; attention; projection, residual and norm; the first product with its
# activation; the second one with residual and norm. Llama: the rotation of queries and keys between the first two.
# T5: five of the encoder; eight of the decoder, whose layers attend to the encoder, too.
@pytest.mark.parametrize(("name", "per_layer"), [("bert", 5), ("gpt2", 5), ("vit", 5), ("llama", 6), ("t5", 13)])
def test_launches_per_layer(name, per_layer):
    assert launches(network(name, 2)) - launches(network(name, 1)) == per_layer


@pytest.mark.parametrize(("name", "per_layer"), [("bert", 5), ("llama", 6)])
def test_one_sequence_takes_no_more(name, per_layer):
    """A dim of size 1 has no loop, and must not look like one."""
    assert launches(network(name, 2, batch=1)) - launches(network(name, 1, batch=1)) == per_layer


def test_identical_layers_share_kernels():
    assert len(network("bert", 3).kernels) <= len(network("bert", 1).kernels) + 1


@pytest.mark.parametrize("shape", [(9, 33), (4, 6, 50)])
def test_softmax(shape):
    assert launches(compiled(lambda x: F.softmax(x, -1), torch.randn(shape))) == 1


def test_layer_norm_with_residual():
    norm = nn.LayerNorm(48)
    graph = compiled(lambda x, y: norm(x + y), torch.randn(7, 48), torch.randn(7, 48))
    assert launches(graph) == 1


@pytest.mark.parametrize("groups", [1, 8, 32])
@pytest.mark.parametrize("shape", [(2, 32, 9, 7), (3, 32, 50), (1, 32, 8, 8)])
def test_group_norm(groups, shape):
    """The weights and the activation are in the loops of the reductions, on the other side of a reshape."""
    model = nn.Sequential(nn.GroupNorm(groups, 32), nn.SiLU())
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(shape)
    assert launches(compiled(model, x)) == 1
    with torch.no_grad():
        result = torch.compile(model, backend=kiln.backend, options={"fallback": False})(x)
        exact = model.double()(x.double())
    assert (result.double() - exact).norm() <= 1e-6 * exact.norm()


def group_norm_written_out(x, weight, bias, groups=4):
    rows = x.reshape(x.shape[0], groups, -1)
    rows = rows - rows.mean(-1, keepdim=True)
    rows = rows / torch.sqrt((rows**2).mean(-1, keepdim=True) + 1e-5)
    return torch.relu(rows.reshape(x.shape) * weight[:, None, None] + bias[:, None, None])


@pytest.mark.parametrize("shape", [(2, 32, 9, 7), (1, 4, 3, 5), (3, 8, 1, 1)])
def test_group_norm_written_out(shape):
    """Rows of all elements of a group, which the reshape behind the norm takes apart."""
    x, weight, bias = torch.randn(shape), torch.randn(shape[1]), torch.randn(shape[1])
    assert launches(compiled(group_norm_written_out, x, weight, bias)) == 1
    call = torch.compile(group_norm_written_out, backend=kiln.backend, options={"fallback": False})
    exact = group_norm_written_out(x.double(), weight.double(), bias.double())
    assert (call(x, weight, bias).double() - exact).norm() <= 2e-6 * exact.norm()


@pytest.mark.parametrize("rows", [3, 160])
def test_mlp(rows):
    mlp = nn.Sequential(nn.Linear(40, 96), nn.GELU(), nn.Linear(96, 40))
    assert launches(compiled(mlp, torch.randn(rows, 40))) == 2


class Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, channels: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.norm1(self.first(x)))
        return torch.relu(x + self.norm2(self.second(hidden)))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_residual_block(memory_format):
    block = Residual(16).eval().to(memory_format=memory_format)
    assert launches(compiled(block, torch.randn(2, 16, 14, 14).to(memory_format=memory_format))) == 2


def several_reductions(x):
    return x.sum(-1), x.amax(-1), (x * x).mean(-1), torch.relu(x)


def rows_and_columns(x):
    return x.sum(0), x.amax(1), x.exp()


def split_of_cat(a, b):
    """What a split, a slice and a reshape take of a concatenation, which is never made."""
    whole = torch.cat((a, b), 1)
    first, second = whole.split((a.shape[1], b.shape[1]), 1)
    return first.exp() + whole[:, 1 : a.shape[1] + 1].flip(1), second.sum(1), whole[:, a.shape[1] :].reshape(-1) * 2


def rotations(q, k, cos, sin):
    def rotate(x):
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    return rotate(q), rotate(k)


@pytest.mark.parametrize(
    ("call", "shapes"),
    [
        (several_reductions, [(33, 65)]),
        (several_reductions, [(1, 1)]),
        (rows_and_columns, [(33, 65)]),
        (rotations, [(2, 4, 5, 8), (2, 2, 5, 8), (5, 8), (5, 8)]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_siblings(call, shapes, dtype):
    """What reads the same value is one kernel, and right."""
    inputs = [torch.randn(shape).to(dtype) for shape in shapes]
    assert launches(compiled(call, *inputs)) == 1
    with torch.no_grad():
        results = torch.compile(call, backend=kiln.backend, options={"fallback": False})(*inputs)
        eager, exact = call(*inputs), call(*(x.double() for x in inputs))
    for got, plain, e in zip(results, eager, exact, strict=True):
        assert got.stride() == plain.stride()
        scale = e.norm().clamp(min=1e-30)
        error, allowed = (got.double() - e).norm() / scale, (plain.double() - e).norm() / scale
        assert error <= max(3 * allowed, 2e-7 if dtype == torch.float32 else 4e-3)


@pytest.mark.parametrize("dynamic", [False, True])
def test_split_of_cat(dynamic):
    torch._dynamo.reset()
    call = torch.compile(split_of_cat, backend=kiln.backend, dynamic=dynamic, options={"fallback": False})
    for a, b in (((6, 5), (6, 4)), ((1, 3), (1, 9)), ((40, 2), (40, 2))):
        x, y = torch.randn(a), torch.randn(b)
        for got, exact in zip(call(x, y), split_of_cat(x.double(), y.double()), strict=True):
            assert (got.double() - exact).norm() <= 1e-6 * exact.norm()


def test_slices_of_a_cat_share_no_memory():
    """A returned slice of a concatenation is new memory, not the operand that it holds."""

    def call(a, b):
        whole = torch.cat((a, b), 1)
        return whole[:, :3], whole[:, 3:], whole[:, :3].neg()

    inputs = torch.randn(4, 3), torch.randn(4, 2)
    torch._dynamo.reset()
    results = torch.compile(call, backend=kiln.backend, options={"fallback": False})(*inputs)
    pointers = {x.untyped_storage().data_ptr() for x in inputs}
    assert all(x.untyped_storage().data_ptr() not in pointers for x in results)
    assert all(torch.equal(x, y) and x.stride() == y.stride() for x, y in zip(results, call(*inputs), strict=True))


def test_siblings_of_dynamic_sizes():
    compiled_call = torch.compile(several_reductions, backend=kiln.backend, dynamic=True, options={"fallback": False})
    for shape in ((6, 40), (65, 3), (2, 700)):
        x = torch.randn(shape)
        for got, exact in zip(compiled_call(x), several_reductions(x.double()), strict=True):
            assert (got.double() - exact).norm() <= 1e-6 * exact.norm()


def shifted_products(x):
    y = torch.tanh(x * 2 + 1) * 3
    return y[:, :-2] * y[:, 1:-1] - y[:, 2:].flip(1)


@pytest.mark.parametrize("shape", [(6, 19), (1, 3), (3, 40)])
def test_read_at_several_indices(shape):
    """What is below a value that is read at several indices joins its readers, too."""
    x = torch.randn(shape)
    assert launches(compiled(shifted_products, x)) == 1
    with torch.no_grad():
        result = torch.compile(shifted_products, backend=kiln.backend, options={"fallback": False})(x)
        exact = shifted_products(x.double())
    assert (result.double() - exact).norm() <= 1e-6 * exact.norm()


@pytest.mark.parametrize("shape", [(1, 65), (40, 65), (3, 7, 65)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_column(shape, dtype):
    """The epilogue of a product whose result has one column."""
    model = nn.Sequential(nn.Linear(65, 1), nn.Sigmoid()).to(dtype)
    x = torch.randn(shape).to(dtype)
    assert launches(compiled(model, x)) == 1
    with torch.no_grad():
        result, eager = torch.compile(model, backend=kiln.backend, options={"fallback": False})(x), model(x)
        exact = model.double()(x.double())
    error, allowed = (result.double() - exact).norm() / exact.norm(), (eager.double() - exact).norm() / exact.norm()
    assert error <= max(3 * allowed, 2e-7 if dtype == torch.float32 else 4e-3)
