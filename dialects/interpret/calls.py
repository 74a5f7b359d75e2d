# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`kiln.aten`: calls through PyTorch's dispatcher."""

import json
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects.interpret.types import element_of
from kiln.errors import UnsupportedError

__all__ = ["run_aten"]

_NARROW = [{"dtype": name} for name in ("float16", "bfloat16", "float32")]


def run_aten(interpreter: Any, op: Any) -> list[Any]:
    """The results of a call; where floats have one precision, dtypes among the arguments are that."""
    from kiln.runtime.aten_call import decode_call  # a leaf of the runtime: it imports no other layer

    numbers = interpreter.numbers
    tensors = [numbers.lower(interpreter.value(v)) for v in op.operands if not isinstance(v.type, ir.IndexType)]
    symbols = [int(interpreter.value(v)) for v in op.operands if isinstance(v.type, ir.IndexType)]
    name = ir.StringAttr(op.attributes["op"]).value
    wide = numbers.precision.wide
    args, kwargs = (_widened(ir.StringAttr(op.attributes[key]).value, wide) for key in ("args", "kwargs"))
    found = decode_call(name, args, kwargs, len(op.results) - 1)(tensors, symbols)
    return [_result(interpreter, op, k, found) for k in range(len(op.results))]


def _result(interpreter: Any, op: Any, k: int, found: list[Any]) -> Any:
    """Result `k`: what the call returned there, or the size of another result that an index stands for."""
    type_ = op.results[k].type
    if not isinstance(type_, ir.IndexType):
        return interpreter.numbers.lift(found[k], element_of(type_))
    if k < len(found):
        return int(found[k])
    given = sum(isinstance(v.type, ir.IndexType) for v in op.operands)
    own = given + sum(isinstance(op.results[i].type, ir.IndexType) for i in range(k))
    for value, shape in zip(found, op.attributes["shapes"], strict=False):
        if isinstance(shape, ir.AffineMapAttr):
            for size, e in zip(value.shape, shape.value.results, strict=True):
                if e.maybe_downcast() == ir.AffineExpr.get_symbol(own, op.context):
                    return size
    raise UnsupportedError("kiln.aten", str(op.location), f"no size of its results is index result {k}")


def _widened(text: str, wide: torch.dtype | None) -> str:
    if wide is None:
        return text
    name = str(wide).removeprefix("torch.")

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if isinstance(node, dict):
            if node in _NARROW:
                return {"dtype": name}
            return {key: walk(item) for key, item in node.items()}
        return node

    return json.dumps(walk(json.loads(text)))
