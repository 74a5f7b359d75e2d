# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Formulas on vectors (or scalars) written with Python's operators, emitted as arith and math ops.

A :class:`Lanes` is an SSA value of some float or integer type or of a vector of it; ``a * b + 1.0`` emits a
multiplication, a constant and an addition.  Python numbers become splat constants at the start of the function, one
per value, so that all expansions of a kernel share them.  Nothing here depends on the number of lanes: an f32 scalar
takes the same formulas.
"""

import struct
from collections.abc import Callable

from torch_mlir import ir

Number = float | int

_LONGEST_CHAIN = 7  # coefficients in one Horner chain

_CMPF = {"oeq": 1, "ogt": 2, "oge": 3, "olt": 4, "ole": 5, "one": 6, "ord": 7, "ueq": 8, "ugt": 9, "uge": 10}
_CMPF.update({"ult": 11, "ule": 12, "une": 13, "uno": 14})
_CMPI = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5}


class Emitter:
    """Emits ops of one shape and element type at the current insertion point.

    Args:
      float_type: f32 or f64, or a vector of it: the type that formulas compute in.
      constants: shared by all emitters of one function: (type, bits) -> constant at the start of ``entry``.
      entry: the function's entry block.
    """

    def __init__(self, float_type: ir.Type, constants: dict[tuple[str, int], ir.Value], entry: ir.Block):
        self.float_type = float_type
        self.vector = float_type if isinstance(float_type, ir.VectorType) else None
        element = self.vector.element_type if self.vector is not None else float_type
        if not isinstance(element, ir.F32Type | ir.F64Type):
            raise TypeError(f"formulas compute in f32 or f64, not {element}")
        self.bits = element.width
        self.element = "f32" if self.bits == 32 else "f64"
        self.mantissa = 23 if self.bits == 32 else 52
        self.bias = 127 if self.bits == 32 else 1023
        self.int_type = self.like(ir.IntegerType.get_signless(self.bits))
        self.i1 = self.like(ir.IntegerType.get_signless(1))
        self.entry = entry
        self._names = str(self.float_type), str(self.int_type)
        self._constants = constants
        self._predicate_type = ir.IntegerType.get_signless(64)

    def like(self, element: ir.Type) -> ir.Type:
        """The type with this shape and ``element``."""
        if self.vector is None:
            return element
        return ir.VectorType.get(self.vector.shape, element)

    def with_element(self, element: ir.Type) -> "Emitter":
        """An emitter of the same shape for another float type."""
        return Emitter(self.like(element), self._constants, self.entry)

    # -- values ---------------------------------------------------------------------------------------------------

    def wrap(self, value: ir.Value) -> "Lanes":
        """An SSA value as `Lanes`."""
        return Lanes(self, value)

    def f(self, x: float) -> "Lanes":
        """The float constant, rounded to the element type."""
        code = struct.unpack("<I", struct.pack("<f", x))[0] if self.bits == 32 else _bits64(x)
        return Lanes(self, self._constant(self.float_type, self._names[0], code, lambda e: ir.FloatAttr.get(e, x)))

    def i(self, x: int) -> "Lanes":
        """The integer constant of the element's width."""
        return Lanes(self, self._constant(self.int_type, self._names[1], x, lambda e: ir.IntegerAttr.get(e, x)))

    def index(self, x: int) -> ir.Value:
        """The `index` constant (a scalar)."""
        return self._constant(ir.IndexType.get(), "index", x, lambda e: ir.IntegerAttr.get(e, x))

    def _constant(self, type_: ir.Type, name: str, code: int, attribute: Callable[[ir.Type], ir.Attribute]) -> ir.Value:
        """The constant at the start of the function; ``name`` is the type's text."""
        key = (name, code)
        if key not in self._constants:
            if isinstance(type_, ir.VectorType):
                value: ir.Attribute = ir.DenseElementsAttr.get_splat(type_, attribute(type_.element_type))
            else:
                value = attribute(type_)
            start = ir.InsertionPoint.at_block_begin(self.entry)
            self._constants[key] = ir.Operation.create("arith.constant", [type_], [], {"value": value}, ip=start).result
        return self._constants[key]

    # -- ops ------------------------------------------------------------------------------------------------------

    def op(self, name: str, type_: ir.Type, *operands: "Lanes", **attributes: ir.Attribute) -> "Lanes":
        """The one result of an op made by name."""
        return Lanes(self, ir.Operation.create(name, [type_], [o.value for o in operands], attributes).result)

    def fma(self, a: "Lanes | float", b: "Lanes | float", c: "Lanes | float") -> "Lanes":
        """a * b + c, rounded once."""
        return self.op("math.fma", self.float_type, self.of(a), self.of(b), self.of(c))

    def of(self, x: "Lanes | Number") -> "Lanes":
        """A Python number as a float constant."""
        return x if isinstance(x, Lanes) else self.f(x)

    def select(self, condition: "Lanes", a: "Lanes | float", b: "Lanes | float") -> "Lanes":
        """`a` in the lanes where `condition` (i1) holds, else `b`."""
        a, b = self.of(a), self.of(b)
        return self.op("arith.select", a.value.type, condition, a, b)

    def compare(self, predicate: str, a: "Lanes | float", b: "Lanes | float") -> "Lanes":
        """Float comparison; the predicate says what NaN gives ("o" false, "u" true)."""
        code = ir.IntegerAttr.get(self._predicate_type, _CMPF[predicate])
        return self.op("arith.cmpf", self.i1, self.of(a), self.of(b), predicate=code)

    def compare_int(self, predicate: str, a: "Lanes", b: "Lanes") -> "Lanes":
        """A comparison of integers, by the name of its predicate (`slt`, `ult`), as i1."""
        code = ir.IntegerAttr.get(self._predicate_type, _CMPI[predicate])
        return self.op("arith.cmpi", self.i1, a, b, predicate=code)

    def min(self, x: "Lanes", bound: "Lanes | float") -> "Lanes":
        """Smaller of x and a bound that is no NaN; a NaN x stays.  One minps."""
        return self.select(self.compare("ogt", x, bound), bound, x)

    def max(self, x: "Lanes", bound: "Lanes | float") -> "Lanes":
        """Larger of x and a bound that is no NaN; a NaN x stays.  One maxps."""
        return self.select(self.compare("olt", x, bound), bound, x)

    def clamp(self, x: "Lanes", low: float, high: float) -> "Lanes":
        """`x` between two bounds; NaN becomes a bound."""
        return self.min(self.max(x, low), high)

    def sqrt(self, x: "Lanes") -> "Lanes":
        """The correctly rounded square root."""
        return self.op("math.sqrt", self.float_type, x)

    def abs(self, x: "Lanes") -> "Lanes":
        """The absolute value: the sign bit cleared."""
        return self.op("math.absf", self.float_type, x)

    def trunc(self, x: "Lanes") -> "Lanes":
        """Rounding towards zero to an integral float."""
        return self.op("math.trunc", self.float_type, x)

    def polynomial(self, coefficients: tuple[float, ...], x: "Lanes", longest: int = _LONGEST_CHAIN) -> "Lanes":
        """The polynomial with these coefficients, lowest first: Horner's scheme.

        With more than ``longest`` coefficients as two chains, in x^2, for even and odd powers: one more
        multiplication and up to one more ULP where the two cancel, for half the latency.
        """
        if len(coefficients) > longest:
            square = x * x
            return self.fma(self._horner(coefficients[1::2], square), x, self._horner(coefficients[::2], square))
        return self._horner(coefficients, x)

    def _horner(self, coefficients: tuple[float, ...], x: "Lanes") -> "Lanes":
        result = self.f(coefficients[-1])
        for c in coefficients[-2::-1]:
            result = self.fma(result, x, c)
        return result

    # -- bits -----------------------------------------------------------------------------------------------------

    def as_int(self, x: "Lanes") -> "Lanes":
        """The bits of floats as integers of the same width."""
        return self.op("arith.bitcast", self.int_type, x)

    def as_float(self, x: "Lanes") -> "Lanes":
        """The bits of integers as floats of the same width."""
        return self.op("arith.bitcast", self.float_type, x)

    def int_op(self, name: str, a: "Lanes", b: "Lanes | int") -> "Lanes":
        """arith.``name`` on integers of the element's width."""
        b = b if isinstance(b, Lanes) else self.i(b)
        return self.op(f"arith.{name}", a.value.type, a, b)

    def sign_bit(self, x: "Lanes") -> "Lanes":
        """The sign bit of x alone, as an integer."""
        return self.int_op("andi", self.as_int(x), -(1 << (self.bits - 1)))

    def with_sign(self, magnitude: "Lanes", sign: "Lanes") -> "Lanes":
        """``magnitude`` (whose sign bit is clear) or'ed with a :meth:`sign_bit`."""
        return self.as_float(self.int_op("ori", self.as_int(magnitude), sign))

    def flip_sign(self, x: "Lanes", sign: "Lanes") -> "Lanes":
        """x negated where ``sign`` has the sign bit."""
        return self.as_float(self.int_op("xori", self.as_int(x), sign))


