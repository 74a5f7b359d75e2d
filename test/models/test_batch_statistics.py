# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Norms by the statistics of their own input: no ATen call, few kernels, and results, gradients and buffers right."""

import copy

import pytest
import torch
from torch import nn

import kiln


def run(model, x):
    """Result, gradients of the input and of all parameters, and all buffers behind the call."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    result = model(x)
    result.square().sum().backward()
    return {"result": result.detach(), "x": x.grad} | {
        n: p.grad for n, p in model.named_parameters()
    } | {f"buffer {n}": b for n, b in model.named_buffers()}  # fmt: skip


def check(model, x):
    compiled, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    call = torch.compile(compiled, backend=kiln.backend, options={"fallback": False})
    found, eager, expected = run_compiled(call, compiled, x), run(model, x), run(exact, x.double())
    floor = 1e-6 if x.dtype == torch.float32 else 8e-3
    for name, value in found.items():
        right = expected[name].double()
        error, allowed = ((v.double() - right).norm() / right.norm().clamp(min=1e-3) for v in (value, eager[name]))
        assert error <= max(3 * allowed, floor), f"{name}: {error:.1e}, eager's is {allowed:.1e}"
        assert value.dtype == eager[name].dtype
    assert found["result"].stride() == eager["result"].stride()


def run_compiled(call, model, x):
    """`run` of a compiled model, whose parameters and buffers are the model's."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    result = call(x)
    result.square().sum().backward()
    found = {"result": result.detach(), "x": x.grad}
    found |= {n: p.grad for n, p in model.named_parameters()}
    return found | {f"buffer {n}": b for n, b in model.named_buffers()}


CASES = {
    "batch": (lambda: nn.BatchNorm2d(6), (4, 6, 7, 5)),
    "batch1d": (lambda: nn.BatchNorm1d(6), (9, 6)),
    "batch relu": (lambda: nn.Sequential(nn.BatchNorm2d(6), nn.ReLU()), (4, 6, 7, 5)),
    "cumulative": (lambda: nn.BatchNorm2d(6, momentum=None), (4, 6, 7, 5)),
    "untracked": (lambda: nn.BatchNorm2d(6, track_running_stats=False), (4, 6, 7, 5)),
    "plain": (lambda: nn.BatchNorm2d(6, affine=False), (4, 6, 7, 5)),
    "instance": (lambda: nn.InstanceNorm2d(6, affine=True), (4, 6, 7, 5)),
    "instance1d": (lambda: nn.InstanceNorm1d(6), (4, 6, 11)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training(name, dtype):
    make, shape = CASES[name]
    model = make().to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    check(model, torch.randn(shape).to(dtype) * 2 + 1)


def test_channels_last():
    x = torch.randn(4, 6, 7, 5).to(memory_format=torch.channels_last)
    check(nn.BatchNorm2d(6), x)


@pytest.mark.parametrize(
    "model",
    [nn.InstanceNorm2d(16, affine=True), nn.InstanceNorm2d(16), nn.Sequential(nn.InstanceNorm2d(16), nn.ReLU())],
)
def test_instance_norm_takes_one_kernel(model):
    with torch.no_grad():
        (graph,) = kiln.explain(model, torch.randn(2, 16, 9, 7), options={"fallback": False}).graphs
    assert sum(kernel.launches for kernel in graph.kernels) == 1
    assert not graph.aten_calls


@pytest.mark.parametrize(("memory_format", "most"), [(torch.contiguous_format, 1), (torch.channels_last, 2)])
def test_batch_norm_takes_few_kernels(memory_format, most):
    """Statistics, running statistics, the count of batches and the normalised result; see passes/fusion/statistics.py
    for why two kernels are faster where channels are neighbours."""
    x = torch.randn(2, 16, 9, 7).to(memory_format=memory_format)
    with torch.no_grad():
        (graph,) = kiln.explain(nn.BatchNorm2d(16), x, options={"fallback": False}).graphs
    assert sum(kernel.launches for kernel in graph.kernels) <= most
    assert not graph.aten_calls
