# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of 8-bit integers: exact for all sizes, strides and instruction sets, with what follows them fused."""

import pytest
import torch
from torch import nn

import kiln
from kiln.lowering.cpu import isa

CPUS = ["native", *(["x86-64-v4"] if isa.host().has("avx512vl") else []), "x86-64-v3", "x86-64"]


def integers(*sizes: int) -> torch.Tensor:
    return torch.randint(-128, 128, sizes, dtype=torch.int8)


def scaled(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    return torch._int_mm(x, w).float() * s


def check(x: torch.Tensor, w: torch.Tensor, cpu: str = "native", dynamic: bool = False) -> None:
    """One kernel, whose sums are those of 64-bit integers, wrapped."""
    s = torch.rand(w.shape[1])
    torch._dynamo.reset()
    compiled = torch.compile(
        scaled, backend=kiln.backend, fullgraph=True, dynamic=dynamic, options={"cpu": cpu, "fallback": False}
    )
    exact = (x.long() @ w.long()).to(torch.int32)
    torch.testing.assert_close(compiled(x, w, s), exact.float() * s, rtol=0, atol=0)
    (graph,) = kiln.explain(scaled, x, w, s).graphs
    assert [k.kind for k in graph.kernels] == ["matmul"]


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("m,n,k", [(1, 31, 130), (3, 16, 64), (8, 5, 7), (9, 33, 65), (37, 50, 1100), (300, 100, 3)])
def test_sizes(cpu: str, m: int, n: int, k: int) -> None:
    """Weights as layers have them (`[n, k]`), and as `torch.mm` takes them."""
    torch.manual_seed(0)
    check(integers(m, k), integers(n, k).t(), cpu)
    check(integers(m, k), integers(k, n), cpu)


@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_strides(cpu: str) -> None:
    torch.manual_seed(0)
    check(integers(70, 20).t(), integers(70, 33), cpu)
    check(integers(20, 140)[:, ::2], integers(70, 66)[:, ::2], cpu)
    check(integers(3, 140)[:, 5:75], integers(66, 80).t()[3:73], cpu)


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("cpu", CPUS)
def test_extremes(cpu: str, rows: int) -> None:
    """Products of the least numbers do not saturate; zeros and ones stay what they are."""
    for left, right in ((-128, -128), (-128, 127), (127, -128), (0, -128), (1, 1)):
        check(torch.full((rows, 700), left, dtype=torch.int8), torch.full((40, 700), right, dtype=torch.int8).t(), cpu)


def test_dynamic_sizes() -> None:
    torch.manual_seed(0)
    compiled = torch.compile(scaled, backend=kiln.backend, fullgraph=True, dynamic=True, options={"fallback": False})
    torch._dynamo.reset()
    for m, n, k in ((5, 40, 70), (64, 17, 1500), (8, 8, 9), (9, 3, 600)):
        for w in (integers(n, k).t(), integers(k, n)):
            x, s = integers(m, k), torch.rand(n)
            exact = (x.long() @ w.long()).to(torch.int32).float() * s
            torch.testing.assert_close(compiled(x, w, s), exact, rtol=0, atol=0)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_sums_as_the_result(cpu: str, dynamic: bool) -> None:
    """Made where the result is, if tiles are known to be whole: pieces of k are added there."""
    torch.manual_seed(0)

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x, w)

    torch._dynamo.reset()
    options = {"fallback": False, "cpu": cpu}
    compiled = torch.compile(product, backend=kiln.backend, fullgraph=True, dynamic=dynamic, options=options)
    for m, n, k in ((64, 17, 1500), (9, 3, 600), (24, 192, 4200), (131, 100, 2049)):
        for w in (integers(n, k).t(), integers(k, n)):
            x = integers(m, k)
            assert torch.equal(compiled(x, w), (x.long() @ w.long()).to(torch.int32))


@pytest.mark.parametrize("m,n,k", [(600, 200, 70), (523, 97, 5), (20, 50, 4200), (1030, 16, 64)])
def test_rows_in_place(m: int, n: int, k: int) -> None:
    """Blocks that share rows or columns, the last steps of k that are no group, pieces of k; one thread and two. Nothing
    behind a row is read: it would change the sums."""
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    for w in (integers(n, k).t(), integers(k, n)):
        x = integers(m, k + 3)[:, :k]
        exact = (x.long() @ w.long()).to(torch.int32)
        torch._dynamo.reset()
        compiled = torch.compile(torch._int_mm, backend=kiln.backend, dynamic=False, options={"fallback": False})
        try:
            for count in (1, 2):
                torch.set_num_threads(count)
                assert torch.equal(compiled(x, w), exact)
        finally:
            torch.set_num_threads(threads)


@pytest.mark.parametrize("freezing", [False, True])
def test_quantised_layer(freezing: bool) -> None:
    """A layer with rows quantised as they come: the product's kernel has all that follows."""
    torch.manual_seed(0)

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight, self.scale = nn.Parameter(integers(48, 100), requires_grad=False), nn.Parameter(torch.rand(48))
            self.bias = nn.Parameter(torch.randn(48))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-6) / 127
            rows = torch.round(x / scale).clamp(-128, 127).to(torch.int8)
            sums = torch._int_mm(rows, self.weight.t())
            return torch.relu(sums.float() * scale * self.scale + self.bias)

    module, x = Linear().eval(), torch.randn(20, 100)
    torch._dynamo.reset()
    with torch.no_grad():
        options = {"freezing": freezing, "fallback": False}
        result = torch.compile(module, backend=kiln.backend, fullgraph=True, options=options)(x)
        torch.testing.assert_close(result, module(x), rtol=1e-6, atol=1e-6)
        (graph,) = kiln.explain(module, x).graphs
    assert len(graph.kernels) == 2


def test_no_terms_and_no_rows() -> None:
    check(torch.empty(4, 0, dtype=torch.int8), torch.empty(0, 20, dtype=torch.int8))
    check(torch.empty(0, 8, dtype=torch.int8), integers(8, 20))


class Frozen(nn.Module):
    """A product with a constant weight of `n` outputs, stored as layers have it or as `torch.mm` takes it."""

    def __init__(self, n: int, k: int, turned: bool) -> None:
        super().__init__()
        self.register_buffer("w", integers(n, k) if turned else integers(k, n))
        self.turned = turned

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(x, self.w.t() if self.turned else self.w)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    "m,n,k", [(1, 64, 64), (4, 16, 16), (8, 31, 130), (13, 33, 65), (37, 100, 1100), (70, 200, 63)]
)
def test_constant_weights(cpu: str, m: int, n: int, k: int) -> None:
    """Packed when the code is loaded, the groups of the last steps of k and the last panel filled up with zeros."""
    torch.manual_seed(0)
    for turned in (True, False):
        torch._dynamo.reset()
        model = Frozen(n, k, turned).eval()
        x = integers(m, k)
        options = {"cpu": cpu, "fallback": False, "freezing": True}
        with torch.no_grad():
            compiled = torch.compile(model, backend=kiln.backend, fullgraph=True, options=options)
            w = model.w.t() if turned else model.w
            assert torch.equal(compiled(x), (x.long() @ w.long()).to(torch.int32))
