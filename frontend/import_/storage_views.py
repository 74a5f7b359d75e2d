# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops that count elements in memory, written so that they count in a tensor.

``as_strided(x, size, stride, offset)`` reads the storage of ``x``, which may hold more than ``x``: the tensor that
``x`` is a view of. It becomes one of that tensor. An input has the storage that eager has (``as_strided_copy``); where
a computed tensor lies is the plan's affair, and the offset counts from its first element (``runtime/strided.py``).
What has all elements of a computed tensor in row-major order is a view of it, or a copy in another shape where all are
written: functorch's derivatives of derivatives replay each view so.
"""

import operator
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from kiln.frontend.import_.fx_values import ImportUnsupported, node_value
from kiln.lowering import paths

__all__ = ["COUNTING", "bases_of_other_types", "bases_of_results", "counted_in_tensor"]

aten = torch.ops.aten

_TAKEN = paths.group("any storage-views", "all elements", "all elements written", "results in one tensor")

COUNTING = (aten.as_strided.default, aten.as_strided_scatter.default)
"""Ops that count elements in memory."""


_AS_ANOTHER_TYPE = (aten.view.dtype, aten.view_as_complex.default)


def bases_of_other_types(nodes: Iterable[Node]) -> set[Node]:
    """The computed tensors that are viewed as another type: they need memory of their own (``runtime/strided.py``)."""
    bases = {_base(node.args[0]) for node in nodes if node.target in _AS_ANOTHER_TYPE}
    return {base for base in bases if base.op != "placeholder"}


def bases_of_results(results: Sequence[Any]) -> set[Node]:
    """The computed tensors in which several results lie. A copy (``clone``, ``flip``) would be computed for each, but
    AOTAutograd takes one's place in the other's memory where sizes are known at run time only.
    """
    distinct = list(dict.fromkeys(node for node in results if isinstance(node, Node)))
    memories = [_memory(node) for node in distinct]
    shared = [node for node, memory in zip(distinct, memories, strict=True) if memory and memories.count(memory) > 1]
    bases = {base for base in map(_base, shared) if base.op != "placeholder"}
    _TAKEN.those({"results in one tensor": bool(bases)})
    return bases


def counted_in_tensor(node: Node, target: OpOverload) -> tuple[OpOverload, tuple[Any, ...]]:
    """What to import for a node that calls ``target``: the op and its arguments.

    Raises ImportUnsupported for memory whose start is not known.
    """
    if target not in COUNTING:
        return target, node.args
    is_view = target is aten.as_strided.default
    given: tuple[Any, ...] = tuple(node.args)
    x, (size, stride, *rest) = given[0], given[1:] if is_view else given[2:]
    base = _base(x) if is_view else x
    offset = rest[0] if rest else node.kwargs.get("storage_offset")
    if offset is None and base is not x:
        offset = _start(x)
    if is_view and base.op == "placeholder":
        return aten.as_strided_copy.default, (base, size, stride, offset)
    if offset is not None and _start(base) != 0:
        raise ImportUnsupported(f"{node.name} counts in memory in which {base.name} does not come first")
    if _has_all(base, size, stride, offset or 0):
        _TAKEN("all elements" if is_view else "all elements written")
        shape = list(node_value(base).shape)
        return (aten.view.default, (base, size)) if is_view else (aten.view_copy.default, (given[1], shape))
    return target, (base, *given[1 : 1 if is_view else 2], size, stride, offset)


def _has_all(x: Node, size: Sequence[Any], stride: Sequence[Any], offset: Any) -> bool:
    """Whether these are all elements of ``x`` in its own order, which is row-major; sizes are known."""
    value = node_value(x)
    numbers = (*value.shape, *value.stride(), *size, *stride, offset)
    if not all(isinstance(number, int) for number in numbers) or offset != 0 or not value.is_contiguous():
        return False
    row_major = torch.empty(tuple(size), device="meta").stride()
    same = all(mine == theirs for n, mine, theirs in zip(size, stride, row_major, strict=True) if n != 1)
    return same and prod(size) == value.numel()


def _start(node: Any) -> int:
    """Where a tensor begins in its memory."""
    start = node_value(node).storage_offset()
    if isinstance(start, torch.SymInt):
        raise ImportUnsupported(f"{node.name} begins in memory where inputs decide")
    return start


def _base(x: Any) -> Node:
    """The tensor of the graph that ``x`` is a view of."""
    memory = _memory(x)
    read = x.args[0].all_input_nodes if x.target is operator.getitem else x.all_input_nodes
    viewed = next((node for node in read if _memory(node) == memory), None)
    return x if x.op == "placeholder" or viewed is None else _base(viewed)


def _memory(node: Node) -> int | None:
    value = node_value(node)
    is_plain = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return value.untyped_storage()._cdata if is_plain else None
