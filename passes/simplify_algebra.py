# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Algebraic simplification on the torch dialect."""

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from kiln.errors import PassOptionError, did_you_mean
from kiln.passes.core import Pass, register_pass
from kiln.passes.rewrites import may_rewrite

__all__ = ["SimplifyAlgebra", "erase_dead", "erase_dead_from", "op_address"]


@register_pass
@dataclass
class SimplifyAlgebra(Pass):
    """Apply the rules of ``passes/algebra`` until none applies: identities, inverses, powers, views, casts.

    Each rule says how safe it is (`docs/algebra.md`). Shapes, element types, strides and what aliases what stay
    eager's: a rule that would change one is not applied, and a note says so. Statistics: ``matched``, ``failed`` and
    ``matched:RULE``.

    Before::

        func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
          %0 = torch.aten.relu %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          %1 = torch.aten.relu %0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          return %1 : !torch.vtensor<[4],f32>
        }

    After::

        func.func @main(%arg0: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
          %0 = torch.aten.relu %arg0 : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          return %0 : !torch.vtensor<[4],f32>
        }
    """

    name = "simplify-algebra"
    fast_math: bool = False
    """Apply rules that are wrong for NaN, Inf, the sign of zeros or the last bits of a result."""
    disable: tuple[str, ...] = ()
    """Names of rules to leave out."""
    max_rounds: int = 16
    """Sweeps over a function; one that changes nothing is the last."""

    def run(self, module: ir.Module) -> None:
        """Simplify every function that holds torch types."""
        from kiln.passes.algebra.rules import all_rules, by_op

        rules = all_rules()
        names = [entry.name for entry in rules]
        for name in self.disable:
            if name not in names:
                raise PassOptionError(self.name, f"there is no rule {name!r}{did_you_mean(name, names)}")
        table = by_op([entry for entry in rules if entry.name not in self.disable] if self.disable else rules)
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if "!torch." not in str(function.attributes["function_type"]):
                continue
            block = function.regions[0].blocks[0]
            told: set[tuple[str, str]] = set()
            for _ in range(self.max_rounds):
                changed = self._sweep(block, table, told)
                erase_dead(block)
                if not changed:
                    break

    def _sweep(self, block: ir.Block, table: dict[str, list[Any]], told: set[tuple[str, str]]) -> int:
        from kiln.passes.torch_to_kiln.torch_values import op_name

        changed = 0
        for op in [op.operation for op in block.operations]:
            rules = table.get(op_name(op))
            if rules and any(True for result in op.results for _ in result.uses):
                changed += self._simplify(op, rules, told)
        return changed

    def _simplify(self, op: ir.Operation, rules: list[Any], told: set[tuple[str, str]]) -> bool:
        """Apply the first rule that applies to ``op``."""
        from kiln.passes.algebra.expressions import Match, NoMatch, Operands, match_pattern

        operands = Operands(op)
        for entry in rules:
            if not operands.may_match(entry.pattern):
                continue
            for bound in match_pattern(entry.pattern, op.results[0]):
                match = Match(op, bound, self.fast_math)
                try:
                    if not entry.allowed(match, self.fast_math):
                        raise NoMatch(f"needs fast_math: {entry.why}")
                    with op.location, ir.InsertionPoint(op):
                        new = self._replacement(entry, match)
                except NoMatch as reason:
                    self._refused(op, entry.name, str(reason), told)
                    continue
                if not may_rewrite(op, entry.name):
                    return False
                op.results[0].replace_all_uses_with(new)
                self.count("matched")
                self.count(f"matched:{entry.name}")
                return True
        return False

    @staticmethod
    def _replacement(entry: Any, match: Any) -> ir.Value:
        """The new value, where it can stand for the old one in all respects; NoMatch where it can't."""
        from kiln.passes.algebra.aliasing import check_replacement

        new = entry.apply(match)
        check_replacement(match.root, new)
        return new

    def _refused(self, op: ir.Operation, rule: str, reason: str, told: set[tuple[str, str]]) -> None:
        """An empty reason says that the op only looked alike: nothing to tell."""
        if not reason:
            return
        key = (f"{op.location}", f"{rule}: {reason}")
        if key not in told:
            told.add(key)
            self.count("failed")
            self.note(op, key[1])


def erase_dead(block: ir.Block) -> int:
    """Erase the ops of ``block`` that nothing needs and that only compute; returns how many."""
    from kiln.passes.torch_to_kiln.liveness import is_pure, is_used

    erased = 0
    for op in reversed([op.operation for op in block.operations]):  # what reads an op stands behind it
        if not is_used(op) and is_pure(op):
            op.erase()
            erased += 1
    return erased


def op_address(op: ir.Operation) -> int:
    """A number that no other op with results has as long as this one is there: bindings make a handle at each look."""
    return hash(op.results[0]) if len(op.results) else 0


def erase_dead_from(op: ir.Operation) -> set[int]:
    """Erase an op that nothing needs, and what nothing needs then of all that it was computed from.

    Returns the ``op_address`` of each erased op: no handle of one may be used again.
    """
    from kiln.passes.torch_to_kiln.liveness import is_pure, is_used

    erased: set[int] = set()
    work = {op_address(op): op}
    while work:
        address, dead = work.popitem()
        if is_used(dead) or not is_pure(dead):
            continue
        owners = [value.owner.operation for value in dead.operands if not isinstance(value, ir.BlockArgument)]
        dead.erase()
        erased.add(address)
        work |= {op_address(owner): owner for owner in owners}
    return erased
