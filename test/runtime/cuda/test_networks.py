# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Whole networks without a GPU: every kernel of them becomes machine code for sm_90, and runs right on the CPU.

The emulated GPU runs each kernel's Triton IR as loops; here Triton compiles the same text as well.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import kiln
import kiln.lowering.host.gpu_kernels as gpu_kernels
from benchmarks.networks import BUILDERS
from kiln.lowering.gpu.compile import Artifacts, compile_ttir
from kiln.lowering.gpu.ttir import to_ttir

pytest.importorskip("triton")

NETWORKS = ["bert", "gpt2", "llama", "vit", "resnet18"]


@pytest.fixture
def machine_code(gpu, monkeypatch: pytest.MonkeyPatch) -> dict[str, Artifacts]:
    """What Triton makes of each kernel of the emulated GPU, by name."""
    texts: dict[str, str] = {}
    made: dict[str, Artifacts] = {}

    def emit(function: Any) -> str:
        name = gpu.to_ttir(function)
        texts[name] = to_ttir(function)
        return name

    def compile_both(name: str, target: str, options: dict[str, int]) -> Artifacts:
        made[name] = compile_ttir(texts[name], target, options)
        return gpu.compile_ttir(name, target, options)

    monkeypatch.setattr(gpu_kernels, "to_ttir", emit)
    monkeypatch.setattr(gpu_kernels, "compile_ttir", compile_both)
    return made


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options = {"fallback": False, "cache": False, **options}
    return torch.compile(function, backend=kiln.backend, fullgraph=True, options=options)


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    assert found.shape == exact.shape
    return ((found.double() - exact.double()).norm() / exact.double().norm().clamp_min(1e-30)).item()


def check_code(gpu: Any, machine_code: dict[str, Artifacts], least: int) -> None:
    """Each kernel that ran is machine code for sm_90."""
    assert gpu.kernels.keys() == machine_code.keys() and len(machine_code) >= least
    for made in machine_code.values():
        assert made.binary is not None and made.binary[:4] == b"\x7fELF" and ".target sm_90" in made.assembly


@pytest.mark.parametrize("name", NETWORKS)
def test_forward(gpu, machine_code, name: str) -> None:
    model, make = BUILDERS[name]()
    inputs = make(torch.Generator().manual_seed(0))
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    with torch.no_grad():
        assert error(compiled(model)(*inputs), copy.deepcopy(model).double()(*wide)) < 1e-5
    check_code(gpu, machine_code, 4)
    assert set(gpu.launched) <= machine_code.keys()


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_a_training_step(gpu, machine_code, name: str) -> None:
    """Loss, gradients, and parameters behind a step of an optimiser."""
    model, make = BUILDERS[name]()
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    exact = copy.deepcopy(model).double()
    inputs = make(torch.Generator().manual_seed(0))
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    losses = []
    for network, run, given in ((model, compiled(model), inputs), (exact, exact, wide)):
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        loss = run(*given).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert error(*losses) < 1e-5
    gradients = [(p, q) for p, q in zip(model.parameters(), exact.parameters(), strict=True) if q.grad is not None]
    scale = torch.stack([q.grad.norm() for _, q in gradients if q.grad is not None]).norm()
    for p, q in gradients:
        assert p.grad is not None and q.grad is not None
        assert (p.grad.double() - q.grad).norm() < 1e-5 * scale
        # What begins as zeros, and has gradients that cancel, stays next to nothing.
        assert (p.detach().double() - q.detach()).norm() < 1e-5 * (q.detach().norm() + 1e-3)
    check_code(gpu, machine_code, 8)
