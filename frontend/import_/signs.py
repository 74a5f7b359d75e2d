# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Signs of a graph's integers: symbols of affine expressions are sizes, hence never negative.

An integer argument (`x[:, k:]`) may be negative, and so may be what no affine expression holds (`min(k - 5, 3)`). Signs
are guards of Dynamo's, so that each graph has one; expressions hold the opposite of what is negative.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import sympy
import torch
from torch.fx import GraphModule, Node

from kiln.frontend.import_.fx_values import ImportUnsupported, is_unbacked, node_value, value_leaves
from kiln.frontend.import_.semi_affine import NotAffine, derived_parts
from kiln.lowering import paths

__all__ = ["NEGATIVE", "guard_signs", "is_negative"]

_TAKEN = paths.group("any signs", "negative symbol", "negative expression")

NEGATIVE = "kiln.negative"
"""Key in a graph's `meta`: the symbols of its expressions, base or derived, that are negative in every call."""


def guard_signs(gm: GraphModule) -> list[sympy.Expr]:
    """The symbols, base and derived, of the expressions of `gm` that are negative. Each sign is known or gets a guard.

    Raises:
        ImportUnsupported: a sign is not known, and PyTorch takes no more guards.
    """
    for node in gm.graph.find_nodes(op="placeholder"):  # those that only the backward graph reads as well
        value = node_value(node)
        own = cast(Any, value.node) if isinstance(value, torch.SymInt) else None
        if own is not None and own.has_hint() and not own.shape_env.frozen:
            bool(value >= 0)
    found, seen = set[Any](), set[Any]()
    env: Any = None
    for node in gm.graph.nodes:
        for own in _symbolic(node) if node.users or node.op != "placeholder" else ():
            if own.expr not in seen:
                env = own.shape_env
                seen.add(own.expr)
                found |= own.expr.free_symbols
                with contextlib.suppress(NotAffine):  # the import tells of it
                    found |= {*derived_parts(own.expr)}
    known = [expr for expr in sorted(found, key=str) if not any(map(is_unbacked, expr.free_symbols))]
    negative = [expr for expr in known if is_negative(expr, env)]
    for expr in negative:
        _TAKEN("negative symbol" if expr.is_Symbol else "negative expression")
    return negative


def is_negative(expr: sympy.Expr, env: Any) -> bool:
    """Whether an expression over the symbols of a `ShapeEnv` is negative; a guard if that is not known.

    Raises:
        ImportUnsupported: it is not known, and `env` takes no more guards.
    """
    bounds = env.bound_sympy(expr)
    if bounds.lower >= 0 or bounds.upper < 0:
        return bool(bounds.upper < 0)
    is_not = sympy.Ge(expr, 0)
    known = env._maybe_evaluate_static(is_not)
    if known is None and env.frozen:
        raise ImportUnsupported(f"the sign of the size {expr} is not known")
    return not (env.evaluate_expr(is_not) if known is None else known)


def _symbolic(node: Node) -> Iterator[Any]:
    """The `SymNode`s of a node's integers, and of its tensors' sizes and strides."""
    for leaf in value_leaves(node_value(node)):
        is_tensor = isinstance(leaf, torch.Tensor) and leaf._has_symbolic_sizes_strides
        for size in (*leaf.shape, *leaf.stride()) if is_tensor else (leaf,):
            if isinstance(size, torch.SymInt):
                yield cast(Any, size.node)
