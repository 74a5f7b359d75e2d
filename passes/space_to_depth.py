# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gives convolutions of images with few channels more of them: neighbouring pixels."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine, kiln
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering import paths
from kiln.lowering.gpu.dot.conv_choice import no_pixels_as_channels
from kiln.lowering.gpu.dot.conv_schedule import rows_are_taps
from kiln.lowering.gpu.rules import ConvolutionRules, rules_for
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["SpaceToDepth"]

_GRAIN = 8
"""Elements of 16 bits in 16 bytes."""

_TAKEN = paths.group("gpu space-to-depth", "pixels as channels")


@register_pass
@dataclass
class SpaceToDepth(Pass):
    """Rewrite strided convolutions of images with up to four channels: the pixels of one step become channels.

    A window of 7 x 7 over 3 channels with a stride of 2, as networks start with, becomes one of 4 x 4 over 2 x 2 x 3
    channels without a stride. The copy of the image has the convolution's padding, zeros up to a multiple of 16 bytes
    behind a pixel's channels, and lies so that a row of the window is one piece of memory: a kernel loads it as such,
    and tests no bounds. The weight is rearranged in the same way, at each call (1 to 2 us), also where it is a
    constant. Only 16-bit convolutions whose result is channels-last, with windows that overlap and sums of more than 64
    terms.

    Before::

        func.func @main(%x: tensor<8x3x32x32xbf16>, %w: tensor<64x3x7x7xbf16>) -> tensor<8x64x16x16xbf16> {
          %0 = "kiln.conv"(%x, %w) {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
            padding = array<i64: 3, 3>, stride = array<i64: 2, 2>, transposed = false,
            shape = affine_map<() -> (8, 64, 16, 16)>, strides = affine_map<() -> (16384, 1, 1024, 64)>}
            : (tensor<8x3x32x32xbf16>, tensor<64x3x7x7xbf16>) -> tensor<8x64x16x16xbf16>
          return %0 : tensor<8x64x16x16xbf16>
        }

    After::

        #map = affine_map<() -> (0, 0, 3, 3)>
        #map1 = affine_map<() -> (8, 3, 38, 38)>
        #map2 = affine_map<(d0, d1, d2, d3) -> (d0, d3 mod 3, d1 * 2 + (d3 floordiv 3) floordiv 2,
            d2 * 2 + (d3 floordiv 3) mod 2)>
        #map3 = affine_map<() -> (8, 19, 19, 12)>
        #map4 = affine_map<() -> (0, 0, 0, 4)>
        #map5 = affine_map<() -> (0, 0, 0, 0)>
        #map6 = affine_map<() -> (8, 19, 19, 16)>
        #map7 = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3, d1)>
        #map8 = affine_map<() -> (8, 16, 19, 19)>
        #map9 = affine_map<() -> (0, 0, 1, 1)>
        #map10 = affine_map<() -> (64, 3, 8, 8)>
        #map11 = affine_map<() -> (64, 4, 4, 12)>
        #map12 = affine_map<() -> (64, 4, 4, 16)>
        #map13 = affine_map<() -> (64, 16, 4, 4)>
        #map14 = affine_map<() -> (8, 64, 16, 16)>
        #map15 = affine_map<() -> (16384, 1, 1024, 64)>
        func.func @main(%arg0: tensor<8x3x32x32xbf16>, %arg1: tensor<64x3x7x7xbf16>) -> tensor<8x64x16x16xbf16> {
          %cst = arith.constant 0.000000e+00 : bf16
          %0 = "kiln.pad"(%arg0, %cst) {high = #map, low = #map, shape = #map1}
              : (tensor<8x3x32x32xbf16>, bf16) -> tensor<8x3x38x38xbf16>
          %1 = "kiln.view"(%0) {map = #map2, shape = #map3} : (tensor<8x3x38x38xbf16>) -> tensor<8x19x19x12xbf16>
          %cst_0 = arith.constant 0.000000e+00 : bf16
          %2 = "kiln.pad"(%1, %cst_0) {high = #map4, low = #map5, shape = #map6}
              : (tensor<8x19x19x12xbf16>, bf16) -> tensor<8x19x19x16xbf16>
          %3 = "kiln.view"(%2) {map = #map7, shape = #map8} : (tensor<8x19x19x16xbf16>) -> tensor<8x16x19x19xbf16>
          %cst_1 = arith.constant 0.000000e+00 : bf16
          %4 = "kiln.pad"(%arg1, %cst_1) {high = #map9, low = #map5, shape = #map10}
              : (tensor<64x3x7x7xbf16>, bf16) -> tensor<64x3x8x8xbf16>
          %5 = "kiln.view"(%4) {map = #map2, shape = #map11} : (tensor<64x3x8x8xbf16>) -> tensor<64x4x4x12xbf16>
          %cst_2 = arith.constant 0.000000e+00 : bf16
          %6 = "kiln.pad"(%5, %cst_2) {high = #map4, low = #map5, shape = #map12}
              : (tensor<64x4x4x12xbf16>, bf16) -> tensor<64x4x4x16xbf16>
          %7 = "kiln.view"(%6) {map = #map7, shape = #map13} : (tensor<64x4x4x16xbf16>) -> tensor<64x16x4x4xbf16>
          %8 = "kiln.conv"(%3, %7)
              {dilation = array<i64: 1, 1>, groups = 1 : i64, output_padding = array<i64: 0, 0>,
              padding = array<i64: 0, 0>, shape = #map14, stride = array<i64: 1, 1>, strides = #map15,
              transposed = false} : (tensor<8x16x19x19xbf16>, tensor<64x16x4x4xbf16>) -> tensor<8x64x16x16xbf16>
          return %8 : tensor<8x64x16x16xbf16>
        }
    """

    name = "space-to-depth"

    @override
    def run(self, module: ir.Module) -> None:
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            for block in function.regions[0].blocks:
                for op in [op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.conv"]:
                    self._rewrite(function, op)

    def _rewrite(self, function: ir.Operation, op: ir.Operation) -> None:
        why_not = _why_not(op)
        if why_not:
            self.note(op, why_not)
            self.count("kept")
            return
        if not may_rewrite(op):
            return
        self.note(op, "pixels of a stride's step are channels")
        self.count("matched")
        _TAKEN("pixels as channels")
        with ir.InsertionPoint(op), op.location:
            _replace(SymbolicShapes(function), op)


def _replace(shapes: SymbolicShapes, op: ir.Operation) -> None:
    image, weight = op.operands
    stride, padding = (list(ir.DenseI64ArrayAttr(op.attributes[n])) for n in ("stride", "padding"))
    out, channels, *kernel = ir.RankedTensorType(weight.type).shape
    result = ir.RankedTensorType(op.results[0].type).shape[2:]
    taps = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
    size = [n + t - 1 for n, t in zip(result, taps, strict=True)]
    batch = shapes.dims(image)[0]
    symbols = shapes.values(affine.symbols_in(batch))
    given = ir.RankedTensorType(image.type).shape[2:]
    high = [max(0, s * n - g - p) for s, n, g, p in zip(stride, size, given, padding, strict=True)]
    blocks = _Blocks(channels, stride, _channels(channels * prod(stride), taps[-1]), symbols)
    more = [t * s - k for t, s, k in zip(taps, stride, kernel, strict=True)]
    new_image = blocks.of(image, batch, padding, high, size)
    new_weight = blocks.of(weight, out, (0, 0), more, taps)
    attributes = {name: op.attributes[name] for name in op.attributes}
    attributes["stride"] = ir.DenseI64ArrayAttr.get([1, 1])
    attributes["padding"] = ir.DenseI64ArrayAttr.get([0, 0])
    new = ir.Operation.create(op.name, [op.results[0].type], [new_image, new_weight], attributes)
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


@dataclass(frozen=True)
class _Blocks:
    """Copies of a convolution's operands. stride: of the convolution; width: channels that they get; symbols: what
    sizes are over.
    """

    channels: int
    stride: Sequence[int]
    width: int
    symbols: Sequence[ir.Value]

    def of(
        self,
        value: ir.Value,
        first: ir.AffineExpr | int,
        low: Sequence[int],
        high: Sequence[int],
        sizes: Sequence[int],
    ) -> ir.Value:
        """[first, C, rows, columns] -> [first, width, *sizes], channels next to each other: row, column and channel of
        a step of the stride. low, high: rows and columns of zeros around it.
        """
        rows, columns = ir.RankedTensorType(value.type).shape[2:]
        padded = value
        if any((*low, *high)):
            whole = [rows + low[0] + high[0], columns + low[1] + high[1]]
            padded = self._zeros_around(value, (0, 0, *low), (0, 0, *high), (first, self.channels, *whole))
        n, h, w, c = (ir.AffineExpr.get_dim(d) for d in range(4))
        pixel, count = ir.AffineExpr.get_floor_div(c, self.channels), self.channels * prod(self.stride)
        places = [
            n,
            ir.AffineExpr.get_mod(c, self.channels),
            h * self.stride[0] + ir.AffineExpr.get_floor_div(pixel, self.stride[1]),
            w * self.stride[1] + ir.AffineExpr.get_mod(pixel, self.stride[1]),
        ]
        steps = kiln.view(padded, places, [first, *sizes, count], self.symbols)
        # Also where nothing is added: views are one, and what is computed is laid out as it is written here.
        more = (0, 0, 0, self.width - count)
        wide = self._zeros_around(steps, (0,) * 4, more, (first, *sizes, self.width))
        last = [ir.AffineExpr.get_dim(d) for d in (0, 2, 3, 1)]
        return kiln.view(wide, last, [first, self.width, *sizes], self.symbols)

    def _zeros_around(
        self, value: ir.Value, low: Sequence[int], high: Sequence[int], shape: Sequence[ir.AffineExpr | int]
    ) -> ir.Value:
        element = ir.RankedTensorType(value.type).element_type
        zero = ir.Operation.create(
            "arith.constant", results=[element], attributes={"value": ir.FloatAttr.get(element, 0.0)}
        )
        return kiln.pad(value, zero.result, list(low), list(high), list(shape), self.symbols)


def _channels(count: int, taps: int) -> int:
    """At least so many that pixels start at multiples of 16 bytes, and rows of the window are whole steps."""
    width, step = -(-count // _GRAIN) * _GRAIN, rules_for(ConvolutionRules).least_step
    while width < step and not rows_are_taps(width, taps):
        width += _GRAIN
    return width


def _why_not(op: ir.Operation) -> str:
    """Why a convolution stays as it is; empty if it does not."""
    reason = no_pixels_as_channels(op)
    if not reason and ("strides" not in op.attributes or not _is_channels_last(op)):
        return "channels lie too far apart"
    return reason


def _is_channels_last(op: ir.Operation) -> bool:
    return ir.AffineMapAttr(op.attributes["strides"]).value.results[1] == ir.AffineConstantExpr.get(1)
