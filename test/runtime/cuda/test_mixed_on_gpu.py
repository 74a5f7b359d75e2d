# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Graphs with CUDA and CPU tensors on an NVIDIA GPU, against eager; skipped where there is none."""

import pytest
import torch
from on_gpu_support import compiled, randn
from torch import nn
from torch.utils import _pytree as pytree

from kiln.frontend.report import collect

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

HALF = torch.tensor(0.5)


def copied(inputs):
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.requires_grad), inputs)


def widened(inputs):
    """With floats of 16 bits in float64."""
    narrow = (torch.bfloat16, torch.float16)
    return pytree.tree_map_only(torch.Tensor, lambda t: t.double() if t.dtype in narrow else t, inputs)


def check(function, *inputs, calls=3, mode=None, is_native=True):
    """Values, devices, dtypes, strides, written inputs and gradients are eager's, at each of several calls.

    Results in 16 bits are those of float64 within a rounding: eager rounds more often."""
    run = compiled(function, mode)
    for _ in range(calls):
        ours, theirs = copied(inputs), copied(inputs)
        with collect() as reports:
            found = run(*ours)
        exact = pytree.tree_leaves(function(*widened(copied(inputs))))
        expected = function(*theirs)
        for a, b, c in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), exact, strict=True):
            assert (a.device, a.stride(), a.dtype) == (b.device, b.stride(), b.dtype)
            torch.testing.assert_close(a, c.to(b.dtype) if b.itemsize == 2 and b.is_floating_point() else b)
        losses = [t for t in pytree.tree_leaves(found) if t.requires_grad]
        if losses:
            sum(t.square().sum().cpu() for t in losses).backward()
            sum(t.square().sum().cpu() for t in pytree.tree_leaves(expected) if t.requires_grad).backward()
        for a, b in zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True):
            torch.testing.assert_close(a, b)
            if isinstance(a, torch.Tensor) and a.requires_grad:
                torch.testing.assert_close(a.grad, b.grad)
        if is_native:
            assert all(report.executor == "kiln" for report in reports)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: torch.relu(x * s) + 1,
        lambda x, s: torch.where(x > s, x, s.to(x.dtype)),
        lambda x, s: torch.min(x, s.to(x.dtype)),
        lambda x, s: (x.addcmul(x, s), (x - s).sum(-1)),
        lambda x, s: x * HALF + s * 2,
        lambda x, s: torch.lerp(x, x * 2, s.to(x.dtype)),
    ],
)
def test_a_number_of_the_host(function, dtype):
    check(function, randn(65, 130, dtype=dtype), torch.tensor(0.3))


def test_each_call_has_its_number():
    run = compiled(lambda x, s: torch.tanh(x) * s)
    x, s = randn(1000), torch.tensor(1.0).pin_memory()
    for number in (1.0, 2.0, float("inf"), -4.0):
        s.fill_(number)
        found = run(x, s)
        s.fill_(100.0)  # eager has taken the number by now
        torch.testing.assert_close(found, torch.tanh(x) * number)


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune"])
def test_no_recording_holds_a_number(mode):
    run = compiled(lambda x, s: torch.tanh(x) * s, mode)
    x = randn(1000)
    for number in range(6):
        torch.testing.assert_close(run(x, torch.tensor(float(number))), torch.tanh(x) * number)


def test_tensor_split_with_indices_of_the_host():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        function = lambda x, i: [piece * 2 for piece in torch.tensor_split(x, i)]
        run = torch.compile(function, backend="kiln")
        for indices in ([2, 5], [0, 7], [3, 3]):
            x, i = randn(8, 6), torch.tensor(indices)
            for a, b in zip(run(x, i), function(x, i), strict=True):
                torch.testing.assert_close(a, b)


def test_indices_of_the_host():
    check(lambda x, i: x[i] * 2, randn(20, 6), torch.tensor([3, 0, 19]))
    check(lambda x, i: x.index_put((i,), HALF.cuda()), randn(20, 6), torch.tensor([3, 0, 19]))


def test_transfers_both_ways():
    check(lambda x, h: ((x + h.cuda()).cpu() * 2, torch.relu(x) @ x.t()), randn(33, 20), torch.randn(20))
    check(lambda x, h: (x.cpu() + h, h.to("cuda", non_blocking=True) * x), randn(33, 20), torch.randn(20))


def test_computing_on_both():
    check(lambda x, h: (torch.softmax(x, -1), torch.softmax(h, -1) + 1, h.t()), randn(9, 200), torch.randn(30, 4))


def test_written_inputs():
    def step(x, steps, host):
        steps += 1
        host.copy_(x.sum(0))
        x.mul_(1 - 0.9**steps)
        return x + 1

    check(step, randn(30, 20), torch.tensor(2.0), torch.zeros(20))


def test_gradients():
    scale = torch.tensor(0.7, requires_grad=True)
    check(lambda x, w, s: torch.tanh(x @ w) * s, randn(16, 20), randn(20, 12).requires_grad_(), scale)
    check(lambda x, h: torch.tanh(x) * h.cuda(), randn(16, 20).requires_grad_(), torch.randn(20).requires_grad_())


def test_dynamic_sizes():
    run = torch.compile(lambda x, h, s: (x * s + h.cuda(), h * 2), backend="kiln", dynamic=True, fullgraph=True)
    for n in (4, 9, 130):
        x, h, s = randn(3, n), torch.randn(n), torch.tensor(float(n))
        found = run(x, h, s)
        torch.testing.assert_close(found[0], x * s + h.cuda())
        torch.testing.assert_close(found[1], h * 2)


def test_an_optimizer_with_steps_on_the_host():
    torch._dynamo.reset()
    models = [nn.Linear(20, 30).cuda() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in models]
    steps = [torch.compile(optimizers[0].step, backend="kiln"), optimizers[1].step]
    for _ in range(4):
        x = randn(8, 20)
        for model, step in zip(models, steps, strict=True):
            model.zero_grad()
            model(x).square().sum().backward()
            step()
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b)
