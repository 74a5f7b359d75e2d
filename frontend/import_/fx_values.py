# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The abstract values on the nodes of an FX graph. Needs no MLIR."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import sympy
import torch
from torch.fx import GraphModule, Node

__all__ = [
    "ImportUnsupported",
    "is_only_compared",
    "is_unbacked",
    "nested_attribute",
    "node_value",
    "tensor_leaves",
    "value_leaves",
]


class ImportUnsupported(Exception):
    """What the import cannot express in the torch dialect; the message is the reason a report shows."""


def node_value(node: Node) -> Any:
    """The abstract value AOTAutograd left on ``node``: FakeTensor, SymInt, number, None, or a tuple of those."""
    return node.meta.get("val")


def value_leaves(value: Any) -> Iterator[Any]:
    """The leaves of a node's value: itself, or the members of a tuple or list, in order."""
    if isinstance(value, (tuple, list)):
        for member in cast(Sequence[Any], value):
            yield from value_leaves(member)
    else:
        yield value


def tensor_leaves(value: Any) -> Iterator[torch.Tensor]:
    """The tensors among the leaves."""
    for leaf in value_leaves(value):
        if isinstance(leaf, torch.Tensor):
            yield leaf


def is_unbacked(symbol: sympy.Symbol) -> bool:
    """Whether ``symbol`` gets its value while the graph runs (``u0``) rather than from the inputs."""
    return symbol.name.startswith(("u", "zuf"))


def nested_attribute(gm: GraphModule, target: str) -> Any:
    """What a module has under a dotted name."""
    value: Any = gm
    for part in target.split("."):
        value = getattr(value, part)
    return value


def is_only_compared(node: Node) -> bool:
    """Whether a number of sizes is read by comparisons alone, which are written out as a whole."""
    return bool(node.users) and all(isinstance(node_value(user), (torch.SymBool, bool)) for user in node.users)
