# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cross-entropy and its gradient against eager in float64, and what they keep in memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.frontend.report import CompileReport, Kernel, collect

WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.0, 1.5, 1.0, 3.0])
CLASSES = len(WEIGHT)


def targets(*shape: int, ignored: int = -100) -> torch.Tensor:
    found = torch.randint(0, CLASSES, shape)
    found.view(-1)[1] = ignored
    return found


def run(loss: Callable[..., torch.Tensor], x: torch.Tensor, *rest: Any, target: str = "cpu", dynamic: bool = False):
    """The loss, the gradient of `x`, and the reports of compiled code."""
    x = x.detach().requires_grad_()
    torch._dynamo.reset()
    options = {"fallback": False, "target": target}
    with collect() as reports:
        found = torch.compile(loss, backend=kiln.backend, options=options, dynamic=dynamic)(x, *rest)
        found.backward(torch.linspace(0.5, 1.5, found.numel(), dtype=found.dtype).view_as(found))
    return found.detach(), x.grad, reports


def check(loss: Callable[..., torch.Tensor], x: torch.Tensor, *rest: Any, **settings: Any) -> list[CompileReport]:
    found, gradient, reports = run(loss, x, *rest, **settings)
    wide = x.detach().double().requires_grad_()
    exact = loss(wide, *(r.double() if r.is_floating_point() else r for r in rest))
    exact.backward(torch.linspace(0.5, 1.5, exact.numel(), dtype=found.dtype).double().view_as(exact))
    assert wide.grad is not None and gradient is not None and gradient.dtype == x.dtype
    epsilon = torch.finfo(x.dtype).eps
    for ours, theirs in ((found, exact), (gradient, wide.grad)):
        assert ours.shape == theirs.shape and ours.stride() == theirs.stride()
        torch.testing.assert_close(ours.double(), theirs, rtol=8 * epsilon, atol=4 * epsilon)
    return reports


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    "settings", [{}, {"weight": WEIGHT}, {"ignore_index": 2}, {"label_smoothing": 0.1}], ids=lambda s: next(iter(s), "")
)
@pytest.mark.parametrize("shape", [(5, CLASSES), (2, CLASSES, 3, 4)], ids=["rows", "images"])
def test_cross_entropy(shape: tuple[int, ...], settings: dict[str, Any], reduction: str) -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        given = {k: v.to(x.dtype) if isinstance(v, torch.Tensor) else v for k, v in settings.items()}
        return F.cross_entropy(x, t, reduction=reduction, **given)

    target = targets(shape[0], *shape[2:], ignored=settings.get("ignore_index", -100))
    reports = check(loss, torch.randn(shape) * 3, target)
    assert all(not report.aten_calls for report in reports)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    check(F.cross_entropy, torch.randn(9, 33).to(dtype), torch.randint(0, 33, (9,)))


def over_classes(report: CompileReport) -> list[Kernel]:
    """The kernels of a backward graph but for the first of PyTorch 2.15, which counts the targets again."""
    counts = torch.torch_version.TorchVersion(torch.__version__) >= "2.15" and report.kernels[0].kind == "reduction"
    return report.kernels[1:] if counts else report.kernels


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_no_probabilities_in_memory(target: str) -> None:
    """The logits and two numbers of a row are what the gradient reads, though the loss converts them."""
    x = torch.randn(64, 1000).to(torch.bfloat16)
    reports = check(
        lambda x, t: F.cross_entropy(x.float() if x.dtype != torch.float64 else x, t),
        x,
        torch.randint(0, 1000, (64,)),
        target=target,
    )
    forward, backward = reports
    assert forward.workspace_bytes < 64 * 1000 and backward.workspace_bytes < 64 * 1000
    assert len(over_classes(backward)) == 1


def test_one_pass_over_the_classes_is_no_sum() -> None:
    forward, backward = run(F.cross_entropy, torch.randn(40, 50), torch.randint(0, 50, (40,)))[2]
    assert [kernel.kind for kernel in over_classes(backward)] == ["pointwise"]
    assert forward.kernels


def test_without_a_batch() -> None:
    check(F.cross_entropy, torch.randn(CLASSES), torch.tensor(3))


