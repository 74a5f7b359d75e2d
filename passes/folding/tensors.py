# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Evaluation of torch ops on constant tensors with ATen, and tensors as literals of the torch dialect."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from torch_mlir import ir

from kiln.dialects.dtypes import dtype_from_code, dtype_from_torch
from kiln.dialects.memo import type_text
from kiln.lowering.host.elements import bf16_bytes, dense_bytes
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type
from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT, list_elements, op_name, python_value

if TYPE_CHECKING:
    import torch

__all__ = ["argument_constant", "can_write", "evaluate", "literal", "literal_tensor"]

# c10::MemoryFormat.
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
# Element types that a dense attribute is read and written in.
_DENSE = frozenset({"f16", "f32", "f64", "bf16", "i1", "ui8", "si8", "si16", "si32", "si64"})


class Unknown(Exception):
    """An operand is known only at run time."""


def evaluate(op: ir.Operation, known: "dict[ir.Value, torch.Tensor]") -> "list[torch.Tensor] | None":
    """The results of an op all of whose operands are constant; None where they are not or ATen refuses.

    ``known`` holds the constant tensors found so far.
    """
    import torch

    parts = op_name(op).split(".")
    if len(parts) < 3 or parts[1] not in ("aten", "prims"):
        return None
    packet = getattr(getattr(torch.ops, parts[1]), parts[2], None)
    overload = getattr(packet, parts[3] if len(parts) > 3 else "default", None)
    if overload is None or len(overload._schema.arguments) != len(op.operands):
        return None
    if overload._schema.is_mutable:
        return None
    try:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter, operand in zip(overload._schema.arguments, op.operands, strict=True):
            value = _argument(operand, parameter, known)
            if parameter.kwarg_only:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        with torch.no_grad():
            results = overload(*args, **kwargs)
    except (Unknown, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None  # what eager refuses stays as it is: the error belongs to the run
    listed: list[Any] = list(cast(Sequence[Any], results)) if isinstance(results, tuple | list) else [results]
    if len(listed) != len(op.results) or not all(isinstance(result, torch.Tensor) for result in listed):
        return None
    return listed if all(_agrees(t, r) for t, r in zip(listed, op.results, strict=True)) else None


def _argument(operand: ir.Value, parameter: Any, known: "dict[ir.Value, torch.Tensor]") -> Any:
    import torch

    if operand in known:
        return known[operand]
    elements = list_elements(operand)
    if elements is not None and any(element in known for element in elements):
        return [_argument(element, parameter, known) for element in elements]
    value = python_value(operand)
    if value is NOT_CONSTANT:
        raise Unknown
    kind = str(parameter.real_type if hasattr(parameter, "real_type") else parameter.type)
    if value is None or not isinstance(value, int | str) or isinstance(value, bool):
        return value
    if "ScalarType" in kind:
        dtype = dtype_from_code(value) if isinstance(value, int) else None
        if dtype is None:
            raise Unknown
        return getattr(torch, dtype.name)
    if "Layout" in kind:
        return torch.strided
    if "MemoryFormat" in kind:
        return getattr(torch, _MEMORY_FORMATS[value])  # type: ignore[index] - a number, by its kind
    if "Device" in kind:
        return torch.device(str(value))
    return value


def _agrees(tensor: "torch.Tensor", result: ir.Value) -> bool:
    """Whether the evaluated tensor has the type that the graph says."""
    parsed = parse_tensor_type(type_text(result.type))
    if parsed is None:
        return False
    dtype = dtype_from_torch(parsed[1])
    return dtype is not None and tuple(tensor.shape) == parsed[0] and str(tensor.dtype) == f"torch.{dtype.name}"


def can_write(value: ir.Value) -> bool:
    """Whether a constant of this type can be a literal."""
    parsed = parse_tensor_type(type_text(value.type))
    return parsed is not None and parsed[1] in _DENSE and None not in parsed[0] and 0 not in parsed[0]


def literal(tensor: "torch.Tensor", like: ir.Value) -> ir.Value:
    """A new ``torch.vtensor.literal`` of the type of ``like``: a splat where all elements are equal in their bits."""
    op = like.owner.operation if hasattr(like.owner, "operation") else like.owner
    attributes = {"value": dense(tensor, parse_tensor_type(type_text(like.type))[1])}  # type: ignore[index] - a literal is a tensor
    if "kiln.strides" in op.attributes:
        strides = ir.ArrayAttr(op.attributes["kiln.strides"])[ir.OpResult(like).result_number]
        attributes["kiln.strides"] = ir.ArrayAttr.get([strides])
    return ir.Operation.create("torch.vtensor.literal", results=[like.type], attributes=attributes).result


def dense(tensor: "torch.Tensor", element: str) -> ir.Attribute:
    """The elements as a dense attribute whose element type is that of the torch dialect (``si64``, ``f32``)."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    sizes = "x".join(map(str, tensor.shape)) + "x" if tensor.dim() else ""
    kind = f"tensor<{sizes}{element}>"
    if flat.dtype == torch.bool:
        words = ["true" if value else "false" for value in cast(list[Any], flat.tolist())]
    elif flat.dtype.is_floating_point:
        # Bits, so that NaN, Inf and the last digit are kept.
        width = flat.element_size()
        bits = cast(list[int], flat.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[width]).tolist())
        words = [f"0x{value % (1 << (8 * width)):0{2 * width}X}" for value in bits]
    else:
        words = [str(value) for value in cast(list[Any], flat.tolist())]
    return ir.Attribute.parse(f"dense<{words[0] if len(set(words)) == 1 else _nested(words, tensor.shape)}> : {kind}")


def _nested(words: list[str], shape: Any) -> str:
    if len(shape) <= 1:
        return f"[{', '.join(words)}]"
    step = len(words) // shape[0]
    return f"[{', '.join(_nested(words[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0]))}]"


def literal_tensor(attribute: ir.Attribute, value: ir.Value) -> "torch.Tensor | None":
    """The tensor that a dense attribute stands for, as the element type of ``value``; None for types not read."""
    import torch

    parsed = parse_tensor_type(type_text(value.type))
    if parsed is None or parsed[1] not in _DENSE or None in parsed[0]:
        return None
    dtype = dtype_from_torch(parsed[1])
    if dtype is None or not isinstance(attribute, ir.DenseElementsAttr):
        return None
    kind = getattr(torch, dtype.name)
    if kind == torch.bfloat16:
        numbers = cast(list[Any], torch.frombuffer(bytearray(bf16_bytes(attribute)), dtype=kind).tolist())
    elif kind == torch.float16:
        # Elements of f16 are none that the bindings' subscript reads.
        data = dense_bytes(attribute, ir.RankedTensorType(attribute.type))
        numbers = cast(list[Any], torch.frombuffer(bytearray(data), dtype=kind).tolist())
        numbers = numbers[:1] if attribute.is_splat else numbers
    elif isinstance(attribute, ir.DenseFPElementsAttr):
        numbers = [attribute[i] for i in range(1 if attribute.is_splat else len(attribute))]
    elif isinstance(attribute, ir.DenseIntElementsAttr):
        numbers = [int(attribute[i]) for i in range(1 if attribute.is_splat else len(attribute))]
    else:
        return None
    tensor = torch.tensor(numbers, dtype=torch.float64 if kind.is_floating_point else kind).to(kind)
    shape = [size for size in parsed[0] if size is not None]
    return tensor.reshape(()).expand(shape).clone() if attribute.is_splat else tensor.reshape(shape)


def argument_constant(argument: ir.Value) -> "torch.Tensor | None":
    """The tensor of an argument with ``kiln.value``: a small constant of the graph."""
    function = argument.owner.owner
    if "arg_attrs" not in function.attributes:
        return None
    attrs = ir.DictAttr(function.attributes["arg_attrs"][ir.BlockArgument(argument).arg_number])
    return literal_tensor(attrs["kiln.value"], argument) if "kiln.value" in attrs else None
