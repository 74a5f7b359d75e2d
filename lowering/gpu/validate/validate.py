# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Proves of one kernel that it touches only what it owns; see docs/validation.md."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from time import monotonic

from torch_mlir import ir

from kiln.dialects import tt
from kiln.lowering.gpu.validate import rules  # noqa: F401 - it registers them
from kiln.lowering.gpu.validate.bounds import holds
from kiln.lowering.gpu.validate.buffers import Buffer, attach_buffers, buffers_of, polynomial, shared_memory
from kiln.lowering.gpu.validate.coverage import covers
from kiln.lowering.gpu.validate.disjoint import overlap
from kiln.lowering.gpu.validate.interpret import interpret
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly, const
from kiln.lowering.gpu.validate.refute import collision, outside
from kiln.lowering.gpu.validate.substitution import variables
from kiln.lowering.gpu.validate.values import Access, Descriptor, Limit, Pointer, Value, bits_of, range_of

__all__ = ["SECONDS", "Finding", "validate_function", "validate_kernel"]

SECONDS = 5.0
"""After which what is left of a kernel is unknown."""
_MARGIN = 1 << 21
"""What guards of narrow kernels leave below 2^31 elements (frontend/import_/limits.py)."""
_MOST_ELEMENTS = 1 << 57
"""Of any tensor: GPUs have addresses of 57 bits."""


@dataclass(frozen=True)
class Finding:
    """What was found of one property of a kernel.

    check: "bounds", "overflow", "disjoint" or "coverage". status: "proved", "refuted" or "unknown". subject: the op's
    text, or the buffer's name; location: the op's. detail: the counterexample, or why nothing is known.
    """

    check: str
    status: str
    subject: str
    detail: str = ""
    location: str = ""

    def __str__(self) -> str:
        return f"{self.check} {self.status}: {self.subject}" + (f": {self.detail}" if self.detail else "")


def validate_kernel(function: ir.Operation, fusion: ir.OpView, seconds: float = SECONDS) -> list[Finding]:
    """Validates the kernel (`tt.func`, as `emit_kernel` gives it) of a fusion."""
    attach_buffers(fusion, function)
    try:
        return validate_function(function, seconds)
    finally:
        for name in ("kiln.buffers", "kiln.in_place"):
            if name in function.attributes:
                del function.attributes[name]


def validate_function(function: ir.Operation, seconds: float = SECONDS) -> list[Finding]:
    """Validates a `tt.func` with the attributes `kiln.grid` and `kiln.buffers`."""
    arguments = list(function.regions[0].blocks[0].arguments)
    symbols: list[Poly] = []
    bits = 64
    for argument in arguments:
        width = bits_of(argument.type)
        if width is not None:
            bits = width
            symbols.append(Poly.of(Atom("symbol", (len(symbols),), (1, range_of(width)[1]))))
    buffers = buffers_of(function, symbols)
    guards = _guards(buffers, bits) if symbols else []
    grid = ir.AffineMapAttr(function.attributes["kiln.grid"]).value
    programs = [polynomial(e, (), symbols) for e in grid.results]
    behaviour = interpret(function, _values(function, arguments, symbols, buffers), programs)
    kernel = _Kernel(buffers, guards, list(behaviour.accesses), behaviour.programs, monotonic() + seconds)
    found = [kernel.limit(limit) for limit in behaviour.limits]
    bounds = {access: kernel.bounds(access) for access in behaviour.accesses}
    found += bounds.values()
    strays = {access.base for access, finding in bounds.items() if finding.status != "proved"}
    zeroed = _zeroed(function, buffers)
    loaded = {a.base for a in behaviour.accesses if a.kind == "load"}
    shared = shared_memory(function, buffers)
    # Of a result that starts as an operand which is not loaded, what isn't written stays.
    zeroed |= {result for operand, result in shared if operand not in loaded}
    for number, buffer in enumerate(buffers):
        found += kernel.writes(number, number not in strays, buffer.is_result and number not in zeroed)
    for operand, result in shared:
        found += kernel.races(operand, result)
    return found


