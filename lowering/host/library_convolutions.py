# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""ATen calls that cuDNN does from the launch table, without Python between the kernels: convolutions.

`kiln.aten` of convolution without a bias whose image, weight and result lie alike, channels last or planar, as ATen
itself passes them to the library. What ATen would copy first, transposed and depthwise convolutions (for which it has
kernels of its own) stay calls of ATen; so do all of them with `torch.backends.cudnn.benchmark`, which is its matter.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.lowering.host.elements import dtype_name
from kiln.lowering.host.layout import Exprs, Layout, constant, contiguous_strides, is_constant

__all__ = ["CONVOLUTION_KERNEL", "LibraryConvolution", "library_convolution"]

CONVOLUTION_KERNEL = "cudnnBackendExecute"
"""Name of the kernel that stands for the library in a plan."""

_TYPES = ("bfloat16", "float16", "float32", "float64")


@dataclass(frozen=True)
class LibraryConvolution:
    """As `runtime.plan.Convolution`, with sizes over the function's symbols."""

    dtype: str
    image: Exprs
    weight: Exprs
    result: Exprs
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    channels_last: bool


def library_convolution(op: ir.Operation, operands: Sequence[Layout], result: Layout) -> LibraryConvolution | None:
    """The convolution that an ATen call is, given where its tensors lie; None if it is none that the library takes."""
    if ir.StringAttr(op.attributes["op"]).value != "aten.convolution.default" or len(operands) != 2:
        return None
    arguments = json.loads(ir.StringAttr(op.attributes["args"]).value)
    if len(arguments) != 9 or arguments[:3] != [{"operand": 0}, {"operand": 1}, None]:
        return None
    stride, padding, dilation, transposed, _, groups = arguments[3:]
    if not all(isinstance(n, int) for n in (*stride, *padding, *dilation, groups)):
        return None  # padding="same" of a weight whose size is known only at run time
    if transposed or not torch.backends.cudnn.enabled or torch.backends.cudnn.benchmark:
        return None
    image, weight = operands
    rank = len(image.shape)
    dtype = dtype_name(op.results[0].type)
    if not 3 <= rank <= 5 or dtype not in _TYPES or any(dtype_name(v.type) != dtype for v in op.operands[:2]):
        return None
    if groups != 1 and is_constant(weight.shape[1], 1):
        return None
    tensors = (image, weight, result)
    if any(is_constant(n, 0) for t in tensors for n in t.shape):
        return None
    channels_last = dtype != "float64" and all(_lies(t, _channels_last_strides(t.shape)) for t in tensors)
    if not channels_last and not all(_lies(t, contiguous_strides(t.shape)) for t in tensors):
        return None
    spatial = rank - 2

    def each(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) if len(values) == spatial else tuple(values) * spatial

    return LibraryConvolution(
        dtype, image.shape, weight.shape, result.shape, each(stride), each(padding), each(dilation), groups,
        channels_last,
    )  # fmt: skip


def _channels_last_strides(shape: Exprs) -> Exprs:
    """Strides in elements of [batch, channels, ...] with the channels of a point next to each other."""
    moved = contiguous_strides((shape[0], *shape[2:], shape[1]))
    return (moved[0], constant(1), *moved[1:-1])


def _lies(tensor: Layout, strides: Exprs) -> bool:
    """Whether a tensor's elements are these strides apart. A size that is not known to be 1 may be."""
    pairs = zip(tensor.strides, strides, tensor.shape, strict=True)
    return all(is_constant(n, 1) or affine.equal(a, b) for a, b, n in pairs)
