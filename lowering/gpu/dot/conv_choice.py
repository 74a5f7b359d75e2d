# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which convolutions cuDNN does faster on an NVIDIA GPU, and why."""

from math import prod

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.lowering import paths
from kiln.lowering.gpu.dot.conv_schedule import rows_are_taps
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, Machine, machine

__all__ = ["convolution_reason"]

_LIBRARY = paths.group(
    "cuda cuDNN",
    "transposed",
    "weight of unknown size",
    "channels apart",
    "windows of wide floats",
    "groups",
    "many channels",
)
_OWN = paths.group(
    "cuda no cuDNN",
    "small windows of single channels",
    "few channels",
    "rows as channels",
    "little work",
    "short sums with something behind",
    "windows",
    "product",
)

_FEW_CHANNELS = 4
"""cuDNN's tensor-core kernels take multiples of eight channels: it pads images of fewer."""
_FEW_TERMS = 64
"""Terms of a sum up to which the addresses of overlapping windows cost less than that."""
_NEAR_TAPS = 9
"""Elements of the largest window of single channels whose overlap the first-level cache holds."""
_SMALL_WORK = 1 << 27
"""Multiply-adds of a convolution that leaves an H200's multiprocessors idle, whatever the kernel."""
_SHORT_SUM = 2304
"""Terms of a sum up to which such a convolution takes less time than the pass behind cuDNN's."""
_SHORTER_SUM = 1152
"""Terms of a sum up to which cuDNN gains less, in a convolution of any size, than the pass behind it costs."""


def convolution_reason(op: ir.Operation, arch: str = DEFAULT_ARCH) -> str | None:
    """cuDNN, unless the convolution is a matrix product (one tap, no padding, channels last; 16 bits where it has a
    stride), or has windows that are measured to be faster here (channels last, or of single channels)."""
    if ir.IntegerAttr(op.attributes["transposed"]).value:
        return _LIBRARY("transposed", "cuDNN: transposed convolutions have no kernel")
    weight = ir.RankedTensorType(op.operands[1].type)
    if not weight.has_static_shape:
        return _LIBRARY("weight of unknown size", "cuDNN: a weight of unknown size")
    ones = all(v == 1 for v in ir.DenseI64ArrayAttr(op.attributes["stride"]))
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    has_windows = any(n != 1 for n in weight.shape[2:]) or _is_padded(op) or groups != 1
    # Images of other types with strides are not measured.
    reason = (
        _windows_reason(op, weight, groups, machine(arch)) if has_windows or not (ones or _is_narrow(weight)) else None
    )
    if reason is not None:
        return reason
    if groups == 1 and not _channels_last(op):
        return _LIBRARY("channels apart", "cuDNN: channels lie too far apart")
    return _OWN("windows" if has_windows else "product")


def _windows_reason(op: ir.Operation, weight: ir.RankedTensorType, groups: int, chip: Machine) -> str | None:
    """Measured on an H200 with bf16, channels last, bias, scale and relu behind, microseconds:

    | window, stride, channels -> outputs @ size, images | here           | cuDNN          |
    |----------------------------------------------------|----------------|----------------|
    | 16x16, 16, 3 -> 768 @ 224, 128 and 1               | 328, 19.6      | 825, 45.8      |
    | 4x4, 4, 3 -> 96 @ 224, 64                          | 41.9           | 151            |
    | 3x3, 2, 3 -> 32 @ 224, 64                          | 40.7           | 153            |
    | 7x7, 2, 3 -> 64 @ 224, 128 and 1                   | 2238, 31.7     | 988, 18.8      |
    | the same by `space-to-depth`, with its copy        | 230, 5.7       | 468, 15.2      |
    | 3x3, 1 and 2, 128 @ 28, 128                        | 57.2, 64.0     | 65.9, 69.8     |
    | 3x3, 2, 256 and 512 @ 14 and 7, 128                | 59.1, 56.4     | 56.9, 56.1     |
    | 1x1, 2, 256 -> 512 @ 28, 128 and 32                | 106.8, 25.6    | 130, 35.1      |
    | 1x1, 2, 512 -> 1024 @ 14, 1024 -> 2048 @ 7, 128    | 81.5, 56.7     | 87.5, 67.3     |
    | 3x3 of each channel, 96 @ 112, 384 @ 14, 64        | 207, 13.3      | 207, 20.5      |
    | 3x3 of each channel, 384 @ 14, 1                   | 2.2            | 7.2            |
    | 3x3 of each channel, planar, 96 @ 56, 32           | 66             | 102            |
    | 7x7 of each channel, 96 @ 56, 384 @ 14, 64         | 379, 67.1      | 208, 61.0      |
    | 3x3, 1, 64 @ 56, 256 @ 14, 128                     | 98.2, 53.2     | 93.1, 49.7     |
    | 3x3, 1, 64 @ 56, 256 @ 14, 512 @ 7, 1              | 4.7, 9.0, 14.1 | 8.0, 9.7, 13.4 |
    | 3x3, 1, 128 @ 56 in 32 groups, 64                  | 407            | 119            |
    """
    if not _is_narrow(weight):
        return _LIBRARY(
            "windows of wide floats",
            "cuDNN: windows have been measured to be faster in a kernel of their own in 16 bits only",
        )
    kernel, channels = weight.shape[2:], weight.shape[1]
    taps = prod(kernel)
    if groups > 1:
        if channels == 1 and taps <= _NEAR_TAPS:
            return _OWN("small windows of single channels")
        return _LIBRARY("groups", "cuDNN: groups of channels, and large windows of single ones, are faster there")
    near = not _is_padded(op) and all(v == 1 for v in ir.DenseI64ArrayAttr(op.attributes["dilation"]))
    apart = near and list(ir.DenseI64ArrayAttr(op.attributes["stride"])) == kernel
    if channels <= _FEW_CHANNELS and (apart or taps * channels <= _FEW_TERMS):
        return _OWN("few channels")
    if near and rows_are_taps(channels, kernel[-1]):
        return _OWN("rows as channels")
    result = ir.RankedTensorType(op.results[0].type)
    terms = taps * channels
    if result.has_static_shape and terms <= _SHORT_SUM and prod(result.shape) * terms <= chip.scaled(_SMALL_WORK):
        return _OWN("little work")
    if result.has_static_shape and terms <= _SHORTER_SUM and _is_followed(op):
        return _OWN("short sums with something behind")
    return _LIBRARY("many channels", "cuDNN: faster for windows of many channels and much work")


def _is_narrow(weight: ir.RankedTensorType) -> bool:
    return str(weight.element_type) in ("bf16", "f16")


def _is_padded(op: ir.Operation) -> bool:
    return any(ir.DenseI64ArrayAttr(op.attributes["padding"]))


def _is_followed(op: ir.Operation) -> bool:
    """Whether there are ops that a kernel takes in."""
    uses = list(op.results[0].uses)
    return len(uses) == 1 and kiln.name_of(uses[0].owner) in ("linalg.generic", "kiln.batch_norm")


def _channels_last(op: ir.Operation) -> bool:
    if "strides" not in op.attributes:
        return False
    strides = ir.AffineMapAttr(op.attributes["strides"]).value.results
    return strides[1] == ir.AffineConstantExpr.get(1)
