# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Patterns written as expressions over ATen ops: ``mul(x, 1)``, ``relu(relu(x))``.

A name stands for any value, the same value wherever it occurs. A number stands for itself, as a Python number or as
a tensor filled with it. Operands that are not written are unconstrained, but for the ``alpha`` of add and sub.
"""

import ast
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT, op_name, python_value

from .values import dtype_of, is_integral, is_tensor, same_type, splat_of

__all__ = ["Match", "NoMatch", "Operands", "Pattern", "match_pattern", "parse"]

# Short name -> overloads. Others are ``torch.aten.NAME``.
_OVERLOADS: dict[str, tuple[str, ...]] = {
    "add": ("add.Tensor", "add.Scalar"),
    "sub": ("sub.Tensor", "sub.Scalar"),
    "mul": ("mul.Tensor", "mul.Scalar"),
    "div": ("div.Tensor", "div.Scalar"),
    "rsub": ("rsub.Scalar", "rsub.Tensor"),
    "pow": ("pow.Tensor_Scalar",),
    "where": ("where.self",),
    "masked_fill": ("masked_fill.Scalar", "masked_fill.Tensor"),
    "transpose": ("transpose.int",),
    "slice": ("slice.Tensor",),
    "sum": ("sum.dim_IntList",),
    "mean": ("mean.dim",),
    "bitwise_and": ("bitwise_and.Tensor",),
    "bitwise_or": ("bitwise_or.Tensor",),
    "bitwise_xor": ("bitwise_xor.Tensor",),
    **{name: (f"{name}.Tensor", f"{name}.Scalar") for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "squeeze": ("squeeze.dim",),
    "cast": ("_to_copy",),
    "write": ("slice_scatter", "select_scatter"),
}
_COMMUTATIVE = {
    "add.Tensor",
    "mul.Tensor",
    "maximum",
    "minimum",
    "bitwise_and.Tensor",
    "bitwise_or.Tensor",
    "eq.Tensor",
    "ne.Tensor",
}
# Operands that must have their default: short name -> (position, value).
_DEFAULTS = {"add": (2, 1), "sub": (2, 1), "rsub": (2, 1)}


class NoMatch(Exception):
    """A rule does not apply; the message is the reason."""


@dataclass(frozen=True)
class Pattern:
    """A name, a number or an op with operand patterns (the tree of one expression)."""

    kind: str
    name: str = ""
    number: int | float = 0
    operands: "tuple[Pattern, ...]" = ()

    @functools.cached_property
    def roots(self) -> tuple[str, ...]:
        """Full names of the ops that an op pattern matches."""
        return tuple(f"torch.aten.{overload}" for overload in _OVERLOADS.get(self.name, (self.name,)))


def parse(text: str) -> Pattern:
    """The pattern of an expression. Raises ``ValueError`` for what is none."""
    return _convert(ast.parse(text, mode="eval").body, text)


def _convert(node: ast.expr, text: str) -> Pattern:
    if isinstance(node, ast.Name):
        return Pattern("name", node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Pattern("number", number=node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return Pattern("number", number=-node.operand.value)  # type: ignore[operator] - a number: rules have no other constants
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return Pattern("op", node.func.id, operands=tuple(_convert(arg, text) for arg in node.args))
    raise ValueError(f"no pattern: {text!r}")


Bindings = dict[str, Any]


class Operands:
    """The operands of one op as patterns see them first: most rules for an op are known not to match by these, before
    any value is bound.
    """

    def __init__(self, op: ir.Operation) -> None:
        self.values = list(op.operands)
        self.is_commutative = op_name(op).removeprefix("torch.aten.") in _COMMUTATIVE
        self._makers: dict[int, str] = {}
        self._splats: dict[int, int | float | bool | None] = {}

    def may_match(self, pattern: Pattern) -> bool:
        """False where no order of the operands is one of the op pattern's."""
        patterns = pattern.operands
        count = len(patterns)
        if count > len(self.values):
            return False
        orders = [range(count)]
        if count == 2 and self.is_commutative:
            orders.append(range(1, -1, -1))
        return any(all(map(self._may_be, patterns, order)) for order in orders)

    def _may_be(self, pattern: Pattern, position: int) -> bool:
        if pattern.kind == "op":
            if position not in self._makers:
                maker = defining_op(self.values[position])
                self._makers[position] = "" if maker is None else op_name(maker)
            return self._makers[position] in pattern.roots
        if pattern.kind == "number":
            if position not in self._splats:
                self._splats[position] = splat_of(self.values[position])
            found = self._splats[position]
            return found is not None and found == pattern.number
        return True


