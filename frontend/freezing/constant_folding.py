# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Computing once what a functional FX graph computes from constants alone, with ATen and in its own dtypes."""

import operator
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

__all__ = ["add_constant", "constant_of", "fold_constants"]

_NAMESPACES = ("aten", "prims")
# Uninitialised memory has no value to compute with.
_UNDEFINED = ("aten.empty", "aten.new_empty")


def add_constant(gm: GraphModule, tensor: torch.Tensor, before: Node, value: Any) -> Node:
    """A ``get_attr`` node of ``tensor`` in front of ``before``; ``value`` is its ``meta["val"]``."""
    number = 0
    while hasattr(gm, f"_constant_{number}"):
        number += 1
    name = f"_constant_{number}"
    gm.register_buffer(name, tensor.detach(), persistent=False)
    with gm.graph.inserting_before(before):
        node = gm.graph.get_attr(name)
    node.meta["val"] = value
    return node


def constant_of(gm: GraphModule, node: Any) -> torch.Tensor | None:
    """The tensor that a ``get_attr`` node stands for; None for anything else."""
    if not isinstance(node, Node) or node.op != "get_attr":
        return None
    value: Any = gm
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value if isinstance(value, torch.Tensor) else None


def fold_constants(gm: GraphModule, growth_limit: int = 1 << 20) -> int:
    """Replace what is computed from constants alone by its value; returns the bytes of new memory.

    Random ops, ops outside of ``aten`` and ``prims``, and what the graph returns (fresh memory at every call) are
    left. So is a value that takes ``growth_limit`` bytes more than twice what it is computed from: broadcasting it at
    run time is cheaper than reading it.
    """
    known: dict[Node, Any] = {}
    returned = set(next(n for n in reversed(gm.graph.nodes) if n.op == "output").all_input_nodes)
    with torch.no_grad():
        for node in gm.graph.nodes:
            if node.op == "get_attr":
                tensor = constant_of(gm, node)
                if tensor is not None:
                    known[node] = tensor
            elif node not in returned and _is_foldable(node, known):
                value = _evaluate(node, known)
                if not _grows(node, value, known, growth_limit):
                    known[node] = value
    added = 0
    seen = {tensor.untyped_storage().data_ptr() for n, tensor in known.items() if n.op == "get_attr"}
    for node, value in known.items():
        if node.op == "get_attr" or not isinstance(value, torch.Tensor) or all(u in known for u in node.users):
            continue
        constant = add_constant(gm, value, node, node.meta["val"])
        for user in [u for u in node.users if u not in known]:
            user.replace_input_with(node, constant)
        if value.untyped_storage().data_ptr() not in seen:
            seen.add(value.untyped_storage().data_ptr())
            added += value.untyped_storage().nbytes()
    gm.graph.eliminate_dead_code(lambda n: n.op in ("placeholder", "output") or n.is_impure())
    gm.recompile()
    return added


def _is_foldable(node: Node, known: dict[Node, Any]) -> bool:
    if node.op != "call_function" or not node.all_input_nodes or not all(n in known for n in node.all_input_nodes):
        return False
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace not in _NAMESPACES:
        return False
    if torch.Tag.nondeterministic_seeded in node.target.tags or str(cast(Any, node.target)).startswith(_UNDEFINED):
        return False
    return not node.target._schema.is_mutable


def _evaluate(node: Node, known: dict[Node, Any]) -> Any:
    args, kwargs = pytree.tree_map_only(Node, known.__getitem__, (node.args, node.kwargs))
    return node.target(*args, **kwargs)  # type: ignore[operator] - the target of a call can be called


def _grows(node: Node, value: Any, known: dict[Node, Any], limit: int) -> bool:
    sources = [t for n in node.all_input_nodes for t in pytree.tree_leaves(known[n]) if isinstance(t, torch.Tensor)]
    results = [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]
    before = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in sources}
    fresh = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in results}
    new = sum(size for address, size in fresh.items() if address not in before)
    return new > 2 * sum(before.values()) + limit
