# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which named ops have a kernel of their own on a GPU; the others are taken apart."""

from collections.abc import Sequence

from torch_mlir import ir

from kiln.dialects.kiln import ConvOp, by_name, name_of
from kiln.lowering.tile.named_kernels import SHARED_RULES

__all__ = ["no_kernel"]


def no_kernel(op: ir.Operation) -> str | None:
    """Why `op`, a kiln.matmul, attention, scan or conv, has no kernel; None if it has one, or is another op."""
    rule = _RULES.get(name_of(op))
    return None if rule is None else rule(op, [ir.RankedTensorType(v.type) for v in op.operands])


def _no_convolution(op: ir.Operation, types: Sequence[ir.RankedTensorType]) -> str | None:
    if ir.IntegerAttr(op.attributes["transposed"]).value:
        return "transposed convolutions have no kernel"
    if not isinstance(types[0].element_type, ir.FloatType):
        return f"convolutions of {types[0].element_type} have no kernel"
    if not types[1].has_static_shape or 0 in types[1].shape:
        return "the convolution kernel needs a weight of known size, not empty"
    return None


_RULES = {**SHARED_RULES, **by_name({ConvOp: _no_convolution})}
