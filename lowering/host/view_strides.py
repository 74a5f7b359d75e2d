# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strides of a kernel's result with which a view of it has the strides that are asked for.

A function returns tensors with the strides that eager gives them. Where it returns a view of a kernel's result, the
kernel can write the result so that the view needs no copy: the result itself, its dims in another order, or a reshape
that joins some of them.
"""

import math

from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering import paths
from kiln.lowering.host.layout import Exprs, HostGraph, constant, mul

__all__ = ["strides_behind"]

_TAKEN = paths.group("any assign-layouts", "joined dims")


def strides_behind(graph: HostGraph, root: ir.Value, value: ir.Value, wanted: Exprs) -> Exprs | None:
    """The strides of `root` with which `value`, the root itself or one view of it, gets the strides `wanted`.

    None where the view is no permutation of the root's dims and no reshape that joins some of them.
    """
    if value == root:
        return wanted
    owner = ir.OpResult(value).owner.operation
    if owner.operands[0] != root or graph.shape(value) == ():
        return None
    map_ = ir.AffineMapAttr(owner.attributes["map"]).value
    positions = [ir.AffineDimExpr(e).position if isinstance(e, ir.AffineDimExpr) else -1 for e in map_.results]
    if sorted(positions) == list(range(map_.n_dims)):
        return tuple(wanted[p] for p in positions)
    return _behind_joined(graph, root, value, wanted)


def _behind_joined(graph: HostGraph, root: ir.Value, value: ir.Value, wanted: Exprs) -> Exprs | None:
    """Strides of the root of a reshape, of static sizes, each dim of which joins dims of the root (a group norm's
    [N, G, C / G, H, W] as [N, C, H, W]); None where the reshape would not have the strides `wanted` with them.
    """
    map_ = ir.AffineMapAttr(ir.OpResult(value).owner.attributes["map"]).value
    sizes = [[affine.constant_of(n) for n in graph.shape(v)] for v in (root, value)]
    known = [[n for n in shape if n is not None] for shape in sizes]
    if known != sizes or math.prod(known[0]) != math.prod(known[1]):
        return None
    strides: list[ir.AffineExpr] = []
    for e in map_.results:
        inner, step = e, 1
        if isinstance(inner, ir.AffineModExpr):
            inner = ir.AffineModExpr(inner).lhs
        if isinstance(inner, ir.AffineFloorDivExpr):
            quotient = ir.AffineFloorDivExpr(inner)
            inner, step = quotient.lhs, affine.constant_of(quotient.rhs)
        if isinstance(inner, ir.AffineDimExpr) and step is not None:
            strides.append(mul(wanted[ir.AffineDimExpr(inner).position], constant(step)))
        elif isinstance(inner, ir.AffineConstantExpr):
            strides.append(constant(1))  # of a dim of size 1
        else:
            return None
    graph.assign(root, tuple(strides))
    joined = graph.layout(value)
    graph.forget(root)
    if joined is None or not joined.same_strides(wanted):
        return None
    _TAKEN("joined dims")
    return tuple(strides)
