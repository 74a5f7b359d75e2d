# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One row of the table: a case run by every contender, in one process."""

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.gpu.cases import Case
from benchmarks.gpu.measure import call_overhead, interleaved, relative_error, wall_times

__all__ = ["CONTENDERS", "SETTINGS", "Row", "measure_row"]

CONTENDERS = ("eager", "inductor", "max-autotune", "kiln")
SETTINGS: dict[str, tuple[str, str | None, dict[str, Any] | None]] = {
    "inductor": ("inductor", None, None),
    "max-autotune": ("inductor", "max-autotune-no-cudagraphs", None),
    "inductor-graphs": ("inductor", "reduce-overhead", None),
    "kiln": ("kiln", None, None),
    "kiln-tma": ("kiln", None, {"tensor_maps": True}),
    "kiln-graphs": ("kiln", "reduce-overhead", None),
    "kiln-max-autotune": ("kiln", "max-autotune-no-cudagraphs", None),
}
"""Contender -> backend, mode, options."""

Row = dict[str, Any]
"""What a case gave, as it is written to JSON: for each contender `us` (on the GPU alone), `wall_us` (as called),
`cpu_us` (of a call), `first_s` (the first call, imports included) and `error` (against float64), or why it `failed`."""


def measure_row(case: Case, contenders: Sequence[str], rounds: int) -> Row:
    """The first calls in the order of `contenders`, in which later ones find what earlier ones imported."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    module, make = case.build()
    wide_inputs = make(generator)
    sets = [wide_inputs, *(make(generator) for _ in range(case.sets - 1))]
    module = module.cuda().to(case.dtype)
    on_device = [[_cast(t.cuda(), case.dtype) for t in inputs] for inputs in sets]
    row: Row = {"case": case.name, "first_s": {}, "error": {}, "us": {}, "spread": {}, "cpu_us": {}}
    row |= {"wall_us": {}, "is_model": case.is_model}
    calls: dict[str, Callable[..., Any]] = {}
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(*(_cast(t, torch.float64) for t in on_device[0]))
        torch._dynamo.reset()  # not between contenders: each would be compiled once more when it is timed
        for name in contenders:
            start = time.perf_counter()
            try:
                call = _prepare(name, module)
                result = call(*on_device[0])
                torch.cuda.synchronize()
            except Exception as error:  # noqa: BLE001 - the table says so
                message = f"{type(error).__name__}: {error}".strip().splitlines()
                row.setdefault("failed", {})[name] = " ".join(message)[:600]
                continue
            row["first_s"][name] = time.perf_counter() - start
            row["error"][name] = relative_error(result, exact)
            row["cpu_us"][name] = call_overhead(call, on_device[0])
            calls[name] = call
            del result
        del exact
        row["wall_us"] = {name: found.us for name, found in wall_times(calls, on_device, rounds=rounds).items()}
        plain = {name: call for name, call in calls.items() if not name.endswith("graphs")}
        for name, found in interleaved(plain, on_device, rounds=rounds).items():
            row["us"][name], row["spread"][name] = found.us, found.spread
    best = row["us"].get("kiln", 0)
    if best and case.bytes_moved:
        row["TB/s"] = case.bytes_moved / best / 1e6
    if best and case.flops:
        row["TFLOP/s"] = case.flops / best / 1e6
    return row


def _prepare(name: str, module: torch.nn.Module) -> Callable[..., Any]:
    if name == "eager":
        return module
    backend, mode, options = SETTINGS[name]
    if backend == "inductor":
        return torch.compile(module, fullgraph=True, mode=mode)
    import kiln

    return torch.compile(module, backend=kiln.backend, fullgraph=True, mode=mode, options=options)


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor
