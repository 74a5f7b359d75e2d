# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Calls with a Python number where the schema has a tensor, as calls of the overload that takes numbers."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from kiln.frontend.import_.fx_values import node_value

__all__ = ["prefer_scalar_overload"]


def prefer_scalar_overload(target: OpOverload, args: tuple[Any, ...]) -> OpOverload:
    """``mul.Tensor(x, 2.0)`` is ``mul.Scalar(x, 2.0)``: a number must not become a tensor that takes part in promotion.

    AOTAutograd writes the ``Tensor`` overload with a Python number in place of the tensor. The sibling overload with
    the same parameter names and a ``Scalar`` there says the same.
    """
    numbers = [i for i in _tensor_positions(target) if i < len(args) and _is_number(args[i])]
    if not numbers:
        return target
    packet: Callable[..., Any] = target.overloadpacket
    for name in ("Scalar", "Tensor_Scalar", "ScalarOther", "ScalarSelf", "Scalar_mode", "other_Scalar"):
        sibling = getattr(packet, name, None)
        if sibling is None:
            continue
        theirs, ours = sibling._schema.arguments, target._schema.arguments
        if [p.name for p in theirs] != [p.name for p in ours]:
            continue
        if all(
            isinstance(theirs[i].type, torch.NumberType) == (i in numbers) or theirs[i].type == ours[i].type
            for i in range(len(args))
        ) and all(isinstance(theirs[i].type, torch.NumberType) for i in numbers):
            return sibling
    return target


@functools.lru_cache(maxsize=1024)
def _tensor_positions(target: OpOverload) -> tuple[int, ...]:
    """Parameters that are tensors; reading a schema takes long."""
    return tuple(i for i, p in enumerate(target._schema.arguments) if isinstance(p.type, torch.TensorType))


def _is_number(arg: Any) -> bool:
    if isinstance(arg, Node):
        arg = node_value(arg)
    return isinstance(arg, (bool, int, float, torch.SymInt, torch.SymFloat))
