# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Strides that an op's operands must have: those of eager, for ops that may read memory by themselves.

Kiln keeps a tensor in whatever order suits its kernels; ``x.transpose(0, 1).contiguous()`` may be a view. Kiln's
kernels and most of ATen's take any strides. Some take others for contiguous without looking (``_embedding_bag``, the
gradients of fractional and of 3-d maximum pools), some end with an error (``view_as_complex``, ``_pdist_forward``), and
a custom op was handed the contiguous tensor and reads its memory.
"""

import functools
from collections.abc import Mapping

import torch
from torch._ops import OpOverload
from torch_mlir import ir

from kiln.dialects.walk import tensors_among
from kiln.frontend.import_.fx_types import stride_map
from kiln.frontend.import_.symbols import SymbolSpace
from kiln.passes.torch_to_kiln.registry import find_rule

__all__ = ["ANY_STRIDES", "attach_operand_strides", "needs_strides"]

_BUILTIN = ("aten", "prims", "prim")
_NEED = ("needs_exact_strides", "needs_contiguous_strides", "needs_fixed_stride_order")
_RULES_AND_CALLS = (
    "aten::as_strided",
    "aten::_embedding_bag",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::native_batch_norm",
    "aten::native_group_norm",
)
"""Ops that Kiln has rules for and that ATen is called for where these do not apply. ATen takes some operand for
contiguous (norms: for channels last as eager's are; attention: its last dim), counts elements in memory, or ends with
an error."""
ANY_STRIDES = (
    *("_cdist_forward", "convolution_backward", "embedding_dense_backward", "grid_sampler_2d", "grid_sampler_3d"),
    *("grid_sampler_2d_backward", "grid_sampler_3d_backward", "kthvalue", "masked_scatter", "masked_select", "median"),
    *("median.dim", "nonzero", "scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two", "sort"),
    *("sort.stable", "topk", "index_add", "index_copy", "searchsorted.Tensor", "bucketize.Tensor"),
    *("_adaptive_avg_pool2d_backward", "avg_pool2d_backward", "max_pool2d_with_indices_backward"),
    *(
        "_adaptive_avg_pool3d_backward",
        "avg_pool3d_backward",
        "reflection_pad2d_backward",
        "replication_pad2d_backward",
    ),
    *("upsample_bicubic2d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d_backward"),
    *("upsample_bilinear2d_backward", "upsample_trilinear3d_backward", "upsample_nearest2d_backward"),
)
"""Calls of ATen that take any strides, often met and worth the copies that this saves, as of images whose dims Kiln has
ordered. ``test/conformance/test_operand_strides.py`` calls them with other strides."""


@functools.lru_cache(maxsize=1024)
def needs_strides(target: OpOverload) -> bool:
    """Whether a call of ``target`` gets its operands with eager's strides.

    As in Inductor, custom ops do unless their tag ``flexible_layout`` says otherwise. So do ops that Kiln has no rule
    for, since their kernels were written for what eager hands them: all but elementwise ones and those of
    ``ANY_STRIDES``. Inductor fixes the strides of attention's gradients as well: cuDNN's are wrong (PyTorch 2.11,
    H200) where the gradient of the result lies in the result's own order and eager's is contiguous.
    """
    tags = {tag.name for tag in target.tags}
    if "flexible_layout" in tags:
        return False
    if target.namespace not in _BUILTIN or target._schema.name in _RULES_AND_CALLS or not tags.isdisjoint(_NEED):
        return True
    name = str(target).removesuffix(".default")
    return "pointwise" not in tags and name.partition(".")[2] not in ANY_STRIDES and find_rule(f"torch.{name}") is None


def attach_operand_strides(op: ir.Operation, tensors: Mapping[ir.Value, torch.Tensor], space: SymbolSpace) -> None:
    """Set ``kiln.operand_strides``: a map per tensor among the operands and in their lists, in order; unit for what
    ``tensors`` does not have.
    """
    unit = ir.UnitAttr.get()
    found = [tensors.get(value) for value in tensors_among(op.operands)]
    entries = [unit if t is None or t.layout != torch.strided else stride_map(space, t) for t in found]
    if any(entry != unit for entry in entries):
        op.attributes["kiln.operand_strides"] = ir.ArrayAttr.get(entries)
