# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which named ops have a kernel of their own on the CPU; the others are taken apart."""

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.lowering.tile.combiner import SCANS

__all__ = ["no_kernel"]


def no_kernel(op: ir.Operation) -> str | None:
    """Why `op`, a kiln.matmul, attention, scan or conv, has no kernel; None if it has one, or is another op."""
    name = name_of(op)
    if name not in ("kiln.matmul", "kiln.attention", "kiln.scan", "kiln.conv"):
        return None
    types = [ir.RankedTensorType(v.type) for v in op.operands]
    element = types[0].element_type
    if name == "kiln.matmul" and not isinstance(element, ir.FloatType):
        result = ir.RankedTensorType(op.results[0].type).element_type
        if (str(element), str(result)) != ("i8", "i32"):
            return f"products of {element} have no kernel"
    if name == "kiln.attention":
        if isinstance(element, ir.F64Type):
            return "the attention kernel sums in f32"
        if any(t.is_dynamic_dim(t.rank - 1) or not t.shape[-1] for t in types[:3]):
            return "the attention kernel needs head sizes that are known and not zero"
    if name == "kiln.conv":
        return _no_convolution(op, types[1])
    if name == "kiln.scan" and (ir.StringAttr(op.attributes["kind"]).value not in SCANS or len(op.results) != 1):
        return "a running maximum or the like has no kernel"
    return None


_WINDOW = 32
"""Columns of a window that a convolution's kernel writes out."""


def _no_convolution(op: ir.Operation, weight: ir.RankedTensorType) -> str | None:
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
