# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Types, strides and locations of FX nodes, in the terms of the torch dialect."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import sympy
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Node
from torch.utils._sympy.functions import Max
from torch_mlir import ir

from kiln.frontend.import_.fx_values import ImportUnsupported, value_leaves
from kiln.frontend.import_.symbols import SymbolSpace, as_expr

__all__ = [
    "address_strides",
    "attach_layout",
    "check_tensor",
    "check_types",
    "dtype_code",
    "expressions",
    "graph_location",
    "node_location",
    "shape_map",
    "small_value",
    "stride_map",
    "torch_type",
]

_ELEMENT_TYPES: dict[torch.dtype, str] = {
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.uint8: "ui8",
    torch.uint16: "ui16",
    torch.uint32: "ui32",
    torch.uint64: "ui64",
    torch.int8: "si8",
    torch.int16: "si16",
    torch.int32: "si32",
    torch.int64: "si64",
    torch.bool: "i1",
    torch.complex32: "complex<f16>",
    torch.complex64: "complex<f32>",
    torch.complex128: "complex<f64>",
    torch.float8_e5m2: "f8E5M2",
    torch.float8_e4m3fn: "f8E4M3FN",
    torch.float8_e5m2fnuz: "f8E5M2FNUZ",
    torch.float8_e4m3fnuz: "f8E4M3FNUZ",
    torch.float8_e8m0fnu: "f8E8M0FNU",
}


#: c10::ScalarType numbers, which is how the torch dialect writes a dtype argument.
_DTYPE_CODES: dict[torch.dtype, int] = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex32: 8,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
    torch.float8_e8m0fnu: 44,
}


_QUANTIZED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})


def dtype_code(dtype: torch.dtype) -> int:
    """PyTorch's own number of ``dtype`` (torch-mlir's table has other numbers for complex types)."""
    if dtype not in _DTYPE_CODES:
        raise ImportUnsupported(f"dtype {dtype} has no number in the torch dialect")
    return _DTYPE_CODES[dtype]


def check_tensor(name: str, tensor: torch.Tensor, *, is_input: bool = False) -> None:
    """Raise :class:`ImportUnsupported` for a tensor without plain strided memory on a known device.

    Inputs may be lazily negated: they are resolved before a call.
    """
    if tensor.layout is not torch.strided:
        raise ImportUnsupported(f"{name} has layout {tensor.layout}; only torch.strided tensors have memory Kiln knows")
    if tensor.is_quantized:
        raise ImportUnsupported(f"{name} is quantized ({tensor.dtype})")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ImportUnsupported(f"{name} is on device {tensor.device}; there are targets for the CPU and NVIDIA GPUs")
    # A lazily conjugated tensor is complex, so only ATen ever reads its memory; a lazily negated one may be real.
    if tensor.is_neg() and not is_input:
        raise ImportUnsupported(f"{name} is a lazily negated view")
    if tensor.dtype not in _ELEMENT_TYPES:
        raise ImportUnsupported(f"{name} has dtype {tensor.dtype}, which the torch dialect has no type for")


def check_types(node: Node) -> None:
    """Raise :class:`ImportUnsupported` for an op that makes a quantized tensor: FakeTensors call it one of floats."""
    for argument in value_leaves((node.args, tuple(node.kwargs.values()))):
        if isinstance(argument, torch.dtype) and argument in _QUANTIZED:
            raise ImportUnsupported(f"{node.name} is quantized ({argument})")


_MAXIMA = (sympy.Max, Max)
"""PyTorch's own is no subclass of sympy's."""


def expressions(tensor: torch.Tensor) -> Iterator[sympy.Expr]:
    """The expressions of the sizes, then of the strides used for addressing."""
    yield from map(as_expr, tensor.size())
    yield from address_strides(tensor)


def address_strides(tensor: torch.Tensor) -> list[sympy.Expr]:
    """The strides, with ``Max(1, e)`` written ``e`` where the two differ for an empty tensor only.

    PyTorch computes contiguous strides as products of ``max(size, 1)``. No element of an empty tensor is ever
    addressed, so the plain product serves, and it stays affine.
    """
    strides = [as_expr(stride) for stride in tensor.stride()]
    if not any(isinstance(stride, _MAXIMA) for stride in strides):
        return strides
    sizes = [as_expr(size) for size in tensor.size()]
    products = {
        sympy.expand(sympy.Mul(*subset)) for count in range(1, len(sizes) + 1) for subset in combinations(sizes, count)
    }
    return [_without_max(stride, products) for stride in strides]


def _without_max(stride: sympy.Expr, products: set[sympy.Expr]) -> sympy.Expr:
    if isinstance(stride, _MAXIMA) and len(stride.args) == 2 and sympy.Integer(1) in stride.args:
        other = next(arg for arg in stride.args if arg != 1)
        if sympy.expand(other) in products:
            return other
    return stride


