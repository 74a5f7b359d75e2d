# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the verifier of `kiln.fusion` asks of its discardable attributes; docs/fusion-attributes.md says what they mean."""

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects.kiln import checks
from kiln.dialects.schedules import InvalidSchedule, PartsSchedule, from_attribute

__all__ = ["check_attributes"]

_UNITS = ("narrow", "software_float8")


def check_attributes(op: Any) -> None:
    """Raise `InvalidOp` for an attribute of a fusion that is not of its type, or names what the fusion does not have."""
    for name in _UNITS:
        if name in op.attributes:
            found = op.attributes[name]
            checks.require(isinstance(found, ir.UnitAttr), f"attribute {name}", "unit", found)
    inputs, results, symbols = list(op.inputs), list(op.results), len(op.symbols)
    parts = list(dict.fromkeys(checks.ints(op, "parts", len(results), 0))) if "parts" in op.attributes else [0]
    for part in checks.ints(op, "waits") if "waits" in op.attributes else ():
        checks.require(part in parts, "attribute waits", f"numbers of parts {parts}", part)
    _in_range(op, "unaligned", len(inputs) + len(results), "tensor")
    _pairs(op, "in_place", (len(inputs), len(results)), ("tensor operand", "result"))
    _pairs(op, "writes", (len(results), _arguments(op)), ("result", "function argument"))
    ranks = [value.type.rank for value in (*inputs, *results)]
    _maps(op, "layouts", ranks, symbols)
    _maps(op, "offsets", [0] * len(ranks), symbols)
    if "schedule" in op.attributes:
        _check_schedule(op.attributes["schedule"], len(parts))


def _check_schedule(attribute: ir.Attribute, parts: int) -> None:
    try:
        schedule = from_attribute(attribute)
    except InvalidSchedule as error:
        what = f"attribute {error.what}"
        raise checks.InvalidOp(f"{what}: expected {error.expected}, found {error.found}") from None
    found = len(schedule.parts) if isinstance(schedule, PartsSchedule) else 1
    checks.require(found == parts, "attribute schedule", f"a schedule for each of {parts} parts", found)


def _arguments(op: Any) -> int | None:
    """How many arguments the function has that a fusion stands in; None where it stands in none."""
    block = op.operation.block
    return len(block.arguments) if block is not None else None


def _in_range(op: Any, name: str, count: int, what: str) -> None:
    if name in op.attributes:
        for number in checks.ints(op, name, least=0):
            checks.require(number < count, f"attribute {name}", f"numbers of {what}s below {count}", number)


def _pairs(op: Any, name: str, counts: tuple[int | None, int | None], what: tuple[str, str]) -> None:
    """An array of pairs of numbers, each below a count (None: any)."""
    if name not in op.attributes:
        return
    values = checks.ints(op, name, least=0)
    checks.require(len(values) % 2 == 0, f"attribute {name}", f"pairs ({what[0]}, {what[1]})", f"{len(values)} entries")
    for i, number in enumerate(values):
        most = counts[i % 2]
        good = most is None or number < most
        checks.require(good, f"attribute {name}", f"numbers of {what[i % 2]}s below {most}", number)


def _maps(op: Any, name: str, dims: Sequence[int], symbols: int) -> None:
    """An array of maps to one result, one for each tensor, over its dims and the fusion's symbols."""
    if name not in op.attributes:
        return
    found = op.attributes[name]
    checks.require(isinstance(found, ir.ArrayAttr), f"attribute {name}", "an array of affine maps", found)
    maps = list(found)
    checks.require(len(maps) == len(dims), f"attribute {name}", f"{len(dims)} maps, one per tensor", len(maps))
    for i, (each, rank) in enumerate(zip(maps, dims, strict=True)):
        what = f"attribute {name} entry {i}"
        checks.require(isinstance(each, ir.AffineMapAttr), what, "an affine map", each)
        checks.check_map(what, each.value, rank, 1, symbols)
