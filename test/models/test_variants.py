# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The same models with dynamic sizes, in bfloat16, frozen, in channels-last memory, and in training."""

import copy

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


def quick(*names: str) -> list:
    """All networks; those that are not named run with --slow only."""
    assert set(names) <= set(BUILDERS)
    return [pytest.param(n, marks=[] if n in names else pytest.mark.slow) for n in BUILDERS]


@pytest.mark.parametrize("name", quick("bert", "qwen2", "lstm"))
def test_bfloat16(name, check_model):
    model, make_inputs = BUILDERS[name]()
    inputs = tuple(i.bfloat16() if i.is_floating_point() else i for i in make_inputs(generator()))
    (report,) = check_model(model.bfloat16(), inputs)
    calls = {call.op: call.reason.partition(";")[0] for call in report.aten_calls}
    assert calls.keys() <= {"aten.convolution.default"}, calls
    assert all(reason.startswith("oneDNN: ") for reason in calls.values()), calls


@pytest.mark.parametrize("name", quick("clip_vision", "efficientnet"))
def test_freezing(name, check_model):
    """Constants instead of parameters, batch norms folded: the same ATen calls, and errors of eager's size."""
    model, make_inputs = BUILDERS[name]()
    g = generator()
    (report,) = check_model(model, make_inputs(g), make_inputs(g), freezing=True)
    assert report.freezing is not None and not report.freezing.reason
    assert report.freezing.inputs > 0
    norms = sum(isinstance(m, torch.nn.BatchNorm2d) for m in model.modules())
    assert report.freezing.convolutions + report.freezing.scales == norms


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


#: What is smaller than the builders' defaults in training.
TRAINED = {
    "gpt2": {"layers": 1},
    "mobilenet_v2": {"stages": ((1, 16, 1, 1), (6, 24, 1, 2))},
    "lstm": {"layers": 1, "length": 3},
    "dlrm": {},
    "opt": {"layers": 1},
    "qwen2": {"layers": 1},
    "convnext": {"blocks": (1, 1)},
    "swin": {"blocks": (2,), "heads": (2,)},
    "mixer": {"layers": 1},
    "diffusion_unet": {},
    "efficientnet": {},
    "resnet50": {},
}
QUICKLY_TRAINED = ("gpt2", "mobilenet_v2", "lstm")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICKLY_TRAINED else pytest.mark.slow) for n in TRAINED]
)
def test_training_step(name):
    """Forward and backward compile, and loss and every gradient are as near to float64's as eager's are."""
    model, make_inputs = BUILDERS[name](**TRAINED[name])
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


def total_error(gradients, exact) -> float:
    """Norm of all gradients' differences over that of all gradients."""
    squares = sum(float((gradients[key].double() - value).square().sum()) for key, value in exact.items())
    return (squares / sum(float(value.square().sum()) for value in exact.values())) ** 0.5


@pytest.mark.parametrize("norms", ["trained", pytest.param("training", marks=pytest.mark.slow)])
def test_training_step_channels_last(norms):
    """ResNet in channels-last memory.

    With batch norms that normalise by the batch, few images make gradients ill-conditioned: eager's own, of one model
    in two layouts, are up to a hundred thousand roundings apart. The measure is then the worse one of the two.
    """
    model, make_inputs = BUILDERS["resnet18"](width=8, batch=4)
    model.train(norms == "training")
    (images,) = make_inputs(generator())
    _, exact = training_step(exact_model := copy.deepcopy(model).double(), exact_model, (images.double(),))
    errors, inputs = [], images
    for memory_format in (torch.contiguous_format, torch.channels_last):
        model, inputs = model.to(memory_format=memory_format), images.to(memory_format=memory_format)
        errors.append(total_error(training_step(model, model, (inputs,))[1], exact))
    compiled = torch.compile(model, backend=kiln.backend, fullgraph=True, options={"fallback": False})
    _, gradients = training_step(compiled, model, (inputs,))
    assert gradients.keys() == exact.keys()
    assert total_error(gradients, exact) <= 3 * max(errors)
