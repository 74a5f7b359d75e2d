# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The body of a fusion with some of its 16-bit values in f32."""

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import kiln
from kiln.dialects.elements import with_element
from kiln.dialects.kiln import name_of
from kiln.dialects.rounding import is_narrow, round_implicitly
from kiln.dialects.walk import defining_op
from kiln.lowering.tile.body import FusionBody, reduction_dims
from kiln.lowering.tile.dataflow import Dataflow, scalar_ops
from kiln.passes.loops import generic as make_generic
from kiln.passes.roundings.decisions import ARITHMETIC
from kiln.passes.roundings.kept import CHOICES, element_type

__all__ = ["compute_in_f32", "widen"]


def compute_in_f32(flow: Dataflow) -> None:
    """Ops on 16-bit floats as all targets compute them: between conversions, the last of which is implicit."""
    for loops in flow.generics:
        if reduction_dims(loops.opview) and any(is_narrow(element_type(r)) for r in loops.results):
            continue  # its last op is how partial results are combined
        for op in scalar_ops(loops):
            if op.name in ARITHMETIC and all(is_narrow(r.type) for r in op.results):
                _in_f32(op)


def _in_f32(op: ir.Operation) -> None:
    """`op`, some of whose 16-bit operands and results are f32 already, on f32; results that had 16 bits are rounded."""
    f32 = ir.F32Type.get()
    with ir.InsertionPoint(op), op.location:
        for i, operand in enumerate(list(op.operands)):
            op.operands[i] = _wide(operand)
    for result in op.results:
        narrow = result.type
        if is_narrow(narrow):
            uses = [(use.owner, use.operand_number) for use in result.uses]
            result.set_type(f32)
            with ir.InsertionPoint.after(op), op.location:
                rounded = round_implicitly(narrow, result)
            for owner, number in uses:
                owner.operands[number] = rounded


def widen(fusion: ir.Operation, flow: Dataflow, values: set[ir.Value]) -> int:
    """Give `values`, which are closed under what `widened` calls one number, the element type f32.

    Returns how many roundings that left out.
    """
    f32, dropped = ir.F32Type.get(), 0
    for op in flow.ops:
        if name_of(op) == "kiln.cat" and op.results[0] in values:
            _extend_operands(fusion, op, values)
        if op.name == "linalg.generic":
            _give_new_outs(op, values)
    for value in values:
        value.set_type(with_element(value.type, f32))
    for op in flow.ops:
        if name_of(op) == "kiln.pad" and op.results[0] in values:
            with ir.InsertionPoint(op), op.location:
                op.operands[1] = _wide(op.operands[1])
        elif op.name == "linalg.generic":
            dropped += sum(_rewrite(inner) for inner in scalar_ops(op))
    for op in reversed(flow.ops):
        if name_of(op) == "kiln.empty" and not list(op.results[0].uses):
            op.erase()
    return dropped


def _rewrite(op: ir.Operation) -> bool:
    """Make an op of a loop's body fit the types that its operands and results have now; whether it was a rounding that
    is gone.
    """
    operand = op.operands[0] if len(op.operands) else None
    if op.name in ("arith.extf", "arith.truncf") and operand is not None and operand.type == op.results[0].type:
        is_rounding = op.name == "arith.truncf"
        op.results[0].replace_all_uses_with(operand)
        op.erase()
        return is_rounding
    floats = {str(v.type) for v in (*op.operands, *op.results) if isinstance(v.type, ir.FloatType)}
    if op.name in CHOICES and len(floats) > 1:
        _in_f32(op)
    elif op.name == "arith.cmpf" and len(floats) > 1:
        with ir.InsertionPoint(op), op.location:
            for i, value in enumerate(list(op.operands)):
                op.operands[i] = _wide(value)
    return False


def _wide(value: ir.Value) -> ir.Value:
    """A 16-bit scalar as f32, at the insertion point; anything else as it is."""
    if not is_narrow(value.type):
        return value
    f32, maker = ir.F32Type.get(), defining_op(value)
    if maker is not None and maker.name == "arith.constant":
        return arith.constant(f32, ir.FloatAttr.get(f32, ir.FloatAttr(maker.attributes["value"]).value))
    return arith.extf(f32, value)


def _give_new_outs(loops: ir.Operation, values: set[ir.Value]) -> None:
    """Tensors of f32 for the results that become f32; the old ones may be shared."""
    inputs = len(loops.operands) - len(loops.results)
    arguments = loops.regions[0].blocks[0].arguments
    for i, result in enumerate(loops.results, start=inputs):
        if result in values:
            empty = defining_op(loops.operands[i])
            assert empty is not None
            with ir.InsertionPoint(loops), loops.location:
                clone = empty.clone().operation
            clone.results[0].set_type(with_element(clone.results[0].type, ir.F32Type.get()))
            loops.operands[i] = clone.results[0]
            arguments[i].set_type(ir.F32Type.get())


def _extend_operands(fusion: ir.Operation, cat: ir.Operation, values: set[ir.Value]) -> None:
    """Extends, in loops of their own, the operands of a concatenation that do not become f32 themselves."""
    f32 = ir.F32Type.get()
    for i, operand in enumerate(list(cat.operands)):
        if operand in values or not is_narrow(element_type(operand)):
            continue
        body = FusionBody(fusion.opview)
        sizes = body.dims(operand)
        every = ir.AffineMap.get_identity(len(sizes))
        with ir.InsertionPoint(cat), cat.location:
            out = kiln.empty(f32, ir.AffineMap.get(0, len(body.symbols), list(sizes)), body.symbols)
            loops = make_generic([operand], out, [every, every], ["parallel"] * len(sizes))
            block = loops.regions[0].blocks.append(element_type(operand), f32, arg_locs=[cat.location] * 2)
            with ir.InsertionPoint(block):
                ir.Operation.create("linalg.yield", operands=[arith.extf(f32, block.arguments[0])])
        cat.operands[i] = loops.results[0]
