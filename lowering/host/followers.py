# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Calls whose result lies in memory as one of their operands does, and operands that are written for it.

cuDNN's attention gives its result the order of dims that the query has (PyTorch, `alloc_with_matching_layout`). A plan
that expects another order copies the result at every call. And where a reader wants tokens of heads, [b, s, h * d], the
query is written as [b, s, h, d], so that the reader needs no copy either.
"""

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.lowering.host.arrange import dense_strides
from kiln.lowering.host.channels_last import views_of
from kiln.lowering.host.layout import Exprs, HostGraph

__all__ = ["FOLLOWS", "follow_operands"]

FOLLOWS = "follows"
"""Attribute of a `kiln.aten` with one result: the number of the operand whose order of dims the result has."""


def follow_operands(graph: HostGraph) -> dict[ir.Value, Exprs]:
    """Sets the strides of the calls that follow an operand; the result has strides for operands that kernels write.

    Only kernels' results that nothing but views and the call read, and that are not returned, are rearranged, and only
    if that makes each view of the call's result an alias.
    """
    found: dict[ir.Value, Exprs] = {}
    for op in graph.operations:
        call = op.operation
        if name_of(call) != "kiln.aten" or FOLLOWS not in call.attributes:
            continue
        operand = call.operands[ir.IntegerAttr(call.attributes[FOLLOWS]).value]
        _follow(graph, call, operand)
        if _are_aliases(graph, call.results[0]) or not _may_move(graph, operand):
            continue
        shape = graph.shape(operand)
        heads_inside = [*range(len(shape) - 3), len(shape) - 2, len(shape) - 3, len(shape) - 1]
        strides = dense_strides(shape, heads_inside)
        graph.assign(operand, strides)
        _follow(graph, call, operand)
        if _are_aliases(graph, call.results[0]) and _are_aliases(graph, operand):
            found[operand] = strides
        else:
            graph.forget(operand)
            _follow(graph, call, operand)
    return found


def _follow(graph: HostGraph, call: ir.Operation, operand: ir.Value) -> None:
    """Gives the call's result dense strides in the order of the operand's; static sizes alone."""
    layout = graph.layout(operand)
    shape = graph.shape(call.results[0])
    steps = [affine.constant_of(s) for s in layout.strides] if layout is not None else [None]
    if any(step is None for step in (*steps, *(affine.constant_of(n) for n in shape))):
        return
    order = sorted(range(len(shape)), key=lambda d: -(steps[d] or 0))
    attribute = ir.AffineMapAttr.get(ir.AffineMap.get(0, 0, list(dense_strides(shape, order))))
    call.attributes["strides"] = ir.ArrayAttr.get([attribute])
    graph.forget(call.results[0])


def _are_aliases(graph: HostGraph, value: ir.Value) -> bool:
    return all(graph.layout(view.results[0]) is not None for view in views_of(value))


def _may_move(graph: HostGraph, value: ir.Value) -> bool:
    if isinstance(value.owner, ir.Block) or name_of(value.owner) != "kiln.fusion" or value in graph.assigned:
        return False
    readers = [value, *(view.results[0] for view in views_of(value))]
    calls = [use for reader in readers for use in reader.uses if name_of(use.owner) == "kiln.aten"]
    return len(calls) == 1 and len(graph.shape(value)) >= 3 and not any(v in graph.returned for v in readers)
