# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Floats of 16 bits that a CPU lacks: f16 on x86 without F16C (conversions by integer ops), arithmetic on bf16.

Everything is computed in f32. LLVM would call `__extendhfsf2`, `__truncsfhf2` and `__truncsfbf2` for each number, which
are in no library that a process has loaded.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.elements import element_of, with_element
from kiln.dialects.walk import ops_inside
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.bits import computes_with
from kiln.lowering.cpu.vector_math import Emitter, Lanes
from kiln.lowering.cpu.vector_math.conversion import extend_bf16, extend_f16, round_bf16, round_f16

__all__ = ["expand_bf16", "expand_half", "lacks_half"]


def lacks_half(cpu: isa.Isa) -> bool:
    """Whether a CPU has no instructions that convert between f16 and f32."""
    return cpu.has("sse2") and not cpu.has("f16c")


def expand_half(module: ir.Module) -> None:
    """Takes conversions of f16, and arithmetic on it, apart in place; moves of f16 stay."""
    _expand(module, _F16)


def expand_bf16(module: ir.Module) -> None:
    """Takes arithmetic on bf16 apart in place. To be run behind `expand-vector-math`, which expands its conversions."""
    _expand(module, _BF16)


@dataclass(frozen=True)
class _Short:
    """A type of 16 bits, and its conversions from and to f32."""

    type: type[ir.Type]
    round: Callable[[Emitter, Lanes], Lanes]
    extend: Callable[[Emitter, Lanes], Lanes]

    def is_in(self, type_: ir.Type) -> bool:
        """Whether a value's type is this one, or a vector of it."""
        return isinstance(element_of(type_), self.type)


_F16 = _Short(ir.F16Type, round_f16, extend_f16)
_BF16 = _Short(ir.BF16Type, round_bf16, extend_bf16)


def _expand(module: ir.Module, short: _Short) -> None:
    for function in module.body:
        if function.operation.name == "func.func" and len(function.operation.regions[0].blocks):
            constants: dict[tuple[str, int], ir.Value] = {}
            for op in list(ops_inside(function.operation)):
                if computes_with(op, short.is_in):
                    _replace(op, short, constants, function.operation.regions[0].blocks[0])


def _replace(op: ir.Operation, short: _Short, constants: dict[tuple[str, int], ir.Value], entry: ir.Block) -> None:
    """`op` in f32, between conversions of its operands and of its result."""
    f32 = ir.F32Type.get()
    with ir.InsertionPoint(op), op.location:
        operands = [_wide(value, short, constants, entry) for value in op.operands]
        result = op.results[0]
        wide = with_element(result.type, f32) if short.is_in(result.type) else result.type
        if op.name in ("arith.extf", "arith.truncf") and operands[0].type == wide:
            made = operands[0]
        else:
            attributes = {name: op.attributes[name] for name in op.attributes}
            made = ir.Operation.create(op.name, [wide], operands, attributes).result
        if short.is_in(result.type):
            e = Emitter(wide, constants, entry)
            made = short.round(e, Lanes(e, made)).value
    result.replace_all_uses_with(made)
    op.erase()


def _wide(value: ir.Value, short: _Short, constants: dict[tuple[str, int], ir.Value], entry: ir.Block) -> ir.Value:
    if not short.is_in(value.type):
        return value
    e = Emitter(with_element(value.type, ir.F32Type.get()), constants, entry)
    return short.extend(e, Lanes(e, value)).value
