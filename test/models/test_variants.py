# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The same models with dynamic sizes, in bfloat16, channels-last, and in training."""

import pytest
import torch

import kiln
from benchmarks.networks import BUILDERS
from kiln.frontend.report import collect


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_dynamic_lengths(name, check_model):
    """Three lengths and two batch sizes, one compilation, no ATen call."""
    model, _ = BUILDERS[name]()
    g = generator()
    inputs = [(torch.randint(0, 100, shape, generator=g),) for shape in ((2, 16), (3, 29), (5, 7))]
    (report,) = check_model(model, *inputs, dynamic=True)
    assert report.symbols
    assert report.aten_calls == []


def test_bfloat16(check_model):
    model, make_inputs = BUILDERS["bert"]()
    g = generator()
    (report,) = check_model(model.bfloat16(), make_inputs(g), make_inputs(g))
    assert report.aten_calls == []


def test_channels_last(check_model):
    model, make_inputs = BUILDERS["resnet18"]()
    (images,) = make_inputs(generator())
    check_model(model.to(memory_format=torch.channels_last), (images.to(memory_format=torch.channels_last),))


def training_step(call, model, inputs):
    """Loss and gradients of one step. The target is fixed, so that two models are compared on the same loss."""
    model.zero_grad()
    output = call(*inputs)
    target = torch.linspace(-1, 1, output.shape[-1], dtype=output.dtype)
    loss = (output - target).square().mean()
    loss.backward()
    return loss.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", ["gpt2", "mobilenet_v2"])
def test_training_step(name):
    """Forward and backward compile, and loss and every gradient are as near to float64's as eager's are."""
    options = {"layers": 1} if name == "gpt2" else {"stages": ((1, 16, 1, 1), (6, 24, 1, 2))}
    model, make_inputs = BUILDERS[name](**options)
    # In eval mode: no dropout, and batch norms keep their statistics, so that a step can be repeated.
    inputs = make_inputs(generator())
    compiled = torch.compile(model, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    with collect() as reports:
        loss, gradients = training_step(compiled, model, inputs)
    assert sorted(report.graph for report in reports) == ["backward", "forward"]
    eager_loss, eager = training_step(model, model, inputs)
    exact_model = model.double()
    exact_inputs = tuple(i.double() if i.is_floating_point() else i for i in inputs)
    exact_loss, exact = training_step(exact_model, exact_model, exact_inputs)
    assert abs(loss - exact_loss) <= 3 * abs(eager_loss - exact_loss) + 1e-6 * abs(exact_loss)
    assert gradients.keys() == eager.keys() == exact.keys()
    scale = max(g.norm() for g in exact.values())
    for key, value in exact.items():
        error, allowed = (gradients[key].double() - value).norm(), 3 * (eager[key].double() - value).norm()
        assert error <= allowed + 1e-7 * scale, f"gradient of {key}: {error:.2e}, three times eager's is {allowed:.2e}"
