# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Terse construction of Triton IR (`tt`, arith, math, scf) from Python.

Integers are `Index = int | ir.Value`: a Python int is known at compile time; a Value is an integer scalar or block.
Integer methods fold what is known and turn ints into constants of the other side's type.  All two-sided methods
broadcast: a scalar meets a block as a splat, a dim of size 1 grows.  So kernels are written as with `triton.language`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith, scf

from kiln.dialects import tt

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
_FLOAT_BITS = {ir.F64Type: 64, ir.F32Type: 32, ir.F16Type: 16, ir.BF16Type: 16}


def is_float(type_: ir.Type) -> bool:
    """Whether the (element) type is a float type, an 8-bit one included."""
    return isinstance(tt.element_of(type_), ir.FloatType)


def kernel(
    name: str,
    types: Sequence[ir.Type],
    body: Callable[..., Any],
    arg_attrs: Sequence[str] | None = None,
    attributes: dict[str, ir.Attribute] | None = None,
) -> tt.FuncOp:
    """A public `tt.func` at the insertion point; `body(builder, *arguments)` emits what it does.

    `arg_attrs` has one dictionary attribute as text per argument ("{}" for none).
    """
    given = {
        "sym_name": ir.StringAttr.get(name),
        "sym_visibility": ir.StringAttr.get("public"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(types), [])),
        "noinline": ir.BoolAttr.get(False),
        **(attributes or {}),
    }
    if arg_attrs is not None:
        given["arg_attrs"] = ir.ArrayAttr.get([ir.Attribute.parse(a) for a in arg_attrs])
    func = tt.FuncOp.create([], [], given, regions=1)
    block = func.regions[0].blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types))
    with ir.InsertionPoint(block):
        body(Builder(block), *block.arguments)
        tt.ReturnOp.create([], [], {})
    return func


