# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whether terms are a scan: each is a run of neighbouring elements, combined in some order of brackets.

The function that combines is what the second result is computed by. It has places for what comes before and behind,
and a term is a run where it is that function of two runs that meet.
"""

from collections.abc import Callable, Iterator

from torch_mlir import ir

from kiln.dialects.kiln import Role, opdef
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op
from kiln.passes.scans.terms import Terms, along

__all__ = ["Runs", "leaves_of"]

Run = tuple[int, int]
"""The first position, and that behind the last."""


def leaves_of(root: ir.Value, dim: int, shapes: SymbolicShapes) -> list[ir.Value]:
    """The tensors of the sizes of `root` of which every other element along `dim` is read on the way to it."""
    found: dict[ir.Value, None] = {}
    seen: set[ir.Value] = set()
    work = [root]
    sizes = shapes.dims(root)
    while work:
        value = work.pop()
        if value in seen or value in found:
            continue
        seen.add(value)
        op = defining_op(value)
        if op is None or op.name != "linalg.generic" and opdef(op).role is not Role.MOVEMENT:
            continue
        source = op.operands[0] if op.name == "kiln.view" and _reads_every_other(op, dim) else None
        if source is not None and shapes.dims(source) == sizes:
            found[source] = None
            continue
        work += [v for v in op.operands if isinstance(v.type, ir.RankedTensorType)]
    return list(found)


def _reads_every_other(op: ir.Operation, dim: int) -> bool:
    map_ = ir.AffineMapAttr(op.attributes["map"]).value
    if len(map_.results) <= dim:
        return False
    expr = map_.results[dim].maybe_downcast()
    if isinstance(expr, ir.AffineAddExpr):
        expr = expr.lhs.maybe_downcast()
    two = ir.AffineConstantExpr.get(2)
    return isinstance(expr, ir.AffineMulExpr) and isinstance(expr.lhs, ir.AffineDimExpr) and expr.rhs == two


class Runs:
    """Terms as runs of the elements of leaves, and the functions by which they are combined, found on the way."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._runs: dict[int, tuple[int, Run]] = {}
        self._combine: dict[int, tuple[int, int]] = {}  # by leaf: a term of two elements, and the first's position

    def leaf_of(self, root: ir.Value, size: int) -> int | None:
        """The leaf of which `root` is the scan along the terms' dim; None if it is none. Raises NoTerm."""
        sizes, dim = ir.RankedTensorType(root.type).shape, self.terms.dim
        leaf = -1
        for position in range(size):
            at = tuple(position if k == dim else 0 if n == 1 else along(k) for k, n in enumerate(sizes))
            term = self.terms.element(root, at)
            leaf = self.terms.nodes[term].leaf if position == 0 else leaf
            if leaf < 0 or self._run(term, leaf) != (0, position + 1):
                return None
        return leaf

    def _run(self, term: int, leaf: int) -> Run | None:
        node = self.terms.nodes[term]
        if node.leaf >= 0:
            return (node.position, node.position + 1) if node.leaf == leaf else None
        known = self._runs.get(term)
        if known is not None:
            return known[1] if known[0] == leaf else None
        if leaf in self._combine:
            run = self._combined(term, leaf)
        else:
            read = {self.terms.nodes[t].position for t in self._elements(term)}
            run = (min(read), max(read) + 1) if len(read) == 2 and max(read) - min(read) == 1 else None
            if run is not None:
                self._combine[leaf] = term, run[0]
        if run is not None:
            self._runs[term] = leaf, run
        return run

    def _combined(self, term: int, leaf: int) -> Run | None:
        pattern, first = self._combine[leaf]
        places: dict[int, int] = {}
        if not self._fits(pattern, term, places):
            return None
        ends: list[set[int]] = [set(), set(), set()]
        for place, found in places.items():
            node = self.terms.nodes[place]
            run = self._run(found, node.leaf)
            if run is None:
                return None
            behind = node.position - first
            ends[behind].add(run[0])
            ends[behind + 1].add(run[1])
        if any(len(end) != 1 for end in ends):
            return None
        return ends[0].pop(), ends[2].pop()

    def _fits(self, pattern: int, term: int, places: dict[int, int]) -> bool:
        """Whether a term is the function at some terms, which are put into `places`."""
        mine, other = self.terms.nodes[pattern], self.terms.nodes[term]
        if mine.leaf >= 0:
            return places.setdefault(pattern, term) == term
        if mine.signature != other.signature or len(mine.children) != len(other.children):
            return False
        return all(self._fits(a, b, places) for a, b in zip(mine.children, other.children, strict=True))

    def _elements(self, term: int) -> Iterator[int]:
        """The elements that a term is computed from, up to three positions of them."""
        seen: set[int] = set()
        positions: set[int] = set()
        work = [term]
        while work and len(positions) < 3:
            t = work.pop()
            if t in seen:
                continue
            seen.add(t)
            node = self.terms.nodes[t]
            if node.leaf >= 0:
                positions.add(node.position)
                yield t
            work += node.children

    # -- the function ------------------------------------------------------------------------------------------------

    def used(self, leaf: int) -> list[int] | None:
        """The leaves that the scan of one is computed from, in order; None where the function for one is not known."""
        found: set[int] = set()
        work = [leaf]
        while work:
            k = work.pop()
            if k in found:
                continue
            if k not in self._combine:
                return None
            found.add(k)
            work += [self.terms.nodes[t].leaf for t in self._elements(self._combine[k][0])]
        return sorted(found)

    def build(self, leaves: list[int], argument: Callable[[int, int], ir.Value]) -> list[ir.Value]:
        """The functions of `leaves` at the insertion point; ``argument(leaf, 0 or 1)``: what comes before or behind."""
        results: list[ir.Value] = []
        env: dict[object, ir.Value] = {}
        for leaf in leaves:
            term, first = self._combine[leaf]
            results.append(self._emit(term, first, env, argument))
        return results

    def _emit(
        self, term: int, first: int, env: dict[object, ir.Value], argument: Callable[[int, int], ir.Value]
    ) -> ir.Value:
        node = self.terms.nodes[term]
        if node.leaf >= 0:
            return argument(node.leaf, node.position - first)
        if (term, first) not in env:
            assert node.op is not None
            children = [self._emit(c, first, env, argument) for c in node.children]
            op = node.op
            attributes = {name: op.attributes[name] for name in op.attributes}
            made = ir.Operation.create(op.name, results=[node.type], operands=children, attributes=attributes)
            env[term, first] = made.results[0]
        return env[term, first]
