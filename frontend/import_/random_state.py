# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Random ops that a backward graph computes again (dropout in a checkpointed region).

AOTAutograd's partitioner puts ``run_and_save_rng_state(op, ...)`` into the forward graph, and
``run_with_rng_state(state, op, ...)`` into the backward one, without the ``meta["val"]`` that other nodes carry.
Needs no MLIR.
"""

import operator
from typing import Any

import torch
from torch._subclasses import FakeTensor
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from kiln.frontend.import_.fx_values import node_value

__all__ = ["complete_random_values", "is_saving_state"]

_SAVING = torch.ops.higher_order.run_and_save_rng_state
_USING = torch.ops.higher_order.run_with_rng_state


def is_saving_state(node: Node) -> bool:
    """Whether the first result of ``node`` is the state of a random generator before the call."""
    return node.target is _SAVING


def complete_random_values(gm: GraphModule) -> None:
    """Set ``meta["val"]`` of the calls that lack it, by running their ops on the operands' FakeTensors."""
    for node in gm.graph.find_nodes(op="call_function", target=_SAVING):
        if "val" not in node.meta:
            state = next((u for u in node.users if u.target is operator.getitem and u.args[1] == 0), None)
            node.meta["val"] = (None if state is None else node_value(state), _run(node.args[0], node, node.args[1:]))
    for node in gm.graph.find_nodes(op="call_function", target=_USING):
        if "val" not in node.meta:
            node.meta["val"] = _run(node.args[1], node, node.args[2:])


def _run(op: Any, node: Node, args: tuple[Any, ...]) -> Any:
    args, kwargs = pytree.tree_map_only(Node, node_value, (args, node.kwargs))
    fakes = (leaf for n in node.graph.nodes for leaf in pytree.tree_leaves(node_value(n)))
    mode = next(leaf.fake_mode for leaf in fakes if isinstance(leaf, FakeTensor))
    with mode:
        return op(*args, **kwargs)
