# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a scan's kernel computes on any target: `kiln.scan` with one operand and a combiner of which the identity is
known, `kiln.recurrence` with several and a region.
"""

from dataclasses import dataclass, field

from torch_mlir import ir

from kiln.dialects.kiln import RecurrenceOp, Role, name_of, opdef
from kiln.dialects.kiln.recurrence import carried_type, needed_steps
from kiln.errors import UnsupportedError
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.combiner import SCANS
from kiln.lowering.tile.evaluator import Traversal

__all__ = ["Scan", "scan_of"]

Values = dict[int, ir.Value]
"""Values by the operand that they belong to."""


@dataclass
class Scan:
    """The scan of a kernel's body.

    dim: which is scanned. carried: operands that take part in results. needed: operands that are read.
    elements: of the operands, in memory. computed: in which they are combined.
    start: what comes before the first element, where that is known.
    roots: positions among the results of the body, and the operand whose scan each is.
    """

    op: ir.OpView
    dim: int
    carried: list[int]
    needed: list[int]
    elements: list[ir.Type]
    computed: list[ir.Type]
    roots: list[tuple[int, int]]
    start: int | None = None
    combiner: str = ""
    ops: set[ir.Operation] = field(default_factory=set[ir.Operation])

    @property
    def is_float(self) -> bool:
        """Whether the elements of the first operand are floats."""
        return isinstance(self.elements[0], ir.FloatType)

    def combine(self, e: Traversal, left: Values, right: Values) -> Values:
        """What comes before and what comes behind as one, of the operands that are carried."""
        if self.combiner:
            x, y = e.b.together(left[0], right[0])
            return {0: ir.Operation.create(self.combiner, results=[x.type], operands=[x, y]).result}
        block = self.op.regions[0].blocks[0]
        arguments, count = list(block.arguments), len(self.elements)
        env: dict[ir.Value, ir.Value] = {arguments[k]: v for k, v in left.items()}
        env.update({arguments[count + k]: v for k, v in right.items()})
        for inner in block.operations:
            if inner.operation.name == "arith.constant":
                env[inner.results[0]] = e.constant(inner)
            elif inner.operation in self.ops:
                operands = [e.lookup(env, v) for v in inner.operands]
                env.update(zip(inner.results, e.emit_op(inner, operands), strict=True))
        yielded = list(list(block.operations)[-1].operands)
        return {k: e.lookup(env, yielded[k]) for k in self.carried}


def scan_of(body: FusionBody, where: str, segments: bool = False) -> Scan:
    """The scan that the body is around. Raises UnsupportedError for one without a kernel.

    segments: what is behind is a segment as well, not one element: all that is read is carried.
    """
    op = next(op for op in body.operations if opdef(op).role is Role.SCAN)
    results: list[ir.Value] = list(op.results)
    mine = [(i, body.roots[i]) for i in body.mine]
    if any(root not in results for _, root in mine):
        raise UnsupportedError(name_of(op), str(op.location), f"what follows a scan in its kernel, {where}")
    roots = [(i, results.index(root)) for i, root in mine]
    dim = ir.IntegerAttr(op.operation.attributes["dim"]).value
    elements = [ir.RankedTensorType(v.type).element_type for v in op.operands]
    if isinstance(op, RecurrenceOp):
        carried, ops = needed_steps(op, [k for _, k in roots], segments)
        arguments = list(op.combine.arguments)
        read = {v for inner in ops for v in inner.operands} | set(list(op.combine.operations)[-1].operands)
        needed = [k for k in range(len(elements)) if k in carried or arguments[len(elements) + k] in read]
        computed = [carried_type(t) for t in elements]
        return Scan(op, dim, sorted(carried), needed, elements, computed, roots, ops=ops)
    kind = ir.StringAttr(op.operation.attributes["kind"]).value
    if kind not in SCANS or len(results) != 1:
        raise UnsupportedError(name_of(op), str(op.location), f"a running {kind} {where}")
    for_floats, for_integers, start = SCANS[kind]
    combiner = for_floats if isinstance(elements[0], ir.FloatType) else for_integers
    return Scan(op, dim, [0], [0], elements, [carried_type(elements[0])], roots, start, combiner)
