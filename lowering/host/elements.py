# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Element types of builtin tensors as PyTorch dtypes, by name: no torch here."""

import re

from torch_mlir import ir

from kiln.dialects.memo import PerContext
from kiln.errors import InvalidIRError

__all__ = ["bf16_bytes", "dtype_name", "item_bytes"]

_DTYPES = {
    "f16": ("float16", 2),
    "bf16": ("bfloat16", 2),
    "f32": ("float32", 4),
    "f64": ("float64", 8),
    "i1": ("bool", 1),
    "i8": ("int8", 1),
    "i16": ("int16", 2),
    "i32": ("int32", 4),
    "i64": ("int64", 8),
    "complex<f16>": ("complex32", 4),
    "complex<f32>": ("complex64", 8),
    "complex<f64>": ("complex128", 16),
    "f8E5M2": ("float8_e5m2", 1),
    "f8E4M3FN": ("float8_e4m3fn", 1),
    "f8E5M2FNUZ": ("float8_e5m2fnuz", 1),
    "f8E4M3FNUZ": ("float8_e4m3fnuz", 1),
    "f8E8M0FNU": ("float8_e8m0fnu", 1),
}


def dtype_name(type_: ir.Type) -> str:
    """The dtype of a tensor type ("float32"); integers count as signed. Raises InvalidIRError for other elements."""
    return _lookup(type_)[0]


def item_bytes(type_: ir.Type) -> int:
    """Bytes per element in memory; a bool takes one."""
    return _lookup(type_)[1]


def _lookup(type_: ir.Type) -> tuple[str, int]:
    known = _KNOWN.of(type_.context)
    found = known.get(hash(type_))
    if found is None:
        element = str(ir.RankedTensorType(type_).element_type)
        if element not in _DTYPES:
            raise InvalidIRError(f"{type_}: PyTorch has no dtype for elements of type {element}")
        found = known[hash(type_)] = _DTYPES[element]
    return found


_KNOWN = PerContext()
"""What has been looked up, by type."""


def element_text(dtype: str) -> str:
    """The element type of a dtype name, as MLIR text; unsigned integers keep their sign."""
    if dtype.startswith("uint"):
        return f"ui{dtype[4:]}"
    return next(element for element, (name, _) in _DTYPES.items() if name == dtype)


def dense_bytes(attribute: ir.Attribute, type_: ir.RankedTensorType) -> bytes:
    """The elements of a dense attribute of a static tensor type, row-major, as they lie in memory."""
    import numpy as np

    dense = ir.DenseElementsAttr(attribute)
    count = int(np.prod(type_.shape, dtype=np.int64))
    if str(type_.element_type) == "bf16":
        words = np.frombuffer(bf16_bytes(dense), np.uint16)
        return (np.full(count, words[0]) if dense.is_splat else words).tobytes()
    if dense.is_splat:
        value = dense.get_splat_value()
        number = ir.FloatAttr(value).value if isinstance(value, ir.FloatAttr) else ir.IntegerAttr(value).value
        kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i1": np.bool_}.get(str(type_.element_type))
        return np.full(count, number, kind or np.dtype(f"i{item_bytes(type_)}")).tobytes()
    return np.ascontiguousarray(np.array(dense)).tobytes()


def bf16_bytes(dense: ir.DenseElementsAttr) -> bytes:
    """The elements of a dense attribute of bf16 (one, if it is a splat), which the bindings cannot read, from its text.

    Printed digits tell bf16 values apart; what is no number is printed as its bits, and a long attribute as bytes.
    """
    import numpy as np

    text = str(dense)
    text = text[text.index("<") + 1 : text.rindex("> : ")]
    if text.startswith('"0x'):
        return bytes.fromhex(text[3:-1])
    found = re.findall(r"0x[0-9A-Fa-f]+|[-+0-9.][-+0-9.eE]*", text)
    words = [
        int(t, 16) if t.startswith("0x") else int(np.float32(float(t)).view(np.uint32)) + 0x8000 >> 16 for t in found
    ]
    return np.array(words, np.uint16).tobytes()
