# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Walks a function or the region of a fusion, op by op."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.interpret import calls, generic, movement, named_ops, torch_ops
from kiln.dialects.interpret.numbers import Numbers
from kiln.dialects.interpret.scalar_ops import FLOAT_OPS, INTEGER_OPS, OTHER_OPS
from kiln.dialects.interpret.types import Precision, dtype_of, is_float
from kiln.dialects.kiln.family import name_of, parse, to_text
from kiln.dialects.walk import ops_inside
from kiln.errors import KilnError, UnsupportedError

__all__ = ["Interpreter", "evaluate", "unknown_op"]

Rule = Callable[["Interpreter", Any], list[Any]]


def evaluate(
    op: Any,
    inputs: Sequence[torch.Tensor | int],
    *,
    precision: str = "declared",
    function: str = "main",
    device: torch.device | str | None = None,
) -> list[Any]:
    """The results of a module's function, of a `func.func`, or of one `kiln.fusion`, on torch tensors.

    `inputs` has a tensor per tensor argument (of a fusion: operand) and an int per index.  `precision` is "declared",
    where each value is rounded to the type that the IR gives it, or "float32" or "float64", in which all floats are
    computed then, with no other rounding; results have that dtype then, too.  Unsigned tensors are taken bit by bit as
    the signless integers of the IR, and results of integer types are signed.  `device` is the inputs' by default.

    Raises UnsupportedError for an op that the interpreter does not know, IndexError for an index out of bounds, and
    ValueError where the inputs do not fit the signature.
    """
    module = op  # an operation of a module does not keep the module alive
    op = (_function(module, function) if isinstance(module, ir.Module) else module).operation
    if any(_is_expanded(inner) for inner in ops_inside(op)):
        return _expanded(op, inputs, precision, device)
    return Interpreter(Numbers(Precision.named(precision)), device).run(op, inputs)


def _function(module: ir.Module, name: str) -> ir.Operation:
    for op in module.body.operations:
        if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == name:
            return op.operation
    raise ValueError(f"the module has no function @{name}")


def _expanded(op: ir.Operation, inputs: Sequence[Any], precision: str, device: Any) -> list[Any]:
    """The same with named ops that have no rule of their own replaced by their reference lowerings, in a copy."""
    from kiln.dialects.reference.expand import expand_all

    if op.name != "func.func":
        raise UnsupportedError(name_of(op), str(op.location), "a fusion with named ops that are not expanded")
    with op.context, ir.Location.unknown():
        copy = parse(f"module {{\n{to_text(op, print_generic_op_form=False, enable_debug_info=True)}\n}}")
        found = copy.body.operations[0].operation
        expand_all(found, _is_expanded)
    return Interpreter(Numbers(Precision.named(precision)), device).run(found, inputs)


def unknown_op(op: ir.Operation) -> str | None:
    """The name of the first op of a fusion that `evaluate` does not know; None if it knows all."""
    known = {*_RULES, *_IN_BODIES, *FLOAT_OPS, *INTEGER_OPS, *OTHER_OPS}
    return next((name_of(o) for o in ops_inside(op) if name_of(o) not in known and not _is_expanded(o)), None)


def _is_expanded(op: Any) -> bool:
    return kiln.opdef(op).reference is not None and name_of(op) not in _RULES


