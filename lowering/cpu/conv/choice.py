# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which convolutions oneDNN does faster than the kernels here: the rule."""

from torch_mlir import ir

from kiln.lowering.cpu.named_kernels import no_kernel

__all__ = ["vendor_reason"]


def vendor_reason(op: ir.Operation) -> str | None:
    """Why a `kiln.conv` is left to oneDNN; None where the kernel of its own, with its epilogue fused, is as fast."""
    missing = no_kernel(op)
    if missing is not None:
        return f"oneDNN: {missing}"
    x, weight = (ir.RankedTensorType(v.type) for v in op.operands)
    if not isinstance(x.element_type, ir.F32Type):
        return f"oneDNN: convolutions of {x.element_type} are faster there"
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    outputs, channels = weight.shape[0] // groups, weight.shape[1]
    if groups > 1 and outputs < 4 and not outputs == channels == 1:
        return f"oneDNN: groups of {channels} input and {outputs} output channels leave most lanes idle"
    if groups > 1 and outputs == channels == 1 and _planar(op):
        return "oneDNN: a depthwise convolution of an NCHW tensor has its channels too far apart"
    return None


def _planar(op: ir.Operation) -> bool:
    """Whether eager's result has consecutive columns next to each other in memory."""
    if "strides" not in op.attributes:
        return True
    strides = ir.AffineMapAttr(op.attributes["strides"]).value.results
    return strides[1] != ir.AffineConstantExpr.get(1)
