# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which convolutions oneDNN does faster than the kernels here: the rule.

f32: Kiln's kernels. bf16 with AVX512-BF16: Kiln's too, on a channels-last copy of a row-major image with an even number
of channels; oneDNN's for an odd number. bf16 with AMX: oneDNN's for what tiles do not take, which are transposed
convolutions, three spatial dims, groups of few channels, windows of more than 25 elements, and rows of unknown length.
Measured: "convolutions" in benchmarks/results/performance/epyc-kernel-rules.json, by benchmarks/cpu_conv.py.
"""

from math import prod

from torch_mlir import ir

from kiln.lowering.cpu import isa
from kiln.lowering.cpu.conv.tiles_plan import fits_tiles
from kiln.lowering.cpu.named_kernels import no_kernel

__all__ = ["vendor_reason", "wants_channels_last", "wants_rows"]


def vendor_reason(op: ir.Operation) -> str | None:
    """Why a `kiln.conv` is left to oneDNN; None where the kernel of its own, with its epilogue fused, is as fast."""
    missing = no_kernel(op)
    if missing is not None:
        return f"oneDNN: {missing}"
    x, weight = (ir.RankedTensorType(v.type) for v in op.operands)
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    if not isinstance(x.element_type, ir.BF16Type) or _is_depthwise(weight, groups):
        return None
    if isa.target().has("amx-bf16"):
        return None if _fits_tiles(op) else "oneDNN: its products of bf16 run on units for them"
    if not isa.target().has("avx512bf16") or _has_few_channels(op) or wants_channels_last(op):
        return None
    return "oneDNN: an odd number of channels of bf16"


def wants_channels_last(op: ir.Operation) -> bool:
    """Whether the kernel of a `kiln.conv` needs an image with neighbouring channels, for which a copy pays."""
    target = isa.target()
    multiplies_pairs = target.has("avx512bf16") and not target.has("amx-bf16")
    is_bf16 = isinstance(ir.RankedTensorType(op.operands[1].type).element_type, ir.BF16Type)
    return is_bf16 and multiplies_pairs and not _has_few_channels(op) and _channels(op) % 2 == 0


def wants_rows(op: ir.Operation) -> bool:
    """Whether a convolution has a window for each of few channels, which fill less than half of a vector: of a row of
    columns they are all of it.
    """
    weight = ir.RankedTensorType(op.operands[1].type)
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    if not _is_depthwise(weight, groups) or bool(ir.IntegerAttr(op.attributes["transposed"]).value):
        return False
    return 2 * groups < isa.target().vector_bytes // (8 if isinstance(weight.element_type, ir.F64Type) else 4)


def _is_depthwise(weight: ir.RankedTensorType, groups: int) -> bool:
    return weight.shape[0] == groups and weight.shape[1] == 1


def _channels(op: ir.Operation) -> int:
    """Channels of one group of the image."""
    weight = ir.RankedTensorType(op.operands[1].type)
    if bool(ir.IntegerAttr(op.attributes["transposed"]).value):
        return weight.shape[0] // ir.IntegerAttr(op.attributes["groups"]).value
    return weight.shape[1]


def _has_few_channels(op: ir.Operation) -> bool:
    """Whether windows are rows of columns, rather than of channels."""
    return _channels(op) <= isa.target().rules.convolutions.few_channels


def _fits_tiles(op: ir.Operation) -> bool:
    """Whether the kernel of tiles (AMX) takes a convolution, as far as is known before tensors have their places."""
    x, weight = (ir.RankedTensorType(v.type) for v in op.operands)
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    outputs, channels, *window = weight.shape
    if bool(ir.IntegerAttr(op.attributes["transposed"]).value) or x.rank > 4:
        return False
    pixels = prod(window) == 1 and all(n == 1 for n in ir.DenseI64ArrayAttr(op.attributes["stride"]))
    known = x.shape[-1] != ir.ShapedType.get_dynamic_size()
    rules = isa.target().rules.convolutions
    return (known or pixels) and fits_tiles(groups, channels, outputs // groups, window, rules)
