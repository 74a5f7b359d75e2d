# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Accuracy of the vector math against its stated bounds, and values that must be exact."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from kiln.lowering.cpu.vector_math import FUNCTIONS
from kiln.lowering.cpu.vector_math.accuracy import BOUNDS, measure
from kiln.lowering.cpu.vector_math.coefficients import COEFFICIENTS
from kiln.lowering.cpu.vector_math.evaluate import compile_op
from kiln.lowering.cpu.vector_math.fit import FITS, fit_coefficients

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "vector-math.md"


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize(("element", "width"), [("f32", 8), ("f64", 4)])
def test_bound(name: str, element: str, width: int) -> None:
    if element == "f64" and np.finfo(np.longdouble).nmant < 63:
        pytest.skip("long double is double here")
    found = measure(name, element, width)
    assert not found.wrong, f"wrong special value or sign at {found.wrong}"
    assert found.ulp <= getattr(BOUNDS[name], element), f"{found.ulp} ULP at {found.where}"


@pytest.mark.parametrize("name", ["exp", "sin", "powf", "remf", "erf"])
@pytest.mark.parametrize("width", [0, 1, 4, 16])
def test_widths_give_the_same_bits(name: str, width: int) -> None:
    op = "arith.remf" if name == "remf" else f"math.{name}"
    rng = np.random.default_rng(3)
    x = (rng.normal(0, 2, 4096) * 10.0 ** rng.integers(-6, 7, 4096)).astype(np.float32)
    operands = [x, np.roll(x, 1)] if name in ("powf", "remf") else [x]
    types = ["f32"] * len(operands)
    expected = compile_op(op, types, "f32", 8)(*operands)
    np.testing.assert_array_equal(
        compile_op(op, types, "f32", width)(*operands).view(np.uint32), expected.view(np.uint32)
    )


def test_a_rare_lane_does_not_change_its_neighbours() -> None:
    sine = compile_op("math.sin", ["f32"], "f32", 8)
    x = np.linspace(-20, 20, 64, dtype=np.float32)
    alone = sine(x)
    x[::8] = 1e20
    mixed = sine(x)
    kept = np.arange(64) % 8 != 0
    np.testing.assert_array_equal(alone[kept], mixed[kept])
    np.testing.assert_allclose(mixed[~kept], np.sin(np.float64(np.float32(1e20))), rtol=1e-7)


def test_every_float_function_has_a_bound() -> None:
    exact = {"maximumf", "minimumf", "clampf", "isnan", "isinf", "isfinite", "fpowi"}
    assert {op.partition(".")[2] for op in FUNCTIONS} == set(BOUNDS) | exact


@pytest.mark.parametrize("integer", ["i32", "i64"])
def test_fpowi(integer: str) -> None:
    rng = np.random.default_rng(4)
    x = (rng.normal(0, 1, 4096) * 10.0 ** rng.integers(-3, 4, 4096)).astype(np.float32)
    x[:8] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45]
    n = rng.integers(-9, 10, 4096).astype(integer.replace("i", "int"))
    if integer == "i64":
        n[-8:] = 1 << 32  # the low half is 0
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), n).astype(np.float32)
    np.testing.assert_array_max_ulp(compile_op("math.fpowi", ["f32", integer], "f32", 8)(x, n), expected, 1)


def test_ipowi() -> None:
    rng = np.random.default_rng(5)
    base, exponent = rng.integers(-9, 10, 4096), rng.integers(0, 25, 4096)
    power = compile_op("math.ipowi", ["i64", "i64"], "i64", 4)
    np.testing.assert_array_equal(power(base, exponent), base**exponent)
    np.testing.assert_array_equal(power(np.array([1, -1, -1, 2]), np.array([-3, -3, -2, -1])), [1, -1, 1, 0])


@pytest.mark.parametrize(("op", "function"), [("maximumf", np.maximum), ("minimumf", np.minimum)])
def test_extremum_propagates_nan(op: str, function: np.ufunc) -> None:
    values = np.array([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 2.5, -2.5], np.float32)
    a, b = (v.ravel().copy() for v in np.meshgrid(values, values))
    np.testing.assert_array_equal(compile_op(f"arith.{op}", ["f32", "f32"], "f32", 8)(a, b), function(a, b))