def match_pattern(pattern: Pattern, value: ir.Value, bound: Bindings | None = None) -> Iterator[Bindings]:
    """Every way in which ``value`` is an instance of the pattern, as name -> value."""
    bound = {} if bound is None else bound
    if pattern.kind == "name":
        known = bound.get(pattern.name)
        if known is None:
            yield {**bound, pattern.name: value}
        elif known == value or _equal_constants(known, value):
            yield bound
        return
    if pattern.kind == "number":
        found = splat_of(value)
        if found is not None and found == pattern.number:
            yield bound
        return
    op = defining_op(value)
    if op is None or op_name(op) not in pattern.roots:
        return
    position, default = _DEFAULTS.get(pattern.name, (0, None))
    if default is not None and position < len(op.operands) and python_value(op.operands[position]) != default:
        return
    operands = list(op.operands)[: len(pattern.operands)]
    orders = [operands]
    if op_name(op).removeprefix("torch.aten.") in _COMMUTATIVE and len(operands) == 2:
        orders.append(operands[::-1])
    for order in orders:
        yield from _match_operands(pattern.operands, order, bound)


def _match_operands(patterns: Sequence[Pattern], values: Sequence[ir.Value], bound: Bindings) -> Iterator[Bindings]:
    if len(values) < len(patterns):
        return
    if not patterns:
        yield bound
        return
    for first in match_pattern(patterns[0], values[0], bound):
        yield from _match_operands(patterns[1:], values[1:], first)


def _equal_constants(a: ir.Value, b: ir.Value) -> bool:
    x = python_value(a)
    return x is not NOT_CONSTANT and type(x) is type(python_value(b)) and x == python_value(b)


