# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which products a library does faster on an NVIDIA GPU, and why (`conv_choice`, `attention_choice`: other ops).

Measured on an H200 (docs/gpu.md). Each function gets an op at the kiln stage and returns a reason to call ATen, or None
to keep the op for a kernel of its own.
"""

from math import prod

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.schedules.gpu import TmaSchedule
from kiln.lowering import paths
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, Machine, machine
from kiln.lowering.gpu.dot.readers import generic_readers, source
from kiln.lowering.gpu.dot.schedule import ProductShape, best_tile, choose_product, tile_time
from kiln.lowering.gpu.dot.split import split_parts

__all__ = [
    "added_bias",
    "parts_of_product",
    "product_reason",
    "stands_alone",
]

_LIBRARY = paths.group(
    "cuda library",
    "wide floats",
    "few tiles",
    "GELU",
    "nothing behind",
    "some rows",
    "reduction behind",
    "siblings that meet",
    "rows no lines",
    "long sums",
    "batches with rows anywhere",
    "batches",
    "any rows",
)
_OWN = paths.group(
    "cuda no library",
    "few rows",
    "small product of wide floats",
    "in parts",
    "rows of results anywhere",
    "siblings",
    "with something behind",
)

_NARROW = (ir.BF16Type, ir.F16Type)
_FEW = 16
"""Rows up to which the weights' memory decides, which our kernels read at full speed."""
# Multiplications of an H200; other chips have as many as take them as long (`Machine.scaled`).
_LARGE = 1 << 31
"""From here the difference is more than a kernel for what follows costs."""
_LARGE_ALONE = 1 << 28
"""The same where nothing follows: from here the difference is more than the call costs."""
_LARGE_WIDE = 1 << 25
"""The same for f32 and f64."""
_SOME, _LARGE_WEIGHTS = 128, 1 << 24
"""Rows, and elements of the matrix that they are multiplied with, of products that wait for that matrix's memory."""
_GRAIN = 8
"""Elements of 16 bits in 16 bytes, which hardware moves at once."""
_LINE = 64
"""Elements of 16 bits in 128 bytes."""
_WIDE = (ir.F32Type, ir.F64Type)
_LARGE_FOR_ANY_ROWS = 1 << 20
_LONG = 8192
"""Terms of a sum from which 4 % of the product's time is more than one pass over its result."""
_FEW_TILES = 4
"""Multiprocessors per tile from which a library that splits sums has much to gain."""
_SMALL_RESULT = 1 << 16
"""Elements of partial sums that are added up in no time."""
_LONG_TIME = 10_000.0
"""Nanoseconds of a product, by the model, below which there is nothing to gain."""