@dataclass
class _Kernel:
    """guards: what holds of the sizes. deadline: of `time.monotonic`."""

    buffers: list[Buffer]
    guards: list[Cond]
    accesses: list[Access]
    programs: list[Atom]
    deadline: float

    def limit(self, limit: Limit) -> Finding:
        """That an integer is what its polynomial says, though its type is narrow."""
        goal = Cond.compare("ge", limit.value - limit.low) & Cond.compare("ge", const(limit.high) - limit.value)
        if holds(goal, [*limit.conditions, *self.guards], self.deadline):
            return Finding("overflow", "proved", limit.text, location=limit.location)
        detail = f"{limit.value} may not fit into [{limit.low}, {limit.high}]"
        return Finding("overflow", "unknown", limit.text, detail, limit.location)

    def bounds(self, access: Access) -> Finding:
        """That an access is one of an element of its buffer."""
        ends = self.buffers[access.base].ends if access.base >= 0 else None
        if ends is None:
            return Finding("bounds", "unknown", access.text, "a buffer that isn't known", access.location)
        buffer = self.buffers[access.base]
        conditions = [*access.conditions, *self.guards]
        inside = [Cond.compare("ge", access.offset - ends[0]), Cond.compare("ge", ends[1] - access.offset)]
        goals = [*inside, *([] if access.kind == "load" else _in_pieces(buffer, access.offset))]
        missing = [goal for goal in goals if not holds(goal, conditions, self.deadline)]
        if not missing:
            missing = _wrapping(access, [*conditions, *inside], self.deadline)
        if not missing:
            return Finding("bounds", "proved", access.text, location=access.location)
        example = outside(access, missing, self.guards)
        if example is None:
            detail = f"not proved: {'; '.join(map(str, missing))}"
            return Finding("bounds", "unknown", access.text, detail, access.location)
        detail = (
            f"{example.shown()}: offset {example.value(access.offset)} of {buffer.name}, whose elements are "
            f"{_extent(buffer, example.value(ends[0]), example.value(ends[1]))}"
        )
        return Finding("bounds", "refuted", access.text, detail, access.location)

    def writes(self, number: int, apart: bool, is_whole: bool) -> list[Finding]:
        """That programs write different elements of a buffer, and that all are written if it `is_whole`.

        apart: whether all stores are proved to be of elements of the buffer.
        """
        buffer = self.buffers[number]
        stores = [a for a in self.accesses if a.base == number and a.kind == "store"]
        if stores and buffer.overlaps:
            detail = "its elements share memory, which several programs may write the same to"
            return [Finding("disjoint", "unknown", buffer.name, detail, stores[0].location)]
        found: list[Finding] = []
        for a, b in combinations_with_replacement(stores, 2):
            finding, all_differ = self._apart(a, b, buffer)
            apart &= all_differ
            found.append(finding)
        if is_whole:
            found.append(Finding("coverage", *covers(buffer, stores, apart)))
        return found

    def races(self, operand: int, result: int) -> list[Finding]:
        """That no program loads what another one writes over."""
        loads = [a for a in self.accesses if a.base == operand and a.kind == "load"]
        stores = [a for a in self.accesses if a.base == result and a.kind == "store"]
        return [self._apart(a, b, self.buffers[result])[0] for a in loads for b in stores]

    def _apart(self, a: Access, b: Access, buffer: Buffer) -> tuple[Finding, bool]:
        """That two accesses of different programs are of different elements; whether all elements are different."""
        subject = a.text if a.text == b.text else f"{a.text} and {b.text}"
        if monotonic() > self.deadline:
            return Finding("disjoint", "unknown", subject, "no time left", a.location), False
        proved = overlap(a, b, self.guards, self.programs)
        if proved.programs_differ:
            return Finding("disjoint", "proved", subject, location=a.location), proved.all_differ
        if any(v.kind == "loaded" for v in variables([a.offset, b.offset])):
            detail = "where it writes depends on loaded integers; of several writes to one place any stays"
            return Finding("disjoint", "unknown", subject, detail, a.location), False
        example = collision(a, b, self.guards, self.programs)
        if example is None:
            return Finding("disjoint", "unknown", subject, proved.why, a.location), False
        return Finding("disjoint", "refuted", subject, f"{example} of {buffer.name}", a.location), False


