# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Products of a plan through PyTorch, where cuBLASLt cannot be called: it is missing, or refuses one."""

import dataclasses
import json

import torch

from kiln.runtime.plan import AtenStep, Expr, Launch, Operand, Plan, Pointer, Product

__all__ = ["through_aten"]


def through_aten(plan: Plan) -> Plan:
    """The plan with an ATen call in place of each product of the library, which writes to the same memory."""
    steps = [_call(step, step.product) if isinstance(step, Launch) and step.product else step for step in plan.steps]
    return dataclasses.replace(plan, steps=steps)


def _call(launch: Launch, product: Product) -> AtenStep:
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
    )


def _operand(pointer: Pointer, dtype: str, shape: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Operand:
    item = getattr(torch, dtype).itemsize
    offset: Expr = pointer.bytes // item if isinstance(pointer.bytes, int) else f"({pointer.bytes}) floordiv {item}"
    return Operand(pointer.buffer, shape, strides, offset, dtype)
