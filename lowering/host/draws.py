# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The order in memory of what ATen draws random numbers for.

ATen's draws fill memory in its order, and such a result (`dropout`, `bernoulli`, `rand_like`) has the strides of the
operand in the trace: with the operand in another order the numbers would fall on other elements than eager's.
"""

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.lowering.host.layout import Exprs, HostGraph

__all__ = ["follow_draws"]


def follow_draws(graph: HostGraph) -> dict[ir.Value, Exprs]:
    """Strides for the results of fusions that a call with an effect on the random generator reads for a result of the
    same sizes: that result's (the first such call's). What the function returns has strides of its own, which are
    those of the trace as well.
    """
    found: dict[ir.Value, Exprs] = {}
    returned = set(graph.returned)
    for call in graph.operations:
        if name_of(call) != "kiln.aten" or ir.BoolAttr(call.operation.attributes["pure"]).value:
            continue
        results = [r for r in call.operation.results if isinstance(r.type, ir.RankedTensorType)]
        if not len(call.operation.operands) or not results:
            continue
        value, drawn = call.operation.operands[0], graph.layout(results[0])
        if isinstance(value.owner, ir.Block) or name_of(value.owner) != "kiln.fusion":
            continue
        if value in returned or value in found:
            continue
        if drawn is not None and drawn.shape == graph.shape(value):
            graph.assign(value, drawn.strides)
            found[value] = drawn.strides
    return found
