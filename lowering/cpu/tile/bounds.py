# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Indices out of range: kernels that clamp an index tell the executor so.

Where a checked clamp (``kiln.lowering.tile.bounds``) changes an index in a lane that is in use, the kernel stores 1 at
the address that its last symbol is: a word of the call's state, which the executor looks at after the launch
(runtime/executor.py). A comparison and a branch that is not taken.
"""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.lowering.cpu.builder import Builder

__all__ = ["emit_check"]


def emit_check(b: Builder, index: ir.Value, clamped: ir.Value, mask: ir.Value | None, flag: ir.Value) -> None:
    """Stores 1 at the address `flag` (an index) if `clamped` is not `index` in one of the lanes of `mask`."""
    wrong = arith.cmpi(arith.CmpIPredicate.ne, index, clamped)
    if isinstance(wrong.type, ir.VectorType):
        if mask is not None:
            wrong = arith.andi(wrong, mask)
        wrong = b.reduce("or", wrong)
    elif mask is not None:
        wrong = arith.andi(wrong, b.reduce("or", mask) if isinstance(mask.type, ir.VectorType) else mask)

    def store() -> None:
        i64 = ir.IntegerType.get_signless(64)
        pointer = ir.Type.parse("!llvm.ptr")
        address = ir.Operation.create("llvm.inttoptr", [pointer], [arith.index_cast(i64, flag)]).result
        one = arith.constant(i64, 1)
        ir.Operation.create("llvm.store", [], [one, address], {"ordering": ir.IntegerAttr.get(i64, 0)})

    b.if_(wrong, store)
