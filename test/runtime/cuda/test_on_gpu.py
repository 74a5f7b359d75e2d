# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Compiled functions on an NVIDIA GPU against eager PyTorch in float64; skipped where there is none."""

import copy
from collections.abc import Sequence

import pytest
import torch
import torch.nn.attention
import torch.nn.functional as F
from on_gpu_support import check, compiled, error, randn, wide
from torch import nn

import kiln
from benchmarks.networks import BUILDERS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def test_pointwise_with_broadcasts_and_odd_sizes() -> None:
    for shape in ((1,), (7, 100), (33, 1025), (3, 5, 7, 11)):
        check(lambda x, y: torch.sigmoid(x * 2 + y).relu() - torch.tanh(y), randn(*shape), randn(shape[-1]))


def test_reductions_and_softmax() -> None:
    check(lambda x: (x.sum(0), x.mean(1), x.amax(), torch.softmax(x, -1)), randn(33, 1000))
    check(lambda x: torch.softmax(x, -1), randn(17, 20000))
    check(lambda x: x.cumsum(-1), randn(5, 3000))


def test_a_long_sum_over_many_programs() -> None:
    check(lambda x: (x * x).sum(), randn(1 << 22))
    check(lambda x: x.sum(0), randn(70000, 8), limit=1e-4)


def test_products() -> None:
    for m, n, k in ((1, 64, 64), (16, 48, 100), (37, 70, 50), (256, 512, 128)):
        check(lambda a, b: a @ b, randn(m, k), randn(k, n), limit=1e-4)
        bf16 = torch.bfloat16
        check(lambda a, b, c: F.gelu(F.linear(a, b, c)), randn(m, k, dtype=bf16), randn(n, k, dtype=bf16),
              randn(n, dtype=bf16), limit=2e-2)  # fmt: skip


