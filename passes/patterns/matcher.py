# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Finding a pattern graph in a function of the torch dialect."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import sympy
import torch
from torch_mlir import ir

from kiln.dialects.dtypes import dtype_from_torch
from kiln.dialects.memo import type_text
from kiln.dialects.walk import defining_op
from kiln.passes.torch_to_kiln.function_state import parse_tensor_type
from kiln.passes.torch_to_kiln.torch_values import NOT_CONSTANT, list_elements, op_name, python_value

from .graph import Operand, PatternGraph, PatternOp
from .sizes import bind, result_sizes

__all__ = ["Found", "Matcher"]

_COMMUTATIVE = frozenset(f"torch.aten.{name}" for name in ("add.Tensor", "mul.Tensor", "maximum", "minimum"))
_BROADCASTING = frozenset(
    f"torch.aten.{name}"
    for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "masked_fill.Scalar", "where.self")
)


@dataclass(frozen=True)
class Found:
    """A match in the making or done: ops by pattern op, tensors and numbers by position of the argument."""

    ops: dict[PatternOp, ir.Operation] = field(default_factory=dict[PatternOp, ir.Operation])
    tensors: dict[int, ir.Value] = field(default_factory=dict[int, ir.Value])
    numbers: dict[int, Any] = field(default_factory=dict[int, Any])

    def outputs(self, graph: PatternGraph) -> list[ir.Value]:
        """The values that the pattern's outputs stand for."""
        return [self.ops[output.op].results[output.index] for output in graph.outputs]  # type: ignore[index] - ops make all results of a pattern


class Matcher:
    """Looks for one pattern graph. After a failure ``reached`` and ``reason`` tell how far the best attempt came."""

    def __init__(self, graph: PatternGraph, names: Sequence[str]) -> None:
        self.graph, self.names = graph, names
        self.reached, self.reason = 0, ""

    def at(self, root: ir.Operation) -> Found | None:
        """The match whose first output is a result of ``root``."""
        self.reached, self.reason = 0, ""
        first = self.graph.outputs[0]
        assert first.op is not None
        for found in self._op(first.op, root, Found()):
            for complete in self._other_outputs(self.graph.outputs[1:], root, found):
                if self._acceptable(complete):
                    return complete
        return None

    def _fail(self, found: Found, reason: str) -> None:
        if len(found.ops) > self.reached or not self.reason:
            self.reached, self.reason = len(found.ops), reason

    # -- structure

    def _other_outputs(self, outputs: Sequence[Operand], root: ir.Operation, found: Found) -> Iterator[Found]:
        if not outputs:
            yield found
            return
        wanted = outputs[0].op
        assert wanted is not None
        if wanted in found.ops:
            yield from self._other_outputs(outputs[1:], root, found)
            return
        for op in [op.operation for op in root.block.operations]:
            if op_name(op) == wanted.name and op not in found.ops.values():
                for more in self._op(wanted, op, found):
                    yield from self._other_outputs(outputs[1:], root, more)

    def _op(self, wanted: PatternOp, op: ir.Operation, found: Found) -> Iterator[Found]:
        known = found.ops.get(wanted)
        if known is not None:
            if known == op:
                yield found
            return
        if op_name(op) != wanted.name or len(op.operands) != len(wanted.operands):
            self._fail(found, f"{_short(wanted.name)} expected, found {_short(op_name(op))}")
            return
        found = Found({**found.ops, wanted: op}, found.tensors, found.numbers)
        operands = list(op.operands)
        yield from self._operands(wanted, 0, wanted.operands, operands, found)
        if wanted.name in _COMMUTATIVE:
            swapped = [operands[1], operands[0], *operands[2:]]
            yield from self._operands(wanted, 0, wanted.operands, swapped, found)

    def _operands(
        self, wanted: PatternOp, k: int, patterns: Sequence[Operand], values: Sequence[ir.Value], found: Found
    ) -> Iterator[Found]:
        if k == len(patterns):
            yield found
            return
        for more in self._operand(patterns[k], values[k], found, wanted, k):
            yield from self._operands(wanted, k + 1, patterns, values, more)

    def _operand(
        self, pattern: Operand, value: ir.Value, found: Found, user: PatternOp, position: int
    ) -> Iterator[Found]:
        if pattern.kind == "result":
            op = defining_op(value)
            if op is None:
                self._fail(found, f"{_short(pattern.op.name)} expected, found an argument")  # type: ignore[union-attr] - an operand that is no argument has an op
            elif ir.OpResult(value).result_number == pattern.index:
                yield from self._op(pattern.op, op, found)  # type: ignore[arg-type] - an operand that is no argument has an op
            return
        if pattern.kind == "tensor":
            yield from self._tensor(pattern, value, found)
            return
        if pattern.kind == "list":
            elements = list_elements(value)
            if elements is None or len(elements) != len(pattern.elements):
                self._fail(
                    found, f"operand {position} of {_short(user.name)}: a list of {len(pattern.elements)} expected"
                )
                return
            yield from self._list(pattern.elements, elements, found, user, position)
            return
        if pattern.kind == "size":
            yield found  # follows from the sizes, which are checked at the end
            return
        yield from self._constant(pattern, value, found, user, position)

    def _list(
        self, patterns: Sequence[Operand], values: Sequence[ir.Value], found: Found, user: PatternOp, position: int
    ) -> Iterator[Found]:
        if not patterns:
            yield found
            return
        for more in self._operand(patterns[0], values[0], found, user, position):
            yield from self._list(patterns[1:], values[1:], more, user, position)

    def _tensor(self, pattern: Operand, value: ir.Value, found: Found) -> Iterator[Found]:
        bound = found.tensors.get(pattern.index)
        if bound is not None:
            if bound == value:
                yield found
            else:
                self._fail(found, f"argument {pattern.index} would be two different tensors")
            return
        positions = sorted({t for t in _tensor_positions(self.graph)})
        expected = self.graph.dtypes[positions.index(pattern.index)] if pattern.index in positions else None
        dtype = torch_dtype(value)
        if dtype is None or (expected is not None and _category(dtype) != _category(expected)):
            self._fail(found, f"argument {pattern.index}: a tensor like {expected} expected, found {value.type}")
            return
        yield Found(found.ops, {**found.tensors, pattern.index: value}, found.numbers)

    def _constant(
        self, pattern: Operand, value: ir.Value, found: Found, user: PatternOp, position: int
    ) -> Iterator[Found]:
        constant = python_value(value)
        if constant is NOT_CONSTANT:
            self._fail(found, f"operand {position} of {_short(user.name)}: a constant expected")
        elif pattern.kind == "number":
            bound = found.numbers.get(pattern.index, constant)
            if isinstance(constant, int | float) and _close(bound, constant, 0.0):
                yield Found(found.ops, found.tensors, {**found.numbers, pattern.index: constant})
            else:
                self._fail(found, f"number {bound} expected, found {constant}")
        elif self._same_constant(pattern.value, constant, user, position, found):
            yield found
        else:
            what = f"operand {position} of {_short(user.name)}"
            self._fail(found, f"{what}: {pattern.value} expected, found {constant}")

    def _same_constant(self, expected: Any, constant: Any, user: PatternOp, position: int, found: Found) -> bool:
        if isinstance(expected, int) and not isinstance(expected, bool) and _is_dim(user.name, position):
            if isinstance(constant, bool) or not isinstance(constant, int):
                return False
            of = found.ops[user].operands[0]
            parsed = parse_tensor_type(str((list_elements(of) or [of])[0].type))
            rank = len(parsed[0]) if parsed else 0
            # A dimension counted from the end by the pattern is counted from the end.
            return rank > 0 and constant % rank == expected % rank and (expected < 0 or expected < rank)
        if isinstance(expected, int | float) and isinstance(constant, int | float):
            return isinstance(expected, bool) == isinstance(constant, bool) and _close(
                expected, constant, self.graph.pattern.tolerance
            )
        return type(expected) is type(constant) and expected == constant

    # -- conditions on the whole

    def _acceptable(self, found: Found) -> bool:
        matched = set(found.ops.values())
        outputs = found.outputs(self.graph)
        for wanted, op in found.ops.items():
            for result in op.results:
                if result in outputs:
                    continue
                for use in result.uses:
                    if use.owner.operation not in matched:
                        self._fail(
                            found, f"{_short(wanted.name)} has another user, {_short(op_name(use.owner.operation))}"
                        )
                        return False
        reason = self._sizes(found) if self.graph.fixed_rank else None
        if reason is not None:
            self._fail(found, reason)
        return reason is None

    def _sizes(self, found: Found) -> str | None:
        table: dict[sympy.Symbol, sympy.Expr] = {}
        positions = _tensor_positions(self.graph)
        free = _broadcast_arguments(self.graph)
        for k, position in enumerate(positions):
            if position in free:
                continue
            sizes = result_sizes(found.tensors[position], self.names)
            reason = "unknown sizes" if sizes is None else bind(self.graph.arguments[k], sizes, table)
            if reason is not None:
                return f"argument {position}: {reason}"
        for wanted, op in found.ops.items():
            for expected, result in zip(wanted.sizes, op.results, strict=True):
                sizes = result_sizes(result, self.names)
                if expected is None or sizes is None:
                    continue
                reason = bind([e.subs(table) for e in expected], sizes, table)
                if reason is not None:
                    return f"result of {_short(wanted.name)}: {reason}"
        return None


