# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Long reductions in two steps: what the emulated GPU computes."""

from collections.abc import Callable

import pytest
import torch

import kiln


def compiled(f: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    return torch.compile(f, backend=kiln.backend, fullgraph=True, options={"target": "tt-cpu", "fallback": False})


def image(layout: torch.memory_format) -> torch.Tensor:
    return torch.randn(6, 64, 28, 28).bfloat16().to(memory_format=layout)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_channels_of_images(layout: torch.memory_format) -> None:
    """Statistics of 64 channels; images, and rows of these, are parts of the sums where channels are neighbours."""
    x = image(layout)

    def statistics(x: torch.Tensor) -> torch.Tensor:
        return torch.stack(torch.var_mean(x.float(), (0, 2, 3)))

    found = compiled(statistics)(x)
    exact = torch.stack(torch.var_mean(x.double(), (0, 2, 3)))
    assert (found - exact).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        *[((3, 65536), -1), ((20000, 3), 0), ((16384, 24), 0), ((8, 2048, 3), 1), ((100, 9, 512), 1)],
        *[((100003,), 0), ((49999, 65), 0), ((2, 100003), -1)],  # extents without divisors
    ],
)
def test_few_results(shape: tuple[int, ...], dim: int) -> None:
    """Rows, columns of which few are neighbours, columns of matrices."""
    x = torch.randn(shape)

    def reductions(x: torch.Tensor) -> torch.Tensor:
        return torch.stack((x.exp().sum(dim), x.amax(dim)))

    found = compiled(reductions)(x)
    exact = torch.stack((x.double().exp().sum(dim), x.double().amax(dim)))
    assert ((found - exact).abs() / exact.abs().clamp_min(1)).max() < 1e-5


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
def test_long_sums_are_exact_whatever_their_extent(target: str) -> None:
    """49,999 is a prime: in one part, each sum would be thousands of roundings long."""
    x = torch.randn(49999, 3)
    torch._dynamo.reset()
    found = torch.compile(lambda x: x.relu().var(0), backend="kiln", options={"target": target})(x)
    exact = x.double().relu().var(0)
    assert ((found - exact).abs() / exact).max() < 1e-6


def test_a_row_that_a_program_holds_is_one_kernel() -> None:
    """A norm of a few tokens."""

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (8192,))

    x = torch.randn(16, 8192)
    graph = kiln.explain(norm, x, options={"target": "tt-cpu"}).graphs[0]
    assert len([k for k in graph.kernels if k.kind != "library"]) == 1
    assert (compiled(norm)(x) - norm(x.double())).abs().max() < 1e-5


@pytest.mark.parametrize(("shape", "dim"), [((0, 100_003), (1,)), ((100_003, 0), (0,)), ((8, 0, 64, 64), (0, 2, 3))])
def test_no_results(shape: tuple[int, ...], dim: tuple[int, ...]) -> None:
    x = torch.empty(shape)
    assert compiled(lambda x: (2 * x).sum(dim))(x).shape == x.sum(dim).shape


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize(("shape", "dim"), [((2, 100003), -1), ((4099, 65), 0), ((100003,), None)])
def test_positions_of_extrema(shape: tuple[int, ...], dim: int | None, dtype: torch.dtype, target: str) -> None:
    """The first of equal elements, and NaN before any number, wherever they lie among parts and what these leave."""

    def positions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.argmax(dim), x.argmin(dim), *(() if dim is None else torch.max(x, dim))

    x = (torch.randn(shape) * 20).to(dtype)
    inputs = [x]
    if dtype.is_floating_point:
        some, last, none = x.clone(), torch.full_like(x, -float("inf")), torch.full_like(x, float("inf"))
        some.view(-1)[::7001] = float("nan")
        last.view(-1)[-1] = float("nan")
        inputs += [some, last, none]
    torch._dynamo.reset()
    run = torch.compile(positions, backend="kiln", fullgraph=True, options={"target": target, "fallback": False})
    for value in inputs:
        for found, exact in zip(run(value), positions(value), strict=True):
            torch.testing.assert_close(found, exact, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "groups"), [((2, 64, 20, 9), 32), ((1, 12, 7, 33), 3), ((3, 60, 5, 5), 4), ((2, 8, 6, 5, 7), 4)]
)
def test_groups_of_neighbours(shape: tuple[int, ...], groups: int, dtype: torch.dtype) -> None:
    """Group norms of images and volumes with channels last, forward and backward; a mean that is far from 0."""
    layout = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    channels = shape[1]
    weight, bias = torch.randn(channels).to(dtype), torch.randn(channels).to(dtype)
    torch._dynamo.reset()
    run = torch.compile(normed, backend="kiln", fullgraph=True, options={"fallback": False})
    x = (torch.randn(shape) + 30).to(dtype).to(memory_format=layout)
    with torch.no_grad():
        found = run(x, groups, weight, bias)
    exact = normed(x.double(), groups, weight.double(), bias.double())
    eager = normed(x, groups, weight, bias)
    assert (found - exact).abs().max() <= 2 * (eager - exact).abs().max() + 1e-5
    assert found.stride() == eager.stride()
    ours, theirs = (gradient(f, x, groups, weight, bias) for f in (run, normed))
    wide = gradient(normed, x.double(), groups, weight.double(), bias.double())
    assert (ours - wide).norm() <= 2 * (theirs - wide).norm() + 1e-6 * wide.norm()


@pytest.mark.parametrize("shape", [(0, 8, 4, 4), (2, 8, 0, 4), (2, 8, 4, 0), (2, 8, 1, 5)])
def test_groups_of_no_pixels(shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape).to(memory_format=torch.channels_last), torch.randn(8)
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(normed, backend="kiln", options={"fallback": False})(x, 4, weight, weight)
    torch.testing.assert_close(found, normed(x, 4, weight, weight), check_stride=True)


def gradient(f: Callable[..., torch.Tensor], x: torch.Tensor, *others: object) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    found = f(leaf, *others)
    (of_x,) = torch.autograd.grad(found.square().sum(dtype=torch.float64), leaf)
    return of_x


def normed(x: torch.Tensor, groups: int, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(torch.nn.functional.group_norm(x, groups, weight, bias))
