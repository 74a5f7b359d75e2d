# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules and code of kernels in PyTorch's logs."""

from typing import TYPE_CHECKING

from typing_extensions import override

from kiln.dialects.kiln import FusionOp
from kiln.frontend.report.log_topics import CODE, SCHEDULES, log_of
from kiln.lowering.host.kernels import kernels_of
from kiln.passes.instruments import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes import PipelineStep

__all__ = ["PassLog"]


class PassLog(Instrument):
    """Logs what a topic's pass has left."""

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        name = step.name.partition("{")[0]
        log = log_of(name, is_long=True) if name in (*SCHEDULES, *CODE) else None
        if log is None:
            return
        if name in SCHEDULES:
            for fusion in _fusions(module):
                attributes = fusion.operation.attributes
                schedule = attributes["schedule"] if "schedule" in attributes else "by the rules of its kind"
                log("%s (%s): %s", str(attributes["name"]), str(attributes["kind"]), str(schedule))
            return
        for kernel in kernels_of(module):
            code = kernel.code or "that of an earlier graph"
            log("code of %s behind %s:\n%s", kernel.symbol, name, str(code))  # text now: ops do not live on


def _fusions(module: "ir.Module") -> "list[ir.OpView]":
    blocks = [block for function in module.body for block in function.operation.regions[0].blocks]
    return [op for block in blocks for op in block.operations if isinstance(op, FusionOp)]
