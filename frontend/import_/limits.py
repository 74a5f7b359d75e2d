# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Dynamic sizes that are promised to be small: kernels of a GPU compute positions in 32 bits where all of them fit.

The promise is a guard of Dynamo's, as Inductor makes it: a call with larger tensors compiles the graph again, whose
kernels then have positions of 64 bits.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import sympy
import torch
from torch.fx import GraphModule

from kiln.frontend.import_.fx_values import is_unbacked, tensor_leaves
from kiln.frontend.import_.signs import is_negative

__all__ = ["LIMIT", "LIMITS", "guard_sizes", "needs_guards"]

LIMIT = (1 << 31) - (1 << 21)
"""What sizes are below: a kernel's last program may count on for a tile behind the last element."""
LIMITS = "kiln.limits"
"""Key in a graph's `meta`: expressions of which each is below `LIMIT` in every call."""

_MOST = 16
"""Guards of one graph, which each call checks."""


def needs_guards(gm: GraphModule, target: str) -> bool:
    """Whether `gm` gets kernels of GPUs: by the target that was asked for, or where its tensors are."""
    if target:
        return target != "cpu"
    leaves = (tensor for node in gm.graph.nodes for tensor in tensor_leaves(node.meta.get("val")))
    return any(tensor.device.type != "cpu" for tensor in leaves)


def guard_sizes(gm: GraphModule) -> list[sympy.Expr]:
    """Guard the sizes and extents in memory of the tensors of `gm`, in elements, as far as they have symbols.

    Returns the expressions that hold. None where there are too many, where PyTorch takes no more guards (a backward
    graph that is compiled when it is first run), or where the sizes at hand are not small themselves.
    """
    found: dict[sympy.Expr, torch.SymInt] = {}
    for node in gm.graph.nodes:
        for tensor in tensor_leaves(node.meta.get("val")):
            for size in _extents(tensor):
                found.setdefault(sympy.expand(size.node.expr), size)
    if not found or any(cast(Any, size.node).shape_env.frozen for size in found.values()):
        return []
    opposites = {
        symbol: -symbol
        for expr, size in found.items()
        for symbol in expr.free_symbols
        if is_negative(symbol, cast(Any, size.node).shape_env)
    }
    terms = {e: sympy.expand(e.subs(opposites) if opposites else e).as_coefficients_dict() for e in found}
    kept = [e for e in found if not any(f is not e and _covers(terms[f], terms[e]) for f in found)]
    if len(kept) > _MOST:
        return []
    held: list[Any] = []
    for expr in sorted(kept, key=str):
        size = found[expr]
        if size.node.has_hint() and size.node.hint < LIMIT and bool(size < LIMIT):
            held.append(expr)
    return held


def _extents(tensor: torch.Tensor) -> Iterable[torch.SymInt]:
    """The number of elements, and how many the memory has from the first to the last one; those with symbols that the
    caller knows.
    """
    if tensor.layout is not torch.strided:
        return
    count: Any = 1
    reach: Any = 1
    for n, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count = count * n
        reach = reach + (n - 1) * stride
    for size in (count, reach):
        if isinstance(size, torch.SymInt) and _is_polynomial(size.node.expr):
            yield size


def _is_polynomial(expr: sympy.Expr) -> bool:
    symbols: Sequence[sympy.Symbol] = list(expr.free_symbols)
    return bool(symbols) and not any(map(is_unbacked, symbols)) and bool(expr.is_polynomial(*symbols))


def _covers(large: Mapping[Any, Any], small: Mapping[Any, Any]) -> bool:
    """Whether one size is at least as large as another for all values of its symbols, which are not negative.

    Both by their terms: the coefficient of each product of symbols.
    """
    return all(large.get(term, 0) >= small.get(term, 0) for term in large.keys() | small.keys())
