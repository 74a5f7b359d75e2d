# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Runs a kernel on polynomials: what each op that touches memory touches, for all programs, lanes and trips at once.

A loop's body is walked twice: once with an unknown in place of each carried integer or pointer, to see what a trip adds
to it, then with `start + trip * step`. What a trip does not add evenly is unknown. Where a division needs it, a minimum
is taken apart: the kernel is run once with either side, under the condition that says which one it is.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from torch_mlir import ir

from kiln.dialects.kiln import name_of
from kiln.lowering.gpu.validate.facts import Facts
from kiln.lowering.gpu.validate.poly import Atom, Cond, Poly, const
from kiln.lowering.gpu.validate.slices import address_ops
from kiln.lowering.gpu.validate.substitution import variables
from kiln.lowering.gpu.validate.values import Access, Limit, Pointer, Value, bits_of, chosen, range_of

__all__ = ["Behaviour", "Interpreter", "interpret", "rule"]

_MOST_CASES = 16


@dataclass
class Behaviour:
    """What a kernel does: its accesses, and what has to hold that they are exact."""

    accesses: dict[Access, None] = field(default_factory=dict[Access, None])
    limits: dict[Limit, None] = field(default_factory=dict[Limit, None])
    programs: list[Atom] = field(default_factory=list[Atom])
    """The numbers of a program along the grid's axes that have more than one."""


def interpret(function: ir.Operation, arguments: Sequence[Value], programs: Sequence[Poly]) -> Behaviour:
    """The behaviour of a `tt.func`. arguments: of its entry block. programs: of the grid's three axes."""
    found = Behaviour()
    needed = address_ops(function)
    pending: list[list[bool]] = [[]]
    for _ in range(_MOST_CASES):
        if not pending:
            break
        run = Interpreter(found, needed, programs, pending.pop())
        block = function.regions[0].blocks[0]
        run.values = dict(zip(block.arguments, arguments, strict=True))
        found.programs = [a for axis in range(len(programs)) for a in run.program(axis).atoms()]
        run.block(block)
        pending += run.untried
    return found


