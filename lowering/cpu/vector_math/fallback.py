# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Lanes through the C library: for rare arguments, and for f64 functions without a polynomial of our own.

The functions are those of libm (sinf, pow, ...), which the process that runs the code has loaded.  A loop over the
lanes keeps the code small; it sits behind a branch when only rare arguments need it.
"""

from torch_mlir import ir
from torch_mlir.dialects import func, scf, vector

from kiln.dialects.walk import enclosing
from kiln.lowering.cpu.vector_math.lanes import Emitter, Lanes


def _declare(e: Emitter, name: str, operands: int) -> ir.FlatSymbolRefAttr:
    """Declares `name` of C (with the suffix f for f32) in the module, once."""
    element = e.vector.element_type if e.vector is not None else e.float_type
    symbol = name + ("f" if e.bits == 32 else "")
    body = enclosing(e.entry, "builtin.module").regions[0].blocks[0]
    wanted = ir.StringAttr.get(symbol)
    if not any("sym_name" in op.attributes and op.attributes["sym_name"] == wanted for op in body):
        with ir.InsertionPoint(body), ir.Location.unknown():
            func.FuncOp(symbol, ([element] * operands, [element]), visibility="private")
    return ir.FlatSymbolRefAttr.get(symbol)


def call_libm(e: Emitter, name: str, *operands: Lanes) -> Lanes:
    """libm's ``name`` of every lane."""
    callee = _declare(e, name, len(operands))
    if e.vector is None:
        return e.wrap(func.CallOp([e.float_type], callee, [o.value for o in operands]).result)
    if e.vector.rank != 1:
        raise ValueError(f"{name}: lane loops take vectors of rank 1, not {e.vector}")
    loop = scf.ForOp(e.index(0), e.index(e.vector.shape[0]), e.index(1), [operands[0].value])
    with ir.InsertionPoint(loop.body):
        lane = loop.induction_variable
        values = [_extract(o.value, lane) for o in operands]
        result = func.CallOp([e.vector.element_type], callee, values).result
        inserted = vector.InsertOp(result, loop.inner_iter_args[0], [lane], [ir.ShapedType.get_dynamic_size()]).result
        scf.YieldOp([inserted])
    return e.wrap(loop.results[0])


def _extract(value: ir.Value, lane: ir.Value) -> ir.Value:
    return vector.ExtractOp(value, [lane], [ir.ShapedType.get_dynamic_size()]).result


def repair_with_libm(e: Emitter, name: str, rare: Lanes, result: Lanes, *operands: Lanes) -> Lanes:
    """``result``, but libm's ``name`` of ``operands`` in the lanes where ``rare`` (i1) holds.

    The other lanes keep ``result``: a lane's value never depends on its neighbours.
    """
    any_rare = rare.value
    if e.vector is not None:
        any_rare = vector.ReductionOp(ir.IntegerType.get_signless(1), vector.CombiningKind.OR, rare.value).result
    branch = scf.IfOp(any_rare, [e.float_type], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.YieldOp([e.select(rare, call_libm(e, name, *operands), result).value])
    assert branch.else_block is not None
    with ir.InsertionPoint(branch.else_block):
        scf.YieldOp([result.value])
    return e.wrap(branch.results[0])
