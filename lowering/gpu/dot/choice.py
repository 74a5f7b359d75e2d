# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which products, attentions and convolutions a library does faster on an NVIDIA GPU, and why.

Measured on an H200 (docs/gpu.md). Each function gets an op at the kiln stage and returns a reason to call ATen, or None
to keep the op for a kernel of its own.
"""

from torch_mlir import ir

from kiln.dialects import kiln

__all__ = ["attention_reason", "convolution_reason", "product_reason"]

_NARROW = (ir.BF16Type, ir.F16Type)
_FEW = 16
"""Rows up to which the weights' memory decides, which our kernels read at full speed."""
_LARGE = 1 << 31
"""Multiplications from which the difference is more than the call costs."""


def attention_reason(op: ir.Operation) -> str | None:
    """Plain 16-bit attention with heads of 64 to 128 elements. Measured with 4096 tokens: with 64 elements ours is 0.90
    of cuDNN's kernel (causal 0.86), with 128 it is 0.82 (0.87). Few tokens, masks and f32 are ours."""
    query, value = (ir.RankedTensorType(op.operands[i].type) for i in (0, 2))
    if len(op.operands) > 3 or query.rank != 4 or not isinstance(query.element_type, _NARROW):
        return None
    if not ir.RankedTensorType(op.results[0].type).has_static_shape:
        return None
    rows, size = query.shape[-2:]
    if not 64 <= size <= 128 or size != value.shape[-1] or rows < (1024 if size == 64 else 128):
        return None
    return f"cuDNN: attention with heads of {size} elements is faster there"


def product_reason(op: ir.Operation) -> str | None:
    """A large product of 16-bit matrices with nothing to fuse behind it: 0.96 of cuBLAS at 4096 cubed, 0.84 to 0.87
    where rows are no whole lines. Up to 16 rows ours is 1.2 to 1.7 times as fast."""
    lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
    if not all(t.has_static_shape for t in (lhs, rhs, result)) or not isinstance(lhs.element_type, _NARROW):
        return None
    if rhs.rank != 2 or _transposed(op, "transpose_lhs"):
        return None
    rows, work = 1, lhs.shape[-1] * result.shape[-1]
    for size in result.shape[:-1]:
        rows *= size
    if rows <= _FEW or rows * work < _LARGE:
        return None
    if any(kiln.name_of(use.owner.operation) == "linalg.generic" for use in op.results[0].uses):
        return None  # what follows is worth more as an epilogue
    return "cuBLAS: a large product with nothing fused behind it is faster there"


def convolution_reason(op: ir.Operation) -> str | None:
    """cuDNN, unless the convolution is a matrix product: one tap, stride 1, no padding, channels last."""
    if _transposed(op, "transposed"):
        return "cuDNN: transposed convolutions have no kernel"
    weight = ir.RankedTensorType(op.operands[1].type)
    if not weight.has_static_shape:
        return "cuDNN: a weight of unknown size"
    ones = all(v == 1 for v in ir.DenseI64ArrayAttr(op.attributes["stride"]))
    padded = any(ir.DenseI64ArrayAttr(op.attributes["padding"]))
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    taps = any(n != 1 for n in weight.shape[2:])
    if taps or padded or not ones or groups != 1:
        return "cuDNN: windows have not been measured to be faster in a kernel of their own"
    if not _channels_last(op):
        return "cuDNN: channels lie too far apart"
    return None


def _transposed(op: ir.Operation, name: str) -> bool:
    return bool(ir.IntegerAttr(op.attributes[name]).value)


def _channels_last(op: ir.Operation) -> bool:
    if "strides" not in op.attributes:
        return False
    strides = ir.AffineMapAttr(op.attributes["strides"]).value.results
    return strides[1] == ir.AffineConstantExpr.get(1)
