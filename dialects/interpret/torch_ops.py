# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""The `torch` dialect: each op is a call of the ATen op of its name.

The dialect has no types for dtypes, layouts and memory formats: they are numbers, which the schema's type of the
argument tells apart.
"""

import re
from math import prod
from typing import TYPE_CHECKING, Any, cast

import torch
from torch_mlir import ir

from kiln.dialects.interpret.movement import contents
from kiln.errors import UnsupportedError
from kiln.functions import Fn

if TYPE_CHECKING:
    from kiln.dialects.interpret.interpreter import Interpreter

__all__ = ["argument", "check_places", "run"]

_DTYPES = {
    0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64, 5: torch.float16, 6: torch.float32,
    7: torch.float64, 8: torch.complex32, 9: torch.complex64, 10: torch.complex128, 11: torch.bool,
    15: torch.bfloat16, 23: torch.float8_e5m2, 24: torch.float8_e4m3fn, 25: torch.float8_e5m2fnuz,
    26: torch.float8_e4m3fnuz, 27: torch.uint16, 28: torch.uint32, 29: torch.uint64, 44: torch.float8_e8m0fnu,
}  # fmt: skip
_LAYOUTS: tuple[Any, ...] = (
    torch.strided,
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)
_FORMATS: tuple[Any, ...] = (
    torch.contiguous_format,
    torch.preserve_format,
    torch.channels_last,
    torch.channels_last_3d,
)
_NARROW = {torch.float16, torch.bfloat16, torch.float32}


def argument(interpreter: "Interpreter", number: int, type_: ir.Type, x: Any) -> Any:
    """An argument of a function of the dialect: a tensor in the working precision, or a number."""
    if not isinstance(x, torch.Tensor):
        return x
    if not str(type_).startswith("!torch.vtensor"):
        raise ValueError(f"input {number}: expected {type_}, found {x.dtype} {tuple(x.shape)}")
    return _widened(interpreter, x.detach())


def _widened(interpreter: "Interpreter", x: Any) -> Any:
    """A tensor of floats in the working precision; anything else as it is."""
    wide = interpreter.numbers.precision.wide
    if wide is None or not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point:
        return x
    return x.to(wide)


def run(interpreter: "Interpreter", op: Any) -> list[Any]:
    """The results of one op of the dialect."""
    name = op.operation.name
    if name.startswith("torch.constant."):
        return [_constant(op, name)]
    operands = [interpreter.value(v) for v in op.operands]
    if name == "torch.vtensor.literal":
        return [_literal(interpreter, op)]
    if name in ("torch.prim.ListConstruct", "torch.prim.TupleConstruct"):
        return [operands]
    if name in ("torch.prim.ListUnpack", "torch.prim.TupleUnpack"):
        return list(operands[0])
    if name == "torch.derefine":
        return operands
    if name in ("torch.runtime.assert", "torch.bind_symbolic_shape"):
        return []
    if name == "torch.prim.NumToTensor.Scalar":
        return [_widened(interpreter, torch.tensor(operands[0], device=interpreter.device))]
    if name in _NUMBERS:
        return [_NUMBERS[name](*operands)]
    if name == "torch.operator":
        name = ir.StringAttr(op.attributes["name"]).value
    return _call(interpreter, op, name.removeprefix("torch."), operands)


_NUMBERS: dict[str, Fn[Any, Any]] = {
    "torch.prim.min.int": min, "torch.prim.max.int": max, "torch.prim.min.self_int": min,
    "torch.prim.max.self_int": max, "torch.aten.Float.Scalar": float, "torch.aten.Float.int": float,
    "torch.aten.Int.Scalar": int, "torch.aten.add.int": lambda a, b: a + b, "torch.aten.sub.int": lambda a, b: a - b,
    "torch.aten.mul.int": lambda a, b: a * b, "torch.aten.floordiv.int": lambda a, b: a // b,
    "torch.aten.remainder.int": lambda a, b: a % b, "torch.aten.div.int": lambda a, b: a / b,
    "torch.aten.size.int": lambda x, d: x.shape[d], "torch.aten.numel": lambda x: x.numel(),
    "torch.aten.item": lambda x: x.item(), "torch.aten._local_scalar_dense": lambda x: x.item(),
}  # fmt: skip
"""Ops on numbers, which the dispatcher has only for TorchScript."""


def _constant(op: Any, name: str) -> Any:
    kind = name.removeprefix("torch.constant.")
    if kind == "none":
        return None
    value = op.attributes["value"]
    if kind == "device":
        return torch.device(ir.StringAttr(value).value)
    if kind == "bool":
        return bool(ir.IntegerAttr(value).value)
    return value.value


def _literal(interpreter: "Interpreter", op: Any) -> Any:
    attribute = op.attributes["value"]
    type_ = ir.RankedTensorType(attribute.type)
    code = _element(str(op.results[0].type), str(type_.element_type))
    shape = list(type_.shape)
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        x = torch.full(shape, attribute.get_splat_value().value, dtype=code)
    else:
        x = contents(attribute, shape, code)
    return _widened(interpreter, x.to(interpreter.device))


def _element(result: str, element: str) -> torch.dtype:
    """The dtype of a literal: its type tells signs that its contents may lack."""
    text = result[result.rindex(",") + 1 :].rstrip(">") if "," in result else element
    sized = {
        f"{sign}i{n}": getattr(torch, f"{kind}int{n}")
        for sign, kind in (("s", ""), ("u", "u"))
        for n in (8, 16, 32, 64)
    }
    named = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i1": torch.bool}
    found = (sized | named).get(text)
    if found is None:
        raise UnsupportedError("torch.vtensor.literal", "", f"a literal of {text}")
    return found


# ---------------------------------------------------------------------------------------------------------------- calls


def _call(interpreter: "Interpreter", op: Any, name: str, operands: list[Any]) -> list[Any]:
    from kiln.runtime.aten_call import AtenCallError, resolve_op  # a leaf of the runtime: it imports no other layer

    parts = name.split(".")
    try:
        target = resolve_op(".".join(parts if len(parts) > 2 else [*parts, "default"]))
    except AtenCallError as error:
        raise UnsupportedError(f"torch.{name}", str(op.location), "the interpreter has no such op") from error
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for parameter, operand in zip(target._schema.arguments, operands, strict=False):
        decoded = _decoded(interpreter, operand, str(parameter.real_type))
        if parameter.kwarg_only:
            kwargs[parameter.name] = decoded
        else:
            args.append(decoded)
    check_places(name, args)
    with torch.no_grad():
        results = _flat(target(*_same_floats(interpreter, args), **kwargs), op)
    return [_widened(interpreter, x) for x in results]


_POOLING_GRADIENT = re.compile(r"max_pool([23])d\w*_backward")


def check_places(name: str, args: list[Any]) -> None:
    """Raises IndexError for indices outside of an image, where ATen's gradients of poolings write without a look.

    args: of a call, the image second and the indices last.
    """
    pooling = _POOLING_GRADIENT.search(name)
    if pooling is None:
        return
    image, indices = args[1], args[-1]
    size = prod(image.shape[-int(pooling[1]) :])
    if indices.numel() and (int(indices.min()) < 0 or int(indices.max()) >= size):
        raise IndexError(f"{name}: an index is not between 0 and {size - 1}")


def _decoded(interpreter: "Interpreter", x: Any, kind: str) -> Any:
    """An operand as what the schema's type asks for."""
    if x is None or isinstance(x, torch.Tensor | torch.device | torch.dtype):
        return interpreter.device if isinstance(x, torch.device) and x.type == interpreter.device.type else x
    if isinstance(x, list):
        return [_decoded(interpreter, item, kind.replace("List[", "", 1)) for item in cast(list[Any], x)]
    if "ScalarType" in kind:
        dtype = _DTYPES[x]
        wide = interpreter.numbers.precision.wide
        return wide if wide is not None and dtype in _NARROW else dtype
    if "Layout" in kind:
        return _LAYOUTS[x]
    return _FORMATS[x] if "MemoryFormat" in kind else x


def _same_floats(interpreter: "Interpreter", args: list[Any]) -> list[Any]:
    """With one precision for all floats, a tensor that an op made in another one joins the others."""
    return [_widened(interpreter, x) for x in args]


def _flat(found: Any, op: Any) -> list[Any]:
    """One value per result: a list of tensors is one value, which a later op unpacks."""
    results = list(op.results)
    if len(results) == 1 and not str(results[0].type).startswith("!torch.list") and isinstance(found, tuple | list):
        return [found[0]]
    if len(results) == 1:
        return [found]
    return list(found)[: len(results)] if results else []
