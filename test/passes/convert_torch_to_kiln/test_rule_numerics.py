# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Every conversion rule's numbers, run through the reference lowering, against eager PyTorch.

Elementwise results of float32 are compared with float32 eager: a rule states the formula, and these have the same one.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch_mlir import ir

sys.path.insert(0, str(Path(__file__).parent))

from cases import all_cases
from harness import Case, convert, main_arguments

from kiln.dialects.execute import run_reference

CASES = all_cases()


def _to_numpy(value: Any) -> Any:
    """bf16 travels as float32; the rest as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.dtype == torch.uint8:
        return value.contiguous().view(torch.int8).numpy()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _to_torch(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    value = torch.from_numpy(np.array(array))
    return value.view(torch.uint8) if dtype == torch.uint8 else value.to(dtype)


def _check(case: Case, context: ir.Context, dynamic: bool) -> None:
    imported, decisions = convert(case.fn, case.inputs, context, dynamic)
    others = [f"{d.op}: {d.way} ({d.reason})" for d in decisions if d.way not in case.ways]
    assert not others
    arguments = [_to_numpy(value) for value in main_arguments(imported, case.inputs)]
    results = run_reference(imported.module, arguments)
    expected = tree_leaves(case.fn(*case.inputs))
    checked = 0
    for number, (spec, want) in enumerate(zip(imported.outputs, expected, strict=True)):
        if spec.kind != "result":
            continue
        got = _to_torch(results[spec.index], want.dtype)
        assert got.shape == want.shape, f"result {number}"
        if want.dtype.is_floating_point:
            finite = want[want.isfinite()].double().abs()
            scale = finite.max().item() if finite.numel() else 1.0
            close = torch.allclose(got.double(), want.double(), rtol=case.tol, atol=case.tol * scale, equal_nan=True)
            assert close, f"result {number}: expected {want}, found {got}"
        else:
            assert torch.equal(got, want), f"result {number}: expected {want}, found {got}"
        checked += 1
    assert checked


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_static(case: Case, context: ir.Context) -> None:
    _check(case, context, dynamic=False)


# Sizes take the same paths in all rules of a family: every fourth case is enough unless --slow asks for all.
DYNAMIC = [
    pytest.param(case, id=case.name, marks=[] if number % 4 == 0 else [pytest.mark.slow])
    for number, case in enumerate(case for case in CASES if case.dynamic)
]


@pytest.mark.parametrize("case", DYNAMIC)
def test_dynamic(case: Case, context: ir.Context) -> None:
    _check(case, context, dynamic=True)


def test_gelu_at_infinity(context: ir.Context) -> None:
    """By the formula in float64, which every machine evaluates alike: Inf stays, and -Inf times 0 is NaN."""
    x = torch.tensor([float("inf"), -float("inf"), float("nan"), 1e30, -1e30, 0.0])
    imported, _ = convert(torch.nn.functional.gelu, (x,), context)
    (result,) = run_reference(imported.module, [_to_numpy(value) for value in main_arguments(imported, (x,))])
    exact = x.double() * 0.5 * (1 + torch.erf(x.double() * 0.5**0.5))
    torch.testing.assert_close(torch.from_numpy(np.array(result)).double(), exact, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("order", [0, 0.5, 1, 2, 3, float("inf"), -float("inf")])
@pytest.mark.parametrize("dims", [[0], [1], [0, 1]])
def test_norms_of_special_values(order: float, dims: list[int], context: ir.Context) -> None:
    """One column, and rows of one element: the sum is one term, its NaN or infinity has to survive root and power."""
    x = torch.randn(40, 1, generator=torch.Generator().manual_seed(1))
    x[::8] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 0.0])[:, None]
    for given in (x, x[[8, 16]], x[[24, 32]]):
        _check(Case("norm", lambda x: torch.linalg.vector_norm(x, order, dims), (given,)), context, False)
