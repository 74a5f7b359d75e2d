# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Scans that are written out in log steps, as one op each."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import torch
from torch_mlir import ir

from kiln.dialects import kiln
from kiln.dialects.interpret.interpreter import Interpreter
from kiln.dialects.interpret.named_ops import combined
from kiln.dialects.interpret.numbers import Numbers
from kiln.dialects.interpret.types import Precision, dtype_of, is_float
from kiln.dialects.kiln.recurrence import RecurrenceOp, carried_type
from kiln.dialects.shapes import SymbolicShapes
from kiln.dialects.walk import defining_op
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.passes.core import Pass, register_pass
from kiln.passes.dead import erase_dead
from kiln.passes.rewrites import may_rewrite
from kiln.passes.scans.joined import joined_of
from kiln.passes.scans.match import Runs, leaves_of
from kiln.passes.scans.terms import NoTerm, Terms

__all__ = ["RecognizeScans"]

_TAKEN = paths.group("any recognize-scans", "one result", "several results", "a running sum or product")

SHORTEST = 4
"""Elements along the scanned dim: of fewer, the steps do not show how all operands are combined."""


@dataclass
class _Found:
    """A value that may be a scan: along which dim, of how many elements."""

    root: ir.Value
    dim: int
    size: int


@register_pass
@dataclass
class RecognizeScans(Pass):
    """Make `kiln.recurrence` of scans that are written out in log steps, as `torch.associative_scan` is on CPUs.

    Such a scan combines pairs of neighbours, scans these, combines the results with the other elements, and
    interleaves. Each element of the interleaved tensor is written as a term over the operands' elements
    (`scans/terms.py`). The tensor is a scan if the term of each position is a bracketing of the elements up to there
    (`scans/match.py`), and if the function is associative on random numbers. It stays as it is if steps on the way to
    it have other readers: their roundings are not a recurrence's, and gradients may compare the two.

    Before::

        #id = affine_map<(d0) -> (d0)>
        func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
          %e1 = "kiln.empty"() {shape = affine_map<() -> (1)>} : () -> tensor<1xf32>
          %e2 = "kiln.empty"() {shape = affine_map<() -> (2)>} : () -> tensor<2xf32>
          %first = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2)>, shape = affine_map<() -> (2)>}
            : (tensor<4xf32>) -> tensor<2xf32>
          %second = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 * 2 + 1)>, shape = affine_map<() -> (2)>}
            : (tensor<4xf32>) -> tensor<2xf32>
          %pairs = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
              ins(%first, %second : tensor<2xf32>, tensor<2xf32>) outs(%e2 : tensor<2xf32>) {
          ^bb0(%i: f32, %j: f32, %o: f32):
            %m = arith.maximumf %i, %j : f32
            linalg.yield %m : f32
          } -> tensor<2xf32>
          %p0 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
            : (tensor<2xf32>) -> tensor<1xf32>
          %p1 = "kiln.view"(%pairs) {map = affine_map<(d0) -> (d0 + 1)>, shape = affine_map<() -> (1)>}
            : (tensor<2xf32>) -> tensor<1xf32>
          %all = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
              ins(%p0, %p1 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
          ^bb0(%i: f32, %j: f32, %o: f32):
            %m = arith.maximumf %i, %j : f32
            linalg.yield %m : f32
          } -> tensor<1xf32>
          %x0 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0)>, shape = affine_map<() -> (1)>}
            : (tensor<4xf32>) -> tensor<1xf32>
          %x2 = "kiln.view"(%x) {map = affine_map<(d0) -> (d0 + 2)>, shape = affine_map<() -> (1)>}
            : (tensor<4xf32>) -> tensor<1xf32>
          %three = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]}
              ins(%p0, %x2 : tensor<1xf32>, tensor<1xf32>) outs(%e1 : tensor<1xf32>) {
          ^bb0(%i: f32, %j: f32, %o: f32):
            %m = arith.maximumf %i, %j : f32
            linalg.yield %m : f32
          } -> tensor<1xf32>
          %even = "kiln.cat"(%x0, %three) {dim = 0 : i64, shape = affine_map<() -> (2)>}
            : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
          %odd = "kiln.cat"(%p0, %all) {dim = 0 : i64, shape = affine_map<() -> (2)>}
            : (tensor<1xf32>, tensor<1xf32>) -> tensor<2xf32>
          %even1 = "kiln.view"(%even) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
            : (tensor<2xf32>) -> tensor<2x1xf32>
          %odd1 = "kiln.view"(%odd) {map = affine_map<(d0, d1) -> (d0)>, shape = affine_map<() -> (2, 1)>}
            : (tensor<2xf32>) -> tensor<2x1xf32>
          %both = "kiln.cat"(%even1, %odd1) {dim = 1 : i64, shape = affine_map<() -> (2, 2)>}
            : (tensor<2x1xf32>, tensor<2x1xf32>) -> tensor<2x2xf32>
          %y = "kiln.view"(%both) {map = affine_map<(d0) -> (d0 floordiv 2, d0 mod 2)>, shape = affine_map<() -> (4)>}
            : (tensor<2x2xf32>) -> tensor<4xf32>
          return %y : tensor<4xf32>
        }

    After::

        func.func @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
          %0 = "kiln.recurrence"(%arg0) ({
          ^bb0(%arg1: f32, %arg2: f32):
            %1 = arith.maximumf %arg1, %arg2 : f32
            "kiln.yield"(%1) : (f32) -> ()
          }) {dim = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }
    """

    name = "recognize-scans"

    def run(self, module: ir.Module) -> None:
        """Replace the scans of every function."""
        for function in module.body:
            if function.operation.name == "func.func" and len(function.operation.regions[0].blocks):
                block = function.operation.regions[0].blocks[0]
                failed: set[ir.Value] = set()
                while self._replace_one(block, SymbolicShapes(function), failed):
                    erase_dead(block, ("linalg.generic", "kiln.empty"))

    def _replace_one(self, block: ir.Block, shapes: SymbolicShapes, failed: set[ir.Value]) -> bool:
        """Replace the first scan that is found, with those of the same operands; whether there was one."""
        found = [c for c in _interleaved(block) if c.root not in failed]
        for candidate in reversed(found):
            leaves = leaves_of(candidate.root, candidate.dim, shapes)
            alike = [c for c in found if (c.dim, c.size) == (candidate.dim, candidate.size)]
            alike = [c for c in alike if shapes.dims(c.root) == shapes.dims(candidate.root)]
            scans = _scans(leaves, alike, candidate) if leaves else None
            if (
                scans is not None
                and not _is_kept(leaves, scans[2], candidate.dim, shapes)
                and self._replace(leaves, *scans, candidate.dim, shapes)
            ):
                return True
            failed.add(candidate.root)
        return False

    def _replace(
        self,
        leaves: list[ir.Value],
        runs: Runs,
        used: list[int],
        roots: dict[ir.Value, int],
        dim: int,
        shapes: SymbolicShapes,
    ) -> bool:
        operands = [leaves[k] for k in used]
        maker = defining_op(next(iter(roots)))
        assert maker is not None
        with _behind(operands, maker.block), maker.location:
            op = kiln.recurrence(operands, dim)
            arguments = list(op.combine.arguments)
            with ir.InsertionPoint(op.combine):
                kiln.yield_(runs.build(used, lambda leaf, behind: arguments[used.index(leaf) + behind * len(used)]))
        if not _is_associative(op) or not may_rewrite(op, "scan"):
            op.operation.erase()
            return False
        kind = _simple_kind(op)
        results = list(op.results)
        if kind is not None:
            with ir.InsertionPoint(op), op.location:
                results = [kiln.scan(operands[0], dim, kind).result]
            op.operation.erase()
        for root, leaf in roots.items():
            joined = joined_of(root, dim, shapes)
            root.replace_all_uses_with(results[used.index(leaf)])
            if joined is not None:
                with ir.InsertionPoint(joined.op), joined.op.location:
                    joined.op.results[0].replace_all_uses_with(joined.of(results[used.index(leaf)], dim, shapes))
        self.count("recognized")
        if kind is not None:
            _TAKEN("a running sum or product")
        else:
            _TAKEN("one result" if len(roots) == 1 else "several results")
        return True


