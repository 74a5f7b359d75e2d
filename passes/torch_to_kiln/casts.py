# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Casts, and ops that keep a tensor as it is."""

from torch_mlir import ir

from .context import LoweringContext
from .registry import lowers
from .sizes import constant_of, dim


@lowers("torch.aten._to_copy", "torch.aten.to.dtype", "torch.aten.to.dtype_layout", "torch.aten.type_as")
def to_copy(cx: LoweringContext) -> ir.Value:
    """A cast to the result's element type; layout and strides are decided later."""
    return cx.cast(cx.tensor(0), cx.result_dtype(), asked=True)


@lowers("torch.prims.convert_element_type")
def convert_element_type(cx: LoweringContext) -> ir.Value:
    """The cast that PyTorch's decompositions put in front of and behind an op that computes in another type."""
    return cx.cast(cx.tensor(0), cx.result_dtype())


@lowers("torch.aten.copy")
def copy(cx: LoweringContext) -> ir.Value:
    """The source, broadcast and cast to the destination's shape and element type."""
    info = cx.result_info()
    source = cx.tensor(1)
    # A number that equals a size by a guard of Dynamo's: the sizes are the destination's.
    own = cx.shape(source)
    sizes = [
        size if constant_of(size) in (None, 1) else wanted
        for size, wanted in zip(own, info.shape[len(info.shape) - len(own) :], strict=True)
    ]
    source = cx.view(source, [dim(k) for k in range(len(own))], sizes)
    return cx.pointwise(
        [source], lambda b, x: b.cast(x, info.dtype, asked=True), info.dtype, shape=info.shape, extend=False
    )


@lowers("torch.aten.real", "torch.aten._conj", "torch.aten.conj", "torch.aten.resolve_conj", "torch.aten.resolve_neg")
def real(cx: LoweringContext) -> ir.Value:
    """The tensor itself: Kiln computes real numbers only."""
    return cx.tensor(0)


@lowers("torch.aten.dropout")
def dropout(cx: LoweringContext) -> ir.Value:
    """The input, when not training."""
    if cx.const_bool(2):
        cx.unsupported("dropout draws from PyTorch's random generator")
    return cx.tensor(0)


@lowers("torch.aten.native_dropout")
def native_dropout(cx: LoweringContext) -> list[ir.Value | None]:
    """The input and a mask of ones, when not training."""
    if cx.const(2, True):
        cx.unsupported("dropout draws from PyTorch's random generator")
    mask = cx.full(True, cx.result_shape(1), cx.result_dtype(1)) if cx.result_used(1) else None
    return [cx.tensor(0), mask]