@pytest.mark.parametrize("size", [48, 64, 200])
@pytest.mark.parametrize("first", ["rows", "columns"])
def test_products_of_one_matrix_with_weights_in_rows_and_in_columns(first: str, size: int) -> None:
    """One buffer of shared memory, read in two layouts: ptxas 12.8 makes wrong code of that."""

    def gated(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.silu(F.linear(x, a)) * F.linear(x, b)

    rows, columns = randn(3072, size, dtype=torch.bfloat16), randn(size, 3072, dtype=torch.bfloat16).t()
    weights = (rows, columns) if first == "rows" else (columns, rows)
    check(gated, randn(1, 64, size, dtype=torch.bfloat16), *weights, limit=2e-2)


def test_attention() -> None:
    q, k, v = (randn(2, 3, 50, 32) for _ in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v, limit=1e-3)
    q, k, v = (randn(2, 4, 128, 64, dtype=torch.bfloat16) for _ in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v, limit=2e-2)


@pytest.mark.parametrize("size", [128, 80])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_large_heads(causal: bool, size: int) -> None:
    """Enough of it that Hopper has warps with different jobs: no whole blocks, grouped heads, slices of a projection."""
    q, kv = randn(2, 700, 16, size, dtype=torch.bfloat16), randn(2, 700, 2, 8, size, dtype=torch.bfloat16)

    def attend(q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        k, v = (x.transpose(1, 2) for x in kv.unbind(2))
        found = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, is_causal=causal, enable_gqa=True)
        return found.transpose(1, 2).flatten(2)

    check(attend, q, kv, limit=1e-2)


def test_a_layer_and_its_gradients() -> None:
    """Eager's own errors set the bound, since PyTorch's attention for f32, the same call in both, is the largest part of
    them: twice eager's leaves room for the other ops' order of sums, and no more."""
    wrong = {name: pair for name, pair in _gradient_errors().items() if pair[0] > max(1e-5, 2 * pair[1])}
    assert not wrong, f"(ours, eager's): {wrong}"


def test_gradients_of_attention_written_out() -> None:
    """Without that call all is in f32, and no error of eager's excuses one of ours."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        wrong = {name: pair for name, pair in _gradient_errors().items() if pair[0] > 1e-5}
    assert not wrong, f"(ours, eager's): {wrong}"


def _gradient_errors() -> dict[str, tuple[float, float]]:
    """Relative errors, ours and eager's, of a transformer layer's results and gradients in two steps."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True, activation="gelu").cuda()
    eager_layer, exact_layer = copy.deepcopy(layer), copy.deepcopy(layer).double()
    run = compiled(layer)
    found: dict[str, tuple[float, float]] = {}
    for step in range(2):
        x = randn(2, 20, 64).requires_grad_()
        eager_x, exact_x = x.detach().clone().requires_grad_(), x.detach().double().requires_grad_()
        weight = randn(2, 20, 64)  # the norm at the end makes the gradient of a plain square vanish
        results = run(x), eager_layer(eager_x), exact_layer(exact_x)
        found[f"result {step}"] = error(results[0], results[2]), error(results[1], results[2])
        for result in results:
            (result * weight.to(result.dtype)).sum().backward()
        assert x.grad is not None and eager_x.grad is not None and exact_x.grad is not None
        found[f"x {step}"] = error(x.grad, exact_x.grad), error(eager_x.grad, exact_x.grad)
    triples = zip(layer.named_parameters(), eager_layer.parameters(), exact_layer.parameters(), strict=True)
    for (name, mine), eager, exact in triples:
        assert mine.grad is not None and eager.grad is not None and exact.grad is not None
        found[name] = error(mine.grad, exact.grad), error(eager.grad, exact.grad)
    return found


def test_dynamic_sizes() -> None:
    run = torch.compile(
        lambda x, b: torch.softmax(x + b, -1), backend=kiln.backend, dynamic=True, options={"fallback": False}
    )
    torch._dynamo.reset()
    for m, n in ((3, 5), (64, 100), (200, 1030), (1, 7)):
        x, b = randn(m, n), randn(n)
        assert error(run(x, b), torch.softmax(x.double() + b.double(), -1)) < 1e-5


@pytest.mark.parametrize("size", [16, 32, 64])
def test_the_gradient_of_a_causal_softmax_over_rows_of_unknown_number(size: int) -> None:
    """Triton 3.6's LLVM compared columns with rows or'ed with half of the program's number (vector_flags.py)."""

    def gradient(g: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        product = g.to(p.dtype) * p
        found = (product - p * product.sum(-1, keepdim=True)).to(g.dtype)
        found = found.masked_fill(torch.ones(size, size, dtype=torch.bool, device="cuda").triu(1), 0)
        return found.to(p.dtype).sum(0), found * 0.125

    run = compiled(gradient)
    for rows in (5, 3, 70):
        given = randn(rows, 4, size, size, dtype=torch.bfloat16), randn(rows, 4, size, size).abs()
        for x in given:
            torch._dynamo.mark_dynamic(x, 0)
        for found, exact in zip(run(*given), gradient(*map(wide, given)), strict=True):
            assert error(found, exact) < 1e-2


@pytest.mark.parametrize("name", BUILDERS)
def test_networks(name: str) -> None:
    model, make = BUILDERS[name]()
    inputs: Sequence[torch.Tensor] = [t.cuda() for t in make(torch.Generator().manual_seed(0))]
    check(model.cuda(), *inputs, limit=1e-3)


@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "groups", "size"),
    [
        (3, 64, 7, 2, 1, 63),  # pixels of a stride's step as channels
        (3, 64, 11, 4, 1, 65),
        (4, 32, 5, 2, 1, 64),
        (256, 128, 1, 2, 1, 28),
        (128, 128, 3, 1, 1, 28),
        (32, 32, 3, 1, 1, 112),
        (96, 96, 3, 1, 96, 57),
        (384, 384, 3, 1, 384, 7),
    ],
)
def test_convolutions(channels: int, outputs: int, kernel: int, stride: int, groups: int, size: int) -> None:
    last = torch.channels_last
    x = randn(8, channels, size, size).bfloat16().contiguous(memory_format=last)
    w = randn(outputs, channels // groups, kernel, kernel).bfloat16().contiguous(memory_format=last)
    scale, bias = randn(outputs, 1, 1), randn(outputs, 1, 1)

    def block(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.relu(F.conv2d(x, w, None, stride, kernel // 2, 1, groups) * scale + bias)

    check(block, x, w, limit=1e-2)


def test_products_with_any_number_of_rows() -> None:
    w, b = randn(1024, 1032).bfloat16() / 32, randn(1024).bfloat16()
    run = compiled(lambda x: F.linear(x, w, b))
    with torch.no_grad():
        for rows in (64, 1000, 3, 64):
            x = randn(rows, 1032).bfloat16()
            torch._dynamo.mark_dynamic(x, 0)
            assert error(run(x), F.linear(x.double(), w.double(), b.double())) < 6e-3


def test_logits_whose_rows_start_anywhere() -> None:
    x, w = randn(300, 512).bfloat16(), randn(5027, 512).bfloat16() / 16
    check(lambda x, w: F.linear(x, w), x, w, limit=6e-3)


class FoldedWeights(nn.Module):
    """Weights that are concatenated and scaled at each call, a batch norm behind a convolution, a table of constants."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(16, 64) / 4) for _ in range(2)])
        self.register_buffer("table", torch.rand(128, 24), persistent=False)
        assert self.norm.running_mean is not None
        nn.init.uniform_(self.norm.running_mean, 0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.relu(self.norm(self.conv(x))).mean((2, 3))
        return torch.softmax(torch.tanh(pooled @ (torch.cat(list(self.weights), 1) * 2)) @ self.table.sqrt(), -1)


def test_freezing() -> None:
    """Folded constants are on the GPU, and parameters that change are seen."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        model = FoldedWeights().eval().cuda()
        run = compiled(model, freezing=True)
        with torch.no_grad():
            for change in (None, None, lambda: model.weights[0].mul_(3), lambda: model.norm.reset_running_stats()):
                if change is not None:
                    change()
                x = randn(5, 3, 19, 17)
                assert error(run(x), copy.deepcopy(model).double()(x.double())) < 1e-5


def test_freezing_of_weights_through_tensor_maps() -> None:
    model = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.Tanh()).bfloat16().eval().cuda()
    exact, run = copy.deepcopy(model).double(), compiled(model, freezing=True)
    with torch.no_grad():
        for _ in range(3):
            x = randn(300, 64, dtype=torch.bfloat16)
            assert error(run(x), exact(x.double())) < 1e-2


def test_tensor_maps_of_any_number_of_rows() -> None:
    """Kiln's own products and attention, with descriptors for each size; also where there is nothing."""
    bf16 = torch.bfloat16
    layers = nn.Sequential(nn.Linear(72, 1096), nn.GELU(), nn.Linear(1096, 520), nn.Tanh()).to(bf16).cuda()
    exact, run = copy.deepcopy(layers).double(), compiled(layers)
    attention = compiled(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    scores = compiled(lambda q, k: torch.relu(q @ k.mT))
    with torch.no_grad():
        for batch, rows in ((3, 700), (2, 129), (5, 3), (2, 2048)):
            x = randn(batch, rows, 72, dtype=bf16)
            q, k, v = (randn(batch, 4, rows, 64, dtype=bf16) for _ in range(3))
            for tensor, dims in ((x, (0, 1)), (q, (0, 2)), (k, (0, 2)), (v, (0, 2))):
                for dim in dims:
                    torch._dynamo.mark_dynamic(tensor, dim)
            assert error(run(x), exact(x.double())) < 1e-2
            a, b, c = (t.double() for t in (q, k, v))
            assert error(attention(q, k, v), F.scaled_dot_product_attention(a, b, c)) < 2e-2
            assert error(scores(q, k), torch.relu(a @ b.mT)) < 1e-2
        q, k = randn(2, 4, 70, 64, dtype=bf16), randn(2, 4, 0, 64, dtype=bf16)
        assert scores(q, k).shape == (2, 4, 70, 0)


def test_products_of_rows_that_start_anywhere() -> None:
    """Operands of any order that are padded; the result's rows start anywhere, too."""
    x, y = randn(2049, 2051, dtype=torch.bfloat16), randn(2051, 2053, dtype=torch.bfloat16)
    check(lambda x, y: x @ y, x, y, limit=6e-3)
    check(lambda x, y: torch.tanh(x.mT @ y), randn(2051, 2049, dtype=torch.bfloat16), y, limit=6e-3)
    a, b = randn(4, 1023, 1023, dtype=torch.bfloat16), randn(4, 1023, 1021, dtype=torch.bfloat16)
    check(lambda a, b: a @ b, a, b, limit=6e-3)
