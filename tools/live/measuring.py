# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Numbers and time of a model that is compiled with edits, beside the same without."""

import copy
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves, tree_map

from kiln.frontend.backend import kiln as backend
from kiln.tools.live.jobs import Job

__all__ = ["compared"]

_SECONDS, _MOST = 2.0, 200
"""How long calls are timed, and how many at most."""

_Run = Callable[[], list[torch.Tensor]]


def compared(
    model: Any,
    inputs: Sequence[Any],
    kwargs: dict[str, Any],
    options: dict[str, Any],
    edited: dict[str, Any],
    job: Job,
) -> dict[str, Any]:
    """Errors of eager, of the compiled model and of the edited one, and the median seconds of a call of each.

    Errors are the largest difference of an element from a float64 evaluation, by the largest element of that. Where the
    model does not run in float64, eager takes its place (``reference``). Calls alternate, so that all see the same
    machine.
    """
    runs = {
        "eager": _run(model, inputs, kwargs, job),
        "unedited": _run(_compiled(model, options, job), inputs, kwargs, job, model),
        "edited": _run(_compiled(model, edited, job), inputs, kwargs, job, model),
    }
    results = {name: run() for name, run in runs.items()}
    exact = _in_float64(model, inputs, kwargs, job)
    reference = exact if exact is not None else results["eager"]
    rows = [
        {
            "shape": list(expected.shape),
            "dtype": str(results["eager"][i].dtype).removeprefix("torch."),
            **{name: _error(found[i], expected) for name, found in results.items()},
        }
        for i, expected in enumerate(reference)
    ]
    return {
        "reference": "float64" if exact is not None else "eager",
        "results": rows,
        "seconds": _seconds(runs),
    }


def _compiled(model: Any, options: dict[str, Any], job: Job) -> Any:
    def with_options(gm: GraphModule, example_inputs: Any) -> Callable[..., Any]:
        return backend(gm, example_inputs, mode=job.mode, options=options)

    return torch.compile(model, backend=with_options, dynamic=job.dynamic or None)


def _run(call: Any, inputs: Sequence[Any], kwargs: dict[str, Any], job: Job, model: Any = None) -> _Run:
    """A call of a model, and of its backward in training: results, then gradients of parameters and inputs."""
    module = call if model is None else model
    leaves = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    leaves += [x for x in tree_leaves((inputs, kwargs)) if isinstance(x, torch.Tensor)]
    leaves = [leaf for leaf in leaves if leaf.requires_grad and leaf.is_leaf]

    def run() -> list[torch.Tensor]:
        torch.manual_seed(0)
        with torch.set_grad_enabled(job.training):
            found = [x for x in tree_leaves(call(*inputs, **kwargs)) if isinstance(x, torch.Tensor)]
            if not job.training:
                return found
            for leaf in leaves:
                leaf.grad = None
            torch.autograd.backward([x.sum() for x in found if x.requires_grad])
        return [x.detach() for x in found] + [leaf.grad for leaf in leaves if leaf.grad is not None]

    return run


def _in_float64(model: Any, inputs: Sequence[Any], kwargs: dict[str, Any], job: Job) -> list[torch.Tensor] | None:
    """The results of a copy in float64; None where there is none, as of a model that names a type."""

    def wide(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return x
        return x.detach().double().requires_grad_(x.requires_grad)

    try:
        copied = copy.deepcopy(model).double() if isinstance(model, torch.nn.Module) else model
        return _run(copied, tree_map(wide, tuple(inputs)), tree_map(wide, kwargs), job)()
    except Exception:  # whatever the model does
        return None


def _error(found: torch.Tensor, expected: torch.Tensor) -> float | None:
    """None for shapes that differ, and for numbers that are not finite where the reference's are."""
    if found.shape != expected.shape:
        return None
    if not expected.numel():
        return 0.0
    a, b = found.double(), expected.double()
    same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(same, 0.0, (a - b).abs()).max().item()
    finite = b[b.isfinite()]
    largest = finite.abs().max().item() if finite.numel() else 0.0
    error = difference / (largest or 1.0)
    return error if error < float("inf") else None


def _seconds(runs: dict[str, _Run]) -> dict[str, float]:
    spent: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + _SECONDS
    while len(spent["eager"]) < _MOST and (time.perf_counter() < end or not spent["eager"]):
        for name, run in runs.items():
            _wait()
            start = time.perf_counter()
            run()
            _wait()
            spent[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in spent.items()}


def _wait() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