def torch_type(value: Any, context: ir.Context) -> ir.Type:
    """``!torch.vtensor<[2,?],f32>`` and the like; a list of tensors is ``!torch.list<vtensor>``.

    Raises:
        ImportUnsupported: a value without a type in the torch dialect.
    """
    if isinstance(value, torch.Tensor):
        check_tensor("a result", value, is_input=True)
        sizes: Sequence[Any] = value.size()
        if value._has_symbolic_sizes_strides:
            sizes = [size if size.is_Integer else "?" for size in map(as_expr, sizes)]
        dims = ",".join(map(str, sizes))
        text = f"!torch.vtensor<[{dims}],{_ELEMENT_TYPES[value.dtype]}>"
    elif isinstance(value, (torch.SymBool, bool)):
        text = "!torch.bool"
    elif isinstance(value, (torch.SymInt, int)):
        text = "!torch.int"
    elif isinstance(value, (torch.SymFloat, float)):
        text = "!torch.float"
    elif value is None:
        text = "!torch.none"
    elif isinstance(value, str):
        text = "!torch.str"
    elif isinstance(value, (list, tuple)) and all(
        isinstance(member, torch.Tensor) for member in cast(Sequence[Any], value)
    ):
        text = "!torch.list<vtensor>"
    else:
        raise ImportUnsupported(f"a value of type {type(cast(Any, value)).__name__} has no type in the torch dialect")
    return ir.Type.parse(text, context)


def shape_map(space: SymbolSpace, tensor: torch.Tensor) -> ir.AffineMapAttr:
    """The sizes as ``affine_map<()[s0, ...] -> (dims)>``."""
    return space.map([as_expr(n) for n in tensor.size()] if tensor._has_symbolic_sizes_strides else tensor.size())


def stride_map(space: SymbolSpace, tensor: torch.Tensor) -> ir.AffineMapAttr:
    """The strides used for addressing, in elements."""
    return space.map(address_strides(tensor) if tensor._has_symbolic_sizes_strides else tensor.stride())


#: Constants of the graph with at most so many elements are written into the IR, where passes can compute with them.
_SMALL = 64


def small_value(tensor: torch.Tensor) -> dict[str, ir.Attribute]:
    """``kiln.value``, the elements of a small constant; nothing for others."""
    from kiln.passes.folding.tensors import dense

    element = _ELEMENT_TYPES[tensor.dtype]
    if not 0 < tensor.numel() <= _SMALL or element not in _WRITABLE:
        return {}
    with unset_fake_temporarily():
        return {"kiln.value": dense(tensor, element)}


_WRITABLE = frozenset({"f16", "bf16", "f32", "f64", "i1", "ui8", "si8", "si16", "si32", "si64"})


def attach_layout(op: ir.Operation, values: Sequence[Any], space: SymbolSpace) -> None:
    """Set ``kiln.strides`` (and ``kiln.shapes`` if a size is dynamic): one entry per result, unit for a non-tensor."""
    tensors = [value if isinstance(value, torch.Tensor) else None for value in values]
    if not any(tensor is not None for tensor in tensors):
        return
    unit = ir.UnitAttr.get()
    op.attributes["kiln.strides"] = ir.ArrayAttr.get([unit if t is None else stride_map(space, t) for t in tensors])
    if any(t is not None and t._has_symbolic_sizes_strides and not _has_known_sizes(t) for t in tensors):
        op.attributes["kiln.shapes"] = ir.ArrayAttr.get([unit if t is None else shape_map(space, t) for t in tensors])


def _has_known_sizes(tensor: torch.Tensor) -> bool:
    return all(as_expr(size).is_Integer for size in tensor.size())


_FRAME = re.compile(r'File "([^"]+)", line ([0-9]+)')
_TORCH_ROOT = str(Path(torch.__file__).parent)


@lru_cache(maxsize=4096)
def _source_line(stack_trace: str) -> tuple[str, int] | None:
    """The innermost frame outside of torch itself (the model's line), else the innermost one."""
    frames = _FRAME.findall(stack_trace)
    for file, line in reversed(frames):
        if not file.startswith(_TORCH_ROOT):
            return file, int(line)
    return (frames[-1][0], int(frames[-1][1])) if frames else None


def node_location(node: Node, context: ir.Context) -> ir.Location:
    """``loc("add_1"("model.py":12:0))``: the FX node's name around the model's source line."""
    trace = node.meta.get("stack_trace")
    source = _source_line(trace) if isinstance(trace, str) else None
    if source is None:
        child = ir.Location.unknown(context)
    else:
        child = ir.Location.file(source[0], source[1], 0, context=context)
    return ir.Location.name(node.name, child, context=context)


def graph_location(nodes: Iterable[Node], context: ir.Context) -> ir.Location:
    """The place of the first call."""
    first = next((node for node in nodes if node.op == "call_function"), None)
    return ir.Location.unknown(context) if first is None else node_location(first, context)
