# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`kiln` data movement and fusions in upstream dialects: what is left after named ops are expanded.

Each `kiln.view`, `kiln.pad` and `kiln.cat` becomes a `linalg.generic` that reads its source element by element with
`tensor.extract`, `kiln.empty` a `tensor.empty`, `kiln.pack` its operand, and fusions are inlined.  Slow and plain: the
numeric oracle's way.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, scf, tensor

from kiln.dialects import kiln
from kiln.dialects.kiln.family import name_of
from kiln.dialects.scalar import index_value
from kiln.errors import UnsupportedError


def lower_to_upstream(function: ir.Operation) -> None:
    """Rewrite all `kiln` ops of a function in place.  Raises UnsupportedError for those without a meaning here."""
    block = function.regions[0].blocks[0]
    for op in list(block.operations):
        if name_of(op) == "kiln.fusion":
            _inline(op.operation)
    for op in list(block.operations):
        name = name_of(op)
        if not name.startswith("kiln."):
            continue
        rule = _RULES.get(name)
        if rule is None:
            raise UnsupportedError(name, str(op.location), "it has no lowering to upstream dialects")
        with ir.InsertionPoint(op), op.location:
            new = rule(op.operation)
        op.operation.results[0].replace_all_uses_with(new)
        op.operation.erase()


def _inline(fusion: ir.Operation) -> None:
    body = fusion.regions[0].blocks[0]
    for argument, operand in zip(list(body.arguments), list(fusion.operands), strict=True):
        argument.replace_all_uses_with(operand)
    for op in list(body.operations):
        if name_of(op) == "kiln.yield":
            for result, value in zip(list(fusion.results), list(op.operation.operands), strict=True):
                result.replace_all_uses_with(value)
            op.operation.erase()
        else:
            op.operation.move_before(fusion)
    fusion.erase()


def _map(op: ir.Operation, name: str) -> ir.AffineMap:
    return ir.AffineMapAttr(op.attributes[name]).value


def _symbols(op: ir.Operation, map_: ir.AffineMap) -> list[ir.Value]:
    return list(op.operands)[len(op.operands) - map_.n_symbols :]


def _sizes(op: ir.Operation) -> list[ir.Value]:
    shape = _map(op, "shape")
    return [index_value(e, [], _symbols(op, shape).__getitem__) for e in shape.results]


def _empty(op: ir.Operation) -> ir.Value:
    type_ = ir.RankedTensorType(op.results[0].type)
    dynamic = [s for i, s in enumerate(_sizes(op)) if type_.is_dynamic_dim(i)]
    return tensor.EmptyOp(
        [s if not type_.is_dynamic_dim(i) else dynamic.pop(0) for i, s in enumerate(type_.shape)], type_.element_type
    ).result


def _elementwise(op: ir.Operation, element: Callable[[Sequence[ir.Value]], ir.Value]) -> ir.Value:
    """A tensor of the op's type computed from its own indices."""
    out = _empty(op)
    rank = out.type.rank
    generic = linalg.GenericOp(
        [out.type],
        [],
        [out],
        ir.ArrayAttr.get([ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))]),
        ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank),
    )
    block = generic.regions[0].blocks.append(out.type.element_type)
    with ir.InsertionPoint(block):
        linalg.YieldOp([element([linalg.IndexOp(i).result for i in range(rank)])])
    return generic.results[0]


def _view(op: ir.Operation) -> ir.Value:
    map_ = _map(op, "map")
    symbols = _symbols(op, map_)
    x = op.operands[0]
    return _elementwise(
        op, lambda at: tensor.extract(x, [index_value(e, at, symbols.__getitem__) for e in map_.results])
    )


def _if(condition: ir.Value, type_: ir.Type, then: Callable[[], ir.Value], other: Callable[[], ir.Value]) -> ir.Value:
    branch = scf.IfOp(condition, [type_], has_else=True)
    for block, value in ((branch.then_block, then), (branch.else_block, other)):
        assert block is not None
        with ir.InsertionPoint(block):
            scf.YieldOp([value()])
    return branch.results[0]


def _pad(op: ir.Operation) -> ir.Value:
    x, value = op.operands[0], op.operands[1]
    low = _map(op, "low")
    symbols = _symbols(op, low)

    def element(at: Sequence[ir.Value]) -> ir.Value:
        inside: Any = None
        position: list[ir.Value] = []
        for i, e in enumerate(low.results):
            p = arith.subi(at[i], index_value(e, [], symbols.__getitem__))
            position.append(p)
            size = tensor.dim(x, arith.constant(ir.IndexType.get(), i))
            # One unsigned comparison covers both ends.
            test = arith.cmpi(arith.CmpIPredicate.ult, p, size)
            inside = test if inside is None else arith.andi(inside, test)
        if inside is None:
            return tensor.extract(x, [])
        return _if(inside, value.type, lambda: tensor.extract(x, position), lambda: value)

    return _elementwise(op, element)


def _cat(op: ir.Operation) -> ir.Value:
    inputs = [v for v in op.operands if not isinstance(v.type, ir.IndexType)]
    dim: int = op.attributes["dim"].value

    def element(at: Sequence[ir.Value]) -> ir.Value:
        def pick(k: int, offset: ir.Value) -> ir.Value:
            own = [arith.subi(p, offset) if i == dim else p for i, p in enumerate(at)]
            if k == len(inputs) - 1:
                return tensor.extract(inputs[k], own)
            end = arith.addi(offset, tensor.dim(inputs[k], arith.constant(ir.IndexType.get(), dim)))
            test = arith.cmpi(arith.CmpIPredicate.slt, at[dim], end)
            type_ = inputs[k].type.element_type
            return _if(test, type_, lambda: tensor.extract(inputs[k], own), lambda: pick(k + 1, end))

        return pick(0, arith.constant(ir.IndexType.get(), 0))

    return _elementwise(op, element)


_RULES: dict[str, Callable[[ir.Operation], ir.Value]] = kiln.by_name(
    {
        kiln.ViewOp: _view,
        kiln.EmptyOp: _empty,
        kiln.PadOp: _pad,
        kiln.CatOp: _cat,
        kiln.PackOp: lambda op: op.operands[0],
    }
)
