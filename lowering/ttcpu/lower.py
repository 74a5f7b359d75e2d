# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A ``tt.func`` -> a vector-stage kernel of the CPU: one loop over the programs of the grid, shared by the threads."""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
from kiln.lowering.ttcpu.interleave import (
    BLOCKS,
    HEADER,
    SLOT,
    TURN,
    WORDS,
    bytes_at,
    has_ended,
    interleaved,
    slot_of,
    slot_word,
)
from kiln.lowering.ttcpu.order import program_at
from kiln.lowering.ttcpu.settings import DEFAULTS, Settings
from kiln.lowering.ttcpu.sites import Sites
from kiln.lowering.ttcpu.watch import report_kernel

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

    Returns a module that holds `func.func @name` as `kiln.lowering.cpu.codegen.compile_kernel` takes it. One
    thread runs the programs with `buffers`, or where one may depend on another: with atomics, or with scratch memory
    that they share. With both `buffers` and atomics several are under way at the same time.

    Raises UnsupportedError, naming the op, for what does not run on the CPU; InvalidIRError for another signature;
    ValueError for a sample of a kernel that clears: each part of the grid would clear anew.
    """
    if is_sampled and cleared:
        raise ValueError("a sample of a grid clears nothing")
    with function.context, function.location:
        module = ir.Module.create()
        _Kernel(function, name, module, shared, is_sampled, buffers, settings).emit(cleared)
    return module


@dataclass
class _Frame:
    """What programs use of their kernel, as values of the function that they are emitted in: memory for blocks, the
    address of each tensor, the symbols, where to report, the address of what programs share (i64), and how much memory
    each tensor has.
    """

    b: Builder
    scratch: Scratch
    addresses: list[ir.Value]
    given: list[Index]
    record: tuple[ir.Value, ir.Value] | None = None
    shared: ir.Value | None = None
    extents: list[Extent] = field(default_factory=list[Extent])


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
        has_atomics = any(name_of(o).startswith("tt.atomic_") for o in ops_inside(self.source))
        in_order = bool(cleared) or self.has_scratch or has_atomics or self.buffers is not None
        self.sites = Sites(self.source)
        with ir.InsertionPoint(entry):
            frame = self._frame(b, entry)
            grid = self._grid(frame)
            total = b.muli(b.muli(grid[0], grid[1]), grid[2])
            start, count = 0, total
            if self.is_sampled:
                start, end = entry.arguments[len(self.tensors) + len(self.symbols) :][:_RANGE]
                count = b.subi(end, start)
            low, high = (0, count) if in_order else b.split(tid, nt, count)
            for number, size in cleared:
                fill_bytes(b, frame.addresses[number], symbolic(b, size, frame.given), 0)
            self._start(frame, grid)
            if has_atomics and self._interleaves():
                size = self._interleave(frame, area, total)
            else:
                b.for_(b.addi(start, low), b.addi(start, high), 1, lambda turn: self._turn(frame, grid, turn))
                size = frame.scratch.bytes
            func.ReturnOp([])
        for constant in self.after_blocks:
            constant.attributes["value"] = ir.IntegerAttr.get(b.i64, size)
        self._describe(size, in_order)

    def _interleaves(self) -> bool:
        """Whether programs stop for others, where they may depend on each other."""
        settings = self.settings
        return (
            self.buffers is not None and not self.is_sampled and settings.order == "shuffled" and settings.together > 1
        )

    def _frame(self, b: Builder, entry: ir.Block) -> "_Frame":
        """What the kernel itself is given."""
        arguments = list(entry.arguments)
        area, integers = arguments[-3], arguments[len(self.tensors) : len(self.tensors) + self.integers]
        frame = _Frame(
            b,
            Scratch(b, area),
            [address_of(b, a) for a in arguments[: len(self.tensors)]],
            list(integers[: len(self.symbols)]),
        )
        if self.buffers is not None:
            address, launch = (arith.index_cast(b.i64, a) for a in integers[-_RECORD:])
            frame.record = llvm.inttoptr(_pointer(), address), launch
        self.after_blocks: list[ir.Operation] = []
        if self.has_scratch:
            # Behind the blocks, whose total size is known at the end.
            frame.shared = arith.addi(llvm.ptrtoint(b.i64, address_of(b, area)), self._known_later(b))
        return frame

    def _known_later(self, b: Builder) -> ir.Value:
        """How many bytes of scratch memory programs have for themselves."""
        zero: dict[str, ir.Attribute] = {"value": ir.IntegerAttr.get(b.i64, 0)}
        self.after_blocks.append(ir.Operation.create("arith.constant", results=[b.i64], attributes=zero))
        return self.after_blocks[-1].result

    def _grid(self, frame: "_Frame") -> list[Index]:
        return [symbolic(frame.b, e, frame.given) for e in _maps(self.source, "kiln.grid", 3)]

    def _start(self, frame: "_Frame", grid: Sequence[Index]) -> None:
        """What is done before the first program: memory that nobody has written is poison, descriptors are checked."""
        if self.buffers is None:
            return
        b = frame.b
        self._measure(frame)
        for buffer, address in zip(self.buffers, frame.addresses, strict=True):
            if buffer.is_written and self.settings.poison:
                poison(b, buffer, address, frame.given)
        if self.settings.bounds:
            lowering = Lowering(b, frame.scratch, [], grid, b.int_(0, b.i64), self._reporting(frame))
            for i, descriptor in self._descriptors(frame).items():
                check_descriptor(lowering, self.source, descriptor, frame.extents[i])

    def _measure(self, frame: "_Frame") -> None:
        """Finds out how much memory there is behind each argument."""
        b = frame.b
        for i, (buffer, start) in enumerate(zip(self.buffers or (), frame.addresses, strict=True)):
            address = llvm.ptrtoint(b.i64, start)
            first, size = reach_of(b, buffer, frame.given)
            frame.extents.append(Extent(b.int_(i, b.i64), arith.addi(address, first), size))

    def _reporting(self, frame: "_Frame") -> Reporting:
        return Reporting(frame.record, self.sites, self.settings)

    def _descriptors(self, frame: "_Frame") -> dict[int, Descriptor]:
        """The arguments that are tensor descriptors."""
        found: dict[int, Descriptor] = {}
        b = frame.b
        for i, maps in _descriptors(self.source).items():
            element = tt.block_of(self.tensors[i].type).element_type
            shape, strides = ([b.value(symbolic(b, e, frame.given)) for e in m.results] for m in maps)
            found[i] = Descriptor(frame.addresses[i], element, shape, strides)
        return found

    def _turn(self, frame: "_Frame", grid: Sequence[Index], turn: Index, slot: ir.Value | None = None) -> None:
        """The program whose turn it is; axis 0 runs fastest. slot: it stops for others."""
        b, number = frame.b, turn
        if self.buffers is not None and not self.is_sampled:
            number = program_at(b, self.settings, turn, b.muli(b.muli(grid[0], grid[1]), grid[2]))
        rest = b.divi(number, grid[0])
        axes = [b.remi(number, grid[0]), b.remi(rest, grid[1]), b.divi(rest, grid[1])]
        programs = [arith.index_cast(b.i32, b.value(a)) for a in axes]
        number = arith.index_cast(b.i64, b.value(number))
        lowering = Lowering(b, frame.scratch, programs, grid, number, self._reporting(frame))
        lowering.slot = slot
        descriptors = self._descriptors(frame)
        for i, (old, address) in enumerate(zip(self.tensors, frame.addresses, strict=True)):
            lowering.values[old] = descriptors[i] if i in descriptors else address
            if frame.extents and self.settings.bounds:
                lowering.extents[old] = frame.extents[i]
        for old, new in zip(self.symbols, frame.given, strict=True):
            lowering.values[old] = arith.index_cast(old.type, b.value(new))
        if frame.shared is not None:
            self._place_scratch(lowering, frame)
        lowering.run(self.source.regions[0].blocks[0])

    def _place_scratch(self, lowering: Lowering, frame: "_Frame") -> None:
        """The memory that programs share."""
        b, old = lowering.b, self.arguments[-1]
        assert frame.shared is not None
        lowering.values[old] = llvm.inttoptr(_pointer(), frame.shared)
        if frame.extents and self.settings.bounds:
            size = symbolic(b, _maps(self.source, "kiln.scratch_bytes", 1)[0], frame.given)
            lowering.extents[old] = Extent(b.int_(-1, b.i64), frame.shared, arith.index_cast(b.i64, b.value(size)))

    def _interleave(self, frame: "_Frame", area: ir.Value, total: Index) -> int:
        """Runs the programs as coroutines; returns the bytes of scratch memory that they have for themselves."""
        b, settings = frame.b, self.settings
        assert frame.record is not None
        record = [llvm.ptrtoint(b.i64, frame.record[0]), frame.record[1]]
        words = [llvm.ptrtoint(b.i64, a) for a in frame.addresses]
        words += [arith.index_cast(b.i64, b.value(n)) for n in frame.given]
        words += [
            *record,
            b.int_(0, b.i64) if frame.shared is None else frame.shared,
            arith.index_cast(b.i64, b.value(total)),
        ]
        stride = ir.Operation.create(
            "arith.constant", results=[b.i64], attributes={"value": ir.IntegerAttr.get(b.i64, 0)}
        )
        name = f"{ir.StringAttr(self.target.operation.attributes['sym_name']).value}_program"
        is_stuck = interleaved(b, address_of(b, area), stride.result, settings.together, name, words, settings.seed)
        low = Lowering(b, frame.scratch, [], [], b.int_(-1, b.i64), self._reporting(frame))
        b.if_(is_stuck, lambda: report_kernel(low, b.int_(settings.together, b.i64)))
        size = SLOT + self._emit_program(name)
        stride.attributes["value"] = ir.IntegerAttr.get(b.i64, size)
        return HEADER + settings.together * size

    def _emit_program(self, name: str) -> int:
        """Emits the function that runs a program in its slot; returns the bytes of its blocks."""
        i32 = ir.IntegerType.get_signless(32)
        module = self.target.operation.parent
        assert module is not None
        with ir.InsertionPoint(module.regions[0].blocks[0]):
            program = func.FuncOp(name, ir.FunctionType.get([i32, i32], []), visibility="private")
        entry = program.add_entry_block()
        b = Builder(entry)
        with ir.InsertionPoint(entry):
            slot = slot_of(b, *entry.arguments)
            words = slot_word(b, slot, WORDS, _pointer())
            area = bytes_at(slot_word(b, slot, BLOCKS, _pointer()))

            def word(number: int) -> ir.Value:
                return slot_word(b, words, number, b.i64)

            count, symbols = len(self.tensors), len(self.symbols)
            addresses: list[ir.Value] = [llvm.inttoptr(_pointer(), word(i)) for i in range(count)]
            given: list[Index] = [arith.index_cast(b.index_type, word(count + i)) for i in range(symbols)]
            frame = _Frame(b, Scratch(b, area), addresses, given)
            frame.record = llvm.inttoptr(_pointer(), word(count + symbols)), word(count + symbols + 1)
            frame.shared = word(count + symbols + 2) if self.has_scratch else None
            self._measure(frame)
            self._turn(frame, self._grid(frame), arith.index_cast(b.index_type, slot_word(b, slot, TURN, b.i64)), slot)
            has_ended(b, slot)
            func.ReturnOp([])
        return frame.scratch.bytes

    def _describe(self, own: int, in_order: bool) -> None:
        """What the host needs to know: bytes of scratch memory per thread, elementary operations, what may report."""
        symbols = self.integers
        size: ir.AffineExpr = ir.AffineConstantExpr.get(own)
        if self.has_scratch:
            size = size + _maps(self.source, "kiln.scratch_bytes", 1)[0]
        attributes = self.target.operation.attributes
        attributes["kiln.scratch_bytes"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [size]))
        if self.buffers is not None:
            attributes["kiln.sites"] = self.sites.attribute()
        if self.is_sampled:
            return  # how many programs run is not in the grid
        work: ir.AffineExpr = ir.AffineConstantExpr.get(0 if in_order else max(1, _elements(self.source)))
        for programs in _maps(self.source, "kiln.grid", 3):
            if affine.constant_of(work) is None and affine.constant_of(programs) is None:
                return  # no affine expression is their product
            work = work * programs
        attributes["kiln.work"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [work]))


def _pointer() -> ir.Type:
    return ir.Type.parse("!llvm.ptr")


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
