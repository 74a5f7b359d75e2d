# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`kiln.fusion` to Triton IR: one `tt.func` per kernel.

The kernel's contract, which whoever launches or runs it relies on:

* arguments: a `!tt.ptr<T>` per tensor operand of the fusion, then per result (booleans are bytes, `!tt.ptr<i8>`); the
  fusion's symbols, i32 or i64 as the kernel's index type is; a `!tt.ptr<i8>` to scratch memory if `kiln.scratch_bytes`
  is there;
* `tt.divisibility = 16` on a pointer says that the kernel relies on addresses that are multiples of 16 bytes. Pointers
  have it unless the fusion's `unaligned = array<i64: ...>` lists them (operands, then results);
* `kiln.grid`: an affine map over the symbols with three results, the programs along the grid's axes. A grid with a
  zero is not launched;
* `num_warps`, `num_stages`: as `triton.compile` takes them;
* the fusion's unit attribute `narrow`: dynamic sizes are guarded, and all positions fit into 32 bits;
* the fusion's unit attribute `software_float8`, before sm_89: 8-bit floats are converted by integer arithmetic;
* `kiln.scratch_bytes`: an affine map over the symbols; `kiln.zero = array<i64: ...>`: results that must be zero
  when the kernel starts. Both are absent where there is none.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir

from kiln.dialects import affine, kiln, tt
from kiln.dialects.schedules import PartsSchedule, Schedule, from_attribute
from kiln.dialects.schedules.gpu import LoopsSchedule, NestSchedule
from kiln.errors import UnsupportedError
from kiln.lowering import paths
from kiln.lowering.emitters import KernelKind, kernel_kinds
from kiln.lowering.gpu.alike import alike_parts
from kiln.lowering.gpu.builder import Builder, Index
from kiln.lowering.gpu.device_math import INSTRUCTIONS
from kiln.lowering.gpu.dot.fusions import DEFAULTS, DotOptions
from kiln.lowering.gpu.dot.machine import machine
from kiln.lowering.gpu.tile import scan, scatter  # noqa: F401 - their emitters register themselves
from kiln.lowering.gpu.tile.cuts import nest_groups
from kiln.lowering.gpu.tile.evaluator import Evaluator
from kiln.lowering.gpu.tile.nest import emit_nest
from kiln.lowering.gpu.tile.plan import plan_nest
from kiln.lowering.tile.access import memory_type
from kiln.lowering.tile.body import FusionBody
from kiln.lowering.tile.layouts import fusion_layouts

__all__ = ["OBSERVERS", "GpuKernel", "emit_kernel", "plan_kernel"]

_INT32_ELEMENTS = 1 << 31

OBSERVERS: list[Callable[[ir.OpView, ir.Operation], None]] = []
"""Called with each fusion and the kernel (`tt.func`) that was emitted for it: for tests and checks. What they raise
fails the emission."""


