# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the partitioner takes to be computed in kernels with other ops, and to be cheap enough to compute again.

PyTorch's list is of the ops that are left where Inductor's decompositions have been. Graphs for Kiln have some whole: a
vector norm, a hard swish. An op that is not in the list is taken for a call, whose operands are in memory anyway, and
whose result is never computed again.
"""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch._functorch import partitioners
from torch._functorch.partitioners import OpTypes, get_default_op_list
from torch.utils._ordered_set import OrderedSet

from kiln.frontend.patched_attributes import patched_attributes

__all__ = ["knowing_fused_ops", "op_types"]

aten = torch.ops.aten

_REDUCTIONS = (
    aten.all,
    aten.amin,
    aten.argmin,
    aten.linalg_vector_norm,
    aten.logsumexp,
    aten.nansum,
    aten.norm,
    aten.prod,
    aten.std_mean,
)
_ELEMENTS = (
    aten._prelu_kernel,
    aten.fill,
    aten.floor_divide,
    aten.hardswish,
    aten.log_sigmoid_forward,
    aten.new_full,
    aten.new_ones,
    aten.ones_like,
)
_FUSED = OrderedSet[Callable[..., Any]]((*_REDUCTIONS, *_ELEMENTS))


def op_types() -> OpTypes:
    """PyTorch's list, with what Kiln computes in kernels with other ops."""
    known = get_default_op_list()
    return replace(
        known,
        fusible_ops=known.fusible_ops | _FUSED,
        recomputable_ops=known.recomputable_ops | _FUSED,
    )


def knowing_fused_ops() -> contextlib.AbstractContextManager[None]:
    """A block in which PyTorch's partitioner has this list."""
    return patched_attributes((partitioners, "get_default_op_list", op_types))
