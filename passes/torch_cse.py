# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Common subexpression and dead code elimination on the torch dialect."""

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["TorchCse"]


@register_pass
@dataclass
class TorchCse(Pass):
    """Merge torch ops that compute the same from the same, and erase those that nothing needs.

    MLIR's ``cse`` merges constants of the torch dialect only. Random ops, ops that write, ops of custom libraries and
    uninitialised tensors are never merged; nor are two that the caller gets as two tensors of their own.

    Before::

        func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
          %0 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          %1 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          %2 = torch.aten.div.Tensor %0, %1 : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          return %2 : !torch.vtensor<[4],f32>
        }

    After::

        func.func @main(%arg0: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
          %0 = torch.aten.relu %arg0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          %1 = torch.aten.div.Tensor %0, %0 : !torch.vtensor<[4],f32>,
              !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          return %1 : !torch.vtensor<[4],f32>
        }
    """  # noqa: E501 - a line of MLIR

    name = "torch-cse"

    def run(self, module: ir.Module) -> None:
        """Merge in every function that holds torch types."""
        from kiln.passes.simplify_algebra import erase_dead

        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if "!torch." in str(function.attributes["function_type"]):
                block = function.regions[0].blocks[0]
                self._merge(block)
                self.count("erased", erase_dead(block))

    def _merge(self, block: ir.Block) -> None:
        from kiln.passes.algebra.values import escapes, is_view
        from kiln.passes.torch_to_kiln.liveness import is_pure
        from kiln.passes.torch_to_kiln.torch_values import op_name

        # Values by number, which unlike a handle's hash says nothing about what an op reads.
        numbers: dict[ir.Value, int] = {argument: k for k, argument in enumerate(block.arguments)}
        seen: dict[Any, ir.Operation] = {}
        for op in [op.operation for op in block.operations]:
            name = op_name(op)
            merged = False
            if is_pure(op) and not len(op.regions) and "kiln.unbacked" not in op.attributes and "empty" not in name:
                # Attributes and types are unique objects: none has to be written out to be compared.
                attributes = tuple(sorted((key, hash(op.attributes[key])) for key in op.attributes))
                operands = tuple(numbers.get(operand, -1) for operand in op.operands)
                key = (op.name, operands, attributes, tuple(hash(result.type) for result in op.results))
                first = seen.setdefault(key, op) if -1 not in operands else op
                found = first is not op and self._may_merge(first, op, is_view(op), escapes)
                if found and may_rewrite(op):
                    for old, new in zip(op.results, first.results, strict=True):
                        numbers[old] = numbers[new]
                        old.replace_all_uses_with(new)
                    self.count("merged")
                    merged = True
            if not merged:
                for result in op.results:
                    numbers[result] = len(numbers)

    @staticmethod
    def _may_merge(first: ir.Operation, op: ir.Operation, view: bool, escapes: Any) -> bool:
        """Eager gives the caller two tensors where both are returned: writing to one must not change the other."""
        return view or not (any(map(escapes, op.results)) and any(map(escapes, first.results)))
