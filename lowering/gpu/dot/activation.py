# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pointwise ops behind a product that a library's product can do as well: GELU through tanh, however it is written."""

from math import isclose, pi, sqrt

from torch_mlir import ir

from kiln.dialects import kiln

__all__ = ["gelu_behind"]

Polynomial = dict[tuple[str, ...], float]
"""Coefficients of the products of these factors: the argument "x", and functions of polynomials by their text."""


def gelu_behind(value: ir.Value) -> ir.Value | None:
    """The result of the only reader of `value`, if that is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) of it,
    rounded once; else None. For bf16 alone: the library's tanh is none of f32's precision.
    """
    if not isinstance(ir.RankedTensorType(value.type).element_type, ir.BF16Type):
        return None
    uses = list(value.uses)
    if len(uses) != 1 or kiln.name_of(uses[0].owner) != "linalg.generic":
        return None
    generic = uses[0].owner.operation
    maps = [ir.AffineMapAttr(m).value for m in ir.ArrayAttr(generic.attributes["indexing_maps"])]
    if len(generic.operands) != 2 or generic.operands[0] != value or generic.results[0].type != value.type:
        return None
    if any(m != ir.AffineMap.get_identity(m.n_dims) for m in maps):
        return None
    return generic.results[0] if _is_gelu(_polynomial(generic.regions[0].blocks[0])) else None


def _is_gelu(found: Polynomial | None) -> bool:
    inner = sqrt(2 / pi)
    tanh = _name("tanh", {("x",): inner, ("x", "x", "x"): inner * 0.044715})
    expected = {("x",): 0.5, tuple(sorted(("x", tanh))): 0.5}
    if found is None or found.keys() != expected.keys():
        return False
    return all(isclose(found[key], value, rel_tol=1e-6) for key, value in expected.items())


def _polynomial(block: ir.Block) -> Polynomial | None:
    """What a body yields as a polynomial of its first argument; None if it is none, or is rounded on the way."""
    known: dict[ir.Value, Polynomial] = {block.arguments[0]: {("x",): 1.0}}
    for op in block.operations:
        operation = op.operation
        operands = [_constant(v) if v not in known else known[v] for v in operation.operands]
        if any(x is None for x in operands):
            return None
        given = [x for x in operands if x is not None]
        if operation.name == "linalg.yield":
            return given[0] if len(given) == 1 else None
        if operation.name == "arith.constant":
            continue
        rounds = operation.name == "arith.truncf"
        if rounds and [use.owner.operation.name for use in operation.results[0].uses] != ["linalg.yield"]:
            return None
        if rounds or operation.name == "arith.extf":
            made = given[0]
        elif operation.name == "arith.addf":
            made = _sum(*given)
        elif operation.name == "arith.mulf":
            made = _product(*given)
        elif operation.name == "math.tanh":
            made = {(_name("tanh", given[0]),): 1.0}
        else:
            return None
        known[operation.results[0]] = made
    return None


def _constant(value: ir.Value) -> Polynomial | None:
    """A constant, also one from outside of the body."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "arith.constant":
        return None
    attribute = value.owner.operation.attributes["value"]
    return {(): attribute.value} if isinstance(attribute, ir.FloatAttr) else None


def _sum(a: Polynomial, b: Polynomial) -> Polynomial:
    return {key: a.get(key, 0.0) + b.get(key, 0.0) for key in {**a, **b}}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for p, x in a.items():
        for q, y in b.items():
            key = tuple(sorted((*p, *q)))
            result[key] = result.get(key, 0.0) + x * y
    return result


def _name(function: str, argument: Polynomial) -> str:
    """A function of a polynomial as a factor, with as many digits as f32 constants agree in."""
    terms = "+".join(f"{value:.5g}*{'*'.join(key)}" for key, value in sorted(argument.items()))
    return f"{function}({terms})"