def _broadcast_arguments(graph: PatternGraph) -> set[int]:
    """Arguments that broadcasting ops alone read: their sizes do not matter, since those of the results are checked."""
    readers: dict[int, set[str]] = {}
    for op in graph.ops:
        for operand in op.operands:
            for leaf in (operand, *operand.elements):
                if leaf.kind == "tensor":
                    readers.setdefault(leaf.index, set()).add(op.name)
    return {position for position, names in readers.items() if names <= _BROADCASTING}


def _tensor_positions(graph: PatternGraph) -> list[int]:
    import torch.utils._pytree as pytree

    return [k for k, value in enumerate(pytree.tree_leaves(graph.example)) if isinstance(value, torch.Tensor)]


def torch_dtype(value: ir.Value) -> torch.dtype | None:
    """The dtype of a tensor value; None for anything else."""
    parsed = parse_tensor_type(type_text(value.type))
    dtype = dtype_from_torch(parsed[1]) if parsed else None
    return getattr(torch, dtype.name, None) if dtype is not None else None


def _category(dtype: torch.dtype) -> str:
    if dtype == torch.bool:
        return "bool"
    return "float" if dtype.is_floating_point else "complex" if dtype.is_complex else "int"


def _close(a: float, b: float, tolerance: float) -> bool:
    if a == b or (a != a and b != b):
        return True
    return math.isfinite(a) and math.isfinite(b) and math.isclose(a, b, rel_tol=tolerance)


@cache
def _is_dim(name: str, position: int) -> bool:
    """Whether operand ``position`` of a torch op is a dimension (or a list of them) of operand 0."""
    parts = name.split(".")
    packet = getattr(torch.ops.aten, parts[2], None) if len(parts) > 2 else None
    overload = getattr(packet, parts[3] if len(parts) > 3 else "default", None)
    if overload is None:
        return False
    return overload._schema.arguments[position].name in ("dim", "dims", "dim0", "dim1")


def _short(name: str) -> str:
    return name.removeprefix("torch.")
