# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The instrument protocol."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_mlir import ir

    from kiln.errors import CompileError
    from kiln.passes.manager import PipelineStep

__all__ = ["Instrument"]


class Instrument:
    """Subclass and override what is needed; every method does nothing here.

    An instrument may read the module; one that changes it is a pass. It must not keep handles of ops from one call
    to the next, since a pass may erase them.
    """

    kernel_by_kernel: bool = False
    """Whether the instrument does not mind when a run of passes on kernels takes one kernel through all of them before
    the next: ``before_pass`` and ``after_pass`` are then called for each kernel."""

    def before_pipeline(self, module: "ir.Module", steps: "Sequence[PipelineStep]") -> None:
        """Called once before the first pass."""

    def after_pipeline(self, module: "ir.Module") -> None:
        """Called once after the last pass; not after a failure."""

    def should_run(self, step: "PipelineStep", module: "ir.Module") -> bool:
        """False skips the pass: neither ``before_pass`` nor ``after_pass`` is called for it."""
        return True

    def before_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        """Called before a pass runs."""

    def after_pass(self, step: "PipelineStep", module: "ir.Module") -> None:
        """Called after a pass ran; raising an error here fails the pass."""

    def pass_failed(self, index: int, step: "PipelineStep", module: "ir.Module", error: "CompileError") -> None:
        """Called when a pass, or an instrument around it, raised. ``module`` may be half rewritten and invalid."""
