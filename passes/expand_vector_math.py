# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The pass ``expand-vector-math``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir
from typing_extensions import override

from kiln.dialects.elements import element_of, with_element
from kiln.dialects.kiln import KernelOp
from kiln.errors import InvalidIRError
from kiln.lowering.cpu.codegen import expand_math
from kiln.lowering.cpu.vector_math import APPROXIMATE, FUNCTIONS, Emitter, Lanes
from kiln.lowering.cpu.vector_math.conversion import extend_bf16, round_bf16
from kiln.lowering.cpu.vector_math.power import ipowi
from kiln.lowering.float8 import is_float8, narrow, widen
from kiln.passes.core import register_pass
from kiln.passes.kernel_pass import KernelPass
from kiln.passes.rewrites import may_rewrite

__all__ = ["ExpandVectorMath"]

# One machine instruction, or a short sequence that LLVM vectorises well.
_NATIVE = {
    "math.absf", "math.absi", "math.ceil", "math.copysign", "math.ctlz", "math.ctpop", "math.cttz",
    "math.floor", "math.fma", "math.isnormal", "math.round", "math.roundeven", "math.sqrt", "math.trunc",
}  # fmt: skip
# Native ops that convert-to-llvm or LLVM cannot do in 16-bit float types.
_BY_F32 = {"arith.sitofp", "arith.uitofp", "arith.fptosi", "arith.fptoui"}
_ARITH = {"arith.extf", "arith.truncf", *_BY_F32, *(name for name in FUNCTIONS if not name.startswith("math."))}
_NATIVE_FLOAT = {"math.ceil", "math.floor", "math.fma", "math.round", "math.roundeven", "math.sqrt", "math.trunc"}

_SHORT = ir.BF16Type | ir.F16Type
_SHORT_FUNCTIONS = {"math.erf", "math.tanh"}  # whose approximate form is for f32 alone


Constants = dict[tuple[str, int], ir.Value]
"""Constants that formulas share in one function, by type and bits."""


@register_pass
@dataclass
class ExpandVectorMath(KernelPass):
    """Replace math functions on vectors and scalars by formulas in arith.

    Every ``math`` function of f32 or f64, scalar or vector of any width, becomes polynomials with a stated accuracy
    (docs/vector-math.md); sqrt, abs, fma, rounding and bit counting stay, being single instructions.  bf16 and f16
    are computed in f32.  Also expanded: ``arith.remf``, ``arith.maximumf``/``minimumf`` (NaN propagates; the sign of
    a zero is PyTorch's, not IEEE's) and ``arith.extf``/``truncf`` between bf16 or 8-bit floats and f32,
    ``sitofp``/``uitofp`` to bf16 (rounded to f32 first, as PyTorch does).  ``fastmath<afn>`` on exp and exp2 asks for
    the variant that flushes denormal results, on erf and tanh of f32 for one with an error of 2^-15 of the distance
    from one.

    Before::

        func.func @main(%x: vector<8xf32>, %y: vector<8xf32>) -> vector<8xf32> {
          %0 = arith.maximumf %x, %y : vector<8xf32>
          return %0 : vector<8xf32>
        }

    After::

        func.func @main(%arg0: vector<8xf32>, %arg1: vector<8xf32>) -> vector<8xf32> {
          %0 = arith.cmpf ogt, %arg0, %arg1 : vector<8xf32>
          %1 = arith.select %0, %arg0, %arg1 : vector<8xi1>, vector<8xf32>
          %2 = arith.cmpf uno, %arg0, %arg0 : vector<8xf32>
          %3 = arith.select %2, %arg0, %1 : vector<8xi1>, vector<8xf32>
          return %3 : vector<8xf32>
        }
    """

    name = "expand-vector-math"

    @override
    def run_on(self, kernel: KernelOp) -> None:
        expand_math(kernel.code)

    @override
    def run_alone(self, module: Any) -> None:
        self.expand(module)

    def expand(self, module: Any) -> None:
        """Expand what the functions of a module hold."""
        for top in list(module.body):
            if top.operation.name == "func.func" and len(top.operation.regions[0].blocks):
                self._run_on_function(top.operation)

    def _run_on_function(self, function: ir.Operation) -> None:
        entry = function.regions[0].blocks[0]
        constants: Constants = {}
        for op in _candidates(function):
            expand = self._expansion(op)
            if expand is None or not may_rewrite(op, op.name):
                continue
            with ir.InsertionPoint(op), op.location:
                results = expand(op, constants, entry)
            for old, new in zip(op.results, results, strict=True):
                old.replace_all_uses_with(new)
            self.count(op.name)
            op.erase()

    def _expansion(self, op: ir.Operation) -> "Callable[[ir.Operation, Constants, ir.Block], list[ir.Value]] | None":
        """The method that replaces ``op``, or None when it stays."""
        if op.name in ("arith.extf", "arith.truncf"):
            wide, narrow = op.results[0].type, op.operands[0].type
            if op.name == "arith.truncf":
                wide, narrow = narrow, wide
            if is_float8(narrow):
                return _convert_float8
            by_hand = _is(ir.BF16Type, narrow) or (_is(ir.F16Type, narrow) and _is(ir.F64Type, wide))
            return _convert if by_hand else None
        if op.name in _BY_F32 and any(is_float8(v.type) for v in (*op.operands, *op.results)):
            return _through_f32
        if op.name in ("arith.sitofp", "arith.uitofp"):
            return _from_integer if _is(ir.BF16Type, op.results[0].type) else None
        if op.name == "math.ipowi":
            return _integer_power
        if op.name in FUNCTIONS or op.name == "math.sincos":
            return _apply
        if op.name in _NATIVE_FLOAT and _is(_SHORT, op.operands[0].type):
            return _apply
        if not op.name.startswith("math.") or op.name in _NATIVE:
            return None
        known = ", ".join(sorted(name for name in FUNCTIONS if name.startswith("math.")))
        raise InvalidIRError(f"{op.name} has no vector formula; there are: {known}", str(op.location))


