# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gives operands of products rows that a GPU can move: with zeros at the ends of those of no multiple of 16 bytes."""

from dataclasses import dataclass
from math import prod

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import kiln
from kiln.lowering import paths
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, Machine, machine
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["PadProducts"]

_GRAIN = 8
"""Elements of 16 bits in 16 bytes."""
_SLOW_SHARE, _FAST_SHARE = 0.1625, 0.75
"""Of the tensor cores' peak, of a product whose rows start anywhere, and of one whose rows start at multiples of 16
bytes: 4096 x 4096 x 4097 takes cuBLAS 1056 us on an H200, and 4096 x 4096 x 4104 206."""
_COPY_SHARE = 0.75
"""Of the rate of memory, of a copy."""
_COPY = 4e3
"""Nanoseconds that two short kernels take at least."""
_GAIN = 1.5
"""How many times what it costs it has to save."""


_TAKEN = paths.group("gpu pad-products", "padded")


@register_pass
@dataclass
class PadProducts(Pass):
    """Pad the rows of 16-bit matrices in products with zeros, to multiples of 16 bytes.

    Neither tensor cores' hardware loads (tensor maps, asynchronous copies) nor cuBLAS's fast kernels take such rows. A
    copy of both operands takes a fraction of what that costs; fusion has what computes an operand write it so, and
    constants are copied at each call as well. Where rows run along the sums, both get longer sums: zeros add nothing
    there. Where they run along the result's rows or columns (``[k, n]``, ``[k, m]``), the product reads the first part
    of each row, so that the result is what it was. Only products of known sizes that are large enough to pay for the
    copies.

    Before::

        func.func @main(%x: tensor<4096x4097xbf16>, %w: tensor<4096x4097xbf16>) -> tensor<4096x4096xbf16> {
          %0 = "kiln.matmul"(%x, %w) {transpose_lhs = false, transpose_rhs = true}
            : (tensor<4096x4097xbf16>, tensor<4096x4097xbf16>) -> tensor<4096x4096xbf16>
          return %0 : tensor<4096x4096xbf16>
        }

    After::

        #map = affine_map<() -> (0, 7)>
        #map1 = affine_map<() -> (0, 0)>
        #map2 = affine_map<() -> (4096, 4104)>
        func.func @main(%arg0: tensor<4096x4097xbf16>, %arg1: tensor<4096x4097xbf16>) -> tensor<4096x4096xbf16> {
          %cst = arith.constant 0.000000e+00 : bf16
          %0 = "kiln.pad"(%arg1, %cst) {high = #map, low = #map1, shape = #map2}
              : (tensor<4096x4097xbf16>, bf16) -> tensor<4096x4104xbf16>
          %cst_0 = arith.constant 0.000000e+00 : bf16
          %1 = "kiln.pad"(%arg0, %cst_0) {high = #map, low = #map1, shape = #map2}
              : (tensor<4096x4097xbf16>, bf16) -> tensor<4096x4104xbf16>
          %2 = "kiln.matmul"(%1, %0) {transpose_lhs = false, transpose_rhs = true}
              : (tensor<4096x4104xbf16>, tensor<4096x4104xbf16>) -> tensor<4096x4096xbf16>
          return %2 : tensor<4096x4096xbf16>
        }
    """

    name = "pad-products"
    arch: str = DEFAULT_ARCH
    """The GPU that products are for: how long they and copies take."""

    @override
    def run(self, module: ir.Module) -> None:
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            for block in function.regions[0].blocks:
                made: list[tuple[ir.Value, _Padding, ir.Value]] = []
                for op in [op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.matmul"]:
                    self._pad(op, made)

    def _pad(self, op: ir.Operation, made: "list[tuple[ir.Value, _Padding, ir.Value]]") -> None:
        """made: (operand, padding, padded) of products in front, which may share them."""
        wanted = _padding(op)
        if wanted is None or not _pays(op, wanted, machine(self.arch)):
            self.count("kept")
            return
        if not may_rewrite(op):
            return
        for i, padding in enumerate(wanted):
            value = op.operands[i]
            if padding.is_empty:
                continue
            padded = next((new for old, given, new in made if old == value and given == padding), None)
            if padded is None:
                with _behind(value), op.location:
                    padded = _with_zeros(value, padding)
                made.append((value, padding, padded))
            op.operands[i] = padded
        self.note(op, "its operands get rows of a multiple of 16 bytes")
        self.count("padded")
        _TAKEN("padded")


def _behind(value: ir.Value) -> ir.InsertionPoint:
    """Where a copy of `value` serves all its readers that follow: behind what makes it."""
    if isinstance(value.owner, ir.Block):
        return ir.InsertionPoint.at_block_begin(value.owner)
    return ir.InsertionPoint.after(value.owner.operation)


@dataclass(frozen=True)
class _Padding:
    """Zeros behind the rows, and behind the elements of a row, of each matrix; `is_read`: those at the ends of rows."""

    rows: int
    columns: int
    is_read: bool

    @property
    def is_empty(self) -> bool:
        return not self.rows and not self.columns


def _padding(op: ir.Operation) -> tuple[_Padding, _Padding] | None:
    """What both operands get, or None where it is nothing, or not known."""
    types = [ir.RankedTensorType(v.type) for v in (*op.operands, *op.results)]
    lhs, rhs, _ = types
    if lhs.element_type != rhs.element_type or not isinstance(lhs.element_type, (ir.BF16Type, ir.F16Type)):
        return None
    if not all(t.has_static_shape for t in types) or min(lhs.rank, rhs.rank) < 2 or rhs.rank not in (2, lhs.rank):
        return None
    flags = [bool(ir.BoolAttr(op.attributes[name]).value) for name in ("transpose_lhs", "transpose_rhs")]
    # Whether the sums run along the rows of each.
    along = (not flags[0], flags[1])
    more = -lhs.shape[-1 if along[0] else -2] % _GRAIN if any(along) else 0
    found = [
        _Padding(0, more, is_read=True) if is_along else _Padding(more, -t.shape[-1] % _GRAIN, is_read=False)
        for t, is_along in zip((lhs, rhs), along, strict=True)
    ]
    return None if all(p.is_empty for p in found) else (found[0], found[1])


def _pays(op: ir.Operation, padding: "tuple[_Padding, _Padding]", chip: Machine) -> bool:
    terms = ir.RankedTensorType(op.operands[0].type).shape
    depth = terms[-2 if ir.BoolAttr(op.attributes["transpose_lhs"]).value else -1]
    result = ir.RankedTensorType(op.results[0].type).shape
    saved = chip.peak_time(prod(result) * depth) * (1 / _SLOW_SHARE - 1 / _FAST_SHARE)
    copied = [v.type for v, p in zip(op.operands, padding, strict=True) if not p.is_empty]
    elements = sum(prod(ir.RankedTensorType(t).shape) for t in copied)
    return saved > _GAIN * max(_COPY, 4 * elements / (chip.memory_rate * _COPY_SHARE))


def _with_zeros(value: ir.Value, padding: "_Padding") -> ir.Value:
    """The tensor with zeros behind its rows and their elements; those that are not to be read are no part of it."""
    type_ = ir.RankedTensorType(value.type)
    shape = list(type_.shape)
    element = type_.element_type
    zero = ir.Operation.create(
        "arith.constant", results=[element], attributes={"value": ir.FloatAttr.get(element, 0.0)}
    )

    def sizes(values: list[int]) -> ir.AffineMap:
        return ir.AffineMap.get(0, 0, [ir.AffineExpr.get_constant(n) for n in values])

    before = [0] * len(shape)
    high = [*before[2:], padding.rows, padding.columns]
    whole = [n + more for n, more in zip(shape, high, strict=True)]
    padded = kiln.pad(value, zero.result, sizes(before), sizes(high), sizes(whole))
    if padding.is_read or not padding.columns:
        return padded
    return kiln.view(padded, ir.AffineMap.get_identity(len(shape)), sizes([*whole[:-1], shape[-1]]))
