# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""What the rules of Triton's ops share: the values so far, the scalar builder, memory for blocks."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import tt
from kiln.dialects.kiln import name_of
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.ttcpu.blocks import Block, Cursor, Scratch, Stored, scalar_type
from kiln.lowering.ttcpu.contractions import contraction
from kiln.lowering.ttcpu.interleave import stop
from kiln.lowering.ttcpu.scalars import apply_scalar, is_elementwise, scalar_cost
from kiln.lowering.ttcpu.settings import Settings
from kiln.lowering.ttcpu.sites import Sites

__all__ = ["HANDLERS", "Descriptor", "Extent", "Lowering", "Reporting", "Rule", "handles"]

#: An op's result is computed again by each of its readers up to this many scalar operations.
_CHEAP = 4


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor: `sizes` and `strides` in elements, outermost dim first; is_nan: what lies outside is NaN,
    not zero.
    """

    pointer: ir.Value
    element: ir.Type
    sizes: list[ir.Value]
    strides: list[ir.Value]
    is_nan: bool = False


@dataclass(frozen=True)
class Extent:
    """One piece of memory, as i64 values: the number of the argument that it is, its address, its size in bytes."""

    number: ir.Value
    base: ir.Value
    size: ir.Value


@dataclass(frozen=True)
class Reporting:
    """Where a kernel reports what is wrong: (address of the record, number of the launch), or None where it does not;
    the sites that may; what is looked at.
    """

    record: tuple[ir.Value, ir.Value] | None
    sites: Sites
    settings: Settings


Value = ir.Value | Block | Descriptor
Rule = Callable[["Lowering", ir.Operation], None]
HANDLERS: dict[str, Rule] = {}


def handles(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for ops by name."""

    def register(rule: Rule) -> Rule:
        HANDLERS.update(dict.fromkeys(names, rule))
        return rule

    return register


