# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""bf16 and f16 inside of a kernel: rounded once, where it is stored, unless something could tell."""

import pytest
import torch
import torch.nn.functional as F

TYPES = [torch.bfloat16, torch.float16]


def compiled(function, *inputs):
    torch._dynamo.reset()
    with torch.no_grad():
        return torch.compile(function, backend="kiln")(*inputs)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_chain_is_rounded_once(dtype):
    def chain(x, y, z):
        return torch.tanh(x * y + z) * (x - z) + y

    inputs = [torch.randn(37, 53).to(dtype) for _ in range(3)]
    exact = chain(*(x.double() for x in inputs))
    error = (compiled(chain, *inputs).double() - exact).abs()
    # Half a unit in the last place, and what f32 adds.
    assert bool((error <= exact.abs() * torch.finfo(dtype).eps * 0.505 + 1e-5).all())
    assert error.max() < (chain(*inputs).double() - exact).abs().max()


def test_the_epilogue_of_a_product_reads_its_sums():
    x, w, bias = torch.randn(9, 65).bfloat16(), torch.randn(33, 65).bfloat16(), torch.randn(33).bfloat16()
    exact = F.gelu(F.linear(x.double(), w.double(), bias.double()))
    error = (compiled(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, bias).double() - exact).abs()
    assert bool((error <= exact.abs() * 2**-8 * 1.01 + 1e-4).all())


@pytest.mark.parametrize("dtype", TYPES)
def test_comparisons_and_steps_see_what_eager_sees(dtype):
    def steps(x, y):
        z = x * y
        return z == z.amax(-1, keepdim=True), torch.floor(z * 8), z > x, torch.round(x + y)

    inputs = [torch.randn(16, 40).to(dtype) * 8 for _ in range(2)]
    for found, expected in zip(compiled(steps, *inputs), steps(*inputs), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_conversions_that_are_asked_for_stay(dtype):
    def through(x, y):
        return (x * y).to(dtype).float() - x * y

    inputs = [torch.randn(16, 40) for _ in range(2)]
    found = compiled(through, *inputs)
    assert torch.equal(found, through(*inputs)) and found.abs().max() > 0
