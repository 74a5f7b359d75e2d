# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Data movement: views, paddings, concatenations, constants, tensors without contents."""

from typing import TYPE_CHECKING, Any, cast

import torch
from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.interpret.reads import Box, read
from kiln.dialects.interpret.types import dtype_of

if TYPE_CHECKING:
    from kiln.dialects.interpret.interpreter import Interpreter

__all__ = ["RULES", "contents", "dense"]


def _view(interpreter: "Interpreter", op: Any) -> list[Any]:
    exprs, symbols = interpreter.map(op, "map")
    box = Box.whole(interpreter.sizes(op))
    x = interpreter.value(op.operands[0])

    def moved(part: torch.Tensor) -> torch.Tensor:
        return read(part, exprs, box, symbols).expand(box.extents)

    return [interpreter.numbers.move(moved, x)]


def _empty(interpreter: "Interpreter", op: Any) -> list[Any]:
    """NaN and a large number: what reads it shows."""
    element = op.results[0].type.element_type
    dtype = dtype_of(element)
    if dtype == torch.bool:
        filler = torch.ones((1,), dtype=dtype, device=interpreter.device)
    elif dtype.is_floating_point or dtype.is_complex:
        filler = torch.full((1,), float("nan"), dtype=torch.float32, device=interpreter.device).to(dtype)
    else:
        filler = torch.full((1,), torch.iinfo(dtype).max // 3, dtype=dtype, device=interpreter.device)
    whole = interpreter.numbers.lift(filler, element)
    sizes = interpreter.sizes(op)
    return [interpreter.numbers.move(lambda x: x.reshape([1] * len(sizes)).expand(sizes), whole)]


def _pad(interpreter: "Interpreter", op: Any) -> list[Any]:
    x, filler = interpreter.value(op.operands[0]), interpreter.scalar(op.operands[1])
    low, sizes = interpreter.sizes(op, "low"), interpreter.sizes(op)

    def padded(part: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        out = value.to(part.device).expand(sizes).clone(memory_format=torch.contiguous_format)
        target = out
        for d, (before, size) in enumerate(zip(low, sizes, strict=True)):
            start, stop = max(before, 0), min(before + part.shape[d], size)
            count = max(stop - start, 0)
            part = part.narrow(d, max(-before, 0) if count else 0, count)
            target = target.narrow(d, start if count else 0, count)
        target.copy_(part)
        return out

    return [interpreter.numbers.move(padded, x, filler)]


def _cat(interpreter: "Interpreter", op: Any) -> list[Any]:
    dim = ir.IntegerAttr(op.attributes["dim"]).value
    values = [interpreter.value(v) for v in op.operands if not isinstance(v.type, ir.IndexType)]

    def joined(*parts: torch.Tensor) -> torch.Tensor:
        return torch.cat(parts, dim)

    return [interpreter.numbers.move(joined, *values)]


def dense(interpreter: "Interpreter", attribute: Any) -> Any:
    """A constant tensor."""
    type_ = ir.RankedTensorType(attribute.type)
    element, shape = type_.element_type, list(type_.shape)
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        number = interpreter.numbers.constant(attribute.get_splat_value().value, element)
        return interpreter.numbers.move(lambda x: x.to(interpreter.device).expand(shape), number)
    return interpreter.numbers.lift(contents(attribute, shape, dtype_of(element)).to(interpreter.device), element)


def contents(attribute: Any, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """The elements of a dense attribute of several values."""
    if dtype == torch.bool and isinstance(attribute, ir.DenseElementsAttr):
        return torch.tensor([bool(v) for v in cast(Any, attribute)], dtype=dtype).view(shape)
    data = bytearray(memoryview(attribute).cast("B")) if 0 not in shape else bytearray()
    flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype) if data else torch.empty(0, dtype=dtype)
    return flat.view(shape)


RULES = kiln.by_name({kiln.ViewOp: _view, kiln.EmptyOp: _empty, kiln.PadOp: _pad, kiln.CatOp: _cat})