def test_returned_probabilities() -> None:
    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        logs = F.log_softmax(x, -1)
        return F.nll_loss(logs, t) + (logs.exp() * logs).sum()

    check(loss, torch.randn(6, CLASSES), torch.randint(0, CLASSES, (6,)))

    def both(x: torch.Tensor, t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logs = F.log_softmax(x, -1)
        return F.nll_loss(logs, t), logs

    x, t = torch.randn(6, CLASSES), torch.randint(0, CLASSES, (6,))
    found = torch.compile(both, backend=kiln.backend, options={"fallback": False})(x, t)
    torch.testing.assert_close(found, both(x, t))


def test_gathered_policies() -> None:
    """Log-probabilities of actions, along the last of three dims, as reinforcement learning takes them."""

    def loss(x: torch.Tensor, actions: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
        logs = torch.log_softmax(x, -1).gather(-1, actions[..., None]).squeeze(-1)
        return -(logs * advantages).mean()

    check(loss, torch.randn(3, 5, 9), torch.randint(0, 9, (3, 5)), torch.randn(3, 5))


def test_dynamic_sizes() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(F.cross_entropy, backend=kiln.backend, options={"fallback": False}, dynamic=True)
    for rows, classes in ((4, 7), (9, 31), (2, 5)):
        x, t = torch.randn(rows, classes, requires_grad=True), torch.randint(0, classes, (rows,))
        found = compiled(x, t)
        (ours,) = torch.autograd.grad(found, x)
        expected = F.cross_entropy(x, t)
        torch.testing.assert_close((found, ours), (expected, torch.autograd.grad(expected, x)[0]))


def test_no_valid_row_is_not_a_number() -> None:
    found, gradient, _ = run(F.cross_entropy, torch.randn(3, CLASSES), torch.full((3,), -100))
    x = torch.randn(3, CLASSES, requires_grad=True)
    expected = F.cross_entropy(x, torch.full((3,), -100))
    expected.backward()
    assert found.isnan() and expected.isnan() and torch.equal(gradient.isnan(), x.grad.isnan())


def test_a_class_out_of_range_is_an_error() -> None:
    with pytest.raises((IndexError, RuntimeError)):
        run(F.cross_entropy, torch.randn(3, CLASSES), torch.tensor([0, CLASSES, 1]))


def test_masked_logits() -> None:
    x = torch.randn(4, CLASSES).masked_fill(torch.arange(CLASSES) == 2, float("-inf"))
    check(F.cross_entropy, x, torch.tensor([0, 1, 3, 4]))


def test_an_index_of_no_class() -> None:
    """What looks like the gradient's sum over classes may have any index, and other dims, in a program."""

    def rows(x: torch.Tensor, t: torch.Tensor, v: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hit = torch.arange(10) == i.unsqueeze(1)
        return F.cross_entropy(x, t), torch.where(hit, v.unsqueeze(1), torch.zeros(())).sum(1, keepdim=True)

    def last(x: torch.Tensor, t: torch.Tensor, v: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.cross_entropy(x, t), torch.where(torch.arange(5) == i, v, torch.zeros(())).sum(1, keepdim=True)

    x, t = torch.randn(3, CLASSES), torch.randint(0, CLASSES, (3,))
    images = torch.randn(2, 1, 4, 1), torch.randint(0, 5, (2, 1, 4, 1))
    for program, given in ((rows, (torch.randn(3), torch.tensor([2, -1, 10]))), (last, images)):
        torch._dynamo.reset()
        found = torch.compile(program, backend=kiln.backend, options={"fallback": False})(x, t, *given)
        torch.testing.assert_close(found, program(x, t, *given))


def test_no_classes() -> None:
    def gathered(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, 1).gather(1, index)

    given = torch.randn(3, 0), torch.zeros(3, 0, dtype=torch.int64)
    found = torch.compile(gathered, backend=kiln.backend, options={"fallback": False})(*given)
    assert found.shape == (3, 0)


def test_logits_that_are_rounded_first() -> None:
    """The gathered element is the rounded logit's."""
    x, t = torch.randn(64, 40), torch.randint(0, 40, (64,))

    def loss(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return F.nll_loss(F.log_softmax(x.to(torch.bfloat16), -1, dtype=torch.float32), t, reduction="none")

    options = {"fallback": False}
    found = torch.compile(loss, backend=kiln.backend, options=options)(x, t)
    torch.testing.assert_close(found, loss(x, t), rtol=1e-5, atol=1e-5)
