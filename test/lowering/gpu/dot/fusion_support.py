# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""One `kiln.fusion` given as text: planned, emitted as Triton IR, run on the CPU or compiled for a GPU."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects import create_context, kiln, tt
from kiln.dialects.schedules import Schedule, from_plain, kernels, to_attribute, to_plain
from kiln.lowering.gpu.dot.fusions import DEFAULTS, DotOptions
from kiln.lowering.gpu.emit import emit_kernel, plan_kernel
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts
from kiln.lowering.ttcpu.run import run_kernel

TYPES = {"f32": (torch.float32, 2e-6), "bf16": (torch.bfloat16, 1.5e-2), "f16": (torch.float16, 2e-3)}
"""Element types, and the relative error of a result that is right."""


Changes = Schedule | dict[str, Any]
"""A schedule, or entries that replace those of the one that is chosen."""


def close(out, expected, tolerance):
    assert out.shape == expected.shape
    error = (out.double() - expected).norm() / expected.norm().clamp_min(1e-30)
    assert error < tolerance


def emit_fusion(text: str, options: DotOptions = DEFAULTS, changes: Changes | None = None) -> ir.Module:
    """The kernel of the first fusion of @main; `changes` replace entries of the schedule that is chosen."""
    with create_context(), ir.Location.unknown():
        module = kiln.parse(text)
        module.operation.verify()
        block = list(module.body.operations)[0].regions[0].blocks[0]
        fusion = next(op for op in block.operations if isinstance(op, kiln.FusionOp))
        body = FusionBody(fusion)
        schedule = _changed(plan_kernel(body, fusion_layouts(fusion, body), options), changes or {})
        fusion.operation.attributes["schedule"] = to_attribute(schedule)
        kernel = emit_kernel(fusion, "kernel")
        assert kernel.operation.verify()
        return kernel


def _changed(schedule: Schedule | None, changes: Changes) -> Schedule:
    """The schedule with other values of some fields, those of another kernel that it has as well among them."""
    if isinstance(changes, Schedule):
        return changes
    assert schedule is not None
    class_ = kernels()[changes.get("kernel", schedule.kernel)]
    known = ("kernel", *(field.name for field in fields(class_)))
    return from_plain({k: v for k, v in (to_plain(schedule) | changes).items() if k in known})


def function(kernel: ir.Module) -> ir.OpView:
    return next(op for op in kernel.body if isinstance(op, tt.FuncOp))


def run_fusion(
    text: str,
    inputs: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    symbols: Sequence[int] = (),
    options: DotOptions = DEFAULTS,
    changes: Changes | None = None,
) -> None:
    """Run the first fusion of @main into `outputs`."""
    kernel = emit_fusion(text, options, changes)
    run_kernel(function(kernel).operation, [*inputs, *outputs], symbols)