class Interpreter:
    """One walk through a kernel; `decisions` says how the first minima are taken apart."""

    def __init__(
        self, found: Behaviour, needed: set[ir.Operation], programs: Sequence[Poly], decisions: Sequence[bool]
    ) -> None:
        self.found, self.needed, self.programs = found, needed, programs
        self.values: dict[ir.Value, Value] = {}
        self.path: list[Cond] = []
        self.assumed: list[Cond] = []
        for axis, count in enumerate(programs):
            self.path.append(Cond.compare("ge", count - self.program(axis) - 1))
        self.decisions = list(decisions)
        self.decided: dict[Cond, bool] = {}
        self.untried: list[list[bool]] = []
        self.is_dry = False
        self.numbers: dict[ir.Operation, int] = {}
        self.unknowns = 0
        self._facts: tuple[tuple[Cond, ...], Facts] | None = None

    # -- values ---------------------------------------------------------------------------------------------

    def program(self, axis: int) -> Poly:
        """The id of the program along an axis, from 0 to the count less 1."""
        count = self.programs[axis].known
        most = range_of(32)[1] if count is None else count - 1
        return const(0) if count == 1 else Poly.of(Atom("program", (axis,), (0, most)))

    def unknown(self, type_: ir.Type, kind: str = "opaque") -> Value:
        """An integer that isn't known: its range is all that is proved of it."""
        bits = bits_of(type_)
        if bits is None:
            return None
        self.unknowns += 1
        if bits == 1:
            return Cond("opaque", (self.unknowns,))
        return Poly.of(Atom(kind, (self.unknowns,), range_of(bits)))

    def loaded(self, type_: ir.Type) -> Value:
        """What memory holds: any integer of its type can be there."""
        return self.unknown(type_, "loaded")

    def below(self, most: Poly) -> Value:
        """Of an unsigned minimum with a number: any integer from 0 to that, which an unsigned one is."""
        self.unknowns += 1
        assert most.known is not None and most.known >= 0
        return Poly.of(Atom("loaded", (self.unknowns,), (0, most.known)))

    def facts(self) -> Facts:
        """What holds on the current path."""
        key = self.here
        if self._facts is None or self._facts[0] != key:
            self._facts = key, Facts(key)
        return self._facts[1]

    def is_less(self, x: Poly, bound: Poly) -> bool:
        """Whether 0 <= x < bound is seen here."""
        if x.interval[0] < 0 and x.interval[1] == inf:
            return False
        facts = self.facts()
        return facts.lower(bound - 1 - x, 0) >= 0 and facts.lower(x, 0) >= 0

    def decide(self, cond: Cond) -> bool:
        """Which way a condition goes in this walk; the other one is walked later."""
        if cond not in self.decided:
            number = len(self.decided)
            if number < len(self.decisions):
                way = self.decisions[number]
            else:
                way = True
                self.untried.append([*self.decided.values(), False])
            self.decided[cond] = way
        way = self.decided[cond]
        fact = cond if way else ~cond
        if fact not in self.assumed:
            self.assumed.append(fact)
        return way

    @property
    def here(self) -> tuple[Cond, ...]:
        """What holds where the walk is."""
        return (*self.path, *self.assumed)

    # -- walking --------------------------------------------------------------------------------------------

    def block(self, block: ir.Block) -> list[Value]:
        """Runs a block; returns what its terminator passes on."""
        for op in block.operations:
            name = name_of(op.operation)
            if name in ("scf.yield", "tt.return"):
                return [self.values.get(v) for v in op.operands]
            self.run(op.operation, name)
        return []

    def run(self, op: ir.Operation, name: str) -> None:
        """Interpret one op; a result of an op without a rule is unknown."""
        self.numbers.setdefault(op, len(self.numbers))
        if name in STRUCTURE:
            STRUCTURE[name](self, op)
            return
        rule = RULES.get(name) if op in self.needed or name in MEMORY else None
        results: Sequence[Value] | None = None
        if rule is not None:
            results = rule(self, op, [self.values.get(v) for v in op.operands])
        if results is None:
            results = [self.unknown(r.type) if op in self.needed else None for r in op.results]
        for result, value in zip(op.results, results, strict=True):
            self.values[result] = value

    def lost(self, op: ir.Operation) -> list[Pointer]:
        """An access to what isn't known."""
        self.unknowns += 1
        return [Pointer(-1, Poly.of(Atom("opaque", (self.unknowns,), (-inf, inf))), Cond.of(True))]

    def touch(self, op: ir.Operation, kind: str, pointers: Sequence[Pointer], mask: Cond, shape: Sequence[int]) -> None:
        """Records an access."""
        if self.is_dry:
            return
        for pointer in pointers:
            conditions = (*self.here, mask & pointer.cond)
            if any(c.kind == "false" for c in conditions):
                continue
            access = Access(
                kind,
                self.numbers[op],
                pointer.base,
                pointer.offset,
                tuple(x for x in pointer.steps if not _always_fits(*x)),
                conditions,
                tuple(shape),
                shown(op),
                str(op.location),
            )
            self.found.accesses[access] = None

    def limit(self, op: ir.Operation, value: Poly, low: float, high: float) -> None:
        """Records what has to hold for `value` to be what the op computes."""
        a, b = value.interval
        if self.is_dry or (a >= low and b <= high):
            return
        bound = Limit(value, int(low), int(high), self.here, shown(op), str(op.location))
        self.found.limits[bound] = None

    # -- control flow ---------------------------------------------------------------------------------------

    def if_(self, op: ir.Operation) -> None:
        """Interpret both branches, each under its condition; results that differ become choices."""
        cond = self.values.get(op.operands[0])
        if not isinstance(cond, Cond):
            cond = Cond("opaque", ("if", self.numbers[op]))
        branches: list[list[Value]] = []
        kept = list(self.path)
        for region, fact in zip(op.regions, (cond, ~cond), strict=True):
            self.path.append(fact)
            blocks = list(region.blocks)
            branches.append(self.block(blocks[0]) if blocks and fact.kind != "false" else [])
            self.path = list(kept)
        for i, result in enumerate(op.results):
            sides = [values[i] if i < len(values) else None for values in branches]
            if cond.kind in ("true", "false"):
                value = sides[cond.kind == "false"]
            else:
                value = chosen(cond, sides[0], sides[1])
            self.values[result] = self.unknown(result.type) if value is None else value

    def for_(self, op: ir.Operation) -> None:
        """Interpret the body once for any trip; carried values that change are unknown or linear in the trip."""
        body = op.regions[0].blocks[0]
        low, high, step = (self.values.get(v) for v in list(op.operands)[:3])
        inits = [self.values.get(v) for v in list(op.operands)[3:]]
        trip = Atom("trip", (self.numbers[op],), (0, inf))
        counted = isinstance(low, Poly) and isinstance(high, Poly) and isinstance(step, Poly) and step.known
        if not counted:
            position, runs = self.unknown(body.arguments[0].type), Cond.of(True)
            trips: Poly | None = None
        else:
            assert isinstance(low, Poly) and isinstance(high, Poly) and isinstance(step, Poly)
            bits = bits_of(body.arguments[0].type) or 64
            for bound in (low, high):
                self.limit(op, bound, *range_of(bits))
            trips = (high - low + step - 1) // step
            most = (trips - 1).interval[1]
            trip = Atom("trip", (self.numbers[op],), (0, most))
            position = low + step * Poly.of(trip)
            runs = Cond.compare("ge", high - 1 - position)
        kept = list(self.path)
        self.path.append(runs)
        carried = self._carried(body, inits, position, trip)
        self._enter(body, position, [None if x is None else x[0] for x in carried], op)
        self.block(body)
        self.path = kept
        for result, init, found in zip(op.results, inits, carried, strict=True):
            count = trips.largest(const(0)) if trips is not None else None
            if found is None or count is None or init is None:
                self.values[result] = self.unknown(result.type)
            else:
                self.values[result] = _moved(init, found[1] * count)

    def _carried(
        self, body: ir.Block, inits: Sequence[Value], position: Value, trip: Atom
    ) -> list[tuple[Value, Poly] | None]:
        """Per carried value what it is in a trip, and what each trip adds to it; None where that isn't known."""
        if not any(isinstance(x, Poly | tuple) for x in inits):
            return [None] * len(inits)
        unknown = [Atom("opaque", ("carried", trip.args[0], i), (-inf, inf)) for i in range(len(inits))]
        start = [_moved(x, Poly.of(a)) for x, a in zip(inits, unknown, strict=True)]
        was_dry, self.is_dry = self.is_dry, True
        kept, numbers = list(self.path), self.unknowns
        self._enter(body, position, start, None)
        ended = self.block(body)
        self.is_dry, self.path = was_dry, kept
        inside = {trip, *unknown}
        names = {(a.kind, a.args) for a in inside}
        for n in range(numbers + 1, self.unknowns + 1):
            names |= {("opaque", (n,)), ("loaded", (n,))}
        found: list[tuple[Value, Poly] | None] = []
        for init, before, after in zip(inits, start, ended, strict=True):
            step = _difference(before, after)
            if step is None or any((a.kind, a.args) in names for a in variables([step])):
                found.append(None)
            else:
                value = _moved(init, step * Poly.of(trip))
                found.append((_with_steps(value, after, Cond.compare("ge", Poly.of(trip) - 1)), step))
        return found

    def _enter(self, body: ir.Block, position: Value, carried: Sequence[Value], op: ir.Operation | None) -> None:
        first, *rest = body.arguments
        self.values[first] = position
        for argument, value in zip(rest, carried, strict=True):
            self.values[argument] = self.unknown(argument.type) if value is None else value
        if op is not None and isinstance(position, Poly):
            bits = bits_of(first.type)
            if bits is not None:
                self.limit(op, position, *range_of(bits))


