# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Pattern rewrites on the torch dialect."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from kiln.dialects.memo import type_text
from kiln.passes.core import Note, Pass, register_pass
from kiln.passes.rewrites import may_rewrite

if TYPE_CHECKING:
    from kiln.passes.patterns.graph import PatternGraph
    from kiln.passes.patterns.registry import RewritePattern
    from kiln.passes.patterns.replace import Traces

__all__ = ["RewritePatterns"]

_MOST_IDLE = 8
"""How often in a row a pattern may match all over a graph that becomes no smaller."""


@register_pass
@dataclass
class RewritePatterns(Pass):
    """Replace subgraphs written out in elementary ops by the op they mean: GELU, SiLU, softmax, norms, attention.

    Patterns are PyTorch functions; users add their own with ``kiln.patterns.register``. Statistics: ``matched``,
    ``failed`` (near misses, each with a note that says what differs) and ``matched:PATTERN``.

    Before::

        func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
          %0 = torch.aten.sigmoid %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          %1 = torch.aten.mul.Tensor %x, %0
            : !torch.vtensor<[4],f32>, !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          return %1 : !torch.vtensor<[4],f32>
        }

    After::

        #map = affine_map<() -> (1)>
        func.func @main(%arg0: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> {
          %0 = torch.aten.silu %arg0 {kiln.strides = [#map]} : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
          return %0 : !torch.vtensor<[4],f32>
        }
    """

    name = "rewrite-patterns"
    only: tuple[str, ...] = ()
    """Names of the patterns to look for; empty: all that are in force."""
    disable: tuple[str, ...] = ()
    """Names of patterns to leave out."""
    max_rounds: int = 4
    """How often all patterns are tried: what one makes (a softmax) may be part of another (attention)."""

    def run(self, module: ir.Module) -> None:
        """Rewrite in every function that holds torch types."""
        from kiln.passes.patterns.registry import active_patterns

        patterns = [p for p in active_patterns() if p.name in (self.only or (p.name,)) and p.name not in self.disable]
        self._endless: set[str] = set()
        for function in [op.operation for op in module.body.operations if op.operation.name == "func.func"]:
            if "!torch." in str(function.attributes["function_type"]):
                misses: dict[str, tuple[float, Note]] = {}
                for _ in range(self.max_rounds):
                    before = known = self.statistics["matched"]
                    held = _held_by(function.regions[0].blocks[0])
                    for pattern in patterns:
                        if self.statistics["matched"] != known:  # what is gone needs no further patterns
                            known = self.statistics["matched"]
                            held = _held_by(function.regions[0].blocks[0])
                        if pattern.needs <= held and pattern.name not in self._endless:
                            self._rewrite(function, pattern, misses)
                    if self.statistics["matched"] == before:
                        break
                for _, note in misses.values():
                    self.count("failed")
                    self.notes.append(note)

    def _rewrite(
        self, function: ir.Operation, pattern: "RewritePattern", misses: dict[str, tuple[float, Note]]
    ) -> None:
        """Every match of one pattern in one function."""
        from kiln.passes.patterns.graph import graphs_of
        from kiln.passes.patterns.replace import Traces
        from kiln.passes.simplify_algebra import erase_dead

        block = function.regions[0].blocks[0]
        symbols = function.attributes["kiln.symbols"] if "kiln.symbols" in function.attributes else ()
        names = [ir.StringAttr(name).value for name in symbols]
        for graph in graphs_of(pattern):
            traces: Traces = {}
            idle = 0
            while idle < _MOST_IDLE:
                before = len(block.operations)
                if not self._sweep(block, graph, names, misses, traces):
                    break
                erase_dead(block)
                idle = idle + 1 if len(block.operations) >= before else 0
            else:
                reason = f"{pattern.name}: {_MOST_IDLE} times in a row it matched and the graph became no smaller; "
                self.note(function, reason + "the replacement seems to hold its own pattern")
                self._endless.add(pattern.name)

    def _sweep(
        self,
        block: ir.Block,
        graph: "PatternGraph",
        names: list[str],
        misses: dict[str, tuple[float, Note]],
        traces: "Traces",
    ) -> int:
        """Rewrite the matches among the ops that there are now, and erase what they matched.

        Returns how many. The nearest miss of all patterns at each op goes to ``misses``.
        """
        from kiln.passes.patterns.matcher import Matcher
        from kiln.passes.patterns.replace import Refused, replace
        from kiln.passes.simplify_algebra import erase_dead_from, op_address
        from kiln.passes.torch_to_kiln.torch_values import op_name

        root_name = graph.outputs[0].op.name  # type: ignore[union-attr] - a match has found every op of the pattern
        matcher = Matcher(graph, names)
        matches = 0
        erased: set[int] = set()
        roots = [op.operation for op in block.operations if op_name(op.operation) == root_name]
        for address, op in [(op_address(op), op) for op in roots]:
            if address in erased:
                continue
            found = matcher.at(op)
            reached, reason = matcher.reached, matcher.reason
            key = f"{op.name} {op.location}"
            if found is not None and may_rewrite(op, graph.pattern.name):
                try:
                    with op.location:
                        replace(graph, found, names, traces)
                except Refused as refused:
                    # Noted whatever the number of ops: all of them matched.
                    text = f"{graph.pattern.name}: {refused} (after {len(graph.ops)} of {len(graph.ops)} ops)"
                    misses[key] = (1.0, Note(self.name, op_name(op), str(op.location), text))
                else:
                    misses.pop(key, None)
                    self.count("matched")
                    self.count(f"matched:{graph.pattern.name}")
                    matches += 1
                    outputs = {op_address(o): o for o in (found.ops[out.op] for out in graph.outputs)}  # type: ignore[index] - a match has found every op of the pattern
                    for place, output in outputs.items():
                        if place not in erased:
                            erased |= erase_dead_from(output)
                    continue
            share = reached / len(graph.ops)
            if reached >= 2 and share >= 0.5 and share > misses.get(key, (0.0,))[0]:
                text = f"{graph.pattern.name}: {reason} (after {reached} of {len(graph.ops)} ops)"
                misses[key] = (share, Note(self.name, op_name(op), str(op.location), text))
        return matches


def _held_by(block: ir.Block) -> set[str]:
    """``tanh`` for ``torch.aten.tanh``, for each op of the block; ``tanh>add`` where an addition reads its result;
    the element types of the ops' results.
    """
    from kiln.passes.torch_to_kiln.function_state import parse_tensor_type
    from kiln.passes.torch_to_kiln.torch_values import op_name

    held: set[str] = set()
    types: set[str] = set()
    for op in block.operations:
        name = _short_name(op_name(op.operation))
        if name:
            held.add(name)
        for result in op.operation.results:
            types.add(type_text(result.type))
            if name:
                readers = (_short_name(op_name(use.owner.operation)) for use in result.uses)
                held.update(f"{name}>{reader}" for reader in readers if reader)
    held.update(parsed[1] for parsed in map(parse_tensor_type, types) if parsed is not None)
    return held


@functools.cache
def _short_name(name: str) -> str:
    """``tanh`` for ``torch.aten.tanh``; nothing for ``torch.constant``."""
    parts = name.split(".")
    return parts[2] if len(parts) > 2 else ""
