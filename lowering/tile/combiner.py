# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How a reduction or scan combines two partial results: what is known to be associative, and its identity."""

from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects.walk import defining_op

__all__ = ["SCANS", "Combiner", "combiners"]

# Combiner op -> (vector.reduction kind, identity as a function of the element type).
_KINDS: dict[str, str] = {
    "arith.addf": "add", "arith.addi": "add", "arith.mulf": "mul", "arith.muli": "mul",
    "arith.maximumf": "maximumf", "arith.minimumf": "minimumf", "arith.maxnumf": "maxnumf",
    "arith.minnumf": "minnumf", "arith.maxsi": "maxsi", "arith.minsi": "minsi", "arith.maxui": "maxui",
    "arith.minui": "minui", "arith.andi": "and", "arith.ori": "or", "arith.xori": "xor",
}  # fmt: skip
SCANS = {"sum": ("arith.addf", "arith.addi", 0), "prod": ("arith.mulf", "arith.muli", 1)}
"""Kinds of scans that have a kernel: combiner for floats, for integers, and the value before the first element."""


@dataclass(frozen=True)
class Combiner:
    """How two partial results become one; `kind` is None where only the sequential order is known."""

    op: str
    kind: str | None
    identity: ir.Attribute | None


def combiners(op: ir.OpView) -> list[Combiner]:
    """The combiner of each result of a reduction body."""
    block = op.regions[0].blocks[0]
    carried = list(block.arguments)[len(op.operands) - len(op.results) :]
    found: list[Combiner] = []
    for value, acc in zip(list(block.operations)[-1].operands, carried, strict=True):
        owner = defining_op(value)
        if owner is None or owner.name not in _KINDS or len(list(acc.uses)) != 1:
            found.append(Combiner("", None, None))
            continue
        direct = acc in list(owner.operands)
        identity = _identity(owner.name, acc.type) if direct else None
        found.append(Combiner(owner.name, _KINDS[owner.name] if identity is not None else None, identity))
    return found


def _identity(name: str, type_: ir.Type) -> ir.Attribute | None:
    if isinstance(type_, ir.FloatType):
        value = {"arith.addf": 0.0, "arith.mulf": 1.0, "arith.maximumf": -float("inf"), "arith.maxnumf": -float("inf"),
                 "arith.minimumf": float("inf"), "arith.minnumf": float("inf")}.get(name)  # fmt: skip
        return None if value is None else ir.FloatAttr.get(type_, value)
    if not isinstance(type_, ir.IntegerType):
        return None
    bits = type_.width
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    value = {"arith.addi": 0, "arith.muli": 1, "arith.maxsi": low, "arith.minsi": high, "arith.maxui": 0,
             "arith.minui": -1, "arith.andi": -1, "arith.ori": 0, "arith.xori": 0}.get(name)  # fmt: skip
    if value is None:
        return None
    if bits == 1:
        return ir.IntegerAttr.get(type_, value & 1)
    return ir.IntegerAttr.get(type_, value)