class Lowering:
    """Lowers the ops of one function in order, at the current insertion point."""

    def __init__(
        self,
        b: Builder,
        scratch: Scratch,
        programs: Sequence[ir.Value],
        grid: Sequence[Index],
        program: ir.Value,
        reporting: "Reporting",
    ) -> None:
        self.b, self.scratch = b, scratch
        self.programs, self.grid = programs, grid  # this program's numbers as i32, and how many there are
        self.program = program  # its number in the whole grid, i64
        self.record, self.sites, self.settings = reporting.record, reporting.sites, reporting.settings
        self.is_approximate = self.settings.approximate and self.record is not None
        self.extents: dict[ir.Value, Extent] = {}  # the memory of the kernel's arguments, where it is known
        self.callers: dict[ir.Value, ir.Value] = {}  # argument of a function -> what it was called with last
        self.values: dict[ir.Value, Value] = {}
        self.own: set[ir.Value] = set()  # blocks that the loops around carry
        self.slot: ir.Value | None = None  # of this program, where others go on in between (`interleave.py`)

    def stop(self, is_told: bool = False) -> None:
        """Another program may go on here. is_told: others can know now that this one got here."""
        if self.slot is not None:
            stop(self.b, self.slot, is_told)

    def run(self, block: ir.Block) -> ir.Operation:
        """Lowers a block's ops up to its terminator, which is returned."""
        operations = list(block.operations)
        for view in operations[:-1]:
            with view.operation.location:
                self.lower(view.operation)
        return operations[-1].operation

    def lower(self, op: ir.Operation) -> None:
        """Lowers one op.

        Raises UnsupportedError for an op without a rule.
        """
        name = name_of(op)
        rule = HANDLERS.get(name)
        if rule is not None:
            rule(self, op)
        elif is_elementwise(name):
            self._elementwise(op, name)
        else:
            raise UnsupportedError(name, str(op.location), "this op does not run on the CPU")

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """A nested region: what is evaluated in it is forgotten behind it."""
        saved = dict(self.values)
        try:
            yield
        finally:
            self.values = saved

    # -- values ---------------------------------------------------------------------------------------------

    def block(self, value: ir.Value) -> Block:
        """The block in memory that a value of the kernel became."""
        found = self.values[value]
        assert isinstance(found, Block)
        return found

    def scalar(self, value: ir.Value) -> ir.Value:
        """The SSA value that a scalar of the kernel became."""
        found = self.values[value]
        assert isinstance(found, ir.Value)
        return found

    def either(self, value: ir.Value) -> Block | ir.Value:
        """What a value of the kernel became: a block or a scalar, no descriptor."""
        found = self.values[value]
        assert not isinstance(found, Descriptor)
        return found

    def stored(self, value: ir.Value, element: ir.Type | None = None) -> Stored:
        """A block's memory; the block is evaluated if it has none."""
        stored = self.scratch.store(self.block(value), element)
        if element is None:
            self.values[value] = stored
        return stored

    def define(self, value: ir.Value, block: Block) -> None:
        """Makes `block` the value, evaluating it now if that saves work later."""
        uses = list(value.uses)
        elsewhere = any(use.owner.operation.block != value.owner.operation.block for use in uses)
        if block.cost > _CHEAP and (len(uses) > 1 or elsewhere):
            block = self.scratch.store(block)
        self.values[value] = block

    def cheap(self, value: ir.Value) -> Block:
        """A block of which elements may be computed more than once."""
        block = self.block(value)
        return block if block.cost <= _CHEAP else self.stored(value)

    def element(self, value: ir.Value, index: Sequence[ir.Value], cursor: Cursor | None = None) -> ir.Value:
        """One element of a block, or the scalar."""
        return (cursor or Cursor()).value(self.either(value), index)

    # -- memory ---------------------------------------------------------------------------------------------

    def memory_of(self, value: ir.Value) -> Stored:
        """Fresh memory for a block."""
        return self.scratch.block(ir.RankedTensorType(value.type).shape, scalar_type(value.type))

    def memory_for(self, value: ir.Value, init: ir.Value) -> Stored:
        """Fresh memory that holds a copy of `init`."""
        memory = self.memory_of(value)
        self.scratch.fill(memory, self.block(init))
        return memory

    def accumulator(self, op: ir.Operation, start: ir.Value) -> Stored:
        """Memory that holds `start` and that `op` may change: that of the loop's own block if nothing else reads it."""
        found = self.block(start)
        uses = list(start.uses)
        is_mine = start in self.own and len(uses) == 1 and start.owner == op.block
        return found if is_mine and isinstance(found, Stored) else self.memory_for(op.results[0], start)

    # -- elementwise ----------------------------------------------------------------------------------------

    def _elementwise(self, op: ir.Operation, name: str) -> None:
        if not any(tt.is_block(r.type) for r in op.results):
            results = self.apply(op, [self.scalar(v) for v in op.operands])
            for old, new in zip(op.results, results, strict=True):
                self.values[old] = new
            return
        fused = contraction(op, self.settings.seed) if self.is_approximate else None
        operands = [self.either(v) for v in (op.operands if fused is None else fused.operands)]
        cost = scalar_cost(name) + sum(o.cost for o in operands if isinstance(o, Block))
        for number, result in enumerate(op.results):

            def compute(cursor: Cursor, index: tuple[ir.Value, ...], number: int = number) -> ir.Value:
                with op.location:  # elements are computed where they are used
                    values = [cursor.value(o, index) for o in operands]
                    return self.apply(op, values)[number] if fused is None else fused.emit(*values)

            type_ = ir.RankedTensorType(result.type)
            self.define(result, Block(type_.shape, scalar_type(type_), compute, cost))

    def apply(self, op: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Emits an elementwise op on scalars."""
        return apply_scalar(self.b, op, operands, self.is_approximate)

    def combine(self, region: ir.Region, operands: Sequence[ir.Value]) -> list[ir.Value]:
        """Inlines a combine region of scalar ops; returns what it yields."""
        body = region.blocks[0]
        known: dict[ir.Value, ir.Value] = dict(zip(body.arguments, operands, strict=True))
        operations = [view.operation for view in body.operations]
        for op in operations[:-1]:
            inputs = [known[v] if v in known else self.scalar(v) for v in op.operands]
            if op.name != "arith.constant" and not is_elementwise(name_of(op)):
                raise UnsupportedError(name_of(op), str(op.location), "only arithmetic may combine elements")
            known.update(zip(op.results, self.apply(op, inputs), strict=True))
        return [known[v] if v in known else self.scalar(v) for v in operations[-1].operands]
