# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kernels as symbols of a module, and their launches.

`outline-kernels` makes one `kiln.kernel` of all equal fusions, and leaves a `kiln.launch` in the place of each.
"""

from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.core import FusionOp, YieldOp
from kiln.dialects.kiln.family import Family, name_of
from kiln.dialects.kiln.table import Role, define

_EFFECTS = (base.PureUnless(lambda op: True),)


class KernelOp(Family):
    """A kernel: what it computes, and its code.

    The first region computes: one `kiln.fusion` on the region's arguments, and a `kiln.yield` of its results. It stays
    as long as the kernel does, so that the code can be checked against it, or made again with another schedule. The
    second region is empty until `emit-kernels` puts a module into it: functions of loops, later of the LLVM dialect
    (CPU), or of Triton IR (GPU). Machine code is not in the IR: `object` names it (`kiln.lowering.host.objects`).

    | attribute | written by | meaning |
    |---|---|---|
    | `sym_name` | `outline-kernels` | the kernel's name, and that of the function to launch |
    | `unsupported` | `emit-kernels`, `lower-triton-ir`, `plan-host` | why there is no code; `unsupported_op` names the op, `defect` says that it is a bug, `rejected` that LLVM or Triton refused it |
    | `pointers`, `symbols`, `scratch`, `work`, `checks`, `sites` | `lower-to-llvm` | how code for the CPU is called (docs/kernels.md) |
    | `object` | `assemble` | the machine code's name |

    ```mlir
    "kiln.kernel"() ({
    ^bb0(%x: tensor<4xf32>):
      %0 = "kiln.fusion"(%x) ({
      ^bb0(%a: tensor<4xf32>):
        "kiln.yield"(%a) : (tensor<4xf32>) -> ()
      }) {kind = "pointwise", name = "copy"} : (tensor<4xf32>) -> tensor<4xf32>
      "kiln.yield"(%0) : (tensor<4xf32>) -> ()
    }, {
    }) {sym_name = "copy_0123456789"} : () -> ()
    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
      %0 = "kiln.launch"(%x) {kernel = "copy_0123456789"} : (tensor<4xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    ```
    """

    NAME = "kernel"
    ATTRIBUTES = {"sym_name": "#builtin.string"}
    TRAITS = (*_EFFECTS, ir.IsIsolatedFromAboveTrait, ir.NoTerminatorTrait)
    REGIONS = 2

    @staticmethod
    @override
    def check(op: Any) -> None:
        computes, code = op.regions[0], op.regions[1]
        checks.require(len(computes.blocks) == 1, "first region", "one block", f"{len(computes.blocks)} blocks")
        names = [name_of(inner) for inner in computes.blocks[0].operations]
        is_right = names == [FusionOp.PLAIN_NAME, YieldOp.PLAIN_NAME]
        checks.require(is_right, "first region", "kiln.fusion and kiln.yield", ", ".join(names))
        codes = [inner.operation.name for block in code.blocks for inner in block.operations]
        checks.require(codes in ([], ["builtin.module"]), "second region", "nothing or a module", ", ".join(codes))

    @property
    def symbol(self) -> str:
        """The kernel's name."""
        return ir.StringAttr(self.operation.attributes["sym_name"]).value

    @property
    def fusion(self) -> ir.OpView:
        """The `kiln.fusion` that says what the kernel computes."""
        return next(iter(self.regions[0].blocks[0].operations))

    @property
    def code(self) -> Any:
        """The module of the second region; None before the kernel is emitted."""
        blocks = self.regions[1].blocks
        return next(iter(blocks[0].operations)) if len(blocks) and len(blocks[0].operations) else None

    def drop_code(self) -> None:
        """Empty the second region."""
        for block in self.regions[1].blocks:
            for old in list(block.operations):
                old.operation.erase()

    def put_code(self, module: Any) -> Any:
        """Move the functions of `module` into the second region, in place of what is there. Returns the new module."""
        self.drop_code()
        block = self.regions[1].blocks[0] if len(self.regions[1].blocks) else self.regions[1].blocks.append()
        with ir.InsertionPoint(block), self.operation.location:
            made = ir.Operation.create("builtin.module", regions=1)
        inside = made.regions[0].blocks.append()
        for op in list(module.body):
            inside.append(op.operation.detach_from_parent())
        return made.opview


class LaunchOp(Family):
    """Run a kernel.

    Behind `outline-kernels` on tensors: operands and results are those of the fusion that the launch stands for, and
    its attributes those that the host reads (`name`, `layouts`, `offsets`, `in_place`, `writes`).

    In a plan on buffers: one per tensor operand and result, then the kernel's symbols. `offsets` are bytes added to the
    buffers' addresses, `work` the estimated elementary operations and `scratch` the bytes per thread, as maps over the
    plan's symbols.

    ```mlir
    func.func @main() {
      %0 = "kiln.buffer"() {kind = "input", index = 0} : () -> memref<4xf32, strided<[1]>>
      %1 = "kiln.buffer"() {kind = "tensor"} : () -> memref<4xf32, strided<[1]>>
      "kiln.launch"(%0, %1) {kernel = "relu_0123456789", work = affine_map<() -> (4)>} : (memref<4xf32, strided<[1]>>, memref<4xf32, strided<[1]>>) -> ()
      return
    }
    ```
    """

    NAME = "launch"
    ATTRIBUTES = {"kernel": "#builtin.string"}
    TRAITS = _EFFECTS


for _op in (KernelOp, LaunchOp):
    define(_op, Role.OPAQUE)
