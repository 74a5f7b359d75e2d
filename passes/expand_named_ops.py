# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named ops to their reference lowerings."""

import difflib
from dataclasses import dataclass, field

from torch_mlir import ir

from kiln.dialects.kiln.family import name_of
from kiln.dialects.reference import expand_all, reference_names
from kiln.errors import PassOptionError
from kiln.lowering.cpu.named_kernels import no_kernel
from kiln.passes.core import Pass, register_pass


@register_pass
@dataclass
class ExpandNamedOps(Pass):
    """Rewrite named `kiln` ops to their reference lowering: linalg.generic, views, pads and concatenations.

    Before: `%0 = "kiln.softmax"(%x) {dim = 1, log = false} : (tensor<4x8xf32>) -> tensor<4x8xf32>`

    After: four `linalg.generic`: maximum, exp(x - m), sum, quotient.  Op names may be given without "kiln.".
    """

    name = "expand-named-ops"
    ops: list[str] = field(default_factory=list)
    """Expand these alone; all if empty."""
    keep: list[str] = field(default_factory=list)
    """Leave these as they are, where the CPU has a kernel for them (`kiln.lowering.cpu.named_kernels`)."""

    def run(self, module: ir.Module) -> None:
        """Expand in all functions and fusion bodies of `module`."""
        chosen = self._names("ops", self.ops) or set(reference_names())
        kept = self._names("keep", self.keep)
        for op in list(module.body.operations):
            if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
                self.count("expanded", expand_all(op.operation, lambda o: self._expands(o, chosen, kept)))

    def _expands(self, op: ir.Operation, chosen: set[str], kept: set[str]) -> bool:
        name = name_of(op)
        if name not in chosen:
            return False
        if name not in kept:
            return True
        missing = no_kernel(op.operation)
        if missing is not None:
            self.note(op.operation, f"expanded: {missing}")
        return missing is not None

    def _names(self, option: str, names: list[str]) -> set[str]:
        full = {n if n.startswith("kiln.") else f"kiln.{n}" for n in names}
        for unknown in sorted(full - set(reference_names())):
            near = difflib.get_close_matches(unknown, reference_names(), n=3)
            hint = f"near: {', '.join(near)}" if near else f"known: {', '.join(reference_names())}"
            raise PassOptionError(self.name, f"{option}: no named op '{unknown}' ({hint})")
        return full
