# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Schedules and code of kernels in PyTorch's logs: ``TORCH_LOGS="+kiln.passes.schedule_cpu"``, say.

Python's loggers have no topics, and TORCH_LOGS takes names of modules alone: a topic has the name of the pass that ends
it. ``+kiln`` alone shows neither, which would hide its other lines.
"""

import logging
from typing import TYPE_CHECKING

from typing_extensions import override

from kiln.dialects.kiln import FusionOp
from kiln.lowering.host.kernels import kernels_of
from kiln.passes.instruments import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes import PipelineStep

__all__ = ["PassLog", "is_logged"]

_SCHEDULES = ("schedule-cpu", "schedule-gpu")
_CODE = ("emit-kernels", "lower-to-llvm")
"""Passes behind which kernels are code that is worth reading: loops of vectors or Triton IR, and LLVM's dialect."""


def is_logged() -> bool:
    """Whether somebody wants to see schedules or code."""
    return any(map(_wants, (*_SCHEDULES, *_CODE)))


class PassLog(Instrument):
    """Logs what a topic's pass has left."""

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        name = step.name.partition("{")[0]
        if name not in (*_SCHEDULES, *_CODE) or not _wants(name):
            return
        log = _logger(name)
        if name in _SCHEDULES:
            for fusion in _fusions(module):
                attributes = fusion.operation.attributes
                schedule = attributes["schedule"] if "schedule" in attributes else "by the rules of its kind"
                log.debug("%s (%s): %s", str(attributes["name"]), str(attributes["kind"]), str(schedule))
            return
        for kernel in kernels_of(module):
            code = kernel.code or "that of an earlier graph"
            log.debug("code of %s behind %s:\n%s", kernel.symbol, name, str(code))  # text now: ops do not live on


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(f"kiln.passes.{name.replace('-', '_')}")


def _wants(name: str) -> bool:
    return _logger(name).isEnabledFor(logging.DEBUG) and not logging.getLogger("kiln").isEnabledFor(logging.DEBUG)


def _fusions(module: "ir.Module") -> "list[ir.OpView]":
    blocks = [block for function in module.body for block in function.operation.regions[0].blocks]
    return [op for block in blocks for op in block.operations if isinstance(op, FusionOp)]
