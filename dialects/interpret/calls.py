# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`kiln.aten`: calls through PyTorch's dispatcher."""

import json
from math import pi, prod, sqrt
from typing import TYPE_CHECKING, Any, cast

import torch
from torch_mlir import ir

from kiln.dialects.interpret.estimates import Call
from kiln.dialects.interpret.torch_ops import check_places
from kiln.dialects.interpret.types import element_of, is_float
from kiln.errors import UnsupportedError

if TYPE_CHECKING:
    from kiln.dialects.interpret.interpreter import Interpreter

__all__ = ["run_aten"]

_SUMS = {
    *("aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default"),
    *("aten.linear.default", "aten._addmm_activation.default", "aten.convolution.default"),
}
"""Calls that sum up products: by their own rule, so that a `Numbers` sees the sums."""
_NARROW = [{"dtype": name} for name in ("float16", "bfloat16", "float32")]


def run_aten(interpreter: "Interpreter", op: Any) -> list[Any]:
    """The results of a call; where floats have one precision, dtypes among the arguments are that."""
    numbers = interpreter.numbers
    if ir.StringAttr(op.attributes["op"]).value in _SUMS and is_float(element_of(op.results[0].type)):
        return [_sum_of_products(interpreter, op)]
    operands = [v for v in op.operands if not isinstance(v.type, ir.IndexType)]
    symbols = [int(interpreter.value(v)) for v in op.operands if isinstance(v.type, ir.IndexType)]
    values = [interpreter.value(v) for v in operands]
    check_places(ir.StringAttr(op.attributes["op"]).value, [numbers.lower(v) for v in values])
    wide, own = (_call(op, symbols, dtype) for dtype in (numbers.precision.wide, None))
    given = [element_of(v.type) for v in operands]
    results = [element_of(r.type) for r in op.results if not isinstance(r.type, ir.IndexType)]
    found = numbers.call(wide, own, values, given, results)
    return [_result(interpreter, op, k, found) for k in range(len(op.results))]


def _call(op: Any, symbols: list[int], wide: torch.dtype | None) -> Call:
    """The call, with dtypes among its arguments that are `wide` where that is not None. ATen's kernels get operands as
    they are given, in row-major order; custom ops and what counts elements in memory with the strides of the plan.
    """
    from kiln.runtime.aten_call import decode_call  # leaves of the runtime: they import no other layer
    from kiln.runtime.strided import DENSE

    name = ir.StringAttr(op.attributes["op"]).value
    keep = not name.startswith("aten.") or name in DENSE
    args, kwargs = (_adapted(ir.StringAttr(op.attributes[key]).value, wide, keep) for key in ("args", "kwargs"))
    call = decode_call(name, args, kwargs, len(op.results) - 1)
    return lambda tensors: call(tensors, symbols)


