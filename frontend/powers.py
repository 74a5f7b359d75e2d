# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Differences of powers from 1, as optimizers correct their averages by: ``1 - 0.999 ** step``.

Eager computes them as Python floats, a compiled step in the tensor that counts steps, which is float32: of 0.999 no
more digits are left than of 1, and the first differences are off by 1e-5 of their size. ``expm1`` keeps them.

Where ``x * log(base)`` is large, its rounding is an error of so many units in the last place of the power, and nothing
cancels: there the power itself is taken, as in eager. Only of bases that decay slowly: ``2 ** bits - 1`` stays whole.
"""

import math
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.graph_ops import call, value_of
from kiln.lowering import paths

__all__ = ["write_powers_less_one"]

aten = torch.ops.aten

_SLOW = 0.5
"""Bases between this and 1 are rewritten; powers of 1/2 itself are exact."""
_NEAR = 0.5
"""Powers whose logarithm is below this have digits in common with 1."""

_TAKEN = paths.group("any powers", "less one")

_SIGNS = {
    aten.sub.Tensor: 1,
    aten.sub.Scalar: 1,
    aten.rsub.Scalar: -1,
}
"""Op whose operands are a power and 1 -> the sign of the power in its result."""


def write_powers_less_one(gm: GraphModule) -> int:
    """Rewrite, in place, ``base ** x - 1`` and ``1 - base ** x`` for a number 1/2 < base < 1; returns how many."""
    changed = 0
    for power in gm.graph.find_nodes(op="call_function", target=aten.pow.Scalar):
        base, exponent = cast("tuple[Any, Node]", power.args)
        is_slow = isinstance(base, float) and _SLOW < base < 1
        if not is_slow or not value_of(power).dtype.is_floating_point or not value_of(exponent).is_floating_point():
            continue
        for node in [n for n in power.users if _sign(n, power)]:
            _TAKEN("less one")
            with gm.graph.inserting_before(node):
                _rewrite(node, power, _sign(node, power))
            changed += 1
        if not power.users:
            gm.graph.erase_node(power)
    if changed:
        gm.recompile()
    return changed


def _rewrite(node: Node, power: Node, sign: int) -> None:
    base, exponent = cast("tuple[float, Node]", power.args)
    logarithm = call(node.graph, aten.mul.Tensor, exponent, math.log(base))
    is_near = call(node.graph, aten.lt.Scalar, call(node.graph, aten.abs.default, logarithm), _NEAR)
    less_one = call(node.graph, aten.expm1.default, logarithm)
    near = less_one if sign > 0 else call(node.graph, aten.neg.default, less_one)
    far = call(node.graph, cast(Any, node.target), *node.args)
    node.replace_all_uses_with(call(node.graph, aten.where.self, is_near, near, far))
    node.graph.erase_node(node)


def _sign(node: Node, power: Node) -> int:
    """The sign of a power in a difference from 1; 0 for other ops."""
    is_difference = node.target in _SIGNS and not node.kwargs and node.args == (power, 1)
    return _SIGNS[cast(Any, node.target)] if is_difference and not isinstance(node.args[1], bool) else 0
