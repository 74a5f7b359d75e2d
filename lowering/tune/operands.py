# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Operands for running one kernel by itself: how large, what is in them, and whether two results are the same."""

from dataclasses import dataclass

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.errors import UnsupportedError
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts

__all__ = ["KnownTensors", "is_close", "no_trial", "random_values", "value_of"]

_DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16,
           "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
           "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "i1": torch.bool}  # fmt: skip
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2
_PERIOD = 1 << 20
"""Random elements that are made; larger operands repeat them."""


@dataclass(frozen=True)
class KnownTensors:
    """The operands and results of a `kiln.fusion` of known sizes: types, dtypes, and elements of their memory."""

    body: FusionBody
    layouts: list[ir.AffineMap]
    types: list[ir.RankedTensorType]
    dtypes: list[torch.dtype]
    elements: list[int]

    @classmethod
    def of(cls, fusion: ir.OpView, most: int) -> "KnownTensors":
        """Those of a fusion.

        Raises:
            UnsupportedError: it cannot be run by itself, or on no more than `most` bytes, with the reason.
        """
        body = FusionBody(fusion)
        layouts = fusion_layouts(fusion, body)
        tensors = [*body.tensors, *body.roots]
        if body.symbols or not all(ir.RankedTensorType(v.type).has_static_shape for v in tensors):
            raise no_trial(fusion, "sizes that are known at run time only")
        types = [ir.RankedTensorType(v.type) for v in tensors]
        if any(n == 0 for t in types for n in t.shape):
            raise no_trial(fusion, "there is nothing to compute")
        dtypes = [_dtype(fusion, t) for t in types]
        sizes = [_elements(fusion, t, m) for t, m in zip(types, layouts, strict=True)]
        if sum(n * t.itemsize for n, t in zip(sizes, dtypes, strict=True)) > most:
            raise no_trial(fusion, f"operands of more than {most >> 30} GiB")
        return cls(body, layouts, types, dtypes, sizes)


def random_values(count: int, dtype: torch.dtype, generator: torch.Generator, device: str = "cpu") -> torch.Tensor:
    """Floats are normally distributed, integers 0 (an index that is always in bounds), booleans random."""
    period = min(count, _PERIOD)
    if dtype == torch.bool:
        values = torch.randint(0, 2, (period,), generator=generator).bool()
    elif dtype.is_floating_point:
        values = torch.randn(period, generator=generator).to(dtype)
    else:
        values = torch.zeros(period, dtype=dtype)
    # Of 8-bit floats there are few ops.
    values = values.view(torch.uint8) if dtype.itemsize == 1 else values
    return values.to(device).repeat(-(-count // max(period, 1)))[:count].contiguous().view(dtype)


def is_close(mine: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a result is another one, but for the order of sums."""
    if not mine.dtype.is_floating_point:
        return True if mine.dtype == torch.bool else bool((mine == expected).all())
    x, y = mine.double(), expected.double()
    finite = x.isfinite() & y.isfinite()
    scale = max(1e-30, float(y[finite].abs().max())) if bool(finite.any()) else 1.0
    near = (x - y).abs() <= _TOLERANCE.get(mine.dtype, _HALF_TOLERANCE) * scale
    return bool((near | (x == y) | (x.isnan() & y.isnan())).all())


def no_trial(fusion: ir.OpView, reason: str) -> UnsupportedError:
    """The error that says why a kernel is not tried."""
    return UnsupportedError("kiln.fusion", str(fusion.operation.location), reason)


def value_of(expr: ir.AffineExpr | None) -> int:
    """The number that an expression is; 0 for None."""
    return 0 if expr is None else affine.constant_of(expr) or 0


def _dtype(fusion: ir.OpView, type_: ir.RankedTensorType) -> torch.dtype:
    name = str(type_.element_type)
    if name not in _DTYPES:
        raise no_trial(fusion, f"elements of type {name}")
    return _DTYPES[name]


def _elements(fusion: ir.OpView, type_: ir.RankedTensorType, layout: ir.AffineMap) -> int:
    """Elements of the memory that a tensor of known sizes lies in, from its pointer on."""
    linear = affine.linear_coefficients(layout.results[0])
    if linear is None:
        raise no_trial(fusion, "an operand that is not strided")
    steps = [(value_of(linear[1].get(d)), n) for d, n in enumerate(type_.shape)]
    if value_of(linear[0]) < 0 or any(step < 0 for step, _ in steps):
        raise no_trial(fusion, "an operand that is walked backwards")
    return value_of(linear[0]) + sum(step * max(n - 1, 0) for step, n in steps) + 1
