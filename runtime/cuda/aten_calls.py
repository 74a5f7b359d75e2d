# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products and convolutions of a plan through PyTorch, where a library cannot be called: it is missing, or refuses."""

import dataclasses
import json

import torch

from kiln.runtime.plan import AtenStep, Convolution, Expr, Launch, Operand, Plan, Pointer, Product, Step

__all__ = ["through_aten"]


def through_aten(plan: Plan, *, products: bool = True, convolutions: bool = True) -> Plan:
    """The plan with an ATen call in place of each of these that a library does, which writes to the same memory.

    One workspace is there for the whole call: what these read may lie in it.
    """

    def replaced(step: Step) -> Step:
        if isinstance(step, Launch) and step.product is not None and products:
            return _product(step, step.product)
        if isinstance(step, Launch) and step.convolution is not None and convolutions:
            return _convolution(step, step.convolution)
        return step

    steps = [replaced(step) for step in plan.steps]
    return dataclasses.replace(plan, steps=steps, cuts=plan.cuts if steps == plan.steps else None)


def _convolution(launch: Launch, convolution: Convolution) -> AtenStep:
    shapes = (convolution.image, convolution.weight, convolution.result)
    operands = tuple(
        _operand(pointer, convolution.dtype, shape, _dense(shape, convolution.channels_last))
        for pointer, shape in zip(launch.pointers, shapes, strict=True)
    )
    numbers = [list(values) for values in (convolution.stride, convolution.padding, convolution.dilation)]
    outer = [0] * len(convolution.stride)
    return AtenStep(
        "aten.convolution.out",
        json.dumps([{"operand": 0}, {"operand": 1}, None, *numbers, False, outer, convolution.groups]),
        json.dumps({"out": {"operand": 2}}),
        operands,
        (),
        (),
        name=launch.name,
        reason=convolution.reason,
        epoch=launch.epoch,
        check=launch.check,
    )


def _dense(shape: tuple[Expr, ...], channels_last: bool) -> tuple[Expr, ...]:
    """Strides in elements of a dense tensor, channels last or planar."""
    order = [0, *range(2, len(shape)), 1] if channels_last else list(range(len(shape)))
    strides: list[Expr] = [1] * len(shape)
    step: Expr = 1
    for dim in reversed(order):
        strides[dim] = step
        size = shape[dim]
        step = step * size if isinstance(step, int) and isinstance(size, int) else f"({step}) * ({size})"
    return tuple(strides)


def _product(launch: Launch, product: Product) -> AtenStep:
    batch, m, n, k = product.sizes
    lhs, rhs, *bias, result = launch.pointers
    is_batch = batch != 1

    def matrix(pointer: Pointer, sizes: tuple[Expr, Expr], strides: tuple[Expr, ...]) -> Operand:
        shape = (batch, *sizes) if is_batch else sizes
        return _operand(pointer, product.dtype, shape, strides if is_batch else strides[1:])

    operands = [matrix(lhs, (m, k), product.lhs), matrix(rhs, (k, n), product.rhs)]
    operands.append(matrix(result, (m, n), product.result))
    arguments: list[dict[str, int]] = [{"operand": 0}, {"operand": 1}]
    if bias:
        operands.append(_operand(bias[0], product.dtype, (n,), (1,)))
        arguments.insert(0, {"operand": 3})
    name = "aten.bmm.out" if is_batch else "aten.addmm.out" if bias else "aten.mm.out"
    named: dict[str, object] = {"out": {"operand": 2}}
    if product.activation:
        name, named["use_gelu"] = "aten._addmm_activation.out", True
    return AtenStep(
        name,
        json.dumps(arguments),
        json.dumps(named),
        tuple(operands),
        (),
        (),
        name=launch.name,
        reason=product.reason,
        epoch=launch.epoch,
        check=launch.check,
    )


def _operand(pointer: Pointer, dtype: str, shape: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Operand:
    item = getattr(torch, dtype).itemsize
    offset: Expr = pointer.bytes // item if isinstance(pointer.bytes, int) else f"({pointer.bytes}) floordiv {item}"
    return Operand(pointer.buffer, shape, strides, offset, dtype)
