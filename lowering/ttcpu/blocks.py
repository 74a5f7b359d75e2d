# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Blocks of Triton IR as functions from an index to a scalar, or as memory.

A block is kept as the recipe of one element for as long as that is cheap; `Scratch.store` evaluates it, element by
element, into memory of the kernel.
"""

from collections.abc import Callable, Sequence

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm

from kiln.dialects import tt
from kiln.errors import UnsupportedError
from kiln.lowering.cpu.builder import Builder
from kiln.lowering.float8 import is_float8

__all__ = ["Block", "Cursor", "Scratch", "Stored", "bytes_of", "loop_nest", "memory_type", "pointee", "scalar_type"]

Element = Callable[["Cursor", tuple[ir.Value, ...]], ir.Value]

_ALIGNMENT = 64


class Block:
    """A tensor value of Triton IR. `cost`: scalar operations to compute one element again."""

    def __init__(self, shape: Sequence[int], element: ir.Type, compute: Element, cost: int = 0) -> None:
        self.shape, self.element, self.compute, self.cost = tuple(shape), element, compute, cost


class Stored(Block):
    """A block whose elements lie in `memory`, a 1-D memref, in row-major order."""

    def __init__(self, b: Builder, shape: Sequence[int], element: ir.Type, memory: ir.Value) -> None:
        self.b, self.memory = b, memory
        super().__init__(shape, element, self._load)

    def reshaped(self, shape: Sequence[int]) -> "Stored":
        """The same memory with another shape."""
        return Stored(self.b, shape, self.element, self.memory)

    def offset(self, index: Sequence[ir.Value]) -> ir.Value:
        """The position of an element."""
        b, at = self.b, None
        for n, i in zip(self.shape, index, strict=True):
            at = i if at is None else b.value(b.addi(b.muli(at, n), i))
        return b.value(0) if at is None else at

    def write(self, value: ir.Value, index: Sequence[ir.Value]) -> None:
        """Stores one element."""
        if isinstance(self.element, ir.IntegerType) and self.element.width == 1:
            value = arith.extui(self.b.i8, value)
        elif _is_pointer(self.element):
            value = llvm.ptrtoint(self.b.i64, value)
        elif is_float8(self.element):
            value = arith.bitcast(self.b.i8, value)
        self.b.store(value, self.memory, self.offset(index))

    def _load(self, _: "Cursor", index: tuple[ir.Value, ...]) -> ir.Value:
        value = self.b.load(self.memory, self.offset(index))
        if isinstance(self.element, ir.IntegerType) and self.element.width == 1:
            return arith.trunci(self.b.i1, value)
        if is_float8(self.element):
            return arith.bitcast(self.element, value)
        return llvm.inttoptr(self.element, value) if _is_pointer(self.element) else value


class Cursor:
    """One iteration of a loop nest: each element that it asks for is computed once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, tuple[ir.Value, ...]], ir.Value] = {}

    def value(self, block: Block | ir.Value, index: Sequence[ir.Value]) -> ir.Value:
        """The element at `index`; a scalar is the same everywhere."""
        if isinstance(block, ir.Value):
            return block
        key = (id(block), tuple(index))
        if key not in self._known:
            self._known[key] = block.compute(self, tuple(index))
        return self._known[key]


class Scratch:
    """Memory for blocks, carved out of the kernel's scratch area (a memref of bytes)."""

    def __init__(self, b: Builder, area: ir.Value, reserved: int = 0) -> None:
        self.b, self.area, self.bytes = b, area, reserved

    def block(self, shape: Sequence[int], element: ir.Type) -> Stored:
        """Memory for one block, its contents undefined."""
        count = 1
        for n in shape:
            count *= n
        stored = memory_type(element)
        memory = self.b.view(self.area, self.bytes, count, stored)
        self.bytes += -(-count * bytes_of(stored) // _ALIGNMENT) * _ALIGNMENT
        return Stored(self.b, shape, element, memory)

    def store(self, block: Block, element: ir.Type | None = None) -> Stored:
        """The block in memory: itself if it lies there, else evaluated now; as `element` after a widening cast."""
        element = element or block.element
        if isinstance(block, Stored) and block.element == element:
            return block
        target = self.block(block.shape, element)
        self.fill(target, block)
        return target

    def fill(self, target: Stored, block: Block) -> None:
        """Evaluates a block into memory."""

        def body(index: tuple[ir.Value, ...]) -> None:
            value = Cursor().value(block, index)
            if block.element != target.element:
                value = _widened(self.b, value, target.element)
            target.write(value, index)

        loop_nest(self.b, target.shape, body)


def loop_nest(b: Builder, shape: Sequence[int], body: Callable[[tuple[ir.Value, ...]], None]) -> None:
    """One loop per dim around `body(index)`, the last innermost."""

    def nest(index: tuple[ir.Value, ...]) -> None:
        if len(index) == len(shape):
            body(index)
            return
        b.for_(0, shape[len(index)], 1, lambda i: nest((*index, b.value(i))))

    nest(())


def scalar_type(type_: ir.Type) -> ir.Type:
    """The type of an element as a scalar: pointers become ``!llvm.ptr``."""
    element = tt.element_of(type_)
    return ir.Type.parse("!llvm.ptr") if tt.is_ptr(element) else element


def pointee(type_: ir.Type) -> ir.Type:
    """What a pointer, or a tensor of pointers, points to, as it lies in memory (a boolean is a byte)."""
    if not tt.is_ptr(tt.element_of(type_)):
        raise UnsupportedError("tt.ptr", "", f"expected a pointer, found {type_}")
    return memory_type(scalar_type(tt.pointee(type_)))


def memory_type(element: ir.Type) -> ir.Type:
    """How an element lies in memory."""
    if _is_pointer(element):
        return ir.IntegerType.get_signless(64)
    if isinstance(element, ir.IntegerType) and element.width == 1 or is_float8(element):
        return ir.IntegerType.get_signless(8)
    return element


def bytes_of(element: ir.Type) -> int:
    """Bytes of an element in memory."""
    if isinstance(element, (ir.IntegerType, ir.FloatType)):
        return max(1, element.width // 8)
    return 8


def _is_pointer(type_: ir.Type) -> bool:
    return str(type_) == "!llvm.ptr"


def _widened(b: Builder, value: ir.Value, element: ir.Type) -> ir.Value:
    if isinstance(element, ir.IntegerType):
        return arith.extsi(element, value)
    return b.cast_float(value, element)
