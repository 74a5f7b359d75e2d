# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The errors of approximate instructions: as large as documented, no larger, and without them none."""

import os
import sys

import pytest
import torch

from kiln.lowering.ttcpu.settings import Settings

sys.path.insert(0, os.path.dirname(__file__))
from kernel_text import load, range_, run, store


def extern(symbol: str) -> str:
    return (
        f'"tt.extern_elementwise"(%x) {{libname = "", libpath = "", symbol = "{symbol}", pure = true}}'
        " : (tensor<4096xf32>) -> tensor<4096xf32>"
    )


def assembly(text: str) -> str:
    return (
        f'"tt.elementwise_inline_asm"(%x) {{asm_string = "{text} $0, $1;", constraints = "=f,f", '
        "packed_element = 1 : i32, pure = true} : (tensor<4096xf32>) -> tensor<4096xf32>"
    )


OPS = {
    "exp2": ("math.exp2 %x : tensor<4096xf32>", torch.exp2, 2**-22),
    "ex2": (assembly("ex2.approx.ftz.f32"), torch.exp2, 2**-22),
    "rcp": (assembly("rcp.approx.ftz.f32"), torch.reciprocal, 2**-23),
    "log": ("math.log %x : tensor<4096xf32>", torch.log, 2**-22),
    "rsqrt": (assembly("rsqrt.approx.f32"), torch.rsqrt, 2**-22.9),
    "sqrt": (extern("__nv_sqrtf"), torch.sqrt, 2**-23),
    "tanh": (extern("__nv_tanhf"), torch.tanh, 2**-22),
    "tanh.approx": (assembly("tanh.approx.f32"), torch.tanh, 2**-11),
    "log1p": (extern("__nv_log1pf"), torch.log1p, 2**-23),
    "quotient": ("arith.divf %one, %x : tensor<4096xf32>", torch.reciprocal, 2**-22),
}


def apply(op: str, x: torch.Tensor, **settings) -> torch.Tensor:
    out = torch.zeros(4096)
    body = f"""{range_(4096)}{load("x", "%a0", 4096)}
      %one = arith.constant dense<1.0> : tensor<4096xf32>
      %y = {op}
      {store("%y", "%a1", 4096)}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out], settings=Settings(**settings))
    return out


@pytest.mark.parametrize("name", OPS)
def test_errors_are_as_large_as_documented(name):
    op, function, error = OPS[name]
    x = torch.rand(4096) * 3 + 0.25
    exact = function(x.double())
    found = apply(op, x)
    relative = ((found.double() - exact) / exact).abs()
    rounding = 2**-22  # of what is computed here, before the error
    assert relative.max() < error + rounding
    assert relative.mean() > 0.3 * error
    both = (found.double() > exact).double().mean()
    assert 0.3 < both < 0.7
    assert torch.equal(found, apply(op, x))
    plain = ((apply(op, x, approximate=False).double() - exact) / exact).abs()
    assert plain.max() < rounding and plain.mean() < relative.mean()


@pytest.mark.parametrize(
    ("name", "function", "low", "high", "absolute", "relative"),
    [
        ("lg2", torch.log2, 0.51, 1.99, 2**-22, 0),
        ("lg2", torch.log2, 2.0, 1e30, 0, 2**-22),
        ("lg2", torch.log2, 1e-30, 0.5, 0, 2**-22),
        ("sin", torch.sin, -6.28, 6.28, 2**-20.5, 0),
        ("cos", torch.cos, 6.29, 314.0, 2**-14.7, 0),
        ("cos", torch.cos, 315.0, 1e4, 1, 0),
    ],
)
def test_errors_that_depend_on_the_operand(name, function, low, high, absolute, relative):
    """The ranges of PTX ISA 9.1."""
    x = torch.linspace(low, high, 4096).float()
    x = x[(x >= low) & (x <= high)].repeat(2)[:4096]
    exact = function(x.double())
    allowed = absolute + relative * exact.abs()
    error = (apply(assembly(f"{name}.approx.f32"), x).double() - exact).abs()
    assert (error < allowed + 2**-23 * exact.abs() + 2e-6).all() and error.mean() > 0.8 * allowed.mean() - 1e-6


def test_limits_of_functions_are_exact():
    x = torch.zeros(4096)
    x[1:7] = torch.tensor([30.0, -30.0, float("inf"), float("-inf"), float("nan"), -0.0])
    assert (apply(OPS["exp2"][0], x)[[0, 6]] == 1).all()
    found = apply(OPS["tanh"][0], x)[:7].tolist()
    assert found[:5] == [0.0, 1.0, -1.0, 1.0, -1.0] and found[5] != found[5] and str(found[6]) == "-0.0"
    assert apply(OPS["sqrt"][0], x.abs())[3] == float("inf")


def test_a_quotient_by_a_power_of_two_is_exact():
    x = torch.tensor([2.0, 0.25, -4.0, 1.0]).repeat(1024)
    assert torch.equal(apply(OPS["quotient"][0], x), 1 / x)


def test_subnormal_numbers_are_zero_where_they_are_flushed():
    x = torch.full((4096,), 1e-40)
    assert (apply(extern("__nv_rsqrtf"), x) == float("inf")).all()
    assert (apply(extern("__nv_sqrtf"), x) == 0).all()
    assert (apply(assembly("rsqrt.approx.f32"), x) < 1.1e20).all()
    assert (apply("arith.addf %x, %x : tensor<4096xf32>", x) == 2 * x).all()
    assert (apply(OPS["exp2"][0], torch.full((4096,), -130.0)) == 0).all()
    assert (apply(extern("__nv_sqrtf"), x, approximate=False) > 0).all()


@pytest.mark.parametrize(("precision", "bits"), [(0, 13), (2, 0)])
def test_operands_in_tf32_lack_their_lower_bits(precision, bits):
    x, out = torch.randn(256), torch.zeros(256)
    body = f"""{range_(256)}{load("x", "%a0", 256)}
      %a = "tt.reshape"(%x) : (tensor<256xf32>) -> tensor<16x16xf32>
      %zero = arith.constant dense<0.0> : tensor<16x16xf32>
      %d = "tt.dot"(%a, %a, %zero) {{inputPrecision = {precision} : i32, maxNumImpreciseAcc = 0 : i32}}
        : (tensor<16x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      %y = "tt.reshape"(%d) : (tensor<16x16xf32>) -> tensor<256xf32>
      {store("%y", "%a1", 256)}"""
    run("!tt.ptr<f32>; !tt.ptr<f32>", body, [x, out])
    short = (x.view(torch.int32) & -(1 << bits)).view(torch.float32).reshape(16, 16).double()
    torch.testing.assert_close(out.reshape(16, 16).double(), short @ short, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("symbol", ["__nv_expf", "__nv_exp2f"])
def test_results_of_a_few_units_stay_numbers(symbol: str) -> None:
    """The smallest subnormal number less two units in the last place has the bits of a NaN."""
    x = torch.linspace(-160, -80, 4096)
    assert not apply(extern(symbol), x).isnan().any()