def test_bf16_conversions_are_exact() -> None:
    every = np.arange(1 << 16, dtype=np.uint16)
    extended = torch.from_numpy(every.view(np.int16)).view(torch.bfloat16).float().numpy()
    result = compile_op("arith.extf", ["bf16"], "f32", 8)(every)
    np.testing.assert_array_equal(result.view(np.uint32), extended.view(np.uint32))
    rng = np.random.default_rng(6)
    x = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate([x, (extended.view(np.uint32) | 0x8000).view(np.float32)])  # ties
    rounded = compile_op("arith.truncf", ["f32"], "bf16", 8)(x)
    expected = torch.from_numpy(x).bfloat16().view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(x)
    np.testing.assert_array_equal(rounded[number], expected[number])
    assert np.isnan((rounded[~number].astype(np.uint32) << 16).view(np.float32)).all()


@pytest.mark.parametrize("width", [0, 8])
@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt", "floor"])
def test_16_bit_floats_compute_in_f32(name: str, width: int) -> None:
    half = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    function = getattr(torch, name)
    with np.errstate(all="ignore"):
        expected = function(torch.from_numpy(half).float()).half().numpy()
    got = compile_op(f"math.{name}", ["f16"], "f16", width)(half)
    # one f32 ULP may change the rounding to f16
    np.testing.assert_array_max_ulp(np.nan_to_num(got), np.nan_to_num(expected), 1)
    assert (np.isnan(got) == np.isnan(expected)).all()
    tensor = torch.from_numpy(half.view(np.int16)).view(torch.bfloat16)
    got = compile_op(f"math.{name}", ["bf16"], "bf16", width)(half.view(np.uint16))
    result = torch.from_numpy(got.view(np.int16)).view(torch.bfloat16).float()
    torch.testing.assert_close(result, function(tensor.float()), rtol=2**-8, atol=1e-40, equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_flushed_exponentials(name: str) -> None:
    """fastmath<afn>: as accurate for normal results, 0 and inf at the ends, NaN stays."""
    flushed = compile_op(f"math.{name}", ["f32"], "f32", 8, "{fastmath = #arith.fastmath<afn>}")
    x = np.linspace(-85, 86, 1 << 16, dtype=np.float32)
    exact = getattr(np, name)(x.astype(np.float64))
    assert (np.abs(flushed(x) - exact) / np.spacing(exact.astype(np.float32))).max() < 1.5
    ends = np.array([-np.inf, -3e38, -200, 200, 3e38, np.inf, np.nan, -np.nan], np.float32)
    np.testing.assert_array_equal(
        flushed(ends), np.array([0, 0, 0, np.inf, np.inf, np.inf, np.nan, np.nan], np.float32)
    )


@pytest.mark.parametrize(("name", "bound"), [("erf", 4e-5), ("tanh", 1e-5)])
def test_short_functions(name: str, bound: float) -> None:
    """fastmath<afn>: the error relative to the distance from one, but for a rounding of numbers near one."""
    short = compile_op(f"math.{name}", ["f32"], "f32", 8, "{fastmath = #arith.fastmath<afn>}")
    x = np.linspace(-12, 12, 1 << 16, dtype=np.float32)
    exact = np.array([getattr(math, name)(float(v)) for v in x])
    missing = np.array([math.erfc(abs(v)) if name == "erf" else 2 / (math.exp(2 * abs(v)) + 1) for v in x.tolist()])
    error = np.abs(short(x) - exact)
    assert (error <= bound * missing + 2e-7).all()
    assert error.max() > 1.5e-7, "the accurate formula was taken"
    ends = np.array([-np.inf, -3e38, -50, 50, 3e38, np.inf, np.nan, -np.nan], np.float32)
    np.testing.assert_array_equal(short(ends), np.array([-1, -1, -1, 1, 1, 1, np.nan, np.nan], np.float32))


def test_the_document_states_these_bounds() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \| [\d.]+ \|$", DOCUMENT.read_text(), re.M)
    stated = {name: (float(f32), float(f64)) for name, f32, f64 in rows}
    assert stated == {name: tuple(bound) for name, bound in BOUNDS.items()}


@pytest.mark.parametrize("name", ["exp", "sin", "atan", "erf_log2", "exp2_short"])
def test_coefficients_come_from_the_fits(name: str) -> None:
    assert fit_coefficients(FITS[name], "f32")[0] == COEFFICIENTS[name, "f32"]
