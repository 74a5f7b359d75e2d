# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Saved tensors whose memory the backward graph may write over.

AOTAutograd finds which saved tensors share no memory with the caller's ("donated buffers"), and refuses to run a
backward graph twice that has such. Of these, Kiln writes over tensors that an op of the forward graph made, and whose
memory no other argument of the backward graph lies in.
"""

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Any, cast

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule, Node

from kiln.lowering import paths

__all__ = ["DONATED", "donated_arguments", "mark_donated", "mark_made"]

_TAKEN = paths.group("any donated", "saved tensor")

DONATED = "kiln_donated"
"""Key in the `meta` of a placeholder of a backward graph: its memory may be written to once it has been read."""
_MADE = "kiln_made"


def mark_made(forward: GraphModule, backward: GraphModule) -> None:
    """Note, in place, which arguments of a backward graph are memory that ops of the forward graph made."""
    given = {_storage(n) for op in ("placeholder", "get_attr") for n in forward.graph.find_nodes(op=op)}
    made = {n.name: _storage(n) for n in forward.graph.nodes if n.op == "call_function"}
    arguments = backward.graph.find_nodes(op="placeholder")
    count = Counter(_storage(n) for n in arguments)
    for node in arguments:
        storage = made.get(node.name)
        if storage is not None and storage not in given and count[_storage(node)] == 1 and _is_distinct(node):
            node.meta[_MADE] = True


def donated_arguments() -> list[int]:
    """The arguments that AOTAutograd donates to the backward graph that is being compiled."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return (metadata.bw_donated_idxs or []) if metadata is not None else []


def mark_donated(backward: GraphModule, donated: Iterable[int]) -> int:
    """Mark, in place, which of the donated arguments may be written to; returns how many."""
    arguments = backward.graph.find_nodes(op="placeholder")
    found = [arguments[i] for i in donated if _MADE in arguments[i].meta]
    for node in found:
        _TAKEN("saved tensor")
        node.meta[DONATED] = True
    return len(found)


def _storage(node: Node) -> int | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    return value.untyped_storage()._cdata


def _is_distinct(node: Node) -> bool:
    """Whether a tensor's memory has an element for each of its own."""
    value: torch.Tensor = node.meta["val"]
    sizes, strides = ([_number(n) for n in numbers] for numbers in (value.shape, value.stride()))
    extent = 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    return 0 not in strides and extent >= prod(sizes)


def _number(size: int | torch.SymInt) -> int:
    """A size, or what a symbol stood for when the graph was traced; 0 where that is not known."""
    return size if isinstance(size, int) else cast(Any, size).node.hint or 0
