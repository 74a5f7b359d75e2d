# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The signature of a module's function as samples see it: tensors by their order, symbols by their names.

A pass may move arguments for symbols (``convert-torch-to-kiln`` does); it keeps the order of tensors.
"""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.errors import InvalidIRError
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type

__all__ = ["DTYPES", "Argument", "Signature", "entry_function", "signature_of"]

#: Element types of builtin tensors and of the torch dialect, as PyTorch calls them.
DTYPES = {
    "i1": "bool",
    **{f"i{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"si{n}": f"int{n}" for n in (8, 16, 32, 64)},
    **{f"ui{n}": f"uint{n}" for n in (8, 16, 32, 64)},
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    "f8E4M3FN": "float8_e4m3fn",
    "f8E5M2": "float8_e5m2",
}


@dataclass(frozen=True)
class Argument:
    """One argument: ``symbol`` is the name of a size, empty for a tensor.

    ``shape`` and ``strides`` are those of a tensor, as expressions over the function's symbols; a plain size is an int,
    and a size that nothing says anything about is None. ``dtype`` is PyTorch's name. ``strides`` is None where the
    tensor is row-major. ``may_count_from_end``: integers have a sign in the IR, as in the torch dialect, whose indices
    may be negative.
    """

    symbol: str = ""
    dtype: str = ""
    shape: "tuple[ir.AffineExpr | int | None, ...]" = ()
    strides: "tuple[ir.AffineExpr, ...] | None" = None
    may_count_from_end: bool = False


@dataclass(frozen=True)
class Signature:
    """The arguments of a function in order, and the names of the symbols that expressions count."""

    arguments: tuple[Argument, ...]
    symbols: tuple[str, ...]

    @property
    def tensors(self) -> tuple[Argument, ...]:
        """The arguments that are tensors."""
        return tuple(a for a in self.arguments if not a.symbol)


def entry_function(module: ir.Module) -> ir.Operation:
    """The function that a module is run from: `@main`, or the first one. Raises InvalidIRError without any."""
    functions = [op.operation for op in module.body.operations if op.operation.name == "func.func"]
    functions = [op for op in functions if len(op.regions[0].blocks)]
    if not functions:
        raise InvalidIRError("the module has no func.func to run")
    named = [op for op in functions if ir.StringAttr(op.attributes["sym_name"]).value == "main"]
    return (named or functions)[0]


def signature_of(function: ir.Operation) -> Signature:
    """Reads types and the attributes `kiln.symbol`, `kiln.shape`, `kiln.strides` and `kiln.dtype` of the arguments.

    Raises InvalidIRError for an argument that is neither a tensor nor a size.
    """
    entries = list(ir.ArrayAttr(function.attributes["arg_attrs"])) if "arg_attrs" in function.attributes else []
    arguments: list[Argument] = []
    for number, value in enumerate(function.regions[0].blocks[0].arguments):
        attrs = ir.DictAttr(entries[number]) if entries else None
        arguments.append(_argument(value, number, attrs))
    names = [a.symbol for a in arguments if a.symbol]
    if "kiln.symbols" in function.attributes:
        names = [ir.StringAttr(name).value for name in ir.ArrayAttr(function.attributes["kiln.symbols"])]
    return Signature(tuple(arguments), tuple(names))


def _argument(value: ir.Value, number: int, attrs: ir.DictAttr | None) -> Argument:
    text = type_text(value.type)
    if text in ("!torch.int", "index"):
        named = attrs is not None and "kiln.symbol" in attrs
        return Argument(symbol=ir.StringAttr(attrs["kiln.symbol"]).value if named and attrs else f"arg{number}")
    parsed = parse_tensor_type(text)
    if parsed is None and isinstance(value.type, ir.RankedTensorType):
        type_ = ir.RankedTensorType(value.type)
        sizes = tuple(None if type_.is_dynamic_dim(i) else type_.get_dim_size(i) for i in range(type_.rank))
        parsed = sizes, str(type_.element_type)
    if parsed is None or parsed[1] not in DTYPES:
        raise InvalidIRError(f"argument {number} is a {text}: no random tensor can be made of that", value.location)
    shape: tuple[ir.AffineExpr | int | None, ...] = parsed[0]
    dtype, strides = DTYPES[parsed[1]], None
    if attrs is not None:
        if "kiln.shape" in attrs and None in shape:
            shape = tuple(ir.AffineMapAttr(attrs["kiln.shape"]).value.results)
        if "kiln.strides" in attrs:
            strides = tuple(ir.AffineMapAttr(attrs["kiln.strides"]).value.results)
        if "kiln.dtype" in attrs:
            dtype = ir.StringAttr(attrs["kiln.dtype"]).value
    return Argument("", dtype, shape, strides, parsed[1].startswith("si"))
