# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Which products and attentions a library does faster on an NVIDIA GPU, and why (convolutions: `conv_choice`).

Measured on an H200 (docs/gpu.md). Each function gets an op at the kiln stage and returns a reason to call ATen, or None
to keep the op for a kernel of its own.
"""

from collections.abc import Iterator
from itertools import combinations
from math import prod

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.lowering.gpu.dot.activation import gelu_behind
from kiln.lowering.gpu.dot.attention_schedule import AttentionShape, choose_specialized
from kiln.lowering.gpu.dot.machine import DEFAULT_ARCH, machine
from kiln.lowering.gpu.dot.schedule import ProductShape, best_tile, choose_product, tile_time
from kiln.lowering.gpu.dot.split import split_parts

__all__ = [
    "added_bias",
    "attention_alone",
    "attention_reason",
    "parts_of_product",
    "product_reason",
    "stands_alone",
]

_NARROW = (ir.BF16Type, ir.F16Type)
_FEW = 16
"""Rows up to which the weights' memory decides, which our kernels read at full speed."""
_LARGE = 1 << 31
"""Multiplications from which the difference is more than a kernel for what follows costs."""
_LARGE_ALONE = 1 << 28
"""The same where nothing follows: from here the difference is more than the call costs."""
_SOME, _LARGE_WEIGHTS = 128, 1 << 24
"""Rows, and elements of the matrix that they are multiplied with, of products that wait for that matrix's memory."""
_GRAIN = 8
"""Elements of 16 bits in 16 bytes, which hardware moves at once."""
_LINE = 64
"""Elements of 16 bits in 128 bytes."""
_WIDE = (ir.F32Type, ir.F64Type)
_LARGE_WIDE = 1 << 25
_LARGE_FOR_ANY_ROWS = 1 << 20
_LONG = 8192
"""Terms of a sum from which 4 % of the product's time is more than one pass over its result."""
_FEW_TILES = 4
"""Multiprocessors per tile from which a library that splits sums has much to gain."""
_SMALL_RESULT = 1 << 16
"""Elements of partial sums that are added up in no time."""
_LONG_TIME = 10_000.0
"""Nanoseconds of a product, by the model, below which there is nothing to gain."""
_SMALL_ATTENTION = 1 << 33
"""Floating-point operations that take some 15 us, as long as a call through ATen takes the CPU."""
_FEW_KEYS = 2048
"""Up to which programs of 64 queries with heads of 128, a multiprocessor for each, are 1.2 to 1.6 times as fast as
cuDNN."""
_MANY_KEYS = 1024
"""From which on, without a causal mask, a quarter of the attention's time is more than a pass over its result."""
_ROW_OPS = ("kiln.softmax", "kiln.layer_norm", "kiln.rms_norm", "kiln.group_norm")


