# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the model calls the inputs of a graph: ``layers.0.weight`` for a parameter, ``x`` for an argument.

Dynamo knows where it found each input, AOTAutograd's descriptors say which of Dynamo's inputs a graph's input is.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from torch._functorch._aot_autograd.descriptors import PlainAOTInput
from torch.fx import GraphModule, Node

__all__ = ["NAMES", "Names", "argument_names", "with_names"]

NAMES = "kiln_argument_names"
"""Key in ``gm.meta`` of AOTAutograd's graph: its ``Names``."""

Names = Callable[[], Sequence[str]]
"""Gives the names of Dynamo's inputs, in their order; empty for those without one."""

_STEP = re.compile(r"\['?([^'\]]+)'?\]|\.([A-Za-z_]\w*)")
_TABLES = ("_modules", "_parameters", "_buffers")


def argument_names(gm: GraphModule) -> Names:
    """The names of the inputs of a graph of Dynamo's, which are made when they are asked for."""
    sources = [getattr(node, "_dynamo_source", None) for node in gm.graph.find_nodes(op="placeholder")]
    return functools.cache(lambda: [_name(source) for source in sources])


def with_names(gm: GraphModule, names: Names) -> dict[Node, str]:
    """Inputs of a graph of AOTAutograd's, by their names in the model. Inputs that it made itself (gradients, results
    that forward keeps) are left out.
    """
    found: dict[Node, str] = {}
    for node in gm.graph.find_nodes(op="placeholder"):
        described = node.meta.get("desc")
        if isinstance(described, PlainAOTInput) and described.idx < len(names()) and names()[described.idx]:
            found[node] = names()[described.idx]
    return found


def _name(source: Any) -> str:
    """``L['self']._modules['layers']._modules['0']._parameters['weight']`` is ``layers.0.weight``."""
    name = getattr(source, "name", "")
    text = str(name() if callable(name) else name)
    steps = [first or second for first, second in _STEP.findall(text.removeprefix("L"))]
    is_member = any(step in _TABLES for step in steps)
    return ".".join(step for step in steps[is_member:] if step not in _TABLES)
