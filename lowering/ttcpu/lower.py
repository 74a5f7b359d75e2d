# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""A ``tt.func`` -> a vector-stage kernel of the CPU: one loop over the programs of the grid, shared by the threads."""

from collections.abc import Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, func, llvm, memref

from kiln.dialects import affine, tt
from kiln.dialects.kiln import name_of
from kiln.dialects.walk import ops_inside
from kiln.errors import InvalidIRError
from kiln.lowering.cpu.builder import Builder, Index
from kiln.lowering.ttcpu import control, dot, memory, reductions, shapes  # noqa: F401 - they register their rules
from kiln.lowering.ttcpu.blocks import Scratch, memory_type, pointee, scalar_type
from kiln.lowering.ttcpu.core import Descriptor, Lowering

__all__ = ["lower_kernel"]


Cleared = Sequence[tuple[int, ir.AffineExpr]]

_RANGE = 2
"""Integers that tell which programs of a sample run: the first, and the one behind the last."""


def lower_kernel(
    function: ir.Operation, name: str, shared: Sequence[int] = (), cleared: Cleared = (), is_sampled: bool = False
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

    Returns a module that holds `func.func @name` as `kiln.lowering.cpu.codegen.compile_kernel` takes it. Programs run
    one after the other where one may depend on another: with atomics, or with scratch memory that they share.

    Raises UnsupportedError, naming the op, for what does not run on the CPU; InvalidIRError for another signature;
    ValueError for a sample of a kernel that clears: each part of the grid would clear anew.
    """
    if is_sampled and cleared:
        raise ValueError("a sample of a grid clears nothing")
    with function.context, function.location:
        module = ir.Module.create()
        _Kernel(function, name, module, shared, is_sampled).emit(cleared)
    return module


class _Kernel:
    def __init__(
        self, function: ir.Operation, name: str, module: ir.Module, shared: Sequence[int], is_sampled: bool
    ) -> None:
        self.source, self.is_sampled = function, is_sampled
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
        self.integers = len(self.symbols) + (_RANGE if is_sampled else 0)
        types = [*(_buffer(a.type) for a in self.tensors), *([index] * self.integers), area, index, index]
        with ir.InsertionPoint(module.body):
            self.target = func.FuncOp(name, ir.FunctionType.get(types, []))
        if shared:
            self.target.operation.attributes["kiln.shared"] = ir.DenseI64ArrayAttr.get(sorted(shared))

    def emit(self, cleared: Cleared) -> None:
        entry = self.target.add_entry_block()
        b = Builder(entry)
        *_, area, tid, nt = entry.arguments
        sizes: list[Index] = list(entry.arguments[len(self.tensors) : len(self.tensors) + len(self.symbols)])
        with ir.InsertionPoint(entry):
            scratch = Scratch(b, area)
            grid = [_index(b, e, sizes) for e in _maps(self.source, "kiln.grid", 3)]
            total = b.muli(b.muli(grid[0], grid[1]), grid[2])
            has_atomics = any(name_of(o).startswith("tt.atomic_") for o in ops_inside(self.source))
            in_order = bool(cleared) or self.has_scratch or has_atomics
            start: Index = 0
            if self.is_sampled:
                start, end = entry.arguments[len(self.tensors) + len(self.symbols) :][:_RANGE]
                total = b.subi(end, start)
            low, high = (0, total) if in_order else b.split(tid, nt, total)
            low, high = b.addi(start, low), b.addi(start, high)
            for number, size in cleared:
                _clear(b, entry.arguments[number], _index(b, size, sizes))
            scratch_end = None
            if self.has_scratch:
                # Behind the blocks, whose total size is known at the end.
                scratch_end = ir.Operation.create(
                    "arith.constant", results=[b.i64], attributes={"value": ir.IntegerAttr.get(b.i64, 0)}
                )
            b.for_(low, high, 1, lambda i: self._program(b, entry, scratch, grid, i, scratch_end))
            func.ReturnOp([])
        self._describe(scratch, in_order, scratch_end)

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
        lowering = Lowering(b, scratch, [arith.index_cast(b.i32, b.value(a)) for a in axes], grid)
        arguments = list(entry.arguments)
        sizes = arguments[len(self.tensors) : len(self.tensors) + len(self.symbols)]
        descriptors = _descriptors(self.source)
        for i, (old, new) in enumerate(zip(self.tensors, arguments, strict=False)):
            address = _address(b, new)
            if i in descriptors:
                element = tt.block_of(old.type).element_type
                shape, strides = ([b.value(_index(b, e, sizes)) for e in m.results] for m in descriptors[i])
                lowering.values[old] = Descriptor(address, element, shape, strides)
            else:
                lowering.values[old] = address
        for old, new in zip(self.symbols, sizes, strict=True):
            lowering.values[old] = arith.index_cast(old.type, new)
        if scratch_end is not None:
            moved = arith.addi(llvm.ptrtoint(b.i64, _address(b, arguments[-3])), scratch_end.result)
            lowering.values[self.arguments[-1]] = llvm.inttoptr(ir.Type.parse("!llvm.ptr"), moved)
        lowering.run(self.source.regions[0].blocks[0])

    def _describe(self, scratch: Scratch, in_order: bool, scratch_end: ir.Operation | None) -> None:
        """What the host needs to know: bytes of scratch memory per thread, elementary operations."""
        symbols = self.integers
        size: ir.AffineExpr = ir.AffineConstantExpr.get(scratch.bytes)
        if scratch_end is not None:
            scratch_end.attributes["value"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), scratch.bytes)
            size = size + _maps(self.source, "kiln.scratch_bytes", 1)[0]
        attributes = self.target.operation.attributes
        attributes["kiln.scratch_bytes"] = ir.AffineMapAttr.get(ir.AffineMap.get(0, symbols, [size]))
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


def _clear(b: Builder, buffer: ir.Value, size: Index) -> None:
    zero, byte = b.int_(0, b.i8), ir.TypeAttr.get(b.i8)
    start = _address(b, buffer)

    def body(i: Index) -> None:
        offset = arith.index_cast(b.i64, b.value(i))
        attributes = {"elem_type": byte, "rawConstantIndices": ir.DenseI32ArrayAttr.get([-(2**31)])}
        at = ir.Operation.create(
            "llvm.getelementptr", results=[start.type], operands=[start, offset], attributes=attributes
        )
        llvm.store(zero, at.result)

    b.for_(0, size, 1, body)


def _address(b: Builder, buffer: ir.Value) -> ir.Value:
    number = memref.extract_aligned_pointer_as_index(buffer)
    return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), arith.index_cast(b.i64, number))


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


def _index(b: Builder, expr: ir.AffineExpr, symbols: Sequence[Index]) -> Index:
    """Emits a non-negative affine expression over symbols."""
    expr = expr.maybe_downcast()
    known = affine.constant_of(expr)
    if known is not None:
        return known
    if isinstance(expr, ir.AffineSymbolExpr):
        return symbols[expr.position]
    lhs, rhs = _index(b, expr.lhs, symbols), _index(b, expr.rhs, symbols)
    if isinstance(expr, ir.AffineAddExpr):
        return b.addi(lhs, rhs)
    if isinstance(expr, ir.AffineMulExpr):
        return b.muli(lhs, rhs)
    if isinstance(expr, ir.AffineCeilDivExpr):
        return b.ceildivi(lhs, rhs)
    return b.divi(lhs, rhs) if isinstance(expr, ir.AffineFloorDivExpr) else b.remi(lhs, rhs)


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
