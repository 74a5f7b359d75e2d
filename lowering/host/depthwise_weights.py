# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Weights of depthwise convolutions whose channels have to be neighbours in memory."""

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.lowering.host.layout import Exprs, HostGraph, constant, mul

__all__ = ["CHANNELS_INNERMOST", "channels_innermost", "weights_of_kernel"]

CHANNELS_INNERMOST = "weight_channels_innermost"
"""Attribute of a `kiln.conv` whose weight `[C, 1, *window]` has to have its channels as neighbours; `assign-layouts`
copies it if need be."""


def channels_innermost(shape: Exprs) -> Exprs:
    """Strides of a dense weight `[C, ...]` with dim 0 innermost."""
    strides = [constant(1)] * len(shape)
    step = shape[0]
    for d in reversed(range(1, len(shape))):
        strides[d] = step
        step = mul(step, shape[d])
    return tuple(strides)


def weights_of_kernel(graph: HostGraph, op: ir.Operation) -> list[int]:
    """The operands of a kernel that are weights of convolutions which need their channels as neighbours."""
    if name_of(op) != "kiln.fusion" or not graph.kernel(op).named:
        return []
    found = [(k, graph.kernel(op).weight_of(k)) for k in range(len(op.operands))]
    return [k for k, conv in found if conv is not None and CHANNELS_INNERMOST in conv.attributes]
