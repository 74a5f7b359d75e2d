# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A ``tt.func`` -> a vector-stage kernel of the CPU: one loop over the programs of the grid, shared by the threads."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, func, llvm

from kiln.dialects import affine, tt
from kiln.dialects.kiln import name_of
from kiln.dialects.walk import ops_inside
from kiln.errors import InvalidIRError
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.ttcpu import atomics, control, dot, memory, reductions, shapes  # noqa: F401 - they register their rules
from kiln.lowering.ttcpu.blocks import Scratch, memory_type, pointee, scalar_type
from kiln.lowering.ttcpu.buffers import Buffer, address_of, fill_bytes, poison, reach_of, symbolic
from kiln.lowering.ttcpu.core import Descriptor, Extent, Lowering, Reporting
from kiln.lowering.ttcpu.descriptors import check_descriptor
from kiln.lowering.ttcpu.order import program_at
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings
from kiln.lowering.ttcpu.sites import Sites

__all__ = ["lower_kernel"]


Cleared = Sequence[tuple[int, ir.AffineExpr]]

_RANGE = 2
"""Integers that tell which programs of a sample run: the first, and the one behind the last."""
_RECORD = 2
"""Integers that tell where what is wrong is reported, and for which launch."""


def lower_kernel(
    function: ir.Operation,
    name: str,
    shared: Sequence[int] = (),
    cleared: Cleared = (),
    is_sampled: bool = False,
    buffers: Sequence[Buffer] | None = None,
    settings: Settings = DEFAULTS,
) -> ir.Module:
    """Lowers a kernel in Triton IR for the CPU.

    Args:
      function: a `tt.func` as `lowering/gpu/emit.py` describes it: pointers (or tensor descriptors), then symbols, then
        scratch memory if `kiln.scratch_bytes` is there; `kiln.grid` gives the programs per axis.
      name: of the new kernel.
      shared: numbers of pointers that may lead to one memory (a result written over an operand).
      cleared: (pointer number, bytes over the symbols) of what is set to zero before the first program.
      is_sampled: the kernel takes two more integers behind its symbols, and runs the programs from the first of them
        up to the second in place of the whole grid. Programs are numbered with axis 0 running fastest.
      buffers: one per pointer: what memory there is. The kernel then takes two more integers, last: the address of a
        record (runtime/accesses.py) and the number of its launch, and does what `settings` say.

    Returns a module that holds `func.func @name` as `kiln.lowering.cpu.codegen.compile_kernel` takes it. Programs run
    one after the other with `buffers`, or where one may depend on another: with atomics, or with scratch memory that
    they share.

    Raises UnsupportedError, naming the op, for what does not run on the CPU; InvalidIRError for another signature;
    ValueError for a sample of a kernel that clears: each part of the grid would clear anew.
    """
    if is_sampled and cleared:
        raise ValueError("a sample of a grid clears nothing")
    with function.context, function.location:
        module = ir.Module.create()
        _Kernel(function, name, module, shared, is_sampled, buffers, settings).emit(cleared)
    return module