class Match:
    """A rule's pattern found at the op ``root``: what its names stand for, and builders for the replacement."""

    def __init__(self, root: ir.Operation, bound: Bindings, fast_math: bool = False) -> None:
        self.root, self.bound, self.fast_math = root, bound, fast_math
        self.result: ir.Value = root.results[0]

    def __getitem__(self, name: str) -> ir.Value:
        return self.bound[name]

    @property
    def is_integral(self) -> bool:
        """Whether the result and all tensors bound hold integers or booleans."""
        tensors = [self.result, *(v for v in self.bound.values() if is_tensor(v))]
        return all(is_integral(value) for value in tensors)

    def const(self, name: str) -> Any:
        """The Python value of a constant operand. Raises NoMatch where it is known only at run time."""
        return self.const_of(self.bound[name], name)

    @staticmethod
    def const_of(value: ir.Value, what: str) -> Any:
        """As :meth:`const`, of any value."""
        found = python_value(value)
        if found is NOT_CONSTANT:
            raise NoMatch(f"{what} is known only at run time")
        return found

    def operand(self, i: int, of: ir.Value | None = None) -> ir.Value:
        """Operand ``i`` of the root, or of the op that defines ``of``."""
        op = self.root if of is None else defining_op(of)
        assert op is not None
        return op.operands[i]

    def need(self, condition: bool, reason: str) -> None:
        """Raise NoMatch with the reason unless the condition holds."""
        if not condition:
            raise NoMatch(reason)

    # -- building

    def number(self, value: int | float) -> ir.Value:
        """A new constant."""
        return number_constant(value)

    def none(self) -> ir.Value:
        """A new constant None."""
        return ir.Operation.create("torch.constant.none", results=[ir.Type.parse("!torch.none")]).result

    def ints(self, values: Sequence[int]) -> ir.Value:
        """A new constant list."""
        elements = [number_constant(value) for value in values]
        return ir.Operation.create(
            "torch.prim.ListConstruct", results=[ir.Type.parse("!torch.list<int>")], operands=elements
        ).result

    def build(self, name: str, *operands: ir.Value) -> ir.Value:
        """A new op ``torch.aten.NAME`` with the root's result type, sizes and strides."""
        kept = ("kiln.strides", "kiln.shapes")
        attributes = {key: self.root.attributes[key] for key in kept if key in self.root.attributes}
        op = ir.Operation.create(
            f"torch.aten.{name}", results=[self.result.type], operands=list(operands), attributes=attributes
        )
        return op.result

    def view(
        self, value: ir.Value, sizes: Sequence[ir.Value], exprs: Sequence[ir.AffineExpr], symbols: int
    ) -> ir.Value:
        """A new ``torch.aten.view`` with ``sizes``, which are ``exprs`` over that many symbols of the function."""
        operand = ir.Operation.create(
            "torch.prim.ListConstruct", results=[ir.Type.parse("!torch.list<int>")], operands=list(sizes)
        ).result
        return self.build_shaped("view", [value, operand], exprs, symbols)

    def build_shaped(
        self, name: str, operands: Sequence[ir.Value], exprs: Sequence[ir.AffineExpr], symbols: int
    ) -> ir.Value:
        """A new op ``torch.aten.NAME`` with the first operand's element type and other sizes than the root's."""
        constants = [e.maybe_downcast() for e in exprs]
        shown = ",".join(str(e.value) if isinstance(e, ir.AffineConstantExpr) else "?" for e in constants)
        attributes: dict[str, ir.Attribute] = {}
        if "?" in shown:
            shape = ir.AffineMap.get(0, symbols, list(exprs))
            attributes["kiln.shapes"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(shape)])
        result = ir.Type.parse(f"!torch.vtensor<[{shown}],{dtype_of(operands[0])}>")
        return ir.Operation.create(
            f"torch.aten.{name}", results=[result], operands=list(operands), attributes=attributes
        ).result

    def like_root(self, value: ir.Value) -> ir.Value:
        """``value``, which must have the root's sizes and element type. Raises NoMatch where it has not."""
        if not same_type(value, self.result):
            found, expected = dtype_of(value), dtype_of(self.result)
            what = f"the element type {expected}, not {found}" if found != expected else "other sizes (broadcast)"
            raise NoMatch(f"the result has {what}")
        return value

    def full(self, like: ir.Value, number: int | float) -> ir.Value:
        """A tensor filled with ``number``, of the root's type, which ``like`` must have."""
        nones = [self.none() for _ in range(5)]
        return self.build("full_like", self.like_root(like), number_constant(number), *nones)

    def instantiate(self, pattern: Pattern) -> ir.Value:
        """The value of a replacement expression. Its tensors must have the root's type."""
        if pattern.kind == "name":
            value = self.bound[pattern.name]
            return self.like_root(value) if is_tensor(value) else value
        if pattern.kind == "number":
            return number_constant(pattern.number)
        if pattern.name == "full":
            return self.full(self.bound[pattern.operands[0].name], pattern.operands[1].number)
        operands = [self.instantiate(operand) for operand in pattern.operands]
        overloads = _OVERLOADS.get(pattern.name, (pattern.name,))
        scalar = len(overloads) > 1 and not is_tensor(operands[1])
        if pattern.name in _DEFAULTS:
            operands.append(number_constant(1))
        return self.build(overloads[1 if scalar else 0], *operands)


def number_constant(value: int | float) -> ir.Value:
    """A new ``torch.constant.int``, ``.float`` or ``.bool``."""
    if isinstance(value, bool):
        kind, attribute = "bool", ir.IntegerAttr.get(ir.IntegerType.get_signless(1), int(value))
    elif isinstance(value, int):
        kind, attribute = "int", ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    else:
        kind, attribute = "float", ir.FloatAttr.get_f64(value)
    result = ir.Type.parse(f"!torch.{kind}")
    return ir.Operation.create(f"torch.constant.{kind}", results=[result], attributes={"value": attribute}).result
