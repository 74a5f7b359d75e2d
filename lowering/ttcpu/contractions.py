# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Sums that a GPU's compiler contracts with a product: the product is not rounded.

Triton lets LLVM and ptxas do so (`enable_fp_fusion`), in f32, f64 and, where LLVM narrows the arithmetic of 16-bit
numbers, in these: `fptrunc(fpext(fptrunc(x * y)) + z)` is one `fma.rn.f16`. Whether they do depends on what else the
kernel computes, and no document says how. Here a hash of the seed and of the place in the kernel decides, so that two
kernels that compute the same number differ every other time.
"""

import zlib
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith, math

from kiln.dialects import tt
from kiln.dialects.walk import defining_op

__all__ = ["Contraction", "contraction"]

_CONTRACTED = (ir.F32Type, ir.F64Type)


@dataclass(frozen=True)
class Contraction:
    """`x * y + z`, or with another sign of the product or of `z`, rounded once. operands: x, y and z."""

    operands: tuple[ir.Value, ir.Value, ir.Value]
    is_product_negative: bool = False
    is_addend_negative: bool = False

    def emit(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """The number for elements of the operands."""
        first = arith.negf(x) if self.is_product_negative else x
        return math.fma(first, y, arith.negf(z) if self.is_addend_negative else z)


def contraction(op: ir.Operation, seed: int) -> Contraction | None:
    """What a sum or difference of blocks is contracted to; None if it is not, by its operands or by the hash."""
    if op.name not in ("arith.addf", "arith.subf") or not isinstance(tt.element_of(op.results[0].type), _CONTRACTED):
        return None
    products = [_product(op, i) for i in range(2)]
    if not any(products) or not _is_taken(op, seed):
        return None
    is_first, is_difference = products[0] is not None, op.name == "arith.subf"
    factors = products[0] or products[1]
    assert factors is not None
    addend = op.operands[1 if is_first else 0]
    return Contraction((*factors, addend), is_difference and not is_first, is_difference and is_first)


def _product(op: ir.Operation, number: int) -> tuple[ir.Value, ir.Value] | None:
    """The factors of an operand that is a product, in the type of the sum or in the 16 bits of all that reads that."""
    maker = defining_op(op.operands[number])
    if maker is not None and maker.name == "arith.extf":
        rounded = defining_op(maker.operands[0])
        if rounded is None or rounded.name != "arith.truncf":
            return None
        narrow = rounded.results[0].type
        if any(use.owner.name != "arith.truncf" or use.owner.results[0].type != narrow for use in op.results[0].uses):
            return None
        maker = defining_op(rounded.operands[0])
        if maker is None or not all(_extends(v, narrow) for v in maker.operands):
            return None
    if maker is None or maker.name != "arith.mulf" or maker.block != op.block:
        return None
    return maker.operands[0], maker.operands[1]


def _extends(value: ir.Value, narrow: ir.Type) -> bool:
    maker = defining_op(value)
    return maker is not None and maker.name == "arith.extf" and maker.operands[0].type == narrow


def _is_taken(op: ir.Operation, seed: int) -> bool:
    """By the place of the op in its block and the size of that, which differ from kernel to kernel."""
    operations = [view.operation for view in op.block.operations]
    return bool(zlib.crc32(f"{seed} {len(operations)} {operations.index(op)}".encode()) & 1)