class Lanes:
    """An SSA value with operators.  Mixed operands: Python numbers become constants of this type."""

    __slots__ = ("emitter", "value")

    def __init__(self, emitter: Emitter, value: ir.Value):
        self.emitter = emitter
        self.value = value

    def _binary(self, name: str, a: "Lanes | Number", b: "Lanes | Number") -> "Lanes":
        e = self.emitter
        return e.op(name, e.float_type, e.of(a), e.of(b))

    def __add__(self, other: "Lanes | Number") -> "Lanes":
        return self._binary("arith.addf", self, other)

    def __radd__(self, other: Number) -> "Lanes":
        return self._binary("arith.addf", other, self)

    def __sub__(self, other: "Lanes | Number") -> "Lanes":
        return self._binary("arith.subf", self, other)

    def __rsub__(self, other: Number) -> "Lanes":
        return self._binary("arith.subf", other, self)

    def __mul__(self, other: "Lanes | Number") -> "Lanes":
        return self._binary("arith.mulf", self, other)

    def __rmul__(self, other: Number) -> "Lanes":
        return self._binary("arith.mulf", other, self)

    def __truediv__(self, other: "Lanes | Number") -> "Lanes":
        return self._binary("arith.divf", self, other)

    def __rtruediv__(self, other: Number) -> "Lanes":
        return self._binary("arith.divf", other, self)

    def __neg__(self) -> "Lanes":
        e = self.emitter
        return e.op("arith.negf", e.float_type, self)

    def __and__(self, other: "Lanes") -> "Lanes":
        return self.emitter.op("arith.andi", self.value.type, self, other)

    def __or__(self, other: "Lanes") -> "Lanes":
        return self.emitter.op("arith.ori", self.value.type, self, other)


def _bits64(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]
