# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numbers of view, slice, pad and concatenation rules against eager, with static and with symbolic sizes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_mlir import ir
from views_harness import check, convert

F = torch.nn.functional


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X = noise(4, 7)
CUBE = noise(3, 4, 5)
IMAGE = noise(2, 8, 3, 5)

CASES: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "permute": (lambda x: (x.permute(2, 0, 1), x.transpose(0, -1), x.mT, x[0].t()), (CUBE,)),
    "movedim": (lambda x: (x.movedim(0, 2), x.movedim((0, 1), (1, 2)), x.swapaxes(0, 1)), (CUBE,)),
    "view": (lambda x: (x.view(12, 5), x.reshape(-1), x.flatten(1), x.unflatten(1, (2, 2))), (CUBE,)),
    "reshape_transposed": (lambda x: x.transpose(0, 1).reshape(x.shape[1], -1), (CUBE,)),
    "expand": (lambda x: (x.expand(3, 4, 7), x.unsqueeze(0).expand(2, -1, -1)), (X,)),
    "expand_ones": (lambda x: x.expand(3, 4, 5), (noise(3, 1, 1),)),
    "squeeze": (lambda x: (x.squeeze(), x.squeeze(1), x.squeeze((1, 3)), x.unsqueeze(-1)), (noise(3, 1, 5, 1),)),
    "slice": (lambda x: (x[1:], x[:-1], x[-2:], x[1:-1], x[-3:-1], x[:100]), (X,)),
    "slice_empty": (lambda x: x[5:], (X,)),
    "slice_step": (lambda x: (x[:, ::2], x[:, 1::3], x[1:3, ::6]), (X,)),
    "select": (lambda x: (x[0], x[-1], x[:, 2], x.select(1, -2)), (X,)),
    "split": (lambda x: (*x.split(3, 1), *x.chunk(2, 0), *x.split([2, 5], 1), *torch.tensor_split(x, 3, 1)), (X,)),
    "unbind": (lambda x: x.unbind(1), (X,)),
    "narrow": (lambda x: x.narrow(1, 2, 3), (X,)),
    "flip": (lambda x: (x.flip(0, 1), x.fliplr()), (X,)),
    "roll": (lambda x: (x.roll(2, 1), x.roll(-3, 0), x.roll(5), x.roll((1, 9), (0, 1))), (X,)),
    "repeat": (lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.tile(2), x.repeat_interleave(3, 1)), (X,)),
    "diagonal": (lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-2)), (X,)),
    "diag_embed": (lambda x: (torch.diag_embed(x), torch.diag_embed(x, 2), torch.diag_embed(x, -1, 0, 2)), (X,)),
    "unfold": (lambda x: x.unfold(1, 3, 2), (X,)),
    "pixel_shuffle": (lambda x: (F.pixel_shuffle(x, 2), F.channel_shuffle(x, 4)), (IMAGE,)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), (noise(2, 2, 4, 6),)),
    "cat": (lambda x, y: (torch.cat([x, y], 1), torch.cat([x, x, x]), torch.stack([x, x], 1)), (X, noise(4, 2))),
    "cat_types": (lambda x, y: torch.cat([x, y.double()], 1), (X, noise(4, 2))),
    "cat_empty": (lambda x, y: torch.cat([y, x], 1), (X, torch.empty(0))),
    "pad": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 2, 3, 4), value=2.5), F.pad(x, (-1, 2, 0, -1))), (X,)),
    "pad_reflect": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), (IMAGE,)),
    "pad_replicate": (lambda x: F.pad(x, (2, 1, 1, 3), mode="replicate"), (IMAGE,)),
    "triangle": (lambda x: (x.tril(), x.triu(), x.tril(-1), x.triu(2), x.bool().tril()), (CUBE,)),
    "slice_scatter": (lambda x, y: (x.slice_scatter(y, 1, 2, 5), x.slice_scatter(y, 1, -3)), (X, noise(4, 3))),
    "slice_scatter_step": (
        lambda x, y: (
            x.slice_scatter(y, 1, 0, None, 2),  # 7 elements: the last group of two has one
            x[:, 1:].slice_scatter(y[:, 1:], 1, 1, None, 2),
            x.slice_scatter(y[:, 2:], 1, 2, 6, 2),
            x.slice_scatter(y[:, :2], 1, 3, None, 3),
            x.slice_scatter(y[:, :1], 1, 5, 6, 4),
            x.slice_scatter(y[:, :0], 1, 5, 5, 2),
        ),
        (X, noise(4, 4)),
    ),
    "slice_scatter_rows": (lambda x, y: x.slice_scatter(y, 0, 1, None, 3), (noise(6, 2, 3), noise(2, 2, 3))),
    "slice_scatter_cast": (lambda x, y: x.slice_scatter(y, 1, 1, 7, 2), (X.long(), noise(4, 3))),
    "diagonal_scatter": (
        lambda x, y: (
            torch.diagonal_scatter(x, y),
            torch.diagonal_scatter(x, y, 2),
            torch.diagonal_scatter(x, y[:2], 2, 1, 0),
            torch.diagonal_scatter(x, y[:2], -2),
            torch.diagonal_scatter(x, y[:0], 7),
        ),
        (X, noise(4)),
    ),
    "diagonal_scatter_batch": (lambda x, y: torch.diagonal_scatter(x, y, -1, 0, 2), (CUBE, noise(4, 2))),
    "select_scatter": (lambda x, y: (x.select_scatter(y, 1, 3), x.select_scatter(y, 1, -1)), (X, noise(4))),
    "clone": (lambda x: (x.clone(), x.detach(), x.T.contiguous()), (X,)),
    "zero_size": (lambda x: (x.reshape(0, 3), x.t(), torch.cat([x, x])), (torch.empty(3, 0),)),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dynamic: bool, context: ir.Context) -> None:
    fn, inputs = CASES[name]
    check(fn, inputs, context, dynamic)


def test_in_place_writes(context: ir.Context) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, 1:4] = y
        x[0] = 3.0
        return x

    check(fn, (X, noise(4, 3)), context)


def test_as_strided_of_a_fresh_tensor(context: ir.Context) -> None:
    check(lambda x: torch.as_strided(x + 1, (2, 3), (3, 1), 2), (X,), context)


def test_as_strided_of_an_argument_is_atens(context: ir.Context) -> None:
    check(lambda x: torch.as_strided(x, (2, 3), (3, 1), 2), (X,), context, way="aten")


def test_a_returned_clone_is_a_copy(context: ir.Context) -> None:
    imported, _ = convert(lambda x: x.clone(), (X,), context)
    assert "linalg.generic" in str(imported.module)


def test_a_clone_in_between_costs_nothing(context: ir.Context) -> None:
    imported, _ = convert(lambda x: x.clone() + 1, (X,), context)
    assert str(imported.module).count("linalg.generic") == 1