def _moved(value: Value, step: Poly) -> Value:
    """An integer or pointers, `step` further on; None for all else."""
    if isinstance(value, Poly):
        return value + step
    if isinstance(value, tuple):
        return tuple(replace(p, offset=p.offset + step) for p in value)
    return None


def _with_steps(value: Value, after: Value, cond: Cond) -> Value:
    """Pointers with what a trip added to them, where there was one before."""
    if not isinstance(value, tuple) or not isinstance(after, tuple):
        return value
    return tuple(
        replace(p, steps=(*p.steps, *((x, bits, c & cond) for x, bits, c in a.steps if (x, bits, c) not in p.steps)))
        for p, a in zip(value, after, strict=True)
    )


def _always_fits(step: Poly, bits: int, cond: Cond) -> bool:
    low, high = range_of(bits)
    return cond.kind == "false" or (step.interval[0] >= low and step.interval[1] <= high)


def _difference(before: Value, after: Value) -> Poly | None:
    if isinstance(before, Poly) and isinstance(after, Poly):
        return after - before
    if not isinstance(before, tuple) or not isinstance(after, tuple) or len(before) != len(after):
        return None
    steps = {b.offset - a.offset for a, b in zip(before, after, strict=True)}
    same = all((a.base, a.cond) == (b.base, b.cond) for a, b in zip(before, after, strict=True))
    return steps.pop() if same and len(steps) == 1 else None


def shown(op: ir.Operation) -> str:
    """The op's results, name and operands: `%5 = "tt.load"(%3, %4)`."""
    return re.split(r"(?<=\)) | : ", str(op).split("\n")[0])[0]


Rule = Callable[[Interpreter, ir.Operation, list[Value]], Sequence[Value] | None]
RULES: dict[str, Rule] = {}
"""What an op gives, by name; None if nothing is known of its results."""
MEMORY: set[str] = set()
"""Ops that run although no address depends on their results."""
STRUCTURE: dict[str, Callable[[Interpreter, ir.Operation], None]] = {
    "scf.for": Interpreter.for_,
    "scf.if": Interpreter.if_,
}


def rule(*names: str, memory: bool = False) -> Callable[[Rule], Rule]:
    """Registers what ops of these names give."""

    def register(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
            if memory:
                MEMORY.add(name)
        return function

    return register