def _interleaved(block: ir.Block) -> Iterator[_Found]:
    """What may be a scan: two tensors interleaved along a dim, or all of them but the last position."""
    two = ir.AffineConstantExpr.get(2)
    for op in block.operations:
        if op.operation.name != "kiln.view":
            continue
        joined = defining_op(op.operands[0])
        if joined is None or kiln.name_of(joined) != "kiln.cat":
            continue
        tensors = [v for v in joined.operands if isinstance(v.type, ir.RankedTensorType)]
        map_ = ir.AffineMapAttr(op.operation.attributes["map"]).value
        for dim in range(map_.n_dims):
            d = ir.AffineDimExpr.get(dim)
            digits = [ir.AffineFloorDivExpr.get(d, two), ir.AffineModExpr.get(d, two)]
            if len(tensors) != 2 or not all(x in list(map_.results) for x in digits):
                continue
            result = op.operation.results[0]
            size = ir.RankedTensorType(result.type).shape[dim]
            if size < SHORTEST:
                continue
            yield _Found(result, dim, size)
            for use in result.uses:
                part = use.owner.operation
                sizes: list[int] = part.results[0].type.shape if part.name == "kiln.view" else []
                if len(sizes) == result.type.rank and sizes[dim] == size - 1 >= SHORTEST:
                    yield _Found(part.results[0], dim, size - 1)


