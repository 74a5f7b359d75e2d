# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Gives operands of products rows that a GPU can move: with zeros at the ends of those of no multiple of 16 bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects import affine, kiln
from kiln.lowering import paths
from kiln.lowering.gpu.dot.choice import TABLE
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, Machine, machine
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite
from kiln.passes.views.function_views import FunctionViews

__all__ = ["PadProducts"]

_GRAIN = 8
"""Elements of 16 bits in 16 bytes."""

_TAKEN = paths.group("gpu pad-products", "padded")


@register_pass
@dataclass
class PadProducts(Pass):
    """Pad the rows of 16-bit matrices in products with zeros, to multiples of 16 bytes.

    Neither tensor cores' hardware loads (tensor maps, asynchronous copies) nor cuBLAS's fast kernels take such rows. A
    copy of both operands takes a fraction of what that costs; fusion has what computes an operand write it so, and
    constants are copied at each call as well. Where rows run along the sums, both get longer sums: zeros add nothing
    there. Where they run along the result's rows or columns (``[k, n]``, ``[k, m]``), the product reads the first part
    of each row, so that the result is what it was. Rows are those of memory: an operand that is a view is padded where
    its source lies, so the two products that read one gradient share a copy, and a view with rows for columns becomes
    a transpose flag. Only products of known sizes that are large enough to pay for the copies, by the rates in the
    ``[model]`` of `lowering/gpu/choices/matmul.toml`.

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
            views = FunctionViews(function)
            for block in function.regions[0].blocks:
                made: _Made = {}
                products = [op.operation for op in block.operations if kiln.name_of(op.operation) == "kiln.matmul"]
                # Read first: the copy that one product gets takes the place of what others read.
                for op, operands in [(op, _operands(op, views)) for op in products]:
                    self._pad(op, operands, made)

    def _pad(self, op: ir.Operation, operands: "tuple[_Operand, _Operand] | None", made: "_Made") -> None:
        wanted = None if operands is None else _padding(operands)
        if operands is None or wanted is None or not _pays(op, operands, wanted, made, machine(self.arch)):
            self.count("kept")
            return
        if not may_rewrite(op):
            return
        for i, (operand, padding) in enumerate(zip(operands, wanted, strict=True)):
            if not padding.is_empty:
                op.operands[i] = _padded(op, operand, padding, made)
                op.attributes[_FLAGS[i]] = ir.BoolAttr.get(operand.is_transposed)
        self.note(op, "its operands get rows of a multiple of 16 bytes")
        self.count("padded")
        _TAKEN("padded")


_FLAGS = ("transpose_lhs", "transpose_rhs")
_Made = dict[tuple[ir.Value, int, int], ir.Value]
"""(tensor, rows, columns) -> the tensor with so many more."""


@dataclass(frozen=True)
class _Operand:
    """A matrix as it lies in memory: ``matrix[d0..] = source[indices]``, of `sizes`, and rows that are the source's;
    the product reads it transposed or not.
    """

    source: ir.Value
    indices: tuple[ir.AffineExpr, ...]
    sizes: tuple[int, ...]
    is_transposed: bool

    @property
    def is_source(self) -> bool:
        return tuple(self.sizes) == tuple(_type(self.source).shape) and all(
            e == ir.AffineExpr.get_dim(i) for i, e in enumerate(self.indices)
        )


@dataclass(frozen=True)
class _Padding:
    """Zeros behind the rows, and behind the elements of a row, of each matrix; `is_read`: those at the ends of rows."""

    rows: int
    columns: int
    is_read: bool

    @property
    def is_empty(self) -> bool:
        return not self.rows and not self.columns


def _type(value: ir.Value) -> ir.RankedTensorType:
    return ir.RankedTensorType(value.type)


def _operands(op: ir.Operation, views: FunctionViews) -> tuple[_Operand, _Operand] | None:
    """Both, or None for a product of other types or unknown sizes."""
    types = [_type(v) for v in (*op.operands, *op.results)]
    lhs, rhs, _ = types
    if lhs.element_type != rhs.element_type or not isinstance(lhs.element_type, (ir.BF16Type, ir.F16Type)):
        return None
    if not all(t.has_static_shape for t in types) or min(lhs.rank, rhs.rank) < 2 or rhs.rank not in (2, lhs.rank):
        return None
    found = [
        _in_memory(value, bool(ir.BoolAttr(op.attributes[name]).value), views)
        for name, value in zip(_FLAGS, op.operands, strict=True)
    ]
    return found[0], found[1]


def _in_memory(value: ir.Value, is_transposed: bool, views: FunctionViews) -> _Operand:
    view, sizes = views.read(value), tuple(_type(value).shape)
    source, rank = _type(view.source), len(sizes)
    dims: list[ir.AffineExpr] = [ir.AffineExpr.get_dim(k) for k in range(rank)]
    if source.has_static_shape and source.rank and prod(source.shape) == prod(sizes):
        for along in (rank - 1, rank - 2):
            others = {d for e in view.indices[:-1] for d in affine.dims_in(e)}
            if view.indices[-1] != dims[along] or along in others or sizes[along] != source.shape[-1]:
                continue
            if along == rank - 1:
                return _Operand(view.source, view.indices, sizes, is_transposed)
            dims[-1], dims[-2] = dims[-2], dims[-1]
            indices = tuple(affine.substitute(e, dims) for e in view.indices)
            return _Operand(view.source, indices, (*sizes[:-2], sizes[-1], sizes[-2]), not is_transposed)
    return _Operand(value, tuple(dims), sizes, is_transposed)


def _padding(operands: tuple[_Operand, _Operand]) -> tuple[_Padding, _Padding] | None:
    """What both get, or None where it is nothing."""
    lhs, rhs = operands
    # Whether the sums run along the rows of each.
    along = (not lhs.is_transposed, rhs.is_transposed)
    more = -lhs.sizes[-1 if along[0] else -2] % _GRAIN if any(along) else 0
    found = [
        _Padding(0, more, is_read=True) if is_along else _Padding(more, -x.sizes[-1] % _GRAIN, is_read=False)
        for x, is_along in zip(operands, along, strict=True)
    ]
    return None if all(p.is_empty for p in found) else (found[0], found[1])


def _pays(
    op: ir.Operation,
    operands: tuple[_Operand, _Operand],
    wanted: tuple[_Padding, _Padding],
    made: _Made,
    chip: Machine,
) -> bool:
    """Whether the library's product of such rows, and copies of them, take less time than its product now."""
    model = TABLE.model
    lhs = operands[0]
    peak = chip.peak_time(prod(_type(op.results[0]).shape) * lhs.sizes[-2 if lhs.is_transposed else -1])
    lengths = [x.sizes[-1] for x, p in zip(operands, wanted, strict=True) if p.columns]
    now = peak / model[f"rows_of_{min(n & -n for n in lengths)}"] if lengths else 0.0
    copies = 0.0
    for operand, padding in zip(operands, wanted, strict=True):
        if not padding.is_empty and (operand.source, padding.rows, padding.columns) not in made:
            moved = 2 * 2 * prod(operand.sizes)
            copies += chip.second_kernel_time + moved / (chip.memory_rate * model["copy_rate"])
    return peak / model["library_rate"] + copies < model["margin"] * now