def _sum_of_products(interpreter: "Interpreter", op: Any) -> Any:
    """A product or convolution, and what is added to it."""
    numbers, name = interpreter.numbers, ir.StringAttr(op.attributes["op"]).value
    args = json.loads(ir.StringAttr(op.attributes["args"]).value)
    kwargs = json.loads(ir.StringAttr(op.attributes["kwargs"]).value)
    if any(kwargs.get(key, 1) != 1 for key in ("alpha", "beta")):
        raise UnsupportedError(name, str(op.location), "a scaled product in the interpreter")
    tensors = [interpreter.value(v) for v in op.operands if not isinstance(v.type, ir.IndexType)]
    element = element_of(op.results[0].type)
    sums = ir.F32Type.get(element.context) if element.width < 32 else element
    compute = numbers.precision.arithmetic(element)
    given = [None if a is None else _tensor(interpreter, tensors, a, compute) for a in args[:3]]
    if name == "aten.convolution.default":
        x, weight, added = given
        rest: list[Any] = [
            [_number(interpreter, op, n) for n in cast(list[Any], a)] if isinstance(a, list) else a for a in args[3:]
        ]
        shape = interpreter.shape(weight)
        terms = prod(shape[2:]) * (shape[0] // rest[-1] if rest[3] else shape[1])
        product = numbers.bilinear(lambda a, b: torch.convolution(a, b, None, *rest), x, weight, terms, sums)
        channels = [1, -1, *[1] * (len(shape) - 2)]
        added = None if added is None else numbers.move(lambda a: a.view(channels), added)
    elif name == "aten.linear.default":
        a, b, added = (*given, None)[:3]
        product = numbers.bilinear(lambda x, w: x @ w.mT, a, b, interpreter.shape(a)[-1], sums)
    else:
        added, a, b = (None, *given[:2]) if name in ("aten.mm.default", "aten.bmm.default") else given
        product = numbers.bilinear(torch.matmul, a, b, interpreter.shape(a)[-1], sums)
    if added is not None:
        product = numbers.apply("arith.addf", sums, product, added)
    if name == "aten._addmm_activation.default":
        product = _activated(interpreter, product, sums, bool(kwargs.get("use_gelu", False)))
    return numbers.cast(product, sums, element)


def _activated(interpreter: "Interpreter", x: Any, element: ir.Type, is_gelu: bool) -> Any:
    """ReLU, or GELU through tanh."""
    numbers = interpreter.numbers

    def scaled(value: Any, factor: float) -> Any:
        return numbers.apply("arith.mulf", element, value, on_device(factor))

    def on_device(number: float) -> Any:
        return numbers.move(lambda c: c.to(interpreter.device), numbers.constant(number, element))

    if not is_gelu:
        return numbers.apply("arith.maximumf", element, x, on_device(0.0))
    cube = numbers.apply("arith.mulf", element, x, numbers.apply("arith.mulf", element, x, x))
    inner = numbers.apply("arith.addf", element, x, scaled(cube, 0.044715))
    growth = numbers.apply("math.tanh", element, scaled(inner, sqrt(2 / pi)))
    return numbers.apply(
        "arith.mulf", element, scaled(x, 0.5), numbers.apply("arith.addf", element, growth, on_device(1.0))
    )


def _tensor(interpreter: "Interpreter", tensors: list[Any], node: Any, dtype: torch.dtype) -> Any:
    if not isinstance(node, dict) or "operand" not in node:
        raise UnsupportedError("kiln.aten", "", f"the operand {node} of a product in the interpreter")
    return interpreter.numbers.move(lambda x: x.to(dtype), tensors[node["operand"]])


def _number(interpreter: "Interpreter", op: Any, node: Any) -> Any:
    if isinstance(node, dict):
        raise UnsupportedError("kiln.aten", str(op.location), f"the size {node} of a window in the interpreter")
    return node


def _result(interpreter: "Interpreter", op: Any, k: int, found: list[Any]) -> Any:
    """Result `k`: what the call returned there, or the size of another result that an index stands for."""
    type_ = op.results[k].type
    if not isinstance(type_, ir.IndexType):
        return found[k]
    if k < len(found):
        return int(found[k])
    given = sum(isinstance(v.type, ir.IndexType) for v in op.operands)
    own = given + sum(isinstance(op.results[i].type, ir.IndexType) for i in range(k))
    for value, shape in zip(found, op.attributes["shapes"], strict=False):
        if isinstance(shape, ir.AffineMapAttr):
            for size, e in zip(interpreter.shape(value), shape.value.results, strict=True):
                if e.maybe_downcast() == ir.AffineExpr.get_symbol(own, op.context):
                    return size
    raise UnsupportedError("kiln.aten", str(op.location), f"no size of its results is index result {k}")


def _adapted(text: str, wide: torch.dtype | None, keep_strides: bool) -> str:
    """The arguments with dtypes that are `wide`, unless that is None, and, but to be kept, without strides."""
    if wide is None and keep_strides:
        return text
    name = str(wide).removeprefix("torch.")

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in cast(list[Any], node)]
        if isinstance(node, dict):
            if node in _NARROW and wide is not None:
                return {"dtype": name}
            items = cast(dict[str, Any], node).items()
            return {key: walk(item) for key, item in items if keep_strides or key != "strides" or "operand" not in node}
        return node

    return json.dumps(walk(json.loads(text)))
