# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops on lists of tensors, and the optimizers that are made of them, against eager."""

from typing import Any

import pytest
import torch
from torch._ops import OpOverload

import kiln
from kiln.frontend.foreach import foreach_decompositions
from kiln.frontend.report import CompileReport, collect

SHAPES = ((5, 3), (7,), (), (2, 3, 2))
DECOMPOSED = foreach_decompositions()


def tensors(seed: int) -> list[torch.Tensor]:
    """Within (0.1, 0.9), where every function is defined."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(shape, generator=generator, dtype=torch.float64) * 0.8 + 0.1 for shape in SHAPES]


def arguments(overload: OpOverload) -> list[Any]:
    """One for each argument of an overload that has no default value."""
    made: list[Any] = []
    for number, argument in enumerate(overload._schema.arguments):
        kind = str(argument.type)
        if kind == "List[Tensor]":
            made.append(
                [torch.rand(3, 3, dtype=torch.float64) for _ in SHAPES]
                if "_foreach_mm" in str(overload)
                else tensors(number)
            )
        elif kind == "List[number]":
            made.append([0.5, 2.0, 1.5, 3.0])
        elif kind == "Tensor":
            scalars = torch.tensor([0.5, 2.0, 1.5, 3.0], dtype=torch.float64)
            made.append(scalars if argument.name == "scalars" else torch.tensor(0.5, dtype=torch.float64))
        elif kind == "number" and not argument.has_default_value():
            made.append(2.0)
    return made


@pytest.mark.parametrize("overload", DECOMPOSED, ids=str)
def test_each_op(overload: OpOverload) -> None:
    given = arguments(overload)
    found, expected = DECOMPOSED[overload](*given), overload(*given)
    torch.testing.assert_close(list(found), list(expected))
    assert [x.stride() for x in found] == [x.stride() for x in expected]


def test_all_are_decomposed() -> None:
    """An op of a newer PyTorch that has no op for one tensor by its name is seen here."""
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::_foreach_") and not s.is_mutable]
    assert len(DECOMPOSED) == len(schemas)


def trained(optimizer: type[torch.optim.Optimizer], settings: dict[str, Any], is_compiled: bool) -> tuple[Any, Any]:
    """Parameters after three steps, the optimizer's state, and what Kiln reports."""
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((33, 8), (8,), (8, 8), (1,))]
    stepper = optimizer(parameters, **settings)
    torch._dynamo.reset()
    step = (
        torch.compile(stepper.step, backend=kiln.backend, options={"fallback": False}) if is_compiled else stepper.step
    )
    with collect() as reports:
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            step()
    return [parameters, [list(state.values()) for state in stepper.state.values()]], reports


@pytest.mark.parametrize("foreach", [False, True], ids=["single", "foreach"])
@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        (torch.optim.AdamW, {}),
        (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (torch.optim.RMSprop, {"centered": True, "momentum": 0.5}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Adadelta, {}),
        (torch.optim.Adamax, {}),
        (torch.optim.NAdam, {}),
        (torch.optim.RAdam, {}),
        (torch.optim.Rprop, {}),
    ],
)
def test_optimizers_call_no_op_of_atens(
    optimizer: type[torch.optim.Optimizer], settings: dict[str, Any], foreach: bool
) -> None:
    settings = {**settings, "foreach": foreach}
    expected, _ = trained(optimizer, settings, False)
    found, reports = trained(optimizer, settings, True)
    torch.testing.assert_close(found, expected)
    assert reports and all(not _calls(report) for report in reports)


def _calls(report: CompileReport) -> list[str]:
    return [call.op for call in report.aten_calls]


def test_many_tensors_are_few_kernels() -> None:
    def step(xs: list[torch.Tensor], ys: list[torch.Tensor]) -> list[torch.Tensor]:
        scaled = torch._foreach_mul(xs, 0.9)
        return torch._foreach_add(scaled, ys, alpha=0.1)

    xs, ys = ([torch.randn(64) for _ in range(24)] for _ in range(2))
    with collect() as reports:
        found = torch.compile(step, backend=kiln.backend, options={"fallback": False})(xs, ys)
    torch.testing.assert_close(found, step(xs, ys))
    assert len(reports[0].kernels) <= 4, [kernel.name for kernel in reports[0].kernels]