def _padded(op: ir.Operation, operand: _Operand, padding: _Padding, made: _Made) -> ir.Value:
    """The operand, not transposed, with rows of memory that are padded; zeros that are not to be read are no part of
    it.
    """
    dims: list[ir.AffineExpr] = [ir.AffineExpr.get_dim(k) for k in range(len(operand.sizes))]
    with ir.InsertionPoint(op), op.location:
        if padding.rows and not operand.is_source:
            view = kiln.view(operand.source, _map(operand.indices, len(dims)), _sizes(operand.sizes))
            operand = _Operand(view, tuple(dims), operand.sizes, operand.is_transposed)
    key = (operand.source, padding.rows, padding.columns)
    if key not in made:
        with _behind(operand.source), op.location:
            made[key] = _with_zeros(operand.source, padding)
            _read_padded(operand.source, made[key])
    width = operand.sizes[-1] + (padding.columns if padding.is_read else 0)
    sizes = (*operand.sizes[:-2], operand.sizes[-2] + padding.rows, width)
    if operand.is_source and sizes == tuple(_type(made[key]).shape):
        return made[key]
    with ir.InsertionPoint(op), op.location:
        return kiln.view(made[key], _map(operand.indices, len(dims)), _sizes(sizes))


def _read_padded(source: ir.Value, padded: ir.Value) -> None:
    """Has all readers of a computed tensor read its copy, so that it is written as that at once; not where a reader
    would rather be in the kernel that computes it.
    """
    readers = [use.owner.operation for use in source.uses if use.owner.operation != padded.owner.operation]
    if isinstance(source.owner, ir.Block) or not all(_reads_from_memory(op, source) for op in readers):
        return
    shape = _type(source).shape
    view = kiln.view(padded, ir.AffineMap.get_identity(len(shape)), _sizes(shape))
    source.replace_all_uses_except(view, padded.owner.operation)


def _reads_from_memory(op: ir.Operation, source: ir.Value) -> bool:
    """Whether a reader is a product, or sums over rows: a kernel behind the one that computes its operand."""
    if kiln.name_of(op) == "kiln.view":
        return all(_reads_from_memory(use.owner.operation, op.results[0]) for use in op.results[0].uses)
    if op.name != "linalg.generic":
        return kiln.name_of(op) == "kiln.matmul"
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(op.attributes["indexing_maps"])]
    kinds = ["reduction" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])]
    columns = [affine.dims_in(m.results[-1]) for m, v in zip(maps, op.operands, strict=True) if v == source]
    return any(kinds) and not any(kinds[d] for dims in columns for d in dims)


def _behind(value: ir.Value) -> ir.InsertionPoint:
    """Where a copy of `value` serves all its readers that follow: behind what makes it."""
    if isinstance(value.owner, ir.Block):
        return ir.InsertionPoint.at_block_begin(value.owner)
    return ir.InsertionPoint.after(value.owner.operation)


def _with_zeros(value: ir.Value, padding: _Padding) -> ir.Value:
    """The whole tensor with zeros behind its rows and their elements."""
    type_ = _type(value)
    shape = list(type_.shape)
    element = type_.element_type
    zero = ir.Operation.create(
        "arith.constant", results=[element], attributes={"value": ir.FloatAttr.get(element, 0.0)}
    )
    before = [0] * len(shape)
    high = [*before[2:], padding.rows, padding.columns] if len(shape) > 1 else [padding.columns]
    whole = [n + more for n, more in zip(shape, high, strict=True)]
    return kiln.pad(value, zero.result, _sizes(before), _sizes(high), _sizes(whole))


def _map(indices: Sequence[ir.AffineExpr], rank: int) -> ir.AffineMap:
    return ir.AffineMap.get(rank, 0, list(indices))


def _sizes(values: Sequence[int]) -> ir.AffineMap:
    return ir.AffineMap.get(0, 0, [ir.AffineExpr.get_constant(n) for n in values])