def _candidates(function: ir.Operation) -> list[ir.Operation]:
    """The ops inside of a function that may be expanded, each before those inside of it."""
    found: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.operation.name in _ARITH or op.operation.name.startswith("math."):
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _is(kind: Any, type_: ir.Type) -> bool:
    return isinstance(element_of(type_), kind)


def _integer_power(op: ir.Operation, constants: Constants, entry: ir.Block) -> list[ir.Value]:
    return [ipowi(*op.operands)]


def _emitter(type_: ir.Type, constants: Constants, entry: ir.Block) -> Emitter:
    """An emitter that computes in ``type_``, or in f32 where that is a 16-bit float."""
    if _is(_SHORT, type_):
        type_ = with_element(type_, ir.F32Type.get())
    return Emitter(type_, constants, entry)


def _load(e: Emitter, value: ir.Value) -> Lanes:
    """``value`` in the emitter's type, if it is a 16-bit float."""
    lanes = e.wrap(value)
    if _is(ir.BF16Type, value.type):
        return extend_bf16(e, lanes)
    return e.op("arith.extf", e.float_type, lanes) if _is(ir.F16Type, value.type) else lanes


def _store(e: Emitter, result: Lanes, type_: ir.Type) -> ir.Value:
    if _is(ir.BF16Type, type_):
        return round_bf16(e, result).value
    return (e.op("arith.truncf", type_, result) if _is(ir.F16Type, type_) else result).value


def _apply(op: ir.Operation, constants: Constants, entry: ir.Block) -> list[ir.Value]:
    """The formula of ``op``, or the op itself in f32."""
    e = _emitter(op.operands[0].type, constants, entry)
    operands = [_load(e, operand) for operand in op.operands]
    if op.name == "math.sincos":
        results = [FUNCTIONS["math.sin"](e, *operands), FUNCTIONS["math.cos"](e, *operands)]
    elif op.name not in FUNCTIONS:
        results = [e.op(op.name, e.float_type, *operands)]
    elif op.name in APPROXIMATE and _approximate(op, e.element):
        results = [APPROXIMATE[op.name](e, *operands)]
    else:
        results = [FUNCTIONS[op.name](e, *operands)]
    return [_store(e, r, old.type) for r, old in zip(results, op.results, strict=True)]


def _approximate(op: ir.Operation, element: str) -> bool:
    """Whether #arith.fastmath<...> of the op allows the approximate function, and there is one."""
    if "fastmath" not in op.attributes or element == "f64" and op.name in _SHORT_FUNCTIONS:
        return False
    flags = str(op.attributes["fastmath"]).partition("<")[2].rstrip(">").split(",")
    return "afn" in flags or "fast" in flags


def _convert(op: ir.Operation, constants: Constants, entry: ir.Block) -> list[ir.Value]:
    """extf and truncf of 16-bit floats, by way of f32."""
    source, target = op.operands[0].type, op.results[0].type
    e = Emitter(with_element(target, ir.F32Type.get()), constants, entry)
    value = e.wrap(op.operands[0])
    if op.name == "arith.extf":
        value = _load(e, value.value)
        return [value.value if _is(ir.F32Type, target) else e.op("arith.extf", target, value).value]
    if _is(ir.F64Type, source):
        value = e.op("arith.truncf", e.float_type, value)
    return [_store(e, value, target)]


def _convert_float8(op: ir.Operation, constants: Constants, entry: ir.Block) -> list[ir.Value]:
    """extf and truncf of 8-bit floats, by way of f32."""
    source, target = op.operands[0].type, op.results[0].type
    e = Emitter(with_element(source, ir.F32Type.get()), constants, entry)
    if op.name == "arith.extf":
        value = widen(op.operands[0])
        if _is(ir.F64Type, target):
            return [e.op("arith.extf", target, e.wrap(value)).value]
        return [_store(e, e.wrap(value), target)]
    value = e.wrap(op.operands[0])
    value = e.op("arith.truncf", e.float_type, value) if _is(ir.F64Type, source) else _load(e, value.value)
    return [narrow(value.value, element_of(target))]


def _through_f32(op: ir.Operation, constants: Constants, entry: ir.Block) -> list[ir.Value]:
    """A conversion between integers and 8-bit floats."""
    value = op.operands[0]
    if is_float8(value.type):
        return [ir.Operation.create(op.name, results=[op.results[0].type], operands=[widen(value)]).result]
    wide = with_element(value.type, ir.F32Type.get())
    made = ir.Operation.create(op.name, results=[wide], operands=[value]).result
    return [narrow(made, element_of(op.results[0].type))]


def _from_integer(op: ir.Operation, constants: Constants, entry: ir.Block) -> list[ir.Value]:
    """sitofp and uitofp to bf16, by way of f32: LLVM would call a library function that no process has loaded."""
    target = op.results[0].type
    e = Emitter(with_element(target, ir.F32Type.get()), constants, entry)
    return [_store(e, e.op(op.name, e.float_type, e.wrap(op.operands[0])), target)]
