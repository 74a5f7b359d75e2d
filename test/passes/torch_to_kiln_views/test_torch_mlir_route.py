# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""torch-mlir's conversion of single ops, with Kiln's own rules out of the way: values, and what is refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_mlir import ir
from views_harness import check, convert, run_loops

from kiln.passes.torch_to_kiln import registry
from kiln.passes.torch_to_kiln.torch_mlir_fallback import VETTED

F = torch.nn.functional
X = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))

CASES: dict[str, Callable[..., Any]] = {
    "abs": lambda x: x.abs(),
    "add.Tensor": lambda x: torch.add(x, x, alpha=2),
    "cat": lambda x: torch.cat([x, x], 1),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "constant_pad_nd": lambda x: F.pad(x, (1, 2, 0, 3), value=1.5),
    "div.Tensor": lambda x: x / x,
    "exp": lambda x: x.exp(),
    "flip": lambda x: x.flip(0, 1),
    "mul.Tensor": lambda x: x * x,
    "neg": lambda x: x.neg(),
    "permute": lambda x: x.permute(1, 0),
    "relu": lambda x: x.relu(),
    "rsqrt": lambda x: x.rsqrt(),
    "sigmoid": lambda x: x.sigmoid(),
    "sqrt": lambda x: x.sqrt(),
    "squeeze.dim": lambda x: x[:, :1].squeeze(1),
    "sub.Tensor": lambda x: x - x,
    "sum.dim_IntList": lambda x: x.sum(1),
    "tanh": lambda x: x.tanh(),
    "transpose.int": lambda x: x.transpose(0, 1),
    "tril": lambda x: x.tril(1),
    "triu": lambda x: x.triu(1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "view": lambda x: x.view(-1),
    "where.self": lambda x: torch.where(x > 0, x, x * 2),
}


@pytest.fixture
def without_rule(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Takes Kiln's own rule for an op away during the test."""
    registry.load_rules()
    return lambda name: monkeypatch.delitem(registry._RULES, name)


def test_every_vetted_op_is_tested() -> None:
    assert {name.removeprefix("torch.aten.") for name in VETTED} == set(CASES)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dynamic: bool, without_rule: Callable[[str], None], context: ir.Context) -> None:
    without_rule(f"torch.aten.{name}")
    imported, decisions = convert(CASES[name], (X,), context, dynamic)
    ways = [d.way for d in decisions if d.op == f"torch.aten.{name}"]
    assert ways == ["torch-mlir"] * len(ways) and ways

    with torch.no_grad(), context, ir.Location.unknown():
        found = run_loops(imported, (X,))
    torch.testing.assert_close(found[0], CASES[name](X), rtol=2e-6, atol=2e-6, equal_nan=True)


def test_half_types_are_refused(without_rule: Callable[[str], None], context: ir.Context) -> None:
    without_rule("torch.aten.relu")
    decisions = check(lambda x: x.relu(), (X.bfloat16(),), context, way="aten")
    assert "16-bit float" in decisions[0].reason


@pytest.mark.parametrize("name", ["sum.dim_IntList", "mul.Tensor", "view"])
def test_complex_numbers_are_refused(name: str, without_rule: Callable[[str], None], context: ir.Context) -> None:
    """torch-mlir aborts the process on a sum of them."""
    without_rule(f"torch.aten.{name}")
    decisions = check(CASES[name], (X.to(torch.complex64),), context, way="aten")
    assert "which Kiln does not compute" in decisions[-1].reason


def test_an_op_that_is_not_vetted_is_not_tried(without_rule: Callable[[str], None], context: ir.Context) -> None:
    without_rule("torch.aten.gather")
    index = torch.zeros(4, 2, dtype=torch.int64)
    decisions = check(lambda x, i: x.gather(1, i), (X, index), context, way="aten")
    assert "not among those that are tried" in decisions[-1].reason
