# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which named ops have a kernel of their own on the CPU; the others are taken apart."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.kiln import ConvOp, by_name, name_of
from kiln.lowering.tile.named_kernels import SHARED_RULES

__all__ = ["no_kernel"]


def no_kernel(op: ir.Operation) -> str | None:
    """Why `op`, a kiln.matmul, attention, scan or conv, has no kernel; None if it has one, or is another op."""
    rule = _RULES.get(name_of(op))
    return None if rule is None else rule(op, [ir.RankedTensorType(v.type) for v in op.operands])


_WINDOW = 32
"""Columns of a window that a convolution's kernel writes out."""


def _no_convolution(op: ir.Operation, types: Sequence[ir.RankedTensorType]) -> str | None:
    weight = types[1]
    if not isinstance(weight.element_type, ir.FloatType):
        return f"convolutions of {weight.element_type} have no kernel"
    if weight.rank > 5:
        return "convolutions over more than three dims have no kernel"
    if not weight.has_static_shape or 0 in weight.shape:
        return "the convolution kernel needs a weight of known size, not empty"
    if weight.shape[-1] > _WINDOW:
        return f"the convolution kernel takes windows of at most {_WINDOW} columns"
    stride = list(ir.DenseI64ArrayAttr(op.attributes["stride"]))
    if ir.IntegerAttr(op.attributes["transposed"]).value and stride[-1] > _WINDOW:
        return f"the kernel of transposed convolutions takes strides of at most {_WINDOW} columns"
    return None


_RULES = {**SHARED_RULES, **by_name({ConvOp: _no_convolution})}
