# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients of norms in 16 bits read means that are not rounded."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import kiln


def norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x + 30, None, None, w, b, True)


def gradients(function: Callable[..., torch.Tensor], given: list[torch.Tensor]) -> list[torch.Tensor]:
    leaves = [x.detach().clone().requires_grad_() for x in given]
    result = function(*leaves)
    tangent = torch.randn(result.shape, generator=torch.Generator().manual_seed(9)).to(torch.bfloat16)
    return list(torch.autograd.grad(result, leaves, tangent.to(result.dtype)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_far_from_zero(dtype: torch.dtype) -> None:
    """Eager keeps the mean in 16 bits: at 30 it is up to 1/16 off, of a deviation of 1."""
    torch.manual_seed(0)
    given = [torch.randn(64, 256).to(dtype), (torch.rand(256) + 0.5).to(dtype), torch.randn(256).to(dtype)]
    exact, eager = gradients(norm, [x.double() for x in given]), gradients(norm, given)
    torch._dynamo.reset()
    run = torch.compile(norm, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    for found, theirs, right in zip(gradients(run, given)[:2], eager, exact, strict=False):
        assert (found.double() - right).norm() < 0.85 * (theirs.double() - right).norm()


def test_not_where_eagers_roundings_are_asked_for() -> None:
    torch.manual_seed(0)
    given = [torch.randn(64, 256).bfloat16(), torch.rand(256).bfloat16(), torch.randn(256).bfloat16()]
    torch._dynamo.reset()
    run = torch.compile(
        norm, backend=kiln.backend, fullgraph=True, options={"fallback": False, "emulate_precision_casts": True}
    )
    exact = gradients(norm, [x.double() for x in given])
    found, theirs = gradients(run, given)[1], gradients(norm, given)[1]
    assert (found.double() - theirs.double()).norm() < 0.1 * (theirs.double() - exact[1]).norm()


def test_means_that_the_program_rounds() -> None:
    """They are in the result, also in training."""

    def centred(x: torch.Tensor) -> torch.Tensor:
        mean = x.float().mean(-1, keepdim=True).bfloat16()
        return (x.float() - mean.float()) * 100

    torch.manual_seed(0)
    x = (torch.randn(64, 256) + 30).bfloat16().requires_grad_()
    torch._dynamo.reset()
    run = torch.compile(centred, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    torch.testing.assert_close(run(x), centred(x))
