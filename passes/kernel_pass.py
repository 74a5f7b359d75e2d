# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Passes on the code of one kernel at a time."""

from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import KernelOp
from kiln.lowering.host.kernels import is_outlined, kernels_of
from kiln.passes.core import Pass

__all__ = ["KernelPass"]


class KernelPass(Pass):
    """A pass that changes one kernel (`kiln.kernel`) at a time, and reads nothing else of the module.

    A run of such passes may take one kernel through all of them before the next kernel: LLVM and Triton compile the
    first kernels in other threads while the next ones are emitted. Subclasses override `run_on`, and `run_alone` if
    the pass also makes sense on a module that is the code of a kernel itself.
    """

    def run(self, module: ir.Module) -> None:
        """Run on each kernel of a graph behind `outline-kernels`; on another module as the code of one kernel."""
        if not is_outlined(module):
            self.run_alone(module)
        for kernel in kernels_of(module):
            self.run_if_wanted(kernel)

    def run_if_wanted(self, kernel: KernelOp) -> None:
        """Run on a kernel, unless it has machine code already or can have none."""
        attributes = kernel.operation.attributes
        if "unsupported" not in attributes and "object" not in attributes:
            self.run_on(kernel)

    def run_on(self, kernel: KernelOp) -> None:
        """Rewrite one kernel in place."""
        raise NotImplementedError(f"{type(self).__name__}.run_on")

    def run_alone(self, module: Any) -> None:
        """Rewrite a module that is the code of a kernel itself."""
