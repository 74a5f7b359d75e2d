# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Passes around `emit-kernels`: one changes what scheduled fusions compute, one the loops that are emitted for it."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.walk import ops_inside
from kiln.passes import Pass, register_pass
from kiln.passes.fusion.kernels import fusions_of
from kiln.passes.kernel_pass import KernelPass


def _rename(root: ir.Operation, old: str, new: str) -> int:
    found = [op for op in ops_inside(root) if op.name == old]
    for op in found:
        with ir.InsertionPoint(op), op.location:
            made = ir.Operation.create(new, results=[op.results[0].type], operands=list(op.operands))
        op.results[0].replace_all_uses_with(made.result)
        op.erase()
    return len(found)


@register_pass
@dataclass
class ExpInBaseTwo(Pass):
    """Compute powers of two in place of powers of e, in what kernels compute."""

    name = "exp-in-base-two"

    def run(self, module: ir.Module) -> None:
        for fusion in fusions_of(module):
            self.count("changed", _rename(fusion.operation, "math.exp", "math.exp2"))


@register_pass
@dataclass
class SubtractInLoops(KernelPass):
    """Subtract in place of adding, in the code of kernels."""

    name = "subtract-in-loops"

    def run_on(self, kernel) -> None:
        self.count("changed", _rename(kernel.code.operation, "arith.addf", "arith.subf"))
