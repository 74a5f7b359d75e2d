# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Checks after each pass: MLIR's verifier, and the invariants of stages."""

from typing import TYPE_CHECKING

from typing_extensions import override

from kiln.passes.instruments.base import Instrument

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.passes.manager import PipelineStep

__all__ = ["CheckStages", "VerifyEach"]


class VerifyEach(Instrument):
    """Run the verifier after each pass, so that the pass that broke the IR is the one that fails."""

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        module.operation.verify()


class CheckStages(Instrument):
    """Check the invariants of a stage (``kiln.passes.invariants``) after the step that completes it."""

    @override
    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        if step.stage:
            from kiln.passes.invariants import check_stage

            check_stage(module, step.stage)