class _Kernel:
    def __init__(
        self,
        function: ir.Operation,
        name: str,
        module: ir.Module,
        shared: Sequence[int],
        is_sampled: bool,
        buffers: Sequence[Buffer] | None,
        settings: Settings,
    ) -> None:
        self.source, self.is_sampled, self.buffers, self.settings = function, is_sampled, buffers, settings
        self.arguments = list(function.regions[0].blocks[0].arguments)
        self.has_scratch = "kiln.scratch_bytes" in function.attributes and not _is_zero(
            function.attributes["kiln.scratch_bytes"]
        )
        kinds = [_kind(a) for a in self.arguments]
        tail = 1 if self.has_scratch else 0
        self.tensors = self.arguments[: kinds.index("i") if "i" in kinds else len(kinds) - tail]
        self.symbols = self.arguments[len(self.tensors) : len(self.arguments) - tail]
        if any(_kind(a) != "i" for a in self.symbols):
            found = [str(a.type) for a in self.arguments]
            raise InvalidIRError(f"tt.func takes {found}; expected pointers, integers, scratch", str(function.location))
        index = ir.IndexType.get()
        area = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], ir.IntegerType.get_signless(8))
        extra = (_RANGE if is_sampled else 0) + (_RECORD if buffers is not None else 0)
        self.integers = len(self.symbols) + extra
        types = [*(_buffer(a.type) for a in self.tensors), *([index] * self.integers), area, index, index]
        with ir.InsertionPoint(module.body):
            self.target = func.FuncOp(name, ir.FunctionType.get(types, []))
        if shared:
            self.target.operation.attributes["kiln.shared"] = ir.DenseI64ArrayAttr.get(sorted(shared))

    def emit(self, cleared: Cleared) -> None:
        entry = self.target.add_entry_block()
        b = Builder(entry)
        *_, area, tid, nt = entry.arguments
        self.given: list[Index] = list(entry.arguments[len(self.tensors) : len(self.tensors) + len(self.symbols)])
        with ir.InsertionPoint(entry):
            scratch = Scratch(b, area)
            grid = [symbolic(b, e, self.given) for e in _maps(self.source, "kiln.grid", 3)]
            total = b.muli(b.muli(grid[0], grid[1]), grid[2])
            has_atomics = any(name_of(o).startswith("tt.atomic_") for o in ops_inside(self.source))
            in_order = bool(cleared) or self.has_scratch or has_atomics or self.buffers is not None
            start, count = 0, total
            if self.is_sampled:
                start, end = entry.arguments[len(self.tensors) + len(self.symbols) :][:_RANGE]
                count = b.subi(end, start)
            low, high = (0, count) if in_order else b.split(tid, nt, count)
            low, high = b.addi(start, low), b.addi(start, high)
            for number, size in cleared:
                fill_bytes(b, address_of(b, entry.arguments[number]), symbolic(b, size, self.given), 0)
            self.reporting = Reporting(self._record(b, entry), Sites(self.source), self.settings)
            self._start(b, entry, scratch, grid)
            scratch_end = None
            if self.has_scratch:
                # Behind the blocks, whose total size is known at the end.
                scratch_end = ir.Operation.create(
                    "arith.constant", results=[b.i64], attributes={"value": ir.IntegerAttr.get(b.i64, 0)}
                )

            def program(turn: Index) -> None:
                if self.buffers is not None and not self.is_sampled:
                    turn = program_at(b, self.settings, turn, total)
                self._program(b, entry, scratch, grid, turn, scratch_end)

            b.for_(low, high, 1, program)
            func.ReturnOp([])
        self._describe(scratch, in_order, scratch_end)

    def _record(self, b: Builder, entry: ir.Block) -> tuple[ir.Value, ir.Value] | None:
        """(address of the record, number of the launch)."""
        if self.buffers is None:
            return None
        address, launch = (
            arith.index_cast(b.i64, a) for a in list(entry.arguments)[len(self.tensors) + self.integers - _RECORD :][:2]
        )
        return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), address), launch

    def _start(self, b: Builder, entry: ir.Block, scratch: Scratch, grid: Sequence[Index]) -> None:
        """What is done before the first program: memory that nobody has written is poison, descriptors are checked."""
        self.extents: list[Extent] = []
        if self.buffers is None:
            return
        memories = list(entry.arguments)[: len(self.tensors)]
        for i, (buffer, start) in enumerate(zip(self.buffers, memories, strict=True)):
            address = llvm.ptrtoint(b.i64, address_of(b, start))
            first, size = reach_of(b, buffer, self.given)
            self.extents.append(Extent(b.int_(i, b.i64), arith.addi(address, first), size))
            if buffer.is_written and self.settings.poison:
                poison(b, buffer, start, self.given)
        if self.settings.bounds:
            lowering = Lowering(b, scratch, [], grid, b.int_(0, b.i64), self.reporting)
            for i, descriptor in self._descriptors(b, entry).items():
                check_descriptor(lowering, self.source, descriptor, self.extents[i])

    def _descriptors(self, b: Builder, entry: ir.Block) -> dict[int, Descriptor]:
        """The arguments that are tensor descriptors."""
        found = {}
        for i, maps in _descriptors(self.source).items():
            element = tt.block_of(self.tensors[i].type).element_type
            shape, strides = ([b.value(symbolic(b, e, self.given)) for e in m.results] for m in maps)
            found[i] = Descriptor(address_of(b, entry.arguments[i]), element, shape, strides)
        return found

    def _program(
        self,
        b: Builder,
        entry: ir.Block,
        scratch: Scratch,
        grid: Sequence[Index],
        number: Index,
        scratch_end: ir.Operation | None,
    ) -> None:
        """One program of the grid; axis 0 runs fastest."""
        rest = b.divi(number, grid[0])
        axes = [b.remi(number, grid[0]), b.remi(rest, grid[1]), b.divi(rest, grid[1])]
        programs = [arith.index_cast(b.i32, b.value(a)) for a in axes]
        lowering = Lowering(b, scratch, programs, grid, arith.index_cast(b.i64, b.value(number)), self.reporting)
        arguments = list(entry.arguments)
        descriptors = self._descriptors(b, entry)
        for i, (old, new) in enumerate(zip(self.tensors, arguments, strict=False)):
            lowering.values[old] = descriptors[i] if i in descriptors else address_of(b, new)
            if self.extents and self.settings.bounds:
                lowering.extents[old] = self.extents[i]
        for old, new in zip(self.symbols, self.given, strict=True):
            lowering.values[old] = arith.index_cast(old.type, b.value(new))
        if scratch_end is not None:
            self._place_scratch(lowering, address_of(b, arguments[-3]), scratch_end)
        lowering.run(self.source.regions[0].blocks[0])

    def _place_scratch(self, lowering: Lowering, area: ir.Value, scratch_end: ir.Operation) -> None:
        """The memory that programs share, behind that of blocks."""
        b, old = lowering.b, self.arguments[-1]
        moved = arith.addi(llvm.ptrtoint(b.i64, area), scratch_end.result)
        lowering.values[old] = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), moved)
        if self.extents and self.settings.bounds:
            size = symbolic(b, _maps(self.source, "kiln.scratch_bytes", 1)[0], self.given)
            lowering.extents[old] = Extent(b.int_(-1, b.i64), moved, arith.index_cast(b.i64, b.value(size)))

    def _describe(self, scratch: Scratch, in_order: bool, scratch_end: ir.Operation | None) -> None:
        """What the host needs to know: bytes of scratch memory per thread, elementary operations, what may report."""
        symbols = self.integers
        size: ir.AffineExpr = ir.AffineConstantExpr.get(scratch.bytes)
        if scratch_end is not None:
            scratch_end.attributes["value"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), scratch.bytes)
            size = size + _maps(self.source, "kiln.scratch_bytes", 1)[0]
        attributes = self.target.operation.attributes
        attributes["kiln.scratch_bytes"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [size]))
        if self.buffers is not None:
            attributes["kiln.sites"] = self.reporting.sites.attribute()
        if self.is_sampled:
            return  # how many programs run is not in the grid
        work: ir.AffineExpr = ir.AffineConstantExpr.get(0 if in_order else max(1, _elements(self.source)))
        for programs in _maps(self.source, "kiln.grid", 3):
            if affine.constant_of(work) is None and affine.constant_of(programs) is None:
                return  # no affine expression is their product
            work = work * programs
        attributes["kiln.work"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [work]))