def attention_reason(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> str | None:
    """Plain 16-bit attention with heads of 64 to 128 elements. With 128 elements Hopper's kernel of warps with
    different jobs is 0.98 to 1.23 of cuDNN's, with 72 to 120 it is 1.00 to 1.28; the one for all GPUs 0.78, causal 0.83
    (0.75 to 0.89), and with few tokens 1.2 to 1.6.
    With 64 and keys and values through `tensor_maps` it is 0.99 to 1.05 of it, with few tokens twice as fast (0.74 to
    1.1 through pointers). Masks and f32 are ours, and heads of 64 elements with little work: 0.86 of cuDNN is less time
    than the call takes.
    """
    query, value = (ir.RankedTensorType(op.operands[i].type) for i in (0, 2))
    if len(op.operands) > 3 or query.rank != 4 or not isinstance(query.element_type, _NARROW):
        return None
    if not ir.RankedTensorType(op.results[0].type).has_static_shape:
        return None
    rows, size = query.shape[-2:]
    is_causal = bool(ir.BoolAttr(op.attributes["causal"]).value)
    work = 4 * prod(query.shape) * value.shape[-2] // (2 if is_causal else 1)
    if size == value.shape[-1] == 64 and value.has_static_shape and work <= _SMALL_ATTENTION:
        return None
    if not 64 <= size <= 128 or size != value.shape[-1] or rows < (1024 if size == 64 else 128):
        return None
    if tensor_maps and (size == 64 or _is_own(op, arch)):
        return None
    return f"cuDNN: attention with heads of {size} elements is faster there"


def attention_alone(op: ir.Operation, tensor_maps: bool = False, arch: str = DEFAULT_ARCH) -> bool:
    """Whether what is behind an attention of our own is better a kernel behind it: Hopper's kernel, which takes nothing
    behind it, gains more than the pass over its result costs (4 x 16 heads of 128, 2048 tokens: the kernel for all GPUs
    with one pointwise op 306 us, cuDNN's with a kernel behind it 251)."""
    if not tensor_maps or next(_generic_readers(op.results[0]), None) is None:
        return False
    shape = _large_heads(op, arch)
    if shape is None or shape.keys is None or choose_specialized(shape, machine(arch), arch) is None:
        return False
    least = _MANY_KEYS * (2 if shape.causal else 1)
    return shape.keys >= (least // 2 if _loads_as_much(op.results[0]) else least)


def _loads_as_much(value: ir.Value) -> bool:
    """Whether what reads a value reads another tensor of its size: an epilogue that keeps attention's programs waiting
    (8 x 16 heads of 128, 512 tokens, divided by a function of a tensor: 54.8 us in one kernel, 49.7 in two; causal,
    1024: 117.8, 110.7; without a tensor 48.2, 47.5 and 99.1, 103.5)."""
    size = prod(ir.RankedTensorType(value.type).shape)
    others = [x for reader in _generic_readers(value) for x in list(reader.operands)[: -len(reader.results)]]
    return any(
        isinstance(x.type, ir.RankedTensorType)
        and prod(ir.RankedTensorType(x.type).shape) >= size
        and _source(x) != value
        for x in others
    )


def _is_own(op: ir.Operation, arch: str) -> bool:
    """Whether Hopper's kernel, or one for few tokens or what follows, does this attention with heads of more than 64
    elements."""
    shape = _large_heads(op, arch)
    if shape is None or shape.keys is None:
        return False
    return choose_specialized(shape, machine(arch), arch) is not None or 0 < shape.keys <= _FEW_KEYS


def _large_heads(op: ir.Operation, arch: str) -> AttentionShape | None:
    """The attention that Hopper's kernel could do: without a mask, of tensors that are no two of its operands."""
    query, key, value = (ir.RankedTensorType(op.operands[i].type) for i in range(3))
    distinct = all(a != b for a, b in combinations(list(op.operands), 2))
    if not (query.has_static_shape and key.has_static_shape and distinct) or query.shape[-1] % _GRAIN:
        return None
    if len(op.operands) > 3 or value.shape[-1] != query.shape[-1] or not isinstance(query.element_type, _NARROW):
        return None
    if not arch.startswith("sm_90") or ir.FloatAttr(op.attributes["scale"]).value <= 0:
        return None
    keys, causal, size = key.shape[-2], bool(ir.BoolAttr(op.attributes["causal"]).value), query.shape[-1]
    return AttentionShape(prod(query.shape[:-2]), query.shape[-2], keys, size, size, "bf16", causal=causal)


def product_reason(op: ir.Operation, tensor_maps: bool = False) -> str | None:
    """Products that cuBLAS does faster, the pass over memory included that what follows costs then.

    Against cuBLAS, 16 bits: 0.96 at 4096 cubed, 0.94 at 1024 cubed, 0.84 to 0.87 where rows are no whole lines, 0.65
    with 64 rows (1.18 with GELU and `tensor_maps`), and 1.2 to 1.7 times as fast up to 16 rows. f32 without tensor
    cores is emitted as plain multiply-adds. A bias goes into the call. Small products are ours: a call costs more
    than it saves. So are 16-bit ones where rows of the result do not start at multiples of 16 bytes (the logits of a
    vocabulary of 50257): cuBLAS has slow kernels only for these, while ours need that of operands alone.
    """
    lhs, rhs, result = (ir.RankedTensorType(v.type) for v in (*op.operands, *op.results))
    is_turned = _transposed(op, "transpose_lhs")
    if lhs.element_type != rhs.element_type:
        return None
    if not rhs.has_static_shape or (rhs.rank > 2 or is_turned) and lhs.rank != rhs.rank:
        return None
    if not (lhs.has_static_shape and result.has_static_shape):
        return _reason_for_any_rows(op) if rhs.rank == 2 and not is_turned else None
    if rhs.rank > 2:
        return _reason_for_batch(op, tensor_maps)
    rows, terms = prod(result.shape[:-1]), lhs.shape[-2 if is_turned else -1]
    weights = terms * result.shape[-1]
    work = rows * weights
    if rows <= _FEW:
        return None
    if isinstance(lhs.element_type, _WIDE):
        return "cuBLAS: products of wide floats are faster there" if work >= _LARGE_WIDE else None
    if (
        isinstance(lhs.element_type, _NARROW)
        and parts_of_product(op, DEFAULT_ARCH) > 1
        and (prod(result.shape) <= _SMALL_RESULT or list(_generic_readers(op.results[0])))
    ):
        return None  # in parts: 1.06 to 1.5 of cuBLAS without what follows, 1.2 to 1.9 with it
    if isinstance(lhs.element_type, _NARROW) and _leaves_idle(op, rows):
        return "cuBLAS: so few tiles leave most of the GPU idle, and it splits the sums"
    if not isinstance(lhs.element_type, _NARROW) or work < _LARGE_ALONE:
        return None
    grain = _row_grain(*op.operands)
    if grain % _GRAIN == 0 and _row_grain(op.results[0]) % _GRAIN:
        return None
    bias, value = added_bias(op.results[0])
    readers = list(_generic_readers(value))
    if bias is not None and work >= _LARGE and gelu_behind(value) is not None:
        return "cuBLAS: GELU through tanh is part of its products"
    if not readers and work < _LARGE and _siblings(op) > 1:
        return None  # one launch in place of three; not measured against three calls
    if not readers:
        what = "a product with nothing but a bias behind it" if bias is not None else "a product with nothing behind it"
        return f"cuBLAS: {what} is faster there"
    through_maps = tensor_maps and not is_turned and _takes_descriptors(op, rows)
    if rows <= _SOME and weights >= _LARGE_WEIGHTS and not through_maps:
        return "cuBLAS: a product with 17 to 128 rows is faster there"
    if work < _LARGE:
        return None
    if _ends_in_rows(value):
        return "cuBLAS: what follows this product belongs to the kernel of a reduction"
    if any(_meets_sibling(op, reader) for reader in readers):
        return "cuBLAS: two sums in one loop have not been measured to be faster"
    if grain % _LINE:
        return "cuBLAS: rows that are no whole lines are loaded faster there"
    if terms >= _LONG:
        return "cuBLAS: the sums are so long that what follows them hardly counts"
    return None


def _reason_for_batch(op: ir.Operation, tensor_maps: bool) -> str | None:
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
    readers = list(_generic_readers(op.results[0]))
    if isinstance(lhs.element_type, _WIDE):
        return "cuBLAS: products of wide floats are faster there" if work >= _LARGE_WIDE else None
    if not isinstance(lhs.element_type, _NARROW) or lhs.rank > 3 or work < (_LARGE if readers else _LARGE_ALONE):
        return None
    if _row_grain(*op.operands) % _GRAIN and _row_grain(op.results[0]) % _GRAIN == 0:
        return "cuBLAS: batches of matrices whose rows start anywhere are loaded faster there"
    # Equal views become one operand of the kernel, which has one descriptor at most.
    if tensor_maps and _source(op.operands[0]) != _source(op.operands[1]):
        return None
    if _row_grain(*op.operands, op.results[0]) % _GRAIN or readers and not _ends_in_rows(op.results[0]):
        return None
    return "cuBLAS: batches of matrices are loaded faster there"


def _source(value: ir.Value) -> ir.Value:
    """What a value is, or is a view of."""
    while not isinstance(value.owner, ir.Block) and kiln.name_of(value.owner) == "kiln.view":
        value = value.owner.operation.operands[0]
    return value


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
    return "cuBLAS: it chooses when the number of rows is known"


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
    meets = any(_meets_sibling(op, reader) for reader in _generic_readers(value))
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


def _takes_descriptors(op: ir.Operation, rows: int) -> bool:
    """Whether the schedule of the product's own kernel would load row-major operands through descriptors."""
    return choose_product(_shape(op, rows), machine(), descriptors=True)["kernel"] == "tensor_map"


def _leaves_idle(op: ir.Operation, rows: int) -> bool:
    """Whether the best tile makes so few programs, each with so long a sum, that most multiprocessors wait for them, or
    is so small to make more that it takes longer than the model says (128x256x8192: 16.4 us, the library 8.5)."""
    shape, chip = _shape(op, rows), machine()
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


def _generic_readers(value: ir.Value) -> Iterator[ir.Operation]:
    """The `linalg.generic` that read a value, also through a view that is its only reader: several views read elements
    that other tiles have."""
    uses = list(value.uses)
    for use in uses:
        reader = use.owner.operation
        if kiln.name_of(reader) == "kiln.view" and len(uses) == 1:
            yield from _generic_readers(reader.results[0])
        elif kiln.name_of(reader) == "linalg.generic":
            yield reader


def _ends_in_rows(value: ir.Value, depth: int = 6) -> bool:
    """Whether pointwise readers, and theirs, lead to a reduction over rows: fusion puts them into its kernel."""
    for reader in [use.owner.operation for use in value.uses]:
        name = kiln.name_of(reader)
        if name in _ROW_OPS or (name == "linalg.generic" and _reduces(reader)):
            return True
        if name in ("linalg.generic", "kiln.view") and depth and _ends_in_rows(reader.results[0], depth - 1):
            return True
    return False


def _meets_sibling(op: ir.Operation, reader: ir.Operation, depth: int = 3) -> bool:
    """Whether a pointwise reader, or one of its readers, also takes another product of the same matrix."""
    if any(_comes_from_sibling(op, operand) for operand in reader.operands):
        return True
    return depth > 0 and any(_meets_sibling(op, r, depth - 1) for r in _generic_readers(reader.results[0]))


def _comes_from_sibling(op: ir.Operation, value: ir.Value, depth: int = 4) -> bool:
    if isinstance(value.owner, ir.Block) or not depth:
        return False
    maker = value.owner.operation
    if kiln.name_of(maker) == "kiln.matmul":
        return maker.operands[0] == op.operands[0] and maker.results[0] != op.results[0]
    if kiln.name_of(maker) not in ("linalg.generic", "kiln.view"):
        return False
    return any(_comes_from_sibling(op, operand, depth - 1) for operand in maker.operands)


def _reduces(generic: ir.Operation) -> bool:
    return "reduction" in str(generic.attributes["iterator_types"])


def _transposed(op: ir.Operation, name: str) -> bool:
    return bool(ir.IntegerAttr(op.attributes[name]).value)
