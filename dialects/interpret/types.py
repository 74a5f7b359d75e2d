# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Element types as torch dtypes, and in which dtype a float is computed."""

from dataclasses import dataclass

import torch
from torch_mlir import ir

from kiln.errors import KilnError, UnsupportedError, did_you_mean

__all__ = ["Precision", "as_element", "dtype_of", "element_of", "is_float", "width"]

_DTYPES = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "index": torch.int64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "complex<f16>": torch.complex32, "complex<f32>": torch.complex64, "complex<f64>": torch.complex128,
    "f8E5M2": torch.float8_e5m2, "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2FNUZ": torch.float8_e5m2fnuz,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz, "f8E8M0FNU": torch.float8_e8m0fnu,
}  # fmt: skip
_KINDS = {"declared": None, "float32": torch.float32, "float64": torch.float64}


def dtype_of(element: ir.Type) -> torch.dtype:
    """The dtype of an element type; integers without a sign are signed."""
    text = str(element)
    if text[:2] in ("si", "ui"):
        text = text[1:]
    if text not in _DTYPES:
        raise UnsupportedError("the interpreter", "", f"no dtype for element type {text}")
    return _DTYPES[text]


def element_of(type_: ir.Type) -> ir.Type:
    """The element type of a tensor; a scalar's own type."""
    return type_.element_type if isinstance(type_, ir.RankedTensorType) else type_


def is_float(element: ir.Type) -> bool:
    """Whether an element type is a real floating point type."""
    return isinstance(element, ir.FloatType)


def width(element: ir.Type) -> int:
    """Bits of an integer or index type."""
    return 64 if isinstance(element, ir.IndexType) else ir.IntegerType(element).width


@dataclass(frozen=True)
class Precision:
    """In which dtype floats are computed: `wide`, or what the IR's types say where that is None."""

    wide: torch.dtype | None

    @classmethod
    def named(cls, name: str) -> "Precision":
        """Of "declared", "float32", "float64".  Raises KilnError for another name."""
        if name not in _KINDS:
            raise KilnError(f"interpreter: unknown precision {name!r}{did_you_mean(name, _KINDS)}")
        return cls(_KINDS[name])

    def dtype(self, element: ir.Type) -> torch.dtype:
        """The dtype of values of an element type."""
        return self.wide if self.wide is not None and is_float(element) else dtype_of(element)

    def arithmetic(self, element: ir.Type) -> torch.dtype:
        """The dtype to compute one op in, whose result is rounded to `dtype(element)`."""
        dtype = self.dtype(element)
        return torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype


def as_element(x: torch.Tensor, element: ir.Type) -> torch.Tensor:
    """An unsigned tensor as the signless integers of an element type, bit by bit; others as they are."""
    dtype = dtype_of(element)
    if x.is_conj() or x.is_neg():
        x = x.resolve_conj().resolve_neg()
    kinds = {x.dtype.is_floating_point, x.dtype.is_complex, x.dtype == torch.bool, dtype == torch.bool}
    kinds |= {dtype.is_floating_point, dtype.is_complex}
    return x.view(dtype) if kinds == {False} and x.dtype != dtype and x.dtype.itemsize == dtype.itemsize else x
