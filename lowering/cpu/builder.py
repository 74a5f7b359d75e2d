# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Terse construction of vector-stage IR (scf, vector, arith, memref) from Python.

Sizes and indices are `Index = int | ir.Value`: a Python int is a size known at compile time, a Value
is an `index` computed at run time.
"""

from collections.abc import Callable, Hashable, Sequence
from math import gcd
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, math, memref, vector
from typing_extensions import override

from kiln.dialects.elements import element_of
from kiln.lowering.cpu import isa
from kiln.lowering.cpu.known_integers import KnownIntegers
from kiln.lowering.float8 import is_float8
from kiln.lowering.ir_builder import Condition, Index

__all__ = ["INTERLEAVED", "Builder", "Condition", "Index", "is_interleaved"]

INTERLEAVED = 8
"""The greatest stride of lanes whose elements are loaded with all that lies between them, and shuffled."""

BYTES = 16
"""Lanes of a vector of bytes that is shuffled together from several."""


def is_interleaved(stride: int, width: int, element: ir.Type) -> bool:
    """Whether `Builder.gather` loads what lies between the lanes, of which a machine vector has at least two then, and
    shuffles. Bytes have fewer cheap shuffles, and LLVM does not come to an end where 64 of them are turned around and
    doubled.
    """
    bits = getattr(element, "width", 64)
    if bits <= 8:
        return 2 <= stride <= 4 and width > 2 and width & (width - 1) == 0
    most = min(INTERLEAVED, isa.target().vector_bytes * 4 // bits)
    return width > 2 and width & (width - 1) == 0 and stride != 1 and 1 <= abs(stride) <= most


class Builder(KnownIntegers):
    """Emits ops at the current insertion point (`ir.InsertionPoint.current`).

    >>> b = Builder(func.entry_block)
    >>> b.for_(0, n, 8, lambda i: b.vstore(b.vload(x, i, 8), y, i))
    """

    def __init__(self, entry: ir.Block):
        super().__init__(entry)
        self.index_type = ir.IndexType.get()

    # -- types ---------------------------------------------------------------------------------

    def vec(self, width: int, element: ir.Type) -> ir.VectorType:
        """vector<width x element>."""
        return ir.VectorType.get([width], element)

    # -- constants -----------------------------------------------------------------------------

    def constant(self, attribute: ir.Attribute, type_: ir.Type) -> ir.Value:
        """An arith.constant at the kernel's entry, one per distinct attribute."""
        return self.attribute_constant(attribute, type_)

    def value(self, x: Any, like: ir.Type | None = None) -> ir.Value:
        """An index, or a value of any type, as an SSA value."""
        if isinstance(x, int):
            return self.constant(ir.IntegerAttr.get(self.index_type, x), self.index_type)
        return x

    def condition(self, x: Condition) -> ir.Value:
        """The condition as an SSA value."""
        return self.int_(int(x), self.i1) if isinstance(x, bool) else x

    def together(self, *values: ir.Value) -> list[ir.Value]:
        """The values as vectors if one of them is one: scalars are broadcast to its shape."""
        vectors = (v.type for v in values if isinstance(v.type, ir.VectorType))
        shape = next((t.shape for t in vectors), None)
        if shape is None:
            return list(values)
        return [
            v if isinstance(v.type, ir.VectorType) else vector.broadcast(ir.VectorType.get(shape, v.type), v)
            for v in values
        ]

    def int_(self, x: int, type_: ir.Type) -> ir.Value:
        """An integer constant of the type (scalar, or splat for a vector type)."""
        return self._splat_constant(type_, lambda t: ir.IntegerAttr.get(t, x))

    def integer_of(self, x: Index, type_: ir.IntegerType) -> ir.Value:
        """An index as an integer of the type."""
        return self.int_(x, type_) if isinstance(x, int) else arith.index_cast(type_, x)

    def float_(self, x: float, type_: ir.Type) -> ir.Value:
        """A float constant of the type (scalar, or splat for a vector type)."""
        return self._splat_constant(type_, lambda t: ir.FloatAttr.get(t, x))

    def zero(self, type_: ir.Type) -> ir.Value:
        """Zero of a float or integer, scalar or vector, type."""
        element = element_of(type_)
        is_int = isinstance(element, (ir.IntegerType, ir.IndexType))
        return self.int_(0, type_) if is_int else self.float_(0.0, type_)

    def _splat_constant(self, type_: ir.Type, make: Callable[[ir.Type], ir.Attribute]) -> ir.Value:
        if isinstance(type_, ir.VectorType):
            return self.constant(ir.DenseElementsAttr.get_splat(type_, make(type_.element_type)), type_)
        return self.constant(make(type_), type_)

    # -- index arithmetic (folds Python ints) -----------------------------------------------------

    def sum_(self, *terms: Index) -> Index:
        """Sum; the known terms are added first, so that addresses keep their constant part last."""
        known = sum(t for t in terms if isinstance(t, int))
        total: Index = 0
        for t in terms:
            if not isinstance(t, int):
                total = self.addi(total, t)
        return self.addi(total, known)

    def round_down(self, x: Index, unit: Index) -> Index:
        """The largest multiple of `unit` that is not above x (x >= 0)."""
        return self.subi(x, self.remi(x, unit))

    @override
    def select(self, condition: Condition, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """x or y. A condition of all lanes at once stays a scalar where there are no registers for masks."""
        if not isinstance(condition, ir.Value) or isinstance(condition.type, ir.VectorType) or isa.target().has_masks:
            return super().select(condition, x, y)
        return arith.select(condition, *self.together(*self.pair(x, y)))

    def select_index(self, condition: Condition, x: Index, y: Index) -> Index:
        """x or y; known where the condition is and what it picks."""
        if isinstance(condition, bool):
            return x if condition else y
        (low, high, p), (low1, high1, q) = self.known(x), self.known(y)
        chosen = arith.select(condition, self.value(x), self.value(y))
        return self._learn(chosen, min(low, low1), max(high, high1), gcd(p, q))

    # -- memory ---------------------------------------------------------------------------------------

    def load(self, buffer: ir.Value, index: Index) -> ir.Value:
        """One element of a 1-D memref."""
        return memref.load(buffer, [self.value(index)])

    def store(self, value: ir.Value, buffer: ir.Value, index: Index) -> None:
        """Store a scalar at an index of a 1-D buffer."""
        memref.store(value, buffer, [self.value(index)])

    def vload(
        self, buffer: ir.Value, index: Index, width: int, mask: ir.Value | None = None, off: ir.Value | None = None
    ) -> ir.Value:
        """`width` consecutive elements; masked-off lanes touch no memory and are those of `off`, or zero."""
        type_ = self.vec(width, ir.MemRefType(buffer.type).element_type)
        if mask is None:
            return vector.load(type_, buffer, [self.value(index)])
        if isinstance(type_.element_type, ir.BF16Type):
            bits = self.vec(width, self.i16)
            rest = vector.bitcast(bits, off) if off is not None else self.zero(bits)
            lanes = llvm.intr_masked_load(bits, self.address(buffer, index), mask, 2, pass_thru=rest)
            return vector.bitcast(type_, lanes)
        return vector.maskedload(type_, buffer, [self.value(index)], mask, off or self.zero(type_))

    def vstore(self, value: ir.Value, buffer: ir.Value, index: Index, mask: ir.Value | None = None) -> None:
        """Stores consecutive elements; masked-off lanes are not written."""
        if mask is None:
            vector.store(value, buffer, [self.value(index)])
        elif isinstance(ir.VectorType(value.type).element_type, ir.BF16Type):
            bits = vector.bitcast(self.vec(value.type.shape[0], self.i16), value)
            llvm.intr_masked_store(bits, self.address(buffer, index), mask, 2)
        else:
            vector.maskedstore(buffer, [self.value(index)], mask, value)

    def address(self, buffer: ir.Value, index: Index) -> ir.Value:
        """The element's address. Masked accesses of bf16 go through it as i16: LLVM takes them apart into single
        elements, which for bf16 it converts by calls of a library function that is not there.
        """
        base, size = memref.extract_aligned_pointer_as_index(buffer), ir.MemRefType(buffer.type).element_type.width // 8
        address = arith.index_cast(self.i64, self.value(self.addi(base, self.muli(index, size))))
        return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), address)

    def in_frame(self, key: tuple[Hashable, ...], type_: ir.Type, alignment: int = 8) -> ir.Value:
        """The address of memory for a value in the function's frame: the same for all that ask with this key."""

        def make() -> ir.Value:
            count = llvm.ConstantOp(self.i64, ir.IntegerAttr.get(self.i64, 1)).result
            return llvm.AllocaOp(ir.Type.parse("!llvm.ptr"), count, type_, alignment=alignment).result

        return self._once((*key, type_), make)

    def gather(
        self, buffer: ir.Value, index: Index, stride: Index, width: int, mask: ir.Value | None = None, phase: int = 0
    ) -> ir.Value:
        """Elements index + lane * stride (stride 0 broadcasts, 1 is a plain load); masked-off lanes are zero.
        Backwards it is what forwards is, turned around.

        phase: elements before `index` that are in the buffer, too.
        """
        if isinstance(stride, int) and stride == 1:
            return self.vload(buffer, index, width, mask)
        element = ir.MemRefType(buffer.type).element_type
        type_ = self.vec(width, element)
        if isinstance(stride, int) and stride == 0 and mask is None:
            return self.broadcast(self.load(buffer, index), width)
        if isinstance(stride, int) and stride < 0 and is_interleaved(stride, width, element):
            back = list(reversed(range(width)))
            turned = None if mask is None else self.shuffle(mask, mask, back)
            lanes = self.gather(buffer, self.addi(index, stride * (width - 1)), -stride, width, turned)
            return self.shuffle(lanes, lanes, back)
        if isinstance(stride, int) and is_interleaved(stride, width, element):
            return self._interleaved(buffer, index, stride, width, mask, phase % stride)
        lanes = self.muliv(self.step(width), self.broadcast(self.value(stride), width))
        mask = (
            mask
            if mask is not None
            else self.constant(
                ir.DenseElementsAttr.get_splat(self.vec(width, self.i1), ir.BoolAttr.get(True)),
                self.vec(width, self.i1),
            )
        )
        return vector.gather(type_, buffer, [self.value(index)], lanes, mask, self.zero(type_))

    def _interleaved(
        self, buffer: ir.Value, index: Index, stride: int, width: int, mask: ir.Value | None, phase: int
    ) -> ir.Value:
        """Elements index + stride * lane, a machine vector at a time."""
        type_ = self.vec(width, ir.MemRefType(buffer.type).element_type)
        lanes = min(width, isa.target().vector_bytes * 8 // type_.element_type.width)
        if type_.element_type.width <= 8 and stride > 2:
            lanes = min(lanes, BYTES)
        result: ir.Value | None = None
        for first in range(0, width, lanes):
            on = None if mask is None else self.shuffle(mask, mask, range(first, first + lanes))
            part = self._every(buffer, self.addi(index, first * stride), stride, lanes, on, phase)
            if lanes == width:
                return part
            result = vector.insert_strided_slice(part, result or self.zero(type_), [first], [1])
        assert result is not None
        return result

    def _every(
        self, buffer: ir.Value, index: Index, stride: int, width: int, mask: ir.Value | None, phase: int
    ) -> ir.Value:
        """The same by `stride` loads, the first from `phase` elements before, where those of another slice may begin,
        too; the last one ends at the last lane's element, behind which there may be nothing.
        """
        result: ir.Value | None = None
        places = [phase + stride * lane for lane in range(width)]
        for k in range(stride):
            start = k * width if k < stride - 1 else places[-1] - width + 1
            held = {i: p - start for i, p in enumerate(places) if p // width == k}
            on = None
            if mask is not None:
                wanted = {place: i for i, place in held.items()}
                on = self.shuffle(mask, self.zero(mask.type), [wanted.get(i, width) for i in range(width)])
            part = self.vload(buffer, self.addi(index, start - phase), width, on)
            if result is None:
                result = self.shuffle(part, part, [held.get(i, 0) for i in range(width)])
            else:
                result = self.shuffle(result, part, [width + held[i] if i in held else i for i in range(width)])
        assert result is not None
        return result

    def prefetch(self, buffer: ir.Value, index: Index, locality: int = 3, write: bool = False) -> None:
        """Software prefetch of the line that holds the element (locality 3: L1, 2: L2, 1: L3)."""
        memref.prefetch(buffer, [self.value(index)], is_write=write, locality_hint=locality, is_data_cache=True)

    def view(self, scratch: ir.Value, byte_offset: Index, count: Index, element: ir.Type) -> ir.Value:
        """A typed 1-D view memref<?xelement> of a memref<?xi8>."""
        type_ = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)
        return memref.view(type_, scratch, self.value(byte_offset), [self.value(count)])

    # -- vectors -----------------------------------------------------------------------------------------

    def broadcast(self, scalar: ir.Value, width: int) -> ir.Value:
        """A vector of `width` lanes that all hold `scalar`."""
        return vector.broadcast(self.vec(width, scalar.type), scalar)

    def step(self, width: int) -> ir.Value:
        """vector<width x index> 0, 1, 2, ..."""
        return self.numbers(range(width))

    def numbers(self, values: Sequence[int], type_: ir.Type | None = None) -> ir.Value:
        """A vector of integer constants, by default indices."""
        element = type_ or self.index_type
        vector_type = self.vec(len(values), element)
        return self.constant(
            ir.DenseElementsAttr.get([ir.IntegerAttr.get(element, i) for i in values], vector_type), vector_type
        )

    def mask_of(self, bits: Sequence[bool]) -> ir.Value:
        """A vector of i1 constants."""
        type_ = self.vec(len(bits), self.i1)
        return self.constant(ir.DenseElementsAttr.get([ir.BoolAttr.get(bit) for bit in bits], type_), type_)

    def mask_below(self, count: Index, width: int) -> ir.Value | None:
        """vector<width x i1>, lane < count; None when every lane is known to be on."""
        if self.known(count)[0] >= width:
            return None
        return vector.create_mask(self.vec(width, self.i1), [self.value(count)])

    def mask_between(self, low: Index, high: Index, width: int) -> ir.Value | None:
        """vector<width x i1>, low <= lane < high, neither negative; None when every lane is known to be on."""
        if isinstance(low, int) and isinstance(high, int):
            if low == 0 and high >= width:
                return None
            return self.mask_of([low <= i < high for i in range(width)])
        below = self.mask_below(high, width)
        if isinstance(low, int) and low == 0:
            return below
        before = vector.create_mask(self.vec(width, self.i1), [self.value(low)])
        after = arith.xori(before, self.int_(-1, before.type))
        return after if below is None else arith.andi(below, after)

    def tail_mask(self, count: Index, width: int) -> ir.Value | None:
        """The mask of a tail of fewer than `width` elements; None where there is known to be no tail."""
        return None if isinstance(count, int) and count == 0 else self.mask_below(count, width)

    def addiv(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """`x + y` of integer vectors; never folded."""
        return arith.addi(x, y)

    def muliv(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """`x * y` of integer vectors; never folded."""
        return arith.muli(x, y)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x * y + z, rounded once; vectors or scalars."""
        return vector.fma(x, y, z) if isinstance(x.type, ir.VectorType) else math.fma(x, y, z)

    def fmax(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """One-instruction maximum: x if x > y else y (a NaN in x gives y, a NaN in y gives y)."""
        return self.select(self.cmpf("ogt", x, y), x, y)

    def fmin(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """One-instruction minimum: x if x < y else y."""
        return self.select(self.cmpf("olt", x, y), x, y)

    def shuffle(self, x: ir.Value, y: ir.Value, lanes: Sequence[int]) -> ir.Value:
        """Lanes chosen of two vectors laid end to end."""
        return vector.shuffle(x, y, list(lanes))

    def extract(self, x: ir.Value, lane: int) -> ir.Value:
        """One lane of a vector, by a number."""
        return vector.extract(x, [], [lane])

    def reduce(self, kind: str, x: ir.Value, reassociate: bool = True) -> ir.Value:
        """Horizontal reduction; kind: add, mul, minnumf, maxnumf, minimumf, maximumf, ... With
        `reassociate` a float sum is a tree (fast) instead of a chain of lanes.
        """
        element = ir.VectorType(x.type).element_type
        flags = ir.Attribute.parse("#arith.fastmath<reassoc>") if reassociate and kind in ("add", "mul") else None
        return vector.reduction(element, ir.Attribute.parse(f"#vector.kind<{kind}>"), x, fastmath=flags)

    # -- casts -------------------------------------------------------------------------------------------

    def cast_float(self, x: ir.Value, element: ir.Type) -> ir.Value:
        """To another float type (scalar or vector), widening or rounding to nearest even; signed integers to f32 or f64
        or, if they have 8 bits, to any.
        """
        vector_type = x.type if isinstance(x.type, ir.VectorType) else None
        source = vector_type.element_type if vector_type else x.type
        if source == element:
            return x
        target = ir.VectorType.get(vector_type.shape, element) if vector_type else element
        if isinstance(source, ir.IntegerType):
            if isinstance(element, (ir.F32Type, ir.F64Type)):
                return arith.sitofp(target, x)
            return self.cast_float(self.cast_float(x, self.f32), element)
        if is_float8(source) or is_float8(element):  # by way of f32
            if is_float8(source):
                wide = ir.VectorType.get(vector_type.shape, self.f32) if vector_type else self.f32
                return self.cast_float(arith.extf(wide, x), element)
            return arith.truncf(target, self.cast_float(x, self.f32))
        bits: dict[type, int] = {ir.F64Type: 64, ir.F32Type: 32}
        if bits.get(type(element), 16) > bits.get(type(source), 16):
            return arith.extf(target, x)
        if bits.get(type(element), 16) == bits.get(type(source), 16):  # bf16 <-> f16 go through f32
            return self.cast_float(self.cast_float(x, self.f32), element)
        return arith.truncf(target, x)

    def to_index(self, x: ir.Value) -> ir.Value:
        """A signed integer (or vector) as index."""
        type_ = x.type
        if isinstance(type_, ir.VectorType):
            return arith.index_cast(ir.VectorType.get(type_.shape, self.index_type), x)
        return x if isinstance(type_, ir.IndexType) else arith.index_cast(self.index_type, x)

    # -- threads -----------------------------------------------------------------------------------------

    def split(self, tid: Index, nt: Index, total: Index) -> tuple[Index, Index]:
        """This thread's share [lo, hi) of `total` units, sizes equal to within one."""
        lo, hi = self.divi(self.muli(tid, total), nt), self.divi(self.muli(self.addi(tid, 1), total), nt)
        most = self.known(total)[1]  # as tid < nt
        return self._learn(lo, 0, most, 1), self._learn(hi, 0, most, 1)
