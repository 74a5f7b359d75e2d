# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Masks of attention that are known at compile time, however they are written."""

from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type
from kiln.passes.torch_to_kiln.liveness import is_pure
from kiln.passes.torch_to_kiln.torch_values import list_elements

from .tensors import argument_constant, evaluate, literal_tensor

if TYPE_CHECKING:
    import torch

__all__ = ["constant_mask", "constant_tensor"]

_MOST_ELEMENTS = 1 << 24


def constant_mask(value: ir.Value, fill: float) -> str | None:
    """``"causal"`` for a constant mask that hides the keys t > s, ``"none"`` for one that hides nothing; else None.

    ``value`` is boolean (false hides a key, whose score is ``fill``) or added to the scores; what is in front of
    queries and keys, [..., s, t], has to have the same mask.
    """
    import torch

    from kiln.frontend.constant_masks import HIDDEN

    mask = constant_tensor(value)
    if mask is None or mask.dim() < 2 or not mask.numel():
        return None
    mask, *others = mask.reshape(-1, *mask.shape[-2:])
    # Views of one mask (`expand`) start at the same address.
    if not all(other.data_ptr() == mask.data_ptr() or torch.equal(other, mask) for other in others):
        return None
    if mask.dtype == torch.bool:
        seen, hidden = mask, ~mask if fill <= HIDDEN else torch.zeros_like(mask)
    else:
        seen, hidden = mask == 0, mask <= HIDDEN
    if bool(seen.all()):
        return "none"
    lower = torch.ones_like(seen).tril()
    return "causal" if torch.equal(seen, lower) and torch.equal(hidden, ~lower) else None


def constant_tensor(
    value: ir.Value, known: "dict[ir.Value, torch.Tensor | None] | None" = None
) -> "torch.Tensor | None":
    """The tensor that an expression of constants and creation ops stands for; None where it depends on anything else.

    Computed with ATen and not kept: up to 2^24 elements.
    """
    known = {} if known is None else known
    if value not in known:
        known[value] = _computed(value, known)
    return known[value]


def _computed(value: ir.Value, known: "dict[ir.Value, torch.Tensor | None]") -> "torch.Tensor | None":
    if isinstance(value, ir.BlockArgument):
        return argument_constant(value)
    op = defining_op(value)
    if op is None or not is_pure(op) or not _is_small(value):
        return None
    if op.name == "torch.vtensor.literal":
        return literal_tensor(op.attributes["value"], value)
    if not op.name.startswith(("torch.aten.", "torch.prims.", "torch.operator")) or "empty" in op.name:
        return None
    operands = [element for operand in op.operands for element in (list_elements(operand) or [operand])]
    for operand in operands:
        if parse_tensor_type(type_text(operand.type)) is not None and constant_tensor(operand, known) is None:
            return None
    results = evaluate(op, {v: tensor for v, tensor in known.items() if tensor is not None})
    return None if results is None else results[ir.OpResult(value).result_number]


def _is_small(value: ir.Value) -> bool:
    parsed = parse_tensor_type(type_text(value.type))
    if parsed is None:
        return False
    count = 1
    for size in parsed[0]:
        if size is None:
            return False
        count *= size
    return count <= _MOST_ELEMENTS
