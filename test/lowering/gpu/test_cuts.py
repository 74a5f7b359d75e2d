# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Concatenations on a GPU: nests that are cut at the pieces compute what whole ones do, for all kinds of pieces."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import kiln
from kiln.lowering import paths


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return x * cosine + torch.cat([-x[..., half:], x[..., :half]], -1) * sine


def shuffled(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat([x, y], 1).view(2, 2, 16, 5, 5).transpose(1, 2).reshape(2, 32, 5, 5).relu()


CUT: dict[str, tuple[Callable[..., object], list[tuple[int, ...]]]] = {
    "columns": (lambda x, y: torch.cat([x * 2, y + 1], -1), [(33, 40), (33, 72)]),
    "rows": (lambda x, y: torch.cat([x.relu(), y + 1], 0), [(33, 40), (5, 40)]),
    "one operand twice": (lambda x: torch.cat([x.relu(), (-x).relu()], 1), [(4, 32, 9, 9)]),
    "rotary embedding": (rotated, [(2, 4, 17, 64), (17, 64), (17, 64)]),
    "followed by a norm": (
        lambda x, y, z, w: torch.relu(torch.cat([x, y, z], 1) * w[:, None, None]),
        [(2, 40, 7, 7), (2, 56, 7, 7), (2, 32, 7, 7), (128,)],
    ),
    "two with other borders": (
        lambda x, y, z: torch.cat([x, y], 0) * torch.cat([z, x], 0),
        [(8, 32), (24, 32), (24, 32)],
    ),
    "along two dims": (lambda x, y, z: torch.cat([torch.cat([x, y], 1), z], 0), [(8, 32), (8, 40), (24, 72)]),
    "one in the other": (lambda x, y, z: torch.cat([torch.cat([x, y], 1), z], 1) + 1, [(8, 32), (8, 40), (8, 72)]),
    "an empty piece": (lambda x, y: torch.cat([x, y, x], 0) * 2, [(8, 32), (0, 32)]),
    "results of several kinds": (
        lambda x, y: (torch.cat([x * 2, y], 1), torch.cat([x * 2, y], 1).exp(), x * 2),
        [(8, 32), (8, 40)],
    ),
    "booleans": (lambda x, y: torch.cat([x > 0, y > 1], 1), [(8, 150), (8, 130)]),
    "many": (lambda *xs: torch.cat(xs, 1) * 2, [(2, 31 + i, 6, 6) for i in range(12)]),
}
"""Functions of which each is computed by a nest that is cut."""

WHOLE: dict[str, tuple[Callable[..., object], list[tuple[int, ...]]]] = {
    "alternating": (lambda x, y: torch.stack([x, y], -1) * 2, [(8, 32), (8, 32)]),
    "behind a reduction": (lambda x, y: torch.cat([x * 2, y], 1).sum(1), [(8, 32), (8, 40)]),
    "shuffled channels": (shuffled, [(2, 16, 5, 5), (2, 16, 5, 5)]),
    "columns of three, of which less than two are read": (
        lambda x, y, z: torch.cat([x, y, z], 1)[:, :150] * 2,
        [(6, 100)] * 3,
    ),
    "rows of three, of which less than two are read": (
        lambda x, y, z: torch.cat([x * 2, y, z], 0)[:15].relu(),
        [(10, 40)] * 3,
    ),
    "too many": (lambda *xs: torch.cat(xs, 1) * 2, [(2, 8)] * 33),
}


def taken(run: Callable[[], object]) -> tuple[object, set[str]]:
    paths.reset()
    return run(), {path for path, times in paths.taken().items() if times and path.startswith("gpu cuts")}


def compiled(function: Callable[..., object], dynamic: bool = False) -> Callable[..., object]:
    torch._dynamo.reset()
    options = {"target": "tt-cpu", "fallback": False, "cache": False}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, dynamic=dynamic, options=options)


@pytest.mark.parametrize(
    "memory_format", [torch.contiguous_format, torch.channels_last], ids=["planar", "channels last"]
)
@pytest.mark.parametrize("name", [*CUT, *WHOLE])
def test_as_eager(name: str, memory_format: torch.memory_format) -> None:
    function, shapes = (CUT | WHOLE)[name]
    torch.manual_seed(0)
    inputs = [torch.randn(shape) for shape in shapes]
    inputs = [x.to(memory_format=memory_format) if x.dim() == 4 else x for x in inputs]
    found, cuts = taken(lambda: compiled(function)(*inputs))
    torch.testing.assert_close(found, function(*inputs))
    assert bool(cuts) == (name in CUT)


@pytest.mark.parametrize(
    "name", ["columns of three, of which less than two are read", "rows of three, of which less than two are read"]
)
def test_a_part_with_sizes_at_run_time(name: str) -> None:
    function, shapes = WHOLE[name]
    inputs = [torch.randn(shape) for shape in shapes]
    torch.testing.assert_close(compiled(function, dynamic=True)(*inputs), function(*inputs))


@pytest.mark.parametrize("dim", [0, 1])
def test_sizes_at_run_time(dim: int) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.cat([x * 2, y], dim).relu()

    found = compiled(function, dynamic=True)
    for n, m in ((3, 5), (7, 2), (40, 3)):
        x, y = (torch.randn((k, 33) if dim == 0 else (33, k)) for k in (n, m))
        torch.testing.assert_close(found(x, y), function(x, y))


def test_gradients_of_a_gate_are_one_nest() -> None:
    x = torch.randn(37, 256)
    mine, eager = (x.clone().requires_grad_() for _ in range(2))
    run = compiled(lambda x: F.glu(x) * 1.5)
    _, cuts = taken(lambda: run(mine).sum().backward())
    (F.glu(eager) * 1.5).sum().backward()
    torch.testing.assert_close(mine.grad, eager.grad)
    assert cuts == {"gpu cuts: at concatenations", "gpu cuts: pieces in one nest"}
