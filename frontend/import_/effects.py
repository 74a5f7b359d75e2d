# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Ops with side effects (checks, prints): AOTAutograd threads a token through them to keep their order.

``with_effects(token, op, *args)`` returns ``(token, *results)``. At run time tokens are None and mean nothing; order is
kept because such ops are never pure and stay in their places. So tokens vanish at import.
"""

import operator

from torch.fx import Node

__all__ = ["is_effect", "is_token"]

_TOKEN_OPS = ("prims._make_token.default", "prims._sink_tokens.default")


def is_effect(node: Node) -> bool:
    """Whether ``node`` is a ``with_effects`` call."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") == "with_effects"


def is_token(node: Node) -> bool:
    """Whether the value of ``node`` is a token."""
    if node.op == "placeholder":
        return bool(node.users) and all(is_effect(user) and user.args[0] is node for user in node.users)
    if node.op != "call_function":
        return False
    if str(node.target) in _TOKEN_OPS:
        return True
    if node.target is not operator.getitem:
        return False
    source, index = node.args
    return isinstance(source, Node) and is_effect(source) and isinstance(index, int) and index == 0
