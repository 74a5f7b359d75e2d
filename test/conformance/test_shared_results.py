# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Results of training graphs of any size that are views of one tensor share memory as eager's do, and have its gradient.

AOTAutograd makes the second one anew from the memory of the first, by the place that it has in eager.
"""

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.nn.functional as F

import kiln  # noqa: F401 - it registers the backend

Tensors = Sequence[torch.Tensor]

PROGRAMS: dict[str, Callable[[torch.Tensor], Tensors]] = {
    "a copy and its rows": lambda x: (y := x.flip(0), y[1:3]),
    "rows and columns of a copy": lambda x: (lambda y: (y[1:], y.t()))(x.clone()),
    "pieces of a copy": lambda x: x.roll(1, 0).split(2)[:2],
    "pieces of a copy in another order": lambda x: x.t().contiguous().chunk(3),
    "columns of a copy": lambda x: x.flip(1).unbind(1)[:2],
    "pieces of a product": lambda x: (x.roll(1, 0) * 1.5).split(2)[:2],
    "views of a function": lambda x: (y := x.relu(), y.t(), y[0]),
    "parts that overlap": lambda x: (lambda y: (y[2:], y[:3]))(torch.cat([x, x * 2])),
    "a norm": lambda x: (y := F.layer_norm(x, x.shape[-1:]), y[1:]),
    "a copy that is read as well": lambda x: (y := x.flip(0), y[1:], (y * 2).sum(0)),
    "views of the input, and of a copy": lambda x: (x.view(-1), y := x.flip(0), y[1:], x.t()),
    "a place that sizes decide": lambda x: (lambda y, n: (y[:, n // 2 - 2 : n // 2 + 2], y))(x.roll(1, 1), x.shape[1]),
}


def _shared(tensors: Tensors) -> list[list[bool]]:
    memory = [x.untyped_storage().data_ptr() for x in tensors]
    return [[a == b for b in memory] for a in memory]


@pytest.mark.parametrize("target", ["cpu", "tt-cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_that_share_memory(name: str, target: str) -> None:
    program = PROGRAMS[name]
    torch._dynamo.reset()
    options = {"fallback": False, "target": target}
    compiled = torch.compile(program, backend="kiln", dynamic=True, fullgraph=True, options=options)
    for rows in (7, 9):
        inputs = [torch.randn(rows, rows + 2, requires_grad=True)]
        inputs.append(inputs[0].detach().clone().requires_grad_())
        theirs, ours = (list(f(x)) for f, x in zip((program, compiled), inputs, strict=True))
        torch.testing.assert_close(ours, theirs)
        assert [y.stride() for y in ours] == [y.stride() for y in theirs]
        assert _shared([inputs[1], *ours]) == _shared([inputs[0], *theirs])
        weights = [torch.randn_like(y) for y in theirs]
        gradients = [
            torch.autograd.grad(sum((y * w).sum() for y, w in zip(results, weights, strict=True)), x)
            for results, x in zip((theirs, ours), inputs, strict=True)
        ]
        torch.testing.assert_close(gradients[1], gradients[0])
