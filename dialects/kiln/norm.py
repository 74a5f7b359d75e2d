# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normalisations: layer, RMS, batch and group norm."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import base, checks
from kiln.dialects.kiln.base import I64Array, Tensor
from kiln.dialects.kiln.table import Role, define, same_as_first


def _check_params(op: Any, others: Sequence[tuple[str, ir.Value]], sizes: Sequence[int | None], most: int) -> None:
    checks.require(len(op.params) <= most, "params", f"at most {most}", len(op.params))
    for name, value in [*others, *zip(("weight", "bias"), op.params, strict=False)]:
        checks.is_float(name, value)
        checks.same_sizes(name, sizes, value)


def _check_trailing(op: Any, most: int) -> None:
    rank = op.x.type.rank
    axes = checks.ints(op, "axes")
    expected = list(range(rank - len(axes), rank))
    checks.require(
        bool(axes) and axes == expected, "attribute axes", f"the trailing dims of rank {rank}, ascending", axes
    )
    _check_params(op, [], checks.sizes_of(op.x)[-len(axes) :], most)


class LayerNormOp(base.Operation, name="layer_norm", traits=[base.Pure]):
    """Layer norm of `x` over `axes`, its trailing dims: `(x - mean) / sqrt(var + eps) * weight + bias`.

    `params` are none, the weight, or weight and bias, each of the sizes of `x` at `axes`.  The variance is biased and
    computed in two passes; bf16 and f16 compute in f32.  As `torch.nn.functional.layer_norm`.

    ```mlir
    func.func @layer_norm(%x: tensor<?x64xf32>, %w: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<?x64xf32> {
      %0 = "kiln.layer_norm"(%x, %w, %b) {axes = array<i64: 1>, eps = 1.0e-05 : f64}
        : (tensor<?x64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
      return %0 : tensor<?x64xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    params: Sequence[ir.Value[Tensor]]
    result: base.Result[Tensor]
    axes: I64Array
    eps: ir.FloatAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check the element type, and that weight and bias have the normalised sizes."""
        checks.is_float("x", self.x)
        checks.same_type("result", self.result, self.x)
        _check_trailing(self, 2)


define(LayerNormOp, Role.REDUCTION, shape=same_as_first, reference="kiln.dialects.reference.norm:layer_norm")


class RmsNormOp(base.Operation, name="rms_norm", traits=[base.Pure]):
    """RMS norm of `x` over `axes`, its trailing dims: `x / sqrt(mean(x * x) + eps) * weight`.

    `params` are none or the weight, of the sizes of `x` at `axes`.  bf16 and f16 compute in f32 and round once, as
    `torch.nn.functional.rms_norm`.

    ```mlir
    func.func @rms_norm(%x: tensor<?x64xf32>, %w: tensor<64xf32>) -> tensor<?x64xf32> {
      %0 = "kiln.rms_norm"(%x, %w) {axes = array<i64: 1>, eps = 1.0e-06 : f64}
        : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64xf32>
      return %0 : tensor<?x64xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    params: Sequence[ir.Value[Tensor]]
    result: base.Result[Tensor]
    axes: I64Array
    eps: ir.FloatAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check the element type, and that the weight has the normalised sizes."""
        checks.is_float("x", self.x)
        checks.same_type("result", self.result, self.x)
        _check_trailing(self, 1)


define(RmsNormOp, Role.REDUCTION, shape=same_as_first, reference="kiln.dialects.reference.norm:rms_norm")


class BatchNormOp(base.Operation, name="batch_norm", traits=[base.Pure]):
    """Inference batch norm of `x` `[N, C, *]`: `(x - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c]`.

    `params` are none, the weight, or weight and bias; all parameters are `[C]`.  bf16 and f16 compute in f32.
    As `torch.nn.functional.batch_norm` with `training=False`.

    ```mlir
    func.func @batch_norm(%x: tensor<?x8x4x4xf32>, %m: tensor<8xf32>, %v: tensor<8xf32>) -> tensor<?x8x4x4xf32> {
      %0 = "kiln.batch_norm"(%x, %m, %v) {eps = 1.0e-05 : f64}
        : (tensor<?x8x4x4xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<?x8x4x4xf32>
      return %0 : tensor<?x8x4x4xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    mean: ir.Value[Tensor]
    variance: ir.Value[Tensor]
    params: Sequence[ir.Value[Tensor]]
    result: base.Result[Tensor]
    eps: ir.FloatAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that mean, variance, weight and bias have one element per channel."""
        checks.is_float("x", self.x)
        checks.same_type("result", self.result, self.x)
        checks.rank_at_least("x", self.x, 2)
        _check_params(self, [("mean", self.mean), ("variance", self.variance)], [checks.sizes_of(self.x)[1]], 2)


