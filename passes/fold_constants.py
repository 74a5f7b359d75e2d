# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Constant folding on the torch dialect."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

if TYPE_CHECKING:
    import torch

__all__ = ["FoldConstants"]


@register_pass
@dataclass
class FoldConstants(Pass):
    """Compute what is known at compile time: shape arithmetic, and small tensors with ATen in their own dtype.

    A tensor becomes a literal (a splat where all elements are equal). Creation ops (full, arange) that nothing
    constant was computed from stay as they are: a kernel makes their elements on the fly. Random ops are never run.

    Before::

        func.func @main() -> !torch.vtensor<[],f32> {
          %0 = torch.vtensor.literal(dense<2.0> : tensor<f32>) : !torch.vtensor<[],f32>
          %1 = torch.vtensor.literal(dense<3.0> : tensor<f32>) : !torch.vtensor<[],f32>
          %2 = torch.aten.mul.Tensor %0, %1 : !torch.vtensor<[],f32>, !torch.vtensor<[],f32> -> !torch.vtensor<[],f32>
          return %2 : !torch.vtensor<[],f32>
        }

    After::

        func.func @main() -> !torch.vtensor<[],f32> {
          %0 = torch.vtensor.literal(dense<6.000000e+00> : tensor<f32>) : !torch.vtensor<[],f32>
          return %0 : !torch.vtensor<[],f32>
        }
    """

    name = "fold-constants"
    max_elements: int = 256
    """Tensors with more elements than this are computed at run time."""

    def run(self, module: ir.Module) -> None:
        """Fold in every function that holds torch types."""
        from kiln.passes.simplify_algebra import erase_dead

        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if "!torch." in str(function.attributes["function_type"]):
                block = function.regions[0].blocks[0]
                self._fold_scalars(block)
                self._fold_tensors(block)
                erase_dead(block)

    def _fold_scalars(self, block: ir.Block) -> None:
        from kiln.passes.algebra.expressions import number_constant
        from kiln.passes.folding.scalars import evaluate_scalar
        from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT

        for op in [op.operation for op in block.operations]:
            if (
                len(op.results) != 1
                or type_text(op.results[0].type) not in _NUMBERS
                or "kiln.unbacked" in op.attributes
            ):
                continue
            value: Any = evaluate_scalar(op)
            if value is NOT_CONSTANT:
                continue
            with op.location, ir.InsertionPoint(op):
                new = number_constant(value)
            if new.type == op.results[0].type and may_rewrite(op, "scalars"):
                op.results[0].replace_all_uses_with(new)
                self.count("scalars")

    def _fold_tensors(self, block: ir.Block) -> None:
        """Evaluate in order; then make literals of what the rest of the graph reads."""
        from kiln.passes.folding.tensors import argument_constant, can_write, literal

        known: dict[ir.Value, torch.Tensor] = {}
        computed: list[ir.Value] = []
        for argument in block.arguments:
            tensor = argument_constant(argument)
            if tensor is not None:
                known[argument] = tensor
        for op in [op.operation for op in block.operations]:
            is_leaf, results = self._evaluate(op, known)
            for value, tensor in zip(op.results, results or [], strict=False):
                known[value] = tensor
                if not is_leaf and can_write(value):
                    computed.append(value)
        for value in computed:
            if not any(not _all_known(use.owner.operation, known) for use in value.uses):
                continue
            op = value.owner.operation if hasattr(value.owner, "operation") else value.owner
            if not may_rewrite(op, "tensors"):
                continue
            with op.location, ir.InsertionPoint(op):
                new = literal(known[value], value)
            value.replace_all_uses_with(new)
            self.count("tensors")

    def _evaluate(
        self, op: ir.Operation, known: "dict[ir.Value, torch.Tensor]"
    ) -> "tuple[bool, list[torch.Tensor] | None]":
        """Whether the op makes a tensor out of numbers alone, and its results if they are constant and small."""
        from kiln.passes.folding.tensors import evaluate, literal_tensor
        from kiln.passes.torch_to_kiln.liveness import is_pure
        from kiln.passes.torch_to_kiln.torch_values import op_name

        if op.name == "torch.vtensor.literal":
            tensor = literal_tensor(op.attributes["value"], op.results[0])
            small = tensor is not None and tensor.numel() <= self.max_elements
            return True, [tensor] if small and tensor is not None else None
        name = op_name(op)
        if not name.startswith(("torch.aten.", "torch.prims.")) or not is_pure(op) or name.startswith(_UNDEFINED):
            return False, None
        if "kiln.unbacked" in op.attributes or not all(self._is_small(result) for result in op.results):
            return False, None
        is_leaf = not any(operand in known or _holds_known(operand, known) for operand in op.operands)
        results = evaluate(op, known)
        if results is None and not is_leaf:
            self.note(op, "some operands are constant, others are not")
        return is_leaf, results

    def _is_small(self, value: ir.Value) -> bool:
        from kiln.passes.torch_to_kiln.function_state import parse_tensor_type

        parsed = parse_tensor_type(type_text(value.type))
        if parsed is None:
            return False
        count = 1
        for size in parsed[0]:
            if size is None:
                return False
            count *= size
        return count <= self.max_elements


_NUMBERS = ("!torch.int", "!torch.float", "!torch.bool")
# Uninitialised memory has no value to compute with.
_UNDEFINED = ("torch.aten.empty", "torch.aten.new_empty")


def _holds_known(operand: ir.Value, known: "dict[ir.Value, torch.Tensor]") -> bool:
    from kiln.passes.torch_to_kiln.torch_values import list_elements

    return any(element in known for element in list_elements(operand) or ())


def _all_known(op: ir.Operation, known: "dict[ir.Value, torch.Tensor]") -> bool:
    """Whether a user is itself constant, so that it needs no literal of its operands."""
    return len(op.results) > 0 and all(result in known for result in op.results)
