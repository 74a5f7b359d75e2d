# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Fusions as symbols of the module."""

from dataclasses import dataclass

from torch_mlir import ir
from typing_extensions import override

from kiln.lowering.host.kernels import outline_kernels
from kiln.passes.core import Pass, register_pass

__all__ = ["OutlineKernels"]


@register_pass
@dataclass
class OutlineKernels(Pass):
    """Make a `kiln.kernel` of all equal fusions, and a `kiln.launch` in the place of each.

    Fusions are equal if their text is, but for names, locations, `offsets` and `writes` (docs/fusion-attributes.md).
    The launch keeps the attributes that the host reads. A kernel is named by its first fusion and a hash of what it
    computes.

    Before::

        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %0 = "kiln.fusion"(%x) ({
          ^bb0(%a: tensor<4xf32>):
            "kiln.yield"(%a) : (tensor<4xf32>) -> ()
          }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
          %1 = "kiln.fusion"(%0) ({
          ^bb0(%a: tensor<4xf32>):
            "kiln.yield"(%a) : (tensor<4xf32>) -> ()
          }) {kind = "pointwise", name = "again"} : (tensor<4xf32>) -> tensor<4xf32>
          return %1 : tensor<4xf32>
        }

    After::

        module attributes {kiln.outlined} {
          "kiln.kernel"() ({
          ^bb0(%arg0: tensor<4xf32>):
            %0 = "kiln.fusion"(%arg0) ({
            ^bb0(%arg1: tensor<4xf32>):
              "kiln.yield"(%arg1) : (tensor<4xf32>) -> ()
            }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
            "kiln.yield"(%0) : (tensor<4xf32>) -> ()
          }, {
          }) {sym_name = "copy_HASH"} : () -> ()
          func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
            %0 = "kiln.launch"(%arg0) {kernel = "copy_HASH", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
            %1 = "kiln.launch"(%0) {kernel = "copy_HASH", name = "again"} : (tensor<4xf32>) -> tensor<4xf32>
            return %1 : tensor<4xf32>
          }
        }
    """

    name = "outline-kernels"

    gpu: bool = False
    """Note which tensors a thread of a GPU may not read 16 bytes at once of (`unaligned`), and put those kernels first
    that take longest to compile."""

    @override
    def run(self, module: ir.Module) -> None:
        for launch, kernel in outline_kernels(module, is_gpu=self.gpu):
            self.count("shared")
            self.note(launch, f"the same kernel as @{kernel}")
