# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Passes with one bug each, for tests of the tools that find them. Each also does what is right elsewhere."""

import importlib
import os
from dataclasses import dataclass

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects.walk import ops_inside
from kiln.passes import Pass, register_pass
from kiln.passes.algebra.expressions import parse
from kiln.passes.algebra.rules import Rule, Safety
from kiln.passes.compose_views import ComposeViews
from kiln.passes.rewrites import may_rewrite
from kiln.passes.simplify_algebra import SimplifyAlgebra


def _generics(module: ir.Module) -> list[ir.Operation]:
    return [op for op in ops_inside(module.operation) if op.name == "linalg.generic"]


def _inner(module: ir.Module, name: str) -> list[ir.Operation]:
    return [op for op in ops_inside(module.operation) if op.name == name]


@register_pass
@dataclass
class SwapDivision(Pass):
    """Swaps the operands of each addition, which is right, and those of divisions, which is not."""

    name = "swap-division"

    def run(self, module: ir.Module) -> None:
        for op in [*_inner(module, "arith.addf"), *_inner(module, "arith.divf")]:
            if may_rewrite(op, op.name):
                op.operands[0], op.operands[1] = op.operands[1], op.operands[0]


@register_pass
@dataclass
class ShiftMap(Pass):
    """Reads one element too far, and wraps around, in each view of rank 1: an index map that is off by one."""

    name = "shift-map"

    def run(self, module: ir.Module) -> None:
        for op in _inner(module, "kiln.view"):
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            size = ir.RankedTensorType(op.operands[0].type)
            if size.rank == 1 and may_rewrite(op, "view"):
                moved = ir.AffineExpr.get_mod(map_.results[0] + 1, size.get_dim_size(0))
                op.attributes["map"] = ir.AffineMapAttr.get(ir.AffineMap.get(map_.n_dims, map_.n_symbols, [moved]))


@register_pass
@dataclass
class DropRounding(Pass):
    """Takes a conversion to 16 bits and back for nothing."""

    name = "drop-rounding"

    def run(self, module: ir.Module) -> None:
        for op in _inner(module, "arith.extf"):
            source = op.operands[0].owner
            if isinstance(source, ir.Block) or source.name != "arith.truncf" or not may_rewrite(op, "extf(truncf)"):
                continue
            op.results[0].replace_all_uses_with(source.operands[0])


@register_pass
@dataclass
class BreakTypes(Pass):
    """Leaves IR that does not verify."""

    name = "break-types"

    def run(self, module: ir.Module) -> None:
        for op in _inner(module, "arith.mulf"):
            if may_rewrite(op, "mulf"):
                op.operands[1] = _index(op)


def _index(op: ir.Operation) -> ir.Value:
    with ir.InsertionPoint(op), op.location:
        return ir.Operation.create(
            "arith.constant",
            results=[ir.IndexType.get()],
            attributes={"value": ir.IntegerAttr.get(ir.IndexType.get(), 0)},
        ).result


@register_pass
@dataclass
class Raise(Pass):
    """Raises in the third generic."""

    name = "raise-error"

    def run(self, module: ir.Module) -> None:
        for number, op in enumerate(_generics(module)):
            if may_rewrite(op) and number == 2:
                raise RuntimeError("no pass should do this")


@register_pass
@dataclass
class Abort(Pass):
    """Aborts the process at the first division."""

    name = "abort-process"

    def run(self, module: ir.Module) -> None:
        for op in _generics(module):
            if may_rewrite(op) and any(inner.name == "arith.divf" for inner in ops_inside(op)):
                os.abort()


@register_pass
@dataclass
class Hang(Pass):
    """Does not end where there is a division."""

    name = "hang"

    def run(self, module: ir.Module) -> None:
        for op in _inner(module, "arith.divf"):
            if may_rewrite(op):
                _forever()


def _forever() -> None:
    while True:
        pass


@register_pass
@dataclass
class UncountedSwap(Pass):
    """Replaces a subtraction by a sum, and knows nothing of counters."""

    name = "uncounted-swap"

    def run(self, module: ir.Module) -> None:
        for op in [*_inner(module, "arith.addf"), *_inner(module, "arith.subf")]:
            with ir.InsertionPoint(op), op.location:
                new = ir.Operation.create("arith.addf", operands=list(op.operands), results=[op.results[0].type])
            op.results[0].replace_all_uses_with(new.result)


@register_pass
@dataclass
class ComposeViewsTwice(ComposeViews):
    """A copy of a pass with a bug of its own: after composing, the first two dims of a square view are exchanged."""

    name = "compose-views-wrong"

    def run(self, module: ir.Module) -> None:
        super().run(module)
        for op in _inner(module, "kiln.view"):
            map_ = ir.AffineMapAttr(op.attributes["map"]).value
            if len(map_.results) == 2 and may_rewrite(op, "exchange"):
                results = [map_.results[1], map_.results[0]]
                shape = ir.RankedTensorType(op.operands[0].type).shape
                if shape[0] == shape[1]:
                    op.attributes["map"] = ir.AffineMapAttr.get(ir.AffineMap.get(map_.n_dims, map_.n_symbols, results))


@register_pass
@dataclass
class DropDivision(Pass):
    """A division is its dividend."""

    name = "drop-division"

    def run(self, module: ir.Module) -> None:
        for op in _inner(module, "arith.divf"):
            if may_rewrite(op):
                op.results[0].replace_all_uses_with(op.operands[0])
                op.erase()


@register_pass
@dataclass
class SimplifyWrong(SimplifyAlgebra):
    """The rules of algebra, and one that does not hold: ``-relu(x)`` is not ``relu(-x)``."""

    name = "simplify-wrong"

    def _sweep(self, block: ir.Block, table: dict, told: set[tuple[str, str]]) -> int:
        before, after = "neg(relu(x))", "relu(neg(x))"
        wrong = Rule("neg-of-relu", before, after, Safety.EXACT, "", "identities", parse(before), parse(after))
        return super()._sweep(block, {**table, "torch.aten.neg": [wrong]}, told)


@register_pass
@dataclass
class LoseValue(Pass):
    """Products are 0 where they are 10000, which random inputs do not reach."""

    name = "lose-value"

    def run(self, module: ir.Module) -> None:
        for op in _inner(module, "arith.mulf"):
            if not may_rewrite(op):
                continue
            result = op.results[0]
            with ir.InsertionPoint.after(op), op.location:
                lost, zero = (_number(result.type, value) for value in (10000.0, 0.0))
                is_lost = arith.cmpf(arith.CmpFPredicate.OEQ, result, lost)
                chosen = arith.select(is_lost, zero, result)
            result.replace_all_uses_except(chosen, [is_lost.owner.operation, chosen.owner.operation])


def _number(type_: ir.Type, value: float) -> ir.Value:
    return ir.Operation.create(
        "arith.constant", results=[type_], attributes={"value": ir.FloatAttr.get(type_, value)}
    ).result


def _wrong_kernels(module_name: str) -> None:
    """Kernels that subtract the wrong way around."""
    emitter = importlib.import_module(module_name)
    right = emitter.emit_kernel

    def emit_kernel(fusion: ir.OpView, name: str, *arguments: str) -> ir.Module:
        module = right(fusion, name, *arguments)
        for op in _inner(module, "arith.subf"):
            op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
        return module

    emitter.emit_kernel = emit_kernel


for _name in os.environ.get("PLANTED_KERNELS", "").split():
    _wrong_kernels(_name)
