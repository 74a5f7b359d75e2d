# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the values of a kernel are to the validator, and what it does to memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from torch_mlir import ir

from kiln.dialects import tt
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly, choose, const
from kiln.lowering.gpu.validate.substitution import substitute, substitute_cond

__all__ = ["Access", "Descriptor", "Limit", "Pointer", "Value"]
__all__ += ["bits_of", "chosen", "lane", "map_lanes", "range_of", "reshaped"]


@dataclass(frozen=True)
class Pointer:
    """An element of argument `base`, `offset` elements behind its first, if `cond` holds.

    steps: what was added to the address, which has to fit into its type if the condition with it holds.
    """

    base: int
    offset: Poly
    cond: Cond
    steps: tuple[tuple[Poly, int, Cond], ...] = ()


@dataclass(frozen=True)
class Descriptor:
    """A tensor in memory that is moved in blocks: sizes and strides in elements."""

    base: int
    start: Poly
    shape: tuple[Poly, ...]
    strides: tuple[Poly, ...]


Value = Poly | Cond | tuple[Pointer, ...] | Descriptor | None
"""An integer (a block's over the lanes of its axes), a boolean, the pointers that it may be, a descriptor; None for all
else."""


@dataclass(frozen=True)
class Access:
    """What one op does to one buffer: for all values of the variables for which the conditions hold.

    kind: "load", "store" or "atomic". number: of the op, in the order of the kernel. steps: as of a pointer. text,
    location: of the op.
    """

    kind: str
    number: int
    base: int
    offset: Poly
    steps: tuple[tuple[Poly, int, Cond], ...]
    conditions: tuple[Cond, ...]
    shape: tuple[int, ...]
    text: str
    location: str

    @property
    def lanes(self) -> tuple[Atom, ...]:
        """The positions within the block, one atom per axis longer than 1."""
        return tuple(lane(axis, size) for axis, size in enumerate(self.shape) if size > 1)


@dataclass(frozen=True)
class Limit:
    """The result of an op has to fit into its type: low <= value <= high."""

    value: Poly
    low: int
    high: int
    conditions: tuple[Cond, ...]
    text: str
    location: str


def lane(axis: int, size: int) -> Atom:
    """The position along an axis of a block."""
    return Atom("lane", (axis, size), (0, size - 1))


def bits_of(type_: ir.Type) -> int | None:
    """The width of an integer (block) type, or None."""
    element = tt.element_of(type_)
    if isinstance(element, ir.IntegerType):
        return element.width
    return 64 if isinstance(element, ir.IndexType) else None


def range_of(bits: int) -> tuple[int, int]:
    """What a signed integer of this width can be."""
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def map_lanes(value: Value, table: Mapping[Atom, Poly]) -> Value:
    """With other positions in place of the lanes."""
    if isinstance(value, Poly):
        return substitute(value, table, {})
    if isinstance(value, Cond):
        return substitute_cond(value, table, {})
    if isinstance(value, tuple):
        return tuple(_mapped(pointer, table, {}) for pointer in value)
    return value


def _mapped(pointer: Pointer, table: Mapping[Atom, Poly], memo: dict[Any, Any]) -> Pointer:
    steps = tuple((substitute(x, table, memo), bits, substitute_cond(c, table, memo)) for x, bits, c in pointer.steps)
    cond = substitute_cond(pointer.cond, table, memo)
    return Pointer(pointer.base, substitute(pointer.offset, table, memo), cond, steps)


def reshaped(value: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    """The same elements in row-major order in another shape."""
    flat = const(0)
    for axis, size in enumerate(after):
        flat = flat * size + (Poly.of(lane(axis, size)) if size > 1 else const(0))
    table: dict[Atom, Poly] = {}
    behind = prod(before)
    for axis, size in enumerate(before):
        behind //= size
        if size > 1:
            table[lane(axis, size)] = (flat // const(behind)) % const(size)
    return map_lanes(value, table)


def chosen(cond: Cond, x: Value, y: Value) -> Value:
    """x where the condition holds, else y."""
    if isinstance(x, Poly) and isinstance(y, Poly):
        return choose(cond, x, y)
    if isinstance(x, Cond) and isinstance(y, Cond):
        return (cond & x) | (~cond & y)
    if isinstance(x, tuple) and isinstance(y, tuple):
        first = tuple(replace(p, cond=p.cond & cond) for p in x)
        return (*first, *(replace(p, cond=p.cond & ~cond) for p in y))
    return None
