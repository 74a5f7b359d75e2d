# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ruff: noqa: E501 - a string attribute is one line

"""References for checked execution: what each step computes, kept as IR before kernels are made of it."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import AtenOp, FusionOp
from kiln.lowering.host.references import is_checked_call, reference_text
from kiln.passes.core import Pass, register_pass

__all__ = ["KeepReferences"]


@register_pass
@dataclass
class KeepReferences(Pass):
    """Keep what each fusion and each call of ATen computes, as text, on the op itself (`reference`).

    The plan hands it to checked execution (docs/checking.md). Equal fusions have references of their own: locations in
    them say where in the model they come from.

    Before::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<4xf32>):
            "kiln.yield"(%a) : (tensor<4xf32>) -> ()
          }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }

    After::

        func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
          %0 = "kiln.fusion"(%arg0) ({
          ^bb0(%arg1: tensor<4xf32>):
            "kiln.yield"(%arg1) : (tensor<4xf32>) -> ()
          }) {kind = "pointwise", name = "copy",
              reference = "#loc = loc(unknown)\\0A#loc2 = loc(\\"-\\":3:8)\\0Amodule {\\0A  func.func @main(%arg0: tensor<4xf32> loc(unknown)) -> tensor<4xf32> attributes {kiln.symbols = []} {\\0A    %0 = \\"kiln.fusion\\"(%arg0) ({\\0A    ^bb0(%arg1: tensor<4xf32> loc(\\"-\\":3:8)):\\0A      \\"kiln.yield\\"(%arg1) : (tensor<4xf32>) -> () loc(#loc3)\\0A    }) {kind = \\"pointwise\\", name = \\"copy\\"} : (tensor<4xf32>) -> tensor<4xf32> loc(#loc1)\\0A    return %0 : tensor<4xf32> loc(#loc1)\\0A  } loc(#loc)\\0A} loc(#loc)\\0A#loc1 = loc(\\"-\\":2:8)\\0A#loc3 = loc(\\"-\\":4:5)\\0A"} : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }
    """

    name = "keep-references"

    @override
    def run(self, module: ir.Module) -> None:
        for function in [op for op in module.body if op.operation.name == "func.func"]:
            for op in list(function.operation.regions[0].blocks[0]):
                is_checked = isinstance(op, AtenOp) and is_checked_call(op.operation)
                if not (isinstance(op, FusionOp) or is_checked):
                    continue
                read = [i for i, result in enumerate(op.operation.results) if list(result.uses)]
                text = reference_text(op.operation, read)
                if text is not None:
                    op.operation.attributes["reference"] = ir.StringAttr.get(text)
