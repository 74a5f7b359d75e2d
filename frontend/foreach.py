# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""ATen's ops on lists of tensors (``_foreach_*``), of which optimizers are made, as one op for each tensor.

Fusion puts the ops of many tensors into few kernels again, together with those that come before and after them.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch._ops import OpOverload

from kiln.functions import Fn

__all__ = ["foreach_decompositions"]

aten = torch.ops.aten

_PREFIX = "aten::_foreach_"

#: Ops of one tensor that have another name or other arguments.
_RENAMED: dict[str, Fn[Any, torch.Tensor]] = {
    "addcdiv.Tensor": lambda x, y, z, value: aten.add(x, aten.mul(aten.div(y, z), value)),
    "addcmul.Tensor": lambda x, y, z, value: aten.add(x, aten.mul(aten.mul(y, z), value)),
    "addcdiv": lambda x, y, z, value=1: aten.addcdiv(x, y, z, value=value),
    "addcmul": lambda x, y, z, value=1: aten.addcmul(x, y, z, value=value),
    "maximum.Scalar": aten.clamp_min,
    "maximum.ScalarList": aten.clamp_min,
    "minimum.Scalar": aten.clamp_max,
    "minimum.ScalarList": aten.clamp_max,
    "norm": lambda x, order=2, dtype=None: aten.linalg_vector_norm(x, order, dtype=dtype),
    "powsum": lambda x, order=2, dtype=None: aten.sum(aten.pow(aten.abs(x), order), dtype=dtype),
    "zero": aten.zeros_like,
}

#: The factors of all tensors are one tensor with an element for each.
_STACKED = {"addcdiv.Tensor", "addcmul.Tensor"}


@cache
def foreach_decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Op overload -> its decomposition, for each functional ``_foreach_*`` op of this PyTorch."""
    found: dict[OpOverload, Callable[..., Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith(_PREFIX) or schema.is_mutable:
            continue
        name = schema.name.removeprefix(_PREFIX)
        kind = f"{name}.{schema.overload_name}"
        single = _RENAMED.get(kind) or _RENAMED.get(name) or getattr(aten, name, None)
        if single is not None:
            packet = getattr(aten, schema.name.removeprefix("aten::"))
            each = _for_each(single)
            found[getattr(packet, schema.overload_name or "default")] = _unstacking(each) if kind in _STACKED else each
    return found


def _unstacking(each: Callable[..., list[torch.Tensor]]) -> Callable[..., list[torch.Tensor]]:
    return lambda *lists: each(*lists[:-1], list(lists[-1].unbind()))


def _for_each(single: Callable[..., torch.Tensor]) -> Callable[..., list[torch.Tensor]]:
    """`single` for each tensor of a list: arguments that are lists have one element for each, others hold for all."""

    def decomposed(*arguments: Any, **named: Any) -> list[torch.Tensor]:
        length = max(len(cast(Sequence[Any], argument)) for argument in arguments if isinstance(argument, list | tuple))

        def element(argument: Any, index: int) -> Any:
            return cast(Sequence[Any], argument)[index] if isinstance(argument, list | tuple) else argument

        return [
            single(*(element(a, i) for a in arguments), **{name: element(a, i) for name, a in named.items()})
            for i in range(length)
        ]

    return decomposed
