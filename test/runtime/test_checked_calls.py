# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checked execution of calls that are left to ATen: kernels of PyTorch that are wrong for one layout or one type."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import kiln
from kiln.errors import CheckError
from kiln.runtime import aten_call
from kiln.runtime.checked.checker import LaunchChecker
from kiln.tools.kiln_check import main

TARGETS = ["cpu", "tt-cpu"]
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model: Any, target: str = "cpu", **options: Any) -> Callable[..., Any]:
    chosen = {"check": True, "fallback": False, "cache": False, **({} if target == "cpu" else {"target": target})}
    return torch.compile(model, backend=kiln.backend, options={**chosen, **options})


def plant(monkeypatch: pytest.MonkeyPatch, op: str, wrong: Callable[[Callable[..., Any], Any], Any]) -> list[Any]:
    """`wrong` in place of an op of ATen; it gets the op and the arguments. Returns the calls."""
    resolve, calls = aten_call.resolve_op, list[Any]()

    class Wrong:
        def __init__(self, right: Any) -> None:
            self.right, self._op = right, self.call

        def __getattr__(self, name: str) -> Any:
            return getattr(self.right, name)

        def call(self, *args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            return wrong(lambda: self.right(*args, **kwargs), args)

    monkeypatch.setattr(aten_call, "resolve_op", lambda name: Wrong(resolve(name)) if name == op else resolve(name))
    return calls


def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(x * 1.0, grid, align_corners=False)


def image(channels: int = 3, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(2, channels, 5, 6, 7, dtype=dtype).to(memory_format=torch.channels_last_3d)
    return x, (torch.rand(2, 4, 4, 4, 3) * 2 - 1).to(dtype)


def unpooled(x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    return F.max_unpool2d(x * 1.0, indices, 2)


def pooled(channels: int = 3, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(2, channels, 5, 6, dtype=dtype).to(memory_format=torch.channels_last)
    return x, (4 * torch.arange(30)).view(5, 6).repeat(2, channels, 1, 1)


def is_channels_last(x: torch.Tensor) -> bool:
    return x.stride(1) == 1 and x.stride(0) > 1


def wrong_for_channels_last(right: Callable[..., Any], args: Any) -> Any:
    found = right()
    return found.roll(1, -1) if is_channels_last(args[0]) else found


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_that_is_wrong_for_one_layout(
    target: str, dtype: torch.dtype, channels: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one channel, too: its strides are those of both layouts, and ATen takes it for channels last."""
    calls = plant(monkeypatch, "aten.max_unpool2d.default", wrong_for_channels_last)
    with pytest.raises(
        CheckError, match="the call of aten.max_unpool2d.default in the inference graph is off"
    ) as caught:
        compiled(unpooled, target)(*pooled(channels, dtype))
    assert is_channels_last(calls[0][0]) and not any(is_channels_last(args[0]) for args in calls[1:])
    error = caught.value
    assert error.kernel == "aten.max_unpool2d.default" and "max_unpool2d" in " ".join(error.ops)
    assert any(Path(__file__).name in line for line in error.lines)
    assert main([error.folder]) == 1
    monkeypatch.undo()
    assert main([error.folder]) == 0
    assert main([error.folder, "--stored"]) == 1
    assert "off" in capsys.readouterr().out


def test_gradients_of_which_only_some_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image's gradient is not asked for."""
    layer, x = torch.nn.ConvTranspose3d(3, 4, 3, bias=False), torch.randn(2, 3, 5, 6, 7)
    compiled(layer)(x).sum().backward()
    torch._dynamo.reset()
    factors = iter([1.5])  # of the first call

    def wrong(right: Callable[..., Any], args: Any) -> Any:
        factor = next(factors, 1.0)
        return [None if g is None else factor * g for g in right()]

    calls = plant(monkeypatch, "aten.convolution_backward.default", wrong)
    y = compiled(layer)(x)
    with pytest.raises(CheckError, match="convolution_backward"):
        y.sum().backward()
    assert calls[0][-1] == [False, True, False]


def test_what_a_type_computes_inexactly_by_itself_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 is wrong in every layout: eager has these numbers, too."""
    calls = plant(
        monkeypatch,
        "aten.max_unpool2d.default",
        lambda right, args: right() + 3 if args[0].dtype == torch.bfloat16 else right(),
    )
    compiled(unpooled)(*pooled(dtype=torch.bfloat16))
    assert {args[0].dtype for args in calls} == {torch.bfloat16, torch.float64}


def test_indices_among_equals_may_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of other numbers may not."""
    x = torch.tensor([[0.0, 3.0, 0.0, 2.0, 0.0]]).repeat(4, 1)

    def other_zero(right: Callable[..., Any], args: Any) -> Any:
        values, indices = right()
        if args[0].dtype == torch.float32:
            indices = torch.where(indices == 4, 0, torch.where(indices == 0, 4, indices))
        return values, indices

    def other_number(right: Callable[..., Any], args: Any) -> Any:
        values, indices = right()
        return values, indices.where(indices != 1, 3) if args[0].stride(0) != args[0].shape[1] else indices

    plant(monkeypatch, "aten.topk.default", other_zero)
    compiled(lambda x: torch.topk(x, 4))(x)
    monkeypatch.undo()
    torch._dynamo.reset()
    plant(monkeypatch, "aten.topk.default", other_number)
    with pytest.raises(CheckError, match="result 1: 4 of 16 elements are off"):
        compiled(lambda x: torch.topk(x, 4))(x.mT.contiguous().mT)


def trained(function: Callable[..., Any], *args: torch.Tensor) -> tuple[Callable[..., Any], tuple[torch.Tensor, ...]]:
    return function, tuple(x.requires_grad_() if x.dtype.is_floating_point else x for x in args)


PROGRAMS: dict[str, Callable[[torch.dtype], tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]] = {
    "grid_sample": lambda t: trained(sampled, *image(dtype=t)),
    "distances": lambda t: trained(lambda x: torch.cdist(x, x + 1), torch.randn(4, 5, dtype=t)),
    "sort": lambda t: (lambda x: (torch.topk(x, 3), torch.sort(x)), (torch.randint(9, (5, 40)).to(t),)),
    "median": lambda t: (lambda x: (x.kthvalue(2), x.median(-1)), (torch.randn(4, 9, dtype=t),)),
    "solve": lambda t: trained(lambda x: torch.linalg.solve(x @ x.mT, x), torch.randn(4, 4, dtype=torch.float32)),
    "convolution": lambda t: trained(
        torch.nn.ConvTranspose2d(3, 8, 3).to(t), torch.randn(2, 3, 13, 15, dtype=t)
    ),
    "unpool": lambda t: trained(
        lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), torch.randn(2, 3, 8, 8, dtype=t)
    ),
    "resize": lambda t: trained(
        lambda x: F.interpolate(x, size=(5, 7, 9), mode="trilinear"), torch.randn(2, 3, 4, 4, 4, dtype=t)
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_right_calls_pass(name: str, dtype: torch.dtype, checkers: list[LaunchChecker]) -> None:
    function, args = PROGRAMS[name](dtype)
    try:
        function(*args)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"eager: {error}")
    found = torch.utils._pytree.tree_leaves(compiled(function)(*args))
    for y in found:
        if y.requires_grad:
            y.float().square().sum().backward()
    assert checkers and all(c.checked and not c.skipped for c in checkers)


def test_a_call_that_float64_does_not_have_is_not_checked(
    monkeypatch: pytest.MonkeyPatch, checkers: list[LaunchChecker]
) -> None:
    def refused(right: Callable[..., Any], args: Any) -> Any:
        if args[0].dtype == torch.float64:
            raise RuntimeError("not implemented for 'Double'\nC++ frames")
        return right()

    plant(monkeypatch, "aten.grid_sampler_3d.default", refused)
    compiled(sampled)(*image())
    [reason] = checkers[0].skipped
    assert "not implemented for 'Double'" in reason and "frames" not in reason


def test_random_numbers_and_other_libraries_are_called_once(checkers: list[LaunchChecker]) -> None:
    calls: list[int] = []

    @torch.library.custom_op("kiln_checked_calls::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x.clone()

    counted.register_fake(torch.empty_like)
    compiled(lambda x: (counted(x), torch.multinomial(x, 2), torch.linalg.eigh(x @ x.mT)))(torch.rand(4, 4))
    assert len(calls) == 1
    assert sum(c.checked for c in checkers) == 1  # the product
