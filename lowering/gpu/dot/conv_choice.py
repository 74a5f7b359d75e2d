# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which convolutions cuDNN does faster on an NVIDIA GPU, and why: rows of `lowering/gpu/choices/convolution.toml`."""

from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.lowering import paths
from kiln.lowering.gpu.dot.conv_schedule import rows_are_taps
from kiln.lowering.gpu.dot.conv_window import is_sliding
from kiln.lowering.gpu.dot.likely import likely_sizes
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, machine
from kiln.lowering.gpu.dot.measured import decide, table
from kiln.lowering.gpu.rules import ConvolutionRules, rules_for

__all__ = ["ConvolutionCase", "convolution_reason", "no_pixels_as_channels", "slides", "wants_channels_last"]


@dataclass(frozen=True)
class ConvolutionCase:
    """A convolution as choices see it.

    kind: "narrow" (16 bits) or "wide". windows: it is no product of matrices: windows of several elements, padding,
    groups, and for other types than 16 bits strides. channels, taps: of one group, and elements of the window; terms:
    their product. apart: windows that neither overlap nor reach into padding. rows_as_channels: see `rows_are_taps`.
    slides: see `slides`. channels_last: they are neighbours in memory. followed: by ops that a kernel takes in.
    known_weight, known_result: sizes that are known, of the result likely ones as well. work: nanoseconds of the
    multiply-adds at the peak of the machine's tensor cores.
    """

    kind: str
    transposed: bool
    known_weight: bool
    windows: bool = False
    groups: int = 1
    channels: int | None = None
    taps: int | None = None
    terms: int | None = None
    apart: bool = False
    rows_as_channels: bool = False
    slides: bool = False
    channels_last: bool = False
    followed: bool = False
    known_result: bool = False
    work: float | None = None


TABLE = table("convolution", ConvolutionCase)
_LIBRARY = paths.group("cuda cuDNN", *TABLE.names("library"))
_OWN = paths.group("cuda no cuDNN", *TABLE.names("own"))


def slides(op: ir.Operation) -> bool:
    """Whether a convolution, at the kiln stage, has a kernel that shares what windows over single channels read."""
    return _channels_last(op) and _may_slide(op)


def wants_channels_last(op: ir.Operation) -> bool:
    """Whether a convolution, at the kiln stage, is worth a copy of its image with neighbouring channels: larger windows
    over single channels, which have a kernel then, and strided ones over few, whose pixels become channels.

    Measured: "planar images that are copied" in benchmarks/results/performance/h100-experiments.json.
    """
    weight = ir.RankedTensorType(op.operands[1].type)
    if not _is_narrow(weight) or ir.IntegerAttr(op.attributes["transposed"]).value:
        return False
    if not no_pixels_as_channels(op):
        return True
    row = TABLE.find(_case(op, DEFAULT_ARCH))  # small windows have a kernel for planar images, too
    return _may_slide(op) and row is not None and row.winner == "library"


def _may_slide(op: ir.Operation) -> bool:
    """`slides`, were the image channels-last."""
    attributes = op.attributes
    weight, result = (ir.RankedTensorType(v.type) for v in (op.operands[1], op.results[0]))
    if not weight.has_static_shape or not result.has_static_shape:
        return False
    steps = (n for name in ("stride", "dilation") for n in ir.DenseI64ArrayAttr(attributes[name]))
    padding = list(ir.DenseI64ArrayAttr(attributes["padding"]))
    groups = ir.IntegerAttr(attributes["groups"]).value
    if ir.IntegerAttr(attributes["transposed"]).value:
        return False
    return is_sliding(weight.shape, result.shape, steps=steps, padding=padding, groups=groups)


def no_pixels_as_channels(op: ir.Operation) -> str:
    """Why pixels of a stride's step do not become channels of a convolution, at the kiln stage, for speed; empty if
    they do where its result is channels-last.
    """
    image, weight, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
    if image.rank != 4 or not _is_narrow(weight):
        return "it is not of images of 16 bits"
    if ir.IntegerAttr(op.attributes["transposed"]).value or ir.IntegerAttr(op.attributes["groups"]).value != 1:
        return "transposed, or of groups of channels"
    if not weight.has_static_shape or min(*image.shape[1:], *result.shape[2:]) <= 0:
        return "sizes known at run time only"
    rules = rules_for(ConvolutionRules)
    channels, *kernel = weight.shape[1:]
    stride, dilation = (list(ir.DenseI64ArrayAttr(op.attributes[n])) for n in ("stride", "dilation"))
    if channels > rules.few_channels or max(stride) == 1:
        return "channels enough, or no stride"
    if any(k <= s for k, s in zip(kernel, stride, strict=True)) or max(dilation) > 1:
        return "windows that do not overlap, or have gaps"
    if prod(kernel) * channels <= rules.many_terms:
        return "small windows"
    sizes = likely_sizes([op.results[0]])
    images = max(result.shape[0], 1) if sizes is None else sizes[0][0]
    return "little work" if images * prod(result.shape[1:]) * prod(kernel) * channels < rules.copy_work else ""


def convolution_reason(op: ir.Operation, arch: str = DEFAULT_ARCH) -> str | None:
    """Why to call cuDNN for a convolution at the kiln stage; None to keep the op for a kernel of its own."""
    case = _case(op, arch)
    row = TABLE.find(case)
    return None if row is None else decide(row, case, _OWN, _LIBRARY)


def _case(op: ir.Operation, arch: str) -> ConvolutionCase:
    weight = ir.RankedTensorType(op.operands[1].type)
    kind = "narrow" if _is_narrow(weight) else "wide"
    transposed = bool(ir.IntegerAttr(op.attributes["transposed"]).value)
    if transposed or not weight.has_static_shape:
        return ConvolutionCase(kind, transposed, weight.has_static_shape)
    stride, dilation = (list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("stride", "dilation"))
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    kernel, channels = weight.shape[2:], weight.shape[1]
    taps = prod(kernel)
    near = not _is_padded(op) and all(v == 1 for v in dilation)
    sizes = likely_sizes([op.results[0]])
    is_windowed = any(n != 1 for n in kernel) or _is_padded(op) or groups != 1
    return ConvolutionCase(
        kind=kind,
        transposed=False,
        known_weight=True,
        windows=is_windowed or (kind == "wide" and any(v != 1 for v in stride)),
        groups=groups,
        channels=channels,
        taps=taps,
        terms=taps * channels,
        apart=near and stride == kernel,
        rows_as_channels=near and rows_are_taps(channels, kernel[-1]),
        slides=slides(op),
        channels_last=_channels_last(op),
        followed=_is_followed(op),
        known_result=sizes is not None,
        work=None if sizes is None else machine(arch).peak_time(prod(sizes[0]) * taps * channels),
    )


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