class GpuKernel:
    """One kernel function under construction.

    An emitter of a kind adds its programs with `section`: kernels of several parts, or of results whose loops differ,
    are sections side by side in one grid.
    """

    def __init__(self, module: ir.Module, name: str, body: FusionBody, layouts: list[ir.AffineMap], backend: str):
        self.body, self.layouts, self.backend = body, layouts, backend
        self.index = index_type(body, layouts)
        types = [tt.ptr(memory_type(ir.RankedTensorType(v.type).element_type)) for v in [*body.tensors, *body.roots]]
        count = len(types)
        types += [self.index] * len(body.symbols)
        unaligned = _unaligned(body.fusion)
        attrs = ["{}" if i >= count or i in unaligned else "{tt.divisibility = 16 : i32}" for i in range(len(types))]
        attributes = {
            "sym_name": ir.StringAttr.get(name),
            "sym_visibility": ir.StringAttr.get("public"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            "arg_attrs": ir.ArrayAttr.get([ir.Attribute.parse(a) for a in attrs]),
            "noinline": ir.BoolAttr.get(False),
        }
        with ir.InsertionPoint(module.body):
            self.function = tt.FuncOp.create([], [], attributes, regions=1)
        entry = self.function.regions[0].blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types))
        self.entry = entry
        self.pointers = list(entry.arguments)[:count]
        self.symbols: list[Index] = list(entry.arguments)[count:]
        self.b = Builder(entry, self.index)
        self.b.has_float8 = "software_float8" not in body.fusion.operation.attributes
        self.b.instructions = INSTRUCTIONS if backend == "cuda" else {}
        self.num_warps, self.num_stages = 1, 3
        self.zero: set[int] = set()
        attributes = body.fusion.operation.attributes
        self.schedule = from_attribute(attributes["schedule"]) if "schedule" in attributes else None
        self.programs: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        self.sections: list[tuple[ir.AffineExpr, Callable[[Index], None]]] = []

    def evaluator(self) -> Evaluator:
        """A fresh evaluator on the kernel's pointers, for the code that is emitted next."""
        return Evaluator(self.b, self.body, self.pointers, self.layouts, self.symbols, self.backend)

    def section(
        self, programs: ir.AffineExpr, emit: Callable[[Index], None], num_warps: int = 4, num_stages: int = 3
    ) -> None:
        """`programs` programs of the grid run `emit(number of the program)`, in the location that is current now."""
        location = ir.Location.current
        assert location is not None, "kernels are emitted in a location"

        def located(program: Index) -> None:
            with location:
                emit(program)

        self.sections.append((programs, located))
        self.num_warps = max(self.num_warps, num_warps)
        self.num_stages = max(self.num_stages, num_stages) if len(self.sections) > 1 else num_stages

    def repeat(self, first: int, others: Sequence[dict[int, int]]) -> None:
        """The sections from number `first` on also run for other tensors: with the pointers that each of `others` has
        in place of the kernel's.
        """
        if not others:
            return
        for at, (count, emit) in enumerate(self.sections[first:], first):

            def chosen(program: Index, count: ir.AffineExpr = count, emit: Callable[[Index], None] = emit) -> None:
                b, size, own = self.b, self.evaluator().index(count), self.pointers
                turn, pointers = b.divi(program, size), list(self.pointers)
                for number, table in enumerate(others, 1):
                    is_mine = b.cmpi("eq", turn, number)
                    for mine, theirs in table.items():
                        if mine != theirs:
                            pointers[mine] = b.select(is_mine, own[theirs], pointers[mine])
                self.pointers = pointers
                emit(b.remi(program, size))
                self.pointers = own

            self.sections[at] = (affine.simplify(count * (1 + len(others))), chosen)

    def finish(self) -> None:
        """Emit the sections and attach what a launch needs to know."""
        b = self.b
        program = b.cast_int(b.program_id(0), self.index)
        total: ir.AffineExpr = ir.AffineConstantExpr.get(0)
        self._emit_sections(program, self.sections)
        for count, _ in self.sections:
            total = affine.simplify(total + count)
        tt.ReturnOp.create([], [], {})
        n = len(self.body.symbols)
        one = ir.AffineConstantExpr.get(1)
        attributes = self.function.operation.attributes
        attributes["kiln.grid"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, n, [total, one, one]))
        i32 = ir.IntegerType.get_signless(32)
        attributes["num_warps"] = ir.IntegerAttr.get(i32, self.num_warps)
        attributes["num_stages"] = ir.IntegerAttr.get(i32, self.num_stages)
        if self.zero:
            attributes["kiln.zero"] = ir.DenseI64ArrayAttr.get(sorted(self.zero))

    def _emit_sections(self, program: Index, sections: list[tuple[ir.AffineExpr, Callable[[Index], None]]]) -> None:
        if len(sections) == 1:
            sections[0][1](program)
            return
        # Branches one after the other: those of an if and its else would not share their memory in Triton.
        b = self.b
        start: Index = 0
        for i, (count, emit) in enumerate(sections):
            size = self.evaluator().index(count)
            mine = b.subi(program, start)
            here = True if i == 0 else b.cmpi("sge", mine, 0)
            if i < len(sections) - 1:
                here = b.andc(here, b.cmpi("slt", mine, size))
            b.if_(here, lambda emit=emit, mine=mine: emit(mine))
            start = b.addi(start, size)


def emit_kernel(fusion: ir.OpView, name: str, backend: str = "cuda") -> ir.Module:
    """The kernel of a fusion as a module with one `tt.func` called `name`; see the module's documentation.

    `backend`, "cuda" or "hip", decides how library functions are called.
    Raises UnsupportedError, naming the op, for what the code generator cannot express.
    """
    body = FusionBody(fusion)
    layouts = fusion_layouts(fusion, body)
    with fusion.operation.location:
        module = ir.Module.create()
        kernel = GpuKernel(module, name, body, layouts, backend)
        with ir.InsertionPoint(kernel.entry):
            given = kernel.schedule
            schedules = given.parts if isinstance(given, PartsSchedule) else ()
            parts = body.parts()
            if len(parts) > 1:
                _TAKEN("parts")
            if kernel.index == ir.IntegerType.get_signless(64):
                _TAKEN("positions of 64 bits")
            for group in alike_parts(parts, layouts, _unaligned(fusion), schedules):
                number = group[0][0]
                kernel.body = parts[number]
                before = len(kernel.sections)
                _add(kernel, schedules[number] if schedules else given)
                kernel.repeat(before, [pointers for _, pointers in group[1:]])
                if len(group) > 1:
                    _TAKEN("parts with one code")
            kernel.body = body
            kernel.finish()
    clean(module)
    for observe in OBSERVERS:
        observe(fusion, kernel.function.operation)
    return module


