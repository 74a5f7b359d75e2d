# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention as ``aten.scaled_dot_product_attention``."""

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.lowering.host.followers import FOLLOWS
from kiln.passes.vendor.sizes import Symbols, static_sizes

__all__ = ["attention"]


def attention(op: ir.Operation, _: Symbols, reason: str) -> tuple[ir.Value, ir.Value]:
    """``aten.scaled_dot_product_attention``; its result has the query's order of dims (`assign-layouts` follows it)."""
    result = ir.RankedTensorType(op.results[0].type)
    kwargs = {
        "scale": ir.FloatAttr(op.attributes["scale"]).value,
        "enable_gqa": ir.RankedTensorType(op.operands[1].type).shape[1] != result.shape[1],
    }
    args = [{"operand": 0}, {"operand": 1}, {"operand": 2}, None, 0.0, bool(op.attributes["causal"].value)]
    name = "aten.scaled_dot_product_attention.default"
    with ir.InsertionPoint(op), op.location:
        call = kiln.aten(
            name, list(op.operands), args, kwargs, [result], [static_sizes(result.shape)], [None], reason=reason
        )
    call.operation.attributes[FOLLOWS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
    return op.results[0], call.results[0]
