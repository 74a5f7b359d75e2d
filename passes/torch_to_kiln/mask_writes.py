# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Writes where a mask is true: a choice for each element, as what is written does not depend on how many are true.

Other writes with indices stay ATen's calls here; `convert-scatters` makes kernels of them.
"""

from torch_mlir import ir

from .context import LoweringContext
from .registry import lowers
from .scalars import Scalar, ScalarBuilder
from .sizes import constant_of, dim


@lowers("torch.aten.index_put", "torch.aten._unsafe_index_put")
def lower_masked_write(cx: LoweringContext) -> ir.Value:
    """``x[:, mask] = values`` with one boolean mask, whose values are the same for all elements that it chooses."""
    x, given, values = cx.tensor(0), cx.optional_tensors(1), cx.tensor(2)
    masks = [(k, index) for k, index in enumerate(given) if index is not None]
    if len(masks) != 1 or not cx.dtype(masks[0][1]).is_bool:
        cx.unsupported("writes at indices")
    first, mask = masks[0]
    shape, count = cx.shape(x), cx.rank(mask)
    behind = len(shape) - first - count
    sizes = cx.shape(values)
    chosen = len(sizes) - 1 - behind  # the dim of the values that runs over the elements that the mask chooses
    if not count or len(sizes) > first + 1 + behind or (chosen >= 0 and constant_of(sizes[chosen]) != 1):
        cx.unsupported("values that differ among the elements that a mask chooses")
    # Dims of the values as dims of x: those in front of the mask, one for the mask, those behind it.
    at = [*range(first), None, *range(first + count, len(shape))][first + 1 + behind - len(sizes) :]
    # A dim of size 1 repeats, as that of the mask does.
    points = [dim(0) * 0 if d is None or constant_of(n) == 1 else dim(d) for d, n in zip(at, sizes, strict=True)]
    maps = [[dim(d) for d in range(len(shape))], [dim(first + k) for k in range(count)], points]
    dtype, accumulate = cx.dtype(x), cx.const_bool(3, False)

    def body(b: ScalarBuilder, old: Scalar, is_chosen: Scalar, new: Scalar, _: Scalar) -> Scalar:
        value = b.cast(new, dtype)
        return b.select(is_chosen, b.add(old, value) if accumulate else value, old)

    out = cx.empty(shape, dtype)
    return cx.generic([x, mask, values], maps, [out], [maps[0]], "p" * len(shape), body)[0]
