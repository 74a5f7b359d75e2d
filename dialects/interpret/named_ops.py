# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Kiln's named ops by ATen's. Of those without a rule here the reference lowerings are evaluated."""

from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.interpret.attention import attention
from kiln.dialects.interpret.types import element_of, is_float
from kiln.errors import KilnError

if TYPE_CHECKING:
    from kiln.dialects.interpret.interpreter import Interpreter

__all__ = ["RULES"]

Tensor = torch.Tensor
PRODUCTS = 1 << 24
"""Products of integers that are held at once."""


def _integers(op: Any, name: str) -> list[int]:
    return list(op.attributes[name])


def _flag(op: Any, name: str) -> bool:
    return bool(op.attributes[name].value)


# -------------------------------------------------------------------------------------------------- products of tensors


def _matmul(interpreter: "Interpreter", op: Any) -> list[Any]:
    numbers, result = interpreter.numbers, element_of(op.results[0].type)
    a, b = (interpreter.value(v) for v in op.operands)
    if _flag(op, "transpose_lhs"):
        a = numbers.move(lambda x: x.mT, a)
    if _flag(op, "transpose_rhs"):
        b = numbers.move(lambda x: x.mT, b)
    if not is_float(result):
        return [
            numbers.exact(
                _integer_product(*(numbers.lower(x).long() for x in (a, b))).to(numbers.precision.dtype(result))
            )
        ]
    compute = numbers.precision.arithmetic(result)
    a, b = (numbers.move(lambda x: x.to(compute), v) for v in (a, b))
    depth = interpreter.shape(a)[-1]
    return [_rounded(interpreter, numbers.bilinear(torch.matmul, a, b, depth, _sums(op)), op)]


def _rounded(interpreter: "Interpreter", value: Any, op: Any) -> Any:
    """A sum in the compute type as the op's result."""
    element = element_of(op.results[0].type)
    return interpreter.numbers.cast(value, _sums(op), element)


def _sums(op: Any) -> ir.Type:
    """The type in which an op sums up floats."""
    element = element_of(op.results[0].type)
    return ir.F32Type.get(element.context) if element.width < 32 else element


