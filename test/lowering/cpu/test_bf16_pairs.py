# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Dot products of bf16 in pairs (AVX512-BF16): when, and what they compute."""

import pytest
import torch
from kernel_harness import run_fusion

INSTRUCTION = "llvm.x86.avx512bf16.dpbf16ps.512"
ROUNDING = "llvm.x86.avx512bf16.cvtneps2bf16.512"


def product(m, n, k, dtype="bf16"):
    lhs, rhs, result = (f"tensor<{a}x{b}x{dtype}>" for a, b in ((m, k), (n, k), (m, n)))
    return f"""func.func @main(%x: {lhs}, %w: {rhs}) -> {result} {{
      %0 = "kiln.fusion"(%x, %w) ({{
      ^bb0(%a: {lhs}, %b: {rhs}):
        %r = "kiln.matmul"(%a, %b) {{transpose_lhs = false, transpose_rhs = true}} : ({lhs}, {rhs}) -> {result}
        "kiln.yield"(%r) : ({result}) -> ()
      }}) {{kind = "matmul", name = "f"}} : ({lhs}, {rhs}) -> {result}
      return %0 : {result}
    }}"""


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (1, 40, 31), (3, 9, 32), (5, 17, 100), (8, 6, 0), (12, 33, 65)])
@pytest.mark.parametrize("threads", [1, 2])
def test_against_float64(m, n, k, threads):
    x, w = torch.randn(m, k).bfloat16(), torch.randn(n, k).bfloat16()
    found = torch.empty(m, n, dtype=torch.bfloat16)
    run_fusion(product(m, n, k), [x, w], [found], threads=threads)
    exact = x.double() @ w.double().T
    assert float((found.double() - exact).abs().max()) <= 4e-3 * float(exact.abs().max())


def test_infinities_and_nan():
    x, w = torch.randn(3, 50).bfloat16(), torch.randn(4, 50).bfloat16()
    x[0, 3], x[1, 45] = float("inf"), float("nan")
    found = torch.empty(3, 4, dtype=torch.bfloat16)
    run_fusion(product(3, 4, 50), [x, w], [found])
    expected = x @ w.T
    assert torch.equal(found[0], expected[0])
    assert found[1].isnan().all() and not found[2].isnan().any()
