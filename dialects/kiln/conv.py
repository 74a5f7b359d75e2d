# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import I64Array, Tensor
from kiln.dialects.kiln.table import Role, Shapes, Sizes, define


class ConvOp(base.Operation, name="conv", traits=[base.Pure]):
    """Convolution of `x` `[N, C, *spatial]` with `weight`, no bias; the result is `[N, O, *spatial]`.

    `weight` is `[O, C / groups, *kernel]`, or `[C, O / groups, *kernel]` where `transposed`.  `stride`, `padding` and
    `dilation` have one entry per spatial dim, `output_padding` as well (zeros unless `transposed`).  bf16 and f16
    accumulate in f32.  As `torch.nn.functional.conv{1,2,3}d` and `conv_transpose{1,2,3}d`.

    ```mlir
    func.func @conv(%x: tensor<?x3x32x32xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<?x8x16x16xf32> {
      %0 = "kiln.conv"(%x, %w) {stride = array<i64: 2, 2>, padding = array<i64: 1, 1>, dilation = array<i64: 1, 1>,
        groups = 1, transposed = false, output_padding = array<i64: 0, 0>}
        : (tensor<?x3x32x32xf32>, tensor<8x3x3x3xf32>) -> tensor<?x8x16x16xf32>
      return %0 : tensor<?x8x16x16xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    weight: ir.Value[Tensor]
    result: base.Result[Tensor]
    stride: I64Array
    padding: I64Array
    dilation: I64Array
    groups: ir.IntegerAttr
    transposed: ir.IntegerAttr
    output_padding: I64Array

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check ranks, channels per group and the window's attributes, and the result's sizes."""
        x, weight = self.x, self.weight
        checks.rank_at_least("x", x, 3)
        rank = x.type.rank
        checks.rank_is("weight", weight, rank)
        checks.rank_is("result", self.result, rank)
        checks.same_element("weight", weight, x)
        checks.same_or_wide("result", self.result, x)
        stride = checks.ints(self, "stride", rank - 2, 1)
        padding = checks.ints(self, "padding", rank - 2, 0)
        dilation = checks.ints(self, "dilation", rank - 2, 1)
        extra = checks.ints(self, "output_padding", rank - 2, 0)
        groups, transposed = checks.positive(self, "groups"), checks.flag(self, "transposed")
        checks.require(transposed or not any(extra), "attribute output_padding", "zeros, or transposed", extra)
        xs, ws = checks.sizes_of(x), checks.sizes_of(weight)
        channels = xs[1] if transposed or xs[1] is None else xs[1] // groups
        checks.require(xs[1] is None or xs[1] % groups == 0, "attribute groups", f"a divisor of {xs[1]}", groups)
        own = ws[0] if transposed else ws[1]
        checks.require(checks.agree(channels, own), "weight input channels", channels, own)
        spatial: list[int | None] = []
        for i, (n, k) in enumerate(zip(xs[2:], ws[2:], strict=True)):
            if n is None or k is None:
                spatial.append(None)
            elif transposed:
                spatial.append(conv_transpose_size(n, k, stride[i], padding[i], dilation[i], extra[i]))
            else:
                spatial.append(conv_size(n, k, stride[i], padding[i], dilation[i]))
        out = ws[0] if not transposed else None if ws[1] is None else ws[1] * groups
        checks.same_sizes("result", [xs[0], out, *spatial], self.result)


def _shape(shapes: Shapes, op: ir.Operation, number: int) -> Sizes:
    x, weight = shapes.dims(op.operands[0]), shapes.dims(op.operands[1])
    stride, padding, dilation, extra = (
        list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("stride", "padding", "dilation", "output_padding")
    )
    transposed = ir.BoolAttr(op.attributes["transposed"]).value
    spatial: list[ir.AffineExpr] = []
    for i, (size, kernel) in enumerate(zip(x[2:], weight[2:], strict=True)):
        if transposed:
            out = conv_transpose_size(size, kernel, stride[i], padding[i], dilation[i], extra[i])
        else:
            out = conv_size(size, kernel, stride[i], padding[i], dilation[i])
        spatial.append(affine.simplify(out))
    groups = ir.IntegerAttr(op.attributes["groups"]).value
    channels = affine.simplify(weight[1] * groups) if transposed else weight[0]
    return [x[0], channels, *spatial]


def _flops(op: ir.Operation, sizes: Callable[[ir.Value], Sequence[int]]) -> int:
    """Of windows that lie in the image as a whole; not of a transposed convolution's zeros between the pixels."""
    return 2 * prod(sizes(op.results[0])) * prod(sizes(op.operands[1])[1:])


define(
    ConvOp,
    Role.CONTRACTION,
    shape=_shape,
    reference="kiln.dialects.reference.conv:conv",
    flops=_flops,
    has_kernel=True,
    takes_any_sizes=True,
)


def conv_size(size: Any, kernel: Any, stride: int, padding: int, dilation: int) -> Any:
    """Size of a convolution's or pool's output; works on ints and on affine expressions."""
    extent = size + (2 * padding - 1) - (kernel - 1) * dilation
    return base.floordiv(extent, stride) + 1


def conv_transpose_size(size: Any, kernel: Any, stride: int, padding: int, dilation: int, output_padding: int) -> Any:
    """Size of a transposed convolution's output; works on ints and on affine expressions."""
    return (size - 1) * stride + (kernel - 1) * dilation + (1 + output_padding - 2 * padding)


def conv(
    x: Any,
    weight: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int = 1,
    transposed: bool = False,
    output_padding: Sequence[int] | None = None,
    sizes: Sequence[int | None] | None = None,
) -> ir.Value:
    """Build a `kiln.conv`. `sizes`: the result's as far as they are known, where its operands' types tell less."""
    x, weight = base.value_of(x), base.value_of(weight)
    output_padding = list(output_padding or [0] * len(stride))
    xs, ws = base.static_shape(x.type), base.static_shape(weight.type)
    spatial: list[int | None] = []
    for i, (size, kernel) in enumerate(zip(xs[2:], ws[2:], strict=True)):
        if size is None or kernel is None:
            spatial.append(None)
        elif transposed:
            spatial.append(conv_transpose_size(size, kernel, stride[i], padding[i], dilation[i], output_padding[i]))
        else:
            spatial.append(conv_size(size, kernel, stride[i], padding[i], dilation[i]))
    out = ws[0] if not transposed else None if ws[1] is None else ws[1] * groups
    attributes = {
        "stride": base.i64s(stride),
        "padding": base.i64s(padding),
        "dilation": base.i64s(dilation),
        "groups": base.i64(groups),
        "transposed": base.boolean(transposed),
        "output_padding": base.i64s(output_padding),
    }
    inferred = [xs[0], out, *spatial]
    if sizes is not None:
        inferred = [n if known is None else known for n, known in zip(inferred, sizes, strict=True)]
    result = base.ranked(inferred, x.type.element_type)
    return ConvOp.create([x, weight], [result], attributes).result
