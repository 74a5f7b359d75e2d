# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random programs compiled by Kiln against eager: dtypes and strides exactly, values against float64.

`pytest test/property` runs a fixed sample; `--slow` runs two thousand programs that differ each time.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from families import programs
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from programs import Program

import kiln

EPSILON = {torch.float64: 1e-12, torch.float32: 3e-5, torch.bfloat16: 5e-2, torch.float16: 1e-2}
"""Error allowed, relative to the largest value of the program; chains of ten ops, some of them long sums."""


def run(program: Program, **options: Any) -> None:
    """Compile `program`, run it, compare it with eager."""
    inputs = [x.make() for x in program.inputs]
    torch._dynamo.reset()
    compiled = torch.compile(
        program.function(), backend=kiln.backend, fullgraph=True, options={"fallback": False}, **options
    )
    try:
        with torch.no_grad():
            actual = compiled(*inputs)
    except Exception as error:
        # The scale of attention over a dynamic head size, computed by the graph itself: such graphs run with ATen.
        if "(SymFloat)" in str(error):
            return
        raise
    check(program, inputs, actual)
    if options.get("dynamic"):
        again(program, compiled)


def again(program: Program, compiled: Callable[..., tuple[torch.Tensor, ...]]) -> None:
    """The same code at other sizes: each size above 1 is larger by 2, if eager takes that."""
    sizes = {n for x in program.inputs for n in x.shape if n > 1}
    if any(not x.dtype.is_floating_point for x in program.inputs):
        return  # indices may be out of bounds or in other relations to the sizes
    other = [replace(x, shape=tuple(n + 2 if n in sizes else n for n in x.shape)) for x in program.inputs]
    grown = Program(other, program.lines, program.results)
    inputs = [x.make() for x in other]
    try:
        grown.trace(inputs)
    except (RuntimeError, IndexError, ValueError, TypeError):
        return
    with torch.no_grad():
        check(grown, inputs, compiled(*inputs))


def check(program: Program, inputs: list[torch.Tensor], actual: tuple[torch.Tensor, ...]) -> None:
    """`actual` against eager on the same inputs, and on float64 inputs."""
    values = program.trace(inputs)
    expected = [values[i] for i in program.results]
    wide = program.wide([x.double() if x.dtype.is_floating_point else x for x in inputs])
    scale = max([1.0, *(_largest(v) for v in wide if v.dtype.is_floating_point)])
    lowest = max((EPSILON[v.dtype] for v in values if v.dtype in EPSILON), default=0.0)
    for ours, eager, i in zip(actual, expected, program.results, strict=True):
        assert ours.dtype == eager.dtype and ours.shape == eager.shape
        assert _strides(ours) == _strides(eager), f"v{i}: strides {ours.stride()}, eager's {eager.stride()}"
        if not eager.dtype.is_floating_point:
            assert torch.equal(ours, eager), f"v{i}: {ours} is not {eager}"
            continue
        x, y, z = ours.double(), eager.double(), wide[i].double()
        # Where eager and float64 disagree about what is finite (overflow), either is right.
        settled = torch.isfinite(y) == torch.isfinite(z)
        assert torch.equal(torch.isnan(x) & settled, torch.isnan(y) & settled), f"v{i}: NaNs differ"
        infinite = torch.isinf(y) & settled
        assert torch.equal(x[infinite], y[infinite]), f"v{i}: infinities differ"
        finite = torch.isfinite(y) & settled
        error, reference = _distance(x[finite], z[finite]), _distance(y[finite], z[finite])
        assert error <= max(3 * reference, lowest * scale), f"v{i}: error {error}, eager's {reference}, scale {scale}"


def _strides(x: torch.Tensor) -> list[int]:
    """Strides that matter: of empty tensors and sizes of 1 eager's own FakeTensors give others (flip, full_like)."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1 and x.numel()]


def _largest(x: torch.Tensor) -> float:
    finite = x[torch.isfinite(x)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def _distance(x: torch.Tensor, y: torch.Tensor) -> float:
    if not x.numel():
        return 0.0
    worst = float((x - y).abs().max())
    return math.inf if math.isnan(worst) else worst


COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": False}


@settings(max_examples=45, derandomize=True, phases=[Phase.generate], database=None, **COMMON)
@given(programs())
def test_static(program: Program) -> None:
    run(program)


@settings(max_examples=15, derandomize=True, phases=[Phase.generate], database=None, **COMMON)
@given(programs(6))
def test_dynamic(program: Program) -> None:
    run(program, dynamic=True)


@pytest.mark.slow
@settings(max_examples=2000, database=None, **COMMON)
@given(programs(14), st.booleans())
def test_many(program: Program, dynamic: bool) -> None:
    run(program, dynamic=dynamic)