def plan_kernel(body: FusionBody, layouts: list[ir.AffineMap], options: DotOptions = DEFAULTS) -> Schedule | None:
    """The schedule of a fusion, as `schedule-gpu` writes it: one of the kind's own planner, or one nest of loops after
    the other; None where the kind has no planner.
    """
    parts = body.parts()
    if len(parts) > 1:
        return PartsSchedule(parts=tuple(plan_kernel(part, layouts, options) for part in parts))
    special = _special(body)
    if special is not None:
        return special.plan(body, layouts, options) if special.plan is not None else None
    chip = machine(options.arch)
    return LoopsSchedule(
        nests=tuple(plan_nest(body, layouts, group, chip=chip).schedule for group in nest_groups(body, layouts))
    )


def check_schedule(body: FusionBody, schedule: Schedule | None) -> None:
    """Raise UnsupportedError for a schedule of another kernel than that of a fusion, or of one of its parts."""
    special = _special(body)
    if special is not None:
        special.accepted(schedule, body.fusion)
    elif schedule is not None:
        _nests(schedule, body, fusion_layouts(body.fusion, body))


def _nests(schedule: Schedule, body: FusionBody, layouts: list[ir.AffineMap]) -> tuple[NestSchedule, ...]:
    where = str(body.fusion.location)
    if not isinstance(schedule, LoopsSchedule):
        raise UnsupportedError("kiln.fusion", where, f"no kernel for a schedule {schedule.kernel}")
    wanted = len(nest_groups(body, layouts))
    if len(schedule.nests) != wanted:
        raise UnsupportedError("kiln.fusion", where, f"a schedule of {len(schedule.nests)} nests for {wanted}")
    return schedule.nests


def _add(kernel: GpuKernel, schedule: Schedule | None) -> None:
    """The sections of one part."""
    body = kernel.body
    special = _special(body)
    if special is not None:
        with body.location:
            special.emit(kernel, special.accepted(schedule, body.fusion))
        return
    groups = nest_groups(body, kernel.layouts)
    given = _nests(schedule, body, kernel.layouts) if schedule is not None else [None] * len(groups)
    for group, mine in zip(groups, given, strict=True):
        nest = plan_nest(body, kernel.layouts, group, mine)

        def emit(program: Index, body: FusionBody = body, nest: Any = nest) -> None:
            e = Evaluator(kernel.b, body, kernel.pointers, kernel.layouts, kernel.symbols, kernel.backend)
            emit_nest(e, nest, program)

        kernel.section(nest.programs(), emit, nest.schedule.num_warps)


def _special(body: FusionBody) -> KernelKind | None:
    """The emitter of a body that is not generated from its loops alone; a part has the kind of its named op."""
    entry = next((entry for op in body.operations if (entry := kiln.opdef(op)).has_kernel), None)
    kind = "loops" if entry is None else entry.kind
    if kind in _TAKEN.paths:  # those of ops from outside are not
        _TAKEN(kind)
    if entry is None:
        return None
    found = kernel_kinds("gpu").get(kind)
    if found is None:
        raise UnsupportedError(entry.name, str(body.fusion.location), "no kernel on the GPU")
    return found


def clean(module: ir.Module) -> None:
    """Triton runs none of its own passes on text: fold, merge and drop here."""
    from torch_mlir.passmanager import PassManager

    manager = PassManager.parse("builtin.module(canonicalize,cse)", module.context)
    manager.enable_verifier(False)
    manager.run(module.operation)


def index_type(body: FusionBody, layouts: list[ir.AffineMap]) -> ir.Type:
    """i32 where every offset is known to fit (`narrow`, for sizes with symbols), else i64."""
    if "narrow" in body.fusion.operation.attributes:
        return ir.IntegerType.get_signless(32)
    for value, layout in zip([*body.tensors, *body.roots], layouts, strict=True):
        sizes = [affine.constant_of(d) for d in body.dims(value)]
        if any(n is None for n in sizes) or affine.symbols_in(layout.results[0]):
            return ir.IntegerType.get_signless(64)
        if any(n == 0 for n in sizes):
            continue
        corner = affine.evaluate(layout.results[0], [n - 1 for n in sizes if n is not None])
        elements = 1
        for n in sizes:
            elements *= n or 1
        if max(corner + 1, elements) + (1 << 20) >= _INT32_ELEMENTS:
            return ir.IntegerType.get_signless(64)
    return ir.IntegerType.get_signless(32)


def _unaligned(fusion: ir.OpView) -> set[int]:
    attributes = fusion.operation.attributes
    return set(ir.DenseI64ArrayAttr(attributes["unaligned"])) if "unaligned" in attributes else set()


_TAKEN = paths.group("gpu kind", kernel_kinds("gpu"), "loops", "parts", "parts with one code", "positions of 64 bits")
