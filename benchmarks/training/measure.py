# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Times, gradients' errors and memory of training steps, all contenders in one process and in turn."""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

from benchmarks.training.cases import Case, Loss

__all__ = ["CONTENDERS", "Row", "measure", "without_dropout"]

M = TypeVar("M", bound=nn.Module)

CONTENDERS: dict[str, tuple[str, str | None]] = {
    "eager": ("", None),
    "inductor": ("inductor", None),
    "inductor-graphs": ("inductor", "reduce-overhead"),
    "kiln": ("kiln", None),
    "kiln-graphs": ("kiln", "reduce-overhead"),
}
"""Contender -> backend, mode."""

_DROPOUTS = ("dropout_prob", "attention_dropout", "dropout", "attn_pdrop")
"""Attributes of transformers' layers that hold a probability."""


@dataclass
class Row:
    """What a case gave. By contender: milliseconds of forward and backward and of a whole step with AdamW (medians),
    error of all gradients against float64 (relative, 2-norm), MiB at the peak of a step beyond what is held before it
    (GPUs), seconds of the first step, or why it failed.
    """

    case: str
    dtype: str
    backward_ms: dict[str, float] = field(default_factory=dict[str, float])
    step_ms: dict[str, float] = field(default_factory=dict[str, float])
    error: dict[str, float] = field(default_factory=dict[str, float])
    peak_mib: dict[str, float] = field(default_factory=dict[str, float])
    first_s: dict[str, float] = field(default_factory=dict[str, float])
    failed: dict[str, str] = field(default_factory=dict[str, str])

    def gain(self, times: dict[str, float]) -> float | None:
        """The best of the others' times over the best of Kiln's."""
        own = [t for n, t in times.items() if n.startswith("kiln")]
        others = [t for n, t in times.items() if not n.startswith("kiln")]
        return min(others) / min(own) if own and others else None


@dataclass
class _Trained:
    """One contender's copy of the network, and what is timed of it."""

    module: nn.Module
    inputs: Sequence[torch.Tensor]
    call: Callable[..., torch.Tensor]
    update: Callable[[], Any]
    is_graphs: bool

    def backward(self) -> None:
        if self.is_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        self.module.zero_grad(set_to_none=True)
        self.call(*self.inputs).backward()

    def step(self) -> None:
        self.backward()
        self.update()


def measure(
    case: Case,
    device: str,
    dtype: torch.dtype,
    contenders: Sequence[str],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    compiled: Callable[[], None] = lambda: None,
) -> Row:
    """One row, timed by ``clock`` (seconds); a contender that fails is left out, with its reason.

    ``compiled`` is called once between the compilations and the first timing.
    """
    torch.manual_seed(0)
    network, make = case.build(**case.sizes)
    module = without_dropout(Loss(network, case.loss))
    module.to(device).train()
    inputs = [_cast(t.to(device), dtype) for t in make(torch.Generator().manual_seed(1))]
    module.to(dtype)
    inputs.append(module.target(*inputs))
    row = Row(case.name, str(dtype).removeprefix("torch."))
    exact = _exact_gradients(module, inputs)
    trained: dict[str, _Trained] = {}
    torch._dynamo.reset()
    for name in contenders:
        try:
            start = time.perf_counter()
            found = _prepare(name, copy.deepcopy(module), inputs)
            found.backward()
            _wait(device)
            row.first_s[name] = time.perf_counter() - start
            row.error[name] = _error(found.module, exact)
            found.step()
            if device == "cuda":
                row.peak_mib[name] = _peak(found)
            trained[name] = found
        except Exception as error:  # noqa: BLE001 - the table says so
            row.failed[name] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    del exact
    if device == "cuda":
        torch.cuda.empty_cache()  # other processes may be timed first
    compiled()
    row.backward_ms = _times({n: t.backward for n, t in trained.items()}, device, rounds, clock)
    row.step_ms = _times({n: t.step for n, t in trained.items()}, device, rounds, clock)
    return row


def _prepare(name: str, module: nn.Module, inputs: Sequence[torch.Tensor]) -> _Trained:
    backend, mode = CONTENDERS[name]
    update: Callable[[], Any] = torch.optim.AdamW(module.parameters(), lr=1e-4).step
    if not backend:
        return _Trained(module, inputs, module, update, is_graphs=False)
    call = torch.compile(module, backend=backend, mode=mode)
    return _Trained(module, inputs, call, torch.compile(update, backend=backend), mode is not None)


def without_dropout(module: M) -> M:
    """Gradients of one step can be compared then; running statistics stay those of training. Changes the module."""
    for inner in module.modules():
        if isinstance(inner, nn.Dropout):
            inner.p = 0.0
        for name in _DROPOUTS:
            if isinstance(getattr(inner, name, None), float):
                setattr(inner, name, 0.0)
    return module


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _exact_gradients(module: nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    wide = copy.deepcopy(module).double()
    wide(*(_cast(t, torch.float64) for t in inputs)).double().backward()
    return [p.grad.cpu() for p in wide.parameters() if p.grad is not None]


def _error(module: nn.Module, exact: Sequence[torch.Tensor]) -> float:
    found = [p.grad.double().cpu() for p in module.parameters() if p.grad is not None]
    difference = sum(float((f - e).square().sum()) for f, e in zip(found, exact, strict=True))
    return (difference / sum(float(e.square().sum()) for e in exact)) ** 0.5


def _peak(trained: _Trained) -> float:
    trained.module.zero_grad(set_to_none=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    trained.backward()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def _times(
    calls: dict[str, Callable[[], None]], device: str, rounds: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Median milliseconds; contenders take turns at being the first, each after an untimed call of its own."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for i in range(rounds):
        first = i % len(names) if names else 0
        for name in (*names[first:], *names[:first]):
            calls[name]()
            _wait(device)
            start = clock()
            calls[name]()
            _wait(device)
            times[name].append((clock() - start) * 1e3)
    return {name: statistics.median(found) for name, found in times.items()}


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
