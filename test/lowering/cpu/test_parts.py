# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernels of several parts: products of one matrix, each with its own epilogue, against eager in float64."""

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import collect


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def check(call, inputs, tolerance=1e-6, dynamic=None):
    """Kernels and launches of `call`; its results must be right for each of `inputs`, a list of argument tuples."""
    compiled = torch.compile(call, backend=kiln.backend, options={"fallback": False}, dynamic=dynamic)
    with torch.no_grad(), collect() as reports:
        for arguments in inputs:
            got = compiled(*arguments)
            exact = call(*(a.double() for a in arguments))
            plain = call(*arguments)
            for g, e, p in zip(got, exact, plain, strict=True):
                assert g.shape == p.shape
                assert g.dtype == p.dtype
                assert g.stride() == p.stride()
                error = (g.double() - e).norm() / e.norm().clamp(min=1e-30)
                assert error <= max(tolerance, 3 * (p.double() - e).norm() / e.norm().clamp(min=1e-30))
    (report,) = reports
    return report


def three(x, a, b, c, bias):
    return F.linear(x, a, bias), F.gelu(F.linear(x, b)), x @ c


@pytest.mark.parametrize("rows", [(1,), (7,), (3, 11), (130,)])
@pytest.mark.parametrize("sizes", [(16, 7, 33), (2, 300, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_one_matrix(rows, sizes, dtype):
    """Unequal widths, weights stored both ways, one row to many: always one kernel."""
    k = 45
    weights = [torch.randn(n, k) for n in sizes[:2]] + [torch.randn(k, sizes[2])]
    inputs = [t.to(dtype) for t in (torch.randn(*rows, k), *weights, torch.randn(sizes[0]))]
    report = check(three, [tuple(inputs)], 1e-6 if dtype == torch.float32 else 1e-2)
    assert [(kernel.kind, kernel.launches) for kernel in report.kernels] == [("matmul", 1)]


def test_rows_known_at_run_time():
    """One kernel for few rows and many, with a strided matrix."""
    weights = (torch.randn(24, 40), torch.randn(9, 40), torch.randn(40, 130), torch.randn(24))
    inputs = [(torch.randn(m, 80)[:, ::2], *weights) for m in (6, 33, 200, 2)]
    report = check(three, inputs, dynamic=True)
    assert len(report.kernels) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 37])
def test_equal_parts(rows, dtype):
    """Three products with biases, whose code is one function (equal_parts.mlir); a fourth has other code."""

    def four(x, a, b, c, d, p, q, r):
        return F.linear(x, a, p), F.linear(x, b, q), F.linear(x, c, r), F.gelu(F.linear(x, d))

    shapes = [(rows, 70)] + [(48, 70)] * 4 + [(48,)] * 3
    check(four, [tuple(torch.randn(s).to(dtype) for s in shapes)], 1e-6 if dtype == torch.float32 else 1e-2)


def test_a_part_that_reads_another_stays_behind():
    """The second product needs the first: two kernels, in order."""

    def chain(x, a, b):
        y = x @ a
        return y, x @ (b + y.sum())

    inputs = [(torch.randn(12, 20), torch.randn(20, 20), torch.randn(20, 8))]
    report = check(chain, inputs)
    assert sum(k.launches for k in report.kernels if k.kind == "matmul") == 2
