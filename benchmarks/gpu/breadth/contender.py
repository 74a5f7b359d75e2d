# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Models run three ways: in float64, by eager, and compiled; and what the compiler reports of it."""

import copy
import importlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from kiln.frontend.report import CompileReport, collect

__all__ = [
    "Arguments",
    "Values",
    "compiled",
    "counts",
    "perturbed",
    "reference",
    "reports",
    "run",
    "snapshot",
    "step",
    "to",
]

Arguments = Any
Values = dict[str, torch.Tensor]


def to(arguments: Arguments, device: str, dtype: torch.dtype) -> Arguments:
    """Every tensor on `device`, floating-point ones in `dtype`."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device, dtype if tensor.is_floating_point() else tensor.dtype)

    return pytree.tree_map_only(torch.Tensor, move, arguments)


def reference(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy in a wider dtype, in which mixtures of experts loop over them: grouped products are of bf16 alone."""
    copied = copy.deepcopy(module).to(dtype)
    for part in copied.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_experts_implementation", None) is not None:
            config._experts_implementation = "eager"
    return copied


def perturbed(arguments: Arguments, epsilon: float, seed: int) -> Arguments:
    """Each floating-point element off by up to `epsilon` of it: in copies of tensors, or in a module in place."""
    generator = torch.Generator().manual_seed(seed)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        noise = torch.rand(tensor.shape, generator=generator).to(tensor)
        return tensor * (1 + epsilon * (2 * noise - 1))

    if not isinstance(arguments, nn.Module):
        return pytree.tree_map_only(torch.Tensor, change, arguments)
    with torch.no_grad():
        for parameter in arguments.parameters():
            parameter.copy_(change(parameter))
    return arguments


def compiled(module: nn.Module, backend: str, options: Mapping[str, Any], dynamic: bool = False) -> Callable[..., Any]:
    """`torch.compile` with Kiln, with a backend by its name, or with `module:function`. dynamic: sizes are unknown."""
    sizes = True if dynamic else None
    if backend == "kiln":
        import kiln

        return torch.compile(module, backend=kiln.backend, dynamic=sizes, options={"fallback": True, **options})
    if ":" in backend:
        path, _, name = backend.partition(":")
        return torch.compile(module, backend=getattr(importlib.import_module(path), name), dynamic=sizes)
    return torch.compile(module, backend=backend, dynamic=sizes)


def run(call: Callable[..., Any], arguments: Arguments) -> Values:
    """The tensors among the results of one call without gradients."""
    with torch.no_grad():
        return _outputs(_call(call, arguments))


def step(call: Callable[..., Any], module: nn.Module, arguments: Arguments, of_inputs: bool = True) -> Values:
    """Results and gradients of `call`, which runs `module`, for fixed random gradients of the results.

    of_inputs: the gradients of the arguments as well.
    """
    module.zero_grad(set_to_none=True)

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().requires_grad_(of_inputs and tensor.is_floating_point())

    arguments = pytree.tree_map_only(torch.Tensor, fresh, arguments)
    outputs = _outputs(_call(call, arguments))
    ends = [value for value in outputs.values() if value.requires_grad]
    generator = torch.Generator().manual_seed(1)
    torch.autograd.backward(ends, [torch.randn(e.shape, generator=generator).to(e) for e in ends])
    values = {name: value.detach() for name, value in outputs.items()}
    leaves = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    named = [*module.named_parameters(), *((f"input.{i}", leaf) for i, leaf in enumerate(leaves))]
    values |= {f"gradient.{name}": leaf.grad.detach() for name, leaf in named if leaf.grad is not None}
    return values


def snapshot(module: nn.Module, arguments: Arguments) -> Values:
    """Copies of what a call may not write to: parameters, buffers, arguments."""
    leaves = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    named |= {f"argument {i}": leaf for i, leaf in enumerate(leaves)}
    return {name: tensor.detach().clone() for name, tensor in named.items()}


def reports(backend: str) -> AbstractContextManager[list[CompileReport]]:
    """What Kiln tells of the graphs compiled inside of the block; nothing for other backends."""
    return collect(every_thread=True) if backend == "kiln" else nullcontext([])


def counts(found: list[CompileReport]) -> dict[str, Any]:
    """The reports as fields of a row."""
    calls: dict[str, int] = {}
    for call in (call for report in found for call in report.aten_calls):
        calls[call.op] = calls.get(call.op, 0) + 1
    return {
        "graphs": len(found),
        "kernels": sum(len(report.kernels) for report in found),
        "fallbacks": [report.fallback_reason[:300] for report in found if report.executor == "aten"],
        "aten": calls,
    }


def _call(call: Callable[..., Any], arguments: Arguments) -> Any:
    return call(**arguments) if isinstance(arguments, Mapping) else call(*arguments)


def _outputs(results: Any) -> Values:
    leaves = [leaf for leaf in pytree.tree_leaves(results) if isinstance(leaf, torch.Tensor)]
    return {f"output.{i}": leaf for i, leaf in enumerate(leaves)}
