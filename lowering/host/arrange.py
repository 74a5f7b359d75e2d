# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Orders of dims in memory that make reshapes of permuted results aliases instead of copies.

Attention gives [b, heads, s, v] and its reader wants [b, s, heads * v]: written as [b, s, heads, v] it needs no copy.
"""

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import name_of
from kiln.lowering.host.layout import Exprs, HostGraph, constant, mul


def preferred_strides(graph: HostGraph) -> dict[ir.Value, Exprs]:
    """Strides for results of fusions that are read through a view which no strides describe otherwise.

    The last dim stays innermost, as vector stores want it.
    """
    found: dict[ir.Value, Exprs] = {}
    for op in graph.operations:
        if name_of(op) != "kiln.view" or graph.layout(op.operation.results[0]) is not None:
            continue
        view = op.operation
        root, index = view.operands[0], graph.local_map(view, ir.AffineMapAttr(view.attributes["map"]).value)
        while not isinstance(root.owner, ir.Block) and name_of(root.owner) == "kiln.view":
            inner = root.owner.operation
            outer = dict(enumerate(index))
            map_ = graph.local_map(inner, ir.AffineMapAttr(inner.attributes["map"]).value)
            index = tuple(affine.substitute(e, outer) for e in map_)
            root = inner.operands[0]
        if isinstance(root.owner, ir.Block) or name_of(root.owner) != "kiln.fusion" or root in found:
            continue
        order = _order([affine.simplify(e, graph.shape(view.results[0])) for e in index])
        if order is None:
            continue
        strides = dense_strides(graph.shape(root), order)
        graph.assign(root, strides)
        if graph.layout(view.results[0]) is None:
            graph.forget(root)
        else:
            found[root] = strides
    return found


def _order(index: list[ir.AffineExpr]) -> list[int] | None:
    """Dims of the source from the outermost to the innermost of the view that reads it; None if that is not clear."""
    keys: list[tuple[int, int]] = []
    for k, e in enumerate(index):
        dims = affine.dims_in(e)
        if not dims:
            keys.append((-1, k))  # read at one place, as a dim of size 1 is
            continue
        if len(dims) != 1:
            return None
        kind = 0 if isinstance(e, ir.AffineFloorDivExpr) else 2 if isinstance(e, ir.AffineModExpr) else 1
        keys.append((next(iter(dims)), kind))
    if len(set(keys)) != len(keys):
        return None
    order = sorted(range(len(keys)), key=lambda i: keys[i])
    return order if order and order[-1] == len(keys) - 1 else None


def dense_strides(shape: Exprs, order: list[int]) -> Exprs:
    """Strides of a dense array whose dims lie in memory in this order."""
    strides = [constant(0)] * len(shape)
    step = constant(1)
    for d in reversed(order):
        strides[d] = step
        step = mul(step, shape[d])
    return tuple(strides)
