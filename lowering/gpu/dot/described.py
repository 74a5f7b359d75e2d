# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kernel arguments that are descriptors of tensors in memory: their types, and what the launcher encodes them from."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects import affine, tt
from kiln.dialects.schedules.gpu import TmaSchedule
from kiln.errors import UnsupportedError
from kiln.lowering.gpu.dot.operands import Described
from kiln.lowering.gpu.dot.problem import Operand, Product
from kiln.lowering.gpu.dot.tensor_map import DescribedOperand

if TYPE_CHECKING:
    from kiln.lowering.gpu.emit import GpuKernel


_MOST_DIMS = 5
"""Of a tensor map."""
_GRAIN_BYTES = 16
"""What the addresses and strides of a tensor map are multiples of."""
_MOST_BYTES = 1 << 40
"""From which on a stride does not fit."""
_BYTES = {"f8E4M3FN": 1, "f8E5M2": 1, "bf16": 2, "f16": 2, "f32": 4}


@dataclass(frozen=True)
class Places:
    """Where matrices lie that one descriptor describes: sizes and strides of its dims in elements, over the kernel's
    symbols, the outermost first.

    The last two dims are those of a matrix, and the last stride is 1; `turned`: they are in exchanged places. leading,
    start: as in `Described`.
    """

    sizes: tuple[ir.AffineExpr, ...]
    strides: tuple[ir.AffineExpr, ...]
    leading: tuple[int | None, ...]
    start: tuple[int, ...]
    turned: bool


def find_places(operand: Operand, sizes: Sequence[ir.AffineExpr], element: str) -> Places | None:
    """Where the matrices of an operand of these sizes lie, or None where no tensor map describes them.

    Sizes and strides may be known at run time only: the launcher encodes what they are then. None with neither unit
    stride in a matrix, other strides that are not known to be multiples of 16 bytes, a first element that is known at
    run time only, more than three leading dims that matter, other elements than tensor cores take.
    """
    known = affine.constant_of
    rest = known(operand.offset)
    if rest is None or rest < 0 or len(sizes) != len(operand.strides) or element not in _BYTES:
        return None
    dims = list(zip((x.maybe_downcast() for x in sizes), map(affine.simplify, operand.strides), strict=True))
    *outer, rows, columns = dims
    turned = known(columns[1]) != 1
    if turned:
        rows, columns = columns, rows
    leading: list[int | None] = []
    kept: list[tuple[ir.AffineExpr, ir.AffineExpr]] = []
    for size, stride in outer:
        # Of one element, or repeated: all of its matrices are the first.
        matters = known(size) != 1 and known(stride) != 0
        leading.append(len(kept) if matters else None)
        kept += [(size, stride)] if matters else []
    kept += [rows, columns]
    grain = _GRAIN_BYTES // _BYTES[element]
    is_bad = known(columns[1]) != 1 or not all(_is_stride(stride, grain) for _, stride in kept[:-1])
    if len(kept) > _MOST_DIMS or is_bad or any((known(size) or 1) < 1 or known(size) == 0 for size, _ in kept):
        return None
    start = [0] * len(kept)
    # Along dims whose stride is known: any way to reach the first element will do.
    fixed = {d: step for d, (_, stride) in enumerate(kept) if (step := known(stride)) is not None}
    for dim in sorted(fixed, key=lambda d: -fixed[d]):
        start[dim], rest = divmod(rest, fixed[dim])
    sizes_ = tuple(affine.simplify(size + first) for first, (size, _) in zip(start, kept, strict=True))
    return Places(sizes_, tuple(stride for _, stride in kept), tuple(leading), tuple(start), turned)


def _is_stride(stride: ir.AffineExpr, grain: int) -> bool:
    """Whether a descriptor takes a stride: a multiple of `grain` elements in every call."""
    step = affine.constant_of(stride)
    return affine.is_multiple(stride, grain) and (step is None or 0 < step < _MOST_BYTES)


def product_places(products: Sequence[Product]) -> list[Places | None]:
    """Those of the left operand of products that share it, then of the right ones."""
    first = products[0]
    found = [find_places(first.lhs, (*first.batch, first.m, first.k), first.element)]
    return [*found, *(find_places(x.rhs, (*x.batch, x.k, x.n), x.element) for x in products)]


def describe_operands(
    kernel: "GpuKernel", products: Sequence[Product], schedule: TmaSchedule
) -> tuple[DescribedOperand, tuple[DescribedOperand, ...]]:
    """Turn the arguments of the operands of products with one lhs into descriptors.

    Raises UnsupportedError where an operand is two of them: it would need two descriptors.
    """
    places = product_places(products)
    rows, columns, step = schedule.block_m, schedule.block_n, schedule.block_k
    lhs, *rhs = [
        (describe_argument(kernel, x.op, operand.position, block, _known(place)), _known(place).turned)
        for x, operand, block, place in zip(
            [products[0], *products],
            [products[0].lhs, *(x.rhs for x in products)],
            [(rows, step), *[(step, columns)] * len(products)],
            places,
            strict=True,
        )
    ]
    # The right operand is [k, n] in memory, or [n, k] if the reduction comes last.
    return DescribedOperand(lhs[0], not lhs[1]), tuple(DescribedOperand(x, turned) for x, turned in rhs)


def _known(places: Places | None) -> Places:
    assert places is not None, "the schedule asks for descriptors of what can be described"
    return places


def describe_argument(
    kernel: "GpuKernel", op: ir.OpView, position: int, block: tuple[int, int], places: Places
) -> Described:
    """Turn one argument into the descriptor of matrices that are moved in blocks of these rows and columns.

    The function gets `kiln.descriptors`: per descriptor the argument's number, and over the kernel's symbols the sizes
    and strides of the tensor that it describes, in elements, the outermost dim first (the last stride is 1).
    Raises UnsupportedError where the argument is one already.
    """
    argument = kernel.pointers[position]
    if not tt.is_ptr(argument.type):
        raise UnsupportedError(op.operation.name, str(op.location), "an operand that needs two descriptors")
    sides = block[::-1] if places.turned else block
    boxes = [*[1] * (len(places.sizes) - 2), *sides]
    argument.set_type(tt.tensordesc(ir.RankedTensorType.get(boxes, tt.pointee(argument.type))))
    attributes = kernel.function.operation.attributes
    inputs = [a.type for a in kernel.entry.arguments]
    attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
    marks = list(ir.ArrayAttr(attributes["arg_attrs"]))
    marks[position] = ir.DictAttr.get({})
    attributes["arg_attrs"] = ir.ArrayAttr.get(marks)
    symbols = len(kernel.body.symbols)

    def over_symbols(values: Sequence[ir.AffineExpr]) -> ir.AffineMapAttr:
        return ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, list(values)))

    entry = ir.DictAttr.get(
        {
            "arg": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), position),
            "shape": over_symbols(places.sizes),
            "strides": over_symbols(places.strides),
        }
    )
    given = list(ir.ArrayAttr(attributes["kiln.descriptors"])) if "kiln.descriptors" in attributes else []
    attributes["kiln.descriptors"] = ir.ArrayAttr.get([*given, entry])
    return Described(argument, places.leading, places.start)
