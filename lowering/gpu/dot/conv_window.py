# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Depthwise convolutions whose windows move by one position: which ones have a kernel that shares what windows read."""

from math import prod

from torch_mlir import ir

__all__ = ["LEAST_WORK", "MOST_TAPS", "WRITTEN_OUT", "slides"]

WRITTEN_OUT = 9
"""Taps of windows of single channels that are no loop."""
MOST_TAPS = 49
LEAST_WORK = 10 << 20
"""Multiplications from which on the kernel that turns the weight is little beside it: those of the smallest case that
was measured (`choices/convolution.toml`)."""


def slides(op: ir.Operation) -> bool:
    """Whether a convolution, at the kiln stage, is a large one of windows that slide over single channels."""
    attributes = op.attributes
    weight, result = (ir.RankedTensorType(v.type) for v in (op.operands[1], op.results[0]))
    if not weight.has_static_shape or not result.has_static_shape or result.rank != 4 or "strides" not in attributes:
        return False
    ones = (n for name in ("stride", "dilation") for n in ir.DenseI64ArrayAttr(attributes[name]))
    padding = list(ir.DenseI64ArrayAttr(attributes["padding"]))
    depthwise = weight.shape[1] == 1 and ir.IntegerAttr(attributes["groups"]).value == weight.shape[0] > 1
    if ir.IntegerAttr(attributes["transposed"]).value or not depthwise or any(n != 1 for n in ones):
        return False
    taps = prod(weight.shape[2:])
    fits = 1 < taps <= MOST_TAPS and all(0 <= p < k for p, k in zip(padding, weight.shape[2:], strict=True))
    is_last = ir.AffineMapAttr(attributes["strides"]).value.results[1] == ir.AffineConstantExpr.get(1)
    return fits and is_last and prod(result.shape) * taps >= LEAST_WORK