class Interpreter:
    """The values of one region.  `numbers` says what values are and computes with them."""

    def __init__(self, numbers: Numbers, device: torch.device | str | None = None) -> None:
        self.numbers = numbers
        self.device = torch.device(device) if device is not None else torch.device("cpu")
        self._given = device is not None
        self._env: dict[ir.Value, Any] = {}

    def run(self, op: ir.Operation, inputs: Sequence[Any]) -> list[Any]:
        """The results of a function or fusion as tensors and numbers."""
        return [self.numbers.lower(v) if not isinstance(v, int | float | bool) else v for v in self.values(op, inputs)]

    def values(self, op: ir.Operation, inputs: Sequence[Any]) -> list[Any]:
        """The same as values of `numbers`."""
        block = op.regions[0].blocks[0]
        arguments = list(block.arguments)
        if len(arguments) != len(inputs):
            raise ValueError(f"{name_of(op)}: expected {len(arguments)} inputs, found {len(inputs)}")
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        if not self._given and tensors:
            self.device = next((x.device for x in tensors if x.device.type != "cpu"), tensors[0].device)
        for i, (argument, x) in enumerate(zip(arguments, inputs, strict=True)):
            self._env[argument] = self._input(i, argument.type, x)
        return self.block(block)

    def _input(self, number: int, type_: ir.Type, x: Any) -> Any:
        if not isinstance(type_, ir.RankedTensorType):
            return torch_ops.argument(self, number, type_, x) if str(type_).startswith("!torch") else x
        static = [None if type_.is_dynamic_dim(i) else type_.shape[i] for i in range(type_.rank)]
        fits = isinstance(x, torch.Tensor) and len(static) == x.dim()
        if not fits or any(s not in (None, n) for s, n in zip(static, x.shape, strict=True)):
            found = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x)
            raise ValueError(f"input {number}: expected {type_}, found {found}")
        dtype, element = dtype_of(type_.element_type), type_.element_type
        both = x.dtype.is_floating_point and is_float(element)
        if x.dtype != dtype and not both and not (x.dtype.itemsize == dtype.itemsize and not is_float(element)):
            raise ValueError(f"input {number}: expected {type_}, found {x.dtype}")
        return self.numbers.lift(x.detach(), element)

    def block(self, block: ir.Block) -> list[Any]:
        """Run a block whose arguments have values; what its terminator returns."""
        for op in block.operations:
            name = name_of(op)
            if name in ("func.return", "kiln.yield"):
                return [self.value(v) for v in op.operands]
            try:
                results = self._rule(op, name)(self, op)
            except UnsupportedError as error:
                if error.location:
                    raise
                raise UnsupportedError(error.op, str(op.location), error.reason) from error
            self._env.update(zip(op.results, results, strict=True))
        raise KilnError("interpreter: a block without a terminator")

    def _rule(self, op: Any, name: str) -> Rule:
        if name.startswith("torch."):
            return torch_ops.run
        if name.startswith(("arith.", "math.")) and name not in _RULES:
            return _scalar
        if name not in _RULES:
            raise UnsupportedError(name, str(op.location), "the interpreter has no such op")
        return _RULES[name]

    # ------------------------------------------------------------------------------------------------------- queries

    def value(self, value: ir.Value) -> Any:
        """What an SSA value is."""
        return self._env[value]

    def scalar(self, value: ir.Value) -> Any:
        """A scalar of the block as a value of rank 0, for bodies."""
        return self.as_value(self._env[value])

    def as_value(self, x: Any) -> Any:
        """A number as a tensor, anything else as it is."""
        return self.numbers.exact(torch.tensor(x)) if isinstance(x, int) else x

    def shape(self, value: Any) -> tuple[int, ...]:
        """Sizes of a value."""
        return () if isinstance(value, int | float) else tuple(self.numbers.parts(value)[0].shape)

    def symbols(self, op: Any, map_: ir.AffineMap) -> list[int]:
        """The trailing index operands that are the symbols of a map."""
        return [int(self.value(v)) for v in list(op.operands)[len(op.operands) - map_.n_symbols :]]

    def map(self, op: Any, name: str) -> tuple[list[ir.AffineExpr], list[int]]:
        """Results of a map attribute, and the values of its symbols."""
        map_ = ir.AffineMapAttr(op.attributes[name]).value
        return list(map_.results), self.symbols(op, map_)

    def sizes(self, op: Any, name: str = "shape") -> list[int]:
        """The numbers that a map attribute without dims gives."""
        exprs, symbols = self.map(op, name)
        return [affine.evaluate(e, (), symbols) for e in exprs]

    def constant(self, op: Any) -> Any:
        """The value of an `arith.constant`: of rank 0 for a scalar, on the CPU."""
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr | ir.DenseResourceElementsAttr):
            return movement.dense(self, attribute)
        return self.numbers.constant(attribute.value, op.results[0].type)


def _scalar(interpreter: Interpreter, op: Any) -> list[Any]:
    """Arithmetic on scalars outside of bodies; indices are ints."""
    operands = [interpreter.scalar(v) for v in op.operands]
    results = interpreter.numbers.scalar(op, operands)
    return [
        int(interpreter.numbers.lower(x)) if isinstance(r.type, ir.IndexType) else x
        for x, r in zip(results, op.results, strict=True)
    ]


def _constant(interpreter: Interpreter, op: Any) -> list[Any]:
    if isinstance(op.results[0].type, ir.IndexType):
        return [ir.IntegerAttr(op.attributes["value"]).value]
    return [interpreter.constant(op)]


def _fusion(interpreter: Interpreter, op: Any) -> list[Any]:
    block = op.regions[0].blocks[0]
    for argument, operand in zip(block.arguments, op.operands, strict=True):
        interpreter._env[argument] = interpreter.value(operand)
    return interpreter.block(block)


def _dim(interpreter: Interpreter, op: Any) -> list[Any]:
    tensor, index = (interpreter.value(v) for v in op.operands)
    return [interpreter.shape(tensor)[int(index)]]


def _same(interpreter: Interpreter, op: Any) -> list[Any]:
    return [interpreter.value(op.operands[0])]


_IN_BODIES = ("kiln.yield", "linalg.index", "linalg.yield", "tensor.extract")

_RULES: dict[str, Rule] = {
    "arith.constant": _constant,
    "tensor.cast": _same,
    "tensor.dim": _dim,
    "linalg.generic": generic.run_generic,
    **kiln.by_name({kiln.FusionOp: _fusion, kiln.PackOp: _same, kiln.AtenOp: calls.run_aten}),
    **movement.RULES,
    **named_ops.RULES,
}
