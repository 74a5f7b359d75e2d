# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Rewrites a function into kernels: each group into one `kiln.fusion`, in an order that dataflow allows."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from torch_mlir import ir

from kiln.dialects import affine, kiln
from kiln.dialects.walk import defining_op
from kiln.passes.fusion.graph import FusionGraph, captured
from kiln.passes.fusion.groups import Group, Grouping
from kiln.passes.fusion.order import Schedule
from kiln.passes.rewrites import may_rewrite


@dataclass
class _Needs:
    """What a kernel takes: tensors and symbols from outside, and ops that it computes, in an order of dataflow."""

    tensors: list[ir.Value]
    symbols: list[ir.Value]
    body: list[ir.Operation]
    seen: set[ir.Operation]


class Outliner:
    """Builds the fused function behind the old ops, then erases these."""

    def __init__(self, graph: FusionGraph, grouping: Grouping, origin: Mapping[ir.Value, ir.Value] | None = None):
        """origin: result of a copied op -> that of the op it is a copy of; a kernel computes such ops once."""
        self.origin = origin or {}
        self.graph, self.grouping = graph, grouping
        self.block = graph.block
        self.terminator = graph.operations[-1]
        self.new: dict[ir.Value, ir.Value] = {a: a for a in self.block.arguments}
        self.stored: dict[ir.Value, bool] = {}
        self.names: dict[str, int] = {}

    def run(self) -> int:
        """Outline every group; returns how many kernels there are."""
        order = Schedule.of(self.grouping).order(self.grouping)
        kept = {node for node in order if not isinstance(node, Group)}
        # Asked now: an op's hash covers its operands, so an op that is rewired below is no longer found in a set.
        doomed = [op for op in reversed(self.graph.operations[:-1]) if op not in kept]
        count = 0
        for node in order:
            if isinstance(node, Group) and not may_rewrite(node.ops[-1], f"{node.kind} of {len(node.ops)} ops"):
                for op in node.ops:  # each by itself, where something reads it
                    for result in op.results:
                        self.outside(result)
            elif isinstance(node, Group):
                self._outline(node)
                count += 1
            else:
                for i, v in enumerate(list(node.operands)):
                    node.operands[i] = self.outside(v)
                node.move_before(self.terminator)
                for r in node.results:
                    self.new[r] = r
        for i, v in enumerate(list(self.terminator.operands)):
            self.terminator.operands[i] = self.outside(v)
        for op in doomed:
            op.erase()
        return count

    def _all_operands(self, op: ir.Operation) -> list[ir.Value]:
        found = list(op.operands)
        for region in op.regions:
            for block in region.blocks:
                for inner in block.operations:
                    found += [v for v in inner.operation.operands if v in self._function_values()]
        return found

    def _function_values(self) -> set[ir.Value]:
        if not hasattr(self, "_values"):
            made = (r for op in self.graph.operations for r in op.results)
            self._values: set[ir.Value] = {*made, *self.block.arguments}
        return self._values

    # -- outside of kernels ----------------------------------------

    def outside(self, value: ir.Value) -> ir.Value:
        """`value` at function level: what was made already, or views of that; a free tensor gets its own kernel."""
        if value in self.new:
            return self.new[value]
        op = defining_op(value)
        assert op is not None, "arguments are known from the start"
        if op.name == "kiln.empty":
            self.new[value] = self._clone(op, [self.outside(v) for v in op.operands]).results[0]
            return self.new[value]
        if op.name == "linalg.generic" or kiln.opdef(op).is_guarded:
            space = list(self.graph.space(op))
            point = tuple(ir.AffineDimExpr.get(i) for i in range(len(space)))
            self._outline(Group([op], space, {op: [point]}), wanted=[value])
            return self.new[value]
        with ir.InsertionPoint(self.terminator):
            clone = self._clone(op, [self.outside(v) for v in op.operands])
        self.new.update(zip(op.results, clone.results, strict=True))
        return self.new[value]

    def _clone(self, op: ir.Operation, operands: list[ir.Value]) -> ir.Operation:
        with ir.InsertionPoint(self.terminator):
            clone = op.clone()
        for i, v in enumerate(operands):
            clone.operation.operands[i] = v
        return clone.operation

    # -- one kernel ----------------------------------------

    def _outline(self, group: Group, wanted: list[ir.Value] | None = None) -> None:
        members = set(group.ops)
        results = wanted if wanted is not None else self._results(group, members)
        needs = _Needs([], [], [], set())
        for r in results:
            self._need(needs, r, members, group)
        tensors, symbols, body = needs.tensors, needs.symbols, needs.body
        outer = [self.outside(v) for v in tensors]
        shapes = self._shapes(tensors, symbols)
        order = sorted(range(len(symbols)), key=lambda i: self._symbol_position(symbols[i]))
        symbols[:] = [symbols[i] for i in order]
        shapes = self._shapes(tensors, symbols)
        location = ir.Location.fused([op.location for op in group.ops]) if len(group.ops) > 1 else group.ops[0].location
        with ir.InsertionPoint(self.terminator), location:
            inner = [self.new.get(s, s) for s in symbols]
            types = [r.type for r in results]
            fusion = kiln.fusion(outer, types, group.kind, self._name(group), inner).operation
            block = fusion.regions[0].blocks[0]
            if shapes is not None:
                fusion.attributes["shapes"] = shapes
            if group.parts:
                part = {op: i for i, p in enumerate(group.parts) for op in p.ops}
                numbers = [part[_owner_of(r)] for r in results]
                fusion.attributes["parts"] = ir.DenseI64ArrayAttr.get(numbers)
        env: dict[ir.Value, ir.Value] = dict(zip([*tensors, *symbols], block.arguments, strict=True))
        given = dict(env)  # a free op may be computed here as well, and `env` has that result then
        with ir.InsertionPoint(block):
            known: dict[tuple[ir.Value, ...], ir.Value] = {}
            for op in body:
                result = op.results[0]
                key = (self.origin[result] if result in self.origin else result, *(env[v] for v in op.operands))
                if key in known:
                    env[op.results[0]] = known[key]
                    continue
                clone = op.clone().operation
                known[key] = clone.results[0]
                for i, v in enumerate(op.operands):
                    clone.operands[i] = env[v]
                for region in clone.regions:
                    for inner_block in region.blocks:
                        for inner in inner_block.operations:
                            for i, v in enumerate(list(inner.operation.operands)):
                                if inner.operation.name == "tensor.extract" and i == 0:
                                    inner.operation.operands[i] = given[v]
                                elif v in env:
                                    inner.operation.operands[i] = env[v]
                env.update(zip(op.results, clone.results, strict=True))
            with location:
                kiln.yield_([env[r] for r in results])
        self.new.update(zip(results, fusion.results, strict=True))

    def _need(
        self, needs: "_Needs", value: ir.Value, members: set[ir.Operation], group: Group, computed: bool = False
    ) -> None:
        """Add what computing `value` in the kernel takes."""
        owner = defining_op(value)
        if isinstance(value.type, ir.IndexType) and not (computed and _computes(owner)):
            if value not in needs.symbols:
                needs.symbols.append(value)
            return
        if owner is not None and owner not in needs.seen and self._inside(owner, members, group):
            needs.seen.add(owner)
            tables = captured(owner)
            for v in self._all_operands(owner):
                if v not in tables:
                    # The maps of views and pads are over symbols; bodies may compute with anything.
                    self._need(needs, v, members, group, owner.name.startswith(("arith.", "linalg.")))
                elif v not in needs.tensors:
                    # Gathered from at run-time indices: it has to be in memory.
                    needs.tensors.append(v)
            needs.body.append(owner)
        elif owner not in needs.seen and value not in needs.tensors:
            needs.tensors.append(value)

    def _inside(self, op: ir.Operation, members: set[ir.Operation], group: Group) -> bool:
        """Whether `op` is computed in the kernel: its own ops and free ones, but a matrix operand is read in place."""
        if op in members:
            return True
        if not self.graph.is_free(op):
            return False
        named = [n for p in group.all_parts for n in p.all_named]
        readers = [n for n in named if op.results[0] in list(n.operands)]
        scatters = [r for r in readers if kiln.name_of(r) == "kiln.scatter_nd"]
        if any(r.operands[0] == op.results[0] for r in scatters):
            return op.name == "kiln.empty"  # what is written to lies in memory
        if len(scatters) == len(readers):
            return True
        # A splat or an iota that a product reads is stored by a kernel of its own.
        if any(kiln.opdef(r).role is kiln.Role.CONTRACTION for r in readers):
            return False
        # A scan reads views of what its kernel computes there, others where they lie.
        return op.name != "kiln.view" or defining_op(self.graph.source(op.results[0])) in members

    def _results(self, group: Group, members: set[ir.Operation]) -> list[ir.Value]:
        """Values of the group that something outside of it needs."""
        found: list[ir.Value] = []
        for op in group.ops:
            for result in op.results:
                if self._needed(result, members):
                    found.append(result)
        return found

    def _needed(self, value: ir.Value, members: set[ir.Operation]) -> bool:
        for use in value.uses:
            user = self.graph.operations[self.graph.top(use.owner)]
            if user in members:
                if self._whole_use(user, value):
                    return True
                continue
            if user not in self.graph.position:
                continue
            if self.graph.is_free(user):
                if any(self._needed(r, members) for r in user.results):
                    return True
                continue
            return True
        return False

    def _whole_use(self, user: ir.Operation, value: ir.Value) -> bool:
        return any(r.consumer == user and r.whole for r in self.graph.readers.get(value, []))

    def _symbol_position(self, symbol: ir.Value) -> tuple[int, ...]:
        expr = self.graph.shapes.expr(symbol)
        return tuple(sorted(affine.symbols_in(expr)))

    def _shapes(self, tensors: list[ir.Value], symbols: list[ir.Value]) -> ir.ArrayAttr | None:
        """Sizes of the operands over the kernel's symbols; adds the symbols that only the sizes use."""
        if all(ir.RankedTensorType(v.type).has_static_shape for v in tensors):
            return None
        used = {s for v in tensors for e in self.graph.dims(v) for s in affine.symbols_in(e)}
        by_position = {self._symbol_position(s): s for s in self.graph.shapes.symbols}
        for s in sorted(used):
            value = by_position[(s,)]
            if value not in symbols:
                symbols.append(value)
        # An index constant has no position: no size refers to it.
        positions = {i: self._symbol_position(s) for i, s in enumerate(symbols)}
        renumber = {p[0]: ir.AffineSymbolExpr.get(i) for i, p in positions.items() if len(p) == 1}
        maps: list[ir.Attribute] = []
        for v in tensors:
            results = [affine.substitute(e, {}, renumber) for e in self.graph.dims(v)]
            maps.append(ir.AffineMapAttr.get(ir.AffineMap.get(0, len(symbols), results)))
        return ir.ArrayAttr.get(maps)

    def _name(self, group: Group) -> str:
        """A readable, unique kernel name: its kind, then the ops it holds."""
        words: list[str] = []
        for op in group.ops:
            word = _op_word(op)
            if word and word not in words:
                words.append(word)
        base = "_".join([*words[:4]]) or group.kind
        count = self.names.get(base, 0)
        self.names[base] = count + 1
        return base if count == 0 else f"{base}_{count}"


def _owner_of(value: ir.Value) -> ir.Operation:
    op = defining_op(value)
    assert op is not None, "a group's results are made by its ops"
    return op


def _computes(op: ir.Operation | None) -> bool:
    """Whether `op` is a constant, or arithmetic on scalars."""
    return op is not None and op.name.startswith("arith.")


def _op_word(op: ir.Operation) -> str:
    """The torch op a location names (`aten.add.Tensor`, `add_3`), else the op's own name."""
    text = str(op.location)
    found = re.search(r'"([A-Za-z_]+?)(?:_\d+)?"', text)
    if found:
        return found.group(1).strip("_")
    return kiln.name_of(op).split(".")[-1]