def _kind(argument: ir.Value) -> str:
    return "i" if isinstance(argument.type, ir.IntegerType) else "p"


def _buffer(type_: ir.Type) -> ir.MemRefType:
    """1-D memref for a pointer or a descriptor."""
    element = memory_type(scalar_type(tt.block_of(type_))) if tt.is_tensordesc(type_) else pointee(type_)
    return ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)


def _maps(function: ir.Operation, name: str, count: int) -> list[ir.AffineExpr]:
    """The expressions of an attribute: one map with `count` results, or an array of maps; missing ones are 1."""
    if name not in function.attributes:
        raise InvalidIRError(f"tt.func has no {name}", str(function.location))
    attribute = function.attributes[name]
    maps = [attribute] if isinstance(attribute, ir.AffineMapAttr) else list(ir.ArrayAttr(attribute))
    found = [e.maybe_downcast() for m in maps for e in ir.AffineMapAttr(m).value.results]
    return [*found, *([ir.AffineConstantExpr.get(1)] * (count - len(found)))]


def _is_zero(attribute: ir.Attribute) -> bool:
    return all(affine.constant_of(e.maybe_downcast()) == 0 for e in ir.AffineMapAttr(attribute).value.results)


def _descriptors(function: ir.Operation) -> dict[int, tuple[ir.AffineMap, ir.AffineMap]]:
    """(sizes, strides) of the arguments that are tensor descriptors."""
    if "kiln.descriptors" not in function.attributes:
        return {}
    found = [ir.DictAttr(d) for d in ir.ArrayAttr(function.attributes["kiln.descriptors"])]
    return {
        ir.IntegerAttr(d["arg"]).value: (ir.AffineMapAttr(d["shape"]).value, ir.AffineMapAttr(d["strides"]).value)
        for d in found
    }


def _elements(function: ir.Operation) -> int:
    """Elements of all blocks that a program makes: about the operations of its straight-line part."""
    total = 0
    for op in ops_inside(function):
        for result in op.results:
            if isinstance(result.type, ir.RankedTensorType):
                count = 1
                for n in ir.RankedTensorType(result.type).shape:
                    count *= n
                total += count
    return total