define(BatchNormOp, Role.POINTWISE, shape=same_as_first, reference="kiln.dialects.reference.norm:batch_norm")


class GroupNormOp(base.Operation, name="group_norm", traits=[base.Pure]):
    """Group norm of `x` `[N, C, *]`: mean and biased variance over each of `groups` blocks of channels.

    `params` are none, the weight, or weight and bias, each `[C]`.  bf16 and f16 compute in f32.
    As `torch.nn.functional.group_norm`; `groups` = C is instance norm.

    ```mlir
    func.func @group_norm(%x: tensor<?x8x4x4xf32>, %w: tensor<8xf32>) -> tensor<?x8x4x4xf32> {
      %0 = "kiln.group_norm"(%x, %w) {groups = 2, eps = 1.0e-05 : f64}
        : (tensor<?x8x4x4xf32>, tensor<8xf32>) -> tensor<?x8x4x4xf32>
      return %0 : tensor<?x8x4x4xf32>
    }
    ```
    """

    x: ir.Value[Tensor]
    params: Sequence[ir.Value[Tensor]]
    result: base.Result[Tensor]
    groups: ir.IntegerAttr
    eps: ir.FloatAttr

    @checks.verified
    def verify_invariants(self: Any) -> None:
        """Check that `groups` divides the channels, and that weight and bias have one element each."""
        checks.is_float("x", self.x)
        checks.same_type("result", self.result, self.x)
        checks.rank_at_least("x", self.x, 2)
        groups, channels = checks.positive(self, "groups"), checks.sizes_of(self.x)[1]
        checks.require(
            channels is None or channels % groups == 0, "attribute groups", f"a divisor of {channels}", groups
        )
        _check_params(self, [], [channels], 2)


define(GroupNormOp, Role.REDUCTION, shape=same_as_first, reference="kiln.dialects.reference.norm:group_norm")


def _params(weight: Any, bias: Any) -> list[ir.Value]:
    """Operands for optional parameters; a bias needs a weight (pass ones)."""
    if weight is None and bias is not None:
        raise ValueError("a bias needs a weight: pass a tensor of ones")
    return [base.value_of(p) for p in (weight, bias) if p is not None]


def layer_norm(x: Any, weight: Any, bias: Any, axes: Sequence[int], eps: float) -> ir.Value:
    """Build a `kiln.layer_norm`; `weight` and `bias` may be None."""
    x = base.value_of(x)
    attributes = {"axes": base.i64s(axes), "eps": base.f64(eps)}
    return LayerNormOp.create([x, *_params(weight, bias)], [x.type], attributes).result


def rms_norm(x: Any, weight: Any, axes: Sequence[int], eps: float) -> ir.Value:
    """Build a `kiln.rms_norm`; `weight` may be None."""
    x = base.value_of(x)
    attributes = {"axes": base.i64s(axes), "eps": base.f64(eps)}
    return RmsNormOp.create([x, *_params(weight, None)], [x.type], attributes).result


def batch_norm(x: Any, mean: Any, variance: Any, weight: Any, bias: Any, eps: float) -> ir.Value:
    """Build a `kiln.batch_norm`; `weight` and `bias` may be None."""
    x = base.value_of(x)
    operands = [x, base.value_of(mean), base.value_of(variance), *_params(weight, bias)]
    return BatchNormOp.create(operands, [x.type], {"eps": base.f64(eps)}).result


def group_norm(x: Any, weight: Any, bias: Any, groups: int, eps: float) -> ir.Value:
    """Build a `kiln.group_norm`; `weight` and `bias` may be None."""
    x = base.value_of(x)
    attributes = {"groups": base.i64(groups), "eps": base.f64(eps)}
    return GroupNormOp.create([x, *_params(weight, bias)], [x.type], attributes).result
