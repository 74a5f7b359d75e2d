# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Element types: their name in PyTorch, in the torch dialect and in builtin tensors.

Builtin tensors hold signless integers, so the sign of an integer is known only here.
"""

from dataclasses import dataclass
from functools import cache

from torch_mlir import ir

from kiln.dialects.memo import type_text

__all__ = [
    "BF16",
    "BOOL",
    "F16",
    "F32",
    "F64",
    "I8",
    "I16",
    "I32",
    "I64",
    "U8",
    "DType",
    "dtype_from_builtin",
    "dtype_from_code",
    "dtype_from_torch",
    "promote",
]


@dataclass(frozen=True)
class DType:
    """One element type.

    ``name`` is PyTorch's (``float32``), ``code`` its ScalarType number, ``kind`` one of ``f`` (float), ``i`` (signed),
    ``u`` (unsigned), ``b`` (bool), ``o`` (opaque: complex and 8-bit floats, at most converted by Kiln); ``mlir`` is the
    builtin element type, ``torch`` the torch dialect's.
    """

    name: str
    code: int
    bits: int
    kind: str
    mlir: str
    torch: str

    @property
    def is_opaque(self) -> bool:
        """True for types that Kiln carries but does not compute."""
        return self.kind == "o"

    @property
    def is_float8(self) -> bool:
        """True for the 8-bit floats that Kiln converts from and to; it computes nothing else in them."""
        return self.name in ("float8_e5m2", "float8_e4m3fn")

    @property
    def is_float(self) -> bool:
        """True for floating-point types."""
        return self.kind == "f"

    @property
    def is_bool(self) -> bool:
        """True for bool."""
        return self.kind == "b"

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers; bool is not one."""
        return self.kind in "iu"

    @property
    def is_signed(self) -> bool:
        """True for floats and signed integers."""
        return self.kind in "fi"

    @property
    def is_half(self) -> bool:
        """True for float16 and bfloat16, whose arithmetic is done in float32."""
        return self.kind == "f" and self.bits == 16

    @property
    def compute(self) -> "DType":
        """The type in which values of this type are computed (PyTorch's opmath type)."""
        return F32 if self.is_half else self

    @property
    def type(self) -> ir.Type:
        """The builtin element type in the current context."""
        if self.kind == "o":
            return ir.Type.parse(self.mlir)
        if self.kind != "f":
            return ir.IntegerType.get_signless(self.bits)
        return {"f16": ir.F16Type, "bf16": ir.BF16Type, "f32": ir.F32Type, "f64": ir.F64Type}[self.mlir].get()

    @property
    def min(self) -> int | float:
        """The least value (-inf for floats)."""
        if self.is_float:
            return float("-inf")
        return -(1 << (self.bits - 1)) if self.kind == "i" else 0

    @property
    def max(self) -> int | float:
        """The greatest value (+inf for floats)."""
        if self.is_float:
            return float("inf")
        return (1 << (self.bits - 1)) - 1 if self.kind == "i" else (1 << self.bits) - 1


U8 = DType("uint8", 0, 8, "u", "i8", "ui8")
I8 = DType("int8", 1, 8, "i", "i8", "si8")
I16 = DType("int16", 2, 16, "i", "i16", "si16")
I32 = DType("int32", 3, 32, "i", "i32", "si32")
I64 = DType("int64", 4, 64, "i", "i64", "si64")
F16 = DType("float16", 5, 16, "f", "f16", "f16")
F32 = DType("float32", 6, 32, "f", "f32", "f32")
F64 = DType("float64", 7, 64, "f", "f64", "f64")
BOOL = DType("bool", 11, 1, "b", "i1", "i1")
BF16 = DType("bfloat16", 15, 16, "f", "bf16", "bf16")
U16 = DType("uint16", 27, 16, "u", "i16", "ui16")
U32 = DType("uint32", 28, 32, "u", "i32", "ui32")
U64 = DType("uint64", 29, 64, "u", "i64", "ui64")
COMPLEX32 = DType("complex32", 8, 32, "o", "complex<f16>", "complex<f16>")
COMPLEX64 = DType("complex64", 9, 64, "o", "complex<f32>", "complex<f32>")
COMPLEX128 = DType("complex128", 10, 128, "o", "complex<f64>", "complex<f64>")
F8E5M2 = DType("float8_e5m2", 23, 8, "o", "f8E5M2", "f8E5M2")
F8E4M3FN = DType("float8_e4m3fn", 24, 8, "o", "f8E4M3FN", "f8E4M3FN")
F8E5M2FNUZ = DType("float8_e5m2fnuz", 25, 8, "o", "f8E5M2FNUZ", "f8E5M2FNUZ")
F8E4M3FNUZ = DType("float8_e4m3fnuz", 26, 8, "o", "f8E4M3FNUZ", "f8E4M3FNUZ")

_OPAQUE = (COMPLEX32, COMPLEX64, COMPLEX128, F8E5M2, F8E4M3FN, F8E5M2FNUZ, F8E4M3FNUZ)
_ALL = (U8, I8, I16, I32, I64, F16, F32, F64, BOOL, BF16, U16, U32, U64, *_OPAQUE)
_BY_CODE = {d.code: d for d in _ALL}
_BY_TORCH = {d.torch: d for d in _ALL}
_BY_MLIR = {d.mlir: d for d in (F16, F32, F64, BF16, BOOL, I8, I16, I32, I64, *_OPAQUE)}


def dtype_from_code(code: int) -> DType | None:
    """The type with PyTorch's ScalarType number ``code``; None for types that Kiln cannot even carry."""
    return _BY_CODE.get(code)


def dtype_from_torch(text: str) -> DType | None:
    """The type written ``text`` (``si64``, ``bf16``) in the torch dialect; None for one that Kiln cannot carry."""
    return _BY_TORCH.get(text)


def dtype_from_builtin(element: ir.Type) -> DType | None:
    """The type of a builtin element type, integers taken as signed."""
    return _BY_MLIR.get(type_text(element))


@cache
def promote(a: DType, b: DType) -> DType | None:
    """PyTorch's ``promote_types``; None where PyTorch itself refuses (uint64 with signed integers)."""
    if a == b:
        return a
    if a.is_opaque or b.is_opaque:
        return None
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        if a.bits == b.bits:  # float16 with bfloat16
            return F32
        return a if a.bits > b.bits else b
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if unsigned.bits > 8:  # PyTorch defines no promotion between the wider unsigned types and signed ones
        return None
    return signed if signed.bits > unsigned.bits else I16
