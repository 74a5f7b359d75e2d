# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Roundings to 16 bits between the ops of one kernel, which stay out: values are in f32 until they are stored.

Each op on bf16 or f16 widens its operands and rounds its result. Where the next op is in the same kernel, and small
changes of its operands make small changes of its result, it takes the result as it was: nearer to the exact value,
without the half dozen instructions of a rounding. Comparisons, and steps like a floor, see what eager's ops see;
so do the readers of a conversion that the program asks for.
"""

from torch_mlir import ir

from kiln.dialects.elements import element_of
from kiln.dialects.walk import defining_op

__all__ = ["Roundings"]

_ARITHMETIC = {
    *("addf", "subf", "mulf", "divf", "negf", "maximumf", "minimumf", "maxnumf", "minnumf", "extf", "truncf"),
}
_FUNCTIONS = {
    *("absf", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp"),
    *("exp2", "expm1", "fma", "log", "log10", "log1p", "log2", "powf", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh"),
}
_CONTINUOUS = {*(f"arith.{name}" for name in _ARITHMETIC), *(f"math.{name}" for name in _FUNCTIONS)}


class Roundings:
    """Which emitted values are roundings that may be undone."""

    def __init__(self) -> None:
        self._asked: set[ir.Value] = set()

    def note(self, op: ir.Operation, results: list[ir.Value]) -> None:
        """Remembers the results of a conversion that the program asks for: `op` is all that its body does."""
        if op.name == "arith.truncf" and len(list(op.block.operations)) == 2:
            self._asked.update(results)

    def undo(self, op: ir.Operation, operand: ir.Value) -> ir.Value | None:
        """What `operand`, the emitted operand of an `arith.extf` of the body, was before it was rounded; None if it is
        no rounding, or if `op`'s readers need it."""
        if op.name != "arith.extf" or operand in self._asked:
            return None
        rounding = defining_op(operand)
        if rounding is None or rounding.name != "arith.truncf":
            return None
        wide = rounding.operands[0]
        if element_of(wide.type) != op.results[0].type:
            return None
        if not isinstance(op.operands[0].type, (ir.BF16Type, ir.F16Type)):
            return None
        return wide if all(use.owner.operation.name in _CONTINUOUS for use in op.results[0].uses) else None