def _integer_product(a: Tensor, b: Tensor) -> Tensor:
    """A product of i64, which wraps; ATen has none on GPUs."""
    if a.device.type == "cpu":
        return torch.matmul(a, b)
    depth = a.shape[-1]
    rows = max(1, PRODUCTS // max(1, a.numel() // max(depth, 1) * b.shape[-1]))
    parts = range(0, depth, rows)
    total = torch.zeros((), dtype=a.dtype, device=a.device)
    for k in parts:
        left, right = a[..., k : k + rows], b[..., k : k + rows, :]
        total = total + (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(-2)
    return total.expand(*a.shape[:-1], b.shape[-1])


def _conv(interpreter: "Interpreter", op: Any) -> list[Any]:
    numbers = interpreter.numbers
    names = ("stride", "padding", "dilation")
    stride, padding, dilation = (_integers(op, name) for name in names)
    transposed, output_padding = _flag(op, "transposed"), _integers(op, "output_padding")
    groups = op.attributes["groups"].value
    compute = numbers.precision.arithmetic(element_of(op.results[0].type))
    x, w = (numbers.move(lambda part: part.to(compute), interpreter.value(v)) for v in op.operands)

    def convolve(a: Tensor, b: Tensor) -> Tensor:
        return torch.convolution(a, b, None, stride, padding, dilation, transposed, output_padding, groups)

    if 0 in interpreter.shape(x) or 0 in interpreter.shape(w):
        return [numbers.lift(_zeros(interpreter, op, x, compute), element_of(op.results[0].type))]
    window = interpreter.shape(w)[0 if transposed else 1 :]
    terms = torch.Size([window[0] // groups if transposed else window[0], *interpreter.shape(w)[2:]]).numel()
    return [_rounded(interpreter, numbers.bilinear(convolve, x, w, terms, _sums(op)), op)]


def _zeros(interpreter: "Interpreter", op: Any, x: Any, dtype: torch.dtype) -> Tensor:
    type_ = op.results[0].type
    sizes = [interpreter.shape(x)[0] if type_.is_dynamic_dim(i) else type_.shape[i] for i in range(type_.rank)]
    return torch.zeros(sizes, dtype=dtype, device=interpreter.device)


# ------------------------------------------------------------------------------------------------------ scans and sorts


def _scan(interpreter: "Interpreter", op: Any) -> list[Any]:
    x, numbers = interpreter.value(op.operands[0]), interpreter.numbers
    dim, kind = op.attributes["dim"].value, ir.StringAttr(op.attributes["kind"]).value
    if kind not in ("max", "min"):
        return [numbers.scan(kind, x, dim, element_of(op.operands[0].type))]
    parts = numbers.parts(x)
    if not parts[0].numel():
        found, at = parts[0], torch.zeros(parts[0].shape, dtype=torch.int64, device=interpreter.device)
    else:
        found, at = (torch.cummax if kind == "max" else torch.cummin)(parts[0], dim)
    taken = numbers.move(lambda part: part.gather(dim, at) if part.numel() else part, x)
    del found
    return [taken, numbers.exact(at)][: len(op.results)]


def _recurrence(interpreter: "Interpreter", op: Any) -> list[Any]:
    numbers, block = interpreter.numbers, op.combine
    dim: int = op.attributes["dim"].value
    elements = [element_of(v.type) for v in op.operands]
    carried = [a.type for a in block.arguments][: len(elements)]
    xs = [
        numbers.dependent(interpreter.value(v) if e == c else numbers.cast(interpreter.value(v), e, c))
        for v, e, c in zip(op.operands, elements, carried, strict=True)
    ]
    steps: list[list[Any]] = []
    for i in range(interpreter.shape(xs[0])[dim]):
        new = [numbers.move(lambda x, i=i: x.narrow(dim, i, 1), x) for x in xs]
        steps.append(combined(interpreter, block, [*steps[-1], *new]) if steps else new)
    if not steps:
        return [interpreter.value(v) for v in op.operands]

    def joined(*parts: Tensor) -> Tensor:
        return torch.cat(parts, dim)

    found = [numbers.move(joined, *values) for values in zip(*steps, strict=True)]
    return [f if e == c else numbers.cast(f, c, e) for f, e, c in zip(found, elements, carried, strict=True)]


def combined(interpreter: "Interpreter", block: ir.Block, arguments: list[Any]) -> list[Any]:
    """What the region of a recurrence yields."""
    env: dict[ir.Value, Any] = dict(zip(block.arguments, arguments, strict=True))
    for inner in block.operations:
        if inner.operation.name == "arith.constant":
            env[inner.results[0]] = interpreter.constant(inner)
            continue
        operands = [env[v] if v in env else interpreter.scalar(v) for v in inner.operands]
        if kiln.name_of(inner) == "kiln.yield":
            return operands
        env.update(zip(inner.results, interpreter.numbers.scalar(inner, operands), strict=True))
    raise KilnError("interpreter: a block without a terminator")


def _sorted(interpreter: "Interpreter", op: Any, descending: bool, places: int | None) -> list[Any]:
    x = interpreter.value(op.operands[0])
    dim = op.attributes["dim"].value
    _, order = torch.sort(interpreter.numbers.parts(x)[0], dim=dim, descending=descending, stable=True)
    if places is not None:
        order = order.narrow(dim, 0, places)
    return [interpreter.numbers.move(lambda part: part.gather(dim, order), x), interpreter.numbers.exact(order)]


def _sort(interpreter: "Interpreter", op: Any) -> list[Any]:
    return _sorted(interpreter, op, _flag(op, "descending"), None)


def _topk(interpreter: "Interpreter", op: Any) -> list[Any]:
    return _sorted(interpreter, op, _flag(op, "largest"), op.attributes["k"].value)


# --------------------------------------------------------------------------------------------- reads by index tensors


def _positions_of(interpreter: "Interpreter", value: ir.Value) -> Tensor:
    """An index tensor as i64."""
    return interpreter.numbers.lower(interpreter.value(value)).long()


def _gather(interpreter: "Interpreter", op: Any) -> list[Any]:
    x, index = interpreter.value(op.operands[0]), _positions_of(interpreter, op.operands[1])
    dim = op.attributes["dim"].value
    # Index and table may have other sizes in the other dims, of which the index's count.
    return [interpreter.numbers.move(lambda part: torch.gather(part, dim, index), x)]


def _index_select(interpreter: "Interpreter", op: Any) -> list[Any]:
    x, index = interpreter.value(op.operands[0]), _positions_of(interpreter, op.operands[1])
    dim = op.attributes["dim"].value
    return [interpreter.numbers.move(lambda part: torch.index_select(part, dim, index), x)]


def _embedding(interpreter: "Interpreter", op: Any) -> list[Any]:
    weight, index = interpreter.value(op.operands[0]), _positions_of(interpreter, op.operands[1])
    return [interpreter.numbers.move(lambda part: part[index], weight)]


def _index(interpreter: "Interpreter", op: Any) -> list[Any]:
    x = interpreter.value(op.operands[0])
    indices = [_positions_of(interpreter, v) for v in list(op.operands)[1:]]
    dims = _integers(op, "dims")
    at = [slice(None)] * len(interpreter.shape(x))
    chosen: list[Any] = list(at)
    for d, index in zip(dims, indices, strict=True):
        chosen[d] = index
    return [interpreter.numbers.move(lambda part: part[tuple(chosen)], x)]


# -------------------------------------------------------------------------------------------- writes by index tensors


def _positions(sizes: tuple[int, ...], at: list[Tensor]) -> Tensor:
    """Row-major offsets in a tensor of `sizes`."""
    total = torch.zeros((), dtype=torch.int64, device=at[0].device)
    for size, index in zip(sizes, at, strict=True):
        total = total * size + index
    return total


def _along(k: int, sizes: tuple[int, ...], device: torch.device) -> Tensor:
    """The index of dim `k`, for each element of a tensor of `sizes`."""
    return torch.arange(sizes[k], device=device).view([-1 if i == k else 1 for i in range(len(sizes))])


def _put(interpreter: "Interpreter", op: Any, x: Any, position: Tensor, source: Any, reduce: str) -> Any:
    """`x` with the elements of `source` combined with those at the positions."""
    numbers, shape = interpreter.numbers, interpreter.shape(x)
    flat = numbers.move(lambda part: part.reshape(-1).clone(), x)
    position = position.expand(interpreter.shape(source)).reshape(-1)
    source = numbers.move(lambda part: part.reshape(-1), source)
    element = element_of(op.results[0].type)
    wide = interpreter.numbers.precision.arithmetic(element)
    if reduce == "none":
        put = numbers.move(lambda part, new: part.scatter(0, position, new), flat, source)
    elif reduce == "sum" and numbers.parts(flat)[0].dtype != torch.bool:
        if is_float(element):
            flat, source = (numbers.move(lambda part: part.to(wide), v) for v in (flat, source))
        put = numbers.move(
            lambda part: part.to(numbers.precision.dtype(element)), numbers.scatter_sum(flat, position, source, element)
        )
    else:
        put = numbers.scatter_reduce(flat, position, source, reduce)
    return numbers.move(lambda part: part.view(shape), put)


def _scatter(interpreter: "Interpreter", op: Any) -> list[Any]:
    x, source = interpreter.value(op.operands[0]), interpreter.value(op.operands[2])
    index = _positions_of(interpreter, op.operands[1])
    dim, sizes = op.attributes["dim"].value, tuple(index.shape)
    at = [index if d == dim else _along(d, sizes, index.device) for d in range(len(sizes))]
    reduce = ir.StringAttr(op.attributes["reduce"]).value
    return [_put(interpreter, op, x, _positions(interpreter.shape(x), at), source, reduce)]


def _scatter_nd(interpreter: "Interpreter", op: Any) -> list[Any]:
    x, source = (interpreter.value(v) for v in list(op.operands)[:2])
    indices = [_positions_of(interpreter, v) for v in list(op.operands)[2:]]
    dims, loops = _integers(op, "dims"), iter(_integers(op, "loops"))
    sizes = interpreter.shape(source)
    named = dict(zip(dims, indices, strict=True))
    at = [
        named[d] if d in named else _along(next(loops), sizes, interpreter.device)
        for d in range(len(interpreter.shape(x)))
    ]
    if _flag(op, "from_zero"):
        x = interpreter.numbers.move(torch.zeros_like, x)
    reduce = ir.StringAttr(op.attributes["reduce"]).value
    return [_put(interpreter, op, x, _positions(interpreter.shape(x), at), source, reduce)]


RULES = kiln.by_name({
    kiln.MatmulOp: _matmul, kiln.ConvOp: _conv, kiln.AttentionOp: attention, kiln.ScanOp: _scan, kiln.SortOp: _sort,
    kiln.RecurrenceOp: _recurrence,
    kiln.TopkOp: _topk, kiln.GatherOp: _gather, kiln.IndexSelectOp: _index_select, kiln.EmbeddingOp: _embedding,
    kiln.IndexOp: _index, kiln.ScatterOp: _scatter, kiln.ScatterNdOp: _scatter_nd,
})  # fmt: skip
