# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Attention as it is written out, as one op: what patterns are replaced by.

``aten.scaled_dot_product_attention`` gives zeros for a row without any key left, and has no finite score for keys that
a mask removes; softmax written out gives NaN, and takes the score that ``masked_fill`` writes.
"""

import torch

__all__ = ["written_out_attention"]

Tensor = torch.Tensor


@torch.library.custom_op("kiln::attention", mutates_args=())
def written_out_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, fill: float
) -> Tensor:
    """``softmax(query @ key^T * scale, with the mask) @ value``.

    ``query`` is [*b, H, S, E], ``key`` [*b, H, T, E], ``value`` [*b, H, T, V], the result [*b, H, S, V], all of one
    floating-point dtype. ``mask`` broadcasts to [*b, H, S, T]: added to the scores where it is of a floating-point
    dtype; where it is bool, keys at which it is false have the score ``fill``.
    """
    scores = query @ key.transpose(-2, -1) * scale
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), fill) if mask.dtype == torch.bool else scores + mask
    return torch.softmax(scores, -1).to(query.dtype) @ value


@written_out_attention.register_fake
def _(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float, fill: float) -> Tensor:
    return query.new_empty((*query.shape[:-1], value.shape[-1]))
