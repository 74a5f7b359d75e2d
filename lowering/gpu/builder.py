# Part of the Kiln Project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Terse construction of Triton IR (`tt`, arith, math, scf) from Python.

Kernels are written as with `triton.language`: Python numbers become constants, and all two-sided methods broadcast
(`block_builder.py`).  Here is what touches memory, what computes floats, and what reduces a block.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import arith

from kiln.dialects import tt
from kiln.functions import Fn
from kiln.lowering.gpu.block_builder import BlockBuilder
from kiln.lowering.ir_builder import Condition, Index

__all__ = ["Builder", "Condition", "Index", "is_float", "kernel"]

_ALL_SUMS = 1 << 30
"""More terms than a sum has."""
_SHORT_SUMS = 128
"""Terms of 8-bit floats that tensor cores add up before f32 does, as in cuBLAS: each of their sums has 14 bits."""
_FLOAT_BITS: dict[type, int] = {ir.F64Type: 64, ir.F32Type: 32, ir.F16Type: 16, ir.BF16Type: 16}


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


class Builder(BlockBuilder):
    """Emits ops at the current insertion point.

    >>> i = b.addi(b.muli(b.program_id(0), 1024), b.arange(1024))
    >>> b.store(b.addptr(y, i), b.mulf(b.load(b.addptr(x, i), mask), 2.0), mask)
    """

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

    def assert_(self, condition: ir.Value | bool, message: str) -> None:
        """Ends the kernel where an element of the condition is false."""
        if isinstance(condition, ir.Value):
            tt.AssertOp.create([condition], [], {"message": ir.StringAttr.get(message)})

    # -- descriptors -----------------------------------------------------------------------------------------

    def make_tensor_descriptor(
        self, pointer: ir.Value, sizes: Sequence[Index], strides: Sequence[Index], block: Sequence[int]
    ) -> ir.Value:
        """A descriptor made on the device; the last stride is 1."""
        type_ = tt.tensordesc(ir.RankedTensorType.get(list(block), tt.pointee(pointer.type)))
        dims = [self.value(s, self.i32) for s in sizes] + [self.value(s, self.i64) for s in strides]
        return tt.MakeTensorDescriptorOp.create([pointer, *dims], [type_], {"padding": self._i32(1)}).results[0]

    def descriptor_load(self, desc: ir.Value, indices: Sequence[Index], rank: int | None = None) -> ir.Value:
        """The block at these indices, without the leading dims of 1 that make it more than `rank` dims."""
        operands = [desc, *(self.value(i, self.i32) for i in indices)]
        block = tt.block_of(desc.type)
        type_ = block if rank is None else tt.with_shape(list(block.shape)[-rank:], block.element_type)
        return tt.DescriptorLoadOp.create(operands, [type_]).result

    def descriptor_store(self, desc: ir.Value, value: ir.Value, indices: Sequence[Index]) -> None:
        """Store a block through a descriptor at element positions (i32)."""
        tt.DescriptorStoreOp.create([desc, value, *(self.value(i, self.i32) for i in indices)], [])

    # -- floats (Python floats become constants) -------------------------------------------------------------

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

    def math(self, name: str, *operands: ir.Value) -> ir.Value:
        """An op of the math dialect by name ("exp2", "sqrt", ...): its operands and result have one type."""
        values = self.together(*operands)
        if f"math.{name}" in self.instructions and tt.element_of(values[0].type) == self.f32:
            return self.instruction(self.instructions[f"math.{name}"], *values)
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

    def instruction(self, name: str, *operands: ir.Value) -> ir.Value:
        """An instruction of PTX on f32 ("rsqrt.approx.f32") or f64, as the operands are, for each element."""
        values = self.together(*operands)
        register = "d" if tt.element_of(values[0].type) == self.f64 else "f"
        places = ", ".join(f"${i}" for i in range(len(values) + 1))
        attributes: dict[str, ir.Attribute] = {
            "asm_string": ir.StringAttr.get(f"{name} {places};"),
            "constraints": ir.StringAttr.get(",".join([f"={register}", *[register] * len(values)])),
            "pure": ir.BoolAttr.get(True),
            "packed_element": self._i32(1),
        }
        return tt.ElementwiseInlineAsmOp.create(values, [values[0].type], attributes).results[0]

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
        """`acc + lhs @ rhs`; how f32 operands are taken: ieee, tf32 or tf32x3. "fast": sums of 8-bit floats may stay in
        the tensor cores, whose own precision is less than that of f32.
        """
        narrow = is_float(lhs.type) and type(tt.element_of(lhs.type)) not in _FLOAT_BITS
        imprecise = _ALL_SUMS if precision == "fast" else _SHORT_SUMS if narrow else 0
        kind = tt.PRECISION["ieee" if precision == "fast" else precision]
        attributes = {"inputPrecision": self._i32(kind), "maxNumImpreciseAcc": self._i32(imprecise)}
        return tt.DotOp.create([lhs, rhs, acc], [acc.type], attributes).result

    # -- reductions ------------------------------------------------------------------------------------------

    def reduce(
        self, values: Sequence[ir.Value], axis: int, combine: Fn[ir.Value, ir.Value | Sequence[ir.Value]]
    ) -> list[ir.Value]:
        """`tt.reduce`: `combine(*left, *right)` gives the combined element(s).  Blocks must have one shape."""
        results: list[ir.Type] = []
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
        combine: Fn[ir.Value, ir.Value | Sequence[ir.Value]],
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
