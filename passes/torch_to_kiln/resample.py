# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nearest-neighbour upsampling as an index map."""

import numpy as np
from torch_mlir import ir

from .context import LoweringContext
from .registry import lowers
from .sizes import Expr, as_expr, constant_of, dim


def _nearest(cx: LoweringContext, at: int, size: Expr, result: Expr, scale: float | None, exact: bool) -> Expr:
    """Source index of result position ``d<at>``.

    PyTorch rounds ``floor(d * scale)`` in float32 with ``scale`` = given, else input/output. The affine map computes
    it exactly, so it stands in only where both agree for every position.
    """
    known, known_result = constant_of(size), constant_of(result)
    if known is None or known_result is None:
        factor = round(1 / scale) if scale else 0
        if exact or not factor or scale != 1.0 / factor:
            cx.unsupported("nearest upsampling of dynamic sizes by something else than a whole factor")
        return ir.AffineExpr.get_floor_div(dim(at), as_expr(factor))
    step = np.float32(scale) if scale is not None else np.float32(known) / np.float32(known_result)
    positions = np.arange(known_result, dtype=np.float32)
    wanted = np.floor((positions + np.float32(0.5)) * step if exact else positions * step).astype(np.int64)
    wanted = np.minimum(wanted, known - 1)
    whole = np.arange(known_result, dtype=np.int64)
    found = (whole * 2 + 1) * known // (2 * known_result) if exact else whole * known // known_result
    if not np.array_equal(wanted, found):
        cx.unsupported("float32 rounding of the source positions differs from exact arithmetic")
    if known_result % known == 0 and not exact:
        return ir.AffineExpr.get_floor_div(dim(at), as_expr(known_result // known))
    numerator = (dim(at) * 2 + 1) * known if exact else dim(at) * known
    return ir.AffineExpr.get_floor_div(numerator, as_expr(2 * known_result if exact else known_result))


def _upsample(cx: LoweringContext, scales: list[float | None]) -> ir.Value:
    x, shape = cx.tensor(0), cx.result_shape()
    sizes = cx.shape(x)
    count = len(scales)
    lead = len(shape) - count
    exact = "exact" in cx.name
    indices: list[Expr] = [dim(k) for k in range(lead)]
    for k, scale in enumerate(scales):
        at = lead + k
        inverse = 1.0 / scale if scale else None
        indices.append(_nearest(cx, at, sizes[at], shape[at], inverse, exact))
    return cx.view(x, indices, shape)


@lowers(
    "torch.aten.upsample_nearest1d",
    "torch.aten.upsample_nearest2d",
    "torch.aten.upsample_nearest3d",
    "torch.aten._upsample_nearest_exact1d",
    "torch.aten._upsample_nearest_exact2d",
    "torch.aten._upsample_nearest_exact3d",
)
def lower_upsample_nearest(cx: LoweringContext) -> ir.Value:
    """``upsample_nearest2d(x, output_size, scales_h, scales_w)``."""
    count = cx.num_operands - 2
    return _upsample(cx, [cx.const_float(2 + k, None) for k in range(count)])


@lowers(
    "torch.aten.upsample_nearest1d.vec",
    "torch.aten.upsample_nearest2d.vec",
    "torch.aten.upsample_nearest3d.vec",
    "torch.aten._upsample_nearest_exact1d.vec",
    "torch.aten._upsample_nearest_exact2d.vec",
    "torch.aten._upsample_nearest_exact3d.vec",
)
def lower_upsample_nearest_vec(cx: LoweringContext) -> ir.Value:
    """``upsample_nearest2d.vec(x, output_size, scale_factors)``."""
    count = len(cx.result_shape()) - 2
    return _upsample(cx, cx.const_list(2, None) or [None] * count)
