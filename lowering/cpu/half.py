# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""f16 on x86 without F16C: conversions by integer ops, everything else in f32.

LLVM would call `__extendhfsf2` and `__truncsfhf2` for each number, which are in no library that a process has loaded.
"""

from torch_mlir import ir

from kiln.dialects.elements import element_of, with_element
from kiln.dialects.walk import ops_inside
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.bits import computes_with
from kiln.lowering.cpu.vector_math import Emitter, Lanes
from kiln.lowering.cpu.vector_math.conversion import extend_f16, round_f16

__all__ = ["expand_half", "lacks_half"]


def lacks_half(cpu: isa.Isa) -> bool:
    """Whether a CPU has no instructions that convert between f16 and f32."""
    return cpu.has("sse2") and not cpu.has("f16c")


def expand_half(module: ir.Module) -> None:
    """Takes conversions of f16, and arithmetic on it, apart in place; moves of f16 stay."""
    for function in module.body:
        if function.operation.name == "func.func" and len(function.operation.regions[0].blocks):
            constants: dict[tuple[str, int], ir.Value] = {}
            for op in list(ops_inside(function.operation)):
                if computes_with(op, _is_half):
                    _replace(op, constants, function.operation.regions[0].blocks[0])


def _is_half(type_: ir.Type) -> bool:
    return isinstance(element_of(type_), ir.F16Type)


def _replace(op: ir.Operation, constants: dict[tuple[str, int], ir.Value], entry: ir.Block) -> None:
    """`op` in f32, between conversions of its operands and of its result."""
    f32 = ir.F32Type.get()
    with ir.InsertionPoint(op), op.location:
        operands = [_wide(value, constants, entry) for value in op.operands]
        result = op.results[0]
        wide = with_element(result.type, f32) if _is_half(result.type) else result.type
        if op.name in ("arith.extf", "arith.truncf") and operands[0].type == wide:
            made = operands[0]
        else:
            attributes = {name: op.attributes[name] for name in op.attributes}
            made = ir.Operation.create(op.name, [wide], operands, attributes).result
        if _is_half(result.type):
            e = Emitter(wide, constants, entry)
            made = round_f16(e, Lanes(e, made)).value
    result.replace_all_uses_with(made)
    op.erase()


def _wide(value: ir.Value, constants: dict[tuple[str, int], ir.Value], entry: ir.Block) -> ir.Value:
    if not _is_half(value.type):
        return value
    e = Emitter(with_element(value.type, ir.F32Type.get()), constants, entry)
    return extend_f16(e, Lanes(e, value)).value
