# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Linear layers with weights of 8-bit integers and a factor for each output: converted inside of the product's kernel."""

import pytest
import torch
import torch.nn.functional as F

import kiln


def after(x, w, s):
    return F.gelu(torch.mm(x, w.t().to(x.dtype)) * s)


def before(x, w, s):
    return F.linear(x, w.to(x.dtype) * s[:, None])


def columns(x, w, s):
    return torch.mm(x, w.t().contiguous().to(x.dtype)) * s


def operands(m: int, n: int, k: int, dtype: torch.dtype) -> list[torch.Tensor]:
    return [
        torch.randn(m, k).to(dtype),
        torch.randint(-128, 128, (n, k), dtype=torch.int8),
        (torch.rand(n) * 0.01).to(dtype),
    ]


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [after, before, columns])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 130, 77), (3, 33, 64), (37, 50, 131)])
def test_against_float64(function, dtype, m: int, n: int, k: int) -> None:
    torch.manual_seed(0)
    x, w, s = operands(m, n, k, dtype)
    torch._dynamo.reset()
    with torch.no_grad():
        found, eager = torch.compile(function, backend="kiln")(x, w, s), function(x, w, s)
    exact = function(x.double(), w, s.double())
    assert relative(found, exact) <= 1.5 * relative(eager, exact) + torch.finfo(torch.float32).eps


def test_any_number_of_rows() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(after, backend="kiln", dynamic=True)
    for m in (2, 19, 70):
        x, w, s = operands(m, 40, 65, torch.bfloat16)
        exact = after(x.double(), w, s.double())
        with torch.no_grad():
            assert relative(compiled(x, w, s), exact) <= relative(after(x, w, s), exact)


def test_the_extremes_are_exact() -> None:
    x = torch.eye(20).bfloat16()
    w = torch.arange(-128, 128, dtype=torch.int8)[: 12 * 20].view(12, 20)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(lambda x, w: torch.mm(x, w.t().to(x.dtype)), backend="kiln")(x, w)
    assert torch.equal(found, w.t().bfloat16())


def test_one_kernel() -> None:
    with torch.no_grad():
        report = str(kiln.explain(lambda x, w, s: before(x, w, s), *operands(4, 64, 64, torch.bfloat16)))
    assert "1 kernel" in report or "kernels: 1" in report, report