class Builder:
    """Emits ops at the current insertion point.

    Constants and ranges are placed once at the start of `entry`, the kernel's entry block.  `index` is the type that
    Python ints take when nothing else says (i32, or i64 for a kernel with large operands).

    >>> i = b.addi(b.muli(b.program_id(0), 1024), b.arange(1024))
    >>> b.store(b.addptr(y, i), b.mulf(b.load(b.addptr(x, i), mask), 2.0), mask)
    """

    def __init__(self, entry: ir.Block, index: ir.Type | None = None):
        self.entry = entry
        self._shared: dict[tuple[str, ...], ir.Value] = {}
        self.i1 = ir.IntegerType.get_signless(1)
        self.i8 = ir.IntegerType.get_signless(8)
        self.i16 = ir.IntegerType.get_signless(16)
        self.i32 = ir.IntegerType.get_signless(32)
        self.i64 = ir.IntegerType.get_signless(64)
        self.f16 = ir.F16Type.get()
        self.bf16 = ir.BF16Type.get()
        self.f32 = ir.F32Type.get()
        self.f64 = ir.F64Type.get()
        self.index = index or self.i32

    def _once(self, key: tuple[str, ...], make: Callable[[], ir.Value]) -> ir.Value:
        if key not in self._shared:
            with ir.InsertionPoint.at_block_begin(self.entry):
                self._shared[key] = make()
        return self._shared[key]

    # -- constants and positions -----------------------------------------------------------------------------

    def constant(self, value: float | bool, type_: ir.Type) -> ir.Value:
        """A number of a scalar or block type (a splat), once per kernel."""
        element = tt.element_of(type_)
        attribute: Any
        if isinstance(element, ir.IntegerType):
            bits = int(value) & ((1 << element.width) - 1)
            signed = bits - (1 << element.width) if element.width > 1 and bits >> (element.width - 1) else bits
            attribute = ir.IntegerAttr.get(element, signed)
        else:
            attribute = ir.FloatAttr.get(element, float(value))
        if tt.is_block(type_):
            attribute = ir.DenseElementsAttr.get_splat(type_, attribute)

        def make() -> ir.Value:
            return ir.Operation.create("arith.constant", results=[type_], attributes={"value": attribute}).result

        return self._once(("constant", str(attribute), str(type_)), make)

    def value(self, x: Index | float, like: ir.Type | None = None) -> ir.Value:
        """`x` as an SSA value; a Python number becomes a constant of the element type of `like` (else `index`)."""
        if isinstance(x, ir.Value):
            return x
        return self.constant(x, tt.element_of(like) if like is not None else self.index)

    def program_id(self, axis: int) -> ir.Value:
        """This program's position along a grid axis, as i32."""
        attributes = {"axis": self._i32(axis)}
        return self._once(("pid", str(axis)), lambda: tt.GetProgramIdOp.create([], [self.i32], attributes).result)

    def num_programs(self, axis: int) -> ir.Value:
        attributes = {"axis": self._i32(axis)}
        return self._once(("np", str(axis)), lambda: tt.GetNumProgramsOp.create([], [self.i32], attributes).result)

    def arange(self, length: int) -> ir.Value:
        """0, 1, ..., length - 1 as a 1-D block of `index`."""
        type_ = ir.RankedTensorType.get([length], self.i32)

        def make() -> ir.Value:
            x = tt.MakeRangeOp.create([], [type_], {"start": self._i32(0), "end": self._i32(length)}).result
            return x if self.index == self.i32 else arith.extsi(ir.RankedTensorType.get([length], self.index), x)

        return self._once(("range", str(length)), make)

    def lanes(self, length: int, axis: int, rank: int) -> ir.Value:
        """0, 1, ..., length - 1 along `axis` of a block of this rank whose other dims are 1."""
        x = self.arange(length)
        for i in range(rank):
            if i != axis:
                x = self.expand_dims(x, i)
        return x

    def _i32(self, value: int) -> ir.IntegerAttr:
        return ir.IntegerAttr.get(self.i32, value)

    # -- shapes ----------------------------------------------------------------------------------------------

    def splat(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """A scalar everywhere in a block; of a constant a constant."""
        owner = x.owner
        if shape and not isinstance(owner, ir.Block) and owner.operation.name == "arith.constant":
            value = owner.operation.attributes["value"].value
            return self.constant(value, ir.RankedTensorType.get(list(shape), x.type))
        return tt.SplatOp.create([x], [ir.RankedTensorType.get(list(shape), x.type)]).result if shape else x

    def expand_dims(self, x: ir.Value, axis: int) -> ir.Value:
        shape = tt.shape_of(x.type)
        shape.insert(axis, 1)
        if not tt.is_block(x.type):
            return self.splat(x, shape)
        type_ = ir.RankedTensorType.get(shape, tt.element_of(x.type))
        return tt.ExpandDimsOp.create([x], [type_], {"axis": self._i32(axis)}).result

    def broadcast(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        """`x` in this shape: a scalar is splat, a block of the same rank grows its dims of size 1."""
        shape = list(shape)
        if tt.shape_of(x.type) == shape:
            return x
        if not tt.is_block(x.type):
            return self.splat(x, shape)
        return tt.BroadcastOp.create([x], [ir.RankedTensorType.get(shape, tt.element_of(x.type))]).result

    def together(self, *values: ir.Value) -> list[ir.Value]:
        """The values broadcast to one shape.  Blocks must have one rank and agree where neither size is 1."""
        shape: list[int] = []
        for v in values:
            own = tt.shape_of(v.type)
            if not own:
                continue
            if not shape:
                shape = own
            elif len(shape) != len(own) or any(a != b and 1 not in (a, b) for a, b in zip(shape, own, strict=True)):
                raise ValueError(f"blocks of shapes {shape} and {own} do not broadcast")
            else:
                shape = [max(a, b) for a, b in zip(shape, own, strict=True)]
        return [self.broadcast(v, shape) for v in values]

    def reshape(self, x: ir.Value, shape: Sequence[int]) -> ir.Value:
        if tt.shape_of(x.type) == list(shape):
            return x
        return tt.ReshapeOp.create([x], [ir.RankedTensorType.get(list(shape), tt.element_of(x.type))]).result

    def trans(self, x: ir.Value, order: Sequence[int] = (1, 0)) -> ir.Value:
        """Dim i of the result is dim `order[i]` of x."""
        shape = tt.shape_of(x.type)
        type_ = ir.RankedTensorType.get([shape[i] for i in order], tt.element_of(x.type))
        return tt.TransOp.create([x], [type_], {"order": ir.DenseI32ArrayAttr.get(list(order))}).result

    def join(self, x: ir.Value, y: ir.Value) -> ir.Value:
        type_ = ir.RankedTensorType.get([*tt.shape_of(x.type), 2], tt.element_of(x.type))
        return tt.JoinOp.create([x, y], [type_]).result

    # -- integers (Python ints fold) -------------------------------------------------------------------------

    def pair(self, x: Index | float, y: Index | float) -> list[ir.Value]:
        """Two operands as values of one type: numbers take the other's element type, shapes broadcast."""
        like = x.type if isinstance(x, ir.Value) else y.type if isinstance(y, ir.Value) else None
        return self.together(self.value(x, like), self.value(y, like))

    def addi(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x + y
        if isinstance(x, int) and x == 0:
            return y
        if isinstance(y, int) and y == 0:
            return x
        return arith.addi(*self.pair(x, y))

    def sum_(self, *terms: Index) -> Index:
        """The sum, scalars first: what is the same for the whole block stays scalar."""
        known = sum(t for t in terms if isinstance(t, int))
        values = [t for t in terms if isinstance(t, ir.Value)]
        total: Index = 0
        for t in sorted(values, key=lambda v: len(tt.shape_of(v.type))):
            if known and tt.is_block(t.type):
                total, known = self.addi(total, known), 0
            total = self.addi(total, t)
        return self.addi(total, known)

    def subi(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x - y
        if isinstance(y, int) and y == 0:
            return x
        return arith.subi(*self.pair(x, y))

    def muli(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return x * y
        for p, q in ((x, y), (y, x)):
            if isinstance(p, int) and p in (0, 1):
                return q if p else 0
        return arith.muli(*self.pair(x, y))

    def divi(self, x: Index, y: Index) -> Index:
        """x // y for non-negative x and positive y."""
        if isinstance(x, int) and isinstance(y, int):
            return x // y
        if isinstance(y, int) and y == 1:
            return x
        return arith.divui(*self.pair(x, y))

    def remi(self, x: Index, y: Index) -> Index:
        """x % y for non-negative x and positive y."""
        if isinstance(x, int) and isinstance(y, int):
            return x % y
        if isinstance(y, int) and y == 1:
            return 0
        return arith.remui(*self.pair(x, y))

    def ceildivi(self, x: Index, y: Index) -> Index:
        """ceil(x / y) for non-negative x and positive y."""
        return self.divi(self.addi(x, self.subi(y, 1)), y)

    def mini(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return min(x, y)
        return arith.minsi(*self.pair(x, y))

    def maxi(self, x: Index, y: Index) -> Index:
        if isinstance(x, int) and isinstance(y, int):
            return max(x, y)
        return arith.maxsi(*self.pair(x, y))

    def cmpi(self, predicate: str, x: Index, y: Index) -> Condition:
        """Integer comparison; a Python bool when both sides are known.  Predicates: eq ne slt sle sgt sge ult ..."""
        if isinstance(x, int) and isinstance(y, int):
            return _PY_CMP[predicate](x, y)
        return arith.cmpi(_CMP[predicate], *self.pair(x, y))

    def andc(self, x: Condition, y: Condition) -> Condition:
        """Conjunction of two conditions."""
        if isinstance(x, bool):
            return y if x else False
        if isinstance(y, bool):
            return x if y else False
        return arith.andi(*self.together(x, y))

    def orc(self, x: Condition, y: Condition) -> Condition:
        """Disjunction of two conditions."""
        if isinstance(x, bool):
            return True if x else y
        if isinstance(y, bool):
            return True if y else x
        return arith.ori(*self.together(x, y))

    def mask(self, condition: Condition | None, shape: Sequence[int]) -> ir.Value | None:
        """The condition as a mask of this shape; None where it is known to hold."""
        if condition is None or condition is True:
            return None
        if condition is False:
            return self.constant(False, tt.with_shape(shape, self.i1))
        return self.broadcast(condition, shape)

    def cast_int(self, x: ir.Value, element: ir.Type) -> ir.Value:
        """To another signed integer type."""
        source = tt.element_of(x.type)
        if source == element:
            return x
        target = tt.with_element(x.type, element)
        return arith.extsi(target, x) if element.width > source.width else arith.trunci(target, x)

    # -- memory ----------------------------------------------------------------------------------------------

    def addptr(self, pointer: ir.Value, offset: Index) -> ir.Value:
        """The addresses `offset` elements behind; a scalar pointer meets a block of offsets as a splat."""
        if isinstance(offset, int):
            if offset == 0:
                return pointer
            offset = self.value(offset)
        pointer, offset = self.together(pointer, offset)
        return tt.AddPtrOp.create([pointer, offset], [pointer.type]).result

    def load(
        self,
        pointer: ir.Value,
        mask: Condition | None = None,
        other: ir.Value | float | None = None,
        cache: str = "none",
        evict: str = "normal",
    ) -> ir.Value:
        """The elements at a pointer or block of pointers; where the mask is false, `other` (undefined without it)."""
        shape = tt.shape_of(pointer.type)
        type_ = tt.with_shape(shape, tt.pointee(pointer.type))
        operands, lanes = [pointer], self.mask(mask, shape)
        if lanes is not None:
            operands.append(lanes)
            if other is not None:
                filler = other if isinstance(other, ir.Value) else self.constant(other, type_)
                operands.append(self.broadcast(filler, shape))
        counts = [1, int(len(operands) > 1), int(len(operands) > 2)]
        attributes: dict[str, ir.Attribute] = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get(counts)}
        return tt.LoadOp.create(operands, [type_], {**attributes, **self._hints(cache, evict)}).result

    def store(
        self,
        pointer: ir.Value,
        value: ir.Value,
        mask: Condition | None = None,
        cache: str = "none",
        evict: str = "normal",
    ) -> None:
        """Writes a value (broadcast to the pointers' shape) where the mask holds."""
        shape = tt.shape_of(pointer.type)
        lanes = self.mask(mask, shape)
        operands = [pointer, self.broadcast(value, shape), *([] if lanes is None else [lanes])]
        tt.StoreOp.create(operands, [], self._hints(cache, evict))

    def _hints(self, cache: str, evict: str) -> dict[str, ir.Attribute]:
        hints: dict[str, ir.Attribute] = {}
        if cache != "none":
            hints["cache"] = self._i32(tt.CACHE[cache])
        if evict != "normal":
            hints["evict"] = self._i32(tt.EVICT[evict])
        return hints

    def atomic_rmw(
        self, kind: str, pointer: ir.Value, value: ir.Value, mask: Condition | None = None, sem: str = "relaxed"
    ) -> ir.Value:
        """Combines `value` into memory (kinds: `tt.RMW`); returns what was there."""
        shape = tt.shape_of(pointer.type)
        lanes = self.mask(mask, shape)
        operands = [pointer, self.broadcast(value, shape), *([] if lanes is None else [lanes])]
        attributes: dict[str, ir.Attribute] = {
            "atomic_rmw_op": self._i32(tt.RMW[kind]),
            "sem": self._i32(tt.SEMANTICS[sem]),
            "scope": self._i32(tt.SCOPE["gpu"]),
        }
        return tt.AtomicRmwOp.create(operands, [operands[1].type], attributes).result

    # -- descriptors -----------------------------------------------------------------------------------------

    def make_tensor_descriptor(
        self, pointer: ir.Value, sizes: Sequence[Index], strides: Sequence[Index], block: Sequence[int]
    ) -> ir.Value:
        """A descriptor made on the device; the last stride is 1."""
        type_ = tt.tensordesc(ir.RankedTensorType.get(list(block), tt.pointee(pointer.type)))
        dims = [self.value(s, self.i32) for s in sizes] + [self.value(s, self.i64) for s in strides]
        return tt.MakeTensorDescriptorOp.create([pointer, *dims], [type_], {"padding": self._i32(1)}).results[0]

    def descriptor_load(self, desc: ir.Value, indices: Sequence[Index]) -> ir.Value:
        operands = [desc, *(self.value(i, self.i32) for i in indices)]
        return tt.DescriptorLoadOp.create(operands, [tt.block_of(desc.type)]).result

    def descriptor_store(self, desc: ir.Value, value: ir.Value, indices: Sequence[Index]) -> None:
        tt.DescriptorStoreOp.create([desc, value, *(self.value(i, self.i32) for i in indices)], [])

    # -- floats (Python floats become constants) -------------------------------------------------------------

    def addf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        return arith.addf(*self.pair(x, y))

    def subf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        return arith.subf(*self.pair(x, y))

    def mulf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        return arith.mulf(*self.pair(x, y))

    def divf(self, x: ir.Value | float, y: ir.Value | float, precise: bool = False) -> ir.Value:
        """x / y; f32 within two units in the last place, or with `precise` rounded as in eager."""
        p, q = self.pair(x, y)
        if precise and tt.element_of(p.type) == self.f32:
            return tt.PreciseDivfOp.create([p, q], [p.type]).result
        return arith.divf(p, q)

    def negf(self, x: ir.Value) -> ir.Value:
        """-x, as a subtraction: Triton 3.6 has no arith.negf on blocks."""
        return self.subf(-0.0, x)

    def maxf(self, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """The larger; of a NaN and a number the number."""
        return arith.maxnumf(*self.pair(x, y))

    def cmpf(self, predicate: str, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        """Float comparison; predicates as in arith.cmpf (oeq, olt, uno, ...)."""
        return arith.cmpf(_CMPF.index(predicate), *self.pair(x, y))

    def select(self, condition: Condition, x: ir.Value | float, y: ir.Value | float) -> ir.Value:
        p, q = self.pair(x, y)
        if isinstance(condition, bool):
            return p if condition else q
        c, p, q = self.together(condition, p, q)
        return arith.select(c, p, q)

    def math(self, name: str, *operands: ir.Value) -> ir.Value:
        """An op of the math dialect by name ("exp2", "sqrt", ...): its operands and result have one type."""
        values = self.together(*operands)
        return ir.Operation.create(f"math.{name}", results=[values[0].type], operands=values).result

    def extern(self, symbol: str, *operands: ir.Value, result: ir.Type | None = None) -> ir.Value:
        """A function of the device's math library for each element; `result` is its element type if another."""
        values = self.together(*operands)
        attributes: dict[str, ir.Attribute] = {
            "libname": ir.StringAttr.get(""),
            "libpath": ir.StringAttr.get(""),
            "symbol": ir.StringAttr.get(symbol),
            "pure": ir.BoolAttr.get(True),
        }
        type_ = values[0].type if result is None else tt.with_element(values[0].type, result)
        return tt.ExternElementwiseOp.create(values, [type_], attributes).results[0]

    def cast_float(self, x: ir.Value, element: ir.Type) -> ir.Value:
        """To another float type, widening or rounding to nearest even; 8-bit floats through `tt.fp_to_fp`."""
        source = tt.element_of(x.type)
        if source == element:
            return x
        target = tt.with_element(x.type, element)
        wide, narrow = _FLOAT_BITS.get(type(source), 8), _FLOAT_BITS.get(type(element), 8)
        if wide == narrow == 16:  # bf16 <-> f16
            return self.cast_float(self.cast_float(x, self.f32), element)
        if 8 in (wide, narrow):
            attributes = {"rounding": self._i32(tt.ROUNDING["rtne"])} if narrow < wide else {}
            return tt.FpToFpOp.create([x], [target], attributes).result
        return arith.extf(target, x) if narrow > wide else arith.truncf(target, x)

    def bitcast(self, x: ir.Value, element: ir.Type) -> ir.Value:
        """The same bits as another type; also of pointers."""
        if tt.element_of(x.type) == element:
            return x
        return tt.BitcastOp.create([x], [tt.with_element(x.type, element)]).result

    def dot(self, lhs: ir.Value, rhs: ir.Value, acc: ir.Value, precision: str = "ieee") -> ir.Value:
        """`acc + lhs @ rhs`; how f32 operands are taken: ieee, tf32 or tf32x3."""
        attributes = {"inputPrecision": self._i32(tt.PRECISION[precision]), "maxNumImpreciseAcc": self._i32(0)}
        return tt.DotOp.create([lhs, rhs, acc], [acc.type], attributes).result

    # -- reductions ------------------------------------------------------------------------------------------

    def reduce(
        self, values: Sequence[ir.Value], axis: int, combine: Callable[..., ir.Value | Sequence[ir.Value]]
    ) -> list[ir.Value]:
        """`tt.reduce`: `combine(*left, *right)` gives the combined element(s).  Blocks must have one shape."""
        results = []
        for v in values:
            shape = tt.shape_of(v.type)
            del shape[axis]
            results.append(tt.with_shape(shape, tt.element_of(v.type)))
        op = tt.ReduceOp.create(list(values), results, {"axis": self._i32(axis)})
        self._combiner(op, values, tt.ReduceReturnOp, combine)
        return list(op.results)

    def scan(
        self,
        values: Sequence[ir.Value],
        axis: int,
        combine: Callable[..., ir.Value | Sequence[ir.Value]],
        reverse: bool = False,
    ) -> list[ir.Value]:
        """`tt.scan`: all prefixes along `axis`, combined as in `reduce`."""
        attributes: dict[str, ir.Attribute] = {"axis": self._i32(axis), "reverse": ir.BoolAttr.get(reverse)}
        op = tt.ScanOp.create(list(values), [v.type for v in values], attributes)
        self._combiner(op, values, tt.ScanReturnOp, combine)
        return list(op.results)

    def _combiner(self, op: Any, values: Sequence[ir.Value], end: Any, combine: Callable[..., Any]) -> None:
        elements = [tt.element_of(v.type) for v in values] * 2
        block = op.regions[0].blocks.append(*elements, arg_locs=[ir.Location.unknown()] * len(elements))
        with ir.InsertionPoint(block):
            combined = combine(*block.arguments)
            end.create([combined] if isinstance(combined, ir.Value) else list(combined), [], {})

    # -- control flow ----------------------------------------------------------------------------------------

    def for_(
        self,
        lower: Index,
        upper: Index,
        step: Index,
        body: Callable[..., Any],
        inits: Sequence[ir.Value] = (),
        attributes: dict[str, str] | None = None,
    ) -> list[ir.Value]:
        """scf.for.  `body(i)`, or `body(i, carried) -> new carried` with `inits`; returns what is carried at the end.

        A loop known to run zero times vanishes, one known to run once is inlined.  `attributes` are discardable
        attributes as text: {"tt.num_stages": "3 : i32"}, {"tt.flatten": "unit"}.
        """
        if isinstance(lower, int) and isinstance(upper, int) and isinstance(step, int):
            if lower >= upper:
                return list(inits)
            if lower + step >= upper:
                return list(body(lower, list(inits)) if inits else body(lower) or ())
        like = next((x.type for x in (upper, lower, step) if isinstance(x, ir.Value)), None)
        loop = scf.ForOp(self.value(lower, like), self.value(upper, like), self.value(step, like), list(inits))
        for key, text in (attributes or {}).items():
            loop.operation.attributes[key] = ir.Attribute.parse(text)
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
        """scf.if on a scalar; with `types`, both branches return that many values."""
        if isinstance(condition, bool):
            branch = then if condition else otherwise
            return list((branch() if branch else None) or ())
        op = scf.IfOp(condition, list(types), has_else=otherwise is not None)
        for block, branch in ((op.then_block, then), (op.else_block if otherwise else None, otherwise)):
            if block is not None and branch is not None:
                with ir.InsertionPoint(block):
                    values = branch()
                    scf.yield_(list(values or ()) if types else [])
        return list(op.results)
