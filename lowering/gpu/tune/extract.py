# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A few ops of a function as a function of their own, to be compiled and run by themselves."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects.kiln import name_of
from kiln.lowering.gpu.dot.fusions import DotOptions
from kiln.lowering.gpu.target import GpuTarget
from kiln.lowering.options import PipelineOptions

__all__ = ["extracted", "pointwise_chain", "schedule_module", "scheduled"]

Strides = Callable[[ir.Value], ir.AffineMap | None]
"""Where a tensor lies: its strides in elements, a map without dims and symbols; None: row-major."""

_FREE = ("kiln.empty", "arith.constant")


def pointwise_chain(value: ir.Value, more: Sequence[str] = ()) -> list[ir.Operation]:
    """The pointwise ops behind a value that fusion puts into its kernel: each the only reader of the one before it,
    with as many elements. more: names of other ops that are such where the value is their first operand.
    """
    found: list[ir.Operation] = []
    while True:
        uses = list(value.uses)
        reader = uses[0].owner.operation if len(uses) == 1 else None
        if reader is None or len(reader.results) != 1:
            return found
        if name_of(reader) != "linalg.generic" and not (name_of(reader) in more and reader.operands[0] == value):
            return found
        before, after = ir.RankedTensorType(value.type), ir.RankedTensorType(reader.results[0].type)
        loops = str(reader.attributes["iterator_types"]) if "iterator_types" in reader.attributes else ""
        if "reduction" in loops or not after.has_static_shape:
            return found
        if prod(before.shape) != prod(after.shape):
            return found
        found.append(reader)
        value = reader.results[0]


def _row_major(value: ir.Value) -> None:
    return None


def extracted(
    ops: Sequence[ir.Operation], arguments: Sequence[ir.Value], strides: Strides = _row_major
) -> tuple[ir.Module, list[ir.Value]] | None:
    """A module whose @main computes the last op's result, and the values that @main's arguments stand for: those given,
    then the other tensors that the ops read. None where an op reads what cannot be an argument (a size).
    """
    free: list[ir.Value] = []
    inputs = list(arguments)
    made = [result for op in ops for result in op.results]
    for op in ops:
        for value in _read(op):
            if value in made or value in inputs or value in free or _is_inside(value, op):
                continue
            owner = None if isinstance(value.owner, ir.Block) else value.owner.operation
            if owner is not None and name_of(owner) in _FREE and not len(owner.operands):
                free.append(value)
            elif isinstance(value.type, ir.RankedTensorType):
                inputs.append(value)
            else:
                return None
    with ir.Location.unknown():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("main", ir.FunctionType.get([v.type for v in inputs], [ops[-1].results[0].type]))
            entry = function.add_entry_block()
        new: dict[ir.Value, ir.Value] = dict(zip(inputs, entry.arguments, strict=True))
        with ir.InsertionPoint(entry):
            for value in free:
                new[value] = value.owner.operation.clone().operation.results[0]
            for op in ops:
                copy = op.clone().operation
                _rewire(copy, new)
                new.update(zip(op.results, copy.results, strict=True))
            func.ReturnOp([new[ops[-1].results[0]]])
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([_places(value, strides) for value in inputs])
        function.attributes["res_attrs"] = ir.ArrayAttr.get([_places(ops[-1].results[0], strides)])
    return module, inputs


def _places(value: ir.Value, strides: Strides) -> ir.DictAttr:
    """The attributes of an argument or result."""
    found = strides(value)
    return ir.DictAttr.get({} if found is None else {"kiln.strides": ir.AffineMapAttr.get(found)})


def scheduled(
    ops: Sequence[ir.Operation], arguments: Sequence[ir.Value], options: DotOptions, front: str = ""
) -> tuple[ir.Module, list[ir.Value], list[Any]] | None:
    """What `extracted` gives, fused and scheduled as in the pipeline, and its kernels; None where one has no schedule.

    What is found for such a kernel is known when its graph's kernels are tuned. front: passes to run before.
    """
    found = extracted(ops, arguments)
    fusions = None if found is None else schedule_module(found[0], options, front)
    return None if found is None or fusions is None else (*found, fusions)


def schedule_module(module: ir.Module, options: DotOptions, front: str = "") -> list[Any] | None:
    """Fuses and schedules what `extracted` gives; its kernels, None where one has no schedule. front: as above."""
    from kiln.passes import run_pipeline
    from kiln.passes.fusion.kernels import fusions_of

    asked = PipelineOptions(
        emulate_precision_casts=options.roundings, tf32=options.tf32, tensor_maps=options.descriptors
    )
    target = GpuTarget(arch=options.arch)
    steps = [step.text for phase in ("fuse", "place", "schedule") for step in target.phase(phase, asked)]
    run_pipeline(module, front + ",".join(steps))
    fusions = fusions_of(module)
    return fusions if all("schedule" in f.operation.attributes for f in fusions) else None


def _inner(op: ir.Operation) -> list[ir.Operation]:
    return [inner.operation for region in op.regions for block in region.blocks for inner in block.operations]


def _read(op: ir.Operation) -> list[ir.Value]:
    """What an op and its body read."""
    return [*op.operands, *(value for inner in _inner(op) for value in inner.operands)]


def _is_inside(value: ir.Value, op: ir.Operation) -> bool:
    blocks = [block for region in op.regions for block in region.blocks]
    return any(value in list(block.arguments) for block in blocks) or any(
        value in list(inner.results) for inner in _inner(op)
    )


def _rewire(op: ir.Operation, new: dict[ir.Value, ir.Value]) -> None:
    for one in (op, *_inner(op)):
        for i, value in enumerate(list(one.operands)):
            if value in new:
                one.operands[i] = new[value]
