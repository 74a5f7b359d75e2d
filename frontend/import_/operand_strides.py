# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strides that an op's operands must have: those of eager, for ops that read memory by themselves.

Kiln keeps a tensor in whatever order suits its kernels; ``x.transpose(0, 1).contiguous()`` may be a view. Nearly all of
ATen's own ops take any strides. A custom op may not: it was handed the contiguous tensor, and reads its memory.
"""

import functools
from collections.abc import Mapping

import torch
from torch._ops import OpOverload
from torch_mlir import ir

from kiln.dialects.walk import tensors_among
from kiln.frontend.import_.fx_types import stride_map
from kiln.frontend.import_.symbols import SymbolSpace

__all__ = ["attach_operand_strides", "needs_strides"]

_BUILTIN = ("aten", "prims", "prim")
_NEED = ("needs_exact_strides", "needs_contiguous_strides", "needs_fixed_stride_order")
_READ_MEMORY = (
    "aten::mkldnn_rnn_layer",
    "aten::mkldnn_rnn_layer_backward",
    "aten::as_strided",
    "aten::as_strided_copy",
    "aten::as_strided_scatter",
    "aten::native_group_norm",
    "aten::native_group_norm_backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
)
"""Ops of ATen that take their operands for contiguous (group norms: for channels last as eager's are; attention: their
last dim) without looking, or with an error where they are not, or count elements in memory."""
_ATTENTION_GRADIENTS = tuple(
    f"aten::{prefix}{name}_attention_backward"
    for prefix in ("_scaled_dot_product_", "_")
    for name in ("flash", "efficient", "cudnn")
)
"""Gradients of attention by CUDA libraries. cuDNN's gives wrong numbers (PyTorch 2.11, H200) where the gradient of the
result lies in the result's own order and eager's is contiguous. Inductor fixes the strides of all of them as well."""


@functools.lru_cache(maxsize=1024)
def needs_strides(target: OpOverload) -> bool:
    """Whether ``target`` may read the memory of its operands by itself. As in Inductor, custom ops do unless their tag
    ``flexible_layout`` says otherwise.
    """
    tags = {tag.name for tag in target.tags}
    if "flexible_layout" in tags:
        return False
    named = target._schema.name in _READ_MEMORY + _ATTENTION_GRADIENTS
    return target.namespace not in _BUILTIN or named or not tags.isdisjoint(_NEED)


def attach_operand_strides(op: ir.Operation, tensors: Mapping[ir.Value, torch.Tensor], space: SymbolSpace) -> None:
    """Set ``kiln.operand_strides``: a map per tensor among the operands and in their lists, in order; unit for what
    ``tensors`` does not have.
    """
    unit = ir.UnitAttr.get()
    found = [tensors.get(value) for value in tensors_among(op.operands)]
    entries = [unit if t is None or t.layout != torch.strided else stride_map(space, t) for t in found]
    if any(entry != unit for entry in entries):
        op.attributes["kiln.operand_strides"] = ir.ArrayAttr.get(entries)
