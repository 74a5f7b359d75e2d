# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gradients taken out of calls of `aten.convolution_backward`, which makes those of an image, a weight and a bias."""

import operator
from typing import Any, cast

from torch.fx import Node

__all__ = ["is_wanted", "take_out"]

_MASK = 10
"""Position of the argument that says which of the three gradients are wanted."""


def is_wanted(node: Node, number: int) -> bool:
    """Whether gradient `number` of a call is wanted and read, all of its results by `getitem` alone."""
    wanted = cast(list[Any], node.args[_MASK])[number]
    by_item = all(user.target is operator.getitem for user in node.users)
    return bool(wanted) and by_item and any(user.args[1] == number for user in node.users)


def take_out(node: Node, number: int, made: Node) -> None:
    """Have `made` read in place of gradient `number`, which the call makes no more; without any, the call goes."""
    for user in list(node.users):
        if user.args[1] == number:
            user.replace_all_uses_with(made)
            node.graph.erase_node(user)
    mask = [bool(wanted) and k != number for k, wanted in enumerate(cast(list[Any], node.args[_MASK]))]
    if any(mask):
        node.update_arg(_MASK, mask)
        node.meta["val"] = tuple(None if k == number else value for k, value in enumerate(node.meta["val"]))
    elif not node.users:
        node.graph.erase_node(node)
