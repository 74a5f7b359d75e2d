# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`linalg.generic`: the body once for all points of a part of the iteration space, part by part.

The parts are as large as a bound on memory allows.  A reduction whose body combines what it carries with a term that
does not depend on it becomes one of ATen's reductions; a sum of products of operands that share few loops (a matrix
product) becomes a contraction.  Any other body runs once per index of the reduced loops.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir

from kiln.dialects import affine
from kiln.dialects.interpret.reads import Box, check_bounds, grid, read, window
from kiln.dialects.walk import defining_op
from kiln.errors import UnsupportedError

if TYPE_CHECKING:
    from kiln.dialects.interpret.interpreter import Interpreter

__all__ = ["run_generic"]

PART = 1 << 24
"""Points of the iteration space that are computed at once."""

_COMBINERS = {
    *("arith.addf", "arith.addi", "arith.mulf", "arith.muli", "arith.maximumf", "arith.minimumf", "arith.maxnumf"),
    *("arith.minnumf", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui", "arith.andi", "arith.ori"),
    "arith.xori",
}


@dataclass(frozen=True)
class Term:
    """One result of a reduction's body as `combiner(carried, value)`, where `value` holds for `condition`."""

    combiner: str
    value: ir.Value
    condition: ir.Value | None = None
    negated: bool = False


class Generic:
    """One `linalg.generic` on its operands."""

    def __init__(self, interpreter: "Interpreter", op: Any) -> None:
        self.interpreter, self.numbers, self.op = interpreter, interpreter.numbers, op
        self.maps: list[ir.AffineMap] = [ir.AffineMapAttr(m).value for m in op.attributes["indexing_maps"]]
        self.block: ir.Block = op.regions[0].blocks[0]
        self.operands = [interpreter.value(v) for v in op.operands]
        self.n_in = len(op.operands) - len(op.results)
        kinds = [str(k) for k in op.attributes["iterator_types"]]
        self.reduced = [i for i, k in enumerate(kinds) if "reduction" in k]
        self.extents = self._extents(len(kinds))
        self.yielded = list(list(self.block.operations)[-1].operands)
        self.carried = list(self.block.arguments)[self.n_in :]

    def _extents(self, rank: int) -> tuple[int, ...]:
        sizes: dict[int, int] = {}
        for operand, m in zip(self.operands, self.maps, strict=True):
            for e, n in zip(m.results, self.interpreter.shape(operand), strict=True):
                if isinstance(e.maybe_downcast(), ir.AffineDimExpr):
                    sizes.setdefault(ir.AffineDimExpr(e).position, n)
        if len(sizes) < rank:
            raise UnsupportedError("linalg.generic", str(self.op.location), "a loop that no operand has as a dim")
        return tuple(sizes[d] for d in range(rank))

    # ------------------------------------------------------------------------------------------------------- running

    def run(self) -> list[Any]:
        self.outs = outs = [self._out(k) for k in range(len(self.op.results))]
        terms = self._terms() if self.reduced else None
        for box in self._boxes(Box.whole(self.extents), terms):
            if not self.reduced:
                results = self.evaluate(self.yielded, box, {})
            elif terms is not None:
                results = self._reduce(terms, box)
            else:
                results = self._in_order(box)
            for k, value in enumerate(results):
                outs[k] = self.numbers.store(outs[k], value, lambda x, k=k, box=box: self._window(x, k, box))
        return outs

    def _out(self, k: int) -> Any:
        initial = self.operands[self.n_in + k]
        used = bool(self.reduced) or bool(list(self.carried[k].uses))
        make = torch.clone if used else torch.empty_like
        return self.numbers.move(lambda x: make(x, memory_format=torch.contiguous_format), initial)

    def _boxes(self, box: Box, terms: list[Term] | None) -> Iterator[Box]:
        """Parts of the iteration space, split along loops that are not reduced first.

        Those of a reduction see what the ones before have left in the results.
        """
        if 0 in box.extents or self._cost(box, terms) <= PART:
            if 0 not in box.extents:
                yield box
            return
        parallel = [d for d in range(len(box.extents)) if d not in self.reduced and box.extents[d] > 1]
        loops = parallel or [d for d in self.reduced if box.extents[d] > 1]
        if not loops or (terms is None and not parallel):
            yield box
            return
        loop = max(loops, key=lambda d: box.extents[d])
        half = (box.extents[loop] + 1) // 2
        yield from self._boxes(box.part(loop, box.starts[loop], half), terms)
        yield from self._boxes(box.part(loop, box.starts[loop] + half, box.extents[loop] - half), terms)

    def _cost(self, box: Box, terms: list[Term] | None) -> int:
        """Elements of what is made at once."""
        if terms is None:
            return prod(n for d, n in enumerate(box.extents) if d not in self.reduced)
        factors = self._factors(terms)
        if factors is None:
            return prod(box.extents)
        loops = [self._loops_of(f) for f in factors] + [{*range(len(box.extents))} - {*self.reduced}]
        return max(prod(box.extents[d] for d in used) for used in loops)

    def _window(self, value: torch.Tensor, k: int, box: Box) -> torch.Tensor:
        found = window(value, list(self.maps[self.n_in + k].results), box, ())
        if found is None:
            raise UnsupportedError("linalg.generic", str(self.op.location), f"results at {self.maps[self.n_in + k]}")
        return found

    def _initial(self, k: int, box: Box) -> Any:
        return self.numbers.move(lambda x: self._window(x, k, box).clone(), self.outs[k])

    # ------------------------------------------------------------------------------------------------------ the body

    def evaluate(self, wanted: Sequence[ir.Value], box: Box, known: dict[ir.Value, Any]) -> list[Any]:
        """Values of the body over a box, of size 1 along loops that they do not depend on."""
        env = dict(known)
        needed = self._needed(wanted, known)
        for k, argument in enumerate(self.block.arguments):
            if argument in needed and argument not in env:
                env[argument] = self._argument(k, box)
        for op in self.block.operations:
            if op.operation.name == "linalg.yield" or not any(r in needed and r not in known for r in op.results):
                continue
            env.update(zip(op.results, self._op(op, box, env), strict=True))
        return [self._lookup(v, env) for v in wanted]

    def _needed(self, wanted: Sequence[ir.Value], known: dict[ir.Value, Any]) -> set[ir.Value]:
        found: set[ir.Value] = set()
        stack = list(wanted)
        while stack:
            value = stack.pop()
            if value in found or value in known:
                continue
            found.add(value)
            op = defining_op(value)
            if op is not None and op.block == self.block:
                stack += op.operands
        return found

    def _argument(self, k: int, box: Box) -> Any:
        operand, rank = self.operands[k], len(box.extents)
        if not isinstance(self.op.operands[k].type, ir.RankedTensorType):
            return self.numbers.move(lambda x: x.view((1,) * rank), self.interpreter.as_value(operand))
        return self.numbers.move(lambda x: read(x, list(self.maps[k].results), box), operand)

    def _lookup(self, value: ir.Value, env: dict[ir.Value, Any]) -> Any:
        return env[value] if value in env else self.interpreter.scalar(value)

    def _op(self, op: Any, box: Box, env: dict[ir.Value, Any]) -> list[Any]:
        name = op.operation.name
        if name == "arith.constant":
            return [self.interpreter.constant(op)]
        if name == "linalg.index":
            at = ir.AffineExpr.get_dim(ir.IntegerAttr(op.attributes["dim"]).value, op.context)
            return [self.numbers.exact(grid(at, box, (), self.interpreter.device))]
        operands = [self._lookup(v, env) for v in list(op.operands)[name == "tensor.extract" :]]
        if name == "tensor.extract":
            return [self._extract(self.interpreter.value(op.operands[0]), operands, len(box.extents))]
        return self.numbers.scalar(op, operands)

    def _extract(self, table: Any, indices: list[Any], rank: int) -> Any:
        if not indices:
            return self.numbers.move(lambda x: x.view((1,) * rank), table)
        on_device = [self.numbers.lower(i).to(self.interpreter.device) for i in indices]
        if all(i.numel() for i in on_device):
            check_bounds(on_device, self.interpreter.shape(table))
        return self.numbers.read_at(self.numbers.move(lambda x: x[tuple(on_device)], table), indices)

    # ---------------------------------------------------------------------------------------------------- reductions

    def _terms(self) -> list[Term] | None:
        """The results as terms; None where one is not."""
        found = [self._term(v, a) for v, a in zip(self.yielded, self.carried, strict=True)]
        return None if None in found else [t for t in found if t is not None]

    def _term(self, value: ir.Value, carried: ir.Value) -> Term | None:
        op = defining_op(value)
        if op is None or op.block != self.block:
            return None
        if op.name == "arith.select":
            condition, a, b = op.operands
            inner = self._term(b if a == carried else a, carried)
            if carried not in (a, b) or inner is None or inner.condition is not None or self._depends(condition):
                return None
            return Term(inner.combiner, inner.value, condition, a == carried)
        operands = list(op.operands)
        if op.name not in _COMBINERS or carried not in operands:
            return None
        other = operands[1] if operands[0] == carried else operands[0]
        return None if self._depends(other) else Term(op.name, other)

    def _depends(self, value: ir.Value) -> bool:
        """Whether a value of the body depends on what is carried."""
        needed = self._needed([value], {})
        return any(c in needed for c in self.carried)

    def _factors(self, terms: list[Term]) -> list[ir.Value] | None:
        """The two factors of a sum of products that reads its operands in different loops."""
        op = defining_op(terms[0].value)
        if len(terms) > 1 or terms[0].condition is not None or terms[0].combiner != "arith.addf":
            return None
        if op is None or op.name != "arith.mulf" or op.block != self.block:
            return None
        loops = [self._loops_of(f) for f in op.operands]
        shared = loops[0] == loops[1] or not all({*self.reduced} <= used for used in loops)
        return None if shared else list(op.operands)

    def _loops_of(self, value: ir.Value) -> set[int]:
        """The loops that a value of the body depends on."""
        needed = self._needed([value], {})
        arguments = [a for a in self.block.arguments if a in needed]
        used = {d for a in arguments for e in self.maps[a.arg_number].results for d in affine.dims_in(e)}
        for op in self.block.operations:
            if op.operation.name == "linalg.index" and op.results[0] in needed:
                used.add(ir.IntegerAttr(op.attributes["dim"]).value)
        return used

    def _reduce(self, terms: list[Term], box: Box) -> list[Any]:
        factors = self._factors(terms)
        if factors is not None:
            return [self._combined(terms[0], 0, self._contract(factors, box), box)]
        wanted = [v for t in terms for v in (t.value, t.condition) if v is not None]
        found = dict(zip(wanted, self.evaluate(wanted, box, {}), strict=True))
        results: list[Any] = []
        for k, term in enumerate(terms):
            element = term.value.type
            value = found[term.value]
            if term.condition is not None:
                condition = found[term.condition]
                identity = self.numbers.move(lambda x: x.to(self.interpreter.device), self._identity(term, element))
                chosen = (identity, value) if term.negated else (value, identity)
                value = self.numbers.where(condition, *chosen)
            whole = self.numbers.move(lambda x: x.expand(box.extents), value)
            reduced = self.numbers.reduce(term.combiner, whole, self.reduced, element)
            results.append(self._combined(term, k, reduced, box))
        return results

    def _identity(self, term: Term, element: ir.Type) -> Any:
        return self.numbers.constant(identity(term.combiner, element), element)

    def _combined(self, term: Term, k: int, reduced: Any, box: Box) -> Any:
        return self.numbers.apply(term.combiner, term.value.type, self._initial(k, box), reduced)

    def _contract(self, factors: list[ir.Value], box: Box) -> Any:
        """The sum over the reduced loops of the product of two values, by ATen's einsum."""
        rank = len(box.extents)
        values = self.evaluate(factors, box, {})
        kept = [d for d in range(rank) if d not in self.reduced]

        def sum_of_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            loops = [[d for d in range(rank) if x.shape[d] != 1] for x in (a, b)]
            a_, b_ = (x.reshape([x.shape[d] for d in used]) for x, used in zip((a, b), loops, strict=True))
            out = [d for d in kept if d in loops[0] or d in loops[1]]
            flat = torch.einsum(a_, loops[0], b_, loops[1], out)
            return flat.reshape([box.extents[d] if d in out else 1 for d in range(rank)])

        terms = prod(box.extents[d] for d in self.reduced)
        return self.numbers.bilinear(sum_of_products, values[0], values[1], terms, self.carried[0].type)

    def _in_order(self, box: Box) -> list[Any]:
        """The body once per index of the reduced loops, as `linalg.generic` is defined."""
        carried = [self._initial(k, box) for k in range(len(self.carried))]
        ranges = [range(box.starts[d], box.starts[d] + box.extents[d]) for d in self.reduced]
        for point in product(*ranges):
            one = box
            for d, at in zip(self.reduced, point, strict=True):
                one = one.part(d, at, 1)
            carried = self.evaluate(self.yielded, one, dict(zip(self.carried, carried, strict=True)))
        return carried


def identity(combiner: str, element: ir.Type) -> float | int:
    """What leaves the other operand of a combiner as it is."""
    name = combiner.removeprefix("arith.")
    if name[-1] == "f":
        return {"addf": -0.0, "mulf": 1.0}.get(name, float("-inf") if name.startswith("max") else float("inf"))
    bits = ir.IntegerType(element).width
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    if bits == 1:
        low, high = 1, 0  # true is -1
    known = {"muli": 1, "andi": -1, "maxsi": low, "minsi": high, "minui": -1}
    return known.get(name, 0)


def run_generic(interpreter: "Interpreter", op: Any) -> list[Any]:
    """The results of a `linalg.generic`."""
    return Generic(interpreter, op).run()
