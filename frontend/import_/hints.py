# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What sizes known at run time only were about when a graph was traced: passes may choose by it what is fast for such
sizes, never what is right.
"""

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch.fx import GraphModule

__all__ = ["hints_of", "rounded_hint", "size_hints"]


def size_hints(gm: GraphModule) -> dict[str, int]:
    """Those of a graph's inputs: see `hints_of`."""
    return hints_of([node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")])


def hints_of(inputs: Iterable[Any]) -> dict[str, int]:
    """Of the symbols that are a size or stride of an input, or an input, by name: the number that a graph is traced
    with, rounded.
    """
    found: dict[str, int] = {}
    for value in inputs:
        for size in [*value.size(), *value.stride()] if _has_strides(value) else [value]:
            own = cast(Any, size.node) if isinstance(size, torch.SymInt) else None
            if own is not None and own.expr.is_Symbol and own.has_hint():
                found[str(own.expr)] = rounded_hint(int(own.hint))
    return found


def rounded_hint(size: int) -> int:
    """The least power of two that is not smaller: graphs of about the same sizes are one, to the cache as well."""
    return 1 << (size - 1).bit_length() if size > 1 else size


def _has_strides(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
