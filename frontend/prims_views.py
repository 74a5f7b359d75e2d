# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Views of PyTorch's ``prims`` in a Dynamo graph, as the ATen functions that they stand for.

AOTAutograd makes a graph functional, and knows only ATen's views: of other operators whose results share memory with an
operand (``prims.view_of``, ``prims.squeeze``) it refuses the whole graph.
"""

from collections.abc import Callable
from typing import Any, cast

from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import GraphModule

__all__ = ["replace_prims_views"]


def replace_prims_views(gm: GraphModule) -> None:
    """Replace the views of ``prims`` in a graph and the graphs inside of it, in place."""
    for module in gm.modules():
        if not isinstance(module, GraphModule):
            continue
        found = [(node, view) for node in module.graph.nodes if (view := _aten_view(node.target)) is not None]
        for node, view in found:
            node.target = view
        if found:
            module.recompile()


def _aten_view(target: Any) -> Callable[..., Any] | None:
    """What ``target`` does, by ATen's functions, if it is a view of ``prims``."""
    if isinstance(target, OpOverloadPacket):
        target = cast(Any, target).default if "default" in target.overloads() else None
    if not isinstance(target, OpOverload) or target.namespace != "prims":
        return None
    is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in target._schema.returns)
    return getattr(cast(Any, target), "impl_aten", None) if is_view else None
