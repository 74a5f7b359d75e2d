# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

"""Terse construction of vector-stage IR (scf, vector, arith, memref) from Python.

Sizes and indices are `Index = int | ir.Value`: a Python int is a size known at compile time, a Value
is an `index` computed at run time. All integer methods fold ints, loops of zero or one known trip are
dropped or inlined, so one emitter serves static and dynamic shapes alike, and a static shape leaves no
dead control flow behind.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, llvm, math, memref, scf, vector

Index = int | ir.Value
Condition = bool | ir.Value

_CMP = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
_PY_CMP: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "slt": lambda x, y: x < y,
    "sle": lambda x, y: x <= y,
    "sgt": lambda x, y: x > y,
    "sge": lambda x, y: x >= y,
    "ult": lambda x, y: x < y,
    "ule": lambda x, y: x <= y,
    "ugt": lambda x, y: x > y,
    "uge": lambda x, y: x >= y,
}
# In the order of arith.cmpf's encoding.
_CMPF = [
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
]


class Builder:
    """Emits ops at the current insertion point (`ir.InsertionPoint.current`).

    Constants are placed once at the start of `entry`, the kernel's entry block, which dominates every
    use. A context and a location must be active.

    >>> b = Builder(func.entry_block)
    >>> b.for_(0, n, 8, lambda i: b.vstore(b.vload(x, i, 8), y, i))
    """

    def __init__(self, entry: ir.Block):
        self.entry = entry
        self._constants: dict[tuple[str, str], ir.Value] = {}
        self.index_type = ir.IndexType.get()
        self.f32 = ir.F32Type.get()
        self.f64 = ir.F64Type.get()
        self.i1 = ir.IntegerType.get_signless(1)
        self.i8 = ir.IntegerType.get_signless(8)
        self.i16 = ir.IntegerType.get_signless(16)
        self.i32 = ir.IntegerType.get_signless(32)
        self.i64 = ir.IntegerType.get_signless(64)

    # -- types ---------------------------------------------------------------------------------

    def vec(self, width: int, element: ir.Type) -> ir.VectorType:
        """vector<width x element>."""
        return ir.VectorType.get([width], element)

    # -- constants -----------------------------------------------------------------------------

    def constant(self, attribute: ir.Attribute, type_: ir.Type) -> ir.Value:
        """An arith.constant at the kernel's entry, one per distinct attribute."""
        key = (str(attribute), str(type_))
        if key not in self._constants:
            with ir.InsertionPoint.at_block_begin(self.entry):
                op = ir.Operation.create("arith.constant", results=[type_], attributes={"value": attribute})
                self._constants[key] = op.result
        return self._constants[key]

    def value(self, x: Index) -> ir.Value:
        """The index as an SSA value."""
        if isinstance(x, int):
            return self.constant(ir.IntegerAttr.get(self.index_type, x), self.index_type)
        return x

    def int_(self, x: int, type_: ir.Type) -> ir.Value:
        """An integer constant of the type (scalar, or splat for a vector type)."""
        return self._splat_constant(type_, lambda t: ir.IntegerAttr.get(t, x))

    def float_(self, x: float, type_: ir.Type) -> ir.Value:
        """A float constant of the type (scalar, or splat for a vector type)."""
        return self._splat_constant(type_, lambda t: ir.FloatAttr.get(t, x))

    def zero(self, type_: ir.Type) -> ir.Value:
        """Zero of a float or integer, scalar or vector, type."""
        element = ir.VectorType(type_).element_type if isinstance(type_, ir.VectorType) else type_
        is_int = isinstance(element, (ir.IntegerType, ir.IndexType))
        return self.int_(0, type_) if is_int else self.float_(0.0, type_)

    def _splat_constant(self, type_: ir.Type, make: Callable[[ir.Type], ir.Attribute]) -> ir.Value:
        if isinstance(type_, ir.VectorType):
            return self.constant(ir.DenseElementsAttr.get_splat(type_, make(type_.element_type)), type_)
        return self.constant(make(type_), type_)

    # -- index arithmetic (folds Python ints) -----------------------------------------------------

    def addi(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if isinstance(x, int) and x == 0:
            return y
        if isinstance(y, int) and y == 0:
            return x
        return arith.addi(self.value(x), self.value(y))

    def sum_(self, *terms: Index) -> Index:
        """Sum; the known terms are added first, so that addresses keep their constant part last."""
        known = sum(t for t in terms if isinstance(t, int))
        total: Index = 0
        for t in terms:
            if not isinstance(t, int):
                total = self.addi(total, t)
        return self.addi(total, known)

    def subi(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        if isinstance(y, int) and y == 0:
            return x
        return arith.subi(self.value(x), self.value(y))

    def muli(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        for p, q in ((x, y), (y, x)):
            if isinstance(p, int) and p in (0, 1):
                return q if p else 0
        return arith.muli(self.value(x), self.value(y))

    def divi(self, x: Index, y: Index) -> Index:
        """x // y for non-negative x and positive y."""
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        if isinstance(y, int) and y == 1:
            return x
        return arith.divui(self.value(x), self.value(y))

    def remi(self, x: Index, y: Index) -> Index:
        """x % y for non-negative x and positive y."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        if isinstance(y, int) and y == 1:
            return 0
        return arith.remui(self.value(x), self.value(y))

    def ceildivi(self, x: Index, y: Index) -> Index:
        """ceil(x / y) for non-negative x and positive y."""
        return self.divi(self.addi(x, self.subi(y, 1)), y)

    def round_down(self, x: Index, unit: Index) -> Index:
        """The largest multiple of `unit` that is not above x (x >= 0)."""
        return self.subi(x, self.remi(x, unit))

    def mini(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        return arith.minsi(self.value(x), self.value(y))

    def maxi(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        return arith.maxsi(self.value(x), self.value(y))

    def cmpi(self, predicate: str, x: Index, y: Index) -> Condition:
        """Integer comparison; a Python bool when both sides are known. Predicates: eq ne slt sle sgt sge ult ..."""
        if isinstance(x, int) and isinstance(y, int):
            return _PY_CMP[predicate](x, y)
        return arith.cmpi(_CMP[predicate], self.value(x), self.value(y))

    def andc(self, x: Condition, y: Condition) -> Condition:
        """Conjunction of two conditions."""
        if isinstance(x, bool):
            return y if x else False
        if isinstance(y, bool):
            return x if y else False
        return arith.andi(x, y)

    def orc(self, x: Condition, y: Condition) -> Condition:
        """Disjunction of two conditions."""
        if isinstance(x, bool):
            return True if x else y
        if isinstance(y, bool):
            return True if y else x
        return arith.ori(x, y)

    def select_index(self, condition: Condition, x: Index, y: Index) -> Index:
        if isinstance(condition, bool):
            return x if condition else y
        return arith.select(condition, self.value(x), self.value(y))

    # -- control flow -------------------------------------------------------------------------------

    def for_(
        self,
        lower: Index,
        upper: Index,
        step: Index,
        body: Callable[..., Any],
        inits: Sequence[ir.Value] = (),
    ) -> list[ir.Value]:
        """scf.for. `body(i)`, or `body(i, carried) -> new carried` with `inits`; returns the final carried values.

        A loop known to run zero times vanishes, one known to run once is inlined with i = lower.
        """
        if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int):
            if lower >= upper:
                return list(inits)
            if lower + step >= upper:
                return list(body(lower, list(inits)) if inits else body(lower) or ())
        loop = scf.ForOp(self.value(lower), self.value(upper), self.value(step), list(inits))
        with ir.InsertionPoint(loop.body):
            if inits:
                scf.yield_(list(body(loop.induction_variable, list(loop.inner_iter_args))))
            else:
                body(loop.induction_variable)
                scf.yield_([])
        return list(loop.results)

    def if_(
        self,
        condition: Condition,
        then: Callable[[], Any],
        otherwise: Callable[[], Any] | None = None,
        types: Sequence[ir.Type] = (),
    ) -> list[ir.Value]:
        """scf.if; with `types`, both branches return that many values. A known condition emits one branch only."""
        if isinstance(condition, bool):
            branch = then if condition else otherwise
            return list((branch() if branch else None) or ())
        op = scf.IfOp(condition, list(types), has_else=otherwise is not None)
        for block, branch in ((op.then_block, then), (op.else_block if otherwise else None, otherwise)):
            if block is not None and branch is not None:
                with ir.InsertionPoint(block):
                    scf.yield_(list(branch() or ()) if types else (branch(), [])[1])
        return list(op.results)

    # -- memory ---------------------------------------------------------------------------------------

    def load(self, buffer: ir.Value, index: Index) -> ir.Value:
        """One element of a 1-D memref."""
        return memref.load(buffer, [self.value(index)])

    def store(self, value: ir.Value, buffer: ir.Value, index: Index) -> None:
        memref.store(value, buffer, [self.value(index)])

    def vload(self, buffer: ir.Value, index: Index, width: int, mask: ir.Value | None = None) -> ir.Value:
        """`width` consecutive elements; masked-off lanes read as zero and touch no memory."""
        type_ = self.vec(width, ir.MemRefType(buffer.type).element_type)
        if mask is None:
            return vector.load(type_, buffer, [self.value(index)])
        if isinstance(type_.element_type, ir.BF16Type):
            bits = self.vec(width, self.i16)
            lanes = llvm.intr_masked_load(bits, self._address(buffer, index, 2), mask, 2, pass_thru=self.zero(bits))
            return vector.bitcast(type_, lanes)
        return vector.maskedload(type_, buffer, [self.value(index)], mask, self.zero(type_))

    def vstore(self, value: ir.Value, buffer: ir.Value, index: Index, mask: ir.Value | None = None) -> None:
        """Stores consecutive elements; masked-off lanes are not written."""
        if mask is None:
            vector.store(value, buffer, [self.value(index)])
        elif isinstance(ir.VectorType(value.type).element_type, ir.BF16Type):
            bits = vector.bitcast(self.vec(value.type.shape[0], self.i16), value)
            llvm.intr_masked_store(bits, self._address(buffer, index, 2), mask, 2)
        else:
            vector.maskedstore(buffer, [self.value(index)], mask, value)

    def _address(self, buffer: ir.Value, index: Index, size: int) -> ir.Value:
        """The element's address. Masked accesses of bf16 go through it as i16: LLVM takes them apart into single
        elements, which for bf16 it converts by calls of a library function that is not there."""
        base = memref.extract_aligned_pointer_as_index(buffer)
        address = arith.index_cast(self.i64, self.value(self.addi(base, self.muli(index, size))))
        return llvm.inttoptr(ir.Type.parse("!llvm.ptr"), address)

    def gather(
        self, buffer: ir.Value, index: Index, stride: Index, width: int, mask: ir.Value | None = None
    ) -> ir.Value:
        """Elements index + lane * stride (stride 0 broadcasts, 1 is a plain load); masked-off lanes are zero."""
        if isinstance(stride, int) and stride == 1:
            return self.vload(buffer, index, width, mask)
        element = ir.MemRefType(buffer.type).element_type
        type_ = self.vec(width, element)
        if isinstance(stride, int) and stride == 0:
            return self.broadcast(self.load(buffer, index), width)
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

    def prefetch(self, buffer: ir.Value, index: Index, locality: int = 3, write: bool = False) -> None:
        """Software prefetch of the line that holds the element (locality 3: L1, 2: L2, 1: L3)."""
        memref.prefetch(buffer, [self.value(index)], is_write=write, locality_hint=locality, is_data_cache=True)

    def view(self, scratch: ir.Value, byte_offset: Index, count: Index, element: ir.Type) -> ir.Value:
        """A typed 1-D view memref<?xelement> of a memref<?xi8>."""
        type_ = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], element)
        return memref.view(type_, scratch, self.value(byte_offset), [self.value(count)])

    # -- vectors -----------------------------------------------------------------------------------------

    def broadcast(self, scalar: ir.Value, width: int) -> ir.Value:
        return vector.broadcast(self.vec(width, scalar.type), scalar)

    def step(self, width: int) -> ir.Value:
        """vector<width x index> 0, 1, 2, ..."""
        type_ = self.vec(width, self.index_type)
        attribute = ir.DenseElementsAttr.get([ir.IntegerAttr.get(self.index_type, i) for i in range(width)], type_)
        return self.constant(attribute, type_)

    def mask_below(self, count: Index, width: int) -> ir.Value | None:
        """vector<width x i1>, lane < count; None when every lane is known to be on."""
        if isinstance(count, int) and count >= width:
            return None
        return vector.create_mask(self.vec(width, self.i1), [self.value(count)])

    def tail_mask(self, count: Index, width: int) -> ir.Value | None:
        """The mask of a tail of fewer than `width` elements; None where there is known to be no tail."""
        return None if isinstance(count, int) and count == 0 else self.mask_below(count, width)

    def addiv(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return arith.addi(x, y)

    def muliv(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return arith.muli(x, y)

    def fma(self, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
        """x * y + z, rounded once; vectors or scalars."""
        return vector.fma(x, y, z) if isinstance(x.type, ir.VectorType) else math.fma(x, y, z)

    def addf(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return arith.addf(x, y)

    def subf(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return arith.subf(x, y)

    def mulf(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return arith.mulf(x, y)

    def divf(self, x: ir.Value, y: ir.Value) -> ir.Value:
        return arith.divf(x, y)

    def cmpf(self, predicate: str, x: ir.Value, y: ir.Value) -> ir.Value:
        """Float comparison; predicates as in arith.cmpf (oeq, olt, uno, ...)."""
        return arith.cmpf(_CMPF.index(predicate), x, y)

    def select(self, condition: ir.Value, x: ir.Value, y: ir.Value) -> ir.Value:
        return arith.select(condition, x, y)

    def fmax(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """One-instruction maximum: x if x > y else y (a NaN in x gives y, a NaN in y gives y)."""
        return self.select(self.cmpf("ogt", x, y), x, y)

    def fmin(self, x: ir.Value, y: ir.Value) -> ir.Value:
        """One-instruction minimum: x if x < y else y."""
        return self.select(self.cmpf("olt", x, y), x, y)

    def shuffle(self, x: ir.Value, y: ir.Value, lanes: Sequence[int]) -> ir.Value:
        return vector.shuffle(x, y, list(lanes))

    def extract(self, x: ir.Value, lane: int) -> ir.Value:
        return vector.extract(x, [], [lane])

    def reduce(self, kind: str, x: ir.Value, reassociate: bool = True) -> ir.Value:
        """Horizontal reduction; kind: add, mul, minnumf, maxnumf, minimumf, maximumf, ... With
        `reassociate` a float sum is a tree (fast) instead of a chain of lanes."""
        element = ir.VectorType(x.type).element_type
        flags = ir.Attribute.parse("#arith.fastmath<reassoc>") if reassociate and kind in ("add", "mul") else None
        return vector.reduction(element, ir.Attribute.parse(f"#vector.kind<{kind}>"), x, fastmath=flags)

    # -- casts -------------------------------------------------------------------------------------------

    def cast_float(self, x: ir.Value, element: ir.Type) -> ir.Value:
        """To another float type (scalar or vector), widening or rounding to nearest even."""
        vector_type = x.type if isinstance(x.type, ir.VectorType) else None
        source = vector_type.element_type if vector_type else x.type
        if source == element:
            return x
        target = ir.VectorType.get(vector_type.shape, element) if vector_type else element
        bits = {ir.F64Type: 64, ir.F32Type: 32}
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
        return self.divi(self.muli(tid, total), nt), self.divi(self.muli(self.addi(tid, 1), total), nt)
