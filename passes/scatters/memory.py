# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What kernels that write with indices start from: memory that is theirs to write to."""

from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.kiln import name_of
from kiln.dialects.walk import defining_op

__all__ = ["base_operand", "copy_bases"]


def base_operand(fusion: ir.Operation) -> int | None:
    """The number, among the tensor operands, of what the kernel's one result takes the place of; None for other kinds,
    and for a kernel that starts from zeros.
    """
    if ir.StringAttr(fusion.attributes["kind"]).value != "scatter_nd":
        return None
    block = fusion.regions[0].blocks[0]
    op = next(op for op in block.operations if name_of(op) == "kiln.scatter_nd")
    if ir.BoolAttr(op.operation.attributes["from_zero"]).value:
        return None
    tensors: list[ir.Value] = [a for a in block.arguments if not isinstance(a.type, ir.IndexType)]
    return tensors.index(op.operation.operands[0])


def copy_bases(function: ir.OpView) -> int:
    """A copy in front of each such kernel, unless its operand is another kernel's result that only it reads, and that
    lies as its own result does; returns how many copies there are. The fusions have their layouts.
    """
    count = 0
    for op in list(function.regions[0].blocks[0].operations):
        if name_of(op) != "kiln.fusion":
            continue
        number = base_operand(op.operation)
        if number is None:
            continue
        fusion, number = _with_own_base(op.operation, number)
        if not _is_own(fusion, number):
            _copy(fusion, number)
            count += 1
    return count


def _with_own_base(fusion: ir.Operation, number: int) -> tuple[ir.Operation, int]:
    """The fusion, and the number of an operand that is nothing but what is written to.

    Where values or indices are computed from that operand as well, other programs would have changed it before they are
    read: the base becomes a further operand, and the old one is erased.
    """
    block = fusion.regions[0].blocks[0]
    count = len(_tensors(fusion))
    argument = block.arguments[_tensors(fusion)[number]]
    if len(list(argument.uses)) == 1:
        return fusion, number
    value = fusion.operands[_tensors(fusion)[number]]
    attributes = {key: fusion.attributes[key] for key in fusion.attributes}
    for key in ("layouts", "shapes", "offsets"):
        if key in attributes:
            entries = list(ir.ArrayAttr(attributes[key]))
            attributes[key] = ir.ArrayAttr.get([*entries[:count], entries[number], *entries[count:]])
    with ir.InsertionPoint(fusion), fusion.location:
        types = [r.type for r in fusion.results]
        operands = list(fusion.operands)
        new = kiln.FusionOp.create([*operands[:count], value, *operands[count:]], types, attributes).operation
    block.append_to(new.regions[0])
    block = new.regions[0].blocks[0]
    scatter = next(op for op in block.operations if name_of(op) == "kiln.scatter_nd")
    scatter.operation.operands[0] = block.add_argument(argument.type, fusion.location)
    for _ in range(len(operands) - count):  # symbols, which stand behind the tensors
        symbol = block.arguments[count]
        symbol.replace_all_uses_with(block.add_argument(symbol.type, fusion.location))
        block.erase_argument(count)
    for old, replacement in zip(fusion.results, new.results, strict=True):
        old.replace_all_uses_with(replacement)
    fusion.erase()
    return new, count


def _tensors(fusion: ir.Operation) -> list[int]:
    """Positions of the tensor operands."""
    return [i for i, v in enumerate(fusion.operands) if isinstance(v.type, ir.RankedTensorType)]


def _is_own(fusion: ir.Operation, number: int) -> bool:
    value = fusion.operands[_tensors(fusion)[number]]
    maker = defining_op(value)
    if maker is None or name_of(maker) != "kiln.fusion" or len(list(value.uses)) != 1:
        return False
    if "offsets" in fusion.attributes or "offsets" in maker.attributes:
        return False
    layouts = list(ir.ArrayAttr(fusion.attributes["layouts"]))
    if layouts[number] != layouts[-1]:
        return False
    if any(isinstance(v.type, ir.IndexType) for v in (*fusion.operands, *maker.operands)):
        return False  # the symbols of two kernels need not be in one order
    made = list(ir.ArrayAttr(maker.attributes["layouts"]))[len(_tensors(maker)) + ir.OpResult(value).result_number]
    return made == layouts[number]


def _copy(fusion: ir.Operation, number: int) -> None:
    """A kernel that copies the operand to where the result is to be, in its layout."""
    at = _tensors(fusion)[number]
    value = fusion.operands[at]
    layouts = list(ir.ArrayAttr(fusion.attributes["layouts"]))
    symbols = [v for v in fusion.operands if isinstance(v.type, ir.IndexType)]
    with ir.InsertionPoint(fusion), fusion.location:
        copy = kiln.fusion([value], [value.type], "pointwise", "copy", symbols).operation
        with ir.InsertionPoint(copy.regions[0].blocks[0]):
            kiln.yield_([copy.regions[0].blocks[0].arguments[0]])
    copy.attributes["layouts"] = ir.ArrayAttr.get([layouts[number], layouts[-1]])
    if "shapes" in fusion.attributes:
        copy.attributes["shapes"] = ir.ArrayAttr.get([list(ir.ArrayAttr(fusion.attributes["shapes"]))[number]])
    fusion.operands[at] = copy.results[0]
    layouts[number] = layouts[-1]
    fusion.attributes["layouts"] = ir.ArrayAttr.get(layouts)
    if "offsets" in fusion.attributes:
        offsets = list(ir.ArrayAttr(fusion.attributes["offsets"]))
        zero = ir.AffineMap.get(0, len(symbols), [ir.AffineConstantExpr.get(0)])
        copy.attributes["offsets"] = ir.ArrayAttr.get([offsets[number], ir.AffineMapAttr.get(zero)])
        offsets[number] = ir.AffineMapAttr.get(zero)
        fusion.attributes["offsets"] = ir.ArrayAttr.get(offsets)