def _is_kept(leaves: Collection[ir.Value], roots: Collection[ir.Value], dim: int, shapes: SymbolicShapes) -> bool:
    """Whether something else reads what is computed on the way to `roots`: a step is saved for gradients, say."""
    steps: set[ir.Operation] = set()
    work = [op for root in roots if (op := defining_op(root)) is not None]
    while work:
        op = work.pop()
        if op in steps:
            continue
        steps.add(op)
        work += [maker for v in op.operands if v not in leaves and (maker := defining_op(v)) is not None]
    of_leaves = {op for op in steps if op.name == "kiln.view" and op.operands[0] in leaves}
    same = {*roots, *(joined.op.results[0] for root in roots if (joined := joined_of(root, dim, shapes)) is not None)}
    values = [v for op in steps - of_leaves if op.name != "kiln.empty" for v in op.results if v not in same]
    return any(use.owner.operation not in steps and _is_read(use.owner.operation) for v in values for use in v.uses)


def _is_read(op: ir.Operation) -> bool:
    """Whether an op leads to a result: views of what was replaced may be left."""
    return op.name != "kiln.view" or any(_is_read(use.owner.operation) for use in op.results[0].uses)


def _scans(
    leaves: list[ir.Value], candidates: list[_Found], wanted: _Found
) -> tuple[Runs, list[int], dict[ir.Value, int]] | None:
    """The candidates that are scans, with the leaves that the widest of them needs; None if `wanted` is no scan."""
    if any(not _can_carry(leaf.type.element_type) for leaf in leaves):
        return None
    runs = Runs(Terms(leaves, wanted.dim))
    roots: dict[ir.Value, int] = {}
    for c in [wanted, *(c for c in candidates if c.root != wanted.root)]:
        try:
            leaf = runs.leaf_of(c.root, c.size)
        except NoTerm:
            leaf = None
        if leaf is not None and runs.used(leaf) is not None:
            roots[c.root] = leaf
        elif c is wanted:
            return None
    used = max((runs.used(leaf) or [] for leaf in roots.values()), key=len)
    return runs, used, {root: leaf for root, leaf in roots.items() if leaf in used}


def _can_carry(element: ir.Type) -> bool:
    return is_float(element) or isinstance(element, ir.IntegerType) and element.width >= 8


def _behind(values: list[ir.Value], block: ir.Block) -> ir.InsertionPoint:
    """Directly behind the last of the ops that define values."""
    owners = {defining_op(v) for v in values}
    makers = [op.operation for op in block.operations if op.operation in owners]
    return ir.InsertionPoint.after(makers[-1]) if makers else ir.InsertionPoint.at_block_begin(block)


_SIMPLE = {"arith.addf": "sum", "arith.addi": "sum", "arith.mulf": "prod", "arith.muli": "prod"}


def _simple_kind(op: RecurrenceOp) -> str | None:
    """The kind of `kiln.scan` that does the same: a running sum or product, which has more digits there."""
    first, *rest = op.combine.operations
    is_one = len(op.operands) == 1 and len(rest) == 1 and rest[0].operation.operands[0] == first.operation.results[0]
    both = is_one and list(first.operation.operands) in (list(op.combine.arguments), list(op.combine.arguments)[::-1])
    return _SIMPLE.get(first.operation.name) if both else None


def _is_associative(op: RecurrenceOp) -> bool:
    """Whether random numbers are combined to the same in both orders of brackets, in float64."""
    count, block = len(op.operands), op.combine
    interpreter = Interpreter(Numbers(Precision.named("float64")))
    generator = torch.Generator().manual_seed(0)
    types = [carried_type(v.type.element_type) for v in op.operands]

    def some() -> list[torch.Tensor]:
        return [
            torch.randn(64, generator=generator, dtype=torch.float64)
            if is_float(t)
            else torch.randint(-9, 10, (64,), generator=generator).to(dtype_of(t))
            for t in types
        ]

    x, y, z = some(), some(), some()
    try:
        left = combined(interpreter, block, [*combined(interpreter, block, [*x, *y]), *z])
        right = combined(interpreter, block, [*x, *combined(interpreter, block, [*y, *z])])
    except UnsupportedError:
        return False
    pairs = zip(left[:count], right[:count], strict=True)
    return all(torch.allclose(a.double(), b.double(), rtol=1e-6, atol=1e-9, equal_nan=True) for a, b in pairs)
