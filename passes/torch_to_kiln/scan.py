# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Cumulative ops: ``kiln.scan``."""

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.dtypes import I64

from .context import LoweringContext
from .registry import lowers

_KINDS = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsumexp", "cummax": "max", "cummin": "min"}


@lowers("torch.aten.cumsum", "torch.aten.cumprod", "torch.aten.logcumsumexp")
def cumulative(cx: LoweringContext) -> ir.Value:
    """Inclusive sums and products in the result's element type."""
    info = cx.result_info()
    x = cx.cast(cx.tensor(0), info.dtype)
    if not info.shape:
        return x
    if info.dtype.is_bool or info.dtype.kind == "u":
        cx.unsupported(f"a scan of {info.dtype.name}")
    kind = _KINDS[cx.name.removeprefix("torch.aten.")]
    return cx.named(kiln.scan(x, cx.dim(1, len(info.shape)), kind).result, info.shape, info.dtype)


@lowers("torch.aten.cummax", "torch.aten.cummin")
def cumulative_extremum(cx: LoweringContext) -> list[ir.Value | None]:
    """Inclusive extrema and where they are."""
    x, info = cx.tensor(0), cx.result_info()
    if not info.shape:
        return [x, cx.full(0, [], I64)]
    if info.dtype.is_bool or info.dtype.kind == "u":
        cx.unsupported(f"a scan of {info.dtype.name}")
    kind = _KINDS[cx.name.removeprefix("torch.aten.")]
    op = kiln.scan(x, cx.dim(1, len(info.shape)), kind, with_indices=True)
    assert op.indices is not None
    return [cx.named(op.result, info.shape, info.dtype), cx.named(op.indices, info.shape, I64)]
