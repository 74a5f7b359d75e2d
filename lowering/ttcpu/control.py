# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Control flow: what a loop or a branch carries as a block lies in memory."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import scf

from kiln.dialects import tt
from kiln.errors import UnsupportedError
from kiln.lowering.ttcpu.blocks import Block, Stored, scalar_type
from kiln.lowering.ttcpu.core import Lowering, handles
from kiln.lowering.ttcpu.watch import report_failing


@handles("scf.for")
def _for(low: Lowering, op: ir.Operation) -> None:
    lower, upper, step, *inits = list(op.operands)
    body = op.regions[0].blocks[0]
    counter, *arguments = list(body.arguments)
    carried: dict[ir.Value, Stored] = {
        a: low.memory_for(a, init) for a, init in zip(arguments, inits, strict=True) if tt.is_block(a.type)
    }
    plain = [i for i, a in enumerate(arguments) if a not in carried]
    start = [low.scalar(inits[i]) for i in plain]
    loop = scf.ForOp(low.scalar(lower), low.scalar(upper), low.scalar(step), start)
    with ir.InsertionPoint(loop.body), low.scope():
        low.values[counter] = loop.induction_variable
        low.values.update(carried)
        low.values.update(zip((arguments[i] for i in plain), loop.inner_iter_args, strict=True))
        low.own |= set(carried)
        yielded = list(low.run(body).operands)
        low.own -= set(carried)
        _carry(low, list(carried.values()), [low.block(yielded[i]) for i, a in enumerate(arguments) if a in carried])
        scf.yield_([low.scalar(yielded[i]) for i in plain])
    low.values.update((op.results[i], carried[a]) for i, a in enumerate(arguments) if a in carried)
    low.values.update((op.results[i], value) for i, value in zip(plain, loop.results, strict=True))


def _carry(low: Lowering, targets: Sequence[Stored], sources: Sequence[Block]) -> None:
    """Assigns blocks to the memory that a loop carries, all at once."""
    mine = [t.memory for t in targets]
    moves: list[tuple[Stored, Stored]] = []
    for target, source in zip(targets, sources, strict=True):
        if isinstance(source, Stored) and source.memory == target.memory:
            continue
        if not isinstance(source, Stored) or source.memory in mine:
            copy = low.scratch.block(source.shape, source.element)
            low.scratch.fill(copy, source)
            source = copy
        moves.append((target, source))
    for target, source in moves:
        low.scratch.fill(target, source)


@handles("scf.if")
def _if(low: Lowering, op: ir.Operation) -> None:
    blocks = {i: low.memory_of(r) for i, r in enumerate(op.results) if tt.is_block(r.type)}
    plain = [i for i in range(len(op.results)) if i not in blocks]
    has_else = len(op.regions) > 1 and len(op.regions[1].blocks) > 0
    types = [scalar_type(op.results[i].type) for i in plain]
    branch = scf.IfOp(low.scalar(op.operands[0]), types, has_else=has_else)
    targets = [branch.then_block, *([branch.else_block] if has_else else [])]
    for region, target in zip(op.regions, targets, strict=False):
        assert target is not None
        with ir.InsertionPoint(target), low.scope():
            yielded = list(low.run(region.blocks[0]).operands)
            for i, memory in blocks.items():
                low.scratch.fill(memory, low.block(yielded[i]))
            scf.yield_([low.scalar(yielded[i]) for i in plain])
    low.values.update((op.results[i], memory) for i, memory in blocks.items())
    low.values.update((op.results[i], value) for i, value in zip(plain, branch.results, strict=True))


@handles("scf.while")
def _while(low: Lowering, op: ir.Operation) -> None:
    before, after = (region.blocks[0] for region in op.regions)
    if any(tt.is_block(v.type) for v in [*op.operands, *op.results]):
        raise UnsupportedError(op.name, str(op.location), "a while loop that carries blocks does not run on the CPU")
    types = [scalar_type(r.type) for r in op.results]
    loop = scf.WhileOp(types, [low.scalar(v) for v in op.operands])
    start = loop.regions[0].blocks.append(*[scalar_type(a.type) for a in before.arguments])
    with ir.InsertionPoint(start), low.scope():
        low.values.update(zip(before.arguments, start.arguments, strict=True))
        condition, *forwarded = list(low.run(before).operands)
        scf.ConditionOp(low.scalar(condition), [low.scalar(v) for v in forwarded])
    body = loop.regions[1].blocks.append(*[scalar_type(a.type) for a in after.arguments])
    with ir.InsertionPoint(body), low.scope():
        low.values.update(zip(after.arguments, body.arguments, strict=True))
        scf.yield_([low.scalar(v) for v in low.run(after).operands])
    low.values.update(zip(op.results, loop.results, strict=True))


@handles("tt.call")
def _call(low: Lowering, op: ir.Operation) -> None:
    """Inlines the callee."""
    callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
    module = op.parent
    while module is not None and module.name != "builtin.module":
        module = module.parent
    functions = list(module.regions[0].blocks[0]) if module is not None else []
    named = [f for f in functions if ir.StringAttr(f.operation.attributes["sym_name"]).value == callee]
    if not named:
        raise UnsupportedError("tt.call", str(op.location), f"the module holds no function @{callee}")
    body = named[0].operation.regions[0].blocks[0]
    with low.scope():
        for argument, value in zip(body.arguments, op.operands, strict=True):
            low.values[argument], low.callers[argument] = low.values[value], value
        returned = [low.values[v] for v in low.run(body).operands]
    low.values.update(zip(op.results, returned, strict=True))


@handles("tt.assert")
def _assert(low: Lowering, op: ir.Operation) -> None:
    """What does not hold is reported. The program goes on: what an assertion guards is clamped."""
    condition = op.operands[0]
    shape = tuple(ir.RankedTensorType(condition.type).shape) if tt.is_block(condition.type) else ()
    message = ir.StringAttr(op.attributes["message"]).value
    report_failing(low, op, "assert", shape, lambda index: low.element(condition, index), message)
