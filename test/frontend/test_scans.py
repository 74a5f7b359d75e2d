# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of `torch.associative_scan`: scans themselves, right in float64; and which scans keep their steps."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan, generic_associative_scan

import kiln
from kiln.frontend.report import CompileReport, collect

Tensors = Sequence[torch.Tensor]
Combine = Callable[[Any, Any], Any]


def linear(x: Tensors, y: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    return x[0] * y[0], y[0] * x[1] + y[1]


def complex_product(x: Tensors, y: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def log_sum(x: Tensors, y: Tensors) -> tuple[torch.Tensor]:
    return (torch.logaddexp(x[0], y[0]),)


def total_and_product(x: Tensors, y: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    return x[0] + y[0], x[1] * y[1]


def maximum(x: Tensors, y: Tensors) -> tuple[torch.Tensor]:
    return (torch.maximum(x[0], y[0]),)


def in_order(combine: Combine, xs: Tensors, dim: int, reverse: bool) -> list[torch.Tensor]:
    parts = [tuple(x.select(dim, i) for x in xs) for i in range(xs[0].shape[dim])]
    parts = parts[::-1] if reverse else parts
    found = [parts[0]]
    for part in parts[1:]:
        found.append(combine(found[-1], part))
    found = found[::-1] if reverse else found
    return [torch.stack(values, dim) for values in zip(*found, strict=True)]


def weighted(results: Tensors) -> torch.Tensor:
    weight = torch.linspace(-1, 2, results[0].numel(), dtype=torch.float64).view_as(results[0])
    return torch.stack([(y * weight.to(y.dtype) * (i + 1)).sum() for i, y in enumerate(results)]).sum()


def check(
    combine: Combine, xs: Tensors, dim: int, reverse: bool = False, only: int | None = None, target: str = "cpu"
) -> list[CompileReport]:
    """Gradients of a weighted sum of the results (of one, if `only` is given), and reports of the graphs."""
    which = slice(None) if only is None else slice(only, only + 1)

    def loss(*xs: torch.Tensor) -> torch.Tensor:
        return weighted(associative_scan(combine, xs, dim, reverse=reverse, combine_mode="generic")[which])

    given, wide = [x.clone().requires_grad_() for x in xs], [x.double().requires_grad_() for x in xs]
    torch._dynamo.reset()
    with collect() as reports:
        compiled = torch.compile(
            loss, backend=kiln.backend, dynamic=False, options={"target": target, "fallback": False}
        )
        compiled(*given).backward()
    weighted(in_order(combine, wide, dim, reverse)[which]).backward()
    for ours, exact in zip(given, wide, strict=True):
        assert ours.grad is not None and exact.grad is not None
        epsilon = torch.finfo(ours.dtype).eps
        assert (ours.grad - exact.grad).norm() <= 8 * epsilon * exact.grad.norm()
    return reports


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("size", [16, 37])
def test_rows_of_unknown_number(size: int, target: str) -> None:
    """One compilation for all of them, and no steps."""

    def loss(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = associative_scan(linear, (a, b), 1, combine_mode="generic")[1]
        return torch.tanh(y).square().sum()

    torch._dynamo.reset()
    compiled = torch.compile(loss, backend=kiln.backend, options={"target": target, "fallback": False})
    with collect() as reports:
        for rows in (3, 8):
            given = [x.requires_grad_() for x in operands(2, (rows, size, 5))]
            for x in given:
                torch._dynamo.mark_dynamic(x, 0)
            wide = [x.detach().double().requires_grad_() for x in given]
            found = torch.autograd.grad(compiled(*given), given)
            y = in_order(linear, wide, 1, reverse=False)[1]
            expected = torch.autograd.grad(torch.tanh(y).square().sum(), wide)
            for ours, exact in zip(found, expected, strict=True):
                assert (ours - exact).norm() <= 1e-5 * exact.norm()
    assert len(reports) == 2
    for report in reports:
        assert kinds(report).count("recurrence") == 1 and len(report.kernels) <= 4


def kinds(report: CompileReport) -> list[str]:
    return [kernel.kind for kernel in report.kernels]


def operands(count: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [(torch.rand(shape) * 0.5 + 0.5).to(dtype) for _ in range(count)]


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_a_linear_recurrence_has_no_steps_and_nor_has_its_gradient(target: str) -> None:
    forward, backward = check(linear, operands(2, (2, 37, 5)), 1, only=1, target=target)
    assert set(kinds(forward)) == {"recurrence", "reduction"}  # no steps; the sum is the loss
    assert kinds(backward).count("recurrence") == 1 and len(backward.kernels) <= 3


@pytest.mark.parametrize("size", [4, 37])
@pytest.mark.parametrize(
    ("combine", "count"), [(linear, 2), (complex_product, 2), (log_sum, 1), (total_and_product, 2)]
)
def test_all_results(combine: Combine, count: int, size: int) -> None:
    check(combine, operands(count, (size, 3)), 0, reverse=size % 2 == 1)


def test_bf16_is_carried_in_f32() -> None:
    check(linear, operands(2, (64, 8), torch.bfloat16), 0, only=1)


def test_two_scans_one_after_the_other() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        once = associative_scan(linear, (a, b), 0, combine_mode="generic")[1]
        return associative_scan(log_sum, (once,), 1, combine_mode="generic")[0].sum()

    given = [x.requires_grad_() for x in operands(2, (6, 9))]
    expected = torch.autograd.grad(model(*given), given)
    with collect() as reports:
        found = torch.autograd.grad(torch.compile(model, backend=kiln.backend)(*given), given)
    torch.testing.assert_close(found, expected)
    # No steps: two scans, the sum with what is saved of one, and what is saved of the factors.
    assert sorted(kinds(reports[0])) == ["pointwise", "recurrence", "recurrence", "reduction"]


def test_without_vmap_along_another_dim() -> None:
    def model(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return generic_associative_scan(lambda a, b, c, d: (a * c, c * b + d), [a, b], 1)[1]

    given = [x.requires_grad_() for x in operands(2, (3, 9, 2))]
    expected = torch.autograd.grad(model(*given).square().sum(), given)
    with collect() as reports:
        result = torch.compile(model, backend=kiln.backend)(*given)
        found = torch.autograd.grad(result.square().sum(), given)
    assert result.stride() == model(*given).stride()
    torch.testing.assert_close(found, expected)
    assert kinds(reports[1]).count("recurrence") == 1


def test_kinks_keep_eagers_choice_among_equal_elements() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return associative_scan(maximum, (x,), 0, combine_mode="generic")[0].sum()

    x = torch.zeros(8, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x), x)
    (found,) = torch.autograd.grad(torch.compile(model, backend=kiln.backend)(x), x)
    torch.testing.assert_close(found, expected)


def test_a_step_that_is_read_keeps_the_steps() -> None:
    """The sums of pairs, written like a scan's first step, are a result as well."""

    def model(x: torch.Tensor) -> torch.Tensor:
        aten, steps = torch.ops.aten, list[torch.Tensor]()

        def combine(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
            steps.append(a + b)
            return [steps[-1]]

        (scanned,) = generic_associative_scan(combine, [aten.alias(x)], 0)
        return scanned.sum() + (steps[0] ** 2).sum()

    x = torch.randn(8, 3, requires_grad=True)
    (expected,) = torch.autograd.grad(model(x), x)
    (found,) = torch.autograd.grad(torch.compile(model, backend=kiln.backend)(x), x)
    torch.testing.assert_close(found, expected)
