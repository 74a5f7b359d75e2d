# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What building IR from Python has in common for all targets: integers that fold, comparisons, control flow.

Integers are `Index = int | ir.Value`: a Python int is known at compile time, a Value at run time. All integer methods
fold ints; loops of zero or one known trip are dropped or inlined, and a branch on a known condition is no branch. So
one emitter serves static and dynamic shapes alike, and a static shape leaves no dead control flow behind.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

__all__ = ["Condition", "Index", "IRBuilder"]

Index = int | ir.Value
Condition = bool | ir.Value

_CMP = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
_PY_CMP: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "slt": lambda x, y: x < y,
    "sle": lambda x, y: x <= y,
    "sgt": lambda x, y: x > y,
    "sge": lambda x, y: x >= y,
    "ult": lambda x, y: x < y,
    "ule": lambda x, y: x <= y,
    "ugt": lambda x, y: x > y,
    "uge": lambda x, y: x >= y,
}
# In the order of arith.cmpf's encoding.
_CMPF = [
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
]

LoopBody = Callable[[Index], Any] | Callable[[Index, list[ir.Value]], Any]
"""What a loop does: `body(i)`, or `body(i, carried)`, which returns what the next trip gets."""


class IRBuilder:
    """Emits ops at the current insertion point (`ir.InsertionPoint.current`).

    Constants are placed once at the start of `entry`, the kernel's entry block, which dominates every use. A context
    and a location must be active. A target says what a Python number becomes (`value`) and how operands of different
    shapes meet (`together`).
    """

    def __init__(self, entry: ir.Block):
        self.entry = entry
        self._shared: dict[tuple[Hashable, ...], ir.Value] = {}
        self.i1 = ir.IntegerType.get_signless(1)
        self.i8 = ir.IntegerType.get_signless(8)
        self.i16 = ir.IntegerType.get_signless(16)
        self.i32 = ir.IntegerType.get_signless(32)
        self.i64 = ir.IntegerType.get_signless(64)
        self.f32 = ir.F32Type.get()
        self.f64 = ir.F64Type.get()

    # -- operands --------------------------------------------------------------------------------------------

    def value(self, x: Any, like: ir.Type | None = None) -> ir.Value:
        """`x` as an SSA value; a Python number becomes a constant that can meet a value of type `like`."""
        raise NotImplementedError

    def pair(self, x: Any, y: Any) -> list[ir.Value]:
        """The two operands of an op as values."""
        return [self.value(x), self.value(y)]

    def together(self, *values: ir.Value) -> list[ir.Value]:
        """The values broadcast to one shape."""
        raise NotImplementedError

    def attribute_constant(self, attribute: ir.Attribute, type_: ir.Type) -> ir.Value:
        """An arith.constant at the kernel's entry, one per distinct attribute."""

        def make() -> ir.Value:
            return ir.Operation.create("arith.constant", results=[type_], attributes={"value": attribute}).result

        return self._once(("constant", attribute, type_), make)  # both are unique in their context

    def _once(self, key: tuple[Hashable, ...], make: Callable[[], ir.Value]) -> ir.Value:
        """What `make` emits at the kernel's entry, for all that ask with this key."""
        if key not in self._shared:
            with ir.InsertionPoint.at_block_begin(self.entry):
                self._shared[key] = make()
        return self._shared[key]

    def _arith(self, name: str, x: Any, y: Any) -> ir.Value:
        """An op of two operands whose result has the type of the first. Not by its class, which takes three times as
        long: a kernel has thousands.
        """
        operands = self.pair(x, y)
        return ir.Operation.create(name, [operands[0].type], operands).result

    # -- integers (Python ints fold) -------------------------------------------------------------------------

    def addi(self, x: Index, y: Index) -> Index:
        """`x + y` of indices; folded where a side is known."""
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if isinstance(x, int) and x == 0:
            return y
        if isinstance(y, int) and y == 0:
            return x
        return self._arith("arith.addi", x, y)

    def subi(self, x: Index, y: Index) -> Index:
        """`x - y` of indices; folded where a side is known."""
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        if isinstance(y, int) and y == 0:
            return x
        return self._arith("arith.subi", x, y)

    def muli(self, x: Index, y: Index) -> Index:
        """`x * y` of indices; folded where a side is known."""
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        for p, q in ((x, y), (y, x)):
            if isinstance(p, int) and p in (0, 1):
                return q if p else 0
        return self._arith("arith.muli", x, y)

    def divi(self, x: Index, y: Index) -> Index:
        """x // y for non-negative x and positive y."""
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        if isinstance(y, int) and y == 1:
            return x
        return self._arith("arith.divui", x, y)

    def remi(self, x: Index, y: Index) -> Index:
        """x % y for non-negative x and positive y."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        if isinstance(y, int) and y == 1:
            return 0
        return self._arith("arith.remui", x, y)

    def ceildivi(self, x: Index, y: Index) -> Index:
        """ceil(x / y) for non-negative x and positive y."""
        return self.divi(self.addi(x, self.subi(y, 1)), y)

    def mini(self, x: Index, y: Index) -> Index:
        """The smaller of two signed indices."""
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        return self._arith("arith.minsi", x, y)

    def maxi(self, x: Index, y: Index) -> Index:
        """The larger of two signed indices."""
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        return self._arith("arith.maxsi", x, y)

    # -- conditions ------------------------------------------------------------------------------------------

    def cmpi(self, predicate: str, x: Index, y: Index) -> Condition:
        """Integer comparison; a Python bool when both sides are known. Predicates: eq ne slt sle sgt sge ult ..."""
        if isinstance(x, int) and isinstance(y, int):
            return _PY_CMP[predicate](x, y)
        return arith.cmpi(_CMP[predicate], *self.pair(x, y))

    def cmpf(self, predicate: str, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """Float comparison; predicates as in arith.cmpf (oeq, olt, uno, ...)."""
        return arith.cmpf(_CMPF.index(predicate), *self.pair(x, y))

    def andc(self, x: Condition, y: Condition) -> Condition:
        """Conjunction of two conditions."""
        if isinstance(x, bool):
            return y if x else False
        if isinstance(y, bool):
            return x if y else False
        return arith.andi(*self.together(x, y))

    def orc(self, x: Condition, y: Condition) -> Condition:
        """Disjunction of two conditions."""
        if isinstance(x, bool):
            return True if x else y
        if isinstance(y, bool):
            return True if y else x
        return arith.ori(*self.together(x, y))

    def select(self, condition: Condition, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """x where the condition holds, else y."""
        p, q = self.pair(x, y)
        if isinstance(condition, bool):
            return p if condition else q
        c, p, q = self.together(condition, p, q)
        return arith.select(c, p, q)

    # -- floats ----------------------------------------------------------------------------------------------

    def addf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """`x + y` of floats; a number takes the other side's type."""
        return self._arith("arith.addf", x, y)

    def subf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """`x - y` of floats; a number takes the other side's type."""
        return self._arith("arith.subf", x, y)

    def mulf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """`x * y` of floats; a number takes the other side's type."""
        return self._arith("arith.mulf", x, y)

    def divf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """`x / y` of floats; a number takes the other side's type."""
        return self._arith("arith.divf", x, y)

    # -- control flow ----------------------------------------------------------------------------------------

    def for_(
        self,
        lower: Index,
        upper: Index,
        step: Index,
        body: LoopBody,
        inits: Sequence[ir.Value] = (),
        attributes: dict[str, str] | None = None,
    ) -> list[ir.Value]:
        """scf.for. `body(i)`, or `body(i, carried) -> new carried` with `inits`; returns what is carried at the end.

        A loop known to run zero times vanishes, one known to run once is inlined with i = lower. `attributes` are
        discardable attributes as text: {"tt.num_stages": "3 : i32"}, {"tt.flatten": "unit"}.
        """
        emit = cast(Callable[..., Any], body)
        trips = self._few_trips(lower, upper, step)
        if trips == 0:
            return list(inits)
        if trips == 1:
            return list(emit(lower, list(inits)) if inits else emit(lower) or ())
        like = next((x.type for x in (upper, lower, step) if isinstance(x, ir.Value)), None)
        loop = scf.ForOp(self.value(lower, like), self.value(upper, like), self.value(step, like), list(inits))
        for key, text in (attributes or {}).items():
            loop.operation.attributes[key] = ir.Attribute.parse(text)
        with ir.InsertionPoint(loop.body):
            self._enter_loop(loop.induction_variable, lower, upper, step)
            if inits:
                scf.yield_(list(emit(loop.induction_variable, list(loop.inner_iter_args))))
            else:
                emit(loop.induction_variable)
                scf.yield_([])
        return list(loop.results)

    def _few_trips(self, lower: Index, upper: Index, step: Index) -> int | None:
        """0 or 1 for a loop that is known to run as often, else None."""
        if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int):
            return 0 if lower >= upper else 1 if lower + step >= upper else None
        return None

    def _enter_loop(self, i: ir.Value, lower: Index, upper: Index, step: Index) -> None:
        """Called before the body of a loop over `i` is emitted: for builders that remember facts about integers."""

    def if_(
        self,
        condition: Condition,
        then: Callable[[], Any],
        otherwise: Callable[[], Any] | None = None,
        types: Sequence[ir.Type] = (),
    ) -> list[ir.Value]:
        """scf.if on a scalar; with `types`, both branches return that many values. A known condition emits one branch
        only.
        """
        if isinstance(condition, bool):
            branch = then if condition else otherwise
            return list((branch() if branch else None) or ())
        op = scf.IfOp(condition, list(types), has_else=otherwise is not None)
        for block, branch in ((op.then_block, then), (op.else_block if otherwise else None, otherwise)):
            if block is not None and branch is not None:
                with ir.InsertionPoint(block):
                    values = branch()
                    scf.yield_(list(values or ()) if types else [])
        return list(op.results)
