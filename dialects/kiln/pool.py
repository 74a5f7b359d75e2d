# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pooling."""

from collections.abc import Sequence
from typing import Any, Optional

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import I64Array, Tensor
from kiln.dialects.kiln.conv import conv_size
from kiln.dialects.kiln.table import Role, Shapes, Sizes, define


class PoolOp(base.Operation, name="pool", traits=[base.Pure]):
    """Max or average pooling of `x` `[N, C, *spatial]`; `mode` is "max" or "avg".

    `kernel`, `stride`, `padding` and `dilation` have one entry per spatial dim; `ceil` rounds the output's size up (the
    last window still starts inside the input or its left padding).  Max ignores padding and propagates NaN; with a
    second result it also gives the flat position in the spatial plane, as i64.  Average divides by `divisor` unless
    0, else by the window's size, counting padded elements where `count_include_pad`.  bf16 and f16 compute in f32.
    As `torch.nn.functional.max_pool{1,2,3}d` and `avg_pool{1,2,3}d`.

    ```mlir
    func.func @max_pool(%x: tensor<?x8x32x32xf32>) -> tensor<?x8x16x16xf32> {
      %0 = "kiln.pool"(%x) {mode = "max", kernel = array<i64: 3, 3>, stride = array<i64: 2, 2>,
        padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>, ceil = false, count_include_pad = false, divisor = 0}
        : (tensor<?x8x32x32xf32>) -> tensor<?x8x16x16xf32>
      return %0 : tensor<?x8x16x16xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    result: base.Result[Tensor]
    mode: ir.StringAttr
    kernel: I64Array
    stride: I64Array
    padding: I64Array
    dilation: I64Array
    ceil: ir.IntegerAttr
    count_include_pad: ir.IntegerAttr
    divisor: ir.IntegerAttr
    indices: Optional[base.Result[Tensor]] = None  # noqa: UP045 - `ext` tells optional results by this form

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check the window's attributes, the result's sizes, and that only max has positions."""
        checks.rank_at_least("x", self.x, 3)
        spatial = self.x.type.rank - 2
        checks.same_element("result", self.result, self.x)
        mode = checks.one_of(self, "mode", ["max", "avg"])
        kernel, stride = checks.ints(self, "kernel", spatial, 1), checks.ints(self, "stride", spatial, 1)
        padding, dilation = checks.ints(self, "padding", spatial, 0), checks.ints(self, "dilation", spatial, 1)
        small = all(2 * p <= k for p, k in zip(padding, kernel, strict=True))
        checks.require(small, "attribute padding", f"at most half of the kernel {kernel}", padding)
        ceil = checks.flag(self, "ceil")
        checks.flag(self, "count_include_pad")
        if mode == "avg":
            checks.require(all(d == 1 for d in dilation), "attribute dilation", "ones for mode avg", dilation)
            checks.require(self.indices is None, "results", "1 for mode avg", 2)
        sizes = checks.sizes_of(self.x)
        out = [
            None if n is None else pool_size(n, kernel[i], stride[i], padding[i], dilation[i], ceil)
            for i, n in enumerate(sizes[2:])
        ]
        checks.same_sizes("result", [*sizes[:2], *out], self.result)
        if self.indices is not None:
            checks.is_integer("indices", self.indices, 64)
            checks.same_sizes("indices", checks.sizes_of(self.result), self.indices)


def _shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    x = shapes.dims(op.operands[0])
    kernel, stride, padding, dilation = (
        list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("kernel", "stride", "padding", "dilation")
    )
    # Rounding up drops a window that starts in the right padding: not affine (a minimum), so unknown.
    known = not ir.BoolAttr(op.attributes["ceil"]).value
    spatial: list[ir.AffineExpr | None] = []
    for i, size in enumerate(x[2:]):
        out = conv_size(size, kernel[i], stride[i], padding[i], dilation[i]) if known else None
        spatial.append(None if out is None else affine.simplify(out))
    return [*x[:2], *spatial]


define(PoolOp, Role.REDUCTION, shape=_shape, reference="kiln.dialects.reference.pool:pool", takes_any_sizes=True)


def pool_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    """Output size along one dim, as PyTorch's `pooling_output_shape`."""
    extent = size + 2 * padding - dilation * (kernel - 1) - 1
    if not ceil:
        return extent // stride + 1
    out = -(-extent // stride) + 1
    return out - 1 if (out - 1) * stride >= size + padding else out


def pool(
    x: Any,
    mode: str,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] | None = None,
    ceil: bool = False,
    count_include_pad: bool = True,
    divisor: int = 0,
    with_indices: bool = False,
) -> PoolOp:
    """Build a `kiln.pool`; use `.result` and, `with_indices`, `.indices`."""
    x = base.value_of(x)
    dilation = list(dilation or [1] * len(kernel))
    sizes = base.static_shape(x.type)
    spatial = [
        None if s is None else pool_size(s, kernel[i], stride[i], padding[i], dilation[i], ceil)
        for i, s in enumerate(sizes[2:])
    ]
    attributes = {
        "mode": base.string(mode),
        "kernel": base.i64s(kernel),
        "stride": base.i64s(stride),
        "padding": base.i64s(padding),
        "dilation": base.i64s(dilation),
        "ceil": base.boolean(ceil),
        "count_include_pad": base.boolean(count_include_pad),
        "divisor": base.i64(divisor),
    }
    shape = [*sizes[:2], *spatial]
    results = [base.ranked(shape, x.type.element_type)]
    if with_indices:
        results.append(base.ranked(shape, ir.IntegerType.get_signless(64)))
    return PoolOp.create([x], results, attributes)
