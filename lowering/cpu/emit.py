# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""`kiln.fusion` to a vector-stage kernel: `.fused.mlir` / `.sched.mlir` in, one `func.func` per kernel out."""

from collections import Counter

from torch_mlir import ir
from torch_mlir.dialects import func

from kiln.dialects import kiln
from kiln.dialects.schedules import PartsSchedule, Schedule
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.cpu.tile import attention, conv, rows, scan, scatter  # noqa: F401 - their emitters register themselves
from kiln.lowering.cpu.tile.kernel import Kernel
from kiln.lowering.cpu.tile.nest import nest_groups, plan_nest, work
from kiln.lowering.cpu.tile.nest_loops import NestEmitter
from kiln.lowering.cpu.tile.parts import SharedPart, part_key
from kiln.lowering.cpu.tile.phases import find_phases
from kiln.lowering.emitters import KernelKind, kernel_kinds
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts


def emit_kernel(fusion: ir.OpView, name: str) -> ir.Module:
    """The kernel of a fusion as a module with one function `name` at the vector stage.

    Arguments: one 1-D memref per tensor operand, then per result (booleans as i8); the fusion's symbols as index;
    this thread's scratch; thread id; thread count. Attributes `kiln.scratch_bytes` and `kiln.work` are affine maps
    over the symbols: bytes of scratch per thread, estimated elementary operations. `kiln.shared` lists the memrefs
    that may be one memory: a result that is written over an operand (`in_place` of the fusion).

    Raises UnsupportedError, naming the op, for what the code generator cannot express.
    """
    body = FusionBody(fusion)
    layouts = fusion_layouts(fusion, body)
    with fusion.operation.location:
        module = ir.Module.create()
        kernel = Kernel(module, name, body, layouts)
        with ir.InsertionPoint(kernel.function.entry_block):
            _emit(kernel)
            func.ReturnOp([])
        kernel.finish()
    return module


def plan_kernel(body: FusionBody, layouts: list[ir.AffineMap]) -> Schedule | None:
    """The schedule of a fusion; None where the layouts alone give the loops."""
    parts = body.parts()
    if len(parts) > 1:
        schedules = tuple(plan_kernel(part, layouts) for part in parts)
        return PartsSchedule(parts=schedules) if any(schedules) else None
    special = _special(body)
    return special.plan(body, layouts) if special is not None and special.plan is not None else None


def check_schedule(body: FusionBody, schedule: Schedule | None) -> None:
    """Raise UnsupportedError for a schedule of another kernel than that of a fusion, or of one of its parts."""
    special = _special(body)
    if special is not None:
        special.accepted(schedule, body.fusion)
    elif schedule is not None:
        where = str(body.fusion.location)
        raise UnsupportedError("kiln.fusion", where, f"no kernel for a schedule {schedule.kernel}")


def _emit(kernel: Kernel) -> None:
    parts = kernel.body.parts()
    if len(parts) > 1:
        _TAKEN("parts")
        _emit_parts(kernel, parts)
        return
    special = _special(kernel.body)
    if special is not None:
        kind = next(name for name, found in kernel_kinds("cpu").items() if found is special)
        if kind in _TAKEN.paths:  # those of ops from outside are not
            _TAKEN(kind)
        check_schedule(kernel.body, kernel.schedule)
        with kernel.body.location:
            special.emit(kernel)
        return
    check_schedule(kernel.body, kernel.schedule)
    _TAKEN("loops")
    for group in nest_groups(kernel):
        e = kernel.evaluator()
        nest = plan_nest(e, group)
        NestEmitter(e, nest, kernel.tid, kernel.nt).emit()
        kernel.work = kernel.work + work(e, nest)


def _emit_parts(kernel: Kernel, parts: list[FusionBody]) -> None:
    """Parts one after the other. Nothing waits between them: a thread goes on with its share of the next one."""
    given = kernel.schedule
    schedules = given.parts if isinstance(given, PartsSchedule) else [None] * len(parts)
    keys = [
        part_key(body, kernel.layouts, schedule) if _can_be_function(kernel, body) else None
        for body, schedule in zip(parts, schedules, strict=True)
    ]
    times = Counter(key.text for key in keys if key is not None)
    shared: dict[str, SharedPart] = {}
    for body, schedule, key in zip(parts, schedules, keys, strict=True):
        if key is None or times[key.text] == 1:
            part = kernel.part(body, schedule)
            _emit(part)
            kernel.absorb(part)
            continue
        if key.text not in shared:
            shared[key.text] = SharedPart(kernel, len(shared), key, body, schedule)
            shared[key.text].emit(_emit)
            _TAKEN("parts with one function")
        shared[key.text].call(kernel, key)


def _can_be_function(kernel: Kernel, body: FusionBody) -> bool:
    """Whether a part is a product alone, whose threads do not wait, and which overwrites and checks nothing."""
    attributes = body.fusion.operation.attributes
    special = _special(body)
    if kernel.checks or "in_place" in attributes or special is None or special.op is not kiln.MatmulOp:
        return False
    return find_phases(body).count == 1


def _special(body: FusionBody) -> KernelKind | None:
    """The emitter of a body that is not generated from its loops alone; a part has the kind of its named op."""
    kinds = kernel_kinds("cpu")
    if body.part is None:
        return kinds.get(ir.StringAttr(body.fusion.operation.attributes["kind"]).value)
    entries = (kiln.opdef(op) for op in body.operations)
    return next((kinds[entry.kind] for entry in entries if entry.has_kernel and entry.kind in kinds), None)


_TAKEN = paths.group("cpu kind", kernel_kinds("cpu"), "loops", "parts", "parts with one function")
