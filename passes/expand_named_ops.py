# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Named ops to their reference lowerings."""

import difflib
from dataclasses import dataclass, field

from torch_mlir import ir

from kiln.dialects.kiln.family import name_of
from kiln.dialects.reference import expand_all, reference_names
from kiln.errors import PassOptionError
from kiln.lowering.target import Target, find_target
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite


@register_pass
@dataclass
class ExpandNamedOps(Pass):
    """Rewrite named `kiln` ops to their reference lowering: linalg.generic, views, pads and concatenations.

    Before::

        func.func @main(%x: tensor<4xf32>, %i: tensor<2xi64>) -> tensor<2xf32> {
          %0 = "kiln.gather"(%x, %i) {dim = 0 : i64} : (tensor<4xf32>, tensor<2xi64>) -> tensor<2xf32>
          return %0 : tensor<2xf32>
        }

    After::

        #map = affine_map<() -> (2)>
        #map1 = affine_map<(d0) -> (d0)>
        func.func @main(%arg0: tensor<4xf32>, %arg1: tensor<2xi64>) -> tensor<2xf32> {
          %0 = "kiln.empty"() {shape = #map} : () -> tensor<2xf32>
          %1 = linalg.generic {indexing_maps = [#map1, #map1], iterator_types = ["parallel"]} ins(%arg1 : tensor<2xi64>)
              outs(%0 : tensor<2xf32>) {
          ^bb0(%in: i64, %out: f32):
            %2 = arith.index_cast %in : i64 to index
            %extracted = tensor.extract %arg0[%2] : tensor<4xf32>
            linalg.yield %extracted : f32
          } -> tensor<2xf32>
          return %1 : tensor<2xf32>
        }
    """

    name = "expand-named-ops"
    ops: list[str] = field(default_factory=list[str])
    """Expand these alone; all if empty."""
    keep: list[str] = field(default_factory=list[str])
    """Leave these as they are, where the target has a kernel for them (`Target.supports`)."""
    target: str = "cpu"
    """What the kernels are for."""

    def run(self, module: ir.Module) -> None:
        """Expand in all functions and fusion bodies of `module`."""
        target = find_target(self.target)()
        chosen = self._names("ops", self.ops) or set(reference_names())
        kept = self._names("keep", self.keep)
        for op in list(module.body.operations):
            if op.operation.name == "func.func" and len(op.operation.regions[0].blocks):
                self.count("expanded", expand_all(op.operation, lambda o: self._expands(o, chosen, kept, target)))

    def _expands(self, op: ir.Operation, chosen: set[str], kept: set[str], target: Target) -> bool:
        name = name_of(op)
        if name not in chosen:
            return False
        if name not in kept:
            return may_rewrite(op, name)
        missing = target.supports(op.operation)
        if missing is not None:
            self.note(op.operation, f"expanded: {missing}")
        return missing is not None and may_rewrite(op, name)

    def _names(self, option: str, names: list[str]) -> set[str]:
        full = {n if n.startswith("kiln.") else f"kiln.{n}" for n in names}
        for unknown in sorted(full - set(reference_names())):
            near = difflib.get_close_matches(unknown, reference_names(), n=3)
            hint = f"near: {', '.join(near)}" if near else f"known: {', '.join(reference_names())}"
            raise PassOptionError(self.name, f"{option}: no named op '{unknown}' ({hint})")
        return full
