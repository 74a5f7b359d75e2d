# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ops of a host plan's dump (`.plan.mlir`): buffers, ATen calls; for launches see kernel.py.

The plan itself is data (`kiln.runtime.plan.Plan`); these ops make it readable, and checkable by tests.
"""

from kiln.dialects.kiln import base
from kiln.dialects.kiln.family import Family
from kiln.dialects.kiln.table import Role, define

_EFFECTS = (base.PureUnless(lambda op: True),)


class BufferOp(Family):
    """A piece of memory: an input, a constant, a tensor of its own, or a range of the workspace.

    `offset` is the place in the workspace in bytes, `live` the first and last step that use it; `shape`, `strides`
    and `bytes` are maps over the plan's symbols where they are dynamic.

    ```mlir
    func.func @main() {
      %0 = "kiln.buffer"() {kind = "input", index = 0} : () -> memref<4x8xf32, strided<[8, 1]>>
      %1 = "kiln.buffer"() {kind = "workspace", offset = 128, live = array<i64: 0, 1>} : () -> memref<4x8xf32, strided<[8, 1]>>
      return
    }
    ```
    """

    NAME = "buffer"
    ATTRIBUTES = {"kind": "#builtin.string"}
    TRAITS = _EFFECTS


class CallOp(Family):
    """Call an ATen op on buffers: its tensor operands, then the buffers of its results, then its symbols.

    ```mlir
    func.func @main() {
      %0 = "kiln.buffer"() {kind = "input", index = 0} : () -> memref<4xf32, strided<[1]>>
      %1 = "kiln.buffer"() {kind = "aten"} : () -> memref<4xf32, strided<[1]>>
      "kiln.call"(%0, %1) {op = "aten.sin.default", args = "[]", kwargs = "{}"} : (memref<4xf32, strided<[1]>>, memref<4xf32, strided<[1]>>) -> ()
      return
    }
    ```
    """

    NAME = "call"
    ATTRIBUTES = {"op": "#builtin.string", "args": "#builtin.string", "kwargs": "#builtin.string"}
    TRAITS = _EFFECTS


class OutputOp(Family):
    """What the graph returns, in order: buffers (whole, or the views in `views`) and sizes.

    ```mlir
    func.func @main() {
      %0 = "kiln.buffer"() {kind = "tensor"} : () -> memref<4xf32, strided<[1]>>
      "kiln.output"(%0) : (memref<4xf32, strided<[1]>>) -> ()
      return
    }
    ```
    """

    NAME = "output"
    TRAITS = _EFFECTS


for _step in (BufferOp, CallOp, OutputOp):
    define(_step, Role.OPAQUE)