def product_reason(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> str | None:
    """Products that cuBLAS does faster, the pass over memory included that what follows costs then.

    Against cuBLAS, 16 bits: 0.96 at 4096 cubed, 0.94 at 1024 cubed, 0.84 to 0.87 where rows are no whole lines, 0.65
    with 64 rows (1.18 with GELU and `tensor_maps`), and 1.2 to 1.7 times as fast up to 16 rows. f32 without tensor
    cores is emitted as plain multiply-adds. A bias goes into the call. Small products are ours: a call costs more
    than it saves. So are 16-bit ones where rows of the result do not start at multiples of 16 bytes (the logits of a
    vocabulary of 50257): cuBLAS has slow kernels only for these, while ours need that of operands alone.
    """
    lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
    chip = machine(arch)
    is_turned = _transposed(op, "transpose_lhs")
    if lhs.element_type != rhs.element_type:
        return None
    if not rhs.has_static_shape or (rhs.rank > 2 or is_turned) and lhs.rank != rhs.rank:
        return None
    if not (lhs.has_static_shape and result.has_static_shape):
        return _reason_for_any_rows(op) if rhs.rank == 2 and not is_turned else None
    if rhs.rank > 2:
        return _reason_for_batch(op, tensor_maps, chip)
    rows, terms = prod(result.shape[:-1]), lhs.shape[-2 if is_turned else -1]
    weights = terms * result.shape[-1]
    work = rows * weights
    if rows <= _FEW:
        return _OWN("few rows")
    if isinstance(lhs.element_type, _WIDE):
        if work < chip.scaled(_LARGE_WIDE):
            return _OWN("small product of wide floats")
        return _LIBRARY("wide floats", "cuBLAS: products of wide floats are faster there")
    if (
        isinstance(lhs.element_type, _NARROW)
        and parts_of_product(op, arch) > 1
        and (prod(result.shape) <= _SMALL_RESULT or list(generic_readers(op.results[0])))
    ):
        return _OWN("in parts")  # in parts: 1.06 to 1.5 of cuBLAS without what follows, 1.2 to 1.9 with it
    if isinstance(lhs.element_type, _NARROW) and _leaves_idle(op, rows, chip):
        return _LIBRARY("few tiles", "cuBLAS: so few tiles leave most of the GPU idle, and it splits the sums")
    if not isinstance(lhs.element_type, _NARROW) or work < chip.scaled(_LARGE_ALONE):
        return None
    grain = _row_grain(*op.operands)
    if grain % _GRAIN == 0 and _row_grain(op.results[0]) % _GRAIN:
        return _OWN("rows of results anywhere")
    bias, value = added_bias(op.results[0])
    readers = list(generic_readers(value))
    if bias is not None and work >= chip.scaled(_LARGE) and gelu_behind(value) is not None:
        return _LIBRARY("GELU", "cuBLAS: GELU through tanh is part of its products")
    if not readers and work < chip.scaled(_LARGE) and _siblings(op) > 1:
        return _OWN("siblings")  # one launch in place of three; not measured against three calls
    if not readers:
        what = "a product with nothing but a bias behind it" if bias is not None else "a product with nothing behind it"
        return _LIBRARY("nothing behind", f"cuBLAS: {what} is faster there")
    through_maps = tensor_maps and not is_turned and _takes_descriptors(op, rows, chip)
    if rows <= _SOME and weights >= _LARGE_WEIGHTS and not through_maps:
        return _LIBRARY("some rows", "cuBLAS: a product with 17 to 128 rows is faster there")
    if work < chip.scaled(_LARGE):
        return None
    if _ends_in_rows(value):
        return _LIBRARY("reduction behind", "cuBLAS: what follows this product belongs to the kernel of a reduction")
    if any(_meets_sibling(op, reader) for reader in readers):
        return _LIBRARY("siblings that meet", "cuBLAS: two sums in one loop have not been measured to be faster")
    if grain % _LINE:
        return _LIBRARY("rows no lines", "cuBLAS: rows that are no whole lines are loaded faster there")
    if terms >= _LONG:
        return _LIBRARY("long sums", "cuBLAS: the sums are so long that what follows them hardly counts")
    return _OWN("with something behind")


def _reason_for_batch(op: ir.Operation, tensor_maps: bool, chip: Machine) -> str | None:
    """The same for a product of each pair of matrices of two batches: where nothing follows, or a reduction. Through
    `tensor_maps` ours are 0.98 to 1.14 of cuBLAS (384 of 512x512x64 and of 512x64x512, 16 of 1024 cubed, 128 of 256
    cubed, 8 of 2048x2048x512), without a call. Operands whose rows start anywhere take cuBLAS a third of our time (16
    of 1023x64x1023: 36 us, 116), but not where the result's rows do, too (16 of 1023 cubed: 255 us, 182; padded 97).

    Several batch dims may not be one for the library; the copy that it takes then pays for f32 only.
    """
    lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
    if not lhs.shape[:-2] == rhs.shape[:-2] == result.shape[:-2] or min(result.shape[-2:]) <= _FEW:
        return None
    work = prod(result.shape) * lhs.shape[-2 if _transposed(op, "transpose_lhs") else -1]
    readers = list(generic_readers(op.results[0]))
    if isinstance(lhs.element_type, _WIDE):
        if work < chip.scaled(_LARGE_WIDE):
            return _OWN("small product of wide floats")
        return _LIBRARY("wide floats", "cuBLAS: products of wide floats are faster there")
    if (
        not isinstance(lhs.element_type, _NARROW)
        or lhs.rank > 3
        or work < chip.scaled(_LARGE if readers else _LARGE_ALONE)
    ):
        return None
    if _row_grain(*op.operands) % _GRAIN and _row_grain(op.results[0]) % _GRAIN == 0:
        return _LIBRARY(
            "batches with rows anywhere",
            "cuBLAS: batches of matrices whose rows start anywhere are loaded faster there",
        )
    # Equal views become one operand of the kernel, which has one descriptor at most.
    if tensor_maps and source(op.operands[0]) != source(op.operands[1]):
        return None
    if _row_grain(*op.operands, op.results[0]) % _GRAIN or readers and not _ends_in_rows(op.results[0]):
        return None
    return _LIBRARY("batches", "cuBLAS: batches of matrices are loaded faster there")


def _reason_for_any_rows(op: ir.Operation) -> str | None:
    """The same where the number of rows is known at run time only. Ours has one tile for all of them then; the library
    chooses when it knows the number. Against eager, GELU behind, ours through tensor maps is 0.46 for 16 rows of
    4096 x 4096, 0.88 for 300, 0.96 for 1000, 0.93 for 4096, and 0.62 to 0.99 of 768 x 3072."""
    weights = ir.RankedTensorType(op.operands[1].type)
    narrow = isinstance(weights.element_type, _NARROW)
    if not (narrow or isinstance(weights.element_type, _WIDE)) or prod(weights.shape) < _LARGE_FOR_ANY_ROWS:
        return None
    if narrow and _row_grain(*op.operands, op.results[0]) % _GRAIN:
        return None
    return _LIBRARY("any rows", "cuBLAS: it chooses when the number of rows is known")


def parts_of_product(op: ir.Operation, arch: str) -> int:
    """Into how many parts the sums of a product are split in kernels of our own; 1: none."""
    lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
    known = lhs.has_static_shape and rhs.has_static_shape and result.has_static_shape
    if not known or lhs.rank != 2 or rhs.rank != 2 or lhs.element_type != rhs.element_type:
        return 1
    if _transposed(op, "transpose_lhs") or lhs.element_type != result.element_type or _siblings(op) > 1:
        return 1
    return split_parts(_shape(op, lhs.shape[0]), machine(arch))


def stands_alone(op: ir.Operation) -> bool:
    """Whether a product's kernel holds nothing but it and pointwise ops behind it: no other product of the same matrix,
    and no reduction that those ops would rather be with."""
    value = added_bias(op.results[0])[1]
    meets = any(_meets_sibling(op, reader) for reader in generic_readers(value))
    return _siblings(op) == 1 and not meets and not _ends_in_rows(value)


def _row_grain(*matrices: ir.Value) -> int:
    """The largest power of two that divides the distances of the rows, in elements."""
    lengths = [_row_length(v) for v in matrices]
    return min(n & -n for n in lengths)


def _row_length(matrix: ir.Value) -> int:
    """From one row to the next: of the matrix that it is the first columns of (`pad-products`), or its own."""
    while not isinstance(matrix.owner, ir.Block) and kiln.name_of(matrix.owner) == "kiln.view":
        view = matrix.owner.operation
        map_ = ir.AffineMapAttr(view.attributes["map"]).value
        if len(view.operands) > 1 or map_ != ir.AffineMap.get_identity(map_.n_dims):
            break
        matrix = view.operands[0]
    return ir.RankedTensorType(matrix.type).shape[-1]


def _takes_descriptors(op: ir.Operation, rows: int, chip: Machine) -> bool:
    """Whether the schedule of the product's own kernel would load row-major operands through descriptors."""
    return isinstance(choose_product(_shape(op, rows), chip, descriptors=True), TmaSchedule)


def _leaves_idle(op: ir.Operation, rows: int, chip: Machine) -> bool:
    """Whether the best tile makes so few programs, each with so long a sum, that most multiprocessors wait for them, or
    is so small to make more that it takes longer than the model says (128x256x8192: 16.4 us, the library 8.5)."""
    shape = _shape(op, rows)
    assert shape.n is not None
    if shape.n == 1:
        return False
    height, width = tile = best_tile(shape, chip)
    tiles = -(-rows // height) * -(-shape.n // width)
    if tile == (16, 16) and shape.k is not None and shape.k >= _LONG:
        return True
    return tiles * _FEW_TILES <= chip.sms and tile_time(shape, chip, tile) >= _LONG_TIME


def _shape(op: ir.Operation, rows: int) -> ProductShape:
    """A product of row-major operands."""
    lhs, rhs = (ir.RankedTensorType(v.type) for v in op.operands)
    terms, columns = lhs.shape[-1], ir.RankedTensorType(op.results[0].type).shape[-1]
    left, right = (_row_length(v) for v in op.operands)
    strides = (1, right) if _transposed(op, "transpose_rhs") else (right, 1)
    return ProductShape(1, rows, columns, terms, (left, 1), strides, str(rhs.element_type))


def _siblings(op: ir.Operation) -> int:
    """Products of the same matrix with others of the same sizes, itself among them: fusion makes them one kernel."""
    found = [use.owner.operation for use in op.operands[0].uses if use.operand_number == 0]
    return sum(kiln.name_of(x) == "kiln.matmul" and x.operands[1].type == op.operands[1].type for x in found)


def added_bias(value: ir.Value) -> tuple[ir.Value | None, ir.Value]:
    """The vector added to a product's rows by its only reader, and that reader's result; (None, value) if there is
    none."""
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
