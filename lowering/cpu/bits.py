# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""bf16 values as the 16 bits they are.

A CPU without bf16 registers has LLVM keep a bf16 scalar in an f32 register between basic blocks, and round it back by
a call of `__truncsfbf2`, which is in no library that a process has loaded. Once `expand-vector-math` has run, a kernel
only moves bf16 values (its arithmetic is in f32), so that i16 serves as well.
"""

import struct
from collections.abc import Callable

from torch_mlir import ir

from kiln.dialects.walk import ops_inside

__all__ = ["bf16_as_bits", "computes_with"]

_MOVES = {"arith.constant", "arith.select", "arith.bitcast"}
"""What arith may do with values for them to be mere bits."""


def bf16_as_bits(module: ir.Module) -> None:
    """Gives every bf16 value, vector and memref of `module` the element type i16, in place.

    A module with arithmetic on bf16 is left alone.
    """
    operations = list(ops_inside(module.operation))
    if any(computes_with(op, lambda type_: _bits(type_) is not None) for op in operations):
        return
    for op in operations:
        if op.name == "arith.constant" and _bits(op.results[0].type) is not None:
            op.attributes["value"] = _constant(op.attributes["value"])
        if op.name == "func.func":
            _retype_function(op)
        for region in op.regions:
            for block in region:
                for argument in block.arguments:
                    _retype(argument)
        if op.name in ("llvm.bitcast", "llvm.call_intrinsic") and _is_for_instructions(op):
            continue  # bits become bf16 for an instruction that takes them, or are those of one's result
        for result in op.results:
            _retype(result)


def _is_for_instructions(op: ir.Operation) -> bool:
    """Whether the result of an op of the LLVM dialect has that type for another one. What is stored is bits."""
    users = [use.owner.operation.name for result in op.results for use in result.uses]
    return op.name != "llvm.bitcast" or any(name.startswith("llvm.") for name in users)


def computes_with(op: ir.Operation, is_meant: Callable[[ir.Type], bool]) -> bool:
    """Whether `op` does more than to move values of the types for which `is_meant` is true."""
    if op.name.partition(".")[0] not in ("arith", "math") or op.name in _MOVES:
        return False
    return any(is_meant(v.type) for v in [*op.operands, *op.results])


def _bits(type_: ir.Type) -> ir.Type | None:
    """`type_` with i16 for bf16; None if it has none."""
    i16 = ir.IntegerType.get_signless(16)
    if isinstance(type_, ir.BF16Type):
        return i16
    if isinstance(type_, ir.VectorType) and isinstance(type_.element_type, ir.BF16Type):
        return ir.VectorType.get(type_.shape, i16)
    if isinstance(type_, ir.MemRefType) and isinstance(type_.element_type, ir.BF16Type):
        return ir.MemRefType.get(type_.shape, i16, type_.layout, type_.memory_space)
    return None


def _retype(value: ir.Value) -> None:
    type_ = _bits(value.type)
    if type_ is not None:
        value.set_type(type_)


def _retype_function(op: ir.Operation) -> None:
    type_ = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
    inputs = [_bits(t) or t for t in type_.inputs]
    op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, list(type_.results)))


def _constant(value: ir.Attribute) -> ir.Attribute:
    i16 = ir.IntegerType.get_signless(16)
    if isinstance(value, ir.FloatAttr):
        return ir.IntegerAttr.get(i16, _pattern(value.value))
    dense = ir.DenseFPElementsAttr(value)
    type_ = ir.VectorType.get(ir.VectorType(dense.type).shape, i16)
    if dense.is_splat:
        return ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(i16, _pattern(dense.get_splat_value().value)))
    return ir.DenseElementsAttr.get([ir.IntegerAttr.get(i16, _pattern(x)) for x in dense], type_)


def _pattern(value: float) -> int:
    """The bits of a float that bf16 represents exactly, as a signed 16-bit integer."""
    return struct.unpack(">h", struct.pack(">f", value)[:2])[0]
