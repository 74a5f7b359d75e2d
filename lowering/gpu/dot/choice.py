# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which products a library does faster on an NVIDIA GPU, and why (`conv_choice`, `attention_choice`: other ops).

A case is taken from the op and its surroundings; the first row of `lowering/gpu/choices/matmul.toml` that it belongs to
decides, or else the cheaper of Kiln's kernel and the library's call by the cost model (`product_cost.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.affine import dims_in
from kiln.dialects.shapes import SymbolicShapes
from kiln.lowering import paths
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.likely import are_known, likely_sizes
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, Machine, machine
from kiln.lowering.gpu.dot.measured import decide, table
from kiln.lowering.gpu.dot.product_cost import Traits, library_time, own_time
from kiln.lowering.gpu.dot.readers import generic_readers, source
from kiln.lowering.gpu.dot.schedule import ProductShape, best_tile
from kiln.lowering.gpu.dot.split import split_parts
from kiln.lowering.gpu.rules import ProductRules, rules_for

__all__ = [
    "ProductCase",
    "added_bias",
    "parts_of_product",
    "product_reason",
    "stands_alone",
]

_KINDS = {"bf16": "narrow", "f16": "narrow", "f32": "wide", "f64": "wide"}
_BEHIND_CALL = ("pointwise", "sibling")
"""What needs a kernel behind a call that reads the result again. A bias is part of the call, and what leads to a
reduction is part of that one's kernel."""
_LINE = 64
"""Elements of 16 bits in 128 bytes."""
_FUNCTIONS = ("math.erf", "math.exp", "math.exp2", "math.log", "math.tanh")
_MOST_BEHIND = 32
"""Ops that are looked at behind a product: it bounds the search. Not measured."""


@dataclass(frozen=True)
class ProductCase:
    """A product as choices see it. Fields that do not apply to a batch have their defaults.

    kind: "narrow" (16 bits), "wide" (f32, f64) or "other". known: all sizes are; if not, the other fields are of
    what they were about when the graph was traced. batch: each side has a matrix of its own for each result. dims: of
    lhs. rows, columns, terms: of [rows, terms] x [terms, columns], those of all leading
    dims together. weights: elements of rhs; result: of the result. work: nanoseconds of the multiply-adds at the peak
    of the machine's tensor cores. grain, result_grain: as in `product_cost.Traits`. behind: "nothing", "bias",
    "gelu" (with a bias), "reduction" (pointwise ops and then one over the rows), "sibling" (pointwise ops that read
    another product of lhs, too) or "pointwise". functions: exponentials, error functions and the like for each element
    behind it. siblings: products of lhs with matrices of one size, this one among
    them. parts: of the sums (`split.py`). tile: elements of the best tile. maps: operands may come through tensor maps,
    each through its own.
    """

    dtype: str
    kind: str
    known: bool
    batch: bool
    dims: int
    weights: int
    grain: int
    result_grain: int
    rows: int
    columns: int
    terms: int
    result: int
    work: float
    tile: int
    behind: str = "nothing"
    functions: int = 0
    siblings: int = 1
    parts: int = 1
    maps: bool = False


TABLE = table("matmul", ProductCase)
_LIBRARY = paths.group(
    "cuda library", *TABLE.names("library"), "nothing behind", "reduction behind", "rows no lines", "in less time"
)
_OWN = paths.group("cuda no library", *TABLE.names("own"), "in less time")


@dataclass(frozen=True)
class _Sizes:
    """Of a product's operands and result: where they are known at run time only, likely ones."""

    lhs: Sequence[int]
    rhs: Sequence[int]
    result: Sequence[int]


def _sizes(op: ir.Operation) -> _Sizes:
    found = likely_sizes([*op.operands, op.results[0]], unknown=rules_for(ProductRules).dynamic_size)
    assert found is not None, "each has a number"
    return _Sizes(*found)


def product_reason(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> str | None:
    """Why to call cuBLAS for a product at the kiln stage; None to keep the op for a kernel of its own.

    tensor_maps: kernels may load operands through these. arch: the GPU.
    """
    chip = machine(arch)
    sizes = _sizes(op)
    shape = _supported_shape(op, sizes)
    if shape is None:
        return None
    case = _case(op, sizes, shape, tensor_maps, chip)
    row = TABLE.find(case)
    if row is not None:
        return decide(row, case, _OWN, _LIBRARY)
    traits = Traits(case.grain, case.result_grain, passes=case.behind in _BEHIND_CALL)
    model = TABLE.model
    if own_time(shape, traits, chip, model) < model["margin"] * library_time(shape, traits, chip, model):
        return _OWN("in less time")
    return _faster(case)


def _faster(case: ProductCase) -> str:
    """What the cost model finds the library faster for, in words."""
    if case.kind == "wide":
        return _LIBRARY("wide floats", "cuBLAS: products of wide floats are faster there")
    if case.behind in ("nothing", "bias"):
        what = "nothing but a bias" if case.behind == "bias" else "nothing"
        return _LIBRARY("nothing behind", f"cuBLAS: a product with {what} behind it is faster there")
    if case.behind == "reduction":
        return _LIBRARY("reduction behind", "cuBLAS: what follows this product belongs to the kernel of a reduction")
    if case.grain % _LINE:
        return _LIBRARY("rows no lines", "cuBLAS: rows that are no whole lines are loaded faster there")
    return _LIBRARY("in less time", "cuBLAS: faster, with what follows as a kernel behind it")


def _supported_shape(op: ir.Operation, sizes: _Sizes) -> ProductShape | None:
    """The product of row-major operands that a library's call can do, with all leading dims of lhs as rows; of a batch,
    of one of its matrices. Sizes known at run time only are likely ones. None: other types, or dims that do not pair.
    """
    lhs, rhs = (ir.RankedTensorType(v.type) for v in op.operands)
    is_turned = _transposed(op, "transpose_lhs")
    if lhs.element_type != rhs.element_type or str(lhs.element_type) not in _KINDS:
        return None
    if (rhs.rank > 2 or is_turned) and lhs.rank != rhs.rank:
        return None
    if rhs.rank > 2 and (not _are_paired(op) or min(sizes.result[-2:]) <= rules_for(ProductRules).few_rows):
        return None
    return _shape(op, sizes, prod(sizes.result[:-1] if rhs.rank == 2 else sizes.result[-2:-1]))


def _are_paired(op: ir.Operation) -> bool:
    """Whether each matrix of a batch has one of its own on the other side."""
    shapes = SymbolicShapes(op.parent)
    lhs, rhs, result = (shapes.dims(v)[:-2] for v in (*op.operands, op.results[0]))
    return lhs == rhs == result


def _case(op: ir.Operation, sizes: _Sizes, shape: ProductShape, tensor_maps: bool, chip: Machine) -> ProductCase:
    lhs, rhs = (ir.RankedTensorType(v.type) for v in op.operands)
    batch, kind = rhs.rank > 2, _KINDS.get(shape.dtype, "other")
    assert shape.m is not None and shape.n is not None and shape.k is not None, "likely ones"
    tile = (1, 1) if 1 in (shape.m, shape.n) else best_tile(shape, chip)
    return ProductCase(
        dtype=shape.dtype,
        kind=kind,
        known=are_known([*op.operands, op.results[0]]),
        batch=batch,
        dims=lhs.rank,
        weights=prod(sizes.rhs),
        grain=_row_grain(*op.operands),
        result_grain=_row_grain(op.results[0]),
        rows=shape.m,
        columns=shape.n,
        terms=shape.k,
        result=prod(sizes.result),
        work=chip.peak_time(prod(sizes.result) * shape.k),
        behind=_behind(op, bias=not batch),
        functions=_functions_behind(op),
        siblings=1 if batch else _siblings(op),
        parts=parts_of_product(op, chip.arch) if kind == "narrow" else 1,
        tile=tile[0] * tile[1],
        # Equal views become one operand of the kernel, which has one descriptor at most.
        maps=tensor_maps and source(op.operands[0]) != source(op.operands[1]),
    )


def _behind(op: ir.Operation, bias: bool) -> str:
    """What is behind a product: see `ProductCase`. bias: one that is added is part of the product."""
    added, value = added_bias(op.results[0]) if bias else (None, op.results[0])
    readers = list(generic_readers(value))
    if added is not None and gelu_behind(value) is not None:
        return "gelu"
    if not readers:
        return "nothing" if added is None else "bias"
    if _ends_in_rows(value):
        return "reduction"
    return "sibling" if any(_meets_sibling(op, reader) for reader in readers) else "pointwise"


def _functions_behind(op: ir.Operation) -> int:
    """How often the pointwise ops that read a product compute a function, on the way to their other operands as well: a
    gradient of GELU has an error function and an exponential of what the activation was given.
    """
    size = ir.RankedTensorType(op.results[0].type).shape
    pending = list(generic_readers(op.results[0]))
    seen: list[ir.Operation] = []
    while pending and len(seen) < _MOST_BEHIND:
        generic = pending.pop(0)
        if generic in seen or _reduces_rows(generic):
            continue
        seen.append(generic)
        made = [v.owner.operation for v in generic.operands if not isinstance(v.owner, ir.Block)]
        pending += [
            x for x in made if x.name == "linalg.generic" and ir.RankedTensorType(x.results[0].type).shape == size
        ]
        pending += generic_readers(generic.results[0])
    return sum(inner.operation.name in _FUNCTIONS for x in seen for inner in x.regions[0].blocks[0])


def parts_of_product(op: ir.Operation, arch: str) -> int:
    """Into how many parts the sums of a product are split in kernels of our own; 1: none."""
    lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
    known = lhs.has_static_shape and rhs.has_static_shape and result.has_static_shape
    if not known or lhs.rank != 2 or rhs.rank != 2 or lhs.element_type != rhs.element_type:
        return 1
    if _transposed(op, "transpose_lhs") or lhs.element_type != result.element_type or _siblings(op) > 1:
        return 1
    sizes = _Sizes(lhs.shape, rhs.shape, result.shape)
    return split_parts(_shape(op, sizes, lhs.shape[0]), machine(arch))


def stands_alone(op: ir.Operation) -> bool:
    """Whether a product's kernel holds nothing but it and pointwise ops behind it: no other product of the same matrix,
    and no reduction that those ops would rather be with.
    """
    value = added_bias(op.results[0])[1]
    meets = any(_meets_sibling(op, reader) for reader in generic_readers(value))
    return _siblings(op) == 1 and not meets and not _ends_in_rows(value)


def _row_grain(*matrices: ir.Value) -> int:
    """The largest power of two that divides the distances of the rows, in elements."""
    lengths = [_row_length(v) for v in matrices]
    return min(n & -n for n in lengths)


def _row_length(matrix: ir.Value) -> int:
    """From one row to the next, also of a tensor whose rows it has, or their first columns (`pad-products`); 1 where it
    is known at run time only.
    """
    while not isinstance(matrix.owner, ir.Block) and kiln.name_of(matrix.owner) == "kiln.view":
        view = matrix.owner.operation
        map_ = ir.AffineMapAttr(view.attributes["map"]).value
        along = map_.n_dims - 1
        if len(view.operands) > 1 or not map_.results or map_.results[-1] != ir.AffineExpr.get_dim(along):
            break
        if any(along in dims_in(e) for e in list(map_.results)[:-1]):
            break
        matrix = view.operands[0]
    type_ = ir.RankedTensorType(matrix.type)
    return 1 if type_.is_dynamic_dim(type_.rank - 1) else type_.shape[-1]


def _shape(op: ir.Operation, sizes: _Sizes, rows: int) -> ProductShape:
    """A product of row-major operands."""
    terms = sizes.lhs[-2 if _transposed(op, "transpose_lhs") else -1]
    left, right = (_row_length(v) for v in op.operands)
    lhs_strides = (1, left) if _transposed(op, "transpose_lhs") else (left, 1)
    rhs_strides = (1, right) if _transposed(op, "transpose_rhs") else (right, 1)
    dtype = str(ir.RankedTensorType(op.operands[1].type).element_type)
    return ProductShape(1, rows, sizes.result[-1], terms, lhs_strides, rhs_strides, dtype)


def _siblings(op: ir.Operation) -> int:
    """Products of the same matrix with others of the same sizes, itself among them: fusion makes them one kernel."""
    found = [use.owner.operation for use in op.operands[0].uses if use.operand_number == 0]
    return sum(kiln.name_of(x) == "kiln.matmul" and x.operands[1].type == op.operands[1].type for x in found)


def added_bias(value: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """The vector added to a product's rows by its only reader, and that reader's result; (None, value) if there is
    none.
    """
    uses = list(value.uses)
    if len(uses) != 1 or kiln.name_of(uses[0].owner) != "linalg.generic":
        return None, value
    generic = uses[0].owner.operation
    if len(generic.operands) != 3 or generic.operands[0] != value or generic.operands[1] == value:
        return None, value
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(generic.attributes["indexing_maps"])]
    rank = maps[0].n_dims
    last = ir.AffineMap.get(rank, 0, [ir.AffineDimExpr.get(rank - 1)])
    identity = ir.AffineMap.get_identity(rank)
    bias = ir.RankedTensorType(generic.operands[1].type)
    same = bias.element_type == ir.RankedTensorType(value.type).element_type
    body = [inner.operation.name for inner in generic.regions[0].blocks[0]]
    is_sum = [n for n in body if n not in ("arith.extf", "arith.truncf")] == ["arith.addf", "linalg.yield"]
    # Along a leading dim of size 1 the index may be the constant 0.
    sizes = ir.RankedTensorType(value.type).shape
    in_place = all(
        e == ir.AffineDimExpr.get(d) or (sizes[d] == 1 and e == ir.AffineConstantExpr.get(0))
        for d, e in enumerate(maps[0].results)
    )
    if not (same and is_sum and in_place and maps[1] == last and maps[2] == identity and len(sizes) == rank):
        return None, value
    if generic.results[0].type != value.type:
        return None, value
    return generic.operands[1], generic.results[0]


def _ends_in_rows(value: ir.Value, depth: int = 6) -> bool:
    """Whether pointwise readers, and theirs, lead to a reduction over rows: fusion puts them into its kernel."""
    for reader in [use.owner.operation for use in value.uses]:
        name = kiln.name_of(reader)
        if _reduces_rows(reader):
            return True
        if name in ("linalg.generic", "kiln.view") and depth and _ends_in_rows(reader.results[0], depth - 1):
            return True
    return False


def _meets_sibling(op: ir.Operation, reader: ir.Operation, depth: int = 3) -> bool:
    """Whether a pointwise reader, or one of its readers, also takes another product of the same matrix."""
    if any(_comes_from_sibling(op, operand) for operand in reader.operands):
        return True
    return depth > 0 and any(_meets_sibling(op, r, depth - 1) for r in generic_readers(reader.results[0]))


def _comes_from_sibling(op: ir.Operation, value: ir.Value, depth: int = 4) -> bool:
    if isinstance(value.owner, ir.Block) or not depth:
        return False
    maker = value.owner.operation
    if kiln.name_of(maker) == "kiln.matmul":
        return maker.operands[0] == op.operands[0] and maker.results[0] != op.results[0]
    if kiln.name_of(maker) not in ("linalg.generic", "kiln.view"):
        return False
    return any(_comes_from_sibling(op, operand, depth - 1) for operand in maker.operands)


def _reduces_rows(op: ir.Operation) -> bool:
    """Whether an op is a reduction, other than over windows."""
    if kiln.name_of(op) == "linalg.generic":
        return "reduction" in str(op.attributes["iterator_types"])
    return kiln.opdef(op).role is kiln.Role.REDUCTION and not isinstance(op.opview, kiln.PoolOp)


def _transposed(op: ir.Operation, name: str) -> bool:
    return bool(ir.IntegerAttr(op.attributes[name]).value)
