# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""f16 where the CPU has no instructions that convert it: x86-64 and x86-64-v2 lack F16C."""

import pytest
import torch

import kiln  # noqa: F401 - makes backend="kiln" known in a checkout that is not installed
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.half import lacks_half

pytestmark = pytest.mark.skipif(not isa.host().has("f16c"), reason="x86 with F16C tells what the results are")

LEVEL = pytest.mark.parametrize("level", ["x86-64", "x86-64-v2"])


def compiled(fn, level):
    torch._dynamo.reset()
    return torch.compile(fn, backend="kiln", fullgraph=True, options={"cpu": level, "fallback": False})


def bits(x):
    return x.view(torch.int16 if x.dtype == torch.float16 else torch.int32)


def test_which_levels():
    levels = [isa.Isa(name, *described) for name, described in isa.LEVELS.items()]
    assert [level.name for level in levels if lacks_half(level)] == ["x86-64", "x86-64-v2"]
    assert not lacks_half(isa.Isa("neoverse-n1", 16, 32, ("neon",)))


def test_every_number_is_extended_exactly():
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16)
    found = compiled(lambda x: x.float(), "x86-64")(x)
    number = ~x.isnan()
    assert found[~number].isnan().all()
    assert torch.equal(bits(found[number]), bits(x.float()[number]))


def test_rounding_is_to_nearest_even():
    """Around every number of f16: the halves between two, and f32's next on both sides of them."""
    x = torch.arange(0, 0x7C00).to(torch.int16).view(torch.float16).float()
    middle = (x[1:] + x[:-1]) / 2
    ends = torch.tensor([65504.0, 65519.996, 65520.0, 65536.0, 1e30, torch.inf, 2.0**-25, 2.0**-149, 0.0])
    around = torch.cat([x, middle, *(torch.nextafter(middle, torch.tensor(t)) for t in (0.0, torch.inf)), ends])
    numbers = torch.cat([around, -around])
    half = compiled(lambda x: x.half(), "x86-64")
    assert torch.equal(bits(half(numbers)), bits(numbers.half()))
    assert half(torch.full((5,), torch.nan)).isnan().all()


@LEVEL
@pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 33)])
def test_arithmetic(level, shape):
    def fn(x, y, n):
        return x + y, x * n, x > y, torch.maximum(x, y).tanh(), (x * 10).int(), n.half(), x.double(), x.sum(), -x

    x, y, n = torch.randn(shape).half(), torch.randn(shape).half(), torch.randint(-9, 9, shape, dtype=torch.int32)
    for mine, theirs in zip(compiled(fn, level)(x, y, n), fn(x, y, n), strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=2e-3, atol=2e-3)


@LEVEL
def test_product_and_norm(level):
    def fn(x, w):
        y = torch.nn.functional.linear(x, w).relu()
        return y, y.softmax(-1), torch.nn.functional.layer_norm(y, (9,))

    x, w = torch.randn(5, 13).half(), torch.randn(9, 13).half()
    for mine, right in zip(compiled(fn, level)(x, w), fn(x.double(), w.double()), strict=True):
        assert mine.dtype == torch.float16
        torch.testing.assert_close(mine.double(), right, rtol=1e-2, atol=1e-2)