def _extent(buffer: Buffer, first: int, last: int) -> str:
    gaps = buffer.count.known is not None and buffer.count.known < last - first + 1
    return f"{first} to {last}" + (", with gaps" if gaps else "")


def _zeroed(function: ir.Operation, buffers: Sequence[Buffer]) -> set[int]:
    """Results that hold zeros before the kernel runs: it need not write all of them."""
    if "kiln.zero" not in function.attributes:
        return set()
    operands = sum(not buffer.is_result for buffer in buffers)
    return {operands + int(i) for i in ir.DenseI64ArrayAttr(function.attributes["kiln.zero"])}


def _wrapping(access: Access, conditions: Sequence[Cond], deadline: float) -> list[Cond]:
    """What isn't proved of the sums that make the address: that they fit into their types."""
    found: list[Cond] = []
    for step, bits, cond in access.steps:
        low, high = range_of(bits)
        fits = Cond.compare("ge", step - low) & Cond.compare("ge", const(high) - step)
        if not holds(fits, [*conditions, cond], deadline):
            found.append(fits | ~cond)
    return found


def _in_pieces(buffer: Buffer, offset: Poly) -> list[Cond]:
    """That an offset is one of the buffer's elements, where there are gaps between them."""
    pieces = buffer.pieces()
    if pieces is None or pieces == [(const(1), buffer.count)]:
        return []
    goals: list[Cond] = []
    rest = offset - buffer.start
    for stride, size in pieces:
        if stride.known is None:
            return []
        at = rest // stride
        goals += [Cond.compare("ge", at), Cond.compare("ge", size - 1 - at)]
        rest = rest % stride
    return [*goals, Cond.compare("eq", rest)]


def _guards(buffers: Sequence[Buffer], bits: int) -> list[Cond]:
    """What holds of the sizes in each call: with positions of 32 bits, tensors have fewer elements than these reach;
    any fits into the address space.
    """
    limit = (1 << 31) - _MARGIN if bits == 32 else _MOST_ELEMENTS
    found: dict[Cond, None] = {}
    for buffer in buffers:
        found[Cond.compare("ge", const(limit) - buffer.count)] = None
        if buffer.ends is not None:
            found[Cond.compare("ge", const(limit) - buffer.ends[1])] = None
        for mono, c in buffer.count.terms.items():
            # The other sizes are at least 1.
            parts = (part for n in range(1, len(mono)) for part in combinations(mono, n))
            if len(buffer.count.terms) == 1 and c > 0:
                found |= {Cond.compare("ge", const(limit // c) - Poly({part: 1})): None for part in parts}
    return [c for c in found if c.kind != "true"]


def _values(
    function: ir.Operation, arguments: Sequence[ir.Value], symbols: Sequence[Poly], buffers: Sequence[Buffer]
) -> list[Value]:
    """What the kernel's arguments are."""
    described: dict[int, Descriptor] = {}
    if "kiln.descriptors" in function.attributes:
        for entry in ir.ArrayAttr(function.attributes["kiln.descriptors"]):
            given = ir.DictAttr(entry)
            number = ir.IntegerAttr(given["arg"]).value
            shape, strides = (
                tuple(polynomial(e, (), symbols) for e in ir.AffineMapAttr(given[key]).value.results)
                for key in ("shape", "strides")
            )
            described[number] = Descriptor(number, const(0), shape, strides)
    values: list[Value] = []
    integers = iter(symbols)
    for number, argument in enumerate(arguments):
        if number in described:
            values.append(described[number])
        elif tt.is_ptr(argument.type) and number < len(buffers):
            values.append((Pointer(number, const(0), Cond.of(True)),))
        else:
            values.append(next(integers) if bits_of(argument.type) is not None else None)
    return values
