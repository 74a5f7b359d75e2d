# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What eager PyTorch would do to memory: each operator of the graph reads its inputs and writes its outputs."""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from kiln.frontend.import_.fx_values import node_value, tensor_leaves
from kiln.runtime.plan import Plan
from kiln.runtime.program import derived_values

__all__ = ["EagerMemory", "eager_memory", "symbol_hints"]


@dataclass(frozen=True)
class EagerMemory:
    """Bytes: `moved` by all operators, `peak` of what is allocated at once, inputs and parameters not counted."""

    moved: int
    peak: int


def eager_memory(gm: GraphModule) -> EagerMemory | None:
    """Simulate the graph's operators one by one, each freeing what nobody reads later.

    Views move and allocate nothing. Sizes are those of the example inputs; None where one is known at run time only.
    """
    tensors = {node: list(tensor_leaves(node_value(node))) for node in gm.graph.nodes}
    storages = {node: [t.untyped_storage()._cdata for t in found] for node, found in tensors.items()}
    given = {s for node in gm.graph.nodes if node.op in ("placeholder", "get_attr") for s in storages[node]}
    last: dict[int, Node] = {}
    for node in gm.graph.nodes:
        for source in [node, *node.all_input_nodes]:
            last.update((s, node) for s in storages[source])
    try:
        sizes: dict[int, int] = {}
        moved = live = peak = 0
        for node in gm.graph.nodes:
            if node.op != "call_function":
                continue
            inputs = node.all_input_nodes
            known = {s for source in inputs for s in storages[source]}
            results = zip(tensors[node], storages[node], strict=True)
            fresh = [(t, s) for t, s in results if s not in given and s not in known]
            if not fresh and node.target is not torch.ops.aten.copy_.default:
                continue  # a view, or one of several results
            moved += sum(_bytes(t) for source in inputs for t in tensors[source]) + sum(_bytes(t) for t, _ in fresh)
            for t, key in fresh:
                if key not in sizes:
                    sizes[key] = _number(t.untyped_storage().nbytes())
                    live += sizes[key]
            peak = max(peak, live)
            for key in [key for key in sizes if last[key] is node]:
                live -= sizes.pop(key)
        return EagerMemory(moved, peak)
    except _NoHint:
        return None


def symbol_hints(gm: GraphModule, plan: Plan) -> list[int] | None:
    """Values of the plan's symbols for the example inputs; None where one is known at run time only."""
    nodes = [node for node in gm.graph.nodes if node.op == "placeholder"]
    values: list[int | None] = [None] * len(plan.symbols)
    try:
        for i, symbol in enumerate(plan.symbols):
            if symbol.source in ("input", "size", "stride"):
                value = node_value(nodes[symbol.input])
                if symbol.source != "input":
                    value = value.size(symbol.dim) if symbol.source == "size" else value.stride(symbol.dim)
                values[i] = _number(value)
            elif symbol.source == "aten":
                return None
    except _NoHint:
        return None
    derived_values(plan, values)
    return [v for v in values if v is not None]


class _NoHint(Exception):
    """A size without an example."""


def _number(size: int | torch.SymInt) -> int:
    if isinstance(size, torch.SymInt):
        hint: Any = cast(Any, size.node).hint
        if hint is None:
            raise _NoHint
        return int(hint)
    return int(size)


def _bytes(tensor: torch.Tensor) -> int:
    """Bytes of the distinct elements."""
    count = tensor.element_size()
    for n, step in zip(tensor.size(), tensor.stride(), strict=True):
        count *= _number(n) if _number(step) else 1
    return count
